/* Datasets that are not used: what time does to them. See dataset.h. */
#include "base/clock.h"
#include "base/log.h"
#include "master/dataset.h"

#include <inttypes.h>

/* Of all datasets of the volume the most patient one decides; 0: for ever. */
static uint64_t patience(
	const struct dataset *all, uint32_t n, const struct volume_id *volume, bool ttl)
{
	uint64_t most = 0;

	for (uint32_t i = 0; i < n; i++) {
		uint64_t its = ttl ? all[i].ttl_s : all[i].idle_s;

		if (!dataset_has_volume(&all[i], volume))
			continue;
		if (its == 0)
			return 0;
		most = max(most, its);
	}
	return most;
}

/* Workers have bytes of it, and have no order yet to drop them. */
static bool has_bytes(const struct source_view *view)
{
	return view->heard && view->reported.cached_bytes + view->reported.copy_bytes > 0 &&
	       view->reported.evicted >= view->evict;
}

static void drop(struct source_set *sources, const struct dataset *d,
	const struct volume_id *volume, int64_t unused, const struct source_view *view)
{
	struct err e = ERR_INIT;
	uint64_t serial;

	if (source_set_evict(sources, volume, &serial, &e) < 0)
		log_warn("idle dataset not deleted", "dataset=%s text=\"%s\"", d->name, e.text);
	else
		log_info("unused dataset dropped", "dataset=%s unused_s=%" PRIi64 " bytes=%" PRIu64,
			d->name, unused, view->reported.cached_bytes);
}

static void age(struct source_set *sources, const struct dataset *all, uint32_t n,
	const struct dataset *d, const struct volume_id *volume, int64_t now)
{
	uint64_t idle = d->idle_s ? patience(all, n, volume, false) : 0;
	uint64_t ttl = d->ttl_s ? patience(all, n, volume, true) : 0;
	struct source_view view;
	int64_t unused;

	if (source_set_view(sources, volume, &view) < 0 || view.mounts > 0 ||
		(!idle && !ttl && !view.idle)) /* it was idle, and is not to be any more */
		return;
	unused = now - (view.used > d->created ? view.used : d->created);
	source_set_idle(sources, volume, idle && unused >= (int64_t)idle);
	if (ttl && unused >= (int64_t)ttl && has_bytes(&view))
		drop(sources, d, volume, unused, &view);
}

void dataset_age(struct dataset_set *set)
{
	struct source_set *sources;
	int64_t now = (int64_t)(clock_wall_ns() / CLOCK_SECOND);
	struct dataset *all = NULL;
	uint32_t n = 0;

	if (!set)
		return;
	sources = dataset_sources(set);
	if (source_set_in_grace(sources) || dataset_set_all(set, &all, &n) < 0)
		return;
	for (uint32_t i = 0; i < n; i++)
		for (uint32_t k = 0; k < all[i].n_mounts; k++)
			if (dataset_is_first(&all[i], k))
				age(sources, all, n, &all[i], &all[i].mounts[k].volume, now);
	for (uint32_t i = 0; i < n; i++)
		dataset_release(&all[i]);
	free(all);
}
