/*
 * Views: datasets of a prefix inside a source that is used already. They share its volume, so that
 * nothing is fetched or kept twice. See dataset.h.
 */
#include "base/cleanup.h"
#include "base/log.h"
#include "master/dataset_internal.h"

#include <string.h>

DEFINE_CLEANUP(struct ufs *, ufs_free);

/* ---- which sources there are ----------------------------------------------------------------- */

static bool dataset_has(struct dataset_set *set, const struct volume_id *volume)
{
	bool has = false;

	pthread_mutex_lock(&set->lock);
	list_for_each (node, &set->entries) {
		const struct dataset *d = &list_entry(node, struct dataset_entry, link)->dataset;

		has |= dataset_has_volume(d, volume);
	}
	pthread_mutex_unlock(&set->lock);
	return has;
}

/* Of a source that was only once used a view would list all of it for the sake of a part. */
static bool is_used(struct dataset_set *set, const struct dataset *d,
	const struct volume_id *volume, uint32_t but)
{
	struct source_view view;

	for (uint32_t i = 0; i < d->n_mounts; i++)
		if (i != but && volume_id_equal(&d->mounts[i].volume, volume))
			return true;
	return dataset_has(set, volume) ||
	       (source_set_view(set->config.sources, volume, &view) == 0 &&
		       view.newest.serial > 0 &&
		       (view.mounts > 0 || view.reported.cached_bytes > 0));
}

static int volume_of(const struct ufs_config *config, struct volume_id *ret)
{
	_cleanup_(buf_release) struct buf text = BUF_INIT(2 * LIMIT_URL_BYTES);
	int r = ufs_config_source(config, &text, NULL);

	if (r == 0)
		volume_id_of_source(buf_str(&text), ret);
	return r;
}

/* ---- making one ------------------------------------------------------------------------------ */

static bool is_reached(struct dataset_set *set, const struct ufs_config *config)
{
	_cleanup_(ufs_free_p) struct ufs *ufs = NULL;
	struct err e = ERR_INIT;
	int r = ufs_open(config, set->config.limits, &ufs, &e);

	if (r == 0)
		r = ufs_probe(ufs, &e);
	if (r < 0)
		log_info("no view of a larger source", "prefix=\"%s\" cause=%s text=\"%s\"",
			config->prefix, err_name(r), e.text);
	return r == 0;
}

/* Its prefix without the last directory; false: there is none above. */
static bool cut(char *prefix, bool directory)
{
	size_t len = strlen(prefix);

	if (len <= (directory ? 1u : 0u))
		return false;
	do {
		len--;
	} while (len > 0 && prefix[len - 1] != '/');
	prefix[len] = '\0';
	return true;
}

/* Takes the nearest source that is used above `wide`, which is the mount's own. True when there is
 * one: `wide` and `volume` are it. */
static bool find_above(struct dataset_set *set, const struct dataset *d, uint32_t i, bool check,
	struct ufs_config *wide, struct volume_id *volume)
{
	while (cut(wide->prefix, wide->scheme == UFS_FILE)) {
		if (volume_of(wide, volume) < 0)
			return false;
		if (is_used(set, d, volume, i) && (!check || is_reached(set, wide)))
			return true;
	}
	return false;
}

static void find_view(struct dataset_set *set, struct dataset *d, uint32_t i, bool check)
{
	struct dataset_mount *m = &d->mounts[i];
	_cleanup_(ufs_config_release) struct ufs_config wide = { 0 };
	_cleanup_free_ char *own = NULL;
	struct volume_id volume;

	if (is_used(set, d, &m->volume, i) || ufs_config_copy(&m->config, &wide) < 0)
		return;
	own = strdup(wide.prefix);
	if (!own || !find_above(set, d, i, check, &wide, &volume))
		return;
	m->subtree = strdup(own + strlen(wide.prefix));
	if (!m->subtree)
		return;
	m->volume = volume;
	ufs_config_release(&m->config);
	m->config = wide;
	wide = (struct ufs_config){ 0 };
}

