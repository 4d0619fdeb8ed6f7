/*
 * Mounts that follow their source: a daemon that knows of a newer generation than it shows says so
 * (mounter_newer()), and each mount point of it is refreshed, without listing the source again.
 *
 * What is replaced lives on for its open files. When a mount point has so many of those already
 * the next generation waits there; its daemon says it again. A mount point that fails keeps no other
 * one back.
 */
#include "keeper/keeper.h"
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

/* What came of the last try there, which is not forgotten yet; NULL: nothing failed. */
static const char *failure_at(const struct keeper *k, const char *mountpoint)
{
	list_for_each (node, &k->mounts) {
		const struct mount *mount = list_entry(node, struct mount, link);

		if (mount->state == MOUNT_FAILED && strcmp(mount->mountpoint, mountpoint) == 0)
			return mount->failure.text;
	}
	return NULL;
}

static int follow_point(struct keeper *k, const char *mountpoint, struct err *e)
{
	const char *failed = failure_at(k, mountpoint);
	struct mount *next = NULL;

	if (failed)
		return err_set(e, -EAGAIN, "%s", failed);
	if (count_old(k, mountpoint) >= KEEPER_OLD_MAX)
		return err_set(e, -ENOSPC,
			"files of %u older generations are open in %s: close these files",
			KEEPER_OLD_MAX, mountpoint);
	return keeper_refresh_locked(k, mountpoint, 0, false, &next, e);
}

static bool is_point_of(const struct mount *point, const struct mount *server)
{
	enum mounter_point at = mounter_peer_point(point->peer);

	return point->state == MOUNT_ACTIVE && (at == MOUNTER_OWN || at == MOUNTER_SHARED) &&
	       mounter_peer_server(point->peer) == server->id;
}

/* The first of its mount points that can move on; *ret_failed: the first that cannot, `e` says why. */
static bool follow_any(struct keeper *k, const struct mount *server, bool owned,
	const char **ret_failed, struct err *e)
{
	list_for_each (node, &k->mounts) {
		const struct mount *point = list_entry(node, struct mount, link);
		struct err why = ERR_INIT;

		if (point->owned != owned || !is_point_of(point, server))
			continue;
		if (follow_point(k, point->mountpoint, &why) == 0)
			return true;
		if (*ret_failed)
			continue;
		*ret_failed = point->mountpoint;
		*e = why;
	}
	return false;
}

static bool is_coming(struct keeper *k, const struct mount *server)
{
	list_for_each (node, &k->mounts) {
		const struct mount *point = list_entry(node, struct mount, link);

		if (is_point_of(point, server) && keeper_coming(k, point->mountpoint))
			return true;
	}
	return false;
}

/*
 * One mount point at a time: the first makes what the others share. Those of users come last: a dataset may not allow them any more,
 * and nobody is to wait for them.
 */
static void follow(struct keeper *k, const struct mount *server)
{
	const char *failed = NULL;
	struct err e = ERR_INIT;

	if (is_coming(k, server))
		return; /* looked at again when it has come */
	if (follow_any(k, server, false, &failed, &e) || follow_any(k, server, true, &failed, &e))
		return;
	mounter_peer_answer_newer(server->peer, failed ? e.text : NULL);
	if (failed)
		LOG_LIMITED(LOG_WARN, "newer generation waits",
			"mountpoint=\"%s\" why=\"%s\" next=\"tried again\"", failed, e.text);
}

void keeper_follow_look(struct keeper *k)
{
	if (k->ending)
		return;
	list_for_each_safe (node, &k->mounts) {
		struct mount *mount = list_entry(node, struct mount, link);

		if (mount->state == MOUNT_ACTIVE && mounter_peer_newer(mount->peer))
			follow(k, mount);
	}
}
