/* Opening a source, and the guards. See client.h, client_source.h. */
#include "client/client_source.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/units.h"
#include "catalog/generation_seen.h"
#include "client/client_internal.h"
#include "client/client_op.h"
#include "client/client_table.h"
#include "placement/placement.h"
#include "proto/granary.pb-c.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

/* Listing a large bucket takes its time: the master ends the call when the origin does not
 * answer. */
#define OPEN_DEADLINE (3600 * CLOCK_SECOND)
#define REQUEST_MAX   (16 * KiB)

/* ---- guards ---------------------------------------------------------------------------------- */

void client_guard_init(struct client_guard *guard)
{
	memset(guard, 0, sizeof(*guard));
	pthread_mutex_init(&guard->lock, NULL);
}

void client_guard_release(struct client_guard *guard)
{
	for (uint32_t i = 0; i < guard->n; i++)
		table_unref(guard->seen[i].table);
	pthread_mutex_destroy(&guard->lock);
}

/* Index of the lineage, or of the place to put it. */
static uint32_t find_place_locked(struct client_guard *guard, const struct generation_id *id)
{
	uint32_t oldest = 0;

	for (uint32_t i = 0; i < guard->n; i++) {
		if (guard->seen[i].id.lineage == id->lineage &&
			volume_id_equal(&guard->seen[i].id.volume, &id->volume))
			return i;
		if (guard->seen[i].used < guard->seen[oldest].used)
			oldest = i;
	}
	return guard->n < CLIENT_GUARD_MAX ? guard->n : oldest;
}

static bool same_lineage(const struct generation_id *a, const struct generation_id *b)
{
	return a->lineage == b->lineage && volume_id_equal(&a->volume, &b->volume);
}

static int check_successor(struct table *old, struct table *next, struct err *e)
{
	const struct generation_id *seen = &table_info(old)->id;
	const struct generation_id *id = &table_info(next)->id;

	if (id->generation < seen->generation)
		return err_set(e, -ESTALE,
			"the master answers with generation %llu, but generation %llu was in use "
			"here: its "
			"state was restored from an old copy: unmount, and mount again for a new "
			"lineage",
			(unsigned long long)id->generation, (unsigned long long)seen->generation);
	if (id->generation > seen->generation)
		return generation_check_successor(old, next, e);
	if (memcmp(id->hash, seen->hash, sizeof(id->hash)) != 0)
		return err_set(e, -ESTALE,
			"the master answers with another generation %llu than was in use here: its "
			"state was restored from an old copy: unmount, and mount again for a new "
			"lineage",
			(unsigned long long)id->generation);
	return 0;
}

static void remember_locked(struct client_guard *guard, uint32_t place, struct table *table)
{
	if (place == guard->n)
		guard->n++;
	table_unref(guard->seen[place].table);
	guard->seen[place].table = table_ref(table);
	guard->seen[place].id = table_info(table)->id;
	guard->seen[place].used = ++guard->clock;
}

int client_guard_check(struct client_guard *guard, struct table *table, struct err *e)
{
	const struct generation_id *id = &table_info(table)->id;
	struct table *old = NULL;
	uint32_t place;
	int r = 0;

	/* The comparison reads both tables: not under the lock. */
	pthread_mutex_lock(&guard->lock);
	place = find_place_locked(guard, id);
	if (place < guard->n && same_lineage(&guard->seen[place].id, id))
		old = table_ref(guard->seen[place].table);
	pthread_mutex_unlock(&guard->lock);
	if (old)
		r = check_successor(old, table, e);
	table_unref(old);
	if (r < 0)
		return r;
	pthread_mutex_lock(&guard->lock);
	place = find_place_locked(guard, id);
	if (place == guard->n || !same_lineage(&guard->seen[place].id, id) ||
		guard->seen[place].id.generation <= id->generation)
		remember_locked(guard, place, table);
	pthread_mutex_unlock(&guard->lock);
	return 0;
}

