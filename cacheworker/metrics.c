/* Values with labels for /metrics. See metrics.h. */
#include "cacheworker/metrics.h"
#include "cacheworker/source.h"
#include "cacheworker/worker.h"

#include <stdlib.h>
#include <string.h>

#define ROWS_MAX  4096u /* volumes looked at */
#define URL_BYTES 256u

/* What is known of one volume, over its lineages. */
struct row {
	struct volume_id volume;
	char name[2 * VOLUME_ID_LEN + 1]; /* its id, or "other" */
	char url[URL_BYTES];
	uint64_t files, bytes, cached;
	uint64_t file_bytes, tier_bytes, peer_bytes, given_bytes,
		bypass_bytes; /* given: as they came */
	uint64_t hits, waits;
	uint64_t origin_bytes, gets;
	uint64_t causes[UFS_CAUSE_COUNT];
};

/* ---- sources --------------------------------------------------------------------------------- */

static void url_of(const struct ufs_config *config, char out[URL_BYTES])
{
	static const char *const schemes[] = {
		[UFS_S3] = "s3", [UFS_FILE] = "file", [UFS_OBS] = "obs"
	};

	(void)snprintf(out, URL_BYTES, "%s://%s%s%s", schemes[config->scheme],
		config->bucket ? config->bucket : "", config->bucket ? "/" : "",
		config->prefix ? config->prefix : ""); /* cut */
}

json_t *worker_use_json(const struct source *source)
{
	const struct source_use *use = &source->use;
	char url[URL_BYTES];

	url_of(&source->origin, url);
	return json_pack("{s:s*, s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "url", url, "file_bytes",
		(json_int_t)counter_get(&use->file_bytes), "tier_bytes",
		(json_int_t)counter_get(&use->tier_bytes), "peer_bytes",
		(json_int_t)counter_get(&use->peer_bytes), "origin_bytes",
		(json_int_t)counter_get(&use->origin_bytes), "bypass_bytes",
		(json_int_t)counter_get(&use->bypass_bytes), "hits",
		(json_int_t)counter_get(&use->hits), "waits", (json_int_t)counter_get(&use->waits));
}

/* Under sources.lock. */
static void add_source(struct worker *w, struct source *source, struct row *row)
{
	struct ufs_counters origin;
	const struct table_info *info = table_info(source->table);
	const counter_t *causes[] = {
#define ROW(X, NAME, name, help) [UFS_CAUSE_##NAME] = &origin.cause_##name,
		UFS_CAUSES(ROW, )
#undef ROW
	};

	source_origin_counters(source, &origin);
	row->files = max(row->files, info->live_files);
	row->bytes = max(row->bytes, info->live_bytes);
	row->cached += tier_set_volume_bytes(w->tiers, &source->volume, source->lineage);
	row->file_bytes += counter_get(&source->use.file_bytes);
	row->tier_bytes += counter_get(&source->use.tier_bytes);
	row->peer_bytes += counter_get(&source->use.peer_bytes);
	row->given_bytes += counter_get(&source->use.origin_bytes);
	row->bypass_bytes += counter_get(&source->use.bypass_bytes);
	row->hits += counter_get(&source->use.hits);
	row->waits += counter_get(&source->use.waits);
	row->origin_bytes += counter_get(&origin.bytes);
	row->gets += counter_get(&origin.gets);
	for (size_t i = 0; i < ARRAY_SIZE(causes); i++)
		if (causes[i])
			row->causes[i] += counter_get(causes[i]);
}

static struct row *row_of(struct row *rows, uint32_t *n, const struct source *source)
{
	struct row *row;

	for (uint32_t i = 0; i < *n; i++)
		if (volume_id_equal(&rows[i].volume, &source->volume))
			return &rows[i];
	if (*n == ROWS_MAX)
		return &rows[ROWS_MAX - 1]; /* the rest together */
	row = &rows[(*n)++];
	row->volume = source->volume;
	hash_hex(row->volume.bytes, VOLUME_ID_LEN, row->name);
	url_of(&source->origin, row->url);
	return row;
}

