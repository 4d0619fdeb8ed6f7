/*
 * Fuzzer of what a client of cachecsi sends: HTTP/2 with gRPC in it, and the messages of CSI. The first byte picks: 0 a connection,
 * the second how it is cut into pieces; 1 a request to publish a volume.
 *
 * A connection answers each call at most once, keeps no more calls and bytes than it may, and nothing once it has ended. A volume that
 * is accepted has valid texts and the same token whatever the order of its attributes.
 */
#include <nghttp2/nghttp2.h>
#include <stdlib.h>
#include <string.h>
#include "base/cleanup.h"
#include "base/dataset_name.h"
#include "csi/csi.pb-c.h"
#include "csi/csi_volume.h"
#include "csi/grpc.h"
#include "tests/fuzz/seeds.h"

#define MESSAGES_BYTES 65536u
#define KEPT           8u

enum parser {
	PARSER_CONNECTION,
	PARSER_VOLUME,
	PARSERS,
};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* ---- connections ----------------------------------------------------------------------------- */

struct kept {
	struct grpc_call *call; /* NULL: it ended */
};

static struct kept kept[KEPT];
static unsigned int n_kept;

static void on_end(void *arg)
{
	struct kept *k = arg;

	ensure(k->call);
	k->call = NULL;
}

/* The first calls of a connection are answered later, or end with it; the others at once. */
static void handle(void *arg, struct grpc_call *call, const void *message, size_t len)
{
	(void)arg;
	if (n_kept < KEPT) {
		kept[n_kept].call = call;
		grpc_call_on_end(call, on_end, &kept[n_kept++]);
	} else if (len % 2) {
		grpc_call_fail(call, GRPC_NOT_FOUND, "%.*s", (int)len, (const char *)message);
	} else {
		grpc_call_reply(call, message, len);
	}
}

static const struct grpc_method methods[] = {
	{ "/csi.v1.Node/NodeGetInfo", handle },
	{ 0 },
};

static void wake(void *arg)
{
	(void)arg;
}

static bool drain(struct grpc_conn *conn)
{
	const uint8_t *out;
	size_t len = 1;

	while (len > 0)
		if (grpc_conn_output(conn, &out, &len) < 0)
			return false;
	return !grpc_conn_done(conn);
}

static void connection(const uint8_t *data, size_t size)
{
	struct budget messages;
	unsigned int n_calls = 0;
	const struct grpc_service service = { methods, NULL, &messages, &n_calls };
	size_t piece = size ? data[0] : 0;
	struct grpc_conn *conn = NULL;
	bool lives = true;

	budget_init(&messages, MESSAGES_BYTES);
	n_kept = 0;
	ensure(grpc_conn_new(&service, wake, NULL, &conn) == 0);
	for (size_t at = 1, n; at < size && lives; at += n) {
		uint8_t *copy; /* of its own, so that a byte too many is seen */

		n = min(piece ? piece : size, size - at);
		copy = malloc(n);
		ensure(copy);
		memcpy(copy, data + at, n);
		lives = grpc_conn_feed(conn, copy, n, at) == 0 && drain(conn);
		free(copy);
		ensure(messages.used <= MESSAGES_BYTES);
		ensure(grpc_conn_calls(conn) <= KEPT);
		grpc_conn_expire(conn, at);
	}
	for (unsigned int i = 0; i < n_kept && lives; i += 2)
		if (kept[i].call)
			grpc_call_reply(TAKE(kept[i].call), "", 0);
	(void)drain(conn);
	grpc_conn_free(conn);
	for (unsigned int i = 0; i < n_kept; i++)
		ensure(!kept[i].call);
	ensure(messages.used == 0 && n_calls == 0);
}

/* ---- volumes --------------------------------------------------------------------------------- */

static void check_text(const char *text)
{
	for (; *text; text++)
		ensure((unsigned char)*text >= ' ' && *text != 0x7f);
}

static void volume(const uint8_t *data, size_t size)
{
	Csi__V1__NodePublishVolumeRequest *request =
		csi__v1__node_publish_volume_request__unpack(NULL, size, data);
	struct err e = ERR_INIT;
	struct csi_volume v;
	struct csi_volume again;

	if (!request)
		return;
	if (csi_volume_parse(request, &v, &e) < 0) {
		fuzz_check_line(&e);
	} else {
		check_text(v.id);
		check_text(v.target);
		check_text(v.name_space);
		ensure(v.target[0] == '/' && !strstr(v.target, "/../"));
		ensure(dataset_check_name(v.dataset, NULL) == 0);
		for (size_t i = 0; i < request->n_volume_context / 2; i++) {
			Csi__V1__Entry *entry = request->volume_context[i];
			size_t other = request->n_volume_context - 1 - i;

			request->volume_context[i] = request->volume_context[other];
			request->volume_context[other] = entry;
		}
		ensure(csi_volume_parse(request, &again, &e) == 0);
		ensure(again.token == v.token && v.token > 0);
	}
	csi__v1__node_publish_volume_request__free_unpacked(request, NULL);
}

