/* Reads by the worker's chunk map: chunks never asked for, what goes from the map, a worker that
 * starts again or lies, and what a hit costs. */
#include "client/client_internal.h"
#include "client/client_local.h"
#include "client/client_op.h"
#include "tests/unit/client/fixture.h"
#include "tests/clock/test_clock.h"

#include <dlfcn.h>

/* ---- what a hit costs ------------------------------------------------------------------------ */

/* Calls of this thread while it counts. */
static _Thread_local bool counting;
static _Thread_local uint32_t allocations;
static _Thread_local uint32_t locks;

/* Allocation and locking, seen from outside: these stand before the library's. */
#define REAL(name, type) ((type)dlsym(RTLD_NEXT, name))

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define COUNTS_CALLS 1
extern void *__libc_malloc(size_t size);
extern void *__libc_calloc(size_t n, size_t size);
extern void *__libc_realloc(void *p, size_t size);
void *malloc(size_t size);
void *calloc(size_t n, size_t size);
void *realloc(void *p, size_t size);

void *malloc(size_t size)
{
	allocations += counting;
	return __libc_malloc(size);
}

void *calloc(size_t n, size_t size)
{
	allocations += counting;
	return __libc_calloc(n, size);
}

void *realloc(void *p, size_t size)
{
	allocations += counting;
	return __libc_realloc(p, size);
}

int pthread_mutex_lock(pthread_mutex_t *lock)
{
	static int (*_Atomic real)(pthread_mutex_t *);
	int (*call)(pthread_mutex_t *) = atomic_load(&real);

	locks += counting;
	if (!call) {
		call = REAL("pthread_mutex_lock", int (*)(pthread_mutex_t *));
		atomic_store(&real, call);
	}
	return call(lock);
}
#else
#define COUNTS_CALLS 0
#endif

/* ---- the map --------------------------------------------------------------------------------- */

static struct chunk_map_row row_of(struct fix *f, uint32_t chunk)
{
	return (struct chunk_map_row){
		.id = { f->volume_id, f->lineage, chunk },
		.file = fix_file_id(f, chunk),
		.extent = f->in_extent ? FIX_EXTENT : 0,
	};
}

/* Everything of the chunk is clean, but [offset, offset + length) when length is not 0. */
static void publish_without(struct fix *f, uint32_t chunk, uint64_t offset, uint64_t length)
{
	struct chunk_map_row row = row_of(f, chunk);
	uint64_t bits[CHUNK_MAP_WORDS] = { 0 };
	uint8_t bytes[CHUNK_BITMAP_BYTES] = { 0 };

	fix_each_piece(f, (uint64_t)chunk * CHUNK_BYTES, CHUNK_BYTES, fix_mark, bytes);
	for (uint64_t b = offset % CHUNK_BYTES / BLOCK_BYTES; length; b++, length -= BLOCK_BYTES)
		bytes[b / 8] &= (uint8_t) ~(1u << b % 8);
	for (uint32_t i = 0; i < CHUNK_BITMAP_BYTES; i++)
		bits[i / 8] |= (uint64_t)bytes[i] << i % 8 * 8;
	pthread_mutex_lock(&f->lock);
	assert_true(chunk_map_put(f->writer, &row, bits));
	pthread_mutex_unlock(&f->lock);
}

static void publish(struct fix *f, uint32_t chunk)
{
	publish_without(f, chunk, 0, 0);
}

static void remove_chunk(struct fix *f, uint32_t chunk)
{
	struct chunk_map_row row = row_of(f, chunk);

	pthread_mutex_lock(&f->lock);
	chunk_map_remove(f->writer, &row.id);
	pthread_mutex_unlock(&f->lock);
}

static void new_writer(struct fix *f)
{
	struct chunk_map_writer *old;
	struct chunk_map_writer *writer;

	assert_int_equal(chunk_map_writer_new(CHUNK_MAP_SLOTS_MIN, &writer), 0);
	pthread_mutex_lock(&f->lock);
	old = f->writer;
	f->writer = writer;
	pthread_mutex_unlock(&f->lock);
	chunk_map_writer_free(old);
}

