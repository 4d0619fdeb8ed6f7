/* Who owns which slots, for people. See workers.h. */
#include "base/cleanup.h"
#include "master/workers.h"

#include <stdlib.h>
#include <string.h>

/* What is shown of the table. */
struct shown {
	struct membership_worker *all;
	uint32_t n;
	struct slots_table *table;
	struct hot hot;
	struct membership_sum sum;
};

static void shown_release(struct shown *s)
{
	free(s->all);
	slots_table_unref(s->table);
}

static int shown_init(struct shown *s, struct membership *m)
{
	s->table = membership_table(m, &s->hot);
	membership_sum(m, &s->sum);
	s->all = membership_workers(m, &s->n);
	return s->all ? 0 : -ENOMEM;
}

static const struct membership_worker *find(const struct shown *s, uint16_t number)
{
	for (uint32_t i = 0; i < s->n; i++)
		if (s->all[i].member.number == number)
			return &s->all[i];
	return NULL;
}

/* Failures are counted, as everywhere here. */
static void set(json_t *json, const char *name, json_t *value)
{
	(void)json_object_set_new(json, name, value);
}

static json_t *load_json(const struct membership_worker *one)
{
	const struct member *m = &one->member;

	return json_pack("{s:i, s:s, s:s, s:i, s:i, s:i, s:i}", "number", (int)m->number, "name",
		m->name, "state", member_state_name(m), "slots", (int)one->owned, "share",
		(int)one->share, "replicas", (int)one->replica, "leaving", (int)one->leaving);
}

/* The most that anybody has of his share. */
static double worst(const struct shown *s)
{
	double most = 0;

	for (uint32_t i = 0; i < s->n; i++)
		if (s->all[i].share)
			most = max(most, (double)s->all[i].owned / s->all[i].share);
	return most;
}

/* Slots whose bytes are still being pulled from one that is drained. */
static uint32_t leaving(const struct shown *s)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < s->n; i++)
		if (s->all[i].member.drain && !s->all[i].member.drained)
			n += s->all[i].leaving;
	return n;
}

static uint32_t owned(const struct placement_table *table)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < PLACEMENT_SLOTS; i++)
		n += table->slots[i].owner != PLACEMENT_NONE;
	return n;
}

int workers_slots_json(struct workers *w, json_t **ret_json, struct err *e)
{
	uint64_t failures = admin_json_failures();
	_cleanup_(shown_release) struct shown s = { 0 };
	json_t *loads = json_array();
	json_t *hot = json_array();
	json_t *json;

	if (shown_init(&s, workers_membership(w)) < 0) {
		json_decref(loads);
		json_decref(hot);
		return err_set(e, -ENOMEM, "out of memory");
	}
	for (uint32_t i = 0; i < s.n; i++)
		(void)json_array_append_new(loads, load_json(&s.all[i]));
	for (uint32_t i = 0; i < s.hot.n; i++)
		(void)json_array_append_new(hot, json_integer(s.hot.slots[i]));
	json = json_pack("{s:I, s:I, s:i, s:i, s:f, s:i, s:o, s:o, s:i}", "epoch",
		(json_int_t)s.sum.epoch, "sequence", (json_int_t)s.sum.sequence, "slots",
		(int)PLACEMENT_SLOTS, "owned", (int)owned(&s.table->table), "worst", worst(&s),
		"leaving", (int)leaving(&s), "hot", hot, "workers", loads, "watchers",
		(int)s.sum.watchers);
	if (!json || admin_json_failures() != failures) {
		json_decref(json);
		return err_set(e, -ENOMEM, "out of memory");
	}
	*ret_json = json;
	return 0;
}

static json_t *who_json(const struct shown *s, uint16_t number)
{
	const struct membership_worker *one = find(s, number);

	return one ? json_pack("{s:i, s:s, s:s}", "number", (int)number, "name", one->member.name,
			     "state", member_state_name(&one->member))
		   : json_null();
}

int workers_slot_json(struct workers *w, const char *slot, json_t **ret_json, struct err *e)
{
	uint64_t failures = admin_json_failures();
	_cleanup_(shown_release) struct shown s = { 0 };
	const struct placement_slot *entry;
	unsigned long number;
	json_t *replicas;
	char *end;
	json_t *json;

	number = strtoul(slot, &end, 10);
	if (strspn(slot, "0123456789") != strlen(slot) || *end || number >= PLACEMENT_SLOTS)
		return err_set(
			e, -EINVAL, "invalid slot '%.32s': use 0 to %u", slot, PLACEMENT_SLOTS - 1);
	if (shown_init(&s, workers_membership(w)) < 0)
		return err_set(e, -ENOMEM, "out of memory");
	entry = &s.table->table.slots[number];
	replicas = json_array();
	for (uint32_t i = 0; i < ARRAY_SIZE(entry->replicas); i++)
		if (find(&s, entry->replicas[i]))
			(void)json_array_append_new(replicas, who_json(&s, entry->replicas[i]));
	json = json_pack("{s:i, s:o, s:o, s:o, s:b}", "slot", (int)number, "owner",
		who_json(&s, entry->owner), "previous", who_json(&s, entry->previous), "replicas",
		replicas, "hot", (int)hot_is(&s.hot, (uint32_t)number));
	set(json, "sequence", json_integer((json_int_t)s.sum.sequence));
	if (!json || admin_json_failures() != failures) {
		json_decref(json);
		return err_set(e, -ENOMEM, "out of memory");
	}
	*ret_json = json;
	return 0;
}
