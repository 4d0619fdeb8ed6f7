/*
 * A SlotTable becomes members, peers and slots. All of it is checked before anything is changed. See
 * view.h.
 */
#include "base/cleanup.h"
#include "base/log.h"
#include "cluster/view_internal.h"
#include "placement/placement_delta.h"

#include <endian.h>
#include <stdlib.h>
#include <string.h>

#define SLOT_WIRE 8u

/* ---- slots ----------------------------------------------------------------------------------- */

static struct placement_slot slot_of(const uint8_t *in)
{
	uint16_t v[4];

	memcpy(v, in, sizeof(v));
	return (struct placement_slot){
		.owner = le16toh(v[0]),
		.previous = le16toh(v[1]),
		.replicas = { le16toh(v[2]), le16toh(v[3]) },
	};
}

static struct placement_slot get_slot(void *arg, uint32_t slot)
{
	return view_slot_of(arg, slot);
}

static void put_slot(void *arg, uint32_t slot, struct placement_slot is)
{
	view_slot_put(arg, slot, is);
}

/* What they change is put in the table of `view`; NULL: looked at only. */
static int walk_changes(const ProtobufCBinaryData *changes, struct view *view)
{
	static const struct placement_delta_ops ops = { get_slot, put_slot };

	return placement_delta_walk(changes->data, changes->len, view ? &ops : NULL, view);
}

/* ---- members --------------------------------------------------------------------------------- */

static void copy_text(char *out, size_t size, const char *in)
{
	size_t len = in ? strnlen(in, size - 1) : 0;

	memcpy(out, in ? in : "", len);
	out[len] = '\0';
}

static int member_of(const Granary__Worker *worker, struct member *m)
{
	if (!worker->has_number || worker->number >= PLACEMENT_MAX)
		return -EBADMSG;
	*m = (struct member){ .number = (uint16_t)worker->number,
		.id = worker->id,
		.weight = worker->weight,
		.domain = worker->domain,
		.state = worker->has_state ? worker->state : CLUSTER_UP };
	if (worker->has_host && worker->host.len == CLUSTER_HOST_BYTES) {
		m->has_host = true;
		memcpy(m->host, worker->host.data, CLUSTER_HOST_BYTES);
	}
	copy_text(m->name, sizeof(m->name), worker->name);
	copy_text(m->domain_name, sizeof(m->domain_name), worker->domain_name);
	for (size_t i = 0; i < worker->n_addresses && m->n_addresses < CLUSTER_ADDRESSES; i++)
		copy_text(m->addresses[m->n_addresses++], CLUSTER_ADDRESS_BYTES,
			worker->addresses[i]);
	if (m->n_addresses == 0 && worker->address)
		copy_text(m->addresses[m->n_addresses++], CLUSTER_ADDRESS_BYTES, worker->address);
	return m->n_addresses ? 0 : -EBADMSG;
}

static bool is_unix(const char *address)
{
	return strncmp(address, "unix:", 5) == 0;
}

static bool is_loopback(const char *address)
{
	return strncmp(address, "tcp:127.", 8) == 0 || strncmp(address, "tcp:[::1]", 9) == 0 ||
	       strncmp(address, "tcp:::1:", 8) == 0 || strncmp(address, "tcp:localhost:", 14) == 0;
}

/* The address to talk to it at: of a worker on this node the one of this process's options, else the
 * first that can be reached from here. Sockets have the same path on every host, so a path alone says
 * nothing. A socket that a container does not see, or that this process may not open, is left for another
 * way. If no address can be used, an absent socket is preferred to an address whose key is missing: it may be there again
 * at any time. */
static const char *choose_address(const struct view *view, const struct member *m)
{
	bool here = !m->has_host || memcmp(m->host, view->config.host, CLUSTER_HOST_BYTES) == 0;
	const char *unseen = NULL;
	bool without_key = false; /* `unseen` */

	for (uint32_t i = 0; here && view->local_worker && i < m->n_addresses; i++)
		if (strcmp(m->addresses[i], view->local_worker) == 0)
			return m->addresses[i];
	for (uint32_t i = 0; i < m->n_addresses; i++) {
		const char *address = m->addresses[i];
		int r;

		if (!here && (is_unix(address) || is_loopback(address)))
			continue;
		r = rpc_address_access(address);
		if (r == 0)
			return address;
		if (!unseen || (without_key && r != -ENOKEY)) {
			unseen = address;
			without_key = r == -ENOKEY;
		}
	}
	return unseen;
}

