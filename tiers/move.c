/* Copying a chunk into another tier. See move_internal.h. */
#include "tiers/move_internal.h"
#include "base/clock.h"
#include "base/cleanup.h"
#include "base/crash_point.h"
#include "base/hash.h"
#include "base/piece.h"
#include "tiers/disk.h"
#include "tiers/tier_set_internal.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#define COPY_SLACK_BYTES (64u << 10) /* head, table and the tree of extents of a new file */

/* One chunk on its way. */
struct copy {
	struct tier_set *set;
	struct chunk *from;
	struct chunk *to;     /* CREATING, not in the map */
	struct chunk_fds fds; /* of `to` */
	uint8_t *table;
	uint8_t *data;  /* CHUNK_IO_BYTES, aligned */
	uint64_t twice; /* bytes of the volume's held ones that are only being moved */
	uint64_t present[CHUNK_WORDS];
	uint64_t unverified[CHUNK_WORDS];
	struct piece_run run; /* the object of the last piece that was looked at; length 0: none */
};

/* Pieces whose blocks follow one another. */
struct batch {
	uint32_t first; /* block */
	uint32_t blocks;
};

/* ---- checking -------------------------------------------------------------------------------- */

static bool run_covers(const struct piece_run *run, uint32_t offset)
{
	return run->length && offset >= run->offset && offset < run->offset + run->length;
}

/* The object at the offset; false when it is not known. */
static bool find_run(struct copy *copy, uint32_t offset)
{
	struct tier_set *set = copy->set;

	if (run_covers(&copy->run, offset))
		return true;
	if (!set->next_run ||
		set->next_run(set->next_run_arg, &copy->from->id, offset, &copy->run) < 0 ||
		!run_covers(&copy->run, offset)) {
		copy->run.length = 0;
		return false;
	}
	return true;
}

enum verdict {
	PIECE_GOOD,
	PIECE_BAD,
	PIECE_UNKNOWN,
};

static enum verdict judge(
	struct copy *copy, uint32_t offset, const struct piece_entry *entry, const void *data)
{
	uint32_t in_run;
	uint64_t seed;

	if (!find_run(copy, offset))
		return PIECE_UNKNOWN;
	in_run = offset - copy->run.offset;
	/* A piece that the table of today cuts otherwise: for a reader to judge. */
	if (in_run % PIECE_BYTES != 0 || entry->length > copy->run.length - in_run)
		return PIECE_UNKNOWN;
	seed = piece_seed(copy->run.object_seed, copy->run.first_piece + in_run / PIECE_BYTES);
	return hash_xxh3(data, entry->length, seed) == entry->xxh3 ? PIECE_GOOD : PIECE_BAD;
}

static void mark(uint64_t *words, uint32_t first, uint32_t n, bool value)
{
	for (uint32_t b = first; b < first + n; b++) {
		if (value)
			words[b / 64] |= 1ull << b % 64;
		else
			words[b / 64] &= ~(1ull << b % 64);
	}
}

static uint32_t blocks_of(const struct piece_entry *entry)
{
	return (entry->length + BLOCK_BYTES - 1) / BLOCK_BYTES;
}

/* The entry of a present piece that begins at the block; length 0: none does. */
static struct piece_entry entry_at(const struct copy *copy, uint32_t block)
{
	struct piece_entry entry;

	piece_entry_decode(copy->table + (size_t)block * CHUNK_ENTRY_BYTES, &entry);
	if (blocks_of(&entry) > CHUNK_BLOCKS - block ||
		!(copy->present[block / 64] >> block % 64 & 1))
		entry.length = 0;
	return entry;
}

static void check_batch(struct copy *copy, const struct batch *batch)
{
	uint32_t block = batch->first;

	while (block < batch->first + batch->blocks) {
		struct piece_entry entry = entry_at(copy, block);
		uint32_t n = blocks_of(&entry);
		const uint8_t *data = copy->data + (size_t)(block - batch->first) * BLOCK_BYTES;
		enum verdict verdict = judge(copy, block * BLOCK_BYTES, &entry, data);

		if (verdict == PIECE_BAD) {
			counter_add(&copy->set->counters.mismatches, 1);
			memset(copy->table + (size_t)block * CHUNK_ENTRY_BYTES, 0,
				CHUNK_ENTRY_BYTES);
			mark(copy->present, block, n, false);
		}
		mark(copy->unverified, block, n, verdict == PIECE_UNKNOWN);
		block += n;
	}
}

