/* The memory of a private cluster: its daemons never have more together, whatever is mounted. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/units.h"
#include "ctl/supervisor.h"

static void the_sum_is_what_was_given(void **state)
{
	static const uint64_t given[] = { 128 * MiB, 192 * MiB, 1 * GiB, 64 * GiB };

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(given); i++) {
		const struct supervisor_config config = { .memory = given[i] };
		uint64_t keeper = supervisor_memory_keeper(&config);

		assert_int_equal(supervisor_memory_worker(&config) +
					 supervisor_memory_master(&config) + keeper,
			given[i]);
		assert_true(keeper >= given[i] / 4);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_sum_is_what_was_given),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
