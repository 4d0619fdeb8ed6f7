/* Finding the keys of an account: the search, and references. See credentials.h. */
#include "ufs/credentials_internal.h"
#include "base/cleanup.h"
#include "base/secret.h"
#include "ufs/ufs.h"

#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void forget(char **member)
{
	free(*member);
	*member = NULL;
}

void credentials_forget_keys(struct credentials *c)
{
	forget(&c->access_key);
	secret_free(c->secret_key);
	secret_free(c->session_token);
	c->secret_key = c->session_token = NULL;
}

void credentials_release(struct credentials *credentials)
{
	credentials_forget_keys(credentials);
	forget(&credentials->region);
	forget(&credentials->endpoint);
	forget(&credentials->place);
	forget(&credentials->role_arn);
	forget(&credentials->role_session);
	forget(&credentials->token_file);
}

static bool same_text(const char *a, const char *b)
{
	return a == b || (a && b && strcmp(a, b) == 0);
}

bool credentials_same(const struct credentials *a, const struct credentials *b)
{
	return same_text(a->access_key, b->access_key) && same_text(a->secret_key, b->secret_key) &&
	       same_text(a->session_token, b->session_token);
}

const char *credentials_variable(const char *name)
{
	const char *s = getenv(name); // NOLINT(concurrency-mt-unsafe): read only

	return s && *s ? s : NULL;
}

int credentials_take(char **member, const char *text, size_t len)
{
	if (*member || len == 0)
		return 0;
	*member = strndup(text, len);
	return *member ? 0 : -ENOMEM;
}

int credentials_take_secret(char **member, const char *text, size_t len)
{
	if (*member || len == 0)
		return 0;
	*member = secret_text(text, len);
	return *member ? 0 : -ENOMEM;
}

int credentials_place(struct credentials *c, const char *fmt, ...)
{
	char *place = NULL;
	va_list ap;
	int n;

	va_start(ap, fmt);
	n = vasprintf(&place, fmt, ap);
	va_end(ap);
	if (n < 0)
		return -ENOMEM; /* what `place` holds is not said then */
	forget(&c->place);
	c->place = place;
	return 0;
}

/* ---- the environment ------------------------------------------------------------------------- */

/* The value of PREFIX and a name; NULL: not set. */
static const char *prefixed(const char *prefix, const char *name)
{
	char variable[256];

	if (snprintf(variable, sizeof(variable), "%s%s", prefix, name) >= (int)sizeof(variable))
		return NULL;
	return credentials_variable(variable);
}

/* -ENOENT: half a pair is none. */
static int of_environment(const char *prefix, struct credentials *c)
{
	const char *key = prefixed(prefix, "ACCESS_KEY_ID");
	const char *secret = prefixed(prefix, "SECRET_ACCESS_KEY");
	const char *token = prefixed(prefix, "SESSION_TOKEN");
	int r;

	if (!key || !secret)
		return -ENOENT;
	token = token ? token : prefixed(prefix, "SECURITY_TOKEN"); /* as OBS calls it */
	r = credentials_take(&c->access_key, key, strlen(key));
	if (r == 0)
		r = credentials_take_secret(&c->secret_key, secret, strlen(secret));
	if (r == 0 && token)
		r = credentials_take_secret(&c->session_token, token, strlen(token));
	if (r == 0)
		r = credentials_place(c, "%sACCESS_KEY_ID of the environment", prefix);
	return r;
}

static int find_in_environment(
	const struct credentials_query *query, struct credentials *c, struct err *e)
{
	(void)e;
	return of_environment(query->obs ? "OBS_" : "AWS_", c);
}

const struct credentials_provider credentials_environment = { "env", find_in_environment };

/* Region and endpoint of the environment go before the profile's. */
static int settings_of_environment(const struct credentials_query *query, struct credentials *c)
{
	static const char *const names[2][2][2] = {
		{ { "AWS_REGION", "AWS_DEFAULT_REGION" },
			{ "AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL" } },
		{ { "OBS_REGION", "OBS_REGION" }, { "OBS_ENDPOINT", "OBS_ENDPOINT" } },
	};
	char **const members[2] = { &c->region, &c->endpoint };
	int r = 0;

	for (size_t i = 0; i < 2 && r == 0; i++) {
		const char *value = credentials_variable(names[query->obs][i][0]);

		value = value ? value : credentials_variable(names[query->obs][i][1]);
		if (value)
			r = credentials_take(members[i], value, strlen(value));
	}
	return r;
}

/* ---- references ------------------------------------------------------------------------------ */

/* What follows "word:"; NULL: it is no such reference. */
static const char *after_word(const char *reference, const char *word)
{
	size_t n = strlen(word);

	return strncmp(reference, word, n) == 0 && reference[n] == ':' ? reference + n + 1 : NULL;
}

bool credentials_are_none(const char *reference)
{
	return reference && strcmp(reference, "anonymous") == 0;
}

bool credentials_of_file(const char *reference)
{
	return reference && after_word(reference, "file");
}

/* The provider that a single word names. */
static const struct credentials_provider *provider_named(const char *name)
{
	static const struct credentials_provider *const all[] = { &credentials_web_identity,
		&credentials_container, &credentials_imds };

	for (size_t i = 0; i < ARRAY_SIZE(all); i++)
		if (strcmp(all[i]->name, name) == 0)
			return all[i];
	return NULL;
}

static bool is_variable(const char *s)
{
	if (!*s || isdigit((unsigned char)*s) || strlen(s) > 200)
		return false;
	for (; *s; s++)
		if (!isalnum((unsigned char)*s) && *s != '_')
			return false;
	return true;
}

