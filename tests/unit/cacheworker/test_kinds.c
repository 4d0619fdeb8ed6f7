/* Kinds of objects: what makes two objects one kind, and the credit of a kind. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>
#include "base/check.h"
#include "base/cleanup.h"
#include "base/units.h"
#include "cacheworker/kinds.h"

struct state {
	struct kinds kinds;
	struct table_row row;
};

static const struct table_row *object(struct state *s, const char *key, uint64_t size)
{
	s->row.size = size;
	s->row.key_len = (uint16_t)strlen(key);
	assert_true(s->row.key_len <= LIMIT_KEY_BYTES);
	memcpy(s->row.key, key, s->row.key_len);
	return &s->row;
}

static void pay(struct state *s, const char *key, uint64_t size, uint32_t requests)
{
	kinds_pay(&s->kinds, object(s, key, size), requests);
}

/* Spends what the object has. */
static unsigned int spend_all(struct state *s, const char *key, uint64_t size)
{
	unsigned int n;

	for (n = 0; kinds_have_credit(&s->kinds, object(s, key, size)); n++)
		kinds_spend(&s->kinds, object(s, key, size));
	return n;
}

/* Credit that the second miss of an object gives to another one: the first one also pays for other directories. */
static bool are_one_kind(const char *a, uint64_t a_size, const char *b, uint64_t b_size)
{
	_cleanup_free_ struct state *s = calloc(1, sizeof(*s));

	assert_non_null(s);
	pay(s, a, a_size, 1);
	(void)spend_all(s, a, a_size);
	pay(s, a, a_size, 1);
	return kinds_have_credit(&s->kinds, object(s, b, b_size));
}

static void test_what_is_one_kind(void **state)
{
	static const struct {
		const char *a;
		uint64_t a_size;
		const char *b;
		uint64_t b_size;
		bool one;
	} pairs[] = {
		{ "train/0001.jpg", 100 * KiB, "train/0002.jpg", 70 * KiB, true },
		{ "train/n01440764/x.JPEG", 100 * KiB, "train/n01443537/y.JPEG", 100 * KiB, true },
		{ "train/0001.jpg", 100 * KiB, "val/0001.jpg", 100 * KiB, false },
		{ "a/rgb/1.png", 100 * KiB, "a/depth/1.png", 100 * KiB, false },
		{ "train/0001.jpg", 100 * KiB, "train/0001.txt", 100 * KiB, false },
		{ "train/0001.jpg", 100 * KiB, "train/0001.jpg", 1 * KiB, false },
		{ "train/0001.jpg", 100 * KiB, "train/0001", 100 * KiB, false },
		{ "part.0001", MiB, "part.0002", MiB, true },
		{ "0001", MiB, "0002", MiB, true },
		{ "a/b", MiB, "ab", MiB, false },
		{ "", 0, "", 0, true },
		{ "a/.hidden", 1, "b/.hidden", 1, false },
		{ "\xe4\xb8\xad/1.jpg", KiB, "\xe6\x96\x87/1.jpg", KiB, false },
	};

	(void)state;
	for (unsigned int i = 0; i < ARRAY_SIZE(pairs); i++)
		if (are_one_kind(pairs[i].a, pairs[i].a_size, pairs[i].b, pairs[i].b_size) !=
			pairs[i].one)
			fail_msg("'%s' and '%s'", pairs[i].a, pairs[i].b);
}

static void test_the_longest_key(void **state)
{
	char key[LIMIT_KEY_BYTES + 1];

	(void)state;
	memset(key, '.', LIMIT_KEY_BYTES);
	key[LIMIT_KEY_BYTES] = '\0';
	assert_true(are_one_kind(key, UINT64_MAX, key, UINT64_MAX));
	memset(key, '/', LIMIT_KEY_BYTES);
	assert_true(are_one_kind(key, 1, key, 1));
	memset(key, 'a', LIMIT_KEY_BYTES);
	assert_true(are_one_kind(key, 1, "a", 1)); /* neither directory nor suffix */
}

static void test_credit(void **state)
{
	_cleanup_free_ struct state *s = calloc(1, sizeof(*s));

	(void)state;
	assert_non_null(s);
	assert_int_equal(spend_all(s, "train/1.jpg", KiB), 0);
	kinds_spend(&s->kinds, object(s, "train/1.jpg", KiB)); /* there is none */
	assert_int_equal(spend_all(s, "train/1.jpg", KiB), 0);
	pay(s, "train/1.jpg", KiB, 2);
	assert_int_equal(spend_all(s, "train/1.jpg", KiB), 2 + 2);
	pay(s, "train/2.jpg", KiB, 2);
	pay(s, "train/3.jpg", KiB, 1);
	assert_int_equal(spend_all(s, "train/1.txt", KiB), 0);
	assert_int_equal(spend_all(s, "train/1.jpg", KiB), 3);
	for (unsigned int i = 0; i < 3; i++)
		pay(s, "train/1.jpg", KiB, UINT32_MAX);
	assert_in_range(spend_all(s, "train/1.jpg", KiB), 1000000, 2000000);
}

/* The first miss of each directory pays for others, whose names are words; later ones do not. */
static void test_directories_of_words(void **state)
{
	_cleanup_free_ struct state *s = calloc(1, sizeof(*s));

	(void)state;
	assert_non_null(s);
	pay(s, "ape/x.jpg", KiB, 2);
	assert_int_equal(spend_all(s, "ape/x.txt", KiB), 0);
	assert_int_equal(spend_all(s, "bee/x.jpg", MiB), 0);
	assert_int_equal(spend_all(s, "x.jpg", KiB), 2);
	pay(s, "ape/y.jpg", KiB, 2);
	assert_int_equal(spend_all(s, "bee/x.jpg", KiB), 0);
	pay(s, "cow/x.jpg", KiB, 2);
	assert_int_equal(spend_all(s, "bee/x.jpg", KiB), 2);
}

/* More kinds than there is place for: the new ones have their credit. */
static void test_displaced(void **state)
{
	_cleanup_free_ struct state *s = calloc(1, sizeof(*s));
	char key[] = "aaa/x.txt";

	(void)state;
	assert_non_null(s);
	pay(s, "train/1.jpg", KiB, 2);
	for (unsigned int i = 0; i < 26 * 26 * 26; i++) {
		key[0] = (char)('a' + i % 26);
		key[1] = (char)('a' + i / 26 % 26);
		key[2] = (char)('a' + i / 26 / 26);
		pay(s, key, KiB, 1);
		assert_true(kinds_have_credit(&s->kinds, object(s, key, KiB)));
	}
	assert_int_equal(spend_all(s, "train/1.jpg", KiB), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_what_is_one_kind),
		cmocka_unit_test(test_the_longest_key),
		cmocka_unit_test(test_credit),
		cmocka_unit_test(test_directories_of_words),
		cmocka_unit_test(test_displaced),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
