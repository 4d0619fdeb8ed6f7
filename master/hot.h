/*
 * Slots that are read so much that their owners alone should not serve them: while one is hot its replicas serve
 * it, too (SlotTable.hot).
 *
 * A slot becomes hot above HOT_FACTOR times what a slot is read on average and above HOT_BYTES a second; it cools
 * down once it was below half of HOT_BYTES for HOT_COOL_NS. The HOT_MAX hottest are taken.
 *
 * Owned by one thread, or under its lock.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include "base/clock.h"
#include "base/units.h"

#define HOT_MAX     256u
#define HOT_FACTOR  4u
#define HOT_BYTES   (64 * MiB)
#define HOT_COOL_NS (30 * CLOCK_SECOND)

/* What one worker serves of a slot, bytes a second. */
struct hot_rate {
	uint32_t slot;
	uint64_t bytes;
};

struct hot {
	uint32_t n;
	uint32_t slots[HOT_MAX]; /* ascending */
	uint64_t until[HOT_MAX]; /* it is hot at least */
};

/* `rates` comes in any order and leaves in another; a slot may be there several times. `all`: what all slots are read, bytes a second. True: `slots`
 * changed. */
bool hot_update(struct hot *hot, struct hot_rate *rates, uint32_t n, uint64_t all, uint64_t now);
bool hot_is(const struct hot *hot, uint32_t slot);
