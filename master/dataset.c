/* Datasets made, changed and given up. See dataset.h. */
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/hash.h"
#include "base/log.h"
#include "master/dataset_internal.h"
#include "master/source_internal.h"

#include <string.h>

DEFINE_CLEANUP(struct ufs *, ufs_free);

static int64_t wall_s(void)
{
	return (int64_t)(clock_wall_ns() / CLOCK_SECOND);
}

/* ---- listings without a waiter --------------------------------------------------------------- */

struct first_listing {
	struct pool_job job;
	struct source_wait wait;
	struct dataset_set *set;
	char uuid[DATASET_UUID_TEXT];
	struct ufs_config config;
};

static void listed(
	struct source_wait *wait, int status, struct source_answer *answer, const struct err *e)
{
	struct first_listing *l = container_of(wait, struct first_listing, wait);

	(void)answer;
	if (status < 0)
		log_warn("dataset not listed", "cause=%s text=\"%s\"", err_name(status), e->text);
	else
		dataset_tell_workers(l->set); /* how it is reached may be another way now */
	ufs_config_release(&l->config);
	free(l);
}

/* As it is by then; nothing, if it is gone. */
static void policy_now(struct source_wait *wait)
{
	const struct first_listing *l = container_of(wait, struct first_listing, wait);
	_cleanup_(dataset_release) struct dataset d = { 0 };

	if (dataset_set_find_uuid(l->set, l->uuid, &d, NULL) == 0)
		wait->policy = d.policy;
}

/* It may be deleted before it is listed. */
static bool is_wanted(struct source_wait *wait)
{
	const struct first_listing *l = container_of(wait, struct first_listing, wait);
	_cleanup_(dataset_release) struct dataset d = { 0 };

	return dataset_set_find_uuid(l->set, l->uuid, &d, NULL) != -ENOENT;
}

static void run_listing(struct pool_job *job)
{
	struct first_listing *l = container_of(job, struct first_listing, job);

	source_open(l->set->config.sources, &l->wait);
}

/* `refresh`: although there is a generation. */
static void list_later(
	struct dataset_set *set, const struct dataset *d, uint32_t mount, bool refresh)
{
	struct first_listing *l = calloc(1, sizeof(*l));

	if (!l || ufs_config_copy(&d->mounts[mount].config, &l->config) < 0) {
		free(l);
		return; /* its first mount lists it */
	}
	l->job.run = run_listing;
	l->set = set;
	memcpy(l->uuid, d->uuid, sizeof(l->uuid));
	l->wait = (struct source_wait){ .config = &l->config,
		.refresh = refresh,
		.on_done = listed,
		.is_wanted = is_wanted,
		.of_dataset = true,
		.policy_now = policy_now };
	if (pool_submit(set->config.pool, &l->job) < 0) {
		ufs_config_release(&l->config);
		free(l);
	}
}

/* ---- creation -------------------------------------------------------------------------------- */

/*
 * Key, bucket, endpoint: what is wrong with them is better known now. An origin that does not answer
 * is -ENXIO: the codes of that mean to who asks that the master does not.
 */
static int check_origin(struct dataset_set *set, const struct dataset_mount *mount, struct err *e)
{
	_cleanup_(ufs_free_p) struct ufs *ufs = NULL;
	int r = ufs_open(&mount->config, set->config.limits, &ufs, e);

	if (r == 0)
		r = ufs_probe(ufs, e);
	if (r == 0)
		return 0;
	r = err_default(e, r, mount->url);
	if (r == -ENOKEY && !mount->config.credentials)
		(void)err_prefix(e, "on the master's host, as its user");
	if (r == -ECONNREFUSED || r == -EHOSTUNREACH || r == -ENETUNREACH || r == -ETIMEDOUT)
		r = -ENXIO;
	if (e)
		e->code = r;
	return r;
}

static int check_origins(struct dataset_set *set, const struct dataset *d, struct err *e)
{
	int r = 0;

	for (uint32_t i = 0; i < d->n_mounts && r == 0; i++)
		r = check_origin(set, &d->mounts[i], e);
	return r;
}

/* The record that the body makes; nothing is stored. */
static int compose(struct dataset_set *set, const json_t *body, bool check,
	const struct source_rules *rules, struct dataset *d, struct err *e)
{
	uint8_t uuid[DATASET_UUID_BYTES];
	int r = dataset_apply(d, body, true, rules, e);

	if (r == 0)
		r = dataset_check_free(set, d->name, e); /* before an origin is asked */
	if (r == 0 && check)
		r = check_origins(set, d, e);
	if (r < 0)
		return r;
	dataset_find_views(set, d, check);
	d->created = wall_s();
	hash_random(uuid, sizeof(uuid));
	hash_hex(uuid, sizeof(uuid), d->uuid);
	return 0;
}

int dataset_preview(struct dataset_set *set, const json_t *body, bool check,
	const struct source_rules *rules, struct dataset *ret, struct err *e)
{
	_cleanup_(dataset_release) struct dataset d = { 0 };
	int r = compose(set, body, check, rules, &d, e);

	if (r < 0)
		return r;
	*ret = d;
	d = (struct dataset){ 0 };
	return 0;
}

int dataset_create(struct dataset_set *set, const json_t *body, bool check,
	const struct source_rules *rules, struct dataset *ret, struct err *e)
{
	_cleanup_(dataset_release) struct dataset d = { 0 };
	int r = compose(set, body, check, rules, &d, e);

	if (r < 0)
		return r;
	pthread_mutex_lock(&set->change);
	r = dataset_check_free(set, d.name, e);
	if (r == 0)
		r = dataset_publish(set, &d, true, ret, e);
	pthread_mutex_unlock(&set->change);
	if (r < 0)
		return r;
	dataset_tell_workers(set);
	for (uint32_t i = 0; i < ret->n_mounts; i++)
		if (dataset_is_first(ret, i))
			list_later(set, ret, i, false);
	return 0;
}

