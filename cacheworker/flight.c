/* The single flight of a worker. See flight.h. */
#include "cacheworker/flight.h"
#include "cacheworker/adopt.h"
#include "cacheworker/fill.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/units.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#define FLIGHTS_EXPECTED 16384u
#define KEPT_BYTES_MAX   (64 * MiB)
#define WRITE_TRIES      4u

/* A flight's class says who waits at the origin and whose memory it is. */
static_assert((int)UFS_DEMAND == (int)BUDGET_DEMAND && (int)UFS_FILL == (int)BUDGET_FILL &&
		      (int)UFS_PREFETCH == (int)BUDGET_PREFETCH,
	"the classes are the same");
static_assert(UFS_PREFETCH + 1 == FLIGHT_CLASSES, "a list for each class");

static void flight_start(struct flight *f);

static const uint8_t allowed_next[] = {
	[FLIGHT_STARVED] = 1 << FLIGHT_FETCHING | 1 << FLIGHT_GONE,
	[FLIGHT_FETCHING] = 1 << FLIGHT_WRITING | 1 << FLIGHT_KEPT | 1 << FLIGHT_GONE,
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
	uint64_t object_offset =
		row->size <= UNIT_BYTES ? 0 : align_down(at - row->offset, UNIT_BYTES);

	*ret_object_offset = object_offset;
	*ret_start = row->offset + object_offset;
	*ret_length = (uint32_t)min(row->size - object_offset, (uint64_t)UNIT_BYTES);
}

/* The one place where a state changes. A flight that is GONE has left the map. */
static void set_state_locked(struct flight *f, enum flight_state next)
{
	ensure(allowed_next[f->state] & 1 << next);
	f->state = next;
	if (next != FLIGHT_GONE)
		return;
	map_remove(&f->worker->flights.units, &f->node);
	counter_sub(&f->worker->counters.flights, 1);
}

/* Does a flight of that class, or of one before it, wait for memory? */
static bool starving_locked(const struct flights *flights, enum ufs_class class)
{
	for (unsigned int i = 0; i <= (unsigned int)class; i++)
		if (!list_empty(&flights->starved[i]))
			return true;
	return false;
}

/* Memory came free: the first starved flight may start, if it fits. None overtakes it. */
static struct flight *take_starved_locked(struct worker *w)
{
	struct list *node = NULL;
	struct flight *f;

