/* The single flight of a worker: who waits for which unit, and for memory. See flight.h. */
#include "cacheworker/flight_internal.h"
#include "cacheworker/duty.h"
#include "cacheworker/fill.h"
#include "cacheworker/preload.h"
#include "cacheworker/pull.h"
#include "cacheworker/range.h"
#include "base/cleanup.h"
#include "base/deadline.h"
#include "base/units.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#define FLIGHTS_EXPECTED 16384u
#define LEADERS_EXPECTED 64u
#define WINDOW_LEAST     (40 * MiB) /* of which PREFETCH has two ranges of 16 MiB */
#define WINDOW_MOST      (1 * GiB)  /* --memory is reached before */
#define WINDOW_GROWS     16u /* by this part of the bytes written; it shrinks by all of them */
#define WRITING_MANY     (8 * MiB) /* with more the disk does not keep up */
#define KEPT_BYTES_MAX   (64 * MiB)
/* Units that are parked in addition to those that fills and preloads may have in progress: units of a peer that does not answer
 * are left out of turn, and no more than this are started. */
#define PARKED_MAX 4096u

/* A flight's class says who waits at the origin and whose memory it is. */
static_assert((int)UFS_DEMAND == (int)BUDGET_DEMAND && (int)UFS_FILL == (int)BUDGET_FILL &&
		      (int)UFS_PREFETCH == (int)BUDGET_PREFETCH,
	"the classes are the same");
static_assert(UFS_PREFETCH + 1 == FLIGHT_CLASSES, "a list for each class");

static const uint8_t allowed_next[] = {
	[FLIGHT_STARVED] = 1 << FLIGHT_FETCHING | 1 << FLIGHT_GONE,
	[FLIGHT_FETCHING] =
		1 << FLIGHT_STARVED | 1 << FLIGHT_WRITING | 1 << FLIGHT_KEPT | 1 << FLIGHT_GONE,
	[FLIGHT_WRITING] = 1 << FLIGHT_KEPT | 1 << FLIGHT_GONE,
	[FLIGHT_KEPT] = 1 << FLIGHT_GONE,
	[FLIGHT_GONE] = 0,
};

static uint64_t unit_hash(const struct source *source, uint64_t start)
{
	return hash_xxh3(&start, sizeof(start), (uint64_t)(uintptr_t)source);
}

void flight_unit_of(const struct table_row *row, uint64_t at, uint64_t *ret_start,
	uint32_t *ret_length, uint64_t *ret_object_offset)
{
	uint64_t first = row->size <= UNIT_BYTES ? 0 : align_down(at - row->offset, UNIT_BYTES);
	uint64_t chunk = align_down(at, CHUNK_BYTES);
	uint64_t start = max(row->offset + first, chunk);
	uint64_t last = min(first + UNIT_BYTES, row->size);
	uint64_t end = min(row->offset + last, chunk + CHUNK_BYTES);

	*ret_object_offset = start - row->offset;
	*ret_start = start;
	*ret_length = (uint32_t)(end - start);
}

/*
 * Units that land faster than they are written wait in memory, where no reader needs them. So a unit that no reader waits for
 * begins only while all units together that have begun, and are neither written nor kept, have less than the window: what
 * answers still need does not count, however slowly they are taken. The window grows while it is the limit and the disk keeps
 * up: then the way to the origin is long, or each connection is slow, and more has to be in flight.
 */
static void written_locked(struct flights *flights, uint32_t length)
{
	flights->writing -= length;
	if (flights->writing > WRITING_MANY)
		flights->window = max(flights->window - min(flights->window, length), WINDOW_LEAST);
	else if (flights->limited)
		flights->window = min(flights->window + length / WINDOW_GROWS, WINDOW_MOST);
	flights->limited = false;
}

bool flight_in_window_locked(struct worker *w, enum budget_class class, uint64_t bytes)
{
	if (w->flights.begun + bytes <= budget_share(w->flights.window, class))
		return true;
	w->flights.limited = true;
	return false;
}

/* It landed and is written, or kept, or has no memory any more: others may begin. */
static void leave_window_locked(struct flight *f)
{
	if (f->begun)
		f->worker->flights.begun -= f->cost;
	f->begun = false;
}

