/* Who changed what. See audit.h. */
#include "admin/audit.h"
#include "admin/admin_internal.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "base/log_file.h"

#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define NAME_BYTES 1024u /* of one name in a line */

static struct log_file audit_file = LOG_FILE_INIT;
static const char *audit_process;
static _Atomic int audit_fd = -1;
static _Atomic uint64_t lost;
static void (*_Atomic watcher)(void *arg, const struct audit_act *act); /* set after its argument */
static void *watcher_arg;

int audit_open(const char *path, const char *process, struct err *e)
{
	int fd;
	int r;

	audit_process = process;
	if (!path)
		return 0;
	r = file_make_directory_of(path, 0700);
	fd = r == 0 ? open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0600) : -1;
	if (fd < 0) {
		r = r < 0 ? r : err_errno();
		return err_set(e, r,
			"the audit log %s cannot be written: %s: give another --audit-log", path,
			err_str(r));
	}
	log_file_set(&audit_file, fd, path);
	atomic_store(&audit_fd, fd);
	return 0;
}

void audit_close(void)
{
	int fd = atomic_exchange(&audit_fd, -1);

	if (fd >= 0)
		(void)close(fd); /* each line was written whole */
	log_file_set(&audit_file, -1, NULL);
}

void audit_watch(void (*fn)(void *arg, const struct audit_act *act), void *arg)
{
	if (fn)
		watcher_arg = arg;
	atomic_store(&watcher, fn);
}

uint64_t audit_lost(void)
{
	return atomic_load(&lost);
}

/* ---- names ----------------------------------------------------------------------------------- */

/* "s3://bucket/prefix": without what stands before an '@' or after a '?'. No bucket's name has a ':',
 * as keys before it do, in which there may be a '/'. */
static json_t *source_name(const char *url)
{
	const char *rest = strstr(url, "://");
	size_t scheme = rest ? (size_t)(rest - url) + 3 : 0;
	size_t len;
	const char *at;

	rest = url + scheme;
	len = strcspn(rest, "/?");
	at = memchr(rest, ':', len) ? strrchr(rest, '@') : memchr(rest, '@', len);
	if (at)
		rest = at + 1;
	len = min(strcspn(rest, "?"), (size_t)NAME_BYTES);
	return json_sprintf("%.*s%.*s", (int)scheme, url, (int)len, rest);
}

static json_t *plain_name(const char *text)
{
	return json_sprintf("%.*s", (int)NAME_BYTES, text);
}

json_t *audit_names(const json_t *params, const json_t *body)
{
	static const char *const plain[] = { "name", "dataset", "mountpoint", "volume", "what",
		"program", "path", "generation", "new_name", "id" };
	static const char *const sources[] = { "source", "url" };
	json_t *on = params ? json_deep_copy(params) : json_object();

	for (size_t i = 0; on && i < ARRAY_SIZE(plain); i++) {
		json_t *value = json_object_get(body, plain[i]);
		const char *text = json_string_value(value);

		/* Text that is not UTF-8 is left out: for display only. */
		if (text && !json_object_get(on, plain[i]))
			(void)json_object_set_new(on, plain[i], plain_name(text));
		else if (json_is_integer(value) && !json_object_get(on, plain[i]))
			(void)json_object_set(on, plain[i], value);
	}
	for (size_t i = 0; on && i < ARRAY_SIZE(sources); i++) {
		const char *url = json_string_value(json_object_get(body, sources[i]));

		if (url)
			(void)json_object_set_new(on, sources[i], source_name(url));
	}
	return on;
}

/* ---- changes --------------------------------------------------------------------------------- */

static void add_change(json_t *changes, const char *name, const json_t *before, const json_t *after)
{
	json_t *was = json_object_get(before, name);
	json_t *is = json_object_get(after, name);

	if (was == is || (was && is && json_equal(was, is)) || json_object_get(changes, name))
		return;
	/* Told only. */
	(void)json_object_set_new(changes, name, json_pack("{s:O?, s:O?}", "old", was, "new", is));
}

