/*
 * What the files of the view share. Does not leave the folder.
 *
 *	view		the object: finding, versions
 *	view_ask	asking the master, with a request that stays parked there
 *	view_take	a SlotTable becomes members, peers and slots
 *	view_disk	DIR/slots
 *	view_alive	peers that say nothing
 *	view_peer	load, p99, breaker and hedges of a peer
 *	host		who is on this node
 *
 * Locks, in order: view.lock, then a peer's. None is held over a call-back or the disk.
 *
 * Finding who serves a chunk takes none: a slot is one word, a number's peer one pointer, a breaker one
 * word. They change one by one, so that whoever looks in the middle sees some slots of the old table and
 * some of the new one, as two processes would; what is asked of the wrong worker is sent on.
 *
 * A peer that no member names any more is freed once it had no call for PEER_QUIET sweeps in a row: who
 * found it before has asked it by then, or never will. Those of this node stay, as descriptors refer to
 * them.
 */
#pragma once

#include <assert.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include "base/backoff.h"
#include "base/clock.h"
#include "base/pool.h"
#include "cluster/view.h"
#include "proto/granary.pb-c.h"

#define VIEW_MAGIC     0x56494557u
#define VIEW_PEERS_MAX (2u * PLACEMENT_MAX) /* also those that no table names any more */
#define PEER_SWEEP_NS  (10 * CLOCK_SECOND)
#define PEER_QUIET     7u

/* Half of it is chance: while somebody waits for a peer it is tried again that often. */
#define VIEW_AGAIN_NS (500 * CLOCK_MS)
/* For so long the machine of a peer may say nothing. */
#define VIEW_DEAD_NS (2 * CLOCK_SECOND)

/* Four buckets for each doubling of the time, from 16 us on. */
#define PEER_BUCKETS 96u

struct peer {
	struct view_peer pub;
	struct list link;       /* view.peers */
	struct pool_job job;    /* frees it */
	uint32_t quiet;         /* sweeps that found it unnamed and without a call; the loop's */
	_Atomic uint32_t state; /* enum cluster_state, as the master says */
	_Atomic bool hangs;     /* see view_hangs() */
	_Atomic uint64_t broken_until_ns; /* changed under the lock; 0: the breaker is closed */
	counter_t bytes;

	pthread_mutex_t lock; /* of what follows */
	uint32_t in_flight;
	uint64_t answers;
	uint64_t failures;
	uint64_t heard_ns;   /* the last answer, or the first call */
	uint64_t failing_ns; /* when the first call began of those that failed since; 0: none did */
	uint64_t mean_ns;    /* of the last answers, weighted */
	uint16_t buckets[PEER_BUCKETS];
	uint32_t n_buckets; /* sum of them */
	uint32_t failed_row;
	bool let_through;       /* one call, that has not failed yet */
	struct backoff backoff; /* how long the breaker stays open */
};

/* The question whether a peer is there. */
struct view_alive {
	struct rpc_call call;
	struct view *view;
	struct peer *peer; /* that is asked; NULL: none */
	uint64_t asked_ns;
	uint64_t received; /* rpc_client_received() at the last look */
	uint64_t moved_ns; /* when it was another, or the first question */
	uint64_t hangs_ns; /* view.hangs_ns at that */
	uint32_t excuses;  /* times that no answer was not held against it */
};
#define VIEW_ALIVES 64u /* peers that are asked so at once */

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
	struct pool *pool; /* one thread: the disk, and peers that are freed */

	/* Changed under the lock, read without: */
	_Atomic uint64_t *slots; /* PLACEMENT_SLOTS: struct placement_slot, each in one word */
	struct peer *_Atomic numbers[PLACEMENT_MAX]; /* NULL: out, or no such worker */
	_Atomic uint64_t hot[PLACEMENT_SLOTS / 64];  /* a bit for each slot */
	struct peer *_Atomic here;                   /* this node's worker; NULL: none */
	_Atomic uint16_t self_number;

	pthread_mutex_t lock;
	pthread_cond_t changed; /* a call or a write has ended */
	uint64_t epoch;
	uint64_t sequence;
	uint64_t slots_sequence;               /* of the table's last change of a slot */
	struct member *members[PLACEMENT_MAX]; /* NULL: no such worker */
	struct list peers;
	uint32_t n_peers;
	struct peer *local; /* at local_worker, unnamed by the table; NULL: none */
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
	uint64_t asked_version[3]; /* epoch, sequence, news: what was known then */
	uint64_t begin_deadline_ns;
	struct loop_timer *again;
	struct loop_timer *save_timer;
	struct loop_timer *sweep_timer; /* while there are peers that no table names */
	struct loop_timer *mend_timer;  /* while there are members whose peer could not be made */
	struct backoff mend_backoff;

	struct loop_timer *look_timer;
	struct view_alive alives[VIEW_ALIVES];
	bool alive_stopped;
	uint64_t look_ns; /* when look_timer is due */
	uint64_t late_ns; /* when this process was last late itself */
	_Atomic uint64_t hangs_ns;
	struct loop_task look_task;

	_Atomic bool watched;   /* look_task or look_timer is pending; at the end for good */
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

