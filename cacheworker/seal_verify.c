/* The work that checks extents, verifies them, and decides. See seal_internal.h. */
#include "base/arena.h"
#include "cacheworker/seal_internal.h"

#include <stdlib.h>
#include <string.h>

#define TABLE_AGAIN_NS (5 * CLOCK_SECOND)

/* One view in a tick. */
struct turn {
	struct worker *worker;
	struct seal_view *view;
	struct seal_scope scope; /* a copy */
	struct table *table;
	uint64_t extent_bytes; /* of the tiers; 0: none */
	uint64_t damages;
	uint32_t n;
	uint64_t until_ns; /* looking ends */
	bool late;         /* it did not get through */
};

/* ---- deciding -------------------------------------------------------------------------------- */

static void set_state(struct seal *seal, enum seal_state state, enum seal_why why)
{
	seal->status.state = state;
	seal->status.why = why;
	seal->status.percent = 0;
	if (state != SEAL_INCOMPLETE)
		seal->status.missing = 0;
}

/* Why it is not to be sealed, or SEAL_WHY_NONE. */
static enum seal_why why_refused(const struct turn *turn, const struct tier_seal_facts *facts)
{
	if (facts && facts->out)
		return SEAL_WHY_TIER;
	if (facts && facts->memory)
		return SEAL_WHY_MEMORY;
	if (facts && facts->bytes != turn->scope.extent_bytes)
		return SEAL_WHY_SIZE;
	if (turn->extent_bytes == 0)
		return SEAL_WHY_NOT_HELD;
	return turn->extent_bytes != turn->scope.extent_bytes ? SEAL_WHY_SIZE : SEAL_WHY_NONE;
}

/* Whether the extent is to be looked at again. */
static bool wants_look(const struct seal *seal, const struct tier_seal_facts *facts)
{
	if (!seal->looked || seal->changes != facts->changes)
		return true;
	if (seal->status.state == SEAL_SEALED || seal->status.state == SEAL_VERIFYING)
		return false;
	return seal->whole_ns || facts->written >= seal->look_at;
}

/* Takes what the tiers know, without looking; true: a look is due. */
static bool glance_locked(const struct turn *turn, struct seal *seal,
	const struct tier_seal_facts *facts, enum seal_why why)
{
	bool sealed;

	if (!turn->table && seal->status.state == SEAL_UNKNOWN) {
		seal->status.why = SEAL_WHY_TABLE; /* nor is known what the tiers are to hold */
		return false;
	}
	seal_note(seal, facts);
	if (!facts) {
		seal->status.why = why;
		return false;
	}
	sealed = seal->status.state == SEAL_SEALED;
	if (seal->status.state == SEAL_REFUSED && seal->status.why != why) {
		set_state(seal, SEAL_INCOMPLETE, SEAL_WHY_NONE);
		seal->looked = false;
	}
	/* What lies in the file of a volume that is to leave its extents may be a device still. */
	if (why == SEAL_WHY_NONE || why == SEAL_WHY_NOT_HELD || (why == SEAL_WHY_SIZE && sealed))
		return wants_look(seal, facts);
	set_state(seal, SEAL_REFUSED, why);
	seal->looked = false;
	seal->whole_ns = 0;
	return false;
}

/* All is there. */
static void decide_whole(
	struct seal *seal, const struct seal_look *look, uint64_t now, uint64_t quiet_ns)
{
	if (seal->status.state == SEAL_SEALED && look->there)
		return;
	if (seal->status.state == SEAL_VERIFYING && seal->whole_ns)
		return;
	if (!seal->whole_ns)
		seal->whole_ns = now;
	seal->status.missing = 0;
	if (now - seal->whole_ns < quiet_ns)
		set_state(seal, SEAL_INCOMPLETE, SEAL_WHY_QUIET);
	else
		set_state(seal, look->fresh ? SEAL_SEALED : SEAL_VERIFYING, SEAL_WHY_NONE);
}

/* Its volume is to leave its extents: what is sealed stays so while it is there. */
static void decide_refused(struct seal *seal, const struct seal_look *look, enum seal_why why)
{
	if (seal->status.state == SEAL_SEALED && !look->missing && look->there)
		return;
	set_state(seal, SEAL_REFUSED, why);
	seal->status.missing = look->missing;
	seal->look_at = UINT64_MAX; /* when something changes */
	seal->whole_ns = 0;
}

