/*
 * The messages between a mount's daemon and the keeper, over a SOCK_SEQPACKET socket: one request,
 * one answer, of a fixed size each, with descriptors beside them. Both ends are of one machine, and
 * may be of two versions: the magic says which. See mounter.h.
 */
#pragma once

#include <limits.h>
#include <stdint.h>
#include "base/err.h"
#include "base/limits.h"
#include "mount/mounter.h"

#define MOUNTER_MAGIC       0x4A713002u /* the last digits: the version */
#define MOUNTER_FDS_MAX     64u         /* of one message */
#define MOUNTER_LABEL_BYTES 256u

/*	op		descriptors		what the members are
 *	HELLO		-			answer.flags: MOUNTER_MAY_*
 *	PROBE		-			path: where images are to lie; "": of loop devices
 *	MOUNT_FUSE	connection		source: "" for none; answer: mount, dev
 *	LOCAL		devices, 1 to 64	index: of each; for the next MOUNT_IMAGE; MOUNTER_FIRST
 *	MOUNT_IMAGE	[FUSE mount]		path, source: "" for the path, number: devices, local: how many came before,
 *						MOUNTER_DIRECTIO; answer: mount, dev, number
 *	MOUNT_LOOP	FUSE mount		path: its file, source; answer: mount, dev, number
 *	ATTACH		mount, mount point	path, key, point_dev, fuse_dev, MOUNTER_REPLACE
 *	SHARE		mount point		path, key, MOUNTER_REPLACE
 *	SWITCH		[mount]			point_dev: the new one, fuse_dev: the old one; without a mount: ends one that was begun
 *	ANY_POINT	-			-
 *	HAND		connection		fuse_dev: of what is attached already; 0: nothing
 *	CONNECTION	-			fuse_dev, number: of background requests, wanted, or MOUNTER_READ_AHEAD; answer.number
 *	NEWER		-			answer.text: why nothing came of it the last time
 */
enum mounter_op {
	MOUNTER_HELLO,
	MOUNTER_PROBE,
	MOUNTER_MOUNT_FUSE =
		3, /* the numbers between were those of requests that other ones do now */
	MOUNTER_LOCAL,
	MOUNTER_MOUNT_IMAGE,
	MOUNTER_MOUNT_LOOP,
	MOUNTER_ATTACH,
	MOUNTER_SHARE,
	MOUNTER_SWITCH,
	MOUNTER_ANY_POINT = 13,
	MOUNTER_HAND = 16,
	MOUNTER_CONNECTION = 18,
	MOUNTER_NEWER = 20,
	MOUNTER_OPS,
};

#define MOUNTER_REPLACE     1u
#define MOUNTER_DIRECTIO    4u
#define MOUNTER_MAY_MOUNT   8u
#define MOUNTER_MAY_BENEATH 16u
#define MOUNTER_FIRST       32u /* forget those of an image that was never mounted */
#define MOUNTER_READ_AHEAD  64u

struct mounter_request {
	uint32_t magic;
	uint32_t op; /* enum mounter_op */
	uint32_t serial;
	uint32_t flags;
	uint32_t number;
	uint32_t local;
	uint32_t n_fds;
	uint64_t point_dev;
	uint64_t fuse_dev;
	char path[PATH_MAX];
	char label[MOUNTER_LABEL_BYTES]; /* kernel_label(); "": none */
	union {
		char source[LIMIT_URL_BYTES];
		char key[MOUNTER_KEY_BYTES];
		uint32_t index[MOUNTER_FDS_MAX];
	};
};

struct mounter_answer {
	uint32_t magic;
	uint32_t serial; /* 0: the keeper is another one than before */
	int32_t code;
	uint32_t flags;
	uint32_t number;
	uint32_t n_fds; /* 0 or 1 */
	uint64_t dev;
	char text[ERR_TEXT_MAX];
};

/*
 * One message. `fds` stay the caller's. Never blocks for long: -EAGAIN when the other side does not
 * take what came before.
 */
int mounter_send(
	int socket, const void *message, size_t size, const int *fds, uint32_t n_fds) __must_check;
/*
 * One message of exactly `size` bytes, if there is one (-EAGAIN). The descriptors are the caller's,
 * closed on exec. -ENODATA: the other side is gone. -EBADMSG: of another size, or with more
 * descriptors than fit; it is taken, and they are closed.
 */
int mounter_receive(int socket, void *message, size_t size, int fds[MOUNTER_FDS_MAX],
	uint32_t *ret_n_fds) __must_check;
/* That a request is what its op says: 0 or -EBADMSG, with a line. Its strings end. */
int mounter_check(
	const struct mounter_request *request, uint32_t n_fds, struct err *e) __must_check;
