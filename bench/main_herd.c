/*
 * bench-herd: many nodes that keep copies read one volume, all from the same moment, in simulated time.
 *
 *	bench-herd [--nodes N] [--chunks N] [--window N] [--spread yes|no] [--herd yes|no]
 *
 * Each node has a worker and a reader; the volume's chunks lie at their owners (placement_repair()) and nowhere
 * else. A reader asks for its units (1 MiB) in order, --window of them at a time. The owner answers as
 * placement/herd.h decides; who is sent to X asks there, and comes back when X has it not. A unit takes a
 * node's sending and a node's receiving side UNIT_NS each, one unit after the other; a message takes
 * MESSAGE_NS. Prints one JSON line: when the last reader has all, and the mean, in times that one network
 * card needs for the volume.
 */
#include "base/cleanup.h"
#include "base/hash.h"
#include "base/list.h"
#include "base/option.h"
#include "placement/duty.h"
#include "placement/herd.h"
#include "placement/placement.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define UNIT_NS     100000ull /* of 1 MiB: 10 GB/s */
#define MESSAGE_NS  20000ull
#define WINDOW_ROWS 4u /* chunks of a reader's window, in which ranks begin at different places */
#define AGAIN_MOST \
	64u /* waiters that are told to wait on, each time that all are asked about again */

struct options {
	uint64_t nodes;
	uint64_t chunks;
	uint64_t window;
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
	RETRY,    /* of a chunk's waiters */
};

struct event {
	uint64_t at;
	uint32_t kind;
	uint32_t node; /* the reader */
	uint32_t unit;
	uint32_t other;
	uint64_t began;
	uint32_t hops;
};

/* A request that waits at the owner. */
struct waiter {
	uint32_t node;
	uint32_t unit;
	uint32_t hops; /* how often it was sent away */
};

struct chunk {
	uint32_t owner;
	struct herd herd;
	struct waiter *waiters; /* a queue: at most one of each node and unit */
	uint32_t n_waiters;
	uint32_t cap_waiters;
	bool retry; /* one is due */
};

struct node {
	uint64_t sends_until;
	uint64_t takes_until;
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

static void arrived(struct world *w, uint32_t node, uint32_t unit, uint64_t now)
{
	struct node *n = &w->nodes[node];

	*unit_at(w, node, unit) = 1;
	if (++n->got == w->units) {
		n->done_ns = now;
		w->unfinished--;
	}
	ask_more(w, node, now);
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
					     .unit = unit });
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

static void wait_at(struct world *w, struct chunk *c, const struct event *e, uint64_t wait_ns)
{
	if (c->n_waiters == c->cap_waiters) {
		c->cap_waiters = 2 * c->cap_waiters + 16;
		c->waiters = reallocarray(c->waiters, c->cap_waiters, sizeof(*c->waiters));
		ensure(c->waiters);
	}
	c->waiters[c->n_waiters++] = (struct waiter){ e->node, e->unit, e->hops };
	w->waited++;
	if (!c->retry)
		event_add(
			w, (struct event){ .at = e->at + wait_ns, .kind = RETRY, .unit = e->unit });
	c->retry = true;
}

static void at_owner(struct world *w, const struct event *e)
{
	struct chunk *c = &w->chunks[e->unit / HERD_PARTS];
	struct herd_request r = request_of(e);
	enum herd_answer answer = HERD_SERVE;
	struct event next = *e;
	uint64_t wait_ns = 0;
	uint16_t x = 0;

	if (w->options.herd)
		answer = herd_ask(&c->herd, &r, e->at, &x, &wait_ns);
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
		wait_at(w, c, e, wait_ns);
		break;
	}
}

static void at_other(struct world *w, const struct event *e)
{
	struct event next = *e;

	if (*unit_at(w, e->other, e->unit)) {
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

/* Those who wait are asked about once more, first come first, until many have to wait on. */
static void again(struct world *w, struct chunk *c, uint64_t now)
{
	uint32_t n = c->n_waiters;
	uint32_t i = 0;

	for (; i < n && c->n_waiters < n + AGAIN_MOST; i++) {
		const struct event e = { .at = now,
			.kind = AT_OWNER,
			.node = c->waiters[i].node,
			.unit = c->waiters[i].unit,
			.hops = c->waiters[i].hops };

		at_owner(w, &e);
	}
	/* Those that wait on went to the end. */
	memmove(c->waiters, c->waiters + i, (c->n_waiters - i) * sizeof(*c->waiters));
	c->n_waiters -= i;
}

static void happen(struct world *w, const struct event *e)
{
	struct chunk *c = &w->chunks[e->unit / HERD_PARTS];
	struct herd_request r = request_of(e);

	switch ((enum event_kind)e->kind) {
	case AT_OWNER:
		at_owner(w, e);
		break;
	case AT_OTHER:
		at_other(w, e);
		break;
	case LANDS:
		lands(w, e);
		break;
	case SENT:
		herd_served(&c->herd, &r, e->at - e->began, e->at);
		again(w, c, e->at);
		break;
	case ARRIVED:
		arrived(w, e->node, e->unit, e->at);
		break;
	case RETRY:
		c->retry = false;
		again(w, c, e->at);
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
		herd_init(&w->chunks[i].herd);
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
	printf("{\"last\": %.3f, \"mean\": %.3f, \"from_owners\": %" PRIu64
	       ", \"from_others\": %" PRIu64 ", \"in_vain\": %" PRIu64 ", \"waited\": %" PRIu64
	       "}\n",
		(double)last / card, sum / (double)w->options.nodes / card, w->from_owners,
		w->from_others, w->in_vain, w->waited);
}

int main(int argc, char **argv)
{
	static struct world w;

	w.options = (struct options){
		.nodes = 1000, .chunks = 256, .window = 32, .spread = true, .herd = true
	};
	option_parse_or_exit(&option_set, argc, argv, &w.options);
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
	for (uint32_t i = 0; i < w.options.chunks; i++)
		free(w.chunks[i].waiters);
	free(w.nodes);
	free(w.chunks);
	free(w.heap);
	return w.unfinished ? 1 : 0;
}
