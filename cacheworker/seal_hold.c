/* Extents that mounts have as devices. See seal_internal.h. */
#include "base/arena.h"
#include "base/clock.h"
#include "cacheworker/seal_internal.h"
#include "net/net.h"

#include <stdlib.h>
#include <string.h>

static bool is_of(const struct seal_holder *holder, const struct rpc_conn *conn,
	const struct seal_scope *scope)
{
	const struct seal_scope *own = &holder->scope;

	return holder->conn == conn && own->lineage == scope->lineage &&
	       own->generation == scope->generation && own->extent_bytes == scope->extent_bytes &&
	       volume_id_equal(&own->volume, &scope->volume);
}

static bool grow_locked(struct seal_holder *holder, uint32_t n)
{
	struct extent **held;

	if (n <= holder->n)
		return holder->held != NULL;
	held = arena_calloc(ARENA_CHUNKS, n, sizeof(struct extent *));
	if (!held)
		return false;
	if (holder->n)
		memcpy(held, holder->held, holder->n * sizeof(struct extent *));
	arena_free(ARENA_CHUNKS, holder->held, holder->n * sizeof(struct extent *));
	holder->held = held;
	holder->n = n;
	return true;
}

/* The request's connection's; NULL: it is gone, there are too many, or no memory. */
static struct seal_holder *get_locked(struct seals *seals, const struct rpc_request *request,
	const struct seal_scope *scope, uint32_t n)
{
	struct seal_holder *holder;

	/* A connection's requests are cancelled before seals_end() looks for its holders. */
	if (request->cancelled)
		return NULL;
	list_for_each (node, &seals->holders) {
		holder = list_entry(node, struct seal_holder, link);
		if (is_of(holder, request->conn, scope))
			return grow_locked(holder, n) ? holder : NULL;
	}
	if (seals->n_holders == SEAL_HOLDERS_MAX)
		return NULL;
	holder = calloc(1, sizeof(*holder));
	if (!holder)
		return NULL;
	holder->conn = request->conn;
	holder->scope = *scope;
	if (!grow_locked(holder, n)) {
		free(holder);
		return NULL;
	}
	list_push_back(&seals->holders, &holder->link);
	seals->n_holders++;
	periodic_poke(&seals->work);
	return holder;
}

static bool any(const uint8_t *held, uint32_t n)
{
	for (uint32_t i = 0; i < (n + 7) / 8; i++)
		if (held[i])
			return true;
	return false;
}

static void let_go(struct extent **extents, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++) {
		if (!extents[i])
			continue;
		tier_seal_let_go(extents[i]);
		tier_seal_unref(extents[i]);
	}
}

static bool has_holder_locked(
	struct seals *seals, const struct rpc_conn *conn, const struct seal_scope *scope)
{
	list_for_each (node, &seals->holders)
		if (is_of(list_entry(node, struct seal_holder, link), conn, scope))
			return true;
	return false;
}

/* Those of [first, first + n) that are not named any more, in gone[]. */
static void follow_locked(struct worker *w, struct seal_holder *holder, uint32_t first, uint32_t n,
	const uint8_t *held, struct extent **gone)
{
	holder->until_ns = clock_mono_ns() + SEAL_HELD_NS;
	for (uint32_t i = 0; i < n; i++) {
		struct extent **at = &holder->held[first + i];
		bool wanted = held[i / 8] >> i % 8 & 1;

		if (wanted && !*at) {
			/* After a restart of this worker, or of the mount. */
			*at = tier_seal_find(
				w->tiers, &holder->scope.volume, holder->scope.lineage, first + i);
			if (*at)
				tier_seal_hold(*at);
		} else if (!wanted && *at) {
			gone[i] = *at;
			*at = NULL;
		}
	}
}

void seal_holders_note(struct worker *w, const struct rpc_request *request,
	const struct seal_scope *scope, uint32_t first, uint32_t n, const uint8_t *held)
{
	struct seals *seals = w->seals;
	struct extent **gone = calloc(n, sizeof(struct extent *));
	struct seal_holder *holder = NULL;

	if (!gone)
		return; /* with the next ask */
	pthread_mutex_lock(&seals->lock);
	if (any(held, n) || has_holder_locked(seals, request->conn, scope))
		holder = get_locked(seals, request, scope, first + n);
	if (holder)
		follow_locked(w, holder, first, n, held, gone);
	pthread_mutex_unlock(&seals->lock);
	let_go(gone, n);
	free(gone);
}

bool seal_holders_add(struct worker *w, const struct rpc_request *request,
	const struct seal_scope *scope, uint32_t number, struct extent *extent)
{
	struct seals *seals = w->seals;
	struct extent *before = NULL;
	struct seal_holder *holder;

	pthread_mutex_lock(&seals->lock);
	holder = get_locked(seals, request, scope, number + 1);
	if (holder && holder->held[number] != extent) {
		/* What it had is on its way out of the mount: its bytes stay as they are. */
		before = holder->held[number];
		holder->held[number] = tier_seal_ref(extent);
		tier_seal_hold(extent);
	}
	if (holder)
		holder->until_ns = clock_mono_ns() + SEAL_HELD_NS;
	pthread_mutex_unlock(&seals->lock);
	let_go(&before, 1);
	return holder != NULL;
}

void seal_holders_expire(struct worker *w, bool all)
{
	struct seals *seals = w->seals;
	uint64_t now = clock_mono_ns();
	struct list gone = LIST_INIT(gone);
	struct list *node;

	pthread_mutex_lock(&seals->lock);
	list_for_each_safe (link, &seals->holders) {
		struct seal_holder *holder = list_entry(link, struct seal_holder, link);

		if (!all && holder->until_ns > now)
			continue;
		list_remove(link);
		list_push_back(&gone, link);
		seals->n_holders--;
	}
	pthread_mutex_unlock(&seals->lock);
	while ((node = list_pop_front(&gone)) != NULL) {
		struct seal_holder *holder = list_entry(node, struct seal_holder, link);

		let_go(holder->held, holder->n);
		arena_free(ARENA_CHUNKS, holder->held, holder->n * sizeof(struct extent *));
		free(holder);
	}
}

uint32_t seal_holders_count_locked(
	struct seals *seals, const struct volume_id *volume, uint64_t lineage)
{
	uint32_t n = 0;

	list_for_each (node, &seals->holders) {
		const struct seal_holder *holder = list_entry(node, struct seal_holder, link);

		if (holder->scope.lineage != lineage ||
			!volume_id_equal(&holder->scope.volume, volume))
			continue;
		for (uint32_t i = 0; i < holder->n; i++)
			n += holder->held[i] != NULL;
	}
	return n;
}
