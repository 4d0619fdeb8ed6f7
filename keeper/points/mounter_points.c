/* Where the superblocks of a node are attached, and at whose request. See mounter_peer.h. */
#include "base/cleanup.h"
#include "base/crash_point.h"
#include "base/detach.h"
#include "base/file.h"
#include "base/log.h"
#include "base/mount_table.h"
#include "keeper/points/mounter_internal.h"
#include "keeper/points/user_point.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sysmacros.h>

/* ---- what the kernel shows ------------------------------------------------------------------- */

/* On top there, or covered by something else; by the kernel's list, which asks no file system. */
static bool is_there(const char *mountpoint, dev_t dev)
{
	struct mount_entry entry;

	return mount_table_find_at(mountpoint, dev, &entry) == 0;
}

/* Detaches what is on top there, if it shows `dev`. */
static void take_off(const char *mountpoint, dev_t dev)
{
	_cleanup_close_ int top = -1;
	dev_t there = 0;

	if (!is_there(mountpoint, dev))
		return;
	if (file_open_exact(mountpoint, &top) < 0 || kernel_dev(top, "", &there) < 0 ||
		there != dev)
		return;
	log_warn("unmounting a dead mount", "mountpoint=\"%s\"", mountpoint);
	if (kernel_may_mount() ? kernel_detach(top) < 0 : detach_mount(mountpoint, true, NULL) < 0)
		log_error("mount left behind", "mountpoint=\"%s\"", mountpoint);
}

static bool is_of(const struct mount_entry *entry, dev_t dev)
{
	return makedev(entry->dev_major, entry->dev_minor) == dev;
}

/* That mount, if it shows `dev`: a switch of superblocks ends it. */
static bool find_mount(int id, dev_t dev, struct mount_entry *ret_entry)
{
	return id && mount_table_find_id(id, ret_entry) == 0 && is_of(ret_entry, dev);
}

/* The mount that a path leads to, if it shows `dev`; else 0. The order of mountinfo does not tell: kernel_switch() attaches beneath. */
static int visible_id(const char *path, dev_t dev)
{
	_cleanup_close_ int fd = -1;
	struct mount_entry entry;
	int id = file_open_exact(path, &fd) == 0 ? file_mount_id(fd) : 0;

	return find_mount(id, dev, &entry) && strcmp(entry.point, path) == 0 ? id : 0;
}

static void set_mount_id(struct mounter_host *host, unsigned int mount, int id)
{
	struct mounter_peer *peer;

	pthread_mutex_lock(&host->lock);
	peer = mounter_peer_of_locked(host, mount);
	if (peer)
		peer->mount_id = id;
	pthread_mutex_unlock(&host->lock);
}

/* ---- what a daemon may ask ------------------------------------------------------------------- */

/* A user's: where it is attached. It may have been moved since the keeper got it. */
static int check_user_point(const struct mounter_job *job, struct err *e)
{
	const struct mounter_peer_config *c = &job->peer->config;

	if (strcmp(job->request.path, c->mountpoint) != 0)
		return err_set(e, -EPERM, "this daemon may not mount at %s: only at %s",
			job->request.path, c->mountpoint);
	if (c->point_fd < 0)
		return err_set(e, -ECONNRESET,
			"the keeper was replaced before %s was mounted: try again", c->mountpoint);
	return user_point_check(c->point_fd, c->owner, c->mountpoint, e);
}

/* Only its own mount point: neither by name nor by descriptor another one. */
static int check_point(const struct mounter_job *job, int point_fd, struct err *e)
{
	const char *mountpoint = job->peer->config.mountpoint;
	char path[32];
	char at[PATH_MAX];
	ssize_t n;

	if (job->peer->config.owned)
		return check_user_point(job, e);
	(void)snprintf(path, sizeof(path), "/proc/self/fd/%d", point_fd); /* fits */
	n = readlink(path, at, sizeof(at) - 1);
	if (n < 0)
		return err_set(e, err_errno(), "the mount point cannot be inspected: %m");
	at[n] = '\0';
	if (strcmp(job->request.path, mountpoint) != 0 || strcmp(at, mountpoint) != 0)
		return err_set(
			e, -EPERM, "this daemon may not mount at %s: only at %s", at, mountpoint);
	return 0;
}

