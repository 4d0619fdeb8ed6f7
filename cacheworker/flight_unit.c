/* A unit of a flight, from the origin's request to the tier. See flight.h. */
#include "cacheworker/flight_internal.h"
#include "cacheworker/adopt.h"
#include "cacheworker/duty.h"
#include "cacheworker/fill.h"
#include "cacheworker/pull.h"
#include "cacheworker/range.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/log.h"

#include <stdlib.h>
#include <string.h>

/* So many ranges at least may be on their way in the memory of a class. */
#define RANGES_LEAST 4u
/* Data of shorter units takes what it is charged, in the heap: an aligned buffer of a small object takes pages. */
#define RECYCLED_LEAST (64u << 10)

/* One that is kept: it leaves; the map's reference becomes the caller's. */
struct flight *flight_let_go_locked(struct flight *f)
{
	list_remove(&f->link);
	f->worker->flights.kept_bytes -= f->cost;
	flight_set_state_locked(f, FLIGHT_GONE);
	return f;
}

/* Nothing is kept while others starve for the memory; at the window they do not wait for it. */
void flight_push_out_kept(struct worker *w, uint64_t keep)
{
	for (;;) {
		struct flight *f = NULL;

		pthread_mutex_lock(&w->flights.lock);
		if (flight_lacks_memory_locked(w))
			keep = 0;
		if (w->flights.kept_bytes > keep) {
			ensure(!list_empty(&w->flights.kept)); /* kept_bytes is theirs */
			f = flight_let_go_locked(
				list_entry(w->flights.kept.next, struct flight, link));
		}
		pthread_mutex_unlock(&w->flights.lock);
		if (!f)
			return;
		flight_unref(f);
	}
}

void flight_keep(struct flight *f, int why)
{
	struct list stored = LIST_INIT(stored);
	struct worker *w = f->worker;
	bool counted;

	if (!f->adopted && !f->pulled) {
		counter_add(&w->counters.bypass_bytes, f->length);
		counter_add(&f->source->use.bypass_bytes, f->length);
	}
	pthread_mutex_lock(&w->flights.lock);
	flight_set_state_locked(f, FLIGHT_KEPT);
	flight_collect_ready_locked(f, &stored, UINT64_MAX);
	list_push_back(&w->flights.kept, &f->link);
	w->flights.kept_bytes += f->cost;
	counted = f->counted;
	f->counted = false;
	pthread_mutex_unlock(&w->flights.lock);
	flight_tell(&stored, why, NULL);
	if (counted)
		fill_unit_ended(w);
	flight_window_opened(w);
}

void flight_sum(struct flight *f, uint64_t bytes)
{
	uint64_t first = f->object_offset >> PIECE_BITS;

	while (f->summed * PIECE_BYTES < bytes) {
		uint64_t at = f->summed * PIECE_BYTES;
		uint64_t end = min(at + PIECE_BYTES, (uint64_t)f->length);

		if (end > bytes)
			break;
		f->sums[f->summed] = hash_xxh3(
			f->data + at, end - at, piece_seed(f->object_seed, first + f->summed));
		f->summed++;
	}
}

bool flight_data_new(struct flight *f)
{
	if (f->data)
		return true;
	f->recycled = f->length >= RECYCLED_LEAST;
	f->data = f->recycled ? buffers_take(&f->worker->buffers, f->length) : malloc(f->length);
	return f->data != NULL;
}

void flight_data_free(struct flight *f)
{
	if (f->recycled)
		buffers_give(&f->worker->buffers, TAKE(f->data), f->length);
	else
		free(TAKE(f->data));
}

static void note_times_locked(struct flight *f)
{
	f->times.sent_ns = f->get.sent_ns;
	f->times.first_ns = f->get.first_ns;
	f->times.joined = f->get.class != UFS_DEMAND;
}

static void on_progress(struct ufs_get *get, uint64_t bytes)
{
	struct flight *f = container_of(get, struct flight, get);
	struct list ready = LIST_INIT(ready);

	bytes += get->offset - f->object_offset;
	flight_sum(f, bytes);
	pthread_mutex_lock(&f->worker->flights.lock);
	note_times_locked(f);
	f->landed = bytes;
	flight_collect_ready_locked(f, &ready, f->landed);
	pthread_mutex_unlock(&f->worker->flights.lock);
	flight_tell(&ready, 0, NULL);
}

