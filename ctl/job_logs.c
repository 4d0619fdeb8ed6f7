/* cachectl job logs. See job_verbs.h. */
#include "base/cleanup.h"
#include "base/clock.h"
#include "ctl/command.h"
#include "ctl/job_cluster.h"
#include "ctl/job_verbs.h"

#include <stdio.h>
#include <string.h>

#define PATH_BYTES 2048u

struct logs_options {
	struct job_one_options one;
	const char *pod;
	const char *container;
	bool follow;
	bool previous;
	uint64_t tail;
};

static const struct option_spec specs[] = {
	OPTION_ROW(struct logs_options, pod, "pod", OPTION_STRING, .metavar = "POD",
		.help = "Pod to read from (default: the master, launcher or chief, else the "
			"first)"),
	OPTION_ROW(struct logs_options, container, "container", OPTION_STRING, .letter = 'c',
		.metavar = "NAME", .help = "Container to read from (default: the first)"),
	OPTION_ROW(struct logs_options, follow, "follow", OPTION_BOOL, .letter = 'f',
		.help = "Print what is written from now on, too (default: no)"),
	OPTION_ROW(struct logs_options, previous, "previous", OPTION_BOOL,
		.help = "Read from the container that ran before it restarted (default: no)"),
	OPTION_ROW(struct logs_options, tail, "tail", OPTION_UINT, .metavar = "N",
		.help = "Number of lines from the end (default: all)"),
	JOB_ONE_OPTION_ROWS(struct logs_options, one),
};

static const struct option_set set = {
	.program = "cachectl job logs",
	.exits = { JOB_CLUSTER_EXITS },
	.arguments = "NAME",
	.about = "Prints what a pod of a job has written.",
	.specs = specs,
	.n = ARRAY_SIZE(specs),
	.min_args = 1,
	.max_args = 1,
};

/* Lower is better: the pod that reports for the others, then names in their order. */
static int rank_of(const char *pod)
{
	static const char *const roles[] = { "-master", "-launcher", "-chief" };

	for (size_t i = 0; i < ARRAY_SIZE(roles); i++)
		if (strstr(pod, roles[i]))
			return 0;
	return 1;
}

/* NULL: there is none, or not that one. */
static const json_t *choose(const json_t *pods, const char *wanted)
{
	const json_t *best = NULL;
	const json_t *pod;
	size_t i;

	json_array_foreach (pods, i, pod) {
		const char *name = job_text(pod, "metadata.name");
		const char *than = best ? job_text(best, "metadata.name") : "";
		int by = rank_of(name) - rank_of(than);

		if (wanted ? strcmp(name, wanted) == 0
			   : !best || by < 0 || (by == 0 && strcmp(name, than) < 0))
			best = pod;
	}
	return best;
}

static int put_path(const struct kube *kube, const struct logs_options *o, const json_t *pod,
	struct buf *path, struct err *e)
{
	const struct kube_kind pods = { .api_version = "v1", .plural = "pods" };
	const char *container =
		o->container ? o->container : job_text(pod, "spec.containers[0].name");
	int r = kube_path(kube, &pods, job_text(pod, "metadata.namespace"),
		job_text(pod, "metadata.name"), "/log?container=", path, e);

	if (r < 0)
		return r;
	r = kube_put_escaped(path, container);
	if (r == 0 && o->follow)
		r = buf_puts(path, "&follow=true");
	if (r == 0 && o->previous)
		r = buf_puts(path, "&previous=true");
	if (r == 0 && o->tail)
		r = buf_printf(path, "&tailLines=%llu", (unsigned long long)o->tail);
	return r < 0 ? err_set(e, r, "cannot make the path of a log: %s", err_str(r)) : 0;
}

static int put_text(void *arg, const char *data, size_t len)
{
	(void)arg;
	return fwrite(data, 1, len, stdout) == len && fflush(stdout) == 0 ? 0 : -EPIPE;
}

static int print_log(
	struct kube *kube, const struct job_found *job, const struct logs_options *o, struct err *e)
{
	_cleanup_(buf_release) struct buf path = BUF_INIT(PATH_BYTES);
	const char *name = job_text(job->object, "metadata.name");
	const json_t *pod;
	json_t *pods = NULL;
	int r = job_cluster_pods(kube, job, &pods, e);

	if (r < 0)
		return r;
	pod = choose(pods, o->pod);
	if (!pod && o->pod)
		r = err_set(e, -ENOENT, "job '%s' has no pod '%s'; see `cachectl job get %s`", name,
			o->pod, name);
	else if (!pod)
		r = err_set(e, -ENOENT, "job '%s' has no pods yet; see `cachectl job events %s`",
			name, name);
	else
		r = put_path(kube, o, pod, &path, e);
	if (r == 0)
		r = kube_call_text(kube, buf_str(&path), put_text, NULL, e);
	json_decref(pods);
	return r == -EPIPE ? 0 : r; /* its reader has enough */
}

int job_logs_command(int argc, char **argv)
{
	struct logs_options o = { 0 };
	struct job_one one;
	struct err e = ERR_INIT;
	int status;
	int r;

	(void)option_parse_or_exit(&set, argc, argv, &o); /* one argument */
	status = job_one_open(&o.one, argv[1], &one);
	if (status != EXIT_OK)
		return status;
	r = print_log(one.kube, &one.job, &o, &e);
	if (r < 0)
		status = job_cluster_fail(r, &e);
	job_one_close(&one);
	return status;
}
