/* Signature Version 4 against the vectors that Amazon publishes; encoding of URIs. */
#include "ufs/s3_sign.h"

#include <errno.h>

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#define SUITE_KEY    "AKIDEXAMPLE"
#define SUITE_SECRET "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"
#define DOC_KEY      "AKIAIOSFODNN7EXAMPLE"
#define DOC_SECRET   "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"

static void expect_signature(struct s3_signer *signer, const struct s3_signed *request,
	const char *scope, const char *signature)
{
	struct buf out = BUF_INIT(4096);
	const char *s;

	assert_int_equal(s3_sign(signer, request, &out), 0);
	assert_non_null(strstr(buf_str(&out), scope));
	s = strstr(buf_str(&out), "Signature=");
	assert_non_null(s);
	assert_string_equal(s + strlen("Signature="), signature);
	buf_release(&out);
}

#define UNRESERVED "-._~0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"

/* The aws4_testsuite: GET requests of "service" in us-east-1. */
static void suite(void **state)
{
	static const struct {
		const char *path;
		struct s3_param params[2];
		size_t n;
		const char *signature;
	} cases[] = {
		/* get-vanilla */
		{ "/", { { 0 } }, 0,
			"5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31" },
		/* get-vanilla-empty-query-key */
		{ "/", { { "Param1", "value1", 6 } }, 1,
			"a67d582fa61cc504c4bae71f336f98b97f1ea3c7a6bfe1b6e45aec72011b9aeb" },
		/* get-vanilla-query-order-key-case */
		{ "/", { { "Param2", "value2", 6 }, { "Param1", "value1", 6 } }, 2,
			"b97d918cfa904a5beff61c982a1b6f458b799221646efd99d3219ec94cdf2500" },
		/* get-utf8 */
		{ "/\xe1\x88\xb4", { { 0 } }, 0,
			"8318018e0b0f223aa2bbf98705b62bb787dc9c0e678f255a891fd03141be5d85" },
		/* get-vanilla-utf8-query */
		{ "/", { { "\xe1\x88\xb4", "bar", 3 } }, 1,
			"2cdec8eed098649ff3a119c94853b13c643bcf08f8b0a1d91e12c9027818dd04" },
		/* get-unreserved */
		{ "/" UNRESERVED, { { 0 } }, 0,
			"07ef7494c76fa4850883e2b006601f940f8a34d404d0cfa977f52a65bbf5f24f" },
		/* get-vanilla-query-unreserved */
		{ "/", { { UNRESERVED, UNRESERVED, sizeof(UNRESERVED) - 1 } }, 1,
			"9c3e54bfcdf0b19771a7f523ee5669cdf59bc7cc0884027167c21bb143a40197" },
		/* get-space */
		{ "/example space/", { { 0 } }, 0,
			"652487583200325589f1fba4c7e578f72c47cb61beeca81406b39ddec1366741" },
	};
	struct s3_signer signer;

	(void)state;
	s3_signer_init(&signer, SUITE_KEY, SUITE_SECRET, "us-east-1", "service");
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		const char *time = "20150830T123600Z";
		struct s3_header headers[] = { { "host", "example.amazonaws.com" },
			{ "x-amz-date", time } };
		struct s3_param params[2];
		struct buf path = BUF_INIT(4096);
		struct buf query = BUF_INIT(4096);

		memcpy(params, cases[i].params, sizeof(params));
		assert_int_equal(s3_encode(&path, cases[i].path, strlen(cases[i].path), true), 0);
		assert_int_equal(s3_encode_query(&query, params, cases[i].n), 0);
		expect_signature(&signer,
			&(struct s3_signed){ "GET", buf_str(&path), buf_str(&query), headers, 2,
				S3_EMPTY_SHA256, time },
			"Credential=AKIDEXAMPLE/20150830/us-east-1/service/aws4_request, "
			"SignedHeaders=host;x-amz-date, ",
			cases[i].signature);
		buf_release(&path);
		buf_release(&query);
	}
	s3_signer_release(&signer);
}

#define SUITE_TOKEN                                                                             \
	"AQoDYXdzEPT//////////wEXAMPLEtc764bNrC9SAPBSM22wDOk4x4HIZ8j4FZTwdQWLWsKWHGBuFqwAeMicR" \
	"XmxfpSPfIeoIYRqTflfKD8YUuwthAx7mSEI/qkPpKPi/kMcGdQrmGdeehM4IC1NtBmUpp2wUE8phUZampKsbu" \
	"rEDy0KPkyQDYwT7WZ0wq5VSXDvp75YU9HFvlRd8Tx6q6fE8YQcHNVXAkiY9q6d+xo0rKwT38xVqr7ZD0u0iPP" \
	"kUL64lIZbqBAz+scqKmlzm8FDrypNC9Yjc8fPOLn9FX9KSYvKTr4rvx3iSIlTJabIQwj2ICCR/oLxBA=="

/* post-vanilla, and post-sts-header-before: the token of a session is signed. */
static void suite_session(void **state)
{
	const char *time = "20150830T123600Z";
	struct s3_header headers[] = { { "host", "example.amazonaws.com" }, { "x-amz-date", time },
		{ "x-amz-security-token", SUITE_TOKEN } };
	struct s3_signed request = { "POST", "/", "", headers, 2, S3_EMPTY_SHA256, time };
	struct s3_signer signer;

	(void)state;
	s3_signer_init(&signer, SUITE_KEY, SUITE_SECRET, "us-east-1", "service");
	expect_signature(&signer, &request, "SignedHeaders=host;x-amz-date, ",
		"5da7c1a2acd57cee7505fc6676e4e544621c30862966e37dddb68e92efbe5d6b");
	request.n_headers = 3;
	expect_signature(&signer, &request, "SignedHeaders=host;x-amz-date;x-amz-security-token, ",
		"85d96828115b5dc0cfc3bd16ad9e210dd772bbebba041836c64533a82be05ead");
	s3_signer_release(&signer);
}

