/*
 * The fuse engine's tree. See tree_image.h.
 *
 * Zero-message mode: OPEN and OPENDIR are answered ENOSYS, so that the kernel opens, lists and
 * closes by itself; names and attributes are good for ever, and so is the absence of a name.
 */
#include "fuse/tree/tree_image.h"
#include "base/arena.h"
#include "base/layout.h"
#include "base/limits.h"
#include "base/log.h"
#include "fuse/tree/nodes.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define TREE_MAGIC 0x7EE1A6E0u
#define SIZES_BITS 6u
#define SIZES      (1u << SIZES_BITS) /* files whose size a thread remembers */

/* Not READDIRPLUS_AUTO: the kernel would give it up in the middle of a directory. */
#define CAPABILITIES FUSE_CAP_READDIRPLUS

/* Offsets of a directory: "." is at 0, ".." at 1, the entry with cookie c at c + 2. */
#define OFFSET_PARENT  1u
#define OFFSET_ENTRIES TREE_IMAGE_ENTRIES
#define OFFSET_MASK    ((1ull << TREE_IMAGE_OFFSET_BITS) - 1)

struct tree_image {
	uint32_t magic;
	struct tree tree;
	struct image *image;
	struct nodes *nodes;
	uint64_t stamp;
	_Atomic uint64_t *known; /* a bit per node: the kernel knows it */
	struct tree_image *heir; /* NULL: none */
};

/* What a thread brings. */
struct scratch {
	struct image_view view;
	struct {
		uint64_t node; /* 0: none */
		uint64_t size;
	} sizes[SIZES];
};

static struct tree_image *image_of(struct tree *tree)
{
	struct tree_image *t = container_of(tree, struct tree_image, tree);

	CHECK_MAGIC(t, TREE_MAGIC);
	return t;
}

static struct image_view *view_of(void *scratch)
{
	return &((struct scratch *)scratch)->view;
}

/* What an application gets to see of an image that cannot be read. */
static int image_errno(int r)
{
	if (r == 0 || r == -ENOENT || r == -ENOTDIR || r == -EINVAL)
		return r;
	LOG_LIMITED(LOG_ERROR, "the image cannot be read", "error=%s next=\"mount again\"",
		err_name(r));
	return -EIO;
}

static int inode_of(
	const struct tree_image *t, void *scratch, uint64_t node, struct image_inode *ret)
{
	uint64_t nid = 0;
	int r = nodes_nid(t->nodes, node, &nid);

	if (r < 0)
		return r;
	r = image_inode(t->image, view_of(scratch), nid, ret);
	return image_errno(r == -ENOENT ? -EBADMSG : r);
}

static int directory_of(
	const struct tree_image *t, void *scratch, uint64_t node, struct image_inode *ret)
{
	int r = inode_of(t, scratch, node, ret);

	return r == 0 && !ret->directory ? -ENOTDIR : r;
}

void tree_image_attr(uint64_t node, const struct image_inode *inode, struct stat *ret)
{
	const struct timespec mtime = { .tv_sec = (time_t)inode->mtime,
		.tv_nsec = inode->mtime_nsec };

	*ret = (struct stat){
		.st_ino = node,
		.st_size = (off_t)inode->size,
		.st_blocks = (blkcnt_t)(align_up(inode->size, BLOCK_BYTES) / 512),
		.st_atim = mtime,
		.st_mtim = mtime,
		.st_ctim = mtime,
		.st_mode = inode->mode,
		.st_nlink = inode->nlink,
		.st_uid = inode->uid,
		.st_gid = inode->gid,
		.st_blksize = BLOCK_BYTES,
	};
}

static void entry_of(uint64_t node, const struct image_inode *inode, struct fuse_entry_param *ret)
{
	*ret = (struct fuse_entry_param){
		.ino = node, .entry_timeout = TREE_VALID_SECONDS, .attr_timeout = TREE_VALID_SECONDS
	};
	tree_image_attr(node, inode, &ret->attr);
}

