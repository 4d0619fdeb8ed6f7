/*
 * What could not be fetched last, for people who ask why a file cannot be read: a bounded list, the
 * newest kept.
 *
 * Threads: any.
 */
#pragma once

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include "base/layout.h"

#define TROUBLES_MAX  64u
#define TROUBLES_TEXT 512u

struct trouble {
	struct volume_id volume;
	uint64_t lineage;
	uint64_t start; /* volume offset */
	uint64_t length;
	uint64_t at_ns; /* monotonic; 0: free */
	int status;
	bool remembered; /* the origin was not asked: the line of the same failure before it says more, and stays */
	char text[TROUBLES_TEXT]; /* the origin's line, cut where it is longer */
};

struct troubles {
	pthread_mutex_t lock;
	struct trouble rows[TROUBLES_MAX];
};

void troubles_init(struct troubles *troubles);
void troubles_release(struct troubles *troubles);

/* Takes the place of an earlier one of the same range, else of the oldest. `what->at_ns` is set
 * here; all else is copied, but for the text of one that is remembered and was noted before. */
void troubles_note(struct troubles *troubles, const struct trouble *what);

/* The newest that touches [start, start + length) of a volume. False: none. */
bool troubles_find(struct troubles *troubles, const struct volume_id *volume, uint64_t lineage,
	uint64_t start, uint64_t length, struct trouble *ret_trouble);
