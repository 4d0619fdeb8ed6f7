/* One superblock in another's place: attaching beneath, detaching. See kernel.h. */
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/crash_point.h"
#include "base/file.h"
#include "base/log.h"
#include "base/mount_table.h"
#include "mount/kernel/kernel.h"
#include "mount/kernel/kernel_internal.h"

#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <unistd.h>

/* Linux 6.5 */
#ifndef MOVE_MOUNT_BENEATH
#define MOVE_MOUNT_BENEATH 0x00000200
#endif

#define DETACHING_MAX   16u /* helpers at once */
#define LEFT_MAX        64u
#define DETACH_DEADLINE (30 * CLOCK_SECOND)

/* ---- mount points ---------------------------------------------------------------------------- */

int kernel_attach_beneath(int mount_fd, int top_fd, struct err *e)
{
	if (syscall(SYS_move_mount, mount_fd, "", top_fd, "",
		    MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_T_EMPTY_PATH | MOVE_MOUNT_BENEATH) != 0)
		return err_set(e, kernel_may_attach_beneath() ? err_errno() : -EOPNOTSUPP,
			"nothing can be attached beneath that mount: %m");
	return 0;
}

int kernel_clone(const char *mountpoint, dev_t dev, int *ret_fd)
{
	_cleanup_close_ int root = -1;
	_cleanup_close_ int fd = -1;
	struct statx stx;
	dev_t got = 0;
	int r = file_open_exact(mountpoint, &root);

	/* A directory below the root has the same st_dev. */
	if (r == 0 && (statx(root, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, 0, &stx) != 0 ||
			      (stx.stx_attributes_mask & STATX_ATTR_MOUNT_ROOT &&
				      !(stx.stx_attributes & STATX_ATTR_MOUNT_ROOT))))
		r = -ESTALE;
	if (r == 0)
		fd = (int)syscall(SYS_open_tree, root, "",
			OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_EMPTY_PATH);
	if (r == 0)
		r = fd < 0 ? err_errno() : kernel_dev(fd, "", &got);

	if (r == 0 && got != dev)
		r = -ESTALE;
	if (r == 0)
		*ret_fd = TAKE_FD(fd);
	return r;
}

bool kernel_may_attach_beneath(void)
{
	/* Flags are looked at first; a flag it does not know is EINVAL, no such descriptor EBADF. */
	return syscall(SYS_move_mount, -1, "", -1, "",
		       MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_T_EMPTY_PATH | MOVE_MOUNT_BENEATH) !=
		       0 &&
	       errno == EBADF;
}

/* Only system calls: other threads' locks were copied as they were. */
_Noreturn static void detach_main(int top_fd)
{
	char path[32] = "/proc/self/fd/0";

	(void)prctl(PR_SET_NAME, KERNEL_DETACH_NAME);
	(void)setsid(); /* a signal to all of our processes is not about this one */
	if (dup2(top_fd, 0) != 0 || chdir("/") != 0)
		_exit(1);
	(void)close_range(1, UINT_MAX, 0); /* must not keep the connection alive */
	_exit(umount2(path, MNT_DETACH) != 0);
}

/* Of this process: those that ended are forgotten whenever another one begins. */
static struct {
	pthread_mutex_t lock;
	pid_t pid[DETACHING_MAX +
		  LEFT_MAX]; /* those of kernel_detach_left() are behind the others */
} detaching = { .lock = PTHREAD_MUTEX_INITIALIZER };

/* A place in that part of the list; `end`: all still wait. */
static uint32_t reap_locked(uint32_t begin, uint32_t end)
{
	uint32_t place = end;

	for (uint32_t i = begin; i < end; i++) {
		if (detaching.pid[i] && waitpid(detaching.pid[i], NULL, WNOHANG) != 0)
			detaching.pid[i] = 0;
		if (!detaching.pid[i])
			place = i;
	}
	return place;
}

