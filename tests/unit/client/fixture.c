#include "tests/unit/client/fixture.h"
#include "placement/placement.h"
#include "tests/clock/test_clock.h"

/* ---- the bytes ------------------------------------------------------------------------------- */

/* Not followed by sanitizers: tests make hundreds of MiB with it. */
#define NOT_FOLLOWED __attribute__((no_sanitize("address", "thread", "undefined")))

NOT_FOLLOWED uint64_t fix_mix(uint64_t x)
{
	x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ull;
	x = (x ^ (x >> 27)) * 0x94D049BB133111EBull;
	return x ^ (x >> 31);
}

/* Bytes of an object, any part of it. */
NOT_FOLLOWED static void fix_content(
	const struct fix_object *o, uint64_t from, uint64_t length, uint8_t *out)
{
	for (uint64_t i = 0; i < length;) {
		uint64_t at = from + i;
		uint64_t word = fix_mix(o->seed ^ (at / 8 + 1));
		uint64_t n = min(8 - at % 8, length - i);

		if (n == sizeof(word))
			memcpy(out + i, &word, sizeof(word)); /* one store, no call */
		else
			memcpy(out + i, (const uint8_t *)&word + at % 8, n);
		i += n;
	}
}

/* What the volume holds in a range, gaps and ends as zeros: computed from the objects, not from
 * pieces. */
static void fix_expected(const struct fix *f, uint64_t offset, uint64_t length, uint8_t *out)
{
	memset(out, 0, length);
	for (uint32_t i = 0; i < f->n_objects; i++) {
		const struct fix_object *o = &f->objects[i];
		uint64_t from = max(o->offset, offset);
		uint64_t to = min(o->offset + o->size, offset + length);

		if (from < to)
			fix_content(o, from - o->offset, to - from, out + (from - offset));
	}
}

const struct fix_object *fix_object(const struct fix *f, const char *key)
{
	uint32_t i = 0;

	while (i < f->n_objects && strcmp(f->objects[i].key, key) != 0)
		i++;
	ensure(i < f->n_objects);
	return &f->objects[i];
}

const char *fix_path(const struct fix *f, const char *name)
{
	static _Thread_local char paths[4][160];
	static _Thread_local unsigned int next;
	char *p = paths[next++ % 4];

	snprintf(p, sizeof(paths[0]), "%s/%s", f->dir, name);
	return p;
}

const char *fix_chunk_path(const struct fix *f, uint32_t chunk)
{
	char name[32];

	snprintf(name, sizeof(name), "chunk-%u-%u", chunk, f->file_version[chunk]);
	return fix_path(f, name);
}

void fix_each_piece(const struct fix *f, uint64_t offset, uint64_t length,
	void (*fn)(const struct fix_object *o, uint64_t number, void *arg), void *arg)
{
	for (uint32_t i = 0; i < f->n_objects; i++) {
		const struct fix_object *o = &f->objects[i];

		for (uint64_t n = 0; n * PIECE_BYTES < o->size; n++) {
			uint64_t at = o->offset + n * PIECE_BYTES;
			uint64_t stop = min(at + PIECE_BYTES, o->offset + o->size);

			if (at < offset + length && align_up(stop, BLOCK_BYTES) > offset)
				fn(o, n, arg);
		}
	}
}

static uint32_t fix_piece(
	const struct fix_object *o, uint64_t number, uint8_t *out, uint64_t *ret_sum)
{
	uint32_t length = (uint32_t)min(o->size - number * PIECE_BYTES, (uint64_t)PIECE_BYTES);
	uint64_t seed = piece_object_seed(o->key, (uint32_t)strlen(o->key), "tag", 3);

	fix_content(o, number * PIECE_BYTES, length, out);
	*ret_sum = hash_xxh3(out, length, piece_seed(seed, number));
	return length;
}

/* A file that is being made, and where a chunk lies in it. */
struct fix_file {
	int fd;
	struct chunk_place place;
};

