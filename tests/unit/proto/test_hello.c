/* The greeting: there and back, and what a hostile one gets. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <errno.h>
#include <string.h>
#include "proto/hello.h"

static void test_round_trip(void **state)
{
	struct hello hello = { .process = "cacheworker", .version = 1, .pid = UINT32_MAX };
	struct hello back;
	uint8_t out[HELLO_BYTES_MAX];
	size_t n = hello_pack(&hello, out);

	(void)state;
	assert_int_equal(hello_unpack(out, n, &back), 0);
	assert_string_equal(back.process, "cacheworker");
	assert_int_equal(back.version, 1);
	assert_int_equal(back.pid, UINT32_MAX);
	/* Cut anywhere inside a field it does not decode; never a crash. */
	assert_int_equal(hello_unpack(out, n - 1, &back), -EBADMSG);
}

static void test_longest(void **state)
{
	struct hello hello = { .version = UINT32_MAX, .pid = UINT32_MAX };
	struct hello back;
	uint8_t out[HELLO_BYTES_MAX];

	(void)state;
	memset(hello.process, 'x', sizeof(hello.process) - 1);
	assert_int_equal(hello_unpack(out, hello_pack(&hello, out), &back), 0);
	assert_string_equal(back.process, hello.process);
}

static void test_hostile(void **state)
{
	static const uint8_t control[] = { 0x0a, 3, 'a', '\n', 'b', 0x10, 1 };
	static const uint8_t garbage[] = { 0xff, 0xff, 0xff, 0xff, 0xff, 0xff };
	struct hello back;

	(void)state;
	assert_int_equal(hello_unpack(control, sizeof(control), &back), 0);
	assert_string_equal(back.process, "a?b");
	assert_int_equal(hello_unpack(garbage, sizeof(garbage), &back), -EBADMSG);
	assert_int_equal(hello_unpack("", 0, &back), 0); /* all fields are optional */
	assert_int_equal(back.version, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_round_trip),
		cmocka_unit_test(test_longest),
		cmocka_unit_test(test_hostile),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
