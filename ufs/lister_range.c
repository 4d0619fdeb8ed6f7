/* Ranges of a listing: one page of one, what it says about the range, and where two of them meet. See
 * lister_internal.h. */
#include "ufs/lister_internal.h"
#include "base/cleanup.h"
#include "base/hash.h"

#include <stdlib.h>
#include <string.h>

#define LISTER_STRANGE 4u /* times that a page is asked for before it is believed */

/* Keys with a NUL cannot be passed on, nor the marker of the prefix itself, whose relative key
 * is empty. */
static bool is_passed(const struct ufs_object *object)
{
	return object->key_len && !memchr(object->key, '\0', object->key_len);
}

int lister_pass_on(struct lister *l, const struct ufs_object *objects, uint32_t n)
{
	uint32_t from = 0;
	int r = 0;

	pthread_mutex_lock(&l->sink_lock);
	while (from < n && r >= 0) {
		uint32_t to = from;

		while (to < n && is_passed(&objects[to]))
			to++;
		if (to > from)
			r = l->sink(l->arg, objects + from, to - from);
		from = to + 1;
	}
	pthread_mutex_unlock(&l->sink_lock);
	return min(r, 0);
}

static struct range *next_range(struct lister *l, struct range *range)
{
	return range->link.next == &l->ranges ? NULL
					      : list_entry(range->link.next, struct range, link);
}

static void seam_drop(struct seam *seam)
{
	if (seam && --seam->refs == 0)
		free(seam);
}

void lister_range_remove(struct range *range)
{
	list_remove(&range->link);
	seam_drop(range->begin);
	seam_drop(range->end);
	free(range);
}

enum seam_side { SEAM_BEFORE, SEAM_BEHIND };

/* `next`: the first key beyond the seam, as one side sees it; NULL: none. */
static void seam_tell_locked(
	struct lister *l, struct seam *seam, enum seam_side side, const struct ufs_object *next)
{
	struct err e = ERR_INIT;

	if (!seam)
		return;
	seam->reported[side] = true;
	seam->next[side] = next ? hash_xxh3(next->key, next->key_len, 0) | 1 : 0;
	if (!seam->reported[!side] || seam->next[0] == seam->next[1])
		return;
	l->strange = true;
	lister_fail_locked(l, err_set(&e, -EREMOTEIO, "LIST answers are not in byte order"), &e);
}

static bool beyond(const struct ufs_object *object, const struct range *range)
{
	return range->bounded &&
	       lister_key_cmp(object->key, object->key_len, range->high.bytes, range->high.len) > 0;
}

/* The range directly behind that was not begun; what lay between two ranges may be listed and
 * gone. */
static struct range *untouched_neighbour_locked(struct lister *l, struct range *range)
{
	struct range *next = next_range(l, range);

	if (!next || next->running || next->seen || lister_key_order(&next->pos, &range->high) != 0)
		return NULL;
	return next;
}

/* Ranges behind that were not begun and that this page reaches into become part of this one. */
static void swallow_locked(struct lister *l, struct range *range, const struct ufs_object *last)
{
	struct range *next;

	while (beyond(last, range) && (next = untouched_neighbour_locked(l, range))) {
		range->high = next->high;
		range->bounded = next->bounded;
		seam_drop(range->end);
		range->end = TAKE(next->end);
		lister_range_remove(next);
	}
}

/* What the page says about the range; returns how many of its objects belong to it. The range
 * may be gone after. */
