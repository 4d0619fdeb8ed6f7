/* The buffer: its maximum, the NUL behind it, and that a failure changes nothing. */
#include "base/buf.h"
#include "base/cleanup.h"

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <string.h>

static void the_maximum_is_reached_and_not_passed(void **state)
{
	_cleanup_(buf_release) struct buf b = BUF_INIT(100);
	char bytes[101];

	(void)state;
	memset(bytes, 'x', sizeof(bytes));
	assert_string_equal(buf_str(&b), "");
	assert_int_equal(buf_append(&b, bytes, 101), -ENOBUFS);
	assert_int_equal(b.len, 0);
	assert_int_equal(buf_append(&b, bytes, 60), 0);
	assert_int_equal(buf_append(&b, bytes, 41), -ENOBUFS);
	assert_int_equal(buf_printf(&b, "%041d", 7), -ENOBUFS);
	assert_int_equal(b.len, 60);
	assert_int_equal(strlen(buf_str(&b)), 60);
	assert_int_equal(buf_printf(&b, "%040d", 7), 0);
	assert_int_equal(b.len, 100);
	assert_true(b.cap <= 100);
	assert_int_equal(b.data[99], '7');
	assert_int_equal(b.data[100], '\0');
	assert_int_equal(buf_puts(&b, ""), 0);
	assert_int_equal(buf_puts(&b, "x"), -ENOBUFS);
}

static void sizes_do_not_wrap(void **state)
{
	_cleanup_(buf_release) struct buf b = BUF_INIT(SIZE_MAX - 1);

	(void)state;
	assert_int_equal(buf_puts(&b, "abc"), 0);
	assert_int_equal(buf_reserve(&b, SIZE_MAX), -ENOBUFS);
	assert_int_equal(buf_reserve(&b, SIZE_MAX - 3), -ENOBUFS);
	assert_string_equal(buf_str(&b), "abc");
}

static void it_is_a_string_after_each_change(void **state)
{
	_cleanup_(buf_release) struct buf b = BUF_INIT(1000);

	(void)state;
	assert_int_equal(buf_puts(&b, "GET "), 0);
	assert_int_equal(buf_printf(&b, "%s?n=%d", "/k", 12), 0);
	assert_int_equal(buf_append(&b, "\r\n", 2), 0);
	assert_string_equal(buf_str(&b), "GET /k?n=12\r\n");
	buf_consume(&b, 0);
	buf_consume(&b, 4);
	assert_string_equal(buf_str(&b), "/k?n=12\r\n");
	buf_consume(&b, b.len);
	assert_string_equal(buf_str(&b), "");
	assert_int_equal(buf_append(&b, "a\0b", 3), 0);
	assert_int_equal(b.len, 3);
	assert_memory_equal(b.data, "a\0b", 4);
	buf_clear(&b);
	assert_int_equal(b.len, 0);
	assert_string_equal(buf_str(&b), "");
	for (int i = 0; i < 250; i++)
		assert_int_equal(buf_puts(&b, "1234"), 0);
	for (int i = 0; i < 1000; i++)
		assert_int_equal(b.data[i], '1' + i % 4);
}

static void released_it_can_be_used_again(void **state)
{
	struct buf b = BUF_INIT(8);

	(void)state;
	assert_int_equal(buf_puts(&b, "12345678"), 0);
	buf_release(&b);
	assert_null(b.data);
	assert_int_equal(b.max, 8);
	buf_consume(&b, 0);
	buf_clear(&b);
	assert_int_equal(buf_puts(&b, "abc"), 0);
	assert_string_equal(buf_str(&b), "abc");
	buf_release(&b);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_maximum_is_reached_and_not_passed),
		cmocka_unit_test(sizes_do_not_wrap),
		cmocka_unit_test(it_is_a_string_after_each_change),
		cmocka_unit_test(released_it_can_be_used_again),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
