/* Slots and tables, but for the assignment (placement_repair.c). See placement.h. */
#include "placement/placement.h"

#include <assert.h>
#include <stdlib.h>
#include "base/hash.h"

static_assert(sizeof(struct placement_slot) == 8, "512 KiB a table");

uint64_t placement_volume_hash(const struct volume_id *volume)
{
	return hash_xxh3(volume->bytes, sizeof(volume->bytes), 0);
}

struct placement_table *placement_table_new(void)
{
	struct placement_table *t = calloc(1, sizeof(*t));

	if (t)
		memset(t->slots, 0xff, sizeof(t->slots)); /* PLACEMENT_NONE in all slots */
	return t;
}

bool placement_newer(const struct placement_table *candidate, const struct placement_table *current)
{
	if (candidate->epoch != current->epoch)
		return candidate->epoch > current->epoch;
	return candidate->sequence > current->sequence;
}
