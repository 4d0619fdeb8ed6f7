/* Generations of an image, one after the other. See tree_live.h. */
#include "fuse/tree/tree_live.h"
#include "base/layout.h"
#include "base/limits.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#define LIVE_MAGIC  0x71FE7EE5u
#define STAMP_MASK  ((1ull << TREE_IMAGE_STAMP_BITS) - 1)
#define OFFSET_MASK ((1ull << TREE_IMAGE_OFFSET_BITS) - 1)

struct generation {
	uint64_t number;
	struct image *image; /* NULL: none */
	struct tree *tree;   /* the one shown */
	struct nodes *nodes; /* of one before: its directories */
};

struct tree_live {
	uint32_t magic;
	struct tree tree;
	struct tree_image_config config;
	struct gone *gone;
	pthread_rwlock_t lock; /* the next two; a leaf but for what tree and image take */
	struct generation now;
	struct generation old[LIVE_OLD]; /* the last first */
	_Atomic uint64_t strays; /* nodes that the kernel knows, and that no generation shows */
};

struct tree_live_next {
	struct tree_live *t;
	struct generation generation;
	uint64_t strays;
};

/* What a thread brings: that of the generation's tree follows. */
struct scratch {
	uint64_t number; /* whose it is, + 1 */
	uint64_t inner[];
};

static struct tree_live *live_of(struct tree *tree)
{
	struct tree_live *t = container_of(tree, struct tree_live, tree);

	CHECK_MAGIC(t, LIVE_MAGIC);
	return t;
}

/* The generation that is shown; until done(). */
static struct tree *shown(struct tree_live *t, void *scratch, void **ret_inner)
{
	struct scratch *s = scratch;

	pthread_rwlock_rdlock(&t->lock);
	if (s && s->number != t->now.number + 1) {
		memset(s->inner, 0, t->now.tree->scratch_bytes);
		s->number = t->now.number + 1;
	}
	if (ret_inner)
		*ret_inner = s->inner;
	return t->now.tree;
}

static void done(struct tree_live *t)
{
	pthread_rwlock_unlock(&t->lock);
}

/* ---- operations ------------------------------------------------------------------------------ */

static int tree_live_lookup(struct tree *tree, void *scratch, uint64_t parent, const char *name,
	struct fuse_entry_param *ret)
{
	struct tree_live *t = live_of(tree);
	void *inner;
	struct tree *now = shown(t, scratch, &inner);
	int r = now->ops->lookup(now, inner, parent, name, ret);

	done(t);
	return r;
}

static int tree_live_getattr(struct tree *tree, void *scratch, uint64_t node, struct stat *ret)
{
	struct tree_live *t = live_of(tree);
	void *inner;
	struct tree *now = shown(t, scratch, &inner);
	int r = now->ops->getattr(now, inner, node, ret);
	struct gone_file file;

	done(t);
	if (r != -ESTALE || gone_find(t->gone, node, &file) < 0)
		return r;
	tree_image_attr(node,
		&(struct image_inode){
			.mode = file.mode,
			.uid = file.uid,
			.gid = file.gid,
			.nlink = 1,
			.size = file.size,
			.mtime = file.mtime,
			.mtime_nsec = file.mtime_nsec,
		},
		ret);
	return 0;
}

static int tree_live_range(
	struct tree *tree, void *scratch, const struct request *req, struct tree_range *ret)
{
	struct tree_live *t = live_of(tree);
	void *inner;
	struct tree *now = shown(t, scratch, &inner);
	int r = now->ops->range(now, inner, req, ret);
	struct gone_file file;

	done(t);
	if (r != -ESTALE || gone_find(t->gone, req->nodeid, &file) < 0)
		return r;
	return tree_image_range_of(req, file.size, ret);
}

static int tree_live_open(struct tree *tree, uint64_t node, struct fuse_file_info *ret)
{
	(void)tree;
	(void)node;
	(void)ret;
	return -ENOSYS; /* as tree_image.c */
}

static uint64_t tree_live_give(struct tree *tree, uint64_t node)
{
	struct tree_live *t = live_of(tree);
	struct tree *now = shown(t, NULL, NULL);
	uint64_t n = now->ops->give(now, node);

	done(t);
	return n;
}

