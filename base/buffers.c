/* Aligned buffers. See buffers.h. */
#include "base/buffers.h"
#include "base/cleanup.h"
#include "base/layout.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define MAPPED_LEAST (64u << 10)

void buffers_init(struct buffers *b, size_t most)
{
	*b = (struct buffers){ .most = most };
	pthread_mutex_init(&b->lock, NULL);
}

static size_t size_of(size_t bytes)
{
	size_t size = BUFFERS_LEAST;

	while (size < bytes)
		size *= 2;
	return size;
}

/* Large ones are mapped by themselves: between others in a heap they would leave holes. */
static bool is_mapped(size_t size)
{
#ifdef __SANITIZE_ADDRESS__
	(void)size;
	return false; /* it looks after what it has allocated */
#else
	return size >= MAPPED_LEAST;
#endif
}

static void *buffer_new(size_t size)
{
	void *buffer;

	if (!is_mapped(size))
		return aligned_alloc(BLOCK_BYTES, size);
	buffer = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	return buffer == MAP_FAILED ? NULL : buffer;
}

static void buffer_free(void *buffer, size_t size)
{
	if (!buffer || !is_mapped(size))
		free(buffer);
	else
		(void)munmap(buffer, size); /* it was mapped so */
}

static void *remove_locked(struct buffers *b, uint32_t i)
{
	void *buffer = b->kept[i].buffer;

	b->bytes -= b->kept[i].bytes;
	b->n--;
	memmove(&b->kept[i], &b->kept[i + 1], (b->n - i) * sizeof(b->kept[0]));
	return buffer;
}

static void *take_kept(struct buffers *b, size_t size)
{
	void *buffer = NULL;

	pthread_mutex_lock(&b->lock);
	for (uint32_t i = b->n; i > 0 && !buffer; i--)
		if (b->kept[i - 1].bytes == size)
			buffer = remove_locked(b, i - 1);
	pthread_mutex_unlock(&b->lock);
	return buffer;
}

/* The one that was given back first, if that leaves no room for `more` bytes. */
static void *take_oldest(struct buffers *b, size_t more, size_t *ret_size)
{
	void *buffer = NULL;

	pthread_mutex_lock(&b->lock);
	if (b->n > 0 && (b->n == BUFFERS_KEPT_MAX || b->bytes + more > b->most)) {
		*ret_size = b->kept[0].bytes;
		buffer = remove_locked(b, 0);
	}
	pthread_mutex_unlock(&b->lock);
	return buffer;
}

static void make_room(struct buffers *b, size_t more)
{
	size_t size;
	void *oldest;

	while ((oldest = take_oldest(b, more, &size)) != NULL)
		buffer_free(oldest, size);
}

void buffers_drop_kept(struct buffers *b)
{
	make_room(b, b->most + 1);
}

void buffers_release(struct buffers *b)
{
	buffers_drop_kept(b);
	pthread_mutex_destroy(&b->lock);
}

void *buffers_take(struct buffers *b, size_t bytes)
{
	size_t size = size_of(bytes);
	void *buffer = take_kept(b, size);

	return buffer ? buffer : buffer_new(size);
}

void buffers_give(struct buffers *b, void *buffer, size_t bytes)
{
	size_t size = size_of(bytes);

	if (!buffer)
		return;
	make_room(b, size);
	pthread_mutex_lock(&b->lock);
	if (b->n < BUFFERS_KEPT_MAX && b->bytes + size <= b->most) {
		b->kept[b->n].buffer = TAKE(buffer);
		b->kept[b->n++].bytes = size;
		b->bytes += size;
	}
	pthread_mutex_unlock(&b->lock);
	buffer_free(buffer, size);
}
