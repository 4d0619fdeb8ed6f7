/*
 * libfuse3's low-level session over a descriptor of its user: the library decodes requests and
 * encodes replies and notifications, its user reads and writes them. The library starts no threads
 * and installs no signal handlers here.
 *
 * Threads: fuse_session_process_buf() and replies, any; the rest, one.
 */
#pragma once

#define FUSE_USE_VERSION 312

#include <fuse3/fuse_lowlevel.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/uio.h>
#include "base/check.h"

struct lowlevel {
	struct fuse_session *session; /* NULL: none */
	/* Writes one reply or notification, whose iov[0] is its struct fuse_out_header. */
	void (*send)(struct lowlevel *l, struct iovec *iov, int n);
	bool resuming;
};

/*
 * The library's calls get `l` as their user data; it must not move. `send` is set before.
 * A negative errno: out of memory or descriptors.
 */
int lowlevel_init(struct lowlevel *l, const struct fuse_lowlevel_ops *ops) __must_check;
/*
 * For a connection whose INIT was answered by a predecessor: the library gets an INIT of protocol
 * 7.`minor` that offers everything. Its reply is discarded.
 */
void lowlevel_resume(struct lowlevel *l, uint32_t minor);
void lowlevel_release(struct lowlevel *l); /* harmless without a session */
