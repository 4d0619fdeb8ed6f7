/*
 * Fuzzer of what principals get of the master's service over a directory as origin, of which there are two datasets, a wide
 * one and a part of it: scripts of requests (script.h).
 *
 * Whatever was asked before, by whom and in which order: the tables that a token for the part gets name its objects and no
 * others, in a file or in pieces; no answer names another one, nor the wide dataset; and an administrator's token gets no
 * table.
 */
#include "tests/fuzz/script.h"
#include "master/service.h"
#include "net/identity.h"
#include "proto/granary.pb-c.h"
#include "tests/clock/test_clock.h"
#include "tests/fuzz/seeds.h"
#include "tests/unit/master/dataset_fixture.h"
#include "tests/unit/master/source_fixture.h"

#include <fcntl.h>
#include <sys/mman.h>

#define PART   "sub/"
#define OTHERS "outside"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct {
	struct loop *loop;
	struct pool *pool;
	struct pool *small;
	struct pool *joins;
	struct pool *dirs;
	struct membership *membership;
	struct admin_server *admin;
	struct service service;
	struct rpc_server *servers[WHO_COUNT];
	struct generation_id id;
	uint8_t dataset[TOKEN_DATASET_BYTES]; /* the part's */
} master;

/* ---- messages -------------------------------------------------------------------------------- */

static size_t pack_table(const struct step *step, ProtobufCBinaryData volume, uint8_t *out)
{
	Granary__GetTable m = GRANARY__GET_TABLE__INIT;
	struct source_seen seen = { .lineage = step->call.frame.lineage,
		.generation = step->call.frame.generation + 1 };
	uint8_t seal[SHA256_BYTES];

	memcpy(seen.hash, master.id.hash, SHA256_BYTES);

	m.has_volume = m.has_lineage = m.has_generation = 1;
	m.volume = volume;
	m.lineage = step->call.frame.lineage;
	m.generation = step->call.frame.generation;
	m.has_seen_lineage = m.has_seen_generation = m.has_seen_hash = !!(step->kind & KIND_SHOWS);
	m.seen_lineage = m.lineage;
	m.seen_generation = m.generation + 1;
	m.seen_hash = (ProtobufCBinaryData){ SHA256_BYTES, master.id.hash };
	m.has_seen_seal = m.has_seen_hash;
	source_set_seal(master.service.sources, &master.id.volume, &seen, seal);
	m.seen_seal = (ProtobufCBinaryData){ SHA256_BYTES, seal };
	return granary__get_table__pack(&m, out);
}

static size_t pack_open(const struct step *step, ProtobufCBinaryData volume, uint8_t *out)
{
	Granary__OpenSource m = GRANARY__OPEN_SOURCE__INIT;

	m.has_dataset = m.has_volume = m.has_refresh = 1;
	m.dataset = (ProtobufCBinaryData){ sizeof(master.dataset), master.dataset };
	m.volume = volume;
	m.refresh = step->kind & KIND_SHOWS;
	return granary__open_source__pack(&m, out);
}

static size_t pack_hold(const struct step *step, ProtobufCBinaryData volume, uint8_t *out)
{
	uint8_t mount[HOLD_MOUNT_BYTES] = { (uint8_t)step->who };
	Granary__Hold m = GRANARY__HOLD__INIT;

	m.has_volume = m.has_lineage = m.has_generation = m.has_mount = m.has_end = 1;
	m.volume = volume;
	m.lineage = step->call.frame.lineage;
	m.generation = step->call.frame.generation;
	m.mount = (ProtobufCBinaryData){ sizeof(mount), mount };
	m.end = step->kind & KIND_SHOWS;
	return granary__hold__pack(&m, out);
}

/* The path is chosen by the offset. */
static size_t pack_admin(struct step *step, uint8_t *out)
{
	static const char *const paths[] = { "/v1/datasets/part", "/v1/datasets/wide",
		"/v1/datasets", "/v1/datasets/part?left_out=1", "/v1/datasets/part/generations",
		"/v1/datasets/part/diff", "/v1/datasets/wide/generations", "/v1/datasets/wide/diff",
		"/v1/datasets/wide?left_out=1", "/v1/datasets/part/../wide", "/v1/datasets/par%74",
		"/v1/datasets/part?x=/v1/datasets/wide", "/v1/routes", "/v1/none" };
	Granary__AdminAsk m = GRANARY__ADMIN_ASK__INIT;

	m.method = (char *)(uintptr_t)(step->kind & KIND_CLASS ? "DELETE" : "GET");
	m.path =
		(char *)(uintptr_t)paths[step->call.frame.offset / BLOCK_BYTES % ARRAY_SIZE(paths)];
	if (!(step->kind & KIND_GENERATION)) /* else the rest of an answer is asked for */
		step->call.frame.generation = 0;
	return granary__admin_ask__pack(&m, out);
}

