/* MD5s of several messages against those of one. */
#include "base/md5.h"

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define BYTES 20000u
#define MOST  40u

static uint8_t *make_bytes(void)
{
	uint8_t *bytes = malloc(BYTES);

	assert_non_null(bytes);
	for (uint32_t i = 0; i < BYTES; i++)
		bytes[i] = (uint8_t)(i * 7 + i / 251);
	return bytes;
}

static void compare(const struct md5_message *messages, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++) {
		uint8_t md5[MD5_BYTES];

		assert_int_equal(hash_md5(messages[i].data, messages[i].len, md5), 0);
		assert_memory_equal(messages[i].md5, md5, sizeof(md5));
	}
}

/* By all widths that the CPU has. */
static void check(struct md5_message *messages, uint32_t n)
{
	assert_int_equal(md5_of_all(messages, n), 0);
	compare(messages, n);
	for (enum md5_width width = MD5_ONE; width <= MD5_AVX512; width++) {
		int r;

		for (uint32_t i = 0; i < n; i++)
			memset(messages[i].md5, 0, MD5_BYTES);
		r = md5_of_all_by(width, messages, n);
		if (r == -ENOTSUP && width != MD5_ONE)
			break;
		assert_int_equal(r, 0);
		compare(messages, n);
	}
}

/* RFC 1321, A.5 */
static void of_the_rfc(void **state)
{
	struct md5_message messages[] = { { .data = "", .len = 0 }, { .data = "abc", .len = 3 } };
	char hex[2 * MD5_BYTES + 1];

	(void)state;
	assert_int_equal(md5_of_all(messages, 2), 0);
	hash_hex(messages[0].md5, MD5_BYTES, hex);
	assert_string_equal(hex, "d41d8cd98f00b204e9800998ecf8427e");
	hash_hex(messages[1].md5, MD5_BYTES, hex);
	assert_string_equal(hex, "900150983cd24fb0d6963f7d28e17f72");
}

/* All lengths around one and two blocks, so that each has another tail. */
static void short_ones(void **state)
{
	uint8_t *bytes = make_bytes();
	struct md5_message messages[MOST];

	(void)state;
	for (size_t len = 0; len < 200; len++) {
		for (size_t i = 0; i < MOST; i++)
			messages[i] = (struct md5_message){ .data = bytes + i, .len = len + i % 3 };
		check(messages, MOST);
	}
	free(bytes);
}

/* Fewer and more than there are lanes, of many lengths: one ends while others go on. */
static void any_number(void **state)
{
	uint8_t *bytes = make_bytes();
	struct md5_message messages[MOST];

	(void)state;
	for (uint32_t n = 0; n <= MOST; n++) {
		for (uint32_t i = 0; i < n; i++)
			messages[i] = (struct md5_message){ .data = bytes + i * 3,
				.len = (i * 2741 + n * 97) % (BYTES - MOST * 3) };
		check(messages, n);
	}
	free(bytes);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(of_the_rfc),
		cmocka_unit_test(short_ones),
		cmocka_unit_test(any_number),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
