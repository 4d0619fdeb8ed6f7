/* A native mount. See native.h. */
#include "fuse/native.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/log.h"
#include "fuse/kernel.h"
#include "fuse/users.h"

#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <unistd.h>

#define NATIVE_MAGIC    0x4A71FE01u
#define UMOUNT_DEADLINE (10 * CLOCK_SECOND)
#define ABORT_DEADLINE  (10 * CLOCK_SECOND)
#define GONE_DEADLINE   (5 * CLOCK_SECOND)

struct native {
	uint32_t magic;
	struct native_config config;
	struct tree *tree;
	struct session *session;
	pthread_mutex_t unmounting; /* held over one native_unmount() */
};

struct session *native_session(struct native *native)
{
	return native->session;
}

/* ---- mount ----------------------------------------------------------------------------------- */

static int start_session(struct native *n, struct err *e)
{
	const struct slots_mount *m = slots_mount(n->config.slots);
	struct session_config config = {
		.dev_fd = n->config.dev_fd,
		.slots = n->config.slots,
		.reader = n->config.reader,
		.threads = n->config.threads,
		.on_failure = n->config.on_failure,
		.on_gone = n->config.on_gone,
		.arg = n->config.arg,
	};
	int r = tree_extents_new(m->extent_bytes, m->extents, &n->tree, e);

	if (r < 0)
		return r;
	config.tree = n->tree;
	return session_new(&config, &n->session, e);
}

/* On failure both mounts end with their descriptors: nothing was attached. */
static int mount_new_one(struct native *n, struct err *e)
{
	struct slots_mount *m = slots_mount(n->config.slots);
	_cleanup_close_ int fuse = -1;
	_cleanup_close_ int image = -1;
	dev_t dev = 0;
	int r = kernel_mount_fuse(n->config.dev_fd, &fuse, &dev, e);

	if (r < 0)
		return r;
	m->fuse_dev = dev;
	r = start_session(n, e);
	if (r == 0)
		r = kernel_mount_image(n->config.image, fuse, m->extents, &image, &dev, e);
	if (r < 0)
		return r;
	m->erofs_dev = dev;
	m->mounted_at = clock_wall_ns() / CLOCK_SECOND;
	/*
	 * Before the fact: a crash between the two takes the mount with it, and a successor sees
	 * its connection gone.
	 */
	slots_set_phase(n->config.slots, SLOTS_MOUNTED);
	r = kernel_attach(image, n->config.point_fd, e);
	return r < 0 ? err_prefix(e, "%s", n->config.mountpoint) : 0;
}

static int take_over(struct native *n, struct err *e)
{
	log_info("taking a mount over", "mountpoint=\"%s\"", n->config.mountpoint);
	return start_session(n, e);
}

int native_new(const struct native_config *config, struct native **ret_native, struct err *e)
{
	struct native *n = calloc(1, sizeof(*n));
	int r;

	if (!n)
		return err_set(e, -ENOMEM, "out of memory");
	n->magic = NATIVE_MAGIC;
	n->config = *config;
	pthread_mutex_init(&n->unmounting, NULL);
	switch (slots_phase(config->slots)) {
	case SLOTS_NEW:
		r = mount_new_one(n, e);
		break;
	case SLOTS_MOUNTED:
		r = take_over(n, e);
		break;
	case SLOTS_CONNECTED:
	default:
		r = err_set(e, -ENODEV,
			"the daemon of %s died before the mount was whole: mount it again",
			config->mountpoint);
	}
	if (r < 0) {
		native_free(n);
		return r;
	}
	*ret_native = n;
	return 0;
}

void native_free(struct native *n)
{
	if (!n)
		return;
	CHECK_MAGIC(n, NATIVE_MAGIC);
	session_free(n->session);
	tree_extents_free(n->tree);
	pthread_mutex_destroy(&n->unmounting);
	n->magic = 0;
	free(n);
}

/* ---- unmount --------------------------------------------------------------------------------- */

static bool await_gone(struct native *n, uint64_t ns)
{
	uint64_t deadline = clock_mono_ns() + ns;

	while (!session_gone(n->session)) {
		if (clock_mono_ns() > deadline)
			return false;
		clock_sleep_ns(2 * CLOCK_MS);
	}
	return true;
}

/* True while our image is what the mount point shows. */
static bool is_attached(const struct native *n)
{
	struct statx stx;

	return statx(AT_FDCWD, n->config.mountpoint, AT_SYMLINK_NOFOLLOW | AT_STATX_DONT_SYNC,
		       STATX_TYPE, &stx) == 0 &&
	       makedev(stx.stx_dev_major, stx.stx_dev_minor) ==
		       slots_mount(n->config.slots)->erofs_dev;
}

/*
 * The errno of the helper, or -ETIMEDOUT while it still runs at the deadline. Once the image is off
 * the mount point nobody can want a READ any more; those of readers that were killed, or of
 * read-ahead, would hold the helper up.
 */
