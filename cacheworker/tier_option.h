/*
 * The tiers of a worker as its command line gives them:
 *
 *	--tier DIR[,kind=auto|ram|nvme|ssd|hdd][,capacity=SIZE]
 *
 * once or several times. --capacity is that of the first.
 *
 * Threads: none; before the worker opens.
 */
#pragma once

#include <limits.h>
#include "base/err.h"
#include "base/option.h"
#include "tiers/tiers.h"

struct tier_options {
	struct tier_config configs[OPTION_LIST_USUAL];
	char paths[OPTION_LIST_USUAL][PATH_MAX]; /* of configs */
	unsigned int n;
	uint64_t ram; /* bytes of tiers in memory */
};

/* -EINVAL with its line: not an option, a directory twice, no capacity where one is needed. */
int tier_options_parse(struct tier_options *options, const struct option_list *given,
	uint64_t capacity, bool create, const char *remembered, struct err *e) __must_check;

/* The same of one of them alone, as far as it can be wrong alone: an option's `check`. */
int tier_option_check(const char *given, struct err *e) __must_check;

/* What is left of --memory without the tiers in memory. -EINVAL with its line: less than `least`. */
int tier_options_memory(const struct tier_options *options, uint64_t memory, uint64_t least,
	uint64_t *ret_rest, struct err *e) __must_check;

/* The directory next to which the worker keeps what it knows of generations: a disk's, if there is
 * one. */
const char *tier_options_home(const struct tier_options *options);
