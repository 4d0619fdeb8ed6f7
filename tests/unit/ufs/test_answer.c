/* Headers of S3 answers, what is accepted as the bytes asked for, and how failures are told
 * apart. */
#include "ufs/s3_error.h"

#include <curl/curl.h>
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <stdio.h>
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

static enum ufs_cause cause; /* of the last check */

static int check(
	const char *tag, uint64_t size, uint64_t offset, uint64_t length, const struct s3_answer *a)
{
	struct ufs_get get = { .tag = tag,
		.tag_len = (uint32_t)strlen(tag),
		.size = size,
		.offset = offset,
		.length = length };
	struct err e;

	cause = UFS_CAUSE_NONE;
	return s3_answer_check(a, &get, &cause, &e);
}

/* A length in addition to chunks is no length: nothing is concluded from it. */
static void lengths(void **state)
{
	struct s3_answer a;

	(void)state;
	FEED(&a, "HTTP/1.1 206 x", "Content-Length: 5");
	assert_int_equal(a.length, 5);
	FEED(&a, "HTTP/1.1 206 x", "Content-Length: 5", "Transfer-Encoding: chunked");
	assert_int_equal(a.length, -1);
	FEED(&a, "HTTP/1.1 206 x", "transfer-encoding: gzip, chunked", "Content-Length: 5");
	assert_int_equal(a.length, -1);
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
	FEED(&a, "HTTP/1.1 200 x", "ETag: \"t\"", "Transfer-Encoding: chunked");
	assert_int_equal(check("t", 9, 0, 9, &a), 0); /* how many there are is seen at its end */
	assert_int_equal(check("u", 9, 0, 9, &a), -ESTALE);
	assert_int_equal(check("t", 9, 0, 8, &a), -EPROTO);
	FEED(&a, "HTTP/1.1 200 x", "ETag: W/\"t\"", "Transfer-Encoding: chunked");
	assert_int_equal(check("t", 9, 0, 9, &a), -EPROTO);
	assert_int_equal(check("W/\"t\"", 9, 0, 9, &a), 0); /* it was listed so */
	FEED(&a, "HTTP/1.1 200 x", "ETag: \"t\"", "Transfer-Encoding: chunked",
		"Content-Encoding: gzip");
	assert_int_equal(check("t", 9, 0, 9, &a), -EPROTO);
	FEED(&a, "HTTP/1.1 204 x", "ETag: \"t\"");
	assert_int_equal(check("t", 9, 0, 9, &a), -EPROTO);
}

/* Weakly, only the texts count: RFC 9110, 8.8.3.2. */
static void weak_versions(void **state)
{
	static const struct {
		const char *tag, *etag;
		bool equal;
	} cases[] = {
		{ "W/\"1\"", "W/\"1\"", true },
		{ "W/\"1\"", "W/\"2\"", false },
		{ "W/\"1\"", "\"1\"", true },
		{ "1", "\"1\"", true },
		{ "1", "W/\"1\"", true },
		{ "v:id:W/\"1\"", "W/\"1\"", true },
		{ "v:id:W/\"1\"", "W/\"2\"", false },
		{ "W/1", "\"W/1\"", true }, /* a strong one, that begins so */
		{ "W/1", "W/\"1\"", false },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct s3_answer a;
		char line[64];

		(void)snprintf(line, sizeof(line), "ETag: %s", cases[i].etag);
		FEED(&a, "HTTP/1.1 206 x", line, "Content-Range: bytes 2-4/9", "Content-Length: 3");
		if (check(cases[i].tag, 9, 2, 3, &a) != (cases[i].equal ? 0 : -ESTALE))
			fail_msg("%s, %s", cases[i].tag, cases[i].etag);
	}
}

