/* Chunks on this node. See client_chunk.h. */
#include "client/client_chunk.h"
#include "base/arena.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/file.h"
#include "base/hash.h"
#include "proto/held.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/stat.h>

#define TABLE_PAGES (CHUNK_TABLE_BYTES / BLOCK_BYTES)
/* Past it a worker learns of a closed descriptor when the connection ends. */
#define RELEASED_MAX 8192u

/* Entries read so far. An entry never changes in a file, so each value is stored once; a reader
 * that finds no length does not look at the rest. */
struct client_piece_table {
	_Atomic bool begun; /* read from once */
	_Atomic uint64_t xxh3[CHUNK_BLOCKS];
	_Atomic uint32_t length[CHUNK_BLOCKS];
};

/* An open file, shared by the chunks of an extent. */
struct client_file {
	struct map_node node; /* in client_chunks.files */
	struct client_chunks *chunks;
	uint32_t refs; /* under the cache's lock */
	int fd;
	dev_t dev;
	ino_t ino;
};

/* A descriptor that was closed. */
struct released {
	struct client_owner *owner;
	uint64_t number;
};

struct client_chunks {
	pthread_mutex_t lock;
	struct map map;
	struct map files;
	struct list clock; /* second chance: oldest first, used ones go round once more */
	struct released released[RELEASED_MAX]; /* holds that no worker was told of yet */
	uint32_t n_released;
	uint32_t count;
	uint32_t max;
};

static uint64_t id_hash(const struct chunk_id *id)
{
	return hash_xxh3(id, sizeof(*id), 0);
}

struct client_chunks *client_chunks_new(uint32_t max)
{
	struct client_chunks *chunks = calloc(1, sizeof(*chunks));

	ensure(max >= 1);
	if (!chunks)
		return NULL;
	if (map_init(&chunks->map, max) < 0 || map_init(&chunks->files, max) < 0) {
		map_release(&chunks->map);
		free(chunks);
		return NULL;
	}
	pthread_mutex_init(&chunks->lock, NULL);
	list_init(&chunks->clock);
	chunks->max = max;
	return chunks;
}

/* ---- files ----------------------------------------------------------------------------------- */

static uint64_t file_hash(const struct stat *st)
{
	const uint64_t key[2] = { st->st_dev, st->st_ino };

	return hash_xxh3(key, sizeof(key), 0);
}

/* The file of that inode with a reference more, or NULL. An inode number is not reused while we
 * hold it open. */
static struct client_file *file_find_locked(struct client_chunks *chunks, const struct stat *st)
{
	struct map_node *node = map_first(&chunks->files, file_hash(st));

	for (; node; node = map_next_same(node)) {
		struct client_file *file = container_of(node, struct client_file, node);

		if (file->dev == st->st_dev && file->ino == st->st_ino) {
			file->refs++;
			return file;
		}
	}
	return NULL;
}

/* The file that `fd` is open on; `fd` is taken on success, closed when it was known already. */
static struct client_file *file_get(struct client_chunks *chunks, int fd, const struct stat *st)
{
	struct client_file *fresh = calloc(1, sizeof(*fresh));
	struct client_file *file;

	if (!fresh)
		return NULL;
	*fresh = (struct client_file){
		.chunks = chunks, .refs = 1, .fd = fd, .dev = st->st_dev, .ino = st->st_ino
	};
	pthread_mutex_lock(&chunks->lock);
	file = file_find_locked(chunks, st);
	if (!file)
		map_insert(&chunks->files, &fresh->node, file_hash(st));
	pthread_mutex_unlock(&chunks->lock);
	if (!file)
		return fresh;
	(void)close(fd); /* only ever read from */
	free(fresh);
	return file;
}

static void file_unref(struct client_file *file)
{
	struct client_chunks *chunks = file->chunks;
	bool last;

	pthread_mutex_lock(&chunks->lock);
	last = --file->refs == 0;
	if (last)
		map_remove(&chunks->files, &file->node);
	pthread_mutex_unlock(&chunks->lock);
	if (!last)
		return;
	(void)close(file->fd); /* only ever read from */
	free(file);
}

/* ---- chunks ---------------------------------------------------------------------------------- */

/* The file's reference becomes the chunk's. */
static void add_released_locked(
	struct client_chunks *chunks, struct client_owner *owner, uint64_t number)
{
	if (owner && number && chunks->n_released < RELEASED_MAX)
		chunks->released[chunks->n_released++] =
			(struct released){ .owner = owner, .number = number };
}