/* Until the client has the worker's map. */
static void wait_for_map(struct fix *f)
{
	test_wait(client_chunks_map_start(f->client->chunks) == chunk_map_writer_start(f->writer));
}

static uint32_t asked(struct fix *f)
{
	return fix_count(f, FRAME_FETCH) + fix_count(f, FRAME_FILE) + fix_count(f, FRAME_PREFETCH);
}

/* A piece in each of three chunks. */
static uint64_t place_in(const struct fix *f, uint32_t chunk)
{
	const struct fix_object *large = fix_object(f, "b/large");

	if (chunk == 0)
		return fix_object(f, "a/small-10")->offset;
	assert_true(chunk == 1 || chunk == 2);
	return align_up(large->offset, CHUNK_BYTES) + (chunk - 1) * (uint64_t)CHUNK_BYTES;
}

static int setup(void **state)
{
	struct fix *f = fix_new(NULL);

	*state = f;
	new_writer(f);
	return fix_start_client(f, (struct client_config){ 0 });
}

static int setup_extent(void **state)
{
	int r = setup(state);

	((struct fix *)*state)->in_extent = true;
	return r;
}

static int teardown(void **state)
{
	struct fix *f = *state;
	struct chunk_map_writer *writer = f->writer;
	int r = fix_teardown(state);

	chunk_map_writer_free(writer);
	return r;
}

/* ---- hits ------------------------------------------------------------------------------------ */

/* One descriptor serves every chunk of the extent: no chunk but the first is asked for. */
static void test_never_asked(void **state)
{
	struct fix *f = *state;

	for (uint32_t chunk = 0; chunk < 3; chunk++)
		publish(f, chunk);
	fix_read(f, f->end - BLOCK_BYTES, BLOCK_BYTES); /* the map comes along */
	wait_for_map(f);
	for (uint32_t chunk = 0; chunk < 3; chunk++) {
		assert_true(client_local_present(f->volume, place_in(f, chunk), MiB));
		assert_int_equal(fix_read_local(f, place_in(f, chunk), MiB), 0);
	}
	assert_int_equal(asked(f), 1);
	assert_true(fix_counter(f, "mapped") >= 2);
	assert_int_equal(fix_counter(f, "mismatches"), 0);
	assert_int_equal(f->maps, 1);
}

/* Chunks in files of their own: FILE, once each, and never FETCH. */
static void test_files(void **state)
{
	struct fix *f = *state;

	publish(f, 0);
	publish(f, 1);
	fix_read(f, f->end - BLOCK_BYTES, BLOCK_BYTES);
	wait_for_map(f);
	assert_int_equal(fix_count(f, FRAME_FETCH), 1);
	for (uint32_t chunk = 0; chunk < 2; chunk++) {
		assert_int_equal(fix_read_local(f, place_in(f, chunk), PIECE_BYTES), -EAGAIN);
		fix_read(f, place_in(f, chunk), PIECE_BYTES);
		assert_int_equal(fix_count(f, FRAME_FILE), chunk + 1);
		/* More of it came meanwhile than that answer said. */
		assert_int_equal(fix_read_local(f, place_in(f, chunk) + MiB / 2, MiB / 2), 0);
	}
	assert_int_equal(fix_count(f, FRAME_FETCH), 1);
	/* Not in the map. */
	fix_read(f, place_in(f, 2), PIECE_BYTES);
	assert_int_equal(fix_count(f, FRAME_FETCH), 2);
	assert_int_equal(fix_count(f, FRAME_FILE), 2);
}

static void test_file_refused(void **state)
{
	struct fix *f = *state;

	publish(f, 0);
	fix_read(f, f->end - BLOCK_BYTES, BLOCK_BYTES);
	wait_for_map(f);
	f->file_fails = -ENODATA;
	fix_read(f, place_in(f, 0), PIECE_BYTES);
	assert_int_equal(fix_count(f, FRAME_FILE), 1);
	assert_int_equal(fix_count(f, FRAME_FETCH), 2);
	assert_int_equal(fix_counter(f, "retries"), 0);
	assert_int_equal(fix_read_local(f, place_in(f, 0), PIECE_BYTES), 0);
}

