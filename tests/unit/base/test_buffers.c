/* Buffers that are recycled: aligned, the warmest first, and no more kept than the bound. */
#include "base/buffers.h"
#include "base/layout.h"
#include "base/units.h"

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <string.h>

#define KEPT (8 * MiB)
#define MANY 32u

static void test_the_last_given_back_is_next(void **state)
{
	struct buffers b;
	char *first;
	char *second;

	(void)state;
	buffers_init(&b, KEPT);
	first = buffers_take(&b, MiB);
	second = buffers_take(&b, MiB);
	assert_non_null(first);
	assert_non_null(second);
	assert_int_equal((uintptr_t)first % BLOCK_BYTES, 0);
	assert_int_equal((uintptr_t)second % BLOCK_BYTES, 0);
	memset(second, 1, MiB);
	buffers_give(&b, first, MiB);
	buffers_give(&b, second, MiB);
	buffers_give(&b, NULL, MiB);
	assert_ptr_equal(buffers_take(&b, MiB), second);
	assert_ptr_equal(buffers_take(&b, MiB), first);
	buffers_give(&b, first, MiB);
	buffers_give(&b, second, MiB);
	buffers_release(&b);
}

static void test_few_are_kept(void **state)
{
	struct buffers b;
	void *all[MANY];

	(void)state;
	buffers_init(&b, KEPT);
	for (unsigned int i = 0; i < MANY; i++)
		assert_non_null(all[i] = buffers_take(&b, MiB));
	for (unsigned int i = 0; i < MANY; i++)
		buffers_give(&b, all[i], MiB);
	assert_int_equal(b.bytes, KEPT);
	buffers_drop_kept(&b);
	assert_int_equal(b.bytes, 0);
	buffers_release(&b);
}

/* What was kept of another size does not stay for ever. */
static void test_kept_of_another_size(void **state)
{
	struct buffers b;
	void *small[2 * BUFFERS_KEPT_MAX];
	void *large;

	(void)state;
	buffers_init(&b, KEPT);
	for (size_t i = 0; i < ARRAY_SIZE(small); i++)
		assert_non_null(small[i] = buffers_take(&b, 32 * KiB - 1));
	large = buffers_take(&b, MiB);
	assert_non_null(large);
	for (size_t i = 0; i < ARRAY_SIZE(small); i++)
		buffers_give(&b, small[i], 32 * KiB - 1);
	assert_int_equal(b.bytes, KEPT);
	buffers_give(&b, large, MiB);
	assert_int_equal(b.bytes, KEPT);
	assert_ptr_equal(buffers_take(&b, MiB), large);
	buffers_give(&b, large, MiB);
	buffers_release(&b);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_the_last_given_back_is_next),
		cmocka_unit_test(test_few_are_kept),
		cmocka_unit_test(test_kept_of_another_size),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
