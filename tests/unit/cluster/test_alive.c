/* Peers that say nothing: the one of this node, which no table names, stands for all (view_alive.c). */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>
#include "base/clock.h"
#include "cluster/view_internal.h"
#include "net/fake.h"
#include "proto/hello.h"
#include "tests/clock/test_clock.h"

/* Within this, on however slow a machine; and three times as long if need be. */
#define ANSWERED (10 * CLOCK_SECOND)
/* What is not late by as much, on a machine that stands still for a second now and then; tests wait for it, too. */
#define LATE (4 * CLOCK_SECOND)

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

static struct view_status status_of(const struct view_peer *peer)
{
	struct view_status status;

	peer_status(peer_of(peer), &status);
	return status;
}

/* A master that is not there, and this node's worker. */
static struct view *open_view(
	struct loop *loop, struct rpc_client *master, const char *local_worker)
{
	struct view_config config = {
		.master = master, .local_worker = local_worker, .on_hang = on_hang
	};
	struct err e = ERR_INIT;
	struct view *view;

	if (view_open(loop, &config, 0, &view, &e) < 0)
		fail_msg("%s", e.text);
	return view;
}

/* Those and a worker that can be stopped. */
struct world {
	struct loop *loop;
	struct rpc_client *master;
	struct freezer freezer;
	struct view *view;
	struct view_peer *peer;
};

static void world_start(struct world *w)
{
	struct err e = ERR_INIT;

	w->loop = loop_new("test");
	freezer_start(&w->freezer, "fake:worker");
	assert_int_equal(rpc_client_new(w->loop, "fake:nobody", &w->master, &e), 0);
	w->view = open_view(w->loop, w->master, "fake:worker");
	w->peer = view_local(w->view);
}

static void world_end(struct world *w)
{
	view_close(w->view);
	rpc_client_free(w->master);
	loop_free(w->loop);
	freezer_end(&w->freezer);
}

/* What takes its time is asked whether it is there, and says so; what is stopped gets nothing until it does. */
static void test_a_peer_that_hangs(void **state)
{
	struct view_status status;
	struct world w;

	(void)state;
	world_start(&w);
	view_set_hangs(w.view, ANSWERED);
	view_begin(w.view, w.peer); /* a call that the test does not end */
	test_wait(status_of(w.peer).answers >= 3);
	assert_int_equal(atomic_load(&told_hangs), 0);
	assert_true(view_usable(w.view, w.peer));

	pthread_mutex_lock(&w.freezer.lock);
	loop_post(w.freezer.loop, &w.freezer.task);
	view_set_hangs(w.view, CLOCK_SECOND / 10);
	test_wait(view_hangs(w.peer));
	assert_false(view_usable(w.view, w.peer));
	assert_false(view_down(w.peer));
	test_wait(atomic_load(&told_hangs) >= 3); /* as long as it does */
	peer_status(peer_of(w.peer), &status);
	assert_in_range(status.in_flight, 1, 2); /* one question at a time */

	view_set_hangs(w.view, ANSWERED);
	pthread_mutex_unlock(&w.freezer.lock);
	test_wait(!view_hangs(w.peer));
	test_wait(status_of(w.peer).answers >= status.answers + 1);
	assert_true(view_usable(w.view, w.peer));
	view_dropped(w.view, w.peer);
	world_end(&w);
}

/* That it is there does not make up for calls that it does not answer. */
static void test_there_but_without_answers(void **state)
{
	struct view_status status = { 0 };
	struct world w;

	(void)state;
	world_start(&w);
	view_set_hangs(w.view, ANSWERED);
	view_begin(w.view, w.peer); /* a call that the test does not end yet */
	view_begin(w.view, w.peer);
	view_end(w.view, w.peer, CLOCK_SECOND, true);
	test_wait(status_of(w.peer).answers >= 2);
	assert_true(view_failing(w.peer) > 0);
	for (int i = 0; i < 2; i++) {
		view_begin(w.view, w.peer);
		view_end(w.view, w.peer, CLOCK_SECOND, true);
	}
	peer_status(peer_of(w.peer), &status);
	test_wait(status_of(w.peer).answers >= status.answers + 1);
	assert_true(view_failing(w.peer) > 0);
	assert_int_not_equal(peer_of(w.peer)->broken_until_ns, 0);
	view_end(w.view, w.peer, CLOCK_MS, false);
	assert_int_equal(view_failing(w.peer), 0);
	assert_true(view_usable(w.view, w.peer));
	world_end(&w);
}

