/* What a dataset is to be. See dataset_body.h. */
#include "ctl/dataset_body.h"
#include "admin/admin.h"
#include "base/claims.h"
#include "base/cleanup.h"
#include "base/units.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

struct dataset_options dataset_options_default(void)
{
	return (struct dataset_options){ .output = "table",
		.quota = DATASET_UNSET,
		.priority = DATASET_UNSET,
		.bandwidth = DATASET_UNSET,
		.idle = DATASET_UNSET,
		.ttl = DATASET_UNSET,
		.interval = DATASET_UNSET,
		.check = true };
}

/* Adds a member unless there is no value; failures are counted, and looked at by the caller. */
static void add(json_t *json, const char *name, json_t *value)
{
	if (value)
		(void)json_object_set_new(json, name, value);
}

static void add_text(json_t *json, const char *name, const char *text)
{
	if (text)
		add(json, name, json_string(text));
}

static void add_number(json_t *json, const char *name, uint64_t value)
{
	if (value != DATASET_UNSET)
		add(json, name, json_integer((json_int_t)value));
}

static void add_seconds(json_t *json, const char *name, uint64_t ns)
{
	if (ns != DATASET_UNSET)
		add(json, name, json_integer((json_int_t)(ns / CLOCK_SECOND)));
}

/* ---- what is wanted of its bytes ------------------------------------------------------------- */

/* "200/s", "200" */
static int parse_requests(const char *text, uint64_t *ret, struct err *e)
{
	char *end;

	if (strcmp(text, "none") == 0) {
		*ret = 0;
		return 0;
	}
	errno = 0;
	*ret = strtoull(text, &end, 10);
	if (errno || !isdigit((unsigned char)text[0]) || (*end && strcmp(end, "/s") != 0) ||
		*ret > INT32_MAX)
		return err_set(e, -EINVAL,
			"--origin-requests: '%.40s' is not a rate; write requests per "
			"second, such as 200/s, or none",
			text);
	return 0;
}

static int add_caps(json_t *body, const struct dataset_options *o, struct err *e)
{
	uint64_t rate = 0;
	int r = 0;

	add_number(body, "origin_bandwidth", o->bandwidth);
	if (o->requests)
		r = parse_requests(o->requests, &rate, e);
	if (r == 0 && o->requests)
		add_number(body, "origin_requests", rate);
	return r;
}

static int add_defaults(json_t *body, const struct dataset_options *o, struct err *e)
{
	static const char *const members[][2] = { { "quota", "quota" }, { "priority", "priority" },
		{ "pin", "pin" }, { "evict", "evict" }, { "origin-bandwidth", "origin_bandwidth" },
		{ "origin-requests", "origin_requests" }, { "copies", "copies" },
		{ "direct", "direct" }, { "idle", "idle_s" }, { "ttl", "ttl_s" },
		{ "allow", "allow" } };

	for (unsigned int i = 0; i < o->reset.n; i++) {
		bool found = false;

		for (size_t k = 0; k < ARRAY_SIZE(members); k++)
			if (strcmp(o->reset.values[i], members[k][0]) == 0) {
				add(body, members[k][1], json_null());
				found = true;
			}
		if (!found)
			return err_set(e, -EINVAL,
				"--default: '%s' is unknown; allowed: quota, priority, pin, evict, "
				"origin-bandwidth, origin-requests, copies, direct, idle, ttl, "
				"allow",
				o->reset.values[i]);
	}
	return 0;
}

/* "uid:alice,gid:ml", the union of all --allow options. */
static int add_allow(json_t *body, const struct dataset_options *o, struct err *e)
{
	json_t *all = json_array();
	bool none = false;
	int r = 0;

	for (unsigned int i = 0; i < o->allow.n; i++) {
		const char *at = o->allow.values[i];

		while (r == 0 && *at) {
			size_t len = strcspn(at, ",");
			char form[CLAIMS_FORM_BYTES + 1]; /* one that is too long stays so */

			(void)snprintf(form, sizeof(form), "%.*s", (int)min(len, sizeof(form)), at);
			if (strcmp(form, "none") == 0)
				none = true;
			else if ((r = claims_check_form(form, e)) == 0)
				(void)json_array_append_new(all, json_string(form)); /* counted */
			at += len + (at[len] == ',');
		}
	}
	if (r == 0 && o->allow.n > 0 && none == (json_array_size(all) > 0))
		r = err_set(e, -EINVAL, "--allow: use uid:NAME, gid:NAME and *, or none alone");
	if (r == 0 && o->allow.n > 0)
		add(body, "allow", json_incref(all));
	json_decref(all);
	return r;
}

