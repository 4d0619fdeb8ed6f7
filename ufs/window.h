/*
 * How many requests may be in flight to an origin: as many as it answers without refusing or
 * queueing them.
 *
 * - A refusal (503, 429) halves the window, once per round trip: requests sent before the last cut
 *   say nothing new. It grows back as CUBIC does (RFC 9438): fast to near where it was refused,
 *   slowly past it; at least by one per round trip, as Reno.
 * - When answers take long because the origin queues them, more in flight brings nothing: past a
 *   queueing delay of WINDOW_QUEUE_NS (and of twice the least latency) the window shrinks, as
 *   LEDBAT's does (RFC 6817), but not below a quarter of its maximum: latency alone is weak
 *   evidence, and a window too small costs more than one too large.
 * - Requests too few to fill it teach nothing, and do not let it grow.
 *
 * A value; one thread. Times are monotonic nanoseconds.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#define WINDOW_QUEUE_NS 100000000ull

struct window {
	unsigned int max;
	double size;       /* 1..max */
	double peak;       /* where it was cut; 0: never yet */
	double plateau_s;  /* of growth until the peak is reached again: CUBIC's K */
	double grown_s;    /* of growth since the cut; stands still while too few are in flight */
	double reno;       /* what Reno's window would be */
	uint64_t cut_ns;   /* the last reduction */
	uint64_t last_ns;  /* the last answer */
	double latency_ns; /* smoothed; 0: none yet */
	uint64_t least_ns[2]; /* least latency of this and of the last period */
	uint64_t period_ns;   /* begin of this period */
	uint64_t cuts;
};

/* 1 <= initial <= max. */
void window_init(struct window *w, unsigned int initial, unsigned int max);

/* Requests that may be in flight. */
unsigned int window_places(const struct window *w);

/* A request was answered, its first byte after `latency_ns`; `in_flight` of its kind were out,
 * itself among them. */
void window_answered(
	struct window *w, uint64_t now_ns, uint64_t latency_ns, unsigned int in_flight);

/* One that was sent at `sent_ns` was refused for overload. */
void window_refused(struct window *w, uint64_t now_ns, uint64_t sent_ns);
