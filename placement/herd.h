/*
 * Herds: what the owner of a chunk answers when many workers that keep copies want it at once. Pure:
 * no I/O, no clock, no memory but the struct and what waits.
 *
 * The owner serves HERD_SERVES of them at a time. The others are answered "ask X": X is one that has those
 * bytes by all that is known and can send them first. A worker that was served or sent to X counts as one that
 * has the bytes once its transfer is over, so holders double with each round and the last of N is done
 * after log2(N) of them. With none to name, or all of them busy, it waits at the owner.
 *
 *	ask ──fewer than HERD_SERVES are served──► SERVE ──herd_served()──► a taker
 *	    ──a taker has it, and is not busy────► ASK X ──expected end───► a taker
 *	    ──else───────────────────────────────► WAIT  ──herd_next()────► SERVE or ASK X
 *
 * X is asked with FETCH_CACHED, which never causes another request. When it has the bytes not, or not
 * yet, or sends HERD_GIVES others already, who was sent there comes back, at last with FRAME_LAST, and is
 * never sent away again then (ROUTE_HOPS). All wait for the owner only: no circle is possible,
 * however wrong the guesses are.
 *
 * Guesses are corrected by those who come back: transfers are taken to last an eighth longer then, and a
 * sixteenth shorter whenever somebody is sent away, but not shorter than the owner's own. So not more than
 * half are sent in vain, and none waits much longer than needed; one that came back is sent only to those
 * that have had the bytes for a while.
 *
 * Threads: the caller's lock.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include "base/list.h"
#include "placement/placement.h"

#define HERD_SERVES  2u /* requests of one chunk that the owner answers at a time */
#define HERD_GIVES   6u /* answers to workers that one sends at a time when it is named for more */
#define HERD_TAKERS  1024u /* remembered of one chunk: the last ones */
#define HERD_BLOCK   32u   /* takers that are looked at together */
#define HERD_BLOCKS  (HERD_TAKERS / HERD_BLOCK)
#define HERD_PARTS   16u        /* of a chunk: 1 MiB each */
#define HERD_LOOK_NS 5000000ull /* herd_next() is called at least that often while anybody waits */

/* A worker's request for bytes [offset, offset + length) of the chunk. */
struct herd_request {
	uint16_t worker; /* PLACEMENT_NONE: not known; it is never named */
	uint32_t offset; /* in the chunk */
	uint32_t length; /* >= 1; offset + length <= CHUNK_BYTES */
	bool last;       /* FRAME_LAST: it was sent away often enough */
};

/* One that waits; embeds into the caller's. */
struct herd_wait {
	struct list link;
	struct herd_request request;
};

/* Times are ticks of 1,024 ns since the herd began; it starts again, knowing none, once an hour. */
struct herd_part {
	uint32_t ready;               /* none can be named for it before */
	uint32_t look;                /* those who wait are not looked at before */
	struct list waits;            /* for bytes that begin in it */
	uint32_t low[HERD_BLOCKS];    /* of each HERD_BLOCK takers none can send it before */
	uint32_t due[HERD_TAKERS];    /* it has it then; UINT32_MAX: never */
	uint8_t returns[HERD_TAKERS]; /* how often it was sent away in vain */
};

struct herd {
	uint64_t began_ns;
	uint64_t used_ns;  /* last asked: the least recently asked herd goes first */
	uint32_t serving;  /* answers in flight */
	uint32_t waiting;  /* herd_wait */
	uint32_t transfer; /* ticks: how long the owner takes for a MiB, of HERD_SERVES at a time */
	uint32_t hop;      /* ticks: how long one that is sent to X takes for a MiB, as it seems */
	uint32_t turn;     /* the part that is looked at first */
	uint32_t n;        /* takers */
	uint32_t next;     /* taker to be forgotten next, when all places are taken */
	bool (*up)(void *arg, uint16_t worker);
	void *arg;
	struct list lasts; /* waits that were sent away often enough */
	uint16_t workers[HERD_TAKERS];
	uint32_t busy[HERD_TAKERS]; /* it is named again then: half a hop before it has sent all */
	uint16_t places[PLACEMENT_MAX]; /* of a worker among the takers, and one; 0: it is none */
	struct herd_part parts[HERD_PARTS];
};

enum herd_answer {
	HERD_SERVE, /* and herd_served() or herd_failed() afterwards */
	HERD_ASK,   /* ret_worker */
	HERD_WAIT,  /* herd_park() */
};

/* `up` (NULL: all are) says whether a worker may be named; one that may not is forgotten. It is called from
 * herd_ask() and herd_next(). `herd` is all zeros, or was in use: no request may wait. */
void herd_init(struct herd *herd, bool (*up)(void *arg, uint16_t worker), void *arg);

/* `now_ns` never goes back. *ret_worker is written with HERD_ASK. With HERD_WAIT and who waited somebody
 * is being served, so that a herd_served() or herd_failed() is to come. */
enum herd_answer herd_ask(struct herd *herd, const struct herd_request *request, uint64_t now_ns,
	uint16_t *ret_worker);
/* It waits until herd_next() returns it; `wait->request` is set. */
void herd_park(struct herd *herd, struct herd_wait *wait);
/*
 * One that need not wait any longer, and its answer, HERD_SERVE or HERD_ASK; NULL: none. To be called,
 * until it returns NULL, after each herd_ask(), herd_served() and herd_failed(), and every HERD_LOOK_NS.
 */
struct herd_wait *herd_next(
	struct herd *herd, uint64_t now_ns, enum herd_answer *ret_answer, uint16_t *ret_worker);
/* An answer that HERD_SERVE led to was sent whole, `took_ns` after it began. */
void herd_served(
	struct herd *herd, const struct herd_request *request, uint64_t took_ns, uint64_t now_ns);
/* It was not: the connection broke, the request was cancelled, the origin failed, it takes too long. */
void herd_failed(struct herd *herd);
/* That worker is gone. */
void herd_forget(struct herd *herd, uint16_t worker);
