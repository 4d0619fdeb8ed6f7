/* The end of a mount. See mounted.h. */
#include "base/clock.h"
#include "base/detach.h"
#include "base/log.h"
#include "fuse/mounted_internal.h"
#include "fuse/mounter.h"
#include "fuse/unmount_helper.h"

#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

#define GONE_DEADLINE (5 * CLOCK_SECOND)
#define FORCE_GRACE   (100 * CLOCK_MS)

static bool await_gone(struct mounted *m, uint64_t ns)
{
	uint64_t deadline = clock_mono_ns() + ns;

	while (!session_gone(m->session)) {
		if (clock_mono_ns() > deadline)
			return false;
		clock_sleep_ns(2 * CLOCK_MS);
	}
	return true;
}

/* Cuts the connection if it is still ours: its number may be somebody else's once it is gone. */
static int cut_connection(struct mounted *m)
{
	struct pollfd dev = { .fd = m->config.dev_fd };

	if (!m->session || session_gone(m->session) ||
		(poll(&dev, 1, 0) == 1 && dev.revents & POLLERR))
		return 0;
	return mounter_abort((dev_t)slots_mount(m->config.slots)->fuse_dev);
}

/* One unmount under way. */
struct unmount {
	struct mounted *m;
	const char *mountpoint;
	bool lazy;
	bool last; /* no other mount point shows it */
	bool refusing;
};

/*
 * Once the mount is off its last mount point nobody can want a READ any more; those of readers that
 * were killed, or of read-ahead, would hold the helper up.
 */
static void tick(void *arg)
{
	struct unmount *u = arg;

	if (!u->last || u->refusing || mounted_is_attached(u->m, u->mountpoint))
		return;
	session_refuse(u->m->session, true);
	u->refusing = true;
}

/*
 * By a helper process (mounter.h), with a deadline, at which the connection is cut: that answers
 * everything. `e` is set when there are words for the failure.
 */
static int unmount_helped(struct unmount *u, struct err *e)
{
	bool watch = u->m->session != NULL;
	int r = mounter_unmount(u->mountpoint, u->lazy, watch ? tick : NULL, u, e);

	if (r != -ETIMEDOUT || !u->last)
		return r;
	log_warn("unmount is stuck", "mountpoint=\"%s\" next=\"cutting the connection\"",
		u->mountpoint);
	r = cut_connection(u->m);
	if (r < 0)
		log_error("connection not cut", "error=%s", err_name(r));
	return mounter_unmount(u->mountpoint, u->lazy, watch ? tick : NULL, u, e);
}

/* ---- what is said ---------------------------------------------------------------------------- */

/* Files that were open before a switch: what the mount point shows does not count them. */
static int old_in_use(const struct unmount *u, struct err *e)
{
	const struct slots_switch *s = slots_switch(u->m->config.slots);
	char users[512];

	for (uint32_t i = 0; i < SLOTS_OLD_MAX; i++)
		if (s->old[i].dev != 0 && kernel_superblock_lives(s->old[i].number) &&
			mounter_users((dev_t)s->old[i].dev, users, sizeof(users)) > 0)
			return err_set(e, -EBUSY,
				"%s is in use by %s: end these processes, or unmount with --force",
				u->mountpoint, users);
	return 0;
}

static int unmount_error(const struct unmount *u, int r, const struct err *words, struct err *e)
{
	if (r == -ETIMEDOUT)
		return err_set(e, r,
			"%s cannot be unmounted: the kernel does not release it: kill the "
			"processes that use it",
			u->mountpoint);
	if (r == -EPERM && !words->text[0])
		return err_set(e, r,
			"%s cannot be unmounted: only root may, and fusermount3 is not installed: "
			"install the package fuse3",
			u->mountpoint);
	return err_set(e, r, "%s cannot be unmounted: %s: %s", u->mountpoint,
		words->text[0] ? words->text : err_str(r),
		r == -ESTALE ? "see `cachectl status`" : "try --force");
}

/* ---- unmount --------------------------------------------------------------------------------- */

/* The mount point does not show what is ours: unmounted by hand, or covered. */
static int unmount_detached(struct unmount *u, bool force, struct err *e)
{
	struct unmount_target target = {
		.dev = (dev_t)slots_mount(u->m->config.slots)->point_dev,
	};

	if (!u->last || await_gone(u->m, GONE_DEADLINE) || force)
		return 0;
	return unmount_busy(u->mountpoint, &target, e);
}

