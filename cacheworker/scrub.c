/* The scrub's work: what is read when. See scrub.h. */
#include "cacheworker/scrub.h"
#include "base/log.h"
#include "cacheworker/fill.h"
#include "cacheworker/scrub_internal.h"
#include "tiers/seal.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#define SAVE_NS       (30 * CLOCK_SECOND)
#define IDLE_NS       CLOCK_SECOND
#define YIELD_NS      (10 * CLOCK_MS)
#define REPAIR_NS     (20 * CLOCK_SECOND) /* an order waits for what it found to be there again */
#define SOURCE_WAIT_S 30u

/* ---- waiting --------------------------------------------------------------------------------- */

bool scrub_closing(struct scrub *s)
{
	bool closing;

	pthread_mutex_lock(&s->lock);
	closing = s->closing;
	pthread_mutex_unlock(&s->lock);
	return closing;
}

static struct timespec deadline_of(uint64_t ns)
{
	uint64_t until = clock_mono_ns() + ns;

	return (struct timespec){ .tv_sec = (time_t)(until / CLOCK_SECOND),
		.tv_nsec = (long)(until % CLOCK_SECOND) };
}

bool scrub_sleep(struct scrub *s, uint64_t ns)
{
	struct timespec until = deadline_of(ns);
	int r = 0;
	bool closing;

	pthread_mutex_lock(&s->lock);
	while (!s->closing && r != ETIMEDOUT)
		r = pthread_cond_timedwait(&s->wake, &s->lock, &until);
	closing = s->closing;
	pthread_mutex_unlock(&s->lock);
	return !closing;
}

/* How long `bytes` take at the rate of now. */
static uint64_t pace_ns(const struct scrub *s, uint64_t bytes, bool yield)
{
	uint64_t rate = s->live ? atomic_load(s->live) : s->rate;
	uint64_t ns = rate ? bytes * CLOCK_SECOND / rate : 0;

	return yield || (s->live && !rate) ? max(ns, YIELD_NS) : ns; /* 0: just turned off */
}

bool scrub_pace(struct scrub *s, uint64_t bytes)
{
	uint64_t fetches = counter_get(&s->worker->counters.fetches);
	bool yield = fetches != s->fetches_seen;
	uint64_t waited = 0;
	uint64_t ns;

	s->fetches_seen = fetches;
	/* In steps: a rate that changes counts from now on. */
	while ((ns = pace_ns(s, bytes, yield)) > waited) {
		uint64_t step = min(ns - waited, CLOCK_SECOND);

		if (!scrub_sleep(s, step))
			return false;
		waited += step;
	}
	return !scrub_closing(s);
}

/* ---- sources --------------------------------------------------------------------------------- */

struct lookup {
	struct source_wait wait;
	pthread_mutex_t lock;
	pthread_cond_t answered;
	bool done;
	struct source *source;
};

static void on_source(
	struct source_wait *wait, struct source *source, int status, const struct err *e)
{
	struct lookup *l = container_of(wait, struct lookup, wait);

	(void)e;
	pthread_mutex_lock(&l->lock);
	l->done = true;
	l->source = status < 0 ? NULL : source;
	pthread_cond_signal(&l->answered);
	pthread_mutex_unlock(&l->lock);
}

/* Asks the master when that was not done before. */
static struct source *look_up(struct scrub *s, const struct chunk_id *id, uint64_t generation)
{
	struct lookup l = { .wait.ready = on_source };

	list_init(&l.wait.link);
	pthread_mutex_init(&l.lock, NULL);
	pthread_cond_init(&l.answered, NULL);
	source_find(s->worker, &id->volume, id->lineage, generation, &l.wait);
	/* The master's answer, or sources_close(), ends it. */
	pthread_mutex_lock(&l.lock);
	while (!l.done)
		pthread_cond_wait(&l.answered, &l.lock);
	pthread_mutex_unlock(&l.lock);
	pthread_cond_destroy(&l.answered);
	pthread_mutex_destroy(&l.lock);
	return l.source;
}

