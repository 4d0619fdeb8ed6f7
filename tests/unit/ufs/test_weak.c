/* Objects with weak ETags, from a server by the book: whatever If-Match asks for, a weak one is not it. */
#include "tests/unit/ufs/server.h"
#include "ufs/s3_tag.h"
#include "ufs/ufs.h"
#include "base/clock.h"

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#define SIZE   6000u
#define PIECE  1000u
#define PIECES (SIZE / PIECE)

static struct {
	const char *listed; /* as the bucket says it */
	const char *etag;   /* of what is there */
	uint32_t gets, conditions;
	char blob[SIZE];
} bucket;
static struct server server;

static void put_list(int fd)
{
	char body[512], head[100];
	int n = snprintf(body, sizeof(body),
		"<ListBucketResult><IsTruncated>false</IsTruncated><Contents><Key>x</Key>"
		"<Size>%u</Size><ETag>%s</ETag></Contents></ListBucketResult>",
		SIZE, bucket.listed);

	(void)snprintf(head, sizeof(head), "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n", n);
	server_puts(fd, head);
	server_puts(fd, body);
}

static void put_object(int fd, const char *head)
{
	const char *range = strcasestr(head, "\r\nRange: bytes=");
	unsigned int first = 0, last = SIZE - 1;
	char text[300];

	bucket.gets++;
	if (strcasestr(head, "\r\nIf-Match:")) {
		bucket.conditions++;
		if (strncmp(bucket.etag, "W/", 2) == 0) {
			server_error(fd, 412, "PreconditionFailed", "");
			return;
		}
	}
	if (range)
		assert_int_equal(sscanf(range, "\r\nRange: bytes=%u-%u", &first, &last), 2);
	(void)snprintf(text, sizeof(text),
		"HTTP/1.1 %s\r\nETag: %s\r\nContent-Length: %u\r\n"
		"Content-Range: bytes %u-%u/%u\r\n\r\n",
		range ? "206 Partial Content" : "200 OK", bucket.etag, last - first + 1, first,
		last, SIZE);
	server_puts(fd, text);
	server_put(fd, bucket.blob + first, last - first + 1);
}

static bool answer(struct server *s, int fd, const char *head)
{
	pthread_mutex_lock(&s->lock);
	if (strstr(head, "?versioning"))
		server_error(fd, 501, "NotImplemented", "");
	else if (strchr(head, '?'))
		put_list(fd);
	else
		put_object(fd, head);
	pthread_mutex_unlock(&s->lock);
	return true;
}

static int setup(void **state)
{
	(void)state;
	memset(&bucket, 0, sizeof(bucket));
	for (uint32_t i = 0; i < SIZE; i++)
		bucket.blob[i] = (char)(i * 7 + i / 300);
	server_start(&server, answer, NULL);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	server_stop(&server);
	return 0;
}

static struct ufs *open_origin(void)
{
	struct ufs_limits limits = { .max_requests = 8,
		.list_requests = 1,
		.request_timeout_ns = 60 * CLOCK_SECOND,
		.deadline_ns = 60 * CLOCK_SECOND };
	struct ufs_config config;
	struct ufs *ufs;
	char endpoint[64];

	setenv("AWS_ACCESS_KEY_ID", "AKID", 1);
	setenv("AWS_SECRET_ACCESS_KEY", "SECRET", 1);
	(void)snprintf(endpoint, sizeof(endpoint), "http://127.0.0.1:%u", server.port);
	assert_int_equal(ufs_config_parse("s3://bucket/", &config, NULL), 0);
	config.endpoint = strdup(endpoint);
	assert_int_equal(ufs_open(&config, &limits, &ufs, NULL), 0);
	ufs_config_release(&config);
	return ufs;
}

struct part {
	struct ufs_get get;
	pthread_mutex_t lock;
	pthread_cond_t news;
	bool done;
	int status;
	char buf[SIZE];
};

static void on_done(struct ufs_get *get, int status, const struct err *e)
{
	struct part *p = get->arg;

	(void)e;
	pthread_mutex_lock(&p->lock);
	p->done = true;
	p->status = status;
	pthread_cond_signal(&p->news);
	pthread_mutex_unlock(&p->lock);
}

static struct part *start(struct ufs *ufs, const char *tag, uint64_t offset, uint64_t length)
{
	struct part *p = calloc(1, sizeof(*p));

	pthread_mutex_init(&p->lock, NULL);
	pthread_cond_init(&p->news, NULL);
	p->get = (struct ufs_get){ .key = "x",
		.key_len = 1,
		.tag = tag,
		.tag_len = (uint32_t)strlen(tag),
		.size = SIZE,
		.offset = offset,
		.length = length,
		.buf = p->buf,
		.on_done = on_done,
		.arg = p };
	assert_int_equal(ufs_get(ufs, &p->get), 0);
	return p;
}

