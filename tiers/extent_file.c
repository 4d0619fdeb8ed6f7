/* The files of extents: names, feet, heads of their chunks. See extent_internal.h. */
#include "base/cleanup.h"
#include "base/crash_point.h"
#include "base/hash.h"
#include "tiers/disk.h"
#include "tiers/extent_internal.h"
#include "tiers/tier_set_internal.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define NEW_SUFFIX ".new"

/* ---- names ----------------------------------------------------------------------------------- */

static void dir_path(const struct volume_id *volume, uint64_t lineage, char out[EXTENT_DIR_BYTES])
{
	char hex[2 * VOLUME_ID_LEN + 1];

	hash_hex(volume->bytes, VOLUME_ID_LEN, hex);
	(void)snprintf(out, EXTENT_DIR_BYTES, EXT_DIR "/%s.%016" PRIx64, hex, lineage);
}

void extent_path(const struct extent *extent, bool aside, char out[EXTENT_PATH_BYTES])
{
	char dir[EXTENT_DIR_BYTES];

	dir_path(&extent->volume, extent->lineage, dir);
	if (aside)
		(void)snprintf(out, EXTENT_PATH_BYTES, "%s/%" PRIu64 ".%016" PRIx64, dir,
			extent->number, extent->file);
	else
		(void)snprintf(out, EXTENT_PATH_BYTES, "%s/%" PRIu64, dir, extent->number);
}

/* ---- files ----------------------------------------------------------------------------------- */

int extent_read_foot(int fd, struct extent_foot *ret_foot, uint64_t *ret_allocated)
{
	uint8_t bytes[EXTENT_FOOT_BYTES];
	uint64_t extent_bytes;
	struct stat st;
	int r = disk_fstat(fd, &st);

	if (r < 0)
		return r;
	extent_bytes = S_ISREG(st.st_mode) ? extent_bytes_of_file((uint64_t)st.st_size) : 0;
	if (extent_bytes == 0)
		return -EBADMSG;
	r = disk_pread(fd, bytes, sizeof(bytes), extent_foot_offset(extent_bytes));
	if (r == 0)
		r = extent_foot_decode(bytes, ret_foot);
	if (r == 0 && ret_foot->extent_bytes != extent_bytes)
		r = -EBADMSG;
	if (r == 0)
		*ret_allocated = (uint64_t)st.st_blocks * 512;
	return r;
}

/* What the name says may be another file by now: only the foot's id tells. */
static int open_file(void *arg, struct chunk_fds *ret_fds)
{
	_cleanup_(chunk_fds_close) struct chunk_fds fds = CHUNK_FDS_NONE;
	const struct extent *extent = arg;
	char path[EXTENT_PATH_BYTES];
	struct extent_foot foot = { 0 };
	uint64_t allocated;
	int r = -ENOENT;

	for (int aside = 0; r == -ENOENT && aside < 2; aside++) {
		extent_path(extent, aside, path);
		r = chunk_fds_open(extent->tier->dir_fd, path, 0, &fds);
		if (r == 0)
			r = extent_read_foot(fds.buffered, &foot, &allocated);
		if (r == 0 && foot.file_id != extent->file)
			r = -ENOENT;
		if (r < 0)
			chunk_fds_close(&fds);
	}
	if (r < 0)
		return r;
	*ret_fds = chunk_fds_take(&fds);
	return 0;
}

int extent_pin(struct extent *extent)
{
	int r = descriptor_pin(&extent->set->descriptors, &extent->descriptor, open_file, extent);

	if (r == -ENOENT)
		extent_lose(extent);
	return r;
}

void extent_lose(struct extent *extent)
{
	pthread_mutex_lock(&extent->set->extents.lock);
	extent->lost = true;
	pthread_mutex_unlock(&extent->set->extents.lock);
}

void extent_unpin(struct extent *extent)
{
	descriptor_unpin(&extent->set->descriptors, &extent->descriptor);
}

static int make_directories(const struct extent *extent)
{
	char dir[EXTENT_DIR_BYTES];
	int r = disk_mkdir(extent->tier->dir_fd, EXT_DIR, 0700);

	dir_path(&extent->volume, extent->lineage, dir);
	return r < 0 ? r : disk_mkdir(extent->tier->dir_fd, dir, 0700);
}

static int write_foot(const struct extent *extent, const struct chunk_fds *fds)
{
	const struct extent_foot foot = {
		.volume = extent->volume,
		.lineage = extent->lineage,
		.number = extent->number,
		.file_id = extent->file,
		.extent_bytes = extent->bytes,
	};
	uint8_t bytes[EXTENT_FOOT_BYTES];
	int r = disk_truncate(fds->buffered, extent_file_bytes(extent->bytes));

	extent_foot_encode(&foot, bytes);
	if (r == 0)
		r = disk_pwrite(
			fds->buffered, bytes, sizeof(bytes), extent_foot_offset(extent->bytes));
	return r;
}