int ufs_credentials_check(const char *reference, struct err *e)
{
	const char *rest = after_word(reference, "env");

	if (rest && !is_variable(rest))
		return err_set(e, -EINVAL,
			"credentials \"%.100s\": invalid prefix; write env: and the prefix of the "
			"variables, such as env:TEAM_ for TEAM_ACCESS_KEY_ID",
			reference);
	if (rest)
		return 0;
	rest = after_word(reference, "file");
	if (rest && *rest != '/')
		return err_set(e, -EINVAL,
			"credentials \"%.100s\": the path must be absolute; write it as "
			"file:/PATH or file:/PATH#SECTION",
			reference);
	if (rest && strlen(rest) < CREDENTIALS_PATH_MAX)
		return 0;
	rest = after_word(reference, "profile");
	if ((rest && *rest) || credentials_are_none(reference) || provider_named(reference))
		return 0;
	return err_set(e, -EINVAL,
		"credentials \"%.*s%s\": unknown form; write env:PREFIX_, file:/PATH, "
		"profile:NAME, web-identity, container, imds or anonymous",
		(int)min(strcspn(reference, ":"), 40u), reference,
		strchr(reference, ':') ? ":..." : ""); /* somebody's keys, perhaps */
}

/* One that was asked for alone. */
static int ask(const struct credentials_provider *provider, const struct credentials_query *query,
	struct credentials *c, struct err *e)
{
	struct err line = ERR_INIT;
	int r = provider->find(query, c, &line);

	if (r == 0)
		return 0;
	return err_set(e, r == -ENOENT ? -ENOKEY : r, "%s",
		line.code ? line.text : "no setting names their source");
}

static int of_prefix(const char *prefix, struct credentials *c, struct err *e)
{
	int r = of_environment(prefix, c);

	if (r != -ENOENT)
		return r;
	return err_set(e, -ENOKEY, "%s%s is not set in the environment of this process", prefix,
		prefixed(prefix, "ACCESS_KEY_ID") ? "SECRET_ACCESS_KEY" : "ACCESS_KEY_ID");
}

static int by_reference(const struct credentials_query *query, struct credentials *c, struct err *e)
{
	const char *reference = query->reference;
	const struct credentials_provider *provider = provider_named(reference);
	struct credentials_query named = *query;
	const char *rest;
	int r = ufs_credentials_check(reference, e);

	if (r < 0)
		return r;
	if ((rest = after_word(reference, "env")) != NULL)
		r = of_prefix(rest, c, e);
	else if ((rest = after_word(reference, "file")) != NULL)
		r = credentials_of_path(rest, c, e);
	else if ((named.profile = after_word(reference, "profile")) != NULL)
		r = ask(&credentials_profiles, &named, c, e);
	else if (!provider)
		return 0; /* "anonymous" */
	else if (query->obs)
		r = err_set(e, -EINVAL, "obs:// supports env:, file: and profile: only");
	else
		r = ask(provider, query, c, e);
	if (r < 0 && e && e->code) {
		e->code = r;
		(void)err_prefix(e, "credentials \"%.200s\"", reference);
	}
	return r;
}

/* ---- the search ------------------------------------------------------------------------------ */

static int missing_obs(struct err *e)
{
	return err_set(e, -ENOKEY,
		"no OBS credentials: OBS_ACCESS_KEY_ID and OBS_SECRET_ACCESS_KEY are not both "
		"set; set them, or name a profile or --credentials, or use --anonymous for a "
		"public bucket");
}

static int search(const struct credentials_query *query, struct credentials *c, struct err *e)
{
	static const struct credentials_provider *const all[] = { &credentials_environment,
		&credentials_web_identity, &credentials_profiles, &credentials_container,
		&credentials_imds };
	struct err line = ERR_INIT;
	size_t n = query->obs ? 1 : ARRAY_SIZE(all);
	int r = -ENOENT;

	if (query->profile)
		return credentials_profiles.find(query, c, e);
	for (size_t i = 0; i < n && r == -ENOENT; i++) {
		struct err why = ERR_INIT;

		r = all[i]->find(query, c, &why);
		if (r < 0 && (r != -ENOENT || all[i] == &credentials_profiles))
			line = why; /* which names everything that can be done */
	}
	if (r == -ENOENT && query->obs)
		return missing_obs(e);
	if (r == -ENOENT)
		return err_set(e, -ENOKEY, "%s", line.text);
	return r < 0 && line.code ? err_set(e, r, "%s", line.text) : r;
}

/* Whose region and endpoint count. */
static int settings(const struct credentials_query *query, struct credentials *c)
{
	const char *profile = query->reference ? after_word(query->reference, "profile") : NULL;
	const char *path = query->reference ? after_word(query->reference, "file") : NULL;
	int r = settings_of_environment(query, c);

	if (r == 0 && path)
		return credentials_path_settings(path, c);
	if (r < 0 || (query->reference && !profile) || (query->obs && !query->profile && !profile))
		return r;
	return credentials_profile_settings(profile ? profile : query->profile, c);
}

int credentials_find(
	const struct credentials_query *query, struct credentials *ret_credentials, struct err *e)
{
	struct credentials c = { 0 };
	int r = settings(query, &c); /* a service of tokens has a region too */

	if (r == 0)
		r = query->reference ? by_reference(query, &c, e) : search(query, &c, e);
	if (r < 0) {
		credentials_release(&c);
		return err_default(e, r, "credentials");
	}
	*ret_credentials = c;
	return 0;
}

void credentials_find_settings(
	const struct credentials_query *query, struct credentials *ret_credentials)
{
	struct credentials c = { 0 };
	int r = settings(query, &c);

	(void)r; /* without memory the request that follows says so */
	*ret_credentials = c;
}
