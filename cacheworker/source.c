/* Sources a worker fills from. See source.h. */
#include "cacheworker/source.h"
#include "cacheworker/copies.h"
#include "cacheworker/far_table.h"
#include "cacheworker/flight.h"
#include "cacheworker/kept.h"
#include "cacheworker/master_call.h"
#include "cacheworker/retention.h"
#include "base/bounds.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "base/units.h"
#include "proto/granary.pb-c.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#define ORIGIN_LEAST       8u /* GETs in flight of a source, however many there are */
#define MASTER_DEADLINE_NS (60 * CLOCK_SECOND)
#define CURRENT_PATIENCE   (10 * CLOCK_SECOND)
#define WORDS_MAX          (64 * KiB) /* of the master about a source */

/* ---- what this worker has seen --------------------------------------------------------------- */

/* The guard across restarts; within one, generation_check_successor() compares row by row. */
static int seen_check(const struct source *source, const struct generation_id *id, struct err *e)
{
	struct generation_id seen;
	int r = kept_seen_load(source->worker, &source->volume, &seen);
	bool same;

	if (r == -ENOMEM || r == -EMFILE || r == -ENFILE) /* no reason to trust anybody */
		return err_set(e, r, "the generations that this worker saw cannot be read: %s",
			err_str(r));
	if (r < 0 || seen.lineage != id->lineage)
		return 0; /* never seen, or another lineage: nothing cached under its name yet */
	same = memcmp(seen.hash, id->hash, SHA256_BYTES) == 0;
	if (id->generation < seen.generation || (id->generation == seen.generation && !same) ||
		(id->generation == seen.generation + 1 &&
			memcmp(seen.hash, id->prev_hash, SHA256_BYTES) != 0))
		return err_set(e, -ESTALE,
			"the master offers generation %llu of a table of which this worker saw "
			"generation %llu with "
			"other contents: its state was restored or changed; mount again for a new "
			"lineage",
			(unsigned long long)id->generation, (unsigned long long)seen.generation);
	return 0;
}

/* ---- asking the master ----------------------------------------------------------------------- */

static int copy_string(char *from, char **ret_to)
{
	*ret_to = from && from[0] ? strdup(from) : NULL;
	return from && from[0] && !*ret_to ? -ENOMEM : 0;
}

static int origin_from_message(const Granary__Source *message, struct ufs_config *ret_config)
{
	struct ufs_config config = { .scheme = (enum ufs_scheme)message->scheme,
		.path_style = message->path_style,
		.anonymous = message->anonymous,
		.requester_pays = message->requester_pays,
		.no_local = message->no_local,
		.versions = (enum ufs_versions)min(message->versions, (uint32_t)UFS_VERSIONS_OFF) };

	if (copy_string(message->endpoint, &config.endpoint) < 0 ||
		copy_string(message->region, &config.region) < 0 ||
		copy_string(message->bucket, &config.bucket) < 0 ||
		copy_string(message->profile, &config.profile) < 0 ||
		copy_string(message->credentials, &config.credentials) < 0 ||
		copy_string(message->ca_file, &config.ca_file) < 0 ||
		!(config.prefix = strdup(message->prefix ? message->prefix : ""))) {
		ufs_config_release(&config);
		return -ENOMEM;
	}
	*ret_config = config;
	return 0;
}

/* The newest generation of a lineage, or, 0, of the current one. The answer is the caller's, also on
 * failure. `hurry`: with no master there is none. */
static int get_table(struct source *source, uint64_t lineage, uint64_t patience_ns, bool hurry,
	struct master_answer *ret_answer, struct err *e)
{
	const struct frame frame = { .op = FRAME_GET_TABLE };
	Granary__GetTable ask = GRANARY__GET_TABLE__INIT;
	uint8_t packed[256];

	ask.has_volume = true;
	ask.volume = (ProtobufCBinaryData){ .data = source->volume.bytes, .len = VOLUME_ID_LEN };
	ask.has_lineage = true;
	ask.lineage = lineage;
	ask.has_generation = true; /* 0: the newest */
	ensure(granary__get_table__get_packed_size(&ask) <= sizeof(packed));
	return (hurry ? master_call_hurry : master_call)(source->worker, frame, packed,
		granary__get_table__pack(&ask, packed), patience_ns, ret_answer, e);
}

