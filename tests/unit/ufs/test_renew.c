/*
 * A bucket in another region, keys that change, no keys at all, and an origin that refuses what is
 * beyond its capacity: the S3 origin against a server that checks what it is sent.
 */
#include "tests/unit/ufs/server.h"
#include "ufs/ufs.h"
#include "base/clock.h"
#include "tests/clock/test_clock.h"

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#define SIZE 1000u

/* What the server wants, and what it saw. */
struct script {
	pthread_mutex_t lock;
	char region[32];   /* signatures for another one are refused; "" any */
	char token[32];    /* "" any */
	char key[32];      /* "" any */
	bool anonymous;    /* no signature at all */
	bool no_versions;  /* they may not be read by their ids */
	char host[64];     /* how the Host header begins; "" any */
	uint32_t capacity; /* 503 beyond so many GETs at once; 0: no bound */
	uint64_t delay_ns; /* of a GET */
	uint32_t inside, peak;
	uint32_t requests, refused, by_version, looked;
	char head[SERVER_HEAD]; /* the last one */
};

static struct server server;
static struct script script;
static char dir[] = "/tmp/granary-renew-XXXXXX";
static char credentials_file[64];

/* Whether `before`, `text` and `after` stand there; an empty text stands everywhere. */
static bool has(const char *head, const char *before, const char *text, const char *after)
{
	char want[200];

	(void)snprintf(want, sizeof(want), "%s%s%s", before, text, after);
	return !*text || strstr(head, want);
}

/* NULL: all is as it is wanted. */
static const char *refusal(const char *head, const char **ret_more)
{
	static _Thread_local char more[100];

	*ret_more = "";
	if (script.anonymous)
		return strcasestr(head, "\r\nauthorization:") || strcasestr(head, "x-amz-date")
			       ? "AccessDenied"
			       : NULL;
	if (!has(head, "\r\nHost: ", script.host, ""))
		return "NoSuchBucket";
	if (!has(head, "Credential=", script.key, "/"))
		return "InvalidAccessKeyId";
	if (!has(head, "\r\nx-amz-security-token: ", script.token, "\r\n"))
		return "ExpiredToken";
	if (!has(head, "/", script.region, "/s3/aws4_request")) {
		(void)snprintf(more, sizeof(more), "<Region>%s</Region>", script.region);
		*ret_more = more;
		return "AuthorizationHeaderMalformed";
	}
	return NULL;
}

static void put_object(int fd, const char *head)
{
	const char *range = strcasestr(head, "\r\nRange: bytes=");
	unsigned long long start = 0, end = SIZE - 1;
	char text[512];
	char body[SIZE];
	int n;

	if (range)
		(void)sscanf(range, "\r\nRange: bytes=%llu-%llu", &start, &end);
	n = snprintf(text, sizeof(text),
		"HTTP/1.1 206 x\r\nETag: \"tag\"\r\nContent-Length: %llu\r\n"
		"Content-Range: bytes %llu-%llu/%u\r\n\r\n",
		end - start + 1, start, end, SIZE);
	memset(body, 'b', sizeof(body));
	server_put(fd, text, (size_t)n);
	server_put(fd, body, end - start + 1);
}

static void put_list(int fd)
{
	server_puts(fd, "HTTP/1.1 200 OK\r\nContent-Length: 136\r\n\r\n"
			"<ListBucketResult><IsTruncated>false</IsTruncated><Contents><Key>x</Key>"
			"<Size>1</Size><ETag>e</ETag></Contents></ListBucketResult>      ");
}

/* As a container's agent answers; the second time not soon. */
static bool put_keys(int fd)
{
	uint32_t looked;

	pthread_mutex_lock(&script.lock);
	looked = ++script.looked;
	pthread_mutex_unlock(&script.lock);
	if (looked > 1)
		test_advance(CLOCK_SECOND);
	server_puts(fd, "HTTP/1.1 200 OK\r\nContent-Length: 94\r\n\r\n"
			"{\"AccessKeyId\":\"AKID\",\"SecretAccessKey\":\"s\",\"Token\":\"one\","
			"\"Expiration\":\"2033-05-18T03:33:20Z\"}");
	return false;
}

