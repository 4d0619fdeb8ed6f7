/* The datasets of a master: found, made, changed. See dataset.h. */
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/crash_point.h"
#include "base/hash.h"
#include "base/log.h"
#include "master/dataset.h"

#include <inttypes.h>
#include <pthread.h>
#include <string.h>

/* A record, never changed once it is in the list. */
struct entry {
	struct list link;
	struct dataset dataset;
};

struct dataset_set {
	struct dataset_set_config config;
	pthread_mutex_t change; /* one change at a time: held over the store's writes */
	pthread_mutex_t lock;   /* the list; after `change`, a leaf */
	struct list entries;    /* by name */
	uint32_t n;
};

static void entry_free(struct entry *entry)
{
	if (!entry)
		return;
	dataset_release(&entry->dataset);
	free(entry);
}
DEFINE_CLEANUP(struct entry *, entry_free);

static int64_t wall_s(void)
{
	return (int64_t)(clock_wall_ns() / CLOCK_SECOND);
}

static void tell_workers(struct dataset_set *set)
{
	if (set->config.on_change)
		set->config.on_change(set->config.arg);
}

struct source_set *dataset_sources(struct dataset_set *set)
{
	return set->config.sources;
}

/* ---- finding --------------------------------------------------------------------------------- */

static struct entry *find_locked(struct dataset_set *set, const char *name)
{
	list_for_each (node, &set->entries) {
		struct entry *entry = list_entry(node, struct entry, link);

		if (strcmp(entry->dataset.name, name) == 0)
			return entry;
	}
	return NULL;
}

static struct entry *find_uuid_locked(struct dataset_set *set, const char *uuid)
{
	list_for_each (node, &set->entries) {
		struct entry *entry = list_entry(node, struct entry, link);

		if (strcmp(entry->dataset.uuid, uuid) == 0)
			return entry;
	}
	return NULL;
}

static void insert_locked(struct dataset_set *set, struct entry *entry)
{
	struct list *before = &set->entries;

	list_for_each (node, &set->entries) {
		if (strcmp(list_entry(node, struct entry, link)->dataset.name,
			    entry->dataset.name) > 0) {
			before = node;
			break;
		}
	}
	list_push_back(before, &entry->link); /* before that node */
	set->n++;
}

static int copy_locked(
	const struct entry *entry, const char *what, struct dataset *ret, struct err *e)
{
	int r;

	if (!entry)
		return err_set(e, -ENOENT,
			"no dataset is called '%.80s': cachectl dataset list shows them", what);
	r = dataset_copy(&entry->dataset, ret);
	return r < 0 ? err_set(e, r, "out of memory") : 0;
}

int dataset_set_find(struct dataset_set *set, const char *name, struct dataset *ret, struct err *e)
{
	int r;

	pthread_mutex_lock(&set->lock);
	r = copy_locked(find_locked(set, name), name, ret, e);
	pthread_mutex_unlock(&set->lock);
	return r;
}

int dataset_set_find_uuid(
	struct dataset_set *set, const char *uuid, struct dataset *ret, struct err *e)
{
	int r;

	pthread_mutex_lock(&set->lock);
	r = copy_locked(find_uuid_locked(set, uuid), uuid, ret, e);
	pthread_mutex_unlock(&set->lock);
	return r;
}

int dataset_set_all(struct dataset_set *set, struct dataset **ret_all, uint32_t *ret_n)
{
	struct dataset *all;
	uint32_t n = 0;
	int r = 0;

	pthread_mutex_lock(&set->lock);
	all = calloc(set->n + 1, sizeof(*all));
	if (!all)
		r = -ENOMEM;
	list_for_each (node, &set->entries) {
		if (r < 0)
			break;
		r = dataset_copy(&list_entry(node, struct entry, link)->dataset, &all[n]);
		n += r == 0;
	}
	pthread_mutex_unlock(&set->lock);
	if (r == 0) {
		*ret_all = all;
		*ret_n = n;
		return 0;
	}
	while (n > 0)
		dataset_release(&all[--n]);
	free(all);
	return r;
}