static uint32_t advance_locked(struct lister *l, struct range *range, const struct ufs_page *page,
	const struct lister_lesson *lesson)
{
	const struct ufs_object *objects = page->objects;
	uint32_t n = page->n_objects;
	bool more = page->truncated;

	lister_alphabet_add(&l->alphabet, &lesson->alphabet);
	l->slashes = max(l->slashes, lesson->slashes);
	seam_tell_locked(l, range->begin, SEAM_BEHIND, n ? &objects[0] : NULL);
	seam_drop(TAKE(range->begin));
	if (n)
		swallow_locked(l, range, &objects[n - 1]);
	while (n && beyond(&objects[n - 1], range)) {
		n--;
		more = false;
	}
	if (!more) {
		seam_tell_locked(
			l, range->end, SEAM_BEFORE, n < page->n_objects ? &objects[n] : NULL);
		lister_range_remove(range);
		if (list_empty(&l->ranges))
			pthread_cond_broadcast(&l->news);
		return n;
	}
	range->from = range->pos;
	range->has_from = range->has_pos;
	lister_key_set(&range->pos, objects[n - 1].key, objects[n - 1].key_len);
	range->has_pos = true;
	range->running = false;
	range->seen = true;
	range->known = true;
	range->no_cut = false;
	range->depth = lesson->shared;
	range->keys = lesson->keys;
	range->page_n = n;
	range->left = lister_cut_estimate_locked(l, range);
	return n;
}

/* Whether a page can be one of a listing in byte order: behind the key asked for, and if it goes
 * on, then further than that. */
static bool is_regular(const struct lister_key *pos, const struct ufs_page *page)
{
	const struct ufs_object *first = page->objects;

	if (page->disorder || (page->n_objects == 0 && page->truncated))
		return false;
	return !pos || page->n_objects == 0 ||
	       lister_key_cmp(first->key, first->key_len, pos->bytes, pos->len) > 0;
}

/* -EREMOTEIO: the service lists in an order of its own. */
static int fetch_page(struct lister *l, const struct lister_key *pos, const struct lister_key *upto,
	struct ufs_page *page, struct err *e)
{
	struct ufs_page_request request = { .given_up = &l->over };

	if (upto) {
		request.upto = upto->bytes;
		request.upto_len = upto->len;
	}

	if (pos) {
		request.after = pos->bytes;
		request.after_len = pos->len;
	}
	for (unsigned int i = 0; i < LISTER_STRANGE; i++) {
		int r = ufs_list_page(l->ufs, &request, page, e);

		if (r < 0 || is_regular(pos, page))
			return r;
	}
	return err_set(e, -EREMOTEIO, "LIST answers are not in byte order");
}

/* Whether no range has to wait for a thread: then what a page holds beyond its own range is of no
 * use. */
static bool all_begin_now_locked(const struct lister *l)
{
	unsigned int idle = l->threads - min(l->busy, l->threads);

	list_for_each (node, &l->ranges) {
		if (list_entry(node, struct range, link)->running)
			continue;
		if (idle == 0)
			return false;
		idle--;
	}
	return true;
}

int lister_range_list_locked(struct lister *l, struct range *range, struct ufs_page *page)
{
	struct lister_key pos = { .len = 0 };
	struct lister_key upto = { .len = 0 };
	bool has_pos = range->has_pos;
	bool has_upto = range->bounded && all_begin_now_locked(l);
	struct lister_lesson lesson = { 0 };
	struct err e = ERR_INIT;
	uint32_t n;
	int r;

	range->running = true;
	if (has_pos)
		lister_key_set(&pos, range->pos.bytes, range->pos.len);
	if (has_upto)
		lister_key_set(&upto, range->high.bytes, range->high.len);
	pthread_mutex_unlock(&l->lock);
	r = fetch_page(l, has_pos ? &pos : NULL, has_upto ? &upto : NULL, page, &e);
	if (r == 0)
		lister_learn(page->objects, page->n_objects, &lesson);
	pthread_mutex_lock(&l->lock);
	if (r < 0) {
		l->strange = l->strange || r == -EREMOTEIO;
		lister_fail_locked(l, r, &e);
		return r;
	}
	if (page->truncated && lesson.slashes && !has_pos)
		lister_names_begin_locked(l, &page->objects[page->n_objects - 1]);
	n = advance_locked(l, range, page, &lesson);
	pthread_cond_signal(&l->news);
	pthread_mutex_unlock(&l->lock);
	r = lister_pass_on(l, page->objects, n);
	pthread_mutex_lock(&l->lock);
	if (r < 0) {
		(void)err_set(&e, r, "listing: stopped by its receiver: %s", err_str(r));
		lister_fail_locked(l, r, &e);
	}
	return r;
}
