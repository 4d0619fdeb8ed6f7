/*
 * The Mersenne Twister MT19937 (Matsumoto and Nishimura, ACM TOMACS 8(1), 1998), seeded by one
 * number as init_genrand() of the authors' mt19937ar.c does: the generator behind permutations of
 * PyTorch and, seeded otherwise, of Python.
 *
 * Plain values; threads: one at a time.
 */
#pragma once

#include <stdint.h>

#define MT19937_WORDS 624u

struct mt19937 {
	uint32_t state[MT19937_WORDS];
	uint32_t used; /* words of `state` that were given out */
};

void mt19937_init(struct mt19937 *mt, uint32_t seed);
uint32_t mt19937_next(struct mt19937 *mt);
/* Two of them, the first in the upper half. */
uint64_t mt19937_next64(struct mt19937 *mt);
