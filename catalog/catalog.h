/*
 * The catalog: a source's objects laid out once in a volume, generation by generation
 * (docs/architecture.md).
 *
 *	listing (any order) ──► generation_build() ──► object table of generation N+1
 *	                              ▲ table of generation N: unchanged objects keep their offsets
 *	object table ──► image_build() ──► EROFS image: names, sizes, where each file lies
 *
 * Rows are objects (key, size, time, tag, offset). An offset once given means one (key, tag) for
 * ever; objects that went leave a tombstone, changed ones a tombstone and a new row at the end.
 * The table is sorted by key, front-coded, in zstd-compressed blocks, each named by its SHA-256 in
 * the index; the generation's hash is the SHA-256 of header and index, and each header carries its
 * predecessor's.
 *
 * Threads: building is single-threaded per call; an open table may be read by any number.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include "base/err.h"
#include "base/hash.h"
#include "base/key_prefixes.h"
#include "base/layout.h"
#include "base/limits.h"
#include "base/piece.h"

/* Identity of one generation of one source. */
struct generation_id {
	struct volume_id volume;
	uint64_t lineage;    /* 64 random bits made at the first layout */
	uint64_t generation; /* 1, 2, ... */
	uint8_t hash[SHA256_BYTES];
	uint8_t prev_hash[SHA256_BYTES]; /* zero for the first */
	/* The master's proof that it made this generation (master/source.h), of what a process has seen; not in a table. Zero:
	 * not known. */
	uint8_t seal[SHA256_BYTES];
};

/* First 128 bits of SHA-256 over the canonical text of a source. */
void volume_id_of_source(const char *source, struct volume_id *ret_id);

enum row_flags {
	ROW_DEAD = 1,      /* tombstone: named by older generations only */
	ROW_DIRECTORY = 2, /* a `dir/` marker or an empty directory: no bytes, no offset */
};

/* One row. Owns its bytes so that reading one never allocates; about 1.2 KiB: keep one, not
 * many. */
struct table_row {
	uint64_t ordinal; /* position in key order, dead rows included */
	/* In the volume, BLOCK_BYTES-aligned; of objects over UNIT_BYTES 64 KiB-aligned, of
	 * those that cross a multiple of EXTENT_MIN 1 MiB-aligned. 0 without bytes. */
	uint64_t offset;
	uint64_t size;
	int64_t mtime_ns;
	/* Of a tombstone: the generation that was the first without it; 0: not known. */
	uint64_t died;
	uint32_t flags; /* enum row_flags */
	uint16_t key_len;
	uint8_t tag_len;
	char key[LIMIT_KEY_BYTES + 1]; /* NUL-terminated for printing; may hold any byte but NUL */
	char tag[LIMIT_TAG_BYTES + 1]; /* as the origin sent it, NUL-terminated */
};

/* ---- listing: the objects of a source as they come from the origin, in any order ------------- */

struct listing;
struct listing *listing_new(uint64_t max_memory); /* NULL without memory */
void listing_free(struct listing *listing);
/* What does not fit max_memory goes to files without a name in `directory` (which is copied), about
 * 50 bytes an object and `max_bytes` at most, twice as much while they are merged included; merging takes 8 MiB more of
 * memory at most. -ENOMEM. */
int listing_spill_to(
	struct listing *listing, const char *directory, uint64_t max_bytes) __must_check;
/* Whether an error of listing_add() or generation_build() came from that directory; its line. */
bool listing_spill_failed(const struct listing *listing, struct err *e) __must_check;
/* Copies one object; `key` without NUL bytes. -E2BIG past LIMIT_FILES, or past max_memory without a
 * directory; -EOVERFLOW past max_bytes, I/O errors with one; -EINVAL for a
 * key that no origin can have (empty, longer than LIMIT_KEY_BYTES, tag longer than
 * LIMIT_TAG_BYTES). */
int listing_add(struct listing *listing, const char *key, uint32_t key_len, uint64_t size,
	int64_t mtime_ns, const char *tag, uint32_t tag_len) __must_check;
uint64_t listing_count(const struct listing *listing);

