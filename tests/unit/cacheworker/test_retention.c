/* What goes and what is adopted: dropped generations, cleaned objects, new lineages, masters that
 * contradict what was seen. */
#include <malloc.h>
#include <semaphore.h>
#include "tests/unit/cacheworker/world.h"
#include "base/pool.h"
#include "cacheworker/kept.h"
#include "cacheworker/retention.h"

#define FILE_B      (64 * KiB)
#define CHUNK_FILES (CHUNK_BYTES / FILE_B)
#define FILES       (CHUNK_FILES + 64)
#define STAY        8u /* files of the first chunk that a later generation still has */

static _Atomic unsigned int trims;

int malloc_trim(size_t pad)
{
	(void)pad;
	atomic_fetch_add(&trims, 1);
	return 0;
}

/* ---- the master's word ----------------------------------------------------------------------- */

struct said {
	uint64_t lineage;
	uint64_t generation;
	uint64_t end;
	const uint8_t *hash; /* NULL: a mount's word */
};

static uint64_t evict;                  /* said with it */
static Granary__EvictPaths *evict_some; /* likewise */
static int64_t current_ms;              /* likewise */

static void say(struct world *w, const struct said *said, size_t n)
{
	Granary__Retention retention = GRANARY__RETENTION__INIT;
	Granary__SourceRetention source = GRANARY__SOURCE_RETENTION__INIT;
	Granary__SourceRetention *sources[] = { &source };
	Granary__Retained retained[4];
	Granary__Retained *pointers[4];
	struct volume_id volume = table_info(w->table)->id.volume;

	source.has_volume = 1;
	source.volume = (ProtobufCBinaryData){ VOLUME_ID_LEN, volume.bytes };
	for (size_t i = 0; i < n; i++) {
		granary__retained__init(&retained[i]);
		retained[i].has_lineage = retained[i].has_generation = 1;
		retained[i].lineage = said[i].lineage;
		retained[i].generation = said[i].generation;
		retained[i].has_end = said[i].end != 0;
		retained[i].end = said[i].end;
		retained[i].has_hash = said[i].hash != NULL;
		retained[i].hash = (ProtobufCBinaryData){ said[i].hash ? SHA256_BYTES : 0,
			(uint8_t *)(uintptr_t)said[i].hash };
		pointers[i] = &retained[i];
	}
	source.retained = pointers;
	source.n_retained = n;
	source.has_evict = evict > 0;
	source.evict = evict;
	source.evict_paths = evict_some;
	source.has_current_ms = current_ms > 0;
	source.current_ms = current_ms;
	retention.sources = sources;
	retention.n_sources = 1;
	pthread_mutex_lock(&w->lock);
	assert_true(granary__retention__get_packed_size(&retention) <= sizeof(w->retention));
	w->terms_len = granary__retention__pack(&retention, w->retention);
	pthread_mutex_unlock(&w->lock);
}

static unsigned int times_asked(struct world *w)
{
	unsigned int n;

	pthread_mutex_lock(&w->lock);
	n = w->retention_asked;
	pthread_mutex_unlock(&w->lock);
	return n;
}

/* Until what the master says now was followed, or not: the second question after this comes when
 * the first answer was dealt with. */
static void wait_followed(struct world *w)
{
	unsigned int begin = times_asked(w);

	retention_wake(&w->worker);
	test_wait(times_asked(w) > begin);
	retention_wake(&w->worker);
	test_wait(times_asked(w) > begin + 1);
}

static struct said said_of(const struct table *table)
{
	const struct table_info *info = table_info(table);

	return (struct said){ info->id.lineage, info->id.generation, info->end, info->id.hash };
}

/* ---- the volume ------------------------------------------------------------------------------ */

static uint64_t cached_bytes(struct world *w, uint64_t lineage)
{
	return tier_set_volume_bytes(w->worker.tiers, &table_info(w->table)->id.volume, lineage);
}

/* All files of w->table, byte by byte. */
static void read_files(struct world *w)
{
	struct table_cursor cursor = { 0 };
	struct table_row *row = malloc(sizeof(*row));

	while (table_next(w->table, &cursor, row) == 0)
		if (!(row->flags & ROW_DEAD))
			(void)world_read_range(w, row->offset, FILE_B, 0);
	table_cursor_release(&cursor);
	free(row);
	world_wait_written(w);
}

