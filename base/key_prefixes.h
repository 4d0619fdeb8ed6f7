/*
 * The part of a source that a mount token is for: the objects whose keys begin with one of a few prefixes. What a peer
 * may see is decided by this alone, on the master (rows of object tables) and on workers (bytes).
 *
 * Plain values that borrow their texts. Threads: any.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "base/layout.h"

#define KEY_PREFIXES_MAX LAYOUT_SOURCES_MAX

struct key_prefix {
	const char *text; /* borrowed; no NUL at its end */
	uint32_t len;
};

struct key_prefixes {
	uint32_t n; /* 0: no object is in it */
	struct key_prefix all[KEY_PREFIXES_MAX];
};

bool key_prefixes_have(const struct key_prefixes *prefixes, const char *key, size_t len);
/* Sorts them and leaves out those that lie inside another. */
void key_prefixes_sort(struct key_prefixes *prefixes);
/* Tells sorted sets apart; never 0. */
uint64_t key_prefixes_hash(const struct key_prefixes *prefixes);
