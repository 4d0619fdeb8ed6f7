/* Who is served, and who is sent to whom. See herd.h. */
#include "placement/herd.h"

#include <assert.h>

#define PART_BYTES  (CHUNK_BYTES / HERD_PARTS)
#define TICK_BITS   10u /* ns of a tick */
#define NEVER       UINT32_MAX
#define START       (1u << 24)       /* the first tick: everybody has long been idle */
#define LIFE_NS     3600000000000ull /* ticks of an hour, and START, are less than 32 bits */
#define FIRST_GUESS 1000u            /* ticks for a MiB, before any was measured */
#define SMOOTHING   8u               /* one measurement counts an eighth */
#define LONGER      8u               /* ... and one that came back lengthens a hop by an eighth */
#define SHORTER     16u              /* one that is sent away shortens it by a sixteenth */
#define HOP_MOST    16u              /* transfers */
#define MARGIN      2u               /* hops, for each time that it came back */
#define LOOKS       4u               /* of those who wait for a part, each time */

static void free_place(struct herd *h, uint32_t i)
{
	if (h->workers[i] != PLACEMENT_NONE)
		h->places[h->workers[i]] = 0;
	h->workers[i] = PLACEMENT_NONE;
}

/* Forgets everybody; those who are served and those who wait stay. */
static void begin(struct herd *h, uint64_t now_ns)
{
	for (uint32_t i = 0; i < h->n; i++)
		free_place(h, i);
	h->n = 0;
	h->next = 0;
	h->began_ns = now_ns;
	for (uint32_t i = 0; i < HERD_PARTS; i++) {
		h->parts[i].ready = NEVER;
		h->parts[i].look = 0;
		for (uint32_t k = 0; k < HERD_BLOCKS; k++)
			h->parts[i].low[k] = NEVER;
	}
}

void herd_init(struct herd *h, bool (*up)(void *arg, uint16_t worker), void *arg)
{
	assert(h->waiting == 0);
	begin(h, 0);
	h->serving = 0;
	h->transfer = FIRST_GUESS;
	h->hop = FIRST_GUESS;
	h->up = up;
	h->arg = arg;
	list_init(&h->lasts);
	for (uint32_t i = 0; i < HERD_PARTS; i++)
		list_init(&h->parts[i].waits);
}

static uint32_t ticks(struct herd *h, uint64_t now_ns)
{
	if (h->began_ns == 0 || now_ns > h->began_ns + LIFE_NS)
		begin(h, max(now_ns, 1ull));
	return START + (uint32_t)((max(now_ns, h->began_ns) - h->began_ns) >> TICK_BITS);
}

/* The first and the last part that a range touches. */
struct parts {
	uint32_t first;
	uint32_t last;
};

static struct parts parts_of(const struct herd_request *request)
{
	return (struct parts){ request->offset / PART_BYTES,
		(request->offset + request->length - 1) / PART_BYTES };
}

/* It covers at least half of the part: that counts as taken, since what an object has of a part seldom
 * ends with it. */
static bool covers(const struct herd_request *request, uint32_t part)
{
	uint32_t from = max(request->offset, part * PART_BYTES);
	uint32_t to = min(request->offset + request->length, (part + 1) * PART_BYTES);

	return to - from >= PART_BYTES / 2;
}

static uint32_t hop_of(const struct herd *h, const struct herd_request *request)
{
	uint64_t mib = max(h->hop, h->transfer / HERD_SERVES);

	return (uint32_t)max(mib * request->length / PART_BYTES, 1ull);
}

/* ---- takers ---------------------------------------------------------------------------------- */

/* Its place among the takers; NEVER: it has none. */
static uint32_t taker_of(const struct herd *h, uint16_t worker)
{
	return worker < PLACEMENT_MAX ? h->places[worker] - 1u : NEVER;
}

static uint32_t taker_new(struct herd *h, uint16_t worker)
{
	uint32_t i = taker_of(h, worker);

	if (i != NEVER)
		return i;
	if (h->n < HERD_TAKERS) {
		i = h->n++;
	} else {
		i = h->next;
		h->next = (h->next + 1) % HERD_TAKERS;
		free_place(h, i);
	}
	h->workers[i] = worker;
	h->places[worker] = (uint16_t)(i + 1);
	h->busy[i] = 0;
	for (uint32_t k = 0; k < HERD_PARTS; k++) {
		h->parts[k].due[i] = NEVER;
		h->parts[k].returns[i] = 0;
	}
	return i;
}

