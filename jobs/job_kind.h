/*
 * The kinds of objects that jobs become: how each is suspended and scaled, and what its status says.
 *
 * Pure functions. Threads: any.
 */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include "jobs/job_type.h"

struct job_kind {
	const char *api_version;
	const char *kind;
	enum job_engine engine;
	const char *suspend; /* path of the boolean that suspends it; NULL: it has none */
	const char
		*workers; /* path of the number of its workers; NULL: it has none that may change */
};

/* NULL: no more. */
const struct job_kind *job_kind_at(unsigned int i);
const struct job_kind *job_kind_of(const char *api_version, const char *kind);

enum job_state {
	JOB_PENDING,
	JOB_SUSPENDED, /* by its user or by a queue */
	JOB_RUNNING,
	JOB_SUCCEEDED,
	JOB_FAILED,
};

const char *job_state_name(enum job_state state);
static inline bool job_state_is_end(enum job_state state)
{
	return state == JOB_SUCCEEDED || state == JOB_FAILED;
}

/* By the statuses of its conditions, not by the last condition: that may be one that no longer holds. *ret_reason, may be NULL: what
 * the operator says, borrowed from the object; "" when it says nothing. */
enum job_state job_state_of(const json_t *object, const char **ret_reason);

/*
 * The kinds that a type may become, the usual one first: those of its engines, `i` counts from 0. NULL: no more. Where the cluster has
 * not got the first, `engine: auto` takes the next.
 */
const struct job_kind *job_kind_of_type(const struct job_type *type, unsigned int i);
