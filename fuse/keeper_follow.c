/*
 * Mounts that follow their source: a daemon that knows of a newer generation than it shows says so
 * (mounter_newer()), and each mount point of it is refreshed, without listing the source again.
 *
 * What is replaced lives on for its open files. When a mount point has so many of those already
 * the next generation waits; its daemon says it again.
 */
#include "fuse/keeper.h"
#include "base/log.h"

#include <string.h>

/* Generations that were shown there before, and are not gone. */
static unsigned int count_old(const struct keeper *k, const char *mountpoint)
{
	unsigned int n = 0;

	list_for_each (node, &k->mounts) {
		const struct mount *mount = list_entry(node, struct mount, link);

		n += mount->state == MOUNT_ACTIVE && strcmp(mount->mountpoint, mountpoint) == 0 &&
		     mounter_peer_point(mount->peer) == MOUNTER_DETACHED;
	}
	return n;
}

/* What cannot be is said to the daemon that asks again. */
static void follow_point(struct keeper *k, const char *mountpoint, const struct mount *server)
{
	struct mount *next = NULL;
	struct err e = ERR_INIT;
	int r = 0;

	if (count_old(k, mountpoint) >= KEEPER_OLD_MAX)
		r = err_set(&e, -ENOSPC,
			"files of %u older generations are open in %s: close those", KEEPER_OLD_MAX,
			mountpoint);
	if (r == 0)
		r = keeper_refresh_locked(k, mountpoint, 0, false, &next, &e);
	if (r < 0 && r != -EEXIST) { /* one is on its way */
		mounter_peer_refuse_newer(server->peer, e.text);
		LOG_LIMITED(LOG_WARN, "newer generation waits",
			"mountpoint=\"%s\" why=\"%s\" next=\"tried again\"", mountpoint, e.text);
	}
}

static bool is_point_of(const struct mount *point, const struct mount *server)
{
	enum mounter_point at = mounter_peer_point(point->peer);

	return point->state == MOUNT_ACTIVE && (at == MOUNTER_OWN || at == MOUNTER_SHARED) &&
	       mounter_peer_server(point->peer) == server->id;
}

/* One at a time: the first makes what the others share. */
static void follow_points(struct keeper *k, const struct mount *server)
{
	const char *points[KEEPER_MOUNTS]; /* of mounts that stay: nothing is freed meanwhile */
	unsigned int n = 0;

	list_for_each (node, &k->mounts) {
		const struct mount *point = list_entry(node, struct mount, link);

		if (n < KEEPER_MOUNTS && is_point_of(point, server))
			points[n++] = point->mountpoint;
	}
	mounter_peer_refuse_newer(server->peer, NULL);
	for (unsigned int i = 0; i < n; i++)
		follow_point(k, points[i], server);
}

void keeper_follow_look(struct keeper *k)
{
	if (k->ending || k->upgrade[0])
		return;
	list_for_each_safe (node, &k->mounts) {
		struct mount *mount = list_entry(node, struct mount, link);

		if (mount->state == MOUNT_ACTIVE && mounter_peer_take_newer(mount->peer))
			follow_points(k, mount);
	}
}
