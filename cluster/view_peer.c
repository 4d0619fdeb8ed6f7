/*
 * What calls to a peer came to: load, p99, breaker, hedges. See view.h.
 *
 * The breaker:
 *
 *	CLOSED  three calls in a row without an answer -> OPEN for a pause
 *	OPEN    the pause is over -> one call is let through, and the breaker stays open for another
 *		pause meanwhile; its answer -> CLOSED, its failure -> OPEN for twice as long
 */
#include "base/clock.h"
#include "cluster/view_internal.h"

#include <stdlib.h>
#include <string.h>

#define BREAKER_ROW   3u
#define PAUSE_MIN     (250 * CLOCK_MS)
#define PAUSE_MAX     (5 * CLOCK_SECOND)
#define BUCKETS_SUM   1024u /* then all are halved: old answers count less and less */
#define SAMPLES_LEAST 100u
#define HEDGE_LEAST   (5 * CLOCK_MS)
#define LOAD_LEAST    (CLOCK_MS / 10)
#define HEDGE_SHARE   50u    /* one hedge for so many reads */
#define READS_SUM     10000u /* then both are halved */

struct peer *peer_new(void)
{
	struct peer *peer = calloc(1, sizeof(*peer));

	if (!peer)
		return NULL;
	pthread_mutex_init(&peer->lock, NULL);
	list_init(&peer->link);
	peer->backoff = (struct backoff){
		.min_ns = PAUSE_MIN, .max_ns = PAUSE_MAX, .spread = BACKOFF_HALF
	};
	return peer;
}

void peer_free(struct peer *peer)
{
	if (!peer)
		return;
	rpc_client_free(peer->pub.rpc);
	pthread_mutex_destroy(&peer->lock);
	free(peer);
}

/* ---- those that no table names ---------------------------------------------------------------- */

static void run_free(struct pool_job *job)
{
	peer_free(container_of(job, struct peer, job));
}

static void on_sweep(void *arg)
{
	struct view *view = arg;

	view->sweep_timer = NULL;
	view_sweep(view);
}

void view_sweep_later(struct view *view)
{
	if (!view->pool) /* nothing was called yet: on the disk there are no peers of before */
		return;
	if (!view->sweep_timer)
		view->sweep_timer = loop_timer_start(view->loop, PEER_SWEEP_NS, on_sweep, view);
}

static bool is_named(const struct view *view, const struct peer *peer)
{
	const struct member *m =
		peer->pub.number < PLACEMENT_MAX ? view->members[peer->pub.number] : NULL;

	return (m && m->peer == peer) || peer == view->local || peer->pub.local || peer->pub.self;
}

static bool is_quiet(struct peer *peer)
{
	uint32_t in_flight;

	pthread_mutex_lock(&peer->lock);
	in_flight = peer->in_flight;
	pthread_mutex_unlock(&peer->lock);
	return in_flight == 0 && (!peer->pub.rpc || rpc_client_idle(peer->pub.rpc));
}

void view_sweep(struct view *view)
{
	bool more = false;

	list_for_each_safe (node, &view->peers) {
		struct peer *peer = list_entry(node, struct peer, link);

		if (is_named(view, peer)) {
			peer->quiet = 0;
			continue;
		}
		more = true;
		peer->quiet = is_quiet(peer) ? peer->quiet + 1 : 0;
		if (peer->quiet < PEER_QUIET)
			continue;
		peer->job.run = run_free;
		pthread_mutex_lock(&view->lock);
		list_remove(&peer->link);
		view->n_peers--;
		pthread_mutex_unlock(&view->lock);
		if (pool_submit(view->pool, &peer->job) == 0)
			continue;
		/* Those before it are still to be freed: with the next sweep. */
		pthread_mutex_lock(&view->lock);
		list_push_back(&view->peers, &peer->link);
		view->n_peers++;
		pthread_mutex_unlock(&view->lock);
		break;
	}
	if (more)
		view_sweep_later(view);
}

/* ---- how long answers take ------------------------------------------------------------------- */

static uint32_t bucket_of(uint64_t ns)
{
	uint64_t sixteenths = ns >> 12; /* of 16 x 4 us: two bits below the leading one count */
	uint32_t top;
	uint32_t bucket;

	if (sixteenths < 4)
		return 0;
	top = 63 - (uint32_t)__builtin_clzll(sixteenths);
	bucket = (top - 2) * 4 + (uint32_t)((sixteenths >> (top - 2)) & 3) + 1;
	return min(bucket, PEER_BUCKETS - 1);
}