/* Only what was mounted for it. */
static int check_mount(const struct mounter_job *job, int mount_fd, struct err *e)
{
	const struct mounter_peer *peer = job->peer;
	dev_t wanted = (dev_t)job->request.point_dev;
	dev_t dev = 0;
	int r = kernel_dev(mount_fd, "", &dev);

	if (r < 0)
		return err_set(e, r, "the mount cannot be inspected: %s", err_str(r));
	if (dev == 0 || dev != wanted || (dev != peer->made_dev && dev != peer->fuse_dev))
		return err_set(e, -EPERM, "not a mount that was created for this daemon");
	return 0;
}

/* ---- the registry ---------------------------------------------------------------------------- */

/* It is no longer there: the mount that had asked for it is detached. */
static void forget_point_locked(
	struct mounter_host *host, struct superblock *superblock, const char *mountpoint)
{
	unsigned int mount = superblock_point_remove(superblock, mountpoint);
	struct mounter_peer *peer = mount ? mounter_peer_of_locked(host, mount) : NULL;

	if (peer)
		peer->point = MOUNTER_DETACHED;
}

/* What lay there is off. `except`: what lies there now. */
static void replaced_locked(
	struct mounter_host *host, const char *mountpoint, const struct superblock *except)
{
	list_for_each (node, &host->superblocks.all) {
		struct superblock *s = list_entry(node, struct superblock, link);

		if (s != except && superblock_point(s, mountpoint))
			forget_point_locked(host, s, mountpoint);
	}
}

/* Where it is attached: of a user's mount point the keeper's own descriptor, not what its daemon sent. */
static int point_of(const struct mounter_job *job, int sent)
{
	return job->peer->config.owned ? job->peer->config.point_fd : sent;
}

/*
 * May it be attached there? *ret_from: what is to be replaced. One of ours may have been switched
 * since the daemon opened it as `point_fd`, which leads nowhere then.
 */
static int check_place(struct mounter_job *job, int point_fd, dev_t *ret_from)
{
	struct mounter_host *host = job->peer->host;
	const struct superblock *s;
	int r;

	pthread_mutex_lock(&host->lock);
	s = superblock_at(&host->superblocks, job->peer->config.mountpoint);
	*ret_from = s ? s->point_dev : 0;
	pthread_mutex_unlock(&host->lock);
	if (*ret_from && job->request.flags & MOUNTER_REPLACE &&
		strcmp(job->request.path, job->peer->config.mountpoint) == 0)
		return 0;
	r = check_point(job, point_fd, &job->err);
	return r < 0 ? r : kernel_dev(point_of(job, point_fd), "", ret_from);
}

/*
 * The user may have moved the mount point between the check and the attach. A mount that is not at its path is detached
 * again: no owner would be counted for it.
 */
static int check_attached(const struct mounter_job *job, int mount_fd, dev_t dev, struct err *e)
{
	const struct mounter_peer *peer = job->peer;
	struct mount_entry entry;

	if (!peer->config.owned || (find_mount(peer->mount_id, dev, &entry) &&
					   strcmp(entry.point, job->request.path) == 0))
		return 0;
	if (kernel_detach(mount_fd) < 0)
		log_error("moved mount left behind", "mountpoint=\"%s\"", job->request.path);
	return err_set(e, -ESTALE, "the mount point %s was moved: mount again", job->request.path);
}

/* `moving` is held. `from`: of check_place(). */
static int attach_or_replace(
	const struct mounter_job *job, int mount_fd, int point_fd, dev_t from, struct err *e)
{
	dev_t to = 0;
	int r = kernel_dev(mount_fd, "", &to);

	if (r < 0)
		return err_set(e, r, "the mount cannot be inspected: %s", err_str(r));
	r = job->request.flags & MOUNTER_REPLACE
		    ? kernel_switch(mount_fd, job->request.path, from, to, e)
		    : kernel_attach(mount_fd, point_of(job, point_fd), e);
	if (r == 0 || r == -ETIMEDOUT)
		set_mount_id(job->peer->host, job->peer->config.id, file_mount_id(mount_fd));
	if (r == 0)
		r = check_attached(job, mount_fd, to, e);
	CRASH_POINT("keeper.moved");
	return r == -ETIMEDOUT ? 0 : r; /* will be shown soon */
}

