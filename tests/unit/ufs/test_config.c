/* URLs of sources, their canonical text, endpoints. */
#include "ufs/s3_endpoint.h"
#include "ufs/ufs.h"

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

static void urls(void **state)
{
	static const struct {
		const char *url;
		enum ufs_scheme scheme;
		const char *bucket, *prefix;
	} cases[] = {
		{ "s3://b", UFS_S3, "b", "" },
		{ "s3://b/", UFS_S3, "b", "" },
		{ "S3://my-bucket.x/a/b", UFS_S3, "my-bucket.x", "a/b/" },
		{ "s3://b//a/", UFS_S3, "b", "a/" },
		{ "s3://b/a b+%20?#", UFS_S3, "b", "a b+%20?#/" },
		{ "s3://b/a//b/..", UFS_S3, "b", "a//b/../" },
		{ "file:///data", UFS_FILE, NULL, "/data/" },
		{ "file:///data//./x/", UFS_FILE, NULL, "/data/x/" },
		{ "file:///", UFS_FILE, NULL, "/" },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct ufs_config config;

		assert_int_equal(ufs_config_parse(cases[i].url, &config, NULL), 0);
		assert_int_equal(config.scheme, cases[i].scheme);
		if (cases[i].bucket)
			assert_string_equal(config.bucket, cases[i].bucket);
		else
			assert_null(config.bucket);
		assert_string_equal(config.prefix, cases[i].prefix);
		ufs_config_release(&config);
	}
}

static void bad_urls(void **state)
{
	static const char *const cases[] = { "", "s3", "s3:/b", "s3://", "s3:///p", "s3://b?x",
		"s3://b c/p", "obs:/b", "obs://", "obs:///p", "http://h/b", "/data", "file://data",
		"file:data", "s3://\xff/" };
	static const char *const secret[] = { "s3://AKID:hunter2@bucket/p",
		"s3://AKID:hunter/2@bucket/p", "obs://AKID:hunter2@bucket",
		"https://AKID:hunter2@host/bucket" };
	char key[LIMIT_URL_BYTES + 20];
	struct ufs_config config;
	struct err e;

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		e = ERR_INIT;
		if (ufs_config_parse(cases[i], &config, &e) != -EINVAL)
			fail_msg("accepted: %s", cases[i]);
		assert_non_null(strstr(e.text, "write it as"));
	}
	for (size_t i = 0; i < ARRAY_SIZE(secret); i++) { /* lines are logged */
		e = ERR_INIT;
		assert_int_equal(ufs_config_parse(secret[i], &config, &e), -EINVAL);
		assert_null(strstr(e.text, "hunter"));
	}
	memset(key, 'a', sizeof(key));
	key[sizeof(key) - 1] = '\0';
	memcpy(key, "s3://b/", 7);
	assert_int_equal(ufs_config_parse(key, &config, &e), -EINVAL);
	key[1100] = '\0';
	assert_int_equal(ufs_config_parse(key, &config, &e), -EINVAL);
}

static void expect_source(
	const char *url, const char *endpoint, const char *region, const char *want)
{
	struct ufs_config config;
	struct ufs_config copy;
	struct buf out = BUF_INIT(8192);

	assert_int_equal(ufs_config_parse(url, &config, NULL), 0);
	config.endpoint = endpoint ? strdup(endpoint) : NULL;
	config.region = region ? strdup(region) : NULL;
	config.anonymous = true;
	assert_int_equal(ufs_config_copy(&config, &copy), 0);
	assert_true(copy.anonymous);
	ufs_config_release(&config);
	copy.path_style = !copy.path_style;
	assert_int_equal(ufs_config_source(&copy, &out, NULL), 0);
	assert_string_equal(buf_str(&out), want);
	buf_release(&out);
	ufs_config_release(&copy);
}