static size_t pack(struct step *step)
{
	struct frame *frame = &step->call.frame;
	ProtobufCBinaryData volume = { VOLUME_ID_LEN, frame->volume.bytes };

	switch (step->request->op) {
	case FRAME_GET_TABLE:
		return pack_table(step, volume, step->payload);
	case FRAME_OPEN_SOURCE:
	case FRAME_REFRESH:
		/* A source that the script makes up would be looked up in the network. */
		if (step->who == WHO_CLUSTER)
			step->kind &= (uint8_t)~KIND_RAW;
		return pack_open(step, volume, step->payload);
	case FRAME_HOLD:
		return pack_hold(step, volume, step->payload);
	case FRAME_ADMIN:
		return pack_admin(step, step->payload);
	case FRAME_TABLE: /* which is short */
		frame->offset = step->kind & KIND_SHOWS ? frame->offset : 0;
		return 0;
	case FRAME_GET_SLOTS: /* which may say how long it waits for news */
	case FRAME_JOIN:      /* its name would be in the answers to others */
		step->kind &= (uint8_t)~KIND_RAW;
		return 0;
	default:
		return 0;
	}
}

/* ---- what came of a request ------------------------------------------------------------------ */

static void check_table(int fd, enum who who)
{
	struct table_cursor cursor = { 0 };
	static struct table_row row;
	struct table *table;
	struct err e = ERR_INIT;
	uint64_t others = 0;

	ensure(table_open(fd, &table, &e) == 0);
	while (table_next(table, &cursor, &row) == 0)
		others += strncmp(row.key, PART, strlen(PART)) != 0;
	if (who == WHO_PART)
		ensure(others == 0 && table_info(table)->live_files == 1);
	else
		ensure(who == WHO_CLUSTER && others > 0);
	table_cursor_release(&cursor);
	table_unref(table);
}

/* Of one piece, which all of it is. */
static void check_piece(const struct step *step)
{
	const struct frame *reply = &step->call.reply;
	int fd;

	if (reply->offset != 0 || reply->payload != reply->extent)
		return;
	fd = memfd_create("table", MFD_CLOEXEC);
	ensure(fd >= 0);
	ensure(file_pwrite_exact(fd, step->call.reply_payload, reply->payload, 0) == 0);
	check_table(fd, step->who);
}

static void check(const struct step *step)
{
	if (step->status < 0)
		return;
	if (step->call.reply_fd >= 0)
		check_table(fcntl(step->call.reply_fd, F_DUPFD_CLOEXEC, 0), step->who);
	if (step->request->op == FRAME_TABLE)
		check_piece(step);
	if (step->request->op == FRAME_ADMIN && step->who == WHO_PART)
		ensure(!memmem(step->call.reply_payload, step->call.reply.payload, "wide", 4));
}

/* ---- the master ------------------------------------------------------------------------------ */

/* Those that change nothing but leases and generations. */
static const struct step_request requests[] = {
	{ .op = FRAME_ADMIN, .part = true, .admin = true },
	{ .op = FRAME_GET_TABLE, .part = true },
	{ .op = FRAME_TABLE, .part = true },
	{ .op = FRAME_OPEN_SOURCE, .part = true },
	{ .op = FRAME_HOLD, .part = true },
	{ .op = FRAME_REFRESH, .part = true },
	{ .op = FRAME_GET_SLOTS, .part = true, .admin = true },
	{ .op = FRAME_PING, .part = true, .admin = true },
	{ .op = FRAME_GET_RETENTION },
	{ .op = FRAME_BEAT },
	{ .op = FRAME_JOIN },
	{ .op = FRAME_FETCH },
	{ .op = 250 },
};

static struct script script = {
	.name = "master",
	.requests = requests,
	.n_requests = ARRAY_SIZE(requests),
	.prefix = PART,
	.others = OTHERS,
	.pack = pack,
	.check = check,
};