static bool answer(struct server *s, int fd, const char *head)
{
	const char *line_end = strstr(head, " HTTP/1.1\r\n");
	bool by_version = memmem(head, (size_t)(line_end - head), "?versionId=id.1", 15) != NULL;
	bool is_list = !by_version && memchr(head, '?', (size_t)(line_end - head));
	const char *more;
	const char *code;
	bool full;

	(void)s;
	if (strncmp(head, "GET /keys ", 10) == 0)
		return put_keys(fd);
	pthread_mutex_lock(&script.lock);
	script.requests++;
	script.inside++;
	script.peak = max(script.peak, script.inside);
	full = script.capacity && script.inside > script.capacity;
	memcpy(script.head, head, strlen(head) + 1);
	code = refusal(head, &more);
	if (script.no_versions && by_version)
		code = "AccessDenied";
	script.by_version += by_version;
	script.refused += code || full;
	pthread_mutex_unlock(&script.lock);
	if (full)
		server_error(fd, 503, "SlowDown", "");
	else if (code)
		server_error(fd, 400, code, more);
	else if (is_list)
		put_list(fd);
	else
		test_advance(script.delay_ns);
	pthread_mutex_lock(&script.lock);
	script.inside--;
	pthread_mutex_unlock(&script.lock);
	if (!full && !code && !is_list)
		put_object(fd, head);
	return true;
}

static void write_keys(const char *key, const char *token)
{
	char new_file[80];
	FILE *f;

	(void)snprintf(new_file, sizeof(new_file), "%s.new", credentials_file);
	f = fopen(new_file, "w");
	assert_non_null(f);
	(void)fprintf(f,
		"[default]\naws_access_key_id=%s\naws_secret_access_key=SECRET\n"
		"aws_session_token=%s\n",
		key, token);
	assert_int_equal(fclose(f), 0);
	assert_int_equal(rename(new_file, credentials_file), 0);
}

static int setup(void **state)
{
	static const char *const names[] = { "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY",
		"AWS_SESSION_TOKEN", "AWS_PROFILE", "AWS_REGION", "AWS_DEFAULT_REGION",
		"AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "AWS_CA_BUNDLE" };

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(names); i++)
		unsetenv(names[i]);
	setenv("AWS_SHARED_CREDENTIALS_FILE", credentials_file, 1);
	setenv("AWS_CONFIG_FILE", "/nonexistent/config", 1);
	write_keys("AKID", "one");
	memset(&script, 0, sizeof(script));
	pthread_mutex_init(&script.lock, NULL);
	server_start(&server, answer, NULL);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	server_stop(&server);
	return 0;
}

static struct ufs *open_at(const char *host, bool anonymous)
{
	struct ufs_limits limits = { .max_requests = 128,
		.list_requests = 4,
		.request_timeout_ns = 5 * CLOCK_SECOND,
		.deadline_ns = 20 * CLOCK_SECOND };
	struct ufs_config config;
	struct err e = ERR_INIT;
	struct ufs *ufs = NULL;
	char endpoint[64];

	(void)snprintf(endpoint, sizeof(endpoint), "http://%s:%u", host, server.port);
	assert_int_equal(ufs_config_parse("s3://bucket/", &config, NULL), 0);
	config.endpoint = strdup(endpoint);
	config.anonymous = anonymous;
	if (ufs_open(&config, &limits, &ufs, &e) != 0)
		fail_msg("%s", e.text);
	ufs_config_release(&config);
	return ufs;
}

/* Many GETs at a time, all to the end. */
struct crowd {
	struct ufs *ufs;
	pthread_mutex_t lock;
	pthread_cond_t news;
	uint32_t left, under_way;
	int status; /* of one that failed */
	struct err e;
};