static bool peer_fits(const struct peer *peer, const char *address, const struct member *m)
{
	if (strcmp(peer->pub.address, address) != 0)
		return false;
	if (!m)
		return peer->pub.number == PLACEMENT_NONE;
	return peer->pub.number == m->number && peer->pub.id == m->id &&
	       strcmp(peer->pub.name, m->name) == 0;
}

static void on_connected(void *arg)
{
	struct view *view = arg;

	if (view->config.on_back)
		view->config.on_back(view->config.arg);
}

static int peer_connect(struct view *view, struct peer *peer, struct err *e)
{
	int r;

	if (peer->pub.self)
		return 0;
	r = rpc_client_new(view->loop, peer->pub.address, &peer->pub.rpc, e);
	if (r == 0)
		rpc_client_eager(peer->pub.rpc, VIEW_AGAIN_NS, on_connected, view);
	if (r == 0 && !peer->pub.local)
		rpc_client_patience(peer->pub.rpc, VIEW_DEAD_NS);
	return r;
}

int view_peer_at(struct view *view, const char *address, const struct member *m,
	struct peer **ret_peer, struct err *e)
{
	struct peer *peer;
	int r;

	/* Peers come and go on the loop alone, so that there the list may be walked without the lock. */
	list_for_each (node, &view->peers) {
		peer = list_entry(node, struct peer, link);
		if (peer_fits(peer, address, m)) {
			*ret_peer = peer;
			return 0;
		}
	}
	if (view->n_peers >= VIEW_PEERS_MAX)
		return err_set(e, -ENOSPC,
			"more than %u addresses of workers: restart this process to drop old ones",
			VIEW_PEERS_MAX);
	peer = peer_new();
	if (!peer)
		return err_set(e, -ENOMEM, "no memory for a worker's connection");
	copy_text(peer->pub.address, sizeof(peer->pub.address), address);
	peer->pub.number = m ? m->number : PLACEMENT_NONE;
	peer->pub.id = m ? m->id : 0;
	copy_text(peer->pub.name, sizeof(peer->pub.name), m ? m->name : "");
	peer->pub.local = is_unix(address);
	peer->pub.self = m && view->config.self && m->id == view->config.self;
	r = peer_connect(view, peer, e);
	if (r < 0) {
		peer_free(peer);
		return r;
	}
	pthread_mutex_lock(&view->lock);
	list_push_back(&view->peers, &peer->link);
	view->n_peers++;
	pthread_mutex_unlock(&view->lock);
	*ret_peer = peer;
	return 0;
}

/* ---- taking ---------------------------------------------------------------------------------- */

/* What a message says, ready to be put in place. */
struct taking {
	struct member **members; /* by number; those named */
	bool *gone;              /* by number */
};

static void taking_release(struct taking *t)
{
	for (uint32_t i = 0; t->members && i < PLACEMENT_MAX; i++)
		free(t->members[i]);
	free(t->members);
	free(t->gone);
}

static int take_workers(
	struct view *view, const Granary__SlotTable *message, struct taking *t, struct err *e)
{
	for (size_t i = 0; i < message->n_workers; i++) {
		const Granary__Worker *worker = message->workers[i];
		_cleanup_free_ struct member *m = malloc(sizeof(*m));
		const char *address;
		uint32_t number;
		int r;

		if (!m)
			return err_set(e, -ENOMEM, "no memory for the cluster's workers");
		if (worker->has_gone && worker->gone && worker->number < PLACEMENT_MAX) {
			t->gone[worker->number] = true;
			continue;
		}
		if (member_of(worker, m) < 0 || t->members[m->number])
			return err_set(e, -EBADMSG,
				"invalid slot table: a worker without number or address, or listed "
				"twice; use the same version on both sides");
		/* Who cannot be reached from here is known by number alone. */
		address = choose_address(view, m);
		r = address ? view_peer_at(view, address, m, &m->peer, e) : 0;
		if (r == -ENOMEM)
			return r;
		if (r < 0) {
			LOG_LIMITED(LOG_WARN, "worker not connected",
				"worker=%s address=%s cause=\"%s\" next=\"tried again\"", m->name,
				address, e ? e->text : err_name(r));
			m->peer = NULL;
		}
		number = m->number;
		t->members[number] = TAKE(m);
	}
	return 0;
}