static void give_memory_locked(struct flight *f)
{
	leave_window_locked(f);
	if (f->charged)
		budget_give(&f->worker->memory, f->cost);
	f->charged = false;
}

/* The one place where a state changes. A flight that is GONE has left the map. */
void flight_set_state_locked(struct flight *f, enum flight_state next)
{
	struct flights *flights = &f->worker->flights;

	ensure(allowed_next[f->state] & 1 << next);
	if (next == FLIGHT_WRITING)
		flights->writing += f->length;
	if (f->state == FLIGHT_WRITING)
		written_locked(flights, f->length);
	if (next == FLIGHT_KEPT || next == FLIGHT_GONE)
		leave_window_locked(f);
	f->state = next;
	if (next != FLIGHT_GONE)
		return;
	map_remove(&flights->units, &f->node);
	flights->of_chunks[f->of_chunk]--;
	counter_sub(&f->worker->counters.flights, 1);
}

static bool starving_locked(const struct flights *flights, enum ufs_class class, bool far)
{
	for (unsigned int i = 0; i <= (unsigned int)class; i++)
		if (!list_empty(&flights->starved[i]) || (far && !list_empty(&flights->far[i])))
			return true;
	return false;
}

static struct list *starved_of(struct flight *f)
{
	struct flights *flights = &f->worker->flights;

	return f->far ? &flights->far[f->class] : &flights->starved[f->class];
}

/*
 * Two workers whose memory is full of units that each has from the other would wait for ever: what is far takes
 * no more than neighbours may, whoever wants it, and what ends here goes past it.
 */
static enum budget_class memory_of(const struct flight *f)
{
	return f->far ? BUDGET_FILL : (enum budget_class)f->class;
}

static bool in_window_locked(const struct flight *f)
{
	return f->class == UFS_DEMAND || flight_in_window_locked(f->worker, memory_of(f), f->cost);
}

static bool take_memory_locked(struct flight *f)
{
	f->charged = in_window_locked(f) && budget_take(&f->worker->memory, memory_of(f), f->cost);
	f->begun = f->charged;
	f->worker->flights.begun += f->begun ? f->cost : 0;
	return f->charged;
}

static struct list *first_of(struct list *lists)
{
	for (unsigned int i = 0; i < FLIGHT_CLASSES; i++)
		if (!list_empty(&lists[i]))
			return lists[i].next;
	return NULL;
}

/* One that waits for memory; NULL: none. */
static struct flight *first_starved_locked(struct worker *w)
{
	struct list *node = first_of(w->flights.starved);

	if (!node)
		node = first_of(w->flights.far);
	return node ? list_entry(node, struct flight, link) : NULL;
}

/* The one that goes next. While the window holds up the first, that is what is far and has a reader, for whom the memory is. */
static struct flight *next_starved_locked(struct worker *w)
{
	struct flight *f = first_starved_locked(w);
	struct list *far = &w->flights.far[UFS_DEMAND];

	if (!f || in_window_locked(f))
		return f;
	return list_empty(far) ? NULL : list_entry(far->next, struct flight, link);
}

bool flight_lacks_memory_locked(struct worker *w)
{
	return next_starved_locked(w) != NULL;
}

/* Memory came free: the next starved flight may start, if it fits. None overtakes it, but those that end here
 * what is far. */
static struct flight *take_starved_locked(struct worker *w)
{
	struct flight *f = w->flights.closing ? NULL : next_starved_locked(w);

	if (!f || !take_memory_locked(f))
		return NULL;
	list_remove(&f->link);
	flight_set_state_locked(f, FLIGHT_FETCHING);
	w->flights.starting++;
	return f;
}

static void wake_starved(struct worker *w)
{
	struct flight *f;

	pthread_mutex_lock(&w->flights.lock);
	while ((f = take_starved_locked(w)) != NULL) {
		pthread_mutex_unlock(&w->flights.lock);
		flight_start(f);
		pthread_mutex_lock(&w->flights.lock);
		if (--w->flights.starting == 0)
			pthread_cond_broadcast(&w->flights.started);
	}
	pthread_mutex_unlock(&w->flights.lock);
}

void flight_memory_freed(struct worker *w)
{
	wake_starved(w);
	fill_memory_freed(w);
}

void flight_window_opened(struct worker *w)
{
	flight_memory_freed(w);
	flight_push_out_kept(w, w->flights.kept_max);
}