static uint64_t bucket_end_ns(uint32_t bucket)
{
	uint32_t top;

	if (bucket == 0)
		return 4ull << 12;
	top = (bucket - 1) / 4 + 2;
	return (uint64_t)(5 + (bucket - 1) % 4) << (top - 2) << 12;
}

static void note_time_locked(struct peer *peer, uint64_t ns)
{
	peer->mean_ns = peer->mean_ns ? peer->mean_ns - peer->mean_ns / 8 + ns / 8 : ns;
	peer->buckets[bucket_of(ns)]++;
	if (++peer->n_buckets < BUCKETS_SUM)
		return;
	peer->n_buckets = 0;
	for (uint32_t i = 0; i < PEER_BUCKETS; i++) {
		peer->buckets[i] /= 2;
		peer->n_buckets += peer->buckets[i];
	}
}

static uint64_t p99_locked(const struct peer *peer)
{
	uint32_t above = peer->n_buckets / 100; /* so many may take longer */
	uint32_t i = PEER_BUCKETS - 1;

	if (peer->n_buckets < SAMPLES_LEAST)
		return 0;
	while (i > 0 && peer->buckets[i] <= above)
		above -= peer->buckets[i--];
	return bucket_end_ns(i);
}

/* ---- breaker --------------------------------------------------------------------------------- */

static void note_failure_locked(struct peer *peer, uint64_t now_ns, uint64_t took_ns)
{
	peer->failures++;
	if (!peer->failing_ns)
		peer->failing_ns = now_ns - min(took_ns, now_ns - 1);
	if (++peer->failed_row < BREAKER_ROW)
		return;
	/* Those that were in flight when it broke give no new fact. */
	if (peer->broken_until_ns && now_ns < peer->broken_until_ns && !peer->let_through)
		return;
	peer->let_through = false;
	peer->broken_until_ns = now_ns + backoff_next(&peer->backoff);
}

static void close_locked(struct peer *peer)
{
	peer->failed_row = 0;
	peer->failing_ns = 0;
	peer->let_through = false;
	peer->broken_until_ns = 0;
	backoff_reset(&peer->backoff);
}

static void note_answer_locked(struct peer *peer, uint64_t ns)
{
	peer->answers++;
	peer->heard_ns = clock_mono_ns();
	close_locked(peer);
	atomic_store(&peer->hangs, false);
	note_time_locked(peer, ns);
}

static void count_call_locked(struct peer *peer)
{
	if (peer->in_flight++ == 0) /* it was asked nothing: nothing could be heard */
		peer->heard_ns = clock_mono_ns();
}

void view_begin(struct view *view, struct view_peer *pub)
{
	struct peer *peer = peer_of(pub);

	if (atomic_fetch_add(&view->reads, 1) == READS_SUM) { /* one of those that come at once */
		atomic_fetch_sub(&view->reads, READS_SUM / 2);
		atomic_store(&view->hedges, atomic_load(&view->hedges) / 2);
	}
	pthread_mutex_lock(&peer->lock);
	count_call_locked(peer);
	/* This is the one that is let through. */
	if (peer->broken_until_ns && peer_lets(peer)) {
		peer->let_through = true;
		peer->broken_until_ns = clock_mono_ns() + backoff_ns(&peer->backoff);
	}
	pthread_mutex_unlock(&peer->lock);
	view_alive_watch(view);
}

void view_end(struct view *view, struct view_peer *pub, uint64_t ns, bool failed)
{
	struct peer *peer = peer_of(pub);

	(void)view;
	pthread_mutex_lock(&peer->lock);
	ensure(peer->in_flight > 0);
	peer->in_flight--;
	if (failed)
		note_failure_locked(peer, clock_mono_ns(), ns);
	else
		note_answer_locked(peer, ns);
	pthread_mutex_unlock(&peer->lock);
}

void view_dropped(struct view *view, struct view_peer *pub)
{
	struct peer *peer = peer_of(pub);

	(void)view;
	pthread_mutex_lock(&peer->lock);
	ensure(peer->in_flight > 0);
	peer->in_flight--;
	pthread_mutex_unlock(&peer->lock);
}

void peer_ping(struct peer *peer)
{
	pthread_mutex_lock(&peer->lock);
	count_call_locked(peer);
	pthread_mutex_unlock(&peer->lock);
}

void peer_is_there(struct peer *peer)
{
	pthread_mutex_lock(&peer->lock);
	ensure(peer->in_flight > 0);
	peer->in_flight--;
	peer->answers++;
	peer->heard_ns = clock_mono_ns();
	if (atomic_load(&peer->hangs))
		close_locked(peer);
	atomic_store(&peer->hangs, false);
	pthread_mutex_unlock(&peer->lock);
}

