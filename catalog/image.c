/*
 * Building the EROFS image from object tables: one pass over their rows in the order of their paths
 * (image_rows.c), which is a walk of the tree, depth first.
 *
 * A file's inode is written when its key comes; a directory's place is taken when its first key
 * comes (its children's ".." names it) and filled when the walk leaves it, together with its
 * blocks. In memory are the entries of the directories on the way from the root to here, 16 bytes
 * and the name each.
 *
 * Keys sort as bytes with '/' among them: "a-b" < "a/b" < "a0", while the directory's entries are
 * "a" < "a-b" < "a0". So entries are sorted once more when a directory closes; and a file "a" is
 * seen long before "a/b" tells that it must give way: its inode then stays in the image, named by
 * nothing.
 */
#include "catalog/image_internal.h"
#include "catalog/table_format.h"
#include "base/clock.h"
#include "base/cleanup.h"
#include "base/file.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#define FIRST_ENTRIES  4096u
#define FIRST_NAMES    65536u
#define FRAMES_MAX     (IMAGE_FULL_MAX / 2 + 2) /* "a/a/a/..." and the root */
#define NAMES_MAX      (1ull << 40)
#define CHUNK_BITS_MAX 40u         /* of a file: some kernels count them in 43 bits */
#define ROOM_LEAST     (64u << 20) /* for an image before its volume */
#define ROOM_ROW       160u        /* bytes of an ordinary file */
/* A name in an open directory. */
struct entry {
	uint64_t nid;
	uint64_t name : 48; /* in builder.names */
	uint64_t name_len : 8;
	uint64_t type : 8;
};
static_assert(sizeof(struct entry) == 16, "memory per name");

/* A directory on the way from the root to the current key. */
struct frame {
	uint64_t inode;       /* offset of its inode in the image */
	uint32_t path_len;    /* with the '/' */
	uint64_t first_entry; /* in builder.entries */
	uint64_t first_name;
	uint32_t subdirectories;
	int64_t mtime_ns; /* the marker's, else the latest below */
	bool has_marker;
};

struct builder {
	struct image_store store;
	struct image_shape shape;
	image_skip_fn skip;
	void *skip_arg;
	const char *subtree; /* of the only source, which reported keys begin with; else "" */
	uint32_t subtree_len;
	uint64_t base;                 /* of the current row's volume in shape.end */
	char path[IMAGE_FULL_MAX + 2]; /* of the innermost frame */
	struct frame frames[FRAMES_MAX];
	uint32_t depth;
	struct entry *entries;
	uint64_t n_entries;
	uint64_t cap_entries;
	char *names;
	uint64_t names_len;
	uint64_t names_cap;
	uint32_t ino; /* of the last inode: what 32-bit programs see */
};

static void builder_free(struct builder *b)
{
	if (!b)
		return;
	image_store_release(&b->store);
	free(b->entries);
	free(b->names);
	free(b);
}

DEFINE_CLEANUP(struct builder *, builder_free);

/* Says that the key `path` + `name` is left out. */
static void skip_key(struct builder *b, const char *path, uint32_t path_len, const char *name,
	uint32_t name_len, const char *reason)
{
	char key[LIMIT_KEY_BYTES + IMAGE_FULL_MAX + 2];
	uint32_t len = b->subtree_len + path_len + name_len;

	b->shape.info.skipped++;
	if (!b->skip || len > sizeof(key) - 1)
		return;
	memcpy(key, b->subtree, b->subtree_len);
	memcpy(key + b->subtree_len, path, path_len);
	memcpy(key + b->subtree_len + path_len, name, name_len);
	key[len] = '\0';
	b->skip(b->skip_arg, key, len, reason);
}

/* ---- entries --------------------------------------------------------------------------------- */

