/*
 * Placement: which worker owns which chunk. Pure functions over plain memory: no I/O, no memory but
 * the table's and a repair's scratch.
 *
 * 65,536 slots; a chunk's slot follows from its volume and number alone, a slot's owner from one
 * array load. The master assigns slots by weighted rendezvous hashing (Thaler & Ravishankar, 1998)
 * with bounded load (Mirrokni, Thorup, Zadimoghaddam, 2018; bound 2 %) and sticky repair: only
 * slots that must move do.
 *
 * A table is written by one thread (the master) and read by any after it was published.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include "base/err.h"
#include "base/layout.h"

#define PLACEMENT_SLOTS 65536u
#define PLACEMENT_NONE  0xffffu /* no worker */
#define PLACEMENT_MAX   4096u   /* workers */

/* Wire and memory form of one slot: worker numbers. */
struct placement_slot {
	uint16_t owner;
	uint16_t previous; /* asked before the origin; PLACEMENT_NONE when there is none */
	uint16_t replicas[2];
};

struct placement_table {
	uint64_t epoch;    /* of the master */
	uint64_t sequence; /* grows with each change; lower (epoch, sequence) is refused */
	struct placement_slot slots[PLACEMENT_SLOTS];
};

struct placement_worker {
	uint16_t number; /* stable, < PLACEMENT_MAX */
	uint16_t domain; /* failure domain */
	uint32_t weight; /* capacity in any unit; 0: drained, owns nothing */
	bool down;       /* keeps what it owns, and receives nothing while another one is up */
	uint64_t id;     /* random for life; what is hashed */
};

static inline uint32_t placement_slot_of(uint64_t volume_hash, uint64_t chunk)
{
	return (uint32_t)((volume_hash + chunk * 40503u) % PLACEMENT_SLOTS);
}

/* XXH3 of the volume id: computed once per volume. */
uint64_t placement_volume_hash(const struct volume_id *volume);

/* An empty table: no slot owned, epoch and sequence 0. NULL without memory; free
 * with free(). */
struct placement_table *placement_table_new(void);

/*
 * Gives every slot an owner among `workers` (n >= 1 with weight > 0): slots whose owner is still
 * there and not over its bound stay, but for those that lift a newcomer to its share; the rest move
 * by rendezvous, but first to who had them before. Loads are within 2 % of the shares (and a slot, where a share is small). A moved
 * slot's old owner becomes `previous`. sequence grows by one when anything changed. Replicas (0..2
 * per slot), best first, avoid the owner's domain and each other's where they can. Returns the
 * number of slots moved, -EINVAL (no weight, a number twice or too large) or -ENOMEM. Some 10 ms
 * for 10 workers, half a second for 1,000 at first and less afterwards: not for a loop's thread.
 */
int placement_repair(struct placement_table *table, const struct placement_worker *workers,
	uint32_t n, uint32_t replicas) __must_check;

/* True when (epoch, sequence) of `candidate` is newer than `current`'s. */
bool placement_newer(
	const struct placement_table *candidate, const struct placement_table *current);
