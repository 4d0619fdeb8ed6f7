/*
 * Creates the objects of a job in a cluster: the job first, then its children, which it owns. Nothing is deleted and nothing that exists
 * is changed.
 *
 * Each object carries the digest of the whole submission as an annotation. So a submission that is sent again, because its answer was
 * lost or it ended half-way, finds its own objects and creates what is missing.
 */
#pragma once

#include <jansson.h>
#include "jobs/spec.h"
#include "kube/kube.h"

#define JOB_SUBMISSION "granary.io/submission"

/*
 * `objects`: of job_compile(); they get the annotation. *ret_created: what the server answered, in the same order; *ret_states:
 * "created" or "unchanged" of each. -EEXIST: an object of that name is of another submission.
 */
int job_create(struct kube *kube, json_t *objects, bool dry_run, json_t **ret_created,
	json_t **ret_states, struct err *e) __must_check;

/* Sets the engine of a finished spec with `engine: auto` to one that the cluster has; a note when it is not the usual one. -ENOENT: it
 * has none. */
int job_choose_engine(
	struct kube *kube, struct job_spec *spec, json_t *notes, struct err *e) __must_check;