static void sources(void **state)
{
	(void)state;
	unsetenv("AWS_ENDPOINT_URL");
	unsetenv("AWS_PROFILE");
	setenv("AWS_SHARED_CREDENTIALS_FILE", "/nonexistent/a", 1);
	setenv("AWS_CONFIG_FILE", "/nonexistent/b", 1);
	unsetenv("AWS_ENDPOINT_URL_S3");
	expect_source("s3://b/p", "HTTP://Host.Example:80/", NULL, "s3|http://host.example|b|p/");
	expect_source("s3://b/p", "https://h:443", NULL, "s3|https://h|b|p/");
	expect_source("s3://b/p", "https://h:80", "x", "s3|https://h:80|b|p/");
	expect_source("s3://b", "http://[::1]:9000", NULL, "s3|http://[::1]:9000|b|");
	expect_source("s3://b", NULL, NULL, "s3|https://s3.amazonaws.com|b|");
	expect_source("s3://b", NULL, "eu-west-1", "s3|https://s3.amazonaws.com|b|");
	expect_source("s3://b", "https://s3.eu-west-1.amazonaws.com", NULL,
		"s3|https://s3.amazonaws.com|b|");
	expect_source("s3://b", NULL, "cn-north-1", "s3|https://s3.amazonaws.com.cn|b|");
	setenv("AWS_ENDPOINT_URL", "http://10.0.0.1:9000", 1);
	expect_source("s3://b", NULL, NULL, "s3|http://10.0.0.1:9000|b|");
	unsetenv("AWS_ENDPOINT_URL");
}

static void obs_sources(void **state)
{
	struct ufs_config config;
	struct buf out = BUF_INIT(8192);
	struct err e = ERR_INIT;

	(void)state;
	unsetenv("OBS_ENDPOINT");
	unsetenv("OBS_REGION");
	expect_source("obs://b/p", NULL, "cn-north-4",
		"obs|https://obs.cn-north-4.myhuaweicloud.com|b|p/");
	expect_source(
		"OBS://b", "https://Obs.example:8443", NULL, "obs|https://obs.example:8443|b|");
	setenv("OBS_REGION", "ap-southeast-1", 1);
	expect_source("obs://b", NULL, NULL, "obs|https://obs.ap-southeast-1.myhuaweicloud.com|b|");
	unsetenv("OBS_REGION");
	/* Neither is known: nothing is guessed. */
	assert_int_equal(ufs_config_parse("obs://b/p", &config, NULL), 0);
	assert_int_equal(ufs_config_source(&config, &out, &e), -EINVAL);
	assert_non_null(strstr(e.text, "OBS_REGION"));
	ufs_config_release(&config);
	buf_release(&out);
}

static void versions(void **state)
{
	enum ufs_versions how = UFS_VERSIONS_OFF;
	struct err e = ERR_INIT;

	(void)state;
	assert_int_equal(ufs_versions_parse(NULL, &how, NULL), 0);
	assert_int_equal(how, UFS_VERSIONS_AUTO);
	assert_int_equal(ufs_versions_parse("on", &how, NULL), 0);
	assert_int_equal(how, UFS_VERSIONS_ON);
	assert_int_equal(ufs_versions_parse("off", &how, NULL), 0);
	assert_int_equal(how, UFS_VERSIONS_OFF);
	assert_int_equal(ufs_versions_parse("yes", &how, &e), -EINVAL);
	assert_non_null(strstr(e.text, "auto, on or off"));
}

static void file_sources(void **state)
{
	struct ufs_config config;
	struct buf out = BUF_INIT(8192);
	struct err e = ERR_INIT;
	const char *s;

	(void)state;
	assert_int_equal(ufs_config_parse("file:///usr/../usr/./bin/..", &config, NULL), 0);
	assert_int_equal(ufs_config_source(&config, &out, &e), 0);
	assert_int_equal(strncmp(buf_str(&out), "file|", 5), 0);
	s = strrchr(buf_str(&out), '|');
	assert_string_equal(s, "|/usr/");
	assert_true(s - buf_str(&out) > 6); /* the host is named */
	assert_int_equal(ufs_config_resolve(&config), 0);
	assert_true(config.resolved);
	assert_string_equal(config.prefix, "/usr/");
	ufs_config_release(&config);
	/* What is resolved is not looked up again. */
	assert_int_equal(ufs_config_parse("file:///nonexistent", &config, NULL), 0);
	assert_int_equal(ufs_config_resolve(&config), -ENOENT);
	assert_false(config.resolved);
	config.resolved = true;
	buf_clear(&out);
	assert_int_equal(ufs_config_source(&config, &out, &e), 0);
	assert_string_equal(strrchr(buf_str(&out), '|'), "|/nonexistent/");
	ufs_config_release(&config);
	assert_int_equal(ufs_config_parse("file:///", &config, NULL), 0);
	assert_int_equal(ufs_config_resolve(&config), 0);
	assert_string_equal(config.prefix, "/");
	ufs_config_release(&config);
	assert_int_equal(ufs_config_parse("file:///nonexistent/x", &config, NULL), 0);
	assert_int_equal(ufs_config_source(&config, &out, &e), -ENOENT);
	assert_non_null(strstr(e.text, "/nonexistent/x"));
	ufs_config_release(&config);
	buf_release(&out);
}

