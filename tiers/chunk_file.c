/* Chunks on disk. See chunk_file_internal.h. */
#include "tiers/chunk_file_internal.h"
#include "base/cleanup.h"
#include "base/crash_point.h"
#include "base/hash.h"
#include "tiers/disk.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

void file_id_path(uint64_t id, char out[FILE_NAME_BYTES])
{
	(void)snprintf(out, FILE_NAME_BYTES, "%02x/%016" PRIx64, (unsigned int)(id & 0xff), id);
}

int file_id_parse(const char *name, uint64_t *ret_id)
{
	uint8_t raw[FILE_ID_HEX / 2];
	uint64_t id = 0;
	int r = hash_unhex(name, raw, sizeof(raw));

	if (r < 0)
		return r;
	for (size_t i = 0; i < sizeof(raw); i++)
		id = id << 8 | raw[i];
	*ret_id = id;
	return 0;
}

void chunk_table_scan(const uint8_t table[CHUNK_TABLE_BYTES], uint64_t ret_present[CHUNK_WORDS])
{
	uint32_t block = 0;

	memset(ret_present, 0, CHUNK_WORDS * sizeof(*ret_present));
	while (block < CHUNK_BLOCKS) {
		struct piece_entry entry;
		uint32_t blocks;

		piece_entry_decode(table + (size_t)block * CHUNK_ENTRY_BYTES, &entry);
		blocks = (entry.length + BLOCK_BYTES - 1) / BLOCK_BYTES;
		if (blocks == 0 || blocks > CHUNK_BLOCKS - block) {
			block++;
			continue;
		}
		for (uint32_t end = block + blocks; block < end; block++)
			ret_present[block / 64] |= 1ull << (block % 64);
	}
}

void chunk_fds_close(struct chunk_fds *fds)
{
	disk_close(fds->buffered);
	disk_close(fds->direct);
	*fds = CHUNK_FDS_NONE;
}

struct chunk_fds chunk_fds_take(struct chunk_fds *fds)
{
	struct chunk_fds taken = *fds;

	*fds = CHUNK_FDS_NONE;
	return taken;
}

/* Opens the second descriptor; a filesystem without O_DIRECT leaves it -1. */
static int open_direct(int chk, const char *path, int flags, int *ret_fd)
{
	int fd = disk_open(chk, path, flags | O_DIRECT | O_NOFOLLOW, 0);

	if (fd < 0 && fd != -EINVAL)
		return fd;
	*ret_fd = fd < 0 ? -1 : fd;
	return 0;
}

int chunk_file_create(int chk, const struct chunk_head *head, struct chunk_fds *ret_fds)
{
	_cleanup_(chunk_fds_close) struct chunk_fds fds = CHUNK_FDS_NONE;
	const int flags = O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW;
	uint8_t bytes[CHUNK_HEAD_BYTES];
	char path[FILE_NAME_BYTES];
	char dir[3];
	int r;

	file_id_path(head->file_id, path);
	fds.buffered = disk_open(chk, path, flags, CHUNK_FILE_MODE);
	if (fds.buffered == -ENOENT) {
		memcpy(dir, path, 2);
		dir[2] = '\0';
		r = disk_mkdir(chk, dir, 0700);
		if (r < 0)
			return r;
		fds.buffered = disk_open(chk, path, flags, CHUNK_FILE_MODE);
	}
	if (fds.buffered < 0)
		return fds.buffered;
	chunk_head_encode(head, bytes);
	CRASH_POINT("chunk.named");
	r = disk_truncate(fds.buffered, CHUNK_FILE_BYTES);
	CRASH_POINT("chunk.sized");
	if (r == 0)
		r = disk_pwrite(fds.buffered, bytes, sizeof(bytes), CHUNK_HEAD_OFFSET);
	if (r == 0)
		r = open_direct(chk, path, O_RDWR, &fds.direct);
	if (r < 0) {
		(void)disk_unlink(chk, path, 0); /* what matters is r */
		return r;
	}
	*ret_fds = chunk_fds_take(&fds);
	return 0;
}

int chunk_fds_open(int dir, const char *path, int flags, struct chunk_fds *ret_fds)
{
	_cleanup_(chunk_fds_close) struct chunk_fds fds = CHUNK_FDS_NONE;
	bool locked = false;
	int r;

	flags |= O_RDWR | O_NOFOLLOW;
	fds.buffered = disk_open(dir, path, flags, CHUNK_FILE_MODE);
	if (fds.buffered == -EACCES) { /* complete: its mode keeps even us out */
		locked = true;
		r = disk_chmod(dir, path, CHUNK_FILE_MODE);
		if (r < 0)
			return r;
		fds.buffered = disk_open(dir, path, flags, 0);
	}
	if (fds.buffered < 0)
		return fds.buffered;
	r = open_direct(dir, path, O_RDWR, &fds.direct);
	if (locked) {
		int mode_r = disk_fchmod(fds.buffered, CHUNK_FILE_READY);

		r = r == 0 ? mode_r : r;
	}
	if (r < 0)
		return r;
	*ret_fds = chunk_fds_take(&fds);
	return 0;
}

