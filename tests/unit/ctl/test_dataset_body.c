/* What `cachectl dataset create` makes of --mount: the words behind a URL, and commas that are none. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "base/claims.h"
#include "ctl/dataset_body.h"

/* NULL: refused, with its line in *e. */
static json_t *body_of(const char *mount, struct err *e)
{
	struct dataset_options o = dataset_options_default();
	json_t *body = json_object();

	o.mounts.values[0] = mount;
	o.mounts.n = 1;
	*e = ERR_INIT;
	if (dataset_body_create(body, &o, "name", NULL, e) == 0)
		return body;
	json_decref(body);
	return NULL;
}

static void check(const char *mount, const char *url, const char *endpoint, bool path_style)
{
	struct err e;
	json_t *body = body_of(mount, &e);
	const json_t *one = json_array_get(json_object_get(body, "mounts"), 0);
	const char *got = json_string_value(json_object_get(one, "endpoint"));

	assert_non_null(body);
	assert_string_equal(json_string_value(json_object_get(one, "path")), "/a");
	assert_string_equal(json_string_value(json_object_get(one, "url")), url);
	if (endpoint)
		assert_string_equal(got, endpoint);
	else
		assert_null(got);
	assert_int_equal(json_is_true(json_object_get(one, "path_style")), path_style);
	json_decref(body);
}

static void test_words(void **state)
{
	(void)state;
	check("/a=s3://b/x", "s3://b/x", NULL, false);
	check("/a=s3://b/x,endpoint=http://h:1", "s3://b/x", "http://h:1", false);
	check("/a=s3://b/x,endpoint=http://h:1,path-style", "s3://b/x", "http://h:1", true);
	check("/a=s3://b/x,path-style,endpoint=http://h:1", "s3://b/x", "http://h:1", true);
}

static void test_commas_of_the_prefix(void **state)
{
	(void)state;
	check("/a=s3://b/x,y", "s3://b/x,y", NULL, false);
	check("/a=s3://b/x,,y", "s3://b/x,,y", NULL, false);
	check("/a=s3://b/x,Hour=3", "s3://b/x,Hour=3", NULL, false);
	check("/a=s3://b/x,path-styles", "s3://b/x,path-styles", NULL, false);
	check("/a=s3://b/x,,hour=3", "s3://b/x,hour=3", NULL, false);
	check("/a=s3://b/x,,,hour=3", "s3://b/x,,hour=3", NULL, false);
	check("/a=s3://b/x,,path-style,endpoint=http://h", "s3://b/x,path-style", "http://h",
		false);
	check("/a=s3://b/x,,day=1,,hour=2,path-style", "s3://b/x,day=1,hour=2", NULL, true);
	check("/a=s3://b/x,endpoint=http://h/p,,q=1", "s3://b/x", "http://h/p,q=1", false);
}

/* A form is taken as it was written, or refused: never cut to another one. */
static void test_long_forms_of_allow(void **state)
{
	char form[2 * CLAIMS_USER_BYTES] = "uid:";

	(void)state;
	for (size_t len = strlen(form); len + 1 < sizeof(form); len++) {
		struct dataset_options o = dataset_options_default();
		json_t *body = json_object();
		struct err e = ERR_INIT;
		int r;

		form[len] = 'a';
		o.allow.values[0] = form;
		o.allow.n = 1;
		r = dataset_body_update(body, &o, &e);
		assert_int_equal(r, len + 1 < CLAIMS_USER_BYTES ? 0 : -EINVAL);
		if (r == 0)
			assert_string_equal(json_string_value(json_array_get(
						    json_object_get(body, "allow"), 0)),
				form);
		json_decref(body);
	}
}

static void test_unknown_words(void **state)
{
	static const struct {
		const char *mount;
		const char *word;
	} all[] = {
		{ "/a=s3://b/x,endpont=http://h", "'endpont'" },
		{ "/a=s3://b/x,path-style=yes", "'path-style'" },
		{ "/a=s3://b/x,endpoint=http://h,reqion=r", "'reqion'" },
		{ "/a=s3://b/x,path-style,anonymus", "'anonymus'" },
		{ "/a=s3://b/x,anonymous,pathstyle,endpoint=http://h", "'pathstyle'" },
		{ "/a=s3://b/x,secret-key=HIDDEN", "'secret-key'" },
	};
	struct err e;

	(void)state;
	for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
		assert_null(body_of(all[i].mount, &e));
		assert_int_equal(e.code, -EINVAL);
		assert_non_null(strstr(e.text, all[i].word));
		assert_non_null(strstr(e.text, "endpoint="));
		assert_non_null(strstr(e.text, "twice"));
		assert_null(strstr(e.text, "HIDDEN"));
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_words),
		cmocka_unit_test(test_commas_of_the_prefix),
		cmocka_unit_test(test_long_forms_of_allow),
		cmocka_unit_test(test_unknown_words),
	};

	(void)unsetenv("AWS_ENDPOINT_URL"); /* which an endpoint may come from, too */
	(void)unsetenv("AWS_ENDPOINT_URL_S3");
	return cmocka_run_group_tests(tests, NULL, NULL);
}
