/* The slot table as it comes from the master. See sim.h. */
#include "base/clock.h"
#include "bench/sim.h"
#include "proto/granary.pb-c.h"

#include <string.h>

#define SLOT_BYTES 8u
#define RUN_BYTES  4u /* u16 first slot, u16 count - 1 */

static uint16_t get16(const uint8_t *in)
{
	return (uint16_t)(in[0] | in[1] << 8);
}

static void take_slots(struct placement_table *table, uint32_t first, uint32_t n, const uint8_t *in)
{
	for (uint32_t i = 0; i < n; i++, in += SLOT_BYTES) {
		struct placement_slot *slot = &table->slots[first + i];

		slot->owner = get16(in);
		slot->previous = get16(in + 2);
		slot->replicas[0] = get16(in + 4);
		slot->replicas[1] = get16(in + 6);
	}
}

static int take_changes(struct placement_table *table, const uint8_t *in, size_t len)
{
	while (len) {
		uint32_t first;
		uint32_t n;

		if (len < RUN_BYTES)
			return -EBADMSG;
		first = get16(in);
		n = get16(in + 2) + 1u;
		if (first + n > PLACEMENT_SLOTS || len - RUN_BYTES < (size_t)n * SLOT_BYTES)
			return -EBADMSG;
		take_slots(table, first, n, in + RUN_BYTES);
		in += RUN_BYTES + (size_t)n * SLOT_BYTES;
		len -= RUN_BYTES + (size_t)n * SLOT_BYTES;
	}
	return 0;
}

static int take(struct sim *sim, const Granary__SlotTable *m)
{
	struct placement_table *table = sim->table;

	if (m->epoch == table->epoch && m->sequence <= table->sequence)
		return 0;
	if (m->has_slots) {
		if (m->slots.len != PLACEMENT_SLOTS * SLOT_BYTES)
			return -EBADMSG;
		take_slots(table, 0, PLACEMENT_SLOTS, m->slots.data);
	} else if (m->epoch != table->epoch || m->since > table->sequence) {
		return 0; /* changes of one that this process has not; another actor's */
	} else {
		int r = take_changes(table, m->changes.data, m->changes.len);

		if (r < 0)
			return r;
	}
	table->epoch = m->epoch;
	table->sequence = m->sequence;
	return 0;
}

int sim_take_table(struct sim_actor *actor, const void *data, size_t len)
{
	Granary__SlotTable *m = granary__slot_table__unpack(NULL, len, data);
	int r;

	if (!m)
		return -EBADMSG;
	r = take(actor->sim, m);
	actor->sim->wholes += m->has_slots;
	if (m->epoch != actor->epoch || m->sequence != actor->sequence) {
		actor->epoch = m->epoch;
		actor->sequence = m->sequence;
		actor->receipts[actor->n_receipts++ % SIM_RECEIPTS] =
			(struct sim_receipt){ m->sequence, clock_mono_ns() };
	}
	if (m->has_news)
		actor->news = m->news;
	granary__slot_table__free_unpacked(m, NULL);
	return r;
}