static void test_cost_of_a_hit(void **state)
{
	struct fix *f = *state;
	uint8_t *buf = aligned_alloc(BLOCK_BYTES, MiB);
	void *volatile p;
	uint32_t before;

	publish(f, 0);
	publish(f, 1);
	fix_read(f, f->end - BLOCK_BYTES, BLOCK_BYTES);
	wait_for_map(f);
	fix_read(f, place_in(f, 0), PIECE_BYTES);
	for (uint32_t chunk = 0; chunk < 2; chunk++) /* first touch */
		assert_int_equal(fix_read_local(f, place_in(f, chunk), MiB), 0);
	before = asked(f);
	/* The counts themselves count. */
	counting = true;
	pthread_mutex_lock(&f->lock);
	p = malloc(1);
	free(p);
	pthread_mutex_unlock(&f->lock);
	counting = false;
	assert_int_equal(locks, COUNTS_CALLS);
	assert_int_equal(allocations, COUNTS_CALLS);
	locks = 0;
	allocations = 0;
	counting = true;
	for (uint32_t i = 0; i < 1000; i++)
		if (client_read_local(f->volume,
			    place_in(f, i % 2) + i % 16 * (uint64_t)PIECE_BYTES, PIECE_BYTES,
			    buf) < 0)
			break;
	counting = false;
	assert_int_equal(fix_counter(f, "local_reads"), 1002);
	assert_int_equal(locks, 0);
	assert_int_equal(allocations, 0);
	assert_int_equal(asked(f), before);
	free(buf);
}

/* What the worker is told of reads by the map. */
static void test_told(void **state)
{
	static uint8_t entries[HELD_ENTRIES_MAX * HELD_ENTRY_BYTES];
	struct fix *f = *state;
	struct chunk_map_row row;
	struct chunk_id id = row_of(f, 1).id;
	struct view_peer *owner;
	struct chunk_map *map;
	uint64_t blocks = 0;
	uint64_t seq;
	uint32_t slot;
	uint32_t n;
	int fd;

	publish(f, 1);
	fix_read(f, f->end - BLOCK_BYTES, BLOCK_BYTES);
	wait_for_map(f);
	/* Nothing else reports from here on. */
	loop_call(f->client->loop, client_fetch_stop, f->client);
	(void)client_chunks_report(f->client->chunks, entries, &n);
	assert_int_equal(fix_read_local(f, place_in(f, 1), PIECE_BYTES), 0);
	assert_int_equal(fix_read_local(f, place_in(f, 1), BLOCK_BYTES), 0);
	owner = client_chunks_report(f->client->chunks, entries, &n);
	assert_non_null(owner);
	assert_int_equal(chunk_map_writer_fd(f->writer, &fd), 0);
	assert_int_equal(chunk_map_open(fd, &map), 0);
	slot = chunk_map_find(map, &id, &row, &seq);
	for (uint32_t i = 0; i < n; i++) {
		uint64_t entry = held_get(entries, i);

		if (held_is_slot(entry) && held_slot(entry) == slot)
			blocks += held_blocks(entry);
	}
	assert_int_equal(blocks, PIECE_BYTES / BLOCK_BYTES + 1);
	chunk_map_close(map);
	close(fd);
}

/* ---- what goes ------------------------------------------------------------------------------- */

