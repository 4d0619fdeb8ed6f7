/*
 * Fuzzer of the object table and what is built from it: no input may crash, every row that is read
 * obeys the rules, is found by its key and its offset, and the image of a table that checks out can
 * be built and resolved.
 *
 * The first byte chooses what the rest is: 0 a table file whose hashes are put right first, so that
 * damage gets past them; else the rows of one block, wrapped in a valid file.
 */
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>
#include <zstd.h>
#include "base/file.h"
#include "catalog/catalog_internal.h"
#include "catalog/table_format.h"

#define VOLUME_BYTES_BUILT (64ull << 30) /* larger images are only slow */
#define INPUT_MAX          65536u

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Puts the hashes of a table file right, as far as its header and index lead anywhere. */
static void hashes_fix(uint8_t *file, size_t size)
{
	struct table_header h;
	struct hash_sha256 *sha = hash_sha256_new();
	size_t at;

	ensure(sha);
	memcpy(&h, file, sizeof(h));
	if (h.index_offset > size || h.index_bytes > size - h.index_offset)
		h.index_offset = h.index_bytes = 0;
	for (at = h.index_offset;
		at + sizeof(struct table_index_entry) <= h.index_offset + h.index_bytes;) {
		struct table_index_entry entry;

		memcpy(&entry, file + at, sizeof(entry));
		if (entry.offset < size && entry.packed_bytes <= size - entry.offset)
			hash_sha256(file + entry.offset, entry.packed_bytes, entry.hash);
		memcpy(file + at, &entry, sizeof(entry));
		at += sizeof(entry) + entry.key_len;
	}
	hash_sha256_update(sha, file, TABLE_HASHED_BYTES);
	hash_sha256_update(sha, file + h.index_offset, h.index_bytes);
	hash_sha256_final(sha, h.hash);
	memcpy(file + offsetof(struct table_header, hash), h.hash, sizeof(h.hash));
}

/* Writes a table of one block with these rows; 0 when they are no rows. */
static size_t rows_wrap(const uint8_t *raw, size_t size, uint8_t *file, size_t max)
{
	struct table_header h = {
		.magic = "GRNTABL", .version = TABLE_VERSION, .generation = 1, .blocks = 1
	};
	struct table_index_entry entry = { .offset = sizeof(h), .raw_bytes = (uint32_t)size };
	static struct table_row row;
	struct row_base base = { 0 };
	const uint8_t *p = raw;
	uint8_t *index;
	char key[LIMIT_KEY_BYTES];

	h.magic[7] = 'E';
	for (row.key_len = 0; p < raw + size; h.rows++) {
		if (h.rows % TABLE_RESTART == 0) {
			row.key_len = 0;
			base = (struct row_base){ 0 };
		}
		if (row_decode(&p, raw + size, &base, &row) < 0)
			return 0;
		if (h.rows == 0) {
			entry.key_len = row.key_len;
			memcpy(key, row.key, row.key_len);
		}
		h.dead_rows += row.flags & ROW_DEAD;
		h.live_files += !(row.flags & (ROW_DEAD | ROW_DIRECTORY));
		h.live_bytes += row.flags & (ROW_DEAD | ROW_DIRECTORY) ? 0 : row.size;
		h.end = max(h.end, base.end);
	}
	entry.packed_bytes =
		(uint32_t)ZSTD_compress(file + sizeof(h), max - sizeof(h), raw, size, 1);
	h.index_offset = sizeof(h) + entry.packed_bytes;
	h.index_bytes = sizeof(entry) + entry.key_len;
	index = file + h.index_offset;
	memcpy(index, &entry, sizeof(entry));
	memcpy(index + sizeof(entry), key, entry.key_len);
	memcpy(file, &h, sizeof(h));
	return h.index_offset + h.index_bytes;
}

static void rows_check(struct table *t)
{
	struct table_cursor cursor = { 0 };
	static struct table_row row;
	static struct table_row found;
	bool checked = table_check(t) == 0;

	while (table_next(t, &cursor, &row) == 0) {
		ensure(row.key_len > 0 && row.key_len <= LIMIT_KEY_BYTES &&
			strlen(row.key) == row.key_len);
		ensure(!row_has_bytes(&row) ||
			layout_after(row.offset, row.size) <= table_info(t)->end);
		if (!(row.flags & ROW_DEAD) && checked) {
			ensure(table_find_key(t, row.key, row.key_len, &found) == 0);
			ensure(found.ordinal == row.ordinal);
		}
		if (checked && row_has_bytes(&row)) {
			ensure(table_find_offset(t, row.offset + row.size - 1, &found) == 0);
			ensure(found.ordinal == row.ordinal);
		}
	}
	table_cursor_release(&cursor);
}

static void image_check(struct table *t)
{
	static const char path[] = "/dev/shm/granary-fuzz-image";
	struct image_options options = { .umask = 022 };
	static struct table_row row;
	struct image_info info;
	int r;

	if (table_check(t) < 0 || table_info(t)->end > VOLUME_BYTES_BUILT)
		return;
	r = image_build(t, &options, path, NULL, NULL, &info, NULL);
	ensure(r == 0);
	ensure(info.files + info.skipped <= table_info(t)->rows);
	ensure(image_resolve(t, &options, "", &row) == 0);
	(void)image_resolve(t, &options, "a/b", &row); /* whatever it says */
	ensure(generation_check_successor(t, t, NULL) == -ESTALE);
	(void)unlink(path);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static uint8_t file[2 * INPUT_MAX];
	struct table *t;
	size_t len = size - 1;
	int fd;

	if (size < 1 + sizeof(struct table_header) / 8 || size > INPUT_MAX)
		return 0;
	if (data[0] == 0) {
		if (len < sizeof(struct table_header))
			return 0;
		memcpy(file, data + 1, len);
	} else {
		len = rows_wrap(data + 1, len, file, sizeof(file) - 2 * LIMIT_KEY_BYTES);
		if (len == 0)
			return 0;
	}
	hashes_fix(file, len);
	fd = memfd_create("table", MFD_CLOEXEC);
	ensure(fd >= 0 && file_pwrite_exact(fd, file, len, 0) == 0);
	if (table_open(fd, &t, NULL) < 0)
		return 0;
	rows_check(t);
	image_check(t);
	table_unref(t);
	return 0;
}
