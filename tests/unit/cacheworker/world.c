#include "tests/unit/cacheworker/world.h"

static int remove_entry(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	(void)st;
	(void)type;
	(void)ftw;
	return remove(path);
}

/* ---- a master that knows one table ----------------------------------------------------------- */

/* Is the other lineage asked for? */
static bool asks_elder(const struct world *w, const struct rpc_request *request)
{
	Granary__GetTable *ask =
		granary__get_table__unpack(NULL, request->frame.payload, request->payload);
	bool asks;

	assert_non_null(ask);
	asks = w->elder && ask->lineage == table_info(w->elder)->id.lineage;
	granary__get_table__free_unpacked(ask, NULL);
	return asks;
}

/* As the master seals each generation; the worker cannot tell. */
static const uint8_t world_seal[SHA256_BYTES] = "a seal of the master";

void world_answer_table(struct world *w, struct rpc_request *request)
{
	bool elder = asks_elder(w, request);
	const struct generation_id *id = &table_info(elder ? w->elder : w->table)->id;
	Granary__Generation answer = GRANARY__GENERATION__INIT;
	Granary__Source source = GRANARY__SOURCE__INIT;
	Granary__Policy policy = GRANARY__POLICY__INIT;
	struct net_payload payload = NET_PAYLOAD_NONE;
	char prefix[160];
	uint8_t *packed;

	(void)snprintf(prefix, sizeof(prefix), "%s/data/", w->dir);
	source.has_scheme = true;
	source.scheme = UFS_FILE;
	source.prefix = prefix;
	answer.source = &source;
	answer.has_volume = true;
	answer.volume = (ProtobufCBinaryData){ .data = (uint8_t *)(uintptr_t)id->volume.bytes,
		.len = VOLUME_ID_LEN };
	answer.has_lineage = true;
	answer.lineage = id->lineage;
	answer.has_generation = true;
	answer.generation = id->generation;
	answer.has_newest_seal = true;
	answer.newest_seal = (ProtobufCBinaryData){ .data = (uint8_t *)(uintptr_t)world_seal,
		.len = SHA256_BYTES };
	policy.has_quota = true;
	policy.quota = w->quota;
	policy.has_origin_bandwidth = true;
	policy.origin_bandwidth = w->bandwidth;
	policy.has_copies = w->copies != 0;
	policy.copies = w->copies;
	if (w->quota || w->copies)
		answer.policy = &policy;
	packed = malloc(granary__generation__get_packed_size(&answer));
	assert_non_null(packed);
	payload.parts[0].data = packed;
	payload.parts[0].len = granary__generation__pack(&answer, packed);
	payload.n = 1;
	payload.release = free;
	payload.arg = packed;
	payload.fd = open(elder ? w->elder_path : w->table_path, O_RDONLY | O_CLOEXEC);
	rpc_reply(request, 0, NULL, payload);
}

static void answer_retention(struct world *w, struct rpc_request *request)
{
	struct net_payload payload = NET_PAYLOAD_NONE;
	uint8_t *packed = malloc(sizeof(w->retention));

	assert_non_null(packed);
	pthread_mutex_lock(&w->lock);
	w->retention_asked++;
	w->report_len = min((size_t)request->frame.payload, sizeof(w->report));
	memcpy(w->report, request->payload ? request->payload : "", w->report_len);
	memcpy(packed, w->retention, w->terms_len);
	payload.parts[0].len = w->terms_len;
	pthread_mutex_unlock(&w->lock);
	payload.parts[0].data = packed;
	payload.n = 1;
	payload.release = free;
	payload.arg = packed;
	rpc_reply(request, 0, NULL, payload);
}

