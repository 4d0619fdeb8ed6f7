/*
 * Node ids of an image. See nodes.h.
 *
 *	files	one 64-bit word each, sorted: low half of the node id, then the nid. Ids with the
 *		same upper half (16 TiB of the volume) lie together, `first` says where
 *	names	what has no bytes: nid and parent, in an array in the order of the walk (breadth
 *		first), found by node id through a table of its indexes
 *
 * A nid has 32 bits: images up to 128 GiB.
 */
#include "fuse/tree/nodes.h"
#include "base/arena.h"
#include "base/hash.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define NODES_MAGIC 0x70DE5A11u
#define FIRST_NAMES 1024u
/* Of the last source's last file. */
#define UPPER_MAX    ((((uint64_t)LAYOUT_SOURCES_MAX << PLACE_BITS) / BLOCK_BYTES + NODES_FILES) >> 32)
#define ATTEMPTS_MAX 4096u /* with hashes of 62 bits the second is hardly ever needed */

struct name {
	uint64_t node;
	uint32_t nid;
	uint32_t parent; /* index in names */
};

struct nodes {
	uint32_t magic;
	uint64_t hash_mask;
	uint64_t *files; /* low half of the node id << 32 | nid */
	uint64_t n_files;
	uint64_t *first; /* by the upper half of a node id: index in files; one more at the end */
	uint32_t n_first;
	struct name *names;
	uint32_t n_names;
	uint32_t cap_names;
	uint32_t *table; /* index in names + 1, by node id; 0: free. Twice cap_names */
	uint64_t blocks;
	bool met;
	uint64_t charged; /* to the arena */
};

/* ---- names: directories, and files without bytes --------------------------------------------- */

/* Where `node` is in the table, or the free place where it would be. */
static uint32_t *name_place(const struct nodes *nodes, uint64_t node)
{
	uint32_t mask = 2 * nodes->cap_names - 1;
	uint32_t i = (uint32_t)node & mask; /* it is a hash */

	while (nodes->table[i] && nodes->names[nodes->table[i] - 1].node != node)
		i = (i + 1) & mask;
	return &nodes->table[i];
}

static struct name *name_find(const struct nodes *nodes, uint64_t node)
{
	uint32_t at = *name_place(nodes, node);

	return at ? &nodes->names[at - 1] : NULL;
}

/* The id that a name asks for, and when that is taken the next that it asks for. Each by a hash of
 * its own: whoever chooses names such that many meet once does not have them meet again. */
static uint64_t name_node(
	const struct nodes *nodes, uint64_t parent, const char *name, size_t len, uint64_t attempt)
{
	return NODES_NAMES |
	       (hash_xxh3(name, len, parent + attempt * 0x9E3779B97F4A7C15ull) & nodes->hash_mask);
}

static int names_grow(struct nodes *nodes)
{
	uint32_t cap = nodes->cap_names ? 2 * nodes->cap_names : FIRST_NAMES;
	struct name *names = realloc(nodes->names, cap * sizeof(*names));
	uint32_t *table;

	if (!names)
		return -ENOMEM;
	nodes->names = names;
	table = calloc(2 * (size_t)cap, sizeof(*table));
	if (!table)
		return -ENOMEM;
	free(nodes->table);
	nodes->table = table;
	nodes->cap_names = cap;
	for (uint32_t i = 0; i < nodes->n_names; i++)
		*name_place(nodes, names[i].node) = i + 1;
	return 0;
}

static int name_add(struct nodes *nodes, uint64_t node, uint64_t nid, uint32_t parent)
{
	int r = nodes->n_names == nodes->cap_names ? names_grow(nodes) : 0;

	if (r < 0)
		return r;
	nodes->names[nodes->n_names] =
		(struct name){ .node = node, .nid = (uint32_t)nid, .parent = parent };
	*name_place(nodes, node) = ++nodes->n_names;
	return 0;
}

