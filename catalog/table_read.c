/*
 * Opening an object table and decoding its blocks. Everything in the file is hostile until checked:
 * the header and index at open, a block's hash and every row of it when the block is decoded.
 */
#include "catalog/table_internal.h"
#include "base/arena.h"
#include "base/cleanup.h"
#include "base/file.h"
#include "base/units.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zstd.h>

#define BLOCK_RAW_MAX    (TABLE_BLOCK_BYTES + ROW_ENCODED_MAX)
#define BLOCK_PACKED_MAX ZSTD_COMPRESSBOUND(BLOCK_RAW_MAX)
#define ROW_ENCODED_MIN  6u /* flags, shared, rest, one byte of a key, time, tag */

static int damaged(struct err *e, const char *what)
{
	return err_set(
		e, -EBADMSG, "object table: %s; remove the file and list the source again", what);
}

static int header_check(const struct table_header *h, uint64_t file_bytes, struct err *e)
{
	if (memcmp(h->magic, TABLE_MAGIC_TEXT, sizeof(h->magic)) != 0)
		return damaged(e, "not an object table");
	if (h->version > TABLE_VERSION || h->features & ~TABLE_FEATURES)
		return err_set(e, -EPROTONOSUPPORT,
			"object table: version %u, features %#x: written by a newer release, "
			"upgrade this node",
			h->version, h->features);
	if (h->version == 0 || h->zero0 || h->zero1 || h->zero2)
		return damaged(e, "damaged header");
	if (h->index_offset < sizeof(*h) || h->index_offset > file_bytes ||
		h->index_bytes != file_bytes - h->index_offset)
		return damaged(e, "the file was cut or has grown");
	if (h->rows > ROWS_MAX || h->blocks > h->rows || (h->rows > 0) != (h->blocks > 0) ||
		h->live_files > h->rows || h->dead_rows > h->rows - h->live_files ||
		h->end > VOLUME_MAX_BYTES || h->generation == 0)
		return damaged(e, "header out of range");
	if (h->index_bytes < (uint64_t)h->blocks * (sizeof(struct table_index_entry) + 1) ||
		h->index_bytes >
			(uint64_t)h->blocks * (sizeof(struct table_index_entry) + LIMIT_KEY_BYTES))
		return damaged(e, "index out of range");
	return 0;
}

static int hash_check(const struct table_header *h, const char *index, struct err *e)
{
	struct hash_sha256 *sha = hash_sha256_new();
	uint8_t hash[SHA256_BYTES];

	if (!sha)
		return -ENOMEM;
	hash_sha256_update(sha, h, TABLE_HASHED_BYTES);
	hash_sha256_update(sha, index, h->index_bytes);
	hash_sha256_final(sha, hash);
	return memcmp(hash, h->hash, sizeof(hash)) ? damaged(e, "damaged header or index") : 0;
}

/* One index entry at *p, after `prev` (NULL for the first). */
static int entry_check(const struct table_header *h, const char **p, const char *end,
	const struct table_block_info *prev, struct table_block_info *b)
{
	struct table_index_entry entry;
	uint64_t offset = prev ? prev->offset + prev->packed_bytes : sizeof(*h);

	if (end - *p < (ptrdiff_t)sizeof(entry))
		return -EBADMSG;
	memcpy(&entry, *p, sizeof(entry));
	*p += sizeof(entry);
	if (entry.key_len == 0 || entry.key_len > LIMIT_KEY_BYTES || entry.key_len > end - *p)
		return -EBADMSG;
	memcpy(b->hash, entry.hash, sizeof(b->hash));
	b->offset = entry.offset;
	b->first_ordinal = entry.first_ordinal;
	b->packed_bytes = entry.packed_bytes;
	b->raw_bytes = entry.raw_bytes;
	b->key_len = entry.key_len;
	b->key = *p;
	*p += entry.key_len;
	if (b->offset != offset || b->packed_bytes == 0 || b->packed_bytes > BLOCK_PACKED_MAX ||
		b->packed_bytes > h->index_offset - offset || b->raw_bytes > BLOCK_RAW_MAX)
		return -EBADMSG;
	if (!prev)
		return b->first_ordinal ? -EBADMSG : 0;
	if (b->first_ordinal <= prev->first_ordinal || b->first_ordinal >= h->rows ||
		b->first_ordinal - prev->first_ordinal > prev->raw_bytes / ROW_ENCODED_MIN ||
		key_compare(prev->key, prev->key_len, b->key, b->key_len) > 0)
		return -EBADMSG;
	return 0;
}