/* ---- copying --------------------------------------------------------------------------------- */

static int copy_batch(struct copy *copy, const struct batch *batch)
{
	uint32_t offset = batch->first * BLOCK_BYTES;
	uint32_t length = batch->blocks * BLOCK_BYTES;
	uint64_t began = clock_mono_ns();
	struct gate_call call;
	int r = gate_enter(&copy->from->tier->gate, GATE_READ, &call);

	if (r < 0)
		return r;
	/* The buffer is aligned and the blocks are whole: no other is needed. */
	r = chunk_file_read(
		chunk_fds(copy->from), &copy->from->place, offset, copy->data, length, NULL);
	gate_leave(&copy->from->tier->gate, &call);
	r = tier_io(copy->from->tier, r, began);
	if (r < 0)
		return r;
	check_batch(copy, batch);
	r = gate_enter(&copy->to->tier->gate, GATE_WRITE, &call);
	if (r < 0)
		return r;
	began = clock_mono_ns();
	r = chunk_file_write(&copy->fds, &copy->to->place, offset, copy->data, length, NULL);
	gate_leave(&copy->to->tier->gate, &call);
	return tier_io(copy->to->tier, r, began);
}

/* The next pieces from `block` on, at most CHUNK_IO_BYTES; blocks 0: none. */
static struct batch next_batch(const struct copy *copy, uint32_t block)
{
	struct batch batch = { 0 };

	while (block < CHUNK_BLOCKS) {
		struct piece_entry entry = entry_at(copy, block);
		uint32_t n = blocks_of(&entry);

		if (!n && batch.blocks)
			break;
		if (!n) {
			block++;
			continue;
		}
		if (!batch.blocks)
			batch.first = block;
		if (batch.blocks + n > CHUNK_IO_BYTES / BLOCK_BYTES)
			break;
		batch.blocks += n;
		block += n;
	}
	return batch;
}

/* Head and table as they are, without what this process found damaged. */
static int read_table(struct copy *copy)
{
	struct chunk *from = copy->from;
	uint64_t began = clock_mono_ns();
	struct chunk_head head;
	struct gate_call call;
	int r = gate_enter(&from->tier->gate, GATE_READ, &call);

	if (r < 0)
		return r;
	r = chunk_file_read_meta_at(chunk_fds(from), &from->place, &head, copy->table);
	gate_leave(&from->tier->gate, &call);
	r = tier_io(from->tier, r, began);
	if (r < 0)
		return r;
	chunk_table_scan(copy->table, copy->present);
	for (uint32_t w = 0; w < CHUNK_WORDS; w++)
		copy->present[w] &= atomic_load(&from->present[w]);
	for (uint32_t block = 0; block < CHUNK_BLOCKS; block++)
		if (entry_at(copy, block).length == 0)
			memset(copy->table + (size_t)block * CHUNK_ENTRY_BYTES, 0,
				CHUNK_ENTRY_BYTES);
	return 0;
}

static int copy_contents(struct copy *copy)
{
	uint64_t allocated = 0;
	uint64_t began;
	int r = read_table(copy);
	struct batch batch = next_batch(copy, 0);

	while (r == 0 && batch.blocks) {
		/* A new admission waits for the end of this move. */
		r = chunk_is_dropped(copy->from) ? -EBUSY : copy_batch(copy, &batch);
		batch = next_batch(copy, batch.first + batch.blocks);
	}
	if (r < 0)
		return r;
	CRASH_POINT("move.copied");
	began = clock_mono_ns();
	r = tier_io(copy->to->tier,
		chunk_file_write_table(&copy->fds, &copy->to->place, copy->table), began);
	if (r == 0 && chunk_file_allocated(&copy->fds, &allocated) == 0)
		chunk_settle(copy->to, 0, allocated); /* make_copy() gives the reservation back */
	/* Twice there for a moment: nothing of the volume is to go for that. */
	atomic_fetch_add(&copy->to->space->held, allocated);
	copy->twice = allocated;
	return r;
}

