/*
 * The volumes of a set: what an operator said of each, what is charged to it over all tiers, how
 * much it is read, and its chunks in the order in which they go.
 *
 * A chunk is in one queue of its volume, by its tier and by why it may go early:
 *
 *	UNREAD	no reader asked for any byte of it: a neighbour, or announced and not yet read; UNREAD_COPY where another worker owns it
 *	COPY	another worker owns it
 *	OWNED	all others
 *
 * Each queue is in the order of the last reads, the oldest first.
 *
 * Volumes are ranked by (priority, bytes asked for per byte of the source, decayed): the lower goes
 * first.
 *
 * Threads: any. One lock, `volumes.lock`, is a leaf but for the reference of a queued chunk, which
 * is atomic: a chunk is queued only while the set holds its own reference.
 */
#pragma once

#include <pthread.h>
#include "base/list.h"
#include "base/map.h"
#include "tiers/tiers.h"

#define VOLUMES_MAX       65536u
#define HEAT_HALF_LIFE_NS (600ull * 1000000000ull)
#define HEAT_GRAIN_NS     (1000000000ull)
#define HEAT_OF_A_READ    4096u /* so that what is left of one read can be distinguished from none */

struct chunk;

enum space_queue {
	QUEUE_UNREAD_COPY,
	QUEUE_UNREAD,
	QUEUE_COPY,
	QUEUE_OWNED,
	SPACE_QUEUES,
};

/* A sum that loses half of itself every HEAT_HALF_LIFE_NS. */
struct heat {
	uint64_t value;
	uint64_t at; /* ns */
};

uint64_t heat_get(const struct heat *heat, uint64_t now);

struct volume_space {
	struct map_node node;
	struct list link; /* volumes.all */
	struct volume_id id;
	/* Under volumes.lock: */
	struct tier_policy policy;
	bool has_policy;
	uint64_t chunks; /* in memory, in any state */
	uint64_t size;   /* bytes of the source; 0: not known */
	struct heat asked;
	/* Bytes; reservations count as charged. */
	_Atomic uint64_t quota; /* the policy's, to be read without the lock */
	_Atomic uint64_t charged;
	_Atomic uint64_t held;   /* part of it: unlinked, and not yet let go of */
	_Atomic uint64_t buried; /* part of that: in extents in which others live */
	_Atomic uint64_t evicted;
	_Atomic uint64_t changes;           /* as in tier_volume_status */
	struct list queues[][SPACE_QUEUES]; /* by tier */
};

struct volumes {
	pthread_mutex_t lock;
	struct map map;
	struct list all;
	uint32_t n;
	uint32_t n_tiers;
	uint64_t (*_Atomic clock)(void); /* monotonic ns; tests set their own */
};

int volumes_init(struct volumes *volumes, uint32_t n_tiers) __must_check;
void volumes_release(struct volumes *volumes);

/* The volume, made when it is not known, with one more chunk. NULL without memory or room for
 * another volume. */
struct volume_space *volumes_join(struct volumes *volumes, const struct volume_id *id);
/* One chunk less. */
void volumes_leave(struct volumes *volumes, struct volume_space *space);

/* Puts a chunk into the queue that fits it, in order of its last read; it is in none. */
void volumes_queue(struct volumes *volumes, struct chunk *chunk);
void volumes_unqueue(struct volumes *volumes, struct chunk *chunk);
/* It is here for another reason from now on. */
void volumes_reclass(struct volumes *volumes, struct chunk *chunk, enum tier_class class);
/* Somebody wanted bytes of the chunk. */
void volumes_read(struct volumes *volumes, struct chunk *chunk);

/* What is known of the reads of a chunk goes over to its copy, which is in no queue yet. */
void volumes_move_heat(struct volumes *volumes, const struct chunk *from, struct chunk *to);

/* Takes `bytes` of the quota; -ENOSPC. */
int volumes_reserve(struct volume_space *space, uint64_t bytes) __must_check;
/* What is left of the quota; UINT64_MAX: there is none. */
uint64_t volumes_room(const struct volume_space *space);
void volumes_settle(struct volume_space *space, uint64_t reserved, uint64_t charged);

/* Bytes that the volume would be charged beyond its quota with `need` more; 0: it has room for them. */
uint64_t volumes_excess(const struct volume_space *space, uint64_t need);

/* As tier_soon(). */
uint64_t volumes_soon(const struct volume_space *space);

/* What a cached byte of the volume saves; comparable between volumes. */
uint64_t volumes_value_locked(const struct volume_space *space, uint64_t now);
