/*
 * Pulls that pause until somebody may answer, and calls that are not waited for up to their deadline.
 *
 *	asked ─none has it, one did not answer─► WAITING ─pause─► asked again, from the first
 *	                                              └─a reader, another table, closing─► at once
 *
 * Meanwhile those without a reader take no memory (flights_park_locked()): a worker that is stopped would else keep
 * that of what others have. A preload goes on with others, too, in the place of one who says nothing; one who answers
 * that he is busy has enough of its units waiting.
 *
 * One timer of the loop is there for all of them: it looks at all when the first is due, 100 times a second at most.
 * There are as many as units are on their way, or parked, and none of them has a time while all answer.
 */
#include "base/clock.h"
#include "cacheworker/pull_internal.h"

/* Whoever is not called down until then, by a master that may have been started just now and gives
 * everybody 15 s, is in trouble with this worker alone. */
#define WAIT_MAX  (20 * CLOCK_SECOND)
#define LATER_NS  (20 * CLOCK_MS)
#define COMING_NS (50 * CLOCK_MS) /* an origin takes 100 to 200 ms */
#define LOOK_NS   (10 * CLOCK_MS) /* between two looks at all, of which there may be thousands */

bool pull_may_wait(const struct pull *p, const struct view_peer *peer, enum holder_kind kind)
{
	uint64_t most = pull_lasts(p->worker, WAIT_MAX);

	if (p->class == UFS_DEMAND || view_failing(peer) >= most ||
		(p->waited_ns && clock_mono_ns() - p->waited_ns >= most))
		return false;
	/* What a deputy is asked for meanwhile is wanted now; what has moved can wait until who had it is back. */
	return kind == HOLDER_FORMER || !view_down(peer);
}

bool pull_may_await(const struct pull *p)
{
	uint64_t most = p->class == UFS_DEMAND ? DEADLINE_PROMPT_NS : WAIT_MAX;

	return !p->waited_ns || clock_mono_ns() - p->waited_ns < pull_lasts(p->worker, most);
}

/* ---- the clock ------------------------------------------------------------------------------- */

static void expire_locked(struct pull *p)
{
	p->due_ns = 0;
	if (p->waiting) {
		pull_wake_locked(p);
	} else if (p->calling) {
		p->overdue = true;
		rpc_cancel(p->peer->rpc, &p->call);
	}
}

static void on_timer(void *arg);

/* On the loop. */
static void look(struct worker *w)
{
	uint64_t now = clock_mono_ns();
	uint64_t next = UINT64_MAX;

	pthread_mutex_lock(&w->flights.lock);
	w->pulls.clock_ns = 0; /* what becomes due meanwhile is seen below */
	pthread_mutex_lock(&w->pulls.lock);
	list_for_each (node, &w->pulls.all) {
		struct pull *p = list_entry(node, struct pull, link);

		if (p->due_ns && p->due_ns <= now)
			expire_locked(p);
		if (p->due_ns)
			next = min(next, p->due_ns);
	}
	pthread_mutex_unlock(&w->pulls.lock);
	next = max(next, now + LOOK_NS); /* what comes to be due before that has its own look */
	w->pulls.clock_ns = next;
	pthread_mutex_unlock(&w->flights.lock);
	if (next == UINT64_MAX)
		return;
	w->pulls.timer = loop_timer_start(w->loop, next - now, on_timer, w);
	if (w->pulls.timer)
		return;
	/* Without memory: whoever comes next begins anew. */
	pthread_mutex_lock(&w->flights.lock);
	w->pulls.clock_ns = UINT64_MAX;
	pthread_mutex_unlock(&w->flights.lock);
}

static void on_timer(void *arg)
{
	struct worker *w = arg;

	w->pulls.timer = NULL;
	look(w);
}

static void run_task(struct loop_task *task)
{
	struct worker *w = container_of(task, struct worker, pulls.task);

	pthread_mutex_lock(&w->flights.lock);
	w->pulls.posted = false;
	pthread_mutex_unlock(&w->flights.lock);
	loop_timer_stop(w->pulls.timer);
	w->pulls.timer = NULL;
	look(w);
}

void pull_due_locked(struct pull *p, uint64_t at_ns)
{
	struct worker *w = p->worker;

	p->due_ns = at_ns;
	if (at_ns >= w->pulls.clock_ns)
		return;
	w->pulls.clock_ns = at_ns;
	if (w->pulls.posted)
		return;
	w->pulls.posted = true;
	loop_post(w->loop, &w->pulls.task);
}

/* ---- pausing --------------------------------------------------------------------------------- */

void pull_wake_locked(struct pull *p)
{
	if (!p->waiting)
		return;
	p->waiting = false;
	p->woken = true;
	p->due_ns = 0;
	if (pool_submit(p->worker->peers, &p->job) == 0)
		return;
	p->waiting = true; /* its queue is full */
	pull_due_locked(p, clock_mono_ns() + LATER_NS);
}

static bool is_demanded_locked(const struct pull *p)
{
	for (uint32_t i = 0; i < p->n; i++)
		if (p->flights[i]->class == UFS_DEMAND)
			return true;
	return false;
}

/* Whether what is coming has come is asked often only for a reader: without one there may be hundreds of such
 * units. */
static uint64_t next_pause_locked(struct pull *p)
{
	if (p->coming && is_demanded_locked(p))
		return COMING_NS;
	return backoff_next(&p->backoff);
}

void pull_wait(struct pull *p)
{
	struct worker *w = p->worker;
	uint64_t now = clock_mono_ns();
	struct flight_places places = { 0 };
	bool parks = false;
	bool demanded;

	counter_add(&w->counters.peer_waits, 1);
	if (!p->waited_ns)
		p->waited_ns = now;
	pthread_mutex_lock(&w->flights.lock);
	p->waiting = true;
	p->awaits = p->direct;
	demanded = is_demanded_locked(p);
	/* Whoever wakes such may just have looked. */
	if ((demanded && !p->coming) || (p->given_up && p->copy) || pulls_closing(w)) {
		pull_wake_locked(p);
	} else {
		pull_due_locked(p, now + next_pause_locked(p));
		parks = !demanded;
		if (parks)
			places = flights_park_locked(p->flights, p->n, !p->busy && !p->coming);
	}
	pthread_mutex_unlock(&w->flights.lock);
	if (parks) /* the pull may be gone by now */
		flights_parked(w, places);
}

void pull_clock_init(struct worker *w)
{
	w->pulls.clock_ns = UINT64_MAX;
	w->pulls.task.run = run_task;
}

static void stop(void *arg)
{
	struct worker *w = arg;

	loop_timer_stop(w->pulls.timer);
	w->pulls.timer = NULL;
}

void pull_clock_stop(struct worker *w)
{
	if (w->loop)
		loop_call(w->loop, stop, w); /* after what was posted */
}
