/* NodeGetVolumeStats: what the keeper knows of a mount; nothing is asked of the mounted file system, which may hang. See plugin.h. */
#include "csi/csi_message.h"
#include "csi/csi_volume.h"
#include "csi/plugin.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "csi/csi.pb-c.h"

#include <stdlib.h>
#include <string.h>

#define ANSWER_NS (2 * CLOCK_SECOND)

enum { UNIT_BYTES = 1, UNIT_INODES = 2 };

struct stats {
	struct grpc_call *call;
	struct keeper_call *request;
};

static void on_end(void *arg)
{
	struct stats *stats = arg;

	keeper_call_cancel(stats->request);
	free(stats);
}

static void reply(struct grpc_call *call, const json_t *mount)
{
	Csi__V1__NodeGetVolumeStatsResponse answer;
	Csi__V1__VolumeUsage bytes;
	Csi__V1__VolumeUsage files;
	Csi__V1__VolumeUsage *usage[] = { &bytes, &files };
	Csi__V1__VolumeCondition condition;
	const char *state = json_string_value(json_object_get(mount, "state"));
	const char *why = json_string_value(json_object_get(mount, "last_failure"));
	const json_t *status = json_object_get(mount, "status");
	char text[1200];

	csi__v1__node_get_volume_stats_response__init(&answer);
	csi__v1__volume_usage__init(&bytes);
	csi__v1__volume_usage__init(&files);
	csi__v1__volume_condition__init(&condition);
	bytes.unit = UNIT_BYTES;
	bytes.total = bytes.used = json_integer_value(json_object_get(status, "bytes"));
	files.unit = UNIT_INODES;
	files.total = files.used = json_integer_value(json_object_get(status, "files"));
	condition.abnormal = true;
	if (!state || strcmp(state, "serving") != 0)
		(void)snprintf(text, sizeof(text), "%s%s%s", state ? state : "unknown",
			why ? ": " : "", why ? why : ""); /* fits */
	else if (json_is_true(json_object_get(mount, "token_expired")))
		(void)snprintf(text, sizeof(text), "the token of the mount has expired"); /* fits */
	else if (!status)
		(void)snprintf(text, sizeof(text), "the daemon of the mount does not answer");
	else
		condition.abnormal = false;
	if (!condition.abnormal)
		(void)snprintf(text, sizeof(text), "serving"); /* fits */
	condition.message = text;
	if (status) {
		answer.usage = usage;
		answer.n_usage = ARRAY_SIZE(usage);
	}
	answer.volume_condition = &condition;
	csi_message_reply(call, &answer.base);
}

static void on_found(void *arg, int r, const json_t *mount, const struct err *e)
{
	struct stats *stats = arg;
	struct grpc_call *call = stats->call;

	free(stats);
	if (r == -EINVAL) /* nothing of ours can be there */
		grpc_call_fail(call, GRPC_NOT_FOUND, "%s", e->text);
	else if (r < 0)
		plugin_fail(call, e);
	else
		reply(call, mount);
}

/* "/v1/mount?mountpoint=" with the path as a query has it. */
static int query_of(const char *path, struct buf *out)
{
	int r = buf_puts(out, "/v1/mount?status=1&mountpoint=");

	for (const unsigned char *p = (const unsigned char *)path; *p && r == 0; p++)
		if ((*p >= '0' && *p <= '9') || (*p >= 'A' && *p <= 'Z') ||
			(*p >= 'a' && *p <= 'z') || strchr("/-_.~", *p))
			r = buf_append(out, p, 1);
		else
			r = buf_printf(out, "%%%02X", *p);
	return r;
}

static void find(struct plugin *p, struct grpc_call *call, const char *path)
{
	_cleanup_(buf_release) struct buf query = BUF_INIT(3 * PATH_MAX + 64);
	struct stats *stats = calloc(1, sizeof(*stats));

	if (stats && query_of(path, &query) == 0)
		stats->request = keeper_call_start(
			&p->keeper, buf_str(&query), NULL, ANSWER_NS, on_found, stats);
	if (!stats || !stats->request) {
		free(stats);
		grpc_call_fail(call, GRPC_RESOURCE_EXHAUSTED, "out of memory");
		return;
	}
	stats->call = call;
	grpc_call_on_end(call, on_end, stats);
}

void csi_stats(void *arg, struct grpc_call *call, const void *message, size_t len)
{
	Csi__V1__NodeGetVolumeStatsRequest *request = csi_message_take(
		call, &csi__v1__node_get_volume_stats_request__descriptor, message, len);
	char id[VOLUME_ID_BYTES];
	char path[PATH_MAX] = "";
	struct err e = ERR_INIT;
	bool has_path;
	int r;

	if (!request)
		return;
	r = csi_volume_take_id(&request->volume_id, id, &e);
	has_path = r == 0 && request->volume_path.len > 0;
	if (r == 0)
		r = csi_volume_take_path(&request->volume_path, "volume_path", path, &e);
	protobuf_c_message_free_unpacked(&request->base, NULL);
	if (r < 0 && has_path)
		grpc_call_fail(call, GRPC_NOT_FOUND, "%s", e.text);
	else if (r < 0)
		plugin_fail(call, &e);
	else
		find(arg, call, path);
}