static int entry_add(
	struct builder *b, const char *name, uint32_t name_len, uint8_t type, uint64_t inode)
{
	if (b->n_entries == b->cap_entries) {
		uint64_t cap = max(2 * b->cap_entries, (uint64_t)FIRST_ENTRIES);
		struct entry *entries = realloc(b->entries, cap * sizeof(*entries));

		if (!entries)
			return -ENOMEM;
		b->entries = entries;
		b->cap_entries = cap;
	}
	if (name_len > b->names_cap - b->names_len) {
		uint64_t cap = max(2 * b->names_cap, (uint64_t)FIRST_NAMES);
		char *names = cap <= NAMES_MAX ? realloc(b->names, cap) : NULL;

		if (!names)
			return -ENOMEM;
		b->names = names;
		b->names_cap = cap;
	}
	b->entries[b->n_entries++] = (struct entry){
		.nid = inode >> EROFS_NID_BITS,
		.name = b->names_len & (NAMES_MAX - 1),
		.name_len = name_len & 0xff,
		.type = type,
	};
	memcpy(b->names + b->names_len, name, name_len);
	b->names_len += name_len;
	return 0;
}

/* By name; a directory before a file of the same name. */
static int entry_compare(const void *a, const void *b, const void *arg)
{
	const struct entry *x = a;
	const struct entry *y = b;
	const char *names = arg;
	int c = key_compare(names + x->name, x->name_len, names + y->name, y->name_len);

	return c ? c : y->type - x->type;
}

/* ---- inodes ---------------------------------------------------------------------------------- */

static void inode_init(
	struct builder *b, struct erofs_inode *inode, uint32_t mode, int64_t mtime_ns)
{
	int64_t seconds = mtime_ns / (int64_t)CLOCK_SECOND;
	int64_t nsec = mtime_ns % (int64_t)CLOCK_SECOND;

	if (nsec < 0) {
		nsec += (int64_t)CLOCK_SECOND;
		seconds--;
	}
	memset(inode, 0, sizeof(*inode));
	inode->format = EROFS_LAYOUT_PLAIN;
	inode->mode = (uint16_t)mode;
	inode->ino = ++b->ino;
	inode->uid = b->shape.options->uid;
	inode->gid = b->shape.options->gid;
	inode->mtime = (uint64_t)seconds;
	inode->mtime_nsec = (uint32_t)nsec;
	inode->nlink = 1;
}

/* log2 of the smallest power of two >= n, at least a block. */
static uint32_t chunk_bits_for(uint64_t n)
{
	return n <= BLOCK_BYTES ? BLOCK_BITS : 64 - (uint32_t)__builtin_clzll(n - 1);
}

/* The file's chunks: one when it is stored in one extent, else such that none crosses. */
static uint32_t chunk_bits(const struct builder *b, const struct table_row *row)
{
	uint64_t extent = b->shape.info.extent_bytes;
	uint64_t boundary = align_down(row->offset, extent) + extent;
	uint32_t bits;

	if (b->shape.options->one_device)
		return min(chunk_bits_for(row->size), CHUNK_BITS_MAX);
	if (row->offset + row->size <= boundary)
		return chunk_bits_for(row->size);
	bits = (uint32_t)__builtin_ctzll(boundary - row->offset); /* 20 by the layout's rule */
	return min(bits, 20u);
}

/* Of the current row's volume, whose extents begin with one of the image's. */
static struct erofs_chunk chunk_at(const struct builder *b, uint64_t offset)
{
	offset += b->base;
	if (b->shape.options->one_device)
		return (struct erofs_chunk){
			.block = (uint32_t)((b->shape.info.volume_offset + offset) / BLOCK_BYTES),
		};
	return (struct erofs_chunk){
		.device = (uint16_t)(offset / b->shape.info.extent_bytes + 1),
		.block = (uint32_t)(offset % b->shape.info.extent_bytes / BLOCK_BYTES),
	};
}

