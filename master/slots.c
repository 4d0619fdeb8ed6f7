/* The slot table and its messages. See slots.h. */
#include "master/slots.h"
#include "base/cleanup.h"
#include "base/log.h"
#include "master/record.h"
#include "placement/placement_delta.h"
#include "proto/granary.pb-c.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define STORED_MAGIC   0x31544c53u /* "SLT1" */
#define STORED_VERSION 1u
#define MEMBER_WORDS   (PLACEMENT_MAX / 64u)
#define WHOLE          SLOTS_STEPS
#define SLOTS_FIELD    0x22 /* field 4, bytes */

static_assert(sizeof(struct placement_slot) == 8, "slots travel as four u16");
static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "slots travel as they lie in memory");
static_assert(SLOTS_BYTES + 16 <= STORE_VALUE_BYTES, "a slot table is one value");
static_assert(SLOTS_BYTES == 512 * 1024, "its length is written below");

/* ---- tables ---------------------------------------------------------------------------------- */

struct slots_table *slots_table_copy(const struct slots_table *table)
{
	struct slots_table *copy = malloc(sizeof(*copy));

	if (!copy)
		return NULL;
	atomic_init(&copy->refs, 1);
	if (table)
		copy->table = table->table;
	else
		memset(&copy->table, 0xff, sizeof(copy->table)); /* PLACEMENT_NONE everywhere */
	if (!table)
		copy->table.epoch = copy->table.sequence = 0;
	return copy;
}

struct slots_table *slots_table_ref(struct slots_table *table)
{
	atomic_fetch_add(&table->refs, 1);
	return table;
}

void slots_table_unref(struct slots_table *table)
{
	if (table && atomic_fetch_sub(&table->refs, 1) == 1)
		free(table);
}

/* ---- stored ---------------------------------------------------------------------------------- */

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

static int load_table(struct store *store, struct slots *slots)
{
	_cleanup_(buf_release) struct buf value = BUF_INIT(STORE_VALUE_BYTES);
	const uint8_t *from;
	int r = store->ops->get(store, "slots", &value);

	if (r == -ENOENT)
		return 0;
	if (r < 0)
		return r;
	r = take_head(&value, &slots->sequence, &from);
	if (r == 0)
		memcpy(slots->table->table.slots, from, SLOTS_BYTES);
	return r;
}

int slots_encode(const struct placement_table *table, uint64_t sequence, struct buf *out)
{
	const uint32_t head[2] = { STORED_MAGIC, STORED_VERSION };
	int r = buf_append(out, head, sizeof(head));

	if (r == 0)
		r = buf_append(out, &sequence, 8);
	return r == 0 ? buf_append(out, table->slots, SLOTS_BYTES) : r;
}

int slots_open(struct store *store, uint64_t epoch, struct slots *ret_slots, struct err *e)
{
	struct slots slots = { .epoch = epoch, .table = slots_table_copy(NULL) };
	int r = slots.table ? load_table(store, &slots) : -ENOMEM;

	if (r < 0) {
		slots_release(&slots);
		if (r == -EPROTONOSUPPORT || r == -EBADMSG)
			return record_refuse(e, r, "a slot table");
		return err_set(e, r,
			"the master's slot table cannot be read: %s: check the disk of its state",
			err_str(r));
	}
	slots.first = slots.changed = slots.sequence;
	slots.news = epoch; /* of milliseconds: more than any run before said */
	*ret_slots = slots;
	return 0;
}

/* ---- messages -------------------------------------------------------------------------------- */

static void message_unref(void *arg)
{
	struct slots_message *message = arg;

	if (!message || atomic_fetch_sub(&message->refs, 1) != 1)
		return;
	slots_table_unref(message->table);
	free(message);
}

struct net_payload slots_payload(struct slots_message *message)
{
	struct net_payload payload = NET_PAYLOAD_NONE;

	payload.parts[0].data = message->head;
	payload.parts[0].len = message->len;
	payload.n = 1;
	if (message->table) {
		payload.parts[1].data = message->table->table.slots;
		payload.parts[1].len = SLOTS_BYTES;
		payload.n = 2;
	}
	payload.release = message_unref;
	payload.arg = message;
	return payload;
}