/* ---- publishing ------------------------------------------------------------------------------ */

static int rename_into_place(struct copy *copy)
{
	struct tier *tier = copy->to->tier;
	char path[FILE_NAME_BYTES];
	char dir[3];
	int r;

	file_id_path(copy->to->file, path);
	memcpy(dir, path, 2);
	dir[2] = '\0';
	r = disk_mkdir(tier->chk_fd, dir, 0700);
	return r < 0 ? r : disk_rename(tier->move_fd, path, tier->chk_fd, path);
}

/* The copy takes the chunk's place, unless that was dropped meanwhile. From then on it is the
 * set's: another thread may drop it at once, so it is in its queue before it can be found. */
static bool take_place(struct copy *copy)
{
	struct chunk *from = copy->from;
	struct chunk *to = copy->to;
	struct shard *shard = set_shard(copy->set, from->node.hash);
	bool complete = atomic_load(&to->present_blocks) == CHUNK_BLOCKS;
	bool mine;

	volumes_move_heat(&copy->set->volumes, from, to);
	pthread_mutex_lock(&shard->lock);
	pthread_mutex_lock(&from->lock);
	mine = chunk_is_live(from);
	if (mine) {
		chunk_set_state_locked(from, CHUNK_UNLINKING);
		chunk_set_state_locked(from, CHUNK_GONE);
		from->moved = true;
		atomic_store(&from->moving, NULL);
	}
	pthread_mutex_unlock(&from->lock);
	if (mine) {
		pthread_mutex_lock(&to->lock);
		chunk_set_state_locked(to, complete ? CHUNK_COMPLETE : CHUNK_FILLING);
		atomic_store(&to->moving, from->tier); /* until the old one is retired */
		pthread_mutex_unlock(&to->lock);
		map_remove(&shard->map, &from->node);
		set_insert_locked(shard, to, from->node.hash);
		volumes_queue(&copy->set->volumes, to);
	}
	pthread_mutex_unlock(&shard->lock);
	return mine;
}

static void retire(struct tier_set *set, struct chunk *from)
{
	(void)tier_index_remove(from->tier, &from->id); /* the tier knows when it failed */
	CRASH_POINT("move.unlisted");
	chunk_unlink_file(from);
	CRASH_POINT("move.unlinked");
	chunk_hold(from);
	volumes_unqueue(&set->volumes, from);
}

static int publish(struct copy *copy)
{
	struct chunk *to = copy->to;
	struct index_row row;
	char path[FILE_NAME_BYTES];
	int r;

	chunk_bits_load(to, copy->present, true);
	for (uint32_t w = 0; w < CHUNK_WORDS; w++) {
		uint64_t bits = copy->unverified[w] & copy->present[w];

		atomic_store(&to->unverified[w], bits);
		to->unverified_blocks += (uint32_t)__builtin_popcountll(bits);
	}
	if (to->unverified_blocks)
		to->boot = 0; /* of none: the next start does not trust it either */
	r = rename_into_place(copy);
	if (r < 0)
		return tier_io(to->tier, r, clock_mono_ns());
	CRASH_POINT("move.named");
	row = chunk_row(to);
	row.complete = atomic_load(&to->present_blocks) == CHUNK_BLOCKS;
	if (row.complete)
		(void)chunk_file_set_complete(&copy->fds, true); /* only a mode */
	r = tier_index_put(to->tier, &row);
	CRASH_POINT("move.listed");
	descriptor_adopt(&copy->set->descriptors, &to->descriptor, &copy->fds);
	if (r == 0 && take_place(copy)) {
		publish_chunk(to);
		retire(copy->set, copy->from);
		return 0;
	}
	/* Dropped while it was copied, or the index failed. */
	(void)tier_index_remove(to->tier, &to->id);
	file_id_path(to->file, path);
	(void)disk_unlink(to->tier->chk_fd, path, 0); /* or the next start's */
	return r < 0 ? r : -EBUSY;
}