static int index_parse(struct table *t, const struct table_header *h, struct err *e)
{
	const char *p = t->index;
	const char *end = t->index + h->index_bytes;
	const struct table_block_info *last = NULL;

	for (uint32_t i = 0; i < h->blocks; i++) {
		if (entry_check(h, &p, end, last, &t->blocks[i]) < 0)
			return damaged(e, "index entry out of range");
		last = &t->blocks[i];
	}
	if (p != end ||
		(last ? last->offset + last->packed_bytes : sizeof(*h)) != h->index_offset ||
		(last && h->rows - last->first_ordinal > last->raw_bytes / ROW_ENCODED_MIN))
		return damaged(e, "index out of range");
	t->n_blocks = h->blocks;
	return 0;
}

static void info_fill(struct table_info *info, const struct table_header *h, uint64_t file_bytes)
{
	memcpy(info->id.volume.bytes, h->volume, sizeof(h->volume));
	info->id.lineage = h->lineage;
	info->id.generation = h->generation;
	memcpy(info->id.hash, h->hash, sizeof(h->hash));
	memcpy(info->id.prev_hash, h->prev_hash, sizeof(h->prev_hash));
	info->rows = h->rows;
	info->live_files = h->live_files;
	info->live_bytes = h->live_bytes;
	info->dead_rows = h->dead_rows;
	info->end = h->end;
	info->table_bytes = file_bytes;
	info->built_at = h->built_at;
}

int table_charge(struct table *t, uint64_t bytes, struct err *e)
{
	if (!arena_take(ARENA_TABLES, BUDGET_DEMAND, bytes))
		return err_set(e, -ENOMEM,
			"no memory for an object table, which takes %llu MiB more: give more "
			"--memory",
			(unsigned long long)(bytes / MiB + 1));
	t->charged += bytes;
	return 0;
}

static int table_load(struct table *t, struct err *e)
{
	struct table_header h;
	struct stat st;
	int r;

	if (fstat(t->fd, &st) != 0)
		return err_errno();
	if (!S_ISREG(st.st_mode) || st.st_size < (off_t)sizeof(h))
		return damaged(e, "not an object table");
	r = file_pread_exact(t->fd, &h, sizeof(h), 0);
	if (r == 0)
		r = header_check(&h, (uint64_t)st.st_size, e);
	if (r < 0)
		return r;
	r = table_charge(t,
		h.index_bytes + (h.blocks + 1ull) * (sizeof(*t->blocks) + sizeof(*t->cached)), e);
	if (r < 0)
		return r;
	t->index = malloc(h.index_bytes + 1); /* at most the file's size */
	t->blocks = calloc(h.blocks + 1u, sizeof(*t->blocks));
	t->cached = calloc(h.blocks + 1u, sizeof(*t->cached));
	if (!t->index || !t->blocks || !t->cached)
		return -ENOMEM;
	r = file_pread_exact(t->fd, t->index, h.index_bytes, h.index_offset);
	if (r == 0)
		r = hash_check(&h, t->index, e);
	if (r == 0)
		r = index_parse(t, &h, e);
	if (r == 0)
		info_fill(&t->info, &h, (uint64_t)st.st_size);
	return r;
}

int table_open(int fd, struct table **ret_table, struct err *e)
{
	struct table *t = calloc(1, sizeof(*t));
	int r;

	if (!t) {
		(void)close(fd); /* nothing was read */
		return err_default(e, -ENOMEM, "object table");
	}
	t->magic = TABLE_MAGIC;
	t->refs = 1;
	t->fd = fd;
	for (uint32_t i = 0; i < TABLE_SHARDS; i++)
		pthread_mutex_init(&t->shards[i].lock, NULL);
	pthread_mutex_init(&t->by_offset_lock, NULL);
	r = table_load(t, e);
	if (r < 0) {
		table_unref(t);
		return err_default(e, r, "object table");
	}
	*ret_table = t;
	return 0;
}

struct table *table_ref(struct table *t)
{
	CHECK_MAGIC(t, TABLE_MAGIC);
	atomic_fetch_add(&t->refs, 1);
	return t;
}

static uint64_t block_bytes(const struct table_block *b)
{
	return sizeof(*b) + b->raw_bytes;
}

/* It was in the cache. */
static void block_uncache(struct table_block *b)
{
	if (!b)
		return;
	arena_give(ARENA_TABLES, block_bytes(b));
	table_block_unref(b);
}

