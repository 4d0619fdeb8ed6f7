/* The retry decorator over an origin that follows a script; the fault decorator between them. */
#include "ufs/ufs_internal.h"
#include "base/bounds.h"
#include "base/clock.h"
#include "base/loop.h"
#include "tests/debug/faults.h"
#include "tests/debug/ufs_fault.h"
#include "tests/clock/test_clock.h"
#include "tests/unit/ufs/script.h"
#include "tests/unit/wait_table.h"

#include <pthread.h>
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#define PATIENCE (60 * CLOCK_SECOND) /* for what must come */

static int run(const struct step *steps, uint32_t n, uint64_t deadline_ns, uint32_t *ret_used,
	struct err *e)
{
	struct script *s = script_new(steps, n, deadline_ns);
	struct ufs *ufs;
	int status;

	assert_int_equal(ufs_retry_new(&s->base, &ufs), 0);
	status = finish(start(ufs, 100, 800), e);
	if (ret_used)
		*ret_used = s->at;
	ufs_free(ufs);
	return status;
}

/* ---- tests ----------------------------------------------------------------------------------- */

static void resumes(void **state)
{
	static const struct step steps[] = { { 10, -EIO, 0 }, { 0, -EAGAIN, 0 },
		{ 700, -ETIMEDOUT, 0 }, { 0, -ECONNREFUSED, 0 }, { 89, -EIO, 0 }, { SIZE, 0, 0 } };
	uint32_t used;

	(void)state;
	assert_int_equal(run(steps, ARRAY_SIZE(steps), 60 * CLOCK_SECOND, &used, NULL), 0);
	assert_int_equal(used, 6);
}

/* As a caller that wants less once 300 bytes are there. */
static int on_room(struct ufs_get *get, uint64_t at, struct ufs_room *ret_room)
{
	struct wait *w = get->arg;

	*ret_room = (struct ufs_room){ w->buf + at, 1, at < 300 ? 800 - at : 0 };
	return 0;
}

/* What is there when it breaks off is all that is wanted by then: nothing more is asked for. */
static void has_enough(void **state)
{
	static const struct step steps[] = { { 100, -EIO, 0 }, { 200, -EIO, 0 } };
	struct script *s = script_new(steps, ARRAY_SIZE(steps), 60 * CLOCK_SECOND);
	struct wait *w = wait_new("k", UFS_FILL, 100, 800);
	struct ufs *ufs;

	(void)state;
	assert_int_equal(ufs_retry_new(&s->base, &ufs), 0);
	w->get.buf = NULL;
	w->get.on_room = on_room;
	assert_int_equal(ufs_get(ufs, &w->get), 0);
	assert_int_equal(await(w), 0);
	assert_int_equal(w->get.got, 300);
	assert_int_equal(s->asked, 2);
	ufs_free(ufs);
	free(w);
}

/* All bytes came, the end of the connection was not clean: that is a success. */
static void whole_at_failure(void **state)
{
	static const struct step steps[] = { { 800, -EIO, 0 } };
	uint32_t used;

	(void)state;
	assert_int_equal(run(steps, 1, 60 * CLOCK_SECOND, &used, NULL), 0);
	assert_int_equal(used, 1);
}

/* ---- refusals -------------------------------------------------------------------------------- */

#define REFUSALS 20u

/* An origin that refuses everything with that code. */
static struct script *refusing(int code, struct ufs **ret_ufs)
{
	static struct step steps[REFUSALS];
	struct script *s = script_new(steps, REFUSALS, 60 * CLOCK_SECOND);

	for (size_t i = 0; i < REFUSALS; i++)
		steps[i] = (struct step){ 0, code, 0 };
	assert_int_equal(ufs_retry_new(&s->base, ret_ufs), 0);
	return s;
}

static int whole(struct ufs *ufs, enum ufs_class class, struct err *e)
{
	return finish(start_as(ufs, "k", class, 0, SIZE), e);
}

