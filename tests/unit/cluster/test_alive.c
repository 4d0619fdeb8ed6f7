/* Peers that say nothing: the one of this node, which no table names, stands for all (view_alive.c). */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <pthread.h>
#include <stdio.h>
#include "base/clock.h"
#include "cluster/view_internal.h"
#include "net/fake.h"

#define PATIENCE (60 * CLOCK_SECOND) /* for what must come */
/* Within this, on however slow a machine; and three times as long if need be. */
#define ANSWERED (10 * CLOCK_SECOND)

/* A worker of which the test can stop the one thread. */
struct freezer {
	struct loop_task task;
	struct loop *loop;
	struct rpc_server *server;
	pthread_mutex_t lock;
};

static void on_request(struct rpc_request *request, void *arg)
{
	(void)arg;
	rpc_reply(request, -EOPNOTSUPP, NULL, NET_PAYLOAD_NONE);
}

static void run_freeze(struct loop_task *task)
{
	struct freezer *f = container_of(task, struct freezer, task);

	pthread_mutex_lock(&f->lock);
	pthread_mutex_unlock(&f->lock);
}

static void freezer_start(struct freezer *f, const char *address)
{
	static const struct rpc_server_ops ops = { .on_request = on_request };
	struct err e = ERR_INIT;

	*f = (struct freezer){ .task.run = run_freeze, .loop = loop_new("worker") };
	pthread_mutex_init(&f->lock, NULL);
	if (rpc_server_new(f->loop, address, &ops, f, &f->server, &e) < 0)
		fail_msg("%s", e.text);
}

static void freezer_end(struct freezer *f)
{
	rpc_server_free(f->server);
	loop_free(f->loop);
	pthread_mutex_destroy(&f->lock);
}

static _Atomic uint32_t told_hangs;

static void on_hang(void *arg)
{
	(void)arg;
	atomic_fetch_add(&told_hangs, 1);
}

static void wait_hangs(const struct view_peer *peer, bool hangs)
{
	uint64_t deadline = clock_mono_ns() + PATIENCE;

	while (view_hangs(peer) != hangs) {
		assert_true(clock_mono_ns() < deadline);
		clock_sleep_ns(CLOCK_MS);
	}
}

static void wait_answers(const struct view_peer *peer, uint64_t n)
{
	struct view_status status = { 0 };
	uint64_t deadline = clock_mono_ns() + PATIENCE;

	while (peer_status(peer_of(peer), &status), status.answers < n) {
		assert_true(clock_mono_ns() < deadline);
		clock_sleep_ns(CLOCK_MS);
	}
}

/* A master that is not there, and this node's worker. */
static struct view *open_view(struct loop *loop, struct rpc_client *master)
{
	struct view_config config = {
		.master = master, .local_worker = "fake:worker", .on_hang = on_hang
	};
	struct err e = ERR_INIT;
	struct view *view;

	if (view_open(loop, &config, 0, &view, &e) < 0)
		fail_msg("%s", e.text);
	return view;
}

/* What takes its time is asked whether it is there, and says so; what is stopped gets nothing until it does. */
static void test_a_peer_that_hangs(void **state)
{
	struct loop *loop = loop_new("test");
	struct err e = ERR_INIT;
	struct rpc_client *master;
	struct view_peer *peer;
	struct view_status status;
	struct freezer f;
	struct view *view;

	(void)state;
	freezer_start(&f, "fake:worker");
	assert_int_equal(rpc_client_new(loop, "fake:nobody", &master, &e), 0);
	view = open_view(loop, master);
	peer = view_local(view);
	view_set_hangs(view, ANSWERED);
	view_begin(view, peer); /* a call that the test does not end */
	wait_answers(peer, 3);
	assert_int_equal(atomic_load(&told_hangs), 0);
	assert_true(view_usable(view, peer));

	pthread_mutex_lock(&f.lock);
	loop_post(f.loop, &f.task);
	view_set_hangs(view, CLOCK_SECOND / 10);
	wait_hangs(peer, true);
	assert_false(view_usable(view, peer));
	assert_false(view_down(peer));
	for (uint64_t deadline = clock_mono_ns() + PATIENCE; atomic_load(&told_hangs) < 3;) {
		assert_true(clock_mono_ns() < deadline); /* as long as it does */
		clock_sleep_ns(CLOCK_MS);
	}
	peer_status(peer_of(peer), &status);
	assert_in_range(status.in_flight, 1, 2); /* one question at a time */

	view_set_hangs(view, ANSWERED);
	pthread_mutex_unlock(&f.lock);
	wait_hangs(peer, false);
	wait_answers(peer, status.answers + 1);
	assert_true(view_usable(view, peer));
	view_dropped(view, peer);
	view_close(view);
	rpc_client_free(master);
	loop_free(loop);
	freezer_end(&f);
}

