/* Bytes of flights from other workers. See pull.h. */
#include "base/cleanup.h"
#include "base/clock.h"
#include "cacheworker/pull_internal.h"
#include "cacheworker/range.h"

#include <stdlib.h>
#include <string.h>

/* What no reader waits for is wanted for as long, as by UFS_LIMITS_DEFAULT. */
#define UNREAD_NS (300 * CLOCK_SECOND)
/* An owner is waited for as long, if the reader is: an origin may take as long for one request, and would get another one by another
 * worker. One that takes longer counts as silent. */
#define FILL_LEAST_NS (30 * CLOCK_SECOND)
/* With less than that left no other worker is asked. */
#define LATE_NS (200 * CLOCK_MS)
/* Of UNREAD_NS, where the origin would be asked for what another worker may have. */
#define AHEAD_PARTS      20u
#define DOUBT_PATIENCE   (150 * CLOCK_MS) /* with one that did not answer the last time */
#define OWNER_PATIENCE   (500 * CLOCK_MS) /* with one that others say does not answer */
#define ASKED_MAX        64u              /* owners of other chunks of an object */
#define ASKED_CHUNKS_MAX 1024u            /* of it, in which they are sought */
#define BAD_MAX          2u /* pieces of a unit that came damaged: then from the origin */

/* A request without a waiter. */
struct nudge {
	struct rpc_call call;
	struct worker *worker;
};

/* ---- how many there are ---------------------------------------------------------------------- */

static bool count_up(struct worker *w)
{
	bool open;

	pthread_mutex_lock(&w->pulls.lock);
	open = !w->pulls.closing;
	if (open)
		w->pulls.n++;
	pthread_mutex_unlock(&w->pulls.lock);
	return open;
}

static void count_down(struct worker *w)
{
	pthread_mutex_lock(&w->pulls.lock);
	if (--w->pulls.n == 0)
		pthread_cond_broadcast(&w->pulls.idle);
	pthread_mutex_unlock(&w->pulls.lock);
}

bool pulls_closing(struct worker *w)
{
	bool is;

	pthread_mutex_lock(&w->pulls.lock);
	is = w->pulls.closing;
	pthread_mutex_unlock(&w->pulls.lock);
	return is;
}

static void pull_free(struct pull *p)
{
	struct worker *w = p->worker;

	pthread_mutex_lock(&w->pulls.lock);
	list_remove(&p->link);
	pthread_mutex_unlock(&w->pulls.lock);
	rpc_call_release(&p->call);
	free(p);
	count_down(w);
}

/* ---- asking ---------------------------------------------------------------------------------- */

static void on_nudged(struct rpc_call *call, int status)
{
	struct nudge *nudge = container_of(call, struct nudge, call);
	struct worker *w = nudge->worker;

	(void)status; /* it was a favour */
	rpc_call_release(call);
	free(nudge);
	count_down(w);
}

static uint64_t generation_of(struct source *source)
{
	struct table *table = source_table(source);
	uint64_t generation = table_info(table)->id.generation;

	table_unref(table);
	return generation;
}

static struct frame frame_of(const struct pull *p, enum frame_op op, uint16_t flags)
{
	static const uint8_t classes[] = {
		[UFS_DEMAND] = FRAME_DEMAND,
		[UFS_FILL] = FRAME_FILL,
		[UFS_PREFETCH] = FRAME_AHEAD,
	};

	return (struct frame){
		.op = (uint8_t)op,
		.class = classes[p->class],
		.flags = flags,
		.volume = p->id.volume,
		.lineage = p->id.lineage,
		.generation = p->generation,
		.offset = p->id.chunk * CHUNK_BYTES + p->offset,
		.length = p->asked_length,
		.extent = view_self(p->worker->view),
	};
}

static void nudge(struct worker *w, const struct view_peer *peer, const struct frame *frame)
{
	struct nudge *nudge = calloc(1, sizeof(*nudge));

	if (!nudge || !count_up(w)) {
		free(nudge);
		return;
	}
	nudge->worker = w;
	nudge->call = (struct rpc_call){
		.frame = *frame,
		.payload = NET_PAYLOAD_NONE,
		.deadline_ns = clock_mono_ns() + pull_lasts(w, DEADLINE_PROMPT_NS),
		.hurry = true,
		.on_done = on_nudged,
		.reply_fd = -1,
	};
	rpc_call(peer->rpc, &nudge->call);
}

