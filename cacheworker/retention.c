/* What may still be read, and what goes. See retention.h. */
#include "cacheworker/retention.h"
#include "base/backoff.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/daemon.h"
#include "base/hash.h"
#include "base/log.h"
#include "cacheworker/adopt.h"
#include "cacheworker/copies.h"
#include "cacheworker/evict_job.h"
#include "cacheworker/kept.h"
#include "cacheworker/master_call.h"
#include "cacheworker/report.h"
#include "cacheworker/source.h"
#include "proto/granary.pb-c.h"

#include <stdlib.h>
#include <string.h>

#define ASK_EVERY     (8 * CLOCK_SECOND) /* up to 4 s more */
#define ASK_SOON      (200 * CLOCK_MS)   /* after a new table: several come together */
#define ASK_PATIENCE  (10 * CLOCK_SECOND)
#define RETAINED_MAX  32u
#define DONE_MAX      4096u
#define VOLUME_MAX    (1ull << 50) /* 8 MiB of bits; larger ones are left alone */
#define ROWS_A_GLANCE 4096u        /* between two looks at `closing` */

/* What was followed already: then nothing is to be done until something changes. */
struct done {
	struct volume_id volume;
	uint64_t digest;
};

struct retained {
	uint64_t lineage;
	uint64_t generation;
	uint64_t end;
	uint8_t hash[SHA256_BYTES];
	bool known; /* to the master */
};

/* The retention settings of one volume, checked. */
struct settings {
	struct worker *worker;
	struct volume_id volume;
	struct retained retained[RETAINED_MAX];
	uint32_t n;
	struct generation_id seen; /* by this worker */
	struct table *table;       /* of it */
	uint8_t *named;            /* a bit for each chunk of the table */
	struct rescue rescue;
};

static bool closing(const struct worker *w)
{
	return atomic_load(&w->retention.closing);
}

/* ---- checks ---------------------------------------------------------------------------------- */

static bool take_retained(struct settings *settings, const Granary__SourceRetention *m)
{
	if (m->n_retained > RETAINED_MAX)
		return false;
	for (size_t i = 0; i < m->n_retained; i++) {
		const Granary__Retained *from = m->retained[i];
		struct retained *to = &settings->retained[settings->n++];

		*to = (struct retained){ .lineage = from->lineage,
			.generation = from->generation,
			.end = from->has_end ? from->end : UINT64_MAX,
			.known = from->hash.len == SHA256_BYTES };
		if (to->known)
			memcpy(to->hash, from->hash.data, SHA256_BYTES);
	}
	return true;
}

/* Has the worker seen what cannot come from the master's history? Then that was restored from an older copy. */
static bool contradicts(const struct settings *settings)
{
	const struct retained *newest = &settings->retained[0];

	if (!newest->known || newest->lineage != settings->seen.lineage)
		return false;
	for (uint32_t i = 0; i < settings->n; i++) {
		const struct retained *g = &settings->retained[i];

		if (g->known && g->lineage == newest->lineage &&
			g->generation == settings->seen.generation &&
			memcmp(g->hash, settings->seen.hash, SHA256_BYTES) != 0)
			return true;
	}
	return newest->generation < settings->seen.generation;
}

/* The newest of the retention settings must be of the lineage that this worker uses: else the worker has not been asked for the new
 * lineage yet. */
static bool agrees(const struct settings *settings)
{
	const struct retained *newest = &settings->retained[0];

	if (!newest->known || newest->lineage != settings->seen.lineage)
		return false;
	for (uint32_t i = 0; i < settings->n; i++) {
		const struct retained *g = &settings->retained[i];

		if (g->known && g->lineage == newest->lineage && g->generation > newest->generation)
			return false;
	}
	return !contradicts(settings);
}

/* The master begins a new lineage when it is shown what this worker has seen, with its own seal; of a mount with a token it
 * does not believe that. It decides by what it knows now, which may be more than its retention settings said. */