/* A reader's request believes the second refusal, another one the first; then nobody asks. */
static void refusals(void **state)
{
	static const struct {
		int code;
		enum ufs_class class;
		uint32_t asked;
	} cases[] = { { -ENOENT, UFS_DEMAND, 2 }, { -ESTALE, UFS_DEMAND, 2 },
		{ -ESTALE, UFS_FILL, 1 }, { -ENOENT, UFS_PREFETCH, 1 } };

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct ufs *ufs;
		struct script *s = refusing(cases[i].code, &ufs);
		struct err e;

		assert_false(ufs_refused(ufs, "k", 1, "t", 1));
		assert_int_equal(whole(ufs, cases[i].class, &e), cases[i].code);
		assert_int_equal(s->asked, cases[i].asked);
		assert_ptr_equal(strstr(e.text, "scripted E"), e.text);
		assert_int_equal(!!strstr(e.text, "(after 2 attempts"), cases[i].asked == 2);
		assert_true(ufs_refused(ufs, "k", 1, "t", 1));
		assert_false(ufs_refused(ufs, "k", 1, "u", 1));
		for (unsigned int k = 0; k < REFUSALS; k++)
			assert_int_equal(whole(ufs, cases[i].class, &e), cases[i].code);
		assert_int_equal(s->asked, cases[i].asked);
		assert_non_null(strstr(e.text, "'k' was changed or removed"));
		ufs_free(ufs);
	}
}

/* What nobody waited for counts: a reader makes up what is missing. */
static void refused_twice(void **state)
{
	struct ufs *ufs;
	struct script *s = refusing(-ESTALE, &ufs);

	(void)state;
	assert_int_equal(whole(ufs, UFS_FILL, NULL), -ESTALE);
	assert_int_equal(whole(ufs, UFS_PREFETCH, NULL), -ESTALE);
	assert_int_equal(s->asked, 1);
	assert_int_equal(whole(ufs, UFS_DEMAND, NULL), -ESTALE);
	assert_int_equal(s->asked, 2);
	ufs_free(ufs);
}

/* One server of many is behind: the bytes come, and the refusal is forgotten. */
static void slips(void **state)
{
	static const struct step steps[] = { { 0, -ESTALE, 0 }, { 0, -EACCES, 0 }, { SIZE, 0, 0 },
		{ 0, -ENOENT, 0 }, { SIZE, 0, 0 } };
	struct script *s = script_new(steps, ARRAY_SIZE(steps), 60 * CLOCK_SECOND);
	struct ufs *ufs;

	(void)state;
	assert_int_equal(ufs_retry_new(&s->base, &ufs), 0);
	assert_int_equal(whole(ufs, UFS_DEMAND, NULL), 0);
	assert_int_equal(s->asked, 3);
	assert_false(ufs_refused(ufs, "k", 1, "t", 1));
	assert_int_equal(whole(ufs, UFS_DEMAND, NULL), 0);
	assert_int_equal(s->asked, 5);
	ufs_free(ufs);
}

/* A new listing, and an hour: it is asked for again. */
static void forgets(void **state)
{
	struct ufs *ufs;
	struct script *s = refusing(-ESTALE, &ufs);
	struct wait *late;

	(void)state;
	assert_int_equal(whole(ufs, UFS_DEMAND, NULL), -ESTALE);
	ufs_forget(ufs);
	assert_false(ufs_refused(ufs, "k", 1, "t", 1));
	assert_int_equal(whole(ufs, UFS_DEMAND, NULL), -ESTALE);
	assert_int_equal(s->asked, 4);
	test_advance(3601 * CLOCK_SECOND);
	assert_false(ufs_refused(ufs, "k", 1, "t", 1));
	assert_int_equal(whole(ufs, UFS_DEMAND, NULL), -ESTALE);
	assert_int_equal(s->asked, 6);
	/* What was asked for before the listing is not believed: it is asked for once more. */
	ufs_forget(ufs);
	s->hangs = true;
	late = start_as(ufs, "k", UFS_FILL, 0, SIZE);
	ufs_forget(ufs);
	s->hangs = false;
	answer_hanging(s);
	assert_int_equal(finish(late, NULL), -ESTALE);
	assert_int_equal(s->asked, 8);
	ufs_free(ufs);
}

#define PARTS 50u

