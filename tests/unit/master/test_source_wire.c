/* Sources through a real rpc client, and while origins hang. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include "master/service.h"
#include "net/table_pull.h"
#include "proto/granary.pb-c.h"
#include "tests/clock/test_clock.h"
#include "tests/unit/master/source_fixture.h"
#include "tests/unit/net/cluster_key.h"

#define HANGING 64u /* requests at once */

struct wire {
	bool tcp; /* set before wire_open() */
	struct loop *loop;
	struct pool *pool;
	struct pool *small;
	struct pool *dirs;
	struct membership *membership;
	struct service service;
	struct rpc_server *server;
	struct rpc_client *client;
};

static void wire_open(struct wire *w)
{
	struct err e = ERR_INIT;
	char address[128];

	*w = (struct wire){ .tcp = w->tcp,
		.loop = loop_new("test"),
		.pool = pool_new("test-work", 4, 64),
		.small = pool_new("test-small", 2, 2 * HANGING),
		.dirs = pool_new("test-dirs", 1, 64) };
	assert_int_equal(membership_new(&(struct membership_config){ .store = sf.store,
						.epoch = sf.epoch,
						.out_after_ns = MEMBER_OUT_NS },
				 &w->membership, &e),
		0);
	assert_int_equal(membership_start(w->membership), 0);
	w->service.sources = sf.set;
	w->service.membership = w->membership;
	w->service.pool = w->pool;
	w->service.small = w->small;
	w->service.dirs = w->dirs;
	w->service.pieces = table_pieces_new(sf.set, w->small);
	(void)snprintf(address, sizeof(address), "unix:%s/rpc", fixture_dir);
	if (w->tcp) {
		assert_int_equal(cluster_key_load(false), 0);
		(void)snprintf(address, sizeof(address), "tcp:127.0.0.1:0");
	}
	assert_int_equal(
		rpc_server_new(w->loop, address, &service_ops, &w->service, &w->server, &e), 0);
	assert_int_equal(rpc_client_new(w->loop, rpc_server_address(w->server), &w->client, &e), 0);
}

static void wire_close(struct wire *w)
{
	rpc_client_free(w->client);
	rpc_server_free(w->server);
	if (w->tcp)
		assert_int_equal(cluster_key_forget(), 0);
	pool_free(w->small);
	table_pieces_free(w->service.pieces);
	pool_free(w->dirs);
	pool_free(w->pool);
	loop_free(w->loop);
	membership_free(w->membership);
}

static int call(
	struct wire *w, struct rpc_call *call, uint8_t op, void *message, size_t len, struct err *e)
{
	*call = (struct rpc_call){
		.frame = { .op = op },
		.payload = NET_PAYLOAD_NONE,
		.deadline_ns = clock_mono_ns() + 60 * CLOCK_SECOND,
		.reply_fd = -1,
	};
	call->payload.parts[0].data = message;
	call->payload.parts[0].len = len;
	call->payload.n = len ? 1 : 0;
	return rpc_call_wait(w->client, call, e);
}

static int call_with_refresh(
	struct wire *w, struct rpc_call *rpc, const char *prefix, bool refresh, struct err *e)
{
	Granary__OpenSource m = GRANARY__OPEN_SOURCE__INIT;
	Granary__Source source = GRANARY__SOURCE__INIT;
	uint8_t packed[1024];
	size_t len;

	source.has_scheme = 1;
	source.scheme = UFS_FILE;
	source.prefix = (char *)(uintptr_t)prefix;
	m.source = &source;
	m.has_refresh = 1;
	m.refresh = refresh;
	len = granary__open_source__pack(&m, packed);
	return call(w, rpc, FRAME_OPEN_SOURCE, packed, len, e);
}

static int call_open(struct wire *w, struct rpc_call *rpc, const char *prefix, struct err *e)
{
	return call_with_refresh(w, rpc, prefix, true, e);
}

