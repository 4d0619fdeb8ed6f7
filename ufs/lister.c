/*
 * Parallel listing. See lister.h, lister_split.h.
 *
 * The first page and the directories at the top are listed first: most listings are no longer. Then
 * each thread takes, in this order: a range that waits; a directory level to look at, whose names
 * are good places to cut; a cut of the range with the most left, when neither is there. A range is
 * PENDING -> RUNNING (one page) -> PENDING ... -> gone. When a page reaches into ranges not begun
 * yet, it swallows them.
 * Memory: the pages in flight (with 1,000 keys of 40 bytes about 0.4 MiB each, the XML included),
 * at most LISTER_HINTS names of up to 1 KiB, and some ranges per thread; it does not grow with the
 * number of keys.
 *
 * All of this stands on pages in byte order that begin behind the key asked for. A page that is not
 * so is asked for again; when it stays so, or when two ranges do not meet (struct seam), the service
 * lists in an order of its own, and the listing begins anew, one page after the other by the
 * service's tokens: slower, but any order will do.
 */
#include "ufs/lister.h"
#include "ufs/lister_split.h"
#include "base/cleanup.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/pool.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define LISTER_FEW          24u   /* directories */
#define LISTER_TIGHT        1.2   /* pages in a part */
#define LISTER_STRANGE      4u    /* times that a page is asked for before it is believed */
#define LISTER_EMPTY        1000u /* pages without a key in a row */
#define LISTER_HINTS        32768u
#define LISTER_LEVELS       64u /* directory levels looked at, at most */
#define LISTER_FIRST_LEVELS 4u

/*
 * Where two ranges meet. The first key beyond it is seen from both sides: by the page that reaches
 * the end of the range before it, and by the first page of the range behind it. While it is the same
 * one at every seam, the ranges are the service's own listing, cut into pieces: no key is left out,
 * whatever the order is that the service lists in.
 */
struct seam {
	unsigned int refs; /* of the two ranges */
	bool told[2];
	uint64_t next[2]; /* the key's hash; 0: there is none */
};

struct range {
	struct list link;       /* lister.ranges, in key order */
	struct seam *begin;     /* NULL: that of all keys, or it was told */
	struct seam *end;       /* NULL: that of all keys */
	struct lister_key pos;  /* keys beyond it are still to list */
	struct lister_key high; /* up to and with it */
	bool has_pos;
	bool bounded;
	bool running;
	bool seen;   /* a page was listed */
	bool known;  /* one was, or of the range it was cut from: what follows means something */
	bool no_cut; /* no place was found since the last page */
	uint32_t depth;
	uint32_t page_n;
	double keys; /* of one sibling at `depth` */
	double left; /* a guess */
};

struct lister {
	struct ufs *ufs;
	ufs_list_sink sink;
	void *arg;
	unsigned int threads;
	pthread_mutex_t lock;
	pthread_mutex_t sink_lock; /* never held together with `lock` */
	pthread_cond_t news;
	struct list ranges;
	struct lister_alphabet alphabet;
	struct lister_key *hints; /* sorted names of directories */
	uint32_t n_hints;
	uint32_t open_levels;      /* of which not all names are known */
	struct buf more;           /* token of a further page of names; empty: there is none */
	uint32_t more_level;       /* it is of that one */
	struct lister_key *levels; /* directories to look at */
	uint32_t n_levels, next_level;
	uint32_t slashes;        /* most that a key was seen to have */
	struct lister_key *cuts; /* scratch of cut_range_locked(), `threads` long */
	unsigned int busy;       /* threads with a page under way; those not started yet are not */
	int status;
	_Atomic bool over; /* status is set: LISTs under way are not needed */
	bool strange;      /* pages are in an order of the service's own */
	struct err err;
};

struct lister_job {
	struct pool_job job;
	struct lister *lister;
};

static void fail_locked(struct lister *l, int status, const struct err *e)
{
	if (l->status == 0) {
		l->status = status;
		l->err = *e;
		atomic_store(&l->over, true);
	}
	pthread_cond_broadcast(&l->news);
}

static int by_key(const void *a, const void *b)
{
	const struct lister_key *x = a;
	const struct lister_key *y = b;

	return lister_key_cmp(x->bytes, x->len, y->bytes, y->len);
}

/* ---- one page of a range --------------------------------------------------------------------- */

/* Keys with a NUL cannot be passed on, nor the marker of the prefix itself, whose relative key
 * is empty. */
static bool is_passed(const struct ufs_object *object)
{
	return object->key_len && !memchr(object->key, '\0', object->key_len);
}