/* Whoever answers while a PING does not come through does not hang. */
static void test_answers_without_a_ping(void **state)
{
	uint32_t told = atomic_load(&told_hangs);
	struct world w;

	(void)state;
	world_start(&w);
	view_set_hangs(w.view, LATE);
	view_begin(w.view, w.peer);                /* a call that the test does not end yet */
	test_wait(status_of(w.peer).answers >= 1); /* there is a connection */
	pthread_mutex_lock(&w.freezer.lock);
	loop_post(w.freezer.loop, &w.freezer.task);
	test_wait(status_of(w.peer).in_flight >= 2);
	while (status_of(w.peer).in_flight > 1) {
		assert_int_equal(atomic_load(&told_hangs), told);
		view_begin(w.view, w.peer);
		view_end(w.view, w.peer, CLOCK_MS, false);
		test_advance(LATE / 100);
	}
	assert_int_equal(atomic_load(&told_hangs), told);
	test_wait(view_hangs(w.peer)); /* it says nothing more */
	pthread_mutex_unlock(&w.freezer.lock);
	test_wait(!view_hangs(w.peer));
	view_dropped(w.view, w.peer);
	world_end(&w);
}

struct last_ping {
	struct view *view;
	uint64_t asked_ns;
};

static void read_last_ping(void *arg)
{
	struct last_ping *last = arg;

	for (uint32_t i = 0; i < VIEW_ALIVES; i++)
		last->asked_ns = max(last->asked_ns, last->view->alives[i].asked_ns);
}

/* A worker that is frozen before it greets: each PING is refused at once, and the next one waits for the next look. */
static void test_no_connection(void **state)
{
	struct last_ping last = { 0 };
	uint64_t began, before, pings = 0;
	struct world w;

	(void)state;
	world_start(&w);
	last.view = w.view;
	view_set_hangs(w.view, ANSWERED);
	pthread_mutex_lock(&w.freezer.lock);
	loop_post(w.freezer.loop, &w.freezer.task);
	view_begin(w.view, w.peer); /* a call that the test does not end */
	test_advance(ANSWERED / 2); /* the connection is given up meanwhile */
	began = test_now();
	for (uint32_t i = 0; i < 1000; i++) {
		before = last.asked_ns;
		loop_call(w.loop, read_last_ping, &last);
		pings += last.asked_ns != before;
	}
	assert_true(last.asked_ns > 0);
	assert_in_range(pings, 0, (test_now() - began) / (VIEW_QUIET / 2) + 2);
	pthread_mutex_unlock(&w.freezer.lock);
	view_dropped(w.view, w.peer);
	world_end(&w);
}

/* A worker at the far end of a slow network: of its answer to the first PING a byte comes now and then. */
struct trickle {
	pthread_t thread;
	int listener;
	_Atomic uint32_t pings;
	_Atomic bool stop; /* no more bytes; the connection stands */
	_Atomic bool end;
};

static void trickle_hello(int fd)
{
	struct hello hello = { .process = "slow", .version = FRAME_VERSION, .pid = 1 };
	struct frame frame = { .op = FRAME_HELLO };
	uint8_t bytes[FRAME_BYTES + HELLO_BYTES_MAX];

	frame.payload = (uint32_t)hello_pack(&hello, bytes + FRAME_BYTES);
	frame_encode(&frame, bytes);
	assert_int_equal(send(fd, bytes, FRAME_BYTES + frame.payload, 0),
		(ssize_t)(FRAME_BYTES + frame.payload));
}

