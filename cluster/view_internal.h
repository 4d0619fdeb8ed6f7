/*
 * What the files of the view share. Does not leave the folder.
 *
 *	view		the object: finding, versions
 *	view_ask	asking the master, with a request that stays parked there
 *	view_take	a SlotTable becomes members, peers and slots
 *	view_disk	DIR/slots
 *	view_peer	load, p99, breaker and hedges of a peer
 *	host		who is on this node
 *
 * Locks, in order: view.lock, then a peer's. None is held over a call-back or the disk.
 */
#pragma once

#include <pthread.h>
#include <stdatomic.h>
#include "base/clock.h"
#include "base/pool.h"
#include "cluster/view.h"
#include "proto/granary.pb-c.h"

#define VIEW_MAGIC     0x56494557u
#define VIEW_PEERS_MAX (2u * PLACEMENT_MAX) /* also those that nobody names any more */

/* For so long the machine of a peer may say nothing. */
#define VIEW_DEAD_NS (2 * CLOCK_SECOND)

/* Four buckets for each doubling of the time, from 16 us on. */
#define PEER_BUCKETS 96u

struct peer {
	struct view_peer pub;
	struct list link;       /* view.peers */
	_Atomic uint32_t state; /* enum cluster_state, as the master says */
	counter_t bytes;

	pthread_mutex_t lock; /* of what follows */
	uint32_t in_flight;
	uint64_t answers;
	uint64_t failures;
	uint64_t heard_ns; /* the last answer, or the first call */
	uint64_t mean_ns;  /* of the last answers, weighted */
	uint16_t buckets[PEER_BUCKETS];
	uint32_t n_buckets; /* sum of them */
	uint32_t failed_row;
	uint64_t broken_until_ns; /* 0: the breaker is closed */
	bool let_through;         /* one call, that has not failed yet */
	uint64_t pause_ns;        /* how long it stays open the next time */
};

/* A worker as the master tells it. */
struct member {
	uint16_t number;
	uint64_t id;
	uint32_t weight;
	uint32_t domain;
	enum cluster_state state;
	bool has_host;
	uint8_t host[CLUSTER_HOST_BYTES];
	char name[CLUSTER_NAME_BYTES];
	char domain_name[CLUSTER_NAME_BYTES];
	char addresses[CLUSTER_ADDRESSES][CLUSTER_ADDRESS_BYTES];
	uint32_t n_addresses;
	struct peer *peer;
};

struct view {
	uint32_t magic;
	struct loop *loop;
	struct view_config config; /* dir and local_worker are its own copies */
	char *dir;
	char *local_worker;
	struct pool *disk; /* one thread; NULL without a dir */

	pthread_mutex_t lock;
	pthread_cond_t changed; /* a call or a write has ended */
	struct placement_table *table;
	struct member *members[PLACEMENT_MAX]; /* NULL: no such worker */
	struct list peers;
	uint32_t n_peers;
	struct peer *local; /* at local_worker, unnamed by the table; NULL: none */
	struct peer *here;  /* this node's worker; NULL: none */
	uint16_t self_number;
	uint64_t slots_sequence;            /* of the table's last change of a slot */
	uint64_t hot[PLACEMENT_SLOTS / 64]; /* a bit for each slot */
	uint64_t news;
	struct err trouble;
	bool closing;
	bool asked; /* an ask has ended */
	bool whole; /* ask for the whole table: what came did not fit ours */
	bool stale_posted;
	uint64_t stale_ns; /* the last view_stale() that was followed */
	bool saving;       /* the job is the pool's */
	bool unsaved;

	struct loop_task stale_task;
	struct pool_job save_job;
	/* The loop's: */
	struct rpc_call ask;
	struct rpc_call probe;
	bool asking; /* under lock, too: view_close() waits for both */
	bool probing;
	uint64_t asked_ns;
	uint64_t begin_deadline_ns;
	struct loop_timer *again;
	struct loop_timer *save_timer;

	_Atomic uint64_t reads; /* for the share of hedges */
	_Atomic uint64_t hedges;
};

/* view_take.c. On the loop, or before there is one. *ret_changed: the table or a worker is another.
 * -EBADMSG: it contradicts itself; -ESTALE: it is older than what is known; -ENODATA: it says what changed
 * since another table than ours; -ENOMEM, and as rpc_client_new(). */
int view_take(struct view *view, const Granary__SlotTable *message, bool *ret_changed,
	struct err *e) __must_check;
/* The peer at an address, made when there is none that fits. `member` NULL: not named by the table. */
int view_peer_at(struct view *view, const char *address, const struct member *member,
	struct peer **ret_peer, struct err *e) __must_check;

/* view_ask.c. */
void view_ask_begin(struct view *view, uint64_t deadline_ns); /* any thread, once */
void view_ask_stop(struct view *view);                        /* any thread but the loop */

/* view_disk.c. load: 0 also when there is nothing, or nothing of use. */
int view_disk_load(struct view *view, struct err *e) __must_check;
void view_disk_dirty(struct view *view); /* on the loop: written soon */
void view_disk_stop(struct view *view);  /* not on the loop: what is not written is */

/* view_peer.c. */
struct peer *peer_new(void);
void peer_free(struct peer *peer);
static inline struct peer *peer_of(const struct view_peer *pub)
{
	return (struct peer *)((uintptr_t)pub - offsetof(struct peer, pub));
}
void peer_status(struct peer *peer, struct view_status *ret_status);
/* Its breaker lets a call through. */
bool peer_lets(struct peer *peer, uint64_t now_ns);
static inline bool peer_up(const struct peer *peer)
{
	uint32_t state = atomic_load(&peer->state);

	return state == CLUSTER_UP || state == CLUSTER_DRAINING;
}