static int pass_on(struct lister *l, const struct ufs_object *objects, uint32_t n)
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

static void remove_range(struct range *range)
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
	seam->told[side] = true;
	seam->next[side] = next ? hash_xxh3(next->key, next->key_len, 0) | 1 : 0;
	if (!seam->told[!side] || seam->next[0] == seam->next[1])
		return;
	l->strange = true;
	fail_locked(l, err_set(&e, -EREMOTEIO, "LIST answers are not in byte order"), &e);
}

static bool beyond(const struct ufs_object *object, const struct range *range)
{
	return range->bounded &&
	       lister_key_cmp(object->key, object->key_len, range->high.bytes, range->high.len) > 0;
}

/* The range directly behind that nobody began; what lay between two ranges may be listed and
 * gone. */
static struct range *untouched_neighbour_locked(struct lister *l, struct range *range)
{
	struct range *next = next_range(l, range);

	if (!next || next->running || next->seen || by_key(&next->pos, &range->high) != 0)
		return NULL;
	return next;
}

/* Ranges behind that nobody began and that this page reaches into become part of this one. */
static void swallow_locked(struct lister *l, struct range *range, const struct ufs_object *last)
{
	struct range *next;

	while (beyond(last, range) && (next = untouched_neighbour_locked(l, range))) {
		range->high = next->high;
		range->bounded = next->bounded;
		seam_drop(range->end);
		range->end = TAKE(next->end);
		remove_range(next);
	}
}

/* Bytes of the directory that `key` lies in, with its '/'. */
static uint32_t directory_of(const struct lister_key *key)
{
	uint32_t n = key->len;

	while (n > 0 && key->bytes[n - 1] != '/')
		n--;
	return n;
}

/* Number of the first hint that is not below `key`. */
static uint32_t hint_rank(const struct lister *l, const char *key, uint32_t len)
{
	uint32_t low = 0;
	uint32_t high = l->n_hints;

	while (low < high) {
		uint32_t middle = (low + high) / 2;
		const struct lister_key *hint = &l->hints[middle];

		if (lister_key_cmp(hint->bytes, hint->len, key, len) < 0)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

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
	uint32_t len = directory_of(&range->pos);
	uint32_t hint;

	*pos = range->pos;
	if (!range->seen)
		lister_pad(&l->alphabet, range->depth, pos);
	hint = len ? hint_rank(l, range->pos.bytes, len) : l->n_hints;
	if (hint < l->n_hints && l->hints[hint].len == len &&
		memcmp(l->hints[hint].bytes, range->pos.bytes, len) == 0 &&
		(hint + 1 == l->n_hints ? l->open_levels == 0
					: high && by_key(&l->hints[hint + 1], high) >= 0))
		spot.floor = len;
	if (!high)
		return spot;
	spot.even = high->len > len && memcmp(high->bytes, range->pos.bytes, len) == 0 &&
		    directory_of(high) == len;
	return spot;
}

static double estimate_locked(const struct lister *l, const struct range *range)
{
	struct lister_key pos;
	struct lister_spot spot =
		spot_of_locked(l, range, range->bounded ? &range->high : NULL, &pos);

	return lister_estimate(&l->alphabet, &spot);
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
		remove_range(range);
		if (list_empty(&l->ranges))
			pthread_cond_broadcast(&l->news);
		return n;
	}
	lister_key_set(&range->pos, objects[n - 1].key, objects[n - 1].key_len);
	range->has_pos = true;
	range->running = false;
	range->seen = true;
	range->known = true;
	range->no_cut = false;
	range->depth = lesson->shared;
	range->keys = lesson->keys;
	range->page_n = n;
	range->left = estimate_locked(l, range);
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

static void add_level_locked(struct lister *l, const struct lister_key *dir)
{
	for (uint32_t i = 0; i < l->n_levels; i++)
		if (by_key(&l->levels[i], dir) == 0)
			return;
	if (l->n_levels < LISTER_LEVELS)
		l->levels[l->n_levels++] = *dir;
}

/* The directories above the one that the first page ended in, the nearest first. */
static void add_first_levels_locked(struct lister *l, const struct ufs_object *last)
{
	struct lister_key dir;

	lister_key_set(&dir, last->key, last->key_len);
	dir.len = directory_of(&dir);
	for (uint32_t i = 0; dir.len && i < LISTER_FIRST_LEVELS; i++) {
		dir.len--;
		dir.len = directory_of(&dir);
		add_level_locked(l, &dir);
	}
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

static int list_range_locked(struct lister *l, struct range *range, struct ufs_page *page)
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
		fail_locked(l, r, &e);
		return r;
	}
	if (page->truncated && lesson.slashes && !has_pos)
		add_first_levels_locked(l, &page->objects[page->n_objects - 1]);
	n = advance_locked(l, range, page, &lesson);
	pthread_cond_signal(&l->news);
	pthread_mutex_unlock(&l->lock);
	r = pass_on(l, page->objects, n);
	pthread_mutex_lock(&l->lock);
	if (r < 0) {
		(void)err_set(&e, r, "listing: stopped by its receiver: %s", err_str(r));
		fail_locked(l, r, &e);
	}
	return r;
}

