/*
 * Files and directories: whole reads, atomic writes, exact transfers. All block, and return 0 or a
 * negative errno. Threads: any but a loop's.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include "base/buf.h"

/* Creates a directory and its parents with `mode`; 0 when it is there. */
int file_mkdirs(const char *path, mode_t mode) __must_check;

/* Creates the directory that `path` is in with `mode`, and its parents with 0755; 0 when it is there. */
int file_make_directory_of(const char *path, mode_t mode) __must_check;

/*
 * A directory as O_PATH, by an absolute path without symbolic links: -ELOOP where one is in it. No file system that another user's
 * process serves is asked for a name: -EOPNOTSUPP where one lies above the directory.
 */
int file_open_exact(const char *path, int *ret_fd) __must_check;
/* Of the mount that `fd` is on, as /proc/self/mountinfo numbers mounts; 0: not known. Asks no file system. */
int file_mount_id(int fd);

/* Appends a whole file to `b`, bounded by b->max (-ENOBUFS). */
int file_read_all(const char *path, struct buf *b) __must_check;

/* Writes PATH.new, fsyncs, renames it over `path`, fsyncs the directory. Of several writers, in any
 * processes, the last one wins. */
int file_write_atomic(const char *path, const void *data, size_t len, mode_t mode) __must_check;

/* Makes the names in a directory durable, or in the one that `path` lies in. */
int file_sync_dir(const char *path) __must_check;
int file_sync_parent(const char *path) __must_check;

/* Exactly len bytes at an offset; -ENODATA at an early end of the file. Retries EINTR. */
int file_pread_exact(int fd, void *data, size_t len, uint64_t offset) __must_check;
int file_pwrite_exact(int fd, const void *data, size_t len, uint64_t offset) __must_check;

/* Removes a directory with all that is in it, but nothing that is mounted there. What cannot be removed stays. */
void file_remove_tree(const char *path);
