/* What is known of a source, for people and for what is made of it. See source.h. */
#include "base/cleanup.h"
#include "base/units.h"
#include "master/source_internal.h"

#include <inttypes.h>
#include <string.h>

bool source_set_in_grace(const struct source_set *set)
{
	return holds_in_grace(set);
}

void source_add_hits(json_t *json, const struct source_report *r, uint64_t local)
{
	uint64_t hits = r->hit_bytes + local;
	uint64_t all = hits + r->miss_bytes;

	/* Failures are counted. */
	(void)json_object_set_new(json, "hit_bytes", json_integer((json_int_t)hits));
	(void)json_object_set_new(json, "miss_bytes", json_integer((json_int_t)r->miss_bytes));
	(void)json_object_set_new(json, "hit_ratio",
		all ? json_real(units_ratio((double)hits, (double)all)) : json_null());
	(void)json_object_set_new(
		json, "as_of_s", json_integer((json_int_t)(r->age_ns / CLOCK_SECOND)));
}

int source_set_view(
	struct source_set *set, const struct volume_id *volume, struct source_view *ret_view)
{
	const struct record_generation *newest;
	struct source *source;

	pthread_mutex_lock(&set->lock);
	source = source_find_locked(set, volume);
	if (source) {
		newest = generations_newest(source);
		*ret_view = (struct source_view){
			.policy = source->record.policy,
			.reported = source_report_locked(source),
			.heard = source->reported,
			.local_bytes = source->local_bytes,
			.capacity = source_capacity_locked(set),
			.evict = source->record.evict,
			.mounts = holds_mounts_locked(source),
			.used = source->record.used,
			.idle = source->idle,
			.listing = atomic_load(&source->listing),
			.listed_keys = atomic_load(&source->listing_keys),
			.follow_s = source_follow_interval_locked(source),
			.failure = source->failure,
		};
		if (newest)
			ret_view->newest = *newest;
	}
	pthread_mutex_unlock(&set->lock);
	return source ? 0 : -ENXIO;
}

void source_set_sum(struct source_set *set, struct source_sum *ret_sum)
{
	struct source_sum sum = { 0 };

	pthread_mutex_lock(&set->lock);
	list_for_each (node, &set->sources) {
		const struct source *source = list_entry(node, struct source, link);
		const struct source_report report = source_report_locked(source);

		sum.hit_bytes += report.hit_bytes + source->local_bytes;
		sum.miss_bytes += report.miss_bytes;
		sum.origin_bytes += report.origin_bytes;
	}
	pthread_mutex_unlock(&set->lock);
	*ret_sum = sum;
}

int source_set_policy(
	struct source_set *set, const struct volume_id *volume, struct tier_policy *ret_policy)
{
	const struct source *source;

	pthread_mutex_lock(&set->lock);
	source = source_find_locked(set, volume);
	if (source)
		*ret_policy = source->record.policy;
	pthread_mutex_unlock(&set->lock);
	return source ? 0 : -ENOENT;
}

int source_set_find(struct source_set *set, const struct volume_id *volume,
	const struct source_pin *which, struct record_generation *ret_generation)
{
	const struct record_generation *found = NULL;
	const struct source *source;

	pthread_mutex_lock(&set->lock);
	source = source_find_locked(set, volume);
	if (source)
		found = generations_find(source, which->lineage, which->generation);
	if (found)
		*ret_generation = *found;
	pthread_mutex_unlock(&set->lock);
	return found ? 0 : -ENOENT;
}

/* Only in the newest lineage do numbers mean what a person sees. */
int source_set_generation(struct source_set *set, const struct volume_id *volume,
	uint64_t generation, struct record_generation *ret_generation)
{
	return source_set_find(
		set, volume, &(struct source_pin){ .generation = generation }, ret_generation);
}

int source_set_open_table(struct source_set *set, const struct volume_id *volume,
	const struct source_pin *which, struct table **ret_table, struct err *e)
{
	struct record_generation g;
	struct source *source;
	int fd = -1;
	int r = source_set_find(set, volume, which, &g);

	if (r < 0)
		return err_set(e, r,
			"generation %" PRIu64 " not found: see `cachectl dataset generations`",
			which->generation);
	pthread_mutex_lock(&set->lock);
	source = source_find_locked(set, volume);
	pthread_mutex_unlock(&set->lock);
	r = generations_open_table(source, &g.id, &fd);
	if (r < 0)
		return err_set(e, r, "the table of generation %" PRIu64 " cannot be opened: %s",
			g.id.generation, err_str(r));
	return table_open(fd, ret_table, e);
}

json_t *source_set_generations_json(struct source_set *set, const struct volume_id *volume)
{
	uint64_t failures = admin_json_failures();
	const struct source *source;
	json_t *all = json_array();

	pthread_mutex_lock(&set->lock);
	source = source_find_locked(set, volume);
	for (uint32_t i = source ? source->n : 0; i-- > 0;) {
		const struct record_generation *g = &source->generations[i];

		(void)json_array_append_new(all, /* failures are counted */
			json_pack("{s:I, s:I, s:o, s:I, s:I, s:I, s:I, s:I, s:I, s:b, s:b, s:i}",
				"serial", (json_int_t)g->serial, "generation",
				(json_int_t)g->id.generation, "lineage",
				json_sprintf("%016" PRIx64, g->id.lineage), "built_at",
				(json_int_t)g->built_at, "files", (json_int_t)g->files, "bytes",
				(json_int_t)g->bytes, "added", (json_int_t)g->added, "changed",
				(json_int_t)g->changed, "removed", (json_int_t)g->removed, "kept",
				(int)g->kept, "pinned", (int)holds_pinned(source, &g->id), "mounts",
				(int)holds_count_locked(source, g->id.lineage, g->id.generation)));
	}
	pthread_mutex_unlock(&set->lock);
	if (admin_json_failures() == failures)
		return all;
	json_decref(all);
	return NULL;
}