void table_unref(struct table *t)
{
	if (!t)
		return;
	CHECK_MAGIC(t, TABLE_MAGIC);
	if (atomic_fetch_sub(&t->refs, 1) != 1)
		return;
	for (uint32_t i = 0; i < t->n_blocks; i++)
		block_uncache(t->cached[i]);
	for (uint32_t i = 0; i < TABLE_SHARDS; i++)
		pthread_mutex_destroy(&t->shards[i].lock);
	pthread_mutex_destroy(&t->by_offset_lock);
	arena_give(ARENA_TABLES, t->charged);
	free(t->by_offset);
	free(t->cached);
	free(t->blocks);
	free(t->index);
	(void)close(t->fd); /* only read */
	t->magic = 0;
	free(t);
}

int table_dup(const struct table *t)
{
	int fd;

	CHECK_MAGIC(t, TABLE_MAGIC);
	fd = fcntl(t->fd, F_DUPFD_CLOEXEC, 0);
	return fd < 0 ? err_errno() : fd;
}

const struct table_info *table_info(const struct table *t)
{
	CHECK_MAGIC(t, TABLE_MAGIC);
	return &t->info;
}

int table_take_cut(struct table *t, const struct generation_id *of,
	const uint8_t hash[SHA256_BYTES], uint64_t part)
{
	const struct generation_id *id = &t->info.id;

	CHECK_MAGIC(t, TABLE_MAGIC);
	ensure(part && !t->info.part);
	if (!volume_id_equal(&id->volume, &of->volume) || id->lineage != of->lineage ||
		id->generation != of->generation || memcmp(id->hash, hash, SHA256_BYTES) != 0)
		return -EBADMSG;
	t->info.id = *of;
	t->info.part = part;
	return 0;
}

/* ---- blocks ---------------------------------------------------------------------------------- */

void table_block_unref(struct table_block *b)
{
	if (!b || atomic_fetch_sub(&b->refs, 1) != 1)
		return;
	free(b->raw);
	free(b);
}

DEFINE_CLEANUP(struct table_block *, table_block_unref);

static int packed_read(const struct table *t, const struct table_block_info *info, uint8_t *packed)
{
	uint8_t hash[SHA256_BYTES];
	int r = file_pread_exact(t->fd, packed, info->packed_bytes, info->offset);

	if (r < 0)
		return r == -ENODATA ? -EBADMSG : r;
	hash_sha256(packed, info->packed_bytes, hash);
	return memcmp(hash, info->hash, sizeof(hash)) == 0 ? 0 : -EBADMSG;
}

int table_verify(struct table *t)
{
	int r = 0;

	CHECK_MAGIC(t, TABLE_MAGIC);
	for (uint32_t i = 0; i < t->n_blocks && r == 0; i++) {
		_cleanup_free_ uint8_t *packed = malloc(t->blocks[i].packed_bytes);

		r = packed ? packed_read(t, &t->blocks[i], packed) : -ENOMEM;
	}
	return r;
}

static int raw_read(struct table *t, const struct table_block_info *info, uint8_t *raw)
{
	_cleanup_free_ uint8_t *packed = malloc(info->packed_bytes);
	size_t n;
	int r;

	if (!packed)
		return -ENOMEM;
	r = packed_read(t, info, packed);
	if (r < 0)
		return r;
	n = ZSTD_decompress(raw, info->raw_bytes, packed, info->packed_bytes);
	return n == info->raw_bytes ? 0 : -EBADMSG;
}

/* Is `row`, number `i` of its block, a valid successor of the row that `key` and the flags
 * describe? */
static bool row_follows(const char *key, uint32_t key_len, uint32_t flags, uint64_t offset,
	const struct table_row *row)
{
	int c = key_compare(key, key_len, row->key, row->key_len);

	return c < 0 || (c == 0 && table_rows_in_order(flags & ROW_DEAD, offset, row));
}

