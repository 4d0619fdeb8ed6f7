/* What the keeper tells of its mounts, and remembers. See mounter.h. */
#include "base/log.h"
#include "fuse/mounter_internal.h"

#include <string.h>

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
		json_object_set_new(json, "intent", mounter_intent_json(&peer->intent)) != 0) {
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
	mounter_intent_load(&peer->intent, json_object_get(saved, "intent"));
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
