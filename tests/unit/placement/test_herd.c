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

static struct herd_request mib_of(uint16_t worker, uint32_t part)
{
	return (struct herd_request){ .worker = worker, .offset = part * MIB, .length = MIB };
}

static enum herd_answer ask(struct herd *h, const struct herd_request *r, uint64_t now)
{
	uint16_t worker = 0;
	uint64_t wait = 0;

	return herd_ask(h, r, now, &worker, &wait);
}

/* Has the owner serve HERD_SERVES requests of workers from 100 on. */
static void fill_up(struct herd *h, uint64_t now)
{
	for (uint16_t i = 0; i < HERD_SERVES; i++) {
		struct herd_request r = mib_of((uint16_t)(100 + i), 0);

		assert_int_equal(ask(h, &r, now), HERD_SERVE);
	}
}

static void few_are_served(void **state)
{
	struct herd_request r = mib_of(1, 0);
	struct herd h;
	uint16_t worker;
	uint64_t wait = 0;

	(void)state;
	herd_init(&h);
	fill_up(&h, 0);
	/* Nobody has it yet. */
	assert_int_equal(herd_ask(&h, &r, 0, &worker, &wait), HERD_WAIT);
	assert_true(wait > 0);
	herd_failed(&h);
	assert_int_equal(ask(&h, &r, 0), HERD_SERVE);
	assert_int_equal(ask(&h, &r, 0), HERD_WAIT);
}

static void takers_are_named(void **state)
{
	struct herd_request served = mib_of(100, 0);
	struct herd_request r = mib_of(1, 0);
	struct herd_request other_part = mib_of(1, 1);
	struct herd_request last = mib_of(1, 0);
	struct herd h;
	uint16_t worker = 0;
	uint64_t wait;

	(void)state;
	last.last = true;
	herd_init(&h);
	fill_up(&h, 0);
	herd_served(&h, &served, MS, MS);
	assert_int_equal(ask(&h, &served, MS), HERD_SERVE); /* the owner is busy again */
	assert_int_equal(ask(&h, &served, MS), HERD_WAIT);  /* not sent to itself */
	assert_int_equal(ask(&h, &other_part, MS), HERD_WAIT);
	assert_int_equal(ask(&h, &last, MS), HERD_WAIT);
	assert_int_equal(herd_ask(&h, &r, MS, &worker, &wait), HERD_ASK);
	assert_int_equal(worker, 100);
	herd_forget(&h, 100);
	r.worker = 2;
	assert_int_equal(ask(&h, &r, MS), HERD_WAIT);
}

/* Who was sent to X has it when X's transfers are over, and not before. */
static void sent_ones_become_takers(void **state)
{
	struct herd_request served = mib_of(100, 0);
	struct herd_request a = mib_of(1, 0);
	struct herd_request b = mib_of(2, 0);
	struct herd_request c = mib_of(3, 0);
	struct herd h;
	uint16_t worker = 0;
	uint64_t wait;

	(void)state;
	herd_init(&h);
	fill_up(&h, 0);
	herd_served(&h, &served, MS, MS);
	assert_int_equal(ask(&h, &served, MS), HERD_SERVE);
	assert_int_equal(herd_ask(&h, &a, MS, &worker, &wait), HERD_ASK);
	assert_int_equal(worker, 100);
	assert_int_equal(herd_ask(&h, &b, MS, &worker, &wait), HERD_ASK);
	assert_int_equal(worker, 100);
	/* Two are due at 100, and 1 has it not yet. */
	assert_int_equal(ask(&h, &c, MS), HERD_WAIT);
	assert_int_equal(herd_ask(&h, &c, MS + h.transfer_ns + 1, &worker, &wait), HERD_ASK);
	assert_int_equal(worker, 1);
}

/* A MiB that is there is given away while others of the chunk are still to come. */
static void parts_one_by_one(void **state)
{
	struct herd_request first = mib_of(100, 0);
	struct herd_request second = mib_of(100, 1);
	struct herd_request elsewhere = mib_of(101, 1);
	struct herd_request a = mib_of(1, 0);
	struct herd_request b = mib_of(2, 1);
	struct herd h;
	uint16_t worker = 0;
	uint64_t wait;

	(void)state;
	herd_init(&h);
	fill_up(&h, 0);
	herd_served(&h, &elsewhere, MS, MS);
	herd_served(&h, &first, MS, MS);
	for (uint16_t i = 0; i < 2; i++) {
		struct herd_request other = mib_of((uint16_t)(200 + i), 9);

		assert_int_equal(ask(&h, &other, MS), HERD_SERVE);
	}
	/* 100 is sent to 101 for its second one, which takes a while. */
	assert_int_equal(herd_ask(&h, &second, MS, &worker, &wait), HERD_ASK);
	assert_int_equal(worker, 101);
	assert_int_equal(herd_ask(&h, &a, MS, &worker, &wait), HERD_ASK);
	assert_int_equal(worker, 100);
	/* 100 has its second one not before that. */
	assert_int_equal(herd_ask(&h, &b, MS, &worker, &wait), HERD_ASK);
	assert_int_equal(worker, 101);
	b.worker = 3;
	assert_int_equal(ask(&h, &b, MS), HERD_WAIT);
}

