/* Names of directories, as places to cut a listing. See lister_internal.h. */
#include "ufs/lister_internal.h"
#include "base/cleanup.h"
#include "base/log.h"

#include <stdlib.h>
#include <string.h>

#define LISTER_FIRST_LEVELS 4u

/* Bytes of the directory that `key` lies in, with its '/'. */
uint32_t lister_directory_of(const struct lister_key *key)
{
	uint32_t n = key->len;

	while (n > 0 && key->bytes[n - 1] != '/')
		n--;
	return n;
}

/* Number of the first hint that is not below `key`. */
uint32_t lister_hint_rank(const struct lister *l, const char *key, uint32_t len)
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

static void add_level_locked(struct lister *l, const struct lister_key *dir)
{
	for (uint32_t i = 0; i < l->n_levels; i++)
		if (lister_key_order(&l->levels[i], dir) == 0)
			return;
	if (l->n_levels < LISTER_LEVELS)
		l->levels[l->n_levels++] = *dir;
}

/* The directories above the one that the first page ended in, the nearest first. */
void lister_names_begin_locked(struct lister *l, const struct ufs_object *last)
{
	struct lister_key dir;

	lister_key_set(&dir, last->key, last->key_len);
	dir.len = lister_directory_of(&dir);
	for (uint32_t i = 0; dir.len && i < LISTER_FIRST_LEVELS; i++) {
		dir.len--;
		dir.len = lister_directory_of(&dir);
		add_level_locked(l, &dir);
	}
}

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
	if (n && before && lister_key_order(&l->hints[before - 1], &l->hints[before]) > 0)
		qsort(l->hints, l->n_hints, sizeof(l->hints[0]), lister_key_order);
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

/* New names change the estimates of their ranges. */
static void estimate_again_locked(struct lister *l)
{
	list_for_each (node, &l->ranges) {
		struct range *range = list_entry(node, struct range, link);

		if (range->seen)
			range->left = lister_cut_estimate_locked(l, range);
	}
}

bool lister_names_wait(const struct lister *l)
{
	return l->more.len || l->next_level < l->n_levels;
}

/* One page of names: a further one of a level, or the first of the next. */
void lister_names_list_locked(struct lister *l, struct ufs_page *page)
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
		estimate_again_locked(l);
		pthread_cond_signal(&l->news);
	} else {
		/* Only speed is lost; a failure that matters strikes the ranges too. */
		log_debug("listing level failed", "error=\"%s\"", e.text);
	}
}
