/*
 * Messages over a stream socket. See stream_internal.h.
 *
 * Out: messages are queued and written together, once per turn of the loop, by one sendmsg(2). A descriptor is sent with the
 * first byte of its message, so only the first message of a sendmsg may have one.
 *
 * In: headers and small payloads are received in a buffer of 16 KiB. Of a larger payload, all but the first part is read directly
 * into its own memory. The kernel ends a recvmsg(2) after a segment that has a descriptor, and returns the descriptor with the
 * first byte of that segment. So a descriptor arrives no later than the header of its frame, which has FRAME_FD.
 *
 *	state        leaves by
 *	CONNECTING   writable -> HANDSHAKING with TLS, OPEN without; error -> FAILED
 *	ACCEPTED     start() -> HANDSHAKING or OPEN; close() -> FAILED
 *	HANDSHAKING  TLS has begun -> OPEN; error, end of file, close() -> FAILED
 *	OPEN         error, end of file, close() -> FAILED
 *	FAILED       next turn of the loop: on_sent() of the rest, on_closed() -> CLOSED
 *	CLOSED       its handle closed, its turn over -> freed
 */
#include "net/stream_state_internal.h"
#include "base/cleanup.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>
#include <uv.h>

static struct stream *stream_of(struct transport *transport)
{
	struct stream *s = container_of(transport, struct stream, transport);

	CHECK_MAGIC(s, STREAM_MAGIC);
	return s;
}

static void on_turn(struct loop_task *task);
static void on_poll(uv_poll_t *poll, int status, int events);
static void on_readable(struct stream *s);

static void stream_want_turn(struct stream *s)
{
	if (s->turning)
		return;
	s->turning = true;
	s->handles++;
	s->turn.run = on_turn;
	loop_post(s->loop, &s->turn);
}

void stream_fail(struct stream *s, int status)
{
	if (s->state >= STREAM_FAILED)
		return;
	s->state = STREAM_FAILED;
	s->status = status;
	(void)uv_poll_stop(&s->poll); /* never fails */
	s->watching = 0;
	stream_want_turn(s);
}

static void stream_watch(struct stream *s)
{
	int events = UV_DISCONNECT;

	if (s->state == STREAM_CONNECTING)
		events = UV_WRITABLE;
	else if (s->state == STREAM_HANDSHAKING)
		events |= UV_READABLE | (s->blocked ? UV_WRITABLE : 0);
	else if (s->state != STREAM_OPEN)
		return;
	else
		events |= (s->paused ? 0 : UV_READABLE) | (s->blocked ? UV_WRITABLE : 0);
	if (events == s->watching)
		return;
	s->watching = events;
	if (uv_poll_start(&s->poll, events, on_poll) != 0)
		stream_fail(s, -EIO);
}

/* ---- out ------------------------------------------------------------------------------------- */

ssize_t stream_send_pipe(struct stream *s, const struct transport_message *m, size_t skip)
{
	/* The checksums are sent next, unless they were sent before (stream_tls.c). */
	bool more = !s->tls && m->payload->n > 1;

	return splice(m->payload->pipe, NULL, s->fd, NULL, m->payload->parts[0].len - skip,
		SPLICE_F_NONBLOCK | (more ? SPLICE_F_MORE : 0u));
}

static bool message_has_pipe(const struct transport_message *m)
{
	return m->payload && m->payload->pipe > 0;
}

/* Adds the unsent bytes of a message to iov, except those in a pipe and those after them. False: bytes are left. */
static bool gather(const struct transport_message *m, struct iovec *iov, int *n)
{
	size_t skip = m->sent;
	unsigned int parts = m->payload ? m->payload->n : 0;

	if (*n + (int)parts + 1 > SEND_PARTS)
		return false;
	for (unsigned int i = 0; i <= parts; i++) {
		const void *data = i == 0 ? m->header : m->payload->parts[i - 1].data;
		size_t len = i == 0 ? FRAME_BYTES : m->payload->parts[i - 1].len;

		if (i == 1 && skip < len && message_has_pipe(m))
			return false;
		if (skip < len)
			iov[(*n)++] = (struct iovec){ .iov_base = (char *)(uintptr_t)data + skip,
				.iov_len = len - skip };
		skip -= min(skip, len);
	}
	return true;
}

