/*
 * Objects against the schemas of their kinds: unknown fields, types, required fields, enumerations, bounds, as an apiserver with
 * fieldValidation=Strict has them. The schemas of the kinds that jobs/ makes are stored in the program (jobs/schemas.json).
 *
 * Lifetime: caller's memory. Threads: one set by one at a time.
 */
#pragma once

#include <jansson.h>
#include "base/err.h"

struct job_schemas {
	json_t *root;
};

int job_schemas_open(struct job_schemas *ret_schemas, struct err *e) __must_check;
void job_schemas_close(struct job_schemas *schemas);

/* The schema of a kind, borrowed; NULL: none here. */
const json_t *job_schema_of(const struct job_schemas *schemas, const char *api, const char *kind);

/* Called for each error: the field, and the reason. */
typedef void (*schema_found)(void *arg, const char *path, const char *reason);

void job_schema_check(const struct job_schemas *schemas, const json_t *schema, const json_t *object,
	schema_found found, void *arg);
