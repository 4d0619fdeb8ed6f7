/*
 * A memory budget: reservations out of one maximum, in classes of importance. Past it callers wait
 * or do without; nothing grows.
 *
 * A class may use the budget only up to its share, so that prefetch never takes what demand needs.
 * A budget may stand for a user of the process' arena (base/arena.h): what is taken from the one is
 * taken from the other.
 * Threads: any.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include "base/check.h"

enum budget_class {
	BUDGET_DEMAND,   /* a reader waits for it: up to 100 % */
	BUDGET_FILL,     /* neighbours of what was asked for: up to 70 % */
	BUDGET_PREFETCH, /* announced by a reader: up to 85 % */
};

struct budget {
	uint64_t max;
	_Atomic uint64_t used;
	_Atomic uint64_t peak;
	int user; /* enum arena_user, or BUDGET_ALONE */
};

#define BUDGET_ALONE (-1)

void budget_init(struct budget *b, uint64_t max);
/* The same, out of the arena: `user` is an enum arena_user. */
void budget_init_user(struct budget *b, uint64_t max, int user);
/* What a class may have of `max`. */
uint64_t budget_share(uint64_t max, enum budget_class class);

/* Takes `bytes`, or returns false when the class's share is used up. */
bool budget_take(struct budget *b, enum budget_class class, uint64_t bytes) __must_check;
/* Would it be taken now? */
bool budget_has(struct budget *b, enum budget_class class, uint64_t bytes);
void budget_give(struct budget *b, uint64_t bytes);
