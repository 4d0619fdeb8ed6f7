/*
 * Other programs in place of those that run, and no reader notices.
 *
 *	mounts	the old daemon stops taking requests (SIGUSR1); those it waits with stay in their slots,
 *		which the new one takes over together with the connection
 *	keeper	the old one leaves its daemons and ends, as if it was killed but settled; who starts the new one, which recovers
 *		them: the service manager, of a private cache `cachectl upgrade`
 */
#include "keeper/keeper.h"
#include "base/log.h"
#include "base/notify.h"

#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/pidfd.h>

#define HAND_OVER_NS (2 * CLOCK_SECOND)  /* then it is killed, which loses nothing either */
#define LEAVE_NS     (10 * CLOCK_SECOND) /* for daemons that are being started */

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
		if (c->state != CHILD_SERVING) {
			mount->upgrades++; /* it is about to be started, or starting: the next one is new */
			if (c->state == CHILD_WAITING)
				c->wake_ns = clock_mono_ns();
			continue;
		}
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

/* Its daemon died, and the next one does not serve yet: this process may be the only one that has its connection. */
static bool is_down(const struct mount *mount)
{
	const struct child *c = &mount->child;

	return mount->state == MOUNT_ACTIVE && mount->started && c->served &&
	       c->state != CHILD_SERVING && !mount->handing && !mount_is_shared(mount);
}

static bool any_down(const struct keeper *k)
{
	list_for_each (node, &k->mounts)
		if (is_down(list_entry(node, struct mount, link)))
			return true;
	return false;
}

int keeper_upgrade_self_locked(struct keeper *k, const char *dir, struct err *e)
{
	char program[PATH_MAX];
	int r = program_in(dir, "cachekeeper", program, e);

	if (r < 0)
		return r;
	/* Who would start the next one? */
	if (!k->config->is_private && notify_send("STATUS=", NULL, 0) == 0)
		return err_set(e, -EOPNOTSUPP,
			"no service manager starts this keeper again: restart it with the same "
			"command line; with --leave-mounts mounts serve meanwhile");
	if (k->config->is_private && any_down(k))
		return err_set(e, -EBUSY,
			"a mount's daemon is being started again: see `cachectl status`; "
			"`cachectl upgrade mounts` replaces it");
	if (k->ending)
		return err_set(e, -EAGAIN, "the keeper is ending");
	log_info("keeper is replaced", "program=\"%s\"", program);
	keeper_leave_locked(k);
	return 0;
}

void keeper_leave_locked(struct keeper *k)
{
	k->ending = true;
	k->leave_ns = clock_mono_ns() + LEAVE_NS;
}

/* Nothing is in progress that the next one would not know of. */
static bool is_settled(struct keeper *k)
{
	if (mounter_host_busy(k->host) > 0)
		return false;
	list_for_each (node, &k->mounts) {
		const struct mount *mount = list_entry(node, struct mount, link);

		if (mount->child.state == CHILD_STOPPED && mount_is_shared(mount))
			continue;
		if (mount->state != MOUNT_ACTIVE || mount->handing || !mount->started ||
			(mount->child.state != CHILD_SERVING &&
				!(mount->child.state == CHILD_WAITING && mount->stored)))
			return false;
	}
	return true;
}

bool keeper_may_leave(struct keeper *k, bool saved)
{
	if (!k->leave_ns || (saved && is_settled(k)))
		return k->leave_ns != 0;
	if (clock_mono_ns() < k->leave_ns)
		return false;
	if (saved && (!k->config->is_private || !any_down(k)))
		return true;
	log_error("keeper not replaced", "why=\"%s\"",
		saved ? "a mount has no daemon that serves it, and would be lost"
		      : "its state cannot be written: mounts would be lost");
	k->ending = false;
	k->leave_ns = 0;
	return false;
}
