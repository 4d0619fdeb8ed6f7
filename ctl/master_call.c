/* Finding the master. See master_call.h. */
#include "ctl/master_call.h"
#include "admin/admin.h"
#include "ctl/cache_dir.h"
#include "ctl/fleet.h"
#include "ctl/master_wire.h"
#include "ctl/service.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define SHOWN 3u /* private masters named when there are several */

/* ---- private ones ---------------------------------------------------------------------------- */

struct private
{
	char preferred[SOCKET_PATH_MAX]; /* that of the default cache directory */
	char found[SOCKET_PATH_MAX];
	char caches[ERR_TEXT_MAX / 2]; /* theirs, for the line */
	unsigned int n;
};

static void note_cache(struct private *p, const char *run)
{
	json_t *state = fleet_state(run);
	const char *cache = json_string_value(json_object_get(state, "cache"));
	size_t len = strlen(p->caches);

	if (cache && p->n <= SHOWN)
		(void)snprintf(p->caches + len, sizeof(p->caches) - len, "%s%s", len ? ", " : "",
			cache); /* cut */
	json_decref(state);
}

static int visit(void *arg, const char *run)
{
	struct private *p = arg;

	if (service_is_run(run) || !fleet_alive(run, "master.sock"))
		return 0;
	p->n++;
	note_cache(p, run);
	return service_path(run, "master.sock", p->found);
}

static int socket_of_cache(const char *path, char out[SOCKET_PATH_MAX], struct err *e)
{
	struct cache_dir cache;
	int r = cache_dir_find(path, &cache, e);

	if (r == 0)
		(void)cache_dir_socket(&cache, "master.sock", out);
	return r;
}

static int find_private(char out[SOCKET_PATH_MAX], struct err *e)
{
	struct private p = { 0 };
	char path[PATH_MAX];
	struct err ignored = ERR_INIT;
	int r = fleet_each_run(visit, &p);

	if (r < 0)
		return err_set(e, r, "the runtime directory cannot be read: %s: give --master",
			err_str(r));
	if (p.n == 0)
		return err_set(e, -ENOENT,
			"no master is running on this host: start it (`systemctl start "
			"granary-master`), mount something, or give --master");
	if (p.n > 1 && cache_dir_default(path, &ignored) == 0 &&
		socket_of_cache(path, p.preferred, &ignored) == 0 && access(p.preferred, F_OK) == 0)
		memcpy(p.found, p.preferred, sizeof(p.found));
	else if (p.n > 1)
		return err_set(e, -EEXIST,
			"%u private masters are running on this host (of %s%s): give "
			"--cache DIR",
			p.n, p.caches, p.n > SHOWN ? ", ..." : "");
	memcpy(out, p.found, sizeof(p.found));
	return 0;
}

/* ---- the one --------------------------------------------------------------------------------- */

/* A socket's path, "HOST:PORT" of its --admin-listen, or where it listens for the cluster. */
static int take_given(const char *given, char out[SOCKET_PATH_MAX], struct err *e)
{
	bool plain = !strchr(given, '/') && strchr(given, ':');
	int n;

	if (admin_is_tcp(given) || strncmp(given, "unix:", 5) == 0)
		return master_wire_take(given, out, e);
	n = snprintf(out, SOCKET_PATH_MAX, "%s%s", plain ? ADMIN_TCP : "", given);

	if (admin_is_tcp(out) && n < SOCKET_PATH_MAX)
		return admin_tcp_check(out, e);
	return unix_socket_check(given, e);
}

int master_find(const struct master_where *where, char out[SOCKET_PATH_MAX], struct err *e)
{
	const char *named = getenv("GRANARY_MASTER"); // NOLINT(concurrency-mt-unsafe): one thread
	char run[SOCKET_PATH_MAX];

	if (where->master && where->cache)
		return err_set(
			e, -EINVAL, "--master and --cache exclude each other: give one of them");
	if (where->master)
		return take_given(where->master, out, e);
	if (where->cache)
		return socket_of_cache(where->cache, out, e);
	if (named && *named)
		return take_given(named, out, e);
	if (!service_there()) {
		struct err why = ERR_INIT;
		int r = find_private(out, &why);

		if (r == -ENOENT && master_wire_of_node(out))
			return 0;
		return r < 0 ? err_set(e, r, "%s", why.text) : 0;
	}
	if (service_path(service_run(run), "master.sock", out) < 0)
		return err_set(e, -ENAMETOOLONG, "%s is too long for sockets", run);
	if (access(out, F_OK) != 0)
		(void)master_wire_of_node(out); /* else the service's own, which does not run */
	return 0;
}

