/*
 * Host and peers: their life, what the keeper tells of its mounts, and what it remembers. See mounter_peer.h.
 *
 * What the keeper is about to do to a mount point is written down before each act: when it was killed, the next one looks
 * what the kernel shows, ends what was begun, and gives the answer that the daemon waits for (mounter_serve.c).
 */
#include "base/cleanup.h"
#include "base/crash_point.h"
#include "base/log.h"
#include "keeper/points/mounter_internal.h"

#include <poll.h>
#include <stdlib.h>
#include <string.h>

/* ---- host and peers -------------------------------------------------------------------------- */

int mounter_host_new(int wake_fd, struct mounter_host **ret_host)
{
	struct mounter_host *host = calloc(1, sizeof(*host));

	if (!host)
		return -ENOMEM;
	host->magic = MOUNTER_HOST_MAGIC;
	host->wake_fd = wake_fd;
	pthread_mutex_init(&host->lock, NULL);
	pthread_cond_init(&host->idle, NULL);
	pthread_mutex_init(&host->moving, NULL);
	superblocks_init(&host->superblocks);
	list_init(&host->peers);
	*ret_host = host;
	return 0;
}

void mounter_host_keep(struct mounter_host *host, int (*save)(void *arg), void *arg)
{
	CHECK_MAGIC(host, MOUNTER_HOST_MAGIC);
	host->save = save;
	host->save_arg = arg;
}

void mounter_host_free(struct mounter_host *host)
{
	if (!host)
		return;
	CHECK_MAGIC(host, MOUNTER_HOST_MAGIC);
	ensure(list_empty(&host->peers));
	superblocks_release(&host->superblocks);
	pthread_mutex_destroy(&host->moving);
	pthread_cond_destroy(&host->idle);
	pthread_mutex_destroy(&host->lock);
	host->magic = 0;
	free(host);
}

unsigned int mounter_host_busy(struct mounter_host *host)
{
	unsigned int busy;

	CHECK_MAGIC(host, MOUNTER_HOST_MAGIC);
	pthread_mutex_lock(&host->lock);
	busy = host->busy;
	pthread_mutex_unlock(&host->lock);
	return busy;
}

static void release_strings(struct mounter_peer_config *config)
{
	free((char *)(uintptr_t)config->mountpoint);
	free((char *)(uintptr_t)config->admin);
	free((char *)(uintptr_t)config->image_dir);
}

int mounter_peer_new(struct mounter_host *host, const struct mounter_peer_config *config,
	struct mounter_peer **ret_peer)
{
	struct mounter_peer *peer = calloc(1, sizeof(*peer));

	CHECK_MAGIC(host, MOUNTER_HOST_MAGIC);
	if (!peer)
		return -ENOMEM;
	peer->magic = MOUNTER_PEER_MAGIC;
	peer->host = host;
	peer->config = *config;
	peer->config.mountpoint = strdup(config->mountpoint);
	peer->config.admin = strdup(config->admin);
	peer->config.image_dir = strdup(config->image_dir);
	peer->server = config->id;
	if (!peer->config.mountpoint || !peer->config.admin || !peer->config.image_dir) {
		release_strings(&peer->config);
		free(peer);
		return -ENOMEM;
	}
	pthread_mutex_lock(&host->lock);
	list_push_back(&host->peers, &peer->link);
	pthread_mutex_unlock(&host->lock);
	*ret_peer = peer;
	return 0;
}

void mounter_peer_forget_point(struct mounter_peer *peer)
{
	CHECK_MAGIC(peer, MOUNTER_PEER_MAGIC);
	pthread_mutex_lock(&peer->host->lock);
	peer->config.point_fd = -1;
	pthread_mutex_unlock(&peer->host->lock);
}

/* Its number may be another's once it is gone. */
bool mounter_peer_connected(const struct mounter_peer *peer)
{
	struct pollfd p = { .fd = peer->config.fuse_fd };

	return kernel_is_fuse(p.fd) && !(poll(&p, 1, 0) == 1 && p.revents & POLLERR);
}

bool mounter_peer_gone(const struct mounter_peer *peer)
{
	dev_t dev;

	CHECK_MAGIC(peer, MOUNTER_PEER_MAGIC);
	pthread_mutex_lock(&peer->host->lock);
	dev = peer->fuse_dev;
	pthread_mutex_unlock(&peer->host->lock);
	return dev && peer->config.fuse_fd >= 0 && !mounter_peer_connected(peer);
}

