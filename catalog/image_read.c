/*
 * The reader of images: the reverse of image.c, for a daemon that serves the tree itself.
 *
 * What is checked where: the head and the device table when the image is opened; an inode, with the
 * chunk indexes of a file, each time it is read; of a directory's block its first dirent, and the
 * dirents that a search or a listing meets. Each call does work bounded by what it names: one inode
 * and its indexes, or a binary search.
 */
#include "catalog/image_read.h"
#include "catalog/catalog_internal.h"
#include "catalog/image_format.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/file.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define IMAGE_MAGIC       0x1a6e4ead
#define DIRENT_BITS       9 /* of a cookie: number of the dirent in its block */
#define DIRENTS_MAX       (BLOCK_BYTES / sizeof(struct erofs_dirent))
#define DEVICES_AT_A_TIME (BLOCK_BYTES / EROFS_SLOT_BYTES)

static_assert(DIRENTS_MAX < 1u << DIRENT_BITS, "a cookie names every dirent of a block");

/* The view's blocks, apart so that the names of a directory stay while its inodes are looked at. */
enum view_slot { VIEW_DIRECTORY, VIEW_INODE };

struct image {
	uint32_t magic;
	int fd;
	uint64_t extent_bytes;
	struct layout_sources sources;
	uint64_t blocks;      /* of the file */
	uint64_t first_inode; /* offset of the first inode that is not the root's: after the head */
	uint64_t root;
	uint64_t n_inodes;
	uint32_t devices;
};

/* ---- blocks ---------------------------------------------------------------------------------- */

/* A block of the image, in the view until another is asked for in the same slot. */
static int view_block(const struct image *image, struct image_view *view, enum view_slot slot,
	uint64_t number, const uint8_t **ret_block)
{
	int r;

	if (number >= image->blocks)
		return -EBADMSG;
	if (view->block[slot] != number + 1) {
		view->block[slot] = 0;
		r = file_pread_exact(
			image->fd, view->data[slot], BLOCK_BYTES, number * BLOCK_BYTES);
		if (r < 0)
			return r == -ENODATA ? -EBADMSG : r; /* the file was cut */
		view->block[slot] = number + 1;
	}
	*ret_block = view->data[slot];
	return 0;
}

/* Copies bytes that may lie in two blocks. */
static int view_copy(const struct image *image, struct image_view *view, uint64_t offset,
	void *data, uint32_t len)
{
	uint8_t *out = data;

	while (len) {
		const uint8_t *block;
		uint32_t at = (uint32_t)(offset % BLOCK_BYTES);
		uint32_t n = min(len, BLOCK_BYTES - at);
		int r = view_block(image, view, VIEW_INODE, offset / BLOCK_BYTES, &block);

		if (r < 0)
			return r;
		memcpy(out, block + at, n);
		out += n;
		offset += n;
		len -= n;
	}
	return 0;
}

/* ---- inodes ---------------------------------------------------------------------------------- */

/* Where in the volumes an index points to. */
static int chunk_offset(
	const struct image *image, const struct erofs_chunk *chunk, uint64_t *ret_offset)
{
	uint64_t in_extent = (uint64_t)chunk->block * BLOCK_BYTES;

	if (chunk->advise != 0 || chunk->device == 0 || chunk->device > image->devices ||
		in_extent >= image->extent_bytes)
		return -EBADMSG;
	*ret_offset = layout_place_of_device(
		&image->sources, image->extent_bytes, chunk->device - 1u, in_extent);
	return 0;
}

/*
 * The place of a file, by all its indexes: its chunks lie one after the other, and none
 * leaves its extent.
 */
