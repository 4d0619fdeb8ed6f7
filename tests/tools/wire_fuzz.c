/*
 * wire-probe fuzz: one hostile connection after the other, by chance but repeatable: bytes of no meaning, TLS that is broken
 * somewhere, proofs that are none, frames of no meaning inside a connection that is let in (when there are keys, or on a
 * unix socket), HTTP that is none, orders that are cut off. What comes back is read and dropped. Some stay open and say nothing.
 *
 * "tcp:HOST:PORT" and "unix:PATH" are RPC ports; "http:PATH" and "http:HOST:PORT" answer admin requests; "order:PATH:DIR" takes
 * announced orders of the mount at DIR. With a token and no cluster key a unix socket is shown the token.
 */
#include "tests/tools/wire_probe.h"
#include "base/clock.h"
#include "base/little.h"
#include "client/order_proto.h"
#include "net/keys_internal.h"
#include "net/tls_internal.h"
#include "proto/frame.h"
#include "proto/hello.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define BYTES_MAX  20000u
#define IDLE_MAX   64u
#define FRAMES_MAX 40u
#define ANSWER_MS  30
#define OPS        ((uint32_t)FRAME_LANE) /* from FRAME_HELLO, 1, on */

struct fuzz {
	uint64_t random;
	const char *address;
	const struct probe_volume *volume;
	int idle[IDLE_MAX];
	unsigned int n_idle;
	unsigned long connections;
	unsigned long inside; /* of them, let in */
	unsigned long frames;
};

/* splitmix64 (Steele, Lea, Flood, OOPSLA 2014). */
static uint64_t next(struct fuzz *f)
{
	uint64_t z = f->random += 0x9e3779b97f4a7c15ull;

	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
	z = (z ^ z >> 27) * 0x94d049bb133111ebull;
	return z ^ z >> 31;
}

static uint32_t below(struct fuzz *f, uint32_t n)
{
	return (uint32_t)(next(f) % n);
}

static void noise(struct fuzz *f, uint8_t *out, size_t n)
{
	for (size_t i = 0; i < n; i++)
		out[i] = (uint8_t)next(f);
}

static bool is(const struct fuzz *f, const char *scheme)
{
	return strncmp(f->address, scheme, strlen(scheme)) == 0;
}