	for (unsigned int i = 0; i < FLIGHT_CLASSES && !node; i++)
		if (!list_empty(&w->flights.starved[i]))
			node = w->flights.starved[i].next;
	if (!node)
		return NULL;
	f = list_entry(node, struct flight, link);
	if (!budget_take(&w->memory, (enum budget_class)f->class, f->cost))
		return NULL;
	list_remove(node);
	set_state_locked(f, FLIGHT_FETCHING);
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

void flight_unref(struct flight *f)
{
	struct worker *w;

	if (!f)
		return;
	CHECK_MAGIC(f, FLIGHT_MAGIC);
	if (atomic_fetch_sub(&f->refs, 1) != 1)
		return;
	w = f->worker;
	if (f->data) {
		free(f->data);
		budget_give(&w->memory, f->cost);
	}
	f->magic = 0;
	free(f);
	flight_memory_freed(w);
}

static void collect_ready_locked(struct flight *f, struct list *ready, uint64_t landed)
{
	list_for_each_safe (node, &f->waiters) {
		struct flight_wait *wait = list_entry(node, struct flight_wait, link);

		if (wait->need > landed || (wait->stored && landed < UINT64_MAX))
			continue;
		wait->told = true;
		list_remove(node);
		list_push_back(ready, node);
	}
}

/* Tells the collected waiters. A waiter that got its bytes keeps the reference; the others lose it
 * here. */
static void tell(struct list *ready, int status, const struct err *e)
{
	struct list *node;

	while ((node = list_pop_front(ready)) != NULL) {
		struct flight_wait *wait = list_entry(node, struct flight_wait, link);

		if (status < 0)
			flight_unref(TAKE(wait->flight));
		wait->done(wait, status, e);
	}
}

/* Out of the map, with its reference; waiters get `status`. */
static void flight_end(struct flight *f, int status, const struct err *e)
{
	struct list ready = LIST_INIT(ready);
	bool counted;

	pthread_mutex_lock(&f->worker->flights.lock);
	set_state_locked(f, FLIGHT_GONE);
	collect_ready_locked(f, &ready, UINT64_MAX);
	counted = f->counted;
	f->counted = false;
	pthread_mutex_unlock(&f->worker->flights.lock);
	tell(&ready, status, e);
	if (counted)
		fill_unit_ended(f->worker);
	flight_unref(f); /* the map's */
}

/* One that is kept: it leaves; the map's reference becomes the caller's. */
static struct flight *let_go_locked(struct flight *f)
{
	list_remove(&f->link);
	f->worker->flights.kept_bytes -= f->length;
	set_state_locked(f, FLIGHT_GONE);
	return f;
}

/* Nothing is kept while others starve for the memory. */
static void push_out_kept(struct worker *w, uint64_t keep)
{
	for (;;) {
		struct flight *f = NULL;

		pthread_mutex_lock(&w->flights.lock);
		if (starving_locked(&w->flights, UFS_PREFETCH))
			keep = 0;
		if (w->flights.kept_bytes > keep) {
			ensure(!list_empty(&w->flights.kept)); /* kept_bytes is theirs */
			f = let_go_locked(list_entry(w->flights.kept.next, struct flight, link));
		}
		pthread_mutex_unlock(&w->flights.lock);
		if (!f)
			return;
		flight_unref(f);
	}
}

/* A unit no tier takes, or that could not be written (`why`): kept for the readers that come right
 * after, oldest pushed out. */
static void flight_keep(struct flight *f, int why)
{
	struct list stored = LIST_INIT(stored);
	struct worker *w = f->worker;
	bool counted;

	if (!f->adopted) {
		counter_add(&w->counters.bypass_bytes, f->length);
		counter_add(&f->source->use.bypass_bytes, f->length);
	}
	pthread_mutex_lock(&w->flights.lock);
	set_state_locked(f, FLIGHT_KEPT);
	collect_ready_locked(f, &stored, UINT64_MAX);
	list_push_back(&w->flights.kept, &f->link);
	w->flights.kept_bytes += f->length;
	counted = f->counted;
	f->counted = false;
	pthread_mutex_unlock(&w->flights.lock);
	tell(&stored, why, NULL);
	push_out_kept(w, w->flights.kept_max);
	if (counted)
		fill_unit_ended(w);
}

/* A reader may join while the unit is written. */
static enum tier_want flight_want_of(struct flight *f)
{
	enum tier_want want;

	pthread_mutex_lock(&f->worker->flights.lock);
	want = f->demanded                ? TIER_WANT_READ
	       : f->class == UFS_PREFETCH ? TIER_WANT_AHEAD
					  : TIER_WANT_FILL;
	pthread_mutex_unlock(&f->worker->flights.lock);
	return want;
}

/* A chunk that moved to another tier meanwhile is found again. */
static int write_run(
	struct flight *f, const struct chunk_id *id, const struct piece_run *run, const char *data)
{
	const struct tier_admission how = { .class = TIER_OWNED, .want = flight_want_of(f) };
	int r = -EAGAIN;