static void decide_locked(struct seal *seal, const struct tier_seal_facts *facts,
	const struct seal_look *look, enum seal_why refused, uint64_t quiet_ns)
{
	enum seal_why why = seal->status.why == SEAL_WHY_FINDING ? SEAL_WHY_FINDING : SEAL_WHY_NONE;
	uint64_t now = clock_mono_ns();

	seal->looked = true;
	seal->changes = facts->changes;
	if (refused != SEAL_WHY_NONE) {
		decide_refused(seal, look, refused);
		return;
	}
	if (!look->missing) {
		decide_whole(seal, look, now, quiet_ns);
		return;
	}
	seal->whole_ns = 0;
	/* At least that much is to be written first. */
	seal->look_at = facts->written + (look->elsewhere ? 0 : look->missing / BLOCK_BYTES);
	if (look->elsewhere && why == SEAL_WHY_NONE)
		why = SEAL_WHY_MOVING;
	set_state(seal, SEAL_INCOMPLETE, why);
	seal->status.missing = look->missing;
}

/* ---- one extent ------------------------------------------------------------------------------ */

static void update(struct turn *turn, uint32_t number)
{
	struct worker *w = turn->worker;
	struct seals *seals = w->seals;
	struct extent *extent =
		tier_seal_find(w->tiers, &turn->scope.volume, turn->scope.lineage, number);
	struct tier_seal_facts facts = { 0 };
	struct seal_look look;
	struct seal *seal;
	enum seal_why why;
	bool was;
	int r = -EAGAIN;

	if (extent)
		tier_seal_facts(extent, &facts);
	why = why_refused(turn, extent ? &facts : NULL);
	pthread_mutex_lock(&seals->lock);
	seal = &turn->view->seals[number];
	was = seal->status.state == SEAL_SEALED;
	if (glance_locked(turn, seal, extent ? &facts : NULL, why) && turn->table)
		r = 0;
	seal_count(w, &turn->scope, number, was, &seal->status);
	pthread_mutex_unlock(&seals->lock);
	if (r == 0)
		r = seal_look(w, &turn->scope, turn->table, extent, number, &look);
	if (r == 0) {
		pthread_mutex_lock(&seals->lock);
		seal = &turn->view->seals[number]; /* the array may have grown */
		was = seal->status.state == SEAL_SEALED;
		if (seal->file == facts.file && seal->damages == facts.damages)
			decide_locked(seal, &facts, &look, why, atomic_load(&seals->quiet_ns));
		seal_count(w, &turn->scope, number, was, &seal->status);
		pthread_mutex_unlock(&seals->lock);
	}
	tier_seal_unref(extent);
}

/* ---- a tick ---------------------------------------------------------------------------------- */

/* A table that names the view's generation; NULL: not now. */
static struct table *find_table(struct worker *w, struct seal_view *view, uint64_t now)
{
	const struct chunk_id id = { .volume = view->scope.volume, .lineage = view->scope.lineage };
	struct source *source;
	struct table *table = NULL;

	if (view->failed_ns && now - view->failed_ns < TABLE_AGAIN_NS)
		return NULL;
	source = scrub_source_of(&w->seals->pace, &id, view->scope.generation);
	if (source)
		table = source_table(source);
	if (table && table_info(table)->id.generation < view->scope.generation) {
		table_unref(table);
		table = NULL;
	}
	view->failed_ns = table ? 0 : now;
	return table;
}

static bool all_sealed_locked(const struct seal_view *view)
{
	for (uint32_t i = 0; i < view->n; i++)
		if (view->seals[i].status.state != SEAL_SEALED)
			return false;
	return true;
}

/* Nothing happens to what is sealed, most of the time. */
static bool rests(struct worker *w, struct seal_view *view, uint64_t now)
{
	bool is_resting;

	pthread_mutex_lock(&w->seals->lock);
	is_resting = now < view->rest_ns && view->damages == tier_seal_damages(w->tiers) &&
		     all_sealed_locked(view); /* damage is seen by who asks, too */
	pthread_mutex_unlock(&w->seals->lock);
	return is_resting;
}