static void show_seen(struct settings *settings)
{
	const struct frame frame = { .op = FRAME_GET_TABLE };
	Granary__GetTable ask = GRANARY__GET_TABLE__INIT;
	struct master_answer answer;
	struct err e = ERR_INIT;
	uint8_t packed[320];
	int r;

	ask.has_volume = ask.has_seen_lineage = ask.has_seen_generation = ask.has_seen_hash = true;
	ask.volume = (ProtobufCBinaryData){ VOLUME_ID_LEN, settings->volume.bytes };
	ask.seen_lineage = settings->seen.lineage;
	ask.seen_generation = settings->seen.generation;
	ask.seen_hash = (ProtobufCBinaryData){ SHA256_BYTES, settings->seen.hash };
	ask.has_seen_seal = true;
	ask.seen_seal = (ProtobufCBinaryData){ SHA256_BYTES, settings->seen.seal };
	ensure(granary__get_table__get_packed_size(&ask) <= sizeof(packed));
	r = master_call(settings->worker, frame, packed, granary__get_table__pack(&ask, packed),
		ASK_PATIENCE, &answer, &e);
	LOG_LIMITED(LOG_WARN, "master's state is older than what was seen",
		"generation=%llu answer=%s next=\"the master begins a new lineage\"",
		(unsigned long long)settings->seen.generation, r < 0 ? err_name(r) : "taken");
	master_answer_release(&answer);
}

/* The table of what was seen: a source's, or the one kept next to the tier. */
static struct table *find_table(const struct settings *settings)
{
	struct worker *w = settings->worker;
	struct table *table = NULL;

	pthread_mutex_lock(&w->sources.lock);
	list_for_each (node, &w->sources.all) {
		const struct source *source = list_entry(node, struct source, link);

		if (source->table && source->lineage == settings->seen.lineage &&
			volume_id_equal(&source->volume, &settings->volume))
			table = table_ref(source->table);
	}
	pthread_mutex_unlock(&w->sources.lock);
	if (!table && kept_table_open(w, &settings->volume, settings->seen.lineage, &table) < 0)
		return NULL;
	if (memcmp(table_info(table)->id.hash, settings->seen.hash, SHA256_BYTES) == 0)
		return table;
	table_unref(table);
	return NULL;
}

/* ---- chunks that are not named --------------------------------------------------------------- */

static uint64_t chunks_of(const struct table *table)
{
	return (table_info(table)->end + CHUNK_BYTES - 1) / CHUNK_BYTES;
}

static void name_row(struct settings *settings, const struct table_row *row)
{
	uint64_t last = (row->offset + row->size - 1) / CHUNK_BYTES;

	for (uint64_t i = row->offset / CHUNK_BYTES; i <= last; i++)
		settings->named[i / 8] |= (uint8_t)(1u << i % 8);
}

/* Marks the chunks of every row that a retained generation names. */
static int name_chunks(struct settings *settings)
{
	struct generation_retained retained[RETAINED_MAX];
	_cleanup_(table_cursor_release) struct table_cursor cursor = { 0 };
	_cleanup_free_ struct table_row *row = malloc(sizeof(*row));
	uint32_t n = 0;
	int r = row ? 0 : -ENOMEM;

	for (uint32_t i = 0; i < settings->n; i++)
		if (settings->retained[i].lineage == settings->seen.lineage)
			retained[n++] =
				(struct generation_retained){ settings->retained[i].generation,
					settings->retained[i].end };
	settings->named = calloc(1, chunks_of(settings->table) / 8 + 1);
	if (!settings->named)
		r = -ENOMEM;
	while (r == 0 && (r = table_next(settings->table, &cursor, row)) == 0) {
		if (row->size > 0 && !(row->flags & ROW_DIRECTORY) &&
			generation_names(retained, n, row))
			name_row(settings, row);
		if (row->ordinal % ROWS_A_GLANCE == 0 && closing(settings->worker))
			r = -ECANCELED;
	}
	return r == -ENOENT ? 0 : r;
}