int chunk_file_open(int chk, uint64_t id, struct chunk_fds *ret_fds)
{
	char path[FILE_NAME_BYTES];

	file_id_path(id, path);
	return chunk_fds_open(chk, path, 0, ret_fds);
}

int chunk_file_set_complete(const struct chunk_fds *fds, bool complete)
{
	return disk_fchmod(fds->buffered, complete ? CHUNK_FILE_READY : CHUNK_FILE_MODE);
}

int chunk_file_read_meta(int chk, uint64_t id, struct chunk_head *ret_head,
	uint8_t ret_table[CHUNK_TABLE_BYTES], uint64_t *ret_allocated)
{
	_cleanup_disk_close_ int fd = -1;
	uint8_t bytes[CHUNK_HEAD_BYTES];
	char path[FILE_NAME_BYTES];
	struct stat st;
	int r;

	file_id_path(id, path);
	fd = disk_open(chk, path, O_RDONLY | O_NOFOLLOW, 0);
	r = fd < 0 ? fd : disk_fstat(fd, &st);
	if (r == 0)
		r = disk_pread(fd, bytes, sizeof(bytes), CHUNK_HEAD_OFFSET);
	if (r == 0)
		r = chunk_head_decode(bytes, ret_head);
	if (r == 0)
		r = disk_pread(fd, ret_table, CHUNK_TABLE_BYTES, CHUNK_TABLE_OFFSET);
	if (r < 0)
		return r;
	*ret_allocated = (uint64_t)st.st_blocks * 512;
	return 0;
}

int chunk_file_read_meta_at(const struct chunk_fds *fds, const struct chunk_place *place,
	struct chunk_head *ret_head, uint8_t ret_table[CHUNK_TABLE_BYTES])
{
	uint8_t bytes[CHUNK_HEAD_BYTES];
	int r = disk_pread(fds->buffered, bytes, sizeof(bytes), place->head);

	if (r == 0)
		r = chunk_head_decode(bytes, ret_head);
	if (r == 0)
		r = disk_pread(
			fds->buffered, ret_table, CHUNK_TABLE_BYTES, chunk_place_table(place));
	return r;
}

int chunk_file_allocated(const struct chunk_fds *fds, uint64_t *ret_bytes)
{
	struct stat st;
	int r = disk_fstat(fds->buffered, &st);

	if (r < 0)
		return r;
	*ret_bytes = (uint64_t)st.st_blocks * 512;
	return 0;
}

static int data_fd(const struct chunk_fds *fds)
{
	return fds->direct >= 0 ? fds->direct : fds->buffered;
}

static bool aligned(const void *p)
{
	return ((uintptr_t)p & (BLOCK_BYTES - 1)) == 0;
}

int chunk_file_write(const struct chunk_fds *fds, const struct chunk_place *place, uint32_t offset,
	const void *data, uint32_t length, void *bounce)
{
	uint64_t at = place->data + offset;
	uint32_t padded = (uint32_t)align_up(length, BLOCK_BYTES);

	ensure(length <= CHUNK_IO_BYTES && offset % BLOCK_BYTES == 0);
	if (!bounce || (aligned(data) && padded == length))
		return disk_pwrite(data_fd(fds), data, padded, at);
	/* In one write, also when all but the last block is aligned. */
	memcpy(bounce, data, length);
	memset((char *)bounce + length, 0, padded - length);
	return disk_pwrite(data_fd(fds), bounce, padded, at);
}

/* A copy of the run in whole blocks, the rest of the last of which is zero. */
static void pad(const struct chunk_part *part, char *out)
{
	uint32_t length = part->run.length;

	memcpy(out, part->data, length);
	memset(out + length, 0, align_up(length, BLOCK_BYTES) - length);
}

