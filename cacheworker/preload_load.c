/* One turn of a preload: opens, counts, loads, checks. See preload.h. */
#include "base/cleanup.h"
#include "base/log.h"
#include "base/units.h"
#include "cacheworker/copies.h"
#include "cacheworker/preload_internal.h"
#include "cacheworker/pull.h"
#include "cacheworker/retention.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TURN_BYTES   (4ull << 20) /* asked for in one turn, then another job may go on */
#define LATER_NS     (20 * CLOCK_MS)
#define RETENTION_NS (5 * CLOCK_SECOND) /* a job that found no room waits for a new quota */
#define UNCOPIED     64u                /* copies in a row that fail: the others would, too */

/* The unit that a walk is at. */
struct place {
	uint64_t start; /* volume offset */
	uint32_t length;
	bool first; /* of its object */
	bool last;
	uint64_t next; /* where the walk goes on */
	enum preload_share share;
};

void preload_end(struct preload_job *job, enum preload_state outcome, const char *fmt, ...)
{
	struct preloads *p = job->preloads;
	char reason[PRELOAD_REASON_BYTES];
	uint64_t files;
	uint64_t done;
	uint64_t failed;
	va_list ap;

	va_start(ap, fmt);
	(void)vsnprintf(reason, sizeof(reason), fmt, ap); /* cut: for people */
	va_end(ap);
	pthread_mutex_lock(&p->lock);
	memcpy(job->reason, reason, sizeof(reason));
	job->phase = LOAD_ENDED;
	job->outcome = outcome;
	job->ended_ns = clock_mono_ns();
	files = job->tally.files;
	done = job->tally.files_done;
	failed = job->tally.files_failed;
	preload_drop_again_locked(job);
	preload_ended_locked(p);
	pthread_mutex_unlock(&p->lock);
	log_info("preload ended",
		"id=%" PRIu64 " state=%s files=%" PRIu64 " done=%" PRIu64 " failed=%" PRIu64
		" reason=\"%s\"",
		job->id, preload_state_name(outcome), files, done, failed, reason);
}

void preload_walk_release(struct preload_job *job)
{
	table_cursor_release(&job->cursor);
	if (job->walk.file)
		free(job->walk.file); /* no unit has it any more */
	job->walk.file = NULL;
}

/* ---- walking --------------------------------------------------------------------------------- */

/* The next unit that is meant: 0; -EAGAIN: many were passed over, once more; -ENOENT at the end, or
 * the table's error. */
static int next_place(struct preload_job *job, struct place *ret)
{
	struct preload_walk *walk = &job->walk;
	struct table_row *row = &walk->row;

	for (uint32_t i = 0; i < PRELOAD_TURN_ROWS; i++) {
		uint64_t object_offset;
		int r = source_row_from(job->table, walk->at, row);

		if (r < 0)
			return r;
		if (!preload_is_meant(job, row)) {
			walk->at = align_up(row->offset + row->size, BLOCK_BYTES);
			continue;
		}
		flight_unit_of(
			row, max(row->offset, walk->at), &ret->start, &ret->length, &object_offset);
		ret->first = object_offset == 0;
		ret->last = object_offset + ret->length == row->size;
		ret->next = ret->start + align_up(ret->length, BLOCK_BYTES);
		ret->share = preload_share_of(job, ret->start >> CHUNK_BITS);
		return 0;
	}
	return -EAGAIN;
}

static bool check_run(struct preload_job *job, struct chunk *chunk, const struct piece_run *run)
{
	counter_add(&job->preloads->worker->counters.preload_checked, run->length);
	return chunk_read(chunk, run, job->preloads->unit) == 0;
}

/* Compares a unit of an earlier boot with its checksums; what does not match is dropped. */
static bool compare(struct preload_job *job, const struct place *place)
{
	const struct table_row *row = &job->walk.row;
	struct worker *w = job->preloads->worker;
	uint64_t seed = piece_object_seed(row->key, row->key_len, row->tag, row->tag_len);
	bool good = true;

	for (uint32_t done = 0; good && done < place->length;) {
		uint64_t at = place->start + done;
		struct chunk_id id = { .volume = job->source->volume,
			.lineage = job->source->lineage,
			.chunk = at >> CHUNK_BITS };
		struct piece_run run = { .offset = (uint32_t)(at & (CHUNK_BYTES - 1)),
			.object_seed = seed,
			.first_piece = (at - row->offset) >> PIECE_BITS };
		struct chunk *chunk = tier_chunk_find(w->tiers, &id);

		run.length = min(place->length - done, CHUNK_BYTES - run.offset);
		good = chunk && (!chunk_unverified(chunk, run.offset, run.length) ||
					check_run(job, chunk, &run));
		chunk_unref(chunk);
		done += run.length;
	}
	return good;
}

