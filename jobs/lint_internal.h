/* What the linter's table of rules, their tests and its walk share. */
#pragma once

#include <stdbool.h>
#include "base/option.h"
#include "jobs/field_path.h"
#include "jobs/lint.h"

enum lint_kind {
	LINT_PYTORCH = 1 << 0,
	LINT_TF = 1 << 1,
	LINT_XGB = 1 << 2,
	LINT_MPI = 1 << 3,
	LINT_VOLCANO = 1 << 4,
	LINT_ET = 1 << 5,
	LINT_TRAIN = 1 << 6,
	LINT_NOTEBOOK = 1 << 7,
	LINT_JOB = 1 << 8,
	LINT_PODGROUP = 1 << 9,     /* Volcano's */
	LINT_SP_PODGROUP = 1 << 10, /* scheduler-plugins' */
	LINT_OTHER = 1 << 11,
	LINT_MPI_V1ALPHA1 = 1 << 12,
	LINT_KUBEFLOW = LINT_PYTORCH | LINT_TF | LINT_XGB,
	LINT_PODS = ((1 << 9) - 1) | LINT_MPI_V1ALPHA1, /* kinds that have pods */
	LINT_ALL = (1 << 13) - 1,
};

/* One object, in the set that it came with. */
struct lint {
	const json_t *objects;
	const json_t *object;
	enum lint_kind kind;
	json_t *tasks; /* of a Volcano Job: name to index */
};

enum lint_op {
	LINT_ONE_OF,  /* a text that is none of `text` */
	LINT_LEAST,   /* a number below `number` */
	LINT_MOST,    /* above it */
	LINT_ABSENT,  /* a value where none is to be */
	LINT_PRESENT, /* no value */
	LINT_TEST,    /* test() is true; the value may be NULL */
};

struct lint_rule {
	const char *id;
	bool error; /* else a warning */
	unsigned int kinds;
	const char *
		field; /* `*`: each member; POD: each template's spec; CONTAINER: each container of it */
	enum lint_op op;
	const char *text;
	long long number;
	bool (*test)(const struct lint *l, const json_t *value);
	const char *reason;
	const char *fix;
};

extern const struct lint_rule lint_rules[]; /* ends with a row without an id */

enum lint_kind lint_kind_of(const json_t *object);
/* The path, with `*`, of the templates of a kind; NULL: it has none. */
const char *lint_template(enum lint_kind kind);
/* Calls see(arg, path, value) for each value that a path with `*` names. */
void lint_each(const json_t *root, const char *pattern,
	void (*see)(void *arg, const char *path, const json_t *value), void *arg);

/* The items of a list by their names: an object of indexes, new; NULL: -ENOMEM. */
json_t *lint_index(const json_t *list);
const char *lint_text(const json_t *root, const char *path); /* "" : none */
long long lint_number(const json_t *root, const char *path, long long otherwise);

/* ---- tests (lint_tests.c) -------------------------------------------------------------------- */

/* clang-format off */
#define LINT_TESTS(X) \
	X(name_is_not_dns) \
	X(name_is_too_long) \
	X(duplicate_object) \
	X(odd_label) \
	X(unknown_role) \
	X(wrong_container) \
	X(zero_workers) \
	X(counts_of_pods) \
	X(no_master) \
	X(elastic_and_master) \
	X(elastic_without_worker) \
	X(elastic_range) \
	X(elastic_bound_missing) \
	X(two_nprocs) \
	X(odd_nproc) \
	X(two_chiefs) \
	X(ps_alone) \
	X(odd_name_of_env) \
	X(no_launcher) \
	X(gang_waits_for_launcher) \
	X(launcher_in_gang) \
	X(worker_command) \
	X(no_tasks) \
	X(tasks_of_one_name) \
	X(task_name_is_not_dns) \
	X(task_gang_too_large) \
	X(unknown_plugin) \
	X(plugin_option) \
	X(plugin_task) \
	X(mpi_plugin_task) \
	X(plugin_without_svc) \
	X(event_and_exit) \
	X(no_event) \
	X(exit_zero) \
	X(evicted_alone) \
	X(depends_on_nothing) \
	X(depends_in_circle) \
	X(et_range) \
	X(et_max_below_min) \
	X(notebook_container) \
	X(job_restart) \
	X(job_indexed) \
	X(gang_too_large) \
	X(gang_too_small) \
	X(kueue_does_nothing) \
	X(suspended_for_ever) \
	X(two_gangs) \
	X(other_scheduler) \
	X(group_annotation) \
	X(group_named_like_job) \
	X(group_without_resources) \
	X(group_too_large) \
	X(two_containers) \
	X(two_volumes) \
	X(two_mounts) \
	X(two_envs) \
	X(no_volume) \
	X(relative_mount) \
	X(request_above_limit) \
	X(device_unequal) \
	X(device_fraction) \
	X(rdma_without_lock) \
	X(rdma_unaligned) \
	X(shm_unbounded) \
	X(shm_above_memory) \
	X(dataset_writable) \
	X(dataset_attribute) \
	X(dataset_unnamed) \
	X(host_network_dns) \
	X(unknown_version)
/* clang-format on */
#define LINT_DECLARE(name) bool lint_##name(const struct lint *l, const json_t *value);
LINT_TESTS(LINT_DECLARE)