void flight_unref(struct flight *f)
{
	struct worker *w;

	if (!f)
		return;
	CHECK_MAGIC(f, FLIGHT_MAGIC);
	if (atomic_fetch_sub(&f->refs, 1) != 1)
		return;
	w = f->worker;
	flight_data_free(f);
	if (f->charged)
		budget_give(&w->memory, f->cost);
	f->magic = 0;
	free(f);
	flight_memory_freed(w);
}

void flight_collect_ready_locked(struct flight *f, struct list *ready, uint64_t landed)
{
	list_for_each_safe (node, &f->waiters) {
		struct flight_wait *wait = list_entry(node, struct flight_wait, link);

		if (wait->need > landed || (wait->stored && landed < UINT64_MAX))
			continue;
		wait->notified = true;
		list_remove(node);
		list_push_back(ready, node);
	}
}

/* Tells the collected waiters. A waiter that got its bytes keeps the reference; the others lose it
 * here. */
void flight_tell(struct list *ready, int status, const struct err *e)
{
	struct list *node;

	while ((node = list_pop_front(ready)) != NULL) {
		struct flight_wait *wait = list_entry(node, struct flight_wait, link);

		if (status < 0)
			flight_unref(TAKE(wait->flight));
		wait->done(wait, status, e);
	}
}

static void leave_parked_locked(struct flight *f)
{
	if (f->parked)
		f->worker->flights.parked--;
	f->parked = false;
}

/* flights.lock is held, and let go. */
static void end_unlock(struct flight *f, int status, const struct err *e)
{
	struct list ready = LIST_INIT(ready);
	struct worker *w = f->worker;
	bool counted;

	flight_set_state_locked(f, FLIGHT_GONE);
	flight_collect_ready_locked(f, &ready, UINT64_MAX);
	counted = f->counted;
	f->counted = false;
	leave_parked_locked(f);
	pthread_mutex_unlock(&w->flights.lock);
	flight_tell(&ready, status, e);
	if (counted)
		fill_unit_ended(w);
	flight_unref(f); /* the map's */
	flight_window_opened(w);
}

/* Out of the map, with its reference; waiters get `status`. */
void flight_end(struct flight *f, int status, const struct err *e)
{
	pthread_mutex_lock(&f->worker->flights.lock);
	end_unlock(f, status, e);
}

/* ---- those whose pull pauses ------------------------------------------------------------------ */

static void run_freed(struct pool_job *job)
{
	struct worker *w = container_of(job, struct worker, flights.freed_job);

	atomic_store(&w->flights.freed, false);
	flight_window_opened(w);
}

/* Not at once: what starts then may pause, too, and so on. */
static void memory_freed_soon(struct worker *w)
{
	if (atomic_exchange(&w->flights.freed, true))
		return;
	w->flights.freed_job.run = run_freed;
	if (pool_submit(w->peers, &w->flights.freed_job) < 0)
		atomic_store(&w->flights.freed,
			false); /* its queue is full of pulls, which end, or pause */
}

static uint32_t yield_locked(struct flight *f)
{
	uint32_t n = 0;

	list_for_each (node, &f->waiters) {
		struct flight_wait *wait = list_entry(node, struct flight_wait, link);

		n += wait->stored && !wait->yielded;
		wait->yielded |= wait->stored;
	}
	return n;
}

struct flight_places flights_park_locked(struct flight **flights, uint32_t n, bool silent)
{
	struct flights *all = &flights[0]->worker->flights;
	struct flight_places places = { 0 };

	for (uint32_t i = 0; i < n; i++) {
		struct flight *f = flights[i];

		if (f->parked)
			continue;
		f->parked = true;
		give_memory_locked(f);
		flight_data_free(f); /* none of it has landed */
		if (all->parked++ >= PARKED_MAX)
			continue;
		places.preloads += silent ? yield_locked(f) : 0;
		places.fills += f->counted;
		f->counted = false;
	}
	return places;
}

void flights_parked(struct worker *w, struct flight_places places)
{
	while (places.fills--)
		fill_unit_ended(w);
	if (places.preloads)
		preloads_yielded(w, places.preloads);
	memory_freed_soon(w);
}

