/* The leases of this process: what it shows, reported to the master. See client.h. */
#include "base/cleanup.h"
#include "base/log.h"
#include "client/client_internal.h"
#include "proto/granary.pb-c.h"

#include <stdlib.h>
#include <string.h>

#define HOLD_MAGIC     0x686f6c64u
#define HOLD_PATIENCE  CLOCK_SECOND /* somebody waits for the answer */
#define HOLD_DEADLINE  (20 * CLOCK_SECOND)
#define HOLD_MOUNT_LEN 16u

struct client_hold {
	uint32_t magic;
	struct client *client;
	struct generation_id id;
	uint8_t mount[HOLD_MOUNT_LEN];
	pthread_mutex_t lock;
	pthread_cond_t ended;
	bool busy; /* a call is in flight */
	bool lost; /* by the master's answer, and it was logged */
	bool asks; /* for news */
	uint32_t follow_s;
	int64_t since_ms;
	int64_t sent_since_ms;        /* with the message in flight */
	uint64_t local_bytes;         /* reported of the volume; under client.lock */
	struct client_hold_news news; /* the last; .heard_ns 0: none */
	uint64_t cached;              /* client_hold_cached() */
	struct rpc_call call;
};

static void take_keepers(const Granary__HoldNews *m, struct client_policy *policy)
{
	policy->keepers_known = m->keepers != NULL;
	for (uint32_t i = 0; i < CLIENT_KEEPERS; i++)
		policy->keepers[i] = m->keepers && i < m->keepers->n_workers &&
						     m->keepers->workers[i] < PLACEMENT_MAX
					     ? (uint16_t)m->keepers->workers[i]
					     : PLACEMENT_NONE;
}

/* True when it says what the policy is. */
static bool take_news_locked(
	struct client_hold *hold, const struct rpc_call *call, struct client_policy *ret_policy)
{
	Granary__HoldNews *m =
		granary__hold_news__unpack(NULL, call->reply.payload, call->reply_payload);
	bool has_policy;

	if (!m)
		return false; /* of an older master, or not understood: the next one may be */
	has_policy = m->policy != NULL;
	if (has_policy) {
		*ret_policy = (struct client_policy){ .copies = m->policy->copies,
			.direct = m->policy->direct };
		take_keepers(m, ret_policy);
	}
	hold->cached = m->has_cached_bytes ? m->cached_bytes : UINT64_MAX;
	if (hold->asks)
		hold->news = (struct client_hold_news){
			.heard_ns = clock_mono_ns(),
			.follow = m->follow,
			.lineage = m->lineage,
			.generation = m->generation,
			.shown_ms = (int64_t)m->shown_ms,
			.newest_ms = (int64_t)m->newest_ms,
			.now_ms = (int64_t)m->now_ms,
			.since_ms = hold->sent_since_ms,
		};
	if (m->has_kept && !m->kept && !hold->lost)
		log_warn("generation not protected", "generation=%llu reason=\"%s\"",
			(unsigned long long)hold->id.generation, "newer ones are kept");
	hold->lost = m->has_kept && !m->kept;
	granary__hold_news__free_unpacked(m, NULL);
	return has_policy;
}

static void on_answer(struct rpc_call *call, int status)
{
	struct client_hold *hold = call->arg;
	struct client_policy policy;
	bool has_policy = false;

	pthread_mutex_lock(&hold->lock);
	if (status == -ESTALE && !hold->lost)
		log_warn("generation not protected", "generation=%llu reason=\"%s\"",
			(unsigned long long)hold->id.generation,
			call->reply_payload ? (const char *)call->reply_payload : "");
	if (status == 0 && call->reply_payload)
		has_policy = take_news_locked(hold, call, &policy);
	else
		hold->lost = status == -ESTALE;
	rpc_call_release(call);
	pthread_mutex_unlock(&hold->lock);
	if (has_policy)
		client_take_policy(hold->client, &hold->id.volume, &policy);
	pthread_mutex_lock(&hold->lock);
	hold->busy = false;
	pthread_cond_signal(&hold->ended);
	pthread_mutex_unlock(&hold->lock);
}

/* What this process has read of the volume past the workers. Each byte is reported by one lease. */
static uint64_t count_local(struct client_hold *hold)
{
	struct client *client = hold->client;
	uint64_t bytes;

	pthread_mutex_lock(&client->lock);
	for (uint32_t i = 0; i < client->n_uses; i++) {
		struct client_use *use = &client->uses[i];
		uint64_t now = counter_get(&use->local_bytes);

		if (!volume_id_equal(&use->volume, &hold->id.volume))
			continue;
		hold->local_bytes += now - use->reported;
		use->reported = now;
	}
	bytes = hold->local_bytes;
	pthread_mutex_unlock(&client->lock);
	return bytes;
}

