/* What is written down, for people and for the next supervisor. */
#include "admin/admin.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/crash_point.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/version.h"
#include "ctl/supervisor.h"

#include <fcntl.h>
#include <string.h>
#include <sys/pidfd.h>

#define STATE_BYTES (1024u * 1024u)

static json_t *child_json(const struct child *child)
{
	json_t *json = json_pack("{s:s, s:i, s:s, s:I}", "name", child->name, "pid",
		(int)child->pid, "state", child_state_name(child->state), "restarts",
		(json_int_t)child->restarts);

	if (json && child->failure.text[0])
		(void)json_object_set_new(
			json, "last_failure", json_string(child->failure.text)); /* status */
	return json;
}

static const char *mount_state_text(const struct mount *mount)
{
	switch (mount->state) {
	case MOUNT_WAITING:
		return "waiting";
	case MOUNT_ACTIVE:
		return child_state_name(mount->child.state);
	case MOUNT_FAILED:
		return "failed";
	case MOUNT_GONE:
		break;
	}
	return "gone";
}

static json_t *mount_json(const struct mount *mount)
{
	json_t *json = child_json(&mount->child);

	if (!json)
		return NULL;
	(void)json_object_set_new(
		json, "id", json_integer(mount->id)); /* these fail without memory only */
	(void)json_object_set_new(json, "source", json_string(mount->source));
	(void)json_object_set_new(json, "mountpoint", json_string(mount->mountpoint));
	(void)json_object_set_new(json, "socket", json_string(mount->socket));
	(void)json_object_set_new(json, "state", json_string(mount_state_text(mount)));
	if (mount->state == MOUNT_FAILED) {
		(void)json_object_set_new(json, "exit", json_integer(mount->exit_status));
		(void)json_object_set_new(json, "text", json_string(mount->failure.text));
	}
	return json;
}

json_t *supervisor_json_locked(struct supervisor *s)
{
	json_t *mounts = json_array();

	list_for_each (node, &s->mounts)
		(void)json_array_append_new(
			mounts, mount_json(list_entry(node, struct mount, link))); /* status */
	return json_pack("{s:s, s:i, s:s, s:s, s:s, s:b, s:I, s:[o, o], s:o}", "process",
		"supervisor", "pid", (int)getpid(), "version", GRANARY_VERSION, "cache",
		s->cache.path, "run", s->cache.run, "ending", (int)s->ending, "uptime_s",
		(json_int_t)((clock_mono_ns() - s->started_ns) / CLOCK_SECOND), "daemons",
		child_json(&s->master), child_json(&s->worker), "mounts", mounts);
}

/* ---- saving ---------------------------------------------------------------------------------- */

static json_t *mount_record(const struct mount *mount)
{
	json_t *args = json_array();
	json_t *json = mount_json(mount);
	bool adopted = mount->child.adopted;

	for (unsigned int i = 0; i < mount->child.n_args; i++)
		(void)json_array_append_new(
			args, json_string(mount->child.args[i])); /* memory: adopted without */
	if (json) {
		(void)json_object_set_new(json, "args", args);
		(void)json_object_set_new(json, "log", json_string(mount->child.log_path));
		/* As the daemon numbers them: the next supervisor takes them from it. */
		(void)json_object_set_new(json, "fuse_fd",
			json_integer(adopted ? mount->adopted_fuse : mount->fuse_fd));
		(void)json_object_set_new(json, "slots_fd",
			json_integer(adopted ? mount->adopted_slots : mount->slots_fd));
	}
	return json;
}

int supervisor_save(struct supervisor *s)
{
	char path[SOCKET_PATH_MAX];
	json_t *mounts = json_array();
	json_t *json;
	uint64_t failures = admin_json_failures();
	char *text;
	uint64_t hash;
	int r = 0;

	list_for_each (node, &s->mounts) {
		const struct mount *mount = list_entry(node, struct mount, link);

		if (mount->state == MOUNT_ACTIVE)
			(void)json_array_append_new(
				mounts, mount_record(mount)); /* counted in failures */
	}
	json = json_pack("{s:i, s:s, s:i, s:i, s:i, s:o}", "format", 1, "cache", s->cache.path,
		"supervisor", (int)getpid(), "master", (int)s->master.pid, "worker",
		(int)s->worker.pid, "mounts", mounts);
	text = failures == admin_json_failures() ? admin_json_text(json, JSON_INDENT(1)) : NULL;
	json_decref(json);
	if (!text)
		return -ENOMEM;
	hash = hash_xxh3(text, strlen(text), 0);
	if (hash != s->saved) {
		r = file_write_atomic(
			cache_dir_socket(&s->cache, "state.json", path), text, strlen(text), 0600);
		CRASH_POINT("supervisor.saved");
	}
	if (r == 0)
		s->saved = hash;
	free(text);
	return r;
}

