/* Sources a worker fills from. See source.h. */
#include "cacheworker/source.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "catalog/generation_seen.h"
#include "proto/granary.pb-c.h"

#include <stdlib.h>
#include <string.h>

#define MASTER_DEADLINE_NS (60 * CLOCK_SECOND)

/* ---- what this worker has seen --------------------------------------------------------------- */

#define SEEN_DIR "%s/seen" /* beside the tier */

static int seen_load(const struct source *source, struct generation_id *ret_seen)
{
	char dir[PATH_MAX];

	if (snprintf(dir, sizeof(dir), SEEN_DIR, source->worker->config->tier) >= (int)sizeof(dir))
		return -ENAMETOOLONG;
	return generation_seen_load(dir, &source->volume, ret_seen);
}

static int seen_save(const struct source *source, const struct generation_id *id)
{
	char dir[PATH_MAX];
	int r;

	if (snprintf(dir, sizeof(dir), SEEN_DIR, source->worker->config->tier) >= (int)sizeof(dir))
		return -ENAMETOOLONG;
	r = file_mkdirs(dir, 0700);
	return r < 0 ? r : generation_seen_save(dir, id);
}

/* The guard across restarts; within one, generation_check_successor() compares row by row. */
static int seen_check(const struct source *source, const struct generation_id *id, struct err *e)
{
	struct generation_id seen;
	int r = seen_load(source, &seen);
	bool same;

	if (r == -ENOMEM || r == -EMFILE || r == -ENFILE) /* no reason to trust anybody */
		return err_set(e, r, "what this worker saw cannot be read: %s", err_str(r));
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
		.anonymous = message->anonymous };

	if (copy_string(message->endpoint, &config.endpoint) < 0 ||
		copy_string(message->region, &config.region) < 0 ||
		copy_string(message->bucket, &config.bucket) < 0 ||
		copy_string(message->profile, &config.profile) < 0 ||
		copy_string(message->ca_file, &config.ca_file) < 0 ||
		!(config.prefix = strdup(message->prefix ? message->prefix : ""))) {
		ufs_config_release(&config);
		return -ENOMEM;
	}
	*ret_config = config;
	return 0;
}

struct answer {
	struct rpc_call call;
	pthread_mutex_t lock;
	pthread_cond_t ended;
	bool done;
	int status;
};

static void on_answer(struct rpc_call *call, int status)
{
	struct answer *answer = call->arg;

	pthread_mutex_lock(&answer->lock);
	answer->done = true;
	answer->status = status;
	pthread_cond_signal(&answer->ended);
	pthread_mutex_unlock(&answer->lock);
}

/*
 * Sends and waits. Not rpc_call_wait(): once sources_close() was called no call begins, and after
 * the call's end the client, which may be freed by then, is not touched.
 */
static int call_master(struct worker *w, struct answer *answer, struct err *e)
{
	bool closing;

	pthread_mutex_init(&answer->lock, NULL);
	pthread_cond_init(&answer->ended, NULL);
	answer->call.on_done = on_answer;
	answer->call.arg = answer;
	answer->status = -ECANCELED;
	pthread_mutex_lock(&w->sources.lock);
	closing = w->sources.closing;
	if (!closing)
		rpc_call(w->master, &answer->call);
	pthread_mutex_unlock(&w->sources.lock);
	pthread_mutex_lock(&answer->lock);
	while (!closing && !answer->done)
		pthread_cond_wait(&answer->ended, &answer->lock);
	pthread_mutex_unlock(&answer->lock);
	pthread_cond_destroy(&answer->ended);
	pthread_mutex_destroy(&answer->lock);
	if (answer->status < 0 && answer->call.reply_payload)
		return err_set(e, answer->status, "%s", (const char *)answer->call.reply_payload);
	if (answer->status < 0)
		return err_set(e, answer->status,
			"the master at %s was asked for a table: %s: see its log",
			w->config->master, err_str(answer->status));
	return 0;
}

static int ask_master(
	struct source *source, struct ufs_config *ret_origin, int *ret_fd, struct err *e)
{
	Granary__GetTable ask = GRANARY__GET_TABLE__INIT;
	struct answer answer = { .call = { .frame = { .op = FRAME_GET_TABLE },
					 .payload = NET_PAYLOAD_NONE,
					 .reply_fd = -1,
					 .deadline_ns = clock_mono_ns() + MASTER_DEADLINE_NS,
					 .resend = true } };
	_cleanup_free_ void *payload = NULL;
	_cleanup_close_ int fd = -1;
	Granary__Generation *message;
	uint8_t packed[256];
	int r;

	ask.has_volume = true;
	ask.volume = (ProtobufCBinaryData){ .data = source->volume.bytes, .len = VOLUME_ID_LEN };
	ask.has_lineage = true;
	ask.lineage = source->lineage;
	ask.has_generation = true; /* 0: the newest */
	ensure(granary__get_table__get_packed_size(&ask) <= sizeof(packed));
	answer.call.payload.parts[0].data = packed;
	answer.call.payload.parts[0].len = granary__get_table__pack(&ask, packed);
	answer.call.payload.n = 1;
	r = call_master(source->worker, &answer, e);
	payload = answer.call.reply_payload;
	fd = answer.call.reply_fd;
	if (r < 0)
		return r;
	message = granary__generation__unpack(NULL, answer.call.reply.payload, payload);
	if (!message || !message->source || fd < 0)
		r = err_set(
			e, -EBADMSG, "the master's answer is not understood: do versions differ?");
	else
		r = origin_from_message(message->source, ret_origin);
	if (message)
		granary__generation__free_unpacked(message, NULL);
	if (r == 0)
		*ret_fd = TAKE_FD(fd);
	return r;
}

