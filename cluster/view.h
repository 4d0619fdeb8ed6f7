/*
 * A process's view of the cluster: the slot table, the workers it names, and a connection to each,
 * kept current from the master. Readers and workers have one each; neither needs the master to go
 * on.
 *
 *	master ──SlotTable, changes──► view ──► DIR/slots	kept over restarts
 *	                                │
 *	          view_find(chunk) ◄────┤──► peers		connections, load, breakers
 *
 * A table older than the one known, by (epoch, sequence), is refused, wherever it comes from. The
 * view asks the master with a request that stays parked there until something is newer, so that a
 * change is known everywhere at once; while the master is away, what is known stays good.
 *
 * Who serves a chunk, best first (view_find()): its slot's owner when he is up, else the deputy, which
 * is the next of its replicas that is up, else the previous owner. A worker is tried in that order;
 * what a peer's answers say (down, slow, "ask X") is this process's own knowledge of it, on top of the
 * state that the master tells.
 *
 * Threads: all functions any, none blocks, but for view_open() and view_close(), which are not for a
 * loop. Finding takes no lock: it is one array load for the slot and one for each worker that it names.
 *
 * A peer that is found is to be asked soon, or not at all: one that no table names any more goes a minute
 * after the last call to it has ended, but for those of this node, which live as long as the view.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include "base/counter.h"
#include "base/err.h"
#include "base/loop.h"
#include "net/net.h"
#include "placement/placement.h"

#define CLUSTER_ADDRESSES     8u
#define CLUSTER_NAME_BYTES    64u
#define CLUSTER_HOST_BYTES    16u
#define CLUSTER_ADDRESS_BYTES 160u

/* As the master sees a worker; on the wire. */
enum cluster_state {
	CLUSTER_UP,
	CLUSTER_DOWN,     /* three heartbeats were missed: deputies serve */
	CLUSTER_OUT,      /* for ten minutes: its slots moved */
	CLUSTER_DRAINING, /* up, owns nothing any more: new owners pull from it */
};
const char *cluster_state_name(enum cluster_state state); /* "up", ... */

struct view;

/* A worker as this process talks to it. What is here never changes after it was published; an address
 * that changes makes a new peer. */
struct view_peer {
	uint16_t number;
	uint64_t id;
	char name[CLUSTER_NAME_BYTES];
	char address[CLUSTER_ADDRESS_BYTES]; /* that is used of its addresses */
	struct rpc_client *rpc;
	bool local; /* on this node, over a unix socket: takes and gives descriptors */
	bool self;  /* this very process, a worker's view only: `rpc` is NULL */
};

struct view_config {
	struct rpc_client *master; /* borrowed */
	const char *
		local_worker; /* address of this node's worker; NULL: none. Serves what no worker owns */
	const char *dir;      /* keeps the table in DIR/slots; copied; NULL: nowhere */
	uint64_t self;        /* id of the worker that this process is; 0: none */
	uint8_t host[CLUSTER_HOST_BYTES]; /* cluster_host() */
	/* A worker's: called when SlotTable.news grew, and after each new table; on the loop. NULL: not. */
	void (*on_news)(void *arg);
	void (*on_table)(void *arg);
	/* Called when a connection to a peer is established; on the loop. NULL: not. */
	void (*on_back)(void *arg);
	/* Called when a peer hangs (view_hangs()), and again as long as it does; on the loop. NULL: not. */
	void (*on_hang)(void *arg);
	void *arg;
};

/* The same for all processes of this node, in containers or not: from the id of the kernel's boot, or
 * from $GRANARY_HOST where several hosts are played on one machine. */
void cluster_host(uint8_t ret_host[CLUSTER_HOST_BYTES]);

/* Takes what DIR/slots says, and begins to ask the master. With `wait_ns`, waits for the first table
 * from the master that long when there is none on disk; that there is none then is no error. */
int view_open(struct loop *loop, const struct view_config *config, uint64_t wait_ns,
	struct view **ret_view, struct err *e) __must_check;
/* Ends calls to peers with -ECANCELED. NULL is allowed. */
void view_close(struct view *view);
/* Why the master was not heard the last time it was asked; code 0: it was. */
void view_trouble(struct view *view, struct err *ret_trouble);

/* Who serves a chunk, at most VIEW_CANDIDATES, best first, without the same one twice and without
 * those that are out. Down ones come last. */
#define VIEW_CANDIDATES 4u
struct view_candidates {
	uint32_t slot;
	uint32_t n;
	struct view_peer *peers[VIEW_CANDIDATES];
	bool hot;             /* the slot is: replicas keep copies, the less loaded is asked */
	uint32_t n_up;        /* of them, the first ones, as far as is known */
	uint16_t owner;       /* by the table, up or not; PLACEMENT_NONE */
	uint16_t previous;    /* likewise */
	uint16_t replicas[2]; /* likewise */
};
void view_find(struct view *view, uint64_t volume_hash, uint64_t chunk,
	struct view_candidates *ret_candidates);