/* Makes the file whole under another name first: what has the right name has a foot, unless power
 * failed meanwhile. */
int extent_make_file(struct extent *extent)
{
	_cleanup_(chunk_fds_close) struct chunk_fds fds = CHUNK_FDS_NONE;
	char temporary[EXTENT_PATH_BYTES + sizeof(NEW_SUFFIX)];
	struct tier *tier = extent->tier;
	char path[EXTENT_PATH_BYTES];
	uint64_t allocated = 0;
	int r = make_directories(extent);

	if (r < 0)
		return r;
	extent_path(extent, false, path);
	(void)snprintf(temporary, sizeof(temporary), "%s" NEW_SUFFIX, path);
	(void)disk_unlink(tier->dir_fd, temporary, 0); /* of a start that failed */
	r = chunk_fds_open(tier->dir_fd, temporary, O_CREAT | O_EXCL, &fds);
	if (r < 0)
		return r;
	r = write_foot(extent, &fds);
	CRASH_POINT("extent.made");
	if (r == 0)
		r = disk_rename(tier->dir_fd, temporary, tier->dir_fd, path);
	CRASH_POINT("extent.named");
	if (r < 0) {
		(void)disk_unlink(tier->dir_fd, temporary, 0); /* what matters is r */
		return r;
	}
	if (chunk_file_allocated(&fds, &allocated) == 0)
		extent_charge_file(extent, allocated);
	descriptor_adopt(&extent->set->descriptors, &extent->descriptor, &fds);
	return 0;
}

void extent_unlink(struct extent *extent)
{
	struct tier *tier = extent->tier;
	char path[EXTENT_PATH_BYTES];
	char dir[EXTENT_DIR_BYTES];

	extent_path(extent, extent->aside, path);
	(void)disk_unlink(tier->dir_fd, path, 0); /* or at the next start, when nothing is in it */
	CRASH_POINT("extent.unlinked");
	dir_path(&extent->volume, extent->lineage, dir);
	(void)disk_unlink(tier->dir_fd, dir, AT_REMOVEDIR); /* when it was the last */
}

/* ---- heads ----------------------------------------------------------------------------------- */

int extent_set_aside(struct extent *extent)
{
	struct extents *extents = &extent->set->extents;
	struct tier *tier = extent->tier;
	char from[EXTENT_PATH_BYTES];
	char to[EXTENT_PATH_BYTES];
	int r;

	extent_path(extent, false, from);
	extent_path(extent, true, to);
	r = disk_rename(tier->dir_fd, from, tier->dir_fd, to);
	if (r < 0)
		return r;
	pthread_mutex_lock(&extents->lock);
	extent->aside = true;
	pthread_mutex_unlock(&extents->lock);
	return 0;
}

static bool all_zero(const uint8_t *bytes, size_t n)
{
	return bytes[0] == 0 && memcmp(bytes, bytes + 1, n - 1) == 0;
}

int extent_chunk_begin(struct extent *extent, const struct chunk_id *id,
	const struct chunk_place *place, uint8_t table[CHUNK_TABLE_BYTES])
{
	const struct chunk_head head = { .id = *id, .file_id = extent->file };
	int fd = extent->descriptor.fds.buffered;
	uint8_t bytes[CHUNK_HEAD_BYTES];
	int r = disk_pread(fd, table, CHUNK_TABLE_BYTES, chunk_place_table(place));

	if (r == 0 && !all_zero(table, CHUNK_TABLE_BYTES)) {
		memset(table, 0, CHUNK_TABLE_BYTES);
		r = disk_pwrite(fd, table, CHUNK_TABLE_BYTES, chunk_place_table(place));
	}
	if (r < 0)
		return r;
	chunk_head_encode(&head, bytes);
	return disk_pwrite(fd, bytes, sizeof(bytes), place->head);
}

void extent_chunk_end(struct extent *extent, const struct chunk_place *place)
{
	static const uint8_t none[CHUNK_HEAD_BYTES];

	if (extent_pin(extent) < 0)
		return;
	if (disk_pwrite(extent->descriptor.fds.buffered, none, sizeof(none), place->head) < 0)
		counter_add(
			&extent->set->counters.io_errors, 1); /* the next start finds it again */
	extent_unpin(extent);
}

int extent_has_head(
	struct extent *extent, const struct chunk_id *id, const struct chunk_place *place)
{
	uint8_t bytes[CHUNK_HEAD_BYTES];
	struct chunk_head head;
	int r = disk_pread(extent->descriptor.fds.buffered, bytes, sizeof(bytes), place->head);

	if (r < 0)
		return r;
	return chunk_head_decode(bytes, &head) == 0 && chunk_id_equal(&head.id, id) &&
	       head.file_id == extent->file;
}
