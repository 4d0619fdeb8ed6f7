/* Whole objects from a server that sends other bytes than were stored, with and without checksums. */
#include "tests/unit/ufs/server.h"
#include "ufs/ufs.h"
#include "base/clock.h"
#include "base/crc.h"
#include "base/hash.h"
#include "base/layout.h"
#include "base/md5.h"

#include <endian.h>
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#define SIZE   (3 * PIECE_BYTES + 777)
#define NO_MD5 "0123456789abcdef0123456789abcdef"
#define SMALL  5000u /* fits into a socket's buffer, with the answer's head */
#define MANY   4u /* requests that no reader waits for; they and a reader's are in flight together */

int __real_md5_of_all(struct md5_message *messages, uint32_t n);
int __wrap_md5_of_all(struct md5_message *messages, uint32_t n);

static struct {
	uint32_t size;     /* of the object */
	const char *etag;  /* NULL: the MD5 in hex */
	const char *heads; /* more lines of the answer's head */
	uint32_t flips;    /* bit n: the n-th GET has a flipped bit; the same each time, unless: */
	bool wander;       /* another byte each time */
	uint32_t flip_at;
	uint32_t cut_at; /* the first GET breaks off; 0: it does not */
	uint32_t gets, ranges;
	char last[SERVER_HEAD];
	char blob[SIZE];
	char md5[2 * MD5_BYTES + 1];
} bucket;
static struct server server;

/*
 * While it is on, the origin's loop computes the MD5 of the first object only when the answers to all later requests are in their
 * sockets: it receives these at once, whatever the load of the machine.
 */
static struct {
	pthread_mutex_t lock;
	pthread_cond_t changed;
	bool on, computing;
	uint32_t arrived, sent; /* requests, answers */
	uint32_t most;          /* objects of one call */
} gate = { .lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER };

int __wrap_md5_of_all(struct md5_message *messages, uint32_t n)
{
	pthread_mutex_lock(&gate.lock);
	gate.most = max(gate.most, n);
	gate.computing = true;
	pthread_cond_broadcast(&gate.changed);
	while (gate.on && gate.sent < 1 + MANY)
		pthread_cond_wait(&gate.changed, &gate.lock);
	pthread_mutex_unlock(&gate.lock);
	return __real_md5_of_all(messages, n);
}

/* Before an answer: that to the first request waits for all requests, the others for the MD5 of the first object. */
static void gate_arrive(void)
{
	uint32_t number;

	pthread_mutex_lock(&gate.lock);
	number = gate.arrived++;
	pthread_cond_broadcast(&gate.changed);
	while (gate.on && !(number == 0 ? gate.arrived == 1 + MANY : gate.computing))
		pthread_cond_wait(&gate.changed, &gate.lock);
	pthread_mutex_unlock(&gate.lock);
}

static void gate_sent(void)
{
	pthread_mutex_lock(&gate.lock);
	gate.sent++;
	pthread_cond_broadcast(&gate.changed);
	pthread_mutex_unlock(&gate.lock);
}

static void gate_turn_on(void)
{
	pthread_mutex_lock(&gate.lock);
	gate.on = true;
	gate.computing = false;
	gate.arrived = gate.sent = gate.most = 0;
	pthread_mutex_unlock(&gate.lock);
}

/* Waits for the first request, which is then the reader's. */
static void gate_wait_for_first(void)
{
	pthread_mutex_lock(&gate.lock);
	while (gate.arrived == 0)
		pthread_cond_wait(&gate.changed, &gate.lock);
	pthread_mutex_unlock(&gate.lock);
}

static uint32_t gate_turn_off(void)
{
	uint32_t most;

	pthread_mutex_lock(&gate.lock);
	gate.on = false;
	most = gate.most;
	pthread_mutex_unlock(&gate.lock);
	return most;
}

