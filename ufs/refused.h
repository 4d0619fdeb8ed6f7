/*
 * A negative cache: which objects their origin refused, and how often. An object is a hash of its key and tag, so that
 * another version is another object.
 *
 * The cache is a set-associative table that grows up to REFUSED_MAX objects (10 MiB). Beyond that, or without memory, a new
 * object replaces another one of its set, which may then be asked for again. The memory is that of the arena's user `tables`.
 *
 * Threads: the owner's lock covers it.
 */
#pragma once

#include <stdint.h>

#define REFUSED_MAX  (256u * 1024) /* objects */
#define REFUSED_WAYS 8u            /* of a set */

struct refusal {
	uint64_t object;
	uint64_t since_ns; /* monotonic; of the first refusal */
	uint64_t until_ns; /* when it is forgotten; 0: this row is free */
	uint32_t times;
	int32_t status; /* of the last refusal */
	uint32_t cause; /* enum ufs_cause, likewise */
};

/* Zeroed: nothing is remembered, and no memory is used. */
struct refused {
	struct refusal *rows;
	uint32_t sets; /* a power of two, or 0 */
};

/* NULL: the object was not refused. Borrowed until the next call of another function. */
const struct refusal *refused_find(const struct refused *refused, uint64_t object, uint64_t now_ns);
/* `what` is refused `what->times` more; its `since_ns` is ignored. */
void refused_note(struct refused *refused, const struct refusal *what, uint64_t now_ns);
/* The origin has the object after all. */
void refused_drop(struct refused *refused, uint64_t object);
/* Forgets all. It can be used again. */
void refused_release(struct refused *refused);
