/* Piece tables of chunks on this node, as far as they were needed. See client_chunk.h. */
#include "base/arena.h"
#include "base/clock.h"
#include "base/file.h"
#include "client/client_chunk_internal.h"

#include <stdlib.h>

#define TABLE_PAGES (CHUNK_TABLE_BYTES / BLOCK_BYTES)

/* Entries read so far. An entry never changes in a file, so each value is stored once; a reader
 * that finds no length does not look at the rest. */
struct client_piece_table {
	_Atomic bool begun; /* read from once */
	_Atomic uint64_t xxh3[CHUNK_BLOCKS];
	_Atomic uint32_t length[CHUNK_BLOCKS];
};

void client_chunk_table_free(struct client_piece_table *table)
{
	if (!table)
		return;
	arena_give(ARENA_PIECES, sizeof(*table));
	free(table);
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
	client_chunk_table_free(fresh); /* another thread was first */
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