	for (uint32_t i = 0; r == -EAGAIN && i < WRITE_TRIES; i++) {
		struct chunk *chunk;

		r = tier_chunk_admit_as(f->worker->tiers, id, &how, &chunk);
		if (r < 0)
			break;
		r = chunk_write(chunk, run, data);
		chunk_unref(chunk);
	}
	return r;
}

/* Writes the unit's pieces into the one or two chunks it lies in. */
static int write_unit(struct flight *f)
{
	uint32_t done = 0;

	while (done < f->length) {
		uint64_t at = f->start + done;
		struct chunk_id id = { .volume = f->source->volume,
			.lineage = f->source->lineage,
			.chunk = at >> CHUNK_BITS };
		struct piece_run run = {
			.offset = (uint32_t)(at & (CHUNK_BYTES - 1)),
			.object_seed = f->object_seed,
			.first_piece = (f->object_offset + done) >> PIECE_BITS,
		};
		int r;

		run.length = min(f->length - done, CHUNK_BYTES - run.offset);
		r = write_run(f, &id, &run, f->data + done);
		if (r < 0)
			return r;
		done += run.length;
	}
	return 0;
}

static void run_write(struct pool_job *job)
{
	struct flight *f = container_of(job, struct flight, write);
	int r = write_unit(f);

	if (r < 0) {
		if (r != -ENOSPC && r != -EAGAIN)
			counter_add(&f->worker->counters.write_errors, 1);
		flight_keep(f, r);
	} else {
		flight_end(f, 0, NULL);
	}
	flight_unref(f); /* the write's */
}

static void on_progress(struct ufs_get *get, uint64_t bytes)
{
	struct flight *f = container_of(get, struct flight, get);
	struct list ready = LIST_INIT(ready);

	pthread_mutex_lock(&f->worker->flights.lock);
	f->landed = bytes;
	collect_ready_locked(f, &ready, bytes);
	pthread_mutex_unlock(&f->worker->flights.lock);
	tell(&ready, 0, NULL);
}

static void note_trouble(struct flight *f, int status, const struct err *e)
{
	struct trouble what = { .volume = f->source->volume,
		.lineage = f->source->lineage,
		.start = f->start,
		.length = f->length,
		.status = status };

	(void)snprintf(what.text, sizeof(what.text), "%.*s", (int)sizeof(what.text) - 1,
		e && e->text[0] ? e->text : err_str(status)); /* cut: for people */
	troubles_note(&f->worker->troubles, &what);
}

static void fetch_failed(struct flight *f, int status, const struct err *e)
{
	if (status == -ENOENT)
		status = -ESTALE; /* gone is changed: this version is not there any more */
	counter_add(&f->worker->counters.failed_units, 1);
	if (status != -ECANCELED) {
		note_trouble(f, status, e);
		LOG_LIMITED(LOG_WARN, "unit not fetched",
			"key=\"%.*s\" offset=%llu error=%s reason=\"%s\"", (int)f->get.key_len,
			f->get.key, (unsigned long long)f->object_offset, err_name(status),
			e ? e->text : "");
	}
	flight_end(f, status, e);
}

/* All bytes are there: to their waiters and to a tier. Takes the origin's reference. */
static void all_landed(struct flight *f)
{
	struct worker *w = f->worker;
	struct list ready = LIST_INIT(ready);

	pthread_mutex_lock(&w->flights.lock);
	f->landed = f->length;
	collect_ready_locked(f, &ready, f->landed);
	if (!f->bypass)
		set_state_locked(f, FLIGHT_WRITING);
	pthread_mutex_unlock(&w->flights.lock);
	tell(&ready, 0, NULL);
	if (f->bypass) {
		flight_keep(f, -EAGAIN); /* no tier was asked: there may be room */
	} else {
		atomic_fetch_add(&f->refs, 1);
		if (pool_submit(w->disk, &f->write) < 0) {
			flight_unref(f); /* the write's: it will not be */
			flight_keep(f, -EAGAIN);
		}
	}
	flight_unref(f); /* the origin's */
}

static void on_done(struct ufs_get *get, int status, const struct err *e)
{
	struct flight *f = container_of(get, struct flight, get);

	if (status == 0) {
		histogram_note(&f->worker->histograms.get, clock_mono_ns() - f->asked_ns);
		all_landed(f);
		return;
	}
	fetch_failed(f, status, e);
	flight_unref(f); /* the origin's */
}

/* The origin has the request: from now on its class can be raised; it may have been meanwhile. */
static void flight_asked(struct flight *f)
{
	pthread_mutex_lock(&f->worker->flights.lock);
	f->asked = true;
	if (f->state == FLIGHT_FETCHING && f->class != f->get.class)
		ufs_promote(f->source->ufs, &f->get, f->class);
	pthread_mutex_unlock(&f->worker->flights.lock);
}

static void ask_origin(struct flight *f)
{
	struct err e = ERR_INIT;
	int r = 0;

	atomic_fetch_add(&f->refs, 1); /* this function's; the origin has one */
	f->asked_ns = clock_mono_ns();
	if (f->data) {
		f->get.buf = f->data;
		r = ufs_get(f->source->ufs, &f->get);
	} else {
		r = err_set(&e, -ENOMEM, "no memory for %u bytes of '%.*s'", f->length,
			(int)f->get.key_len, f->get.key);
	}
	if (r == 0) {
		flight_asked(f);
	} else {
		fetch_failed(f, r, &e);
		flight_unref(f); /* the origin's, which did not take it */
	}
	flight_unref(f);
}

/* The bytes may be on a tier at another place. */
static void run_adopt(struct pool_job *job)
{
	struct flight *f = container_of(job, struct flight, adopt);
	struct table_row *row = calloc(1, sizeof(*row));
	const struct adopt_wish wish = {
		.row = row,
		.object_offset = f->object_offset,
		.length = f->length,
		.seed = f->object_seed,
	};

	if (row) {
		row->offset = f->start - f->object_offset;
		row->size = f->get.size;
		row->key_len = (uint16_t)f->get.key_len;
		row->tag_len = (uint8_t)f->get.tag_len;
		memcpy(row->key, f->get.key, f->get.key_len);
		memcpy(row->tag, f->get.tag, f->get.tag_len);
		f->adopted = adopt_read(f->source, &wish, f->data) == 0;
	}
	free(row);
	if (f->adopted)
		all_landed(f);
	else
		ask_origin(f);
}

/* Has its memory in the budget and is FETCHING: asks the origin, unless the bytes are here already
 * under another offset. */
static void flight_start(struct flight *f)
{
	atomic_fetch_add(&f->refs, 1); /* the origin's */
	f->data = malloc(f->length);
	if (!f->data)
		budget_give(&f->worker->memory, f->cost);
	else if (adopt_possible(f->source) && pool_submit(f->worker->adopt, &f->adopt) == 0)
		return;
	ask_origin(f);
}

static struct flight *flight_new(struct source *source, const struct table_row *row, uint64_t at,
	enum ufs_class class, bool bypass)
{
	struct flight *f = calloc(1, sizeof(*f) + row->key_len + row->tag_len);

