/* The parts of cachectl preload: what is asked for (preload_command.c), and what is shown
 * (preload_show.c). */
#pragma once

#include "ctl/master_call.h"

/* Until the preload has ended, with a bar; what came out. An exit status: 0 complete, 1 not, 130
 * interrupted, and the preload goes on. */
int preload_watch(const struct master_where *where, uint64_t id, struct err *e);
/* Until the source is open, or that failed. An exit status. */
int preload_wait_open(const struct master_where *where, uint64_t id, struct err *e);
/* One, with its failures. */
void preload_print(const json_t *job);
/* {"preloads": [...]} as a table. */
int preload_print_list(const json_t *json, struct err *e);