/* All of them, or none. Who starves already goes first. */
static bool take_back_locked(struct flight **flights, uint32_t n)
{
	struct worker *w = flights[0]->worker;
	uint32_t taken = 0;

	if (starving_locked(&w->flights, flights[0]->class, flights[0]->far))
		return false;
	while (taken < n && take_memory_locked(flights[taken]))
		taken++;
	if (taken == n)
		return true;
	while (taken--)
		give_memory_locked(flights[taken]);
	return false;
}

/* Without a pull: it has its place in the row of its class, and is started from there. True: it was a fill's. */
static bool starve_locked(struct flight *f)
{
	bool counted = f->counted;

	f->pull = NULL;
	f->counted = false;
	flight_set_state_locked(f, FLIGHT_STARVED);
	counter_add(&f->worker->counters.starved, 1);
	list_push_back(starved_of(f), &f->link);
	return counted;
}

int flights_unpark(struct flight **flights, uint32_t n)
{
	struct worker *w = flights[0]->worker;
	struct flight_places places = { 0 };
	int r = 0;

	pthread_mutex_lock(&w->flights.lock);
	if (w->flights.closing)
		r = -ECANCELED;
	else if (flights[0]->parked && !take_back_locked(flights, n))
		r = -EAGAIN;
	for (uint32_t i = 0; r != -ECANCELED && i < n; i++) {
		leave_parked_locked(flights[i]);
		if (r == -EAGAIN)
			places.fills += starve_locked(flights[i]);
	}
	pthread_mutex_unlock(&w->flights.lock);
	if (r != -EAGAIN)
		return r;
	for (uint32_t i = 0; i < n; i++)
		flight_unref(flights[i]); /* the pull's */
	flight_push_out_kept(w, w->flights.kept_max);
	flights_parked(w, places);
	return r;
}

static struct flight *find_locked(struct source *source, uint64_t start, uint64_t hash)
{
	struct map_node *node = map_first(&source->worker->flights.units, hash);

	for (; node; node = map_next_same(node)) {
		struct flight *f = container_of(node, struct flight, node);

		if (f->source == source && f->start == start)
			return f;
	}
	return NULL;
}

static uint32_t place_of_chunk(const struct chunk_id *id)
{
	return (uint32_t)(hash_xxh3(id, sizeof(*id), 0) % FLIGHT_CHUNKS);
}

bool flights_of_chunk(struct worker *w, const struct chunk_id *id)
{
	bool any;

	pthread_mutex_lock(&w->flights.lock);
	any = w->flights.of_chunks[place_of_chunk(id)] > 0;
	pthread_mutex_unlock(&w->flights.lock);
	return any;
}

/* What is pulled from another worker may wait for the very one that asks. */
bool flight_is_coming(struct source *source, uint64_t start, bool *ret_awaited)
{
	struct flights *flights = &source->worker->flights;
	const struct flight *f;
	bool coming;

	pthread_mutex_lock(&flights->lock);
	f = find_locked(source, start, unit_hash(source, start));
	coming = f && !f->bypass &&
		 (f->state == FLIGHT_WRITING ||
			 (f->state == FLIGHT_FETCHING && (f->asked || f->range)));
	*ret_awaited =
		!coming && f && !f->bypass && f->state == FLIGHT_FETCHING && pull_awaits_locked(f);
	pthread_mutex_unlock(&flights->lock);
	return coming || *ret_awaited;
}

/* The flight is as urgent as the most urgent of its waiters. */
static void raise_class_locked(struct flight *f, enum ufs_class class)
{
	if (class >= f->class)
		return;
	f->class = class;
	if (f->adopting && class == UFS_DEMAND)
		pool_raise(f->worker->adopt, f->adopting);
	if (f->state == FLIGHT_FETCHING && f->pull) {
		pull_raise_locked(f);
	} else if (f->range) {
		range_raise_locked(f);
	} else if (f->state == FLIGHT_FETCHING && f->asked) {
		ufs_promote(f->ufs, &f->get, class);
	} else if (f->state == FLIGHT_STARVED) {
		list_remove(&f->link);
		list_push_back(starved_of(f), &f->link);
	}
}

