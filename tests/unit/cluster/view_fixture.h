/* A master with a table that tests change, the requests parked at it, and views of it. Threads: those of a test. */
#pragma once

#include <pthread.h>
#include "base/clock.h"
#include "cluster/view_internal.h"
#include "proto/granary.pb-c.h"

#define WORKERS  6u
#define PATIENCE (60 * CLOCK_SECOND) /* for what must come */

struct worker {
	char address[32];
	enum cluster_state state;
	bool listed;
	bool far;        /* on another node, with a unix socket and a loopback address there, too */
	char first[32];  /* an address that it names before the following ones; "": none */
	char socket[96]; /* that it names before its address; "": none */
};

struct master {
	pthread_mutex_t lock;
	struct loop *loop;
	struct rpc_server *server;
	struct rpc_client *client;
	struct worker workers[WORKERS];
	struct placement_table *table;
	uint64_t news;
	struct rpc_request *parked;
	pthread_cond_t has_parked;
	uint32_t asks;
	uint32_t whole_asks; /* of who knew nothing */
	bool never_parks;
	uint32_t odd_since;   /* answers that say what changed since a table nobody has */
	uint32_t told_tables; /* on_table */
	uint32_t told_news;
	char dir[64];
	char name[32];
};

/* Where every host has its worker's socket. */
#define OWN_SOCKET "unix:/nowhere/worker.rpc"

struct workers_message {
	Granary__Worker workers[WORKERS];
	Granary__Worker *pointers[WORKERS];
	char *addresses[WORKERS][4];
	char names[WORKERS][16];
};

void add_worker(struct workers_message *out, Granary__SlotTable *message,
	const struct worker *worker, uint32_t number);
/* Into the 8 bytes of a slot in a message. */
void put_slot(uint8_t *out, const struct placement_slot *slot);
void reply_whole_locked(struct master *m, struct rpc_request *request);
/* Only what `message` has, relative to the table of version `since`. */
void reply_changes_locked(
	struct master *m, struct rpc_request *request, Granary__SlotTable *message, uint64_t since);
/* Waits for the request that is parked; the lock is held. */
struct rpc_request *take_parked_locked(struct master *m);

int setup(void **state);
int teardown(void **state);
struct view *open_view(struct master *m, struct view_config config, uint64_t wait_ns);
uint64_t sequence_of(struct view *view);
uint64_t slots_sequence_of(struct view *view);
void wait_sequence(struct view *view, uint64_t sequence);
/* "0 1 2 3 up=2" of chunk 0 of volume 0. */
bool finds(struct view *view, const char *want);
void assert_found(struct view *view, const char *want);
/* Chunk 0 of a volume lies in the slot of its hash. */
bool is_hot(struct view *view, uint32_t slot);
