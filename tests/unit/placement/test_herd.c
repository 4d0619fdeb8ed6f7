/* Herds: who is served, who is sent to whom, and how fast a chunk spreads. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <string.h>
#include "placement/herd.h"

#define MIB 1048576u
#define MS  1000000ull

#define NONE PLACEMENT_NONE

static struct herd_request mib_of(uint16_t worker, uint32_t part)
{
	return (struct herd_request){ .worker = worker, .offset = part * MIB, .length = MIB };
}

static enum herd_answer ask(struct herd *h, const struct herd_request *r, uint64_t now)
{
	uint16_t worker = 0;

	return herd_ask(h, r, now, &worker);
}

static void assert_sent_to(
	struct herd *h, const struct herd_request *r, uint64_t now, uint16_t expected)
{
	uint16_t worker = NONE;

	assert_int_equal(herd_ask(h, r, now, &worker), HERD_ASK);
	assert_int_equal(worker, expected);
}

static void begin(struct herd *h)
{
	memset(h, 0, sizeof(*h));
	herd_init(h, NULL, NULL);
}

/* The owner serves them, and that is over at `now`. */
static void serve(struct herd *h, const struct herd_request *r, uint64_t now)
{
	assert_int_equal(ask(h, r, now), HERD_SERVE);
	herd_served(h, r, MS, now);
}

/* The owner is busy from now on, with requests of nobody who could be named. */
static void fill_up(struct herd *h, uint64_t now)
{
	struct herd_request r = mib_of(NONE, 0);

	r.last = true;
	while (h->serving < HERD_SERVES)
		assert_int_equal(ask(h, &r, now), HERD_SERVE);
}

static void few_are_served(void **state)
{
	struct herd_request r = mib_of(1, 0);
	static struct herd h;

	(void)state;
	begin(&h);
	fill_up(&h, 0);
	/* Nobody has it yet. */
	assert_int_equal(ask(&h, &r, 0), HERD_WAIT);
	herd_failed(&h);
	assert_int_equal(ask(&h, &r, 0), HERD_SERVE);
	assert_int_equal(ask(&h, &r, 0), HERD_WAIT);
}

/* The owner serves as long as it has time; then it sends away whom it can. */
static void takers_are_named(void **state)
{
	struct herd_request served = mib_of(100, 0);
	struct herd_request other_part = mib_of(1, 1);
	struct herd_request last = mib_of(1, 0);
	struct herd_request r = mib_of(1, 0);
	static struct herd h;

	(void)state;
	last.last = true;
	begin(&h);
	serve(&h, &served, MS);
	r.worker = NONE;
	serve(&h, &r, MS);
	fill_up(&h, MS);
	r.worker = 1;
	assert_sent_to(&h, &r, MS, 100);
	r.worker = NONE;
	assert_sent_to(&h, &r, 10 * MS, 100);
	assert_int_equal(ask(&h, &other_part, 20 * MS), HERD_WAIT);
	assert_int_equal(ask(&h, &last, 20 * MS), HERD_WAIT);
	assert_int_equal(ask(&h, &served, 20 * MS), HERD_WAIT); /* not sent to itself */
	herd_forget(&h, 100);
	assert_int_equal(ask(&h, &r, 20 * MS), HERD_WAIT);
}

/* Who was sent to X has it when X's transfers are over, and not before. */
static void sent_ones_become_takers(void **state)
{
	struct herd_request served = mib_of(100, 0);
	struct herd_request r = mib_of(1, 0);
	static struct herd h;

	(void)state;
	begin(&h);
	serve(&h, &served, MS);
	fill_up(&h, MS);
	assert_sent_to(&h, &r, MS, 100);
	r.worker = 2;
	assert_int_equal(ask(&h, &r, MS), HERD_WAIT); /* 100 is busy, and 1 has it not yet */
	/* From half of the transfer on the next one is sent there; then the one that is free. */
	assert_sent_to(&h, &r, MS + 700000, 100);
	r.worker = 3;
	assert_sent_to(&h, &r, MS + 1100000, 1);
}