static int tree_image_lookup(struct tree *tree, void *scratch, uint64_t parent, const char *name,
	struct fuse_entry_param *ret)
{
	struct tree_image *t = image_of(tree);
	size_t len = strlen(name);
	struct image_inode dir;
	struct image_inode inode;
	uint64_t node = 0;
	int r = directory_of(t, scratch, parent, &dir);

	if (r < 0)
		return r;
	if (len > IMAGE_NAME_MAX)
		return -ENAMETOOLONG;
	if (strcmp(name, ".") == 0 || strcmp(name, "..") == 0)
		return -EINVAL; /* the kernel knows them */
	r = image_lookup(t->image, view_of(scratch), &dir, name, (uint32_t)len, &inode);
	if (r == -ENOENT) {
		*ret = (struct fuse_entry_param){ .entry_timeout = TREE_VALID_SECONDS };
		return 0;
	}
	if (r == 0)
		r = nodes_of(t->nodes, parent, name, len, &inode, &node);
	if (r < 0)
		return image_errno(r);
	entry_of(node, &inode, ret);
	return 0;
}

static int tree_image_getattr(struct tree *tree, void *scratch, uint64_t node, struct stat *ret)
{
	struct image_inode inode;
	int r = inode_of(image_of(tree), scratch, node, &inode);

	if (r < 0)
		return r;
	tree_image_attr(node, &inode, ret);
	return 0;
}

static int tree_image_open(struct tree *tree, uint64_t node, struct fuse_file_info *ret)
{
	(void)tree;
	(void)node;
	(void)ret;
	return -ENOSYS;
}

/* ---- what the kernel knows ------------------------------------------------------------------- */

/* The bit of a node, and the word that it is in; NULL: no node. */
static _Atomic uint64_t *known_word(const struct tree_image *t, uint64_t node, uint64_t *ret_bit)
{
	uint64_t i;

	if (nodes_index(t->nodes, node, &i) < 0)
		return NULL;
	*ret_bit = 1ull << i % 64;
	return &t->known[i / 64];
}

static bool is_known(const struct tree_image *t, uint64_t node)
{
	uint64_t bit = 0;
	_Atomic uint64_t *word = known_word(t, node, &bit);

	return word && (atomic_load(word) & bit);
}

bool tree_image_knows(struct tree *tree, uint64_t node)
{
	return is_known(image_of(tree), node);
}

void tree_image_set_heir(struct tree *tree, struct tree *heir)
{
	image_of(tree)->heir = heir ? image_of(heir) : NULL;
}

const struct nodes *tree_image_nodes(struct tree *tree)
{
	return image_of(tree)->nodes;
}

static uint64_t tree_image_give(struct tree *tree, uint64_t node)
{
	uint64_t bit = 0;
	struct tree_image *t = image_of(tree);
	_Atomic uint64_t *word = known_word(t, node, &bit);

	if (t->heir)
		(void)tree_image_give(&t->heir->tree, node); /* it is counted here */
	return word && !(atomic_fetch_or(word, bit) & bit);
}

/* The kernel gives all lookups of a node back at once, however many there were. */
static uint64_t tree_image_forget(struct tree *tree, uint64_t node, uint64_t lookups)
{
	uint64_t bit = 0;
	struct tree_image *t = image_of(tree);
	_Atomic uint64_t *word = known_word(t, node, &bit);

	if (t->heir)
		(void)tree_image_forget(&t->heir->tree, node, lookups);
	return word && (atomic_fetch_and(word, ~bit) & bit);
}

/* ---- directories ----------------------------------------------------------------------------- */

/* `entry->ino` 0: the kernel gets to know no node. False: no room. */
static bool entries_add(struct tree_image *t, struct tree_entries *entries, bool plus,
	const char *name, const struct fuse_entry_param *entry, uint64_t next)
{
	char *at = (char *)entries->buf + entries->len;
	size_t room = entries->size - entries->len;
	off_t offset = (off_t)(next | t->stamp);
	/* The library does not use the request. */
	size_t bytes = plus ? fuse_add_direntry_plus(NULL, at, room, name, entry, offset)
			    : fuse_add_direntry(NULL, at, room, name, &entry->attr, offset);

	if (bytes > room)
		return false;
	if (entry->ino)
		entries->given += tree_image_give(&t->tree, entry->ino);
	entries->len += bytes;
	return true;
}

