/* OBS's own signature: what is signed, against the examples that are published, and the result. */
#include "ufs/obs_sign.h"
#include "base/check.h"
#include "base/hash.h"

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

/*
 * StringToSign of the examples of
 * https://support.huaweicloud.com/intl/en-us/api-obs/obs_04_0010.html (tables 2 to 6); their secrets
 * are not published, so the signature is checked by others, below.
 */
static void documented(void **state)
{
	static const struct obs_header security[] = { { "x-obs-security-token",
		"YwkaRTbdY8g7q...." } };
	static const struct obs_header acl[] = { { "x-obs-acl", "public-read" } };
	static const struct {
		struct obs_signed request;
		const char *text;
	} cases[] = {
		{ { .method = "GET",
			  .type = "",
			  .date = "Sat, 12 Oct 2015 08:12:38 GMT",
			  .resource = "/bucket/object.txt",
			  .query = "" },
			"GET\n\n\nSat, 12 Oct 2015 08:12:38 GMT\n/bucket/object.txt" },
		{ { .method = "PUT",
			  .type = "text/plain",
			  .date = "Sat, 12 Oct 2015 08:12:38 GMT",
			  .headers = security,
			  .n_headers = 1,
			  .resource = "/bucket/object.txt",
			  .query = "" },
			"PUT\n\ntext/plain\nSat, 12 Oct 2015 08:12:38 GMT\n"
			"x-obs-security-token:YwkaRTbdY8g7q....\n/bucket/object.txt" },
		{ { .method = "PUT",
			  .type = "text/plain",
			  .date = "Sat, 12 Oct 2015 08:12:38 GMT",
			  .headers = acl,
			  .n_headers = 1,
			  .resource = "/bucket/object.txt",
			  .query = "" },
			"PUT\n\ntext/plain\nSat, 12 Oct 2015 08:12:38 GMT\n"
			"x-obs-acl:public-read\n/bucket/object.txt" },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct buf text = BUF_INIT(4096);

		assert_int_equal(obs_string_to_sign(&cases[i].request, &text), 0);
		assert_string_equal(buf_str(&text), cases[i].text);
		buf_release(&text);
	}
}

/* Of the query only sub-resources are signed, without the '=' of those that have no value. */
static void query(void **state)
{
	static const char *const cases[][2] = {
		{ "prefix=a&versions=", "?versions" },
		{ "delimiter=%2F&marker=x", "" },
		{ "versionId=G001117FCE89978B0000401205D5DC9A",
			"?versionId=G001117FCE89978B0000401205D5DC9A" },
		{ "versioning=", "?versioning" },
		{ "encoding-type=url&versions=&zversions=1", "?versions" },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct buf text = BUF_INIT(4096);
		char want[200];

		assert_int_equal(obs_string_to_sign(&(struct obs_signed){ .method = "GET",
							    .type = "",
							    .date = "D",
							    .resource = "/b/",
							    .query = cases[i][0] },
					 &text),
			0);
		(void)snprintf(want, sizeof(want), "GET\n\n\nD\n/b/%s", cases[i][1]);
		assert_string_equal(buf_str(&text), want);
		buf_release(&text);
	}
}

static void expect_signature(
	const char *ak, const char *sk, const struct obs_signed *request, const char *authorization)
{
	struct buf out = BUF_INIT(4096);

	assert_int_equal(obs_sign(ak, sk, request, &out), 0);
	assert_string_equal(buf_str(&out), authorization);
	buf_release(&out);
}

/*
 * HMAC-SHA1 and its Base64 by the vector of the protocol that OBS's is the same as (AWS signature
 * version 2, "Object GET" of https://docs.aws.amazon.com/AmazonS3/latest/userguide/RESTAuthentication.html):
 * of the same text under the same secret the signature is the same.
 */
static void signature(void **state)
{
	(void)state;
	expect_signature("AKIAIOSFODNN7EXAMPLE", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
		&(struct obs_signed){ .method = "GET",
			.type = "",
			.date = "Tue, 27 Mar 2007 19:36:42 +0000",
			.resource = "/awsexamplebucket1/photos/puppy.jpg",
			.query = "" },
		"OBS AKIAIOSFODNN7EXAMPLE:qgk2+6Sv9/oM7G3qLEjTH1a1l1g=");
	/* "List" of the same page: parameters of a listing are not signed. */
	expect_signature("AKIAIOSFODNN7EXAMPLE", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
		&(struct obs_signed){ .method = "GET",
			.type = "",
			.date = "Tue, 27 Mar 2007 19:42:41 +0000",
			.resource = "/awsexamplebucket1/",
			.query = "prefix=photos&max-keys=50&marker=puppy" },
		"OBS AKIAIOSFODNN7EXAMPLE:m0WP8eCtspQl5Ahe6L1SozdX9YA=");
}

/* RFC 2202, test cases 1 and 2; RFC 4648, section 10. */
static void primitives(void **state)
{
	static const char *const base64[][2] = { { "", "" }, { "f", "Zg==" }, { "fo", "Zm8=" },
		{ "foo", "Zm9v" }, { "foob", "Zm9vYg==" }, { "fooba", "Zm9vYmE=" },
		{ "foobar", "Zm9vYmFy" } };
	uint8_t mac[SHA1_BYTES];
	char hex[2 * SHA1_BYTES + 1];
	char key[20];

	(void)state;
	memset(key, 0x0b, sizeof(key));
	hash_hmac_sha1(key, sizeof(key), "Hi There", 8, mac);
	hash_hex(mac, sizeof(mac), hex);
	assert_string_equal(hex, "b617318655057264e28bc0b6fb378c8ef146be00");
	hash_hmac_sha1("Jefe", 4, "what do ya want for nothing?", 28, mac);
	hash_hex(mac, sizeof(mac), hex);
	assert_string_equal(hex, "effcdf6ae5eb2fa2d27416d5f184df9c259a7c79");
	for (size_t i = 0; i < ARRAY_SIZE(base64); i++) {
		char out[HASH_BASE64_SIZE(6)];

		hash_base64(base64[i][0], strlen(base64[i][0]), out);
		assert_string_equal(out, base64[i][1]);
	}
}

static void dates(void **state)
{
	char out[OBS_DATE_SIZE];

	(void)state;
	obs_date(1369353600000000000ull, out);
	assert_string_equal(out, "Fri, 24 May 2013 00:00:00 GMT");
	obs_date(1444464758000000000ull, out);
	assert_string_equal(out, "Sat, 10 Oct 2015 08:12:38 GMT");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(documented),
		cmocka_unit_test(query),
		cmocka_unit_test(signature),
		cmocka_unit_test(primitives),
		cmocka_unit_test(dates),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
