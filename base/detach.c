/* Taking a mount off. See detach.h. */
#include "base/detach.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/programs.h"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/openat2.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#define DETACH_NS (10 * CLOCK_SECOND)

/* ---- connection ------------------------------------------------------------------------------ */

/* Number of the FUSE connection behind descriptor `name` of /proc/PID/fd, from its fdinfo (Linux
 * 6.16); -1: not known. */
static int connection_of_fd(pid_t pid, const char *name)
{
	_cleanup_fclose_ FILE *f = NULL;
	char info[PATH_MAX];
	char line[128];

	(void)snprintf(info, sizeof(info), "/proc/%d/fdinfo/%s", (int)pid, name); /* fits */
	f = fopen(info, "re");
	while (f && fgets(line, sizeof(line), f))
		if (strncmp(line, "fuse_connection:", 16) == 0)
			return (int)strtol(line + 16, NULL, 10);
	return -1;
}

static int connection_of(pid_t pid)
{
	char path[64];
	char link[32];
	const struct dirent *entry;
	int found = -1;
	DIR *dir;

	(void)snprintf(path, sizeof(path), "/proc/%d/fd", (int)pid); /* fits */
	dir = pid > 0 ? opendir(path) : NULL;
	while (dir && found < 0 && (entry = readdir(dir))) {
		ssize_t n = readlinkat(dirfd(dir), entry->d_name, link, sizeof(link) - 1);

		if (n == 9 && memcmp(link, "/dev/fuse", 9) == 0)
			found = connection_of_fd(pid, entry->d_name);
	}
	if (dir)
		(void)closedir(dir); /* read only */
	return found;
}

/* The control file system, attached nowhere: not every machine has it at its usual place. */
static int mount_control(void)
{
	_cleanup_close_ int fs = fsopen("fusectl", FSOPEN_CLOEXEC);

	if (fs < 0 || fsconfig(fs, FSCONFIG_CMD_CREATE, NULL, NULL, 0) != 0)
		return -1;
	return fsmount(fs, FSMOUNT_CLOEXEC, 0);
}

void detach_abort(unsigned int connection)
{
	char path[64];
	_cleanup_close_ int root = open("/sys/fs/fuse/connections", O_PATH | O_CLOEXEC);
	_cleanup_close_ int own = -1;
	_cleanup_close_ int fd = -1;

	(void)snprintf(path, sizeof(path), "%u/abort", connection); /* fits */
	if (root >= 0)
		fd = openat(root, path, O_WRONLY | O_CLOEXEC);
	if (fd < 0) {
		own = mount_control();
		if (own >= 0)
			fd = openat(own, path, O_WRONLY | O_CLOEXEC);
	}
	if (fd >= 0 && write(fd, "1", 1) < 0)
		return; /* gone already */
}

void detach_cut_connection(pid_t pid)
{
	int number = connection_of(pid);

	if (number >= 0)
		detach_abort((unsigned int)number);
}

/* ---- helper ---------------------------------------------------------------------------------- */

/* Is the topmost mount at `name` that one? True where the kernel does not say (before Linux 5.8). Asks no file system. */
static bool is_mount(const char *name, int mount_id)
{
	struct statx stx;

	return statx(AT_FDCWD, name, AT_SYMLINK_NOFOLLOW | AT_STATX_DONT_SYNC, STATX_MNT_ID,
		       &stx) != 0 ||
	       !(stx.stx_mask & STATX_MNT_ID) || stx.stx_mnt_id == (uint64_t)mount_id;
}

int detach_here(const char *point, int flags, int mount_id)
{
	const struct open_how how = { .flags = O_PATH | O_DIRECTORY | O_CLOEXEC,
		.resolve = RESOLVE_NO_SYMLINKS };
	const char *name = strrchr(point, '/');
	char parent[PATH_MAX];
	int fd;

	if (!name || !name[1] || (size_t)(name - point) >= sizeof(parent))
		return -EINVAL;
	memcpy(parent, point, (size_t)(name - point) + 1);
	parent[name == point ? 1 : name - point] = '\0';
	fd = (int)syscall(SYS_openat2, AT_FDCWD, parent, &how, sizeof(how));
	/* Whatever else refuses it, umount2(2) of the path would follow a link that is put there next. */
	if (fd < 0 && errno != ENOSYS)
		return errno == EPERM && geteuid() == 0 ? -EACCES : err_errno();
	if (fd >= 0 && fchdir(fd) != 0)
		return err_errno();
	name = fd < 0 ? point : name + 1; /* an old kernel */
	if (mount_id && !is_mount(name, mount_id))
		return -ESTALE;
	return umount2(name, flags | UMOUNT_NOFOLLOW) == 0 ? 0 : err_errno();
}

