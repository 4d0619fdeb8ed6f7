/* Who had nothing. See barren.h. */
#include "cacheworker/barren.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/hash.h"

#include <errno.h>
#include <stdlib.h>

#define BARREN_NS (10 * CLOCK_SECOND)

static struct barren_chunk *chunk_of(struct barren *barren, const struct chunk_id *id)
{
	return &barren->chunks[hash_xxh3(id, sizeof(*id), 0) % BARREN_CHUNKS];
}

void barren_note(struct barren *barren, const struct chunk_id *id, uint16_t worker)
{
	uint64_t now = clock_mono_ns();
	struct barren_chunk *chunk;

	pthread_mutex_lock(&barren->lock);
	chunk = chunk_of(barren, id);
	if (!chunk_id_equal(&chunk->id, id) || chunk->until_ns < now)
		*chunk = (struct barren_chunk){ .id = *id, .until_ns = now + BARREN_NS };
	if (chunk->n < BARREN_WORKERS)
		chunk->workers[chunk->n++] = worker;
	pthread_mutex_unlock(&barren->lock);
}

bool barren_has(struct barren *barren, const struct chunk_id *id, uint16_t worker)
{
	const struct barren_chunk *chunk;
	bool has = false;

	pthread_mutex_lock(&barren->lock);
	chunk = chunk_of(barren, id);
	if (chunk_id_equal(&chunk->id, id) && chunk->until_ns >= clock_mono_ns())
		for (uint32_t i = 0; i < chunk->n; i++)
			has |= chunk->workers[i] == worker;
	pthread_mutex_unlock(&barren->lock);
	return has;
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