/* " since 2026-01-31T12:00:01Z"; "" when that is not known. A daemon that ends takes its socket away,
 * which is when its directory changed; one that was killed leaves it. */
static const char *since(const char *socket, char *out, size_t size)
{
	char dir[SOCKET_PATH_MAX];
	struct stat st;
	char time[CLOCK_TEXT_MAX];
	char *slash;

	out[0] = '\0';
	(void)snprintf(dir, sizeof(dir), "%s", socket); /* no longer */
	slash = strrchr(dir, '/');
	if (!slash || slash == dir || access(socket, F_OK) == 0)
		return out;
	*slash = '\0';
	if (stat(dir, &st) == 0)
		(void)snprintf(out, size, " since %s",
			clock_text((uint64_t)st.st_mtim.tv_sec, time)); /* fits */
	return out;
}

/* What starts the master whose socket that is. */
static int unreachable(
	const struct master_where *where, const char *socket, int code, struct err *e)
{
	char of_service[SOCKET_PATH_MAX];
	char run[SOCKET_PATH_MAX];
	char when[48];
	bool service = service_path(service_run(run), "master.sock", of_service) == 0 &&
		       strcmp(socket, of_service) == 0;

	(void)since(socket, when, sizeof(when));
	if (code == -EACCES && service)
		return err_set(e, -EPERM,
			"permission denied: only root and group granary may use the service's "
			"master (%s); use sudo, or join the group",
			socket);
	if (code == -EACCES)
		return err_set(e, -EPERM,
			"permission denied: %s belongs to another user; run as that user or as "
			"root",
			socket);
	if (service)
		return err_set(e, -ECONNREFUSED,
			"the service's master does not answer%s: systemctl start granary-master "
			"(its socket is %s); mounts continue without it",
			when, socket);
	if (where->cache)
		return err_set(e, -ECONNREFUSED,
			"no master runs for the cache %s: it runs while something of that cache is "
			"mounted",
			where->cache);
	return err_set(e, -ECONNREFUSED,
		"no master answers on %s%s: start it, or give another one with "
		"--master",
		socket, when);
}

/* Over the listener of --admin-listen, which is read-only. */
static int call_over_tcp(const char *address, const char *method, const char *path,
	const json_t *body, uint64_t timeout_ns, json_t **ret_json, struct err *e)
{
	const char *shown = address + strlen(ADMIN_TCP);
	int r = admin_call(address, method, path, body, timeout_ns, ret_json, e);

	if (r == -ECONNREFUSED && e)
		return err_set(e, r,
			"no master listens on %s: start it with --admin-listen %s, or name its "
			"socket",
			shown, shown);
	if (r == -EBADMSG && e)
		return err_set(e, r,
			"%s is not an --admin-listen address: for the address of workers "
			"and mounts, write tcp:%s",
			shown, shown);
	if (r == -EHOSTUNREACH && e)
		return err_set(e, r, "host of %s not found: check --master", shown);
	if (r == -EPERM)
		return err_set(e, r,
			"permission denied: --master %s is read-only; to change something, "
			"give the master's socket on its host",
			shown);
	return r;
}

int master_call(const struct master_where *where, const char *method, const char *path,
	const json_t *body, uint64_t timeout_ns, json_t **ret_json, struct err *e)
{
	char socket[SOCKET_PATH_MAX];
	int fd = -1;
	int r = master_find(where, socket, e);

	if (r == -ENOENT) { /* which is what a master says of a dataset that it does not know */
		r = -ECONNREFUSED;
		if (e)
			e->code = r;
	}
	if (r < 0)
		return r;
	if (master_is_wire(socket))
		return master_wire_call(socket, method, path, body, timeout_ns, ret_json, e);
	if (admin_is_tcp(socket))
		return call_over_tcp(socket, method, path, body, timeout_ns, ret_json, e);
	r = unix_socket_connect(socket, &fd); /* -EACCES may be the master's own answer, too */
	if (r < 0 && r != -EAGAIN)
		return r == -EACCES || r == -ENOENT || fleet_unreachable(r)
			       ? unreachable(where, socket, r, e)
			       : err_set(e, r, "%s: %s", socket, err_str(r));
	if (fd >= 0)
		(void)close(fd); /* nothing was sent */
	return admin_call(socket, method, path, body, timeout_ns, ret_json, e);
}
