/* What a request says of a dataset, checked. See dataset.h. */
#include "base/cleanup.h"
#include "base/units.h"
#include "master/dataset.h"

#include <string.h>

/* ---- sources --------------------------------------------------------------------------------- */

static int take_text(const json_t *json, const char *name, char **ret, struct err *e)
{
	const json_t *value = json_object_get(json, name);
	const char *text = json_string_value(value);

	if (!value || json_is_null(value))
		return 0;
	if (!text || !*text || strlen(text) > DATASET_TEXT_BYTES ||
		strlen(text) != json_string_length(value))
		return err_set(e, -EINVAL, "'%s' must be a string of 1 to %u bytes", name,
			DATASET_TEXT_BYTES);
	free(*ret);
	*ret = strdup(text);
	return *ret ? 0 : err_set(e, -ENOMEM, "out of memory");
}

static int take_bool(const json_t *json, const char *name, bool *ret, struct err *e)
{
	const json_t *value = json_object_get(json, name);

	if (!value || json_is_null(value))
		return 0;
	if (!json_is_boolean(value))
		return err_set(e, -EINVAL, "'%s' must be true or false", name);
	*ret = json_is_true(value);
	return 0;
}

/* The text of JSON that is among `choices`, whose number is returned; -EINVAL with a line. */
static int take_choice(const json_t *value, const char *name, const char *const *choices,
	unsigned int n, struct err *e)
{
	const char *text = json_string_value(value);
	char all[128] = "";

	for (unsigned int i = 0; i < n; i++) {
		size_t len = strlen(all);

		if (text && strcmp(text, choices[i]) == 0)
			return (int)i;
		(void)snprintf(all + len, sizeof(all) - len, "%s%s", i ? ", " : "",
			choices[i]); /* few and short */
	}
	return err_set(e, -EINVAL, "'%s' must be one of %s", name, all);
}

static int check_members(
	const json_t *json, const char *const *known, size_t n, const char *of, struct err *e)
{
	const char *name;
	const json_t *value;

	json_object_foreach ((json_t *)(uintptr_t)json, name, value) {
		bool found = false;

		for (size_t i = 0; i < n; i++)
			found |= strcmp(name, known[i]) == 0;
		if (!found)
			return err_set(e, -EINVAL, "%s has no field '%.64s': see docs/openapi.yaml",
				of, name);
	}
	return 0;
}

static int take_config(const json_t *json, struct dataset_mount *m, struct err *e)
{
	static const char *const versions[] = { "auto", "on", "off" };
	const json_t *how = json_object_get(json, "versions");
	struct ufs_config *c = &m->config;
	int r = take_text(json, "endpoint", &c->endpoint, e);

	if (r == 0)
		r = take_text(json, "region", &c->region, e);
	if (r == 0)
		r = take_text(json, "profile", &c->profile, e);
	if (r == 0)
		r = take_text(json, "credentials", &c->credentials, e);
	if (r == 0)
		r = take_text(json, "ca_file", &c->ca_file, e);
	if (r == 0)
		r = take_bool(json, "path_style", &c->path_style, e);
	if (r == 0)
		r = take_bool(json, "anonymous", &c->anonymous, e);
	if (r == 0)
		r = take_bool(json, "requester_pays", &c->requester_pays, e);
	if (r == 0 && how) {
		r = take_choice(how, "versions", versions, ARRAY_SIZE(versions), e);
		if (r >= 0)
			c->versions = (enum ufs_versions)r;
		r = min(r, 0);
	}
	if (r == 0 && c->credentials)
		r = ufs_credentials_check(c->credentials, e);
	if (r == 0 && c->scheme == UFS_FILE &&
		(c->endpoint || c->region || c->profile || c->credentials || c->anonymous))
		r = err_set(e, -EINVAL,
			"endpoint, region, profile, credentials and anonymous do not apply to %s: "
			"leave them out",
			m->url);
	return r;
}

