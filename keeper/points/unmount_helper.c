/* See unmount_helper.h. */
#include "keeper/points/unmount_helper.h"
#include "base/backoff.h"
#include "base/cleanup.h"
#include "base/buf.h"
#include "base/clock.h"
#include "base/crash_point.h"
#include "base/detach.h"
#include "base/file.h"
#include "base/log.h"
#include "base/mount_table.h"
#include "mount/kernel/kernel.h"
#include "mount/slots.h"
#include "keeper/points/users.h"

#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/pidfd.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <unistd.h>

#define DETACH_NS (10 * CLOCK_SECOND)
#define LOOK_NS \
	(5 * CLOCK_MS) /* between looks at the list of mounts, which is long on some hosts */
#define REFUSE_NS (2 * CLOCK_SECOND) /* for the daemon to answer what it has */
#define GRACE_MS  100 /* for readers to see EIO, and for what the kernel ends a moment later */
#define END_MS \
	1000 /* for the end of what only a mount elsewhere can still use: on a busy machine the kernel is late */
/* For what has the mount for a moment only: a path lookup, also in a namespace that a container's start copied. */
#define BUSY_NS (500 * CLOCK_MS)

int unmount_mode_of(const char *name, enum unmount_mode *ret)
{
	static const char *const names[] = {
		[UNMOUNT_NORMAL] = "normal", [UNMOUNT_LAZY] = "lazy", [UNMOUNT_FORCE] = "force"
	};

	for (unsigned int i = 0; i < ARRAY_SIZE(names); i++) {
		if (strcmp(name, names[i]) != 0)
			continue;
		*ret = (enum unmount_mode)i;
		return 0;
	}
	return -EINVAL;
}

/* ---- the helper ------------------------------------------------------------------------------ */

void unmount_helper_leave(struct detach_helper *helper)
{
	if (!helper->pid)
		return;
	kernel_detach_left(helper->pid);
	detach_drop(helper);
}

/* ---- unmount --------------------------------------------------------------------------------- */

static bool is_attached(const struct unmount *u)
{
	struct mount_entry entry;
	int r = u->mount_id ? mount_table_find_id(u->mount_id, &entry)
			    : mount_table_find_at(u->path, u->dev, &entry);

	return r != -ENOENT && (r < 0 || makedev(entry.dev_major, entry.dev_minor) == u->dev);
}

int unmount_busy(const char *path, const char *users, struct err *e)
{
	return err_set(e, -EBUSY,
		"%s is in use by %s: end these processes, or unmount with --lazy (they read on) "
		"or --force (they get EIO)",
		path, users);
}

/* `users`: the processes that use it; "": none is found. */
static int fail(
	const struct unmount *u, int r, const char *users, const struct err *words, struct err *e)
{
	if (r == -EBUSY && users[0])
		return unmount_busy(u->path, users, e);
	if (r == -EBUSY)
		return err_set(e, r,
			"%s is in use, by %sa mount below it or in another mount namespace: "
			"unmount with --lazy",
			u->path, geteuid() == 0 ? "" : "another user's process, ");
	if (r == -ESTALE)
		return err_set(e, r, "another mount is at %s now", u->path);
	if (r == -ETIMEDOUT)
		return err_set(e, r,
			"%s cannot be unmounted: the kernel does not release it: kill the "
			"processes that use it",
			u->path);
	if (r == -EPERM && !words->text[0])
		return err_set(e, r,
			"%s cannot be unmounted: only root may, and fusermount3 is not installed: "
			"install the package fuse3",
			u->path);
	return err_set(e, r, "%s cannot be unmounted: %s: try --force", u->path,
		words->text[0] ? words->text : err_str(r));
}

/* Requests of the kernel get EIO from now on. A daemon that does not is cut off afterwards. */
static void refuse(const struct unmount *u)
{
	if (u->daemon >= 0)
		(void)pidfd_send_signal(u->daemon, SIGUSR2, NULL, 0); /* it may have ended */
}

/* One attempt. The helper's result, or 0 as soon as the mount is off. */
static int attempt(
	const struct unmount *u, struct detach_helper *helper, uint64_t deadline, struct err *words)
{
	uint64_t look = clock_mono_ns() + LOOK_NS;
	int r = detach_start(u->path, u->mode != UNMOUNT_NORMAL, u->mount_id, helper);

	if (r < 0)
		return err_set(words, r, "no process to unmount with: %s", err_str(r));
	for (;;) {
		uint64_t now = clock_mono_ns();

		r = detach_look(helper, words);
		if (r != -EINPROGRESS)
			return r;
		if (now >= look && !is_attached(u))
			return 0;
		if (now >= look)
			look = now + LOOK_NS;
		if (now >= deadline)
			return -ETIMEDOUT;
		clock_sleep_ns(CLOCK_MS);
	}
}

