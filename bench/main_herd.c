/*
 * bench-herd: many nodes that keep copies read one volume, all from the same moment, in simulated time.
 *
 *	bench-herd [--nodes N] [--chunks N] [--window N] [--ask-ns N] [--no-spread] [--no-herd]
 *	bench-herd --threads N
 *
 * Each node has a worker and a reader; the volume's chunks lie at their owners (placement_repair()) and nowhere
 * else. A reader asks for its units (1 MiB) in order, --window of them at a time. The owner answers as
 * placement/herd.h decides; who is sent to X asks there, and comes back when X has it not, or sends
 * HERD_GIVES others. A unit takes a node's sending and a node's receiving side UNIT_NS each, one unit after
 * the other; a message takes MESSAGE_NS; a worker takes --ask-ns for each request, one after the other.
 * Prints one JSON line: when the last reader has all, and the mean, in times that one network card needs
 * for the volume; the mean time from a reader's request to its unit, in times of a unit; how often
 * things happened.
 *
 * With --threads the cost of a question is measured instead: of a herd of as many workers as are remembered,
 * by one thread and by N that share a lock. Prints one JSON line: ns.
 */
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/hash.h"
#include "base/list.h"
#include "base/option.h"
#include "placement/duty.h"
#include "placement/herd.h"
#include "placement/placement.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define UNIT_NS     100000ull /* of 1 MiB: 10 GB/s */
#define MESSAGE_NS  20000ull
#define WINDOW_ROWS 4u /* chunks of a reader's window, in which ranks begin at different places */

struct options {
	uint64_t nodes;
	uint64_t chunks;
	uint64_t window;
	uint64_t ask_ns;
	uint64_t threads;
	bool spread;
	bool herd;
};

static const struct option_spec specs[] = {
	OPTION_ROW(struct options, nodes, "nodes", OPTION_UINT, .min = 2, .max = 4000,
		.help = "workers, each with a reader; 1000"),
	OPTION_ROW(struct options, chunks, "chunks", OPTION_UINT, .min = 1, .max = 4096,
		.help = "of the volume, 16 MiB each; 256"),
	OPTION_ROW(struct options, window, "window", OPTION_UINT, .min = 1, .max = 256,
		.help = "units that a reader asks for at a time; 32"),
	OPTION_ROW(struct options, ask_ns, "ask-ns", OPTION_UINT, .min = 0, .max = 1000000,
		.help = "that a worker takes for each request; 0"),
	OPTION_ROW(struct options, threads, "threads", OPTION_UINT, .min = 0, .max = 64,
		.help = "that ask, to measure what it costs; 0: simulate"),
	OPTION_BOOL_ROW(struct options, spread, "spread",
		"ranks begin at different chunks of their window; yes"),
	OPTION_BOOL_ROW(struct options, herd, "herd", "owners send some to others; yes"),
};

static const struct option_set option_set = { .program = "bench-herd",
	.about = "Many that read one volume at once, simulated.",
	.specs = specs,
	.n = ARRAY_SIZE(specs) };

enum event_kind {
	AT_OWNER, /* the request arrives */
	AT_OTHER, /* at whom the owner named */
	LANDS,    /* somebody sent it all */
	SENT,     /* the owner did */
	ARRIVED,  /* the reader has it */
	LOOK,     /* at a chunk's waiters */
};

struct event {
	uint64_t at;
	uint32_t kind;
	uint32_t node; /* the reader */
	uint32_t unit;
	uint32_t other;
	uint64_t asked; /* by the reader */
	uint64_t began; /* to be served */
	uint32_t hops;
	bool heard; /* it had its turn at whom it arrived at */
};

/* A request that waits at the owner. */
struct waiter {
	struct herd_wait wait;
	struct event event;
};

struct chunk {
	uint32_t owner;
	struct herd herd;
	bool look; /* one is due */
};

struct node {
	uint64_t sends_until;
	uint64_t takes_until;
	uint64_t hears_until;
	uint32_t next; /* of its order */
	uint32_t got;
	uint64_t done_ns;
};

struct world {
	struct options options;
	struct node *nodes;
	struct chunk *chunks;
	uint32_t units;
	uint8_t *has; /* a byte for each unit of each node */
	struct event *heap;
	uint32_t n_events;
	uint32_t cap_events;
	uint32_t unfinished;
	uint64_t from_owners, from_others, in_vain, waited;
	uint64_t latency_ns; /* of all units */
};

/* ---- events ---------------------------------------------------------------------------------- */