/* Is the source's lineage the one that the master goes on with? */
static bool is_current(struct source *source)
{
	_cleanup_(master_answer_release) struct master_answer answer;
	Granary__Generation *message = NULL;
	bool current;

	if (get_table(source, 0, CURRENT_PATIENCE, false, &answer, NULL) == 0)
		message = granary__generation__unpack(NULL, answer.reply.payload, answer.payload);
	current = message && message->lineage == source->lineage;
	if (message)
		granary__generation__free_unpacked(message, NULL);
	return current;
}

/* What is known of a source: the master's words, and the table that goes with them. */
struct said {
	struct buf words;
	int fd;    /* of the table; -1: none came with the words */
	bool kept; /* from before this worker's start: no master answered */
};

static void said_release(struct said *said)
{
	buf_release(&said->words);
	cleanup_close(&said->fd);
}

/* What it received before it was started again, as a worker that was not started again uses what it has. The table was written
 * without a sync, so all of it is checked. */
static int take_kept(struct source *source, struct said *said)
{
	struct worker *w = source->worker;
	struct table *table = NULL;
	int fd = -EBADMSG;
	int r = kept_source_load(w, &source->volume, source->lineage, &said->words);

	if (r == 0)
		r = kept_table_open(w, &source->volume, source->lineage, &table);
	if (r < 0)
		return r;
	if (table_verify(table) == 0)
		fd = table_dup(table);
	if (fd >= 0)
		log_info("source opened without the master", "generation=%llu",
			(unsigned long long)table_info(table)->id.generation);
	table_unref(table);
	if (fd < 0)
		return fd;
	said->fd = fd;
	said->kept = true;
	return 0;
}

static uint64_t left_until(uint64_t deadline_ns)
{
	uint64_t now = clock_mono_ns();

	return deadline_ns > now ? deadline_ns - now : 0;
}

/* Of a source that has a table already the master alone knows more. */
static int hear(struct source *source, struct said *said, struct err *e)
{
	_cleanup_(master_answer_release) struct master_answer answer;
	uint64_t deadline = clock_mono_ns() + MASTER_DEADLINE_NS; /* of both questions */
	int r = get_table(source, source->lineage, MASTER_DEADLINE_NS, !source->table, &answer, e);

	if (r == 0) {
		said->fd = TAKE_FD(answer.fd);
		return buf_append(&said->words, answer.payload, answer.reply.payload);
	}
	if (source->table || answer.reply.flags & FRAME_REPLY || r == -ECANCELED)
		return r;
	if (take_kept(source, said) == 0)
		return 0;
	buf_clear(&said->words);
	if (e)
		*e = ERR_INIT;
	master_answer_release(&answer);
	r = get_table(source, source->lineage, left_until(deadline), false, &answer, e);
	if (r < 0)
		return r;
	said->fd = TAKE_FD(answer.fd);
	return buf_append(&said->words, answer.payload, answer.reply.payload);
}

/* `limits` gets the rates that the source's policy names. */
static int ask_master(struct source *source, struct ufs_config *ret_origin,
	struct ufs_limits *limits, struct said *said, struct err *e)
{
	Granary__Generation *message;
	int r = hear(source, said, e);

	if (r < 0)
		return err_default(e, r, "master");
	message = granary__generation__unpack(
		NULL, said->words.len, (const uint8_t *)said->words.data);
	if (!message || !message->source)
		r = err_set(e, -EBADMSG,
			"invalid answer of the master; use the same version on both sides");
	else
		r = origin_from_message(message->source, ret_origin);
	if (r == 0 && said->fd < 0)
		r = far_table(source->worker, message, &said->fd, e);
	if (r == 0 && message && message->policy) { /* before the first byte is kept */
		retention_follow_policy(source->worker, &source->volume, message->policy);
		limits->bytes_per_s = message->policy->origin_bandwidth;
		limits->requests_per_s = message->policy->origin_requests;
	}
	if (message)
		granary__generation__free_unpacked(message, NULL);
	return r;
}

