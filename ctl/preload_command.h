/* The parts of cachectl preload: what is asked for (preload_command.c), what is shown
 * (preload_show.c), and waiting (preload_watch.c). */
#pragma once

#include "ctl/bar.h"
#include "ctl/master_call.h"

#define PRELOAD_SET_MAX 16u /* sources of a dataset */

/* Preloads that were begun together: one for each source of a dataset; n >= 1. */
struct preload_set {
	uint64_t ids[PRELOAD_SET_MAX];
	uint32_t n;
};

/* Waits for the end of all with one bar, and prints the results. `format` is that of -o. An exit status: 0 complete, 1 not, 130
 * interrupted, and they go on. */
int preload_watch(const struct master_where *where, const struct preload_set *set,
	const char *format, struct err *e);
/* Waits until their sources are open, or that failed, and prints that they have begun. An exit status. */
int preload_wait_open(const struct master_where *where, const struct preload_set *set,
	const char *format, struct err *e);

/* One, with its failures. */
void preload_print(const json_t *job);
void preload_print_failures(const json_t *job);
/* {"preloads": [...]} as a table. */
int preload_print_list(const json_t *json, struct err *e);

/* Members of a preload's JSON; what is not there is 0 or "". */
uint64_t preload_number(const json_t *job, const char *name);
const char *preload_text(const json_t *job, const char *name);
bool preload_is(const json_t *job, const char *state);
bool preload_has_ended(const json_t *job);
/* Its note is the job's. */
struct bar_progress preload_progress(const json_t *job);
