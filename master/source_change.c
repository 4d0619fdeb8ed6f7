/* What datasets and workers say of a source. See source.h. */
#include "base/log.h"
#include "master/source_internal.h"

#include <string.h>

#define USE_STORED_EVERY 300 /* s: a restart takes it for so much later at most */

static int64_t wall_s(void)
{
	return (int64_t)(clock_wall_ns() / CLOCK_SECOND);
}

/* Of a source without a generation there is no record yet: the next flight writes it. */
static int store_source(struct source *source, struct err *e)
{
	bool stored;
	int r;

	pthread_mutex_lock(&source->set->lock);
	stored = source->n > 0;
	pthread_mutex_unlock(&source->set->lock);
	r = stored ? generations_store_source(source) : 0;
	if (r < 0)
		return err_set(e, r, "the master's store does not take it: %s: check its disk",
			err_str(r));
	return 0;
}

int source_set_policy(struct source_set *set, const struct volume_id *volume,
	const struct tier_policy *policy, struct err *e)
{
	const struct policy_change change = { .to = *policy,
		.parts = POLICY_QUOTA | POLICY_PRIORITY | POLICY_PIN | POLICY_EVICT };
	struct source *source;
	bool changed;

	pthread_mutex_lock(&set->lock);
	source = source_find_locked(set, volume);
	if (source)
		source->policy_sets++;
	changed = source && policy_apply(&source->record.policy, &change);
	pthread_mutex_unlock(&set->lock);
	return changed ? store_source(source, e) : 0;
}

int source_set_pins(struct source_set *set, const struct volume_id *volume,
	const struct source_pin *pins, uint32_t n)
{
	struct source *source;

	pthread_mutex_lock(&set->lock);
	source = source_find_locked(set, volume);
	if (source) {
		source->n_pins = min(n, GENERATIONS_PINNED);
		memcpy(source->pins, pins, source->n_pins * sizeof(*pins));
	}
	pthread_mutex_unlock(&set->lock);
	return source ? 0 : -ENXIO;
}

/* A worker follows no number that it has seen: its tiers may be older than this master's state, which
 * was lost or restored from an older copy. */
static uint64_t next_evict_locked(const struct source *source)
{
	uint64_t seen = source->report.evicted < INT64_MAX ? source->report.evicted : 0;

	return max(source->record.evict, seen) + 1;
}

int source_set_evict(
	struct source_set *set, const struct volume_id *volume, uint64_t *ret_serial, struct err *e)
{
	struct source *source;
	uint64_t serial = 0;
	int r;

	pthread_mutex_lock(&set->lock);
	source = source_find_locked(set, volume);
	if (source)
		serial = source->record.evict = next_evict_locked(source);
	pthread_mutex_unlock(&set->lock);
	if (!source)
		return err_set(e, -ENXIO, "nothing of it was ever read: there is nothing to evict");
	r = store_source(source, e);
	if (r == 0)
		*ret_serial = serial;
	return r;
}

void source_set_idle(struct source_set *set, const struct volume_id *volume, bool idle)
{
	struct source *source;

	pthread_mutex_lock(&set->lock);
	source = source_find_locked(set, volume);
	if (source)
		source->idle = idle;
	pthread_mutex_unlock(&set->lock);
}

bool source_use_locked(struct source *source)
{
	source->record.used = wall_s();
	source->idle = false;
	if (source->record.used - source->used_stored < USE_STORED_EVERY)
		return false;
	source->used_stored = source->record.used;
	return source->n > 0;
}

void source_store_use(struct source *source)
{
	int r = generations_store_source(source);

	if (r < 0)
		log_warn("use of a source not stored", "source=\"%s\" cause=%s",
			source->record.text, err_name(r));
}

void source_set_touch(struct source_set *set, const struct volume_id *volume)
{
	struct source *source;
	bool late;

	pthread_mutex_lock(&set->lock);
	source = source_find_locked(set, volume);
	late = source && source_use_locked(source);
	pthread_mutex_unlock(&set->lock);
	if (late)
		source_store_use(source);
}

void source_set_report(
	struct source_set *set, const struct volume_id *volume, const struct source_report *report)
{
	struct source *source;

	pthread_mutex_lock(&set->lock);
	source = source_find_locked(set, volume);
	if (source) {
		source->report = *report;
		source->reported = true;
	}
	pthread_mutex_unlock(&set->lock);
}

void source_set_capacity(struct source_set *set, uint64_t bytes)
{
	pthread_mutex_lock(&set->lock);
	set->capacity = bytes;
	pthread_mutex_unlock(&set->lock);
}
