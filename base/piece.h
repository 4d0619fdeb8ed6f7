/*
 * The seed of a piece's checksum, for whoever writes or checks pieces: hash_xxh3(bytes, length,
 * piece_seed(object seed, number)). Bytes under a wrong layout then fail verification instead of
 * being served.
 */
#pragma once

#include <stdint.h>

/* Of piece `number` (offset in its object / PIECE_BYTES) of an object; see piece_object_seed() of
 * the catalog for the object's. */
static inline uint64_t piece_seed(uint64_t object_seed, uint64_t number)
{
	uint64_t x = object_seed ^ (number + 1) * 0x9E3779B97F4A7C15ull;

	x = (x ^ (x >> 30)) *
	    0xBF58476D1CE4E5B9ull; /* splitmix64's finaliser (Steele et al. 2014) */
	x = (x ^ (x >> 27)) * 0x94D049BB133111EBull;
	return x ^ (x >> 31);
}
