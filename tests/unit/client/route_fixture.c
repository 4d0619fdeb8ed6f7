#include "tests/unit/client/route_fixture.h"
#include "tests/clock/test_clock.h"

/* ---- workers --------------------------------------------------------------------------------- */

static void answer(struct worker *w, struct rpc_request *request)
{
	const struct frame reply = { .flags = w->flags, .extent = w->x };

	if (request->frame.op == FRAME_FETCH_CACHED && w->cold)
		rpc_reply(request, -ENODATA, NULL, NET_PAYLOAD_NONE);
	else if (request->frame.op == FRAME_PREFETCH)
		rpc_reply(request, 0, NULL, NET_PAYLOAD_NONE);
	else if (w->status)
		rpc_reply(request, w->status, &reply, NET_PAYLOAD_NONE);
	else
		fix_reply_bytes(w->r->f, request);
}

static void on_worker(struct rpc_request *request, void *arg)
{
	struct worker *w = arg;
	struct fix *f = w->r->f;
	const struct frame *frame = &request->frame;

	pthread_mutex_lock(&f->lock);
	w->fetches += frame->op == FRAME_FETCH;
	w->cached += frame->op == FRAME_FETCH_CACHED;
	w->prefetches += frame->op == FRAME_PREFETCH;
	w->lasts += frame->op == FRAME_FETCH && frame->flags & FRAME_LAST;
	w->parked_cached += w->park_cached && frame->op == FRAME_FETCH_CACHED;
	if ((w->park && frame->op == FRAME_FETCH) ||
		(w->park_cached && frame->op == FRAME_FETCH_CACHED)) {
		request->priv = w;
		list_push_back(&w->parked, &request->link);
	} else {
		answer(w, request);
	}
	pthread_mutex_unlock(&f->lock);
}

static void on_worker_cancel(struct rpc_request *request, void *arg)
{
	struct worker *w = arg;

	pthread_mutex_lock(&w->r->f->lock);
	if (request->priv) {
		request->priv = NULL;
		list_remove(&request->link);
		w->cancelled++;
		rpc_reply(request, -ECANCELED, NULL, NET_PAYLOAD_NONE);
	}
	pthread_mutex_unlock(&w->r->f->lock);
}

void route_unpark(struct worker *w)
{
	struct list *node;

	pthread_mutex_lock(&w->r->f->lock);
	w->park = false;
	w->park_cached = false;
	while ((node = list_pop_front(&w->parked)) != NULL) {
		struct rpc_request *request = list_entry(node, struct rpc_request, link);

		request->priv = NULL;
		answer(w, request);
	}
	pthread_mutex_unlock(&w->r->f->lock);
}

/* ---- the master ------------------------------------------------------------------------------ */

static void reply_table_locked(struct route_fix *r, struct rpc_request *request)
{
	Granary__SlotTable table = GRANARY__SLOT_TABLE__INIT;
	Granary__Worker workers[WORKERS];
	Granary__Worker *pointers[WORKERS];
	char addresses[WORKERS][48];
	char *texts[WORKERS];
	uint8_t *slots = malloc(8ul * PLACEMENT_SLOTS);
	uint32_t hot[PLACEMENT_SLOTS / 256];
	uint8_t *packed;
	size_t len;

	for (uint32_t i = 0; i < PLACEMENT_SLOTS; i++)
		memcpy(slots + i * sizeof(r->slot), &r->slot, sizeof(r->slot));
	for (uint32_t i = 0; i < WORKERS; i++) {
		granary__worker__init(&workers[i]);
		snprintf(addresses[i], sizeof(addresses[i]), "fake:%s", r->workers[i].name);
		texts[i] = addresses[i];
		pointers[i] = &workers[i];
		workers[i].has_number = workers[i].has_id = workers[i].has_state = 1;
		workers[i].number = i;
		workers[i].id = 100 + i;
		workers[i].state = r->workers[i].state;
		workers[i].n_addresses = 1;
		workers[i].addresses = &texts[i];
	}
	table.has_epoch = table.has_sequence = table.has_slots = 1;
	table.epoch = 1;
	table.sequence = r->sequence;
	table.n_workers = WORKERS;
	table.workers = pointers;
	table.slots = (ProtobufCBinaryData){ PLACEMENT_SLOTS * sizeof(r->slot), slots };
	for (uint32_t chunk = 0; r->hot && chunk < FIX_CHUNKS; chunk++)
		hot[table.n_hot++] =
			placement_slot_of(placement_volume_hash(&r->f->volume_id), chunk);
	table.hot = hot;
	len = granary__slot_table__get_packed_size(&table);
	packed = malloc(len);
	granary__slot_table__pack(&table, packed);
	free(slots);
	fix_reply_packed(request, packed, len, -1);
}

static void on_slots(struct fix *f, struct rpc_request *request)
{
	struct route_fix *r = f->priv;
	Granary__SlotsAsk *ask =
		granary__slots_ask__unpack(NULL, request->frame.payload, request->payload);

	ensure(ask);
	pthread_mutex_lock(&f->lock);
	r->asks++;
	r->stale += ask->epoch && !ask->wait_ms;
	if (r->ending) {
		rpc_reply(request, -ECANCELED, NULL, NET_PAYLOAD_NONE);
	} else if (ask->wait_ms && ask->sequence == r->sequence) {
		if (r->parked) /* its client gave it up: its time passed meanwhile */
			reply_table_locked(r, r->parked);
		r->parked = request;
	} else {
		reply_table_locked(r, request);
	}
	pthread_mutex_unlock(&f->lock);
	granary__slots_ask__free_unpacked(ask, NULL);
}