static int add_policy(json_t *body, const struct dataset_options *o, struct err *e)
{
	int r = add_defaults(body, o, e);

	if (r == 0)
		r = add_allow(body, o, e);

	if (r == 0)
		r = add_caps(body, o, e);
	add_number(body, "quota", o->quota);
	add_number(body, "priority", o->priority);
	if (o->pin)
		add(body, "pin", json_boolean(strcmp(o->pin, "yes") == 0));
	add_text(body, "evict", o->evict);
	add_text(body, "copies", o->copies);
	if (o->direct)
		add(body, "direct", json_boolean(strcmp(o->direct, "yes") == 0));
	add_seconds(body, "idle_s", o->idle);
	add_seconds(body, "ttl_s", o->ttl);
	add_text(body, "consistency", o->consistency);
	add_seconds(body, "interval_s", o->interval);
	return r;
}

/* ---- its sources ----------------------------------------------------------------------------- */

/* How one source is reached: a word behind its URL. */
struct way_word {
	const char *name;
	const char **text; /* where its value goes */
	bool *flag;        /* or that it was said */
};

#define WAY_WORDS 9

static void list_words(struct origin_options *o, struct way_word words[WAY_WORDS])
{
	const struct way_word all[WAY_WORDS] = {
		{ "endpoint", &o->endpoint, NULL },
		{ "region", &o->region, NULL },
		{ "credentials", &o->credentials, NULL },
		{ "profile-name", &o->profile, NULL },
		{ "versions", &o->versions, NULL },
		{ "ca-file", &o->ca_file, NULL },
		{ "path-style", NULL, &o->path_style },
		{ "anonymous", NULL, &o->anonymous },
		{ "requester-pays", NULL, &o->requester_pays },
	};

	memcpy(words, all, sizeof(all));
}

/* The word that stands at `text`; NULL: none, so that a ',' before it belongs to what is before. */
static const struct way_word *word_at(const struct way_word *words, const char *text)
{
	for (size_t i = 0; i < WAY_WORDS; i++) {
		size_t len = strlen(words[i].name);

		if (strncmp(text, words[i].name, len) == 0 &&
			(words[i].text ? text[len] == '=' : text[len] == '\0' || text[len] == ','))
			return &words[i];
	}
	return NULL;
}

/* What is written as a word with a value is: whatever it says. */
static bool looks_like_word(const char *text)
{
	size_t len = strspn(text, "abcdefghijklmnopqrstuvwxyz-");

	return len > 0 && text[len] == '=';
}

/* Its value may be a key: it is not shown. */
static int unknown_word(const char *text, struct err *e)
{
	int len = (int)min(strcspn(text, "=,"), (size_t)60);

	return err_set(e, -EINVAL,
		"--mount: unknown setting '%.*s'; allowed: endpoint=, region=, "
		"credentials=, profile-name=, versions=, ca-file=, path-style, "
		"anonymous, requester-pays (if it belongs to the prefix, write the "
		"',' before it twice)",
		len, text);
}

/* Cuts the words off what is before them, and takes them. Of ",," before what looks like one a ',' is
 * left, and it is none. */
