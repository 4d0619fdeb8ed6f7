/* What policies say, and by which names. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/policy.h"

#include <errno.h>

static void copies_have_names(void **state)
{
	static const struct {
		const char *name;
		uint32_t copies;
	} all[] = { { "auto", COPIES_AUTO }, { "shared", COPIES_SHARED }, { "2", 2 }, { "3", 3 },
		{ "everywhere", COPIES_EVERYWHERE } };
	static const char *const none[] = { "", "0", "4", "2 ", "22", "Auto", "all", "-1" };
	char name[COPIES_NAME_BYTES];
	uint32_t copies = 77;

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(all); i++) {
		assert_int_equal(copies_parse(all[i].name, &copies), 0);
		assert_int_equal(copies, all[i].copies);
		copies_name(copies, name);
		assert_string_equal(name, all[i].name);
		assert_true(copies_valid(copies));
	}
	assert_int_equal(copies_parse("1", &copies), 0);
	assert_int_equal(copies, COPIES_SHARED);
	copies = 77;
	for (size_t i = 0; i < ARRAY_SIZE(none); i++)
		assert_int_equal(copies_parse(none[i], &copies), -EINVAL);
	assert_int_equal(copies, 77);
	assert_false(copies_valid(4));
	assert_false(copies_valid((1ull << 32) + 1));
}

/* Only the parts that are said, and whether that is news. */
static void parts_apply(void **state)
{
	struct tier_policy policy = { .quota = 5, .copies = COPIES_SHARED };
	struct policy_change change = { .to = { .copies = 2, .direct = true },
		.parts = POLICY_COPIES };

	(void)state;
	assert_true(policy_apply(&policy, &change));
	assert_int_equal(policy.copies, 2);
	assert_int_equal(policy.quota, 5);
	assert_false(policy.direct);
	assert_false(policy_apply(&policy, &change));
	change.parts = POLICY_DIRECT;
	assert_true(policy_apply(&policy, &change));
	assert_true(policy.direct);
	change.parts = POLICY_ALL;
	assert_true(policy_apply(&policy, &change));
	assert_int_equal(policy.quota, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(copies_have_names),
		cmocka_unit_test(parts_apply),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
