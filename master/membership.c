/* Workers' requests, and the periodic work that watches them. See membership.h. */
#include "master/membership.h"
#include "base/cleanup.h"
#include "base/log.h"
#include "master/membership_internal.h"
#include "proto/granary.pb-c.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static const struct counter_info counter_table[] = {
#define ROW(symbol, name, kind, unit, help) \
	COUNTER_ROW(membership_counters, symbol, name, kind, unit, help)
	MEMBERSHIP_COUNTERS(ROW)
#undef ROW
};

const struct counter_info *membership_counter_table(uint32_t *ret_n)
{
	*ret_n = ARRAY_SIZE(counter_table);
	return counter_table;
}

const struct membership_counters *membership_counters(const struct membership *m)
{
	return &m->counters;
}

/* ---- changes --------------------------------------------------------------------------------- */

/* Under the lock. No member owns anything yet: then none waits for others. */
static void on_change(void *arg, const struct member *member, bool moves)
{
	struct membership *m = arg;
	uint64_t now = clock_mono_ns();
	bool first = m->slots.table->table.slots[0].owner == PLACEMENT_NONE;
	uint64_t due = first ? now : max(now + GATHER_NS, m->stepped_ns + PACE_NS);

	if (!m->is_dirty || m->only_hot) {
		m->due_ns = due;
		m->changed_ns = now;
	}
	m->is_dirty = true;
	m->only_hot = false;
	m->moves |= moves;
	m->dirty[member->number / 64] |= 1ull << member->number % 64;
	periodic_poke(&m->work);
}

int membership_refuse_store(struct err *e, int r)
{
	return err_set(e, r, "the master cannot store its record of the worker: %s: see its log",
		err_str(r));
}

int membership_store(struct membership *m, uint16_t number, struct err *e)
{
	_cleanup_(buf_release) struct buf value = BUF_INIT(STORE_VALUE_BYTES);
	struct member *member;
	char key[32];
	int r = 0;

	pthread_mutex_lock(&m->lock);
	member = m->members.all[number];
	if (member->stored) {
		pthread_mutex_unlock(&m->lock);
		return 0;
	}
	member_key(number, key);
	r = member_encode(member, &value);
	pthread_mutex_unlock(&m->lock);
	if (r == 0)
		r = m->config.store->ops->write(
			m->config.store, &(struct store_change){ key, value.data, value.len }, 1);
	if (r < 0)
		return membership_refuse_store(e, r);
	pthread_mutex_lock(&m->lock);
	membership_mark_stored_locked(m, number, &value);
	pthread_mutex_unlock(&m->lock);
	return 0;
}

/* ---- answers --------------------------------------------------------------------------------- */

static void refuse(struct rpc_request *request, const struct err *e)
{
	rpc_reply_err(request, e->code, e);
}

void membership_reply(struct rpc_request *request, uint8_t *packed, size_t len)
{
	struct net_payload payload = NET_PAYLOAD_NONE;

	if (packed) {
		payload.parts[0].data = packed;
		payload.parts[0].len = len;
		payload.n = 1;
		payload.release = free;
		payload.arg = packed;
	}
	rpc_reply(request, packed ? 0 : -ENOMEM, NULL, payload);
}

/* ---- BEAT ------------------------------------------------------------------------------------ */

void membership_beat(struct membership *m, struct rpc_request *request)
{
	Granary__Beat *from = granary__beat__unpack(NULL, request->frame.payload, request->payload);
	Granary__BeatAnswer answer = GRANARY__BEAT_ANSWER__INIT;
	const struct member *member;
	struct member_beat beat;
	struct err e = ERR_INIT;
	uint8_t *packed;

	counter_add(&m->counters.beats, 1);
	if (!from) {
		(void)err_set(&e, -EBADMSG,
			"the request cannot be decoded; use the same version on both sides");
		refuse(request, &e);
		return;
	}
	beat = (struct member_beat){ .id = from->id,
		.run = from->run,
		.in_flight = from->in_flight,
		.served_bytes = from->served_bytes,
		.hot = from->hot,
		.n_hot = (uint32_t)min(from->n_hot, (size_t)(2 * MEMBER_HOT)),
		.has_only_copies = from->has_only_copies,
		.only_copies = from->only_copies,
		.drain = from->drain,
		.full = from->full };
	pthread_mutex_lock(&m->lock);
	member = members_beat(&m->members, &beat, clock_mono_ns());
	answer.has_unknown = !member;
	answer.unknown = !member;
	answer.has_drain = member && member->drain;
	answer.drain = answer.has_drain;
	answer.has_drain_number = answer.has_drain;
	answer.drain_number = member ? member->drain_number : 0;
	answer.has_epoch = answer.has_sequence = answer.has_news = 1;
	answer.epoch = m->slots.epoch;
	answer.sequence = m->slots.sequence;
	answer.news = m->slots.news;
	pthread_mutex_unlock(&m->lock);
	granary__beat__free_unpacked(from, NULL);
	packed = malloc(granary__beat_answer__get_packed_size(&answer) + 1);
	membership_reply(request, packed, packed ? granary__beat_answer__pack(&answer, packed) : 0);
}