static void note_seen_locked(struct world *w, const struct rpc_request *request)
{
	Granary__GetTable *m =
		granary__get_table__unpack(NULL, request->frame.payload, request->payload);

	assert_non_null(m);
	if (m->has_seen_lineage && m->seen_hash.len == SHA256_BYTES) {
		assert_int_equal(m->seen_seal.len, SHA256_BYTES);
		assert_memory_equal(m->seen_seal.data, world_seal, SHA256_BYTES);
		w->shown = m->seen_generation;
	}
	granary__get_table__free_unpacked(m, NULL);
}

static void on_master_request(struct rpc_request *request, void *arg)
{
	struct world *w = arg;
	bool hold;

	if (request->frame.op == FRAME_GET_RETENTION) {
		answer_retention(w, request);
		return;
	}
	if (request->frame.op == FRAME_PRELOAD) {
		void (*preload)(struct world * world, struct rpc_request * r) =
			atomic_load(&w->preload);

		if (preload)
			preload(w, request);
		else
			rpc_reply(request, -EOPNOTSUPP, NULL, NET_PAYLOAD_NONE);
		return;
	}
	if (request->frame.op == FRAME_JOIN || request->frame.op == FRAME_BEAT ||
		request->frame.op == FRAME_GET_SLOTS) {
		void (*cluster)(struct world * world, struct rpc_request * r) =
			atomic_load(&w->cluster);

		if (cluster)
			cluster(w, request);
		else
			rpc_reply(request, -EOPNOTSUPP, NULL, NET_PAYLOAD_NONE);
		return;
	}
	pthread_mutex_lock(&w->lock);
	w->asked++;
	if (request->frame.op == FRAME_GET_TABLE)
		note_seen_locked(w, request);
	hold = w->hold;
	if (hold)
		list_push_back(&w->held, &request->link);
	pthread_mutex_unlock(&w->lock);
	if (!hold)
		world_answer_table(w, request);
}

const struct rpc_server_ops world_master_ops = { .on_request = on_master_request };

/* ---- a source -------------------------------------------------------------------------------- */

static uint64_t file_size(const struct world *w, unsigned int i)
{
	static const uint64_t sizes[] = { 1, 4095, 4096, 4097, 65536, 65537, 110000, 1 << 20,
		(1 << 20) + 1, 3500000 };

	return w->size ? w->size : sizes[i % ARRAY_SIZE(sizes)];
}

/* The origin reads a file once it has not changed for two seconds (ufs/file.c), which kernels count by their own clock. */
static void let_grow_old(const char *path)
{
	struct stat st;
	uint64_t now = clock_wall_ns();
	uint64_t old;

	assert_int_equal(stat(path, &st), 0);
	old = (uint64_t)st.st_ctim.tv_sec * CLOCK_SECOND + (uint64_t)st.st_ctim.tv_nsec +
	      2 * CLOCK_SECOND;
	if (old > now)
		test_advance(old - now);
}

/* Not followed by sanitizers: tests make hundreds of MiB with it. */
__attribute__((no_sanitize("address", "thread", "undefined"))) static void fill_file(
	uint8_t *data, uint64_t size, unsigned int number)
{
	for (uint64_t k = 0; k < size; k++)
		data[k] = (uint8_t)(k * 31 + k / 4096 * 7 + number * 13 + 1);
}

void world_write_files(struct world *w, unsigned int first, unsigned int end)
{
	_cleanup_free_ uint8_t *data = malloc(max(w->size, 4 * MiB));
	char path[160];

	assert_non_null(data);
	(void)snprintf(path, sizeof(path), "%s/data", w->dir);
	assert_int_equal(file_mkdirs(path, 0700), 0);
	for (unsigned int i = first; i < end; i++) {
		uint64_t size = file_size(w, i);

		fill_file(data, size, i);
		(void)snprintf(path, sizeof(path), "%s/data/file-%03u", w->dir, i);
		assert_int_equal(file_write_atomic(path, data, size, 0600), 0);
	}
	if (end > first)
		let_grow_old(path);
}

static int take_objects(void *arg, const struct ufs_object *objects, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++) {
		const struct ufs_object *o = &objects[i];
		int r = listing_add(
			arg, o->key, o->key_len, o->size, o->mtime_ns, o->tag, o->tag_len);

		if (r < 0)
			return r;
	}
	return 0;
}

