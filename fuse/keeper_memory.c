/*
 * The memory of a keeper's mounts (--memory) shared out: the first mount gets half of it, each later
 * one a quarter of what is left, none less than MOUNT_LEAST; what a mount had comes back when it is
 * gone. With too little left there is no further mount.
 */
#include "fuse/keeper.h"
#include "base/units.h"

#include <stdlib.h>
#include <string.h>

#define MOUNT_LEAST (32 * MiB)

/* What its command line says, also when an earlier keeper wrote it. */
static uint64_t memory_of(const struct child *child)
{
	for (unsigned int i = 0; i + 1 < child->n_args; i++)
		if (strcmp(child->args[i], "--memory") == 0)
			return strtoull(child->args[i + 1], NULL, 10);
	return 0;
}

int keeper_memory_mount(const struct keeper *k, uint64_t *ret_bytes, struct err *e)
{
	uint64_t used = 0;
	unsigned int n = 0;
	uint64_t left;

	list_for_each (node, &k->mounts) {
		const struct mount *mount = list_entry(node, struct mount, link);

		if (mount->state != MOUNT_ACTIVE)
			continue;
		if (mount->child.state != CHILD_STOPPED || !mount_is_shared(mount))
			used += memory_of(&mount->child);
		n++;
	}
	left = k->config->memory > used ? k->config->memory - used : 0;
	if (n > 0 && left < MOUNT_LEAST)
		return err_set(e, -ENOSPC,
			"the memory of this cache is given out to its %u mounts: unmount one, or "
			"unmount all and give more --memory, or use another --cache",
			n);
	*ret_bytes = max(n == 0 ? left / 2 : left / 4, MOUNT_LEAST);
	return 0;
}
