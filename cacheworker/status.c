/* What a worker tells people. See status.h. */
#include "cacheworker/status.h"
#include "cacheworker/copies.h"
#include "cacheworker/handout.h"
#include "cacheworker/handover.h"
#include "cacheworker/scrub.h"
#include "cacheworker/seal.h"
#include "cacheworker/source.h"
#include "base/clock.h"
#include "base/hash.h"
#include "placement/placement.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const struct counter_info worker_table[] = {
#define ROW(symbol, name, kind, unit, help) \
	COUNTER_ROW(worker_counters, symbol, name, kind, unit, help)
	WORKER_COUNTERS(ROW)
#undef ROW
};

const struct counter_info *worker_counter_table(uint32_t *ret_n)
{
	*ret_n = ARRAY_SIZE(worker_table);
	return worker_table;
}

static json_t *tiers_json(struct worker *w)
{
	json_t *all = json_array();

	for (uint32_t i = 0; i < tier_set_count(w->tiers); i++) {
		struct tier_status st;

		tier_set_status(w->tiers, i, &st);
		json_array_append_new(
			all, json_pack("{s:s, s:s, s:s, s:s, s:I, s:I, s:I, s:I, s:I, s:I}", "path",
				     st.path, "kind", tier_kind_name(st.kind), "state", st.state,
				     "reason", st.why, "capacity", (json_int_t)st.capacity, "used",
				     (json_int_t)st.used, "held", (json_int_t)st.held, "chunks",
				     (json_int_t)st.chunks, "extents", (json_int_t)st.extents,
				     "data_bytes", (json_int_t)st.data_bytes));
	}
	return all;
}

/* What an operator said of the volume, and what it takes. */
static json_t *space_json(struct worker *w, const struct source *source)
{
	struct tier_volume_status st = { 0 };

	/* Of a volume that has no chunk and no policy nothing is known: all zeros. */
	if (!tier_volume_status(w->tiers, &source->volume, &st))
		st = (struct tier_volume_status){ 0 };
	return json_pack("{s:I, s:i, s:b, s:s, s:I, s:I, s:I, s:I}", "quota",
		(json_int_t)st.policy.quota, "priority", (int)st.policy.priority, "pin",
		st.policy.pin, "evict", tier_evict_name(st.policy.evict), "charged",
		(json_int_t)st.charged, "held", (json_int_t)st.held, "evicted",
		(json_int_t)st.evicted, "chunks", (json_int_t)st.chunks);
}

static json_t *source_json(struct worker *w, struct source *source)
{
	uint32_t n;
	const struct counter_info *table = ufs_counter_table(&n);
	const struct table_info *info = table_info(source->table);
	struct ufs_counters origin;
	char volume[2 * VOLUME_ID_LEN + 1];
	char lineage[17];

	source_origin_counters(source, &origin);
	hash_hex(&source->volume, VOLUME_ID_LEN, volume);
	(void)snprintf(lineage, sizeof(lineage), "%016llx",
		(unsigned long long)source->lineage); /* 16 digits */
	return json_pack("{s:s, s:s, s:I, s:I, s:I, s:I, s:o, s:o, s:o, s:o*}", "volume", volume,
		"lineage", lineage, "generation", (json_int_t)info->id.generation, "files",
		(json_int_t)info->live_files, "bytes", (json_int_t)info->live_bytes, "cached_bytes",
		(json_int_t)tier_set_volume_bytes(w->tiers, &source->volume, source->lineage),
		"space", space_json(w, source), "extents",
		seals_json(w, &source->volume, source->lineage), "origin",
		admin_counters_json(table, n, &origin), "use", worker_use_json(source));
}

/* What it keeps of chunks that others own. */
static json_t *copies_json(struct worker *w, const struct source *source)
{
	char policy[COPIES_NAME_BYTES];

	copies_name(copies_policy(w, &source->volume), policy);
	return json_pack("{s:s, s:b, s:I}", "policy", policy, "whole",
		(int)worker_keeps_whole(w, &source->volume), "bytes",
		(json_int_t)tier_set_copy_bytes(w->tiers, &source->volume, source->lineage));
}

