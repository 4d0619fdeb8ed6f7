/* What is written down, for people and for the next keeper. */
#include "keeper/keeper.h"
#include "admin/state_file.h"
#include "base/cleanup.h"
#include "base/crash_point.h"
#include "base/log.h"
#include "base/exit.h"
#include "base/version.h"
#include "mount/kernel/kernel.h"

#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/pidfd.h>

/* Raised only when what is there changes its meaning: a field that is missing is 0, and one that is not known is ignored. */
#define STATE_FORMAT 1

bool mount_serves(const struct mount *mount)
{
	const struct child *c = &mount->child;

	return (c->state == CHILD_SERVING && c->served) ||
	       (c->state == CHILD_STOPPED && mount_is_shared(mount));
}

static const char *mount_state_text(const struct keeper *k, const struct mount *mount)
{
	switch (mount->state) {
	case MOUNT_ACTIVE:
		if (mount_serves(mount) && (mount->ready || !k->config->is_private))
			return child_state_name(CHILD_SERVING);
		if (mount_serves(mount) || !mount->started)
			return "waiting"; /* for master and worker */
		return mount->child.state == CHILD_SERVING ? child_state_name(CHILD_STARTING)
							   : child_state_name(mount->child.state);
	case MOUNT_FAILED:
		return "failed";
	case MOUNT_GONE:
		break;
	}
	return "gone";
}

/* What is not there for want of memory is counted by admin_json_failures(). */
json_t *mount_json(struct keeper *k, const struct mount *mount)
{
	const struct child *c = &keeper_server(k, mount)->child;
	json_t *json = json_pack("{s:s, s:i, s:i, s:s, s:s, s:s, s:I, s:s, s:I, s:I}", "name",
		c->name, "id", (int)mount->id, "pid", (int)c->pid, "source", mount->source,
		"mountpoint", mount->mountpoint, "socket", mount->socket, "restarts",
		(json_int_t)c->restarts, "state", mount_state_text(k, mount), "token",
		(json_int_t)mount->token, "upgrades", (json_int_t)mount->upgrades);

	if (json && mounter_peer_json(mount->peer, json) < 0)
		log_debug("a row without its point", "name=%s", c->name);
	if (json && mount->owned)
		(void)json_object_set_new(json, "owner", json_integer((json_int_t)mount->owner));
	if (json && c->failure.text[0])
		(void)json_object_set_new(json, "last_failure", json_string(c->failure.text));
	if (json && mount->refused)
		(void)json_object_set_new(
			json, "refused", json_integer((json_int_t)mount->refused));
	if (json && mount->state == MOUNT_FAILED) {
		(void)json_object_set_new(json, "exit", json_integer(mount->exit_status));
		(void)json_object_set_new(json, "text", json_string(mount->failure.text));
	}
	return json;
}

json_t *keeper_json_locked(struct keeper *k)
{
	json_t *mounts = json_array();

	list_for_each (node, &k->mounts)
		(void)json_array_append_new(
			mounts, mount_json(k, list_entry(node, struct mount, link))); /* status */
	return json_pack("{s:s, s:i, s:s, s:s, s:s, s:b, s:b, s:b, s:I, s:i, s:o, s:o}", "process",
		"keeper", "pid", (int)getpid(), "version", GRANARY_VERSION, "cache",
		k->config->cache, "run", k->config->run, "ending", (int)k->ending, "stays",
		(int)k->config->stay, "private", (int)k->config->is_private, "uptime_s",
		(json_int_t)((clock_mono_ns() - k->started_ns) / CLOCK_SECOND), "next_id",
		(int)k->next_id, "daemons", keeper_daemons_json(k), "mounts", mounts);
}

/* ---- saving ---------------------------------------------------------------------------------- */

static json_t *fds_json(const struct mount_fds *fds)
{
	return json_pack("{s:i, s:i, s:i, s:i, s:i}", "fuse", fds->fuse, "slots", fds->slots,
		"near", fds->near, "far", fds->far, "alive", fds->alive);
}