/* The owner is to know that a reader waits. */
static void nudge_owner(struct pull *p)
{
	const struct frame frame = frame_of(p, FRAME_PREFETCH, FRAME_EXACT);

	nudge(p->worker, p->peer, &frame);
}

static bool is_among(const uint16_t *numbers, uint32_t n, uint16_t number)
{
	for (uint32_t i = 0; i < n; i++)
		if (numbers[i] == number)
			return true;
	return false;
}

void pull_tell_refused(const struct flight *f, uint32_t times)
{
	struct worker *w = f->worker;
	uint64_t offset = f->start - f->object_offset;
	uint64_t last = (offset + f->get.size - 1) >> CHUNK_BITS;
	const struct frame frame = {
		.op = FRAME_REFUSED,
		.class = FRAME_FILL,
		.volume = f->source->volume,
		.lineage = f->source->lineage,
		.generation = generation_of(f->source),
		.offset = offset,
		.length = BLOCK_BYTES,
		.extent = times,
	};
	uint16_t asked[ASKED_MAX];
	uint32_t n = 0;

	if (atomic_load(&w->others) == 0)
		return;
	last = min(last, (offset >> CHUNK_BITS) + ASKED_CHUNKS_MAX);
	for (uint64_t chunk = offset >> CHUNK_BITS; chunk <= last && n < ASKED_MAX; chunk++) {
		struct view_candidates c;

		view_find(w->view, placement_volume_hash(&frame.volume), chunk, &c);
		if (c.n == 0 || c.peers[0]->self || is_among(asked, n, c.peers[0]->number))
			continue;
		asked[n++] = c.peers[0]->number;
		nudge(w, c.peers[0], &frame);
	}
}

/* The owner, while it ends here: somebody found that he does not answer, though this worker may not know it yet. */
static bool is_passed_over(const struct pull *p)
{
	return p->next > 0 && p->holders[p->next - 1].kind == HOLDER_OWNER;
}

static uint64_t patience_with(const struct pull *p, const struct view_peer *peer)
{
	if (p->class != UFS_DEMAND)
		return view_down(peer) ? DEADLINE_PROMPT_NS : UNREAD_NS / AHEAD_PARTS;
	if (!view_usable(p->worker->view, peer))
		return DOUBT_PATIENCE;
	return is_passed_over(p) ? OWNER_PATIENCE : DEADLINE_PROMPT_NS;
}

/* A reader waits by now for what was asked for as something that may take its time. */
void pull_raise_locked(struct flight *f)
{
	struct pull *p = f->pull;

	if (f->class >= p->class || !(p->waiting || p->calling))
		return;
	p->class = f->class;
	if (p->waiting && p->class == UFS_DEMAND)
		pull_wake_locked(p);
	else if (p->calling && p->copy && !p->rechecking)
		nudge_owner(p);
	else if (p->calling && !p->rechecking && p->class == UFS_DEMAND)
		pull_due_locked(p, p->began_ns + pull_lasts(p->worker, patience_with(p, p->peer)));
}

void pull_give_up_locked(struct flight *f)
{
	struct pull *p = f->pull;

	if (!p || !p->copy || p->given_up)
		return;
	p->given_up = true;
	pull_wake_locked(p);
	if (p->calling)
		rpc_cancel(p->peer->rpc, &p->call);
}

bool pull_awaits_locked(const struct flight *f)
{
	const struct pull *p = f->pull;

	return p && p->awaits;
}

/* One of those asked has it soon. If its own origin brings it, whoever asks here waits, too; if it only waits for another, not: so
 * no two workers wait for each other. */
static void await(struct pull *p)
{
	p->owed = p->coming = true;
	if (p->call.reply.extent != 0)
		return;
	p->direct = true;
	pthread_mutex_lock(&p->worker->flights.lock);
	p->awaits = true;
	pthread_mutex_unlock(&p->worker->flights.lock);
}

static void run_answer(struct pool_job *job);