/* The entry at `offset` >= OFFSET_ENTRIES. -ENOSPC: no room; -ENOENT: there is none. */
static int list_entry(struct tree_image *t, void *scratch, const struct image_inode *dir,
	const struct request *req, uint64_t *offset, struct tree_entries *entries)
{
	bool plus = req->opcode == FUSE_READDIRPLUS;
	char name[IMAGE_NAME_MAX + 1];
	struct image_entry listed;
	struct image_inode inode;
	struct fuse_entry_param entry;
	uint64_t node = 0;
	int r = image_read_entry(
		t->image, view_of(scratch), dir, *offset - OFFSET_ENTRIES, &listed);

	if (r < 0)
		return image_errno(r);
	memcpy(name, listed.name, listed.name_len); /* the view's */
	name[listed.name_len] = '\0';
	if (strlen(name) != listed.name_len)
		return image_errno(-EBADMSG);
	r = image_inode(t->image, view_of(scratch), listed.nid, &inode);
	if (r == 0)
		r = nodes_of(t->nodes, req->nodeid, name, listed.name_len, &inode, &node);
	if (r < 0)
		return image_errno(r == -ENOENT ? -EBADMSG : r);
	entry_of(node, &inode, &entry);
	if (!plus || (entries->given >= entries->prime && !is_known(t, node)))
		entry.ino = 0;
	*offset = listed.next_cookie + OFFSET_ENTRIES;
	return entries_add(t, entries, plus, name, &entry, *offset) ? 0 : -ENOSPC;
}

/* "." and "..": never with attributes. -ENOSPC: no room. */
static int list_dots(struct tree_image *t, const struct request *req, uint64_t *offset,
	struct tree_entries *entries)
{
	uint64_t parent = 0;
	int r = nodes_parent(t->nodes, req->nodeid, &parent);

	for (; r == 0 && *offset < OFFSET_ENTRIES; ++*offset) {
		bool up = *offset == OFFSET_PARENT;
		const struct fuse_entry_param entry = {
			.attr = { .st_ino = up ? parent : req->nodeid, .st_mode = S_IFDIR }
		};

		if (!entries_add(t, entries, req->opcode == FUSE_READDIRPLUS, up ? ".." : ".",
			    &entry, *offset + 1))
			return -ENOSPC;
	}
	return r;
}

static int tree_image_readdir(
	struct tree *tree, void *scratch, const struct request *req, struct tree_entries *entries)
{
	struct tree_image *t = image_of(tree);
	uint64_t offset = req->read.offset & OFFSET_MASK;
	struct image_inode dir;
	int r = directory_of(t, scratch, req->nodeid, &dir);

	if (r < 0)
		return r;
	entries->len = 0;
	entries->given = 0;
	r = list_dots(t, req, &offset, entries);
	while (r == 0)
		r = list_entry(t, scratch, &dir, req, &offset, entries);
	if (entries->len || r == -ENOENT)
		return 0; /* an error shows when it is met first */
	return r == -ENOSPC ? -EINVAL : r;
}

/* ---- bytes ----------------------------------------------------------------------------------- */

/*
 * The size of a file; from what the thread remembers when it can: the inode of a file in several
 * extents takes a look at an index per MiB.
 */
static int size_of(
	const struct tree_image *t, struct scratch *scratch, uint64_t node, uint64_t *ret_size)
{
	size_t i = node * 0x9E3779B97F4A7C15ull >> (64 - SIZES_BITS);
	struct image_inode inode;
	int r;

	if (scratch->sizes[i].node != node || node == 0) {
		r = inode_of(t, scratch, node, &inode);
		if (r < 0)
			return r;
		if (inode.directory)
			return -EISDIR;
		scratch->sizes[i].node = node;
		scratch->sizes[i].size = inode.size;
	}
	*ret_size = scratch->sizes[i].size;
	return 0;
}

