/*
 * Is a tier's disk to be trusted?
 *
 *	ok ──3 errors in a minute, or a call of 30 s──► suspect ──10 errors, or the index──► out
 *	 ▲                                                │                                   │
 *	 └──────────── a minute without ──────────────────┴────────── a probe succeeds ───────┘
 *
 * suspect: what is there is read and filled, nothing new is admitted. out: nothing is touched but
 * by probes. Threads: any; reading the state takes no lock.
 */
#pragma once

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

enum health_state {
	HEALTH_OK,
	HEALTH_SUSPECT,
	HEALTH_OUT,
};

#define HEALTH_WINDOW_NS   (60ull * 1000000000ull)
#define HEALTH_STALL_NS    (30ull * 1000000000ull)
#define HEALTH_PROBE_NS    (5ull * 1000000000ull)
#define HEALTH_SUSPECT_MIN 3u
#define HEALTH_OUT_MIN     10u

struct health {
	pthread_mutex_t lock;
	_Atomic int state;
	uint64_t errors[HEALTH_OUT_MIN]; /* times of the last errors, a ring; 0: none */
	uint32_t next;
	uint64_t last_probe;
	uint64_t last_stall; /* monotonic ns when a call was last seen to hang; 0: never */
};

void health_init(struct health *h);
void health_release(struct health *h);

enum health_state health_get(const struct health *h);
const char *health_name(enum health_state state);

/* True for errors that speak of the disk and not of the caller or of room. */
bool health_counts(int code);

/* An I/O error, at monotonic time `now` in ns; the state afterwards. */
enum health_state health_error(struct health *h, uint64_t now);
/* A call took `ns`. */
void health_took(struct health *h, uint64_t now, uint64_t ns);
/* A call has been under way for HEALTH_STALL_NS and still is. */
void health_stalls(struct health *h, uint64_t now);
/* Not fully in service, for another reason than errors. */
void health_suspect(struct health *h);
/* The index failed: out at once. */
void health_fail(struct health *h);

/* suspect becomes ok after a quiet minute. */
void health_tick(struct health *h, uint64_t now);
/* True when the tier is out, or `wanted`, and it is this caller's turn to probe. */
bool health_probe_due(struct health *h, uint64_t now, bool wanted);
void health_recovered(struct health *h);
