/* Sets of key prefixes: what is in them, their order, what tells them apart. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <string.h>

#include "base/key_prefixes.h"

static struct key_prefixes set_of(const char *a, const char *b, const char *c)
{
	const char *const all[] = { a, b, c };
	struct key_prefixes set = { 0 };

	for (uint32_t i = 0; i < 3 && all[i]; i++)
		set.all[set.n++] = (struct key_prefix){ all[i], (uint32_t)strlen(all[i]) };
	return set;
}

static bool has(const struct key_prefixes *set, const char *key)
{
	return key_prefixes_have(set, key, strlen(key));
}

static void test_have(void **state)
{
	const struct key_prefixes none = set_of(NULL, NULL, NULL);
	const struct key_prefixes two = set_of("a/b/", "x/", NULL);

	(void)state;
	assert_false(has(&none, "a"));
	assert_false(has(&none, ""));
	assert_true(has(&two, "a/b/c"));
	assert_true(has(&two, "a/b/"));
	assert_true(has(&two, "x/y"));
	assert_false(has(&two, "a/b"));
	assert_false(has(&two, "a/bc"));
	assert_false(has(&two, "a/c/"));
	assert_false(has(&two, ""));
}

static void test_sort(void **state)
{
	struct key_prefixes set = set_of("b/", "a/b/", "a/");

	(void)state;
	key_prefixes_sort(&set);
	assert_int_equal(set.n, 2);
	assert_string_equal(set.all[0].text, "a/");
	assert_string_equal(set.all[1].text, "b/");
	set = set_of("a/", "a/", NULL);
	key_prefixes_sort(&set);
	assert_int_equal(set.n, 1);
	set = set_of(NULL, NULL, NULL);
	key_prefixes_sort(&set);
	assert_int_equal(set.n, 0);
}

static void test_hash(void **state)
{
	struct key_prefixes sets[] = { set_of("a/", NULL, NULL), set_of("a/", "b/", NULL),
		set_of("b/", NULL, NULL), set_of("a/b/", NULL, NULL), set_of("a", "/b/", NULL),
		set_of(NULL, NULL, NULL) };
	const uint32_t n = sizeof(sets) / sizeof(sets[0]);

	(void)state;
	for (uint32_t i = 0; i < n; i++) {
		assert_true(key_prefixes_hash(&sets[i]) != 0);
		assert_true(key_prefixes_hash(&sets[i]) == key_prefixes_hash(&sets[i]));
		for (uint32_t k = 0; k < i; k++)
			assert_true(key_prefixes_hash(&sets[i]) != key_prefixes_hash(&sets[k]));
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(test_have),
		cmocka_unit_test(test_sort), cmocka_unit_test(test_hash) };

	return cmocka_run_group_tests(tests, NULL, NULL);
}
