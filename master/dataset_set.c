/* The datasets of a master: found, stored, and the settings of their sources. See dataset.h. */
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/crash_point.h"
#include "base/log.h"
#include "master/dataset_internal.h"

#include <string.h>

static void entry_free(struct dataset_entry *entry)
{
	if (!entry)
		return;
	dataset_release(&entry->dataset);
	free(entry);
}
DEFINE_CLEANUP(struct dataset_entry *, entry_free);

void dataset_tell_workers(struct dataset_set *set)
{
	if (set->config.on_change)
		set->config.on_change(set->config.arg);
}

struct source_set *dataset_sources(struct dataset_set *set)
{
	return set->config.sources;
}

/* ---- finding --------------------------------------------------------------------------------- */

struct dataset_entry *dataset_find_locked(struct dataset_set *set, const char *name)
{
	list_for_each (node, &set->entries) {
		struct dataset_entry *entry = list_entry(node, struct dataset_entry, link);

		if (strcmp(entry->dataset.name, name) == 0)
			return entry;
	}
	return NULL;
}

static struct dataset_entry *find_uuid_locked(struct dataset_set *set, const char *uuid)
{
	list_for_each (node, &set->entries) {
		struct dataset_entry *entry = list_entry(node, struct dataset_entry, link);

		if (strcmp(entry->dataset.uuid, uuid) == 0)
			return entry;
	}
	return NULL;
}

static void insert_locked(struct dataset_set *set, struct dataset_entry *entry)
{
	struct list *before = &set->entries;

	list_for_each (node, &set->entries) {
		if (strcmp(list_entry(node, struct dataset_entry, link)->dataset.name,
			    entry->dataset.name) > 0) {
			before = node;
			break;
		}
	}
	list_push_back(before, &entry->link); /* before that node */
	set->n++;
}

static int copy_locked(
	const struct dataset_entry *entry, const char *what, struct dataset *ret, struct err *e)
{
	int r;

	if (!entry)
		return err_set(e, -ENOENT, "no dataset '%.80s': see `cachectl dataset list`", what);
	r = dataset_copy(&entry->dataset, ret);
	return r < 0 ? err_set(e, r, "out of memory") : 0;
}