	if (!f)
		return NULL;
	f->magic = FLIGHT_MAGIC;
	f->refs = 1; /* the map's */
	f->worker = source->worker;
	f->source = source;
	f->class = class;
	f->bypass = bypass;
	list_init(&f->link);
	list_init(&f->waiters);
	flight_unit_of(row, at, &f->start, &f->length, &f->object_offset);
	f->cost = f->length + (uint32_t)sizeof(*f) + row->key_len + row->tag_len;
	memcpy(f->names, row->key, row->key_len);
	memcpy(f->names + row->key_len, row->tag, row->tag_len);
	f->object_seed = piece_object_seed(row->key, row->key_len, row->tag, row->tag_len);
	f->write.run = run_write;
	f->adopt.run = run_adopt;
	f->get = (struct ufs_get){
		.key = f->names,
		.key_len = row->key_len,
		.tag = f->names + row->key_len,
		.tag_len = row->tag_len,
		.size = row->size,
		.offset = f->object_offset,
		.length = f->length,
		.class = class,
		.on_progress = on_progress,
		.on_done = on_done,
	};
	return f;
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

/* The flight is as urgent as the most urgent of its waiters. */
static void raise_class_locked(struct flight *f, enum ufs_class class)
{
	if (class >= f->class)
		return;
	f->class = class;
	if (f->state == FLIGHT_FETCHING && f->asked) {
		ufs_promote(f->source->ufs, &f->get, class);
	} else if (f->state == FLIGHT_STARVED) {
		list_remove(&f->link);
		list_push_back(&f->worker->flights.starved[class], &f->link);
	}
}

/* Puts the wait on the flight. True when its bytes are there already. */
static bool join_locked(struct flight *f, enum ufs_class class, struct flight_wait *wait)
{
	atomic_fetch_add(&f->refs, 1);
	wait->flight = f;
	wait->told = !wait->stored && f->landed >= wait->need;
	if (wait->told)
		return true;
	list_push_back(&f->waiters, &wait->link);
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
	memory = !starving_locked(&w->flights, demand ? f->class : UFS_PREFETCH) &&
		 budget_take(&w->memory, (enum budget_class)f->class, f->cost);
	if (!memory && !demand)
		return -EAGAIN;
	map_insert(&w->flights.units, &f->node, hash);
	counter_add(&w->counters.flights, 1);
	f->state = memory ? FLIGHT_FETCHING : FLIGHT_STARVED;
	if (!memory) {
		f->starved = true;
		counter_add(&w->counters.starved, 1);
		list_push_back(&w->flights.starved[f->class], &f->link);
	}
	return memory ? 1 : 0;
}

bool flight_unit_held(const struct source *source, uint64_t start, uint32_t length)
{
	uint32_t done = 0;
	bool held = true;

	while (held && done < length) {
		uint64_t at = start + done;
		uint32_t offset = (uint32_t)(at & (CHUNK_BYTES - 1));
		uint32_t n = min(length - done, CHUNK_BYTES - offset);
		struct chunk_id id = { .volume = source->volume,
			.lineage = source->lineage,
			.chunk = at >> CHUNK_BITS };

		held = tier_chunk_holds(source->worker->tiers, &id, offset, n);
		done += n;
	}
	return held;
}

int flight_want(struct source *source, const struct table_row *row, uint64_t at,
	enum ufs_class class, bool bypass, struct flight_wait *wait)
{
	struct worker *w = source->worker;
	struct flight *fresh = flight_new(source, row, at, class, bypass);
	struct flight *f;
	uint64_t hash;
	bool there = false;
	bool first = false;
	bool starved = false;
	bool read = wait && !wait->stored;
	struct flight *pushed = NULL;
	int r = -EALREADY;

