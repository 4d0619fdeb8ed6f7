/*
 * The fake lane: queue pairs in this process, which misbehave as real ones do and more often. Writes of one lane reach the other end
 * in any order, late, twice, or not at all; completions fail though the bytes were written; after the asker's queue pair is in state
 * ERR one more write still arrives, as cards do it. Once it is destroyed, writes are refused.
 *
 * Threads of these functions: any.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

/* Each is a chance in 1,000 per write, from now on; zeroed: all is well. */
struct lane_fake_faults {
	unsigned int seed;
	uint64_t delay_ns; /* each write takes 0 to this */
	unsigned int fail; /* nothing is written; the completion fails */
	unsigned int
		fail_written; /* all is written, the immediate included; the completion fails */
	unsigned int twice;   /* its immediate arrives twice */
	unsigned int lose;    /* bytes arrive, the immediate does not, and the completion is well */
};
void lane_fake_set_faults(const struct lane_fake_faults *faults);

/* There is no device; or there is one again. Lanes that exist are broken by its end. */
void lane_fake_set_device(bool there);

/* The ends that answer fail; the others notice nothing. */
void lane_fake_break_answerers(void);

/* Writes wait until lane_fake_let(); the number that wait now. */
void lane_fake_hold(bool hold);
unsigned int lane_fake_held(void);
/* The oldest write that waits arrives, or is refused. False: none waits. */
bool lane_fake_let(void);
