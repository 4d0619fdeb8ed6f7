/*
 * The kinds of objects that jobs read from a source, so that backfill follows them (docs/decisions/fill-policy.md).
 *
 * A kind is a directory, a suffix and a size class. Words with digits in them are equal, so the numbered directories
 * of one dataset are one kind. A miss pays for a number of unasked requests for objects of its kind. The first miss of
 * a kind pays for as many objects of its suffix and size class in any directory, so that a dataset with a directory for
 * each few objects has backfill too. Objects without credit are not fetched unasked.
 *
 * The size is fixed: a new kind may displace another one, whose next miss is a first one again. Zeroed memory is empty.
 *
 * Threads: any.
 */
#pragma once

#include "catalog/catalog.h"

#define KINDS_MAX 1024u

struct kinds {
	/* The hash of a kind above its credit in requests; 0: free. */
	_Atomic uint64_t slots[KINDS_MAX];
};

/* A miss of the object pays for `requests` unasked ones. */
void kinds_pay(struct kinds *kinds, const struct table_row *row, uint32_t requests);

/* Misses have paid for a request for the object. */
bool kinds_have_credit(struct kinds *kinds, const struct table_row *row);

/* Uses the credit of one request, if any is left. */
void kinds_spend(struct kinds *kinds, const struct table_row *row);
