/*
 * The S3 origin against a server that misbehaves: each key names what happens to its GETs. The
 * server keeps connections, one thread each.
 */
#include "ufs/ufs.h"
#include "base/clock.h"
#include "base/layout.h"
#include "tests/clock/test_clock.h"
#include "ufs/background.h"

#include <arpa/inet.h>
#include <inttypes.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include <cmocka.h>

#define SIZE     (1024u * 1024 + 77)
#define CLIENTS  512
#define PATIENCE (60 * CLOCK_SECOND)

static char data_at(uint64_t offset)
{
	return (char)(offset * 13 + offset / 999);
}

/* ---- the server ------------------------------------------------------------------------------ */

struct server {
	int fd;
	uint16_t port;
	pthread_t thread;
	pthread_mutex_t lock;
	pthread_t conns[CLIENTS];
	int fds[CLIENTS];
	_Atomic uint32_t n_conns;
	_Atomic uint32_t requests; /* GETs of objects */
	uint32_t inside, peak;     /* of them at once */
	bool gate;                 /* requests wait until it opens */
	pthread_cond_t news;
	char order[256];  /* last characters of the keys, as they came */
	char heads[8192]; /* the last request */
	char list_head[8192];
	char *blob;
};
static struct server server;

static void put(int fd, const char *data, size_t len)
{
	while (len) {
		ssize_t n = send(fd, data, len, MSG_NOSIGNAL);

		if (n <= 0)
			return; /* the client has gone: its right */
		data += n;
		len -= (size_t)n;
	}
}

static void put_error(int fd, int status, const char *code, const char *more)
{
	char body[512], head[1024];
	bool xml = more[0] == '<';
	int n = snprintf(body, sizeof(body),
		"<?xml version=\"1.0\"?><Error><Code>%s</Code>%s</Error>", code, xml ? more : "");
	int h = snprintf(head, sizeof(head), "HTTP/1.1 %d x\r\nContent-Length: %d\r\n%s\r\n",
		status, n, xml ? "" : more);

	put(fd, head, (size_t)h);
	put(fd, body, (size_t)n);
}

static void put_object(
	int fd, const char *etag, uint64_t start, uint64_t end, uint64_t total, uint64_t send_bytes)
{
	char head[512];
	bool whole = start == 0 && end == total - 1; /* without a range */
	int h = snprintf(head, sizeof(head),
		"HTTP/1.1 %s\r\nETag: \"%s\"\r\nContent-Length: %" PRIu64 "\r\n",
		whole ? "200 OK" : "206 Partial Content", etag, end - start + 1);

	if (!whole)
		h += snprintf(head + h, sizeof(head) - (size_t)h,
			"Content-Range: bytes %" PRIu64 "-%" PRIu64 "/%" PRIu64 "\r\n", start, end,
			total);
	h += snprintf(head + h, sizeof(head) - (size_t)h, "\r\n");
	put(fd, head, (size_t)h);
	put(fd, server.blob + start, send_bytes);
}

static void put_text(int fd, const char *text)
{
	put(fd, text, strlen(text));
}

/* The right headers for 1000 bytes at 10, and another body. */
static void put_long(int fd, const char *more, uint64_t start, uint64_t send_bytes)
{
	put_text(fd, "HTTP/1.1 206 x\r\nETag: \"tag\"\r\n"
		     "Content-Range: bytes 10-1009/1048653\r\n");
	put_text(fd, more);
	put_text(fd, "\r\n");
	put(fd, server.blob + start, send_bytes);
}

/* As if there were no range in the request. */
static void put_whole(int fd, const char *more)
{
	put_text(fd, "HTTP/1.1 200 OK\r\nETag: \"tag\"\r\nContent-Length: 1048653\r\n");
	put_text(fd, more);
	put_text(fd, "\r\n");
	put(fd, server.blob, SIZE);
}

static void reset(int fd)
{
	struct linger linger = { 1, 0 };

	(void)setsockopt(fd, SOL_SOCKET, SO_LINGER, &linger, sizeof(linger));
}

/* Answers one GET of an object; false: close the connection. `first`: nobody asked for this key
 * before at this place. */