static json_t *mount_record(struct keeper *k, const struct mount *mount)
{
	const struct child *c = &mount->child;
	struct mount_fds own = mount->fds;
	json_t *args = json_array();
	json_t *json = mount_json(k, mount);

	own.alive = k->alive_fd;
	for (unsigned int i = 0; i < c->n_args; i++)
		(void)json_array_append_new(args, json_string(c->args[i])); /* counted */
	if (!json)
		return NULL;
	(void)json_object_set_new(json, "args", args); /* all of these: counted */
	(void)json_object_set_new(json, "daemon", json_integer(c->pid));
	(void)json_object_set_new(json, "started", json_integer((json_int_t)c->started));
	(void)json_object_set_new(json, "peer", mounter_peer_save(mount->peer));
	(void)json_object_set_new(json, "log", json_string(c->log_path));
	(void)json_object_set_new(json, "served", json_boolean(c->served));
	(void)json_object_set_new(json, "ready", json_boolean(mount->ready));
	(void)json_object_set_new(json, "point_taken", json_boolean(mount->point_taken));
	/* As the daemon numbers them: one that we started has them under the same numbers. */
	(void)json_object_set_new(json, "its", fds_json(c->adopted ? &mount->its : &own));
	return json;
}

/* Text that is the caller's to free; NULL without memory. */
static char *state_text(struct keeper *k)
{
	const struct keeper_config *c = k->config;
	uint64_t failures = admin_json_failures();
	json_t *mounts = json_array();
	json_t *json;
	char *text;

	list_for_each (node, &k->mounts) {
		struct mount *mount = list_entry(node, struct mount, link);

		if (mount->state == MOUNT_ACTIVE)
			(void)json_array_append_new(
				mounts, mount_record(k, mount)); /* counted in failures */
	}
	json = json_pack("{s:i, s:s, s:i, s:b, s:b, s:i, s:I, s:I, s:s?, s:I, s:o, s:o}", "format",
		STATE_FORMAT, "cache", c->cache, "keeper", (int)getpid(), "stays", (int)c->stay,
		"private", (int)c->is_private, "next_id", (int)k->next_id, "memory",
		(json_int_t)(c->is_private ? c->private_memory : c->memory), "capacity",
		(json_int_t)c->capacity, "log_level", c->log_level, "dead_after_ms",
		(json_int_t)(c->dead_after_ns / CLOCK_MS), "daemons", keeper_daemons_json(k),
		"mounts", mounts);
	text = failures == admin_json_failures() ? admin_json_text(json, JSON_INDENT(1)) : NULL;
	json_decref(json);
	return text;
}

int keeper_save(struct keeper *k)
{
	_cleanup_free_ char *text = state_text(k);
	char path[SOCKET_PATH_MAX];
	int r = state_file_write(keeper_path(k, "keeper.json", path), text, &k->saved);

	if (r != 0)
		CRASH_POINT("keeper.saved");
	return r < 0 ? r : 0;
}

/* ---- a mount of an earlier keeper ------------------------------------------------------------ */

static int fd_of(const json_t *fds, const char *name)
{
	const json_t *number = json_object_get(fds, name);

	return json_is_integer(number) ? (int)json_integer_value(number) : -1;
}

static struct mount_fds fds_of(const json_t *fds)
{
	return (struct mount_fds){ .fuse = fd_of(fds, "fuse"),
		.slots = fd_of(fds, "slots"),
		.near = fd_of(fds, "near"),
		.far = fd_of(fds, "far"),
		.alive = fd_of(fds, "alive") };
}

static int load_args(struct child *child, const json_t *args)
{
	size_t i;
	const json_t *arg;
	int r = 0;

	json_array_foreach (args, i, arg) {
		const char *word = json_string_value(arg);

		if (r == 0 && word && strcmp(word, "--refresh") != 0)
			r = child_arg(child, "%s", word);
	}
	return r == 0 && child->n_args == 0 ? -EBADMSG : r;
}

