/* Duties and routes: who ends a request, who copies, who sends away, and that every way ends. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include "placement/duty.h"

#define NONE PLACEMENT_NONE

/* Owner 1, previous 2, replicas 3 and 4; all up. */
static struct duty_ask ask_of(uint16_t self)
{
	return (struct duty_ask){
		.self = self,
		.slot = { .owner = 1, .previous = 2, .replicas = { 3, 4 } },
		.up = { true, true, { true, true } },
		.copies = 1,
	};
}

static void serving(void **state)
{
	struct duty_ask a = ask_of(1);

	(void)state;
	assert_int_equal(duty_serves(&a.slot, &a.up), 1);
	a.up.owner_up = false;
	assert_int_equal(duty_serves(&a.slot, &a.up), 3);
	a.up.replica_up[0] = false;
	assert_int_equal(duty_serves(&a.slot, &a.up), 4);
	a.up.replica_up[1] = false;
	assert_int_equal(duty_serves(&a.slot, &a.up), 2);
	a.up.previous_up = false;
	assert_int_equal(duty_serves(&a.slot, &a.up), NONE);
	a.slot = (struct placement_slot){ NONE, NONE, { NONE, NONE } };
	a.up = (struct duty_states){ true, true, { true, true } };
	assert_int_equal(duty_serves(&a.slot, &a.up), NONE);
}

static void owners(void **state)
{
	struct duty_ask a = ask_of(1);
	struct duty d = duty_of(&a);

	(void)state;
	assert_int_equal(d.kind, DUTY_OWNER);
	assert_true(d.owned && !d.moved);
	a.up.owner_up = false; /* the master takes it for down */
	d = duty_of(&a);
	assert_int_equal(d.kind, DUTY_OWNER);
	assert_int_equal(d.serves, 1);
	/* A deputy keeps copies. */
	a = ask_of(3);
	a.up.owner_up = false;
	d = duty_of(&a);
	assert_int_equal(d.kind, DUTY_OWNER);
	assert_true(!d.owned && !d.moved);
	/* Nobody is up, or known. */
	a = ask_of(9);
	a.up = (struct duty_states){ 0 };
	assert_int_equal(duty_of(&a).kind, DUTY_OWNER);
	a = ask_of(NONE);
	a.slot = (struct placement_slot){ NONE, NONE, { NONE, NONE } };
	d = duty_of(&a);
	assert_int_equal(d.kind, DUTY_OWNER);
	assert_false(d.owned);
	/* No replica is not a replica without a number. */
	a = ask_of(NONE);
	a.slot = (struct placement_slot){ 1, NONE, { NONE, NONE } };
	a.hot = true;
	assert_int_equal(duty_of(&a).kind, DUTY_NONE);
	/* Whoever gets the last request ends it. */
	a = ask_of(9);
	a.last = true;
	d = duty_of(&a);
	assert_int_equal(d.kind, DUTY_OWNER);
	assert_true(d.moved && !d.owned);
	a.peer = true;
	assert_int_equal(duty_of(&a).kind, DUTY_OWNER);
}

static void copies(void **state)
{
	struct duty_ask a = ask_of(9);
	struct duty d;

	(void)state;
	assert_int_equal(duty_of(&a).kind, DUTY_NONE);
	assert_int_equal(duty_of(&a).serves, 1);
	a.whole = true;
	d = duty_of(&a);
	assert_int_equal(d.kind, DUTY_COPY);
	assert_int_equal(d.serves, 1);
	assert_true(d.moved);
	a.peer = true; /* who keeps a copy is not sent to others that do */
	assert_int_equal(duty_of(&a).kind, DUTY_NONE);
	a = ask_of(3);
	assert_int_equal(duty_of(&a).kind, DUTY_NONE);
	a.hot = true;
	assert_int_equal(duty_of(&a).kind, DUTY_COPY);
	a.hot = false;
	a.copies = 2;
	assert_int_equal(duty_of(&a).kind, DUTY_COPY);
	a.self = 4;
	assert_int_equal(duty_of(&a).kind, DUTY_NONE);
	a.copies = 3;
	assert_int_equal(duty_of(&a).kind, DUTY_COPY);
	a.self = 2; /* the previous owner keeps none */
	assert_int_equal(duty_of(&a).kind, DUTY_NONE);
	a = ask_of(NONE);
	assert_int_equal(duty_of(&a).kind, DUTY_NONE);
}

/* ---- routes ---------------------------------------------------------------------------------- */

static const uint16_t four[] = { 1, 3, 4, 2 };

static void to_the_owner(void **state)
{
	struct route r;

	(void)state;
	route_begin(&r, four, 4, 1, NONE);
	assert_int_equal(r.to, 1);
	assert_false(r.last);
	route_next(&r, ROUTE_MOVED, 7);
	assert_int_equal(r.to, 7);
	assert_false(r.last);
	/* 7 does not answer: the owner ends it, and then its deputies do. */
	route_next(&r, ROUTE_DEAD, 0);
	assert_int_equal(r.to, 1);
	assert_true(r.last);
	route_next(&r, ROUTE_DEAD, 0);
	assert_int_equal(r.to, 3);
	assert_true(r.last);
	route_next(&r, ROUTE_DEAD, 0);
	route_next(&r, ROUTE_DEAD, 0);
	assert_int_equal(r.to, 2);
	route_next(&r, ROUTE_DEAD, 0);
	assert_int_equal(r.to, NONE);
}

