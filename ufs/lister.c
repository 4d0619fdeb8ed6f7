/*
 * Parallel listing. See lister.h, lister_internal.h, lister_split.h.
 *
 * The first page and the directories at the top are listed first: most listings are no longer. Then
 * threads are started as long as each finds work. A thread takes, in this order: a range that waits;
 * a directory level to look at, whose names are good places to cut; a cut of the range with the
 * most left, when neither is there. A range is
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
#include "ufs/lister_internal.h"
#include "base/pool.h"

#include <stdlib.h>
#include <string.h>

struct lister_job {
	struct pool_job job;
	struct lister *lister;
};

void lister_fail_locked(struct lister *l, int status, const struct err *e)
{
	if (l->status == 0) {
		l->status = status;
		l->err = *e;
		atomic_store(&l->over, true);
	}
	pthread_cond_broadcast(&l->news);
}

int lister_key_order(const void *a, const void *b)
{
	const struct lister_key *x = a;
	const struct lister_key *y = b;

	return lister_key_cmp(x->bytes, x->len, y->bytes, y->len);
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

static void work(struct lister *l);

static void run_job(struct pool_job *job)
{
	work(container_of(job, struct lister_job, job)->lister);
}

/* Called by a thread that has found work. When no thread can be started, the listing is slower. */
static void start_another_locked(struct lister *l)
{
	struct lister_job *next = &l->jobs[l->started];

	if (l->waiting > 0 || l->started + 1 >= l->threads)
		return;
	next->lister = l;
	next->job.run = run_job;
	l->started += pool_submit(l->pool, &next->job) == 0;
}

static void work(struct lister *l)
{
	struct range *range;
	struct ufs_page page;

	ufs_page_init(&page);
	pthread_mutex_lock(&l->lock);
	while (l->status == 0 && !list_empty(&l->ranges)) {
		if ((range = pending_locked(l)) != NULL) {
			start_another_locked(l);
			l->busy++;
			(void)lister_range_list_locked(l, range, &page); /* kept in l->status */
			l->busy--;
		} else if (lister_names_wait(l)) {
			start_another_locked(l);
			l->busy++;
			lister_names_list_locked(l, &page);
			l->busy--;
		} else if (!lister_cut_work_locked(l)) {
			l->waiting++;
			pthread_cond_wait(&l->news, &l->lock);
			l->waiting--;
		}
	}
	pthread_mutex_unlock(&l->lock);
	ufs_page_release(&page);
}

/* The calling thread is one of them. */
static int run_threads(struct lister *l)
{
	l->jobs = calloc(l->threads, sizeof(*l->jobs));
	l->pool =
		l->jobs && l->threads > 1 ? pool_new("ufs-list", l->threads - 1, l->threads) : NULL;
	if (!l->jobs || (!l->pool && l->threads > 1)) {
		free(l->jobs);
		return -ENOMEM;
	}
	work(l);
	pool_free(l->pool); /* waits for the others */
	free(l->jobs);
	return 0;
}

static void look_at_top(struct pool_job *job)
{
	struct lister *l = container_of(job, struct lister_job, job)->lister;
	struct ufs_page page;

	ufs_page_init(&page);
	pthread_mutex_lock(&l->lock);
	lister_names_list_locked(l, &page);
	pthread_mutex_unlock(&l->lock);
	ufs_page_release(&page);
}

/* The first page of everything, and at the same time the directories at the top. */
static int list_first(struct lister *l, struct range *whole)
{
	struct lister_job top = { .job.run = look_at_top, .lister = l };
	struct pool *pool = l->threads > 1 ? pool_new("ufs-list", 1, 1) : NULL;
	struct ufs_page page;
	int r;

	if (pool) { /* slower without, not wrong */
		l->levels[l->n_levels++].len = 0;
		if (pool_submit(pool, &top.job) < 0)
			l->n_levels--; /* there is no thread */
	}
	ufs_page_init(&page);
	pthread_mutex_lock(&l->lock);
	r = lister_range_list_locked(l, whole, &page);
	if (list_empty(&l->ranges))
		atomic_store(&l->over, true); /* that was all */
	pthread_mutex_unlock(&l->lock);
	ufs_page_release(&page);
	if (pool)
		pool_free(pool); /* waits */
	return r;
}

/* ---- the whole ------------------------------------------------------------------------------- */

static void release(struct lister *l)
{
	list_for_each_safe (node, &l->ranges)
		lister_range_remove(list_entry(node, struct range, link));
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
		r = lister_tokens_list(&l);
	if (l.status < 0) {
		r = l.status;
		if (e)
			*e = l.err;
	}
	release(&l);
	return r < 0 ? err_default(e, r, "listing") : 0;
}
