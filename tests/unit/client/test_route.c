/* Whom reads ask: several workers, which come and go, send reads away, and take their time. */
#include "tests/unit/client/route_fixture.h"
#include "base/log.h"
#include "client/client_back.h"
#include "tests/clock/test_clock.h"

/* ---- tests ----------------------------------------------------------------------------------- */

static void test_owner_alone_is_asked_and_no_master(void **state)
{
	struct route_fix *r = *state;
	uint32_t asks;

	fix_read(r->f, 0, 64 * KiB);
	asks = route_count(r, &r->asks);
	for (uint32_t i = 0; i < 200; i++)
		fix_read(r->f, i % 8 * MiB, 64 * KiB);
	assert_true(route_count(r, &r->workers[0].fetches) >= 201);
	assert_int_equal(route_count(r, &r->workers[0].lasts), 0);
	for (uint32_t i = 1; i < WORKERS; i++)
		assert_int_equal(route_count(r, &r->workers[i].fetches), 0);
	/* But for the request that stays parked there. */
	assert_in_range(route_count(r, &r->asks), asks, asks + 1);
}

static void test_deputy_when_the_owner_refuses(void **state)
{
	struct route_fix *r = *state;

	fake_set_refuse(r->workers[0].name, true);
	fix_read(r->f, 0, 64 * KiB);
	assert_int_equal(route_count(r, &r->workers[1].fetches), 1);
	assert_int_equal(route_count(r, &r->workers[1].lasts), 1);
	assert_int_equal(fix_counter(r->f, "passed_on"), 1);
	/* Back again: the owner serves. */
	fake_set_refuse(r->workers[0].name, false);
	while (!route_count(r, &r->workers[0].fetches)) {
		fix_read(r->f, 0, 64 * KiB);
		test_advance(CLOCK_MS);
	}
}

static void test_owner_dies_with_reads_under_way(void **state)
{
	struct route_fix *r = *state;
	struct fix_read *reads[8];

	route_set_park(r, 0);
	for (uint32_t i = 0; i < ARRAY_SIZE(reads); i++)
		reads[i] = fix_read_start(r->f, (uint64_t)i * MiB, 64 * KiB);
	route_wait_for(r, &r->workers[0].fetches, ARRAY_SIZE(reads));
	fake_set_refuse(r->workers[0].name, true);
	fake_cut(r->workers[0].name);
	for (uint32_t i = 0; i < ARRAY_SIZE(reads); i++)
		fix_read_end(r->f, reads[i], 0);
	assert_int_equal(route_count(r, &r->workers[1].lasts), ARRAY_SIZE(reads));
}

static void test_owner_called_down_is_waited_for_no_longer(void **state)
{
	struct route_fix *r = *state;
	struct fix_read *read;

	route_set_park(r, 0);
	read = fix_read_start(r->f, 0, 64 * KiB);
	route_wait_for(r, &r->workers[0].fetches, 1);
	route_set_state(r, 0, CLUSTER_DOWN);
	route_tell(r);
	fix_read_end(r->f, read, 0);
	assert_int_equal(route_count(r, &r->workers[1].lasts), 1);
	fix_read(r->f, 0, 64 * KiB);
	assert_int_equal(route_count(r, &r->workers[1].lasts), 2);
	assert_int_equal(route_count(r, &r->workers[0].fetches), 1);
}

/* With nobody else to ask it is: it answers, whatever the master thinks. */
static void test_the_only_one_called_down_is_waited_for(void **state)
{
	struct route_fix *r = *state;
	struct fix_read *read;

	r->slot = (struct placement_slot){ .owner = 0,
		.previous = PLACEMENT_NONE,
		.replicas = { PLACEMENT_NONE, PLACEMENT_NONE } };
	route_tell(r);
	route_set_park(r, 0);
	read = fix_read_start(r->f, 0, 64 * KiB);
	route_wait_for(r, &r->workers[0].fetches, 1);
	route_set_state(r, 0, CLUSTER_DOWN);
	route_tell(r);
	test_advance(2500 * CLOCK_MS); /* it is looked at each second */
	route_unpark(&r->workers[0]);
	fix_read_end(r->f, read, 0);
	assert_int_equal(route_count(r, &r->workers[0].fetches), 1);
	assert_int_equal(route_count(r, &r->workers[0].cancelled), 0);
}

