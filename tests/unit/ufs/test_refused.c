/* The negative cache of an origin: what it remembers, for how long, and how many objects. */
#include "ufs/refused.h"
#include "base/arena.h"
#include "base/clock.h"
#include "base/hash.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <errno.h>
#include <cmocka.h>

#define HOUR (3600 * CLOCK_SECOND)

static uint64_t object_of(uint32_t i)
{
	return hash_xxh3(&i, sizeof(i), 0);
}

static void note(struct refused *refused, uint32_t i, uint64_t now)
{
	const struct refusal what = {
		.object = object_of(i), .until_ns = now + HOUR, .times = 1, .status = -ESTALE
	};

	refused_note(refused, &what, now);
}

static uint32_t times_of(const struct refused *refused, uint32_t i, uint64_t now)
{
	const struct refusal *row = refused_find(refused, object_of(i), now);

	return row ? row->times : 0;
}

static uint64_t arena_bytes(void)
{
	struct arena_use use;

	arena_use(ARENA_TABLES, &use);
	return use.used;
}

static void remembers(void **state)
{
	struct refused refused = { 0 };

	(void)state;
	assert_null(refused_find(&refused, object_of(1), 1));
	refused_drop(&refused, object_of(1));
	note(&refused, 1, 1);
	note(&refused, 1, 7);
	note(&refused, 2, 7);
	assert_int_equal(times_of(&refused, 1, 7), 2);
	assert_int_equal(refused_find(&refused, object_of(1), 7)->since_ns, 1);
	assert_int_equal(times_of(&refused, 2, 7), 1);
	assert_int_equal(times_of(&refused, 3, 7), 0);
	refused_drop(&refused, object_of(2));
	assert_int_equal(times_of(&refused, 2, 7), 0);
	/* Its time is over: it begins again. */
	assert_int_equal(times_of(&refused, 1, 7 + HOUR), 0);
	note(&refused, 1, 8 + HOUR);
	assert_int_equal(times_of(&refused, 1, 8 + HOUR), 1);
	refused_release(&refused);
	assert_int_equal(arena_bytes(), 0);
	note(&refused, 1, 1);
	assert_int_equal(times_of(&refused, 1, 1), 1);
	refused_release(&refused);
}

/* It grows with the objects, none of which is lost, up to its bound, and is charged to the arena. */
static void is_bounded(void **state)
{
	struct refused refused = { 0 };
	uint32_t kept = 0;

	(void)state;
	for (uint32_t i = 0; i < 4096; i++) {
		note(&refused, i, 1);
		assert_int_equal(times_of(&refused, i, 1), 1);
	}
	for (uint32_t i = 0; i < 4096; i++)
		kept += times_of(&refused, i, 1);
	assert_int_equal(kept, 4096);
	for (uint32_t i = 0; i < 4 * REFUSED_MAX; i++) {
		note(&refused, i, 2);
		assert_true(times_of(&refused, i, 2) > 0); /* the newest is always there */
	}
	assert_int_equal(refused.sets * REFUSED_WAYS, REFUSED_MAX);
	assert_int_equal(arena_bytes(), (uint64_t)REFUSED_MAX * sizeof(struct refusal));
	refused_release(&refused);
	assert_int_equal(arena_bytes(), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(remembers),
		cmocka_unit_test(is_bounded),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
