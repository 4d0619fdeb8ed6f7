/*
 * Other programs in place of those that run, and no reader notices.
 *
 *	mounts	the old daemon stops taking requests (SIGUSR1); those it waits with stay in their slots,
 *		which the new one takes over together with the connection
 *	keeper	execve(2): the same process, so its children stay its children; descriptors are kept
 *		open over it, and a memfd says what they are
 */
#include "fuse/keeper.h"
#include "base/log.h"

#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/pidfd.h>

#define HAND_OVER_NS (2 * CLOCK_SECOND)  /* then it is killed, which loses nothing either */
#define SETTLE_NS    (10 * CLOCK_SECOND) /* until every daemon serves */
#define WORDS_MAX    64u

/* ---- mounts ---------------------------------------------------------------------------------- */

static int program_in(const char *dir, const char *name, char out[PATH_MAX], struct err *e)
{
	if (snprintf(out, PATH_MAX, "%s/%s", dir, name) >= PATH_MAX)
		return err_set(e, -ENAMETOOLONG, "the path of %s is too long", name);
	if (access(out, X_OK) != 0)
		return err_set(e, err_errno(),
			"%s cannot be run: %m; give the directory of the new programs", out);
	return 0;
}

int keeper_upgrade_mounts_locked(struct keeper *k, const char *dir, struct err *e)
{
	char program[PATH_MAX];
	int r = program_in(dir, "cachefuse", program, e);

	if (r < 0)
		return r;
	memcpy(k->cachefuse, program, sizeof(program));
	list_for_each (node, &k->mounts) {
		struct mount *mount = list_entry(node, struct mount, link);
		struct child *c = &mount->child;
		char *path = mount->state == MOUNT_ACTIVE ? strdup(program) : NULL;

		if (mount->state != MOUNT_ACTIVE)
			continue;
		if (!path)
			return err_set(e, -ENOMEM, "out of memory");
		free(c->args[0]);
		c->args[0] = path;
		if (c->state != CHILD_SERVING)
			continue; /* it is about to be started, or on its way: the next one is new */
		log_info("daemon is replaced", "name=%s program=\"%s\"", c->name, program);
		mount->handing = clock_mono_ns() + HAND_OVER_NS;
		(void)pidfd_send_signal(c->pidfd, SIGUSR1, NULL, 0); /* gone: seen by its pidfd */
	}
	return 0;
}

void mount_follow_hand_over(struct mount *mount)
{
	struct child *c = &mount->child;

	if (!mount->handing)
		return;
	if (child_running(c)) {
		if (clock_mono_ns() < mount->handing)
			return;
		log_warn("daemon does not hand over", "name=%s next=\"it is killed\"", c->name);
		(void)pidfd_send_signal(c->pidfd, SIGKILL, NULL, 0); /* gone: seen by its pidfd */
		mount->handing = clock_mono_ns() + HAND_OVER_NS;
		return;
	}
	mount->handing = 0;
	mount->upgrades++;
	if (c->state != CHILD_STOPPED && c->state != CHILD_WAITING)
		return;
	child_start(c);
	c->restarts--; /* this one was wanted */
}

/* ---- this process ---------------------------------------------------------------------------- */

int keeper_upgrade_self_locked(struct keeper *k, const char *dir, struct err *e)
{
	char program[PATH_MAX];
	int r = program_in(dir, "cachekeeper", program, e);

	if (r < 0)
		return r;
	if (k->ending)
		return err_set(e, -EAGAIN, "the keeper is ending");
	memcpy(k->upgrade, program, sizeof(program));
	k->upgrade_error[0] = '\0';
	k->upgrade_until = clock_mono_ns() + SETTLE_NS;
	return 0;
}