static void note_trouble(struct flight *f, int status, const struct err *e)
{
	struct trouble what = { .volume = f->source->volume,
		.lineage = f->source->lineage,
		.start = f->start,
		.length = f->length,
		.status = status,
		.remembered = f->get.remembered };

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

void flight_failed(struct flight *f, int status, const struct err *e)
{
	fetch_failed(f, status, e);
	flight_unref(f); /* the origin's */
}

/* All bytes are there: to their waiters and to a tier. Takes the origin's reference. */
void flight_all_landed(struct flight *f)
{
	struct worker *w = f->worker;
	struct list ready = LIST_INIT(ready);

	flight_sum(f, f->length);
	pthread_mutex_lock(&w->flights.lock);
	note_times_locked(f);
	f->times.landed_ns = clock_mono_ns();
	f->landed = f->length;
	flight_collect_ready_locked(f, &ready, f->landed);
	if (!f->bypass)
		flight_set_state_locked(f, FLIGHT_WRITING);
	pthread_mutex_unlock(&w->flights.lock);
	flight_tell(&ready, 0, NULL);
	if (f->bypass || flight_write(f) < 0)
		flight_keep(f, -EAGAIN); /* no tier was asked: there may be room */
	flight_unref(f);                 /* the origin's */
}

/* Its source is reached in another way by now: it is asked for there, and need not fail. A worker that
 * closes waits until it is; `f` may be gone after. */
static void ask_anew(struct flight *f)
{
	struct worker *w = f->worker;

	flight_ask_origin(f);
	pthread_mutex_lock(&w->flights.lock);
	if (--w->flights.starting == 0)
		pthread_cond_broadcast(&w->flights.started);
	pthread_mutex_unlock(&w->flights.lock);
}

/* True when it is asked for again, in another way or for a reader that waits longer: here, or by the one who is just asking. */
static bool goes_on(struct flight *f, int status)
{
	struct flights *flights = &f->worker->flights;
	bool anew;
	bool here;

	pthread_mutex_lock(&flights->lock);
	anew = !flights->closing && (f->left || f->ufs != source_ufs(f->source) ||
					    flight_outlives_locked(f, &f->get, status));
	f->left = false;
	here = anew && f->asked;
	if (anew) {
		flights->starting++;
		f->anew = !f->asked;
		f->asked = false;
		f->get.class = f->class;
	}
	pthread_mutex_unlock(&flights->lock);
	if (here)
		ask_anew(f);
	return anew;
}

static void on_done(struct ufs_get *get, int status, const struct err *e)
{
	struct flight *f = container_of(get, struct flight, get);

	if (status == 0) {
		histogram_note(&f->worker->histograms.get, clock_mono_ns() - f->asked_ns);
		flight_all_landed(f);
		return;
	}
	if (goes_on(f, status))
		return;
	if (get->refused)
		pull_tell_refused(f, get->refused);
	flight_failed(f, status, e);
}

/* Under the flights' lock: its request ends, and on_done() goes on. */
static void leave(struct flight *f)
{
	f->left = true;
	ufs_cancel(f->ufs, &f->get);
}

/* The origin has the request: from now on its class can be raised, and it can be ended; either may be
 * due. True: it has ended, and is to be asked for anew. */
static bool flight_asked(struct flight *f)
{
	struct flights *flights = &f->worker->flights;
	bool anew;

	pthread_mutex_lock(&flights->lock);
	anew = f->anew;
	f->anew = false;
	f->asked = !anew;
	if (f->state == FLIGHT_FETCHING && !anew) {
		if (f->class != f->get.class)
			ufs_promote(f->ufs, &f->get, f->class);
		if (!flights->closing && f->ufs != source_ufs(f->source))
			leave(f);
	}
	pthread_mutex_unlock(&flights->lock);
	return anew;
}

/* What was asked in the way that was ends: on_done() goes on. */
static void leave_way(struct map_node *node, void *arg)
{
	struct flight *f = container_of(node, struct flight, node);

	if (f->source != arg || f->state != FLIGHT_FETCHING)
		return;
	if (f->range)
		range_leave_locked(f);
	else if (f->asked && f->ufs != source_ufs(f->source))
		leave(f);
}

void flights_take_way(struct source *source)
{
	struct flights *flights = &source->worker->flights;

	pthread_mutex_lock(&flights->lock);
	if (!flights->closing)
		map_each(&flights->units, leave_way, source);
	pthread_mutex_unlock(&flights->lock);
}

/* What has landed stays: the rest is asked for. */
static void make_get(struct flight *f)
{
	f->get.offset = f->object_offset + f->landed;
	f->get.length = f->length - f->landed;
	f->get.buf = f->data + f->landed;
	f->get.got = 0;
	f->get.sent_ns = f->get.first_ns = 0;
	f->get.cause = UFS_CAUSE_NONE;
	f->get.refused = 0;
	f->get.priv = NULL;
	atomic_store(&f->get.cancelled, false);
}

void flight_ask_origin(struct flight *f)
{
	struct err e = ERR_INIT;
	int r = 0;

	atomic_fetch_add(&f->refs, 1); /* this function's; the origin has one */
	f->asked_ns = clock_mono_ns();
	if (flight_data_new(f)) {
		make_get(f);
		pthread_mutex_lock(&f->worker->flights.lock);
		f->get.until_ns = f->until_ns;
		pthread_mutex_unlock(&f->worker->flights.lock);
		f->ufs = source_ufs(f->source);
		r = ufs_get(f->ufs, &f->get);
	} else {
		r = err_set(&e, -ENOMEM, "no memory for %u bytes of '%.*s'", f->length,
			(int)f->get.key_len, f->get.key);
	}
	if (r == 0) {
		if (flight_asked(f))
			ask_anew(f);
	} else {
		flight_failed(f, r, &e); /* it did not take it */
	}
	flight_unref(f);
}

/* The bytes may be on a tier at another place: true, they are in f->data. */
static bool adopt_unit(struct flight *f)
{
	struct table_row *row = f->data ? calloc(1, sizeof(*row)) : NULL;
	const struct adopt_request reuse = {
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
		f->adopted = adopt_read(f->source, &reuse, f->data) == 0;
	}
	free(row);
	return f->adopted;
}

/* The job runs, so pool_raise() must not touch it any more. */
static void adopt_begins(struct flight **flights, uint32_t n)
{
	struct worker *w = flights[0]->worker;

	pthread_mutex_lock(&w->flights.lock);
	for (uint32_t i = 0; i < n; i++)
		flights[i]->adopting = NULL;
	pthread_mutex_unlock(&w->flights.lock);
}

/* As a background job, unless a reader waits for one of the units. */
static bool adopt_submit(struct flight **flights, uint32_t n, struct pool_job *job)
{
	struct worker *w = flights[0]->worker;
	bool submitted;

	pthread_mutex_lock(&w->flights.lock);
	job->background = true;
	for (uint32_t i = 0; i < n; i++)
		job->background &= flights[i]->class != UFS_DEMAND;
	submitted = pool_submit(w->adopt, job) == 0;
	for (uint32_t i = 0; i < n && submitted; i++)
		flights[i]->adopting = job;
	pthread_mutex_unlock(&w->flights.lock);
	return submitted;
}

static void run_adopt(struct pool_job *job)
{
	struct flight *f = container_of(job, struct flight, adopt);

	adopt_begins(&f, 1);
	if (adopt_unit(f))
		flight_all_landed(f);
	else
		pull_start(&f, 1);
}

static bool may_be_here(struct flight *f)
{
	if (!adopt_possible(f->source))
		return false;
	return flight_data_new(f) && adopt_submit(&f, 1, &f->adopt);
}

/* Has its memory in the budget and is FETCHING: asks the origin, unless the bytes are here already
 * under another offset. */
void flight_start(struct flight *f)
{
	atomic_fetch_add(&f->refs, 1); /* the origin's */
	if (!may_be_here(f))
		pull_start(&f, 1);
}

uint64_t flight_batch_bytes(const struct flight_batch *batch)
{
	const struct flight *last;

	if (batch->n == 0)
		return 0;
	last = batch->flights[batch->n - 1];
	return last->start + last->length - batch->flights[0]->start;
}

bool flight_batch_full(const struct flight_batch *batch)
{
	const struct flight *last = batch->n ? batch->flights[batch->n - 1] : NULL;
	uint64_t most = last && last->get.size > UNIT_BYTES ? CHUNK_BYTES : UNIT_BYTES;

	return batch->n == PULL_FLIGHTS || flight_batch_bytes(batch) >= most;
}

bool flight_may_start_range(
	struct source *source, const struct table_row *row, uint64_t bytes, enum ufs_class class)
{
	struct worker *w = source->worker;
	uint64_t most = budget_share(w->memory.max, (enum budget_class) class) / RANGES_LEAST;
	bool fits;

	if (row->size <= UNIT_BYTES)
		return true;
	bytes = min(bytes, ufs_range_bytes(source_ufs(source)));
	bytes = min(bytes, most);
	pthread_mutex_lock(&w->flights.lock);
	fits = flight_in_window_locked(w, (enum budget_class) class, bytes);
	pthread_mutex_unlock(&w->flights.lock);
	return fits && budget_has(&w->memory, (enum budget_class) class, bytes);
}

/* Are they for one pull, or one GET? */
static bool is_one_request(
	const struct flight *first, const struct flight *last, const struct flight *next)
{
	uint64_t end = align_up(last->start + last->length, BLOCK_BYTES);

	if (next->start != end || next->get.class != last->get.class)
		return false;
	return end + next->length - first->start <= UNIT_BYTES || range_joins(last, next);
}

/* Those that go by one request each go together. */
static void start_groups(struct flight **flights, uint32_t n)
{
	uint32_t first = 0;

	for (uint32_t i = 1; i <= n; i++) {
		if (i < n && is_one_request(flights[first], flights[i - 1], flights[i]))
			continue;
		pull_start(flights + first, i - first);
		first = i;
	}
}

/* A batch whose bytes may be on a tier at another place. What is not there goes on together. */
struct adopt_batch {
	struct pool_job job;
	struct flight_batch batch;
};

static void run_adopt_batch(struct pool_job *job)
{
	struct adopt_batch *all = container_of(job, struct adopt_batch, job);
	struct flight_batch *batch = &all->batch;
	uint32_t n = 0;

	adopt_begins(batch->flights, batch->n);
	for (uint32_t i = 0; i < batch->n; i++) {
		struct flight *f = batch->flights[i];

		if (flight_data_new(f) && adopt_unit(f))
			flight_all_landed(f);
		else
			batch->flights[n++] = f;
	}
	start_groups(batch->flights, n);
	free(all);
}

static bool may_all_be_here(const struct flight_batch *batch)
{
	struct adopt_batch *all;

	if (flight_batch_bytes(batch) <= UNIT_BYTES || !adopt_possible(batch->flights[0]->source))
		return false;
	all = malloc(sizeof(*all));
	if (!all)
		return false;
	*all = (struct adopt_batch){ .job.run = run_adopt_batch, .batch = *batch };
	if (adopt_submit(all->batch.flights, all->batch.n, &all->job))
		return true;
	free(all);
	return false;
}

void flight_batch_start(struct flight_batch *batch)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < batch->n; i++)
		atomic_fetch_add(&batch->flights[i]->refs, 1); /* the origin's */
	if (batch->n > 0 && may_all_be_here(batch)) {
		batch->n = 0;
		return;
	}
	for (uint32_t i = 0; i < batch->n; i++)
		if (!may_be_here(batch->flights[i]))
			batch->flights[n++] = batch->flights[i];
	batch->n = 0;
	start_groups(batch->flights, n);
}

struct flight *flight_new(struct source *source, const struct table_row *row, uint64_t at,
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
	f->write.run = flight_run_write;
	f->adopt.run = run_adopt;
	f->get = (struct ufs_get){
		.key = f->names,
		.key_len = row->key_len,
		.tag = f->names + row->key_len,
		.tag_len = row->tag_len,
		.size = row->size,
		.class = class,
		.on_progress = on_progress,
		.on_done = on_done,
	};
	return f;
}
