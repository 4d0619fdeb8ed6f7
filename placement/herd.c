/* Who is served, and who is sent to whom. See herd.h. */
#include "placement/herd.h"

#include <assert.h>

#define PART_BYTES  (CHUNK_BYTES / HERD_PARTS)
#define FIRST_GUESS 1000000ull /* ns for a MiB, before any was measured */
#define SMOOTHING   8u         /* one measurement counts an eighth */

static_assert(HERD_PARTS <= 16, "herd_taker.parts");

void herd_init(struct herd *herd)
{
	*herd = (struct herd){ .transfer_ns = FIRST_GUESS };
}

/* The parts that a range touches; with `mostly`, those that it covers at least half of: they count
 * as taken, since what an object has of a part seldom ends with it. */
static uint16_t parts_of(const struct herd_request *request, bool mostly)
{
	uint64_t end = (uint64_t)request->offset + request->length;
	uint32_t parts = 0;

	for (uint32_t i = request->offset / PART_BYTES; i < HERD_PARTS; i++) {
		uint64_t from = max((uint64_t)request->offset, (uint64_t)i * PART_BYTES);
		uint64_t to = min(end, (uint64_t)(i + 1) * PART_BYTES);

		if (from >= to)
			break;
		if (!mostly || to - from >= PART_BYTES / 2)
			parts |= 1u << i;
	}
	return (uint16_t)parts;
}

static uint64_t transfer_of(const struct herd *herd, const struct herd_request *request)
{
	return max(herd->transfer_ns * request->length / PART_BYTES, 1ull);
}

static struct herd_taker *taker_find(struct herd *herd, uint16_t worker)
{
	for (uint32_t i = 0; i < herd->n; i++) {
		if (herd->takers[i].worker == worker)
			return &herd->takers[i];
	}
	return NULL;
}

/* The worker will have what it asked for at `due_ns`. */
static void taker_note(struct herd *herd, const struct herd_request *request, uint64_t due_ns)
{
	uint16_t parts = parts_of(request, true);
	struct herd_taker *t = taker_find(herd, request->worker);

	if (parts == 0 || request->worker == PLACEMENT_NOBODY)
		return;
	if (!t) {
		if (herd->n < HERD_TAKERS) {
			t = &herd->takers[herd->n++];
		} else {
			t = &herd->takers[herd->next];
			herd->next = (herd->next + 1) % HERD_TAKERS;
		}
		*t = (struct herd_taker){ .worker = request->worker };
	}
	for (uint32_t i = 0; i < HERD_PARTS; i++) {
		bool known = t->parts >> i & 1;

		if (parts >> i & 1)
			t->due_ns[i] = known ? min(t->due_ns[i], due_ns) : due_ns;
	}
	t->parts |= parts;
}

static bool taker_has(const struct herd_taker *t, uint16_t parts, uint64_t now_ns)
{
	if ((t->parts & parts) != parts)
		return false;
	for (uint32_t i = 0; i < HERD_PARTS; i++) {
		if ((parts >> i & 1) && t->due_ns[i] > now_ns)
			return false;
	}
	return true;
}

/* Of those that have the parts, the one that is free first; NULL when none has them. */
static struct herd_taker *taker_pick(
	struct herd *herd, const struct herd_request *request, uint64_t now_ns)
{
	uint16_t parts = parts_of(request, false);
	struct herd_taker *best = NULL;

	for (uint32_t i = 0; i < herd->n; i++) {
		struct herd_taker *t = &herd->takers[i];

		if (t->worker == request->worker || !taker_has(t, parts, now_ns))
			continue;
		if (!best || t->busy_ns < best->busy_ns ||
			(t->busy_ns == best->busy_ns && t->named < best->named))
			best = t;
	}
	return best;
}

enum herd_answer herd_ask(struct herd *herd, const struct herd_request *request, uint64_t now_ns,
	uint16_t *ret_worker, uint64_t *ret_wait_ns)
{
	uint64_t transfer = transfer_of(herd, request);
	struct herd_taker *t;

	herd->used_ns = now_ns;
	if (herd->serving < HERD_SERVES) {
		herd->serving++;
		return HERD_SERVE;
	}
	*ret_wait_ns = transfer;
	if (request->last)
		return HERD_WAIT;
	t = taker_pick(herd, request, now_ns);
	if (!t || t->busy_ns > now_ns + (HERD_TAKER_WAIT - 1) * transfer)
		return HERD_WAIT;
	t->named++;
	t->busy_ns = max(t->busy_ns, now_ns) + transfer;
	*ret_worker = t->worker;
	taker_note(herd, request, t->busy_ns);
	return HERD_ASK;
}

void herd_served(
	struct herd *herd, const struct herd_request *request, uint64_t took_ns, uint64_t now_ns)
{
	assert(herd->serving > 0);
	herd->serving--;
	/* A range of a few KiB says nothing about a MiB. */
	if (request->length >= PART_BYTES / 4) {
		uint64_t mib = took_ns * PART_BYTES / request->length;

		herd->transfer_ns = max(
			herd->transfer_ns - herd->transfer_ns / SMOOTHING + mib / SMOOTHING, 1ull);
	}
	taker_note(herd, request, now_ns);
}

void herd_failed(struct herd *herd)
{
	assert(herd->serving > 0);
	herd->serving--;
}

void herd_forget(struct herd *herd, uint16_t worker)
{
	struct herd_taker *t = taker_find(herd, worker);

	if (t)
		*t = (struct herd_taker){ .worker = PLACEMENT_NOBODY };
}