/* A MiB that is there is given away while others of the chunk are still to come. */
static void parts_one_by_one(void **state)
{
	struct herd_request first = mib_of(100, 0);
	struct herd_request second = mib_of(100, 1);
	struct herd_request elsewhere = mib_of(101, 1);
	struct herd_request a = mib_of(1, 0);
	struct herd_request b = mib_of(2, 1);
	static struct herd h;

	(void)state;
	begin(&h);
	serve(&h, &elsewhere, MS);
	serve(&h, &first, MS);
	fill_up(&h, MS);
	/* 100 is sent to 101 for its second one, which takes a while. */
	assert_sent_to(&h, &second, MS, 101);
	assert_sent_to(&h, &a, MS, 100);
	/* 100 has its second one not before that. */
	assert_int_equal(ask(&h, &b, MS), HERD_WAIT);
	assert_sent_to(&h, &b, MS + 700000, 101);
}

/* A range of two parts: who has both. */
static void ranges_of_two_parts(void **state)
{
	struct herd_request first = mib_of(100, 0);
	struct herd_request second = mib_of(101, 1);
	struct herd_request both = { .worker = 1, .offset = MIB / 2, .length = MIB };
	static struct herd h;

	(void)state;
	begin(&h);
	serve(&h, &first, MS);
	serve(&h, &second, MS);
	fill_up(&h, MS);
	assert_int_equal(ask(&h, &both, 10 * MS), HERD_WAIT);
	herd_served(&h, &both, MS, 11 * MS); /* 1 has half of each, which counts as all */
	fill_up(&h, 11 * MS);
	both.worker = 2;
	assert_sent_to(&h, &both, 11 * MS, 1);
	assert_sent_to(&h, &both, 20 * MS, 1); /* and is not a taker of itself */
}

static void small_ranges_are_no_holdings(void **state)
{
	struct herd_request small = { .worker = 100, .offset = 0, .length = MIB / 4 };
	struct herd_request most = { .worker = 101, .offset = MIB / 4, .length = MIB };
	struct herd_request r = { .worker = 1, .offset = MIB / 4, .length = MIB / 2 };
	static struct herd h;

	(void)state;
	begin(&h);
	serve(&h, &small, MS);
	fill_up(&h, MS);
	assert_int_equal(ask(&h, &r, MS), HERD_WAIT);
	herd_served(&h, &most, MS, MS);
	fill_up(&h, MS);
	assert_sent_to(&h, &r, MS, 101);
}

/* The last ones that took something; and nobody is named for what another had in its place. */
static void bounded(void **state)
{
	struct herd_request r = mib_of(NONE, 0);
	static struct herd h;

	(void)state;
	begin(&h);
	for (uint16_t i = 0; i < 3 * HERD_TAKERS; i++) {
		struct herd_request last = mib_of(i, i % HERD_PARTS);

		last.last = true;
		serve(&h, &last, i * MS);
	}
	assert_int_equal(h.n, HERD_TAKERS);
	fill_up(&h, 4000 * MS);
	for (uint32_t i = 0; i < HERD_TAKERS / HERD_PARTS; i++) {
		uint16_t worker = 0;

		assert_int_equal(herd_ask(&h, &r, 4000 * MS, &worker), HERD_ASK);
		assert_in_range(worker, 2 * HERD_TAKERS, 3 * HERD_TAKERS - 1);
		assert_int_equal(worker % HERD_PARTS, 0);
	}
	assert_int_equal(ask(&h, &r, 4000 * MS), HERD_WAIT); /* all are busy */
}

/* An hour later it knows nobody. */
static void forgets(void **state)
{
	struct herd_request served = mib_of(100, 0);
	struct herd_request r = mib_of(1, 0);
	static struct herd h;

	(void)state;
	begin(&h);
	serve(&h, &served, MS);
	fill_up(&h, MS);
	assert_sent_to(&h, &r, 3599999 * MS, 100);
	assert_int_equal(ask(&h, &r, 3700000 * MS), HERD_WAIT);
	assert_int_equal(h.n, 0);
	assert_int_equal(h.serving, HERD_SERVES);
}

static bool is_not_100(void *arg, uint16_t worker)
{
	++*(uint32_t *)arg;
	return worker != 100;
}

