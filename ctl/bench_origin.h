/*
 * What an origin gives to this process: time to a first answer, and bytes a second over one connection
 * and over several. Reads objects, for a bounded time, and keeps nothing.
 *
 * Threads: one; blocks.
 */
#pragma once

#include "ctl/bench.h"
#include "ufs/ufs.h"

#define BENCH_ORIGIN_CONNECTIONS 16u

struct bench_origin {
	struct bench_result first;   /* GETs of 4 KiB, one after the other */
	struct bench_result one;     /* of 1 MiB or whole objects, over one connection */
	struct bench_result several; /* over BENCH_ORIGIN_CONNECTIONS */
};

/* `ns` for each of the three. A negative errno with a line. */
int bench_origin(const struct ufs_config *config, uint64_t ns, struct bench_origin *ret,
	struct err *e) __must_check;
