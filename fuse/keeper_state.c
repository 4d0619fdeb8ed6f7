/* What is written down, for people and for the next keeper. */
#include "fuse/keeper.h"
#include "admin/state_file.h"
#include "base/cleanup.h"
#include "base/crash_point.h"
#include "base/log.h"
#include "base/exit.h"
#include "base/version.h"
#include "fuse/kernel.h"

#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/pidfd.h>

#define STATE_FORMAT 1

static const char *mount_state_text(const struct mount *mount)
{
	bool early = mount->child.state == CHILD_SERVING && !mount->child.served;

	switch (mount->state) {
	case MOUNT_ACTIVE:
		if (mount_is_shared(mount) && mount->child.state == CHILD_STOPPED)
			return child_state_name(CHILD_SERVING);
		if (early)
			return child_state_name(CHILD_STARTING);
		return mount->started ? child_state_name(mount->child.state) : "waiting";
	case MOUNT_FAILED:
		return "failed";
	case MOUNT_GONE:
		break;
	}
	return "gone";
}

/* Whose daemon serves it: another mount's, when it is shared. */
static const struct mount *serving(struct keeper *k, const struct mount *mount)
{
	if (!mount_is_shared(mount))
		return mount;
	list_for_each (node, &k->mounts) {
		const struct mount *other = list_entry(node, struct mount, link);

		if (other->id == mounter_peer_server(mount->peer))
			return other;
	}
	return mount;
}

