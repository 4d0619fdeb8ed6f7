/* FUSE requests. See request.h. */
#include "mount/request.h"
#include "base/layout.h"
#include "base/limits.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>

/* Zeroes if it is not whole. */
static struct fuse_in_header head_of(const void *data, size_t len)
{
	struct fuse_in_header head = { 0 };

	if (len >= sizeof(head))
		memcpy(&head, data, sizeof(head));
	return head;
}

uint32_t request_opcode(const void *data, size_t len)
{
	return head_of(data, len).opcode;
}

uint64_t request_unique(const void *data, size_t len)
{
	return head_of(data, len).unique;
}

uint32_t request_pid(const void *data, size_t len)
{
	return head_of(data, len).pid;
}

/* Requests that get no answer. */
static bool is_oneway(uint32_t opcode)
{
	return opcode == FUSE_FORGET || opcode == FUSE_BATCH_FORGET || opcode == FUSE_INTERRUPT;
}

uint64_t request_unique_of_refused(const void *data, size_t len)
{
	const struct fuse_in_header head = head_of(data, len);

	return is_oneway(head.opcode) ? 0 : head.unique;
}

uint64_t request_interrupted(const void *data)
{
	struct fuse_interrupt_in in;

	memcpy(&in, (const char *)data + sizeof(struct fuse_in_header), sizeof(in));
	return in.unique;
}

bool request_is_write(uint32_t opcode)
{
	switch (opcode) {
	case FUSE_SETATTR:
	case FUSE_SYMLINK:
	case FUSE_MKNOD:
	case FUSE_MKDIR:
	case FUSE_UNLINK:
	case FUSE_RMDIR:
	case FUSE_RENAME:
	case FUSE_RENAME2:
	case FUSE_LINK:
	case FUSE_WRITE:
	case FUSE_CREATE:
	case FUSE_SETXATTR:
	case FUSE_REMOVEXATTR:
	case FUSE_FALLOCATE:
	case FUSE_COPY_FILE_RANGE:
		return true;
	default:
		return false;
	}
}

int request_extent_of_name(const char *name, uint32_t extents, uint32_t *ret_extent)
{
	uint32_t n = 0;

	if (name[0] == '\0' || (name[0] == '0' && name[1] != '\0'))
		return -ENOENT;
	for (const char *c = name; *c; c++) {
		if (*c < '0' || *c > '9' || c - name > 8)
			return -ENOENT;
		n = n * 10 + (uint32_t)(*c - '0');
	}
	if (n >= extents)
		return -ENOENT;
	*ret_extent = n;
	return 0;
}

int request_volume_range(
	const struct request *read, uint64_t extent_bytes, uint32_t extents, uint64_t *ret_offset)
{
	uint64_t offset = read->read.offset;
	uint32_t size = read->read.size;

	if (read->nodeid < REQUEST_EXTENT_NODE(0) || read->nodeid >= REQUEST_EXTENT_NODE(extents))
		return -EINVAL;
	if (size == 0 || size > LIMIT_PAYLOAD_BYTES || (offset | size) % BLOCK_BYTES != 0)
		return -EINVAL;
	if (offset >= extent_bytes || size > extent_bytes - offset)
		return -EINVAL;
	*ret_offset = (read->nodeid - REQUEST_EXTENT_NODE(0)) * extent_bytes + offset;
	return 0;
}

int request_attr(uint64_t nodeid, uint64_t extent_bytes, uint32_t extents, struct stat *ret_attr)
{
	struct stat attr = { .st_ino = nodeid, .st_blksize = BLOCK_BYTES };

	if (nodeid == REQUEST_ROOT_NODE) {
		attr.st_mode = S_IFDIR | 0500;
		attr.st_nlink = 2;
	} else if (nodeid >= REQUEST_EXTENT_NODE(0) && nodeid < REQUEST_EXTENT_NODE(extents)) {
		attr.st_mode = S_IFREG | 0400;
		attr.st_nlink = 1;
		attr.st_size = (off_t)extent_bytes;
		attr.st_blocks = (blkcnt_t)(extent_bytes / 512);
	} else {
		return -ENOENT;
	}
	*ret_attr = attr;
	return 0;
}
