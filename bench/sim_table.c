/*
 * The slot table as it comes from the master. See sim.h.
 *
 * A client stands for a machine of its own: one of each process puts the table together, of what the others get only
 * the version is looked at.
 */
#include "base/clock.h"
#include "bench/sim.h"
#include "placement/placement_delta.h"
#include "proto/granary.pb-c.h"

#include <string.h>

#define SLOT_BYTES 8u

/* Numbers of the fields of SlotTable. */
enum field { FIELD_EPOCH = 1, FIELD_SEQUENCE = 2, FIELD_SLOTS = 4, FIELD_NEWS = 7 };

/* ---- the version alone ----------------------------------------------------------------------- */

struct head {
	uint64_t epoch;
	uint64_t sequence;
	uint64_t news;
	bool whole;
};

static bool get_varint(const uint8_t **in, const uint8_t *end, uint64_t *ret)
{
	uint64_t value = 0;

	for (uint32_t shift = 0; shift < 64 && *in < end; shift += 7) {
		uint8_t byte = *(*in)++;

		value |= (uint64_t)(byte & 0x7f) << shift;
		if (byte < 0x80) {
			*ret = value;
			return true;
		}
	}
	return false;
}

/* Fields are varints and things with a length only. */
static int look(const uint8_t *in, size_t len, struct head *ret)
{
	const uint8_t *end = in + len;
	uint64_t key;
	uint64_t value;

	*ret = (struct head){ 0 };
	while (in < end) {
		if (!get_varint(&in, end, &key) || !get_varint(&in, end, &value))
			return -EBADMSG;
		if ((key & 7) == 2) {
			if (value > (uint64_t)(end - in))
				return -EBADMSG;
			in += value;
		} else if ((key & 7) != 0) {
			return -EBADMSG;
		}
		if (key >> 3 == FIELD_EPOCH)
			ret->epoch = value;
		else if (key >> 3 == FIELD_SEQUENCE)
			ret->sequence = value;
		else if (key >> 3 == FIELD_NEWS)
			ret->news = value;
		else if (key >> 3 == FIELD_SLOTS)
			ret->whole = true;
	}
	return 0;
}

/* ---- the keeper's ---------------------------------------------------------------------------- */

static uint16_t get16(const uint8_t *in)
{
	return (uint16_t)(in[0] | in[1] << 8);
}

static void take_whole(struct placement_table *table, const uint8_t *in)
{
	for (uint32_t i = 0; i < PLACEMENT_SLOTS; i++, in += SLOT_BYTES) {
		struct placement_slot *slot = &table->slots[i];

		slot->owner = get16(in);
		slot->previous = get16(in + 2);
		slot->replicas[0] = get16(in + 4);
		slot->replicas[1] = get16(in + 6);
	}
}

/* -ENODATA: it is not what follows the table that this process has. */
static int take(struct placement_table *table, const Granary__SlotTable *m)
{
	if (m->epoch == table->epoch && m->sequence <= table->sequence)
		return 0;
	if (m->has_slots) {
		if (m->slots.len != PLACEMENT_SLOTS * SLOT_BYTES)
			return -EBADMSG;
		take_whole(table, m->slots.data);
	} else if (m->epoch != table->epoch || m->since != table->sequence) {
		return -ENODATA;
	} else if (placement_delta_apply(table->slots, m->changes.data, m->changes.len) < 0) {
		return -EBADMSG;
	}
	table->epoch = m->epoch;
	table->sequence = m->sequence;
	return 0;
}

static int keep(struct sim *sim, const void *data, size_t len)
{
	Granary__SlotTable *m = granary__slot_table__unpack(NULL, len, data);
	int r = m ? take(sim->table, m) : -EBADMSG;

	if (m)
		granary__slot_table__free_unpacked(m, NULL);
	return r;
}

int sim_take_table(struct sim_actor *actor, const void *data, size_t len)
{
	struct head head;
	int r = look(data, len, &head);

	if (r == 0 && actor == actor->sim->keeper)
		r = keep(actor->sim, data, len);
	if (r < 0)
		return r;
	actor->sim->wholes += head.whole;
	actor->sim->bytes += len;
	if (head.epoch != actor->epoch || head.sequence != actor->sequence) {
		actor->epoch = head.epoch;
		actor->sequence = head.sequence;
		actor->receipts[actor->n_receipts++ % SIM_RECEIPTS] =
			(struct sim_receipt){ head.sequence, clock_mono_ns() };
	}
	actor->news = head.news;
	return 0;
}
