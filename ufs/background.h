/*
 * How many GETs of the lower classes may be in flight: as many as keep the way to the origin full.
 * More of them bring nothing, and make every reader's request wait for its share of the way.
 *
 * Only the rate tells whether the way is full. While bodies take longer than answers take to begin,
 * the number shrinks step by step for as long as as many bytes come as before; a step after which
 * fewer came, twice in a row, is undone, and not tried again for a while that doubles each time. An
 * origin that takes long to begin (latency) needs many in flight: there the number grows back and
 * nothing is tried.
 *
 * The idea is that of PCC (Dong et al., NSDI 2015): judge by what an experiment brought, not by a
 * model of the path.
 *
 * A value; one thread. Times are monotonic nanoseconds.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include "base/backoff.h"

#define BACKGROUND_LEAST 8u
#define BACKGROUND_FIRST 96u /* before anything is known */

struct background {
	unsigned int max;
	double size;         /* min(BACKGROUND_LEAST, max)..max */
	double before;       /* the size before the step that is being tried; 0: none is */
	double begin_ns;     /* request to first byte, smoothed; 0: none yet */
	double body_ns;      /* first byte to last, smoothed */
	double rate;         /* bytes a second that came at best, of late, smoothed */
	unsigned int worse;  /* rounds in a row with fewer */
	struct backoff hold; /* no step is tried after an undone one */
	uint64_t resume_ns;  /* none before */
	/* This round: */
	uint64_t round_ns; /* its begin; 0: none yet */
	uint64_t bytes;
	unsigned int answers;
	unsigned int full; /* answers while nearly all places were taken */
};

/* `max` >= 1: how many there may be at most; so many only where latency asks for them. */
void background_init(struct background *b, unsigned int max);

/* 1..max */
unsigned int background_places(const struct background *b);

/*
 * A GET of any class was answered: first byte after `begin_ns`, last byte `body_ns` later.
 * `in_flight`: how many of the lower classes were, with it.
 */
void background_answered(struct background *b, uint64_t now_ns, uint64_t begin_ns, uint64_t body_ns,
	uint64_t bytes, unsigned int in_flight);
