/* What a target is, and which mounts it means. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <jansson.h>
#include "base/check.h"
#include "base/exit.h"
#include "ctl/target.h"

static void test_kind(void **state)
{
	static const struct {
		const char *word;
		enum target_kind kind;
	} cases[] = { { "train", TARGET_NAME }, { "train-2", TARGET_NAME }, { "", TARGET_NAME },
		{ "train.old", TARGET_NAME }, { "s3://bucket/train", TARGET_URL },
		{ "file:///data", TARGET_URL }, { "s3:/bucket", TARGET_URL },
		{ "/data/train", TARGET_DIR }, { "./train", TARGET_DIR }, { "a/b", TARGET_DIR },
		{ ".", TARGET_DIR }, { "..", TARGET_DIR }, { "/a:/b", TARGET_DIR },
		{ ":/", TARGET_DIR } };

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++)
		assert_int_equal(target_kind(cases[i].word), cases[i].kind);
}

static bool is(const char *word, const char *point, const char *source)
{
	struct target *target = NULL;
	struct err e = ERR_INIT;
	json_t *mount = json_pack("{s:s?, s:s, s:s}", "mountpoint", point, "source", source,
		"socket", "/none/mount.sock");
	bool found;

	assert_int_equal(target_new(&(struct master_where){ 0 }, word, &target, &e), EXIT_OK);
	found = target_is(target, mount);
	target_free(target);
	json_decref(mount);
	return found;
}

static void test_url(void **state)
{
	struct target *target = NULL;
	struct err e = ERR_INIT;

	(void)state;
	assert_true(is("s3://bucket/train", "/data", "s3://bucket/train"));
	assert_true(is("s3://bucket/train/", "/data", "s3://bucket/train"));
	assert_true(is("s3://bucket/train", "/data", "s3://bucket/train/"));
	assert_false(is("s3://bucket/train", "/data", "s3://bucket/train2"));
	assert_false(is("s3://bucket/train", "/data", "s3://bucket"));
	assert_false(is("s3://bucket/train", NULL, "s3://bucket/train"));
	assert_int_equal(target_new(&(struct master_where){ 0 }, "s3://b", &target, &e), EXIT_OK);
	assert_int_equal(target_not_found(target, &e), EXIT_MOUNTPOINT);
	target_free(target);
}

static void test_dir(void **state)
{
	struct target *target = NULL;
	struct err e = ERR_INIT;

	(void)state;
	assert_true(is("/usr", "/usr", "s3://bucket"));
	assert_true(is("/usr/", "/usr", "s3://bucket"));
	assert_false(is("/usr", "/usr/lib", "s3://bucket"));
	assert_int_equal(target_new(&(struct master_where){ 0 }, "/no/such/dir", &target, &e),
		EXIT_MOUNTPOINT);
	assert_null(target);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_kind),
		cmocka_unit_test(test_url),
		cmocka_unit_test(test_dir),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
