/* The window of requests in flight. See window.h. */
#include "ufs/window.h"
#include "base/check.h"
#include "base/clock.h"

#include <math.h>

#define CUBIC_C         4.0 /* requests per second cubed: from 64 back to 128 in 2.5 s */
#define CUT             0.5 /* of a refusal */
#define QUEUE_CUT_LEAST 0.8 /* of a queueing delay, at most that much at once */
#define FLOOR_SHARE     4u  /* latency leaves this part of the maximum */
#define SMOOTH          8.0 /* latencies are averaged over about so many */
#define PERIOD_NS       (30 * CLOCK_SECOND)
#define ROUND_NS        (100 * CLOCK_MS) /* queueing is judged so often, or once per latency */

void window_init(struct window *w, unsigned int initial, unsigned int max)
{
	ensure(initial >= 1 && initial <= max);
	*w = (struct window){ .max = max, .size = initial, .least_ns = { UINT64_MAX, UINT64_MAX } };
}

unsigned int window_places(const struct window *w)
{
	return (unsigned int)w->size;
}

/* To `size`, and back towards `peak`. */
static void cut(struct window *w, uint64_t now, double size, double peak)
{
	w->size = size;
	w->peak = peak;
	w->plateau_s = cbrt((peak - size) / CUBIC_C);
	w->grown_s = 0;
	w->reno = size;
	w->cut_ns = now;
	w->cuts++;
}

void window_refused(struct window *w, uint64_t now_ns, uint64_t sent_ns)
{
	if (sent_ns >= w->cut_ns || w->cuts == 0)
		cut(w, now_ns, fmax(1, w->size * CUT), w->size);
}

/* The least latency of the last one to two periods: an origin that became slower, or a way that
 * became longer, is taken for what it is after a while. */
static uint64_t least_latency(struct window *w, uint64_t now, uint64_t latency)
{
	if (w->period_ns == 0 || now - w->period_ns >= PERIOD_NS) {
		w->least_ns[1] = w->least_ns[0];
		w->least_ns[0] = latency;
		w->period_ns = now;
	}
	w->least_ns[0] = min(w->least_ns[0], latency);
	return min(w->least_ns[0], w->least_ns[1]);
}

/* True when the origin queues, and the window was made smaller for it or is as small as may be. */
static bool shrink_for_queue(struct window *w, uint64_t now, uint64_t least)
{
	unsigned int floor = max(1u, w->max / FLOOR_SHARE);
	double limit = fmax((double)WINDOW_QUEUE_NS, 2 * (double)least);
	double queue = w->latency_ns - (double)least;

	if (queue <= limit)
		return false;
	if (w->size <= floor)
		return true;
	if ((double)(now - w->cut_ns) >= fmax((double)ROUND_NS, w->latency_ns)) {
		double size = fmax(floor, w->size * fmax(QUEUE_CUT_LEAST, limit / queue));

		cut(w, now, size, size); /* no refusal: grows slowly at first, from here */
	}
	return true;
}

static void grow(struct window *w)
{
	if (w->peak <= 0) {
		w->size += 1; /* never cut: twice as many each round trip */
	} else {
		double t = w->grown_s - w->plateau_s;

		w->reno += 1 / w->size;
		w->size = fmax(w->size, fmax(w->reno, w->peak + CUBIC_C * t * t * t));
	}
	w->size = fmin(w->size, w->max);
}

void window_answered(struct window *w, uint64_t now_ns, uint64_t latency_ns, unsigned int in_flight)
{
	uint64_t least = least_latency(w, now_ns, latency_ns);
	bool full = in_flight >= w->size / 2;

	if (w->latency_ns <= 0)
		w->latency_ns = (double)latency_ns;
	w->latency_ns += ((double)latency_ns - w->latency_ns) / SMOOTH;
	if (full && w->last_ns)
		w->grown_s += (double)(now_ns - w->last_ns) / (double)CLOCK_SECOND;
	w->last_ns = now_ns;
	if (full && !shrink_for_queue(w, now_ns, least))
		grow(w);
}
