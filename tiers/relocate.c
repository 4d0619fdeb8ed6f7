/* Moving a chunk to another file. See relocate_internal.h. */
#include "tiers/relocate_internal.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/crash_point.h"
#include "tiers/disk.h"
#include "tiers/tier_set_internal.h"

#include <stdlib.h>
#include <string.h>

#define RUN_BLOCKS       (CHUNK_IO_BYTES / BLOCK_BYTES)
#define COPY_SLACK_BYTES (24u << 10) /* as chunk_io.c: pages of the table, tree of extents */

struct mover {
	struct chunk *from;
	struct chunk *to;
	uint8_t *table; /* of `from` */
	void *data;
	void *check;
	bool share; /* the filesystem shares blocks */
};

/* Whole pieces that follow one another. */
struct block_run {
	uint32_t first;
	uint32_t n;
	uint8_t entries[RUN_BLOCKS * CHUNK_ENTRY_BYTES];
};

static void mover_release(struct mover *m)
{
	buffers_give(&m->from->set->bounce, m->data, CHUNK_IO_BYTES);
	buffers_give(&m->from->set->bounce, m->check, CHUNK_IO_BYTES);
	free(m->table);
}

static int mover_init(struct mover *m)
{
	m->table = malloc(CHUNK_TABLE_BYTES);
	m->data = buffers_take(&m->from->set->bounce, CHUNK_IO_BYTES);
	m->check = buffers_take(&m->from->set->bounce, CHUNK_IO_BYTES);
	return m->table && m->data && m->check ? 0 : -ENOMEM;
}

/* ---- copying --------------------------------------------------------------------------------- */

/* Blocks of the piece that begins at `block`, when it is to be copied; else 0. */
static uint32_t wanted_piece(const struct mover *m, uint32_t block)
{
	struct piece_entry entry;
	uint32_t n;

	piece_entry_decode(m->table + (size_t)block * CHUNK_ENTRY_BYTES, &entry);
	n = (entry.length + BLOCK_BYTES - 1) / BLOCK_BYTES;
	if (n == 0 || n > CHUNK_BLOCKS - block)
		return 0;
	if (!chunk_bits_all(m->from->present, block, n))
		return 0;
	return chunk_bits_any(m->to->present, block, n) ? 0 : n;
}

/* The next run from `block` on, or the next piece alone; false: none is left. */
static bool next_run(const struct mover *m, uint32_t block, bool alone, struct block_run *run)
{
	run->n = 0;
	while (block < CHUNK_BLOCKS) {
		uint32_t n = wanted_piece(m, block);

		if (run->n && (alone || n == 0 || run->n + n > RUN_BLOCKS))
			break;
		if (n == 0) {
			block++;
			continue;
		}
		if (run->n == 0) {
			run->first = block;
			memset(run->entries, 0, sizeof(run->entries));
		}
		memcpy(run->entries + (size_t)run->n * CHUNK_ENTRY_BYTES,
			m->table + (size_t)block * CHUNK_ENTRY_BYTES, CHUNK_ENTRY_BYTES);
		run->n += n;
		block += n;
	}
	return run->n > 0;
}

static bool all_zero(const uint8_t *bytes, size_t n)
{
	return bytes[0] == 0 && memcmp(bytes, bytes + 1, n - 1) == 0;
}

/* Each block of the place is free, or has the very bytes. */
static bool may_write(const uint8_t *data, const uint8_t *there, uint32_t bytes)
{
	for (uint32_t at = 0; at < bytes; at += BLOCK_BYTES)
		if (memcmp(data + at, there + at, BLOCK_BYTES) != 0 &&
			!all_zero(there + at, BLOCK_BYTES))
			return false;
	return true;
}

/*
 * -ESTALE: an earlier life of the chunk left other bytes at the place, of which it is not known here
 * whether they or ours are right, and which somebody may be reading.
 */
static int copy_data(struct mover *m, const struct block_run *run)
{
	const struct chunk_fds *from = chunk_fds(m->from);
	const struct chunk_fds *to = chunk_fds(m->to);
	const struct chunk_place *there = &m->to->place;
	uint32_t offset = run->first * BLOCK_BYTES;
	uint32_t bytes = run->n * BLOCK_BYTES;
	int r = chunk_file_read(from, &m->from->place, offset, m->data, bytes, m->check);

	if (r == 0)
		r = chunk_file_read(to, there, offset, m->check, bytes, m->check);
	if (r < 0 || memcmp(m->data, m->check, bytes) == 0)
		return r;
	if (!may_write(m->data, m->check, bytes))
		return -ESTALE;
	if (m->share && disk_share(from->buffered, m->from->place.data + offset, to->buffered,
				there->data + offset, bytes) == 0)
		return 0;
	m->share = false;
	r = chunk_file_write(to, there, offset, m->data, bytes, m->check);
	if (r == 0)
		r = chunk_file_read(to, there, offset, m->check, bytes, m->check);
	return r == 0 && memcmp(m->data, m->check, bytes) != 0 ? -EBADMSG : r;
}

