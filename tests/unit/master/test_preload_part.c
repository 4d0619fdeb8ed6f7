/* Parts of a preload by several workers: what they come to. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "base/clock.h"
#include "master/preload_internal.h"
#include "proto/granary.pb-c.h"

static uint64_t ids[8];
static uint32_t n_ids;
static uint64_t sequence;

static uint64_t *owners(void *arg, uint32_t *ret_n, uint64_t *ret_epoch, uint64_t *ret_sequence)
{
	uint64_t *copy = calloc(n_ids + 1, sizeof(*copy));

	(void)arg;
	assert_non_null(copy);
	for (uint32_t i = 0; i < n_ids; i++) /* in no order of theirs */
		copy[i] = ids[n_ids - 1 - i];
	*ret_n = n_ids;
	*ret_epoch = 3;
	*ret_sequence = sequence;
	return copy;
}

struct fixture {
	struct preloads p;
	struct preload job;
};

static void look(struct fixture *f)
{
	f->p.owners_ns = 0;
	preload_look_at_owners(&f->p);
}

static int setup(void **state)
{
	struct fixture *f = calloc(1, sizeof(*f));

	if (!f)
		return -1;
	pthread_mutex_init(&f->p.lock, NULL);
	f->p.config.owners = owners;
	f->job.rate = PRELOAD_RATE_INIT;
	f->job.record.state = PRELOAD_RUNNING;
	n_ids = 2;
	ids[0] = 1;
	ids[1] = 2;
	sequence = 10;
	look(f);
	*state = f;
	return 0;
}

static int teardown(void **state)
{
	struct fixture *f = *state;

	preload_record_release(&f->job.record);
	pthread_mutex_destroy(&f->p.lock);
	free(f->p.owners);
	free(f);
	return 0;
}

static Granary__PreloadReport report(enum preload_state state, uint64_t done)
{
	Granary__PreloadReport m;

	granary__preload_report__init(&m);
	m.state = state;
	m.run = 1;
	m.files = 10;
	m.bytes = 1000;
	m.files_done = done;
	m.bytes_done = done * 100;
	m.bytes_fetched = done * 100;
	m.epoch = 3;
	m.sequence = sequence;
	return m;
}

static enum preload_state say(struct fixture *f, uint64_t worker, Granary__PreloadReport m)
{
	char reason[PRELOAD_REASON_BYTES];

	preload_take_part_locked(&f->p, &f->job, worker, &m);
	return preload_outcome_locked(&f->p, &f->job, reason);
}

static void all_must_end(void **state)
{
	struct fixture *f = *state;
	const struct preload_record *r = &f->job.record;

	assert_int_equal(say(f, 1, report(PRELOAD_RUNNING, 3)), PRELOAD_RUNNING);
	assert_int_equal(say(f, 1, report(PRELOAD_COMPLETE, 4)), PRELOAD_RUNNING);
	assert_non_null(strstr(r->reason, "waiting for 1 worker that owns"));
	assert_int_equal(
		say(f, 9, report(PRELOAD_COMPLETE, 0)), PRELOAD_RUNNING); /* owns nothing */
	assert_int_equal(say(f, 2, report(PRELOAD_RUNNING, 2)), PRELOAD_RUNNING);
	assert_int_equal(r->files_done, 6);
	assert_int_equal(r->bytes_done, 600);
	assert_int_equal(r->files, 10);
	assert_int_equal(say(f, 2, report(PRELOAD_COMPLETE, 6)), PRELOAD_COMPLETE);
	assert_int_equal(r->bytes_fetched, 1000);
}

/* Slots that moved are done again by the new owner; what the old one did counts no more. */
static void by_the_table_in_force(void **state)
{
	struct fixture *f = *state;

	assert_int_equal(say(f, 1, report(PRELOAD_COMPLETE, 5)), PRELOAD_RUNNING);
	sequence = 11;
	ids[0] = 3; /* the first is out */
	look(f);
	assert_int_equal(say(f, 2, report(PRELOAD_COMPLETE, 6)), PRELOAD_RUNNING);
	assert_int_equal(f->job.record.files_done, 6);
	sequence = 10; /* it has not heard of the new table */
	assert_int_equal(say(f, 3, report(PRELOAD_COMPLETE, 4)), PRELOAD_RUNNING);
	sequence = 11;
	assert_int_equal(say(f, 3, report(PRELOAD_COMPLETE, 4)), PRELOAD_COMPLETE);
	assert_int_equal(f->job.record.files_done, 10);
	assert_int_equal(f->job.record.bytes_fetched, 1500); /* the first did fetch */
}