static json_t *handover_json(struct worker *w)
{
	struct handover_status st;

	handover_status(w, &st);
	return json_pack("{s:I, s:I, s:I}", "chunks", (json_int_t)st.chunks, "bytes",
		(json_int_t)st.bytes, "offered", (json_int_t)st.offered);
}

static json_t *sources_json(struct worker *w)
{
	json_t *all = json_array();

	pthread_mutex_lock(&w->sources.lock);
	list_for_each (node, &w->sources.all) {
		struct source *source = list_entry(node, struct source, link);

		if (source->table && source->ufs) {
			json_t *json = source_json(w, source);

			(void)json_object_set_new(
				json, "copies", copies_json(w, source)); /* for display only */
			json_array_append_new(all, json);
		}
	}
	pthread_mutex_unlock(&w->sources.lock);
	return all;
}

static counter_t *row_of(struct ufs_counters *counters, const struct counter_info *row)
{
	return (counter_t *)(void *)((char *)counters + row->offset);
}

/* Sums the counters of all origins. */
static void sum_origins(void *arg)
{
	struct worker *w = arg;
	uint32_t n;
	const struct counter_info *table = ufs_counter_table(&n);

	pthread_mutex_lock(&w->sources.lock);
	for (uint32_t i = 0; i < n; i++) {
		uint64_t sum = 0;

		list_for_each (node, &w->sources.all) {
			const struct source *source = list_entry(node, struct source, link);

			if (source->table && source->ufs)
				sum += source_origin_counter(source, &table[i]);
		}
		counter_set(row_of(&w->origins, &table[i]), sum);
	}
	pthread_mutex_unlock(&w->sources.lock);
}

/* Counters that are made when asked for. */
static void count(void *arg)
{
	struct worker *w = arg;

	sum_origins(w);
	handout_count(w);
}

/* {"slow_down": 3, ...}: why attempts failed, over all origins. */
static json_t *causes_json(struct worker *w)
{
	static const char prefix[] = "cause_";
	uint32_t n;
	const struct counter_info *table = ufs_counter_table(&n);
	json_t *json = json_object();

	sum_origins(w);
	for (uint32_t i = 0; json && i < n; i++)
		if (strncmp(table[i].symbol, prefix, strlen(prefix)) == 0)
			(void)json_object_set_new(json, table[i].symbol + strlen(prefix),
				json_integer((json_int_t)counter_read(
					&table[i], &w->origins))); /* for display only */
	return json;
}

/* Which one is listened to, and why not. */
static json_t *master_json(struct worker *w)
{
	struct hello_master met = fence_met(&w->fence);
	char cluster[2 * HELLO_CLUSTER_BYTES + 1];
	struct err refusal;
	json_t *json;

	fence_refusal(&w->fence, &refusal);
	hash_hex(met.cluster, HELLO_CLUSTER_BYTES, cluster);
	json = json_pack("{s:s, s:b}", "address", w->config->master, "connected",
		(int)rpc_client_connected(w->master));
	if (json && met.epoch)
		(void)json_object_update_new(json, /* for display only */
			json_pack(
				"{s:s, s:I}", "cluster", cluster, "epoch", (json_int_t)met.epoch));
	if (json && refusal.code)
		(void)json_object_set_new(
			json, "refused", json_string(refusal.text)); /* likewise */
	return json;
}

