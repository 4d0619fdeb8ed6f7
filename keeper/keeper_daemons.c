/*
 * Master and worker of a private cache: started with its keeper, started again when they die, and ended after the last mount.
 * A service has them from its service manager.
 *
 * All daemons start at once: the mount's daemon starts next to master and worker, and waits for the master as it does in a
 * cluster. The mount counts as serving once master and worker serve, too. When one of these cannot start, its reason is that of
 * every mount that has not served yet, and those are ended.
 */
#include "keeper/keeper.h"
#include "base/capabilities.h"
#include "base/cleanup.h"
#include "base/file.h"
#include "base/log.h"
#include "base/notify.h"
#include "base/programs.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#define ENVIRONMENT_BYTES (2u << 20) /* of a process; execve(2) takes no more by default */

static const char *const programs[KEEPER_DAEMONS] = {
	[KEEPER_MASTER] = "cachemaster",
	[KEEPER_WORKER] = "cacheworker",
};

static const char *const names[KEEPER_DAEMONS] = {
	[KEEPER_MASTER] = "master",
	[KEEPER_WORKER] = "worker",
};

/* ---- memory: a quarter for the master, whose listings are faster when they need no disk -------- */

static uint64_t worker_memory(const struct keeper_config *config)
{
	return config->private_memory / 8 * 3;
}

static uint64_t master_memory(const struct keeper_config *config)
{
	return config->private_memory / 4;
}

uint64_t keeper_daemons_rest(const struct keeper_config *config)
{
	return config->private_memory - worker_memory(config) - master_memory(config);
}

/* ---- command lines --------------------------------------------------------------------------- */

static int plan_common(struct keeper *k, struct child *child, const char *dir, const char *program)
{
	int r = child_arg(child, "%s/%s", dir, program);

	if (r == 0)
		r = child_arg_text(child, "--log-level", k->config->log_level);
	if (r == 0 && k->config->audit_log)
		r = child_arg_text(child, "--audit-log", k->config->audit_log);
	if (r == 0 &&
		asprintf(&child->log_path, "%s/log/%s.log", k->config->cache, child->name) < 0) {
		child->log_path = NULL;
		r = -ENOMEM;
	}
	return r;
}

/* "--option unix:RUN/name" (prefix "unix:") or the bare path (prefix ""). */
static int plan_socket(struct keeper *k, struct child *child, const char *option,
	const char *prefix, const char *name)
{
	char path[SOCKET_PATH_MAX];
	int r = child_arg(child, "%s", option);

	return r == 0 ? child_arg(child, "%s%s", prefix, keeper_path(k, name, path)) : r;
}

static int plan_master(struct keeper *k, struct child *c)
{
	char state[PATH_MAX + 8];
	int r;

	(void)snprintf(state, sizeof(state), "%s/master", k->config->cache); /* fits */
	r = child_arg_text(c, "--state", state);
	if (r == 0)
		r = child_arg_size(c, "--memory", master_memory(k->config));
	if (r == 0)
		r = plan_socket(k, c, "--listen", "unix:", "master.rpc");
	if (r == 0)
		r = plan_socket(k, c, "--admin", "", "master.sock");
	if (r == 0) /* for a private cache `cachectl backup` is enough */
		r = child_arg_number(c, "--daily-backups", 0);
	return r;
}

static int plan_worker(struct keeper *k, struct child *c)
{
	char tier[PATH_MAX + 8];
	int r;

	(void)snprintf(tier, sizeof(tier), "%s/tier", k->config->cache); /* fits */
	r = child_arg_text(c, "--tier", tier);
	if (r == 0)
		r = child_arg(c, "--create");
	if (r == 0 && k->config->capacity)
		r = child_arg_size(c, "--capacity", k->config->capacity);
	if (r == 0)
		r = child_arg_size(c, "--memory", worker_memory(k->config));
	if (r == 0)
		r = plan_socket(k, c, "--master", "unix:", "master.rpc");
	if (r == 0)
		r = plan_socket(k, c, "--listen", "unix:", "worker.rpc");
	if (r == 0)
		r = plan_socket(k, c, "--admin", "", "worker.sock");
	/* At first a cache that cannot be used is refused; later its readers are more important. */
	c->again = "--serve-without-tier";
	return r;
}

/* The daemons to come take the master of this directory for theirs, whichever they met before (net/fence.h): here it is the only
 * one, and what it lost is not to be waited for. */
static void forget_master(const struct keeper *k)
{
	static const char *const files[] = { "tier/seen/cluster", "images/cluster" };
	char path[PATH_MAX + 32];

	for (size_t i = 0; i < ARRAY_SIZE(files); i++) {
		(void)snprintf(path, sizeof(path), "%s/%s", k->config->cache, files[i]); /* fits */
		(void)unlink(path); /* may not exist */
	}
}