struct source *scrub_source(struct scrub *s, const struct chunk_id *id)
{
	if (s->looked.lineage != id->lineage || !volume_id_equal(&s->looked.volume, &id->volume)) {
		s->looked = *id;
		s->source = look_up(s, id, 0);
	}
	return s->source;
}

struct source *scrub_source_of(struct scrub *s, const struct chunk_id *id, uint64_t generation)
{
	struct source *source = scrub_source(s, id);
	struct table *table = source ? source_table(source) : NULL;
	bool has = table && table_info(table)->id.generation >= generation;

	table_unref(table);
	if (!has)
		s->source = look_up(s, id, generation);
	return s->source;
}

/* ---- findings -------------------------------------------------------------------------------- */

void scrub_add_finding(
	struct scrub *s, struct scrub_tally *tally, const struct scrub_finding *finding)
{
	pthread_mutex_lock(&s->lock);
	if (tally->n_findings < SCRUB_FINDINGS)
		tally->findings[tally->n_findings++] = *finding;
	pthread_mutex_unlock(&s->lock);
}

void scrub_refetch(struct source *source, uint64_t at, uint32_t length)
{
	int r = fill_ahead(source, at, (uint32_t)align_up(length, BLOCK_BYTES));

	if (r < 0)
		log_debug("dropped pieces not fetched again", "cause=%s", err_name(r));
}

/* Notes which of the damaged ones are there again; true when all are. */
static bool look_for_repairs(struct scrub *s, struct scrub_tally *tally)
{
	bool all = true;

	for (uint32_t i = 0; i < tally->n_findings; i++) { /* only this thread adds */
		struct scrub_finding *f = &tally->findings[i];
		bool there = f->repaired ||
			     tier_chunk_holds(s->worker->tiers, &f->id, f->offset, f->length);

		if (f->kind != SCRUB_DAMAGED)
			continue;
		all &= there;
		pthread_mutex_lock(&s->lock);
		f->repaired = there;
		pthread_mutex_unlock(&s->lock);
	}
	return all;
}

static void wait_for_repairs(struct scrub *s, struct scrub_tally *tally)
{
	uint64_t deadline = clock_mono_ns() + REPAIR_NS;

	while (!look_for_repairs(s, tally) && clock_mono_ns() < deadline)
		if (!scrub_sleep(s, 20 * CLOCK_MS))
			return;
}

/* ---- passes ---------------------------------------------------------------------------------- */

static bool begin(struct scrub *s, const char *state, uint64_t rate)
{
	if (!s->unit)
		s->unit = aligned_alloc(BLOCK_BYTES, UNIT_BYTES);
	s->rate = rate;
	s->live = NULL;
	s->looked = (struct chunk_id){ 0 };
	s->source = NULL;
	pthread_mutex_lock(&s->lock);
	s->state = state;
	pthread_mutex_unlock(&s->lock);
	return s->unit != NULL;
}

static void end(struct scrub *s)
{
	free(s->unit);
	s->unit = NULL;
	pthread_mutex_lock(&s->lock);
	s->state = "idle";
	pthread_mutex_unlock(&s->lock);
}

static bool wanted(struct scrub *s)
{
	bool is_wanted;

	pthread_mutex_lock(&s->lock);
	is_wanted = s->wanted.id != 0;
	pthread_mutex_unlock(&s->lock);
	return is_wanted;
}

/* What an earlier boot left: once per start; what cannot be checked stays for the first reader. */
static void verify_unverified(struct scrub *s, struct scrub_tally *tally)
{
	struct chunk_id ids[SCRUB_BATCH];
	struct chunk_id after;
	bool first = true;
	uint64_t rate = atomic_load(&s->worker->rates.scrub);
	bool go_on = begin(s, "verifying", rate ? rate : SCRUB_RATE);

	while (go_on) {
		uint32_t n = tier_set_list(
			s->worker->tiers, first ? NULL : &after, true, ids, SCRUB_BATCH);

		for (uint32_t i = 0; i < n && go_on; i++)
			go_on = scrub_verify_chunk(s, tally, &ids[i]);
		go_on &= n > 0;
		if (n)
			after = ids[n - 1];
		first = false;
	}
	end(s);
}

