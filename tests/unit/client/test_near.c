/* Ranges of small files that are read ahead of a reader. */
#include "tests/unit/client/route_fixture.h"
#include "tests/clock/test_clock.h"

/* As the kernel's reads come: noted, looked for here, and asked for. */
static void read_noted(struct fix *f, uint64_t offset, uint32_t length)
{
	client_note_read(f->volume, offset, length);
	if (!fix_borrow(f, offset, length) && fix_read_local(f, offset, length) < 0)
		fix_read(f, offset, length);
}

static void test_ranges_are_read_ahead(void **state)
{
	struct route_fix *r = *state;
	const struct fix_object *o = fix_object(r->f, "b/large");
	uint32_t requests;

	for (uint64_t at = 0; at < 8 * MiB; at += 32 * KiB)
		read_noted(r->f, o->offset + at, 32 * KiB);
	requests = route_count(r, &r->workers[0].fetches) + route_count(r, &r->workers[0].cached);
	assert_true(requests <= 32); /* of 256 reads */
	assert_true(fix_counter(r->f, "near_reads") >= 240);
	assert_in_range(fix_counter(r->f, "near_fetches"), 8, 24);
}

/* Once much was read in order, several ranges are in progress at once, and no more than are allowed. */
static void test_ranges_are_under_way_together(void **state)
{
	struct route_fix *r = *state;
	const struct fix_object *o = fix_object(r->f, "b/large");
	uint64_t at;

	for (at = 0; at < 4 * MiB; at += 32 * KiB)
		read_noted(r->f, o->offset + at, 32 * KiB);
	pthread_mutex_lock(&r->f->lock);
	r->workers[0].park_cached = true;
	pthread_mutex_unlock(&r->f->lock);
	for (; at < 10 * MiB; at += 32 * KiB)
		client_note_read(r->f->volume, o->offset + at, 32 * KiB);
	route_wait_for(r, &r->workers[0].parked_cached, 4);
	route_unpark(&r->workers[0]);
	for (at = 4 * MiB; at < 10 * MiB; at += 32 * KiB)
		read_noted(r->f, o->offset + at, 32 * KiB);
	assert_true(route_count(r, &r->workers[0].fetches) <= 8);
	/* Of 15 MiB at most, of at least 256 KiB each. */
	assert_true(fix_counter(r->f, "near_fetches") <= 32);
}

/* Bytes of one answer are borrowed from its buffer. */
static void test_ranges_are_borrowed(void **state)
{
	struct route_fix *r = *state;
	const struct fix_object *o = fix_object(r->f, "b/large");
	const uint8_t *before = NULL;
	uint32_t together = 0;
	uint32_t borrowed = 0;

	for (uint64_t at = 0; at < 8 * MiB; at += 32 * KiB) {
		struct client_loan loan;

		client_note_read(r->f->volume, o->offset + at, 32 * KiB);
		if (!client_borrow(r->f->volume, o->offset + at, 32 * KiB, &loan)) {
			fix_read(
				r->f, o->offset + at, 32 * KiB); /* waits for it, if it is coming */
			before = NULL;
			continue;
		}
		borrowed++;
		together += before && loan.data == before + 32 * KiB;
		before = loan.data;
		client_give(&loan);
	}
	assert_true(borrowed >= 128);
	assert_true(together >= borrowed / 2);
	assert_int_equal(fix_counter(r->f, "local_reads"), 0);
}

static void test_out_of_order_nothing_is_read_ahead(void **state)
{
	struct route_fix *r = *state;
	const struct fix_object *o = fix_object(r->f, "b/large");

	for (uint64_t i = 0; i < 64; i++)
		read_noted(r->f, o->offset + i * 37 % 64 * (600 * KiB), 32 * KiB);
	assert_int_equal(fix_counter(r->f, "near_fetches"), 0);
	assert_int_equal(route_count(r, &r->workers[0].fetches), 64);
}

/* What no worker has is asked for piece by piece, as ever: the origin is not asked for more. */
static void test_cold_ranges_are_not_read_ahead(void **state)
{
	struct route_fix *r = *state;
	const struct fix_object *o = fix_object(r->f, "b/large");

	r->workers[0].cold = true;
	for (uint64_t at = 0; at < 2 * MiB; at += 32 * KiB)
		read_noted(r->f, o->offset + at, 32 * KiB);
	assert_int_equal(fix_counter(r->f, "near_reads"), 0);
	assert_int_equal(route_count(r, &r->workers[0].fetches), 64);
}

/* Ranges of which a part is never read give way to those that come. */
static void test_ranges_that_are_read_in_part(void **state)
{
	struct route_fix *r = *state;
	const struct fix_object *o = fix_object(r->f, "b/large");

	for (uint64_t at = 0; at < 40 * MiB; at += 64 * KiB)
		read_noted(r->f, o->offset + at, 32 * KiB);
	assert_true(fix_counter(r->f, "near_fetches") > CLIENT_NEAR_WINDOWS);
	assert_true(route_count(r, &r->workers[0].fetches) <= 16);
}

