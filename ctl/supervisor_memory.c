/*
 * The memory of a private cluster (--memory) shared out between its daemons: three eighths for the
 * worker, a quarter for the master (a listing is faster when it need not go to disk), the rest for
 * mounts. The first mount gets half of that, each later one a quarter of what is left, none less
 * than MOUNT_LEAST; what a mount had comes back when it is gone. With too little left there is no
 * further mount.
 */
#include "base/units.h"
#include "ctl/supervisor.h"

#include <stdlib.h>
#include <string.h>

#define MOUNT_LEAST (32 * MiB)

uint64_t supervisor_memory_worker(const struct supervisor_config *config)
{
	return config->memory / 8 * 3;
}

uint64_t supervisor_memory_master(const struct supervisor_config *config)
{
	return config->memory / 4;
}

/* What its command line says, also when an earlier supervisor wrote it. */
static uint64_t memory_of(const struct child *child)
{
	for (unsigned int i = 0; i + 1 < child->n_args; i++)
		if (strcmp(child->args[i], "--memory") == 0)
			return strtoull(child->args[i + 1], NULL, 10);
	return 0;
}

int supervisor_memory_mount(const struct supervisor *s, uint64_t *ret_bytes, struct err *e)
{
	uint64_t pool = s->config->memory - supervisor_memory_worker(s->config) -
			supervisor_memory_master(s->config);
	uint64_t used = 0;
	unsigned int n = 0;
	uint64_t left;

	list_for_each (node, &s->mounts) {
		const struct mount *mount = list_entry(node, struct mount, link);

		if (mount->state != MOUNT_WAITING && mount->state != MOUNT_ACTIVE)
			continue;
		used += memory_of(&mount->child);
		n++;
	}
	left = pool > used ? pool - used : 0;
	if (n > 0 && left < MOUNT_LEAST)
		return err_set(e, -ENOSPC,
			"the memory of this cache is given out to its %u mounts: unmount one, or "
			"unmount all and give more --memory, or use another --cache",
			n);
	*ret_bytes = max(n == 0 ? left / 2 : left / 4, MOUNT_LEAST);
	return 0;
}
