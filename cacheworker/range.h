/*
 * Ranges: one GET for several units of a large object that no reader waits for, one behind the other in a chunk
 * (docs/decisions/ranges.md). Each unit ends as soon as its own bytes are there, and the reader of a unit far behind
 * them does not wait: the range is cut there, and what follows is asked for by a GET of its own.
 *
 *	a batch of flights -> range_start() -> one GET; bytes land in one unit after the other
 *	a reader wants a unit: near those that land, or behind others that readers want -> the GET is promoted
 *		far from them -> cut: [unit, end) becomes another range, of class DEMAND
 *	the GET fails -> the units that are not whole fail with it; or they are asked for one by one: in another way to
 *		the source, or with a deadline of their own if bytes came until this one's
 *
 * Lifetime: from range_start() or a cut to the end of its GET, which frees it. It has its units' references for the
 * origin, each until the unit is whole or has failed, and copies of key and tag. flight.range is set under flights.lock
 * as long as the range has the unit; a caller with that lock may therefore use the range of a flight, and promote or cancel
 * its GET.
 *
 * Locks: flights.lock, also over ufs_get(), ufs_promote() and ufs_cancel(); never over a callback of a waiter. Only the
 * origin's thread allocates and writes the data of a unit, and only after it has claimed the unit under the lock; a
 * claimed unit is not cut off. So no two requests write to one unit.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include "base/layout.h"

struct flight;

/* Of a chunk: objects need not begin with a unit of it. */
#define RANGE_UNITS (CHUNK_BYTES / UNIT_BYTES + 1)

/* Can `next` be fetched by the same GET as `last`? */
bool range_joins(const struct flight *last, const struct flight *next);

/* Asks the origin for flights of one source and chunk, one behind the other, each of which ends here. Takes the
 * reference that each has for its origin. */
void range_start(struct flight **flights, uint32_t n);

/* Under flights.lock: its class was raised; its source is reached in another way. */
void range_raise_locked(struct flight *f);
void range_leave_locked(struct flight *f);