struct one {
	struct ufs_get get;
	char buf[SIZE];
};

static void on_done(struct ufs_get *get, int status, const struct err *e)
{
	struct crowd *c = get->arg;
	struct one *one = container_of(get, struct one, get);

	for (uint64_t i = 0; status == 0 && i < get->length; i++)
		assert_int_equal(one->buf[i], 'b');
	pthread_mutex_lock(&c->lock);
	c->under_way--;
	if (status < 0) {
		c->status = status;
		c->e = *e;
	}
	pthread_cond_signal(&c->news);
	pthread_mutex_unlock(&c->lock);
	free(one);
}

static int run_tag(struct ufs *ufs, const char *tag, uint32_t n, uint32_t at_once, struct err *e)
{
	struct crowd c = { .ufs = ufs, .left = n };

	pthread_mutex_init(&c.lock, NULL);
	pthread_cond_init(&c.news, NULL);
	pthread_mutex_lock(&c.lock);
	while (c.left || c.under_way) {
		struct one *one;

		if (!c.left || c.under_way == at_once) {
			pthread_cond_wait(&c.news, &c.lock);
			continue;
		}
		one = calloc(1, sizeof(*one));
		one->get = (struct ufs_get){ .key = "k",
			.key_len = 1,
			.tag = tag,
			.tag_len = (uint32_t)strlen(tag),
			.size = SIZE,
			.length = SIZE,
			.buf = one->buf,
			.on_done = on_done,
			.arg = &c };
		c.left--;
		c.under_way++;
		pthread_mutex_unlock(&c.lock);
		assert_int_equal(ufs_get(ufs, &one->get), 0);
		pthread_mutex_lock(&c.lock);
	}
	pthread_mutex_unlock(&c.lock);
	if (e)
		*e = c.e;
	return c.status;
}

static int run(struct ufs *ufs, uint32_t n, uint32_t at_once, struct err *e)
{
	return run_tag(ufs, "tag", n, at_once, e);
}

static uint64_t count(struct ufs *ufs, size_t offset)
{
	return counter_get(
		(const counter_t *)(const void *)((const char *)ufs_counters(ufs) + offset));
}
#define COUNT(ufs, name) count(ufs, offsetof(struct ufs_counters, name))

/* ---- tests ----------------------------------------------------------------------------------- */

static void region(void **state)
{
	struct ufs *ufs = open_at("127.0.0.1", false);

	(void)state;
	strcpy(script.region, "eu-west-1");
	assert_int_equal(ufs_probe(ufs, NULL), 0);
	assert_int_equal(script.refused, 1);
	assert_int_equal(run(ufs, 50, 10, NULL), 0);
	assert_int_equal(script.refused, 1); /* learnt once */
	strcpy(script.region, "RegionTwo");  /* all requests in flight see it */
	assert_int_equal(run(ufs, 50, 50, NULL), 0);
	assert_true(script.refused <= 51);
	assert_int_equal(COUNT(ufs, cause_redirect), script.refused);
	ufs_free(ufs);
}

static void moving_region(void **state)
{
	struct ufs *ufs = open_at("127.0.0.1", false);
	struct err e = ERR_INIT;

	(void)state;
	strcpy(script.region, "a/b"); /* cannot be signed for */
	assert_int_equal(ufs_probe(ufs, &e), -EREMCHG);
	assert_int_equal(script.requests, 3);
	assert_non_null(strstr(e.text, "a/b"));
	ufs_free(ufs);
}

