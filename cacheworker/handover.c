/* Chunks of slots that went to other workers, offered to them. See handover.h. */
#include "cacheworker/handover.h"
#include "base/backoff.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/deadline.h"
#include "base/log.h"
#include "base/rate.h"
#include "cacheworker/copies.h"
#include "cacheworker/duty.h"
#include "cacheworker/flight.h"
#include "cacheworker/kept.h"
#include "cacheworker/source.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define SETTLE_NS   (2 * CLOCK_SECOND)  /* after a change: what is read now is pulled by itself */
#define AGAIN_LEAST (250 * CLOCK_MS)    /* between two passes over what is left */
#define AGAIN_MOST  (30 * CLOCK_SECOND) /* also when nothing is left */
#define RATE        (64.0 * (1 << 20))  /* bytes offered a second */
#define DRAIN_RATE  (256.0 * (1 << 20))
#define BURST_S     0.1
#define PAGE        64u /* chunks listed at a time */
#define RANGES      64u /* of one chunk in one pass */

struct handover {
	struct periodic_work work;
	pthread_mutex_t lock;
	bool woken; /* under the lock */
	_Atomic bool closing;
	struct handover_status status; /* under the lock */
	/* The work's: */
	struct rate rate;    /* of bytes offered */
	struct table *table; /* of the chunk looked at last */
	struct volume_id volume;
	uint64_t lineage;
	struct backoff backoff; /* between two passes; reset by progress and by a change */
	uint64_t due_ns;        /* of the next pass */
};

/* What is left of one chunk. */
struct left {
	struct chunk_id id;
	uint64_t bytes; /* of units that are here and not there */
	struct {
		uint32_t offset;
		uint32_t length;
	} ranges[RANGES];
	uint32_t n;
};

/* ---- classes --------------------------------------------------------------------------------- */

struct classes {
	struct worker *worker;
	uint32_t drained; /* member_drain() */
	uint64_t strange; /* chunks to be handed over */
	uint64_t own;     /* bytes in slots of this worker's own */
	uint64_t changed; /* chunks that have another class now */
};

/* Under a lock of the tiers: nothing of theirs may be called. */
static enum tier_class which(void *arg, const struct tier_chunk_look *look)
{
	struct classes *c = arg;

	if (worker_class(c->worker, &look->id.volume, look->id.chunk) == TIER_OWNED) {
		c->own += look->bytes;
		return TIER_OWNED;
	}
	c->strange += look->class == TIER_OWNED || c->drained;
	return look->class;
}

static struct classes classify(struct worker *w)
{
	struct classes c = { .worker = w, .drained = member_drain(w) };

	c.changed = tier_set_classify(w->tiers, which, &c);
	atomic_fetch_add(&w->classified, c.changed);
	return c;
}

/* ---- what is here and not there -------------------------------------------------------------- */

static bool present(const uint8_t *bitmap, uint32_t offset, uint32_t length)
{
	uint32_t end = (uint32_t)(align_up(offset + length, BLOCK_BYTES) / BLOCK_BYTES);

	for (uint32_t i = offset / BLOCK_BYTES; i < end; i++)
		if (!(bitmap[i / 8] >> i % 8 & 1))
			return false;
	return true;
}

static void add_range(struct left *left, uint32_t offset, uint32_t length)
{
	uint32_t blocks = (uint32_t)align_up(length, BLOCK_BYTES);

	left->bytes += length;
	if (left->n > 0 &&
		left->ranges[left->n - 1].offset + left->ranges[left->n - 1].length == offset) {
		left->ranges[left->n - 1].length += blocks;
		return;
	}
	if (left->n == RANGES)
		return; /* with the next pass */
	left->ranges[left->n].offset = offset;
	left->ranges[left->n++].length = blocks;
}

