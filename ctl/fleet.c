/* Finding what runs. See fleet.h. */
#include "ctl/fleet.h"
#include "admin/admin.h"
#include "admin/state_file.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/unix_socket.h"
#include "ctl/service.h"

#include <dirent.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define ANSWER_NS  (5 * CLOCK_SECOND)
#define SILENCE_NS (2 * CLOCK_SECOND)
#define SETTLE_NS \
	(25 * CLOCK_SECOND) /* the last mount's daemon, then worker and master, which may hang */

static uint64_t deadline_ns; /* 0: none */

void fleet_set_deadline(uint64_t mono_ns)
{
	deadline_ns = mono_ns;
}

uint64_t fleet_timeout(void)
{
	uint64_t now = clock_mono_ns();

	if (deadline_ns == 0)
		return ANSWER_NS;
	return deadline_ns > now + CLOCK_MS ? deadline_ns - now : CLOCK_MS;
}

/* The directories of a service's master and worker are no runtime directories of their own: they
 * are found by its keeper's, and would be counted twice. */
static bool is_part(const char *base, const char *name)
{
	char service[SOCKET_PATH_MAX];
	size_t len = strlen(service_run(service)) - strlen("/keeper");

	return (strcmp(name, "master") == 0 || strcmp(name, "worker") == 0) &&
	       strlen(base) == len && strncmp(base, service, len) == 0 && service_there();
}

static int each_run_of(const char *base, int (*fn)(void *arg, const char *run), void *arg)
{
	char run[PATH_MAX];
	const struct dirent *entry;
	DIR *dir = opendir(base);
	int r = 0;

	if (!dir)
		return errno == ENOENT ? 0 : err_errno();
	while (r == 0 && (entry = readdir(dir))) {
		if (entry->d_name[0] == '.' || is_part(base, entry->d_name))
			continue;
		if (snprintf(run, sizeof(run), "%s/%s", base, entry->d_name) < (int)sizeof(run))
			r = fn(arg, run);
	}
	(void)closedir(dir); /* read only */
	return r;
}

int fleet_each_run(int (*fn)(void *arg, const char *run), void *arg)
{
	char bases[CACHE_RUN_BASES][PATH_MAX];
	char service[SOCKET_PATH_MAX];
	size_t base = strlen(service_run(service)) - strlen("/keeper");
	bool walked = false;
	unsigned int n;
	int r = 0;

	cache_dir_run_bases(bases, &n); /* none: no place for sockets, so nothing runs */
	for (unsigned int i = 0; i < n && r == 0; i++) {
		walked |= strlen(bases[i]) == base && strncmp(bases[i], service, base) == 0;
		r = each_run_of(bases[i], fn, arg);
	}
	/* Whoever may pass its directory may ask it; private ones of other users are closed. */
	if (!walked && r == 0 && access(service, R_OK | X_OK) == 0)
		r = fn(arg, service);
	return r;
}

json_t *fleet_saved(const char *run)
{
	char path[PATH_MAX];
	json_t *json = NULL;

	if (snprintf(path, sizeof(path), "%s/keeper.json", run) >= (int)sizeof(path) ||
		state_file_read(path, 0, &json) < 0)
		return NULL;
	return json;
}

/* Its file is root's: others of the group of a service ask the keeper, whose answer has the same rows. */
json_t *fleet_state(const char *run)
{
	json_t *kept = fleet_saved(run);
	struct err ignored = ERR_INIT;

	if (!kept && geteuid() != 0 && service_is_run(run) &&
		fleet_call(run, "keeper.sock", "/v1/status", &kept, &ignored) < 0)
		return NULL;
	return kept;
}

const json_t *fleet_arguments(const json_t *state, const char *point)
{
	const json_t *mount;
	size_t i;

	json_array_foreach (json_object_get(state, "mounts"), i, mount) {
		const char *its = json_string_value(json_object_get(mount, "mountpoint"));

		if (its && strcmp(its, point) == 0)
			return json_object_get(mount, "args");
	}
	return NULL;
}

bool fleet_detached(const json_t *mount)
{
	const char *point = json_string_value(json_object_get(mount, "point"));

	return point && strcmp(point, "detached") == 0;
}

/* ---- choosing a cache ------------------------------------------------------------------------ */

#define SHOWN 4u /* caches that a refusal names */