static void deputies(void **state)
{
	static const uint16_t of_a_dead_owner[] = { 3, 4, 2 };
	struct route r;

	(void)state;
	route_begin(&r, of_a_dead_owner, 3, 1, NONE);
	assert_int_equal(r.to, 3);
	assert_true(r.last);
	route_begin(&r, NULL, 0, NONE, NONE);
	assert_int_equal(r.to, NONE);
	route_begin(&r, NULL, 0, NONE, 5);
	assert_int_equal(r.to, 5);
}

static void to_itself(void **state)
{
	struct route r;

	(void)state;
	route_begin(&r, four, 4, 1, 7);
	route_next(&r, ROUTE_MOVED, 7);
	assert_int_equal(r.to, 7);
	assert_true(r.last);
	/* "Ask me" is nobody's answer. */
	route_begin(&r, four, 4, 1, 7);
	route_next(&r, ROUTE_MOVED, 1);
	assert_int_equal(r.to, 1);
	assert_true(r.last);
	/* Nor is one that is known to be dead. */
	route_begin(&r, four, 4, 1, 7);
	route_next(&r, ROUTE_MOVED, 8);
	route_next(&r, ROUTE_DEAD, 0);
	assert_int_equal(r.to, 1);
}

/* One that is named by an owner with a herd has it, or the owner names another or ends the request; it
 * ends it when it was followed often enough. */
static void herds(void **state)
{
	static const enum route_outcome misses[] = { ROUTE_MISS, ROUTE_DEAD };
	struct route r;

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(misses); i++) {
		route_begin(&r, four, 4, 1, 7);
		route_next(&r, ROUTE_HERD, 9);
		assert_int_equal(r.to, 9);
		assert_true(r.cached && !r.last);
		route_next(&r, misses[i], 0);
		for (uint16_t hop = 1; hop < ROUTE_HOPS; hop++) {
			assert_int_equal(r.to, 1);
			assert_true(!r.last && !r.cached);
			route_next(&r, ROUTE_HERD, 9 + hop);
			assert_int_equal(r.to, 9 + hop);
			assert_true(r.cached && !r.last);
			route_next(&r, misses[i], 0);
		}
		assert_int_equal(r.to, 1);
		assert_true(r.last && !r.cached);
		route_next(&r, ROUTE_DEAD, 0);
		assert_int_equal(r.to, 3);
	}
	/* A worker that is named to itself has it not. */
	route_begin(&r, four, 4, 1, 7);
	route_next(&r, ROUTE_HERD, 7);
	assert_int_equal(r.to, 1);
	assert_true(r.last && !r.cached);
}

/* Two that send to each other. */
static void circles(void **state)
{
	struct route r;
	uint32_t asked = 1;

	(void)state;
	for (route_begin(&r, four, 4, 1, NONE); !r.last; asked++)
		route_next(&r, ROUTE_MOVED, r.to == 8 ? 9 : 8);
	assert_int_equal(asked, 1 + ROUTE_HOPS + 1);
	assert_int_equal(r.to, 1);
}

/* Whatever is answered, the way ends, and nobody that is dead is asked twice. */
static void every_way_ends(void **state)
{
	(void)state;
	for (uint32_t seed = 0; seed < 200000; seed++) {
		uint32_t x = seed * 2654435761u + 1;
		struct route r;
		uint32_t asked = 0;
		uint32_t dead = 0;

		route_begin(&r, four, 1 + seed % 4, 1, (uint16_t)(seed & 1 ? 7 : NONE));
		while (r.to != r.self) {
			bool dies;

			assert_false(dead >> r.to & 1);
			assert_true(++asked <= 2 * ROUTE_HOPS + 2 * ROUTE_CANDIDATES);
			x = x * 1664525u + 1013904223u;
			dies = x >> 30 == 0 || (r.last && x >> 28 < 12);
			if (!dies && r.last)
				break; /* ended */
			if (dies)
				dead |= 1u << r.to;
			route_next(&r,
				dies          ? ROUTE_DEAD
				: r.cached    ? ROUTE_MISS
				: x >> 24 & 1 ? ROUTE_HERD
					      : ROUTE_MOVED,
				(uint16_t)(x >> 20 & 7));
		}
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(serving),
		cmocka_unit_test(owners),
		cmocka_unit_test(copies),
		cmocka_unit_test(to_the_owner),
		cmocka_unit_test(deputies),
		cmocka_unit_test(to_itself),
		cmocka_unit_test(herds),
		cmocka_unit_test(circles),
		cmocka_unit_test(every_way_ends),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
