/* What a piece table means as presence bits, and names of chunk files. */
#include "tests/unit/tiers/tier_fixture.h"

static void set_entry(uint8_t *table, uint32_t block, uint32_t length)
{
	struct piece_entry entry = { .xxh3 = 1, .length = length & 0xffff };
	uint8_t *at = table + (size_t)block * CHUNK_ENTRY_BYTES;

	piece_entry_encode(&entry, at);
	at[10] = (uint8_t)(length >> 16); /* also lengths that encode() refuses */
}

static bool bit(const uint64_t *words, uint32_t block)
{
	return words[block / 64] >> (block % 64) & 1;
}

static void test_table_scan(void **state)
{
	uint8_t *table = calloc(1, CHUNK_TABLE_BYTES);
	uint64_t present[CHUNK_WORDS];
	uint32_t n = 0;

	(void)state;
	assert_non_null(table);
	set_entry(table, 0, 65536);  /* 16 blocks */
	set_entry(table, 4, 100);    /* inside the piece before: does not count by itself */
	set_entry(table, 16, 1);     /* one block */
	set_entry(table, 60, 32769); /* nine blocks, over a word's end */
	set_entry(table, 100, 65537);
	set_entry(table, 200, 0);
	set_entry(table, 4095, 4097); /* past the chunk */
	chunk_table_scan(table, present);
	for (uint32_t b = 0; b < CHUNK_BLOCKS; b++) {
		assert_int_equal(bit(present, b), b < 17 || (b >= 60 && b < 69));
		n += bit(present, b);
	}
	assert_int_equal(n, 26);
	set_entry(table, 4095, 4096);
	chunk_table_scan(table, present);
	assert_true(bit(present, 4095));
	free(table);
}

static void test_file_names(void **state)
{
	char path[FILE_NAME_BYTES];
	uint64_t back;

	(void)state;
	file_id_path(0xabcd0000000001ffull, path);
	assert_string_equal(path, "ff/abcd0000000001ff");
	assert_int_equal(file_id_parse(path + 3, &back), 0);
	assert_true(back == 0xabcd0000000001ffull);
	assert_int_equal(file_id_parse("probe", &back), -EINVAL);
	assert_int_equal(file_id_parse("..", &back), -EINVAL);
	assert_int_equal(file_id_parse("abcd0000000001fg", &back), -EINVAL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_table_scan),
		cmocka_unit_test(test_file_names),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
