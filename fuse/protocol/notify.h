/*
 * Word to the kernel that names and attributes are others now, sent by a process of its own.
 *
 * The kernel takes a directory's lock for such a message, and waits for it, deaf to SIGKILL, while
 * somebody holds it who waits for an answer of ours. A thread of the daemon that is killed then
 * would keep the whole process from ending until its successor answers, which is started when it
 * has ended. So the daemon only writes to a socket; who waits in the kernel is a child, which has
 * the connection and nothing else, and sends what it was given also after the daemon's death.
 *
 * Threads: one.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include "base/check.h"
#include "base/err.h"
#include "fuse/protocol/lowlevel.h"

struct notify {
	pid_t pid; /* 0: none */
	int fd;
	uint64_t sent;
	int status; /* of the last message */
	struct lowlevel lowlevel;
	/* Asked while it waits: the rest is not to be sent. NULL: never. */
	bool (*stopped)(void *arg);
	void *arg;
};

/* Starts the process. `dev_fd`: the connection. `notify` must not move until notify_end(). */
int notify_start(struct notify *notify, int dev_fd, bool (*stopped)(void *arg), void *arg,
	struct err *e) __must_check;
/* A name is another's, or nobody's. -ECANCELED: stopped; -EPIPE: the process is gone. */
int notify_entry(
	struct notify *notify, uint64_t parent, const char *name, uint32_t len) __must_check;
/* Attributes are others; `listing`: and the names of a directory. Likewise. */
int notify_inode(struct notify *notify, uint64_t node, bool listing) __must_check;
/* Waits until all was taken by the kernel. -ECANCELED: it is left to itself; -EPIPE: it was killed. */
int notify_end(struct notify *notify) __must_check;