/* A dataset was rolled back: what was seen may be newer, and must have come after it. */
static int check_older(struct client_guard *guard, struct table *table, struct err *e)
{
	const struct generation_id *id = &table_info(table)->id;
	struct table *seen = NULL;
	uint32_t place;
	int r;

	pthread_mutex_lock(&guard->lock);
	place = find_place_locked(guard, id);
	if (place < guard->n && same_lineage(&guard->seen[place].id, id) &&
		guard->seen[place].id.generation > id->generation)
		seen = table_ref(guard->seen[place].table);
	pthread_mutex_unlock(&guard->lock);
	if (!seen)
		return client_guard_check(guard, table, e);
	r = generation_check_successor(table, seen, e);
	table_unref(seen);
	return r;
}

bool client_guard_last(
	struct client_guard *guard, const struct volume_id *volume, struct generation_id *ret_id)
{
	uint64_t best = 0;

	pthread_mutex_lock(&guard->lock);
	for (uint32_t i = 0; i < guard->n; i++) {
		if (guard->seen[i].used <= best ||
			!volume_id_equal(&guard->seen[i].id.volume, volume))
			continue;
		best = guard->seen[i].used;
		*ret_id = guard->seen[i].id;
	}
	pthread_mutex_unlock(&guard->lock);
	return best != 0;
}

/* ---- opening --------------------------------------------------------------------------------- */

/* The volume's id as the master will compute it, so that we can say what we saw of it; false when
 * the source has no text. */
static bool source_volume(const struct ufs_config *source, struct volume_id *ret_id)
{
	_cleanup_(buf_release) struct buf text = BUF_INIT(REQUEST_MAX);

	if (ufs_config_source(source, &text, NULL) < 0)
		return false;
	volume_id_of_source(buf_str(&text), ret_id);
	return true;
}

/* What this process saw of the volume, or an earlier one. */
static bool last_seen(
	struct client *client, const struct volume_id *volume, struct generation_id *ret_id)
{
	struct generation_id stored;
	bool is_stored =
		client->seen_dir && generation_seen_load(client->seen_dir, volume, &stored) == 0;
	bool is_held = client_guard_last(&client->guard, volume, ret_id);

	/* What is stored has its seal. */
	if (is_stored && (!is_held || (stored.lineage == ret_id->lineage &&
					      stored.generation >= ret_id->generation)))
		*ret_id = stored;
	return is_held || is_stored;
}

/* What is to be opened. */
struct asked {
	const struct ufs_config *source;   /* of a client without a dataset */
	const struct volume_id *of_volume; /* which source of a dataset; NULL: it has one */
	bool refresh;
	/* What was in use here when the master was asked: its answer is that, or newer. Later another
	 * process here may have met one that is newer still. */
	bool has_volume;
	struct volume_id volume;
	struct generation_id seen;
	int seen_r; /* of generation_seen_load() */
	/* The answer: may this process ask the origin itself, and which. */
	bool direct;
	uint32_t copies;
	struct ufs_config origin;
};

static int load_seen(
	struct client *client, const struct volume_id *volume, struct generation_id *ret_id)
{
	return client->seen_dir ? generation_seen_load(client->seen_dir, volume, ret_id) : -ENOENT;
}

/* What an earlier process saw is known by its name only; within this one client_guard_check()
 * compares row by row. */
static int check_seen(struct client *client, const struct asked *asked,
	const struct generation_id *id, struct err *e)
{
	struct generation_id seen = asked->seen;
	int r = asked->seen_r;

	if (!asked->has_volume || !volume_id_equal(&asked->volume, &id->volume))
		r = load_seen(client, &id->volume, &seen);
	if (r == -ENOMEM || r == -EMFILE || r == -ENFILE) /* no reason to trust anybody */
		return err_set(
			e, r, "the generations in use on this node cannot be read: %s", err_str(r));
	if (r < 0 || seen.lineage != id->lineage || id->generation > seen.generation)
		return 0;
	if (id->generation == seen.generation && memcmp(id->hash, seen.hash, sizeof(id->hash)) == 0)
		return 0;
	return err_set(e, -ESTALE,
		"the master answers with generation %llu, but generation %llu was in use here: its "
		"state was restored from an old copy: unmount, and mount again for a new lineage",
		(unsigned long long)id->generation, (unsigned long long)seen.generation);
}

