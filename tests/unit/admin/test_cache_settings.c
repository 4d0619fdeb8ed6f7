/* Which settings of a later mount are not in force, and that credentials are compared, not shown. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "base/units.h"
#include "admin/cache_settings.h"

static const struct cache_settings in_force = {
	.capacity = 0, .memory = 1 * GiB, .log_level = "info"
};
static char notice[CACHE_SETTINGS_NOTICE_MAX];

static const char *notice_for(const struct cache_settings *asked)
{
	json_t *body = json_object();

	assert_int_equal(cache_settings_add(body, asked), 0);
	cache_settings_notice(body, &in_force, notice);
	json_decref(body);
	return notice;
}

static void test_silent_when_in_force(void **state)
{
	const struct cache_settings nothing = { 0 };
	const struct cache_settings same = {
		.memory = 1 * GiB, .log_level = "info", .credentials = true
	};

	(void)state;
	assert_string_equal(notice_for(&nothing), "");
	assert_string_equal(notice_for(&same), "");
}

static void test_names_what_is_not_used(void **state)
{
	const struct cache_settings other = {
		.capacity = 20 * GiB, .memory = 256 * MiB, .log_level = "debug"
	};

	(void)state;
	assert_non_null(strstr(notice_for(&other),
		"ignored --cache-size 20.0GiB, --memory 256MiB, --log-level debug: "));
}

static void test_other_credentials(void **state)
{
	json_t *body = json_object();
	const struct cache_settings asked = { .credentials = true };

	(void)state;
	setenv("AWS_ACCESS_KEY_ID", "key", 1);
	setenv("AWS_SECRET_ACCESS_KEY", "one secret", 1);
	assert_int_equal(cache_settings_add(body, &asked), 0);
	assert_null(strstr(json_string_value(json_object_get(body, "credentials")), "secret"));
	setenv("HOME", "/elsewhere", 1); /* no file is looked into */
	cache_settings_notice(body, &in_force, notice);
	assert_string_equal(notice, "");
	setenv("AWS_SECRET_ACCESS_KEY", "quite different", 1);
	cache_settings_notice(body, &in_force, notice);
	assert_non_null(strstr(notice, "ignored the credentials of this environment: "));
	assert_null(strstr(notice, "different"));
	json_decref(body);
}

/* Keys that nobody has checked are not passed over in silence. */
static void test_other_credentials_are_refused(void **state)
{
	const struct cache_settings asked = { .credentials = true };
	const struct cache_settings nothing = { 0 };
	json_t *body = json_pack("{s:s}", "source", "s3://bucket/");
	struct err e = ERR_INIT;

	(void)state;
	setenv("AWS_ACCESS_KEY_ID", "key", 1);
	setenv("AWS_SECRET_ACCESS_KEY", "wrong", 1);
	assert_int_equal(cache_settings_add(body, &asked), 0);
	assert_int_equal(cache_settings_check_credentials(body, &e), 0);
	setenv("AWS_SECRET_ACCESS_KEY", "right", 1);
	assert_int_equal(cache_settings_check_credentials(body, &e), -EKEYREJECTED);
	assert_non_null(strstr(e.text, "--use-existing-credentials"));
	assert_int_equal(json_object_set_new(body, "existing_credentials", json_true()), 0);
	assert_int_equal(cache_settings_check_credentials(body, &e), 0);
	json_decref(body);
	body = json_pack("{s:s}", "source", "s3://bucket/");
	assert_int_equal(cache_settings_add(body, &nothing), 0);
	assert_int_equal(cache_settings_check_credentials(body, &e), 0); /* none are named */
	json_decref(body);
}

/* Keys of OBS are compared for sources of OBS, and for no others. */
static void test_credentials_of_each_store(void **state)
{
	const struct cache_settings asked = { .credentials = true };
	json_t *s3 = json_pack("{s:s}", "source", "s3://bucket/");
	json_t *obs = json_pack("{s:s}", "source", "obs://bucket/");

	(void)state;
	setenv("AWS_ACCESS_KEY_ID", "key", 1);
	setenv("AWS_SECRET_ACCESS_KEY", "secret", 1);
	setenv("OBS_ACCESS_KEY_ID", "key", 1);
	setenv("OBS_SECRET_ACCESS_KEY", "one", 1);
	assert_int_equal(cache_settings_add(s3, &asked), 0);
	assert_int_equal(cache_settings_add(obs, &asked), 0);
	setenv("OBS_SECRET_ACCESS_KEY", "another", 1);
	assert_int_equal(cache_settings_check_credentials(s3, NULL), 0);
	assert_int_equal(cache_settings_check_credentials(obs, NULL), -EKEYREJECTED);
	json_decref(s3);
	json_decref(obs);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_silent_when_in_force),
		cmocka_unit_test(test_names_what_is_not_used),
		cmocka_unit_test(test_other_credentials),
		cmocka_unit_test(test_other_credentials_are_refused),
		cmocka_unit_test(test_credentials_of_each_store),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