/* A piece that the worker dropped is not served, though it was verified here; others are. */
static void test_dropped_piece(void **state)
{
	struct fix *f = *state;
	uint64_t at = place_in(f, 0);

	publish(f, 0);
	fix_read(f, f->end - BLOCK_BYTES, BLOCK_BYTES);
	wait_for_map(f);
	fix_read(f, at, PIECE_BYTES);
	assert_int_equal(fix_read_local(f, at, MiB), 0);
	assert_int_equal(fix_counter(f, "verified"), 17); /* and the volume's end */
	publish_without(f, 0, at + PIECE_BYTES, PIECE_BYTES);
	assert_int_equal(fix_read_local(f, at + PIECE_BYTES, BLOCK_BYTES), -EAGAIN);
	assert_int_equal(fix_read_local(f, at, MiB), -EAGAIN);
	assert_int_equal(fix_read_local(f, at, PIECE_BYTES), 0);
	assert_int_equal(fix_read_local(f, at + 2 * PIECE_BYTES, MiB - 2 * PIECE_BYTES), 0);
	assert_int_equal(fix_counter(f, "verified"), 17);
	/* Repaired: it is checked again, once. */
	publish(f, 0);
	assert_int_equal(fix_read_local(f, at, MiB), 0);
	assert_int_equal(fix_counter(f, "verified"), 18);
	assert_int_equal(fix_count(f, FRAME_FETCH), 1);
}

/* A reader has read the piece, and says that it matched after another saw that it was dropped. */
static void test_dropped_under_check(void **state)
{
	struct fix *f = *state;
	struct client_chunks *chunks = f->client->chunks;
	uint64_t at = place_in(f, 0);
	struct chunk_id id = client_volume_chunk(f->volume, at);
	uint32_t block = (uint32_t)(at % CHUNK_BYTES / BLOCK_BYTES);
	const uint32_t blocks = PIECE_BYTES / BLOCK_BYTES;
	struct client_chunk *slow;
	uint64_t seq;

	publish(f, 0);
	fix_read(f, f->end - BLOCK_BYTES, BLOCK_BYTES);
	wait_for_map(f);
	fix_read(f, at, PIECE_BYTES);
	slow = client_chunks_get(chunks, &id);
	assert_non_null(slow);
	assert_true(slow->slot != CHUNK_MAP_NONE);
	seq = atomic_load(&slow->seq);
	client_chunk_verified(slow, seq, block + blocks, blocks);
	assert_true(client_bits_all(&slow->verified, block + blocks, blocks));
	publish_without(f, 0, at, PIECE_BYTES);
	assert_int_equal(fix_read_local(f, at, PIECE_BYTES), -EAGAIN);
	client_chunk_verified(slow, seq, block, blocks);
	assert_false(client_bits_any(&slow->verified, block, blocks));
	assert_true(client_bits_all(&slow->verified, block + blocks, blocks));
	client_chunk_unref(slow);
}

static void test_evicted(void **state)
{
	struct fix *f = *state;
	uint64_t at = place_in(f, 0);

	publish(f, 0);
	fix_read(f, f->end - BLOCK_BYTES, BLOCK_BYTES);
	wait_for_map(f);
	fix_read(f, at, PIECE_BYTES);
	assert_int_equal(client_chunks_files(f->client->chunks), 2);
	remove_chunk(f, 0);
	assert_int_equal(fix_read_local(f, at, PIECE_BYTES), -EAGAIN);
	assert_int_equal(client_chunks_files(f->client->chunks), 1);
	/* It came back in another file. */
	assert_int_equal(unlink(fix_chunk_path(f, 0)), 0);
	f->file_version[0]++;
	publish(f, 0);
	assert_int_equal(fix_read_local(f, at, PIECE_BYTES), -EAGAIN);
	fix_read(f, at, PIECE_BYTES);
	assert_int_equal(fix_count(f, FRAME_FILE), 2);
	/* Moved, without a moment in which it was not there. */
	f->file_version[0]++;
	publish(f, 0);
	assert_int_equal(fix_read_local(f, at, PIECE_BYTES), -EAGAIN);
	fix_read(f, at, PIECE_BYTES);
	assert_int_equal(fix_count(f, FRAME_FILE), 3);
	assert_int_equal(fix_count(f, FRAME_FETCH), 1);
}

