/*
 * One request of the FUSE protocol (linux/fuse.h): what is read of it without libfuse3, and what a
 * tree gets of it. Pure functions.
 *
 * The kernel is trusted to send whole requests, as libfuse3 trusts it. Offsets, sizes and names come
 * from programs that read the mount: they are checked.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <linux/fuse.h>
#include <sys/stat.h>
#include "base/check.h"

/* Node ids of the private mount: the root's, which every FUSE mount has, and extent N at N + 2. */
#define REQUEST_ROOT_NODE      1ull
#define REQUEST_EXTENT_NODE(n) ((uint64_t)(n) + 2)

/* READ, READDIR or READDIRPLUS. */
struct request {
	uint32_t opcode; /* enum fuse_opcode */
	uint64_t nodeid;
	struct {
		uint64_t offset;
		uint32_t size;
	} read;
};

/* enum fuse_opcode; 0 (which no request has) if the header is not whole. */
uint32_t request_opcode(const void *data, size_t len);

/* The unique of a request whose header is whole, else 0 (which no request has). */
uint64_t request_unique(const void *data, size_t len);
/* The same; also 0 when the request gets no reply. */
uint64_t request_unique_of_refused(const void *data, size_t len);

/* Of an INTERRUPT: the unique of the request that is to be given up. */
uint64_t request_interrupted(const void *data);

/* The thread that waits, as the namespace of who mounted numbers it; 0: none of there. */
uint32_t request_pid(const void *data, size_t len);

/* True for requests that would change something. */
bool request_is_write(uint32_t opcode);

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
	struct stat *ret_attr) __must_check;
