/*
 * What `cachectl bench` measures: files of a mount, read and looked at by one thread and by several,
 * and beside them what this machine can do at all. Nothing is written, but for what a first read
 * brings into the cache.
 *
 * Lifetime: sets are made with _collect or _open and released; a pass lives for one call. Threads: each
 * pass makes and ends its own.
 */
#pragma once

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include "base/err.h"
#include "base/units.h"

#define BENCH_THREADS_MAX 256u
#define BENCH_BLOCK       MiB
#define BENCH_SMALL_FILES 2000u
#define BENCH_SMALL_BYTES (256 * MiB)
#define BENCH_LARGE_FILES 16u
#define BENCH_LARGE_BYTES (1 * GiB)
#define BENCH_LARGE_FROM  MiB /* a larger file is read for its rate, a smaller one for its count */

struct bench_file {
	char *path;
	uint64_t size; /* as much of it as is read */
	uint64_t from; /* of BENCH_BLOCKS and the like: where that begins */
	int fd;        /* open for blocks; -1 */
};

/* In the order in which they are taken. */
struct bench_set {
	struct bench_file *files;
	unsigned int n;
	uint64_t bytes;
};

void bench_set_release(struct bench_set *set);
int bench_set_add(struct bench_set *set, const char *path, uint64_t size) __must_check;

/*
 * Looks for files below `dir`, on its filesystem, until there are enough of both kinds, or the time is over.
 * *ret_cut: there were more. Order is by chance, always the same. -errno of `dir`, -ENOMEM.
 */
int bench_collect(const char *dir, uint64_t bytes_max, uint64_t ns, struct bench_set *small,
	struct bench_set *large, bool *ret_cut) __must_check;

/* Drops the kernel's pages of these files, as far as it lets go of them. */
void bench_drop(const struct bench_set *set);

/* ---- passes ---------------------------------------------------------------------------------- */

enum bench_op {
	BENCH_STAT,    /* stat(2) */
	BENCH_OPEN,    /* open(2), close(2) */
	BENCH_READ,    /* open, all of it, close */
	BENCH_BLOCKS,  /* pread of `block` bytes of an open file, one after the other */
	BENCH_SCATTER, /* the same, in an order by chance */
	BENCH_PARTS,   /* the same, and opened and closed each time, as a small file is */
};

struct bench_pass {
	enum bench_op op;
	const struct bench_set *set;
	unsigned int threads;
	uint64_t ns;    /* at most so long */
	bool once;      /* each file once at most; else again and again */
	uint64_t block; /* of BENCH_BLOCKS and what follows: at most BENCH_BLOCK */
};

struct bench_result {
	uint64_t operations; /* that went well */
	uint64_t bytes;
	uint64_t errors;
	uint64_t ns; /* it took */
	uint64_t p50_ns, p99_ns;
	unsigned int
		complete; /* files, from the first on, of which all was read: those of `once` */
	int error;        /* the first; 0 */
	char failed[PATH_MAX]; /* its file */
};

/* -EAGAIN: not all threads could be had, -ENOMEM. What cannot be read is counted in the result. */
int bench_run(const struct bench_pass *pass, struct bench_result *ret) __must_check;

double bench_rate(uint64_t count, uint64_t ns);

/* ---- what this machine can do ---------------------------------------------------------------- */

/* This program's own file, for names. -errno. */
int bench_local_open(struct bench_set *set) __must_check;
/*
 * Bytes in memory, open, as a file system has them: of `tier` (see below) read once, else of a file in
 * memory, which is copied in smaller pieces. -errno.
 */
int bench_memory_open(const struct bench_set *tier, struct bench_set *set) __must_check;
/*
 * Files of a tier, open, what of them is written in one piece; past the page cache where that can be had:
 * *ret_direct. The line of `e` says what is in the way: they belong to the worker's user.
 */
int bench_tier_open(
	const char *tier, struct bench_set *set, bool *ret_direct, struct err *e) __must_check;