static int await_helper(struct native *n, pid_t pid, uint64_t ns)
{
	uint64_t deadline = clock_mono_ns() + ns;
	bool refusing = false;
	int status = 0;

	for (;;) {
		pid_t got = waitpid(pid, &status, WNOHANG);

		if (got == pid)
			return WIFEXITED(status) ? -WEXITSTATUS(status) : -EIO;
		if (got < 0 && errno != EINTR)
			return err_errno();
		if (!refusing && !is_attached(n)) {
			session_refuse(n->session, true);
			refusing = true;
		}
		if (clock_mono_ns() > deadline)
			return -ETIMEDOUT;
		clock_sleep_ns(CLOCK_MS);
	}
}

/* Cuts the connection if it is still ours: its number may be somebody else's once it is gone. */
static int cut_connection(struct native *n)
{
	struct pollfd dev = { .fd = n->config.dev_fd };

	if (session_gone(n->session) || (poll(&dev, 1, 0) == 1 && dev.revents & POLLERR))
		return 0;
	return kernel_abort((dev_t)slots_mount(n->config.slots)->fuse_dev);
}

/*
 * umount2() in a process of its own: with a READ that nobody answers it would wait in the kernel
 * for ever, deaf to signals. At the deadline the connection is cut, which answers everything.
 */
static int unmount_helped(struct native *n, int flags)
{
	pid_t pid = fork();
	int r;

	if (pid < 0)
		return err_errno();
	if (pid == 0) {
		/* Only system calls: other threads' locks were copied as they were. */
		(void)close_range(0, UINT_MAX, 0); /* must not keep the connection alive */
		_exit(umount2(n->config.mountpoint, flags | UMOUNT_NOFOLLOW) == 0 ? 0
										  : errno & 0xff);
	}
	r = await_helper(n, pid, UMOUNT_DEADLINE);
	if (r != -ETIMEDOUT)
		return r;
	log_warn("unmount is stuck", "mountpoint=\"%s\" next=\"cutting the connection\"",
		n->config.mountpoint);
	r = cut_connection(n);
	if (r < 0)
		log_error("connection not cut", "error=%s", err_name(r));
	return await_helper(n, pid, ABORT_DEADLINE);
}

static int busy_line(struct native *n, struct err *e)
{
	char users[512];
	dev_t dev = (dev_t)slots_mount(n->config.slots)->erofs_dev;

	if (users_of(dev, users, sizeof(users)) > 0)
		return err_set(e, -EBUSY, "%s is in use by %s: end them, or unmount with --force",
			n->config.mountpoint, users);
	return err_set(e, -EBUSY,
		"%s is in use, by a mount below it or in another mount namespace: unmount with "
		"--force",
		n->config.mountpoint);
}

static int unmount_error(struct native *n, int r, struct err *e)
{
	if (r == -ETIMEDOUT)
		return err_set(e, r,
			"%s cannot be unmounted: the kernel does not let go of it; its processes "
			"may need to be "
			"killed",
			n->config.mountpoint);
	return err_set(e, r, "%s cannot be unmounted: %s", n->config.mountpoint, err_str(r));
}

/* The mount point does not show our image: unmounted by hand, or covered. */
static int unmount_detached(struct native *n, bool force, struct err *e)
{
	if (await_gone(n, GONE_DEADLINE) || force)
		return 0;
	return busy_line(n, e);
}

/* The kernel looks whether it is idle and takes it off in one step: nobody who comes in between
 * gets an error. */
static int unmount_when_idle(struct native *n, struct err *e)
{
	int r = unmount_helped(n, 0);

	if (r == -EBUSY)
		return busy_line(n, e);
	return r < 0 ? unmount_error(n, r, e) : 0;
}

static int unmount_by_force(struct native *n, struct err *e)
{
	int r;

	session_refuse(n->session, true);
	r = unmount_helped(n, MNT_DETACH);
	return r < 0 ? unmount_error(n, r, e) : 0;
}

/* The image is off the mount point; what still holds on to the connection loses it. */
static void end_connection(struct native *n, bool force)
{
	int r;

	if (!force && await_gone(n, GONE_DEADLINE))
		return;
	if (!force)
		log_warn("still mounted elsewhere",
			"mountpoint=\"%s\" next=\"its readers get EIO\"", n->config.mountpoint);
	r = cut_connection(n);
	if (r < 0 && r != -ENOENT)
		log_warn("connection not cut", "error=%s next=\"it ends with its last descriptor\"",
			err_name(r));
	(void)await_gone(n, GONE_DEADLINE); /* else its readers hold it, with EIO */
}

int native_unmount(struct native *n, bool force, struct err *e)
{
	int r;

	CHECK_MAGIC(n, NATIVE_MAGIC);
	pthread_mutex_lock(&n->unmounting);
	if (session_gone(n->session))
		r = 0;
	else if (!is_attached(n))
		r = unmount_detached(n, force, e);
	else if (force)
		r = unmount_by_force(n, e);
	else
		r = unmount_when_idle(n, e);
	if (r == 0)
		end_connection(n, force);
	else
		session_refuse(n->session, false); /* it goes on as before */
	pthread_mutex_unlock(&n->unmounting);
	return r;
}
