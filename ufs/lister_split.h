/*
 * Where to cut a range of keys of which a page is known: pure functions on keys, no I/O, no locks.
 *
 * Keys of a data set are a tree of short alphabets (digits, hex, letters, ideographs). The
 * characters at which neighbours of a page differ tell the alphabet. Around the last key the tree
 * has levels, each with the siblings that come after it:
 *
 *	last key img_000999, alphabet 0-9: img_001 ... img_009 | img_01 ... img_09 | img_1 ... img_9
 *
 * How many keys lie below one sibling is seen on the page for the lowest level and grows by the
 * size of the alphabet from level to level. The keys of a level are cut into parts of a little less
 * than a page, so that one LIST is the whole of a part, by up to two more characters.
 *
 * A cut in a wrong place costs one LIST with no news. Cuts are whole characters of UTF-8, because a
 * server may refuse a start-after that is none; where a key is not UTF-8, nothing is cut below.
 */
#pragma once

#include "ufs/ufs_internal.h"

#define LISTER_FULL    0.85 /* of a page: what a part should hold */
#define LISTER_SYMBOLS 256u

struct lister_key {
	uint32_t len;
	char bytes[LIMIT_KEY_BYTES];
};

int lister_key_cmp(const char *a, size_t a_len, const char *b, size_t b_len);
void lister_key_set(struct lister_key *key, const char *bytes, size_t len);

/* One character. */
struct lister_symbol {
	uint8_t len; /* 1..4 */
	char bytes[4];
};

/* Characters at which keys branch, in order; those beyond the maximum are not kept. */
struct lister_alphabet {
	uint32_t n;
	struct lister_symbol symbols[LISTER_SYMBOLS];
};

/* What one page teaches. */
struct lister_lesson {
	struct lister_alphabet alphabet;
	uint32_t shared;  /* bytes that the keys of its second half share, whole characters */
	double keys;      /* of one sibling at that depth */
	uint32_t slashes; /* of the last key */
};
void lister_learn(const struct ufs_object *objects, uint32_t n, struct lister_lesson *ret_lesson);
void lister_alphabet_add(struct lister_alphabet *alphabet, const struct lister_alphabet *more);

/* A range that is to be cut. */
struct lister_spot {
	const struct lister_key *pos;  /* listed up to and with it: the last key of a page */
	const struct lister_key *high; /* up to and with it; NULL: no end */
	uint32_t floor; /* no key is expected that differs from pos before this byte */
	uint32_t depth; /* `shared` and `keys` of the page's lesson */
	double keys;
	uint32_t page_n; /* keys of the page */
	bool even;       /* what is expected up to high is credible: cut it evenly */
};

/* Makes a cut look like a last key: as long as one whose page was cut at `depth`. */
void lister_pad(const struct lister_alphabet *alphabet, uint32_t depth, struct lister_key *key);

/* A guess of how many keys lie in (pos, high]. */
double lister_estimate(const struct lister_alphabet *alphabet, const struct lister_spot *spot);
/* Up to `want` cuts between pos and high, both excluded, in no order. */
uint32_t lister_cuts(const struct lister_alphabet *alphabet, const struct lister_spot *spot,
	uint32_t want, struct lister_key *ret_cuts);
