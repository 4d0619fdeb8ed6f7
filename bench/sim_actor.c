/* A worker's, or a mount's, words to the master. See sim.h. */
#include "base/clock.h"
#include "base/hash.h"
#include "base/version.h"
#include "bench/sim.h"
#include "proto/granary.pb-c.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BEAT_NS         CLOCK_SECOND
#define HOLD_NS         (5 * CLOCK_SECOND) /* CLIENT_HOLD_EVERY */
#define RETENTION_TICKS 10u                /* beats, as a worker's 8 to 12 s */
#define PARK_MS         30000u
#define PATIENCE        (60 * CLOCK_SECOND)
#define AGAIN_NS        (CLOCK_SECOND / 2)
#define CAPACITY        (1ull << 40)
#define PACKED_MAX      512u

static void act(struct sim_actor *actor);
static void watch(struct sim_actor *actor);

/* ---- calls ----------------------------------------------------------------------------------- */

static void call(struct sim_actor *actor, struct rpc_call *call, enum frame_op op,
	uint64_t patience, void *packed, size_t len,
	void (*on_done)(struct rpc_call *call, int status))
{
	*call = (struct rpc_call){ .frame = { .op = (uint8_t)op },
		.payload = NET_PAYLOAD_NONE,
		.deadline_ns = clock_mono_ns() + patience,
		.resend = true,
		.reply_fd = -1,
		.on_done = on_done,
		.arg = actor };
	call->payload.n = 1;
	call->payload.parts[0].data = packed;
	call->payload.parts[0].len = len;
	call->payload.release = free;
	call->payload.arg = packed;
	actor->under_way++;
	rpc_call(actor->client, call);
}

/* False when the actor is ending. */
static bool ended(struct sim_actor *actor, int status)
{
	actor->under_way--;
	if (status < 0 && status != -ECANCELED)
		actor->sim->failures++;
	return !actor->ending;
}

/* ---- workers --------------------------------------------------------------------------------- */

static void on_joined(struct rpc_call *done, int status)
{
	struct sim_actor *actor = done->arg;

	if (ended(actor, status) && status == 0) {
		Granary__Joined *m =
			granary__joined__unpack(NULL, done->reply.payload, done->reply_payload);

		actor->sim->joins++;
		actor->joined = m != NULL;
		actor->number = m ? m->number : 0;
		if (m)
			granary__joined__free_unpacked(m, NULL);
		if (actor->joined && !actor->epoch)
			watch(actor);
	}
	rpc_call_release(done);
	actor->acts = false;
}

static void join(struct sim_actor *actor)
{
	Granary__Join m = GRANARY__JOIN__INIT;
	uint8_t host[16] = { 0 };
	char name[32];
	char rack[32];
	char address[64];
	char *addresses[] = { address };
	uint8_t *packed = malloc(PACKED_MAX);

	if (!packed)
		return;
	(void)snprintf(name, sizeof(name), "w%u", actor->index);
	(void)snprintf(rack, sizeof(rack), "rack%u", actor->rack);
	(void)snprintf(address, sizeof(address), "tcp:10.%u.%u.%u:7000", actor->index >> 16,
		actor->index >> 8 & 255, actor->index & 255);
	memcpy(host, &actor->index, sizeof(actor->index));
	m.has_id = m.has_run = m.has_capacity = m.has_weight = m.has_host = 1;
	m.id = actor->id;
	m.run = actor->id ^ 1;
	m.name = name;
	m.capacity = CAPACITY;
	m.weight = 1000;
	m.domain = rack;
	m.n_addresses = 1;
	m.addresses = addresses;
	m.host = (ProtobufCBinaryData){ sizeof(host), host };
	actor->acts = true;
	call(actor, &actor->act, FRAME_JOIN, PATIENCE, packed, granary__join__pack(&m, packed),
		on_joined);
}