static void new_token(void **state)
{
	struct ufs *ufs = open_at("127.0.0.1", false);
	struct err e = ERR_INIT;

	(void)state;
	strcpy(script.token, "one");
	assert_int_equal(run(ufs, 5, 5, NULL), 0);
	assert_int_equal(script.refused, 0);
	strcpy(script.token, "two");
	write_keys("AKID", "two");
	assert_int_equal(run(ufs, 20, 20, NULL), 0);
	assert_true(script.refused >= 1 && script.refused <= 20);
	assert_int_equal(COUNT(ufs, cause_expired), script.refused);
	/* Both change, as a new session has it. */
	strcpy(script.token, "three");
	strcpy(script.key, "AKNEW");
	write_keys("AKNEW", "three");
	test_advance(1100 * CLOCK_MS); /* they were read just before */
	assert_int_equal(run(ufs, 20, 20, NULL), 0);
	strcpy(script.token, "four");
	assert_int_equal(ufs_probe(ufs, &e), -EKEYREJECTED);
	assert_non_null(strstr(e.text, "AKNEW"));
	assert_non_null(strstr(e.text, credentials_file));
	assert_null(strstr(e.text, "SECRET"));
	assert_null(strstr(e.text, "three"));
	ufs_free(ufs);
}

/* A reader waits while the token is old, and goes on when a new one comes. */
static void *write_later(void *arg)
{
	(void)arg;
	test_advance(1500 * CLOCK_MS);
	write_keys("AKID", "late");
	return NULL;
}

static void late_token(void **state)
{
	struct ufs *ufs = open_at("127.0.0.1", false);
	pthread_t thread;

	(void)state;
	strcpy(script.token, "late");
	assert_int_equal(pthread_create(&thread, NULL, write_later, NULL), 0);
	assert_int_equal(run(ufs, 5, 5, NULL), 0);
	pthread_join(thread, NULL);
	ufs_free(ufs);
}

static void close_while_looking(void **state)
{
	(void)state;
	strcpy(script.token, "never");
	for (int i = 0; i < 20; i++) {
		struct ufs *ufs = open_at("127.0.0.1", false);
		struct crowd c = { .under_way = 1 };
		struct one *one = calloc(1, sizeof(*one));

		pthread_mutex_init(&c.lock, NULL);
		pthread_cond_init(&c.news, NULL);
		one->get = (struct ufs_get){ .key = "k",
			.key_len = 1,
			.tag = "tag",
			.tag_len = 3,
			.size = SIZE,
			.length = SIZE,
			.buf = one->buf,
			.on_done = on_done,
			.arg = &c };
		assert_int_equal(ufs_get(ufs, &one->get), 0);
		test_advance((uint64_t)i * CLOCK_MS / 4);
		ufs_free(ufs);
		assert_int_equal(c.under_way, 0);
		assert_int_equal(c.status, -ECANCELED);
	}
}

static uint32_t looked(void)
{
	uint32_t n;

	pthread_mutex_lock(&script.lock);
	n = script.looked;
	pthread_mutex_unlock(&script.lock);
	return n;
}

/* Keys that expire, closed while they are looked for again: nothing stays behind that waits for
 * their end. */
static void close_while_renewing(void **state)
{
	struct crowd c = { .under_way = 1 };
	struct one *one = calloc(1, sizeof(*one));
	char url[64];
	struct ufs *ufs;

	(void)state;
	(void)snprintf(url, sizeof(url), "http://127.0.0.1:%u/keys", server.port);
	setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", url, 1);
	setenv("AWS_SHARED_CREDENTIALS_FILE", "/nonexistent/credentials", 1);
	strcpy(script.token, "never");
	ufs = open_at("127.0.0.1", false);
	pthread_mutex_init(&c.lock, NULL);
	pthread_cond_init(&c.news, NULL);
	one->get = (struct ufs_get){ .key = "k",
		.key_len = 1,
		.tag = "tag",
		.tag_len = 3,
		.size = SIZE,
		.length = SIZE,
		.buf = one->buf,
		.on_done = on_done,
		.arg = &c };
	assert_int_equal(ufs_get(ufs, &one->get), 0);
	test_wait(looked() == 2);
	ufs_free(ufs);
	assert_int_equal(c.under_way, 0);
	assert_int_equal(c.status, -ECANCELED);
	unsetenv("AWS_CONTAINER_CREDENTIALS_FULL_URI");
}