/* Without its process and its descriptors; NULL: the record says too little, or names a mount that there is. */
static struct mount *load_mount(struct keeper *k, const json_t *record)
{
	const char *source = json_string_value(json_object_get(record, "source"));
	const char *mountpoint = json_string_value(json_object_get(record, "mountpoint"));
	const char *log = json_string_value(json_object_get(record, "log"));
	unsigned int id = (unsigned int)json_integer_value(json_object_get(record, "id"));
	bool is_valid = source && mountpoint && !keeper_mount(k, id);
	struct mount *mount = is_valid ? mount_new(k, id, source, mountpoint) : NULL;

	if (!mount)
		return NULL;
	k->next_id = max(k->next_id, id + 1);
	if (load_args(&mount->child, json_object_get(record, "args")) < 0) {
		mount_free(mount);
		return NULL;
	}
	mount->child.log_path = log ? strdup(log) : NULL;
	mount->child.restarts = (uint64_t)json_integer_value(json_object_get(record, "restarts"));
	mount->child.served = json_is_true(json_object_get(record, "served"));
	mount->ready = json_is_true(json_object_get(record, "ready"));
	mount->point_taken = json_is_true(json_object_get(record, "point_taken"));
	mount->owned = json_object_get(record, "owner") != NULL;
	mount->owner = (uid_t)json_integer_value(json_object_get(record, "owner"));
	mount->token = (uint64_t)json_integer_value(json_object_get(record, "token"));
	mount->refused = (uint64_t)json_integer_value(json_object_get(record, "refused"));
	mount->upgrades = (uint64_t)json_integer_value(json_object_get(record, "upgrades"));
	mount->its = fds_of(json_object_get(record, "its"));
	mount->started = true;
	return mount;
}

static int add_loaded(struct keeper *k, struct mount *mount)
{
	int r = mount_add_peer(k, mount);

	if (r < 0)
		return r;
	list_push_back(&k->mounts, &mount->link);
	k->n_mounts++;
	return 0;
}

/* Once all are there: who shares what. */
static void load_peers(struct keeper *k, const json_t *records)
{
	const json_t *record;
	size_t i;

	json_array_foreach (records, i, record) {
		const struct mount *mount = keeper_mount(
			k, (unsigned int)json_integer_value(json_object_get(record, "id")));

		if (mount)
			mounter_peer_load(mount->peer, json_object_get(record, "peer"));
	}
}

/* ---- recovering ------------------------------------------------------------------------------ */

static void take_fd(int pidfd, int number, int *ret_fd)
{
	int fd = number >= 0 && pidfd >= 0 ? pidfd_getfd(pidfd, number, 0) : -1;

	if (fd >= 0)
		*ret_fd = fd;
}

/* The descriptors that keep a mount's connection alive, out of its daemon. */
static void recover_fds(struct keeper *k, struct mount *mount)
{
	int from = mount->child.pidfd;

	take_fd(from, mount->its.fuse, &mount->fds.fuse);
	take_fd(from, mount->its.slots, &mount->fds.slots);
	take_fd(from, mount->its.near, &mount->fds.near);
	take_fd(from, mount->its.far, &mount->fds.far);
	if (k->alive_fd < 0)
		take_fd(from, mount->its.alive, &k->alive_fd);
}

