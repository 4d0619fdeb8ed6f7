/*
 * The memory of a daemon (--memory) as one arena of reservations: whatever can grow (buffers,
 * tables, caches) is taken from it under the name of its user, so that the sum has a maximum and
 * `cachectl status` can say who has it.
 *
 * A user has a `least`, which no other user can take from it, and a `most`. What is left in addition to the
 * leasts is for the user that asks first. No user is refused what its least covers, so a user whose
 * holders finish by themselves (a unit lands, a reply is sent) always goes on, however little is
 * left: it needs a least of one such thing. Demand may have all of what its user could have,
 * prefetch 85 %, fill 70 %.
 *
 * One arena per process, as there is one log. Before arena_open() nothing is refused (tests, tools),
 * only counted. Between arena_open() and arena_start_done() what must exist at start is taken, even
 * past the maximum; arena_start_done() then refuses a maximum that does not hold it, with the least
 * that would.
 *
 * Bytes are those asked for, not what the allocator adds; docs/operations.md states how much a
 * daemon has in addition to its arena. Threads: any; the lock is a leaf.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include "base/budget.h"
#include "base/check.h"
#include "base/err.h"

#define ARENA_USERS(X)                                                       \
	X(FIXED, "fixed", "what exists from the start: threads' buffers")    \
	X(INDEX, "index", "RocksDB: block cache and memtables")              \
	X(RAM_TIER, "ram_tier", "bytes of tiers in memory")                  \
	X(CHUNKS, "chunks", "heads of cached chunks")                        \
	X(UNITS, "units", "units in flight, being written, cached")          \
	X(REPLIES, "replies", "answers being assembled")                     \
	X(FILLS, "fills", "chunks to be filled")                             \
	X(TABLES, "tables", "object tables: indexes, order, decoded blocks") \
	X(CONNECTIONS, "connections", "connections and their requests")      \
	X(ANSWERS, "answers", "answers of workers")                          \
	X(SLOTS, "slots", "requests of the kernel")                          \
	X(IMAGE, "image", "names of the mounted image")                      \
	X(PIECES, "pieces", "piece tables of chunks on this node")           \
	X(ORDERS, "orders", "orders that jobs announced")                    \
	X(LISTING, "listing", "listings and the tables made of them")        \
	X(HISTORY, "history", "what was, for the dashboard: points and events")

enum arena_user {
#define ARENA_ENUM(user, name, help) ARENA_##user,
	ARENA_USERS(ARENA_ENUM)
#undef ARENA_ENUM
		ARENA_N_USERS,
};

/* Once, before other threads. share_out() shares `max` bytes out by arena_share(); NULL is
 * allowed. */
void arena_open(uint64_t max, void (*share_out)(uint64_t max));
/* What was taken so far and the leasts must fit: -ENOMEM with a line that says the least --memory
 * that works. */
int arena_start_done(const char *option, struct err *e) __must_check;
/* The same check on the way; nothing is enforced yet. */
int arena_start_check(const char *option, struct err *e) __must_check;

/* Guarantees and bounds a user; in share_out(). `most` 0: the whole arena. */
void arena_share(enum arena_user user, uint64_t least, uint64_t most);

/* False: the caller waits, shrinks what it has, or does without. */
bool arena_take(enum arena_user user, enum budget_class class, uint64_t bytes) __must_check;
/* Would it be taken now? */
bool arena_has(enum arena_user user, enum budget_class class, uint64_t bytes);
/* What has been allocated already and cannot be refused: counted, past every bound if need be. */
void arena_must(enum arena_user user, uint64_t bytes);
void arena_give(enum arena_user user, uint64_t bytes);

/* It has all that it can have now: its callers should slow down. */
bool arena_full(enum arena_user user);

/* calloc() out of the arena, by demand; NULL without either. Freed with the same size. */
void *arena_calloc(enum arena_user user, uint64_t n, uint64_t size);
void arena_free(enum arena_user user, void *p, uint64_t bytes); /* p may be NULL */

struct arena_use {
	const char *name;
	uint64_t used;
	uint64_t peak;
	uint64_t least;
	uint64_t most;
	uint64_t refused; /* times */
};
void arena_use(enum arena_user user, struct arena_use *ret_use);
/* Of the whole; `least` is what all are guaranteed. */
void arena_total(struct arena_use *ret_use);