/* Of the worker's own lineage: what the table does not reach is of a later generation. */
static bool keep_named(void *arg, uint64_t chunk)
{
	struct settings *settings = arg;

	rescue_flush(&settings->rescue); /* the chunk before this one is gone now */
	if (closing(settings->worker) || chunk >= table_info(settings->table)->end / CHUNK_BYTES ||
		settings->named[chunk / 8] & 1u << chunk % 8)
		return true;
	rescue_chunk(&settings->rescue, chunk);
	return closing(settings->worker);
}

static bool keep_none(void *arg, uint64_t chunk)
{
	struct settings *settings = arg;

	rescue_flush(&settings->rescue);
	if (!closing(settings->worker))
		rescue_chunk(&settings->rescue, chunk);
	return closing(settings->worker);
}

/* Drops chunks of one lineage, saving what lives. `from`: what lies in them; may be NULL. */
static int drop_chunks(struct settings *settings, uint64_t lineage, struct table *from,
	bool (*keep)(void *arg, uint64_t chunk))
{
	struct worker *w = settings->worker;
	uint64_t bytes;
	int r;

	settings->rescue = (struct rescue){ .worker = w,
		.volume = settings->volume,
		.from_lineage = lineage,
		.from = from,
		.to_lineage = settings->seen.lineage,
		.to = settings->table };
	r = rescue_init(&settings->rescue);
	if (r < 0)
		return r;
	bytes = tier_set_drop(w->tiers, &settings->volume, lineage, keep, settings);
	rescue_flush(&settings->rescue);
	rescue_release(&settings->rescue);
	counter_add(&w->counters.dropped_bytes, bytes);
	if (bytes)
		log_info("unnamed chunks dropped", "lineage=%016llx bytes=%llu",
			(unsigned long long)lineage, (unsigned long long)bytes);
	return closing(w) ? -ECANCELED : 0;
}

/* ---- lineages -------------------------------------------------------------------------------- */

static bool lineage_retained(const struct settings *settings, uint64_t lineage)
{
	for (uint32_t i = 0; i < settings->n; i++)
		if (settings->retained[i].lineage == lineage)
			return true;
	return false;
}

static int drop_lineage(struct settings *settings, uint64_t lineage)
{
	struct worker *w = settings->worker;
	struct table *from = NULL;
	int r;

	if (lineage_retained(settings, lineage))
		return 0;
	if (kept_table_open(w, &settings->volume, lineage, &from) < 0)
		from = NULL; /* nothing to be known of it */
	r = drop_chunks(settings, lineage, from, keep_none);
	table_unref(from);
	if (r < 0)
		return r;
	source_forget_elder(w, &settings->volume, lineage);
	kept_table_remove(w, &settings->volume, lineage);
	return 0;
}

/* On the tier, or with a table next to it. */
static uint32_t all_lineages(const struct settings *settings, uint64_t out[2 * KEPT_LINEAGES])
{
	uint32_t n =
		tier_set_lineages(settings->worker->tiers, &settings->volume, out, KEPT_LINEAGES);
	uint64_t kept[KEPT_LINEAGES];
	uint32_t n_kept = kept_lineages(settings->worker, &settings->volume, kept);

	for (uint32_t i = 0; i < n_kept; i++) {
		bool there = false;

		for (uint32_t k = 0; k < n; k++)
			there |= out[k] == kept[i];
		if (!there)
			out[n++] = kept[i];
	}
	return n;
}

static int drop_lineages(struct settings *settings)
{
	uint64_t lineages[2 * KEPT_LINEAGES];
	uint32_t n = all_lineages(settings, lineages);
	int r = 0;

	for (uint32_t i = 0; i < n && r == 0; i++)
		if (lineages[i] != settings->seen.lineage)
			r = drop_lineage(settings, lineages[i]);
	return r;
}

