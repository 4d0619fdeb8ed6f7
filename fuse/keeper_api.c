/* The keeper's answers. See keeper.h. */
#include "fuse/keeper.h"
#include "base/log.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void wake(struct keeper *k)
{
	uint64_t one = 1;

	if (write(k->wake_fd, &one, sizeof(one)) < 0)
		log_debug(
			"wake failed", "cause=%s", err_name(err_errno())); /* full: awake anyway */
}

static int get_status(
	void *arg, const struct admin_request *request, json_t **ret_json, struct err *e)
{
	struct keeper *k = arg;

	(void)request;
	pthread_mutex_lock(&k->lock);
	*ret_json = keeper_json_locked(k);
	pthread_mutex_unlock(&k->lock);
	return *ret_json ? 0 : err_set(e, -ENOMEM, "out of memory");
}

static int post_mounts(
	void *arg, const struct admin_request *request, json_t **ret_json, struct err *e)
{
	struct keeper *k = arg;
	struct mount *mount = NULL;
	int r;

	pthread_mutex_lock(&k->lock);
	r = keeper_add_locked(k, request->body, &mount, e);
	if (r == 0) {
		*ret_json = json_pack("{s:i, s:s}", "id", (int)mount->id, "socket", mount->socket);
		if (!*ret_json)
			r = err_set(e, -EAGAIN, "out of memory"); /* asked again, with its token */
	}
	pthread_mutex_unlock(&k->lock);
	wake(k);
	return r;
}

static struct mount *find_locked(struct keeper *k, const struct admin_request *request)
{
	const char *text = request->query(request, "id");
	unsigned long id = text ? strtoul(text, NULL, 10) : 0;

	list_for_each (node, &k->mounts) {
		struct mount *mount = list_entry(node, struct mount, link);

		if (mount->id == id)
			return mount;
	}
	return NULL;
}

static int get_mount(
	void *arg, const struct admin_request *request, json_t **ret_json, struct err *e)
{
	struct keeper *k = arg;
	uint64_t failures = admin_json_failures();
	const struct mount *mount;
	json_t *found = NULL;

	pthread_mutex_lock(&k->lock);
	mount = find_locked(k, request);
	if (mount)
		found = mount_json(k, mount);
	pthread_mutex_unlock(&k->lock);
	if (admin_json_failures() != failures) {
		json_decref(found);
		return err_set(e, -ENOMEM, "out of memory");
	}
	*ret_json = found;
	return found ? 0 : err_set(e, -ENOENT, "no mount has that id");
}

static int post_mount(
	void *arg, const struct admin_request *request, json_t **ret_json, struct err *e)
{
	struct keeper *k = arg;
	struct mount *mount;

	(void)e;
	pthread_mutex_lock(&k->lock);
	mount = find_locked(k, request);
	if (mount && mount->state == MOUNT_FAILED)
		mount->forget_ns = clock_mono_ns();
	else if (mount)
		mount->given_up |= request->query(request, "give_up") != NULL;
	pthread_mutex_unlock(&k->lock);
	wake(k);
	*ret_json = NULL;
	return 0;
}

static int post_refresh(
	void *arg, const struct admin_request *request, json_t **ret_json, struct err *e)
{
	struct keeper *k = arg;
	const char *point = json_string_value(json_object_get(request->body, "mountpoint"));
	uint64_t token = (uint64_t)json_integer_value(json_object_get(request->body, "token"));
	struct mount *mount = NULL;
	int r;

	if (!point)
		return err_set(e, -EINVAL, "a refresh needs a mountpoint");
	pthread_mutex_lock(&k->lock);
	r = keeper_refresh_locked(k, point, token, &mount, e);
	if (r == 0)
		*ret_json = json_pack("{s:i}", "id", (int)mount->id); /* NULL: looked at later */
	pthread_mutex_unlock(&k->lock);
	wake(k);
	return r;
}

static int post_upgrade(
	void *arg, const struct admin_request *request, json_t **ret_json, struct err *e)
{
	struct keeper *k = arg;
	const char *what = json_string_value(json_object_get(request->body, "what"));
	const char *dir = json_string_value(json_object_get(request->body, "program"));
	int r = -EINVAL;

	if (!dir || dir[0] != '/')
		return err_set(e, -EINVAL, "the programs' directory must be an absolute path");
	pthread_mutex_lock(&k->lock);
	if (what && strcmp(what, "mounts") == 0)
		r = keeper_upgrade_mounts_locked(k, dir, e);
	else if (what && strcmp(what, "keeper") == 0)
		r = keeper_upgrade_self_locked(k, dir, e);
	else
		(void)err_set(e, -EINVAL, "what is upgraded is \"mounts\" or \"keeper\"");
	pthread_mutex_unlock(&k->lock);
	wake(k);
	*ret_json = NULL;
	return r;
}

static int post_end(
	void *arg, const struct admin_request *request, json_t **ret_json, struct err *e)
{
	struct keeper *k = arg;

	(void)request;
	(void)e;
	pthread_mutex_lock(&k->lock);
	k->ending = true;
	k->forced = true;
	pthread_mutex_unlock(&k->lock);
	wake(k);
	*ret_json = NULL;
	return 0;
}

static const struct admin_route routes[] = {
	{ "GET", "/v1/status", get_status, NULL },
	{ "POST", "/v1/mounts", post_mounts, "mount" },
	{ "GET", "/v1/mount", get_mount, NULL },
	{ "POST", "/v1/mount", post_mount, "mount.give_up" },
	{ "POST", "/v1/refresh", post_refresh, "refresh" },
	{ "POST", "/v1/upgrade", post_upgrade, "upgrade" },
	{ "POST", "/v1/end", post_end, "end" },
	{ 0 },
};

const struct admin_route *keeper_routes(void)
{
	return routes;
}
