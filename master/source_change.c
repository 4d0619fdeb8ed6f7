/* What datasets and workers say of a source. See source.h. */
#include "base/log.h"
#include "master/source_internal.h"

#include <string.h>

#define USE_STORED_EVERY 300 /* s: a restart takes it for so much later at most */

static int64_t wall_s(void)
{
	return (int64_t)(clock_wall_ns() / CLOCK_SECOND);
}

static int store_source(struct source *source, struct err *e)
{
	int r = generations_store_source(source);

	if (r < 0)
		return err_set(e, r, "the master's store cannot be written: %s: check its disk",
			err_str(r));
	return 0;
}

/* The records of several sources as they are to be. */
struct rewrite {
	struct source *sources[SOURCES_AT_ONCE];
	struct buf values[SOURCES_AT_ONCE];
	char keys[SOURCES_AT_ONCE][RECORD_KEY_BYTES];
	struct store_change changes[SOURCES_AT_ONCE + 1];
	uint32_t n;
	unsigned int n_changes;
};

/* Of a source without a generation there is no record yet: the next flight writes it. */
static int rewrite_locked(
	struct rewrite *rw, struct source *source, const struct tier_policy *policy)
{
	struct record_source record = source->record;
	struct buf *value = &rw->values[rw->n];
	char *key = rw->keys[rw->n];
	int r;

	rw->sources[rw->n] = source;
	*value = (struct buf)BUF_INIT(STORE_VALUE_BYTES);
	rw->n++;
	source->policy_sets++; /* whatever is under way is an earlier word */
	if (source->n == 0)
		return 0;
	record.policy = *policy;
	record_source_key(&record.volume, key);
	r = record_source_encode(&record, value);
	if (r == 0)
		rw->changes[rw->n_changes++] =
			(struct store_change){ key, value->data, value->len };
	return r;
}

int source_set_policies(struct source_set *set, const struct volume_id *volumes, uint32_t n,
	const struct tier_policy *policy, const struct store_change *also)
{
	const struct policy_change change = { .to = *policy, .parts = POLICY_ALL };
	struct store *store = set->config.store;
	struct rewrite *rw = calloc(1, sizeof(*rw));
	int r = rw ? 0 : -ENOMEM;

	ensure(n <= SOURCES_AT_ONCE);
	if (r < 0)
		return r;
	pthread_mutex_lock(&set->write_lock);
	pthread_mutex_lock(&set->lock);
	for (uint32_t i = 0; i < n && r == 0; i++) {
		struct source *source = source_find_locked(set, &volumes[i]);

		if (source)
			r = rewrite_locked(rw, source, policy);
	}
	pthread_mutex_unlock(&set->lock);
	if (also)
		rw->changes[rw->n_changes++] = *also;
	if (r == 0 && rw->n_changes > 0)
		r = store->ops->write(store, rw->changes, rw->n_changes);
	pthread_mutex_lock(&set->lock);
	for (uint32_t i = 0; i < rw->n && r == 0; i++) {
		struct source *source = rw->sources[i];

		(void)policy_apply(&source->record.policy, &change);
		if (source->lister) /* a listing under way; without memory it ends as it began */
			(void)!ufs_set_rates(source->lister, set->config.limits.bytes_per_s,
				policy->origin_requests ? policy->origin_requests
							: set->config.limits.requests_per_s);
	}
	pthread_mutex_unlock(&set->lock);
	pthread_mutex_unlock(&set->write_lock);
	for (uint32_t i = 0; i < rw->n; i++)
		buf_release(&rw->values[i]);
	free(rw);
	return r;
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
	uint64_t seen;
	uint64_t paths;

	source_followed_locked(source, &seen, &paths);
	return max(source->record.evict, seen) + 1;
}

static int evict_refusal(int r, struct err *e)
{
	if (r == -EBUSY)
		return err_set(e, -EBUSY,
			"another eviction of some of its paths is in progress: try again when it "
			"has ended");
	return err_set(e, -ENXIO, "the source was never read: nothing to evict");
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
		return evict_refusal(-ENXIO, e);
	r = store_source(source, e);
	if (r == 0)
		*ret_serial = serial;
	return r;
}

/* ---- eviction of some objects ---------------------------------------------------------------- */

/* A worker that was heard of in this run has not followed the last order yet. */
static bool is_busy_locked(const struct source *source)
{
	return source->record.drop.serial && source->reported &&
	       source_report_locked(source).evicted_paths < source->record.drop.serial;
}

int source_set_may_evict(
	struct source_set *set, const struct volume_id *volume, bool paths, struct err *e)
{
	const struct source *source;
	bool busy;

	pthread_mutex_lock(&set->lock);
	source = source_find_locked(set, volume);
	busy = source && paths && is_busy_locked(source);
	pthread_mutex_unlock(&set->lock);
	if (source && !busy)
		return 0;
	return evict_refusal(source ? -EBUSY : -ENXIO, e);
}

int source_set_evict_paths(struct source_set *set, const struct volume_id *volume,
	const struct source_paths *paths, uint64_t *ret_serial, struct err *e)
{
	struct record_drop drop = { 0 };
	struct source *source;
	bool busy = false;
	int r = record_drop_init(&drop, paths->paths, paths->n, paths->subtree, paths->at);

	if (r < 0)
		return err_set(e, r, "out of memory");
	pthread_mutex_lock(&set->lock);
	source = source_find_locked(set, volume);
	busy = source && is_busy_locked(source);
	if (source && !busy) {
		struct record_drop before = source->record.drop;
		uint64_t evict;
		uint64_t seen;

		source_followed_locked(source, &evict, &seen);
		*ret_serial = drop.serial = max(before.serial, seen) + 1;
		source->record.drop = drop;
		drop = before;
	}
	pthread_mutex_unlock(&set->lock);
	record_drop_release(&drop);
	if (!source || busy)
		return evict_refusal(source ? -EBUSY : -ENXIO, e);
	return store_source(source, e);
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

static bool is_needed_locked(const struct source *source)
{
	bool needed = source->needed || holds_mounts_locked(source) > 0;

	list_for_each (node, &source->waiters)
		needed |= !list_entry(node, struct source_wait, link)->of_dataset;
	return needed;
}

void source_set_end_listing(struct source_set *set, const struct volume_id *volume)
{
	struct source *source;

	pthread_mutex_lock(&set->lock);
	source = source_find_locked(set, volume);
	if (source && !is_needed_locked(source)) {
		source->ended = true;
		if (source->lister)
			ufs_list_cancel(source->lister);
	}
	pthread_mutex_unlock(&set->lock);
}

bool source_use_locked(struct source *source)
{
	source->record.used = wall_s();
	source->idle = false;
	if (source->record.used - source->used_stored < USE_STORED_EVERY)
		return false;
	source->used_stored = source->record.used;
	return true;
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