/* ---- a volume -------------------------------------------------------------------------------- */

static uint64_t digest_of(const struct settings *settings)
{
	uint64_t lineages[2 * KEPT_LINEAGES] = { 0 };
	uint32_t n = all_lineages(settings, lineages);
	uint64_t digest = hash_xxh3(lineages, n * sizeof(lineages[0]), settings->seen.generation);

	for (uint32_t i = 0; i < settings->n; i++) {
		uint64_t words[] = { settings->retained[i].lineage,
			settings->retained[i].generation };

		digest = hash_xxh3(words, sizeof(words), digest);
	}
	return hash_xxh3(settings->seen.hash, SHA256_BYTES, digest);
}

static struct done *find_done(struct worker *w, const struct volume_id *volume)
{
	struct retention *retention = &w->retention;
	struct done *grown;

	for (uint32_t i = 0; i < retention->n_done; i++)
		if (volume_id_equal(&retention->done[i].volume, volume))
			return &retention->done[i];
	if (retention->n_done == DONE_MAX)
		retention->n_done = 0; /* all are looked at once more */
	grown = reallocarray(retention->done, retention->n_done + 1, sizeof(*grown));
	if (!grown)
		return NULL;
	retention->done = grown;
	grown[retention->n_done] = (struct done){ .volume = *volume };
	return &grown[retention->n_done++];
}

static int follow_retained(struct settings *settings)
{
	int r;

	settings->table = find_table(settings);
	if (!settings->table)
		return -ENOENT; /* there will be one when a reader comes */
	r = table_info(settings->table)->end > VOLUME_MAX ? -EFBIG : name_chunks(settings);
	if (r == 0)
		r = drop_chunks(settings, settings->seen.lineage, settings->table, keep_named);
	if (r == 0)
		r = drop_lineages(settings);
	free(settings->named);
	table_unref(settings->table);
	return r;
}

void retention_follow_policy(
	struct worker *w, const struct volume_id *volume, const Granary__Policy *m)
{
	const struct tier_policy policy = {
		.quota = m->quota,
		.priority = m->priority,
		.pin = m->pin,
		.evict = m->evict == TIER_EVICT_LRU ? TIER_EVICT_LRU : TIER_EVICT_NEVER,
		.origin_bandwidth = m->origin_bandwidth,
		.origin_requests = m->origin_requests,
		.copies = copies_valid(m->copies) ? m->copies : COPIES_AUTO,
		.direct = m->direct,
	};
	int r = tier_set_policy(w->tiers, volume, &policy);

	source_set_rates(w, volume, policy.origin_bandwidth, policy.origin_requests);
	copies_note_policy(w, volume, policy.copies);
	if (r < 0)
		LOG_LIMITED(LOG_WARN, "policy not applied", "error=%s next=\"tried again\"",
			err_name(r));
}

static void follow(struct worker *w, const Granary__SourceRetention *m)
{
	struct settings settings = { .worker = w };
	uint64_t digest;
	struct done *done;
	int r;

	if (m->volume.len != VOLUME_ID_LEN)
		return;
	memcpy(settings.volume.bytes, m->volume.data, VOLUME_ID_LEN);
	if (m->source)
		source_set_way(w, &settings.volume, m->source);
	if (m->has_current_ms)
		source_note_current(w, &settings.volume, m->current_ms);
	if (m->policy)
		retention_follow_policy(w, &settings.volume, m->policy);
	if (m->keepers)
		copies_note_keepers(
			w, &settings.volume, m->keepers->workers, m->keepers->n_workers);
	if (evict_job_is_of(w, &settings.volume))
		return; /* what else is to go of it waits: that puts back what stays */
	if (report_note(w, &settings.volume, m->evict))
		retention_wake(w); /* the master hears of it at once */
	if (m->evict_paths && report_note_paths(w, &settings.volume, m->evict_paths))
		retention_wake(w);
	if (evict_job_is_of(w, &settings.volume))
		return; /* likewise */
	if (m->n_retained == 0 || !take_retained(&settings, m) ||
		kept_seen_load(w, &settings.volume, &settings.seen) < 0)
		return;
	if (!agrees(&settings)) {
		if (contradicts(&settings))
			show_seen(&settings);
		log_debug("retention settings not applied", "generation=%llu seen=%llu",
			(unsigned long long)settings.retained[0].generation,
			(unsigned long long)settings.seen.generation);
		return;
	}
	digest = digest_of(&settings);
	done = find_done(w, &settings.volume);
	if (!done || done->digest == digest)
		return;
	r = follow_retained(&settings);
	if (r == 0)
		done->digest = digest; /* when lineages went, there may be more: once again */
	else if (r != -ENOENT && r != -ECANCELED && r != -EFBIG)
		LOG_LIMITED(LOG_WARN, "unreferenced chunks not removed",
			"error=%s next=\"tried again\"", err_name(r));
}

