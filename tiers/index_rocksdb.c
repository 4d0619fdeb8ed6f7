/*
 * The index in RocksDB. A row is 48 bytes and a chunk 16 MiB, so everything is made small: 2 MiB of
 * write buffers, 1 MiB of cache, 4 MiB of log, 32 descriptors, no compression.
 */
#include "tiers/index_internal.h"
#include "base/arena.h"
#include "base/cleanup.h"
#include "tiers/disk.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <rocksdb/c.h>

#define WRITE_BUFFER_BYTES   (1u << 20)
#define WRITE_BUFFERS        2
#define WAL_BYTES            (4u << 20)
#define CACHE_BYTES          (1u << 20)
#define OPEN_FILES           32
#define MEMORY_BYTES         (CACHE_BYTES + (uint64_t)WRITE_BUFFER_BYTES * WRITE_BUFFERS)
#define LOG_FILES            1u
#define LOG_LEVEL_FATAL      4
#define OPEN_FREE_BYTES      (8ull << 20)
#define MANIFEST_BYTES       (1u << 20)
#define MANIFEST_PREALLOCATE (64u << 10)

struct index_rocksdb {
	struct index base;
	rocksdb_t *db;
	rocksdb_options_t *options;
	rocksdb_block_based_table_options_t *table;
	rocksdb_cache_t *cache;
	rocksdb_readoptions_t *read;
	rocksdb_writeoptions_t *write;
};

/* The errno of a RocksDB message, which is freed. */
static int take_error(char *message, struct err *e, const char *what)
{
	int r = -EIO;

	if (!message)
		return 0;
	if (strncmp(message, "Corruption", strlen("Corruption")) == 0) /* "block checksum", too */
		r = -EBADMSG;
	else if (strstr(message, "lock file") || strstr(message, "lock hold by"))
		r = -EBUSY;
	else if (strstr(message, "No space"))
		r = -ENOSPC;
	(void)err_set(e, r, "%s: %s", what, message);
	rocksdb_free(message);
	return r;
}

static struct index_rocksdb *self(struct index *index)
{
	return container_of(index, struct index_rocksdb, base);
}

static int rocksdb_index_put(struct index *index, const struct index_row *row)
{
	struct index_rocksdb *x = self(index);
	uint8_t key[INDEX_KEY_BYTES];
	uint8_t value[INDEX_VALUE_BYTES];
	char *message = NULL;

	index_key_encode(&row->id, key);
	index_value_encode(row, value);
	rocksdb_put(
		x->db, x->write, (char *)key, sizeof(key), (char *)value, sizeof(value), &message);
	return take_error(message, NULL, "index");
}

static int rocksdb_index_remove(struct index *index, const struct chunk_id *id)
{
	struct index_rocksdb *x = self(index);
	uint8_t key[INDEX_KEY_BYTES];
	char *message = NULL;

	index_key_encode(id, key);
	rocksdb_delete(x->db, x->write, (char *)key, sizeof(key), &message);
	return take_error(message, NULL, "index");
}

static int rocksdb_index_each(
	struct index *index, int (*fn)(void *arg, const struct index_row *row), void *arg)
{
	struct index_rocksdb *x = self(index);
	rocksdb_iterator_t *it = rocksdb_create_iterator(x->db, x->read);
	char *message = NULL;
	int r = 0;

	for (rocksdb_iter_seek_to_first(it); r == 0 && rocksdb_iter_valid(it);
		rocksdb_iter_next(it)) {
		size_t key_len;
		size_t value_len;
		const char *key = rocksdb_iter_key(it, &key_len);
		const char *value = rocksdb_iter_value(it, &value_len);
		struct index_row row;

		r = index_row_decode(key, key_len, value, value_len, &row);
		if (r == 0)
			r = fn(arg, &row);
	}
	if (r == 0) {
		rocksdb_iter_get_error(it, &message);
		r = take_error(message, NULL, "index");
	}
	rocksdb_iter_destroy(it);
	return r;
}