/* Units of living objects that `here` has whole and `there` has not. */
static int find_left(struct table *table, const struct chunk_id *id, const uint8_t *here,
	const uint8_t *there, struct left *ret_left)
{
	_cleanup_free_ struct table_row *row = malloc(sizeof(*row));
	uint64_t at = id->chunk * CHUNK_BYTES;
	uint64_t end = at + CHUNK_BYTES;
	int r = row ? 0 : -ENOMEM;

	*ret_left = (struct left){ .id = *id };
	while (r == 0 && at < end && (r = source_row_from(table, at, row)) == 0 &&
		row->offset < end) {
		uint64_t object_offset;
		uint64_t start;
		uint32_t length;
		uint32_t offset;

		at = max(at, row->offset);
		flight_unit_of(row, at, &start, &length, &object_offset);
		offset = (uint32_t)(start % CHUNK_BYTES);
		at = align_up(start + length, BLOCK_BYTES);
		if (!(row->flags & ROW_DEAD) && offset + length <= CHUNK_BYTES &&
			present(here, offset, length) && !present(there, offset, length))
			add_range(ret_left, offset, length);
	}
	return r == -ENOENT ? 0 : r;
}

/* The newest table of the chunk's lineage, borrowed; NULL: there is none, so that no worker can be sent what is stored
 * there. An error: it cannot be had now. */
static int table_of(struct worker *w, const struct chunk_id *id, struct table **ret_table)
{
	struct handover *h = w->handover;
	int r = 0;

	*ret_table = h->table;
	if (h->table && h->lineage == id->lineage && volume_id_equal(&h->volume, &id->volume))
		return 0;
	table_unref(TAKE(h->table));
	pthread_mutex_lock(&w->sources.lock);
	list_for_each (node, &w->sources.all) {
		const struct source *source = list_entry(node, struct source, link);

		if (!h->table && source->table && source->lineage == id->lineage &&
			volume_id_equal(&source->volume, &id->volume))
			h->table = table_ref(source->table);
	}
	pthread_mutex_unlock(&w->sources.lock);
	if (!h->table)
		r = kept_table_open(w, &id->volume, id->lineage, &h->table);
	if (r < 0)
		h->table = NULL;
	h->volume = id->volume;
	h->lineage = id->lineage;
	*ret_table = h->table;
	return r == -ENOENT || r == -EBADMSG ? 0 : r;
}

/* ---- offers ---------------------------------------------------------------------------------- */

static struct view_peer *owner_of(struct worker *w, const struct chunk_id *id)
{
	struct view_candidates c;
	struct view_peer *peer;

	view_find(w->view, placement_volume_hash(&id->volume), id->chunk, &c);
	peer = c.owner == PLACEMENT_NONE ? NULL : view_peer(w->view, c.owner);
	return peer && !peer->self && peer->rpc && view_usable(w->view, peer) ? peer : NULL;
}

/* One range; `there` becomes what the owner has of the chunk. */
static int offer(struct worker *w, struct view_peer *peer, const struct chunk_id *id,
	const struct table *table, uint32_t offset, uint32_t length,
	uint8_t there[CHUNK_BITMAP_BYTES])
{
	struct rpc_call call = {
		.frame = { .op = FRAME_PREFETCH,
			.class = FRAME_FILL,
			.flags = FRAME_PEER | FRAME_EXACT,
			.volume = id->volume,
			.lineage = id->lineage,
			.generation = table_info(table)->id.generation,
			.extent = PLACEMENT_NONE, /* none failed before */
			.offset = id->chunk * CHUNK_BYTES + offset,
			.length = length },
		.payload = NET_PAYLOAD_NONE,
		.deadline_ns = clock_mono_ns() + DEADLINE_PROMPT_NS,
		.reply_fd = -1,
	};
	struct err e = ERR_INIT;
	int r = rpc_call_wait(peer->rpc, &call, &e);

	if (r == 0 && call.reply.payload != CHUNK_BITMAP_BYTES)
		r = -EBADMSG;
	if (r == 0)
		memcpy(there, call.reply_payload, CHUNK_BITMAP_BYTES);
	else if (r == -EREMOTE)
		view_stale(w->view);
	rpc_call_release(&call);
	return r;
}

