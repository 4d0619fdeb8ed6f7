/* FUSE mounts and their connections. See kernel.h. */
#include "base/buf.h"
#include "base/cleanup.h"
#include "base/file.h"
#include "base/log.h"
#include "mount/kernel/kernel.h"
#include "mount/kernel/kernel_internal.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#define DEVICE          "/dev/fuse"
#define CONNECTIONS_DIR "/sys/fs/fuse/connections"
#define PRIVATE_ATTRS   (MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC)
#define SHOWN_ATTRS     (MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV)

int kernel_open_fuse(int *ret_fd, struct err *e)
{
	int fd = open(DEVICE, O_RDWR | O_CLOEXEC | O_NONBLOCK);

	if (fd < 0)
		return err_set(e, errno == ENOENT || errno == ENXIO ? -ENODEV : err_errno(),
			DEVICE " cannot be opened: %m: load the module fuse, and give a "
			       "container the device");
	*ret_fd = fd;
	return 0;
}

bool kernel_is_fuse(int fd)
{
	struct stat st;
	struct stat dev;

	if (fstat(fd, &st) != 0 || !S_ISCHR(st.st_mode))
		return false;
	if (stat(DEVICE, &dev) == 0 && S_ISCHR(dev.st_mode))
		return st.st_rdev == dev.st_rdev;
	return st.st_rdev == makedev(10, 229); /* its number, where nothing is called so */
}

int kernel_dev(int dir, const char *path, dev_t *ret_dev)
{
	struct statx stx;

	/* Nothing asked but the number: no request to a daemon, no right needed. */
	if (statx(dir, path, AT_EMPTY_PATH | AT_SYMLINK_NOFOLLOW | AT_STATX_DONT_SYNC, 0, &stx) !=
		0)
		return err_errno();
	*ret_dev = makedev(stx.stx_dev_major, stx.stx_dev_minor);
	return 0;
}

int kernel_dev_exact(const char *mountpoint, dev_t *ret_dev)
{
	_cleanup_close_ int fd = -1;
	int r = file_open_exact(mountpoint, &fd);

	return r == 0 ? kernel_dev(fd, "", ret_dev) : r;
}

/* For everybody, by the permissions of its files. */
static int set_shown(int fs)
{
	int r = kernel_fsconfig(fs, FSCONFIG_SET_STRING, "subtype", "granary");

	if (r == 0)
		r = kernel_fsconfig(fs, FSCONFIG_SET_FLAG, "allow_other", NULL);
	if (r == 0)
		r = kernel_fsconfig(fs, FSCONFIG_SET_FLAG, "default_permissions", NULL);
	if (r == 0)
		r = kernel_fsconfig(fs, FSCONFIG_SET_FLAG, "ro", NULL);
	if (r == 0)
		r = kernel_set_label(fs);
	return r;
}

static int configure(int fs, int dev_fd, const char *source)
{
	char fd[16];
	char uid[16];
	char gid[16];
	const char *const options[][2] = {
		{ "source", source ? source : "granary" },
		{ "fd", fd },
		{ "rootmode", "40000" },
		{ "user_id", uid },
		{ "group_id", gid },
	};
	int r = 0;

	(void)snprintf(fd, sizeof(fd), "%d", dev_fd); /* all fit */
	(void)snprintf(uid, sizeof(uid), "%u", geteuid());
	(void)snprintf(gid, sizeof(gid), "%u", getegid());
	for (size_t i = 0; i < ARRAY_SIZE(options) && r == 0; i++)
		r = kernel_fsconfig(fs, FSCONFIG_SET_STRING, options[i][0], options[i][1]);
	return r == 0 && source ? set_shown(fs) : r;
}

int kernel_mount_fuse(int dev_fd, const char *source, int *ret_fd, dev_t *ret_dev, struct err *e)
{
	_cleanup_close_ int fs = kernel_fsopen("fuse");
	char text[256];
	const char *why = NULL;
	dev_t dev = 0;
	int fd = -1;
	int r;

	if (fs < 0)
		return err_set(e, err_errno(),
			"this kernel refused a FUSE mount: %m: run as root, or load the module "
			"fuse");
	r = configure(fs, dev_fd, source);
	if (r < 0)
		why = kernel_complaint(fs, r, text);
	else
		r = kernel_create_and_mount(
			fs, NULL, -1, source ? SHOWN_ATTRS : PRIVATE_ATTRS, &fd, text, &why);
	if (r < 0)
		return err_set(e, r, "the %sFUSE mount failed: %s: see dmesg",
			source ? "" : "private ", why);
	r = kernel_dev(fd, "", &dev);
	if (r < 0) {
		(void)close(fd); /* ends the mount */
		return err_set(e, r, "the FUSE mount does not answer: %s: mount again", err_str(r));
	}
	*ret_fd = fd;
	*ret_dev = dev;
	return 0;
}

