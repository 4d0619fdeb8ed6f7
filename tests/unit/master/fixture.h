/*
 * A directory of a test's own for a master: a directory that is an origin, a store, tables. Header
 * only: each test is one program.
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

static char dir[64];
static char path_buffer[512];

static inline const char *in(const char *fmt, ...)__printf(1, 2);
static inline const char *in(const char *fmt, ...)
{
	va_list ap;
	int n = snprintf(path_buffer, sizeof(path_buffer), "%s/", dir);

	va_start(ap, fmt);
	(void)vsnprintf(path_buffer + n, sizeof(path_buffer) - (size_t)n, fmt, ap);
	va_end(ap);
	return path_buffer;
}

static inline void put(const char *name, const char *text)
{
	assert_int_equal(file_write_atomic(in("origin/%s", name), text, strlen(text), 0644), 0);
}

/* DIR/origin, DIR/other, DIR/state/tables. */
static inline int fixture_make(void)
{
	(void)snprintf(dir, sizeof(dir), "/var/tmp/granary-ma.XXXXXX");
	return mkdtemp(dir) && file_mkdirs(in("origin"), 0755) == 0 &&
			       file_mkdirs(in("other"), 0755) == 0 &&
			       file_mkdirs(in("state/tables"), 0700) == 0
		       ? 0
		       : -1;
}

static inline int fixture_remove(void)
{
	char command[128];

	(void)snprintf(command, sizeof(command), "rm -rf %s", dir);
	return system(command);
}

static inline struct ufs_limits fixture_limits(uint64_t patience_ns)
{
	return (struct ufs_limits){ .max_requests = 4,
		.list_requests = 4,
		.request_timeout_ns = patience_ns,
		.deadline_ns = 2 * patience_ns };
}

/* Sources over a store, for which the directory has been made. */
static inline struct source_set_config fixture_sources(struct store *store, uint64_t epoch)
{
	static char tables[128];

	(void)snprintf(tables, sizeof(tables), "%s/state/tables", dir);
	return (struct source_set_config){ .store = store,
		.tables = tables,
		.epoch = epoch,
		.listing_bytes = 64 * MiB,
		.limits = fixture_limits(CLOCK_SECOND),
		.hold_ns = 3600 * CLOCK_SECOND };
}
