/* The chunk file's head and entries: golden bytes, round trips, damage. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <errno.h>
#include <string.h>
#include "base/hash.h"
#include "locate/chunk_format.h"

static const struct chunk_head head = {
	.id = { .volume = { .bytes = { 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16 } },
		.lineage = 0x1122334455667788ull,
		.chunk = 0x0102030405ull },
	.file_id = 0xa1a2a3a4a5a6a7a8ull,
};

static void test_head_golden(void **state)
{
	static const uint8_t want[56] = { 'C', 'H', 'K', '1', 1, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9,
		10, 11, 12, 13, 14, 15, 16, 0x88, 0x77, 0x66, 0x55, 0x44, 0x33, 0x22, 0x11, 5, 4, 3,
		2, 1, 0, 0, 0, 0xa8, 0xa7, 0xa6, 0xa5, 0xa4, 0xa3, 0xa2, 0xa1 };
	uint8_t out[CHUNK_HEAD_BYTES];

	(void)state;
	memset(out, 0xff, sizeof(out));
	chunk_head_encode(&head, out);
	assert_memory_equal(out, want, sizeof(want));
	for (size_t i = 64; i < sizeof(out); i++)
		assert_int_equal(out[i], 0);
}

static void test_head_round_trip(void **state)
{
	uint8_t out[CHUNK_HEAD_BYTES];
	struct chunk_head got;

	(void)state;
	chunk_head_encode(&head, out);
	assert_int_equal(chunk_head_decode(out, &got), 0);
	assert_true(chunk_id_equal(&got.id, &head.id));
	assert_int_equal(got.file_id, head.file_id);
}

static void test_head_damage(void **state)
{
	uint8_t out[CHUNK_HEAD_BYTES];
	struct chunk_head got;
	uint64_t sum;

	(void)state;
	for (size_t bit = 0; bit < 64 * 8; bit++) {
		chunk_head_encode(&head, out);
		out[bit / 8] ^= (uint8_t)(1u << bit % 8);
		assert_int_equal(chunk_head_decode(out, &got), -EBADMSG);
	}
	chunk_head_encode(&head, out);
	out[4] = 2;
	sum = hash_xxh3(out, 56, 0);
	memcpy(out + 56, &sum, sizeof(sum));
	assert_int_equal(chunk_head_decode(out, &got), -EPROTONOSUPPORT);
}

static void test_entry_golden(void **state)
{
	const struct piece_entry entry = {
		.xxh3 = 0x0807060504030201ull, .length = PIECE_BYTES, .flags = 3
	};
	static const uint8_t want[CHUNK_ENTRY_BYTES] = { 1, 2, 3, 4, 5, 6, 7, 8, 0, 0, 1, 3 };
	uint8_t out[CHUNK_ENTRY_BYTES];
	struct piece_entry got;

	(void)state;
	piece_entry_encode(&entry, out);
	assert_memory_equal(out, want, sizeof(want));
	piece_entry_decode(out, &got);
	assert_int_equal(got.xxh3, entry.xxh3);
	assert_int_equal(got.length, entry.length);
	assert_int_equal(got.flags, entry.flags);
}

static void test_entry_hostile(void **state)
{
	uint8_t in[CHUNK_ENTRY_BYTES] = { 0 };
	struct piece_entry got = { .length = 9 };

	(void)state;
	piece_entry_decode(in, &got);
	assert_int_equal(got.length, 0);
	memset(in, 0xff, sizeof(in));
	piece_entry_decode(in, &got);
	assert_int_equal(got.length, 0);
	memset(in, 0, sizeof(in));
	in[8] = 1;
	in[10] = 1; /* 65,537 */
	piece_entry_decode(in, &got);
	assert_int_equal(got.length, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_head_golden),
		cmocka_unit_test(test_head_round_trip),
		cmocka_unit_test(test_head_damage),
		cmocka_unit_test(test_entry_golden),
		cmocka_unit_test(test_entry_hostile),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
