/* The image and its volume as one block device. See kernel.h. */
#include "base/buf.h"
#include "base/cleanup.h"
#include "base/file.h"
#include "base/layout.h"
#include "base/log.h"
#include "mount/kernel/kernel.h"
#include "mount/kernel/kernel_internal.h"

#include <fcntl.h>
#include <linux/loop.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <unistd.h>

#define CONTROL  "/dev/loop-control"
#define MODULE   "/sys/module/loop"
#define REQUESTS "4096" /* as many as a mount has slots at most */
#define TRIES    32     /* others take free devices too */
#define SHOWN_AS "granary"

/*
 * A READ that waits for a stalled origin has one of the device's requests, 128 as the module comes:
 * once all wait, so does what is on this node. More can be had when the module is loaded only
 * (Linux 5.18; others leave the option out), and opening the control device would load it.
 */
static int open_control(struct err *e)
{
	int fd;

	if (access(MODULE, F_OK) != 0)
		kernel_load_module("loop", "hw_queue_depth=" REQUESTS);
	fd = open(CONTROL, O_RDWR | O_CLOEXEC);
	return fd < 0 ? err_set(e, errno == ENOENT ? -ENODEV : err_errno(),
				CONTROL " cannot be opened: %m: load the module loop, and give a "
					"container the loop devices")
		      : fd;
}

/* A loop device that nobody uses, open; its path. */
static int open_free(int control, char path[32], struct err *e)
{
	int number = ioctl(control, LOOP_CTL_GET_FREE);
	int fd;

	if (number < 0)
		return err_set(e, err_errno(), "no free loop device: %m: raise max_loop");
	(void)snprintf(path, 32, "/dev/loop%d", number); /* fits */
	fd = open(path, O_RDONLY | O_CLOEXEC);
	return fd < 0 ? err_set(e, err_errno(),
				"%s cannot be opened: %m: give a container the loop devices", path)
		      : fd;
}

/* Only system calls: other threads' locks were copied as they were. */
_Noreturn static void configure_main(int loop_fd, int fuse_mount_fd, const char *name)
{
	const int keep[] = { min(loop_fd, fuse_mount_fd), max(loop_fd, fuse_mount_fd) };
	struct loop_config config = {
		.block_size = BLOCK_BYTES,
		.info = { .lo_flags = LO_FLAGS_READ_ONLY | LO_FLAGS_AUTOCLEAR | LO_FLAGS_DIRECT_IO,
			.lo_file_name = SHOWN_AS },
	};
	int fd;

	kernel_close_others(keep, ARRAY_SIZE(keep));
	fd = openat(fuse_mount_fd, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0)
		_exit(errno & 0xff);
	config.fd = (__u32)fd;
	_exit(ioctl(loop_fd, LOOP_CONFIGURE, &config) == 0 ? 0 : errno & 0xff);
}

/* In a process of its own, as create_apart() in kernel.c: it waits for answers of this one. */
static int configure_apart(int loop_fd, int fuse_mount_fd, const char *name)
{
	pid_t pid = fork();
	int status = 0;

	if (pid < 0)
		return err_errno();
	if (pid == 0)
		configure_main(loop_fd, fuse_mount_fd, name);
	while (waitpid(pid, &status, 0) < 0)
		if (errno != EINTR)
			return err_errno();
	return WIFEXITED(status) ? -WEXITSTATUS(status) : -EIO;
}

/* Without it one READ is in flight, and each byte is cached twice. */
static int check_direct(int loop_fd, struct err *e)
{
	struct loop_info64 info;

	if (ioctl(loop_fd, LOOP_GET_STATUS64, &info) != 0)
		return err_set(e, err_errno(), "the loop device does not answer: %m");
	if (info.lo_flags & LO_FLAGS_DIRECT_IO)
		return 0;
	return err_set(e, -EOPNOTSUPP,
		"loop devices of this kernel do not support direct I/O on FUSE: use --engine fuse");
}

