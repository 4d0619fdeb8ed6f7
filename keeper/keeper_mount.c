/* A mount, and what its daemon is given to survive itself. */
#include "keeper/keeper.h"
#include "base/cleanup.h"
#include "base/detach.h"
#include "base/file.h"
#include "base/log.h"
#include "base/mount_table.h"

#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>

const char *keeper_path(const struct keeper *k, const char *name, char out[SOCKET_PATH_MAX])
{
	(void)snprintf(out, SOCKET_PATH_MAX, "%s/%s", k->config->run, name); /* checked at start */
	return out;
}

/* ---- a mount --------------------------------------------------------------------------------- */

static const uint8_t allowed_next[] = {
	[MOUNT_ACTIVE] = 1 << MOUNT_FAILED | 1 << MOUNT_GONE,
	[MOUNT_FAILED] = 0,
	[MOUNT_GONE] = 0,
};

void mount_set_state_locked(struct mount *mount, enum mount_state next)
{
	ensure(allowed_next[mount->state] & 1 << next);
	mount->state = next;
}

void mount_free(struct mount *mount)
{
	if (!mount)
		return;
	child_release(&mount->child);
	mounter_peer_free(mount->peer);
	cleanup_close(&mount->fds.fuse);
	cleanup_close(&mount->fds.slots);
	cleanup_close(&mount->fds.near);
	cleanup_close(&mount->fds.far);
	cleanup_close(&mount->point_fd);
	free(mount->source);
	free(mount->mountpoint);
	free(mount);
}

struct mount *keeper_mount(const struct keeper *k, unsigned int id)
{
	list_for_each (node, &k->mounts) {
		struct mount *mount = list_entry(node, struct mount, link);

		if (mount->id == id)
			return mount;
	}
	return NULL;
}

const struct mount *keeper_server(const struct keeper *k, const struct mount *mount)
{
	const struct mount *other =
		mount_is_shared(mount) ? keeper_mount(k, mounter_peer_server(mount->peer)) : NULL;

	return other ? other : mount;
}

struct mount *mount_new(
	struct keeper *k, unsigned int id, const char *source, const char *mountpoint)
{
	struct mount *mount = calloc(1, sizeof(*mount));
	char name[32];

	if (!mount)
		return NULL;
	(void)snprintf(name, sizeof(name), "mount-%u", id); /* fits */
	child_init(&mount->child, name);
	list_init(&mount->link);
	mount->child.adoptable = true;
	mount->child.notify = k->watchdog.fd >= 0 ? k->watchdog.path : NULL;
	mount->child.backoff.max_ns = KEEPER_BACKOFF_NS;
	mount->id = id;
	mount->fds = mount->its = (struct mount_fds){ -1, -1, -1, -1, -1 };
	mount->point_fd = -1;
	mount->source = strdup(source);
	mount->mountpoint = strdup(mountpoint);
	(void)keeper_path(k, name, mount->run);
	(void)snprintf(name, sizeof(name), "mount-%u.sock", id); /* fits */
	(void)keeper_path(k, name, mount->socket);
	if (!mount->source || !mount->mountpoint) {
		mount_free(mount);
		return NULL;
	}
	return mount;
}

/* ---- descriptors ----------------------------------------------------------------------------- */

/* A connection lives as long as anybody holds its descriptor: while we do, readers wait out a crash
 * of the daemon. */
static int open_fds(struct mount *mount, struct err *e)
{
	int pair[2];

	mount->fds.fuse = open("/dev/fuse", O_RDWR | O_CLOEXEC);
	if (mount->fds.fuse < 0) /* fusermount3 may open it for us: a place for what it gives */
		mount->fds.fuse = open("/dev/null", O_RDWR | O_CLOEXEC);
	if (mount->fds.fuse < 0 || socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) != 0)
		return err_set(e, err_errno(),
			"no descriptors for a mount: %m: raise the limit of open files (ulimit "
			"-n)");
	mount->fds.near = pair[0];
	mount->fds.far = pair[1];
	mount->fds.slots =
		memfd_create("granary-slots", MFD_CLOEXEC); /* its daemon gives it a size */
	if (mount->fds.slots < 0)
		return err_set(e, err_errno(),
			"no memory for the requests of a mount: %m: free some, or give less "
			"--memory");
	return 0;
}

static void drain(int socket)
{
	char byte;

	while (recv(socket, &byte, sizeof(byte), MSG_DONTWAIT | MSG_TRUNC) > 0)
		; /* descriptors that came with it are closed */
}

