/*
 * A memory budget: reservations out of one maximum, in classes of importance. Past it callers wait
 * or do without; nothing grows.
 *
 * A class may use the budget only up to its share, so that prefetch never takes what demand needs.
 * Threads: any.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include "base/check.h"

enum budget_class {
	BUDGET_DEMAND,   /* a reader waits for it: up to 100 % */
	BUDGET_FILL,     /* neighbours of what was asked for: up to 85 % */
	BUDGET_PREFETCH, /* up to 70 % */
};

struct budget {
	uint64_t max;
	_Atomic uint64_t used;
	_Atomic uint64_t peak;
};

void budget_init(struct budget *b, uint64_t max);

/* Takes `bytes`, or returns false when the class's share is used up. */
bool budget_take(struct budget *b, enum budget_class class, uint64_t bytes) __must_check;
void budget_give(struct budget *b, uint64_t bytes);