/* The worker will have what it asked for at `due`. */
static void note(struct herd *h, const struct herd_request *request, uint32_t due)
{
	struct parts parts = parts_of(request);

	if (request->worker >= PLACEMENT_MAX)
		return;
	for (uint32_t k = parts.first; k <= parts.last; k++) {
		struct herd_part *part = &h->parts[k];
		uint32_t i;

		if (!covers(request, k))
			continue;
		i = taker_new(h, request->worker);
		part->due[i] = due;
		part->low[i / HERD_BLOCK] = min(part->low[i / HERD_BLOCK], due);
		part->ready = min(part->ready, due);
		part->look = min(part->look, due);
	}
}

/* Who asks for what it should have by now, or soon, found nothing where it was sent. */
static void note_return(struct herd *h, const struct herd_request *request)
{
	struct parts parts = parts_of(request);
	uint32_t i = taker_of(h, request->worker);
	bool returned = false;

	if (i == NEVER)
		return;
	for (uint32_t k = parts.first; k <= parts.last; k++) {
		struct herd_part *part = &h->parts[k];

		if (!covers(request, k) || part->due[i] == NEVER)
			continue;
		part->due[i] = NEVER;
		if (part->returns[i] < UINT8_MAX)
			part->returns[i]++;
		returned = true;
	}
	if (returned)
		h->hop = (uint32_t)min(
			(uint64_t)h->hop + h->hop / LONGER + 1, (uint64_t)h->transfer * HOP_MOST);
}

static uint32_t returns_of(const struct herd *h, const struct herd_request *request)
{
	uint32_t i = taker_of(h, request->worker);

	return i == NEVER ? 0 : h->parts[parts_of(request).first].returns[i];
}

/* What is looked for among the takers, and found. */
struct search {
	struct parts parts;
	uint32_t self;  /* who asks */
	uint32_t found; /* NEVER: none */
	uint32_t at;    /* since when it can send all of it */
	uint32_t seen;  /* blocks: a bit each */
};

static_assert(HERD_BLOCKS <= 32, "search.seen");

/* The block of those not yet seen that may have somebody soonest; HERD_BLOCKS: none better than who was
 * found. */
static uint32_t best_block(const struct herd *h, const struct search *s)
{
	const struct herd_part *part = &h->parts[s->parts.first];
	uint32_t best = HERD_BLOCKS;
	uint32_t low = s->at;

	for (uint32_t i = 0; i * HERD_BLOCK < h->n; i++) {
		if (part->low[i] >= low || (s->seen >> i & 1))
			continue;
		low = part->low[i];
		best = i;
	}
	return best;
}

static void search_block(struct herd *h, struct search *s, uint32_t block)
{
	struct herd_part *part = &h->parts[s->parts.first];
	uint32_t end = min((block + 1) * HERD_BLOCK, h->n);
	uint32_t low = NEVER;

	for (uint32_t i = block * HERD_BLOCK; i < end; i++) {
		uint32_t able = max(part->due[i], h->busy[i]);

		low = min(low, able);
		for (uint32_t k = s->parts.first + 1; k <= s->parts.last; k++)
			able = max(able, h->parts[k].due[i]);
		if (able < s->at && i != s->self) {
			s->at = able;
			s->found = i;
		}
	}
	part->low[block] = low;
	s->seen |= 1u << block;
}

/* The taker that can send all of it first, and since when. */
static struct search search(struct herd *h, const struct herd_request *request)
{
	struct search s = { .parts = parts_of(request),
		.self = taker_of(h, request->worker),
		.found = NEVER,
		.at = NEVER };
	struct herd_part *part = &h->parts[s.parts.first];
	uint32_t ready = NEVER;

	for (;;) {
		uint32_t block = best_block(h, &s);

		if (block == HERD_BLOCKS)
			break;
		search_block(h, &s, block);
	}
	for (uint32_t i = 0; i * HERD_BLOCK < h->n; i++)
		ready = min(ready, part->low[i]);
	part->ready = ready;
	return s;
}

/* The taker that it is sent to; NEVER: none is able yet. */
static uint32_t pick(struct herd *h, const struct herd_request *request, uint32_t now)
{
	uint32_t hop = hop_of(h, request);
	uint64_t margin = (uint64_t)returns_of(h, request) * MARGIN * hop;

	while (h->parts[parts_of(request).first].ready <= now) {
		struct search s = search(h, request);

		if (s.found == NEVER || s.at + margin > now)
			break;
		if (!h->up || h->up(h->arg, h->workers[s.found]))
			return s.found;
		herd_forget(h, h->workers[s.found]);
	}
	return NEVER;
}