void flights_raise(struct source *source, uint64_t start)
{
	struct flights *flights = &source->worker->flights;
	struct flight *f;
	bool starved;

	pthread_mutex_lock(&flights->lock);
	f = find_locked(source, start, unit_hash(source, start));
	if (f)
		raise_class_locked(f, UFS_DEMAND);
	starved = f && f->state == FLIGHT_STARVED;
	pthread_mutex_unlock(&flights->lock);
	if (starved)
		wake_starved(source->worker); /* a higher class may have what it lacked */
}

/* Who waits for it waits for this worker alone. */
static void end_here_locked(struct flight *f)
{
	f->ends = true;
	if (f->far && f->state == FLIGHT_STARVED) {
		list_remove(&f->link);
		f->far = false;
		list_push_back(starved_of(f), &f->link);
	}
	pull_give_up_locked(f);
}

/* Puts the wait on the flight. True when its bytes are there already. */
static bool join_locked(struct flight *f, enum ufs_class class, struct flight_wait *wait)
{
	atomic_fetch_add(&f->refs, 1);
	wait->flight = f;
	wait->notified = !wait->stored && f->landed >= wait->need;
	if (wait->notified)
		return true;
	list_push_back(&f->waiters, &wait->link);
	f->until_ns = deadline_later(f->until_ns, wait->until_ns);
	if (wait->ends && !f->ends)
		end_here_locked(f);
	raise_class_locked(f, class);
	return false;
}

/* Enters a new flight into the map; it is FETCHING when memory was there. -EAGAIN: a neighbour that
 * must not wait. */
static int enter_locked(struct flight *f, uint64_t hash, bool demand)
{
	struct worker *w = f->worker;
	bool memory;

	if (w->flights.closing)
		return -ECANCELED;
	memory = !starving_locked(
			 &w->flights, demand ? f->class : UFS_PREFETCH, f->far || !demand) &&
		 take_memory_locked(f);
	if (!memory && !demand)
		return -EAGAIN;
	map_insert(&w->flights.units, &f->node, hash);
	w->flights.of_chunks[f->of_chunk]++;
	counter_add(&w->counters.flights, 1);
	f->state = memory ? FLIGHT_FETCHING : FLIGHT_STARVED;
	if (!memory) {
		f->starved = true;
		counter_add(&w->counters.starved, 1);
		list_push_back(starved_of(f), &f->link);
	}
	return memory ? 1 : 0;
}

bool flight_unit_held(const struct source *source, uint64_t start, uint32_t length)
{
	struct chunk_id id = {
		.volume = source->volume, .lineage = source->lineage, .chunk = start >> CHUNK_BITS
	};

	return tier_chunk_holds(
		source->worker->tiers, &id, (uint32_t)(start & (CHUNK_BYTES - 1)), length);
}

/* Another worker serves the chunk, and no reader takes this one for it. */
static bool is_far(const struct flight *f, const struct flight_wait *wait)
{
	struct worker *w = f->worker;
	struct duty duty;

	if ((wait && wait->ends) || atomic_load(&w->others) == 0)
		return false;
	worker_duty(w, &f->source->volume, f->start >> CHUNK_BITS, 0, &duty);
	return duty.kind != DUTY_OWNER;
}

int flight_want(struct source *source, const struct table_row *row, uint64_t at,
	enum ufs_class class, bool bypass, struct flight_wait *wait)
{
	return flight_want_in(NULL, source, row, at, class, bypass, wait);
}

