/* What the tests of catalog/ share: a directory of their own, tables built from small listings,
 * a random source. */
#pragma once

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/clock.h"
#include "base/file.h"
#include "catalog/catalog.h"

extern const struct volume_id fixture_volume;
extern char fixture_dir[64];

/* Group set-up: /var/tmp, since an image may not lie on tmpfs. */
int fixture_setup(void **state);

int fixture_teardown(void **state);

/* A path in the fixture's directory; storage of eight calls. */
const char *fixture_path(const char *name);

/* xorshift64*: the same sequence in every run. */
uint64_t fixture_random(uint64_t *state);

/* An object; its tag is a text. */
void fixture_add(struct listing *l, const char *key, uint64_t size, const char *tag);

/* A table that must be valid. */
struct table *fixture_open(const char *path);

/* Builds the generation after `prev`, frees the listing, opens the table. NULL when nothing
 * differs. */
struct table *fixture_build(
	struct table *prev, struct listing *l, const char *name, struct generation_stats *stats);