static void event_add(struct world *w, struct event event)
{
	uint32_t i = w->n_events++;

	if (i == w->cap_events) {
		w->cap_events = 2 * w->cap_events + 1024;
		w->heap = reallocarray(w->heap, w->cap_events, sizeof(*w->heap));
		ensure(w->heap);
	}
	for (; i && w->heap[(i - 1) / 2].at > event.at; i = (i - 1) / 2)
		w->heap[i] = w->heap[(i - 1) / 2];
	w->heap[i] = event;
}

static struct event event_take(struct world *w)
{
	struct event first = w->heap[0];
	struct event last = w->heap[--w->n_events];
	uint32_t i = 0;

	for (;;) {
		uint32_t child = 2 * i + 1;

		if (child >= w->n_events)
			break;
		if (child + 1 < w->n_events && w->heap[child + 1].at < w->heap[child].at)
			child++;
		if (w->heap[child].at >= last.at)
			break;
		w->heap[i] = w->heap[child];
		i = child;
	}
	w->heap[i] = last;
	return first;
}

/* ---- what nodes do --------------------------------------------------------------------------- */

static uint8_t *unit_at(struct world *w, uint32_t node, uint32_t unit)
{
	return w->has + (uint64_t)node * w->units + unit;
}

/* The i-th unit that a reader asks for: in order, but for where it begins in each stretch of its window. */
static uint32_t order_of(const struct world *w, uint32_t node, uint32_t i)
{
	uint32_t stretch = WINDOW_ROWS * HERD_PARTS;
	uint32_t begin = i / stretch * stretch;
	uint32_t length = min(stretch, w->units - begin);
	uint32_t shift = w->options.spread ? node % WINDOW_ROWS * HERD_PARTS : 0;

	return begin + (i - begin + shift) % length;
}

/* When that node has sent it: a unit after the other. */
static uint64_t send_unit(struct world *w, uint32_t from, uint64_t now)
{
	struct node *n = &w->nodes[from];

	n->sends_until = max(n->sends_until, now) + UNIT_NS;
	return n->sends_until;
}

/* It was sent; the reader takes what was sent to it in that order, a unit after the other. */
static void lands(struct world *w, const struct event *e)
{
	struct node *n = &w->nodes[e->node];
	struct event next = *e;

	n->takes_until = max(n->takes_until + UNIT_NS, e->at);
	next.kind = ARRIVED;
	next.at = n->takes_until + MESSAGE_NS;
	event_add(w, next);
}

static void ask_more(struct world *w, uint32_t node, uint64_t now);

static void arrived(struct world *w, const struct event *e)
{
	struct node *n = &w->nodes[e->node];

	*unit_at(w, e->node, e->unit) = 1;
	w->latency_ns += e->at - e->asked;
	if (++n->got == w->units) {
		n->done_ns = e->at;
		w->unfinished--;
	}
	ask_more(w, e->node, e->at);
}

static void ask_more(struct world *w, uint32_t node, uint64_t now)
{
	struct node *n = &w->nodes[node];

	while (n->next < w->units && n->next - n->got < w->options.window) {
		uint32_t unit = order_of(w, node, n->next++);

		if (w->chunks[unit / HERD_PARTS].owner == node)
			n->got++; /* it has it from the start */
		else
			event_add(w, (struct event){ .at = now + MESSAGE_NS,
					     .kind = AT_OWNER,
					     .node = node,
					     .unit = unit,
					     .asked = now });
	}
	if (n->got == w->units && !n->done_ns) {
		n->done_ns = max(now, 1ull);
		w->unfinished--;
	}
}

static struct herd_request request_of(const struct event *e)
{
	return (struct herd_request){ .worker = (uint16_t)e->node,
		.offset = e->unit % HERD_PARTS * UNIT_BYTES,
		.length = UNIT_BYTES,
		.last = e->hops >= ROUTE_HOPS };
}

static void look_later(struct world *w, struct chunk *c, const struct event *e)
{
	if (!c->look)
		event_add(w, (struct event){
				     .at = e->at + HERD_LOOK_NS, .kind = LOOK, .unit = e->unit });
	c->look = true;
}

static void wait_at(struct world *w, struct chunk *c, const struct event *e)
{
	struct waiter *waiter = calloc(1, sizeof(*waiter));

	ensure(waiter);
	waiter->event = *e;
	waiter->wait.request = request_of(e);
	herd_park(&c->herd, &waiter->wait);
	w->waited++;
	look_later(w, c, e);
}

static void answered(struct world *w, const struct event *e, enum herd_answer answer, uint16_t x)
{
	struct chunk *c = &w->chunks[e->unit / HERD_PARTS];
	struct event next = *e;

	next.heard = false;
	switch (answer) {
	case HERD_SERVE:
		w->from_owners++;
		next.kind = LANDS;
		next.at = send_unit(w, c->owner, e->at);
		next.began = e->at;
		event_add(w, next);
		next.kind = SENT;
		if (w->options.herd)
			event_add(w, next);
		break;
	case HERD_ASK:
		next.kind = AT_OTHER;
		next.other = x;
		next.hops++;
		next.at += 2 * MESSAGE_NS;
		event_add(w, next);
		break;
	case HERD_WAIT:
		wait_at(w, c, e);
		break;
	}
}