bool mounter_peer_idle(struct mounter_peer *peer)
{
	dev_t dev;
	bool busy;
	bool held;

	CHECK_MAGIC(peer, MOUNTER_PEER_MAGIC);
	pthread_mutex_lock(&peer->host->lock);
	busy = peer->busy;
	held = peer->holds > 0;
	dev = peer->fuse_dev;
	pthread_mutex_unlock(&peer->host->lock);
	if (busy && dev && mounter_peer_connected(peer) && kernel_abort(dev) < 0)
		log_debug("no connection to cut", "mount=%u", peer->config.id);
	return !busy && !held;
}

void mounter_drop_local(struct mounter_peer *peer)
{
	for (uint32_t i = 0; peer->local && i < LIMIT_DEVICES; i++)
		cleanup_close(&peer->local[i]);
	free(peer->local);
	peer->local = NULL;
}

void mounter_peer_free(struct mounter_peer *peer)
{
	struct mounter_host *host = peer ? peer->host : NULL;
	struct superblock *s;

	if (!peer)
		return;
	(void)mounter_peer_idle(peer); /* waited for below */
	pthread_mutex_lock(&host->lock);
	while (peer->busy || peer->holds)
		pthread_cond_wait(&host->idle, &host->lock);
	list_remove(&peer->link);
	s = superblock_of_server(&host->superblocks, peer->config.id);
	if (s)
		superblock_remove(&host->superblocks, s);
	s = superblock_of_server(&host->superblocks, peer->server);
	if (s && peer->point == MOUNTER_SHARED)
		(void)superblock_point_remove(s, peer->config.mountpoint); /* its own */
	pthread_mutex_unlock(&host->lock);
	unmount_helper_leave(&peer->helper);
	mounter_drop_local(peer);
	release_strings(&peer->config);
	free(peer->making);
	peer->magic = 0;
	free(peer);
}

struct mounter_peer *mounter_peer_of_locked(struct mounter_host *host, unsigned int mount)
{
	list_for_each (node, &host->peers) {
		struct mounter_peer *peer = list_entry(node, struct mounter_peer, link);

		if (peer->config.id == mount)
			return peer;
	}
	return NULL;
}

int mounter_peer_fd(const struct mounter_peer *peer)
{
	bool busy;

	CHECK_MAGIC(peer, MOUNTER_PEER_MAGIC);
	pthread_mutex_lock(&peer->host->lock);
	busy = peer->busy;
	pthread_mutex_unlock(&peer->host->lock);
	return busy ? -1 : peer->config.socket;
}

void mounter_peer_hold(struct mounter_peer *peer)
{
	CHECK_MAGIC(peer, MOUNTER_PEER_MAGIC);
	pthread_mutex_lock(&peer->host->lock);
	peer->holds++;
	peer->host->busy++;
	pthread_mutex_unlock(&peer->host->lock);
}

void mounter_peer_drop(struct mounter_peer *peer)
{
	CHECK_MAGIC(peer, MOUNTER_PEER_MAGIC);
	pthread_mutex_lock(&peer->host->lock);
	peer->holds--;
	peer->host->busy--;
	pthread_cond_broadcast(&peer->host->idle);
	pthread_mutex_unlock(&peer->host->lock);
}

/* ---- what became of a mount ------------------------------------------------------------------ */

static const char *const point_names[] = {
	[MOUNTER_NONE] = "none",
	[MOUNTER_OWN] = "own",
	[MOUNTER_SHARED] = "shared",
	[MOUNTER_DETACHED] = "detached",
};

enum mounter_point mounter_peer_point(const struct mounter_peer *peer)
{
	enum mounter_point point;

	CHECK_MAGIC(peer, MOUNTER_PEER_MAGIC);
	pthread_mutex_lock(&peer->host->lock);
	point = peer->point;
	pthread_mutex_unlock(&peer->host->lock);
	return point;
}

bool mounter_peer_end(struct mounter_peer *peer)
{
	bool begun;

	CHECK_MAGIC(peer, MOUNTER_PEER_MAGIC);
	pthread_mutex_lock(&peer->host->lock);
	begun = peer->intent.op != 0;
	peer->ended |= !begun && peer->point == MOUNTER_NONE;
	free(TAKE(peer->making));
	pthread_mutex_unlock(&peer->host->lock);
	return !begun;
}

