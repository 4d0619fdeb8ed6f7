/*
 * One request of the FUSE protocol (linux/fuse.h), taken apart and checked: pure functions on
 * bytes.
 *
 * The kernel is trusted to be the kernel, but nothing here believes a length, an offset or a name
 * that was not checked.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <linux/fuse.h>
#include "base/check.h"

/* Node ids of the private mount: the root's, which every FUSE mount has, and extent N at N + 2. */
#define REQUEST_ROOT_NODE      1ull
#define REQUEST_EXTENT_NODE(n) ((uint64_t)(n) + 2)

struct request {
	uint32_t opcode; /* enum fuse_opcode */
	uint64_t unique;
	uint64_t nodeid;
	union {
		struct fuse_init_in init; /* the fields of 7.31 and, when sent, flags2 */
		const char *name;         /* LOOKUP: inside the bytes given, NUL-terminated */
		struct {
			uint64_t offset;
			uint32_t size;
		} read; /* READ, READDIR, READDIRPLUS */
		struct {
			const void *nodes; /* NULL: the request's own */
			uint64_t lookups;  /* of that */
			uint32_t count;
		} forget;             /* FORGET, BATCH_FORGET: see request_forgotten() */
		uint64_t interrupted; /* INTERRUPT: unique of what is not wanted any more */
	};
};

/*
 * Takes apart the `len` bytes that one read(2) of /dev/fuse gave. -EPROTO: not a whole request;
 * *ret is not written then, but request_unique() may tell whom to answer.
 */
int request_parse(const void *data, size_t len, struct request *ret) __must_check;

/* The unique of a request whose header is whole, else 0 (which no request has). */
uint64_t request_unique(const void *data, size_t len);
/* The same of what request_parse() refused; also 0 when nobody waits for an answer. */
uint64_t request_unique_of_refused(const void *data, size_t len);

/* The i-th node, i < req->forget.count, that the kernel forgets, and the lookups of it. */
struct fuse_forget_one request_forgotten(const struct request *req, uint32_t i);

/* The thread that waits, as the namespace of who mounted numbers it; 0: none of there. */
uint32_t request_pid(const void *data, size_t len);

/* True for requests that get no answer. */
bool request_is_oneway(uint32_t opcode);

/* True for requests that would change something. */
bool request_is_write(uint32_t opcode);

/* Pages of so many bytes in the longest READ. */
uint16_t request_read_pages(long page_bytes);

/*
 * What the kernel offered, and how much is to be in flight, to our answer to INIT. `wanted`: flags
 * beside those that every session asks for. -EPROTO: a kernel older than 7.31.
 */
int request_answer_init(const struct fuse_init_in *in, uint64_t wanted, uint16_t max_background,
	struct fuse_init_out *ret_out) __must_check;

/* "0", "17": the number of an extent below `extents`; -ENOENT otherwise. */
int request_extent_of_name(const char *name, uint32_t extents, uint32_t *ret_extent) __must_check;

/*
 * A READ of the file of one extent to a range of the volume. -EINVAL: not an extent's file, not in
 * whole blocks, longer than LIMIT_PAYLOAD_BYTES or past the extent's end: nothing EROFS sends.
 */
int request_volume_range(const struct request *read, uint64_t extent_bytes, uint32_t extents,
	uint64_t *ret_offset) __must_check;

/* Attributes of the root or of an extent; -ENOENT for other nodes. */
int request_attr(uint64_t nodeid, uint64_t extent_bytes, uint32_t extents,
	struct fuse_attr *ret_attr) __must_check;
