/* Views of mounts, and answers. See seal.h. */
#include "cacheworker/seal.h"
#include "base/arena.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/hash.h"
#include "base/log.h"
#include "cacheworker/seal_internal.h"
#include "cacheworker/tier_call.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- views ----------------------------------------------------------------------------------- */

static bool same_scope(const struct seal_scope *a, const struct seal_scope *b)
{
	return a->lineage == b->lineage && a->generation == b->generation && a->end == b->end &&
	       a->extent_bytes == b->extent_bytes && volume_id_equal(&a->volume, &b->volume);
}

/* Room for n extents. */
static bool grow_locked(struct seal_view *view, uint32_t n)
{
	struct seal *seals;

	if (n <= view->n)
		return view->seals != NULL;
	seals = arena_calloc(ARENA_CHUNKS, n, sizeof(*seals));
	if (!seals)
		return false;
	if (view->n)
		memcpy(seals, view->seals, view->n * sizeof(*seals));
	arena_free(ARENA_CHUNKS, view->seals, view->n * sizeof(*seals));
	view->seals = seals;
	view->n = n;
	return true;
}

/* NULL: too many are asked about, or no memory. */
static struct seal_view *get_locked(struct seals *seals, const struct seal_scope *scope, uint32_t n)
{
	struct seal_view *view;

	list_for_each (node, &seals->views) {
		view = list_entry(node, struct seal_view, link);
		if (same_scope(&view->scope, scope))
			return grow_locked(view, n) ? view : NULL;
	}
	if (seals->n_views == SEAL_VIEWS_MAX)
		return NULL;
	view = calloc(1, sizeof(*view));
	if (!view)
		return NULL;
	view->scope = *scope;
	if (!grow_locked(view, n)) {
		free(view);
		return NULL;
	}
	list_push_back(&seals->views, &view->link);
	seals->n_views++;
	periodic_poke(&seals->work);
	return view;
}

void seal_note(struct seal *seal, const struct tier_seal_facts *facts)
{
	if (!facts) {
		*seal = (struct seal){ .status = { .state = SEAL_ABSENT,
					       .findings = seal->status.findings } };
		return;
	}
	if (seal->file != facts->file)
		*seal = (struct seal){ .file = facts->file,
			.status = { .state = SEAL_INCOMPLETE, .findings = seal->status.findings } };
	if (seal->damages == facts->damages)
		return;
	seal->status = (struct seal_status){ .state = SEAL_INCOMPLETE,
		.why = SEAL_WHY_FINDING,
		.findings = seal->status.findings + (facts->damages - seal->damages) };
	seal->damages = facts->damages;
	seal->looked = false;
	seal->whole_ns = 0;
}

void seal_count(struct worker *w, const struct seal_scope *scope, uint32_t number, bool was,
	const struct seal_status *status)
{
	bool is = status->state == SEAL_SEALED;

	if (is == was)
		return;
	counter_add(is ? &w->counters.sealed : &w->counters.unsealed, 1);
	log_debug("extent", "number=%u generation=%llu state=\"%s\" reason=\"%s\"", number,
		(unsigned long long)scope->generation, seal_state_name(status->state),
		seal_why_text(status->why));
}

/* ---- answers --------------------------------------------------------------------------------- */

static int parse(const struct rpc_request *request, struct seal_scope *scope, struct seal_ask *ask)
{
	const struct frame *f = &request->frame;

	if (f->length == 0 || f->length > SEAL_PAGE || f->offset > LIMIT_DEVICES ||
		f->length > LIMIT_DEVICES - f->offset || !tier_seal_bytes_valid(f->extent))
		return -EINVAL;
	if (seal_ask_unpack(request->payload, f->payload, f->length, ask) < 0)
		return -EBADMSG;
	*scope = (struct seal_scope){ .volume = f->volume,
		.lineage = f->lineage,
		.generation = f->generation,
		.end = ask->end,
		.extent_bytes = f->extent };
	return ask->take && f->length != 1 ? -EINVAL : 0;
}

/* Damage shows at once, the rest with the next look of the thread. */
static void see_damage(struct worker *w, const struct seal_scope *scope, uint32_t number,
	struct seal_status *status)
{
	struct seals *seals = w->seals;
	struct extent *extent = tier_seal_find(w->tiers, &scope->volume, scope->lineage, number);
	struct tier_seal_facts facts;
	struct seal_view *view;
	bool was;