/* Those who reach an origin with other credentials share no bytes, unless it is asked for. */
static int take_scope(const struct dataset *d, struct dataset_mount *m, struct err *e)
{
	struct ufs_config *c = &m->config;
	const char *scope = d->cache_scope ? d->cache_scope : c->credentials;
	char profile[DATASET_TEXT_BYTES + 16];

	if (!scope && c->profile) {
		(void)snprintf(profile, sizeof(profile), "profile:%s", c->profile); /* fits */
		scope = profile;
	}
	free(TAKE(c->scope));
	if (!scope)
		return 0;
	c->scope = strdup(scope);
	return c->scope ? 0 : err_set(e, -ENOMEM, "out of memory");
}

static int volume_of(const struct dataset_mount *m, struct volume_id *ret, struct err *e)
{
	_cleanup_(buf_release) struct buf text = BUF_INIT(2 * LIMIT_URL_BYTES);
	int r = ufs_config_source(&m->config, &text, e);

	if (r < 0)
		return err_default(e, r, m->url);
	volume_id_of_source(buf_str(&text), ret);
	return 0;
}

int dataset_path_normal(const char *path, char out[DATASET_PATH_BYTES], struct err *e)
{
	const char *at = path;
	size_t len = 0;

	if (path[0] != '/' || strlen(path) >= DATASET_PATH_BYTES)
		return err_set(e, -EINVAL,
			"invalid path '%.200s' in a dataset: start it with '/' and use at most %u "
			"bytes",
			path, DATASET_PATH_BYTES - 1);
	while (*(at += strspn(at, "/"))) {
		size_t part = strcspn(at, "/");

		if ((part == 1 && at[0] == '.') || (part == 2 && at[0] == '.' && at[1] == '.') ||
			part > LIMIT_NAME_BYTES)
			return err_set(e, -EINVAL,
				"invalid path '%.200s' in a dataset: '.', '..' and names over %u "
				"bytes are not allowed",
				path, LIMIT_NAME_BYTES);
		out[len++] = '/';
		memcpy(out + len, at, part); /* no longer than it was */
		len += part;
		at += part;
	}
	if (len == 0)
		out[len++] = '/';
	out[len] = '\0';
	return 0;
}

static int take_path(const json_t *json, struct dataset_mount *m, struct err *e)
{
	_cleanup_free_ char *path = NULL;
	char normal[DATASET_PATH_BYTES];
	int r = take_text(json, "path", &path, e);

	if (r == 0)
		r = dataset_path_normal(path ? path : "/", normal, e);
	if (r < 0)
		return r;
	m->path = strdup(normal);
	return m->path ? 0 : err_set(e, -ENOMEM, "out of memory");
}

static const char *const mount_members[] = { "path", "url", "endpoint", "region", "profile",
	"credentials", "ca_file", "path_style", "anonymous", "requester_pays", "versions" };

static int take_mount(
	struct dataset *d, const json_t *json, const struct source_rules *rules, struct err *e)
{
	struct dataset_mount *m = &d->mounts[d->n_mounts++];
	int r;

	*m = (struct dataset_mount){ 0 };
	if (!json_is_object(json))
		return err_set(
			e, -EINVAL, "each of 'mounts' must be an object with 'path' and 'url'");
	r = check_members(json, mount_members, ARRAY_SIZE(mount_members), "a mount", e);
	if (r == 0)
		r = take_text(json, "url", &m->url, e);
	if (r == 0 && !m->url)
		r = err_set(e, -EINVAL, "a mount needs a 'url'");
	if (r == 0)
		r = take_path(json, m, e);
	if (r == 0)
		r = ufs_config_parse(m->url, &m->config, e);
	if (r == 0)
		r = take_config(json, m, e);
	if (r == 0)
		r = source_rules_check(
			rules, &m->config, NULL, e); /* before anything is looked up */
	if (r == 0)
		r = take_scope(d, m, e);
	return r == 0 ? volume_of(m, &m->volume, e) : r;
}

