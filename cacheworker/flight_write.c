/*
 * Landed units are written to a tier, those of one file by one thread: several would wait for each other, as file
 * systems write new blocks of a file one at a time. Units that land meanwhile and follow one another are written
 * together: of small units a write costs more than its bytes.
 *
 * The first unit that lands for a file leads: its job takes a thread of the disk pool until no other unit has landed for
 * the file. See docs/decisions/tier-writes.md.
 */
#include "cacheworker/flight_internal.h"
#include "cacheworker/duty.h"

#include <string.h>

#define WRITE_TRIES 4u
#define ROUNDS      16u /* of writes; then other jobs of the pool have a turn */
#define WRITE_UNITS (UNIT_BYTES / BLOCK_BYTES) /* that are written together, at most */

static struct chunk_id chunk_of(const struct flight *f)
{
	return (struct chunk_id){ .volume = f->source->volume,
		.lineage = f->source->lineage,
		.chunk = f->start >> CHUNK_BITS };
}

/* ---- units ------------------------------------------------------------------------------------ */

/* A reader may join while the unit is written. */
static enum tier_want want_of(struct flight *f)
{
	enum tier_want want;

	pthread_mutex_lock(&f->worker->flights.lock);
	want = f->demanded                ? TIER_WANT_READ
	       : f->class == UFS_PREFETCH ? TIER_WANT_AHEAD
					  : TIER_WANT_FILL;
	pthread_mutex_unlock(&f->worker->flights.lock);
	return want;
}

/* Zeros behind its data, if there is room for them. */
static struct chunk_part part_of(struct flight *f)
{
	struct chunk_part part = {
		.run = { .offset = (uint32_t)(f->start & (CHUNK_BYTES - 1)),
			.length = f->length,
			.object_seed = f->object_seed,
			.first_piece = f->object_offset >> PIECE_BITS,
			.whole_blocks = f->recycled },
		.data = f->data,
		.sums = f->sums,
	};

	if (f->recycled)
		memset(f->data + f->length, 0, align_up(f->length, BLOCK_BYTES) - f->length);
	return part;
}

static int admit(struct flight *f, enum tier_want want, struct chunk **ret_chunk)
{
	struct chunk_id id = chunk_of(f);
	const struct tier_admission how = {
		.class = worker_class(f->worker, &id.volume, id.chunk),
		.want = want,
	};

	return tier_chunk_admit_as(f->worker->tiers, &id, &how, ret_chunk);
}

/* A chunk that moved to another tier meanwhile is found again. */
static int write_one(struct flight *f)
{
	const struct chunk_part part = part_of(f);
	int r = -EAGAIN;

	for (uint32_t i = 0; r == -EAGAIN && i < WRITE_TRIES; i++) {
		struct chunk *chunk;

		r = admit(f, want_of(f), &chunk);
		if (r < 0)
			break;
		r = chunk_write_summed(chunk, &part.run, part.data, part.sums);
		chunk_unref(chunk);
	}
	counter_add(&f->worker->counters.writes, r == 0);
	return r;
}

static int write_together(struct flight **units, uint32_t n)
{
	struct chunk_part parts[WRITE_UNITS];
	enum tier_want want = TIER_WANT_FILL;
	struct chunk *chunk;
	int r;

	for (uint32_t i = 0; i < n; i++) {
		enum tier_want of = want_of(units[i]);

		want = min(want, of); /* the strongest */
		parts[i] = part_of(units[i]);
	}
	r = admit(units[0], want, &chunk);
	if (r < 0)
		return r;
	r = chunk_write_parts(chunk, parts, n);
	chunk_unref(chunk);
	counter_add(&units[0]->worker->counters.writes, r == 0);
	return r;
}

/* Takes the write's reference. */
static void end_write(struct flight *f, int r)
{
	if (r < 0) {
		if (r != -ENOSPC && r != -EAGAIN)
			counter_add(&f->worker->counters.write_errors, 1);
		flight_keep(f, r);
	} else {
		counter_add(&f->worker->counters.written_units, 1);
		flight_end(f, 0, NULL);
	}
	flight_unref(f);
}

/* What cannot be written together may be written one by one: there is less room, or some of it is there. */
static void write_units(struct flight **units, uint32_t n)
{
	bool together = n > 1 && write_together(units, n) == 0;

	for (uint32_t i = 0; i < n; i++)
		end_write(units[i], together ? 0 : write_one(units[i]));
}

/* ---- who leads -------------------------------------------------------------------------------- */

/* What of one id is written by one thread: units of one file, or of a chunk that has none yet. */
static uint64_t write_id(const struct flight *f, bool *ret_stalled)
{
	const struct chunk_id id = chunk_of(f);
	uint64_t file = tier_chunk_file(f->worker->tiers, &id, ret_stalled);

	return file ? file : hash_xxh3(&id, sizeof(id), 0);
}

