#include "tests/unit/cacheworker/cluster_world.h"

struct cluster *the_cluster;

/* ---- the master's part ----------------------------------------------------------------------- */

void cluster_reply_packed(struct rpc_request *request, uint8_t *packed, size_t len)
{
	struct net_payload payload = NET_PAYLOAD_NONE;

	payload.parts[0].data = packed;
	payload.parts[0].len = len;
	payload.n = 1;
	payload.release = free;
	payload.arg = packed;
	rpc_reply(request, 0, NULL, payload);
}

static struct node *node_of_id(struct cluster *c, uint64_t id)
{
	for (uint32_t i = 0; i < NODES; i++)
		if (c->nodes[i].id == id)
			return &c->nodes[i];
	return NULL;
}

static void cluster_join(struct cluster *c, struct rpc_request *request)
{
	Granary__Join *m = granary__join__unpack(NULL, request->frame.payload, request->payload);
	Granary__Joined answer = GRANARY__JOINED__INIT;
	uint8_t *packed = malloc(64);

	assert_non_null(m);
	assert_int_equal(m->n_addresses, 1);
	pthread_mutex_lock(&c->lock);
	for (uint32_t i = 0; i < NODES; i++)
		if (strcmp(m->addresses[0], c->nodes[i].address) == 0) {
			assert_string_equal(m->name, c->nodes[i].name);
			c->nodes[i].id = m->id;
			answer.number = i;
		}
	pthread_mutex_unlock(&c->lock);
	granary__join__free_unpacked(m, NULL);
	answer.has_number = answer.has_beat_ms = 1;
	answer.beat_ms = 50;
	cluster_reply_packed(request, packed, granary__joined__pack(&answer, packed));
}

static void cluster_beat(struct cluster *c, struct rpc_request *request)
{
	Granary__Beat *m = granary__beat__unpack(NULL, request->frame.payload, request->payload);
	Granary__BeatAnswer answer = GRANARY__BEAT_ANSWER__INIT;
	uint8_t *packed = malloc(64);
	struct node *node;

	assert_non_null(m);
	pthread_mutex_lock(&c->lock);
	c->beats++;
	answer.has_unknown = 1;
	node = node_of_id(c, m->id);
	answer.unknown = node == NULL;
	if (node) {
		answer.has_drain = 1;
		answer.drain = node->drain;
		node->only_copies = m->has_only_copies ? m->only_copies : UINT64_MAX;
	}
	pthread_mutex_unlock(&c->lock);
	granary__beat__free_unpacked(m, NULL);
	cluster_reply_packed(request, packed, granary__beat_answer__pack(&answer, packed));
}

static void answer_slots_locked(struct cluster *c, struct rpc_request *request)
{
	Granary__SlotTable answer = GRANARY__SLOT_TABLE__INIT;
	Granary__Worker workers[NODES];
	Granary__Worker *pointers[NODES];
	char *addresses[NODES];
	uint8_t host[CLUSTER_HOST_BYTES];
	uint8_t *packed;

	cluster_host(host);
	for (uint32_t i = 0; i < NODES; i++) {
		granary__worker__init(&workers[i]);
		pointers[i] = &workers[i];
		addresses[i] = c->nodes[i].address;
		workers[i].has_number = workers[i].has_id = workers[i].has_state = 1;
		workers[i].number = i;
		workers[i].id = c->nodes[i].id;
		workers[i].state = c->nodes[i].state;
		workers[i].name = c->nodes[i].name;
		workers[i].n_addresses = 1;
		workers[i].addresses = &addresses[i];
		workers[i].has_host = 1;
		workers[i].host = (ProtobufCBinaryData){ sizeof(host), host };
	}
	answer.has_epoch = answer.has_sequence = answer.has_slots = 1;
	answer.epoch = c->table->epoch;
	answer.sequence = c->table->sequence;
	answer.n_workers = NODES;
	answer.workers = pointers;
	answer.slots = (ProtobufCBinaryData){ PLACEMENT_SLOTS * sizeof(struct placement_slot),
		(uint8_t *)c->table->slots };
	answer.n_hot = c->n_hot;
	answer.hot = c->hot;
	packed = malloc(granary__slot_table__get_packed_size(&answer));
	assert_non_null(packed);
	cluster_reply_packed(request, packed, granary__slot_table__pack(&answer, packed));
}

