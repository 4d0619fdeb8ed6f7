/* Sources as configured: URLs in, canonical text out. See ufs.h. */
#include "ufs/ufs.h"
#include "ufs/credentials.h"
#include "ufs/s3_place.h"
#include "base/cleanup.h"
#include "base/file.h"

#include <ctype.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void ufs_config_release(struct ufs_config *config)
{
	free(config->endpoint);
	free(config->region);
	free(config->bucket);
	free(config->prefix);
	free(config->profile);
	free(config->credentials);
	free(config->ca_file);
	free(config->scope);
	*config = (struct ufs_config){ 0 };
}

int ufs_versions_parse(const char *text, enum ufs_versions *ret_versions, struct err *e)
{
	static const char *const names[] = {
		[UFS_VERSIONS_AUTO] = "auto", [UFS_VERSIONS_ON] = "on", [UFS_VERSIONS_OFF] = "off"
	};

	for (size_t i = 0; i < ARRAY_SIZE(names); i++)
		if (strcmp(text ? text : "auto", names[i]) == 0) {
			*ret_versions = (enum ufs_versions)i;
			return 0;
		}
	return err_set(e, -EINVAL, "invalid versions \"%.40s\": use auto, on or off", text);
}

/* The first of two variables that is set, by the scheme. */
static const char *of_environment(const char *url, const char *const names[2][2])
{
	bool obs = strncasecmp(url, "obs:", 4) == 0;

	for (size_t i = 0; i < 2; i++) {
		const char *value =
			getenv(names[obs][i]); // NOLINT(concurrency-mt-unsafe): read only

		if (value && *value && strncasecmp(url, "file:", 5) != 0)
			return value;
	}
	return NULL;
}

const char *ufs_environment_endpoint(const char *url)
{
	static const char *const names[2][2] = { { "AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL" },
		{ "OBS_ENDPOINT", "OBS_ENDPOINT" } };

	return of_environment(url, names);
}

const char *ufs_environment_region(const char *url)
{
	static const char *const names[2][2] = { { "AWS_REGION", "AWS_DEFAULT_REGION" },
		{ "OBS_REGION", "OBS_REGION" } };

	return of_environment(url, names);
}

bool ufs_environment_has_keys(const char *url)
{
	static const char *const names[2][2] = { { "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY" },
		{ "OBS_ACCESS_KEY_ID", "OBS_SECRET_ACCESS_KEY" } };

	return of_environment(url, names) != NULL;
}

static int copy_string(const char *from, char **ret_copy)
{
	if (!from)
		return 0;
	*ret_copy = strdup(from);
	return *ret_copy ? 0 : -ENOMEM;
}

int ufs_config_copy(const struct ufs_config *from, struct ufs_config *ret_config)
{
	struct ufs_config to = {
		.scheme = from->scheme,
		.resolved = from->resolved,
		.no_local = from->no_local,
		.path_style = from->path_style,
		.anonymous = from->anonymous,
		.requester_pays = from->requester_pays,
		.versions = from->versions,
	};
	int r = copy_string(from->endpoint, &to.endpoint);

	if (r == 0)
		r = copy_string(from->region, &to.region);
	if (r == 0)
		r = copy_string(from->bucket, &to.bucket);
	if (r == 0)
		r = copy_string(from->prefix, &to.prefix);
	if (r == 0)
		r = copy_string(from->profile, &to.profile);
	if (r == 0)
		r = copy_string(from->credentials, &to.credentials);
	if (r == 0)
		r = copy_string(from->ca_file, &to.ca_file);
	if (r == 0)
		r = copy_string(from->scope, &to.scope);
	if (r < 0) {
		ufs_config_release(&to);
		return r;
	}
	*ret_config = to;
	return 0;
}

/* `s` without a '/' in front, with one behind unless empty. */
static char *normal_prefix(const char *s)
{
	size_t n;
	char *out;

	s += strspn(s, "/");
	n = strlen(s);
	out = malloc(n + 2);
	if (!out)
		return NULL;
	memcpy(out, s, n);
	if (n && s[n - 1] != '/')
		out[n++] = '/';
	out[n] = '\0';
	return out;
}

/* A URL as lines may say it: without keys that somebody put before an '@'. */
static const char *shown(const char *url)
{
	const char *at = strrchr(url, '@');

	return at ? at + 1 : url;
}

static int parse_bucket(const char *url, const char *scheme, const char *rest,
	struct ufs_config *config, struct err *e)
{
	size_t n = strcspn(rest, "/");

