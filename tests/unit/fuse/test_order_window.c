/* The window of an order: exact, bounded, and never stuck, however a job reads. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "base/layout.h"
#include "fuse/order/order_window.h"

#define FILES 8u
#define COUNT 20000u

struct run {
	struct order_window w;
	struct order_asked ring;
	uint64_t passed[COUNT / 64 + 1];
	uint32_t asked[COUNT]; /* blocks */
	uint64_t total;
	uint64_t reads;
	uint32_t switches;
	bool was_read[COUNT];
};

static int setup(void **state)
{
	struct run *run = calloc(1, sizeof(*run));

	order_window_init(&run->w, COUNT, &run->ring, run->passed);
	order_window_limit(&run->w, FILES, UINT64_MAX, 1);
	*state = run;
	return 0;
}

static int teardown(void **state)
{
	free(*state);
	return 0;
}

/* Every sample has `blocks`; all that may be is asked for. */
static void fill(struct run *run, uint32_t blocks)
{
	while (order_window_room(&run->w)) {
		uint32_t done;
		uint64_t place = order_window_next(&run->w, &done);

		if (done < blocks) {
			run->asked[place] += blocks - done;
			run->total++;
			order_window_ask(&run->w, blocks - done);
		}
		order_window_pass(&run->w);
	}
	assert_true(run->w.files <= run->w.max_files);
}

static void read_one(struct run *run, uint64_t place)
{
	enum order_follows follows = order_window_read(&run->w, place, 1, 1);

	run->reads++;
	run->was_read[place] = true;
	if (follows == ORDER_FOLLOWS || follows == ORDER_FOLLOWS_NOT)
		run->switches += order_window_judge(&run->w, follows == ORDER_FOLLOWS);
	fill(run, 1);
}

static void test_in_order(void **state)
{
	struct run *run = *state;

	fill(run, 1);
	assert_int_equal(run->total, FILES);
	for (uint64_t i = 0; i < COUNT; i++) {
		assert_int_equal(run->asked[i], 1); /* before it is read, and once */
		read_one(run, i);
		assert_int_equal(run->total, min(i + 1 + FILES, (uint64_t)COUNT));
	}
	assert_int_equal(run->w.files, 0);
	assert_int_equal(run->w.bytes, 0);
}

/* Workers of a data loader, each of which reads a batch. Returns how many places were read before they
 * were asked for; none is asked for twice or after it was read. */
static uint32_t read_batches(struct run *run, uint64_t workers, uint64_t batch)
{
	uint64_t step = workers * batch;
	uint32_t late = 0;

	order_window_limit(&run->w, 2048, UINT64_MAX, 1);
	fill(run, 1);
	for (uint64_t round = 0; round + step <= COUNT; round += step)
		for (uint64_t i = 0; i < batch; i++)
			for (uint64_t worker = 0; worker < workers; worker++) {
				uint64_t place = round + worker * batch + i;

				late += run->asked[place] == 0;
				read_one(run, place);
			}
	for (uint64_t i = 0; i < COUNT; i++)
		assert_true(run->asked[i] <= 1);
	return late;
}

/* Only what is behind the first window is read before it was asked for. */
static void test_batches(void **state)
{
	struct run *run = *state;

	assert_true(read_batches(run, 8, 64) < 8 * 64 - ORDER_START_FILES);
	assert_int_equal(run->switches, 0);
}

/* 2,048 places at once, of which the first window has an eighth: it grows, and stays on. */
static void test_many_batches(void **state)
{
	struct run *run = *state;

	assert_true(read_batches(run, 8, 256) < 8 * 256 - ORDER_START_FILES);
	assert_int_equal(run->switches, 0);
	assert_true(run->w.grown >= 2048 - ORDER_START_FILES);
}

/* Eight orders begin with what one of them would. */
static void test_start(void **state)
{
	struct run *run = *state;

	order_window_limit(&run->w, 8192, UINT64_MAX, 8);
	order_window_start(&run->w, 8);
	fill(run, 1);
	assert_int_equal(run->total, ORDER_START_FILES / 8);
	order_window_start(&run->w, 64);
	assert_int_equal(run->w.start_files, ORDER_START_LEAST);
}

/* 7919 and COUNT have no common factor. */
static uint64_t elsewhere(uint64_t i)
{
	return (i + 1) * 7919 % COUNT;
}