/* ---- object table ---------------------------------------------------------------------------- */

struct table;

/* Opens and checks a table file (header, index, root hash; blocks when first touched). `fd` is the
 * table's afterwards, also on failure. -EBADMSG: not a table or damaged; -EPROTONOSUPPORT: newer
 * format. */
int table_open(int fd, struct table **ret_table, struct err *e) __must_check;
/* Takes from the arena now what finding rows by offset will need, so that it is not refused later.
 * -ENOMEM with a line. */
int table_reserve(struct table *table, struct err *e) __must_check;
/* Another descriptor of its file, the caller's. */
int table_dup(const struct table *table) __must_check;
/* Reads all of the file: -EBADMSG when some of it is damaged. For a copy whose history is not known. */
int table_verify(struct table *table) __must_check;
struct table *table_ref(struct table *table);
void table_unref(struct table *table);

struct table_info {
	struct generation_id id;
	uint64_t rows;       /* live and dead */
	uint64_t live_files; /* live rows that are objects */
	uint64_t live_bytes; /* sum of their sizes */
	uint64_t dead_rows;
	uint64_t end;         /* first offset never given; a multiple of BLOCK_BYTES only */
	uint64_t table_bytes; /* size of the file */
	int64_t built_at;     /* seconds since 1970 */
	uint64_t
		part; /* 0: a whole table; else a cut one, and which part it has: table_take_cut() */
};
const struct table_info *table_info(const struct table *table);

/* All return 0, -ENOENT when there is no such row, or -EBADMSG. Live row of a key (exact bytes): */
int table_find_key(
	struct table *table, const char *key, uint32_t key_len, struct table_row *row) __must_check;
/* Ordinal of the first row whose key is >= `key`; the number of rows when there is none. */
int table_lower_bound(
	struct table *table, const char *key, uint32_t key_len, uint64_t *ret_ordinal) __must_check;
/* The row, live or dead, whose bytes cover `offset` (within its size rounded up to BLOCK_BYTES): */
int table_find_offset(struct table *table, uint64_t offset, struct table_row *row) __must_check;
/* The row with the lowest offset >= `offset` that has bytes: for walking a chunk. */
int table_next_offset(struct table *table, uint64_t offset, struct table_row *row) __must_check;

/*
 * Another row, live or dead, with the same key, tag and size: where the object's bytes may lie as
 * well. `at`: 0 for the first, then as returned; -ENOENT when there are no more.
 */
int table_find_twin(struct table *table, const struct table_row *of, uint32_t *at,
	struct table_row *row) __must_check;

/* In key order, dead rows included; 0, -ENOENT at the end. The cursor is a plain value starting as
 * { 0 }. */
struct table_cursor {
	uint64_t ordinal;
	void *block; /* decoded block, released by table_cursor_release() */
	uint64_t block_number;
};
int table_next(
	struct table *table, struct table_cursor *cursor, struct table_row *row) __must_check;
void table_cursor_release(struct table_cursor *cursor);

/* ---- tables cut to a part of the source ------------------------------------------------------- */

/*
 * Writes to `path`, as generation_build() does, the rows of `table` whose keys begin with one of the sorted prefixes,
 * with their offsets. It is a table by itself, whose hash is returned; volume, lineage and generation are those of
 * `table`, the end is that of its own rows.
 */
int table_cut(struct table *table, const struct key_prefixes *part, const char *path,
	uint8_t ret_hash[SHA256_BYTES], struct err *e) __must_check;
/*
 * For a receiver of a cut table, before the table is known to others: from now on its id is that of the generation it was cut from,
 * so that generations are compared by their own chain of hashes, and table_info()->part is `part` (not 0). -EBADMSG: it
 * is another table than the one with `hash`, or of another generation.
 */
int table_take_cut(struct table *table, const struct generation_id *of,
	const uint8_t hash[SHA256_BYTES], uint64_t part) __must_check;

/* ---- generations ----------------------------------------------------------------------------- */