/* Borrowed; NULL: not known. */
struct view_peer *view_peer(struct view *view, uint16_t number);
/* The worker of this node, borrowed; NULL: there is none. */
struct view_peer *view_local(struct view *view);
/* The table's word on a slot. */
void view_slot(struct view *view, uint32_t slot, struct placement_slot *ret_slot);
/* The master calls it up or draining, and its breaker is closed. This process itself is. */
bool view_up(struct view *view, uint16_t number);
/* A worker's: its own number; PLACEMENT_NONE: not known yet. */
uint16_t view_self(struct view *view);
/* Number of workers that are up or draining; of all that are not out. */
void view_count(struct view *view, uint32_t *ret_up, uint32_t *ret_known);
/* (epoch, sequence) of the table in use; 0, 0: none. */
void view_version(struct view *view, uint64_t *ret_epoch, uint64_t *ret_sequence);
/* Likewise, of the version by which any slot got another owner, previous owner or replica. Later ones said only who is
 * up, and what is hot. */
void view_slots_version(struct view *view, uint64_t *ret_epoch, uint64_t *ret_sequence);
/* An answer said that the table is stale (FRAME_MOVED, -EREMOTE), or none answers: the master is asked
 * without parking, at most twice a second. */
void view_stale(struct view *view);

/*
 * Results of calls to a peer, reported by their callers: load (the less loaded of two is asked), p99
 * of its answers (a hedge goes out after it, at most one in fifty), and a breaker that opens after
 * failures in a row, lets one call through after a pause, and closes with the first answer.
 */
void view_begin(struct view *view, struct view_peer *peer);
/* `ns` it took; `failed`: no answer came (timed out, reset, refused), as opposed to one that says no. */
void view_end(struct view *view, struct view_peer *peer, uint64_t ns, bool failed);
/* In the place of view_end() for a call that was cancelled: says nothing of the peer. */
void view_dropped(struct view *view, struct view_peer *peer);
/* How long nothing but failures came of calls to it, ns: since the first of them began; 0: the last one was
 * answered. */
uint64_t view_failing(const struct view_peer *peer);
/*
 * A peer that was asked something, and of which nothing was heard for VIEW_QUIET since, is asked whether it is
 * there (FRAME_PING), which it answers at once whatever it waits for. When that is not answered within
 * VIEW_HANGS, nor anything else, it hangs: its breaker is open from then on, and one such question is always on its
 * way to it, until it has answered something, or the master calls it down. That one which does not hang is there
 * closes no breaker: it may answer none of its calls.
 */
#define VIEW_QUIET (250 * CLOCK_MS)
#define VIEW_HANGS (2 * CLOCK_SECOND)
bool view_hangs(const struct view_peer *peer);
/* From the next question on, so long in the place of VIEW_HANGS: tests have machines of any speed. Any thread. */
void view_set_hangs(struct view *view, uint64_t ns);
/* The master reports it down or out, or another address or worker of that number. */
bool view_down(const struct view_peer *peer);
/* False while its breaker is open, or the master calls it down. */
bool view_usable(struct view *view, const struct view_peer *peer);
/* Its breaker lets a call through, whatever the master says. */
bool view_lets(const struct view_peer *peer);
/* Of two, the one to ask: usable before not, then the fewer requests in flight weighted by how long they
 * take. */
struct view_peer *view_less_loaded(struct view *view, struct view_peer *a, struct view_peer *b);
/* After how long without an answer a second one may be asked, ns; 0: not now (too few were measured, or
 * the hedges are used up). A hedge that is sent is reported. */
uint64_t view_hedge_after(struct view *view, const struct view_peer *peer);
void view_hedged(struct view *view);

/* For people: what this process knows of a worker. */
struct view_status {
	uint16_t number; /* PLACEMENT_NONE: the node's worker, which the table does not name */
	enum cluster_state state;
	bool local;
	bool connected;
	bool broken; /* its breaker is open */
	char name[CLUSTER_NAME_BYTES];
	char address[CLUSTER_ADDRESS_BYTES]; /* that is used of its addresses */
	uint32_t in_flight;
	uint64_t answers;
	uint64_t failures;
	uint64_t bytes;  /* noted by view_note_bytes() */
	uint64_t p99_ns; /* 0: too few were measured */
};
void view_note_bytes(struct view_peer *peer, uint64_t bytes);
/* Those of the table and the node's, at most `max`, by number; returns how many. */
uint32_t view_list(struct view *view, struct view_status *statuses, uint32_t max);