static void remember(struct client *client, const struct generation_id *id)
{
	struct generation_id seen;
	int r = 0;

	if (client->seen_dir &&
		(load_seen(client, &id->volume, &seen) < 0 || seen.lineage != id->lineage ||
			seen.generation <= id->generation))
		r = generation_seen_save(client->seen_dir, id);
	if (r == 0 && client->seen_dir)
		r = fence_save(&client->fence, client->seen_dir);
	if (r < 0)
		log_warn("generation not stored",
			"dir=\"%s\" error=%s next=\"the lineage check is weaker after a restart\"",
			client->seen_dir, err_name(r));
}

static void fill_source(const struct ufs_config *config, Granary__Source *source)
{
	granary__source__init(source);
	source->has_scheme = 1;
	source->scheme = (uint32_t)config->scheme;
	source->endpoint = config->endpoint;
	source->region = config->region;
	source->bucket = config->bucket;
	source->prefix = config->prefix;
	source->profile = config->profile;
	source->ca_file = config->ca_file;
	source->has_path_style = 1;
	source->path_style = config->path_style;
	source->has_anonymous = 1;
	source->anonymous = config->anonymous;
	source->credentials = config->credentials;
	source->has_requester_pays = 1;
	source->requester_pays = config->requester_pays;
	source->has_versions = 1;
	source->versions = (uint32_t)config->versions;
}

static void fill_policy(const struct policy_change *change, Granary__Policy *policy)
{
	granary__policy__init(policy);
	policy->has_quota = (change->parts & POLICY_QUOTA) != 0;
	policy->quota = change->to.quota;
	policy->has_priority = (change->parts & POLICY_PRIORITY) != 0;
	policy->priority = change->to.priority;
	policy->has_pin = (change->parts & POLICY_PIN) != 0;
	policy->pin = change->to.pin;
	policy->has_evict = (change->parts & POLICY_EVICT) != 0;
	policy->evict = change->to.evict;
}

/* Sets what was seen, too. */
static int pack_request(struct client *client, struct asked *asked, struct buf *out, struct err *e)
{
	Granary__OpenSource request = GRANARY__OPEN_SOURCE__INIT;
	Granary__Source source;
	Granary__Policy policy;
	struct generation_id seen;
	size_t len;

	if (client->of_dataset) {
		request.has_dataset = 1;
		request.dataset =
			(ProtobufCBinaryData){ sizeof(client->dataset.id), client->dataset.id };
	} else {
		fill_source(asked->source, &source);
		request.source = &source;
	}
	request.has_refresh = 1;
	request.refresh = asked->refresh;
	if (client->policy.parts) {
		fill_policy(&client->policy, &policy);
		request.policy = &policy;
	}
	if (client->of_dataset) {
		asked->volume = asked->of_volume ? *asked->of_volume : client->dataset.volume;
		request.has_volume = 1;
		request.has_shown = 1;
		request.shown = client->dataset.shown;
		request.has_generation = client->dataset.generation != 0;
		request.generation = client->dataset.generation;
		request.volume = (ProtobufCBinaryData){ VOLUME_ID_LEN, asked->volume.bytes };
	}
	asked->has_volume = client->of_dataset || source_volume(asked->source, &asked->volume);
	if (asked->has_volume)
		asked->seen_r = load_seen(client, &asked->volume, &asked->seen);
	if (asked->has_volume && last_seen(client, &asked->volume, &seen)) {
		request.has_seen_lineage = 1;
		request.seen_lineage = seen.lineage;
		request.has_seen_generation = 1;
		request.seen_generation = seen.generation;
		request.has_seen_hash = 1;
		request.seen_hash = (ProtobufCBinaryData){ sizeof(seen.hash), seen.hash };
		request.has_seen_seal = 1;
		request.seen_seal = (ProtobufCBinaryData){ sizeof(seen.seal), seen.seal };
	}
	len = granary__open_source__get_packed_size(&request);
	if (len > REQUEST_MAX || buf_reserve(out, len) < 0)
		return err_set(
			e, -EINVAL, "the source's description is too long: use shorter names");
	out->len = granary__open_source__pack(&request, (uint8_t *)out->data);
	return 0;
}