static int knock(const struct fuzz *f)
{
	struct sockaddr_un sun = { .sun_family = AF_UNIX };
	struct sockaddr_in sin = { .sin_family = AF_INET };
	const char *where = strchr(f->address, ':') + 1;
	const char *port = strrchr(where, ':');
	char host[64] = "";
	bool tcp = where[0] != '/';
	int fd = socket(tcp ? AF_INET : AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	int r;

	if (tcp) {
		(void)snprintf(host, sizeof(host), "%.*s", (int)(port - where), where);
		(void)inet_pton(AF_INET, host, &sin.sin_addr); /* the test's */
		sin.sin_port = htons((uint16_t)strtoul(port + 1, NULL, 10));
		r = connect(fd, (struct sockaddr *)&sin, sizeof(sin));
	} else {
		(void)snprintf(sun.sun_path, sizeof(sun.sun_path), "%.*s",
			is(f, "order:") ? (int)(port - where) : (int)strlen(where), where);
		r = connect(fd, (struct sockaddr *)&sun, sizeof(sun));
	}
	if (r == 0)
		return fd;
	(void)close(fd);
	return -1;
}

/* All of it, or as much as the peer takes within a moment. */
static void put(int fd, const uint8_t *data, size_t n)
{
	while (n > 0) {
		struct pollfd p = { .fd = fd, .events = POLLOUT };
		ssize_t sent = send(fd, data, n, MSG_NOSIGNAL | MSG_DONTWAIT);

		if (sent > 0) {
			data += sent;
			n -= (size_t)sent;
		} else if (sent < 0 && errno == EAGAIN && poll(&p, 1, ANSWER_MS) > 0) {
			continue;
		} else {
			return;
		}
	}
}

static void drop_answers(int fd)
{
	struct pollfd p = { .fd = fd, .events = POLLIN };
	uint8_t bytes[4096];

	for (int i = 0; i < 16 && poll(&p, 1, ANSWER_MS) > 0; i++)
		if (recv(fd, bytes, sizeof(bytes), MSG_DONTWAIT) <= 0)
			return;
}

/* Closes it, or keeps it open for a while. */
static void leave(struct fuzz *f, int fd)
{
	unsigned int at;

	if (below(f, 10) > 0) {
		(void)close(fd);
		return;
	}
	at = f->n_idle < IDLE_MAX ? f->n_idle++ : below(f, IDLE_MAX);
	if (f->idle[at] > 0)
		(void)close(f->idle[at]);
	f->idle[at] = fd;
}

/* ---- frames ---------------------------------------------------------------------------------- */

static uint32_t odd_number(struct fuzz *f)
{
	static const uint32_t odd[] = { 0, 1, 4095, 4096, 65536, 1 << 20, (1 << 20) + 1, INT32_MAX,
		UINT32_MAX };

	return below(f, 3) ? odd[below(f, ARRAY_SIZE(odd))] : (uint32_t)next(f);
}

/* A message of protobuf whose fields are of chance: numbers, texts, bytes; at most `max` bytes. */
static uint32_t odd_message(struct fuzz *f, uint8_t *out, uint32_t max)
{
	static const char *const texts[] = { "", "GET", "POST", "/v1/status", "/v1/workers",
		"/v1/../x", "x", "tcp:", "s3://bucket/", "file:///", "\xff\xfe", "{\"a\":[" };
	uint32_t n = 0;

	for (uint32_t fields = below(f, 14); fields > 0 && n + 40 < max; fields--) {
		uint8_t field = (uint8_t)(1 + below(f, 14));
		const char *text = texts[below(f, ARRAY_SIZE(texts))];
		uint8_t len;

		switch (below(f, 4)) {
		case 0: /* a number */
			out[n++] = (uint8_t)(field << 3);
			for (uint32_t more = below(f, 11); more > 0; more--)
				out[n++] = (uint8_t)(next(f) | 0x80);
			out[n++] = (uint8_t)(next(f) & 0x7f);
			break;
		case 1: /* a text */
			len = (uint8_t)strlen(text);
			out[n++] = (uint8_t)(field << 3 | 2);
			out[n++] = len;
			memcpy(out + n, text, len);
			n += len;
			break;
		case 2: /* an id, or what is inside another message */
			out[n++] = (uint8_t)(field << 3 | 2);
			out[n++] = 16;
			noise(f, out + n, 16);
			n += 16;
			break;
		default: /* one that says more than there is, or of no kind */
			out[n++] = (uint8_t)next(f);
			out[n++] = (uint8_t)next(f);
			break;
		}
	}
	return n;
}

/* A frame that looks like one in most of its parts; `out` has room for BYTES_MAX. */
static size_t odd_frame(struct fuzz *f, uint8_t *out)
{
	uint8_t *body = out + FRAME_BYTES;
	uint32_t payload = below(f, 4) ? below(f, 300) : odd_number(f);
	struct frame frame = { .op = (uint8_t)(below(f, 20) ? 1 + below(f, OPS) : next(f)),
		.class = (uint8_t)below(f, 3),
		.flags = (uint16_t)(below(f, 3) ? 0 : next(f)),
		.id = below(f, 50),
		.volume = f->volume->id,
		.lineage = f->volume->lineage,
		.generation = below(f, 2) ? 0 : next(f),
		.offset = below(f, 2) ? (uint64_t)below(f, 64) * BLOCK_BYTES : next(f),
		.length = below(f, 2) ? BLOCK_BYTES : odd_number(f),
		.extent = below(f, 2) ? 0 : next(f) };
	uint32_t has = min(payload, BYTES_MAX - FRAME_BYTES);

	if (below(f, 2))
		payload = has = odd_message(f, body, 1024);
	else
		noise(f, body, has);
	frame_encode(&frame, out);
	little_put32(out + 52, payload);
	if (below(f, 10) == 0)
		out[below(f, FRAME_BYTES)] = (uint8_t)next(f);
	f->frames++;
	return FRAME_BYTES + has;
}

static size_t put_hello(const struct hello *hello, uint8_t *out)
{
	struct frame frame = { .op = FRAME_HELLO };

	frame.payload = (uint32_t)hello_pack(hello, out + FRAME_BYTES);
	frame_encode(&frame, out);
	return FRAME_BYTES + frame.payload;
}

static size_t greeting(uint8_t *out)
{
	const struct hello hello = {
		.process = "wire-probe", .version = FRAME_VERSION, .has_nonce = true
	};

	return put_hello(&hello, out);
}

static void odd_frames(struct fuzz *f, int fd)
{
	static uint8_t bytes[BYTES_MAX];

	for (uint32_t n = below(f, FRAMES_MAX); n > 0; n--)
		put(fd, bytes, odd_frame(f, bytes));
	drop_answers(fd);
}

static void plain_frames(struct fuzz *f, int fd)
{
	static uint8_t bytes[BYTES_MAX];

	if (below(f, 10))
		put(fd, bytes, greeting(bytes));
	if (is(f, "unix:"))
		f->inside++;
	odd_frames(f, fd);
}

/* ---- a token over a unix socket -------------------------------------------------------------- */

static void spoil(struct fuzz *f, uint8_t *data, size_t n)
{
	for (uint32_t i = below(f, 4) + 1; n > 0 && i > 0; i--)
		data[below(f, (uint32_t)n)] ^= (uint8_t)(1u << below(f, 8));
}

static bool take(int fd, uint8_t *out, size_t n)
{
	struct pollfd p = { .fd = fd, .events = POLLIN };

	for (size_t got = 0; got < n;) {
		ssize_t some = poll(&p, 1, 3 * ANSWER_MS) > 0
				       ? recv(fd, out + got, n - got, MSG_DONTWAIT)
				       : -1;

		if (some <= 0)
			return false;
		got += (size_t)some;
	}
	return true;
}

static bool take_hello(int fd, struct hello *ret_hello)
{
	uint8_t bytes[FRAME_BYTES + HELLO_BYTES_MAX];
	struct frame frame;

	return take(fd, bytes, FRAME_BYTES) && frame_decode(bytes, &frame) == 0 &&
	       frame.op == FRAME_HELLO && frame.payload <= HELLO_BYTES_MAX &&
	       take(fd, bytes + FRAME_BYTES, frame.payload) &&
	       hello_unpack(bytes + FRAME_BYTES, frame.payload, ret_hello) == 0;
}

/* Shows it and proves it, with claims or proof that are not right in some of them. */
static void token_talk(struct fuzz *f, int fd, struct keyring *ring)
{
	struct proof_channel channel = { .ring = ring };
	struct hello hello = {
		.process = "wire-probe", .version = FRAME_VERSION, .has_nonce = true
	};
	struct hello proof = { .version = FRAME_VERSION, .has_proof = true };
	uint32_t spoil_at = below(f, 6); /* 0: claims, 1: greeting, 2: proof; else none */
	uint8_t bytes[FRAME_BYTES + HELLO_BYTES_MAX];
	struct hello peer;
	size_t n;

	noise(f, hello.nonce, sizeof(hello.nonce));
	hello.identity_len = (uint16_t)identity_own(ring, hello.identity);
	if (spoil_at == 0)
		spoil(f, hello.identity, hello.identity_len);
	n = put_hello(&hello, bytes);
	if (spoil_at == 1)
		spoil(f, bytes, n);
	put(fd, bytes, n);
	if (!take_hello(fd, &peer))
		return;
	memcpy(channel.binding, hello.nonce, HELLO_NONCE_BYTES);
	memcpy(channel.binding + HELLO_NONCE_BYTES, peer.nonce, HELLO_NONCE_BYTES);
	proof_own(&channel, proof.proof);
	if (spoil_at == 2)
		spoil(f, proof.proof, sizeof(proof.proof));
	put(fd, bytes, put_hello(&proof, bytes));
	f->inside += spoil_at > 2;
	odd_frames(f, fd);
}

/* The token that is all that this process has. */
static bool show_token(struct fuzz *f, int fd)
{
	struct keyring *ring = keyring_get();
	bool has = ring && ring->n_cluster == 0;

	if (has)
		token_talk(f, fd, ring);
	keyring_unref(ring);
	return has;
}

static void plain_noise(struct fuzz *f, int fd)
{
	static uint8_t bytes[BYTES_MAX];
	uint32_t n = below(f, BYTES_MAX);

	noise(f, bytes, n);
	if (below(f, 2)) /* as if it were TLS */
		memcpy(bytes, "\x16\x03\x01", 3);
	put(fd, bytes, n);
	drop_answers(fd);
}

/* ---- TLS ------------------------------------------------------------------------------------- */

/* Sends what TLS has to say, with some bits changed when `wrong`. */
static void put_tls(struct fuzz *f, int fd, struct tls *tls, bool wrong)
{
	size_t n = tls->out_end - tls->out_begin;
	uint8_t *data = tls->out + tls->out_begin;

	if (wrong)
		spoil(f, data, n);
	put(fd, data, wrong && below(f, 3) == 0 ? below(f, (uint32_t)n + 1) : n);
	tls_sent(tls, n);
}

static bool take_tls(int fd, struct tls *tls)
{
	struct pollfd p = { .fd = fd, .events = POLLIN };
	size_t size;
	uint8_t *space = tls_space(tls, &size);
	ssize_t n = -1;

	if (space && size > 0 && poll(&p, 1, 3 * ANSWER_MS) > 0)
		n = recv(fd, space, size, MSG_DONTWAIT);
	if (n > 0)
		tls_received(tls, (size_t)n);
	return n > 0;
}

/* With the proof of who this process is, which is not right in some of them. */
static size_t tls_greeting(struct fuzz *f, const struct tls *tls, uint8_t *out)
{
	struct hello hello = { .process = "wire-probe", .version = FRAME_VERSION };
	uint32_t spoil_at =
		below(f, 10); /* 0: no identity, 1: another, 2: no proof, 3: another; else right */

	if (spoil_at != 0)
		hello.identity_len = (uint16_t)identity_own(tls->channel.ring, hello.identity);
	if (spoil_at == 1)
		spoil(f, hello.identity, hello.identity_len);
	hello.has_proof = spoil_at != 2;
	proof_own(&tls->channel, hello.proof);
	if (spoil_at == 3)
		spoil(f, hello.proof, sizeof(hello.proof));
	f->inside += spoil_at > 3;
	return put_hello(&hello, out);
}

static void tls_frames(struct fuzz *f, int fd, struct tls *tls)
{
	static uint8_t bytes[BYTES_MAX];

	if (below(f, 10) && tls_write(tls, bytes, tls_greeting(f, tls, bytes)) < 0)
		return;
	for (uint32_t n = below(f, FRAMES_MAX); n > 0; n--) {
		if (tls_write(tls, bytes, odd_frame(f, bytes)) < 0)
			return;
		put_tls(f, fd, tls, below(f, 200) == 0);
	}
	put_tls(f, fd, tls, false);
	drop_answers(fd);
}

static void tls_talk(struct fuzz *f, int fd)
{
	uint32_t spoil_at = below(f, 4); /* 0: the first message, 1: the second; else none */
	struct tls *tls;
	int r = 0;

	if (tls_new(false, &tls) < 0)
		return;
	for (uint32_t turn = 0; r == 0; turn++) {
		r = tls_handshake(tls);
		put_tls(f, fd, tls, turn == spoil_at);
		if (r == 0 && !take_tls(fd, tls))
			break;
	}
	if (r == 1)
		tls_frames(f, fd, tls);
	tls_free(tls);
}

/* ---- HTTP ------------------------------------------------------------------------------------ */

static void http_talk(struct fuzz *f, int fd)
{
	static const char *const methods[] = { "GET", "POST", "PUT", "HEAD", "OPTIONS", "\x01",
		"" };
	static const char *const paths[] = { "/v1/status", "/metrics", "/healthz", "/v1/datasets",
		"/v1/../..", "/%00", "/v1/preloads/18446744073709551616", "*", "/v1/slots/%ff",
		"/v1/datasets/x/generations?limit=-1" };
	static const char *const rest[] = { "\r\n", "Content-Length: 5\r\n\r\n{\"a\"",
		"Content-Length: -1\r\n\r\n", "Content-Length: 99999999999\r\n\r\n",
		"Transfer-Encoding: chunked\r\n\r\nfffffffff\r\n", "Host: \xff\r\n\r\n", "X: " };
	static uint8_t bytes[BYTES_MAX];
	int n = snprintf((char *)bytes, sizeof(bytes), "%s %s HTTP/1.%u\r\n%s",
		methods[below(f, ARRAY_SIZE(methods))], paths[below(f, ARRAY_SIZE(paths))],
		below(f, 3), rest[below(f, ARRAY_SIZE(rest))]);
	uint32_t more = below(f, 4) ? 0 : below(f, BYTES_MAX - 1024);

	noise(f, bytes + n, more);
	for (uint32_t i = below(f, 3); i > 0; i--)
		bytes[below(f, (uint32_t)n)] = (uint8_t)next(f);
	put(fd, bytes, (size_t)n + more);
	drop_answers(fd);
}

/* ---- orders ---------------------------------------------------------------------------------- */

/* A greeting with a descriptor of the mount, which is not always one. */
static void greet_order(struct fuzz *f, int fd)
{
	const char *dir = strrchr(f->address, ':') + 1;
	int below_it = open(below(f, 4) ? dir : "/", O_RDONLY | O_CLOEXEC | O_DIRECTORY);
	union {
		struct cmsghdr head;
		char space[CMSG_SPACE(sizeof(int))];
	} control = { .head = { .cmsg_level = SOL_SOCKET,
			      .cmsg_type = SCM_RIGHTS,
			      .cmsg_len = CMSG_LEN(sizeof(int)) } };
	uint8_t bytes[ORDER_HEAD_BYTES + 4];
	struct iovec part = { .iov_base = bytes, .iov_len = sizeof(bytes) };
	struct msghdr message = { .msg_iov = &part, .msg_iovlen = 1 };

	little_put32(bytes, ORDER_HELLO);
	little_put32(bytes + 4, 4);
	little_put32(bytes + 8, ORDER_VERSION);
	if (below(f, 10) == 0)
		spoil(f, bytes, sizeof(bytes));
	if (below_it >= 0) {
		memcpy(CMSG_DATA(&control.head), &below_it, sizeof(int));
		message.msg_control = &control;
		message.msg_controllen = sizeof(control.space);
	}
	(void)sendmsg(fd, &message, MSG_NOSIGNAL); /* or it is gone: what follows is refused */
	if (below_it >= 0)
		(void)close(below_it);
}

static void order_talk(struct fuzz *f, int fd)
{
	static const uint32_t bodies[] = { 0, 0, 4, 36, 40, 28, 8, 0 }; /* of each kind, about */
	static uint8_t bytes[BYTES_MAX];

	if (below(f, 10))
		greet_order(f, fd);
	f->inside++;
	for (uint32_t n = below(f, FRAMES_MAX); n > 0; n--) {
		uint32_t kind = below(f, 20) ? 1 + below(f, 7) : (uint32_t)next(f);
		uint32_t body = below(f, 3) ? bodies[kind % ARRAY_SIZE(bodies)] : odd_number(f);
		uint32_t has = min(body, BYTES_MAX - ORDER_HEAD_BYTES);

		little_put32(bytes, kind);
		little_put32(bytes + 4, body);
		noise(f, bytes + ORDER_HEAD_BYTES, has);
		if (below(f, 2) && has >= 4) /* as many samples, or numbers */
			little_put32(bytes + ORDER_HEAD_BYTES,
				below(f, 2) ? below(f, 4) : odd_number(f));
		put(fd, bytes, ORDER_HEAD_BYTES + has);
		f->frames++;
	}
	drop_answers(fd);
}

/* ---- the run --------------------------------------------------------------------------------- */

static void visit(struct fuzz *f, int fd)
{
	uint32_t kind = below(f, 4);

	f->connections++;
	if (is(f, "http:"))
		http_talk(f, fd);
	else if (kind == 0)
		plain_noise(f, fd);
	else if (is(f, "order:"))
		order_talk(f, fd);
	else if (is(f, "tcp:") && net_keys_any())
		tls_talk(f, fd);
	else if (!is(f, "unix:") || !show_token(f, fd))
		plain_frames(f, fd);
	leave(f, fd);
}

int wire_fuzz(
	const char *address, uint64_t seconds, uint64_t seed, const struct probe_volume *volume)
{
	struct fuzz f = { .random = seed, .address = address, .volume = volume };
	uint64_t until = clock_mono_ns() + seconds * CLOCK_SECOND;
	unsigned int away = 0;

	while (clock_mono_ns() < until) {
		int fd = knock(&f);

		if (fd >= 0) {
			visit(&f, fd);
			away = 0;
		} else if (++away == 1000) {
			(void)fprintf(
				stderr, "wire-probe: nobody answers at %s any more\n", address);
			return 1;
		} else {
			clock_sleep_ns(10 * CLOCK_MS);
		}
	}
	(void)printf("connections=%lu inside=%lu frames=%lu\n", f.connections, f.inside, f.frames);
	return 0;
}
