/* Watches. See kube_watch.h. */
#include "kube/kube_watch.h"
#include "admin/admin.h"
#include "base/clock.h"
#include "kube/kube_internal.h"

#include <stdlib.h>
#include <string.h>

#define LINE_BYTES    (8u << 20) /* one change; etcd has no object above 1.5 MiB */
#define WATCH_S       300u       /* the server ends a watch after that: another begins */
#define IDLE_NS       ((WATCH_S + 30) * CLOCK_SECOND)
#define LATE_NS       (5 * CLOCK_SECOND) /* that the server may take to end a watch in time */
#define REPEAT_MIN_NS (500 * CLOCK_MS)
#define REPEAT_MAX_NS (30 * CLOCK_SECOND)
#define PATH_BYTES    8192u

struct state {
	struct kube *kube;
	const struct kube_watch *watch;
	char *version;   /* of the last object or bookmark; NULL: list first */
	struct buf line; /* of a change that has not arrived whole */
	int ended;       /* what see() returned */
	bool heard;      /* the connection brought something */
	struct err *e;
};

static int tell(struct state *s, enum kube_change change, json_t *object)
{
	s->ended = s->watch->see(s->watch->arg, change, object);
	return s->ended;
}

static int see_present(void *arg, json_t *object)
{
	return tell(arg, KUBE_PRESENT, object);
}

static int list_restarted(void *arg)
{
	return tell(arg, KUBE_LISTING, NULL);
}

static int list(struct state *s, struct err *e)
{
	const struct kube_watch *w = s->watch;
	int r = tell(s, KUBE_LISTING, NULL);

	if (r == 0)
		r = kube_list(s->kube, &w->kind, &w->query, see_present, list_restarted, s,
			&s->version, e);
	return r == 0 ? tell(s, KUBE_LISTED, NULL) : r;
}

static int take_version(struct state *s, const json_t *object)
{
	const char *version = json_string_value(
		json_object_get(json_object_get(object, "metadata"), "resourceVersion"));
	char *copy;

	if (!version)
		return 0;
	copy = strdup(version);
	if (!copy)
		return -ENOMEM;
	free(s->version);
	s->version = copy;
	return 0;
}

/* An ERROR event has a Status: 410 is the usual one. */
static int take_error(struct state *s, const json_t *status)
{
	if (json_integer_value(json_object_get(status, "code")) == 410)
		return -ESTALE;
	return err_set(s->e, -EIO, "%s ended a watch: %.300s", s->kube->name,
		json_string_value(json_object_get(status, "message"))
			? json_string_value(json_object_get(status, "message"))
			: "no reason given");
}

static int take_change(struct state *s, const json_t *json)
{
	static const char *const types[] = {
		[KUBE_ADDED] = "ADDED", [KUBE_MODIFIED] = "MODIFIED", [KUBE_DELETED] = "DELETED"
	};
	const char *type = json_string_value(json_object_get(json, "type"));
	json_t *object = json_object_get(json, "object");
	int r;

	if (!type || !object)
		return -EPROTO;
	if (strcmp(type, "ERROR") == 0)
		return take_error(s, object);
	r = take_version(s, object);
	for (size_t i = KUBE_ADDED; i < ARRAY_SIZE(types) && r == 0; i++)
		if (strcmp(type, types[i]) == 0)
			(void)tell(s, (enum kube_change)i, object); /* s->ended */
	return s->ended ? -ECANCELED : r; /* other types, such as BOOKMARK, have a version only */
}

static int take_line(struct state *s, const char *text, size_t len)
{
	json_t *json = NULL;
	int r = admin_json_parse(text, len, 0, &json, NULL);

	r = r < 0 ? (r == -ENOMEM ? r : -EIO) : take_change(s, json);
	json_decref(json);
	return r;
}

static int see_data(void *arg, const char *data, size_t len)
{
	struct state *s = arg;

	s->heard = true;
	while (len) {
		const char *end = memchr(data, '\n', len);
		size_t n = end ? (size_t)(end - data) : len;
		int r = buf_append(&s->line, data, n);

		if (r == 0 && end && s->line.len)
			r = take_line(s, s->line.data, s->line.len);
		if (r < 0)
			return r;
		if (end)
			buf_clear(&s->line);
		n += end != NULL;
		data += n;
		len -= n;
	}
	return 0;
}

