/* The keeper's answers. See keeper.h. */
#include "keeper/keeper.h"
#include "keeper/keeper_file.h"
#include "admin/cache_settings.h"
#include "admin/metrics.h"
#include "base/log.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void keeper_wake(struct keeper *k)
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

/* Of a private cache, whose settings are those of the mount that started it: what this request cannot change goes to `notice`. */
static int check_settings(const struct keeper *k, const json_t *body,
	char notice[CACHE_SETTINGS_NOTICE_MAX], struct err *e)
{
	const struct cache_settings in_force = { .capacity = k->config->capacity,
		.memory = k->config->private_memory,
		.log_level = k->config->log_level };
	int r;

	notice[0] = '\0';
	if (!k->config->is_private)
		return 0;
	r = cache_settings_check_credentials(body, e);
	if (r == 0)
		cache_settings_notice(body, &in_force, notice);
	return r;
}

static int post_mounts(
	void *arg, const struct admin_request *request, json_t **ret_json, struct err *e)
{
	struct keeper *k = arg;
	char notice[CACHE_SETTINGS_NOTICE_MAX];
	struct mount *mount = NULL;
	int r;

	if (admin_right(&request->caller, RIGHTS_OP_USE) != RIGHT_ALL) {
		r = keeper_user_mount(k, request, ret_json, e);
		keeper_wake(k);
		return r;
	}
	r = check_settings(k, request->body, notice, e);
	if (r < 0)
		return r;
	pthread_mutex_lock(&k->lock);
	r = keeper_add_locked(k, request->body, NULL, &mount, e);
	if (r == 0) {
		*ret_json = json_pack("{s:i, s:s, s:s}", "id", (int)mount->id, "socket",
			mount->socket, "notice", notice);
		if (!*ret_json)
			r = err_set(e, -EAGAIN, "out of memory"); /* asked again, with its token */
	}
	pthread_mutex_unlock(&k->lock);
	keeper_wake(k);
	return r;
}

static struct mount *find_locked(struct keeper *k, const struct admin_request *request)
{
	const char *text = request->query(request, "id");

	return keeper_mount(k, text ? (unsigned int)strtoul(text, NULL, 10) : 0);
}

static int get_mount(
	void *arg, const struct admin_request *request, json_t **ret_json, struct err *e)
{
	struct keeper *k = arg;
	uint64_t failures = admin_json_failures();
	struct mount *mount;
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
	int r;

	pthread_mutex_lock(&k->lock);
	mount = find_locked(k, request);
	r = keeper_user_check_end(request, mount, e);
	if (r == 0 && mount && mount->state == MOUNT_FAILED)
		mount->forget_ns = clock_mono_ns();
	else if (r == 0 && mount)
		mount->given_up |= request->query(request, "give_up") != NULL;
	pthread_mutex_unlock(&k->lock);
	keeper_wake(k);
	*ret_json = NULL;
	return r;
}

static int post_unmount(
	void *arg, const struct admin_request *request, json_t **ret_json, struct err *e)
{
	struct keeper *k = arg;
	int r = keeper_unmount(k, request, ret_json, e);

	keeper_wake(k);
	return r;
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
	r = keeper_refresh_locked(k, point, token, true, &mount, e);
	if (r == 0)
		*ret_json = json_pack("{s:i}", "id", (int)mount->id); /* NULL: looked at later */
	pthread_mutex_unlock(&k->lock);
	keeper_wake(k);
	return r;
}

/* The next keeper reads the configuration before anything else, and must not end for that. */
static int upgrade_self_locked(struct keeper *k, const char *dir, struct err *e)
{
	int r = k->config->file ? config_check(k->config->file, e) : 0;

	if (r == 0)
		r = keeper_file_take(k->config, e);
	return r < 0 ? r : keeper_upgrade_self_locked(k, dir, e);
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
		r = upgrade_self_locked(k, dir, e);
	else
		(void)err_set(e, -EINVAL, "invalid upgrade: use \"mounts\" or \"keeper\"");
	pthread_mutex_unlock(&k->lock);
	keeper_wake(k);
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
	k->leave_ns = 0; /* none is left to a successor */
	pthread_mutex_unlock(&k->lock);
	keeper_wake(k);
	*ret_json = NULL;
	return 0;
}

