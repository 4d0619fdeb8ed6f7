/*
 * GETs in flight that fill the way; past that number a lower-class request starts only while fewer than BACKGROUND_LEAST are in
 * flight. More of them would only wait for each other, and every request of a reader would wait among them.
 *
 * It begins with few. A round is two answers for each place. Answers that wait in a queue all take
 * longer, also the one that took least (CoDel, RFC 8289); that one is compared with the least time
 * of an answer so far. While it is the same, nothing queues, and there may be more. Once all take
 * longer, there may be fewer: the number shrinks step by step as long as the rate does not fall. If it
 * fell, twice in a row, the answers did not queue but take that long. The step is undone then, and none
 * is tried for a while that doubles each time. (Judge by what an experiment brought: PCC, Dong et al.,
 * NSDI 2015.)
 *
 * The least time is raised with each round that is not below it, because the way may become longer.
 *
 * A value; one thread. Times are monotonic nanoseconds.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include "base/backoff.h"

#define BACKGROUND_LEAST 2u /* also next to any number of readers' requests: what has begun ends */
#define BACKGROUND_FIRST 8u /* before anything is known */

struct background {
	unsigned int max;
	double size;         /* min(BACKGROUND_LEAST, max)..max */
	double before;       /* the size before the step that is being tried; 0: none is */
	double least_ns;     /* time of an answer that did not queue; 0: not known yet */
	bool queued;         /* answers did, once */
	double rate;         /* bytes a second that came at best, of late, smoothed */
	unsigned int worse;  /* rounds in a row with fewer */
	struct backoff hold; /* no step is tried after an undone one */
	uint64_t resume_ns;  /* none before */
	/* This round: */
	uint64_t round_ns; /* its begin; 0: none yet */
	uint64_t bytes;
	double round_least_ns; /* least time of an answer */
	unsigned int answers;
	unsigned int full; /* answers while nearly all places were taken */
};

/* `max` >= 1: how many there may be at most; so many only where latency asks for them. */
void background_init(struct background *b, unsigned int max);

/* 1..max */
unsigned int background_places(const struct background *b);

/*
 * A GET of any class was answered: first byte after `begin_ns`, last byte `body_ns` later.
 * `in_flight`: how many of any class were, with it.
 */
void background_answered(struct background *b, uint64_t now_ns, uint64_t begin_ns, uint64_t body_ns,
	uint64_t bytes, unsigned int in_flight);