_Noreturn static void detach_self(const char *point, bool lazy)
{
	int r;

	/* Should it hang, it must keep neither the cache's lock nor another mount's connection. */
	(void)close_range(STDERR_FILENO + 1, UINT_MAX, 0);
	r = detach_here(point, lazy ? MNT_DETACH : 0, 0);
	_exit(r == -EINVAL ? 0 : -r & 0x7f); /* EINVAL: nothing is mounted there */
}

_Noreturn static void detach_by_program(const char *program, const char *point, bool lazy, int out)
{
	int null = open("/dev/null", O_RDWR | O_CLOEXEC);

	(void)dup2(null, STDIN_FILENO);
	(void)dup2(null, STDOUT_FILENO);
	(void)dup2(out, STDERR_FILENO);
	(void)execl(program, "fusermount3", lazy ? "-uz" : "-u", "--", point, (char *)NULL);
	_exit(127);
}

/* Its exit status; -ETIMEDOUT: it hangs. */
static int await_helper(pid_t pid)
{
	uint64_t deadline = clock_mono_ns() + DETACH_NS;
	int status = 0;

	while (waitpid(pid, &status, WNOHANG) == 0) {
		if (clock_mono_ns() > deadline) {
			(void)kill(pid, SIGKILL); /* one that hangs in the kernel stays */
			return -ETIMEDOUT;
		}
		clock_sleep_ns(5 * CLOCK_MS);
	}
	return WIFEXITED(status) ? WEXITSTATUS(status) : 127;
}

static int hangs(const char *point, struct err *e)
{
	return err_set(e, -ETIMEDOUT,
		"%s cannot be unmounted: a read of it hangs in the kernel: end its readers", point);
}

static int detach_privileged(const char *point, bool lazy, struct err *e)
{
	pid_t pid = fork();
	int status;

	if (pid == 0)
		detach_self(point, lazy);
	if (pid < 0)
		return err_set(e, err_errno(),
			"no process can be started: %m: raise the limit of processes (ulimit -u)");
	status = await_helper(pid);
	if (status == -ETIMEDOUT)
		return hangs(point, e);
	if (status == EBUSY)
		return err_set(e, -EBUSY,
			"%s is in use: end the processes that use it (fuser -vm %s), or add "
			"--lazy or --force",
			point, point);
	if (status != 0)
		return err_set(e, -status, "%s cannot be unmounted: %s: try --force", point,
			err_str(-status));
	return 0;
}

/* The last line that fusermount3 wrote, without its name. */
static const char *last_words(int fd, char *out, size_t size)
{
	ssize_t n = read(fd, out, size - 1);
	const char *words = out;
	char *newline;

	out[n > 0 ? n : 0] = '\0';
	newline = strchr(out, '\n');
	if (newline)
		*newline = '\0';
	if (strncmp(words, "fusermount", 10) == 0 && strstr(words, ": "))
		words = strstr(words, ": ") + 2;
	return *words ? words : "fusermount3 printed no reason";
}

static int detach_unprivileged(const char *point, bool lazy, struct err *e)
{
	char program[PATH_MAX];
	char text[512];
	const char *words;
	int ends[2];
	int status;
	pid_t pid;

	if (!programs_fusermount(program))
		return err_set(e, -EPERM,
			"unmounting %s needs root, or fusermount3, which is not installed: run "
			"with sudo, or install fuse3",
			point);
	if (pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0)
		return err_set(e, err_errno(),
			"no descriptors: %m: raise the limit of open files (ulimit -n)");
	pid = fork();
	if (pid == 0)
		detach_by_program(program, point, lazy, ends[1]);
	(void)close(ends[1]); /* the helper's */
	status = pid > 0 ? await_helper(pid) : 127;
	words = last_words(ends[0], text, sizeof(text));
	(void)close(ends[0]); /* read only */
	if (status == -ETIMEDOUT)
		return hangs(point, e);
	if (status == 0)
		return 0;
	if (strstr(words, "busy"))
		return err_set(e, -EBUSY,
			"%s is in use: end the processes that use it (fuser -vm %s), or add "
			"--lazy or --force",
			point, point);
	return err_set(e, -EPERM, "%s cannot be unmounted: %s: run with sudo", point, words);
}

int detach_covered(const char *point, const struct mount_entry *top, struct err *e)
{
	return err_set(e, -EBUSY,
		"%s is covered by another mount (type %s, source %.200s): unmount that first with "
		"`%sumount %s`",
		point, top->type, top->source, mount_entry_ours(top) ? "cachectl " : "",
		top->point);
}

int detach_mount(const char *point, bool lazy, struct err *e)
{
	int r = detach_privileged(point, lazy, e);

	return r == -EPERM ? detach_unprivileged(point, lazy, e) : r;
}
