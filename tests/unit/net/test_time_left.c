/* What a request says of the time that its asker still waits. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include "base/clock.h"
#include "base/deadline.h"
#include "net/net.h"
#include "tests/clock/test_clock.h"
#include "tests/unit/net/call_result.h"

struct fixture {
	struct loop *loop;
	struct rpc_server *server;
	struct rpc_client *client;
	_Atomic unsigned int requests;
};

/* Replies in `extent` the nanoseconds that are left, UINT64_MAX: no limit. */
static void on_request(struct rpc_request *request, void *arg)
{
	struct frame reply = { .extent = deadline_left(request->deadline_ns, clock_mono_ns()) };
	struct fixture *f = arg;

	f->requests++;
	rpc_reply(request, 0, &reply, NET_PAYLOAD_NONE);
}

static void start_server(struct fixture *f)
{
	static const struct rpc_server_ops ops = { .on_request = on_request };
	struct err e = ERR_INIT;

	assert_int_equal(rpc_server_new(f->loop, "fake:left", &ops, f, &f->server, &e), 0);
}

static void start(struct fixture *f)
{
	struct err e = ERR_INIT;

	*f = (struct fixture){ .loop = loop_new("left") };
	start_server(f);
	assert_int_equal(rpc_client_new(f->loop, "fake:left", &f->client, &e), 0);
}

static void stop(struct fixture *f)
{
	rpc_client_free(f->client);
	rpc_server_free(f->server);
	loop_free(f->loop);
}

/* `left_ms` and `lane` of the caller's frame are the client's to set. */
static uint64_t left_at_server(struct fixture *f, uint64_t deadline_ns)
{
	struct rpc_call call = { .frame = { .op = FRAME_FETCH, .left_ms = 1, .lane = 1 },
		.deadline_ns = deadline_ns };

	assert_int_equal(rpc_call_wait(f->client, &call, NULL), 0);
	return call.reply.extent;
}

static void test_left(void **state)
{
	struct fixture f;
	uint64_t deadline;
	uint64_t left;

	(void)state;
	start(&f);
	assert_true(left_at_server(&f, 0) == UINT64_MAX);
	deadline = clock_mono_ns() + 100 * CLOCK_SECOND;
	left = left_at_server(&f, deadline);
	assert_true(left <= 100 * CLOCK_SECOND && left > 50 * CLOCK_SECOND);
	test_advance(60 * CLOCK_SECOND);
	left = left_at_server(&f, deadline);
	assert_true(left <= 40 * CLOCK_SECOND && left > 0);
	stop(&f);
}

/* The wait for a connection is subtracted. */
static void test_waited(void **state)
{
	struct call_result result = { .n = 0 };
	struct rpc_call call = { .frame = { .op = FRAME_FETCH },
		.resend = true,
		.on_done = call_result_note,
		.arg = &result };
	struct fixture f;

	(void)state;
	start(&f);
	assert_true(left_at_server(&f, 0) == UINT64_MAX);
	rpc_server_free(f.server);
	test_wait(!rpc_client_connected(f.client));
	call.deadline_ns = clock_mono_ns() + 100 * CLOCK_SECOND;
	rpc_call(f.client, &call);
	test_advance(30 * CLOCK_SECOND);
	start_server(&f);
	test_wait(result.n > 0);
	assert_int_equal(result.status, 0);
	assert_true(call.reply.extent <= 70 * CLOCK_SECOND);
	stop(&f);
}

/* Less than a millisecond cannot be said in a frame, and 0 means no limit: nothing is sent. */
static void test_nothing_left(void **state)
{
	struct rpc_call call = { .frame = { .op = FRAME_FETCH } };
	struct fixture f;

	(void)state;
	start(&f);
	assert_true(left_at_server(&f, 0) == UINT64_MAX);
	call.deadline_ns = clock_mono_ns() + CLOCK_MS - 1;
	assert_int_equal(rpc_call_wait(f.client, &call, NULL), -ETIMEDOUT);
	assert_int_equal(f.requests, 1);
	stop(&f);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_left),
		cmocka_unit_test(test_waited),
		cmocka_unit_test(test_nothing_left),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