static int file_offset(const struct image *image, struct image_view *view, uint64_t indexes,
	const struct erofs_inode *inode, uint64_t *ret_offset)
{
	uint32_t bits = BLOCK_BITS + (inode->u & (EROFS_CHUNK_INDEXES - 1));
	uint64_t chunks;
	uint64_t first = 0;

	if (inode->u & ~(2 * EROFS_CHUNK_INDEXES - 1) || !(inode->u & EROFS_CHUNK_INDEXES) ||
		inode->size > image->devices * image->extent_bytes)
		return -EBADMSG;
	chunks = ((inode->size - 1) >> bits) + 1;
	if (chunks > (image->blocks * BLOCK_BYTES - indexes) / sizeof(struct erofs_chunk))
		return -EBADMSG;
	for (uint64_t i = 0; i < chunks; i++) {
		uint64_t bytes = min(inode->size - (i << bits), 1ull << bits);
		struct erofs_chunk chunk;
		uint64_t offset = 0;
		int r = view_copy(image, view, indexes + i * sizeof(chunk), &chunk, sizeof(chunk));

		if (r == 0)
			r = chunk_offset(image, &chunk, &offset);
		if (r < 0)
			return r;
		if (i == 0)
			first = offset;
		if (offset != first + (i << bits) ||
			bytes > image->extent_bytes - offset % image->extent_bytes)
			return -EBADMSG;
	}
	*ret_offset = first;
	return 0;
}

/* The offset in the image of a directory's blocks, which lie in it and after its head. */
static int directory_offset(
	const struct image *image, const struct erofs_inode *inode, uint64_t *ret_offset)
{
	uint64_t offset = (uint64_t)inode->u * BLOCK_BYTES;

	if (inode->format != EROFS_LAYOUT_PLAIN || inode->size == 0 ||
		offset < image->first_inode || inode->u >= image->blocks ||
		inode->size > image->blocks * BLOCK_BYTES - offset)
		return -EBADMSG;
	*ret_offset = offset;
	return 0;
}

/* What holds for inodes of both kinds. */
static bool inode_plausible(const struct erofs_inode *inode)
{
	return inode->xattr_count == 0 && !(inode->mode & ~(S_IFMT | 0777)) &&
	       inode->mtime_nsec < CLOCK_SECOND && inode->nlink > 0;
}

int image_inode(struct image *image, struct image_view *view, uint64_t nid, struct image_inode *ret)
{
	struct erofs_inode inode;
	uint64_t offset = nid << EROFS_NID_BITS;
	uint64_t end = image->blocks * BLOCK_BYTES;
	uint64_t data = 0;
	int r;

	CHECK_MAGIC(image, IMAGE_MAGIC);
	if (nid > end >> EROFS_NID_BITS || offset > end - sizeof(inode) ||
		(offset < image->first_inode && nid != image->root))
		return -ENOENT;
	r = view_copy(image, view, offset, &inode, sizeof(inode));
	if (r < 0)
		return r;
	if (!inode_plausible(&inode))
		return -EBADMSG;
	if (S_ISDIR(inode.mode))
		r = directory_offset(image, &inode, &data);
	else if (S_ISREG(inode.mode) && inode.format == EROFS_LAYOUT_CHUNKED && inode.size)
		r = file_offset(image, view, offset + sizeof(inode), &inode, &data);
	else if (!S_ISREG(inode.mode) || inode.format != EROFS_LAYOUT_PLAIN || inode.size)
		r = -EBADMSG;
	if (r < 0)
		return r;
	*ret = (struct image_inode){
		.nid = nid,
		.directory = S_ISDIR(inode.mode),
		.mode = inode.mode,
		.uid = inode.uid,
		.gid = inode.gid,
		.nlink = inode.nlink,
		.size = inode.size,
		.mtime = (int64_t)inode.mtime,
		.mtime_nsec = inode.mtime_nsec,
		.offset = data,
	};
	return 0;
}

/* ---- directories ----------------------------------------------------------------------------- */

/* One block of a directory. */
struct dir_block {
	const uint8_t *data;
	uint32_t bytes; /* in use: less than a block in the last */
	uint32_t n;     /* dirents */
};

struct name {
	uint64_t nid;
	uint8_t type;
	uint32_t len;
	const char *text; /* in the block */
};

