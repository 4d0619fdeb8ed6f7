/* See view_fixture.h. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "tests/unit/cluster/view_fixture.h"
#include "base/buf.h"
#include "base/cleanup.h"
#include "base/file.h"
#include "net/fake.h"
#include "tests/clock/test_clock.h"

static const uint8_t here[CLUSTER_HOST_BYTES] = "this node";
static const uint8_t there[CLUSTER_HOST_BYTES] = "another node";

/* ---- the master ------------------------------------------------------------------------------ */

void add_worker(struct workers_message *out, Granary__SlotTable *message,
	const struct worker *worker, uint32_t number)
{
	Granary__Worker *w = &out->workers[message->n_workers];
	char **addresses = out->addresses[message->n_workers];

	granary__worker__init(w);
	snprintf(out->names[number], sizeof(out->names[number]), "w%u", number);
	w->has_number = w->has_id = w->has_state = w->has_host = 1;
	w->number = number;
	w->id = 100 + number;
	w->state = worker->state;
	w->name = out->names[number];
	w->host = (ProtobufCBinaryData){ CLUSTER_HOST_BYTES,
		(uint8_t *)(uintptr_t)(worker->far ? there : here) };
	if (worker->far) {
		addresses[w->n_addresses++] = (char *)(uintptr_t)OWN_SOCKET;
		addresses[w->n_addresses++] = (char *)(uintptr_t) "tcp:127.0.0.1:9";
	}
	if (worker->first[0])
		addresses[w->n_addresses++] = (char *)(uintptr_t)worker->first;
	if (worker->socket[0])
		addresses[w->n_addresses++] = (char *)(uintptr_t)worker->socket;
	if (worker->address[0])
		addresses[w->n_addresses++] = (char *)(uintptr_t)worker->address;
	w->addresses = addresses;
	out->pointers[message->n_workers++] = w;
}

static void reply(struct rpc_request *request, const Granary__SlotTable *message)
{
	size_t len = granary__slot_table__get_packed_size(message);
	uint8_t *data = malloc(len + 1);

	granary__slot_table__pack(message, data);
	rpc_reply(request, 0, NULL,
		(struct net_payload){
			.parts = { { data, len } }, .n = 1, .release = free, .arg = data });
}

void put_slot(uint8_t *out, const struct placement_slot *slot)
{
	memcpy(out, slot, sizeof(*slot)); /* tests run on little-endian machines */
}

void reply_whole_locked(struct master *m, struct rpc_request *request)
{
	Granary__SlotTable message = GRANARY__SLOT_TABLE__INIT;
	struct workers_message workers = { 0 };
	uint8_t *slots = malloc(PLACEMENT_SLOTS * 8);

	for (uint32_t i = 0; i < PLACEMENT_SLOTS; i++)
		put_slot(slots + i * 8, &m->table->slots[i]);
	message.has_epoch = message.has_sequence = message.has_slots = message.has_news = 1;
	message.epoch = m->table->epoch;
	message.sequence = m->table->sequence;
	message.news = m->news;
	message.slots = (ProtobufCBinaryData){ PLACEMENT_SLOTS * 8, slots };
	message.workers = workers.pointers;
	for (uint32_t i = 0; i < WORKERS; i++)
		if (m->workers[i].listed)
			add_worker(&workers, &message, &m->workers[i], i);
	reply(request, &message);
	free(slots);
}

void reply_changes_locked(
	struct master *m, struct rpc_request *request, Granary__SlotTable *message, uint64_t since)
{
	message->has_epoch = message->has_sequence = message->has_since = message->has_news = 1;
	message->epoch = m->table->epoch;
	message->sequence = m->table->sequence;
	message->since = since;
	message->news = m->news;
	reply(request, message);
}

static void on_request(struct rpc_request *request, void *arg)
{
	struct master *m = arg;
	Granary__SlotsAsk *ask;
	bool newer;

	ensure(request->frame.op == FRAME_GET_SLOTS);
	ask = granary__slots_ask__unpack(NULL, request->frame.payload, request->payload);
	ensure(ask);
	pthread_mutex_lock(&m->lock);
	m->asks++;
	m->whole_asks += ask->epoch == 0;
	newer = ask->epoch != m->table->epoch || ask->sequence != m->table->sequence ||
		(ask->has_news && ask->news != m->news);
	if (m->odd_since && ask->epoch) {
		Granary__SlotTable message = GRANARY__SLOT_TABLE__INIT;

		m->odd_since--;
		m->table->sequence++;
		reply_changes_locked(m, request, &message, ask->sequence + 17);
	} else if (newer || !ask->wait_ms || m->never_parks) {
		reply_whole_locked(m, request);
	} else {
		ensure(!m->parked);
		m->parked = request;
		pthread_cond_broadcast(&m->has_parked);
	}
	pthread_mutex_unlock(&m->lock);
	granary__slots_ask__free_unpacked(ask, NULL);
}

