/* Destinations of a lane. See lane_table.h. */
#include "net/lane_table.h"
#include "base/err.h"

#include <stdlib.h>

struct transition {
	uint8_t to;
	uint8_t verdict;
	bool possible; /* else the event cannot follow here: LANE_BREAK when a peer caused it, or a bug of this process */
};

#define GOES(state, result)                                                    \
	{                                                                      \
		.to = LANE_##state, .verdict = LANE_##result, .possible = true \
	}

/* All that can happen. What is missing cannot. */
static const struct transition transitions[LANE_N_STATES][LANE_N_EVENTS] = {
	[LANE_ASKED] = {
		[LANE_ON_HEADER] = GOES(HEADER, WAIT),
		[LANE_ON_ABSENT] = GOES(FREE, RELEASE),
		[LANE_ON_IMMEDIATE] = GOES(IMMEDIATE, WAIT),
		[LANE_ON_CANCEL] = GOES(QUARANTINED, WAIT),
		[LANE_ON_FENCE] = GOES(FREE, REPEAT),
	},
	[LANE_HEADER] = {
		[LANE_ON_IMMEDIATE] = GOES(FREE, COMPLETE),
		[LANE_ON_CANCEL] = GOES(QUARANTINED, WAIT),
		[LANE_ON_FENCE] = GOES(FREE, REPEAT),
	},
	[LANE_IMMEDIATE] = {
		[LANE_ON_HEADER] = GOES(FREE, COMPLETE),
		/* All bytes were written before the immediate: no quarantine. */
		[LANE_ON_CANCEL] = GOES(FREE, RELEASE),
		[LANE_ON_FENCE] = GOES(FREE, REPEAT),
	},
	[LANE_QUARANTINED] = {
		[LANE_ON_HEADER] = GOES(QUARANTINED, WAIT),
		[LANE_ON_ABSENT] = GOES(FREE, RELEASE),
		[LANE_ON_IMMEDIATE] = GOES(FREE, RELEASE),
		[LANE_ON_FENCE] = GOES(FREE, RELEASE),
	},
};

int lane_table_init(struct lane_table *table, uint32_t slots, uint64_t share)
{
	ensure(slots > 0 && slots <= LANE_SLOTS_MAX);
	*table = (struct lane_table){ .n = slots, .n_free = slots, .share = share };
	table->slots = calloc(slots, sizeof(*table->slots));
	if (!table->slots)
		return -ENOMEM;
	for (uint32_t i = 0; i < slots; i++)
		table->slots[i].next = (uint16_t)(i + 1);
	table->last_free = (uint16_t)(slots - 1);
	return 0;
}

void lane_table_release(struct lane_table *table)
{
	ensure(table->n_free == table->n && table->bytes == 0 && table->quarantined == 0);
	free(table->slots);
	*table = (struct lane_table){ 0 };
}

int lane_table_ask(struct lane_table *table, void *owner, uint32_t bytes, uint32_t *ret_cookie)
{
	uint16_t number = table->first_free;
	struct lane_slot *slot;

	ensure(bytes > 0);
	if (table->n_free == 0 || table->bytes + bytes > table->share)
		return -ENOBUFS;
	slot = &table->slots[number];
	ensure(slot->state == LANE_FREE);
	table->first_free = slot->next;
	table->n_free--;
	table->bytes += bytes;
	slot->state = LANE_ASKED;
	slot->bytes = bytes;
	slot->owner = owner;
	*ret_cookie = (uint32_t)number << 16 | slot->generation;
	return 0;
}

static void slot_free(struct lane_table *table, struct lane_slot *slot)
{
	uint16_t number = (uint16_t)(slot - table->slots);

	table->bytes -= slot->bytes;
	slot->generation++;
	slot->bytes = 0;
	slot->owner = NULL;
	if (table->n_free++ == 0)
		table->first_free = number;
	else
		table->slots[table->last_free].next = number;
	table->last_free = number;
}

static struct lane_slot *slot_find(const struct lane_table *table, uint32_t cookie)
{
	uint32_t number = cookie >> 16;
	struct lane_slot *slot;

	if (number >= table->n)
		return NULL;
	slot = &table->slots[number];
	return slot->state != LANE_FREE && slot->generation == (cookie & 0xffff) ? slot : NULL;
}

static enum lane_verdict slot_event(
	struct lane_table *table, struct lane_slot *slot, enum lane_event event)
{
	const struct transition *t = &transitions[slot->state][event];

	if (!t->possible) {
		ensure(event != LANE_ON_CANCEL && event != LANE_ON_FENCE);
		return LANE_BREAK;
	}
	if (slot->state == LANE_QUARANTINED)
		table->quarantined -= slot->bytes;
	slot->state = t->to;
	if (slot->state == LANE_QUARANTINED)
		table->quarantined += slot->bytes;
	if (slot->state == LANE_FREE)
		slot_free(table, slot);
	return t->verdict;
}

enum lane_verdict lane_table_event(
	struct lane_table *table, uint32_t cookie, enum lane_event event, void **ret_owner)
{
	struct lane_slot *slot = slot_find(table, cookie);

	*ret_owner = NULL;
	if (!slot) {
		ensure(event != LANE_ON_CANCEL && event != LANE_ON_FENCE);
		return LANE_BREAK;
	}
	*ret_owner = slot->owner;
	return slot_event(table, slot, event);
}

void lane_table_fence(struct lane_table *table,
	void (*freed)(void *arg, void *owner, enum lane_verdict verdict), void *arg)
{
	for (uint32_t i = 0; i < table->n; i++) {
		struct lane_slot *slot = &table->slots[i];
		void *owner = slot->owner;

		if (slot->state != LANE_FREE)
			freed(arg, owner, slot_event(table, slot, LANE_ON_FENCE));
	}
}

bool lane_table_choked(const struct lane_table *table)
{
	return table->quarantined > table->share / LANE_QUARANTINE_PART;
}

enum lane_state lane_table_state(const struct lane_table *table, uint32_t cookie)
{
	const struct lane_slot *slot = slot_find(table, cookie);

	return slot ? (enum lane_state)slot->state : LANE_FREE;
}
