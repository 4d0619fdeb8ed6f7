/*
 * What watches the disks of a set while others use them: a work that only looks at clocks, and
 * one per tier that looks at its directory, probes a tier that is out, and may hang with its disk. The set's pool has
 * a thread for each.
 *
 *	every 250 ms	how long do calls last? a stall is seen while it lasts (gate_internal.h)
 *	every 5 s	does the tier's path still lead to its directory? is its index there?
 *			else it is out, until it does again
 *	while out	is the disk working? then it is back, with its index built anew where lost
 *
 * Threads: watch_start() and watch_stop() by whoever opens and frees the set.
 */
#pragma once

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include "base/check.h"
#include "base/periodic.h"

#define WATCH_TIERS_MAX 16u
#define WATCH_TEXT      192

struct tier;
struct tier_set;

typedef void (*watch_state_fn)(void *arg, const char *path, const char *state, const char *why);

struct prober {
	struct tier_set *set;
	struct tier *tier;
	struct periodic_work work;
	_Atomic uint64_t looked_ns; /* written by itself */
	const char *reported;       /* the clock's: the state that was reported last */
	char why[WATCH_TEXT];       /* under the lock: of being away; "" */
};

struct watch {
	pthread_mutex_t lock;
	struct periodic_work clock;
	struct prober probers[WATCH_TIERS_MAX];
	watch_state_fn on_state;
	void *arg;
	bool calling; /* on_state, or none: without the lock */
	pthread_cond_t called;
};

void watch_init(struct watch *watch);
void watch_start(struct watch *watch, struct tier_set *set);
void watch_stop(struct watch *watch); /* also when not started */
void watch_release(struct watch *watch);

/* The state as it is shown, and in a line why it is not "ok". Never blocks on I/O. */
const char *watch_state(struct watch *watch, const struct tier *tier, char why[WATCH_TEXT]);
