/*
 * Object tables cut to the part of a source that a token is for (catalog.h, table_cut()): each is made once, when the
 * first token of the part asks for it, and kept as a file without a name until others need its place.
 *
 * Threads: any; making one blocks on the disk, and the others that are to be made wait for it.
 */
#pragma once

#include <pthread.h>
#include "catalog/catalog.h"

#define CUTS_MAX 64u /* that are kept; a descriptor each */

struct cut {
	struct generation_id of; /* the generation that it was cut from */
	uint64_t part;           /* key_prefixes_hash() */
	uint64_t used;           /* when, by cuts.clock */
	uint8_t hash[SHA256_BYTES];
	int fd; /* read-only */
};

struct cuts {
	const char *dir; /* borrowed */
	pthread_mutex_t lock;
	pthread_mutex_t making; /* held over I/O; before `lock` */
	struct cut all[CUTS_MAX];
	uint32_t n;
	uint64_t clock;
};

void cuts_init(struct cuts *cuts, const char *dir);
void cuts_release(struct cuts *cuts);

/*
 * The table of `of`, whose file `whole` is (borrowed), cut to `part`. *ret_cut is a copy with a descriptor of the
 * caller's. -ENOMEM, or of the disk, with a line.
 */
int cuts_get(struct cuts *cuts, const struct generation_id *of, int whole,
	const struct key_prefixes *part, struct cut *ret_cut, struct err *e) __must_check;
