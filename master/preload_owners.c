/* Who has to have a part of each preload: the members that own slots. See preload.h. */
#include "master/membership.h"
#include "master/preload.h"

#include <assert.h>
#include <stdlib.h>

bool preload_worker_name(void *arg, uint64_t id, char *out)
{
	static_assert(PRELOAD_NAME_BYTES >= CLUSTER_NAME_BYTES, "names fit");
	return membership_name(arg, id, out);
}

uint64_t *preload_owners(void *arg, uint32_t *ret_n, uint64_t *ret_epoch, uint64_t *ret_sequence)
{
	uint64_t *ids = calloc(PLACEMENT_MAX, sizeof(*ids));

	if (ids)
		*ret_n = membership_owners(arg, ids, PLACEMENT_MAX, ret_epoch, ret_sequence);
	return ids;
}