/* Of all lineages of it that are read; *ret_n: how many. An origin that was opened lives until the
 * worker closes, after every thread that sets rates. */
static void origins_of(struct worker *w, const struct volume_id *volume,
	struct ufs *out[KEPT_LINEAGES], uint32_t *ret_n)
{
	uint32_t n = 0;

	pthread_mutex_lock(&w->sources.lock);
	list_for_each (node, &w->sources.all) {
		struct source *source = list_entry(node, struct source, link);

		if (n < KEPT_LINEAGES && source->table && source->ufs &&
			volume_id_equal(&source->volume, volume))
			out[n++] = source->ufs;
	}
	pthread_mutex_unlock(&w->sources.lock);
	*ret_n = n;
}

void source_set_rates(struct worker *w, const struct volume_id *volume, uint64_t bytes_per_s,
	uint64_t requests_per_s)
{
	struct ufs *origins[KEPT_LINEAGES];
	uint32_t n;
	int r = 0;

	origins_of(w, volume, origins, &n);
	for (uint32_t i = 0; i < n; i++) {
		int one = ufs_set_rates(origins[i], bytes_per_s, requests_per_s);

		r = one < 0 ? one : r;
	}
	if (r < 0)
		LOG_LIMITED(LOG_WARN, "limit of an origin not set", "error=%s next=\"tried again\"",
			err_name(r));
}

/* ---- another way ----------------------------------------------------------------------------- */

static bool same_text(const char *a, const char *b)
{
	return a == b || (a && b && strcmp(a, b) == 0);
}

static bool same_way(const struct ufs_config *a, const struct ufs_config *b)
{
	return a->path_style == b->path_style && a->anonymous == b->anonymous &&
	       a->requester_pays == b->requester_pays && a->versions == b->versions &&
	       a->no_local == b->no_local && same_text(a->credentials, b->credentials) &&
	       same_text(a->endpoint, b->endpoint) && same_text(a->region, b->region) &&
	       same_text(a->profile, b->profile) && same_text(a->ca_file, b->ca_file);
}

/* One that is open, and reached in another way; of several lineages any. Sources that are open stay. */
static struct source *find_other(
	struct worker *w, const struct volume_id *volume, const struct ufs_config *way)
{
	struct source *found = NULL;

	pthread_mutex_lock(&w->sources.lock);
	list_for_each (node, &w->sources.all) {
		struct source *source = list_entry(node, struct source, link);

		if (source->table && source->ufs && volume_id_equal(&source->volume, volume) &&
			!same_way(&source->origin, way))
			found = source;
	}
	pthread_mutex_unlock(&w->sources.lock);
	return found;
}

/* All origins together have a share of the descriptors: later ones have what is fair then. */
static unsigned int origin_requests(struct worker *w)
{
	uint32_t share = bounds_descriptor_share(0, UINT32_MAX);
	unsigned int n = 0;

	pthread_mutex_lock(&w->sources.lock);
	list_for_each (node, &w->sources.all)
		n++;
	pthread_mutex_unlock(&w->sources.lock);
	share = n ? max(share / n, ORIGIN_LEAST) : share;
	return min(w->config->origin_requests, share);
}

/* The place of a way that it was reached in before, or of a new one; SOURCE_FORMER: there is none. */
static uint32_t find_former(const struct source *source, const struct ufs_config *way)
{
	for (uint32_t i = 0; i < source->n_former; i++)
		if (same_way(&source->former[i].origin, way))
			return i;
	return source->n_former;
}