/* The last reference is gone. */
static void release_hold(struct client_chunk *chunk)
{
	struct client_chunks *chunks = chunk->file->chunks;

	if (!chunk->hold)
		return;
	pthread_mutex_lock(&chunks->lock);
	add_released_locked(chunks, chunk->owner, chunk->hold);
	pthread_mutex_unlock(&chunks->lock);
}

void client_chunk_held(struct client_chunks *chunks, struct client_chunk *chunk,
	struct client_owner *owner, uint64_t number)
{
	pthread_mutex_lock(&chunks->lock);
	if (chunk->owner == owner) {
		chunk->hold = max(chunk->hold, number); /* answers may overtake each other */
	} else {
		add_released_locked(chunks, chunk->owner, chunk->hold);
		chunk->owner = owner;
		chunk->hold = number;
	}
	pthread_mutex_unlock(&chunks->lock);
}

/* Those of one worker; the others stay for the next report. */
static uint32_t report_released_locked(
	struct client_chunks *chunks, struct client_owner *owner, uint8_t *out)
{
	uint32_t left = 0;
	uint32_t n = 0;

	for (uint32_t i = 0; i < chunks->n_released; i++) {
		const struct released *r = &chunks->released[i];

		if (r->owner == owner && n < HELD_ENTRIES_MAX)
			held_put(out, n++, held_entry(r->number, false));
		else
			chunks->released[left++] = *r;
	}
	chunks->n_released = left;
	return n;
}

struct client_owner *client_chunks_report(
	struct client_chunks *chunks, uint8_t *out, uint32_t *ret_n)
{
	struct client_owner *owner = NULL;
	uint32_t n = 0;

	pthread_mutex_lock(&chunks->lock);
	if (chunks->n_released)
		owner = chunks->released[0].owner;
	list_for_each (node, &chunks->clock) {
		if (!owner)
			owner = list_entry(node, struct client_chunk, link)->owner;
	}
	if (owner)
		n = report_released_locked(chunks, owner, out);
	list_for_each (node, &chunks->clock) {
		struct client_chunk *chunk = list_entry(node, struct client_chunk, link);

		if (n == HELD_ENTRIES_MAX)
			break;
		if (chunk->owner != owner || !chunk->touched || !chunk->hold)
			continue;
		chunk->touched = false;
		held_put(out, n++, held_entry(chunk->hold, true));
	}
	pthread_mutex_unlock(&chunks->lock);
	*ret_n = n;
	return owner;
}

static struct client_chunk *chunk_new(
	const struct chunk_id *id, struct client_file *file, const struct chunk_place *place)
{
	struct client_chunk *chunk = calloc(1, sizeof(*chunk));

	if (!chunk)
		return NULL;
	arena_must(ARENA_PIECES, sizeof(*chunk)); /* the cache bounds how many */
	chunk->magic = CLIENT_CHUNK_MAGIC;
	atomic_init(&chunk->refs, 1);
	chunk->id = *id;
	chunk->file = file;
	chunk->fd = file->fd;
	chunk->place = *place;
	atomic_init(&chunk->verified_ns, clock_mono_ns());
	list_init(&chunk->link);
	return chunk;
}

static void table_free(struct client_piece_table *table)
{
	if (!table)
		return;
	arena_give(ARENA_PIECES, sizeof(*table));
	free(table);
}

void client_chunk_unref(struct client_chunk *chunk)
{
	if (!chunk)
		return;
	CHECK_MAGIC(chunk, CLIENT_CHUNK_MAGIC);
	if (atomic_fetch_sub_explicit(&chunk->refs, 1, memory_order_acq_rel) != 1)
		return;
	release_hold(chunk);
	chunk->magic = 0;
	table_free(atomic_load_explicit(&chunk->table, memory_order_acquire));
	file_unref(chunk->file);
	arena_give(ARENA_PIECES, sizeof(*chunk));
	free(chunk);
}

static struct client_chunk *find_locked(struct client_chunks *chunks, const struct chunk_id *id)
{
	struct map_node *node = map_first(&chunks->map, id_hash(id));

	for (; node; node = map_next_same(node)) {
		struct client_chunk *chunk = container_of(node, struct client_chunk, node);

		if (chunk_id_equal(&chunk->id, id))
			return chunk;
	}
	return NULL;
}

/* The cache's reference becomes the caller's. */
static void remove_locked(struct client_chunks *chunks, struct client_chunk *chunk)
{
	map_remove(&chunks->map, &chunk->node);
	list_remove(&chunk->link);
	chunk->cached = false;
	chunks->count--;
}

