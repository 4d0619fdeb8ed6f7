/* Cutting ranges of a listing, where threads would idle. See lister_internal.h, lister_split.h. */
#include "ufs/lister_internal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define LISTER_FEW   24u /* directories */
#define LISTER_TIGHT 1.2 /* pages in a part */

/* What is known of a range, for cutting it. Where the directories behind the one of its position
 * are known, and are no part of the range, keys are expected in that one only. */
static struct lister_spot spot_of_locked(const struct lister *l, const struct range *range,
	const struct lister_key *high, struct lister_key *pos)
{
	struct lister_spot spot = {
		.pos = pos,
		.high = high,
		.depth = range->depth,
		.keys = range->keys,
		.page_n = range->page_n,
	};
	uint32_t len = lister_directory_of(&range->pos);
	uint32_t hint;

	*pos = range->pos;
	if (!range->seen)
		lister_pad(&l->alphabet, range->depth, pos);
	hint = len ? lister_hint_rank(l, range->pos.bytes, len) : l->n_hints;
	if (hint < l->n_hints && l->hints[hint].len == len &&
		memcmp(l->hints[hint].bytes, range->pos.bytes, len) == 0 &&
		(hint + 1 == l->n_hints ? l->open_levels == 0
					: high && lister_key_order(&l->hints[hint + 1], high) >= 0))
		spot.floor = len;
	if (!high)
		return spot;
	spot.even = high->len > len && memcmp(high->bytes, range->pos.bytes, len) == 0 &&
		    lister_directory_of(high) == len;
	return spot;
}

/* Whether all names of directories in that one are known. */
static bool names_known_locked(const struct lister *l, const struct lister_key *dir)
{
	for (uint32_t i = 0; l->open_levels == 0 && i < l->next_level; i++)
		if (lister_key_order(&l->levels[i], dir) == 0)
			return true;
	return false;
}

/* The first hint that is neither `dir` nor below it. */
static uint32_t rank_after(const struct lister *l, const struct lister_key *dir)
{
	struct lister_key after = *dir;

	if (after.len == 0)
		return l->n_hints;
	after.bytes[after.len - 1] = '/' + 1;
	return lister_hint_rank(l, after.bytes, after.len);
}

/*
 * Where the names of the directories next to the one of the last key are known, their number is a better guess than what the
 * alphabet allows: d009/ may be followed by 990 others, of which 240 exist. Each is expected to hold as many keys as those on the
 * page, and each directory of which no names are known as much as the parent of these.
 */
static double estimate_by_names_locked(const struct lister *l, const struct range *range)
{
	struct lister_key dir = range->pos;
	uint32_t here = lister_hint_rank(l, range->pos.bytes, range->pos.len);
	uint32_t to = range->bounded ? lister_hint_rank(l, range->high.bytes, range->high.len)
				     : l->n_hints;
	uint32_t begin;
	uint32_t end;
	uint32_t page; /* the first that the page may have begun in */
	double keys;

	dir.len = lister_directory_of(&dir);
	dir.len -= dir.len > 0; /* without the '/' */
	dir.len = lister_directory_of(&dir);
	if (!range->seen || !names_known_locked(l, &dir))
		return INFINITY;
	begin = lister_hint_rank(l, dir.bytes, dir.len);
	end = rank_after(l, &dir);
	page = range->has_from ? max(lister_hint_rank(l, range->from.bytes, range->from.len), begin)
			       : begin;
	if (here < page + 2 || to < here)
		return INFINITY; /* too few to tell, or the page was of another directory */
	keys = (double)range->page_n / (here - page);
	return keys * (min(to, end) - here + 1) + keys * (end - begin) * (to - min(to, end));
}

double lister_cut_estimate_locked(const struct lister *l, const struct range *range)
{
	struct lister_key pos;
	struct lister_spot spot =
		spot_of_locked(l, range, range->bounded ? &range->high : NULL, &pos);

	return fmin(lister_estimate(&l->alphabet, &spot), estimate_by_names_locked(l, range));
}

static bool inside(const struct range *range, const struct lister_key *key)
{
	if (range->has_pos && lister_key_order(key, &range->pos) <= 0)
		return false;
	return !range->bounded || lister_key_order(key, &range->high) < 0;
}

/* The i-th of n places that divide `total` places into about equal parts. */
static uint32_t evenly(uint32_t i, uint32_t n, uint32_t total)
{
	return (uint32_t)((uint64_t)total * (2 * i + 1) / (2 * (uint64_t)n));
}

