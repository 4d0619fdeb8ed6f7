/*
 * How far ahead of a job its order is fetched: a window over the places 0..count of one rank's epoch.
 *
 * The workers of a data loader read many batches at once, each from front to back, so the window consists of runs:
 * one where the job begins, and one for each worker that reads further on than the others are fetched.
 *
 *	a run:	| passed: asked for, or read | next: asked for next | nothing yet |
 *		        seen ^ behind the furthest read; next - seen is the run's lead
 *
 * The run with the smallest lead has the next turn. One that reaches what another one has passed becomes part of it. A
 * read of what was not asked for continues the run just before it, or begins one if it follows the order or the order is
 * trusted. A place that was passed is not asked for again, by any run.
 *
 * What was asked for and not read yet is at most max_files places and max_bytes. The kernel answers some reads from its
 * page cache, which are not seen here, so what is not read must not hold the window for ever: a read of what was asked
 * for forgets what was asked for a whole window earlier, a read that follows the order and was not asked for forgets the
 * oldest. Being forgotten costs nothing: it was asked for.
 *
 * A wrong order must not be worse than none. A read follows the order when the nearest of the last
 * ORDER_TRAIL places read is just before its own, whatever was asked for: each worker of a data
 * loader reads its batch in order, wherever that batch is. The reads of another order come from
 * anywhere, and have a place read just before them by chance only: one in nine, as the gap and the
 * trail have the measure of the order.
 *
 * The window starts small, with a part of ORDER_START_FILES that all jobs share, and grows by a place and a unit with each read that follows. The order is
 * trusted once ORDER_ENOUGH of the last ORDER_JUDGED reads followed it: until then only what was
 * asked for counts as announced, and other reads bring their neighbours. When fewer than ORDER_FEW
 * of them did, the window is off: it has no runs, and nothing is fetched. Once it is on again, the run begins
 * with the last read.
 *
 * Pure: no clock, no lock, no I/O; blocks are of BLOCK_BYTES.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include "base/check.h"
#include "base/layout.h"

#define ORDER_AHEAD 2048u /* places asked for and not read, at most */
#define ORDER_RING  4096u /* what was asked for last; a power of two, as the next */
#define ORDER_HASH  4096u
#define ORDER_REACH 4096u /* the lead of a run, at most */
#define ORDER_RUNS  128u  /* two for each of 64 workers */
#define ORDER_NEAR  8u    /* a read so close behind a run is of that run */

#define ORDER_START_FILES 256u /* the windows of all orders without hits */
#define ORDER_START_BYTES CHUNK_BYTES
#define ORDER_START_LEAST 32u /* files of each */
#define ORDER_TRAIL       256u /* two for each of 64 workers, and two others that their READs touch */
/* How far before a read another one may be, at least: most samples may be in the page cache. */
#define ORDER_GAP 4u
/* 64 workers that begin their batches all at once read 64 samples which follow nothing. */
#define ORDER_JUDGED 128u /* bits of order_window.recent */
#define ORDER_FEW    24u
#define ORDER_ENOUGH 64u

/* A place that was asked for; open while it is not read. */
struct order_entry {
	uint32_t place;
	uint32_t asked; /* blocks from the sample's start on */
	uint32_t read;
	uint16_t other; /* the next open one with the same hash: 1 + its index, or 0 */
};

/* The last places that were asked for, by their turns. */
struct order_asked {
	struct order_entry ring[ORDER_RING];
	uint16_t first[ORDER_HASH]; /* open ones by the hash of the place: 1 + index, or 0 */
};

struct order_run {
	uint64_t next; /* not passed */
	uint64_t seen; /* behind the furthest place read */
	uint64_t used; /* order_window.clock of its last read */
	uint32_t part; /* blocks of `next` that were asked for, or read */
};

struct order_window {
	uint64_t count;
	uint64_t *passed; /* a bit for each place, borrowed */
	uint64_t n_passed;
	struct order_asked *asked; /* borrowed */
	uint64_t turn;             /* of what is asked for next */
	uint64_t oldest;           /* what was asked for in earlier turns is not open */
	uint64_t max_bytes;
	uint32_t max_files;
	uint32_t start_files; /* while it has no hits */
	uint64_t start_bytes;
	uint64_t bytes; /* asked and not read, as the next */
	uint32_t files;
	struct order_run runs[ORDER_RUNS];
	uint32_t n_runs;
	uint64_t clock;
	uint64_t last;  /* place read last */
	uint64_t reads; /* that were judged, as the next */
	uint64_t hits;
	uint64_t recent[ORDER_JUDGED / 64]; /* a bit for each of the last reads: it followed */
	uint32_t judged;                    /* how many of the bits are known */
	uint32_t grown;                     /* hits that the size of the window counts */
	bool off;                           /* few reads follow the order */
	bool trusted;                       /* most do */
	uint32_t n_trail;                   /* ever; the last ORDER_TRAIL are known */
	uint32_t trail[ORDER_TRAIL];        /* places read */
};

/* `asked` and `passed`, a bit for each place, are zeroed, and the caller's. */
void order_window_init(
	struct order_window *w, uint64_t count, struct order_asked *asked, uint64_t *passed);
/* An equal part of what all `n` orders may ask for. May change at any time. */
void order_window_limit(struct order_window *w, uint32_t files, uint64_t bytes, uint32_t n);
/* An equal part of what the orders of `jobs` jobs may ask for without hits. May change at any time. */
void order_window_start(struct order_window *w, uint32_t jobs);

/* Whether something may be asked for now; then order_window_next() is the place. */
bool order_window_room(const struct order_window *w) __must_check;
/* The place whose turn it is, and how many blocks of it need not be asked for any more. */
uint64_t order_window_next(const struct order_window *w, uint32_t *ret_done);
/* The following `blocks` of it are asked for. */
void order_window_ask(struct order_window *w, uint32_t blocks);
/* There is no more of it to ask for. */
void order_window_pass(struct order_window *w);
/* [from, upto) of a sample, which was asked for, turned out to be there already. */
void order_window_present(struct order_window *w, uint64_t place, uint32_t from, uint32_t upto);

/* Whether what is at `place` is announced: its reads bring nothing along. */
bool order_window_covers(const struct order_window *w, uint64_t place) __must_check;

/* Whether a read follows the order. Of several samples that one read touches, the highest counts. */
enum order_follows {
	ORDER_NOT_TOUCHED,
	ORDER_FOLLOWS_NOT,
	ORDER_FOLLOWS_UNKNOWN, /* it was read just now */
	ORDER_FOLLOWS,         /* a hit */
};
/* The sample at `place` was read up to a block, of `total`. */
enum order_follows order_window_read(
	struct order_window *w, uint64_t place, uint32_t upto, uint32_t total);
/* A read followed it, or did not. True: the window was switched off or on. */
bool order_window_judge(struct order_window *w, bool hit) __must_check;