int chunk_file_write_parts(const struct chunk_fds *fds, const struct chunk_place *place,
	const struct chunk_part *parts, uint32_t n, void *bounce)
{
	struct iovec iov[CHUNK_IO_BYTES / BLOCK_BYTES];
	uint32_t first = parts[0].run.offset;
	uint32_t bytes = 0;

	if (n == 1)
		return chunk_file_write(
			fds, place, first, parts[0].data, parts[0].run.length, bounce);
	ensure(n <= ARRAY_SIZE(iov));
	for (uint32_t i = 0; i < n; i++) {
		uint32_t length = (uint32_t)align_up(parts[i].run.length, BLOCK_BYTES);

		ensure(parts[i].run.offset == first + bytes && bytes + length <= CHUNK_IO_BYTES);
		if (bounce)
			pad(&parts[i], (char *)bounce + bytes);
		else
			iov[i] = (struct iovec){ (void *)(uintptr_t)parts[i].data, length };
		bytes += length;
	}
	if (bounce)
		return disk_pwrite(data_fd(fds), bounce, bytes, place->data + first);
	return disk_pwritev(data_fd(fds), iov, (int)n, place->data + first);
}

int chunk_file_read(const struct chunk_fds *fds, const struct chunk_place *place, uint32_t offset,
	void *out, uint32_t length, void *bounce)
{
	uint64_t at = place->data + offset;
	uint32_t whole = aligned(out) ? (uint32_t)align_down(length, BLOCK_BYTES) : 0;
	uint32_t rest = length - whole;
	int r = 0;

	ensure(length <= CHUNK_IO_BYTES && offset % BLOCK_BYTES == 0);
	if (whole)
		r = disk_pread(data_fd(fds), out, whole, at);
	if (r < 0 || rest == 0)
		return r;
	r = disk_pread(data_fd(fds), bounce, align_up(rest, BLOCK_BYTES), at + whole);
	if (r == 0)
		memcpy((char *)out + whole, bounce, rest);
	return r;
}

int chunk_file_read_cached(const struct chunk_fds *fds, const struct chunk_place *place,
	uint32_t offset, void *out, uint32_t length)
{
	return disk_pread(fds->buffered, out, length, place->data + offset);
}

static uint64_t entry_offset(const struct chunk_place *place, uint32_t offset)
{
	return chunk_place_table(place) + (uint64_t)(offset / BLOCK_BYTES) * CHUNK_ENTRY_BYTES;
}

/*
 * One call for all: the entries between belong to blocks inside these pieces and are zero for ever.
 * A kill in the middle leaves whole entries or, where an entry crosses two pages, one whose length
 * (on the second page) is still zero, which means absent.
 */
int chunk_file_write_entries(const struct chunk_fds *fds, const struct chunk_place *place,
	uint32_t offset, const uint8_t *table, uint32_t bytes)
{
	return disk_pwrite(fds->buffered, table, bytes, entry_offset(place, offset));
}

int chunk_file_write_table(const struct chunk_fds *fds, const struct chunk_place *place,
	const uint8_t table[CHUNK_TABLE_BYTES])
{
	return disk_pwrite(fds->buffered, table, CHUNK_TABLE_BYTES, chunk_place_table(place));
}

int chunk_file_read_table(const struct chunk_fds *fds, const struct chunk_place *place,
	uint32_t offset, uint8_t *out, uint32_t length)
{
	return disk_pread(fds->buffered, out, (size_t)length / BLOCK_BYTES * CHUNK_ENTRY_BYTES,
		entry_offset(place, offset));
}

static int read_table_now(const struct chunk_fds *fds, const struct chunk_place *place,
	uint32_t offset, uint8_t *table, uint32_t length)
{
	return disk_pread_now(fds->buffered, table,
		(size_t)length / BLOCK_BYTES * CHUNK_ENTRY_BYTES, entry_offset(place, offset));
}

int chunk_file_read_now(const struct chunk_fds *fds, const struct chunk_place *place,
	uint32_t offset, uint8_t *table, void *out, uint32_t length)
{
	int r = read_table_now(fds, place, offset, table, length);

	return r < 0 ? r : disk_pread_now(fds->buffered, out, length, place->data + offset);
}

int chunk_file_splice_now(const struct chunk_fds *fds, const struct chunk_place *place,
	uint32_t offset, uint8_t *table, int pipe, uint32_t length)
{
	int r = read_table_now(fds, place, offset, table, length);

	return r < 0 ? r : disk_splice_now(fds->buffered, pipe, length, place->data + offset);
}

int chunk_file_read_entries(const struct chunk_fds *fds, const struct chunk_place *place,
	uint32_t offset, struct piece_entry *ret_entries, uint32_t n)
{
	uint8_t span[CHUNK_RUN_SPAN_BYTES];
	int r;

	ensure(n >= 1 && n <= CHUNK_RUN_PIECES);
	r = disk_pread(fds->buffered, span, (n - 1) * CHUNK_PIECE_STRIDE + CHUNK_ENTRY_BYTES,
		entry_offset(place, offset));
	if (r < 0)
		return r;
	for (uint32_t i = 0; i < n; i++)
		piece_entry_decode(span + (size_t)i * CHUNK_PIECE_STRIDE, &ret_entries[i]);
	return 0;
}