static uint64_t tree_live_forget(struct tree *tree, uint64_t node, uint64_t lookups)
{
	struct tree_live *t = live_of(tree);
	struct tree *now = shown(t, NULL, NULL);
	uint64_t n = now->ops->forget(now, node, lookups);
	uint64_t strays = atomic_load(&t->strays);
	uint64_t index;
	bool shows = nodes_index(tree_image_nodes(now), node, &index) == 0;

	done(t);
	while (n == 0 && !shows && strays > 0)
		if (atomic_compare_exchange_weak(&t->strays, &strays, strays - 1))
			n = 1;
	return n;
}

static void tree_live_statfs(struct tree *tree, struct statvfs *ret)
{
	struct tree_live *t = live_of(tree);
	struct tree *now = shown(t, NULL, NULL);

	now->ops->statfs(now, ret);
	done(t);
}

/* ---- listings -------------------------------------------------------------------------------- */

/* A name, and what it takes to look for it. */
struct place {
	struct image_view view;
	char name[IMAGE_NAME_MAX];
	uint32_t len;
};

static int open_directory(struct image *image, struct image_view *view, const struct nodes *nodes,
	uint64_t node, struct image_inode *ret)
{
	uint64_t nid = 0;
	int r = nodes_nid(nodes, node, &nid);

	if (r == 0)
		r = image_inode(image, view, nid, ret);
	return r == 0 && !ret->directory ? -ESTALE : r;
}

/* The name that was next in the listing of an older generation. -ENOENT: it was at its end. */
static int name_at(const struct generation *g, uint64_t node, uint64_t cookie, struct place *place)
{
	struct image_inode dir;
	struct image_entry entry;
	int r = open_directory(g->image, &place->view, g->nodes, node, &dir);

	if (r == 0)
		r = image_read_entry(g->image, &place->view, &dir, cookie, &entry);
	if (r != 0)
		return r;
	memcpy(place->name, entry.name, entry.name_len);
	place->len = entry.name_len;
	return 0;
}

static bool is_before(const struct image_entry *entry, const struct place *place)
{
	int order = memcmp(entry->name, place->name, min(entry->name_len, place->len));

	return order < 0 || (order == 0 && entry->name_len < place->len);
}

/* Where that name, or what follows it, is in the generation that is shown. -ENOENT: at the end. */
static int cookie_of(
	const struct generation *g, uint64_t node, struct place *place, uint64_t *ret_cookie)
{
	struct image_inode dir;
	struct image_entry entry;
	uint64_t cookie = 0;
	int r;

	memset(place->view.block, 0, sizeof(place->view.block)); /* another image's */
	r = open_directory(g->image, &place->view, tree_image_nodes(g->tree), node, &dir);
	while (r == 0) {
		r = image_read_entry(g->image, &place->view, &dir, cookie, &entry);
		if (r == 0 && !is_before(&entry, place))
			break;
		cookie = entry.next_cookie;
	}
	*ret_cookie = cookie;
	return r;
}

/* A place in a listing, for the generation that is shown. -ENOENT: the end. */
static int carry_place(struct tree_live *t, uint64_t node, uint64_t offset, uint64_t *ret_offset)
{
	uint64_t stamp = offset >> TREE_IMAGE_OFFSET_BITS;
	const struct generation *g = NULL;
	struct place *place;
	uint64_t cookie = 0;
	int r;

	offset &= OFFSET_MASK;
	*ret_offset = offset;
	if (offset < TREE_IMAGE_ENTRIES || stamp == (t->now.number & STAMP_MASK))
		return 0;
	for (uint32_t i = 0; i < LIVE_OLD && !g; i++)
		if (t->old[i].image && (t->old[i].number & STAMP_MASK) == stamp)
			g = &t->old[i];
	if (!g)
		return -ESTALE; /* names would be missed, or come twice */
	place = calloc(1, sizeof(*place));
	if (!place)
		return -ENOMEM;
	r = name_at(g, node, offset - TREE_IMAGE_ENTRIES, place);
	if (r == 0)
		r = cookie_of(&t->now, node, place, &cookie);
	free(place);
	*ret_offset = cookie + TREE_IMAGE_ENTRIES;
	return r;
}

