/*
 * What may still be read, asked from the master: at start, with every new table, and every ten
 * seconds or so. Chunks that no retained generation names are dropped, lineages that are not
 * retained go entirely; what lives in them is copied first to where it belongs now (adopt.h).
 *
 * Nothing goes while the master is silent, or says what contradicts what this worker has seen
 * (catalog/generation_seen.h): it may have been restored from an older copy.
 *
 * Threads: a periodic work, and another one for an eviction by path while it lasts (evict_job.h); retention_wake()
 * from any.
 */
#pragma once

#include "cacheworker/worker.h"

struct Granary__Policy;

/* What the master says of a source's policy: the tiers follow it from now on. Any thread. */
void retention_follow_policy(
	struct worker *w, const struct volume_id *volume, const struct Granary__Policy *policy);

/* Before anybody may wake it. */
void retention_init(struct worker *w);
void retention_start(struct worker *w);
/* Asks soon. Never blocks. */
void retention_wake(struct worker *w);
/* Sends a report of what is cached, and waits until the master has one that was made at `since_ns` or later: `patience_ns` at
 * most, and not once the worker closes. Any thread, but not in its own work. */
void retention_report(struct worker *w, uint64_t since_ns, uint64_t patience_ns);
/* True: the retention settings that the master had at `since_ns`, or later ones, are followed. Any thread. */
bool retention_heard(const struct worker *w, uint64_t since_ns);
/* Stops what is under way. */
void retention_stop(struct worker *w);
/* Waits for its end; after the client of the master. */
void retention_close(struct worker *w);
/* Once it is not woken any more: after the loop. */
void retention_release(struct worker *w);