/* That it is there does not make up for calls that it does not answer. */
static void test_there_but_without_answers(void **state)
{
	struct loop *loop = loop_new("test");
	struct view_status status = { 0 };
	struct err e = ERR_INIT;
	struct rpc_client *master;
	struct view_peer *peer;
	struct freezer f;
	struct view *view;

	(void)state;
	freezer_start(&f, "fake:worker");
	assert_int_equal(rpc_client_new(loop, "fake:nobody", &master, &e), 0);
	view = open_view(loop, master);
	peer = view_local(view);
	view_set_hangs(view, ANSWERED);
	view_begin(view, peer); /* a call that the test does not end yet */
	view_begin(view, peer);
	view_end(view, peer, CLOCK_SECOND, true);
	wait_answers(peer, 2);
	assert_true(view_failing(peer) > 0);
	for (int i = 0; i < 2; i++) {
		view_begin(view, peer);
		view_end(view, peer, CLOCK_SECOND, true);
	}
	peer_status(peer_of(peer), &status);
	wait_answers(peer, status.answers + 1);
	assert_true(view_failing(peer) > 0);
	assert_int_not_equal(peer_of(peer)->broken_until_ns, 0);
	view_end(view, peer, CLOCK_MS, false);
	assert_int_equal(view_failing(peer), 0);
	assert_true(view_usable(view, peer));
	view_close(view);
	rpc_client_free(master);
	loop_free(loop);
	freezer_end(&f);
}

/* Whoever answers while a PING does not come through does not hang. */
static void test_answers_without_a_ping(void **state)
{
	struct loop *loop = loop_new("test");
	struct view_status status = { 0 };
	uint64_t deadline = clock_mono_ns() + PATIENCE;
	uint32_t told = atomic_load(&told_hangs);
	struct err e = ERR_INIT;
	struct rpc_client *master;
	struct view_peer *peer;
	struct freezer f;
	struct view *view;

	(void)state;
	freezer_start(&f, "fake:worker");
	assert_int_equal(rpc_client_new(loop, "fake:nobody", &master, &e), 0);
	view = open_view(loop, master);
	peer = view_local(view);
	pthread_mutex_lock(&f.lock);
	loop_post(f.loop, &f.task);
	view_set_hangs(view, 2 * CLOCK_SECOND);
	view_begin(view, peer); /* a call that the test does not end yet */
	while (peer_status(peer_of(peer), &status), status.in_flight < 2) {
		assert_true(clock_mono_ns() < deadline);
		clock_sleep_ns(CLOCK_MS);
	}
	while (peer_status(peer_of(peer), &status), status.in_flight > 1) {
		assert_int_equal(atomic_load(&told_hangs), told);
		assert_true(clock_mono_ns() < deadline);
		view_begin(view, peer);
		view_end(view, peer, CLOCK_MS, false);
		clock_sleep_ns(CLOCK_MS);
	}
	assert_int_equal(atomic_load(&told_hangs), told);
	wait_hangs(peer, true); /* it says nothing more */
	pthread_mutex_unlock(&f.lock);
	wait_hangs(peer, false);
	view_dropped(view, peer);
	view_close(view);
	rpc_client_free(master);
	loop_free(loop);
	freezer_end(&f);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_a_peer_that_hangs),
		cmocka_unit_test(test_there_but_without_answers),
		cmocka_unit_test(test_answers_without_a_ping),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