/* A job that reads in another order than it announced: a first window and what ORDER_JUDGED reads moved
 * it by are asked for in vain, and no more. Then it follows the order, and the order is followed. */
static void test_wrong(void **state)
{
	struct run *run = *state;
	uint64_t place;

	order_window_limit(&run->w, 2048, UINT64_MAX, 1);
	fill(run, 1);
	assert_int_equal(run->total, ORDER_START_FILES);
	for (uint64_t i = 0; i + 1 < ORDER_JUDGED; i++)
		read_one(run, elsewhere(i));
	assert_false(run->w.off);
	for (uint64_t i = ORDER_JUDGED - 1; i < 2000; i++)
		read_one(run, elsewhere(i));
	assert_true(run->w.off);
	assert_int_equal(run->switches, 1);
	assert_true(run->w.hits < run->w.reads / ORDER_FEW);
	assert_true(run->total <= ORDER_START_FILES + 2 * ORDER_JUDGED);
	assert_int_equal(run->w.files, 0);
	place = 4000;
	for (uint64_t i = 0; i < ORDER_JUDGED; i++)
		read_one(run, place + i);
	assert_false(run->w.off);
	assert_int_equal(run->switches, 2);
	for (uint64_t i = place + ORDER_JUDGED; i < COUNT; i++) {
		assert_true(run->asked[i] > 0 || run->was_read[i]);
		read_one(run, i);
	}
	assert_int_equal(run->switches, 2);
}

/* A place that is read twice is judged once. One that is just behind another follows it. */
static void test_read_again(void **state)
{
	struct run *run = *state;

	fill(run, 1);
	for (uint32_t again = 0; again < 2; again++) {
		read_one(run, 0);
		read_one(run, FILES - 1);
		read_one(run, 300);
	}
	assert_int_equal(run->w.reads, 3);
	assert_int_equal(run->w.hits, 2);
}

/* What the kernel has is never heard of: nothing of 0..1999, then every place. */
static void test_page_cache(void **state)
{
	struct run *run = *state;
	uint32_t late = 0;

	fill(run, 1);
	for (uint64_t i = 2000; i < 6000; i++) {
		late += run->asked[i] == 0;
		read_one(run, i);
	}
	assert_true(late <= 2 + FILES); /* until the first window is forgotten */
	assert_int_equal(run->asked[6000], 1);
}

/* A file that was read before it was asked for: one that was asked for is in the page cache, then. */
static void test_unexpected(void **state)
{
	struct run *run = *state;

	fill(run, 1);
	assert_int_equal(run->w.files, FILES);
	assert_int_equal(order_window_read(&run->w, FILES + 4, 1, 1), ORDER_FOLLOWS_NOT);
	assert_int_equal(run->w.files, FILES);
	assert_int_equal(order_window_read(&run->w, FILES + 5, 1, 1), ORDER_FOLLOWS);
	assert_int_equal(run->w.files, FILES - 1);
	assert_true(order_window_room(&run->w));
}

/* Every other file is in the page cache: what is not still comes before it is read. */
static void test_half_cached(void **state)
{
	struct run *run = *state;
	uint32_t late = 0;

	fill(run, 1);
	for (uint64_t i = 1; i < COUNT; i += 2) {
		late += run->asked[i] == 0;
		read_one(run, i);
	}
	assert_true(late < COUNT / 40);
}

/* A job that resumes far on: it is followed from its second read on, and what it left is forgotten. */
static void test_jump(void **state)
{
	struct run *run = *state;

	fill(run, 1);
	for (uint64_t i = 10000; i < 10000 + 4 * FILES; i++)
		read_one(run, i);
	for (uint64_t i = 10000 + 2 * FILES; i < 10000 + 5 * FILES; i++)
		assert_int_equal(run->asked[i], 1);
	assert_int_equal(run->asked[5000], 0);
	assert_int_equal(run->asked[FILES], 0);
}

/* Workers whose batches are further apart than the window is long: of each batch all is asked for before it is read, but for what
 * shows that it is read. */
