/* What others ask of a membership. See membership.h. */
#include "master/membership_internal.h"

#include <stdlib.h>
#include <string.h>

void membership_sum(struct membership *m, struct membership_sum *ret_sum)
{
	pthread_mutex_lock(&m->lock);
	*ret_sum = (struct membership_sum){ .epoch = m->slots.epoch,
		.sequence = m->slots.sequence,
		.watchers = m->watch.n,
		.hot = m->slots.hot.n,
		.owned = m->slots.table->table.slots[0].owner != PLACEMENT_NONE };
	members_count(&m->members, ret_sum->states);
	pthread_mutex_unlock(&m->lock);
}

uint32_t membership_owners(struct membership *m, uint64_t *ids, uint32_t max, uint64_t *ret_epoch,
	uint64_t *ret_sequence)
{
	bool owner[PLACEMENT_MAX] = { false };
	uint32_t n = 0;

	pthread_mutex_lock(&m->lock);
	for (uint32_t s = 0; s < PLACEMENT_SLOTS; s++)
		if (m->slots.table->table.slots[s].owner < PLACEMENT_MAX)
			owner[m->slots.table->table.slots[s].owner] = true;
	for (uint32_t i = 0; i < m->members.top; i++) {
		const struct member *member = m->members.all[i];

		if (!owner[i] || !member || member->removed_s || member->id == 0)
			continue;
		if (n < max)
			ids[n] = member->id;
		n++;
	}
	*ret_epoch = m->slots.epoch;
	*ret_sequence = m->slots.changed;
	pthread_mutex_unlock(&m->lock);
	return n;
}

bool membership_counts(struct membership *m, uint64_t id)
{
	const struct member *member;
	bool counts;

	pthread_mutex_lock(&m->lock);
	member = members_by_id(&m->members, id);
	counts = id ? member && !member->out : members_has_nameless(&m->members);
	pthread_mutex_unlock(&m->lock);
	return counts;
}

bool membership_is_gone(struct membership *m, uint64_t id)
{
	bool gone;

	pthread_mutex_lock(&m->lock);
	gone = members_is_gone(&m->members, id);
	pthread_mutex_unlock(&m->lock);
	return gone;
}

bool membership_name(struct membership *m, uint64_t id, char out[CLUSTER_NAME_BYTES])
{
	const struct member *member;

	pthread_mutex_lock(&m->lock);
	member = members_by_id(&m->members, id);
	if (member)
		memcpy(out, member->name, CLUSTER_NAME_BYTES);
	pthread_mutex_unlock(&m->lock);
	return member != NULL;
}

uint16_t membership_number_of(struct membership *m, uint64_t id)
{
	const struct member *member;
	uint16_t number;

	pthread_mutex_lock(&m->lock);
	member = members_by_id(&m->members, id);
	number = member ? member->number : PLACEMENT_NONE;
	pthread_mutex_unlock(&m->lock);
	return number;
}

int membership_number(struct membership *m, const char *name, uint16_t *ret_number, struct err *e)
{
	struct member *member = NULL;
	int r;

	pthread_mutex_lock(&m->lock);
	r = members_find(&m->members, name, &member, e);
	if (r == 0)
		*ret_number = member->number;
	pthread_mutex_unlock(&m->lock);
	return r;
}

struct slots_table *membership_table(struct membership *m, struct hot *ret_hot)
{
	struct slots_table *table;

	pthread_mutex_lock(&m->lock);
	table = slots_table_ref(m->slots.table);
	*ret_hot = m->slots.hot;
	pthread_mutex_unlock(&m->lock);
	return table;
}

static void copy_member(const struct member *from, struct membership_worker *to)
{
	to->member = *from;
	memset(to->member.addresses, 0, sizeof(to->member.addresses));
	for (uint32_t i = 0; i < from->n_addresses; i++)
		(void)snprintf(
			to->addresses[i], MEMBER_TEXT_BYTES, "%s", from->addresses[i]); /* fits */
}

/* A slot of a drained worker whose new owner went down meanwhile cannot be handed over. */
static void count_wait(const struct membership_worker *owner, struct membership_worker *previous)
{
	if (previous->member.drain && owner->member.state == CLUSTER_DOWN &&
		previous->waiting++ == 0)
		memcpy(previous->waits_for, owner->member.name, CLUSTER_NAME_BYTES);
}

static void count_slots(
	const struct placement_table *table, struct membership_worker *all, uint32_t n)
{
	uint16_t at[PLACEMENT_MAX];

	memset(at, 0xff, sizeof(at));
	for (uint32_t i = 0; i < n; i++)
		at[all[i].member.number] = (uint16_t)i;
	for (uint32_t s = 0; s < PLACEMENT_SLOTS; s++) {
		const struct placement_slot *slot = &table->slots[s];
		uint16_t owner = slot->owner < PLACEMENT_MAX ? at[slot->owner] : UINT16_MAX;
		uint16_t previous =
			slot->previous < PLACEMENT_MAX ? at[slot->previous] : UINT16_MAX;

		if (owner != UINT16_MAX)
			all[owner].owned++;
		if (previous != UINT16_MAX && slot->previous != slot->owner)
			all[previous].leaving++;
		if (owner != UINT16_MAX && previous != UINT16_MAX)
			count_wait(&all[owner], &all[previous]);
		for (uint32_t k = 0; k < ARRAY_SIZE(slot->replicas); k++)
			if (slot->replicas[k] < PLACEMENT_MAX &&
				at[slot->replicas[k]] != UINT16_MAX)
				all[at[slot->replicas[k]]].replica++;
	}
}

static void count_shares(struct membership_worker *all, uint32_t n)
{
	double sum = 0;

	for (uint32_t i = 0; i < n; i++)
		if (!all[i].member.drain && !all[i].member.out)
			sum += all[i].member.weight;
	for (uint32_t i = 0; i < n && sum > 0; i++)
		if (!all[i].member.drain && !all[i].member.out)
			all[i].share =
				(uint32_t)(PLACEMENT_SLOTS * (all[i].member.weight / sum) + 0.5);
}

/* Owners who say that they have no room take nothing from one that is drained. */
static void find_stuck(struct membership_worker *all, uint32_t n)
{
	uint32_t owners = 0;
	uint32_t full = 0;

	for (uint32_t i = 0; i < n; i++) {
		const struct member *m = &all[i].member;
		bool owner = m->state == CLUSTER_UP && !m->drain;

		owners += owner;
		full += owner && m->full;
	}
	for (uint32_t i = 0; i < n; i++) {
		const struct member *m = &all[i].member;

		all[i].stuck = m->state == CLUSTER_DRAINING && !m->drained && m->counted &&
			       m->only_copies > 0 && owners > 0 && full == owners;
	}
}

struct membership_worker *membership_workers(struct membership *m, uint32_t *ret_n)
{
	struct membership_worker *all;
	struct slots_table *table;
	uint32_t n = 0;

	pthread_mutex_lock(&m->lock);
	all = calloc(m->members.n + 1u, sizeof(*all));
	for (uint32_t i = 0; all && i < m->members.top; i++)
		if (m->members.all[i] && !m->members.all[i]->removed_s)
			copy_member(m->members.all[i], &all[n++]);
	table = slots_table_ref(m->slots.table);
	pthread_mutex_unlock(&m->lock);
	if (all) {
		count_slots(&table->table, all, n);
		count_shares(all, n);
		find_stuck(all, n);
	}
	slots_table_unref(table);
	*ret_n = n;
	return all;
}