struct table *world_make_table(struct world *w, const char *name)
{
	struct ufs_limits limits = UFS_LIMITS_DEFAULT;
	struct listing *listing = listing_new(64 * MiB);
	struct generation_stats stats;
	struct generation_id id;
	struct volume_id volume;
	struct ufs_config config;
	struct err e = ERR_INIT;
	struct table *table;
	struct ufs *ufs;
	char *path;
	char url[160];

	(void)snprintf(url, sizeof(url), "file://%s/data", w->dir);
	assert_int_equal(ufs_config_parse(url, &config, &e), 0);
	assert_int_equal(ufs_open(&config, &limits, &ufs, &e), 0);
	assert_int_equal(ufs_list(ufs, take_objects, listing, &e), 0);
	ufs_free(ufs);
	ufs_config_release(&config);
	volume_id_of_source(url, &volume);
	assert_true(asprintf(&path, "%s/%s", w->dir, name) > 0);
	assert_int_equal(generation_build(&volume, w->table, listing, path, &id, &stats, &e), 0);
	listing_free(listing);
	assert_int_equal(table_open(open(path, O_RDONLY | O_CLOEXEC), &table, &e), 0);
	free(w->table_path);
	w->table_path = path;
	return table;
}

void world_make_model(struct world *w)
{
	struct table_cursor cursor = { 0 };
	struct table_row *row = malloc(sizeof(*row));

	free(w->model);
	w->model_bytes = align_up(table_info(w->table)->end, CHUNK_BYTES);
	w->model = calloc(1, w->model_bytes);
	assert_non_null(w->model);
	while (table_next(w->table, &cursor, row) == 0) {
		_cleanup_close_ int fd = -1;
		char path[128 + LIMIT_KEY_BYTES + 1];
		struct stat st;

		if (row->flags & ROW_DEAD)
			continue;
		(void)snprintf(path, sizeof(path), "%s/data/%s", w->dir, row->key);
		fd = open(path, O_RDONLY | O_CLOEXEC);
		assert_true(fd >= 0);
		assert_int_equal(fstat(fd, &st), 0);
		assert_int_equal(st.st_size, row->size);
		assert_int_equal(file_pread_exact(fd, w->model + row->offset, row->size, 0), 0);
	}
	table_cursor_release(&cursor);
	free(row);
}

void world_start_worker(struct world *w, uint64_t capacity)
{
	struct err e = ERR_INIT;

	w->listen[0] = w->address;
	w->tiers[0] = (struct tier_config){ .path = w->tier, .capacity = capacity, .create = true };
	w->tiers[1] = w->tiers[0];
	w->tiers[1].path = w->other_tier;
	w->config = (struct worker_config){
		.tier = w->tier,
		.tiers = w->tiers,
		.n_tiers = w->other_tier[0] ? 2 : 1,
		.memory = w->memory ? w->memory : 64 * MiB,
		.master = w->master_address,
		.listen = w->listen,
		.n_listen = 1,
		.admin = w->admin,
		.origin_requests = 16,
		.scrub_rate = w->scrub_rate,
		.scrub_max_age = w->scrub_max_age,
		.seal_rate = w->seal_rate,
	};
	if (worker_open(&w->worker, &w->config, &e) < 0)
		fail_msg("worker: %s", e.text);
	assert_int_equal(rpc_client_new(w->loop, w->address, &w->client, &e), 0);
}

struct world *world_prepare(unsigned int files, uint64_t size, uint64_t memory)
{
	struct world *w = calloc(1, sizeof(*w));
	struct err e = ERR_INIT;