int dataset_set_find(struct dataset_set *set, const char *name, struct dataset *ret, struct err *e)
{
	int r;

	pthread_mutex_lock(&set->lock);
	r = copy_locked(dataset_find_locked(set, name), name, ret, e);
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

int dataset_set_find_allowed(struct dataset_set *set, const char *name, const char *claims,
	struct dataset *ret, struct err *e)
{
	_cleanup_(dataset_release) struct dataset d = { 0 };
	char who[CLAIMS_FORM_BYTES];
	int r = dataset_set_find(set, name, &d, NULL);

	if (r < 0 && r != -ENOENT)
		return err_set(e, r, "out of memory");
	if (r == 0 && claims_match(d.allow, claims)) {
		*ret = d;
		d = (struct dataset){ 0 };
		return 0;
	}
	return err_set(e, -EPERM,
		"permission denied: no dataset '%.64s' that %s may use; ask an administrator to "
		"add %s "
		"with `cachectl dataset update %.64s --allow`",
		name, claims_caller(claims, who), who, name);
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
		r = dataset_copy(&list_entry(node, struct dataset_entry, link)->dataset, &all[n]);
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

int dataset_check_free(struct dataset_set *set, const char *name, struct err *e)
{
	bool taken;
	bool full;

	pthread_mutex_lock(&set->lock);
	taken = dataset_find_locked(set, name) != NULL;
	full = set->n >= DATASETS_MAX;
	pthread_mutex_unlock(&set->lock);
	if (taken)
		return err_set(e, -EEXIST, "dataset '%s' already exists: give another name", name);
	if (full)
		return err_set(e, -ENOSPC, "this master has %u datasets, which is the maximum",
			DATASETS_MAX);
	return 0;
}

/* ---- settings of its sources ----------------------------------------------------------------- */

static uint32_t add_pins(const struct dataset_generation *all, uint32_t n_all,
	const struct volume_id *volume, struct source_pin *pins, uint32_t n)
{
	for (uint32_t i = 0; i < n_all && n < GENERATIONS_PINNED; i++)
		if (volume_id_equal(&all[i].volume, volume))
			pins[n++] = (struct source_pin){ all[i].lineage, all[i].generation };
	return n;
}

void dataset_tell_pins(struct dataset_set *set, const struct volume_id *volume)
{
	struct source_pin pins[GENERATIONS_PINNED];
	uint32_t n = 0;

	pthread_mutex_lock(&set->lock);
	list_for_each (node, &set->entries) {
		const struct dataset *d = &list_entry(node, struct dataset_entry, link)->dataset;

		n = add_pins(d->pins, d->n_pins, volume, pins, n);
		n = add_pins(d->shown, d->n_shown, volume, pins, n);
	}
	pthread_mutex_unlock(&set->lock);
	if (source_set_pins(set->config.sources, volume, pins, n) < 0)
		log_debug("source not known", "pins=%u", n); /* nothing of it is kept */
}

static void tell_all_pins(struct dataset_set *set, const struct dataset *d)
{
	for (uint32_t i = 0; i < d->n_mounts; i++)
		if (dataset_is_first(d, i))
			dataset_tell_pins(set, &d->mounts[i].volume);
}

static uint32_t mounts_of(struct dataset_set *set, const struct dataset *d)
{
	struct source_view view;
	uint32_t n = 0;

	for (uint32_t i = 0; i < d->n_mounts; i++)
		if (source_set_view(set->config.sources, &d->mounts[i].volume, &view) == 0)
			n = max(n, view.mounts); /* a mount shows all of them */
	return n;
}

int dataset_check_unmounted(
	struct dataset_set *set, const struct dataset *d, const char *next, struct err *e)
{
	uint32_t n = mounts_of(set, d);

	if (n > 0)
		return err_set(e, -EBUSY,
			"dataset %s is mounted (by this name or another, mounts: %u): unmount it "
			"first, or %s",
			d->name, n, next);
	if (source_set_in_grace(set->config.sources))
		return err_set(e, -EBUSY,
			"the master started just now and does not know yet what is mounted: try "
			"again in %u s, or %s",
			(unsigned int)(GRACE_NS / CLOCK_SECOND), next);
	return 0;
}

/* ---- storing --------------------------------------------------------------------------------- */

/* Another dataset has it. */
static bool is_shared(
	struct dataset_set *set, const struct dataset *d, const struct volume_id *volume)
{
	bool shared = false;

	pthread_mutex_lock(&set->lock);
	list_for_each (node, &set->entries) {
		const struct dataset *o = &list_entry(node, struct dataset_entry, link)->dataset;

		shared |= strcmp(o->uuid, d->uuid) != 0 && dataset_has_volume(o, volume);
	}
	pthread_mutex_unlock(&set->lock);
	return shared;
}

/* What others said of the bytes of a source stays: by the end of a dataset that had them, too, and by a
 * new one that says nothing of them. */
static bool others_say(struct dataset_set *set, const struct dataset *d,
	const struct volume_id *volume, bool remove)
{
	bool is_new;

	pthread_mutex_lock(&set->lock);
	is_new = !find_uuid_locked(set, d->uuid);
	pthread_mutex_unlock(&set->lock);
	return (remove || (is_new && d->policy.parts == 0)) && is_shared(set, d, volume);
}

/* With `policy` also that of its sources, and at its end the default of those that no other dataset has: both
 * or none, whatever ends the master between them. */
static int store(
	struct dataset_set *set, const struct dataset *d, bool remove, bool policy, struct err *e)
{
	_cleanup_(buf_release) struct buf value = BUF_INIT(STORE_VALUE_BYTES);
	struct volume_id volumes[DATASET_MOUNTS_MAX];
	struct tier_policy all = { 0 };
	char key[DATASET_KEY_BYTES];
	uint32_t n = 0;
	int r = remove ? 0 : dataset_encode(d, &value);

	dataset_key(d->uuid, key);
	if (!remove)
		(void)policy_apply(&all, &d->policy); /* parts not set: the default */
	for (uint32_t i = 0; policy && i < d->n_mounts; i++)
		if (dataset_is_first(d, i) && !others_say(set, d, &d->mounts[i].volume, remove))
			volumes[n++] = d->mounts[i].volume;
	if (r == 0)
		r = source_set_policies(set->config.sources, volumes, n, &all,
			&(struct store_change){ key, remove ? NULL : value.data, value.len });
	if (r < 0)
		return err_set(e, r,
			"the master's store cannot write dataset %s: %s: check its disk", d->name,
			err_str(r));
	CRASH_POINT("dataset.stored");
	return 0;
}

int dataset_publish(
	struct dataset_set *set, struct dataset *d, bool policy, struct dataset *ret, struct err *e)
{
	struct dataset_entry *entry = calloc(1, sizeof(*entry));
	struct dataset_entry *old;
	struct dataset copy;
	int r;

	if (!entry || dataset_copy(d, &copy) < 0) {
		free(entry);
		return err_set(e, -ENOMEM, "out of memory");
	}
	r = store(set, d, false, policy, e);
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
	tell_all_pins(set, &copy);
	return 0;
}

int dataset_withdraw(struct dataset_set *set, const struct dataset *d, struct err *e)
{
	struct dataset_entry *entry;
	int r = store(set, d, true, true, e);

	if (r < 0)
		return r;
	pthread_mutex_lock(&set->lock);
	entry = find_uuid_locked(set, d->uuid);
	ensure(entry); /* changes come one at a time */
	list_remove(&entry->link);
	set->n--;
	pthread_mutex_unlock(&set->lock);
	entry_free(entry);
	tell_all_pins(set, d);
	return 0;
}

/* ---- the set --------------------------------------------------------------------------------- */

static int load_one(void *arg, const char *key, const void *value, size_t len)
{
	struct dataset_set *set = arg;
	_cleanup_(entry_free_p) struct dataset_entry *entry = calloc(1, sizeof(*entry));
	int r = entry ? dataset_decode(value, len, &entry->dataset) : -ENOMEM;

	if (r < 0) {
		log_error("invalid record", "key=%s cause=%s", key, err_name(r));
		return r;
	}
	if (dataset_find_locked(set, entry->dataset.name)) {
		log_error("two datasets have the same name", "key=%s name=%s", key,
			entry->dataset.name);
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
		return record_refuse(e, r, "a dataset");
	}
	list_for_each (node, &set->entries)
		tell_all_pins(set, &list_entry(node, struct dataset_entry, link)->dataset);
	*ret_set = set;
	return 0;
}

void dataset_set_free(struct dataset_set *set)
{
	struct list *node;

	if (!set)
		return;
	while ((node = list_pop_front(&set->entries)))
		entry_free(list_entry(node, struct dataset_entry, link));
	for (uint32_t i = 0; i < set->n_views; i++)
		free(set->views[i].subtree);
	pthread_mutex_destroy(&set->change);
	pthread_mutex_destroy(&set->lock);
	free(set);
}
