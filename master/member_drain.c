/* Taking members out. See members.h. */
#include "base/hash.h"
#include "base/units.h"
#include "master/events.h"
#include "master/members_internal.h"

uint32_t member_drain_number(void)
{
	uint32_t number;

	hash_random(&number, sizeof(number));
	return max(number, 1u);
}

void members_take_back_drain(struct members *members, struct member *m, bool drain)
{
	m->drain = drain;
	m->drain_number = drain ? member_drain_number() : 0;
	m->drained = m->counted = false;
	m->only_copies = 0;
	m->stored = false;
	if (m->state == CLUSTER_UP || m->state == CLUSTER_DRAINING)
		members_set_state(members, m, member_alive_state(m));
	members_changed(members, m, true);
}

int members_drain(struct members *members, struct member *m, bool drain, struct err *e)
{
	if (m->drain == drain)
		return 0;
	if (drain && !m->out && !members_another_owns(members, m, true))
		return err_set(e, -EBUSY,
			"worker %s is the only one that is up, so no other can own its data: start "
			"another first",
			m->name);
	members_take_back_drain(members, m, drain);
	return 0;
}

bool member_is_drained(const struct member *m)
{
	return m->drain && m->drained;
}

static int may_remove(const struct member *m, uint64_t bytes, struct err *e)
{
	char size[16];

	if (member_is_drained(m))
		return 0;
	if (m->state == CLUSTER_UP)
		return err_set(e, -EBUSY,
			"worker %s is up: run cachectl worker drain %s --wait first; --force "
			"fetches data stored only on it from the origin again",
			m->name, m->name);
	if (m->state == CLUSTER_DRAINING && m->counted)
		return err_set(e, -EBUSY,
			"worker %s has %s that no other worker has yet: wait (cachectl worker "
			"drain %s --wait); --force fetches them from the origin again",
			m->name, units_size(m->only_copies, size, sizeof(size)), m->name);
	if (m->state == CLUSTER_DRAINING)
		return err_set(e, -EBUSY,
			"worker %s is being drained, and is still counting the data stored only on "
			"it: wait (cachectl worker drain %s --wait)",
			m->name, m->name);
	if (bytes > 0)
		return err_set(e, -EBUSY,
			"worker %s is %s and has %s that may be stored nowhere else: start it and "
			"drain it; --force fetches them from the origin again",
			m->name, member_state_name(m), units_size(bytes, size, sizeof(size)));
	return 0;
}

int members_remove(struct members *members, struct member *m, uint64_t bytes, bool force,
	int64_t now_s, struct err *e)
{
	int r = 0;

	if (member_owns(m) && members->n > 1 && !members_another_owns(members, m, false))
		return err_set(e, -EBUSY,
			"worker %s is the only one that owns slots: undrain another with cachectl "
			"worker undrain, or start one",
			m->name);
	if (!force)
		r = may_remove(m, bytes, e);
	if (r < 0)
		return r;
	member_note(m, EVENT_WARN, "was removed");
	m->removed_s = max(now_s, (int64_t)1);
	m->stored = false;
	members->n--;
	members_changed(members, m, true);
	return 0;
}

uint32_t members_rested(struct members *members, int64_t now_s, uint16_t *numbers, uint32_t max)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < members->top && n < max; i++) {
		struct member *m = members->all[i];

		if (!m || !m->removed_s || !m->stored || now_s - m->removed_s < MEMBER_REST_S)
			continue;
		members_set_id(members, m, 0);
		members->all[i] = NULL;
		numbers[n++] = m->number;
		member_free(m);
	}
	return n;
}
