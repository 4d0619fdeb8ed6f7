/* Placement: balance, fewest moves, weights, domains, over many memberships. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include "placement/placement.h"

static uint64_t random_state = 99;

static uint64_t random_next(void)
{
	random_state ^= random_state >> 12;
	random_state ^= random_state << 25;
	random_state ^= random_state >> 27;
	return random_state * 0x2545F4914F6CDD1Dull;
}

static struct placement_worker worker(uint16_t number, uint32_t weight)
{
	return (struct placement_worker){
		.number = number, .domain = number % 5, .weight = weight, .id = random_next()
	};
}

static void workers_fill(struct placement_worker *w, uint32_t n, uint32_t weight)
{
	for (uint32_t i = 0; i < n; i++)
		w[i] = worker((uint16_t)i, weight);
}

/* Every slot has an owner with weight; every load is within 2 % of its share, and a slot. */
static void check_loads(
	const struct placement_table *t, const struct placement_worker *w, uint32_t n)
{
	static uint32_t loads[PLACEMENT_MAX];
	double sum = 0;

	memset(loads, 0, sizeof(loads));
	for (uint32_t s = 0; s < PLACEMENT_SLOTS; s++) {
		assert_true(t->slots[s].owner < PLACEMENT_MAX);
		loads[t->slots[s].owner]++;
	}
	for (uint32_t i = 0; i < n; i++)
		sum += w[i].weight;
	for (uint32_t i = 0; i < n; i++) {
		double share = PLACEMENT_SLOTS * (w[i].weight / sum);

		if (loads[w[i].number] > share * 1.02 + 1 || loads[w[i].number] < share * 0.98 - 1)
			fail_msg("worker %u of %u: %u slots, share %.1f", i, n, loads[w[i].number],
				share);
		loads[w[i].number] = 0;
	}
	for (uint32_t i = 0; i < PLACEMENT_MAX; i++)
		assert_int_equal(loads[i], 0);
}

/* Of all in one pass; valid until the next call. */
static const uint32_t *loads_of(const struct placement_table *t)
{
	static uint32_t loads[PLACEMENT_NONE + 1];

	memset(loads, 0, sizeof(loads));
	for (uint32_t s = 0; s < PLACEMENT_SLOTS; s++)
		loads[t->slots[s].owner]++;
	return loads;
}

static uint32_t load_of(const struct placement_table *t, uint16_t number)
{
	return loads_of(t)[number];
}

static void balanced(void **state)
{
	static const uint32_t counts[] = { 1, 2, 3, 7, 10, 64, 100, 1000 };
	static struct placement_worker w[1000];

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(counts); i++) {
		uint32_t n = counts[i];
		struct placement_table *t = placement_table_new();
		const uint32_t *loads;
		double most = 0;

		workers_fill(w, n, 100);
		assert_int_equal(placement_repair(t, w, n, 2), PLACEMENT_SLOTS);
		assert_int_equal(t->sequence, 1);
		check_loads(t, w, n);
		loads = loads_of(t);
		for (uint32_t k = 0; k < n; k++)
			most = max(most, (double)loads[k] * n / PLACEMENT_SLOTS);
		if (most > 1.03)
			fail_msg("%u workers: max/mean %.3f", n, most);
		for (uint32_t s = 0; s < PLACEMENT_SLOTS; s++)
			assert_int_equal(t->slots[s].previous, PLACEMENT_NONE);
		assert_int_equal(placement_repair(t, w, n, 2), 0); /* nothing to do */
		assert_int_equal(t->sequence, 1);
		free(t);
	}
}

static void deterministic(void **state)
{
	struct placement_table *a = placement_table_new();
	struct placement_table *b = placement_table_new();
	struct placement_worker w[20];

	(void)state;
	workers_fill(w, 20, 7);
	assert_int_equal(placement_repair(a, w, 20, 2), PLACEMENT_SLOTS);
	assert_int_equal(placement_repair(b, w, 20, 2), PLACEMENT_SLOTS);
	assert_memory_equal(a, b, sizeof(*a));
	free(a);
	free(b);
}