/* What a later keeper must know before that is done. */
static int begin_attach(struct mounter_job *job, unsigned int server, dev_t from, dev_t to)
{
	return mounter_begin(job, &(struct mounter_intent){
					  .server = server,
					  .from = job->request.flags & MOUNTER_REPLACE ? from : 0,
					  .to = to,
				  });
}

/* ---- attach ---------------------------------------------------------------------------------- */

static void settle_attach(struct mounter_job *job, bool attached)
{
	struct mounter_peer *peer = job->peer;
	struct mounter_host *host = peer->host;
	struct superblock *s;

	pthread_mutex_lock(&host->lock);
	s = superblock_of_server(&host->superblocks, peer->config.id);
	if (attached && s) {
		replaced_locked(host, job->request.path, s);
		if (superblock_point_add(s, peer->config.id, job->request.path) < 0)
			log_warn("superblock not shared", "mountpoint=\"%s\"", job->request.path);
		peer->point = MOUNTER_OWN;
		peer->server = peer->config.id;
	} else if (s) {
		superblock_remove(&host->superblocks, s);
	}
	peer->intent = (struct mounter_intent){ 0 };
	free(TAKE(peer->making));
	pthread_mutex_unlock(&host->lock);
}

static int attach_moving(struct mounter_job *job)
{
	struct mounter_peer *peer = job->peer;
	struct mounter_host *host = peer->host;
	struct superblock *s;
	struct superblock *old;
	dev_t from;
	int r = check_place(job, job->fds[1], &from);

	if (r == 0)
		r = check_mount(job, job->fds[0], &job->err);
	if (r < 0)
		return r;
	pthread_mutex_lock(&host->lock);
	old = superblock_of_server(&host->superblocks, peer->config.id);
	if (old) /* of a daemon before it that never came to serve */
		superblock_remove(&host->superblocks, old);
	r = superblock_add(&host->superblocks, peer->config.id, job->request.key,
		(dev_t)job->request.point_dev, (dev_t)job->request.fuse_dev, &s);
	pthread_mutex_unlock(&host->lock);
	if (r < 0)
		return err_set(&job->err, r, "the mount cannot be stored: %s", err_str(r));
	r = begin_attach(job, peer->config.id, from, (dev_t)job->request.point_dev);
	if (r == 0)
		r = attach_or_replace(job, job->fds[0], job->fds[1], from, &job->err);
	settle_attach(job, r == 0);
	return r;
}

/* One after the other with whatever else changes what mount points show. */
static int moving(struct mounter_job *job, int (*op)(struct mounter_job *job))
{
	struct mounter_host *host = job->peer->host;
	int r;

	pthread_mutex_lock(&host->moving);
	r = op(job);
	pthread_mutex_unlock(&host->moving);
	return r;
}

int mounter_do_attach(struct mounter_job *job)
{
	return moving(job, attach_moving);
}

/* ---- share ----------------------------------------------------------------------------------- */

struct source {
	unsigned int server;
	dev_t point_dev;
	char *points[SUPERBLOCK_POINTS_MAX];
	unsigned int mounts[SUPERBLOCK_POINTS_MAX]; /* that requested them */
	bool owned[SUPERBLOCK_POINTS_MAX];          /* by ordinary users */
	unsigned int n;
};

static void copy_points_locked(
	struct mounter_host *host, const struct superblock *s, struct source *ret)
{
	*ret = (struct source){ .server = s->server, .point_dev = s->point_dev };
	list_for_each (node, &s->points) {
		const struct superblock_point *point =
			list_entry(node, struct superblock_point, link);
		const struct mounter_peer *peer = mounter_peer_of_locked(host, point->mount);
		char *copy = strdup(point->mountpoint);

		if (!copy) /* one less to try */
			continue;
		ret->owned[ret->n] = peer && peer->config.owned;
		ret->mounts[ret->n] = point->mount;
		ret->points[ret->n++] = copy;
	}
}

static void source_release(struct source *source)
{
	while (source->n > 0)
		free(source->points[--source->n]);
}

/* From any of its mount points: one may be covered, or unmounted by hand. */
static int clone_any(const struct source *source, int *ret_fd)
{
	int r = -ENOENT;

	for (unsigned int i = 0; i < source->n && r < 0; i++)
		r = kernel_clone(source->points[i], source->point_dev, ret_fd);
	return r;
}

static bool same_owner(const struct mounter_peer_config *a, const struct mounter_peer_config *b)
{
	return a->owned == b->owned && (!a->owned || a->owner == b->owner);
}

