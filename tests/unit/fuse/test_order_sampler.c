/* Orders of samples against what PyTorch itself made (sdk/python/tests/vectors.json). */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <jansson.h>
#include <stdlib.h>

#include "base/check.h"
#include "fuse/order_sampler.h"

#define VECTORS "sdk/python/tests/vectors.json"

/* CRC-32 as zlib has it, over little-endian numbers. */
static uint32_t crc_of(const uint32_t *numbers, uint64_t n)
{
	uint32_t crc = UINT32_MAX;

	for (uint64_t i = 0; i < n; i++)
		for (unsigned int byte = 0; byte < 4; byte++) {
			crc ^= numbers[i] >> (8 * byte) & 0xff;
			for (unsigned int bit = 0; bit < 8; bit++)
				crc = crc >> 1 ^ (crc & 1 ? 0xedb88320u : 0);
		}
	return ~crc;
}

static int setup(void **state)
{
	json_error_t error;

	*state = json_load_file(VECTORS, 0, &error);
	return *state ? 0 : -1;
}

static int teardown(void **state)
{
	json_decref(*state);
	return 0;
}

static uint64_t number(const json_t *row, const char *name)
{
	const json_t *value = json_object_get(row, name);

	assert_true(json_is_integer(value));
	return (uint64_t)json_integer_value(value);
}

static void check_head(const json_t *row, const uint32_t *numbers)
{
	const json_t *head = json_object_get(row, "head");
	json_t *value;
	size_t i;

	json_array_foreach (head, i, value)
		assert_int_equal(numbers[i], json_integer_value(value));
}

static void test_randperm(void **state)
{
	const json_t *rows = json_object_get(*state, "randperm");
	json_t *row;
	size_t i;

	assert_true(json_array_size(rows) > 20);
	json_array_foreach (rows, i, row) {
		uint32_t n = (uint32_t)number(row, "n");
		uint32_t *order = calloc(n, sizeof(*order));

		assert_non_null(order);
		order_permute(order, n, number(row, "seed"));
		check_head(row, order);
		assert_int_equal(crc_of(order, n), number(row, "crc32"));
		free(order);
	}
}

/* What a rank reads, and back. */
static uint32_t *sampled(const json_t *row, uint64_t *ret_count)
{
	struct order_share share = {
		.n = number(row, "n"),
		.rank = (uint32_t)number(row, "rank"),
		.world = (uint32_t)number(row, "world"),
		.drop_last = json_is_true(json_object_get(row, "drop_last")),
	};
	uint64_t count = order_share_count(&share);
	uint32_t *order = calloc(share.n, sizeof(*order));
	uint32_t *out = calloc(count + 1, sizeof(*out));

	assert_non_null(order);
	assert_non_null(out);
	for (uint32_t i = 0; i < share.n; i++)
		order[i] = i;
	if (json_is_true(json_object_get(row, "shuffle")))
		order_permute(order, (uint32_t)share.n, number(row, "seed") + number(row, "epoch"));
	for (uint64_t k = 0; k < count; k++) {
		uint64_t place = order_share_place(&share, k);
		uint64_t back;

		out[k] = order[place];
		if (k * share.world + share.rank >= share.n)
			continue; /* a repetition */
		assert_true(order_share_find(&share, place, &back));
		assert_int_equal(back, k);
	}
	free(order);
	*ret_count = count;
	return out;
}

static void test_sampler(void **state)
{
	const json_t *rows = json_object_get(*state, "sampler");
	json_t *row;
	size_t i;

	assert_true(json_array_size(rows) > 300);
	json_array_foreach (rows, i, row) {
		uint64_t count;
		uint32_t *out = sampled(row, &count);

		assert_int_equal(count, number(row, "count"));
		check_head(row, out);
		assert_int_equal(crc_of(out, count), number(row, "crc32"));
		free(out);
	}
}

/* The way of more than 200 million samples. The numbers are those of sdk/python, which draws them
 * with Python's own generator. */
static void test_large_way(void **state)
{
	static const uint32_t ten[] = { 7, 4, 6, 5, 3, 1, 2, 8, 9, 0 };
	uint32_t order[1000];
	bool seen[1000] = { false };

	(void)state;
	order_permute_large(order, ARRAY_SIZE(ten), 5489);
	assert_memory_equal(order, ten, sizeof(ten));
	order_permute_large(order, ARRAY_SIZE(order), 3);
	for (size_t i = 0; i < ARRAY_SIZE(order); i++) {
		assert_true(order[i] < ARRAY_SIZE(order) && !seen[order[i]]);
		seen[order[i]] = true;
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_randperm),
		cmocka_unit_test(test_sampler),
		cmocka_unit_test(test_large_way),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
