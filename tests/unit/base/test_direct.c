/* Memory for O_DIRECT: aligned to a huge page, and all there. */
#include "base/direct.h"

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

static void it_is_aligned_and_all_there(void **state)
{
	static const size_t sizes[] = { 1, 4096, 1u << 20, (1u << 20) + 4096, DIRECT_PAGE_BYTES,
		DIRECT_PAGE_BYTES + 1 };

	(void)state;
	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		unsigned char *buffer = direct_buffer_new(sizes[i]);

		assert_non_null(buffer);
		assert_int_equal((uintptr_t)buffer % DIRECT_PAGE_BYTES, 0);
		memset(buffer, 0xA5, sizes[i]); /* out of bounds: the sanitizer's word */
		assert_int_equal(buffer[sizes[i] - 1], 0xA5);
		free(buffer);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(it_is_aligned_and_all_there),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