static bool message_passes_fd(const struct transport_message *m)
{
	return m->sent == 0 && frame_flags(m->header) & FRAME_FD;
}

static ssize_t send_some(struct stream *s)
{
	union {
		struct cmsghdr align;
		char bytes[CMSG_SPACE(sizeof(int))];
	} control;
	struct iovec iov[SEND_PARTS];
	struct msghdr h = { .msg_iov = iov };
	int more = 0;
	int n = 0;

	list_for_each (node, &s->out) {
		struct transport_message *m = list_entry(node, struct transport_message, link);

		if (message_passes_fd(m)) {
			struct cmsghdr *c;

			if (n > 0)
				break;
			memset(&control, 0, sizeof(control));
			h.msg_control = &control;
			h.msg_controllen = sizeof(control.bytes);
			c = CMSG_FIRSTHDR(&h);
			c->cmsg_level = SOL_SOCKET;
			c->cmsg_type = SCM_RIGHTS;
			c->cmsg_len = CMSG_LEN(sizeof(int));
			memcpy(CMSG_DATA(c), &m->payload->fd, sizeof(int));
		}
		if (gather(m, iov, &n))
			continue;
		if (message_has_pipe(m) && n == 0)
			return stream_send_pipe(s, m, m->sent - FRAME_BYTES);
		more = message_has_pipe(m) ? MSG_MORE : 0; /* the bytes in the pipe are sent next */
		break;
	}
	h.msg_iovlen = (size_t)n;
	return sendmsg(s->fd, &h, MSG_DONTWAIT | MSG_NOSIGNAL | more);
}

/* Counts n bytes as sent, from the head of the queue on. Calls on_sent() of the complete messages afterwards, because it may
 * recall other messages of the queue. */
static void sent_some(struct stream *s, size_t n)
{
	struct list gone = LIST_INIT(gone);
	struct list *node;

	s->transport.bytes_out += n;
	if (s->tls)
		stream_tls_sent(s, n, &gone);
	while (!s->tls && n > 0) {
		struct transport_message *m =
			list_entry(s->out.next, struct transport_message, link);
		size_t step = min(n, m->bytes - m->sent);

		m->sent += step;
		n -= step;
		if (m->sent == m->bytes) {
			list_remove(&m->link);
			list_push_back(&gone, &m->link);
		}
	}
	while ((node = list_pop_front(&gone)) != NULL) {
		struct transport_message *m = list_entry(node, struct transport_message, link);

		m->on_sent(m, 0);
	}
}

static bool has_out(const struct stream *s)
{
	if (s->tls)
		return (s->state == STREAM_OPEN || s->state == STREAM_HANDSHAKING) &&
		       stream_tls_has_out(s);
	return s->state == STREAM_OPEN && !list_empty(&s->out);
}

static void flush(struct stream *s)
{
	while (has_out(s)) {
		ssize_t n = s->tls ? stream_tls_send(s) : send_some(s);

		if (n > 0) {
			sent_some(s, (size_t)n);
		} else if (n < 0 && errno == EINTR) {
			continue;
		} else if (n < 0 && errno == EAGAIN) {
			s->blocked = true;
			break;
		} else {
			int r = n < 0 ? err_errno() : -EIO;

			if (r == -EPIPE || r == -ECONNRESET)
				on_readable(s); /* the last message may have the reason */
			stream_fail(s, r);
		}
	}
	stream_watch(s);
}

/* ---- in -------------------------------------------------------------------------------------- */

/* Takes the descriptor of a frame whose header is complete. */
static int claim_fd(struct stream *s, const struct frame *frame, int *ret_fd)
{
	int fd;

	if (!(frame->flags & FRAME_FD)) {
		*ret_fd = -1;
		return 0;
	}
	if (s->n_fds == 0)
		return -EPROTO;
	fd = s->fds[0];
	s->fds[0] = s->fds[1];
	s->n_fds--;
	*ret_fd = fd == FD_LOST ? -1 : fd;
	return 0;
}

