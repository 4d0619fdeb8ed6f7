/* CRCs against published check values, and against a computation bit by bit. */
#include "base/crc.h"
#include "base/check.h"

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <stdlib.h>
#include <cmocka.h>

/* Of "123456789": Koopman's and Cook's catalogues, RFC 3720 B.4 for 32 zeros, NVM Express for 4 KiB of zeros and of ones. */
static void check_values(void **state)
{
	static const uint8_t zeros[4096];
	uint8_t ones[4096];

	(void)state;
	for (size_t i = 0; i < sizeof(ones); i++)
		ones[i] = 0xff;
	assert_int_equal(crc_32("123456789", 9), 0xcbf43926);
	assert_int_equal(crc_32c("123456789", 9), 0xe3069283);
	assert_true(crc_64nvme("123456789", 9) == 0xae8b14860a799888);
	assert_int_equal(crc_32c(zeros, 32), 0x8a9136aa);
	assert_int_equal(crc_32c(ones, 32), 0x62a8ab43);
	assert_true(crc_64nvme(zeros, sizeof(zeros)) == 0x6482d367eb22b64e);
	assert_true(crc_64nvme(ones, sizeof(ones)) == 0xc0ddba7302eca3ac);
	assert_int_equal(crc_32(NULL, 0), 0);
	assert_int_equal(crc_32c(NULL, 0), 0);
	assert_true(crc_64nvme(NULL, 0) == 0);
}

/* `top`: the polynomial as it is written, highest power first, without the highest. */
static uint64_t bitwise(uint64_t top, unsigned int bits, const uint8_t *p, size_t len)
{
	uint64_t mask = bits == 64 ? UINT64_MAX : (1ull << bits) - 1;
	uint64_t crc = mask;
	uint64_t reflected = 0;

	for (size_t i = 0; i < len; i++)
		for (unsigned int bit = 0; bit < 8; bit++) { /* the lowest first */
			uint64_t high = crc >> (bits - 1) & 1;

			crc = crc << 1 & mask;
			if (high != (p[i] >> bit & 1u))
				crc ^= top;
		}
	for (unsigned int bit = 0; bit < bits; bit++)
		reflected |= (crc >> bit & 1) << (bits - 1 - bit);
	return ~reflected & mask;
}

static void random_lengths_and_alignments(void **state)
{
	uint8_t bytes[600];

	(void)state;
	srandom(17);
	for (int round = 0; round < 2000; round++) {
		size_t at = (size_t)random() % 16;
		size_t len = (size_t)random() % (sizeof(bytes) - at);

		if (round < 300)
			len = (size_t)round / 16;
		for (size_t i = 0; i < sizeof(bytes); i++)
			bytes[i] = (uint8_t)random();
		assert_int_equal(crc_32(bytes + at, len), bitwise(0x04c11db7, 32, bytes + at, len));
		assert_int_equal(
			crc_32c(bytes + at, len), bitwise(0x1edc6f41, 32, bytes + at, len));
		assert_true(crc_64nvme(bytes + at, len) ==
			    bitwise(0xad93d23594c93659, 64, bytes + at, len));
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(check_values),
		cmocka_unit_test(random_lengths_and_alignments),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
