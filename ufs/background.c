/* How many requests fill the way to an origin. See background.h. */
#include "ufs/background.h"
#include "base/check.h"
#include "base/clock.h"
#include "base/layout.h"

#include <math.h>

#define STEP        0.6  /* of the size, tried */
#define GROW_FIRST  2.0  /* times the size, until answers queue for the first time */
#define GROW        1.25 /* times the size, afterwards */
#define ALONE       1.1  /* times the least time of an answer: it did not queue */
#define QUEUED      1.25 /* times that: it did */
#define SAME        0.85 /* of the rate before: as much as before, on a noisy way */
#define WORSE       2u   /* rounds with fewer bytes that undo a step: one may be noise */
#define FORGET      0.97 /* the best rate is worth so much less each round */
#define REMEMBER    1.03 /* the least time is worth so much more */
#define ROUND_NS    (100 * CLOCK_MS)
#define ROUND_TURNS 2u /* answers of a round, times the size */
#define HOLD_MIN    (CLOCK_SECOND / 2)
#define HOLD_MAX    (60 * CLOCK_SECOND)

void background_init(struct background *b, unsigned int max)
{
	ensure(max >= 1);
	*b = (struct background){ .max = max,
		.size = min(max, BACKGROUND_FIRST),
		.hold = { .min_ns = HOLD_MIN, .max_ns = HOLD_MAX } };
}

unsigned int background_places(const struct background *b)
{
	return (unsigned int)b->size;
}

static void begin_round(struct background *b, uint64_t now)
{
	b->round_ns = now;
	b->bytes = 0;
	b->round_least_ns = 0;
	b->answers = 0;
	b->full = 0;
}

/* Fewer in flight brought fewer bytes: the answers did not queue, they take that long. */
static void undo_step(struct background *b, uint64_t now)
{
	b->size = b->before;
	b->before = 0;
	b->least_ns = b->round_least_ns;
	b->resume_ns = now + backoff_next(&b->hold);
}

/* The round's rate is that of the present size. */
static void judge(struct background *b, uint64_t now, double rate)
{
	double least = min(BACKGROUND_LEAST, b->max);
	bool fewer = rate < SAME * b->rate;

	b->worse = fewer ? b->worse + 1 : 0;
	if (rate > b->rate)
		b->rate = b->rate > 0 ? (rate + b->rate) / 2 : rate;
	else
		b->rate *= FORGET;
	if (b->before > 0 && fewer) {
		if (b->worse >= WORSE)
			undo_step(b, now);
	} else if (now >= b->resume_ns && b->size > least &&
		   b->round_least_ns > QUEUED * b->least_ns) {
		b->before = b->size;
		b->size = fmax(least, b->size * STEP);
		b->queued = true;
	} else {
		b->before = 0;
	}
}

/* Of a large answer counts how long UNIT_BYTES took. */
static void note_time(struct background *b, uint64_t begin_ns, uint64_t body_ns, uint64_t bytes)
{
	double units = fmax(1, (double)bytes / (double)UNIT_BYTES);
	double took = (double)begin_ns + (double)body_ns / units;

	b->round_least_ns = b->answers == 0 ? took : fmin(b->round_least_ns, took);
}

/* The first answers did not wait for others. */
static void learn_least(struct background *b)
{
	if (b->least_ns == 0 || b->round_least_ns < b->least_ns)
		b->least_ns = b->round_least_ns;
}

void background_answered(struct background *b, uint64_t now_ns, uint64_t begin_ns, uint64_t body_ns,
	uint64_t bytes, unsigned int in_flight)
{
	bool full;

	if (b->round_ns == 0)
		begin_round(b, now_ns);
	note_time(b, begin_ns, body_ns, bytes);
	b->bytes += bytes;
	b->answers++;
	b->full += in_flight + in_flight / 8 + 1 >= background_places(b);
	if (b->answers < ROUND_TURNS * background_places(b))
		return;
	full = b->full > b->answers / 2;
	if (full && b->least_ns > 0 && b->size < b->max &&
		b->round_least_ns < ALONE * b->least_ns) {
		b->before = 0;
		b->size = fmin(b->max, b->size * (b->queued ? GROW : GROW_FIRST));
	} else if (b->least_ns > 0 && now_ns - b->round_ns < ROUND_NS) {
		return;
	} else {
		if (full && b->least_ns > 0)
			judge(b, now_ns, (double)b->bytes / (double)(now_ns - b->round_ns) * 1e9);
		b->least_ns *= REMEMBER;
	}
	learn_least(b);
	begin_round(b, now_ns);
}
