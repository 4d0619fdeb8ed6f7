/* The event loop: posting from many threads, calls, timers, and its end while work is queued. */
#include "base/loop.h"
#include "base/clock.h"
#include "tests/clock/test_clock.h"

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>
#include <uv.h>

#define POSTERS    4u
#define TASKS_EACH 2000u

struct poster;

struct task {
	struct loop_task task;
	struct poster *poster;
	unsigned int number;
};

struct poster {
	struct loop *loop;
	pthread_t thread;
	unsigned int next; /* the loop's */
	bool in_order;     /* the loop's */
	struct task tasks[TASKS_EACH];
};

static void run_in_order(struct loop_task *loop_task)
{
	struct task *task = container_of(loop_task, struct task, task);
	struct poster *p = task->poster;

	p->in_order = p->in_order && loop_on_thread(p->loop) && task->number == p->next;
	p->next++;
}

static void *post_all(void *arg)
{
	struct poster *p = arg;

	for (unsigned int i = 0; i < TASKS_EACH; i++)
		loop_post(p->loop, &p->tasks[i].task);
	return NULL;
}

static void many_threads_post_in_order(void **state)
{
	static struct poster posters[POSTERS];
	struct loop *loop = loop_new("a name longer than fifteen");

	(void)state;
	assert_non_null(loop);
	assert_false(loop_on_thread(loop));
	for (unsigned int i = 0; i < POSTERS; i++) {
		struct poster *p = &posters[i];

		p->loop = loop;
		p->in_order = true;
		for (unsigned int j = 0; j < TASKS_EACH; j++)
			p->tasks[j] =
				(struct task){ .task.run = run_in_order, .poster = p, .number = j };
		assert_int_equal(pthread_create(&p->thread, NULL, post_all, p), 0);
	}
	for (unsigned int i = 0; i < POSTERS; i++)
		pthread_join(posters[i].thread, NULL);
	loop_free(loop); /* right away: what is queued still runs */
	for (unsigned int i = 0; i < POSTERS; i++) {
		assert_int_equal(posters[i].next, TASKS_EACH);
		assert_true(posters[i].in_order);
	}
}

struct chain {
	struct loop_task task;
	struct loop *loop;
	unsigned int left;
};

static void run_chain(struct loop_task *task)
{
	struct chain *chain = container_of(task, struct chain, task);

	if (--chain->left > 0)
		loop_post(chain->loop, task);
}

static void tasks_of_tasks_run_before_the_end(void **state)
{
	struct loop *loop = loop_new("chain");
	struct chain chain = { .task.run = run_chain, .loop = loop, .left = 1000 };

	(void)state;
	assert_non_null(loop);
	loop_post(loop, &chain.task);
	loop_free(loop);
	assert_int_equal(chain.left, 0);
}

struct counted {
	struct chain chain;
	uv_check_t looked; /* at descriptors */
	unsigned int looks;
	unsigned int looks_before;
	_Atomic unsigned int looks_meanwhile;
	_Atomic bool done;
};

static void on_looked(uv_check_t *looked)
{
	struct counted *c = looked->data;

	c->looks++;
}

static void run_counted(struct loop_task *task)
{
	struct counted *c = container_of(task, struct counted, chain.task);

	if (--c->chain.left > 0) {
		loop_post(c->chain.loop, task);
		return;
	}
	atomic_store(&c->looks_meanwhile, c->looks - c->looks_before);
	atomic_store(&c->done, true);
}

static void start_counting(void *arg)
{
	struct counted *c = arg;

	assert_int_equal(uv_check_init(loop_uv(c->chain.loop), &c->looked), 0);
	assert_int_equal(uv_check_start(&c->looked, on_looked), 0);
	c->looked.data = c;
}

static void start_chain(void *arg)
{
	struct counted *c = arg;

	c->looks_before = c->looks;
	loop_post(c->chain.loop, &c->chain.task);
}

static void stop_counting(void *arg)
{
	struct counted *c = arg;

	uv_close((uv_handle_t *)&c->looked, NULL);
}

static unsigned int looks_while(struct counted *c, unsigned int tasks)
{
	c->chain.left = tasks;
	atomic_store(&c->done, false);
	loop_call(c->chain.loop, start_chain, c);
	test_wait(atomic_load(&c->done));
	return atomic_load(&c->looks_meanwhile);
}

/* What is posted on the loop's own thread needs no wake-up: it runs before the loop waits. But descriptors
 * have their turn, too, however many tasks post tasks. */
static void a_task_of_a_task_costs_no_wakeup(void **state)
{
	static struct counted c;

	(void)state;
	c.chain = (struct chain){ .task.run = run_counted, .loop = loop_new("counted") };
	assert_non_null(c.chain.loop);
	loop_call(c.chain.loop, start_counting, &c);
	for (unsigned int i = 0; i < 100; i++)
		assert_in_range(looks_while(&c, 4), 0, 1); /* that of the call itself */
	assert_in_range(looks_while(&c, 1000), 100, 1000);
	loop_call(c.chain.loop, stop_counting, &c);
	loop_free(c.chain.loop);
}

