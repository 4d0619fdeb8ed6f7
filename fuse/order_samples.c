/* Lists of samples and their sequences. See order_samples.h. */
#include "fuse/order_samples.h"
#include "base/arena.h"
#include "base/layout.h"

#include <stdlib.h>
#include <string.h>

uint64_t order_samples_cost(uint64_t n)
{
	return sizeof(struct order_samples) + sizeof(struct order_sequence) +
	       n * (sizeof(struct order_sample) + 3 * sizeof(uint32_t));
}

struct order_samples *order_samples_new(uint32_t n, const uint8_t digest[SHA256_BYTES])
{
	uint64_t bytes = sizeof(struct order_samples) +
			 (uint64_t)n * (sizeof(struct order_sample) + sizeof(uint32_t));
	struct order_samples *list;

	if (!arena_take(ARENA_ORDERS, BUDGET_DEMAND, bytes))
		return NULL;
	list = calloc(1, sizeof(*list));
	if (!list) {
		arena_give(ARENA_ORDERS, bytes);
		return NULL;
	}
	list_init(&list->link);
	list_init(&list->sequences);
	list->refs = 1;
	list->bytes = bytes;
	list->n = n;
	memcpy(list->digest, digest, sizeof(list->digest));
	list->samples = calloc(max(n, 1u), sizeof(*list->samples));
	list->by_start = calloc(max(n, 1u), sizeof(*list->by_start));
	if (!list->samples || !list->by_start) {
		order_samples_unref(list);
		return NULL;
	}
	return list;
}

void order_samples_unref(struct order_samples *list)
{
	if (!list || --list->refs > 0)
		return;
	ensure(list_empty(&list->sequences));
	list_remove(&list->link);
	arena_give(ARENA_ORDERS, list->bytes);
	free(list->samples);
	free(list->by_start);
	free(list);
}

static int compare_starts(const void *a, const void *b, void *arg)
{
	const struct order_samples *list = arg;
	uint32_t x = *(const uint32_t *)a;
	uint32_t y = *(const uint32_t *)b;
	uint64_t x_start = list->samples[x].start;
	uint64_t y_start = list->samples[y].start;

	if (x_start != y_start)
		return x_start < y_start ? -1 : 1;
	return x < y ? -1 : x > y;
}

void order_samples_sort(struct order_samples *list)
{
	list->n_by_start = 0;
	for (uint32_t i = 0; i < list->n; i++)
		if (list->samples[i].length > 0)
			list->by_start[list->n_by_start++] = i;
	qsort_r(list->by_start, list->n_by_start, sizeof(*list->by_start), compare_starts, list);
}

bool order_sample_touches(const struct order_sample *sample, uint64_t offset, uint64_t length)
{
	return sample->start < offset + length && offset < sample->start + sample->length;
}

/* Of samples that overlap only the last one that begins before the range is looked at: enough for
 * files, and for parts of files that lie behind one another. */
uint32_t order_samples_find(const struct order_samples *list, uint64_t offset, uint64_t length)
{
	uint32_t low = 0;
	uint32_t high = list->n_by_start;

	while (low < high) {
		uint32_t middle = low + (high - low) / 2;

		if (list->samples[list->by_start[middle]].start < offset)
			low = middle + 1;
		else
			high = middle;
	}
	/* Several may begin at one place: to the first of them. */
	for (uint32_t i = 0;
		i < ORDER_TOUCHED && low > 0 &&
		order_sample_touches(&list->samples[list->by_start[low - 1]], offset, length);
		i++)
		low--;
	if (low < list->n_by_start &&
		order_sample_touches(&list->samples[list->by_start[low]], offset, length))
		return low;
	return list->n_by_start;
}

static struct order_sequence *sequence_new(struct order_samples *list, uint32_t n, bool mapped)
{
	uint64_t bytes =
		sizeof(struct order_sequence) + (mapped ? 2 * (uint64_t)n * sizeof(uint32_t) : 0);
	struct order_sequence *sequence;

	if (!arena_take(ARENA_ORDERS, BUDGET_DEMAND, bytes))
		return NULL;
	sequence = calloc(1, sizeof(*sequence));
	if (!sequence) {
		arena_give(ARENA_ORDERS, bytes);
		return NULL;
	}
	list->refs++;
	list_push_back(&list->sequences, &sequence->link);
	sequence->samples = list;
	sequence->refs = 1;
	sequence->bytes = bytes;
	sequence->n = n;
	if (!mapped)
		return sequence;
	sequence->order = calloc(max(n, 1u), sizeof(*sequence->order));
	sequence->by_sample = calloc(max(n, 1u), sizeof(*sequence->by_sample));
	if (!sequence->order || !sequence->by_sample) {
		order_sequence_unref(sequence);
		return NULL;
	}
	return sequence;
}

void order_sequence_unref(struct order_sequence *sequence)
{
	if (!sequence || --sequence->refs > 0)
		return;
	list_remove(&sequence->link);
	arena_give(ARENA_ORDERS, sequence->bytes);
	order_samples_unref(sequence->samples);
	free(sequence->order);
	free(sequence->by_sample);
	free(sequence);
}

static int compare_places(const void *a, const void *b, void *arg)
{
	const struct order_sequence *sequence = arg;
	uint32_t x = *(const uint32_t *)a;
	uint32_t y = *(const uint32_t *)b;
	uint32_t x_sample = sequence->order[x];
	uint32_t y_sample = sequence->order[y];

	if (x_sample != y_sample)
		return x_sample < y_sample ? -1 : 1;
	return x < y ? -1 : x > y;
}

struct order_sequence *order_sequence_listed(struct order_samples *list)
{
	list_for_each (node, &list->sequences) {
		struct order_sequence *sequence = list_entry(node, struct order_sequence, link);

		if (!sequence->order) {
			sequence->refs++;
			return sequence;
		}
	}
	return sequence_new(list, list->n, false);
}

struct order_sequence *order_sequence_of(
	struct order_samples *list, const uint32_t *numbers, uint32_t n)
{
	struct order_sequence *sequence = sequence_new(list, n, true);

	if (!sequence)
		return NULL;
	memcpy(sequence->order, numbers, n * sizeof(*numbers));
	for (uint32_t i = 0; i < n; i++)
		sequence->by_sample[i] = i;
	qsort_r(sequence->by_sample, n, sizeof(*sequence->by_sample), compare_places, sequence);
	return sequence;
}

uint32_t order_sequence_sample(const struct order_sequence *sequence, uint64_t place)
{
	ensure(place < sequence->n);
	return sequence->order ? sequence->order[place] : (uint32_t)place;
}

uint32_t order_sequence_place(const struct order_sequence *sequence, uint32_t sample)
{
	uint32_t low = 0;
	uint32_t high = sequence->n;

	if (!sequence->order)
		return sample;
	while (low < high) {
		uint32_t middle = low + (high - low) / 2;

		if (sequence->order[sequence->by_sample[middle]] < sample)
			low = middle + 1;
		else
			high = middle;
	}
	if (low < sequence->n && sequence->order[sequence->by_sample[low]] == sample)
		return sequence->by_sample[low];
	return ORDER_NOWHERE;
}