/* ---- names of directories, as places to cut -------------------------------------------------- */

/* The names go on behind this page of a level: where, if it has names more than keys, and there is
 * room for them. */
static void add_more_locked(struct lister *l, const struct ufs_page *page, uint32_t level)
{
	if (page->n_prefixes > page->n_objects && l->more.len == 0 && l->n_hints < LISTER_HINTS &&
		buf_append(&l->more, page->token.data, page->token.len) == 0)
		l->more_level = level; /* only speed is lost without */
}

static void add_hints_locked(struct lister *l, const struct ufs_page *page)
{
	uint32_t n = min(page->n_prefixes, LISTER_HINTS - l->n_hints);
	uint32_t before = l->n_hints;

	l->open_levels += n < page->n_prefixes;
	for (uint32_t i = 0; i < n; i++) {
		const struct ufs_object *o = &page->prefixes[i];

		lister_key_set(&l->hints[l->n_hints++], o->key, o->key_len);
	}
	if (n && before && by_key(&l->hints[before - 1], &l->hints[before]) > 0)
		qsort(l->hints, l->n_hints, sizeof(l->hints[0]), by_key);
	if (page->n_prefixes >= l->threads)
		return; /* enough to cut by */
	for (uint32_t i = 0; i < page->n_prefixes; i++) {
		struct lister_key dir;

		uint32_t slashes = 0;

		lister_key_set(&dir, page->prefixes[i].key, page->prefixes[i].key_len);
		for (uint32_t at = 0; at < dir.len; at++)
			slashes += dir.bytes[at] == '/';
		if (slashes < l->slashes) /* else no directory is expected in it */
			add_level_locked(l, &dir);
	}
}

static bool has_level(const struct lister *l)
{
	return l->more.len || l->next_level < l->n_levels;
}

/* One page of names: a further one of a level, or the first of the next. */
static void look_at_level_locked(struct lister *l, struct ufs_page *page)
{
	_cleanup_(buf_release) struct buf token = l->more;
	uint32_t number = token.len ? l->more_level : l->next_level++;
	const struct lister_key *level = &l->levels[number]; /* entries do not move */
	struct ufs_page_request request = {
		.dir = level->bytes,
		.dir_len = level->len,
		.delimiter = true,
		.token = token.len ? token.data : NULL,
		.given_up = &l->over,
	};
	struct err e = ERR_INIT;
	int r;

	l->more = BUF_INIT(UFS_TOKEN_BYTES);
	l->open_levels += token.len == 0;
	pthread_mutex_unlock(&l->lock);
	r = ufs_list_page(l->ufs, &request, page, &e);
	pthread_mutex_lock(&l->lock);
	if (r == 0) {
		add_hints_locked(l, page);
		if (page->truncated)
			add_more_locked(l, page, number);
		else
			l->open_levels--;
		pthread_cond_signal(&l->news);
	} else {
		/* Only speed is lost; a failure that matters strikes the ranges too. */
		log_debug("listing level failed", "error=\"%s\"", e.text);
	}
}

/* ---- cutting --------------------------------------------------------------------------------- */

static bool inside(const struct range *range, const struct lister_key *key)
{
	if (range->has_pos && by_key(key, &range->pos) <= 0)
		return false;
	return !range->bounded || by_key(key, &range->high) < 0;
}

/* The i-th of n places that divide `total` places into about equal parts. */
static uint32_t evenly(uint32_t i, uint32_t n, uint32_t total)
{
	return (uint32_t)((uint64_t)total * (2 * i + 1) / (2 * (uint64_t)n));
}

