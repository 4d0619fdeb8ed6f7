/*
 * Files and directories: whole reads, atomic writes, exact transfers. All block, and return 0 or a
 * negative errno. Threads: any but a loop's; two writers of one path must not meet.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include "base/buf.h"

/* Creates a directory and its parents with `mode`; 0 when it is there. */
int file_mkdirs(const char *path, mode_t mode) __must_check;

/* Appends a whole file to `b`, bounded by b->max (-ENOBUFS). */
int file_read_all(const char *path, struct buf *b) __must_check;

/* Writes beside, fsyncs, renames over `path`, fsyncs the directory. */
int file_write_atomic(const char *path, const void *data, size_t len, mode_t mode) __must_check;

/* Makes the names in a directory durable. */
int file_sync_dir(const char *path) __must_check;

/* Exactly len bytes at an offset; -ENODATA at an early end of the file. Retries EINTR. */
int file_pread_exact(int fd, void *data, size_t len, uint64_t offset) __must_check;
int file_pwrite_exact(int fd, const void *data, size_t len, uint64_t offset) __must_check;