static void the_worst_is_told(void **state)
{
	struct fixture *f = *state;
	Granary__PreloadReport m = report(PRELOAD_INCOMPLETE, 3);
	char reason[PRELOAD_REASON_BYTES];

	m.reason = (char *)(uintptr_t) "cache full";
	assert_int_equal(say(f, 1, m), PRELOAD_RUNNING);
	assert_int_equal(say(f, 2, report(PRELOAD_COMPLETE, 5)), PRELOAD_INCOMPLETE);
	assert_int_equal(preload_outcome_locked(&f->p, &f->job, reason), PRELOAD_INCOMPLETE);
	assert_string_equal(reason, "cache full");
	m = report(PRELOAD_FAILED, 4);
	m.files_failed = 1;
	m.reason = (char *)(uintptr_t) "1 of 10 objects";
	assert_int_equal(say(f, 2, m), PRELOAD_FAILED);
	assert_int_equal(say(f, 1, m), PRELOAD_FAILED);
	(void)preload_outcome_locked(&f->p, &f->job, reason);
	assert_string_equal(reason, "2 of 10 objects could not be fetched");
}

/* A worker that restarts counts from 0 again. */
static void starts_add_up(void **state)
{
	struct fixture *f = *state;
	Granary__PreloadReport m = report(PRELOAD_RUNNING, 3);

	(void)say(f, 1, m);
	m.run = 2;
	m.bytes_fetched = 50;
	m.bytes_done = 350;
	(void)say(f, 1, m);
	(void)say(f, 2, report(PRELOAD_RUNNING, 1));
	assert_int_equal(f->job.record.bytes_fetched, 450);
	assert_int_equal(f->job.record.bytes_done, 450);
}

/* The rate is the job's: those that have not ended share it. */
static void rates_are_shared(void **state)
{
	struct fixture *f = *state;

	assert_int_equal(preload_share_locked(&f->p, &f->job), 0);
	f->job.record.bandwidth = 1000;
	assert_int_equal(preload_share_locked(&f->p, &f->job), 500);
	(void)say(f, 1, report(PRELOAD_COMPLETE, 5));
	assert_int_equal(preload_share_locked(&f->p, &f->job), 1000);
	sequence = 11;
	look(f); /* it looks again */
	assert_int_equal(preload_share_locked(&f->p, &f->job), 500);
	f->job.record.bandwidth = 1;
	assert_int_equal(preload_share_locked(&f->p, &f->job), 1);
}

/* Nobody is known to own anything: as with one worker, which says how it ended. */
static void without_owners(void **state)
{
	struct fixture *f = *state;

	n_ids = 0;
	look(f);
	assert_int_equal(say(f, 0, report(PRELOAD_RUNNING, 3)), PRELOAD_RUNNING);
	assert_int_equal(say(f, 0, report(PRELOAD_COMPLETE, 10)), PRELOAD_COMPLETE);
}

static void failures_of_all(void **state)
{
	struct fixture *f = *state;
	Granary__PreloadReport m = report(PRELOAD_RUNNING, 3);
	Granary__PreloadFailure failure[2];
	Granary__PreloadFailure *pointers[2] = { &failure[0], &failure[1] };

	for (int i = 0; i < 2; i++) {
		granary__preload_failure__init(&failure[i]);
		failure[i].has_key = 1;
		failure[i].key = (ProtobufCBinaryData){ 1, (uint8_t *)(uintptr_t) "k" };
		failure[i].reason = (char *)(uintptr_t) "gone";
	}
	m.failures = pointers;
	m.n_failures = m.files_failed = 2;
	(void)say(f, 1, m);
	m.n_failures = m.files_failed = 1;
	(void)say(f, 2, m);
	(void)say(f, 2, m);
	assert_int_equal(json_array_size(f->job.record.failures), 3);
	assert_int_equal(f->job.record.files_failed, 3);
	assert_int_equal(f->job.record.files_done, 6);
	m.files_done = 9; /* of objects that lie in several chunks */
	(void)say(f, 2, m);
	assert_int_equal(f->job.record.files_done, 7);
}

#define CASE(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		CASE(all_must_end),
		CASE(by_the_table_in_force),
		CASE(the_worst_is_told),
		CASE(starts_add_up),
		CASE(rates_are_shared),
		CASE(without_owners),
		CASE(failures_of_all),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
