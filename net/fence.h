/*
 * Which master a process listens to: one of the cluster that it met first, and none whose epoch is
 * lower than the highest one met. A master that was replaced (restored from a backup elsewhere, its
 * machine given up) and still runs has a lower one: epochs are times (master/record.h).
 *
 * What was met outlives the process in a file, DIR/cluster:
 *
 *	granary cluster 1
 *	CLUSTER EPOCH		32 digits of hex, decimal
 *
 * In the place of a state that is lost comes one of the same cluster (cachemaster --cluster).
 *
 * Embedded. Threads: any. fence_load() and fence_save() touch the disk.
 */
#pragma once

#include <pthread.h>
#include <stdbool.h>
#include "base/err.h"
#include "proto/hello.h"

struct fence {
	pthread_mutex_t lock;
	struct hello_master met; /* epoch 0: none */
	bool stored;             /* DIR/cluster says so */
	struct err refusal;      /* of the last one that came; code 0: it passed */
};

void fence_init(struct fence *fence);
void fence_release(struct fence *fence);

/* What an earlier process met. Nothing there, or damaged: 0. -EPROTONOSUPPORT: of a newer version;
 * -ENOMEM, -EMFILE. Before the first fence_check(). */
int fence_load(struct fence *fence, const char *dir, struct err *e) __must_check;
/* Writes what was met, if that is news. Another process's higher epoch stays. The directory must be
 * there. */
int fence_save(struct fence *fence, const char *dir) __must_check;

/* A master greeted from `address`: 0, and it is met; -ECONNREFUSED with a line. Who does not say who
 * he is passes as long as none was met. */
int fence_check(struct fence *fence, const struct hello_master *master, const char *address,
	struct err *e) __must_check;
/* The last one that passed; epoch 0: none. */
struct hello_master fence_met(struct fence *fence);
/* Why the last one that came did not pass; code 0: it did. */
void fence_refusal(struct fence *fence, struct err *ret_refusal);