	assert_non_null(w);
	w->size = size;
	w->memory = memory;
	pthread_mutex_init(&w->lock, NULL);
	list_init(&w->held);
	(void)strcpy(w->dir, "/var/tmp/granary-worker.XXXXXX");
	assert_non_null(mkdtemp(w->dir));
	(void)snprintf(w->address, sizeof(w->address), "unix:%s/worker.rpc", w->dir);
	(void)snprintf(w->master_address, sizeof(w->master_address), "unix:%s/master.rpc", w->dir);
	(void)snprintf(w->admin, sizeof(w->admin), "%s/worker.sock", w->dir);
	(void)snprintf(w->tier, sizeof(w->tier), "%s/tier", w->dir);
	world_write_files(w, 0, files);
	w->table = world_make_table(w, "table");
	world_make_model(w);
	w->loop = loop_new("test");
	assert_non_null(w->loop);
	assert_int_equal(
		rpc_server_new(w->loop, w->master_address, &world_master_ops, w, &w->master, &e),
		0);
	return w;
}

struct world *world_new_sized(uint64_t capacity, unsigned int files, uint64_t size, uint64_t memory)
{
	struct world *w = world_prepare(files, size, memory);

	world_start_worker(w, capacity);
	return w;
}

struct world *world_new(uint64_t capacity, unsigned int files)
{
	return world_new_sized(capacity, files, 0, 0);
}

void world_stop_worker(struct world *w)
{
	rpc_client_free(w->client);
	worker_close(&w->worker);
}