static void put_object(int fd, const char *head)
{
	const char *range = strcasestr(head, "\r\nRange: bytes=");
	uint32_t first = 0, last = bucket.size - 1, n, at;
	char *body = malloc(SIZE);
	char text[4000];

	if (range)
		assert_int_equal(sscanf(range, "\r\nRange: bytes=%u-%u", &first, &last), 2);
	bucket.ranges += range != NULL;
	n = bucket.gets++;
	(void)snprintf(text, sizeof(text),
		"HTTP/1.1 %s\r\nETag: \"%s\"\r\nContent-Length: %u\r\n"
		"Content-Range: bytes %u-%u/%u\r\n%s\r\n",
		range ? "206 Partial Content" : "200 OK", bucket.etag ? bucket.etag : bucket.md5,
		last - first + 1, first, last, bucket.size, bucket.heads);
	server_puts(fd, text);
	memcpy(body, bucket.blob, SIZE);
	at = bucket.flip_at + (bucket.wander ? n : 0);
	if (bucket.flips >> n & 1)
		body[at] ^= 16;
	server_put(fd, body + first, n == 0 && bucket.cut_at ? bucket.cut_at : last - first + 1);
	free(body);
}

static bool answer(struct server *s, int fd, const char *head)
{
	bool on;

	gate_arrive();
	pthread_mutex_lock(&s->lock);
	(void)snprintf(bucket.last, sizeof(bucket.last), "%s", head);
	put_object(fd, head);
	on = bucket.gets > 1 || !bucket.cut_at;
	gate_sent();
	/* finish() takes this lock: each answer that it has seen is counted. */
	pthread_mutex_unlock(&s->lock);
	return on;
}

static void set_size(uint32_t size)
{
	uint8_t md5[MD5_BYTES];

	bucket.size = size;
	bucket.flip_at = size / 2;
	assert_int_equal(hash_md5(bucket.blob, size, md5), 0);
	hash_hex(md5, sizeof(md5), bucket.md5);
}

static int setup(void **state)
{
	(void)state;
	memset(&bucket, 0, sizeof(bucket));
	for (uint32_t i = 0; i < SIZE; i++)
		bucket.blob[i] = (char)(i * 7 + i / 300);
	set_size(SIZE);
	bucket.heads = "";
	server_start(&server, answer, NULL);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	server_stop(&server);
	return 0;
}

static struct ufs *open_url(const char *url, bool anonymous)
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
	setenv("OBS_ACCESS_KEY_ID", "AKID", 1);
	setenv("OBS_SECRET_ACCESS_KEY", "SECRET", 1);
	(void)snprintf(endpoint, sizeof(endpoint), "http://127.0.0.1:%u", server.port);
	assert_int_equal(ufs_config_parse(url, &config, NULL), 0);
	config.endpoint = strdup(endpoint);
	config.anonymous = anonymous;
	assert_int_equal(ufs_open(&config, &limits, &ufs, NULL), 0);
	ufs_config_release(&config);
	return ufs;
}

static struct ufs *open_origin(void)
{
	return open_url("s3://bucket/", false);
}

static uint64_t compared(const struct ufs *ufs)
{
	return counter_get(&ufs_counters(ufs)->compared);
}

static uint64_t damaged(const struct ufs *ufs)
{
	return counter_get(&ufs_counters(ufs)->cause_checksum);
}

struct part {
	struct ufs_get get;
	pthread_mutex_t lock;
	pthread_cond_t news;
	bool done;
	int status;
	struct err e;
	uint32_t progress;
	char buf[SIZE];
};

static void on_progress(struct ufs_get *get, uint64_t bytes)
{
	struct part *p = get->arg;

	(void)bytes;
	p->progress++;
}

static void on_done(struct ufs_get *get, int status, const struct err *e)
{
	struct part *p = get->arg;

	pthread_mutex_lock(&p->lock);
	p->done = true;
	p->status = status;
	if (e)
		p->e = *e;
	pthread_cond_signal(&p->news);
	pthread_mutex_unlock(&p->lock);
}

static struct part *start_as(
	struct ufs *ufs, enum ufs_class class, uint64_t offset, uint64_t length)
{
	const char *tag = bucket.etag ? bucket.etag : bucket.md5;
	struct part *p = calloc(1, sizeof(*p));

	pthread_mutex_init(&p->lock, NULL);
	pthread_cond_init(&p->news, NULL);
	p->get = (struct ufs_get){ .key = "d/x",
		.key_len = 3,
		.tag = tag,
		.tag_len = (uint32_t)strlen(tag),
		.size = bucket.size,
		.offset = offset,
		.length = length,
		.buf = p->buf,
		.class = class,
		.on_progress = on_progress,
		.on_done = on_done,
		.arg = p };
	assert_int_equal(ufs_get(ufs, &p->get), 0);
	return p;
}

