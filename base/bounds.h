/*
 * What a process may have of everything that is counted: each with its maximum, what is in use and
 * the most that was. Memory is base/arena.h's. `cachectl status` and /metrics show them.
 *
 * Descriptors are shared out: of what RLIMIT_NOFILE allows, chunk files, connections and sockets to
 * origins have a quarter each; the rest is for files, libraries and what passes by.
 *
 * Threads: any.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include "base/check.h"
#include "base/err.h"

#define BOUNDS(X)                                                      \
	X(THREADS, "threads", "threads that loops and pools may have") \
	X(JOBS, "jobs", "jobs that wait for a thread")                 \
	X(CONNECTIONS, "connections", "connections to this process")   \
	X(REQUESTS, "requests", "requests of connections in flight")   \
	X(CHUNK_FILES, "chunk_files", "descriptors of chunk files")

enum bound {
#define BOUND_ENUM(bound, name, help) BOUND_##bound,
	BOUNDS(BOUND_ENUM)
#undef BOUND_ENUM
		N_BOUNDS,
};

struct bound_use {
	const char *name;
	uint64_t used;
	uint64_t peak;
	uint64_t max; /* 0: none is known */
};

/* Several parts of a process may add to one maximum. */
void bound_raise_max(enum bound bound, uint64_t by);
void bound_add(enum bound bound, uint64_t n);
/* The same, but not past `max`. */
bool bound_take(enum bound bound, uint64_t n, uint64_t max) __must_check;
void bound_sub(enum bound bound, uint64_t n);
uint64_t bound_used(enum bound bound);
void bound_use(enum bound bound, struct bound_use *ret_use);

/* A quarter of the descriptors that this process may have, at least `least`, at most `most`. */
uint32_t bounds_descriptor_share(uint32_t least, uint32_t most);
/* The same for connections to it: three quarters, once bounds_mostly_connections() was called. */
uint32_t bounds_connection_share(uint32_t least, uint32_t most);
/* This process has few files of its own and many that talk to it. Also raises the soft limit of
 * descriptors to what LIMIT_CONNS needs, as far as the hard one lets it. Before the first server. */
void bounds_mostly_connections(void);
/* -EMFILE with a line when the process may have too few to work. */
int bounds_check_descriptors(struct err *e) __must_check;

/*
 * Raises the soft limit of descriptors to what a daemon has a use for, as far as the hard one lets
 * it: the soft one is low for programs that use select(2). What is started later inherits it.
 */
void bounds_raise_descriptors(void);

/* Counted by the kernel: the names are "descriptors", "maps", "all_threads". Reads /proc. */
void bounds_descriptors(struct bound_use *ret_use);
void bounds_maps(struct bound_use *ret_use);
void bounds_threads(struct bound_use *ret_use);
