/*
 * What a tier holds, found at start, and an index built anew.
 *
 *	index rows ──► chunks; each one's file must be there
 *	files in chk/ ──► a file without a row is adopted by its head (a kill between file and row,
 *	                  or a lost index)
 *	files in ext/ ──► the same, place by place
 *	tables     ──► presence bits, by a few threads; not read when the row says complete under
 *	               this boot
 *
 * A chunk written under this boot is trusted, any other is UNVERIFIED. Only files that can never
 * be read again are removed: without a valid head, or a second file of the same chunk.
 */
#include "tiers/tier_set_internal.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/crash_point.h"
#include "base/hash.h"
#include "base/pool.h"
#include "base/units.h"
#include "tiers/disk.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define LOAD_THREADS 4u
#define FREE_FLOOR   (2 * GiB)
#define BOOT_UNKNOWN 0u /* boots count from 1 */

struct recovery {
	struct tier_set *set;
	struct tier *tier;
	struct chunk **chunks; /* of this tier; borrowed from the map */
	int *results;          /* of loading each, while it is done */
	size_t n;
	size_t cap;
	pthread_mutex_t lock; /* of the chunks, and of adding some, while threads look at files */
	size_t sorted;        /* chunks the index knew, by file */
	_Atomic size_t next;  /* chunk to load, or directory to look at */
	_Atomic int error;
};

static struct chunk *find(struct recovery *rec, const struct chunk_id *id)
{
	uint64_t hash = set_hash(id);

	return set_find_locked(set_shard(rec->set, hash), id, hash);
}

/* Adds a chunk in state CREATING, with the extent that it joined or NULL. The set is not shared
 * yet, so no lock is needed. */
static int add(struct recovery *rec, const struct index_row *row, struct extent *extent)
{
	uint64_t hash = set_hash(&row->id);
	struct chunk *chunk;

	if (rec->n == rec->cap) {
		size_t cap = rec->cap ? rec->cap * 2 : 256;
		struct chunk **chunks = reallocarray(rec->chunks, cap, sizeof(struct chunk *));

		if (!chunks)
			return -ENOMEM;
		rec->chunks = chunks;
		rec->cap = cap;
	}
	chunk = chunk_new(rec->set, rec->tier, &row->id);
	if (!chunk)
		return -ENOMEM;
	chunk->file = row->file;
	chunk->boot = row->boot;
	chunk->class = row->class;
	chunk->kept_class = row->class;
	if (extent)
		chunk_set_extent(chunk, extent);
	if (row->complete)
		chunk_set_state_locked(chunk, CHUNK_COMPLETE);
	set_insert_locked(set_shard(rec->set, hash), chunk, hash);
	rec->chunks[rec->n++] = chunk;
	return 0;
}

/* A chunk that another tier holds too: this one's file is a second copy; the scan removes it. */
static int add_row(void *arg, const struct index_row *row)
{
	struct recovery *rec = arg;
	struct extent *extent = NULL;
	int r;

	if (find(rec, &row->id))
		return tier_index_remove(rec->tier, &row->id);
	if (row->extent) {
		extent = extents_join_file(rec->set, rec->tier, row->file, &row->id);
		if (!extent)
			return tier_index_remove(rec->tier, &row->id);
	}
	r = add(rec, row, extent);
	if (r < 0 && extent)
		extent_leave_found(extent);
	return r;
}

static void forget(struct recovery *rec, struct chunk *chunk)
{
	map_remove(&set_shard(rec->set, chunk->node.hash)->map, &chunk->node);
	if (chunk->extent)
		extent_leave_found(chunk->extent);
	chunk_unref(chunk);
}

/* ---- the files ------------------------------------------------------------------------------- */

static int by_file(const void *a, const void *b)
{
	uint64_t x = (*(struct chunk *const *)a)->file;
	uint64_t y = (*(struct chunk *const *)b)->file;

	return (x > y) - (x < y);
}

