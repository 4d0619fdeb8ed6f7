/* The supervisor's answers. See supervisor.h. */
#include "ctl/supervisor.h"
#include "base/log.h"
#include "ctl/fleet.h"
#include "ctl/cache_settings.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void wake(struct supervisor *s)
{
	uint64_t one = 1;

	if (write(s->wake_fd, &one, sizeof(one)) < 0)
		log_debug(
			"wake failed", "cause=%s", err_name(err_errno())); /* full: awake anyway */
}

/* The keeper's status; NULL: there is none, or it does not answer now. */
static json_t *ask_keeper(struct supervisor *s)
{
	struct err e = ERR_INIT;
	json_t *kept = NULL;

	return keeper_call(s, NULL, "/v1/status", NULL, &kept, &e) < 0 ? NULL : kept;
}

static int get_status(
	void *arg, const struct admin_request *request, json_t **ret_json, struct err *e)
{
	struct supervisor *s = arg;
	json_t *kept = ask_keeper(s);
	json_t *json;
	json_t *mounts;
	int r = 0;

	(void)request;
	pthread_mutex_lock(&s->lock);
	json = supervisor_json_locked(s);
	pthread_mutex_unlock(&s->lock);
	mounts = json_object_get(json, "mounts");
	if (mounts && json_object_get(kept, "mounts"))
		r = json_array_extend(mounts, json_object_get(kept, "mounts"));
	json_decref(kept);
	if (!json || r < 0) {
		json_decref(json);
		return err_set(e, -ENOMEM, "out of memory");
	}
	*ret_json = json;
	return 0;
}

static int post_mounts(
	void *arg, const struct admin_request *request, json_t **ret_json, struct err *e)
{
	struct supervisor *s = arg;
	const struct cache_settings settings = { .capacity = s->config->capacity,
		.memory = s->config->memory,
		.log_level = s->config->log_level };
	char socket[SOCKET_PATH_MAX];
	char notice[CACHE_SETTINGS_NOTICE_MAX];
	char name[48];
	json_t *kept = ask_keeper(s);
	unsigned int id = 0;
	int r;

	r = cache_settings_check_credentials(request->body, e);
	if (r < 0) {
		json_decref(kept);
		return r;
	}
	cache_settings_notice(request->body, &settings, notice);
	pthread_mutex_lock(&s->lock);
	r = mount_request_add_locked(s, request->body, kept, &id, e);
	pthread_mutex_unlock(&s->lock);
	json_decref(kept);
	if (r == 0) {
		(void)snprintf(name, sizeof(name), "mount-%u.sock", id); /* fits */
		*ret_json = json_pack("{s:i, s:s, s:s}", "id", (int)id, "socket",
			cache_dir_socket(&s->cache, name, socket), "notice", notice);
		if (!*ret_json)
			r = err_set(e, -EAGAIN, "out of memory"); /* asked again, with its token */
	}
	wake(s);
	return r;
}

static unsigned int id_of(const struct admin_request *request)
{
	const char *text = request->query(request, "id");

	return text ? (unsigned int)strtoul(text, NULL, 10) : 0;
}

/* Master and worker do not serve yet: nor does the mount, though its daemon may. */
static int not_ready(json_t *mount, struct err *e)
{
	const char *state = json_string_value(json_object_get(mount, "state"));

	if (state && strcmp(state, "serving") == 0 &&
		json_object_set_new(mount, "state", json_string("waiting")) < 0)
		return err_set(e, -ENOMEM, "out of memory");
	return 0;
}

static int get_mount(
	void *arg, const struct admin_request *request, json_t **ret_json, struct err *e)
{
	struct supervisor *s = arg;
	uint64_t failures = admin_json_failures();
	unsigned int id = id_of(request);
	const struct mount_request *mr;
	json_t *found = NULL;
	bool passed;
	char path[64];
	int r;

	pthread_mutex_lock(&s->lock);
	mr = mount_request_find_locked(s, id);
	passed = mr && mr->state == MOUNT_REQUEST_PASSED;
	if (mr && !passed)
		found = mount_request_json(s, mr);
	pthread_mutex_unlock(&s->lock);
	if (admin_json_failures() != failures) {
		json_decref(found);
		return err_set(e, -ENOMEM, "out of memory");
	}
	*ret_json = found;
	if (found)
		return 0;
	(void)snprintf(path, sizeof(path), "/v1/mount?id=%u", id); /* fits */
	r = keeper_call(s, NULL, path, NULL, ret_json, e);
	if (fleet_unreachable(r))
		return err_set(e, -EAGAIN, "the keeper is restarting: try again");
	if (passed &&
		r == -ENOENT) /* ended since it was looked at: its request has the reason, or ends soon */
		return err_set(e, -EAGAIN, "the mount is ending: try again");
	return r == 0 && passed ? not_ready(*ret_json, e) : r;
}

/* The starter has read why it failed: nobody else will ask. Or he does not wait for it any
 * longer. */
static int post_mount_read(
	void *arg, const struct admin_request *request, json_t **ret_json, struct err *e)
{
	struct supervisor *s = arg;
	bool give_up = request->query(request, "give_up") != NULL;
	unsigned int id = id_of(request);
	struct mount_request *mr;
	bool of_keeper;
	char path[64];
	int r = 0;

	pthread_mutex_lock(&s->lock);
	mr = mount_request_find_locked(s, id);
	if (mr && mr->state == MOUNT_REQUEST_FAILED)
		mr->forget_ns = clock_mono_ns();
	else if (mr)
		mr->given_up |= give_up;
	of_keeper = !mr || mr->state == MOUNT_REQUEST_PASSED;
	pthread_mutex_unlock(&s->lock);
	*ret_json = NULL;
	if (of_keeper) {
		(void)snprintf(path, sizeof(path), "/v1/mount?id=%u%s", id,
			give_up ? "&give_up=1" : ""); /* fits */
		r = keeper_call(s, "POST", path, NULL, ret_json, e);
	}
	wake(s);
	return r;
}

static int post_end(
	void *arg, const struct admin_request *request, json_t **ret_json, struct err *e)
{
	struct supervisor *s = arg;

	(void)request;
	(void)e;
	pthread_mutex_lock(&s->lock);
	s->ending = true;
	s->forced = true;
	pthread_mutex_unlock(&s->lock);
	wake(s);
	*ret_json = NULL;
	return 0;
}

static const struct admin_route routes[] = {
	{ "GET", "/v1/status", get_status, NULL },
	{ "POST", "/v1/mounts", post_mounts, "mount" },
	{ "GET", "/v1/mount", get_mount, NULL },
	{ "POST", "/v1/mount", post_mount_read, "mount.give_up" },
	{ "POST", "/v1/end", post_end, "end" },
	{ 0 },
};

const struct admin_route *supervisor_routes(void)
{
	return routes;
}
