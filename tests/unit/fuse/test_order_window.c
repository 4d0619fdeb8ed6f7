/* The window of an order: exact, bounded, and never stuck, however a job reads. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "base/layout.h"
#include "fuse/order_window.h"

#define FILES 8u
#define COUNT 20000u

struct run {
	struct order_window w;
	struct order_entry ring[ORDER_SPAN];
	uint32_t asked[COUNT]; /* blocks */
	uint64_t total;
	uint64_t reads;
	uint32_t switches;
	bool was_read[COUNT];
};

static int setup(void **state)
{
	struct run *run = calloc(1, sizeof(*run));

	order_window_init(&run->w, COUNT, run->ring);
	order_window_limit(&run->w, FILES, UINT64_MAX);
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
		uint32_t done = order_window_done(&run->w);

		if (done < blocks && run->w.off) {
			order_window_ask(&run->w, blocks - done);
		} else if (done < blocks) {
			run->asked[run->w.next] += blocks - done;
			run->total++;
			order_window_ask(&run->w, blocks - done);
		}
		order_window_pass(&run->w);
	}
	assert_true(run->w.files <= run->w.max_files);
	assert_true(run->w.next <= run->w.seen + ORDER_SPAN);
}

static void read_one(struct run *run, uint64_t place)
{
	enum order_follows follows = order_window_follows(&run->w, place);

	run->reads++;
	run->was_read[place] = true;
	(void)order_window_read(&run->w, place, 1);
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

	order_window_limit(&run->w, 2048, UINT64_MAX);
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

	order_window_limit(&run->w, 2048, UINT64_MAX);
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
	place = run->w.first;
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
	assert_true(run->w.next > 6000);
	assert_true(
		late <=
		1 + ORDER_STRAYS); /* the first follows none; then it is known where the job is */
	assert_int_equal(run->asked[6000], 1);
}

/* A file that was read before it was asked for: one that was asked for is in the page cache, then. */
static void test_unexpected(void **state)
{
	struct run *run = *state;

	fill(run, 1);
	assert_int_equal(run->w.files, FILES);
	assert_true(order_window_read(&run->w, run->w.next, 1));
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

/* A job that resumes far on: it is followed after some reads. */
static void test_jump(void **state)
{
	struct run *run = *state;

	fill(run, 1);
	for (uint64_t i = 10000; i <= 10000 + ORDER_STRAYS; i++)
		read_one(run, i);
	assert_int_equal(run->asked[10001 + ORDER_STRAYS], 1);
	assert_true(run->w.first >= 10000);
	assert_int_equal(run->asked[5000], 0);
}

/* Reads that follow nothing are no jump, nor are some that follow while the window is read too: nothing more than
 * one window is asked for. */
static void test_strays(void **state)
{
	struct run *run = *state;

	fill(run, 1);
	for (uint64_t place = 0; place < 2; place++) {
		for (uint64_t i = 0; i < ORDER_STRAYS; i++) /* the first follows none */
			read_one(run, 12000 + 1000 * place + i);
		read_one(run, place);
	}
	for (uint64_t i = 0; i < 2 * ORDER_JUDGED; i++)
		read_one(run, COUNT - 1 - i);
	assert_true(run->w.first < ORDER_SPAN);
	assert_true(run->asked[FILES] > 0);
	assert_int_equal(run->asked[ORDER_SPAN], 0);
	assert_int_equal(run->total, FILES + 2);
}

/* A large sample goes through the window piece by piece. */
static void test_large(void **state)
{
	struct run *run = *state;
	struct order_window *w = &run->w;
	uint32_t asked = 0;

	order_window_limit(w, FILES, 100 * BLOCK_BYTES);
	for (uint32_t at = 0; at < 1000; at += 10) {
		while (order_window_room(w) && w->next == 0) {
			asked = order_window_done(w) + 10;
			order_window_ask(w, 10);
			if (asked == 1000)
				order_window_pass(w);
		}
		assert_true(w->bytes <= 100 * BLOCK_BYTES);
		assert_int_equal(asked, min(at + 100, 1000u));
		assert_int_equal(w->files, 1);
		assert_true(order_window_read(w, 0, at + 10));
	}
	assert_int_equal(w->bytes, 0);
	assert_int_equal(w->files, 0);
	assert_int_equal(w->first, 1);
}

/* What is there already takes no room, but the end of the span is the end. */
static void test_present(void **state)
{
	struct run *run = *state;
	struct order_window *w = &run->w;

	while (order_window_room(w)) {
		uint64_t place = w->next;

		order_window_ask(w, 1);
		order_window_pass(w);
		order_window_present(w, place, 0, 1);
	}
	assert_int_equal(w->next, ORDER_SPAN);
	assert_int_equal(w->files, 0);
	assert_true(order_window_read(w, 5000, 1));
	assert_true(order_window_room(w));
}

/* Whatever is read in whatever order: the counts are those of the entries, and bounded. */
static void test_random(void **state)
{
	struct run *run = *state;
	uint32_t seed = 1;

	fill(run, 3);
	for (int i = 0; i < 200000; i++) {
		uint64_t bytes = 0;
		uint32_t files = 0;
		uint64_t place;

		seed = seed * 1664525 + 1013904223;
		place = (seed >> 8) % 100 < 95 ? run->w.first + (seed >> 16) % 40
					       : (seed >> 8) % (COUNT + 10);
		run->reads++;
		(void)order_window_read(&run->w, place, 1 + seed % 3);
		memset(run->asked, 0, sizeof(run->asked));
		fill(run, 3);
		if (i % 1000)
			continue;
		for (uint32_t e = 0; e < ORDER_SPAN; e++)
			if (run->ring[e].asked > run->ring[e].read) {
				bytes += (run->ring[e].asked - run->ring[e].read) * BLOCK_BYTES;
				files++;
			}
		assert_int_equal(bytes, run->w.bytes);
		assert_int_equal(files, run->w.files);
	}
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_in_order),
		TEST(test_batches),
		TEST(test_many_batches),
		TEST(test_wrong),
		TEST(test_read_again),
		TEST(test_page_cache),
		TEST(test_unexpected),
		TEST(test_half_cached),
		TEST(test_jump),
		TEST(test_strays),
		TEST(test_large),
		TEST(test_present),
		TEST(test_random),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
