/* The end of a mount. See mounted.h. */
#include "base/clock.h"
#include "base/log.h"
#include "fuse/kernel.h"
#include "fuse/mounted_internal.h"
#include "fuse/users.h"

#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

#define UMOUNT_DEADLINE (10 * CLOCK_SECOND)
#define ABORT_DEADLINE  (10 * CLOCK_SECOND)
#define GONE_DEADLINE   (5 * CLOCK_SECOND)
#define FORCE_GRACE     (100 * CLOCK_MS)

static bool await_gone(struct mounted *m, uint64_t ns)
{
	uint64_t deadline = clock_mono_ns() + ns;

	while (!session_gone(m->session)) {
		if (clock_mono_ns() > deadline)
			return false;
		clock_sleep_ns(2 * CLOCK_MS);
	}
	return true;
}

/* ---- the helper ------------------------------------------------------------------------------ */

/* A process that unmounts: it may wait in the kernel for ever. */
struct helper {
	pid_t pid;
	int said; /* a pipe: what fusermount3 says; nothing from umount2() */
};

/* Only system calls: other threads' locks were copied as they were. */
_Noreturn static void helper_main(
	const char *mountpoint, int flags, const struct fusermount_command *command, int said)
{
	static char *const envp[] = { (char *)(uintptr_t) "LC_ALL=C", NULL };

	(void)dup2(said, STDERR_FILENO);
	(void)close_range(STDERR_FILENO + 1, UINT_MAX, 0); /* must not keep the connection alive */
	(void)close(STDIN_FILENO);
	(void)close(STDOUT_FILENO);
	if (umount2(mountpoint, flags | UMOUNT_NOFOLLOW) == 0)
		_exit(0);
	if (errno != EPERM || !command)
		_exit(errno & 0xff);
	(void)open("/dev/null", O_RDONLY); /* the two lowest numbers */
	(void)open("/dev/null", O_WRONLY);
	(void)execve(command->program, command->argv, envp);
	_exit(errno & 0xff);
}

static int start_helper(const struct mounted *m, int flags, struct helper *ret)
{
	struct fusermount_command command;
	bool have =
		fusermount_unmount_command(m->config.mountpoint, flags & MNT_DETACH, &command) == 0;
	int said[2];
	pid_t pid;

	if (pipe2(said, O_CLOEXEC | O_NONBLOCK) != 0)
		return err_errno();
	pid = fork();
	if (pid == 0)
		helper_main(m->config.mountpoint, flags, have ? &command : NULL, said[1]);
	(void)close(said[1]); /* the helper's */
	if (pid < 0) {
		int r = err_errno();

		(void)close(said[0]); /* read only */
		return r;
	}
	*ret = (struct helper){ .pid = pid, .said = said[0] };
	return 0;
}

/* How it ended; fusermount3 has one status for every failure, and says the rest. */
static int helper_result(const struct helper *helper, int status, struct err *e)
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

/*
 * Its errno, or -ETIMEDOUT while it still runs at the deadline. Once the mount is off the mount
 * point nobody can want a READ any more; those of readers that were killed, or of read-ahead, would
 * hold the helper up.
 */
static int await_helper(struct mounted *m, const struct helper *helper, uint64_t ns, struct err *e)
{
	uint64_t deadline = clock_mono_ns() + ns;
	bool refusing = !m->session;
	int status = 0;

	for (;;) {
		pid_t got = waitpid(helper->pid, &status, WNOHANG);

		if (got == helper->pid)
			return helper_result(helper, status, e);
		if (got < 0 && errno != EINTR)
			return err_errno();
		if (!refusing && !mounted_is_attached(m)) {
			session_refuse(m->session, true);
			refusing = true;
		}
		if (clock_mono_ns() > deadline)
			return -ETIMEDOUT;
		clock_sleep_ns(CLOCK_MS);
	}
}

/* Cuts the connection if it is still ours: its number may be somebody else's once it is gone. */
static int cut_connection(struct mounted *m)
{
	struct pollfd dev = { .fd = m->config.dev_fd };

	if (!m->session || session_gone(m->session) ||
		(poll(&dev, 1, 0) == 1 && dev.revents & POLLERR))
		return 0;
	return kernel_abort((dev_t)slots_mount(m->config.slots)->fuse_dev);
}

/*
 * By umount2(), or by fusermount3 for who may not: in a process of its own, since with a READ that
 * nobody answers it would wait in the kernel for ever, deaf to signals. At the deadline the
 * connection is cut, which answers everything. `e` is set when there are words for the failure.
 */
static int unmount_helped(struct mounted *m, int flags, struct err *e)
{
	struct helper helper = { .said = -1 };
	int r = start_helper(m, flags, &helper);

	if (r < 0)
		return r;
	r = await_helper(m, &helper, UMOUNT_DEADLINE, e);
	if (r == -ETIMEDOUT) {
		log_warn("unmount is stuck", "mountpoint=\"%s\" next=\"cutting the connection\"",
			m->config.mountpoint);
		r = cut_connection(m);
		if (r < 0)
			log_error("connection not cut", "error=%s", err_name(r));
		r = await_helper(m, &helper, ABORT_DEADLINE, e);
	}
	(void)close(helper.said); /* read only */
	return r;
}

