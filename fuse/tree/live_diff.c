/* Two images side by side. See live_diff.h. */
#include "fuse/tree/live_diff.h"
#include "base/limits.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define FIRST_PAIRS 256u
#define NO_NID      UINT64_MAX

/* A directory of both, or (after: NO_NID) one that is no more. */
struct pair {
	uint64_t before;
	uint64_t after;
	uint64_t node;
};

/* One side of a directory. */
struct side {
	struct image *image;
	struct image_view view;
	struct image_inode dir;
	struct image_entry entry;
	struct image_inode inode; /* of the entry */
	uint64_t cookie;
	bool ended;
};

struct walk {
	const struct live_diff *diff;
	struct side before;
	struct side after;
	struct pair *pairs;
	uint64_t n_pairs;
	uint64_t cap_pairs;
};

static int pairs_push(struct walk *w, uint64_t before, uint64_t after, uint64_t node)
{
	if (w->n_pairs == w->cap_pairs) {
		uint64_t cap = w->cap_pairs ? 2 * w->cap_pairs : FIRST_PAIRS;
		struct pair *pairs = realloc(w->pairs, cap * sizeof(*pairs));

		if (!pairs)
			return -ENOMEM;
		w->pairs = pairs;
		w->cap_pairs = cap;
	}
	/* A damaged image may have a directory below itself. */
	if (w->n_pairs > image_n_inodes(w->diff->before) + image_n_inodes(w->diff->after))
		return -EBADMSG;
	w->pairs[w->n_pairs++] = (struct pair){ before, after, node };
	return 0;
}

/* The next entry, with its inode. */
static int side_next(struct side *s)
{
	int r = image_read_entry(s->image, &s->view, &s->dir, s->cookie, &s->entry);

	if (r == -ENOENT) {
		s->ended = true;
		return 0;
	}
	if (r < 0)
		return r;
	s->cookie = s->entry.next_cookie;
	r = image_inode(s->image, &s->view, s->entry.nid, &s->inode);
	return r == -ENOENT ? -EBADMSG : r;
}

static int side_open(struct side *s, uint64_t nid)
{
	int r;

	s->cookie = 0;
	s->ended = nid == NO_NID;
	if (s->ended)
		return 0;
	r = image_inode(s->image, &s->view, nid, &s->dir);
	if (r == 0 && !s->dir.directory)
		r = -EBADMSG;
	return r < 0 ? r : side_next(s);
}

/* As strcmp(): which of the two comes first; one that ended is behind everything. */
static int compare(const struct side *a, const struct side *b)
{
	int order;

	if (a->ended || b->ended)
		return (int)a->ended - (int)b->ended;
	order = memcmp(a->entry.name, b->entry.name, min(a->entry.name_len, b->entry.name_len));
	if (order == 0)
		order = (a->entry.name_len > b->entry.name_len) -
			(a->entry.name_len < b->entry.name_len);
	return order;
}

static bool same_node(const struct image_inode *a, const struct image_inode *b)
{
	if (a->directory || b->directory)
		return a->directory && b->directory;
	return a->size && b->size ? a->offset == b->offset && a->size == b->size
				  : a->size == b->size;
}

/* Of a directory neither size nor place: they are of the image. */
static bool same_attr(const struct image_inode *a, const struct image_inode *b)
{
	return a->size == b->size && a->mtime == b->mtime && a->mtime_nsec == b->mtime_nsec &&
	       a->mode == b->mode && a->uid == b->uid && a->gid == b->gid && a->nlink == b->nlink;
}

static int tell(struct walk *w, const struct pair *pair, enum live_kind kind, uint64_t node)
{
	const struct side *from = kind == LIVE_CAME ? &w->after : &w->before;
	const struct live_change change = {
		.kind = kind,
		.parent = pair->node,
		.node = node,
		.name = kind == LIVE_TOUCHED ? "" : from->entry.name,
		.len = kind == LIVE_TOUCHED ? 0 : from->entry.name_len,
		.below = pair->after == NO_NID,
		.before = kind == LIVE_CAME || kind == LIVE_TOUCHED ? NULL : &w->before.inode,
		.after = kind == LIVE_WENT || kind == LIVE_TOUCHED ? NULL : &w->after.inode,
	};

	return w->diff->change(w->diff->arg, &change);
}

/* A directory that is no more: what is below it went, too. */
static int descend_gone(struct walk *w, const struct pair *pair)
{
	const struct side *s = &w->before;
	uint64_t node = 0;
	int r;

	if (!s->inode.directory || !w->diff->nodes_before)
		return 0;
	r = nodes_of(w->diff->nodes_before, pair->node, s->entry.name, s->entry.name_len, &s->inode,
		&node);
	return r < 0 ? r : pairs_push(w, s->inode.nid, NO_NID, node);
}

static int tell_both(struct walk *w, const struct pair *pair, bool *touched)
{
	const struct image_inode *before = &w->before.inode;
	const struct image_inode *after = &w->after.inode;
	uint64_t node = 0;
	int r;

	if (!same_node(before, after)) {
		*touched = true;
		r = tell(w, pair, LIVE_OTHER, 0);
		return r < 0 ? r : descend_gone(w, pair);
	}
	r = nodes_of(w->diff->nodes_after, pair->node, w->after.entry.name, w->after.entry.name_len,
		after, &node);
	if (r == 0)
		r = tell(w, pair, same_attr(before, after) ? LIVE_SAME : LIVE_ATTR, node);
	return r < 0 || !after->directory ? r : pairs_push(w, before->nid, after->nid, node);
}

static int step(struct walk *w, const struct pair *pair, bool *touched)
{
	int order = compare(&w->before, &w->after);
	int r;

	if (order == 0) {
		r = tell_both(w, pair, touched);
	} else {
		*touched = true;
		r = tell(w, pair, order < 0 ? LIVE_WENT : LIVE_CAME, 0);
		if (r == 0 && order < 0)
			r = descend_gone(w, pair);
	}
	if (r == 0 && order <= 0)
		r = side_next(&w->before);
	if (r == 0 && order >= 0)
		r = side_next(&w->after);
	return r;
}

static int walk_pair(struct walk *w, struct pair pair)
{
	bool touched = false;
	int r = side_open(&w->before, pair.before);

	if (r == 0)
		r = side_open(&w->after, pair.after);
	while (r == 0 && !(w->before.ended && w->after.ended))
		r = step(w, &pair, &touched);
	return r == 0 && (touched || pair.after == NO_NID) ? tell(w, &pair, LIVE_TOUCHED, pair.node)
							   : r;
}

int live_diff(const struct live_diff *diff)
{
	struct walk *w = calloc(1, sizeof(*w));
	int r;

	if (!w)
		return -ENOMEM;
	w->diff = diff;
	w->before.image = diff->before;
	w->after.image = diff->after;
	r = pairs_push(w, image_root(diff->before), image_root(diff->after), NODES_ROOT);
	for (uint64_t i = 0; r == 0 && i < w->n_pairs; i++)
		r = walk_pair(w, w->pairs[i]);
	free(w->pairs);
	free(w);
	return r;
}