struct generation_stats {
	uint64_t kept;      /* keys as they were, those cleaned included */
	uint64_t added;     /* new keys */
	uint64_t changed;   /* keys with a new tag or size: new offset, old row a tombstone */
	uint64_t removed;   /* keys gone: tombstone */
	uint64_t cleaned;   /* keys as they were at a new offset, old row a tombstone */
	uint64_t forgotten; /* tombstones left out */
};

/* A generation that may still be read: what it names stays. */
struct generation_retained {
	uint64_t generation;
	uint64_t end; /* table_info's; UINT64_MAX: not known */
};

/* Whether one of these generations of its lineage names the row: all name what lives. */
bool generation_names(const struct generation_retained *retained, uint32_t n,
	const struct table_row *row) __must_check;

/*
 * Lays out `listing` after `prev` (NULL: first generation, a new random lineage) and writes the
 * table to `path` (atomically; fsynced; PATH.new is next to it meanwhile, so one builder a path).
 * When nothing differs from prev, writes nothing and returns -EALREADY; another time with the same
 * tag is a difference, but not another offset. `volume` must be prev's. Sorts the listing; of
 * several objects with one key the newest counts, or the last added. ret_id and ret_stats may be
 * NULL.
 *
 * Objects up to UNIT_BYTES never cross a chunk. An object that comes back with a tag it had takes
 * its old offset again, or the last of several. Keys that end with '/' become rows without bytes
 * (ROW_DIRECTORY); these and empty objects leave no tombstone. Of one key the newest 64 tombstones
 * are kept.
 *
 * Objects of chunks that are more than a third dead get new offsets at the end, in key order, at
 * most a seventh of the bytes that stay, a generation (catalog/clean.h): their bytes can be copied from the
 * old offset, which stays theirs.
 *
 * -E2BIG: too many rows; -EFBIG: the volume would pass 128 PiB.
 */
int generation_build(const struct volume_id *volume, struct table *prev, struct listing *listing,
	const char *path, struct generation_id *ret_id, struct generation_stats *ret_stats,
	struct err *e) __must_check;

/* The same, leaving out the tombstones that no generation of `retained` (of prev's lineage) names:
 * so a table does not grow for ever. */
int generation_build_retained(const struct volume_id *volume, struct table *prev,
	const struct generation_retained *retained, uint32_t n, struct listing *listing,
	const char *path, struct generation_id *ret_id, struct generation_stats *ret_stats,
	struct err *e) __must_check;

/*
 * The guard of worker and mount: may `next` follow `old`? Same volume and lineage, higher
 * generation, and no offset that `old` gave to one (key, tag) means another in `next`. -ESTALE with
 * a line naming the first offender.
 */
int generation_check_successor(struct table *old, struct table *next, struct err *e) __must_check;

/* ---- checksums ------------------------------------------------------------------------------- */

/* Hash of (key, tag): computed once per object. */
uint64_t piece_object_seed(const char *key, uint32_t key_len, const char *tag, uint32_t tag_len);
/* The checksum of piece `number` (offset in object / PIECE_BYTES) is hash_xxh3(bytes, length,
 * piece_seed(seed, number)), length < PIECE_BYTES only at the object's end: piece_seed() is in
 * base/piece.h. */

/* ---- image ----------------------------------------------------------------------------------- */

struct image_options {
	uint32_t uid;
	uint32_t gid;
	uint32_t umask; /* files 0666, directories 0777, minus this: 022 gives 0644 and 0755 */
	uint64_t extent_bytes; /* 0: chosen (power of two >= EXTENT_MIN such that <= LIMIT_DEVICES);
				* tests: any power of two >= CHUNK_BYTES */
	/* Of image_build(): "" or a directory of the table ("a/b/"), which becomes the root; NULL =
	 * "". */
	const char *subtree;
	/* One device: the image, and the volume behind it at info.volume_offset. For kernels that
	 * mount block devices only, from 5.15. Else a device per extent. */
	bool one_device;
};

#define IMAGE_DEVICES_MAX (LIMIT_DEVICES + 1)

/* One of the sources that an image shows. */
struct image_source {
	struct table *table;
	/* Where: "" is the root, "a/b" a directory that is made for it. What another source has at
	 * or below a deeper one's path is hidden, as by a mount. */
	const char *path;
	const char *subtree; /* of its table, as in struct image_options */
};