/* ---- what is said ---------------------------------------------------------------------------- */

static int busy_line(struct mounted *m, struct err *e)
{
	char users[512];
	dev_t dev = (dev_t)slots_mount(m->config.slots)->point_dev;

	if (users_of(dev, users, sizeof(users)) > 0)
		return err_set(e, -EBUSY, "%s is in use by %s: end them, or unmount with --force",
			m->config.mountpoint, users);
	return err_set(e, -EBUSY,
		"%s is in use, by %sa mount below it or in another mount namespace: unmount with "
		"--force",
		m->config.mountpoint, geteuid() == 0 ? "" : "another user's process, ");
}

/* Files that were open before a switch: what the mount point shows does not count them. */
static int old_in_use(struct mounted *m, struct err *e)
{
	const struct slots_switch *s = slots_switch(m->config.slots);
	char users[512];

	for (uint32_t i = 0; i < SLOTS_OLD_MAX; i++)
		if (s->old[i].dev != 0 && kernel_superblock_lives(s->old[i].number) &&
			users_of((dev_t)s->old[i].dev, users, sizeof(users)) > 0)
			return err_set(e, -EBUSY,
				"%s is in use by %s: end them, or unmount with --force",
				m->config.mountpoint, users);
	return 0;
}

static int unmount_error(struct mounted *m, int r, const struct err *words, struct err *e)
{
	if (r == -ETIMEDOUT)
		return err_set(e, r,
			"%s cannot be unmounted: the kernel does not let go of it: kill the "
			"processes that use it",
			m->config.mountpoint);
	if (r == -EPERM && !words->text[0])
		return err_set(e, r,
			"%s cannot be unmounted: only root may, and fusermount3 is not installed: "
			"install the package fuse3",
			m->config.mountpoint);
	return err_set(e, r, "%s cannot be unmounted: %s: try --force", m->config.mountpoint,
		words->text[0] ? words->text : err_str(r));
}

/* ---- unmount --------------------------------------------------------------------------------- */

/* The mount point does not show what is ours: unmounted by hand, or covered. */
static int unmount_detached(struct mounted *m, bool force, struct err *e)
{
	if (await_gone(m, GONE_DEADLINE) || force)
		return 0;
	return busy_line(m, e);
}

/* The kernel looks whether it is idle and takes it off in one step: nobody who comes in between
 * gets an error. */
static int unmount_when_idle(struct mounted *m, struct err *e)
{
	struct err words = ERR_INIT;
	int r = old_in_use(m, e);

	if (r < 0)
		return r;
	r = unmount_helped(m, 0, &words);
	if (r == -EBUSY)
		return busy_line(m, e);
	return r < 0 ? unmount_error(m, r, &words, e) : 0;
}

int mounted_detach(struct mounted *m, struct err *e)
{
	struct err words = ERR_INIT;
	int r = unmount_helped(m, MNT_DETACH, &words);

	if (r == 0 && slots_switch(m->config.slots)->next.dev != 0 && mounted_is_attached(m))
		r = unmount_helped(m, MNT_DETACH, &words); /* a switch was cut off */
	return r < 0 ? unmount_error(m, r, &words, e) : 0;
}

static int unmount_by_force(struct mounted *m, struct err *e)
{
	session_refuse(m->session, true);
	return mounted_detach(m, e);
}

/* It is off the mount point; what still holds on to the connection loses it. */
static void end_connection(struct mounted *m, bool force)
{
	int r;

	/* By force too: who gets EIO and closes his files sees nothing stranger. */
	if (await_gone(m, force ? FORCE_GRACE : GONE_DEADLINE))
		return;
	if (!force)
		log_warn("still mounted elsewhere",
			"mountpoint=\"%s\" next=\"its readers get EIO\"", m->config.mountpoint);
	r = cut_connection(m);
	if (r < 0 && r != -ENOENT) {
		/* An ordinary user's way to it is often not mounted. Until then all READs fail. */
		log_warn("connection not cut", "error=%s next=\"it ends with its last descriptor\"",
			err_name(r));
		return;
	}
	(void)await_gone(m, GONE_DEADLINE); /* else its readers hold it, with EIO */
}

int mounted_unmount(struct mounted *m, bool force, struct err *e)
{
	int r;

	CHECK_MAGIC(m, MOUNTED_MAGIC);
	pthread_mutex_lock(&m->unmounting);
	/* By force: what is still beneath is detached with it. */
	r = mounted_switch_end(m, e);
	if (r < 0 && !force) {
		pthread_mutex_unlock(&m->unmounting);
		return r;
	}
	if (session_gone(m->session))
		r = 0;
	else if (!mounted_is_attached(m))
		r = unmount_detached(m, force, e);
	else if (force)
		r = unmount_by_force(m, e);
	else
		r = unmount_when_idle(m, e);
	m->ended |= r == 0;
	if (r == 0)
		end_connection(m, force);
	else
		session_refuse(m->session, false); /* it goes on as before */
	pthread_mutex_unlock(&m->unmounting);
	return r;
}
