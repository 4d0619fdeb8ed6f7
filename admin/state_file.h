/*
 * What a daemon writes down for the one that comes after it: JSON in a file, with a "format" by which
 * another version's is distinguished.
 *
 * Threads: any, one at a time per file. Blocks.
 */
#pragma once

#include <jansson.h>
#include <stdint.h>
#include "base/check.h"

/* 64 mounts of 16 sources with the longest paths fit. */
#define STATE_FILE_BYTES (16u * 1024u * 1024u)

/* -errno of the file, -EBADMSG, -ENOMEM, -ENOBUFS; -EPROTONOSUPPORT: it is of another format; 0: of
 * any. */
int state_file_read(const char *path, int format, json_t **ret_json) __must_check;

/* Writes `text` (NULL: there was no memory for it, -ENOMEM) unless it is what *saved remembers of the last
 * time, durably. 1: it was written; 0: it need not be. -EFBIG: it could not be read again. */
int state_file_write(const char *path, const char *text, uint64_t *saved) __must_check;
