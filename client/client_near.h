/*
 * What lies next: a directory of small files that is read in its order is a range of the volume that is read
 * in its order, so a reader without a local copy fetches whole neighbouring ranges from the workers that
 * have them, up to 1 MiB a request, and serves the files from memory (docs/decisions/peer-reads.md).
 *
 *	reads in order ──► stream ──► window: FETCHING ──► READY ──► used up, or CLIENT_NEAR_IDLE old: dropped
 *	                                 ▲ reads of its range wait    └─► reads of its range are answered from it
 *
 * A small object of which the kernel reads the begin only is fetched whole: the rest of it is asked for next.
 *
 * As much is on its way ahead of a stream as was read of it, CLIENT_NEAR_AHEAD at most: several requests, so
 * that no reader waits for a round trip. A window is the answer as it came: nothing is copied.
 *
 * Only what workers have is fetched so (FETCH_CACHED): it costs the origin nothing. Bounded: so many windows
 * of 1 MiB for all volumes, out of the client's budget, as far as prefetch may use it.
 *
 * Threads: any, unless stated. The lock is held for comparisons only.
 */
#pragma once

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include "base/clock.h"
#include "base/loop.h"
#include "client/client.h"

#define CLIENT_NEAR_WINDOWS 32u
#define CLIENT_NEAR_OBJECTS \
	16u /* of the windows: for objects of which a part is read; they give way to streams */
#define CLIENT_NEAR_STREAMS 16u
#define CLIENT_NEAR_AHEAD   (4u << 20) /* bytes in flight, or not read yet, of one stream */
#define CLIENT_NEAR_IDLE    (5 * CLOCK_SECOND)

struct client_op;

struct client_near_stream {
	struct client_volume *volume; /* NULL: unused */
	uint64_t next;                /* behind the furthest read */
	uint64_t fetched;             /* behind what was fetched for it */
	uint64_t bytes;               /* read of it */
	uint32_t hits;                /* reads in a row that went on with it */
	uint64_t used;
};

enum client_near_state {
	NEAR_FREE,
	NEAR_FETCHING,
	NEAR_READY,
	NEAR_FAILED, /* until its task has run */
};

struct client_near_window {
	enum client_near_state state;
	struct client *client;
	struct client_volume *volume; /* NULL: it is closed */
	uint64_t offset;
	uint32_t length;
	bool object;    /* one object, of which the kernel asked for the begin */
	uint64_t used;  /* bytes that were read from it */
	uint64_t clock; /* of the streams, when it was asked for */
	uint32_t refs;  /* readers, and its task */
	uint64_t touched_ns;
	const uint8_t *data;
	void *memory; /* that contains the data */
	struct client_read read;
	struct loop_task task;
	struct list waiters; /* ops; the loop's */
};

struct client_near {
	pthread_mutex_t lock;
	bool local; /* there is a worker on this node: nothing, but while it sends reads away */
	uint64_t clock;
	uint64_t cold_ns;   /* workers had not all of a range: nothing is tried until then */
	uint64_t wasted_ns; /* rests of objects were not read: likewise of objects */
	uint32_t objects_begun;
	uint32_t objects_wasted; /* of them, since that was weighed last */
	struct client_near_stream streams[CLIENT_NEAR_STREAMS];
	struct client_near_window windows[CLIENT_NEAR_WINDOWS];
	struct loop_timer *timer; /* the loop's */
	uint32_t n_waiters;       /* likewise: reads in state NEAR */
	bool stopped;             /* likewise */
};

void client_near_init(struct client *client, bool local);
/* On the loop: no timer any more. */
void client_near_stop(struct client *client);
/* The loop has ended. */
void client_near_release(struct client *client);
/* The volume has no read in flight, and is closed. */
void client_near_forget(struct client_volume *volume);

/* The kernel reads that. May fetch what lies next. */
void client_near_note(struct client_volume *volume, uint64_t offset, uint32_t length);
/* On the loop: the op ends with a window's bytes, or waits for them: true. */
bool client_near_serve(struct client_op *op);