/* Holds a loop up until the lock is let go. */
struct freeze {
	struct loop_task task;
	pthread_mutex_t lock;
};

static void run_freeze(struct loop_task *task)
{
	struct freeze *freeze = container_of(task, struct freeze, task);

	pthread_mutex_lock(&freeze->lock);
	pthread_mutex_unlock(&freeze->lock);
}

static void run_nothing(void *arg)
{
	(void)arg;
}

static void freeze(struct route_fix *r, uint32_t worker, struct freeze *f)
{
	f->task.run = run_freeze;
	pthread_mutex_init(&f->lock, NULL);
	pthread_mutex_lock(&f->lock);
	loop_post(r->workers[worker].loop, &f->task);
}

static void thaw(struct route_fix *r, uint32_t worker, struct freeze *f)
{
	pthread_mutex_unlock(&f->lock);
	loop_call(r->workers[worker].loop, run_nothing, NULL);
	pthread_mutex_destroy(&f->lock);
}

/* The log changes while no thread is there that may write to it. */
static struct {
	char path[64];
	int fd;
} logged;

static int setup_logged(void **state)
{
	(void)strcpy(logged.path, "/var/tmp/granary-log.XXXXXX");
	logged.fd = mkstemp(logged.path);
	assert_true(logged.fd >= 0);
	log_init("test", logged.fd, LOG_INFO, LOG_TEXT);
	return route_setup(state);
}

static int teardown_logged(void **state)
{
	int r = route_teardown(state);

	log_init("test", STDERR_FILENO, LOG_INFO, LOG_TEXT);
	close(logged.fd);
	(void)unlink(logged.path);
	return r;
}

/* Does the log say of a read where it waited? */
static bool is_logged(const char *where)
{
	struct buf text = BUF_INIT(64 * KiB);
	const char *line;
	bool is;

	assert_int_equal(file_read_all(logged.path, &text), 0);
	line = strstr(buf_str(&text), "read waited");
	is = line && strstr(line, where);
	buf_release(&text);
	return is;
}

/* Its kernel acknowledges, the master has not noticed: it does not even say that it is there. */
static void test_owner_hangs(void **state)
{
	struct route_fix *r = *state;
	struct fix_read *read;
	struct freeze f;

	route_set_park(r, 0);
	read = fix_read_start(r->f, 0, 64 * KiB);
	route_wait_for(r, &r->workers[0].fetches, 1);
	freeze(r, 0, &f);
	fix_read_end(r->f, read, 0);
	assert_int_equal(route_count(r, &r->workers[1].lasts), 1);
	fix_read(r->f, MiB, 64 * KiB); /* it is passed over */
	assert_int_equal(route_count(r, &r->workers[1].lasts), 2);
	thaw(r, 0, &f);
	test_wait(is_logged("s ECANCELED"));
}

/* It is not found out by a read every few seconds, each of which would wait as long as the first one. */
static void test_no_read_is_tried_on_who_hangs(void **state)
{
	struct route_fix *r = *state;
	uint64_t until;
	uint32_t reads = 0;
	struct freeze f;

	for (uint32_t i = 0; i < WORKERS; i++)
		r->workers[i].cold = true; /* no hedge takes the place of an answer */
	fix_read(r->f, 0, 64 * KiB);
	assert_int_equal(route_count(r, &r->workers[0].fetches), 1);
	freeze(r, 0, &f);
	fix_read(r->f, 0, 64 * KiB); /* finds it out */
	reads++;
	/* Nobody else does, however slow the machine is. */
	view_set_hangs(r->f->client->view, PATIENCE);
	for (until = clock_mono_ns() + 4 * CLOCK_SECOND; clock_mono_ns() < until; reads++) {
		fix_read(r->f, (uint64_t)(reads % 8) * MiB, 64 * KiB);
		test_advance(20 * CLOCK_MS);
	}
	thaw(r, 0, &f);
	assert_int_equal(route_count(r, &r->workers[1].lasts), reads);
	/* As soon as it answers it is asked again. */
	until = clock_mono_ns() + PATIENCE;
	while (route_count(r, &r->workers[0].fetches) < 10 && clock_mono_ns() < until) {
		fix_read(r->f, 0, 64 * KiB);
		reads++;
	}
	/* It got the one that found it out, too. */
	assert_int_equal(route_count(r, &r->workers[1].lasts) + 10, reads + 2);
}

