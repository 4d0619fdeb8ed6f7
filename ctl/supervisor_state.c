/* What is written down, for people and for the next supervisor. */
#include "admin/admin.h"
#include "admin/state_file.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/crash_point.h"
#include "base/log.h"
#include "base/version.h"
#include "ctl/supervisor.h"

#include <fcntl.h>
#include <string.h>
#include <sys/pidfd.h>

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

json_t *supervisor_json_locked(struct supervisor *s)
{
	json_t *mounts = json_array();

	list_for_each (node, &s->requests) {
		const struct mount_request *request = list_entry(node, struct mount_request, link);

		if (request->state != MOUNT_REQUEST_PASSED)
			(void)json_array_append_new(
				mounts, mount_request_json(s, request)); /* status */
	}
	return json_pack("{s:s, s:i, s:s, s:s, s:s, s:b, s:b, s:I, s:[o, o, o], s:o}", "process",
		"supervisor", "pid", (int)getpid(), "version", GRANARY_VERSION, "cache",
		s->cache.path, "run", s->cache.run, "ending", (int)s->ending, "keeper_stays",
		(int)s->stays, "uptime_s",
		(json_int_t)((clock_mono_ns() - s->started_ns) / CLOCK_SECOND), "daemons",
		child_json(&s->master), child_json(&s->worker), child_json(&s->keeper), "mounts",
		mounts);
}

/* ---- saving ---------------------------------------------------------------------------------- */

int supervisor_save(struct supervisor *s)
{
	char path[SOCKET_PATH_MAX];
	uint64_t failures = admin_json_failures();
	/* `serving`: for those who wait for a change of this file. */
	json_t *json = json_pack("{s:i, s:s, s:i, s:i, s:i, s:b}", "format", 1, "cache",
		s->cache.path, "supervisor", (int)getpid(), "master", (int)s->master.pid, "worker",
		(int)s->worker.pid, "serving",
		(int)(s->master.state == CHILD_SERVING && s->worker.state == CHILD_SERVING));
	char *text =
		failures == admin_json_failures() ? admin_json_text(json, JSON_INDENT(1)) : NULL;
	int r;

	json_decref(json);
	r = state_file_write(cache_dir_socket(&s->cache, "state.json", path), text, &s->saved);
	if (r != 0)
		CRASH_POINT("supervisor.saved");
	free(text);
	return r < 0 ? r : 0;
}

/* ---- adopting -------------------------------------------------------------------------------- */

static void adopt_daemon(struct child *child, const json_t *pid)
{
	pid_t number = (pid_t)json_integer_value(pid);

	if (!child_process_is(number, child->args[0]))
		return;
	if (child->state == CHILD_WAITING)
		child_end(child); /* what it waited for has been done by somebody else */
	if (child_adopt(child, number) < 0)
		log_warn("daemon not recovered", "name=%s pid=%d", child->name, (int)number);
}

/* A file of the runtime directory; NULL: it is not there, or of another format. */
static json_t *read_state(struct supervisor *s, const char *name)
{
	char path[SOCKET_PATH_MAX];
	json_t *json = NULL;

	return state_file_read(cache_dir_socket(&s->cache, name, path), 1, &json) < 0 ? NULL : json;
}

/* Whether anybody needs master and worker is told by one pipe for all: the keeper's, whose mounts
 * have it already. */
static void adopt_alive(struct supervisor *s, const json_t *number)
{
	char path[32];
	int writing = json_is_integer(number) && json_integer_value(number) >= 0
			      ? pidfd_getfd(s->keeper.pidfd, (int)json_integer_value(number), 0)
			      : -1;
	int reading;

	if (writing < 0)
		return;
	(void)snprintf(path, sizeof(path), "/proc/self/fd/%d", writing); /* fits */
	reading = open(path, O_RDONLY | O_CLOEXEC); /* there is a writer: it does not wait */
	if (reading < 0 || dup3(writing, s->alive[1], O_CLOEXEC) < 0 ||
		dup3(reading, s->alive[0], O_CLOEXEC) < 0)
		log_warn("the keeper's pipe cannot be shared",
			"cause=%s effect=\"master and worker end with this process\"",
			err_name(err_errno()));
	cleanup_close(&writing);
	cleanup_close(&reading);
}

void supervisor_adopt_keeper(struct supervisor *s)
{
	json_t *json = read_state(s, "keeper.json");

	if (!json) /* none, or it ended as it should */
		return;
	adopt_daemon(&s->keeper, json_object_get(json, "keeper"));
	s->stays = child_running(&s->keeper) && json_is_true(json_object_get(json, "stays"));
	if (child_running(&s->keeper))
		s->given = max(s->given, 1u);
	if (child_running(&s->keeper) && !child_running(&s->master) && !child_running(&s->worker))
		adopt_alive(s, json_object_get(json, "alive_fd"));
	json_decref(json);
}

void supervisor_adopt(struct supervisor *s)
{
	json_t *json = read_state(s, "state.json");
	json_t *kept = read_state(s, "keeper.json");

	supervisor_adopt_keeper(s);
	s->left =
		!child_running(&s->keeper) && json_array_size(json_object_get(kept, "mounts")) > 0;
	json_decref(kept);
	if (json) {
		adopt_daemon(&s->master, json_object_get(json, "master"));
		adopt_daemon(&s->worker, json_object_get(json, "worker"));
	}
	json_decref(json);
}
