/*
 * Requests for the slot table (GET_SLOTS) that wait for something newer: parked here, they hold no thread.
 *
 * Threads: the owner's lock covers all of it (membership.h). A request that was taken out is its taker's to reply to, without
 * the lock.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include "base/clock.h"
#include "net/net.h"

#define WATCH_MOST_NS (60 * CLOCK_SECOND)

/* What the asker knows. */
struct watch_ask {
	uint64_t epoch;
	uint64_t sequence;
	uint64_t news;
	bool wants_news;
	uint64_t until_ns; /* it is answered then, whatever there is */
};

struct watch {
	struct list parked; /* rpc_request.link; priv is a struct watch_ask of its own */
	uint32_t n;
};

void watch_init(struct watch *watch);
/* False: cancelled already, or no memory: it is to be answered now. */
bool watch_park(struct watch *watch, struct rpc_request *request, const struct watch_ask *ask);
/* Does what there is say more than it knows, or is it time? */
bool watch_is_due(const struct watch_ask *ask, uint64_t epoch, uint64_t sequence, uint64_t news,
	uint64_t now);
/* Moves those that are due into `ready`, where watch_cancelled() finds them still. */
void watch_collect(struct watch *watch, uint64_t epoch, uint64_t sequence, uint64_t news,
	uint64_t now, struct list *ready);
/* The next of these, for its taker alone, and what it knows; NULL: there is none. */
struct rpc_request *watch_take(struct watch *watch, struct list *ready, struct watch_ask *ret_ask);
/* It is not waited for any more. True: it was parked, and is the caller's to reply to. */
bool watch_cancelled(struct watch *watch, struct rpc_request *request);