/* Number of the first hint inside the range, if that is inside. */
static uint32_t first_inside_locked(const struct lister *l, const struct range *range)
{
	uint32_t i = range->has_pos ? lister_hint_rank(l, range->pos.bytes, range->pos.len) : 0;

	return i < l->n_hints && range->has_pos && lister_key_order(&l->hints[i], &range->pos) == 0
		       ? i + 1
		       : i;
}

/* NULL: there is none inside the range. */
static const struct lister_key *first_hint_locked(const struct lister *l, const struct range *range)
{
	uint32_t i = first_inside_locked(l, range);

	return i < l->n_hints && inside(range, &l->hints[i]) ? &l->hints[i] : NULL;
}

/* Up to `want` names of directories inside the range, evenly. */
static uint32_t hint_cuts_locked(struct lister *l, const struct range *range, uint32_t want)
{
	uint32_t from = first_inside_locked(l, range);
	uint32_t to = l->n_hints;
	uint32_t n;

	if (range->bounded)
		to = max(lister_hint_rank(l, range->high.bytes, range->high.len), from);
	n = min(want, to - from);
	for (uint32_t i = 0; i < n; i++)
		l->cuts[i] = l->hints[from + evenly(i, n, to - from)];
	return n;
}

/* Cuts `range` into up to want + 1; the first part keeps what is running. False when no place
 * was found. */
static bool cut_range_locked(struct lister *l, struct range *range, uint32_t want)
{
	struct lister_key pos;
	struct lister_key high; /* the first directory behind, or the range's */
	const struct lister_key *hint = first_hint_locked(l, range);
	uint32_t n = hint_cuts_locked(l, range, want);
	struct lister_spot spot;
	uint32_t made = 0;

	if (hint || range->bounded)
		high = hint ? *hint : range->high;
	spot = spot_of_locked(l, range, hint || range->bounded ? &high : NULL, &pos);
	n += lister_cuts(&l->alphabet, &spot, want - n, l->cuts + n);
	qsort(l->cuts, n, sizeof(l->cuts[0]), lister_key_order);
	for (uint32_t i = n; i > 0; i--) { /* from behind: range->high moves down */
		struct range *part;
		struct seam *seam;

		if (!inside(range, &l->cuts[i - 1]))
			continue; /* twice, or the end */
		part = calloc(1, sizeof(*part));
		seam = calloc(1, sizeof(*seam));
		if (!part || !seam) {
			free(part);
			free(seam);
			return true; /* slower, not wrong */
		}
		seam->refs = 2;
		part->begin = seam;
		part->end = range->end;
		range->end = seam;
		part->pos = l->cuts[i - 1];
		part->has_pos = true;
		part->high = range->high;
		part->bounded = range->bounded;
		part->known = spot.even;
		part->depth = range->depth;
		part->keys = range->keys;
		part->page_n = range->page_n;
		range->high = l->cuts[i - 1];
		range->bounded = true;
		part->left = part->known ? lister_cut_estimate_locked(l, part) : 0;
		list_push_front(&range->link, &part->link);
		made++;
	}
	range->no_cut = made == 0;
	return made > 0;
}

static bool can_be_cut(const struct range *range)
{
	return range->known && !range->no_cut && range->left > 1.2 * range->page_n;
}

/* A directory whose first page is under way: nothing is known of it. */
static bool is_coming(const struct range *range)
{
	return range->running && !range->known && range->pos.len &&
	       range->pos.bytes[range->pos.len - 1] == '/';
}

/* Work for the threads that idle, out of the range with the most left; each range's share follows
 * what is left in it. A directory of which nothing is known yet is expected to hold as much. */
bool lister_cut_work_locked(struct lister *l)
{
	struct range *most = NULL;
	double total = 0;
	double want;
	uint32_t coming = 0;

	list_for_each (node, &l->ranges) {
		struct range *range = list_entry(node, struct range, link);

		coming += is_coming(range);
		if (!can_be_cut(range))
			continue;
		total += range->left;
		if (!most || range->left > most->left)
			most = range;
	}
	if (!most)
		return false;
	total += coming * most->left;
	want = (l->threads - l->busy) * most->left / total + 0.5;
	/* Where few directories share the keys, the few threads that idle now are not all that
	 * will. */
	if (l->n_hints < LISTER_FEW)
		want = max(want, (double)l->threads / 4);
	/* Parts of just a page take two LISTs, of which the second finds nothing. */
	if (want * most->page_n * LISTER_TIGHT > most->left)
		want = most->left / (LISTER_FULL * most->page_n);
	want = max(min(want, (double)l->threads - 1), 1.0);
	if (!cut_range_locked(l, most, (uint32_t)want))
		return true; /* it is marked: look for another */
	most->left = lister_cut_estimate_locked(l, most);
	pthread_cond_broadcast(&l->news);
	return true;
}
