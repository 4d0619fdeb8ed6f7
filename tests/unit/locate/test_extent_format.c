/* The extent file's places and foot: arithmetic, golden bytes, damage. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <errno.h>
#include <string.h>
#include "base/hash.h"
#include "locate/extent_format.h"

static const struct extent_foot foot = {
	.volume = { .bytes = { 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16 } },
	.lineage = 0x1122334455667788ull,
	.number = 0x0102,
	.file_id = 0xa1a2a3a4a5a6a7a8ull,
	.extent_bytes = 1ull << 30,
};

static void test_sizes(void **state)
{
	(void)state;
	assert_false(extent_bytes_valid(0));
	assert_false(extent_bytes_valid(CHUNK_BYTES / 2));
	assert_false(extent_bytes_valid(3ull << 29));
	assert_false(extent_bytes_valid(EXTENT_BYTES_MAX * 2));
	for (uint64_t e = CHUNK_BYTES; e <= EXTENT_BYTES_MAX; e *= 2) {
		assert_true(extent_bytes_valid(e));
		assert_int_equal(extent_bytes_of_file(extent_file_bytes(e)), e);
		assert_int_equal(extent_bytes_of_file(extent_file_bytes(e) - 1), 0);
		assert_int_equal(extent_bytes_of_file(extent_file_bytes(e) + 4096), 0);
		assert_int_equal(extent_bytes_of_file(e), 0);
	}
	assert_int_equal(extent_bytes_of_file(CHUNK_FILE_BYTES), 0);
	assert_int_equal(extent_file_bytes(1ull << 30), (1ull << 30) + 64 * 53248 + 4096);
}

/* The data are the device's bytes, no two chunks share any, and nothing else lies among them. */
static void test_places(void **state)
{
	(void)state;
	for (uint64_t e = CHUNK_BYTES; e <= 4ull << 30; e *= 2) {
		uint64_t n = e / CHUNK_BYTES;

		for (uint64_t base = 0; base < 3 * n; base += n) {
			for (uint64_t i = 0; i < n; i++) {
				struct chunk_place p = extent_place(e, base + i);

				assert_int_equal(p.data, i * CHUNK_BYTES);
				assert_int_equal(p.head, e + i * (4096 + 49152));
				assert_int_equal(chunk_place_table(&p), p.head + 4096);
				assert_int_equal(p.head % BLOCK_BYTES, 0);
			}
		}
		assert_int_equal(
			extent_place(e, n - 1).head + CHUNK_META_BYTES, extent_foot_offset(e));
	}
}

static void test_device_size(void **state)
{
	const uint64_t max = LIMIT_DEVICES * EXTENT_MIN;

	(void)state;
	assert_int_equal(layout_extent_bytes(0), EXTENT_MIN);
	assert_int_equal(layout_extent_bytes(max), EXTENT_MIN);
	assert_int_equal(layout_extent_bytes(max + 1), 2 * EXTENT_MIN);
	assert_int_equal(layout_extent_bytes(4 * max), 4 * EXTENT_MIN);
}

static void test_golden(void **state)
{
	static const uint8_t want[64] = { 'E', 'X', 'T', '1', 1, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9,
		10, 11, 12, 13, 14, 15, 16, 0x88, 0x77, 0x66, 0x55, 0x44, 0x33, 0x22, 0x11, 2, 1, 0,
		0, 0, 0, 0, 0, 0xa8, 0xa7, 0xa6, 0xa5, 0xa4, 0xa3, 0xa2, 0xa1, 0, 0, 0, 0x40 };
	uint8_t out[EXTENT_FOOT_BYTES];
	struct extent_foot got;

	(void)state;
	memset(out, 0xff, sizeof(out));
	extent_foot_encode(&foot, out);
	assert_memory_equal(out, want, sizeof(want));
	for (size_t i = 72; i < sizeof(out); i++)
		assert_int_equal(out[i], 0);
	assert_int_equal(extent_foot_decode(out, &got), 0);
	assert_memory_equal(&got, &foot, sizeof(foot));
}

static void put_sum(uint8_t *out)
{
	uint64_t sum = hash_xxh3(out, 64, 0);

	memcpy(out + 64, &sum, sizeof(sum));
}

static void test_damage(void **state)
{
	uint8_t out[EXTENT_FOOT_BYTES];
	struct extent_foot got;

	(void)state;
	for (size_t bit = 0; bit < 72 * 8; bit++) {
		extent_foot_encode(&foot, out);
		out[bit / 8] ^= (uint8_t)(1u << bit % 8);
		assert_int_equal(extent_foot_decode(out, &got), -EBADMSG);
	}
	extent_foot_encode(&foot, out);
	out[4] = 2;
	put_sum(out);
	assert_int_equal(extent_foot_decode(out, &got), -EPROTONOSUPPORT);
	extent_foot_encode(&foot, out);
	out[56] = 1;
	put_sum(out);
	assert_int_equal(extent_foot_decode(out, &got), -EPROTONOSUPPORT);
	extent_foot_encode(&foot, out);
	out[48] = 1; /* no power of two */
	put_sum(out);
	assert_int_equal(extent_foot_decode(out, &got), -EBADMSG);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_sizes),
		cmocka_unit_test(test_places),
		cmocka_unit_test(test_device_size),
		cmocka_unit_test(test_golden),
		cmocka_unit_test(test_damage),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
