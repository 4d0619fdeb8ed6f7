/*
 * wire-probe fuzz: one hostile connection after the other, by chance but repeatable: bytes of no meaning, TLS that is broken
 * somewhere, frames of no meaning inside a connection that is let in (when there are keys, or on a unix socket), HTTP that is
 * none. What comes back is read and dropped. Some stay open and say nothing.
 *
 * "tcp:..." and "unix:..." are RPC ports; "http:PATH" is an admin socket.
 */
#include "tests/tools/wire_probe.h"
#include "base/clock.h"
#include "base/little.h"
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

static int knock(const char *address)
{
	struct sockaddr_un sun = { .sun_family = AF_UNIX };
	struct sockaddr_in sin = { .sin_family = AF_INET };
	const char *where = strchr(address, ':') + 1;
	const char *port = strrchr(where, ':');
	char host[64] = "";
	bool tcp = strncmp(address, "tcp:", 4) == 0;
	int fd = socket(tcp ? AF_INET : AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	int r;

	if (tcp) {
		(void)snprintf(host, sizeof(host), "%.*s", (int)(port - where), where);
		(void)inet_pton(AF_INET, host, &sin.sin_addr); /* the test's */
		sin.sin_port = htons((uint16_t)strtoul(port + 1, NULL, 10));
		r = connect(fd, (struct sockaddr *)&sin, sizeof(sin));
	} else {
		(void)snprintf(sun.sun_path, sizeof(sun.sun_path), "%s", where);
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

/* A frame that looks like one in most of its parts; `out` has room for BYTES_MAX. */
static size_t odd_frame(struct fuzz *f, uint8_t *out)
{
	static const uint8_t ops[] = { 1, 2, 3, 4, 5, 6, 7, 8, 10, 11, 12, 16, 17, 18, 19, 20, 21,
		22, 23, 24, 25 };
	uint32_t payload = below(f, 4) ? below(f, 300) : odd_number(f);
	struct frame frame = { .op = below(f, 20) ? ops[below(f, ARRAY_SIZE(ops))]
						  : (uint8_t)next(f),
		.class = (uint8_t)below(f, 3),
		.flags = (uint8_t)(below(f, 3) ? 0 : next(f)),
		.id = below(f, 50),
		.volume = f->volume->id,
		.lineage = f->volume->lineage,
		.generation = below(f, 2) ? 0 : next(f),
		.offset = below(f, 2) ? (uint64_t)below(f, 64) * BLOCK_BYTES : next(f),
		.length = below(f, 2) ? BLOCK_BYTES : odd_number(f),
		.extent = below(f, 2) ? 0 : next(f) };
	uint32_t has = min(payload, BYTES_MAX - FRAME_BYTES);

	frame_encode(&frame, out);
	little_put32(out + 52, payload);
	if (below(f, 10) == 0)
		out[below(f, FRAME_BYTES)] = (uint8_t)next(f);
	noise(f, out + FRAME_BYTES, has);
	if (has > 2 && below(f, 2)) { /* a field of a message: bytes of 16 */
		out[FRAME_BYTES] = 0x0a;
		out[FRAME_BYTES + 1] = 16;
	}
	f->frames++;
	return FRAME_BYTES + has;
}

static size_t greeting(uint8_t *out)
{
	const struct hello hello = {
		.process = "wire-probe", .version = FRAME_VERSION, .has_nonce = true
	};
	struct frame frame = { .op = FRAME_HELLO };

	frame.payload = (uint32_t)hello_pack(&hello, out + FRAME_BYTES);
	frame_encode(&frame, out);
	return FRAME_BYTES + frame.payload;
}

static void plain_frames(struct fuzz *f, int fd)
{
	static uint8_t bytes[BYTES_MAX];

	if (below(f, 10))
		put(fd, bytes, greeting(bytes));
	for (uint32_t n = below(f, FRAMES_MAX); n > 0; n--)
		put(fd, bytes, odd_frame(f, bytes));
	if (strncmp(f->address, "unix:", 5) == 0)
		f->inside++;
	drop_answers(fd);
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

/* Sends what TLS has to say, with some bytes changed when `spoil`. */
static void put_tls(struct fuzz *f, int fd, struct tls *tls, bool spoil)
{
	size_t n = tls->out_end - tls->out_begin;
	uint8_t *data = tls->out + tls->out_begin;

	for (uint32_t i = below(f, 4) + 1; spoil && n > 0 && i > 0; i--)
		data[below(f, (uint32_t)n)] ^= (uint8_t)(1u << below(f, 8));
	put(fd, data, spoil && below(f, 3) == 0 ? below(f, (uint32_t)n + 1) : n);
	tls_went(tls, n);
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
		tls_came(tls, (size_t)n);
	return n > 0;
}

static void tls_frames(struct fuzz *f, int fd, struct tls *tls)
{
	static uint8_t bytes[BYTES_MAX];

	f->inside++;
	if (below(f, 10) && tls_write(tls, bytes, greeting(bytes)) < 0)
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

/* ---- the run --------------------------------------------------------------------------------- */

static void visit(struct fuzz *f, int fd)
{
	uint32_t kind = below(f, 4);

	f->connections++;
	if (strncmp(f->address, "http:", 5) == 0)
		http_talk(f, fd);
	else if (kind == 0)
		plain_noise(f, fd);
	else if (strncmp(f->address, "tcp:", 4) == 0 && net_keys_any())
		tls_talk(f, fd);
	else
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
		int fd = knock(address);

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
