/* What an order feed needs of this mount: its table, its worker, a place for its socket. See
 * order.h, docs/order.md. */
#include "base/log.h"
#include "base/units.h"
#include "mount/announced_place.h"
#include "fuse/daemon/cachefuse.h"

#include <stdio.h>
#include <string.h>

/* Parts of --memory: the window of orders where this node has no tier, and lists and orders of all jobs. */
#define WINDOW_SHARE 2u
#define LISTS_SHARE  8u
/* Of longer ones, on the disk of the images: a list of 10 million samples with its order has 360 MB while it is sorted. */
#define LISTS_DISK (1024 * MiB)

static int find(void *arg, const char *path, uint64_t *ret_offset, uint64_t *ret_size)
{
	struct cachefuse *c = arg;
	struct table_row row;
	uint32_t source = 0;
	int r;

	pthread_rwlock_rdlock(&c->showing);
	r = sources_resolve(&c->sources, path, &source, &row);
	pthread_rwlock_unlock(&c->showing);
	if (r < 0)
		return r;
	if (row.flags & ROW_DIRECTORY)
		return -EISDIR;
	*ret_offset = place_of(source, row.offset);
	*ret_size = row.size;
	return 0;
}

static int prefetch(void *arg, uint64_t offset, uint32_t length)
{
	struct cachefuse *c = arg;
	int r;

	pthread_rwlock_rdlock(&c->showing);
	r = client_prefetch(
		c->sources.all[place_source(offset)].volume, place_offset(offset), length);
	pthread_rwlock_unlock(&c->showing);
	return r;
}

static uint64_t capacity(void *arg)
{
	const struct cachefuse *c = arg;

	return client_capacity(c->client);
}

/* A job may be quicker than run(), and not ask again. */
static bool shows(void *arg, uint64_t dev)
{
	const struct cachefuse *c = arg;

	return mounted_shows(c->mounted, (dev_t)dev);
}

int announced_open(struct cachefuse *c)
{
	static const struct order_ops ops = {
		.find = find, .prefetch = prefetch, .capacity = capacity, .shows = shows
	};
	const struct order_config config = {
		.ops = &ops,
		.arg = c,
		.window_bytes = c->options.memory / WINDOW_SHARE,
		.memory = c->options.memory / LISTS_SHARE,
		.disk = LISTS_DISK,
		.directory = c->options.image_dir,
	};

	c->order = order_new(&config);
	c->reader.order = c->order;
	return c->order ? 0 : -ENOMEM;
}

void announced_listen(struct cachefuse *c)
{
	struct err e = ERR_INIT;
	struct announced_place place;

	if (!announced_find_place(c->options.run_dir, c->options.order_dir, c->mountpoint, &place))
		return;
	if (order_listen(c->order, place.directory, place.name, &e) < 0) {
		log_warn("orders cannot be announced", "why=\"%s\"", e.text);
		return;
	}
	order_show(c->order, mounted_point_dev(c->mounted));
}
