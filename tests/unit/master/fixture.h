/*
 * A directory of a test's own for a master: a directory that is an origin, a store, tables.
 */
#pragma once

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/units.h"
#include "master/source.h"

/* DIR. */
extern char fixture_dir[64];

/* A path in DIR; storage of one call. */
const char *fixture_in(const char *fmt, ...) __printf(1, 2);

/* A file of the origin. */
void fixture_put(const char *name, const char *text);

/* DIR/origin, DIR/other, DIR/state/tables. */
int fixture_make(void);

int fixture_remove(void);

/* A request may take patience_ns, an operation twice that. */
struct ufs_limits fixture_limits(uint64_t patience_ns);

/* Sources over a store, for which the directory has been made. */
struct source_set_config fixture_sources(struct store *store, uint64_t epoch);