/* The readers' time was up, which says nothing of the peer. */
static bool is_cut(const struct pull *p, int status)
{
	return status == -ETIMEDOUT && p->cut && !(p->call.reply.flags & FRAME_REPLY);
}

/* The same, or the peer says so: an origin's last attempt ends a moment before (ufs/retry.c). */
static bool is_late(const struct pull *p, int status)
{
	return is_cut(p, status) ||
	       (status == -ETIMEDOUT && deadline_left(p->until_ns, clock_mono_ns()) < LATE_NS);
}

static void on_answer(struct rpc_call *call, int status)
{
	struct pull *p = container_of(call, struct pull, call);
	struct worker *w = p->worker;
	bool given_up;

	pthread_mutex_lock(&w->flights.lock);
	p->calling = false;
	p->due_ns = 0;
	given_up = p->given_up && p->copy;
	if (p->overdue && status == -ECANCELED) {
		status = -ETIMEDOUT;
		p->cut = false;
	}
	p->overdue = false;
	pthread_mutex_unlock(&w->flights.lock);
	if (given_up || pulls_closing(w) || status == -ECANCELED || is_cut(p, status))
		view_dropped(w->view, p->peer);
	else
		view_end(w->view, p->peer, clock_mono_ns() - p->began_ns,
			pull_no_answer(status) && !(call->reply.flags & FRAME_REPLY));
	p->status = status;
	if (pool_submit(w->peers, &p->job) < 0)
		run_answer(&p->job);
}

/* Whoever is called down, or does not even say that he is there, is waited for no longer. */
static bool is_left(const struct view_peer *peer)
{
	return view_down(peer) || view_hangs(peer);
}

/* How long a receiver that may ask the origin is waited for; that it is gone is seen by its connection. */
static uint64_t fill_patience(const struct pull *p)
{
	uint64_t now = clock_mono_ns();

	return deadline_share(deadline_earlier(p->until_ns, now + UNREAD_NS), now,
		       DEADLINE_ATTEMPTS, FILL_LEAST_NS) -
	       now;
}

/* patience: 0: fill_patience(). */
static void send(
	struct pull *p, struct view_peer *peer, enum frame_op op, uint16_t flags, uint64_t patience)
{
	struct worker *w = p->worker;
	bool fills = patience == 0;

	rpc_call_release(&p->call);
	p->peer = peer;
	p->began_ns = clock_mono_ns();
	p->call = (struct rpc_call){
		.frame = frame_of(p, op, flags),
		.payload = NET_PAYLOAD_NONE,
		.deadline_ns = deadline_earlier(p->until_ns,
			p->began_ns + pull_lasts(w, fills ? fill_patience(p) : patience)),
		.until_ns = p->until_ns ? p->until_ns : p->began_ns + UNREAD_NS,
		.hurry = true,
		.on_done = on_answer,
		.reply_fd = -1,
	};
	p->cut = p->until_ns && p->call.deadline_ns == p->until_ns;
	counter_add(&w->counters.peer_asked, 1);
	view_begin(w->view, peer);
	pthread_mutex_lock(&w->flights.lock);
	p->calling = true;
	rpc_call(peer->rpc, &p->call);
	/* Whoever raises, or ends such calls, may just have looked. */
	for (uint32_t i = 0; i < p->n; i++)
		pull_raise_locked(p->flights[i]);
	if ((p->given_up && p->copy) || pulls_closing(w) || (fills && is_left(peer)))
		rpc_cancel(peer->rpc, &p->call);
	pthread_mutex_unlock(&w->flights.lock);
}

/* ---- ends ------------------------------------------------------------------------------------ */

static void let_go(struct pull *p)
{
	struct worker *w = p->worker;

	pthread_mutex_lock(&w->flights.lock);
	for (uint32_t i = 0; i < p->n; i++)
		p->flights[i]->pull = NULL;
	pthread_mutex_unlock(&w->flights.lock);
}

static void to_origin(struct pull *p)
{
	let_go(p);
	range_start(p->flights, p->n);
	pull_free(p);
}

