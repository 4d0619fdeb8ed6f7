/* Rows of the index as bytes, and its directory. See index_internal.h. */
#include "tiers/index_internal.h"
#include "tiers/disk.h"

#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

#define ROW_VERSION   2 /* 1 had no place: every chunk had its own file */
#define ROW_V1        1
#define ROW_COMPLETE  2
#define ROW_FILLING   1
#define ROW_OWNED     0
#define ROW_COPY      1
#define ROW_OWN_FILE  0
#define ROW_IN_EXTENT 1

static void put_be(uint8_t *out, uint64_t v)
{
	for (int i = 0; i < 8; i++)
		out[i] = (uint8_t)(v >> (56 - 8 * i));
}

static uint64_t get_be(const uint8_t *in)
{
	uint64_t v = 0;

	for (int i = 0; i < 8; i++)
		v = v << 8 | in[i];
	return v;
}

static void put_le(uint8_t *out, uint64_t v, int bytes)
{
	for (int i = 0; i < bytes; i++)
		out[i] = (uint8_t)(v >> (8 * i));
}

static uint64_t get_le(const uint8_t *in, int bytes)
{
	uint64_t v = 0;

	for (int i = 0; i < bytes; i++)
		v |= (uint64_t)in[i] << (8 * i);
	return v;
}

void index_key_encode(const struct chunk_id *id, uint8_t out[INDEX_KEY_BYTES])
{
	memcpy(out, id->volume.bytes, VOLUME_ID_LEN);
	put_be(out + VOLUME_ID_LEN, id->lineage);
	put_be(out + VOLUME_ID_LEN + 8, id->chunk);
}

void index_value_encode(const struct index_row *row, uint8_t out[INDEX_VALUE_BYTES])
{
	out[0] = ROW_VERSION;
	out[1] = row->complete ? ROW_COMPLETE : ROW_FILLING;
	out[2] = row->class == TIER_COPY ? ROW_COPY : ROW_OWNED;
	out[3] = row->extent ? ROW_IN_EXTENT : ROW_OWN_FILE;
	put_le(out + 4, row->boot, 4);
	put_le(out + 8, row->file, 8);
}

int index_row_decode(const void *key, size_t key_len, const void *value, size_t value_len,
	struct index_row *ret_row)
{
	const uint8_t *k = key;
	const uint8_t *v = value;
	struct index_row row;

	if (key_len != INDEX_KEY_BYTES || value_len != INDEX_VALUE_BYTES ||
		(v[0] != ROW_VERSION && v[0] != ROW_V1) ||
		(v[1] != ROW_COMPLETE && v[1] != ROW_FILLING) || v[2] > ROW_COPY ||
		v[3] > (v[0] == ROW_V1 ? ROW_OWN_FILE : ROW_IN_EXTENT))
		return -EBADMSG;
	memcpy(row.id.volume.bytes, k, VOLUME_ID_LEN);
	row.id.lineage = get_be(k + VOLUME_ID_LEN);
	row.id.chunk = get_be(k + VOLUME_ID_LEN + 8);
	row.complete = v[1] == ROW_COMPLETE;
	row.class = v[2] == ROW_COPY ? TIER_COPY : TIER_OWNED;
	row.extent = v[3] == ROW_IN_EXTENT;
	row.boot = (uint32_t)get_le(v + 4, 4);
	row.file = get_le(v + 8, 8);
	*ret_row = row;
	return 0;
}

/* Calls fn for every file of a directory; the first error of fn ends it. */
static int each_file(const char *path, int (*fn)(void *arg, int dir, const char *name), void *arg)
{
	_cleanup_disk_close_ int dir = disk_open(AT_FDCWD, path, O_RDONLY | O_DIRECTORY, 0);

	if (dir < 0)
		return dir == -ENOENT ? 0 : dir;
	return disk_list(dir, fn, arg);
}

static int add_bytes(void *arg, int dir, const char *name)
{
	uint64_t *sum = arg;
	struct stat st;

	if (disk_stat(dir, name, &st) == 0)
		*sum += (uint64_t)st.st_blocks * 512;
	return 0;
}

uint64_t index_dir_bytes(const char *path)
{
	uint64_t sum = 0;

	(void)each_file(path, add_bytes, &sum); /* what cannot be seen is not counted */
	return sum;
}

static int remove_file(void *arg, int dir, const char *name)
{
	int r = disk_unlink(dir, name, 0);

	(void)arg;
	return r == -ENOENT ? 0 : r;
}

int index_dir_remove(const char *path)
{
	int r = each_file(path, remove_file, NULL);

	if (r == 0)
		r = disk_unlink(AT_FDCWD, path, AT_REMOVEDIR);
	return r == -ENOENT ? 0 : r;
}