/* Negative: its daemon runs, but cannot be watched. */
static int recover_mount(struct keeper *k, const json_t *record)
{
	pid_t pid = (pid_t)json_integer_value(json_object_get(record, "daemon"));
	struct mount *mount = load_mount(k, record);
	uint64_t started = (uint64_t)json_integer_value(json_object_get(record, "started"));
	bool runs = mount && child_process_is(pid, mount->child.args[0], started);
	int r = runs ? child_adopt(&mount->child, pid, mount->child.served) : -ESRCH;

	if (!mount)
		return 0;
	if (r < 0 && r != -ESRCH) {
		mount_free(mount);
		return r;
	}
	if (r == 0)
		recover_fds(k, mount);
	mount_take_stored(k, mount);
	if (child_running(&mount->child) && (mount->fds.fuse < 0 || mount->fds.slots < 0))
		log_warn("mount recovered without its descriptors: it will not survive its daemon",
			"mountpoint=\"%s\"", mount->mountpoint);
	mount_refuse_spare(mount);
	if (add_loaded(k, mount) < 0) {
		log_error(
			"mount not recovered", "mountpoint=\"%s\" error=ENOMEM", mount->mountpoint);
		mount_free(mount);
	}
	return 0;
}

/* Was it ever mounted? Ordinary users' mounts by fusermount3 are not known to anybody before their
 * daemon says so: those have a connection then. */
static bool is_whole(const struct mount *mount)
{
	return mount->child.served || mounter_peer_point(mount->peer) != MOUNTER_NONE ||
	       (!kernel_may_mount() && mounter_peer_connected(mount->peer));
}

/* Both died: its daemon, and the keeper that would have started the next one. */
static void follow_recovered(struct keeper *k, struct mount *mount)
{
	struct child *c = &mount->child;

	if (child_running(c) || mount_is_shared(mount))
		return;
	if (!is_whole(mount)) {
		mount_set_state_locked(mount, MOUNT_FAILED);
		mount->exit_status = EXIT_RUNTIME;
		mount->forget_ns = clock_mono_ns() + KEEPER_IDLE_NS;
		(void)err_set(&mount->failure, -ECONNRESET,
			"%s was not mounted yet when its daemon and the keeper died: try again",
			mount->mountpoint);
	} else if (mount->fds.fuse >= 0 && mount->fds.slots >= 0) {
		c->served = true;
		child_start(c);
	} else {
		log_warn("mount without a daemon: umount it", "mountpoint=\"%s\"",
			mount->mountpoint);
		list_remove(&mount->link);
		k->n_mounts--;
		mount_free(mount);
	}
}

static int recover_mounts(struct keeper *k, const json_t *state)
{
	const json_t *record;
	size_t i;
	int r = 0;

	json_array_foreach (json_object_get(state, "mounts"), i, record)
		if (r == 0)
			r = recover_mount(k, record);
	if (r < 0)
		return r;
	load_peers(k, json_object_get(state, "mounts"));
	mounter_host_renew(k->host);
	return 0;
}

int keeper_recover(struct keeper *k, struct err *e)
{
	char path[SOCKET_PATH_MAX];
	json_t *json = NULL;
	int r = state_file_read(keeper_path(k, "keeper.json", path), STATE_FORMAT, &json);

	if (r == -EPROTONOSUPPORT) /* its mounts are served meanwhile */
		return err_set(e, r,
			"%s is of a format that this version does not know: unmount what it names "
			"with the version that wrote it, or with `cachectl umount`; then remove it",
			path);
	if (r < 0 && r != -ENOENT)
		log_error("mounts of an earlier keeper not found",
			"file=\"%s\" error=%s next=\"they end with their daemons\"", path,
			err_name(r));
	if (r == 0) {
		unsigned int next =
			(unsigned int)json_integer_value(json_object_get(json, "next_id"));

		k->next_id = max(k->next_id, next);
		r = recover_mounts(k, json);
		if (r == 0)
			r = keeper_daemons_recover(k, json);
		json_decref(json);
		if (r < 0) /* the file stays: the next keeper tries again */
			return err_set(e, r,
				"the mounts of an earlier keeper cannot be recovered: %s: raise "
				"the limit of open files (ulimit -n)",
				err_str(r));
	}
	r = keeper_daemons_open(k, e);
	if (r < 0)
		return r;
	list_for_each_safe (node, &k->mounts) {
		struct mount *mount = list_entry(node, struct mount, link);

		mount_give_fds(k, mount);
		follow_recovered(k, mount);
	}
	return 0;
}
