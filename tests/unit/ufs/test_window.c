/*
 * The window of requests against a model of an origin: it serves `capacity` at a time, each for
 * `service_ms`; what is more waits in its queue, or is refused. Time is the model's.
 */
#include "ufs/window.h"
#include "base/check.h"
#include "base/clock.h"

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#define SLOTS 512

struct request {
	uint64_t sent, first_byte; /* sent 0: none */
	bool refused;
};

struct model {
	unsigned int capacity;
	uint64_t service_ns;
	bool refuses;        /* what is beyond the capacity, else queues it */
	unsigned int wanted; /* requests the reader would have in flight */
	uint64_t now;
	struct request out[SLOTS];
	uint64_t free_at[SLOTS]; /* of each server; a queueing origin */
	unsigned int in_flight;
	uint64_t answered, refused;
};

static uint64_t when_done(struct model *m)
{
	unsigned int best = 0;

	if (m->refuses)
		return m->now + m->service_ns;
	for (unsigned int i = 1; i < m->capacity; i++)
		if (m->free_at[i] < m->free_at[best])
			best = i;
	m->free_at[best] = max(m->free_at[best], m->now) + m->service_ns;
	return m->free_at[best];
}

static void send_one(struct model *m)
{
	for (unsigned int i = 0; i < SLOTS; i++) {
		struct request *r = &m->out[i];

		if (r->sent)
			continue;
		r->sent = m->now;
		r->refused = m->refuses && m->in_flight >= m->capacity;
		r->first_byte = r->refused ? m->now + CLOCK_MS : when_done(m);
		m->in_flight++;
		return;
	}
	fail();
}

/* One millisecond at a time. */
static void run(struct model *m, struct window *w, uint64_t ns)
{
	for (uint64_t end = m->now + ns; m->now < end; m->now += CLOCK_MS) {
		for (unsigned int i = 0; i < SLOTS; i++) {
			struct request *r = &m->out[i];

			if (!r->sent || r->first_byte > m->now)
				continue;
			if (r->refused)
				window_refused(w, m->now, r->sent);
			else
				window_answered(w, m->now, m->now - r->sent, m->in_flight);
			m->refused += r->refused;
			m->answered += !r->refused;
			r->sent = 0;
			m->in_flight--;
		}
		while (m->in_flight < min(window_places(w), m->wanted))
			send_one(m);
	}
}

static struct model model(unsigned int capacity, uint64_t service_ms, bool refuses)
{
	return (struct model){ .capacity = capacity,
		.service_ns = service_ms * CLOCK_MS,
		.refuses = refuses,
		.wanted = SLOTS,
		.now = CLOCK_SECOND };
}

/* An origin without limits: wide open after a few round trips, and it stays so. */
static void wide_open(void **state)
{
	struct model m = model(SLOTS, 20, false);
	struct window w;

	(void)state;
	window_init(&w, 32, 128);
	run(&m, &w, 200 * CLOCK_MS);
	assert_int_equal(window_places(&w), 128);
	run(&m, &w, 60 * CLOCK_SECOND);
	assert_int_equal(window_places(&w), 128);
	assert_int_equal(w.cuts, 0);
}

/* Refused beyond N: near N, few refusals, most of the throughput. */
static void refused(void **state)
{
	static const unsigned int capacities[] = { 4, 16, 50, 100 };

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(capacities); i++) {
		unsigned int n = capacities[i];
		struct model m = model(n, 20, true);
		struct window w;
		uint64_t sum = 0;

		window_init(&w, 32, 128);
		run(&m, &w, 5 * CLOCK_SECOND);
		m.answered = m.refused = 0;
		for (unsigned int k = 0; k < 1000; k++) {
			run(&m, &w, 10 * CLOCK_MS);
			sum += window_places(&w);
		}
		assert_in_range(sum / 1000, n * 6 / 10, n + 1);
		assert_true((double)m.answered > 0.6 * n / 0.021 * 10);
		assert_true(m.refused * 10 < m.answered);
	}
}

/* An origin that recovers is used in full again. */
static void recovers(void **state)
{
	struct model m = model(8, 20, true);
	struct window w;

	(void)state;
	window_init(&w, 32, 128);
	run(&m, &w, 5 * CLOCK_SECOND);
	assert_true(window_places(&w) <= 9);
	m.capacity = SLOTS;
	run(&m, &w, 5 * CLOCK_SECOND);
	assert_int_equal(window_places(&w), 128);
}

/* One round trip's refusals are one cut. */
static void once_per_round(void **state)
{
	struct window w;

	(void)state;
	window_init(&w, 64, 128);
	for (unsigned int i = 0; i < 64; i++)
		window_refused(&w, 2 * CLOCK_SECOND + i, CLOCK_SECOND);
	assert_int_equal(window_places(&w), 32);
	window_refused(&w, 3 * CLOCK_SECOND, 2 * CLOCK_SECOND + 100);
	assert_int_equal(window_places(&w), 16);
	for (unsigned int i = 4; i < 20; i++)
		window_refused(&w, i * CLOCK_SECOND, i * CLOCK_SECOND);
	assert_int_equal(window_places(&w), 1);
}

/* An origin that queues: smaller, all its servers busy, never below a quarter. */
static void queued(void **state)
{
	struct model m = model(40, 50, false);
	struct window w;
	uint64_t answered;

	(void)state;
	window_init(&w, 32, 256);
	run(&m, &w, 10 * CLOCK_SECOND);
	answered = m.answered;
	run(&m, &w, 10 * CLOCK_SECOND);
	assert_in_range(window_places(&w), 64, 200);
	assert_true(w.cuts > 0);
	assert_true(m.answered - answered >= 40 * 20 * 10 * 98 / 100);
	m.capacity = 1;
	run(&m, &w, 20 * CLOCK_SECOND);
	assert_int_equal(window_places(&w), 64);
}

/* Too few requests teach nothing. */
static void few(void **state)
{
	struct model m = model(SLOTS, 20, false);
	struct window w;

	(void)state;
	window_init(&w, 32, 128);
	m.wanted = 4;
	run(&m, &w, 10 * CLOCK_SECOND);
	assert_int_equal(window_places(&w), 32);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(wide_open),
		cmocka_unit_test(refused),
		cmocka_unit_test(recovers),
		cmocka_unit_test(once_per_round),
		cmocka_unit_test(queued),
		cmocka_unit_test(few),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