/* The id of a name with this nid. -EBADMSG: there is none. */
static int name_node_of(const struct nodes *nodes, uint64_t parent, const char *name, size_t len,
	uint64_t nid, uint64_t *ret_node)
{
	for (uint64_t i = 0; i < ATTEMPTS_MAX; i++) {
		uint64_t node = name_node(nodes, parent, name, len, i);
		const struct name *found = name_find(nodes, node);

		if (!found)
			break;
		if (found->nid == nid) {
			*ret_node = node;
			return 0;
		}
	}
	return -EBADMSG;
}

/* ---- files with bytes ------------------------------------------------------------------------ */

static uint64_t file_node(const struct image_inode *inode)
{
	return NODES_FILES + inode->offset / BLOCK_BYTES;
}

/* Its place in files. -ESTALE: no file's. */
static int file_find(const struct nodes *nodes, uint64_t node, uint64_t *ret_place)
{
	uint64_t from;
	uint64_t to;

	if (node >> 32 >= nodes->n_first)
		return -ESTALE;
	from = nodes->first[node >> 32];
	to = nodes->first[(node >> 32) + 1];
	while (from < to) {
		uint64_t middle = from + (to - from) / 2;
		uint32_t low = (uint32_t)(nodes->files[middle] >> 32);

		if (low == (uint32_t)node) {
			*ret_place = middle;
			return 0;
		}
		if (low < (uint32_t)node)
			from = middle + 1;
		else
			to = middle;
	}
	return -ESTALE;
}

/* ---- the walk over the image ----------------------------------------------------------------- */

struct walk {
	struct nodes *nodes;
	struct image *image;
	struct image_view view;
	uint64_t inodes; /* more than these cannot be: a directory is below itself */
	uint32_t *upper; /* per file: upper half of its node id; NULL: all 0 */
	uint32_t upper_max;
};

static int walk_file(struct walk *w, const struct image_inode *inode)
{
	struct nodes *nodes = w->nodes;
	uint64_t node = file_node(inode);
	uint64_t upper = node >> 32;

	if (upper > UPPER_MAX)
		return -EBADMSG;
	if (upper && !w->upper) {
		w->upper = calloc(w->inodes, sizeof(*w->upper));
		if (!w->upper)
			return -ENOMEM;
	}
	if (w->upper)
		w->upper[nodes->n_files] = (uint32_t)upper;
	w->upper_max = max(w->upper_max, (uint32_t)upper);
	nodes->files[nodes->n_files++] = node << 32 | inode->nid;
	nodes->blocks += (inode->size + BLOCK_BYTES - 1) / BLOCK_BYTES;
	return 0;
}

static int walk_name(struct walk *w, uint32_t parent, const char *name, size_t len, uint64_t nid)
{
	struct nodes *nodes = w->nodes;

	for (uint64_t i = 0; i < ATTEMPTS_MAX; i++) {
		uint64_t node = name_node(nodes, nodes->names[parent].node, name, len, i);

		if (!name_find(nodes, node))
			return name_add(nodes, node, nid, parent);
		nodes->met = true;
	}
	return -E2BIG;
}

static int walk_entry(struct walk *w, uint32_t parent, const struct image_entry *entry)
{
	struct image_inode inode;
	char name[IMAGE_NAME_MAX];
	int r;

	memcpy(name, entry->name, entry->name_len); /* the view's */
	r = image_inode(w->image, &w->view, entry->nid, &inode);
	if (r < 0)
		return r == -ENOENT ? -EBADMSG : r;
	if (inode.directory != entry->directory ||
		w->nodes->n_files + w->nodes->n_names >= w->inodes)
		return -EBADMSG;
	if (inode.nid > UINT32_MAX)
		return -EFBIG;
	if (!inode.directory && inode.size)
		return walk_file(w, &inode);
	return walk_name(w, parent, name, entry->name_len, inode.nid);
}