static int finish(struct part *p)
{
	int status;

	pthread_mutex_lock(&p->lock);
	while (!p->done)
		pthread_cond_wait(&p->news, &p->lock);
	pthread_mutex_unlock(&p->lock);
	status = p->status;
	if (status == 0)
		assert_memory_equal(p->buf, bucket.blob + p->get.offset, p->get.length);
	free(p);
	return status;
}

static int take_tag(void *arg, const struct ufs_object *objects, uint32_t n)
{
	assert_int_equal(n, 1);
	(void)snprintf(arg, 64, "%.*s", (int)objects->tag_len, objects->tag);
	return 0;
}

/* Without a condition, whole and in pieces at one time; each piece notices that the object is another one now. */
static void read_and_compared(void **state)
{
	struct ufs *ufs = open_origin();
	struct part *parts[PIECES];
	char tag[64] = "";

	(void)state;
	bucket.listed = "W/&quot;1-a&quot;";
	bucket.etag = "W/\"1-a\"";
	assert_int_equal(ufs_list(ufs, take_tag, tag, NULL), 0);
	assert_int_equal(finish(start(ufs, tag, 0, SIZE)), 0);
	for (uint32_t i = 0; i < PIECES; i++)
		parts[i] = start(ufs, tag, i * PIECE, PIECE);
	for (uint32_t i = 0; i < PIECES; i++)
		assert_int_equal(finish(parts[i]), 0);
	assert_int_equal(bucket.gets, PIECES + 1);
	assert_int_equal(bucket.conditions, 0);
	bucket.etag = "W/\"1-b\"";
	for (uint32_t i = 0; i < PIECES; i++)
		parts[i] = start(ufs, tag, i * PIECE, PIECE);
	for (uint32_t i = 0; i < PIECES; i++)
		assert_int_equal(finish(parts[i]), -ESTALE);
	assert_int_equal(bucket.conditions, 0);
	ufs_free(ufs);
}

/* A strong one is a condition as ever, as is one of a table that was stored without its W/. */
static void strong(void **state)
{
	struct ufs *ufs = open_origin();
	char tag[64] = "";

	(void)state;
	bucket.listed = "&quot;1-a&quot;";
	bucket.etag = "\"1-a\"";
	assert_int_equal(ufs_list(ufs, take_tag, tag, NULL), 0);
	assert_string_equal(tag, "1-a");
	assert_int_equal(finish(start(ufs, tag, 0, SIZE)), 0);
	assert_int_equal(bucket.conditions, 1);
	bucket.etag = "W/\"1-a\"";
	assert_int_equal(finish(start(ufs, tag, 0, SIZE)), -ESTALE);
	ufs_free(ufs);
}

/* What services write, and how it stands in a tag. */
static void tags(void **state)
{
	static const struct {
		const char *listed, *tag, *etag;
		bool weak;
	} cases[] = {
		{ "W/&quot;a&quot;", "W/\"a\"", "a", true },
		{ "W/a", "W/\"a\"", "a", true },
		{ "&quot;W/a&quot;", "W/a", "W/a", false },
		{ "&quot;a&quot;", "a", "a", false },
		{ "W/&quot;v:a&quot;", "W/\"v:a\"", "v:a", true },
		{ "W/&quot;&quot;", "lm:0", "lm:0", false },
	};
	struct ufs *ufs = open_origin();

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		char tag[64] = "";
		struct s3_tag t;

		bucket.listed = cases[i].listed;
		assert_int_equal(ufs_list(ufs, take_tag, tag, NULL), 0);
		assert_string_equal(tag, cases[i].tag);
		t = s3_tag_of(tag, (uint32_t)strlen(tag));
		assert_int_equal(t.weak, cases[i].weak);
		assert_int_equal(t.etag_len, strlen(cases[i].etag));
		assert_memory_equal(t.etag, cases[i].etag, t.etag_len);
	}
	ufs_free(ufs);
}

/* An etag of the greatest length is not refused for the four characters that say it is weak. */
static void longest(void **state)
{
	struct ufs *ufs = open_origin();
	char etag[LIMIT_TAG_BYTES + 1];
	char listed[LIMIT_TAG_BYTES + 32];
	char tag[LIMIT_TAG_BYTES + 1] = "";

	(void)state;
	memset(etag, 'a', LIMIT_TAG_BYTES);
	etag[LIMIT_TAG_BYTES] = '\0';
	(void)snprintf(listed, sizeof(listed), "W/&quot;%s&quot;", etag);
	bucket.listed = listed;
	assert_int_equal(ufs_list(ufs, take_tag, tag, NULL), 0);
	assert_int_equal(strncmp(tag, etag, 63), 0);
	ufs_free(ufs);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(read_and_compared, setup, teardown),
		cmocka_unit_test_setup_teardown(strong, setup, teardown),
		cmocka_unit_test_setup_teardown(tags, setup, teardown),
		cmocka_unit_test_setup_teardown(longest, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