static uint64_t dir_blocks(const struct image_inode *dir)
{
	return (dir->size + BLOCK_BYTES - 1) / BLOCK_BYTES;
}

static int dir_block(const struct image *image, struct image_view *view,
	const struct image_inode *dir, uint64_t number, struct dir_block *ret)
{
	uint64_t left = dir->size - number * BLOCK_BYTES;
	struct erofs_dirent first;
	int r = view_block(
		image, view, VIEW_DIRECTORY, dir->offset / BLOCK_BYTES + number, &ret->data);

	if (r < 0)
		return r;
	ret->bytes = (uint32_t)min(left, (uint64_t)BLOCK_BYTES);
	memcpy(&first, ret->data, sizeof(first));
	ret->n = first.name_offset / sizeof(first);
	if (ret->n == 0 || first.name_offset % sizeof(first) || first.name_offset >= ret->bytes)
		return -EBADMSG;
	return 0;
}

/* The name of dirent `i` < n: it ends where the next begins, the last one at a NUL or the end. */
static int dir_name(const struct dir_block *block, uint32_t i, struct name *ret)
{
	struct erofs_dirent dirents[2];
	uint32_t from;
	uint32_t to = block->bytes;
	bool last = i + 1 == block->n;

	memcpy(dirents, block->data + i * sizeof(dirents[0]), (last ? 1 : 2) * sizeof(dirents[0]));
	from = dirents[0].name_offset;
	if (!last)
		to = dirents[1].name_offset;
	if (from < block->n * sizeof(dirents[0]) || to <= from || to > block->bytes)
		return -EBADMSG;
	ret->text = (const char *)block->data + from;
	ret->len = (uint32_t)strnlen(ret->text, to - from);
	ret->nid = dirents[0].nid;
	ret->type = dirents[0].type;
	if (ret->len == 0 || ret->len > IMAGE_NAME_MAX || (!last && ret->len != to - from) ||
		memchr(ret->text, '/', ret->len) ||
		(ret->type != EROFS_TYPE_FILE && ret->type != EROFS_TYPE_DIRECTORY))
		return -EBADMSG;
	return 0;
}

/* Finds a name in the block. -ENOENT. */
static int block_find(
	const struct dir_block *block, const char *text, uint32_t len, struct name *ret)
{
	uint32_t from = 0;
	uint32_t to = block->n;

	while (from < to) {
		uint32_t middle = from + (to - from) / 2;
		int r = dir_name(block, middle, ret);
		int c;

		if (r < 0)
			return r;
		c = key_compare(text, len, ret->text, ret->len);
		if (c == 0)
			return 0;
		if (c < 0)
			to = middle;
		else
			from = middle + 1;
	}
	return -ENOENT;
}

/* The only block that can hold a name: the last whose first name is not greater. -ENOENT. */
static int dir_find_block(const struct image *image, struct image_view *view,
	const struct image_inode *dir, const char *text, uint32_t len, struct dir_block *ret)
{
	uint64_t from = 0;
	uint64_t to = dir_blocks(dir);
	struct name first;
	int r = 0;

	while (r == 0 && from < to) {
		uint64_t middle = from + (to - from) / 2;

		r = dir_block(image, view, dir, middle, ret);
		if (r == 0)
			r = dir_name(ret, 0, &first);
		if (r == 0 && key_compare(text, len, first.text, first.len) < 0)
			to = middle;
		else
			from = middle + 1;
	}
	if (r < 0)
		return r;
	return from == 0 ? -ENOENT : dir_block(image, view, dir, from - 1, ret);
}

int image_lookup(struct image *image, struct image_view *view, const struct image_inode *dir,
	const char *name, uint32_t name_len, struct image_inode *ret)
{
	struct image_inode inode;
	struct dir_block block;
	struct name found;
	int r;

	CHECK_MAGIC(image, IMAGE_MAGIC);
	if (!dir->directory)
		return -ENOTDIR;
	r = dir_find_block(image, view, dir, name, name_len, &block);
	if (r == 0)
		r = block_find(&block, name, name_len, &found);
	if (r < 0)
		return r;
	r = image_inode(image, view, found.nid, &inode);
	if (r < 0)
		return r == -ENOENT ? -EBADMSG : r; /* a name of nothing */
	if (inode.directory != (found.type == EROFS_TYPE_DIRECTORY))
		return -EBADMSG;
	*ret = inode;
	return 0;
}

