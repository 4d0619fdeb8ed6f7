/* What one token may have: counts, rates, and how many tokens are remembered. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/limits.h"
#include "net/allowance.h"
#include "tests/clock/test_clock.h"

static struct allowance *get(uint32_t serial)
{
	struct peer_identity peer = { .kind = PEER_TOKEN };
	struct allowance *a = NULL;

	memcpy(peer.claims.serial, &serial, sizeof(serial));
	assert_int_equal(allowance_get(&peer, &a), 0);
	assert_non_null(a);
	return a;
}

static void test_counts(void **state)
{
	struct allowance *a = get(1);
	struct allowance *again = get(1);
	struct allowance *other = get(2);

	(void)state;
	assert_ptr_equal(a, again);
	assert_ptr_not_equal(a, other);
	assert_true(allowance_take(a, ALLOWANCE_LEASES, 2));
	assert_true(allowance_take(again, ALLOWANCE_LEASES, 2));
	assert_false(allowance_take(a, ALLOWANCE_LEASES, 2));
	assert_true(allowance_take(a, ALLOWANCE_CONNECTIONS, 2));
	assert_true(allowance_take(other, ALLOWANCE_LEASES, 2));
	allowance_give(a, ALLOWANCE_LEASES);
	assert_int_equal(allowance_used(a, ALLOWANCE_LEASES), 1);
	allowance_add(a, ALLOWANCE_LEASES);
	allowance_add(a, ALLOWANCE_LEASES);
	assert_int_equal(allowance_used(a, ALLOWANCE_LEASES), 3);
	allowance_unref(a);
	allowance_unref(again);
	allowance_unref(other);
}

static void test_no_token(void **state)
{
	const struct peer_identity peer = { .kind = PEER_CLUSTER };
	struct allowance *a = NULL;

	(void)state;
	assert_int_equal(allowance_get(&peer, &a), 0);
	assert_null(a);
	assert_true(allowance_take(a, ALLOWANCE_LEASES, 0));
	allowance_give(a, ALLOWANCE_LEASES);
	assert_int_equal(allowance_list(a), 0);
	assert_int_equal(allowance_bytes(a, 1), 0);
	allowance_unref(allowance_ref(a));
}

static void test_listings(void **state)
{
	struct allowance *a = get(3);

	(void)state;
	for (uint32_t i = 0; i < LIMIT_TOKEN_LISTINGS; i++)
		assert_int_equal(allowance_list(a), 0);
	assert_true(allowance_list(a) > 0);
	allowance_unref(a); /* who comes again has not more */
	a = get(3);
	assert_true(allowance_list(a) <= LIMIT_TOKEN_LISTING_S * CLOCK_SECOND + 1);
	test_advance(allowance_list(a));
	assert_int_equal(allowance_list(a), 0);
	assert_true(allowance_list(a) > 0);
	allowance_unref(a);
}

static void test_bytes(void **state)
{
	struct allowance *a = get(4);

	(void)state;
	assert_int_equal(allowance_bytes(a, UINT32_MAX), 0);
	allowance_set_bandwidth(1000);
	assert_true(allowance_bytes(a, 1) > 0); /* a bound begins with nothing */
	test_advance(CLOCK_SECOND);
	assert_int_equal(allowance_bytes(a, 5000), 0);
	assert_in_range(allowance_bytes(a, 1), 3 * CLOCK_SECOND, 4 * CLOCK_SECOND + 1);
	test_advance(3 * CLOCK_SECOND);
	assert_true(allowance_bytes(a, 1) > 0);
	test_advance(2 * CLOCK_SECOND);
	assert_int_equal(allowance_bytes(a, 1), 0);
	allowance_set_bandwidth(0);
	assert_int_equal(allowance_bytes(a, UINT32_MAX), 0);
	allowance_unref(a);
}

/* Those in use stay; of the others the one that was used least recently goes. */
static void test_many_tokens(void **state)
{
	static struct allowance *all[ALLOWANCES_MAX];
	const struct peer_identity one_more = { .kind = PEER_TOKEN,
		.claims.serial = { 0xff, 0xff, 0xff } };
	struct allowance *a;

	(void)state;
	for (uint32_t i = 0; i < ALLOWANCES_MAX; i++)
		all[i] = get(1000 + i);
	assert_int_equal(allowance_get(&one_more, &a), -EMFILE);
	assert_null(a);
	while (allowance_list(all[7]) == 0)
		;
	while (allowance_list(all[8]) == 0)
		;
	allowance_unref(all[7]);
	allowance_unref(all[8]);
	assert_int_equal(allowance_get(&one_more, &a), 0);
	all[8] = get(1008);
	assert_true(allowance_list(all[8]) > 0); /* remembered */
	allowance_unref(a);
	all[7] = get(1007);
	assert_int_equal(allowance_list(all[7]), 0); /* forgotten */
	for (uint32_t i = 0; i < ALLOWANCES_MAX; i++)
		allowance_unref(all[i]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_counts),
		cmocka_unit_test(test_no_token),
		cmocka_unit_test(test_listings),
		cmocka_unit_test(test_bytes),
		cmocka_unit_test(test_many_tokens),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
