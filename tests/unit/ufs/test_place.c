/* Where requests go after an answer that names another place; above all where they never go. */
#include "ufs/s3_place.h"

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

static struct s3_place place_of(const char *endpoint, const char *region)
{
	struct s3_place place;
	struct err e = ERR_INIT;

	if (s3_place_init(&place, endpoint, region, "bucket", false, false, &e) != 0)
		fail_msg("%s", e.text);
	return place;
}

static void amazon(void **state)
{
	struct s3_place place = place_of(NULL, NULL);

	(void)state;
	assert_string_equal(place.region, "us-east-1");
	assert_string_equal(place.base_url, "https://bucket.s3.us-east-1.amazonaws.com");
	assert_false(s3_place_learn(&place, "bucket", "us-east-1", ""));
	assert_true(s3_place_learn(&place, "bucket", "eu-west-1", ""));
	assert_string_equal(place.region, "eu-west-1");
	assert_string_equal(place.base_url, "https://bucket.s3.eu-west-1.amazonaws.com");
	assert_string_equal(place.host, "bucket.s3.eu-west-1.amazonaws.com");
	assert_false(s3_place_learn(&place, "bucket", "", ""));
	assert_true(s3_place_learn(&place, "bucket", "", "bucket.s3-ap-northeast-1.amazonaws.com"));
	assert_string_equal(place.host, "bucket.s3.ap-northeast-1.amazonaws.com");
	assert_true(s3_place_learn(&place, "bucket", "", "https://s3.eu-north-1.amazonaws.com/"));
	assert_string_equal(place.region, "eu-north-1");
	assert_false(s3_place_learn(&place, "bucket", "", "bucket.s3.amazonaws.com"));
	assert_false(s3_place_learn(&place, "bucket", "cn-north-1", ""));
	place = place_of("https://s3.amazonaws.com", NULL);
	assert_true(s3_place_learn(&place, "bucket", "eu-west-1", ""));
	assert_string_equal(place.host, "bucket.s3.eu-west-1.amazonaws.com");
}

static void own_endpoint(void **state)
{
	static const char *const endpoints[] = { "http://127.0.0.1:9000", "https://s3.example",
		"https://bucket.vpce-1.s3.eu-west-1.vpce.amazonaws.com",
		"https://s3.us-east-1.amazonaws.com:8443", "http://s3.us-east-1.amazonaws.com",
		"https://s3.dualstack.us-east-1.amazonaws.com" };

	(void)state;
	for (size_t i = 0; i < sizeof(endpoints) / sizeof(*endpoints); i++) {
		struct s3_place place = place_of(endpoints[i], NULL);
		struct s3_place before = place;

		assert_true(s3_place_learn(&place, "bucket", "RegionOne", ""));
		assert_false(s3_place_learn(&place, "bucket", "not/one", ""));
		assert_true(s3_place_learn(&place, "bucket", "eu-west-1", "http://evil.example"));
		assert_string_equal(place.region, "eu-west-1");
		assert_string_equal(place.base_url, before.base_url);
		assert_string_equal(place.host, before.host);
		place = before;
		assert_false(s3_place_learn(&place, "bucket", "", "http://evil.example"));
	}
}

/* What comes from a peer never becomes a host outside of Amazon's. */
static void evil(void **state)
{
	static const char *const regions[] = { "evil.example/", "x@evil", "eu west", "A", "../x",
		"evil.com#", "eu-west-1.evil" };
	static const char *const hosts[] = { "evil.example", "evil.amazonaws.com.evil.example",
		".amazonaws.com", "s3..amazonaws.com", "s3.ev/il.amazonaws.com",
		"s3.ev@il.amazonaws.com" };

	(void)state;
	for (size_t i = 0; i < sizeof(regions) / sizeof(*regions); i++) {
		struct s3_place place = place_of(NULL, NULL);

		assert_false(s3_place_learn(&place, "bucket", regions[i], ""));
		assert_string_equal(place.host, "bucket.s3.us-east-1.amazonaws.com");
	}
	for (size_t i = 0; i < sizeof(hosts) / sizeof(*hosts); i++) {
		struct s3_place place = place_of(NULL, NULL);
		const char *end = ".amazonaws.com";

		(void)s3_place_learn(&place, "bucket", "", hosts[i]);
		assert_string_equal(place.host + strlen(place.host) - strlen(end), end);
		assert_null(strpbrk(place.host, "/@#?:"));
	}
}

/* A region is a part of a header: it must not end the header, nor begin another request. */
static void regions(void **state)
{
	static const char *const bad[] = { "x\r\n\r\nGET /other HTTP/1.1\r\nHost: other\r\n",
		"x\ny", "x y", "x/y", "x,y",
		"eu-west-1-eu-west-1-eu-west-1-eu-west-1-eu-west-1-eu-west-1-eu-w" };
	static const char *const endpoints[] = { NULL, "http://192.0.2.1" };

	(void)state;
	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++)
		for (size_t k = 0; k < sizeof(endpoints) / sizeof(*endpoints); k++) {
			struct s3_place place;
			struct err e = ERR_INIT;

			assert_int_equal(s3_place_init(&place, endpoints[k], bad[i], "bucket",
						 false, false, &e),
				-EINVAL);
			assert_non_null(strstr(e.text, "not 1 to 63 letters"));
		}
	assert_string_equal(place_of("http://192.0.2.1", "RegionOne").region, "RegionOne");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(amazon),
		cmocka_unit_test(own_endpoint),
		cmocka_unit_test(regions),
		cmocka_unit_test(evil),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
