/* What a mount asked of daemons that run already. See cache_settings.h. */
#include "admin/cache_settings.h"
#include "base/hash.h"
#include "base/units.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool is_set(const char *name)
{
	const char *value = getenv(name); // NOLINT(concurrency-mt-unsafe): read only

	return value && *value;
}

void cache_settings_digest(const json_t *body, char out[CACHE_SETTINGS_DIGEST_SIZE])
{
	static const char *const names[2][13] = {
		{ "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN",
			"AWS_SECURITY_TOKEN", "AWS_PROFILE", "AWS_SHARED_CREDENTIALS_FILE",
			"AWS_CONFIG_FILE", "HOME", "AWS_ROLE_ARN", "AWS_WEB_IDENTITY_TOKEN_FILE",
			"AWS_CONTAINER_CREDENTIALS_FULL_URI",
			"AWS_CONTAINER_CREDENTIALS_RELATIVE_URI" },
		{ "OBS_ACCESS_KEY_ID", "OBS_SECRET_ACCESS_KEY", "OBS_SESSION_TOKEN",
			"OBS_SECURITY_TOKEN" },
	};
	const char *url = json_string_value(json_object_get(body, "source"));
	const char *const *of = names[url && strncasecmp(url, "obs:", 4) == 0];
	bool keys = is_set(of[0]) && is_set(of[1]);
	size_t n = keys ? 4 : ARRAY_SIZE(names[0]); /* with keys no file is looked into */
	uint8_t digest[SHA256_BYTES] = { 0 };
	struct hash_sha256 *hash = hash_sha256_new();

	for (size_t i = 0; hash && i < n && of[i]; i++) {
		const char *value = getenv(of[i]); // NOLINT(concurrency-mt-unsafe): read only

		if (value)
			hash_sha256_update(hash, value, strlen(value));
		hash_sha256_update(hash, "", 1);
	}
	if (hash)
		hash_sha256_final(hash, digest);
	hash_hex(digest, (CACHE_SETTINGS_DIGEST_SIZE - 1) / 2, out);
}

static int add(json_t *body, const char *name, json_t *value)
{
	return json_object_set_new(body, name, value) == 0 ? 0 : -ENOMEM;
}

int cache_settings_add(json_t *body, const struct cache_settings *settings)
{
	char digest[CACHE_SETTINGS_DIGEST_SIZE];
	int r = 0;

	if (settings->capacity)
		r = add(body, "cache_size", json_integer((json_int_t)settings->capacity));
	if (r == 0 && settings->memory)
		r = add(body, "memory", json_integer((json_int_t)settings->memory));
	if (r == 0 && settings->log_level)
		r = add(body, "log_level", json_string(settings->log_level));
	if (r == 0 && settings->credentials) {
		cache_settings_digest(body, digest);
		r = add(body, "credentials", json_string(digest));
	}
	return r;
}

static void list(char *out, const char *name, const char *value)
{
	size_t len = strlen(out);

	(void)snprintf(out + len, CACHE_SETTINGS_NOTICE_MAX - len, "%s%s%s", len ? ", " : "", name,
		value); /* fits: few and short */
}

static void list_size(char *out, const char *name, const json_t *asked, uint64_t in_force)
{
	char size[16];

	if (json_is_integer(asked) && (uint64_t)json_integer_value(asked) != in_force)
		list(out, name,
			units_size((uint64_t)json_integer_value(asked), size, sizeof(size)));
}

/* Than this process has. */
static bool has_other_credentials(const json_t *body)
{
	const char *digest = json_string_value(json_object_get(body, "credentials"));
	char mine[CACHE_SETTINGS_DIGEST_SIZE];

	cache_settings_digest(body, mine);
	return digest && strcmp(digest, mine) != 0;
}

int cache_settings_check_credentials(const json_t *body, struct err *e)
{
	if (!has_other_credentials(body) ||
		json_is_true(json_object_get(body, "existing_credentials")))
		return 0;
	return err_set(e, -EKEYREJECTED,
		"the credentials of this mount differ from those of the cache, and were not "
		"checked: mount with `cachectl mount`, which checks them, or with "
		"--use-existing-credentials");
}

void cache_settings_notice(const json_t *body, const struct cache_settings *in_force,
	char out[CACHE_SETTINGS_NOTICE_MAX])
{
	const char *level = json_string_value(json_object_get(body, "log_level"));
	char ignored[CACHE_SETTINGS_NOTICE_MAX / 2] = "";

	out[0] = '\0';
	list_size(out, "--cache-size ", json_object_get(body, "cache_size"), in_force->capacity);
	list_size(out, "--memory ", json_object_get(body, "memory"), in_force->memory);
	if (level && strcmp(level, in_force->log_level) != 0)
		list(out, "--log-level ", level);
	if (has_other_credentials(body))
		list(out, "", "the credentials of this environment");
	if (!out[0])
		return;
	(void)snprintf(ignored, sizeof(ignored), "%.250s", out);
	(void)snprintf(out, CACHE_SETTINGS_NOTICE_MAX,
		"ignored %s: the cache is already mounted with other settings: unmount all of its "
		"mounts to change them, or give another --cache",
		ignored);
}