static void start_parts(struct ufs *ufs, enum ufs_class class, struct wait *parts[PARTS])
{
	for (size_t i = 0; i < PARTS; i++)
		parts[i] = start_as(ufs, "k", class, i * (SIZE / PARTS), SIZE / PARTS);
}

/* However many parts are wanted at once, and however they are. */
static void refused_in_parts(void **state)
{
	static const enum ufs_class classes[] = { UFS_DEMAND, UFS_PREFETCH };

	(void)state;
	for (size_t c = 0; c < ARRAY_SIZE(classes); c++) {
		struct ufs *ufs;
		struct script *s = refusing(-ESTALE, &ufs);
		struct wait *parts[PARTS];

		start_parts(ufs, classes[c], parts);
		for (size_t i = 0; i < PARTS; i++)
			assert_int_equal(finish(parts[i], NULL), -ESTALE);
		/* The first may have been answered before the second was asked. */
		assert_in_range(s->asked, classes[c] == UFS_DEMAND ? 2 : 1, 2);
		ufs_free(ufs);
	}
}

/* The first answers decide; then all are in flight. */
static void given_in_parts(void **state)
{
	struct script *s = script_new(NULL, 0, 60 * CLOCK_SECOND);
	struct wait *parts[PARTS];
	struct ufs *ufs;

	(void)state;
	assert_int_equal(ufs_retry_new(&s->base, &ufs), 0);
	s->hangs = true;
	start_parts(ufs, UFS_DEMAND, parts);
	assert_int_equal(s->asked, 2);
	s->hangs = false;
	answer_hanging(s);
	for (size_t i = 0; i < PARTS; i++)
		assert_int_equal(finish(parts[i], NULL), 0);
	assert_int_equal(s->asked, PARTS);
	/* Soon after, none waits for others; a while later they do. */
	for (uint32_t round = 0; round < 2; round++) {
		test_advance(round * 11 * CLOCK_SECOND);
		s->asked = 0;
		s->hangs = true;
		start_parts(ufs, UFS_PREFETCH, parts);
		assert_int_equal(s->asked, round ? 2 : PARTS);
		s->hangs = false;
		answer_hanging(s);
		for (size_t i = 0; i < PARTS; i++)
			assert_int_equal(finish(parts[i], NULL), 0);
	}
	ufs_free(ufs);
}

/* Those that are held are ended by whoever waits for them, by their deadline, and by the origin's end. */
static void held(void **state)
{
	struct script *s = script_new(NULL, 0, 2 * CLOCK_SECOND);
	struct wait *parts[PARTS];
	struct ufs *ufs;

	(void)state;
	assert_int_equal(ufs_retry_new(&s->base, &ufs), 0);
	s->hangs = true;
	start_parts(ufs, UFS_PREFETCH, parts);
	for (size_t i = PARTS / 2; i < PARTS; i++)
		ufs_cancel(ufs, &parts[i]->get);
	for (size_t i = PARTS / 2; i < PARTS; i++)
		assert_int_equal(finish(parts[i], NULL), -ECANCELED);
	s->promoted = UFS_CLASSES;
	ufs_promote(ufs, &parts[5]->get, UFS_FILL);
	assert_int_equal(s->promoted, UFS_FILL); /* what it waits for is as urgent */
	for (size_t i = 2; i < PARTS / 2; i++)
		assert_int_equal(finish(parts[i], NULL), -ETIMEDOUT);
	assert_int_equal(s->asked, 2);
	parts[2] = start_as(ufs, "k", UFS_DEMAND, 0, 1);
	assert_int_equal(s->promoted, UFS_DEMAND);
	ufs_free(ufs);
	for (size_t i = 0; i < 3; i++)
		assert_int_equal(finish(parts[i], NULL), -ECANCELED);
}

/* Both of the first requests are stuck: a reader's others do not wait until those time out, and open the object. */
static void stuck(void **state)
{
	struct script *s = script_new(NULL, 0, 60 * CLOCK_SECOND);
	struct wait *parts[PARTS];
	struct ufs *ufs;
	uint64_t t = clock_mono_ns();

	(void)state;
	assert_int_equal(ufs_retry_new(&s->base, &ufs), 0);
	s->hangs = true;
	start_parts(ufs, UFS_DEMAND, parts);
	assert_int_equal(s->asked, 2);
	s->hangs = false;
	for (size_t i = 2; i < PARTS; i++)
		assert_int_equal(finish(parts[i], NULL), 0);
	assert_in_range(clock_mono_ns() - t, 0, 10 * CLOCK_SECOND);
	ufs_free(ufs);
	for (size_t i = 0; i < 2; i++)
		assert_int_equal(finish(parts[i], NULL), -ECANCELED);
}