/* Every way in which an answer is none to the question: its errno and its cause. */
static void causes(void **state)
{
	static const struct {
		const char *lines[6];
		int want;
		enum ufs_cause cause;
	} cases[] = {
		{ { "HTTP/1.1 206 x", "ETag: \"u\"", "Content-Range: bytes 2-4/9" }, -ESTALE,
			UFS_CAUSE_WRONG_ETAG },
		{ { "HTTP/1.1 206 x", "ETag: \"t\"", "Content-Range: bytes 2-4/10" }, -ESTALE,
			UFS_CAUSE_WRONG_ETAG },
		{ { "HTTP/1.1 206 x", "ETag: \"t\"", "Content-Range: bytes 3-5/9" }, -EPROTO,
			UFS_CAUSE_WRONG_RANGE },
		{ { "HTTP/1.1 200 x", "ETag: \"t\"", "Content-Length: 9" }, -EPROTO,
			UFS_CAUSE_WRONG_RANGE },
		{ { "HTTP/1.1 206 x", "ETag: \"t\"", "Content-Range: bytes 2-4/9",
			  "Content-Length: 4" },
			-EPROTO, UFS_CAUSE_LONG_BODY },
		{ { "HTTP/1.1 206 x", "ETag: \"t\"", "Content-Range: bytes 2-4/9",
			  "Content-Length: 2" },
			-EPROTO, UFS_CAUSE_SHORT_BODY },
		{ { "HTTP/1.1 200 x", "Content-Type: text/html; charset=x", "Content-Length: 9" },
			-EPROTO, UFS_CAUSE_NOT_S3 },
		{ { "HTTP/1.1 200 x", "Content-Length: 0" }, -EPROTO, UFS_CAUSE_NOT_S3 },
		{ { "HTTP/1.1 304 x", "ETag: \"t\"" }, -EPROTO, UFS_CAUSE_NOT_S3 },
		{ { "HTTP/1.1 206 x", "ETag: \"t\"", "Content-Range: bytes 2-4/9",
			  "Content-Encoding: gzip", "Content-Length: 40" },
			-EPROTO, UFS_CAUSE_ENCODING },
		{ { "HTTP/1.1 206 x", "ETag: W/\"t\"", "Content-Range: bytes 2-4/9",
			  "Content-Encoding: gzip", "Content-Length: 3" },
			-EPROTO, UFS_CAUSE_ENCODING },
		{ { "HTTP/1.1 206 x", "ETag: \"t\"", "Content-Range: bytes 2-4/9",
			  "Content-Encoding: gzip" },
			-EPROTO, UFS_CAUSE_ENCODING },
		/* an object that was stored encoded */
		{ { "HTTP/1.1 206 x", "ETag: \"t\"", "Content-Range: bytes 2-4/9",
			  "Content-Encoding: gzip", "Content-Length: 3" },
			0, UFS_CAUSE_NONE },
		{ { "HTTP/1.1 206 x", "ETag: \"t\"", "Content-Range: bytes 2-4/9",
			  "Content-Encoding: identity" },
			0, UFS_CAUSE_NONE },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct s3_answer a;

		s3_answer_init(&a);
		for (size_t k = 0; k < 6 && cases[i].lines[k]; k++)
			s3_answer_line(&a, cases[i].lines[k], strlen(cases[i].lines[k]));
		if (check("t", 9, 2, 3, &a) != cases[i].want || cause != cases[i].cause)
			fail_msg("case %zu: %s", i, ufs_cause_name(cause));
	}
}

static const struct s3_target target = { .scheme = "s3",
	.url = "http://h",
	.bucket = "b",
	.region = "us-east-1",
	.access_key = "AKID",
	.key_place = "a file" };
static const struct s3_target nobody = {
	.scheme = "s3", .url = "http://h", .bucket = "b", .region = "us-east-1", .key_place = ""
};

