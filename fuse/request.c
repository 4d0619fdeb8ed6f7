/* FUSE requests, taken apart. See request.h. */
#include "fuse/request.h"
#include "base/layout.h"
#include "base/limits.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define FUSE_MINOR_LEAST 31 /* max_pages, and the fields of INIT that we fill */
#define WRITE_BYTES \
	4096u /* nothing is written; keeps the kernel's demand on a read's buffer at 8 KiB */

/*
 * Asked for when offered:
 *	ASYNC_READ, ASYNC_DIO, PARALLEL_DIROPS	many READs of one file in flight
 *	MAX_PAGES				READs of 1 MiB
 *	EXPLICIT_INVAL_DATA			the kernel drops nothing by itself
 *	NO_OPEN_SUPPORT, INIT_EXT		as measured with
 */
#define INIT_FLAGS                                                                  \
	(FUSE_ASYNC_READ | FUSE_ASYNC_DIO | FUSE_PARALLEL_DIROPS | FUSE_MAX_PAGES | \
		FUSE_EXPLICIT_INVAL_DATA | FUSE_NO_OPEN_SUPPORT | FUSE_INIT_EXT)

/* INIT of 7.31 ended after `flags`. */
#define INIT_BYTES_LEAST 16u

uint64_t request_unique(const void *data, size_t len)
{
	struct fuse_in_header head;

	if (len < sizeof(head))
		return 0;
	memcpy(&head, data, sizeof(head));
	return head.unique;
}

struct fuse_forget_one request_forgotten(const struct request *req, uint32_t i)
{
	struct fuse_forget_one one = { .nodeid = req->nodeid, .nlookup = req->forget.lookups };

	ensure(i < req->forget.count);
	if (req->forget.nodes)
		memcpy(&one, (const char *)req->forget.nodes + i * sizeof(one), sizeof(one));
	return one;
}

uint32_t request_pid(const void *data, size_t len)
{
	struct fuse_in_header head;

	if (len < sizeof(head))
		return 0;
	memcpy(&head, data, sizeof(head));
	return head.pid;
}

uint64_t request_unique_of_refused(const void *data, size_t len)
{
	struct fuse_in_header head;

	if (len < sizeof(head))
		return 0;
	memcpy(&head, data, sizeof(head));
	return request_is_oneway(head.opcode) ? 0 : head.unique;
}

bool request_is_oneway(uint32_t opcode)
{
	return opcode == FUSE_FORGET || opcode == FUSE_BATCH_FORGET || opcode == FUSE_INTERRUPT;
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

static int parse_init(const void *body, size_t len, struct request *req)
{
	if (len < INIT_BYTES_LEAST)
		return -EPROTO;
	memset(&req->init, 0, sizeof(req->init));
	memcpy(&req->init, body, min(len, sizeof(req->init)));
	return 0;
}

static int parse_read(const void *body, size_t len, struct request *req)
{
	struct fuse_read_in in;

	if (len < sizeof(in))
		return -EPROTO;
	memcpy(&in, body, sizeof(in));
	req->read.offset = in.offset;
	req->read.size = in.size;
	return 0;
}

static int parse_forget(const void *body, size_t len, struct request *req)
{
	struct fuse_forget_in in;

	if (len < sizeof(in))
		return -EPROTO;
	memcpy(&in, body, sizeof(in));
	req->forget.lookups = in.nlookup;
	req->forget.count = 1;
	return 0;
}

static int parse_batch_forget(const char *body, size_t len, struct request *req)
{
	struct fuse_batch_forget_in in;

	if (len < sizeof(in))
		return -EPROTO;
	memcpy(&in, body, sizeof(in));
	if (in.count > (len - sizeof(in)) / sizeof(struct fuse_forget_one))
		return -EPROTO;
	req->forget.nodes = body + sizeof(in);
	req->forget.count = in.count;
	return 0;
}

static int parse_interrupt(const void *body, size_t len, struct request *req)
{
	struct fuse_interrupt_in in;

	if (len < sizeof(in))
		return -EPROTO;
	memcpy(&in, body, sizeof(in));
	req->interrupted = in.unique;
	return 0;
}

static int parse_body(const void *body, size_t len, struct request *req)
{
	switch (req->opcode) {
	case FUSE_INIT:
		return parse_init(body, len, req);
	case FUSE_READ:
	case FUSE_READDIR:
	case FUSE_READDIRPLUS:
		return parse_read(body, len, req);
	case FUSE_FORGET:
		return parse_forget(body, len, req);
	case FUSE_BATCH_FORGET:
		return parse_batch_forget(body, len, req);
	case FUSE_INTERRUPT:
		return parse_interrupt(body, len, req);
	case FUSE_LOOKUP:
		if (len == 0 || !memchr(body, '\0', len))
			return -EPROTO;
		req->name = body;
		return 0;
	default:
		return 0;
	}
}

int request_parse(const void *data, size_t len, struct request *ret)
{
	struct fuse_in_header head;
	struct request req = { 0 };
	int r;

	if (len < sizeof(head))
		return -EPROTO;
	memcpy(&head, data, sizeof(head));
	if (head.len != len)
		return -EPROTO;
	req.opcode = head.opcode;
	req.unique = head.unique;
	req.nodeid = head.nodeid;
	r = parse_body((const char *)data + sizeof(head), len - sizeof(head), &req);
	if (r < 0)
		return r;
	*ret = req;
	return 0;
}

uint16_t request_read_pages(long page_bytes)
{
	return (uint16_t)max(LIMIT_PAYLOAD_BYTES / page_bytes, 1L);
}

int request_answer_init(const struct fuse_init_in *in, uint64_t wanted, uint16_t max_background,
	struct fuse_init_out *ret_out)
{
	struct fuse_init_out out = { 0 };
	uint64_t flags = INIT_FLAGS | wanted;

	if (in->major != FUSE_KERNEL_VERSION || in->minor < FUSE_MINOR_LEAST)
		return -EPROTO;
	out.major = FUSE_KERNEL_VERSION;
	out.minor = min(in->minor, (uint32_t)FUSE_KERNEL_MINOR_VERSION);
	out.max_readahead = in->max_readahead;
	out.flags = in->flags & (uint32_t)flags;
	if (out.flags & FUSE_INIT_EXT)
		out.flags2 = in->flags2 & (uint32_t)(flags >> 32);
	/*
	 * READs of EROFS are asynchronous: max_background is how many the kernel lets be in flight.
	 * Never queue there, behind one that waits for a stalled origin.
	 */
	out.max_background = max_background;
	out.congestion_threshold = max_background;
	out.max_write = WRITE_BYTES;
	out.time_gran = 1;
	out.max_pages = request_read_pages(sysconf(_SC_PAGESIZE));
	*ret_out = out;
	return 0;
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

int request_attr(
	uint64_t nodeid, uint64_t extent_bytes, uint32_t extents, struct fuse_attr *ret_attr)
{
	struct fuse_attr attr = { .ino = nodeid, .blksize = BLOCK_BYTES };

	if (nodeid == REQUEST_ROOT_NODE) {
		attr.mode = S_IFDIR | 0500;
		attr.nlink = 2;
	} else if (nodeid >= REQUEST_EXTENT_NODE(0) && nodeid < REQUEST_EXTENT_NODE(extents)) {
		attr.mode = S_IFREG | 0400;
		attr.nlink = 1;
		attr.size = extent_bytes;
		attr.blocks = extent_bytes / 512;
	} else {
		return -ENOENT;
	}
	*ret_attr = attr;
	return 0;
}
