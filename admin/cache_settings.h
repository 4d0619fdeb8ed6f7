/*
 * The settings on which a cache is served: sizes, log level and credentials are those of the mount
 * that started its daemons. A later mount joins them, and reports what it could not change.
 */
#pragma once

#include <stdint.h>
#include "admin/admin.h"
#include "base/check.h"

#define CACHE_SETTINGS_DIGEST_SIZE 33u /* hex and NUL */
#define CACHE_SETTINGS_NOTICE_MAX  512u

/* What a mount asked for. */
struct cache_settings {
	uint64_t capacity;     /* 0: not asked for, or the worker's choice */
	uint64_t memory;       /* 0: not asked for */
	const char *log_level; /* NULL: not asked for */
	bool credentials;      /* those of the environment are to be used */
};

/* Digest of the environment's credentials for the request's source and of where else they are looked for: equal for
 * two processes that would use the same ones. Not reversible, and never logged. */
void cache_settings_digest(const json_t *body, char out[CACHE_SETTINGS_DIGEST_SIZE]);

/* Adds them to the body of POST /v1/mounts. */
int cache_settings_add(json_t *body, const struct cache_settings *settings) __must_check;

/*
 * -EKEYREJECTED: the request comes with credentials that are not those in force, and none have been checked; its
 * "existing_credentials" is true where that is done, or not wanted (mount_job_check_keys()).
 */
int cache_settings_check_credentials(const json_t *body, struct err *e) __must_check;

/* Writes which of the request's settings are not those in force, for a person; "" when all are. */
void cache_settings_notice(const json_t *body, const struct cache_settings *in_force,
	char out[CACHE_SETTINGS_NOTICE_MAX]);
