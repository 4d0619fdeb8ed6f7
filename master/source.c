/* Sources: who asks for what, and one flight at a time for each. See source.h. */
#include "base/cleanup.h"
#include "base/hash.h"
#include "base/log.h"
#include "master/source_internal.h"
#include "net/identity.h"

#include <inttypes.h>
#include <string.h>

static bool same_text(const char *a, const char *b)
{
	return a == b || (a && b && strcmp(a, b) == 0);
}

bool source_same_way(const struct ufs_config *a, const struct ufs_config *b)
{
	return a->path_style == b->path_style && a->anonymous == b->anonymous &&
	       a->requester_pays == b->requester_pays && a->versions == b->versions &&
	       same_text(a->credentials, b->credentials) && same_text(a->endpoint, b->endpoint) &&
	       same_text(a->region, b->region) && same_text(a->profile, b->profile) &&
	       same_text(a->ca_file, b->ca_file);
}

static void refuse(struct source_wait *wait, const struct err *e)
{
	wait->on_done(wait, e->code, NULL, e);
}

/* ---- flights --------------------------------------------------------------------------------- */

/* Moves to `next` those whom one flight can serve: the first, and all who reach the origin as he
 * does. */
static void choose_locked(struct source *source, struct list *next)
{
	const struct ufs_config *way = NULL;

	source->needed = source->ended = false;
	list_for_each_safe (node, &source->waiters) {
		const struct source_wait *wait = list_entry(node, struct source_wait, link);

		if (wait->config && way && !source_same_way(wait->config, way))
			continue;
		if (wait->config)
			way = wait->config;
		source->needed |= !wait->of_dataset;
		list_remove(node);
		list_push_back(next, node);
	}
}

/* Runs flights until none waits, unless another thread does that already. */
static void fly(struct source *source)
{
	struct source_set *set = source->set;
	struct list next;

	list_init(&next);
	pthread_mutex_lock(&set->lock);
	if (source->flying) {
		pthread_mutex_unlock(&set->lock);
		return;
	}
	source->flying = true;
	while (choose_locked(source, &next), !list_empty(&next)) {
		pthread_mutex_unlock(&set->lock);
		flight_run(source, &next);
		pthread_mutex_lock(&set->lock);
	}
	source->flying = false;
	pthread_mutex_unlock(&set->lock);
}

/* ---- finding --------------------------------------------------------------------------------- */

struct source *source_find_locked(struct source_set *set, const struct volume_id *volume)
{
	list_for_each (node, &set->sources) {
		struct source *source = list_entry(node, struct source, link);

		if (volume_id_equal(&source->record.volume, volume))
			return source;
	}
	return NULL;
}

static void source_free(struct source *source)
{
	if (!source)
		return;
	record_source_release(&source->record);
	free(source->generations);
	holds_release(source);
	free(source->workers);
	free(source);
}

static struct source *source_new(struct source_set *set)
{
	struct source *source = calloc(1, sizeof(*source));

	if (!source)
		return NULL;
	source->set = set;
	source->next_serial = 1;
	source->lineages =
		RATE_INIT(1.0 / LINEAGE_EVERY_S, (double)LINEAGES_AT_ONCE * LINEAGE_EVERY_S);
	list_init(&source->link);
	list_init(&source->waiters);
	list_init(&source->holds);
	list_init(&source->shown);
	return source;
}

/* A source that was not requested before; NULL with a line. It is stored together with its first
 * generation. */
static struct source *add_locked(struct source_set *set, const struct volume_id *volume,
	const char *text, const struct ufs_config *config, struct err *e)
{
	struct source *source;

	if (set->n >= SOURCES_MAX) {
		(void)err_set(e, -ENOSPC,
			"this master has %u sources, which is the maximum: give another --cache",
			set->n);
		return NULL;
	}
	source = source_new(set);
	if (source) {
		source->record.volume = *volume;
		source->record.text = strdup(text);
	}
	if (!source || !source->record.text ||
		ufs_config_copy(config, &source->record.config) < 0) {
		(void)err_set(e, -ENOMEM, "out of memory");
		source_free(source);
		return NULL;
	}
	list_push_back(&set->sources, &source->link);
	set->n++;
	return source;
}

void source_open(struct source_set *set, struct source_wait *wait)
{
	_cleanup_(buf_release) struct buf text = BUF_INIT(2 * LIMIT_URL_BYTES);
	struct source *source;
	struct volume_id volume;
	struct err e = ERR_INIT;
	int r = ufs_config_source(wait->config, &text, &e);

	if (r < 0) {
		(void)err_default(&e, r, "the source is not understood");
		refuse(wait, &e);
		return;
	}
	volume_id_of_source(buf_str(&text), &volume);
	pthread_mutex_lock(&set->lock);
	source = source_find_locked(set, &volume);
	if (!source)
		source = add_locked(set, &volume, buf_str(&text), wait->config, &e);
	if (source) {
		wait->policy_sets = source->policy_sets;
		list_push_back(&source->waiters, &wait->link);
	}
	pthread_mutex_unlock(&set->lock);
	if (source)
		fly(source);
	else
		refuse(wait, &e);
}