static void cluster_slots(struct cluster *c, struct rpc_request *request)
{
	Granary__SlotsAsk *m =
		granary__slots_ask__unpack(NULL, request->frame.payload, request->payload);

	assert_non_null(m);
	pthread_mutex_lock(&c->lock);
	if (c->mute ||
		(m->epoch == c->table->epoch && m->sequence == c->table->sequence && m->wait_ms))
		list_push_back(&c->parked, &request->link);
	else
		answer_slots_locked(c, request);
	pthread_mutex_unlock(&c->lock);
	granary__slots_ask__free_unpacked(m, NULL);
}

static void on_cluster_request(struct world *w, struct rpc_request *request)
{
	(void)w;
	switch (request->frame.op) {
	case FRAME_JOIN:
		cluster_join(the_cluster, request);
		break;
	case FRAME_BEAT:
		cluster_beat(the_cluster, request);
		break;
	default:
		cluster_slots(the_cluster, request);
		break;
	}
}

/* ---- nodes ----------------------------------------------------------------------------------- */

void node_start(struct cluster *c, uint32_t i)
{
	struct node *n = &c->nodes[i];
	struct err e = ERR_INIT;

	n->listen[0] = n->address;
	n->tiers[0] =
		(struct tier_config){ .path = n->tier, .capacity = c->capacity, .create = true };
	n->config = (struct worker_config){
		.tier = n->tier,
		.tiers = n->tiers,
		.n_tiers = 1,
		.memory = 64 * MiB,
		.master = c->world->master_address,
		.listen = n->listen,
		.n_listen = 1,
		.admin = n->admin,
		.origin_requests = 16,
		.peer_patience = 20, /* who is asked answers, however slow the machine is */
		.member = { .name = n->name },
	};
	if (worker_open(&n->worker, &n->config, &e) < 0)
		fail_msg("worker %u: %s", i, e.text);
	assert_int_equal(rpc_client_new(c->world->loop, n->address, &n->client, &e), 0);
	n->runs = true;
}

void node_stop(struct cluster *c, uint32_t i)
{
	struct node *n = &c->nodes[i];

	if (!n->runs)
		return;
	n->runs = false;
	rpc_client_free(n->client);
	worker_close(&n->worker);
}

/* Does a worker have the table, and know itself by it? */
static bool is_settled(struct cluster *c, uint32_t i)
{
	uint64_t epoch = 0;
	uint64_t sequence = 0;
	uint64_t wanted;

	pthread_mutex_lock(&c->lock);
	wanted = c->table->sequence;
	pthread_mutex_unlock(&c->lock);
	view_version(c->nodes[i].worker.view, &epoch, &sequence);
	return sequence >= wanted && view_self(c->nodes[i].worker.view) == i;
}

/* Until that is so of all that run. */
static void cluster_settle(struct cluster *c)
{
	for (uint32_t i = 0; i < NODES; i++)
		test_wait(!c->nodes[i].runs || is_settled(c, i));
}

void cluster_publish(struct cluster *c)
{
	struct list *node;

	pthread_mutex_lock(&c->lock);
	c->table->sequence++;
	while ((node = list_pop_front(&c->parked)) != NULL)
		answer_slots_locked(c, list_entry(node, struct rpc_request, link));
	pthread_mutex_unlock(&c->lock);
	cluster_settle(c);
}

void cluster_set_slots(
	struct cluster *c, uint16_t owner, uint16_t previous, uint16_t r0, uint16_t r1)
{
	pthread_mutex_lock(&c->lock);
	for (uint32_t i = 0; i < PLACEMENT_SLOTS; i++)
		c->table->slots[i] = (struct placement_slot){ owner, previous, { r0, r1 } };
	pthread_mutex_unlock(&c->lock);
}

