/*
 * The memory of a keeper's mounts (--memory) shared out: the first mount gets half of it, each later
 * one a quarter of what is left, none less than MOUNT_LEAST; what a mount had comes back when it is
 * gone. With too little left there is no further mount.
 *
 * A newer generation in a mount's place gets what that has: an index that just fits must fit again. The
 * two, and older ones with open files, have one lot between them, which is what a further mount finds
 * taken: how many generations of the others live at this moment is not its affair. So for as long as
 * they do more than the whole is given out: never more than PROMISED_MOST times as much, then the next
 * one waits.
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

/* A daemon's that lives, or is to. */
static uint64_t held_by(const struct mount *mount)
{
	if (mount->state != MOUNT_ACTIVE)
		return 0;
	return mount->child.state != CHILD_STOPPED || !mount_is_shared(mount)
		       ? memory_of(&mount->child)
		       : 0;
}

/* By all daemons, how short a while they may have left. */
static uint64_t held(const struct keeper *k)
{
	uint64_t bytes = 0;

	list_for_each (node, &k->mounts)
		bytes += held_by(list_entry(node, struct mount, link));
	return bytes;
}

/* Mount points show it, and will: its daemon did not say that there is a newer one to show. */
static bool stays(const struct mount *mount)
{
	return mount->peer && mounter_peer_points(mount->peer) > 0 &&
	       !mounter_peer_newer(mount->peer);
}

/*
 * What generations have that follow each other: each of those that stay (a mount point can be
 * refreshed alone, then the others go on with the older one), else one of them.
 */
static uint64_t lot_bytes(const struct keeper *k, unsigned int lot)
{
	uint64_t staying = 0;
	uint64_t most = 0;

	list_for_each (node, &k->mounts) {
		const struct mount *mount = list_entry(node, struct mount, link);

		if (mount->lot != lot)
			continue;
		most = max(most, held_by(mount));
		if (stays(mount))
			staying += held_by(mount);
	}
	return max(most, staying);
}

static bool is_first_of_lot(const struct keeper *k, const struct mount *mount)
{
	list_for_each (node, &k->mounts) {
		const struct mount *other = list_entry(node, struct mount, link);

		if (other->lot == mount->lot)
			return other == mount;
	}
	return false;
}

static uint64_t given_out(const struct keeper *k, unsigned int *ret_mounts)
{
	uint64_t used = 0;
	unsigned int n = 0;

	list_for_each (node, &k->mounts) {
		const struct mount *mount = list_entry(node, struct mount, link);
		uint64_t bytes = is_first_of_lot(k, mount) ? lot_bytes(k, mount->lot) : 0;

		used += bytes;
		n += bytes > 0;
	}
	*ret_mounts = n;
	return used;
}

static int check_promised(const struct keeper *k, uint64_t bytes, struct err *e)
{
	if (held(k) + bytes > PROMISED_MOST * k->config->memory)
		return err_set(e, -ENOSPC,
			"the memory of this cache is in use by older generations with open files: "
			"close these files, or unmount and mount again");
	return 0;
}

unsigned int keeper_lot_new(const struct keeper *k)
{
	unsigned int last = 0;

	list_for_each (node, &k->mounts)
		last = max(last, list_entry(node, struct mount, link)->lot);
	return last + 1;
}

int keeper_memory_mount(const struct keeper *k, struct keeper_lot *ret_lot, struct err *e)
{
	unsigned int n;
	uint64_t used = given_out(k, &n);
	uint64_t left = k->config->memory > used ? k->config->memory - used : 0;
	uint64_t bytes = max(n == 0 ? left / 2 : left / 4, MOUNT_LEAST);
	int r;

	if (n > 0 && left < MOUNT_LEAST)
		return err_set(e, -ENOSPC,
			"the memory of this cache is in use by its %u mounts: unmount one, or "
			"unmount all and give more --memory, or use another --cache",
			n);
	r = check_promised(k, bytes, e);
	if (r == 0)
		*ret_lot = (struct keeper_lot){ .bytes = bytes, .number = keeper_lot_new(k) };
	return r;
}

/* Whose daemon serves what it shows: another mount's, when it is shared. */
static const struct mount *serving(const struct keeper *k, const struct mount *shown)
{
	unsigned int server = mount_is_shared(shown) ? mounter_peer_server(shown->peer) : shown->id;

	list_for_each (node, &k->mounts) {
		const struct mount *mount = list_entry(node, struct mount, link);

		if (mount->state == MOUNT_ACTIVE && mount->id == server)
			return mount;
	}
	return shown;
}

int keeper_memory_successor(const struct keeper *k, const struct mount *shown,
	struct keeper_lot *ret_lot, struct err *e)
{
	const struct mount *server = serving(k, shown);
	uint64_t bytes = max(memory_of(&shown->child), memory_of(&server->child));
	int r;

	bytes = max(bytes, MOUNT_LEAST);
	r = check_promised(k, bytes, e);
	if (r == 0)
		*ret_lot = (struct keeper_lot){ .bytes = bytes, .number = server->lot };
	return r;
}