struct choosing {
	bool (*has)(void *arg, const char *run);
	void *arg;
	char run[PATH_MAX]; /* the only one to act on; "": all */
	json_t *runs;       /* those for which has() is true */
	bool service;       /* its is among them */
	char names[ERR_TEXT_MAX / 2];
};

const char *fleet_cache_name(const char *run, char *out, size_t size)
{
	json_t *state = fleet_state(run);
	const char *cache = json_string_value(json_object_get(state, "cache"));

	(void)snprintf(out, size, "%s", service_is_run(run) ? "the service" : cache ? cache : run);
	json_decref(state);
	return out;
}

static int add_one(void *arg, const char *run)
{
	struct choosing *c = arg;
	size_t len = strlen(c->names);
	char name[PATH_MAX];

	if ((c->run[0] && strcmp(c->run, run) != 0) || !c->has(c->arg, run))
		return 0;
	c->service |= service_is_run(run);
	if (json_array_size(c->runs) < SHOWN)
		(void)snprintf(c->names + len, sizeof(c->names) - len, "%s%s", len ? ", " : "",
			fleet_cache_name(run, name, sizeof(name))); /* cut */
	return json_array_append_new(c->runs, json_string(run)) < 0 ? -ENOMEM : 0;
}

/* Without a choice the service's, where it is one of them. */
static int act_on(const struct choosing *c, const struct fleet_choice *choice,
	int (*fn)(void *arg, const char *run))
{
	bool service = c->service && !choice->all && !choice->cache;
	const json_t *one;
	size_t i;
	int r = 0;

	json_array_foreach (c->runs, i, one)
		if (r == 0 && (!service || service_is_run(json_string_value(one))))
			r = fn(c->arg, json_string_value(one));
	return r;
}

int fleet_each_chosen(const struct fleet_choice *choice, bool (*has)(void *arg, const char *run),
	int (*fn)(void *arg, const char *run), void *arg, unsigned int *ret_n, struct err *e)
{
	struct choosing c = { .has = has, .arg = arg };
	struct cache_dir cache;
	size_t n;
	int r = 0;

	*ret_n = 0;
	if (choice->cache && choice->all)
		return err_set(
			e, -EINVAL, "--cache and --all exclude each other: give one of them");
	if (choice->cache)
		r = cache_dir_find(choice->cache, &cache, e);
	if (r < 0)
		return r;
	if (choice->cache)
		(void)snprintf(c.run, sizeof(c.run), "%s", cache.run); /* fits */
	c.runs = json_array();
	r = c.runs ? fleet_each_run(add_one, &c) : -ENOMEM;
	n = json_array_size(c.runs);
	if (r == 0 && n > 1 && !choice->all && !c.service)
		r = err_set(e, -EEXIST,
			"%zu caches are in use on this host: %s%s: give --cache DIR, or --all", n,
			c.names, n > SHOWN ? ", ..." : "");
	if (r == 0) {
		*ret_n = (unsigned int)n;
		r = act_on(&c, choice, fn);
	}
	json_decref(c.runs);
	return r;
}

struct search {
	const char *point;
	bool below;
	struct fleet_mount *mount;
	size_t best; /* length of the mount point found */
};

static bool covers(const struct search *search, const char *mountpoint)
{
	size_t len = strlen(mountpoint);

	if (!search->below)
		return strcmp(mountpoint, search->point) == 0;
	return strncmp(mountpoint, search->point, len) == 0 &&
	       (search->point[len] == '\0' || search->point[len] == '/');
}

/* Do other mount points show what the same daemon serves? */
static bool is_shared(const json_t *mounts, const json_t *mount)
{
	json_int_t pid = json_integer_value(json_object_get(mount, "pid"));
	const json_t *other;
	unsigned int n = 0;
	size_t i;

	json_array_foreach (mounts, i, other)
		n += !fleet_detached(other) &&
		     json_integer_value(json_object_get(other, "pid")) == pid;
	return n > 1 || json_object_get(mount, "server");
}