static bool has_failed(struct ufs *ufs, const char *key)
{
	struct ufs_wait found;

	return ufs_find_wait(ufs, key, 1, &found) && found.failures > 0;
}

/* The policy breaks while another object is on its way: that its bytes come proves nothing, and readers wait. */
static void forbidden_since(void **state)
{
	static const struct step steps[] = { { 0, -EACCES, 0 }, { SIZE, 0, 0 }, { 0, -EACCES, 0 },
		{ 0, -EACCES, 0 }, { SIZE, 0, 0 } };
	struct script *s = script_new(steps, ARRAY_SIZE(steps), 60 * CLOCK_SECOND);
	struct wait *w, *other;
	struct ufs *ufs;

	(void)state;
	assert_int_equal(ufs_retry_new(&s->base, &ufs), 0);
	s->hangs = true;
	other = start_as(ufs, "o", UFS_DEMAND, 0, SIZE);
	s->hangs = false;
	test_advance(CLOCK_MS);
	w = start(ufs, 0, SIZE);
	test_wait(has_failed(ufs, "k"));
	answer_hanging(s);
	assert_int_equal(finish(other, NULL), 0);
	assert_int_equal(finish(w, NULL), 0);
	assert_int_equal(s->asked, 5);
	ufs_free(ufs);
}

/* An object that is forbidden while others are given: final, for a minute. Else its reader waits for an operator. */
static void forbidden(void **state)
{
	static const struct step steps[] = { { 0, -EACCES, 0 }, { SIZE, 0, 0 }, { 0, -EACCES, 0 },
		{ SIZE, 0, 0 }, { 0, -EPERM, 0 }, { SIZE, 0, 0 } };
	struct script *s = script_new(steps, ARRAY_SIZE(steps), 60 * CLOCK_SECOND);
	struct wait *w;
	struct ufs *ufs;
	struct err e;

	(void)state;
	assert_int_equal(ufs_retry_new(&s->base, &ufs), 0);
	w = start(ufs, 0, SIZE);
	test_wait(has_failed(ufs, "k"));
	assert_int_equal(finish(start_as(ufs, "o", UFS_DEMAND, 0, SIZE), NULL), 0);
	assert_int_equal(finish(w, &e), -EPERM);
	assert_int_equal(s->asked, 3);
	assert_int_equal(whole(ufs, UFS_DEMAND, &e), -EPERM);
	assert_non_null(strstr(e.text, "permission denied for 'k'"));
	assert_int_equal(s->asked, 3);
	test_advance(61 * CLOCK_SECOND);
	assert_int_equal(whole(ufs, UFS_DEMAND, NULL), 0);
	assert_int_equal(whole(ufs, UFS_DEMAND, NULL), -EPERM);
	assert_int_equal(whole(ufs, UFS_FILL, &e), -EPERM);
	assert_non_null(strstr(e.text, "'k' is archived"));
	assert_int_equal(s->asked, 5);
	assert_int_equal(
		whole(ufs, UFS_DEMAND, NULL), 0); /* a reader sees at once that it was restored */
	ufs_free(ufs);
}

/* What an operator may mend is waited for like an origin that is away. */
static void mended(void **state)
{
	static const int codes[] = { -EACCES, -EKEYREJECTED, -ENXIO, -EREMCHG, -EPROTO };

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(codes); i++) {
		struct step steps[10];
		uint32_t used;

		for (size_t k = 0; k < ARRAY_SIZE(steps); k++)
			steps[k] = (struct step){ 0, k < 4 ? codes[i] : 0, 0 };
		steps[4].bytes = SIZE;
		assert_int_equal(run(steps, 10, 60 * CLOCK_SECOND, &used, NULL), 0);
		assert_int_equal(used, 5);
	}
}