static void rocksdb_index_close(struct index *index)
{
	struct index_rocksdb *x = self(index);

	if (x->db)
		rocksdb_close(x->db);
	if (x->write)
		rocksdb_writeoptions_destroy(x->write);
	if (x->read)
		rocksdb_readoptions_destroy(x->read);
	if (x->options)
		rocksdb_options_destroy(x->options);
	if (x->table)
		rocksdb_block_based_options_destroy(x->table);
	if (x->cache)
		rocksdb_cache_destroy(x->cache);
	arena_give(ARENA_INDEX, MEMORY_BYTES);
	free(x);
}

static const struct index_ops rocksdb_index_ops = {
	.put = rocksdb_index_put,
	.remove = rocksdb_index_remove,
	.each = rocksdb_index_each,
	.close = rocksdb_index_close,
};

static void set_options(struct index_rocksdb *x)
{
	x->cache = rocksdb_cache_create_lru(CACHE_BYTES);
	x->table = rocksdb_block_based_options_create();
	rocksdb_block_based_options_set_block_cache(x->table, x->cache);
	rocksdb_block_based_options_set_cache_index_and_filter_blocks(x->table, 1);

	x->options = rocksdb_options_create();
	rocksdb_options_set_create_if_missing(x->options, 1);
	rocksdb_options_set_paranoid_checks(x->options, 1);
	rocksdb_options_set_block_based_table_factory(x->options, x->table);
	rocksdb_options_set_compression(x->options, rocksdb_no_compression);
	rocksdb_options_set_write_buffer_size(x->options, WRITE_BUFFER_BYTES);
	rocksdb_options_set_max_write_buffer_number(x->options, WRITE_BUFFERS);
	rocksdb_options_set_db_write_buffer_size(
		x->options, (size_t)WRITE_BUFFER_BYTES * WRITE_BUFFERS);
	rocksdb_options_set_max_total_wal_size(x->options, WAL_BYTES);
	rocksdb_options_set_max_open_files(x->options, OPEN_FILES);
	rocksdb_options_set_max_file_opening_threads(x->options, 1); /* else 15 that end at once */
	/* The text log stays empty but for its head: what matters comes back as errors, and
	 * Debian's build aborts the process when it writes to a log that failed for want of
	 * room. */
	rocksdb_options_set_info_log_level(x->options, LOG_LEVEL_FATAL);
	rocksdb_options_set_keep_log_file_num(x->options, LOG_FILES);
	rocksdb_options_set_max_manifest_file_size(x->options, MANIFEST_BYTES);
	rocksdb_options_set_manifest_preallocation_size(x->options, MANIFEST_PREALLOCATE);
	rocksdb_options_set_stats_dump_period_sec(x->options, 0);
	rocksdb_options_set_stats_persist_period_sec(x->options, 0);
}

/* Opening writes: without room it would abort, see set_options(). */
static bool has_room(const char *path)
{
	_cleanup_free_ char *parent = strdup(path);
	char *slash = parent ? strrchr(parent, '/') : NULL;
	_cleanup_disk_close_ int fd = -1;
	struct statvfs fs;

	if (!slash)
		return true;
	*slash = '\0';
	fd = disk_open(AT_FDCWD, parent, O_RDONLY | O_DIRECTORY, 0);
	if (fd < 0 || disk_statvfs(fd, &fs) < 0)
		return true; /* opening tells why */
	return (uint64_t)fs.f_bavail * fs.f_frsize >= OPEN_FREE_BYTES;
}

int index_rocksdb_open(const char *path, struct index **ret_index, struct err *e)
{
	struct index_rocksdb *x;
	char *message = NULL;
	int r;

	if (!has_room(path))
		return err_set(e, -ENOSPC, "%s: the filesystem is full; free some", path);
	x = calloc(1, sizeof(*x));
	if (!x)
		return err_set(e, -ENOMEM, "%s: no memory", path);
	x->base.ops = &rocksdb_index_ops;
	arena_must(ARENA_INDEX, MEMORY_BYTES); /* few: one for each tier */
	set_options(x);
	x->read = rocksdb_readoptions_create();
	x->write = rocksdb_writeoptions_create();
	x->db = rocksdb_open(x->options, path, &message);
	r = take_error(message, e, path);
	if (r < 0) {
		rocksdb_index_close(&x->base);
		return r;
	}
	*ret_index = &x->base;
	return 0;
}
