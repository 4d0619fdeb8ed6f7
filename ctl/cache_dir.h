/*
 * A cache directory and the runtime directory that belongs to it.
 *
 *	CACHE/granary.cache	identity: a directory without it and with other contents is not
 *				ours and is refused
 *	CACHE/lock		locked by the one keeper of this cache
 *	CACHE/master/ tier/ images/ log/
 *
 *	RUN/ID/			sockets and keeper.json, gone when nothing runs; ID = hash of the
 *				canonical cache path
 *
 * RUN is GRANARY_RUN_DIR when set; else /run/granary for root; for others the first that is theirs
 * of $XDG_RUNTIME_DIR/granary, /run/user/UID/granary and /tmp/granary-UID. A login without
 * XDG_RUNTIME_DIR finds what one with it has started.
 */
#pragma once

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include "base/err.h"
#include "base/units.h"
#include "base/unix_socket.h"

#define CACHE_MIN_BYTES (128 * MiB) /* a smaller filesystem holds no cache */
#define CACHE_MIN_FREE  (64 * MiB)  /* as tiers' TIER_CAPACITY_MIN: with less none is made */
#define CACHE_ID_LEN    12

struct cache_dir {
	char path[PATH_MAX]; /* canonical */
	char id[CACHE_ID_LEN + 1];
	char run[SOCKET_PATH_MAX - 24]; /* RUN/ID; leaves room for the names of sockets */
};

/* The default: ${XDG_CACHE_HOME:-$HOME/.cache}/granary; for root never in another user's home. */
int cache_dir_default(char out[PATH_MAX], struct err *e) __must_check;

/*
 * Checks, and creates what is missing: the directory, its identity, its parts. `capacity` is what
 * the tier is to hold, 0: not said. -ENOTEMPTY foreign, -EPROTONOSUPPORT newer format,
 * -EACCES/-EROFS/-ENOTDIR, -ENOSPC too small: each with its line.
 */
int cache_dir_open(const char *path, uint64_t capacity, struct cache_dir *ret_cache,
	struct err *e) __must_check;

/* A cache directory that exists, for asking its daemons. Creates and checks nothing; -ENOMEDIUM: not found. */
int cache_dir_find(const char *path, struct cache_dir *ret_cache, struct err *e) __must_check;

/* Is the directory `path` a cache (*ret_new false), or empty (true)? Writes nothing. Errors as
 * cache_dir_open(). */
int cache_dir_identify(const char *path, bool *ret_new, struct err *e) __must_check;

#define CACHE_RUN_BASES 3u

/*
 * The directories above runtime directories that this user may have, best first, *ret_n of them (0:
 * no place for sockets). They need not exist; those that do are his own and closed to others.
 */
void cache_dir_run_bases(char out[CACHE_RUN_BASES][PATH_MAX], unsigned int *ret_n);

/* The nearest directory at or above `path` that exists, canonical. False: its working directory is
 * gone. */
bool cache_dir_existing(const char *path, char out[PATH_MAX]);

/*
 * Does `path`, which need not exist, lie in the directory `dir` (canonical), or is it that
 * directory?
 */
bool cache_dir_path_below(const char *path, const char *dir);

/* May the kernel mount images that lie in this cache (the native engine)? -EOPNOTSUPP: not from
 * tmpfs. */
int cache_dir_check_images(const struct cache_dir *cache, struct err *e) __must_check;

/* Makes RUN/ID, private. -EPERM: what is there belongs to somebody else. */
int cache_dir_make_run(const struct cache_dir *cache, struct err *e) __must_check;

/* RUN/ID/name; always fits. */
const char *cache_dir_socket(
	const struct cache_dir *cache, const char *name, char out[SOCKET_PATH_MAX]);