static void forget_made(struct slots *slots)
{
	for (uint32_t i = 0; i <= WHOLE; i++)
		message_unref(TAKE(slots->made[i]));
}

void slots_release(struct slots *slots)
{
	forget_made(slots);
	for (uint32_t i = 0; i < SLOTS_STEPS; i++)
		buf_release(&slots->steps[i].slots);
	slots_table_unref(slots->table);
	*slots = (struct slots){ 0 };
}

void slots_set_news(struct slots *slots, uint64_t news)
{
	slots->news = news;
	forget_made(slots);
}

/* What one message is packed from. */
struct draft {
	Granary__SlotTable m;
	Granary__Worker *workers;
	Granary__Worker **pointers;
	struct buf changes;
};

static void draft_release(struct draft *d)
{
	free(d->workers);
	free(d->pointers);
	buf_release(&d->changes);
}

static void fill_worker(Granary__Worker *w, const struct member *m)
{
	w->has_id = w->has_weight = w->has_domain = w->has_state = 1;
	w->id = m->id;
	w->weight = m->weight;
	w->domain = m->domain;
	w->state = m->state;
	w->n_addresses = m->n_addresses;
	w->addresses = (char **)(uintptr_t)m->addresses; /* read only, as the following */
	w->address = m->n_addresses ? m->addresses[0] : NULL;
	w->name = (char *)(uintptr_t)m->name;
	w->domain_name = (char *)(uintptr_t)m->domain_name;
	w->has_host = 1;
	w->host = (ProtobufCBinaryData){ CLUSTER_HOST_BYTES, (uint8_t *)(uintptr_t)m->host };
}

static bool bit(const uint64_t *bits, uint32_t i)
{
	return bits[i / 64] >> i % 64 & 1;
}

/* Those of `which`; NULL: all that are members. */
static int add_workers(struct draft *d, const struct members *members, const uint64_t *which)
{
	d->workers = calloc(members->top + 1u, sizeof(*d->workers));
	d->pointers = calloc(members->top + 1u, sizeof(*d->pointers));
	if (!d->workers || !d->pointers)
		return -ENOMEM;
	d->m.workers = d->pointers;
	for (uint32_t i = 0; i < members->top; i++) {
		const struct member *m = members->all[i];
		bool there = m && !m->removed_s;
		Granary__Worker *w = &d->workers[d->m.n_workers];

		if ((which ? !bit(which, i) : !there) || (there && m->id == 0))
			continue; /* one that has not joined has no address */
		granary__worker__init(w);
		w->has_number = 1;
		w->number = i;
		if (there)
			fill_worker(w, m);
		w->has_gone = !there;
		w->gone = !there;
		d->pointers[d->m.n_workers++] = w;
	}
	return 0;
}

/* Those of the last `n` steps, one behind the other. */
static int add_changes(struct draft *d, const struct slots *slots, uint32_t n)
{
	int r = 0;

	for (uint64_t s = slots->sequence - n + 1; s <= slots->sequence && r == 0; s++) {
		const struct buf *step = &slots->steps[s % SLOTS_STEPS].slots;

		r = buf_append(&d->changes, buf_str(step), step->len);
	}
	d->m.has_changes = 1;
	d->m.changes = (ProtobufCBinaryData){ d->changes.len, (uint8_t *)d->changes.data };
	return r;
}

static struct slots_message *pack(const struct slots *slots, struct draft *d, bool whole)
{
	static const uint8_t field[] = { SLOTS_FIELD, 0x80, 0x80,
		0x20 }; /* and 512 KiB as varint */
	struct slots_message *message;
	size_t len;

	d->m.has_epoch = d->m.has_sequence = d->m.has_news = d->m.has_slots_sequence = 1;
	d->m.epoch = slots->epoch;
	d->m.sequence = slots->sequence;
	d->m.slots_sequence = slots->changed;
	d->m.news = slots->news;
	d->m.n_hot = slots->hot.n;
	d->m.hot = (uint32_t *)(uintptr_t)slots->hot.slots; /* read only */
	len = granary__slot_table__get_packed_size(&d->m);
	message = malloc(sizeof(*message) + len + sizeof(field));
	if (!message)
		return NULL;
	atomic_init(&message->refs, 1);
	message->table = whole ? slots_table_ref(slots->table) : NULL;
	message->len = granary__slot_table__pack(&d->m, message->head);
	if (whole) {
		memcpy(message->head + message->len, field, sizeof(field));
		message->len += sizeof(field);
	}
	return message;
}