	if (extent)
		tier_seal_facts(extent, &facts);
	tier_seal_unref(extent);
	pthread_mutex_lock(&seals->lock);
	view = get_locked(seals, scope, number + 1);
	if (view) {
		was = view->seals[number].status.state == SEAL_SEALED;
		seal_note(&view->seals[number], extent ? &facts : NULL);
		*status = view->seals[number].status;
		seal_count(w, scope, number, was, status);
	}
	pthread_mutex_unlock(&seals->lock);
}

static int copy_states(struct worker *w, const struct seal_scope *scope, const struct frame *f,
	struct seal_status *states)
{
	uint64_t damages = tier_seal_damages(w->tiers);
	struct seals *seals = w->seals;
	struct seal_view *view;
	bool quiet = true;

	pthread_mutex_lock(&seals->lock);
	view = get_locked(seals, scope, (uint32_t)f->offset + f->length);
	if (view) {
		view->asked_ns = clock_mono_ns();
		quiet = view->damages == damages;
		for (uint32_t i = 0; i < f->length; i++)
			states[i] = view->seals[f->offset + i].status;
	}
	pthread_mutex_unlock(&seals->lock);
	for (uint32_t i = 0; !quiet && i < f->length; i++)
		if (states[i].state == SEAL_SEALED)
			see_damage(w, scope, (uint32_t)f->offset + i, &states[i]);
	return view ? 0 : -ENOSPC;
}

/* The descriptor of an extent that is sealed, and still was when it was open and held. */
static int take_fd(struct worker *w, struct rpc_request *request, const struct seal_scope *scope,
	struct seal_status *status)
{
	uint32_t number = (uint32_t)request->frame.offset;
	struct extent *extent = tier_seal_find(w->tiers, &scope->volume, scope->lineage, number);
	struct tier_seal_facts facts;
	uint64_t file = 0;
	int fd = -1;
	int r = -EAGAIN;

	if (extent) {
		tier_seal_facts(extent, &facts);
		file = facts.file;
	}
	if (extent && seal_holders_add(w, request, scope, number, extent))
		r = tier_call_open_extent(w, extent, &fd);
	tier_seal_unref(extent);
	see_damage(w, scope, number, status);
	if (r == 0 && status->state == SEAL_SEALED) {
		extent = tier_seal_find(w->tiers, &scope->volume, scope->lineage, number);
		if (extent)
			tier_seal_facts(extent, &facts);
		tier_seal_unref(extent);
		if (extent && facts.file == file)
			return fd;
	}
	if (fd >= 0)
		(void)close(fd); /* nothing was written */
	return r < 0 ? r : -EAGAIN;
}

static void reply_states(struct worker *w, struct rpc_request *request,
	const struct seal_status *states, uint32_t n, int fd)
{
	struct net_payload payload = NET_PAYLOAD_NONE;
	size_t len = 0;
	uint8_t *packed = seal_states_pack(w->seals->epoch, states, n, &len);

	if (!packed) {
		if (fd >= 0)
			(void)close(fd); /* nothing was written */
		rpc_reply(request, -ENOMEM, NULL, payload);
		return;
	}
	payload.parts[0].data = packed;
	payload.parts[0].len = len;
	payload.n = len ? 1 : 0;
	payload.release = free;
	payload.arg = packed;
	payload.fd = fd;
	rpc_reply(request, 0, NULL, payload);
}

void seals_answer(struct worker *w, struct rpc_request *request)
{
	const struct frame *f = &request->frame;
	_cleanup_free_ struct seal_status *states = calloc(max(f->length, 1u), sizeof(*states));
	struct seal_scope scope;
	struct seal_ask ask;
	bool off = atomic_load(&w->rates.seal) == 0;
	int fd = -1;
	int r = states ? parse(request, &scope, &ask) : -ENOMEM;

	if (r == 0 && off)
		states[0] = (struct seal_status){ .state = SEAL_REFUSED, .why = SEAL_WHY_OFF };
	else if (r == 0)
		r = copy_states(w, &scope, f, states);
	if (r < 0) {
		rpc_reply(request, r, NULL, NET_PAYLOAD_NONE);
		return;
	}
	for (uint32_t i = 1; off && i < f->length; i++)
		states[i] = states[0];
	if (!ask.take)
		seal_holders_note(w, request, &scope, (uint32_t)f->offset, f->length, ask.held);
	else if (states[0].state == SEAL_SEALED)
		fd = take_fd(w, request, &scope, &states[0]);
	if (fd < 0 && ask.take && states[0].state == SEAL_SEALED)
		states[0].state = SEAL_INCOMPLETE; /* of another file by now, or it does not open */
	reply_states(w, request, states, f->length, fd);
}

/* ---- for people ------------------------------------------------------------------------------ */

