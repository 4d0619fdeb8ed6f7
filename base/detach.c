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

int detach_program(const char *point, bool lazy, struct detach_program *ret)
{
	if (!programs_fusermount(ret->path))
		return -ENOENT;
	if (snprintf(ret->point, sizeof(ret->point), "%s", point) >= (int)sizeof(ret->point))
		return -ENAMETOOLONG;
	ret->argv[0] = (char *)(uintptr_t) "fusermount3"; /* what it calls itself */
	ret->argv[1] = (char *)(uintptr_t)(lazy ? "-uz" : "-u");
	ret->argv[2] = (char *)(uintptr_t) "--";
	ret->argv[3] = ret->point;
	ret->argv[4] = NULL;
	return 0;
}

/* Only system calls: other threads' locks were copied as they were. */
_Noreturn static void helper_main(
	const char *point, int flags, int mount_id, const struct detach_program *program, int said)
{
	static char *const envp[] = { (char *)(uintptr_t) "LC_ALL=C", NULL };
	int r;

	(void)dup2(said, STDERR_FILENO);
	/* Should it hang, it must keep neither the cache's lock nor a connection. */
	(void)close_range(STDERR_FILENO + 1, UINT_MAX, 0);
	(void)close(STDIN_FILENO);
	(void)close(STDOUT_FILENO);
	r = detach_here(point, flags, mount_id);
	if (r != -EPERM || !program)
		_exit(-r & 0xff);
	(void)open("/dev/null", O_RDONLY); /* the two lowest numbers */
	(void)open("/dev/null", O_WRONLY);
	(void)execve(program->path, program->argv, envp);
	_exit(errno & 0xff);
}

int detach_start(const char *point, bool lazy, int mount_id, struct detach_helper *ret_helper)
{
	struct detach_program program;
	bool have = detach_program(point, lazy, &program) == 0;
	int said[2];
	pid_t pid;
	int r;

	if (pipe2(said, O_CLOEXEC | O_NONBLOCK) != 0)
		return err_errno();
	pid = fork();
	if (pid == 0)
		helper_main(
			point, lazy ? MNT_DETACH : 0, mount_id, have ? &program : NULL, said[1]);
	r = pid < 0 ? err_errno() : 0;
	(void)close(said[1]); /* the helper's */
	if (r == 0)
		*ret_helper = (struct detach_helper){ .pid = pid, .said = said[0] };
	else
		(void)close(said[0]); /* read only */
	return r;
}

const char *detach_words(char *said)
{
	const char *colon;

	said[strcspn(said, "\n")] = '\0';
	colon = strncmp(said, "fusermount", 10) == 0 ? strstr(said, ": ") : NULL;
	return colon ? colon + 2 : said;
}

int detach_errno(const char *said)
{
	if (strstr(said, "busy"))
		return -EBUSY;
	if (strstr(said, "not found in") || strstr(said, "Invalid argument") ||
		strstr(said, "not mounted"))
		return -EINVAL;
	if (strstr(said, "not permitted") || strstr(said, "ermission"))
		return -EPERM;
	return -EIO;
}

/* How it ended; fusermount3 has one status for every failure, and says the rest. */
static int result(const struct detach_helper *helper, int status, struct err *e)
{
	char said[256];
	ssize_t n = read(helper->said, said, sizeof(said) - 1);

	if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
		return 0;
	if (n > 0) {
		said[n] = '\0';
		return err_set(e, detach_errno(said), "%s", detach_words(said));
	}
	return WIFEXITED(status) ? -WEXITSTATUS(status) : -EIO;
}

void detach_drop(struct detach_helper *helper)
{
	(void)close(helper->said); /* read only */
	helper->pid = 0;
}

int detach_look(struct detach_helper *helper, struct err *e)
{
	int status = 0;
	pid_t got = waitpid(helper->pid, &status, WNOHANG);
	int r;

	if (got == 0 || (got < 0 && errno == EINTR))
		return -EINPROGRESS;
	r = got < 0 ? err_errno() : result(helper, status, e);
	detach_drop(helper);
	return r;
}

/* ---- with a deadline --------------------------------------------------------------------------- */

static int fail(const char *point, int r, const struct err *words, struct err *e)
{
	if (r == -EINVAL)
		return 0; /* nothing is mounted there */
	if (r == -ETIMEDOUT)
		return err_set(e, -ETIMEDOUT,
			"%s cannot be unmounted: a read of it hangs in the kernel: end its readers",
			point);
	if (r == -EBUSY)
		return err_set(e, -EBUSY,
			"%s is in use: end the processes that use it (fuser -vm %s), or add "
			"--lazy or --force",
			point, point);
	if (words->text[0])
		return err_set(
			e, -EPERM, "%s cannot be unmounted: %s: run with sudo", point, words->text);
	if (r == -EPERM)
		return err_set(e, -EPERM,
			"unmounting %s needs root, or fusermount3, which is not installed: run "
			"with sudo, or install fuse3",
			point);
	return err_set(e, r, "%s cannot be unmounted: %s: try --force", point, err_str(r));
}

int detach_mount(const char *point, bool lazy, struct err *e)
{
	uint64_t deadline = clock_mono_ns() + DETACH_NS;
	struct detach_helper helper = { 0 };
	struct err words = ERR_INIT;
	int r = detach_start(point, lazy, 0, &helper);

	if (r < 0)
		return err_set(e, r,
			"no process can be started: %s: raise the limit of processes (ulimit -u)",
			err_str(r));
	while ((r = detach_look(&helper, &words)) == -EINPROGRESS) {
		if (clock_mono_ns() > deadline) {
			(void)kill(helper.pid, SIGKILL); /* one that hangs in the kernel stays */
			detach_drop(&helper);
			r = -ETIMEDOUT;
			break;
		}
		clock_sleep_ns(5 * CLOCK_MS);
	}
	return r == 0 ? 0 : fail(point, r, &words, e);
}

int detach_covered(const char *point, const struct mount_entry *top, struct err *e)
{
	return err_set(e, -EBUSY,
		"%s is covered by another mount (type %s, source %.200s): unmount that first with "
		"`%sumount %s`",
		point, top->type, top->source, mount_entry_ours(top) ? "cachectl " : "",
		top->point);
}