/* ---- connections ----------------------------------------------------------------------------- */

/* A connection is named by its mount's device number, as the kernel makes one word of it. */
static unsigned int connection(dev_t fuse_dev)
{
	return major(fuse_dev) << 20 | minor(fuse_dev);
}

/* Where somebody mounted the control file system, its files belong to the connection's owner. */
static int open_control(dev_t fuse_dev, const char *name, int flags)
{
	char path[96];
	int fd;

	(void)snprintf(path, sizeof(path), CONNECTIONS_DIR "/%u/%s", connection(fuse_dev),
		name); /* fits */
	fd = open(path, flags | O_CLOEXEC);
	return fd < 0 ? err_errno() : fd;
}

/* The same through a mount of our own, for who may. */
static int open_control_mounted(dev_t fuse_dev, const char *name, int flags)
{
	_cleanup_close_ int fs = kernel_fsopen("fusectl");
	_cleanup_close_ int root = -1;
	char text[256];
	char path[64];
	const char *why;
	int fd;
	int r;

	if (fs < 0)
		return err_errno();
	r = kernel_create_and_mount(
		fs, NULL, -1, PRIVATE_ATTRS & ~MOUNT_ATTR_RDONLY, &root, text, &why);
	if (r < 0)
		return r;
	(void)snprintf(path, sizeof(path), "%u/%s", connection(fuse_dev), name); /* fits */
	fd = openat(root, path, flags | O_CLOEXEC);
	return fd < 0 ? err_errno() : fd;
}

static int open_either(dev_t fuse_dev, const char *name, int flags)
{
	int fd = open_control(fuse_dev, name, flags);

	return fd >= 0 ? fd : open_control_mounted(fuse_dev, name, flags);
}

int kernel_abort(dev_t fuse_dev)
{
	_cleanup_close_ int file = open_either(fuse_dev, "abort", O_WRONLY);

	if (file < 0)
		return file;
	return write(file, "1", 1) == 1 ? 0 : err_errno();
}

static uint32_t read_number(const char *path)
{
	_cleanup_(buf_release) struct buf text = BUF_INIT(64);

	return file_read_all(path, &text) == 0 ? (uint32_t)strtoul(buf_str(&text), NULL, 10) : 0;
}

uint32_t kernel_background(dev_t fuse_dev)
{
	_cleanup_close_ int file = open_either(fuse_dev, "max_background", O_RDONLY);
	char text[24];
	ssize_t n = file >= 0 ? read(file, text, sizeof(text) - 1) : -1;

	/* Who cannot look is an ordinary user, for whom the kernel has a limit. */
	if (n <= 0)
		return read_number("/sys/module/fuse/parameters/max_user_bgreq");
	text[n] = '\0';
	return (uint32_t)strtoul(text, NULL, 10);
}

/* Read-ahead is dropped past congestion_threshold: as in the answer to INIT they are the same. */
int kernel_set_background(dev_t fuse_dev, uint32_t n)
{
	static const char *const names[] = { "max_background", "congestion_threshold" };
	char text[16];
	int len = snprintf(text, sizeof(text), "%u", n);

	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		_cleanup_close_ int file = open_either(fuse_dev, names[i], O_WRONLY);

		if (file < 0)
			return file;
		if (write(file, text, (size_t)len) != len)
			return err_errno();
	}
	return 0;
}

int kernel_fuse_read_ahead(dev_t fuse_dev)
{
	char path[96];

	(void)snprintf(path, sizeof(path), KERNEL_BDI_DIR "/%u:%u/read_ahead_kb", major(fuse_dev),
		minor(fuse_dev)); /* fits */
	return kernel_write_setting(path, KERNEL_READ_AHEAD_KB);
}

uint32_t kernel_request_timeout(void)
{
	uint32_t most = read_number("/proc/sys/fs/fuse/max_request_timeout");
	uint32_t usual = read_number("/proc/sys/fs/fuse/default_request_timeout");

	return most && (!usual || most < usual) ? most : usual;
}