/* ---- adopting -------------------------------------------------------------------------------- */

/* Process `pid` runs the program whose path is `program`: numbers are used again. */
static bool process_is(pid_t pid, const char *program)
{
	char link[64];
	char exe[PATH_MAX];
	const char *name = strrchr(program, '/');
	const char *found;
	ssize_t n;

	(void)snprintf(link, sizeof(link), "/proc/%d/exe", (int)pid); /* fits */
	n = pid > 0 ? readlink(link, exe, sizeof(exe) - 1) : -1;
	if (n < 0 || !name)
		return false;
	exe[n] = '\0';
	found = strrchr(exe, '/'); /* " (deleted)" may follow after an upgrade */
	return found && strncmp(found, name, strlen(name)) == 0;
}

static void adopt_daemon(struct child *child, const json_t *pid)
{
	pid_t number = (pid_t)json_integer_value(pid);

	if (!process_is(number, child->args[0]))
		return;
	if (child_adopt(child, number) < 0)
		log_warn("daemon not adopted", "name=%s pid=%d", child->name, (int)number);
}

static int adopt_args(struct child *child, const json_t *args)
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

/* The descriptors that keep a mount's connection alive, out of its daemon. */
static void adopt_fds(struct mount *mount, const json_t *record)
{
	int fuse = (int)json_integer_value(json_object_get(record, "fuse_fd"));
	int slots = (int)json_integer_value(json_object_get(record, "slots_fd"));

	mount->adopted_fuse = fuse;
	mount->adopted_slots = slots;
	mount->fuse_fd = pidfd_getfd(mount->child.pidfd, fuse, 0);
	mount->slots_fd = pidfd_getfd(mount->child.pidfd, slots, 0);
	if (mount->fuse_fd < 0 || mount->slots_fd < 0) {
		log_warn("mount adopted without its descriptors: it will not survive its daemon",
			"mountpoint=\"%s\" cause=%s", mount->mountpoint, err_name(err_errno()));
		return;
	}
	child_keep_fd(&mount->child, "--fuse-fd", mount->fuse_fd);
	child_keep_fd(&mount->child, "--slots-fd", mount->slots_fd);
}

static void adopt_mount(struct supervisor *s, const json_t *record)
{
	const char *source = json_string_value(json_object_get(record, "source"));
	const char *mountpoint = json_string_value(json_object_get(record, "mountpoint"));
	const char *log = json_string_value(json_object_get(record, "log"));
	pid_t pid = (pid_t)json_integer_value(json_object_get(record, "pid"));
	unsigned int id = (unsigned int)json_integer_value(json_object_get(record, "id"));
	struct mount *mount = source && mountpoint ? mount_new(s, id, source, mountpoint) : NULL;

	if (!mount)
		return;
	if (s->next_id <= id)
		s->next_id = id + 1;
	if (adopt_args(&mount->child, json_object_get(record, "args")) < 0 ||
		!process_is(pid, mount->child.args[0]) || child_adopt(&mount->child, pid) < 0) {
		log_warn("mount without a daemon: umount it", "mountpoint=\"%s\"", mountpoint);
		mount_free(mount);
		return;
	}
	mount->child.log_path = log ? strdup(log) : NULL;
	mount_set_state_locked(mount, MOUNT_ACTIVE); /* nobody else knows it yet */
	child_keep_fd(&mount->child, NULL, s->alive[1]);
	adopt_fds(mount, record);
	list_push_back(&s->mounts, &mount->link);
	s->n_mounts++;
}

void supervisor_adopt(struct supervisor *s)
{
	_cleanup_(buf_release) struct buf text = BUF_INIT(STATE_BYTES);
	char path[SOCKET_PATH_MAX];
	const json_t *record;
	json_t *json;
	size_t i;

	if (file_read_all(cache_dir_socket(&s->cache, "state.json", path), &text) < 0)
		return;
	if (admin_json_parse(buf_str(&text), text.len, 0, &json, NULL) < 0)
		return;
	if (json_integer_value(json_object_get(json, "format")) == 1) {
		adopt_daemon(&s->master, json_object_get(json, "master"));
		adopt_daemon(&s->worker, json_object_get(json, "worker"));
		json_array_foreach (json_object_get(json, "mounts"), i, record)
			adopt_mount(s, record);
	}
	json_decref(json);
}
