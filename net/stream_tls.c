/*
 * A stream's messages over TLS. See stream.c and tls_internal.h.
 *
 * A message is sent as records of its header and payload. Of a reply with bytes of a volume, when both ends have
 * `net-data: plain`, only the header and the checksums are in records; the bytes follow raw, without a copy.
 *
 * Messages are encrypted ahead of sending, up to STAGE_BYTES; `stage` is the first that is not. One sendmsg(2) sends records and
 * the raw bytes between them. An encrypted message cannot be recalled.
 */
#include "net/stream_state_internal.h"
#include "base/little.h"

#include <string.h>
#include <sys/socket.h>

#define RECORD_BYTES 16384u
#define STAGE_BYTES  (8 * RECORD_BYTES)
/* Where in a header (proto/frame.h). */
#define AT_OP        5
#define AT_PAYLOAD   52
#define AT_STATUS    56
#define AT_CHECKSUMS 60

/* Bytes of a message that are sent raw; 0 unless it is a reply with bytes of a volume. */
static size_t raw_bytes(
	uint8_t op, uint16_t flags, int32_t status, uint32_t payload, uint32_t checksums)
{
	bool data = frame_op_fetches(op) && (flags & (FRAME_REPLY | FRAME_LOCAL)) == FRAME_REPLY &&
		    status == 0;

	return data ? payload - min(payload, checksums * 8u) : 0;
}

int stream_tls_greet(struct stream *s)
{
	return tls_handshake(s->tls);
}

/* ---- out ------------------------------------------------------------------------------------- */

bool stream_tls_has_out(const struct stream *s)
{
	return tls_out_pos(s->tls) < tls_out_tail(s->tls) ||
	       (s->state == STREAM_OPEN && !list_empty(&s->out));
}

/* The contiguous bytes at `offset` of those sent in records: the header, then the payload behind its raw bytes. */
static const uint8_t *records_at(const struct transport_message *m, size_t offset, size_t *ret_len)
{
	size_t skip;

	if (offset < FRAME_BYTES) {
		*ret_len = FRAME_BYTES - offset;
		return m->header + offset;
	}
	skip = offset - FRAME_BYTES + m->raw;
	for (unsigned int i = 0; i < m->payload->n; i++) {
		if (skip < m->payload->parts[i].len) {
			*ret_len = m->payload->parts[i].len - skip;
			return (const uint8_t *)m->payload->parts[i].data + skip;
		}
		skip -= m->payload->parts[i].len;
	}
	*ret_len = 0;
	return NULL;
}

/* Encrypts the next record of message m. */
static int encrypt_some(struct stream *s, const struct transport_message *m, size_t left)
{
	uint8_t record[RECORD_BYTES];
	size_t wanted = min(left, RECORD_BYTES);
	size_t len;
	size_t n = 0;
	const uint8_t *at = records_at(m, s->staged, &len);
	int r;

	if (len < wanted) {
		while (n < wanted) {
			at = records_at(m, s->staged + n, &len);
			len = min(len, wanted - n);
			memcpy(record + n, at, len);
			n += len;
		}
		at = record;
	}
	r = tls_write(s->tls, at, wanted);
	s->staged += wanted;
	return r;
}

static int stage(struct stream *s)
{
	while (s->state == STREAM_OPEN && s->stage != &s->out &&
		tls_out_tail(s->tls) - tls_out_pos(s->tls) < STAGE_BYTES) {
		struct transport_message *m = list_entry(s->stage, struct transport_message, link);
		const uint8_t *h = m->header;
		int r;

		if (s->staged == 0 && s->tls->raw)
			m->raw = raw_bytes(h[AT_OP], frame_flags(h),
				(int32_t)little_get32(h + AT_STATUS), little_get32(h + AT_PAYLOAD),
				little_get16(h + AT_CHECKSUMS));
		m->sent = FRAME_BYTES;
		r = encrypt_some(s, m, m->bytes - m->raw - s->staged);
		if (r < 0)
			return r;
		if (s->staged < m->bytes - m->raw)
			continue;
		m->wire_end = tls_out_tail(s->tls);
		s->stage = s->stage->next;
		s->staged = 0;
	}
	return 0;
}

static void gather_raw(const struct transport_message *m, struct iovec *iov, int *n)
{
	size_t skip = m->raw_sent;
	size_t left = m->raw - m->raw_sent;

	for (unsigned int i = 0; left > 0; i++) {
		size_t len = m->payload->parts[i].len;

		if (skip < len) {
			size_t step = min(len - skip, left);

			iov[(*n)++] = (struct iovec){
				.iov_base = (char *)(uintptr_t)m->payload->parts[i].data + skip,
				.iov_len = step
			};
			left -= step;
		}
		skip -= min(skip, len);
	}
}

static void gather_records(struct tls *tls, uint64_t from, uint64_t to, struct iovec *iov, int *n)
{
	if (from < to)
		iov[(*n)++] = (struct iovec){ .iov_base = tls->out + (from - tls->out_at),
			.iov_len = to - from };
}