void world_end(struct world *w)
{
	rpc_server_free(w->master);
	loop_free(w->loop);
	table_unref(w->table);
	(void)nftw(w->dir, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
	pthread_mutex_destroy(&w->lock);
	free(w->table_path);
	free(w->model);
	free(w);
}

void world_free(struct world *w)
{
	world_stop_worker(w);
	world_end(w);
}

/* ---- reading --------------------------------------------------------------------------------- */

struct rpc_call world_make_call(
	const struct world *w, enum frame_op op, uint64_t offset, uint32_t length, uint16_t flags)
{
	const struct generation_id *id = &table_info(w->table)->id;

	return (struct rpc_call){
		.frame = { .op = (uint8_t)op,
			.flags = flags,
			.volume = id->volume,
			.lineage = id->lineage,
			.generation = id->generation,
			.offset = offset,
			.length = length },
		.payload = NET_PAYLOAD_NONE,
		.deadline_ns = clock_mono_ns() + DEADLINE,
		.reply_fd = -1,
	};
}

void world_check_sums(const struct world *w, uint64_t offset, uint32_t length, const void *payload,
	uint32_t checksums)
{
	const uint8_t *sums = (const uint8_t *)payload + length;
	struct table_row *row = malloc(sizeof(*row));
	uint64_t at = offset;
	uint32_t n = 0;

	assert_non_null(row);
	while (at < offset + length && source_row_from(w->table, at, row) == 0 &&
		row->offset < offset + length) {
		uint64_t in_object = align_down(max(at, row->offset) - row->offset, PIECE_BYTES);
		uint64_t bytes = min(row->size - in_object, (uint64_t)PIECE_BYTES);
		uint64_t seed = piece_object_seed(row->key, row->key_len, row->tag, row->tag_len);
		uint64_t sum = hash_xxh3(w->model + row->offset + in_object, bytes,
			piece_seed(seed, in_object >> PIECE_BITS));

		assert_true(n < checksums);
		assert_memory_equal(sums + (size_t)n++ * 8, &sum, 8);
		at = row->offset + in_object + align_up(bytes, BLOCK_BYTES);
	}
	assert_int_equal(n, checksums);
	free(row);
}

bool world_read_range(const struct world *w, uint64_t offset, uint32_t length, uint16_t flags)
{
	struct rpc_call call = world_make_call(w, FRAME_FETCH, offset, length, flags);
	struct err e = ERR_INIT;
	int r = rpc_call_wait(w->client, &call, &e);
	bool local;

	if (r < 0)
		fail_msg("fetch %llu+%u: %s (%s)", (unsigned long long)offset, length, err_name(r),
			e.text);
	local = call.reply.flags & FRAME_LOCAL;
	if (local) {
		uint8_t *data = aligned_alloc(BLOCK_BYTES, length);

		assert_int_equal(call.reply.payload, CHUNK_BITMAP_BYTES + HELD_ENTRY_BYTES);
		assert_true(call.reply_fd >= 0);
		assert_int_equal(
			file_pread_exact(call.reply_fd, data, length,
				offset & ((call.reply.extent ? call.reply.extent : CHUNK_BYTES) -
						 1)),
			0);
		assert_memory_equal(data, w->model + offset, length);
		free(data);
		(void)close(call.reply_fd);
	} else {
		assert_int_equal(call.reply.payload, length + call.reply.checksums * 8);
		assert_memory_equal(call.reply_payload, w->model + offset, length);
		world_check_sums(w, offset, length, call.reply_payload, call.reply.checksums);
	}
	free(call.reply_payload);
	return local;
}

void world_read_all(
	const struct world *w, uint16_t flags, uint32_t *ret_local, uint32_t *ret_ranges)
{
	*ret_local = 0;
	*ret_ranges = 0;
	for (uint64_t at = 0; at < w->model_bytes; at += 256 * KiB) {
		*ret_local += world_read_range(w, at, 256 * KiB, flags);
		(*ret_ranges)++;
	}
}

uint64_t world_origin_gets(struct world *w)
{
	uint64_t gets = 0;

	list_for_each (node, &w->worker.sources.all)
		gets += counter_get(
			&ufs_counters(list_entry(node, struct source, link)->ufs)->gets);
	return gets;
}

uint64_t world_units(const struct world *w)
{
	struct table_cursor cursor = { 0 };
	struct table_row *row = malloc(sizeof(*row));
	uint64_t units = 0;

	while (table_next(w->table, &cursor, row) == 0) {
		for (uint64_t at = row->offset; at < row->offset + row->size; units++) {
			uint64_t object_offset;
			uint64_t start;
			uint32_t length;

			flight_unit_of(row, at, &start, &length, &object_offset);
			assert_int_equal(start, at);
			assert_int_equal(object_offset % PIECE_BYTES, 0);
			assert_int_equal(start / CHUNK_BYTES, (start + length - 1) / CHUNK_BYTES);
			at = start + length;
		}
	}
	table_cursor_release(&cursor);
	free(row);
	return units;
}

unsigned int world_fills(struct world *w)
{
	unsigned int n;

	pthread_mutex_lock(&w->worker.fills.lock);
	n = w->worker.fills.in_flight + w->worker.fills.pumping +
	    !list_empty(&w->worker.fills.ahead) + !list_empty(&w->worker.fills.active);
	pthread_mutex_unlock(&w->worker.fills.lock);
	return n;
}

void world_wait_written(struct world *w)
{
	test_wait(!counter_get(&w->worker.counters.flights) && !world_fills(w));
}

uint64_t world_offset_of(const struct world *w, unsigned int file)
{
	struct table_row *row = malloc(sizeof(*row));
	char key[32];
	uint64_t offset;

	(void)snprintf(key, sizeof(key), "file-%03u", file);
	assert_int_equal(table_find_key(w->table, key, (uint32_t)strlen(key), row), 0);
	offset = row->offset;
	free(row);
	return offset;
}

void world_take_memory(struct world *w)
{
	uint64_t unit = 64 * KiB;

	test_wait(atomic_load(&w->worker.memory.used) == w->taken);
	while (budget_take(&w->worker.memory, BUDGET_DEMAND, unit))
		w->taken += unit;
}

void world_give_memory_of(struct world *w, uint64_t bytes)
{
	budget_give(&w->worker.memory, bytes);
	flight_memory_freed(&w->worker);
}

void world_give_memory(struct world *w)
{
	uint64_t taken = w->taken;

	w->taken = 0;
	world_give_memory_of(w, taken);
}