/* Finds this process among the members, and the worker of its node: that of its options, otherwise any on this host. */
static void find_here_locked(struct view *view)
{
	uint16_t self = PLACEMENT_NONE;
	struct peer *here = NULL;

	for (uint32_t i = 0; i < PLACEMENT_MAX; i++) {
		struct peer *peer = view->members[i] ? view->members[i]->peer : NULL;

		if (peer && peer->pub.self)
			self = (uint16_t)i;
		else if (peer && peer->pub.local && view->local_worker &&
			 strcmp(peer->pub.address, view->local_worker) == 0)
			here = peer;
	}
	if (!here)
		here = view->local;
	for (uint32_t i = 0; !here && i < PLACEMENT_MAX; i++) {
		struct peer *peer = view->members[i] ? view->members[i]->peer : NULL;

		if (peer && peer->pub.local && !peer->pub.self)
			here = peer;
	}
	atomic_store(&view->self_number, self);
	atomic_store_explicit(&view->here, here, memory_order_release);
}

static void put_number_locked(struct view *view, uint32_t number)
{
	const struct member *m = view->members[number];

	atomic_store_explicit(&view->numbers[number], m && m->state != CLUSTER_OUT ? m->peer : NULL,
		memory_order_release);
}

/* ---- peers that could not be made ------------------------------------------------------------- */

static bool wants_peer(const struct view *view, const struct member *m)
{
	return m && !m->peer && m->state != CLUSTER_OUT && choose_address(view, m);
}

/* Members change on the loop alone: here they may be read without the lock. */
static void mend(struct view *view, struct member *m)
{
	struct err e = ERR_INIT;
	struct peer *peer = NULL;

	if (view_peer_at(view, choose_address(view, m), m, &peer, &e) < 0) {
		LOG_LIMITED(LOG_WARN, "worker not connected",
			"worker=%s address=%s cause=\"%s\" next=\"tried again\"", m->name,
			choose_address(view, m), e.text);
		return;
	}
	pthread_mutex_lock(&view->lock);
	m->peer = peer;
	atomic_store(&peer->state, m->state);
	put_number_locked(view, m->number);
	find_here_locked(view);
	pthread_mutex_unlock(&view->lock);
}

static void on_mend(void *arg)
{
	struct view *view = arg;

	view->mend_timer = NULL;
	for (uint32_t i = 0; i < PLACEMENT_MAX; i++)
		if (wants_peer(view, view->members[i]))
			mend(view, view->members[i]);
	view_mend_later(view);
}

void view_mend_later(struct view *view)
{
	bool any = false;

	if (!view->pool || view->mend_timer) /* as for sweeps; view_ask_begin() comes back to it */
		return;
	for (uint32_t i = 0; i < PLACEMENT_MAX && !any; i++)
		any = wants_peer(view, view->members[i]);
	if (any) /* without memory: with the next table */
		view->mend_timer = loop_timer_start(
			view->loop, backoff_next(&view->mend_backoff), on_mend, view);
	else
		backoff_reset(&view->mend_backoff);
}

/* ---- putting in place -------------------------------------------------------------------------- */

/* Every message names all that are hot. */
static void put_hot_locked(struct view *view, const Granary__SlotTable *message)
{
	uint64_t hot[PLACEMENT_SLOTS / 64] = { 0 };

	for (size_t i = 0; i < message->n_hot; i++)
		if (message->hot[i] < PLACEMENT_SLOTS)
			hot[message->hot[i] / 64] |= 1ull << message->hot[i] % 64;
	for (uint32_t i = 0; i < ARRAY_SIZE(hot); i++)
		atomic_store_explicit(&view->hot[i], hot[i], memory_order_relaxed);
}

