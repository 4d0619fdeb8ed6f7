/*
 * All a reader needs, and no FUSE in it: open a source, read a range of its volume from wherever it
 * is, stay ahead of a sequential stream.
 *
 *	client_read_local()  bytes that this node's worker has published: one pread on a chunk
 *			     file's descriptor; no RPC, no allocation, no lock (the first touch of
 *			     a chunk may allocate)
 *	client_read()	     everything else: asks the slot's owner (FETCH), parks, answers later
 *
 * The owner's answer is either the bytes, or (on this node) a descriptor of the chunk file with its
 * presence bitmap; the client keeps descriptor and bitmap, so that the next read of that chunk is
 * local. A piece is verified when this process touches it first (seeded XXH3 against the chunk
 * file's piece table); a mismatch is reported to the worker (RECHECK) and read again through FETCH,
 * never served.
 *
 * Threads: client_read_local() any thread that may block on the disk; client_read() and
 * client_read_cancel() any thread; on_done runs on the client's loop or on one of its I/O threads,
 * never inside client_read().
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include "base/budget.h"
#include "base/buf.h"
#include "base/clock.h"
#include "base/counter.h"
#include "base/histogram.h"
#include "base/err.h"
#include "base/loop.h"
#include "base/policy.h"
#include "catalog/catalog.h"
#include "ufs/ufs.h"

struct client;
struct client_near_window;
struct client_volume;

#define CLIENT_CHUNK_BYTES   (52u * 1024)         /* its presence and its piece table */
#define CLIENT_READ_DEADLINE (300 * CLOCK_SECOND) /* a kernel must not be less patient */

/* A dataset of the master's, with the volume of its source, or of its first one. */
struct client_dataset {
	uint8_t id[16];
	struct volume_id volume;
	bool shown; /* opened is what it was rolled back to; else, without a refresh, the newest */
	uint64_t generation; /* opened is this one of its only source; 0: as `shown` says */
};

struct client_config {
	const char *master;       /* address, e.g. "unix:/run/granary/x/master.rpc" */
	const char *local_worker; /* address of this node's worker; NULL: none */
	struct budget *budget;    /* bytes of answers held at once; borrowed */
	uint32_t chunks; /* chunk files of this node known at once, CLIENT_CHUNK_BYTES of memory
			  * each; 0: as many as descriptors allow */
	uint64_t read_deadline_ns; /* a read waits at most this long, then -EIO; 0: as above */
	uint64_t
		pause_ns; /* before a read asks again; 0: 10 ms, doubling up to 2 s, for tests another */
	unsigned int io_threads;   /* local reads on behalf of client_read(); 0: 2 */
	uint64_t ahead_bytes;      /* window of sequential prefetch; 0: 32 MiB */
	uint64_t ahead_max_bytes;  /* it grows to that with what was read; 0: 4 x the window */
	uint64_t direct_bandwidth; /* client_direct.h: bytes a second; 0: 64 MiB */
	uint64_t verify_age_ns;    /* what was verified longer ago is verified again; 0: a day */
	const char
		*seen_dir; /* keeps the generations in use over restarts; borrowed; NULL: nowhere */
	struct policy_change policy; /* sent to the master with the first successful open */
	const struct client_dataset *dataset; /* opened instead of a source; copied; NULL: none */
};

int client_new(
	const struct client_config *config, struct client **ret_client, struct err *e) __must_check;
/* What is opened from now on is what the dataset shows (struct client_dataset.shown). Not while
 * something is opened. */
void client_open_shown(struct client *client);
/* Every volume must be closed. NULL is allowed. */
void client_free(struct client *client);

/*
 * Asks the master for the source (which lists it when it is new or `refresh` is set), takes its
 * table, and checks it against what this process saw before. Blocks. `notice` (may be NULL) gets a
 * line for the operator when there is one. A client of a dataset ignores `source`; what it gets with
 * `refresh` is the generation that the dataset shows, which may be older than the newest.
 */
int client_open_source(struct client *client, const struct ufs_config *source, bool refresh,
	struct client_volume **ret_volume, struct buf *notice, struct err *e) __must_check;
/* The same of one source of the client's dataset, for those that have several. */
int client_open_volume(struct client *client, const struct volume_id *id, bool refresh,
	struct client_volume **ret_volume, struct buf *notice, struct err *e) __must_check;