/* Whether a row names the file; the first `sorted` chunks are in order of their files. */
static bool known_locked(const struct recovery *rec, uint64_t file)
{
	size_t low = 0;
	size_t high = rec->sorted;

	while (low < high) {
		size_t middle = low + (high - low) / 2;
		uint64_t there = rec->chunks[middle]->file;

		if (there == file)
			return true;
		if (there < file)
			low = middle + 1;
		else
			high = middle;
	}
	return false;
}

static bool known(struct recovery *rec, uint64_t file)
{
	bool there;

	pthread_mutex_lock(&rec->lock);
	there = known_locked(rec, file);
	pthread_mutex_unlock(&rec->lock);
	return there;
}

/* The chunk of a file without a row; -EEXIST when another file is that chunk's. */
static int adopt_chunk(struct recovery *rec, const struct index_row *row)
{
	int r = -EEXIST;

	pthread_mutex_lock(&rec->lock);
	if (!find(rec, &row->id)) {
		(void)tier_index_put(rec->tier, row); /* the tier knows when it failed */
		CRASH_POINT("chunk.found");
		r = add(rec, row, NULL);
	}
	pthread_mutex_unlock(&rec->lock);
	return r;
}

/* A file without a row. */
static int adopt(struct recovery *rec, uint64_t file)
{
	_cleanup_free_ uint8_t *table = malloc(CHUNK_TABLE_BYTES);
	struct index_row row = { .file = file, .boot = BOOT_UNKNOWN };
	char path[FILE_NAME_BYTES];
	struct chunk_head head;
	uint64_t allocated;
	int r;

	if (!table)
		return -ENOMEM;
	r = chunk_file_read_meta(rec->tier->chk_fd, file, &head, table, &allocated);
	if (r != 0 && r != -EBADMSG && r != -ENODATA)
		return r == -ENOMEM ? r : 0; /* not ours to judge; it stays */
	if (r == 0 && head.file_id == file) {
		row.id = head.id;
		r = adopt_chunk(rec, &row);
		if (r != -EEXIST)
			return r;
	}
	file_id_path(file, path);
	(void)disk_unlink(rec->tier->chk_fd, path, 0); /* or at the next start */
	return 0;
}

static int scan_file(void *arg, int dir, const char *name)
{
	struct recovery *rec = arg;
	uint64_t file;

	(void)dir;
	if (file_id_parse(name, &file) < 0 || known(rec, file))
		return 0;
	return adopt(rec, file);
}

static int scan_directory(struct recovery *rec, const char *name)
{
	const int flags = O_RDONLY | O_DIRECTORY | O_NOFOLLOW;
	_cleanup_disk_close_ int fd = disk_open(rec->tier->chk_fd, name, flags, 0);

	if (fd < 0)
		return fd == -ENOENT ? 0 : fd;
	return disk_list(fd, scan_file, rec);
}

struct worker {
	struct pool_job job;
	struct recovery *rec;
};

/* Lets a few threads run until rec->next is past the end; the last error that one left. */
static int run_workers(struct recovery *rec, void (*run)(struct pool_job *job), size_t first)
{
	struct worker workers[LOAD_THREADS];
	struct pool *pool = pool_new("tier-load", LOAD_THREADS, LOAD_THREADS);
	int r = pool ? 0 : -ENOMEM;

	atomic_store(&rec->next, first);
	for (uint32_t i = 0; r == 0 && i < LOAD_THREADS; i++) {
		workers[i] = (struct worker){ .job.run = run, .rec = rec };
		r = pool_submit(pool, &workers[i].job);
	}
	pool_free(pool); /* waits for all */
	return r < 0 ? r : atomic_load(&rec->error);
}

