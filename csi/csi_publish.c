/*
 * NodePublishVolume and NodeUnpublishVolume: requests to the keeper, which has the state (plugin.h).
 *
 *	publish		POST /v1/mounts, then GET /v1/mount?id=N until it serves or has failed
 *	unpublish	POST /v1/unmount until nothing is mounted at the target and the directory is gone
 *
 * A call that is reset, or runs out of time, ends its waiting; what the keeper began goes on, and the next call finds it.
 */
#include "csi/csi_message.h"
#include "csi/csi_volume.h"
#include "csi/plugin.h"
#include "admin/admin.h"
#include "base/backoff.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/crash_point.h"
#include "base/exit.h"
#include "base/log.h"
#include "csi/csi.pb-c.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ANSWER_NS (2 * CLOCK_SECOND) /* of the keeper, to what needs no waiting */
#define EXCHANGE_NS \
	(6 * CLOCK_SECOND) /* the same, where it exchanges a token at the master first */
#define WAIT_NS \
	(10 * CLOCK_SECOND) /* until a publish is answered that it takes longer: the pod's deletion waits for that */
#define UNTIL_NS     (10 * CLOCK_SECOND) /* after so long the keeper refuses to begin a mount */
#define UNMOUNT_NS   (20 * CLOCK_SECOND) /* of the keeper, to one unmount */
#define NORMAL_NS    (10 * CLOCK_SECOND) /* after so long an unmount is lazy */
#define UNMOUNT_MAX  (60 * CLOCK_SECOND) /* of an unpublish in all: kubelet waits 120 s */
#define POLL_NS      (20 * CLOCK_MS) /* first wait between two polls of a mount that starts; doubles */
#define POLL_MAX_NS  (1 * CLOCK_SECOND)
#define AGAIN_NS     (250 * CLOCK_MS) /* the same between two attempts to unmount */
#define AGAIN_MAX_NS (2 * CLOCK_SECOND)

/* A call that waits for the keeper. */
struct waiting {
	struct list link;
	struct plugin *p;
	struct grpc_call *call;      /* NULL: it has ended */
	struct keeper_call *request; /* NULL: between two */
	bool is_change;              /* the request is one that changes something */
	struct loop_timer *timer;    /* to the next; NULL: during one */
	struct backoff backoff;
	uint64_t since_ns;
	unsigned int id; /* of the mount, once the keeper has it */
	char target[PATH_MAX];
};

static void waiting_free(struct waiting *w)
{
	list_remove(&w->link);
	keeper_call_cancel(w->request);
	loop_timer_stop(w->timer);
	free(w);
}

/* A change that was sent may still be made: until its answer is there, other calls for the target are ABORTED. */
static void on_end(void *arg)
{
	struct waiting *w = arg;

	w->call = NULL;
	if (!w->request || !w->is_change)
		waiting_free(w);
}

static void fail(struct waiting *w, const struct err *e)
{
	struct grpc_call *call = w->call;

	waiting_free(w);
	if (call)
		plugin_fail(call, e);
}

static void succeed(struct waiting *w)
{
	struct grpc_call *call = w->call;

	waiting_free(w);
	if (call)
		csi_message_reply_empty(call);
}

static void no_memory(struct waiting *w)
{
	struct err e = ERR_INIT;

	(void)err_set(&e, -ENOMEM, "out of memory");
	fail(w, &e);
}

/* NULL: the call was answered. */
static struct waiting *waiting_new(struct plugin *p, struct grpc_call *call, const char *target)
{
	struct waiting *w;

	list_for_each (node, &p->waiting)
		if (strcmp(list_entry(node, struct waiting, link)->target, target) == 0) {
			grpc_call_fail(call, GRPC_ABORTED,
				"another call for %s is in flight: try again", target);
			return NULL;
		}
	w = calloc(1, sizeof(*w));
	if (!w) {
		grpc_call_fail(call, GRPC_RESOURCE_EXHAUSTED, "out of memory");
		return NULL;
	}
	w->p = p;
	w->call = call;
	w->since_ns = clock_mono_ns();
	w->backoff = (struct backoff){ .min_ns = POLL_NS, .max_ns = POLL_MAX_NS };
	(void)snprintf(w->target, sizeof(w->target), "%s", target); /* fits */
	list_push_back(&p->waiting, &w->link);
	grpc_call_on_end(call, on_end, w);
	return w;
}

static void ask(struct waiting *w, const char *path, const json_t *body, uint64_t ns,
	void (*done)(void *arg, int r, const json_t *answer, const struct err *e))
{
	w->is_change = body != NULL;
	w->request = keeper_call_start(&w->p->keeper, path, body, ns, done, w);
	if (!w->request)
		no_memory(w);
}