unsigned int mounter_peer_points(const struct mounter_peer *peer)
{
	const struct superblock *s;
	unsigned int n;

	CHECK_MAGIC(peer, MOUNTER_PEER_MAGIC);
	pthread_mutex_lock(&peer->host->lock);
	s = superblock_of_server(&peer->host->superblocks, peer->config.id);
	n = s ? s->n_points : 0;
	pthread_mutex_unlock(&peer->host->lock);
	return n;
}

bool mounter_peer_has_many_owners(const struct mounter_peer *peer)
{
	const struct superblock *s;
	bool many;

	CHECK_MAGIC(peer, MOUNTER_PEER_MAGIC);
	pthread_mutex_lock(&peer->host->lock);
	s = superblock_of_server(&peer->host->superblocks, peer->config.id);
	many = s && s->many_owners;
	pthread_mutex_unlock(&peer->host->lock);
	return many;
}

unsigned int mounter_peer_server(const struct mounter_peer *peer)
{
	unsigned int server;

	CHECK_MAGIC(peer, MOUNTER_PEER_MAGIC);
	pthread_mutex_lock(&peer->host->lock);
	server = peer->server;
	pthread_mutex_unlock(&peer->host->lock);
	return server;
}

bool mounter_peer_newer(const struct mounter_peer *peer)
{
	bool newer;

	CHECK_MAGIC(peer, MOUNTER_PEER_MAGIC);
	pthread_mutex_lock(&peer->host->lock);
	newer = peer->newer;
	pthread_mutex_unlock(&peer->host->lock);
	return newer;
}

void mounter_peer_answer_newer(struct mounter_peer *peer, const char *why)
{
	CHECK_MAGIC(peer, MOUNTER_PEER_MAGIC);
	pthread_mutex_lock(&peer->host->lock);
	peer->newer = false;
	(void)snprintf(peer->newer_why, sizeof(peer->newer_why), "%s", why ? why : ""); /* cut */
	pthread_mutex_unlock(&peer->host->lock);
}

int mounter_peer_json(const struct mounter_peer *peer, json_t *row)
{
	struct mounter_host *host = peer->host;
	int r;

	CHECK_MAGIC(peer, MOUNTER_PEER_MAGIC);
	pthread_mutex_lock(&host->lock);
	r = json_object_set_new(row, "point", json_string(point_names[peer->point]));
	if (peer->point == MOUNTER_SHARED) {
		const struct mounter_peer *server = mounter_peer_of_locked(host, peer->server);

		r |= json_object_set_new(row, "server", json_integer(peer->server));
		if (server)
			r |= json_object_set_new(row, "socket", json_string(server->config.admin));
	}
	if (peer->point == MOUNTER_DETACHED) /* otherwise nothing waits for this */
		r |= json_object_set_new(
			row, "connected", json_boolean(mounter_peer_connected(peer)));
	pthread_mutex_unlock(&host->lock);
	return r == 0 ? 0 : -ENOMEM;
}

/* ---- for a later keeper ---------------------------------------------------------------------- */

int mounter_begin(struct mounter_job *job, const struct mounter_intent *intent)
{
	struct mounter_host *host = job->peer->host;
	int r;

	pthread_mutex_lock(&host->lock);
	r = job->peer->ended ? -ECONNRESET : 0;
	if (r == 0) {
		job->peer->intent = *intent;
		job->peer->intent.op = job->request.op;
		job->peer->intent.serial = job->request.serial;
	}
	pthread_mutex_unlock(&host->lock);
	if (r < 0) /* nobody would serve what it puts in another's place */
		return err_set(&job->err, r, "the daemon that requested it has ended");
	r = mounter_save(host);
	if (r < 0) {
		mounter_begun_not(job->peer);
		return err_set(&job->err, r,
			"the state of the mounts cannot be stored: %s: free some space in the "
			"keeper's runtime directory",
			err_str(r));
	}
	CRASH_POINT("keeper.intent");
	return 0;
}

void mounter_begun_not(struct mounter_peer *peer)
{
	pthread_mutex_lock(&peer->host->lock);
	peer->intent = (struct mounter_intent){ 0 };
	pthread_mutex_unlock(&peer->host->lock);
}

int mounter_save(struct mounter_host *host)
{
	return host->save ? host->save(host->save_arg) : 0;
}

/* NULL without memory. */
static json_t *intent_json(const struct mounter_intent *intent)
{
	return json_pack("{s:i, s:I, s:i, s:I, s:I}", "op", (int)intent->op, "serial",
		(json_int_t)intent->serial, "server", (int)intent->server, "from",
		(json_int_t)intent->from, "to", (json_int_t)intent->to);
}

