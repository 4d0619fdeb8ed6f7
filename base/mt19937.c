/* MT19937. See mt19937.h. */
#include "base/mt19937.h"

#define SHIFT      397u
#define UPPER_MASK 0x80000000u
#define LOWER_MASK 0x7fffffffu
#define MATRIX     0x9908b0dfu

void mt19937_init(struct mt19937 *mt, uint32_t seed)
{
	mt->state[0] = seed;
	for (uint32_t i = 1; i < MT19937_WORDS; i++) {
		uint32_t before = mt->state[i - 1];

		mt->state[i] = 1812433253u * (before ^ (before >> 30)) + i;
	}
	mt->used = MT19937_WORDS;
}

static void twist(struct mt19937 *mt)
{
	for (uint32_t i = 0; i < MT19937_WORDS; i++) {
		uint32_t next = mt->state[(i + 1) % MT19937_WORDS];
		uint32_t y = (mt->state[i] & UPPER_MASK) | (next & LOWER_MASK);

		mt->state[i] =
			mt->state[(i + SHIFT) % MT19937_WORDS] ^ (y >> 1) ^ (y & 1 ? MATRIX : 0);
	}
	mt->used = 0;
}

uint32_t mt19937_next(struct mt19937 *mt)
{
	uint32_t y;

	if (mt->used == MT19937_WORDS)
		twist(mt);
	y = mt->state[mt->used++];
	y ^= y >> 11;
	y ^= (y << 7) & 0x9d2c5680u;
	y ^= (y << 15) & 0xefc60000u;
	return y ^ (y >> 18);
}

uint64_t mt19937_next64(struct mt19937 *mt)
{
	uint64_t upper = mt19937_next(mt);

	return upper << 32 | mt19937_next(mt);
}