static void ask_later(struct waiting *w, void (*fn)(void *arg))
{
	w->timer = loop_timer_start(w->p->loop, backoff_next(&w->backoff), fn, w);
	if (!w->timer)
		no_memory(w);
}

/* ---- publish --------------------------------------------------------------------------------- */

/* As the daemon of the mount ended. */
static enum grpc_status status_of_exit(int status, const char *text)
{
	switch (status) {
	case EXIT_USAGE:
	case EXIT_MOUNTPOINT:
		return GRPC_INVALID_ARGUMENT;
	case EXIT_ORIGIN:
	case EXIT_CACHE:
		return GRPC_FAILED_PRECONDITION;
	case EXIT_KERNEL:
		return strncmp(text, "permission denied", 17) == 0 ? GRPC_PERMISSION_DENIED
								   : GRPC_FAILED_PRECONDITION;
	case EXIT_BUSY:
		return GRPC_ABORTED;
	default:
		return GRPC_UNAVAILABLE;
	}
}

/* The next publish begins with a new mount. */
static void fail_publish(struct waiting *w, const json_t *mount)
{
	const char *text = json_string_value(json_object_get(mount, "text"));
	int status = (int)json_integer_value(json_object_get(mount, "exit"));
	struct grpc_call *call = w->call;

	log_info("volume not published", "target=\"%s\" why=\"%s\"", w->target, text ? text : "");
	waiting_free(w);
	CRASH_POINT("csi.failed");
	text = text ? text : "the mount failed";
	grpc_call_fail(call, status_of_exit(status, text), "%s", text);
}

static void poll_mount(void *arg);

static void on_polled(void *arg, int r, const json_t *mount, const struct err *e)
{
	struct waiting *w = arg;
	const char *state = json_string_value(json_object_get(mount, "state"));
	bool late = clock_mono_ns() - w->since_ns > WAIT_NS;
	struct err why = ERR_INIT;

	w->request = NULL;
	if (r == -ENOENT) {
		(void)err_set(&why, -EAGAIN, "the mount at %s has ended: try again", w->target);
		fail(w, &why);
	} else if (r < 0 && (late || (r != -ETIMEDOUT && r != -EAGAIN))) {
		fail(w, e);
	} else if (state && strcmp(state, "serving") == 0) {
		CRASH_POINT("csi.published");
		log_info("volume published", "target=\"%s\" mount=%u", w->target, w->id);
		succeed(w);
	} else if (state && strcmp(state, "failed") == 0) {
		fail_publish(w, mount);
	} else if (late) {
		(void)err_set(&why, -EAGAIN, "%s is not mounted yet (%s): try again", w->target,
			state ? state : "?");
		fail(w, &why);
	} else {
		ask_later(w, poll_mount); /* it starts, or the keeper is busy */
	}
}

static void poll_mount(void *arg)
{
	struct waiting *w = arg;
	char path[64];

	w->timer = NULL;
	(void)snprintf(path, sizeof(path), "/v1/mount?id=%u", w->id); /* fits */
	ask(w, path, NULL, ANSWER_NS, on_polled);
}

static void on_late(void *arg)
{
	struct waiting *w = arg;

	w->timer = NULL;
	waiting_free(w);
}

/* The keeper may make the mount until `until` of the request: no other call for the target is begun before that. */
static void linger(struct waiting *w, const struct err *e)
{
	struct grpc_call *call = w->call;
	uint64_t now = clock_mono_ns();
	uint64_t until = w->since_ns + UNTIL_NS;

	w->call = NULL;
	w->timer = loop_timer_start(w->p->loop, until > now ? until - now : 0, on_late, w);
	if (!w->timer)
		waiting_free(w);
	if (call) {
		grpc_call_on_end(call, NULL, NULL);
		plugin_fail(call, e);
	}
}

static void on_mounting(void *arg, int r, const json_t *answer, const struct err *e)
{
	struct waiting *w = arg;

	w->request = NULL;
	if (r == -ETIMEDOUT) {
		linger(w, e);
		return;
	}
	if (r < 0 || !w->call) {
		fail(w, e);
		return;
	}
	CRASH_POINT("csi.mounting");
	w->id = (unsigned int)json_integer_value(json_object_get(answer, "id"));
	poll_mount(w);
}

static void add_text(json_t *body, const char *name, const char *text)
{
	if (text[0])
		(void)json_object_set_new(body, name, json_string(text)); /* counted */
}

