/* Sources a worker fills from. See source.h. */
#include "cacheworker/source.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "proto/granary.pb-c.h"

#include <stdlib.h>
#include <string.h>

#define MASTER_DEADLINE_NS (60 * CLOCK_SECOND)
#define SEEN_BYTES_MAX     4096u

/* ---- what this worker has seen
 * ----------------------------------------------------------------------------- */

/* One text line beside the tier: "lineage generation hash" of the newest table of a volume. */
struct seen {
	uint64_t lineage;
	uint64_t generation;
	uint8_t hash[SHA256_BYTES];
};

static void seen_path(const struct source *source, char *out, size_t size)
{
	char hex[2 * VOLUME_ID_LEN + 1];

	hash_hex(&source->volume, VOLUME_ID_LEN, hex);
	(void)snprintf(out, size, "%s/seen/%s", source->worker->config->tier,
		hex); /* cut paths fail to open */
}

static int seen_load(const struct source *source, struct seen *ret_seen)
{
	_cleanup_(buf_release) struct buf text = BUF_INIT(SEEN_BYTES_MAX);
	unsigned long long lineage;
	unsigned long long generation;
	char path[PATH_MAX];
	char hex[2 * SHA256_BYTES + 1];
	int r;

	seen_path(source, path, sizeof(path));
	r = file_read_all(path, &text);
	if (r < 0)
		return r;
	if (sscanf(buf_str(&text), "%16llx %llu %64s", &lineage, &generation, hex) != 3 ||
		hash_unhex(hex, ret_seen->hash, SHA256_BYTES) < 0)
		return -EBADMSG;
	ret_seen->lineage = lineage;
	ret_seen->generation = generation;
	return 0;
}

static int seen_save(const struct source *source, const struct generation_id *id)
{
	char path[PATH_MAX];
	char line[128];
	char hex[2 * SHA256_BYTES + 1];
	int n;
	int r;

	(void)snprintf(
		path, sizeof(path), "%s/seen", source->worker->config->tier); /* as seen_path */
	r = file_mkdirs(path, 0700);
	if (r < 0)
		return r;
	seen_path(source, path, sizeof(path));
	hash_hex(id->hash, SHA256_BYTES, hex);
	n = snprintf(line, sizeof(line), "%016llx %llu %s\n", (unsigned long long)id->lineage,
		(unsigned long long)id->generation, hex);
	return file_write_atomic(path, line, (size_t)n, 0600);
}

