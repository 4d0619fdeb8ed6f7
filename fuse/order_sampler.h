/*
 * Which sample a job reads at which place of its epoch, as PyTorch has it:
 *
 *	torch.randperm(n, generator=g) after g.manual_seed(seed)
 *		(aten/src/ATen/native/TensorFactories.cpp, randperm_cpu)
 *	torch.utils.data.DistributedSampler
 *		(torch/utils/data/distributed.py: padding, drop_last, every world-th sample)
 *
 * Pure functions; threads: any.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include "base/check.h"

/* From here on torch.randperm() goes another way. */
#define ORDER_PERMUTE_LARGE (UINT32_MAX / 20)

/* out[0..n) becomes randperm(n) of a generator with that seed, of which torch uses 32 bits. */
void order_permute(uint32_t *out, uint32_t n, uint64_t seed);
/* Its two ways, each for any n. */
void order_permute_small(uint32_t *out, uint32_t n, uint64_t seed);
void order_permute_large(uint32_t *out, uint32_t n, uint64_t seed);

/* What one rank reads of an order of n samples. */
struct order_share {
	uint64_t n;
	uint32_t rank;
	uint32_t world;
	bool drop_last;
};

/* Its samples in an epoch. */
uint64_t order_share_count(const struct order_share *share);
/* Where in the common order its k-th sample is, k < count. */
uint64_t order_share_place(const struct order_share *share, uint64_t k);
/* The reverse; false when that place is another rank's, or nobody's. */
bool order_share_find(
	const struct order_share *share, uint64_t place, uint64_t *ret_k) __must_check;