/* Only the retention thread comes here, so that it is of one way until the next one. */
static int take_way(struct source *source, const struct ufs_config *way, struct err *e)
{
	struct worker *w = source->worker;
	const struct ufs_counters *bounds = ufs_counters(source->ufs);
	struct ufs_limits limits = UFS_LIMITS_DEFAULT;
	struct source_way next = { 0 };
	uint32_t place = find_former(source, way);
	int r = 0;

	if (place == SOURCE_FORMER)
		return err_set(e, -ENOSPC,
			"the access settings were changed too often: restart the worker");
	limits.bytes_per_s = counter_get(&bounds->bound_bytes);
	limits.requests_per_s = counter_get(&bounds->bound_requests);
	if (place < source->n_former) {
		next = source->former[place];
		r = ufs_set_rates(next.ufs, limits.bytes_per_s, limits.requests_per_s);
		if (r < 0)
			return r;
		ufs_forget(next.ufs); /* what it refused then may be given now */
	} else {
		limits.max_requests = origin_requests(w);
		r = ufs_config_copy(way, &next.origin);
		if (r == 0)
			r = ufs_open(&next.origin, &limits, &next.ufs, e);
		if (r < 0) {
			ufs_config_release(&next.origin);
			return r;
		}
	}
	pthread_mutex_lock(&w->sources.lock);
	source->former[place] = (struct source_way){ source->ufs, source->origin };
	source->n_former = max(source->n_former, place + 1);
	__atomic_store_n(&source->ufs, next.ufs, __ATOMIC_RELEASE);
	source->origin = next.origin;
	pthread_mutex_unlock(&w->sources.lock);
	flights_take_way(source);
	log_info("access settings changed", "prefix=\"%s\"", next.origin.prefix);
	return 0;
}

uint64_t source_origin_counter(const struct source *source, const struct counter_info *info)
{
	uint64_t sum = counter_read(info, ufs_counters(source->ufs));

	for (uint32_t i = 0; i < source->n_former && info->kind == COUNTER; i++)
		sum += counter_read(info, ufs_counters(source->former[i].ufs));
	return sum;
}

void source_origin_counters(const struct source *source, struct ufs_counters *ret_counters)
{
	uint32_t n;
	const struct counter_info *table = ufs_counter_table(&n);

	for (uint32_t i = 0; i < n; i++)
		counter_set((counter_t *)(void *)((char *)ret_counters + table[i].offset),
			source_origin_counter(source, &table[i]));
}

void source_set_way(
	struct worker *w, const struct volume_id *volume, const struct Granary__Source *way)
{
	_cleanup_(ufs_config_release) struct ufs_config config = { 0 };
	struct source *source;
	struct err e = ERR_INIT;
	int r = origin_from_message(way, &config);

	while (r == 0 && (source = find_other(w, volume, &config)) != NULL)
		r = take_way(source, &config, &e);
	if (r < 0)
		LOG_LIMITED(LOG_WARN, "new access settings not applied",
			"error=%s text=\"%s\" next=\"the previous ones stay in use; tried again\"",
			err_name(r), e.text);
}

void source_note_current(struct worker *w, const struct volume_id *volume, int64_t current_ms)
{
	pthread_mutex_lock(&w->sources.lock);
	list_for_each (node, &w->sources.all) {
		struct source *source = list_entry(node, struct source, link);

		if (!source->table || !source->ufs || !volume_id_equal(&source->volume, volume))
			continue;
		if (source->current_ms && source->current_ms != current_ms)
			ufs_forget(source->ufs);
		source->current_ms = current_ms;
	}
	pthread_mutex_unlock(&w->sources.lock);
}

/* ---- older lineages -------------------------------------------------------------------------- */

static void forget_elders(struct source *source)
{
	for (uint32_t i = 0; i < source->n_elders; i++)
		table_unref(source->elders[i]);
	source->n_elders = 0;
}

/* Tables of lineages with bytes on the tier, whose objects may be this one's too. Before the source
 * is READY. */