/* ---- what its sources are told --------------------------------------------------------------- */

/* All that datasets pin of a volume. */
static void tell_pins(struct dataset_set *set, const struct volume_id *volume)
{
	struct source_pin pins[GENERATIONS_PINNED];
	uint32_t n = 0;

	pthread_mutex_lock(&set->lock);
	list_for_each (node, &set->entries) {
		const struct dataset *d = &list_entry(node, struct entry, link)->dataset;

		for (uint32_t i = 0; i <= d->n_pins; i++) {
			const struct dataset_generation *g =
				i < d->n_pins ? &d->pins[i] : &d->shown;

			if (g->generation && n < GENERATIONS_PINNED &&
				volume_id_equal(&g->volume, volume))
				pins[n++] = (struct source_pin){ g->lineage, g->generation };
		}
	}
	pthread_mutex_unlock(&set->lock);
	if (source_set_pins(set->config.sources, volume, pins, n) < 0)
		log_debug("source not known", "pins=%u", n); /* nothing of it is kept */
}

/* How many generations of the volume datasets pin, and show, besides what `but` does. */
static uint32_t count_pins(struct dataset_set *set, const struct volume_id *volume, const char *but)
{
	uint32_t n = 0;

	pthread_mutex_lock(&set->lock);
	list_for_each (node, &set->entries) {
		const struct dataset *d = &list_entry(node, struct entry, link)->dataset;

		if (strcmp(d->uuid, but) == 0 || d->n_mounts == 0 ||
			!volume_id_equal(&d->mounts[0].volume, volume))
			continue;
		n += d->n_pins + (d->shown.generation > 0);
	}
	pthread_mutex_unlock(&set->lock);
	return n;
}

static void tell_policy(struct dataset_set *set, const struct dataset *d, bool gone)
{
	struct tier_policy policy = { 0 };
	struct err e = ERR_INIT;

	if (!gone)
		(void)policy_apply(&policy, &d->policy); /* parts not set: the default */
	for (uint32_t i = 0; i < d->n_mounts; i++)
		if (source_set_policy(set->config.sources, &d->mounts[i].volume, &policy, &e) < 0)
			log_warn("policy not stored", "dataset=%s text=\"%s\"", d->name, e.text);
}

/* ---- storing --------------------------------------------------------------------------------- */

static int store(struct dataset_set *set, const struct dataset *d, bool remove, struct err *e)
{
	_cleanup_(buf_release) struct buf value = BUF_INIT(STORE_VALUE_BYTES);
	char key[DATASET_KEY_BYTES];
	int r = remove ? 0 : dataset_encode(d, &value);

	dataset_key(d->uuid, key);
	if (r == 0)
		r = set->config.store->ops->write(set->config.store,
			&(struct store_change){ key, remove ? NULL : value.data, value.len }, 1);
	if (r < 0)
		return err_set(e, r,
			"the master's store does not take dataset %s: %s: check its disk", d->name,
			err_str(r));
	CRASH_POINT("dataset.stored");
	return 0;
}

/* In place of the one with its UUID, if there is one. `d` is taken over. */
static int publish(struct dataset_set *set, struct dataset *d, struct dataset *ret, struct err *e)
{
	struct entry *entry = calloc(1, sizeof(*entry));
	struct entry *old;
	struct dataset copy;
	int r;

	if (!entry || dataset_copy(d, &copy) < 0) {
		free(entry);
		return err_set(e, -ENOMEM, "out of memory");
	}
	r = store(set, d, false, e);
	if (r < 0) {
		dataset_release(&copy);
		free(entry);
		return r;
	}
	entry->dataset = *d;
	*d = (struct dataset){ 0 };
	pthread_mutex_lock(&set->lock);
	old = find_uuid_locked(set, entry->dataset.uuid);
	if (old) {
		list_remove(&old->link);
		set->n--;
	}
	insert_locked(set, entry);
	pthread_mutex_unlock(&set->lock);
	entry_free(old);
	*ret = copy;
	for (uint32_t i = 0; i < copy.n_mounts; i++)
		tell_pins(set, &copy.mounts[i].volume);
	return 0;
}

