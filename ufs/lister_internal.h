/*
 * What the files of a listing share (lister.h says what it is, lister.c how it goes):
 *
 *	lister.c	a listing's threads, its beginning and its end
 *	lister_range.c	one page of a range, and where two ranges meet
 *	lister_names.c	names of directories
 *	lister_cut.c	where to cut, when threads idle; by lister_split.c, which is arithmetic
 *	lister_tokens.c	one page after the other
 *
 * `_locked`: with lister.lock held; it is let go while a page is fetched.
 */
#pragma once

#include <pthread.h>
#include "ufs/lister.h"
#include "ufs/lister_split.h"

#define LISTER_HINTS  32768u
#define LISTER_LEVELS 64u /* directory levels looked at, at most */

/*
 * Where two ranges meet. The first key beyond it is seen from both sides: by the page that reaches
 * the end of the range before it, and by the first page of the range behind it. While it is the same
 * one at every seam, the ranges are the service's own listing, cut into pieces: no key is left out,
 * whatever the order is that the service lists in.
 */
struct seam {
	unsigned int refs; /* of the two ranges */
	bool reported[2];
	uint64_t next[2]; /* the key's hash; 0: there is none */
};

struct range {
	struct list link;       /* lister.ranges, in key order */
	struct seam *begin;     /* NULL: that of all keys, or it was reported */
	struct seam *end;       /* NULL: that of all keys */
	struct lister_key pos;  /* keys beyond it are still to list */
	struct lister_key from; /* where the last page began */
	struct lister_key high; /* up to and with it */
	bool has_pos;
	bool has_from;
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
	unsigned int threads; /* at most */
	unsigned int started; /* of them, besides the first */
	unsigned int waiting; /* of those that were started, for work */
	struct pool *pool;
	struct lister_job *jobs;
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
	struct lister_key *cuts; /* scratch of lister_cut.c, `threads` long */
	unsigned int busy;       /* threads with a page under way; those not started yet are not */
	int status;
	_Atomic bool over; /* status is set: LISTs under way are not needed */
	bool strange;      /* pages are in an order of the service's own */
	struct err err;
};

/* ---- lister.c */
void lister_fail_locked(struct lister *l, int status, const struct err *e);
/* Of two struct lister_key, for qsort(). */
int lister_key_order(const void *a, const void *b);

/* ---- lister_range.c */
/* To the receiver, one at a time. */
int lister_pass_on(struct lister *l, const struct ufs_object *objects, uint32_t n);
void lister_range_remove(struct range *range);
/* One page of a range that waits; a failure is kept in l->status, too. */
int lister_range_list_locked(struct lister *l, struct range *range, struct ufs_page *page);

/* ---- lister_names.c */
/* Bytes of the directory that `key` lies in, with its '/'. */
uint32_t lister_directory_of(const struct lister_key *key);
/* Number of the first hint that is not below `key`. */
uint32_t lister_hint_rank(const struct lister *l, const char *key, uint32_t len);
/* The directories above the one that the first page ended in, the nearest first, are to be looked at. */
void lister_names_begin_locked(struct lister *l, const struct ufs_object *last);
bool lister_names_wait(const struct lister *l);
/* One page of names: a further one of a level, or the first of the next. */
void lister_names_list_locked(struct lister *l, struct ufs_page *page);

/* ---- lister_cut.c */
/* A guess of how many keys a range still has. */
double lister_cut_estimate_locked(const struct lister *l, const struct range *range);
/* Work for the threads that idle, out of the range with the most left. False: there is none. */
bool lister_cut_work_locked(struct lister *l);

/* ---- lister_tokens.c */
/* All of it anew; the status. */
int lister_tokens_list(struct lister *l);
