/* Differences of slot tables: what comes out is what went in, in a row, too; what does not decode changes nothing. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/hash.h"
#include "placement/placement_delta.h"

#define BYTES (PLACEMENT_SLOTS * sizeof(struct placement_slot))

static uint64_t seed = 7;

static uint32_t random_below(uint32_t n)
{
	seed = hash_xxh3(&seed, sizeof(seed), 1);
	return (uint32_t)(seed % n);
}

static uint16_t random_number(void)
{
	return random_below(8) ? (uint16_t)random_below(9) : PLACEMENT_NONE;
}

/* As repairs do, and as they do not. */
static void change(struct placement_slot *s)
{
	const struct placement_slot was = *s;

	if (random_below(2)) {
		s->owner = was.replicas[0];
		s->previous = was.owner;
	}
	if (random_below(2))
		s->replicas[0] = was.replicas[1];
	if (random_below(2))
		s->replicas[1] = random_number();
	if (random_below(8) == 0)
		*s = (struct placement_slot){ random_number(), random_number(),
			{ random_number(), random_number() } };
}

static void test_round(void **state)
{
	_cleanup_free_ struct placement_slot *a = malloc(BYTES);
	_cleanup_free_ struct placement_slot *b = malloc(BYTES);
	_cleanup_free_ struct placement_slot *c = malloc(BYTES);
	_cleanup_(buf_release) struct buf all = BUF_INIT(64 * BYTES);

	(void)state;
	assert_true(a && b && c);
	memset(a, 0xff, BYTES);
	memcpy(c, a, BYTES);
	for (unsigned int turn = 0; turn < 40; turn++) {
		_cleanup_(buf_release) struct buf one = BUF_INIT(2 * BYTES);
		uint32_t one_in = turn % 5 == 0 ? 1 : 1 + random_below(5000);

		memcpy(b, a, BYTES);
		for (uint32_t s = 0; s < PLACEMENT_SLOTS; s++)
			if (random_below(one_in) == 0)
				change(&b[s]);
		assert_int_equal(placement_delta_encode(a, b, &one), 0);
		assert_int_equal(placement_delta_encode(a, b, &all), 0);
		assert_int_equal(placement_delta_apply(NULL, buf_str(&one), one.len), 0);
		assert_int_equal(placement_delta_apply(a, buf_str(&one), one.len), 0);
		assert_memory_equal(a, b, BYTES);
	}
	assert_int_equal(placement_delta_apply(c, buf_str(&all), all.len), 0);
	assert_memory_equal(c, a, BYTES);
	buf_clear(&all);
	assert_int_equal(placement_delta_encode(a, b, &all), 0);
	assert_int_equal(all.len, 0); /* no difference */
}

/* A worker that comes back to what it had: nothing but codes. */
static void test_small(void **state)
{
	_cleanup_free_ struct placement_slot *a = calloc(1, BYTES);
	_cleanup_free_ struct placement_slot *b = calloc(1, BYTES);
	_cleanup_(buf_release) struct buf one = BUF_INIT(BYTES);

	(void)state;
	assert_true(a && b);
	for (uint32_t s = 100; s < 110; s++) {
		a[s] = (struct placement_slot){ 3, 4, { 1, 2 } };
		b[s] = (struct placement_slot){ 4, 3, { 7, 1 } };
	}
	assert_int_equal(placement_delta_encode(a, b, &one), 0);
	assert_int_equal(one.len, 4 + 10 * (1 + 1 + 2));
	assert_int_equal(placement_delta_apply(a, buf_str(&one), one.len), 0);
	assert_memory_equal(a, b, BYTES);
}

static void test_damaged(void **state)
{
	_cleanup_free_ struct placement_slot *a = calloc(1, BYTES);
	_cleanup_free_ struct placement_slot *b = malloc(BYTES);
	_cleanup_(buf_release) struct buf one = BUF_INIT(2 * BYTES);
	uint8_t beyond[4 + 257 + 2] = { 3, 1 }; /* 257 times 255 slots, and some more */

	(void)state;
	assert_true(a && b);
	memset(b, 0x11, BYTES);
	assert_int_equal(placement_delta_encode(a, b, &one), 0);
	for (uint32_t len = 1; len < 200; len++)
		assert_int_equal(placement_delta_apply(NULL, buf_str(&one), len), -EBADMSG);
	assert_int_equal(placement_delta_apply(NULL, buf_str(&one), one.len - 1), -EBADMSG);
	memset(beyond + 4, 0xff, 257);
	beyond[4 + 257] = 0; /* the last slot */
	assert_int_equal(placement_delta_apply(NULL, beyond, sizeof(beyond)), 0);
	beyond[4 + 257] = 1; /* and the one behind it */
	assert_int_equal(placement_delta_apply(NULL, beyond, sizeof(beyond)), -EBADMSG);
	assert_int_equal(placement_delta_apply(NULL, beyond, sizeof(beyond) - 1), -EBADMSG);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_round),
		cmocka_unit_test(test_small),
		cmocka_unit_test(test_damaged),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
