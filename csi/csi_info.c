/* The calls that need no keeper: identity, capabilities, and the registration at kubelet. See plugin.h. */
#include "csi/csi_message.h"
#include "csi/plugin.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/version.h"
#include "csi/csi.pb-c.h"
#include "csi/pluginregistration.pb-c.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#define PROBE_NS (2 * CLOCK_SECOND)

enum { CAPABILITY_VOLUME_STATS = 2, CAPABILITY_VOLUME_CONDITION = 4 };

/* protobuf-c's texts are char *, which it only reads. */
static char *text(const char *s)
{
	return (char *)(uintptr_t)s;
}

/* ---- Identity -------------------------------------------------------------------------------- */

static void get_plugin_info(void *arg, struct grpc_call *call, const void *message, size_t len)
{
	const struct plugin *p = arg;
	Csi__V1__GetPluginInfoResponse reply;

	(void)message;
	(void)len;
	csi__v1__get_plugin_info_response__init(&reply);
	reply.name = text(p->name);
	reply.vendor_version = text(GRANARY_VERSION);
	csi_message_reply(call, &reply.base);
}

/* No controller: volumes are neither made nor attached. */
static void get_plugin_capabilities(
	void *arg, struct grpc_call *call, const void *message, size_t len)
{
	(void)arg;
	(void)message;
	(void)len;
	csi_message_reply_empty(call);
}

struct probe {
	struct grpc_call *call;
	struct keeper_call *request;
};

static void on_probe_end(void *arg)
{
	struct probe *probe = arg;

	keeper_call_cancel(probe->request);
	free(probe);
}

static void reply_ready(struct grpc_call *call, bool is_ready)
{
	Csi__V1__ProbeResponse reply;
	Csi__V1__BoolValue ready;

	csi__v1__probe_response__init(&reply);
	csi__v1__bool_value__init(&ready);
	ready.value = is_ready;
	reply.ready = &ready;
	csi_message_reply(call, &reply.base);
}

static void on_probed(void *arg, int r, const json_t *answer, const struct err *e)
{
	struct probe *probe = arg;
	struct grpc_call *call = probe->call;
	bool is_ready = r == 0 || r == -ENOENT;

	(void)answer;
	free(probe);
	if (!is_ready)
		LOG_LIMITED(LOG_WARN, "not ready", "why=\"%s\"", e->text);
	reply_ready(call, is_ready);
}

/* Ready is a plugin whose keeper answers; one that has just answered is not asked. */
static void probe(void *arg, struct grpc_call *call, const void *message, size_t len)
{
	struct plugin *p = arg;
	struct probe *probe;

	(void)message;
	(void)len;
	if (p->keeper.answered_ns && clock_mono_ns() - p->keeper.answered_ns < PROBE_NS) {
		reply_ready(call, true);
		return;
	}
	probe = calloc(1, sizeof(*probe));
	if (probe)
		probe->request = keeper_call_start(
			&p->keeper, "/v1/mount?id=0", NULL, PROBE_NS, on_probed, probe);
	if (!probe || !probe->request) {
		free(probe);
		grpc_call_fail(call, GRPC_RESOURCE_EXHAUSTED, "out of memory");
		return;
	}
	probe->call = call;
	grpc_call_on_end(call, on_probe_end, probe);
}

/* ---- Node ------------------------------------------------------------------------------------ */

static void get_capabilities(void *arg, struct grpc_call *call, const void *message, size_t len)
{
	Csi__V1__NodeServiceCapability__RPC stats;
	Csi__V1__NodeServiceCapability__RPC condition;
	Csi__V1__NodeServiceCapability one;
	Csi__V1__NodeServiceCapability two;
	Csi__V1__NodeServiceCapability *all[] = { &one, &two };
	Csi__V1__NodeGetCapabilitiesResponse reply;

	(void)arg;
	(void)message;
	(void)len;
	csi__v1__node_service_capability__rpc__init(&stats);
	csi__v1__node_service_capability__rpc__init(&condition);
	csi__v1__node_service_capability__init(&one);
	csi__v1__node_service_capability__init(&two);
	csi__v1__node_get_capabilities_response__init(&reply);
	stats.type = CAPABILITY_VOLUME_STATS;
	condition.type = CAPABILITY_VOLUME_CONDITION;
	one.rpc = &stats;
	two.rpc = &condition;
	reply.capabilities = all;
	reply.n_capabilities = ARRAY_SIZE(all);
	csi_message_reply(call, &reply.base);
}

