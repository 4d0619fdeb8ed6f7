/* Calls whose bytes come by a lane: each ends with its own bytes, whatever becomes of the lane. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/clock.h"
#include "net/client_internal.h"
#include "net/fake.h"
#include "net/lane_fake.h"
#include "net/lanes.h"
#include "net/net.h"
#include "tests/clock/test_clock.h"
#include "tests/unit/net/cluster_key.h"

enum { SUMS = 3, CALLS = 24 };

struct world {
	struct loop *server_loop;
	struct loop *client_loop;
	struct rpc_server *server;
	struct rpc_client *client;
	_Atomic unsigned int released;
	_Atomic unsigned int answered;
};

struct call {
	struct rpc_call rpc;
	struct world *w;
	_Atomic bool done;
	int status;
	unsigned int cancel; /* it is cancelled */
};

static void fill(uint8_t *out, size_t n, uint64_t seed)
{
	for (size_t i = 0; i < n; i += sizeof(seed)) {
		uint64_t word = (seed + i + 1) * 0x9e3779b97f4a7c15ull;

		memcpy(out + i, &word, min(n - i, sizeof(word)));
	}
}

struct bytes {
	struct world *w;
	uint8_t data[];
};

static void bytes_release(void *arg)
{
	struct bytes *b = arg;

	b->w->released++;
	free(b);
}

/* `length` bytes of the offset, and three checksums. */
static void on_request(struct rpc_request *request, void *arg)
{
	struct world *w = arg;
	uint32_t n = request->frame.length;
	struct bytes *b = malloc(sizeof(*b) + n + SUMS * 8);
	struct net_payload payload = NET_PAYLOAD_NONE;
	struct frame reply = { .length = n, .offset = request->frame.offset, .checksums = SUMS };

	assert_non_null(b);
	assert_int_equal(request->frame.payload, 0); /* the destination is net's */
	b->w = w;
	fill(b->data, n + SUMS * 8, request->frame.offset);
	payload.parts[0].data = b->data;
	payload.parts[0].len = n / 3;
	payload.parts[1].data = b->data + n / 3;
	payload.parts[1].len = n - n / 3;
	payload.parts[2].data = b->data + n;
	payload.parts[2].len = SUMS * 8;
	payload.n = 3;
	payload.release = bytes_release;
	payload.arg = b;
	w->answered++;
	rpc_reply(request, 0, &reply, payload);
}

static const struct rpc_server_ops server_ops = { .on_request = on_request };

static struct world world;

static int setup(void **state)
{
	static unsigned int number;
	struct world *w = &world;
	char address[32];
	struct err e = ERR_INIT;

	memset(w, 0, sizeof(*w));
	lane_fake_set_faults(&(struct lane_fake_faults){ 0 });
	lane_fake_set_device(true);
	assert_int_equal(lanes_start(&(struct lanes_options){ .ops = &lane_fake, .slots = 16 }), 0);
	w->server_loop = loop_new("server");
	w->client_loop = loop_new("client");
	(void)snprintf(address, sizeof(address), "fake:lane%u", number++);
	assert_int_equal(
		rpc_server_new(w->server_loop, address, &server_ops, w, &w->server, &e), 0);
	assert_int_equal(rpc_client_new(w->client_loop, address, &w->client, &e), 0);
	*state = w;
	return 0;
}

static int teardown(void **state)
{
	struct world *w = *state;

	rpc_client_free(w->client);
	rpc_server_free(w->server);
	loop_free(w->client_loop);
	loop_free(w->server_loop);
	assert_int_equal(w->released, w->answered);
	lanes_stop(); /* which ensures that each slot was given back */
	return 0;
}

static void on_done(struct rpc_call *rpc, int status)
{
	struct call *c = container_of(rpc, struct call, rpc);

	c->status = status;
	c->done = true;
}

static void start(struct world *w, struct call *c, uint64_t offset, uint32_t length)
{
	memset(c, 0, sizeof(*c));
	c->w = w;
	c->rpc.frame.op = FRAME_FETCH;
	c->rpc.frame.offset = offset;
	c->rpc.frame.length = length;
	c->rpc.payload = NET_PAYLOAD_NONE;
	c->rpc.resend = true;
	c->rpc.on_done = on_done;
	rpc_call(w->client, &c->rpc);
}

static void check(struct call *c)
{
	uint32_t n = c->rpc.frame.length + SUMS * 8;
	uint8_t *expected;

	assert_int_equal(c->status, 0);
	assert_int_equal(c->rpc.reply.lane, 0);
	assert_int_equal(c->rpc.reply.payload, n);
	assert_int_equal(c->rpc.reply.length, c->rpc.frame.length);
	assert_int_equal(c->rpc.reply.offset, c->rpc.frame.offset);
	expected = malloc(n);
	assert_non_null(expected);
	fill(expected, n, c->rpc.frame.offset);
	assert_memory_equal(c->rpc.reply_payload, expected, n);
	free(expected);
	rpc_call_release(&c->rpc);
}

static uint32_t length_of(unsigned int i)
{
	static const uint32_t lengths[] = { 1u << 20, 16384, 65536, 100000, 777777, 16383, 1,
		300001 };

	return lengths[i % ARRAY_SIZE(lengths)];
}