static uint64_t weight(const struct row *row)
{
	return row->file_bytes + row->tier_bytes + row->peer_bytes + row->given_bytes +
	       row->origin_bytes;
}

/* The most used first; of equals, in the order of their names, so that they do not change places. */
static int compare(const void *a, const void *b)
{
	const struct row *x = a;
	const struct row *y = b;

	if (weight(x) != weight(y))
		return weight(x) < weight(y) ? 1 : -1;
	return strcmp(x->name, y->name);
}

static void merge(struct row *to, const struct row *row)
{
	uint64_t *sum = &to->files;
	const uint64_t *value = &row->files;
	size_t n = (sizeof(*row) - offsetof(struct row, files)) / sizeof(uint64_t);

	(void)snprintf(to->name, sizeof(to->name), "other");
	(void)snprintf(to->url, sizeof(to->url), "other");
	for (size_t i = 0; i < n; i++)
		sum[i] += value[i];
}

/* At most METRICS_SOURCES + 1 rows, the caller's; NULL without memory. */
static struct row *gather(struct worker *w, uint32_t *ret_n)
{
	struct row *rows;
	uint32_t n = 0;
	uint32_t all = 0;

	pthread_mutex_lock(&w->sources.lock);
	list_for_each (count, &w->sources.all)
		all++;
	rows = calloc(min(all, ROWS_MAX) + 1, sizeof(*rows));
	if (rows)
		list_for_each (node, &w->sources.all) {
			struct source *source = list_entry(node, struct source, link);

			if (source->table && source->ufs)
				add_source(w, source, row_of(rows, &n, source));
		}
	pthread_mutex_unlock(&w->sources.lock);
	if (!rows)
		return NULL;
	qsort(rows, n, sizeof(*rows), compare);
	for (uint32_t i = METRICS_SOURCES + 1; i < n; i++)
		merge(&rows[METRICS_SOURCES], &rows[i]);
	if (n > METRICS_SOURCES)
		merge(&rows[METRICS_SOURCES], &(struct row){ 0 });
	*ret_n = min(n, METRICS_SOURCES + 1);
	return rows;
}