/* The next message that is there, without its payload. */
static bool trickle_read(int fd, int flags, struct frame *ret_frame)
{
	uint8_t bytes[FRAME_BYTES];
	uint8_t rest[HELLO_BYTES_MAX];

	if (recv(fd, bytes, sizeof(bytes), flags) != sizeof(bytes))
		return false;
	assert_int_equal(frame_decode(bytes, ret_frame), 0);
	assert_true(ret_frame->payload <= sizeof(rest));
	return ret_frame->payload == 0 ||
	       recv(fd, rest, ret_frame->payload, MSG_WAITALL) == (ssize_t)ret_frame->payload;
}

static void *run_trickle(void *arg)
{
	struct trickle *t = arg;
	int fd = accept(t->listener, NULL, NULL);
	uint8_t bytes[FRAME_BYTES];
	struct frame frame = { 0 };

	assert_true(fd >= 0);
	assert_true(trickle_read(fd, MSG_WAITALL, &frame));
	trickle_hello(fd);
	do
		assert_true(trickle_read(fd, MSG_WAITALL, &frame));
	while (frame.op != FRAME_PING);
	atomic_store(&t->pings, 1);
	frame = (struct frame){ .op = FRAME_PING,
		.id = frame.id,
		.flags = FRAME_REPLY,
		.status = -EOPNOTSUPP,
		.payload = FRAME_SMALL_BYTES };
	frame_encode(&frame, bytes);
	assert_int_equal(send(fd, bytes, sizeof(bytes), 0), sizeof(bytes));
	for (; !atomic_load(&t->end); test_advance(10 * CLOCK_MS)) {
		if (!atomic_load(&t->stop))
			assert_int_equal(send(fd, "x", 1, 0), 1);
		while (trickle_read(fd, MSG_DONTWAIT, &frame))
			if (frame.op == FRAME_PING)
				atomic_fetch_add(&t->pings, 1);
	}
	(void)close(fd);
	return NULL;
}

/* Nothing is answered, but bytes come. */
static void test_a_slow_network(void **state)
{
	char dir[] = "/tmp/granary-alive-XXXXXX";
	char address[128];
	struct sockaddr_un sun = { .sun_family = AF_UNIX };
	struct trickle t = { 0 };
	struct loop *loop = loop_new("test");
	uint32_t told = atomic_load(&told_hangs);
	struct err e = ERR_INIT;
	struct rpc_client *master;
	struct view_peer *peer;
	struct view *view;

	(void)state;
	assert_non_null(mkdtemp(dir));
	(void)snprintf(sun.sun_path, sizeof(sun.sun_path), "%s/worker", dir);
	(void)snprintf(address, sizeof(address), "unix:%s", sun.sun_path);
	t.listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	assert_int_equal(bind(t.listener, (struct sockaddr *)&sun, sizeof(sun)), 0);
	assert_int_equal(listen(t.listener, 1), 0);
	assert_int_equal(pthread_create(&t.thread, NULL, run_trickle, &t), 0);

	assert_int_equal(rpc_client_new(loop, "fake:nobody", &master, &e), 0);
	view = open_view(loop, master, address);
	peer = view_local(view);
	view_set_hangs(view, LATE);
	view_begin(view, peer);
	test_wait(atomic_load(&t.pings) >= 3);
	assert_int_equal(atomic_load(&told_hangs), told);
	assert_false(view_hangs(peer));
	atomic_store(&t.stop, true);
	test_wait(view_hangs(peer));

	atomic_store(&t.end, true);
	pthread_join(t.thread, NULL);
	view_dropped(view, peer);
	view_close(view);
	rpc_client_free(master);
	loop_free(loop);
	(void)close(t.listener);
	assert_int_equal(unlink(sun.sun_path), 0);
	assert_int_equal(rmdir(dir), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_a_peer_that_hangs),
		cmocka_unit_test(test_there_but_without_answers),
		cmocka_unit_test(test_answers_without_a_ping),
		cmocka_unit_test(test_no_connection),
		cmocka_unit_test(test_a_slow_network),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
