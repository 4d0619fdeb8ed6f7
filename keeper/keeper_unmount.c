/*
 * POST /v1/unmount: the only way to unmount. A helper process detaches the mount (unmount_helper.h); its daemon continues to serve
 * what uses the same file system elsewhere, and ends when the kernel has released that. See keeper.h.
 */
#include "keeper/keeper.h"
#include "base/cleanup.h"
#include "base/log.h"
#include "keeper/points/users.h"

#include <fcntl.h>
#include <string.h>

/* At the same time. Each occupies a handler of the admin server. */
#define UNMOUNTING_MAX       3u
#define UNMOUNTING_OWNED_MAX 2u /* of ordinary users, one of each */

static_assert(UNMOUNTING_MAX < ADMIN_HANDLERS,
	"one is left for other requests, which find out whether this process hangs");

/* One request. Its peers are held. */
struct unmounting {
	bool owned; /* requested by an ordinary user */
	enum unmount_mode mode;
	struct mounter_peer *peer;
	struct mounter_peer *server;
	unsigned int id;
	unsigned int server_id;
	char mountpoint[PATH_MAX];
	int daemon; /* pidfd of the server's; -1: none */
	int slots;  /* of the server; -1: none */
};

static void release(struct unmounting *u)
{
	cleanup_close(&u->daemon);
	cleanup_close(&u->slots);
}

/* ---- which ----------------------------------------------------------------------------------- */

static bool is_attached(const struct mount *mount)
{
	enum mounter_point point = mounter_peer_point(mount->peer);

	return mount->state == MOUNT_ACTIVE && (point == MOUNTER_OWN || point == MOUNTER_SHARED);
}

static struct mount *find_shown_locked(struct keeper *k, const char *path)
{
	list_for_each (node, &k->mounts) {
		struct mount *mount = list_entry(node, struct mount, link);

		if (is_attached(mount) && strcmp(mount->mountpoint, path) == 0)
			return mount;
	}
	return NULL;
}

/* A mount may have been moved since the last check. */
static void look_locked(struct keeper *k)
{
	list_for_each (node, &k->mounts) {
		struct mount *mount = list_entry(node, struct mount, link);

		mounter_peer_look(mount->peer, NULL);
		mount_follow_move(mount);
	}
}

static struct mount *find_locked(struct keeper *k, const char *path)
{
	struct mount *mount = find_shown_locked(k, path);

	if (mount)
		return mount;
	look_locked(k);
	return find_shown_locked(k, path);
}

static bool may_begin_locked(const struct keeper *k, const struct mount *mount, bool owned)
{
	unsigned int all = 0;
	unsigned int others = 0;
	unsigned int same = 0;

	list_for_each (node, &k->mounts) {
		const struct mount *other = list_entry(node, struct mount, link);

		all += other->unmounting;
		others += other->unmounting && other->owned;
		same += other->unmounting && other->owned && other->owner == mount->owner;
	}
	return !mount->unmounting && all < UNMOUNTING_MAX &&
	       (!owned || (others < UNMOUNTING_OWNED_MAX && same == 0));
}

static int begin_locked(
	struct keeper *k, const struct admin_request *request, struct unmounting *u, struct err *e)
{
	const char *path = json_string_value(json_object_get(request->body, "mountpoint"));
	const json_t *id = json_object_get(request->body, "id"); /* of a client's */
	struct mount *mount = path ? find_locked(k, path) : NULL;
	const struct mount *server;
	int r;

	if (id)
		mount = keeper_mount(k, (unsigned int)json_integer_value(id));
	r = keeper_user_check_mine(request, mount, e);
	if (r < 0)
		return r;
	server = mount ? keeper_mount(k, mounter_peer_server(mount->peer)) : NULL;
	if (!server)
		return err_set(
			e, -ENOENT, "%s is not a mount of this keeper", path ? path : "that");
	u->owned = admin_right(&request->caller, RIGHTS_OP_USE) != RIGHT_ALL;
	if (!may_begin_locked(k, mount, u->owned))
		return err_set(e, -EAGAIN, "other mounts are being unmounted: try again");
	u->peer = mount->peer;
	u->server = server->peer;
	u->id = mount->id;
	u->server_id = server->id;
	(void)snprintf(u->mountpoint, sizeof(u->mountpoint), "%s", mount->mountpoint); /* fits */
	if (child_running(&server->child))
		u->daemon = fcntl(server->child.pidfd, F_DUPFD_CLOEXEC, 0);
	if (server->fds.slots >= 0)
		u->slots = fcntl(server->fds.slots, F_DUPFD_CLOEXEC, 0);
	mounter_peer_hold(u->peer);
	mounter_peer_hold(u->server);
	mount->unmounting = true;
	return 0;
}

