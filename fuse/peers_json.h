/* The workers as a mount knows them, for /v1/status, /v1/explain and /metrics. Threads: any. */
#pragma once

#include <jansson.h>
#include "admin/metrics.h"
#include "client/client.h"

/* A list; NULL without memory. */
json_t *peers_json(const struct client *client);
/* {epoch, sequence, up, known} of the slot table in use; likewise. */
json_t *peers_cluster_json(const struct client *client);
/* The first 32 by name, the others together as "others". */
void peers_metrics(const struct client *client, struct metrics *m);
/* Adds to the entry of a chunk who has it, and whether that is this node, unless one host is all there is. */
void peers_chunk_json(const struct client *client, const struct client_volume *volume,
	uint64_t chunk, json_t *json);
