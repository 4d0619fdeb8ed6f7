/* A worker of a cluster that is stopped: its connections stand, and it answers nothing. */
#pragma once

#include "tests/unit/cacheworker/cluster_world.h"

/* Holds a loop up until the lock is let go. */
struct freeze {
	struct loop_task task;
	struct loop *loop;
	pthread_mutex_t lock;
};

static inline void run_freeze(struct loop_task *task)
{
	struct freeze *freeze = container_of(task, struct freeze, task);

	pthread_mutex_lock(&freeze->lock);
	pthread_mutex_unlock(&freeze->lock);
}

/* All the others find it out as soon as they would in use. */
static inline void freeze_begin(struct freeze *freeze, struct cluster *c, uint32_t i)
{
	struct worker *w = &c->nodes[i].worker;

	for (uint32_t k = 0; k < NODES; k++)
		view_set_hangs(c->nodes[k].worker.view, VIEW_HANGS);
	*freeze = (struct freeze){ .task.run = run_freeze, .loop = w->loop };
	pthread_mutex_init(&freeze->lock, NULL);
	pthread_mutex_lock(&freeze->lock);
	loop_post(w->loop, &freeze->task);
}

static inline void run_nothing(void *arg)
{
	(void)arg;
}

/* Whoever is late from now on is waited for; all know that this one is back. */
static inline void freeze_end(struct freeze *freeze, struct cluster *c, uint32_t i)
{
	uint64_t deadline = clock_mono_ns() + DEADLINE;

	for (uint32_t k = 0; k < NODES; k++)
		view_set_hangs(
			c->nodes[k].worker.view, VIEW_HANGS * c->nodes[k].config.peer_patience);
	pthread_mutex_unlock(&freeze->lock);
	loop_call(freeze->loop, run_nothing, NULL);
	pthread_mutex_destroy(&freeze->lock);
	for (uint32_t k = 0; k < NODES; k++)
		while (k != i && view_hangs(view_peer(c->nodes[k].worker.view, (uint16_t)i))) {
			assert_true(clock_mono_ns() < deadline);
			clock_sleep_ns(CLOCK_MS);
		}
}