static int copy_run(struct mover *m, const struct block_run *run)
{
	struct gate_call call;
	uint64_t began;
	int r = gate_enter(&m->to->tier->gate, GATE_WRITE, &call);

	if (r < 0)
		return r;
	began = clock_mono_ns();
	r = copy_data(m, run);
	CRASH_POINT("relocate.copied");
	if (r == 0)
		r = disk_pwrite(chunk_fds(m->to)->buffered, run->entries,
			(size_t)run->n * CHUNK_ENTRY_BYTES,
			chunk_place_table(&m->to->place) +
				(uint64_t)run->first * CHUNK_ENTRY_BYTES);
	CRASH_POINT("relocate.entered");
	gate_leave(&m->to->tier->gate, &call);
	if (r == -ESTALE)
		return r;
	if (tier_io(m->to->tier, r, began) < 0)
		return r;
	chunk_bits_set(m->to, run->first, run->n);
	return 0;
}

static int copy_charged(struct mover *m, const struct block_run *run)
{
	uint64_t reserved = (uint64_t)run->n * BLOCK_BYTES + COPY_SLACK_BYTES;
	uint64_t allocated = 0;
	int r = chunk_reserve(m->to, reserved, 0);

	if (r < 0)
		return r;
	r = copy_run(m, run);
	if (chunk_file_allocated(chunk_fds(m->to), &allocated) < 0)
		allocated = 0; /* the next look will charge it */
	chunk_settle(m->to, reserved, allocated);
	return r;
}

/* What was not verified here is not there; a read of the old one may verify meanwhile. */
static void copy_doubts(struct mover *m)
{
	for (uint32_t w = 0; w < CHUNK_WORDS; w++) {
		uint64_t doubt =
			atomic_load(&m->from->unverified[w]) & atomic_load(&m->to->present[w]);
		uint64_t before = atomic_fetch_or(&m->to->unverified[w], doubt);

		atomic_fetch_add(
			&m->to->unverified_blocks, (uint32_t)__builtin_popcountll(doubt & ~before));
	}
	if (atomic_load(&m->to->unverified_blocks))
		m->to->boot = 0; /* boots count from 1 */
}

static int copy_all(struct mover *m)
{
	struct chunk_head head;
	struct block_run run;
	uint32_t block = 0;
	uint32_t alone_until = 0; /* what cannot be copied as one is, piece by piece */
	int r = chunk_file_read_meta_at(chunk_fds(m->from), &m->from->place, &head, m->table);

	while (r == 0 && next_run(m, block, block < alone_until, &run)) {
		bool alone = block < alone_until;

		/* A new admission waits for the end of this move. */
		r = chunk_is_dropped(m->from) ? -EBUSY : copy_charged(m, &run);
		if (r == -ESTALE && !alone) {
			alone_until = run.first + run.n;
			block = run.first;
			r = 0;
			continue;
		}
		if (r == -ESTALE)
			r = 0; /* it is not taken along */
		block = run.first + run.n;
	}
	if (r == 0)
		copy_doubts(m);
	return r == -ENODATA ? -EIO : r;
}

/* ---- the new chunk --------------------------------------------------------------------------- */

static int make_own_file(struct chunk *chunk)
{
	const uint64_t reserved = 2ull * CHUNK_HEAD_BYTES;
	struct chunk_head head = { .id = chunk->id };
	struct chunk_fds fds = CHUNK_FDS_NONE;
	uint64_t allocated = CHUNK_HEAD_BYTES;
	uint64_t began = clock_mono_ns();
	int r = chunk_reserve(chunk, reserved, TIER_ADMIT_BYTES - reserved);

	if (r < 0)
		return r;
	do {
		chunk->file = head.file_id = tier_new_file_id(chunk->tier);
		r = chunk_file_create(chunk->tier->chk_fd, &head, &fds);
	} while (r == -EEXIST);
	if (r == 0 && chunk_file_allocated(&fds, &allocated) < 0)
		allocated = CHUNK_HEAD_BYTES;
	chunk_settle(chunk, reserved, r == 0 ? allocated : 0);
	if (r == 0)
		descriptor_adopt(&chunk->set->descriptors, &chunk->descriptor, &fds);
	return tier_io(chunk->tier, r, began);
}

/* A chunk of the same name at the new place, not in the map. */
static int make_copy(struct chunk *from, const struct relocation *to, struct chunk **ret_copy)
{
	struct chunk *copy = chunk_new(from->set, to->tier, &from->id);
	int r;

	if (!copy)
		return -ENOMEM;
	copy->class = from->class;
	copy->replaces = true;
	copy->leaves = from->extent;
	if (to->extent)
		chunk_set_extent(copy, to->extent);
	r = to->extent ? chunk_begin_in_extent(copy) : make_own_file(copy);
	if (r < 0) {
		chunk_unref(copy);
		return r;
	}
	CRASH_POINT("relocate.made");
	*ret_copy = copy;
	return 0;
}