static bool answer(int fd, const char *key, uint64_t start, uint64_t end, uint32_t nth)
{
	uint64_t n = end - start + 1;

	if (strcmp(key, "etag") == 0) {
		put_object(fd, "other", start, end, SIZE, n);
	} else if (strcmp(key, "total") == 0) {
		put_object(fd, "tag", start, end, SIZE + 1, n);
	} else if (strcmp(key, "range") == 0) {
		put_object(fd, "tag", start + 1, end, SIZE, n - 1);
	} else if (strcmp(key, "ignores") == 0) {
		put_whole(fd, "");
	} else if (strcmp(key, "summed") == 0) {
		put_whole(fd, "x-amz-checksum-crc32: AAAAAA==\r\n");
	} else if (strcmp(key, "short") == 0 && nth % 2) {
		put_object(fd, "tag", start, end, SIZE, n / 2);
		return false;
	} else if (strcmp(key, "reset") == 0 && nth % 2) {
		put_object(fd, "tag", start, end, SIZE, n / 3);
		reset(fd);
		return false;
	} else if (strcmp(key, "stall") == 0 && nth % 2) {
		put_object(fd, "tag", start, end, SIZE, n / 4);
		test_advance(3 * CLOCK_SECOND / 2);
		return false;
	} else if (strcmp(key, "never") == 0) {
		char byte;

		(void)recv(fd, &byte, 1, 0); /* until one of us closes it */
		return false;
	} else if (strcmp(key, "silent") == 0) {
		test_advance(3 * CLOCK_SECOND / 2);
		return false;
	} else if (strcmp(key, "busy") == 0 && nth % 3) {
		put_error(fd, nth % 3 == 1 ? 503 : 429, "SlowDown", "Retry-After: 0\r\n");
	} else if (strcmp(key, "broken") == 0 && nth % 3) {
		put_error(fd, 500 + (int)(nth % 3) * 2, "InternalError", "");
	} else if (strcmp(key, "gone") == 0) {
		put_error(fd, 404, "NoSuchKey", "");
	} else if (strcmp(key, "gateway") == 0 && nth % 4) {
		put_text(fd, "HTTP/1.1 404 Not Found\r\nContent-Type: text/html\r\n"
			     "Content-Length: 4\r\n\r\nsorr");
	} else if (strcmp(key, "changed") == 0) {
		put_error(fd, 412, "PreconditionFailed", "");
	} else if (strcmp(key, "denied") == 0) {
		put_error(fd, 403, "AccessDenied", "");
	} else if (strcmp(key, "other") == 0) {
		put_error(fd, 307, "TemporaryRedirect", "<Endpoint>evil.example</Endpoint>");
	} else if (strcmp(key, "key") == 0) {
		put_error(fd, 403, "InvalidAccessKeyId", "");
	} else if (strcmp(key, "clock") == 0) {
		put_error(fd, 403, "RequestTimeTooSkewed",
			"<ServerTime>2001-01-01T00:00:00Z</ServerTime>");
	} else if (strcmp(key, "page") == 0) {
		put_text(fd, "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n"
			     "Content-Length: 4\r\n\r\nsorr");
	} else if (strcmp(key, "empty") == 0) {
		put_text(fd, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
	} else if (strcmp(key, "same") == 0) {
		put_text(fd, "HTTP/1.1 304 Not Modified\r\nETag: \"tag\"\r\n\r\n");
	} else if (strcmp(key, "long") == 0) {
		put_long(fd, "Content-Length: 1001\r\n", start, n + 1);
	} else if (strcmp(key, "flood") == 0) {
		put_long(fd, "Connection: close\r\n", start, n + 1);
		return false;
	} else if (strcmp(key, "gzip") == 0) {
		put_long(fd, "Content-Encoding: gzip\r\nConnection: close\r\n", start, n / 2);
		return false;
	} else if (strcmp(key, "mute") == 0 && nth % 2) {
		return false;
	} else {
		put_object(fd, "tag", start, end, SIZE, n);
	}
	return true;
}

static bool answer_get(int fd, const char *path, const char *head)
{
	const char *range = strcasestr(head, "\r\nRange: bytes=");
	unsigned long long start = 0, end = SIZE - 1;
	uint32_t nth;
	bool keep;

	pthread_mutex_lock(&server.lock);
	nth = ++server.requests;
	server.order[nth % 255] = path[strlen(path) - 1];
	server.inside++;
	server.peak = max(server.peak, server.inside);
	if (range)
		(void)sscanf(range, "\r\nRange: bytes=%llu-%llu", &start, &end);
	pthread_cond_broadcast(&server.news);
	while (server.gate)
		pthread_cond_wait(&server.news, &server.lock);
	pthread_mutex_unlock(&server.lock);
	keep = answer(fd, strrchr(path, '/') + 1, start, min(end, SIZE - 1ull), nth);
	pthread_mutex_lock(&server.lock);
	server.inside--;
	pthread_mutex_unlock(&server.lock);
	return keep;
}

static bool answer_list(int fd)
{
	static const char body[] = "<ListBucketResult><IsTruncated>false</"
				   "IsTruncated><Contents><Key>x</Key><Size>1</Size>"
				   "<ETag>e</ETag></Contents></ListBucketResult>";
	char head[128];
	int n = snprintf(head, sizeof(head), "HTTP/1.1 200 OK\r\nContent-Length: %zu\r\n\r\n",
		sizeof(body) - 1);

	put(fd, head, (size_t)n);
	put(fd, body, sizeof(body) - 1);
	return true;
}

static void *serve(void *arg)
{
	int fd = *(int *)arg;
	char head[8192];
	size_t len = 0;

	for (;;) {
		char path[4096];
		ssize_t n = recv(fd, head + len, sizeof(head) - 1 - len, 0);
		bool keep;

		if (n <= 0)
			break;
		len += (size_t)n;
		head[len] = '\0';
		if (!strstr(head, "\r\n\r\n"))
			continue;
		len = 0;
		assert_int_equal(sscanf(head, "GET %4095s HTTP/1.1", path), 1);
		pthread_mutex_lock(&server.lock);
		memcpy(strchr(path, '?') ? server.list_head : server.heads, head, sizeof(head));
		pthread_mutex_unlock(&server.lock);
		keep = strchr(path, '?') ? answer_list(fd) : answer_get(fd, path, head);
		if (!keep)
			break;
	}
	(void)shutdown(fd, SHUT_RDWR);
	pthread_mutex_lock(&server.lock);
	(void)close(fd);
	*(int *)arg = -1;
	pthread_mutex_unlock(&server.lock);
	return NULL;
}

static void *accept_all(void *arg)
{
	(void)arg;
	for (;;) {
		int fd = accept(server.fd, NULL, NULL);

		if (fd < 0)
			return NULL;
		pthread_mutex_lock(&server.lock);
		assert_true(server.n_conns < CLIENTS);
		server.fds[server.n_conns] = fd;
		assert_int_equal(pthread_create(&server.conns[server.n_conns], NULL, serve,
					 &server.fds[server.n_conns]),
			0);
		server.n_conns++;
		pthread_mutex_unlock(&server.lock);
	}
}

static int start_server(void **state)
{
	struct sockaddr_in address = { .sin_family = AF_INET,
		.sin_addr = { htonl(INADDR_LOOPBACK) } };
	socklen_t len = sizeof(address);

	(void)state;
	memset(&server, 0, sizeof(server));
	pthread_mutex_init(&server.lock, NULL);
	pthread_cond_init(&server.news, NULL);
	server.blob = malloc(SIZE);
	for (uint32_t i = 0; i < SIZE; i++)
		server.blob[i] = data_at(i);
	server.fd = socket(AF_INET, SOCK_STREAM, 0);
	/* As in server.c: no body waits for the head's acknowledgement. */
	if (setsockopt(server.fd, IPPROTO_TCP, TCP_NODELAY, &(int){ 1 }, sizeof(int)) != 0 ||
		bind(server.fd, (struct sockaddr *)&address, sizeof(address)) != 0 ||
		listen(server.fd, 64) != 0 ||
		getsockname(server.fd, (struct sockaddr *)&address, &len) != 0)
		return -1;
	server.port = ntohs(address.sin_port);
	return pthread_create(&server.thread, NULL, accept_all, NULL);
}

static int stop_server(void **state)
{
	(void)state;
	(void)shutdown(server.fd, SHUT_RDWR);
	pthread_join(server.thread, NULL);
	(void)close(server.fd);
	pthread_mutex_lock(&server.lock);
	server.gate = false;
	pthread_cond_broadcast(&server.news);
	for (uint32_t i = 0; i < server.n_conns; i++)
		if (server.fds[i] >= 0)
			(void)shutdown(server.fds[i], SHUT_RDWR);
	pthread_mutex_unlock(&server.lock);
	for (uint32_t i = 0; i < server.n_conns; i++)
		pthread_join(server.conns[i], NULL);
	free(server.blob);
	return 0;
}

/* ---- the client ------------------------------------------------------------------------------ */

static struct ufs *open_origin_with(
	unsigned int max_requests, uint64_t timeout_ns, uint64_t deadline_ns)
{
	struct ufs_limits limits = { .max_requests = max_requests,
		.list_requests = 4,
		.request_timeout_ns = timeout_ns,
		.deadline_ns = deadline_ns };
	struct ufs_config config;
	struct err e = ERR_INIT;
	struct ufs *ufs = NULL;
	char endpoint[64];

	setenv("AWS_ACCESS_KEY_ID", "AKID", 1);
	setenv("AWS_SECRET_ACCESS_KEY", "SECRET", 1);
	setenv("AWS_SESSION_TOKEN", "TOKEN", 1);
	unsetenv("AWS_CA_BUNDLE");
	setenv("http_proxy", "http://127.0.0.1:1", 1); /* not for loopback */
	(void)snprintf(endpoint, sizeof(endpoint), "http://127.0.0.1:%u", server.port);
	assert_int_equal(ufs_config_parse("s3://bucket/pre fix", &config, NULL), 0);
	config.endpoint = strdup(endpoint);
	if (ufs_open(&config, &limits, &ufs, &e) != 0)
		fail_msg("%s", e.text);
	ufs_config_release(&config);
	return ufs;
}

/* No answer is late, however slow the machine is. */
static struct ufs *open_origin(unsigned int max_requests)
{
	return open_origin_with(max_requests, PATIENCE, PATIENCE);
}

/* Who says nothing so long is asked again. */
#define SILENCE (400 * CLOCK_MS)

struct wait {
	struct ufs_get get;
	pthread_mutex_t lock;
	pthread_cond_t news;
	_Atomic bool done;
	int status;
	_Atomic uint64_t progress;
	struct err e;
	char *buf;
};

static void on_progress(struct ufs_get *get, uint64_t bytes)
{
	struct wait *w = get->arg;

	assert_true(bytes > w->progress && bytes <= get->length);
	w->progress = bytes;
}

static void on_done(struct ufs_get *get, int status, const struct err *e)
{
	struct wait *w = get->arg;

	pthread_mutex_lock(&w->lock);
	w->done = true;
	w->status = status;
	if (e)
		w->e = *e;
	pthread_cond_signal(&w->news);
	pthread_mutex_unlock(&w->lock);
}

static struct wait *start(
	struct ufs *ufs, const char *key, uint64_t offset, uint64_t length, enum ufs_class class)
{
	struct wait *w = calloc(1, sizeof(*w));

	w->buf = calloc(1, length);
	pthread_mutex_init(&w->lock, NULL);
	pthread_cond_init(&w->news, NULL);
	w->get = (struct ufs_get){ .key = key,
		.key_len = (uint32_t)strlen(key),
		.tag = "tag",
		.tag_len = 3,
		.size = SIZE,
		.offset = offset,
		.length = length,
		.buf = w->buf,
		.class = class,
		.on_progress = on_progress,
		.on_done = on_done,
		.arg = w };
	assert_int_equal(ufs_get(ufs, &w->get), 0);
	return w;
}

static int finish(struct wait *w, struct err *e)
{
	int status;

	pthread_mutex_lock(&w->lock);
	while (!w->done)
		pthread_cond_wait(&w->news, &w->lock);
	pthread_mutex_unlock(&w->lock);
	status = w->status;
	if (status == 0) {
		assert_int_equal(w->get.got, w->get.length);
		for (uint64_t i = 0; i < w->get.length; i++)
			assert_int_equal(w->buf[i], data_at(w->get.offset + i));
	}
	if (e)
		*e = w->e;
	free(w->buf);
	free(w);
	return status;
}

static int get(struct ufs *ufs, const char *key, uint64_t offset, uint64_t length, struct err *e)
{
	return finish(start(ufs, key, offset, length, UFS_DEMAND), e);
}

/* ---- tests ----------------------------------------------------------------------------------- */

static void right_bytes(void **state)
{
	struct ufs *ufs = open_origin(4);
	struct wait *w;

	(void)state;
	assert_int_equal(get(ufs, "x", 0, SIZE, NULL), 0);
	assert_int_equal(get(ufs, "x", SIZE - 1, 1, NULL), 0);
	for (uint64_t i = 0; i < 50; i++)
		assert_int_equal(get(ufs, "x", i * 20011, 1 + i * 17, NULL), 0);
	w = start(ufs, "x", 0, SIZE, UFS_DEMAND);
	test_wait(w->done || w->progress > 0);
	assert_true(w->progress > 0);
	assert_int_equal(finish(w, NULL), 0);
	assert_int_equal(server.n_conns, 1); /* kept */
	assert_int_equal(counter_get(&ufs_counters(ufs)->gets), 53);
	assert_int_equal(counter_get(&ufs_counters(ufs)->in_flight), 0);
	assert_int_equal(counter_get(&ufs_counters(ufs)->retries), 0);
	ufs_free(ufs);
}

/* The server's threads write it: a copy. */
static const char *last_head(const char *from, char *out)
{
	pthread_mutex_lock(&server.lock);
	memcpy(out, from, sizeof(server.heads));
	pthread_mutex_unlock(&server.lock);
	return out;
}

/* What stands in the request: odd keys as they are, nothing that makes a server change the
 * bytes. */
static void request(void **state)
{
	static const char line[] =
		"GET /bucket/pre%20fix/a/../b//%2B%25%3F%23%C3%BC/./x HTTP/1.1\r\n";
	struct ufs *ufs = open_origin(4);
	char head[sizeof(server.heads)];

	(void)state;
	assert_int_equal(get(ufs, "a/../b//+%?#\xc3\xbc/./x", 5, 3, NULL), 0);
	assert_ptr_equal(strstr(last_head(server.heads, head), line), head);
	assert_non_null(strstr(last_head(server.heads, head), "\r\nRange: bytes=5-7\r\n"));
	assert_non_null(strstr(last_head(server.heads, head), "\r\nIf-Match: \"tag\"\r\n"));
	assert_non_null(
		strstr(last_head(server.heads, head), "\r\nx-amz-security-token: TOKEN\r\n"));
	assert_non_null(strstr(last_head(server.heads, head),
		"SignedHeaders=host;x-amz-content-sha256;x-amz-date;x-amz-security-token,"));
	assert_null(strcasestr(last_head(server.heads, head), "accept-encoding"));
	assert_null(strstr(last_head(server.heads, head), "SECRET"));
	/* A whole object is asked for without a range: some servers read ahead only then. */
	assert_int_equal(get(ufs, "whole", 0, SIZE, NULL), 0);
	assert_null(strcasestr(last_head(server.heads, head), "\r\nRange:"));
	assert_non_null(strstr(last_head(server.heads, head), "\r\nIf-Match: \"tag\"\r\n"));
	assert_int_equal(ufs_probe(ufs, NULL), -EPROTO); /* a key outside of the prefix */
	assert_non_null(strstr(last_head(server.list_head, head),
		"GET /bucket?encoding-type=url&list-type=2&max-keys=1&prefix=pre%20fix%2F HTTP"));
	ufs_free(ufs);
}

/* ---- several buffers: parts of the range, the last one first in memory --------------------------- */

#define PARTS 9u
#define PART  (PIECE_BYTES * 2)

static _Atomic uint64_t wanted;  /* bytes of the range */
static _Atomic uint64_t claimed; /* those that a call has named */

static char *part_of(struct wait *w, uint64_t i)
{
	return w->buf + (PARTS - 1 - i) * PART;
}

static int on_room(struct ufs_get *get, uint64_t at, struct ufs_room *ret_room)
{
	uint64_t end = min((at / PART + 1) * PART, wanted);

	*ret_room = (struct ufs_room){ 0 };
	claimed = max((uint64_t)claimed, end);
	if (at < wanted)
		*ret_room = (struct ufs_room){ .buf = part_of(get->arg, at / PART) + at % PART,
			.length = end - at,
			.left = wanted - at };
	return 0;
}

/* Three parts are wanted as soon as bytes of the first one came, if no more are claimed by then. */
static void on_progress_less(struct ufs_get *get, uint64_t bytes)
{
	on_progress(get, bytes);
	wanted = max((uint64_t)claimed, (uint64_t)3 * PART);
}

static int get_parts(struct ufs *ufs, const char *key, uint64_t offset, uint64_t length, bool less)
{
	struct wait *w = calloc(1, sizeof(*w));
	int status;

	w->buf = calloc(PARTS, PART);
	pthread_mutex_init(&w->lock, NULL);
	pthread_cond_init(&w->news, NULL);
	wanted = length;
	claimed = 0;
	w->get = (struct ufs_get){ .key = key,
		.key_len = (uint32_t)strlen(key),
		.tag = "tag",
		.tag_len = 3,
		.size = SIZE,
		.offset = offset,
		.length = length,
		.class = UFS_FILL,
		.on_room = on_room,
		.on_progress = less ? on_progress_less : on_progress,
		.on_done = on_done,
		.arg = w };
	assert_int_equal(ufs_get(ufs, &w->get), 0);
	pthread_mutex_lock(&w->lock);
	while (!w->done)
		pthread_cond_wait(&w->news, &w->lock);
	pthread_mutex_unlock(&w->lock);
	status = w->status;
	if (status == 0)
		assert_int_equal(w->get.got, wanted);
	for (uint64_t i = 0; status == 0 && i < PARTS * PART; i++)
		assert_int_equal(
			part_of(w, i / PART)[i % PART], i < wanted ? data_at(offset + i) : 0);
	free(w->buf);
	free(w);
	return status;
}

static void several_buffers(void **state)
{
	static const char *const breaking[] = { "short", "reset", "x" };
	struct ufs *ufs = open_origin(4);
	char head[sizeof(server.heads)];

	(void)state;
	assert_true(ufs_range_bytes(ufs) == CHUNK_BYTES);
	assert_int_equal(get_parts(ufs, "x", PART - 5, 7 * PART + 6, false), 0);
	assert_int_equal(
		get_parts(ufs, "x", 0, SIZE, false), 0); /* by a range, as its parts may be fewer */
	assert_non_null(strcasestr(last_head(server.heads, head), "\r\nRange:"));
	assert_null(strcasestr(last_head(server.heads, head), "checksum-mode"));
	assert_int_equal(
		get_parts(ufs, "ignores", 0, SIZE, false), 0);         /* 200: all of it is right */
	assert_int_equal(get_parts(ufs, "summed", 0, SIZE, false), 0); /* which nobody asked for */
	assert_int_equal(get_parts(ufs, "x", 3, 8 * PART - 1, true), 0);
	assert_int_equal(counter_get(&ufs_counters(ufs)->errors), 0); /* being cut off is none */
	assert_int_equal(get_parts(ufs, "etag", 0, SIZE, false), -ESTALE);
	/* What breaks off is asked for from there on; what is not wanted any more is not taken. */
	for (size_t i = 0; i < ARRAY_SIZE(breaking); i++) {
		assert_int_equal(get_parts(ufs, breaking[i], 3, 8 * PART - 1, false), 0);
		assert_int_equal(get_parts(ufs, breaking[i], 3, 8 * PART - 1, true), 0);
	}
	assert_int_equal(counter_get(&ufs_counters(ufs)->cause_long_body), 0);
	assert_int_equal(counter_get(&ufs_counters(ufs)->in_flight), 0);
	ufs_free(ufs);
}

static void refusals(void **state)
{
	static const struct {
		const char *key;
		int want;
		unsigned int requests; /* what is said of the object: twice */
		const char *text;
	} cases[] = {
		{ "etag", -ESTALE, 2, "changed" },
		{ "total", -ESTALE, 2, "changed" },
		{ "gone", -ENOENT, 2, "gone" },
		{ "changed", -ESTALE, 2, "changed" },
	};
	struct ufs *ufs = open_origin(4);
	unsigned int requests = 0;

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct err e = ERR_INIT;
		int r = get(ufs, cases[i].key, 10, 1000, &e);

		if (r != cases[i].want)
			fail_msg("%s: %d %s", cases[i].key, r, e.text);
		if (!strstr(e.text, cases[i].text))
			fail_msg("%s: %s", cases[i].key, e.text);
		requests += cases[i].requests;
		assert_int_equal(server.requests, requests);
	}
	assert_int_equal(counter_get(&ufs_counters(ufs)->stale), 6);
	assert_int_equal(counter_get(&ufs_counters(ufs)->cause_wrong_etag), 6);
	assert_int_equal(counter_get(&ufs_counters(ufs)->cause_not_found), 2);
	ufs_free(ufs);
}

