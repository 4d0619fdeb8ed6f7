/*
 * What the master is told of the volumes that it named: how much of each is here, and that what was
 * to be evicted is gone.
 *
 * Threads: that of the terms alone.
 */
#pragma once

#include "cacheworker/worker.h"

/* Brings up what is here of the volume. `evict`: a number of the master's; what is here of the
 * volume is dropped unless that, or a higher one, was followed before. True when it was dropped: the
 * master waits for that word. */
bool report_note(struct worker *w, const struct volume_id *volume, uint64_t evict);
/* A packed message WorkerReport, to be freed; NULL without memory. */
uint8_t *report_message(struct worker *w, size_t *ret_len);
void report_release(struct worker *w);