static int compare_paths(const void *a, const void *b)
{
	return strcmp(
		((const struct dataset_mount *)a)->path, ((const struct dataset_mount *)b)->path);
}

static int take_mounts(
	struct dataset *d, const json_t *json, const struct source_rules *rules, struct err *e)
{
	const json_t *one;
	size_t i;
	int r = 0;

	if (json_array_size(json) == 0 || json_array_size(json) > DATASET_MOUNTS_MAX)
		return err_set(e, -EINVAL,
			"a dataset needs 'mounts', an array of 1 to %u objects with 'url'",
			DATASET_MOUNTS_MAX);
	json_array_foreach (json, i, one)
		if (r == 0)
			r = take_mount(d, one, rules, e);
	if (r < 0)
		return r;
	qsort(d->mounts, d->n_mounts, sizeof(d->mounts[0]), compare_paths);
	for (uint32_t k = 1; k < d->n_mounts; k++)
		if (strcmp(d->mounts[k - 1].path, d->mounts[k].path) == 0)
			return err_set(e, -EINVAL,
				"two sources have the path %.200s: give each its own path",
				d->mounts[k].path);
	return 0;
}

/* ---- another way to a source ----------------------------------------------------------------- */

static int check_volumes(const struct dataset *d, struct err *e)
{
	for (uint32_t i = 0; i < d->n_mounts; i++) {
		const struct dataset_mount *m = &d->mounts[i];
		struct volume_id volume;
		int r = volume_of(m, &volume, e);

		if (r < 0)
			return r;
		if (!volume_id_equal(&volume, &m->volume))
			return err_set(e, -EINVAL,
				"%s would become another source, without the data that is cached: "
				"endpoint and cache scope (by default the reference to "
				"credentials) cannot change: give its present scope, too (cachectl "
				"dataset show %s), or create another dataset",
				m->url, d->name);
	}
	return 0;
}

/* What is said anew of the mount at its path. */
static int change_mount(
	struct dataset *d, const json_t *json, const struct source_rules *rules, struct err *e)
{
	_cleanup_(ufs_config_release) struct ufs_config before = { 0 };
	const char *path = json_string_value(json_object_get(json, "path"));
	const struct dataset_mount *found;
	struct dataset_mount *m;
	int r;

	if (!json_is_object(json))
		return err_set(e, -EINVAL, "each of 'mounts' must be an object with 'path'");
	if (json_object_get(json, "url"))
		return err_set(
			e, -EINVAL, "the URL of a source cannot change: create another dataset");
	r = check_members(json, mount_members, ARRAY_SIZE(mount_members), "a mount", e);
	if (r < 0)
		return r;
	found = path ? dataset_mount_at(d, path) : d->n_mounts == 1 ? &d->mounts[0] : NULL;
	if (!found)
		return err_set(e, -EINVAL,
			"unknown or missing 'path' of a source of %s: give one that cachectl "
			"dataset show lists",
			d->name);
	m = &d->mounts[found - d->mounts];
	if (ufs_config_copy(&m->config, &before) < 0)
		return err_set(e, -ENOMEM, "out of memory");
	/* One of them says where the keys are. */
	if (json_object_get(json, "credentials") || json_object_get(json, "profile") ||
		json_object_get(json, "anonymous")) {
		free(TAKE(m->config.credentials));
		free(TAKE(m->config.profile));
		m->config.anonymous = false;
	}
	r = take_config(json, m, e);
	if (!rules && json_object_get(json, "endpoint"))
		m->config.no_local = false;
	return r == 0 ? source_rules_check(rules, &m->config, &before, e) : r;
}

/* Null takes the scope away; what comes of it must be the sources that there are. */
static int change_ways(
	struct dataset *d, const json_t *body, const struct source_rules *rules, struct err *e)
{
	const json_t *scope = json_object_get(body, "cache_scope");
	const json_t *mounts = json_object_get(body, "mounts");
	const json_t *one;
	size_t i;
	int r = 0;

