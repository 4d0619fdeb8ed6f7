/* Who had nothing. See barren.h. */
#include "cacheworker/barren.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/hash.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

static struct barren_chunk *chunk_of(struct barren *barren, const struct chunk_id *id)
{
	return &barren->chunks[hash_xxh3(id, sizeof(*id), 0) % BARREN_CHUNKS];
}

static void note(struct barren *barren, const struct chunk_id *id, uint16_t worker,
	enum barren_word word, const struct barren_cells *some)
{
	uint64_t now = clock_mono_ns();
	struct barren_chunk *chunk;
	uint32_t i = 0;

	pthread_mutex_lock(&barren->lock);
	chunk = chunk_of(barren, id);
	if (!chunk_id_equal(&chunk->id, id) || chunk->until_ns < now)
		*chunk = (struct barren_chunk){ .id = *id, .until_ns = now + BARREN_NS };
	while (i < chunk->n && chunk->workers[i] != worker)
		i++;
	if (i < BARREN_WORKERS) {
		chunk->workers[i] = worker;
		chunk->words[i] = (uint8_t)word;
		chunk->some[i] = *some;
		chunk->n = max(chunk->n, i + 1);
	}
	pthread_mutex_unlock(&barren->lock);
}

void barren_note(
	struct barren *barren, const struct chunk_id *id, uint16_t worker, enum barren_word word)
{
	const struct barren_cells none = { { 0 } };

	note(barren, id, worker, word, &none);
}

void barren_note_some(struct barren *barren, const struct chunk_id *id, uint16_t worker,
	const uint8_t bitmap[CHUNK_BITMAP_BYTES])
{
	struct barren_cells some = { { 0 } };

	static_assert(PIECE_BYTES / BLOCK_BYTES == 16, "a cell is two bytes of the bitmap");
	for (uint32_t cell = 0; cell < CHUNK_BITMAP_BYTES / 2; cell++)
		if (bitmap[2 * cell] | bitmap[2 * cell + 1])
			some.bits[cell / 64] |= 1ull << cell % 64;
	note(barren, id, worker, BARREN_UNKNOWN, &some);
}

static bool has_some(const struct barren_cells *some, uint32_t offset, uint32_t length)
{
	for (uint32_t cell = offset / PIECE_BYTES; cell <= (offset + length - 1) / PIECE_BYTES;
		cell++)
		if (some->bits[cell / 64] >> cell % 64 & 1)
			return true;
	return false;
}

enum barren_word barren_word_of(struct barren *barren, const struct chunk_id *id, uint16_t worker,
	uint32_t offset, uint32_t length)
{
	enum barren_word word = BARREN_UNKNOWN;
	const struct barren_chunk *chunk;

	pthread_mutex_lock(&barren->lock);
	chunk = chunk_of(barren, id);
	if (chunk_id_equal(&chunk->id, id) && chunk->until_ns >= clock_mono_ns())
		for (uint32_t i = 0; i < chunk->n; i++)
			if (chunk->workers[i] == worker)
				word = chunk->words[i] != BARREN_UNKNOWN           ? chunk->words[i]
				       : has_some(&chunk->some[i], offset, length) ? BARREN_UNKNOWN
										   : BARREN_EMPTY;
	pthread_mutex_unlock(&barren->lock);
	return word;
}

void barren_forget(struct barren *barren, const struct chunk_id *id)
{
	struct barren_chunk *chunk;

	pthread_mutex_lock(&barren->lock);
	chunk = chunk_of(barren, id);
	if (chunk_id_equal(&chunk->id, id))
		chunk->until_ns = 0;
	pthread_mutex_unlock(&barren->lock);
}

int barren_init(struct barren *barren)
{
	pthread_mutex_init(&barren->lock, NULL);
	barren->chunks = calloc(BARREN_CHUNKS, sizeof(*barren->chunks));
	return barren->chunks ? 0 : -ENOMEM;
}

void barren_release(struct barren *barren)
{
	free(TAKE(barren->chunks));
	pthread_mutex_destroy(&barren->lock);
}