/* A drained worker's slots go to workers that are up. One that is down keeps its slots and receives none until it is back. */
static void down_receives_nothing(void **state)
{
	struct placement_table *t = placement_table_new();
	struct placement_worker w[4];
	uint32_t before;

	(void)state;
	workers_fill(w, 4, 100);
	assert_int_equal(placement_repair(t, w, 4, 2), PLACEMENT_SLOTS);
	before = load_of(t, 1);
	w[1].down = true;
	w[2].weight = 0;
	assert_true(placement_repair(t, w, 4, 2) > 0);
	assert_int_equal(load_of(t, 1), before);
	assert_int_equal(load_of(t, 2), 0);
	assert_in_range(load_of(t, 0), (PLACEMENT_SLOTS - before) * 49 / 100,
		(PLACEMENT_SLOTS - before) * 51 / 100);
	assert_int_equal(placement_repair(t, w, 4, 2), 0); /* nothing to do */
	w[1].down = false;
	assert_true(placement_repair(t, w, 4, 2) > 0);
	w[2] = w[3];
	check_loads(t, w, 3);
	/* When all are down, each counts. */
	for (uint32_t i = 0; i < 3; i++)
		w[i].down = true;
	w[2].weight = 0;
	assert_true(placement_repair(t, w, 3, 2) > 0);
	check_loads(t, w, 2);
	free(t);
}

/* A lost worker's slots move, all of them and no others. */
static void lost(void **state)
{
	static const uint32_t counts[] = { 2, 3, 10, 100, 1000 };
	static struct placement_worker w[1000];

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(counts); i++) {
		uint32_t n = counts[i];
		struct placement_table *t = placement_table_new();
		struct placement_table before;
		uint16_t gone = (uint16_t)(n / 2);
		bool drained = i % 2;

		workers_fill(w, n, 100);
		assert_int_equal(placement_repair(t, w, n, 0), PLACEMENT_SLOTS);
		before = *t;
		if (drained)
			w[gone].weight = 0;
		else
			w[gone] = w[n - 1];
		assert_int_equal(
			placement_repair(t, w, drained ? n : n - 1, 0), load_of(&before, gone));
		assert_int_equal(t->sequence, 2);
		check_loads(t, w, drained ? n : n - 1);
		for (uint32_t s = 0; s < PLACEMENT_SLOTS; s++) {
			bool moved = before.slots[s].owner == gone;

			if (!moved)
				assert_int_equal(t->slots[s].owner, before.slots[s].owner);
			assert_int_equal(t->slots[s].previous, moved ? gone : PLACEMENT_NONE);
		}
		free(t);
	}
}

/* A newcomer gets its share, less the 2 %, and nothing else moves. */
static void joined(void **state)
{
	static const uint32_t counts[] = { 1, 2, 3, 10, 100, 1000 };
	static const uint32_t weights[] = { 100, 10, 350 };
	static struct placement_worker w[1001];
	static struct placement_table before;
	struct placement_table *empty = placement_table_new();
	struct placement_table *t = placement_table_new();

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(counts) * ARRAY_SIZE(weights); i++) {
		uint32_t n = counts[i / ARRAY_SIZE(weights)];
		uint32_t weight = weights[i % ARRAY_SIZE(weights)];
		double share = PLACEMENT_SLOTS * (weight / (n * 100.0 + weight));
		int moved;

		if (i % ARRAY_SIZE(weights) == 0) {
			before = *empty;
			workers_fill(w, n, 100);
			assert_int_equal(placement_repair(&before, w, n, 0), PLACEMENT_SLOTS);
		}
		*t = before;
		w[n] = worker((uint16_t)n, weight);
		moved = placement_repair(t, w, n + 1, 0);
		assert_int_equal(moved, load_of(t, (uint16_t)n));
		if (moved > share + 1 || moved < share * 0.98 - 1)
			fail_msg("%u workers, newcomer of %u: %d moved, share %.1f", n, weight,
				moved, share);
		check_loads(t, w, n + 1);
		for (uint32_t s = 0; s < PLACEMENT_SLOTS; s++)
			if (t->slots[s].owner != before.slots[s].owner) {
				assert_int_equal(t->slots[s].owner, n);
				assert_int_equal(t->slots[s].previous, before.slots[s].owner);
			}
	}
	free(empty);
	free(t);
}

/* A worker that comes back gets what it had, and whoever dies leaves his slots to who had them before. */
static void came_back(void **state)
{
	static struct placement_worker w[20];
	struct placement_table *t = placement_table_new();
	struct placement_table *before = placement_table_new();
	uint32_t again = 0;
	uint32_t had;

	(void)state;
	workers_fill(w, 20, 3);
	assert_true(placement_repair(t, w, 20, 2) > 0);
	had = load_of(t, 7);
	*before = *t;
	w[7].weight = 0;
	assert_int_equal(placement_repair(t, w, 20, 2), had);
	w[7].weight = 3;
	assert_true(placement_repair(t, w, 20, 2) > 0);
	check_loads(t, w, 20);
	for (uint32_t s = 0; s < PLACEMENT_SLOTS; s++)
		again += t->slots[s].owner == 7 && before->slots[s].owner == 7;
	assert_true(again + 5 >= load_of(t, 7)); /* a bound may cost one or the other */
	free(before);
	free(t);
}