static void check_hold_over_the_wire(struct wire *w, struct generation_id *held)
{
	Granary__Hold m = GRANARY__HOLD__INIT;
	Granary__Retention *retention;
	struct rpc_call rpc;
	struct err e = ERR_INIT;
	uint8_t mount[HOLD_MOUNT_BYTES] = { 1 };
	uint8_t packed[256];

	m.has_volume = m.has_lineage = m.has_generation = m.has_mount = 1;
	m.volume = (ProtobufCBinaryData){ VOLUME_ID_LEN, held->volume.bytes };
	m.lineage = held->lineage;
	m.generation = held->generation;
	m.mount = (ProtobufCBinaryData){ sizeof(mount), mount };
	assert_int_equal(call(w, &rpc, FRAME_HOLD, packed, granary__hold__pack(&m, packed), &e), 0);
	m.generation = 99;
	assert_int_equal(
		call(w, &rpc, FRAME_HOLD, packed, granary__hold__pack(&m, packed), &e), -ESTALE);
	assert_non_null(strstr(e.text, "mount again"));
	free(rpc.reply_payload);
	m.mount.len = 3;
	assert_int_equal(
		call(w, &rpc, FRAME_HOLD, packed, granary__hold__pack(&m, packed), &e), -EBADMSG);
	free(rpc.reply_payload);
	assert_int_equal(call(w, &rpc, FRAME_GET_RETENTION, NULL, 0, &e), 0);
	assert_int_equal(rpc.reply.offset, 0);
	retention = granary__retention__unpack(NULL, rpc.reply.payload, rpc.reply_payload);
	assert_non_null(retention);
	assert_true(retention->n_sources >= 1);
	assert_int_equal(
		retention->sources[0]->n_retained, 2); /* and what the mount says it shows */
	assert_memory_equal(
		retention->sources[0]->retained[0]->hash.data, held->hash, SHA256_BYTES);
	granary__retention__free_unpacked(retention, NULL);
	free(rpc.reply_payload);
}

static void test_over_the_wire(void **state)
{
	struct wire w = { 0 };
	struct rpc_call rpc;
	struct err e = ERR_INIT;
	struct table *table = NULL;
	struct generation_id held;
	Granary__Generation *g;
	Granary__SlotTable *slots;

	(void)state;
	wire_open(&w);
	assert_int_equal(call_open(&w, &rpc, sf.origin.prefix, &e), 0);
	g = granary__generation__unpack(NULL, rpc.reply.payload, rpc.reply_payload);
	assert_non_null(g);
	assert_int_equal(g->generation, 1);
	assert_string_equal(g->source->prefix, sf.origin.prefix);
	assert_true(g->listed);
	assert_int_equal(table_open(rpc.reply_fd, &table, &e), 0);
	assert_memory_equal(table_info(table)->id.hash, g->hash.data, SHA256_BYTES);
	assert_int_equal(table_info(table)->live_files, 2);
	held = table_info(table)->id;
	table_unref(table);
	granary__generation__free_unpacked(g, NULL);
	free(rpc.reply_payload);

	assert_true(call_open(&w, &rpc, "/nowhere/at/all/", &e) < 0);
	assert_non_null(strstr(e.text, "nowhere"));
	free(rpc.reply_payload);
	assert_int_equal(
		call(&w, &rpc, FRAME_OPEN_SOURCE, (char[]){ "\xff\xff\xff" }, 3, &e), -EBADMSG);
	free(rpc.reply_payload);
	assert_int_equal(call(&w, &rpc, FRAME_GET_TABLE, (char[]){ "" }, 0, &e), -EINVAL);
	free(rpc.reply_payload);

	assert_int_equal(call(&w, &rpc, FRAME_GET_SLOTS, NULL, 0, &e), 0);
	slots = granary__slot_table__unpack(NULL, rpc.reply.payload, rpc.reply_payload);
	assert_non_null(slots);
	assert_int_equal(slots->slots.len, SLOTS_BYTES);
	assert_int_equal(slots->n_workers, 0); /* none has joined */
	granary__slot_table__free_unpacked(slots, NULL);
	free(rpc.reply_payload);
	check_hold_over_the_wire(&w, &held);
	wire_close(&w);
}

/* ---- from another node ----------------------------------------------------------------------- */

static int pull(struct wire *w, const struct generation_id *id, int *ret_fd, struct err *e)
{
	const struct table_pull ask = { .peer = w->client,
		.volume = id->volume,
		.lineage = id->lineage,
		.generation = id->generation,
		.patience_ns = 60 * CLOCK_SECOND };

	assert_int_equal(table_pull_file(NULL, ret_fd, e), 0);
	return table_pull(&ask, *ret_fd, e);
}