/* Those who wait and need not any longer. */
static void look(struct world *w, const struct event *e)
{
	struct chunk *c = &w->chunks[e->unit / HERD_PARTS];
	enum herd_answer answer;
	struct herd_wait *wait;
	uint16_t x = 0;

	while ((wait = herd_next(&c->herd, e->at, &answer, &x)) != NULL) {
		struct waiter *waiter = container_of(wait, struct waiter, wait);

		waiter->event.at = e->at;
		answered(w, &waiter->event, answer, x);
		free(waiter);
	}
	if (c->herd.waiting)
		look_later(w, c, e);
}

static void at_owner(struct world *w, const struct event *e)
{
	struct chunk *c = &w->chunks[e->unit / HERD_PARTS];
	struct herd_request r = request_of(e);
	enum herd_answer answer = HERD_SERVE;
	uint16_t x = 0;

	if (w->options.herd)
		answer = herd_ask(&c->herd, &r, e->at, &x);
	answered(w, e, answer, x);
	if (w->options.herd)
		look(w, e);
}

/* Answers that it has begun and not sent. */
static uint64_t under_way(const struct node *n, uint64_t now)
{
	return n->sends_until > now ? (n->sends_until - now + UNIT_NS - 1) / UNIT_NS : 0;
}

static void at_other(struct world *w, const struct event *e)
{
	struct event next = *e;

	next.heard = false;
	if (*unit_at(w, e->other, e->unit) && under_way(&w->nodes[e->other], e->at) < HERD_GIVES) {
		w->from_others++;
		next.kind = LANDS;
		next.at = send_unit(w, e->other, e->at);
	} else {
		w->in_vain++;
		next.kind = AT_OWNER;
		next.at += 2 * MESSAGE_NS;
	}
	event_add(w, next);
}

/* A worker hears one request after the other. True when this one's turn has come. */
static bool heard(struct world *w, const struct event *e, uint32_t by)
{
	struct node *n = &w->nodes[by];
	struct event next = *e;

	if (e->heard || !w->options.ask_ns)
		return true;
	n->hears_until = max(n->hears_until, e->at) + w->options.ask_ns;
	next.at = n->hears_until;
	next.heard = true;
	event_add(w, next);
	return false;
}

static void happen(struct world *w, const struct event *e)
{
	struct chunk *c = &w->chunks[e->unit / HERD_PARTS];
	struct herd_request r = request_of(e);

	switch ((enum event_kind)e->kind) {
	case AT_OWNER:
		if (heard(w, e, c->owner))
			at_owner(w, e);
		break;
	case AT_OTHER:
		if (heard(w, e, e->other))
			at_other(w, e);
		break;
	case LANDS:
		lands(w, e);
		break;
	case SENT:
		herd_served(&c->herd, &r, e->at - e->began, e->at);
		look(w, e);
		break;
	case ARRIVED:
		arrived(w, e);
		break;
	case LOOK:
		c->look = false;
		look(w, e);
		break;
	}
}

/* ---- the whole ------------------------------------------------------------------------------- */

static void open_world(struct world *w)
{
	w->nodes = calloc(w->options.nodes, sizeof(*w->nodes));
	w->chunks = calloc(w->options.chunks, sizeof(*w->chunks));
	w->has = calloc(w->options.nodes, w->units);
	ensure(w->nodes && w->chunks && w->has);
}

/* Chunks to owners as in a cluster of that many equal workers. */
static void place(struct world *w)
{
	_cleanup_free_ struct placement_table *table = placement_table_new();
	_cleanup_free_ struct placement_worker *workers =
		calloc(w->options.nodes, sizeof(*workers));
	const struct volume_id volume = { { 1, 2, 3 } };
	uint64_t hash = placement_volume_hash(&volume);

	ensure(table && workers);
	for (uint32_t i = 0; i < w->options.nodes; i++)
		workers[i] = (struct placement_worker){ .number = (uint16_t)i,
			.domain = (uint16_t)(i / 25),
			.weight = 1000,
			.id = hash_xxh3(&i, sizeof(i), 7) };
	ensure(placement_repair(table, workers, (uint32_t)w->options.nodes, 0) > 0);
	for (uint32_t i = 0; i < w->options.chunks; i++) {
		w->chunks[i].owner = table->slots[placement_slot_of(hash, i)].owner;
		herd_init(&w->chunks[i].herd, NULL, NULL);
		memset(unit_at(w, w->chunks[i].owner, i * HERD_PARTS), 1, HERD_PARTS);
	}
}