static void fail(struct pull *p, int status)
{
	const char *text =
		p->call.reply_payload && p->status < 0 ? p->call.reply_payload : err_str(status);
	struct err e = ERR_INIT;

	(void)err_set(&e, status, "%s", text); /* returns status */
	let_go(p);
	for (uint32_t i = 0; i < p->n; i++)
		flight_failed(p->flights[i], status, &e);
	pull_free(p);
}

/* No reader waits any more: no failure. */
static void end_unwanted(struct pull *p)
{
	let_go(p);
	for (uint32_t i = 0; i < p->n; i++) {
		flight_end(p->flights[i], -ETIMEDOUT, NULL);
		flight_unref(p->flights[i]); /* the origin's */
	}
	pull_free(p);
}

/* Each for itself from now on. */
static void split(struct pull *p)
{
	let_go(p);
	for (uint32_t i = 0; i < p->n; i++) {
		struct flight *f = p->flights[i];

		if (f->bad > BAD_MAX)
			flight_ask_origin(f);
		else
			pull_start(&f, 1);
	}
	pull_free(p);
}

/* The error may be of one unit only. */
static void fail_each(struct pull *p, int status)
{
	if (p->n > 1)
		split(p);
	else
		fail(p, status);
}

/* ---- the next step --------------------------------------------------------------------------- */

/* It is as urgent as the most urgent of its flights, and wanted as long as any of them. */
static void take_class(struct pull *p)
{
	pthread_mutex_lock(&p->worker->flights.lock);
	p->until_ns = p->flights[0]->until_ns;
	for (uint32_t i = 0; i < p->n; i++) {
		p->class = min(p->class, p->flights[i]->class);
		p->until_ns = deadline_later(p->until_ns, p->flights[i]->until_ns);
	}
	pthread_mutex_unlock(&p->worker->flights.lock);
}

static void step(struct pull *p)
{
	struct view_peer *peer;

	if (pulls_closing(p->worker)) {
		fail(p, -ECANCELED);
		return;
	}
	take_class(p);
	if (p->copy && pull_owner_is_owed(p)) {
		pull_wait(p);
		return;
	}
	if (p->copy) {
		peer = pull_next_server(p);
		if (peer) {
			send(p, peer, p->route.cached ? FRAME_FETCH_CACHED : FRAME_FETCH,
				FRAME_PEER | (p->route.last ? FRAME_LAST : 0),
				p->route.cached || view_down(peer) ? DEADLINE_PROMPT_NS : 0);
			return;
		}
		pull_end_here(p);
	}
	peer = pull_next_holder(p);
	if (peer)
		send(p, peer, FRAME_SEEK, 0, patience_with(p, peer));
	else if (p->owed)
		pull_wait(p);
	else
		to_origin(p);
}

/* ---- answers --------------------------------------------------------------------------------- */

static bool is_busy(int status)
{
	return status == -EAGAIN || status == -ENOMEM || status == -ENOBUFS;
}

/* It may have the bytes, and answer the next time. */
static bool says_nothing(int status)
{
	return pull_no_answer(status) || is_busy(status) || status == -ECANCELED;
}

static void missed_server(struct pull *p, int status)
{
	p->busy = is_busy(status);
	if (p->busy && p->n > 1)
		split(p);
	else if (says_nothing(status) && !p->route.cached &&
		 pull_may_wait(p, p->peer, HOLDER_OWNER))
		pull_wait(p);
	else if (pull_sent_on(p, status))
		step(p);
	else
		fail_each(p, status);
}

/* What it said of the whole chunk. */
static void note_holder(struct pull *p, int status)
{
	struct barren *barren = &p->worker->pulls.barren;
	const struct frame *reply = &p->call.reply;

	if (status == -ENODATA && reply->extent == 0)
		barren_note(barren, &p->id, p->peer->number, BARREN_EMPTY);
	else if (status == -ENODATA && reply->payload == CHUNK_BITMAP_BYTES)
		barren_note_some(barren, &p->id, p->peer->number, p->call.reply_payload);
	else if (pull_no_answer(status))
		barren_note(barren, &p->id, p->peer->number, BARREN_SILENT);
	if (status == -ENODATA)
		rpc_call_release(&p->call); /* no line of text, which fail() would take it for */
}

