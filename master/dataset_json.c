/* A dataset in JSON. See dataset.h. */
#include "base/clock.h"
#include "base/hash.h"
#include "base/units.h"
#include "master/dataset.h"

#include <inttypes.h>
#include <string.h>

/* Failures of all that is added here are counted: dataset_json() looks. */
static void set(json_t *json, const char *name, json_t *value)
{
	(void)json_object_set_new(json, name, value);
}

/* What was set; the rest is null. */
static void add_policy(json_t *json, const struct policy_change *p)
{
	char copies[COPIES_NAME_BYTES];

	set(json, "quota",
		p->parts & POLICY_QUOTA ? json_integer((json_int_t)p->to.quota) : json_null());
	set(json, "priority",
		p->parts & POLICY_PRIORITY ? json_integer(p->to.priority) : json_null());
	set(json, "pin", p->parts & POLICY_PIN ? json_boolean(p->to.pin) : json_null());
	set(json, "evict",
		p->parts & POLICY_EVICT ? json_string(tier_evict_name(p->to.evict)) : json_null());
	set(json, "origin_bandwidth",
		p->parts & POLICY_BANDWIDTH ? json_integer((json_int_t)p->to.origin_bandwidth)
					    : json_null());
	set(json, "origin_requests",
		p->parts & POLICY_REQUESTS ? json_integer((json_int_t)p->to.origin_requests)
					   : json_null());
	if (p->parts & POLICY_COPIES)
		copies_name(p->to.copies, copies);
	set(json, "copies", p->parts & POLICY_COPIES ? json_string(copies) : json_null());
	set(json, "direct", p->parts & POLICY_DIRECT ? json_boolean(p->to.direct) : json_null());
}

/* ---- one mount ------------------------------------------------------------------------------- */

/*
 *	Failed	its source, or one of them, was to be listed for the first time, and that failed
 *	Pending	nothing was listed yet
 *	Listing	it is, for the first time
 *	Ready	it may be mounted
 *	Bound	it is mounted
 * Of several sources the first in this order tells how the dataset is.
 */
enum phase { FAILED, PENDING, LISTING, READY, BOUND };

static const char *const phases[] = { [FAILED] = "Failed",
	[PENDING] = "Pending",
	[LISTING] = "Listing",
	[READY] = "Ready",
	[BOUND] = "Bound" };

static enum phase phase_of(const struct source_view *view)
{
	if (view->mounts > 0)
		return BOUND;
	if (view->newest.serial > 0)
		return READY;
	if (view->listing)
		return LISTING;
	return view->failure.code ? FAILED : PENDING;
}

/* What is known of a mount's source, and how much of it the mount shows. */
struct facts {
	struct source_view view;
	struct record_generation shown; /* to mounts from now on; .serial 0: none */
	bool rolled_back;
	uint64_t files;
	uint64_t bytes;
};

static void learn(struct dataset_set *datasets, const struct dataset *d,
	const struct dataset_mount *m, struct facts *ret)
{
	struct source_set *sources = dataset_sources(datasets);
	const struct dataset_generation *back = dataset_shown(d, &m->volume);

	*ret = (struct facts){ .rolled_back = back != NULL };
	if (source_set_view(sources, &m->volume, &ret->view) < 0) {
		ret->view = (struct source_view){ 0 };
		return;
	}
	ret->shown = ret->view.newest;
	if (back)
		(void)!source_set_find(sources, &m->volume,
			&(struct source_pin){ back->lineage, back->generation },
			&ret->shown); /* else newest */
	if (ret->shown.serial > 0 && dataset_view_count(datasets, &m->volume, &ret->shown,
					     m->subtree, &ret->files, &ret->bytes) < 0)
		ret->files = ret->bytes = 0; /* its table cannot be read just now */
}

static void add_cached_ratio(json_t *json, uint64_t cached, uint64_t of)
{
	if (of > 0)
		set(json, "cached_ratio",
			json_real(units_ratio((double)min(cached, of), (double)of)));
}

/*
 * What is cached of `size` bytes that are shown of a source of `of` bytes. Workers count blocks, and what older generations have,
 * so that it may be more than all. A part gets its share of the source's cached bytes.
 */
static uint64_t cached_of(uint64_t cached, uint64_t size, uint64_t of)
{
	if (size >= of)
		return min(cached, size);
	return (uint64_t)((double)size * (double)min(cached, of) / (double)of);
}

static void add_reported(json_t *json, const struct source_report *r, uint64_t cached)
{
	set(json, "cached_bytes", json_integer((json_int_t)cached));
	set(json, "copy_bytes", json_integer((json_int_t)r->copy_bytes));
	set(json, "origin_bytes", json_integer((json_int_t)r->origin_bytes));
	set(json, "evicted", json_integer((json_int_t)r->evicted));
	set(json, "evicted_bytes", json_integer((json_int_t)r->evicted_bytes));
	set(json, "evicted_paths", json_integer((json_int_t)r->evicted_paths));
	set(json, "evicted_paths_bytes", json_integer((json_int_t)r->evicted_paths_bytes));
}