/* An inode with more indexes than fit a block: in blocks of its own. */
static int long_inode_write(struct builder *b, const struct table_row *row,
	const struct erofs_inode *inode, uint32_t bits, uint64_t chunks, uint64_t *ret_offset)
{
	uint8_t block[BLOCK_BYTES];
	uint32_t used = sizeof(*inode);
	uint64_t at = 0;
	int r = image_store_blocks(&b->store,
		(sizeof(*inode) + chunks * sizeof(struct erofs_chunk) + BLOCK_BYTES - 1) /
			BLOCK_BYTES,
		&at);

	if (r < 0)
		return r;
	*ret_offset = at;
	memcpy(block, inode, sizeof(*inode));
	for (uint64_t i = 0; i < chunks; i++) {
		struct erofs_chunk chunk = chunk_at(b, row->offset + (i << bits));

		memcpy(block + used, &chunk, sizeof(chunk));
		used += sizeof(chunk);
		if (used < BLOCK_BYTES && i + 1 < chunks)
			continue;
		memset(block + used, 0, BLOCK_BYTES - used);
		r = image_store_put_blocks(&b->store, at, block, BLOCK_BYTES);
		if (r < 0)
			return r;
		at += BLOCK_BYTES;
		used = 0;
	}
	return 0;
}

static int file_write(struct builder *b, const struct table_row *row, uint64_t *ret_offset)
{
	struct {
		struct erofs_inode inode;
		struct erofs_chunk chunks[(BLOCK_BYTES - sizeof(struct erofs_inode)) /
					  sizeof(struct erofs_chunk)];
	} file;
	uint64_t chunks = 0;
	uint32_t bits = 0;
	uint32_t len;
	int r;

	inode_init(b, &file.inode, S_IFREG | (0666 & ~b->shape.options->umask), row->mtime_ns);
	file.inode.size = row->size;
	b->shape.blocks += (row->size + BLOCK_BYTES - 1) / BLOCK_BYTES;
	if (row->size) {
		bits = chunk_bits(b, row);
		chunks = (row->size + (1ull << bits) - 1) >> bits;
		file.inode.format = EROFS_LAYOUT_CHUNKED;
		file.inode.u = EROFS_CHUNK_INDEXES | (bits - BLOCK_BITS);
	}
	if (chunks > ARRAY_SIZE(file.chunks))
		return long_inode_write(b, row, &file.inode, bits, chunks, ret_offset);
	for (uint64_t i = 0; i < chunks; i++)
		file.chunks[i] = chunk_at(b, row->offset + (i << bits));
	len = (uint32_t)(sizeof(file.inode) + chunks * sizeof(file.chunks[0]));
	r = image_store_inode(&b->store, len, ret_offset);
	return r < 0 ? r : image_store_put_inode(&b->store, *ret_offset, &file, len);
}

/* ---- directories ----------------------------------------------------------------------------- */

/* How many of the `n` entries fit one block, and their bytes. */
static uint64_t block_fit(const struct entry *entries, uint64_t n, uint32_t *ret_bytes)
{
	uint32_t bytes = 0;
	uint64_t i = 0;

	while (i < n) {
		uint32_t more = (uint32_t)(sizeof(struct erofs_dirent) + entries[i].name_len);

		if (more > BLOCK_BYTES - bytes)
			break;
		bytes += more;
		i++;
	}
	*ret_bytes = bytes;
	return i;
}

static void block_fill(const struct builder *b, const struct entry *entries, uint64_t n,
	uint8_t block[BLOCK_BYTES])
{
	uint32_t name_at = (uint32_t)(n * sizeof(struct erofs_dirent));

	memset(block, 0, BLOCK_BYTES);
	for (uint64_t i = 0; i < n; i++) {
		struct erofs_dirent dirent = {
			.nid = entries[i].nid,
			.name_offset = (uint16_t)name_at,
			.type = entries[i].type,
		};

		memcpy(block + i * sizeof(dirent), &dirent, sizeof(dirent));
		memcpy(block + name_at, b->names + entries[i].name, entries[i].name_len);
		name_at += (uint32_t)entries[i].name_len;
	}
}

/* Writes sorted entries as the blocks of a directory. */
static int directory_blocks(struct builder *b, const struct entry *entries, uint64_t n,
	uint64_t *ret_offset, uint64_t *ret_size)
{
	uint8_t block[BLOCK_BYTES];
	uint64_t blocks = 0;
	uint64_t offset = 0;
	uint32_t bytes = 0;
	int r;

	for (uint64_t i = 0; i < n; blocks++)
		i += block_fit(entries + i, n - i, &bytes);
	*ret_size = (blocks - 1) * BLOCK_BYTES + bytes; /* "." and ".." are always there */
	r = image_store_blocks(&b->store, blocks, &offset);
	*ret_offset = offset;
	for (uint64_t i = 0; r == 0 && i < n; offset += BLOCK_BYTES) {
		uint64_t fit = block_fit(entries + i, n - i, &bytes);

		block_fill(b, entries + i, fit, block);
		r = image_store_put_blocks(&b->store, offset, block, BLOCK_BYTES);
		i += fit;
	}
	return r;
}