static int walk_directory(struct walk *w, uint32_t index)
{
	struct image_inode dir;
	struct image_entry entry;
	uint64_t cookie = 0;
	int r = image_inode(w->image, &w->view, w->nodes->names[index].nid, &dir);

	if (r < 0 || !dir.directory)
		return r;
	while ((r = image_read_entry(w->image, &w->view, &dir, cookie, &entry)) == 0) {
		cookie = entry.next_cookie;
		r = walk_entry(w, index, &entry);
		if (r < 0)
			return r;
	}
	return r == -ENOENT ? 0 : r;
}

/* Puts the files with the same upper half together, those with the lowest first. */
static int files_group(struct nodes *nodes, const uint32_t *upper)
{
	uint64_t *grouped = malloc(nodes->n_files * sizeof(*grouped));
	uint64_t *at = calloc(nodes->n_first + 1, sizeof(*at));

	if (!grouped || !at) {
		free(grouped);
		free(at);
		return -ENOMEM;
	}
	for (uint64_t i = 0; i < nodes->n_files; i++)
		nodes->first[upper[i] + 1]++;
	for (uint32_t i = 0; i < nodes->n_first; i++) {
		nodes->first[i + 1] += nodes->first[i];
		at[i + 1] = nodes->first[i + 1];
	}
	for (uint64_t i = 0; i < nodes->n_files; i++)
		grouped[at[upper[i]]++] = nodes->files[i];
	free(at);
	free(nodes->files);
	nodes->files = grouped;
	return 0;
}

/* By the low half of the node id, a byte at a time: what comes in is nearly sorted, or long. */
static int files_sort(uint64_t *files, uint64_t n)
{
	uint64_t sorted = 1;
	uint64_t *other;

	while (sorted < n && files[sorted - 1] < files[sorted])
		sorted++;
	if (sorted >= n)
		return 0;
	other = malloc(n * sizeof(*other));
	if (!other)
		return -ENOMEM;
	for (unsigned int shift = 32; shift < 64; shift += 8) {
		uint64_t at[257] = { 0 };
		uint64_t *from = shift % 16 == 0 ? files : other;
		uint64_t *to = shift % 16 == 0 ? other : files;

		for (uint64_t i = 0; i < n; i++)
			at[(from[i] >> shift & 0xff) + 1]++;
		for (unsigned int i = 1; i < 256; i++)
			at[i] += at[i - 1];
		for (uint64_t i = 0; i < n; i++)
			to[at[from[i] >> shift & 0xff]++] = from[i];
	}
	free(other);
	return 0;
}

static int files_index(struct nodes *nodes, const struct walk *w)
{
	int r = 0;

	nodes->n_first = w->upper_max + 1;
	nodes->first = calloc(nodes->n_first + 1, sizeof(*nodes->first));
	if (!nodes->first)
		return -ENOMEM;
	nodes->first[nodes->n_first] = nodes->n_files;
	if (w->upper) {
		nodes->first[nodes->n_first] = 0;
		r = files_group(nodes, w->upper);
	}
	for (uint32_t i = 0; r == 0 && i < nodes->n_first; i++)
		r = files_sort(
			nodes->files + nodes->first[i], nodes->first[i + 1] - nodes->first[i]);
	for (uint32_t i = 0; r == 0 && i < nodes->n_first; i++)
		for (uint64_t k = nodes->first[i] + 1; r == 0 && k < nodes->first[i + 1]; k++)
			if (nodes->files[k] >> 32 == nodes->files[k - 1] >> 32)
				r = -EBADMSG; /* two files in one place */
	return r;
}

static int walk(struct nodes *nodes, struct image *image)
{
	struct walk *w = calloc(1, sizeof(*w));
	int r;

	if (!w)
		return -ENOMEM;
	w->nodes = nodes;
	w->image = image;
	w->inodes = image_n_inodes(image);
	nodes->files = malloc(max(w->inodes, 1ull) * sizeof(*nodes->files));
	r = nodes->files ? name_add(nodes, NODES_ROOT, image_root(image), 0) : -ENOMEM;
	for (uint32_t i = 0; r == 0 && i < nodes->n_names; i++)
		r = walk_directory(w, i);
	if (r == 0)
		r = files_index(nodes, w);
	free(w->upper);
	free(w);
	return r;
}