static void remove_files(struct world *w, unsigned int first, unsigned int end)
{
	char path[160];

	for (unsigned int i = first; i < end; i++) {
		(void)snprintf(path, sizeof(path), "%s/data/file-%03u", w->dir, i);
		assert_int_equal(unlink(path), 0);
	}
}

/* The next generation, or with `fresh` the first of another lineage; returns the one before. */
static struct table *next_table(struct world *w, const char *name, bool fresh)
{
	struct table *old = w->table;

	if (fresh)
		w->table = NULL;
	w->table = world_make_table(w, name);
	world_make_model(w);
	return old;
}

/* Everything of generation 1 cached, then most of the first chunk's files removed. */
static struct world *two_generations(struct table **ret_old)
{
	struct world *w = world_new_sized(1 * GiB, FILES, FILE_B, 0);

	read_files(w);
	assert_int_equal(cached_bytes(w, table_info(w->table)->id.lineage), FILES * FILE_B);
	remove_files(w, STAY, CHUNK_FILES);
	*ret_old = next_table(w, "second", false);
	return w;
}

/* ---- tests ----------------------------------------------------------------------------------- */

static void test_cleaned_objects_are_copied(void **state)
{
	struct table *old;
	struct world *w = two_generations(&old);
	uint64_t gets = world_origin_gets(w);

	(void)state;
	assert_true(world_offset_of(w, 0) >= table_info(old)->end); /* it was cleaned */
	read_files(w);
	assert_int_equal(world_origin_gets(w), gets);
	assert_int_equal(counter_get(&w->worker.counters.adopted), STAY);
	table_unref(old);
	world_free(w);
}

/* Holds a thread of a pool until it is let go. */
struct gate {
	struct pool_job job;
	sem_t started;
	sem_t open;
};

static void run_gate(struct pool_job *job)
{
	struct gate *gate = container_of(job, struct gate, job);

	sem_post(&gate->started);
	while (sem_wait(&gate->open) != 0)
		;
}

static void gate_submit(struct gate *gate, struct pool *pool)
{
	*gate = (struct gate){ .job.run = run_gate };
	sem_init(&gate->started, 0, 0);
	sem_init(&gate->open, 0, 0);
	assert_int_equal(pool_submit(pool, &gate->job), 0);
}

static void gate_started(struct gate *gate)
{
	while (sem_wait(&gate->started) != 0)
		;
}

static void on_read(struct rpc_call *call, int status)
{
	assert_int_equal(status, 0);
	atomic_store((_Atomic bool *)call->arg, true);
}

static void announce_files(struct world *w)
{
	struct err e = ERR_INIT;

	for (unsigned int i = 0; i < STAY; i++) {
		struct rpc_call call = world_make_call(
			w, FRAME_PREFETCH, world_offset_of(w, i), FILE_B, FRAME_EXACT);

		assert_int_equal(rpc_call_wait(w->client, &call, &e), 0);
		rpc_call_release(&call);
	}
	/* Each has its place in the queue, and no fill is left. */
	test_wait(counter_get(&w->worker.counters.flights) == STAY && world_fills(w) == STAY);
}

/* The last of the announced units, which a reader wants, is copied before the others and before what came later. */
static void test_reader_passes_announced_copies(void **state)
{
	struct table *old;
	struct world *w = two_generations(&old);
	_Atomic bool done = false;
	uint64_t joined = counter_get(&w->worker.counters.joined);
	struct gate gates[3];
	struct rpc_call call;

	(void)state;
	for (unsigned int i = 0; i < 2; i++)
		gate_submit(&gates[i], w->worker.adopt);
	for (unsigned int i = 0; i < 2; i++)
		gate_started(&gates[i]);
	announce_files(w);
	call = world_make_call(w, FRAME_FETCH, world_offset_of(w, STAY - 1), FILE_B, 0);
	call.arg = &done;
	call.on_done = on_read;
	rpc_call(w->client, &call);
	test_wait(counter_get(&w->worker.counters.joined) == joined + 1);
	gate_submit(&gates[2], w->worker.adopt);
	sem_post(&gates[0].open);
	test_wait(atomic_load(&done));
	gate_started(&gates[2]);
	assert_int_equal(counter_get(&w->worker.counters.adopted), 1);
	for (unsigned int i = 1; i < 3; i++)
		sem_post(&gates[i].open);
	rpc_call_release(&call);
	world_wait_written(w);
	assert_int_equal(counter_get(&w->worker.counters.adopted), STAY);
	table_unref(old);
	world_free(w);
}