static void endpoints(void **state)
{
	static const char *const bad[] = { "", "host", "ftp://h", "http://", "http:///x",
		"http://h:", "http://h:0", "http://h:70000", "http://h:9x", "http://h/path",
		"http://h?x", "http://u@h", "http://[::1", "http://[]", "http://h h",
		"https://h:443/?" };
	struct s3_endpoint e;
	struct err err;
	char out[S3_HOST_MAX + 8];

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
		if (s3_endpoint_parse(bad[i], &e, &err) != -EINVAL)
			fail_msg("accepted: %s", bad[i]);
	assert_int_equal(s3_endpoint_parse("http://AKID:hunter2@h", &e, &err), -EINVAL);
	assert_null(strstr(err.text, "hunter2")); /* lines are logged */
	assert_int_equal(s3_endpoint_parse("https://S3.Example:8443/", &e, NULL), 0);
	s3_endpoint_authority(&e, out, sizeof(out));
	assert_string_equal(out, "s3.example:8443");
	assert_true(e.tls);
	assert_int_equal(s3_endpoint_of_region("Nowhere!", &e, &err), -EINVAL);
	assert_int_equal(s3_endpoint_of_region("eu-west-1", &e, &err), 0);
	assert_string_equal(e.host, "s3.eu-west-1.amazonaws.com");
}

static bool is_aws(const char *host)
{
	struct s3_endpoint e;
	char text[S3_HOST_MAX + 16];

	(void)snprintf(text, sizeof(text), "https://%s", host);
	assert_int_equal(s3_endpoint_parse(text, &e, NULL), 0);
	return s3_endpoint_is_aws(&e);
}

/* Buckets of one name are one source at all of Amazon's; other hosts below its domain are other people's. */
static void amazons_hosts(void **state)
{
	static const char *const its[] = { "s3.amazonaws.com", "s3.amazonaws.com.cn",
		"S3.eu-west-1.amazonaws.com", "s3-us-west-2.amazonaws.com",
		"s3-external-1.amazonaws.com", "s3-accelerate.amazonaws.com",
		"s3-accelerate.dualstack.amazonaws.com", "s3-fips-us-gov-west-1.amazonaws.com",
		"s3.dualstack.us-east-1.amazonaws.com", "s3-fips.us-gov-west-1.amazonaws.com",
		"s3-fips.dualstack.us-east-1.amazonaws.com", "s3.cn-north-1.amazonaws.com.cn",
		"bucket.vpce-0a1b-2c3d.s3.eu-west-1.vpce.amazonaws.com" };
	static const char *const others[] = { "ec2-192-0-2-1.compute-1.amazonaws.com",
		"ec2-192-0-2-1.eu-west-1.compute.amazonaws.com", "lb-1.us-east-1.elb.amazonaws.com",
		"x.execute-api.eu-west-1.amazonaws.com", "x.lambda-url.eu-west-1.amazonaws.com",
		"s3.lb.us-east-1.elb.amazonaws.com", "s3-lb-1.us-east-1.elb.amazonaws.com",
		"s3-website-us-east-1.amazonaws.com", "s3-control.us-east-1.amazonaws.com",
		"vpce-0a1b.vpce-svc-2c3d.eu-west-1.vpce.amazonaws.com",
		"bucket.vpce-0a1b.vpce-svc-2c3d.s3.eu-west-1.vpce.amazonaws.com",
		"bucket.vpce-0a1b.s3.eu-west-1.elb.amazonaws.com", "s3.x.amazonaws.com",
		"s3-accelerate.x.amazonaws.com", "s3.amazonaws.amazonaws.com", "s3..amazonaws.com",
		"s3.eu-west-1.amazonaws.com.evil", "evil-s3.eu-west-1.amazonaws.com",
		"s3.eu-west-1.amazonaws.comx", "amazonaws.com" };

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(its); i++)
		if (!is_aws(its[i]))
			fail_msg("not taken for Amazon's: %s", its[i]);
	for (size_t i = 0; i < ARRAY_SIZE(others); i++)
		if (is_aws(others[i]))
			fail_msg("taken for Amazon's: %s", others[i]);
	expect_source("s3://b", "https://s3.eu-west-1.amazonaws.com", NULL,
		"s3|https://s3.amazonaws.com|b|");
	expect_source("s3://b", NULL, "us-gov-west-1", "s3|https://s3.us-gov.amazonaws.com|b|");
	expect_source("s3://b", "https://s3.us-gov-west-1.amazonaws.com", NULL,
		"s3|https://s3.us-gov.amazonaws.com|b|");
	expect_source("s3://b", "https://ec2-192-0-2-1.compute-1.amazonaws.com", NULL,
		"s3|https://ec2-192-0-2-1.compute-1.amazonaws.com|b|");
}

