/* The keeper's side: takes requests, and does what does not touch mount points. See mounter_peer.h. */
#include "base/cleanup.h"
#include "base/crash_point.h"
#include "base/limits.h"
#include "base/log.h"
#include "keeper/points/mounter_internal.h"

#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

/* ---- what is asked --------------------------------------------------------------------------- */

static int do_hello(struct mounter_job *job)
{
	if (kernel_may_mount())
		job->answer.flags |= MOUNTER_MAY_MOUNT;
	if (kernel_may_attach_beneath())
		job->answer.flags |= MOUNTER_MAY_BENEATH;
	return 0;
}

/* One at a time: a probe has a file of this process's name, and ends when nobody else has its
 * connection. */
static pthread_mutex_t probing = PTHREAD_MUTEX_INITIALIZER;

static int do_probe(struct mounter_job *job)
{
	bool loop = !job->request.path[0];
	int r;

	if (!loop && strcmp(job->request.path, job->peer->config.image_dir) != 0)
		return err_set(&job->err, -EPERM, "%s is not in this daemon's image directory",
			job->request.path);
	pthread_mutex_lock(&probing);
	r = loop ? kernel_probe_loop(&job->err) : kernel_probe(job->request.path, &job->err);
	pthread_mutex_unlock(&probing);
	return r;
}

static const char *source_of(const struct mounter_job *job)
{
	return job->request.source[0] ? job->request.source : NULL;
}

static int do_mount_fuse(struct mounter_job *job)
{
	const char *source = source_of(job);
	dev_t dev = 0;
	int r;

	if (!kernel_is_fuse(job->fds[0]))
		return err_set(&job->err, -EINVAL, "the descriptor is not one of /dev/fuse");
	r = kernel_mount_fuse(job->fds[0], source, &job->fd, &dev, &job->err);
	if (r < 0)
		return r;
	pthread_mutex_lock(&job->peer->host->lock);
	job->peer->fuse_dev = dev;
	pthread_mutex_unlock(&job->peer->host->lock);
	job->answer.dev = dev;
	return 0;
}

static int do_local(struct mounter_job *job)
{
	struct mounter_peer *peer = job->peer;

	if (job->request.flags & MOUNTER_FIRST)
		mounter_drop_local(peer);
	if (!peer->local) {
		peer->local = malloc(LIMIT_DEVICES * sizeof(*peer->local));
		if (!peer->local)
			return -ENOMEM;
		for (uint32_t i = 0; i < LIMIT_DEVICES; i++)
			peer->local[i] = -1;
	}
	for (uint32_t i = 0; i < job->n_fds; i++) {
		uint32_t at = job->request.index[i];
		struct stat st;

		if (at >= LIMIT_DEVICES || fstat(job->fds[i], &st) != 0 || !S_ISREG(st.st_mode))
			return err_set(&job->err, -EINVAL, "device %u is not a file", at);
		cleanup_close(&peer->local[at]);
		peer->local[at] = TAKE_FD(job->fds[i]);
	}
	return 0;
}

/*
 * Those that came are all that were sent for this image: a daemon, or a keeper, may have been
 * replaced in between, and a device that its daemon does not know of is not kept as it is.
 */
static int check_local(const struct mounter_job *job, struct err *e)
{
	const struct mounter_peer *peer = job->peer;
	uint32_t n = 0;

	for (uint32_t i = 0; peer->local && i < LIMIT_DEVICES; i++)
		n += peer->local[i] >= 0;
	return n == job->request.local
		       ? 0
		       : err_set(e, -ECONNRESET,
				 "%u of %u devices were received with the image: try again", n,
				 job->request.local);
}

