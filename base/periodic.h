/*
 * Periodic and on-demand work of a process, on its pools. A work never runs twice at the same time.
 *
 * Time is clock_mono_ns(); no thread exists for a work that does not run. A work takes a place of its own in the queue
 * of its pool, and counts against the pool's threads as any other job while it runs.
 *
 * Threads: any.
 */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include "base/pool.h"

#define PERIODIC_IDLE UINT64_MAX /* run again only when poked */

struct periodic_work {
	/* Set by the owner before periodic_start(). */
	const char *name; /* static; for people who debug */
	uint64_t (*run)(
		void *arg); /* one slice of the work; returns the ns until the next run (0: at
				       once, after other jobs) or PERIODIC_IDLE */
	void *arg;
	bool background; /* as pool_job.background */

	/* Private; zero before the first start. */
	struct pool *pool;
	struct pool_timer timer;
	bool pending; /* the timer was started, and its job has not begun */
	bool running;
	bool poked; /* while it ran */
	atomic_bool stopping;
};

/* First run after first_ns, or PERIODIC_IDLE. The work must stay in memory until periodic_stop() has returned, and be
 * stopped before its pool is freed. */
void periodic_start(struct pool *pool, struct periodic_work *work, uint64_t first_ns);

/* Runs it as soon as possible; if it is running, once more afterwards. From any thread, also from run(). No effect before
 * periodic_start() and after periodic_stop(). */
void periodic_poke(struct periodic_work *work);

/* True once periodic_stop() was called: a long run() returns early. */
bool periodic_stopping(const struct periodic_work *work);

/* It is not running and never runs again. Waits for a run in progress; not from run(). Harmless if never started. */
void periodic_stop(struct periodic_work *work);
