/*
 * A job spec: what `cachectl job` compiles. A tree of JSON with the fields of spec_fields.h, and for each value where it came from.
 *
 *	job_spec_init(&spec);
 *	job_spec_read(&spec, "job.yaml", text, len, &e);	YAML, and then ...
 *	job_spec_put(&spec, "worker.replicas", json_string("4"), "--set worker.replicas", &e);
 *	job_spec_finish(&spec, &e);				checks and converts all values
 *
 * Until job_spec_finish() every value is text; afterwards it has the type of its field, short forms are written out and the members
 * are in the order of the table.
 *
 * Lifetime: caller's memory. Threads: one spec by one at a time; no globals.
 */
#pragma once

#include <jansson.h>
#include "base/err.h"
#include "jobs/spec_fields.h"

#define JOB_DEFAULT_ORIGIN \
	"default of Arena" /* of a value that was not given: may have no effect */
#define JOB_NAME_MAX 49u   /* the longest name that leaves room for "-worker-NNN" and the like */

struct job_spec {
	json_t *root;
	json_t *origins; /* path of a field: "--gpus", "job.yaml:12" */
};

int job_spec_init(struct job_spec *spec) __must_check;
void job_spec_release(struct job_spec *spec);

/* Adds what a YAML text has, called `name` in lines. -EINVAL with its line; -E2BIG; -ENOMEM. */
int job_spec_read(struct job_spec *spec, const char *name, const char *text, size_t len,
	struct err *e) __must_check;

/* Sets the field at a path (field_path.h); takes over `value`, also on failure; NULL is -ENOMEM. `origin` is copied. */
int job_spec_put(struct job_spec *spec, const char *path, json_t *value, const char *origin,
	struct err *e) __must_check;

/* "a.b=c" of --set. */
int job_spec_set(struct job_spec *spec, const char *assignment, struct err *e) __must_check;

int job_spec_finish(struct job_spec *spec, struct err *e) __must_check;

/* Where the value at `path`, or what is around it, came from; NULL: from no one place. */
const char *job_spec_origin(const struct job_spec *spec, const char *path);

/* Puts the place of `path` before the line in `e`: "job.yaml:12: worker.replicas" or "--gpus". Returns its code. */
int job_spec_locate(const struct job_spec *spec, const char *path, struct err *e);

/* The JSON schema of a spec, draft 2020-12; NULL: -ENOMEM. */
json_t *job_spec_schema(void);