/* ---- creation -------------------------------------------------------------------------------- */

/* A listing that nobody waits for. */
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
	ufs_config_release(&l->config);
	free(l);
}

static void run_listing(struct pool_job *job)
{
	struct first_listing *l = container_of(job, struct first_listing, job);
	_cleanup_(dataset_release) struct dataset d = { 0 };

	/* As it is by now; nothing, if it is gone. */
	if (dataset_set_find_uuid(l->set, l->uuid, &d, NULL) == 0)
		l->wait.policy = d.policy;
	source_open(l->set->config.sources, &l->wait);
}

static void list_later(struct dataset_set *set, const struct dataset *d)
{
	struct first_listing *l = calloc(1, sizeof(*l));

	if (!l || ufs_config_copy(&d->mounts[0].config, &l->config) < 0) {
		free(l);
		return; /* its first mount lists it */
	}
	l->job.run = run_listing;
	l->set = set;
	memcpy(l->uuid, d->uuid, sizeof(l->uuid));
	l->wait = (struct source_wait){ .config = &l->config, .on_done = listed };
	if (pool_submit(set->config.pool, &l->job) < 0) {
		ufs_config_release(&l->config);
		free(l);
	}
}

DEFINE_CLEANUP(struct ufs *, ufs_free);

/* Key, bucket, endpoint: what is wrong with them is better known now. */
static int check_origin(struct dataset_set *set, const struct dataset *d, struct err *e)
{
	for (uint32_t i = 0; i < d->n_mounts; i++) {
		_cleanup_(ufs_free_p) struct ufs *ufs = NULL;
		int r = ufs_open(&d->mounts[i].config, set->config.limits, &ufs, e);

		if (r == 0)
			r = ufs_probe(ufs, e);
		if (r < 0)
			return err_default(e, r, d->mounts[i].url);
	}
	return 0;
}

static int check_free(struct dataset_set *set, const char *name, struct err *e)
{
	bool taken;
	bool full;

	pthread_mutex_lock(&set->lock);
	taken = find_locked(set, name) != NULL;
	full = set->n >= DATASETS_MAX;
	pthread_mutex_unlock(&set->lock);
	if (taken)
		return err_set(
			e, -EEXIST, "there is a dataset '%s' already: take another name", name);
	if (full)
		return err_set(
			e, -ENOSPC, "this master has %u datasets, the most it takes", DATASETS_MAX);
	return 0;
}

int dataset_create(
	struct dataset_set *set, const json_t *body, bool check, struct dataset *ret, struct err *e)
{
	_cleanup_(dataset_release) struct dataset d = { .created = wall_s() };
	uint8_t uuid[DATASET_UUID_BYTES];
	int r = dataset_apply(&d, body, true, e);

	if (r == 0)
		r = check_free(set, d.name, e); /* before an origin is asked */
	if (r == 0 && check)
		r = check_origin(set, &d, e);
	if (r < 0)
		return r;
	hash_random(uuid, sizeof(uuid));
	hash_hex(uuid, sizeof(uuid), d.uuid);
	pthread_mutex_lock(&set->change);
	r = check_free(set, d.name, e);
	if (r == 0)
		r = publish(set, &d, ret, e);
	if (r == 0)
		tell_policy(set, ret, false);
	pthread_mutex_unlock(&set->change);
	if (r < 0)
		return r;
	tell_workers(set);
	if (check)
		list_later(set, ret);
	return 0;
}

/* ---- changes --------------------------------------------------------------------------------- */