static int tree_live_readdir(
	struct tree *tree, void *scratch, const struct request *req, struct tree_entries *entries)
{
	struct tree_live *t = live_of(tree);
	struct request here = *req;
	void *inner;
	struct tree *now = shown(t, scratch, &inner);
	int r = carry_place(t, req->nodeid, req->read.offset, &here.read.offset);

	entries->len = 0;
	entries->given = 0;
	if (r == 0)
		r = now->ops->readdir(now, inner, &here, entries);
	done(t);
	return r == -ENOENT ? 0 : r;
}

static const struct tree_ops ops = {
	.lookup = tree_live_lookup,
	.getattr = tree_live_getattr,
	.open = tree_live_open,
	.opendir = tree_live_open,
	.readdir = tree_live_readdir,
	.range = tree_live_range,
	.give = tree_live_give,
	.forget = tree_live_forget,
	.statfs = tree_live_statfs,
};

/* ---- generations ----------------------------------------------------------------------------- */

static void generation_release(struct generation *g)
{
	tree_image_free(g->tree);
	nodes_free(g->nodes);
	image_close(g->image);
	*g = (struct generation){ 0 };
}

static int generation_open(struct generation *g, struct image *image, uint64_t number,
	const struct tree_image_config *config, struct err *e)
{
	struct tree_image_config own = *config;

	own.stamp = (number & STAMP_MASK) << TREE_IMAGE_OFFSET_BITS;
	g->number = number;
	g->image = image;
	return tree_image_new(image, &own, &g->tree, e);
}

int tree_live_new(struct image *image, uint64_t number, const struct tree_image_config *config,
	struct gone *gone, struct tree **ret_tree, struct err *e)
{
	struct tree_live *t = calloc(1, sizeof(*t));
	pthread_rwlockattr_t attr;
	int r;

	if (!t) {
		image_close(image);
		return err_set(e, -ENOMEM, "out of memory");
	}
	t->magic = LIVE_MAGIC;
	t->config = *config;
	t->gone = gone;
	pthread_rwlockattr_init(&attr);
	/* Readers never stop coming. */
	pthread_rwlockattr_setkind_np(&attr, PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP);
	pthread_rwlock_init(&t->lock, &attr);
	pthread_rwlockattr_destroy(&attr);
	r = generation_open(&t->now, image, number, config, e);
	if (r < 0) {
		tree_live_free(&t->tree);
		return r;
	}
	t->tree = *t->now.tree;
	t->tree.ops = &ops;
	t->tree.scratch_bytes = sizeof(struct scratch) + t->now.tree->scratch_bytes;
	*ret_tree = &t->tree;
	return 0;
}

void tree_live_free(struct tree *tree)
{
	struct tree_live *t;

	if (!tree)
		return;
	t = live_of(tree);
	generation_release(&t->now);
	for (uint32_t i = 0; i < LIVE_OLD; i++)
		generation_release(&t->old[i]);
	pthread_rwlock_destroy(&t->lock);
	t->magic = 0;
	free(t);
}

static int nodes_error(int r, struct err *e)
{
	return r == -ENOMEM ? err_set(e, r,
				      "out of memory for the names of the mount: give more "
				      "--memory")
			    : err_set(e, r,
				      "the image cannot be read: %s: check the disk of the "
				      "cache",
				      err_str(r));
}

int tree_live_remember(struct tree *tree, struct image *image, struct err *e)
{
	struct tree_live *t = live_of(tree);
	struct nodes *nodes = NULL;
	int r = nodes_new(
		image, t->config.hash_bits ? t->config.hash_bits : TREE_IMAGE_HASH_BITS, &nodes);

	if (r < 0) {
		image_close(image);
		return nodes_error(r, e);
	}
	nodes_drop_files(nodes);
	pthread_rwlock_wrlock(&t->lock);
	t->old[0] =
		(struct generation){ .number = t->now.number - 1, .image = image, .nodes = nodes };
	pthread_rwlock_unlock(&t->lock);
	return 0;
}

/* ---- the next one ---------------------------------------------------------------------------- */

struct preparing {
	struct tree_live *t;
	struct tree_live_next *next;
};