/* Who does not answer is asked about once. */
static void down_ones_are_forgotten(void **state)
{
	struct herd_request served = mib_of(100, 0);
	struct herd_request other = mib_of(101, 0);
	struct herd_request r = mib_of(1, 0);
	static struct herd h;
	uint32_t asked = 0;

	(void)state;
	memset(&h, 0, sizeof(h));
	herd_init(&h, is_not_100, &asked);
	serve(&h, &served, MS);
	other.last = true;
	serve(&h, &other, 2 * MS);
	fill_up(&h, 2 * MS);
	assert_sent_to(&h, &r, 2 * MS, 101);
	assert_int_equal(asked, 2);
	assert_int_equal(ask(&h, &r, 2 * MS), HERD_WAIT);
	assert_sent_to(&h, &r, 20 * MS, 101);
	assert_int_equal(asked, 3);
}

/* The measured time of a MiB follows what is measured. */
static void measures(void **state)
{
	struct herd_request r = mib_of(NONE, 0);
	static struct herd h;

	(void)state;
	begin(&h);
	for (int i = 0; i < 100; i++) {
		assert_int_equal(ask(&h, &r, 0), HERD_SERVE);
		herd_served(&h, &r, 40 * MS, 0);
	}
	assert_in_range((uint64_t)h.transfer << 10, 35 * MS, 41 * MS);
}

/* Who found nothing is named to nobody, makes transfers last longer, and is sent only to one that has had it
 * for two of them; it holds up nobody else. */
static void those_who_come_back(void **state)
{
	struct herd_request served = mib_of(100, 0);
	struct herd_request r = mib_of(1, 0);
	struct herd_wait returned = { .request = r };
	struct herd_wait fresh = { .request = mib_of(2, 0) };
	enum herd_answer answer;
	static struct herd h;
	uint16_t worker = 0;
	uint32_t hop;

	(void)state;
	begin(&h);
	serve(&h, &served, MS);
	fill_up(&h, MS);
	assert_sent_to(&h, &r, MS, 100);
	hop = h.hop;
	assert_int_equal(ask(&h, &r, 2 * MS), HERD_WAIT);
	assert_true(h.hop > hop + hop / 9);
	herd_park(&h, &returned);
	herd_park(&h, &fresh);
	assert_ptr_equal(herd_next(&h, 2 * MS, &answer, &worker), &fresh);
	assert_int_equal(answer, HERD_ASK);
	assert_int_equal(worker, 100);
	/* 1 is not named, though it should have it by now. */
	r.worker = 3;
	assert_sent_to(&h, &r, 3 * MS, 100);
	assert_null(herd_next(&h, 3 * MS, &answer, &worker));
	assert_ptr_equal(herd_next(&h, 20 * MS, &answer, &worker), &returned);
	assert_int_equal(answer, HERD_ASK);
	assert_int_equal(h.waiting, 0);
}

/* Transfers are never taken to be shorter than the owner's own, however often nobody comes back. */
static void not_shorter_than_the_owners(void **state)
{
	struct herd_request served = mib_of(100, 0);
	struct herd_request r = mib_of(NONE, 0);
	static struct herd h;

	(void)state;
	begin(&h);
	for (int i = 0; i < 100; i++) {
		assert_int_equal(ask(&h, &r, 0), HERD_SERVE);
		herd_served(&h, &r, HERD_SERVES * 40 * MS, 0);
	}
	serve(&h, &served, 0);
	fill_up(&h, 0);
	for (uint32_t i = 1; i <= 200; i++)
		assert_sent_to(&h, &r, i * 1000 * MS, 100);
	assert_int_equal(ask(&h, &r, 200015 * MS), HERD_WAIT);
	assert_sent_to(&h, &r, 200021 * MS, 100);
}

/* When the owner has time, those that nobody else may serve are first, then each part in turn. */
static void who_waits_is_served(void **state)
{
	struct herd_wait waits[4];
	enum herd_answer answer;
	static struct herd h;
	uint16_t worker;

	(void)state;
	begin(&h);
	fill_up(&h, 0);
	for (uint16_t i = 0; i < 4; i++) {
		waits[i].request = mib_of((uint16_t)(1 + i), i / 2);
		waits[i].request.last = i == 3;
		assert_int_equal(ask(&h, &waits[i].request, 0), HERD_WAIT);
		herd_park(&h, &waits[i]);
	}
	assert_null(herd_next(&h, 0, &answer, &worker));
	herd_failed(&h);
	assert_ptr_equal(herd_next(&h, 0, &answer, &worker), &waits[3]);
	assert_int_equal(answer, HERD_SERVE);
	assert_null(herd_next(&h, 0, &answer, &worker));
	herd_failed(&h);
	assert_ptr_equal(herd_next(&h, 0, &answer, &worker), &waits[0]);
	herd_failed(&h);
	assert_ptr_equal(herd_next(&h, 0, &answer, &worker), &waits[2]);
	herd_failed(&h);
	assert_ptr_equal(herd_next(&h, 0, &answer, &worker), &waits[1]);
	assert_int_equal(h.serving, HERD_SERVES);
	assert_int_equal(h.waiting, 0);
	herd_failed(&h);
	assert_null(herd_next(&h, 0, &answer, &worker));
}