static bool path_style(const char *endpoint, const char *bucket, bool asked)
{
	struct s3_endpoint e;

	assert_int_equal(s3_endpoint_parse(endpoint, &e, NULL), 0);
	return s3_endpoint_needs_path(&e, bucket, asked);
}

static void styles(void **state)
{
	struct s3_endpoint e;

	(void)state;
	assert_false(path_style("https://s3.eu-west-1.amazonaws.com", "bucket", false));
	assert_true(path_style("https://s3.eu-west-1.amazonaws.com", "bucket", true));
	assert_true(path_style("https://s3.eu-west-1.amazonaws.com", "with.dot", false));
	assert_false(path_style("http://s3.example", "with.dot", false));
	assert_true(path_style("http://s3.example", "Upper", false));
	assert_true(path_style("http://s3.example", "under_score", false));
	assert_true(path_style("http://10.1.2.3", "bucket", false));
	assert_true(path_style("http://[::1]:80", "bucket", false));
	assert_true(path_style("http://localhost:9000", "bucket", false));
	assert_false(path_style("http://s3.localhost:9000", "bucket", false));
	assert_int_equal(s3_endpoint_parse("http://s3.localhost", &e, NULL), 0);
	assert_true(s3_endpoint_is_loopback(&e));
	assert_int_equal(s3_endpoint_parse("http://s3.localhost.", &e, NULL), 0);
	assert_true(s3_endpoint_is_loopback(&e));
	assert_int_equal(s3_endpoint_parse("http://localhost.:1", &e, NULL), 0);
	assert_true(s3_endpoint_is_loopback(&e));
	assert_int_equal(s3_endpoint_parse("http://127.1.2.3", &e, NULL), 0);
	assert_true(s3_endpoint_is_loopback(&e));
	assert_int_equal(s3_endpoint_parse("http://127.example", &e, NULL), 0);
	assert_false(s3_endpoint_is_loopback(&e));
}

/* Bytes of a scope are nobody's who writes its name into a prefix. */
static void scopes(void **state)
{
	static const char *const names[] = { "team", "file:/keys/" };

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		struct buf own = BUF_INIT(8192);
		struct buf other = BUF_INIT(8192);
		struct ufs_config config;
		char url[100];

		assert_int_equal(ufs_config_parse("s3://b/p", &config, NULL), 0);
		config.endpoint = strdup("http://h");
		config.scope = strdup(names[i]);
		assert_int_equal(ufs_config_source(&config, &own, NULL), 0);
		ufs_config_release(&config);
		(void)snprintf(url, sizeof(url), "s3://b/p/|scope=%s", names[i]);
		assert_int_equal(ufs_config_parse(url, &config, NULL), 0);
		config.endpoint = strdup("http://h");
		assert_int_equal(ufs_config_source(&config, &other, NULL), 0);
		ufs_config_release(&config);
		assert_non_null(strstr(buf_str(&own), "|scope="));
		assert_string_not_equal(buf_str(&own), buf_str(&other));
		buf_release(&own);
		buf_release(&other);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(urls),
		cmocka_unit_test(bad_urls),
		cmocka_unit_test(sources),
		cmocka_unit_test(obs_sources),
		cmocka_unit_test(versions),
		cmocka_unit_test(file_sources),
		cmocka_unit_test(endpoints),
		cmocka_unit_test(amazons_hosts),
		cmocka_unit_test(styles),
		cmocka_unit_test(scopes),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
