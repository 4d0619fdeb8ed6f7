/* A connection's greeting, bounds and watch. See conn_internal.h. */
#include "net/conn_internal.h"
#include "net/keys_internal.h"
#include "net/lanes.h"
#include "base/clock.h"
#include "base/hash.h"
#include "base/log.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CONN_MAGIC 0x434f4e4eu

struct greeting {
	struct conn_message message;
	bool last; /* the connection is closed after it */
	uint8_t bytes[HELLO_BYTES_MAX];
};

static void on_greeting_sent(struct conn_message *message, int status)
{
	struct greeting *greeting = container_of(message, struct greeting, message);

	if (greeting->last && status == 0)
		conn_close(message->conn, -EKEYREJECTED);
	free(greeting);
}

static void send_greeting(struct conn *conn, const struct hello *hello)
{
	struct greeting *greeting = calloc(1, sizeof(*greeting));
	struct frame frame = { .op = FRAME_HELLO };

	if (!greeting) {
		conn_close(conn, -ENOMEM);
		return;
	}
	frame.payload = (uint32_t)hello_pack(hello, greeting->bytes);
	greeting->last = hello->refused;
	greeting->message.payload = NET_PAYLOAD_NONE;
	greeting->message.payload.parts[0].data = greeting->bytes;
	greeting->message.payload.parts[0].len = frame.payload;
	greeting->message.payload.n = 1;
	greeting->message.done = on_greeting_sent;
	conn_send(conn, &greeting->message, &frame);
}

/* Of a unix socket, where only tokens need a proof. */
static struct proof_channel unix_channel(
	struct keyring *ring, const uint8_t *client_nonce, const uint8_t *server_nonce)
{
	struct proof_channel channel = { .ring = ring };

	_Static_assert(PROOF_BINDING_BYTES == 2 * HELLO_NONCE_BYTES, "both");
	memcpy(channel.binding, client_nonce, HELLO_NONCE_BYTES);
	memcpy(channel.binding + HELLO_NONCE_BYTES, server_nonce, HELLO_NONCE_BYTES);
	return channel;
}

/* Adds the client's identity to its greeting: over TLS with its proof; on a unix socket only that of a token, whose proof needs
 * the server's nonce and follows. */
static void add_identity(struct conn *conn, struct hello *hello)
{
	const struct proof_channel *channel = conn->transport->channel;
	_cleanup_(keyring_unref_p) struct keyring *ring = NULL;

	if (channel) {
		hello->identity_len = (uint16_t)identity_own(channel->ring, hello->identity);
		hello->has_proof = true;
		proof_own(channel, hello->proof);
		return;
	}
	ring = keyring_get();
	if (!ring || ring->n_cluster > 0)
		return;
	hello->identity_len = (uint16_t)identity_own(ring, hello->identity);
	conn->proof_follows = true;
	conn->ring = TAKE(ring);
}

static void send_hello(struct conn *conn)
{
	struct hello hello = { .version = FRAME_VERSION,
		.pid = (uint32_t)getpid(),
		.master = conn->self,
		.has_nonce = true };

	(void)snprintf(hello.process, sizeof(hello.process), "%s",
		program_invocation_short_name); /* cut */
	hash_random(conn->nonce, sizeof(conn->nonce));
	memcpy(hello.nonce, conn->nonce, sizeof(hello.nonce));
	if (conn->connects)
		add_identity(conn, &hello);
	send_greeting(conn, &hello);
}

static void on_open(void *arg)
{
	struct conn *conn = arg;

	CHECK_MAGIC(conn, CONN_MAGIC);
	conn->state = CONN_GREETING;
	send_hello(conn);
}