void mount_renew(struct mount *mount)
{
	int fuse = open("/dev/fuse", O_RDWR | O_CLOEXEC);

	if (fuse >= 0 && dup3(fuse, mount->fds.fuse, O_CLOEXEC) >= 0 &&
		ftruncate(mount->fds.slots, 0) == 0) {
		drain(mount->fds.near);
		drain(mount->fds.far);
	}
	cleanup_close(&fuse);
}

void mount_give_fds(struct keeper *k, struct mount *mount)
{
	struct child *c = &mount->child;

	c->n_keep = 0;
	child_keep_fd(c, "--fuse-fd", mount->fds.fuse);
	child_keep_fd(c, "--slots-fd", mount->fds.slots);
	child_keep_fd(c, "--hand-fd", mount->fds.far);
	child_keep_fd(c, "--hand-near-fd", mount->fds.near);
	if (mount->point_fd >= 0)
		child_keep_fd(c, "--point-fd", mount->point_fd);
	if (k->alive_fd >= 0)
		child_keep_fd(c, NULL, k->alive_fd);
}

int mount_add_peer(struct keeper *k, struct mount *mount)
{
	char images[PATH_MAX + 8];
	const struct mounter_peer_config config = {
		.id = mount->id,
		.mountpoint = mount->mountpoint,
		.admin = mount->socket,
		.image_dir = images,
		.socket = mount->fds.near,
		.fuse_fd = mount->fds.fuse,
		.owned = mount->owned,
		.owner = mount->owner,
		.point_fd = mount->point_fd,
	};

	(void)snprintf(images, sizeof(images), "%s/images", k->config->cache); /* fits */
	return mounter_peer_new(k->host, &config, &mount->peer);
}

int mount_open(struct keeper *k, struct mount *mount, struct err *e)
{
	int r = file_mkdirs(mount->run, 0700);

	if (r < 0)
		return err_set(e, r, "%s cannot be created: %s", mount->run, err_str(r));
	r = open_fds(mount, e);
	if (r == 0)
		r = mount_add_peer(k, mount);
	if (r < 0)
		return r;
	mount_give_fds(k, mount);
	return 0;
}

bool mount_is_shared(const struct mount *mount)
{
	return mount->peer && mounter_peer_point(mount->peer) == MOUNTER_SHARED;
}

/* The connection goes; its number stays taken, since the peer knows it. */
static void close_connection(struct mount *mount)
{
	int null = open("/dev/null", O_RDWR | O_CLOEXEC);

	if (!mount_unstore(mount))
		log_debug(
			"connection not removed from the store yet", "name=%s", mount->child.name);
	if (mount->fds.fuse >= 0 && (null < 0 || dup3(null, mount->fds.fuse, O_CLOEXEC) < 0))
		log_warn("a lost mount's connection stays", "mountpoint=\"%s\"", mount->mountpoint);
	cleanup_close(&null);
}

/* What lies at its mount point may be another's. */
static bool may_clear(const struct mount *mount)
{
	enum mounter_point point = mount->peer ? mounter_peer_point(mount->peer) : MOUNTER_NONE;
	struct mount_entry entry;

	return !mount->point_taken && point != MOUNTER_DETACHED && point != MOUNTER_SHARED &&
	       mount_table_find(mount->mountpoint, &entry) == 0 && mount_entry_ours(&entry);
}

void mount_clear_point(struct mount *mount)
{
	struct err e = ERR_INIT;

	close_connection(mount); /* the last one: whatever reads there gets an error now */
	if (may_clear(mount) && detach_mount(mount->mountpoint, true, &e) < 0)
		log_error("a failed mount stays", "mountpoint=\"%s\" why=\"%s\"", mount->mountpoint,
			e.text);
}

/* ---- moved mounts ---------------------------------------------------------------------------- */

static char **argument_of(struct child *c, const char *option)
{
	for (unsigned int i = 1; i + 1 < c->n_args; i++)
		if (strcmp(c->args[i], option) == 0)
			return &c->args[i + 1];
	return NULL;
}

static void set_text(char **text, const char *value)
{
	char *copy = text ? strdup(value) : NULL;

	if (!copy) /* tried again at the next look */
		return;
	free(*text);
	*text = copy;
}

const char *mount_token_path(const struct mount *mount, char out[KEEPER_TOKEN_PATH_MAX])
{
	(void)snprintf(out, KEEPER_TOKEN_PATH_MAX, "%s/token", mount->run); /* fits */
	return out;
}

void mount_follow_move(struct mount *mount)
{
	const char *at = mounter_peer_mountpoint(mount->peer);

	if (strcmp(at, mount->mountpoint) == 0)
		return;
	log_info("mount was moved", "mountpoint=\"%s\" to=\"%s\"", mount->mountpoint, at);
	set_text(argument_of(&mount->child, "--mountpoint"), at); /* of the next daemon */
	set_text(&mount->mountpoint, at);
}
