/* Reservations out of one maximum. See budget.h. */
#include "base/budget.h"
#include "base/arena.h"

#include <stdatomic.h>

static const unsigned int share_percent[] = {
	[BUDGET_DEMAND] = 100,
	[BUDGET_FILL] = 70,
	[BUDGET_PREFETCH] = 85,
};

void budget_init(struct budget *b, uint64_t max)
{
	budget_init_user(b, max, BUDGET_ALONE);
}

void budget_init_user(struct budget *b, uint64_t max, int user)
{
	b->max = max;
	b->user = user;
	atomic_store(&b->used, 0);
	atomic_store(&b->peak, 0);
}

uint64_t budget_share(uint64_t max, enum budget_class class)
{
	uint64_t percent = share_percent[class];

	/* In two parts: exact, and no product overflows. */
	return max / 100 * percent + max % 100 * percent / 100;
}

bool budget_take(struct budget *b, enum budget_class class, uint64_t bytes)
{
	uint64_t limit = budget_share(b->max, class);
	uint64_t used = atomic_load(&b->used);
	uint64_t peak;

	do {
		if (bytes > limit || used > limit - bytes)
			return false;
	} while (!atomic_compare_exchange_weak(&b->used, &used, used + bytes));
	if (b->user != BUDGET_ALONE && !arena_take((enum arena_user)b->user, class, bytes)) {
		atomic_fetch_sub(&b->used, bytes);
		return false;
	}
	peak = atomic_load(&b->peak);
	while (peak < used + bytes && !atomic_compare_exchange_weak(&b->peak, &peak, used + bytes))
		;
	return true;
}

bool budget_has(struct budget *b, enum budget_class class, uint64_t bytes)
{
	uint64_t limit = budget_share(b->max, class);

	return bytes <= limit && atomic_load(&b->used) <= limit - bytes &&
	       (b->user == BUDGET_ALONE || arena_has((enum arena_user)b->user, class, bytes));
}

void budget_give(struct budget *b, uint64_t bytes)
{
	uint64_t before;

	if (b->user != BUDGET_ALONE)
		arena_give((enum arena_user)b->user, bytes);
	before = atomic_fetch_sub(&b->used, bytes);
	ensure(before >= bytes);
}