static void on_beat(struct rpc_call *done, int status)
{
	struct sim_actor *actor = done->arg;

	actor->acts = false;
	if (ended(actor, status) && status == 0) {
		Granary__BeatAnswer *m = granary__beat_answer__unpack(
			NULL, done->reply.payload, done->reply_payload);
		uint64_t took = clock_mono_ns() + 3 * BEAT_NS - done->deadline_ns;

		actor->sim->beats++;
		actor->sim->slowest_ns = max(actor->sim->slowest_ns, took);
		actor->joined = m && !m->unknown;
		if (m)
			granary__beat_answer__free_unpacked(m, NULL);
	}
	rpc_call_release(done);
}

static void beat(struct sim_actor *actor)
{
	Granary__Beat m = GRANARY__BEAT__INIT;
	uint32_t hot[8];
	uint8_t *packed = malloc(PACKED_MAX);

	if (!packed)
		return;
	for (uint32_t i = 0; i < ARRAY_SIZE(hot); i += 2) {
		hot[i] = (actor->index * 65u + i * 997u) % PLACEMENT_SLOTS;
		hot[i + 1] = 1024;
	}
	m.has_id = m.has_run = m.has_number = m.has_in_flight = m.has_served_bytes = m.has_full = 1;
	m.id = actor->id;
	m.run = actor->id ^ 1;
	m.number = actor->number;
	m.in_flight = 16;
	m.served_bytes = actor->ticks * 100000000ull;
	m.hot = hot;
	m.n_hot = ARRAY_SIZE(hot);
	actor->acts = true;
	call(actor, &actor->act, FRAME_BEAT, 3 * BEAT_NS, packed, granary__beat__pack(&m, packed),
		on_beat);
}

static void on_retention(struct rpc_call *done, int status)
{
	struct sim_actor *actor = done->arg;

	actor->tells = false;
	if (ended(actor, status) && status == 0)
		actor->sim->retention++;
	rpc_call_release(done);
}

static void get_retention(struct sim_actor *actor)
{
	Granary__WorkerReport m = GRANARY__WORKER_REPORT__INIT;
	Granary__VolumeReport volume = GRANARY__VOLUME_REPORT__INIT;
	Granary__VolumeReport *volumes[] = { &volume };
	uint8_t *packed = malloc(PACKED_MAX);

	if (!packed)
		return;
	volume.has_volume = volume.has_cached_bytes = volume.has_hit_bytes = 1;
	volume.volume = (ProtobufCBinaryData){ VOLUME_ID_LEN, actor->sim->volume.bytes };
	volume.cached_bytes = 1ull << 33;
	volume.hit_bytes = actor->ticks * 100000000ull;
	m.n_volumes = actor->sim->has_hold;
	m.volumes = volumes;
	m.has_capacity = m.has_run = m.has_uptime_s = 1;
	m.capacity = CAPACITY;
	m.run = actor->id ^ 1;
	m.uptime_s = actor->ticks;
	m.version = (char *)(uintptr_t)GRANARY_VERSION; /* read only */
	actor->tells = true;
	call(actor, &actor->tell, FRAME_GET_RETENTION, PATIENCE, packed,
		granary__worker_report__pack(&m, packed), on_retention);
}

/* ---- mounts ---------------------------------------------------------------------------------- */

static void on_held(struct rpc_call *done, int status)
{
	struct sim_actor *actor = done->arg;

	actor->acts = false;
	if (ended(actor, status) && status == 0)
		actor->sim->holds++;
	rpc_call_release(done);
}

static void hold(struct sim_actor *actor)
{
	Granary__Hold m = GRANARY__HOLD__INIT;
	uint8_t mount[16] = { 0 };
	uint8_t *packed = malloc(PACKED_MAX);

	if (!packed)
		return;
	memcpy(mount, &actor->id, sizeof(actor->id));
	m.has_volume = m.has_lineage = m.has_generation = m.has_mount = m.has_end = 1;
	m.has_local_bytes = 1;
	m.volume = (ProtobufCBinaryData){ VOLUME_ID_LEN, actor->sim->volume.bytes };
	m.lineage = actor->sim->lineage;
	m.generation = actor->sim->generation;
	m.mount = (ProtobufCBinaryData){ sizeof(mount), mount };
	actor->acts = true;
	call(actor, &actor->act, FRAME_HOLD, PATIENCE, packed, granary__hold__pack(&m, packed),
		on_held);
}

/* ---- both ------------------------------------------------------------------------------------ */

