/*
 * The destinations of a lane against a model. The model knows nothing of states: it keeps what happened to each request, and from
 * that alone says whether a byte can still be written, and whether the answer is complete. All sequences of events are walked.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <errno.h>
#include <stdbool.h>
#include <string.h>
#include "net/lane_table.h"

enum { SLOTS = 2, BYTES = 1000 };

/* What happened to the request of a destination since it was asked for. */
struct facts {
	bool asked;
	bool header;
	bool absent;
	bool immediate;
	bool cancelled;
};

struct world {
	struct lane_table table;
	struct facts facts[SLOTS];
	uint32_t cookies[SLOTS]; /* the last of each owner; 0xffffffff: none yet */
	unsigned int owners[SLOTS];
	unsigned long verdicts[LANE_BREAK + 1];
};

#define NO_COOKIE 0xffffffffu

/* May the peer, if it keeps to the protocol, still write? */
static bool may_write(const struct facts *f)
{
	return f->asked && !f->absent && !f->immediate;
}

/* What a peer that keeps to the protocol does not do. */
static bool lies(const struct facts *f, enum lane_event event)
{
	switch (event) {
	case LANE_ON_HEADER:
		return !f->asked || f->absent || (f->header && !f->cancelled);
	case LANE_ON_ABSENT:
		return !f->asked || f->absent || f->immediate || (f->header && !f->cancelled);
	case LANE_ON_IMMEDIATE:
		return !f->asked || f->absent || f->immediate;
	case LANE_ON_CANCEL:
	case LANE_ON_FENCE:
	case LANE_N_EVENTS:
		break;
	}
	return false;
}

static void happen(struct facts *f, enum lane_event event)
{
	switch (event) {
	case LANE_ON_HEADER:
		f->header = true;
		break;
	case LANE_ON_ABSENT:
		f->absent = true;
		break;
	case LANE_ON_IMMEDIATE:
		f->immediate = true;
		break;
	case LANE_ON_CANCEL:
		f->cancelled = true;
		break;
	case LANE_ON_FENCE:
	case LANE_N_EVENTS:
		break;
	}
}

/* What must come of it, by the facts alone. */
static enum lane_verdict expected(const struct facts *f)
{
	if (may_write(f))
		return LANE_WAIT;
	if (f->cancelled || f->absent)
		return LANE_RELEASE;
	return f->header ? LANE_COMPLETE : LANE_WAIT;
}

static void world_event(struct world *w, unsigned int i, enum lane_event event)
{
	struct facts before = w->facts[i];
	enum lane_verdict verdict;
	void *owner;

	verdict = lane_table_event(&w->table, w->cookies[i], event, &owner);
	w->verdicts[verdict]++;
	if (lies(&before, event)) {
		assert_int_equal(verdict, LANE_BREAK);
		/* Nothing is freed by a lie. */
		assert_int_equal(
			lane_table_state(&w->table, w->cookies[i]) != LANE_FREE, before.asked);
		return;
	}
	happen(&w->facts[i], event);
	assert_int_equal(verdict, expected(&w->facts[i]));
	assert_ptr_equal(owner, &w->owners[i]);
	if (verdict != LANE_WAIT) {
		assert_false(may_write(&w->facts[i]));
		memset(&w->facts[i], 0, sizeof(w->facts[i]));
	}
}

struct freed {
	struct world *world;
	unsigned int n;
};

static void on_freed(void *arg, void *owner, enum lane_verdict verdict)
{
	struct freed *freed = arg;
	size_t i = (size_t)((unsigned int *)owner - freed->world->owners);
	struct facts *f = &freed->world->facts[i];

	assert_true(i < SLOTS && f->asked);
	assert_int_equal(verdict, f->cancelled ? LANE_RELEASE : LANE_REPEAT);
	memset(f, 0, sizeof(*f));
	freed->n++;
}

static void world_fence(struct world *w)
{
	struct freed freed = { .world = w };
	unsigned int n = 0;

	for (unsigned int i = 0; i < SLOTS; i++)
		n += w->facts[i].asked;
	lane_table_fence(&w->table, on_freed, &freed);
	assert_int_equal(freed.n, n);
	assert_int_equal(w->table.bytes, 0);
}

