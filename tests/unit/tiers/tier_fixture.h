/*
 * What the tests of tiers share: a directory of their own that goes with the test, a tier in it,
 * and objects whose bytes follow from their number.
 */
#pragma once

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <dirent.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "base/clock.h"
#include "base/units.h"
#include "tiers/chunk_file_internal.h"
#include "tiers/identity_internal.h"
#include "tiers/tiers.h"

struct fixture {
	char root[256]; /* temporary directory */
	char path[300]; /* of the tier */
	uint64_t capacity;
	struct tier_set *set;
};

/* The tier at f->path, made if it does not exist; the test sets f->capacity before. */
void fixture_open(struct fixture *f);
void fixture_close(struct fixture *f);
void fixture_reopen(struct fixture *f);

/* As cmocka wants them: *state is a fixture in a directory of its own; no tier is open yet. */
int fixture_setup(void **state);
void fixture_remove_tree(const char *path);
int fixture_teardown(void **state);

/* Chunk n of the tests' volume. */
struct chunk_id chunk_number(uint64_t n);

/* Bytes that no two (seed, position) share by chance. */
void pattern(uint64_t seed, uint8_t *out, size_t len);

/* Its bytes are pattern(seed). */
struct piece_run run_of(uint32_t offset, uint32_t length, uint64_t seed);

/* Admits chunk n when needed. Returns 0 or a negative errno. */
int write_run(struct fixture *f, uint64_t n, const struct piece_run *run);

/* Reads and compares; -ENODATA too when the chunk is not there; -EILSEQ for other bytes than were
 * written, which must never be. */
int read_run(struct fixture *f, uint64_t n, const struct piece_run *run);

/* Calls fn for every chunk file of the tier; returns how many there are. */
uint32_t each_chunk_file(struct fixture *f, void (*fn)(const char *path, void *arg), void *arg);

/* For each_chunk_file(): copies the path into the 800 bytes at arg. */
void keep_path(const char *path, void *arg);

/* Path of the only chunk file. */
void only_file(struct fixture *f, char out[800]);

/* Flips a bit of the byte at an offset. */
void flip_byte(const char *path, off_t offset);

/* When this thread comes to that point, chunk n is dropped there, and another thread writes the run
 * to its next life at once. */
void drop_at(struct fixture *f, const char *point, uint64_t n, const struct piece_run *run);
/* It came there; the name was still taken after the drop; the next life was written. */
void drop_at_end(void);

/* As after a power cycle: the tier was last started under another boot id. */
void another_boot(struct fixture *f);

struct tier_status status_of(struct fixture *f);

bool tier_is(struct fixture *f, const char *state);