enum verdict {
	THERE,
	MISSED, /* there is no room */
	FAILED, /* it is there, and cannot be read */
};

static bool is_held(const struct preload_job *job, const struct place *place)
{
	return flight_unit_held(job->source, place->start, place->length);
}

/* The object that the unit is of has a struct. -ENOMEM. */
static int file_of(struct preload_job *job, const struct place *place)
{
	struct preload_walk *walk = &job->walk;

	if (walk->file)
		return 0;
	walk->file = preload_file_new(&walk->row);
	if (!walk->file)
		return -ENOMEM;
	walk->file->counts = place->first && place->share == SHARE_OWNED;
	return 0;
}

/* Past one that is another worker's. */
static void skip(struct preload_job *job, const struct place *place)
{
	struct preload_walk *walk = &job->walk;

	if (place->last && walk->file) {
		pthread_mutex_lock(&job->preloads->lock);
		preload_file_unref_locked(job, TAKE(walk->file));
		pthread_mutex_unlock(&job->preloads->lock);
	}
	walk->met += place->last;
	walk->at = place->next;
}

/* Past a unit that is not to be asked for. */
static int pass(struct preload_job *job, const struct place *place, enum verdict verdict)
{
	struct preload_walk *walk = &job->walk;
	bool simple = place->first && place->last && !walk->file && verdict != FAILED;

	if (!simple && file_of(job, place) < 0)
		return -ENOMEM;
	pthread_mutex_lock(&job->preloads->lock);
	if (verdict == THERE && place->share == SHARE_OWNED)
		job->tally.bytes_done += place->length;
	else if (verdict == THERE)
		job->tally.bytes_copied += place->length;
	if (simple) {
		job->tally.files_done += verdict == THERE && place->share == SHARE_OWNED;
	} else {
		walk->file->missed |= verdict == MISSED;
		if (verdict == FAILED)
			preload_file_fail_locked(job, walk->file,
				"cached, but it cannot be read and checked now: see the state of "
				"its tier with cachectl status");
		if (place->last)
			preload_file_unref_locked(job, TAKE(walk->file));
	}
	pthread_mutex_unlock(&job->preloads->lock);
	walk->met += place->last;
	walk->at = place->next;
	return 0;
}

/* Asks for a unit that is not there. As preload_unit_want(). */
static int ask(struct preload_job *job, const struct place *place, struct flight_batch *batch)
{
	struct preload_walk *walk = &job->walk;
	struct preload_unit *unit = NULL;
	int r;

	if (file_of(job, place) == 0)
		unit = preload_unit_new(job, walk->file, place->start, place->length);
	if (!unit)
		return -ENOMEM;
	unit->copy = place->share == SHARE_COPY;
	r = preload_unit_want(unit, &walk->row, batch);
	if (r < 0) {
		preload_unit_undo(unit);
		return r;
	}
	pthread_mutex_lock(&job->preloads->lock);
	rate_take(&job->rate, place->length);
	if (place->last)
		preload_file_unref_locked(job, TAKE(walk->file));
	pthread_mutex_unlock(&job->preloads->lock);
	walk->met += place->last;
	walk->at = place->next;
	return 0;
}

/* ---- loading --------------------------------------------------------------------------------- */

/* Does the bandwidth limit allow one more unit? A request that is `begun` may overdraw the limit by one burst: otherwise
 * each unit after the first burst would be a request of its own. */
static bool is_paid_for(struct preload_job *job, bool begun, uint64_t now)
{
	return rate_left(&job->rate, now) > (begun ? -job->rate.per_s * job->rate.burst_s : 0);
}

/* May one more be asked for? */
static enum preload_step may_ask(struct preload_job *job, bool begun, uint64_t *ret_ns)
{
	struct preloads *p = job->preloads;
	enum preload_step step = PRELOAD_WENT;
	uint64_t now = clock_mono_ns();