/* How long a request goes on against an origin that fails, whose reader waits for `left_ns`, and that must end after `most_ns`. */
static uint64_t goes_on_for(uint64_t left_ns, uint64_t most_ns)
{
	static struct step steps[4096];
	struct script *s = script_new(steps, ARRAY_SIZE(steps), UFS_LIMITS_DEFAULT.deadline_ns);
	struct wait *w = wait_new("k", UFS_DEMAND, 100, 800);
	uint64_t began = clock_mono_ns();
	struct ufs *ufs;
	uint64_t took;

	for (size_t i = 0; i < ARRAY_SIZE(steps); i++)
		steps[i] = (struct step){ 0, -EIO, 0 };
	assert_int_equal(ufs_retry_new(&s->base, &ufs), 0);
	w->get.until_ns = left_ns ? began + left_ns : 0;
	w->get.deadline_ns = most_ns ? began + most_ns : 0;
	assert_int_equal(ufs_get(ufs, &w->get), 0);
	assert_int_equal(await(w), -ETIMEDOUT);
	took = clock_mono_ns() - began;
	ufs_free(ufs);
	free(w);
	return took;
}

static bool is_about(uint64_t took, uint64_t expected)
{
	return took > expected - CLOCK_SECOND && took < expected + CLOCK_SECOND;
}

/* No attempt begins when the reader waits no longer, after those that serve its next read (docs/deadlines.md). */
static void until(void **state)
{
	uint64_t all = wait_table_ns("the origin");
	uint64_t one = wait_table_ns("the origin, one request without a byte");

	(void)state;
	assert_true(is_about(goes_on_for(0, 0), all));
	assert_true(is_about(goes_on_for(2 * all, 0), all));
	assert_true(is_about(goes_on_for(100 * CLOCK_SECOND, 0), 100 * CLOCK_SECOND));
	assert_true(is_about(goes_on_for(CLOCK_SECOND, 0), one));
	assert_true(is_about(goes_on_for(0, 5 * CLOCK_SECOND), 5 * CLOCK_SECOND));
}

static void deadline(void **state)
{
	static const int codes[] = { -EIO, -EAGAIN, -EACCES, -EPROTO };

	(void)state;
	for (size_t k = 0; k < ARRAY_SIZE(codes); k++) {
		struct step steps[64];
		struct err e;
		uint32_t used;
		uint64_t t = clock_mono_ns();

		for (size_t i = 0; i < ARRAY_SIZE(steps); i++)
			steps[i] = (struct step){ 0, codes[k], i == 0 ? 500 * CLOCK_SECOND : 0 };
		assert_int_equal(
			run(steps, ARRAY_SIZE(steps), 2 * CLOCK_SECOND, &used, &e), -ETIMEDOUT);
		/* Neither before its time nor, even if the origin asked for a longer pause, late. */
		assert_in_range(clock_mono_ns() - t, 1800 * CLOCK_MS, PATIENCE);
		assert_true(used >= 2 && used < 64);
		assert_non_null(strstr(e.text, "(after"));
	}
}

static void retry_after(void **state)
{
	static const struct step steps[] = { { 0, -EAGAIN, 700 * CLOCK_MS }, { SIZE, 0, 0 } };
	static const struct step never[] = { { 0, -EAGAIN, 3600 * CLOCK_SECOND }, { SIZE, 0, 0 } };
	uint64_t t = clock_mono_ns();
	uint32_t used;

	(void)state;
	assert_int_equal(run(steps, 2, 60 * CLOCK_SECOND, &used, NULL), 0);
	assert_true(clock_mono_ns() - t >= 700 * CLOCK_MS);
	/* One that asks for more than there is: half of what is left. */
	assert_int_equal(run(never, 2, 2 * CLOCK_SECOND, &used, NULL), 0);
	assert_int_equal(used, 2);
}