/* What is not there for want of memory is counted by admin_json_failures(). */
json_t *mount_json(struct keeper *k, const struct mount *mount)
{
	const struct child *c = &serving(k, mount)->child;
	json_t *json = json_pack("{s:s, s:i, s:i, s:s, s:s, s:s, s:I, s:s, s:I, s:I}", "name",
		c->name, "id", (int)mount->id, "pid", (int)c->pid, "source", mount->source,
		"mountpoint", mount->mountpoint, "socket", mount->socket, "restarts",
		(json_int_t)c->restarts, "state", mount_state_text(mount), "token",
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
	json_t *json;

	list_for_each (node, &k->mounts)
		(void)json_array_append_new(
			mounts, mount_json(k, list_entry(node, struct mount, link))); /* status */
	json = json_pack("{s:s, s:i, s:s, s:s, s:s, s:b, s:b, s:I, s:i, s:i, s:o}", "process",
		"keeper", "pid", (int)getpid(), "version", GRANARY_VERSION, "cache",
		k->config->cache, "run", k->config->run, "ending", (int)k->ending, "stays",
		(int)k->config->stay, "uptime_s",
		(json_int_t)((clock_mono_ns() - k->started_ns) / CLOCK_SECOND), "upgrades",
		(int)k->generation, "next_id", (int)k->next_id, "mounts", mounts);
	if (json && k->upgrade_error[0])
		(void)json_object_set_new(
			json, "upgrade_error", json_string(k->upgrade_error)); /* status */
	return json;
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
	(void)json_object_set_new(json, "peer", mounter_peer_save(mount->peer));
	(void)json_object_set_new(json, "log", json_string(c->log_path));
	(void)json_object_set_new(json, "served", json_boolean(c->served));
	(void)json_object_set_new(json, "adopted", json_boolean(c->adopted));
	(void)json_object_set_new(json, "beats", json_boolean(c->beat_ns != 0));
	(void)json_object_set_new(json, "place", json_integer(mount->place));
	(void)json_object_set_new(json, "point_taken", json_boolean(mount->point_taken));
	(void)json_object_set_new(json, "own", fds_json(&own));
	/* As the daemon numbers them: one that we started has them under the same numbers. */
	(void)json_object_set_new(json, "its", fds_json(c->adopted ? &mount->its : &own));
	return json;
}

/* Text that is the caller's to free; NULL without memory. */
static char *state_text(struct keeper *k)
{
	uint64_t failures = admin_json_failures();
	json_t *mounts = json_array();
	json_t *json;
	char *text;

	list_for_each (node, &k->mounts) {
		const struct mount *mount = list_entry(node, struct mount, link);

		if (mount->state == MOUNT_ACTIVE)
			(void)json_array_append_new(
				mounts, mount_record(k, mount)); /* counted in failures */
	}
	json = json_pack("{s:i, s:s, s:i, s:b, s:i, s:i, s:i, s:i, s:I, s:i, s:s, s:I, s:I, s:o}",
		"format", STATE_FORMAT, "cache", k->config->cache, "keeper", (int)getpid(), "stays",
		(int)k->config->stay, "next_id", (int)k->next_id, "alive_fd", k->alive_fd,
		"lock_fd", k->lock_fd, "holder", (int)k->hold.pid, "holder_token",
		(json_int_t)k->hold.token, "upgrades", (int)k->generation, "cachefuse",
		k->cachefuse, "memory", (json_int_t)k->config->memory, "dead_after_ms",
		(json_int_t)(k->config->dead_after_ns / CLOCK_MS), "mounts", mounts);
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

int keeper_state_fd(struct keeper *k, int *ret_fd)
{
	_cleanup_free_ char *text = state_text(k);
	int fd = text ? memfd_create("granary-keeper", 0) : -1; /* stays open over execve(2) */
	size_t len = text ? strlen(text) : 0;

	if (fd < 0)
		return text ? err_errno() : -ENOMEM;
	if (write(fd, text, len) != (ssize_t)len) {
		(void)close(fd); /* memory */
		return -ENOMEM;
	}
	*ret_fd = fd;
	return 0;
}

/* ---- what both ways of taking over do -------------------------------------------------------- */

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

static bool has_mount(struct keeper *k, unsigned int id)
{
	list_for_each (node, &k->mounts)
		if (list_entry(node, struct mount, link)->id == id)
			return true;
	return false;
}

/* Without its process and its descriptors; NULL: the record says too little, or names a mount that there is. */
static struct mount *load_mount(struct keeper *k, const json_t *record)
{
	const char *source = json_string_value(json_object_get(record, "source"));
	const char *mountpoint = json_string_value(json_object_get(record, "mountpoint"));
	const char *log = json_string_value(json_object_get(record, "log"));
	unsigned int id = (unsigned int)json_integer_value(json_object_get(record, "id"));
	bool is_valid = source && mountpoint && !has_mount(k, id);
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
	mount_give_fds(k, mount);
	mount_hold(k, mount);
	list_push_back(&k->mounts, &mount->link);
	k->n_mounts++;
	return 0;
}

/* Another mount's daemon serves it: it has none of its own. */
static bool was_shared(const json_t *record)
{
	const char *point =
		json_string_value(json_object_get(json_object_get(record, "peer"), "point"));

	return point && strcmp(point, "shared") == 0 &&
	       json_integer_value(json_object_get(record, "daemon")) <= 0;
}

/* Once all are there: who shares what. */
static void load_peers(struct keeper *k, const json_t *records)
{
	const json_t *record;
	size_t i;

	json_array_foreach (records, i, record) {
		list_for_each (node, &k->mounts) {
			struct mount *mount = list_entry(node, struct mount, link);

			if (mount->id ==
				(unsigned int)json_integer_value(json_object_get(record, "id")))
				mounter_peer_load(mount->peer, json_object_get(record, "peer"));
		}
	}
}

/* ---- adopting -------------------------------------------------------------------------------- */

static void take_fd(int pidfd, int number, int *ret_fd)
{
	int fd = number >= 0 && pidfd >= 0 ? pidfd_getfd(pidfd, number, 0) : -1;

	if (fd >= 0)
		*ret_fd = fd;
}

/* The descriptors that keep a mount's connection alive, out of its daemon. */
static void adopt_fds(struct keeper *k, struct mount *mount)
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
static int adopt_mount(struct keeper *k, const json_t *record)
{
	pid_t pid = (pid_t)json_integer_value(json_object_get(record, "daemon"));
	struct mount *mount = load_mount(k, record);
	bool served = mount && mount->child.served;
	bool runs = mount && child_process_is(pid, mount->child.args[0]);
	int r = runs ? child_adopt(&mount->child, pid) : -ESRCH;

	if (!mount)
		return 0;
	if (r < 0 && r != -ESRCH) {
		mount_free(mount);
		return r;
	}
	if (r == 0) {
		mount->child.served = served;                       /* it may be on its way only */
		if (json_is_true(json_object_get(record, "beats"))) /* it may hang already */
			child_beat(&mount->child, clock_mono_ns());
		adopt_fds(k, mount);
	}
	mount_take_held(
		k, mount, (unsigned int)json_integer_value(json_object_get(record, "place")));
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
static void follow_adopted(struct keeper *k, struct mount *mount)
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

int keeper_adopt(struct keeper *k, struct err *e)
{
	char path[SOCKET_PATH_MAX];
	const json_t *record;
	json_t *json = NULL;
	size_t i;

	int r = state_file_read(keeper_path(k, "keeper.json", path), STATE_FORMAT, &json);

	if (r < 0 && r != -ENOENT)
		log_error("mounts of an earlier keeper not found",
			"file=\"%s\" error=%s next=\"they end with their daemons\"", path,
			err_name(r));
	if (r < 0)
		return 0;
	k->next_id = (unsigned int)json_integer_value(json_object_get(json, "next_id"));
	keeper_hold_find(k, json);
	json_array_foreach (json_object_get(json, "mounts"), i, record)
		if (r == 0)
			r = adopt_mount(k, record);
	if (r < 0) { /* the file stays: the next keeper tries again */
		json_decref(json);
		return err_set(e, r,
			"the mounts of an earlier keeper cannot be recovered: %s: raise the limit "
			"of open "
			"files (ulimit -n)",
			err_str(r));
	}
	load_peers(k, json_object_get(json, "mounts"));
	mounter_host_renew(k->host);
	list_for_each_safe (node, &k->mounts)
		follow_adopted(k, list_entry(node, struct mount, link));
	json_decref(json);
	return 0;
}

/* ---- resuming -------------------------------------------------------------------------------- */

static void close_on_exec(int fd)
{
	if (fd >= 0)
		(void)fcntl(fd, F_SETFD, FD_CLOEXEC); /* ours: cannot fail */
}

static void text_to(char *out, size_t size, const json_t *text)
{
	if (json_is_string(text))
		(void)snprintf(out, size, "%s", json_string_value(text)); /* came from there */
}

static int resume_mount(struct keeper *k, const json_t *record)
{
	pid_t pid = (pid_t)json_integer_value(json_object_get(record, "daemon"));
	struct mount *mount = load_mount(k, record);
	int r = 0;

	if (!mount)
		return -EBADMSG;
	mount->fds = fds_of(json_object_get(record, "own"));
	mount->fds.alive = -1; /* the keeper's */
	close_on_exec(mount->fds.fuse);
	close_on_exec(mount->fds.slots);
	close_on_exec(mount->fds.near);
	close_on_exec(mount->fds.far);
	if (add_loaded(k, mount) < 0) {
		mount_free(mount);
		return -ENOMEM;
	}
	if (was_shared(record))
		return 0;
	if (pid > 0)
		r = child_adopt(&mount->child, pid);
	if (pid > 0 && r == 0 && json_is_true(json_object_get(record, "beats")))
		child_beat(&mount->child, clock_mono_ns()); /* it may hang already */
	mount->child.adopted = json_is_true(json_object_get(record, "adopted"));
	if (pid == 0 || r < 0)
		child_start(&mount->child);
	return 0;
}

int keeper_resume(struct keeper *k, int fd, struct err *e)
{
	const json_t *record;
	json_t *json = NULL;
	char path[32];
	size_t i;
	int r;

	(void)snprintf(path, sizeof(path), "/proc/self/fd/%d", fd); /* fits */
	r = state_file_read(path, STATE_FORMAT, &json);
	(void)close(fd); /* read only */
	if (r < 0)
		return err_set(e, r, "the state that the keeper left for itself cannot be read: %s",
			err_str(r));
	k->next_id = (unsigned int)json_integer_value(json_object_get(json, "next_id"));
	text_to(k->cachefuse, sizeof(k->cachefuse), json_object_get(json, "cachefuse"));
	k->generation = 1 + (unsigned int)json_integer_value(json_object_get(json, "upgrades"));
	k->alive_fd = fd_of(json, "alive_fd");
	k->lock_fd = fd_of(json, "lock_fd");
	close_on_exec(k->alive_fd);
	close_on_exec(k->lock_fd);
	keeper_hold_find(k, json); /* which is of no use any more */
	json_array_foreach (json_object_get(json, "mounts"), i, record)
		if (resume_mount(k, record) < 0)
			log_error("a mount was lost by an upgrade", "record=%zu", i);
	load_peers(k, json_object_get(json, "mounts"));
	json_decref(json);
	return 0;
}