static void take_turn(struct worker *w, struct seal_view *view, uint64_t now)
{
	struct turn turn = { .worker = w, .view = view, .scope = view->scope };

	turn.table = find_table(w, view, now);
	if (turn.table) /* what a later generation appended is not this one's, but so far it goes */
		turn.scope.end = min(turn.scope.end, table_info(turn.table)->end);
	turn.damages = tier_seal_damages(w->tiers);
	turn.extent_bytes =
		tier_seal_extent_bytes(w->tiers, &view->scope.volume, view->scope.lineage);
	turn.until_ns = clock_mono_ns() + SEAL_PART_NS;
	pthread_mutex_lock(&w->seals->lock);
	turn.n = view->n;
	pthread_mutex_unlock(&w->seals->lock);
	for (uint32_t i = 0; i < turn.n && !turn.late; i++) {
		update(&turn, view->next);
		view->next = (view->next + 1) % turn.n;
		turn.late = clock_mono_ns() > turn.until_ns;
	}
	if (!turn.late) {
		pthread_mutex_lock(&w->seals->lock);
		view->damages = turn.damages;
		view->rest_ns = all_sealed_locked(view) ? now + SEAL_REST_NS : 0;
		pthread_mutex_unlock(&w->seals->lock);
	}
	table_unref(turn.table);
}

/* The view after `view`, or (NULL) the first. Only this thread takes any away. */
static struct seal_view *next_view(struct seals *seals, struct seal_view *view)
{
	struct list *node;

	pthread_mutex_lock(&seals->lock);
	node = view ? view->link.next : seals->views.next;
	pthread_mutex_unlock(&seals->lock);
	return node == &seals->views ? NULL : list_entry(node, struct seal_view, link);
}

static bool forget_if_old(struct worker *w, struct seal_view *view, uint64_t now)
{
	struct seals *seals = w->seals;
	uint64_t most;
	bool old;

	pthread_mutex_lock(&seals->lock);
	most = seals->n_views > SEAL_VIEWS_MAX / 2 ? SEAL_VIEW_SOON : SEAL_VIEW_NS;
	old = now > view->asked_ns && now - view->asked_ns > most;
	if (old) {
		list_remove(&view->link);
		seals->n_views--;
	}
	pthread_mutex_unlock(&seals->lock);
	if (!old)
		return false;
	if (seals->run.view == view)
		seals->run.view = NULL;
	arena_free(ARENA_CHUNKS, view->seals, view->n * sizeof(*view->seals));
	free(view);
	return true;
}

static void tick(struct worker *w)
{
	uint64_t now = clock_mono_ns();
	struct seal_view *next;

	w->seals->turn_ns = now;
	seal_holders_expire(w, false);
	for (struct seal_view *view = next_view(w->seals, NULL); view; view = next) {
		next = next_view(w->seals, view);
		if (!scrub_closing(&w->seals->pace) && !forget_if_old(w, view, now) &&
			!rests(w, view, now))
			take_turn(w, view, now);
	}
}

/* ---- verifying ------------------------------------------------------------------------------- */

static bool begin_in(struct seal_run *run, struct seal_view *view)
{
	for (uint32_t i = 0; i < view->n; i++) {
		const struct seal *seal = &view->seals[i];

		if (seal->status.state != SEAL_VERIFYING)
			continue;
		*run = (struct seal_run){ .view = view, .number = i, .file = seal->file };
		return true;
	}
	return false;
}

/* The first extent that waits for it. */
static bool begin_run(struct worker *w)
{
	struct seals *seals = w->seals;
	struct seal_run *run = &seals->run;

	pthread_mutex_lock(&seals->lock);
	list_for_each (node, &seals->views)
		if (begin_in(run, list_entry(node, struct seal_view, link)))
			break;
	pthread_mutex_unlock(&seals->lock);
	if (!run->view)
		return false;
	seal_chunks(&run->view->scope, run->number, &run->first, &run->end);
	run->chunk = run->first;
	if (!seals->pace.unit)
		seals->pace.unit = aligned_alloc(BLOCK_BYTES, UNIT_BYTES);
	if (seals->pace.unit)
		return true;
	run->view = NULL;
	return false;
}

/* False: it is to be looked at anew. */
static bool still_verifying(struct seals *seals, const struct seal_run *run, uint8_t percent)
{
	struct seal *seal;
	bool still;

	pthread_mutex_lock(&seals->lock);
	seal = &run->view->seals[run->number];
	still = seal->file == run->file && seal->status.state == SEAL_VERIFYING;
	if (still)
		seal->status.percent = percent;
	pthread_mutex_unlock(&seals->lock);
	return still;
}