static void test_dropped_generation(void **state)
{
	struct table *old;
	struct world *w = two_generations(&old);
	const struct said second = said_of(w->table);
	uint64_t gets = world_origin_gets(w);
	uint64_t before;

	(void)state;
	(void)world_read_range(
		w, world_offset_of(w, CHUNK_FILES), FILE_B, 0); /* the worker has the table */
	before = cached_bytes(w, second.lineage);
	say(w, (struct said[]){ second, said_of(old) }, 2);
	wait_followed(w);
	assert_int_equal(cached_bytes(w, second.lineage), before);
	/* Alone: the first chunk goes, what lives in it is where it belongs now. */
	say(w, &second, 1);
	wait_followed(w);
	assert_int_equal(cached_bytes(w, second.lineage), (64 + STAY) * FILE_B);
	assert_true(counter_get(&w->worker.counters.dropped_bytes) >= CHUNK_BYTES);
	assert_int_equal(counter_get(&w->worker.counters.adopted), STAY);
	read_files(w);
	assert_int_equal(world_origin_gets(w), gets);
	table_unref(old);
	world_free(w);
}

static uint64_t take_shown(struct world *w)
{
	uint64_t shown;

	pthread_mutex_lock(&w->lock);
	shown = w->shown;
	w->shown = 0;
	pthread_mutex_unlock(&w->lock);
	return shown;
}

/* What the master says is not followed when it cannot be: nothing goes. It is shown what was seen if it knows less. */
static void test_contradictions(void **state)
{
	struct table *old;
	struct world *w = two_generations(&old);
	struct said second = said_of(w->table);
	uint8_t other[SHA256_BYTES] = { 1 };
	uint64_t before;
	struct said said;

	(void)state;
	(void)world_read_range(w, world_offset_of(w, CHUNK_FILES), FILE_B, 0);
	before = cached_bytes(w, second.lineage);
	for (unsigned int i = 0; i < 5; i++) {
		said = second;
		switch (i) {
		case 0: /* the same number, other contents */
			said.hash = other;
			break;
		case 1: /* restored: an older generation is its newest */
			said = said_of(old);
			break;
		case 2: /* a lineage that nobody here asked for yet */
			said.lineage ^= 1;
			break;
		case 3: /* only mounts know */
			said.hash = NULL;
			break;
		default: /* nothing is retained: only a policy */
			break;
		}
		say(w, &said, i == 4 ? 0 : 1);
		wait_followed(w);
		(void)take_shown(w); /* also because of what was said before */
		wait_followed(w);
		assert_int_equal(take_shown(w), i <= 1 ? second.generation : 0);
		assert_int_equal(cached_bytes(w, second.lineage), before);
	}
	table_unref(old);
	world_free(w);
}

/* After a restart too: the table next to the tier has where each object is stored. */
static void test_dropped_without_a_reader(void **state)
{
	struct table *old;
	struct world *w = two_generations(&old);
	const struct said second = said_of(w->table);

	(void)state;
	(void)world_read_range(w, world_offset_of(w, CHUNK_FILES), FILE_B, 0);
	world_wait_written(w);
	world_stop_worker(w);
	say(w, &second, 1);
	world_start_worker(w, 1 * GiB);
	wait_followed(w);
	assert_int_equal(cached_bytes(w, second.lineage), (64 + STAY) * FILE_B);
	table_unref(old);
	world_free(w);
}