	pthread_mutex_lock(&p->lock);
	if (!is_paid_for(job, begun, now)) {
		step = PRELOAD_PAUSED;
		*ret_ns = max(rate_wait_ns(&job->rate, now), (uint64_t)CLOCK_MS);
	} else if (p->in_flight >= p->max_in_flight) {
		step = PRELOAD_STUCK;
	}
	pthread_mutex_unlock(&p->lock);
	return step;
}

static bool is_full(struct preload_job *job)
{
	struct preloads *p = job->preloads;
	bool full;

	pthread_mutex_lock(&p->lock);
	full = job->full;
	pthread_mutex_unlock(&p->lock);
	if (full)
		return true;
	full = tier_volume_full(p->worker->tiers, &job->source->volume,
		job->lru ? TIER_WANT_FILL : TIER_WANT_AHEAD);
	pthread_mutex_lock(&p->lock);
	job->full |= full;
	pthread_mutex_unlock(&p->lock);
	return full;
}

/* A unit that is to be asked for once more, when it is time; it counts as on its way. */
static struct preload_unit *take_again(struct preload_job *job)
{
	struct preloads *p = job->preloads;
	struct preload_unit *unit = NULL;

	pthread_mutex_lock(&p->lock);
	if (!list_empty(&job->again))
		unit = list_entry(job->again.next, struct preload_unit, link);
	if (unit && unit->not_before_ns <= clock_mono_ns()) {
		list_remove(&unit->link);
		unit->wait.yielded = false;
		job->in_flight++;
		p->in_flight++;
	} else {
		unit = NULL;
	}
	pthread_mutex_unlock(&p->lock);
	return unit;
}

static void ask_again(struct preload_job *job)
{
	struct preload_unit *unit = take_again(job);
	int r;

	if (!unit)
		return;
	r = table_find_offset(job->table, unit->start, &job->walk.row);
	if (r == 0)
		r = preload_unit_want(unit, &job->walk.row, NULL);
	if (r < 0)
		preload_unit_end(unit, r == -EEXIST ? 0 : r, NULL);
}

static bool copies_fail(struct preload_job *job)
{
	bool fail;

	pthread_mutex_lock(&job->preloads->lock);
	fail = job->uncopied >= UNCOPIED;
	pthread_mutex_unlock(&job->preloads->lock);
	return fail;
}

/* Must the unit be fetched at all? Limits are checked later. */
static bool is_wanted(struct preload_job *job, const struct place *place)
{
	if (place->share == SHARE_NONE || is_held(job, place))
		return false;
	return place->share == SHARE_COPY ? !copies_fail(job) : !is_full(job);
}

/* A batch is of one object and chunk. NULL: the unit is a whole object. */
static struct flight_batch *batch_for(
	struct preload_job *job, const struct place *place, struct flight_batch *batch)
{
	if (batch->n > 0 && (place->first || batch->flights[0]->start >> CHUNK_BITS !=
						     place->start >> CHUNK_BITS))
		flight_batch_start(batch);
	return job->walk.row.size > UNIT_BYTES ? batch : NULL;
}

/* Is there memory for as much as one request asks for? If nothing is on its way that gives some back, it begins with what
 * there is. */
static bool may_start(struct preload_job *job, const struct place *place)
{
	struct preloads *p = job->preloads;
	const struct table_row *row = &job->walk.row;
	uint64_t end =
		min(row->offset + row->size, align_down(place->start, CHUNK_BYTES) + CHUNK_BYTES);
	bool alone;

	pthread_mutex_lock(&p->lock);
	alone = p->in_flight == 0;
	pthread_mutex_unlock(&p->lock);
	return alone ||
	       flight_may_start_range(job->source, row, end - place->start, preload_class(job));
}

/* One unit; *bytes: how many were asked for. */
static enum preload_step load_one(
	struct preload_job *job, struct flight_batch *batch, uint64_t *bytes, uint64_t *ret_ns)
{
	struct flight_batch *into;
	enum preload_step step;
	enum verdict verdict;
	struct place place;
	int r = next_place(job, &place);

