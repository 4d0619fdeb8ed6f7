/* Tables cut to parts of their sources. See cuts.h. */
#include "master/cuts.h"
#include "base/cleanup.h"

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

DEFINE_CLEANUP(struct table *, table_unref);

void cuts_init(struct cuts *cuts, const char *dir)
{
	*cuts = (struct cuts){ .dir = dir };
	pthread_mutex_init(&cuts->lock, NULL);
	pthread_mutex_init(&cuts->making, NULL);
}

void cuts_release(struct cuts *cuts)
{
	while (cuts->n > 0)
		(void)close(cuts->all[--cuts->n].fd); /* only read from */
	pthread_mutex_destroy(&cuts->lock);
	pthread_mutex_destroy(&cuts->making);
}

static bool is_it(const struct cut *cut, const struct generation_id *of, uint64_t part)
{
	return cut->part == part && cut->of.lineage == of->lineage &&
	       cut->of.generation == of->generation &&
	       volume_id_equal(&cut->of.volume, &of->volume) &&
	       memcmp(cut->of.hash, of->hash, SHA256_BYTES) == 0;
}

/* -ENOENT: it is not there. */
static int find(
	struct cuts *cuts, const struct generation_id *of, uint64_t part, struct cut *ret_cut)
{
	int r = -ENOENT;

	pthread_mutex_lock(&cuts->lock);
	for (uint32_t i = 0; i < cuts->n && r == -ENOENT; i++) {
		struct cut *cut = &cuts->all[i];

		if (!is_it(cut, of, part))
			continue;
		cut->used = ++cuts->clock;
		*ret_cut = *cut;
		ret_cut->fd = fcntl(cut->fd, F_DUPFD_CLOEXEC, 0);
		r = ret_cut->fd < 0 ? err_errno() : 0;
	}
	pthread_mutex_unlock(&cuts->lock);
	return r;
}

/* In the place of the one that was used longest ago, when there are as many as may be. */
static void keep(struct cuts *cuts, const struct cut *cut)
{
	struct cut *place = &cuts->all[0];

	pthread_mutex_lock(&cuts->lock);
	if (cuts->n < CUTS_MAX) {
		place = &cuts->all[cuts->n++];
	} else {
		for (uint32_t i = 1; i < cuts->n; i++)
			if (cuts->all[i].used < place->used)
				place = &cuts->all[i];
		(void)close(place->fd); /* only read from */
	}
	*place = *cut;
	place->used = ++cuts->clock;
	pthread_mutex_unlock(&cuts->lock);
}

static int make(const struct cuts *cuts, int whole, const struct key_prefixes *part,
	struct cut *cut, struct err *e)
{
	_cleanup_(table_unref_p) struct table *table = NULL;
	char path[PATH_MAX];
	int fd = fcntl(whole, F_DUPFD_CLOEXEC, 0);
	int r = fd < 0 ? err_errno() : table_open(fd, &table, e);

	if (r == 0 && snprintf(path, sizeof(path), "%s/cut", cuts->dir) >= (int)sizeof(path))
		r = -ENAMETOOLONG;
	if (r == 0)
		r = table_cut(table, part, path, cut->hash, e);
	if (r < 0)
		return err_default(e, r, "an object table cannot be cut");
	cut->fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	if (cut->fd < 0)
		r = err_set(e, err_errno(), "%s cannot be opened: %m", path);
	(void)unlink(path); /* or when the master starts again */
	return r;
}

int cuts_get(struct cuts *cuts, const struct generation_id *of, int whole,
	const struct key_prefixes *part, struct cut *ret_cut, struct err *e)
{
	struct cut cut = { .of = *of, .part = key_prefixes_hash(part) };
	int r = find(cuts, of, cut.part, ret_cut);

	if (r != -ENOENT)
		return r < 0 ? err_set(e, r, "no descriptor for an object table: %s", err_str(r))
			     : 0;
	pthread_mutex_lock(&cuts->making);
	r = find(cuts, of, cut.part, ret_cut); /* another thread may have made it */
	if (r == -ENOENT) {
		r = make(cuts, whole, part, &cut, e);
		if (r == 0) {
			keep(cuts, &cut);
			r = find(cuts, of, cut.part, ret_cut);
		}
	}
	pthread_mutex_unlock(&cuts->making);
	return r < 0 ? err_default(e, r, "an object table cannot be cut") : 0;
}