/* ---- the whole way --------------------------------------------------------------------------- */

static int make_file(struct copy *copy)
{
	struct chunk_head head = { .id = copy->to->id };
	struct tier *tier = copy->to->tier;
	uint64_t began = clock_mono_ns();
	int r;

	if (tier->move_fd < 0)
		return -EIO;
	do {
		copy->to->file = head.file_id = tier_new_file_id(tier);
		r = chunk_file_create(tier->move_fd, &head, &copy->fds);
	} while (r == -EEXIST);
	CRASH_POINT("move.made");
	return tier_io(tier, r, began);
}

static int make_copy(struct copy *copy)
{
	uint64_t bytes = chunk_present_bytes(copy->from) + CHUNK_META_BYTES + COPY_SLACK_BYTES;
	int r = chunk_pin(copy->from);

	if (r < 0)
		return r;
	r = tier_reserve(copy->to->tier, bytes, 0);
	if (r == 0) {
		r = make_file(copy);
		if (r == 0)
			r = copy_contents(copy);
		tier_settle(copy->to->tier, bytes, 0);
	}
	chunk_unpin(copy->from);
	return r;
}

static void remove_leftover(struct copy *copy)
{
	char path[FILE_NAME_BYTES];

	if (!copy->to->file || copy->to->tier->move_fd < 0)
		return;
	file_id_path(copy->to->file, path);
	(void)disk_unlink(copy->to->tier->move_fd, path, 0); /* or the next start's */
}

int move_chunk(struct tier_set *set, struct chunk *chunk, struct tier *to)
{
	if (chunk->extent || chunk->tier == to || !chunk_begin_move(chunk, to))
		return -EBUSY;
	return move_begun(set, chunk, to);
}

int move_begun(struct tier_set *set, struct chunk *chunk, struct tier *to)
{
	struct copy *copy = calloc(1, sizeof(*copy));
	int r = -ENOMEM;

	if (copy) {
		*copy = (struct copy){ .set = set, .from = chunk, .fds = CHUNK_FDS_NONE };
		copy->to = chunk_new(set, to, &chunk->id);
		copy->table = malloc(CHUNK_TABLE_BYTES);
		copy->data = buffers_take(&set->bounce, CHUNK_IO_BYTES);
	}
	if (copy && copy->to && copy->table && copy->data) {
		copy->to->class = chunk->class;
		r = make_copy(copy);
		if (r == 0)
			r = publish(copy);
		if (r < 0)
			remove_leftover(copy);
	}
	set_end_move(set, r == 0 ? copy->to : chunk);
	if (copy) {
		atomic_fetch_sub(&chunk->space->held, copy->twice);
		chunk_fds_close(&copy->fds);
		buffers_give(&set->bounce, copy->data, CHUNK_IO_BYTES);
		free(copy->table);
		if (r < 0)
			chunk_unref(copy->to);
	}
	free(copy);
	if (r == 0)
		chunk_unref(chunk); /* the set's */
	return r;
}

/* ---- what a crash left ----------------------------------------------------------------------- */

static int remove_file(void *arg, int dir, const char *name)
{
	(void)arg;
	(void)disk_unlink(dir, name, 0); /* or at the next start */
	return 0;
}

static int sweep_directory(void *arg, int dir, const char *name)
{
	int fd = disk_open(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW, 0);

	if (fd < 0)
		return remove_file(arg, dir, name);
	if (disk_list(fd, remove_file, NULL) == 0)
		(void)disk_unlink(dir, name, AT_REMOVEDIR); /* or at the next start */
	disk_close(fd);
	return 0;
}

void move_open(struct tier *tier)
{
	int r = disk_mkdir(tier->dir_fd, MOVE_DIR, 0700);

	if (r == 0)
		r = disk_open(tier->dir_fd, MOVE_DIR, O_RDONLY | O_DIRECTORY | O_NOFOLLOW, 0);
	tier->move_fd = r;
	if (r >= 0 && disk_list(r, sweep_directory, NULL) < 0) {
		disk_close(r);
		tier->move_fd = -1;
	}
}
