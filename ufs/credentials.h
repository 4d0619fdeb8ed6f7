/*
 * Keys of an account of an object store, and what a profile has in addition to them, found as the
 * provider's tools find them.
 *
 * The usual search, each step by a provider (credentials_internal.h):
 *
 *	1. AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY
 *	2. web identity: AWS_WEB_IDENTITY_TOKEN_FILE and AWS_ROLE_ARN, at the token service (STS)
 *	3. the profile AWS_PROFILE, or "default", of the files AWS_SHARED_CREDENTIALS_FILE or
 *	   ~/.aws/credentials, then AWS_CONFIG_FILE or ~/.aws/config: keys, or a web identity
 *	4. the container's: AWS_CONTAINER_CREDENTIALS_RELATIVE_URI or _FULL_URI (ECS, EKS)
 *	5. the machine's: its metadata service (IMDSv2)
 *
 * A profile that is named is looked up in the files only. OBS has OBS_ACCESS_KEY_ID and
 * OBS_SECRET_ACCESS_KEY, or such a profile. A reference says which of them instead of the search:
 *
 *	env:PREFIX_		PREFIX_ACCESS_KEY_ID, PREFIX_SECRET_ACCESS_KEY, PREFIX_SESSION_TOKEN
 *	file:/PATH[#SECTION]	a file like ~/.aws/credentials, or a directory with a file per value,
 *				as a Kubernetes Secret is mounted
 *	profile:NAME, web-identity, container, imds, anonymous
 *
 * Looked for when an origin is opened, when the service refuses the keys, before they expire, and
 * in a file that is named every minute. Blocks: files are read, services asked, for some seconds at
 * most.
 *
 * Keys that a profile only tells how to get otherwise (credential_process, SSO, roles of another
 * profile) are refused with a line: a cache's daemons run no programs and log in nowhere.
 */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "base/err.h"

struct credentials {
	char *access_key;
	char *secret_key;    /* of base/secret.h */
	char *session_token; /* likewise; NULL: none */
	char *region;        /* of the environment or the profile; NULL: none */
	char *endpoint;      /* the same */
	char *place;         /* where the keys were found, for people */
	int64_t expires;     /* seconds since 1970; 0: not said */
	/* Of a profile. */
	char *role_arn;
	char *role_session;
	char *token_file;    /* of a web identity */
	const char *setting; /* another way to keys, that is not gone; static; NULL: none */
};

/* What is looked for; borrowed. */
struct credentials_query {
	const char *reference; /* NULL: the usual search */
	const char *profile;   /* NULL: AWS_PROFILE or "default" */
	bool obs;
	const char *ca_file;          /* of a token service; NULL: AWS_CA_BUNDLE, the system's */
	const _Atomic bool *given_up; /* becomes true: ends within a second; NULL: never */
};

/* -ENOKEY with a line that says where was looked, and what to do; never with a secret. Others:
 * -ENOMEM, -ECANCELED, -EINVAL of a reference that is none. */
int credentials_find(const struct credentials_query *query, struct credentials *ret_credentials,
	struct err *e) __must_check;

/* Whether both have the same keys and token. */
bool credentials_same(const struct credentials *a, const struct credentials *b);

/* Region and endpoint only, of the environment and the profile: a failure is none. What is not
 * found stays NULL. Asks no service. */
void credentials_find_settings(
	const struct credentials_query *query, struct credentials *ret_credentials);

/* "anonymous". */
bool credentials_are_none(const char *reference);

/* Whether a file is named, which somebody may change. */
bool credentials_of_file(const char *reference);

/* Wipes the secrets. */
void credentials_release(struct credentials *credentials);

/*
 * Takes what the section [name] or [profile name] of an INI text says into members that are still
 * NULL. -ENOENT when there is no such section. Unknown keys and lines that are no assignment are
 * skipped, as Amazon's tools do.
 */
int credentials_parse(const char *text, size_t len, const char *name,
	struct credentials *credentials) __must_check;