/* An older lineage of this volume has bytes that no table names any more. */
static void drop_older_lineage(struct source *source)
{
	struct generation_id seen;
	uint64_t freed;

	if (seen_load(source, &seen) < 0 || seen.lineage == source->lineage)
		return;
	freed = tier_set_drop(source->worker->tiers, &source->volume, seen.lineage, NULL, NULL);
	log_info("older lineage dropped", "bytes=%llu", (unsigned long long)freed);
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
		drop_older_lineage(source);
	if (r == 0 && seen_save(source, id) < 0)
		log_warn("generation not remembered",
			"tier=%s next=\"guard after a restart is weaker\"",
			source->worker->config->tier);
	return r;
}

/* Fetches the table and opens the origin: on a control thread. */
static int source_load(struct source *source, struct table **ret_table, struct err *e)
{
	_cleanup_(ufs_config_release) struct ufs_config origin = { 0 };
	struct ufs_limits limits = UFS_LIMITS_DEFAULT;
	struct table *table;
	int fd = -1;
	int r = ask_master(source, &origin, &fd, e);

	if (r < 0)
		return r;
	r = table_open(fd, &table, e);
	if (r < 0)
		return r;
	r = check_table(source, table, e);
	if (r == 0)
		r = table_reserve(table, e);
	limits.max_requests = source->worker->config->origin_requests;
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

static void source_free(struct source *source)
{
	ufs_free(source->ufs);
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
 * Moves to `told` whom this load answers, with their status: all when it failed, else whose
 * generation is there; of the others those who asked before it get -ESTALE. True when somebody is
 * left who came later and names a newer generation: it must be asked for again.
 */
static bool collect_told_locked(struct source *source, int r, struct list *told)
{
	bool left = false;

	list_for_each_safe (node, &source->parked) {
		struct source_wait *wait = list_entry(node, struct source_wait, link);

		wait->status = r;
		if (r == 0 && table_info(source->table)->id.generation < wait->generation) {
			if (!wait->asked) {
				left = true;
				continue;
			}
			wait->status = -ESTALE;
		}
		wait->told = true;
		list_remove(node);
		list_push_back(told, node);
	}
	return left;
}

static void tell(struct list *told, struct source *source, const struct err *failed)
{
	struct list *node;

	while ((node = list_pop_front(told)) != NULL) {
		struct source_wait *wait = list_entry(node, struct source_wait, link);
		struct err stale = ERR_INIT;

		if (wait->status < 0 && failed->code == 0)
			(void)err_set(&stale, wait->status, /* returns the status */
				"the reader names generation %llu, which the master does not know",
				(unsigned long long)wait->generation);
		wait->ready(wait, source, wait->status, stale.code ? &stale : failed);
	}
}

/* Tells the tiers how large the volume is, before anything of it is admitted by this table. The only
 * worker there is holds all of every volume that fits. */
static void tell_layout(struct worker *w, const struct table *table)
{
	const struct table_info *info = table_info(table);
	const struct tier_layout layout = {
		.end = info->end,
		.used = info->live_bytes + info->live_files * BLOCK_BYTES,
		.whole = true,
	};
	int r = tier_set_layout(w->tiers, &info->id.volume, info->id.lineage, &layout);

	if (r < 0)
		LOG_LIMITED(LOG_WARN, "volume not laid out in extents",
			"reason=\"%s\" next=\"its chunks get files of their own\"", err_str(r));
}

/* One question to the master and what follows from it. True: to be asked again. */
static bool load_once(struct source *source)
{
	struct worker *w = source->worker;
	struct list told = LIST_INIT(told);
	struct table *table = NULL;
	struct table *old = NULL;
	struct err e = ERR_INIT;
	bool again;
	bool drop;
	int r;

	mark_asked(source);
	r = source_load(source, &table, &e);
	if (r < 0 && r != -ECANCELED) /* readers can name what they like */
		LOG_LIMITED(LOG_WARN, "source not opened",
			"reason=\"%s\" next=\"asked again with the next request\"", e.text);
	if (table)
		tell_layout(w, table);
	pthread_mutex_lock(&w->sources.lock);
	if (table) {
		old = source->table;
		source->table = table;
	}
	again = collect_told_locked(source, r, &told);
	if (!again)
		source->state = r < 0 ? SOURCE_FAILED : SOURCE_READY;
	drop = r < 0 && !source->table;
	if (drop)
		list_remove(&source->link);
	pthread_mutex_unlock(&w->sources.lock);
	table_unref(old);
	tell(&told, source, &e);
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
	wait->told = true;
	pthread_mutex_unlock(&w->sources.lock);
	wait->ready(wait, source, r, NULL);
}

bool source_wait_cancel(struct worker *w, struct source_wait *wait)
{
	bool waiting;

	pthread_mutex_lock(&w->sources.lock);
	waiting = !wait->told;
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
		ufs_free(TAKE(list_entry(node, struct source, link)->ufs));
}

void sources_free(struct worker *w)
{
	list_for_each_safe (node, &w->sources.all) {
		struct source *source = list_entry(node, struct source, link);

		list_remove(node);
		source_free(source);
	}
}