void keeper_daemons_init(struct keeper *k)
{
	for (unsigned int i = 0; i < KEEPER_DAEMONS; i++) {
		child_init(&k->daemons[i], names[i]);
		k->daemons[i].endless = true;
		k->daemons[i].capabilities = CAPABILITIES_FILES;
	}
}

int keeper_daemons_plan(struct keeper *k, struct err *e)
{
	struct child *master = &k->daemons[KEEPER_MASTER];
	struct child *worker = &k->daemons[KEEPER_WORKER];
	char dir[PATH_MAX];
	int r;

	if (!k->config->is_private)
		return 0;
	forget_master(k);
	for (unsigned int i = 0; i < KEEPER_DAEMONS; i++)
		k->daemons[i].notify = k->watchdog.fd >= 0 ? k->watchdog.path : NULL;
	r = programs_dir(dir, e);
	if (r < 0)
		return r;
	r = plan_common(k, master, dir, programs[KEEPER_MASTER]);
	if (r == 0)
		r = plan_master(k, master);
	if (r == 0)
		r = plan_common(k, worker, dir, programs[KEEPER_WORKER]);
	if (r == 0)
		r = plan_worker(k, worker);
	return r < 0 ? err_set(e, r, "out of memory: free some, or raise the control group's limit")
		     : 0;
}

/* ---- who needs them -------------------------------------------------------------------------- */

/*
 * Every mount's daemon has the writing end of this pipe, as has the keeper; master and worker watch the reading end
 * (base/alive.h). An earlier keeper's pipe was recovered from a mount's daemon: k->alive_fd.
 */
int keeper_daemons_open(struct keeper *k, struct err *e)
{
	char path[32];
	int ends[2];

	if (!k->config->is_private)
		return 0;
	if (k->alive_fd < 0) {
		if (pipe2(ends, O_CLOEXEC) != 0)
			return err_set(e, err_errno(),
				"no descriptors: %m: raise the limit of open files (ulimit -n)");
		k->alive_fd = ends[1];
		k->alive_read_fd = ends[0];
	} else {
		(void)snprintf(path, sizeof(path), "/proc/self/fd/%d", k->alive_fd); /* fits */
		k->alive_read_fd = open(path, O_RDONLY | O_CLOEXEC); /* has a writer: no wait */
		if (k->alive_read_fd < 0)
			return err_set(e, err_errno(), "the pipe of mounts cannot be read: %m");
	}
	for (unsigned int i = 0; i < KEEPER_DAEMONS; i++) {
		k->daemons[i].alive_fd = k->alive_read_fd;
		child_keep_fd(&k->daemons[i], NULL, k->alive_read_fd);
	}
	return 0;
}

/* ---- recovering ------------------------------------------------------------------------------ */

/*
 * Credentials of origins are in the environment of the mount that started the cache. A keeper that another command started takes
 * it from a daemon. Before threads start.
 */
static void take_environment(pid_t pid)
{
	_cleanup_(buf_release) struct buf text = BUF_INIT(ENVIRONMENT_BYTES);
	char path[32];
	char *word;

	(void)snprintf(path, sizeof(path), "/proc/%d/environ", (int)pid); /* fits */
	if (file_read_all(path, &text) < 0 || text.len == 0) {
		log_warn("environment of a mount not recovered",
			"file=%s next=\"daemons get that of this process\"", path);
		return;
	}
	(void)clearenv(); /* cannot fail */
	for (word = text.data; word < text.data + text.len; word += strlen(word) + 1) {
		char *value = strchr(word, '=');

		if (!value || value == word)
			continue;
		*value = '\0';
		(void)setenv(word, value + 1, 1); // NOLINT(concurrency-mt-unsafe): no other threads
		*value = '=';
	}
	notify_forget(); /* it was for the daemon */
}

static bool any_ready(const struct keeper *k)
{
	list_for_each (node, &k->mounts)
		if (list_entry(node, struct mount, link)->ready)
			return true;
	return false;
}

/* Negative: it runs, but cannot be watched. */
static int recover_one(struct keeper *k, struct child *child, const json_t *record)
{
	pid_t pid = (pid_t)json_integer_value(json_object_get(record, "pid"));
	/* Once a mount is ready, readers need it, however often it fails to start. */
	bool served = json_is_true(json_object_get(record, "served")) || any_ready(k);
	uint64_t started = (uint64_t)json_integer_value(json_object_get(record, "started"));
	int r = child_process_is(pid, child->args[0], started) ? child_adopt(child, pid, served)
							       : -ESRCH;

	if (r < 0 && r != -ESRCH)
		return r;
	child->served = served;
	return 0;
}

