/* The generator against published numbers. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/mt19937.h"

/* ISO C++ [rand.predef]: the 10000th of std::mt19937, whose seed is 5489. */
static void test_ten_thousandth(void **state)
{
	struct mt19937 mt;
	uint32_t last = 0;

	(void)state;
	mt19937_init(&mt, 5489);
	for (int i = 0; i < 10000; i++)
		last = mt19937_next(&mt);
	assert_int_equal(last, 4123659995u);
}

static void test_64_bits(void **state)
{
	struct mt19937 a;
	struct mt19937 b;
	uint64_t upper;

	(void)state;
	mt19937_init(&a, 7);
	mt19937_init(&b, 7);
	upper = mt19937_next(&a);
	assert_true(mt19937_next64(&b) == (upper << 32 | mt19937_next(&a)));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_ten_thousandth),
		cmocka_unit_test(test_64_bits),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