/* True: all of the chunk that is there is verified, or none of it lies in the extent. */
static bool verify_chunk(struct worker *w, struct extent *extent, const struct chunk_id *id)
{
	struct seals *seals = w->seals;
	struct chunk *chunk = tier_chunk_find(w->tiers, id);
	bool good = true;

	if (chunk && tier_seal_has(extent, chunk) &&
		tier_seal_mark(extent, chunk) != TIER_SEAL_FRESH) {
		uint64_t begun = tier_seal_begin(chunk);

		memset(&seals->tally, 0, sizeof(seals->tally));
		good = scrub_verify_chunk(&seals->pace, &seals->tally, id) &&
		       seals->tally.bad == 0 && seals->tally.unread == 0 &&
		       seals->tally.unknown == 0 && tier_seal_end(extent, chunk, begun);
		counter_add(&w->counters.seal_bytes, seals->tally.bytes);
	}
	chunk_unref(chunk);
	return good;
}

/* Sealed, when every chunk has its mark and all is there still. */
static void end_run(struct worker *w, struct extent *extent, bool good)
{
	struct seals *seals = w->seals;
	const struct seal_run *run = &seals->run;
	struct seal_scope scope = run->view->scope;
	struct table *table = good ? find_table(w, run->view, clock_mono_ns()) : NULL;
	struct tier_seal_facts facts = { 0 };
	struct seal_look look = { 0 };
	struct seal *seal;

	if (extent)
		tier_seal_facts(extent, &facts);
	if (table)
		scope.end = min(scope.end, table_info(table)->end);
	good = extent && table && seal_look(w, &scope, table, extent, run->number, &look) == 0 &&
	       !look.missing && look.there;
	table_unref(table);
	pthread_mutex_lock(&seals->lock);
	seal = &run->view->seals[run->number];
	if (seal->file == run->file && seal->status.state == SEAL_VERIFYING) {
		bool same = seal->file == facts.file && seal->damages == facts.damages;

		set_state(seal, good && same ? SEAL_SEALED : SEAL_INCOMPLETE, SEAL_WHY_NONE);
		seal->looked = good && same;
		seal->changes = facts.changes;
		seal->whole_ns = good ? seal->whole_ns : 0;
		seal_count(w, &scope, run->number, false, &seal->status);
	}
	pthread_mutex_unlock(&seals->lock);
}

/* A chunk of the extent being verified, or its end. */
static void verify_on(struct worker *w)
{
	struct seals *seals = w->seals;
	struct seal_run *run = &seals->run;
	struct seal_scope *scope = &run->view->scope;
	uint64_t n = max(run->end - run->first, 1ull);
	struct extent *extent;
	bool good;

	if (!still_verifying(seals, run, (uint8_t)((run->chunk - run->first) * 100 / n))) {
		run->view = NULL;
		return;
	}
	extent = tier_seal_find(w->tiers, &scope->volume, scope->lineage, run->number);
	good = extent != NULL;
	if (good && run->chunk < run->end) {
		const struct chunk_id id = {
			.volume = scope->volume, .lineage = scope->lineage, .chunk = run->chunk
		};

		good = verify_chunk(w, extent, &id);
		run->chunk++;
	}
	if (!good || run->chunk >= run->end) {
		end_run(w, extent, good);
		run->view = NULL;
	}
	tier_seal_unref(extent);
}

/* A check of all views every SEAL_TICK_NS, and a chunk of the extent that is being verified. */
uint64_t seal_run_slice(void *arg)
{
	struct worker *w = arg;
	struct seals *seals = w->seals;
	uint64_t ns = SEAL_TICK_NS;

	if (scrub_closing(&seals->pace))
		return PERIODIC_IDLE;
	if (clock_mono_ns() - seals->turn_ns >= SEAL_TICK_NS)
		tick(w);
	if (seals->run.view || begin_run(w)) {
		verify_on(w);
		ns = 0;
	} else {
		free(seals->pace.unit);
		seals->pace.unit = NULL;
		pthread_mutex_lock(&seals->lock);
		if (seals->n_views == 0 && seals->n_holders == 0)
			ns = PERIODIC_IDLE; /* a new one pokes it */
		pthread_mutex_unlock(&seals->lock);
	}
	return ns;
}
