/* From what changed to the next table. See membership.h. */
#include "base/cleanup.h"
#include "base/crash_point.h"
#include "base/log.h"
#include "master/events.h"
#include "master/membership_internal.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define STORE_AT_ONCE 256u /* members in one write */

/* What one step is made from. */
struct step {
	uint64_t dirty[PLACEMENT_MAX / 64];
	bool moves;
	struct placement_worker workers[PLACEMENT_MAX];
	uint32_t n;
	bool any; /* of them may own slots */
	bool known[PLACEMENT_MAX];
	struct slots_table *old;
	struct slots_table *next; /* NULL: the slots stay */
	uint64_t sequence;        /* that it makes */
	int moved;
	/* Monotonic ns, for people: */
	uint64_t changed_ns;
	uint64_t begun_ns;
	uint64_t repaired_ns;
};

static bool begin(struct membership *m, struct step *step)
{
	pthread_mutex_lock(&m->lock);
	if (!m->is_dirty) {
		pthread_mutex_unlock(&m->lock);
		return false;
	}
	memcpy(step->dirty, m->dirty, sizeof(step->dirty));
	memset(m->dirty, 0, sizeof(m->dirty));
	step->moves = m->moves;
	step->begun_ns = clock_mono_ns();
	step->changed_ns = min(m->changed_ns, step->begun_ns);
	m->is_dirty = m->moves = m->only_hot = false;
	step->n = members_placement(&m->members, step->workers, &step->any);
	if (step->moves)
		members_pass_over(&m->members);
	step->old = slots_table_ref(m->slots.table);
	step->sequence = m->slots.sequence + 1;
	pthread_mutex_unlock(&m->lock);
	for (uint32_t i = 0; i < step->n; i++)
		step->known[step->workers[i].number] = true;
	return true;
}

/* It is made again, with what comes meanwhile. */
static void put_back(struct membership *m, const struct step *step)
{
	counter_add(&m->counters.failed_steps, 1);
	pthread_mutex_lock(&m->lock);
	for (uint32_t i = 0; i < ARRAY_SIZE(m->dirty); i++)
		m->dirty[i] |= step->dirty[i];
	m->is_dirty = true;
	m->moves |= step->moves;
	m->only_hot = false;
	m->due_ns = clock_mono_ns() + RETRY_NS;
	pthread_mutex_unlock(&m->lock);
}

static bool is_known(const struct step *step, uint16_t number)
{
	return number < PLACEMENT_MAX && step->known[number];
}

/* The number of a member that is gone may be another's one day. */
static void forget_gone(const struct step *step, struct placement_table *table)
{
	for (uint32_t s = 0; s < PLACEMENT_SLOTS; s++) {
		struct placement_slot *slot = &table->slots[s];

		if (!is_known(step, slot->owner) && slot->owner != PLACEMENT_NONE) {
			slot->owner = PLACEMENT_NONE;
			slot->previous = PLACEMENT_NONE;
		}
		if (!is_known(step, slot->previous))
			slot->previous = PLACEMENT_NONE;
	}
}

static int repair(struct step *step)
{
	int r;

	step->next = slots_table_copy(step->old);
	if (!step->next)
		return -ENOMEM;
	step->next->table.epoch = 0; /* the version is that of struct slots */
	step->next->table.sequence = 0;
	forget_gone(step, &step->next->table);
	if (!step->any) {
		memset(step->next->table.slots, 0xff, SLOTS_BYTES); /* PLACEMENT_NONE */
		return 0;
	}
	r = placement_repair(&step->next->table, step->workers, step->n, REPLICAS);
	step->moved = max(r, 0);
	return min(r, 0);
}

static bool same_slots(const struct step *step)
{
	return memcmp(step->old->table.slots, step->next->table.slots, SLOTS_BYTES) == 0;
}

/* Members that are not stored as they are: at most STORE_AT_ONCE, the others with the next step. */
struct writing {
	char keys[STORE_AT_ONCE][32];
	struct buf values[STORE_AT_ONCE];
	uint16_t numbers[STORE_AT_ONCE];
	uint32_t n;
	bool more;
};

static int gather_members(struct membership *m, struct writing *w)
{
	int r = 0;

	pthread_mutex_lock(&m->lock);
	for (uint32_t i = 0; i < m->members.top && r == 0; i++) {
		const struct member *member = m->members.all[i];

		if (!member || member->stored || member->id == 0)
			continue;
		if (w->n == STORE_AT_ONCE) {
			w->more = true;
			break;
		}
		w->values[w->n] = (struct buf)BUF_INIT(STORE_VALUE_BYTES);
		member_key(member->number, w->keys[w->n]);
		w->numbers[w->n] = member->number;
		r = member_encode(member, &w->values[w->n++]);
	}
	pthread_mutex_unlock(&m->lock);
	return r;
}

/* Only holders of `lock` change what is stored of a member meanwhile: then it is stored again. */
void membership_mark_stored_locked(struct membership *m, uint16_t number, const struct buf *value)
{
	struct member *member = m->members.all[number];
	struct buf now = BUF_INIT(STORE_VALUE_BYTES);

	if (member && member_encode(member, &now) == 0 && now.len == value->len &&
		memcmp(now.data, value->data, now.len) == 0)
		member->stored = true;
	buf_release(&now);
}