/* They are asked at once, not one after the other. */
static void test_owner_and_deputy_hang(void **state)
{
	struct route_fix *r = *state;
	struct freeze owner;
	struct freeze deputy;

	fix_read(r->f, 0, 64 * KiB);
	freeze(r, 0, &owner);
	freeze(r, 1, &deputy);
	fix_read(r->f, MiB, 64 * KiB);
	assert_int_equal(route_count(r, &r->workers[2].lasts), 1);
	fix_read(r->f, 0, 64 * KiB);
	assert_int_equal(route_count(r, &r->workers[2].lasts), 2);
	thaw(r, 0, &owner);
	thaw(r, 1, &deputy);
}

/* One that waits for a slow origin says that it is there: nobody else is asked for the same. */
static void test_a_slow_owner_is_waited_for(void **state)
{
	struct route_fix *r = *state;
	const uint64_t hangs = 3 * VIEW_HANGS; /* enough to answer, on a slow machine */
	struct fix_read *read;

	view_set_hangs(r->f->client->view, hangs);
	route_set_park(r, 0);
	read = fix_read_start(r->f, 0, 64 * KiB);
	route_wait_for(r, &r->workers[0].fetches, 1);
	test_advance(4 * VIEW_QUIET + hangs);
	route_unpark(&r->workers[0]);
	fix_read_end(r->f, read, 0);
	assert_int_equal(route_count(r, &r->workers[0].fetches), 1);
	assert_int_equal(route_count(r, &r->workers[0].cancelled), 0);
	for (uint32_t i = 1; i < WORKERS; i++)
		assert_int_equal(route_count(r, &r->workers[i].fetches), 0);
}

static void test_all_of_the_slot_are_tried(void **state)
{
	struct route_fix *r = *state;

	for (uint32_t i = 0; i < 3; i++)
		fake_set_refuse(r->workers[i].name, true);
	fix_read(r->f, 0, 64 * KiB);
	assert_int_equal(route_count(r, &r->workers[3].lasts), 1);
}

/* In no slot's list, and it has all: asked when all of the slot are down, and not before. */
static void test_keeper_when_all_of_the_slot_are_down(void **state)
{
	struct route_fix *r = *state;

	r->slot.previous = PLACEMENT_NONE;
	route_tell(r);
	route_set_keeper(r);
	fix_read(r->f, 0, 64 * KiB);
	assert_int_equal(route_count(r, &r->workers[0].fetches), 1);
	for (uint32_t i = 0; i < 3; i++)
		route_set_state(r, i, CLUSTER_DOWN);
	route_tell(r);
	for (uint32_t i = 0; i < 8; i++)
		fix_read(r->f, i * MiB, 64 * KiB);
	assert_int_equal(route_count(r, &r->workers[3].lasts), 8);
	assert_int_equal(route_count(r, &r->workers[0].fetches), 1);
	route_set_copies(r, COPIES_AUTO); /* an answer that says nothing of it changes nothing */
	fix_read(r->f, 0, 64 * KiB);
	assert_int_equal(route_count(r, &r->workers[3].lasts), 9);
}

static void test_nobody_answers(void **state)
{
	struct route_fix *r = *state;

	for (uint32_t i = 0; i < WORKERS; i++)
		fake_set_refuse(r->workers[i].name, true);
	fix_read_end(r->f, fix_read_start(r->f, 0, 64 * KiB), -EIO);
	for (uint32_t i = 0; i < WORKERS; i++)
		fake_set_refuse(r->workers[i].name, false);
}

