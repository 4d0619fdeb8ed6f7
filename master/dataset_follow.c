/* Datasets whose consistency is `follow`. See dataset.h. */
#include "master/dataset_internal.h"

#include <string.h>

/* ---- what a request says --------------------------------------------------------------------- */

static int take_interval(struct dataset *d, const json_t *value, struct err *e)
{
	if (json_is_null(value)) {
		d->interval_s = 0;
		return 0;
	}
	if (!json_is_integer(value) || json_integer_value(value) < (json_int_t)FOLLOW_LEAST_S ||
		json_integer_value(value) > (json_int_t)FOLLOW_MOST_S)
		return err_set(e, -EINVAL, "'interval_s' must be a number of seconds from %u to %u",
			FOLLOW_LEAST_S, FOLLOW_MOST_S);
	if (d->consistency != DATASET_FOLLOW)
		return err_set(e, -EINVAL,
			"an interval needs consistency 'follow': set the dataset's consistency");
	d->interval_s = (uint64_t)json_integer_value(value);
	return 0;
}

int dataset_take_consistency(struct dataset *d, const json_t *body, struct err *e)
{
	const json_t *value = json_object_get(body, "consistency");
	const json_t *interval = json_object_get(body, "interval_s");
	const char *text = json_string_value(value);

	if (json_is_null(value) || (text && strcmp(text, "pinned") == 0))
		d->consistency = DATASET_PINNED;
	else if (text && strcmp(text, "follow") == 0)
		d->consistency = DATASET_FOLLOW;
	else if (value)
		return err_set(e, -EINVAL, "'consistency' must be one of pinned, follow");
	if (d->consistency != DATASET_FOLLOW)
		d->interval_s = 0;
	return interval ? take_interval(d, interval, e) : 0;
}

/* ---- what is listed again -------------------------------------------------------------------- */

static bool follows(const struct dataset *d, uint32_t i)
{
	return dataset_follows(d, &d->mounts[i].volume) && dataset_is_first(d, i);
}

bool dataset_follows(const struct dataset *d, const struct volume_id *volume)
{
	return d->consistency == DATASET_FOLLOW && !dataset_shown(d, volume);
}

int dataset_set_follow(struct dataset_set *set, struct source_follow **ret_follows, uint32_t *ret_n)
{
	struct source_follow *found;
	uint32_t cap = 0;
	uint32_t n = 0;

	pthread_mutex_lock(&set->lock);
	list_for_each (node, &set->entries) {
		const struct dataset *d = &list_entry(node, struct dataset_entry, link)->dataset;

		cap += d->consistency == DATASET_FOLLOW ? d->n_mounts : 0;
	}
	found = calloc((size_t)cap + 1, sizeof(*found));
	list_for_each (node, &set->entries) {
		const struct dataset *d = &list_entry(node, struct dataset_entry, link)->dataset;

		for (uint32_t i = 0; found && i < d->n_mounts; i++)
			if (follows(d, i))
				found[n++] = (struct source_follow){ d->mounts[i].volume,
					(uint32_t)dataset_interval_s(d) };
	}
	pthread_mutex_unlock(&set->lock);
	if (!found)
		return -ENOMEM;
	*ret_follows = found;
	*ret_n = n;
	return 0;
}

uint64_t dataset_interval_s(const struct dataset *d)
{
	return d->interval_s ? d->interval_s : DATASET_INTERVAL_S;
}
