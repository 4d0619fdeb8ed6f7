/*
 * Where a read that took long has waited: for which workers, how long and with what outcome, for memory, for the
 * origin, between attempts. What took less than CLIENT_TRACE_LEAST is not noted, so a read that never waits has
 * no trace and costs nothing; one that took CLIENT_TRACE_SLOW says it with its end, in one line of the log.
 *
 * Lifetime: made with the first note, freed by its owner.
 * Threads: one at a time.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include "base/clock.h"

#define CLIENT_TRACE_LEAST (50 * CLOCK_MS)
#define CLIENT_TRACE_SLOW  (2 * CLOCK_SECOND)
#define CLIENT_TRACE_TEXT  512u /* of client_trace_text(), its zero included */

struct client_trace;

/*
 * It was at `where` (a word of the program's, or a worker's name: cut when it is longer than one) for `ns`, which ended with
 * `status` (0, or why it goes on elsewhere). What was there before with the same outcome is added up. *trace may be NULL;
 * without memory nothing is noted.
 */
void client_trace_note(struct client_trace **trace, const char *where, int status, uint64_t ns);
/* "w1 2.31s ECANCELED, pause 0.40s 3 times, w2 0.12s", in the order in which it was there first. Returns `out`. */
const char *client_trace_text(const struct client_trace *trace, char out[CLIENT_TRACE_TEXT]);
void client_trace_free(struct client_trace *trace); /* NULL is allowed */
