/* Status lines and headers of S3. See s3_answer.h. */
#include "ufs/s3_answer.h"
#include "ufs/s3_tag.h"
#include "base/clock.h"
#include "base/hash.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define RETRY_AFTER_MAX 3600u /* seconds; the deadline of the request is shorter anyway */

void s3_answer_init(struct s3_answer *answer)
{
	*answer = (struct s3_answer){ .modified = -1, .date = -1, .length = -1 };
}

/* Digits to a number and the place behind; -EPROTO without digits or past 18 of them. */
static int number(const char **s, uint64_t *ret_number)
{
	size_t n = strspn(*s, "0123456789");

	if (n == 0 || n > 18)
		return -EPROTO;
	*ret_number = strtoull(*s, NULL, 10);
	*s += n;
	return 0;
}

int s3_content_range(const char *s, uint64_t *ret_start, uint64_t *ret_end, uint64_t *ret_total)
{
	uint64_t start, end, total;

	if (strncasecmp(s, "bytes", 5) != 0 || (s[5] != ' ' && s[5] != '='))
		return -EPROTO;
	s += 6;
	s += strspn(s, " ");
	if (number(&s, &start) < 0 || *s++ != '-' || number(&s, &end) < 0 || *s++ != '/' ||
		number(&s, &total) < 0 || *s != '\0')
		return -EPROTO;
	if (start > end || end >= total)
		return -EPROTO;
	*ret_start = start;
	*ret_end = end;
	*ret_total = total;
	return 0;
}

static void take_etag(struct s3_answer *answer, const char *s)
{
	size_t n;

	answer->weak = s[0] == 'W' && s[1] == '/';
	if (answer->weak)
		s += 2;
	n = strlen(s);
	if (n >= 2 && s[0] == '"' && s[n - 1] == '"') {
		s++;
		n -= 2;
	}
	if (n >= sizeof(answer->etag))
		n = 0; /* no tag of ours is that long: it will not match */
	memcpy(answer->etag, s, n);
	answer->etag[n] = '\0';
}

static void take_retry_after(struct s3_answer *answer, const char *s)
{
	uint64_t seconds;
	int64_t then;

	if (number(&s, &seconds) < 0) {
		int64_t now = (int64_t)(clock_wall_ns() / CLOCK_SECOND);

		if (clock_parse(s, &then) < 0 || then <= now)
			return;
		seconds = (uint64_t)(then - now);
	}
	answer->retry_after_ns = min(seconds, RETRY_AFTER_MAX) * CLOCK_SECOND;
}

/* Ignores values that are not base64 of the right length, so also "BASE64-PARTS", the checksum of a list of parts. */
static void take_checksum(struct s3_answer *answer, const char *algorithm, const char *value)
{
	static const struct {
		const char *name;
		enum ufs_sum_kind kind;
		size_t bytes;
	} kinds[] = {
		{ "crc32c", UFS_SUM_CRC32C, 4 },
		{ "crc64nvme", UFS_SUM_CRC64NVME, 8 },
		{ "crc32", UFS_SUM_CRC32, 4 },
		{ "sha1", UFS_SUM_SHA1, SHA1_BYTES },
		{ "sha256", UFS_SUM_SHA256, SHA256_BYTES },
	};
	struct ufs_sum sum = { 0 };

	if (strcasecmp(algorithm, "type") == 0)
		answer->sum_of_parts = strcasecmp(value, "FULL_OBJECT") != 0;
	for (size_t i = 0; i < ARRAY_SIZE(kinds); i++) {
		if (strcasecmp(algorithm, kinds[i].name) != 0 ||
			(answer->sum.kind && answer->sum.kind < kinds[i].kind) ||
			hash_unbase64(value, sum.bytes, kinds[i].bytes) < 0)
			continue;
		sum.kind = kinds[i].kind;
		answer->sum = sum;
	}
}

/* Headers of S3, which OBS has by names of its own. With SSE-S3 ("AES256") the ETag is still an MD5; with KMS and
 * customers' keys it is not. */
static void take_amz(struct s3_answer *answer, const char *name, const char *value)
{
	static const char checksum[] = "checksum-";
	static const char customer[] = "server-side-encryption-customer-";

	if (strcasecmp(name, "request-id") == 0)
		(void)snprintf(
			answer->request_id, sizeof(answer->request_id), "%s", value); /* cut */
	else if (strncasecmp(name, checksum, strlen(checksum)) == 0)
		take_checksum(answer, name + strlen(checksum), value);
	else if (strcasecmp(name, "server-side-encryption") == 0)
		answer->etag_is_other |= strcasecmp(value, "AES256") != 0;
	else if (strncasecmp(name, customer, strlen(customer)) == 0)
		answer->etag_is_other = true;
}

