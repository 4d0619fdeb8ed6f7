/* What is held for the next keeper while this one lives. See hold.h. */
#include "fuse/keeper.h"
#include "base/log.h"
#include "fuse/kernel.h"

#include <assert.h>

#define PLACE_ALIVE (HOLD_PLACES - 1) /* base/alive.h; all before it are of mounts */

static_assert(KEEPER_MOUNTS <= PLACE_ALIVE, "each mount has a place");

/* Once the kernel must end a request for want of a daemon, nobody is to wait for longer either; but a
 * service manager has time to start the next keeper. */
#define HOLD_LEAST_NS (5 * CLOCK_SECOND)
#define HOLD_AGAIN_NS (10 * CLOCK_SECOND) /* after one that could not be begun */

void keeper_hold_alive(struct keeper *k)
{
	const int fds[HOLD_FDS] = { -1, k->alive_fd, -1, -1 };

	if (hold_put(&k->hold, PLACE_ALIVE, fds) < 0)
		log_debug("pipe not held", "pid=%d", (int)k->hold.pid);
}

static uint64_t time_of(const struct keeper *k)
{
	return max(k->config->dead_after_ns, HOLD_LEAST_NS);
}

void keeper_hold_reload(struct keeper *k)
{
	hold_set_time(&k->hold, time_of(k));
}

void keeper_hold_begin(struct keeper *k)
{
	int r = hold_begin(&k->hold, time_of(k));

	if (r < 0) {
		k->hold_again_ns = clock_mono_ns() + HOLD_AGAIN_NS;
		LOG_LIMITED(LOG_WARN, "fd store not started",
			"error=%s effect=\"a mount whose daemon dies together with the keeper is "
			"lost\"",
			err_name(r));
		return;
	}
	keeper_hold_alive(k);
	list_for_each (node, &k->mounts)
		list_entry(node, struct mount, link)->held = false;
}

static bool is_free(const struct keeper *k, unsigned int place)
{
	list_for_each (node, &k->mounts)
		if (list_entry(node, struct mount, link)->place == place)
			return false;
	return true;
}

static void hold_mount(struct keeper *k, struct mount *mount)
{
	const int fds[HOLD_FDS] = { mount->fds.fuse, mount->fds.slots, mount->fds.near,
		mount->fds.far };

	if (mount->fds.fuse < 0 || mount->fds.slots < 0)
		return;
	mount->hold = &k->hold;
	mount->held_connection = kernel_is_fuse(mount->fds.fuse);
	mount->held = hold_put(&k->hold, mount->place, fds) == 0; /* else once more */
}

void mount_hold(struct keeper *k, struct mount *mount)
{
	mount->place = 0;
	while (!is_free(k, mount->place))
		mount->place++;
	hold_mount(k, mount);
}

void keeper_hold_look(struct keeper *k)
{
	if (hold_lost(&k->hold))
		log_warn("fd store died", "next=\"a new one is started\"");
	/* Or it was ended, as it could not be told something; or there was none to be had. */
	if (k->hold.pid == 0 && clock_mono_ns() >= k->hold_again_ns)
		keeper_hold_begin(k);
	list_for_each (node, &k->mounts) {
		struct mount *mount = list_entry(node, struct mount, link);

		/* Or fusermount3 has made its connection since. */
		if (mount->state == MOUNT_ACTIVE &&
			(!mount->held ||
				(!mount->held_connection && kernel_is_fuse(mount->fds.fuse))))
			hold_mount(k, mount);
	}
}

void mount_let_go(struct mount *mount)
{
	if (mount->hold)
		hold_drop(mount->hold, mount->place);
	mount->hold = NULL;
}

/* ---- of the keeper before -------------------------------------------------------------------- */

void keeper_hold_find(struct keeper *k, const json_t *state)
{
	pid_t pid = (pid_t)json_integer_value(json_object_get(state, "holder"));
	uint64_t token = (uint64_t)json_integer_value(json_object_get(state, "holder_token"));

	if (hold_find(pid, token, &k->before) < 0)
		return; /* it died too */
	if (k->alive_fd < 0 && hold_take(&k->before, PLACE_ALIVE, 1, &k->alive_fd) < 0)
		k->alive_fd = -1;
}

void mount_take_held(struct keeper *k, struct mount *mount, unsigned int place)
{
	int *fds[HOLD_FDS] = { &mount->fds.fuse, &mount->fds.slots, &mount->fds.near,
		&mount->fds.far };

	for (unsigned int i = 0; i < HOLD_FDS; i++)
		if (*fds[i] < 0 && hold_take(&k->before, place, i, fds[i]) < 0)
			*fds[i] = -1;
}
