/*
 * JOIN. See membership.h.
 *
 * A number is stored before it is sent. A thousand workers that start together do not make a thousand writes: one that
 * joins during a write waits, without a thread, and is stored by the next one with all others.
 */
#include "base/cleanup.h"
#include "base/log.h"
#include "master/membership_internal.h"
#include "proto/granary.pb-c.h"

#include <stdlib.h>
#include <string.h>

static int take_join(const Granary__Join *from, struct member_join *join, struct err *e)
{
	*join = (struct member_join){ .id = from->id,
		.run = from->run,
		.name = from->name,
		.domain = from->domain ? from->domain : "",
		.version = from->version ? from->version : "",
		.capacity = from->capacity,
		.weight = from->weight };
	if (from->n_addresses > CLUSTER_ADDRESSES)
		return err_set(e, -EINVAL,
			"a worker has at most %u addresses: give fewer --advertise",
			CLUSTER_ADDRESSES);
	if (from->host.len == CLUSTER_HOST_BYTES)
		memcpy(join->host, from->host.data, CLUSTER_HOST_BYTES);
	for (size_t i = 0; i < from->n_addresses; i++)
		join->addresses[join->n_addresses++] = from->addresses[i];
	return member_join_check(join, e);
}

/* The member whose place it took is none any more. Without locks. */
static void say_replaced(struct membership *m, uint16_t number)
{
	struct member *member;
	bool replaces;
	uint64_t id = 0;

	pthread_mutex_lock(&m->lock);
	member = m->members.all[number];
	replaces = member && member->replaces;
	if (replaces) {
		id = member->replaced;
		member->replaces = false;
	}
	pthread_mutex_unlock(&m->lock);
	if (replaces && m->config.on_gone)
		m->config.on_gone(m->config.arg, id);
}

/* What an answer says, by number. */
static void answer(struct membership *m, struct rpc_request *request, uint16_t number)
{
	Granary__Joined joined = GRANARY__JOINED__INIT;
	uint8_t *packed;

	say_replaced(m, number);
	joined.has_number = joined.has_beat_ms = joined.has_epoch = joined.has_sequence = 1;
	joined.number = number;
	joined.beat_ms = (uint32_t)(MEMBER_BEAT_NS / CLOCK_MS);
	pthread_mutex_lock(&m->lock);
	joined.epoch = m->slots.epoch;
	joined.sequence = m->slots.sequence;
	pthread_mutex_unlock(&m->lock);
	packed = malloc(granary__joined__get_packed_size(&joined) + 1);
	membership_reply(request, packed, packed ? granary__joined__pack(&joined, packed) : 0);
}

static void refuse(struct rpc_request *request, const struct err *e)
{
	LOG_LIMITED(LOG_WARN, "worker refused", "why=\"%s\"", e->text);
	rpc_reply_err(request, e->code, e);
}

/* All that are waiting, into `batch`; false: none is, and the next that comes stores. */
static bool take_waiting(struct membership *m, struct list *batch)
{
	bool any;

	pthread_mutex_lock(&m->lock);
	list_splice_back(batch, &m->joins.waiting);
	any = !list_empty(batch);
	m->joins.storing = any;
	pthread_mutex_unlock(&m->lock);
	return any;
}

static void answer_batch(struct membership *m, struct list *batch, int r)
{
	struct list *node;

	while ((node = list_pop_front(batch)) != NULL) {
		struct rpc_request *request = list_entry(node, struct rpc_request, link);
		uint16_t number = (uint16_t)(uintptr_t)TAKE(request->priv);
		struct err e = ERR_INIT;

		if (r == 0) {
			answer(m, request, number);
			continue;
		}
		(void)membership_refuse_store(&e, r);
		refuse(request, &e);
	}
}

/* Until none waits. */
static void store_waiting(struct membership *m)
{
	struct list batch = LIST_INIT(batch);

	while (take_waiting(m, &batch)) {
		bool rest = true;
		int r = 0;

		pthread_mutex_lock(&m->writing);
		while (r == 0 && rest)
			r = membership_store_all(m, NULL, &rest);
		pthread_mutex_unlock(&m->writing);
		answer_batch(m, &batch, r);
	}
}

/* Whose number is stored is answered at once, others wait; *ret_stores: this thread is to store for them. */
static int enter(struct membership *m, struct rpc_request *request, const struct member_join *join,
	bool *ret_stores, struct err *e)
{
	struct member *member;
	uint16_t number;
	bool stored;
	int r;

	pthread_mutex_lock(&m->lock);
	r = members_join(&m->members, join, clock_mono_ns(),
		(int64_t)(clock_wall_ns() / CLOCK_SECOND), &member, e);
	if (r < 0) {
		pthread_mutex_unlock(&m->lock);
		return r;
	}
	number = member->number;
	stored = member->stored;
	*ret_stores = !stored && !m->joins.storing;
	if (!stored) {
		m->joins.storing = true;
		request->priv = (void *)(uintptr_t)number;
		list_push_back(&m->joins.waiting, &request->link);
	}
	pthread_mutex_unlock(&m->lock);
	if (stored)
		answer(m, request, number);
	return 0;
}

void membership_join(struct membership *m, struct rpc_request *request)
{
	Granary__Join *from = granary__join__unpack(NULL, request->frame.payload, request->payload);
	struct member_join join;
	bool stores = false;
	struct err e = ERR_INIT;
	int r;

	counter_add(&m->counters.joins, 1);
	r = from ? take_join(from, &join, &e)
		 : err_set(&e, -EBADMSG,
			   "the request cannot be decoded; use the same version on both sides");
	if (r == 0)
		r = enter(m, request, &join, &stores, &e);
	if (from)
		granary__join__free_unpacked(from, NULL);
	if (r < 0)
		refuse(request, &e);
	else if (stores)
		store_waiting(m);
}