/* On the loop, or before there is one: peers that could not be made are tried again in a while, until they are
 * there. */
void view_mend_later(struct view *view);

static inline struct placement_slot view_slot_of(const struct view *view, uint32_t slot)
{
	uint64_t word = atomic_load_explicit(&view->slots[slot], memory_order_acquire);
	struct placement_slot s;

	static_assert(sizeof(s) == sizeof(word), "a slot is read at once");
	memcpy(&s, &word, sizeof(s));
	return s;
}
static inline void view_slot_put(struct view *view, uint32_t slot, struct placement_slot s)
{
	uint64_t word;

	memcpy(&word, &s, sizeof(word));
	atomic_store_explicit(&view->slots[slot], word, memory_order_release);
}

/* view_ask.c. */
void view_ask_begin(struct view *view, uint64_t deadline_ns); /* any thread, once */
void view_ask_stop(struct view *view);                        /* any thread but the loop */

/* view_disk.c. load: 0 also when there is nothing, or nothing of use. */
int view_disk_load(struct view *view, struct err *e) __must_check;
void view_disk_dirty(struct view *view); /* on the loop: written soon */
void view_disk_stop(struct view *view);  /* not on the loop: what is not written is */

/* view_alive.c. Something is asked, any thread; no more of it: on the loop. */
void view_alive_watch(struct view *view);
void view_alive_stop(struct view *view);

/* view_peer.c. */
struct peer *peer_new(void);
void peer_free(struct peer *peer);
/* How long no call was answered by it, ns, while there was one; 0: it is asked nothing. */
uint64_t peer_silent(struct peer *peer);
/*
 * In the place of view_begin() and view_end() for the question whether it is there. That it is says nothing of its
 * calls, neither that those will be answered which were not nor how long they take: it ends no breaker but that of
 * one that hung.
 */
void peer_ping(struct peer *peer);
void peer_is_there(struct peer *peer);
bool peer_heard_since(struct peer *peer, uint64_t ns); /* while it is asked something */
/* It hangs: its breaker opens, for as long as it may. False: it did before. */
bool peer_break(struct peer *peer);
/* On the loop: finds peers that no table names, and frees those that have been quiet. */
void view_sweep(struct view *view);
void view_sweep_later(struct view *view); /* on the loop, or before there is one */
static inline struct peer *peer_of(const struct view_peer *pub)
{
	return (struct peer *)((uintptr_t)pub - offsetof(struct peer, pub));
}
void peer_status(struct peer *peer, struct view_status *ret_status);
/* Its breaker lets a call through. */
static inline bool peer_lets(const struct peer *peer)
{
	uint64_t until = atomic_load_explicit(&peer->broken_until_ns, memory_order_relaxed);

	return until == 0 || clock_mono_ns() >= until;
}
static inline bool peer_up(const struct peer *peer)
{
	uint32_t state = atomic_load(&peer->state);

	return state == CLUSTER_UP || state == CLUSTER_DRAINING;
}
