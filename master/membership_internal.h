/* The parts of a membership. See membership.h. */
#pragma once

#include "master/membership.h"

#define GATHER_NS (200 * CLOCK_MS)
#define LOOK_NS   (250 * CLOCK_MS)
#define RETRY_NS  CLOCK_SECOND
#define PACE_NS   (500 * CLOCK_MS) /* from one step to the next: all must be able to follow */
#define REPLICAS  2u

struct membership {
	struct membership_config config;
	struct membership_counters counters;
	pthread_mutex_t
		writing; /* before `lock`: over changes of members that are stored, and their writes */
	pthread_mutex_t lock;
	pthread_cond_t changed;
	struct members members;
	struct slots slots;
	struct watch watch;
	uint64_t dirty[PLACEMENT_MAX / 64]; /* numbers of those that changed since the last step */
	bool is_dirty;
	bool moves;             /* slots may have to */
	uint64_t stepped_ns;    /* the last step */
	uint64_t due_ns;        /* the next step */
	uint64_t hot_ns;        /* the next look at what is hot */
	struct hot_rate *rates; /* room for it: PLACEMENT_MAX * MEMBER_HOT, once needed */
	uint32_t cap_rates;
	pthread_t thread;
	bool started;
	bool ending;
};

/* The member as it is now goes into the store, if it is not there. With `writing`, without `lock`. */
int membership_store(struct membership *m, uint16_t number, struct err *e) __must_check;
/* Answers all that wait for less than there is now. Without locks. */
void membership_wake(struct membership *m);
/* One step, if something changed (membership_step.c). Without locks. */
void membership_step(struct membership *m);