/* The kernel asks once more for one page of a read-ahead that failed at its deadline: nobody waits twice as long. */
static void test_nobody_waits_twice(void **state)
{
	struct route_fix *r = *state;
	uint64_t took = UINT64_MAX;
	uint64_t began;
	struct fix_read *other;

	for (uint32_t i = 0; i < WORKERS; i++)
		fake_set_refuse(r->workers[i].name, true);
	fix_read_end(r->f, fix_read_start(r->f, 0, 64 * KiB), -EIO);
	for (uint32_t i = 0; i < 3; i++) { /* the machine may be slow once or twice */
		began = clock_mono_ns();
		fix_read_end(r->f, fix_read_start(r->f, 32 * KiB, 4 * KiB), -EIO);
		took = min(took, clock_mono_ns() - began);
	}
	assert_true(took < PATIENT_NS * 3 / 4);
	began = clock_mono_ns();
	other = fix_read_start(r->f, 64 * KiB, 4 * KiB); /* at the same time */
	fix_read_end(r->f, other, -EIO);
	assert_true(clock_mono_ns() - began >= PATIENT_NS);
	/* And who can be read again is read again. */
	for (uint32_t i = 0; i < WORKERS; i++)
		fake_set_refuse(r->workers[i].name, false);
	fix_read(r->f, 256 * KiB, 64 * KiB);
	fix_read(r->f, 64 * KiB, 4 * KiB);
	/* What failed is forgotten with its volume: another one may come to lie where it was. */
	client_volume_close(r->f->volume);
	r->f->volume = NULL;
	for (uint32_t i = 0; i < CLIENT_FAILED; i++)
		assert_null(r->f->client->failed[i].volume);
}

/* Reads that pause go on when one of those that were away takes a connection. */
static void test_who_waits_asks_when_somebody_is_back(void **state)
{
	struct route_fix *r = *state;
	struct fix_read *reads[4];

	for (uint32_t i = 0; i < WORKERS; i++)
		fake_set_refuse(r->workers[i].name, true);
	for (uint32_t i = 0; i < ARRAY_SIZE(reads); i++)
		reads[i] = fix_read_start(r->f, i * 64 * KiB, 64 * KiB);
	test_wait(fix_counter(r->f, "retries") >= ARRAY_SIZE(reads));
	fake_set_refuse(r->workers[1].name, false);
	for (uint32_t i = 0; i < ARRAY_SIZE(reads); i++)
		fix_read_end(r->f, reads[i], 0);
	assert_true(route_count(r, &r->workers[1].fetches) >= ARRAY_SIZE(reads));
	for (uint32_t i = 0; i < WORKERS; i++)
		fake_set_refuse(r->workers[i].name, false);
}

/* And when the master tells of one that nobody knew. */
static void test_who_waits_asks_whom_the_table_names(void **state)
{
	struct route_fix *r = *state;
	struct fix_read *read;

	route_set_state(r, 3, CLUSTER_OUT);
	route_tell(r);
	for (uint32_t i = 0; i < 3; i++)
		fake_set_refuse(r->workers[i].name, true);
	read = fix_read_start(r->f, 0, 64 * KiB);
	test_wait(fix_counter(r->f, "retries") >= 1);
	route_set_state(r, 3, CLUSTER_UP);
	route_tell(r);
	fix_read_end(r->f, read, 0);
	assert_int_equal(route_count(r, &r->workers[3].fetches), 1);
	for (uint32_t i = 0; i < 3; i++)
		fake_set_refuse(r->workers[i].name, false);
}