/* Drops a file that has a directory's name, and whatever else comes twice. Returns how many are
 * left. */
static uint64_t entries_unique(
	struct builder *b, const struct frame *f, struct entry *entries, uint64_t n)
{
	uint64_t kept = 1;

	for (uint64_t i = 1; i < n; i++) { /* "." and ".." are always there */
		const struct entry *last = &entries[kept - 1];
		const struct entry *this = &entries[i];

		if (key_compare(b->names + last->name, last->name_len, b->names + this->name,
			    this->name_len) != 0) {
			entries[kept++] = *this;
			continue;
		}
		skip_key(b, b->path, f->path_len, b->names + this->name, (uint32_t)this->name_len,
			"a directory has the same name");
		b->shape.info.files--;
	}
	return kept;
}

static int directory_open(struct builder *b, const char *name, uint32_t name_len)
{
	struct frame *f = &b->frames[b->depth];
	uint64_t parent = IMAGE_ROOT_OFFSET;
	int r = 0;

	ensure(b->depth < FRAMES_MAX);
	memset(f, 0, sizeof(*f));
	f->mtime_ns = INT64_MIN;
	f->inode = IMAGE_ROOT_OFFSET;
	if (b->depth > 0) {
		struct frame *up = f - 1;

		parent = up->inode;
		r = image_store_inode(&b->store, sizeof(struct erofs_inode), &f->inode);
		if (r == 0)
			r = entry_add(b, name, name_len, EROFS_TYPE_DIRECTORY, f->inode);
		if (r < 0)
			return r;
		up->subdirectories++;
		f->path_len = up->path_len + name_len + 1;
		memcpy(b->path + up->path_len, name, name_len);
		b->path[f->path_len - 1] = '/';
	}
	f->first_entry = b->n_entries;
	f->first_name = b->names_len;
	b->depth++;
	b->shape.info.directories++;
	r = entry_add(b, ".", 1, EROFS_TYPE_DIRECTORY, f->inode);
	return r < 0 ? r : entry_add(b, "..", 2, EROFS_TYPE_DIRECTORY, parent);
}

/* Leaves the innermost directory: sorts and writes it. */
static int directory_close(struct builder *b)
{
	struct frame *f = &b->frames[b->depth - 1];
	struct entry *entries = b->entries + f->first_entry;
	uint64_t n = b->n_entries - f->first_entry;
	struct erofs_inode inode;
	uint64_t offset = 0;
	uint64_t size = 0;
	int r = sort_runs(entries, n, sizeof(*entries), entry_compare, b->names);

	if (r < 0)
		return r;
	n = entries_unique(b, f, entries, n);
	r = directory_blocks(b, entries, n, &offset, &size);
	if (r < 0)
		return r;
	if (f->mtime_ns == INT64_MIN)
		f->mtime_ns = b->shape.built_at * (int64_t)CLOCK_SECOND;
	inode_init(b, &inode, S_IFDIR | (0777 & ~b->shape.options->umask), f->mtime_ns);
	inode.size = size;
	inode.u = (uint32_t)(offset / BLOCK_BYTES);
	inode.nlink = 2 + f->subdirectories;
	r = image_store_put_inode(&b->store, f->inode, &inode, sizeof(inode));
	b->n_entries = f->first_entry;
	b->names_len = f->first_name;
	b->depth--;
	if (b->depth > 0 && !f[-1].has_marker)
		f[-1].mtime_ns = max(f[-1].mtime_ns, f->mtime_ns);
	return r;
}

/* Closes and opens directories until the innermost is the one that holds `rel`; *ret_name is what
 * is left of it. */