static void fix_write_piece(const struct fix_object *o, uint64_t number, void *arg)
{
	const struct fix_file *file = arg;
	uint32_t at = (uint32_t)((o->offset + number * PIECE_BYTES) % CHUNK_BYTES);
	uint8_t data[PIECE_BYTES];
	uint8_t bytes[CHUNK_ENTRY_BYTES];
	struct piece_entry entry = { .flags = 0 };

	entry.length = fix_piece(o, number, data, &entry.xxh3);
	piece_entry_encode(&entry, bytes);
	assert_int_equal(file_pwrite_exact(file->fd, data, entry.length, file->place.data + at), 0);
	assert_int_equal(file_pwrite_exact(file->fd, bytes, sizeof(bytes),
				 chunk_place_table(&file->place) +
					 (uint64_t)at / BLOCK_BYTES * CHUNK_ENTRY_BYTES),
		0);
}

uint64_t fix_file_id(const struct fix *f, uint32_t chunk)
{
	return f->in_extent ? 5 : 100 + chunk * 100 + f->file_version[chunk];
}

static void fix_write_into(const struct fix *f, uint32_t chunk, struct fix_file *file)
{
	struct chunk_head head = { .id = { f->volume_id, f->lineage, chunk },
		.file_id = fix_file_id(f, chunk) };
	uint8_t block[CHUNK_HEAD_BYTES];

	chunk_head_encode(&head, block);
	assert_int_equal(file_pwrite_exact(file->fd, block, sizeof(block), file->place.head), 0);
	fix_each_piece(f, (uint64_t)chunk * CHUNK_BYTES, CHUNK_BYTES, fix_write_piece, file);
}