	if (!scope && !mounts)
		return 0;
	if (mounts && (!json_is_array(mounts) || json_array_size(mounts) > DATASET_MOUNTS_MAX))
		return err_set(e, -EINVAL, "'mounts' must be an array of at most %u objects",
			DATASET_MOUNTS_MAX);
	json_array_foreach (mounts, i, one)
		if (r == 0)
			r = change_mount(d, one, rules, e);
	if (scope)
		free(TAKE(d->cache_scope));
	if (r == 0)
		r = take_text(body, "cache_scope", &d->cache_scope, e);
	for (uint32_t k = 0; k < d->n_mounts && r == 0; k++)
		r = take_scope(d, &d->mounts[k], e);
	return r == 0 ? check_volumes(d, e) : r;
}

/* ---- settings -------------------------------------------------------------------------------- */

static int take_number(
	const json_t *value, const char *name, uint64_t most, uint64_t *ret, struct err *e)
{
	if (json_is_null(value)) {
		*ret = 0;
		return 0;
	}
	if (!json_is_integer(value) || json_integer_value(value) < 0 ||
		(uint64_t)json_integer_value(value) > most)
		return err_set(e, -EINVAL, "'%s' must be a number from 0 to %llu", name,
			(unsigned long long)most);
	*ret = (uint64_t)json_integer_value(value);
	return 0;
}

static void set_part(struct policy_change *policy, unsigned int part, const json_t *value)
{
	if (json_is_null(value))
		policy->parts &= ~part;
	else
		policy->parts |= part;
}

static int take_caps(struct policy_change *policy, const json_t *body, struct err *e)
{
	const json_t *value;
	int r = 0;

	if ((value = json_object_get(body, "origin_bandwidth"))) {
		r = take_number(
			value, "origin_bandwidth", INT64_MAX, &policy->to.origin_bandwidth, e);
		set_part(policy, POLICY_BANDWIDTH, value);
	}
	if (r == 0 && (value = json_object_get(body, "origin_requests"))) {
		r = take_number(
			value, "origin_requests", INT32_MAX, &policy->to.origin_requests, e);
		set_part(policy, POLICY_REQUESTS, value);
	}
	return r;
}

/* How the cluster serves it. A number may be written as one, or as a text. */
static int take_spread(struct policy_change *policy, const json_t *body, struct err *e)
{
	const json_t *value = json_object_get(body, "copies");

	if (value) {
		char number[COPIES_NAME_BYTES] = "";
		const char *text = json_is_string(value) ? json_string_value(value) : number;

		if (json_is_integer(value))
			(void)snprintf(number, sizeof(number), "%" JSON_INTEGER_FORMAT,
				json_integer_value(value)); /* cut: is none */
		policy->to.copies = COPIES_AUTO;
		if (!json_is_null(value) && copies_parse(text, &policy->to.copies) < 0)
			return err_set(e, -EINVAL, "'copies' is " COPIES_ALLOWED);
		set_part(policy, POLICY_COPIES, value);
	}
	if ((value = json_object_get(body, "direct"))) {
		policy->to.direct = false;
		set_part(policy, POLICY_DIRECT, value);
		return take_bool(body, "direct", &policy->to.direct, e);
	}
	return 0;
}

static int take_policy(struct policy_change *policy, const json_t *body, struct err *e)
{
	static const char *const evict[] = { "never", "lru" };
	const json_t *value;
	uint64_t number = 0;
	int r = 0;

	if ((value = json_object_get(body, "quota"))) {
		r = take_number(value, "quota", INT64_MAX, &policy->to.quota, e);
		set_part(policy, POLICY_QUOTA, value);
	}
	if (r == 0 && (value = json_object_get(body, "priority"))) {
		r = take_number(value, "priority", PRIORITY_MAX, &number, e);
		if (r == 0)
			policy->to.priority = (int32_t)number;
		set_part(policy, POLICY_PRIORITY, value);
	}
	if (r == 0 && (value = json_object_get(body, "pin"))) {
		policy->to.pin = false;
		r = take_bool(body, "pin", &policy->to.pin, e);
		set_part(policy, POLICY_PIN, value);
	}
	if (r == 0 && (value = json_object_get(body, "evict"))) {
		int n = json_is_null(value)
				? 0
				: take_choice(value, "evict", evict, ARRAY_SIZE(evict), e);

		if (n < 0)
			return n;
		policy->to.evict = (enum tier_evict)n;
		set_part(policy, POLICY_EVICT, value);
	}
	if (r == 0)
		r = take_spread(policy, body, e);
	return r == 0 ? take_caps(policy, body, e) : r;
}

