/*
 * Reads that failed, for people: a bounded table of (where, why, how often), newest kept. Names are
 * looked up when somebody asks, not when a read fails.
 *
 * Threads: any.
 */
#pragma once

#include <stdint.h>
#include <jansson.h>
#include "catalog/catalog.h"

#define FAILURES_MAX 64u

struct failures;

struct failures *failures_new(void);           /* NULL without memory */
void failures_free(struct failures *failures); /* NULL is allowed */

/*
 * Counts a failed read of a place (base/layout.h); `status` is its negative errno. Never blocks for long. True
 * when it is a new entry: worth a line in the log.
 */
bool failures_note(struct failures *failures, uint64_t offset, uint32_t length, int status);

/*
 * [{"key", "error", "count", "last_s", "offset", "path"?}], one row per object and error, newest
 * first; NULL without memory. "path": of the source whose key it is, "" for the root. `sources`: of
 * the mount.
 */
json_t *failures_json(
	struct failures *failures, const struct image_source *sources, uint32_t n_sources);

/* Last failure that touches [offset, offset + bytes): its negative errno, 0 when there is none. */
int failures_last(struct failures *failures, uint64_t offset, uint64_t bytes);

/* Writes a line of log for each entry that has none yet. May block on the table. */
void failures_log(
	struct failures *failures, const struct image_source *sources, uint32_t n_sources);
