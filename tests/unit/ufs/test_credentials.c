/* Credentials from the environment and from files as people write them. */
#include "ufs/credentials.h"

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

static int parse(const char *text, const char *name, struct credentials *c)
{
	*c = (struct credentials){ 0 };
	return credentials_parse(text, strlen(text), name, c);
}

static void sections(void **state)
{
	const char *text = "\xef\xbb\xbf# comment\n"
			   "[default]\r\n"
			   "aws_access_key_id=AK1\r\n"
			   "aws_secret_access_key =  SE/CR=ET+1  \r\n"
			   "\n; more\n"
			   "[ profile  work ] # mine\n"
			   "\taws_access_key_id = nested\n"
			   "aws_access_key_id\t=\tAK2 ; old\n"
			   "aws_secret_access_key = S#2;x\n"
			   "region = eu-west-1\n"
			   "endpoint_url = http://127.0.0.1:9000\n"
			   "s3 =\n  region = nowhere\n"
			   "aws_session_token =\n"
			   "nonsense\n"
			   "[last]\naws_access_key_id = AK3";
	struct credentials c;

	(void)state;
	assert_int_equal(parse(text, "default", &c), 0);
	assert_string_equal(c.access_key, "AK1");
	assert_string_equal(c.secret_key, "SE/CR=ET+1");
	assert_null(c.session_token);
	assert_null(c.region);
	credentials_release(&c);
	assert_int_equal(parse(text, "work", &c), 0);
	assert_string_equal(c.access_key, "AK2");
	assert_string_equal(c.secret_key, "S#2;x");
	assert_string_equal(c.region, "eu-west-1");
	assert_string_equal(c.endpoint, "http://127.0.0.1:9000");
	assert_null(c.session_token);
	credentials_release(&c);
	assert_int_equal(parse(text, "last", &c), 0);
	assert_string_equal(c.access_key, "AK3");
	assert_null(c.secret_key);
	credentials_release(&c);
	assert_int_equal(parse(text, "nobody", &c), -ENOENT);
	assert_int_equal(parse("", "default", &c), -ENOENT);
	assert_int_equal(parse("[default", "default", &c), -ENOENT);
	assert_int_equal(parse("[default]", "default", &c), 0);
	assert_int_equal(parse("[default]\n=\n==\n[", "default", &c), 0);
}

/* ---- the search ------------------------------------------------------------------------------ */

static char dir[] = "/tmp/granary-credentials-XXXXXX";
static char credentials_file[64], config_file[64];

static void write_file(const char *path, const char *text)
{
	FILE *f = fopen(path, "w");

	assert_non_null(f);
	assert_true(fputs(text, f) >= 0);
	assert_int_equal(fclose(f), 0);
}

/* By the usual search. */
static int find_keys(const char *profile, struct credentials *ret, struct err *e)
{
	return credentials_find(&(struct credentials_query){ .profile = profile }, ret, e);
}

static void find_settings(const char *profile, struct credentials *ret)
{
	credentials_find_settings(&(struct credentials_query){ .profile = profile }, ret);
}

static int setup(void **state)
{
	static const char *const names[] = { "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY",
		"AWS_SESSION_TOKEN", "AWS_PROFILE", "AWS_REGION", "AWS_DEFAULT_REGION",
		"AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "AWS_ROLE_ARN",
		"AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_CONTAINER_CREDENTIALS_FULL_URI",
		"AWS_CONTAINER_CREDENTIALS_RELATIVE_URI" };

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(names); i++)
		unsetenv(names[i]);
	setenv("AWS_SHARED_CREDENTIALS_FILE", credentials_file, 1);
	setenv("AWS_CONFIG_FILE", config_file, 1);
	setenv("AWS_EC2_METADATA_DISABLED", "true", 1);
	write_file(credentials_file,
		"[default]\naws_access_key_id=FILE\naws_secret_access_key=s1\n"
		"[other]\naws_access_key_id=OTHER\naws_secret_access_key=s2\naws_session_token=t\n"
		"[half]\naws_access_key_id=HALF\n");
	write_file(config_file,
		"[default]\nregion=eu-north-1\n[profile other]\nregion=ap-east-1\n"
		"aws_session_token=of-the-file\n[profile sso]\nsso_session = x\n"
		"[profile run]\ncredential_process = /bin/false\n"
		"[profile inconfig]\naws_access_key_id=CONF\naws_secret_access_key=s3\n");
	return 0;
}

