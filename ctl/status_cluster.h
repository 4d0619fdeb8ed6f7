/*
 * What `cachectl status` says of the cluster, on a node whose master is on another one, or is the service's here and has
 * several workers: whether it answers, how many workers are up, how much of each dataset they have together.
 */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

/*
 * {"master": "tcp:..." | "unix:...", "state": "answers" | "limited" | "unreachable", "text": why, "slots": {...},
 * "sources": [...], "datasets": [...]}, a new reference; "limited": to this node's token. NULL: this node is all there is.
 */
json_t *status_cluster(void);
/* What of it is said of a mount whose runtime directory is `run`: `cluster`, or NULL, of a cache of somebody's own beside the
 * service, of which a cluster knows nothing, even if it has a dataset of the same source. */
const json_t *status_cluster_of(const json_t *cluster, const char *run);
/* Workers that are members, of "slots". */
uint64_t status_cluster_members(const json_t *slots);
/* The dataset that has what the mount shows and nothing else, if workers have reported what they have of it; else NULL. `cluster`
 * may be NULL. */
const json_t *status_cluster_dataset(const json_t *cluster, const json_t *mount);
/* Its line below the table. */
void status_cluster_print(const json_t *cluster);