static struct part *start(struct ufs *ufs, uint64_t offset, uint64_t length)
{
	return start_as(ufs, UFS_DEMAND, offset, length);
}

/* One object, or a part of it: how it ended, and after how many GETs in all. */
struct outcome {
	int status;
	uint32_t gets, progress;
	bool right;
	struct err e;
};

static struct outcome finish(struct part *p)
{
	struct outcome o;

	pthread_mutex_lock(&p->lock);
	while (!p->done)
		pthread_cond_wait(&p->news, &p->lock);
	pthread_mutex_unlock(&p->lock);
	pthread_mutex_lock(&server.lock); /* its threads are done with the bucket */
	o = (struct outcome){ p->status, bucket.gets, p->progress,
		memcmp(p->buf, bucket.blob + p->get.offset, p->get.length) == 0, p->e };
	pthread_mutex_unlock(&server.lock);
	free(p);
	return o;
}

/* How many GETs it took. */
static struct outcome get(struct ufs *ufs, uint64_t offset, uint64_t length)
{
	uint32_t before = bucket.gets;
	struct outcome o = finish(start(ufs, offset, length));

	o.gets -= before;
	return o;
}

static struct outcome whole(struct ufs *ufs)
{
	return get(ufs, 0, SIZE);
}

static void expect(struct outcome o, int status, uint32_t gets, bool right)
{
	if (o.status != status || o.gets != gets || o.right != right)
		fail_msg("status %d after %u GETs, bytes %s: %s", o.status, o.gets,
			o.right ? "right" : "wrong", o.e.text);
}

static void flipped_once(void **state)
{
	struct ufs *ufs = open_origin();
	struct outcome o;

	(void)state;
	bucket.flips = 1;
	o = whole(ufs);
	expect(o, 0, 2, true);
	assert_int_equal(o.progress, 0); /* no byte counts before all were compared */
	assert_int_equal(damaged(ufs), 1);
	assert_int_equal(compared(ufs), 1);
	assert_int_equal(bucket.ranges, 0); /* all of it was fetched again */
	expect(whole(ufs), 0, 1, true);
	assert_int_equal(compared(ufs), 2);
	ufs_free(ufs);
}

/* Objects that no reader waits for are compared together: only the damaged one is fetched again, and compared by itself. */
static void several_at_once(void **state)
{
	struct ufs *ufs = open_origin();
	struct part *parts[1 + MANY];

	(void)state;
	set_size(SMALL);
	expect(get(ufs, 0, SMALL), 0, 1, true);
	bucket.flips = 1u << 3;
	gate_turn_on();
	parts[0] = start(ufs, 0, SMALL);
	gate_wait_for_first();
	for (size_t i = 1; i < ARRAY_SIZE(parts); i++)
		parts[i] = start_as(ufs, UFS_FILL, 0, SMALL);
	for (size_t i = 0; i < ARRAY_SIZE(parts); i++) {
		struct outcome o = finish(parts[i]);

		assert_int_equal(o.status, 0);
		assert_true(o.right);
	}
	assert_int_equal(gate_turn_off(), MANY);
	assert_int_equal(bucket.gets, 1 + ARRAY_SIZE(parts) + 1);
	assert_int_equal(damaged(ufs), 1);
	assert_int_equal(compared(ufs), 1 + ARRAY_SIZE(parts));
	ufs_free(ufs);
}

/* Another byte each time: the way is bad, the ETags are not. */
static void flipped_twice(void **state)
{
	struct ufs *ufs = open_origin();

	(void)state;
	bucket.flips = 3;
	bucket.wander = true;
	expect(whole(ufs), 0, 3, true);
	bucket.flips = 1u << 3;
	expect(whole(ufs), 0, 2, true);
	assert_int_equal(damaged(ufs), 3);
	assert_int_equal(compared(ufs), 2);
	ufs_free(ufs);
}

