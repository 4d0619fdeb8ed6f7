/* Slot table and connections. See client_owners.h. */
#include "client/client_owners.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "placement/placement.h"
#include "proto/granary.pb-c.h"

#include <endian.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define LOAD_DEADLINE    (30 * CLOCK_SECOND)
#define REFRESH_DEADLINE (10 * CLOCK_SECOND)
#define REFRESH_INTERVAL CLOCK_SECOND

struct client_owners {
	pthread_mutex_t lock;
	struct loop *loop;
	struct rpc_client *master;
	struct list known; /* struct client_owner; grows with new addresses up to PLACEMENT_MAX */
	uint32_t n_known;
	struct client_owner *by_number[PLACEMENT_MAX];
	struct client_owner *local; /* NULL: none */
	struct placement_table *table;
	struct rpc_call refresh;
	bool refreshing;
	uint64_t refreshed_ns;
};

static void owner_free(struct client_owner *owner)
{
	if (!owner)
		return;
	rpc_client_free(owner->rpc);
	free(owner->address);
	free(owner);
}

/* The owner of an address, connected lazily; NULL in *ret_owner when it is not known yet. */
static struct client_owner *find_address(struct client_owners *owners, const char *address)
{
	list_for_each (node, &owners->known) {
		struct client_owner *owner = list_entry(node, struct client_owner, link);

		if (strcmp(owner->address, address) == 0)
			return owner;
	}
	return NULL;
}

/* Only the thread that takes a table adds owners: the start's, later the loop. */
static int add_address(struct client_owners *owners, const char *address,
	struct client_owner **ret_owner, struct err *e)
{
	struct client_owner *owner = find_address(owners, address);
	int r;

	if (owner) {
		*ret_owner = owner;
		return 0;
	}
	if (owners->n_known >= PLACEMENT_MAX)
		return err_set(e, -ENOSPC,
			"more than %u worker addresses: restart the mount to forget old ones",
			PLACEMENT_MAX);
	owner = calloc(1, sizeof(*owner));
	if (!owner || !(owner->address = strdup(address))) {
		free(owner);
		return err_set(e, -ENOMEM, "no memory for a worker's connection");
	}
	r = rpc_client_new(owners->loop, address, &owner->rpc, e);
	if (r < 0) {
		free(owner->address);
		free(owner);
		return r;
	}
	owner->local = strncmp(address, "unix:", 5) == 0;
	list_push_back(&owners->known, &owner->link);
	owners->n_known++;
	*ret_owner = owner;
	return 0;
}

int client_owners_new(struct loop *loop, struct rpc_client *master, const char *local_worker,
	struct client_owners **ret_owners, struct err *e)
{
	struct client_owners *owners = calloc(1, sizeof(*owners));
	int r = 0;

	if (!owners)
		return err_set(e, -ENOMEM, "no memory for the slot table");
	pthread_mutex_init(&owners->lock, NULL);
	list_init(&owners->known);
	owners->loop = loop;
	owners->master = master;
	owners->table = placement_table_new();
	if (!owners->table)
		r = err_set(e, -ENOMEM, "no memory for the slot table");
	if (r == 0 && local_worker)
		r = add_address(owners, local_worker, &owners->local, e);
	if (r < 0) {
		client_owners_free(owners);
		return r;
	}
	*ret_owners = owners;
	return 0;
}

void client_owners_free(struct client_owners *owners)
{
	struct list *node;

	if (!owners)
		return;
	ensure(!owners->refreshing);
	while ((node = list_pop_front(&owners->known)) != NULL)
		owner_free(list_entry(node, struct client_owner, link));
	free(owners->table);
	pthread_mutex_destroy(&owners->lock);
	free(owners);
}

static int decode_slots(const Granary__SlotTable *message, struct placement_table *table)
{
	const uint8_t *in = message->slots.data;

	if (!message->has_slots || message->slots.len != sizeof(table->slots))
		return -EBADMSG;
	table->epoch = message->epoch;
	table->sequence = message->sequence;
	for (uint32_t i = 0; i < PLACEMENT_SLOTS; i++) {
		uint16_t v[4];

		memcpy(v, in + (size_t)i * sizeof(v), sizeof(v));
		table->slots[i] = (struct placement_slot){
			.owner = le16toh(v[0]),
			.previous = le16toh(v[1]),
			.replicas = { le16toh(v[2]), le16toh(v[3]) },
		};
	}
	return 0;
}