static void mark_stored(struct membership *m, const struct writing *w)
{
	pthread_mutex_lock(&m->lock);
	for (uint32_t i = 0; i < w->n; i++)
		membership_mark_stored_locked(m, w->numbers[i], &w->values[i]);
	pthread_mutex_unlock(&m->lock);
}

/* There are members left that are not stored. */
static void go_on(struct membership *m)
{
	pthread_mutex_lock(&m->lock);
	if (!m->is_dirty || m->only_hot)
		m->due_ns = clock_mono_ns() + PACE_NS;
	m->is_dirty = true;
	m->only_hot = false;
	pthread_mutex_unlock(&m->lock);
}

int membership_store_all(struct membership *m, const struct store_change *more, bool *ret_rest)
{
	struct store_change changes[STORE_AT_ONCE + 1];
	_cleanup_free_ struct writing *w = calloc(1, sizeof(*w));
	uint32_t n = 0;
	int r = w ? gather_members(m, w) : -ENOMEM;

	if (more)
		changes[n++] = *more;
	for (uint32_t i = 0; r == 0 && i < w->n; i++)
		changes[n++] =
			(struct store_change){ w->keys[i], w->values[i].data, w->values[i].len };
	if (r == 0 && n > 0)
		r = m->config.store->ops->write(m->config.store, changes, n);
	if (r == 0)
		mark_stored(m, w);
	for (uint32_t i = 0; w && i < w->n; i++)
		buf_release(&w->values[i]);
	if (r == 0)
		*ret_rest = w->more;
	return r;
}

/* The table, if it is another, with the members that changed, in one write. */
static int store_step(struct membership *m, const struct step *step)
{
	_cleanup_(buf_release) struct buf table = BUF_INIT(STORE_VALUE_BYTES);
	struct store_change change = { .key = "slots" };
	bool rest = false;
	int r = 0;

	if (step->next)
		r = slots_encode(&step->next->table, step->sequence, &table);
	change.value = table.data;
	change.len = table.len;
	CRASH_POINT("slots.assigned");
	if (r == 0)
		r = membership_store_all(m, step->next ? &change : NULL, &rest);
	CRASH_POINT("slots.stored");
	if (r == 0 && rest)
		go_on(m);
	return r;
}

static void publish(struct membership *m, struct step *step)
{
	if (step->moved)
		log_info("slots moved",
			"slots=%d sequence=%" PRIu64 " gathered_ms=%" PRIu64 " repaired_ms=%" PRIu64
			" stored_ms=%" PRIu64,
			step->moved, step->sequence,
			(uint64_t)((step->begun_ns - step->changed_ns) / CLOCK_MS),
			(uint64_t)((step->repaired_ns - step->begun_ns) / CLOCK_MS),
			(uint64_t)((clock_mono_ns() - step->repaired_ns) / CLOCK_MS));
	counter_add(&m->counters.steps, 1);
	counter_add(&m->counters.moved, (uint64_t)step->moved);
	pthread_mutex_lock(&m->lock);
	slots_publish(&m->slots, TAKE(step->next), step->dirty);
	m->stepped_ns = clock_mono_ns();
	pthread_mutex_unlock(&m->lock);
	if (step->moved)
		event_note(EVENT_INFO, "slots", NULL, "%d slots of %u have another owner",
			step->moved, PLACEMENT_SLOTS);
}

/* Those that are out or removed with this step. */
static void say_gone(struct membership *m, const struct step *step)
{
	_cleanup_free_ uint64_t *ids = calloc(PLACEMENT_MAX, sizeof(*ids));
	uint32_t n = 0;

	if (!m->config.on_gone || !ids)
		return; /* what it said counts until the master ends: for people only */
	pthread_mutex_lock(&m->lock);
	for (uint32_t i = 0; i < m->members.top; i++) {
		const struct member *member = m->members.all[i];

		if (member && step->dirty[i / 64] >> i % 64 & 1 &&
			(member->out || member->removed_s))
			ids[n++] = member->id;
	}
	pthread_mutex_unlock(&m->lock);
	for (uint32_t i = 0; i < n; i++)
		m->config.on_gone(m->config.arg, ids[i]);
}

void membership_step(struct membership *m)
{
	_cleanup_free_ struct step *step = calloc(1, sizeof(*step));
	int r = 0;

	if (!step)
		return; /* with the next look */
	pthread_mutex_lock(&m->writing);
	if (!begin(m, step)) {
		pthread_mutex_unlock(&m->writing);
		return;
	}
	if (step->moves)
		r = repair(step);
	step->repaired_ns = clock_mono_ns();
	if (r == 0 && step->next && same_slots(step))
		slots_table_unref(TAKE(step->next));
	if (r == 0)
		r = store_step(m, step);
	if (r == 0)
		publish(m, step);
	pthread_mutex_unlock(&m->writing);
	slots_table_unref(step->next);
	slots_table_unref(step->old);
	if (r < 0) {
		LOG_LIMITED(LOG_ERROR, "slot table not changed",
			"cause=%s next=\"tried again every second; the previous one stays in use\"",
			err_name(r));
		put_back(m, step);
		return;
	}
	say_gone(m, step);
	membership_wake(m);
}
