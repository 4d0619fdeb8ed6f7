/*
 * Where to cut a range of keys of which a page is known: pure functions on keys, no I/O, no locks.
 *
 * Keys of a data set are a tree of short alphabets (digits, hex, letters). The bytes at which
 * neighbours of a page differ tell the alphabet; the successors of the last key in that tree, at
 * each depth, are the candidates:
 *
 *	last key img_000999, alphabet 0-9: img_001 ... img_009 | img_01 ... img_09 | img_1 ... img_9
 *
 * A cut in a wrong place costs one LIST with no news. Cuts are plain ASCII after whole characters,
 * because a server may refuse a start-after that is not UTF-8.
 */
#pragma once

#include "ufs/ufs_internal.h"

struct lister_key {
	uint32_t len;
	char bytes[LIMIT_KEY_BYTES];
};

int lister_key_cmp(const char *a, size_t a_len, const char *b, size_t b_len);
void lister_key_set(struct lister_key *key, const char *bytes, size_t len);

/* Bytes at which keys branch, in order. */
struct lister_alphabet {
	bool has[128];
	uint8_t chars[128];
	uint32_t n;
};

/* What one page teaches. `shared`: how many bytes the keys of its second half share. */
struct lister_lesson {
	bool has[128];
	uint32_t shared;
	bool slashes;
};
void lister_learn(const struct ufs_object *objects, uint32_t n, struct lister_lesson *ret_lesson);
void lister_alphabet_add(struct lister_alphabet *alphabet, const struct lister_lesson *lesson);

/* Candidates between `pos` and `high` (NULL: no end), both excluded, down to `depth`; in key
 * order by `i`. */
uint32_t lister_candidates(const struct lister_alphabet *alphabet, const struct lister_key *pos,
	const struct lister_key *high, uint32_t depth);
void lister_candidate(const struct lister_alphabet *alphabet, const struct lister_key *pos,
	const struct lister_key *high, uint32_t depth, uint32_t i, struct lister_key *ret_key);

/* A guess of how many keys lie in (pos, high], when the `n` from `first` to `pos` were seen. */
double lister_estimate(const struct lister_alphabet *alphabet, const char *first, size_t first_len,
	const struct lister_key *pos, const struct lister_key *high, uint32_t n);
