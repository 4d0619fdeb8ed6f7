/* Whom reads ask: several workers, which come and go, send reads away, and take their time. */
#include "tests/unit/client/fixture.h"
#include "client/client_ask.h"
#include "client/client_internal.h"
#include "net/fake.h"

#define WORKERS  4u
#define PATIENCE (30 * CLOCK_SECOND) /* for what must come */

struct route_fix;

/* A worker as the tests want it to be; under the lock of the fixture. */
struct worker {
	struct route_fix *r;
	struct loop *loop;
	struct rpc_server *server;
	char name[32]; /* of the fake transport */
	enum cluster_state state;
	int status; /* of its answers; 0: bytes */
	uint16_t x; /* with -EREMOTE */
	uint8_t flags;
	bool park;
	bool park_cached;
	bool cold; /* has nothing cached */
	struct list parked;
	uint32_t fetches;
	uint32_t lasts; /* of them, with FRAME_LAST */
	uint32_t cached;
	uint32_t parked_cached;
	uint32_t prefetches;
	uint32_t cancelled;
};

struct route_fix {
	struct fix *f;
	struct worker workers[WORKERS];
	struct placement_slot slot; /* all of them are so */
	bool hot;
	uint64_t sequence;
	uint32_t asks;  /* of the master, for the table */
	uint32_t stale; /* of them, that were not to be parked */
	struct rpc_request *parked;
};

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

static void unpark(struct worker *w)
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
	if (ask->wait_ms && ask->sequence == r->sequence) {
		ensure(!r->parked);
		r->parked = request;
	} else {
		reply_table_locked(r, request);
	}
	pthread_mutex_unlock(&f->lock);
	granary__slots_ask__free_unpacked(ask, NULL);
}