int unmount_detach(const struct unmount *u, struct detach_helper *helper, struct err *e)
{
	uint64_t busy_until = clock_mono_ns() + BUSY_NS;
	uint64_t deadline = clock_mono_ns() + DETACH_NS;
	struct backoff backoff = { .min_ns = LOOK_NS, .max_ns = BUSY_NS };

	for (;;) {
		struct err words = ERR_INIT;
		char users[512] = "";
		int r = attempt(u, helper, deadline, &words);

		if (r == 0 && u->mount_id == 0 && is_attached(u))
			continue; /* what a switch had left above it was unmounted */
		if (r == 0)
			return 0;
		if (r == -EBUSY)
			(void)users_of(u->dev, (uint64_t)u->mount_id, users, sizeof(users));
		if (r != -EBUSY || users[0] || clock_mono_ns() >= busy_until)
			return fail(u, r, users, &words, e);
		clock_sleep_ns(backoff_next(&backoff));
	}
}

int unmount_old(int fd, dev_t ret_old[SLOTS_OLD_MAX])
{
	const struct slots_switch *s;
	struct slots *slots = NULL;
	int r = fd < 0 ? -EBADF : slots_open(fd, &slots, NULL);
	int n = 0;

	if (r < 0)
		return r;
	s = slots_switch(slots);
	for (uint32_t i = 0; i < SLOTS_OLD_MAX; i++)
		if (s->old[i].dev != 0 && kernel_superblock_lives(s->old[i].number))
			ret_old[n++] = (dev_t)s->old[i].dev;
	slots_free(slots);
	return n;
}

/* True where it is not known. */
static bool serves_old(const struct unmount *u)
{
	dev_t old[SLOTS_OLD_MAX];

	return unmount_old(u->slots, old) != 0;
}

/* The kernel ends the file system, which nothing shows, and of which nothing is open: only READs of processes that were killed, and
 * read-ahead, hold it up. Where the kernel does not tell, they are waited for. */
static bool ends_superblock(pid_t pid)
{
	_cleanup_(buf_release) struct buf stack = BUF_INIT(16384);
	char path[64];

	(void)snprintf(path, sizeof(path), "/proc/%d/stack", (int)pid); /* fits */
	return file_read_all(path, &stack) == 0 &&
	       strstr(buf_str(&stack), "generic_shutdown_super") != NULL;
}

static bool is_ended(const struct unmount *u, int ms)
{
	struct pollfd p = { .fd = u->connection };

	return !kernel_is_fuse(u->connection) || (poll(&p, 1, ms) == 1 && p.revents & POLLERR);
}

static bool has_requests(struct slots *slots)
{
	for (uint32_t i = 0; i < slots_count(slots); i++)
		if (slot_len(slots, i) != 0)
			return true;
	return false;
}

/* Readers see EIO, and not what the kernel makes of a connection that is cut. */
static void await_refused(const struct unmount *u)
{
	uint64_t deadline = clock_mono_ns() + REFUSE_NS;
	struct slots *slots = NULL;

	if (u->slots < 0 || slots_open(u->slots, &slots, NULL) < 0)
		return;
	while (!is_ended(u, 0) && has_requests(slots) && clock_mono_ns() < deadline)
		clock_sleep_ns(CLOCK_MS);
	slots_free(slots);
}

static void cut(const struct unmount *u)
{
	int r = u->fuse_dev && !is_ended(u, 0) ? kernel_abort(u->fuse_dev) : 0;

	/* An ordinary user's way to it is often not mounted. */
	if (r < 0)
		log_warn("connection not cut",
			"mountpoint=\"%s\" error=%s next=\"it ends with its last descriptor\"",
			u->path, err_name(r));
}

void unmount_finish(const struct unmount *u, struct detach_helper *helper)
{
	uint64_t deadline = clock_mono_ns() + DETACH_NS;
	bool refused = false;

	if (u->mode == UNMOUNT_FORCE && u->last) {
		CRASH_POINT("unmount.detached");
		refuse(u); /* not before it is detached: a mount that stays is served */
		await_refused(u);
		if (!is_ended(u, GRACE_MS))
			cut(u);
	}
	while (helper->pid && detach_look(helper, NULL) == -EINPROGRESS) {
		bool late = clock_mono_ns() >= deadline;

		if (!refused && ends_superblock(helper->pid) && !serves_old(u)) {
			refuse(u);
			refused = true;
		}
		if (late && refused) {
			log_warn("unmount is stuck",
				"mountpoint=\"%s\" next=\"cutting the connection\"", u->path);
			cut(u);
		}
		if (late)
			return; /* waited for by the next call */
		clock_sleep_ns(CLOCK_MS);
	}
}

bool unmount_ended(const struct unmount *u, const struct detach_helper *helper)
{
	return is_ended(u, helper->pid || serves_old(u) ? GRACE_MS : END_MS);
}