static void scan_run(struct pool_job *job)
{
	struct recovery *rec = container_of(job, struct worker, job)->rec;

	for (;;) {
		size_t i = atomic_fetch_add(&rec->next, 1);
		uint8_t spread = (uint8_t)i;
		char name[3];
		int r;

		if (i >= 256 || atomic_load(&rec->error))
			return;
		hash_hex(&spread, 1, name);
		r = scan_directory(rec, name);
		if (r < 0)
			atomic_store(&rec->error, r);
	}
}

static int scan_files(struct recovery *rec)
{
	rec->sorted = rec->n;
	if (rec->sorted)
		qsort(rec->chunks, rec->sorted, sizeof(struct chunk *), by_file);
	return run_workers(rec, scan_run, 0);
}

/* ---- extents --------------------------------------------------------------------------------- */

/* A place of an extent that no row names. */
static int adopt_place(struct recovery *rec, struct extent *extent, const struct chunk_id *id)
{
	const struct chunk_place place = extent_place(extent->bytes, id->chunk);
	struct index_row row = {
		.id = *id, .file = extent->file, .boot = BOOT_UNKNOWN, .extent = true
	};
	int r = extent_has_head(extent, id, &place);

	if (r <= 0)
		return r;
	ensure(extents_join_file(rec->set, rec->tier, extent->file, id) == extent);
	(void)tier_index_put(rec->tier, &row); /* the tier knows when it failed */
	r = add(rec, &row, extent);
	if (r < 0)
		extent_leave_found(extent);
	return r;
}

static int scan_extent(void *arg, struct extent *extent)
{
	struct recovery *rec = arg;
	uint64_t n = extent->bytes / CHUNK_BYTES;
	int pinned = extent_pin(extent);
	int r = pinned;

	for (uint64_t i = 0; r == 0 && i < n; i++) {
		struct chunk_id id = { .volume = extent->volume,
			.lineage = extent->lineage,
			.chunk = extent->number * n + i };

		if (!find(rec, &id))
			r = adopt_place(rec, extent, &id);
	}
	if (pinned == 0)
		extent_unpin(extent);
	extent->scanned = r == 0;
	/* What cannot be read now stays for the next start. */
	return r == -ENOMEM || r == -EMFILE || r == -ENFILE ? r : 0;
}

/* ---- the tables ------------------------------------------------------------------------------ */

/* In an extent, whose size the scan looked at. */
static void load_complete_in_extent(struct chunk *chunk)
{
	uint64_t all[CHUNK_WORDS];

	memset(all, 0xff, sizeof(all));
	chunk_bits_load(chunk, all, true);
	chunk_charge_found(chunk);
}

/* The file of a row that says complete, under this boot: only its size is looked at. */
static int load_complete(struct chunk *chunk)
{
	uint64_t all[CHUNK_WORDS];
	char path[FILE_NAME_BYTES];
	struct stat st;
	int r;

	if (chunk->extent) {
		load_complete_in_extent(chunk);
		return 0;
	}
	file_id_path(chunk->file, path);
	r = disk_stat(chunk->tier->chk_fd, path, &st);
	if (r < 0)
		return r;
	if (st.st_size != CHUNK_FILE_BYTES)
		return -EBADMSG;
	memset(all, 0xff, sizeof(all));
	chunk_bits_load(chunk, all, true);
	chunk_settle(chunk, 0, (uint64_t)st.st_blocks * 512);
	return 0;
}

static int read_meta(struct chunk *chunk, uint8_t *table, uint64_t *ret_allocated)
{
	struct chunk_head head = { 0 };
	int r;

	if (chunk->extent) {
		r = extent_pin(chunk->extent);
		if (r < 0)
			return r;
		r = chunk_file_read_meta_at(chunk_fds(chunk), &chunk->place, &head, table);
		extent_unpin(chunk->extent);
	} else {
		r = chunk_file_read_meta(
			chunk->tier->chk_fd, chunk->file, &head, table, ret_allocated);
	}
	return r == 0 && !chunk_id_equal(&head.id, &chunk->id) ? -EBADMSG : r;
}

