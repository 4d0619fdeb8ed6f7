/* The S3 origin against servers that break the rules of HTTP, or take for ever. */
#include "tests/unit/ufs/server.h"
#include "ufs/ufs.h"
#include "base/clock.h"
#include "tests/clock/test_clock.h"

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#define SIZE     200000u
#define PATIENCE (60 * CLOCK_SECOND) /* for what must come */

static struct server server;
static _Atomic uint32_t requests;
static _Atomic bool gate; /* no answer */
static char blob[SIZE];

static struct ufs *open_origin(unsigned int max_requests, uint64_t deadline_ns)
{
	struct ufs_limits limits = { .max_requests = max_requests,
		.list_requests = 4,
		.request_timeout_ns = 60 * CLOCK_SECOND, /* none is made once more for being late */
		.deadline_ns = deadline_ns };
	struct ufs_config config;
	struct ufs *ufs = NULL;
	char endpoint[64];

	setenv("AWS_ACCESS_KEY_ID", "AKID", 1);
	setenv("AWS_SECRET_ACCESS_KEY", "SECRET", 1);
	(void)snprintf(endpoint, sizeof(endpoint), "http://127.0.0.1:%u", server.port);
	assert_int_equal(ufs_config_parse("s3://bucket/", &config, NULL), 0);
	config.endpoint = strdup(endpoint);
	assert_int_equal(ufs_open(&config, &limits, &ufs, NULL), 0);
	ufs_config_release(&config);
	for (uint32_t i = 0; i < SIZE; i++)
		blob[i] = (char)(i * 13 + i / 999);
	requests = 0;
	return ufs;
}

struct wait {
	struct ufs_get get;
	_Atomic bool done;
	int status;
	_Atomic uint64_t shown;
	_Atomic bool wrong; /* a byte that was shown */
	char buf[SIZE];
};

static void on_progress(struct ufs_get *get, uint64_t bytes)
{
	struct wait *w = get->arg;

	if (bytes < w->shown || memcmp(w->buf, blob, bytes) != 0)
		w->wrong = true;
	w->shown = bytes;
}

static void on_done(struct ufs_get *get, int status, const struct err *e)
{
	struct wait *w = get->arg;

	(void)e;
	w->status = status;
	w->done = true;
}

static struct wait *start(struct ufs *ufs, enum ufs_class class)
{
	struct wait *w = calloc(1, sizeof(*w));

	w->get = (struct ufs_get){ .key = "k",
		.key_len = 1,
		.tag = "tag",
		.tag_len = 3,
		.size = SIZE,
		.length = SIZE,
		.buf = w->buf,
		.class = class,
		.on_progress = on_progress,
		.on_done = on_done,
		.arg = w };
	assert_int_equal(ufs_get(ufs, &w->get), 0);
	return w;
}

static int finish(struct wait *w)
{
	int status;

	test_wait(w->done);
	status = w->status;
	assert_false(w->wrong);
	if (status == 0)
		assert_memory_equal(w->buf, blob, SIZE);
	free(w);
	return status;
}

static void put_head(int fd, const char *head, const char *more, unsigned int start)
{
	char text[512];
	int n = snprintf(text, sizeof(text),
		"HTTP/1.1 206 x\r\nETag: \"tag\"\r\nContent-Range: bytes %u-%u/%u\r\n%s%s\r\n",
		start, SIZE - 1, SIZE, head, more);

	server_put(fd, text, (size_t)n);
}

static void put_chunk(int fd, const char *data, size_t len)
{
	char size[32];

	(void)snprintf(size, sizeof(size), "%zx\r\n", len);
	server_puts(fd, size);
	server_put(fd, data, len);
	server_puts(fd, "\r\n");
}

static unsigned int start_of(const char *head)
{
	const char *range = strcasestr(head, "\r\nRange: bytes=");
	unsigned int start = 0;

	if (range)
		(void)sscanf(range, "\r\nRange: bytes=%u-", &start);
	return start;
}

static void put_rest(int fd, const char *head)
{
	unsigned int start = start_of(head);
	char length[64];

	(void)snprintf(length, sizeof(length), "Content-Length: %u\r\n", SIZE - start);
	put_head(fd, length, "", start);
	server_put(fd, blob + start, SIZE - start);
}

/* The first answer has half of the bytes, and behind them a trailer that is another answer. */
static bool answer_trailer(struct server *s, int fd, const char *head)
{
	(void)s;
	if (requests++) {
		put_rest(fd, head);
		return true;
	}
	put_head(fd, "Transfer-Encoding: chunked\r\nTrailer: x\r\n", "", 0);
	put_chunk(fd, blob, SIZE / 2);
	server_puts(fd, "0\r\nHTTP/1.1 307 x\r\nx-amz-bucket-region: else-where-1\r\n"
			"Content-Length: 5\r\n\r\n");
	return true;
}