static void load_intent(struct mounter_intent *ret, const json_t *saved)
{
	*ret = (struct mounter_intent){
		.op = (uint32_t)json_integer_value(json_object_get(saved, "op")),
		.serial = (uint32_t)json_integer_value(json_object_get(saved, "serial")),
		.server = (unsigned int)json_integer_value(json_object_get(saved, "server")),
		.from = (dev_t)json_integer_value(json_object_get(saved, "from")),
		.to = (dev_t)json_integer_value(json_object_get(saved, "to")),
	};
}

json_t *mounter_peer_save(const struct mounter_peer *peer)
{
	struct mounter_host *host = peer->host;
	const struct superblock *s;
	json_t *json;

	CHECK_MAGIC(peer, MOUNTER_PEER_MAGIC);
	pthread_mutex_lock(&host->lock);
	s = superblock_of_server(&host->superblocks, peer->config.id);
	json = json_pack("{s:s, s:i, s:I, s:I, s:i}", "point", point_names[peer->point], "server",
		(int)peer->server, "fuse_dev", (json_int_t)peer->fuse_dev, "made_dev",
		(json_int_t)peer->made_dev, "mount_id", peer->mount_id);
	if (json && peer->intent.op &&
		json_object_set_new(json, "intent", intent_json(&peer->intent)) != 0) {
		json_decref(json); /* without it a mount might be forgotten */
		json = NULL;
	}
	if (json && s &&
		json_object_set_new(json, "superblock",
			json_pack("{s:s, s:I, s:I, s:b}", "key", s->key, "point_dev",
				(json_int_t)s->point_dev, "fuse_dev", (json_int_t)s->fuse_dev,
				"many_owners", (int)s->many_owners)) != 0) {
		json_decref(json);
		json = NULL;
	}
	pthread_mutex_unlock(&host->lock);
	return json;
}

static enum mounter_point point_of_name(const char *name)
{
	for (unsigned int i = 0; name && i < ARRAY_SIZE(point_names); i++)
		if (strcmp(name, point_names[i]) == 0)
			return (enum mounter_point)i;
	return MOUNTER_NONE;
}

/* Its own, and those that share it and were loaded before. */
static int load_superblock_locked(struct mounter_peer *peer, const json_t *saved)
{
	struct mounter_host *host = peer->host;
	const char *key = json_string_value(json_object_get(saved, "key"));
	struct superblock *s;
	int r = superblock_add(&host->superblocks, peer->config.id, key ? key : "",
		(dev_t)json_integer_value(json_object_get(saved, "point_dev")),
		(dev_t)json_integer_value(json_object_get(saved, "fuse_dev")), &s);

	if (r < 0)
		return r;
	s->closed = true;
	s->many_owners = json_is_true(json_object_get(saved, "many_owners"));
	list_for_each (node, &host->peers) {
		const struct mounter_peer *other = list_entry(node, struct mounter_peer, link);

		if (other->server == peer->config.id &&
			(other->point == MOUNTER_OWN || other->point == MOUNTER_SHARED))
			r = superblock_point_add(s, other->config.id, other->config.mountpoint);
	}
	return r;
}

void mounter_peer_load(struct mounter_peer *peer, const json_t *saved)
{
	struct mounter_host *host = peer->host;
	const json_t *superblock = json_object_get(saved, "superblock");
	struct superblock *s;
	int r = 0;

	CHECK_MAGIC(peer, MOUNTER_PEER_MAGIC);
	pthread_mutex_lock(&host->lock);
	peer->point = point_of_name(json_string_value(json_object_get(saved, "point")));
	peer->server = (unsigned int)json_integer_value(json_object_get(saved, "server"));
	peer->fuse_dev = (dev_t)json_integer_value(json_object_get(saved, "fuse_dev"));
	peer->made_dev = (dev_t)json_integer_value(json_object_get(saved, "made_dev"));
	peer->mount_id = (int)json_integer_value(json_object_get(saved, "mount_id"));
	load_intent(&peer->intent, json_object_get(saved, "intent"));
	if (!peer->server)
		peer->server = peer->config.id;
	s = superblock_of_server(&host->superblocks, peer->server);
	if (superblock)
		r = load_superblock_locked(peer, superblock);
	else if (s && peer->point == MOUNTER_SHARED)
		r = superblock_point_add(s, peer->config.id, peer->config.mountpoint);
	pthread_mutex_unlock(&host->lock);
	if (r < 0)
		log_warn("superblock not found", "mountpoint=\"%s\" error=%s",
			peer->config.mountpoint, err_name(r));
}