/* ETags that have matched are believed: the object is damaged where it is stored. */
static void flipped_always(void **state)
{
	struct ufs *ufs = open_origin();
	uint8_t md5[MD5_BYTES];
	char hex[2 * MD5_BYTES + 1];
	struct outcome o;

	(void)state;
	expect(whole(ufs), 0, 1, true);
	bucket.flips = UINT32_MAX;
	o = whole(ufs);
	expect(o, -EIO, 3, false);
	assert_int_equal(damaged(ufs), 3);
	assert_int_equal(compared(ufs), 1);
	bucket.blob[bucket.flip_at] ^= 16;
	assert_int_equal(hash_md5(bucket.blob, SIZE, md5), 0);
	hash_hex(md5, sizeof(md5), hex);
	assert_non_null(strstr(o.e.text, "s3://bucket/d/x"));
	assert_non_null(strstr(o.e.text, bucket.md5));
	assert_non_null(strstr(o.e.text, hex));
	assert_non_null(strstr(o.e.text, "upload the object again"));
	assert_int_equal(o.progress, 0);
	ufs_free(ufs);
}

/* A service whose ETags look like MD5s costs one request, and keeps its parts. */
static void etags_are_no_md5s(void **state)
{
	struct ufs *ufs = open_origin();
	struct outcome o;

	(void)state;
	bucket.etag = NO_MD5;
	expect(whole(ufs), 0, 2, true);
	o = whole(ufs);
	expect(o, 0, 1, true);
	assert_true(o.progress > 0);
	assert_int_equal(damaged(ufs), 1);
	assert_int_equal(compared(ufs), 0);
	ufs_free(ufs);
}

/* Those in flight meanwhile cost one request each; what comes later none. */
static void etags_of_several_are_no_md5s(void **state)
{
	struct ufs *ufs = open_origin();
	struct part *parts[8];
	uint32_t gets = 0;

	(void)state;
	bucket.etag = NO_MD5;
	for (size_t i = 0; i < ARRAY_SIZE(parts); i++)
		parts[i] = start(ufs, 0, SIZE);
	for (size_t i = 0; i < ARRAY_SIZE(parts); i++) {
		struct outcome o = finish(parts[i]);

		gets = o.gets;
		assert_int_equal(o.status, 0);
		assert_true(o.right);
	}
	assert_true(gets > ARRAY_SIZE(parts) && gets <= 2 * ARRAY_SIZE(parts));
	assert_int_equal(damaged(ufs), gets - ARRAY_SIZE(parts));
	expect(whole(ufs), 0, 1, true);
	assert_int_equal(compared(ufs), 0);
	ufs_free(ufs);
}

/* ETags that cannot be an object's MD5 are not compared with it. */
static void other_etags(void **state)
{
	static const struct {
		const char *etag, *heads;
	} cases[] = {
		{ NO_MD5 "-3", "" },
		{ "0123456789abcdef0123456789abcde", "" },
		{ "0123456789abcdef0123456789abcdeg", "" },
		{ NO_MD5, "x-amz-server-side-encryption: aws:kms\r\n" },
		{ NO_MD5, "X-Amz-Server-Side-Encryption: aws:kms:dsse\r\n" },
		{ NO_MD5, "x-obs-server-side-encryption: kms\r\n" },
		{ NO_MD5, "x-amz-server-side-encryption-customer-algorithm: AES256\r\n" },
	};
	struct ufs *ufs = open_origin();

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		bucket.etag = cases[i].etag;
		bucket.heads = cases[i].heads;
		expect(whole(ufs), 0, 1, true);
	}
	assert_int_equal(compared(ufs), 0);
	bucket.etag = NULL;
	bucket.heads = "x-amz-server-side-encryption: AES256\r\n";
	expect(whole(ufs), 0, 1, true);
	assert_int_equal(compared(ufs), 1);
	ufs_free(ufs);
}

enum sum {
	CRC32C,
	CRC64NVME,
	CRC32,
	SHA1,
	SHA256,
	SUMS,
};

static void sum_value(enum sum sum, char *out)
{
	uint8_t bytes[SHA256_BYTES];
	uint32_t crc =
		htobe32(sum == CRC32 ? crc_32(bucket.blob, SIZE) : crc_32c(bucket.blob, SIZE));
	uint64_t crc64 = htobe64(crc_64nvme(bucket.blob, SIZE));

	if (sum == SHA1)
		assert_int_equal(hash_sha1(bucket.blob, SIZE, bytes), 0);
	if (sum == SHA256)
		hash_sha256(bucket.blob, SIZE, bytes);
	if (sum == CRC32 || sum == CRC32C)
		hash_base64(&crc, sizeof(crc), out);
	else if (sum == CRC64NVME)
		hash_base64(&crc64, sizeof(crc64), out);
	else
		hash_base64(bytes, sum == SHA1 ? SHA1_BYTES : SHA256_BYTES, out);
}

