/* See guard.h. */
#include "fuse/guard.h"
#include "base/detach.h"
#include "base/log.h"
#include "fuse/kernel.h"

#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define STACKED 2 /* mounts of ours at one point: while one takes the other's place */

struct watch {
	const char *mountpoint;
	dev_t before;                         /* what lay there at the start */
	const struct detach_program *command; /* NULL: none */
};

/* True when the other end closed; false when it said that it does not need us. */
static bool await_end(int fd)
{
	char byte;
	ssize_t n;

	do {
		n = read(fd, &byte, 1);
	} while (n < 0 && errno == EINTR);
	return n == 0;
}

/* Only system calls: other threads' locks were copied as they were. */
_Noreturn static void guard_main(int fd, const struct watch *watch)
{
	static char *const envp[] = { NULL };
	dev_t dev = 0;

	/* A signal to all of our processes is about them: we come into our own afterwards. */
	(void)setsid();
	for (int i = 1; i < NSIG; i++)
		(void)signal(i, i == SIGCHLD ? SIG_DFL : SIG_IGN);
	(void)dup2(fd, STDIN_FILENO);
	(void)close_range(1, UINT_MAX, 0); /* the connection above all must end without us */
	(void)open("/dev/null", O_WRONLY);
	(void)open("/dev/null", O_WRONLY);
	if (chdir("/") != 0 || !await_end(STDIN_FILENO))
		_exit(0);
	for (int i = 0; i < STACKED; i++) {
		if (kernel_dev(AT_FDCWD, watch->mountpoint, &dev) < 0 || dev == watch->before)
			_exit(0);
		if (umount2(watch->mountpoint, MNT_DETACH | UMOUNT_NOFOLLOW) != 0)
			break;
	}
	if (watch->command)
		(void)execve(watch->command->path, watch->command->argv, envp);
	_exit(0);
}

int guard_start(struct guard *guard, const char *mountpoint, struct err *e)
{
	struct detach_program command;
	struct watch watch = { .mountpoint = mountpoint };
	int ends[2];
	pid_t pid;
	int r = kernel_dev(AT_FDCWD, mountpoint, &watch.before);

	if (r < 0)
		return err_set(
			e, r, "the mount point %s cannot be used: %s", mountpoint, err_str(r));
	if (detach_program(mountpoint, true, &command) == 0)
		watch.command = &command;
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
		return err_set(e, err_errno(), "no descriptors: %m");
	pid = fork();
	if (pid == 0)
		guard_main(ends[0], &watch);
	(void)close(ends[0]); /* the guard's */
	if (pid < 0) {
		r = err_set(e, err_errno(), "the mount's watchdog cannot be started: %m");
		(void)close(ends[1]); /* nobody reads */
		return r;
	}
	guard->pid = pid;
	guard->fd = ends[1];
	return 0;
}

void guard_dismiss(struct guard *guard)
{
	if (guard->pid <= 0)
		return;
	if (send(guard->fd, "x", 1, MSG_NOSIGNAL) != 1)
		log_debug("guard gone", "cause=%s", err_name(err_errno())); /* nothing to dismiss */
	(void)close(guard->fd);
	while (waitpid(guard->pid, NULL, 0) < 0 && errno == EINTR)
		;
	guard->pid = 0;
}