static int follow_path(struct state *s, uint64_t left_s, struct buf *path, struct err *e)
{
	const struct kube_query *query = &s->watch->query;
	int r = kube_path(s->kube, &s->watch->kind, query->name_space, NULL, NULL, path, e);

	if (r < 0)
		return r;
	r = buf_printf(path,
		"?watch=1&allowWatchBookmarks=true&timeoutSeconds=%llu&resourceVersion=",
		(unsigned long long)left_s);
	if (r == 0)
		r = kube_put_escaped(path, s->version);
	if (r == 0 && query->labels)
		r = buf_puts(path, "&labelSelector=");
	if (r == 0 && query->labels)
		r = kube_put_escaped(path, query->labels);
	if (r == 0 && query->fields)
		r = buf_puts(path, "&fieldSelector=");
	if (r == 0 && query->fields)
		r = kube_put_escaped(path, query->fields);
	return r < 0 ? err_set(e, r, "cannot make the path of a watch: %s", err_str(r)) : 0;
}

/* Until the connection ends. 0: it ended as it should. */
static int follow(struct state *s, uint64_t *ret_retry_after_ns, struct err *e)
{
	_cleanup_(buf_release) struct buf path = BUF_INIT(PATH_BYTES);
	_cleanup_(buf_release) struct buf answer = BUF_INIT(LINE_BYTES);
	uint64_t end_ns = s->watch->end_ns;
	uint64_t now = clock_mono_ns();
	uint64_t left_s = WATCH_S;
	struct kube_request request = { 0 };
	int status = 0;
	int r;

	if (end_ns && now >= end_ns)
		return -ETIMEDOUT;
	if (end_ns)
		left_s = min(left_s, (end_ns - now) / CLOCK_SECOND + 1);
	r = follow_path(s, left_s, &path, e);
	if (r < 0)
		return r;
	request.path = buf_str(&path);
	buf_clear(&s->line);
	r = kube_send(s->kube, &request,
		&(struct kube_sink){ .see = see_data,
			.arg = s,
			.idle_ns = IDLE_NS,
			.timeout_ns = end_ns ? end_ns - now + LATE_NS : 0 },
		&status, ret_retry_after_ns, &answer, e);
	if (r == 0 && status / 100 != 2)
		r = kube_refused(s->kube, &request, status, buf_str(&answer), answer.len, e);
	return r;
}

static bool passes(int r)
{
	return r == 0 || r == -ESTALE || r == -EIO || r == -EAGAIN || r == -ECONNREFUSED ||
	       r == -EHOSTUNREACH || r == -ETIMEDOUT || r == -EPROTO || r == -ENOBUFS;
}

/* One list, or one connection. */
static int step(struct state *s, struct backoff *backoff, struct err *e)
{
	int r;

	s->heard = false;
	backoff->asked_ns = 0;
	if (!s->version)
		return list(s, e);
	r = follow(s, &backoff->asked_ns, e);
	if (r == -ESTALE) { /* what it missed is in the list */
		free(TAKE(s->version));
		r = 0;
	}
	if (s->heard)
		backoff_reset(backoff);
	return r;
}

int kube_watch(struct kube *kube, const struct kube_watch *watch, struct err *e)
{
	struct backoff backoff = {
		.min_ns = REPEAT_MIN_NS, .max_ns = REPEAT_MAX_NS, .spread = BACKOFF_HALF
	};
	struct state s = { .kube = kube, .watch = watch, .line = BUF_INIT(LINE_BYTES), .e = e };
	int r = 0;

	for (;;) {
		bool lists = s.version == NULL;

		r = step(&s, &backoff, e);
		if (s.ended)
			r = s.ended;
		if (s.ended || !passes(r))
			break;
		if (watch->end_ns && clock_mono_ns() >= watch->end_ns) {
			r = err_set(e, -ETIMEDOUT, "%s: the time for a watch is over", kube->name);
			break;
		}
		if (r == 0 && lists)
			continue;
		r = kube_sleep(kube, backoff_next(&backoff), e);
		if (r < 0)
			break;
	}
	buf_release(&s.line);
	free(s.version);
	return r;
}
