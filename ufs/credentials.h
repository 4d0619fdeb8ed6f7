/*
 * Keys of an S3 account and what a profile says beside them, found as Amazon's tools find them.
 *
 * Order: a profile named in the configuration is looked up in the files only; else
 * AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, else the profile AWS_PROFILE, or "default". Files:
 * AWS_SHARED_CREDENTIALS_FILE or ~/.aws/credentials, then AWS_CONFIG_FILE or ~/.aws/config. Read
 * when an origin is opened, and again when the service refuses the keys. Blocks: files are read.
 *
 * Keys that a profile only tells how to get (credential_process, SSO, roles) are refused with a
 * line: a cache's daemons run no programs and log in nowhere.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include "base/err.h"

struct credentials {
	char *access_key;
	char *secret_key;
	char *session_token; /* NULL: none */
	char *region;        /* of the environment or the profile; NULL: none */
	char *endpoint;      /* the same */
	char *place;         /* where the keys were found, for people */
	const char *setting; /* the profile's way to keys that is not gone, static; NULL: none */
};

/* -ENOKEY with a line that lists where was looked. `profile` may be NULL. */
int credentials_find(
	const char *profile, struct credentials *ret_credentials, struct err *e) __must_check;

/* Whether both have the same keys and token. */
bool credentials_same(const struct credentials *a, const struct credentials *b);

/* The same search for region and endpoint only: a failure is none. What is not found stays NULL. */
void credentials_find_settings(const char *profile, struct credentials *ret_credentials);

/* Wipes the secrets. */
void credentials_release(struct credentials *credentials);

/*
 * Takes what the section [name] or [profile name] of an INI text says into members that are still
 * NULL. -ENOENT when there is no such section. Unknown keys and lines that are no assignment are
 * skipped, as Amazon's tools do.
 */
int credentials_parse(const char *text, size_t len, const char *name,
	struct credentials *credentials) __must_check;