/* Hundreds that are back at once are not each a reason for all who wait to ask again. */
static void test_many_that_are_back_at_once(void **state)
{
	struct route_fix *r = *state;
	struct fix_read *read;
	uint64_t began;
	uint64_t asked;

	for (uint32_t i = 0; i < WORKERS; i++)
		fake_set_refuse(r->workers[i].name, true);
	read = fix_read_start(r->f, 0, 64 * KiB);
	test_wait(fix_counter(r->f, "retries") >= 1);
	asked = fix_counter(r->f, "retries");
	began = clock_mono_ns();
	for (uint32_t i = 0; i < 1000; i++)
		loop_call(r->f->client->loop, client_back, r->f->client);
	asked = fix_counter(r->f, "retries") - asked;
	assert_true(asked <= 10 + (clock_mono_ns() - began) / (2 * CLOCK_MS));
	for (uint32_t i = 0; i < WORKERS; i++)
		fake_set_refuse(r->workers[i].name, false);
	fix_read_end(r->f, read, 0);
}

static void test_ask_x(void **state)
{
	struct route_fix *r = *state;

	route_set_status(r, 0, -EREMOTE, 3, FRAME_MOVED);
	fix_read(r->f, 0, 64 * KiB);
	assert_int_equal(route_count(r, &r->workers[0].fetches), 1);
	assert_int_equal(route_count(r, &r->workers[3].fetches), 1);
	assert_int_equal(route_count(r, &r->workers[3].lasts), 0);
	assert_int_equal(fix_counter(r->f, "moved"), 1);
	route_wait_for(r, &r->stale, 1); /* a newer table is looked for */
}

static void test_ask_x_in_a_circle(void **state)
{
	struct route_fix *r = *state;

	route_set_status(r, 0, -EREMOTE, 1, FRAME_MOVED);
	route_set_status(r, 1, -EREMOTE, 0, FRAME_MOVED);
	for (uint32_t i = 2; i < WORKERS; i++)
		route_set_status(r, i, -EREMOTE, 0, FRAME_MOVED);
	route_set_park(r, 3);
	/* Ends: each of them is asked with FRAME_LAST at last, and the last one has it. */
	struct fix_read *read = fix_read_start(r->f, 0, 64 * KiB);

	route_wait_for(r, &r->workers[3].lasts, 1);
	route_set_status(r, 3, 0, 0, 0);
	route_unpark(&r->workers[3]);
	fix_read_end(r->f, read, 0);
	assert_true(route_count(r, &r->workers[0].lasts) >= 1);
}

static void test_full_owner_names_another(void **state)
{
	struct route_fix *r = *state;

	route_set_status(r, 0, -EREMOTE, 2, FRAME_LAST);
	fix_read(r->f, 0, 64 * KiB);
	assert_int_equal(route_count(r, &r->workers[2].lasts), 1);
	assert_int_equal(route_count(r, &r->workers[1].fetches), 0);
}

static void test_herd_is_asked_for_what_is_cached(void **state)
{
	struct route_fix *r = *state;

	route_set_status(r, 0, -EREMOTE, 2, 0);
	fix_read(r->f, 0, 64 * KiB);
	assert_int_equal(route_count(r, &r->workers[2].cached), 1);
	assert_int_equal(route_count(r, &r->workers[2].fetches), 0);
}

static void test_answer_with_moved(void **state)
{
	struct route_fix *r = *state;

	r->slot.owner = 2; /* at the master; the reader does not know */
	fix_read(r->f, 0, 64 * KiB);
	route_tell(r);
	fix_read(r->f, 0, 64 * KiB);
	assert_int_equal(route_count(r, &r->workers[0].fetches), 1);
	assert_int_equal(route_count(r, &r->workers[2].fetches), 1);
}

/* Reads that wait at the workers, 0 is the owner of all, 1 and 2 are its replicas. */
static void start_spread(struct route_fix *r, struct fix_read *reads[8])
{
	for (uint32_t i = 0; i < 3; i++)
		route_set_park(r, i);
	for (uint32_t i = 0; i < 8; i++)
		reads[i] = fix_read_start(r->f, (uint64_t)i * MiB, 64 * KiB);
	route_wait_for(r, &r->workers[0].fetches, 2);
}