int dataset_update(struct dataset_set *set, const char *name, const json_t *body,
	struct dataset *ret, struct err *e)
{
	_cleanup_(dataset_release) struct dataset d = { 0 };
	int r;

	pthread_mutex_lock(&set->change);
	r = dataset_set_find(set, name, &d, e);
	if (r == 0)
		r = dataset_apply(&d, body, false, e);
	if (r == 0 && strcmp(d.name, name) != 0)
		r = check_free(set, d.name, e);
	if (r == 0)
		r = publish(set, &d, ret, e);
	if (r == 0)
		tell_policy(set, ret, false); /* in the order of the records */
	pthread_mutex_unlock(&set->change);
	if (r == 0)
		tell_workers(set);
	return r;
}

static uint32_t mounts_of(struct dataset_set *set, const struct dataset *d)
{
	struct source_view view;
	uint32_t n = 0;

	for (uint32_t i = 0; i < d->n_mounts; i++)
		if (source_set_view(set->config.sources, &d->mounts[i].volume, &view) == 0)
			n += view.mounts;
	return n;
}

static int check_unmounted(
	struct dataset_set *set, const struct dataset *d, const char *next, struct err *e)
{
	uint32_t n = mounts_of(set, d);

	if (n > 0)
		return err_set(e, -EBUSY, "dataset %s is mounted (%u): unmount it first, or %s",
			d->name, n, next);
	if (source_set_in_grace(set->config.sources))
		return err_set(e, -EBUSY,
			"the master started just now and does not know yet what is mounted: try "
			"again in %u s, or %s",
			(unsigned int)(GRACE_NS / CLOCK_SECOND), next);
	return 0;
}

/* No other dataset has it. */
static bool is_last(struct dataset_set *set, const struct volume_id *volume)
{
	bool last = true;

	pthread_mutex_lock(&set->lock);
	list_for_each (node, &set->entries) {
		const struct dataset *d = &list_entry(node, struct entry, link)->dataset;

		for (uint32_t i = 0; i < d->n_mounts; i++)
			last &= !volume_id_equal(&d->mounts[i].volume, volume);
	}
	pthread_mutex_unlock(&set->lock);
	return last;
}

/* Its bytes are of no use to anybody, unless mounts by its URL go on. Under `change`: another dataset
 * of its source may be made, or pin. */
static void drop_bytes(struct dataset_set *set, const struct dataset *d)
{
	struct err e = ERR_INIT;
	uint64_t serial;

	for (uint32_t i = 0; i < d->n_mounts; i++) {
		const struct volume_id *volume = &d->mounts[i].volume;
		struct source_view view;

		tell_pins(set, volume);
		if (!is_last(set, volume) ||
			source_set_view(set->config.sources, volume, &view) < 0)
			continue;
		tell_policy(set, d, true);
		source_set_idle(set->config.sources, volume, false);
		if (view.mounts == 0 &&
			source_set_evict(set->config.sources, volume, &serial, &e) < 0)
			log_warn("bytes of a deleted dataset stay", "dataset=%s text=\"%s\"",
				d->name, e.text);
	}
	tell_workers(set);
}

int dataset_delete(struct dataset_set *set, const char *name, bool force, struct err *e)
{
	_cleanup_(dataset_release) struct dataset d = { 0 };
	struct entry *entry = NULL;
	int r;

	pthread_mutex_lock(&set->change);
	r = dataset_set_find(set, name, &d, e);
	if (r == 0 && !force)
		r = check_unmounted(set, &d, "give --force: mounts go on", e);
	if (r == 0)
		r = store(set, &d, true, e);
	if (r == 0) {
		pthread_mutex_lock(&set->lock);
		entry = find_uuid_locked(set, d.uuid);
		ensure(entry); /* changes come one at a time */
		list_remove(&entry->link);
		set->n--;
		pthread_mutex_unlock(&set->lock);
		drop_bytes(set, &d);
	}
	pthread_mutex_unlock(&set->change);
	entry_free(entry);
	return r;
}

