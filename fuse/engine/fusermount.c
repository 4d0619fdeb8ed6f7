/* Spawns fusermount3. See fusermount.h. */
#include "fuse/engine/fusermount.h"
#include "base/buf.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/detach.h"
#include "base/fd_pass.h"
#include "base/file.h"
#include "base/log.h"
#include "base/mount_conf.h"
#include "base/programs.h"

#include <fcntl.h>
#include <linux/capability.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>

#define MOUNT_DEADLINE (30 * CLOCK_SECOND)
#define TEXT_MAX       256u  /* of what it says */
#define SOURCE_MAX     1024u /* shown of a URL; the kernel takes 4096, escapes included */
#define READ_MAX       "1048576"

#define INSTALL "install the package fuse3, or mount as root"

/* ---- where it is, and whether it will work --------------------------------------------------- */

/* By root's leave. */
static bool may_allow_other(void)
{
	_cleanup_(buf_release) struct buf conf = BUF_INIT(MOUNT_CONF_BYTES);

	return file_read_all(MOUNT_CONF, &conf) == 0 &&
	       mount_conf_find(buf_str(&conf), "user_allow_other", NULL);
}

int fusermount_probe(bool allow_other, struct err *e)
{
	char path[PATH_MAX];
	struct stat st;

	if (!programs_fusermount(path))
		return err_set(e, -ENOENT,
			"an ordinary user mounts through fusermount3, which is not "
			"installed: " INSTALL);
	if (access("/dev/fuse", F_OK) != 0)
		return err_set(e, -ENODEV,
			"/dev/fuse not found: load the module fuse, and give a container the "
			"device");
	if (prctl(PR_CAPBSET_READ, CAP_SYS_ADMIN, 0, 0, 0) == 0)
		return err_set(e, -EPERM,
			"mounting is forbidden in this container, also to fusermount3: give it "
			"CAP_SYS_ADMIN");
	/* fusermount3 opens it as the user who calls it. */
	if (access("/dev/fuse", R_OK | W_OK) != 0)
		return err_set(e, -EPERM,
			"/dev/fuse may not be opened by this user: as root, run chmod 666 "
			"/dev/fuse, as udev does");
	if (geteuid() == 0)
		return 0;
	if (stat(path, &st) != 0 || !(st.st_mode & S_ISUID) || st.st_uid != 0)
		return err_set(e, -EPERM,
			"%s is not set-user-id root, so it cannot mount: chmod u+s it as root, or "
			"mount as root",
			path);
	if (access("/etc/mtab", R_OK) != 0)
		return err_set(e, -EPERM,
			"/etc/mtab not found, which fusermount3 needs to unmount: as root, run ln "
			"-s /proc/self/mounts /etc/mtab");
	if (prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == 1)
		return err_set(e, -EPERM,
			"this process may not gain privileges (no_new_privs), so %s cannot mount: "
			"allow it in the container or unit, or mount as root",
			path);
	if (allow_other && !may_allow_other())
		return err_set(e, -EPERM,
			"--allow-other needs the line user_allow_other in " MOUNT_CONF
			": add it as root, or leave the option out");
	return 0;
}

int fusermount_check_point(const char *mountpoint, struct err *e)
{
	struct stat st;

	if (geteuid() == 0)
		return 0;
	if (stat(mountpoint, &st) != 0)
		return err_set(e, err_errno(), "the mount point %s cannot be used: %m", mountpoint);
	if ((st.st_mode & S_ISVTX) && st.st_uid != geteuid())
		return err_set(e, -EACCES,
			"the mount point %s belongs to another user: choose a directory of your "
			"own",
			mountpoint);
	if (access(mountpoint, W_OK) != 0)
		return err_set(e, -EACCES,
			"you have no write access to the mount point %s, which fusermount3 needs: "
			"choose a directory of your own",
			mountpoint);
	return 0;
}

/* ---- what it says ---------------------------------------------------------------------------- */

/* What to do about its refusals, by words in them. */
static const struct {
	const char *words;
	int code;
	const char *advice;
} refusals[] = {
	{ "user_allow_other", -EPERM,
		"add that line as root to " MOUNT_CONF ", or leave --allow-other out" },
	{ "no write access", -EACCES, "choose a directory of your own" },
	{ "not owned by user", -EACCES, "choose a directory of your own" },
	{ "mountpoint", -EACCES, "choose an empty directory of your own" },
	{ "mounting over filesystem", -EACCES,
		"choose a directory on another file system, such as your home directory" },
	{ "mount_max", -EUSERS,
		"unmount what is not needed, or raise mount_max as root in " MOUNT_CONF },
	{ "username", -EPERM,
		"your user id has no name in /etc/passwd: add one as root, or mount as root" },
	{ "device not found", -ENODEV, "load the module fuse" },
	{ "/dev/fuse", -EPERM, "as root, run chmod 666 /dev/fuse, as udev does" },
	{ "ermission denied", -EPERM, "mount as root, or give the container CAP_SYS_ADMIN" },
	{ "not permitted", -EPERM, "mount as root, or give the container CAP_SYS_ADMIN" },
};

