/*
 * The way to a tier's disk. Every call that reads or writes chunks goes through here, a few of each
 * kind at a time, so that a disk that stopped answering holds only so many threads and is noticed
 * while it hangs:
 *
 *	a call of GATE_STALL_NS ──► stalled: no call enters, those that wait to enter are turned away
 *	it returned ──► open again
 *
 * The callers' pools have more threads than may be held here, so others go on
 * (docs/decisions/stalled-disks.md).
 *
 * Threads: any. gate_enter() waits for its turn, at most until the gate is stalled.
 */
#pragma once

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include "base/check.h"
#include "base/clock.h"
#include "tiers/tiers.h"

#define GATE_CALLS    TIER_CALLS
#define GATE_STALL_NS (5 * CLOCK_SECOND) /* a busy disk takes less */

enum gate_kind {
	GATE_READ,
	GATE_WRITE,
	GATE_PROBE, /* the health's own: enters a stalled gate, too */
	GATE_KINDS,
};

struct gate {
	pthread_mutex_t lock;
	pthread_cond_t freed;
	uint64_t began[GATE_KINDS][GATE_CALLS]; /* monotonic ns; 0: free */
	uint64_t stall_ns;                      /* GATE_STALL_NS; tests have less time */
	_Atomic bool stalled;
};

struct gate_call {
	enum gate_kind kind;
	uint32_t slot;
};

void gate_init(struct gate *gate);
void gate_release(struct gate *gate); /* no call is inside */

/* -EIO: stalled. */
int gate_enter(struct gate *gate, enum gate_kind kind, struct gate_call *ret_call) __must_check;
void gate_leave(struct gate *gate, const struct gate_call *call);

void gate_set_stall(struct gate *gate, uint64_t ns);
/* Never blocks. */
bool gate_is_stalled(const struct gate *gate);
/* Looks at the clock and stalls or opens; how long the longest call inside lasts so far, in ns. */
uint64_t gate_tick(struct gate *gate, uint64_t now);
