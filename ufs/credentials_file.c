/*
 * Credentials in files: profiles as Amazon's tools write them, one file that is named, and a
 * directory with a file per value. See credentials.h.
 */
#include "ufs/credentials_internal.h"
#include "base/cleanup.h"
#include "base/file.h"
#include "base/secret.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define MOVES_MAX 3u /* of a directory of values while it is read */

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

/* Ways to keys that are not gone. */
static const char *find_setting(struct span name)
{
	static const char *const settings[] = { "credential_process", "sso_session",
		"sso_start_url", "source_profile", "credential_source", "login_session" };

	for (size_t i = 0; i < ARRAY_SIZE(settings); i++)
		if (span_is(name, settings[i]))
			return settings[i];
	return NULL;
}

static int assign(struct span line, struct credentials *c)
{
	static const struct {
		const char *name;
		size_t member;
		bool secret;
	} table[] = {
		{ "aws_access_key_id", offsetof(struct credentials, access_key), false },
		{ "aws_secret_access_key", offsetof(struct credentials, secret_key), true },
		{ "aws_session_token", offsetof(struct credentials, session_token), true },
		{ "region", offsetof(struct credentials, region), false },
		{ "endpoint_url", offsetof(struct credentials, endpoint), false },
		{ "role_arn", offsetof(struct credentials, role_arn), false },
		{ "role_session_name", offsetof(struct credentials, role_session), false },
		{ "web_identity_token_file", offsetof(struct credentials, token_file), false },
	};
	const char *equals = memchr(line.s, '=', line.len);
	struct span name;
	struct span value;

	if (!equals)
		return 0;
	name = trim((struct span){ line.s, (size_t)(equals - line.s) });
	value = without_comment(
		trim((struct span){ equals + 1, line.len - (size_t)(equals - line.s) - 1 }));
	for (size_t i = 0; i < ARRAY_SIZE(table); i++) {
		char **member = (char **)(void *)((char *)c + table[i].member);

		if (span_is(name, table[i].name))
			return table[i].secret ? credentials_take_secret(member, value.s, value.len)
					       : credentials_take(member, value.s, value.len);
	}
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

/* ---- profiles -------------------------------------------------------------------------------- */

/* The file a variable names, or one below the home directory; "" when there is no home. */
static void find_path(const char *variable, const char *below_home, char *out, size_t size)
{
	const char *path = credentials_variable(variable);
	const char *home = credentials_variable("HOME");
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
	struct buf text = BUF_INIT(CREDENTIALS_FILE_MAX);
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
	secret_release_buf(&text);
	return r;
}

/* What a person reads when there are no keys. */
static int missing(const char *profile, const struct credentials *c, bool incomplete,
	const char *credentials_path, const char *config_path, struct err *e)
{
	const char *id = credentials_variable("AWS_ACCESS_KEY_ID");
	const char *secret = credentials_variable("AWS_SECRET_ACCESS_KEY");
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
	return credentials_place(c, "profile %s of %s", profile, path);
}

/* A profile that says how to get keys by a web identity. */
static int assume(const struct credentials_query *query, struct credentials *c, struct err *e)
{
	_cleanup_free_ char *file = TAKE(c->token_file);
	_cleanup_free_ char *role = TAKE(c->role_arn);
	_cleanup_free_ char *session = TAKE(c->role_session);

	return credentials_assume(query, file, role, session, c, e);
}

static int find_in_profiles(
	const struct credentials_query *query, struct credentials *c, struct err *e)
{
	const char *profile = query->profile ? query->profile : credentials_variable("AWS_PROFILE");
	char credentials_path[CREDENTIALS_PATH_MAX];
	char config_path[CREDENTIALS_PATH_MAX];
	struct err why = ERR_INIT;
	int first;
	int second;

	profile = profile ? profile : "default";
	find_path("AWS_SHARED_CREDENTIALS_FILE", ".aws/credentials", credentials_path,
		sizeof(credentials_path));
	find_path("AWS_CONFIG_FILE", ".aws/config", config_path, sizeof(config_path));
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
	if (c->token_file && c->role_arn)
		return assume(query, c, e);
	if (!c->setting && c->role_arn)
		c->setting = "role_arn";
	(void)missing(profile, c, first == 0 || second == 0, credentials_path, config_path, e);
	credentials_forget_keys(c);
	/* Somebody is to go on only where nothing is said. */
	return c->setting || query->profile ? -ENOKEY : -ENOENT;
}

const struct credentials_provider credentials_profiles = { "profile", find_in_profiles };

/* What is not said yet. */
static void take_settings(struct credentials *c, struct credentials *more)
{
	if (!c->region)
		c->region = TAKE(more->region);
	if (!c->endpoint)
		c->endpoint = TAKE(more->endpoint);
}

int credentials_profile_settings(const char *profile, struct credentials *c)
{
	_cleanup_(credentials_release) struct credentials more = { 0 };
	char path[CREDENTIALS_PATH_MAX];
	int r;

	profile = profile ? profile : credentials_variable("AWS_PROFILE");
	profile = profile ? profile : "default";
	find_path("AWS_SHARED_CREDENTIALS_FILE", ".aws/credentials", path, sizeof(path));
	r = read_profile(path, profile, &more, NULL);
	find_path("AWS_CONFIG_FILE", ".aws/config", path, sizeof(path));
	if (r != -ENOMEM)
		r = read_profile(path, profile, &more, NULL);
	if (r == -ENOMEM)
		return r;
	take_settings(c, &more);
	return 0; /* there need not be a file */
}

/* ---- what is named --------------------------------------------------------------------------- */

int credentials_read_line(const char *path, const char *what, struct buf *out, struct err *e)
{
	int r = file_read_all(path, out);
	size_t at = 0;

	if (r == -ENOBUFS)
		return err_set(e, -ENOKEY, "%s %s: longer than %zu bytes", what, path, out->max);
	if (r < 0)
		return err_set(e, r == -ENOMEM ? r : -ENOKEY, "%s %s: %s", what, path, err_str(r));
	while (out->len && isspace((unsigned char)out->data[out->len - 1]))
		out->len--;
	while (at < out->len && isspace((unsigned char)out->data[at]))
		at++;
	buf_consume(out, at);
	if (out->len == 0)
		return err_set(e, -ENOKEY, "%s %s: empty", what, path);
	out->data[out->len] = '\0';
	for (size_t i = 0; i < out->len; i++)
		if ((unsigned char)out->data[i] <= ' ' || out->data[i] == 0x7f)
			return err_set(e, -ENOKEY,
				"%s %s: contains a blank, a newline or a control character: it "
				"must contain one value, and nothing else",
				what, path);
	return 0;
}

/* A value of a directory by the names that it may have there. -ENOENT: none of them is there. */
static int take_value(const char *dir, const char *const names[3],
	int (*take)(char **member, const char *text, size_t len), char **member, struct err *e)
{
	char path[CREDENTIALS_PATH_MAX + 64];
	int r = -ENOENT;

	for (size_t i = 0; i < 3 && names[i] && r == -ENOENT; i++) {
		struct buf text = BUF_INIT(CREDENTIALS_TOKEN_MAX);
		struct stat st;

		(void)snprintf(path, sizeof(path), "%s/%s", dir, names[i]); /* fits: see below */
		if (stat(path, &st) != 0 && errno == ENOENT)
			continue;
		r = credentials_read_line(path, "credentials file", &text, e);
		if (r == 0)
			r = take(member, text.data, text.len);
		secret_release_buf(&text);
	}
	return r;
}

static int of_values(const char *dir, struct credentials *c, struct err *e)
{
	static const char *const key[] = { "access-key-id", "AWS_ACCESS_KEY_ID",
		"aws_access_key_id" };
	static const char *const secret[] = { "secret-access-key", "AWS_SECRET_ACCESS_KEY",
		"aws_secret_access_key" };
	static const char *const token[] = { "session-token", "AWS_SESSION_TOKEN",
		"aws_session_token" };
	const char *absent = key[0];
	int r = take_value(dir, key, credentials_take, &c->access_key, e);

	if (r == 0) {
		absent = secret[0];
		r = take_value(dir, secret, credentials_take_secret, &c->secret_key, e);
	}
	if (r == -ENOENT)
		return err_set(e, -ENOKEY,
			"file %s not found in %s; the directory must contain access-key-id, "
			"secret-access-key and, for temporary keys, session-token (or "
			"AWS_ACCESS_KEY_ID and so on)",
			absent, dir);
	if (r == 0)
		r = take_value(dir, token, credentials_take_secret, &c->session_token, e);
	return r == -ENOENT ? 0 : r;
}

/* As a Kubernetes Secret is mounted: its values are put there anew by moving ..data, a link to the
 * directory that they lie in. All come from one such directory, so that no key has the secret of
 * another one; when it goes meanwhile, they are read from the next one. */
static int of_directory(const char *dir, struct credentials *c, struct err *e)
{
	char link[CREDENTIALS_PATH_MAX + 8];
	int r;

	(void)snprintf(link, sizeof(link), "%s/..data", dir); /* fits */
	for (unsigned int i = 0; i < MOVES_MAX; i++) {
		_cleanup_free_ char *before = realpath(link, NULL);
		_cleanup_free_ char *after = NULL;
		struct err why = ERR_INIT;

		r = of_values(before ? before : dir, c, &why);
		after = realpath(link, NULL);
		if (!before || (after && strcmp(before, after) == 0))
			return r == 0 ? 0 : err_set(e, r, "%s", why.code ? why.text : err_str(r));
		credentials_forget_keys(c);
	}
	return err_set(
		e, -ENOKEY, "credentials of %s: changed during each attempt to read them", dir);
}

static int of_file(const char *path, const char *section, struct credentials *c, struct err *e)
{
	struct err why = ERR_INIT;
	int r = read_profile(path, section, c, &why);

	if (why.code || r == -ENOMEM)
		return err_set(e, r, "%s", why.code ? why.text : "credentials: no memory");
	if (r == 0 && c->access_key && c->secret_key)
		return 0;
	if (r < 0)
		return err_set(e, -ENOKEY, "credentials file %s: %s [%s]", path,
			access(path, F_OK) == 0 ? "no section"
						: "not found; create it with section",
			section);
	return err_set(e, -ENOKEY, "credentials file %s: %s is missing in section [%s]", path,
		c->access_key ? "aws_secret_access_key" : "aws_access_key_id", section);
}

/* "PATH#SECTION" */
static int split_path(
	const char *path, char file[CREDENTIALS_PATH_MAX], const char **ret_section, struct err *e)
{
	const char *hash = strchr(path, '#');
	size_t n = hash ? (size_t)(hash - path) : strlen(path);

	if (n >= CREDENTIALS_PATH_MAX) {
		(void)err_set(e, -EINVAL, "file:%.60s...: the path is too long", path);
		return -EINVAL;
	}
	memcpy(file, path, n);
	file[n] = '\0';
	*ret_section = hash && hash[1] ? hash + 1 : "default";
	return 0;
}

static bool is_directory(const char *path)
{
	struct stat st;

	return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

int credentials_path_settings(const char *path, struct credentials *c)
{
	_cleanup_(credentials_release) struct credentials more = { 0 };
	char file[CREDENTIALS_PATH_MAX];
	const char *section;

	if (split_path(path, file, &section, NULL) < 0 || is_directory(file))
		return 0;
	if (read_profile(file, section, &more, NULL) == -ENOMEM)
		return -ENOMEM;
	take_settings(c, &more);
	return 0; /* what is wrong with it is said when its keys are needed */
}

int credentials_of_path(const char *path, struct credentials *c, struct err *e)
{
	char file[CREDENTIALS_PATH_MAX];
	const char *section;
	int r = split_path(path, file, &section, e);

	if (r == 0)
		r = is_directory(file) ? of_directory(file, c, e) : of_file(file, section, c, e);
	if (r < 0)
		return r;
	return credentials_place(c, "file:%s", path);
}