/* Requests in progress and waiting ones end with -ECANCELED; none is lost, none follows. */
static void closing(void **state)
{
	static const struct step slow[] = { { 0, -EAGAIN, 50 * CLOCK_SECOND } };
	struct script *s = script_new(slow, 1, 60 * CLOCK_SECOND);
	struct wait *waiting, *hanging;
	struct ufs *ufs;
	uint64_t t;

	(void)state;
	assert_int_equal(ufs_retry_new(&s->base, &ufs), 0);
	waiting = start(ufs, 0, 10);
	test_wait(counter_get(&ufs_counters(ufs)->retries) > 0 || s->at > 0);
	s->hangs = true;
	hanging = start(ufs, 0, 10);
	t = clock_mono_ns();
	ufs_free(ufs);
	assert_true(clock_mono_ns() - t < 30 * CLOCK_SECOND); /* 50 s otherwise */
	assert_int_equal(finish(waiting, NULL), -ECANCELED);
	assert_int_equal(finish(hanging, NULL), -ECANCELED);
}

/* Origins share the loop on which attempts wait, and none ends with another origin. */
static void several(void **state)
{
	static const struct step again[] = { { 0, -EAGAIN, 50 * CLOCK_SECOND }, { SIZE, 0, 0 } };
	struct script *first = script_new(again, 2, 120 * CLOCK_SECOND);
	struct script *second = script_new(again, 2, 120 * CLOCK_SECOND);
	struct wait *ended, *waiting;
	struct ufs *one, *other;
	uint64_t threads = bound_used(BOUND_THREADS);

	(void)state;
	assert_int_equal(ufs_retry_new(&first->base, &one), 0);
	assert_int_equal(ufs_retry_new(&second->base, &other), 0);
	assert_int_equal(bound_used(BOUND_THREADS), threads + 1);
	ended = start(one, 0, 10);
	waiting = start(other, 0, 10);
	test_wait(first->at == 1 && second->at == 1);
	ufs_free(one);
	assert_int_equal(finish(ended, NULL), -ECANCELED);
	assert_int_equal(finish(waiting, NULL), 0);
	assert_int_equal(second->at, 2);
	ufs_free(other);
}

static void promotes(void **state)
{
	struct script *s = script_new(NULL, 0, 60 * CLOCK_SECOND);
	struct ufs_get late = { .priv = NULL };
	struct wait *w;
	struct ufs *ufs;

	(void)state;
	s->hangs = true;
	s->promoted = UFS_CLASSES;
	assert_int_equal(ufs_retry_new(&s->base, &ufs), 0);
	w = start(ufs, 0, 10);
	ufs_promote(ufs, &late, UFS_DEMAND);
	assert_int_equal(s->promoted, UFS_CLASSES);
	ufs_promote(ufs, &w->get, UFS_DEMAND);
	assert_int_equal(s->promoted, UFS_DEMAND);
	assert_true(s->deadline_ns > clock_mono_ns());
	ufs_free(ufs);
	assert_int_equal(finish(w, NULL), -ECANCELED);
}

static void *promote_soon(void *arg)
{
	struct script *s = ((void **)arg)[0];
	struct ufs *ufs = ((void **)arg)[1];
	struct wait *w;

	test_wait(s->inside);
	w = ((void **)arg)[2];
	s->promoting = true;
	ufs_promote(ufs, &w->get, UFS_DEMAND);
	return NULL;
}

/* A promotion that comes while the lower takes the request is not lost: it comes after. */
static void promotes_under_way(void **state)
{
	static const struct step steps[] = { { 0, -EIO, 0 }, { SIZE, 0, 0 } };
	struct script *s = script_new(steps, 2, 60 * CLOCK_SECOND);
	void *args[3] = { s };
	pthread_t thread;
	struct ufs *ufs;

	(void)state;
	s->promoted = UFS_CLASSES;
	s->slow = true;
	assert_int_equal(ufs_retry_new(&s->base, &ufs), 0);
	args[1] = ufs;
	args[2] = start(ufs, 0, 10);
	pthread_create(&thread, NULL, promote_soon, args);
	pthread_join(thread, NULL);
	assert_int_equal(s->promoted, UFS_DEMAND);
	assert_false(s->overtaken);
	assert_int_equal(finish(args[2], NULL), 0);
	ufs_free(ufs);
}

