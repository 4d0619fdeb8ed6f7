/* An event loop in a thread of its own. See loop.h. */
#include "base/loop.h"
#include "base/bounds.h"
#include "base/limits.h"
#include "base/clock.h"

#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <uv.h>

#define ROUNDS 8u /* of tasks that post tasks, before the loop looks at its descriptors again */

struct loop {
	struct list link; /* in `loops` */
	uv_loop_t uv;
	uv_async_t wake;
	uv_prepare_t before; /* it waits: runs what was posted on its own thread */
	pthread_t thread;
	pthread_mutex_t lock;
	struct list tasks;
	bool closing;
	struct loop_task probe; /* of loops_turn() */
	_Atomic bool probed;    /* and it has not run yet */
	char name[16];
};

/* All of them, from the start of their threads on; taken before a loop's own lock. */
static pthread_mutex_t loops_lock = PTHREAD_MUTEX_INITIALIZER;
static struct list loops = LIST_INIT(loops);

struct loop_timer {
	uv_timer_t uv;
	void (*fn)(void *arg);
	void *arg;
};

struct loop_watch {
	uv_poll_t uv;
	void (*fn)(void *arg, short events);
	void *arg;
	short events;
};

/* False when there was nothing to run. */
static bool run_tasks(struct loop *loop)
{
	struct list batch = LIST_INIT(batch);
	struct list *node;
	bool any;

	pthread_mutex_lock(&loop->lock);
	list_splice_back(&batch, &loop->tasks);
	pthread_mutex_unlock(&loop->lock);
	any = !list_empty(&batch);
	while ((node = list_pop_front(&batch)) != NULL) {
		struct loop_task *task = list_entry(node, struct loop_task, link);

		task->run(task);
	}
	return any;
}

static void on_wake(uv_async_t *wake)
{
	(void)run_tasks(wake->data); /* on_before() runs what these post */
}

/* All that is posted when it has run wakes the loop; what was posted meanwhile on the loop's thread did not. */
static void on_before(uv_prepare_t *before)
{
	struct loop *loop = before->data;
	bool closed = uv_is_closing((uv_handle_t *)&loop->wake);
	unsigned int rounds = 0;

	while (run_tasks(loop) && (++rounds < ROUNDS || closed))
		;
	if (rounds)
		uv_update_time(&loop->uv); /* it waits for its timers from now on */
	if (closed)
		return;
	/* Closed under the lock: other threads look at the handle when they post. */
	pthread_mutex_lock(&loop->lock);
	if (!list_empty(&loop->tasks))
		(void)uv_async_send(&loop->wake); /* it must not wait */
	else if (loop->closing)
		uv_close((uv_handle_t *)&loop->wake, NULL);
	pthread_mutex_unlock(&loop->lock);
}

static void *loop_main(void *arg)
{
	struct loop *loop = arg;

	pthread_setname_np(pthread_self(), loop->name);
	/* Ends when the last handle is closed. What handles post while they close finds no wake-up
	 * any more; it may post and open again. */
	do
		(void)uv_run(&loop->uv, UV_RUN_DEFAULT);
	while (run_tasks(loop));
	uv_close((uv_handle_t *)&loop->before, NULL);
	(void)uv_run(&loop->uv, UV_RUN_DEFAULT); /* runs the close */
	return NULL;
}

struct loop *loop_new(const char *name)
{
	struct loop *loop = calloc(1, sizeof(*loop));
	sigset_t all;
	sigset_t old;
	int r;

	if (!loop)
		return NULL;
	if (!bound_take(BOUND_THREADS, 1, LIMIT_THREADS)) {
		free(loop);
		return NULL;
	}
	list_init(&loop->tasks);
	pthread_mutex_init(&loop->lock, NULL);
	(void)snprintf(loop->name, sizeof(loop->name), "%s", name); /* cut to the kernel's 15 */
	if (uv_loop_init(&loop->uv) != 0)
		goto fail;
	if (uv_async_init(&loop->uv, &loop->wake, on_wake) != 0) {
		(void)uv_loop_close(&loop->uv); /* nothing is open on it */
		goto fail;
	}
	loop->wake.data = loop;
	ensure(uv_prepare_init(&loop->uv, &loop->before) == 0);
	ensure(uv_prepare_start(&loop->before, on_before) == 0);
	uv_unref((uv_handle_t *)&loop->before); /* the loop does not go on for it */
	loop->before.data = loop;
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old); /* signals belong to the main thread */
	r = pthread_create(&loop->thread, NULL, loop_main, loop);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	if (r == 0) {
		pthread_mutex_lock(&loops_lock);
		list_push_back(&loops, &loop->link);
		pthread_mutex_unlock(&loops_lock);
		return loop;
	}
	uv_close((uv_handle_t *)&loop->wake, NULL);
	uv_close((uv_handle_t *)&loop->before, NULL);
	(void)uv_run(&loop->uv, UV_RUN_DEFAULT); /* runs the closes */
	(void)uv_loop_close(&loop->uv);
fail:
	bound_sub(BOUND_THREADS, 1);
	pthread_mutex_destroy(&loop->lock);
	free(loop);
	return NULL;
}

void loop_free(struct loop *loop)
{
	if (!loop)
		return;
	ensure(!loop_on_thread(loop));
	pthread_mutex_lock(&loops_lock);
	list_remove(&loop->link);
	pthread_mutex_unlock(&loops_lock);
	pthread_mutex_lock(&loop->lock);
	loop->closing = true;
	(void)uv_async_send(&loop->wake); /* not closing yet: that needs the lock */
	pthread_mutex_unlock(&loop->lock);
	pthread_join(loop->thread, NULL);
	ensure(uv_loop_close(&loop->uv) == 0);
	bound_sub(BOUND_THREADS, 1);
	pthread_mutex_destroy(&loop->lock);
	free(loop);
}

