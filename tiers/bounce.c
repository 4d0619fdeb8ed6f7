/* Aligned buffers. See bounce_internal.h. */
#include "tiers/bounce_internal.h"
#include "tiers/chunk_file_internal.h"

#include <stdlib.h>

void bounce_init(struct bounce *b)
{
	*b = (struct bounce){ 0 };
	pthread_mutex_init(&b->lock, NULL);
}

void bounce_release(struct bounce *b)
{
	while (b->n)
		free(b->kept[--b->n]);
	pthread_mutex_destroy(&b->lock);
}

void *bounce_take(struct bounce *b)
{
	void *buffer = NULL;

	pthread_mutex_lock(&b->lock);
	if (b->n)
		buffer = b->kept[--b->n];
	pthread_mutex_unlock(&b->lock);
	if (!buffer)
		buffer = aligned_alloc(BLOCK_BYTES, CHUNK_IO_BYTES);
	return buffer;
}

void bounce_give(struct bounce *b, void *buffer)
{
	if (!buffer)
		return;
	pthread_mutex_lock(&b->lock);
	if (b->n < BOUNCE_KEPT) {
		b->kept[b->n++] = buffer;
		buffer = NULL;
	}
	pthread_mutex_unlock(&b->lock);
	free(buffer);
}
