/*
 * What is done for the room of a set behind its callers' back, once a second and when poked: quotas
 * that shrank, watermarks, chunks between fast and slow tiers, into extents and out of them. Each
 * round does a bounded piece of work.
 *
 * Threads: a periodic work of the set's pool, from space_start() to space_stop().
 */
#pragma once

struct tier_set;

void space_start(struct tier_set *set);
void space_stop(struct tier_set *set); /* also when not started, or stopped already */

/* The next round begins soon. Any thread, any time. */
void space_wake(struct tier_set *set);

/* One round, for the pool and for tests. */
void space_round(struct tier_set *set);
