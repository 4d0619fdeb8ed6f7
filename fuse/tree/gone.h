/*
 * Files that a mount showed and shows no more, since their objects were replaced or removed: who has
 * one open goes on reading. A node id of a file with bytes means one version of one object for ever
 * (nodes.h), so what is written down here never becomes wrong, only unneeded.
 *
 * The file outlives a crash of its daemon, not one of the machine, which takes the mount with it.
 * Bounded: the last GONE_HALF files at least, twice as many at most; 48 bytes of memory each.
 *
 * Threads: any.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include "base/check.h"

#define GONE_HALF (1u << 18)

/* A record of the file, native byte order. */
struct gone_file {
	uint64_t node; /* 0: none */
	uint64_t size;
	int64_t mtime;
	uint32_t mtime_nsec;
	uint32_t mode;
	uint32_t uid;
	uint32_t gid;
};

struct gone;

/* `half`: GONE_HALF; less only in tests. `fresh`: of a new mount. -ENOMEM, or an error of the disk. */
int gone_open(const char *path, bool fresh, uint32_t half, struct gone **ret_gone) __must_check;
void gone_free(struct gone *gone); /* NULL is allowed; the file stays */

/* It is in the file when this returns. -ENOMEM, or an error of the disk. */
int gone_add(struct gone *gone, const struct gone_file *file) __must_check;
/* -ESTALE: not known (any more). */
int gone_find(struct gone *gone, uint64_t node, struct gone_file *ret) __must_check;
uint64_t gone_count(struct gone *gone);
