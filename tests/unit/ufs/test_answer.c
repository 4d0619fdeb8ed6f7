/* Headers of S3 answers, what is accepted as the bytes asked for, and how failures are told
 * apart. */
#include "ufs/s3_error.h"

#include <curl/curl.h>
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

static void content_range(void **state)
{
	static const char *const bad[] = { "", "bytes", "bytes ", "bytes 0-9", "bytes 0-9/",
		"bytes 0-9/*", "bytes */100", "bytes 9-0/100", "bytes 0-100/100", "bytes -1-2/3",
		"bytes 0-9/100x", "bits 0-9/100", "bytes 0x0-9/100",
		"bytes 0-99999999999999999999/999999999999999999999" };
	uint64_t start, end, total;

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
		if (s3_content_range(bad[i], &start, &end, &total) != -EPROTO)
			fail_msg("accepted: %s", bad[i]);
	assert_int_equal(s3_content_range("bytes 5-9/100", &start, &end, &total), 0);
	assert_int_equal(start, 5);
	assert_int_equal(end, 9);
	assert_int_equal(total, 100);
	assert_int_equal(s3_content_range("Bytes  0-0/1", &start, &end, &total), 0);
}

static void feed(struct s3_answer *a, const char *const *lines)
{
	s3_answer_init(a);
	for (; *lines; lines++)
		s3_answer_line(a, *lines, strlen(*lines));
}
#define FEED(a, ...) feed(a, (const char *const[]){ __VA_ARGS__, NULL })

static void headers(void **state)
{
	struct s3_answer a;

	(void)state;
	FEED(&a, "HTTP/1.1 100 Continue\r\n", "ETag: \"old\"\r\n", "\r\n",
		"HTTP/1.1 206 Partial Content\r\n", "eTaG:W/\"new\" \r\n", "Content-Length:\t5\r\n",
		"Content-Range: bytes 0-4/9\r\n", "Retry-After: 7\r\n",
		"Last-Modified: Wed, 21 Oct 2015 07:28:00 GMT\r\n",
		"x-amz-bucket-region: eu-west-1\r\n", "nonsense\r\n", "\r\n");
	assert_int_equal(a.status, 206);
	assert_string_equal(a.etag, "new");
	assert_int_equal(a.length, 5);
	assert_true(a.has_range);
	assert_int_equal(a.range_total, 9);
	assert_int_equal(a.retry_after_ns, 7000000000);
	assert_int_equal(a.modified, 1445412480);
	assert_string_equal(a.region, "eu-west-1");
	FEED(&a, "HTTP/1.1 200 OK\r\n", "Content-Length: 99999999999999999999\r\n",
		"Retry-After: 999999999\r\n", "Content-Range: rubbish\r\n");
	assert_int_equal(a.length, -1);
	assert_false(a.has_range);
	assert_true(a.retry_after_ns <= 3600000000000ull);
}

static int check(
	const char *tag, uint64_t size, uint64_t offset, uint64_t length, const struct s3_answer *a)
{
	struct ufs_get get = { .tag = tag,
		.tag_len = (uint32_t)strlen(tag),
		.size = size,
		.offset = offset,
		.length = length };
	struct err e;

	return s3_answer_check(a, &get, &e);
}

static void versions(void **state)
{
	struct s3_answer a;

	(void)state;
	FEED(&a, "HTTP/1.1 206 x", "ETag: \"t\"", "Content-Range: bytes 2-4/9", "Content-Length: 3",
		"Last-Modified: Wed, 21 Oct 2015 07:28:00 GMT");
	assert_int_equal(check("t", 9, 2, 3, &a), 0);
	assert_int_equal(check("u", 9, 2, 3, &a), -ESTALE);
	assert_int_equal(check("tt", 9, 2, 3, &a), -ESTALE);
	assert_int_equal(check("", 9, 2, 3, &a), -ESTALE);
	assert_int_equal(check("lm:1445412480", 9, 2, 3, &a), 0);
	assert_int_equal(check("lm:1445412481", 9, 2, 3, &a), -ESTALE);
	assert_int_equal(check("t", 10, 2, 3, &a), -ESTALE);
	assert_int_equal(check("t", 9, 1, 3, &a), -EPROTO);
	assert_int_equal(check("t", 9, 2, 4, &a), -EPROTO);
	FEED(&a, "HTTP/1.1 206 x", "ETag: \"t\"");
	assert_int_equal(check("t", 9, 2, 3, &a), -EPROTO);
	FEED(&a, "HTTP/1.1 206 x", "ETag: \"t\"", "Content-Range: bytes 2-4/9",
		"Content-Length: 2");
	assert_int_equal(check("t", 9, 2, 3, &a), -EPROTO);
	FEED(&a, "HTTP/1.1 200 x", "ETag: \"t\"", "Content-Length: 9");
	assert_int_equal(check("t", 9, 0, 9, &a), 0);
	assert_int_equal(check("t", 9, 2, 3, &a), -EPROTO);
	assert_int_equal(check("t", 8, 0, 8, &a), -ESTALE);
	FEED(&a, "HTTP/1.1 200 x", "ETag: \"t\"");
	assert_int_equal(check("t", 9, 0, 9, &a), -EPROTO);
	FEED(&a, "HTTP/1.1 204 x", "ETag: \"t\"");
	assert_int_equal(check("t", 9, 0, 9, &a), -EPROTO);
}