/* Which generation the master's words are about; the table must be that one. */
static int take_name(
	const Granary__Generation *answer, struct client_table_named *ret_named, struct err *e)
{
	struct client_table_named named = { .part = answer->part };
	struct generation_id id = { .lineage = answer->lineage, .generation = answer->generation };

	if (!answer->has_volume || answer->volume.len != VOLUME_ID_LEN || !answer->has_hash ||
		answer->hash.len != sizeof(id.hash) ||
		(named.part && (answer->prev_hash.len != sizeof(id.prev_hash) ||
				       answer->cut_hash.len != sizeof(named.cut_hash))))
		return err_set(e, -EBADMSG,
			"the master's answer names no object table; use the same version on both "
			"sides");
	memcpy(id.volume.bytes, answer->volume.data, VOLUME_ID_LEN);
	memcpy(id.hash, answer->hash.data, sizeof(id.hash));
	if (named.part) {
		memcpy(id.prev_hash, answer->prev_hash.data, sizeof(id.prev_hash));
		memcpy(named.cut_hash, answer->cut_hash.data, sizeof(named.cut_hash));
	}
	named.id = id;
	*ret_named = named;
	return 0;
}

/* The newest generation that the master has of the table's lineage. */
static struct generation_id newest_of(const Granary__Generation *answer, struct table *table)
{
	struct generation_id id = table_info(table)->id;

	if (answer->newest_generation > id.generation &&
		answer->newest_hash.len == sizeof(id.hash)) {
		id.generation = answer->newest_generation;
		memcpy(id.hash, answer->newest_hash.data, sizeof(id.hash));
	}
	if (answer->newest_seal.len == sizeof(id.seal))
		memcpy(id.seal, answer->newest_seal.data, sizeof(id.seal));
	return id;
}

static int copy_text(const char *from, char **ret_to)
{
	*ret_to = from && from[0] ? strdup(from) : NULL;
	return from && from[0] && !*ret_to ? -ENOMEM : 0;
}

/* How the source is reached, for mounts that may. */
static int take_origin(const Granary__Generation *answer, struct asked *asked, struct err *e)
{
	const Granary__Source *m = answer->source;
	struct ufs_config config = { 0 };

	asked->copies = answer->policy ? answer->policy->copies : COPIES_AUTO;
	if (!m || m->scheme > UFS_OBS)
		return 0;
	asked->direct = answer->policy && answer->policy->direct;
	config.scheme = (enum ufs_scheme)m->scheme;
	config.path_style = m->path_style;
	config.anonymous = m->anonymous;
	config.requester_pays = m->requester_pays;
	config.versions = (enum ufs_versions)min(m->versions, (uint32_t)UFS_VERSIONS_OFF);
	config.no_local = m->no_local;
	config.prefix = strdup(m->prefix ? m->prefix : "");
	if (!config.prefix || copy_text(m->endpoint, &config.endpoint) < 0 ||
		copy_text(m->region, &config.region) < 0 ||
		copy_text(m->bucket, &config.bucket) < 0 ||
		copy_text(m->profile, &config.profile) < 0 ||
		copy_text(m->credentials, &config.credentials) < 0 ||
		copy_text(m->ca_file, &config.ca_file) < 0) {
		ufs_config_release(&config);
		return err_set(e, -ENOMEM, "no memory for the source's description");
	}
	ufs_config_release(&asked->origin);
	asked->origin = config;
	return 0;
}

static int take_answer(struct client *client, struct rpc_call *call, struct asked *asked,
	struct table **ret_table, struct buf *notice, struct err *e)
{
	const struct volume_id *of_volume = asked->of_volume;
	Granary__Generation *answer =
		granary__generation__unpack(NULL, call->reply.payload, call->reply_payload);
	struct table *table = NULL;
	struct client_table_named named;
	struct generation_id newest;
	int r;