/* The master lost its state: another lineage, whose bytes are those of the old one. */
static void test_new_lineage(void **state)
{
	struct world *w = world_new_sized(1 * GiB, FILES, FILE_B, 0);
	uint64_t lineages[KEPT_LINEAGES];
	struct table *old;
	struct said first;
	struct said second;
	uint64_t gets;

	(void)state;
	read_files(w);
	gets = world_origin_gets(w);
	remove_files(w, 10, 20); /* so that offsets differ */
	old = next_table(w, "anew", true);
	first = said_of(old);
	second = said_of(w->table);
	assert_int_not_equal(first.lineage, second.lineage);
	for (unsigned int i = 0; i < 10; i++)
		(void)world_read_range(w, world_offset_of(w, i + 30), FILE_B, 0);
	world_wait_written(w);
	assert_int_equal(world_origin_gets(w), gets);
	/* Still mounted somewhere: it stays. */
	say(w, (struct said[]){ second, { first.lineage, 1, 0, NULL } }, 2);
	wait_followed(w);
	assert_int_equal(cached_bytes(w, first.lineage), FILES * FILE_B);
	say(w, &second, 1);
	wait_followed(w);
	assert_int_equal(cached_bytes(w, first.lineage), 0);
	assert_int_equal(cached_bytes(w, second.lineage), (FILES - 10) * FILE_B);
	assert_int_equal(kept_lineages(&w->worker, &table_info(old)->id.volume, lineages), 1);
	assert_int_equal(lineages[0], second.lineage);
	read_files(w);
	assert_int_equal(world_origin_gets(w), gets);
	table_unref(old);
	world_free(w);
}

/* A mount of the old lineage reads on after a restart of the worker: what it shows is not taken for
 * the newest, and goes once it is not retained. */
static void test_old_lineage_is_no_news(void **state)
{
	struct world *w = world_new_sized(1 * GiB, 8, FILE_B, 0);
	_cleanup_free_ char *elder_path = strdup(w->table_path);
	struct err e = ERR_INIT;
	struct rpc_call call;
	struct said second;

	(void)state;
	read_files(w);
	w->elder_path = elder_path;
	w->elder = next_table(w, "anew", true);
	second = said_of(w->table);
	read_files(w);
	world_stop_worker(w);
	world_start_worker(w, 1 * GiB);
	read_files(w);
	call = world_make_call(w, FRAME_FETCH, 0, FILE_B, 0);
	call.frame.lineage = table_info(w->elder)->id.lineage;
	assert_int_equal(rpc_call_wait(w->client, &call, &e), 0);
	rpc_call_release(&call);
	world_wait_written(w);
	assert_int_equal(cached_bytes(w, call.frame.lineage), 8 * FILE_B);
	say(w, &second, 1);
	wait_followed(w);
	assert_int_equal(cached_bytes(w, call.frame.lineage), 0);
	assert_int_equal(cached_bytes(w, second.lineage), 8 * FILE_B);
	table_unref(w->elder);
	world_free(w);
}

/* A tier as full as can be: the old chunk makes room for what lived in it. */
static void test_rescued_when_full(void **state)
{
	struct table *old;
	struct world *w = two_generations(&old);
	const struct said second = said_of(w->table);
	uint64_t gets;

	(void)state;
	world_stop_worker(w);
	world_start_worker(w, 64 * MiB);
	(void)world_read_range(w, world_offset_of(w, CHUNK_FILES), FILE_B, 0);
	world_wait_written(w);
	gets = world_origin_gets(w);
	say(w, &second, 1);
	wait_followed(w);
	read_files(w);
	assert_int_equal(world_origin_gets(w), gets);
	table_unref(old);
	world_free(w);
}

/* What the worker said with its last question. */
static struct said_back {
	uint64_t cached, origin, evicted, evicted_bytes, capacity, evicted_paths, paths_bytes;
} said_back(struct world *w)
{
	struct said_back back = { 0 };
	Granary__WorkerReport *m;

	pthread_mutex_lock(&w->lock);
	m = granary__worker_report__unpack(NULL, w->report_len, w->report);
	pthread_mutex_unlock(&w->lock);
	assert_non_null(m);
	back.capacity = m->capacity;
	if (m->n_volumes > 0)
		back = (struct said_back){ m->volumes[0]->cached_bytes, m->volumes[0]->origin_bytes,
			m->volumes[0]->evicted, m->volumes[0]->evicted_bytes, m->capacity,
			m->volumes[0]->evicted_paths, m->volumes[0]->evicted_paths_bytes };
	granary__worker_report__free_unpacked(m, NULL);
	return back;
}

