/*
 * A cache directory and the runtime directory that belongs to it.
 *
 *	CACHE/granary.cache	identity: a directory without it and with other contents is not
 *				ours and is refused
 *	CACHE/lock		held by the one supervisor of this cache
 *	CACHE/master/ tier/ images/ log/
 *
 *	RUN/ID/			sockets and state.json, gone when nothing runs; ID = hash of the
 *				canonical cache path
 *
 * RUN is /run/granary for root, $XDG_RUNTIME_DIR/granary for others, GRANARY_RUN_DIR when set.
 */
#pragma once

#include <limits.h>
#include <stdint.h>
#include "base/err.h"
#include "base/units.h"
#include "base/unix_socket.h"

#define CACHE_MIN_BYTES (128 * MiB) /* a smaller filesystem holds no cache */
#define CACHE_ID_LEN    12

struct cache_dir {
	char path[PATH_MAX]; /* canonical */
	char id[CACHE_ID_LEN + 1];
	char run[SOCKET_PATH_MAX - 24]; /* RUN/ID; leaves room for the names of sockets */
};

/* The default: ${XDG_CACHE_HOME:-$HOME/.cache}/granary. */
int cache_dir_default(char out[PATH_MAX], struct err *e) __must_check;

/*
 * Checks, and creates what is missing: the directory, its identity, its parts. `capacity` is what
 * the tier is to hold, 0: not said. -ENOTEMPTY foreign, -EPROTONOSUPPORT newer format,
 * -EACCES/-EROFS/-ENOTDIR, -ENOSPC too small, -EOPNOTSUPP on a filesystem that cannot hold images:
 * each with its line.
 */
int cache_dir_open(const char *path, uint64_t capacity, struct cache_dir *ret_cache,
	struct err *e) __must_check;

/* The directory above all runtime directories. */
int cache_dir_run_base(char out[PATH_MAX], struct err *e) __must_check;

/* Takes CACHE/lock; *ret_fd holds it until closed. -EBUSY: another supervisor has it. */
int cache_dir_lock(const struct cache_dir *cache, int *ret_fd, struct err *e) __must_check;

/* RUN/ID/name; always fits. */
const char *cache_dir_socket(
	const struct cache_dir *cache, const char *name, char out[SOCKET_PATH_MAX]);

/* Removes RUN/ID with all that is in it, but nothing that is mounted there. Only when nothing runs
 * any more. */
void cache_dir_remove_run(const char *run);
