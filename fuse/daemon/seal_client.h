/* The extents of a mount as its node's worker has them, for the thread of the seal. See seal.h,
 * client/client_seal.h. */
#pragma once

#include "client/client.h"
#include "fuse/engine/seal.h"
#include "mount/slots.h"

/* Which; lives as long as the source. */
struct seal_client {
	struct client_volume *volumes[LAYOUT_SOURCES_MAX]; /* borrowed */
	const struct slots_sources *sources;               /* likewise: what is shown */
	uint64_t extent_bytes;
	uint32_t extents; /* of all */
};

/* `volumes`: of each source. */
void seal_client_init(
	struct seal_client *client, struct client_volume *const *volumes, struct slots *slots);
struct seal_source seal_client_source(struct seal_client *client);
