/* Which slots are hot. See hot.h. */
#include "master/hot.h"
#include "base/check.h"
#include "placement/placement.h"

#include <stdlib.h>
#include <string.h>

static int by_slot(const void *a, const void *b)
{
	const struct hot_rate *x = a;
	const struct hot_rate *y = b;

	return x->slot < y->slot ? -1 : x->slot > y->slot;
}

static int by_bytes(const void *a, const void *b)
{
	const struct hot_rate *x = a;
	const struct hot_rate *y = b;

	return x->bytes > y->bytes ? -1 : x->bytes < y->bytes;
}

/* One for each slot. */
static uint32_t sum_up(struct hot_rate *rates, uint32_t n)
{
	uint32_t kept = 0;

	qsort(rates, n, sizeof(*rates), by_slot);
	for (uint32_t i = 0; i < n; i++) {
		if (kept && rates[kept - 1].slot == rates[i].slot)
			rates[kept - 1].bytes += rates[i].bytes;
		else
			rates[kept++] = rates[i];
	}
	return kept;
}

static uint32_t find(const struct hot *hot, uint32_t slot)
{
	uint32_t i = 0;

	while (i < hot->n && hot->slots[i] < slot)
		i++;
	return i;
}

bool hot_is(const struct hot *hot, uint32_t slot)
{
	uint32_t i = find(hot, slot);

	return i < hot->n && hot->slots[i] == slot;
}

static void drop(struct hot *hot, uint32_t i)
{
	hot->n--;
	memmove(&hot->slots[i], &hot->slots[i + 1], (hot->n - i) * sizeof(hot->slots[0]));
	memmove(&hot->until[i], &hot->until[i + 1], (hot->n - i) * sizeof(hot->until[0]));
}

static bool add(struct hot *hot, uint32_t slot, uint64_t until)
{
	uint32_t i = find(hot, slot);

	if (i < hot->n && hot->slots[i] == slot) {
		hot->until[i] = until;
		return false;
	}
	if (hot->n == HOT_MAX)
		return false;
	memmove(&hot->slots[i + 1], &hot->slots[i], (hot->n - i) * sizeof(hot->slots[0]));
	memmove(&hot->until[i + 1], &hot->until[i], (hot->n - i) * sizeof(hot->until[0]));
	hot->slots[i] = slot;
	hot->until[i] = until;
	hot->n++;
	return true;
}

bool hot_update(struct hot *hot, struct hot_rate *rates, uint32_t n, uint64_t all, uint64_t now)
{
	uint64_t least = max(HOT_BYTES, HOT_FACTOR * (all / PLACEMENT_SLOTS));
	bool changed = false;

	n = sum_up(rates, n);
	qsort(rates, n, sizeof(*rates), by_bytes);
	for (uint32_t i = 0; i < n && rates[i].bytes >= HOT_BYTES / 2; i++)
		if (hot_is(hot, rates[i].slot) || rates[i].bytes > least)
			changed |= add(hot, rates[i].slot, now + HOT_COOL_NS);
	for (uint32_t i = hot->n; i-- > 0;)
		if (hot->until[i] < now) {
			drop(hot, i);
			changed = true;
		}
	return changed;
}