/* The master learns soon after a start what the worker has, and not with its next regular question. */
static void test_reports_new_sources_soon(void **state)
{
	struct world *w = world_new_sized(1 * GiB, 8, FILE_B, 0);
	const struct said first = said_of(w->table);
	uint64_t began;

	(void)state;
	read_files(w);
	say(w, &first, 1);
	began = clock_mono_ns();
	retention_wake(&w->worker); /* once: it learns of the source */
	test_wait(said_back(w).cached == 8 * FILE_B);
	assert_true(clock_mono_ns() - began < 4 * CLOCK_SECOND);
	world_free(w);
}

/* An order is followed once, also over a restart; the next one has a higher number. */
static void test_evicted_by_order(void **state)
{
	struct world *w = world_new_sized(1 * GiB, 8, FILE_B, 0);
	const struct said first = said_of(w->table);
	uint64_t lineage = table_info(w->table)->id.lineage;
	struct said_back back;

	(void)state;
	read_files(w);
	say(w, &first, 1);
	wait_followed(w);
	wait_followed(w);
	back = said_back(w);
	assert_int_equal(back.cached, 8 * FILE_B);
	assert_int_equal(back.origin, 8 * FILE_B);
	assert_int_equal(back.evicted, 0);
	assert_true(back.capacity > 0);
	evict = 3;
	say(w, &first, 1);
	wait_followed(w);
	wait_followed(w);
	assert_int_equal(cached_bytes(w, lineage), 0);
	back = said_back(w);
	assert_int_equal(back.cached, 0);
	assert_int_equal(back.evicted, 3);
	assert_true(back.evicted_bytes >= 8 * FILE_B);
	read_files(w);
	world_stop_worker(w);
	world_start_worker(w, 1 * GiB);
	wait_followed(w);
	assert_int_equal(cached_bytes(w, lineage), 8 * FILE_B);
	evict = 4;
	say(w, &first, 1);
	wait_followed(w);
	assert_int_equal(cached_bytes(w, lineage), 0);
	evict = 0;
	world_free(w);
}

static void say_paths(
	struct world *w, const struct said *said, uint64_t serial, char *path, const char *at)
{
	Granary__EvictPaths order = GRANARY__EVICT_PATHS__INIT;

	order.has_serial = true;
	order.serial = serial;
	order.paths = &path;
	order.n_paths = 1;
	order.at = (char *)(uintptr_t)at;
	evict_some = &order;
	say(w, said, 1);
	evict_some = NULL;
}

/* Until the worker has said that it followed that. */
static struct said_back wait_paths(struct world *w, uint64_t serial)
{
	while (said_back(w).evicted_paths != serial)
		wait_followed(w);
	return said_back(w);
}

static struct said_back follow_paths(
	struct world *w, const struct said *said, uint64_t serial, char *path, const char *at)
{
	say_paths(w, said, serial, path, at);
	return wait_paths(w, serial);
}

static void kept_table_path(struct world *w, char out[512])
{
	const struct generation_id *id = &table_info(w->table)->id;
	char hex[2 * VOLUME_ID_LEN + 1];

	hash_hex(id->volume.bytes, VOLUME_ID_LEN, hex);
	(void)snprintf(out, 512, "%s/seen/%s.%016llx.table", w->tier, hex,
		(unsigned long long)id->lineage);
}

static void damage_kept_table(struct world *w)
{
	char path[512];

	kept_table_path(w, path);
	assert_int_equal(file_write_atomic(path, "no table", 8, 0600), 0);
}