static void run_freed(struct loop_task *task)
{
	free(task);
}

static void a_task_may_free_itself(void **state)
{
	struct loop *loop = loop_new("freed");

	(void)state;
	assert_non_null(loop);
	for (int i = 0; i < 100; i++) {
		struct loop_task *task = malloc(sizeof(*task));

		assert_non_null(task);
		task->run = run_freed;
		loop_post(loop, task);
	}
	loop_free(loop); /* the sanitizer counts them */
	loop_free(NULL);
}

struct call {
	struct loop *loop;
	bool on_thread;
	unsigned int depth;
};

static void fn_call(void *arg)
{
	struct call *call = arg;

	call->on_thread = loop_on_thread(call->loop);
	if (++call->depth < 3)
		loop_call(call->loop, fn_call, call); /* there already: no waiting for itself */
}

static void a_call_is_over_when_it_returns(void **state)
{
	struct loop *loop = loop_new("call");

	(void)state;
	assert_non_null(loop);
	for (int i = 0; i < 500; i++) {
		struct call call = { .loop = loop };

		loop_call(loop, fn_call, &call);
		assert_int_equal(call.depth, 3);
		assert_true(call.on_thread);
	}
	loop_free(loop);
}

struct timers {
	struct loop *loop;
	struct loop_timer *stopped;
	uint64_t started;
	uint64_t fired_at[2];
	char order[4];
	_Atomic unsigned int fired;
	bool wrong;
};

static void fire(struct timers *t, char name)
{
	unsigned int n = atomic_load(&t->fired);

	if (n < 2) {
		t->order[n] = name;
		t->fired_at[n] = clock_mono_ns();
	}
	atomic_store(&t->fired, n + 1);
}

static void on_late(void *arg)
{
	fire(arg, 'l');
}

static void on_wrong(void *arg)
{
	struct timers *t = arg;

	t->wrong = true;
}

static void on_early(void *arg)
{
	struct timers *t = arg;

	fire(t, 'e');
	loop_timer_stop(t->stopped);
	loop_timer_stop(NULL);
}

static void start_timers(void *arg)
{
	struct timers *t = arg;

	t->started = clock_mono_ns();
	/* In the order in which they are due, however long this thread stands still between two of them. */
	if (!loop_timer_start(t->loop, 10 * CLOCK_MS, on_early, t))
		t->wrong = true;
	t->stopped = loop_timer_start(t->loop, 50 * CLOCK_MS, on_wrong, t);
	if (!loop_timer_start(t->loop, 60 * CLOCK_MS, on_late, t))
		t->wrong = true;
}

static void timers_fire_once_in_time_or_not_at_all(void **state)
{
	struct loop *loop = loop_new("timers");
	struct timers t = { .loop = loop };

	(void)state;
	assert_non_null(loop);
	loop_call(loop, start_timers, &t);
	test_wait(atomic_load(&t.fired) == 2);
	loop_free(loop);
	assert_int_equal(atomic_load(&t.fired), 2);
	assert_string_equal(t.order, "el");
	assert_true(t.fired_at[0] - t.started >= 10 * CLOCK_MS);
	assert_true(t.fired_at[1] - t.started >= 60 * CLOCK_MS);
	assert_false(t.wrong);
}

struct late {
	struct timers timers; /* first fires after loop_free() began */
	struct chain chain;
};

static void on_after_wake(void *arg)
{
	struct late *late = arg;

	loop_post(late->timers.loop, &late->chain.task);
	atomic_fetch_add(&late->timers.fired, 1);
}

static void start_late(void *arg)
{
	struct late *late = arg;

	late->timers.wrong =
		!loop_timer_start(late->timers.loop, 50 * CLOCK_MS, on_after_wake, late);
}

/* A timer still holds the loop when it may no longer be woken; what it posts is run all the same. */
static void what_the_last_handle_posts_runs(void **state)
{
	struct loop *loop = loop_new("late");
	struct late late = { .timers.loop = loop, .chain.loop = loop, .chain.left = 5 };

	(void)state;
	assert_non_null(loop);
	late.chain.task.run = run_chain;
	loop_call(loop, start_late, &late);
	loop_free(loop);
	assert_false(late.timers.wrong);
	assert_int_equal(atomic_load(&late.timers.fired), 1);
	assert_int_equal(late.chain.left, 0);
}

struct block {
	struct loop_task task;
	sem_t go;
	_Atomic bool runs;
};

static void run_block(struct loop_task *task)
{
	struct block *block = container_of(task, struct block, task);

	atomic_store(&block->runs, true);
	assert_int_equal(sem_wait(&block->go), 0);
}

static void nothing(void *arg)
{
	(void)arg;
}