static void open_elders(struct source *source)
{
	struct worker *w = source->worker;
	uint64_t lineages[KEPT_LINEAGES];
	uint32_t n = tier_set_lineages(w->tiers, &source->volume, lineages, KEPT_LINEAGES);
	struct table *tables[SOURCE_ELDERS];
	uint32_t opened = 0;

	for (uint32_t i = 0; i < n && opened < SOURCE_ELDERS; i++) {
		int r = lineages[i] == source->lineage
				? -ENOENT
				: kept_table_open(w, &source->volume, lineages[i], &tables[opened]);

		if (r == 0)
			opened++;
		else if (r != -ENOENT)
			log_warn("table of an older lineage not used",
				"lineage=%016llx error=%s next=\"its bytes are fetched again\"",
				(unsigned long long)lineages[i], err_name(r));
	}
	pthread_mutex_lock(&w->sources.lock);
	forget_elders(source); /* of an attempt that failed */
	memcpy(source->elders, tables, opened * sizeof(tables[0]));
	source->n_elders = opened;
	pthread_mutex_unlock(&w->sources.lock);
}

void source_forget_elder(struct worker *w, const struct volume_id *volume, uint64_t lineage)
{
	struct table *gone = NULL;

	pthread_mutex_lock(&w->sources.lock);
	list_for_each (node, &w->sources.all) {
		struct source *source = list_entry(node, struct source, link);

		for (uint32_t i = 0; i < source->n_elders && !gone; i++) {
			const struct generation_id *id = &table_info(source->elders[i])->id;

			if (id->lineage != lineage || !volume_id_equal(&id->volume, volume))
				continue;
			gone = source->elders[i];
			source->elders[i] = source->elders[--source->n_elders];
		}
	}
	pthread_mutex_unlock(&w->sources.lock);
	table_unref(gone);
}

/* ---- loading --------------------------------------------------------------------------------- */

/* An older lineage that somebody still reads, or the scrub looks at, is no news: taken for it, the
 * master's retention settings would contradict what was seen, and nothing were ever dropped. */
static bool is_news(struct source *source, const struct generation_id *id)
{
	struct generation_id seen;

	return kept_seen_load(source->worker, &id->volume, &seen) < 0 ||
	       seen.lineage == id->lineage || is_current(source);
}

/* The master's seal, which came with the newest generation of the lineage. */
static void take_seal(const struct buf *words, struct generation_id *id)
{
	Granary__Generation *m =
		granary__generation__unpack(NULL, words->len, (const uint8_t *)words->data);

	if (m && m->newest_seal.len == SHA256_BYTES && m->newest_generation <= id->generation)
		memcpy(id->seal, m->newest_seal.data, SHA256_BYTES);
	if (m)
		granary__generation__free_unpacked(m, NULL);
}

/* What survives a restart: the guard's memory, and the table with which the bytes are found again.
 * `fd`: the table's file. */
static void remember(
	struct source *source, const struct generation_id *id, int fd, const struct buf *words)
{
	struct worker *w = source->worker;
	struct generation_id sealed = *id;
	int r = kept_table_save(w, id, fd);
	int said =
		r == 0 ? kept_source_save(w, id, words) : 0; /* else a start waits for the master */

	kept_fence_save(w);
	take_seal(words, &sealed);
	if (r == 0 && is_news(source, id))
		r = kept_seen_save(w, &sealed);
	r = r < 0 ? r : said;
	if (r < 0)
		log_warn("generation not stored",
			"tier=%s error=%s next=\"the lineage check is weaker after a restart\"",
			w->config->tier, err_name(r));
}

static int check_table(struct source *source, struct table *table, struct err *e)
{
	const struct generation_id *id = &table_info(table)->id;
	int r;

	if (!volume_id_equal(&id->volume, &source->volume) || id->lineage != source->lineage)
		return err_set(e, -ESTALE,
			"the master answered with the table of another volume or lineage: mount "
			"again");
	if (source->table && table_info(source->table)->id.generation != id->generation)
		r = generation_check_successor(source->table, table, e);
	else
		r = seen_check(source, id, e);
	if (r == 0 && !source->table)
		open_elders(source);
	return r;
}

/* Fetches the table and opens the origin: on a control thread. */
static int source_load(
	struct source *source, struct table **ret_table, bool *ret_kept, struct err *e)
{
	_cleanup_(ufs_config_release) struct ufs_config origin = { 0 };
	_cleanup_(said_release) struct said said = { .words = BUF_INIT(WORDS_MAX), .fd = -1 };
	struct ufs_limits limits = UFS_LIMITS_DEFAULT;
	struct table *table;
	_cleanup_close_ int file = -1;
	int r = ask_master(source, &origin, &limits, &said, e);