/* The chunk to give up, unlinked, with the cache's reference; NULL while there is room. */
static struct client_chunk *evict_locked(struct client_chunks *chunks)
{
	if (chunks->count < chunks->max)
		return NULL;
	for (;;) {
		struct client_chunk *chunk =
			list_entry(chunks->clock.next, struct client_chunk, link);

		if (!chunk->used) {
			remove_locked(chunks, chunk);
			return chunk;
		}
		chunk->used = false;
		list_remove(&chunk->link);
		list_push_back(&chunks->clock, &chunk->link);
	}
}

void client_chunks_free(struct client_chunks *chunks)
{
	struct list *node;

	if (!chunks)
		return;
	while ((node = chunks->clock.next) != &chunks->clock) {
		struct client_chunk *chunk = list_entry(node, struct client_chunk, link);

		remove_locked(chunks, chunk);
		client_chunk_unref(chunk);
	}
	ensure(chunks->files.count == 0);
	map_release(&chunks->files);
	map_release(&chunks->map);
	pthread_mutex_destroy(&chunks->lock);
	free(chunks);
}

struct client_chunk *client_chunks_get(struct client_chunks *chunks, const struct chunk_id *id)
{
	struct client_chunk *chunk;

	pthread_mutex_lock(&chunks->lock);
	chunk = find_locked(chunks, id);
	if (chunk) {
		chunk->used = true;
		chunk->touched = true;
		atomic_fetch_add_explicit(&chunk->refs, 1, memory_order_relaxed);
	}
	pthread_mutex_unlock(&chunks->lock);
	return chunk;
}

/*
 * Where the chunk lies in the file. Nothing that the worker says is a place by itself: it follows
 * from the chunk's number and the length that the file really has.
 */
static int find_place(const struct chunk_id *id, uint64_t extent_bytes, const struct stat *st,
	struct chunk_place *ret_place)
{
	if (!S_ISREG(st->st_mode))
		return -EBADMSG;
	if (extent_bytes == 0) {
		if (st->st_size < (off_t)CHUNK_FILE_BYTES)
			return -EBADMSG;
		*ret_place = CHUNK_PLACE_OWN;
		return 0;
	}
	if (!extent_bytes_valid(extent_bytes) ||
		(uint64_t)st->st_size != extent_file_bytes(extent_bytes))
		return -EBADMSG;
	*ret_place = extent_place(extent_bytes, id->chunk);
	return 0;
}

static int check_head(int fd, const struct chunk_id *id, const struct chunk_place *place)
{
	_Alignas(BLOCK_BYTES) uint8_t block[CHUNK_HEAD_BYTES];
	struct chunk_head head = { 0 };
	int r = file_pread_exact(fd, block, sizeof(block), place->head);

	if (r == 0)
		r = chunk_head_decode(block, &head);
	if (r < 0)
		return r;
	return chunk_id_equal(&head.id, id) ? 0 : -EBADMSG;
}

/* What was found damaged stays absent until the worker was told, whatever its bitmap says. */
static void set_present(struct client_chunk *chunk, const uint8_t bitmap[CHUNK_BITMAP_BYTES])
{
	for (uint32_t w = 0; w < CLIENT_BITS_WORDS; w++) {
		uint64_t bits = 0;

		for (uint32_t i = 0; i < 8; i++)
			bits |= (uint64_t)bitmap[w * 8 + i] << i * 8;
		bits &= ~atomic_load_explicit(&chunk->damaged.words[w], memory_order_acquire);
		atomic_fetch_and_explicit(&chunk->verified.words[w], bits, memory_order_acq_rel);
		atomic_store_explicit(&chunk->present.words[w], bits, memory_order_release);
	}
}

/* The chunk in the cache when it lies in this very file, with a reference. */
static struct client_chunk *same_file(struct client_chunks *chunks, const struct chunk_id *id,
	const struct stat *st, const struct chunk_place *place)
{
	struct client_chunk *chunk = client_chunks_get(chunks, id);

	if (chunk && chunk->file->dev == st->st_dev && chunk->file->ino == st->st_ino &&
		chunk->place.head == place->head)
		return chunk;
	client_chunk_unref(chunk);
	return NULL;
}

static void insert(struct client_chunks *chunks, struct client_chunk *chunk)
{
	struct client_chunk *old;
	struct client_chunk *evicted;

	atomic_fetch_add_explicit(&chunk->refs, 1, memory_order_relaxed); /* the cache's */
	chunk->cached = true;
	pthread_mutex_lock(&chunks->lock);
	old = find_locked(chunks, &chunk->id);
	if (old)
		remove_locked(chunks, old);
	evicted = evict_locked(chunks); /* before the newcomer, which nobody has used yet */
	map_insert(&chunks->map, &chunk->node, id_hash(&chunk->id));
	list_push_back(&chunks->clock, &chunk->link);
	chunks->count++;
	pthread_mutex_unlock(&chunks->lock);
	client_chunk_unref(old); /* may close: not under the lock */
	client_chunk_unref(evicted);
}

