/*
 * The store over RocksDB. Sized for a few thousand small keys: one background job, a small write
 * buffer and cache, two kept log files. Every write is synchronous.
 */
#include "master/store.h"
#include "base/arena.h"
#include "base/cleanup.h"
#include "base/log.h"

#include <rocksdb/c.h>
#include <string.h>
#include <strings.h>

#define CACHE_BYTES          (1u << 20)
#define WRITE_BUFFER_BYTES   (1u << 20)
#define WRITE_BUFFERS        2
#define MANIFEST_PREALLOCATE (64u << 10)
#define MEMORY_BYTES         (CACHE_BYTES + (uint64_t)WRITE_BUFFER_BYTES * WRITE_BUFFERS)

struct store_rocksdb {
	struct store base;
	rocksdb_t *db;
	rocksdb_options_t *options;
	rocksdb_block_based_table_options_t *table;
	rocksdb_cache_t *cache;
	rocksdb_readoptions_t *read;
	rocksdb_writeoptions_t *write;
};

static struct store_rocksdb *of(struct store *store)
{
	return container_of(store, struct store_rocksdb, base);
}

/* RocksDB says everything in a string, which this frees. */
static int translate(char *text, const char *what, struct err *e)
{
	int code = -EIO;

	if (strncmp(text, "Corruption", 10) == 0)
		code = -EBADMSG;
	else if (strcasestr(text, "No space left"))
		code = -ENOSPC;
	else if (strcasestr(text, "lock file") || strcasestr(text, "lock hold by"))
		code = -EBUSY;
	else if (strcasestr(text, "Permission denied"))
		code = -EACCES;
	else if (strcasestr(text, "Read-only file system"))
		code = -EROFS;
	log_debug("store failed", "what=\"%s\" cause=\"%s\"", what, text);
	(void)err_set(e, code, "%s: %s", what, text); /* returns code */
	rocksdb_free(text);
	return code;
}

static int rocks_get(struct store *store, const char *key, struct buf *value)
{
	struct store_rocksdb *s = of(store);
	char *failure = NULL;
	size_t len = 0;
	char *data = rocksdb_get(s->db, s->read, key, strlen(key), &len, &failure);
	int r;

	if (failure)
		return translate(failure, "reading the master's store", NULL);
	if (!data)
		return -ENOENT;
	r = buf_append(value, data, len);
	rocksdb_free(data);
	return r;
}

static int rocks_write(struct store *store, const struct store_change *changes, unsigned int n)
{
	struct store_rocksdb *s = of(store);
	rocksdb_writebatch_t *batch = rocksdb_writebatch_create();
	char *failure = NULL;

	for (unsigned int i = 0; i < n; i++) {
		const struct store_change *c = &changes[i];

		ensure(strlen(c->key) <= STORE_KEY_BYTES && c->len <= STORE_VALUE_BYTES);
		if (c->value)
			rocksdb_writebatch_put(batch, c->key, strlen(c->key), c->value, c->len);
		else
			rocksdb_writebatch_delete(batch, c->key, strlen(c->key));
	}
	rocksdb_write(s->db, s->write, batch, &failure);
	rocksdb_writebatch_destroy(batch);
	return failure ? translate(failure, "writing the master's store", NULL) : 0;
}

static int rocks_scan(struct store *store, const char *prefix, store_visit visit, void *arg)
{
	struct store_rocksdb *s = of(store);
	rocksdb_iterator_t *it = rocksdb_create_iterator(s->db, s->read);
	size_t prefix_len = strlen(prefix);
	char *failure = NULL;
	int r = 0;

	for (rocksdb_iter_seek(it, prefix, prefix_len); r == 0 && rocksdb_iter_valid(it);
		rocksdb_iter_next(it)) {
		char key[STORE_KEY_BYTES + 1];
		size_t key_len;
		size_t len;
		const char *k = rocksdb_iter_key(it, &key_len);
		const char *value;

		if (key_len < prefix_len || memcmp(k, prefix, prefix_len) != 0)
			break;
		if (key_len > STORE_KEY_BYTES) {
			r = -EBADMSG;
			break;
		}
		memcpy(key, k, key_len);
		key[key_len] = '\0';
		value = rocksdb_iter_value(it, &len);
		r = visit(arg, key, value, len);
	}
	rocksdb_iter_get_error(it, &failure);
	rocksdb_iter_destroy(it);
	return failure ? translate(failure, "reading the master's store", NULL) : r;
}