int tree_image_range_of(const struct request *req, uint64_t size, struct tree_range *ret)
{
	uint64_t at;

	if (req->read.size > LIMIT_PAYLOAD_BYTES)
		return -EINVAL; /* more than INIT allows */
	*ret = (struct tree_range){ 0 };
	if (req->read.offset >= size || req->read.size == 0)
		return 0;
	at = (req->nodeid - NODES_FILES) * BLOCK_BYTES + req->read.offset;
	ret->size = (uint32_t)min(req->read.size, size - req->read.offset);
	ret->skip = at % BLOCK_BYTES;
	ret->offset = at - ret->skip;
	ret->length = (uint32_t)align_up(ret->skip + ret->size, BLOCK_BYTES);
	return 0;
}

static int tree_image_range(
	struct tree *tree, void *scratch, const struct request *req, struct tree_range *ret)
{
	uint64_t size = 0;
	int r = size_of(image_of(tree), scratch, req->nodeid, &size);

	return r < 0 ? r : tree_image_range_of(req, size, ret);
}

static void tree_image_statfs(struct tree *tree, struct statvfs *ret)
{
	const struct tree_image *t = image_of(tree);

	*ret = (struct statvfs){ .f_bsize = BLOCK_BYTES,
		.f_frsize = BLOCK_BYTES,
		.f_namemax = IMAGE_NAME_MAX,
		.f_files = nodes_count(t->nodes),
		.f_blocks = nodes_blocks(t->nodes) };
}

static const struct tree_ops ops = {
	.lookup = tree_image_lookup,
	.getattr = tree_image_getattr,
	.open = tree_image_open,
	.opendir = tree_image_open,
	.readdir = tree_image_readdir,
	.range = tree_image_range,
	.give = tree_image_give,
	.forget = tree_image_forget,
	.statfs = tree_image_statfs,
};

/* ---------------------------------------------------------------------------------------------- */

static uint64_t known_words(const struct tree_image *t)
{
	return nodes_count(t->nodes) / 64 + 1;
}

int tree_image_new(struct image *image, const struct tree_image_config *config,
	struct tree **ret_tree, struct err *e)
{
	struct tree_image *t = calloc(1, sizeof(*t));
	int r;

	if (!t)
		return err_set(e, -ENOMEM, "out of memory");
	t->magic = TREE_MAGIC;
	t->tree.ops = &ops;
	t->tree.scratch_bytes = sizeof(struct scratch);
	t->tree.capabilities = CAPABILITIES;
	t->tree.prime_max = config->prime_max;
	t->tree.write_status = -EROFS;
	t->image = image;
	t->stamp = config->stamp;
	r = nodes_new(
		image, config->hash_bits ? config->hash_bits : TREE_IMAGE_HASH_BITS, &t->nodes);
	if (r == 0) {
		t->known = arena_calloc(ARENA_IMAGE, known_words(t), sizeof(*t->known));
		r = t->known ? 0 : -ENOMEM;
	}
	if (r < 0) {
		tree_image_free(&t->tree);
		if (r == -ENOMEM)
			return err_set(e, r,
				"out of memory for the names of the mount: give more --memory");
		return err_set(e, r, "the image cannot be read: %s: check the disk of the cache",
			err_str(r));
	}
	*ret_tree = &t->tree;
	return 0;
}

struct nodes *tree_image_take_nodes(struct tree *tree)
{
	struct tree_image *t = image_of(tree);
	struct nodes *nodes = t->nodes;

	arena_free(ARENA_IMAGE, t->known, known_words(t) * sizeof(*t->known));
	t->known = NULL;
	t->nodes = NULL;
	return nodes;
}

void tree_image_free(struct tree *tree)
{
	struct tree_image *t;

	if (!tree)
		return;
	t = image_of(tree);
	if (t->known)
		arena_free(ARENA_IMAGE, t->known, known_words(t) * sizeof(*t->known));
	nodes_free(t->nodes);
	t->magic = 0;
	free(t);
}