void dataset_find_views(struct dataset_set *set, struct dataset *d, bool check)
{
	bool done[DATASET_MOUNTS_MAX] = { false };

	/* The widest first: others of this dataset may lie inside them. */
	for (uint32_t round = 0; round < d->n_mounts; round++) {
		uint32_t next = DATASET_MOUNTS_MAX;

		for (uint32_t i = 0; i < d->n_mounts; i++)
			if (!done[i] && (next == DATASET_MOUNTS_MAX ||
						strlen(d->mounts[i].config.prefix) <
							strlen(d->mounts[next].config.prefix)))
				next = i;
		done[next] = true;
		find_view(set, d, next, check);
	}
}

/* ---- how much it shows ----------------------------------------------------------------------- */

static struct view_count *find_count_locked(struct dataset_set *set, const struct volume_id *volume,
	const struct generation_id *id, const char *subtree)
{
	for (uint32_t i = 0; i < set->n_views; i++) {
		struct view_count *c = &set->views[i];

		if (volume_id_equal(&c->volume, volume) && c->lineage == id->lineage &&
			c->generation == id->generation && strcmp(c->subtree, subtree) == 0)
			return c;
	}
	return NULL;
}

static int count_rows(struct table *table, const char *subtree, uint64_t *files, uint64_t *bytes)
{
	_cleanup_(table_cursor_release) struct table_cursor cursor = { 0 };
	_cleanup_free_ struct table_row *row = malloc(sizeof(*row));
	uint32_t len = (uint32_t)strlen(subtree);
	int r = row ? table_lower_bound(table, subtree, len, &cursor.ordinal) : -ENOMEM;

	while (r == 0 && (r = table_next(table, &cursor, row)) == 0) {
		if (row->key_len < len || memcmp(row->key, subtree, len) != 0)
			return 0;
		if (row->flags & (ROW_DEAD | ROW_DIRECTORY))
			continue;
		++*files;
		*bytes += row->size;
	}
	return r == -ENOENT ? 0 : r;
}

/* Without memory it is counted again. */
static void remember(struct dataset_set *set, const struct view_count *count, const char *subtree)
{
	char *text = strdup(subtree);
	struct view_count *place;

	if (!text)
		return;
	pthread_mutex_lock(&set->lock);
	if (set->n_views < VIEWS_COUNTED) {
		place = &set->views[set->n_views++];
	} else {
		place = &set->views[set->next_view];
		set->next_view = (set->next_view + 1) % VIEWS_COUNTED;
		free(place->subtree);
	}
	*place = *count;
	place->subtree = text;
	pthread_mutex_unlock(&set->lock);
}

int dataset_view_count(struct dataset_set *set, const struct volume_id *volume,
	const struct record_generation *g, const char *subtree, uint64_t *ret_files,
	uint64_t *ret_bytes)
{
	struct view_count count = {
		.volume = *volume, .lineage = g->id.lineage, .generation = g->id.generation
	};
	const struct view_count *known;
	struct table *table = NULL;
	struct err e = ERR_INIT;
	int r;

	if (!subtree) {
		*ret_files = g->files;
		*ret_bytes = g->bytes;
		return 0;
	}
	pthread_mutex_lock(&set->lock);
	known = find_count_locked(set, volume, &g->id, subtree);
	if (known)
		count = *known;
	pthread_mutex_unlock(&set->lock);
	if (!known) {
		r = source_set_open_table(set->config.sources, volume,
			&(struct source_pin){ g->id.lineage, g->id.generation }, &table, &e);
		if (r == 0)
			r = count_rows(table, subtree, &count.files, &count.bytes);
		table_unref(table);
		if (r < 0)
			return r;
		remember(set, &count, subtree);
	}
	*ret_files = count.files;
	*ret_bytes = count.bytes;
	return 0;
}