static void add_generation(json_t *json, const struct facts *f)
{
	const struct record_generation *g = &f->shown;

	if (g->serial == 0)
		return;
	set(json, "generation", json_integer((json_int_t)g->id.generation));
	set(json, "newest_generation", json_integer((json_int_t)f->view.newest.id.generation));
	set(json, "lineage", json_sprintf("%016" PRIx64, g->id.lineage));
	set(json, "built_at", json_integer(g->built_at));
	if (g->current_ms)
		set(json, "current_at", admin_json_time(g->current_ms * (int64_t)CLOCK_MS));
}

static void add_listing(json_t *json, const struct source_view *view)
{
	if (view->listing)
		set(json, "listed_keys", json_integer((json_int_t)view->listed_keys));
	if (view->failure.code)
		set(json, "last_error", json_string(view->failure.text));
}

static json_t *mount_json(const struct dataset_mount *m)
{
	static const char *const versions[] = { "auto", "on", "off" };
	const struct ufs_config *c = &m->config;
	char volume[2 * VOLUME_ID_LEN + 1];

	hash_hex(m->volume.bytes, VOLUME_ID_LEN, volume);
	return json_pack("{s:s, s:s, s:s, s:s*, s:s*, s:s*, s:s*, s:s*, s:s*, s:s*, s:b, s:b, s:b, "
			 "s:s}",
		"path", m->path, "url", m->url, "volume", volume, "subtree", m->subtree, "scope",
		c->scope, "endpoint", c->endpoint, "region", c->region, "profile", c->profile,
		"credentials", c->credentials, "ca_file", c->ca_file, "path_style",
		(int)c->path_style, "anonymous", (int)c->anonymous, "requester_pays",
		(int)c->requester_pays, "versions", versions[c->versions]);
}

static json_t *state_json(
	struct source_set *sources, const struct dataset_mount *m, const struct facts *f)
{
	json_t *json = mount_json(m);

	if (!json)
		return NULL;
	set(json, "phase", json_string(phases[phase_of(&f->view)]));
	set(json, "mounted", json_integer(f->view.mounts));
	set(json, "rolled_back", json_boolean(f->rolled_back));
	add_generation(json, f);
	if (f->shown.serial > 0) {
		set(json, "total_files", json_integer((json_int_t)f->files));
		set(json, "total_bytes", json_integer((json_int_t)f->bytes));
	}
	if (f->view.heard) {
		add_reported(json, &f->view.reported,
			cached_of(f->view.reported.cached_bytes, f->bytes, f->shown.bytes));
		source_add_hits(json, &f->view.reported, f->view.local_bytes);
		add_cached_ratio(json, f->view.reported.cached_bytes, f->shown.bytes);
		set(json, "workers", source_set_workers_json(sources, &m->volume));
	}
	add_listing(json, &f->view);
	return json;
}

/* ---- all of them ----------------------------------------------------------------------------- */

/* What they are together. */
struct sum {
	enum phase phase;
	uint32_t sources;
	uint32_t mounts;
	uint32_t listed;
	uint32_t heard;
	uint64_t files;
	uint64_t bytes;
	uint64_t cached;       /* of `bytes` */
	uint64_t source_bytes; /* what cached bytes are a part of: of views all of the source */
	uint64_t capacity;
	uint64_t quota;
	struct source_report reported;
	uint64_t local_bytes;
	int64_t used;
	bool idle;
	const char *failure; /* borrowed */
};

static void add_source(struct sum *sum, const struct facts *f)
{
	const struct source_report *r = &f->view.reported;

	sum->sources++;
	sum->phase = min(sum->phase, phase_of(&f->view));
	sum->mounts = max(sum->mounts, f->view.mounts); /* a mount shows all of them */
	sum->listed += f->shown.serial > 0;
	sum->heard += f->view.heard;
	sum->source_bytes += f->shown.bytes;
	sum->capacity = max(sum->capacity, f->view.capacity);
	sum->quota += f->view.policy.quota;
	sum->reported.cached_bytes += r->cached_bytes;
	sum->reported.copy_bytes += r->copy_bytes;
	sum->reported.origin_bytes += r->origin_bytes;
	sum->reported.evicted = max(sum->reported.evicted, r->evicted);
	sum->reported.evicted_bytes += r->evicted_bytes;
	sum->reported.evicted_paths = max(sum->reported.evicted_paths, r->evicted_paths);
	sum->reported.evicted_paths_bytes += r->evicted_paths_bytes;
	sum->reported.hit_bytes += r->hit_bytes;
	sum->reported.miss_bytes += r->miss_bytes;
	sum->reported.age_ns = max(sum->reported.age_ns, r->age_ns);
	sum->local_bytes += f->view.local_bytes;
	sum->used = max(sum->used, f->view.used);
	sum->idle |= f->view.idle;
}