static const char *sum_head(enum sum sum, char *out, size_t size)
{
	static const char *const names[SUMS] = { "crc32c", "crc64nvme", "crc32", "sha1", "sha256" };
	char value[HASH_BASE64_SIZE(SHA256_BYTES)];

	sum_value(sum, value);
	(void)snprintf(out, size, "X-Amz-Checksum-%s: %s\r\nx-amz-checksum-type: FULL_OBJECT\r\n",
		names[sum], value);
	return out;
}

/* A header needs no match before: it says what it is. */
static void headers(void **state)
{
	char head[200];
	char value[HASH_BASE64_SIZE(SHA256_BYTES)];

	(void)state;
	for (enum sum sum = 0; sum < SUMS; sum++) {
		struct ufs *ufs = open_origin();
		struct outcome o;

		bucket.gets = 0;
		bucket.flips = 1u << 1 | 7u << 3;
		bucket.etag = NO_MD5; /* is not looked at */
		bucket.heads = sum_head(sum, head, sizeof(head));
		expect(whole(ufs), 0, 1, true);
		expect(whole(ufs), 0, 2, true);
		o = whole(ufs);
		expect(o, -EIO, 3, false);
		sum_value(sum, value);
		assert_non_null(strstr(o.e.text, value));
		assert_non_null(strstr(o.e.text, "upload the object again"));
		assert_int_equal(o.progress, 0);
		assert_int_equal(compared(ufs), 2);
		assert_int_equal(damaged(ufs), 4);
		ufs_free(ufs);
	}
}

/* Of several one is enough; one that cannot be read hides no other. */
static void several_headers(void **state)
{
	struct ufs *ufs = open_origin();
	char first[200], second[200], heads[600];

	(void)state;
	bucket.etag = "tag";
	(void)snprintf(heads, sizeof(heads), "%s%sx-amz-checksum-crc32c: AAAA\r\n",
		sum_head(CRC64NVME, first, sizeof(first)),
		sum_head(SHA256, second, sizeof(second)));
	bucket.heads = heads;
	bucket.flips = 1;
	expect(whole(ufs), 0, 2, true);
	assert_int_equal(compared(ufs), 1);
	ufs_free(ufs);
}

/* What is no checksum of the object's bytes refuses none of them, and the ETag's MD5 is compared. */
static void headers_that_do_not_count(void **state)
{
	static const char *const values[] = { "crc32c: ", "crc32c: A", "crc32c: AAAA",
		"crc32c: AAAAAA=", "crc32c: AAAAAA", "crc32c: AAAAAB==", "crc32c: AAAAAAAA",
		"crc32c: AAAAAA==-3", "crc32c: AAAA*A==", "crc32c: AAAAAA== AAAAAA==",
		"crc32c: \xff\xff\xff\xff\xff\xff==", "crc64nvme: AAAAAA==", "crc32: AAAAAAAAAAA=",
		"sha1: AAAAAA==", "sha256: AAAAAAAAAAA=", "md5: AAAAAA==", ": AAAAAA==",
		"crc32c: AAAAAA==\r\nx-amz-checksum-type: COMPOSITE",
		"type: COMPOSITE\r\nx-amz-checksum-sha1: AAAAAAAAAAAAAAAAAAAAAAAAAAA=" };
	struct ufs *ufs = open_origin();
	char head[3000];

	(void)state;
	bucket.heads = head;
	for (size_t i = 0; i < ARRAY_SIZE(values) + 2; i++) {
		if (i < ARRAY_SIZE(values)) {
			(void)snprintf(head, sizeof(head), "x-amz-checksum-%s\r\n", values[i]);
		} else { /* one that fits into a line, and one that does not */
			memset(head, 'A', sizeof(head));
			memcpy(head, "x-amz-checksum-sha256: ", 23);
			memcpy(head + (i == ARRAY_SIZE(values) ? 900 : 2000), "\r\n", 3);
		}
		expect(whole(ufs), 0, 1, true);
		assert_int_equal(compared(ufs), i + 1);
	}
	assert_int_equal(damaged(ufs), 0);
	ufs_free(ufs);
}

