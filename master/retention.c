/* The retention settings for workers: which generations may still be read, and each source's policy. See
 * source.h. */
#include "base/cleanup.h"
#include "base/clock.h"
#include "master/source_internal.h"
#include "proto/granary.pb-c.h"

#include <string.h>

#define RETAINED_MAX \
	(GENERATIONS_RETAINED + GENERATIONS_KEPT) /* those known, and those only mounts know */

/* One page of the answer, in one piece of memory. */
struct page_source {
	Granary__SourceRetention retention;
	Granary__Policy policy;
	Granary__EvictPaths drop;
	Granary__Source source;
	Granary__Keepers keepers;
	uint32_t numbers[SOURCE_KEEPERS];
	Granary__Retained retained[RETAINED_MAX];
	Granary__Retained *pointers[RETAINED_MAX];
	struct volume_id volume;
	uint8_t hashes[GENERATIONS_RETAINED][SHA256_BYTES];
};

struct page {
	Granary__SourceRetention *pointers[RETENTION_PAGE];
	struct page_source sources[RETENTION_PAGE];
};

/* Protobuf reads strings through char pointers that it does not change. */
static char *borrow(const char *s)
{
	return (char *)(uintptr_t)s;
}

void source_message(const struct ufs_config *config, Granary__Source *out)
{
	granary__source__init(out);
	out->has_scheme = out->has_path_style = out->has_anonymous = 1;
	out->has_requester_pays = out->has_versions = out->has_no_local = 1;
	out->scheme = config->scheme;
	out->path_style = config->path_style;
	out->anonymous = config->anonymous;
	out->requester_pays = config->requester_pays;
	out->versions = config->versions;
	out->no_local = config->no_local;
	out->endpoint = borrow(config->endpoint);
	out->region = borrow(config->region);
	out->bucket = borrow(config->bucket);
	out->prefix = borrow(config->prefix);
	out->profile = borrow(config->profile);
	out->credentials = borrow(config->credentials);
	out->scope = borrow(config->scope);
	out->ca_file = borrow(config->ca_file);
}

static Granary__Retained *add_retained(struct page_source *p)
{
	Granary__Retained *r = &p->retained[p->retention.n_retained];

	granary__retained__init(r);
	r->has_lineage = r->has_generation = 1;
	p->pointers[p->retention.n_retained++] = r;
	return r;
}

static void add_known_locked(struct page_source *p, const struct source *source)
{
	uint32_t which[GENERATIONS_RETAINED];
	uint32_t n = holds_retained_locked(source, which);

	for (uint32_t i = 0; i < n; i++) {
		const struct record_generation *g = &source->generations[which[i]];
		Granary__Retained *r = add_retained(p);

		r->lineage = g->id.lineage;
		r->generation = g->id.generation;
		memcpy(p->hashes[i], g->id.hash, SHA256_BYTES);
		r->has_hash = 1;
		r->hash = (ProtobufCBinaryData){ SHA256_BYTES, p->hashes[i] };
		r->has_end = g->end > 0;
		r->end = g->end;
	}
}

static bool is_known(const struct source *source, const struct shown *shown)
{
	for (uint32_t i = 0; i < source->n; i++)
		if (source->generations[i].id.lineage == shown->lineage &&
			source->generations[i].id.generation == shown->generation)
			return true;
	return false;
}

static bool is_listed(const struct page_source *p, const struct shown *shown)
{
	for (size_t i = 0; i < p->retention.n_retained; i++)
		if (p->retained[i].lineage == shown->lineage &&
			p->retained[i].generation == shown->generation)
			return true;
	return false;
}

/* What a mount shows that this master, restored from an older copy, has never made. */
static void add_unknown_locked(struct page_source *p, const struct source *source)
{
	list_for_each (node, &source->shown) {
		const struct shown *shown = list_entry(node, struct shown, link);
		Granary__Retained *r;

		if (p->retention.n_retained == RETAINED_MAX)
			return;
		if (is_known(source, shown) || is_listed(p, shown) ||
			holds_count_locked(source, shown->lineage, shown->generation) == 0)
			continue;
		r = add_retained(p);
		r->lineage = shown->lineage;
		r->generation = shown->generation;
	}
}

