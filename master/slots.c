/* Members and slot table of a private cluster. See slots.h. */
#include "master/slots.h"
#include "master/record.h"
#include "base/cleanup.h"
#include "base/crash_point.h"
#include "base/hash.h"
#include "base/log.h"
#include "proto/granary.pb-c.h"

#include <inttypes.h>
#include <string.h>

#define STORED_MAGIC   0x31544c53u /* "SLT1" */
#define STORED_VERSION 1u

static_assert(sizeof(struct placement_slot) == 8, "slots travel as four u16");
static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "slots travel as they lie in memory");
static_assert(SLOTS_BYTES + 16 <= STORE_VALUE_BYTES, "a slot table is one value");

/*
 * Stored: magic u32, version u32, sequence u64, then the slots. Up to version 0.1 there was no magic and
 * no version.
 */
static int take_head(const struct buf *value, uint64_t *ret_sequence, const uint8_t **ret_slots)
{
	const uint8_t *at = (const uint8_t *)value->data;
	uint32_t words[2];

	if (value->len == 8 + SLOTS_BYTES) {
		memcpy(ret_sequence, at, 8);
		*ret_slots = at + 8;
		return 0;
	}
	if (value->len < sizeof(words))
		return -EBADMSG;
	memcpy(words, at, sizeof(words));
	if (words[0] != STORED_MAGIC || words[1] == 0)
		return -EBADMSG;
	if (words[1] != STORED_VERSION)
		return -EPROTONOSUPPORT;
	if (value->len != sizeof(words) + 8 + SLOTS_BYTES)
		return -EBADMSG;
	memcpy(ret_sequence, at + sizeof(words), 8);
	*ret_slots = at + sizeof(words) + 8;
	return 0;
}

static int load_table(struct store *store, struct placement_table *table)
{
	_cleanup_(buf_release) struct buf value = BUF_INIT(STORE_VALUE_BYTES);
	const uint8_t *slots;
	int r = store->ops->get(store, "slots", &value);

	if (r == -ENOENT)
		return 0;
	if (r < 0)
		return r;
	r = take_head(&value, &table->sequence, &slots);
	if (r == 0)
		memcpy(table->slots, slots, SLOTS_BYTES);
	return r;
}

static int load_worker_id(struct store *store, uint64_t *ret_id)
{
	_cleanup_(buf_release) struct buf value = BUF_INIT(64);
	int r = store->ops->get(store, "worker/0", &value);

	if (r == -ENOENT) {
		hash_random(ret_id, sizeof(*ret_id));
		return 0;
	}
	if (r < 0)
		return r;
	return hash_unhex(buf_str(&value), ret_id, sizeof(*ret_id));
}

static int store_all(struct store *store, const struct slots *slots)
{
	_cleanup_(buf_release) struct buf value = BUF_INIT(STORE_VALUE_BYTES);
	const uint32_t head[2] = { STORED_MAGIC, STORED_VERSION };
	char id[17];
	int r = buf_append(&value, head, sizeof(head));

	if (r == 0)
		r = buf_append(&value, &slots->table->sequence, 8);
	if (r == 0)
		r = buf_append(&value, slots->table->slots, SLOTS_BYTES);
	if (r < 0)
		return r;
	hash_hex(&slots->worker.id, sizeof(slots->worker.id), id);
	return store->ops->write(store,
		(struct store_change[]){
			{ "slots", value.data, value.len }, { "worker/0", id, 16 } },
		2);
}

static int assign(struct store *store, struct slots *slots)
{
	int r = load_table(store, slots->table);

	if (r == 0)
		r = load_worker_id(store, &slots->worker.id);
	if (r < 0 || !slots->address)
		return r;
	r = placement_repair(slots->table, &slots->worker, 1, 0);
	if (r > 0) {
		log_info("slots assigned", "moved=%d sequence=%" PRIu64, r, slots->table->sequence);
		CRASH_POINT("slots.assigned");
		r = store_all(store, slots);
		CRASH_POINT("slots.stored");
		return r;
	}
	return r;
}

int slots_open(struct store *store, uint64_t epoch, const char *address, struct slots *ret_slots,
	struct err *e)
{
	struct slots slots = { .table = placement_table_new(), .worker = { .weight = 1 } };
	int r = -ENOMEM;

	if (slots.table) {
		slots.address = address ? strdup(address) : NULL;
		if (slots.address || !address)
			r = assign(store, &slots);
		slots.table->epoch = epoch;
	}
	if (r < 0) {
		slots_release(&slots);
		if (r == -EPROTONOSUPPORT || r == -EBADMSG)
			return record_refuse(e, r, "a slot table");
		return err_set(e, r,
			"the master's slot table cannot be read or stored: %s: check the disk of "
			"the cache",
			err_str(r));
	}
	*ret_slots = slots;
	return 0;
}

void slots_release(struct slots *slots)
{
	free(slots->table);
	free(slots->address);
	*slots = (struct slots){ 0 };
}

uint8_t *slots_message(const struct slots *slots, size_t *ret_len)
{
	Granary__SlotTable message = GRANARY__SLOT_TABLE__INIT;
	Granary__Worker worker = GRANARY__WORKER__INIT;
	Granary__Worker *workers[] = { &worker };
	uint8_t *packed;

	worker.has_number = worker.has_id = worker.has_weight = worker.has_domain = 1;
	worker.number = slots->worker.number;
	worker.id = slots->worker.id;
	worker.weight = slots->worker.weight;
	worker.domain = slots->worker.domain;
	worker.address = slots->address;
	message.has_epoch = message.has_sequence = message.has_slots = 1;
	message.epoch = slots->table->epoch;
	message.sequence = slots->table->sequence;
	message.n_workers = slots->address ? 1 : 0;
	message.workers = workers;
	message.slots.len = SLOTS_BYTES;
	message.slots.data = (uint8_t *)slots->table->slots;
	packed = malloc(granary__slot_table__get_packed_size(&message));
	if (packed)
		*ret_len = granary__slot_table__pack(&message, packed);
	return packed;
}
