/*
 * What an order is made of: the samples that jobs have registered, as places in the volume, and the
 * sequences in which they are read. The ranks of a job register the same list: it is there once.
 *
 * References are counted. Threads: a list is filled by one thread; once it is whole it does not
 * change, as sequences do not; the counts are the caller's to protect.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include "base/hash.h"
#include "base/list.h"
#include "fuse/order/order_array.h"

#define ORDER_NOWHERE     UINT32_MAX
#define ORDER_SAMPLES_MAX (1u << 24) /* of a list, and places of an order */
/* Samples that one READ may touch; of a list that names the same bytes more often, the rest are not
 * looked at: a reader waits meanwhile. */
#define ORDER_TOUCHED 4096u

struct order_sample {
	uint64_t start;  /* in the volume, as the next a multiple of BLOCK_BYTES */
	uint64_t length; /* 0: empty, or no such file */
};

struct order_samples {
	struct list link;      /* of all lists */
	struct list sequences; /* of it; owned by their own references */
	uint32_t refs;
	uint8_t digest[SHA256_BYTES]; /* of its text */
	uint32_t n;
	uint32_t unknown; /* files that are not there */
	uint32_t n_by_start;
	struct order_sample *samples;
	uint32_t *by_start; /* numbers of those with bytes, by their start */
	struct order_array samples_array;
	struct order_array by_start_array;
};

/* Of `n` empty samples, to be filled. Errors of order_array_new(), and -E2BIG. */
int order_samples_new(struct order_space *space, uint32_t n, const uint8_t digest[SHA256_BYTES],
	struct order_samples **ret_list) __must_check;
/* NULL is allowed. */
void order_samples_unref(struct order_samples *list);
/* The samples are known: may be searched from now on. Errors of order_array_new(). */
int order_samples_sort(struct order_samples *list) __must_check;

/* The first of by_start[] that touches [offset, offset + length); n_by_start: none does. Those that
 * follow may. */
uint32_t order_samples_find(const struct order_samples *list, uint64_t offset, uint64_t length);
bool order_sample_touches(const struct order_sample *sample, uint64_t offset, uint64_t length);

struct order_sequence {
	struct list link; /* samples->sequences */
	struct order_samples *samples;
	uint32_t refs;
	uint32_t n;          /* places */
	uint32_t *order;     /* place -> sample; NULL: as they are listed */
	uint32_t *by_sample; /* the places, by their samples, first places first */
	struct order_array order_array;
	struct order_array by_sample_array;
};

/* As listed; there is one. NULL without memory. */
struct order_sequence *order_sequence_listed(struct order_samples *list);
/* Of a job's own numbers, each below samples->n: the first n of an array of uint32_t, which is taken. Errors
 * of order_array_new(). */
int order_sequence_of(struct order_samples *list, struct order_array *numbers, uint32_t n,
	struct order_sequence **ret_sequence) __must_check;
void order_sequence_unref(struct order_sequence *sequence); /* NULL is allowed */

uint32_t order_sequence_sample(const struct order_sequence *sequence, uint64_t place);
/* The first place of a sample, or ORDER_NOWHERE. */
uint32_t order_sequence_place(const struct order_sequence *sequence, uint32_t sample);