/* No descriptor goes along: the table comes in pieces, and is the same one. */
static void test_table_from_far(void **state)
{
	struct wire w = { .tcp = true };
	struct rpc_call rpc;
	struct err e = ERR_INIT;
	struct table *table = NULL;
	struct generation_id id = { 0 };
	Granary__Generation *g;
	int fd = -1;

	(void)state;
	wire_open(&w);
	/* Another host's is not any directory of this one. */
	assert_int_equal(call_open(&w, &rpc, sf.origin.prefix, &e), -EPERM);
	assert_non_null(strstr(e.text, "file-roots"));
	free(rpc.reply_payload);
	w.service.rules.file_roots = (struct option_list){ { fixture_dir }, 1 };
	assert_int_equal(call_open(&w, &rpc, sf.origin.prefix, &e), 0);
	assert_int_equal(rpc.reply_fd, -1);
	g = granary__generation__unpack(NULL, rpc.reply.payload, rpc.reply_payload);
	assert_non_null(g);
	memcpy(id.volume.bytes, g->volume.data, VOLUME_ID_LEN);
	id.lineage = g->lineage;
	id.generation = g->generation;
	assert_int_equal(pull(&w, &id, &fd, &e), 0);
	assert_int_equal(table_open(fd, &table, &e), 0);
	assert_memory_equal(table_info(table)->id.hash, g->hash.data, SHA256_BYTES);
	assert_int_equal(table_verify(table), 0);
	assert_int_equal(table_info(table)->live_files, 2);
	table_unref(table);
	granary__generation__free_unpacked(g, NULL);
	free(rpc.reply_payload);

	id.generation += 5; /* never was */
	assert_int_equal(pull(&w, &id, &fd, &e), -ESTALE);
	(void)close(fd);
	id.generation = 0; /* must be named */
	assert_int_equal(pull(&w, &id, &fd, &e), -ESTALE);
	(void)close(fd);
	id.volume.bytes[0] ^= 1;
	assert_int_equal(pull(&w, &id, &fd, &e), -ESTALE);
	(void)close(fd);
	id.volume.bytes[0] ^= 1;
	id.generation = 1;
	for (uint64_t at = MiB; at != 0; at = at == MiB ? UINT64_MAX : 0) {
		struct rpc_call past = { .frame = { .op = FRAME_TABLE,
						 .volume = id.volume,
						 .lineage = id.lineage,
						 .generation = id.generation,
						 .offset = at },
			.deadline_ns = clock_mono_ns() + 60 * CLOCK_SECOND,
			.reply_fd = -1 };

		assert_int_equal(rpc_call_wait(w.client, &past, &e), -EINVAL);
		rpc_call_release(&past);
	}
	wire_close(&w);
}

/* ---- origins that hang ----------------------------------------------------------------------- */

