/*
 * What a process of root may beyond an ordinary user's. Each daemon keeps what it needs, for itself
 * and for whatever it starts.
 *
 * Threads: the rights are a thread's own: call it before others start.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include "base/err.h"

/* A bit of the masks below; `number` of linux/capability.h. */
#define CAPABILITY(number) (1ull << (number))

/*
 * Gives up every capability that is not in `mask`, for good: out of the bounding set too, so that
 * no program that this process starts has them. Nothing to do is no error.
 */
int capabilities_keep(uint64_t mask) __must_check;
/* The same, but what this process starts may have them again: for who starts the keeper. */
int capabilities_rest(uint64_t mask) __must_check;
/* Those that this thread has now. */
uint64_t capabilities_effective(void);