static int add_point_locked(struct mounter_job *job, struct superblock *s)
{
	const struct mounter_peer *server = mounter_peer_of_locked(job->peer->host, s->server);
	int r = superblock_point_add(s, job->peer->config.id, job->request.path);

	s->many_owners |= server && !same_owner(&server->config, &job->peer->config);
	return r;
}

/* -ENOENT: this daemon attaches it; -EINPROGRESS: another one does. Else each of those that start at once would serve its own. */
static int make_locked(struct mounter_job *job)
{
	struct mounter_peer *peer = job->peer;

	list_for_each (node, &peer->host->peers) {
		const struct mounter_peer *other = list_entry(node, struct mounter_peer, link);

		if (other != peer && other->making && strcmp(other->making, job->request.key) == 0)
			return -EINPROGRESS;
	}
	free(peer->making);
	peer->making = strdup(job->request.key); /* NULL: others do not wait */
	return -ENOENT;
}

/* Promised before it is attached: whoever unmounts the last point learns of it. */
static int promise_locked(struct mounter_job *job, struct source *ret)
{
	struct mounter_host *host = job->peer->host;
	struct superblock *s = superblock_find(&host->superblocks, job->request.key);

	if (!s)
		return make_locked(job);
	if (superblock_point(s, job->request.path))
		return -EALREADY;
	copy_points_locked(host, s, ret);
	return add_point_locked(job, s);
}

static void settle_share(struct mounter_job *job, unsigned int server, bool attached)
{
	struct mounter_peer *peer = job->peer;
	struct superblock *s;

	pthread_mutex_lock(&peer->host->lock);
	s = superblock_of_server(&peer->host->superblocks, server);
	if (attached && s) {
		replaced_locked(peer->host, job->request.path, s);
		peer->point = MOUNTER_SHARED;
		peer->server = server;
	} else if (s) {
		(void)superblock_point_remove(s, job->request.path); /* nobody's */
	}
	free(TAKE(peer->making));
	peer->intent = (struct mounter_intent){ 0 };
	pthread_mutex_unlock(&peer->host->lock);
}

static int share_moving(struct mounter_job *job)
{
	struct mounter_host *host = job->peer->host;
	_cleanup_(source_release) struct source source = { 0 };
	_cleanup_close_ int fd = -1;
	dev_t from;
	int r = check_place(job, job->fds[0], &from);

	if (r < 0)
		return r;
	pthread_mutex_lock(&host->lock);
	r = promise_locked(job, &source);
	pthread_mutex_unlock(&host->lock);
	if (r < 0)
		return r == -EALREADY || r == -EINPROGRESS ? r : -ENOENT;
	r = clone_any(&source, &fd) < 0 ? -ENOENT : 0;
	if (r == 0)
		r = begin_attach(job, source.server, from, source.point_dev);
	if (r == 0)
		r = attach_or_replace(job, fd, job->fds[0], from, &job->err);
	settle_share(job, source.server, r == 0);
	return r;
}

int mounter_do_share(struct mounter_job *job)
{
	return moving(job, share_moving);
}

/* ---- switch ---------------------------------------------------------------------------------- */

/* One superblock in another's place at all mount points of a daemon's. */
struct switching {
	struct mounter_job *job;
	struct source source;
	dev_t from;
	dev_t to;
	const char *shown; /* a mount point that shows the new one; NULL: none yet */
};

/*
 * The first mount point takes the mount itself (`mount_fd`), the others a clone of it from there.
 * -ENOENT: what it shows is not the old one. One that will be soon counts as done.
 */
static int switch_one(struct switching *s, unsigned int i, int mount_fd, struct err *e)
{
	const char *mountpoint = s->source.points[i];
	_cleanup_close_ int clone = -1;
	int r = s->shown ? kernel_clone(s->shown, s->to, &clone) : 0;

	if (r < 0)
		return err_set(e, r, "%s cannot be cloned: %s", s->shown, err_str(r));
	r = kernel_switch(s->shown ? clone : mount_fd, mountpoint, s->from, s->to, e);
	if (r != 0 && r != -ETIMEDOUT)
		return r;
	set_mount_id(s->job->peer->host, s->source.mounts[i],
		file_mount_id(s->shown ? clone : mount_fd));
	return 0;
}

