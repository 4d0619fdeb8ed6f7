/*
 * What `cachectl status` asks: all daemons of this host at the same time, with one deadline (fleet_set_deadline()). One that hangs costs
 * no more than that, however many do.
 *
 * Threads: the caller's; those that ask are this file's.
 */
#pragma once

#include <jansson.h>
#include "base/check.h"

struct status_gather;

/* NULL without memory. */
struct status_gather *status_gather_new(void);
void status_gather_free(struct status_gather *gather); /* NULL is allowed */

/* Asks keeper, worker and master of a runtime directory, and the mounts that the keeper or its file names. -ENOMEM. */
int status_gather_run(struct status_gather *gather, const char *run) __must_check;
/* Asks the cluster's master: status_cluster(). -ENOMEM. */
int status_gather_cluster(struct status_gather *gather) __must_check;
/* Until all have answered, or the deadline is over. Nothing is asked any more then. */
void status_gather_wait(struct status_gather *gather);

/*
 * After status_gather_wait(): the answer of the daemon at that socket, borrowed; NULL and *ret_code (may be NULL): -ETIMEDOUT when it did
 * not answer in time, -ENOENT when it was not asked, or another -errno.
 */
json_t *status_gather_answer(const struct status_gather *gather, const char *socket, int *ret_code);
/* Of RUN/name. */
json_t *status_gather_daemon(
	const struct status_gather *gather, const char *run, const char *name, int *ret_code);
/* status_cluster()'s, borrowed; NULL: none. */
json_t *status_gather_of_cluster(const struct status_gather *gather);