/* ---------------------------------------------------------------------------------------------- */

static uint64_t nodes_bytes(const struct nodes *nodes)
{
	return nodes->n_files * sizeof(*nodes->files) +
	       (nodes->n_first + 1ull) * sizeof(*nodes->first) +
	       nodes->cap_names * (sizeof(*nodes->names) + 2 * sizeof(*nodes->table));
}

int nodes_new(struct image *image, unsigned int hash_bits, struct nodes **ret_nodes)
{
	struct nodes *nodes = calloc(1, sizeof(*nodes));
	int r;

	if (!nodes)
		return -ENOMEM;
	nodes->magic = NODES_MAGIC;
	ensure(hash_bits > 0 && NODES_NAMES >> hash_bits);
	nodes->hash_mask = (1ull << hash_bits) - 1;
	r = walk(nodes, image);
	if (r == 0) {
		uint64_t bytes = nodes_bytes(nodes);

		if (arena_take(ARENA_IMAGE, BUDGET_DEMAND, bytes))
			nodes->charged = bytes;
		else
			r = -ENOMEM;
	}
	if (r < 0) {
		nodes_free(nodes);
		return r;
	}
	*ret_nodes = nodes;
	return 0;
}

void nodes_free(struct nodes *nodes)
{
	if (!nodes)
		return;
	CHECK_MAGIC(nodes, NODES_MAGIC);
	nodes->magic = 0;
	arena_give(ARENA_IMAGE, nodes->charged);
	free(nodes->files);
	free(nodes->first);
	free(nodes->names);
	free(nodes->table);
	free(nodes);
}

int nodes_nid(const struct nodes *nodes, uint64_t node, uint64_t *ret_nid)
{
	const struct name *name = name_find(nodes, node);
	uint64_t place = 0;
	int r = name ? 0 : file_find(nodes, node, &place);

	if (r == 0)
		*ret_nid = name ? name->nid : (uint32_t)nodes->files[place];
	return r;
}

int nodes_index(const struct nodes *nodes, uint64_t node, uint64_t *ret_index)
{
	const struct name *name = name_find(nodes, node);
	uint64_t place = 0;
	int r = name ? 0 : file_find(nodes, node, &place);

	if (r == 0)
		*ret_index = name ? (uint64_t)(name - nodes->names) : nodes->n_names + place;
	return r;
}

int nodes_of(const struct nodes *nodes, uint64_t parent, const char *name, size_t len,
	const struct image_inode *inode, uint64_t *ret_node)
{
	if (inode->directory || inode->size == 0)
		return name_node_of(nodes, parent, name, len, inode->nid, ret_node);
	*ret_node = file_node(inode);
	return 0;
}

int nodes_parent(const struct nodes *nodes, uint64_t node, uint64_t *ret_parent)
{
	const struct name *name = name_find(nodes, node);

	if (!name)
		return -ENOTDIR;
	*ret_parent = nodes->names[name->parent].node;
	return 0;
}

bool nodes_met(const struct nodes *nodes)
{
	return nodes->met;
}

void nodes_drop_files(struct nodes *nodes)
{
	uint64_t less = nodes->n_files * sizeof(*nodes->files);

	free(nodes->files);
	nodes->files = NULL;
	nodes->n_files = 0;
	memset(nodes->first, 0, (nodes->n_first + 1ull) * sizeof(*nodes->first));
	arena_give(ARENA_IMAGE, less);
	nodes->charged -= less;
}

uint64_t nodes_count(const struct nodes *nodes)
{
	return nodes->n_files + nodes->n_names;
}

uint64_t nodes_blocks(const struct nodes *nodes)
{
	return nodes->blocks;
}
