/* A worker of a cluster that is stopped: its connections stand, and it answers nothing. */
#pragma once

#include "tests/unit/cacheworker/cluster_world.h"

/* Holds a loop up until the lock is let go. */
struct freeze {
	struct loop_task task;
	struct loop *loop;
	pthread_mutex_t lock;
};

/* All the others find it out as soon as they would in use. */
void freeze_begin(struct freeze *freeze, struct cluster *c, uint32_t i);

/* Whoever is late from now on is waited for; all know that this one is back. */
void freeze_end(struct freeze *freeze, struct cluster *c, uint32_t i);
