/* Detaching a mount, for the keeper. See mounter_peer.h. */
#include "base/detach.h"
#include "base/mount_table.h"
#include "fuse/mounter_internal.h"

#include <string.h>
#include <sys/sysmacros.h>

void mounter_peer_hold(struct mounter_peer *peer)
{
	CHECK_MAGIC(peer, MOUNTER_PEER_MAGIC);
	pthread_mutex_lock(&peer->host->lock);
	peer->holds++;
	peer->host->busy++;
	pthread_mutex_unlock(&peer->host->lock);
}

void mounter_peer_drop(struct mounter_peer *peer)
{
	CHECK_MAGIC(peer, MOUNTER_PEER_MAGIC);
	pthread_mutex_lock(&peer->host->lock);
	peer->holds--;
	peer->host->busy--;
	pthread_cond_broadcast(&peer->host->idle);
	pthread_mutex_unlock(&peer->host->lock);
}

/* ---- which mount ----------------------------------------------------------------------------- */

struct left {
	const char *mountpoint;
	dev_t shown;
	dev_t beneath;
};

static int look_left(void *arg, const struct mount_entry *entry)
{
	struct left *left = arg;
	dev_t dev = makedev(entry->dev_major, entry->dev_minor);

	if (strcmp(entry->point, left->mountpoint) == 0 && dev != left->shown)
		left->beneath = dev;
	return 0;
}

/* What a keeper, its daemon, and the process that held their descriptors died over together: attached beneath,
 * never shown, and without an owner. 0: nothing. */
static dev_t find_left(struct mounter_host *host, const char *mountpoint, dev_t shown)
{
	struct left left = { .mountpoint = mountpoint, .shown = shown };
	bool coming = false;

	if (mount_table_each_ours(look_left, &left) < 0)
		return 0;
	pthread_mutex_lock(&host->lock);
	list_for_each (node, &host->peers) {
		const struct mounter_peer *peer = list_entry(node, struct mounter_peer, link);

		coming |= peer->intent.op != 0 && peer->intent.to == left.beneath;
	}
	pthread_mutex_unlock(&host->lock);
	return coming ? 0 : left.beneath;
}

static int not_there(const char *path, struct err *e)
{
	return err_set(e, -ESTALE, "another mount is at %s now", path);
}

/*
 * The mount that is unmounted, and where it is: neither what covers it, nor another mount of the same superblock that was moved to
 * its place. -ENOENT: it is not there any more.
 */
static int find_target(
	const struct mounter_peer *peer, struct unmount *u, char path[PATH_MAX], struct err *e)
{
	struct mount_entry entry;
	int visible;

	(void)snprintf(path, PATH_MAX, "%s", peer->config.mountpoint); /* shorter */
	u->path = path;
	if (!mounter_find_mount(u->mount_id, u->dev, &entry))
		u->mount_id = 0; /* it was switched, and the next one is not known yet */
	else if (strcmp(entry.point, path) != 0 && peer->config.owned)
		return not_there(path, e);
	else
		memcpy(path, entry.point, sizeof(entry.point));
	visible = mounter_visible_id(path, u->dev);
	if (visible && (!u->mount_id || visible == u->mount_id)) {
		u->mount_id = visible;
		return 0; /* a mount that is attached beneath it does not cover it */
	}
	if (mount_table_find_cover(path, u->dev, &entry) == 0)
		return detach_covered(path, &entry, e);
	if (u->mount_id || mounter_is_there(path, u->dev))
		return u->mount_id || !peer->config.owned ? 0 : not_there(path, e);
	return -ENOENT;
}

/* From now on no mount can share the superblock of a last mount point. */
static int begin_locked(struct mounter_peer *peer, struct unmount *u, uint32_t *ret_others)
{
	struct mounter_host *host = peer->host;
	struct superblock *s = superblock_of_server(&host->superblocks, peer->server);
	const struct mounter_peer *server = mounter_peer_of_locked(host, peer->server);

	if (!s || !server || !superblock_point(s, peer->config.mountpoint))
		return -ENOENT;
	*ret_others = s->n_points - 1;
	s->closed |= *ret_others == 0;
	u->mount_id = peer->mount_id;
	u->dev = s->point_dev;
	u->fuse_dev = server->fuse_dev;
	u->connection = server->config.fuse_fd;
	u->last = *ret_others == 0;
	return 0;
}

static void settle(struct mounter_peer *peer, bool detached)
{
	struct mounter_host *host = peer->host;
	struct superblock *s;

	pthread_mutex_lock(&host->lock);
	s = superblock_of_server(&host->superblocks, peer->server);
	if (s && detached)
		mounter_forget_point_locked(host, s, peer->config.mountpoint);
	else if (s && superblock_point(s, peer->config.mountpoint))
		s->closed = false; /* what was to go stays */
	pthread_mutex_unlock(&host->lock);
}

/* ---- unmount --------------------------------------------------------------------------------- */

/* One that hung before is waited for. */
static int check_helper(struct mounter_peer *peer, struct err *e)
{
	if (!peer->helper.pid || detach_look(&peer->helper, NULL) != -EINPROGRESS)
		return 0;
	return err_set(e, -ETIMEDOUT,
		"%s cannot be unmounted: the kernel does not release it: kill the processes that "
		"use it",
		peer->config.mountpoint);
}

/* With `moving` held: what the mount point shows does not change meanwhile. */
static int detach_moving(struct mounter_peer *peer, struct unmount *u, char path[PATH_MAX],
	uint32_t *ret_others, struct err *e)
{
	dev_t left;
	int r = check_helper(peer, e);

	if (r < 0)
		return r;
	pthread_mutex_lock(&peer->host->lock);
	r = begin_locked(peer, u, ret_others);
	pthread_mutex_unlock(&peer->host->lock);
	if (r < 0)
		return err_set(e, r, "%s is not mounted", peer->config.mountpoint);
	r = find_target(peer, u, path, e);
	if (r == -ENOENT) { /* by another program, a moment ago */
		settle(peer, true);
		return 0;
	}
	left = r == 0 ? find_left(peer->host, path, u->dev) : 0;
	if (r == 0)
		r = unmount_detach(u, &peer->helper, e);
	settle(peer, r == 0);
	if (r == 0 && left)
		mounter_take_off(path, left);
	return r;
}

int mounter_peer_unmount(struct mounter_peer *peer, enum unmount_mode mode, int daemon, int slots,
	struct mounter_unmounted *ret, struct err *e)
{
	struct mounter_host *host = peer->host;
	char path[PATH_MAX];
	struct unmount u = { .mode = mode, .daemon = daemon, .slots = slots, .connection = -1 };
	int r;

	CHECK_MAGIC(peer, MOUNTER_PEER_MAGIC);
	*ret = (struct mounter_unmounted){ 0 };
	pthread_mutex_lock(&host->moving);
	r = detach_moving(peer, &u, path, &ret->others, e);
	pthread_mutex_unlock(&host->moving);
	if (r < 0)
		return r;
	unmount_finish(&u, &peer->helper);
	ret->dev = u.dev;
	ret->in_use = u.last && !unmount_ended(&u, &peer->helper);
	return 0;
}