/* All that still show the old one. `mount_fd` -1: one shows the new one already, or none will. */
static int switch_all(struct switching *s, int mount_fd)
{
	for (unsigned int i = 0; i < s->source.n && (s->shown || mount_fd >= 0); i++) {
		const char *mountpoint = s->source.points[i];
		struct err why = ERR_INIT;
		int r = switch_one(s, i, mount_fd, &why);

		if (r == 0 && !s->shown)
			s->shown = mountpoint;
		if (r == 0 || r == -ENOENT) /* unmounted by hand, covered, or done */
			continue;
		if (!s->shown && !s->source.owned[i]) /* then it is so everywhere */
			return err_set(&s->job->err, r, "%s", why.text);
		log_warn("mount point not switched", "mountpoint=\"%s\" why=\"%s\"", mountpoint,
			why.text);
	}
	return s->shown ? 0 : -ENOENT;
}

static void switching_begin(struct mounter_job *job, struct switching *ret)
{
	struct mounter_host *host = job->peer->host;
	struct superblock *s;

	*ret = (struct switching){
		.job = job,
		.from = (dev_t)job->request.fuse_dev,
		.to = (dev_t)job->request.point_dev,
	};
	pthread_mutex_lock(&host->lock);
	s = superblock_of_server(&host->superblocks, job->peer->config.id);
	if (s)
		copy_points_locked(host, s, &ret->source);
	/* Ids of the old mounts are given again at once, to those that took their places elsewhere. */
	for (unsigned int i = 0; i < ret->source.n; i++) {
		struct mounter_peer *peer = mounter_peer_of_locked(host, ret->source.mounts[i]);

		if (peer)
			peer->mount_id = 0;
	}
	pthread_mutex_unlock(&host->lock);
}

static void switching_end(struct switching *s, int r)
{
	struct mounter_host *host = s->job->peer->host;
	struct superblock *superblock;

	pthread_mutex_lock(&host->lock);
	superblock = superblock_of_server(&host->superblocks, s->job->peer->config.id);
	if (r == 0 && superblock)
		superblock->point_dev = s->to;
	s->job->peer->intent = (struct mounter_intent){ 0 };
	pthread_mutex_unlock(&host->lock);
	source_release(&s->source);
}

static int begin_switch(struct switching *s)
{
	return mounter_begin(
		s->job, &(struct mounter_intent){
				.server = s->source.server, .from = s->from, .to = s->to });
}

static int end_switch_all(struct switching *s)
{
	int r = 0;

	for (unsigned int i = 0; i < s->source.n && r == 0; i++) {
		r = kernel_switch_end(s->source.points[i], s->from, s->to, &s->job->err);
		if (r == 0 && !s->shown)
			s->shown = s->source.points[i];
		/* Nor was it attached there; or its user keeps it from being seen. */
		if (r == -ENOENT || s->source.owned[i])
			r = 0;
	}
	return r == 0 ? switch_all(s, -1) : r;
}

/* Without a mount: the keeper may have died in the middle of it. */
static int switch_moving(struct mounter_job *job)
{
	int mount = job->n_fds ? job->fds[0] : -1;
	struct switching s;
	int r = mount < 0 ? 0 : check_mount(job, mount, &job->err);

	if (r < 0)
		return r;
	switching_begin(job, &s);
	r = begin_switch(&s);
	if (r == 0)
		r = mount < 0 ? end_switch_all(&s) : switch_all(&s, mount);
	switching_end(&s, r);
	return r == -ENOENT && mount >= 0
		       ? err_set(&job->err, r, "no mount point has the old generation")
		       : r;
}

int mounter_do_switch(struct mounter_job *job)
{
	return moving(job, switch_moving);
}

/* ---- what an earlier keeper began ------------------------------------------------------------ */

int mounter_renew_switch(struct mounter_job *job)
{
	struct switching s;
	int r;

	switching_begin(job, &s);
	r = end_switch_all(&s);
	switching_end(&s, r);
	return r;
}

/*
 * A generation that nobody can serve any more does not take another's place; where it already has,
 * or where nothing was, it stays: an error, but no empty directory.
 */
