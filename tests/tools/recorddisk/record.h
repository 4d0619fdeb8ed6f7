/*
 * The record of a disk: what was written to it and when it was told to make that durable, in order.
 *
 *	file = events; event = struct record_event, `length` bytes of data
 *
 * A power cut leaves on a disk with a volatile cache all that was written before the last flush,
 * and of what came after it anything: record_apply() makes such a disk from a record and an older
 * image.
 * Events are numbered from 0. Threads: one per struct.
 */
#pragma once

#include <assert.h>
#include <stdint.h>
#include <stdio.h>
#include "base/err.h"

#define RECORD_MAGIC    0x64726372u /* "rcrd" */
#define RECORD_DATA_MAX (1024u * 1024u)
#define RECORD_MARK_MAX 256u

enum record_kind {
	RECORD_WRITE = 1, /* data */
	RECORD_FLUSH,     /* all writes before it are durable */
	RECORD_MARK,      /* `length` bytes of text: something that the test did */
};

/* Written in this machine's byte order: a record is read where it was made. */
struct record_event {
	uint32_t magic;
	uint32_t kind;
	uint64_t offset; /* on the disk */
	uint64_t length;
};
static_assert(sizeof(struct record_event) == 24, "no padding in the file");

struct record {
	FILE *file;
	uint64_t next; /* number of the next event */
};

/* For appending (a new file) or reading. */
int record_create(struct record *r, const char *path) __must_check;
int record_open(struct record *r, const char *path) __must_check;
void record_release(struct record *r);

/* length <= RECORD_DATA_MAX; without data for a flush. */
int record_append(struct record *r, enum record_kind kind, uint64_t offset, const void *data,
	uint64_t length) __must_check;

/* The next event; `data` has RECORD_DATA_MAX bytes. 1, or 0 at the end; -EBADMSG: not a record. */
int record_read(struct record *r, struct record_event *ret_event, void *data) __must_check;

/* What of a write survives. */
struct record_choice {
	uint64_t seed;
	uint32_t keep; /* of 1000 */
	uint32_t unit; /* bytes that are written whole or not at all; 0: each write */
};

/*
 * Writes what the events [from, to) wrote into the image `fd`: all of it, or with a choice what its
 * dice let through. Later writes over earlier ones win, if they are let through: each place of the
 * disk ends as any of the versions it had.
 */
int record_apply(const char *path, int fd, uint64_t from, uint64_t to,
	const struct record_choice *choice) __must_check;
