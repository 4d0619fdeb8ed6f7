/*
 * Peers that stall are let go, by the time in which this side looked: a process that was stopped itself, or whose loop
 * was held up, blames nobody for it (conn.c).
 */
#include "base/clock.h"
#include "net/conn_internal.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <cmocka.h>

struct wire {
	struct transport transport;
	int status; /* it was closed with; 0: it stands */
	struct transport_message *greeting;
};

static void wire_start(
	struct transport *transport, const struct transport_events *events, void *arg)
{
	transport->events = events;
	transport->arg = arg;
}

static void wire_send(struct transport *transport, struct transport_message *message)
{
	((struct wire *)transport)->greeting = message;
}

static void wire_close(struct transport *transport, int status)
{
	((struct wire *)transport)->status = status;
}

static const struct transport_ops wire_ops = {
	.scheme = "wire",
	.start = wire_start,
	.send = wire_send,
	.close = wire_close,
};

/* One that was let in, and has taken nothing of what it asked for. */
static void begin(struct conn *conn, struct wire *wire)
{
	static const struct conn_ops ops = { 0 };
	static const struct hello_master self = { 0 };

	*wire = (struct wire){ .transport.ops = &wire_ops };
	conn_accept(conn, &wire->transport, &ops, &self);
	wire->greeting->on_sent(wire->greeting, 0);
	conn->state = CONN_READY;
	conn->out_bytes = CONN_DETACH_BYTES;
}

/* Looks each second until the connection ends; after how many seconds. */
static uint64_t lasts(struct conn *conn, const struct wire *wire, uint64_t now)
{
	uint64_t seconds = 0;

	while (wire->status == 0 && seconds < 100)
		conn_watch(conn, now + ++seconds * CLOCK_SECOND);
	assert_int_equal(wire->status, -ETIMEDOUT);
	return seconds;
}

static void test_a_peer_that_takes_nothing(void **state)
{
	struct conn conn;
	struct wire wire;

	(void)state;
	begin(&conn, &wire);
	assert_int_equal(lasts(&conn, &wire, conn.began_ns), CONN_DETACH_NS / CLOCK_SECOND + 1);
}

static void test_away_ourselves(void **state)
{
	struct conn conn;
	struct wire wire;
	uint64_t began;
	uint64_t back;

	(void)state;
	begin(&conn, &wire);
	began = conn.began_ns;
	conn_watch(&conn, began + CLOCK_SECOND);
	back = began + 1000 * CLOCK_SECOND;
	conn_watch(&conn, back);
	assert_int_equal(wire.status, 0);
	/* The second before, and CONN_WATCH_NS of the absence. */
	assert_int_equal(lasts(&conn, &wire, back), CONN_DETACH_NS / CLOCK_SECOND + 1 - 3);
}

/* Of which part of a message has come. */
static void test_away_amid_a_message(void **state)
{
	struct conn conn;
	struct wire wire;
	uint64_t began;

	(void)state;
	begin(&conn, &wire);
	began = conn.began_ns;
	conn.out_bytes = 0;
	wire.transport.mid_frame = true;
	conn_watch(&conn, began + 1000 * CLOCK_SECOND);
	assert_int_equal(wire.status, 0);
	assert_int_equal(lasts(&conn, &wire, began + 1000 * CLOCK_SECOND),
		CONN_STALL_NS / CLOCK_SECOND + 1 - 2);
}

/* That has not greeted. */
static void test_away_before_the_greeting(void **state)
{
	struct conn conn;
	struct wire wire;
	uint64_t began;

	(void)state;
	begin(&conn, &wire);
	began = conn.began_ns;
	conn.out_bytes = 0;
	conn.state = CONN_GREETING;
	conn_watch(&conn, began + 1000 * CLOCK_SECOND);
	assert_int_equal(wire.status, 0);
	assert_int_equal(lasts(&conn, &wire, began + 1000 * CLOCK_SECOND),
		CONN_GREETING_NS / CLOCK_SECOND + 1 - 2);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_a_peer_that_takes_nothing),
		cmocka_unit_test(test_away_ourselves),
		cmocka_unit_test(test_away_amid_a_message),
		cmocka_unit_test(test_away_before_the_greeting),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
