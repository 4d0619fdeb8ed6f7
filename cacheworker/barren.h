/*
 * Workers that had nothing of a chunk a moment ago, or did not answer: they are not asked for each of its units
 * anew. What is remembered may be wrong, and is so for ten seconds at most.
 *
 * Threads: any; never blocks.
 */
#pragma once

#include <pthread.h>
#include <stdint.h>
#include "base/check.h"
#include "base/layout.h"

#define BARREN_CHUNKS  1024u /* remembered: a new one takes the place of another with its hash */
#define BARREN_WORKERS 4u    /* of a chunk: the first ones */

enum barren_word {
	BARREN_UNKNOWN,
	BARREN_SILENT, /* it did not answer */
	BARREN_EMPTY,  /* it said so */
};

struct barren_chunk {
	struct chunk_id id;
	uint64_t until_ns; /* monotonic; in the past: nothing is remembered */
	uint32_t n;
	uint16_t workers[BARREN_WORKERS]; /* their numbers */
	uint8_t words[BARREN_WORKERS];    /* enum barren_word */
};

struct barren {
	pthread_mutex_t lock;
	struct barren_chunk *chunks;
};

/* What came of asking the worker of that number. */
void barren_note(
	struct barren *barren, const struct chunk_id *id, uint16_t worker, enum barren_word word);
/* What is remembered of it, or BARREN_UNKNOWN. */
enum barren_word barren_word_of(struct barren *barren, const struct chunk_id *id, uint16_t worker);
/* Whoever had nothing of the chunk may have something of it by now. */
void barren_forget(struct barren *barren, const struct chunk_id *id);

/* -ENOMEM. */
int barren_init(struct barren *barren) __must_check;
void barren_release(struct barren *barren); /* after a failed init, too */