static int refused(char *said, struct err *e)
{
	const char *words = detach_words(said);

	for (size_t i = 0; i < ARRAY_SIZE(refusals); i++)
		if (strstr(words, refusals[i].words))
			return err_set(e, refusals[i].code, "fusermount3 failed: %s: %s", words,
				refusals[i].advice);
	if (!words[0])
		return err_set(e, -EIO,
			"fusermount3 failed without a message: run it by hand, or mount as root");
	return err_set(e, -EIO, "fusermount3 failed: %s", words);
}

/* ---- mount ----------------------------------------------------------------------------------- */

/* Commas and backslashes of a value are marked by a backslash. */
static void escape(const char *in, char *out, size_t size)
{
	size_t n = 0;

	for (; *in && n + 3 < size; in++) {
		if (*in == ',' || *in == '\\')
			out[n++] = '\\';
		out[n++] = *in;
	}
	out[n] = '\0';
}

static int spawn(
	const struct fusermount_options *o, int comm_fd, int said_fd, pid_t *ret_pid, struct err *e)
{
	char program[PATH_MAX];
	char source[SOURCE_MAX];
	char options[SOURCE_MAX + 160];
	char *const argv[] = { (char[]){ "fusermount3" }, (char[]){ "-o" }, options,
		(char[]){ "--" }, (char *)(uintptr_t)o->mountpoint, NULL };
	char *const envp[] = { (char[]){ "_FUSE_COMMFD=3" }, (char[]){ "LC_ALL=C" },
		(char[]){ "PATH=/usr/sbin:/usr/bin:/sbin:/bin" }, NULL };
	posix_spawn_file_actions_t files;
	int r = programs_fusermount(program) ? 0 : -ENOENT;

	if (r < 0)
		return fusermount_probe(false, e);
	escape(o->source, source, sizeof(source));
	(void)snprintf(options, sizeof(options),
		"ro,nosuid,nodev,default_permissions,max_read=" READ_MAX
		",subtype=granary,fsname=%s%s",
		source, o->allow_other ? ",allow_other" : ""); /* fits */
	posix_spawn_file_actions_init(&files);
	/* Nothing of ours is to live on in it, and it writes where we read. */
	posix_spawn_file_actions_addopen(&files, STDIN_FILENO, "/dev/null", O_RDWR, 0);
	posix_spawn_file_actions_adddup2(&files, said_fd, STDOUT_FILENO);
	posix_spawn_file_actions_adddup2(&files, said_fd, STDERR_FILENO);
	posix_spawn_file_actions_adddup2(&files, comm_fd, 3);
	posix_spawn_file_actions_addclosefrom_np(&files, 4);
	r = posix_spawn(ret_pid, program, &files, NULL, argv, envp);
	posix_spawn_file_actions_destroy(&files);
	return r ? err_set(e, -r, "%s cannot be started: %s", program, err_str(-r)) : 0;
}

/* Waits for the connection. -ETIMEDOUT; another error: fusermount3 ended without having sent it. */
static int receive(int fd, uint64_t deadline, int *ret_fd)
{
	struct pollfd wait = { .fd = fd, .events = POLLIN };

	for (;;) {
		uint64_t now = clock_mono_ns();
		int n = now < deadline ? poll(&wait, 1, (int)((deadline - now) / CLOCK_MS) + 1) : 0;

		if (n == 0)
			return -ETIMEDOUT;
		if (n > 0)
			return fd_pass_receive(fd, 0, ret_fd);
		if (errno != EINTR)
			return err_errno();
	}
}

static void read_said(int fd, char said[TEXT_MAX])
{
	ssize_t n = read(fd, said, TEXT_MAX - 1);

	said[n > 0 ? n : 0] = '\0';
}

int fusermount_mount(const struct fusermount_options *options, int *ret_dev_fd, struct err *e)
{
	char said[TEXT_MAX];
	int comm[2] = { -1, -1 };
	int words[2] = { -1, -1 };
	pid_t pid = -1;
	int fd = -1;
	int got = 0;
	int r = 0;

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, comm) != 0 ||
		pipe2(words, O_CLOEXEC | O_NONBLOCK) != 0)
		r = err_set(e, err_errno(), "no descriptors for fusermount3: %m");
	if (r == 0)
		r = spawn(options, comm[1], words[1], &pid, e);
	cleanup_close(&comm[1]);
	cleanup_close(&words[1]);
	if (r == 0) {
		got = receive(comm[0], clock_mono_ns() + MOUNT_DEADLINE, &fd);
		if (got == -ETIMEDOUT) {
			(void)kill(pid, SIGKILL); /* it must not mount later, when nobody waits */
			(void)waitpid(pid, NULL, WNOHANG); /* it may hang in the kernel */
			r = err_set(e, got,
				"fusermount3 does not end: check whether the mount point's "
				"filesystem hangs");
		} else if (waitpid(pid, NULL, 0) < 0)
			log_debug("fusermount3 not waited for", "cause=%s", err_name(err_errno()));
	}
	if (r == 0 && got < 0) {
		read_said(words[0], said);
		r = refused(said, e);
	}
	cleanup_close(&comm[0]);
	cleanup_close(&words[0]);
	if (r == 0)
		*ret_dev_fd = fd;
	return r;
}
