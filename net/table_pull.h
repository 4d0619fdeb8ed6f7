/*
 * An object table from a master, or a worker, that is reached over TCP, where no descriptor goes
 * along: its file is read by FRAME_TABLE in pieces of 1 MiB, several at once, into a file of the
 * caller's. A lost connection costs the pieces that were in flight. What was received is checked when
 * the table is opened: each of its parts is named by a hash.
 *
 * Threads: any but a loop's; it blocks.
 */
#pragma once

#include "base/units.h"
#include "net/net.h"

#define TABLE_PULL_PIECES 8u         /* in flight at once, of LIMIT_PAYLOAD_BYTES */
#define TABLE_PULL_MAX    (64 * GiB) /* a larger file is refused */

struct table_pull {
	struct rpc_client *peer; /* borrowed */
	struct volume_id volume;
	uint64_t lineage;
	uint64_t generation;
	uint64_t patience_ns; /* for each piece, from when it is asked for */
	/* Begins a call instead of rpc_call(peer, call), or ends it by its on_done with -ECANCELED;
	 * NULL: rpc_call(). */
	void (*call)(void *arg, struct rpc_call *call);
	void *arg;
};

/*
 * Writes the whole table file to `fd`, which is empty. The peer's code and line when it has no such
 * table (-ESTALE, -ENXIO); -EBADMSG: pieces that do not fit each other; -ENOSPC and the like of the
 * file. On failure the file holds anything.
 */
int table_pull(const struct table_pull *pull, int fd, struct err *e) __must_check;

/*
 * A file of this process' own to pull into: without a name, in `dir`, or, when that is NULL or takes
 * none, in memory.
 */
int table_pull_file(const char *dir, int *ret_fd, struct err *e) __must_check;
