/* Which generations of its sources a dataset shows and keeps. See dataset.h. */
#include "base/cleanup.h"
#include "base/log.h"
#include "master/dataset_internal.h"

#include <inttypes.h>
#include <string.h>

/* The mount that is meant; NULL, with a line: there is none, or it is not said. */
static const struct dataset_mount *find_mount(
	const struct dataset *d, const char *path, struct err *e)
{
	const struct dataset_mount *mount = path ? dataset_mount_at(d, path) : &d->mounts[0];

	if (!mount)
		(void)err_set(e, -EINVAL,
			"dataset %s has no source at '%.200s': see cachectl dataset show %s",
			d->name, path, d->name);
	if (path || dataset_sources_of(d) == 1)
		return mount;
	(void)err_set(e, -EINVAL,
		"dataset %s has %u sources, each with its own generations: choose one, such as "
		"%s=NUMBER",
		d->name, dataset_sources_of(d), d->mounts[0].path);
	return NULL;
}

int dataset_find_generation(struct dataset_set *set, const struct dataset *d,
	const struct volume_id *volume, uint64_t generation, struct dataset_generation *ret,
	struct err *e)
{
	const struct dataset_generation *shown = dataset_shown(d, volume);
	struct record_generation g;

	for (uint32_t i = 0; i < d->n_pins; i++)
		if (d->pins[i].generation == generation &&
			volume_id_equal(&d->pins[i].volume, volume)) {
			*ret = d->pins[i];
			return 0;
		}
	if (shown && shown->generation == generation) {
		*ret = *shown;
		return 0;
	}
	if (source_set_generation(set->config.sources, volume, generation, &g) < 0)
		return err_set(e, -ENOENT,
			"generation %" PRIu64
			" of %s not found: see `cachectl dataset generations %s`",
			generation, d->name, d->name);
	*ret = (struct dataset_generation){ *volume, g.id.lineage, g.id.generation };
	return 0;
}

static uint32_t count(
	const struct dataset_generation *all, uint32_t n, const struct volume_id *volume)
{
	uint32_t found = 0;

	for (uint32_t i = 0; i < n; i++)
		found += volume_id_equal(&all[i].volume, volume);
	return found;
}

/* How many generations of the volume are pinned, or shown, by others, and by `d` as it is to be. */
static int check_pins(struct dataset_set *set, const struct dataset *d,
	const struct volume_id *volume, struct err *e)
{
	uint32_t n = count(d->pins, d->n_pins, volume) + count(d->shown, d->n_shown, volume);

	pthread_mutex_lock(&set->lock);
	list_for_each (node, &set->entries) {
		const struct dataset *o = &list_entry(node, struct dataset_entry, link)->dataset;

		if (strcmp(o->uuid, d->uuid) != 0)
			n += count(o->pins, o->n_pins, volume) +
			     count(o->shown, o->n_shown, volume);
	}
	pthread_mutex_unlock(&set->lock);
	if (n <= GENERATIONS_PINNED && d->n_pins <= DATASET_PINS_MAX)
		return 0;
	return err_set(e, -ENOSPC,
		"%u generations of its source are pinned, which is the maximum: unpin one",
		GENERATIONS_PINNED);
}

/* A listing may have given one up before its source heard that it is pinned: then `before` it is. */
static int check_kept(struct dataset_set *set, const struct dataset_generation *all, uint32_t n,
	struct dataset *before, struct dataset *ret, struct err *e)
{
	struct dataset back = { 0 };
	struct err ignored = ERR_INIT;
	int r = 0;

	for (uint32_t i = 0; i < n && r == 0; i++) {
		const struct source_pin which = { all[i].lineage, all[i].generation };
		struct record_generation g;

		r = source_set_find(set->config.sources, &all[i].volume, &which, &g);
		if (r < 0)
			r = err_set(e, r,
				"generation %" PRIu64
				" of %s was removed: see `cachectl dataset generations %s`",
				all[i].generation, ret->name, ret->name);
	}
	if (r == 0)
		return 0;
	if (dataset_publish(set, before, false, &back, &ignored) < 0)
		log_warn("pin of a removed generation not removed", "dataset=%s text=\"%s\"",
			ret->name, ignored.text);
	dataset_release(&back);
	dataset_release(ret);
	return r;
}

static uint32_t remove_shown(struct dataset *d, const struct volume_id *volume)
{
	uint32_t kept = 0;

	for (uint32_t i = 0; i < d->n_shown; i++)
		if (!volume_id_equal(&d->shown[i].volume, volume))
			d->shown[kept++] = d->shown[i];
	return kept;
}

static int roll_back(struct dataset_set *set, struct dataset *d, const struct dataset_which *which,
	struct err *e)
{
	const struct dataset_mount *mount = find_mount(d, which->path, e);
	struct dataset_generation found;
	int r;