/* What an operator can mend, or a proxy may stop doing: waited for until the deadline. */
static void waits_for_mending(void **state)
{
	static const struct {
		const char *key;
		const char *text;
		size_t counter;
	} cases[] = {
		{ "range", "range", offsetof(struct ufs_counters, cause_wrong_range) },
		{ "ignores", "Range", offsetof(struct ufs_counters, cause_wrong_range) },
		{ "denied", "AKID", offsetof(struct ufs_counters, cause_forbidden) },
		{ "silent", "no answer", offsetof(struct ufs_counters, cause_stall) },
		{ "page", "page for people", offsetof(struct ufs_counters, cause_not_s3) },
		{ "long", "bytes where", offsetof(struct ufs_counters, cause_long_body) },
		{ "flood", "more bytes", offsetof(struct ufs_counters, cause_long_body) },
		{ "gzip", "Content-Encoding", offsetof(struct ufs_counters, cause_encoding) },
		{ "empty", "ETag", offsetof(struct ufs_counters, cause_not_s3) },
		{ "same", "304", offsetof(struct ufs_counters, cause_not_s3) },
		{ "other", "another host", offsetof(struct ufs_counters, cause_redirect) },
		{ "key", "AKID", offsetof(struct ufs_counters, cause_key) },
		{ "clock", "clock", offsetof(struct ufs_counters, cause_clock) },
	};

	struct ufs *ufs[ARRAY_SIZE(cases)];
	struct wait *waits[ARRAY_SIZE(cases)];
	uint64_t t = clock_mono_ns();

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		/* Others' answers are not late, or that would be what is told of them. */
		ufs[i] = open_origin_with(4,
			cases[i].counter == offsetof(struct ufs_counters, cause_stall) ? SILENCE
										       : PATIENCE,
			5 * CLOCK_SECOND);
		waits[i] = start(ufs[i], cases[i].key, 10, 1000, UFS_DEMAND);
	}
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct err e = ERR_INIT;
		int r = finish(waits[i], &e);

		if (r != -ETIMEDOUT || !strstr(e.text, cases[i].text))
			fail_msg("%s: %d %s", cases[i].key, r, e.text);
		assert_true(clock_mono_ns() - t > 4 * CLOCK_SECOND);
		assert_true(
			counter_get((const counter_t *)(const void *)((const char *)ufs_counters(
									      ufs[i]) +
								      cases[i].counter)) >= 2);
		ufs_free(ufs[i]);
	}
}

