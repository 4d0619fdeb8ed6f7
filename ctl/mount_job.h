/*
 * A mount that `cachectl mount` was asked for: its options, what must be true before anything is
 * started, and the request for it. Lives as long as the command; strings are
 * borrowed from its arguments.
 */
#pragma once

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <jansson.h>
#include "ctl/cache_dir.h"
#include "ctl/origin_options.h"

#define MOUNT_UNSET UINT64_MAX

struct mount_options {
	struct origin_options origin;
	const char *engine;
	const char *context;
	bool allow_other;
	uint64_t prime_max;
	const char *integrity;
	uint64_t seal_pause; /* ms */
	const char *cache;
	uint64_t cache_size;
	uint64_t memory;
	uint64_t quota;      /* MOUNT_UNSET: as it is */
	bool yes;            /* it may evict, without a question */
	uint64_t priority;   /* likewise */
	const char *pin;     /* yes, no; NULL: as it is */
	const char *evict;   /* likewise */
	uint64_t follow;     /* ns; 0: it does not */
	const char *refresh; /* wait, background; NULL: not given */
	const char *token;   /* file; NULL: not said */
	bool existing_credentials;
	uint64_t uid;
	uint64_t gid;
	uint64_t umask;
	uint64_t extent_size;
	uint64_t dead_after; /* ns; 0: not said */
	const char *log_level;
	const char *output;
};

/* A mount on its way. */
struct mount_job {
	struct mount_options options;
	const char *url;   /* or a dataset's name, until it is resolved */
	char dataset[128]; /* UUID.VOLUME; "": a URL was given */
	char dataset_url[PATH_MAX];
	char *sources; /* of a dataset of several, or of a part of one, what cachefuse --sources wants;
			* owned: mount_job_release() */
	char point[PATH_MAX];
	char named_cache[PATH_MAX]; /* of the master that has the dataset */
	char cache_path[PATH_MAX];
	char ca_file[PATH_MAX];
	char token[PATH_MAX]; /* --token, whole; "": none */
	bool service;         /* the node's service mounts it; else the cache's private daemons */
	bool user;            /* which it does for an ordinary user, by the dataset's name */
	int point_fd; /* of such a one: the mount point, which the keeper takes from here; -1 */
	struct cache_dir
		cache; /* of a service: the keeper's directory, and where its sockets are */
	unsigned int id;
	char socket[SOCKET_PATH_MAX];
	bool rolled_back; /* the dataset is */
	bool follows;     /* the dataset does */
	bool s3;          /* credentials matter */
	bool progress;    /* standard error is a terminal */
	bool dirty;       /* a progress line stands on it */
};

/*
 * Of a dataset's name: asks the master for its source, which becomes `url`. Returns an exit status,
 * with a line when it is not EXIT_OK.
 */
int mount_job_resolve(struct mount_job *job, struct err *e) __must_check;

void mount_job_release(struct mount_job *job);

/*
 * Every check that needs nothing started; fills in point, service, cache, s3. Returns an exit status, with a
 * line when it is not EXIT_OK.
 */
int mount_job_check(struct mount_job *job, const char *dir, struct err *e) __must_check;

/* Does this environment name keys for the source, and nothing else does? */
bool mount_job_gives_keys(const struct mount_job *job);
/* Asks the bucket for one name with these. Returns an exit status, with a line when it is not EXIT_OK. */
int mount_job_check_keys(const struct mount_job *job, struct err *e) __must_check;

/* The body of POST /v1/mounts: a new reference; NULL without memory. */
json_t *mount_job_body(const struct mount_job *job);
