/* The file that a chunk lies in: its own, or its extent's. See chunk_internal.h. */
#include "tiers/chunk_internal.h"
#include "base/clock.h"
#include "tiers/disk.h"
#include "tiers/tier_set_internal.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>

void chunk_set_extent(struct chunk *chunk, struct extent *extent)
{
	chunk->extent = extent_ref(extent);
	chunk->file = extent->file;
	chunk->place = extent_place(extent->bytes, chunk->id.chunk);
}

void chunk_leave_extent(struct chunk *chunk)
{
	uint64_t dead;

	if (!chunk->extent)
		return;
	pthread_mutex_lock(&chunk->lock);
	dead = chunk->charged;
	pthread_mutex_unlock(&chunk->lock);
	extent_unmark(chunk, false);
	extent_leave(chunk->extent, atomic_exchange(&chunk->counted, false), dead);
}

const struct chunk_fds *chunk_fds(const struct chunk *chunk)
{
	return chunk->extent ? &chunk->extent->descriptor.fds : &chunk->descriptor.fds;
}

static int open_own_file(void *arg, struct chunk_fds *ret_fds)
{
	const struct chunk *chunk = arg;

	return chunk_file_open(chunk->tier->chk_fd, chunk->file, ret_fds);
}

int chunk_pin(struct chunk *chunk)
{
	uint64_t began = clock_mono_ns();
	int r;

	if (health_get(&chunk->tier->health) == HEALTH_OUT)
		return -EIO;
	if (chunk->extent)
		r = extent_pin(chunk->extent);
	else
		r = descriptor_pin(
			&chunk->set->descriptors, &chunk->descriptor, open_own_file, chunk);
	if (r == -ENOENT) {
		(void)set_unlink(chunk->set, chunk); /* false: somebody else did, as well */
		return -ENODATA;
	}
	return tier_io(chunk->tier, r, began);
}

int chunk_pin_open(struct chunk *chunk)
{
	if (health_get(&chunk->tier->health) == HEALTH_OUT)
		return -EAGAIN;
	return descriptor_pin_open(&chunk->set->descriptors,
		chunk->extent ? &chunk->extent->descriptor : &chunk->descriptor);
}

void chunk_unpin(struct chunk *chunk)
{
	if (chunk->extent)
		extent_unpin(chunk->extent);
	else
		descriptor_unpin(&chunk->set->descriptors, &chunk->descriptor);
}

void chunk_note_mode(struct chunk *chunk)
{
	bool complete = chunk_state(chunk) == CHUNK_COMPLETE;

	if (chunk->extent && atomic_exchange(&chunk->counted, complete) != complete)
		extent_note_complete(chunk->extent, complete);
	else if (!chunk->extent)
		(void)chunk_file_set_complete(&chunk->descriptor.fds, complete);
}

void chunk_count_complete(struct chunk *chunk)
{
	if (chunk_state(chunk) == CHUNK_COMPLETE && !atomic_exchange(&chunk->counted, true))
		chunk->extent->complete++;
}

void chunk_unlink_file(struct chunk *chunk)
{
	char path[FILE_NAME_BYTES];

	if (chunk->extent) {
		extent_chunk_end(chunk->extent, &chunk->place);
		return;
	}
	file_id_path(chunk->file, path);
	/* Gone already, or adopted at the next start. */
	(void)disk_unlink(chunk->tier->chk_fd, path, 0);
}

int chunk_begin_in_extent(struct chunk *chunk)
{
	const uint64_t reserved = 2ull * CHUNK_HEAD_BYTES;
	uint8_t *table = malloc(CHUNK_TABLE_BYTES);
	struct extent *extent = chunk->extent;
	uint64_t allocated = 0;
	int r = table ? chunk_reserve(chunk, reserved, TIER_ADMIT_BYTES - reserved) : -ENOMEM;

	if (r == 0) {
		uint64_t began = clock_mono_ns();

		r = extent_pin(extent);
		if (r == 0) {
			r = extent_chunk_begin(extent, &chunk->id, &chunk->place, table);
			if (chunk_file_allocated(chunk_fds(chunk), &allocated) < 0)
				allocated = 0; /* the next look will charge it */
			extent_unpin(extent);
		}
		r = tier_io(chunk->tier, r, began);
		chunk_settle(chunk, reserved, allocated);
	}
	free(table);
	return r;
}

int chunk_make_in_extent(struct chunk *chunk)
{
	struct index_row row;
	int r = chunk_begin_in_extent(chunk);

	if (r < 0)
		return r;
	row = chunk_row(chunk);
	r = tier_index_put(chunk->tier, &row);
	if (r < 0)
		extent_chunk_end(chunk->extent, &chunk->place);
	return r;
}

/* ---- charges --------------------------------------------------------------------------------- */

uint64_t chunk_charge_locked(struct chunk *chunk, uint64_t allocated)
{
	uint64_t grown = 0;

	if (chunk->extent)
		grown = extent_charge(chunk->extent, allocated);
	else if (allocated > chunk->charged)
		grown = allocated - chunk->charged;
	chunk->charged += grown;
	return grown;
}

void chunk_charge_found(struct chunk *chunk)
{
	uint64_t blocks = (uint64_t)atomic_load(&chunk->present_blocks) * BLOCK_BYTES;

	pthread_mutex_lock(&chunk->lock);
	chunk->charged = extent_take_charge(chunk->extent, blocks + CHUNK_META_BYTES);
	pthread_mutex_unlock(&chunk->lock);
}

/* ---- descriptors for readers ----------------------------------------------------------------- */

int chunk_fds_reopen(const struct chunk_fds *fds, int flags)
{
	struct stat st;
	char path[32];
	int fd = disk_fstat(fds->buffered, &st);

	if (fd == 0 && st.st_nlink == 0)
		fd = -ENOENT;
	if (fd < 0)
		return fd;
	(void)snprintf(path, sizeof(path), "/proc/self/fd/%d", fds->buffered);
	fd = disk_open(AT_FDCWD, path, O_RDONLY | flags, 0);
	return fd == -EINVAL && flags ? disk_open(AT_FDCWD, path, O_RDONLY, 0) : fd;
}

int chunk_open_fd(struct chunk *chunk, int *ret_fd)
{
	uint64_t began = clock_mono_ns();
	struct gate_call call;
	int fd = -EIO;
	int r;

	CHECK_MAGIC(chunk, CHUNK_MAGIC);
	r = gate_enter(&chunk->tier->gate, GATE_READ, &call);
	if (r < 0)
		return r;
	r = chunk_pin(chunk);
	if (r == 0) {
		fd = chunk_fds_reopen(chunk_fds(chunk), O_DIRECT);
		chunk_unpin(chunk);
	}
	gate_leave(&chunk->tier->gate, &call);
	if (r < 0)
		return r;
	if (fd == -ENOENT) { /* it was unlinked behind our back */
		if (chunk->extent)
			extent_lose(chunk->extent);
		(void)set_unlink(chunk->set, chunk); /* false: somebody else did, as well */
		return -ENODATA;
	}
	if (fd < 0)
		return tier_io(chunk->tier, fd, began);
	*ret_fd = fd;
	return 0;
}

uint64_t chunk_extent_bytes(const struct chunk *chunk)
{
	CHECK_MAGIC(chunk, CHUNK_MAGIC);
	return chunk->extent ? chunk->extent->bytes : 0;
}