static struct seal_view *newest_locked(
	struct seals *seals, const struct volume_id *volume, uint64_t lineage)
{
	struct seal_view *newest = NULL;

	list_for_each (node, &seals->views) {
		struct seal_view *view = list_entry(node, struct seal_view, link);

		if (view->scope.lineage == lineage &&
			volume_id_equal(&view->scope.volume, volume) &&
			(!newest || view->scope.generation >= newest->scope.generation))
			newest = view;
	}
	return newest;
}

json_t *seals_json(struct worker *w, const struct volume_id *volume, uint64_t lineage)
{
	struct seals *seals = w->seals;
	json_int_t sealed = 0;
	json_int_t complete = 0;
	json_int_t missing = 0;
	json_t *json;
	struct seal_view *view;

	pthread_mutex_lock(&seals->lock);
	view = newest_locked(seals, volume, lineage);
	for (uint32_t i = 0; view && i < view->n; i++) {
		const struct seal *seal = &view->seals[i];

		sealed += seal->status.state == SEAL_SEALED;
		complete += seal->status.state == SEAL_SEALED || seal->whole_ns;
		missing += (json_int_t)seal->status.missing;
	}
	json = view ? json_pack("{s:I, s:I, s:i, s:i, s:I}", "sealed", sealed, "complete", complete,
			      "all", (int)view->n, "held",
			      (int)seal_holders_count_locked(seals, volume, lineage),
			      "missing_bytes", missing)
		    : json_null();
	pthread_mutex_unlock(&seals->lock);
	return json;
}

bool seals_find(struct worker *w, const struct chunk_id *chunk, struct seal_status *ret_status)
{
	struct seals *seals = w->seals;
	struct seal_view *view;
	uint64_t number = 0;

	pthread_mutex_lock(&seals->lock);
	view = newest_locked(seals, &chunk->volume, chunk->lineage);
	if (view)
		number = chunk->chunk / (view->scope.extent_bytes / CHUNK_BYTES);
	if (view && number < view->n)
		*ret_status = view->seals[number].status;
	else
		view = NULL;
	pthread_mutex_unlock(&seals->lock);
	return view != NULL;
}

/* ---- opening and closing --------------------------------------------------------------------- */

int seals_open(struct worker *w)
{
	struct seals *seals = calloc(1, sizeof(*seals));
	pthread_condattr_t attr;

	if (!seals)
		return -ENOMEM;
	pthread_mutex_init(&seals->lock, NULL);
	list_init(&seals->views);
	list_init(&seals->holders);
	hash_random(&seals->epoch, sizeof(seals->epoch));
	seals->work = (struct periodic_work){ .name = "seal", .run = seal_run_slice, .arg = w };
	seals->quiet_ns = SEAL_QUIET_NS;
	seals->pace.worker = w;
	seals->pace.live = &w->rates.seal;
	pthread_mutex_init(&seals->pace.lock, NULL);
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&seals->pace.wake, &attr);
	pthread_condattr_destroy(&attr);
	w->seals = seals;
	return 0;
}

void seals_start(struct worker *w)
{
	struct seals *seals = w->seals;

	if (seals->started || atomic_load(&w->rates.seal) == 0)
		return;
	seals->started = true;
	periodic_start(w->quiet, &seals->work, 0);
}

void seals_stop(struct worker *w)
{
	if (!w->seals)
		return;
	pthread_mutex_lock(&w->seals->pace.lock);
	w->seals->pace.closing = true;
	pthread_cond_broadcast(&w->seals->pace.wake);
	pthread_mutex_unlock(&w->seals->pace.lock);
}

void seals_end(struct worker *w, const struct rpc_conn *conn)
{
	pthread_mutex_lock(&w->seals->lock);
	list_for_each (node, &w->seals->holders) {
		struct seal_holder *holder = list_entry(node, struct seal_holder, link);

		if (holder->conn == conn)
			holder->conn = NULL;
	}
	pthread_mutex_unlock(&w->seals->lock);
}

void seals_close(struct worker *w)
{
	struct seals *seals = w->seals;

	if (!seals)
		return;
	periodic_stop(&seals->work);
	seal_holders_expire(w, true);
	list_for_each_safe (node, &seals->views) {
		struct seal_view *view = list_entry(node, struct seal_view, link);

		arena_free(ARENA_CHUNKS, view->seals, view->n * sizeof(*view->seals));
		free(view);
	}
	free(seals->pace.unit);
	pthread_cond_destroy(&seals->pace.wake);
	pthread_mutex_destroy(&seals->pace.lock);
	pthread_mutex_destroy(&seals->lock);
	free(seals);
	w->seals = NULL;
}