static bool covers(const struct scrub_order *order, const struct chunk_id *id)
{
	return !order->one_volume || volume_id_equal(&order->volume, &id->volume);
}

/* What a kernel has as a device is read without anybody who checks it: it comes first. */
static bool verify_once(struct scrub *s, struct scrub_tally *tally, const struct chunk_id *id,
	bool held_only, uint32_t tag)
{
	struct chunk *chunk = tier_chunk_find(s->worker->tiers, id);
	bool due = chunk && chunk_tag(chunk) != tag && (!held_only || tier_seal_is_held(chunk));
	bool go_on = true;

	if (due)
		chunk_set_tag(chunk, tag);
	chunk_unref(chunk);
	if (due || (!chunk && !held_only)) /* it counts it */
		go_on = scrub_verify_chunk(s, tally, id);
	return go_on;
}

/* Chunks of the order that are held, or all that were not read yet. */
static bool verify_ordered(
	struct scrub *s, const struct scrub_order *order, bool held_only, uint32_t tag)
{
	struct chunk_id ids[SCRUB_BATCH];
	const struct chunk_id *after = NULL;
	struct chunk_id last;
	bool go_on = true;
	uint32_t n = SCRUB_BATCH;

	while (go_on && n > 0) {
		n = tier_set_list(s->worker->tiers, after, false, ids, SCRUB_BATCH);
		for (uint32_t i = 0; i < n && go_on; i++)
			if (covers(order, &ids[i]))
				go_on = verify_once(s, &s->ordered, &ids[i], held_only, tag);
		if (n)
			last = ids[n - 1];
		after = &last;
	}
	return go_on;
}

static void run_order(struct scrub *s)
{
	struct scrub_order order;
	uint32_t tag = ++s->tags;
	bool go_on;

	pthread_mutex_lock(&s->lock);
	order = s->order = s->wanted;
	s->wanted.id = 0;
	s->ordered = (struct scrub_tally){ 0 };
	s->order_done = false;
	pthread_mutex_unlock(&s->lock);
	go_on = begin(s, "ordered", order.rate) && !order.sample_only;
	if (go_on && verify_ordered(s, &order, true, tag))
		(void)verify_ordered(s, &order, false, tag); /* closing is looked at below */
	if (s->unit && (order.sample || order.sample_ratio > 0) && !scrub_closing(s))
		scrub_sample(s, &s->ordered, &order);
	wait_for_repairs(s, &s->ordered);
	end(s);
	pthread_mutex_lock(&s->lock);
	s->order_done = true;
	pthread_mutex_unlock(&s->lock);
	log_info("scrub done",
		"chunks=%llu pieces=%llu bytes=%llu damaged=%llu sampled=%llu changed=%llu "
		"differ=%llu",
		(unsigned long long)s->ordered.chunks, (unsigned long long)s->ordered.pieces,
		(unsigned long long)s->ordered.bytes, (unsigned long long)s->ordered.bad,
		(unsigned long long)s->ordered.sampled, (unsigned long long)s->ordered.changed,
		(unsigned long long)s->ordered.differ);
}

static uint64_t wall_seconds(void)
{
	return clock_wall_ns() / CLOCK_SECOND;
}

static bool pass_due(const struct scrub *s)
{
	const struct worker_rates *rates = &s->worker->rates;
	uint64_t max_age = atomic_load(&rates->scrub_max_age);
	uint64_t now = wall_seconds();

	if (atomic_load(&rates->scrub) == 0 || max_age == 0)
		return false;
	return s->in_pass || now < s->pass_started || /* the clock was set back */
	       now - s->pass_started >= max_age / CLOCK_SECOND;
}