/* A part has no checksum, and asks for none. */
static void parts(void **state)
{
	struct ufs *ufs = open_origin();

	(void)state;
	bucket.heads = "x-amz-checksum-crc32c: AAAAAA==\r\n";
	expect(get(ufs, 0, SIZE - 1), 0, 1, true);
	expect(get(ufs, 1, SIZE - 1), 0, 1, true);
	expect(get(ufs, PIECE_BYTES, PIECE_BYTES), 0, 1, true);
	assert_null(strcasestr(bucket.last, "x-amz-checksum"));
	assert_int_equal(bucket.ranges, 3);
	assert_int_equal(compared(ufs) + damaged(ufs), 0);
	ufs_free(ufs);
}

/* What an attempt lost is fetched as a part; what counts is the whole. */
static void resumed(void **state)
{
	char head[200];

	(void)state;
	for (int by_head = 0; by_head < 2; by_head++) {
		struct ufs *ufs = open_origin();
		struct outcome o;

		bucket.heads = by_head ? sum_head(CRC64NVME, head, sizeof(head)) : "";
		bucket.cut_at = 2 * PIECE_BYTES + 5;
		bucket.flip_at = PIECE_BYTES;
		bucket.gets = bucket.ranges = bucket.flips = 0;
		o = whole(ufs);
		expect(o, 0, 2, true);
		assert_int_equal(o.progress, 0);
		assert_int_equal(bucket.ranges, 1);
		assert_int_equal(compared(ufs), 1);
		bucket.flips = 1;
		bucket.gets = bucket.ranges = 0;
		o = whole(ufs);
		expect(o, 0, 3, true);
		assert_int_equal(o.progress, 0);
		assert_int_equal(bucket.ranges, 1); /* the third is whole again */
		assert_int_equal(compared(ufs), 2);
		assert_int_equal(damaged(ufs), 1);
		ufs_free(ufs);
	}
}

/* Signed in its place by name; unsigned without keys; OBS knows none. */
static void request(void **state)
{
	struct ufs *ufs = open_origin();

	(void)state;
	expect(whole(ufs), 0, 1, true);
	assert_non_null(strstr(bucket.last, "\r\nx-amz-checksum-mode: ENABLED\r\n"));
	assert_non_null(strstr(bucket.last,
		"SignedHeaders=host;x-amz-checksum-mode;x-amz-content-sha256;x-amz-date,"));
	expect(get(ufs, 0, 10), 0, 1, true);
	assert_null(strcasestr(bucket.last, "checksum"));
	expect(whole(ufs), 0, 1, true); /* by the same connection */
	assert_non_null(strstr(bucket.last, "\r\nx-amz-checksum-mode: ENABLED\r\n"));
	ufs_free(ufs);
	ufs = open_url("s3://bucket/", true);
	expect(whole(ufs), 0, 1, true);
	assert_non_null(strstr(bucket.last, "\r\nx-amz-checksum-mode: ENABLED\r\n"));
	assert_null(strstr(bucket.last, "Authorization"));
	ufs_free(ufs);
	ufs = open_url("obs://bucket/", false);
	expect(whole(ufs), 0, 1, true);
	assert_null(strcasestr(bucket.last, "checksum"));
	assert_int_equal(compared(ufs), 1); /* its ETags are MD5s */
	ufs_free(ufs);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(flipped_once, setup, teardown),
		cmocka_unit_test_setup_teardown(several_at_once, setup, teardown),
		cmocka_unit_test_setup_teardown(flipped_twice, setup, teardown),
		cmocka_unit_test_setup_teardown(flipped_always, setup, teardown),
		cmocka_unit_test_setup_teardown(etags_are_no_md5s, setup, teardown),
		cmocka_unit_test_setup_teardown(etags_of_several_are_no_md5s, setup, teardown),
		cmocka_unit_test_setup_teardown(other_etags, setup, teardown),
		cmocka_unit_test_setup_teardown(headers, setup, teardown),
		cmocka_unit_test_setup_teardown(several_headers, setup, teardown),
		cmocka_unit_test_setup_teardown(headers_that_do_not_count, setup, teardown),
		cmocka_unit_test_setup_teardown(parts, setup, teardown),
		cmocka_unit_test_setup_teardown(resumed, setup, teardown),
		cmocka_unit_test_setup_teardown(request, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