static void end_spread(struct route_fix *r, struct fix_read *reads[8])
{
	for (uint32_t i = 0; i < 3; i++)
		route_unpark(&r->workers[i]);
	for (uint32_t i = 0; i < 8; i++)
		fix_read_end(r->f, reads[i], 0);
}

static void test_copies_are_spread(void **state)
{
	struct route_fix *r = *state;
	struct fix_read *reads[8];

	route_set_copies(r, 2);
	start_spread(r, reads);
	route_wait_for(r, &r->workers[1].fetches, 2);
	assert_int_equal(route_count(r, &r->workers[1].lasts), 0);
	end_spread(r, reads);
	assert_int_equal(route_count(r, &r->workers[2].fetches), 0); /* has none */
	assert_int_equal(
		route_count(r, &r->workers[0].fetches) + route_count(r, &r->workers[1].fetches), 8);

	route_set_copies(r, COPIES_AUTO); /* the policy changed: the owner alone */
	for (uint32_t i = 0; i < 8; i++)
		fix_read(r->f, (uint64_t)i * MiB, 64 * KiB);
	assert_int_equal(
		route_count(r, &r->workers[0].fetches) + route_count(r, &r->workers[1].fetches),
		16);
	assert_true(route_count(r, &r->workers[1].fetches) <= 6);
}

static void test_hot_slots_are_spread(void **state)
{
	struct route_fix *r = *state;
	struct fix_read *reads[8];

	r->hot = true;
	route_tell(r);
	route_set_park(r, 0);
	route_set_park(r, 1);
	route_set_park(r, 2);
	for (uint32_t i = 0; i < ARRAY_SIZE(reads); i++)
		reads[i] = fix_read_start(r->f, (uint64_t)i * MiB, 64 * KiB);
	route_wait_for(r, &r->workers[0].fetches, 2);
	test_wait(route_count(r, &r->workers[1].fetches) + route_count(r, &r->workers[2].fetches) >=
		  2);
	assert_int_equal(
		route_count(r, &r->workers[1].lasts) + route_count(r, &r->workers[2].lasts), 0);
	for (uint32_t i = 0; i < 3; i++)
		route_unpark(&r->workers[i]);
	for (uint32_t i = 0; i < ARRAY_SIZE(reads); i++)
		fix_read_end(r->f, reads[i], 0);
}

/* A loaded machine may have used the hedges up, or make none in time: it is tried again then. */
static void test_hedge(void **state)
{
	struct route_fix *r = *state;
	uint32_t reads = 0;

	for (uint32_t try = 0; try < 50 && fix_counter(r->f, "hedges_won") == 0; try++) {
		struct fix_read *read;

		for (uint32_t i = 0; i < 150; i++)
			fix_read(r->f, i % 8 * MiB, 64 * KiB);
		route_set_park(r, 0);
		read = fix_read_start(r->f, 0, 64 * KiB);
		reads += 151;
		route_wait_for(r, &r->workers[0].fetches, reads);
		(void)test_wait_for(CLOCK_SECOND, fix_read_done(read));
		route_unpark(&r->workers[0]);
		fix_read_end(r->f, read, 0);
	}
	assert_true(fix_counter(r->f, "hedges_won") >= 1);
	assert_true(route_count(r, &r->workers[1].cached) <= fix_counter(r->f, "hedges"));
	assert_true(fix_counter(r->f, "hedges") <= reads / 40);
}

static void test_own_worker_first_while_it_serves(void **state)
{
	struct route_fix *r = *state;

	fix_read(r->f, 0, 64 * KiB);
	assert_int_equal(fix_count(r->f, FRAME_FETCH), 1);
	assert_int_equal(route_count(r, &r->workers[0].fetches), 0);
	/* It sends one away: the volume is not asked of it for a while. */
	pthread_mutex_lock(&r->f->lock);
	r->f->fail = -EREMOTE;
	r->f->fail_n = 1;
	pthread_mutex_unlock(&r->f->lock);
	for (uint32_t i = 1; i < 8; i++)
		fix_read(r->f, (uint64_t)i * MiB, 64 * KiB);
	assert_int_equal(fix_count(r->f, FRAME_FETCH), 2);
	assert_int_equal(route_count(r, &r->workers[0].fetches), 7);
	assert_int_equal(client_prefetch(r->f->volume, 9 * MiB, 64 * KiB), 0);
	route_wait_for(r, &r->workers[0].prefetches, 1);
}

