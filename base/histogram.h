/*
 * How long things took: counts in fixed buckets whose bounds double, from 32 us to 268 s, and a sum.
 * Noting one is two relaxed additions; nothing is allocated, nothing locked.
 *
 * Lives where its owner puts it, zeroed. Threads: any. Lists are declared as those of counters:
 *
 *	#define WORKER_HISTOGRAMS(X) \
 *		X(hit, "granary_worker_fetch_seconds", "from", "tier", "From a request to its answer")
 *
 * with a label that tells apart those of one name, which follow each other; NULL, NULL: none.
 */
#pragma once

#include "base/counter.h"

#define HISTOGRAM_BOUNDS   24u
#define HISTOGRAM_LEAST_NS 32000ull /* bound of the first bucket */

struct histogram {
	counter_t buckets[HISTOGRAM_BOUNDS + 1]; /* each for itself; the last has no bound */
	counter_t sum_ns;
};

struct histogram_info {
	const char *symbol;
	const char *name;
	const char *label; /* NULL: none */
	const char *value; /* of the label */
	const char *help;
	size_t offset; /* of the struct histogram */
};

#define HISTOGRAM_FIELD(symbol, name, label, value, help) struct histogram symbol;
#define HISTOGRAM_STRUCT(tag, LIST)   \
	struct tag {                  \
		LIST(HISTOGRAM_FIELD) \
	}
#define HISTOGRAM_ROW(tag, symbol, name, label, value, help) \
	{ #symbol, name, label, value, help, offsetof(struct tag, symbol) },

/* Largest of bucket i, in ns. */
static inline uint64_t histogram_bound_ns(unsigned int i)
{
	return HISTOGRAM_LEAST_NS << i;
}

/* The bucket of a duration: the first whose bound is not below it. */
static inline unsigned int histogram_bucket(uint64_t ns)
{
	uint64_t times = ns == 0 ? 0 : (ns - 1) / HISTOGRAM_LEAST_NS;
	unsigned int bucket = times == 0 ? 0 : 64 - (unsigned int)__builtin_clzll(times);

	return bucket < HISTOGRAM_BOUNDS ? bucket : HISTOGRAM_BOUNDS;
}

static inline void histogram_note(struct histogram *h, uint64_t ns)
{
	counter_add(&h->buckets[histogram_bucket(ns)], 1);
	counter_add(&h->sum_ns, ns);
}