static int take_workers(struct client_owners *owners, const Granary__SlotTable *message,
	struct client_owner **by_number, struct err *e)
{
	for (size_t i = 0; i < message->n_workers; i++) {
		const Granary__Worker *worker = message->workers[i];
		int r;

		if (worker->number >= PLACEMENT_MAX || !worker->address)
			return err_set(e, -EBADMSG,
				"slot table: a worker without number or address: do versions "
				"differ?");
		r = add_address(owners, worker->address, &by_number[worker->number], e);
		if (r < 0)
			return r;
	}
	return 0;
}

static int take_table(struct client_owners *owners, const void *payload, size_t len, struct err *e)
{
	_cleanup_free_ struct placement_table *table = placement_table_new();
	_cleanup_free_ struct client_owner **by_number =
		calloc(PLACEMENT_MAX, sizeof(struct client_owner *));
	Granary__SlotTable *message;
	int r;

	if (!table || !by_number)
		return err_set(e, -ENOMEM, "no memory for the slot table");
	message = granary__slot_table__unpack(NULL, len, payload);
	if (!message)
		return err_set(e, -EBADMSG,
			"the master's slot table does not decode: do versions differ?");
	r = decode_slots(message, table);
	if (r < 0)
		(void)err_set(e, r, "the master's slot table has not %u slots: do versions differ?",
			PLACEMENT_SLOTS);
	if (r == 0)
		r = take_workers(owners, message, by_number, e);
	granary__slot_table__free_unpacked(message, NULL);
	if (r < 0)
		return r;
	pthread_mutex_lock(&owners->lock);
	if (!placement_newer(owners->table, table)) {
		struct placement_table *old = owners->table;

		owners->table = TAKE(table);
		table = old; /* freed with the scope */
		memcpy(owners->by_number, by_number, sizeof(owners->by_number));
	}
	pthread_mutex_unlock(&owners->lock);
	return 0;
}

int client_owners_load(struct client_owners *owners, struct err *e)
{
	struct rpc_call call = {
		.frame = { .op = FRAME_GET_SLOTS },
		.payload = NET_PAYLOAD_NONE,
		.deadline_ns = clock_mono_ns() + LOAD_DEADLINE,
		.resend = true,
		.reply_fd = -1,
	};
	int r = rpc_call_wait(owners->master, &call, e);

	if (r == 0)
		r = take_table(owners, call.reply_payload, call.reply.payload, e);
	rpc_call_release(&call);
	return r;
}

static void on_refreshed(struct rpc_call *call, int status)
{
	struct client_owners *owners = call->arg;

	/* A failure leaves the table as it is; whoever still finds no worker asks again. */
	if (status == 0)
		(void)take_table(owners, call->reply_payload, call->reply.payload, NULL);
	rpc_call_release(call);
	pthread_mutex_lock(&owners->lock);
	owners->refreshing = false;
	pthread_mutex_unlock(&owners->lock);
}

void client_owners_refresh(struct client_owners *owners)
{
	uint64_t now = clock_mono_ns();
	bool ask;

	pthread_mutex_lock(&owners->lock);
	ask = !owners->refreshing && now - owners->refreshed_ns >= REFRESH_INTERVAL;
	if (ask) {
		owners->refreshing = true;
		owners->refreshed_ns = now;
	}
	pthread_mutex_unlock(&owners->lock);
	if (!ask)
		return;
	owners->refresh = (struct rpc_call){
		.frame = { .op = FRAME_GET_SLOTS },
		.payload = NET_PAYLOAD_NONE,
		.deadline_ns = now + REFRESH_DEADLINE,
		.on_done = on_refreshed,
		.arg = owners,
		.reply_fd = -1,
	};
	rpc_call(owners->master, &owners->refresh);
}

struct client_owner *client_owners_local(struct client_owners *owners)
{
	struct client_owner *local;

	pthread_mutex_lock(&owners->lock);
	local = owners->local;
	for (uint32_t i = 0; !local && i < PLACEMENT_MAX; i++)
		if (owners->by_number[i] && owners->by_number[i]->local)
			local = owners->by_number[i];
	pthread_mutex_unlock(&owners->lock);
	return local;
}

struct client_owner *client_owners_find(
	struct client_owners *owners, uint64_t volume_hash, uint64_t chunk)
{
	uint32_t slot = placement_slot_of(volume_hash, chunk);
	struct client_owner *owner = NULL;
	uint16_t number;

	pthread_mutex_lock(&owners->lock);
	number = owners->table->slots[slot].owner;
	if (number < PLACEMENT_MAX)
		owner = owners->by_number[number];
	if (!owner)
		owner = owners->local;
	pthread_mutex_unlock(&owners->lock);
	return owner;
}