void fix_write_chunk(const struct fix *f, uint32_t chunk)
{
	struct fix_file file = { .place = CHUNK_PLACE_OWN };

	file.fd = open(fix_chunk_path(f, chunk), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (file.fd < 0)
		return; /* made before */
	assert_int_equal(ftruncate(file.fd, CHUNK_FILE_BYTES), 0);
	fix_write_into(f, chunk, &file);
	close(file.fd);
}

/* All chunks in one file. */
static void fix_write_extent(const struct fix *f)
{
	struct fix_file file;

	file.fd = open(fix_path(f, "extent"), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (file.fd < 0)
		return; /* made before */
	assert_int_equal(ftruncate(file.fd, (off_t)extent_file_bytes(FIX_EXTENT)), 0);
	for (uint32_t chunk = 0; chunk < FIX_CHUNKS; chunk++) {
		file.place = extent_place(FIX_EXTENT, chunk);
		fix_write_into(f, chunk, &file);
	}
	close(file.fd);
}

/* ---- the worker ------------------------------------------------------------------------------ */

void fix_mark(const struct fix_object *o, uint64_t number, void *arg)
{
	uint8_t *bitmap = arg;
	uint64_t at = o->offset + number * PIECE_BYTES;
	uint64_t n = align_up(min(o->offset + o->size - at, (uint64_t)PIECE_BYTES), BLOCK_BYTES);

	for (uint64_t b = at % CHUNK_BYTES / BLOCK_BYTES; n; b++, n -= BLOCK_BYTES)
		bitmap[b / 8] |= (uint8_t)(1u << b % 8);
}

static void fix_reply_local(struct fix *f, struct rpc_request *request)
{
	uint32_t chunk = (uint32_t)(request->frame.offset / CHUNK_BYTES);
	uint8_t *bitmap = calloc(1, CHUNK_BITMAP_BYTES + HELD_ENTRY_BYTES);
	struct net_payload payload = { .n = 1, .release = free, .arg = bitmap };
	struct frame reply = { .flags = FRAME_LOCAL, .length = request->frame.length };
	uint64_t from = f->whole ? (uint64_t)chunk * CHUNK_BYTES : request->frame.offset;

	fix_write_chunk(f, chunk);
	fix_each_piece(f, from, f->whole ? CHUNK_BYTES : request->frame.length, fix_mark,
		f->bitmap[chunk]);
	memcpy(bitmap, f->bitmap[chunk], CHUNK_BITMAP_BYTES);
	payload.parts[0].data = bitmap;
	held_put(bitmap + CHUNK_BITMAP_BYTES, 0, held_entry(++f->holds, false));
	payload.parts[0].len = CHUNK_BITMAP_BYTES + HELD_ENTRY_BYTES;
	if (f->in_extent)
		fix_write_extent(f);
	payload.fd = open(f->in_extent ? fix_path(f, "extent") : fix_chunk_path(f, chunk),
		O_RDONLY | O_DIRECT | O_CLOEXEC);
	assert_true(payload.fd >= 0);
	reply.extent = f->in_extent ? FIX_EXTENT : 0;
	rpc_reply(request, 0, &reply, payload);
}

struct fix_sums {
	uint64_t *sums;
	uint32_t n;
};

static void fix_add_sum(const struct fix_object *o, uint64_t number, void *arg)
{
	struct fix_sums *s = arg;
	uint8_t data[PIECE_BYTES];

	(void)fix_piece(o, number, data, &s->sums[s->n++]);
}

void fix_reply_bytes(struct fix *f, struct rpc_request *request)
{
	uint32_t length = request->frame.length;
	uint8_t *data = malloc(length + (length / BLOCK_BYTES + 2) * 8);
	struct fix_sums sums = { .sums = (uint64_t *)(void *)(data + length) };
	struct net_payload payload = { .n = 1, .release = free, .arg = data, .fd = -1 };
	struct frame reply = { .length = length };

	fix_expected(f, request->frame.offset, length, data);
	fix_each_piece(f, request->frame.offset, length, fix_add_sum, &sums);
	if (f->corrupt_n) {
		f->corrupt_n--;
		data[length / 2] ^= 1;
	}
	reply.checksums = (uint16_t)sums.n;
	payload.parts[0].data = data;
	payload.parts[0].len = length + (size_t)sums.n * 8;
	rpc_reply(request, 0, &reply, payload);
}

static void fix_answer(struct fix *f, struct rpc_request *request)
{
	bool odd = request->frame.offset / CHUNK_BYTES % 2;

	if (f->local && request->frame.flags & FRAME_LOCAL_OK && !(f->bytes_odd && odd))
		fix_reply_local(f, request);
	else
		fix_reply_bytes(f, request);
}

static void fix_on_map(struct fix *f, struct rpc_request *request)
{
	struct net_payload payload = NET_PAYLOAD_NONE;
	struct frame reply = { 0 };
	int r = 0;

	pthread_mutex_lock(&f->lock);
	if (f->writer)
		reply.generation = chunk_map_writer_start(f->writer);
	if (request->frame.op == FRAME_MAP && !f->writer) {
		r = -EOPNOTSUPP;
	} else if (request->frame.op == FRAME_MAP &&
		   request->frame.generation != reply.generation) {
		assert_int_equal(chunk_map_writer_fd(f->writer, &payload.fd), 0);
		f->maps++;
	}
	pthread_mutex_unlock(&f->lock);
	rpc_reply(request, r, &reply, payload);
}

static void fix_on_worker(struct rpc_request *request, void *arg)
{
	struct fix *f = arg;
	const struct frame *frame = &request->frame;

	if (frame->op == FRAME_SEAL && f->on_seal) {
		f->on_seal(f, request);
		return;
	}
	if (frame->op == FRAME_HELD || frame->op == FRAME_MAP) { /* come when they come */
		fix_on_map(f, request);
		return;
	}
	pthread_mutex_lock(&f->lock);
	f->seen[f->seen_n++ % FIX_LOG] = (struct fix_seen){ frame->op, frame->class, frame->flags,
		frame->offset, frame->length };
	if (frame->op == FRAME_FILE && f->file_fails) {
		rpc_reply(request, f->file_fails, NULL, NET_PAYLOAD_NONE);
	} else if (frame->op == FRAME_FILE) {
		fix_reply_local(f, request);
	} else if (frame->op != FRAME_FETCH) {
		if (frame->op == FRAME_RECHECK && f->repairs)
			f->corrupt_n = 0;
		rpc_reply(request, frame->op == FRAME_RECHECK ? f->recheck : 0, NULL,
			NET_PAYLOAD_NONE);
	} else if (f->fail_n) {
		f->fail_n--;
		rpc_reply(request, f->fail, NULL, NET_PAYLOAD_NONE);
	} else if (f->park) {
		list_push_back(&f->parked, &request->link);
		request->priv = f;
		f->parked_n++;
	} else {
		fix_answer(f, request);
	}
	pthread_mutex_unlock(&f->lock);
}

static void fix_on_worker_cancel(struct rpc_request *request, void *arg)
{
	struct fix *f = arg;

	pthread_mutex_lock(&f->lock);
	if (request->priv) {
		list_remove(&request->link);
		f->parked_n--;
		f->cancelled_n++;
		rpc_reply(request, -ECANCELED, NULL, NET_PAYLOAD_NONE);
	}
	pthread_mutex_unlock(&f->lock);
}

void fix_unpark(struct fix *f)
{
	struct list *node;

	pthread_mutex_lock(&f->lock);
	f->park = false;
	while ((node = list_pop_front(&f->parked)) != NULL) {
		struct rpc_request *request = list_entry(node, struct rpc_request, link);

		request->priv = NULL;
		f->parked_n--;
		fix_answer(f, request);
	}
	pthread_mutex_unlock(&f->lock);
}

void fix_start_worker(struct fix *f)
{
	static const struct rpc_server_ops ops = { .on_request = fix_on_worker,
		.on_cancel = fix_on_worker_cancel };
	struct err e = ERR_INIT;

	if (rpc_server_new(f->loop, f->worker_address, &ops, f, &f->worker, &e) < 0)
		fail_msg("worker: %s", e.text);
}

void fix_stop_worker(struct fix *f)
{
	rpc_server_free(f->worker);
	f->worker = NULL;
}

uint32_t fix_count(struct fix *f, enum frame_op op)
{
	uint32_t n = 0;

	pthread_mutex_lock(&f->lock);
	assert_true(f->seen_n <= FIX_LOG);
	for (uint32_t i = 0; i < f->seen_n; i++)
		n += f->seen[i].op == op;
	pthread_mutex_unlock(&f->lock);
	return n;
}

/* ---- the master ------------------------------------------------------------------------------ */

void fix_reply_packed(struct rpc_request *request, uint8_t *packed, size_t len, int fd)
{
	struct net_payload payload = { .n = 1, .release = free, .arg = packed, .fd = fd };

	payload.parts[0].data = packed;
	payload.parts[0].len = len;
	rpc_reply(request, 0, NULL, payload);
}

static void fix_reply_slots(struct fix *f, struct rpc_request *request)
{
	static uint8_t slots[PLACEMENT_SLOTS * sizeof(struct placement_slot)];
	Granary__SlotTable table = GRANARY__SLOT_TABLE__INIT;
	Granary__Worker worker = GRANARY__WORKER__INIT;
	Granary__Worker *workers[] = { &worker };
	uint8_t *packed;
	size_t len;

	for (uint32_t i = 0; i < PLACEMENT_SLOTS; i++) {
		memset(slots + (size_t)i * 8, 0xff, 8);
		memset(slots + (size_t)i * 8, 0, 2); /* owner 0 */
	}
	worker.has_number = 1;
	worker.address = f->worker_address;
	table.has_epoch = 1;
	table.epoch = 1;
	table.has_sequence = 1;
	table.sequence = 1;
	table.n_workers = 1;
	table.workers = workers;
	table.has_slots = 1;
	table.slots = (ProtobufCBinaryData){ sizeof(slots), slots };
	len = granary__slot_table__get_packed_size(&table);
	packed = malloc(len);
	granary__slot_table__pack(&table, packed);
	fix_reply_packed(request, packed, len, -1);
}

static void fix_reply_generation(struct fix *f, struct rpc_request *request)
{
	Granary__Generation answer = GRANARY__GENERATION__INIT;
	char notice[] = "a line for the operator";
	struct table *table;
	struct generation_id id;
	uint8_t *packed;
	size_t len;

	if (f->on_open)
		f->on_open(f);
	assert_int_equal(table_open(open(f->table_path, O_RDONLY | O_CLOEXEC), &table, NULL), 0);
	id = table_info(table)->id;
	table_unref(table);
	answer.has_volume = 1;
	answer.volume = (ProtobufCBinaryData){ VOLUME_ID_LEN, id.volume.bytes };
	answer.has_lineage = 1;
	answer.lineage = id.lineage;
	answer.has_generation = 1;
	answer.generation = id.generation;
	answer.has_hash = 1;
	answer.hash = (ProtobufCBinaryData){ sizeof(id.hash), id.hash };
	answer.notice = notice;
	len = granary__generation__get_packed_size(&answer);
	packed = malloc(len);
	granary__generation__pack(&answer, packed);
	fix_reply_packed(request, packed, len,
		open(f->sent_path[0] ? f->sent_path : f->table_path, O_RDONLY | O_CLOEXEC));
}

static void fix_refuse(struct rpc_request *request)
{
	struct err e = ERR_INIT;

	err_set(&e, -EKEYREJECTED, "the key was refused by http://127.0.0.1:9");
	rpc_reply_err(request, -EKEYREJECTED, &e);
}

void fix_on_master(struct rpc_request *request, void *arg)
{
	struct fix *f = arg;

	if (request->frame.op == FRAME_HOLD && f->on_hold)
		f->on_hold(f, request);
	else if (request->frame.op == FRAME_GET_SLOTS && f->on_slots)
		f->on_slots(f, request);
	else if (request->frame.op == FRAME_GET_SLOTS)
		fix_reply_slots(f, request);
	else if (f->master_fails)
		fix_refuse(request);
	else
		fix_reply_generation(f, request);
}

/* ---- set-up ---------------------------------------------------------------------------------- */

void fix_add(struct listing *l, const char *key, uint64_t size)
{
	assert_int_equal(listing_add(l, key, (uint32_t)strlen(key), size, 0, "tag", 3), 0);
}

void fix_listing(struct listing *l)
{
	static const uint64_t sizes[] = { 1, 4095, 4096, 4097, 65535, 65536, 65537, 110000, 131072,
		1048575, 1048576, 0, 12345, 200000 };

	for (uint32_t i = 0; i < ARRAY_SIZE(sizes) * 2; i++) {
		char key[32];

		snprintf(key, sizeof(key), "a/small-%02u", i);
		fix_add(l, key, sizes[i % ARRAY_SIZE(sizes)]);
	}
	fix_add(l, "b/large", 40 * MiB + 12345);
	fix_add(l, "c/tail", 5000);
}

struct table *fix_build(struct fix *f, struct table *prev, struct listing *l, const char *path)
{
	struct generation_id id;
	struct generation_stats stats;
	struct table *table;
	struct err e = ERR_INIT;

	if (generation_build(&f->volume_id, prev, l, path, &id, &stats, &e) < 0)
		fail_msg("generation: %s", e.text);
	listing_free(l);
	assert_int_equal(table_open(open(path, O_RDONLY | O_CLOEXEC), &table, &e), 0);
	return table;
}

static void fix_build_volume(struct fix *f)
{
	struct listing *l = listing_new(64 * MiB);
	struct table_cursor cursor = { 0 };
	struct table_row row;
	struct table *table;

	fix_listing(l);
	snprintf(f->table_path, sizeof(f->table_path), "%s/table-1", f->dir);
	table = fix_build(f, NULL, l, f->table_path);
	f->lineage = table_info(table)->id.lineage;
	while (table_next(table, &cursor, &row) == 0) {
		struct fix_object *o = &f->objects[f->n_objects++];

		assert_true(f->n_objects <= FIX_OBJECTS);
		assert_true(row.key_len < sizeof(o->key));
		memcpy(o->key, row.key, row.key_len + 1u);
		o->offset = row.offset;
		o->size = row.size;
		o->seed = hash_xxh3(row.key, row.key_len, 1);
		f->end = max(f->end, align_up(row.offset + row.size, BLOCK_BYTES));
	}
	table_cursor_release(&cursor);
	table_unref(table);
	assert_true(f->end > 2 * CHUNK_BYTES && f->end < FIX_CHUNKS * (uint64_t)CHUNK_BYTES);
}

int fix_start_client(struct fix *f, struct client_config config)
{
	struct buf notice = BUF_INIT(256);
	struct err e = ERR_INIT;

	config.master = f->master_address;
	config.budget = &f->budget;
	if (client_new(&config, &f->client, &e) < 0)
		fail_msg("client: %s", e.text);
	if (client_open_source(f->client, &f->source, false, &f->volume, &notice, &e) < 0)
		fail_msg("open: %s", e.text);
	assert_string_equal(buf_str(&notice), "a line for the operator");
	buf_release(&notice);
	return 0;
}

struct fix *fix_new(const char *worker_address)
{
	static const struct rpc_server_ops ops = { .on_request = fix_on_master };
	struct fix *f = calloc(1, sizeof(*f));
	struct err e = ERR_INIT;
	struct buf text = BUF_INIT(LIMIT_URL_BYTES);

	assert_non_null(f);
	snprintf(f->dir, sizeof(f->dir), "/var/tmp/granary-client-XXXXXX");
	assert_non_null(mkdtemp(f->dir));
	assert_int_equal(ufs_config_parse("s3://bucket/data", &f->source, &e), 0);
	f->source.endpoint = strdup("http://127.0.0.1:9");
	assert_int_equal(ufs_config_source(&f->source, &text, &e), 0);
	volume_id_of_source(buf_str(&text), &f->volume_id);
	buf_release(&text);
	fix_build_volume(f);
	pthread_mutex_init(&f->lock, NULL);
	list_init(&f->parked);
	f->local = true;
	budget_init(&f->budget, 64 * MiB);
	snprintf(f->master_address, sizeof(f->master_address), "unix:%s/master", f->dir);
	snprintf(f->worker_address, sizeof(f->worker_address), "unix:%s/worker", f->dir);
	if (worker_address)
		snprintf(f->worker_address, sizeof(f->worker_address), "%s", worker_address);
	f->loop = loop_new("servers");
	assert_non_null(f->loop);
	if (rpc_server_new(f->loop, f->master_address, &ops, f, &f->master, &e) < 0)
		fail_msg("master: %s", e.text);
	fix_start_worker(f);
	return f;
}

void fix_free(struct fix *f)
{
	char command[96];

	client_volume_close(f->volume);
	client_free(f->client);
	assert_int_equal(f->budget.used, 0);
	if (f->worker) {
		fix_unpark(f);
		rpc_server_free(f->worker);
	}
	rpc_server_free(f->master);
	loop_free(f->loop);
	ufs_config_release(&f->source);
	snprintf(command, sizeof(command), "rm -rf %s", f->dir);
	assert_int_equal(system(command), 0);
	pthread_mutex_destroy(&f->lock);
	free(f);
}

int fix_setup(void **state)
{
	struct fix *f = fix_new(NULL);

	*state = f;
	return fix_start_client(f, (struct client_config){ 0 });
}

int fix_teardown(void **state)
{
	fix_free(*state);
	return 0;
}

/* ---- reads ----------------------------------------------------------------------------------- */

static void fix_on_done(struct client_read *read, int status, const void *data)
{
	struct fix_read *r = read->arg;

	pthread_mutex_lock(&r->lock);
	ensure(!r->done); /* exactly once */
	r->status = status;
	if (status == 0)
		memcpy(r->data, data, read->length);
	r->done = true;
	pthread_cond_broadcast(&r->ended);
	pthread_mutex_unlock(&r->lock);
}

struct fix_read *fix_read_start(struct fix *f, uint64_t offset, uint32_t length)
{
	struct fix_read *r = calloc(1, sizeof(*r));

	assert_non_null(r);
	pthread_mutex_init(&r->lock, NULL);
	pthread_cond_init(&r->ended, NULL);
	r->data = malloc(length);
	r->read = (struct client_read){
		.offset = offset, .length = length, .on_done = fix_on_done, .arg = r
	};
	client_read(f->volume, &r->read);
	return r;
}

bool fix_read_done(struct fix_read *r)
{
	bool done;

	pthread_mutex_lock(&r->lock);
	done = r->done;
	pthread_mutex_unlock(&r->lock);
	return done;
}

void fix_read_end(struct fix *f, struct fix_read *r, int status)
{
	uint8_t *want = malloc(r->read.length);

	pthread_mutex_lock(&r->lock);
	while (!r->done)
		pthread_cond_wait(&r->ended, &r->lock);
	pthread_mutex_unlock(&r->lock);
	assert_int_equal(r->status, status);
	if (status == 0) {
		fix_expected(f, r->read.offset, r->read.length, want);
		assert_memory_equal(r->data, want, r->read.length);
	}
	free(want);
	free(r->data);
	pthread_cond_destroy(&r->ended);
	pthread_mutex_destroy(&r->lock);
	free(r);
}

void fix_read(struct fix *f, uint64_t offset, uint32_t length)
{
	fix_read_end(f, fix_read_start(f, offset, length), 0);
}

int fix_read_local(struct fix *f, uint64_t offset, uint32_t length)
{
	uint8_t *buf = aligned_alloc(BLOCK_BYTES, length);
	uint8_t *want = malloc(length);
	int r;

	memset(buf, 0xa5, length);
	r = client_read_local(f->volume, offset, length, buf);
	if (r == 0) {
		fix_expected(f, offset, length, want);
		assert_memory_equal(buf, want, length);
	}
	free(want);
	free(buf);
	return r;
}

bool fix_borrow(struct fix *f, uint64_t offset, uint32_t length)
{
	uint8_t *want = malloc(length);
	struct client_loan loan;
	bool borrowed = client_borrow(f->volume, offset, length, &loan);

	if (borrowed) {
		fix_expected(f, offset, length, want);
		assert_memory_equal(loan.data, want, length);
		client_give(&loan);
	}
	free(want);
	return borrowed;
}

static uint32_t parked(struct fix *f)
{
	uint32_t n;

	pthread_mutex_lock(&f->lock);
	n = f->parked_n;
	pthread_mutex_unlock(&f->lock);
	return n;
}

void fix_wait_parked(struct fix *f, uint32_t n)
{
	test_wait(parked(f) == n);
}

uint64_t fix_counter(struct fix *f, const char *symbol)
{
	uint32_t n;
	const struct counter_info *table = client_counter_table(&n);

	for (uint32_t i = 0; i < n; i++)
		if (strcmp(table[i].symbol, symbol) == 0)
			return counter_read(&table[i], client_counters(f->client));
	check_failed(symbol, __FILE__, __LINE__, __func__); /* no such counter */
}
