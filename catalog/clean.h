/*
 * Which live objects of a volume get new offsets when a generation is built
 * (docs/decisions/cleaning.md): those in chunks of which more than a third is dead, the deadest
 * first, so that the old chunks can go.
 *
 *	clean_init ─► clean_live() for each row that stays where it is ─► clean_choose()
 *	           ─► clean_take() for each of them again, in key order: does it move?
 *
 * Memory: 2 bytes a chunk; volumes beyond CLEAN_VOLUME_MAX are not cleaned. One thread's.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include "base/check.h"

#define CLEAN_VOLUME_MAX (1ull << 50)
#define CLEAN_SHARE      7u /* this part of the live bytes moves at most */

struct clean {
	uint16_t *live;  /* blocks of each chunk that are live; of those chosen, CHOSEN */
	uint64_t chunks; /* before the last, which is still being filled */
	uint64_t live_blocks;
	uint64_t budget; /* blocks that may still move */
	uint64_t chosen; /* chunks */
};

/* `end`: of the previous generation. -ENOMEM. */
int clean_init(struct clean *clean, uint64_t end) __must_check;
void clean_release(struct clean *clean);
/* An object with bytes that is in the new generation and has its offset already. */
void clean_live(struct clean *clean, uint64_t offset, uint64_t size);
void clean_choose(struct clean *clean);
/* True if the object, which clean_live() was called for, moves; charges it. */
bool clean_take(struct clean *clean, uint64_t offset, uint64_t size);