/* Decodes every row once: finds the restarts and refuses what is out of range or order. */
static int block_check(const struct table *t, struct table_block *b)
{
	const struct table_block_info *info = &t->blocks[b->number];
	const uint8_t *p = b->raw;
	const uint8_t *end = b->raw + b->raw_bytes;
	struct table_row row;
	struct row_base base = { 0 };
	char prev[LIMIT_KEY_BYTES + 1];
	uint32_t prev_len = 0;
	uint32_t prev_flags = 0;
	uint64_t prev_offset = 0;

	for (uint32_t i = 0; i < b->rows; i++) {
		if (i % TABLE_RESTART == 0) {
			b->restarts[i / TABLE_RESTART] = (uint32_t)(p - b->raw);
			row.key_len = 0;
			base = (struct row_base){ 0 };
		}
		if (row_decode(&p, end, &base, &row) < 0)
			return -EBADMSG;
		if ((row_has_bytes(&row) && layout_after(row.offset, row.size) > t->info.end) ||
			row.died > t->info.id.generation)
			return -EBADMSG;
		if (i == 0 ? key_compare(info->key, info->key_len, row.key, row.key_len) != 0
			   : !row_follows(prev, prev_len, prev_flags, prev_offset, &row))
			return -EBADMSG;
		memcpy(prev, row.key, row.key_len);
		prev_len = row.key_len;
		prev_flags = row.flags;
		prev_offset = row.offset;
	}
	if (p != end || prev_len == 0)
		return -EBADMSG;
	if (b->number + 1 < t->n_blocks &&
		key_compare(prev, prev_len, info[1].key, info[1].key_len) > 0)
		return -EBADMSG;
	return 0;
}

static int block_load(struct table *t, uint32_t number, struct table_block **ret_block)
{
	_cleanup_(table_block_unref_p) struct table_block *b = NULL;
	const struct table_block_info *info = &t->blocks[number];
	uint32_t rows = table_block_rows(t, number);
	int r;

	b = calloc(1,
		sizeof(*b) + ((rows + TABLE_RESTART - 1) / TABLE_RESTART) * sizeof(b->restarts[0]));
	if (!b)
		return -ENOMEM;
	b->refs = 1;
	b->number = number;
	b->rows = rows;
	b->raw_bytes = info->raw_bytes;
	b->raw = malloc(info->raw_bytes + 1u);
	if (!b->raw)
		return -ENOMEM;
	r = raw_read(t, info, b->raw);
	if (r == 0)
		r = block_check(t, b);
	if (r < 0)
		return r;
	*ret_block = TAKE(b);
	return 0;
}

/* Takes one block out of a full shard: the first not used since the hand last passed (CLOCK). */
static struct table_block *shard_evict_locked(struct table *t, uint32_t s)
{
	struct table_shard *shard = &t->shards[s];

	for (;;) {
		uint32_t number = shard->hand * TABLE_SHARDS + s;
		struct table_block *b;

		if (number >= t->n_blocks) {
			shard->hand = 0;
			continue;
		}
		shard->hand++;
		b = t->cached[number];
		if (!b)
			continue;
		if (b->used) {
			b->used = false;
			continue;
		}
		t->cached[number] = NULL;
		shard->cached--;
		return b;
	}
}

/*
 * Puts a block into the cache in place of another when the shard is full or the arena has no room;
 * without either it is only for its caller. Returns what was pushed out.
 */
static struct table_block *block_cache_locked(
	struct table *t, struct table_shard *shard, struct table_block *b)
{
	struct table_block *evicted = NULL;
	bool room = shard->cached < TABLE_CACHED_BLOCKS / TABLE_SHARDS &&
		    arena_take(ARENA_TABLES, BUDGET_FILL, block_bytes(b));

	if (!room && shard->cached > 0) {
		evicted = shard_evict_locked(t, b->number % TABLE_SHARDS);
		arena_give(ARENA_TABLES, block_bytes(evicted));
		room = arena_take(ARENA_TABLES, BUDGET_FILL, block_bytes(b));
	}
	if (room) {
		atomic_fetch_add(&b->refs, 1);
		t->cached[b->number] = b;
		shard->cached++;
	}
	return evicted;
}

int table_block_get(struct table *t, uint32_t number, struct table_block **ret_block)
{
	struct table_shard *shard = &t->shards[number % TABLE_SHARDS];
	struct table_block *evicted = NULL;
	struct table_block *b;
	int r;

	pthread_mutex_lock(&shard->lock);
	b = t->cached[number];
	if (b) {
		b->used = true;
		atomic_fetch_add(&b->refs, 1);
	}
	pthread_mutex_unlock(&shard->lock);
	if (b) {
		*ret_block = b;
		return 0;
	}
	r = block_load(t, number, &b); /* two threads may both: cheaper than waiting */
	if (r < 0)
		return r;
	pthread_mutex_lock(&shard->lock);
	if (!t->cached[number])
		evicted = block_cache_locked(t, shard, b);
	pthread_mutex_unlock(&shard->lock);
	table_block_unref(evicted);
	*ret_block = b;
	return 0;
}