/* ---- generations ----------------------------------------------------------------------------- */

static int find_generation(struct dataset_set *set, const struct dataset *d, uint64_t generation,
	struct dataset_generation *ret, struct err *e)
{
	const struct volume_id *volume = &d->mounts[0].volume;
	struct record_generation g;

	if (source_set_generation(set->config.sources, volume, generation, &g) < 0)
		return err_set(e, -ENOENT,
			"generation %" PRIu64 " of %s is not kept: cachectl dataset generations %s "
			"shows which are",
			generation, d->name, d->name);
	*ret = (struct dataset_generation){ *volume, g.id.lineage, g.id.generation };
	return 0;
}

/* A listing may have given it up before its source heard that it is pinned: then `before` it is. */
static int check_kept(struct dataset_set *set, const struct dataset_generation *g,
	struct dataset *before, struct dataset *ret, struct err *e)
{
	struct dataset_generation again = { 0 };
	struct dataset back = { 0 };
	struct err ignored = ERR_INIT;
	int r = find_generation(set, ret, g->generation, &again, e);

	if (r == 0 && again.lineage == g->lineage)
		return 0;
	if (publish(set, before, &back, &ignored) < 0)
		log_warn("pin of a generation that is gone stays", "dataset=%s text=\"%s\"",
			ret->name, ignored.text);
	dataset_release(&back);
	dataset_release(ret);
	return r < 0 ? r : err_set(e, -ENOENT, "that generation is not kept any more");
}

int dataset_rollback(struct dataset_set *set, const char *name, uint64_t generation,
	struct dataset *ret, struct err *e)
{
	_cleanup_(dataset_release) struct dataset d = { 0 };
	_cleanup_(dataset_release) struct dataset before = { 0 };
	struct dataset_generation g;
	int r;

	pthread_mutex_lock(&set->change);
	r = dataset_set_find(set, name, &d, e);
	if (r == 0 && dataset_copy(&d, &before) < 0)
		r = err_set(e, -ENOMEM, "out of memory");
	if (r == 0 && generation == 0)
		d.shown = (struct dataset_generation){ 0 };
	else if (r == 0)
		r = find_generation(set, &d, generation, &d.shown, e);
	if (r == 0 && generation > 0 &&
		count_pins(set, &d.mounts[0].volume, d.uuid) + d.n_pins >= GENERATIONS_PINNED)
		r = err_set(e, -ENOSPC,
			"%u generations of its source are pinned, the most there may be: unpin one",
			GENERATIONS_PINNED);
	g = d.shown;
	if (r == 0)
		r = publish(set, &d, ret, e);
	if (r == 0 && generation > 0)
		r = check_kept(set, &g, &before, ret, e);
	pthread_mutex_unlock(&set->change);
	if (r == 0)
		tell_workers(set);
	return r;
}

static int add_pin(struct dataset_set *set, struct dataset *d, const struct dataset_generation *g,
	struct err *e)
{
	uint32_t others = count_pins(set, &g->volume, d->uuid) + (d->shown.generation > 0);

	for (uint32_t i = 0; i < d->n_pins; i++)
		if (d->pins[i].lineage == g->lineage && d->pins[i].generation == g->generation)
			return 0;
	if (d->n_pins + others >= GENERATIONS_PINNED)
		return err_set(e, -ENOSPC,
			"%u generations of its source are pinned, the most there may be: unpin one",
			GENERATIONS_PINNED);
	d->pins[d->n_pins++] = *g;
	return 0;
}

static int remove_pin(struct dataset *d, uint64_t generation, struct err *e)
{
	uint32_t kept = 0;

	for (uint32_t i = 0; i < d->n_pins; i++)
		if (d->pins[i].generation != generation)
			d->pins[kept++] = d->pins[i];
	if (kept == d->n_pins)
		return err_set(e, -ENOENT, "generation %" PRIu64 " of %s is not pinned", generation,
			d->name);
	d->n_pins = kept;
	return 0;
}