/* A directory that only root can change, and in it a file, not a link. */
static int check_image(const struct mounter_job *job, struct err *e)
{
	const char *dir = job->peer->config.image_dir;
	const char *path = job->request.path;
	const char *name = path + strlen(dir);
	_cleanup_close_ int dir_fd = -1;
	_cleanup_close_ int fd = -1;
	struct stat st;

	if (strncmp(path, dir, strlen(dir)) != 0 || *name != '/' || strchr(name + 1, '/'))
		return err_set(e, -EPERM, "%s is not in this daemon's image directory", path);
	dir_fd = open(dir, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (dir_fd < 0 || fstat(dir_fd, &st) != 0)
		return err_set(e, err_errno(), "%s cannot be opened: %m", dir);
	if (st.st_uid != geteuid() || st.st_mode & 077)
		return err_set(e, -EPERM,
			"other users can read the image directory %s: chmod 0700 it", dir);
	fd = openat(dir_fd, name + 1, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	if (fd < 0 || fstat(fd, &st) != 0)
		return err_set(e, err_errno(), "the image %s cannot be opened: %m", path);
	if (!S_ISREG(st.st_mode) || st.st_uid != geteuid() || st.st_mode & 022)
		return err_set(e, -EPERM, "the image %s is not a private file of this user", path);
	return 0;
}

/* What has been mounted for it: its number goes with the answer. */
static void note_superblock(struct mounter_job *job, const struct kernel_superblock *super)
{
	pthread_mutex_lock(&job->peer->host->lock);
	job->peer->made_dev = super->dev;
	pthread_mutex_unlock(&job->peer->host->lock);
	job->answer.dev = super->dev;
	job->answer.number = super->number;
}

static int do_mount_image(struct mounter_job *job)
{
	struct mounter_peer *peer = job->peer;
	struct kernel_image image = {
		.path = job->request.path,
		.source = source_of(job),
		.fuse_mount_fd = job->n_fds ? job->fds[0] : -1,
		.extents = job->request.number,
		.directio = job->request.flags & MOUNTER_DIRECTIO,
	};
	struct kernel_superblock super = { 0 };
	int r = check_image(job, &job->err);

	if (!job->request.local)
		mounter_drop_local(peer);
	image.local = peer->local;
	if (r == 0)
		r = check_local(job, &job->err);
	if (r == 0 && image.extents > LIMIT_DEVICES)
		r = err_set(
			&job->err, -E2BIG, "%u devices are too many for an image", image.extents);
	if (r == 0)
		r = kernel_mount_image(&image, &job->fd, &super, &job->err);
	mounter_drop_local(peer);
	if (r == 0)
		note_superblock(job, &super);
	return r;
}

static int do_mount_loop(struct mounter_job *job)
{
	struct kernel_superblock super = { 0 };
	dev_t dev = 0;
	int r = kernel_dev(job->fds[0], "", &dev);

	if (r < 0 || dev != job->peer->fuse_dev || strchr(job->request.path, '/'))
		return err_set(&job->err, -EPERM, "not a file of this daemon's mount");
	r = kernel_mount_loop(
		job->fds[0], job->request.path, source_of(job), &job->fd, &super, &job->err);
	if (r == 0)
		note_superblock(job, &super);
	return r;
}

/* fusermount3 attached it already: it is known from now on, and nothing can share it. */
static int note_attached(struct mounter_job *job)
{
	struct mounter_peer *peer = job->peer;
	struct mounter_host *host = peer->host;
	dev_t dev = (dev_t)job->request.fuse_dev;
	struct mount_entry top = { 0 };
	struct superblock *s;
	int r;

	if (mount_table_find(peer->config.mountpoint, &top) < 0 ||
		makedev(top.dev_major, top.dev_minor) != dev)
		return err_set(
			&job->err, -ESTALE, "another mount is at %s now", peer->config.mountpoint);
	pthread_mutex_lock(&host->lock);
	s = superblock_of_server(&host->superblocks, peer->config.id);
	if (s) /* of a daemon before it that never came to serve */
		superblock_remove(&host->superblocks, s);
	r = superblock_add(&host->superblocks, peer->config.id, "fusermount3", dev, dev, &s);
	if (r == 0)
		r = superblock_point_add(s, peer->config.id, peer->config.mountpoint);
	if (r == 0) {
		peer->fuse_dev = dev;
		peer->mount_id = top.id;
		peer->point = MOUNTER_OWN;
	}
	pthread_mutex_unlock(&host->lock);
	return r < 0 ? err_set(&job->err, r, "the mount cannot be stored: %s", err_str(r)) : 0;
}

static int do_hand(struct mounter_job *job)
{
	if (!kernel_is_fuse(job->fds[0]))
		return err_set(&job->err, -EINVAL, "the descriptor is not one of /dev/fuse");
	if (dup3(job->fds[0], job->peer->config.fuse_fd, O_CLOEXEC) < 0)
		return err_set(&job->err, err_errno(), "the connection cannot be stored: %m");
	return job->request.fuse_dev ? note_attached(job) : 0;
}

static int do_connection(struct mounter_job *job)
{
	uint32_t wanted = min(job->request.number, LIMIT_FUSE_SLOTS);
	dev_t dev = (dev_t)job->request.fuse_dev;
	int r = 0;

	if (!dev || dev != job->peer->fuse_dev) /* only the one that was mounted for it */
		return err_set(&job->err, -EPERM, "not this daemon's connection");
	if (job->request.flags & MOUNTER_READ_AHEAD)
		return kernel_fuse_read_ahead(dev);
	if (wanted && kernel_background(job->peer->fuse_dev) < wanted)
		r = kernel_set_background(job->peer->fuse_dev, wanted);
	if (r < 0)
		log_warn("max_background not set", "error=%s", err_name(r));
	job->answer.number = kernel_background(job->peer->fuse_dev);
	return 0;
}

/* The loop looks at it, which is woken when this has been answered. */
static int do_newer(struct mounter_job *job)
{
	if (!kernel_may_mount() || !kernel_may_attach_beneath())
		return -EOPNOTSUPP;
	pthread_mutex_lock(&job->peer->host->lock);
	job->peer->newer = true;
	memcpy(job->answer.text, job->peer->newer_why, sizeof(job->answer.text));
	pthread_mutex_unlock(&job->peer->host->lock);
	return 0;
}

static int (*const ops[MOUNTER_OPS])(struct mounter_job *job) = {
	[MOUNTER_HELLO] = do_hello,
	[MOUNTER_PROBE] = do_probe,
	[MOUNTER_MOUNT_FUSE] = do_mount_fuse,
	[MOUNTER_LOCAL] = do_local,
	[MOUNTER_MOUNT_IMAGE] = do_mount_image,
	[MOUNTER_MOUNT_LOOP] = do_mount_loop,
	[MOUNTER_ATTACH] = mounter_do_attach,
	[MOUNTER_SHARE] = mounter_do_share,
	[MOUNTER_SWITCH] = mounter_do_switch,
	[MOUNTER_ANY_POINT] = mounter_do_any_point,
	[MOUNTER_HAND] = do_hand,
	[MOUNTER_CONNECTION] = do_connection,
	[MOUNTER_NEWER] = do_newer,
};

/* ---- answering ------------------------------------------------------------------------------- */

static void answer(struct mounter_job *job, int code)
{
	struct mounter_answer *a = &job->answer;
	int r;

	a->magic = MOUNTER_MAGIC;
	a->serial = job->request.serial;
	a->code = code;
	a->n_fds = code == 0 && job->fd >= 0;
	if (job->err.text[0])
		memcpy(a->text, job->err.text, sizeof(a->text));
	r = mounter_send(job->peer->config.socket, a, sizeof(*a), &job->fd, a->n_fds);
	if (r < 0)
		log_warn("a mount's daemon got no answer", "mount=%u op=%u error=%s",
			job->peer->config.id, job->request.op, err_name(r));
}

static void job_free(struct mounter_job *job)
{
	for (uint32_t i = 0; i < job->n_fds; i++)
		cleanup_close(&job->fds[i]);
	cleanup_close(&job->fd);
	free(job);
}

static void *work(void *arg)
{
	struct mounter_job *job = arg;
	struct mounter_peer *peer = job->peer;
	struct mounter_host *host = peer->host;
	int wake_fd = host->wake_fd;
	int r = mounter_check(&job->request, job->n_fds, &job->err);

	if (r == 0 && !ops[job->request.op])
		r = err_set(&job->err, -EBADMSG, "op %u is not known any more", job->request.op);
	if (r == 0) {
		kernel_label(job->request.label[0] ? job->request.label : NULL);
		r = ops[job->request.op](job);
		kernel_label(NULL);
		/* Done, but not known to a later keeper: the daemon is told by that one. */
		if (mounter_save(host) < 0)
			log_warn("state not saved", "mount=%u op=%u", peer->config.id,
				job->request.op);
		if (r == 0 &&
			(job->request.op == MOUNTER_ATTACH || job->request.op == MOUNTER_SHARE))
			CRASH_POINT("keeper.known");
	}
	answer(job, r);
	job_free(job);
	pthread_mutex_lock(&host->lock);
	peer->busy = false;
	host->busy--;
	pthread_cond_broadcast(&host->idle);
	(void)eventfd_write(
		wake_fd, 1); /* under the lock: neither is freed before; cannot overflow */
	pthread_mutex_unlock(&host->lock);
	return NULL;
}

static void set_busy(struct mounter_peer *peer, bool busy)
{
	pthread_mutex_lock(&peer->host->lock);
	peer->busy = busy;
	peer->host->busy += busy ? 1 : -1;
	pthread_mutex_unlock(&peer->host->lock);
}

void mounter_serve(struct mounter_peer *peer)
{
	struct mounter_job *job = calloc(1, sizeof(*job));
	pthread_attr_t detached;
	pthread_t thread;
	int r;

	CHECK_MAGIC(peer, MOUNTER_PEER_MAGIC);
	if (!job)
		return; /* stays in the socket */
	job->peer = peer;
	job->fd = -1;
	r = mounter_receive(
		peer->config.socket, &job->request, sizeof(job->request), job->fds, &job->n_fds);
	if (r < 0) {
		if (r == -EBADMSG)
			log_warn(
				"invalid request of a mount's daemon", "mount=%u", peer->config.id);
		free(job);
		return;
	}
	set_busy(peer, true);
	pthread_attr_init(&detached);
	pthread_attr_setdetachstate(&detached, PTHREAD_CREATE_DETACHED);
	r = -pthread_create(&thread, &detached, work, job);
	pthread_attr_destroy(&detached);
	if (r == 0)
		return;
	set_busy(peer, false);
	(void)err_set(&job->err, r, "the keeper cannot start a thread: %s", err_str(r));
	answer(job, r);
	job_free(job);
}

/* ---- a later keeper -------------------------------------------------------------------------- */

static int end_intent(struct mounter_job *job)
{
	switch (job->peer->intent.op) {
	case MOUNTER_ATTACH:
	case MOUNTER_SHARE:
		return mounter_renew_attach(job);
	case MOUNTER_SWITCH:
		return mounter_renew_switch(job);
	default:
		return -ENOENT;
	}
}

/* Whoever waits for an answer would wait for a keeper that is no more; a request that none took is
 * served as any other. */
static void tell(const struct mounter_peer *peer, uint32_t serial, int code)
{
	const struct mounter_answer renewed = {
		.magic = MOUNTER_MAGIC, .serial = serial, .code = code
	};
	struct pollfd p = { .fd = peer->config.socket, .events = POLLIN };

	if (p.fd < 0 || poll(&p, 1, 0) != 0)
		return;
	if (mounter_send(p.fd, &renewed, sizeof(renewed), NULL, 0) < 0)
		log_debug("no reader of the reply", "mount=%u", peer->config.id);
}

static void renew(struct mounter_peer *peer)
{
	const struct mounter_intent intent = peer->intent;
	struct mounter_job job = { .peer = peer,
		.request = { .op = intent.op,
			.serial = intent.serial,
			.fuse_dev = intent.from,
			.point_dev = intent.to },
		.fd = -1 };
	int r = -ENOENT;

	if (intent.op) {
		(void)snprintf(job.request.path, sizeof(job.request.path), "%s",
			peer->config.mountpoint); /* it came in such a request */
		r = end_intent(&job);
		log_info("started by an earlier keeper",
			"mountpoint=\"%s\" op=%u result=%s why=\"%s\"", peer->config.mountpoint,
			intent.op, r < 0 ? err_name(r) : "done", job.err.text);
		mounter_begun_not(peer);
	}
	if (r == 0)
		tell(peer, intent.serial, 0);
	else
		tell(peer, 0, -ECONNRESET);
}

void mounter_host_renew(struct mounter_host *host)
{
	CHECK_MAGIC(host, MOUNTER_HOST_MAGIC);
	list_for_each (node, &host->peers) /* nobody else is there yet */
		renew(list_entry(node, struct mounter_peer, link));
}