/* Of a chunk that has other objects too only what is meant goes; what stays is not fetched again. */
static void test_evicted_by_path(void **state)
{
	struct world *w = world_new_sized(1 * GiB, FILES, FILE_B, 0);
	const struct said first = said_of(w->table);
	struct said_back back;
	uint64_t gets;

	(void)state;
	read_files(w);
	gets = world_origin_gets(w);
	back = follow_paths(w, &first, 2, (char[]){ "at/file-00[0-7]" }, "at/");
	assert_int_equal(back.evicted_paths, 2);
	assert_int_equal(back.paths_bytes, 8 * FILE_B);
	assert_int_equal(cached_bytes(w, first.lineage), (FILES - 8) * FILE_B);
	for (unsigned int i = 8; i < FILES; i++)
		(void)world_read_range(w, world_offset_of(w, i), FILE_B, 0);
	assert_int_equal(world_origin_gets(w), gets);
	read_files(w);
	assert_int_equal(world_origin_gets(w), gets + 8);
	world_stop_worker(w);
	world_start_worker(w, 1 * GiB);
	(void)world_read_range(w, world_offset_of(w, 8), FILE_B, 0);
	back = follow_paths(w, &first, 2, (char[]){ "at/file-00[0-7]" }, "at/");
	assert_int_equal(back.evicted_paths, 2);
	assert_int_equal(cached_bytes(w, first.lineage), FILES * FILE_B); /* it was followed */
	back = follow_paths(w, &first, 3, (char[]){ "file-*" }, NULL);
	assert_int_equal(back.paths_bytes, FILES * FILE_B);
	assert_int_equal(cached_bytes(w, first.lineage), 0);
	back = follow_paths(w, &first, 4, (char[]){ "file-[" }, NULL);
	assert_int_equal(back.evicted_paths, 4); /* nothing can be meant by that */
	read_files(w);
	damage_kept_table(w);
	back = follow_paths(w, &first, 5, (char[]){ "file-*" }, NULL);
	assert_int_equal(back.evicted_paths, 5); /* nobody will ever know: not again and again */
	assert_int_equal(back.paths_bytes, 0);
	world_free(w);
}

/* While objects are evicted, for which the disk may take its time, the worker tells what it has; what
 * else is to be dropped of the volume waits; the next order is followed after that. */
static void test_reports_while_evicting(void **state)
{
	struct world *w = world_new_sized(1 * GiB, FILES, FILE_B, 0);
	const struct said first = said_of(w->table);
	char table[512];
	char aside[520];
	int fd;

	(void)state;
	read_files(w);
	say(w, &first, 1);
	wait_followed(w);
	wait_followed(w); /* the volume is told of */
	kept_table_path(w, table);
	(void)snprintf(aside, sizeof(aside), "%s.aside", table);
	assert_int_equal(rename(table, aside), 0);
	assert_int_equal(mkfifo(table, 0600), 0); /* who opens it waits */
	say_paths(w, &first, 2, (char[]){ "file-00[0-7]" }, NULL);
	wait_followed(w);
	wait_followed(w); /* it was begun, and hangs there */
	evict = 9;
	say_paths(w, &first, 3, (char[]){ "file-00[0-7]" }, NULL);
	evict = 0;
	wait_followed(w);
	wait_followed(w);
	assert_int_equal(said_back(w).evicted_paths, 0);
	assert_int_equal(said_back(w).evicted, 0);
	assert_int_equal(said_back(w).cached, FILES * FILE_B);
	fd = open(table, O_RDWR | O_CLOEXEC); /* it goes on */
	assert_true(fd >= 0);
	assert_int_equal(rename(aside, table), 0);
	close(fd);
	(void)wait_paths(w, 3);
	wait_followed(w);
	assert_int_equal(said_back(w).evicted, 9);
	assert_int_equal(cached_bytes(w, first.lineage), 0);
	world_free(w);
}

/* The end of the worker does not wait for all of it, and it is gone on with afterwards. */
static void test_stopped_while_evicting(void **state)
{
	struct world *w = world_new_sized(1 * GiB, FILES, FILE_B, 0);
	const struct said first = said_of(w->table);
	struct said_back back;

	(void)state;
	read_files(w);
	say_paths(w, &first, 2, (char[]){ "file-*" }, NULL);
	retention_wake(&w->worker);
	world_stop_worker(w);
	world_start_worker(w, 1 * GiB);
	back = wait_paths(w, 2);
	assert_true(back.paths_bytes <= FILES * FILE_B);
	assert_int_equal(cached_bytes(w, first.lineage), 0);
	world_free(w);
}

