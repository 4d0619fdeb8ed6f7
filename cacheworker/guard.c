/* Calls that may hang. See guard.h. */
#include "cacheworker/guard.h"
#include "cacheworker/duty.h"

#include <stdlib.h>
#include <time.h>
#include <unistd.h>

/* Freed by whoever of the two is the last: the caller that left, or the call that ended. */
struct guarded {
	struct pool_job job;
	pthread_mutex_t lock;
	pthread_cond_t ended;
	bool done; /* under the lock */
	bool left;
	int result;
	int (*run)(void *arg);
	void (*release)(void *arg);
	void *arg;
};

static void guarded_free(struct guarded *g)
{
	pthread_cond_destroy(&g->ended);
	pthread_mutex_destroy(&g->lock);
	free(g);
}

static void run_guarded(struct pool_job *job)
{
	struct guarded *g = container_of(job, struct guarded, job);
	int r = g->run(g->arg);
	bool left;

	pthread_mutex_lock(&g->lock);
	g->done = true;
	g->result = r == -ETIMEDOUT ? -EIO : r;
	left = g->left;
	pthread_cond_signal(&g->ended);
	pthread_mutex_unlock(&g->lock);
	if (left) {
		g->release(g->arg);
		guarded_free(g);
	}
}

static struct guarded *guarded_new(int (*run)(void *arg), void (*release)(void *arg), void *arg)
{
	struct guarded *g = calloc(1, sizeof(*g));
	pthread_condattr_t attr;

	if (!g)
		return NULL;
	pthread_mutex_init(&g->lock, NULL);
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&g->ended, &attr);
	pthread_condattr_destroy(&attr);
	g->job.run = run_guarded;
	g->run = run;
	g->release = release;
	g->arg = arg;
	return g;
}

/* True when the call ended in time; else it is left alone. */
static bool wait_or_leave(struct guarded *g, uint64_t ns)
{
	uint64_t until = clock_mono_ns() + ns;
	struct timespec deadline = { .tv_sec = (time_t)(until / CLOCK_SECOND),
		.tv_nsec = (long)(until % CLOCK_SECOND) };
	bool done;

	pthread_mutex_lock(&g->lock);
	while (!g->done && clock_mono_ns() < until)
		(void)pthread_cond_timedwait(&g->ended, &g->lock, &deadline);
	done = g->done;
	g->left = !done;
	pthread_mutex_unlock(&g->lock);
	return done;
}

int guard_call(struct worker *w, int (*run)(void *arg), void (*release)(void *arg), void *arg)
{
	struct guarded *g = guarded_new(run, release, arg);
	int r;

	if (!g)
		return -ENOMEM;
	r = pool_submit(w->look, &g->job);
	if (r == 0 && !wait_or_leave(g, w->guard_ns)) {
		counter_add(&w->counters.stalled, 1);
		return -ETIMEDOUT;
	}
	if (r == 0)
		r = g->result;
	guarded_free(g);
	return r;
}

/* ---- calls ----------------------------------------------------------------------------------- */

struct call {
	struct tier_set *tiers;
	struct chunk_id id;
	struct tier_admission how;
	struct piece_run run;
	struct chunk *chunk;   /* referenced, as: */
	struct extent *extent; /* or NULL */
	int fd;
};

static void call_free(void *arg)
{
	struct call *call = arg;

	chunk_unref(call->chunk);
	tier_seal_unref(call->extent);
	if (call->fd >= 0)
		(void)close(call->fd); /* nothing was written */
	free(call);
}

static struct call *call_new(struct worker *w, struct chunk *chunk)
{
	struct call *call = calloc(1, sizeof(*call));

	if (!call)
		return NULL;
	call->tiers = w->tiers;
	call->chunk = chunk ? chunk_ref(chunk) : NULL;
	call->fd = -1;
	return call;
}

static int open_fd(void *arg)
{
	struct call *call = arg;

	return chunk_open_fd(call->chunk, &call->fd);
}

static int open_extent(void *arg)
{
	struct call *call = arg;

	return tier_seal_open_fd(call->extent, &call->fd);
}

static int call_for_fd(struct worker *w, int (*run)(void *arg), struct call *call, int *ret_fd)
{
	int r = guard_call(w, run, call_free, call);

	if (r == -ETIMEDOUT)
		return r;
	if (r == 0) {
		*ret_fd = call->fd;
		call->fd = -1;
	}
	call_free(call);
	return r;
}

int guard_open_fd(struct worker *w, struct chunk *chunk, int *ret_fd)
{
	struct call *call = call_new(w, chunk);

	return call ? call_for_fd(w, open_fd, call, ret_fd) : -ENOMEM;
}

int guard_open_extent(struct worker *w, struct extent *extent, int *ret_fd)
{
	struct call *call = call_new(w, NULL);

	if (!call)
		return -ENOMEM;
	call->extent = tier_seal_ref(extent);
	return call_for_fd(w, open_extent, call, ret_fd);
}

static int recheck(void *arg)
{
	struct call *call = arg;

	return chunk_recheck(call->chunk, &call->run);
}

int guard_recheck(struct worker *w, struct chunk *chunk, const struct piece_run *run)
{
	struct call *call = call_new(w, chunk);
	int r;

	if (!call)
		return -ENOMEM;
	call->run = *run;
	r = guard_call(w, recheck, call_free, call);
	if (r != -ETIMEDOUT)
		call_free(call);
	return r;
}

static int admit(void *arg)
{
	struct call *call = arg;

	return tier_chunk_admit_as(call->tiers, &call->id, &call->how, &call->chunk);
}

int guard_admit(struct worker *w, const struct chunk_id *id)
{
	struct chunk *chunk = tier_chunk_find(w->tiers, id);
	struct call *call;
	int r;

	chunk_unref(chunk);
	if (chunk)
		return 0;
	call = call_new(w, NULL);
	if (!call)
		return -ENOMEM;
	call->id = *id;
	call->how = (struct tier_admission){ .class = worker_class(w, &id->volume, id->chunk),
		.want = TIER_WANT_READ };
	r = guard_call(w, admit, call_free, call);
	if (r != -ETIMEDOUT)
		call_free(call);
	return r;
}
