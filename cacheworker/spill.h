/*
 * Spill: a full worker passes the duty for what it owns and has no room for on to the next in the
 * slot's list that has room (docs/decisions/spill.md). It answers -EREMOTE with FRAME_LAST: whoever is asked so
 * ends it, and keeps it as a copy, which goes first when its own chunks need the room.
 *
 * Who has room is asked with FRAME_ROOM, while this worker is full, at most once a second each. What is not known
 * yet is taken for room.
 *
 * Threads: any; never blocks.
 */
#pragma once

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include "base/layout.h"
#include "net/net.h"

struct worker;

#define SPILL_ROOMS  256u  /* answers that are remembered */
#define SPILL_PLACES 4096u /* chunks of which it is remembered who keeps them */

/* What one worker said of one volume. */
struct spill_room {
	struct volume_id volume;
	uint16_t number;
	bool known;
	bool room;
	bool asking;
	uint64_t asked_ns;
	struct worker *worker;
	struct rpc_call call;
};

/* Where a chunk went: there it goes on, with room there or without. */
struct spill_place {
	struct chunk_id id;
	uint16_t number;
	bool known;
};

struct spill {
	pthread_mutex_t lock;
	struct spill_room *rooms;
	struct spill_place *places;
};

/* This worker owns the chunk and has not got all of it. True when another is to be asked for what is missing. */
bool spill_to(struct worker *w, const struct chunk_id *id, uint16_t *ret_number) __must_check;

/* Answers FRAME_ROOM. */
void spill_answer(struct worker *w, struct rpc_request *request);

int spill_init(struct worker *w) __must_check;
void spill_release(struct worker *w); /* after the view's end */