static void small_ranges_are_no_holdings(void **state)
{
	struct herd_request small = { .worker = 100, .offset = 0, .length = MIB / 4 };
	struct herd_request most = { .worker = 101, .offset = MIB / 4, .length = MIB };
	struct herd_request r = { .worker = 1, .offset = MIB / 4, .length = MIB / 2 };
	struct herd h;
	uint16_t worker = 0;
	uint64_t wait;

	(void)state;
	herd_init(&h);
	fill_up(&h, 0);
	herd_served(&h, &small, MS, MS);
	assert_int_equal(ask(&h, &small, MS), HERD_SERVE);
	assert_int_equal(ask(&h, &r, MS), HERD_WAIT);
	herd_served(&h, &most, MS, MS);
	assert_int_equal(ask(&h, &small, MS), HERD_SERVE);
	assert_int_equal(herd_ask(&h, &r, MS, &worker, &wait), HERD_ASK);
	assert_int_equal(worker, 101);
}

static void bounded(void **state)
{
	struct herd h;
	uint32_t named = 0;

	(void)state;
	herd_init(&h);
	for (uint16_t i = 0; i < 3 * HERD_TAKERS; i++) {
		struct herd_request r = mib_of(i, i % HERD_PARTS);

		assert_int_equal(ask(&h, &r, i * MS), HERD_SERVE);
		herd_served(&h, &r, MS, i * MS);
	}
	assert_int_equal(h.n, HERD_TAKERS);
	for (uint32_t i = 0; i < h.n; i++) {
		assert_true(h.takers[i].worker >= 2 * HERD_TAKERS);
		named += h.takers[i].named;
	}
	assert_int_equal(named, 0);
}

/* The measured time of a MiB follows what is measured. */
static void measures(void **state)
{
	struct herd_request r = mib_of(1, 0);
	struct herd h;

	(void)state;
	herd_init(&h);
	for (int i = 0; i < 100; i++) {
		assert_int_equal(ask(&h, &r, 0), HERD_SERVE);
		herd_served(&h, &r, 40 * MS, 0);
	}
	assert_true(h.transfer_ns > 35 * MS && h.transfer_ns < 41 * MS);
}

/* ---- a MiB that N want at once --------------------------------------------------------------- */

#define READERS_MAX 4096u

struct spread {
	struct herd herd;
	uint64_t done_ns[READERS_MAX]; /* 0: not yet; UINT64_MAX: waits at the owner */
	bool by_owner[READERS_MAX];
	uint64_t sends_until[READERS_MAX];
	uint32_t left;
	uint32_t sent_in_vain;
};

static void spread_ask(struct spread *s, uint32_t i, uint64_t now)
{
	struct herd_request r = mib_of((uint16_t)i, 0);
	uint16_t x = 0;
	uint64_t wait;

	switch (herd_ask(&s->herd, &r, now, &x, &wait)) {
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
	herd_init(&s.herd);
	for (s.left = n; s.left; now += MS / 4) {
		for (uint32_t i = 0; i < n; i++) {
			struct herd_request r = mib_of((uint16_t)i, 0);

			if (s.by_owner[i] && s.done_ns[i] <= now) {
				s.by_owner[i] = false;
				herd_served(&s.herd, &r, MS, now);
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

/* Rounds of doubling, each of a transfer, until all places for takers are used; from then on a round
 * serves as many as there are takers. */
static void spreads_by_doubling(void **state)
{
	static const uint32_t counts[] = { 1, 4, 16, 64, 256, 1024 };

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(counts); i++) {
		uint32_t in_vain = 0;
		uint64_t took = spread_over(counts[i], &in_vain);
		uint64_t rounds = HERD_SERVES + 4;

		for (uint32_t n = HERD_SERVES; n < counts[i]; n += min(n, HERD_TAKERS))
			rounds += 2;
		print_message("%u readers: %.1f transfers, %u sent in vain\n", counts[i],
			(double)took / MS, in_vain);
		assert_true(took <= rounds * MS);
		assert_true(in_vain * 20 <= counts[i]);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(few_are_served),
		cmocka_unit_test(takers_are_named),
		cmocka_unit_test(sent_ones_become_takers),
		cmocka_unit_test(parts_one_by_one),
		cmocka_unit_test(small_ranges_are_no_holdings),
		cmocka_unit_test(bounded),
		cmocka_unit_test(measures),
		cmocka_unit_test(spreads_by_doubling),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