static void test_far_apart(void **state)
{
	struct run *run = *state;
	const uint64_t workers = 16;
	const uint64_t batch = 1000;
	uint32_t late = 0;

	order_window_limit(&run->w, 128, UINT64_MAX, 1);
	fill(run, 1);
	for (uint64_t i = 0; i < batch; i++)
		for (uint64_t worker = 0; worker < workers; worker++) {
			uint64_t place = worker * batch + i;

			late += run->asked[place] == 0;
			read_one(run, place);
		}
	assert_true(late <= 4 * workers);
	for (uint64_t i = 0; i < workers * batch; i++)
		assert_true(run->asked[i] <= 1);
	assert_int_equal(run->w.n_runs, 1); /* each but the last has become part of the next */
}

/* More places are read at once than there are runs: those that are read go on. */
static void test_many_runs(void **state)
{
	struct run *run = *state;

	order_window_limit(&run->w, ORDER_AHEAD, UINT64_MAX, 1);
	fill(run, 1);
	for (uint64_t i = 0; i < 30; i++)
		for (uint64_t place = 0; place < 190; place++)
			read_one(run, place * 100 + i);
	assert_int_equal(run->w.n_runs, ORDER_RUNS);
	assert_int_equal(run->asked[189 * 100 + 30], 1);
}

/* A large sample goes through the window piece by piece. */
static void test_large(void **state)
{
	struct run *run = *state;
	struct order_window *w = &run->w;
	uint32_t asked = 0;

	order_window_limit(w, FILES, 100 * BLOCK_BYTES, 1);
	for (uint32_t at = 0; at < 1000; at += 10) {
		uint32_t done;

		while (order_window_room(w) && order_window_next(w, &done) == 0) {
			asked = done + 10;
			order_window_ask(w, 10);
			if (asked == 1000)
				order_window_pass(w);
		}
		assert_true(w->bytes <= 100 * BLOCK_BYTES);
		assert_int_equal(asked, min(at + 100, 1000u));
		assert_int_equal(w->files, 1);
		(void)order_window_read(w, 0, at + 10, 1000);
	}
	assert_int_equal(w->bytes, 0);
	assert_int_equal(w->files, 0);
	assert_int_equal(w->n_passed, 1);
}

/* A large sample that is read before it is asked for: the rest of it is asked for. */
static void test_large_late(void **state)
{
	struct run *run = *state;
	struct order_window *w = &run->w;
	uint32_t done;

	(void)order_window_read(w, 7000, 10, 1000);
	assert_int_equal(order_window_read(w, 7001, 10, 1000), ORDER_FOLLOWS);
	while (order_window_next(w, &done) != 7001)
		order_window_pass(w);
	assert_int_equal(done, 10);
	(void)order_window_read(w, 7001, 20, 1000);
	assert_int_equal(order_window_next(w, &done), 7001);
	assert_int_equal(done, 20);
}

/* What is there already takes no room, but the end of the span is the end. */
static void test_present(void **state)
{
	struct run *run = *state;
	struct order_window *w = &run->w;

	while (order_window_room(w)) {
		uint32_t done;
		uint64_t place = order_window_next(w, &done);

		order_window_ask(w, 1);
		order_window_pass(w);
		order_window_present(w, place, 0, 1);
	}
	assert_int_equal(w->n_passed, ORDER_REACH);
	assert_int_equal(w->files, 0);
	(void)order_window_read(w, 100, 1, 1);
	assert_true(order_window_room(w));
}

/* No run is at a place that was passed, or where another one is. */
static void check_runs(struct run *run)
{
	struct order_window *w = &run->w;

	for (uint32_t i = 0; i < w->n_runs; i++) {
		uint64_t next = w->runs[i].next;

		assert_true(next < COUNT);
		assert_int_equal(w->passed[next / 64] >> next % 64 & 1, 0);
		for (uint32_t k = 0; k < i; k++)
			assert_int_not_equal(w->runs[k].next, next);
	}
}

/* The counts are those of the entries that are not read, and each of these is found by its hash. */
static void check_counts(const struct run *run)
{
	const struct order_asked *asked = &run->ring;
	uint32_t files = 0, chained = 0;
	uint64_t bytes = 0;

	for (uint32_t e = 0; e < ORDER_RING; e++)
		if (asked->ring[e].asked > asked->ring[e].read) {
			bytes += (asked->ring[e].asked - asked->ring[e].read) * BLOCK_BYTES;
			files++;
		}
	for (uint32_t h = 0; h < ORDER_HASH; h++)
		for (uint16_t i = asked->first[h]; i != 0; i = asked->ring[i - 1].other)
			assert_true(++chained <= files); /* no cycle */
	assert_int_equal(chained, files);
	assert_int_equal(files, run->w.files);
	assert_int_equal(bytes, run->w.bytes);
}

