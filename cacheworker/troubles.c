/* The last failures. See troubles.h. */
#include "cacheworker/troubles.h"
#include "base/clock.h"

#include <string.h>

void troubles_init(struct troubles *troubles)
{
	memset(troubles->rows, 0, sizeof(troubles->rows));
	pthread_mutex_init(&troubles->lock, NULL);
}

void troubles_release(struct troubles *troubles)
{
	pthread_mutex_destroy(&troubles->lock);
}

static bool same_volume(const struct trouble *row, const struct volume_id *volume, uint64_t lineage)
{
	return row->at_ns != 0 && row->lineage == lineage && volume_id_equal(&row->volume, volume);
}

void troubles_note(struct troubles *troubles, const struct trouble *what)
{
	struct trouble *place = &troubles->rows[0];

	pthread_mutex_lock(&troubles->lock);
	for (uint32_t i = 0; i < TROUBLES_MAX; i++) {
		struct trouble *row = &troubles->rows[i];

		if (same_volume(row, &what->volume, what->lineage) && row->start == what->start) {
			place = row;
			break;
		}
		if (row->at_ns < place->at_ns) /* a free one is the oldest of all */
			place = row;
	}
	if (!what->remembered || place->start != what->start || place->status != what->status ||
		!same_volume(place, &what->volume, what->lineage))
		*place = *what;
	place->at_ns = clock_mono_ns();
	pthread_mutex_unlock(&troubles->lock);
}

bool troubles_find(struct troubles *troubles, const struct volume_id *volume, uint64_t lineage,
	uint64_t start, uint64_t length, struct trouble *ret_trouble)
{
	const struct trouble *newest = NULL;

	pthread_mutex_lock(&troubles->lock);
	for (uint32_t i = 0; i < TROUBLES_MAX; i++) {
		const struct trouble *row = &troubles->rows[i];

		if (same_volume(row, volume, lineage) && row->start < start + length &&
			start < row->start + row->length && (!newest || newest->at_ns < row->at_ns))
			newest = row;
	}
	if (newest)
		*ret_trouble = *newest;
	pthread_mutex_unlock(&troubles->lock);
	return newest != NULL;
}