#define SOURCE_LABELS(row, ...) \
	METRIC_LABELS({ "volume", (row)->name }, { "source", (row)->url }, ##__VA_ARGS__)

static void plain_metrics(struct metrics *m, const struct row *rows, uint32_t n)
{
	static const struct {
		struct metric_family family;
		size_t offset;
	} plain[] = {
		{ { "granary_source_files", GAUGE, "files", "Files of the source" },
			offsetof(struct row, files) },
		{ { "granary_source_bytes", GAUGE, "bytes", "Bytes of the source" },
			offsetof(struct row, bytes) },
		{ { "granary_source_cached_bytes", GAUGE, "bytes",
			  "Bytes of the source in this worker's tiers" },
			offsetof(struct row, cached) },
		{ { "granary_source_bypass_bytes_total", COUNTER, "bytes",
			  "Bytes of the source fetched and not admitted" },
			offsetof(struct row, bypass_bytes) },
		{ { "granary_source_origin_bytes_total", COUNTER, "bytes",
			  "Bytes of the source's objects received from its origin" },
			offsetof(struct row, origin_bytes) },
		{ { "granary_source_origin_gets_total", COUNTER, "requests",
			  "GETs of the source sent to its origin" },
			offsetof(struct row, gets) },
	};

	for (size_t f = 0; f < ARRAY_SIZE(plain); f++) {
		metrics_family(m, &plain[f].family);
		for (uint32_t i = 0; i < n; i++)
			metrics_value(m, &plain[f].family, SOURCE_LABELS(&rows[i]),
				*(const uint64_t *)(const void *)((const char *)&rows[i] +
								  plain[f].offset));
	}
}

static void source_metrics(struct metrics *m, const struct row *rows, uint32_t n)
{
	static const struct metric_family given = { "granary_source_read_bytes_total", COUNTER,
		"bytes",
		"Bytes of answers to readers, by where they came from: file (a descriptor of them "
		"was given), tier, peer (another worker), origin" };
	static const struct metric_family requests = { "granary_source_requests_total", COUNTER,
		"requests", "Readers' requests, by result: hit, wait (for the origin)" };
	static const struct metric_family failed = { "granary_source_origin_errors_total", COUNTER,
		"attempts", "Attempts at the origin that failed, by cause" };

	plain_metrics(m, rows, n);
	metrics_family(m, &given);
	for (uint32_t i = 0; i < n; i++) {
		metrics_value(
			m, &given, SOURCE_LABELS(&rows[i], { "from", "file" }), rows[i].file_bytes);
		metrics_value(
			m, &given, SOURCE_LABELS(&rows[i], { "from", "tier" }), rows[i].tier_bytes);
		metrics_value(
			m, &given, SOURCE_LABELS(&rows[i], { "from", "peer" }), rows[i].peer_bytes);
		metrics_value(m, &given, SOURCE_LABELS(&rows[i], { "from", "origin" }),
			rows[i].given_bytes);
	}
	metrics_family(m, &requests);
	for (uint32_t i = 0; i < n; i++) {
		metrics_value(
			m, &requests, SOURCE_LABELS(&rows[i], { "result", "hit" }), rows[i].hits);
		metrics_value(
			m, &requests, SOURCE_LABELS(&rows[i], { "result", "wait" }), rows[i].waits);
	}
	metrics_family(m, &failed);
	for (uint32_t i = 0; i < n; i++)
		for (unsigned int c = UFS_CAUSE_NONE + 1; c < UFS_CAUSE_COUNT; c++)
			if (rows[i].causes[c])
				metrics_value(m, &failed,
					SOURCE_LABELS(&rows[i],
						{ "cause", ufs_cause_name((enum ufs_cause)c) }),
					rows[i].causes[c]);
}

/* ---- tiers, stalls --------------------------------------------------------------------------- */

static void tier_metrics(struct worker *w, struct metrics *m)
{
	static const struct metric_family up = { "granary_tier_up", GAUGE, "boolean",
		"Is the tier in full service?" };
	static const struct metric_family used = { "granary_tier_one_used_bytes", GAUGE, "bytes",
		"Bytes charged to the tier" };
	static const struct metric_family capacity = { "granary_tier_one_capacity_bytes", GAUGE,
		"bytes", "Bytes the tier may hold" };
	uint32_t n = tier_set_count(w->tiers);
	struct tier_status *all = calloc(n + 1, sizeof(*all));

	for (uint32_t i = 0; all && i < n; i++)
		tier_set_status(w->tiers, i, &all[i]);
	metrics_family(m, &up);
	for (uint32_t i = 0; all && i < n; i++)
		metrics_value(m, &up,
			METRIC_LABELS({ "tier", all[i].path },
				{ "kind", tier_kind_name(all[i].kind) }, { "state", all[i].state }),
			strcmp(all[i].state, "ok") == 0);
	metrics_family(m, &used);
	for (uint32_t i = 0; all && i < n; i++)
		metrics_value(m, &used, METRIC_LABELS({ "tier", all[i].path }), all[i].used);
	metrics_family(m, &capacity);
	for (uint32_t i = 0; all && i < n; i++)
		metrics_value(
			m, &capacity, METRIC_LABELS({ "tier", all[i].path }), all[i].capacity);
	free(all);
}

static const char *const causes[N_STALLS] = { [STALL_MASTER] = "master",
	[STALL_MEMORY] = "memory",
	[STALL_DISK] = "disk",
	[STALL_ORIGIN] = "origin" };

json_t *worker_stalls_json(const struct worker *w)
{
	json_t *json = json_object();

	for (unsigned int i = 0; json && i < N_STALLS; i++)
		(void)json_object_set_new(json, causes[i],
			json_integer((json_int_t)counter_get(
				&w->stalls.times[i]))); /* for display only */
	return json;
}

static void stall_metrics(const struct worker *w, struct metrics *m)
{
	static const struct metric_family times = { "granary_worker_stalls_total", COUNTER,
		"requests", "Readers' requests that took more than 1 s, by what they waited for" };
	static const struct metric_family seconds = { "granary_worker_stall_seconds_total", COUNTER,
		"seconds", "Time that those requests took" };

	metrics_family(m, &times);
	for (unsigned int i = 0; i < N_STALLS; i++)
		metrics_value(m, &times, METRIC_LABELS({ "cause", causes[i] }),
			counter_get(&w->stalls.times[i]));
	metrics_family(m, &seconds);
	for (unsigned int i = 0; i < N_STALLS; i++)
		metrics_real(m, &seconds, METRIC_LABELS({ "cause", causes[i] }),
			(double)counter_get(&w->stalls.ns[i]) / 1e9);
}

static void wait_metrics(const struct worker *w, struct metrics *m)
{
#define ROW(NAME, name) name,
	static const char *const names[] = { WAIT_PARTS(ROW) };
#undef ROW
	static const struct metric_family seconds = { "granary_worker_origin_wait_seconds_total",
		COUNTER, "seconds",
		"Time of readers' requests for a unit from the origin, by what it was spent on, "
		"and by how long "
		"they took" };

	metrics_family(m, &seconds);
	for (unsigned int i = 0; i <= HISTOGRAM_BOUNDS; i++) {
		char bound[24] = "+Inf";

		if (i < HISTOGRAM_BOUNDS)
			(void)snprintf(bound, sizeof(bound), "%g",
				(double)histogram_bound_ns(i) / 1e9); /* fits */
		for (unsigned int part = 0; part < N_WAIT_PARTS; part++) {
			uint64_t ns = counter_get(&w->waits.ns[i][part]);

			if (ns)
				metrics_real(m, &seconds,
					METRIC_LABELS({ "took", bound }, { "part", names[part] }),
					(double)ns / 1e9);
		}
	}
}

void worker_metrics(void *arg, struct metrics *m)
{
	struct worker *w = arg;
	uint32_t n = 0;
	struct row *rows = gather(w, &n);

	source_metrics(m, rows, n); /* without memory: no sources */
	free(rows);
	tier_metrics(w, m);
	stall_metrics(w, m);
	wait_metrics(w, m);
}

void worker_ready(void *arg, json_t *reasons)
{
	struct worker *w = arg;
	uint32_t n = tier_set_count(w->tiers);
	struct tier_status st;

	for (uint32_t i = 0; i < n; i++) {
		tier_set_status(w->tiers, i, &st);
		if (strcmp(st.state, "ok") == 0)
			return;
	}
	(void)json_array_append_new(reasons, json_string("no tier is in service: bytes come from "
							 "the origin")); /* for display only */
}

int worker_metrics_add(struct worker *w)
{
	static const struct histogram_info table[] = {
#define ROW(symbol, name, label, value, help) \
	HISTOGRAM_ROW(worker_histograms, symbol, name, label, value, help)
		WORKER_HISTOGRAMS(ROW)
#undef ROW
	};
	int r = admin_server_add_histograms(w->admin, table, ARRAY_SIZE(table), &w->histograms);

	if (r == 0) {
		uint32_t n;
		const struct histogram_info *tier = tier_histogram_table(&n);

		r = admin_server_add_histograms(w->admin, tier, n, tier_set_histograms(w->tiers));
	}
	if (r == 0)
		r = admin_server_add_metrics(w->admin, worker_metrics, w);
	admin_server_on_ready(w->admin, worker_ready, w);
	return r;
}