/* ---- taking the place ------------------------------------------------------------------------ */

/* In the order of eviction, too. */
static void take_queue(struct volumes *volumes, struct chunk *chunk, struct chunk *copy)
{
	pthread_mutex_lock(&volumes->lock);
	copy->read_at = chunk->read_at;
	copy->unread = chunk->unread;
	copy->heat = chunk->heat;
	list_remove(&chunk->queued);
	pthread_mutex_unlock(&volumes->lock);
}

/* The copy takes the chunk's place in the map, and is the one that is being moved: what is left to
 * do is of its name. False: the chunk was unlinked meanwhile. */
static bool take_place(struct chunk *chunk, struct chunk *copy)
{
	struct shard *shard = set_shard(chunk->set, chunk->node.hash);
	bool moved;

	take_queue(&chunk->set->volumes, chunk, copy);
	pthread_mutex_lock(&shard->lock);
	pthread_mutex_lock(&chunk->lock);
	moved = chunk_is_live(chunk);
	if (moved) {
		chunk_set_state_locked(chunk, CHUNK_UNLINKING);
		chunk_set_state_locked(chunk, CHUNK_GONE);
		chunk->moved = true;
		chunk_set_state_locked(copy, atomic_load(&copy->present_blocks) == CHUNK_BLOCKS
						     ? CHUNK_COMPLETE
						     : CHUNK_FILLING);
		atomic_store(&copy->moving, chunk->tier);
		atomic_store(&chunk->moving, NULL);
	}
	pthread_mutex_unlock(&chunk->lock);
	if (moved) {
		map_remove(&shard->map, &chunk->node);
		set_insert_locked(shard, chunk_ref(copy), chunk->node.hash);
		volumes_queue(&chunk->set->volumes, copy);
	}
	pthread_mutex_unlock(&shard->lock);
	return moved;
}

/* What was made is not used. */
static void undo(struct chunk *copy, bool listed)
{
	if (listed)
		(void)tier_index_remove(copy->tier, &copy->id);
	chunk_unlink_file(copy);
	chunk_unref(copy);
}

static int publish(struct chunk *chunk, struct chunk *copy)
{
	struct index_row row = chunk_row(copy);
	int r;

	row.complete = atomic_load(&copy->present_blocks) == CHUNK_BLOCKS;
	r = tier_index_put(copy->tier, &row);
	if (r < 0) {
		undo(copy, false);
		return r;
	}
	CRASH_POINT("relocate.listed");
	if (!take_place(chunk, copy)) {
		undo(copy, true);
		return -EBUSY;
	}
	if (chunk->tier != copy->tier)
		(void)tier_index_remove(chunk->tier, &chunk->id); /* or the next start */
	publish_chunk(copy);
	chunk_unlink_file(chunk);
	CRASH_POINT("relocate.moved");
	if (chunk_state(copy) == CHUNK_COMPLETE && chunk_pin(copy) == 0) {
		chunk_note_mode(copy); /* else its mode stays that of a filling one */
		chunk_unpin(copy);
	}
	copy->replaces = false; /* before anything else is written to it */
	copy->leaves = NULL;
	set_end_move(copy->set, copy);
	return 0;
}

static int copy_to(struct chunk *chunk, struct chunk *copy)
{
	struct mover m = { .from = chunk, .to = copy, .share = chunk->tier == copy->tier };
	int r = mover_init(&m);

	if (r == 0)
		r = copy_all(&m);
	mover_release(&m);
	return r;
}

/* Both are open meanwhile. */
static int copy_pinned(struct chunk *chunk, struct chunk *copy)
{
	int r = chunk_pin(chunk);

	if (r < 0)
		return r == -ENODATA ? -EBUSY : r;
	r = chunk_pin(copy);
	if (r == 0) {
		r = copy_to(chunk, copy);
		chunk_unpin(copy);
	}
	chunk_unpin(chunk);
	return r;
}

int chunk_relocate(struct chunk *chunk, const struct relocation *to)
{
	struct chunk *copy = NULL;
	int r = -EBUSY;

	CHECK_MAGIC(chunk, CHUNK_MAGIC);
	ensure(!to->extent || to->extent != chunk->extent);
	if (chunk_begin_move(chunk, to->tier)) {
		CRASH_POINT("relocate.begun");
		r = make_copy(chunk, to, &copy);
		if (r == 0)
			r = copy_pinned(chunk, copy);
		if (r == 0)
			r = publish(chunk, copy);
		else if (copy)
			undo(copy, false);
		if (r < 0)
			set_end_move(chunk->set, chunk); /* it stays where it was */
	}
	if (r < 0) {
		if (to->extent)
			extent_leave(to->extent, false, 0);
		return r;
	}
	chunk_hold(chunk);
	chunk_leave_extent(chunk);
	chunk_unref(copy);
	chunk_unref(chunk); /* the set's */
	return 0;
}