static int walk_to(struct builder *b, const char *rel, uint32_t len, const char **ret_name)
{
	const char *end = rel + len;
	const char *name;
	int r = 0;

	while (r == 0 && b->depth > 1) {
		const struct frame *f = &b->frames[b->depth - 1];

		if (f->path_len <= len && memcmp(b->path, rel, f->path_len) == 0)
			break;
		r = directory_close(b);
	}
	name = rel + b->frames[b->depth - 1].path_len;
	while (r == 0 && name < end) {
		const char *slash = memchr(name, '/', (size_t)(end - name));

		if (!slash)
			break;
		r = directory_open(b, name, (uint32_t)(slash - name));
		name = slash + 1;
	}
	*ret_name = name;
	return r;
}

static int row_add(struct builder *b, const struct image_row *next)
{
	const struct table_row *row = next->row;
	const char *rel = next->path;
	uint32_t len = next->len;
	const char *reason = image_key_refuse(rel, len);
	const char *name;
	struct frame *f;
	uint64_t inode;
	int r;

	if (reason) {
		skip_key(b, rel, len, "", 0, reason);
		return 0;
	}
	r = walk_to(b, rel, len, &name);
	if (r < 0 || !row)
		return r;
	f = &b->frames[b->depth - 1];
	if (name == rel + len) { /* a marker: of this directory itself */
		f->mtime_ns = row->mtime_ns;
		f->has_marker = true;
		return 0;
	}
	if (!f->has_marker)
		f->mtime_ns = max(f->mtime_ns, row->mtime_ns);
	r = file_write(b, row, &inode);
	if (r < 0)
		return r;
	b->shape.info.files++;
	b->shape.info.bytes += row->size;
	return entry_add(b, name, (uint32_t)(rel + len - name), EROFS_TYPE_FILE, inode);
}

/* ---- the whole ------------------------------------------------------------------------------- */

static int rows_add(struct builder *b, struct image_rows *rows, struct err *e)
{
	struct image_row next;
	int r;

	while ((r = image_rows_next(rows, &next)) > 0) {
		b->base = b->shape.info.sources.first[next.source] * b->shape.info.extent_bytes;
		r = row_add(b, &next);
		if (r < 0)
			return r;
	}
	if (r == -ENOENT) {
		const struct image_source *s = &b->shape.sources[next.source];

		if (b->shape.n > 1)
			return err_set(e, r,
				"the source shown at /%s has no directory %s: restore it, or "
				"remove the source from the dataset",
				s->path, s->subtree);
		return err_set(
			e, r, "the source has no directory %s: check the prefix", s->subtree);
	}
	return r;
}

static int build(struct builder *b, struct image_rows *rows, struct err *e)
{
	int r = directory_open(b, "", 0);

	if (r == 0)
		r = rows_add(b, rows, e);
	while (r == 0 && b->depth > 0)
		r = directory_close(b);
	if (r == 0)
		r = image_store_flush(&b->store);
	return r == 0 ? image_head_write(&b->shape, b->store.out.fd, b->store.next_block) : r;
}

/* What a device's 32-bit block numbers can name; the last one means nothing. */
static int check_room(const struct builder *b, struct err *e)
{
	const uint64_t most = (uint64_t)UINT32_MAX * BLOCK_BYTES;

	if (!b->shape.options->one_device ||
		(b->shape.info.volume_offset < most &&
			b->shape.end < most - b->shape.info.volume_offset))
		return 0;
	return err_set(e, -EFBIG,
		"the volume has %llu GiB, and one device at most 16 TiB: use --engine fuse, or a "
		"kernel from 6.12",
		(unsigned long long)(b->shape.end / EXTENT_MIN));
}

/* One attempt, with so many bytes before the volume. -EAGAIN: they are too few for
 * ret_info->image_bytes; nothing was written. */
static int build_before(struct builder *b, struct image_rows *rows, const char *path, uint64_t room,
	struct image_info *ret_info, struct err *e)
{
	struct err why = ERR_INIT;
	uint32_t slots;
	int r = image_shape_choose(&b->shape);

