/* Which objects move. See clean.h. */
#include "catalog/clean.h"
#include "catalog/catalog_internal.h"

#include <assert.h>
#include <stdlib.h>

/* A chunk with more live blocks than this stays. Blocks that pad the layout count as dead: at most
 * an eighth of a chunk. */
#define LIVE_MAX (CHUNK_BLOCKS - CHUNK_BLOCKS / 3 - 1)
/* Set in addition to the count: an object of more than a chunk weighs both. */
#define CHOSEN 0x8000u

static_assert(CHUNK_BLOCKS < CHOSEN, "a count and a bit");

int clean_init(struct clean *c, uint64_t end)
{
	*c = (struct clean){ 0 };
	if (end > CLEAN_VOLUME_MAX)
		return 0;
	c->chunks = end / CHUNK_BYTES;
	c->live = calloc(c->chunks + 1, sizeof(*c->live));
	return c->live ? 0 : -ENOMEM;
}

void clean_release(struct clean *c)
{
	free(c->live);
	*c = (struct clean){ 0 };
}

static uint64_t blocks_of(uint64_t size)
{
	return (size + BLOCK_BYTES - 1) / BLOCK_BYTES;
}

void clean_live(struct clean *c, uint64_t offset, uint64_t size)
{
	uint64_t block = offset / BLOCK_BYTES;
	uint64_t left = blocks_of(size);

	c->live_blocks += left;
	while (left > 0) {
		uint64_t chunk = block / CHUNK_BLOCKS;
		uint64_t n = min(left, CHUNK_BLOCKS - block % CHUNK_BLOCKS);

		if (chunk >= c->chunks)
			return;
		c->live[chunk] = (uint16_t)(c->live[chunk] + n);
		block += n;
		left -= n;
	}
}

/* The deadest chunks whose live blocks fit the budget; of those alike, the first. */
void clean_choose(struct clean *c)
{
	uint64_t alike[LIVE_MAX + 1] = { 0 }; /* chunks by live blocks */
	uint64_t left = c->live_blocks / CLEAN_SHARE;
	uint64_t some;    /* of the last count not all fit */
	uint32_t all = 1; /* counts below this fit */

	c->budget = left;
	for (uint64_t i = 0; i < c->chunks; i++)
		if (c->live[i] <= LIVE_MAX)
			alike[c->live[i]]++;
	for (; all <= LIVE_MAX && alike[all] <= left / all; all++)
		left -= alike[all] * all;
	some = all <= LIVE_MAX ? left / all : 0;
	for (uint64_t i = 0; i < c->chunks; i++) {
		uint16_t live = c->live[i];

		if (live == 0 || live > all || live > LIVE_MAX || (live == all && some == 0))
			continue;
		some -= live == all;
		c->live[i] |= CHOSEN;
		c->chosen++;
	}
}

/* An object of at most a chunk moves with any chunk that it is stored in; a larger one only when what
 * dies with it, in the chunks where it ends, is more than it is. */
static bool worth(const struct clean *c, uint64_t offset, uint64_t size)
{
	uint64_t first = offset / CHUNK_BYTES;
	uint64_t last = (offset + size - 1) / CHUNK_BYTES;
	uint64_t freed = 0;

	if (last >= c->chunks)
		return false;
	for (uint64_t i = first; i <= last; i += max(last - first, 1ull))
		if (c->live[i] & CHOSEN)
			freed += CHUNK_BLOCKS - (c->live[i] & ~CHOSEN);
	return size <= CHUNK_BYTES ? freed > 0 : freed > blocks_of(size);
}

bool clean_take(struct clean *c, uint64_t offset, uint64_t size)
{
	uint64_t blocks = blocks_of(size);

	if (c->chosen == 0 || blocks > c->budget || !worth(c, offset, size))
		return false;
	c->budget -= blocks;
	return true;
}