static struct slots_message *make_whole(const struct slots *slots, const struct members *members)
{
	_cleanup_(draft_release) struct draft d = { .m = GRANARY__SLOT_TABLE__INIT };

	return add_workers(&d, members, NULL) == 0 ? pack(slots, &d, true) : NULL;
}

/* What the last `n` steps changed; NULL also when that is too much. */
static struct slots_message *make_changes(
	const struct slots *slots, const struct members *members, uint32_t n)
{
	_cleanup_(draft_release) struct draft d = { .m = GRANARY__SLOT_TABLE__INIT,
		.changes = BUF_INIT(SLOTS_DELTA) };
	uint64_t who[MEMBER_WORDS] = { 0 };

	for (uint64_t s = slots->sequence - n + 1; s <= slots->sequence; s++)
		for (uint32_t i = 0; i < MEMBER_WORDS; i++)
			who[i] |= slots->steps[s % SLOTS_STEPS].members[i];
	d.m.has_since = 1;
	d.m.since = slots->sequence - n;
	if (add_workers(&d, members, who) < 0 || add_changes(&d, slots, n) < 0)
		return NULL;
	return pack(slots, &d, false);
}

/* Another reference; NULL stays NULL. */
static struct slots_message *share(struct slots_message *message)
{
	if (message)
		atomic_fetch_add(&message->refs, 1);
	return message;
}

static struct slots_message *whole_message(struct slots *slots, const struct members *members)
{
	struct slots_message **made = &slots->made[WHOLE];

	if (!*made)
		*made = make_whole(slots, members);
	return share(*made);
}

struct slots_message *slots_message(
	struct slots *slots, const struct members *members, uint64_t epoch, uint64_t sequence)
{
	bool whole = epoch != slots->epoch || sequence > slots->sequence || sequence < slots->first;
	struct slots_message **made;

	if (whole)
		return whole_message(slots, members);
	made = &slots->made[slots->sequence - sequence];
	if (!*made)
		*made = make_changes(slots, members, (uint32_t)(slots->sequence - sequence));
	if (!*made) /* kept as well: ten thousand ask from there, and it is tried once */
		*made = whole_message(slots, members);
	return share(*made);
}

/* ---- versions -------------------------------------------------------------------------------- */

static void forget_step(struct slots *slots, struct slots_step *step)
{
	slots->delta_bytes -= step->slots.len;
	buf_release(&step->slots);
}

/* Of the oldest, as many as it takes. */
static void bound_deltas(struct slots *slots)
{
	while (slots->delta_bytes > SLOTS_DELTAS)
		forget_step(slots, &slots->steps[++slots->first % SLOTS_STEPS]);
}

/* No message has the changes that lead over this one, so those before it are of no use, and would use up the room of those to come. */
static void forget_steps(struct slots *slots)
{
	for (uint32_t i = 0; i < SLOTS_STEPS; i++)
		forget_step(slots, &slots->steps[i]);
	slots->first = slots->sequence;
}

void slots_publish(
	struct slots *slots, struct slots_table *table, const uint64_t members[PLACEMENT_MAX / 64])
{
	struct slots_step *step = &slots->steps[++slots->sequence % SLOTS_STEPS];

	forget_made(slots);
	forget_step(slots, step);
	step->slots = (struct buf)BUF_INIT(SLOTS_DELTA);
	memcpy(step->members, members, sizeof(step->members));
	if (slots->sequence - slots->first >= SLOTS_STEPS)
		slots->first = slots->sequence - SLOTS_STEPS + 1;
	if (!table)
		return;
	if (placement_delta_encode(slots->table->table.slots, table->table.slots, &step->slots) < 0)
		forget_steps(slots);
	slots->delta_bytes += step->slots.len;
	bound_deltas(slots);
	slots_table_unref(slots->table);
	slots->table = table;
	slots->changed = slots->sequence;
}
