/* Chunks in memory. See chunk_internal.h. */
#include "tiers/chunk_internal.h"
#include "tiers/tier_set_internal.h"
#include "base/arena.h"
#include "base/crash_point.h"
#include "base/pool.h"

#include <stdlib.h>

#define TO(state) (1u << (state))

static const uint8_t transitions[] = {
	[CHUNK_CREATING] = TO(CHUNK_FILLING) | TO(CHUNK_COMPLETE) | TO(CHUNK_GONE),
	[CHUNK_FILLING] = TO(CHUNK_COMPLETE) | TO(CHUNK_UNLINKING),
	[CHUNK_COMPLETE] = TO(CHUNK_FILLING) | TO(CHUNK_UNLINKING),
	[CHUNK_UNLINKING] = TO(CHUNK_GONE),
	[CHUNK_GONE] = 0,
};

enum chunk_state chunk_state(const struct chunk *chunk)
{
	return (enum chunk_state)atomic_load(&chunk->state);
}

void chunk_set_state_locked(struct chunk *chunk, enum chunk_state to)
{
	ensure(transitions[chunk_state(chunk)] & TO(to));
	atomic_store(&chunk->state, (int)to);
	atomic_fetch_add(&chunk->space->changes, 1); /* it may be live or not, from now on */
}

bool chunk_is_live(const struct chunk *chunk)
{
	enum chunk_state state = chunk_state(chunk);

	return state == CHUNK_FILLING || state == CHUNK_COMPLETE;
}

struct chunk *chunk_new(struct tier_set *set, struct tier *tier, const struct chunk_id *id)
{
	struct chunk *chunk = arena_calloc(ARENA_CHUNKS, 1, sizeof(*chunk));

	if (!chunk)
		return NULL;
	chunk->magic = CHUNK_MAGIC;
	chunk->refs = 1;
	chunk->state = CHUNK_CREATING;
	chunk->id = *id;
	chunk->set = set;
	chunk->tier = tier;
	chunk->boot = tier->identity.boot;
	chunk->place = CHUNK_PLACE_OWN;
	chunk->space = volumes_join(&set->volumes, &id->volume);
	if (!chunk->space) {
		arena_free(ARENA_CHUNKS, chunk, sizeof(*chunk));
		return NULL;
	}
	list_init(&chunk->link);
	list_init(&chunk->queued);
	descriptor_init(&chunk->descriptor);
	pthread_mutex_init(&chunk->lock, NULL);
	pthread_mutex_init(&chunk->repair, NULL);
	atomic_fetch_add(&tier->chunks, 1);
	counter_add(&set->counters.chunks, 1);
	return chunk;
}

struct chunk *chunk_ref(struct chunk *chunk)
{
	CHECK_MAGIC(chunk, CHUNK_MAGIC);
	atomic_fetch_add_explicit(&chunk->refs, 1, memory_order_relaxed);
	return chunk;
}

/* There is no reference to it any more. */
static void chunk_end(struct chunk *chunk)
{
	descriptor_close(&chunk->set->descriptors, &chunk->descriptor);
	if (chunk->extent) {
		extent_give_charge(chunk->extent, chunk->charged, chunk->held);
	} else {
		tier_settle(chunk->tier, chunk->charged, 0);
		volumes_settle(chunk->space, chunk->charged, 0);
		if (chunk->held)
			chunk_held_sub(chunk->set, chunk->tier, chunk->space, chunk->charged);
	}
	extent_unref(chunk->extent);
	volumes_leave(&chunk->set->volumes, chunk->space);
	atomic_fetch_sub(&chunk->tier->blocks, chunk->present_blocks);
	atomic_fetch_sub(&chunk->tier->chunks, 1);
	counter_sub(&chunk->set->counters.chunks, 1);
	pthread_mutex_destroy(&chunk->repair);
	pthread_mutex_destroy(&chunk->lock);
	chunk->magic = 0;
	arena_free(ARENA_CHUNKS, chunk, sizeof(*chunk));
}

/* True: it was the last one. */
static bool leave(struct chunk *chunk)
{
	if (!chunk)
		return false;
	CHECK_MAGIC(chunk, CHUNK_MAGIC);
	return atomic_fetch_sub_explicit(&chunk->refs, 1, memory_order_acq_rel) == 1;
}

void chunk_unref(struct chunk *chunk)
{
	if (leave(chunk))
		chunk_end(chunk);
}

struct end_job {
	struct pool_job job;
	struct chunk *chunk;
};