void audit_change(json_t *changes, const json_t *before, const json_t *after)
{
	const json_t *const both[] = { before, after };
	const char *name;
	json_t *value;

	for (size_t i = 0; changes && i < ARRAY_SIZE(both); i++)
		json_object_foreach ((json_t *)(uintptr_t)both[i], name, value)
			add_change(changes, name, before, after);
}

/* ---- lines ----------------------------------------------------------------------------------- */

/* A short file of /proc/PID; false: it is gone. */
static bool read_proc(pid_t pid, const char *name, char *out, size_t size)
{
	char path[64];
	_cleanup_close_ int fd = -1;
	ssize_t n;

	(void)snprintf(path, sizeof(path), "/proc/%d/%s", (int)pid, name); /* fits */
	fd = open(path, O_RDONLY | O_CLOEXEC);
	n = fd < 0 ? -1 : read(fd, out, size - 1);
	if (n <= 0)
		return false;
	out[n] = '\0';
	out[strcspn(out, "\n")] = '\0';
	return true;
}

static json_t *caller_json(const struct admin_caller *caller)
{
	const struct peer_identity *peer = &caller->peer;
	json_t *json;
	char text[64];

	if (peer->kind == PEER_UNKNOWN)
		return json_null();
	if (peer->kind != PEER_NODE)
		return json_pack("{s:s}", "via", admin_caller_via(caller, text));
	json = json_pack("{s:i, s:i, s:i}", "uid", (int)peer->uid, "gid", (int)caller->gid, "pid",
		(int)caller->pid);
	if (json && read_proc(caller->pid, "comm", text, sizeof(text)))
		(void)json_object_set_new(json, "name", json_string(text)); /* for display only */
	if (json && read_proc(caller->pid, "loginuid", text, sizeof(text)) &&
		strcmp(text, "4294967295") != 0)
		(void)json_object_set_new(
			json, "login", json_integer(strtoll(text, NULL, 10))); /* likewise */
	return json;
}

static char *line_of(const struct audit_act *act)
{
	json_t *json = json_pack("{s:o, s:s, s:i, s:s, s:o, s:O*, s:s}", "time",
		admin_json_time((int64_t)clock_wall_ns()), "process", audit_process, "pid",
		(int)getpid(), "act", act->act, "caller", caller_json(act->caller), "on", act->on,
		"result", act->code == 0 ? "ok" : err_name(act->code));
	char *text;

	if (json && json_object_size(act->changes) > 0)
		(void)json_object_set(
			json, "changes", (json_t *)(uintptr_t)act->changes); /* for display only */
	if (json && act->text && act->text[0])
		(void)json_object_set_new(
			json, "text", json_string(act->text)); /* for display only */
	text = json ? admin_json_text(json, JSON_COMPACT) : NULL;
	json_decref(json);
	return text;
}

void audit_write(const struct audit_act *act)
{
	_cleanup_free_ char *text = NULL;
	_cleanup_free_ char *line = NULL;
	int fd = atomic_load(&audit_fd);
	ssize_t n = -1;
	int len = -1;
	void (*watch)(void *arg, const struct audit_act *act) = atomic_load(&watcher);

	if (watch)
		watch(watcher_arg, act);
	if (fd < 0)
		return;
	text = line_of(act);
	if (text)
		len = asprintf(&line, "%s\n", text);
	if (len < 0)
		line = NULL; /* not set by a failed asprintf() */
	else
		n = write(fd, line, (size_t)len); /* one line, or none */
	if (n == len && n > 0) {
		log_file_count(&audit_file, (uint64_t)n);
		return;
	}
	atomic_fetch_add(&lost, 1);
	LOG_LIMITED(LOG_ERROR, "audit line lost", "act=%s uid=%u pid=%d result=%s", act->act,
		act->caller->peer.uid, (int)act->caller->pid, err_name(act->code));
}