/* False at the end. */
static bool keep_pace(struct worker *w, uint64_t bytes)
{
	struct handover *h = w->handover;
	uint64_t ns;

	rate_set(&h->rate, clock_mono_ns(), member_draining(w) ? DRAIN_RATE : RATE);
	while ((ns = rate_wait_ns(&h->rate, clock_mono_ns())) > 0) {
		if (atomic_load(&h->closing))
			return false;
		clock_sleep_ns(min(ns, (uint64_t)(20 * CLOCK_MS)));
	}
	rate_take(&h->rate, (double)bytes);
	return !atomic_load(&h->closing);
}

/* Offers what is left of it; the bytes that its owner had not before. */
static int hand_over(struct worker *w, const struct chunk_id *id, struct chunk *chunk,
	struct table *table, uint64_t *ret_left)
{
	struct view_peer *peer = owner_of(w, id);
	uint8_t here[CHUNK_BITMAP_BYTES];
	uint8_t there[CHUNK_BITMAP_BYTES] = { 0 };
	struct left left;
	int r;

	chunk_bitmap(chunk, here);
	r = find_left(table, id, here, there, &left);
	*ret_left = left.bytes;
	if (r < 0 || left.n == 0)
		return r;
	if (!peer)
		return -EHOSTUNREACH;
	/* The first tells what he has. */
	r = offer(w, peer, id, table, left.ranges[0].offset, BLOCK_BYTES, there);
	if (r == 0)
		r = find_left(table, id, here, there, &left);
	*ret_left = left.bytes;
	if (r == 0 && left.bytes > 0 && !keep_pace(w, left.bytes))
		return -ECANCELED;
	for (uint32_t i = 0; i < left.n && r == 0; i++) {
		r = offer(w, peer, id, table, left.ranges[i].offset, left.ranges[i].length, there);
		pthread_mutex_lock(&w->handover->lock);
		w->handover->status.offered += r == 0 ? left.ranges[i].length : 0;
		pthread_mutex_unlock(&w->handover->lock);
		counter_add(&w->counters.handover_bytes, r == 0 ? left.ranges[i].length : 0);
	}
	return r;
}

/* ---- a pass ---------------------------------------------------------------------------------- */

struct pass {
	uint64_t chunks;
	uint64_t bytes;
};

static void look_at(struct worker *w, const struct chunk_id *id, struct pass *pass)
{
	bool drained = member_draining(w);
	struct chunk *chunk = NULL;
	struct table *table = NULL;
	uint64_t left = 0;
	int r;

	if (worker_class(w, &id->volume, id->chunk) == TIER_OWNED)
		return;
	chunk = tier_chunk_find(w->tiers, id);
	if (!chunk || (!drained && chunk_class(chunk) == TIER_COPY)) {
		chunk_unref(chunk);
		return;
	}
	r = table_of(w, id, &table);
	if (table)
		r = hand_over(w, id, chunk, table, &left);
	if (r < 0 && r != -EBADMSG && left == 0)
		left = chunk_present_bytes(chunk); /* how much is not known: so all of it */
	if (r < 0)
		log_debug("chunk not handed over", "chunk=%llu error=%s next=\"offered again\"",
			(unsigned long long)id->chunk, err_name(r));
	if (r == 0 && left == 0 && chunk_class(chunk) == TIER_OWNED) {
		chunk_set_class(chunk, TIER_COPY);
		atomic_fetch_add(&w->classified, 1);
	}
	pass->chunks += left > 0;
	pass->bytes += left;
	chunk_unref(chunk);
}

static struct pass run_pass(struct worker *w)
{
	struct chunk_id ids[PAGE];
	struct chunk_id after;
	struct pass pass = { 0 };
	uint32_t n = tier_set_list(w->tiers, NULL, false, ids, PAGE);

	while (n > 0 && !atomic_load(&w->handover->closing)) {
		for (uint32_t i = 0; i < n && !atomic_load(&w->handover->closing); i++)
			look_at(w, &ids[i], &pass);
		after = ids[n - 1];
		n = tier_set_list(w->tiers, &after, false, ids, PAGE);
	}
	table_unref(TAKE(w->handover->table));
	return pass;
}