/* Until somebody said that he followed it. Borrowed: packed under the lock. */
static void fill_drop_locked(struct page_source *p, const struct source *source)
{
	const struct record_drop *drop = &source->record.drop;

	if (!drop->serial ||
		(source->reported && source_report_locked(source).evicted_paths >= drop->serial))
		return;
	granary__evict_paths__init(&p->drop);
	p->drop.has_serial = 1;
	p->drop.serial = drop->serial;
	p->drop.n_paths = drop->n;
	p->drop.paths = (char **)(uintptr_t)drop->paths; /* read only */
	p->drop.subtree = drop->subtree;
	p->drop.at = drop->at;
	p->retention.evict_paths = &p->drop;
}

static void fill_keepers_locked(struct page_source *p, struct source *source)
{
	const uint16_t *keepers;
	uint32_t n;

	if (!source_keepers_locked(source, &keepers, &n))
		return;
	granary__keepers__init(&p->keepers);
	for (uint32_t i = 0; i < n; i++)
		p->numbers[i] = keepers[i];
	p->keepers.n_workers = n;
	p->keepers.workers = p->numbers;
	p->retention.keepers = &p->keepers;
}

static void fill_locked(struct page_source *p, struct source *source)
{
	const struct tier_policy *policy = &source->record.policy;

	granary__source_retention__init(&p->retention);
	granary__policy__init(&p->policy);
	p->volume = source->record.volume;
	p->retention.has_volume = 1;
	p->retention.volume = (ProtobufCBinaryData){ VOLUME_ID_LEN, p->volume.bytes };
	p->retention.retained = p->pointers;
	p->retention.policy = &p->policy;
	p->policy.has_quota = p->policy.has_priority = p->policy.has_pin = 1;
	p->policy.has_evict = 1;
	p->policy.quota = policy->quota;
	p->policy.priority = policy->priority;
	p->policy.pin = policy->pin;
	p->policy.evict = policy->evict;
	p->policy.has_origin_bandwidth = p->policy.has_origin_requests = 1;
	p->policy.origin_bandwidth = policy->origin_bandwidth;
	p->policy.origin_requests = policy->origin_requests;
	p->policy.has_copies = p->policy.has_direct = 1;
	p->policy.copies = policy->copies;
	p->policy.direct = policy->direct;
	if (source->idle) { /* before all others */
		p->policy.pin = false;
		p->policy.priority = -1;
	}
	p->retention.has_evict = 1;
	p->retention.evict = source->record.evict;
	fill_drop_locked(p, source);
	fill_keepers_locked(p, source);
	source_message(&source->record.config, &p->source);
	p->retention.source = &p->source;
	if (source->n > 0) {
		p->retention.current_ms = source->generations[source->n - 1].current_ms;
		p->retention.has_current_ms = p->retention.current_ms > 0;
	}
	/* None at all: nothing is to be dropped. */
	if (source->n == 0 || holds_in_grace(source->set))
		return;
	add_known_locked(p, source);
	add_unknown_locked(p, source);
}

uint8_t *source_set_retention(
	struct source_set *set, uint64_t first, uint64_t *ret_next, size_t *ret_len)
{
	_cleanup_free_ struct page *page = calloc(1, sizeof(*page));
	Granary__Retention retention = GRANARY__RETENTION__INIT;
	uint64_t number = 0;
	uint8_t *packed;

	if (!page)
		return NULL;
	*ret_next = 0;
	retention.sources = page->pointers;
	pthread_mutex_lock(&set->lock);
	list_for_each (node, &set->sources) {
		if (number++ < first)
			continue;
		if (retention.n_sources == RETENTION_PAGE) {
			*ret_next = number - 1;
			break;
		}
		page->pointers[retention.n_sources] = &page->sources[retention.n_sources].retention;
		fill_locked(&page->sources[retention.n_sources++],
			list_entry(node, struct source, link));
	}
	packed = malloc(granary__retention__get_packed_size(&retention) + 1);
	if (packed)
		*ret_len = granary__retention__pack(&retention, packed);
	pthread_mutex_unlock(&set->lock);
	return packed;
}
