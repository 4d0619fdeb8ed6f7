/* What is told of a dataset. See dataset.h. */
#include "base/hash.h"
#include "master/dataset.h"

#include <inttypes.h>

/* Failures of all that is added here are counted: dataset_json() looks. */
static void set(json_t *json, const char *name, json_t *value)
{
	(void)json_object_set_new(json, name, value);
}

static json_t *mounts_json(const struct dataset *d)
{
	static const char *const versions[] = { "auto", "on", "off" };
	json_t *all = json_array();

	for (uint32_t i = 0; i < d->n_mounts; i++) {
		const struct dataset_mount *m = &d->mounts[i];
		const struct ufs_config *c = &m->config;
		char volume[2 * VOLUME_ID_LEN + 1];

		hash_hex(m->volume.bytes, VOLUME_ID_LEN, volume);
		(void)json_array_append_new(all, /* as above */
			json_pack("{s:s, s:s, s:s, s:s*, s:s*, s:s*, s:s*, s:s*, s:b, s:b, s:b, "
				  "s:s}",
				"path", m->path, "url", m->url, "volume", volume, "endpoint",
				c->endpoint, "region", c->region, "profile", c->profile,
				"credentials", c->credentials, "ca_file", c->ca_file, "path_style",
				(int)c->path_style, "anonymous", (int)c->anonymous,
				"requester_pays", (int)c->requester_pays, "versions",
				versions[c->versions]));
	}
	return all;
}

/* What was set; the rest is null. */
static void add_policy(json_t *json, const struct policy_change *p)
{
	set(json, "quota",
		p->parts & POLICY_QUOTA ? json_integer((json_int_t)p->to.quota) : json_null());
	set(json, "priority",
		p->parts & POLICY_PRIORITY ? json_integer(p->to.priority) : json_null());
	set(json, "pin", p->parts & POLICY_PIN ? json_boolean(p->to.pin) : json_null());
	set(json, "evict",
		p->parts & POLICY_EVICT ? json_string(tier_evict_name(p->to.evict)) : json_null());
}

static json_t *pins_json(const struct dataset *d)
{
	json_t *all = json_array();

	for (uint32_t i = 0; i < d->n_pins; i++)
		(void)json_array_append_new(
			all, json_integer((json_int_t)d->pins[i].generation)); /* as above */
	return all;
}

/*
 *	Pending	nothing was listed yet
 *	Listing	it is, for the first time
 *	Failed	that failed
 *	Ready	it may be mounted
 *	Bound	it is mounted
 */
static const char *phase(const struct source_view *view)
{
	if (view->mounts > 0)
		return "Bound";
	if (view->newest.serial > 0)
		return "Ready";
	if (view->listing)
		return "Listing";
	return view->failure.code ? "Failed" : "Pending";
}

/* The generation that mounts show from now on. */
static void add_generation(
	json_t *json, struct source_set *sources, const struct dataset *d, struct source_view *view)
{
	struct record_generation g = view->newest;

	if (d->shown.generation)
		(void)!source_set_generation(
			sources, &d->mounts[0].volume, d->shown.generation, &g); /* else newest */
	if (g.serial == 0)
		return;
	set(json, "generation", json_integer((json_int_t)g.id.generation));
	set(json, "newest_generation", json_integer((json_int_t)view->newest.id.generation));
	set(json, "lineage", json_sprintf("%016" PRIx64, g.id.lineage));
	set(json, "built_at", json_integer(g.built_at));
	set(json, "total_files", json_integer((json_int_t)g.files));
	set(json, "total_bytes", json_integer((json_int_t)g.bytes));
	if (view->heard && g.bytes > 0)
		set(json, "cached_percentage",
			json_real(min(100.0,
				100.0 * (double)view->reported.cached_bytes / (double)g.bytes)));
}

static void add_view(json_t *json, struct source_set *sources, const struct dataset *d)
{
	struct source_view view = { 0 };

	if (source_set_view(sources, &d->mounts[0].volume, &view) < 0)
		view = (struct source_view){ 0 };
	set(json, "phase", json_string(phase(&view)));
	set(json, "mounted", json_integer(view.mounts));
	add_generation(json, sources, d, &view);
	if (view.capacity)
		set(json, "cache_capacity",
			json_integer((json_int_t)(view.policy.quota
							  ? min(view.policy.quota, view.capacity)
							  : view.capacity)));
	if (view.heard) {
		set(json, "cached_bytes", json_integer((json_int_t)view.reported.cached_bytes));
		set(json, "origin_bytes", json_integer((json_int_t)view.reported.origin_bytes));
		set(json, "evicted", json_integer((json_int_t)view.reported.evicted));
		set(json, "evicted_bytes", json_integer((json_int_t)view.reported.evicted_bytes));
	}
	if (view.used)
		set(json, "used", json_integer(view.used));
	set(json, "idle", json_boolean(view.idle));
	if (view.listing)
		set(json, "listed_keys", json_integer((json_int_t)view.listed_keys));
	if (view.failure.code)
		set(json, "last_error", json_string(view.failure.text));
}

json_t *dataset_json(struct dataset_set *datasets, const struct dataset *d)
{
	uint64_t failures = admin_json_failures();
	json_t *json = json_pack("{s:s, s:s, s:I, s:o, s:s*, s:I, s:I, s:s, s:o, s:b}", "name",
		d->name, "uuid", d->uuid, "created", (json_int_t)d->created, "mounts",
		mounts_json(d), "cache_scope", d->cache_scope, "idle_s", (json_int_t)d->idle_s,
		"ttl_s", (json_int_t)d->ttl_s, "consistency", "pinned", "pinned_generations",
		pins_json(d), "rolled_back", (int)(d->shown.generation > 0));

	if (json) {
		add_policy(json, &d->policy);
		add_view(json, dataset_sources(datasets), d);
	}
	if (json && admin_json_failures() == failures)
		return json;
	json_decref(json);
	return NULL;
}
