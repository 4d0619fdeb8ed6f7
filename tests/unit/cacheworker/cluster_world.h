/*
 * Several workers whole, over one origin and one master of the test's own (world.h), which says who owns
 * what as the test wants it.
 */
#pragma once

#include "tests/unit/cacheworker/world.h"
#include "base/log.h"
#include "cluster/view.h"
#include "placement/placement.h"

#define NODES 3u
#define NONE  PLACEMENT_NONE

struct node {
	char address[128];
	const char *listen[1];
	char admin[128];
	char tier[128];
	char name[16];
	struct tier_config tiers[1];
	struct worker_config config;
	struct worker worker;
	struct rpc_client *client;
	bool runs;
	/* Under the cluster's lock: as its JOIN said. */
	uint64_t id;
	enum cluster_state state;
	bool drain;           /* its beats are answered so */
	uint64_t only_copies; /* as it said last; UINT64_MAX: nothing */
};

struct cluster {
	struct world *world;
	uint64_t capacity;
	struct node nodes[NODES];
	pthread_mutex_t lock;
	struct placement_table *table;
	uint32_t hot[16]; /* slots */
	uint32_t n_hot;
	struct list parked; /* GET_SLOTS */
	bool mute;          /* whatever they know, they are parked */
	_Atomic unsigned int beats;
};

/* The world that world_master_ops passes has no pointer to its cluster: one cluster per program at a time. */
extern struct cluster *the_cluster;

/* ---- the master's part ----------------------------------------------------------------------- */

/* Answers with a packed message, and frees it. */
void cluster_reply_packed(struct rpc_request *request, uint8_t *packed, size_t len);

/* ---- nodes ----------------------------------------------------------------------------------- */

/* A worker in the tier of node i; it joins later (node_wait_joined()). */
void node_start(struct cluster *c, uint32_t i);
void node_stop(struct cluster *c, uint32_t i);

/* What is in c->table, c->hot and the nodes' states is told from now on; waits until it is known. */
void cluster_publish(struct cluster *c);

/* All slots alike. */
void cluster_set_slots(
	struct cluster *c, uint16_t owner, uint16_t previous, uint16_t r0, uint16_t r1);

void cluster_set_state(struct cluster *c, uint32_t i, enum cluster_state state);

/* Every slot of the world's volume is hot. */
void cluster_set_hot(struct cluster *c);

/* Slot by slot in turn. */
void cluster_deal_slots(struct cluster *c);

/* For when some answer nothing. Before anybody is asked. */
void cluster_patience(struct cluster *c, uint32_t times);

/* Once it has joined, the table names it by its id. */
void node_wait_joined(struct cluster *c, uint32_t i);

/* `copies`: of the volume's policy; 0: it has none. */
struct cluster *cluster_new_copies(
	unsigned int files, uint64_t size, uint64_t capacity, uint32_t copies);

struct cluster *cluster_new(unsigned int files, uint64_t size, uint64_t capacity);
void cluster_free(struct cluster *c);

/* ---- reading --------------------------------------------------------------------------------- */

/* One request to one worker; the answer is the caller's. */
int node_ask(struct cluster *c, uint32_t i, enum frame_op op, uint64_t offset, uint32_t length,
	uint16_t flags, struct rpc_call *ret_call);

/* Compares an answer and its checksums with the model. */
void cluster_check_bytes(
	const struct cluster *c, const struct rpc_call *call, uint64_t offset, uint32_t length);

/* As a reader does it, who goes to worker `i` first; returns how often it was sent on. */
uint32_t cluster_read_via(
	struct cluster *c, uint32_t i, uint64_t offset, uint32_t length, uint16_t flags);

void cluster_read_all_via(struct cluster *c, uint32_t i, uint32_t step, uint16_t flags);

/* Requests of all running workers to the origin. */
uint64_t cluster_gets(struct cluster *c);

/* On their way or being written: not those that are only kept. */
uint32_t cluster_flights_of(struct worker *w);

/* Of them those whose pull pauses. */
uint32_t cluster_parked_of(struct worker *w);

void node_quiet(struct cluster *c, uint32_t i);

/* Until nothing is on its way anywhere. */
void cluster_quiet(struct cluster *c);