static void statuses(void **state)
{
	static const struct {
		int status;
		const char *code;
		bool list;
		int want;
		const char *text;
		enum ufs_cause cause;
	} cases[] = {
		{ 404, "NoSuchKey", false, -ENOENT, "s3://b/k", UFS_CAUSE_NOT_FOUND },
		{ 404, "NoSuchBucket", true, -ENXIO, "no such bucket", UFS_CAUSE_NOT_FOUND },
		{ 404, "NoSuchBucket", false, -ENXIO, "no such bucket", UFS_CAUSE_NOT_FOUND },
		{ 404, "", true, -ENXIO, "", UFS_CAUSE_NOT_FOUND },
		{ 404, "", false, -ENOENT, "", UFS_CAUSE_NOT_FOUND },
		{ 403, "AccessDenied", true, -EACCES, "AKID", UFS_CAUSE_FORBIDDEN },
		{ 403, "", true, -EACCES, "", UFS_CAUSE_FORBIDDEN },
		{ 403, "InvalidAccessKeyId", true, -EKEYREJECTED, "AKID", UFS_CAUSE_KEY },
		{ 403, "SignatureDoesNotMatch", true, -EKEYREJECTED, "secret", UFS_CAUSE_KEY },
		{ 403, "RequestTimeTooSkewed", true, -EKEYREJECTED, "clock", UFS_CAUSE_CLOCK },
		{ 400, "ExpiredToken", true, -EKEYREJECTED, "token", UFS_CAUSE_EXPIRED },
		{ 301, "PermanentRedirect", true, -EREMCHG, "eu-west-1", UFS_CAUSE_REDIRECT },
		{ 400, "AuthorizationHeaderMalformed", true, -EREMCHG, "eu-west-1",
			UFS_CAUSE_REDIRECT },
		{ 307, "", true, -EREMCHG, "", UFS_CAUSE_REDIRECT },
		{ 412, "PreconditionFailed", false, -ESTALE, "changed", UFS_CAUSE_WRONG_ETAG },
		{ 416, "InvalidRange", false, -ESTALE, "changed", UFS_CAUSE_WRONG_ETAG },
		{ 429, "", false, -EAGAIN, "", UFS_CAUSE_SLOW_DOWN },
		{ 503, "SlowDown", false, -EAGAIN, "overload", UFS_CAUSE_SLOW_DOWN },
		{ 503, "AccessDenied", false, -EAGAIN, "", UFS_CAUSE_SLOW_DOWN },
		{ 500, "InternalError", false, -EIO, "", UFS_CAUSE_SERVER_ERROR },
		{ 502, "", false, -EIO, "", UFS_CAUSE_SERVER_ERROR },
		{ 504, "", false, -EIO, "", UFS_CAUSE_SERVER_ERROR },
		{ 501, "NotImplemented", true, -EPROTO, "NotImplemented", UFS_CAUSE_NOT_S3 },
		{ 501, "InternalError", false, -EPROTO, "", UFS_CAUSE_NOT_S3 },
		{ 400, "RequestTimeout", false, -EIO, "", UFS_CAUSE_STALL },
		{ 400, "Strange", false, -EPROTO, "Strange", UFS_CAUSE_NOT_S3 },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct buf body = BUF_INIT(1000);
		struct s3_answer a;
		struct err e = ERR_INIT;
		struct s3_failure failure;
		int r;

		s3_answer_init(&a);
		a.status = cases[i].status;
		assert_int_equal(buf_printf(&body,
					 "<Error><Code>%s</Code><Region>eu-west-1</Region></Error>",
					 cases[i].code),
			0);
		r = s3_error_status(&target, cases[i].list ? NULL : "k", 1, &a, buf_str(&body),
			body.len, &failure, &e);
		if (r != cases[i].want)
			fail_msg("%d %s: %s", cases[i].status, cases[i].code, err_name(r));
		assert_int_equal(e.code, r);
		assert_string_equal(ufs_cause_name(failure.cause), ufs_cause_name(cases[i].cause));
		assert_string_equal(failure.region, "eu-west-1");
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
	struct s3_failure failure;
	struct err e = ERR_INIT;

	(void)state;
	s3_answer_init(&a);
	a.status = 403;
	assert_int_equal(s3_error_status(&target, NULL, 0, &a, body, strlen(body), &failure, &e),
		-EKEYREJECTED);
	assert_non_null(strstr(e.text, "ahead of"));
	assert_non_null(strstr(e.text, "(2001-01-01T00:00:00Z)"));
	assert_non_null(strstr(e.text, "clock (20"));
}

static void anonymous(void **state)
{
	const char *body = "<Error><Code>AccessDenied</Code></Error>";
	struct s3_answer a;
	struct s3_failure failure;
	struct err e = ERR_INIT;

	(void)state;
	s3_answer_init(&a);
	a.status = 403;
	assert_int_equal(
		s3_error_status(&nobody, "k", 1, &a, body, strlen(body), &failure, &e), -EACCES);
	assert_non_null(strstr(e.text, "anonymous"));
	body = "<Error><Code>InvalidAccessKeyId</Code></Error>"; /* of a confused server */
	assert_int_equal(s3_error_status(&nobody, "k", 1, &a, body, strlen(body), &failure, &e),
		-EKEYREJECTED);
}

static void transfers(void **state)
{
	static const struct {
		int code;
		const char *text;
		int proxy;
		int want;
		enum ufs_cause cause;
		const char *line;
	} cases[] = {
		{ CURLE_COULDNT_CONNECT, "Failed to connect to h port 80 after 0 ms: Couldn't", 0,
			-ECONNREFUSED, UFS_CAUSE_CONNECT, "running there" },
		{ CURLE_COULDNT_CONNECT, "Failed to connect to proxy port 3128 after 0 ms", 0,
			-ECONNREFUSED, UFS_CAUSE_PROXY, "https_proxy" },
		{ CURLE_COULDNT_RESOLVE_HOST, "x", 0, -EHOSTUNREACH, UFS_CAUSE_DNS, "not found" },
		{ CURLE_COULDNT_RESOLVE_PROXY, "x", 0, -EHOSTUNREACH, UFS_CAUSE_PROXY, "proxy" },
		{ CURLE_OPERATION_TIMEDOUT, "x", 0, -ETIMEDOUT, UFS_CAUSE_CONNECT, "network" },
		{ CURLE_OPERATION_TIMEDOUT, "Resolving timed out after 1 ms", 0, -ETIMEDOUT,
			UFS_CAUSE_DNS, "resolver" },
		{ CURLE_PARTIAL_FILE, "x", 0, -EIO, UFS_CAUSE_SHORT_BODY, "early" },
		{ CURLE_RECV_ERROR, "x", 0, -EIO, UFS_CAUSE_RESET, "lost" },
		{ CURLE_GOT_NOTHING, "x", 0, -EIO, UFS_CAUSE_RESET, "lost" },
		{ CURLE_RECV_ERROR, "CONNECT tunnel failed", 403, -ECONNREFUSED, UFS_CAUSE_PROXY,
			"(403)" },
		{ CURLE_RECV_ERROR, "CONNECT tunnel failed", 407, -EACCES, UFS_CAUSE_PROXY,
			"password" },
		{ CURLE_RECV_ERROR, "x", 200, -EIO, UFS_CAUSE_RESET, "lost" },
		{ CURLE_PEER_FAILED_VERIFICATION, "certificate has expired", 0, -EPROTO,
			UFS_CAUSE_TLS, "renew" },
		{ CURLE_PEER_FAILED_VERIFICATION, "unable to get local issuer certificate", 0,
			-EPROTO, UFS_CAUSE_TLS, "--ca-file" },
		{ CURLE_PEER_FAILED_VERIFICATION, "no alternative certificate subject name matches",
			0, -EPROTO, UFS_CAUSE_TLS, "another host" },
		{ CURLE_SSL_CACERT_BADFILE, "x", 0, -EPROTO, UFS_CAUSE_TLS, "PEM" },
		{ CURLE_SSL_CONNECT_ERROR, "wrong version number", 0, -EPROTO, UFS_CAUSE_TLS,
			"http://" },
		{ CURLE_WEIRD_SERVER_REPLY, "x", 0, -EPROTO, UFS_CAUSE_NOT_S3, "HTTP" },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		const struct s3_transfer transfer = { .curl_code = cases[i].code,
			.text = cases[i].text,
			.proxy_status = cases[i].proxy };
		enum ufs_cause why = UFS_CAUSE_NONE;
		struct err e = ERR_INIT;

		if (s3_error_transfer(&target, &transfer, &why, &e) != cases[i].want ||
			why != cases[i].cause || !strstr(e.text, cases[i].line) ||
			!strstr(e.text, target.url))
			fail_msg("case %zu: %s %s", i, ufs_cause_name(why), e.text);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(content_range),
		cmocka_unit_test(headers),
		cmocka_unit_test(lengths),
		cmocka_unit_test(versions),
		cmocka_unit_test(weak_versions),
		cmocka_unit_test(causes),
		cmocka_unit_test(statuses),
		cmocka_unit_test(clock_difference),
		cmocka_unit_test(anonymous),
		cmocka_unit_test(transfers),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