	if (n == 0)
		return err_set(e, -EINVAL,
			"\"%.200s\": no bucket; write it as %s://BUCKET[/PREFIX]", shown(url),
			scheme);
	for (size_t i = 0; i < n; i++)
		if (!isalnum((unsigned char)rest[i]) && !strchr("-._", rest[i]))
			return err_set(e, -EINVAL,
				"\"%.200s\": '%c' cannot be part of a bucket's name; write it as "
				"%s://BUCKET[/PREFIX]",
				shown(url), rest[i], scheme);
	config->scheme = strcmp(scheme, "obs") == 0 ? UFS_OBS : UFS_S3;
	config->bucket = strndup(rest, n);
	config->prefix = normal_prefix(rest + n);
	if (!config->bucket || !config->prefix)
		return err_set(e, -ENOMEM, "\"%.200s\": no memory", url);
	if (n > 255 || strlen(config->prefix) > LIMIT_KEY_BYTES)
		return err_set(e, -EINVAL,
			"\"%.200s\": too long; a bucket has at most 255, a prefix at most %u bytes",
			url, LIMIT_KEY_BYTES);
	return 0;
}

/* Repeated '/' and "." parts go; ".." stays for realpath() to resolve. */
static char *normal_dir(const char *path)
{
	char *out = malloc(strlen(path) + 3);
	size_t n = 0;

	if (!out)
		return NULL;
	out[n++] = '/';
	while (*path) {
		size_t part;

		path += strspn(path, "/");
		part = strcspn(path, "/");
		if (part && !(part == 1 && path[0] == '.')) {
			memcpy(out + n, path, part);
			n += part;
			out[n++] = '/';
		}
		path += part;
	}
	out[n] = '\0';
	return out;
}

static int parse_file(const char *url, const char *rest, struct ufs_config *config, struct err *e)
{
	if (rest[0] != '/')
		return err_set(e, -EINVAL,
			"\"%.200s\": the directory must be absolute; write it as file:///DIRECTORY",
			url);
	config->scheme = UFS_FILE;
	config->prefix = normal_dir(rest);
	return config->prefix ? 0 : err_set(e, -ENOMEM, "\"%.200s\": no memory", url);
}

int ufs_config_parse(const char *url, struct ufs_config *ret_config, struct err *e)
{
	struct ufs_config config = { 0 };
	int r;

	if (strlen(url) > LIMIT_URL_BYTES)
		r = err_set(e, -EINVAL, "\"%.60s...\": a URL has at most %u bytes", shown(url),
			LIMIT_URL_BYTES);
	else if (strncasecmp(url, "s3://", 5) == 0)
		r = parse_bucket(url, "s3", url + 5, &config, e);
	else if (strncasecmp(url, "obs://", 6) == 0)
		r = parse_bucket(url, "obs", url + 6, &config, e);
	else if (strncasecmp(url, "file://", 7) == 0)
		r = parse_file(url, url + 7, &config, e);
	else
		r = err_set(e, -EINVAL,
			"\"%.200s\": not a source; write it as s3://BUCKET[/PREFIX], "
			"obs://BUCKET[/PREFIX] or file:///DIRECTORY",
			shown(url));
	if (r < 0) {
		ufs_config_release(&config);
		return r;
	}
	*ret_config = config;
	return 0;
}

/* This machine's id, so that equal paths of two machines are two sources. */
static int host_id(struct buf *out)
{
	static const char *const files[] = { "/etc/machine-id", "/var/lib/dbus/machine-id" };
	char name[256];

	for (size_t i = 0; i < ARRAY_SIZE(files); i++) {
		_cleanup_(buf_release) struct buf text = BUF_INIT(4096);

		if (file_read_all(files[i], &text) < 0)
			continue;
		while (text.len && isspace((unsigned char)text.data[text.len - 1]))
			text.len--;
		if (text.len)
			return buf_append(out, text.data, text.len);
	}
	if (gethostname(name, sizeof(name)) != 0)
		return err_errno();
	name[sizeof(name) - 1] = '\0';
	return buf_puts(out, name);
}

int ufs_config_resolve(struct ufs_config *config)
{
	_cleanup_free_ char *real = NULL;
	char *prefix = NULL;

	if (config->scheme != UFS_FILE || config->resolved)
		return 0;
	real = realpath(config->prefix, NULL);
	if (!real || asprintf(&prefix, "%s%s", real, real[1] ? "/" : "") < 0)
		return real ? -ENOMEM : err_errno();
	free(config->prefix);
	config->prefix = prefix;
	config->resolved = true;
	return 0;
}

