/*
 * From a job spec to the objects of an engine. A pure function: no file, no clock, no network, no globals.
 *
 * The first object is the job; the others are its children, which get an ownerReference to it when they are created. Every value of
 * the spec is either in an object or refused: compiling fails when one was not used.
 *
 * Lifetime: what is returned is the caller's. Threads: any.
 */
#pragma once

#include "jobs/job_type.h"
#include "jobs/spec.h"

/* Which field of the spec a field of an object has its value from. */
struct job_source {
	const json_t *parent; /* the object or array around it, borrowed from the list */
	char *key;            /* in an object; NULL: `index` of an array */
	size_t index;
	char *path; /* in the spec */
};

struct job_objects {
	json_t *list;
	json_t *notes; /* texts for people: what was done that one may not expect */
	struct job_source *sources;
	size_t n_sources;
	size_t max_sources;
};

/* `spec` was finished. -EINVAL with its line; -ENOMEM. */
int job_compile(
	const struct job_spec *spec, struct job_objects *ret_objects, struct err *e) __must_check;
void job_objects_release(struct job_objects *objects);

/*
 * For each scalar of each object: {"object": "PyTorchJob/x", "field": path, "value": ..., "from": "--gpus" or "job.yaml:12" or
 * "pytorchjob" (what the type does), "spec": path or null}. NULL: -ENOMEM.
 */
json_t *job_explain(const struct job_spec *spec, const struct job_objects *objects);