void cluster_set_state(struct cluster *c, uint32_t i, enum cluster_state state)
{
	pthread_mutex_lock(&c->lock);
	c->nodes[i].state = state;
	pthread_mutex_unlock(&c->lock);
}

void cluster_set_hot(struct cluster *c)
{
	uint64_t hash = placement_volume_hash(&table_info(c->world->table)->id.volume);

	pthread_mutex_lock(&c->lock);
	for (uint32_t i = 0; i <= c->world->model_bytes / CHUNK_BYTES; i++)
		c->hot[c->n_hot++] = placement_slot_of(hash, i);
	pthread_mutex_unlock(&c->lock);
}

void cluster_deal_slots(struct cluster *c)
{
	pthread_mutex_lock(&c->lock);
	for (uint32_t i = 0; i < PLACEMENT_SLOTS; i++)
		c->table->slots[i] = (struct placement_slot){ (uint16_t)(i % NODES), NONE,
			{ (uint16_t)((i + 1) % NODES), (uint16_t)((i + 2) % NODES) } };
	pthread_mutex_unlock(&c->lock);
}

void cluster_patience(struct cluster *c, uint32_t times)
{
	for (uint32_t i = 0; i < NODES; i++)
		c->nodes[i].config.peer_patience = times;
}

static bool has_joined(struct cluster *c, uint32_t i)
{
	bool joined;

	pthread_mutex_lock(&c->lock);
	joined = c->nodes[i].id == c->nodes[i].worker.member.id;
	pthread_mutex_unlock(&c->lock);
	return joined;
}

void node_wait_joined(struct cluster *c, uint32_t i)
{
	test_wait(has_joined(c, i));
}

struct cluster *cluster_new_copies(
	unsigned int files, uint64_t size, uint64_t capacity, uint32_t copies)
{
	struct cluster *c = calloc(1, sizeof(*c));

	assert_non_null(c);
	pthread_mutex_init(&c->lock, NULL);
	list_init(&c->parked);
	c->table = placement_table_new();
	assert_non_null(c->table);
	c->table->epoch = 1;
	c->table->sequence = 1;
	c->capacity = capacity;
	the_cluster = c;
	c->world = world_prepare(files, size, 0);
	atomic_store(&c->world->cluster, on_cluster_request);
	c->world->copies = copies;
	for (uint32_t i = 0; i < NODES; i++) {
		struct node *n = &c->nodes[i];
		const char *dir = c->world->dir;

		(void)snprintf(n->name, sizeof(n->name), "w%u", i);
		(void)snprintf(n->address, sizeof(n->address), "unix:%s/w%u.rpc", dir, i);
		(void)snprintf(n->admin, sizeof(n->admin), "%s/w%u.sock", dir, i);
		(void)snprintf(n->tier, sizeof(n->tier), "%s/tier%u", dir, i);
		n->id = i + 1; /* until it joins */
	}
	for (uint32_t i = 0; i < NODES; i++)
		node_start(c, i);
	for (uint32_t i = 0; i < NODES; i++)
		node_wait_joined(c, i);
	return c;
}

struct cluster *cluster_new(unsigned int files, uint64_t size, uint64_t capacity)
{
	return cluster_new_copies(files, size, capacity, COPIES_SHARED);
}

void cluster_free(struct cluster *c)
{
	struct list *node;

	for (uint32_t i = 0; i < NODES; i++)
		node_stop(c, i);
	pthread_mutex_lock(&c->lock);
	while ((node = list_pop_front(&c->parked)) != NULL)
		rpc_reply(list_entry(node, struct rpc_request, link), -ECANCELED, NULL,
			NET_PAYLOAD_NONE);
	pthread_mutex_unlock(&c->lock);
	world_end(c->world);
	free(c->table);
	pthread_mutex_destroy(&c->lock);
	free(c);
	the_cluster = NULL;
}