/* ---- seeds ----------------------------------------------------------------------------------- */

static nghttp2_nv pair(const char *name, const char *value)
{
	return (nghttp2_nv){ .name = (uint8_t *)(uintptr_t)name,
		.namelen = strlen(name),
		.value = (uint8_t *)(uintptr_t)value,
		.valuelen = strlen(value) };
}

static ssize_t read_message(nghttp2_session *session, int32_t stream, uint8_t *out, size_t size,
	uint32_t *flags, nghttp2_data_source *source, void *arg)
{
	static const char message[] = "\0\0\0\0\3abc";

	(void)session;
	(void)stream;
	(void)source;
	(void)arg;
	ensure(size >= sizeof(message));
	memcpy(out, message, sizeof(message) - 1);
	*flags |= NGHTTP2_DATA_FLAG_EOF;
	return sizeof(message) - 1;
}

/* A client's bytes: preface, settings, and calls. */
static void seed_connection(const char *name, const char *path, unsigned int calls)
{
	const nghttp2_nv headers[] = { pair(":method", "POST"), pair(":scheme", "http"),
		pair(":path", path), pair(":authority", "/csi/csi.sock"),
		pair("content-type", "application/grpc"), pair("grpc-timeout", "1S") };
	const nghttp2_data_provider provider = { .read_callback = read_message };
	struct buf all = BUF_INIT(MESSAGES_BYTES);
	nghttp2_session_callbacks *callbacks = NULL;
	nghttp2_session *client = NULL;
	const uint8_t *out;
	ssize_t n;

	ensure(nghttp2_session_callbacks_new(&callbacks) == 0 &&
		nghttp2_session_client_new(&client, callbacks, NULL) == 0 &&
		nghttp2_submit_settings(client, NGHTTP2_FLAG_NONE, NULL, 0) == 0);
	for (unsigned int i = 0; i < calls; i++)
		ensure(nghttp2_submit_request(
			       client, NULL, headers, ARRAY_SIZE(headers), &provider, NULL) > 0);
	ensure(nghttp2_submit_ping(client, NGHTTP2_FLAG_NONE, NULL) == 0);
	ensure(buf_append(&all, "\0", 1) == 0);
	while ((n = nghttp2_session_mem_send(client, &out)) > 0)
		ensure(buf_append(&all, out, (size_t)n) == 0);
	fuzz_seed_for(PARSER_CONNECTION, name, all.data, all.len);
	buf_release(&all);
	nghttp2_session_del(client);
	nghttp2_session_callbacks_del(callbacks);
}

static ProtobufCBinaryData bytes(const char *text)
{
	return (ProtobufCBinaryData){ .len = strlen(text), .data = (uint8_t *)(uintptr_t)text };
}

static void seed_volume(void)
{
	Csi__V1__NodePublishVolumeRequest request;
	Csi__V1__VolumeCapability capability;
	Csi__V1__VolumeCapability__MountVolume mount;
	Csi__V1__VolumeCapability__AccessMode mode;
	Csi__V1__Entry entries[3];
	Csi__V1__Entry *pointers[] = { &entries[0], &entries[1], &entries[2] };
	uint8_t packed[512];

	csi__v1__node_publish_volume_request__init(&request);
	csi__v1__volume_capability__init(&capability);
	csi__v1__volume_capability__mount_volume__init(&mount);
	csi__v1__volume_capability__access_mode__init(&mode);
	for (size_t i = 0; i < ARRAY_SIZE(entries); i++)
		csi__v1__entry__init(&entries[i]);
	entries[0].key = bytes("dataset");
	entries[0].value = bytes("train");
	entries[1].key = bytes("engine");
	entries[1].value = bytes("fuse");
	entries[2].key = bytes("csi.storage.k8s.io/pod.namespace");
	entries[2].value = bytes("team");
	mode.mode = 1;
	capability.mount = &mount;
	capability.access_mode = &mode;
	request.volume_id = bytes("csi-1");
	request.target_path = bytes("/pods/1/volumes/mount");
	request.readonly = true;
	request.volume_capability = &capability;
	request.volume_context = pointers;
	request.n_volume_context = ARRAY_SIZE(pointers);
	ensure(csi__v1__node_publish_volume_request__get_packed_size(&request) <= sizeof(packed));
	fuzz_seed_for(PARSER_VOLUME, "volume", packed,
		csi__v1__node_publish_volume_request__pack(&request, packed));
}

void fuzz_seeds(void)
{
	seed_connection("calls", methods[0].path, 3);
	seed_connection("unknown", "/csi.v1.Node/Other", 1);
	seed_volume();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	if (size == 0)
		return 0;
	switch (data[0] % PARSERS) {
	case PARSER_CONNECTION:
		connection(data + 1, size - 1);
		break;
	case PARSER_VOLUME:
	default:
		volume(data + 1, size - 1);
		break;
	}
	return 0;
}