/* What ordinary users may do with their own mounts. */
static const char *const used[] = { "mount", "mount.give_up", "unmount", NULL };

static const struct admin_route routes[] = {
	{ "GET", "/v1/status", get_status, NULL },
	{ "POST", "/v1/mounts", post_mounts, "mount" },
	{ "GET", "/v1/mount", get_mount, NULL },
	{ "POST", "/v1/mount", post_mount, "mount.give_up" },
	{ "POST", "/v1/unmount", post_unmount, "unmount" },
	{ "POST", "/v1/refresh", post_refresh, "refresh" },
	{ "POST", "/v1/upgrade", post_upgrade, "upgrade" },
	{ "POST", "/v1/end", post_end, "end" },
	{ 0 },
};

/* ---- metrics --------------------------------------------------------------------------------- */

/* One line for a person, NULL: it serves. */
static const char *trouble_of(const struct mount *mount)
{
	if (mount->state != MOUNT_ACTIVE)
		return NULL;
	if (mount->lost)
		return "its connection is gone";
	return mount->dead_since ? "no daemon serves it now" : NULL;
}

static void write_metrics(void *arg, struct metrics *m)
{
	static const struct metric_family up = { "granary_keeper_mount_up", GAUGE, "boolean",
		"Has the mount a daemon that serves it?" };
	static const struct metric_family restarts = { "granary_keeper_mount_restarts_total",
		COUNTER, "daemons", "Daemons of the mount started again" };
	static const struct metric_family refused = { "granary_keeper_refused_requests_total",
		COUNTER, "requests", "Requests answered EIO: no daemon served them for too long" };
	static const struct metric_family *const families[] = { &up, &restarts, &refused };
	struct keeper *k = arg;

	pthread_mutex_lock(&k->lock);
	for (size_t f = 0; f < ARRAY_SIZE(families); f++) {
		metrics_family(m, families[f]);
		list_for_each (node, &k->mounts) {
			const struct mount *mount = list_entry(node, struct mount, link);
			const uint64_t values[] = { trouble_of(mount) == NULL,
				mount->child.restarts, mount->refused };

			if (mount->state == MOUNT_ACTIVE)
				metrics_value(m, families[f],
					METRIC_LABELS({ "mountpoint", mount->mountpoint }),
					values[f]);
		}
	}
	pthread_mutex_unlock(&k->lock);
}

static void say_ready(void *arg, json_t *reasons)
{
	struct keeper *k = arg;

	pthread_mutex_lock(&k->lock);
	if (k->ending)
		(void)json_array_append_new(reasons, json_string("it is ending"));
	list_for_each (node, &k->mounts) {
		const struct mount *mount = list_entry(node, struct mount, link);
		const char *trouble = trouble_of(mount);

		if (trouble)
			(void)json_array_append_new(
				reasons, json_sprintf("%s: %s", mount->mountpoint, trouble));
	}
	pthread_mutex_unlock(&k->lock);
}

int keeper_answer(struct keeper *k, struct err *e)
{
	char path[SOCKET_PATH_MAX];
	int r = admin_server_new(keeper_path(k, "keeper.sock", path), routes, k, &k->admin, e);

	if (r < 0)
		return r;
	admin_server_allow_use(k->admin, used);
	admin_server_on_ready(k->admin, say_ready, k);
	if (admin_server_add_metrics(k->admin, write_metrics, k) < 0)
		return err_set(e, -ENOMEM, "out of memory");
	return admin_server_listen(k->admin, &k->config->admin_listen, NULL, e);
}
