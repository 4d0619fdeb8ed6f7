/*
 * The long arrays of an order feed: lists of samples, orders. They are in memory while all of them fit
 * the mount's share; else each has an unnamed file on the disk of the mount's images, mapped, so
 * that 10 million samples need no more of --memory than 1,000 do. Space on the disk is allocated at
 * once: a full disk is an error here, not a signal later.
 *
 * Threads: those of a space are the caller's to protect, their contents too.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include "base/check.h"

struct order_space {
	const char *directory; /* borrowed; NULL: memory only */
	uint64_t memory;       /* bytes of all arrays that are in memory */
	uint64_t disk;         /* and in files */
	uint64_t memory_used;
	uint64_t disk_used;
};

struct order_array {
	struct order_space *space; /* NULL: none */
	void *data;
	uint64_t bytes;
	bool in_file;
};

/* Of `n` zeroed items. -ENOMEM; -EDQUOT: more than the space has; or the error of the file. */
int order_array_new(struct order_space *space, uint64_t n, uint64_t size,
	struct order_array *ret_array) __must_check;
/* Of none, too. */
void order_array_release(struct order_array *array);