/* What was changed in the fixture becomes known. */
static void tell(struct route_fix *r)
{
	uint64_t deadline = clock_mono_ns() + PATIENCE;
	uint64_t epoch;
	uint64_t sequence;

	pthread_mutex_lock(&r->f->lock);
	r->sequence++;
	if (r->parked)
		reply_table_locked(r, r->parked);
	r->parked = NULL;
	pthread_mutex_unlock(&r->f->lock);
	do {
		clock_sleep_ns(CLOCK_MS);
		view_version(r->f->client->view, &epoch, &sequence);
		assert_true(clock_mono_ns() < deadline);
	} while (sequence != r->sequence);
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

static struct route_fix *route_new(struct client_config config)
{
	struct route_fix *r = calloc(1, sizeof(*r));

	r->f = fix_new(NULL);
	r->f->priv = r;
	r->f->on_slots = on_slots;
	r->sequence = 1;
	r->slot = (struct placement_slot){ .owner = 0, .previous = 3, .replicas = { 1, 2 } };
	start_workers(r);
	assert_int_equal(fix_start_client(r->f, config), 0);
	return r;
}

static int setup(void **state)
{
	*state = route_new((struct client_config){ 0 });
	return 0;
}

static int setup_impatient(void **state)
{
	*state = route_new((struct client_config){ .read_deadline_ns = CLOCK_SECOND / 2 });
	return 0;
}

#define PATIENT_NS (4 * CLOCK_SECOND)

static int setup_patient(void **state)
{
	*state = route_new((struct client_config){ .read_deadline_ns = PATIENT_NS });
	return 0;
}

/* The fixture's own worker is the node's. */
static int setup_local(void **state)
{
	struct route_fix *r = calloc(1, sizeof(*r));

	r->f = fix_new(NULL);
	r->f->priv = r;
	r->f->on_slots = on_slots;
	r->sequence = 1;
	r->slot = (struct placement_slot){ .owner = 0, .previous = 3, .replicas = { 1, 2 } };
	start_workers(r);
	*state = r;
	return fix_start_client(
		r->f, (struct client_config){ .local_worker = r->f->worker_address });
}

static int teardown(void **state)
{
	struct route_fix *r = *state;
	struct fix *f = r->f;

	for (uint32_t i = 0; i < WORKERS; i++)
		unpark(&r->workers[i]);
	client_volume_close(f->volume);
	client_free(f->client);
	f->volume = NULL;
	f->client = NULL;
	for (uint32_t i = 0; i < WORKERS; i++) {
		rpc_server_free(r->workers[i].server);
		loop_free(r->workers[i].loop);
	}
	pthread_mutex_lock(&f->lock);
	if (r->parked)
		rpc_reply(r->parked, -ECANCELED, NULL, NET_PAYLOAD_NONE);
	pthread_mutex_unlock(&f->lock);
	fix_free(f);
	free(r);
	return 0;
}

static void wait_for(struct route_fix *r, const uint32_t *counter, uint32_t n)
{
	uint64_t deadline = clock_mono_ns() + PATIENCE;
	uint32_t now;

	do {
		assert_true(clock_mono_ns() < deadline);
		clock_sleep_ns(CLOCK_MS);
		pthread_mutex_lock(&r->f->lock);
		now = *counter;
		pthread_mutex_unlock(&r->f->lock);
	} while (now < n);
}

static uint32_t count(struct route_fix *r, const uint32_t *counter)
{
	uint32_t n;

	pthread_mutex_lock(&r->f->lock);
	n = *counter;
	pthread_mutex_unlock(&r->f->lock);
	return n;
}

static void set_status(struct route_fix *r, uint32_t worker, int status, uint16_t x, uint8_t flags)
{
	pthread_mutex_lock(&r->f->lock);
	r->workers[worker].status = status;
	r->workers[worker].x = x;
	r->workers[worker].flags = flags;
	pthread_mutex_unlock(&r->f->lock);
}

static void set_park(struct route_fix *r, uint32_t worker)
{
	pthread_mutex_lock(&r->f->lock);
	r->workers[worker].park = true;
	pthread_mutex_unlock(&r->f->lock);
}

/* ---- tests ----------------------------------------------------------------------------------- */

static void test_owner_alone_is_asked_and_no_master(void **state)
{
	struct route_fix *r = *state;
	uint32_t asks;

	fix_read(r->f, 0, 64 * KiB);
	asks = count(r, &r->asks);
	for (uint32_t i = 0; i < 200; i++)
		fix_read(r->f, i % 8 * MiB, 64 * KiB);
	assert_true(count(r, &r->workers[0].fetches) >= 201);
	assert_int_equal(count(r, &r->workers[0].lasts), 0);
	for (uint32_t i = 1; i < WORKERS; i++)
		assert_int_equal(count(r, &r->workers[i].fetches), 0);
	/* But for the request that stays parked there. */
	assert_in_range(count(r, &r->asks), asks, asks + 1);
}

static void test_deputy_when_the_owner_refuses(void **state)
{
	struct route_fix *r = *state;

	fake_set_refuse(r->workers[0].name, true);
	fix_read(r->f, 0, 64 * KiB);
	assert_int_equal(count(r, &r->workers[1].fetches), 1);
	assert_int_equal(count(r, &r->workers[1].lasts), 1);
	assert_int_equal(fix_counter(r->f, "passed_on"), 1);
	/* Back again: the owner serves. */
	fake_set_refuse(r->workers[0].name, false);
	for (uint64_t end = clock_mono_ns() + PATIENCE; !count(r, &r->workers[0].fetches);) {
		assert_true(clock_mono_ns() < end);
		fix_read(r->f, 0, 64 * KiB);
		clock_sleep_ns(CLOCK_MS);
	}
}

static void test_owner_dies_with_reads_under_way(void **state)
{
	struct route_fix *r = *state;
	struct fix_read *reads[8];

	set_park(r, 0);
	for (uint32_t i = 0; i < ARRAY_SIZE(reads); i++)
		reads[i] = fix_read_start(r->f, (uint64_t)i * MiB, 64 * KiB);
	wait_for(r, &r->workers[0].fetches, ARRAY_SIZE(reads));
	fake_set_refuse(r->workers[0].name, true);
	fake_cut(r->workers[0].name);
	for (uint32_t i = 0; i < ARRAY_SIZE(reads); i++)
		fix_read_end(r->f, reads[i], 0);
	assert_int_equal(count(r, &r->workers[1].lasts), ARRAY_SIZE(reads));
}

static void test_owner_called_down_is_waited_for_no_longer(void **state)
{
	struct route_fix *r = *state;
	struct fix_read *read;

	set_park(r, 0);
	read = fix_read_start(r->f, 0, 64 * KiB);
	wait_for(r, &r->workers[0].fetches, 1);
	r->workers[0].state = CLUSTER_DOWN;
	tell(r);
	fix_read_end(r->f, read, 0);
	assert_int_equal(count(r, &r->workers[1].lasts), 1);
	fix_read(r->f, 0, 64 * KiB);
	assert_int_equal(count(r, &r->workers[1].lasts), 2);
	assert_int_equal(count(r, &r->workers[0].fetches), 1);
}

/* With nobody else to ask it is: it answers, whatever the master thinks. */
static void test_the_only_one_called_down_is_waited_for(void **state)
{
	struct route_fix *r = *state;
	struct fix_read *read;

	r->slot = (struct placement_slot){ .owner = 0,
		.previous = PLACEMENT_NOBODY,
		.replicas = { PLACEMENT_NOBODY, PLACEMENT_NOBODY } };
	tell(r);
	set_park(r, 0);
	read = fix_read_start(r->f, 0, 64 * KiB);
	wait_for(r, &r->workers[0].fetches, 1);
	r->workers[0].state = CLUSTER_DOWN;
	tell(r);
	clock_sleep_ns(2500 * CLOCK_MS); /* it is looked at each second */
	unpark(&r->workers[0]);
	fix_read_end(r->f, read, 0);
	assert_int_equal(count(r, &r->workers[0].fetches), 1);
	assert_int_equal(count(r, &r->workers[0].cancelled), 0);
}

/* Holds a loop up until the lock is let go. */
struct freeze {
	struct loop_task task;
	pthread_mutex_t lock;
};

static void run_freeze(struct loop_task *task)
{
	struct freeze *freeze = container_of(task, struct freeze, task);

	pthread_mutex_lock(&freeze->lock);
	pthread_mutex_unlock(&freeze->lock);
}

static void run_nothing(void *arg)
{
	(void)arg;
}

static void freeze(struct route_fix *r, uint32_t worker, struct freeze *f)
{
	f->task.run = run_freeze;
	pthread_mutex_init(&f->lock, NULL);
	pthread_mutex_lock(&f->lock);
	loop_post(r->workers[worker].loop, &f->task);
}

static void thaw(struct route_fix *r, uint32_t worker, struct freeze *f)
{
	pthread_mutex_unlock(&f->lock);
	loop_call(r->workers[worker].loop, run_nothing, NULL);
	pthread_mutex_destroy(&f->lock);
}

/* Its kernel acknowledges, the master has not noticed: it does not even say that it is there. */
static void test_owner_hangs(void **state)
{
	struct route_fix *r = *state;
	struct fix_read *read;
	struct freeze f;

	set_park(r, 0);
	read = fix_read_start(r->f, 0, 64 * KiB);
	wait_for(r, &r->workers[0].fetches, 1);
	freeze(r, 0, &f);
	fix_read_end(r->f, read, 0);
	assert_int_equal(count(r, &r->workers[1].lasts), 1);
	fix_read(r->f, MiB, 64 * KiB); /* it is passed over */
	assert_int_equal(count(r, &r->workers[1].lasts), 2);
	thaw(r, 0, &f);
}

/* It is not found out by a read every few seconds, each of which would wait as long as the first one. */
static void test_no_read_is_tried_on_who_hangs(void **state)
{
	struct route_fix *r = *state;
	uint64_t until;
	uint32_t reads = 0;
	struct freeze f;

	for (uint32_t i = 0; i < WORKERS; i++)
		r->workers[i].cold = true; /* no hedge takes the place of an answer */
	fix_read(r->f, 0, 64 * KiB);
	assert_int_equal(count(r, &r->workers[0].fetches), 1);
	freeze(r, 0, &f);
	for (until = clock_mono_ns() + 10 * CLOCK_SECOND; clock_mono_ns() < until; reads++) {
		fix_read(r->f, (uint64_t)(reads % 8) * MiB, 64 * KiB);
		clock_sleep_ns(20 * CLOCK_MS);
	}
	thaw(r, 0, &f);
	assert_int_equal(count(r, &r->workers[1].lasts), reads);
	/* As soon as it answers it is asked again. */
	until = clock_mono_ns() + PATIENCE;
	while (count(r, &r->workers[0].fetches) < 10 && clock_mono_ns() < until) {
		fix_read(r->f, 0, 64 * KiB);
		reads++;
	}
	/* It got the one that found it out, too. */
	assert_int_equal(count(r, &r->workers[1].lasts) + 10, reads + 2);
}

/* They are asked at once, not one after the other. */
static void test_owner_and_deputy_hang(void **state)
{
	struct route_fix *r = *state;
	struct freeze owner;
	struct freeze deputy;

	fix_read(r->f, 0, 64 * KiB);
	freeze(r, 0, &owner);
	freeze(r, 1, &deputy);
	fix_read(r->f, MiB, 64 * KiB);
	assert_int_equal(count(r, &r->workers[2].lasts), 1);
	fix_read(r->f, 0, 64 * KiB);
	assert_int_equal(count(r, &r->workers[2].lasts), 2);
	thaw(r, 0, &owner);
	thaw(r, 1, &deputy);
}

/* One that waits for a slow origin says that it is there: nobody else is asked for the same. */
static void test_a_slow_owner_is_waited_for(void **state)
{
	struct route_fix *r = *state;
	struct fix_read *read;

	set_park(r, 0);
	read = fix_read_start(r->f, 0, 64 * KiB);
	wait_for(r, &r->workers[0].fetches, 1);
	clock_sleep_ns(2 * (CLIENT_ASK_QUIET + CLIENT_ASK_SILENT));
	unpark(&r->workers[0]);
	fix_read_end(r->f, read, 0);
	assert_int_equal(count(r, &r->workers[0].fetches), 1);
	assert_int_equal(count(r, &r->workers[0].cancelled), 0);
	for (uint32_t i = 1; i < WORKERS; i++)
		assert_int_equal(count(r, &r->workers[i].fetches), 0);
}

static void test_all_of_the_slot_are_tried(void **state)
{
	struct route_fix *r = *state;

	for (uint32_t i = 0; i < 3; i++)
		fake_set_refuse(r->workers[i].name, true);
	fix_read(r->f, 0, 64 * KiB);
	assert_int_equal(count(r, &r->workers[3].lasts), 1);
}

static void test_nobody_answers(void **state)
{
	struct route_fix *r = *state;

	for (uint32_t i = 0; i < WORKERS; i++)
		fake_set_refuse(r->workers[i].name, true);
	fix_read_end(r->f, fix_read_start(r->f, 0, 64 * KiB), -EIO);
	for (uint32_t i = 0; i < WORKERS; i++)
		fake_set_refuse(r->workers[i].name, false);
}

/* The kernel asks once more for one page of a read-ahead that failed at its deadline: nobody waits twice as long. */
static void test_nobody_waits_twice(void **state)
{
	struct route_fix *r = *state;
	uint64_t began;
	struct fix_read *again;
	struct fix_read *other;

	for (uint32_t i = 0; i < WORKERS; i++)
		fake_set_refuse(r->workers[i].name, true);
	fix_read_end(r->f, fix_read_start(r->f, 0, 64 * KiB), -EIO);
	began = clock_mono_ns();
	again = fix_read_start(r->f, 32 * KiB, 4 * KiB);
	other = fix_read_start(r->f, 64 * KiB, 4 * KiB);
	fix_read_end(r->f, again, -EIO);
	assert_true(clock_mono_ns() - began < PATIENT_NS * 3 / 4);
	fix_read_end(r->f, other, -EIO); /* beside it */
	assert_true(clock_mono_ns() - began >= PATIENT_NS);
	/* And who can be read again is read again. */
	for (uint32_t i = 0; i < WORKERS; i++)
		fake_set_refuse(r->workers[i].name, false);
	fix_read(r->f, 256 * KiB, 64 * KiB);
	fix_read(r->f, 64 * KiB, 4 * KiB);
}

static void test_ask_x(void **state)
{
	struct route_fix *r = *state;

	set_status(r, 0, -EREMOTE, 3, FRAME_MOVED);
	fix_read(r->f, 0, 64 * KiB);
	assert_int_equal(count(r, &r->workers[0].fetches), 1);
	assert_int_equal(count(r, &r->workers[3].fetches), 1);
	assert_int_equal(count(r, &r->workers[3].lasts), 0);
	assert_int_equal(fix_counter(r->f, "moved"), 1);
	wait_for(r, &r->stale, 1); /* a newer table is looked for */
}

static void test_ask_x_in_a_circle(void **state)
{
	struct route_fix *r = *state;

	set_status(r, 0, -EREMOTE, 1, FRAME_MOVED);
	set_status(r, 1, -EREMOTE, 0, FRAME_MOVED);
	for (uint32_t i = 2; i < WORKERS; i++)
		set_status(r, i, -EREMOTE, 0, FRAME_MOVED);
	set_park(r, 3);
	/* Ends: each of them is asked with FRAME_LAST at last, and the last one has it. */
	struct fix_read *read = fix_read_start(r->f, 0, 64 * KiB);

	wait_for(r, &r->workers[3].lasts, 1);
	set_status(r, 3, 0, 0, 0);
	unpark(&r->workers[3]);
	fix_read_end(r->f, read, 0);
	assert_true(count(r, &r->workers[0].lasts) >= 1);
}

static void test_full_owner_names_another(void **state)
{
	struct route_fix *r = *state;

	set_status(r, 0, -EREMOTE, 2, FRAME_LAST);
	fix_read(r->f, 0, 64 * KiB);
	assert_int_equal(count(r, &r->workers[2].lasts), 1);
	assert_int_equal(count(r, &r->workers[1].fetches), 0);
}

static void test_herd_is_asked_for_what_is_cached(void **state)
{
	struct route_fix *r = *state;

	set_status(r, 0, -EREMOTE, 2, 0);
	fix_read(r->f, 0, 64 * KiB);
	assert_int_equal(count(r, &r->workers[2].cached), 1);
	assert_int_equal(count(r, &r->workers[2].fetches), 0);
}

static void test_answer_with_moved(void **state)
{
	struct route_fix *r = *state;

	r->slot.owner = 2; /* at the master; the reader does not know */
	fix_read(r->f, 0, 64 * KiB);
	tell(r);
	fix_read(r->f, 0, 64 * KiB);
	assert_int_equal(count(r, &r->workers[0].fetches), 1);
	assert_int_equal(count(r, &r->workers[2].fetches), 1);
}

static void set_copies(struct route_fix *r, uint32_t copies)
{
	const struct client_policy policy = { .copies = copies };

	client_take_policy(r->f->client, &r->f->volume_id, &policy);
}

/* Reads that wait at the workers, 0 is the owner of all, 1 and 2 are its replicas. */
static void start_spread(struct route_fix *r, struct fix_read *reads[8])
{
	for (uint32_t i = 0; i < 3; i++)
		set_park(r, i);
	for (uint32_t i = 0; i < 8; i++)
		reads[i] = fix_read_start(r->f, (uint64_t)i * MiB, 64 * KiB);
	wait_for(r, &r->workers[0].fetches, 2);
}

static void end_spread(struct route_fix *r, struct fix_read *reads[8])
{
	for (uint32_t i = 0; i < 3; i++)
		unpark(&r->workers[i]);
	for (uint32_t i = 0; i < 8; i++)
		fix_read_end(r->f, reads[i], 0);
}

static void test_copies_are_spread(void **state)
{
	struct route_fix *r = *state;
	struct fix_read *reads[8];

	set_copies(r, 2);
	start_spread(r, reads);
	wait_for(r, &r->workers[1].fetches, 2);
	assert_int_equal(count(r, &r->workers[1].lasts), 0);
	end_spread(r, reads);
	assert_int_equal(count(r, &r->workers[2].fetches), 0); /* has none */
	assert_int_equal(count(r, &r->workers[0].fetches) + count(r, &r->workers[1].fetches), 8);

	set_copies(r, COPIES_AUTO); /* the policy changed: the owner alone */
	for (uint32_t i = 0; i < 8; i++)
		fix_read(r->f, (uint64_t)i * MiB, 64 * KiB);
	assert_int_equal(count(r, &r->workers[0].fetches) + count(r, &r->workers[1].fetches), 16);
	assert_true(count(r, &r->workers[1].fetches) <= 6);
}

static void test_hot_slots_are_spread(void **state)
{
	struct route_fix *r = *state;
	struct fix_read *reads[8];

	r->hot = true;
	tell(r);
	set_park(r, 0);
	set_park(r, 1);
	set_park(r, 2);
	for (uint32_t i = 0; i < ARRAY_SIZE(reads); i++)
		reads[i] = fix_read_start(r->f, (uint64_t)i * MiB, 64 * KiB);
	wait_for(r, &r->workers[0].fetches, 2);
	for (uint64_t end = clock_mono_ns() + PATIENCE; clock_mono_ns() < end;) {
		if (count(r, &r->workers[1].fetches) + count(r, &r->workers[2].fetches) >= 2)
			break;
		clock_sleep_ns(CLOCK_MS);
	}
	assert_true(count(r, &r->workers[1].fetches) + count(r, &r->workers[2].fetches) >= 2);
	assert_int_equal(count(r, &r->workers[1].lasts) + count(r, &r->workers[2].lasts), 0);
	for (uint32_t i = 0; i < 3; i++)
		unpark(&r->workers[i]);
	for (uint32_t i = 0; i < ARRAY_SIZE(reads); i++)
		fix_read_end(r->f, reads[i], 0);
}

/* A loaded machine may have used the hedges up, or make none in time: it is tried again then. */
static void test_hedge(void **state)
{
	struct route_fix *r = *state;
	uint32_t reads = 0;

	for (uint32_t try = 0; try < 50 && fix_counter(r->f, "hedges_won") == 0; try++) {
		struct fix_read *read;
		uint64_t end;

		for (uint32_t i = 0; i < 150; i++)
			fix_read(r->f, i % 8 * MiB, 64 * KiB);
		set_park(r, 0);
		read = fix_read_start(r->f, 0, 64 * KiB);
		reads += 151;
		wait_for(r, &r->workers[0].fetches, reads);
		end = clock_mono_ns() + CLOCK_SECOND;
		while (!fix_read_done(read) && clock_mono_ns() < end)
			clock_sleep_ns(CLOCK_MS);
		unpark(&r->workers[0]);
		fix_read_end(r->f, read, 0);
	}
	assert_true(fix_counter(r->f, "hedges_won") >= 1);
	assert_true(count(r, &r->workers[1].cached) <= fix_counter(r->f, "hedges"));
	assert_true(fix_counter(r->f, "hedges") <= reads / 40);
}

/* As the kernel's reads come: noted, looked for here, and asked for. */
static void read_noted(struct fix *f, uint64_t offset, uint32_t length)
{
	client_note_read(f->volume, offset, length);
	if (!fix_borrow(f, offset, length) && fix_read_local(f, offset, length) < 0)
		fix_read(f, offset, length);
}

static void test_ranges_are_read_ahead(void **state)
{
	struct route_fix *r = *state;
	const struct fix_object *o = fix_object(r->f, "b/large");
	uint32_t requests;

	for (uint64_t at = 0; at < 8 * MiB; at += 32 * KiB)
		read_noted(r->f, o->offset + at, 32 * KiB);
	requests = count(r, &r->workers[0].fetches) + count(r, &r->workers[0].cached);
	assert_true(requests <= 32); /* of 256 reads */
	assert_true(fix_counter(r->f, "near_reads") >= 240);
	assert_in_range(fix_counter(r->f, "near_fetches"), 8, 24);
}

/* Once much was read in order, several ranges are under way at once, and no more than are allowed. */
static void test_ranges_are_under_way_together(void **state)
{
	struct route_fix *r = *state;
	const struct fix_object *o = fix_object(r->f, "b/large");
	uint64_t at;

	for (at = 0; at < 4 * MiB; at += 32 * KiB)
		read_noted(r->f, o->offset + at, 32 * KiB);
	pthread_mutex_lock(&r->f->lock);
	r->workers[0].park_cached = true;
	pthread_mutex_unlock(&r->f->lock);
	for (; at < 10 * MiB; at += 32 * KiB)
		client_note_read(r->f->volume, o->offset + at, 32 * KiB);
	wait_for(r, &r->workers[0].parked_cached, 4);
	unpark(&r->workers[0]);
	for (at = 4 * MiB; at < 10 * MiB; at += 32 * KiB)
		read_noted(r->f, o->offset + at, 32 * KiB);
	assert_true(count(r, &r->workers[0].fetches) <= 8);
	/* Of 15 MiB at most, of at least 256 KiB each. */
	assert_true(fix_counter(r->f, "near_fetches") <= 32);
}

/* What lies in one answer is lent from where it came to. */
static void test_ranges_are_lent(void **state)
{
	struct route_fix *r = *state;
	const struct fix_object *o = fix_object(r->f, "b/large");
	const uint8_t *before = NULL;
	uint32_t together = 0;
	uint32_t lent = 0;

	for (uint64_t at = 0; at < 8 * MiB; at += 32 * KiB) {
		struct client_loan loan;

		client_note_read(r->f->volume, o->offset + at, 32 * KiB);
		if (!client_borrow(r->f->volume, o->offset + at, 32 * KiB, &loan)) {
			fix_read(
				r->f, o->offset + at, 32 * KiB); /* waits for it, if it is coming */
			before = NULL;
			continue;
		}
		lent++;
		together += before && loan.data == before + 32 * KiB;
		before = loan.data;
		client_give(&loan);
	}
	assert_true(lent >= 128);
	assert_true(together >= lent / 2);
	assert_int_equal(fix_counter(r->f, "local_reads"), 0);
}

static void test_out_of_order_nothing_is_read_ahead(void **state)
{
	struct route_fix *r = *state;
	const struct fix_object *o = fix_object(r->f, "b/large");

	for (uint64_t i = 0; i < 64; i++)
		read_noted(r->f, o->offset + i * 37 % 64 * (600 * KiB), 32 * KiB);
	assert_int_equal(fix_counter(r->f, "near_fetches"), 0);
	assert_int_equal(count(r, &r->workers[0].fetches), 64);
}

/* What no worker has is asked for piece by piece, as ever: the origin is not asked for more. */
static void test_cold_ranges_are_not_read_ahead(void **state)
{
	struct route_fix *r = *state;
	const struct fix_object *o = fix_object(r->f, "b/large");

	r->workers[0].cold = true;
	for (uint64_t at = 0; at < 2 * MiB; at += 32 * KiB)
		read_noted(r->f, o->offset + at, 32 * KiB);
	assert_int_equal(fix_counter(r->f, "near_reads"), 0);
	assert_int_equal(count(r, &r->workers[0].fetches), 64);
}

/* Ranges of which a part is never read give way to those that come. */
static void test_ranges_that_are_read_in_part(void **state)
{
	struct route_fix *r = *state;
	const struct fix_object *o = fix_object(r->f, "b/large");

	for (uint64_t at = 0; at < 40 * MiB; at += 64 * KiB)
		read_noted(r->f, o->offset + at, 32 * KiB);
	assert_true(fix_counter(r->f, "near_fetches") > CLIENT_NEAR_WINDOWS);
	assert_true(count(r, &r->workers[0].fetches) <= 16);
}

/* A replica that has no copies yet costs a question, not the reading ahead. */
static void test_ranges_that_a_replica_lacks(void **state)
{
	struct route_fix *r = *state;
	const struct fix_object *o = fix_object(r->f, "b/large");

	set_copies(r, 2);
	r->workers[1].cold = true;
	for (uint64_t at = 0; at < 8 * MiB; at += 32 * KiB)
		read_noted(r->f, o->offset + at, 32 * KiB);
	assert_true(fix_counter(r->f, "near_reads") >= 240);
}

/* Readers in threads of their own take what is on its way, and what is there. */
struct near_reader {
	pthread_t thread;
	struct fix *f;
	uint64_t offset;
	uint32_t first;
};

static void *run_near_reader(void *arg)
{
	const struct near_reader *reader = arg;

	for (uint32_t i = reader->first; i < 256; i += 4)
		read_noted(reader->f, reader->offset + (uint64_t)i * 32 * KiB, 32 * KiB);
	return NULL;
}

static void test_ranges_of_several_readers(void **state)
{
	struct route_fix *r = *state;
	const struct fix_object *o = fix_object(r->f, "b/large");
	struct near_reader readers[4];

	for (uint32_t i = 0; i < ARRAY_SIZE(readers); i++) {
		readers[i] = (struct near_reader){ .f = r->f, .offset = o->offset, .first = i };
		assert_int_equal(
			pthread_create(&readers[i].thread, NULL, run_near_reader, &readers[i]), 0);
	}
	for (uint32_t i = 0; i < ARRAY_SIZE(readers); i++)
		assert_int_equal(pthread_join(readers[i].thread, NULL), 0);
	assert_true(fix_counter(r->f, "near_reads") > 0);
}

static void test_own_worker_first_while_it_serves(void **state)
{
	struct route_fix *r = *state;

	fix_read(r->f, 0, 64 * KiB);
	assert_int_equal(fix_count(r->f, FRAME_FETCH), 1);
	assert_int_equal(count(r, &r->workers[0].fetches), 0);
	/* It sends one away: the volume is not asked of it for a while. */
	pthread_mutex_lock(&r->f->lock);
	r->f->fail = -EREMOTE;
	r->f->fail_n = 1;
	pthread_mutex_unlock(&r->f->lock);
	for (uint32_t i = 1; i < 8; i++)
		fix_read(r->f, (uint64_t)i * MiB, 64 * KiB);
	assert_int_equal(fix_count(r->f, FRAME_FETCH), 2);
	assert_int_equal(count(r, &r->workers[0].fetches), 7);
	assert_int_equal(client_prefetch(r->f->volume, 9 * MiB, 64 * KiB), 0);
	wait_for(r, &r->workers[0].prefetches, 1);
}

static void test_own_worker_dies(void **state)
{
	struct route_fix *r = *state;

	fix_read(r->f, 0, 64 * KiB);
	fix_stop_worker(r->f);
	fix_read(r->f, MiB, 64 * KiB);
	assert_int_equal(count(r, &r->workers[0].fetches), 1);
}

/* Damage in its file, of which it cannot be told: others have the bytes. */
static void test_own_worker_dies_before_it_hears_of_damage(void **state)
{
	struct route_fix *r = *state;
	const struct fix_object *o = fix_object(r->f, "a/small-10");
	uint8_t byte = 0;
	int fd;

	r->f->local = true;
	r->f->whole = true;
	fix_read(r->f, o->offset, PIECE_BYTES);
	fd = open(fix_chunk_path(r->f, (uint32_t)(o->offset / CHUNK_BYTES)), O_RDWR | O_CLOEXEC);
	for (uint64_t i = 0; i < 16; i++)
		assert_int_equal(
			file_pwrite_exact(fd, &byte, 1, o->offset % CHUNK_BYTES + PIECE_BYTES + i),
			0);
	assert_int_equal(fsync(fd), 0);
	close(fd);
	assert_int_equal(fix_read_local(r->f, o->offset, 2 * PIECE_BYTES), -EAGAIN);
	fix_stop_worker(r->f);
	fix_read(r->f, o->offset, 2 * PIECE_BYTES);
	assert_int_equal(count(r, &r->workers[0].fetches), 1);
}

#define CASE(f)       cmocka_unit_test_setup_teardown(f, setup, teardown)
#define LOCAL_CASE(f) cmocka_unit_test_setup_teardown(f, setup_local, teardown)
int main(void)
{
	const struct CMUnitTest tests[] = {
		CASE(test_owner_alone_is_asked_and_no_master),
		CASE(test_deputy_when_the_owner_refuses),
		CASE(test_owner_dies_with_reads_under_way),
		CASE(test_owner_called_down_is_waited_for_no_longer),
		CASE(test_the_only_one_called_down_is_waited_for),
		CASE(test_owner_hangs),
		CASE(test_no_read_is_tried_on_who_hangs),
		CASE(test_owner_and_deputy_hang),
		CASE(test_a_slow_owner_is_waited_for),
		CASE(test_all_of_the_slot_are_tried),
		cmocka_unit_test_setup_teardown(test_nobody_answers, setup_impatient, teardown),
		cmocka_unit_test_setup_teardown(test_nobody_waits_twice, setup_patient, teardown),
		CASE(test_ask_x),
		CASE(test_ask_x_in_a_circle),
		CASE(test_full_owner_names_another),
		CASE(test_herd_is_asked_for_what_is_cached),
		CASE(test_answer_with_moved),
		CASE(test_hot_slots_are_spread),
		CASE(test_copies_are_spread),
		CASE(test_hedge),
		CASE(test_ranges_are_read_ahead),
		CASE(test_ranges_are_under_way_together),
		CASE(test_ranges_are_lent),
		CASE(test_ranges_that_a_replica_lacks),
		CASE(test_ranges_that_are_read_in_part),
		CASE(test_out_of_order_nothing_is_read_ahead),
		CASE(test_cold_ranges_are_not_read_ahead),
		CASE(test_ranges_of_several_readers),
		LOCAL_CASE(test_own_worker_first_while_it_serves),
		LOCAL_CASE(test_own_worker_dies),
		LOCAL_CASE(test_own_worker_dies_before_it_hears_of_damage),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