ssize_t stream_tls_send(struct stream *s)
{
	struct iovec iov[SEND_PARTS];
	struct msghdr h = { .msg_iov = iov };
	const struct transport_message *piped = NULL; /* what it has in a pipe is next */
	struct list *node;
	uint64_t pos;
	int n = 0;
	int r = stage(s);

	if (r < 0) {
		errno = -r;
		return -1;
	}
	pos = tls_out_pos(s->tls);
	for (node = s->out.next; node != s->stage && n + NET_PARTS + 2 <= SEND_PARTS;
		node = node->next) {
		const struct transport_message *m =
			list_entry(node, struct transport_message, link);

		gather_records(s->tls, pos, m->wire_end, iov, &n);
		pos = max(pos, m->wire_end);
		if (m->raw > m->raw_sent && m->payload->pipe > 0) {
			piped = m;
			break;
		}
		gather_raw(m, iov, &n);
	}
	if (piped && n == 0)
		return stream_send_pipe(s, piped, piped->raw_sent);
	if (node == s->stage)
		gather_records(s->tls, pos, tls_out_tail(s->tls), iov, &n);
	h.msg_iovlen = (size_t)n;
	return sendmsg(s->fd, &h, MSG_DONTWAIT | MSG_NOSIGNAL | (piped ? MSG_MORE : 0));
}

void stream_tls_sent(struct stream *s, size_t n, struct list *gone)
{
	while (n > 0 && s->out.next != s->stage) {
		struct transport_message *m =
			list_entry(s->out.next, struct transport_message, link);
		uint64_t pos = tls_out_pos(s->tls);
		size_t records = m->wire_end > pos ? min((size_t)(m->wire_end - pos), n) : 0;
		size_t raw = min(m->raw - m->raw_sent, n - records);

		if (records)
			tls_sent(s->tls, records);
		m->raw_sent += raw;
		n -= records + raw;
		if (m->raw_sent < m->raw || tls_out_pos(s->tls) < m->wire_end)
			break;
		m->sent = m->bytes;
		list_remove(&m->link);
		list_push_back(gone, &m->link);
	}
	if (n > 0)
		tls_sent(s->tls, n);
}

void stream_tls_recall(struct stream *s, struct transport_message *message)
{
	if (s->stage == &message->link)
		s->stage = s->stage->next;
}

/* ---- in -------------------------------------------------------------------------------------- */

bool stream_tls_has_in(const struct stream *s)
{
	return s->tls->in_end > s->tls->in_begin || tls_pending(s->tls);
}

/* Reads a header. 1: progress; 0: needs more bytes; or a negative errno. */
static int read_header(struct stream *s)
{
	ssize_t n = tls_read(s->tls, s->rx + s->rx_end, FRAME_BYTES - s->rx_end);
	int r;

	if (n <= 0)
		return (int)n;
	s->rx_end += (size_t)n;
	if (s->rx_end < FRAME_BYTES)
		return 1;
	r = stream_take_header(s);
	if (r < 0)
		return r;
	s->rx_begin = s->rx_end = 0;
	s->raw = s->tls->raw ? raw_bytes(s->frame.op, s->frame.flags, s->frame.status,
				       s->frame.payload, s->frame.checksums)
			     : 0;
	s->raw_got = s->records_got = 0;
	return 1;
}

/* Reads of a payload, as read_header(), and delivers the message when it is whole. */
static int read_payload(struct stream *s)
{
	size_t records = s->frame.payload - s->raw;
	ssize_t n;

	if (s->records_got < records) {
		n = tls_read(
			s->tls, s->payload + s->raw + s->records_got, records - s->records_got);
		if (n > 0)
			s->records_got += (size_t)n;
		return n > 0 ? 1 : (int)n;
	}
	if (s->raw_got < s->raw) {
		if (tls_pending(s->tls))
			return -EPROTO; /* a record continues where raw bytes must follow */
		s->raw_got += tls_take_raw(s->tls, s->payload + s->raw_got, s->raw - s->raw_got);
		if (s->raw_got < s->raw)
			return 0;
	}
	stream_deliver(s);
	return 1;
}

int stream_tls_parse(struct stream *s)
{
	int r = 1;

	while (r > 0 && s->state == STREAM_OPEN && !s->paused)
		r = s->have_header ? read_payload(s) : read_header(s);
	s->transport.mid_frame = s->have_header || s->rx_end > 0;
	return r < 0 ? r : 0;
}

size_t stream_tls_raw_left(const struct stream *s)
{
	bool raw = s->have_header && s->records_got == s->frame.payload - s->raw;

	return raw ? s->raw - s->raw_got : 0;
}

int stream_tls_read(struct stream *s)
{
	size_t left = stream_tls_raw_left(s);
	struct iovec iov[2];
	struct msghdr h = { .msg_iov = iov };
	uint8_t *space;
	size_t size;
	size_t direct;
	ssize_t n;
	int r;

	space = tls_space(s->tls, &size);
	if (!space)
		return -ENOMEM;
	if (left)
		iov[h.msg_iovlen++] = (struct iovec){ s->payload + s->raw_got, left };
	if (size)
		iov[h.msg_iovlen++] = (struct iovec){ space, size };
	if (left + size == 0)
		return 0; /* what was received is parsed first */
	do
		n = recvmsg(s->fd, &h, MSG_DONTWAIT);
	while (n < 0 && errno == EINTR);
	if (n == 0)
		return -ECONNRESET;
	if (n < 0)
		return errno == EAGAIN ? 0 : err_errno();
	direct = min(left, (size_t)n);
	s->raw_got += direct;
	tls_received(s->tls, (size_t)n - direct);
	s->transport.bytes_in += (uint64_t)n;
	r = s->state == STREAM_OPEN ? stream_tls_parse(s) : 0;
	return r < 0 ? r : (size_t)n == left + size;
}