/* ---- the work -------------------------------------------------------------------------------- */

static void note_reported(struct worker *w, uint64_t made_ns)
{
	pthread_mutex_lock(&w->retention.lock);
	w->retention.reported_ns = made_ns;
	pthread_cond_broadcast(&w->retention.reported);
	pthread_mutex_unlock(&w->retention.lock);
}

/* One page; *ret_next is the first source of the following one, or 0. */
static int ask_page(struct worker *w, uint64_t first, uint64_t *ret_next, struct err *e)
{
	const struct frame frame = { .op = FRAME_GET_RETENTION, .offset = first };
	struct master_answer answer;
	Granary__Retention *retention = NULL;
	size_t len = 0;
	uint64_t made_ns = clock_mono_ns();
	_cleanup_free_ uint8_t *report = first == 0 ? report_message(w, &len) : NULL;
	int r = master_call(w, frame, report, len, ASK_PATIENCE, &answer, e);

	if (r == 0 && report)
		note_reported(w, made_ns);
	if (r == 0) {
		retention = granary__retention__unpack(NULL, answer.reply.payload, answer.payload);
		if (!retention)
			r = err_set(e, -EBADMSG,
				"the master's retention settings cannot be decoded; use the same "
				"version on both sides");
	}
	for (size_t i = 0; retention && i < retention->n_sources && !closing(w); i++)
		follow(w, retention->sources[i]);
	*ret_next = r == 0 && answer.reply.offset > first ? answer.reply.offset : 0;
	if (retention)
		granary__retention__free_unpacked(retention, NULL);
	master_answer_release(&answer);
	return r;
}

static void ask_all(struct worker *w)
{
	struct err e = ERR_INIT;
	uint64_t began_ns = clock_mono_ns();
	uint32_t known = w->retention.n_reports;
	uint64_t next = 0;
	int r;

	report_take_evicted(w);
	do {
		r = ask_page(w, next, &next, &e);
	} while (r == 0 && next > 0 && !closing(w));
	if (r == 0 && !closing(w))
		atomic_store(&w->retention.heard_ns, began_ns);
	/* The next report has them: after a start the master learns at once what is cached. */
	if (w->retention.n_reports > known)
		retention_wake(w);
	if (r == 0)
		kept_fence_save(w);
	else if (r != -ECANCELED)
		log_debug("no retention settings", "reason=\"%s\" next=\"nothing is removed\"",
			e.text);
}

/* Time until the next round; 0: it begins now, with what woke it. */
static uint64_t wait_ns(struct worker *w)
{
	struct retention *retention = &w->retention;
	uint64_t now = clock_mono_ns();
	uint64_t ns;

	pthread_mutex_lock(&retention->lock);
	if (retention->woken)
		retention->due_ns = min(retention->due_ns, now + ASK_SOON);
	retention->woken = false;
	ns = retention->asks_now || now >= retention->due_ns ? 0 : retention->due_ns - now;
	if (ns == 0)
		retention->asks_now = false;
	pthread_mutex_unlock(&retention->lock);
	return ns;
}