/* The lower keeps it beyond its deadline, in a queue: it ends soon after all the same. */
static void late(void **state)
{
	static const struct step steps[] = { { 0, -ECANCELED, 0 } };
	struct script *s = script_new(steps, 1, CLOCK_SECOND);
	uint64_t t = clock_mono_ns();
	struct wait *w;
	struct ufs *ufs;
	struct err e;

	(void)state;
	s->hangs = s->yields = true;
	assert_int_equal(ufs_retry_new(&s->base, &ufs), 0);
	w = start(ufs, 0, 10);
	test_wait(s->cancelled);
	assert_int_equal(finish(w, &e), -ETIMEDOUT);
	assert_true(clock_mono_ns() - t >= CLOCK_SECOND);
	assert_non_null(strstr(e.text, "deadline"));
	assert_int_equal(counter_get(&ufs_counters(ufs)->timeouts), 1);
	ufs_free(ufs);
}

/* The line at the end is of what was met, not of the attempt that the deadline cut off. */
static void cut_off(void **state)
{
	struct step steps[30];
	struct err e;

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(steps); i++)
		steps[i] = (struct step){ 0, i < 2 ? -EACCES : -ETIMEDOUT, 0 };
	assert_int_equal(run(steps, ARRAY_SIZE(steps), CLOCK_SECOND, NULL, &e), -ETIMEDOUT);
	assert_ptr_equal(strstr(e.text, "scripted EACCES (after"), e.text);
}

/* One that waits for its next attempt, and one that the origin has: the first ends at once, the
 * second when the origin says so. */
static void cancels(void **state)
{
	static const struct step slow[] = { { 0, -EAGAIN, 50 * CLOCK_SECOND } };
	struct script *s = script_new(slow, 1, 60 * CLOCK_SECOND);
	struct ufs_get late = { .priv = NULL };
	struct wait *w;
	struct ufs *ufs;
	uint64_t t = clock_mono_ns();

	(void)state;
	assert_int_equal(ufs_retry_new(&s->base, &ufs), 0);
	w = start(ufs, 0, 10);
	test_wait(s->at > 0);
	test_advance(10 * CLOCK_MS);
	ufs_cancel(ufs, &w->get);
	ufs_cancel(ufs, &late);
	assert_int_equal(finish(w, NULL), -ECANCELED);
	assert_true(clock_mono_ns() - t < 30 * CLOCK_SECOND); /* 50 s otherwise */
	assert_null(s->cancelled);
	s->hangs = true;
	w = start(ufs, 0, 10);
	ufs_cancel(ufs, &w->get);
	assert_non_null(s->cancelled);
	ufs_free(ufs);
	assert_int_equal(finish(w, NULL), -ECANCELED);
}

/* One that has waited for long is told of, with its cause. */
static void waits(void **state)
{
	struct step steps[64] = { 0 }; /* more than there is time for */
	struct script *s = script_new(steps, ARRAY_SIZE(steps), 5 * CLOCK_SECOND);
	struct ufs_wait found = { 0 };
	const char *key;
	uint32_t key_len;
	struct wait *w;
	struct ufs *ufs;

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(steps); i++)
		steps[i] = (struct step){ 0, -EAGAIN, CLOCK_SECOND };
	assert_int_equal(ufs_retry_new(&s->base, &ufs), 0);
	w = start(ufs, 0, 10);
	key = w->get.key;
	key_len = w->get.key_len;
	test_wait(!ufs_find_wait(ufs, key, key_len, &found) || found.failures > 0);
	assert_true(found.failures > 0);
	assert_true(found.waited_ns < 5 * CLOCK_SECOND);
	assert_false(ufs_find_wait(ufs, "no such key", 11, &found));
	assert_int_equal(finish(w, NULL), -ETIMEDOUT);
	assert_false(ufs_find_wait(ufs, key, key_len, &found));
	assert_int_equal(counter_get(&ufs_counters(ufs)->waits), 1);
	s->at = ARRAY_SIZE(steps);
	assert_int_equal(finish(start(ufs, 0, 10), NULL), 0);
	assert_int_equal(counter_get(&ufs_counters(ufs)->waits), 1);
	ufs_free(ufs);
}