/* NULL without memory. */
static json_t *body_of(const struct csi_volume *v, uint64_t until_ns)
{
	uint64_t failures = admin_json_failures();
	json_t *body = json_pack("{s:s, s:s, s:I, s:I}", "dataset_name", v->dataset, "mountpoint",
		v->target, "token", (json_int_t)v->token, "until", (json_int_t)until_ns);

	if (!body)
		return NULL;
	add_text(body, "path", v->path);
	if (v->generation[0])                                 /* 18 digits at most */
		(void)json_object_set_new(body, "generation", /* counted */
			json_integer(strtoll(v->generation, NULL, 10)));
	if (strcmp(v->follow, "true") == 0)
		(void)json_object_set_new(body, "follow_dataset", json_true()); /* counted */
	add_text(body, "engine", v->engine);
	add_text(body, "integrity", v->integrity);
	add_text(body, "namespace", v->name_space);
	add_text(body, "account", v->account);
	add_text(body, "pod_uid", v->pod);
	add_text(body, "service_account_token", v->service_token);
	if (admin_json_failures() == failures)
		return body;
	json_decref(body);
	return NULL;
}

void csi_publish(void *arg, struct grpc_call *call, const void *message, size_t len)
{
	struct plugin *p = arg;
	Csi__V1__NodePublishVolumeRequest *request = csi_message_take(
		call, &csi__v1__node_publish_volume_request__descriptor, message, len);
	struct csi_volume volume;
	struct err e = ERR_INIT;
	struct waiting *w;
	json_t *body;
	int r;

	if (!request)
		return;
	r = csi_volume_parse(request, &volume, &e);
	protobuf_c_message_free_unpacked(&request->base, NULL);
	if (r < 0) {
		plugin_fail(call, &e);
		return;
	}
	w = waiting_new(p, call, volume.target);
	body = w ? body_of(&volume, w->since_ns + UNTIL_NS) : NULL;
	if (body)
		ask(w, "/v1/mounts", body, volume.service_token[0] ? EXCHANGE_NS : ANSWER_NS,
			on_mounting);
	else if (w)
		no_memory(w);
	CRASH_POINT("csi.asked");
	explicit_bzero(volume.service_token, sizeof(volume.service_token));
	json_decref(body);
}

/* ---- unpublish ------------------------------------------------------------------------------- */

static void unmount(void *arg);

static void on_unmounted(void *arg, int r, const json_t *answer, const struct err *e)
{
	struct waiting *w = arg;

	(void)answer;
	w->request = NULL;
	if (!w->call) {
		waiting_free(w);
	} else if (r == 0 || r == -ENOENT) { /* nothing is there: done before */
		CRASH_POINT("csi.unpublished");
		log_info("volume unpublished", "target=\"%s\"", w->target);
		succeed(w);
	} else if ((r == -EBUSY || r == -EAGAIN) && clock_mono_ns() - w->since_ns < UNMOUNT_MAX) {
		ask_later(w, unmount);
	} else {
		fail(w, e);
	}
}

static void unmount(void *arg)
{
	struct waiting *w = arg;
	bool lazy = clock_mono_ns() - w->since_ns >= NORMAL_NS;
	json_t *body =
		json_pack("{s:s, s:s}", "mountpoint", w->target, "mode", lazy ? "lazy" : "normal");

	w->timer = NULL;
	if (body)
		ask(w, "/v1/unmount", body, UNMOUNT_NS, on_unmounted);
	else
		no_memory(w);
	json_decref(body);
}

void csi_unpublish(void *arg, struct grpc_call *call, const void *message, size_t len)
{
	struct plugin *p = arg;
	Csi__V1__NodeUnpublishVolumeRequest *request = csi_message_take(
		call, &csi__v1__node_unpublish_volume_request__descriptor, message, len);
	char id[VOLUME_ID_BYTES];
	char target[PATH_MAX];
	struct err e = ERR_INIT;
	struct waiting *w;
	int r;

	if (!request)
		return;
	r = csi_volume_take_id(&request->volume_id, id, &e);
	if (r == 0)
		r = csi_volume_take_path(&request->target_path, "target_path", target, &e);
	protobuf_c_message_free_unpacked(&request->base, NULL);
	if (r < 0) {
		plugin_fail(call, &e);
		return;
	}
	w = waiting_new(p, call, target);
	if (!w)
		return;
	w->backoff = (struct backoff){ .min_ns = AGAIN_NS, .max_ns = AGAIN_MAX_NS };
	unmount(w);
}

void csi_publish_end(struct plugin *p)
{
	while (!list_empty(&p->waiting))
		waiting_free(list_entry(p->waiting.next, struct waiting, link));
}