	if (!answer)
		return err_set(e, -EBADMSG,
			"the master's answer cannot be decoded; use the same version on both "
			"sides");
	r = take_name(answer, &named, e);
	if (r == 0)
		r = client_table_take(client->master, &named, TAKE_FD(call->reply_fd),
			client->seen_dir, &table, e);
	if (r == 0 && of_volume && !volume_id_equal(of_volume, &table_info(table)->id.volume))
		r = err_set(e, -EBADMSG,
			"the master answered for another source of the dataset; use the same "
			"version on both sides");
	if (r == 0)
		r = table_reserve(table, e);
	if (r == 0) {
		newest = newest_of(answer, table);
		r = check_seen(client, asked, &newest, e);
	}
	if (r == 0 && newest.generation > table_info(table)->id.generation)
		r = check_older(&client->guard, table, e);
	else if (r == 0)
		r = client_guard_check(&client->guard, table, e);
	if (r == 0)
		remember(client, &newest);
	if (r == 0)
		r = take_origin(answer, asked, e);
	if (r == 0 && notice && answer->notice && *answer->notice)
		r = buf_puts(notice, answer->notice);
	granary__generation__free_unpacked(answer, NULL);
	if (r < 0) {
		table_unref(table);
		return err_default(e, r, "object table");
	}
	*ret_table = table;
	return 0;
}

static int ask_master(struct client *client, struct asked *asked, struct table **ret_table,
	struct buf *notice, struct err *e)
{
	_cleanup_(buf_release) struct buf request = BUF_INIT(REQUEST_MAX);
	struct rpc_call call = {
		.frame = { .op = FRAME_OPEN_SOURCE },
		.payload = NET_PAYLOAD_NONE,
		.deadline_ns = clock_mono_ns() + OPEN_DEADLINE,
		.resend = true,
		.reply_fd = -1,
	};
	int r = pack_request(client, asked, &request, e);

	if (r < 0)
		return r;
	call.payload.n = 1;
	call.payload.parts[0].data = request.data;
	call.payload.parts[0].len = request.len;
	r = rpc_call_wait(client->master, &call, e);
	if (r < 0)
		r = err_default(e, r, "master");
	else
		r = take_answer(client, &call, asked, ret_table, notice, e);
	if (r == 0 && client->policy.parts)
		client->policy.parts = 0; /* a later open must not undo what was changed since */
	rpc_call_release(&call);
	return r;
}

static struct client_use *find_use_locked(struct client *client, const struct volume_id *volume)
{
	for (uint32_t i = 0; i < client->n_uses; i++)
		if (volume_id_equal(&client->uses[i].volume, volume))
			return &client->uses[i];
	if (client->n_uses == CLIENT_USES)
		return &client->uses[CLIENT_USES - 1];
	client->uses[client->n_uses].volume = *volume;
	return &client->uses[client->n_uses++];
}

static int open_volume(struct client *client, struct asked *asked,
	struct client_volume **ret_volume, struct buf *notice, struct err *e)
{
	struct client_volume *volume;
	struct table *table = NULL;
	int r;

	CHECK_MAGIC(client, CLIENT_MAGIC);
	volume = calloc(1, sizeof(*volume));
	if (!volume)
		return err_set(e, -ENOMEM, "no memory for a volume");
	r = ask_master(client, asked, &table, notice, e);
	if (r < 0) {
		ufs_config_release(&asked->origin);
		free(volume);
		return r;
	}
	volume->magic = CLIENT_VOLUME_MAGIC;
	volume->client = client;
	volume->table = table;
	volume->id = table_info(table)->id.volume;
	volume->lineage = table_info(table)->id.lineage;
	volume->generation = table_info(table)->id.generation;
	volume->hash = placement_volume_hash(&volume->id);
	client_origin_init(&volume->origin, asked->direct, &asked->origin);
	atomic_init(&volume->copies, asked->copies);
	atomic_init(&volume->keepers, UINT64_MAX); /* none, four times */
	list_init(&volume->notes);
	client_ahead_init(&volume->ahead);
	pthread_mutex_lock(&client->lock);
	volume->use = find_use_locked(client, &volume->id);
	list_push_back(&client->volumes, &volume->link);
	pthread_mutex_unlock(&client->lock);
	*ret_volume = volume;
	return 0;
}