/* Where somebody read before, further on, says nothing of what was fetched for who reads now. */
static void test_ranges_beside_old_ones(void **state)
{
	struct route_fix *r = *state;
	const struct fix_object *o = fix_object(r->f, "b/large");
	uint32_t before;

	/* Leaves every window in use, each read in part. */
	for (uint64_t at = 8 * MiB; at < 40 * MiB; at += 64 * KiB)
		read_noted(r->f, o->offset + at, 32 * KiB);
	before = route_count(r, &r->workers[0].fetches);
	for (uint64_t at = 0; at < 6 * MiB; at += 32 * KiB)
		read_noted(r->f, o->offset + at, 32 * KiB);
	assert_true(route_count(r, &r->workers[0].fetches) - before <= 16); /* of 192 */
}

/* A replica that has no copies yet costs a question, not the reading ahead. */
static void test_ranges_that_a_replica_lacks(void **state)
{
	struct route_fix *r = *state;
	const struct fix_object *o = fix_object(r->f, "b/large");

	route_set_copies(r, 2);
	r->workers[1].cold = true;
	for (uint64_t at = 0; at < 8 * MiB; at += 32 * KiB)
		read_noted(r->f, o->offset + at, 32 * KiB);
	assert_true(fix_counter(r->f, "near_reads") >= 240);
}

/* Nothing of this program was held up for so long that an answer is not waited for, or kept, any more. */
static bool was_quick(uint64_t began)
{
	return clock_mono_ns() - began < CLOCK_SECOND;
}

/* Two reads of an object by one request. */
static void assert_answered_together(struct route_fix *r, uint64_t began)
{
	uint32_t alone = route_count(r, &r->workers[0].fetches);

	assert_int_equal(route_count(r, &r->workers[0].cached), 1);
	assert_int_equal(fix_counter(r->f, "near_reads") + alone, 2);
	assert_true(alone == 0 || !was_quick(began));
}

/* The kernel cuts a small object into reads that come together: one request brings all of it. */
static void test_an_object_is_asked_for_once(void **state)
{
	struct route_fix *r = *state;
	const struct fix_object *o = fix_object(r->f, "a/small-07");
	uint64_t began = clock_mono_ns();

	read_noted(r->f, o->offset, 64 * KiB);
	read_noted(r->f, o->offset + 64 * KiB, 44 * KiB);
	assert_answered_together(r, began);
}

struct part_reader {
	pthread_t thread;
	struct fix *f;
	uint64_t offset;
	uint32_t length;
};

static void *run_part_reader(void *arg)
{
	const struct part_reader *reader = arg;

	read_noted(reader->f, reader->offset, reader->length);
	return NULL;
}

/* Both parts wait for the one answer. */
static void test_parts_of_an_object_wait_together(void **state)
{
	struct route_fix *r = *state;
	const struct fix_object *o = fix_object(r->f, "a/small-07");
	struct part_reader parts[] = { { .f = r->f, .offset = o->offset, .length = 64 * KiB },
		{ .f = r->f, .offset = o->offset + 64 * KiB, .length = 44 * KiB } };

	uint64_t began = clock_mono_ns();

	r->workers[0].park_cached = true;
	for (uint32_t i = 0; i < ARRAY_SIZE(parts); i++) {
		assert_int_equal(
			pthread_create(&parts[i].thread, NULL, run_part_reader, &parts[i]), 0);
		route_wait_for(r, &r->workers[0].parked_cached, 1);
	}
	route_unpark(&r->workers[0]);
	for (uint32_t i = 0; i < ARRAY_SIZE(parts); i++)
		assert_int_equal(pthread_join(parts[i].thread, NULL), 0);
	assert_answered_together(r, began);
}

/* Who reads a header, or a part of something large, gets no more than that; nor who reads what is cold. */
static void test_parts_that_are_asked_for_alone(void **state)
{
	struct route_fix *r = *state;
	const struct fix_object *small = fix_object(r->f, "a/small-07");

	read_noted(r->f, small->offset, 16 * KiB);
	read_noted(r->f, fix_object(r->f, "b/large")->offset, 64 * KiB);
	assert_int_equal(route_count(r, &r->workers[0].cached), 0);
	assert_int_equal(route_count(r, &r->workers[0].fetches), 2);
	r->workers[0].cold = true;
	read_noted(r->f, fix_object(r->f, "a/small-27")->offset, 64 * KiB);
	assert_int_equal(route_count(r, &r->workers[0].cached), 1);
	assert_int_equal(route_count(r, &r->workers[0].fetches), 3);
}

