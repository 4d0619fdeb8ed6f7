/*
 * Files that hold chunks: names of chunk files, heads, piece tables and positional I/O (layout in
 * tiers.h). A chunk has a file of its own or a place in an extent's (extent_internal.h). Nothing
 * here knows of locks, presence bits or the index.
 *
 * Each open file has two descriptors. Data goes through the O_DIRECT one: it is not to stay in
 * memory twice, and a reader's first O_DIRECT read then finds nothing to write back
 * (docs/decisions/tier-writes.md). Head and table go through the buffered one; the kernel writes
 * their dirty pages back before an O_DIRECT read of them, so a reader's descriptor sees every entry
 * written before its read.
 *
 * Threads: any, also several on one file: all I/O is positional.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include "locate/extent_format.h"
#include "tiers/tiers.h"

/* A file's id names it; random per start plus a counter, so never used twice. */
#define FILE_ID_HEX      16                /* characters of an id */
#define FILE_NAME_BYTES  (FILE_ID_HEX + 4) /* "xx/" + id + NUL */
#define CHUNK_FILE_MODE  0600              /* while it fills */
#define CHUNK_FILE_READY 0400              /* when complete */

/* "xx/ID": xx, the id's low byte, spreads the files over 256 directories. */
void file_id_path(uint64_t id, char out[FILE_NAME_BYTES]);
/* The id of a file's name within its directory; -EINVAL for any other name. */
int file_id_parse(const char *name, uint64_t *ret_id) __must_check;

#define CHUNK_WORDS (CHUNK_BLOCKS / 64)

/*
 * The presence bits that a table means, bit b of word b / 64 for block b. Entries that cannot be (a
 * length past PIECE_BYTES or the chunk, blocks of a piece before) count as absent.
 */
void chunk_table_scan(const uint8_t table[CHUNK_TABLE_BYTES], uint64_t ret_present[CHUNK_WORDS]);

struct chunk_fds {
	int buffered; /* -1: not open */
	int direct;   /* -1: the filesystem has no O_DIRECT */
};
#define CHUNK_FDS_NONE ((struct chunk_fds){ -1, -1 })

/* Makes the file with its head, under the directory `chk`. -EEXIST when the name is taken. */
int chunk_file_create(
	int chk, const struct chunk_head *head, struct chunk_fds *ret_fds) __must_check;
/* Opens it for reading and writing, also when it is complete. */
int chunk_file_open(int chk, uint64_t id, struct chunk_fds *ret_fds) __must_check;
/* The same with a file of any name, which is made with O_CREAT | O_EXCL in `flags`. */
int chunk_fds_open(int dir, const char *path, int flags, struct chunk_fds *ret_fds) __must_check;
void chunk_fds_close(struct chunk_fds *fds);
struct chunk_fds chunk_fds_take(struct chunk_fds *fds);

/* Takes the mode of a complete file, or of a filling one. */
int chunk_file_set_complete(const struct chunk_fds *fds, bool complete);

/* Reads head and table at once. -ENODATA: the file is shorter than a chunk file. */
int chunk_file_read_meta(int chk, uint64_t id, struct chunk_head *ret_head,
	uint8_t ret_table[CHUNK_TABLE_BYTES], uint64_t *ret_allocated) __must_check;

/* The same of a chunk in an open file. */
int chunk_file_read_meta_at(const struct chunk_fds *fds, const struct chunk_place *place,
	struct chunk_head *ret_head, uint8_t ret_table[CHUNK_TABLE_BYTES]) __must_check;

/* Bytes the filesystem gave to the file. */
int chunk_file_allocated(const struct chunk_fds *fds, uint64_t *ret_bytes) __must_check;

/* Most that one data or table call takes. */
#define CHUNK_IO_BYTES UNIT_BYTES

/*
 * Data of whole blocks at an offset in the chunk; the last block is padded with zeros on disk.
 * `bounce` is an aligned buffer of CHUNK_IO_BYTES that is used when `data` or `out` is not aligned, or `length` is not. A write
 * without one (NULL) is of aligned data that is padded in memory.
 */
int chunk_file_write(const struct chunk_fds *fds, const struct chunk_place *place, uint32_t offset,
	const void *data, uint32_t length, void *bounce) __must_check;
int chunk_file_read(const struct chunk_fds *fds, const struct chunk_place *place, uint32_t offset,
	void *out, uint32_t length, void *bounce) __must_check;

/* The same of runs that follow one another, CHUNK_IO_BYTES at most, in one call. Without `bounce` the data of all is of whole
 * blocks. */
int chunk_file_write_parts(const struct chunk_fds *fds, const struct chunk_place *place,
	const struct chunk_part *parts, uint32_t n, void *bounce) __must_check;

/* The same through the page cache: for bytes that leave this node. */
int chunk_file_read_cached(const struct chunk_fds *fds, const struct chunk_place *place,
	uint32_t offset, void *out, uint32_t length) __must_check;

/* Bytes of the table between the first entry of a run of whole pieces and the end of its last. */
#define CHUNK_RUN_PIECES     (CHUNK_IO_BYTES / PIECE_BYTES)
#define CHUNK_PIECE_STRIDE   (PIECE_BYTES / BLOCK_BYTES * CHUNK_ENTRY_BYTES)
#define CHUNK_RUN_SPAN_BYTES ((CHUNK_RUN_PIECES - 1) * CHUNK_PIECE_STRIDE + CHUNK_ENTRY_BYTES)

/* Encoded entries of pieces that follow one another from `offset` on, `bytes` of the table, in one call. */
int chunk_file_write_entries(const struct chunk_fds *fds, const struct chunk_place *place,
	uint32_t offset, const uint8_t *table, uint32_t bytes) __must_check;
/* The whole table. */
int chunk_file_write_table(const struct chunk_fds *fds, const struct chunk_place *place,
	const uint8_t table[CHUNK_TABLE_BYTES]) __must_check;
/* As it lies there, of the blocks in [offset, offset + length). */
int chunk_file_read_table(const struct chunk_fds *fds, const struct chunk_place *place,
	uint32_t offset, uint8_t *out, uint32_t length) __must_check;
/* Both, the bytes and their part of the table, of what lies in memory: -EAGAIN when some does not. */
int chunk_file_read_now(const struct chunk_fds *fds, const struct chunk_place *place,
	uint32_t offset, uint8_t *table, void *out, uint32_t length) __must_check;
/* The same with the bytes in a pipe, without a copy. */
int chunk_file_splice_now(const struct chunk_fds *fds, const struct chunk_place *place,
	uint32_t offset, uint8_t *table, int pipe, uint32_t length) __must_check;
int chunk_file_read_entries(const struct chunk_fds *fds, const struct chunk_place *place,
	uint32_t offset, struct piece_entry *ret_entries, uint32_t n) __must_check;