/* Number of the first hint inside the range, if that is inside. */
static uint32_t first_inside_locked(const struct lister *l, const struct range *range)
{
	uint32_t i = range->has_pos ? hint_rank(l, range->pos.bytes, range->pos.len) : 0;

	return i < l->n_hints && range->has_pos && by_key(&l->hints[i], &range->pos) == 0 ? i + 1
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
		to = max(hint_rank(l, range->high.bytes, range->high.len), from);
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
	qsort(l->cuts, n, sizeof(l->cuts[0]), by_key);
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
		part->left = part->known ? estimate_locked(l, part) : 0;
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
static bool make_work_locked(struct lister *l)
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
	most->left = estimate_locked(l, most);
	pthread_cond_broadcast(&l->news);
	return true;
}

/* ---- threads --------------------------------------------------------------------------------- */

static struct range *pending_locked(struct lister *l)
{
	list_for_each (node, &l->ranges) {
		struct range *range = list_entry(node, struct range, link);

		if (!range->running)
			return range;
	}
	return NULL;
}

static void work(struct pool_job *job)
{
	struct lister *l = container_of(job, struct lister_job, job)->lister;
	struct range *range;
	struct ufs_page page;

	ufs_page_init(&page);
	pthread_mutex_lock(&l->lock);
	while (l->status == 0 && !list_empty(&l->ranges)) {
		if ((range = pending_locked(l)) != NULL) {
			l->busy++;
			(void)list_range_locked(l, range, &page); /* kept in l->status */
			l->busy--;
		} else if (has_level(l)) {
			l->busy++;
			look_at_level_locked(l, &page);
			l->busy--;
		} else if (!make_work_locked(l)) {
			pthread_cond_wait(&l->news, &l->lock);
		}
	}
	pthread_mutex_unlock(&l->lock);
	ufs_page_release(&page);
}

static int run_threads(struct lister *l)
{
	struct lister_job *jobs = calloc(l->threads, sizeof(*jobs));
	struct pool *pool = jobs ? pool_new("ufs-list", l->threads, l->threads) : NULL;

	if (!pool) {
		free(jobs);
		return -ENOMEM;
	}
	for (unsigned int i = 0; i < l->threads; i++) {
		jobs[i].lister = l;
		jobs[i].job.run = work;
		ensure(pool_submit(pool, &jobs[i].job) == 0); /* room for all was asked for */
	}
	pool_free(pool); /* waits for all */
	free(jobs);
	return 0;
}

static void look_at_top(struct pool_job *job)
{
	struct lister *l = container_of(job, struct lister_job, job)->lister;
	struct ufs_page page;

	ufs_page_init(&page);
	pthread_mutex_lock(&l->lock);
	look_at_level_locked(l, &page);
	pthread_mutex_unlock(&l->lock);
	ufs_page_release(&page);
}

/* The first page of everything, and beside it the directories at the top. */
static int list_first(struct lister *l, struct range *whole)
{
	struct lister_job top = { .job.run = look_at_top, .lister = l };
	struct pool *pool = l->threads > 1 ? pool_new("ufs-list", 1, 1) : NULL;
	struct ufs_page page;
	int r;

	if (pool) { /* slower without, not wrong */
		l->levels[l->n_levels++].len = 0;
		ensure(pool_submit(pool, &top.job) == 0); /* room for it was asked for */
	}
	ufs_page_init(&page);
	pthread_mutex_lock(&l->lock);
	r = list_range_locked(l, whole, &page);
	if (list_empty(&l->ranges))
		atomic_store(&l->over, true); /* that was all */
	pthread_mutex_unlock(&l->lock);
	ufs_page_release(&page);
	if (pool)
		pool_free(pool); /* waits */
	return r;
}

/* ---- in an order of the service's own -------------------------------------------------------- */

/* A loop of tokens is found by comparing each with one that is kept, which is replaced after 1, 2,
 * 4, ... pages (Brent 1980). */
struct tokens {
	struct buf now;
	struct buf kept;
	uint64_t steps, limit;
};

static bool is_text(const struct buf *a, const struct buf *b)
{
	return a->len == b->len && memcmp(buf_str(a), buf_str(b), a->len) == 0;
}

/* Whether the page says how to go on, and not to where the listing was. */
static int tokens_check(const struct tokens *t, const struct ufs_page *page, struct err *e)
{
	if (page->token.len == 0)
		return err_set(e, -EPROTO,
			"LIST answer: truncated, but without NextContinuationToken to go on by; "
			"is it an S3 service, and no proxy in between?");
	if (is_text(&t->now, &page->token) || is_text(&t->kept, &page->token))
		return err_set(e, -EPROTO,
			"LIST answer: its NextContinuationToken leads back to where it was; the "
			"listing would never end; is it an S3 service, and no proxy in between?");
	return 0;
}