/* An array of forms, each kept once; null: administrators only. */
static int take_allow(struct dataset *d, const json_t *body, struct err *e)
{
	_cleanup_(buf_release) struct buf all = BUF_INIT(CLAIMS_ALLOW_MAX * CLAIMS_FORM_BYTES);
	const json_t *value = json_object_get(body, "allow");
	const json_t *one;
	size_t i;
	int r = 0;

	if (!value)
		return 0;
	if (!json_is_null(value) &&
		(!json_is_array(value) || json_array_size(value) > CLAIMS_ALLOW_MAX))
		return err_set(e, -EINVAL, "'allow' must be an array of at most %u strings",
			CLAIMS_ALLOW_MAX);
	json_array_foreach (value, i, one) {
		const char *form = json_string_value(one);

		if (r == 0)
			r = claims_check_form(form ? form : "", e);
		if (r == 0)
			r = buf_printf(&all, "%s%s", all.len ? "," : "", form);
	}
	if (r < 0)
		return err_default(e, r, "out of memory");
	free(TAKE(d->allow));
	d->allow = all.len ? strdup(buf_str(&all)) : NULL;
	return all.len && !d->allow ? err_set(e, -ENOMEM, "out of memory") : 0;
}

static int take_name(struct dataset *d, const json_t *body, struct err *e)
{
	const json_t *value = json_object_get(body, "name");
	const char *name = json_string_value(value);
	int r;

	if (!value)
		return 0;
	if (!name)
		return err_set(e, -EINVAL, "'name' must be a string");
	r = dataset_check_name(name, e);
	if (r == 0)
		memcpy(d->name, name, strlen(name) + 1); /* fits: checked */
	return r;
}

int dataset_apply(struct dataset *d, const json_t *body, bool create,
	const struct source_rules *rules, struct err *e)
{
	static const char *const known[] = { "name", "mounts", "cache_scope", "quota", "priority",
		"pin", "evict", "origin_bandwidth", "origin_requests", "copies", "direct", "idle_s",
		"ttl_s", "consistency", "interval_s", "allow" };
	const json_t *value;
	int r;

	if (!json_is_object(body))
		return err_set(e, -EINVAL, "the request needs a JSON object as its body");
	r = check_members(body, known, ARRAY_SIZE(known), "a dataset", e);
	if (r == 0)
		r = take_name(d, body, e);
	if (r == 0 && create && !d->name[0])
		r = err_set(e, -EINVAL, "a dataset needs a 'name'");
	if (r == 0 && !create)
		r = change_ways(d, body, rules, e);
	if (r == 0 && create)
		r = take_text(body, "cache_scope", &d->cache_scope, e);
	if (r == 0 && create)
		r = take_mounts(d, json_object_get(body, "mounts"), rules, e);
	if (r == 0)
		r = take_allow(d, body, e);
	if (r == 0)
		r = take_policy(&d->policy, body, e);
	if (r == 0 && (value = json_object_get(body, "idle_s")))
		r = take_number(value, "idle_s", INT32_MAX, &d->idle_s, e);
	if (r == 0 && (value = json_object_get(body, "ttl_s")))
		r = take_number(value, "ttl_s", INT32_MAX, &d->ttl_s, e);
	if (r == 0)
		r = dataset_take_consistency(d, body, e);
	return r;
}
