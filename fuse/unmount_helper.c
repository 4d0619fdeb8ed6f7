/* See unmount_helper.h. */
#include "fuse/unmount_helper.h"
#include "base/cleanup.h"
#include "base/detach.h"
#include "base/file.h"
#include "fuse/fusermount.h"
#include "fuse/users.h"

#include <fcntl.h>
#include <limits.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <unistd.h>

/* Only system calls: other threads' locks were copied as they were. */
_Noreturn static void helper_main(const char *mountpoint, int flags, int mount_id,
	const struct fusermount_command *command, int said)
{
	static char *const envp[] = { (char *)(uintptr_t) "LC_ALL=C", NULL };
	int r;

	(void)dup2(said, STDERR_FILENO);
	(void)close_range(STDERR_FILENO + 1, UINT_MAX, 0); /* must not keep the connection alive */
	(void)close(STDIN_FILENO);
	(void)close(STDOUT_FILENO);
	r = detach_here(mountpoint, flags, mount_id);
	if (r != -EPERM || !command)
		_exit(-r & 0xff);
	(void)open("/dev/null", O_RDONLY); /* the two lowest numbers */
	(void)open("/dev/null", O_WRONLY);
	(void)execve(command->program, command->argv, envp);
	_exit(errno & 0xff);
}

int unmount_helper_start(
	const char *mountpoint, bool lazy, int mount_id, struct unmount_helper *ret_helper)
{
	struct fusermount_command command;
	bool have = fusermount_unmount_command(mountpoint, lazy, &command) == 0;
	int said[2];
	pid_t pid;

	if (pipe2(said, O_CLOEXEC | O_NONBLOCK) != 0)
		return err_errno();
	pid = fork();
	if (pid == 0)
		helper_main(mountpoint, lazy ? MNT_DETACH : 0, mount_id, have ? &command : NULL,
			said[1]);
	(void)close(said[1]); /* the helper's */
	if (pid < 0) {
		int r = err_errno();

		(void)close(said[0]); /* read only */
		return r;
	}
	*ret_helper = (struct unmount_helper){ .pid = pid, .said = said[0] };
	return 0;
}

/* How it ended; fusermount3 has one status for every failure, and says the rest. */
static int result(const struct unmount_helper *helper, int status, struct err *e)
{
	char said[FUSERMOUNT_TEXT];
	ssize_t n = read(helper->said, said, sizeof(said) - 1);

	if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
		return 0;
	if (n > 0) {
		said[n] = '\0';
		return err_set(e, fusermount_unmount_errno(said), "%s", fusermount_words(said));
	}
	return WIFEXITED(status) ? -WEXITSTATUS(status) : -EIO;
}

int unmount_helper_look(struct unmount_helper *helper, struct err *e)
{
	int status = 0;
	int r;
	pid_t got = waitpid(helper->pid, &status, WNOHANG);

	if (got == 0 || (got < 0 && errno == EINTR))
		return -EINPROGRESS;
	r = got < 0 ? err_errno() : result(helper, status, e);
	unmount_helper_leave(helper);
	return r;
}

void unmount_helper_leave(struct unmount_helper *helper)
{
	if (!helper->pid)
		return;
	(void)close(helper->said); /* read only */
	helper->pid = 0;
}

void unmount_target(const char *mountpoint, struct unmount_target *ret_target)
{
	_cleanup_close_ int fd = -1;
	struct statx stx;

	*ret_target = (struct unmount_target){ 0 };
	if (file_open_exact(mountpoint, &fd) < 0 ||
		statx(fd, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, STATX_MNT_ID, &stx) != 0)
		return;
	ret_target->dev = makedev(stx.stx_dev_major, stx.stx_dev_minor);
	if (stx.stx_mask & STATX_MNT_ID)
		ret_target->mount_id = stx.stx_mnt_id;
}

int unmount_busy(const char *mountpoint, const struct unmount_target *target, struct err *e)
{
	char users[512];

	if (users_of(target->dev, target->mount_id, users, sizeof(users)) > 0)
		return err_set(e, -EBUSY,
			"%s is in use by %s: end these processes, or unmount with --force",
			mountpoint, users);
	return err_set(e, -EBUSY,
		"%s is in use, by %sa mount below it or in another mount namespace: unmount with "
		"--force",
		mountpoint, geteuid() == 0 ? "" : "another user's process, ");
}
