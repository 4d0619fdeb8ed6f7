/* Reservations out of one maximum. See budget.h. */
#include "base/budget.h"

#include <stdatomic.h>

static const unsigned int share_percent[] = {
	[BUDGET_DEMAND] = 100,
	[BUDGET_FILL] = 85,
	[BUDGET_PREFETCH] = 70,
};

void budget_init(struct budget *b, uint64_t max)
{
	b->max = max;
	atomic_store(&b->used, 0);
	atomic_store(&b->peak, 0);
}

bool budget_take(struct budget *b, enum budget_class class, uint64_t bytes)
{
	uint64_t percent = share_percent[class];
	/* In two parts: exact, and no product overflows. */
	uint64_t limit = b->max / 100 * percent + b->max % 100 * percent / 100;
	uint64_t used = atomic_load(&b->used);
	uint64_t peak;

	do {
		if (bytes > limit || used > limit - bytes)
			return false;
	} while (!atomic_compare_exchange_weak(&b->used, &used, used + bytes));
	peak = atomic_load(&b->peak);
	while (peak < used + bytes && !atomic_compare_exchange_weak(&b->peak, &peak, used + bytes))
		;
	return true;
}

void budget_give(struct budget *b, uint64_t bytes)
{
	uint64_t before = atomic_fetch_sub(&b->used, bytes);

	ensure(before >= bytes);
}