static void test_own_worker_dies(void **state)
{
	struct route_fix *r = *state;

	fix_read(r->f, 0, 64 * KiB);
	fix_stop_worker(r->f);
	fix_read(r->f, MiB, 64 * KiB);
	assert_int_equal(route_count(r, &r->workers[0].fetches), 1);
}

/* Damage in its file, of which it cannot be told: others have the bytes. */
static void test_own_worker_dies_before_it_hears_of_damage(void **state)
{
	struct route_fix *r = *state;
	const struct fix_object *o = fix_object(r->f, "a/small-10");
	uint8_t byte = 0;
	int fd;

	r->f->local = true;
	r->f->whole = true;
	fix_read(r->f, o->offset, PIECE_BYTES);
	fd = open(fix_chunk_path(r->f, (uint32_t)(o->offset / CHUNK_BYTES)), O_RDWR | O_CLOEXEC);
	for (uint64_t i = 0; i < 16; i++)
		assert_int_equal(
			file_pwrite_exact(fd, &byte, 1, o->offset % CHUNK_BYTES + PIECE_BYTES + i),
			0);
	assert_int_equal(fsync(fd), 0);
	close(fd);
	assert_int_equal(fix_read_local(r->f, o->offset, 2 * PIECE_BYTES), -EAGAIN);
	fix_stop_worker(r->f);
	fix_read(r->f, o->offset, 2 * PIECE_BYTES);
	assert_int_equal(route_count(r, &r->workers[0].fetches), 1);
}

#define CASE(f)       cmocka_unit_test_setup_teardown(f, route_setup, route_teardown)
#define LOCAL_CASE(f) cmocka_unit_test_setup_teardown(f, route_setup_local, route_teardown)
int main(void)
{
	const struct CMUnitTest tests[] = {
		CASE(test_owner_alone_is_asked_and_no_master),
		CASE(test_deputy_when_the_owner_refuses),
		CASE(test_owner_dies_with_reads_under_way),
		CASE(test_owner_called_down_is_waited_for_no_longer),
		CASE(test_the_only_one_called_down_is_waited_for),
		cmocka_unit_test_setup_teardown(test_owner_hangs, setup_logged, teardown_logged),
		CASE(test_no_read_is_tried_on_who_hangs),
		CASE(test_owner_and_deputy_hang),
		CASE(test_a_slow_owner_is_waited_for),
		CASE(test_all_of_the_slot_are_tried),
		CASE(test_keeper_when_all_of_the_slot_are_down),
		cmocka_unit_test_setup_teardown(
			test_nobody_answers, route_setup_impatient, route_teardown),
		cmocka_unit_test_setup_teardown(
			test_nobody_waits_twice, route_setup_patient, route_teardown),
		cmocka_unit_test_setup_teardown(test_who_waits_asks_when_somebody_is_back,
			route_setup_pausing, route_teardown),
		cmocka_unit_test_setup_teardown(test_who_waits_asks_whom_the_table_names,
			route_setup_pausing, route_teardown),
		cmocka_unit_test_setup_teardown(
			test_many_that_are_back_at_once, route_setup_pausing, route_teardown),
		CASE(test_ask_x),
		CASE(test_ask_x_in_a_circle),
		CASE(test_full_owner_names_another),
		CASE(test_herd_is_asked_for_what_is_cached),
		CASE(test_answer_with_moved),
		CASE(test_hot_slots_are_spread),
		CASE(test_copies_are_spread),
		CASE(test_hedge),
		LOCAL_CASE(test_own_worker_first_while_it_serves),
		LOCAL_CASE(test_own_worker_dies),
		LOCAL_CASE(test_own_worker_dies_before_it_hears_of_damage),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