static int on_header(void *arg, const struct frame *frame, void **ret_payload)
{
	struct conn *conn = arg;
	void *payload = NULL;
	int r = 0;

	CHECK_MAGIC(conn, CONN_MAGIC);
	if (frame->lane != 0 && !lanes_ops())
		return -EPROTO; /* this process has none */
	/* The greeting comes first, and once; but a proof that followed it may be refused. */
	if (frame->op == FRAME_HELLO && frame->flags != 0)
		return -EPROTO;
	if ((frame->op == FRAME_HELLO) != (conn->state == CONN_GREETING) &&
		!(frame->op == FRAME_HELLO && conn->connects && conn->proof_follows))
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

/* ---- proofs ---------------------------------------------------------------------------------- */

/* Sends the refusal, then closes the connection. */
static void refuse(struct conn *conn)
{
	const struct hello hello = { .version = FRAME_VERSION, .refused = true };

	LOG_LIMITED(
		LOG_DEBUG, "peer refused", "process=%s pid=%u", conn->peer.process, conn->peer.pid);
	conn->transport->ops->pause(conn->transport, true); /* nothing more of it is read */
	send_greeting(conn, &hello);
}

/* Computes the proof that the client must send to have the identity in its greeting. */
static int expect_proof(
	struct conn *conn, const struct proof_channel *channel, const struct hello *hello)
{
	struct peer_identity claimed;
	int r = proof_expected(
		channel, hello->identity, hello->identity_len, &claimed, conn->proof);

	if (r < 0)
		return r;
	if (!channel->tls && claimed.kind != PEER_TOKEN)
		return -EKEYREJECTED; /* the kernel identifies all others */
	conn->claimed = claimed.kind;
	claimed.kind = PEER_UNKNOWN;
	claimed.uid = conn->identity.uid;
	conn->identity = claimed;
	return 0;
}

/* As expect_proof(), on a unix socket. */
static int expect_token(struct conn *conn, const struct hello *hello)
{
	_cleanup_(keyring_unref_p) struct keyring *ring = keyring_get();
	struct proof_channel channel;

	if (!ring || !hello->has_nonce)
		return -EKEYREJECTED;
	channel = unix_channel(ring, hello->nonce, conn->nonce);
	return expect_proof(conn, &channel, hello);
}

static bool is_proved(struct conn *conn, const struct hello *hello)
{
	if (!hello->has_proof || !hash_equal(hello->proof, conn->proof, HELLO_PROOF_BYTES))
		return false;
	conn->identity.kind = conn->claimed;
	return true;
}

static void ready(struct conn *conn)
{
	conn->state = CONN_READY;
	conn->ops->on_ready(conn);
}

/* The second greeting of a client on a unix socket. */
static void take_proof(struct conn *conn, const struct hello *hello)
{
	if (is_proved(conn, hello))
		ready(conn);
	else
		refuse(conn);
}

/* The client's second greeting on a unix socket. */
static int send_proof(struct conn *conn, const struct hello *peer)
{
	const struct proof_channel channel = unix_channel(conn->ring, conn->nonce, peer->nonce);
	struct hello hello = { .version = FRAME_VERSION, .has_proof = true };

	if (!peer->has_nonce)
		return -EKEYREJECTED; /* a server that knows no tokens */
	proof_own(&channel, hello.proof);
	keyring_unref(TAKE(conn->ring));
	send_greeting(conn, &hello);
	return 0;
}

/* ---- greetings ------------------------------------------------------------------------------- */

/* Over TLS a client gets no greeting before its proof. */
static void take_client(struct conn *conn, const struct hello *hello)
{
	if (expect_proof(conn, conn->transport->channel, hello) < 0 || !is_proved(conn, hello)) {
		refuse(conn);
		return;
	}
	send_hello(conn);
	ready(conn);
}

static void take_first(struct conn *conn, const struct hello *hello)
{
	int r = 0;

	conn->peer = (struct conn_peer){ .pid = hello->pid, .master = hello->master };
	memcpy(conn->peer.process, hello->process, sizeof(conn->peer.process));
	conn->identity = conn->transport->peer;
	if (hello->version != FRAME_VERSION) {
		conn_close(conn, -EPROTONOSUPPORT);
		return;
	}
	log_debug("peer greeted", "process=%s pid=%u", conn->peer.process, conn->peer.pid);
	if (!conn->connects && conn->transport->channel) {
		take_client(conn, hello);
		return;
	}
	if (!conn->connects && hello->identity_len > 0) {
		conn->proof_follows = true;
		if (expect_token(conn, hello) < 0)
			refuse(conn);
		return;
	}
	if (conn->proof_follows)
		r = send_proof(conn, hello);
	if (r < 0)
		conn_close(conn, r);
	else
		ready(conn);
}

static void on_hello(struct conn *conn, const struct frame *frame, const void *payload)
{
	struct hello hello;
	int r = hello_unpack(payload ? payload : "", frame->payload, &hello);

	if (r < 0)
		conn_close(conn, r);
	else if (conn->connects && hello.refused)
		conn_close(conn, -EKEYREJECTED);
	else if (conn->state == CONN_READY)
		conn_close(conn, -EPROTO);
	else if (conn->proof_follows && !conn->connects)
		take_proof(conn, &hello);
	else
		take_first(conn, &hello);
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
	keyring_unref(TAKE(conn->ring));
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
		.moved_out_ns = now,
		.watched_ns = now };
}

int conn_connect(struct conn *conn, struct loop *loop, const struct transport_ops *transport,
	const char *where, const struct conn_ops *ops, struct err *e)
{
	int r;

	conn_init(conn, ops);
	conn->connects = true;
	r = transport->connect(loop, where, &conn_events, conn, &conn->transport, e);
	if (r < 0) {
		conn->state = CONN_CLOSED;
		return r;
	}
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
	if (!transport->channel)
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
	out.flags &= (uint16_t)~FRAME_FD;
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

/* What we did not look at for ourselves: what came meanwhile may not be read yet. */
static void forgive_absence(struct conn *conn, uint64_t now_ns)
{
	uint64_t away = now_ns - conn->watched_ns;

	conn->watched_ns = now_ns;
	if (away <= CONN_WATCH_NS)
		return;
	away -= CONN_WATCH_NS;
	conn->began_ns += away;
	conn->moved_in_ns += away;
	conn->moved_out_ns += away;
}

void conn_watch(struct conn *conn, uint64_t now_ns)
{
	struct transport *t = conn->transport;

	if (!t)
		return;
	forgive_absence(conn, now_ns);
	if (t->bytes_in != conn->seen_in || !t->mid_frame || conn->paused)
		conn->moved_in_ns = now_ns;
	else if (t->ops->look)
		t->ops->look(t);
	if (t->bytes_out != conn->seen_out || conn->out_bytes == 0)
		conn->moved_out_ns = now_ns;
	conn->seen_in = t->bytes_in;
	conn->seen_out = t->bytes_out;
	if ((conn->state < CONN_READY && now_ns - conn->began_ns > CONN_GREETING_NS) ||
		now_ns - conn->moved_in_ns > CONN_STALL_NS ||
		now_ns - conn->moved_out_ns > CONN_STALL_NS ||
		(!conn->connects && conn->out_bytes >= CONN_DETACH_BYTES &&
			now_ns - conn->moved_out_ns > CONN_DETACH_NS))
		conn_close(conn, -ETIMEDOUT);
}