int stream_take_header(struct stream *s)
{
	void *payload = NULL;
	struct frame frame;
	int r;

	r = frame_decode(s->rx + s->rx_begin, &frame);
	if (r == 0)
		r = s->transport.events->on_header(s->transport.arg, &frame, &payload);
	if (r == 0) {
		s->payload = payload; /* stream_finish() frees it if claim_fd() fails */
		r = claim_fd(s, &frame, &s->frame_fd);
	}
	if (r < 0)
		return r;
	s->rx_begin += FRAME_BYTES;
	s->frame = frame;
	s->payload_got = 0;
	s->have_header = true;
	return 1;
}

void stream_deliver(struct stream *s)
{
	uint8_t *payload = TAKE(s->payload);

	if (payload)
		payload[s->frame.payload] = '\0';
	s->have_header = false;
	s->transport.events->on_message(s->transport.arg, &s->frame, payload, TAKE_FD(s->frame_fd));
}

/* Parses the bytes in rx until the stream is paused or closed. */
static int parse_rx(struct stream *s)
{
	while (s->state == STREAM_OPEN && !s->paused) {
		size_t step;
		int r;

		if (!s->have_header) {
			if (s->rx_end - s->rx_begin < FRAME_BYTES)
				return 0;
			r = stream_take_header(s);
			if (r < 0)
				return r;
			if (s->state != STREAM_OPEN)
				break;
		}
		step = min(s->frame.payload - s->payload_got, s->rx_end - s->rx_begin);
		if (step)
			memcpy(s->payload + s->payload_got, s->rx + s->rx_begin, step);
		s->payload_got += step;
		s->rx_begin += step;
		if (s->payload_got < s->frame.payload)
			return 0;
		stream_deliver(s);
	}
	return 0;
}

static int parse(struct stream *s)
{
	int r = parse_rx(s);
	bool split = !s->have_header && s->rx_end > s->rx_begin;

	s->transport.mid_frame = s->have_header || split;
	/* A descriptor arrives with the first byte of a frame. Each frame in rx has claimed its own, except one with an incomplete
	 * header. */
	if (r == 0 && !s->paused && s->n_fds > (split ? 1u : 0u))
		r = -EPROTO;
	return r;
}

/* Takes the descriptors of one recvmsg. A peer that sends more than one at a time, or more than its frames can claim, breaks
 * the protocol. */
static int take_fds(struct stream *s, struct msghdr *h)
{
	int r = 0;
	unsigned int got = 0;

	for (struct cmsghdr *c = CMSG_FIRSTHDR(h); c; c = CMSG_NXTHDR(h, c)) {
		size_t n = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);

		if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
			continue;
		for (size_t i = 0; i < n; i++) {
			int fd;

			memcpy(&fd, CMSG_DATA(c) + i * sizeof(int), sizeof(int));
			if (got++ == 0 && s->n_fds < FDS_MAX) {
				s->fds[s->n_fds++] = fd;
			} else {
				(void)close(fd); /* no frame can claim it */
				r = -EPROTO;
			}
		}
	}
	if (h->msg_flags & MSG_CTRUNC) {
		if (got > 0 || s->n_fds == FDS_MAX)
			return -EPROTO;
		s->fds[s->n_fds++] = FD_LOST; /* this process is out of descriptors */
	}
	return r;
}