void route_tell(struct route_fix *r)
{
	uint64_t epoch;
	uint64_t sequence;

	pthread_mutex_lock(&r->f->lock);
	r->sequence++;
	if (r->parked)
		reply_table_locked(r, r->parked);
	r->parked = NULL;
	pthread_mutex_unlock(&r->f->lock);
	test_wait((view_version(r->f->client->view, &epoch, &sequence), sequence == r->sequence));
}

/* ---- set-up ---------------------------------------------------------------------------------- */

static void start_workers(struct route_fix *r)
{
	static const struct rpc_server_ops ops = { .on_request = on_worker,
		.on_cancel = on_worker_cancel };
	static uint32_t serial;

	for (uint32_t i = 0; i < WORKERS; i++) {
		struct worker *w = &r->workers[i];
		struct err e = ERR_INIT;
		char address[48];

		w->r = r;
		list_init(&w->parked);
		snprintf(w->name, sizeof(w->name), "route%u", serial++);
		snprintf(address, sizeof(address), "fake:%s", w->name);
		w->loop = loop_new("worker");
		if (rpc_server_new(w->loop, address, &ops, w, &w->server, &e) < 0)
			fail_msg("%s", e.text);
	}
}

/* No client yet. */
static struct route_fix *route_new(void)
{
	struct route_fix *r = calloc(1, sizeof(*r));

	assert_non_null(r);
	r->f = fix_new(NULL);
	r->f->priv = r;
	r->f->on_slots = on_slots;
	r->sequence = 1;
	r->slot = (struct placement_slot){ .owner = 0, .previous = 3, .replicas = { 1, 2 } };
	start_workers(r);
	return r;
}

static int setup_with(void **state, struct client_config config)
{
	struct route_fix *r = route_new();

	*state = r;
	return fix_start_client(r->f, config);
}

int route_setup(void **state)
{
	return setup_with(state, (struct client_config){ 0 });
}

int route_setup_impatient(void **state)
{
	return setup_with(state, (struct client_config){ .read_deadline_ns = CLOCK_SECOND / 2 });
}

int route_setup_patient(void **state)
{
	return setup_with(state, (struct client_config){ .read_deadline_ns = PATIENT_NS });
}

int route_setup_pausing(void **state)
{
	return setup_with(state, (struct client_config){ .pause_ns = 3600 * CLOCK_SECOND });
}

int route_setup_local(void **state)
{
	struct route_fix *r = route_new();

	*state = r;
	return fix_start_client(
		r->f, (struct client_config){ .local_worker = r->f->worker_address });
}

int route_teardown(void **state)
{
	struct route_fix *r = *state;
	struct fix *f = r->f;

	for (uint32_t i = 0; i < WORKERS; i++)
		route_unpark(&r->workers[i]);
	client_volume_close(f->volume);
	client_free(f->client);
	f->volume = NULL;
	f->client = NULL;
	for (uint32_t i = 0; i < WORKERS; i++) {
		rpc_server_free(r->workers[i].server);
		loop_free(r->workers[i].loop);
	}
	pthread_mutex_lock(&f->lock);
	r->ending = true;
	if (r->parked)
		rpc_reply(r->parked, -ECANCELED, NULL, NET_PAYLOAD_NONE);
	pthread_mutex_unlock(&f->lock);
	fix_free(f);
	free(r);
	return 0;
}

void route_wait_for(struct route_fix *r, const uint32_t *counter, uint32_t n)
{
	test_wait(route_count(r, counter) >= n);
}

uint32_t route_count(struct route_fix *r, const uint32_t *counter)
{
	uint32_t n;

	pthread_mutex_lock(&r->f->lock);
	n = *counter;
	pthread_mutex_unlock(&r->f->lock);
	return n;
}

void route_set_status(struct route_fix *r, uint32_t worker, int status, uint16_t x, uint16_t flags)
{
	pthread_mutex_lock(&r->f->lock);
	r->workers[worker].status = status;
	r->workers[worker].x = x;
	r->workers[worker].flags = flags;
	pthread_mutex_unlock(&r->f->lock);
}

void route_set_state(struct route_fix *r, uint32_t worker, enum cluster_state to)
{
	pthread_mutex_lock(&r->f->lock);
	r->workers[worker].state = to;
	pthread_mutex_unlock(&r->f->lock);
}

void route_set_park(struct route_fix *r, uint32_t worker)
{
	pthread_mutex_lock(&r->f->lock);
	r->workers[worker].park = true;
	pthread_mutex_unlock(&r->f->lock);
}

void route_set_keeper(struct route_fix *r)
{
	const struct client_policy policy = { .keepers_known = true,
		.keepers = { 77, 3, PLACEMENT_NONE, PLACEMENT_NONE } };

	client_take_policy(r->f->client, &r->f->volume_id, &policy);
}

void route_set_copies(struct route_fix *r, uint32_t copies)
{
	const struct client_policy policy = { .copies = copies };

	client_take_policy(r->f->client, &r->f->volume_id, &policy);
}
