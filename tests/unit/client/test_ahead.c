/* Running ahead of sequential streams: what is asked for, how far, how often. */
#include "tests/unit/client/fixture.h"
#include "client/client_internal.h"
#include "tests/clock/test_clock.h"

#define WINDOW (8 * MiB)

static int setup(void **state)
{
	struct fix *f = fix_new(NULL);

	*state = f;
	return fix_start_client(
		f, (struct client_config){ .ahead_bytes = WINDOW, .ahead_max_bytes = WINDOW });
}

static int setup_wide(void **state)
{
	struct fix *f = fix_new(NULL);

	*state = f;
	return fix_start_client(
		f, (struct client_config){ .ahead_bytes = 24 * MiB, .ahead_max_bytes = 24 * MiB });
}

static int setup_growing(void **state)
{
	struct fix *f = fix_new(NULL);

	*state = f;
	return fix_start_client(
		f, (struct client_config){ .ahead_bytes = 4 * MiB, .ahead_max_bytes = 10 * MiB });
}

static int setup_chunks(void **state)
{
	struct fix *f = fix_new(NULL);

	*state = f;
	return fix_start_client(
		f, (struct client_config){ .ahead_bytes = 32 * MiB, .ahead_max_bytes = 32 * MiB });
}

/* PREFETCH requests are on their way when client_note_read() returns: waits until all have
 * arrived. */
static uint32_t settle(struct fix *f)
{
	test_wait(fix_count(f, FRAME_PREFETCH) == fix_counter(f, "prefetches"));
	return fix_count(f, FRAME_PREFETCH);
}

/* Every prefetched block of the object once; returns the end of what was asked for. */
static uint64_t check_ranges_of(
	struct fix *f, const struct fix_object *o, uint64_t from, uint32_t longest)
{
	uint64_t end = align_up(o->offset + o->size, BLOCK_BYTES);
	size_t n = (end - o->offset) / BLOCK_BYTES;
	uint8_t *blocks = calloc(n, 1);
	uint64_t last = 0;

	assert_non_null(blocks);
	for (uint32_t i = 0; i < f->seen_n; i++) {
		const struct fix_seen *s = &f->seen[i];

		if (s->op != FRAME_PREFETCH)
			continue;
		assert_int_equal(s->class, FRAME_AHEAD);
		assert_true(s->offset >= from && s->offset + s->length <= end);
		assert_int_equal(
			s->offset / CHUNK_BYTES, (s->offset + s->length - 1) / CHUNK_BYTES);
		assert_true(s->length <= longest);
		last = max(last, s->offset + s->length);
		for (uint64_t at = s->offset; at < s->offset + s->length; at += BLOCK_BYTES)
			assert_int_equal(blocks[(at - o->offset) / BLOCK_BYTES]++, 0);
	}
	for (uint64_t at = from; at < last; at += BLOCK_BYTES)
		assert_int_equal(blocks[(at - o->offset) / BLOCK_BYTES], 1);
	free(blocks);
	return last;
}

static uint64_t check_ranges(struct fix *f, const struct fix_object *o, uint64_t from)
{
	return check_ranges_of(f, o, from, UNIT_BYTES);
}

static void test_stream(void **state)
{
	struct fix *f = *state;
	const struct fix_object *o = fix_object(f, "b/large");
	uint64_t end = align_up(o->offset + o->size, BLOCK_BYTES);
	uint64_t last = 0;

	client_note_read(f->volume, o->offset, MiB);
	assert_int_equal(settle(f), 0);
	for (uint64_t at = o->offset + MiB; at < end; at += MiB) {
		client_note_read(f->volume, at, (uint32_t)min(MiB, end - at));
		(void)settle(f);
		last = check_ranges(f, o, o->offset + 2 * MiB);
		assert_true(last <= min(at + MiB + WINDOW, end));
		assert_true(last >= min(at + MiB + WINDOW - UNIT_BYTES, end) || last == end);
	}
	assert_int_equal(last, end);
	assert_true(settle(f) <= 45);
	/* Read once more from the start: a second stream, of which nothing is asked twice while it
	 * runs. */
	client_note_read(f->volume, o->offset, MiB);
}

/* In a wide window a range is all that is left of a chunk, and is not asked for before half of it lies in the window. */
static void test_chunks(void **state)
{
	struct fix *f = *state;
	const struct fix_object *o = fix_object(f, "b/large");
	uint64_t end = align_up(o->offset + o->size, BLOCK_BYTES);
	uint64_t last = 0;

	client_note_read(f->volume, o->offset, MiB);
	for (uint64_t at = o->offset + MiB; at < end; at += MiB) {
		uint64_t target = at + MiB + 32 * MiB;

		client_note_read(f->volume, at, (uint32_t)min(MiB, end - at));
		(void)settle(f);
		last = check_ranges_of(f, o, o->offset + 2 * MiB, CHUNK_BYTES);
		assert_true(last == end || last % CHUNK_BYTES == 0);
		assert_true(last <= min(target + CHUNK_BYTES / 2, end));
		assert_true(last >= min(target - CHUNK_BYTES / 2, end));
	}
	assert_int_equal(last, end);
	assert_true(settle(f) <= (end - 1) / CHUNK_BYTES - o->offset / CHUNK_BYTES + 1);
}

/* As far ahead as was read, between the window and its maximum. */
static void test_window_grows(void **state)
{
	struct fix *f = *state;
	const struct fix_object *o = fix_object(f, "b/large");

	client_note_read(f->volume, o->offset, MiB);
	for (uint64_t n = 2; n < 20; n++) {
		uint64_t window = min(max((n - 1) * MiB, 4 * MiB), 10 * MiB);

		client_note_read(f->volume, o->offset + (n - 1) * MiB, MiB);
		(void)settle(f);
		assert_int_equal(
			check_ranges(f, o, o->offset + 2 * MiB), o->offset + n * MiB + window);
	}
}