/* What is gone is closed though nobody reads it; what moved, too; the rest stays. */
static void test_sweep(void **state)
{
	struct fix *f = *state;

	publish(f, 0);
	publish(f, 1);
	fix_read(f, f->end - BLOCK_BYTES, BLOCK_BYTES);
	wait_for_map(f);
	fix_read(f, place_in(f, 0), PIECE_BYTES);
	fix_read(f, place_in(f, 1), PIECE_BYTES);
	loop_call(f->client->loop, client_fetch_stop, f->client); /* we say when */
	assert_int_equal(client_chunks_files(f->client->chunks), 3);
	client_chunks_sweep(f->client->chunks);
	publish_without(f, 0, place_in(f, 0), PIECE_BYTES); /* less of it, in its place */
	client_chunks_sweep(f->client->chunks);
	assert_int_equal(client_chunks_files(f->client->chunks), 3);
	remove_chunk(f, 0);
	client_chunks_sweep(f->client->chunks);
	assert_int_equal(client_chunks_files(f->client->chunks), 2);
	f->file_version[1]++;
	publish(f, 1);
	client_chunks_sweep(f->client->chunks);
	assert_int_equal(client_chunks_files(f->client->chunks), 1);
	assert_int_equal(fix_counter(f, "retries"), 0);
}

/* What another start of the worker does not have is closed, though nobody reads it. */
static void test_sweep_new_start(void **state)
{
	struct fix *f = *state;

	publish(f, 0);
	publish(f, 1);
	fix_read(f, f->end - BLOCK_BYTES, BLOCK_BYTES);
	wait_for_map(f);
	fix_read(f, place_in(f, 0), PIECE_BYTES);
	fix_read(f, place_in(f, 1), PIECE_BYTES);
	assert_int_equal(client_chunks_files(f->client->chunks), 3);
	new_writer(f);
	publish(f, 1);
	wait_for_map(f);
	loop_call(f->client->loop, client_fetch_stop, f->client);
	client_chunks_sweep(f->client->chunks);
	assert_int_equal(client_chunks_files(f->client->chunks), 2);
	assert_int_equal(fix_read_local(f, place_in(f, 1), PIECE_BYTES), 0);
	assert_int_equal(client_chunks_files(f->client->chunks), 2);
}

static void test_tier_away(void **state)
{
	struct fix *f = *state;
	uint64_t at = place_in(f, 0);

	publish(f, 0);
	fix_read(f, f->end - BLOCK_BYTES, BLOCK_BYTES);
	wait_for_map(f);
	fix_read(f, at, PIECE_BYTES);
	chunk_map_set_away(f->writer, 1);
	assert_int_equal(fix_read_local(f, at, PIECE_BYTES), -EAGAIN);
	assert_false(client_local_present(f->volume, at, PIECE_BYTES));
	chunk_map_set_away(f->writer, 2); /* another */
	assert_int_equal(fix_read_local(f, at, PIECE_BYTES), 0);
	assert_int_equal(fix_counter(f, "verified"), 2);
}

/* A worker that started again: what is known of its files stays. */
static void test_new_start(void **state)
{
	struct fix *f = *state;
	uint64_t at = place_in(f, 0);
	uint64_t verified;

	publish(f, 0);
	fix_read(f, f->end - BLOCK_BYTES, BLOCK_BYTES);
	wait_for_map(f);
	fix_read(f, at, MiB);
	verified = fix_counter(f, "verified");
	new_writer(f);
	publish_without(f, 0, at + PIECE_BYTES, PIECE_BYTES);
	/* It hears of that with what it tells of its files. */
	wait_for_map(f);
	assert_int_equal(f->maps, 2);
	assert_int_equal(fix_read_local(f, at, PIECE_BYTES), 0);
	assert_int_equal(fix_read_local(f, at + PIECE_BYTES, BLOCK_BYTES), -EAGAIN);
	assert_int_equal(fix_counter(f, "verified"), verified);
	publish(f, 0);
	assert_int_equal(fix_read_local(f, at, MiB), 0);
	assert_int_equal(fix_counter(f, "verified"), verified + 1);
	assert_int_equal(fix_count(f, FRAME_FILE), 1);
}