/* It may have some of them. */
static bool has_others(struct pull *p, int status)
{
	return status == -EALREADY ||
	       (status == -ENODATA && p->call.reply.extent > 0 &&
		       barren_word_of(&p->worker->pulls.barren, &p->id, p->peer->number, p->offset,
			       p->length) != BARREN_EMPTY);
}

static void missed_holder(struct pull *p, int status)
{
	note_holder(p, status);
	p->busy |= is_busy(status);
	if (p->n > 1 && has_others(p, status)) {
		split(p);
		return;
	}
	if (says_nothing(status) && pull_may_wait(p, p->peer, p->holders[p->next - 1].kind))
		p->owed = true;
	if (status == -EALREADY && pull_may_await(p))
		await(p);
	step(p);
}

/* Its readers' time was up before it could answer: it is asked again for those that came meanwhile. */
static void out_of_time(struct pull *p)
{
	take_class(p);
	if (deadline_left(p->until_ns, clock_mono_ns()) < LATE_NS) {
		end_unwanted(p);
		return;
	}
	pull_begin(p);
	step(p);
}

static void missed(struct pull *p, int status)
{
	if (is_late(p, status)) {
		out_of_time(p);
		return;
	}
	counter_add(&p->worker->counters.peer_missed, 1);
	if (!p->copy)
		missed_holder(p, status);
	else if (!pull_given_up(p))
		missed_server(p, status);
	else
		step(p); /* it is to end here by now */
}

/* After a pause. */
static void go_on(struct pull *p)
{
	p->woken = false;
	switch (flights_unpark(p->flights, p->n)) {
	case 0:
		pull_begin(p);
		step(p);
		break;
	case -EAGAIN:
		pull_free(p); /* they begin anew, each for itself, when there is memory */
		break;
	default:
		fail(p, -ECANCELED);
		break;
	}
}

static void run_answer(struct pool_job *job)
{
	struct pull *p = container_of(job, struct pull, job);
	int r = p->status == 0 ? pull_check_shape(p) : p->status;

	if (pulls_closing(p->worker)) {
		fail(p, -ECANCELED);
		return;
	}
	if (p->woken) {
		go_on(p);
		return;
	}
	if (p->rechecking) {
		split(p);
		return;
	}
	if (r < 0) {
		missed(p, r);
		return;
	}
	if (p->call.reply.flags & FRAME_MOVED && p->copy)
		view_stale(p->worker->view);
	view_note_bytes(p->peer, p->asked_length);
	if (pull_land(p)) {
		p->rechecking = true;
		send(p, p->peer, FRAME_RECHECK, 0, DEADLINE_PROMPT_NS);
	} else {
		split(p); /* those that were not asked for, if there are any */
	}
}

/* ---- the beginning --------------------------------------------------------------------------- */

static uint64_t bytes_of(struct flight **flights, uint32_t n)
{
	return flights[n - 1]->start + flights[n - 1]->length - flights[0]->start;
}

static struct pull *pull_new(struct flight **flights, uint32_t n, const struct chunk_id *id)
{
	struct pull *p = calloc(1, sizeof(*p) + n * sizeof(p->flights[0]));
	const struct flight *first = flights[0];

	if (!p)
		return NULL;
	p->worker = first->worker;
	p->source = first->source;
	p->id = *id;
	p->offset = (uint32_t)(first->start & (CHUNK_BYTES - 1));
	p->length = (uint32_t)align_up(bytes_of(flights, n), BLOCK_BYTES);
	for (p->asked = n; bytes_of(flights, p->asked) > UNIT_BYTES;)
		p->asked--;
	p->asked_length = (uint32_t)align_up(bytes_of(flights, p->asked), BLOCK_BYTES);
	p->generation = generation_of(p->source);
	p->class = UFS_PREFETCH; /* its flights say */
	p->backoff = (struct backoff){
		.min_ns = 100 * CLOCK_MS, .max_ns = CLOCK_SECOND, .spread = BACKOFF_HALF
	};
	p->job.run = run_answer;
	p->call.reply_fd = -1;
	list_init(&p->link);
	p->n = n;
	memcpy(p->flights, flights, n * sizeof(*flights));
	return p;
}