/* Connections come about and nobody ever answers: the backlog's. */
static int listen_silently(char endpoint[64])
{
	struct sockaddr_in address = { .sin_family = AF_INET,
		.sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t len = sizeof(address);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	assert_int_equal(bind(fd, (struct sockaddr *)&address, sizeof(address)), 0);
	assert_int_equal(listen(fd, 1024), 0);
	assert_int_equal(getsockname(fd, (struct sockaddr *)&address, &len), 0);
	(void)snprintf(endpoint, 64, "http://127.0.0.1:%u", ntohs(address.sin_port));
	return fd;
}

struct hanging {
	struct rpc_call call;
	_Atomic bool done;
	uint8_t packed[256];
};

static void on_hanging_done(struct rpc_call *call, int status)
{
	struct hanging *h = container_of(call, struct hanging, call);

	assert_true(status < 0);
	rpc_call_release(call);
	atomic_store(&h->done, true);
}

static void open_hanging(struct wire *w, struct hanging *h, unsigned int number, char *endpoint)
{
	Granary__OpenSource m = GRANARY__OPEN_SOURCE__INIT;
	Granary__Source source = GRANARY__SOURCE__INIT;
	char bucket[32];

	(void)snprintf(bucket, sizeof(bucket), "bucket-%u", number);
	source.has_scheme = source.has_anonymous = source.has_path_style = 1;
	source.scheme = UFS_S3;
	source.anonymous = source.path_style = 1;
	source.endpoint = endpoint;
	source.region = (char[]){ "r" };
	source.bucket = bucket;
	source.prefix = (char[]){ "" };
	m.source = &source;
	m.has_refresh = 1;
	m.refresh = 1;
	*h = (struct hanging){ .call = { .frame = { .op = FRAME_OPEN_SOURCE },
				       .payload = NET_PAYLOAD_NONE,
				       .on_done = on_hanging_done,
				       .reply_fd = -1 } };
	h->call.payload.parts[0].data = h->packed;
	h->call.payload.parts[0].len = granary__open_source__pack(&m, h->packed);
	h->call.payload.n = 1;
	rpc_call(w->client, &h->call);
}

/* Mounts keep what protects them, and what they need to go on, while every thread lists. */
static void test_hanging_origins(void **state)
{
	struct hanging *hanging = calloc(HANGING, sizeof(*hanging));
	struct generation_id held;
	struct rpc_call rpc;
	struct err e = ERR_INIT;
	struct got first;
	struct wire w = { 0 };
	char endpoint[64];
	int fd = listen_silently(endpoint);

	(void)state;
	sf_close();
	sf.patience_ns = 600 * CLOCK_SECOND;
	sf_open();
	first = sf_ask(true, NULL);
	held = first.generation.id;
	sf_drop(&first);
	wire_open(&w);
	for (unsigned int i = 0; i < HANGING; i++)
		open_hanging(&w, &hanging[i], i, endpoint);
	check_hold_over_the_wire(&w, &held);
	assert_int_equal(call_with_refresh(&w, &rpc, sf.origin.prefix, false, &e), 0);
	rpc_call_release(&rpc);
	for (unsigned int i = 0; i < HANGING; i++)
		assert_false(atomic_load(&hanging[i].done));
	source_set_stop(sf.set);
	wire_close(&w);
	for (unsigned int i = 0; i < HANGING; i++)
		assert_true(atomic_load(&hanging[i].done));
	(void)close(fd);
	free(hanging);
}

/* ---- a file system that hangs ---------------------------------------------------------------- */

struct stuck {
	struct pool_job job;
	_Atomic bool go_on;
};

static void hang(struct pool_job *job)
{
	struct stuck *stuck = container_of(job, struct stuck, job);

	test_wait(atomic_load(&stuck->go_on));
}

struct opening {
	struct rpc_call call;
	_Atomic bool done;
	int status;
	uint8_t packed[256];
};

static void on_opened(struct rpc_call *call, int status)
{
	struct opening *o = container_of(call, struct opening, call);

	o->status = status;
	rpc_call_release(call);
	atomic_store(&o->done, true);
}

static void begin_open(struct wire *w, struct opening *o)
{
	Granary__OpenSource m = GRANARY__OPEN_SOURCE__INIT;
	Granary__Source source = GRANARY__SOURCE__INIT;

	source.has_scheme = 1;
	source.scheme = UFS_FILE;
	source.prefix = (char *)(uintptr_t)sf.origin.prefix;
	m.source = &source;
	*o = (struct opening){ .call = { .frame = { .op = FRAME_OPEN_SOURCE },
				       .payload = NET_PAYLOAD_NONE,
				       .on_done = on_opened,
				       .reply_fd = -1 } };
	o->call.payload.parts[0].data = o->packed;
	o->call.payload.parts[0].len = granary__open_source__pack(&m, o->packed);
	o->call.payload.n = 1;
	rpc_call(w->client, &o->call);
}

/* Mounts that go on with a directory wait for its file system, and nobody else does. */
static void test_hanging_directories(void **state)
{
	struct stuck stuck = { .job = { .run = hang } };
	struct opening openings[8];
	struct generation_id held;
	struct got first = sf_ask(true, NULL);
	struct wire w = { 0 };

	(void)state;
	held = first.generation.id;
	sf_drop(&first);
	wire_open(&w);
	assert_int_equal(pool_submit(w.dirs, &stuck.job), 0);
	for (size_t i = 0; i < ARRAY_SIZE(openings); i++)
		begin_open(&w, &openings[i]);
	check_hold_over_the_wire(&w, &held);
	for (size_t i = 0; i < ARRAY_SIZE(openings); i++)
		assert_false(atomic_load(&openings[i].done));
	atomic_store(&stuck.go_on, true);
	for (size_t i = 0; i < ARRAY_SIZE(openings); i++) {
		test_wait(atomic_load(&openings[i].done));
		assert_int_equal(openings[i].status, 0);
	}
	wire_close(&w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_over_the_wire, sf_setup, sf_teardown),
		cmocka_unit_test_setup_teardown(test_table_from_far, sf_setup, sf_teardown),
		cmocka_unit_test_setup_teardown(test_hanging_origins, sf_setup, sf_teardown),
		cmocka_unit_test_setup_teardown(test_hanging_directories, sf_setup, sf_teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