/* ---- changes --------------------------------------------------------------------------------- */

/* Bit i: source of mount i is to be reached in another way. */
static uint32_t other_ways(const struct dataset *a, const struct dataset *b)
{
	uint32_t all = 0;

	for (uint32_t i = 0; i < a->n_mounts; i++)
		if (!source_same_way(&a->mounts[i].config, &b->mounts[i].config) ||
			a->mounts[i].config.no_local != b->mounts[i].config.no_local)
			all |= 1u << i;
	return all;
}

/* What the caller may name, and, with `ask`, whether origins answer: either may take its time, in which the record may
 * change, so it is checked before anybody has to wait. `before`: the record that it is checked for. */
static int check_ways(struct dataset_set *set, const char *name, const json_t *body, bool ask,
	const struct source_rules *rules, struct dataset *before, struct err *e)
{
	_cleanup_(dataset_release) struct dataset d = { 0 };
	uint32_t ways = 0;
	int r = dataset_set_find(set, name, before, e);

	if (r == 0 && dataset_copy(before, &d) < 0)
		r = err_set(e, -ENOMEM, "out of memory");
	if (r == 0)
		r = dataset_apply(&d, body, false, rules, e);
	if (r == 0 && ask)
		ways = other_ways(before, &d);
	for (uint32_t i = 0; i < d.n_mounts && r == 0; i++)
		if (ways & 1u << i)
			r = check_origin(set, &d.mounts[i], e);
	return r;
}

int dataset_update(struct dataset_set *set, const char *name, const json_t *body, bool check,
	const struct source_rules *rules, struct dataset *ret, struct err *e)
{
	_cleanup_(dataset_release) struct dataset checked = { 0 };
	_cleanup_(dataset_release) struct dataset before = { 0 };
	_cleanup_(dataset_release) struct dataset d = { 0 };
	uint32_t ways = 0;
	int r = check || rules ? check_ways(set, name, body, check, rules, &checked, e) : 0;

	if (r < 0)
		return r;
	pthread_mutex_lock(&set->change);
	r = dataset_set_find(set, name, &before, e);
	/* A dataset that was replaced or got other access settings meanwhile was not checked: the rules allow a dataset to keep
	 * its own old settings, but not those of another. */
	if (r == 0 && rules &&
		(strcmp(before.uuid, checked.uuid) != 0 || other_ways(&before, &checked)))
		r = err_set(e, -EBUSY,
			"dataset %s was changed by another request at the same time: try again",
			name);
	if (r == 0 && dataset_copy(&before, &d) < 0)
		r = err_set(e, -ENOMEM, "out of memory");
	if (r == 0)
		r = dataset_apply(&d, body, false, NULL, e);
	for (uint32_t i = 0; i < d.n_mounts && r == 0 && rules;
		i++) /* checked above, and still bound by the rules */
		d.mounts[i].config.no_local = before.mounts[i].config.no_local;
	if (r == 0 && strcmp(d.name, name) != 0)
		r = dataset_check_free(set, d.name, e);
	if (r == 0)
		r = dataset_publish(set, &d, true, ret, e);
	if (r == 0)
		ways = other_ways(&before, ret);
	pthread_mutex_unlock(&set->change);
	if (r < 0)
		return r;
	dataset_tell_workers(set);
	for (uint32_t i = 0; i < ret->n_mounts; i++)
		if (ways & 1u << i)
			list_later(set, ret, i, true); /* which takes the new way */
	return 0;
}

/* ---- the end --------------------------------------------------------------------------------- */

/* No other dataset has it. */
static bool is_last(struct dataset_set *set, const struct volume_id *volume)
{
	bool last = true;

	pthread_mutex_lock(&set->lock);
	list_for_each (node, &set->entries) {
		const struct dataset *d = &list_entry(node, struct dataset_entry, link)->dataset;

		last &= !dataset_has_volume(d, volume);
	}
	pthread_mutex_unlock(&set->lock);
	return last;
}

/* Its bytes and its listing go, unless mounts by its URL go on; a listing that others wait for goes on, too. */
static void drop_source(
	struct dataset_set *set, const struct dataset *d, const struct volume_id *volume)
{
	struct source_set *sources = set->config.sources;
	struct err e = ERR_INIT;
	struct source_view view;
	uint64_t serial;

	if (!is_last(set, volume) || source_set_view(sources, volume, &view) < 0)
		return;
	source_set_idle(sources, volume, false);
	source_set_end_listing(sources, volume);
	if (view.mounts == 0 && source_set_evict(sources, volume, &serial, &e) < 0)
		log_warn("data of a deleted dataset not evicted", "dataset=%s text=\"%s\"", d->name,
			e.text);
}

int dataset_delete(struct dataset_set *set, const char *name, bool force, struct err *e)
{
	_cleanup_(dataset_release) struct dataset d = { 0 };
	int r;

	pthread_mutex_lock(&set->change);
	r = dataset_set_find(set, name, &d, e);
	if (r == 0 && !force)
		r = dataset_check_unmounted(set, &d, "give --force: mounts continue", e);
	if (r == 0)
		r = dataset_withdraw(set, &d, e);
	/* Under `change`: another dataset of its sources may be made. */
	for (uint32_t i = 0; i < d.n_mounts && r == 0; i++)
		if (dataset_is_first(&d, i))
			drop_source(set, &d, &d.mounts[i].volume);
	pthread_mutex_unlock(&set->change);
	if (r == 0)
		dataset_tell_workers(set);
	return r;
}