static int renew_place(struct mounter_job *job, const struct mounter_intent *intent, bool lives)
{
	const char *mountpoint = job->request.path;
	dev_t dev = 0;
	int r;

	if (intent->from && lives) {
		r = kernel_switch_end(mountpoint, intent->from, intent->to, &job->err);
		return r == -ETIMEDOUT ? 0 : r; /* will be shown soon */
	}
	if (intent->from)
		return kernel_dev_exact(mountpoint, &dev) == 0 && dev == intent->to ? 0 : -ENOENT;
	return is_there(mountpoint, intent->to) ? 0 : -ENOENT;
}

int mounter_renew_attach(struct mounter_job *job)
{
	const struct mounter_intent intent = job->peer->intent;
	struct mounter_host *host = job->peer->host;
	const struct mounter_peer *server;
	struct superblock *s;
	int r;

	pthread_mutex_lock(&host->lock);
	server = mounter_peer_of_locked(host, intent.server);
	s = superblock_of_server(&host->superblocks, intent.server);
	pthread_mutex_unlock(&host->lock);
	r = s ? renew_place(job, &intent, server && mounter_peer_connected(server)) : -ENOENT;
	if (intent.op == MOUNTER_ATTACH) {
		settle_attach(job, r == 0);
		return r;
	}
	if (r == 0 && add_point_locked(job, s) < 0)
		log_warn("superblock not shared", "mountpoint=\"%s\"", job->request.path);
	settle_share(job, intent.server, r == 0);
	return r;
}

/* ---- is it shown ----------------------------------------------------------------------------- */

int mounter_do_any_point(struct mounter_job *job)
{
	return mounter_peer_points(job->peer) > 0 ? 0 : -ENOENT;
}

/* ---- looking --------------------------------------------------------------------------------- */

/* Its superblock is being switched, or unmounted, on request: that is not to be judged now. */
static bool is_moving_locked(const struct mounter_peer *peer)
{
	const struct mounter_peer *server = mounter_peer_of_locked(peer->host, peer->server);

	return peer->busy || peer->holds || (server && (server->busy || server->holds));
}

/*
 * A user moved a directory above the mount point, and the mount with it: nobody would find it there, and it would not count. False:
 * it is there still, counts, and is tried again: a process takes it off, or its user hides it behind another mount or another move.
 */
static bool take_off_moved(struct mounter_peer *peer, int id, dev_t dev)
{
	_cleanup_close_ int top = -1;
	struct mount_entry entry;
	int r = id ? mount_table_find_id(id, &entry) : -ENOENT;

	if (r == -ENOENT || (r == 0 && !is_of(&entry, dev)))
		return true;
	if (r == 0)
		r = file_open_exact(entry.point, &top);
	if (r == 0 && file_mount_id(top) != id)
		r = -EBUSY; /* covered */
	if (r == 0)
		r = kernel_detach(top);
	if (r == 0 && peer->moved != 1)
		log_warn("mount point was moved", "mountpoint=\"%s\" to=\"%s\" next=unmounting",
			peer->config.mountpoint, entry.point);
	else if (r < 0 && peer->moved != r)
		log_error("moved mount cannot be unmounted", "mountpoint=\"%s\" why=\"%s\"",
			peer->config.mountpoint, err_str(r));
	peer->moved = r < 0 ? r : 1;
	return false;
}

/* Its mount, wherever that is; another mount of the same superblock in its place is not it. */
static bool find_mount_of(const struct mounter_peer *peer, const struct buf *mounts, int *id,
	dev_t dev, char ret_at[PATH_MAX])
{
	const char *mountpoint = peer->config.mountpoint;
	struct mount_entry entry;

	if (mounts ? mount_table_find_id_in(mounts, *id, &entry) == 0 && is_of(&entry, dev)
		   : find_mount(*id, dev, &entry)) {
		memcpy(ret_at, entry.point, PATH_MAX);
		return true;
	}
	(void)snprintf(ret_at, PATH_MAX, "%s", mountpoint); /* shorter */
	*id = visible_id(mountpoint, dev);
	return *id || is_there(mountpoint, dev);
}

/* It is moved: found where it is now. Without memory it is tried again. */
static void rename_locked(struct mounter_peer *peer, struct superblock *s, const char *at)
{
	struct superblock_point *point = superblock_point(s, peer->config.mountpoint);
	char *own = strdup(at);
	char *its = strdup(at);

	if (!own || !its || !point || superblock_point(s, at)) {
		free(own);
		free(its);
		return;
	}
	free((char *)(uintptr_t)peer->config.mountpoint);
	free(point->mountpoint);
	peer->config.mountpoint = own;
	point->mountpoint = its;
}