static void passing_failures(void **state)
{
	static const char *const keys[] = { "short", "reset", "stall", "busy", "broken", "mute",
		"gateway" };
	struct ufs *ufs = open_origin_with(4, SILENCE, PATIENCE);

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(keys); i++) {
		struct err e = ERR_INIT;

		server.requests = 0;
		if (get(ufs, keys[i], 1000, SIZE - 2000, &e) != 0)
			fail_msg("%s: %s", keys[i], e.text);
		assert_true(server.requests >= 2);
	}
	assert_true(counter_get(&ufs_counters(ufs)->overloads) >= 2);
	assert_true(counter_get(&ufs_counters(ufs)->window_cuts) >= 1);
	assert_true(counter_get(&ufs_counters(ufs)->timeouts) >= 1);
	assert_true(counter_get(&ufs_counters(ufs)->retries) >= 7);
	ufs_free(ufs);
}

static void wait_for_requests(uint32_t n)
{
	pthread_mutex_lock(&server.lock);
	while (server.requests < n)
		pthread_cond_wait(&server.news, &server.lock);
	pthread_mutex_unlock(&server.lock);
}

static void open_gate(void)
{
	pthread_mutex_lock(&server.lock);
	server.gate = false;
	pthread_cond_broadcast(&server.news);
	pthread_mutex_unlock(&server.lock);
}

