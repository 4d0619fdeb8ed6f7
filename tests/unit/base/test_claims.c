/* Who may use a dataset: forms, claims, and when they match. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <errno.h>
#include <grp.h>
#include <stdio.h>
#include <string.h>

#include "base/claims.h"

static void test_forms(void **state)
{
	static const char *const good[] = { "*", "uid:alice", "gid:ml-team", "uid:1000", "gid:0",
		"uid:a.b@corp.example", "namespace:team", "namespace:0-9",
		"serviceaccount:team/trainer", "serviceaccount:team/a.b-c" };
	static const char *const bad[] = { "", "uid:", "gid:", "alice", "team/trainer", "uid:a,b",
		"uid:a b", "uid:*", "uid:-x", "UID:alice", "uid:a\n", "**",
		"namespace:", "namespace:a/b", "namespace:a.b", "namespace:-a", "namespace:A",
		"namespace:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
		"serviceaccount:", "serviceaccount:team", "serviceaccount:team/",
		"serviceaccount:/trainer", "serviceaccount:a.b/c", "serviceaccount:a/b/c",
		"serviceaccount:team/trainer,uid:0",
		"uid:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa" };
	struct err e = ERR_INIT;

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(good); i++)
		assert_int_equal(claims_check_form(good[i], &e), 0);
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		e = ERR_INIT;
		assert_int_equal(claims_check_form(bad[i], &e), -EINVAL);
		assert_non_null(strstr(e.text, "allow"));
	}
}

static void test_match(void **state)
{
	static const char claims[] = "uid:1000,uid:alice,gid:100,gid:users";

	(void)state;
	assert_true(claims_match("uid:alice", claims));
	assert_true(claims_match("uid:bob,gid:100", claims));
	assert_true(claims_match("*", claims));
	assert_true(claims_match("uid:bob,*", ""));
	assert_true(claims_match("gid:users", claims));
	/* Parts and beginnings of a form are others. */
	assert_false(claims_match("uid:alic", claims));
	assert_false(claims_match("uid:alice2", claims));
	assert_false(claims_match("uid:100", claims));
	assert_false(claims_match("gid:1000", claims));
	assert_false(claims_match("gid:alice", claims));
	assert_false(claims_match("alice", claims));
	assert_false(claims_match("", claims));
	assert_false(claims_match(NULL, claims));
	assert_false(claims_match("uid:alice", NULL));
	assert_false(claims_match("uid:alice", ""));
	/* A claim is never what allows all. */
	assert_false(claims_match("uid:bob", "*"));
}

static void test_claims_of_a_user(void **state)
{
	struct buf numbers = BUF_INIT(CLAIMS_BYTES);
	struct buf named = BUF_INIT(CLAIMS_BYTES);
	struct buf both = BUF_INIT(CLAIMS_BYTES);
	const gid_t groups[] = { 0, 4294967294u };
	char who[CLAIMS_FORM_BYTES];

	(void)state;
	assert_int_equal(claims_add_user(&numbers, 0, groups, 2, false), 0);
	assert_string_equal(buf_str(&numbers), "uid:0,gid:0,gid:4294967294");
	assert_string_equal(claims_caller(buf_str(&numbers), who), "uid:0");
	assert_int_equal(claims_add_user(&named, 0, groups, 2, true), 0);
	assert_string_equal(buf_str(&named), "uid:0,uid:root,gid:0,gid:root,gid:4294967294");
	assert_string_equal(claims_caller(buf_str(&named), who), "uid:root");
	assert_int_equal(claims_add_names(&both, buf_str(&numbers)), 0);
	assert_string_equal(buf_str(&both), buf_str(&named));
	assert_string_equal(claims_caller("", who), "this caller");
	buf_release(&numbers);
	buf_release(&named);
	buf_release(&both);
}

