/* What /proc and the control groups say of memory, in addition to what sysconf(3) says. */
#include "base/memory.h"
#include "base/check.h"

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <unistd.h>

static uint64_t machine(void)
{
	return (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
}

static void test_there(void **state)
{
	(void)state;
	assert_int_equal(memory_there(), min(machine(), memory_group_limit()));
}

static void test_available(void **state)
{
	(void)state;
	assert_in_range(memory_available(), 1, machine());
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_there),
		cmocka_unit_test(test_available),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