static void run_end(struct pool_job *job)
{
	struct end_job *end = container_of(job, struct end_job, job);

	chunk_end(end->chunk);
	free(end);
}

void chunk_unref_by(struct chunk *chunk, struct pool *pool)
{
	struct end_job *end;

	if (!leave(chunk))
		return;
	end = malloc(sizeof(*end));
	if (end) {
		*end = (struct end_job){ .job.run = run_end, .chunk = chunk };
		if (pool_submit(pool, &end->job) == 0)
			return;
		free(end);
	}
	chunk_end(chunk);
}

const struct chunk_id *chunk_id_of(const struct chunk *chunk)
{
	return &chunk->id;
}

/* The bits of word `w` that lie in [first, first + n). */
static uint64_t word_mask(uint32_t w, uint32_t first, uint32_t n)
{
	uint32_t from = max(first, w * 64);
	uint32_t to = min(first + n, (w + 1) * 64);
	uint32_t bits = to - from;

	return (bits == 64 ? ~0ull : (1ull << bits) - 1) << (from % 64);
}

#define for_each_word(w, first, n) for (uint32_t w = (first) / 64; w * 64 < (first) + (n); w++)

static uint32_t ones(uint64_t word)
{
	return (uint32_t)__builtin_popcountll(word);
}

void chunk_bits_set(struct chunk *chunk, uint32_t first, uint32_t n)
{
	uint32_t added = 0;

	atomic_fetch_add(&chunk->writes, 1);
	for_each_word(w, first, n)
	{
		uint64_t mask = word_mask(w, first, n);

		added += ones(mask & ~atomic_fetch_or(&chunk->present[w], mask));
	}
	atomic_fetch_add(&chunk->present_blocks, added);
	atomic_fetch_add(&chunk->tier->blocks, added);
	if (chunk->extent)
		atomic_fetch_add(&chunk->extent->written, added);
	atomic_fetch_add(&chunk->space->changes, 1);
	publish_chunk(chunk);
}

/* True when there were any to clear. */
static bool clear_unverified(struct chunk *chunk, uint32_t first, uint32_t n)
{
	uint32_t cleared = 0;

	for_each_word(w, first, n)
	{
		uint64_t mask = word_mask(w, first, n);

		cleared += ones(mask & atomic_fetch_and(&chunk->unverified[w], ~mask));
	}
	atomic_fetch_sub(&chunk->unverified_blocks, cleared);
	return cleared > 0;
}

void chunk_bits_verified(struct chunk *chunk, uint32_t first, uint32_t n)
{
	if (clear_unverified(chunk, first, n))
		publish_chunk(chunk);
}

void chunk_bits_clear(struct chunk *chunk, uint32_t first, uint32_t n)
{
	uint32_t removed = 0;

	for_each_word(w, first, n)
	{
		uint64_t mask = word_mask(w, first, n);

		removed += ones(mask & atomic_fetch_and(&chunk->present[w], ~mask));
	}
	atomic_fetch_sub(&chunk->present_blocks, removed);
	atomic_fetch_sub(&chunk->tier->blocks, removed);
	atomic_fetch_add(&chunk->space->changes, 1);
	(void)clear_unverified(chunk, first, n); /* gone either way */
	publish_chunk(chunk);
}

bool chunk_bits_all(const _Atomic uint64_t *words, uint32_t first, uint32_t n)
{
	for_each_word(w, first, n)
	{
		uint64_t mask = word_mask(w, first, n);

		if ((atomic_load_explicit(&words[w], memory_order_acquire) & mask) != mask)
			return false;
	}
	return true;
}

bool chunk_bits_any(const _Atomic uint64_t *words, uint32_t first, uint32_t n)
{
	for_each_word(w, first, n)
	{
		if (atomic_load_explicit(&words[w], memory_order_acquire) & word_mask(w, first, n))
			return true;
	}
	return false;
}

void chunk_bits_load(struct chunk *chunk, const uint64_t present[CHUNK_WORDS], bool verified)
{
	uint32_t blocks = 0;

	for (uint32_t w = 0; w < CHUNK_WORDS; w++) {
		atomic_store(&chunk->present[w], present[w]);
		atomic_store(&chunk->unverified[w], verified ? 0 : present[w]);
		blocks += ones(present[w]);
	}
	chunk->present_blocks = blocks;
	chunk->unverified_blocks = verified ? 0 : blocks;
	atomic_fetch_add(&chunk->tier->blocks, blocks);
}