/* Whatever is read in whatever order: the counts are those of the entries, and bounded. */
static void test_random(void **state)
{
	struct run *run = *state;
	uint64_t base = 0;
	uint32_t seed = 1;

	fill(run, 3);
	for (int i = 0; i < 200000; i++) {
		enum order_follows follows;
		uint64_t place;

		seed = seed * 1664525 + 1013904223;
		place = (seed >> 8) % 100 < 95 ? base + (seed >> 16) % 40
					       : (seed >> 8) % (COUNT + 10);
		base = i % 50 ? base : (base + 40) % COUNT;
		run->reads++;
		follows = order_window_read(&run->w, place, 1 + seed % 3, 3);
		if (follows == ORDER_FOLLOWS || follows == ORDER_FOLLOWS_NOT)
			run->switches += order_window_judge(&run->w, follows == ORDER_FOLLOWS);
		fill(run, 3);
		if (i % 1000)
			continue;
		check_counts(run);
		check_runs(run);
	}
	for (uint64_t k = 0; k < COUNT; k++)
		assert_true(run->asked[k] <= 3);
}

/* Asks for samples of three units, one unit at a time, which takes as many turns. */
static void fill_parts(struct order_window *w)
{
	while (order_window_room(w)) {
		uint32_t done;

		(void)order_window_next(w, &done);
		assert_true(done <= 3);
		if (done < 3)
			order_window_ask(w, 1);
		if (done >= 2)
			order_window_pass(w);
	}
	assert_true(w->bytes <= w->max_bytes);
}

static void read_part(struct run *run, uint64_t place, uint32_t upto)
{
	struct order_window *w = &run->w;
	enum order_follows follows = order_window_read(w, place, upto, 3);

	if (follows == ORDER_FOLLOWS || follows == ORDER_FOLLOWS_NOT)
		run->switches += order_window_judge(w, follows == ORDER_FOLLOWS);
	check_counts(run);
	fill_parts(w);
	check_counts(run);
	check_runs(run);
}

/*
 * More readers of large samples than there are runs: runs that have asked for a part of a sample are
 * replaced, and other runs come to that sample. Meanwhile the order is suspended and resumed.
 */
static void test_random_parts(void **state)
{
	struct run *run = *state;
	const uint32_t phase = 3000; /* reads of one part of the order */
	uint64_t at[ORDER_RUNS + 72];
	uint32_t seed = 1, full = 0;

	order_window_limit(&run->w, ORDER_AHEAD, 2000 * BLOCK_BYTES, 1);
	fill_parts(&run->w);
	for (uint32_t i = 0; i < 5 * phase; i++) {
		uint64_t place;

		for (uint64_t k = 0; k < ARRAY_SIZE(at) && i % phase == 0; k++)
			at[k] = (i / phase * ARRAY_SIZE(at) + k) * (COUNT / 5 / ARRAY_SIZE(at));
		seed = seed * 1664525 + 1013904223;
		place = (seed >> 8) % COUNT;
		if (i % phase < phase - 300) { /* or the order is not followed */
			uint64_t reader = (seed >> 8) % ARRAY_SIZE(at);

			at[reader] += (seed >> 24) % 3;
			if ((seed >> 20) % 4) /* or a run begins that is not read further */
				place = at[reader];
		}
		read_part(run, place, 1 + (seed >> 16) % 3);
		full += run->w.n_runs == ORDER_RUNS;
	}
	assert_true(full >= 1000);
	assert_true(run->switches >= 6);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_in_order),
		TEST(test_batches),
		TEST(test_many_batches),
		TEST(test_start),
		TEST(test_wrong),
		TEST(test_read_again),
		TEST(test_page_cache),
		TEST(test_unexpected),
		TEST(test_half_cached),
		TEST(test_jump),
		TEST(test_far_apart),
		TEST(test_many_runs),
		TEST(test_large),
		TEST(test_large_late),
		TEST(test_present),
		TEST(test_random),
		TEST(test_random_parts),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
