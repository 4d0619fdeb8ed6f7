/* One mount more: whether there is room, and the command line of its daemon. */
#include "keeper/keeper.h"
#include "keeper/keeper_file.h"
#include "base/file.h"
#include "base/mount_table.h"

#include <string.h>

/* ---- command line ---------------------------------------------------------------------------- */

/* Options that are passed on as they came, when they came. */
static int plan_body(struct child *c, const json_t *body)
{
	static const char *const texts[][2] = {
		{ "dataset", "--dataset" },
		{ "dataset_name", "--dataset-name" },
		{ "claims", "--claims" },
		{ "sources", "--sources" },
		{ "endpoint", "--endpoint" },
		{ "region", "--region" },
		{ "profile", "--profile" },
		{ "ca_file", "--ca-file" },
		{ "umask", "--umask" },
		{ "engine", "--engine" },
		{ "context", "--context" },
		{ "integrity", "--integrity" },
		{ "pin", "--pin" },
		{ "evict", "--evict" },
		{ "keys", "--credentials" },
		{ "versions", "--versions" },
		{ "follow", "--follow" },
		{ "path", "--path" },
	};
	static const char *const numbers[][2] = {
		{ "uid", "--uid" },
		{ "gid", "--gid" },
		{ "prime_max", "--prime-max" },
		{ "seal_pause", "--seal-pause" },
		{ "priority", "--priority" },
		{ "generation", "--generation" },
	};
	static const char *const sizes[][2] = {
		{ "extent_size", "--extent-size" },
		{ "quota", "--quota" },
	};
	static const char *const flags[][2] = {
		{ "path_style", "--path-style" },
		{ "anonymous", "--anonymous" },
		{ "requester_pays", "--requester-pays" },
		{ "allow_other", "--allow-other" },
		{ "follow_dataset", "--follow-dataset" },
		{ "rolled_back", "--rolled-back" },
		{ "pinned", "--pinned" },
		{ "refresh_behind", "--refresh-behind" },
	};
	int r = 0;

	for (size_t i = 0; i < ARRAY_SIZE(texts) && r == 0; i++) {
		const char *text = json_string_value(json_object_get(body, texts[i][0]));

		if (text)
			r = child_arg_text(c, texts[i][1], text);
	}
	for (size_t i = 0; i < ARRAY_SIZE(numbers) && r == 0; i++) {
		const json_t *number = json_object_get(body, numbers[i][0]);

		if (json_is_integer(number))
			r = child_arg_number(
				c, numbers[i][1], (uint64_t)json_integer_value(number));
	}
	for (size_t i = 0; i < ARRAY_SIZE(sizes) && r == 0; i++) {
		const json_t *size = json_object_get(body, sizes[i][0]);

		if (json_is_integer(size))
			r = child_arg_size(c, sizes[i][1], (uint64_t)json_integer_value(size));
	}
	for (size_t i = 0; i < ARRAY_SIZE(flags) && r == 0; i++)
		if (json_is_true(json_object_get(body, flags[i][0])))
			r = child_arg(c, "%s", flags[i][1]);
	return r;
}

/* "--option ADDR", or "--option unix:RUN/name" */
static int plan_address(struct keeper *k, struct child *child, const char *option,
	const char *address, const char *name)
{
	char path[SOCKET_PATH_MAX];
	int r = child_arg(child, "%s", option);

	if (r == 0 && address)
		return child_arg(child, "%s", address);
	return r == 0 ? child_arg(child, "unix:%s", keeper_path(k, name, path)) : r;
}

static int plan_program(struct keeper *k, struct child *c)
{
	char path[SOCKET_PATH_MAX];
	const char *config = keeper_file_copy(k->config, path);
	char logs[PATH_MAX + 8];
	int r = child_arg(c, "%s", k->cachefuse);

	(void)snprintf(logs, sizeof(logs), "%s/log", k->config->cache); /* fits */
	if (r == 0)
		r = file_mkdirs(logs, 0700);
	if (r == 0 && config)
		r = child_arg_text(c, "--config", config);
	else if (r == 0)
		r = child_arg_text(c, "--log-level", k->config->log_level);
	if (r == 0 && asprintf(&c->log_path, "%s/log/%s.log", k->config->cache, c->name) < 0) {
		c->log_path = NULL;
		r = -ENOMEM;
	}
	if (r == 0 && k->config->audit_log)
		r = child_arg_text(c, "--audit-log", k->config->audit_log);
	return r;
}

/* The keeper's own, or the token that the mount was given, or is given again and again: then it has nothing else. */
static int plan_keys(const struct key_options *keys, const json_t *body, struct mount *mount)
{
	struct child *c = &mount->child;
	const char *token = json_string_value(json_object_get(body, "token_file"));
	char own[KEEPER_TOKEN_PATH_MAX];
	int r = 0;

	if (json_is_true(json_object_get(body, "own_token")))
		token = mount_token_path(mount, own);
	if (token)
		r = child_arg_text(c, "--cluster-key", KEY_OPTION_NONE);
	else if (keys->cluster_key)
		r = child_arg_text(c, "--cluster-key", keys->cluster_key);
	token = token ? token : keys->token;
	if (r == 0 && token)
		r = child_arg_text(c, "--token", token);
	if (r == 0 && keys->net_data)
		r = child_arg_text(c, "--net-data", keys->net_data);
	return r;
}