/* A chunk that is not known, or was in another file. `fd` is taken, also on failure. */
static int install_new(struct client_chunks *chunks, const struct chunk_id *id, int fd,
	const struct stat *st, const struct chunk_place *place, struct client_chunk **ret_chunk)
{
	_cleanup_close_ int own = fd;
	struct client_file *file;
	struct client_chunk *chunk;
	int r = check_head(own, id, place);

	if (r < 0)
		return r;
	file = file_get(chunks, own, st);
	if (!file)
		return -ENOMEM;
	(void)TAKE_FD(own); /* the file's now, or closed */
	chunk = chunk_new(id, file, place);
	if (!chunk) {
		file_unref(file);
		return -ENOMEM;
	}
	*ret_chunk = chunk;
	return 0;
}

int client_chunks_install(struct client_chunks *chunks, const struct chunk_id *id, int fd,
	uint64_t extent_bytes, const uint8_t bitmap[CHUNK_BITMAP_BYTES],
	struct client_chunk **ret_chunk)
{
	_cleanup_close_ int own = fd;
	struct client_chunk *chunk;
	struct chunk_place place;
	struct stat st;
	int r;

	if (fstat(own, &st) != 0)
		return err_errno();
	r = find_place(id, extent_bytes, &st, &place);
	if (r < 0)
		return r;
	chunk = same_file(chunks, id, &st, &place);
	if (!chunk) {
		r = install_new(chunks, id, TAKE_FD(own), &st, &place, &chunk);
		if (r < 0)
			return r;
		ensure(chunk);
		set_present(chunk, bitmap);
		insert(chunks, chunk);
	} else {
		set_present(chunk, bitmap);
	}
	*ret_chunk = chunk;
	return 0;
}

static struct client_chunk *find_hold_locked(struct client_chunks *chunks, uint64_t number)
{
	list_for_each (node, &chunks->clock) {
		struct client_chunk *chunk = list_entry(node, struct client_chunk, link);

		if (chunk->hold == number)
			return chunk;
	}
	return NULL;
}

void client_chunks_let_go(struct client_chunks *chunks, struct client_owner *owner,
	const uint8_t *entries, uint32_t n)
{
	struct list gone = LIST_INIT(gone); /* with the cache's references */
	struct list *node;

	pthread_mutex_lock(&chunks->lock);
	for (uint32_t i = 0; i < n; i++) {
		uint64_t number = held_number(held_get(entries, i));
		struct client_chunk *chunk = find_hold_locked(chunks, number);

		if (chunk) {
			remove_locked(chunks, chunk);
			list_push_back(&gone, &chunk->link);
		} else { /* of an answer that nobody waited for any more */
			add_released_locked(chunks, owner, number);
		}
	}
	pthread_mutex_unlock(&chunks->lock);
	while ((node = list_pop_front(&gone)) != NULL)
		client_chunk_unref(list_entry(node, struct client_chunk, link));
}

void client_chunks_drop(struct client_chunks *chunks, struct client_chunk *chunk)
{
	bool mine;

	pthread_mutex_lock(&chunks->lock);
	mine = chunk->cached;
	if (mine)
		remove_locked(chunks, chunk);
	pthread_mutex_unlock(&chunks->lock);
	if (mine)
		client_chunk_unref(chunk);
}

uint32_t client_chunks_count(struct client_chunks *chunks)
{
	uint32_t n;

	pthread_mutex_lock(&chunks->lock);
	n = chunks->count;
	pthread_mutex_unlock(&chunks->lock);
	return n;
}

uint32_t client_chunks_files(struct client_chunks *chunks)
{
	uint32_t n;

	pthread_mutex_lock(&chunks->lock);
	n = (uint32_t)chunks->files.count;
	pthread_mutex_unlock(&chunks->lock);
	return n;
}

static struct client_piece_table *table_of(struct client_chunk *chunk)
{
	struct client_piece_table *table =
		atomic_load_explicit(&chunk->table, memory_order_acquire);
	struct client_piece_table *fresh;