static const struct s3_target target = { "http://h", "b", "us-east-1", "AKID" };

static void statuses(void **state)
{
	static const struct {
		int status;
		const char *code;
		bool list;
		int want;
		const char *text;
	} cases[] = {
		{ 404, "NoSuchKey", false, -ENOENT, "s3://b/k" },
		{ 404, "NoSuchBucket", true, -ENXIO, "no such bucket" },
		{ 404, "NoSuchBucket", false, -ENXIO, "no such bucket" },
		{ 404, "", true, -ENXIO, "" },
		{ 404, "", false, -ENOENT, "" },
		{ 403, "AccessDenied", true, -EACCES, "AKID" },
		{ 403, "", true, -EACCES, "" },
		{ 403, "InvalidAccessKeyId", true, -EKEYREJECTED, "AKID" },
		{ 403, "SignatureDoesNotMatch", true, -EKEYREJECTED, "secret" },
		{ 403, "RequestTimeTooSkewed", true, -EKEYREJECTED, "clock" },
		{ 400, "ExpiredToken", true, -EKEYREJECTED, "token" },
		{ 301, "PermanentRedirect", true, -EREMCHG, "eu-west-1" },
		{ 400, "AuthorizationHeaderMalformed", true, -EREMCHG, "eu-west-1" },
		{ 307, "", true, -EREMCHG, "" },
		{ 412, "PreconditionFailed", false, -ESTALE, "changed" },
		{ 416, "InvalidRange", false, -ESTALE, "changed" },
		{ 429, "", false, -EAGAIN, "" },
		{ 503, "SlowDown", false, -EAGAIN, "overload" },
		{ 503, "AccessDenied", false, -EAGAIN, "" },
		{ 500, "InternalError", false, -EIO, "" },
		{ 502, "", false, -EIO, "" },
		{ 504, "", false, -EIO, "" },
		{ 400, "RequestTimeout", false, -EIO, "" },
		{ 400, "Strange", false, -EPROTO, "Strange" },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct buf body = BUF_INIT(1000);
		struct s3_answer a;
		struct err e = ERR_INIT;
		int r;

		s3_answer_init(&a);
		a.status = cases[i].status;
		assert_int_equal(buf_printf(&body,
					 "<Error><Code>%s</Code><Region>eu-west-1</Region></Error>",
					 cases[i].code),
			0);
		r = s3_error_status(
			&target, cases[i].list ? NULL : "k", 1, &a, buf_str(&body), body.len, &e);
		if (r != cases[i].want)
			fail_msg("%d %s: %s", cases[i].status, cases[i].code, err_name(r));
		assert_int_equal(e.code, r);
		if (!strstr(e.text, cases[i].text))
			fail_msg("%s: %s", cases[i].code, e.text);
		buf_release(&body);
	}
}

static void clock_difference(void **state)
{
	const char *body = "<Error><Code>RequestTimeTooSkewed</"
			   "Code><ServerTime>2001-01-01T00:00:00Z</ServerTime></Error>";
	struct s3_answer a;
	struct err e = ERR_INIT;

	(void)state;
	s3_answer_init(&a);
	a.status = 403;
	assert_int_equal(
		s3_error_status(&target, NULL, 0, &a, body, strlen(body), &e), -EKEYREJECTED);
	assert_non_null(strstr(e.text, "ahead of"));
}

static void transfers(void **state)
{
	struct err e;

	(void)state;
	assert_int_equal(
		s3_error_transfer(&target, CURLE_COULDNT_CONNECT, "refused", &e), -ECONNREFUSED);
	assert_int_equal(
		s3_error_transfer(&target, CURLE_COULDNT_RESOLVE_HOST, "x", &e), -EHOSTUNREACH);
	assert_int_equal(s3_error_transfer(&target, CURLE_OPERATION_TIMEDOUT, "x", &e), -ETIMEDOUT);
	assert_int_equal(s3_error_transfer(&target, CURLE_PARTIAL_FILE, "x", &e), -EIO);
	assert_int_equal(s3_error_transfer(&target, CURLE_RECV_ERROR, "x", &e), -EIO);
	assert_int_equal(s3_error_transfer(&target, CURLE_GOT_NOTHING, "x", &e), -EIO);
	assert_int_equal(
		s3_error_transfer(&target, CURLE_PEER_FAILED_VERIFICATION, "x", &e), -EPROTO);
	assert_non_null(strstr(e.text, "certificate"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(content_range),
		cmocka_unit_test(headers),
		cmocka_unit_test(versions),
		cmocka_unit_test(statuses),
		cmocka_unit_test(clock_difference),
		cmocka_unit_test(transfers),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