	if (r == -E2BIG)
		return err_set(
			e, r, "the sources are too large for one mount: mount them separately");
	if (r < 0)
		return err_set(e, r, "extents of %llu bytes do not suit the volume",
			(unsigned long long)b->shape.options->extent_bytes);
	b->shape.info.volume_offset = room;
	r = check_room(b, e);
	if (r < 0)
		return r;
	slots = b->shape.options->one_device ? 0 : b->shape.info.extents;
	r = image_store_open(
		&b->store, path, IMAGE_DEVICES_OFFSET + (uint64_t)slots * EROFS_SLOT_BYTES, e);
	if (r < 0)
		return r;
	r = build(b, rows, &why);
	if (r == -ENOENT)
		return err_set(e, r, "%s", why.text);
	if (r < 0)
		return err_set(e, r, "cannot build the image %s: %s: check the disk of the cache",
			path, err_str(r));
	b->shape.info.image_bytes = b->store.next_block * BLOCK_BYTES;
	*ret_info = b->shape.info;
	if (b->shape.options->one_device && b->shape.info.image_bytes > room)
		return -EAGAIN;
	return output_publish(&b->store.out, e);
}

/* What to build: its sources, their forms, and where keys that were left out are reported. */
struct wanted {
	const struct image_source *sources;
	uint32_t n;
	const struct image_options *options;
	image_skip_fn skip;
	void *skip_arg;
};

static struct builder *builder_new(const struct wanted *w)
{
	struct builder *b = calloc(1, sizeof(*b));

	if (!b)
		return NULL;
	b->store.out = OUTPUT_NONE;
	b->shape.sources = w->sources;
	b->shape.n = w->n;
	b->shape.options = w->options;
	b->skip = w->skip;
	b->skip_arg = w->skip_arg;
	b->subtree = "";
	if (w->n == 1 && !w->sources[0].path[0] && w->sources[0].subtree)
		b->subtree = w->sources[0].subtree;
	b->subtree_len = (uint32_t)strlen(b->subtree);
	for (uint32_t i = 0; i < w->n; i++)
		b->shape.built_at =
			max(b->shape.built_at, table_info(w->sources[i].table)->built_at);
	return b;
}

static int build_in_room(const struct wanted *w, const char *path, uint64_t room,
	struct image_info *ret_info, struct err *e)
{
	_cleanup_(builder_free_p) struct builder *b = builder_new(w);
	struct image_rows *rows = NULL;
	int r;

	if (!b)
		return err_default(e, -ENOMEM, "cannot build the image");
	r = image_rows_new(w->sources, w->n, &rows, e);
	if (r == 0)
		r = build_before(b, rows, path, room, ret_info, e);
	image_rows_free(rows);
	return r;
}

/*
 * On one device the files' indexes need to know how long the image becomes before it is whole. An
 * ordinary one has room; when it has not, its length is known for the second time.
 */
int image_build_sources(const struct image_source *sources, uint32_t n,
	const struct image_options *options, const char *path, image_skip_fn skip, void *skip_arg,
	struct image_info *ret_info, struct err *e)
{
	struct wanted w = { sources, n, options, skip, skip_arg };
	struct image_info info = { 0 };
	uint64_t room = 0;
	int r;

	if (n == 0 || n > LAYOUT_SOURCES_MAX)
		return err_set(
			e, -EINVAL, "an image must have 1 to %u sources", LAYOUT_SOURCES_MAX);
	if (options->one_device) {
		for (uint32_t i = 0; i < n; i++)
			room += table_info(sources[i].table)->rows * ROOM_ROW;
		room = align_up(ROOM_LEAST + room, (uint64_t)CHUNK_BYTES);
	}
	r = build_in_room(&w, path, room, &info, e);
	if (r == -EAGAIN) {
		w.skip = NULL; /* reported already */
		r = build_in_room(
			&w, path, align_up(info.image_bytes, (uint64_t)CHUNK_BYTES), &info, e);
	}
	if (r == 0 && ret_info)
		*ret_info = info;
	return r;
}

int image_build(struct table *table, const struct image_options *options, const char *path,
	image_skip_fn skip, void *skip_arg, struct image_info *ret_info, struct err *e)
{
	const struct image_source source = { table, "", options->subtree };

	return image_build_sources(&source, 1, options, path, skip, skip_arg, ret_info, e);
}