static ssize_t receive(struct stream *s, struct msghdr *h, size_t *ret_wanted)
{
	size_t left = s->have_header ? s->frame.payload - s->payload_got : 0;
	ssize_t n;

	if (s->rx_begin > 0) {
		memmove(s->rx, s->rx + s->rx_begin, s->rx_end - s->rx_begin);
		s->rx_end -= s->rx_begin;
		s->rx_begin = 0;
	}
	h->msg_iovlen = 0;
	if (left)
		h->msg_iov[h->msg_iovlen++] =
			(struct iovec){ .iov_base = s->payload + s->payload_got, .iov_len = left };
	h->msg_iov[h->msg_iovlen++] =
		(struct iovec){ .iov_base = s->rx + s->rx_end, .iov_len = RX_BYTES - s->rx_end };
	*ret_wanted = left + RX_BYTES - s->rx_end;
	do
		n = recvmsg(s->fd, h, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
	while (n < 0 && errno == EINTR);
	if (n > 0) {
		size_t direct = min(left, (size_t)n);

		s->payload_got += direct;
		s->rx_end += (size_t)n - direct;
		s->transport.bytes_in += (size_t)n;
	}
	return n;
}

/* Reads once. 1: there may be more; 0: the socket is drained; or a negative errno. */
static int read_once(struct stream *s)
{
	union {
		struct cmsghdr align;
		char bytes[CMSG_SPACE(sizeof(int))];
	} control;
	struct iovec iov[2];
	struct msghdr h = { .msg_iov = iov,
		.msg_control = s->transport.ops->passes_fd ? &control : NULL,
		.msg_controllen = s->transport.ops->passes_fd ? sizeof(control.bytes) : 0 };
	size_t wanted;
	ssize_t n = receive(s, &h, &wanted);
	int r;

	if (n == 0)
		return -ECONNRESET;
	if (n < 0)
		return errno == EAGAIN ? 0 : err_errno();
	r = h.msg_controllen > 0 || h.msg_flags & MSG_CTRUNC ? take_fds(s, &h) : 0;
	if (r == 0)
		r = parse(s);
	return r < 0 ? r : (size_t)n == wanted || s->n_fds > 0;
}

/* Parses the bytes that were received before a pause. */
static void parse_again(struct stream *s)
{
	int r = s->tls ? stream_tls_parse(s) : parse(s);

	if (r < 0)
		stream_fail(s, r);
}

static bool has_in(const struct stream *s)
{
	return s->tls ? stream_tls_has_in(s) : s->rx_end > s->rx_begin;
}

/* While a large part of a payload is missing, the loop is woken for WAKE_BYTES and not for each segment. The kernel wakes it
 * earlier when the peer closes the connection, or when the receive buffer is smaller. */
static void wake_for_much(struct stream *s)
{
	size_t left = s->have_header && !s->tls ? s->frame.payload - s->payload_got : 0;
	int wake;

	if (s->transport.ops->passes_fd)
		return;
	if (s->tls)
		left = stream_tls_raw_left(s);
	wake = left < WAKE_BYTES ? 1 : (int)WAKE_BYTES;
	if (wake == s->wake)
		return;
	s->wake = wake;
	(void)setsockopt(s->fd, SOL_SOCKET, SO_RCVLOWAT, &wake, sizeof(wake)); /* optional */
}

static void on_readable(struct stream *s)
{
	int r = 1;

	for (int i = 0; i < READS_PER_TURN && r > 0 && s->state == STREAM_OPEN && !s->paused; i++)
		r = s->tls ? stream_tls_read(s) : read_once(s);
	if (s->tls)
		tls_trim(s->tls);
	if (r < 0)
		stream_fail(s, r);
	else if (s->state == STREAM_OPEN)
		wake_for_much(s);
}

/* ---- life ------------------------------------------------------------------------------------ */

static void opened(struct stream *s)
{
	s->state = STREAM_OPEN;
	if (s->tls && s->connects)
		s->transport.peer.kind = PEER_CLUSTER; /* it has proved its key */
	if (s->connects)
		s->transport.events->on_open(s->transport.arg);
	if (!list_empty(&s->out))
		stream_want_turn(s);
}

/* Sends OpenSSL's output, which is an alert if the handshake failed. */
static void handshake(struct stream *s)
{
	/* protocol_version (RFC 8446, 6), for a peer that does not speak TLS: OpenSSL sends it no alert. */
	static const uint8_t alert[] = { 21, 3, 3, 0, 2, 2, 70 };
	int r = stream_tls_greet(s);

	flush(s);
	if (r < 0 && !s->connects && s->transport.bytes_out == 0)
		(void)send(
			s->fd, alert, sizeof(alert), MSG_DONTWAIT | MSG_NOSIGNAL); /* best effort */
	if (r < 0)
		stream_fail(s, r);
	else if (r > 0 && s->state == STREAM_HANDSHAKING)
		opened(s);
}

static void on_connected(struct stream *s)
{
	socklen_t len = sizeof(int);
	int error = 0;

	if (getsockopt(s->fd, SOL_SOCKET, SO_ERROR, &error, &len) != 0 || error != 0) {
		stream_fail(s, error ? -error : -EIO);
		return;
	}
	if (s->tls) {
		s->state = STREAM_HANDSHAKING;
		handshake(s);
	} else {
		opened(s);
	}
	stream_watch(s);
}

static void on_poll(uv_poll_t *poll, int status, int events)
{
	struct stream *s = poll->data;

	CHECK_MAGIC(s, STREAM_MAGIC);
	if (s->state == STREAM_CONNECTING) {
		on_connected(s);
		return;
	}
	if (status < 0)
		events = UV_READABLE; /* what came before the error may have the reason */
	if (events & UV_DISCONNECT && s->paused) {
		stream_fail(s, -ECONNRESET);
		return;
	}
	if (events & UV_WRITABLE) {
		s->blocked = false;
		flush(s);
	}
	if (s->state == STREAM_HANDSHAKING && events & (UV_READABLE | UV_DISCONNECT)) {
		int r = stream_tls_read(s);

		if (r < 0)
			stream_fail(s, r);
		else
			handshake(s);
		if (s->state == STREAM_OPEN && has_in(s) && !s->paused)
			stream_want_turn(s);
	} else if (events & (UV_READABLE | UV_DISCONNECT)) {
		on_readable(s);
	}
	if (status < 0)
		stream_fail(s, -ECONNRESET);
	stream_watch(s);
}

static void stream_let_go(struct stream *s)
{
	if (--s->handles > 0)
		return;
	(void)close(s->fd); /* no data of this process can be lost */
	tls_free(s->tls);
	s->magic = 0;
	free(s);
}

static void on_poll_closed(uv_handle_t *handle)
{
	stream_let_go(handle->data);
}

static void stream_finish(struct stream *s)
{
	struct list *node;

	/* Messages that on_sent() adds end in this loop, too. */
	while ((node = list_pop_front(&s->out)) != NULL) {
		struct transport_message *m = list_entry(node, struct transport_message, link);

		m->on_sent(m, s->status);
	}
	s->state = STREAM_CLOSED;
	for (unsigned int i = 0; i < s->n_fds; i++)
		if (s->fds[i] >= 0)
			(void)close(s->fds[i]); /* no frame claimed it */
	if (s->frame_fd >= 0)
		(void)close(s->frame_fd); /* its message is incomplete */
	free(s->payload);
	uv_close((uv_handle_t *)&s->poll, on_poll_closed);
	if (s->transport.events)
		s->transport.events->on_closed(s->transport.arg, s->status);
}

static void on_turn(struct loop_task *task)
{
	struct stream *s = container_of(task, struct stream, turn);

	CHECK_MAGIC(s, STREAM_MAGIC);
	s->turning = false;
	if (s->state == STREAM_OPEN && !s->paused && has_in(s))
		parse_again(s);
	if (s->state == STREAM_OPEN && !s->paused && s->look)
		on_readable(s);
	s->look = false;
	if (s->state == STREAM_OPEN && !s->blocked)
		flush(s);
	if (s->state == STREAM_FAILED)
		stream_finish(s);
	stream_let_go(s);
}

static struct peer_identity socket_peer(int fd, bool local)
{
	struct peer_identity peer = { .kind = local ? PEER_NODE : PEER_UNKNOWN,
		.uid = (uint32_t)-1 };
	struct ucred cred;
	socklen_t len = sizeof(cred);

	if (local && getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cred, &len) == 0)
		peer.uid = cred.uid;
	return peer;
}