static int take_words(char *text, struct origin_options *origin, struct err *e)
{
	struct way_word words[WAY_WORDS];
	const char *behind = NULL; /* a word without a value, the last: nothing may be there */

	list_words(origin, words);
	for (char *comma = text; (comma = strchr(comma, ',')) != NULL; comma++) {
		const struct way_word *word = word_at(words, comma + 1);

		if (!word && !looks_like_word(comma + 1))
			continue;
		if (comma > text && comma[-1] == ',') {
			memmove(comma - 1, comma, strlen(comma) + 1);
			comma--;
			continue;
		}
		if (!word)
			return unknown_word(comma + 1, e);
		*comma = '\0';
		if (behind && *behind)
			break;
		if (word->text)
			*word->text = comma + 1 + strlen(word->name) + 1;
		else
			*word->flag = true;
		behind = word->text ? NULL : comma + 1 + strlen(word->name);
	}
	return behind && *behind ? unknown_word(behind + 1, e) : 0;
}

static int add_source(json_t *mounts, struct origin_options origin, const char *path,
	const char *url, struct err *e)
{
	json_t *mount = json_object();
	char ca_file[PATH_MAX];
	int r = origin_options_resolve(&origin, ca_file, e);

	add_text(mount, "path", path);
	add_text(mount, "url", url);
	origin_options_json(mount, &origin, url);
	(void)json_array_append_new(mounts, mount); /* counted */
	return r;
}

/* "PATH=URL[,WORD...]": where the keys are is said for all, or for it alone. */
static int add_mount(
	json_t *mounts, const struct dataset_options *o, const char *text, struct err *e)
{
	struct origin_options origin = { 0 };
	struct origin_options all = o->origin;
	_cleanup_free_ char *own = strdup(text);
	char *equal = own ? strchr(own, '=') : NULL;

	if (!own)
		return err_set(e, -ENOMEM, "out of memory");
	if (!equal || own[0] != '/' || equal[1] == '\0')
		return err_set(e, -EINVAL,
			"--mount: '%s' is not PATH=URL; write it as "
			"/labels=s3://bucket/labels",
			text);
	*equal = '\0';
	if (take_words(equal + 1, &origin, e) < 0)
		return -EINVAL;
	if (origin.credentials || origin.profile || origin.anonymous) {
		all.credentials = all.profile = NULL;
		all.anonymous = false;
	}
	origin.endpoint = origin.endpoint ?: all.endpoint;
	origin.region = origin.region ?: all.region;
	origin.credentials = origin.credentials ?: all.credentials;
	origin.profile = origin.profile ?: all.profile;
	origin.versions = origin.versions ?: all.versions;
	origin.ca_file = origin.ca_file ?: all.ca_file;
	origin.path_style |= all.path_style;
	origin.anonymous |= all.anonymous;
	origin.requester_pays |= all.requester_pays;
	return add_source(mounts, origin, own, equal + 1, e);
}

int dataset_body_create(json_t *body, const struct dataset_options *o, const char *name,
	const char *url, struct err *e)
{
	json_t *mounts = json_array();
	int r = 0;

	add_text(body, "name", name);
	add(body, "mounts", mounts);
	add_text(body, "cache_scope", o->scope);
	if (!url && o->mounts.n == 0)
		return err_set(
			e, -EINVAL, "no source: give URL, or --mount PATH=URL for each of several");
	if (url)
		r = add_source(mounts, o->origin, NULL, url, e);
	for (unsigned int i = 0; i < o->mounts.n && r == 0; i++)
		r = add_mount(mounts, o, o->mounts.values[i], e);
	return r < 0 ? r : add_policy(body, o, e);
}

int dataset_body_update(json_t *body, const struct dataset_options *o, struct err *e)
{
	struct origin_options origin = o->origin;
	json_t *mounts = json_array();
	json_t *mount = json_object();
	char ca_file[PATH_MAX];
	int r = origin_options_resolve(&origin, ca_file, e);

	origin_options_json(mount, &origin, NULL);
	if (r == 0 && json_object_size(mount) == 0 && o->path)
		r = err_set(e, -EINVAL,
			"--path %s: no access settings; give --credentials, --region or another "
			"setting of its source",
			o->path);
	if (r == 0 && json_object_size(mount) > 0) {
		add_text(mount, "path", o->path);
		(void)json_array_append(mounts, mount); /* counted */
		(void)json_object_set(body, "mounts", mounts);
	}
	json_decref(mount);
	json_decref(mounts);
	add_text(body, "cache_scope", o->scope);
	return r < 0 ? r : add_policy(body, o, e);
}