/* A master without a slot table that has news each time it is asked for one. */
static void say_news(struct world *w, struct rpc_request *request)
{
	Granary__SlotTable m = GRANARY__SLOT_TABLE__INIT;
	struct net_payload payload = NET_PAYLOAD_NONE;
	uint8_t *packed;

	(void)w;
	if (request->frame.op != FRAME_GET_SLOTS) {
		rpc_reply(request, -EOPNOTSUPP, NULL, NET_PAYLOAD_NONE);
		return;
	}
	packed = malloc(64);
	assert_non_null(packed);
	test_advance(10 * CLOCK_MS); /* or it would be asked without end */
	m.has_news = 1;
	m.news = clock_mono_ns();
	assert_true(granary__slot_table__get_packed_size(&m) <= 64);
	payload.parts[0].data = packed;
	payload.parts[0].len = granary__slot_table__pack(&m, packed);
	payload.n = 1;
	payload.release = free;
	payload.arg = packed;
	rpc_reply(request, 0, NULL, payload);
}

/* A word of the master, and the worker asks: more often than it would by itself. */
static void test_news(void **state)
{
	struct world *w = world_new_sized(1 * GiB, 8, FILE_B, 0);
	unsigned int asked;

	(void)state;
	wait_followed(w);
	atomic_store(&w->cluster, say_news);
	asked = times_asked(w);
	test_wait(times_asked(w) >= asked + 8);
	world_free(w);
}

static int try_read(struct world *w, unsigned int file)
{
	struct rpc_call call =
		world_make_call(w, FRAME_FETCH, world_offset_of(w, file), BLOCK_BYTES, 0);
	struct err e = ERR_INIT;
	int r = rpc_call_wait(w->client, &call, &e);

	rpc_call_release(&call);
	return r;
}

/* A listing that finds nothing new makes no generation, but what was refused is asked for again: it may have been restored. */
static void listed_again(void **state)
{
	struct world *w = world_new_sized(1 * GiB, FILES, FILE_B, 0);
	const struct said said = said_of(w->table);
	char path[160];

	(void)state;
	(void)snprintf(path, sizeof(path), "%s/data/file-%03u", w->dir, 7u);
	assert_int_equal(unlink(path), 0);
	assert_int_equal(try_read(w, 7), -ESTALE);
	for (current_ms = 0; current_ms < 2; current_ms++) {
		say(w, &said, 1); /* not known, and then: for the first time */
		wait_followed(w);
		assert_int_equal(try_read(w, 7), -ESTALE);
	}
	assert_int_equal(world_origin_gets(w), 2);
	say(w, &said, 1);
	wait_followed(w);
	assert_int_equal(try_read(w, 7), -ESTALE);
	assert_int_equal(world_origin_gets(w), 4);
	current_ms = 0;
	world_free(w);
}

/* What reads freed goes back, once, when there were none for a while: not in a short pause. */
static void memory_goes_back(void **state)
{
	struct world *w = world_new_sized(1 * GiB, FILES, FILE_B, 0);
	unsigned int before;

	(void)state;
	test_advance(60 * CLOCK_SECOND);
	wait_followed(w);
	wait_followed(w);
	before = atomic_load(&trims);
	read_files(w);
	for (unsigned int i = 0; i < 3; i++)
		wait_followed(w);
	assert_int_equal(atomic_load(&trims), before);
	for (unsigned int i = 0; i < 5; i++) {
		test_advance(60 * CLOCK_SECOND);
		wait_followed(w);
	}
	assert_int_equal(atomic_load(&trims), before + 1);
	world_free(w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_cleaned_objects_are_copied),
		cmocka_unit_test(test_reader_passes_announced_copies),
		cmocka_unit_test(test_dropped_generation),
		cmocka_unit_test(test_contradictions),
		cmocka_unit_test(test_dropped_without_a_reader),
		cmocka_unit_test(test_new_lineage),
		cmocka_unit_test(test_old_lineage_is_no_news),
		cmocka_unit_test(test_rescued_when_full),
		cmocka_unit_test(test_evicted_by_order),
		cmocka_unit_test(test_evicted_by_path),
		cmocka_unit_test(test_reports_new_sources_soon),
		cmocka_unit_test(test_reports_while_evicting),
		cmocka_unit_test(test_stopped_while_evicting),
		cmocka_unit_test(test_news),
		cmocka_unit_test(memory_goes_back),
		cmocka_unit_test(listed_again),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
