/* Lists of samples and their sequences. See order_samples.h. */
#include "fuse/order/order_samples.h"
#include "base/arena.h"
#include "base/layout.h"

#include <errno.h>
#include <string.h>

#define DIGIT_BITS 16u
#define DIGITS     (1u << DIGIT_BITS)

typedef uint64_t key_fn(const void *arg, uint32_t item);

/* One pass of the sort, by the digit at `shift`. False: all have the same one. */
static bool sort_digit(const uint32_t *from, uint32_t *to, uint32_t n, key_fn *key, const void *arg,
	uint32_t shift, uint32_t *starts)
{
	uint32_t sum = 0;

	memset(starts, 0, DIGITS * sizeof(*starts));
	for (uint32_t i = 0; i < n; i++)
		starts[key(arg, from[i]) >> shift & (DIGITS - 1)]++;
	if (starts[key(arg, from[0]) >> shift & (DIGITS - 1)] == n)
		return false;
	for (uint32_t digit = 0; digit < DIGITS; digit++) {
		uint32_t here = starts[digit];

		starts[digit] = sum;
		sum += here;
	}
	for (uint32_t i = 0; i < n; i++)
		to[starts[key(arg, from[i]) >> shift & (DIGITS - 1)]++] = from[i];
	return true;
}

/* Radix sort, stable: qsort() takes memory that is not counted, or has no bound on its time. */
static int sort_by(
	struct order_space *space, uint32_t *items, uint32_t n, key_fn *key, const void *arg)
{
	struct order_array scratch = { 0 };
	uint32_t *starts;
	uint32_t *from = items;
	uint32_t i = 1;
	uint32_t *to;
	int r;

	while (i < n && key(arg, items[i - 1]) <= key(arg, items[i]))
		i++;
	if (i >= n)
		return 0;
	r = order_array_new(space, n, sizeof(*items), &scratch);
	if (r < 0)
		return r;
	to = scratch.data;
	starts = arena_calloc(ARENA_ORDERS, DIGITS, sizeof(*starts));
	for (uint32_t shift = 0; starts && shift < 64; shift += DIGIT_BITS)
		if (sort_digit(from, to, n, key, arg, shift, starts)) {
			uint32_t *sorted = to;

			to = from;
			from = sorted;
		}
	if (from != items)
		memcpy(items, from, n * sizeof(*items));
	r = starts ? 0 : -ENOMEM;
	arena_free(ARENA_ORDERS, starts, DIGITS * sizeof(*starts));
	order_array_release(&scratch);
	return r;
}

int order_samples_new(struct order_space *space, uint32_t n, const uint8_t digest[SHA256_BYTES],
	struct order_samples **ret_list)
{
	struct order_samples *list;
	int r;

	if (n > ORDER_SAMPLES_MAX)
		return -E2BIG;
	list = arena_calloc(ARENA_ORDERS, 1, sizeof(*list));
	if (!list)
		return -ENOMEM;
	list_init(&list->link);
	list_init(&list->sequences);
	list->refs = 1;
	list->n = n;
	memcpy(list->digest, digest, sizeof(list->digest));
	r = order_array_new(space, n, sizeof(*list->samples), &list->samples_array);
	if (r == 0)
		r = order_array_new(space, n, sizeof(*list->by_start), &list->by_start_array);
	if (r < 0) {
		order_samples_unref(list);
		return r;
	}
	list->samples = list->samples_array.data;
	list->by_start = list->by_start_array.data;
	*ret_list = list;
	return 0;
}

void order_samples_unref(struct order_samples *list)
{
	if (!list || --list->refs > 0)
		return;
	ensure(list_empty(&list->sequences));
	list_remove(&list->link);
	order_array_release(&list->samples_array);
	order_array_release(&list->by_start_array);
	arena_free(ARENA_ORDERS, list, sizeof(*list));
}

static uint64_t key_of_start(const void *arg, uint32_t number)
{
	const struct order_samples *list = arg;

	return list->samples[number].start / BLOCK_BYTES;
}

int order_samples_sort(struct order_samples *list)
{
	list->n_by_start = 0;
	for (uint32_t i = 0; i < list->n; i++)
		if (list->samples[i].length > 0)
			list->by_start[list->n_by_start++] = i;
	return sort_by(
		list->samples_array.space, list->by_start, list->n_by_start, key_of_start, list);
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

static struct order_sequence *sequence_new(struct order_samples *list, uint32_t n)
{
	struct order_sequence *sequence = arena_calloc(ARENA_ORDERS, 1, sizeof(*sequence));

	if (!sequence)
		return NULL;
	list->refs++;
	list_push_back(&list->sequences, &sequence->link);
	sequence->samples = list;
	sequence->refs = 1;
	sequence->n = n;
	return sequence;
}

void order_sequence_unref(struct order_sequence *sequence)
{
	if (!sequence || --sequence->refs > 0)
		return;
	list_remove(&sequence->link);
	order_samples_unref(sequence->samples);
	order_array_release(&sequence->order_array);
	order_array_release(&sequence->by_sample_array);
	arena_free(ARENA_ORDERS, sequence, sizeof(*sequence));
}

static uint64_t key_of_place(const void *arg, uint32_t place)
{
	const struct order_sequence *sequence = arg;

	return sequence->order[place];
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
	return sequence_new(list, list->n);
}

int order_sequence_of(struct order_samples *list, struct order_array *numbers, uint32_t n,
	struct order_sequence **ret_sequence)
{
	struct order_sequence *sequence = sequence_new(list, n);
	int r;

	if (!sequence)
		return -ENOMEM;
	sequence->order_array = *numbers;
	*numbers = (struct order_array){ 0 };
	sequence->order = sequence->order_array.data;
	r = order_array_new(sequence->order_array.space, n, sizeof(*sequence->by_sample),
		&sequence->by_sample_array);
	if (r == 0) {
		sequence->by_sample = sequence->by_sample_array.data;
		for (uint32_t i = 0; i < n; i++)
			sequence->by_sample[i] = i;
		r = sort_by(sequence->order_array.space, sequence->by_sample, n, key_of_place,
			sequence);
	}
	if (r < 0) {
		order_sequence_unref(sequence);
		return r;
	}
	*ret_sequence = sequence;
	return 0;
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