/* Ends its reads with -ECANCELED, waits for them. */
void client_volume_close(struct client_volume *volume);
/* No read of it is in flight: closing it ends no read. Any thread. */
bool client_volume_idle(struct client_volume *volume);
/* Borrowed. */
struct table *client_volume_table(struct client_volume *volume);
/*
 * Tells the master that this process shows a generation, which is retained until it says no more,
 * or nothing for a minute: to be renewed every CLIENT_HOLD_EVERY. begin() and end() wait a
 * second for the answer at most, renew() never; a master that is away is no error. begin(): NULL
 * without memory. end(): NULL is allowed. One thread's.
 */
#define CLIENT_HOLD_EVERY (5 * CLOCK_SECOND)
struct client_hold;
struct client_hold *client_hold_begin(struct client *client, const struct generation_id *id);
void client_hold_renew(struct client_hold *hold);
void client_hold_end(struct client_hold *hold);
/*
 * Requests news with each further message, a listing of the source every `follow_s` seconds, and one listing that
 * begins at `since_ms` (a now_ms of struct client_hold_news) or later. 0: none. Any thread.
 */
void client_hold_follow(struct client_hold *hold, uint32_t follow_s, int64_t since_ms);
struct client_hold_news {
	uint64_t heard_ns;   /* monotonic; 0: nothing yet */
	bool follow;         /* the following is to be shown */
	uint64_t lineage;    /* of the source's newest generation */
	uint64_t generation; /* 0: not known */
	int64_t shown_ms;  /* since 1970: a listing began that found what is shown; 0: not known */
	int64_t newest_ms; /* when a listing began that found the newest; 0: unknown */
	int64_t now_ms;    /* the time at the master, since 1970; 0: unknown */
	int64_t since_ms;  /* of client_hold_follow(), as sent with the request that this answers */
};
/* The last that was heard. Any thread. */
void client_hold_news(struct client_hold *hold, struct client_hold_news *ret);
/* Bytes that the workers have cached of the source, as last reported; UINT64_MAX: unknown. Any thread. */
uint64_t client_hold_cached(struct client_hold *hold);
/*
 * For a reader whose ranges come from an earlier generation than the volume's: what lies in no
 * object (any more) is -ESTALE, not zeros. Before the first read.
 */
void client_volume_named_only(struct client_volume *volume);

/*
 * Reads [offset, offset + length) of the volume into `buf`: all multiples of BLOCK_BYTES, buf
 * aligned to BLOCK_BYTES, length <= 1 MiB. 0: all there and verified. -EAGAIN: not known to be
 * here; use client_read(). Bytes between objects and past the volume's end are zeros.
 */
int client_read_local(
	struct client_volume *volume, uint64_t offset, uint32_t length, void *buf) __must_check;
/*
 * A client_read_local() hangs in its disk, or one of which this was said has returned. While any
 * does, none is begun, and workers are asked for bytes instead of descriptors.
 */
void client_local_hangs(struct client_volume *volume, bool now);

/*
 * Bytes that lie in memory here, as they were fetched ahead of a reader of small files: `length` of them
 * from `offset` on, as above, at loan->data until client_give(). False: not all of them do.
 */
struct client_loan {
	const void *data;
	uint32_t length;
	struct client_near_window *window; /* the client's */
};
bool client_borrow(struct client_volume *volume, uint64_t offset, uint32_t length,
	struct client_loan *ret_loan) __must_check;
void client_give(struct client_loan *loan);

/* One read in flight; the caller's until on_done, which is called exactly once. */
struct client_read {
	struct list link; /* the client's */
	uint64_t offset;  /* as for client_read_local() */
	uint32_t length;
	/* 0 and `length` bytes (borrowed for the call), or -EIO, -ESTALE, -ECANCELED. */
	void (*on_done)(struct client_read *read, int status, const void *data);
	void *arg;
	bool peek;    /* the client's: only what workers have; any failure is -ECANCELED */
	void *memory; /* the client's, of a peek: what `data` is part of, to be taken in on_done */
	bool exact;   /* of what was announced (client_prefetch()): brings no neighbours */
	struct client_volume *volume; /* that it was given to: client_read() sets it */
	void *priv;                   /* the client's */
};
void client_read(struct client_volume *volume, struct client_read *read);
/* Wants it no more: on_done follows at once with -ECANCELED unless it ran already. The caller knows
 * that it has not freed `read`. */