static int tokens_next(struct tokens *t, const struct ufs_page *page)
{
	int r;

	buf_clear(&t->now);
	r = buf_append(&t->now, page->token.data, page->token.len);
	if (r == 0 && ++t->steps > t->limit) {
		t->steps = 0;
		t->limit *= 2;
		buf_clear(&t->kept);
		r = buf_append(&t->kept, page->token.data, page->token.len);
	}
	return r;
}

/* One page, passed on; a token that cannot be is asked for again. */
static int list_next(struct lister *l, struct ufs_page *page, struct tokens *t, struct err *e)
{
	struct ufs_page_request request = { .token = t->now.len ? t->now.data : NULL };
	int r = 0;

	for (unsigned int i = 0; i < LISTER_STRANGE; i++) {
		r = ufs_list_page(l->ufs, &request, page, e);
		if (r < 0)
			return r;
		r = pass_on(l, page->objects, page->n_objects);
		if (r < 0)
			return err_set(e, r, "listing: stopped by its receiver: %s", err_str(r));
		r = page->truncated ? tokens_check(t, page, e) : 0;
		if (r == 0)
			break;
	}
	return r;
}

static int list_by_tokens(struct lister *l, struct ufs_page *page, struct tokens *t, struct err *e)
{
	uint32_t empty = 0;

	for (;;) {
		int r = list_next(l, page, t, e);

		if (r < 0 || !page->truncated)
			return r;
		empty = page->n_objects ? 0 : empty + 1;
		if (empty == LISTER_EMPTY)
			return err_set(e, -EPROTO,
				"LIST answer: %u pages without a key, and more to come; is it an "
				"S3 "
				"service, and no proxy in between?",
				LISTER_EMPTY);
		r = tokens_next(t, page);
		if (r < 0)
			return err_set(e, r, "listing: %s", err_str(r));
	}
}

static int list_anew(struct lister *l)
{
	struct tokens tokens = {
		.now = BUF_INIT(UFS_TOKEN_BYTES), .kept = BUF_INIT(UFS_TOKEN_BYTES), .limit = 1
	};
	struct ufs_page page;

	log_info("listing one page after the other", "why=\"answers are not in byte order\"");
	l->err = ERR_INIT;
	ufs_page_init(&page);
	l->status = list_by_tokens(l, &page, &tokens, &l->err);
	ufs_page_release(&page);
	buf_release(&tokens.now);
	buf_release(&tokens.kept);
	return l->status;
}

static void release(struct lister *l)
{
	list_for_each_safe (node, &l->ranges)
		remove_range(list_entry(node, struct range, link));
	buf_release(&l->more);
	free(l->hints);
	free(l->levels);
	free(l->cuts);
	pthread_cond_destroy(&l->news);
	pthread_mutex_destroy(&l->sink_lock);
	pthread_mutex_destroy(&l->lock);
}

static int list_all(struct lister *l)
{
	struct range *whole = calloc(1, sizeof(*whole));
	int r;

	if (!whole || !l->hints || !l->levels || !l->cuts) {
		free(whole);
		return -ENOMEM;
	}
	list_push_back(&l->ranges, &whole->link);
	r = list_first(l, whole);
	if (r == 0 && !list_empty(&l->ranges))
		r = run_threads(l);
	return r;
}

int lister_run(struct ufs *ufs, unsigned int threads, ufs_list_sink sink, void *arg, struct err *e)
{
	struct lister l = { .ufs = ufs, .sink = sink, .arg = arg };
	int r;

	ensure(threads >= 1 && threads <= LISTER_THREADS_MAX);
	l.threads = threads;
	l.more = BUF_INIT(UFS_TOKEN_BYTES);
	l.hints = malloc(LISTER_HINTS * sizeof(l.hints[0])); /* touched as far as used */
	l.levels = malloc(LISTER_LEVELS * sizeof(l.levels[0]));
	l.cuts = malloc(l.threads * sizeof(l.cuts[0]));
	list_init(&l.ranges);
	pthread_mutex_init(&l.lock, NULL);
	pthread_mutex_init(&l.sink_lock, NULL);
	pthread_cond_init(&l.news, NULL);
	r = list_all(&l);
	if (l.strange && l.status == -EREMOTEIO)
		r = list_anew(&l);
	if (l.status < 0) {
		r = l.status;
		if (e)
			*e = l.err;
	}
	release(&l);
	return r < 0 ? err_default(e, r, "listing") : 0;
}
