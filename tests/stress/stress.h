/*
 * The run of the stress test: what the driver and the readers share (main_stress.c).
 *
 *	driver ── tasks ──► queue ──► readers ──► client_read*() ──► compared with the model
 *	   └── generations, faults, kills, damage
 */
#pragma once

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include "client/client.h"
#include "tests/stress/daemons.h"
#include "tests/stress/model.h"

#define READERS     8u
#define QUEUE       512u
#define GENERATIONS 3u /* open at once */

struct generation {
	struct client_volume *volume;
	struct client_hold *hold;
	uint32_t version[MODEL_OBJECTS]; /* 0: not in it */
	uint32_t refs;                   /* of readers; under the lock */
};

struct task {
	uint32_t object;
	uint32_t back;  /* how many generations */
	uint64_t where; /* random: of the offset and length */
	bool whole;
};

struct stress {
	struct model model;
	struct daemons daemons;
	struct budget budget;
	struct client *client;
	struct ufs_config source;
	uint64_t random;

	pthread_mutex_t lock;
	pthread_cond_t changed;
	struct generation *generations[GENERATIONS]; /* newest first */
	struct task queue[QUEUE];
	uint32_t first;
	uint32_t queued;
	uint32_t busy; /* tasks that readers have in hand */
	bool ending;
	_Atomic bool failed;

	_Atomic uint64_t reads;
	_Atomic uint64_t bytes;
	_Atomic uint64_t local;
	_Atomic uint64_t stale;
	uint64_t kills;
	uint64_t restarts;
	uint64_t switches;
	uint64_t lines;
	uint64_t damages;
	char fault_line[256];
};

/* Ends the run; the first one is told. `e` may be NULL. */
void stress_fail(struct stress *s, const char *what, const struct err *e);

/* Hands a read to the readers; waits while there are too many. */
void stress_queue(struct stress *s, const struct task *task);
/* Until nothing is queued or in progress. */
void stress_wait_idle(struct stress *s);

/* One thread; `arg` is the struct stress. Ends when nothing is queued any more and `ending` is set. */
void *stress_reader(void *arg);
