/*
 * The options of cachefuse, and the names that it shares with the keeper, which starts it and checks its section of the
 * configuration file.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include "admin/listen.h"
#include "base/clock.h"
#include "base/key_options.h"
#include "base/option.h"

#define CACHEFUSE_PROGRAM      "cachefuse"
#define CACHEFUSE_UNSET        UINT64_MAX
#define CACHEFUSE_PRIME_MAX    4000000u            /* inodes and names in the kernel: 4.4 GB */
#define CACHEFUSE_SEAL_PAUSE   (30 * CLOCK_SECOND) /* between two switches, by default (seal.h) */
#define CACHEFUSE_FOLLOW_MAX   (86400 * CLOCK_SECOND)
#define CACHEFUSE_DATASET_FILE "dataset.json" /* of a mount's directory: source_named.c */

struct cachefuse_options {
	const char *config;
	const char *source;
	const char *dataset; /* UUID.VOLUME; NULL: the source itself */
	const char *
		dataset_name; /* instead of source and dataset: resolved by the master for the user in claims */
	const char *claims;  /* of who mounts that, by number (base/claims.h) */
	const char *sources; /* of that, what sources_parse() wants; NULL: the one */
	const char *endpoint;
	const char *region;
	const char *profile;
	const char *ca_file;
	bool path_style;
	bool anonymous;
	const char *credentials;
	bool requester_pays;
	const char *versions; /* auto, on, off */
	bool refresh;
	bool refresh_behind;
	bool replace;
	uint64_t follow; /* ns; 0: not */
	bool follow_dataset;
	bool pinned;      /* it stays at what it is mounted with, whatever its dataset says */
	const char *path; /* directory of the dataset named so: the mount's root; NULL: its root */
	uint64_t generation; /* of that; 0: what it shows */
	bool rolled_back;    /* the dataset, when it was asked for */
	uint64_t quota;      /* CACHEFUSE_UNSET: as it is */
	uint64_t priority;   /* likewise */
	const char *pin;     /* yes, no; NULL: as it is */
	const char *evict;   /* likewise */
	const char *master;
	const char *worker;
	struct key_options keys;
	const char *mountpoint;
	const char *run_dir;
	const char *image_dir;
	const char *admin;
	struct admin_listen admin_listen;
	const char *audit_log;
	const char *order_dir;
	uint64_t uid;
	uint64_t gid;
	uint64_t umask;
	uint64_t memory;
	uint64_t direct_bandwidth; /* bytes a second; 0: not given */
	uint64_t extent_size;
	const char *engine;
	const char *context;
	bool allow_other;
	const char *integrity;
	uint64_t seal_pause;
	uint64_t prime_max; /* CACHEFUSE_UNSET: what fits */
	int ready_fd;
	int fuse_fd;
	int slots_fd;
	int hand_fd;
	int hand_near_fd; /* only held */
	int point_fd;     /* the mount point, opened by who owns it; -1: --mountpoint is opened */
	const char *log_level;
	const char *log_file;
};

/* What it takes, and what it has without; the strings are borrowed from argv. */
extern const struct option_set cachefuse_option_set;
void cachefuse_options_init(struct cachefuse_options *options);
