/* A connection's greeting, bounds and watch. See conn_internal.h. */
#include "net/conn_internal.h"
#include "base/clock.h"
#include "base/log.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CONN_MAGIC 0x434f4e4eu

static void on_hello_sent(struct conn_message *message, int status)
{
	(void)message; /* embedded in the connection */
	(void)status;  /* on_closed() tells */
}

static void send_hello(struct conn *conn)
{
	struct hello hello = {
		.version = FRAME_VERSION, .pid = (uint32_t)getpid(), .master = conn->self
	};
	struct frame frame = { .op = FRAME_HELLO };

	(void)snprintf(hello.process, sizeof(hello.process), "%s",
		program_invocation_short_name); /* cut */
	frame.payload = (uint32_t)hello_pack(&hello, conn->hello_bytes);
	conn->hello.payload = NET_PAYLOAD_NONE;
	conn->hello.payload.parts[0].data = conn->hello_bytes;
	conn->hello.payload.parts[0].len = frame.payload;
	conn->hello.payload.n = 1;
	conn->hello.done = on_hello_sent;
	conn_send(conn, &conn->hello, &frame);
}

static void on_open(void *arg)
{
	struct conn *conn = arg;

	CHECK_MAGIC(conn, CONN_MAGIC);
	conn->state = CONN_GREETING;
}

static int on_header(void *arg, const struct frame *frame, void **ret_payload)
{
	struct conn *conn = arg;
	void *payload = NULL;
	int r = 0;

	CHECK_MAGIC(conn, CONN_MAGIC);
	/* The greeting comes first, and once. */
	if ((frame->op == FRAME_HELLO) != (conn->state == CONN_GREETING) ||
		(frame->op == FRAME_HELLO && frame->flags != 0))
		return -EPROTO;
	if (frame->op != FRAME_HELLO)
		r = conn->ops->on_header(conn, frame);
	if (r < 0)
		return r;
	if (frame->payload) {
		payload = malloc((size_t)frame->payload + 1);
		if (!payload)
			return -ENOMEM;
	}
	*ret_payload = payload;
	return 0;
}

static void on_hello(struct conn *conn, const struct frame *frame, const void *payload)
{
	int r = hello_unpack(payload ? payload : "", frame->payload, &conn->peer);

	if (r == 0 && conn->peer.version != FRAME_VERSION)
		r = -EPROTONOSUPPORT;
	if (r < 0) {
		conn_close(conn, r);
		return;
	}
	conn->state = CONN_READY;
	log_debug("peer greeted", "process=%s pid=%u", conn->peer.process, conn->peer.pid);
	conn->ops->on_ready(conn);
}

static void on_message(void *arg, const struct frame *frame, void *payload, int fd)
{
	struct conn *conn = arg;

	CHECK_MAGIC(conn, CONN_MAGIC);
	if (frame->op != FRAME_HELLO) {
		conn->ops->on_message(conn, frame, payload, fd);
		return;
	}
	on_hello(conn, frame, payload);
	free(payload);
	if (fd >= 0)
		(void)close(fd); /* a greeting has none */
}

static void on_closed(void *arg, int status)
{
	struct conn *conn = arg;

	CHECK_MAGIC(conn, CONN_MAGIC);
	conn->state = CONN_CLOSED;
	conn->transport = NULL;
	conn->ops->on_closed(conn, status);
}

static const struct transport_events conn_events = {
	.on_open = on_open,
	.on_header = on_header,
	.on_message = on_message,
	.on_closed = on_closed,
};

static void conn_init(struct conn *conn, const struct conn_ops *ops)
{
	uint64_t now = clock_mono_ns();

	*conn = (struct conn){ .magic = CONN_MAGIC,
		.ops = ops,
		.began_ns = now,
		.moved_in_ns = now,
		.moved_out_ns = now };
}

int conn_connect(struct conn *conn, struct loop *loop, const struct transport_ops *transport,
	const char *where, const struct conn_ops *ops, struct err *e)
{
	int r;

	conn_init(conn, ops);
	r = transport->connect(loop, where, &conn_events, conn, &conn->transport, e);
	if (r < 0) {
		conn->state = CONN_CLOSED;
		return r;
	}
	send_hello(conn);
	return 0;
}

void conn_accept(struct conn *conn, struct transport *transport, const struct conn_ops *ops,
	const struct hello_master *self)
{
	conn_init(conn, ops);
	conn->self = *self;
	conn->state = CONN_GREETING;
	conn->transport = transport;
	transport->ops->start(transport, &conn_events, conn);
	send_hello(conn);
}

static void on_sent(struct transport_message *transport, int status)
{
	struct conn_message *message = container_of(transport, struct conn_message, transport);
	struct conn *conn = message->conn;

	conn->out_bytes -= transport->bytes;
	message->done(message, status);
	if (status == 0 && conn->congested && conn->out_bytes <= LIMIT_CONN_OUT_BYTES / 2) {
		conn->congested = false;
		conn->ops->on_drained(conn);
	}
}

void conn_send(struct conn *conn, struct conn_message *message, const struct frame *frame)
{
	struct frame out = *frame;

	CHECK_MAGIC(conn, CONN_MAGIC);
	ensure(conn->state != CONN_CLOSED);
	out.payload = (uint32_t)net_payload_bytes(&message->payload);
	out.flags &= (uint8_t)~FRAME_FD;
	if (message->payload.fd > 0 && conn->transport->ops->passes_fd)
		out.flags |= FRAME_FD;
	frame_encode(&out, message->transport.header);
	message->transport.payload = &message->payload;
	message->transport.on_sent = on_sent;
	message->conn = conn;
	conn->transport->ops->send(conn->transport, &message->transport);
	conn->out_bytes += message->transport.bytes;
	if (conn->out_bytes > LIMIT_CONN_OUT_BYTES)
		conn->congested = true;
}

bool conn_recall(struct conn *conn, struct conn_message *message)
{
	if (!conn->transport || !conn->transport->ops->recall(conn->transport, &message->transport))
		return false;
	conn->out_bytes -= message->transport.bytes;
	if (conn->out_bytes == 0)
		conn->congested = false; /* nothing is left whose sending would say so */
	return true;
}

void conn_pause(struct conn *conn, bool paused)
{
	if (conn->paused == paused || !conn->transport)
		return;
	conn->paused = paused;
	conn->transport->ops->pause(conn->transport, paused);
}

void conn_close(struct conn *conn, int status)
{
	if (conn->transport)
		conn->transport->ops->close(conn->transport, status);
}

void conn_watch(struct conn *conn, uint64_t now_ns)
{
	struct transport *t = conn->transport;

	if (!t)
		return;
	if (t->bytes_in != conn->seen_in || !t->mid_frame || conn->paused)
		conn->moved_in_ns = now_ns;
	if (t->bytes_out != conn->seen_out || conn->out_bytes == 0)
		conn->moved_out_ns = now_ns;
	conn->seen_in = t->bytes_in;
	conn->seen_out = t->bytes_out;
	if ((conn->state < CONN_READY && now_ns - conn->began_ns > CONN_GREETING_NS) ||
		now_ns - conn->moved_in_ns > CONN_STALL_NS ||
		now_ns - conn->moved_out_ns > CONN_STALL_NS)
		conn_close(conn, -ETIMEDOUT);
}