static bool send_away(
	struct herd *h, const struct herd_request *request, uint32_t now, uint16_t *ret_worker)
{
	uint32_t i = request->last ? NEVER : pick(h, request, now);
	uint32_t hop = hop_of(h, request);
	uint32_t end;

	if (i == NEVER)
		return false;
	end = max(h->busy[i] + hop / 2, now) + hop;
	h->busy[i] = end - hop / 2;
	h->hop = max(h->hop - h->hop / SHORTER, 1u);
	*ret_worker = h->workers[i];
	note(h, request, end);
	return true;
}

/* ---- asking ---------------------------------------------------------------------------------- */

enum herd_answer herd_ask(
	struct herd *h, const struct herd_request *request, uint64_t now_ns, uint16_t *ret_worker)
{
	uint32_t now = ticks(h, now_ns);

	h->used_ns = now_ns;
	note_return(h, request);
	if (h->serving < HERD_SERVES) {
		h->serving++;
		return HERD_SERVE;
	}
	return send_away(h, request, now, ret_worker) ? HERD_ASK : HERD_WAIT;
}

void herd_park(struct herd *h, struct herd_wait *wait)
{
	list_push_back(
		wait->request.last ? &h->lasts : &h->parts[parts_of(&wait->request).first].waits,
		&wait->link);
	h->waiting++;
}

static struct herd_wait *unpark(struct herd *h, struct list *from)
{
	h->waiting--;
	return list_entry(list_pop_front(from), struct herd_wait, link);
}

/* The owner has time for one: those that no other worker may serve first, then a part after the other. */
static struct herd_wait *next_served(struct herd *h)
{
	if (!list_empty(&h->lasts))
		return unpark(h, &h->lasts);
	for (uint32_t i = 0; i < HERD_PARTS; i++) {
		struct herd_part *part = &h->parts[h->turn++ % HERD_PARTS];

		if (!list_empty(&part->waits))
			return unpark(h, &part->waits);
	}
	return NULL;
}

/* The first of a part that can be sent away. Those that cannot go behind the others, so that one that
 * came back delays no other one. */
static struct herd_wait *next_sent(
	struct herd *h, struct herd_part *part, uint32_t now, uint16_t *ret_worker)
{
	if (part->look > now)
		return NULL;
	for (uint32_t i = 0; i < LOOKS; i++) {
		struct herd_wait *wait;

		if (list_empty(&part->waits) || part->ready > now)
			return NULL;
		wait = unpark(h, &part->waits);
		if (send_away(h, &wait->request, now, ret_worker))
			return wait;
		herd_park(h, wait);
	}
	part->look = now + max(h->hop, h->transfer / HERD_SERVES) / 2;
	return NULL;
}

struct herd_wait *herd_next(
	struct herd *h, uint64_t now_ns, enum herd_answer *ret_answer, uint16_t *ret_worker)
{
	uint32_t now;

	if (h->waiting == 0)
		return NULL;
	now = ticks(h, now_ns);
	if (h->serving < HERD_SERVES) {
		h->serving++;
		*ret_answer = HERD_SERVE;
		return next_served(h);
	}
	h->turn++;
	for (uint32_t i = 0; i < HERD_PARTS; i++) {
		struct herd_wait *wait =
			next_sent(h, &h->parts[(h->turn + i) % HERD_PARTS], now, ret_worker);

		if (wait) {
			*ret_answer = HERD_ASK;
			return wait;
		}
	}
	return NULL;
}

void herd_served(
	struct herd *h, const struct herd_request *request, uint64_t took_ns, uint64_t now_ns)
{
	assert(h->serving > 0);
	h->serving--;
	/* A range of a few KiB says nothing about a MiB. */
	if (request->length >= PART_BYTES / 4) {
		uint64_t mib = (took_ns >> TICK_BITS) * PART_BYTES / request->length;

		h->transfer =
			(uint32_t)max(min(h->transfer - h->transfer / SMOOTHING + mib / SMOOTHING,
					      (uint64_t)NEVER / HOP_MOST / 64),
				1ull);
	}
	note(h, request, ticks(h, now_ns));
}

void herd_failed(struct herd *h)
{
	assert(h->serving > 0);
	h->serving--;
}

void herd_forget(struct herd *h, uint16_t worker)
{
	uint32_t i = taker_of(h, worker);

	if (i == NEVER)
		return;
	free_place(h, i);
	for (uint32_t k = 0; k < HERD_PARTS; k++)
		h->parts[k].due[i] = NEVER;
}