bool keeper_settled(struct keeper *k)
{
	if (mounter_host_busy(k->host) > 0)
		return false;
	list_for_each (node, &k->mounts) {
		const struct mount *mount = list_entry(node, struct mount, link);

		if (mount->child.state == CHILD_STOPPED && mount_is_shared(mount))
			continue;
		if (mount->state != MOUNT_ACTIVE || mount->handing || !mount->started ||
			(mount->child.state != CHILD_SERVING &&
				mount->child.state != CHILD_WAITING))
			return false;
	}
	return true;
}

static void keep_over_exec(struct keeper *k, bool keep)
{
	int flags = keep ? 0 : FD_CLOEXEC;

	(void)fcntl(k->lock_fd, F_SETFD, flags); /* our own descriptors: these cannot fail */
	if (k->alive_fd >= 0)
		(void)fcntl(k->alive_fd, F_SETFD, flags);
	list_for_each (node, &k->mounts) {
		const struct mount_fds *fds = &list_entry(node, struct mount, link)->fds;
		const int all[] = { fds->fuse, fds->slots, fds->near, fds->far };

		for (size_t i = 0; i < ARRAY_SIZE(all); i++)
			if (all[i] >= 0)
				(void)fcntl(all[i], F_SETFD, flags);
	}
}

/* The words this process was started with, but for descriptors that only its start was about. */
static void make_argv(struct keeper *k, char **argv, char *number, char *out[WORDS_MAX])
{
	static const char *const dropped[] = { "--ready-fd", "--resume-fd", "--alive-fd" };
	unsigned int n = 0;

	out[n++] = k->upgrade;
	for (unsigned int i = 1; argv[i] && n < WORDS_MAX - 3; i++) {
		bool drop = false;

		for (size_t d = 0; d < ARRAY_SIZE(dropped); d++)
			drop |= strcmp(argv[i], dropped[d]) == 0 && argv[i + 1];
		if (drop)
			i++;
		else if (strcmp(argv[i], "--again") != 0)
			out[n++] = argv[i];
	}
	out[n++] = (char *)(uintptr_t) "--resume-fd"; /* execve() changes nothing */
	out[n++] = number;
	out[n] = NULL;
}

static void fail_upgrade(struct keeper *k, const char *why)
{
	log_error("the keeper is not replaced", "program=\"%s\" why=\"%s\"", k->upgrade, why);
	(void)snprintf(k->upgrade_error, sizeof(k->upgrade_error), "%.*s: %s", ERR_TEXT_MAX / 2,
		k->upgrade, why);
	k->upgrade[0] = '\0';
}

/* Answers that are under way are given first; callers who come now find nobody for a moment. */
static void end_answers(struct keeper *k)
{
	pthread_mutex_unlock(&k->lock); /* handlers want it */
	admin_server_free(k->admin);
	pthread_mutex_lock(&k->lock);
	k->admin = NULL;
}

void keeper_upgrade_now(struct keeper *k, char **argv)
{
	char *words[WORDS_MAX];
	char number[16];
	struct err e = ERR_INIT;
	int fd = -1;
	int r;

	if (!k->upgrade[0] || k->ending)
		return;
	if (!keeper_settled(k)) {
		if (clock_mono_ns() > k->upgrade_until)
			fail_upgrade(k, "not every mount serves: try again");
		return;
	}
	end_answers(k);
	r = keeper_settled(k) ? keeper_state_fd(k, &fd) : -EAGAIN;
	if (r == 0) {
		log_info("keeper is replaced", "program=\"%s\"", k->upgrade);
		(void)snprintf(number, sizeof(number), "%d", fd); /* fits */
		make_argv(k, argv, number, words);
		keep_over_exec(k, true);
		(void)execve(words[0], words, environ);
		r = err_errno();
		keep_over_exec(k, false);
		(void)close(fd); /* memory */
	}
	if (r != -EAGAIN)
		fail_upgrade(k, err_str(r));
	r = keeper_answer(k, &e);
	if (r < 0)
		log_error("keeper does not answer", "why=\"%s\"", e.text);
}