void client_read_cancel(struct client_volume *volume, struct client_read *read);

/* Tells the client of every read the kernel sent, also local ones: detection of sequential streams.
 * Cheap, never blocks. */
void client_note_read(struct client_volume *volume, uint64_t offset, uint32_t length);
/*
 * Asks a worker to have [offset, offset + length), whole blocks of one chunk, before it is read:
 * exactly that, in the order of the calls. 0: asked, and nothing more is heard of it; -EALREADY: it
 * is known to be here; -EAGAIN: so much is asked at once already, or no worker is known. Any thread,
 * never blocks.
 */
int client_prefetch(struct client_volume *volume, uint64_t offset, uint32_t length) __must_check;
/* Bytes that the tiers of this node's worker may hold; 0: it is not known, or there is none. Any thread. */
uint64_t client_capacity(struct client *client);

#define CLIENT_COUNTERS(X)                                                                      \
	X(local_reads, "granary_client_local_reads_total", COUNTER, "requests",                 \
		"Reads served from this node's tier")                                           \
	X(local_bytes, "granary_client_local_bytes_total", COUNTER, "bytes",                    \
		"Bytes served from this node's tier")                                           \
	X(mapped, "granary_client_mapped_chunks_total", COUNTER, "chunks",                      \
		"Chunks opened by the worker's map, without a request")                         \
	X(remote_reads, "granary_client_fetches_total", COUNTER, "requests",                    \
		"Reads from a worker")                                                          \
	X(remote_bytes, "granary_client_fetched_bytes_total", COUNTER, "bytes",                 \
		"Bytes that came from a worker")                                                \
	X(failed_reads, "granary_client_failed_reads_total", COUNTER, "requests",               \
		"Reads answered with an error")                                                 \
	X(waiting, "granary_client_waiting", GAUGE, "requests", "Reads in flight")              \
	X(verified, "granary_client_verified_pieces_total", COUNTER, "pieces",                  \
		"Pieces checked at first touch")                                                \
	X(mismatches, "granary_client_mismatches_total", COUNTER, "pieces",                     \
		"Pieces whose checksum did not match")                                          \
	X(prefetches, "granary_client_prefetches_total", COUNTER, "requests",                   \
		"Ranges requested ahead of a stream or by an announced order")                  \
	X(slow_reads, "granary_client_slow_reads_total", COUNTER, "requests",                   \
		"Reads from a worker that waited for more than 5 ms")                           \
	X(moved, "granary_client_moved_total", COUNTER, "requests",                             \
		"Fetches that a worker sent to another")                                        \
	X(passed_on, "granary_client_passed_on_total", COUNTER, "requests",                     \
		"Fetches sent to another worker, as one did not answer")                        \
	X(direct_reads, "granary_client_direct_reads_total", COUNTER, "requests",               \
		"Fetches from the origin, as no worker answered")                               \
	X(direct_bytes, "granary_client_direct_bytes_total", COUNTER, "bytes", "Bytes of them") \
	X(near_fetches, "granary_client_near_fetches_total", COUNTER, "requests",               \
		"Ranges of small files that were fetched ahead of a reader")                    \
	X(near_reads, "granary_client_near_reads_total", COUNTER, "requests",                   \
		"Reads served from such ranges")                                                \
	X(near_bytes, "granary_client_near_bytes_total", COUNTER, "bytes", "Bytes of them")     \
	X(hedges, "granary_client_hedges_total", COUNTER, "requests",                           \
		"Fetches sent to a second worker, as one was slow")                             \
	X(hedges_won, "granary_client_hedges_won_total", COUNTER, "requests",                   \
		"Fetches that the second worker answered first")                                \
	X(retries, "granary_client_retries_total", COUNTER, "requests",                         \
		"Fetches that were tried again")

#define CLIENT_HISTOGRAMS(X)                                 \
	X(worker, "granary_client_read_seconds", NULL, NULL, \
		"From a READ that this node could not serve to its bytes")

HISTOGRAM_STRUCT(client_histograms, CLIENT_HISTOGRAMS);
const struct client_histograms *client_histograms(const struct client *client);
const struct histogram_info *client_histogram_table(uint32_t *ret_n);

COUNTER_STRUCT(client_counters, CLIENT_COUNTERS);
const struct client_counters *client_counters(const struct client *client);
const struct counter_info *client_counter_table(uint32_t *ret_n);
