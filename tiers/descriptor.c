/* The LRU of open chunk files. See descriptor_internal.h. */
#include "tiers/descriptor_internal.h"
#include "base/bounds.h"
#include "base/limits.h"

#define FDS_PER_FILE 2u
#define FILES_MIN    8u

static uint32_t default_max(void)
{
	return max(bounds_descriptor_share(0, LIMIT_CHUNK_FDS) / FDS_PER_FILE, FILES_MIN);
}

void descriptor_cache_init(struct descriptor_cache *cache, uint32_t max_files)
{
	*cache = (struct descriptor_cache){ .max = max_files ? max_files : default_max() };
	pthread_mutex_init(&cache->lock, NULL);
	pthread_cond_init(&cache->opened, NULL);
	list_init(&cache->lru);
	bound_raise_max(BOUND_CHUNK_FILES, (uint64_t)cache->max * FDS_PER_FILE);
}

void descriptor_cache_release(struct descriptor_cache *cache)
{
	ensure(cache->open == 0);
	bound_raise_max(BOUND_CHUNK_FILES, -(uint64_t)cache->max * FDS_PER_FILE);
	pthread_cond_destroy(&cache->opened);
	pthread_mutex_destroy(&cache->lock);
}

void descriptor_init(struct descriptor *d)
{
	*d = (struct descriptor){ .fds = CHUNK_FDS_NONE };
	list_init(&d->link);
}

/* Takes the oldest unpinned file out, so that its caller closes it without the lock. */
static struct chunk_fds evict_locked(struct descriptor_cache *cache)
{
	struct chunk_fds fds = CHUNK_FDS_NONE;

	if (cache->open > cache->max && !list_empty(&cache->lru)) {
		struct descriptor *d =
			list_entry(list_pop_front(&cache->lru), struct descriptor, link);

		fds = d->fds;
		d->fds = CHUNK_FDS_NONE;
		cache->open--;
		bound_sub(BOUND_CHUNK_FILES, FDS_PER_FILE);
	}
	return fds;
}

static void shrink(struct descriptor_cache *cache)
{
	struct chunk_fds fds;

	do {
		pthread_mutex_lock(&cache->lock);
		fds = evict_locked(cache);
		pthread_mutex_unlock(&cache->lock);
		if (fds.buffered < 0)
			return;
		chunk_fds_close(&fds);
	} while (true);
}

void descriptor_adopt(struct descriptor_cache *cache, struct descriptor *d, struct chunk_fds *fds)
{
	pthread_mutex_lock(&cache->lock);
	d->fds = *fds;
	*fds = CHUNK_FDS_NONE;
	list_push_back(&cache->lru, &d->link);
	cache->open++;
	bound_add(BOUND_CHUNK_FILES, FDS_PER_FILE);
	pthread_mutex_unlock(&cache->lock);
	shrink(cache);
}

int descriptor_pin(struct descriptor_cache *cache, struct descriptor *d,
	int (*open_file)(void *arg, struct chunk_fds *ret_fds), void *arg)
{
	struct chunk_fds fds = CHUNK_FDS_NONE;
	int r;

	pthread_mutex_lock(&cache->lock);
	while (d->opening)
		pthread_cond_wait(&cache->opened, &cache->lock);
	if (d->fds.buffered >= 0) {
		d->pins++;
		list_remove(&d->link);
		pthread_mutex_unlock(&cache->lock);
		return 0;
	}
	d->opening = true;
	pthread_mutex_unlock(&cache->lock);

	r = open_file(arg, &fds);

	pthread_mutex_lock(&cache->lock);
	d->opening = false;
	if (r == 0) {
		d->fds = fds;
		d->pins = 1;
		cache->open++;
		bound_add(BOUND_CHUNK_FILES, FDS_PER_FILE);
	}
	pthread_cond_broadcast(&cache->opened);
	pthread_mutex_unlock(&cache->lock);
	shrink(cache);
	return r;
}

int descriptor_pin_open(struct descriptor_cache *cache, struct descriptor *d)
{
	int r = -EAGAIN;

	pthread_mutex_lock(&cache->lock);
	if (!d->opening && d->fds.buffered >= 0) {
		d->pins++;
		list_remove(&d->link);
		r = 0;
	}
	pthread_mutex_unlock(&cache->lock);
	return r;
}

void descriptor_unpin(struct descriptor_cache *cache, struct descriptor *d)
{
	pthread_mutex_lock(&cache->lock);
	ensure(d->pins > 0);
	if (--d->pins == 0)
		list_push_back(&cache->lru, &d->link);
	pthread_mutex_unlock(&cache->lock);
	shrink(cache);
}

void descriptor_close(struct descriptor_cache *cache, struct descriptor *d)
{
	struct chunk_fds fds;

	pthread_mutex_lock(&cache->lock);
	ensure(d->pins == 0 && !d->opening);
	fds = d->fds;
	d->fds = CHUNK_FDS_NONE;
	list_remove(&d->link);
	if (fds.buffered >= 0) {
		cache->open--;
		bound_sub(BOUND_CHUNK_FILES, FDS_PER_FILE);
	}
	pthread_mutex_unlock(&cache->lock);
	chunk_fds_close(&fds);
}
