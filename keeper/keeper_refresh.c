/*
 * A newer generation in a mount's place: a second mount with the same settings, whose daemon lists the
 * source again and attaches what it finds beneath the first one. The first one's daemon lives on
 * for open files and other mount points.
 */
#include "keeper/keeper.h"
#include "base/cleanup.h"
#include "base/file.h"
#include "mount/kernel/kernel.h"

#include <string.h>

static struct mount *find_shown(struct keeper *k, const char *mountpoint)
{
	list_for_each (node, &k->mounts) {
		struct mount *mount = list_entry(node, struct mount, link);
		enum mounter_point point = mounter_peer_point(mount->peer);

		if (mount->state == MOUNT_ACTIVE && strcmp(mount->mountpoint, mountpoint) == 0 &&
			(point == MOUNTER_OWN || point == MOUNTER_SHARED))
			return mount;
	}
	return NULL;
}

struct mount *keeper_coming(struct keeper *k, const char *mountpoint)
{
	list_for_each (node, &k->mounts) {
		struct mount *mount = list_entry(node, struct mount, link);

		if (mount->state == MOUNT_ACTIVE && strcmp(mount->mountpoint, mountpoint) == 0 &&
			mounter_peer_point(mount->peer) == MOUNTER_NONE)
			return mount;
	}
	return NULL;
}

/* Words of the old command line that are of one daemon only, with their value. */
static bool is_own(const char *word)
{
	static const char *const own[] = { "--run-dir", "--admin", "--memory" };

	for (size_t i = 0; i < ARRAY_SIZE(own); i++)
		if (strcmp(word, own[i]) == 0)
			return true;
	return false;
}

/* Options of the first daemon at the mount point only. */
static bool is_of_the_first(const char *word)
{
	return strcmp(word, "--refresh") == 0 || strcmp(word, "--refresh-behind") == 0 ||
	       strcmp(word, "--replace") == 0;
}

static int copy_args(
	struct keeper *k, const struct mount *old, struct mount *mount, uint64_t memory, bool list)
{
	const struct child *from = &old->child;
	struct child *c = &mount->child;
	int r = child_arg(c, "%s", k->cachefuse);

	for (unsigned int i = 1; i < from->n_args && r == 0; i++) {
		const char *word = from->args[i];

		if (is_own(word) && i + 1 < from->n_args)
			i++;
		else if (!is_of_the_first(word))
			r = child_arg(c, "%s", word);
	}
	if (r == 0)
		r = child_arg_text(c, "--run-dir", mount->run);
	if (r == 0)
		r = child_arg_text(c, "--admin", mount->socket);
	if (r == 0)
		r = child_arg_size(c, "--memory", memory);
	if (r == 0)
		r = child_arg(c, "--replace");
	if (r == 0 && list)
		r = child_arg(c, "--refresh"); /* last: left out when it is started again */
	if (r == 0 && asprintf(&c->log_path, "%s/log/%s.log", k->config->cache, c->name) < 0) {
		c->log_path = NULL;
		r = -ENOMEM;
	}
	return r;
}

static int may_replace(struct err *e)
{
	if (!kernel_may_mount())
		return err_set(e, -EOPNOTSUPP,
			"a mount of an ordinary user keeps its generation: unmount and mount "
			"again");
	if (!kernel_may_attach_beneath())
		return err_set(e, -EOPNOTSUPP,
			"this kernel cannot replace a mounted generation (Linux 6.5 and newer "
			"can): unmount and mount again");
	return 0;
}

int keeper_refresh_locked(struct keeper *k, const char *mountpoint, uint64_t token, bool list,
	struct mount **ret_mount, struct err *e)
{
	const struct mount *old = find_shown(k, mountpoint);
	struct mount *mount = keeper_coming(k, mountpoint);
	uint64_t memory = 0;
	int r = may_replace(e);

	if (r < 0)
		return r;
	if (!old)
		return err_set(e, -ENOENT, "%s is not mounted: run cachectl mount", mountpoint);
	if (mount && token && mount->token == token) {
		*ret_mount = mount; /* asked twice: its answer was lost */
		return 0;
	}
	if (mount)
		return err_set(e, -EEXIST, "%s is already being refreshed", mountpoint);
	if (k->ending || k->n_mounts >= KEEPER_MOUNTS)
		return err_set(e, -ENOSPC,
			"this cache has %u mounts, including old generations with open files: "
			"close these files",
			k->n_mounts);
	r = old->owned ? keeper_user_check_all(k, e) : 0;
	if (r == 0)
		r = keeper_memory_successor(k, old, &memory, e);
	if (r < 0)
		return r;
	mount = mount_new(k, k->next_id, old->source, mountpoint);
	if (!mount)
		return err_set(e, -ENOMEM, "out of memory");
	mount->point_taken = true; /* by the old one */
	mount->ready = true;       /* as that is */
	mount->owned = old->owned;
	mount->owner = old->owner;
	r = copy_args(k, old, mount, memory, list);
	if (r == 0)
		r = mount_open(k, mount, e);
	if (r < 0) {
		mount_free(mount);
		return err_default(e, r, "the mount cannot be prepared");
	}
	mount->token = token;
	k->next_id++;
	k->n_mounts++;
	list_push_back(&k->mounts, &mount->link);
	*ret_mount = mount;
	return 0;
}