const char *mounter_peer_mountpoint(const struct mounter_peer *peer)
{
	CHECK_MAGIC(peer, MOUNTER_PEER_MAGIC);
	return peer->config.mountpoint;
}

/* It is at `at`, as mount `id`. */
static void keep_looked(struct mounter_peer *peer, dev_t dev, int id, const char *at)
{
	struct mounter_host *host = peer->host;
	struct superblock *s;

	pthread_mutex_lock(&host->lock);
	s = superblock_of_server(&host->superblocks, peer->server);
	if (s && s->point_dev == dev && !is_moving_locked(peer)) {
		if (id)
			peer->mount_id = id;
		if (strcmp(at, peer->config.mountpoint) != 0)
			rename_locked(peer, s, at);
	}
	pthread_mutex_unlock(&host->lock);
}

void mounter_peer_look(struct mounter_peer *peer, const struct buf *mounts)
{
	struct mounter_host *host = peer->host;
	char at[PATH_MAX];
	struct superblock *s;
	dev_t dev = 0;
	bool found;
	int known;
	int id;

	CHECK_MAGIC(peer, MOUNTER_PEER_MAGIC);
	pthread_mutex_lock(&host->lock);
	if (is_moving_locked(peer) ||
		(peer->point != MOUNTER_OWN && peer->point != MOUNTER_SHARED)) {
		pthread_mutex_unlock(&host->lock);
		return;
	}
	s = superblock_of_server(&host->superblocks, peer->server);
	dev = s ? s->point_dev : 0;
	id = known = peer->mount_id;
	pthread_mutex_unlock(&host->lock);
	found = s && find_mount_of(peer, mounts, &id, dev, at);
	if (found && (!peer->config.owned || strcmp(at, peer->config.mountpoint) == 0)) {
		peer->moved = 0;
		keep_looked(peer, dev, id, at);
		return;
	}
	if (s && peer->config.owned && !take_off_moved(peer, known, dev))
		return;
	pthread_mutex_lock(&host->lock);
	s = superblock_of_server(&host->superblocks, peer->server);
	if (!s)
		peer->point = MOUNTER_DETACHED;
	else if (s->point_dev == dev &&
		 !is_moving_locked(peer)) /* else it was switched meanwhile */
		forget_point_locked(host, s, peer->config.mountpoint);
	pthread_mutex_unlock(&host->lock);
}

/* ---- the end --------------------------------------------------------------------------------- */

void mounter_peer_clear(struct mounter_peer *peer)
{
	struct mounter_host *host = peer->host;
	struct source source = { 0 };
	struct superblock *s;

	CHECK_MAGIC(peer, MOUNTER_PEER_MAGIC);
	pthread_mutex_lock(&host->lock);
	s = superblock_of_server(&host->superblocks, peer->config.id);
	if (s) {
		copy_points_locked(host, s, &source);
		for (unsigned int i = 0; i < source.n; i++)
			forget_point_locked(host, s, source.points[i]);
	}
	pthread_mutex_unlock(&host->lock);
	for (unsigned int i = 0; i < source.n; i++)
		take_off(source.points[i], source.point_dev);
	source_release(&source);
}

/* ---- unmounting: which mount ----------------------------------------------------------------- */

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
	if (!find_mount(u->mount_id, u->dev, &entry))
		u->mount_id = 0; /* it was switched, and the next one is not known yet */
	else if (strcmp(entry.point, path) != 0 && peer->config.owned)
		return not_there(path, e);
	else
		memcpy(path, entry.point, sizeof(entry.point));
	visible = visible_id(path, u->dev);
	if (visible && (!u->mount_id || visible == u->mount_id)) {
		u->mount_id = visible;
		return 0; /* a mount that is attached beneath it does not cover it */
	}
	if (mount_table_find_cover(path, u->dev, &entry) == 0)
		return detach_covered(path, &entry, e);
	if (u->mount_id || is_there(path, u->dev))
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
		forget_point_locked(host, s, peer->config.mountpoint);
	else if (s && superblock_point(s, peer->config.mountpoint))
		s->closed = false; /* what was to go stays */
	pthread_mutex_unlock(&host->lock);
}

/* ---- unmounting ------------------------------------------------------------------------------ */

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
		take_off(path, left);
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