/* ---- reading --------------------------------------------------------------------------------- */

int node_ask(struct cluster *c, uint32_t i, enum frame_op op, uint64_t offset, uint32_t length,
	uint16_t flags, struct rpc_call *ret_call)
{
	*ret_call = world_make_call(c->world, op, offset, length, flags);
	ret_call->frame.extent = NONE;
	return rpc_call_wait(c->nodes[i].client, ret_call, NULL);
}

void cluster_check_bytes(
	const struct cluster *c, const struct rpc_call *call, uint64_t offset, uint32_t length)
{
	assert_int_equal(call->reply.payload, length + call->reply.checksums * 8);
	assert_memory_equal(call->reply_payload, c->world->model + offset, length);
	world_check_sums(c->world, offset, length, call->reply_payload, call->reply.checksums);
}

uint32_t cluster_read_via(
	struct cluster *c, uint32_t i, uint64_t offset, uint32_t length, uint16_t flags)
{
	uint64_t deadline = clock_mono_ns() + DEADLINE;
	uint32_t hops = 0;

	for (;;) {
		struct rpc_call call;
		int r = node_ask(c, i, FRAME_FETCH, offset, length, flags, &call);

		/* This machine kept us from taking an answer until the worker let go of us (net/conn.h). */
		if (r == -ECONNRESET && clock_mono_ns() < deadline)
			continue;

		if (r == -EREMOTE && hops < 5) {
			hops++;
			i = (uint32_t)call.reply.extent;
			flags |= call.reply.flags & FRAME_LAST;
			assert_true(i < NODES);
			rpc_call_release(&call);
			continue;
		}
		if (r < 0)
			fail_msg("fetch of %llu+%u at worker %u: %s", (unsigned long long)offset,
				length, i, err_name(r));
		cluster_check_bytes(c, &call, offset, length);
		rpc_call_release(&call);
		return hops;
	}
}

void cluster_read_all_via(struct cluster *c, uint32_t i, uint32_t step, uint16_t flags)
{
	for (uint64_t at = 0; at < c->world->model_bytes; at += step)
		(void)cluster_read_via(c, i, at, step, flags);
}

uint64_t cluster_gets(struct cluster *c)
{
	uint64_t gets = 0;

	for (uint32_t i = 0; i < NODES; i++) {
		if (!c->nodes[i].runs)
			continue;
		list_for_each (node, &c->nodes[i].worker.sources.all)
			gets += counter_get(
				&ufs_counters(list_entry(node, struct source, link)->ufs)->gets);
	}
	return gets;
}

uint32_t cluster_flights_of(struct worker *w)
{
	uint32_t n;

	pthread_mutex_lock(&w->flights.lock);
	n = (uint32_t)w->flights.units.count;
	list_for_each (node, &w->flights.kept)
		n--;
	pthread_mutex_unlock(&w->flights.lock);
	return n;
}

uint32_t cluster_parked_of(struct worker *w)
{
	uint32_t n;

	pthread_mutex_lock(&w->flights.lock);
	n = w->flights.parked;
	pthread_mutex_unlock(&w->flights.lock);
	return n;
}

static bool fills_are_idle(struct worker *w)
{
	bool busy;

	pthread_mutex_lock(&w->fills.lock);
	busy = w->fills.in_flight || w->fills.pumping || !list_empty(&w->fills.ahead) ||
	       !list_empty(&w->fills.active);
	pthread_mutex_unlock(&w->fills.lock);
	return !busy;
}

void node_quiet(struct cluster *c, uint32_t i)
{
	struct worker *w = &c->nodes[i].worker;

	test_wait(fills_are_idle(w) && cluster_flights_of(w) == 0);
}

void cluster_quiet(struct cluster *c)
{
	for (uint32_t round = 0; round < 2; round++) /* one may have made another busy */
		for (uint32_t i = 0; i < NODES; i++)
			if (c->nodes[i].runs)
				node_quiet(c, i);
}