static void rocks_close(struct store *store)
{
	struct store_rocksdb *s = of(store);

	if (s->db)
		rocksdb_close(s->db);
	if (s->write)
		rocksdb_writeoptions_destroy(s->write);
	if (s->read)
		rocksdb_readoptions_destroy(s->read);
	if (s->table)
		rocksdb_block_based_options_destroy(s->table);
	if (s->cache)
		rocksdb_cache_destroy(s->cache);
	if (s->options)
		rocksdb_options_destroy(s->options);
	arena_give(ARENA_INDEX, MEMORY_BYTES);
	free(s);
}

static const struct store_ops rocks_ops = {
	.get = rocks_get,
	.write = rocks_write,
	.scan = rocks_scan,
	.close = rocks_close,
};

static void set_options(struct store_rocksdb *s)
{
	s->options = rocksdb_options_create();
	s->table = rocksdb_block_based_options_create();
	s->cache = rocksdb_cache_create_lru(CACHE_BYTES);
	s->read = rocksdb_readoptions_create();
	s->write = rocksdb_writeoptions_create();
	rocksdb_block_based_options_set_block_cache(s->table, s->cache);
	rocksdb_options_set_block_based_table_factory(s->options, s->table);
	rocksdb_options_set_create_if_missing(s->options, 1);
	rocksdb_options_set_paranoid_checks(s->options, 1);
	rocksdb_options_set_write_buffer_size(s->options, WRITE_BUFFER_BYTES);
	rocksdb_options_set_max_write_buffer_number(s->options, WRITE_BUFFERS);
	rocksdb_options_set_max_open_files(s->options, 64);
	rocksdb_options_set_max_file_opening_threads(s->options, 1); /* else 15 that end at once */
	rocksdb_options_set_max_total_wal_size(s->options, 8u << 20);
	rocksdb_options_set_max_background_jobs(s->options, 1);
	rocksdb_options_set_manifest_preallocation_size(s->options, MANIFEST_PREALLOCATE);
	rocksdb_options_set_keep_log_file_num(s->options, 2);
	rocksdb_options_set_max_log_file_size(s->options, 1u << 20);
	rocksdb_options_set_info_log_level(s->options, 2); /* warnings */
	rocksdb_options_set_compression(s->options, rocksdb_no_compression);
	rocksdb_writeoptions_set_sync(s->write, 1);
}

/* Opening gives the process a thread for flushes. Without it the one for compactions does both. */
static void flush_with_compactions(void)
{
	rocksdb_env_t *env = rocksdb_create_default_env();

	rocksdb_env_set_high_priority_background_threads(env, 0);
	rocksdb_env_destroy(env); /* the default one remains */
}

int store_rocksdb_open(const char *dir, struct store **ret_store, struct err *e)
{
	struct store_rocksdb *s = calloc(1, sizeof(*s));
	char *failure = NULL;
	int r;

	if (!s)
		return err_set(e, -ENOMEM, "out of memory opening %s", dir);
	s->base.ops = &rocks_ops;
	arena_must(ARENA_INDEX, MEMORY_BYTES);
	set_options(s);
	s->db = rocksdb_open(s->options, dir, &failure);
	if (failure) {
		r = translate(failure, dir, e);
		rocks_close(&s->base);
		return r;
	}
	flush_with_compactions();
	*ret_store = &s->base;
	return 0;
}