	/* A request that is begun does not wait for a search, for a disk, or for units that are skipped. */
	if (r < 0 || !is_wanted(job, &place))
		flight_batch_start(batch);
	if (r == -EAGAIN) {
		*bytes += TURN_BYTES;
		return PRELOAD_WENT;
	}
	if (r == -ENOENT) {
		pthread_mutex_lock(&job->preloads->lock);
		if (job->tally.files > job->walk.met &&
			preload_share_of(job, 0) == SHARE_OWNED) /* the empty ones lie nowhere */
			job->tally.files_done += job->tally.files - job->walk.met;
		job->phase = LOAD_DRAINING;
		pthread_mutex_unlock(&job->preloads->lock);
		return PRELOAD_WENT;
	}
	if (r < 0) {
		preload_end(job, PRELOAD_FAILED, "the object table cannot be read: %s", err_str(r));
		return PRELOAD_WENT;
	}
	*bytes += UNIT_BYTES / 64; /* looking takes time, too */
	if (place.share == SHARE_NONE || (place.share == SHARE_COPY && copies_fail(job))) {
		skip(job, &place);
		return PRELOAD_WENT;
	}
	verdict = is_held(job, &place) ? THERE : MISSED;
	if (verdict == THERE && job->recheck && !compare(job, &place))
		verdict = is_held(job, &place) ? FAILED : MISSED;
	if (verdict == FAILED && place.share == SHARE_COPY)
		verdict = THERE; /* its owner has it, too */
	if (verdict != MISSED || (place.share == SHARE_OWNED && is_full(job)))
		return pass(job, &place, verdict) < 0 ? PRELOAD_STUCK : PRELOAD_WENT;
	into = batch_for(job, &place, batch);
	step = may_ask(job, into && into->n > 0, ret_ns);
	if (step != PRELOAD_WENT)
		return step;
	if (into && into->n == 0 && !may_start(job, &place))
		return PRELOAD_STUCK;
	r = ask(job, &place, into);
	if (r == -EEXIST) /* looked at again, it is there */
		return PRELOAD_WENT;
	*bytes += place.length;
	if (flight_batch_full(batch))
		flight_batch_start(batch);
	return r < 0 ? PRELOAD_STUCK : PRELOAD_WENT;
}

static enum preload_step load_turn(struct preload_job *job, uint64_t *ret_ns)
{
	enum preload_step step = PRELOAD_WENT;
	struct flight_batch batch = { .n = 0 };
	struct tier_volume_status space;
	uint64_t bytes = 0;

	job->lru = tier_volume_status(job->preloads->worker->tiers, &job->source->volume, &space) &&
		   space.policy.evict == TIER_EVICT_LRU;
	if (!job->walk.begun)
		preload_begin_walk(job);
	ask_again(job);
	while (step == PRELOAD_WENT && (bytes < TURN_BYTES || batch.n > 0) &&
		job->phase == LOAD_LOADING)
		step = load_one(job, &batch, &bytes, ret_ns);
	flight_batch_start(&batch);
	return step;
}

static enum preload_step drain_turn(struct preload_job *job)
{
	struct preloads *p = job->preloads;
	bool empty;

	ask_again(job);
	pthread_mutex_lock(&p->lock);
	empty = job->in_flight == 0 && list_empty(&job->again);
	if (empty)
		job->phase = LOAD_CHECKING;
	pthread_mutex_unlock(&p->lock);
	if (!empty)
		return PRELOAD_STUCK;
	job->walk.at = 0;
	return PRELOAD_WENT;
}

/* ---- checking -------------------------------------------------------------------------------- */

/* What did not fit, and what to do. */
static void end_incomplete(struct preload_job *job)
{
	struct tier_volume_status space = { 0 };
	char quota[16];
	char there[16];
	char all[16];

	if (!tier_volume_status(job->preloads->worker->tiers, &job->volume, &space))
		space.policy.quota = 0;
	(void)units_size(job->there, there, sizeof(there));
	(void)units_size(job->due, all, sizeof(all));
	if (!job->full)
		preload_end(job, PRELOAD_INCOMPLETE,
			"%s of %s are cached: the rest was damaged or evicted for another source "
			"meanwhile: preload it again, or give it a higher priority",
			there, all);
	else if (space.policy.quota && space.charged + CHUNK_BYTES > space.policy.quota)
		preload_end(job, PRELOAD_INCOMPLETE,
			"quota reached: %s of %s fit into %s: raise the source's quota", there, all,
			units_size(space.policy.quota, quota, sizeof(quota)));
	else
		preload_end(job, PRELOAD_INCOMPLETE,
			"cache full: %s of %s fit: raise --cache-size (of cacheworker: the tier's "
			"capacity), or add a tier",
			there, all);
}