/* Called with the lock held: against what is known now. */
static int check_version_locked(
	const struct view *view, const Granary__SlotTable *message, bool *ret_newer)
{
	if (message->epoch < view->epoch ||
		(message->epoch == view->epoch && message->sequence < view->sequence))
		return -ESTALE;
	*ret_newer = message->epoch > view->epoch || message->sequence > view->sequence;
	if (!message->has_slots && *ret_newer &&
		(!message->has_since || message->epoch != view->epoch ||
			message->since != view->sequence))
		return -ENODATA;
	return 0;
}

static void put_members_locked(struct view *view, struct taking *t, bool whole)
{
	for (uint32_t i = 0; i < PLACEMENT_MAX; i++) {
		struct member *old = view->members[i];

		if (t->members[i]) {
			view->members[i] = t->members[i];
			/* Facts about its earlier address, or the earlier owner of its number, are dropped. */
			if (old && old->peer && old->peer != view->members[i]->peer)
				atomic_store(&old->peer->state, CLUSTER_OUT);
			if (view->members[i]->peer)
				atomic_store(
					&view->members[i]->peer->state, view->members[i]->state);
			t->members[i] = old;
		} else if (old && (whole || t->gone[i])) {
			view->members[i] = NULL;
			if (old->peer)
				atomic_store(&old->peer->state, CLUSTER_OUT);
			t->members[i] = old; /* freed with the rest */
		}
		put_number_locked(view, i);
	}
	find_here_locked(view);
}

static void put_locked(struct view *view, const Granary__SlotTable *message, struct taking *t)
{
	put_members_locked(view, t, message->has_slots); /* slots may name them */
	if (message->has_slots)
		for (uint32_t i = 0; i < PLACEMENT_SLOTS; i++)
			view_slot_put(
				view, i, slot_of(message->slots.data + (size_t)i * SLOT_WIRE));
	else if (message->has_changes)
		(void)walk_changes(&message->changes, view); /* was checked */
	view->epoch = message->epoch;
	view->sequence = message->sequence;
	view->slots_sequence =
		message->has_slots_sequence ? message->slots_sequence : message->sequence;
	put_hot_locked(view, message);
}

static int check_slots(const Granary__SlotTable *message, struct err *e)
{
	if (message->has_slots && message->slots.len != (size_t)PLACEMENT_SLOTS * SLOT_WIRE)
		return err_set(e, -EBADMSG,
			"the slot table does not have %u slots; use the same version on both sides",
			PLACEMENT_SLOTS);
	if (!message->has_slots && message->has_changes &&
		walk_changes(&message->changes, NULL) < 0)
		return err_set(e, -EBADMSG,
			"changes of slots cannot be decoded; use the same version on both sides");
	return 0;
}

int view_take(
	struct view *view, const Granary__SlotTable *message, bool *ret_changed, struct err *e)
{
	_cleanup_(taking_release) struct taking t = {
		.members = calloc(PLACEMENT_MAX, sizeof(struct member *)),
		.gone = calloc(PLACEMENT_MAX, sizeof(bool)),
	};
	bool newer = false;
	int r;

	if (!t.members || !t.gone)
		return err_set(e, -ENOMEM, "no memory for the cluster's workers");
	pthread_mutex_lock(&view->lock);
	r = check_version_locked(view, message, &newer);
	pthread_mutex_unlock(&view->lock);
	if (r < 0)
		return err_set(e, r, "the slot table is older than the present one");
	*ret_changed = newer;
	if (!newer)
		return 0;
	r = check_slots(message, e);
	if (r == 0) {
		r = take_workers(view, message, &t, e);
		view_sweep_later(view); /* also of peers that were made in vain */
	}
	if (r < 0)
		return r;
	pthread_mutex_lock(&view->lock);
	put_locked(view, message, &t);
	pthread_mutex_unlock(&view->lock);
	view_mend_later(view);
	return 0;
}
