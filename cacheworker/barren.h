/*
 * What workers had of a chunk a moment ago, or that they did not answer: those that lack a unit are not asked for
 * it. So a chunk costs one question to each of them, and not one for each of its units. What is remembered may be
 * wrong, and is so for ten seconds at most.
 *
 * Threads: any; never blocks.
 */
#pragma once

#include <pthread.h>
#include <stdint.h>
#include "base/check.h"
#include "base/clock.h"
#include "base/layout.h"
#include "tiers/tiers.h"

#define BARREN_NS      (10 * CLOCK_SECOND) /* after the first that said something of a chunk */
#define BARREN_CHUNKS  1024u /* remembered: a new one takes the place of another with its hash */
#define BARREN_WORKERS 12u   /* of a chunk: the first ones; as many as may be asked for it */

enum barren_word {
	BARREN_UNKNOWN,
	BARREN_SILENT, /* it did not answer */
	BARREN_EMPTY,  /* it said that it has nothing of it */
};

/* A bit for each 64 KiB of a chunk. */
struct barren_cells {
	uint64_t bits[CHUNK_BYTES / PIECE_BYTES / 64];
};

struct barren_chunk {
	struct chunk_id id;
	uint64_t until_ns; /* monotonic; in the past: nothing is remembered */
	uint32_t n;
	uint16_t workers[BARREN_WORKERS];         /* their numbers */
	uint8_t words[BARREN_WORKERS];            /* enum barren_word */
	struct barren_cells some[BARREN_WORKERS]; /* BARREN_UNKNOWN: where it has something */
};

struct barren {
	pthread_mutex_t lock;
	struct barren_chunk *chunks;
};

/* What came of asking the worker of that number. */
void barren_note(
	struct barren *barren, const struct chunk_id *id, uint16_t worker, enum barren_word word);
/* It said what it has: a bit for each block. */
void barren_note_some(struct barren *barren, const struct chunk_id *id, uint16_t worker,
	const uint8_t bitmap[CHUNK_BITMAP_BYTES]);
/* What is remembered of it and that range of the chunk, or BARREN_UNKNOWN. */
enum barren_word barren_word_of(struct barren *barren, const struct chunk_id *id, uint16_t worker,
	uint32_t offset, uint32_t length);
/* Whoever had nothing of the chunk may have something of it by now. */
void barren_forget(struct barren *barren, const struct chunk_id *id);

/* -ENOMEM. */
int barren_init(struct barren *barren) __must_check;
void barren_release(struct barren *barren); /* after a failed init, too */