static void world_ask(struct world *w, unsigned int i)
{
	w->cookies[i] = NO_COOKIE;
	assert_int_equal(lane_table_ask(&w->table, &w->owners[i], BYTES, &w->cookies[i]), 0);
	w->facts[i].asked = true;
}

static void world_check(const struct world *w)
{
	uint64_t bytes = 0;
	uint64_t quarantined = 0;

	for (unsigned int i = 0; i < SLOTS; i++) {
		const struct facts *f = &w->facts[i];

		bytes += f->asked ? BYTES : 0;
		quarantined += f->asked && f->cancelled ? BYTES : 0;
		if (w->cookies[i] != NO_COOKIE)
			assert_int_equal(
				lane_table_state(&w->table, w->cookies[i]) != LANE_FREE, f->asked);
	}
	assert_int_equal(w->table.bytes, bytes);
	assert_int_equal(w->table.quarantined, quarantined);
	assert_int_equal(
		lane_table_choked(&w->table), quarantined > SLOTS * BYTES / LANE_QUARANTINE_PART);
	/* Two destinations never have the same cookie. */
	if (w->facts[0].asked && w->facts[1].asked)
		assert_int_not_equal(w->cookies[0], w->cookies[1]);
}

/* Step 0..: for each request: ask or one of the events; the last step is the fence. */
#define STEPS_OF_ONE (1 + LANE_ON_FENCE)
#define STEPS        (SLOTS * STEPS_OF_ONE + 1)

static bool world_step(struct world *w, unsigned int step)
{
	unsigned int i = step / STEPS_OF_ONE;
	unsigned int what = step % STEPS_OF_ONE;

	if (step == STEPS - 1) {
		world_fence(w);
		return true;
	}
	if (what == 0) {
		if (w->facts[i].asked)
			return false;
		world_ask(w, i);
		return true;
	}
	/* A request ends once, and not before it began. */
	if (what - 1 == LANE_ON_CANCEL && (!w->facts[i].asked || w->facts[i].cancelled))
		return false;
	if (w->cookies[i] == NO_COOKIE)
		return false;
	world_event(w, i, (enum lane_event)(what - 1));
	return true;
}

static void world_init(struct world *w)
{
	memset(w, 0, sizeof(*w));
	assert_int_equal(lane_table_init(&w->table, SLOTS, SLOTS * BYTES), 0);
	for (unsigned int i = 0; i < SLOTS; i++)
		w->cookies[i] = NO_COOKIE;
}

/* A sequence is run from its beginning; one that has an impossible step ends there, with all that would follow. */
static unsigned int run(
	const uint8_t *steps, unsigned int n, unsigned long verdicts[LANE_BREAK + 1])
{
	struct world w;
	unsigned int done = 0;

	world_init(&w);
	while (done < n && world_step(&w, steps[done])) {
		world_check(&w);
		done++;
	}
	for (unsigned int v = 0; v <= LANE_BREAK; v++)
		verdicts[v] += w.verdicts[v];
	world_fence(&w);
	lane_table_release(&w.table);
	return done;
}

static void test_all_sequences(void **state)
{
	enum { DEPTH = 6 };
	unsigned long verdicts[LANE_BREAK + 1] = { 0 };
	uint8_t steps[DEPTH] = { 0 };
	unsigned long sequences = 0;

	(void)state;
	for (;;) {
		unsigned int at = run(steps, DEPTH, verdicts);

		sequences += at == DEPTH;
		at = at < DEPTH ? at : DEPTH - 1;
		memset(steps + at + 1, 0, DEPTH - at - 1);
		while (++steps[at] == STEPS) {
			steps[at] = 0;
			if (at-- == 0)
				goto walked;
		}
	}
walked:
	/* Each verdict was met, so the walk was one. LANE_REPEAT is the fence's. */
	assert_true(sequences > 10000);
	assert_true(verdicts[LANE_WAIT] && verdicts[LANE_COMPLETE] && verdicts[LANE_RELEASE] &&
		    verdicts[LANE_BREAK]);
	assert_int_equal(verdicts[LANE_REPEAT], 0);
}

