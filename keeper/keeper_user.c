/*
 * What ordinary users may ask of a service's keeper: mounts of datasets at directories of their own, and the end of these. Who asks
 * is what the kernel says of the socket's other end (SO_PEERCRED, SO_PEERGROUPS); which datasets allow that the master decides,
 * which the mount's daemon asks (source_named.c). See keeper.h.
 */
#include "keeper/keeper.h"
#include "base/cleanup.h"
#include "base/dataset_name.h"
#include "keeper/points/user_point.h"

#include <string.h>

/* ---- mount ----------------------------------------------------------------------------------- */

/* What an ordinary user may say of a mount. */
static int check_members(const json_t *body, struct err *e)
{
	static const char *const known[] = { "dataset_name", "point_fd", "engine", "token" };
	static const char *const engines[] = { "auto", "native", "loop", "fuse" };
	const char *engine = json_string_value(json_object_get(body, "engine"));
	const char *name = json_string_value(json_object_get(body, "dataset_name"));
	bool is_known = !json_object_get(body, "engine");
	size_t n = 0;

	for (size_t i = 0; i < ARRAY_SIZE(known); i++)
		n += json_object_get(body, known[i]) != NULL;
	for (size_t i = 0; engine && i < ARRAY_SIZE(engines); i++)
		is_known |= strcmp(engine, engines[i]) == 0;
	if (name && dataset_check_name(name, NULL) == 0 && is_known &&
		n == json_object_size(body) && json_is_integer(json_object_get(body, "point_fd")))
		return 0;
	return err_set(e, -EPERM,
		"permission denied: ordinary users may only mount datasets by name, at their own "
		"directories");
}

int keeper_user_check_all(const struct keeper *k, struct err *e)
{
	unsigned int owned = 0;

	list_for_each (node, &k->mounts)
		owned += list_entry(node, struct mount, link)->owned;
	if (owned >= KEEPER_MOUNTS - KEEPER_RESERVED)
		return err_set(e, -ENOSPC,
			"users of this host have %u mounts, which is the maximum", owned);
	return 0;
}

static int check_limit_locked(const struct keeper *k, uid_t uid, struct err *e)
{
	unsigned int own = 0;

	list_for_each (node, &k->mounts) {
		const struct mount *mount = list_entry(node, struct mount, link);

		own += mount->owned && mount->owner == uid;
	}
	if (own >= k->config->user_mounts)
		return err_set(e, -ENOSPC,
			"user %u has %u mounts, which is the maximum on this host; unmount one "
			"with `cachectl umount`",
			uid, own);
	return keeper_user_check_all(k, e);
}

/* Files are root's, whatever group the keeper has: one image with root's mounts. */
static json_t *forwarded_of(const json_t *body, const char *path, const char *claims)
{
	return json_pack("{s:O, s:O, s:s, s:s, s:s, s:i, s:i, s:O*, s:O*}", "source",
		json_object_get(body, "dataset_name"), "dataset_name",
		json_object_get(body, "dataset_name"), "mountpoint", path, "claims", claims,
		"umask", "022", "uid", 0, "gid", 0, "engine", json_object_get(body, "engine"),
		"token", json_object_get(body, "token"));
}

static int add(struct keeper *k, const json_t *forwarded, struct mount_owner *owner,
	json_t **ret_json, struct err *e)
{
	struct mount *mount = NULL;
	int r;

	pthread_mutex_lock(&k->lock);
	r = check_limit_locked(k, owner->uid, e);
	if (r == 0)
		r = keeper_add_locked(k, forwarded, owner, &mount, e);
	if (r == 0) {
		*ret_json = json_pack("{s:i, s:s}", "id", (int)mount->id, "socket", mount->socket);
		if (!*ret_json)
			r = err_set(e, -ENOMEM, "out of memory");
	}
	pthread_mutex_unlock(&k->lock);
	return r;
}

int keeper_user_mount(
	struct keeper *k, const struct admin_request *request, json_t **ret_json, struct err *e)
{
	const struct admin_caller *caller = &request->caller;
	_cleanup_(buf_release) struct buf claims = BUF_INIT(CLAIMS_BYTES);
	struct mount_owner owner = { .uid = caller->peer.uid, .point_fd = -1 };
	json_t *forwarded = NULL;
	char path[PATH_MAX];
	int r = check_members(request->body, e);

	if (r < 0)
		return r;
	r = user_point_take(caller->pid,
		(int)json_integer_value(json_object_get(request->body, "point_fd")), owner.uid,
		&owner.point_fd, path, e);
	if (r == 0 && admin_caller_claims(caller, false, &claims) == 0)
		forwarded = forwarded_of(request->body, path, buf_str(&claims));
	if (r == 0 && !forwarded)
		r = err_set(e, -ENOMEM, "out of memory");
	if (r == 0)
		r = add(k, forwarded, &owner, ret_json, e);
	cleanup_close(&owner.point_fd);
	json_decref(forwarded);
	return r;
}

void mount_close_point(struct keeper *k, struct mount *mount)
{
	if (mount->point_fd < 0)
		return;
	mounter_peer_forget_point(mount->peer);
	cleanup_close(&mount->point_fd);
	mount->point_fd = -1;
	mount_give_fds(k, mount);
}

/* ---- ownership --------------------------------------------------------------------------- */

int keeper_user_check_mine(
	const struct admin_request *request, const struct mount *mount, struct err *e)
{
	if (admin_right(&request->caller, RIGHTS_OP_USE) == RIGHT_ALL ||
		(mount && mount->owned && mount->owner == request->caller.peer.uid))
		return 0;
	return err_set(e, -EPERM, "permission denied: user %u has no such mount; run this as root",
		request->caller.peer.uid);
}

int keeper_user_check_end(
	const struct admin_request *request, const struct mount *mount, struct err *e)
{
	int r = keeper_user_check_mine(request, mount, e);

	if (r < 0 || admin_right(&request->caller, RIGHTS_OP_USE) == RIGHT_ALL)
		return r;
	if (mount->state == MOUNT_FAILED || mounter_peer_point(mount->peer) == MOUNTER_NONE)
		return 0;
	return err_set(
		e, -EBUSY, "%s is mounted: unmount it with `cachectl umount`", mount->mountpoint);
}