bool peer_heard_since(struct peer *peer, uint64_t ns)
{
	bool heard;

	pthread_mutex_lock(&peer->lock);
	heard = peer->heard_ns > ns;
	pthread_mutex_unlock(&peer->lock);
	return heard;
}

uint64_t view_failing(const struct view_peer *pub)
{
	struct peer *peer = peer_of(pub);
	uint64_t began;

	pthread_mutex_lock(&peer->lock);
	began = peer->failing_ns;
	pthread_mutex_unlock(&peer->lock);
	return began ? max(clock_mono_ns() - began, (uint64_t)1) : 0;
}

uint64_t peer_silent(struct peer *peer)
{
	uint64_t heard = 0;

	pthread_mutex_lock(&peer->lock);
	if (peer->in_flight > 0)
		heard = peer->heard_ns;
	pthread_mutex_unlock(&peer->lock);
	return heard ? max(clock_mono_ns() - heard, (uint64_t)1) : 0;
}

bool view_hangs(const struct view_peer *pub)
{
	return atomic_load(&peer_of(pub)->hangs);
}

bool peer_break(struct peer *peer)
{
	bool news;

	pthread_mutex_lock(&peer->lock);
	peer->failures++;
	if (!peer->failing_ns)
		peer->failing_ns = clock_mono_ns();
	peer->failed_row = BREAKER_ROW;
	backoff_to_max(&peer->backoff);
	peer->broken_until_ns = clock_mono_ns() + backoff_ns(&peer->backoff);
	news = !atomic_exchange(&peer->hangs, true); /* who sees that finds the breaker open */
	pthread_mutex_unlock(&peer->lock);
	return news;
}

bool view_down(const struct view_peer *pub)
{
	return !peer_up(peer_of(pub));
}

bool view_lets(const struct view_peer *pub)
{
	return peer_lets(peer_of(pub));
}

bool view_usable(struct view *view, const struct view_peer *pub)
{
	struct peer *peer = peer_of(pub);

	(void)view;
	return peer_up(peer) && peer_lets(peer);
}

/* ---- which of two, and when a second ---------------------------------------------------------- */

static uint64_t load_of(struct peer *peer)
{
	uint64_t load;

	pthread_mutex_lock(&peer->lock);
	load = (uint64_t)(peer->in_flight + 1) * max(peer->mean_ns, LOAD_LEAST);
	pthread_mutex_unlock(&peer->lock);
	return load;
}

struct view_peer *view_less_loaded(struct view *view, struct view_peer *a, struct view_peer *b)
{
	bool a_usable = view_usable(view, a);

	if (a_usable != view_usable(view, b))
		return a_usable ? a : b;
	return load_of(peer_of(b)) < load_of(peer_of(a)) ? b : a;
}

uint64_t view_hedge_after(struct view *view, const struct view_peer *pub)
{
	struct peer *peer = peer_of(pub);
	uint64_t p99;

	if (atomic_load(&view->hedges) * HEDGE_SHARE >= atomic_load(&view->reads))
		return 0;
	pthread_mutex_lock(&peer->lock);
	p99 = p99_locked(peer);
	pthread_mutex_unlock(&peer->lock);
	return p99 ? max(p99, HEDGE_LEAST) : 0;
}

void view_hedged(struct view *view)
{
	atomic_fetch_add(&view->hedges, 1);
}

/* ---- for people ------------------------------------------------------------------------------ */

void view_note_bytes(struct view_peer *pub, uint64_t bytes)
{
	counter_add(&peer_of(pub)->bytes, bytes);
}

void peer_status(struct peer *peer, struct view_status *ret)
{
	*ret = (struct view_status){
		.number = peer->pub.number,
		.state = atomic_load(&peer->state),
		.local = peer->pub.local,
		.connected = peer->pub.rpc && rpc_client_connected(peer->pub.rpc),
		.bytes = counter_get(&peer->bytes),
	};
	memcpy(ret->name, peer->pub.name, sizeof(ret->name));
	memcpy(ret->address, peer->pub.address, sizeof(ret->address));
	pthread_mutex_lock(&peer->lock);
	ret->broken = !peer_lets(peer);
	ret->in_flight = peer->in_flight;
	ret->answers = peer->answers;
	ret->failures = peer->failures;
	ret->p99_ns = p99_locked(peer);
	pthread_mutex_unlock(&peer->lock);
}
