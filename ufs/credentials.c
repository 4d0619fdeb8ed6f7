/* Finding the keys of an S3 account. See credentials.h. */
#include "ufs/credentials.h"
#include "base/buf.h"
#include "base/cleanup.h"
#include "base/file.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CREDENTIALS_FILE_MAX (1u << 20)
#define CREDENTIALS_PATH_MAX 4096

static void wipe(char **s)
{
	if (*s)
		explicit_bzero(*s, strlen(*s));
	free(*s);
	*s = NULL;
}

void credentials_release(struct credentials *credentials)
{
	wipe(&credentials->access_key);
	wipe(&credentials->secret_key);
	wipe(&credentials->session_token);
	wipe(&credentials->region);
	wipe(&credentials->endpoint);
	wipe(&credentials->place);
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

/* A piece of the text. */
struct span {
	const char *s;
	size_t len;
};

static bool blank(char c)
{
	return c == ' ' || c == '\t' || c == '\r' || c == '\f' || c == '\v';
}

static struct span trim(struct span t)
{
	while (t.len && blank(t.s[0])) {
		t.s++;
		t.len--;
	}
	while (t.len && blank(t.s[t.len - 1]))
		t.len--;
	return t;
}

static bool span_is(struct span t, const char *s)
{
	return t.len == strlen(s) && memcmp(t.s, s, t.len) == 0;
}

/* "[name]", "[ profile name ]", perhaps with a comment behind. */
static bool is_section(struct span line, const char *name)
{
	const char *end = memchr(line.s, ']', line.len);
	struct span inside;

	if (!end)
		return false;
	inside = trim((struct span){ line.s + 1, (size_t)(end - line.s) - 1 });
	if (inside.len > 8 && memcmp(inside.s, "profile", 7) == 0 && blank(inside.s[7]))
		inside = trim((struct span){ inside.s + 7, inside.len - 7 });
	return span_is(inside, name);
}

/* A '#' or ';' after a blank begins a comment. */
static struct span without_comment(struct span t)
{
	for (size_t i = 1; i < t.len; i++)
		if ((t.s[i] == '#' || t.s[i] == ';') && blank(t.s[i - 1])) {
			t.len = i;
			break;
		}
	return trim(t);
}

static int take(char **member, struct span value)
{
	if (*member || value.len == 0)
		return 0;
	*member = strndup(value.s, value.len);
	return *member ? 0 : -ENOMEM;
}

/* Ways to keys that are not gone. */
static const char *find_setting(struct span name)
{
	static const char *const settings[] = { "credential_process", "sso_session",
		"sso_start_url", "role_arn", "web_identity_token_file", "credential_source",
		"login_session" };

	for (size_t i = 0; i < ARRAY_SIZE(settings); i++)
		if (span_is(name, settings[i]))
			return settings[i];
	return NULL;
}

static int assign(struct span line, struct credentials *c)
{
	const char *equals = memchr(line.s, '=', line.len);
	struct span name;
	struct span value;

	if (!equals)
		return 0;
	name = trim((struct span){ line.s, (size_t)(equals - line.s) });
	value = without_comment(
		trim((struct span){ equals + 1, line.len - (size_t)(equals - line.s) - 1 }));
	if (span_is(name, "aws_access_key_id"))
		return take(&c->access_key, value);
	if (span_is(name, "aws_secret_access_key"))
		return take(&c->secret_key, value);
	if (span_is(name, "aws_session_token"))
		return take(&c->session_token, value);
	if (span_is(name, "region"))
		return take(&c->region, value);
	if (span_is(name, "endpoint_url"))
		return take(&c->endpoint, value);
	if (!c->setting && value.len)
		c->setting = find_setting(name);
	return 0;
}

int credentials_parse(
	const char *text, size_t len, const char *name, struct credentials *credentials)
{
	bool found = false;
	bool inside = false;
	size_t at = 0;

	if (len >= 3 && memcmp(text, "\xef\xbb\xbf", 3) == 0)
		at = 3; /* a byte order mark of some editors */
	while (at < len) {
		const char *newline = memchr(text + at, '\n', len - at);
		size_t n = newline ? (size_t)(newline - text) - at : len - at;
		bool nested = blank(text[at]); /* a nested setting ("s3 =" and indented lines) */
		struct span line = trim((struct span){ text + at, n });
		int r = 0;

		at += n + 1;
		if (line.len == 0 || line.s[0] == '#' || line.s[0] == ';')
			continue;
		if (line.s[0] == '[') {
			inside = is_section(line, name);
			found |= inside;
		} else if (inside && !nested) {
			r = assign(line, credentials);
		}
		if (r < 0)
			return r;
	}
	return found ? 0 : -ENOENT;
}

static const char *environment(const char *name)
{
	const char *s = getenv(name);

	return s && *s ? s : NULL;
}

/* The file a variable names, or one below the home directory; "" when there is no home. */
static void find_path(const char *variable, const char *below_home, char *out, size_t size)
{
	const char *path = environment(variable);
	const char *home = environment("HOME");
	int n;

	if (path)
		n = snprintf(out, size, "%s", path);
	else if (home)
		n = snprintf(out, size, "%s/%s", home, below_home);
	else
		n = -1;
	if (n < 0 || (size_t)n >= size)
		out[0] = '\0';
}

static int read_profile(const char *path, const char *profile, struct credentials *c, struct err *e)
{
	_cleanup_(buf_release) struct buf text = BUF_INIT(CREDENTIALS_FILE_MAX);
	int r;

	if (!*path)
		return -ENOENT;
	r = file_read_all(path, &text);
	if (r == 0)
		r = credentials_parse(buf_str(&text), text.len, profile, c);
	else if (r != -ENOENT && r != -ENOTDIR)
		r = err_set(e, -ENOKEY, "credentials file %s: %s", path, err_str(r));
	else
		r = -ENOENT;
	if (text.data)
		explicit_bzero(text.data, text.len);
	return r;
}

static int from_environment(struct credentials *c)
{
	static const struct {
		const char *name;
		size_t member;
	} table[] = {
		{ "AWS_ACCESS_KEY_ID", offsetof(struct credentials, access_key) },
		{ "AWS_SECRET_ACCESS_KEY", offsetof(struct credentials, secret_key) },
		{ "AWS_SESSION_TOKEN", offsetof(struct credentials, session_token) },
	};

	if (!environment(table[0].name) || !environment(table[1].name))
		return 0; /* half a pair is none */
	for (size_t i = 0; i < ARRAY_SIZE(table); i++) {
		const char *value = environment(table[i].name);
		char **member = (char **)(void *)((char *)c + table[i].member);

		if (!value)
			continue;
		*member = strdup(value);
		if (!*member)
			return -ENOMEM;
	}
	c->place = strdup("AWS_ACCESS_KEY_ID of the environment");
	return c->place ? 0 : -ENOMEM;
}

/* Region and endpoint of the environment go before the profile's. */
static int settings_from_environment(struct credentials *c)
{
	const char *region = environment("AWS_REGION");
	const char *endpoint = environment("AWS_ENDPOINT_URL_S3");

	region = region ? region : environment("AWS_DEFAULT_REGION");
	endpoint = endpoint ? endpoint : environment("AWS_ENDPOINT_URL");
	if (region && !(c->region = strdup(region)))
		return -ENOMEM;
	if (endpoint && !(c->endpoint = strdup(endpoint)))
		return -ENOMEM;
	return 0;
}

/* What a person reads when there are no keys. */
static int missing(const char *profile, const struct credentials *c, bool incomplete,
	const char *credentials_path, const char *config_path, struct err *e)
{
	const char *id = environment("AWS_ACCESS_KEY_ID");
	const char *secret = environment("AWS_SECRET_ACCESS_KEY");
	const char *found = incomplete ? "incomplete in" : "not found in";

	credentials_path = *credentials_path ? credentials_path : "(no HOME)";
	config_path = *config_path ? config_path : "(no HOME)";

	if (c->setting)
		return err_set(e, -ENOKEY,
			"no S3 credentials: profile \"%.100s\" gets its keys by %s, which is not "
			"supported; put keys into the environment (aws configure "
			"export-credentials --profile %.100s --format env) or into %.200s",
			profile, c->setting, profile, credentials_path);
	if (id && secret) /* which a profile that is named goes before */
		return err_set(e, -ENOKEY,
			"no S3 credentials: profile \"%.100s\" %s %.200s and in %.200s; write it "
			"there with aws_access_key_id and aws_secret_access_key, or leave out "
			"--profile-name to use AWS_ACCESS_KEY_ID of the environment",
			profile, found, credentials_path, config_path);
	return err_set(e, -ENOKEY,
		"no S3 credentials: %s not set, profile \"%.100s\" %s %.200s and in %.200s; set "
		"the variables, or write the profile with aws_access_key_id and "
		"aws_secret_access_key, or use --anonymous for a public bucket",
		id       ? "AWS_SECRET_ACCESS_KEY"
		: secret ? "AWS_ACCESS_KEY_ID"
			 : "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY",
		profile, found, credentials_path, config_path);
}

static int set_place(struct credentials *c, const char *path, const char *profile)
{
	if (c->place || !c->access_key || !c->secret_key)
		return 0;
	return asprintf(&c->place, "profile %s of %s", profile, path) < 0 ? -ENOMEM : 0;
}

/* Region and endpoint of the profile beside keys that are there already. */
static int settings_of_profile(
	const char *config_path, const char *profile, struct credentials *c, struct err *e)
{
	_cleanup_(credentials_release) struct credentials more = { 0 };
	int r = read_profile(config_path, profile, &more, e);

	if (r == -ENOMEM)
		return r;
	if (!c->region)
		c->region = TAKE(more.region);
	if (!c->endpoint)
		c->endpoint = TAKE(more.endpoint);
	return 0; /* there need not be a file */
}

static int from_files(const char *profile, struct credentials *c, struct err *e)
{
	char credentials_path[CREDENTIALS_PATH_MAX];
	char config_path[CREDENTIALS_PATH_MAX];
	struct err why = ERR_INIT;
	int first;
	int second;

	find_path("AWS_SHARED_CREDENTIALS_FILE", ".aws/credentials", credentials_path,
		sizeof(credentials_path));
	find_path("AWS_CONFIG_FILE", ".aws/config", config_path, sizeof(config_path));
	if (c->access_key && c->secret_key)
		return settings_of_profile(config_path, profile, c, e);
	first = read_profile(credentials_path, profile, c, &why);
	if (first == 0)
		first = set_place(c, credentials_path, profile);
	second = read_profile(config_path, profile, c, why.code ? NULL : &why);
	if (second == 0)
		second = set_place(c, config_path, profile);
	if (first == -ENOMEM || second == -ENOMEM)
		return err_set(e, -ENOMEM, "credentials: no memory");
	if (c->access_key && c->secret_key)
		return 0;
	if (why.code)
		return err_set(e, why.code, "%s", why.text);
	return missing(profile, c, first == 0 || second == 0, credentials_path, config_path, e);
}

/* Fills `c` as far as it gets; the caller releases it. */
static int search(const char *profile, struct credentials *c, struct err *e)
{
	int r = profile ? 0 : from_environment(c);

	if (!profile)
		profile = environment("AWS_PROFILE");
	if (r == 0)
		r = settings_from_environment(c);
	if (r == 0)
		r = from_files(profile ? profile : "default", c, e);
	return r < 0 ? err_default(e, r, "credentials") : 0;
}

int credentials_find(const char *profile, struct credentials *ret_credentials, struct err *e)
{
	struct credentials c = { 0 };
	int r = search(profile, &c, e);

	if (r < 0)
		credentials_release(&c);
	else
		*ret_credentials = c;
	return r;
}

void credentials_find_settings(const char *profile, struct credentials *ret_credentials)
{
	struct credentials c = { 0 };
	int r = search(profile, &c, NULL);

	(void)r; /* keys are not needed here */
	*ret_credentials = c;
}
