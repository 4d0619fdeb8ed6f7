/* Requests that nobody waits for. See background.h. */
#include "ufs/background.h"
#include "base/check.h"
#include "base/clock.h"

#include <math.h>

#define SMOOTH      8.0  /* times are averaged over about so many answers */
#define STEP        0.6  /* of the size, tried */
#define GROW        1.25 /* of the size, when it matters no more */
#define SAME        0.85 /* of the rate before: as much as before, on a noisy way */
#define WORSE       2u   /* rounds with fewer bytes that undo a step: one may be noise */
#define FORGET      0.97 /* the best rate is worth so much less each round */
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
	b->answers = 0;
	b->full = 0;
}

static void undo_step(struct background *b, uint64_t now)
{
	b->size = b->before;
	b->before = 0;
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
	if (b->body_ns <= b->begin_ns) { /* latency */
		b->before = 0;
		b->size = fmin(b->max, b->size * GROW);
	} else if (b->before > 0 && fewer) {
		if (b->worse >= WORSE)
			undo_step(b, now);
	} else if (now >= b->resume_ns && b->size > least) {
		b->before = b->size;
		b->size = fmax(least, b->size * STEP);
	} else {
		b->before = 0;
	}
}

void background_answered(struct background *b, uint64_t now_ns, uint64_t begin_ns, uint64_t body_ns,
	uint64_t bytes, unsigned int in_flight)
{
	if (b->round_ns == 0) {
		b->begin_ns = (double)begin_ns;
		b->body_ns = (double)body_ns;
		begin_round(b, now_ns);
	}
	b->begin_ns += ((double)begin_ns - b->begin_ns) / SMOOTH;
	b->body_ns += ((double)body_ns - b->body_ns) / SMOOTH;
	b->bytes += bytes;
	b->answers++;
	b->full += in_flight + in_flight / 8 + 1 >= background_places(b);
	if (now_ns - b->round_ns < ROUND_NS || b->answers < ROUND_TURNS * background_places(b))
		return;
	if (b->full > b->answers / 2)
		judge(b, now_ns, (double)b->bytes / (double)(now_ns - b->round_ns) * 1e9);
	begin_round(b, now_ns);
}
