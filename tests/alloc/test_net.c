/* A server, a client, their handshake and one call, with every allocation failing once. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/clock.h"
#include "net/net.h"
#include "tests/alloc/alloc_fail.h"
#include "tests/unit/net/cluster_key.h"

#define BYTES 4000u

static char dir[64];

static int setup(void **state)
{
	(void)state;
	snprintf(dir, sizeof(dir), "/tmp/granary-alloc-XXXXXX");
	return mkdtemp(dir) ? 0 : -1;
}

static int teardown(void **state)
{
	(void)state;
	return rmdir(dir);
}

/* Sends back what came. */
static void on_request(struct rpc_request *request, void *arg)
{
	struct net_payload payload = NET_PAYLOAD_NONE;

	(void)arg;
	payload.n = 1;
	payload.parts[0].data = request->payload;
	payload.parts[0].len = request->frame.payload;
	payload.release = free;
	payload.arg = request->payload;
	request->payload = NULL;
	rpc_reply(request, 0, NULL, payload);
}

static int call(struct rpc_client *client)
{
	static uint8_t bytes[BYTES];
	struct rpc_call call = { .frame = { .op = FRAME_FETCH, .length = BLOCK_BYTES },
		.payload = NET_PAYLOAD_NONE,
		.deadline_ns = clock_mono_ns() + 5 * CLOCK_SECOND,
		.resend = true,
		.reply_fd = -1 };
	struct err e = ERR_INIT;
	int r;

	memset(bytes, 0x5a, sizeof(bytes));
	call.payload.n = 1;
	call.payload.parts[0].data = bytes;
	call.payload.parts[0].len = sizeof(bytes);
	r = rpc_call_wait(client, &call, &e);
	if (r == 0) {
		assert_int_equal(call.reply.payload, sizeof(bytes));
		assert_memory_equal(call.reply_payload, bytes, sizeof(bytes));
	}
	rpc_call_release(&call);
	return r;
}

static int exchange(void *arg)
{
	static const struct rpc_server_ops ops = { .on_request = on_request };
	struct loop *loop = loop_new("server");
	struct loop *other = loop_new("client");
	struct rpc_server *server = NULL;
	struct rpc_client *client = NULL;
	struct err e = ERR_INIT;
	int r = loop && other ? 0 : -ENOMEM;

	if (r == 0) {
		r = rpc_server_new(loop, arg, &ops, NULL, &server, &e);
		assert_true(r == 0 || e.text[0]);
	}
	if (r == 0)
		r = rpc_client_new(other, rpc_server_address(server), &client, &e);
	if (r == 0)
		r = call(client);
	if (r < 0 && client && !alloc_fail_end())
		fail_msg("a call failed by itself: %d", r);
	if (r < 0 && client && r != -EADDRINUSE)
		assert_int_equal(call(client), 0); /* the next one is right */
	if (client)
		rpc_client_free(client);
	if (server)
		rpc_server_free(server);
	loop_free(other);
	loop_free(loop);
	return r < 0 ? r : 0;
}

static void test_unix(void **state)
{
	char address[96];

	(void)state;
	snprintf(address, sizeof(address), "unix:%s/s", dir);
	assert_true(alloc_sweep(exchange, address, 1) > 10);
}

static void test_tcp(void **state)
{
	char address[] = "tcp:127.0.0.1:0";

	assert_int_equal(with_cluster_key(state), 0);
	assert_true(alloc_sweep(exchange, address, 1) > 10);
	assert_int_equal(without_cluster_key(state), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_unix),
		cmocka_unit_test(test_tcp),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