static void look(struct worker *w)
{
	struct handover *h = w->handover;
	struct classes classes = classify(w);
	struct pass pass = { 0 };
	bool less;

	if (classes.strange > 0)
		pass = run_pass(w);
	if (classes.changed || classes.strange)
		(void)tier_set_keep_classes(w->tiers); /* what fails is kept with the next change */
	pthread_mutex_lock(&h->lock);
	less = pass.bytes < h->status.bytes;
	h->status.chunks = pass.chunks;
	h->status.bytes = pass.bytes;
	counter_set(&w->counters.handover_left, pass.bytes);
	pthread_mutex_unlock(&h->lock);
	/* Of slots that are still its own no other worker has anything. A pass that began before it was drained has not
	 * looked at copies. */
	if (!atomic_load(&h->closing))
		member_set_only_copies(w, classes.drained, pass.bytes + classes.own);
	if (pass.bytes == 0 && !(classes.drained && classes.own))
		backoff_to_max(&h->backoff);
	else if (less || classes.drained)
		backoff_reset(&h->backoff);
	h->due_ns = clock_mono_ns() + backoff_next(&h->backoff);
}

/* ---- the work -------------------------------------------------------------------------------- */

/* Time until the next pass: a change is followed once it has settled. */
static uint64_t wait_ns(struct worker *w)
{
	struct handover *h = w->handover;
	uint64_t now = clock_mono_ns();

	pthread_mutex_lock(&h->lock);
	if (h->woken && now < h->due_ns) {
		h->woken = false;
		backoff_reset(&h->backoff);
		h->due_ns = min(h->due_ns, now + (member_draining(w) ? AGAIN_LEAST : SETTLE_NS));
	}
	pthread_mutex_unlock(&h->lock);
	return h->due_ns > now ? h->due_ns - now : 0;
}

static uint64_t run(void *arg)
{
	struct worker *w = arg;
	uint64_t ns;

	if (atomic_load(&w->handover->closing))
		return PERIODIC_IDLE;
	ns = wait_ns(w);
	if (ns == 0)
		look(w);
	return ns; /* 0: when the next pass is due is computed after other jobs */
}

void handover_wake(struct worker *w)
{
	struct handover *h = w->handover;

	if (!h)
		return;
	pthread_mutex_lock(&h->lock);
	h->woken = true;
	pthread_mutex_unlock(&h->lock);
	periodic_poke(&h->work);
}

void handover_status(struct worker *w, struct handover_status *ret_status)
{
	pthread_mutex_lock(&w->handover->lock);
	*ret_status = w->handover->status;
	pthread_mutex_unlock(&w->handover->lock);
}

int handover_open(struct worker *w)
{
	struct handover *h = calloc(1, sizeof(*h));

	if (!h)
		return -ENOMEM;
	h->backoff = (struct backoff){ .min_ns = AGAIN_LEAST, .max_ns = AGAIN_MOST };
	h->rate = RATE_INIT(RATE, BURST_S);
	h->due_ns = clock_mono_ns() + AGAIN_MOST;
	h->work = (struct periodic_work){ .name = "handover", .run = run, .arg = w };
	pthread_mutex_init(&h->lock, NULL);
	w->handover = h;
	return 0;
}

void handover_start(struct worker *w)
{
	periodic_start(w->work, &w->handover->work, 0);
}

void handover_stop(struct worker *w)
{
	if (w->handover)
		atomic_store(&w->handover->closing, true);
}

void handover_join(struct worker *w)
{
	struct handover *h = w->handover;

	if (!h)
		return;
	periodic_stop(&h->work);
	table_unref(TAKE(h->table));
}

void handover_close(struct worker *w)
{
	struct handover *h = w->handover;

	if (!h)
		return;
	pthread_mutex_destroy(&h->lock);
	free(h);
	w->handover = NULL;
}