static void test_claims_of_a_pod(void **state)
{
	struct buf claims = BUF_INIT(CLAIMS_BYTES);
	struct buf named = BUF_INIT(CLAIMS_BYTES);
	char who[CLAIMS_FORM_BYTES];

	(void)state;
	assert_int_equal(claims_add_pod(&claims, NULL, NULL), 0);
	assert_string_equal(buf_str(&claims), "");
	assert_int_equal(claims_add_pod(&claims, "team", "trainer"), 0);
	assert_string_equal(buf_str(&claims), "namespace:team,serviceaccount:team/trainer");
	assert_string_equal(claims_caller(buf_str(&claims), who), "namespace:team");
	assert_int_equal(claims_add_names(&named, buf_str(&claims)), 0);
	assert_string_equal(buf_str(&named), buf_str(&claims));
	assert_true(claims_match("uid:1,namespace:team", buf_str(&claims)));
	assert_true(claims_match("serviceaccount:team/trainer", buf_str(&claims)));
	assert_false(claims_match("namespace:te", buf_str(&claims)));
	assert_false(claims_match("serviceaccount:team/other,gid:0", buf_str(&claims)));
	/* No name of a pod makes another claim. */
	assert_int_equal(claims_add_pod(&claims, "a,uid:0", NULL), -EINVAL);
	assert_int_equal(claims_add_pod(&claims, "a", "b,uid:0"), -EINVAL);
	assert_int_equal(claims_add_pod(&claims, "", NULL), -EINVAL);
	assert_int_equal(claims_add_pod(&claims, NULL, "trainer"), -EINVAL);
	buf_release(&claims);
	buf_release(&named);
}

#define CROWD       7777u
#define CROWD_BYTES 100000u /* of the names of its members */

/* In the place of the C library's. */
int getgrgid_r(gid_t gid, struct group *group, char *text, size_t size, struct group **ret_group)
{
	const char *name = gid == CROWD ? "crowd" : "root";

	*ret_group = NULL;
	if (gid == CROWD && size < CROWD_BYTES)
		return ERANGE;
	if (gid != CROWD && gid != 0)
		return 0;
	(void)snprintf(text, size, "%s", name);
	*group = (struct group){ .gr_name = text, .gr_gid = gid };
	*ret_group = group;
	return 0;
}

static void test_a_group_of_many_members_has_a_name(void **state)
{
	struct buf named = BUF_INIT(CLAIMS_BYTES);
	const gid_t groups[] = { CROWD };

	(void)state;
	assert_int_equal(claims_add_user(&named, 4294967294u, groups, 1, true), 0);
	assert_string_equal(buf_str(&named), "uid:4294967294,gid:7777,gid:crowd");
	buf_release(&named);
}

static void test_all_claims_of_a_caller_fit(void **state)
{
	struct buf named = BUF_INIT(CLAIMS_BYTES);
	char form[CLAIMS_USER_BYTES];

	(void)state;
	memset(form, 'n', sizeof(form));
	form[sizeof(form) - 1] = '\0';
	for (unsigned int i = 0; i < 1 + CLAIMS_GROUPS; i++)
		assert_int_equal(
			buf_printf(&named, "%s%s,%s", i ? "," : "", "gid:4294967295", form), 0);
	buf_release(&named);
}

static void test_names_are_added_to_numbers_only(void **state)
{
	static const char *const bad[] = { "uid:root", "uid:0,*", "0", "uid:0x", "uid:" };

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		struct buf out = BUF_INIT(CLAIMS_BYTES);

		assert_int_equal(claims_add_names(&out, bad[i]), -EINVAL);
		buf_release(&out);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_forms),
		cmocka_unit_test(test_match),
		cmocka_unit_test(test_claims_of_a_user),
		cmocka_unit_test(test_claims_of_a_pod),
		cmocka_unit_test(test_a_group_of_many_members_has_a_name),
		cmocka_unit_test(test_all_claims_of_a_caller_fit),
		cmocka_unit_test(test_names_are_added_to_numbers_only),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