static bool is_dots(const struct name *name)
{
	return name->text[0] == '.' && (name->len == 1 || (name->len == 2 && name->text[1] == '.'));
}

/* The dirent at a place, which must be greater than its predecessor in the block: a directory that
 * is listed in order can be searched. */
static int block_name(const struct dir_block *block, uint32_t i, struct name *ret)
{
	struct name before;
	int r = i ? dir_name(block, i - 1, &before) : 0;

	if (r == 0)
		r = dir_name(block, i, ret);
	if (r == 0 && i && key_compare(before.text, before.len, ret->text, ret->len) >= 0)
		r = -EBADMSG;
	return r;
}

int image_read_entry(struct image *image, struct image_view *view, const struct image_inode *dir,
	uint64_t cookie, struct image_entry *ret)
{
	uint64_t number = cookie >> DIRENT_BITS;
	uint32_t i = cookie & ((1u << DIRENT_BITS) - 1);
	struct dir_block block;
	struct name name;

	CHECK_MAGIC(image, IMAGE_MAGIC);
	if (!dir->directory)
		return -ENOTDIR;
	for (int dots = 0;; dots++) { /* "." and ".." are in the order of the names, once each */
		int r;

		if (dots > 2)
			return -EBADMSG;
		if (number >= dir_blocks(dir))
			return number == dir_blocks(dir) && i == 0 ? -ENOENT : -EINVAL;
		r = dir_block(image, view, dir, number, &block);
		if (r < 0)
			return r;
		if (i >= block.n)
			return -EINVAL;
		r = block_name(&block, i, &name);
		if (r < 0)
			return r;
		if (++i == block.n) {
			number++;
			i = 0;
		}
		if (!is_dots(&name))
			break;
	}
	*ret = (struct image_entry){
		.nid = name.nid,
		.directory = name.type == EROFS_TYPE_DIRECTORY,
		.name_len = name.len,
		.name = name.text,
		.next_cookie = number << DIRENT_BITS | i,
	};
	return 0;
}

/* ---- the head -------------------------------------------------------------------------------- */

/* No device is larger than an extent of the size that the caller gave. */
static int devices_check(const struct image *image, uint64_t offset)
{
	struct erofs_device devices[DEVICES_AT_A_TIME];

	for (uint32_t i = 0; i < image->devices;) {
		uint32_t n = min(image->devices - i, (uint32_t)DEVICES_AT_A_TIME);
		int r = file_pread_exact(image->fd, devices, n * sizeof(devices[0]),
			offset + (uint64_t)i * sizeof(devices[0]));

		if (r < 0)
			return r == -ENODATA ? -EBADMSG : r;
		for (uint32_t j = 0; j < n; j++)
			if (devices[j].blocks > image->extent_bytes / BLOCK_BYTES ||
				devices[j].mapped_block != 0)
				return -EBADMSG;
		i += n;
	}
	return 0;
}