static int load_table(struct chunk *chunk, uint8_t *table)
{
	uint64_t present[CHUNK_WORDS];
	uint64_t allocated = 0;
	int r = read_meta(chunk, table, &allocated);

	if (r < 0)
		return r;
	chunk_table_scan(table, present);
	chunk_bits_load(chunk, present, chunk->boot == chunk->tier->identity.boot);
	if (chunk->extent)
		chunk_charge_found(chunk);
	else
		chunk_settle(chunk, 0, allocated);
	return 0;
}

/* Sets the state that the bits mean. A chunk that cannot be read stays CREATING and is dropped. */
static int load(struct chunk *chunk, uint8_t *table)
{
	bool was_complete = chunk_state(chunk) == CHUNK_COMPLETE;
	bool complete;
	int r;

	if (was_complete && chunk->boot == chunk->tier->identity.boot)
		return load_complete(chunk);
	r = load_table(chunk, table);
	if (r < 0)
		return r;
	complete = chunk->present_blocks == CHUNK_BLOCKS;
	pthread_mutex_lock(&chunk->lock);
	if (complete != was_complete || !was_complete)
		chunk_set_state_locked(chunk, complete ? CHUNK_COMPLETE : CHUNK_FILLING);
	pthread_mutex_unlock(&chunk->lock);
	return 0;
}

static void load_run(struct pool_job *job)
{
	struct recovery *rec = container_of(job, struct worker, job)->rec;
	_cleanup_free_ uint8_t *table = malloc(CHUNK_TABLE_BYTES);

	for (;;) {
		size_t i = atomic_fetch_add(&rec->next, 1);
		int r;

		if (i >= rec->n)
			return;
		r = table ? tier_io(rec->tier, load(rec->chunks[i], table), clock_mono_ns())
			  : -ENOMEM;
		if (r == -ENOMEM || r == -EMFILE || r == -ENFILE)
			atomic_store(&rec->error, r);
		rec->results[i] = r; /* this thread's own slot */
	}
}

/*
 * A chunk whose file is lost or damaged goes, file and row. One that cannot be read now is not
 * served, but stays on disk for the next start.
 */
static void lose(struct recovery *rec, struct chunk *chunk, int why)
{
	if (why == -ENOENT || why == -ENODATA || why == -EBADMSG) {
		/* What fails is tried again at the next start. */
		(void)tier_index_remove(rec->tier, &chunk->id);
		CRASH_POINT("chunk.lost");
		chunk_unlink_file(chunk);
	}
	forget(rec, chunk);
}

/* Takes out what could not be loaded. */
static void sift(struct recovery *rec, size_t first)
{
	size_t n = first;

	for (size_t i = first; i < rec->n; i++) {
		if (rec->results[i] < 0) {
			lose(rec, rec->chunks[i], rec->results[i]);
			continue;
		}
		if (rec->chunks[i]->extent)
			chunk_count_complete(rec->chunks[i]);
		rec->chunks[n++] = rec->chunks[i];
	}
	rec->n = n;
}

/* Loads chunks from `first` on; those that cannot be are taken out. */
static int load_from(struct recovery *rec, size_t first)
{
	int r = -ENOMEM;

	rec->results = calloc(rec->n, sizeof(*rec->results));
	if (rec->results)
		r = run_workers(rec, load_run, first);
	if (r == 0)
		sift(rec, first);
	free(TAKE(rec->results));
	return r;
}

/* Rows first, so that a file whose chunk's row names a lost one is adopted and not removed. */
static int recover(struct recovery *rec, struct err *e)
{
	struct tier *tier = rec->tier;
	size_t rows;
	int r = extents_scan(rec->set, tier);

	if (r < 0)
		return r;
	r = tier->index ? tier->index->ops->each(tier->index, add_row, rec) : 0;
	if (r < 0 && r != -ENOMEM) {
		while (rec->n)
			forget(rec, rec->chunks[--rec->n]);
		r = tier_index_recreate(tier, e);
	}
	if (r == 0 && rec->n)
		r = load_from(rec, 0);
	rows = rec->n;
	if (r == 0)
		r = scan_files(rec);
	if (r == 0)
		r = extents_each(rec->set, tier, scan_extent, rec);
	if (r == 0 && rec->n > rows)
		r = load_from(rec, rows);
	if (r == 0)
		extents_sweep(rec->set, tier); /* and counts what of the others is dead */
	return r;
}

