/*
 * What the files of client/ share. Does not leave the folder.
 *
 *	client_pieces	which pieces and gaps a range of the volume consists of
 *	client_map	asks for the worker's chunk map
 *	client_chunk	descriptors, presence and verified bits of chunk files on this node
 *	client_local	reading through them, verification at first touch
 *	client_op	one client_read(): its life, cancel, the bound on how many
 *	client_plan	the parts it is asked for in
 *	client_fetch	FETCH, RECHECK, retries, waiting
 *	client_answer	checking what came
 *	client_ahead	sequential streams, PREFETCH
 *	client_route	whom a read asks, in order
 *	client_ask	one request on its way, its hedge
 *	client_trace	where a read that took long has waited
 *	client_near	ranges of small files, read ahead of a reader in their order
 *	client_peers	what is known of workers, for people
 *	client_direct	reading from the origin while no worker answers
 *	client_holds	tells workers which of their files are open
 *	client_hold	what this process shows
 *	client_seal	which extents this node's worker has sealed, and their descriptors
 *	client_source	opening a source, guards against a master that lost its memory
 *
 * Locks, in order: client.lock, then those of net and the loop; ahead.lock, the chunk cache's and
 * guard.lock are leaves.
 */
#pragma once

#include <pthread.h>
#include <stdatomic.h>
#include "base/check.h"
#include "base/pool.h"
#include "client/client.h"
#include "client/client_ahead.h"
#include "client/client_chunk.h"
#include "client/client_direct.h"
#include "cluster/view.h"
#include "client/client_near.h"
#include "client/client_source.h"
#include "net/fence.h"
#include "net/net.h"

#define CLIENT_READ_MAX     (1u << 20)       /* length of one read, as in client.h */
#define CLIENT_READS        LIMIT_FUSE_SLOTS /* in flight at once; more wait for their turn */
#define CLIENT_LOOK_AHEADS  128u             /* PREFETCH requests in flight at once */
#define CLIENT_ORDER_AHEADS 96u /* of them for announced orders: streams always find some */
#define CLIENT_MAGIC        0x434c4e54u
#define CLIENT_VOLUME_MAGIC 0x434c564fu

struct client_op;

/* Messages whose answer is not waited for. */
struct client_note {
	struct list link; /* client.notes_free, or its volume's `notes`; under client.lock */
	struct rpc_call call;
	struct rpc_client *rpc;
	struct view_peer *peer;
	struct client_volume *volume;
};

/* What was read of a volume past the workers. */
struct client_use {
	struct volume_id volume;
	counter_t local_bytes;
	uint64_t reported; /* of these to the master; under client.lock */
};
#define CLIENT_USES 32u /* volumes that are distinguished; the last one counts the rest as well */

/*
 * A range that was waited for up to its deadline in vain. The kernel asks again at once for the page that was wanted of a
 * read-ahead that failed, and would wait as long once more; so would whoever tries EIO again. Such a read has
 * CLIENT_AGAIN_NS.
 */
struct client_failed {
	const struct client_volume *volume; /* compared alone; NULL: none */
	uint64_t offset;
	uint32_t length;
	uint64_t at_ns;
};
#define CLIENT_FAILED    64u /* the last ones */
#define CLIENT_FAILED_NS (5 * CLOCK_SECOND)
#define CLIENT_AGAIN_NS  CLOCK_SECOND

struct client {
	uint32_t magic;
	struct loop *loop;
	struct pool *pool;
	struct pool *disk; /* reads of what a worker answered with a descriptor (client_answer.c) */
	struct budget *budget;
	struct rpc_client *master;
	struct fence fence; /* of masters */
	struct view *view;
	struct client_chunks *chunks;
	struct client_guard guard;
	uint64_t read_deadline_ns;
	uint64_t pause_ns; /* client_config's */
	uint64_t verify_age_ns;
	uint64_t ahead_bytes;
	uint64_t ahead_max_bytes;
	uint32_t rank; /* of this node, among those that read the same */
	uint64_t direct_bandwidth;
	struct client_near near;
	const char *seen_dir; /* borrowed, may be NULL */
	_Atomic int32_t
		hanging; /* reads from this node's disks that do not return; above 0: no other is tried */
	struct policy_change policy;
	struct client_dataset dataset;
	bool of_dataset;
	struct client_counters counters;
	struct client_histograms histograms;

	pthread_mutex_t lock;
	pthread_cond_t idle;   /* a volume's last read or note has ended */
	struct client_op *ops; /* CLIENT_READS of them */
	uint32_t ops_used;     /* ops[ops_used..] were never taken */
	struct list ops_free;
	struct list active;   /* ops taken, oldest first */
	struct list overflow; /* struct client_read waiting for an op */
	struct list overflow_cancelled;
	struct loop_task overflow_task;
	bool overflow_posted;
	struct list notes_free;
	struct client_note notes[CLIENT_LOOK_AHEADS];
	uint32_t notes_used; /* of them, in flight */
	struct list buffers; /* CLIENT_READ_MAX each, one per I/O thread */
	struct list volumes; /* open */
	struct client_failed failed[CLIENT_FAILED];
	uint32_t n_failed; /* ever */
	struct client_use uses[CLIENT_USES];
	uint32_t n_uses;

	/* The loop's: */
	struct list budget_waiters; /* ops */
	struct list away;           /* ops that pause as no worker could be reached */
	uint32_t backs;             /* times that one may have come back */
	uint64_t woken_ns;          /* when those of `away` last asked again for that */
	struct loop_timer *wake_timer;
	struct loop_timer *budget_timer;
	struct loop_timer *watch_timer; /* looks for reads that wait long, while there are reads */
	struct loop_timer *holds_timer;
	struct rpc_call holds_call;
	struct view_peer *holds_owner; /* that it asks */
	bool holds_asked;              /* holds_call is in flight */
	bool holds_stopped;
	struct rpc_call map_call;
	struct view_peer *map_owner; /* that it asks */
	bool map_wanted;             /* there is none, or not that of the worker of now */
	bool map_asked;              /* map_call is in flight */
	uint64_t map_next_ns;        /* not before */
};

struct client_volume {
	uint32_t magic;
	struct client *client;
	struct table *table;
	struct volume_id id;
	uint64_t lineage;
	uint64_t generation;
	uint64_t hash;          /* placement's */
	struct client_use *use; /* the client's */
	struct client_ahead ahead;
	struct client_origin origin;
	_Atomic uint32_t copies;       /* of the policy: COPIES_AUTO, ... */
	_Atomic uint64_t keepers;      /* numbers of CLIENT_KEEPERS workers, 16 bits each */
	bool named_only;               /* gaps are errors; set before the first read */
	_Atomic uint64_t elsewhere_ns; /* until then this node's worker is not asked first */
	/* Under client.lock: */
	struct list link; /* client.volumes */
	struct list notes;
	uint32_t pending; /* ops, overflow reads and notes that have not ended */
	bool closing;
};

static inline struct chunk_id client_volume_chunk(
	const struct client_volume *volume, uint64_t offset)
{
	return (struct chunk_id){
		.volume = volume->id,
		.lineage = volume->lineage,
		.chunk = offset >> CHUNK_BITS,
	};
}
