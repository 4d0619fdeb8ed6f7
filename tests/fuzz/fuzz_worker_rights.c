/*
 * Fuzzer of what principals get of a whole worker, with a tier, an origin and a master that has one table: scripts of
 * requests (script.h).
 *
 * Whatever was asked before, by whom and in which order: a token for a part gets its own bytes, zeros in the place of all
 * others, checksums of its own pieces, and no descriptor; an administrator's token gets nothing; and the cluster gets the
 * right bytes.
 */
#include "tests/fuzz/script.h"
#include "tests/fuzz/seeds.h"
#include "tests/unit/cacheworker/world.h"

#define FILES  20u
#define INSIDE "file-00" /* 10 of them */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct world *world;
static uint8_t *part_model; /* the volume as the part's token sees it */

static bool is_inside(const struct table_row *row)
{
	return strncmp(row->key, INSIDE, strlen(INSIDE)) == 0;
}

/* ---- what came of a request ------------------------------------------------------------------ */

/* One for each piece that is touched of what the asker sees, of the whole piece. */
static void check_sums(const struct step *step, const uint8_t *sums)
{
	const struct frame *ask = &step->call.frame;
	uint64_t end = ask->offset + ask->length;
	uint64_t at = ask->offset;
	static struct table_row row;
	uint32_t n = 0;

	while (at < end && source_row_from(world->table, at, &row) == 0 && row.offset < end) {
		uint64_t in_object = align_down(max(at, row.offset) - row.offset, PIECE_BYTES);
		uint64_t bytes = min(row.size - in_object, (uint64_t)PIECE_BYTES);
		uint64_t seed = piece_object_seed(row.key, row.key_len, row.tag, row.tag_len);
		uint64_t sum = hash_xxh3(world->model + row.offset + in_object, bytes,
			piece_seed(seed, in_object >> PIECE_BITS));

		at = row.offset + in_object + align_up(bytes, BLOCK_BYTES);
		if (step->who == WHO_PART && !is_inside(&row))
			continue;
		ensure(n < step->call.reply.checksums);
		ensure(memcmp(sums + (size_t)n++ * 8, &sum, 8) == 0);
	}
	ensure(n == step->call.reply.checksums);
}

static void check_bytes(const struct step *step)
{
	const uint8_t *model = step->who == WHO_PART ? part_model : world->model;
	const uint8_t *bytes = step->call.reply_payload;
	const struct frame *reply = &step->call.reply;
	const struct frame *ask = &step->call.frame;

	ensure(ask->offset % BLOCK_BYTES == 0 && ask->length % BLOCK_BYTES == 0);
	ensure(reply->payload == ask->length + reply->checksums * 8ull);
	for (uint64_t i = 0; i < ask->length; i += BLOCK_BYTES) {
		static const uint8_t zeros[BLOCK_BYTES]; /* past the end */
		uint64_t at = ask->offset + i;

		ensure(memcmp(bytes + i, at < world->model_bytes ? model + at : zeros,
			       BLOCK_BYTES) == 0);
	}
	check_sums(step, bytes + ask->length);
}

static void check(const struct step *step)
{
	bool local = step->call.reply.flags & FRAME_LOCAL;

	if (step->status < 0) { /* how much of a chunk is there is the cluster's business */
		ensure(step->who == WHO_CLUSTER || step->call.reply.extent <= BLOCK_BYTES);
		return;
	}
	if (frame_op_fetches(step->request->op) && !local)
		check_bytes(step);
	ensure(step->who == WHO_CLUSTER || (step->call.reply_fd < 0 && !local));
}

/* ---- the worker ------------------------------------------------------------------------------ */

static const struct step_request requests[] = {
	{ .op = FRAME_FETCH, .part = true },
	{ .op = FRAME_FETCH_CACHED, .part = true },
	{ .op = FRAME_PREFETCH, .part = true },
	{ .op = FRAME_RECHECK, .part = true },
	{ .op = FRAME_FILE },
	{ .op = FRAME_SEAL },
	{ .op = FRAME_MAP },
	{ .op = FRAME_SEEK },
	{ .op = FRAME_ROOM },
	{ .op = FRAME_REFUSED },
	{ .op = FRAME_HELD, .part = true },
	{ .op = FRAME_PING, .part = true, .admin = true },
	{ .op = FRAME_GET_SLOTS },
	{ .op = FRAME_GET_TABLE },
	{ .op = 250 },
};

static struct script script = {
	.name = "worker",
	.requests = requests,
	.n_requests = ARRAY_SIZE(requests),
	.prefix = INSIDE,
	.others = "file-01",
	.check = check,
};

static void make_part_model(void)
{
	struct table_cursor cursor = { 0 };
	static struct table_row row;

	part_model = calloc(1, world->model_bytes);
	ensure(part_model);
	while (table_next(world->table, &cursor, &row) == 0)
		if (is_inside(&row))
			memcpy(part_model + row.offset, world->model + row.offset, row.size);
	table_cursor_release(&cursor);
}

static void stop(void)
{
	script_close();
	worker_close(&world->worker);
	world_end(world);
	free(part_model);
}

void fuzz_start(void)
{
	static const char *listen[WHO_COUNT];
	struct err e = ERR_INIT;

	world = world_prepare(FILES, 0, 0);
	make_part_model();
	for (enum who who = 0; who < WHO_COUNT; who++)
		listen[who] = script_address(&script, who);
	world->tiers[0] =
		(struct tier_config){ .path = world->tier, .capacity = 1 * GiB, .create = true };
	world->config = (struct worker_config){ .tier = world->tier,
		.tiers = world->tiers,
		.n_tiers = 1,
		.memory = 64 * MiB,
		.master = world->master_address,
		.listen = listen,
		.n_listen = WHO_COUNT,
		.admin = world->admin,
		.origin_requests = 16 };
	if (worker_open(&world->worker, &world->config, &e) < 0)
		fail_msg("worker: %s", e.text);
	script.volume = table_info(world->table)->id.volume;
	script.lineage = table_info(world->table)->id.lineage;
	script.generation = table_info(world->table)->id.generation;
	script.blocks = table_info(world->table)->end / BLOCK_BYTES;
	script_connect(&script, world->loop);
	ensure(atexit(stop) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	if (size / STEP_BYTES % 2) /* else what was cached before stays */
		(void)tier_set_drop(
			world->worker.tiers, &script.volume, script.lineage, NULL, NULL);
	script_run(&script, data, size);
	return 0;
}

void fuzz_seeds(void)
{
	script_seeds(&script);
}