/* ---- what is open elsewhere ------------------------------------------------------------------ */

/* Files that were open before a switch of superblocks: the kernel does not count them for what the mount point shows. */
static int check_old(const struct unmounting *u, struct err *e)
{
	bool last = u->mode == UNMOUNT_NORMAL && mounter_peer_points(u->server) <= 1;
	dev_t old[SLOTS_OLD_MAX];
	char users[512];
	int n = last ? unmount_old(u->slots, old) : 0;

	for (int i = 0; i < n; i++)
		if (users_of(old[i], 0, users, sizeof(users)) > 0)
			return unmount_busy(u->mountpoint, users, e);
	return 0;
}

/* ---- unmount --------------------------------------------------------------------------------- */

/* Nothing is mounted but that, and this process ends with its last mount. */
static bool ends_locked(const struct keeper *k, const struct unmounting *u)
{
	if (k->config->stay)
		return false;
	list_for_each (node, &k->mounts) {
		const struct mount *mount = list_entry(node, struct mount, link);

		if (mount->state == MOUNT_ACTIVE && mount->id != u->id && mount->id != u->server_id)
			return false;
	}
	return true;
}

static void end_locked(struct keeper *k, const struct unmounting *u, bool cut)
{
	struct mount *mount = keeper_mount(k, u->id);
	struct mount *server = keeper_mount(k, u->server_id);

	if (mount)
		mount->unmounting = false;
	if (server && cut)
		server->given_up = true; /* nothing may read what it serves any more */
	mounter_peer_drop(u->peer);
	mounter_peer_drop(u->server);
}

static json_t *answer_locked(const struct keeper *k, const struct unmounting *u,
	const struct mounter_unmounted *done, const char *users)
{
	return json_pack("{s:b, s:s, s:i, s:b, s:s, s:i, s:i, s:b}", "unmounted", 1, "mountpoint",
		u->mountpoint, "others", (int)done->others, "in_use", (int)done->in_use, "users",
		users, "server", (int)u->server_id, "pid", (int)getpid(), "ending",
		(int)(!done->in_use && done->others == 0 && ends_locked(k, u)));
}

int keeper_unmount(
	struct keeper *k, const struct admin_request *request, json_t **ret_json, struct err *e)
{
	const char *mode = json_string_value(json_object_get(request->body, "mode"));
	_cleanup_(release) struct unmounting u = { .daemon = -1, .slots = -1 };
	struct mounter_unmounted done = { 0 };
	char users[512] = "";
	int r = mode ? unmount_mode_of(mode, &u.mode) : 0;

	if (r < 0)
		return err_set(e, r, "invalid mode: use \"normal\", \"lazy\" or \"force\"");
	pthread_mutex_lock(&k->lock);
	r = begin_locked(k, request, &u, e);
	pthread_mutex_unlock(&k->lock);
	if (r < 0)
		return r;
	if (u.owned && u.mode == UNMOUNT_FORCE && mounter_peer_has_many_owners(u.server))
		u.mode = UNMOUNT_LAZY; /* another user's bind mount or open file may be read on */
	r = check_old(&u, e);
	if (r == 0)
		r = mounter_peer_unmount(u.peer, u.mode, u.daemon, u.slots, &done, e);
	if (r == 0 && done.in_use)
		(void)users_of(done.dev, 0, users, sizeof(users)); /* as many as are found */
	if (r == 0)
		log_info("unmounted", "mountpoint=\"%s\" mode=%s others=%u in_use=%d", u.mountpoint,
			mode ? mode : "normal", done.others, done.in_use);
	pthread_mutex_lock(&k->lock);
	if (r == 0)
		*ret_json = answer_locked(k, &u, &done, users); /* NULL: done all the same */
	end_locked(k, &u, r == 0 && u.mode == UNMOUNT_FORCE && done.others == 0);
	pthread_mutex_unlock(&k->lock);
	return r;
}
