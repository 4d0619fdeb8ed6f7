/*
 * Workers and mounts of a large cluster, as the master sees them: connections, JOIN, BEAT, GET_RETENTION,
 * parked GET_SLOTS, HOLD, with the rhythm of the real ones and nothing behind them.
 *
 * All of a process's are on one loop; functions are called there, but for sim_actor_free().
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include "base/loop.h"
#include "net/net.h"
#include "placement/placement.h"

#define SIM_RECEIPTS 32u /* versions of the table whose arrival an actor remembers: the last ones */

/* What all of a process's share. */
struct sim {
	struct loop *loop;
	const char *master;
	struct placement_table *table; /* as the keeper has it */
	struct sim_actor *keeper;      /* NULL: there is nobody yet */
	bool has_hold;                 /* what mounts show */
	struct volume_id volume;
	uint64_t lineage;
	uint64_t generation;
	uint64_t joins, beats, retention, holds, slots, wholes,
		failures;    /* answers; wholes: of `slots` */
	uint64_t bytes;      /* of `slots` */
	uint64_t slowest_ns; /* BEAT since it was last asked for */
};

struct sim_receipt {
	uint64_t sequence;
	uint64_t ns;
};

/* A worker, or a mount. */
struct sim_actor {
	struct sim *sim;
	struct rpc_client *client;
	bool worker;
	bool joined;
	bool ending;
	uint32_t index; /* of all in the cluster */
	uint32_t rack;
	uint64_t id;
	uint32_t number;
	uint64_t epoch;
	uint64_t sequence;
	uint64_t news;
	uint32_t under_way; /* calls */
	struct loop_timer *rhythm;
	struct loop_timer *again; /* GET_SLOTS after a failure */
	uint32_t ticks;
	struct rpc_call act;  /* JOIN, BEAT, HOLD */
	struct rpc_call tell; /* GET_RETENTION */
	struct rpc_call watch;
	bool acts;
	bool tells;
	struct sim_receipt receipts[SIM_RECEIPTS];
	uint32_t n_receipts; /* ever */
};

/* Begins to live. -ENOMEM or what the address is refused with. */
int sim_actor_start(struct sim *sim, bool worker, uint32_t index, uint32_t rack,
	struct sim_actor **ret_actor, struct err *e) __must_check;
/* Without a word, as if its machine was switched off. Not on the loop. */
void sim_actor_free(struct sim_actor *actor);

/* sim_table.c: takes an answer to GET_SLOTS: the actor's version, and the keeper's table. -ENODATA: it is to ask for
 * the whole; -EBADMSG. */
int sim_take_table(struct sim_actor *actor, const void *data, size_t len) __must_check;
