/*
 * Which objects of a source an operator means: those below a prefix of keys whose path one of some
 * globs matches. The path is `at`, which is where the prefix stands in a dataset, and what of the
 * key is behind the prefix.
 *
 * A value; the caller's. Threads: any while it is not changed.
 */
#pragma once

#include "base/err.h"
#include "base/limits.h"
#include "proto/preload.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct meant {
	char *paths[PRELOAD_PATHS_MAX];
	uint32_t n_paths; /* 0: all below `subtree` */
	char *subtree;    /* NULL or a prefix of keys that ends with '/' */
	size_t subtree_len;
	char *at; /* NULL or what stands before */
	size_t at_len;
};

/* What comes from the wire: too many, too long, or no patterns at all are -EINVAL, -ENOMEM. NULL
 * texts are empty. On failure nothing is to be released. */
int meant_init(struct meant *meant, char *const *paths, size_t n_paths, const char *subtree,
	const char *at) __must_check;
void meant_release(struct meant *meant);

/* Every object of the source? */
bool meant_is_all(const struct meant *meant);
bool meant_matches(const struct meant *meant, const char *key, size_t key_len);
