/*
 * Sources that are listed again by themselves: when, and what mounts hear of it. See source.h.
 *
 * A source is followed as often as the most impatient wants, dataset or mount. Times are spread by
 * a tenth, so that sources that began together do not go on together. A mount of the last known generation
 * requests one listing.
 */
#include "base/backoff.h"
#include "base/log.h"
#include "master/source_internal.h"

#include <inttypes.h>
#include <string.h>

#define FOLLOW_MAX_S 600u /* between attempts that fail, unless the interval is longer */

uint32_t source_follow_interval_locked(struct source *source)
{
	int64_t since_ms;
	uint32_t held = holds_follow_locked(source, &since_ms);

	return held && (!source->follow_s || held < source->follow_s) ? held : source->follow_s;
}

void source_set_follow(struct source_set *set, const struct source_follow *follows, uint32_t n)
{
	pthread_mutex_lock(&set->lock);
	list_for_each (node, &set->sources)
		list_entry(node, struct source, link)->follow_s = 0;
	for (uint32_t i = 0; i < n; i++) {
		struct source *source = source_find_locked(set, &follows[i].volume);
		uint32_t s = follows[i].interval_s;

		if (source && (!source->follow_s || s < source->follow_s))
			source->follow_s = s;
	}
	pthread_mutex_unlock(&set->lock);
}

/* Has a mount requested a listing that begins later than the one that found the newest generation? */
static bool is_wanted_once_locked(struct source *source)
{
	const struct record_generation *newest = generations_newest(source);
	int64_t now_ms = (int64_t)(clock_wall_ns() / CLOCK_MS);
	int64_t since_ms;

	(void)holds_follow_locked(source, &since_ms);
	/* Times in the future are from before the clock was set back: they are not compared. */
	return newest && since_ms && since_ms <= now_ms &&
	       (since_ms > newest->current_ms || newest->current_ms > now_ms);
}

static uint64_t wait_ns(const struct source *source, uint32_t interval_s)
{
	return backoff_ns(&(struct backoff){ .min_ns = interval_s * CLOCK_SECOND,
		.max_ns = max(FOLLOW_MAX_S, interval_s) * CLOCK_SECOND,
		.spread = { 95, 105 },
		.doublings = source->follow_fails });
}

/* Whether its time has come. The first time is an interval after it was found to be followed: it was
 * listed when it was mounted or made, unless a mount requests a listing. `listed`: one has just ended. */
static bool is_due_locked(struct source *source, uint64_t now, bool listed)
{
	bool once = is_wanted_once_locked(source);
	uint32_t interval_s = once ? 1 : source_follow_interval_locked(source);

	if (source->following)
		return false;
	if (!interval_s) {
		source->follow_ns = 0;
		source->follow_fails = 0;
		return false;
	}
	/* Also when somebody more impatient came. */
	if (!source->follow_ns || (once && source->follow_ns > now + FOLLOW_MAX_S * CLOCK_SECOND) ||
		(!source->follow_fails && source->follow_ns > now + 2 * interval_s * CLOCK_SECOND))
		source->follow_ns = now + (once && !listed && !source->follow_fails
							  ? 0
							  : wait_ns(source, interval_s));
	return now >= source->follow_ns;
}

int source_set_follow_due(
	struct source_set *set, struct volume_id *ret_volume, struct ufs_config *ret_config)
{
	uint64_t now = clock_mono_ns();
	struct source *first = NULL;
	int r = -ENOENT;

	pthread_mutex_lock(&set->lock);
	list_for_each (node, &set->sources) {
		struct source *source = list_entry(node, struct source, link);

		if (is_due_locked(source, now, false) &&
			(!first || source->follow_ns < first->follow_ns))
			first = source;
	}
	if (first)
		r = ufs_config_copy(&first->record.config, ret_config);
	if (r == 0) {
		first->following = true;
		*ret_volume = first->record.volume;
	}
	pthread_mutex_unlock(&set->lock);
	return r;
}

void source_set_followed(struct source_set *set, const struct volume_id *volume, int status)
{
	struct source *source;

	pthread_mutex_lock(&set->lock);
	source = source_find_locked(set, volume);
	ensure(source); /* they are never removed */
	source->following = false;
	source->follow_fails = status < 0 ? source->follow_fails + 1 : 0;
	source->follow_ns = 0;
	(void)is_due_locked(source, clock_mono_ns(), true); /* plans the next */
	pthread_mutex_unlock(&set->lock);
}

void source_set_follow_later(struct source_set *set, const struct volume_id *volume)
{
	struct source *source;

	pthread_mutex_lock(&set->lock);
	source = source_find_locked(set, volume);
	ensure(source);            /* as above */
	source->following = false; /* its time stays */
	pthread_mutex_unlock(&set->lock);
}

/* Some of those that are sent to workers; others for each mount. */
static void take_keepers_locked(
	struct source *source, const struct source_hold *hold, struct source_news *news)
{
	const uint16_t *keepers;
	uint32_t n;

	news->keepers_known = source_keepers_locked(source, &keepers, &n);
	news->n_keepers = min(n, SOURCE_NEWS_KEEPERS);
	for (uint32_t i = 0; i < news->n_keepers; i++)
		news->keepers[i] = keepers[(hold->mount[0] + i) % n];
}

int source_set_news(
	struct source_set *set, const struct source_hold *hold, struct source_news *ret_news)
{
	const struct record_generation *newest = NULL;
	struct source *source;

	*ret_news = (struct source_news){ .now_ms = (int64_t)(clock_wall_ns() / CLOCK_MS) };
	pthread_mutex_lock(&set->lock);
	source = source_find_locked(set, &hold->volume);
	if (source) {
		newest = generations_newest(source);
		ret_news->policy = source->record.policy;
		ret_news->cached_known = source->reported;
		ret_news->cached_bytes = source_report_locked(source).cached_bytes;
		take_keepers_locked(source, hold, ret_news);
	}
	if (newest) {
		ret_news->newest = newest->id;
		ret_news->newest_ms = newest->current_ms;
	}
	for (uint32_t i = source ? source->n : 0; i-- > 0;) {
		const struct record_generation *g = &source->generations[i];

		if (g->id.lineage != hold->lineage || g->id.generation != hold->generation)
			continue;
		ret_news->kept = g->kept;
		ret_news->shown_ms = g->current_ms ? g->current_ms : g->built_at * 1000;
		break;
	}
	pthread_mutex_unlock(&set->lock);
	return source ? 0 : -ENXIO;
}