/* n calls, CALLS at a time; every `cancel`th is cancelled. */
static void calls(struct world *w, unsigned int n, unsigned int cancel)
{
	static struct call all[CALLS];

	for (unsigned int i = 0; i < n; i += CALLS) {
		for (unsigned int j = 0; j < CALLS; j++)
			start(w, &all[j], (uint64_t)(i + j) << 24, length_of(i + j));
		for (unsigned int j = 0; j < CALLS && cancel; j += cancel) {
			all[j].cancel = 1;
			rpc_cancel(w->client, &all[j].rpc);
		}
		for (unsigned int j = 0; j < CALLS; j++) {
			test_wait(all[j].done);
			if (all[j].cancel && all[j].status == -ECANCELED)
				rpc_call_release(&all[j].rpc);
			else
				check(&all[j]);
		}
	}
}

struct look {
	struct rpc_client *client;
	struct lane_asker_state state;
};

static void look_on_loop(void *arg)
{
	struct look *l = arg;

	lane_calls_look(l->client, &l->state);
}

static struct lane_asker_state look(struct world *w)
{
	struct look l = { .client = w->client };

	loop_call(w->client_loop, look_on_loop, &l);
	return l.state;
}

static void open_lane(struct world *w)
{
	calls(w, CALLS, 0); /* by TCP: the first long one opens it */
	test_wait(look(w).open);
}

static void test_bytes(void **state)
{
	struct world *w = *state;
	struct lane_asker_state s;

	open_lane(w);
	calls(w, 480, 0);
	s = look(w);
	/* Of eight lengths six are long enough; a request that finds no slot goes by TCP. */
	assert_true(s.completed >= 200);
	assert_int_equal(s.breaks, 0);
	assert_int_equal(s.quarantined, 0);
}

static void test_cancelled(void **state)
{
	struct world *w = *state;

	lane_fake_set_faults(&(struct lane_fake_faults){ .seed = 1, .delay_ns = CLOCK_MS });
	open_lane(w);
	for (int i = 0; i < 5; i++)
		calls(w, 48, 3);
}

/* The lane breaks again and again: its calls are sent once more, by TCP. */
static void breaks(struct world *w, struct lane_fake_faults faults)
{
	uint64_t n = 0;

	for (unsigned int i = 0; i < 6; i++) {
		lane_fake_set_faults(&(struct lane_fake_faults){ 0 });
		open_lane(w);
		faults.seed = i + 1;
		lane_fake_set_faults(&faults);
		calls(w, 96, i % 2 ? 5 : 0);
		n = look(w).breaks;
		test_advance(700 * CLOCK_SECOND);
	}
	assert_true(n >= 3);
}

static void test_failed(void **state)
{
	breaks(*state, (struct lane_fake_faults){ .delay_ns = CLOCK_MS, .fail = 50 });
}

static void test_failed_though_written(void **state)
{
	breaks(*state, (struct lane_fake_faults){ .delay_ns = CLOCK_MS, .fail_written = 50 });
}

static void test_twice(void **state)
{
	breaks(*state, (struct lane_fake_faults){ .delay_ns = CLOCK_MS, .twice = 50 });
}

/* The connection is lost with writes in flight; so is the device. */
static void test_lost(void **state)
{
	struct world *w = *state;
	static struct call all[CALLS];

	lane_fake_set_faults(&(struct lane_fake_faults){ .seed = 1, .delay_ns = 5 * CLOCK_MS });
	for (unsigned int i = 0; i < 6; i++) {
		open_lane(w);
		for (unsigned int j = 0; j < CALLS; j++)
			start(w, &all[j], (uint64_t)j << 24, length_of(j));
		test_wait(all[6].done); /* a short one */
		if (i % 2) {
			fake_cut(rpc_server_address(w->server) + 5);
		} else {
			lane_fake_set_device(false);
			lane_fake_set_device(true);
		}
		for (unsigned int j = 0; j < CALLS; j++) {
			test_wait(all[j].done);
			check(&all[j]);
		}
		test_advance(700 * CLOCK_SECOND);
	}
}

/* The server's end breaks while nothing is written: the next request that names the lane finds that out. */
static void test_silent_end(void **state)
{
	struct world *w = *state;
	struct call c;

	open_lane(w);
	lane_fake_break_answerers();
	start(w, &c, 1, 1u << 20);
	test_wait(c.done);
	check(&c);
	test_wait(!look(w).open);
	assert_int_equal(look(w).breaks, 1);
}

static void test_no_device(void **state)
{
	struct world *w = *state;

	lane_fake_set_device(false);
	calls(w, 96, 0);
	assert_false(look(w).open);
	lane_fake_set_device(true);
	test_advance(700 * CLOCK_SECOND);
	open_lane(w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_bytes, setup, teardown),
		cmocka_unit_test_setup_teardown(test_cancelled, setup, teardown),
		cmocka_unit_test_setup_teardown(test_failed, setup, teardown),
		cmocka_unit_test_setup_teardown(test_failed_though_written, setup, teardown),
		cmocka_unit_test_setup_teardown(test_twice, setup, teardown),
		cmocka_unit_test_setup_teardown(test_lost, setup, teardown),
		cmocka_unit_test_setup_teardown(test_silent_end, setup, teardown),
		cmocka_unit_test_setup_teardown(test_no_device, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
