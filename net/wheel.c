/* A hashed timing wheel. See wheel.h. */
#include "net/wheel.h"

/* The tick by whose start the deadline has passed. */
static uint64_t tick_of(uint64_t deadline_ns)
{
	return deadline_ns / WHEEL_TICK_NS + 1;
}

void wheel_init(struct wheel *wheel, uint64_t now_ns)
{
	for (unsigned int i = 0; i < WHEEL_SLOTS; i++)
		list_init(&wheel->slots[i]);
	wheel->tick = now_ns / WHEEL_TICK_NS + 1;
}

void wheel_add(struct wheel *wheel, struct wheel_entry *entry, uint64_t deadline_ns)
{
	uint64_t tick = max(tick_of(deadline_ns), wheel->tick);

	entry->deadline_ns = deadline_ns;
	list_push_back(&wheel->slots[tick % WHEEL_SLOTS], &entry->link);
}

void wheel_remove(struct wheel_entry *entry)
{
	list_remove(&entry->link);
}

void wheel_advance(struct wheel *wheel, uint64_t now_ns, struct list *expired)
{
	uint64_t now = now_ns / WHEEL_TICK_NS;

	/* After a long rest one turn sees every slot. */
	if (now > wheel->tick + WHEEL_SLOTS)
		wheel->tick = now - WHEEL_SLOTS;
	for (; wheel->tick <= now; wheel->tick++)
		list_for_each_safe (node, &wheel->slots[wheel->tick % WHEEL_SLOTS]) {
			struct wheel_entry *entry = list_entry(node, struct wheel_entry, link);

			if (tick_of(entry->deadline_ns) > now)
				continue;
			list_remove(node);
			list_push_back(expired, node);
		}
}

uint64_t wheel_next_ns(const struct wheel *wheel)
{
	for (unsigned int i = 0; i < WHEEL_SLOTS; i++)
		if (!list_empty(&wheel->slots[(wheel->tick + i) % WHEEL_SLOTS]))
			return (wheel->tick + i) * WHEEL_TICK_NS;
	return UINT64_MAX;
}