static void weights(void **state)
{
	struct placement_table *t = placement_table_new();
	struct placement_worker w[4];

	(void)state;
	workers_fill(w, 4, 0);
	w[0].weight = 1;
	w[1].weight = 2;
	w[2].weight = 5;
	assert_int_equal(placement_repair(t, w, 4, 0), PLACEMENT_SLOTS);
	check_loads(t, w, 4);
	assert_int_equal(load_of(t, 3), 0);
	w[0].weight = 8; /* a changed weight: only to the one that grew */
	assert_in_range(placement_repair(t, w, 4, 0), 1, PLACEMENT_SLOTS / 2);
	check_loads(t, w, 4);
	free(t);
}

/* The least that must move: slots without an owner and above the bounds, or what is missing
 * below them. */
static uint32_t fewest_moves(
	const struct placement_table *t, const struct placement_worker *w, uint32_t n)
{
	const uint32_t *loads = loads_of(t);
	double sum = 0;
	uint32_t owned = 0;
	uint32_t above = 0;
	uint32_t missing = 0;

	for (uint32_t i = 0; i < n; i++)
		sum += w[i].weight;
	for (uint32_t i = 0; i < n; i++) {
		double share = PLACEMENT_SLOTS * (w[i].weight / sum);
		uint32_t load = loads[w[i].number];
		uint32_t low = (uint32_t)(share * 0.98);
		uint32_t high = (uint32_t)(share * 1.02) + 1;

		owned += load;
		above += load > high ? load - high : 0;
		missing += load < low ? low - load : 0;
	}
	return max(PLACEMENT_SLOTS - owned + above, missing);
}

/* 300 random changes of membership and weight: always balanced, with the fewest moves, or two more for each change. */
static void churn(void **state)
{
	struct placement_table *t = placement_table_new();
	static struct placement_worker w[64];
	static struct placement_table before;
	uint32_t n = 0;
	uint16_t next = 0;

	(void)state;
	for (int i = 0; i < 300; i++) {
		uint64_t roll = random_next() % 10;
		uint32_t changes = roll == 0 ? 5 : 1;
		uint32_t fewest;
		int moved;

		for (uint32_t c = 0; c < changes; c++) {
			if (n < 2 || (n < 60 && random_next() % 2))
				w[n++] = worker(next++, 50 + (uint32_t)(random_next() % 200));
			else
				w[random_next() % n] = w[n - 1], n--;
		}
		before = *t;
		moved = placement_repair(t, w, n, 0);
		fewest = fewest_moves(&before, w, n);
		assert_in_range(moved, fewest, fewest + 2 * changes);
		assert_int_equal(t->sequence, before.sequence + (moved > 0));
		check_loads(t, w, n);
	}
	free(t);
}

static void check_replicas(
	const struct placement_table *t, uint32_t replicas, uint32_t n, uint32_t domains)
{
	for (uint32_t s = 0; s < PLACEMENT_SLOTS; s++) {
		const struct placement_slot *slot = &t->slots[s];
		uint32_t expected = min(replicas, n - 1);

		for (uint32_t i = 0; i < 2; i++) {
			if (i >= expected) {
				assert_int_equal(slot->replicas[i], PLACEMENT_NONE);
				continue;
			}
			assert_true(slot->replicas[i] < n);
			assert_int_not_equal(slot->replicas[i], slot->owner);
			if (domains > i + 1)
				assert_int_not_equal(
					slot->replicas[i] % domains, slot->owner % domains);
		}
		if (expected == 2) {
			assert_int_not_equal(slot->replicas[0], slot->replicas[1]);
			if (domains > 2)
				assert_int_not_equal(
					slot->replicas[0] % domains, slot->replicas[1] % domains);
		}
	}
}

static void replicas(void **state)
{
	struct placement_worker w[12];

	(void)state;
	for (uint32_t n = 1; n <= 12; n++) {
		for (uint32_t domains = 1; domains <= min(n, 4u); domains++) {
			for (uint32_t r = 0; r <= 2; r++) {
				struct placement_table *t = placement_table_new();

				workers_fill(w, n, 100);
				for (uint32_t i = 0; i < n; i++)
					w[i].domain = (uint16_t)(i % domains);
				assert_int_equal(placement_repair(t, w, n, r), PLACEMENT_SLOTS);
				check_replicas(t, r, n, domains);
				free(t);
			}
		}
	}
}