static int plan_fixed(struct keeper *k, struct mount *mount, uint64_t memory)
{
	struct child *c = &mount->child;
	char images[PATH_MAX + 8];
	int r = plan_program(k, c);

	(void)snprintf(images, sizeof(images), "%s/images", k->config->cache); /* fits */
	if (r == 0)
		r = child_arg_text(c, "--source", mount->source);
	if (r == 0)
		r = child_arg_text(c, "--mountpoint", mount->mountpoint);
	if (r == 0)
		r = plan_address(k, c, "--master", k->config->master, "master.rpc");
	if (r == 0 && !(k->config->worker && strcmp(k->config->worker, KEEPER_NO_WORKER) == 0))
		r = plan_address(k, c, "--worker", k->config->worker, "worker.rpc");
	if (r == 0)
		r = child_arg_text(c, "--run-dir", mount->run);
	if (r == 0)
		r = child_arg_text(c, "--image-dir", images);
	if (r == 0)
		r = child_arg_text(c, "--admin", mount->socket);
	if (r == 0)
		r = child_arg_size(c, "--memory", memory);
	return r;
}

static int mount_prepare(
	struct keeper *k, struct mount *mount, const json_t *body, uint64_t memory, struct err *e)
{
	struct child *c = &mount->child;
	int r = plan_fixed(k, mount, memory);

	if (r == 0)
		r = plan_keys(&k->config->keys, body, mount);
	if (r == 0)
		r = plan_body(c, body);
	/* What an ordinary user mounts is shown as it is known: it has no source listed. */
	if (r == 0 && !mount->owned && !json_is_true(json_object_get(body, "refresh_behind")))
		r = child_arg(c, "--refresh"); /* last: left out when it is started again */
	if (r == 0)
		r = mount_open(k, mount, e);
	return r < 0 ? err_default(e, r, "the mount cannot be prepared") : 0;
}

/* ---- one more -------------------------------------------------------------------------------- */

/* The same mount when it is requested twice, as its token tells; -EEXIST: another is in the way; -ENOENT. */
static int find_other(struct keeper *k, const char *mountpoint, uint64_t token,
	struct mount **ret_mount, struct err *e)
{
	list_for_each (node, &k->mounts) {
		struct mount *other = list_entry(node, struct mount, link);

		if (token && other->token == token && strcmp(other->mountpoint, mountpoint) == 0) {
			*ret_mount = other;
			return 0;
		}
		if (other->state == MOUNT_ACTIVE && strcmp(other->mountpoint, mountpoint) == 0 &&
			mounter_peer_point(other->peer) != MOUNTER_DETACHED)
			return err_set(
				e, -EEXIST, "%s is already mounted, or about to be", mountpoint);
	}
	return -ENOENT;
}

static void set_owner(struct mount *mount, struct mount_owner *owner)
{
	if (!owner)
		return;
	mount->owned = true;
	mount->owner = owner->uid;
	mount->point_fd = TAKE_FD(owner->point_fd);
}

int keeper_add_locked(struct keeper *k, const json_t *body, struct mount_owner *owner,
	struct mount **ret_mount, struct err *e)
{
	const char *source = json_string_value(json_object_get(body, "source"));
	const char *mountpoint = json_string_value(json_object_get(body, "mountpoint"));
	uint64_t token = (uint64_t)json_integer_value(json_object_get(body, "token"));
	struct mount_entry entry;
	struct mount *mount;
	uint64_t memory;
	int r;

	if (!source || !mountpoint || mountpoint[0] != '/')
		return err_set(e, -EINVAL, "a mount needs a source and an absolute mountpoint");
	if (k->ending)
		return err_set(
			e, -EAGAIN, "the keeper of %s is ending: try again", k->config->cache);
	if (k->n_mounts >= KEEPER_MOUNTS)
		return err_set(e, -ENOSPC,
			"this cache has %u mounts, which is the maximum: use another --cache",
			k->n_mounts);
	k->idle_since_ns = 0; /* no waiting for the first */
	r = find_other(k, mountpoint, owner ? 0 : token, ret_mount, e);
	if (r != -ENOENT)
		return r;
	r = keeper_memory_mount(k, &memory, e);
	if (r < 0)
		return r;
	mount = mount_new(k, k->next_id, source, mountpoint);
	if (!mount)
		return err_set(e, -ENOMEM, "out of memory");
	set_owner(mount, owner);
	mount->point_taken = mount_table_find(mountpoint, &entry) == 0;
	r = mount_prepare(k, mount, body, memory, e);
	if (r < 0) {
		mount_free(mount);
		return r;
	}
	mount->token = token;
	k->next_id++;
	k->n_mounts++;
	list_push_back(&k->mounts, &mount->link);
	*ret_mount = mount;
	return 0;
}