int kernel_detach(int top_fd)
{
	uint32_t place;
	int r = 0;

	pthread_mutex_lock(&detaching.lock);
	(void)reap_locked(DETACHING_MAX, DETACHING_MAX + LEFT_MAX);
	place = reap_locked(0, DETACHING_MAX);
	if (place < DETACHING_MAX) {
		pid_t pid = fork();

		if (pid == 0)
			detach_main(top_fd);
		if (pid < 0)
			r = err_errno();
		else
			detaching.pid[place] = pid;
	} else {
		r = -EAGAIN;
	}
	pthread_mutex_unlock(&detaching.lock);
	return r;
}

void kernel_detach_left(pid_t pid)
{
	uint32_t place;

	pthread_mutex_lock(&detaching.lock);
	place = reap_locked(DETACHING_MAX, DETACHING_MAX + LEFT_MAX);
	if (place < DETACHING_MAX + LEFT_MAX)
		detaching.pid[place] = pid; /* else it stays a zombie once it ends */
	pthread_mutex_unlock(&detaching.lock);
}

/* ---- one in the other's place ---------------------------------------------------------------- */

/* What the mount point shows, if that is `from`. */
static int open_top(const char *mountpoint, dev_t from, int *ret_fd, struct err *e)
{
	_cleanup_close_ int fd = -1;
	dev_t dev = 0;
	int r = file_open_exact(
		mountpoint, &fd); /* a link could lead to another mount of the same */

	if (r < 0)
		return err_set(e, r, "%s cannot be opened: %s", mountpoint, err_str(r));
	if (kernel_dev(fd, "", &dev) < 0 || dev != from)
		return err_set(e, -ENOENT, "%s shows another mount now", mountpoint);
	*ret_fd = TAKE_FD(fd);
	return 0;
}

static int detach_top(int top_fd, const char *mountpoint, dev_t to, struct err *e)
{
	uint64_t deadline = clock_mono_ns() + DETACH_DEADLINE;
	int r;

	/* Half done otherwise: helpers of other mount points take a moment to end. */
	while ((r = kernel_detach(top_fd)) == -EAGAIN && clock_mono_ns() < deadline)
		clock_sleep_ns(CLOCK_MS);
	if (r < 0)
		return err_set(e, r, "no process to unmount with: %s", err_str(r));
	for (;;) {
		dev_t dev = 0;

		r = kernel_dev_exact(mountpoint, &dev);
		if (r == 0 && dev == to)
			return 0;
		if (r < 0) /* a user moved it, or mounted something above it */
			return err_set(e, r, "%s cannot be opened: %s", mountpoint, err_str(r));
		if (clock_mono_ns() > deadline)
			return err_set(e, -ETIMEDOUT, "the kernel does not unmount the old mount");
		clock_sleep_ns(CLOCK_MS);
	}
}

int kernel_switch(int mount_fd, const char *mountpoint, dev_t from, dev_t to, struct err *e)
{
	_cleanup_close_ int top = -1;
	int r = open_top(mountpoint, from, &top, e);

	if (r == 0)
		r = kernel_attach_beneath(mount_fd, top, e);
	if (r < 0)
		return r;
	CRASH_POINT("switch.beneath");
	r = detach_top(top, mountpoint, to, e);
	CRASH_POINT("switch.detached");
	return r;
}

int kernel_switch_end(const char *mountpoint, dev_t from, dev_t to, struct err *e)
{
	_cleanup_close_ int top = -1;
	struct mount_entry entry;
	dev_t dev = 0;
	int r = kernel_dev_exact(mountpoint, &dev);

	if (r < 0)
		return err_set(e, r, "%s: %s", mountpoint, err_str(r));
	if (dev == to)
		return 0;
	/* One that is elsewhere is another's: the number of a superblock that is gone is given again at once. */
	if (mount_table_find_at(mountpoint, to, &entry) < 0)
		return err_set(e, -ENOENT, "%s: nothing was attached", mountpoint);
	r = open_top(mountpoint, from, &top, e);
	return r < 0 ? r : detach_top(top, mountpoint, to, e);
}
