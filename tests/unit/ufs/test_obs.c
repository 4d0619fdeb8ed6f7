/* OBS's own signature: what is signed, against the examples that are published, and the result
 * (obs_vectors.h). */
#include "tests/unit/ufs/obs_vectors.h"
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

/* A row of the tables of vectors. */
struct vector {
	const char *name;
	const char *method, *md5, *type, *date;
	struct obs_header headers[4];
	const char *resource, *query;
	const char *result;
};
#define ROW(name, method, md5, type, date, headers, resource, query, result) \
	{ name, method, md5, type, date, headers, resource, query, result },
static const struct vector texts[] = { OBS_TEXTS(ROW) };
static const struct vector signatures[] = { OBS_SIGNATURES(ROW) };
#undef ROW

static struct obs_signed request_of(const struct vector *v)
{
	struct obs_signed request = { .method = v->method,
		.md5 = v->md5,
		.type = v->type,
		.date = v->date,
		.headers = v->headers,
		.resource = v->resource,
		.query = v->query };

	while (request.n_headers < ARRAY_SIZE(v->headers) && v->headers[request.n_headers].name)
		request.n_headers++;
	return request;
}

static void documented(void **state)
{
	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(texts); i++) {
		const struct obs_signed request = request_of(&texts[i]);
		struct buf text = BUF_INIT(4096);

		assert_int_equal(obs_string_to_sign(&request, &text), 0);
		if (strcmp(buf_str(&text), texts[i].result) != 0)
			fail_msg("%s: \"%s\"", texts[i].name, buf_str(&text));
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
		{ "attname=a%20b%2526%zz%4", "?attname=a b%26%zz%4" },
		{ "acl&x-image-process=image%2Fresize%2Cw_1",
			"?acl&x-image-process=image/resize,w_1" },
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

static void signature(void **state)
{
	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(signatures); i++) {
		const struct obs_signed request = request_of(&signatures[i]);
		struct buf out = BUF_INIT(4096);
		char want[100];

		assert_int_equal(obs_sign(OBS_VECTOR_KEY, OBS_VECTOR_SECRET, &request, &out), 0);
		(void)snprintf(
			want, sizeof(want), "OBS %s:%s", OBS_VECTOR_KEY, signatures[i].result);
		if (strcmp(buf_str(&out), want) != 0)
			fail_msg("%s: %s", signatures[i].name, buf_str(&out));
		buf_release(&out);
	}
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
