/* See seal_client.h. */
#include "fuse/daemon/seal_client.h"

#include <errno.h>
#include <string.h>

/* The extents of a source, [first, first + n) of all. */
static uint32_t extents_of(const struct seal_client *c, uint32_t source, uint32_t *ret_first)
{
	const struct layout_sources *layout = &c->sources->layout;

	*ret_first = layout->first[source];
	return (source + 1 < layout->n ? layout->first[source + 1] : c->extents) - *ret_first;
}

/* Adds bits [first, first + n) of `from`. */
static void add_bits(uint8_t *out, const uint8_t *from, uint32_t first, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++)
		if (from[(first + i) / 8] >> (first + i) % 8 & 1)
			out[i / 8] |= (uint8_t)(1u << i % 8);
}

/* What is held of a source's volume: by all of its views, which the worker does not tell apart. */
static void held_of(const struct seal_client *c, uint32_t source, const uint8_t *held, uint8_t *out)
{
	memset(out, 0, LIMIT_DEVICES / 8);
	for (uint32_t i = 0; i < c->sources->layout.n; i++) {
		uint32_t first;
		uint32_t n = extents_of(c, i, &first);

		if (c->volumes[i] == c->volumes[source])
			add_bits(out, held, first, n);
	}
}

static int poll_worker(
	void *arg, uint32_t n, const uint8_t *held, struct client_seal *ret_seals, struct err *e)
{
	const struct seal_client *c = arg;
	uint8_t its[LIMIT_DEVICES / 8];
	bool known = false;
	int r = 0;

	ensure(n == c->extents);
	for (uint32_t i = 0; i < c->sources->layout.n && (r == 0 || r == -ENOSPC); i++) {
		uint32_t first;
		uint32_t extents = extents_of(c, i, &first);

		if (extents == 0)
			continue;
		if (held)
			held_of(c, i, held, its);
		r = client_seal_poll(c->volumes[i], c->sources->all[i].generation, c->extent_bytes,
			0, extents, held ? its : NULL, ret_seals + first, e);
		/* The worker has no room for this one; damage of the others is to be seen. */
		if (r == -ENOSPC)
			memset(ret_seals + first, 0, extents * sizeof(*ret_seals)); /* UNKNOWN */
		known |= r == 0;
	}
	return r == -ENOSPC && known ? 0 : r;
}

static int take_of_worker(
	void *arg, uint32_t extent, struct client_seal *ret_seal, int *ret_fd, struct err *e)
{
	const struct seal_client *c = arg;
	uint32_t source = layout_source_of_device(&c->sources->layout, extent);

	return client_seal_take(c->volumes[source], c->sources->all[source].generation,
		c->extent_bytes, extent - c->sources->layout.first[source], ret_seal, ret_fd, e);
}

void seal_client_init(
	struct seal_client *client, struct client_volume *const *volumes, struct slots *slots)
{
	*client = (struct seal_client){
		.sources = slots_sources(slots),
		.extent_bytes = slots_mount(slots)->extent_bytes,
		.extents = slots_mount(slots)->extents - 1,
	};
	for (uint32_t i = 0; i < client->sources->layout.n; i++)
		client->volumes[i] = volumes[i];
}

struct seal_source seal_client_source(struct seal_client *client)
{
	return (struct seal_source){ .poll = poll_worker, .take = take_of_worker, .arg = client };
}
