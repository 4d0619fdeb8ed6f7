/* A TCP stream whose payload comes little by little: it wakes the loop for much of it, not for each segment; what
 * came is known when it is asked for; small messages wait for nothing. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <arpa/inet.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/units.h"
#include "net/stream_state_internal.h"
#include "tests/clock/test_clock.h"

#define PAYLOAD LIMIT_PAYLOAD_BYTES
#define LITTLE  1000u

struct fixture {
	struct loop *loop;
	struct transport *transport;
	_Atomic uint64_t bytes_in;
	_Atomic unsigned int messages;
	_Atomic unsigned int closed;
	int accepted; /* a descriptor, the stream's from take_on_loop() on */
	int fd;       /* the peer's end */
};

static uint8_t bytes[PAYLOAD];

static int on_header(void *arg, const struct frame *frame, void **ret_payload)
{
	(void)arg;
	*ret_payload = frame->payload ? malloc((size_t)frame->payload + 1) : NULL;
	return 0;
}

static void on_message(void *arg, const struct frame *frame, void *payload, int fd)
{
	struct fixture *f = arg;

	if (frame->payload)
		assert_memory_equal(payload, bytes, frame->payload);
	assert_int_equal(fd, -1);
	free(payload);
	f->messages++;
}

static void on_closed(void *arg, int status)
{
	struct fixture *f = arg;

	(void)status; /* as the test ends */
	f->closed++;
}

static const struct transport_events events = {
	.on_header = on_header, .on_message = on_message, .on_closed = on_closed
};

/* Without keys: what wakes is the plain stream, which is also that of payloads that go as they are. */
static void take_on_loop(void *arg)
{
	struct fixture *f = arg;

	assert_int_equal(stream_new(&transport_tcp, f->loop, f->accepted, false, &f->transport), 0);
	f->transport->ops->start(f->transport, &events, f);
}

static void start(struct fixture *f)
{
	struct sockaddr_in in = { .sin_family = AF_INET,
		.sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t len = sizeof(in);
	int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	*f = (struct fixture){ .loop = loop_new("test") };
	for (size_t i = 0; i < sizeof(bytes); i++)
		bytes[i] = (uint8_t)(i * 31 >> 3);
	assert_int_equal(bind(listener, (struct sockaddr *)&in, len), 0);
	assert_int_equal(listen(listener, 1), 0);
	assert_int_equal(getsockname(listener, (struct sockaddr *)&in, &len), 0);
	f->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	assert_int_equal(connect(f->fd, (struct sockaddr *)&in, len), 0);
	f->accepted = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
	assert_true(f->accepted >= 0);
	assert_int_equal(close(listener), 0);
	loop_call(f->loop, take_on_loop, f);
}

static void end_on_loop(void *arg)
{
	struct fixture *f = arg;

	if (f->closed == 0)
		f->transport->ops->close(f->transport, -ECANCELED);
}

static void stop(struct fixture *f)
{
	loop_call(f->loop, end_on_loop, f);
	test_wait(f->closed == 1);
	loop_free(f->loop);
	(void)close(f->fd);
}

static void note_bytes(void *arg)
{
	struct fixture *f = arg;

	f->bytes_in = f->transport->bytes_in;
}

static void look(void *arg)
{
	struct fixture *f = arg;

	f->transport->ops->look(f->transport);
}

static uint64_t bytes_in(struct fixture *f)
{
	loop_call(f->loop, note_bytes, f);
	return f->bytes_in;
}

static void send_bytes(const struct fixture *f, const void *data, size_t n)
{
	const uint8_t *at = data;

	while (n) {
		ssize_t sent = send(f->fd, at, n, MSG_NOSIGNAL);

		assert_true(sent > 0);
		at += sent;
		n -= (size_t)sent;
	}
}

/* A payload begins: its header and a little of it, in one segment. */
static void send_begin(struct fixture *f)
{
	const struct frame frame = {
		.op = FRAME_FETCH, .flags = FRAME_REPLY, .length = PAYLOAD, .payload = PAYLOAD
	};
	uint8_t out[FRAME_BYTES + LITTLE];

	frame_encode(&frame, out);
	memcpy(out + FRAME_BYTES, bytes, LITTLE);
	send_bytes(f, out, sizeof(out));
}

static void test_wakes_for_much(void **state)
{
	const struct frame small = { .op = FRAME_PING };
	uint8_t header[FRAME_BYTES];
	uint32_t sent = LITTLE;
	struct fixture f;

	(void)state;
	start(&f);
	send_begin(&f);
	test_wait(bytes_in(&f) == FRAME_BYTES + sent);
	for (int i = 0; i < 20; i++) {
		send_bytes(&f, bytes + sent, LITTLE);
		sent += LITTLE;
		assert_int_equal(bytes_in(&f), FRAME_BYTES + LITTLE);
	}
	while (bytes_in(&f) != FRAME_BYTES + sent) /* it may be on its way yet */
		loop_call(f.loop, look, &f);
	send_bytes(&f, bytes + sent, WAKE_BYTES);
	sent += WAKE_BYTES;
	test_wait(bytes_in(&f) == FRAME_BYTES + sent);
	assert_int_equal(f.messages, 0);
	send_bytes(&f, bytes + sent, PAYLOAD - sent);
	test_wait(bytes_in(&f) == FRAME_BYTES + PAYLOAD);
	assert_int_equal(f.messages, 1);
	frame_encode(&small, header);
	for (unsigned int i = 0; i < 3; i++) {
		send_bytes(&f, header, sizeof(header));
		test_wait(bytes_in(&f) == FRAME_BYTES + PAYLOAD + (i + 1) * FRAME_BYTES);
	}
	assert_int_equal(f.messages, 4);
	stop(&f);
}

/* Whoever goes in the middle of a payload is not waited for. */
static void test_peer_goes(void **state)
{
	struct fixture f;

	(void)state;
	start(&f);
	send_begin(&f);
	test_wait(bytes_in(&f) == FRAME_BYTES + LITTLE);
	send_bytes(&f, bytes + LITTLE, LITTLE);
	assert_int_equal(shutdown(f.fd, SHUT_WR), 0);
	test_wait(f.closed == 1);
	stop(&f);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_wakes_for_much),
		cmocka_unit_test(test_peer_goes),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