static int get_status(
	void *arg, const struct admin_request *request, json_t **ret_json, struct err *e)
{
	struct worker *w = arg;
	uint32_t n_worker;
	uint32_t n_tier;
	const struct counter_info *worker_info = worker_counter_table(&n_worker);
	const struct counter_info *tier_info = tier_counter_table(&n_tier);

	(void)request;
	handout_count(w);
	*ret_json = json_pack("{s:s, s:i, s:I, s:o, s:o, s:o, s:{s:I, s:I, s:I}, s:{s:o, s:o}}",
		"process", "cacheworker", "pid", (int)getpid(), "uptime_s",
		(json_int_t)((clock_mono_ns() - w->started_ns) / CLOCK_SECOND), "tiers",
		tiers_json(w), "sources", sources_json(w), "origin_causes", causes_json(w),
		"memory", "max", (json_int_t)w->memory.max, "used", (json_int_t)w->memory.used,
		"peak", (json_int_t)w->memory.peak, "counters", "worker",
		admin_counters_json(worker_info, n_worker, &w->counters), "tier",
		admin_counters_json(tier_info, n_tier, tier_set_counters(w->tiers)));
	if (*ret_json)
		(void)json_object_set_new(
			*ret_json, "master", master_json(w)); /* for display only */
	if (*ret_json)
		(void)json_object_set_new(*ret_json, "scrub", scrub_json(w)); /* likewise */
	if (*ret_json)
		(void)json_object_set_new(
			*ret_json, "stalls", worker_stalls_json(w)); /* likewise */
	if (*ret_json)
		(void)json_object_set_new(*ret_json, "handover", handover_json(w)); /* likewise */
	return *ret_json ? 0 : err_set(e, -ENOMEM, "no memory for the answer");
}

/* Why a range of the chunk was not to be had last. */
static void add_trouble(struct worker *w, const struct chunk_id *id,
	const struct admin_request *request, json_t *json)
{
	const char *offset = request->query(request, "offset");
	const char *bytes = request->query(request, "bytes");
	uint64_t start = id->chunk * CHUNK_BYTES + (offset ? strtoull(offset, NULL, 10) : 0);
	uint64_t length = bytes ? strtoull(bytes, NULL, 10) : CHUNK_BYTES;
	struct trouble trouble;

	if (!troubles_find(&w->troubles, &id->volume, id->lineage, start, length, &trouble))
		return;
	(void)json_object_set_new(json, "last_failure",
		json_sprintf(
			"%s: %s", err_name(trouble.status), trouble.text)); /* for display only */
	(void)json_object_set_new(json, "last_failure_s",
		json_integer((json_int_t)((clock_mono_ns() - trouble.at_ns) / CLOCK_SECOND)));
}

/* What became of the extent in which it lies, when a mount asks. */
static void add_seal(struct worker *w, const struct chunk_id *id, json_t *json)
{
	struct seal_status status;

	if (!seals_find(w, id, &status))
		return;
	(void)json_object_set_new(
		json, "extent", json_string(seal_state_name(status.state))); /* for display only */
	(void)json_object_set_new(
		json, "extent_reason", json_string(seal_why_text(status.why))); /* likewise */
}

/* How much of what was asked about is there; neighbours in the chunk are not of interest. */
static uint64_t range_bytes(const struct chunk *chunk, const struct admin_request *request)
{
	const char *offset = request->query(request, "offset");
	const char *bytes = request->query(request, "bytes");
	uint64_t start = offset ? strtoull(offset, NULL, 10) : 0;
	uint64_t end = start + (bytes ? strtoull(bytes, NULL, 10) : CHUNK_BYTES);
	uint8_t present[CHUNK_BITMAP_BYTES];
	uint64_t found = 0;

	chunk_bitmap(chunk, present);
	end = min(end, (uint64_t)CHUNK_BYTES);
	while (start < end) {
		uint64_t block = start / BLOCK_BYTES;
		uint64_t next = min((block + 1) * BLOCK_BYTES, end);

		if (present[block / 8] >> block % 8 & 1)
			found += next - start;
		start = next;
	}
	return found;
}