static void take_header(struct s3_answer *answer, const char *name, const char *value)
{
	uint64_t n;
	const char *end = value;

	if (strcasecmp(name, "etag") == 0) {
		take_etag(answer, value);
	} else if (strcasecmp(name, "last-modified") == 0) {
		if (clock_parse(value, &answer->modified) < 0)
			answer->modified = -1;
	} else if (strcasecmp(name, "date") == 0) {
		if (clock_parse(value, &answer->date) < 0)
			answer->date = -1;
	} else if (strcasecmp(name, "content-length") == 0) {
		answer->length =
			number(&end, &n) == 0 && *end == '\0' && !answer->chunked ? (int64_t)n : -1;
	} else if (strcasecmp(name, "transfer-encoding") == 0) {
		answer->chunked = true;
		answer->length = -1;
	} else if (strcasecmp(name, "content-range") == 0) {
		answer->has_range = s3_content_range(value, &answer->range_start,
					    &answer->range_end, &answer->range_total) == 0;
	} else if (strcasecmp(name, "content-encoding") == 0) {
		answer->encoded = strcasecmp(value, "identity") != 0 && *value != '\0';
	} else if (strcasecmp(name, "content-type") == 0) {
		answer->html = strncasecmp(value, "text/html", 9) == 0;
	} else if (strcasecmp(name, "retry-after") == 0) {
		take_retry_after(answer, value);
	} else if (strcasecmp(name, "x-amz-bucket-region") == 0) {
		(void)snprintf(answer->region, sizeof(answer->region), "%s", value); /* cut */
	} else if (strncasecmp(name, "x-amz-", 6) == 0 || strncasecmp(name, "x-obs-", 6) == 0) {
		take_amz(answer, name + 6, value);
	}
}

void s3_answer_line(struct s3_answer *answer, const char *line, size_t len)
{
	char text[1024];
	char *colon;
	char *value;

	while (len && isspace((unsigned char)line[len - 1]))
		len--;
	if (len >= sizeof(text))
		return; /* none of those read is that long */
	memcpy(text, line, len);
	text[len] = '\0';
	if (strncmp(text, "HTTP/", 5) == 0) {
		const char *space = strchr(text, ' ');

		s3_answer_init(answer);
		answer->status = space ? (int)strtol(space + 1, NULL, 10) : 0;
		return;
	}
	colon = strchr(text, ':');
	if (!colon)
		return;
	*colon = '\0';
	value = colon + 1 + strspn(colon + 1, " \t");
	take_header(answer, text, value);
}

/* What is wrong, for a counter; returns `code`. */
static int blame(enum ufs_cause *ret_cause, enum ufs_cause cause, int code)
{
	*ret_cause = cause;
	return code;
}

/* Whether the etag became weak on the way, as that of bytes that were made others there. */
static bool is_weakened(const struct s3_answer *answer, const struct ufs_get *get)
{
	return answer->weak && !s3_tag_of(get->tag, get->tag_len).weak;
}

/* Etags are compared weakly (RFC 9110, 8.8.3.2): by their texts alone. */
static int check_version(const struct s3_answer *answer, const struct ufs_get *get,
	enum ufs_cause *cause, struct err *e)
{
	struct s3_tag tag = s3_tag_of(get->tag, get->tag_len);
	bool by_time = tag.etag_len > 3 && memcmp(tag.etag, "lm:", 3) == 0;
	char modified[32];

	if (by_time ? answer->modified < 0 : answer->etag[0] == '\0')
		return err_set(e, blame(cause, UFS_CAUSE_NOT_S3, -EPROTO), "the answer has no %s%s",
			by_time ? "Last-Modified" : "ETag",
			answer->html ? "; it is a page for people: a proxy on the way?" : "");
	if (by_time) {
		int n = snprintf(
			modified, sizeof(modified), "lm:%lld", (long long)answer->modified);

		if ((uint32_t)n == tag.etag_len && memcmp(modified, tag.etag, tag.etag_len) == 0)
			return 0;
		return err_set(e, blame(cause, UFS_CAUSE_WRONG_ETAG, -ESTALE),
			"the object was changed at the origin: Last-Modified differs");
	}
	if (strlen(answer->etag) == tag.etag_len &&
		memcmp(answer->etag, tag.etag, tag.etag_len) == 0)
		return 0;
	return err_set(e, blame(cause, UFS_CAUSE_WRONG_ETAG, -ESTALE),
		"the object was changed at the origin: its ETag is \"%s\", listed was \"%.*s\"",
		answer->etag, (int)tag.etag_len, tag.etag);
}

