/*
 * A mount that follows its source. The master lists that again and again, and tells with the answer
 * to each hold which generation is the newest. When that is not the one shown, the keeper is asked
 * for a daemon that shows it, in this one's place.
 *
 * With --refresh-behind a mount shows the last known generation until a listing completes that began after the mount,
 * switches to what that found, and is pinned to it.
 *
 * What cannot be had now is tried again, ever less often; readers go on with what is shown, and the
 * lag says for how long.
 *
 * Threads: one of its own; follow_json() and follow_metrics() any.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <jansson.h>
#include "admin/metrics.h"
#include "fuse/daemon/cachefuse.h"

/* A mount that follows says so often what it shows, and so hears what is new. */
#define FOLLOW_HOLD_EVERY CLOCK_SECOND
/* Between two messages of this mount to the master, ns. */
uint64_t follow_hold_every(const struct cachefuse *c);

/* It was mounted to follow, and its engine shows newer generations under the same superblock (live.h). */
bool follow_is_live(const struct cachefuse *c);
/* Whether it can, with that engine, here; with a line when not. */
bool follow_possible(const struct engine *engine, struct err *e);
/* Adds to a superblock's key what keeps those who follow apart from those who do not. */
size_t follow_key(const struct cachefuse *c, char *out, size_t size);
/* c->follow, when it is wanted. -ENOMEM, -EAGAIN. */
int follow_open(struct cachefuse *c) __must_check;
void follow_close(struct cachefuse *c);

/* null: it does not follow. A new reference; NULL without memory. */
json_t *follow_json(const struct cachefuse *c);
void follow_metrics(const struct cachefuse *c, struct metrics *m);