/* Prefetch leaves a quarter of the places to demand, and demand goes before what waits. */
static void classes(void **state)
{
	struct ufs *ufs = open_origin(8);
	struct wait *low[20], *demand, *promoted;
	char keys[ARRAY_SIZE(low)][8];

	(void)state;
	server.gate = true;
	for (size_t i = 0; i < ARRAY_SIZE(low); i++) {
		(void)snprintf(keys[i], sizeof(keys[i]), "%c%zu", i < 10 ? 'p' : 'f', i);
		low[i] = start(ufs, keys[i], 0, 1, i < 10 ? UFS_PREFETCH : UFS_FILL);
	}
	wait_for_requests(6);
	test_advance(50 * CLOCK_MS);
	assert_int_equal(server.requests, 6); /* of 8 places */
	assert_int_equal(counter_get(&ufs_counters(ufs)->queued), 14);
	demand = start(ufs, "d", 0, 1, UFS_DEMAND);
	promoted = start(ufs, "u", 0, 1, UFS_PREFETCH);
	wait_for_requests(7);
	assert_int_equal(server.order[7], 'd');
	ufs_promote(ufs, &promoted->get, UFS_DEMAND);
	wait_for_requests(8);
	assert_int_equal(server.order[8], 'u');
	open_gate();
	assert_int_equal(finish(demand, NULL), 0);
	assert_int_equal(finish(promoted, NULL), 0);
	for (size_t i = 0; i < ARRAY_SIZE(low); i++)
		assert_int_equal(finish(low[i], NULL), 0);
	assert_true(server.peak <= 8);
	ufs_free(ufs);
}