/* They have a pull from now on, which is a copy's when none of them must end here. */
static void enter(struct pull *p, bool copy)
{
	struct worker *w = p->worker;

	pthread_mutex_lock(&w->pulls.lock);
	list_push_back(&w->pulls.all, &p->link);
	pthread_mutex_unlock(&w->pulls.lock);
	pthread_mutex_lock(&w->flights.lock);
	for (uint32_t i = 0; i < p->n; i++)
		copy &= !p->flights[i]->ends;
	p->copy = copy;
	for (uint32_t i = 0; i < p->n; i++) {
		p->flights[i]->ends = !copy;
		p->flights[i]->pull = p;
	}
	pthread_mutex_unlock(&w->flights.lock);
}

static void start_without(struct flight **flights, uint32_t n, bool copy)
{
	if (!copy)
		range_start(flights, n);
	for (uint32_t i = 0; copy && i < n; i++)
		flight_failed(flights[i], -ENOMEM, NULL);
}

void pull_start(struct flight **flights, uint32_t n)
{
	struct worker *w = flights[0]->worker;
	struct chunk_id id = { .volume = flights[0]->source->volume,
		.lineage = flights[0]->source->lineage,
		.chunk = flights[0]->start >> CHUNK_BITS };
	struct holder holders[DUTY_HOLDERS_MAX];
	struct duty duty;
	struct pull *p;
	bool copy;

	worker_duty(w, &id.volume, id.chunk, 0, &duty);
	copy = duty.kind != DUTY_OWNER;
	if (!copy && worker_holders(w, &id.volume, id.chunk, holders) == 0) {
		start_without(flights, n, false);
		return;
	}
	if (copy && n > 1 && bytes_of(flights, n) > UNIT_BYTES) { /* an answer has no more */
		for (uint32_t i = 0; i < n; i++)
			pull_start(&flights[i], 1);
		return;
	}
	if (!count_up(w)) {
		start_without(flights, n, copy);
		return;
	}
	p = pull_new(flights, n, &id);
	if (!p) {
		start_without(flights, n, copy);
		count_down(w);
		return;
	}
	if (copy)
		worker_route(w, &id.volume, id.chunk, &p->route, &p->owner);
	enter(p, copy);
	step(p);
}

/* ---- open and close -------------------------------------------------------------------------- */

int pulls_init(struct worker *w)
{
	pthread_mutex_init(&w->pulls.lock, NULL);
	pthread_cond_init(&w->pulls.idle, NULL);
	list_init(&w->pulls.all);
	pull_clock_init(w);
	return barren_init(&w->pulls.barren);
}

static void cancel_all(struct worker *w)
{
	pthread_mutex_lock(&w->flights.lock);
	pthread_mutex_lock(&w->pulls.lock);
	list_for_each (node, &w->pulls.all) {
		struct pull *p = list_entry(node, struct pull, link);

		pull_wake_locked(p);
		if (p->calling)
			rpc_cancel(p->peer->rpc, &p->call);
	}
	pthread_mutex_unlock(&w->pulls.lock);
	pthread_mutex_unlock(&w->flights.lock);
}

void pulls_leave(struct worker *w)
{
	pthread_mutex_lock(&w->flights.lock);
	pthread_mutex_lock(&w->pulls.lock);
	list_for_each (node, &w->pulls.all) {
		struct pull *p = list_entry(node, struct pull, link);

		pull_wake_locked(p);
		if (p->calling && is_left(p->peer))
			rpc_cancel(p->peer->rpc, &p->call);
	}
	pthread_mutex_unlock(&w->pulls.lock);
	pthread_mutex_unlock(&w->flights.lock);
}

void pulls_close(struct worker *w)
{
	pthread_mutex_lock(&w->pulls.lock);
	w->pulls.closing = true;
	pthread_mutex_unlock(&w->pulls.lock);
	cancel_all(w);
	pthread_mutex_lock(&w->pulls.lock);
	while (w->pulls.n > 0)
		pthread_cond_wait(&w->pulls.idle, &w->pulls.lock);
	pthread_mutex_unlock(&w->pulls.lock);
	pull_clock_stop(w);
}

void pulls_release(struct worker *w)
{
	barren_release(&w->pulls.barren);
	pthread_cond_destroy(&w->pulls.idle);
	pthread_mutex_destroy(&w->pulls.lock);
}