	*ret_kept = said.kept;
	if (r < 0)
		return r;
	file = fcntl(said.fd, F_DUPFD_CLOEXEC, 0); /* said.fd is the table's from now on */
	r = table_open(TAKE_FD(said.fd), &table, e);
	if (r < 0)
		return r;
	r = check_table(source, table, e);
	if (r == 0 && !said.kept)
		remember(source, &table_info(table)->id, file, &said.words);
	if (r == 0)
		r = table_reserve(table, e);
	limits.max_requests = origin_requests(source->worker);
	if (r == 0 && !source->ufs) {
		r = ufs_open(&origin, &limits, &source->ufs, e);
		if (r == 0) {
			source->origin = origin;
			origin = (struct ufs_config){ 0 };
		}
	}
	if (r < 0)
		table_unref(table);
	else
		*ret_table = table;
	return r;
}

static void close_origins(struct source *source)
{
	ufs_free(TAKE(source->ufs));
	while (source->n_former > 0) {
		struct source_way *way = &source->former[--source->n_former];

		ufs_free(way->ufs);
		ufs_config_release(&way->origin);
	}
}

static void source_free(struct source *source)
{
	close_origins(source);
	forget_elders(source);
	table_unref(source->table);
	ufs_config_release(&source->origin);
	source->magic = 0;
	free(source);
}

/* Those who are parked now have asked before the master answers. */
static void mark_asked(struct source *source)
{
	pthread_mutex_lock(&source->worker->sources.lock);
	list_for_each (node, &source->parked)
		list_entry(node, struct source_wait, link)->asked = true;
	pthread_mutex_unlock(&source->worker->sources.lock);
}

/*
 * Moves to `answered` whom this load answers, with their status: all when it failed, else whose
 * generation is there; of the others those who asked before it get -ESTALE. True when somebody is
 * left who came later and names a newer generation, or who does when no master was asked (`kept`): it must be asked
 * for again.
 */
static bool collect_answered_locked(struct source *source, int r, bool kept, struct list *answered)
{
	bool left = false;

	list_for_each_safe (node, &source->parked) {
		struct source_wait *wait = list_entry(node, struct source_wait, link);

		wait->status = r;
		if (r == 0 && table_info(source->table)->id.generation < wait->generation) {
			if (!wait->asked || kept) {
				left = true;
				continue;
			}
			wait->status = -ESTALE;
		}
		wait->answered = true;
		list_remove(node);
		list_push_back(answered, node);
	}
	return left;
}

static void answer(struct list *answered, struct source *source, const struct err *failed)
{
	struct list *node;

	while ((node = list_pop_front(answered)) != NULL) {
		struct source_wait *wait = list_entry(node, struct source_wait, link);
		struct err stale = ERR_INIT;

		if (wait->status < 0 && failed->code == 0)
			(void)err_set(&stale, wait->status, /* returns the status */
				"the reader requested generation %llu, which the master does not "
				"have",
				(unsigned long long)wait->generation);
		wait->ready(wait, source, wait->status, stale.code ? &stale : failed);
	}
}

/* One question to the master and what follows from it. True: to be asked again. */
static bool load_once(struct source *source)
{
	struct worker *w = source->worker;
	struct list answered = LIST_INIT(answered);
	struct table *table = NULL;
	struct table *old = NULL;
	struct err e = ERR_INIT;
	bool kept;
	bool again;
	bool drop;
	int r;

	mark_asked(source);
	r = source_load(source, &table, &kept, &e);
	if (r < 0 && r != -ECANCELED) /* readers can name what they like */
		LOG_LIMITED(LOG_WARN, "source not opened",
			"reason=\"%s\" next=\"tried again with the next request\"", e.text);
	if (table) /* before anything of it is admitted by this table */
		copies_note_table(w, table);
	pthread_mutex_lock(&w->sources.lock);
	if (table) {
		old = source->table;
		source->table = table;
	}
	again = collect_answered_locked(source, r, kept, &answered);
	if (!again)
		source->state = r < 0 ? SOURCE_FAILED : SOURCE_READY;
	drop = r < 0 && !source->table;
	if (drop)
		list_remove(&source->link);
	pthread_mutex_unlock(&w->sources.lock);
	if (old) /* what is gone by the new listing is in it no more, and what is in it is there */
		ufs_forget(source_ufs(source));
	table_unref(old);
	answer(&answered, source, &e);
	if (table)
		retention_wake(w);
	if (drop)
		source_free(source);
	return again;
}

