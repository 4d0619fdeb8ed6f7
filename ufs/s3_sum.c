/*
 * Compares whole objects with their checksums: with that of an x-amz-checksum header or, without TLS,
 * with an ETag of 32 hex digits, which is an MD5 in most services. See s3_internal.h and
 * docs/decisions/origin-checksums.md.
 *
 * A header is explicit, an ETag is not: some services have other ETags of that form. A mismatch is damage if an ETag of
 * the origin has matched before. Until then, receiving the same bytes of an object twice shows that they are not MD5s.
 */
#include "ufs/s3_internal.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/crc.h"
#include "base/hash.h"
#include "base/log.h"

#include <endian.h>
#include <stdio.h>
#include <string.h>

/* Wrong bytes that are the same this many times were not damaged on the network. */
#define S3_SUM_WRONGS_MAX 3u
/* Objects that no reader waits for wait for others this long at most: MD5s of several cost little more than one. */
#define S3_SUM_WAIT_NS (2 * CLOCK_MS)
#define S3_SUM_MANY    (MD5_LANES / 2 - 1)

static const struct {
	const char *name;
	size_t bytes;
} sums[] = {
	[UFS_SUM_CRC32C] = { "x-amz-checksum-crc32c", 4 },
	[UFS_SUM_CRC64NVME] = { "x-amz-checksum-crc64nvme", 8 },
	[UFS_SUM_CRC32] = { "x-amz-checksum-crc32", 4 },
	[UFS_SUM_SHA1] = { "x-amz-checksum-sha1", SHA1_BYTES },
	[UFS_SUM_SHA256] = { "x-amz-checksum-sha256", SHA256_BYTES },
	[UFS_SUM_ETAG] = { "ETag", MD5_BYTES },
};

/* Of `len` bytes. -ENOTSUP: not by this host's OpenSSL. */
static int sum_of(enum ufs_sum_kind kind, const void *data, size_t len, struct ufs_sum *ret_sum)
{
	struct ufs_sum sum = { .kind = kind };
	uint64_t crc = 0; /* big-endian, those of 32 bits in the upper half */
	int r = 0;

	switch (kind) {
	case UFS_SUM_CRC32C:
		crc = (uint64_t)crc_32c(data, len) << 32;
		break;
	case UFS_SUM_CRC32:
		crc = (uint64_t)crc_32(data, len) << 32;
		break;
	case UFS_SUM_CRC64NVME:
		crc = crc_64nvme(data, len);
		break;
	case UFS_SUM_SHA1:
		r = hash_sha1(data, len, sum.bytes);
		break;
	case UFS_SUM_SHA256:
		hash_sha256(data, len, sum.bytes);
		break;
	case UFS_SUM_ETAG:
		r = hash_md5(data, len, sum.bytes);
		break;
	case UFS_SUM_NONE:
		return -ENOTSUP;
	}
	if (crc) {
		crc = htobe64(crc);
		memcpy(sum.bytes, &crc, sizeof(crc));
	}
	if (r == 0)
		*ret_sum = sum;
	return r;
}

static bool sums_equal(const struct ufs_sum *a, const struct ufs_sum *b)
{
	return a->kind == b->kind && memcmp(a->bytes, b->bytes, sizeof(a->bytes)) == 0;
}

/* As the answer's header has it. */
static const char *sum_text(const struct ufs_sum *sum, char out[HASH_BASE64_SIZE(UFS_SUM_BYTES)])
{
	if (sum->kind == UFS_SUM_ETAG)
		hash_hex(sum->bytes, MD5_BYTES, out);
	else
		hash_base64(sum->bytes, sums[sum->kind].bytes, out);
	return out;
}

void s3_sum_begin(struct s3 *s3, const struct s3_answer *answer, struct ufs_get *get)
{
	bool etags = s3->etags != S3_ETAGS_OTHER && !s3->place.endpoint.tls;

	if (answer->status == 200) /* a 206 continues, or is of a part */
		get->sum = s3_answer_sum(answer, etags);
}

/* An object was fetched twice with the same bytes, of which the ETag is not the MD5; no other ETag has matched. */
static void learn_etags(struct s3 *s3, const struct ufs_get *get)
{
	char text[HASH_BASE64_SIZE(UFS_SUM_BYTES)];

	s3->etags = S3_ETAGS_OTHER;
	log_warn("ETags are not MD5s: objects without a checksum are not compared",
		"origin=%s key=\"%.*s\" etag=%s", s3->name, (int)min(get->key_len, 200u), get->key,
		sum_text(&get->sum, text));
}