int dataset_pin(struct dataset_set *set, const char *name, uint64_t generation, bool pin,
	struct dataset *ret, struct err *e)
{
	_cleanup_(dataset_release) struct dataset d = { 0 };
	_cleanup_(dataset_release) struct dataset before = { 0 };
	struct dataset_generation g = { 0 };
	int r;

	pthread_mutex_lock(&set->change);
	r = dataset_set_find(set, name, &d, e);
	if (r == 0 && dataset_copy(&d, &before) < 0)
		r = err_set(e, -ENOMEM, "out of memory");
	if (r == 0 && pin) {
		r = find_generation(set, &d, generation, &g, e);
		if (r == 0)
			r = add_pin(set, &d, &g, e);
	} else if (r == 0) {
		r = remove_pin(&d, generation, e);
	}
	if (r == 0)
		r = publish(set, &d, ret, e);
	if (r == 0 && pin)
		r = check_kept(set, &g, &before, ret, e);
	pthread_mutex_unlock(&set->change);
	if (r == 0)
		tell_workers(set);
	return r;
}

/* ---- bytes ----------------------------------------------------------------------------------- */

int dataset_evict(
	struct dataset_set *set, const char *name, bool force, uint64_t *ret_serial, struct err *e)
{
	_cleanup_(dataset_release) struct dataset d = { 0 };
	int r = dataset_set_find(set, name, &d, e);

	if (r == 0 && !force)
		r = check_unmounted(set, &d, "give --force: its readers fetch anew", e);
	if (r == 0)
		r = source_set_evict(set->config.sources, &d.mounts[0].volume, ret_serial, e);
	if (r == 0)
		tell_workers(set);
	return r;
}

/* ---- the set --------------------------------------------------------------------------------- */

static int load_one(void *arg, const char *key, const void *value, size_t len)
{
	struct dataset_set *set = arg;
	_cleanup_(entry_free_p) struct entry *entry = calloc(1, sizeof(*entry));
	int r = entry ? dataset_decode(value, len, &entry->dataset) : -ENOMEM;

	if (r < 0) {
		log_error("record not understood", "key=%s cause=%s", key, err_name(r));
		return r;
	}
	if (find_locked(set, entry->dataset.name)) {
		log_error("two datasets of one name", "key=%s name=%s", key, entry->dataset.name);
		return -EBADMSG;
	}
	insert_locked(set, TAKE(entry));
	return 0;
}

int dataset_set_new(
	const struct dataset_set_config *config, struct dataset_set **ret_set, struct err *e)
{
	struct dataset_set *set = calloc(1, sizeof(*set));
	int r;

	if (!set)
		return err_set(e, -ENOMEM, "out of memory");
	set->config = *config;
	list_init(&set->entries);
	pthread_mutex_init(&set->change, NULL);
	pthread_mutex_init(&set->lock, NULL);
	r = config->store->ops->scan(config->store, "dataset/", load_one, set);
	if (r < 0) {
		dataset_set_free(set);
		return err_set(e, r,
			"the master's store has a dataset that is not understood: %s: is it of a "
			"newer version?",
			err_str(r));
	}
	list_for_each (node, &set->entries) {
		const struct dataset *d = &list_entry(node, struct entry, link)->dataset;

		for (uint32_t i = 0; i < d->n_mounts; i++)
			tell_pins(set, &d->mounts[i].volume);
	}
	*ret_set = set;
	return 0;
}

void dataset_set_free(struct dataset_set *set)
{
	struct list *node;

	if (!set)
		return;
	while ((node = list_pop_front(&set->entries)))
		entry_free(list_entry(node, struct entry, link));
	pthread_mutex_destroy(&set->change);
	pthread_mutex_destroy(&set->lock);
	free(set);
}