#define IMAGE_PATH_MAX (LIMIT_KEY_BYTES - 1) /* of a source's path, bytes */

struct image_info {
	uint64_t files;
	uint64_t directories;
	uint64_t skipped; /* keys that POSIX cannot name */
	uint64_t bytes;   /* of the files; of those that a directory took the name of, too */
	uint64_t image_bytes;
	uint64_t extent_bytes;
	uint32_t extents; /* devices, numbered 0.. in volume order; device id in the image = number
			     + 1. The last one is of no byte of the volume: see image_build(). On
			     one device: only what the volume is divided into, and one more */
	/* On one device: where the volume begins, a multiple of CHUNK_BYTES; what is between the
	 * image's end and there is never asked for. Else 0. */
	uint64_t volume_offset;
	/* Whose extents they are. On one device the volumes lie behind volume_offset one after the
	 * other, each from a multiple of extent_bytes on. */
	struct layout_sources sources;
};

/*
 * Why a key below the subtree cannot be a path ("a name longer than 255 bytes"), or NULL when it
 * can. One trailing '/' marks a directory; "" is the root.
 */
const char *image_key_refuse(const char *rel, uint32_t len) __must_check;

/* Called for each key left out of the image, with the reason in words. May be NULL. */
typedef void (*image_skip_fn)(void *arg, const char *key, uint32_t key_len, const char *reason);

/*
 * Writes the EROFS image of `table` to `path` (mode 0600, PATH.new next to it meanwhile, fsynced and
 * renamed). One device per extent of the volume, and one behind them that is never read: when all
 * others are files of this machine, who serves that one still knows by it how long the image is
 * mounted. Every device is extent_bytes long. A file whose bytes lie in one extent has one chunk
 * index, others chunks of 1 MiB (less with extents smaller than EXTENT_MIN). Memory: 16 bytes and
 * the name for each entry of the directories from the root to the one being written.
 *
 * A directory's time is its marker's, else the latest below it. Of a file and a directory of one
 * name the directory stays. -ENOENT: no such subtree; -EINVAL: bad options; -EBADMSG: damaged
 * table; -EFBIG: more than the 16 TiB of one device.
 */
int image_build(struct table *table, const struct image_options *options, const char *path,
	image_skip_fn skip, void *skip_arg, struct image_info *ret_info,
	struct err *e) __must_check;

/*
 * The same of several sources, at most LAYOUT_SOURCES_MAX, no two with one path; options->subtree is
 * not looked at. The devices are the extents of the first, then of the second, ... -EINVAL also for
 * bad paths; -E2BIG: more extents than an image has devices.
 */
int image_build_sources(const struct image_source *sources, uint32_t n,
	const struct image_options *options, const char *path, image_skip_fn skip, void *skip_arg,
	struct image_info *ret_info, struct err *e) __must_check;
/* "" or names with '/' between them, none of them "." or "..", at most IMAGE_PATH_MAX. -EINVAL. */
int image_check_path(const char *path) __must_check;

/*
 * How a path below the mount's root ("a/b.jpg", "" for the root) is found in the table by the rules
 * of image_build: its row (a file's or a marker's), or for a directory without a row flags =
 * ROW_DIRECTORY and size 0. -ENOENT, -ENOTDIR. Only the subtree of `options` counts, which may be
 * NULL.
 */
int image_resolve(struct table *table, const struct image_options *options, const char *path,
	struct table_row *row) __must_check;
/* Which source shows what is at a path below the mount's root, and what is left of that: the deepest
 * whose path it is, or lies below. -ENOENT. */
int image_source_at(const struct image_source *sources, uint32_t n, const char *path,
	uint32_t *ret_source, const char **ret_rest) __must_check;
/*
 * The same of several sources: whose row it is, too. A directory that is only there because a
 * source's path leads through it is the last source's of those whose path leads through it.
 */
int image_resolve_sources(const struct image_source *sources, uint32_t n, const char *path,
	uint32_t *ret_source, struct table_row *row) __must_check;