/* A length that differs from what the range needs. */
static int check_length(const struct s3_answer *answer, const struct ufs_get *get,
	enum ufs_cause *cause, struct err *e)
{
	enum ufs_cause how = UFS_CAUSE_LONG_BODY;
	uint64_t want = get->length;

	if (answer->encoded && (is_weakened(answer, get) || answer->length < 0))
		return err_set(e, blame(cause, UFS_CAUSE_ENCODING, -EPROTO),
			"the answer has a Content-Encoding that was not requested");
	if (answer->length < 0 || (uint64_t)answer->length == want)
		return 0;
	if (answer->encoded)
		how = UFS_CAUSE_ENCODING;
	else if ((uint64_t)answer->length < want)
		how = UFS_CAUSE_SHORT_BODY;
	return err_set(e, blame(cause, how, -EPROTO), "%lld bytes where %llu were requested%s",
		(long long)answer->length, (unsigned long long)want,
		answer->encoded ? " (with a Content-Encoding)" : "");
}

static int check_whole(const struct s3_answer *answer, const struct ufs_get *get,
	enum ufs_cause *cause, struct err *e)
{
	if (get->offset != 0 || get->length != get->size)
		return err_set(e, blame(cause, UFS_CAUSE_WRONG_RANGE, -EPROTO),
			"the server ignores Range: 200 instead of 206");
	/* In chunks: its end tells, and no part counts before. */
	if (answer->length < 0 && is_weakened(answer, get))
		return err_set(e, blame(cause, UFS_CAUSE_WRONG_RANGE, -EPROTO),
			"neither Content-Range nor Content-Length in the answer");
	if (answer->length >= 0 && !answer->encoded && (uint64_t)answer->length != get->size)
		return err_set(e, blame(cause, UFS_CAUSE_WRONG_ETAG, -ESTALE),
			"the object was changed at the origin: it has %lld bytes, listed were %llu",
			(long long)answer->length, (unsigned long long)get->size);
	return check_length(answer, get, cause, e);
}

static int check_range(const struct s3_answer *answer, const struct ufs_get *get,
	enum ufs_cause *cause, struct err *e)
{
	if (!answer->has_range)
		return err_set(e, blame(cause, UFS_CAUSE_WRONG_RANGE, -EPROTO),
			"206 without a Content-Range that can be read");
	if (answer->range_total != get->size)
		return err_set(e, blame(cause, UFS_CAUSE_WRONG_ETAG, -ESTALE),
			"the object was changed at the origin: it has %llu bytes, listed were %llu",
			(unsigned long long)answer->range_total, (unsigned long long)get->size);
	if (answer->range_start != get->offset ||
		answer->range_end != get->offset + get->length - 1)
		return err_set(e, blame(cause, UFS_CAUSE_WRONG_RANGE, -EPROTO),
			"another range than requested: %llu-%llu",
			(unsigned long long)answer->range_start,
			(unsigned long long)answer->range_end);
	return check_length(answer, get, cause, e);
}

struct ufs_sum s3_answer_sum(const struct s3_answer *answer, bool etags)
{
	struct ufs_sum sum = { 0 };

	if (answer->sum.kind && !answer->sum_of_parts)
		return answer->sum;
	if (etags && !answer->weak && !answer->etag_is_other &&
		hash_unhex(answer->etag, sum.bytes, MD5_BYTES) == 0)
		sum.kind = UFS_SUM_ETAG;
	return sum;
}

int s3_answer_check(const struct s3_answer *answer, const struct ufs_get *get,
	enum ufs_cause *ret_cause, struct err *e)
{
	int r;

	if (answer->status != 206 && answer->status != 200)
		return err_set(e, blame(ret_cause, UFS_CAUSE_NOT_S3, -EPROTO),
			"status %d where 206 was expected", answer->status);
	r = check_version(answer, get, ret_cause, e);
	if (r < 0)
		return r;
	return answer->status == 206 ? check_range(answer, get, ret_cause, e)
				     : check_whole(answer, get, ret_cause, e);
}