static uint64_t next_due(void)
{
	return clock_mono_ns() + backoff_spread(ASK_EVERY, (struct backoff_spread){ 100, 150 });
}

/* Memory of units that ended is kept for the next ones. It goes back when no unit was fetched for ASK_EVERY. */
static void give_back(struct worker *w)
{
	struct retention *retention = &w->retention;
	uint64_t units = counter_get(&w->counters.units) + counter_get(&w->counters.neighbours) +
			 counter_get(&w->counters.preload_units);
	uint64_t now = clock_mono_ns();

	if (units != retention->units || counter_get(&w->counters.flights) > 0) {
		retention->units = units;
		retention->fetched_ns = now;
	} else if (retention->fetched_ns && now - retention->fetched_ns >= ASK_EVERY) {
		retention->fetched_ns = 0;
		buffers_drop_kept(&w->buffers);
		daemon_give_back();
	}
}

static uint64_t run(void *arg)
{
	struct worker *w = arg;
	uint64_t ns;

	if (closing(w))
		return PERIODIC_IDLE;
	ns = wait_ns(w);
	if (ns > 0)
		return ns;
	ask_all(w);
	give_back(w);
	w->retention.due_ns = next_due();
	return 0; /* when it is due, or was woken meanwhile, is computed after other jobs */
}

void retention_init(struct worker *w)
{
	struct retention *retention = &w->retention;
	pthread_condattr_t attr;

	pthread_condattr_init(&attr);
	(void)pthread_condattr_setclock(&attr, CLOCK_MONOTONIC); /* cannot fail */
	pthread_mutex_init(&retention->lock, NULL);
	pthread_cond_init(&retention->reported, &attr);
	pthread_condattr_destroy(&attr);
	hash_random(&retention->run, sizeof(retention->run));
	retention->work = (struct periodic_work){ .name = "retention", .run = run, .arg = w };
	retention->woken = true; /* at start */
}

bool retention_heard(const struct worker *w, uint64_t since_ns)
{
	return atomic_load(&w->retention.heard_ns) >= since_ns;
}

void retention_start(struct worker *w)
{
	w->retention.due_ns = next_due();
	periodic_start(w->work, &w->retention.work, 0);
}

void retention_wake(struct worker *w)
{
	pthread_mutex_lock(&w->retention.lock);
	w->retention.woken = true;
	pthread_mutex_unlock(&w->retention.lock);
	periodic_poke(&w->retention.work);
}

void retention_report(struct worker *w, uint64_t since_ns, uint64_t patience_ns)
{
	struct retention *retention = &w->retention;
	uint64_t until = clock_mono_ns() + patience_ns;
	struct timespec at = { .tv_sec = (time_t)(until / CLOCK_SECOND),
		.tv_nsec = (long)(until % CLOCK_SECOND) };
	int r = 0;

	pthread_mutex_lock(&retention->lock);
	retention->asks_now |= retention->reported_ns < since_ns;
	if (retention->asks_now)
		periodic_poke(&retention->work);
	while (retention->reported_ns < since_ns && !closing(w) && r != ETIMEDOUT)
		r = pthread_cond_timedwait(&retention->reported, &retention->lock, &at);
	pthread_mutex_unlock(&retention->lock);
}

void retention_stop(struct worker *w)
{
	pthread_mutex_lock(&w->retention.lock);
	atomic_store(&w->retention.closing, true);
	pthread_cond_broadcast(&w->retention.reported);
	pthread_mutex_unlock(&w->retention.lock);
}

void retention_close(struct worker *w)
{
	struct retention *retention = &w->retention;

	periodic_stop(&retention->work);
	evict_job_close(w);
	free(TAKE(retention->done));
	report_release(w);
}

void retention_release(struct worker *w)
{
	pthread_cond_destroy(&w->retention.reported);
	pthread_mutex_destroy(&w->retention.lock);
}