int stream_new(const struct transport_ops *ops, struct loop *loop, int fd, bool connecting,
	struct transport **ret_transport)
{
	bool tls = !ops->passes_fd && net_keys_any();
	struct stream *s = calloc(1, sizeof(*s) + (tls ? FRAME_BYTES : RX_BYTES));
	int r = s ? 0 : -ENOMEM;

	if (r == 0 && tls)
		r = tls_new(!connecting, &s->tls);
	if (r == 0 && uv_poll_init(loop_uv(loop), &s->poll, fd) != 0)
		r = -ENOMEM;
	if (r < 0) {
		if (s)
			tls_free(s->tls);
		free(s);
		(void)close(fd); /* never used */
		return r;
	}
	s->connects = connecting;
	s->wake = 1;
	s->transport.peer = socket_peer(fd, ops->passes_fd);
	s->transport.channel = s->tls ? &s->tls->channel : NULL;
	s->transport.ops = ops;
	s->magic = STREAM_MAGIC;
	s->state = connecting ? STREAM_CONNECTING : STREAM_ACCEPTED;
	s->fd = fd;
	s->frame_fd = -1;
	s->loop = loop;
	s->handles = 1;
	s->poll.data = s;
	list_init(&s->out);
	s->stage = &s->out;
	stream_watch(s);
	*ret_transport = &s->transport;
	return 0;
}