static void order(void **state)
{
	struct credentials c;

	(void)state;
	assert_int_equal(find_keys(NULL, &c, NULL), 0);
	assert_string_equal(c.access_key, "FILE");
	assert_string_equal(c.region, "eu-north-1");
	assert_non_null(strstr(c.place, credentials_file));
	assert_non_null(strstr(c.place, "default"));
	credentials_release(&c);

	setenv("AWS_PROFILE", "other", 1);
	assert_int_equal(find_keys(NULL, &c, NULL), 0);
	assert_string_equal(c.access_key, "OTHER");
	assert_string_equal(c.session_token, "t");
	assert_string_equal(c.region, "ap-east-1");
	credentials_release(&c);

	setenv("AWS_ACCESS_KEY_ID", "ENV", 1);
	setenv("AWS_SECRET_ACCESS_KEY", "es", 1);
	setenv("AWS_REGION", "us-west-2", 1);
	assert_int_equal(find_keys(NULL, &c, NULL), 0);
	assert_string_equal(c.access_key, "ENV");
	assert_null(c.session_token); /* never one of another source */
	assert_non_null(strstr(c.place, "environment"));
	assert_string_equal(c.region, "us-west-2");
	credentials_release(&c);

	assert_int_equal(find_keys("inconfig", &c, NULL),
		0); /* named: the environment's keys do not count */
	assert_string_equal(c.access_key, "CONF");
	credentials_release(&c);
}

/* What the source of a volume is made of is found without keys too. */
static void settings(void **state)
{
	struct credentials c;

	(void)state;
	write_file(config_file, "[profile bare]\nendpoint_url = http://profile:1\nregion = r\n");
	find_settings("bare", &c);
	assert_string_equal(c.endpoint, "http://profile:1");
	assert_string_equal(c.region, "r");
	credentials_release(&c);
	setenv("AWS_ENDPOINT_URL", "http://environment:1", 1);
	find_settings("bare", &c);
	assert_string_equal(c.endpoint, "http://environment:1");
	credentials_release(&c);
	unsetenv("AWS_ENDPOINT_URL");
	find_settings("nobody", &c);
	assert_null(c.endpoint);
	credentials_release(&c);
}

static void missing(void **state)
{
	struct credentials c;
	struct err e = ERR_INIT;

	(void)state;
	assert_int_equal(find_keys("nobody", &c, &e), -ENOKEY);
	assert_non_null(strstr(e.text, "nobody"));
	assert_non_null(strstr(e.text, credentials_file));
	assert_non_null(strstr(e.text, config_file));
	assert_int_equal(find_keys("half", &c, &e), -ENOKEY);
	assert_non_null(strstr(e.text, "incomplete"));
	setenv("AWS_SHARED_CREDENTIALS_FILE", "/nonexistent/a", 1);
	setenv("AWS_CONFIG_FILE", "/nonexistent/b", 1);
	setenv("AWS_ACCESS_KEY_ID", "ENV", 1);
	assert_int_equal(find_keys(NULL, &c, &e), -ENOKEY);
	assert_non_null(strstr(e.text, "AWS_SECRET_ACCESS_KEY"));
	setenv("AWS_SHARED_CREDENTIALS_FILE", dir, 1); /* a directory */
	assert_int_equal(find_keys(NULL, &c, &e), -ENOKEY);
	assert_non_null(strstr(e.text, dir));
}

/* Keys that a profile only tells how to get. */
static void elsewhere(void **state)
{
	struct credentials c;
	struct err e = ERR_INIT;

	(void)state;
	assert_int_equal(find_keys("run", &c, &e), -ENOKEY);
	assert_non_null(strstr(e.text, "credential_process"));
	assert_non_null(strstr(e.text, "export-credentials --profile run"));
	assert_int_equal(find_keys("sso", &c, &e), -ENOKEY);
	assert_non_null(strstr(e.text, "sso_session"));
	assert_int_equal(find_keys("nobody", &c, &e), -ENOKEY);
	assert_non_null(strstr(e.text, "--anonymous"));
}

static void same(void **state)
{
	struct credentials a, b;

	(void)state;
	assert_int_equal(find_keys(NULL, &a, NULL), 0);
	assert_int_equal(find_keys(NULL, &b, NULL), 0);
	assert_true(credentials_same(&a, &b));
	credentials_release(&b);
	assert_int_equal(find_keys("other", &b, NULL), 0);
	assert_false(credentials_same(&a, &b));
	credentials_release(&b);
	write_file(credentials_file, "[default]\naws_access_key_id=FILE\n"
				     "aws_secret_access_key=s1\naws_session_token=new\n");
	assert_int_equal(find_keys(NULL, &b, NULL), 0);
	assert_false(credentials_same(&a, &b));
	credentials_release(&a);
	credentials_release(&b);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(sections),
		cmocka_unit_test_setup(order, setup),
		cmocka_unit_test_setup(settings, setup),
		cmocka_unit_test_setup(missing, setup),
		cmocka_unit_test_setup(elsewhere, setup),
		cmocka_unit_test_setup(same, setup),
	};
	int failed;

	if (!mkdtemp(dir))
		return 1;
	(void)snprintf(credentials_file, sizeof(credentials_file), "%s/credentials", dir);
	(void)snprintf(config_file, sizeof(config_file), "%s/config", dir);
	failed = cmocka_run_group_tests(tests, NULL, NULL);
	(void)unlink(credentials_file);
	(void)unlink(config_file);
	(void)rmdir(dir);
	return failed;
}