/* Answers from what is there, without waiting for a flight; false when only a flight can help. */
static bool answer_at_once(struct source *source, struct source_wait *wait)
{
	struct source_set *set = source->set;
	const struct record_generation *found;
	struct source_answer answer = { .fd = -1 };
	struct ufs_config config;
	bool contradicts;
	bool unsealed;
	int r;

	pthread_mutex_lock(&set->lock);
	contradicts = generations_contradict(source, &wait->seen, &unsealed);
	found = generations_find(source, wait->lineage, wait->generation);
	if (found) {
		answer.generation = *found;
		answer.newest = generations_newest_sealed(source);
	}
	answer.policy = source->record.policy;
	r = ufs_config_copy(&source->record.config, &config);
	pthread_mutex_unlock(&set->lock);
	if (unsealed)
		generations_refuse_unsealed(source, &wait->seen);
	if (r < 0)
		return false;
	answer.config = &config;
	if (!contradicts && found &&
		generations_open_table(source, &answer.generation.id, &answer.fd) == 0) {
		wait->on_done(wait, 0, &answer, NULL);
		if (answer.fd >= 0)
			(void)close(answer.fd); /* read only */
		ufs_config_release(&config);
		return true;
	}
	ufs_config_release(&config);
	return false;
}

/* NULL: it was not requested yet, or without success. */
static struct source *find_known(struct source_set *set, const struct volume_id *volume)
{
	struct source *source;

	pthread_mutex_lock(&set->lock);
	source = source_find_locked(set, volume);
	if (source && source->n == 0)
		source = NULL;
	pthread_mutex_unlock(&set->lock);
	return source;
}

bool source_open_at_once(struct source_set *set, struct source_wait *wait)
{
	_cleanup_(buf_release) struct buf text = BUF_INIT(2 * LIMIT_URL_BYTES);
	struct source *source;
	struct volume_id volume;

	if (wait->refresh || wait->policy.parts || ufs_config_source(wait->config, &text, NULL) < 0)
		return false;
	volume_id_of_source(buf_str(&text), &volume);
	source = find_known(set, &volume);
	return source && answer_at_once(source, wait);
}

bool source_table_at_once(
	struct source_set *set, const struct volume_id *volume, struct source_wait *wait)
{
	struct source *source = find_known(set, volume);

	return source && answer_at_once(source, wait);
}

void source_table(struct source_set *set, const struct volume_id *volume, struct source_wait *wait)
{
	struct source *source = find_known(set, volume);
	struct err e = ERR_INIT;

	if (!source) {
		(void)err_set(
			&e, -ENXIO, "this master does not know the volume: mount its source again");
		refuse(wait, &e);
		return;
	}
	if (answer_at_once(source, wait))
		return;
	pthread_mutex_lock(&set->lock);
	list_push_back(&source->waiters, &wait->link);
	pthread_mutex_unlock(&set->lock);
	fly(source);
}

int source_answer_cut(struct source_set *set, const struct rpc_conn *conn,
	struct source_answer *answer, struct cut *ret_cut, struct err *e)
{
	const struct generation_id *id = &answer->generation.id;
	struct key_prefixes part;
	int r;

	*ret_cut = (struct cut){ .fd = -1 };
	if (!peer_reads_part(rpc_conn_peer(conn), &id->volume, &part))
		return 0;
	r = cuts_get(&set->cuts, id, answer->fd, &part, ret_cut, e);
	(void)close(TAKE_FD(answer->fd)); /* only read from */
	answer->fd = TAKE_FD(ret_cut->fd);
	answer->stats = (struct generation_stats){ 0 }; /* of all objects, as is: */
	if (!answer->own_notice)
		answer->notice = NULL;
	return r;
}

/* ---- the set --------------------------------------------------------------------------------- */

static int load_source(void *arg, const char *key, const void *value, size_t len)
{
	struct source_set *set = arg;
	struct source *source = source_new(set);
	int r;

	if (!source)
		return -ENOMEM;
	r = record_source_decode(value, len, &source->record);
	if (r < 0) {
		log_error("invalid record", "key=%s cause=%s", key, err_name(r));
		source_free(source);
		return r;
	}
	source->used_stored = source->record.used;
	list_push_back(&set->sources, &source->link);
	set->n++;
	return 0;
}

static int load(struct source_set *set, struct err *e)
{
	struct store *store = set->config.store;
	int r = store->ops->scan(store, "source/", load_source, set);

	if (r < 0)
		return record_refuse(e, r, "a source");
	list_for_each (node, &set->sources) {
		r = generations_load(list_entry(node, struct source, link), e);
		if (r < 0)
			return r;
	}
	generations_sweep(set);
	return 0;
}