static uint8_t *pack(struct client_hold *hold, bool end, size_t *ret_len, int64_t *ret_since_ms)
{
	Granary__Hold m = GRANARY__HOLD__INIT;
	struct generation_id id = hold->id;
	uint8_t mount[HOLD_MOUNT_LEN];
	uint8_t dataset[sizeof(hold->client->dataset.id)];
	uint8_t *packed;

	memcpy(mount, hold->mount, sizeof(mount));
	m.has_volume = m.has_lineage = m.has_generation = m.has_mount = m.has_end = 1;
	m.volume = (ProtobufCBinaryData){ VOLUME_ID_LEN, id.volume.bytes };
	m.lineage = id.lineage;
	m.generation = id.generation;
	m.mount = (ProtobufCBinaryData){ HOLD_MOUNT_LEN, mount };
	m.end = end;
	m.has_local_bytes = 1;
	m.local_bytes = count_local(hold);
	m.has_policy = m.policy = !end;
	pthread_mutex_lock(&hold->lock);
	m.has_news = m.news = hold->asks && !end;
	m.has_follow_s = hold->follow_s > 0;
	m.follow_s = hold->follow_s;
	m.has_since_ms = hold->since_ms > 0;
	m.since_ms = (uint64_t)hold->since_ms;
	*ret_since_ms = hold->since_ms;
	pthread_mutex_unlock(&hold->lock);
	if (hold->client->of_dataset) {
		memcpy(dataset, hold->client->dataset.id, sizeof(dataset));
		m.has_dataset = 1;
		m.dataset = (ProtobufCBinaryData){ sizeof(dataset), dataset };
	}
	packed = malloc(granary__hold__get_packed_size(&m));
	if (packed)
		*ret_len = granary__hold__pack(&m, packed);
	return packed;
}

/* One message at a time; the one in flight suffices. Without memory: the next one. */
static void say(struct client_hold *hold, bool end, uint64_t patience)
{
	size_t len = 0;
	int64_t since_ms;
	uint8_t *packed = pack(hold, end, &len, &since_ms);
	bool busy;

	pthread_mutex_lock(&hold->lock);
	busy = hold->busy;
	hold->busy |= packed != NULL;
	if (!busy)
		hold->sent_since_ms = since_ms;
	pthread_mutex_unlock(&hold->lock);
	if (busy || !packed) {
		free(packed);
		return;
	}
	hold->call = (struct rpc_call){
		.frame = { .op = FRAME_HOLD },
		.payload = NET_PAYLOAD_NONE,
		.deadline_ns = clock_mono_ns() + patience,
		.resend = true,
		.reply_fd = -1,
		.on_done = on_answer,
		.arg = hold,
	};
	hold->call.payload.n = 1;
	hold->call.payload.parts[0].data = packed;
	hold->call.payload.parts[0].len = len;
	hold->call.payload.release = free;
	hold->call.payload.arg = packed;
	rpc_call(hold->client->master, &hold->call);
}

static void wait_answer(struct client_hold *hold)
{
	pthread_mutex_lock(&hold->lock);
	while (hold->busy)
		pthread_cond_wait(&hold->ended, &hold->lock);
	pthread_mutex_unlock(&hold->lock);
}

struct client_hold *client_hold_begin(struct client *client, const struct generation_id *id)
{
	struct client_hold *hold = calloc(1, sizeof(*hold));

	CHECK_MAGIC(client, CLIENT_MAGIC);
	if (!hold)
		return NULL;
	hold->magic = HOLD_MAGIC;
	hold->client = client;
	hold->id = *id;
	hold->cached = UINT64_MAX;
	hash_random(hold->mount, sizeof(hold->mount));
	pthread_mutex_init(&hold->lock, NULL);
	pthread_cond_init(&hold->ended, NULL);
	say(hold, false, HOLD_PATIENCE);
	wait_answer(hold);
	return hold;
}

void client_hold_renew(struct client_hold *hold)
{
	CHECK_MAGIC(hold, HOLD_MAGIC);
	say(hold, false, HOLD_DEADLINE);
}

void client_hold_follow(struct client_hold *hold, uint32_t follow_s, int64_t since_ms)
{
	CHECK_MAGIC(hold, HOLD_MAGIC);
	pthread_mutex_lock(&hold->lock);
	hold->asks = true;
	hold->follow_s = follow_s;
	hold->since_ms = since_ms;
	pthread_mutex_unlock(&hold->lock);
}

void client_hold_news(struct client_hold *hold, struct client_hold_news *ret)
{
	CHECK_MAGIC(hold, HOLD_MAGIC);
	pthread_mutex_lock(&hold->lock);
	*ret = hold->news;
	pthread_mutex_unlock(&hold->lock);
}

uint64_t client_hold_cached(struct client_hold *hold)
{
	uint64_t bytes;

	CHECK_MAGIC(hold, HOLD_MAGIC);
	pthread_mutex_lock(&hold->lock);
	bytes = hold->cached;
	pthread_mutex_unlock(&hold->lock);
	return bytes;
}

void client_hold_end(struct client_hold *hold)
{
	if (!hold)
		return;
	CHECK_MAGIC(hold, HOLD_MAGIC);
	pthread_mutex_lock(&hold->lock);
	if (hold->busy)
		rpc_cancel(hold->client->master, &hold->call);
	pthread_mutex_unlock(&hold->lock);
	wait_answer(hold);
	say(hold, true, HOLD_PATIENCE);
	wait_answer(hold);
	pthread_cond_destroy(&hold->ended);
	pthread_mutex_destroy(&hold->lock);
	hold->magic = 0;
	free(hold);
}