static void run_load(struct pool_job *job)
{
	while (load_once(container_of(job, struct source, job)))
		;
}

/* ---- finding --------------------------------------------------------------------------------- */

static struct source *find_locked(
	struct worker *w, const struct volume_id *volume, uint64_t lineage)
{
	struct source *source;

	list_for_each (node, &w->sources.all) {
		source = list_entry(node, struct source, link);
		if (source->lineage == lineage && volume_id_equal(&source->volume, volume))
			return source;
	}
	source = calloc(1, sizeof(*source));
	if (!source)
		return NULL;
	source->magic = SOURCE_MAGIC;
	source->worker = w;
	source->volume = *volume;
	source->lineage = lineage;
	source->state = SOURCE_FAILED;
	source->job.run = run_load;
	list_init(&source->parked);
	list_push_back(&w->sources.all, &source->link);
	return source;
}

/* Whatever became of the last question to the master: what is there is good. */
static bool ready_locked(const struct source *source, uint64_t generation)
{
	return source->table && table_info(source->table)->id.generation >= generation;
}

void source_find(struct worker *w, const struct volume_id *volume, uint64_t lineage,
	uint64_t generation, struct source_wait *wait)
{
	struct source *source;
	int r = 0;

	pthread_mutex_lock(&w->sources.lock);
	source = find_locked(w, volume, lineage);
	if (!source) {
		r = -ENOMEM;
	} else if (!ready_locked(source, generation)) {
		wait->generation = generation;
		if (source->state != SOURCE_LOADING) {
			r = pool_submit(w->control, &source->job);
			source->state = r < 0 ? source->state : SOURCE_LOADING;
			if (r < 0 && !source->table) {
				list_remove(&source->link);
				source_free(TAKE(source));
			}
		}
		if (r == 0) {
			list_push_back(&source->parked, &wait->link);
			pthread_mutex_unlock(&w->sources.lock);
			return;
		}
	}
	wait->answered = true;
	pthread_mutex_unlock(&w->sources.lock);
	wait->ready(wait, source, r, NULL);
}

bool source_wait_cancel(struct worker *w, struct source_wait *wait)
{
	bool waiting;

	pthread_mutex_lock(&w->sources.lock);
	waiting = !wait->answered;
	if (waiting)
		list_remove(&wait->link);
	pthread_mutex_unlock(&w->sources.lock);
	return waiting;
}

struct table *source_table(struct source *source)
{
	struct table *table;

	CHECK_MAGIC(source, SOURCE_MAGIC);
	pthread_mutex_lock(&source->worker->sources.lock);
	table = table_ref(source->table);
	pthread_mutex_unlock(&source->worker->sources.lock);
	return table;
}

int source_row_from(struct table *table, uint64_t at, struct table_row *row)
{
	int r = table_find_offset(table, at, row);

	return r == -ENOENT ? table_next_offset(table, at, row) : r;
}

void sources_close(struct worker *w)
{
	pthread_mutex_lock(&w->sources.lock);
	w->sources.closing = true;
	pthread_mutex_unlock(&w->sources.lock);
}

void sources_close_origins(struct worker *w)
{
	/* No source is added any more: requests are refused and the control pool has ended. */
	list_for_each (node, &w->sources.all)
		close_origins(list_entry(node, struct source, link));
}

void sources_free(struct worker *w)
{
	list_for_each_safe (node, &w->sources.all) {
		struct source *source = list_entry(node, struct source, link);

		list_remove(node);
		source_free(source);
	}
}