/* The map says things that are not so: the file is another chunk's, or none of such an extent. */
static void test_lies(void **state)
{
	struct fix *f = *state;
	uint64_t bits[CHUNK_MAP_WORDS];
	struct chunk_map_row row;

	publish(f, 0);
	fix_read(f, f->end - BLOCK_BYTES, BLOCK_BYTES);
	wait_for_map(f);
	fix_read(f, place_in(f, 0), PIECE_BYTES); /* its file is open now */
	memset(bits, 0xff, sizeof(bits));
	for (uint32_t i = 0; i < 4; i++) {
		static const uint64_t extents[] = { 0, FIX_EXTENT, 12345, 1ull << 63 };

		row = row_of(f, 1);
		row.file = fix_file_id(f, 0);
		row.extent = extents[i];
		assert_true(chunk_map_put(f->writer, &row, bits));
		assert_int_equal(fix_read_local(f, place_in(f, 1), PIECE_BYTES), -EAGAIN);
	}
	fix_read(f, place_in(f, 1), PIECE_BYTES);
	/* Pieces that are not there: their entries are not, either. */
	row = row_of(f, 0);
	assert_int_equal(truncate(fix_chunk_path(f, 0), 0), 0);
	assert_int_equal(truncate(fix_chunk_path(f, 0), CHUNK_FILE_BYTES), 0);
	assert_true(chunk_map_put(f->writer, &row, bits));
	assert_int_equal(fix_read_local(f, place_in(f, 0) + PIECE_BYTES, PIECE_BYTES), -EAGAIN);
	assert_true(fix_counter(f, "mismatches") >= 1);
}

/* ---- many threads ---------------------------------------------------------------------------- */

static void *reader(void *arg)
{
	struct fix *f = arg;
	uint64_t seed = clock_mono_ns();

	for (int i = 0; i < 150; i++) {
		uint64_t offset = fix_mix(seed++) % (f->end / BLOCK_BYTES) * BLOCK_BYTES;
		uint32_t length = (uint32_t)(fix_mix(seed++) % 64 + 1) * BLOCK_BYTES;

		if (fix_read_local(f, offset, length) == -EAGAIN)
			fix_read(f, offset, length);
	}
	return NULL;
}

static void test_many_threads(void **state)
{
	struct fix *f = *state;
	pthread_t threads[4];

	for (size_t i = 0; i < ARRAY_SIZE(threads); i++)
		assert_int_equal(pthread_create(&threads[i], NULL, reader, f), 0);
	for (uint32_t i = 0; i < 400; i++) {
		uint32_t chunk = i % 3;

		if (i % 50 == 49)
			new_writer(f);
		if (i % 7 == 0)
			remove_chunk(f, chunk);
		else
			publish_without(f, chunk, place_in(f, chunk), i % 3 * PIECE_BYTES);
		test_advance(CLOCK_MS / 4);
	}
	for (size_t i = 0; i < ARRAY_SIZE(threads); i++)
		pthread_join(threads[i], NULL);
	assert_int_equal(fix_counter(f, "mismatches"), 0);
	assert_int_equal(fix_counter(f, "failed_reads"), 0);
}

#define CASE(fn)        cmocka_unit_test_setup_teardown(fn, setup, teardown)
#define EXTENT_CASE(fn) cmocka_unit_test_setup_teardown(fn, setup_extent, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		EXTENT_CASE(test_never_asked),
		CASE(test_files),
		CASE(test_file_refused),
		EXTENT_CASE(test_cost_of_a_hit),
		EXTENT_CASE(test_told),
		CASE(test_dropped_piece),
		CASE(test_dropped_under_check),
		CASE(test_evicted),
		CASE(test_sweep),
		CASE(test_sweep_new_start),
		CASE(test_tier_away),
		CASE(test_new_start),
		CASE(test_lies),
		CASE(test_many_threads),
		EXTENT_CASE(test_many_threads),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
