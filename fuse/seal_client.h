/* The extents of a mount as its node's worker has them, for the thread of the seal. See seal.h,
 * client/client_seal.h. */
#pragma once

#include "client/client.h"
#include "fuse/seal.h"
#include "fuse/slots.h"

/* Which; lives as long as the source. */
struct seal_client {
	struct client_volume *volume; /* borrowed */
	uint64_t generation;          /* that is shown */
	uint64_t extent_bytes;
};

void seal_client_init(
	struct seal_client *client, struct client_volume *volume, const struct slots_mount *facts);
struct seal_source seal_client_source(struct seal_client *client);