static void one_that_hangs_does_not_turn(void **state)
{
	struct block block = { .task.run = run_block };
	struct loop *loop = loop_new("hangs");
	struct loop *other = loop_new("turns");

	(void)state;
	assert_non_null(loop);
	assert_non_null(other);
	assert_int_equal(sem_init(&block.go, 0, 0), 0);
	assert_true(loops_turn());
	loop_call(loop, nothing, NULL); /* after what was posted before */
	loop_call(other, nothing, NULL);
	assert_true(loops_turn());
	loop_call(loop, nothing, NULL);
	loop_post(loop, &block.task);
	test_wait(atomic_load(&block.runs));
	loop_call(other, nothing, NULL);
	assert_true(loops_turn()); /* it has been asked now */
	loop_call(other, nothing, NULL);
	assert_false(loops_turn());
	loop_call(other, nothing, NULL);
	assert_false(loops_turn());
	assert_int_equal(sem_post(&block.go), 0);
	loop_call(loop, nothing, NULL);
	loop_call(other, nothing, NULL);
	assert_true(loops_turn());
	loop_free(loop);
	loop_call(other, nothing, NULL);
	assert_true(loops_turn());
	loop_free(other);
	assert_true(loops_turn());
	assert_int_equal(sem_destroy(&block.go), 0);
}

/* ---- descriptors ----------------------------------------------------------------------------- */

struct watched {
	struct loop *loop;
	struct loop_watch *watch;
	int fds[2];
	_Atomic unsigned int read; /* bytes */
	_Atomic unsigned int writable;
	_Atomic unsigned int calls;
};

static void on_watched(void *arg, short events)
{
	struct watched *w = arg;
	char byte;

	w->calls++;
	if (events & POLLOUT) {
		w->writable++;
		loop_watch_change(w->watch, POLLIN);
	}
	if (events & POLLIN && read(w->fds[0], &byte, 1) == 1)
		w->read++;
}

static void start_watch(void *arg)
{
	struct watched *w = arg;

	w->watch = loop_watch_start(w->loop, w->fds[0], POLLIN, on_watched, w);
}

static void watch_nothing(void *arg)
{
	loop_watch_change(((struct watched *)arg)->watch, 0);
}

static void watch_both(void *arg)
{
	loop_watch_change(((struct watched *)arg)->watch, POLLIN | POLLOUT);
}

static void stop_watch(void *arg)
{
	struct watched *w = arg;

	loop_watch_stop(w->watch);
	loop_watch_stop(NULL);
	close(w->fds[0]); /* at once: the watch does not need it any more */
}

static void do_nothing(void *arg)
{
	(void)arg;
}

/* The other end is closed with bytes of ours that it did not read: an error of the descriptor, which has bytes to read as well. */
static void a_watch_goes_on_after_an_error(void **state)
{
	struct watched w = { .loop = loop_new("watch") };

	(void)state;
	assert_non_null(w.loop);
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, w.fds), 0);
	assert_int_equal(write(w.fds[0], "unread", 6), 6);
	assert_int_equal(write(w.fds[1], "abc", 3), 3);
	close(w.fds[1]);
	loop_call(w.loop, start_watch, &w);
	test_wait(w.calls >= 5); /* each reads a byte, or finds no more */
	assert_int_equal(w.read, 3);
	loop_call(w.loop, stop_watch, &w);
	loop_free(w.loop);
}

static void a_watch_calls_for_what_it_was_asked_until_it_is_stopped(void **state)
{
	struct watched w = { .loop = loop_new("watch") };

	(void)state;
	assert_non_null(w.loop);
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, w.fds), 0);
	loop_call(w.loop, start_watch, &w);
	assert_non_null(w.watch);
	assert_int_equal(write(w.fds[1], "a", 1), 1);
	test_wait(w.read == 1);
	assert_int_equal(w.writable, 0);
	loop_call(w.loop, watch_nothing, &w);
	assert_int_equal(write(w.fds[1], "b", 1), 1);
	for (unsigned int i = 0; i < 10; i++) /* each comes after a look at the descriptors */
		loop_call(w.loop, do_nothing, NULL);
	assert_int_equal(w.read, 1);
	loop_call(w.loop, watch_both, &w);
	test_wait(w.read == 2 && w.writable == 1);
	loop_call(w.loop, stop_watch, &w);
	close(w.fds[1]);
	loop_free(w.loop);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(many_threads_post_in_order),
		cmocka_unit_test(tasks_of_tasks_run_before_the_end),
		cmocka_unit_test(a_task_of_a_task_costs_no_wakeup),
		cmocka_unit_test(a_task_may_free_itself),
		cmocka_unit_test(a_call_is_over_when_it_returns),
		cmocka_unit_test(timers_fire_once_in_time_or_not_at_all),
		cmocka_unit_test(what_the_last_handle_posts_runs),
		cmocka_unit_test(one_that_hangs_does_not_turn),
		cmocka_unit_test(a_watch_goes_on_after_an_error),
		cmocka_unit_test(a_watch_calls_for_what_it_was_asked_until_it_is_stopped),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