static void report(const struct world *w)
{
	double card = (double)w->units * (double)UNIT_NS;
	uint64_t last = 0;
	double sum = 0;

	for (uint32_t i = 0; i < w->options.nodes; i++) {
		last = max(last, w->nodes[i].done_ns);
		sum += (double)w->nodes[i].done_ns;
	}
	printf("{\"last\": %.3f, \"mean\": %.3f, \"latency\": %.1f, \"from_owners\": %" PRIu64
	       ", \"from_others\": %" PRIu64 ", \"in_vain\": %" PRIu64 ", \"waited\": %" PRIu64
	       "}\n",
		(double)last / card, sum / (double)w->options.nodes / card,
		(double)w->latency_ns / (double)(w->from_owners + w->from_others) / (double)UNIT_NS,
		w->from_owners, w->from_others, w->in_vain, w->waited);
}

/* ---- what a question costs ------------------------------------------------------------------- */

#define QUESTIONS 1000000u /* of each thread */

struct quiz {
	pthread_mutex_t lock;
	struct herd herd;
	uint64_t now_ns; /* simulated: a question each TURN_NS */
};

#define TURN_NS (UNIT_NS / 8)

/* The owner serves somebody all the time, so that it sends away whom it can. */
static void fill_up(struct quiz *quiz)
{
	const struct herd_request r = {
		.worker = PLACEMENT_NONE, .length = UNIT_BYTES, .last = true
	};
	uint16_t x;

	while (quiz->herd.serving < HERD_SERVES)
		ensure(herd_ask(&quiz->herd, &r, quiz->now_ns, &x) == HERD_SERVE);
}

/* A worker after the other asks for a part after the other, as many as the herd remembers; who would wait
 * is served. */
static void *run_quiz(void *arg)
{
	struct quiz *quiz = arg;

	for (uint32_t i = 0; i < QUESTIONS; i++) {
		struct herd_request r = { .length = UNIT_BYTES };
		uint16_t x;

		pthread_mutex_lock(&quiz->lock);
		quiz->now_ns += TURN_NS;
		r.worker = (uint16_t)(quiz->now_ns / TURN_NS % HERD_TAKERS);
		r.offset =
			(uint32_t)(quiz->now_ns / TURN_NS / HERD_TAKERS % HERD_PARTS) * UNIT_BYTES;
		if (herd_ask(&quiz->herd, &r, quiz->now_ns, &x) == HERD_WAIT) {
			herd_served(&quiz->herd, &r, UNIT_NS, quiz->now_ns);
			fill_up(quiz);
		}
		pthread_mutex_unlock(&quiz->lock);
	}
	return NULL;
}

/* ns of a question. */
static double quiz_run(uint32_t threads)
{
	static struct quiz quiz;
	pthread_t ids[64];
	uint64_t began = clock_mono_ns();

	pthread_mutex_init(&quiz.lock, NULL);
	herd_init(&quiz.herd, NULL, NULL);
	fill_up(&quiz);
	for (uint32_t i = 0; i < threads; i++)
		ensure(pthread_create(&ids[i], NULL, run_quiz, &quiz) == 0);
	for (uint32_t i = 0; i < threads; i++)
		pthread_join(ids[i], NULL);
	pthread_mutex_destroy(&quiz.lock);
	return (double)(clock_mono_ns() - began) / QUESTIONS / threads;
}

static int run_cost(uint32_t threads)
{
	double one = quiz_run(1);

	printf("{\"one_ns\": %.0f, \"threads\": %u, \"ns\": %.0f}\n", one, threads,
		quiz_run(threads));
	return 0;
}

int main(int argc, char **argv)
{
	static struct world w;

	w.options = (struct options){
		.nodes = 1000, .chunks = 256, .window = 32, .spread = true, .herd = true
	};
	option_parse_or_exit(&option_set, argc, argv, &w.options);
	if (w.options.threads)
		return run_cost((uint32_t)w.options.threads);
	w.units = (uint32_t)w.options.chunks * HERD_PARTS;
	open_world(&w);
	place(&w);
	w.unfinished = (uint32_t)w.options.nodes;
	for (uint32_t i = 0; i < w.options.nodes; i++)
		ask_more(&w, i, 0);
	while (w.unfinished && w.n_events) {
		struct event e = event_take(&w);

		happen(&w, &e);
	}
	report(&w);
	free(w.has);
	free(w.nodes);
	free(w.chunks);
	free(w.heap);
	return w.unfinished ? 1 : 0;
}