/* ---- GET_SLOTS ------------------------------------------------------------------------------- */

/* An empty request, as versions before 0.7 make it, asks for everything. */
static int take_ask(const struct rpc_request *request, struct watch_ask *ret, uint32_t *ret_wait_ms)
{
	Granary__SlotsAsk *from;

	*ret = (struct watch_ask){ 0 };
	*ret_wait_ms = 0;
	if (request->frame.payload == 0)
		return 0;
	from = granary__slots_ask__unpack(NULL, request->frame.payload, request->payload);
	if (!from)
		return -EBADMSG;
	*ret = (struct watch_ask){ .epoch = from->epoch,
		.sequence = from->sequence,
		.news = from->news,
		.wants_news = from->has_news };
	*ret_wait_ms = from->wait_ms;
	granary__slots_ask__free_unpacked(from, NULL);
	return 0;
}

static void reply_slots(
	struct membership *m, struct rpc_request *request, const struct watch_ask *ask)
{
	struct slots_message *message;

	pthread_mutex_lock(&m->lock);
	message = slots_message(&m->slots, &m->members, ask->epoch, ask->sequence);
	pthread_mutex_unlock(&m->lock);
	counter_add(&m->counters.tables_sent, 1);
	if (message)
		rpc_reply(request, 0, NULL, slots_payload(message));
	else
		rpc_reply(request, -ENOMEM, NULL, NET_PAYLOAD_NONE);
}

void membership_slots(struct membership *m, struct rpc_request *request)
{
	struct watch_ask ask;
	uint32_t wait_ms;
	uint64_t now = clock_mono_ns();
	bool parked = false;
	struct err e = ERR_INIT;

	if (take_ask(request, &ask, &wait_ms) < 0) {
		(void)err_set(&e, -EBADMSG,
			"the request cannot be decoded; use the same version on both sides");
		refuse(request, &e);
		return;
	}
	ask.until_ns = now + min(wait_ms * CLOCK_MS, (uint64_t)WATCH_MOST_NS);
	pthread_mutex_lock(&m->lock);
	if (!watch_is_due(&ask, m->slots.epoch, m->slots.sequence, m->slots.news, now))
		parked = watch_park(&m->watch, request, &ask);
	pthread_mutex_unlock(&m->lock);
	if (!parked)
		reply_slots(m, request, &ask);
}

void membership_cancelled(struct membership *m, struct rpc_request *request)
{
	bool mine;

	pthread_mutex_lock(&m->lock);
	mine = watch_cancelled(&m->watch, request);
	pthread_mutex_unlock(&m->lock);
	if (mine)
		rpc_reply(request, -ECANCELED, NULL, NET_PAYLOAD_NONE);
}

void membership_wake(struct membership *m)
{
	struct list ready = LIST_INIT(ready);
	struct rpc_request *request;
	struct watch_ask ask;

	pthread_mutex_lock(&m->lock);
	watch_collect(&m->watch, m->slots.epoch, m->slots.sequence, m->slots.news, clock_mono_ns(),
		&ready);
	pthread_mutex_unlock(&m->lock);
	for (;;) {
		pthread_mutex_lock(&m->lock); /* one of them may be cancelled meanwhile */
		request = watch_take(&m->watch, &ready, &ask);
		pthread_mutex_unlock(&m->lock);
		if (!request)
			return;
		reply_slots(m, request, &ask);
	}
}

void membership_news(struct membership *m)
{
	if (!m)
		return;
	pthread_mutex_lock(&m->lock);
	slots_set_news(&m->slots, m->slots.news + 1);
	pthread_mutex_unlock(&m->lock);
	membership_wake(m);
}

/* ---- periodic work --------------------------------------------------------------------------- */

static void look_hot_locked(struct membership *m, uint64_t now)
{
	uint64_t all = 0;
	uint32_t n = 0;

	if (!m->rates || m->hot_ns > now)
		return;
	m->hot_ns = now + MEMBER_BEAT_NS;
	for (uint32_t i = 0; i < m->members.top; i++) {
		const struct member *member = m->members.all[i];

		if (!member || member->removed_s ||
			(member->state != CLUSTER_UP && member->state != CLUSTER_DRAINING))
			continue;
		all += member->served_rate;
		for (uint32_t k = 0; k < member->n_hot && n < m->cap_rates; k++)
			m->rates[n++] = (struct hot_rate){ member->hot[k],
				(uint64_t)member->hot_kib[k] * KiB };
	}
	if (!hot_update(&m->slots.hot, m->rates, n, all, now))
		return;
	if (!m->is_dirty) {
		m->due_ns = max(now, m->stepped_ns + HOT_PACE_NS);
		m->only_hot = true;
	}
	m->is_dirty = true;
	log_info("hot slots changed", "slots=%u", m->slots.hot.n);
}