/* Blocks of [offset, offset + length); false when that is not inside a chunk. */
static bool blocks_of(uint32_t offset, uint32_t length, uint32_t *ret_first, uint32_t *ret_n)
{
	if (offset > CHUNK_BYTES || length > CHUNK_BYTES - offset)
		return false;
	*ret_first = offset / BLOCK_BYTES;
	*ret_n = (uint32_t)(align_up((uint64_t)offset + length, BLOCK_BYTES) / BLOCK_BYTES) -
		 *ret_first;
	return true;
}

bool chunk_present(const struct chunk *chunk, uint32_t offset, uint32_t length)
{
	uint32_t first;
	uint32_t n;

	CHECK_MAGIC(chunk, CHUNK_MAGIC);
	return blocks_of(offset, length, &first, &n) && chunk_bits_all(chunk->present, first, n);
}

bool chunk_unverified(const struct chunk *chunk, uint32_t offset, uint32_t length)
{
	uint32_t first;
	uint32_t n;

	CHECK_MAGIC(chunk, CHUNK_MAGIC);
	return blocks_of(offset, length, &first, &n) && chunk_bits_any(chunk->unverified, first, n);
}

void chunk_bitmap(const struct chunk *chunk, uint8_t out[CHUNK_BITMAP_BYTES])
{
	CHECK_MAGIC(chunk, CHUNK_MAGIC);
	for (uint32_t w = 0; w < CHUNK_WORDS; w++) {
		uint64_t word = atomic_load_explicit(&chunk->present[w], memory_order_acquire);

		for (uint32_t i = 0; i < 8; i++)
			out[w * 8 + i] = (uint8_t)(word >> (8 * i));
	}
}

uint64_t chunk_present_bytes(const struct chunk *chunk)
{
	CHECK_MAGIC(chunk, CHUNK_MAGIC);
	return (uint64_t)atomic_load(&chunk->present_blocks) * BLOCK_BYTES;
}

void chunk_held_sub(
	struct tier_set *set, struct tier *tier, struct volume_space *space, uint64_t bytes)
{
	atomic_fetch_sub(&tier->held, bytes);
	atomic_fetch_sub(&space->held, bytes);
	counter_sub(&set->counters.held, bytes);
}

static void add_held(struct chunk *chunk, uint64_t bytes)
{
	atomic_fetch_add(&chunk->tier->held, bytes);
	atomic_fetch_add(&chunk->space->held, bytes);
	counter_add(&chunk->set->counters.held, bytes);
}

void chunk_hold(struct chunk *chunk)
{
	pthread_mutex_lock(&chunk->lock);
	ensure(!chunk->held);
	chunk->held = true;
	add_held(chunk, chunk->charged);
	pthread_mutex_unlock(&chunk->lock);
}

bool chunk_is_dropped(const struct chunk *chunk)
{
	enum chunk_state state = chunk_state(chunk);

	CHECK_MAGIC(chunk, CHUNK_MAGIC);
	return state == CHUNK_UNLINKING || state == CHUNK_GONE;
}

void chunk_set_tag(struct chunk *chunk, uint32_t tag)
{
	CHECK_MAGIC(chunk, CHUNK_MAGIC);
	atomic_store_explicit(&chunk->tag, tag, memory_order_relaxed);
}

uint32_t chunk_tag(const struct chunk *chunk)
{
	CHECK_MAGIC(chunk, CHUNK_MAGIC);
	return atomic_load_explicit(&chunk->tag, memory_order_relaxed);
}

bool chunk_is_idle(const struct chunk *chunk)
{
	return chunk_is_live(chunk) && atomic_load(&chunk->writers) == 0 &&
	       atomic_load(&chunk->moving) == NULL;
}

bool chunk_begin_move(struct chunk *chunk, struct tier *to)
{
	bool mine;

	pthread_mutex_lock(&chunk->lock);
	mine = chunk_is_idle(chunk);
	if (mine)
		atomic_store(&chunk->moving, to);
	pthread_mutex_unlock(&chunk->lock);
	return mine;
}

int chunk_begin_spill(struct chunk *chunk, struct tier *to)
{
	struct shard *shard = set_shard(chunk->set, chunk->node.hash);
	int r = -EINPROGRESS;

	pthread_mutex_lock(&shard->lock);
	while (r == -EINPROGRESS) {
		pthread_mutex_lock(&chunk->lock);
		if (!chunk_is_live(chunk) || atomic_load(&chunk->moving)) {
			r = -EAGAIN;
		} else if (!tier_in_service(chunk->tier)) {
			r = -EIO;
		} else if (atomic_load(&chunk->writers) == 0) {
			atomic_store(&chunk->moving, to);
			r = 0;
		} else {
			chunk->spill_waits = true;
		}
		pthread_mutex_unlock(&chunk->lock);
		if (r == -EINPROGRESS)
			pthread_cond_wait(&shard->settled, &shard->lock);
	}
	pthread_mutex_unlock(&shard->lock);
	return r;
}