/* Nodes that begin the same stream together begin with different chunks of it. */
static void test_ranks(void **state)
{
	struct fix *f = *state;
	const struct fix_object *o = fix_object(f, "b/large");
	uint64_t next = (o->offset + 2 * MiB) / CHUNK_BYTES;
	uint32_t first = 0;

	f->client->rank = 3; /* of the two chunks that the window reaches the second */
	client_note_read(f->volume, o->offset, MiB);
	client_note_read(f->volume, o->offset + MiB, MiB);
	assert_true(settle(f) > 16);
	while (f->seen[first].op != FRAME_PREFETCH)
		first++;
	assert_int_equal(f->seen[first].offset / CHUNK_BYTES, next + 1);
	(void)check_ranges(f, o, o->offset + 2 * MiB); /* and all of it, once */
}

static void test_reordered(void **state)
{
	struct fix *f = *state;
	const struct fix_object *o = fix_object(f, "b/large");
	static const uint64_t order[] = { 0, 1, 3, 2, 5, 4, 6, 8, 7 };

	for (size_t i = 0; i < ARRAY_SIZE(order); i++)
		client_note_read(f->volume, o->offset + order[i] * MiB, MiB);
	(void)settle(f);
	assert_int_equal(check_ranges(f, o, o->offset + 2 * MiB), o->offset + 9 * MiB + WINDOW);
}

static void test_not_sequential(void **state)
{
	struct fix *f = *state;
	const struct fix_object *o = fix_object(f, "b/large");
	uint64_t seed = 5;

	for (int i = 0; i < 200; i++)
		client_note_read(
			f->volume, o->offset + fix_mix(seed++) % 39 * MiB + 8192, 128 * KiB);
	/* Small objects, one after the other as a copy reads them. */
	for (uint32_t i = 0; i < f->n_objects; i++) {
		const struct fix_object *small = &f->objects[i];

		if (small->size == 0 || small->size > UNIT_BYTES)
			continue;
		client_note_read(f->volume, small->offset, BLOCK_BYTES);
		client_note_read(f->volume, small->offset + BLOCK_BYTES,
			(uint32_t)align_up(small->size, BLOCK_BYTES));
	}
	/* Outside of everything. */
	client_note_read(f->volume, f->end + MiB, MiB);
	client_note_read(f->volume, f->end + 2 * MiB, MiB);
	assert_int_equal(settle(f), 0);
}

static void test_resident_is_not_asked_for(void **state)
{
	struct fix *f = *state;
	const struct fix_object *o = fix_object(f, "b/large");

	f->whole = true;
	for (uint64_t at = o->offset; at < o->offset + o->size; at += CHUNK_BYTES)
		fix_read(f, at, BLOCK_BYTES);
	for (uint64_t at = o->offset; at + MiB < o->offset + o->size; at += MiB)
		client_note_read(f->volume, at, MiB);
	assert_int_equal(settle(f), 0);
}

/* Many streams, none of whose requests is answered: bounded, and closing does not wait for them. */
static void test_bounded(void **state)
{
	struct fix *f = *state;
	const struct fix_object *o = fix_object(f, "b/large");

	fix_stop_worker(f);
	for (uint64_t s = 0; s < 12; s++)
		for (uint64_t i = 0; i < 8; i++)
			client_note_read(f->volume,
				o->offset + s * 5 * MiB % (32 * MiB) + i * 128 * KiB, 128 * KiB);
	assert_true(fix_counter(f, "prefetches") > 0);
	assert_true(fix_counter(f, "prefetches") <= 128);
}

/* What an order names is asked for as such, and what is here is not; a worker that does not answer
 * is asked for so much at once, and streams still find room. */
static void test_announced(void **state)
{
	struct fix *f = *state;
	const struct fix_object *o = fix_object(f, "b/large");
	uint64_t before;
	uint32_t n = 0;

	assert_int_equal(client_prefetch(f->volume, o->offset, MiB), 0);
	assert_int_equal(settle(f), 1);
	assert_int_equal(f->seen[f->seen_n - 1].flags & FRAME_EXACT, FRAME_EXACT);
	assert_int_equal(f->seen[f->seen_n - 1].class, FRAME_AHEAD);
	fix_read(f, o->offset, MiB);
	if (fix_read_local(f, o->offset, MiB) == 0)
		assert_int_equal(client_prefetch(f->volume, o->offset, MiB), -EALREADY);
	fix_stop_worker(f);
	while (client_prefetch(f->volume, o->offset + 2 * MiB, MiB) == 0)
		n++;
	assert_in_range(n, 32, 127);
	before = fix_counter(f, "prefetches");
	for (uint64_t i = 0; i < 8; i++)
		client_note_read(f->volume, o->offset + 8 * MiB + i * 128 * KiB, 128 * KiB);
	assert_true(fix_counter(f, "prefetches") > before);
}

#define CASE(fn) cmocka_unit_test_setup_teardown(fn, setup, fix_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		CASE(test_stream),
		cmocka_unit_test_setup_teardown(test_chunks, setup_chunks, fix_teardown),
		cmocka_unit_test_setup_teardown(test_window_grows, setup_growing, fix_teardown),
		cmocka_unit_test_setup_teardown(test_ranks, setup_wide, fix_teardown),
		CASE(test_reordered),
		CASE(test_not_sequential),
		CASE(test_resident_is_not_asked_for),
		CASE(test_bounded),
		CASE(test_announced),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