/* True: it is time for a step. */
static bool look(struct membership *m)
{
	uint64_t now = clock_mono_ns();
	bool due;

	pthread_mutex_lock(&m->lock);
	if (!membership_is_late_locked(m, now))
		members_look(&m->members, now);
	look_hot_locked(m, now);
	due = m->is_dirty && now >= m->due_ns;
	pthread_mutex_unlock(&m->lock);
	return due;
}

/* Numbers that rested long enough: once a minute is enough, and the store may fail. */
static void give_back_numbers(struct membership *m)
{
	struct store_change changes[64];
	char keys[ARRAY_SIZE(changes)][32];
	uint16_t numbers[ARRAY_SIZE(changes)];
	uint32_t n;

	pthread_mutex_lock(&m->writing);
	pthread_mutex_lock(&m->lock);
	n = members_rested(&m->members, (int64_t)(clock_wall_ns() / CLOCK_SECOND), numbers,
		ARRAY_SIZE(numbers));
	pthread_mutex_unlock(&m->lock);
	for (uint32_t i = 0; i < n; i++) {
		member_key(numbers[i], keys[i]);
		changes[i] = (struct store_change){ keys[i], NULL, 0 };
	}
	if (n > 0 && m->config.store->ops->write(m->config.store, changes, n) < 0)
		log_warn("numbers of removed workers not released",
			"next=\"released by the next start of the master\"");
	pthread_mutex_unlock(&m->writing);
}

static uint64_t until_next(struct membership *m)
{
	uint64_t now = clock_mono_ns();
	uint64_t ns = LOOK_NS;

	pthread_mutex_lock(&m->lock);
	if (m->is_dirty)
		ns = m->due_ns > now ? min(ns, m->due_ns - now) : 0;
	pthread_mutex_unlock(&m->lock);
	return ns;
}

static uint64_t run(void *arg)
{
	struct membership *m = arg;

	if (look(m))
		membership_step(m);
	membership_wake(m); /* whose time has come */
	if (clock_mono_ns() >= m->rested_ns) {
		give_back_numbers(m);
		m->rested_ns = clock_mono_ns() + 60 * CLOCK_SECOND;
	}
	return until_next(m);
}

/* ---- life ------------------------------------------------------------------------------------ */

int membership_new(
	const struct membership_config *config, struct membership **ret_membership, struct err *e)
{
	const struct members_config members = { config->out_after_ns, config->grace_ns,
		config->down_after_ns };
	struct membership *m = calloc(1, sizeof(*m));
	uint64_t now = clock_mono_ns();
	int r;

	if (!m)
		return err_set(e, -ENOMEM, "out of memory");
	m->config = *config;
	m->work = (struct periodic_work){ .name = "members", .run = run, .arg = m };
	pthread_mutex_init(&m->writing, NULL);
	pthread_mutex_init(&m->lock, NULL);
	pthread_cond_init(&m->late.back, NULL);
	list_init(&m->joins.waiting);
	watch_init(&m->watch);
	m->cap_rates = PLACEMENT_MAX * MEMBER_HOT;
	m->rates =
		calloc(m->cap_rates, sizeof(*m->rates)); /* pages are taken when it is written to */
	r = m->rates ? members_init(&m->members, &members, now) : -ENOMEM;
	if (r == 0)
		r = members_load(&m->members, config->store, now, e);
	if (r == 0)
		r = slots_open(config->store, config->epoch, &m->slots, e);
	if (r < 0) {
		membership_free(m);
		return err_default(e, r, "out of memory");
	}
	m->members.on_change = on_change;
	m->members.arg = m;
	if (m->members.n > 0) { /* whatever was not stored when the last run ended */
		m->is_dirty = m->moves = true;
		m->due_ns = m->changed_ns = now;
	}
	*ret_membership = m;
	return 0;
}

int membership_start(struct membership *m)
{
	membership_step(m); /* the first who asks sees it */
	m->pool = pool_new("members", 1, 1);
	if (!m->pool)
		return -EAGAIN;
	periodic_start(m->pool, &m->work, 0);
	return 0;
}

void membership_free(struct membership *m)
{
	if (!m)
		return;
	periodic_stop(&m->work);
	pool_free(m->pool);
	slots_release(&m->slots);
	if (m->members.ids.buckets)
		members_release(&m->members);
	free(m->rates);
	ensure(m->late.rounds == 0 && list_empty(&m->joins.waiting));
	pthread_cond_destroy(&m->late.back);
	pthread_mutex_destroy(&m->lock);
	pthread_mutex_destroy(&m->writing);
	free(m);
}