int flight_want_in(struct flight_batch *batch, struct source *source, const struct table_row *row,
	uint64_t at, enum ufs_class class, bool bypass, struct flight_wait *wait)
{
	struct worker *w = source->worker;
	struct flight *fresh = flight_new(source, row, at, class, bypass);
	struct flight *f;
	uint64_t hash;
	bool there = false;
	bool starved = false;
	bool read = wait && !wait->stored;
	struct flight *pushed = NULL;
	int r = -EALREADY;

	if (!fresh)
		return -ENOMEM;
	hash = unit_hash(source, fresh->start);
	fresh->of_chunk = place_of_chunk(&(struct chunk_id){ .volume = source->volume,
		.lineage = source->lineage,
		.chunk = fresh->start >> CHUNK_BITS });
	fresh->counted = wait == NULL;
	fresh->until_ns = wait ? wait->until_ns : 0;
	fresh->far = is_far(fresh, wait);
	pthread_mutex_lock(&w->flights.lock);
	f = find_locked(source, fresh->start, hash);
	if (f && f->state == FLIGHT_KEPT && wait && wait->stored)
		pushed = flight_let_go_locked(
			TAKE(f)); /* no tier took it then; perhaps one does now */
	/* A flight leaves the map when its unit is in a tier: who finds neither asks first. */
	if (!f && !bypass && flight_unit_held(source, fresh->start, fresh->length)) {
		r = -EEXIST;
	} else if (!f) {
		r = enter_locked(fresh, hash, read);
		f = r >= 0 ? fresh : NULL;
	}
	if (f && wait) {
		wait->first = read && !f->demanded;
		there = join_locked(f, class, wait);
		f->demanded |= read;
		starved = f->state == FLIGHT_STARVED;
	} else if (f) {
		f->until_ns = 0; /* it is wanted whatever becomes of its readers */
	}
	pthread_mutex_unlock(&w->flights.lock);
	flight_unref(pushed);
	if (f != fresh) { /* joined another, or was not let in */
		free(fresh);
		if (f && wait) {
			counter_add(&w->counters.joined, 1);
			r = 0;
		}
		if (there)
			wait->done(wait, 0, NULL);
		if (starved)
			wake_starved(w); /* a higher class may have what it lacked */
		return r;
	}
	counter_add(read ? &w->counters.units : &w->counters.neighbours, 1);
	if (r == 1 && batch)
		batch->flights[batch->n++] = f; /* it has no end before it is started */
	else if (r == 1)
		flight_start(f);
	else
		flight_push_out_kept(w, w->flights.kept_max); /* it may lack their memory */
	return 0;
}

/* No waiter is left and nothing was begun. The waiter that leaves still has a reference. */
static void drop_starved_locked(struct flight *f)
{
	list_remove(&f->link);
	flight_set_state_locked(f, FLIGHT_GONE);
	ensure(atomic_fetch_sub(&f->refs, 1) > 1); /* the map's */
}

bool flight_wait_cancel(struct worker *w, struct flight_wait *wait)
{
	bool waiting;

	pthread_mutex_lock(&w->flights.lock);
	waiting = !wait->notified &&
		  wait->flight; /* once notified, the flight is not ours to look at */
	if (waiting) {
		wait->notified = true;
		list_remove(&wait->link);
		if (wait->flight->state == FLIGHT_STARVED && list_empty(&wait->flight->waiters))
			drop_starved_locked(wait->flight);
	}
	pthread_mutex_unlock(&w->flights.lock);
	return waiting;
}

int flights_init(struct worker *w)
{
	pthread_mutex_init(&w->flights.lock, NULL);
	pthread_cond_init(&w->flights.started, NULL);
	for (unsigned int i = 0; i < FLIGHT_CLASSES; i++) {
		list_init(&w->flights.starved[i]);
		list_init(&w->flights.far[i]);
	}
	list_init(&w->flights.kept);
	w->flights.window = WINDOW_LEAST;
	w->flights.kept_max = min(w->config->memory / 4, KEPT_BYTES_MAX);
	if (map_init(&w->flights.leaders, LEADERS_EXPECTED) < 0 ||
		map_init(&w->flights.units, FLIGHTS_EXPECTED) < 0)
		return -ENOMEM;
	return 0;
}

void flights_close(struct worker *w)
{
	struct flight *f;

	pthread_mutex_lock(&w->flights.lock);
	w->flights.closing = true;
	/* Whoever took one off the lists is on the way to its origin, which must be open still. */
	while (w->flights.starting > 0)
		pthread_cond_wait(&w->flights.started, &w->flights.lock);
	/* Readers still come and go: each is ended where it is found, with the lock. */
	while ((f = first_starved_locked(w)) != NULL) {
		list_remove(&f->link);
		end_unlock(f, -ECANCELED, NULL);
		pthread_mutex_lock(&w->flights.lock);
	}
	pthread_mutex_unlock(&w->flights.lock);
}

void flights_release(struct worker *w)
{
	flight_push_out_kept(w, 0);
	ensure(w->flights.units.count == 0 && w->flights.leaders.count == 0);
	map_release(&w->flights.units);
	map_release(&w->flights.leaders);
	pthread_cond_destroy(&w->flights.started);
	pthread_mutex_destroy(&w->flights.lock);
}