static void on_cancel(struct rpc_request *request, void *arg)
{
	struct master *m = arg;

	pthread_mutex_lock(&m->lock);
	if (m->parked == request)
		m->parked = NULL;
	pthread_mutex_unlock(&m->lock);
	rpc_reply(request, -ECANCELED, NULL, NET_PAYLOAD_NONE);
}

static void on_table(void *arg)
{
	struct master *m = arg;

	pthread_mutex_lock(&m->lock);
	m->told_tables++;
	pthread_mutex_unlock(&m->lock);
}

static void on_news(void *arg)
{
	struct master *m = arg;

	pthread_mutex_lock(&m->lock);
	m->told_news++;
	pthread_mutex_unlock(&m->lock);
}

struct rpc_request *take_parked_locked(struct master *m)
{
	struct rpc_request *request;

	while (!m->parked)
		pthread_cond_wait(&m->has_parked, &m->lock);
	request = m->parked;
	m->parked = NULL;
	return request;
}

static void start_server(struct master *m)
{
	static const struct rpc_server_ops ops = { .on_request = on_request,
		.on_cancel = on_cancel };
	struct err e = ERR_INIT;
	char address[48];

	snprintf(address, sizeof(address), "fake:%s", m->name);
	if (rpc_server_new(m->loop, address, &ops, m, &m->server, &e) < 0)
		fail_msg("%s", e.text);
}

int setup(void **state)
{
	static uint32_t serial;
	struct master *m = calloc(1, sizeof(*m));
	struct err e = ERR_INIT;
	char address[48];

	pthread_mutex_init(&m->lock, NULL);
	pthread_cond_init(&m->has_parked, NULL);
	m->loop = loop_new("test");
	m->table = placement_table_new();
	m->table->epoch = 7;
	m->table->sequence = 1;
	m->news = 1;
	for (uint32_t i = 0; i < WORKERS; i++) {
		snprintf(m->workers[i].address, sizeof(m->workers[i].address), "fake:worker%u", i);
		m->workers[i].listed = true;
	}
	for (uint32_t i = 0; i < PLACEMENT_SLOTS; i++)
		m->table->slots[i] =
			(struct placement_slot){ .owner = 0, .previous = 3, .replicas = { 1, 2 } };
	snprintf(m->name, sizeof(m->name), "master%u", serial++);
	snprintf(m->dir, sizeof(m->dir), "/var/tmp/granary-view-XXXXXX");
	assert_non_null(mkdtemp(m->dir));
	start_server(m);
	snprintf(address, sizeof(address), "fake:%s", m->name);
	if (rpc_client_new(m->loop, address, &m->client, &e) < 0)
		fail_msg("%s", e.text);
	*state = m;
	return 0;
}

int teardown(void **state)
{
	struct master *m = *state;
	char command[96];

	rpc_client_free(m->client);
	rpc_server_free(m->server);
	loop_free(m->loop);
	free(m->table);
	snprintf(command, sizeof(command), "rm -rf %s", m->dir);
	assert_int_equal(system(command), 0);
	pthread_cond_destroy(&m->has_parked);
	pthread_mutex_destroy(&m->lock);
	free(m);
	return 0;
}

struct view *open_view(struct master *m, struct view_config config, uint64_t wait_ns)
{
	struct err e = ERR_INIT;
	struct view *view;

	config.master = m->client;
	memcpy(config.host, here, sizeof(config.host));
	config.on_table = on_table;
	config.on_news = on_news;
	config.arg = m;
	if (view_open(m->loop, &config, wait_ns, &view, &e) < 0)
		fail_msg("%s", e.text);
	return view;
}

uint64_t sequence_of(struct view *view)
{
	uint64_t epoch;
	uint64_t sequence;

	view_version(view, &epoch, &sequence);
	return sequence;
}

uint64_t slots_sequence_of(struct view *view)
{
	uint64_t epoch;
	uint64_t sequence;

	view_slots_version(view, &epoch, &sequence);
	return sequence;
}

void wait_sequence(struct view *view, uint64_t sequence)
{
	test_wait(sequence_of(view) == sequence);
}

bool finds(struct view *view, const char *want)
{
	_cleanup_(buf_release) struct buf b = BUF_INIT(256);
	struct view_candidates c;

	view_find(view, 0, 0, &c);
	for (uint32_t i = 0; i < c.n; i++)
		assert_int_equal(buf_printf(&b, "%u ", c.peers[i]->number), 0);
	assert_int_equal(buf_printf(&b, "up=%u", c.n_up), 0);
	if (strcmp(buf_str(&b), want) != 0)
		print_message("found: %s\n", buf_str(&b));
	return strcmp(buf_str(&b), want) == 0;
}

void assert_found(struct view *view, const char *want)
{
	assert_true(finds(view, want));
}

bool is_hot(struct view *view, uint32_t slot)
{
	struct view_candidates c;

	view_find(view, slot, 0, &c);
	return c.hot;
}