/* A label of a node may have no other. */
static bool is_label(const char *value)
{
	size_t len = strlen(value);

	return len > 0 && len <= 63 && isalnum((unsigned char)value[0]) &&
	       isalnum((unsigned char)value[len - 1]) &&
	       strspn(value, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.") ==
		       len;
}

/* Without the keeper: kubelet 1.34 does not ask again after a failure. */
static void get_info(void *arg, struct grpc_call *call, const void *message, size_t len)
{
	const struct plugin *p = arg;
	Csi__V1__NodeGetInfoResponse reply;
	Csi__V1__Topology topology;
	Csi__V1__TextEntry node;
	Csi__V1__TextEntry *segments[] = { &node };

	(void)message;
	(void)len;
	csi__v1__node_get_info_response__init(&reply);
	csi__v1__topology__init(&topology);
	csi__v1__text_entry__init(&node);
	node.key = text(PLUGIN_TOPOLOGY);
	node.value = text(p->node);
	topology.segments = segments;
	topology.n_segments = ARRAY_SIZE(segments);
	if (is_label(p->node))
		reply.accessible_topology = &topology;
	reply.node_id = text(p->node);
	reply.max_volumes_per_node = PLUGIN_VOLUMES;
	csi_message_reply(call, &reply.base);
}

const struct grpc_method plugin_methods[] = {
	{ "/csi.v1.Identity/GetPluginInfo", get_plugin_info },
	{ "/csi.v1.Identity/GetPluginCapabilities", get_plugin_capabilities },
	{ "/csi.v1.Identity/Probe", probe },
	{ "/csi.v1.Node/NodeGetCapabilities", get_capabilities },
	{ "/csi.v1.Node/NodeGetInfo", get_info },
	{ "/csi.v1.Node/NodePublishVolume", csi_publish },
	{ "/csi.v1.Node/NodeUnpublishVolume", csi_unpublish },
	{ "/csi.v1.Node/NodeGetVolumeStats", csi_stats },
	{ 0 },
};

/* ---- Registration ---------------------------------------------------------------------------- */

static void registration_info(void *arg, struct grpc_call *call, const void *message, size_t len)
{
	const struct plugin *p = arg;
	Pluginregistration__PluginInfo reply;
	char *versions[] = { text("1.0.0") };

	(void)message;
	(void)len;
	pluginregistration__plugin_info__init(&reply);
	reply.type = text("CSIPlugin");
	reply.name = text(p->name);
	reply.endpoint = text(p->endpoint);
	reply.supported_versions = versions;
	reply.n_supported_versions = ARRAY_SIZE(versions);
	csi_message_reply(call, &reply.base);
}

static void notify_registration(void *arg, struct grpc_call *call, const void *message, size_t len)
{
	const struct plugin *p = arg;
	Pluginregistration__RegistrationStatus *status = csi_message_take(
		call, &pluginregistration__registration_status__descriptor, message, len);

	if (!status)
		return;
	if (status->plugin_registered) {
		LOG_LIMITED(LOG_INFO, "registered by kubelet", "driver=%s", p->name);
	} else {
		LOG_LIMITED(LOG_ERROR, "not registered by kubelet", "driver=%s why=\"%.*s\"",
			p->name, (int)min(status->error.len, 512u),
			(const char *)status->error.data);
	}
	p->on_registered(p->register_arg, status->plugin_registered);
	protobuf_c_message_free_unpacked(&status->base, NULL);
	csi_message_reply_empty(call);
}

const struct grpc_method plugin_registration_methods[] = {
	{ "/pluginregistration.Registration/GetInfo", registration_info },
	{ "/pluginregistration.Registration/NotifyRegistrationStatus", notify_registration },
	{ 0 },
};

/* ---- errors ---------------------------------------------------------------------------------- */

enum grpc_status plugin_status(int r)
{
	static const struct {
		int error;
		enum grpc_status status;
	} table[] = {
		{ -EINVAL, GRPC_INVALID_ARGUMENT }, { -ENAMETOOLONG, GRPC_INVALID_ARGUMENT },
		{ -ELOOP, GRPC_INVALID_ARGUMENT }, { -ENOTDIR, GRPC_INVALID_ARGUMENT },
		{ -EXDEV, GRPC_INVALID_ARGUMENT }, { -ENOENT, GRPC_NOT_FOUND },
		{ -EEXIST, GRPC_ALREADY_EXISTS }, { -EPERM, GRPC_PERMISSION_DENIED },
		{ -EACCES, GRPC_PERMISSION_DENIED }, { -ENOSPC, GRPC_RESOURCE_EXHAUSTED },
		{ -ENOMEM, GRPC_RESOURCE_EXHAUSTED }, { -EBUSY, GRPC_FAILED_PRECONDITION },
		{ -ENOTEMPTY, GRPC_FAILED_PRECONDITION }, { -EAGAIN, GRPC_UNAVAILABLE },
		{ -ECONNREFUSED, GRPC_UNAVAILABLE }, { -ECONNRESET, GRPC_UNAVAILABLE },
		{ -EPIPE, GRPC_UNAVAILABLE }, { -ETIMEDOUT, GRPC_UNAVAILABLE },
		{ -EBADMSG, GRPC_UNAVAILABLE }, /* the keeper ended in the middle of its answer */
	};

	for (size_t i = 0; i < ARRAY_SIZE(table); i++)
		if (table[i].error == r)
			return table[i].status;
	return GRPC_INTERNAL;
}

void plugin_fail(struct grpc_call *call, const struct err *e)
{
	grpc_call_fail(call, plugin_status(e->code), "%s", e->text);
}
