/*
 * What is reported to the master of the volumes that it named: how much of each is here, and that what was
 * to be evicted is gone.
 *
 * Threads: the retention thread alone.
 */
#pragma once

#include "cacheworker/worker.h"

struct Granary__EvictPaths;

/* The volume is reported from now on, as it is then. `evict`: a number of the master's; what is here of the
 * volume is dropped unless that, or a higher one, was followed before. True when it was dropped: the
 * master waits for that word. */
bool report_note(struct worker *w, const struct volume_id *volume, uint64_t evict);
/* The same of some objects of it, after report_note(); begins that (evict_job.h), and is true only of what
 * can never be followed. */
bool report_note_paths(
	struct worker *w, const struct volume_id *volume, const struct Granary__EvictPaths *order);
/* What was begun and has ended is reported from now on. */
void report_take_evicted(struct worker *w);
/* A packed message WorkerReport, to be freed; NULL without memory. */
uint8_t *report_message(struct worker *w, size_t *ret_len);
void report_release(struct worker *w);