/* A name is nobody's any more, or another's. */
static int note_gone(struct preparing *p, const struct live_change *c)
{
	struct tree *now = p->t->now.tree;
	const struct image_inode *file = c->before;
	uint64_t node = 0;
	int r = nodes_of(tree_image_nodes(now), c->parent, c->name, c->len, file, &node);

	if (r < 0)
		return r;
	p->next->strays += tree_image_knows(now, node);
	if (file->directory || file->size == 0)
		return 0; /* nobody can be asked for its bytes */
	return gone_add(p->t->gone, &(struct gone_file){
					    .node = node,
					    .size = file->size,
					    .mtime = file->mtime,
					    .mtime_nsec = file->mtime_nsec,
					    .mode = file->mode,
					    .uid = file->uid,
					    .gid = file->gid,
				    });
}

static int prepare_change(void *arg, const struct live_change *c)
{
	struct preparing *p = arg;
	struct tree *now = p->t->now.tree;
	struct tree *then = p->next->generation.tree;

	if (c->kind == LIVE_OTHER || c->kind == LIVE_WENT)
		return note_gone(p, c);
	if ((c->kind == LIVE_SAME || c->kind == LIVE_ATTR) && tree_image_knows(now, c->node))
		(void)then->ops->give(then, c->node); /* it is counted already */
	return 0;
}

/* What is given and forgotten until the next generation is shown, it knows. */
static void set_heir(struct tree_live *t, struct tree *heir)
{
	pthread_rwlock_wrlock(&t->lock);
	tree_image_set_heir(t->now.tree, heir);
	pthread_rwlock_unlock(&t->lock);
}

int tree_live_prepare(
	struct tree *tree, struct image *image, struct tree_live_next **ret_next, struct err *e)
{
	struct tree_live *t = live_of(tree);
	struct tree_live_next *next = calloc(1, sizeof(*next));
	struct preparing p = { .t = t, .next = next };
	struct live_diff diff = {
		.before = t->now.image,
		.after = image,
		.nodes_before = tree_image_nodes(t->now.tree),
		.change = prepare_change,
		.arg = &p,
	};
	int r;

	if (!next) {
		image_close(image);
		return err_set(e, -ENOMEM, "out of memory");
	}
	next->t = t;
	r = generation_open(&next->generation, image, t->now.number + 1, &t->config, e);
	if (r == 0) {
		set_heir(t, next->generation.tree);
		diff.nodes_after = tree_image_nodes(next->generation.tree);
		if (nodes_met(diff.nodes_before) || nodes_met(diff.nodes_after))
			r = err_set(e, -EXDEV, "two paths have the same number");
		else if ((r = live_diff(&diff)) < 0)
			r = nodes_error(r, e);
	}
	if (r < 0) {
		tree_live_drop(next);
		return r;
	}
	*ret_next = next;
	return 0;
}

void tree_live_drop(struct tree_live_next *next)
{
	if (!next)
		return;
	set_heir(next->t, NULL);
	generation_release(&next->generation);
	free(next);
}

void tree_live_switch(struct tree *tree, struct tree_live_next *next)
{
	struct tree_live *t = live_of(tree);
	struct generation last = t->old[LIVE_OLD - 1];
	struct generation before;
	struct tree *shown_before = t->now.tree;

	pthread_rwlock_wrlock(&t->lock);
	before = t->now;
	before.tree = NULL;
	before.nodes = tree_image_take_nodes(shown_before);
	nodes_drop_files(before.nodes);
	memmove(&t->old[1], &t->old[0], sizeof(t->old) - sizeof(t->old[0]));
	t->old[0] = before;
	t->now = next->generation;
	pthread_rwlock_unlock(&t->lock);
	atomic_fetch_add(&t->strays, next->strays);
	tree_image_free(shown_before);
	generation_release(&last);
	free(next);
}

int tree_live_changes(
	struct tree *tree, int (*change)(void *arg, const struct live_change *change), void *arg)
{
	struct tree_live *t = live_of(tree);
	const struct live_diff diff = {
		.before = t->old[0].image,
		.after = t->now.image,
		.nodes_before = t->old[0].nodes,
		.nodes_after = tree_image_nodes(t->now.tree),
		.change = change,
		.arg = arg,
	};

	return diff.before ? live_diff(&diff) : -ENOENT;
}