	if (!mount)
		return -EINVAL;
	r = which->generation == 0
		    ? 0
		    : dataset_find_generation(set, d, &mount->volume, which->generation, &found, e);
	if (r < 0)
		return r;
	d->n_shown = remove_shown(d, &mount->volume);
	if (which->generation == 0)
		return 0;
	d->shown[d->n_shown++] = found; /* one of each source: there is room */
	return check_pins(set, d, &mount->volume, e);
}

int dataset_rollback(struct dataset_set *set, const char *name, const struct dataset_which *which,
	uint32_t n, struct dataset *ret, struct err *e)
{
	_cleanup_(dataset_release) struct dataset d = { 0 };
	_cleanup_(dataset_release) struct dataset before = { 0 };
	struct dataset_generation shown[DATASET_MOUNTS_MAX];
	uint32_t n_shown;
	int r;

	pthread_mutex_lock(&set->change);
	r = dataset_set_find(set, name, &d, e);
	if (r == 0 && dataset_copy(&d, &before) < 0)
		r = err_set(e, -ENOMEM, "out of memory");
	if (n == 0)
		d.n_shown = 0;
	for (uint32_t i = 0; i < n && r == 0; i++)
		r = roll_back(set, &d, &which[i], e);
	n_shown = d.n_shown;
	memcpy(shown, d.shown, sizeof(shown));
	if (r == 0)
		r = dataset_publish(set, &d, false, ret, e);
	if (r == 0)
		r = check_kept(set, shown, n > 0 ? n_shown : 0, &before, ret, e);
	pthread_mutex_unlock(&set->change);
	if (r == 0)
		dataset_tell_workers(set);
	return r;
}

static int add_pin(struct dataset_set *set, struct dataset *d, const struct dataset_generation *g,
	struct err *e)
{
	for (uint32_t i = 0; i < d->n_pins; i++)
		if (volume_id_equal(&d->pins[i].volume, &g->volume) &&
			d->pins[i].lineage == g->lineage && d->pins[i].generation == g->generation)
			return 0;
	if (d->n_pins == DATASET_PINS_MAX)
		return err_set(e, -ENOSPC,
			"%u generations of %s are pinned, which is the maximum: unpin one",
			DATASET_PINS_MAX, d->name);
	d->pins[d->n_pins++] = *g;
	return check_pins(set, d, &g->volume, e);
}

static int remove_pin(
	struct dataset *d, const struct volume_id *volume, uint64_t generation, struct err *e)
{
	uint32_t kept = 0;

	for (uint32_t i = 0; i < d->n_pins; i++)
		if (d->pins[i].generation != generation ||
			!volume_id_equal(&d->pins[i].volume, volume))
			d->pins[kept++] = d->pins[i];
	if (kept == d->n_pins)
		return err_set(e, -ENOENT, "generation %" PRIu64 " of %s is not pinned", generation,
			d->name);
	d->n_pins = kept;
	return 0;
}

/* *ret: the one that is kept from now on. */
static int pin_one(struct dataset_set *set, struct dataset *d, const struct dataset_which *which,
	bool pin, struct dataset_generation *ret, struct err *e)
{
	const struct dataset_mount *mount = find_mount(d, which->path, e);
	int r;

	if (!mount)
		return -EINVAL;
	if (!pin)
		return remove_pin(d, &mount->volume, which->generation, e);
	r = dataset_find_generation(set, d, &mount->volume, which->generation, ret, e);
	return r == 0 ? add_pin(set, d, ret, e) : r;
}

int dataset_pin(struct dataset_set *set, const char *name, const struct dataset_which *which,
	uint32_t n, bool pin, struct dataset *ret, struct err *e)
{
	_cleanup_(dataset_release) struct dataset d = { 0 };
	_cleanup_(dataset_release) struct dataset before = { 0 };
	struct dataset_generation kept[DATASET_MOUNTS_MAX] = { 0 };
	int r;

	ensure(n <= DATASET_MOUNTS_MAX);
	pthread_mutex_lock(&set->change);
	r = dataset_set_find(set, name, &d, e);
	if (r == 0 && dataset_copy(&d, &before) < 0)
		r = err_set(e, -ENOMEM, "out of memory");
	for (uint32_t i = 0; i < n && r == 0; i++)
		r = pin_one(set, &d, &which[i], pin, &kept[i], e);
	if (r == 0)
		r = dataset_publish(set, &d, false, ret, e);
	if (r == 0 && pin)
		r = check_kept(set, kept, n, &before, ret, e);
	pthread_mutex_unlock(&set->change);
	if (r == 0)
		dataset_tell_workers(set);
	return r;
}