/* The replicas' load is spread too: a deputy does not inherit all of a lost worker's slots. */
static void replicas_spread(void **state)
{
	struct placement_table *t = placement_table_new();
	static struct placement_worker w[50];
	uint32_t counts[50] = { 0 };

	(void)state;
	workers_fill(w, 50, 100);
	assert_int_equal(placement_repair(t, w, 50, 2), PLACEMENT_SLOTS);
	for (uint32_t s = 0; s < PLACEMENT_SLOTS; s++)
		for (int i = 0; i < 2; i++)
			counts[t->slots[s].replicas[i]]++;
	for (uint32_t i = 0; i < 50; i++)
		assert_in_range(counts[i], 2 * PLACEMENT_SLOTS / 50 * 8 / 10,
			2 * PLACEMENT_SLOTS / 50 * 12 / 10);
	free(t);
}

static void refused(void **state)
{
	struct placement_table *t = placement_table_new();
	struct placement_worker w[2];

	(void)state;
	workers_fill(w, 2, 1);
	assert_int_equal(placement_repair(t, w, 0, 0), -EINVAL);
	assert_int_equal(placement_repair(t, w, 2, 3), -EINVAL);
	assert_int_equal(placement_repair(t, w, PLACEMENT_MAX + 1, 0), -EINVAL);
	w[1].number = 0;
	assert_int_equal(placement_repair(t, w, 2, 0), -EINVAL);
	w[1].number = PLACEMENT_MAX;
	assert_int_equal(placement_repair(t, w, 2, 0), -EINVAL);
	workers_fill(w, 2, 0);
	assert_int_equal(placement_repair(t, w, 2, 0), -EINVAL);
	assert_int_equal(t->sequence, 0);
	free(t);
}

static void versions(void **state)
{
	struct placement_table *a = placement_table_new();
	struct placement_table *b = placement_table_new();

	(void)state;
	assert_false(placement_newer(a, b));
	a->sequence = 5;
	assert_true(placement_newer(a, b));
	assert_false(placement_newer(b, a));
	b->epoch = 1; /* a later master, whatever its sequence */
	assert_true(placement_newer(b, a));
	assert_false(placement_newer(a, b));
	free(a);
	free(b);
}

/* The chunks of one volume go to slots of their own, and to every worker alike. */
static void volume_spreads(void **state)
{
	struct placement_table *t = placement_table_new();
	struct volume_id volume = { { 1, 2, 3 } };
	static uint8_t seen[PLACEMENT_SLOTS];
	struct placement_worker w[10];
	uint32_t counts[10] = { 0 };
	uint64_t hash = placement_volume_hash(&volume);

	(void)state;
	workers_fill(w, 10, 1);
	assert_int_equal(placement_repair(t, w, 10, 0), PLACEMENT_SLOTS);
	for (uint64_t c = 0; c < PLACEMENT_SLOTS; c++) {
		uint32_t s = placement_slot_of(hash, c);

		assert_int_equal(seen[s]++, 0);
		if (c < 10000)
			counts[t->slots[s].owner]++;
	}
	for (int i = 0; i < 10; i++)
		assert_in_range(counts[i], 900, 1100);
	volume.bytes[15] ^= 1;
	assert_int_not_equal(placement_volume_hash(&volume), hash);
	free(t);
}

/* As many as there may be, and one more comes. */
static void most(void **state)
{
	static struct placement_worker w[PLACEMENT_MAX];
	struct placement_table *t = placement_table_new();

	(void)state;
	for (uint32_t i = 0; i < PLACEMENT_MAX; i++)
		w[i] = worker((uint16_t)i, 1000 + i);
	assert_int_equal(placement_repair(t, w, PLACEMENT_MAX - 1, 0), PLACEMENT_SLOTS);
	assert_true(placement_repair(t, w, PLACEMENT_MAX, 0) > 0);
	free(t);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(balanced),
		cmocka_unit_test(deterministic),
		cmocka_unit_test(down_receives_nothing),
		cmocka_unit_test(lost),
		cmocka_unit_test(joined),
		cmocka_unit_test(came_back),
		cmocka_unit_test(weights),
		cmocka_unit_test(churn),
		cmocka_unit_test(replicas),
		cmocka_unit_test(replicas_spread),
		cmocka_unit_test(refused),
		cmocka_unit_test(versions),
		cmocka_unit_test(volume_spreads),
		cmocka_unit_test(most),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