static int file_source(const struct ufs_config *config, struct buf *out, struct err *e)
{
	_cleanup_(ufs_config_release) struct ufs_config real = { 0 };
	int r = ufs_config_copy(config, &real);

	if (r == 0)
		r = ufs_config_resolve(&real);
	if (r < 0)
		return err_set(e, r, "directory \"%s\": %s; the source must exist", config->prefix,
			err_str(r));
	r = buf_puts(out, "file|");
	if (r == 0)
		r = host_id(out);
	if (r == 0)
		r = buf_printf(out, "|%s", real.prefix);
	return r < 0 ? err_set(e, r, "directory \"%s\": %s", config->prefix, err_str(r)) : 0;
}

/* Names of buckets are one name space for all regions, but endpoints need not be OBS's own. */
static int obs_source(const struct ufs_config *config, const char *endpoint, const char *region,
	struct buf *out, struct err *e)
{
	char authority[S3_HOST_MAX + 8];
	struct s3_place place;
	int r = s3_place_init(
		&place, endpoint, region, config->bucket, config->path_style, true, e);

	if (r < 0)
		return r;
	s3_endpoint_authority(&place.endpoint, authority, sizeof(authority));
	r = buf_printf(out, "obs|%s://%s|%s|%s", place.endpoint.tls ? "https" : "http", authority,
		config->bucket, config->prefix);
	return r < 0 ? err_set(e, r, "source: %s", err_str(r)) : 0;
}

/* Names of buckets are unique within each of these. */
static const char *amazons_of(const char *region)
{
	if (strncmp(region, "cn-", 3) == 0)
		return "https://s3.amazonaws.com.cn";
	if (strncmp(region, "us-gov-", 7) == 0)
		return "https://s3.us-gov.amazonaws.com";
	return "https://s3.amazonaws.com";
}

/*
 * Amazon's buckets are one name space for all regions of a partition: its regional endpoints are
 * one source, and the id of a volume does not depend on the region in the options of a process.
 */
static int s3_source(const struct ufs_config *config, struct buf *out, struct err *e)
{
	_cleanup_(credentials_release) struct credentials found = { 0 };
	const char *text = config->endpoint;
	const struct credentials_query query = {
		.reference = config->credentials,
		.profile = config->profile,
		.obs = config->scheme == UFS_OBS,
	};
	struct s3_endpoint endpoint;
	char authority[S3_HOST_MAX + 8];
	int r;

	if (!text || (query.obs && !config->region)) { /* as an origin that is opened finds it */
		credentials_find_settings(&query, &found);
		text = text ? text : found.endpoint;
	}
	if (query.obs)
		return obs_source(
			config, text, config->region ? config->region : found.region, out, e);
	if (!text || !*text)
		text = amazons_of(config->region ? config->region : "");
	r = s3_endpoint_parse(text, &endpoint, e);
	if (r < 0)
		return r;
	if (s3_endpoint_is_aws(&endpoint)) {
		bool cn = endpoint.host[strlen(endpoint.host) - 1] == 'n';
		bool gov = strstr(endpoint.host, "us-gov") != NULL;
		(void)snprintf(endpoint.host, sizeof(endpoint.host), "s3.%samazonaws.com%s",
			gov ? "us-gov." : "", cn ? ".cn" : ""); /* fits */
	}
	s3_endpoint_authority(&endpoint, authority, sizeof(authority));
	r = buf_printf(out, "s3|%s://%s|%s|%s", endpoint.tls ? "https" : "http", authority,
		config->bucket, config->prefix);
	return r < 0 ? err_set(e, r, "source: %s", err_str(r)) : 0;
}

/* A prefix may hold anything, but ends with a '/': what has a scope never does, and is no other
 * source without one. */
static int put_scope(const char *scope, struct buf *out)
{
	size_t n = strlen(scope);

	return buf_printf(out, "|scope=%s%s", scope, n && scope[n - 1] == '/' ? "|" : "");
}

int ufs_config_source(const struct ufs_config *config, struct buf *out, struct err *e)
{
	int r = config->scheme == UFS_FILE ? file_source(config, out, e)
					   : s3_source(config, out, e);

	if (r == 0 && config->scope && put_scope(config->scope, out) < 0)
		return err_set(
			e, -EINVAL, "the scope of the source is too long: give a shorter one");
	return r;
}
