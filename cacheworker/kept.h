/*
 * What a worker remembers of the volumes it caches, next to its tier: the newest generation it
 * accepted of each (catalog/generation_seen.h), and the last table of every lineage with bytes on
 * the tier, so that these are found again under another lineage and after a restart.
 *
 *	TIER/seen/VOLUME.seen
 *	TIER/seen/VOLUME.LINEAGE.table
 *	TIER/seen/VOLUME.LINEAGE.source	what the master said of it (docs/formats.md)
 *	TIER/seen/VOLUME.evicted
 *	TIER/seen/VOLUME.evicted-paths
 *	TIER/seen/cluster	which master was met last (net/fence.h)
 *	TIER/seen/worker	its id in the cluster (member.h)
 *	TIER/seen/slots		who owned which slot when it last knew (cluster/view.h)
 *	TIER/seen/former	and who before (former.h)
 *
 * Threads: any but a loop's.
 */
#pragma once

#include <limits.h>
#include "base/buf.h"
#include "catalog/catalog.h"
#include "cacheworker/worker.h"

#define KEPT_LINEAGES 8u /* tables of one volume that are looked for */

/* The directory of all this, made when it is not there; -ENODEV without a tier. */
int kept_dir(const struct worker *w, char out[PATH_MAX]) __must_check;

/* The worker's id, drawn at its first start on this tier; another one with each start without. */
int kept_worker_id(const struct worker *w, uint64_t *ret_id, struct err *e) __must_check;

/* As generation_seen_load() and _save(). */
int kept_seen_load(const struct worker *w, const struct volume_id *volume,
	struct generation_id *ret_seen) __must_check;
int kept_seen_save(const struct worker *w, const struct generation_id *id) __must_check;

/* The last order to evict it that was followed. -ENOENT: none was. */
int kept_evicted_load(
	const struct worker *w, const struct volume_id *volume, uint64_t *ret_number) __must_check;
int kept_evicted_save(
	const struct worker *w, const struct volume_id *volume, uint64_t number) __must_check;

/* The same of orders to evict some of its objects. */
int kept_evicted_paths_load(
	const struct worker *w, const struct volume_id *volume, uint64_t *ret_number) __must_check;
int kept_evicted_paths_save(
	const struct worker *w, const struct volume_id *volume, uint64_t number) __must_check;

/* As fence_load() and fence_save(); without a tier nothing is done. */
int kept_fence_load(struct worker *w, struct err *e) __must_check;
void kept_fence_save(struct worker *w);

/* Keeps the table that `fd` is open on as the last one of its lineage: a second name where that can
 * be, else a copy. */
int kept_table_save(const struct worker *w, const struct generation_id *id, int fd) __must_check;
/* -ENOENT, or what table_open() says. */
int kept_table_open(const struct worker *w, const struct volume_id *volume, uint64_t lineage,
	struct table **ret_table) __must_check;
/* What the master said with that table, as it came (Granary__Generation, no secret in it): where its origin is, its policy.
 * For when there is no master to ask. -ENOENT; -EBADMSG: damaged. */
int kept_source_save(const struct worker *w, const struct generation_id *id,
	const struct buf *said) __must_check;
int kept_source_load(const struct worker *w, const struct volume_id *volume, uint64_t lineage,
	struct buf *said) __must_check;
/* And what was said with it. */
void kept_table_remove(const struct worker *w, const struct volume_id *volume, uint64_t lineage);
/* Lineages of which there is a table; how many. */
uint32_t kept_lineages(
	const struct worker *w, const struct volume_id *volume, uint64_t out[KEPT_LINEAGES]);
