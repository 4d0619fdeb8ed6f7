/*
 * Sequential streams over large objects: found from the reads the kernel sends, and run ahead of
 * with PREFETCH requests, because the kernel's own read-ahead does not hide an origin's latency
 * (FACTS: 92 MiB/s at 20 ms per MiB).
 *
 * A fixed table per volume; what does not fit pushes out what was used longest ago. Threads: any;
 * the lock is held for some comparisons only.
 */
#pragma once

#include <pthread.h>
#include <stdint.h>

#define CLIENT_STREAMS    16
#define CLIENT_CANDIDATES 32

/* Reads that touched so far: perhaps a stream. */
struct client_candidate {
	uint64_t start; /* of the first one */
	uint64_t next;  /* where the following one would begin; 0: unused */
};

/* A stream over an object of more than UNIT_BYTES. */
struct client_stream {
	uint64_t start; /* of the object */
	uint64_t end;   /* of the object, rounded up to blocks; 0: unused */
	uint64_t began; /* where the stream was found */
	uint64_t next;  /* behind the furthest byte read */
	uint64_t ahead; /* behind the furthest byte asked for; never goes back */
	uint64_t used;
};

struct client_ahead {
	pthread_mutex_t lock;
	uint64_t clock;
	uint32_t hand; /* the next candidate to replace */
	struct client_candidate candidates[CLIENT_CANDIDATES];
	struct client_stream streams[CLIENT_STREAMS];
};

void client_ahead_init(struct client_ahead *ahead);
void client_ahead_release(struct client_ahead *ahead);
