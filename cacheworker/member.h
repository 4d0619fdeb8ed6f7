/*
 * This worker as a member of its cluster: it joins its master (JOIN), tells it once a second that it
 * lives and how it does (BEAT), and receives whether it is being drained. Who else is a member is the
 * view's to know (cluster/view.h).
 *
 *	JOINING ──taken in──► BEATING ──"unknown"──► JOINING
 *	   └──refused, or not reached: again after a while
 *
 * Its id is stored next to its tier (kept.h): a worker on the same tier is the same one. Without an answer
 * from a master it serves all the same: it does what its table says, and without one it owns all.
 *
 * Threads: a periodic work; the functions any, none blocks but for open and close.
 */
#pragma once

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include "base/counter.h"
#include "base/err.h"
#include "base/periodic.h"
#include "cluster/view.h"

struct worker;

#define MEMBER_ADDRESSES CLUSTER_ADDRESSES

/* What it is in the cluster; strings are borrowed. */
struct member_config {
	const char *advertise[MEMBER_ADDRESSES]; /* where others reach it */
	uint32_t n_advertise;                    /* 0: where it listens */
	const char *name;                        /* NULL: the host's */
	const char *domain;                      /* failure domain; NULL: its host */
	uint32_t weight;                         /* 0: by its capacity */
};

struct member {
	struct periodic_work work;
	pthread_mutex_t lock;
	bool open;
	_Atomic bool closing;
	bool joined;      /* the work's, as the next two */
	uint32_t beat_ms; /* from one beat to the next */
	uint64_t beat_ns; /* when the last one was sent */
	uint64_t id;
	char name[CLUSTER_NAME_BYTES];
	char *addresses
		[MEMBER_ADDRESSES]; /* where others reach it; its own: servers end before it does */
	uint32_t n_addresses;
	int said; /* the last trouble that was logged */
	_Atomic uint64_t news;
	_Atomic uint32_t drain; /* changed under the lock; MEMBER_NO_DRAIN */
	uint64_t only_copies;   /* under the lock; MEMBER_UNCOUNTED: not counted for this drain */
	_Atomic uint32_t in_flight; /* requests being served */
	counter_t served_bytes;
	_Atomic uint32_t *rates; /* KiB served of each slot since the last beat */
};

#define MEMBER_UNCOUNTED UINT64_MAX
#define MEMBER_NO_DRAIN  0u

/* The id, and what is counted; before requests come. Needs the tiers. */
int member_init(struct worker *w, struct err *e) __must_check;
/* Where others reach it from now on; once the worker listens. -ENOMEM. */
int member_keep_addresses(struct worker *w) __must_check;
/* Joins. */
void member_start(struct worker *w);
void member_stop(struct worker *w); /* no further beat */
void member_close(
	struct worker *w); /* once the master's client is gone; also after a failed open */

/* Bytes of a slot's chunk were sent to a reader. */
void member_note_served(struct worker *w, uint32_t slot, uint64_t bytes);
/* Its slots have moved, and its bytes are pulled by their new owners. */
bool member_draining(const struct worker *w);
/* The number of this drain, which the master made up; MEMBER_NO_DRAIN. */
uint32_t member_drain(const struct worker *w);
/* Bytes here that no other worker is known to have yet, counted from the beginning while it was drained by that number:
 * of another drain, between which and this it may have owned slots, it says nothing. */
void member_set_only_copies(struct worker *w, uint32_t drain, uint64_t bytes);