int source_set_new(
	const struct source_set_config *config, struct source_set **ret_set, struct err *e)
{
	struct source_set *set = calloc(1, sizeof(*set));
	int r;

	if (!set)
		return err_set(e, -ENOMEM, "out of memory");
	set->config = *config;
	set->started = clock_mono_ns();
	list_init(&set->sources);
	pthread_mutex_init(&set->lock, NULL);
	pthread_mutex_init(&set->write_lock, NULL);
	cuts_init(&set->cuts, set->config.tables);
	r = map_init(&set->holds, HOLDS_MAX);
	r = r == 0 ? load(set, e) : err_set(e, r, "out of memory");
	if (r < 0) {
		source_set_free(set);
		return r;
	}
	*ret_set = set;
	return 0;
}

void source_set_stop(struct source_set *set)
{
	atomic_store(&set->stopping, true);
	pthread_mutex_lock(&set->lock);
	list_for_each (node, &set->sources) {
		struct source *source = list_entry(node, struct source, link);

		if (source->lister)
			ufs_list_cancel(source->lister);
	}
	pthread_mutex_unlock(&set->lock);
}

bool source_set_is_stopping(const struct source_set *set)
{
	return atomic_load(&set->stopping);
}

void source_set_free(struct source_set *set)
{
	struct list *node;

	if (!set)
		return;
	while ((node = list_pop_front(&set->sources)))
		source_free(list_entry(node, struct source, link));
	cuts_release(&set->cuts);
	pthread_mutex_destroy(&set->lock);
	pthread_mutex_destroy(&set->write_lock);
	map_release(&set->holds);
	free(set->capacities);
	free(set);
}

/* ---- status ---------------------------------------------------------------------------------- */

static json_t *generation_json(const struct source *source, const struct record_generation *g)
{
	return json_pack("{s:o, s:I, s:I, s:I, s:I, s:I, s:b, s:i}", "lineage",
		json_sprintf("%016" PRIx64, g->id.lineage), "generation",
		(json_int_t)g->id.generation, "files", (json_int_t)g->files, "bytes",
		(json_int_t)g->bytes, "rows", (json_int_t)g->rows, "built_at",
		(json_int_t)g->built_at, "kept", (int)g->kept, "mounts",
		(int)holds_count_locked(source, g->id.lineage, g->id.generation));
}

/* Adds a notice about a generation that is mounted, and not retained. */
static void note_unprotected(json_t *json, const struct source *source)
{
	for (uint32_t i = source->n; i-- > 0;) {
		const struct record_generation *g = &source->generations[i];

		if (g->kept || !holds_count_locked(source, g->id.lineage, g->id.generation))
			continue;
		(void)json_object_set_new(json, "notice", /* status only */
			json_sprintf(
				"generation %" PRIu64
				" is mounted and no longer protected, as %u newer ones are stored: "
				"data of it that is not cached may be lost: mount again",
				g->id.generation, GENERATIONS_KEPT));
		return;
	}
}

static json_t *source_json_locked(const struct source *source)
{
	const struct record_generation *newest = generations_newest(source);
	char volume[2 * VOLUME_ID_LEN + 1];
	json_t *generations = json_array();
	json_t *json;

	hash_hex(source->record.volume.bytes, VOLUME_ID_LEN, volume);
	for (uint32_t i = 0; i < source->n; i++)
		if (source->generations[i].kept || source->generations[i].held)
			(void)json_array_append_new(generations,
				generation_json(source, &source->generations[i])); /* status */
	json = json_pack("{s:s, s:s, s:o, s:b, s:I, s:I, s:I, s:i, s:b, s:s}", "volume", volume,
		"source", source->record.text, "generations", generations, "listing",
		(int)atomic_load(&source->listing), "listed_keys",
		(json_int_t)atomic_load(&source->listing_keys), "listed_at",
		(json_int_t)source->listed_at, "quota", (json_int_t)source->record.policy.quota,
		"priority", (int)source->record.policy.priority, "pin",
		(int)source->record.policy.pin, "evict",
		tier_evict_name(source->record.policy.evict));
	if (json && source->reported) {
		const struct source_report sum = source_report_locked(source);

		(void)json_object_set_new(
			json, "cached_bytes", json_integer((json_int_t)sum.cached_bytes));
		source_add_hits(json, &sum, source->local_bytes); /* status only, as the rest */
	}
	if (json && newest) {
		json_t *more = generation_json(source, newest);

		(void)json_object_update(json, more); /* status only */
		json_decref(more);
	}
	/* Without memory for a remark the rest is still the status. */
	if (json && source->notice[0])
		(void)json_object_set_new(json, "notice", json_string(source->notice));
	else if (json)
		note_unprotected(json, source);
	if (json && source->failure.code != 0)
		(void)json_object_set_new(json, "last_error", json_string(source->failure.text));
	return json;
}

json_t *source_set_json(struct source_set *set, bool workers)
{
	json_t *list = json_array();

	if (!list)
		return NULL;
	pthread_mutex_lock(&set->lock);
	list_for_each (node, &set->sources) {
		const struct source *source = list_entry(node, struct source, link);
		json_t *json = source_json_locked(source);

		if (json && workers)
			(void)json_object_set_new(json, "workers",
				source_workers_json_locked(source)); /* status only */
		if (json)
			(void)json_array_append_new(list, json); /* status only */
	}
	pthread_mutex_unlock(&set->lock);
	return list;
}