static void end_checked(struct preload_job *job)
{
	struct preload_tally *t = &job->tally;
	uint64_t uncopied = job->copies_due - job->copies_there;
	char size[16];

	if (preload_is_overtaken(job)) { /* some of it may be its own since, or to be copied */
		preload_walk_again(job);
		return;
	}
	pthread_mutex_lock(&job->preloads->lock);
	t->bytes_done = job->there;
	t->bytes_copied = job->copies_there;
	pthread_mutex_unlock(&job->preloads->lock);
	if (t->files_failed)
		preload_end(job, PRELOAD_FAILED,
			"%" PRIu64 " of %" PRIu64 " objects could not be fetched%s",
			t->files_failed, t->files, job->full ? ", and the cache is full" : "");
	else if (job->there < job->due)
		end_incomplete(job);
	else if (uncopied && copies_policy(job->preloads->worker, &job->volume) > COPIES_SHARED)
		preload_end(job, PRELOAD_INCOMPLETE,
			"all is cached, but %s of copies that this worker is to keep: it has no "
			"room, or their owners do not answer",
			units_size(uncopied, size, sizeof(size)));
	else
		preload_end(job, PRELOAD_COMPLETE, "%s", "");
}

static void check_place(struct preload_job *job, const struct place *place)
{
	bool held = place->share != SHARE_NONE && is_held(job, place);

	if (place->share == SHARE_OWNED) {
		job->due += place->length;
		job->there += held ? place->length : 0;
	} else if (place->share == SHARE_COPY) {
		job->copies_due += place->length;
		job->copies_there += held ? place->length : 0;
	}
}

/* A larger quota may not have been heard of when the job found no room: true until the retention settings were asked for since it began, or a
 * while has passed since all else was done. */
static bool waits_for_retention(struct preload_job *job)
{
	struct worker *w = job->preloads->worker;

	if (!job->full || retention_heard(w, job->began_ns))
		return false;
	if (!job->full_ns)
		job->full_ns = clock_mono_ns();
	if (clock_mono_ns() - job->full_ns > RETENTION_NS)
		return false;
	retention_wake(w);
	return true;
}

/* There is room where there was none. Once: what is full for another reason stays so. */
static bool has_room_now(struct preload_job *job)
{
	if (!job->full || job->had_room ||
		tier_volume_full(job->preloads->worker->tiers, &job->source->volume,
			job->lru ? TIER_WANT_FILL : TIER_WANT_AHEAD))
		return false;
	job->had_room = true;
	return true;
}

static enum preload_step check_turn(struct preload_job *job)
{
	struct place place;
	int r = 0;

	for (uint32_t i = 0; i < PRELOAD_TURN_ROWS && r == 0; i++) {
		r = next_place(job, &place);
		if (r < 0)
			break;
		check_place(job, &place);
		job->walk.at = place.next;
	}
	if (r == -ENOENT && waits_for_retention(job))
		return PRELOAD_PAUSED;
	if (r == -ENOENT && has_room_now(job))
		preload_walk_again(job);
	else if (r == -ENOENT)
		end_checked(job);
	else if (r < 0 && r != -EAGAIN)
		preload_end(job, PRELOAD_FAILED, "the object table cannot be read: %s", err_str(r));
	return PRELOAD_WENT;
}

enum preload_step preload_turn(struct preload_job *job, uint64_t *ret_ns)
{
	char reason[PRELOAD_REASON_BYTES];
	bool given_up;

	*ret_ns = LATER_NS;
	pthread_mutex_lock(&job->preloads->lock);
	given_up = job->given_up;
	memcpy(reason, job->reason, sizeof(reason));
	pthread_mutex_unlock(&job->preloads->lock);
	if (given_up) {
		preload_end(job, PRELOAD_FAILED, "%s", reason);
		return PRELOAD_WENT;
	}
	switch (job->phase) {
	case LOAD_OPENING:
		return preload_open_turn(job, ret_ns);
	case LOAD_COUNTING:
		return preload_count_turn(job);
	case LOAD_LOADING:
		return load_turn(job, ret_ns);
	case LOAD_DRAINING:
		return drain_turn(job);
	case LOAD_CHECKING:
		return check_turn(job);
	case LOAD_ENDED:
		preload_walk_again(job); /* it was picked: slots have moved */
		return PRELOAD_WENT;
	}
	return PRELOAD_STUCK;
}
