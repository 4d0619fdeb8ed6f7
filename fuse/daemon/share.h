/*
 * How a mount's daemon shares out its memory (--memory, base/arena.h): requests of the kernel,
 * answers of workers, what is known of chunk files, the table, and the names of the fuse engine.
 */
#pragma once

#include <stdint.h>
#include "base/budget.h"
#include "base/check.h"
#include "base/err.h"

struct share {
	uint64_t slots_bytes; /* of a new mount's memfd */
	uint32_t chunks;      /* chunk files known at once */
	struct budget answers;
};

/* Opens the process' arena. -ENOMEM: `memory` is less than any mount needs; the line says what it
 * needs. */
int share_open(struct share *share, uint64_t memory, struct err *e) __must_check;

/* Makes `fd` as large as a new mount's slots; one that has a size keeps it. Counts it. */
int share_slots(const struct share *share, int fd, struct err *e) __must_check;
