/* What an order feed needs of this mount: its table, its worker, a place for its socket. See
 * order.h, docs/order.md. */
#include "base/hash.h"
#include "base/log.h"
#include "fuse/cachefuse.h"

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

/* Parts of --memory: bytes that orders may have on their way at once, and one job's lists. */
#define WINDOW_SHARE 2u
#define JOB_SHARE    8u

static int find(void *arg, const char *path, uint64_t *ret_offset, uint64_t *ret_size)
{
	struct cachefuse *c = arg;
	struct table_row row;
	uint32_t source = 0;
	int r = sources_resolve(&c->sources, path, &source, &row);

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

	return client_prefetch(
		c->sources.all[place_source(offset)].volume, place_offset(offset), length);
}

int announced_open(struct cachefuse *c)
{
	static const struct order_ops ops = { .find = find, .prefetch = prefetch };
	const struct order_config config = {
		.ops = &ops,
		.arg = c,
		.window_bytes = c->options.memory / WINDOW_SHARE,
		.memory = c->options.memory / JOB_SHARE,
	};

	c->order = order_new(&config);
	c->reader.order = c->order;
	return c->order ? 0 : -ENOMEM;
}

/* The directory of a path, in place. */
static bool cut_last(char *path)
{
	char *slash = strrchr(path, '/');

	if (!slash || slash == path)
		return false;
	*slash = '\0';
	return true;
}

/* --order-dir, or beside the run directories of all caches: RUN/order for RUN/CACHE/MOUNT. */
static bool find_directory(const struct cachefuse *c, char directory[PATH_MAX])
{
	char base[PATH_MAX - sizeof("/order")];
	const char *given = c->options.order_dir ? c->options.order_dir : c->options.run_dir;

	if (!given || snprintf(base, sizeof(base), "%s", given) >= (int)sizeof(base))
		return false;
	if (!c->options.order_dir && (!cut_last(base) || !cut_last(base)))
		return false;
	(void)snprintf(directory, PATH_MAX, "%s%s", base, c->options.order_dir ? "" : "/order");
	return true; /* it fits */
}

void announced_listen(struct cachefuse *c)
{
	struct err e = ERR_INIT;
	char directory[PATH_MAX];
	char name[32];

	if (!find_directory(c, directory))
		return;
	(void)snprintf(name, sizeof(name), "m-%016" PRIx64,
		hash_xxh3(c->mountpoint, strlen(c->mountpoint), 0)); /* fits */
	if (order_listen(c->order, directory, name, &e) < 0) {
		log_warn("orders cannot be announced", "why=\"%s\"", e.text);
		return;
	}
	order_show(c->order, mounted_point_dev(c->mounted));
}
