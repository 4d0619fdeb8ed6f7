/* Asking daemons at the same time. See status_gather.h. */
#include "ctl/status_gather.h"
#include "admin/admin.h"
#include "base/clock.h"
#include "base/list.h"
#include "base/thread.h"
#include "ctl/fleet.h"
#include "ctl/service.h"
#include "ctl/status_cluster.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define THREADS_MAX 64u
#define CLUSTER     "" /* instead of a socket: the cluster's master, wherever it is */

struct question {
	struct list link;
	char socket[SOCKET_PATH_MAX];
	bool names_mounts; /* of a keeper: its mounts are asked, too */
	bool taken;        /* by a thread */
	json_t *answer;
	int code;
};

struct status_gather {
	pthread_mutex_t lock;
	pthread_cond_t changed;
	struct list questions;
	unsigned int open;    /* without an answer */
	unsigned int threads; /* that use this */
	bool closed;          /* nothing is asked or noted any more */
	bool freed;           /* by its owner; the last thread frees the memory */
};

struct status_gather *status_gather_new(void)
{
	struct status_gather *g = calloc(1, sizeof(*g));
	pthread_condattr_t attr;

	if (!g)
		return NULL;
	pthread_mutex_init(&g->lock, NULL);
	(void)pthread_condattr_init(&attr);                      /* these cannot fail */
	(void)pthread_condattr_setclock(&attr, CLOCK_MONOTONIC); /* as above */
	pthread_cond_init(&g->changed, &attr);
	(void)pthread_condattr_destroy(&attr); /* as above */
	list_init(&g->questions);
	return g;
}

static void destroy(struct status_gather *g)
{
	struct list *node;

	while ((node = list_pop_front(&g->questions))) {
		struct question *q = list_entry(node, struct question, link);

		json_decref(q->answer);
		free(q);
	}
	pthread_cond_destroy(&g->changed);
	pthread_mutex_destroy(&g->lock);
	free(g);
}

void status_gather_free(struct status_gather *g)
{
	bool last;

	if (!g)
		return;
	pthread_mutex_lock(&g->lock);
	g->closed = true;
	g->freed = true;
	last = g->threads == 0;
	pthread_mutex_unlock(&g->lock);
	if (last)
		destroy(g);
}

/* ---- asking ---------------------------------------------------------------------------------- */

static struct question *find(const struct status_gather *g, const char *socket)
{
	list_for_each (node, &g->questions) {
		struct question *q = list_entry(node, struct question, link);

		if (strcmp(q->socket, socket) == 0)
			return q;
	}
	return NULL;
}

static void *ask_main(void *arg);

/* One that was asked already is not asked again. */
static int ask_locked(struct status_gather *g, const char *socket, bool names_mounts)
{
	struct question *q;

	if (g->closed || strlen(socket) >= SOCKET_PATH_MAX || find(g, socket))
		return 0;
	q = calloc(1, sizeof(*q));
	if (!q)
		return -ENOMEM;
	memcpy(q->socket, socket, strlen(socket) + 1);
	q->names_mounts = names_mounts;
	q->code = -ETIMEDOUT;
	list_push_back(&g->questions, &q->link);
	g->open++;
	/* Without one more thread, another one asks it, or status_gather_wait(). */
	if (g->threads < THREADS_MAX && thread_start_detached(ask_main, g) == 0)
		g->threads++;
	return 0;
}

static int ask_mounts_locked(struct status_gather *g, const json_t *status)
{
	const json_t *mount;
	int r = 0;
	size_t i;

	json_array_foreach (json_object_get(status, "mounts"), i, mount) {
		const char *socket = json_string_value(json_object_get(mount, "socket"));

		if (r == 0 && socket && !fleet_detached(mount))
			r = ask_locked(g, socket, false);
	}
	return r;
}

static int ask_now(const char *socket, json_t **ret_answer)
{
	struct err ignored = ERR_INIT;

	if (strcmp(socket, CLUSTER) != 0)
		return admin_call(
			socket, NULL, "/v1/status", NULL, fleet_timeout(), ret_answer, &ignored);
	*ret_answer = status_cluster();
	return *ret_answer ? 0 : -ENOENT;
}