	if (!fresh)
		return -ENOMEM;
	hash = unit_hash(source, fresh->start);
	fresh->counted = wait == NULL;
	pthread_mutex_lock(&w->flights.lock);
	f = find_locked(source, fresh->start, hash);
	if (f && f->state == FLIGHT_KEPT && wait && wait->stored)
		pushed = let_go_locked(TAKE(f)); /* no tier took it then; perhaps one does now */
	/* A flight leaves the map when its unit is in a tier: who finds neither asks first. */
	if (!f && !bypass && flight_unit_held(source, fresh->start, fresh->length)) {
		r = -EEXIST;
	} else if (!f) {
		r = enter_locked(fresh, hash, read);
		f = r >= 0 ? fresh : NULL;
	}
	if (f && wait) {
		there = join_locked(f, class, wait);
		first = read && !f->demanded;
		f->demanded |= read;
		starved = f->state == FLIGHT_STARVED;
	}
	pthread_mutex_unlock(&w->flights.lock);
	flight_unref(pushed);
	if (f != fresh) { /* joined another, or was not let in */
		free(fresh);
		if (f && wait) {
			counter_add(&w->counters.joined, 1);
			r = first;
		}
		if (there)
			wait->done(wait, 0, NULL);
		if (starved)
			wake_starved(w); /* a higher class may have what it lacked */
		return r;
	}
	counter_add(read ? &w->counters.units : &w->counters.neighbours, 1);
	if (r == 1)
		flight_start(f);
	else
		push_out_kept(w, 0); /* starving: what is only kept gives its memory back */
	return first;
}

/* Nobody waits for it and nothing was begun. Its waiter, who leaves, still has a reference. */
static void drop_starved_locked(struct flight *f)
{
	list_remove(&f->link);
	set_state_locked(f, FLIGHT_GONE);
	ensure(atomic_fetch_sub(&f->refs, 1) > 1); /* the map's */
}

bool flight_wait_cancel(struct worker *w, struct flight_wait *wait)
{
	bool waiting;

	pthread_mutex_lock(&w->flights.lock);
	waiting = !wait->told && wait->flight; /* once told, the flight is not ours to look at */
	if (waiting) {
		wait->told = true;
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
	for (unsigned int i = 0; i < FLIGHT_CLASSES; i++)
		list_init(&w->flights.starved[i]);
	list_init(&w->flights.kept);
	w->flights.kept_max = min(w->config->memory / 4, KEPT_BYTES_MAX);
	return map_init(&w->flights.units, FLIGHTS_EXPECTED);
}

void flights_close(struct worker *w)
{
	struct list starved = LIST_INIT(starved);
	struct list *node;

	pthread_mutex_lock(&w->flights.lock);
	w->flights.closing = true;
	for (unsigned int i = 0; i < FLIGHT_CLASSES; i++)
		list_splice_back(&starved, &w->flights.starved[i]);
	/* Whoever took one off the lists is on the way to its origin, which must be open still. */
	while (w->flights.starting > 0)
		pthread_cond_wait(&w->flights.started, &w->flights.lock);
	pthread_mutex_unlock(&w->flights.lock);
	while ((node = list_pop_front(&starved)) != NULL)
		flight_end(list_entry(node, struct flight, link), -ECANCELED, NULL);
}

void flights_release(struct worker *w)
{
	push_out_kept(w, 0);
	ensure(w->flights.units.count == 0);
	map_release(&w->flights.units);
	pthread_cond_destroy(&w->flights.started);
	pthread_mutex_destroy(&w->flights.lock);
}