#define DOC_TIME  "20130524T000000Z"
#define DOC_SCOPE "Credential=AKIAIOSFODNN7EXAMPLE/20130524/us-east-1/s3/aws4_request, "

/* "GET Object" of the S3 documentation: a signed range. */
static void s3_get_range(void **state)
{
	struct s3_header headers[] = {
		{ "host", "examplebucket.s3.amazonaws.com" },
		{ "range", "bytes=0-9" },
		{ "x-amz-content-sha256", S3_EMPTY_SHA256 },
		{ "x-amz-date", DOC_TIME },
	};
	struct s3_signer signer;

	(void)state;
	s3_signer_init(&signer, DOC_KEY, DOC_SECRET, "us-east-1", "s3");
	expect_signature(&signer,
		&(struct s3_signed){
			"GET", "/test.txt", "", headers, 4, S3_EMPTY_SHA256, DOC_TIME },
		DOC_SCOPE, "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41");
	s3_signer_release(&signer);
}

/* "Get Bucket (List Objects)" and "GET Bucket Lifecycle". */
static void s3_list(void **state)
{
	struct s3_header headers[] = {
		{ "host", "examplebucket.s3.amazonaws.com" },
		{ "x-amz-content-sha256", S3_EMPTY_SHA256 },
		{ "x-amz-date", DOC_TIME },
	};
	struct s3_param params[] = { { "prefix", "J", 1 }, { "max-keys", "2", 1 } };
	struct buf query = BUF_INIT(4096);
	struct s3_signer signer;

	(void)state;
	s3_signer_init(&signer, DOC_KEY, DOC_SECRET, "us-east-1", "s3");
	assert_int_equal(s3_encode_query(&query, params, 2), 0);
	assert_string_equal(buf_str(&query), "max-keys=2&prefix=J");
	expect_signature(&signer,
		&(struct s3_signed){
			"GET", "/", buf_str(&query), headers, 3, S3_EMPTY_SHA256, DOC_TIME },
		DOC_SCOPE, "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7");
	expect_signature(&signer,
		&(struct s3_signed){
			"GET", "/", "lifecycle=", headers, 3, S3_EMPTY_SHA256, DOC_TIME },
		DOC_SCOPE, "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543");
	buf_release(&query);
	s3_signer_release(&signer);
}

/* The key of a day is kept: the next day's signature must not use it. */
static void another_day(void **state)
{
	struct s3_header headers[] = { { "host", "h" } };
	struct s3_signed first = { "GET", "/", "", headers, 1, S3_EMPTY_SHA256,
		"20200101T000000Z" };
	struct s3_signed second = first;
	struct s3_signer kept, fresh;
	struct buf a = BUF_INIT(4096), b = BUF_INIT(4096);

	(void)state;
	second.time = "20200102T000000Z";
	s3_signer_init(&kept, DOC_KEY, DOC_SECRET, "us-east-1", "s3");
	s3_signer_init(&fresh, DOC_KEY, DOC_SECRET, "us-east-1", "s3");
	assert_int_equal(s3_sign(&kept, &first, &a), 0);
	buf_clear(&a);
	assert_int_equal(s3_sign(&kept, &second, &a), 0);
	assert_int_equal(s3_sign(&fresh, &second, &b), 0);
	assert_string_equal(buf_str(&a), buf_str(&b));
	assert_null(strstr(buf_str(&a), DOC_SECRET));
	buf_release(&a);
	buf_release(&b);
	s3_signer_release(&kept);
	s3_signer_release(&fresh);
}

static void encoding(void **state)
{
	static const struct {
		const char *raw, *path, *query;
	} cases[] = {
		{ "a b+c%d", "a%20b%2Bc%25d", "a%20b%2Bc%25d" },
		{ "?&#=;:@$,", "%3F%26%23%3D%3B%3A%40%24%2C", "%3F%26%23%3D%3B%3A%40%24%2C" },
		{ "x//y/./../z/", "x//y/./../z/", "x%2F%2Fy%2F.%2F..%2Fz%2F" },
		{ "A-Z_a.z~09", "A-Z_a.z~09", "A-Z_a.z~09" },
		{ "\xc3\xbc\x7f\x01\xff", "%C3%BC%7F%01%FF", "%C3%BC%7F%01%FF" },
		{ "'()*!\"<>", "%27%28%29%2A%21%22%3C%3E", "%27%28%29%2A%21%22%3C%3E" },
	};
	struct buf b = BUF_INIT(64);

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		buf_clear(&b);
		assert_int_equal(s3_encode(&b, cases[i].raw, strlen(cases[i].raw), true), 0);
		assert_string_equal(buf_str(&b), cases[i].path);
		buf_clear(&b);
		assert_int_equal(s3_encode(&b, cases[i].raw, strlen(cases[i].raw), false), 0);
		assert_string_equal(buf_str(&b), cases[i].query);
	}
	assert_int_equal(
		s3_encode(&b, "this is more than what fits into the buffer", 43, true), -ENOBUFS);
	buf_release(&b);
}

static void times(void **state)
{
	char out[S3_TIME_SIZE];

	(void)state;
	s3_time(1369353600000000000ull, out);
	assert_string_equal(out, "20130524T000000Z");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(suite),
		cmocka_unit_test(suite_session),
		cmocka_unit_test(s3_get_range),
		cmocka_unit_test(s3_list),
		cmocka_unit_test(another_day),
		cmocka_unit_test(encoding),
		cmocka_unit_test(times),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