void stream_start(struct transport *transport, const struct transport_events *events, void *arg)
{
	struct stream *s = stream_of(transport);

	transport->events = events;
	transport->arg = arg;
	if (s->state == STREAM_ACCEPTED)
		s->state = s->tls ? STREAM_HANDSHAKING : STREAM_OPEN;
	stream_watch(s);
}

void stream_send(struct transport *transport, struct transport_message *message)
{
	struct stream *s = stream_of(transport);

	ensure(s->state != STREAM_CLOSED);
	message->sent = 0;
	message->raw = message->raw_sent = 0;
	message->bytes = FRAME_BYTES + (message->payload ? net_payload_bytes(message->payload) : 0);
	list_push_back(&s->out, &message->link);
	if (s->stage == &s->out)
		s->stage = &message->link;
	if (s->state == STREAM_OPEN && !s->blocked)
		stream_want_turn(s);
}

bool stream_takes_pipe(struct transport *transport)
{
	const struct stream *s = stream_of(transport);

	return !s->tls || s->tls->raw;
}

int stream_addresses(struct transport *transport, struct sockaddr_storage *ret_local,
	struct sockaddr_storage *ret_remote)
{
	const struct stream *s = stream_of(transport);
	socklen_t local = sizeof(*ret_local);
	socklen_t remote = sizeof(*ret_remote);

	if (!stream_takes_pipe(transport))
		return -EOPNOTSUPP;
	if (getsockname(s->fd, (struct sockaddr *)ret_local, &local) < 0 ||
		getpeername(s->fd, (struct sockaddr *)ret_remote, &remote) < 0)
		return err_errno();
	return 0;
}

bool stream_recall(struct transport *transport, struct transport_message *message)
{
	struct stream *s = stream_of(transport);

	if (message->sent > 0 || s->state >= STREAM_FAILED)
		return false;
	if (s->tls)
		stream_tls_recall(s, message);
	list_remove(&message->link);
	return true;
}

void stream_pause(struct transport *transport, bool paused)
{
	struct stream *s = stream_of(transport);

	s->paused = paused;
	if (!paused && has_in(s))
		stream_want_turn(s); /* parses the bytes that were received before the pause */
	stream_watch(s);
}

void stream_look(struct transport *transport)
{
	struct stream *s = stream_of(transport);

	s->look = true;
	stream_want_turn(s);
}

void stream_close(struct transport *transport, int status)
{
	stream_fail(stream_of(transport), status);
}

/* The peer's kernel acknowledges bytes even when its process hangs. Sent bytes must be acknowledged within `ms`, and an idle
 * connection is probed each second. If these options cannot be set, the limits of conn_watch() still apply. */
void stream_patience(struct transport *transport, uint32_t ms)
{
	const struct stream *stream = stream_of(transport);
	const int on = 1;
	const int seconds = 1;

	if (stream->state >= STREAM_FAILED)
		return;
	(void)setsockopt(stream->fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on));
	(void)setsockopt(stream->fd, IPPROTO_TCP, TCP_KEEPIDLE, &seconds, sizeof(seconds));
	(void)setsockopt(stream->fd, IPPROTO_TCP, TCP_KEEPINTVL, &seconds, sizeof(seconds));
	(void)setsockopt(stream->fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &ms, sizeof(ms));
}
