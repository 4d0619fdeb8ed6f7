/* The first opens. See learn.h. */
#include "fuse/learn.h"
#include "base/clock.h"
#include "base/err.h"

#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdbool.h>
#include <sys/wait.h>
#include <unistd.h>

#define DEADLINE (5 * CLOCK_SECOND)

static int open_once(int root, const char *path, int flags)
{
	int fd = openat(root, path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | flags);

	if (fd < 0)
		return errno;
	(void)close(fd); /* read only */
	return 0;
}

/* Only system calls: other threads' locks were copied as they were. */
_Noreturn static void learn_main(int root, const char *file)
{
	int status;

	(void)dup2(root, 0);
	(void)close_range(1, UINT_MAX, 0); /* must not keep the connection alive */
	status = open_once(0, ".", O_DIRECTORY);
	if (status == 0 && file)
		status = open_once(0, file, 0);
	_exit(status & 0xff);
}

int learn_to_open(int root, const char *file)
{
	uint64_t deadline = clock_mono_ns() + DEADLINE;
	bool late = false;
	int status = 0;
	pid_t pid = fork();

	if (pid < 0)
		return err_errno();
	if (pid == 0)
		learn_main(root, file);
	for (;;) {
		pid_t got = waitpid(pid, &status, WNOHANG);

		if (got == pid)
			break;
		if (got < 0 && errno != EINTR)
			return err_errno();
		if (!late && clock_mono_ns() > deadline) {
			late = true;
			(void)kill(pid, SIGKILL);
		}
		/* What the kernel handed over already is waited for, killed or not. */
		if (late && clock_mono_ns() > deadline + DEADLINE)
			return -ETIMEDOUT;
		clock_sleep_ns(CLOCK_MS / 4);
	}
	if (late)
		return -ETIMEDOUT;
	return WIFEXITED(status) ? -WEXITSTATUS(status) : -EIO;
}