static void on_again(void *arg)
{
	struct sim_actor *actor = arg;

	actor->again = NULL;
	watch(actor);
}

static void on_slots(struct rpc_call *done, int status)
{
	struct sim_actor *actor = done->arg;

	if (ended(actor, status)) {
		if (status == 0)
			status = sim_take_table(actor,
				done->reply_payload ? done->reply_payload : "",
				done->reply.payload);
		if (status == -ENODATA)
			actor->epoch = actor->sequence = 0;
		if (status == 0 || status == -ENODATA) {
			actor->sim->slots++;
			watch(actor);
		} else {
			actor->sim->failures++;
			actor->again =
				loop_timer_start(actor->sim->loop, AGAIN_NS, on_again, actor);
		}
	}
	rpc_call_release(done);
}

/* The master keeps it until there is something newer. */
static void watch(struct sim_actor *actor)
{
	Granary__SlotsAsk m = GRANARY__SLOTS_ASK__INIT;
	uint8_t *packed = malloc(PACKED_MAX);

	if (!packed)
		return;
	m.has_epoch = m.has_sequence = m.has_wait_ms = 1;
	m.epoch = actor->epoch;
	m.sequence = actor->sequence;
	m.wait_ms = actor->epoch ? PARK_MS : 0;
	m.has_news = actor->worker;
	m.news = actor->news;
	call(actor, &actor->watch, FRAME_GET_SLOTS, PATIENCE, packed,
		granary__slots_ask__pack(&m, packed), on_slots);
}

static void act(struct sim_actor *actor)
{
	actor->ticks++;
	if (actor->acts)
		return;
	if (!actor->worker && actor->sim->has_hold)
		hold(actor);
	else if (actor->worker && !actor->joined)
		join(actor);
	else if (actor->worker)
		beat(actor);
	if (actor->joined && !actor->tells && actor->ticks % RETENTION_TICKS == 0)
		get_retention(actor);
}

static void on_rhythm(void *arg)
{
	struct sim_actor *actor = arg;

	actor->rhythm = loop_timer_start(
		actor->sim->loop, actor->worker ? BEAT_NS : HOLD_NS, on_rhythm, actor);
	act(actor);
}

int sim_actor_start(struct sim *sim, bool worker, uint32_t index, uint32_t rack,
	struct sim_actor **ret_actor, struct err *e)
{
	struct sim_actor *actor = calloc(1, sizeof(*actor));
	uint64_t spread;
	int r;

	if (!actor)
		return err_set(e, -ENOMEM, "no memory for a %s", worker ? "worker" : "mount");
	*actor = (struct sim_actor){ .sim = sim, .worker = worker, .index = index, .rack = rack };
	r = rpc_client_new(sim->loop, sim->master, &actor->client, e);
	if (r < 0) {
		free(actor);
		return r;
	}
	/* A worker that comes back is the same one. */
	actor->id = hash_xxh3(&index, sizeof(index), worker) | 2;
	hash_random(&spread, sizeof(spread));
	actor->ticks = (uint32_t)(spread % RETENTION_TICKS);
	if (worker) {
		actor->rhythm = loop_timer_start(
			sim->loop, BEAT_NS / 4 + spread % BEAT_NS, on_rhythm, actor);
		join(actor);
	} else {
		actor->rhythm = loop_timer_start(sim->loop, spread % HOLD_NS, on_rhythm, actor);
		/* As a mount that kept the table of before. */
		actor->epoch = sim->table->epoch;
		actor->sequence = sim->table->sequence;
		watch(actor);
	}
	if (!sim->keeper)
		sim->keeper = actor;
	*ret_actor = actor;
	return 0;
}

static void stop_on_loop(void *arg)
{
	struct sim_actor *actor = arg;

	actor->ending = true;
	if (actor->sim->keeper == actor)
		actor->sim->keeper = NULL;
	loop_timer_stop(actor->rhythm);
	loop_timer_stop(actor->again);
}

void sim_actor_free(struct sim_actor *actor)
{
	loop_call(actor->sim->loop, stop_on_loop, actor);
	rpc_client_free(actor->client);
	free(actor);
}