static struct flight *leader_locked(struct flights *flights, uint64_t id)
{
	struct map_node *node = map_first(&flights->leaders, id);

	return node ? container_of(node, struct flight, leads) : NULL;
}

/* Most land in order. */
static void add_unit_locked(struct flight *leader, struct flight *f)
{
	struct list *at = leader->to_write.prev;

	while (at != &leader->to_write && list_entry(at, struct flight, link)->start > f->start)
		at = at->prev;
	list_insert_before(at->next, &f->link);
}

/* The leader of that id: the unit itself if there is none yet. NULL: the disk pool takes no more jobs. */
static struct flight *lead_locked(struct flight *f, uint64_t id)
{
	struct flights *flights = &f->worker->flights;
	struct flight *leader = leader_locked(flights, id);

	if (leader || pool_submit(f->worker->disk, &f->write) < 0)
		return leader;
	atomic_fetch_add(&f->refs, 1); /* it leads, also once it is written itself */
	list_init(&f->to_write);
	f->write_at = 0; /* from the beginning */
	map_insert(&flights->leaders, &f->leads, id);
	return f;
}

int flight_write(struct flight *f)
{
	struct flights *flights = &f->worker->flights;
	struct flight *leader = NULL;
	bool stalled;
	uint64_t id;

	atomic_fetch_add(&f->refs, 1); /* the write's */
	/* With the lock: what is added to a leader before the tier stalls is seen by flights_leave_stalled(). */
	pthread_mutex_lock(&flights->lock);
	id = write_id(f, &stalled);
	if (!stalled)
		leader = lead_locked(f, id);
	if (leader)
		add_unit_locked(leader, f);
	pthread_mutex_unlock(&flights->lock);
	if (stalled) {
		end_write(f, -EIO);
	} else if (!leader) {
		flight_unref(f); /* the write's: it will not be */
		return -EAGAIN;
	}
	return 0;
}

/* Its units whose tier is stalled, into the list. */
static void take_stalled(struct map_node *node, void *arg)
{
	struct flight *leader = container_of(node, struct flight, leads);

	list_for_each_safe (unit, &leader->to_write) {
		bool stalled;

		(void)write_id(list_entry(unit, struct flight, link), &stalled);
		if (!stalled)
			continue;
		list_remove(unit);
		list_push_back(arg, unit);
	}
}

void flights_leave_stalled(struct worker *w)
{
	struct list stalled = LIST_INIT(stalled);
	struct list *node;

	pthread_mutex_lock(&w->flights.lock);
	map_each(&w->flights.leaders, take_stalled, &stalled);
	pthread_mutex_unlock(&w->flights.lock);
	while ((node = list_pop_front(&stalled)) != NULL)
		end_write(list_entry(node, struct flight, link), -EIO);
}

static bool follows(const struct flight *first, const struct flight *last, const struct flight *f)
{
	return f->source == last->source && f->start >> CHUNK_BITS == last->start >> CHUNK_BITS &&
	       f->start == align_up(last->start + last->length, BLOCK_BYTES) &&
	       f->start + f->length - first->start <= UNIT_BYTES;
}

/* The next in the order of the file, round and round, so that none waits for long. */
static struct list *first_to_write(struct flight *leader)
{
	list_for_each (node, &leader->to_write)
		if (list_entry(node, struct flight, link)->start >= leader->write_at)
			return node;
	return leader->to_write.next;
}

/* Some that can be written together. 0: none is to be written, and the file has no leader from now on. */
static uint32_t take_units(struct flight *leader, struct flight *units[WRITE_UNITS])
{
	struct flights *flights = &leader->worker->flights;
	struct list *node;
	uint32_t n = 0;

	pthread_mutex_lock(&flights->lock);
	for (node = first_to_write(leader); node != &leader->to_write && n < WRITE_UNITS;) {
		struct flight *f = list_entry(node, struct flight, link);

		if (n > 0 && !follows(units[0], units[n - 1], f))
			break;
		node = node->next;
		list_remove(&f->link);
		units[n++] = f;
		leader->write_at = f->start + f->length;
	}
	if (n == 0)
		map_remove(&flights->leaders, &leader->leads);
	pthread_mutex_unlock(&flights->lock);
	return n;
}

void flight_run_write(struct pool_job *job)
{
	struct flight *leader = container_of(job, struct flight, write);
	struct flight *units[WRITE_UNITS];
	uint32_t rounds = 0;
	uint32_t n;

	while ((n = take_units(leader, units)) > 0) {
		write_units(units, n);
		if (++rounds == ROUNDS && pool_submit(leader->worker->disk, job) == 0)
			return; /* with the reference; it may run already */
	}
	flight_unref(leader); /* the leader's */
}