static void add_sum(json_t *json, const struct sum *sum)
{
	set(json, "phase", json_string(phases[sum->phase]));
	set(json, "mounted", json_integer(sum->mounts));
	if (sum->listed == sum->sources) {
		set(json, "total_files", json_integer((json_int_t)sum->files));
		set(json, "total_bytes", json_integer((json_int_t)sum->bytes));
	}
	if (sum->capacity)
		set(json, "cache_capacity",
			json_integer((json_int_t)(sum->quota ? min(sum->quota, sum->capacity)
							     : sum->capacity)));
	if (sum->heard > 0) {
		add_reported(json, &sum->reported, sum->cached);
		source_add_hits(json, &sum->reported, sum->local_bytes);
	}
	if (sum->heard > 0 && sum->listed == sum->sources)
		add_cached_ratio(json, sum->reported.cached_bytes, sum->source_bytes);
	if (sum->used)
		set(json, "mounted_at", json_integer(sum->used));
	set(json, "idle", json_boolean(sum->idle));
}

/* Its mounts, and what they are together. */
static void add_mounts(json_t *json, struct dataset_set *datasets, const struct dataset *d)
{
	struct facts *facts = calloc(d->n_mounts + 1, sizeof(*facts));
	struct sum sum = { .phase = BOUND };
	json_t *mounts = json_array();

	for (uint32_t i = 0; facts && i < d->n_mounts; i++) {
		learn(datasets, d, &d->mounts[i], &facts[i]);
		(void)json_array_append_new(/* as above */
			mounts, state_json(dataset_sources(datasets), &d->mounts[i], &facts[i]));
		sum.files += facts[i].files;
		sum.bytes += facts[i].bytes;
		sum.cached += cached_of(
			facts[i].view.reported.cached_bytes, facts[i].bytes, facts[i].shown.bytes);
		if (dataset_is_first(d, i))
			add_source(&sum, &facts[i]);
		if (facts[i].view.failure.code && !sum.failure)
			sum.failure = facts[i].view.failure.text;
	}
	if (facts && d->n_mounts > 0) {
		add_sum(json, &sum);
		if (sum.sources == 1)
			add_generation(json, &facts[0]);
		add_listing(json, &facts[0].view);
		if (sum.failure)
			set(json, "last_error", json_string(sum.failure));
	}
	if (facts)
		set(json, "mounts", mounts);
	else
		json_decref(mounts); /* dataset_json() sees that there are none */
	free(facts);
}

static json_t *pins_json(const struct dataset *d)
{
	json_t *all = json_array();

	for (uint32_t i = 0; i < d->n_pins; i++)
		(void)json_array_append_new(
			all, json_integer((json_int_t)d->pins[i].generation)); /* as above */
	return all;
}

/* ["uid:alice", "gid:ml"] */
static json_t *allow_json(const struct dataset *d)
{
	const char *at = d->allow ? d->allow : "";
	json_t *all = json_array();

	while (*at) {
		size_t len = strcspn(at, ",");

		(void)json_array_append_new(all, json_stringn(at, len)); /* as above */
		at += len + (at[len] == ',');
	}
	return all;
}

/* The record, without its mounts. */
static json_t *head_json(const struct dataset *d)
{
	json_t *json = json_pack("{s:s, s:s, s:I, s:s*, s:o, s:I, s:I, s:s, s:o, s:b}", "name",
		d->name, "uuid", d->uuid, "created", (json_int_t)d->created, "cache_scope",
		d->cache_scope, "allow", allow_json(d), "idle_s", (json_int_t)d->idle_s, "ttl_s",
		(json_int_t)d->ttl_s, "consistency",
		d->consistency == DATASET_FOLLOW ? "follow" : "pinned", "pinned_generations",
		pins_json(d), "rolled_back", (int)(d->n_shown > 0));

	if (json && d->consistency == DATASET_FOLLOW)
		set(json, "interval_s", json_integer((json_int_t)dataset_interval_s(d)));
	if (json)
		add_policy(json, &d->policy);
	return json;
}

/* {"/labels": 7}: what its sources were rolled back to. */
static json_t *shown_json(const struct dataset *d)
{
	json_t *all = json_object();

	for (uint32_t i = 0; i < d->n_mounts; i++) {
		const struct dataset_generation *g = dataset_shown(d, &d->mounts[i].volume);

		if (g)
			set(all, d->mounts[i].path, json_integer((json_int_t)g->generation));
	}
	return all;
}

json_t *dataset_record_json(const struct dataset *d)
{
	json_t *json = head_json(d);
	json_t *mounts = json_array();

	for (uint32_t i = 0; i < d->n_mounts; i++)
		(void)json_array_append_new(
			mounts, mount_json(&d->mounts[i])); /* for display only */
	set(json, "mounts", mounts);
	set(json, "shown", shown_json(d));
	return json;
}

json_t *dataset_json(struct dataset_set *datasets, const struct dataset *d)
{
	uint64_t failures = admin_json_failures();
	json_t *json = head_json(d);

	if (json)
		add_mounts(json, datasets, d);
	if (json && json_object_get(json, "mounts") && admin_json_failures() == failures)
		return json;
	json_decref(json);
	return NULL;
}