void loop_post(struct loop *loop, struct loop_task *task)
{
	bool first;

	pthread_mutex_lock(&loop->lock);
	first = list_empty(&loop->tasks);
	list_push_back(&loop->tasks, &task->link);
	/*
	 * Under the lock: the handle cannot be closed between the queueing and the wake-up. The
	 * loop's own thread needs none: on_before() comes before it waits.
	 */
	if (first && !loop_on_thread(loop) && !uv_is_closing((uv_handle_t *)&loop->wake))
		(void)uv_async_send(&loop->wake); /* fails only on a closing handle */
	pthread_mutex_unlock(&loop->lock);
}

static void run_probe(struct loop_task *task)
{
	atomic_store(&container_of(task, struct loop, probe)->probed, false);
}

bool loops_turn(void)
{
	bool all = true;

	pthread_mutex_lock(&loops_lock);
	list_for_each (node, &loops) {
		struct loop *loop = list_entry(node, struct loop, link);

		if (atomic_exchange(&loop->probed, true)) {
			all = false;
			continue;
		}
		loop->probe.run = run_probe;
		loop_post(loop, &loop->probe);
	}
	pthread_mutex_unlock(&loops_lock);
	return all;
}

struct call {
	struct loop_task task;
	void (*fn)(void *arg);
	void *arg;
	pthread_mutex_t lock;
	pthread_cond_t done;
	bool finished;
};

static void run_call(struct loop_task *task)
{
	struct call *call = container_of(task, struct call, task);

	call->fn(call->arg);
	pthread_mutex_lock(&call->lock);
	call->finished = true;
	pthread_cond_signal(&call->done);
	pthread_mutex_unlock(&call->lock);
}

void loop_call(struct loop *loop, void (*fn)(void *arg), void *arg)
{
	struct call call = { .task.run = run_call, .fn = fn, .arg = arg };

	if (loop_on_thread(loop)) {
		fn(arg);
		return;
	}
	pthread_mutex_init(&call.lock, NULL);
	pthread_cond_init(&call.done, NULL);
	loop_post(loop, &call.task);
	pthread_mutex_lock(&call.lock);
	while (!call.finished)
		pthread_cond_wait(&call.done, &call.lock);
	pthread_mutex_unlock(&call.lock);
	pthread_cond_destroy(&call.done);
	pthread_mutex_destroy(&call.lock);
}

bool loop_on_thread(const struct loop *loop)
{
	return pthread_equal(pthread_self(), loop->thread) != 0;
}

struct uv_loop_s *loop_uv(struct loop *loop)
{
	return &loop->uv;
}

static void on_closed(uv_handle_t *handle)
{
	free(handle->data);
}

static void on_timer(uv_timer_t *uv)
{
	struct loop_timer *timer = uv->data;

	uv_close((uv_handle_t *)uv, on_closed);
	timer->fn(timer->arg);
}

struct loop_timer *loop_timer_start(
	struct loop *loop, uint64_t ns, void (*fn)(void *arg), void *arg)
{
	struct loop_timer *timer = calloc(1, sizeof(*timer));

	ensure(loop_on_thread(loop));
	if (!timer)
		return NULL;
	timer->fn = fn;
	timer->arg = arg;
	timer->uv.data = timer;
	ensure(uv_timer_init(&loop->uv, &timer->uv) == 0);
	uv_update_time(&loop->uv);
	ensure(uv_timer_start(&timer->uv, on_timer, ns / CLOCK_MS + 1, 0) == 0);
	return timer;
}

void loop_timer_stop(struct loop_timer *timer)
{
	if (timer && !uv_is_closing((uv_handle_t *)&timer->uv))
		uv_close((uv_handle_t *)&timer->uv, on_closed);
}

static void on_ready(uv_poll_t *uv, int status, int events)
{
	struct loop_watch *watch = uv->data;
	short ready =
		(short)((events & UV_READABLE ? POLLIN : 0) | (events & UV_WRITABLE ? POLLOUT : 0));

	if (status < 0) {
		/* At an error of the descriptor libuv stops: it is started again. */
		ready = watch->events;
		watch->events = 0;
		loop_watch_change(watch, ready);
	}
	watch->fn(watch->arg, ready); /* may stop it */
}

struct loop_watch *loop_watch_start(
	struct loop *loop, int fd, short events, void (*fn)(void *arg, short events), void *arg)
{
	struct loop_watch *watch = calloc(1, sizeof(*watch));

	ensure(loop_on_thread(loop));
	if (!watch)
		return NULL;
	watch->fn = fn;
	watch->arg = arg;
	watch->uv.data = watch;
	if (uv_poll_init(&loop->uv, &watch->uv, fd) != 0) {
		free(watch);
		return NULL;
	}
	loop_watch_change(watch, events);
	return watch;
}

void loop_watch_change(struct loop_watch *watch, short events)
{
	int wanted = (events & POLLIN ? UV_READABLE : 0) | (events & POLLOUT ? UV_WRITABLE : 0);

	if (watch->events == events)
		return;
	watch->events = events;
	ensure((wanted ? uv_poll_start(&watch->uv, wanted, on_ready) : uv_poll_stop(&watch->uv)) ==
		0);
}

void loop_watch_stop(struct loop_watch *watch)
{
	if (watch)
		uv_close((uv_handle_t *)&watch->uv, on_closed);
}
