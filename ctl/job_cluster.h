/*
 * What the commands of `cachectl job` that speak to a cluster share: its options, access, and jobs by name.
 *
 * Threads: one command is one thread.
 */
#pragma once

#include <jansson.h>
#include "base/option.h"
#include "jobs/job_kind.h"
#include "kube/kube.h"

#define JOB_MANAGER "cachectl" /* fieldManager, and the value of app.kubernetes.io/managed-by */

struct job_cluster_options {
	const char *config;
	const char *context;
	const char *as;
	const char *name_space;
};

#define JOB_CLUSTER_OPTION_ROWS(type, member)                                            \
	OPTION_STRING_ROW(type, member.config, "config", "FILE",                         \
		"Kubeconfig of the cluster (default: $KUBECONFIG, ~/.kube/config, then " \
		"the service account of this pod)"),                                     \
		OPTION_STRING_ROW(type, member.context, "kube-context", "NAME",          \
			"Context of the kubeconfig (default: its current-context)"),     \
		OPTION_STRING_ROW(                                                       \
			type, member.as, "as", "USER", "User to impersonate (default: none)")
#define JOB_NAMESPACE_OPTION_ROW(type, member)                                         \
	OPTION_ROW(type, member.name_space, "namespace", OPTION_STRING, .letter = 'n', \
		.metavar = "NAMESPACE", .help = "Namespace (default: that of the context)")

int job_cluster_open(
	const struct job_cluster_options *o, struct kube **ret_kube, struct err *e) __must_check;

/* Prints why it could not be opened, and returns the exit status. */
int job_cluster_open_fail(int r, struct err *e);

/* The exit status of an error of the cluster. */
int job_cluster_exit(int r);
/* Prints the line, and returns that status. */
int job_cluster_fail(int r, struct err *e);
#define JOB_CLUSTER_EXITS EXIT_JOB_NOT_FOUND, EXIT_JOB_CONFLICT, EXIT_JOB_DENIED, EXIT_JOB_CLUSTER

/* How requests name objects of a kind: into *ret_found, which ret_kind borrows. -ENOENT: the cluster does not have it. */
int job_cluster_kind(struct kube *kube, const char *api_version, const char *kind,
	struct kube_resource *ret_found, struct kube_kind *ret_kind, struct err *e) __must_check;

/* A job of the cluster. */
struct job_found {
	const struct job_kind *kind;
	struct kube_resource resource;
	json_t *object;
};

/* Borrows from `job`. */
static inline struct kube_kind job_found_kind(const struct job_found *job)
{
	return (struct kube_kind){ .api_version = job->kind->api_version,
		.plural = job->resource.plural,
		.cluster_wide = job->resource.cluster_wide };
}

/* `type`, may be NULL, is a type of jobs: of several jobs of one name it names the one. -ENOENT, -EEXIST with their lines. */
int job_cluster_find(struct kube *kube, const char *name_space, const char *name, const char *type,
	struct job_found *ret_job, struct err *e) __must_check;
void job_found_release(struct job_found *job);

/* ---- commands on one job --------------------------------------------------------------------- */

struct job_one_options {
	struct job_cluster_options cluster;
	const char *type;
	const char *output; /* of commands with an answer, which add its row */
};

#define JOB_ONE_OPTION_ROWS(type_, member_)                                                 \
	JOB_NAMESPACE_OPTION_ROW(type_, member_.cluster),                                   \
		OPTION_STRING_ROW(type_, member_.type, "type", "TYPE",                      \
			"Type of the job, such as pytorchjob, where several have its name " \
			"(default: any)"),                                                  \
		JOB_CLUSTER_OPTION_ROWS(type_, member_.cluster)

struct job_one {
	struct kube *kube;
	struct job_found job;
};

/* EXIT_OK; else a status, with its line, and nothing to close. */
int job_one_open(const struct job_one_options *o, const char *name, struct job_one *ret_one);
void job_one_close(struct job_one *one);

/* What a command did with a job, or "status" of it; an exit status. */
int job_one_print(const struct job_one_options *o, const struct job_found *job, const char *status);

/* The pods of a job, without those of its TensorBoard. */
int job_cluster_pods(struct kube *kube, const struct job_found *job, json_t **ret_pods,
	struct err *e) __must_check;

/* A text of an object, "" when it is not there. */
const char *job_text(const json_t *object, const char *path);
