/*
 * The memory of a keeper's mounts (--memory) shared out: the first mount gets half of it, each later
 * one a quarter of what is left, none less than MOUNT_LEAST; what a mount had comes back when it is
 * gone. With too little left there is no further mount.
 *
 * A newer generation in a mount's place gets what that has: an index that just fits must fit again. So
 * for as long as both live, and older ones with open files, more than the whole is given out: never
 * more than PROMISED_MOST times as much, then the next generation waits.
 */
#include "fuse/keeper.h"
#include "base/units.h"

#include <stdlib.h>
#include <string.h>

#define MOUNT_LEAST (32 * MiB)
/* One mount with half of the whole may keep KEEPER_OLD_MAX older generations. */
#define PROMISED_MOST 3u

/* What its command line says, also when an earlier keeper wrote it. */
static uint64_t memory_of(const struct child *child)
{
	for (unsigned int i = 0; i + 1 < child->n_args; i++)
		if (strcmp(child->args[i], "--memory") == 0)
			return strtoull(child->args[i + 1], NULL, 10);
	return 0;
}

/* By daemons that live, or are to. */
static uint64_t given_out(const struct keeper *k, unsigned int *ret_mounts)
{
	uint64_t used = 0;
	unsigned int n = 0;

	list_for_each (node, &k->mounts) {
		const struct mount *mount = list_entry(node, struct mount, link);

		if (mount->state != MOUNT_ACTIVE)
			continue;
		if (mount->child.state != CHILD_STOPPED || !mount_is_shared(mount))
			used += memory_of(&mount->child);
		n++;
	}
	*ret_mounts = n;
	return used;
}

int keeper_memory_mount(const struct keeper *k, uint64_t *ret_bytes, struct err *e)
{
	unsigned int n;
	uint64_t used = given_out(k, &n);
	uint64_t left = k->config->memory > used ? k->config->memory - used : 0;

	if (n > 0 && left < MOUNT_LEAST)
		return err_set(e, -ENOSPC,
			"the memory of this cache is given out to its %u mounts: unmount one, or "
			"unmount all and give more --memory, or use another --cache",
			n);
	*ret_bytes = max(n == 0 ? left / 2 : left / 4, MOUNT_LEAST);
	return 0;
}

/* Of the daemon that serves what it shows, which may be another mount's. */
static uint64_t serving_memory(const struct keeper *k, const struct mount *shown)
{
	uint64_t bytes = memory_of(&shown->child);
	unsigned int server = shown->id;

	if (mount_is_shared(shown))
		server = mounter_peer_server(shown->peer);
	list_for_each (node, &k->mounts) {
		const struct mount *mount = list_entry(node, struct mount, link);

		if (mount->state == MOUNT_ACTIVE && mount->id == server)
			bytes = max(bytes, memory_of(&mount->child));
	}
	return max(bytes, MOUNT_LEAST);
}

int keeper_memory_successor(
	const struct keeper *k, const struct mount *shown, uint64_t *ret_bytes, struct err *e)
{
	unsigned int n;
	uint64_t used = given_out(k, &n);
	uint64_t bytes = serving_memory(k, shown);

	if (used + bytes > PROMISED_MOST * k->config->memory)
		return err_set(e, -ENOSPC,
			"the memory of this cache is given out to older generations that have "
			"files open: close those, or unmount and mount again");
	*ret_bytes = bytes;
	return 0;
}