static void start_some(struct ufs *ufs, struct wait **waits, char (*keys)[24], size_t n,
	char letter, enum ufs_class class)
{
	for (size_t i = 0; i < n; i++) {
		(void)snprintf(keys[i], sizeof(keys[i]), "%zu%c", i, letter);
		waits[i] = start(ufs, keys[i], 0, 1, class);
	}
}

/* Readers' requests fill the way: of the others two go on, and all once the readers are served. Without readers more go. */
static void low_gives_way(void **state)
{
	struct ufs *ufs = open_origin(64);
	struct wait *demand[BACKGROUND_FIRST], *low[2 * BACKGROUND_FIRST];
	char demand_keys[ARRAY_SIZE(demand)][24], low_keys[ARRAY_SIZE(low)][24];

	(void)state;
	server.gate = true;
	start_some(ufs, demand, demand_keys, ARRAY_SIZE(demand), 'd', UFS_DEMAND);
	wait_for_requests(ARRAY_SIZE(demand));
	start_some(ufs, low, low_keys, ARRAY_SIZE(low), 'l', UFS_FILL);
	wait_for_requests(ARRAY_SIZE(demand) + BACKGROUND_LEAST);
	test_advance(50 * CLOCK_MS);
	assert_int_equal(server.requests, ARRAY_SIZE(demand) + BACKGROUND_LEAST);
	assert_int_equal(
		counter_get(&ufs_counters(ufs)->queued), ARRAY_SIZE(low) - BACKGROUND_LEAST);
	open_gate();
	for (size_t i = 0; i < ARRAY_SIZE(demand); i++)
		assert_int_equal(finish(demand[i], NULL), 0);
	for (size_t i = 0; i < ARRAY_SIZE(low); i++)
		assert_int_equal(finish(low[i], NULL), 0);
	test_advance(2 * CLOCK_SECOND); /* no reader any more */
	server.gate = true;
	start_some(ufs, low, low_keys, ARRAY_SIZE(low), 'a', UFS_FILL);
	wait_for_requests(ARRAY_SIZE(demand) + 2 * ARRAY_SIZE(low));
	open_gate();
	for (size_t i = 0; i < ARRAY_SIZE(low); i++)
		assert_int_equal(finish(low[i], NULL), 0);
	ufs_free(ufs);
}