int chunk_write_begin(struct chunk *chunk)
{
	struct shard *shard = set_shard(chunk->set, chunk->node.hash);
	struct tier *to;
	int r = 0;

	pthread_mutex_lock(&shard->lock);
	for (;;) {
		pthread_mutex_lock(&chunk->lock); /* under which a move begins */
		to = atomic_load(&chunk->moving);
		if (!to || !tier_in_service(to) || !tier_in_service(chunk->tier))
			break;
		pthread_mutex_unlock(&chunk->lock);
		pthread_cond_wait(&shard->settled, &shard->lock);
	}
	if (to)
		r = -EIO; /* one of the two disks does not answer */
	else if (chunk_is_live(chunk))
		atomic_fetch_add(&chunk->writers, 1);
	else
		r = chunk->moved ? -EAGAIN : -ENOSPC;
	pthread_mutex_unlock(&chunk->lock);
	pthread_mutex_unlock(&shard->lock);
	return r;
}

void chunk_write_end(struct chunk *chunk)
{
	struct shard *shard = set_shard(chunk->set, chunk->node.hash);
	uint32_t writers;
	bool wake;

	pthread_mutex_lock(&chunk->lock);
	writers = atomic_fetch_sub(&chunk->writers, 1);
	ensure(writers > 0);
	wake = writers == 1 && chunk->spill_waits;
	if (wake)
		chunk->spill_waits = false;
	pthread_mutex_unlock(&chunk->lock);
	if (!wake)
		return;
	pthread_mutex_lock(&shard->lock); /* the waiter waits, or has not looked yet */
	pthread_cond_broadcast(&shard->settled);
	pthread_mutex_unlock(&shard->lock);
}

void chunk_settle(struct chunk *chunk, uint64_t reserved, uint64_t allocated)
{
	uint64_t grown;

	/* Blocks are never given back while the file lives, so the larger of two racing looks is
	 * the later. */
	pthread_mutex_lock(&chunk->lock);
	grown = chunk_charge_locked(chunk, allocated);
	if (chunk->held)
		add_held(chunk, grown);
	pthread_mutex_unlock(&chunk->lock);
	tier_settle(chunk->tier, reserved, grown);
	volumes_settle(chunk->space, reserved, grown);
}

struct index_row chunk_row(struct chunk *chunk)
{
	struct index_row row = {
		.id = chunk->id,
		.file = chunk->file,
		.extent = chunk->extent != NULL,
		.class = chunk->class,
	};

	atomic_store(&chunk->kept_class, row.class);
	pthread_mutex_lock(&chunk->lock);
	row.boot = chunk->boot;
	row.complete = chunk_state(chunk) == CHUNK_COMPLETE;
	pthread_mutex_unlock(&chunk->lock);
	return row;
}

bool chunk_note_progress(struct chunk *chunk)
{
	bool complete = atomic_load(&chunk->present_blocks) == CHUNK_BLOCKS;
	bool verified = atomic_load(&chunk->unverified_blocks) == 0;
	enum chunk_state state;
	struct index_row row;
	bool turned = false;
	bool changed = false;

	pthread_mutex_lock(&chunk->lock);
	state = chunk_state(chunk);
	if (chunk_is_live(chunk)) {
		if (complete != (state == CHUNK_COMPLETE)) {
			chunk_set_state_locked(chunk, complete ? CHUNK_COMPLETE : CHUNK_FILLING);
			turned = true;
			changed = true;
		}
		if (verified && chunk->boot != chunk->tier->identity.boot) {
			chunk->boot = chunk->tier->identity.boot;
			changed = true;
		}
	}
	pthread_mutex_unlock(&chunk->lock);
	if (changed) {
		/* May pass another thread's newer row: what is wrong then shows at the first read
		 * of the piece or at the next start. A failure is noted by the tier. */
		row = chunk_row(chunk);
		CRASH_POINT("chunk.turned");
		(void)tier_index_put(chunk->tier, &row);
		CRASH_POINT("chunk.noted");
	}
	return turned;
}