/* A cookie is not met again before its slot was used 65,536 times, and slots take turns. */
static void test_cookies(void **state)
{
	enum { N = 5 };
	struct lane_table table;
	uint32_t first[N];
	uint32_t cookie;
	void *owner;

	(void)state;
	assert_int_equal(lane_table_init(&table, N, 100), 0);
	for (unsigned int turn = 0; turn < 65536 * N; turn++) {
		assert_int_equal(lane_table_ask(&table, &table, 1, &cookie), 0);
		assert_int_equal(cookie >> 16, turn % N);
		assert_int_equal(cookie & 0xffff, turn / N);
		if (turn < N)
			first[turn] = cookie;
		else
			assert_int_equal(lane_table_event(&table, first[turn % N],
						 LANE_ON_IMMEDIATE, &owner),
				LANE_BREAK);
		assert_int_equal(
			lane_table_event(&table, cookie, LANE_ON_ABSENT, &owner), LANE_RELEASE);
	}
	assert_int_equal(lane_table_ask(&table, &table, 1, &cookie), 0);
	assert_int_equal(cookie, first[0]);
	assert_int_equal(lane_table_event(&table, cookie, LANE_ON_ABSENT, &owner), LANE_RELEASE);
	lane_table_release(&table);
}

/* What a peer sends as a cookie is never an index. */
static void test_foreign_cookies(void **state)
{
	static const uint32_t cookies[] = { 0, 1, 0x10000, 0x10001, 0x20000, 0xffff0000,
		0xffffffff };
	struct lane_table table;
	uint32_t cookie;
	void *owner;

	(void)state;
	assert_int_equal(lane_table_init(&table, 2, 100), 0);
	assert_int_equal(lane_table_ask(&table, &table, 1, &cookie), 0);
	for (size_t i = 0; i < ARRAY_SIZE(cookies); i++)
		for (enum lane_event event = LANE_ON_HEADER; event < LANE_ON_CANCEL; event++) {
			if (cookies[i] == cookie)
				continue;
			assert_int_equal(
				lane_table_event(&table, cookies[i], event, &owner), LANE_BREAK);
			assert_null(owner);
		}
	assert_int_equal(lane_table_state(&table, cookie), LANE_ASKED);
	assert_int_equal(lane_table_event(&table, cookie, LANE_ON_ABSENT, &owner), LANE_RELEASE);
	lane_table_release(&table);
}

static void test_share(void **state)
{
	struct lane_table table;
	uint32_t cookies[8];
	uint32_t more;
	void *owner;

	(void)state;
	assert_int_equal(lane_table_init(&table, 8, 80), 0);
	for (unsigned int i = 0; i < 8; i++)
		assert_int_equal(lane_table_ask(&table, &table, i < 7 ? 10 : 9, &cookies[i]), 0);
	assert_int_equal(lane_table_ask(&table, &table, 1, &more), -ENOBUFS); /* no slot */
	assert_int_equal(
		lane_table_event(&table, cookies[0], LANE_ON_ABSENT, &owner), LANE_RELEASE);
	assert_int_equal(
		lane_table_ask(&table, &table, 12, &more), -ENOBUFS); /* beyond the share */
	assert_int_equal(lane_table_ask(&table, &table, 11, &cookies[0]), 0);
	assert_int_equal(lane_table_event(&table, cookies[1], LANE_ON_CANCEL, &owner), LANE_WAIT);
	assert_false(lane_table_choked(&table)); /* 10 of 80 are an eighth */
	assert_int_equal(lane_table_event(&table, cookies[7], LANE_ON_CANCEL, &owner), LANE_WAIT);
	assert_true(lane_table_choked(&table));
	for (unsigned int i = 0; i < 8; i++)
		assert_int_equal(
			lane_table_event(&table, cookies[i], LANE_ON_ABSENT, &owner), LANE_RELEASE);
	lane_table_release(&table);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_all_sequences),
		cmocka_unit_test(test_cookies),
		cmocka_unit_test(test_foreign_cookies),
		cmocka_unit_test(test_share),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
