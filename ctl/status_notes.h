/* Below the table of `cachectl status`: what an operator should know of mounts, daemons, tiers and
 * origins; a line each, nothing where all is well. */
#pragma once

#include <jansson.h>
#include <stdint.h>
#include "ctl/target.h"

/* What was found on this node: arrays of answers to /v1/status, owned. */
struct status_found {
	const struct target *target; /* only its mounts; NULL: all */
	const char *run;             /* only of this runtime directory; NULL: all */
	json_t *mounts;
	json_t *workers;
	json_t *masters;
	json_t *keepers;
	json_t *others;  /* mounts in the kernel of which no daemon answered */
	json_t *cluster; /* status_cluster(), or NULL */
	json_t *silent; /* {"run", "daemon"} of each that did not answer in time; "pid" where it is known */
	struct status_gather *gather;
};

static inline uint64_t status_number(const json_t *json, const char *name)
{
	return (uint64_t)json_integer_value(json_object_get(json, name));
}

/* Borrowed; NULL: it has none of that name. */
static inline const char *status_text(const json_t *json, const char *name)
{
	return json_string_value(json_object_get(json, name));
}

void status_notes_print(const struct status_found *found);
/* Of one worker: what went wrong with its origins since it started; all of it was tried again. */
void status_notes_origin(const json_t *worker);