/* One in progress, one waiting for a place, one between two attempts; the others are not touched. */
static void cancels(void **state)
{
	struct ufs *ufs = open_origin(2);
	struct wait *under_way, *gated, *waiting, *other;

	(void)state;
	server.gate = true;
	under_way = start(ufs, "x", 0, 100, UFS_DEMAND);
	gated = start(ufs, "x", 0, 100, UFS_DEMAND);
	wait_for_requests(2);
	waiting = start(ufs, "x", 0, 100, UFS_DEMAND);
	other = start(ufs, "x", 100, 100, UFS_DEMAND);
	ufs_cancel(ufs, &waiting->get);
	assert_int_equal(finish(waiting, NULL), -ECANCELED);
	ufs_cancel(ufs, &under_way->get);
	assert_int_equal(finish(under_way, NULL), -ECANCELED); /* the gate is still closed */
	pthread_mutex_lock(&server.lock);
	server.gate = false;
	pthread_cond_broadcast(&server.news);
	pthread_mutex_unlock(&server.lock);
	assert_int_equal(finish(gated, NULL), 0);
	assert_int_equal(finish(other, NULL), 0);
	waiting = start(ufs, "denied", 0, 100, UFS_DEMAND);
	test_wait(counter_get(&ufs_counters(ufs)->cause_forbidden) >= 4);
	ufs_cancel(ufs, &waiting->get);
	assert_int_equal(finish(waiting, NULL), -ECANCELED);
	ufs_free(ufs);
}