static int mismatch(struct s3 *s3, struct ufs_get *get, const struct ufs_sum *is, struct err *e)
{
	char expected[HASH_BASE64_SIZE(UFS_SUM_BYTES)];
	char received[HASH_BASE64_SIZE(UFS_SUM_BYTES)];
	const char *remedy =
		s3->place.endpoint.tls
			? "fetching it again; check the memory of this host and of the server"
			: "fetching it again; https prevents damage on the network";

	get->wrongs = sums_equal(is, &get->wrong) ? get->wrongs + 1 : 1;
	get->wrong = *is;
	if (get->sum.kind == UFS_SUM_ETAG && get->wrongs > 1 && s3->etags == S3_ETAGS_UNKNOWN) {
		learn_etags(s3, get);
		return 0;
	}
	get->cause = UFS_CAUSE_CHECKSUM;
	get->final = get->wrongs >= S3_SUM_WRONGS_MAX;
	if (get->final)
		remedy = get->sum.kind == UFS_SUM_ETAG
				 ? "upload the object again; or read the bucket over https, where "
				   "ETags are not compared"
				 : "upload the object again";
	return err_set(e, -EIO,
		"%s://%s/%s%.*s: the bytes do not match the object's %s: expected %s, received %s; "
		"%s",
		s3_scheme(s3), s3->config.bucket, s3->config.prefix, (int)min(get->key_len, 200u),
		get->key, sums[get->sum.kind].name, sum_text(&get->sum, expected),
		sum_text(is, received), remedy);
}

static int compare(struct s3 *s3, struct ufs_get *get, const struct ufs_sum *is, struct err *e)
{
	if (!sums_equal(is, &get->sum))
		return mismatch(s3, get, is, e);
	if (get->sum.kind == UFS_SUM_ETAG)
		s3->etags = S3_ETAGS_MD5;
	get->wrongs = 0;
	counter_add(&s3->base.counters->compared, 1);
	return 0;
}

static const char *object_of(const struct ufs_get *get)
{
	ensure(get->sum.kind && get->before == get->offset && get->offset + get->got == get->size);
	return (const char *)get->buf - get->before;
}

int s3_sum_check(struct s3 *s3, struct ufs_get *get, struct err *e)
{
	const char *object = object_of(get);
	struct ufs_sum is = { 0 };

	if (get->sum.kind == UFS_SUM_ETAG && s3->etags == S3_ETAGS_OTHER)
		return 0;
	if (sum_of(get->sum.kind, object, get->size, &is) < 0)
		return 0;
	return compare(s3, get, &is, e);
}

/* ---- MD5s of several -------------------------------------------------------------------------- */

bool s3_sum_is_md5(const struct s3 *s3, const struct ufs_get *get)
{
	return get->sum.kind == UFS_SUM_ETAG && s3->etags != S3_ETAGS_OTHER;
}

void s3_sum_all(struct s3 *s3)
{
	struct s3_md5s *md5s = &s3->md5s;
	struct md5_message messages[MD5_LANES];
	struct ufs_get *gets[MD5_LANES];
	uint32_t n = md5s->n;
	int r;

	loop_timer_stop(TAKE(md5s->timer));
	memcpy(gets, md5s->gets, sizeof(gets));
	md5s->n = 0;
	for (uint32_t i = 0; i < n; i++)
		messages[i] = (struct md5_message){ object_of(gets[i]), gets[i]->size, { 0 } };
	r = md5_of_all(messages, n);
	for (uint32_t i = 0; i < n; i++) {
		struct ufs_sum is = { .kind = UFS_SUM_ETAG };
		struct err e = ERR_INIT;
		int status = 0;

		memcpy(is.bytes, messages[i].md5, MD5_BYTES);
		/* An earlier object may have shown that ETags are not MD5s. */
		if (r == 0 && s3->etags != S3_ETAGS_OTHER)
			status = compare(s3, gets[i], &is, &e);
		s3_get_end(s3, gets[i], status, &e);
	}
}

static void on_task(struct loop_task *task)
{
	struct s3 *s3 = container_of(task, struct s3, md5s.task);

	s3->md5s.posted = false;
	s3_sum_all(s3);
}

static void on_timer(void *arg)
{
	struct s3 *s3 = arg;

	s3->md5s.timer = NULL;
	s3_sum_all(s3);
}

/* Compares after the events already received. */
static void sum_soon(struct s3 *s3)
{
	if (!s3->md5s.posted)
		loop_post(s3->loop, &s3->md5s.task);
	s3->md5s.posted = true;
}

void s3_sum_later(struct s3 *s3, struct ufs_get *get)
{
	struct s3_md5s *md5s = &s3->md5s;
	bool soon;

	md5s->gets[md5s->n++] = get;
	soon = get->class == UFS_DEMAND || md5s->n > min(S3_SUM_MANY, s3->in_flight_low / 2);
	if (md5s->n == MD5_LANES) {
		s3_sum_all(s3);
		return;
	}
	if (!soon && !md5s->timer)
		md5s->timer = loop_timer_start(s3->loop, S3_SUM_WAIT_NS, on_timer, s3);
	if (soon || !md5s->timer)
		sum_soon(s3);
}

void s3_sum_init(struct s3 *s3)
{
	s3->md5s.task.run = on_task;
}