/* Where the rest is not read it is not brought again and again. */
static void test_objects_of_which_the_begin_is_read(void **state)
{
	static const char *const keys[] = { "a/small-06", "a/small-07", "a/small-08", "a/small-13",
		"a/small-27" };
	struct route_fix *r = *state;
	uint64_t began = clock_mono_ns();
	uint32_t n = ARRAY_SIZE(keys) - 1;

	for (uint32_t i = 0; i < n; i++)
		read_noted(r->f, fix_object(r->f, keys[i])->offset, 64 * KiB);
	assert_true(route_count(r, &r->workers[0].cached) == n || !was_quick(began));
	test_advance(CLOCK_SECOND / 5); /* so old the rests are, or older */
	read_noted(r->f, fix_object(r->f, keys[n])->offset, 64 * KiB);
	assert_true(route_count(r, &r->workers[0].cached) == n || !was_quick(began));
}

/* Of the windows that objects may have only `n` are left, or all of them again. */
static void leave_objects(struct client_near *near, uint32_t n)
{
	pthread_mutex_lock(&near->lock);
	for (uint32_t i = 0; i < CLIENT_NEAR_OBJECTS; i++) {
		struct client_near_window *w = &near->windows[CLIENT_NEAR_WINDOWS - 1 - i];

		w->state = i < CLIENT_NEAR_OBJECTS - n ? NEAR_FETCHING : NEAR_FREE;
		w->object = w->state == NEAR_FETCHING;
	}
	pthread_mutex_unlock(&near->lock);
}

static void forget_streams(struct client_near *near)
{
	pthread_mutex_lock(&near->lock);
	memset(near->streams, 0, sizeof(near->streams));
	pthread_mutex_unlock(&near->lock);
}

/* Nor where begins follow so fast that rests are dropped for others before they are old. */
static void test_begins_that_follow_fast(void **state)
{
	static const char *const keys[] = { "a/small-07", "a/small-13", "a/small-21",
		"a/small-27" };
	struct route_fix *r = *state;
	struct client_near *near = &r->f->client->near;
	uint64_t began = clock_mono_ns();
	uint32_t asked;

	leave_objects(near, 2);
	for (uint32_t i = 0; i < 80; i++) {
		read_noted(r->f, fix_object(r->f, keys[i % ARRAY_SIZE(keys)])->offset, 64 * KiB);
		forget_streams(near);
	}
	asked = route_count(r, &r->workers[0].cached);
	leave_objects(near, CLIENT_NEAR_OBJECTS);
	assert_true((asked > 2 && asked <= 40) || !was_quick(began));
}

/* Readers in threads of their own take what is on its way, and what is there. */
struct near_reader {
	pthread_t thread;
	struct fix *f;
	uint64_t offset;
	uint32_t first;
};

static void *run_near_reader(void *arg)
{
	const struct near_reader *reader = arg;

	for (uint32_t i = reader->first; i < 256; i += 4)
		read_noted(reader->f, reader->offset + (uint64_t)i * 32 * KiB, 32 * KiB);
	return NULL;
}

static void test_ranges_of_several_readers(void **state)
{
	struct route_fix *r = *state;
	const struct fix_object *o = fix_object(r->f, "b/large");
	struct near_reader readers[4];

	for (uint32_t i = 0; i < ARRAY_SIZE(readers); i++) {
		readers[i] = (struct near_reader){ .f = r->f, .offset = o->offset, .first = i };
		assert_int_equal(
			pthread_create(&readers[i].thread, NULL, run_near_reader, &readers[i]), 0);
	}
	for (uint32_t i = 0; i < ARRAY_SIZE(readers); i++)
		assert_int_equal(pthread_join(readers[i].thread, NULL), 0);
	assert_true(fix_counter(r->f, "near_reads") > 0); /* how many is the scheduler's */
	/* Each read was answered once, by what was fetched ahead or by a request of its own. */
	assert_int_equal(
		fix_counter(r->f, "near_reads") + route_count(r, &r->workers[0].fetches), 256);
}

#define CASE(f) cmocka_unit_test_setup_teardown(f, route_setup, route_teardown)
int main(void)
{
	const struct CMUnitTest tests[] = {
		CASE(test_ranges_are_read_ahead),
		CASE(test_ranges_are_under_way_together),
		CASE(test_ranges_are_borrowed),
		CASE(test_out_of_order_nothing_is_read_ahead),
		CASE(test_cold_ranges_are_not_read_ahead),
		CASE(test_ranges_that_are_read_in_part),
		CASE(test_ranges_beside_old_ones),
		CASE(test_ranges_that_a_replica_lacks),
		CASE(test_an_object_is_asked_for_once),
		CASE(test_parts_of_an_object_wait_together),
		CASE(test_parts_that_are_asked_for_alone),
		CASE(test_objects_of_which_the_begin_is_read),
		CASE(test_begins_that_follow_fast),
		CASE(test_ranges_of_several_readers),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