static int configure_error(int r, struct err *e)
{
	if (r == -EINVAL || r == -ENOTTY)
		return err_set(e, -EOPNOTSUPP,
			"this kernel has no LOOP_CONFIGURE (Linux 5.8 and newer have): use "
			"--engine fuse");
	return err_set(e, r, "the loop device cannot be set up: %s", err_str(r));
}

/* The device is gone when nobody has it open: neither we nor a mount. */
static int attach_loop(
	int fuse_mount_fd, const char *name, char path[32], int *ret_fd, struct err *e)
{
	_cleanup_close_ int control = open_control(e);
	int r = control < 0 ? control : -EBUSY;

	for (int i = 0; i < TRIES && r == -EBUSY; i++) {
		_cleanup_close_ int fd = open_free(control, path, e);

		if (fd < 0)
			return fd;
		r = configure_apart(fd, fuse_mount_fd, name);
		if (r == 0)
			r = check_direct(fd, e);
		else if (r != -EBUSY)
			return configure_error(r, e);
		if (r == 0)
			*ret_fd = TAKE_FD(fd);
	}
	return r == -EBUSY
		       ? err_set(e, r, "free loop devices are taken by other processes: try again")
		       : r;
}

/* Requests as long as the longest READ, whose rest would be a READ of its own. */
static void set_reads(dev_t dev)
{
	char path[96];
	char kib[16];

	(void)snprintf(kib, sizeof(kib), "%u", LIMIT_PAYLOAD_BYTES / 1024); /* fits */
	(void)snprintf(path, sizeof(path), "/sys/dev/block/%u:%u/queue/max_sectors_kb", major(dev),
		minor(dev)); /* fits */
	if (kernel_write_setting(path, kib) < 0)
		log_warn("request size not set", "file=%s effect=\"large reads are slower\"", path);
	(void)snprintf(path, sizeof(path), KERNEL_BDI_DIR "/%u:%u/read_ahead_kb", major(dev),
		minor(dev)); /* fits */
	if (kernel_write_setting(path, KERNEL_READ_AHEAD_KB) < 0)
		log_warn("read-ahead not set", "file=%s effect=\"large reads are slower\"", path);
}

uint32_t kernel_loop_requests(dev_t dev)
{
	_cleanup_(buf_release) struct buf text = BUF_INIT(64);
	char path[96];

	(void)snprintf(path, sizeof(path), "/sys/dev/block/%u:%u/queue/nr_requests", major(dev),
		minor(dev)); /* fits */
	return file_read_all(path, &text) == 0 ? (uint32_t)strtoul(buf_str(&text), NULL, 10) : 0;
}

static int image_error(int r, struct err *e)
{
	struct utsname name = { .release = "this kernel" };

	(void)uname(&name); /* only a word */
	if (r == -EINVAL)
		return err_set(e, -EOPNOTSUPP,
			"kernel %s does not support EROFS files of chunks (5.15 or newer does): "
			"use --engine fuse",
			name.release);
	return r;
}

int kernel_mount_loop(int fuse_mount_fd, const char *name, const char *source, int *ret_fd,
	struct kernel_superblock *ret_super, struct err *e)
{
	_cleanup_close_ int loop_fd = -1;
	_cleanup_close_ int fd = -1;
	char path[32];
	const struct kernel_image image = { .path = path, .source = source, .fuse_mount_fd = -1 };
	struct kernel_superblock super = { 0 };
	int r = attach_loop(fuse_mount_fd, name, path, &loop_fd, e);

	if (r < 0)
		return r;
	r = kernel_mount_erofs(&image, &fd, e);
	if (r == 0)
		r = kernel_dev(fd, "", &super.dev);
	if (r < 0)
		return image_error(err_default(e, r, "the image on the loop device"), e);
	set_reads(super.dev);
	*ret_fd = TAKE_FD(fd);
	*ret_super = super;
	return 0;
}