/* The guard across restarts; within one, generation_check_successor() compares row by row. */
static int seen_check(const struct source *source, const struct generation_id *id, struct err *e)
{
	struct seen seen;
	bool same;

	if (seen_load(source, &seen) < 0 || seen.lineage != id->lineage)
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

/* ---- asking the master
 * ------------------------------------------------------------------------------------- */

static int copy_string(char *from, char **ret_to)
{
	*ret_to = from && from[0] ? strdup(from) : NULL;
	return from && from[0] && !*ret_to ? -ENOMEM : 0;
}

static int origin_from_message(const Granary__Source *message, struct ufs_config *ret_config)
{
	_cleanup_(ufs_config_release) struct ufs_config config = {
		.scheme = (enum ufs_scheme)message->scheme, .path_style = message->path_style
	};

	if (copy_string(message->endpoint, &config.endpoint) < 0 ||
		copy_string(message->region, &config.region) < 0 ||
		copy_string(message->bucket, &config.bucket) < 0 ||
		copy_string(message->profile, &config.profile) < 0 ||
		copy_string(message->ca_file, &config.ca_file) < 0)
		return -ENOMEM;
	config.prefix = strdup(message->prefix ? message->prefix : "");
	if (!config.prefix)
		return -ENOMEM;
	*ret_config = config;
	config = (struct ufs_config){ 0 };
	return 0;
}

static int ask_master(struct source *source, uint64_t generation, struct ufs_config *ret_origin,
	int *ret_fd, struct err *e)
{
	Granary__GetTable ask = GRANARY__GET_TABLE__INIT;
	struct rpc_call call = { .frame = { .op = FRAME_GET_TABLE },
		.payload = NET_PAYLOAD_NONE,
		.reply_fd = -1,
		.deadline_ns = clock_mono_ns() + MASTER_DEADLINE_NS,
		.resend = true };
	_cleanup_free_ void *answer = NULL;
	_cleanup_close_ int fd = -1;
	Granary__Generation *message;
	uint8_t packed[256];
	int r;

	ask.has_volume = true;
	ask.volume = (ProtobufCBinaryData){ .data = source->volume.bytes, .len = VOLUME_ID_LEN };
	ask.has_lineage = true;
	ask.lineage = source->lineage;
	ask.has_generation = true;
	ask.generation = generation;
	ensure(granary__get_table__get_packed_size(&ask) <= sizeof(packed));
	call.payload.parts[0].data = packed;
	call.payload.parts[0].len = granary__get_table__pack(&ask, packed);
	call.payload.n = 1;
	r = rpc_call_wait(source->worker->master, &call, e);
	answer = call.reply_payload;
	fd = call.reply_fd;
	if (r < 0)
		return r;
	message = granary__generation__unpack(NULL, call.reply.payload, answer);
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

static int check_table(struct source *source, struct table *table, struct err *e)
{
	const struct generation_id *id = &table_info(table)->id;
	int r;

	if (!volume_id_equal(&id->volume, &source->volume) || id->lineage != source->lineage)
		return err_set(e, -ESTALE,
			"the master answered with the table of another volume or lineage");
	if (source->table && table_info(source->table)->id.generation != id->generation)
		r = generation_check_successor(source->table, table, e);
	else
		r = seen_check(source, id, e);
	if (r == 0 && seen_save(source, id) < 0)
		log_warn("generation not remembered",
			"tier=%s next=\"guard after a restart is weaker\"",
			source->worker->config->tier);
	return r;
}

/* An older lineage of this volume has bytes that no table names any more. */
static void drop_older_lineage(struct source *source)
{
	struct seen seen;
	uint64_t freed;

	if (seen_load(source, &seen) < 0 || seen.lineage == source->lineage)
		return;
	freed = tier_set_drop(source->worker->tiers, &source->volume, seen.lineage, NULL, NULL);
	log_info("older lineage dropped", "bytes=%llu", (unsigned long long)freed);
}

/* Fetches the table and opens the origin: on a control thread. */
static int source_load(
	struct source *source, uint64_t generation, struct table **ret_table, struct err *e)
{
	_cleanup_(ufs_config_release) struct ufs_config origin = { 0 };
	struct ufs_limits limits = UFS_LIMITS_DEFAULT;
	struct table *table;
	int fd = -1;
	int r = ask_master(source, generation, &origin, &fd, e);

	if (r < 0)
		return r;
	r = table_open(fd, &table, e);
	if (r < 0)
		return r;
	if (!source->table)
		drop_older_lineage(source);
	r = check_table(source, table, e);
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

static void run_load(struct pool_job *job)
{
	struct source *source = container_of(job, struct source, job);
	struct worker *w = source->worker;
	struct list parked = LIST_INIT(parked);
	struct table *table = NULL;
	struct table *old = NULL;
	struct err e = ERR_INIT;
	struct list *node;
	uint64_t wanted;
	int r;

	pthread_mutex_lock(&w->sources.lock);
	wanted = source->wanted_generation;
	pthread_mutex_unlock(&w->sources.lock);
	r = source_load(source, 0, &table, &e);
	if (r == 0 && table_info(table)->id.generation < wanted) {
		r = err_set(&e, -ESTALE,
			"the master knows generation %llu only, a reader named %llu",
			(unsigned long long)table_info(table)->id.generation,
			(unsigned long long)wanted);
		table_unref(TAKE(table));
	}
	if (r < 0)
		log_warn("source not opened",
			"reason=\"%s\" next=\"asked again with the next request\"", e.text);
	pthread_mutex_lock(&w->sources.lock);
	source->state = r < 0 ? SOURCE_FAILED : SOURCE_READY;
	if (table) {
		old = source->table;
		source->table = table;
	}
	list_for_each (parked_node, &source->parked)
		list_entry(parked_node, struct source_wait, link)->told = true;
	list_splice_back(&parked, &source->parked);
	pthread_mutex_unlock(&w->sources.lock);
	table_unref(old);
	while ((node = list_pop_front(&parked)) != NULL) {
		struct source_wait *wait = list_entry(node, struct source_wait, link);

		wait->ready(wait, source, r, &e);
	}
}

/* ---- finding
 * -----------------------------------------------------------------------------------------------
 */

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

static bool ready_locked(const struct source *source, uint64_t generation)
{
	return source->state == SOURCE_READY &&
	       table_info(source->table)->id.generation >= generation;
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
		source->wanted_generation = max(source->wanted_generation, generation);
		if (source->state != SOURCE_LOADING) {
			r = pool_submit(w->control, &source->job);
			source->state = r < 0 ? source->state : SOURCE_LOADING;
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
		table_unref(source->table);
		ufs_config_release(&source->origin);
		source->magic = 0;
		free(source);
	}
}
