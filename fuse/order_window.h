/*
 * How far ahead of a job its order is fetched: a window over the places 0..count of one rank's
 * epoch.
 *
 *	0      first            seen          next      first + ORDER_SPAN   count
 *	|behind|  asked, some read |   asked    | nothing yet |   not looked at |
 *
 * What was asked for and not read yet is at most max_files places and max_bytes. Reads move it on,
 * in any order within ORDER_SPAN places: the workers of a data loader read many batches at once.
 *
 * A read that the kernel answers from its page cache is never heard of, so what is not read must
 * not hold the window for ever. A read of what was asked for forgets what lies a window before
 * it, a read beyond `next` the oldest one; and after ORDER_STRAYS reads that follow the order further
 * on than the window reaches, and none of what was asked for, the window is where they are. To be
 * forgotten costs nothing: it was asked for.
 *
 * A wrong order must not be worse than none. A read follows the order when the nearest of the last
 * ORDER_TRAIL places read is just before its own, whatever was asked for: each worker of a data
 * loader reads its batch in order, wherever that batch is. The reads of another order come from
 * anywhere, and have a place read just before them by chance only: one in nine, as the gap and the
 * trail have the measure of the order.
 *
 * The window starts small and grows by a place and a unit with each read that follows. The order is
 * trusted once ORDER_ENOUGH of the last ORDER_JUDGED reads followed it: until then only what was
 * asked for counts as announced, and other reads bring their neighbours. When fewer than ORDER_FEW
 * of them did, the window is off: its caller fetches nothing, and the window goes on as before.
 *
 * Pure: no clock, no lock, no I/O; blocks are of BLOCK_BYTES.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include "base/check.h"
#include "base/layout.h"

#define ORDER_SPAN   4096u /* a power of two */
#define ORDER_STRAYS 64u

#define ORDER_START_FILES 256u /* the window of an order without hits */
#define ORDER_START_BYTES CHUNK_BYTES
#define ORDER_TRAIL       256u /* two for each of 64 workers, and two others that their READs touch */
/* How far before a read another one may be, at least: most samples may be in the page cache. */
#define ORDER_GAP 4u
/* 64 workers that begin their batches all at once read 64 samples which follow nothing. */
#define ORDER_JUDGED 128u /* bits of order_window.recent */
#define ORDER_FEW    24u
#define ORDER_ENOUGH 64u

struct order_entry {
	uint32_t asked; /* blocks from the sample's start on */
	uint32_t read;
};

struct order_window {
	uint64_t count;
	uint64_t first;
	uint64_t next;
	uint64_t seen;   /* behind the furthest place read */
	uint64_t oldest; /* nothing before it is asked and not read */
	uint64_t max_bytes;
	uint32_t max_files;
	uint64_t bytes; /* asked and not read, as the next */
	uint32_t files;
	uint64_t reads; /* that were judged, as the next */
	uint64_t hits;
	uint64_t recent[ORDER_JUDGED / 64]; /* a bit for each of the last reads: it followed */
	uint32_t judged;                    /* how many of the bits are known */
	uint32_t grown;                     /* hits that the size of the window counts */
	bool off;                           /* few reads follow the order */
	bool trusted;                       /* most do */
	uint32_t n_trail;                   /* ever; the last ORDER_TRAIL are known */
	uint32_t trail[ORDER_TRAIL];        /* places read */
	uint32_t n_strays;
	uint64_t strays[ORDER_STRAYS]; /* places that were read */
	struct order_entry *ring;      /* ORDER_SPAN of them, borrowed */
};

/* `ring` is zeroed, and the caller's. */
void order_window_init(struct order_window *w, uint64_t count, struct order_entry *ring);
/* May change at any time. At least one file and one byte. */
void order_window_limit(struct order_window *w, uint32_t max_files, uint64_t max_bytes);

/* Whether something at `next` may be asked for now. */
bool order_window_room(const struct order_window *w) __must_check;
/* Blocks of the sample at `next` that need not be asked for any more. */
uint32_t order_window_done(const struct order_window *w);
/* The following `blocks` of it are asked for. */
void order_window_ask(struct order_window *w, uint32_t blocks);
/* There is no more of it to ask for. */
void order_window_pass(struct order_window *w);
/* [from, upto) of a sample, which was asked for, turned out to be there already. */
void order_window_present(struct order_window *w, uint64_t place, uint32_t from, uint32_t upto);

/* The sample at `place` was read up to a block. False: too far from the window to count. */
bool order_window_read(struct order_window *w, uint64_t place, uint32_t upto);

/* Whether what is at `place` is announced: its reads bring nothing along. */
bool order_window_covers(const struct order_window *w, uint64_t place) __must_check;

/* Whether a read follows the order. Of several samples that one read touches, the highest counts. */
enum order_follows {
	ORDER_NOT_TOUCHED,
	ORDER_FOLLOWS_NOT,
	ORDER_FOLLOWS_UNKNOWN, /* it was read just now */
	ORDER_FOLLOWS,         /* a hit */
};
/* Of a read of the sample at `place`, which is part of the trail from now on. To be called before
 * order_window_read(), with the same. */
enum order_follows order_window_follows(struct order_window *w, uint64_t place) __must_check;
/* A read followed it, or did not. True: the window was switched off or on. Once it is on again, what
 * was passed meanwhile and not read is asked for. */
bool order_window_judge(struct order_window *w, bool hit) __must_check;
