/*
 * How a bucket is reached, as a person says it on a command line: the same words for every command
 * that takes a URL.
 *
 * Strings are borrowed, mostly from the arguments. Threads: one.
 */
#pragma once

#include <jansson.h>
#include <limits.h>
#include <stdbool.h>
#include "base/option.h"
#include "ufs/ufs.h"

struct origin_options {
	const char *endpoint;
	const char *region;
	bool path_style;
	const char *profile;
	bool anonymous;
	const char *credentials;
	bool requester_pays;
	const char *versions;
	const char *ca_file;
};

/* For the table of a command whose struct `type` has a struct origin_options `member`. */
#define ORIGIN_OPTION_ROWS(type, member)                                                       \
	OPTION_STRING_ROW(type, member.endpoint, "endpoint", "URL",                            \
		"URL of the S3 server, such as http://127.0.0.1:9000 (default: "               \
		"that of the provider)"),                                                      \
		OPTION_STRING_ROW(type, member.region, "region", "NAME",                       \
			"Region of the bucket (default: AWS_REGION, that of the "              \
			"profile, or us-east-1)"),                                             \
		OPTION_BOOL_ROW(type, member.path_style, "path-style",                         \
			"Name the bucket in the path, not in the host name (default: "         \
			"as the endpoint allows)"),                                            \
		OPTION_STRING_ROW(type, member.profile, "profile-name", "NAME",                \
			"Section of the shared credentials file (default: AWS_PROFILE, "       \
			"or default)"),                                                        \
		OPTION_ROW(type, member.profile, "profile", OPTION_STRING, .metavar = "NAME",  \
			.hidden = true, .help = "Same as --profile-name"),                     \
		OPTION_BOOL_ROW(type, member.anonymous, "anonymous",                           \
			"Send no credentials: a public bucket (default: send them)"),          \
		OPTION_STRING_ROW(type, member.credentials, "credentials", "REF",              \
			"Reference to the keys, not the keys: env:PREFIX_, file:/PATH, "       \
			"profile:NAME, web-identity, container, imds or anonymous "            \
			"(default: the places where Amazon's tools look)"),                    \
		OPTION_BOOL_ROW(type, member.requester_pays, "requester-pays",                 \
			"Pay for the requests, as some buckets require (default: no)"),        \
		OPTION_ROW(type, member.versions, "versions", OPTION_CHOICE,                   \
			.choices = "auto|on|off",                                              \
			.help = "Read objects by version id, where the bucket keeps versions " \
				"(default: auto)"),                                            \
		OPTION_STRING_ROW(type, member.ca_file, "ca-file", "FILE",                     \
			"File or directory of the certificates that sign that of the "         \
			"endpoint (default: those of the system)")

/* The first of them that was given, "--endpoint"; NULL: none. */
const char *origin_options_given(const struct origin_options *o);

/* Do they fit each other, and `url` of that scheme? -EINVAL with a line. */
int origin_options_check(const struct origin_options *o, const char *url, enum ufs_scheme scheme,
	struct err *e) __must_check;

/* Daemons have another working directory: ca_file becomes a path from the root, in `real`, which lives
 * as long as `o`. A negative errno with a line when it cannot be read. */
int origin_options_resolve(
	struct origin_options *o, char real[PATH_MAX], struct err *e) __must_check;

/*
 * Adds what was given to a request's body, as the master names it; of endpoint and region what this
 * environment says of `url` (NULL: it is not asked). A failure is counted (admin_json_failures()).
 */
void origin_options_json(json_t *to, const struct origin_options *o, const char *url);

/* For an origin that this process opens itself. -EINVAL, -ENOMEM with a line; then there is nothing to
 * release. */
int origin_options_config(const struct origin_options *o, const char *url,
	struct ufs_config *ret_config, struct err *e) __must_check;

/* What a dataset's mount in the master's answer says, or the arguments of a mount's daemon; borrowed
 * from them. */
void origin_options_of_dataset(const json_t *mount, struct origin_options *ret);
void origin_options_of_args(const json_t *args, struct origin_options *ret);
