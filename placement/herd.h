/*
 * Herds: what the owner of a chunk answers when many workers that keep copies want it at once. Pure:
 * no I/O, no clock, no memory but the struct.
 *
 * The owner serves HERD_SERVES of them at a time. The others are told "ask X": X is one that took
 * those bytes, least asked so far. Whoever was served or sent to X counts as one that has them once
 * its transfer is over by all that is known, so holders double with each round and the last of N is
 * done after log2(N) of them. With nobody to name, or all of them busy, it waits at the owner.
 *
 *	ask ──fewer than HERD_SERVES are served──► SERVE ──herd_served()──► a taker
 *	    ──a taker has it, and is not busy────► ASK X ──expected end───► a taker
 *	    ──else────────────────────────────────► WAIT: asked again after the next herd_served(), and
 *	                                           after `wait_ns` at the latest
 *
 * X is asked with FETCH_CACHED, which never causes another request. When it has the bytes not, or not
 * yet, who was sent there comes back, at last with FRAME_LAST, and is never sent away again then
 * (ROUTE_HOPS). So nobody waits for anybody but the owner: there is no circle, however wrong the guesses
 * are.
 *
 * Threads: the caller's lock.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include "placement/placement.h"

#define HERD_SERVES     4u   /* requests of one chunk that the owner answers at a time */
#define HERD_TAKERS     256u /* remembered of one chunk: the last ones */
#define HERD_TAKER_WAIT 2u /* transfers that may be due at a taker before the one it is asked for */
#define HERD_PARTS      16u /* of a chunk: 1 MiB each */

/* A worker that took, or is taking, parts of the chunk. */
struct herd_taker {
	uint16_t worker;  /* PLACEMENT_NOBODY: none */
	uint16_t parts;   /* bit i: it has MiB i of the chunk, or will at `due_ns[i]` */
	uint32_t named;   /* how often others were sent there */
	uint64_t busy_ns; /* until then it sends to whom it was named to */
	uint64_t due_ns[HERD_PARTS];
};

struct herd {
	uint32_t serving;     /* answers under way */
	uint32_t n;           /* takers */
	uint32_t next;        /* taker to be forgotten next, when all places are taken */
	uint64_t transfer_ns; /* how long a MiB takes, as measured */
	uint64_t used_ns;     /* last asked: herds that nobody asked for long go first */
	struct herd_taker takers[HERD_TAKERS];
};

enum herd_answer {
	HERD_SERVE, /* and herd_served() or herd_failed() afterwards */
	HERD_ASK,   /* ret_worker */
	HERD_WAIT,  /* ret_wait_ns */
};

/* A worker's request for bytes [offset, offset + length) of the chunk. */
struct herd_request {
	uint16_t worker; /* PLACEMENT_NOBODY: not known; it is never named */
	uint32_t offset; /* in the chunk */
	uint32_t length; /* >= 1; offset + length <= CHUNK_BYTES */
	bool last;       /* FRAME_LAST: it was sent away often enough */
};

void herd_init(struct herd *herd);

/* `now_ns` never goes back. The outputs are written with the answers that they belong to. */
enum herd_answer herd_ask(struct herd *herd, const struct herd_request *request, uint64_t now_ns,
	uint16_t *ret_worker, uint64_t *ret_wait_ns);
/* An answer that HERD_SERVE led to was sent whole, `took_ns` after it began: those who wait are asked
 * about again. */
void herd_served(
	struct herd *herd, const struct herd_request *request, uint64_t took_ns, uint64_t now_ns);
/* It was not: the connection broke, the request was cancelled, the origin failed. */
void herd_failed(struct herd *herd);
/* That worker is gone, or had not what it was named for. */
void herd_forget(struct herd *herd, uint16_t worker);