	if (table)
		return table;
	fresh = calloc(1, sizeof(*fresh));
	if (!fresh)
		return NULL;
	arena_must(ARENA_PIECES, sizeof(*fresh)); /* one for each chunk */
	if (atomic_compare_exchange_strong(&chunk->table, &table, fresh))
		return fresh;
	table_free(fresh); /* another thread was first */
	return table;
}

static void take_entries(
	struct client_piece_table *table, const uint8_t *bytes, uint32_t first, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++) {
		struct piece_entry entry;

		piece_entry_decode(bytes + (size_t)i * CHUNK_ENTRY_BYTES, &entry);
		if (!entry.length)
			continue;
		atomic_store_explicit(&table->xxh3[first + i], entry.xxh3, memory_order_relaxed);
		atomic_store_explicit(
			&table->length[first + i], entry.length, memory_order_release);
	}
}

/* True for the first read of the table of a chunk that is mostly there: then all of it is worth
 * reading. While a chunk fills, what is not asked for would have to be read again. */
static bool worth_whole(const struct client_chunk *chunk, struct client_piece_table *table)
{
	uint32_t present = 0;

	if (atomic_exchange_explicit(&table->begun, true, memory_order_relaxed))
		return false;
	for (uint32_t w = 0; w < CLIENT_BITS_WORDS; w++)
		present += (uint32_t)__builtin_popcountll(
			atomic_load_explicit(&chunk->present.words[w], memory_order_relaxed));
	return present > CHUNK_BLOCKS / 2;
}

/* Reads the blocks of the table that hold the entries first..last. */
static int load_entries(
	struct client_chunk *chunk, struct client_piece_table *table, uint32_t first, uint32_t last)
{
	_Alignas(BLOCK_BYTES) uint8_t bytes[CHUNK_TABLE_BYTES];
	uint32_t from = first * CHUNK_ENTRY_BYTES / BLOCK_BYTES;
	uint32_t to = ((last + 1) * CHUNK_ENTRY_BYTES - 1) / BLOCK_BYTES;
	uint32_t start;
	int r;

	if (worth_whole(chunk, table)) {
		from = 0;
		to = TABLE_PAGES - 1;
	}
	r = file_pread_exact(chunk->fd, bytes, (size_t)(to - from + 1) * BLOCK_BYTES,
		chunk_place_table(&chunk->place) + (uint64_t)from * BLOCK_BYTES);
	if (r < 0)
		return r;
	/* The first entry that begins in these blocks, and how many end in them. */
	start = (from * BLOCK_BYTES + CHUNK_ENTRY_BYTES - 1) / CHUNK_ENTRY_BYTES;
	take_entries(table, bytes + start * CHUNK_ENTRY_BYTES - (size_t)from * BLOCK_BYTES, start,
		(to + 1) * BLOCK_BYTES / CHUNK_ENTRY_BYTES - start);
	return 0;
}

int client_chunk_entry(struct client_chunk *chunk, uint32_t block, uint32_t last_block,
	struct piece_entry *ret_entry)
{
	struct client_piece_table *table = table_of(chunk);
	uint32_t length;

	ensure(block <= last_block && last_block < CHUNK_BLOCKS);
	if (!table)
		return -ENOMEM;
	length = atomic_load_explicit(&table->length[block], memory_order_acquire);
	if (!length) {
		int r = load_entries(chunk, table, block, last_block);

		if (r < 0)
			return r;
		length = atomic_load_explicit(&table->length[block], memory_order_acquire);
	}
	*ret_entry = (struct piece_entry){
		.length = length,
		.xxh3 = atomic_load_explicit(&table->xxh3[block], memory_order_relaxed),
	};
	return 0;
}

void client_chunk_age(struct client_chunk *chunk, uint64_t age_ns)
{
	uint64_t now = clock_mono_ns();
	uint64_t since = atomic_load(&chunk->verified_ns);

	/* One reader clears; what others verify at this moment is verified once more. */
	if (now > since + age_ns &&
		atomic_compare_exchange_strong(&chunk->verified_ns, &since, now))
		client_bits_clear(&chunk->verified, 0, CHUNK_BLOCKS);
}

void client_chunk_damage(struct client_chunk *chunk, uint32_t block, uint32_t blocks)
{
	struct client_piece_table *table =
		atomic_load_explicit(&chunk->table, memory_order_acquire);

	client_bits_set(&chunk->damaged, block, blocks);
	client_bits_clear(&chunk->present, block, blocks);
	client_bits_clear(&chunk->verified, block, blocks);
	/* The entry itself may be what is wrong: read it again next time. */
	if (table)
		atomic_store_explicit(&table->length[block], 0, memory_order_relaxed);
}