/* The next that no thread has taken; NULL: there is none, or it is too late. */
static struct question *take_locked(struct status_gather *g)
{
	if (g->closed)
		return NULL;
	list_for_each (node, &g->questions) {
		struct question *q = list_entry(node, struct question, link);

		if (q->taken)
			continue;
		q->taken = true;
		return q;
	}
	return NULL;
}

static void note_locked(struct status_gather *g, struct question *q, int code, json_t *answer)
{
	if (g->closed) {
		json_decref(answer);
		return;
	}
	q->code = code;
	q->answer = answer;
	if (q->names_mounts && ask_mounts_locked(g, answer) < 0)
		q->code = -ENOMEM;
	g->open--;
	pthread_cond_signal(&g->changed);
}

static void ask_all_locked(struct status_gather *g)
{
	struct question *q;

	while ((q = take_locked(g))) {
		json_t *answer = NULL;
		int r;

		pthread_mutex_unlock(&g->lock);
		r = ask_now(q->socket, &answer);
		pthread_mutex_lock(&g->lock);
		note_locked(g, q, r, r < 0 ? NULL : answer);
	}
}

static void *ask_main(void *arg)
{
	struct status_gather *g = arg;
	bool last;

	pthread_mutex_lock(&g->lock);
	ask_all_locked(g);
	last = --g->threads == 0 && g->freed;
	pthread_cond_signal(&g->changed);
	pthread_mutex_unlock(&g->lock);
	if (last)
		destroy(g);
	return NULL;
}

int status_gather_run(struct status_gather *g, const char *run)
{
	static const char *const names[] = { "keeper.sock", "worker.sock", "master.sock" };
	json_t *saved = fleet_saved(run); /* a keeper that hangs does not name its mounts */
	char socket[SOCKET_PATH_MAX];
	int r = 0;

	pthread_mutex_lock(&g->lock);
	for (size_t i = 0; i < ARRAY_SIZE(names) && r == 0; i++)
		if (service_path(run, names[i], socket) == 0)
			r = ask_locked(g, socket, i == 0);
	if (r == 0)
		r = ask_mounts_locked(g, saved);
	pthread_mutex_unlock(&g->lock);
	json_decref(saved);
	return r;
}

int status_gather_cluster(struct status_gather *g)
{
	int r;

	pthread_mutex_lock(&g->lock);
	r = ask_locked(g, CLUSTER, false);
	pthread_mutex_unlock(&g->lock);
	return r;
}

void status_gather_wait(struct status_gather *g)
{
	uint64_t until = clock_mono_ns() + fleet_timeout();
	struct timespec ts = { .tv_sec = (time_t)(until / CLOCK_SECOND),
		.tv_nsec = (long)(until % CLOCK_SECOND) };
	int r = 0;

	pthread_mutex_lock(&g->lock);
	if (g->threads == 0)
		ask_all_locked(g); /* no thread could be started */
	while (g->open > 0 && r == 0)
		r = pthread_cond_timedwait(&g->changed, &g->lock, &ts);
	g->closed = true;
	pthread_mutex_unlock(&g->lock);
}

/* ---- answers --------------------------------------------------------------------------------- */

json_t *status_gather_answer(const struct status_gather *g, const char *socket, int *ret_code)
{
	const struct question *q = find(g, socket);

	if (ret_code)
		*ret_code = q ? q->code : -ENOENT;
	return q ? q->answer : NULL;
}

json_t *status_gather_daemon(
	const struct status_gather *g, const char *run, const char *name, int *ret_code)
{
	char socket[SOCKET_PATH_MAX];

	if (service_path(run, name, socket) < 0) {
		if (ret_code)
			*ret_code = -ENAMETOOLONG;
		return NULL;
	}
	return status_gather_answer(g, socket, ret_code);
}

json_t *status_gather_of_cluster(const struct status_gather *g)
{
	return status_gather_answer(g, CLUSTER, NULL);
}