static void pages(void **state)
{
	static const struct step steps[] = { { 0, -EAGAIN, 0 }, { 0, -EIO, 0 }, { 0, 0, 0 },
		{ 0, -EPROTO, 0 }, { 0, 0, 0 }, { 0, -EACCES, 0 }, { 0, -EACCES, 0 },
		{ 0, -EACCES, 0 }, { 0, -EACCES, 0 }, { 0, -EACCES, 0 }, { 0, -EACCES, 0 },
		{ 0, -EACCES, 0 }, { 0, -EACCES, 0 }, { 0, -EIO, 0 }, { 0, -ECONNREFUSED, 0 },
		{ 0, -EACCES, 0 }, { 0, -EACCES, 0 }, { 0, -EACCES, 0 } };
	struct script *s = script_new(steps, ARRAY_SIZE(steps), 60 * CLOCK_SECOND);
	struct ufs_page_request request = { 0 };
	struct ufs_page page;
	struct ufs *ufs;
	struct err e = ERR_INIT;

	(void)state;
	ufs_page_init(&page);
	assert_int_equal(ufs_retry_new(&s->base, &ufs), 0);
	assert_int_equal(ufs_list_page(ufs, &request, &page, &e), 0);
	assert_int_equal(s->at, 3);
	assert_int_equal(ufs_list_page(ufs, &request, &page, &e), 0); /* a slip */
	assert_int_equal(s->at, 5);
	assert_int_equal(ufs_list_page(ufs, &request, &page, &e), -EACCES);
	assert_int_equal(s->at, 13);
	assert_int_equal(
		ufs_probe(ufs, &e), -ECONNREFUSED); /* one that may pass, then one for the person */
	assert_int_equal(s->probes, 2);
	assert_int_equal(ufs_probe(ufs, &e), -EACCES);
	assert_int_equal(s->probes, 5);
	ufs_free(ufs);
	ufs_page_release(&page);
}

/* A thousand requests over an origin that fails in every way that passes: all right. */
static void with_faults(void **state)
{
	struct faults *faults = faults_new();
	struct script *s = script_new(NULL, 0, 60 * CLOCK_SECOND);
	struct wait *w[1000];
	struct ufs *ufs = &s->base;

	(void)state;
	s->base.limits.request_timeout_ns = 50 * CLOCK_MS;
	assert_non_null(faults);
	assert_int_equal(faults_set(faults,
				 "seed=7 ufs.eio=0.1 ufs.short=0.1 ufs.stall=0.02 "
				 "ufs.delay=1/1",
				 NULL),
		0);
	assert_int_equal(ufs_fault_new(ufs, faults, &ufs, NULL), 0);
	assert_int_equal(ufs_retry_new(ufs, &ufs), 0);
	for (size_t i = 0; i < ARRAY_SIZE(w); i++) {
		w[i] = start(ufs, i % 500, 1 + i % 400);
		ufs_promote(ufs, &w[i]->get, UFS_DEMAND);
	}
	for (size_t i = 0; i < ARRAY_SIZE(w); i++) {
		assert_int_equal(finish(w[i], NULL), 0);
	}
	assert_true(counter_get(&ufs_counters(ufs)->retries) > 100);
	ufs_free(ufs);
	faults_free(faults);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(resumes),
		cmocka_unit_test(has_enough),
		cmocka_unit_test(whole_at_failure),
		cmocka_unit_test(refusals),
		cmocka_unit_test(refused_twice),
		cmocka_unit_test(slips),
		cmocka_unit_test(forgets),
		cmocka_unit_test(refused_in_parts),
		cmocka_unit_test(given_in_parts),
		cmocka_unit_test(held),
		cmocka_unit_test(stuck),
		cmocka_unit_test(forbidden),
		cmocka_unit_test(forbidden_since),
		cmocka_unit_test(mended),
		cmocka_unit_test(deadline),
		cmocka_unit_test(until),
		cmocka_unit_test(cut_off),
		cmocka_unit_test(retry_after),
		cmocka_unit_test(closing),
		cmocka_unit_test(several),
		cmocka_unit_test(promotes),
		cmocka_unit_test(promotes_under_way),
		cmocka_unit_test(late),
		cmocka_unit_test(cancels),
		cmocka_unit_test(waits),
		cmocka_unit_test(pages),
		cmocka_unit_test(with_faults),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
