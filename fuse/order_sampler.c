/* PyTorch's order of samples. See order_sampler.h. */
#include "fuse/order_sampler.h"
#include "base/mt19937.h"

void order_permute_small(uint32_t *out, uint32_t n, uint64_t seed)
{
	struct mt19937 mt;

	mt19937_init(&mt, (uint32_t)seed);
	for (uint32_t i = 0; i < n; i++)
		out[i] = i;
	for (uint32_t i = 0; i + 1 < n; i++) {
		uint32_t other = i + mt19937_next(&mt) % (n - i);
		uint32_t kept = out[i];

		out[i] = out[other];
		out[other] = kept;
	}
}

void order_permute_large(uint32_t *out, uint32_t n, uint64_t seed)
{
	struct mt19937 mt;

	mt19937_init(&mt, (uint32_t)seed);
	for (uint32_t i = 0; i < n; i++) {
		uint32_t other = (uint32_t)(mt19937_next64(&mt) % ((uint64_t)i + 1));

		out[i] = i;
		out[i] = out[other];
		out[other] = i;
	}
}

void order_permute(uint32_t *out, uint32_t n, uint64_t seed)
{
	if (n < ORDER_PERMUTE_LARGE)
		order_permute_small(out, n, seed);
	else
		order_permute_large(out, n, seed);
}

uint64_t order_share_count(const struct order_share *share)
{
	uint64_t n = share->n;

	if (n == 0)
		return 0;
	if (share->drop_last)
		return n / share->world;
	return n / share->world + (n % share->world != 0);
}

/* What is missing at the end is taken from the beginning, again and again if need be. */
uint64_t order_share_place(const struct order_share *share, uint64_t k)
{
	return (k * share->world + share->rank) % share->n;
}

bool order_share_find(const struct order_share *share, uint64_t place, uint64_t *ret_k)
{
	uint64_t k = place / share->world;

	if (place % share->world != share->rank || k >= order_share_count(share))
		return false;
	*ret_k = k;
	return true;
}