int keeper_daemons_recover(struct keeper *k, const json_t *state)
{
	const json_t *record;
	size_t i;
	int r = 0;

	if (!k->config->is_private)
		return 0;
	list_for_each (node, &k->mounts) {
		const struct mount *mount = list_entry(node, struct mount, link);

		if (child_running(&mount->child) && mount->child.adopted) {
			take_environment(mount->child.pid);
			break;
		}
	}
	json_array_foreach (json_object_get(state, "daemons"), i, record) {
		const char *name = json_string_value(json_object_get(record, "name"));

		for (unsigned int d = 0; name && d < KEEPER_DAEMONS; d++)
			if (r == 0 && strcmp(name, names[d]) == 0)
				r = recover_one(k, &k->daemons[d], record);
	}
	return r;
}

/* One that was recovered before it had reported that it serves: its line went to the earlier keeper. */
static void look_recovered(struct keeper *k, struct child *child)
{
	char path[SOCKET_PATH_MAX];
	char name[48];
	int fd;

	if (child->state != CHILD_SERVING || child->served)
		return;
	(void)snprintf(name, sizeof(name), "%s.sock", child->name); /* fits */
	if (unix_socket_connect(keeper_path(k, name, path), &fd) == 0) {
		(void)close(fd); /* nothing was asked */
		child_set_served(child);
	}
}

/* ---- what follows from what ------------------------------------------------------------------ */

static bool is_wanted(const struct keeper *k)
{
	if (k->ending)
		return false;
	if (k->config->stay || k->idle_since_ns)
		return true;
	list_for_each (node, &k->mounts) {
		const struct mount *mount = list_entry(node, struct mount, link);

		if (mount->state == MOUNT_ACTIVE && !mount->given_up)
			return true;
	}
	return false;
}

/* Every mount that has not served yet fails for the reason of that daemon, once its own daemon has ended. */
static void fail_mounts(struct keeper *k, struct child *child)
{
	list_for_each (node, &k->mounts) {
		struct mount *mount = list_entry(node, struct mount, link);

		if (mount->state != MOUNT_ACTIVE || mount->given_up)
			continue;
		child->served |= mount->ready;
		if (mount->ready)
			continue;
		mount->given_up = true;
		mount->exit_status = child->exit_status;
		mount->failure = child->failure;
	}
}

void keeper_daemons_advance(struct keeper *k)
{
	if (!k->config->is_private)
		return;
	for (unsigned int i = 0; i < KEEPER_DAEMONS; i++) {
		struct child *child = &k->daemons[i];

		look_recovered(k, child);
		if (child->state == CHILD_STOPPED && is_wanted(k))
			child_start(child);
		if (child->state != CHILD_FAILED || k->n_mounts == 0)
			continue; /* a reason waits for the mount that is about to be requested */
		fail_mounts(k, child);
		child_end(child); /* may be tried again for the next mount */
	}
}

static bool are(const struct keeper *k, bool starting)
{
	for (unsigned int i = 0; k->config->is_private && i < KEEPER_DAEMONS; i++) {
		const struct child *child = &k->daemons[i];
		bool serves = child->state == CHILD_SERVING && child->served;

		if (!serves && !(starting && (child->state == CHILD_STARTING ||
						     child->state == CHILD_SERVING)))
			return false;
	}
	return true;
}

bool keeper_daemons_serve(const struct keeper *k)
{
	return are(k, false);
}

bool keeper_daemons_available(const struct keeper *k)
{
	return are(k, true);
}

bool keeper_daemons_starting(const struct keeper *k)
{
	for (unsigned int i = 0; i < KEEPER_DAEMONS; i++)
		if (k->daemons[i].state == CHILD_STARTING)
			return true;
	return false;
}

bool keeper_daemons_end(struct keeper *k)
{
	struct child *master = &k->daemons[KEEPER_MASTER];
	struct child *worker = &k->daemons[KEEPER_WORKER];

	child_end(worker);
	if (!child_running(worker))
		child_end(master);
	return child_running(worker) || child_running(master);
}

/* ---- status ---------------------------------------------------------------------------------- */

json_t *keeper_daemons_json(const struct keeper *k)
{
	json_t *list = json_array();

	for (unsigned int i = 0; k->config->is_private && i < KEEPER_DAEMONS; i++) {
		const struct child *c = &k->daemons[i];
		json_t *json = json_pack("{s:s, s:i, s:I, s:s, s:I, s:b}", "name", c->name, "pid",
			(int)c->pid, "started", (json_int_t)c->started, "state",
			child_state_name(c->state), "restarts", (json_int_t)c->restarts, "served",
			(int)c->served);

		if (json && c->state == CHILD_FAILED)
			(void)json_object_set_new(json, "exit", json_integer(c->exit_status));
		if (json && c->failure.text[0])
			(void)json_object_set_new(
				json, "last_failure", json_string(c->failure.text)); /* counted */
		(void)json_array_append_new(list, json);
	}
	return list;
}

void keeper_daemons_release(struct keeper *k)
{
	for (unsigned int i = 0; i < KEEPER_DAEMONS; i++)
		child_release(&k->daemons[i]);
	cleanup_close(&k->alive_read_fd);
}