static int look(void *arg, const char *run)
{
	struct search *search = arg;
	json_t *state = fleet_state(run);
	const json_t *mount;
	size_t i;

	json_array_foreach (json_object_get(state, "mounts"), i, mount) {
		const char *mountpoint = json_string_value(json_object_get(mount, "mountpoint"));
		const char *socket = json_string_value(json_object_get(mount, "socket"));
		const char *source = json_string_value(json_object_get(mount, "source"));
		struct fleet_mount *m = search->mount;

		if (fleet_detached(mount) || !mountpoint || !socket ||
			!covers(search, mountpoint) || strlen(mountpoint) < search->best)
			continue;
		search->best = strlen(mountpoint);
		(void)snprintf(m->run, sizeof(m->run), "%s",
			run); /* lengths were checked when they were made */
		(void)snprintf(m->mountpoint, sizeof(m->mountpoint), "%s", mountpoint);
		(void)snprintf(m->socket, sizeof(m->socket), "%s", socket);
		(void)snprintf(
			m->source, sizeof(m->source), "%s", source ? source : ""); /* shown */
		m->shared = is_shared(json_object_get(state, "mounts"), mount);
		m->pid = (pid_t)json_integer_value(json_object_get(mount, "daemon"));
		m->started = (uint64_t)json_integer_value(json_object_get(mount, "started"));
		m->owned = json_object_get(mount, "owner") != NULL;
		m->owner = (uid_t)json_integer_value(json_object_get(mount, "owner"));
	}
	json_decref(state);
	return 0;
}

int fleet_find(const char *point, bool below, struct fleet_mount *ret_mount)
{
	struct search search = { .point = point, .below = below, .mount = ret_mount };
	int r = fleet_each_run(look, &search);

	if (r < 0)
		return r;
	return search.best > 0 ? 0 : -ENOENT;
}

int fleet_call(
	const char *run, const char *name, const char *path, json_t **ret_json, struct err *e)
{
	char socket[SOCKET_PATH_MAX];

	if (service_path(run, name, socket) < 0)
		return err_set(e, -ENAMETOOLONG,
			"%s is too long for a socket: set GRANARY_RUN_DIR to a shorter one", run);
	return admin_call(socket, NULL, path, NULL, fleet_timeout(), ret_json, e);
}

bool fleet_alive(const char *run, const char *name)
{
	_cleanup_close_ int fd = -1;
	char socket[SOCKET_PATH_MAX];
	int r;

	if (service_path(run, name, socket) < 0)
		return false;
	r = unix_socket_connect(socket, &fd);
	return r == 0 || r == -EAGAIN; /* behind with answers is alive */
}

pid_t fleet_listener(const char *socket)
{
	_cleanup_close_ int fd = -1;
	struct ucred peer = { 0 };
	socklen_t size = sizeof(peer);

	if (unix_socket_connect(socket, &fd) < 0 ||
		getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0)
		return -ENOENT;
	return peer.pid;
}

struct left {
	int mounts; /* that are still there or being made; -1: no keeper answers */
	bool at;   /* the mount point is among them, or the daemon of what was mounted there ends */
	bool ends; /* all of them have only a daemon that ends: nothing uses what it served */
	bool forever; /* the keeper stays when there are none */
};

static struct left ask_left(const char *run, const char *point)
{
	struct left left = { .mounts = -1 };
	json_t *json = NULL;
	const json_t *mount;
	struct err e = ERR_INIT;
	size_t i;

	if (fleet_call(run, "keeper.sock", "/v1/status", &json, &e) < 0)
		return left;
	left.mounts = (int)json_array_size(json_object_get(json, "mounts"));
	left.forever = json_is_true(json_object_get(json, "stays"));
	left.ends = left.mounts > 0 && !left.forever;
	json_array_foreach (json_object_get(json, "mounts"), i, mount) {
		const char *at = json_string_value(json_object_get(mount, "mountpoint"));
		bool detached = fleet_detached(mount);
		bool ends = detached && json_is_false(json_object_get(mount, "connected"));

		left.at |= at && strcmp(at, point) == 0 && (!detached || ends);
		left.ends &= ends;
	}
	json_decref(json);
	return left;
}

void fleet_settle(const char *run, const char *point)
{
	uint64_t now = clock_mono_ns();
	uint64_t deadline = now + SETTLE_NS;
	uint64_t heard = now;

	/* its directory goes last; one that was killed leaves it */
	while (now < deadline && now - heard < SILENCE_NS && access(run, F_OK) == 0) {
		struct left left = ask_left(run, point);

		if (!left.at && !left.ends &&
			(left.mounts > 0 || (left.mounts == 0 && left.forever)))
			return; /* it has others */
		if (left.mounts >= 0)
			heard = now;
		clock_sleep_ns(10 * CLOCK_MS);
		now = clock_mono_ns();
	}
}