static void stop(void)
{
	script_close();
	for (enum who who = 0; who < WHO_COUNT; who++)
		rpc_server_free(master.servers[who]);
	remote_admin_free(master.service.remote);
	admin_server_free(master.admin);
	pool_free(master.small);
	table_pieces_free(master.service.pieces);
	pool_free(master.dirs);
	pool_free(master.joins);
	pool_free(master.pool);
	loop_free(master.loop);
	membership_free(master.membership);
	ensure(df_teardown(NULL) == 0);
}

static void start_service(void)
{
	static const struct admin_route routes[] = {
		{ "GET", "/v1/datasets", dataset_api_list, NULL },
		{ "GET", "/v1/datasets/{name}", dataset_api_get, NULL },
		{ "GET", "/v1/datasets/{name}/generations", dataset_api_generations, NULL },
		{ "GET", "/v1/datasets/{name}/diff", dataset_api_diff, NULL },
		{ 0 },
	};
	const struct membership_config members = {
		.store = df.store, .epoch = 1, .out_after_ns = MEMBER_OUT_NS
	};
	struct service *s = &master.service;
	struct err e = ERR_INIT;

	master.loop = loop_new("fuzz");
	master.pool = pool_new("pool", 2, 64);
	master.small = pool_new("small", 2, 64);
	master.joins = pool_new("joins", 1, 64);
	master.dirs = pool_new("dirs", 1, 64);
	ensure(membership_new(&members, &master.membership, &e) == 0);
	ensure(membership_start(master.membership) == 0);
	s->sources = df.sources;
	s->datasets = df.set;
	s->membership = master.membership;
	s->pool = master.pool;
	s->small = master.small;
	s->joins = master.joins;
	s->dirs = master.dirs;
	s->pieces = table_pieces_new(df.sources, master.small);
	ensure(admin_server_new(fixture_in("admin.sock"), routes, s, &master.admin, &e) == 0);
	s->remote = remote_admin_new(master.admin, df.set);
	ensure(s->remote);
	for (enum who who = 0; who < WHO_COUNT; who++)
		ensure(rpc_server_new(master.loop, script_address(&script, who), &service_ops, s,
			       &master.servers[who], &e) == 0);
}

/* Lists the wide dataset. */
static struct generation_id list_wide(void)
{
	struct dataset d = df_find("wide");
	struct got got = {
		.wait = { .config = &d.mounts[0].config, .refresh = true, .on_done = sf_on_done },
		.status = 1
	};

	source_open(df.sources, &got.wait);
	test_wait(__atomic_load_n(&got.status, __ATOMIC_ACQUIRE) != 1); /* or another thread's */
	ensure(got.status == 0);
	sf_drop(&got);
	dataset_release(&d);
	return got.generation.id;
}

void fuzz_start(void)
{
	struct dataset part;

	ensure(df_setup(NULL) == 0 && file_mkdirs(fixture_in("origin/sub"), 0755) == 0);
	fixture_put(PART "b", "its own");
	fixture_put("sub0" OTHERS, "of others"); /* right behind those of the part */
	fixture_put(OTHERS "-1", "of others, too");
	if (df_create("{'name':'wide','mounts':[{'url':'file://@/origin'}]}") < 0)
		fail_msg("%s", df.e.text);
	(void)list_wide();
	fixture_put(OTHERS "-2", "in the second generation");
	master.id = list_wide();
	ensure(master.id.generation == 2);
	if (df_create("{'name':'part','mounts':[{'url':'file://@/origin/sub'}]}") < 0)
		fail_msg("%s", df.e.text);
	part = df_find("part");
	ensure(volume_id_equal(&part.mounts[0].volume, &master.id.volume)); /* a view */
	ensure(hash_unhex(part.uuid, master.dataset, sizeof(master.dataset)) == 0);
	dataset_release(&part);
	start_service();
	script.volume = master.id.volume;
	script.lineage = master.id.lineage;
	script.generation = master.id.generation;
	script.blocks = 64; /* any: to choose by */
	script.dataset = master.dataset;
	script_connect(&script, master.loop);
	ensure(atexit(stop) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	script_run(&script, data, size);
	return 0;
}

void fuzz_seeds(void)
{
	script_seeds(&script);
}