/* ---- a MiB that N want at once --------------------------------------------------------------- */

#define READERS_MAX 4096u

struct spread {
	struct herd herd;
	uint64_t done_ns[READERS_MAX]; /* 0: not yet */
	bool by_owner[READERS_MAX];
	uint64_t sends_until[READERS_MAX];
	uint32_t left;
	uint32_t sent_in_vain;
};

static void spread_ask(struct spread *s, uint32_t i, uint64_t now)
{
	struct herd_request r = mib_of((uint16_t)i, 0);
	uint16_t x = 0;

	switch (herd_ask(&s->herd, &r, now, &x)) {
	case HERD_SERVE:
		s->by_owner[i] = true;
		/* The owner's link is shared by those it serves. */
		s->done_ns[i] = now + HERD_SERVES * MS;
		break;
	case HERD_ASK:
		if (s->done_ns[x] == 0 || s->done_ns[x] > now) {
			s->sent_in_vain++;
			break;
		}
		s->sends_until[x] = max(s->sends_until[x], now) + MS;
		s->done_ns[i] = s->sends_until[x];
		break;
	case HERD_WAIT:
		break;
	}
}

/* How long until the last of n has it, ns. */
static uint64_t spread_over(uint32_t n, uint32_t *ret_in_vain)
{
	static struct spread s;
	uint64_t now = 0;

	memset(&s, 0, sizeof(s));
	begin(&s.herd);
	for (s.left = n; s.left; now += MS / 4) {
		for (uint32_t i = 0; i < n; i++) {
			struct herd_request r = mib_of((uint16_t)i, 0);

			if (s.by_owner[i] && s.done_ns[i] <= now) {
				s.by_owner[i] = false;
				herd_served(&s.herd, &r, HERD_SERVES * MS, now);
			}
		}
		s.left = 0;
		for (uint32_t i = 0; i < n; i++) {
			if (s.done_ns[i] == 0)
				spread_ask(&s, i, now);
			s.left += s.done_ns[i] == 0 || s.done_ns[i] > now;
		}
		assert_true(now < 100000 * MS);
	}
	*ret_in_vain = s.sent_in_vain;
	return now;
}

/* Rounds of doubling, each of one and a half transfers, until all places for takers are used; from then on a
 * round serves as many as there are takers. One in three at most is sent in vain. */
static void spreads_by_doubling(void **state)
{
	static const uint32_t counts[] = { 1, 4, 16, 64, 256, 1024 };

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(counts); i++) {
		uint32_t in_vain = 0;
		uint64_t took = spread_over(counts[i], &in_vain);
		uint64_t halves = 2 * (HERD_SERVES + 2); /* transfers */

		for (uint32_t n = HERD_SERVES; n < counts[i]; n += min(n, HERD_TAKERS))
			halves += 3;
		print_message("%u readers: %.1f transfers, %u sent in vain\n", counts[i],
			(double)took / MS, in_vain);
		assert_true(2 * took <= halves * MS);
		assert_true(in_vain * 3 <= counts[i]);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(few_are_served),
		cmocka_unit_test(takers_are_named),
		cmocka_unit_test(sent_ones_become_takers),
		cmocka_unit_test(parts_one_by_one),
		cmocka_unit_test(ranges_of_two_parts),
		cmocka_unit_test(small_ranges_are_no_holdings),
		cmocka_unit_test(bounded),
		cmocka_unit_test(forgets),
		cmocka_unit_test(down_ones_are_forgotten),
		cmocka_unit_test(measures),
		cmocka_unit_test(those_who_come_back),
		cmocka_unit_test(not_shorter_than_the_owners),
		cmocka_unit_test(who_waits_is_served),
		cmocka_unit_test(spreads_by_doubling),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