uint64_t tier_default_capacity(uint64_t room)
{
	return room - max(room / 10, min(FREE_FLOOR, room / 4));
}

static int default_capacity(struct tier *tier, struct err *e)
{
	uint64_t used = atomic_load(&tier->used);
	char have[16];
	struct statvfs fs;
	int r = disk_statvfs(tier->dir_fd, &fs);

	if (r < 0)
		return r;
	tier->capacity = tier_default_capacity(used + (uint64_t)fs.f_bavail * fs.f_frsize);
	if (tier->capacity < TIER_CAPACITY_MIN)
		return err_set(e, -ENOSPC,
			"%s: the filesystem has only %s for the cache; free some or give another "
			"directory",
			tier->path, units_size(tier->capacity, have, sizeof(have)));
	return 0;
}

int recover_tier(struct tier_set *set, struct tier *tier, struct err *e)
{
	struct recovery rec = { .set = set, .tier = tier };
	int r;

	pthread_mutex_init(&rec.lock, NULL);
	r = recover(&rec, e);
	pthread_mutex_destroy(&rec.lock);
	free(rec.chunks);
	tier_index_charge(tier);
	counter_add(&set->counters.adopted, atomic_load(&tier->chunks));
	if (r == 0 && tier->capacity == 0)
		r = default_capacity(tier, e);
	if (r < 0)
		return err_default(e, r, tier->path);
	tier_refresh_space(tier, true);
	return 0;
}

/* ---- a tier that is out ---------------------------------------------------------------------- */

struct chunk_refs {
	const struct tier *tier;
	struct chunk **chunks;
	size_t n;
};

static void collect(struct map_node *node, void *arg)
{
	struct chunk *chunk = container_of(node, struct chunk, node);
	struct chunk_refs *refs = arg;

	if (chunk->tier == refs->tier && chunk_is_live(chunk))
		refs->chunks[refs->n++] = chunk_ref(chunk);
}

/* Writes the rows of all chunks that are in memory. */
static int put_all(struct tier_set *set, struct tier *tier)
{
	int r = 0;

	for (uint32_t i = 0; r == 0 && i < SET_SHARDS; i++) {
		struct shard *shard = &set->shards[i];
		struct chunk_refs refs = { .tier = tier };

		pthread_mutex_lock(&shard->lock);
		refs.chunks = calloc(shard->map.count + 1, sizeof(struct chunk *));
		if (refs.chunks)
			map_each(&shard->map, collect, &refs);
		pthread_mutex_unlock(&shard->lock);
		if (!refs.chunks)
			return -ENOMEM;
		for (size_t c = 0; c < refs.n; c++) {
			struct index_row row = chunk_row(refs.chunks[c]);

			if (r == 0)
				r = tier_index_put(tier, &row);
			chunk_unref(refs.chunks[c]);
		}
		free(refs.chunks);
	}
	return r;
}

void recover_probe(struct tier_set *set, struct tier *tier)
{
	if (tier_probe(tier) < 0)
		return;
	if (atomic_load(&tier->unnamed)) {
		if (identity_store(tier->path, &tier->identity) < 0)
			return;
		atomic_store(&tier->unnamed, false);
	}
	if (atomic_load(&tier->index_failed)) {
		if (tier_index_recreate(tier, NULL) < 0 || put_all(set, tier) < 0)
			return; /* the next probe tries again */
		atomic_store(&tier->index_failed, false);
	}
	health_recovered(&tier->health);
}