static void anonymous(void **state)
{
	struct err e = ERR_INIT;
	struct ufs *ufs;

	(void)state;
	setenv("AWS_SHARED_CREDENTIALS_FILE", "/nonexistent/keys", 1);
	script.anonymous = true;
	ufs = open_at("127.0.0.1", true);
	assert_int_equal(ufs_probe(ufs, NULL), 0);
	assert_int_equal(run(ufs, 5, 5, NULL), 0);
	assert_int_equal(script.refused, 0);
	script.anonymous = false;
	strcpy(script.key, "AKID");
	assert_int_equal(ufs_probe(ufs, &e), -EKEYREJECTED);
	ufs_free(ufs);
}

/* By the id of the version; without, where a policy forbids that, and once that is known at once. */
static void by_version(void **state)
{
	struct ufs *ufs = open_at("127.0.0.1", false);

	(void)state;
	assert_int_equal(run_tag(ufs, "v:id.1:tag", 3, 1, NULL), 0);
	assert_int_equal(script.by_version, 3);
	script.no_versions = true;
	assert_int_equal(run_tag(ufs, "v:id.1:tag", 3, 1, NULL), 0);
	assert_int_equal(script.by_version, 4);
	assert_int_equal(script.refused, 1);
	assert_int_equal(script.requests, 3 + 4);
	ufs_free(ufs);
}

/* Names below localhost are this machine's: RFC 6761, and libcurl. */
static void virtual_host(void **state)
{
	struct ufs *ufs = open_at("s3.localhost", false);

	(void)state;
	strcpy(script.host, "bucket.s3.localhost:");
	assert_int_equal(ufs_probe(ufs, NULL), 0);
	assert_int_equal(run(ufs, 3, 3, NULL), 0);
	assert_int_equal(script.refused, 0);
	assert_ptr_equal(strstr(script.head, "GET /k HTTP"), script.head);
	ufs_free(ufs);
}

/* Refused beyond sixteen at once: near that, nothing of it reaches the reader. */
static void capacity(void **state)
{
	struct ufs *ufs = open_at("127.0.0.1", false);

	(void)state;
	script.capacity = 16;
	script.delay_ns = 20 * CLOCK_MS;
	assert_int_equal(run(ufs, 1500, 128, NULL), 0);
	/* Looked at anywhere between two cuts; without any it would be 128. */
	assert_in_range(COUNT(ufs, window), script.capacity / 4, 3 * script.capacity);
	assert_true(COUNT(ufs, window_cuts) >= 1);
	assert_true(COUNT(ufs, cause_slow_down) == script.refused);
	assert_true(script.refused < 500);
	ufs_free(ufs);
}

/* Latency and no refusals: as many as were allowed, in flight at once. So long a latency that what
 * this machine adds to it is not taken for a queue. */
static void wide_open(void **state)
{
	struct ufs *ufs = open_at("127.0.0.1", false);

	(void)state;
	script.delay_ns = 250 * CLOCK_MS;
	assert_int_equal(run(ufs, 1500, 128, NULL), 0);
	assert_int_equal(COUNT(ufs, window), 128);
	assert_int_equal(COUNT(ufs, window_cuts), 0);
	assert_true(script.peak > 64);
	ufs_free(ufs);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
	const struct CMUnitTest tests[] = {
		TEST(region),
		TEST(moving_region),
		TEST(new_token),
		TEST(late_token),
		TEST(close_while_looking),
		TEST(close_while_renewing),
		TEST(anonymous),
		TEST(by_version),
		TEST(virtual_host),
		TEST(capacity),
		TEST(wide_open),
	};
	int failed;

	if (!mkdtemp(dir))
		return 1;
	(void)snprintf(credentials_file, sizeof(credentials_file), "%s/credentials", dir);
	failed = cmocka_run_group_tests(tests, NULL, NULL);
	(void)unlink(credentials_file);
	(void)rmdir(dir);
	return failed;
}