static void end_pass(struct scrub *s)
{
	(void)look_for_repairs(s, &s->pass);
	pthread_mutex_lock(&s->lock);
	s->in_pass = false;
	s->has_cursor = false;
	pthread_mutex_unlock(&s->lock);
	scrub_save_state(s);
}

/* Goes on where it was, until the end, or somebody orders something. */
static void run_pass(struct scrub *s)
{
	struct chunk_id ids[SCRUB_BATCH];
	bool go_on = begin(s, "pass", 0);
	uint32_t n = SCRUB_BATCH;

	s->live = &s->worker->rates.scrub;
	if (!s->in_pass) {
		pthread_mutex_lock(&s->lock);
		s->pass = (struct scrub_tally){ 0 };
		s->pass_started = wall_seconds();
		s->in_pass = true;
		s->has_cursor = false;
		s->held_done = false;
		pthread_mutex_unlock(&s->lock);
		s->pass_tag = 0;
		scrub_save_state(s);
	}
	if (!s->pass_tag)
		s->pass_tag = ++s->tags;
	while (go_on && n > 0) {
		n = tier_set_list(s->worker->tiers, s->has_cursor ? &s->cursor : NULL, false, ids,
			SCRUB_BATCH);
		for (uint32_t i = 0; i < n && go_on; i++) {
			go_on = verify_once(s, &s->pass, &ids[i], !s->held_done, s->pass_tag) &&
				!wanted(s) && pass_due(s);
			pthread_mutex_lock(&s->lock);
			s->cursor = ids[i];
			s->has_cursor = true;
			pthread_mutex_unlock(&s->lock);
			if (clock_mono_ns() - s->saved_ns >= SAVE_NS)
				scrub_save_state(s);
		}
		if (n == 0 && !s->held_done) { /* now the others */
			pthread_mutex_lock(&s->lock);
			s->held_done = true;
			s->has_cursor = false;
			pthread_mutex_unlock(&s->lock);
			n = SCRUB_BATCH;
		}
	}
	if (go_on)
		end_pass(s);
	else
		scrub_save_state(s);
	end(s);
}

/* What an earlier boot left, an order, or as much of a pass as nothing interrupts: each may last for hours, and sleeps to keep its
 * rate. */
static uint64_t run(void *arg)
{
	struct scrub *s = arg;
	uint64_t ns = 0;

	if (!s->begun) {
		s->begun = true;
		scrub_load_state(s);
		if (tier_set_unverified(s->worker->tiers) > 0)
			verify_unverified(s, &s->pass);
	} else if (scrub_closing(s)) {
		ns = PERIODIC_IDLE;
	} else if (wanted(s)) {
		run_order(s);
	} else if (pass_due(s)) {
		run_pass(s);
	} else {
		ns = IDLE_NS;
	}
	return ns;
}

/* ---- opening and closing --------------------------------------------------------------------- */

int scrub_open(struct worker *w)
{
	struct scrub *s = calloc(1, sizeof(*s));
	pthread_condattr_t attr;

	if (!s)
		return -ENOMEM;
	s->worker = w;
	s->state = "idle";
	pthread_mutex_init(&s->lock, NULL);
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&s->wake, &attr);
	pthread_condattr_destroy(&attr);
	w->scrub = s;
	return 0;
}

void scrub_start(struct worker *w)
{
	struct scrub *s = w->scrub;

	s->work = (struct periodic_work){ .name = "scrub", .run = run, .arg = s };
	periodic_start(w->quiet, &s->work, 0);
}

void scrub_stop(struct worker *w)
{
	struct scrub *s = w->scrub;

	if (!s)
		return;
	pthread_mutex_lock(&s->lock);
	s->closing = true;
	pthread_cond_broadcast(&s->wake);
	pthread_mutex_unlock(&s->lock);
}

void scrub_close(struct worker *w)
{
	struct scrub *s = w->scrub;

	if (!s)
		return;
	periodic_stop(&s->work);
	free(s->unit);
	pthread_cond_destroy(&s->wake);
	pthread_mutex_destroy(&s->lock);
	free(s);
	w->scrub = NULL;
}