static void trailer(void **state)
{
	struct ufs *ufs;

	(void)state;
	server_start(&server, answer_trailer, NULL);
	ufs = open_origin(4, PATIENCE);
	assert_int_equal(finish(start(ufs, UFS_DEMAND)), 0);
	ufs_free(ufs);
	server_stop(&server);
}

/* The length that is promised is right, but the chunks hold more, and other bytes. */
static bool answer_chunks(struct server *s, int fd, const char *head)
{
	char wrong[SIZE];

	(void)s;
	if (requests++) {
		put_rest(fd, head);
		return true;
	}
	memset(wrong, 'w', sizeof(wrong));
	put_head(fd, "Content-Length: 200000\r\nTransfer-Encoding: chunked\r\n", "", 0);
	put_chunk(fd, wrong, SIZE - 10);
	put_chunk(fd, wrong, 20);
	server_puts(fd, "0\r\n\r\n");
	return false;
}

static void chunks(void **state)
{
	struct ufs *ufs;

	(void)state;
	server_start(&server, answer_chunks, NULL);
	ufs = open_origin(4, PATIENCE);
	assert_int_equal(finish(start(ufs, UFS_DEMAND)), 0);
	ufs_free(ufs);
	server_stop(&server);
}

/* A whole object in chunks, as a proxy sends it that does not know how much will come. The first answer
 * ends too early, the second too late, and both have other bytes: nothing of them may be shown. */
static bool answer_whole_in_chunks(struct server *s, int fd, const char *head)
{
	static char wrong[SIZE];
	uint32_t nth = requests++;

	(void)s;
	(void)head;
	memset(wrong, 'w', sizeof(wrong));
	server_puts(fd, "HTTP/1.1 200 OK\r\nETag: \"tag\"\r\nTransfer-Encoding: chunked\r\n\r\n");
	if (nth == 0)
		put_chunk(fd, wrong, SIZE - 10);
	if (nth == 1)
		put_chunk(fd, wrong, SIZE);
	if (nth == 1)
		put_chunk(fd, wrong, 20);
	if (nth > 1)
		put_chunk(fd, blob, SIZE);
	server_puts(fd, "0\r\n\r\n");
	return nth != 1;
}

static void whole_in_chunks(void **state)
{
	struct ufs *ufs;

	(void)state;
	server_start(&server, answer_whole_in_chunks, NULL);
	ufs = open_origin(4, PATIENCE);
	assert_int_equal(finish(start(ufs, UFS_DEMAND)), 0);
	assert_int_equal(requests, 3);
	ufs_free(ufs);
	server_stop(&server);
}

/* Enough bytes that no attempt is given up for want of progress, and never the last. */
static bool answer_slowly(struct server *s, int fd, const char *head)
{
	char byte;

	(void)s;
	(void)head;
	server_puts(fd, "HTTP/1.1 200 OK\r\nContent-Length: 16000000\r\n\r\n<ListBucketResult>");
	while (recv(fd, &byte, 1, MSG_DONTWAIT) < 0) { /* until it is closed */
		server_put(fd, blob, 2000);
		test_advance(10 * CLOCK_MS);
	}
	return false;
}

static void slow_list(void **state)
{
	struct ufs *ufs;

	(void)state;
	server_start(&server, answer_slowly, NULL);
	ufs = open_origin(4, CLOCK_SECOND);
	memset(blob, ' ', sizeof(blob));
	assert_int_equal(ufs_probe(ufs, NULL), -ETIMEDOUT);
	ufs_free(ufs);
	server_stop(&server);
}

static bool answer_late(struct server *s, int fd, const char *head)
{
	(void)s;
	requests++;
	test_wait(!gate);
	put_rest(fd, head);
	return true;
}

/* What was given up while it waited stays so, even if somebody comes to wait for it right then. */
static void cancelled_and_promoted(void **state)
{
	struct wait *waiting[200];
	struct wait *first;
	struct ufs *ufs;

	(void)state;
	gate = true;
	server_start(&server, answer_late, NULL);
	ufs = open_origin(1, PATIENCE);
	first = start(ufs, UFS_DEMAND);
	test_wait(requests > 0);
	for (size_t i = 0; i < ARRAY_SIZE(waiting); i++) {
		waiting[i] = start(ufs, UFS_PREFETCH);
		ufs_cancel(ufs, &waiting[i]->get);
		ufs_promote(ufs, &waiting[i]->get, UFS_DEMAND);
	}
	gate = false;
	for (size_t i = 0; i < ARRAY_SIZE(waiting); i++)
		assert_int_equal(finish(waiting[i]), -ECANCELED);
	assert_int_equal(finish(first), 0);
	ufs_free(ufs);
	server_stop(&server);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(trailer),
		cmocka_unit_test(chunks),
		cmocka_unit_test(whole_in_chunks),
		cmocka_unit_test(slow_list),
		cmocka_unit_test(cancelled_and_promoted),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