/* Takes over what the super block says, as far as it makes sense. */
static int super_take(struct image *image, const struct erofs_super *super, uint64_t file_bytes)
{
	uint64_t devices_at = (uint64_t)super->device_slot * EROFS_SLOT_BYTES;
	uint64_t devices_end = devices_at + (uint64_t)super->extra_devices * EROFS_SLOT_BYTES;

	if (super->magic != EROFS_MAGIC)
		return -EBADMSG;
	if (super->feature_compat != 0 ||
		super->feature_incompat != (EROFS_INCOMPAT_CHUNKED | EROFS_INCOMPAT_DEVICES) ||
		super->block_bits != BLOCK_BITS || super->ext_slots != 0 ||
		super->meta_block != 0 || super->compression != 0)
		return -EPROTONOSUPPORT;
	image->blocks = super->blocks;
	image->first_inode = align_up(devices_end, BLOCK_BYTES);
	image->root = super->root_nid;
	image->n_inodes = super->inodes;
	image->devices = super->extra_devices;
	if (image->devices == 0 || image->devices > IMAGE_DEVICES_MAX ||
		devices_at < EROFS_SUPER_OFFSET + sizeof(*super) ||
		image->blocks != file_bytes / BLOCK_BYTES || file_bytes % BLOCK_BYTES ||
		devices_end > file_bytes || image->n_inodes == 0 ||
		image->n_inodes > file_bytes / sizeof(struct erofs_inode))
		return -EBADMSG;
	return devices_check(image, devices_at);
}

static int head_read(struct image *image)
{
	struct image_view *view;
	struct erofs_super super = { 0 };
	struct image_inode root;
	struct stat st;
	int r = fstat(image->fd, &st) == 0 ? 0 : err_errno();

	if (r == 0)
		r = file_pread_exact(image->fd, &super, sizeof(super), EROFS_SUPER_OFFSET);
	if (r < 0)
		return r == -ENODATA ? -EBADMSG : r;
	r = super_take(image, &super, (uint64_t)st.st_size);
	if (r < 0)
		return r;
	view = calloc(1, sizeof(*view));
	if (!view)
		return -ENOMEM;
	r = image_inode(image, view, image->root, &root);
	free(view);
	if (r < 0)
		return r == -ENOENT ? -EBADMSG : r;
	return root.directory ? 0 : -EBADMSG;
}

DEFINE_CLEANUP(struct image *, image_close);

/* Ours to believe as little as the file. */
static bool sources_plausible(const struct layout_sources *sources, uint32_t devices)
{
	if (sources->n > LAYOUT_SOURCES_MAX || sources->first[0] != 0)
		return false;
	for (uint32_t i = 1; i < sources->n; i++)
		if (sources->first[i] < sources->first[i - 1] || sources->first[i] >= devices)
			return false;
	return true;
}

int image_open(int fd, uint64_t extent_bytes, const struct layout_sources *sources,
	struct image **ret_image, struct err *e)
{
	_cleanup_(image_close_p) struct image *image = NULL;
	_cleanup_close_ int owned = fd;
	int r;

	if (extent_bytes < CHUNK_BYTES || extent_bytes > EXTENT_MAX ||
		(extent_bytes & (extent_bytes - 1)))
		return err_set(e, -EINVAL, "the image cannot have extents of %llu bytes",
			(unsigned long long)extent_bytes);
	image = calloc(1, sizeof(*image));
	if (!image)
		return err_default(e, -ENOMEM, "cannot open the image");
	image->magic = IMAGE_MAGIC;
	image->fd = TAKE_FD(owned);
	image->extent_bytes = extent_bytes;
	if (sources)
		image->sources = *sources;
	r = head_read(image);
	if (r == 0 && !sources_plausible(&image->sources, image->devices))
		r = -EBADMSG;
	if (r == -EBADMSG)
		return err_set(e, r, "the image is damaged: remove it, it is built again");
	if (r == -EPROTONOSUPPORT)
		return err_set(e, r,
			"the image has features that this version does not read: remove it, it is "
			"built again");
	if (r < 0)
		return err_set(
			e, r, "cannot read the image: %s: check the disk of the cache", err_str(r));
	*ret_image = TAKE(image);
	return 0;
}

void image_close(struct image *image)
{
	if (!image)
		return;
	CHECK_MAGIC(image, IMAGE_MAGIC);
	if (image->fd >= 0)
		(void)close(image->fd); /* only read */
	image->magic = 0;
	free(image);
}

uint64_t image_root(const struct image *image)
{
	return image->root;
}

uint64_t image_n_inodes(const struct image *image)
{
	return image->n_inodes;
}
