/* See seal_client.h. */
#include "fuse/seal_client.h"

static int poll_worker(
	void *arg, uint32_t n, const uint8_t *held, struct client_seal *ret_seals, struct err *e)
{
	const struct seal_client *c = arg;

	return client_seal_poll(
		c->volume, c->generation, c->extent_bytes, 0, n, held, ret_seals, e);
}

static int take_of_worker(
	void *arg, uint32_t extent, struct client_seal *ret_seal, int *ret_fd, struct err *e)
{
	const struct seal_client *c = arg;

	return client_seal_take(
		c->volume, c->generation, c->extent_bytes, extent, ret_seal, ret_fd, e);
}

void seal_client_init(
	struct seal_client *client, struct client_volume *volume, const struct slots_mount *facts)
{
	*client = (struct seal_client){
		.volume = volume,
		.generation = facts->generation,
		.extent_bytes = facts->extent_bytes,
	};
}

struct seal_source seal_client_source(struct seal_client *client)
{
	return (struct seal_source){ .poll = poll_worker, .take = take_of_worker, .arg = client };
}