/* Waiting ones, those in progress and those between two attempts end at once. */
static void closing(void **state)
{
	struct ufs *ufs = open_origin(4);
	struct wait *w[20];
	uint64_t t;

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(w); i++)
		w[i] = start(ufs, i < 2 ? "denied" : "never", 0, 100, UFS_DEMAND);
	wait_for_requests(6); /* the two that were refused, and one for each place */
	t = clock_mono_ns();
	ufs_free(ufs);
	assert_true(clock_mono_ns() - t < PATIENCE / 2); /* all of it otherwise */
	for (size_t i = 0; i < ARRAY_SIZE(w); i++)
		assert_int_equal(finish(w[i], NULL), -ECANCELED);
}

static void nobody_there(void **state)
{
	struct ufs *ufs;
	struct err e = ERR_INIT;
	uint16_t port = server.port;
	uint64_t t = clock_mono_ns();

	(void)state;
	server.port = 1;
	ufs = open_origin(4);
	server.port = port;
	assert_int_equal(ufs_probe(ufs, &e), -ECONNREFUSED);
	assert_true(clock_mono_ns() - t < PATIENCE / 2); /* all of it otherwise */
	assert_non_null(strstr(e.text, "http://127.0.0.1:1"));
	ufs_free(ufs);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(right_bytes, start_server, stop_server),
		cmocka_unit_test_setup_teardown(request, start_server, stop_server),
		cmocka_unit_test_setup_teardown(several_buffers, start_server, stop_server),
		cmocka_unit_test_setup_teardown(refusals, start_server, stop_server),
		cmocka_unit_test_setup_teardown(waits_for_mending, start_server, stop_server),
		cmocka_unit_test_setup_teardown(passing_failures, start_server, stop_server),
		cmocka_unit_test_setup_teardown(classes, start_server, stop_server),
		cmocka_unit_test_setup_teardown(low_gives_way, start_server, stop_server),
		cmocka_unit_test_setup_teardown(cancels, start_server, stop_server),
		cmocka_unit_test_setup_teardown(closing, start_server, stop_server),
		cmocka_unit_test_setup_teardown(nobody_there, start_server, stop_server),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
