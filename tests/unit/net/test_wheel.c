/* The timing wheel: never early, at most a tick late, whatever the distance and the gaps between
 * looks. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdlib.h>
#include "net/wheel.h"

struct item {
	struct wheel_entry entry;
	uint64_t deadline_ns;
	int fired;
};

static void fire(struct wheel *wheel, uint64_t now, uint64_t before)
{
	struct list expired = LIST_INIT(expired);
	struct list *node;

	wheel_advance(wheel, now, &expired);
	while ((node = list_pop_front(&expired)) != NULL) {
		struct item *item = container_of(
			list_entry(node, struct wheel_entry, link), struct item, entry);

		assert_true(item->deadline_ns <= now);
		/* It was not due at the look before. */
		assert_true(item->deadline_ns + WHEEL_TICK_NS >= before);
		item->fired++;
	}
}

static void test_random(void **state)
{
	enum { N = 2000 };
	static struct item items[N];
	uint64_t now = 123456789012345;
	uint64_t before;
	struct wheel wheel;

	(void)state;
	srand(1);
	wheel_init(&wheel, now);
	assert_true(wheel_next_ns(&wheel) == UINT64_MAX);
	for (int i = 0; i < N; i++) {
		/* From past to 10 turns of the wheel. */
		items[i].deadline_ns = now + (uint64_t)rand() % (10 * WHEEL_SLOTS * WHEEL_TICK_NS);
		wheel_add(&wheel, &items[i].entry, items[i].deadline_ns);
		if (i % 10 == 0)
			wheel_remove(&items[i].entry);
	}
	while (wheel_next_ns(&wheel) != UINT64_MAX) {
		uint64_t next = wheel_next_ns(&wheel);

		for (int i = 0; i < N; i++)
			if (i % 10 && !items[i].fired)
				assert_true(next <= items[i].deadline_ns + WHEEL_TICK_NS);
		before = now;
		now = next > now ? next : now;
		if (rand() % 4 == 0)
			now += (uint64_t)rand() % (WHEEL_SLOTS * WHEEL_TICK_NS / 64);
		fire(&wheel, now, before);
	}
	for (int i = 0; i < N; i++)
		assert_int_equal(items[i].fired, i % 10 ? 1 : 0);
}

static void test_long_rest(void **state)
{
	uint64_t now = 1000 * WHEEL_TICK_NS;
	struct item item = { .deadline_ns = now + 3 * WHEEL_TICK_NS };
	struct item past = { .deadline_ns = 5 };
	struct wheel wheel;

	(void)state;
	wheel_init(&wheel, now);
	wheel_add(&wheel, &item.entry, item.deadline_ns);
	fire(&wheel, now + 2 * WHEEL_TICK_NS, now);
	assert_int_equal(item.fired, 0);
	fire(&wheel, now + 100000 * WHEEL_TICK_NS, 0); /* many turns without a look */
	assert_int_equal(item.fired, 1);
	wheel_add(&wheel, &past.entry, past.deadline_ns);
	fire(&wheel, now + 100001 * WHEEL_TICK_NS, 0);
	assert_int_equal(past.fired, 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_random),
		cmocka_unit_test(test_long_rest),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
