/*
 * What the daemons of this node have counted at one moment, and what two such moments say of the
 * time between them.
 *
 * A sample is large: it is made with _new. Threads: one.
 */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#define TOP_SOURCES 64u
#define TOP_WORKERS 16u
#define TOP_STALLS  4u
#define TOP_TEXT    256u

/* The names of TOP_STALLS causes, as workers have them. */
extern const char *const top_stall_names[TOP_STALLS];

/* One volume: over its mounts, and over the workers that have it. A mount of several is one row, that of
 * the first. */
struct top_source {
	char volume[40];
	char name[TOP_TEXT]; /* the dataset's; "" when it is none's */
	char url[TOP_TEXT];
	uint64_t bytes;   /* of the newest generation that is known here */
	uint64_t cached;  /* by workers */
	uint64_t mounts;  /* of this node */
	uint64_t waiting; /* READs of the kernel that wait now */
	uint64_t quota;   /* of what workers may keep, over those that have a bound; 0: none has */
	bool unbounded;   /* a worker has no bound */
	bool told;        /* a worker of this node told of it: what came from the origin is known */
	bool far;         /* the workers that have it are on other nodes */
	uint64_t evicted; /* bytes, since the workers were started */
	/* Counters. */
	uint64_t node;   /* bytes that mounts read from this node's tiers themselves */
	uint64_t worker; /* bytes that mounts got from a worker */
	uint64_t origin; /* bytes received from the origin */
	uint64_t hit;    /* of what readers asked daemons for, what was cached; */
	uint64_t
		miss; /* and what had to come from the origin. In a cluster as its master has both */
	uint64_t slow;     /* READs that waited for more than 5 ms */
	uint64_t evicting; /* bytes evicted */
};

/* A volume that a mount shows beside that of its row: what workers say of it counts there. */
struct top_part {
	char volume[40];
	unsigned int row;
};

struct top_worker {
	char run[TOP_TEXT]; /* of one on another node its name */
	bool far;           /* what it received from origins is not known here */
	uint64_t used, capacity;
	uint64_t in_flight; /* units on their way */
	/* Counters. */
	uint64_t tier;   /* bytes copied out of tiers for readers */
	uint64_t origin; /* bytes received from origins */
	uint64_t stalls[TOP_STALLS];
};

struct top_sample {
	uint64_t at_ns;
	struct top_source sources[TOP_SOURCES];
	unsigned int n_sources;
	struct top_part parts[TOP_SOURCES];
	unsigned int n_parts;
	struct top_worker workers[TOP_WORKERS];
	unsigned int n_workers;
	bool more; /* there were more than fit */
};

/* Asks all daemons of this node that this user may ask; those that do not answer are left out.
 * -ENOMEM; -errno: the runtime directories cannot be read. */
int top_sample_new(struct top_sample **ret_sample);

/* Adds what a mount (/v1/status of cachefuse), a worker, or a master (/v1/datasets) says. */
void top_sample_mount(struct top_sample *sample, const json_t *status);
void top_sample_worker(struct top_sample *sample, const char *run, const json_t *status);
void top_sample_datasets(struct top_sample *sample, const json_t *datasets);
/* What a master says of all workers (/v1/workers), without that which listens at `own` ("unix:..."); and,
 * of datasets, what all of them have (/v1/datasets). Either may be NULL. */
void top_sample_cluster(
	struct top_sample *sample, const char *own, const json_t *workers, const json_t *datasets);

/* Gauges of `now`, and what each counter grew by since `before` (NULL: by nothing). One that fell
 * began anew: its daemon was started again. */
void top_sample_since(const struct top_sample *now, const struct top_sample *before,
	struct top_sample *ret_delta);
/* Share of the bytes given to readers that did not come from the origin for them; below 0: nothing was
 * read, or who would know is elsewhere. */
double top_hit_ratio(const struct top_source *delta);