static uint64_t keepers_word(const struct client_policy *policy)
{
	uint64_t word = 0;

	static_assert(CLIENT_KEEPERS * 16 == 64, "they are read at once");
	for (uint32_t i = 0; i < CLIENT_KEEPERS; i++)
		word |= (uint64_t)policy->keepers[i] << i * 16;
	return word;
}

void client_take_policy(
	struct client *client, const struct volume_id *id, const struct client_policy *policy)
{
	pthread_mutex_lock(&client->lock);
	list_for_each (node, &client->volumes) {
		struct client_volume *volume = list_entry(node, struct client_volume, link);

		if (!volume_id_equal(&volume->id, id))
			continue;
		atomic_store(&volume->copies, policy->copies);
		if (policy->keepers_known)
			atomic_store(&volume->keepers, keepers_word(policy));
		client_origin_allow(&volume->origin, policy->direct);
	}
	pthread_mutex_unlock(&client->lock);
}

int client_open_source(struct client *client, const struct ufs_config *source, bool refresh,
	struct client_volume **ret_volume, struct buf *notice, struct err *e)
{
	struct asked asked = { .source = source, .refresh = refresh };

	return open_volume(client, &asked, ret_volume, notice, e);
}

int client_open_volume(struct client *client, const struct volume_id *id, bool refresh,
	struct client_volume **ret_volume, struct buf *notice, struct err *e)
{
	struct asked asked = { .of_volume = id, .refresh = refresh };

	ensure(client->of_dataset);
	return open_volume(client, &asked, ret_volume, notice, e);
}

struct table *client_volume_table(struct client_volume *volume)
{
	CHECK_MAGIC(volume, CLIENT_VOLUME_MAGIC);
	return volume->table;
}

void client_open_shown(struct client *client)
{
	CHECK_MAGIC(client, CLIENT_MAGIC);
	client->dataset.shown = true;
}

bool client_volume_idle(struct client_volume *volume)
{
	bool idle;

	CHECK_MAGIC(volume, CLIENT_VOLUME_MAGIC);
	pthread_mutex_lock(&volume->client->lock);
	idle = volume->pending == 0;
	pthread_mutex_unlock(&volume->client->lock);
	return idle;
}

void client_volume_named_only(struct client_volume *volume)
{
	CHECK_MAGIC(volume, CLIENT_VOLUME_MAGIC);
	volume->named_only = true;
}

static void cancel_notes(void *arg)
{
	struct client_volume *volume = arg;

	/* The volume is closing, so the list does not grow, and a note leaves it on this thread
	 * only: no lock, under which an ending call could not run. */
	list_for_each_safe (node, &volume->notes) {
		struct client_note *note = list_entry(node, struct client_note, link);

		rpc_cancel(note->rpc, &note->call);
	}
}

void client_volume_close(struct client_volume *volume)
{
	struct client *client;

	if (!volume)
		return;
	CHECK_MAGIC(volume, CLIENT_VOLUME_MAGIC);
	client = volume->client;
	ensure(!loop_on_thread(client->loop));
	client_ops_cancel_all(volume);
	loop_call(client->loop, cancel_notes, volume);
	pthread_mutex_lock(&client->lock);
	while (volume->pending)
		pthread_cond_wait(&client->idle, &client->lock);
	list_remove(&volume->link);
	client_ops_forget_locked(volume);
	pthread_mutex_unlock(&client->lock);
	client_ahead_release(&volume->ahead);
	client_origin_release(&volume->origin);
	client_near_forget(volume);
	table_unref(volume->table);
	volume->magic = 0;
	free(volume);
}