static int get_chunk(
	void *arg, const struct admin_request *request, json_t **ret_json, struct err *e)
{
	struct worker *w = arg;
	const char *volume = request->query(request, "volume");
	const char *lineage = request->query(request, "lineage");
	const char *number = request->query(request, "chunk");
	struct chunk_id id = { 0 };
	struct chunk *chunk;
	uint64_t cached;

	if (!volume || !lineage || !number ||
		hash_unhex(volume, id.volume.bytes, VOLUME_ID_LEN) < 0)
		return err_set(
			e, -EINVAL, "invalid query: use volume=HEX&lineage=HEX&chunk=NUMBER");
	id.lineage = strtoull(lineage, NULL, 16);
	id.chunk = strtoull(number, NULL, 10);
	chunk = tier_chunk_find(w->tiers, &id);
	cached = chunk ? range_bytes(chunk, request) : 0;
	*ret_json = json_pack("{s:b, s:I, s:I, s:i}", "cached", cached > 0, "cached_bytes",
		(json_int_t)cached, "present_bytes",
		(json_int_t)(chunk ? chunk_present_bytes(chunk) : 0), "slot",
		(int)placement_slot_of(placement_volume_hash(&id.volume), id.chunk));
	chunk_unref(chunk);
	if (!*ret_json)
		return err_set(e, -ENOMEM, "no memory for the answer");
	add_trouble(w, &id, request, *ret_json);
	add_seal(w, &id, *ret_json);
	return 0;
}

static struct ufs *find_origin(struct worker *w, const struct volume_id *volume, uint64_t lineage)
{
	struct ufs *ufs = NULL;

	pthread_mutex_lock(&w->sources.lock);
	list_for_each (node, &w->sources.all) {
		const struct source *source = list_entry(node, struct source, link);

		/* Without a table it is being opened by another thread; with one it lives until the
		 * worker closes. */
		if (source->table && source->lineage == lineage &&
			volume_id_equal(&source->volume, volume))
			ufs = source->ufs;
	}
	pthread_mutex_unlock(&w->sources.lock);
	return ufs;
}

/* What a read of the object `key` waits for; {} when none does. */
static int get_waiting(
	void *arg, const struct admin_request *request, json_t **ret_json, struct err *e)
{
	const char *volume = request->query(request, "volume");
	const char *lineage = request->query(request, "lineage");
	const char *key = request->query(request, "key");
	struct volume_id id;
	struct ufs_wait wait;
	struct ufs *ufs;

	if (!volume || !lineage || !key || hash_unhex(volume, id.bytes, VOLUME_ID_LEN) < 0)
		return err_set(e, -EINVAL, "invalid query: use volume=HEX&lineage=HEX&key=KEY");
	ufs = find_origin(arg, &id, strtoull(lineage, NULL, 16));
	if (!ufs || !ufs_find_wait(ufs, key, (uint32_t)strlen(key), &wait))
		return 0;
	*ret_json = json_pack("{s:I, s:i, s:s, s:s}", "waited_s",
		(json_int_t)(wait.waited_ns / CLOCK_SECOND), "failed_attempts", (int)wait.failures,
		"cause", wait.failures ? ufs_cause_name(wait.cause) : "no_answer", "reason",
		wait.reason);
	return *ret_json ? 0 : err_set(e, -ENOMEM, "no memory for the answer");
}

const struct admin_route status_routes[] = {
	{ "GET", "/v1/status", get_status, NULL },
	{ "GET", "/v1/chunk", get_chunk, NULL },
	{ "GET", "/v1/scrub", scrub_get, NULL },
	{ "POST", "/v1/scrub", scrub_post, "scrub" },
	{ "GET", "/v1/waiting", get_waiting, NULL },
	{ 0 },
};

int status_add_counters(struct worker *w)
{
	uint32_t n;
	const struct counter_info *table = worker_counter_table(&n);
	int r = admin_server_add_counters(w->admin, table, n, &w->counters);

	table = tier_counter_table(&n);
	if (r == 0)
		r = admin_server_add_counters(w->admin, table, n, tier_set_counters(w->tiers));
	table = ufs_counter_table(&n);
	if (r == 0)
		r = admin_server_add_counters(w->admin, table, n, &w->origins);
	admin_server_on_metrics(w->admin, count, w);
	return r == 0 ? worker_metrics_add(w) : r;
}
