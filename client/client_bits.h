/*
 * One bit per block of a chunk, read and changed by any thread without a lock. Ranges are in
 * blocks; every word is changed atomically, a range over two words is not.
 */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include "base/check.h"
#include "base/layout.h"

#define CLIENT_BITS_WORDS (CHUNK_BLOCKS / 64)

struct client_bits {
	_Atomic uint64_t words[CLIENT_BITS_WORDS];
};

/* The part of [from, from + n) in word `w`. */
static inline uint64_t client_bits_mask(uint32_t w, uint32_t from, uint32_t n)
{
	uint32_t low = max(from, w * 64) - w * 64;
	uint32_t high = min(from + n, w * 64 + 64) - w * 64;

	return (high == 64 ? UINT64_MAX : (1ull << high) - 1) & ~((1ull << low) - 1);
}

static inline bool client_bits_all(const struct client_bits *bits, uint32_t from, uint32_t n)
{
	ensure(n && from + n <= CHUNK_BLOCKS);
	for (uint32_t w = from / 64; w * 64 < from + n; w++) {
		uint64_t mask = client_bits_mask(w, from, n);

		if ((atomic_load_explicit(&bits->words[w], memory_order_acquire) & mask) != mask)
			return false;
	}
	return true;
}

static inline bool client_bits_any(const struct client_bits *bits, uint32_t from, uint32_t n)
{
	ensure(n && from + n <= CHUNK_BLOCKS);
	for (uint32_t w = from / 64; w * 64 < from + n; w++)
		if (atomic_load_explicit(&bits->words[w], memory_order_acquire) &
			client_bits_mask(w, from, n))
			return true;
	return false;
}

static inline void client_bits_set(struct client_bits *bits, uint32_t from, uint32_t n)
{
	ensure(n && from + n <= CHUNK_BLOCKS);
	for (uint32_t w = from / 64; w * 64 < from + n; w++)
		atomic_fetch_or_explicit(
			&bits->words[w], client_bits_mask(w, from, n), memory_order_acq_rel);
}

static inline void client_bits_clear(struct client_bits *bits, uint32_t from, uint32_t n)
{
	ensure(n && from + n <= CHUNK_BLOCKS);
	for (uint32_t w = from / 64; w * 64 < from + n; w++)
		atomic_fetch_and_explicit(
			&bits->words[w], ~client_bits_mask(w, from, n), memory_order_acq_rel);
}