static int unmount_now(struct unmount *u, struct err *e)
{
	struct err words = ERR_INIT;
	int r = u->last && !u->lazy ? old_in_use(u, e) : 0;

	if (r < 0)
		return r;
	r = unmount_helped(u, &words);
	if (r == -EBUSY) /* the line says who uses it */
		return err_set(e, r, "%s", words.text);
	return r < 0 ? unmount_error(u, r, &words, e) : 0;
}

/* Twice where a switch was cut off. */
static int detach(struct unmount *u, struct err *e)
{
	int r = unmount_now(u, e);

	if (r == 0 && slots_switch(u->m->config.slots)->next.dev != 0 &&
		mounted_is_attached(u->m, u->mountpoint))
		r = unmount_now(u, e);
	return r;
}

int mounted_detach(struct mounted *m, struct err *e)
{
	struct unmount u = {
		.m = m,
		.mountpoint = m->config.mountpoint,
		.lazy = true,
		.last = true,
	};

	return detach(&u, e);
}

/* Without force the kernel looks whether it is idle and takes it off in one step: nobody who comes
 * in between gets an error. */
static int unmount_attached(struct unmount *u, bool force, struct err *e)
{
	u->lazy = force;
	if (force && u->last)
		session_refuse(u->m->session, true);
	return force ? detach(u, e) : unmount_now(u, e);
}

/* It is off the mount point; what still holds on to the connection loses it. */
static void end_connection(struct mounted *m, bool force)
{
	int r;

	/* By force too: who gets EIO and closes his files sees nothing stranger. */
	if (await_gone(m, force ? FORCE_GRACE : GONE_DEADLINE))
		return;
	if (!force)
		log_warn("still mounted elsewhere",
			"mountpoint=\"%s\" next=\"its readers get EIO\"", m->config.mountpoint);
	r = cut_connection(m);
	if (r < 0 && r != -ENOENT) {
		/* An ordinary user's way to it is often not mounted. Until then all READs fail. */
		log_warn("connection not cut", "error=%s next=\"it ends with its last descriptor\"",
			err_name(r));
		return;
	}
	(void)await_gone(m, GONE_DEADLINE); /* else its readers hold it, with EIO */
}

int mounted_check_cover(const struct mounted *m, const char *mountpoint, struct err *e)
{
	dev_t dev = (dev_t)slots_mount(m->config.slots)->point_dev;
	struct mount_entry top;

	CHECK_MAGIC(m, MOUNTED_MAGIC);
	if (!mountpoint)
		mountpoint = m->config.mountpoint;
	if (!dev || mounted_is_attached(m, mountpoint) ||
		mount_table_find_cover(mountpoint, dev, &top) < 0)
		return 0;
	return detach_covered(mountpoint, &top, e);
}

int mounted_unmount(
	struct mounted *m, const char *mountpoint, bool force, uint32_t *ret_others, struct err *e)
{
	struct unmount u = {
		.m = m,
		.mountpoint = mountpoint ? mountpoint : m->config.mountpoint,
	};
	uint32_t others = 0;
	int r;

	CHECK_MAGIC(m, MOUNTED_MAGIC);
	pthread_mutex_lock(&m->unmounting);
	/* By force: what is still beneath is detached with it. */
	r = mounted_switch_end(m, e);
	if (r < 0 && !force) {
		pthread_mutex_unlock(&m->unmounting);
		return r;
	}
	r = session_gone(m->session) ? 0 : mounter_leave(u.mountpoint, &others, e);
	u.last = others == 0;
	if (r < 0 || session_gone(m->session))
		; /* nothing to take off, or nobody who could */
	else if (!mounted_is_attached(m, u.mountpoint))
		r = unmount_detached(&u, force, e);
	else
		r = unmount_attached(&u, force, e);
	m->ended |= r == 0 && u.last;
	if (r == 0 && u.last)
		end_connection(m, force);
	else if (u.last)
		session_refuse(m->session, false); /* it goes on as before */
	if (r < 0)
		mounter_stay(u.mountpoint);
	pthread_mutex_unlock(&m->unmounting);
	if (r == 0 && ret_others)
		*ret_others = others;
	return r;
}
