/*
 * The bytes of a backup as parts: a line, or a line and so many bytes after it. Everything that
 * passes is hashed.
 *
 * A value of the caller's; one thread's at a time.
 */
#pragma once

#include <stdbool.h>
#include <stdio.h>
#include <jansson.h>
#include "base/hash.h"

#define BACKUP_LINE_BYTES 4096u

struct backup_file {
	FILE *file; /* owned */
	struct hash_sha256 *hash;
	uint64_t bytes; /* that have passed */
};

/* `mode` as fopen(3)'s; what is made is 0600. -errno. */
int backup_file_open(struct backup_file *f, const char *path, const char *mode) __must_check;
/* Flushes, and with `durable` waits for the disk. */
int backup_file_close(struct backup_file *f, bool durable) __must_check;
/* For an end without ceremony; a closed one is allowed. */
void backup_file_release(struct backup_file *f);

int backup_file_put(struct backup_file *f, const void *data, size_t len) __must_check;
/* The line of `json`, whose reference is taken; NULL is -ENOMEM. */
int backup_file_put_line(struct backup_file *f, json_t *json) __must_check;
/* Ends the hash; only backup_file_put_line() may follow. */
void backup_file_sum(struct backup_file *f, char ret_hex[2 * SHA256_BYTES + 1]);

/* -ENODATA: the file ends here. */
int backup_file_get(struct backup_file *f, void *data, size_t len) __must_check;
/* *ret_json is a new reference. One with "sha256" is not hashed. -EBADMSG: no
 * no line of JSON. */
int backup_file_get_line(struct backup_file *f, json_t **ret_json) __must_check;
