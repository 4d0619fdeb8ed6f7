/*
 * Whether this kernel mounts images of ours and, above all, gives an error and never zeros for what
 * nobody serves any more: an image of three files is mounted over a FUSE mount, a file is read, who
 * serves it is killed, another is read. See kernel.h.
 *
 *	block	0		1	2		3 ... 8
 *		super, device	inodes	root directory	files of two blocks: here, or on a device
 */
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/layout.h"
#include "base/limits.h"
#include "base/mount_table.h"
#include "catalog/image_format.h"
#include "mount/kernel/kernel.h"
#include "mount/kernel/kernel_internal.h"

#include <fcntl.h>
#include <linux/fuse.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/pidfd.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#define FILES         3u
#define FILE_BLOCKS   2u
#define FILE_BYTES    (FILE_BLOCKS * BLOCK_BYTES)
#define DATA_BLOCKS   (FILES * FILE_BLOCKS)
#define HEAD_BLOCKS   3u
#define INODE_STEP    128u
#define DEVICE_NODE   (FUSE_ROOT_ID + 1)
#define REQUEST_BYTES 8192u /* FUSE_MIN_READ_BUFFER */
#define READ_DEADLINE (10 * CLOCK_SECOND)
#define DEATH_MS      5000

/* How the reader ended. */
enum reader_status {
	READER_FAILED_CLOSED, /* as it must be */
	READER_NO_BYTES,
	READER_WRONG_BYTES,
	READER_BYTES_FROM_NOBODY,
};

struct probe {
	bool one_device;
	unsigned char head[HEAD_BLOCKS * BLOCK_BYTES];
	/* What is served: the data, behind the head on one device. */
	unsigned char device[(HEAD_BLOCKS + DATA_BLOCKS) * BLOCK_BYTES];
	size_t device_bytes;
	const char *device_name;
	_Alignas(8) unsigned char request[REQUEST_BYTES];
};

/* ---- the image ------------------------------------------------------------------------------- */

static void file_bytes(uint32_t file, unsigned char bytes[FILE_BYTES])
{
	for (uint32_t i = 0; i < FILE_BYTES; i++)
		bytes[i] = (unsigned char)(1 + (i * 7 + i / BLOCK_BYTES + file * 31) % 251);
}

static uint64_t nid_of(uint32_t inode)
{
	return (BLOCK_BYTES + inode * INODE_STEP) >> EROFS_NID_BITS;
}

/* ".", "..", "a", "b", "c". */
static uint32_t put_directory(unsigned char block[BLOCK_BYTES])
{
	static const char *const names[] = { ".", "..", "a", "b", "c" };
	const uint32_t n = ARRAY_SIZE(names);
	uint32_t at = n * (uint32_t)sizeof(struct erofs_dirent);

	for (uint32_t i = 0; i < n; i++) {
		struct erofs_dirent entry = {
			.nid = nid_of(i < 2 ? 0 : i - 1),
			.name_offset = (uint16_t)at,
			.type = i < 2 ? EROFS_TYPE_DIRECTORY : EROFS_TYPE_FILE,
		};

		memcpy(block + i * sizeof(entry), &entry, sizeof(entry));
		memcpy(block + at, names[i], strlen(names[i]));
		at += (uint32_t)strlen(names[i]);
	}
	return at;
}

static void put_file(const struct probe *p, uint32_t file, unsigned char *inodes)
{
	struct {
		struct erofs_inode inode;
		struct erofs_chunk chunk;
	} f = {
		.inode = { .format = EROFS_LAYOUT_CHUNKED,
			.mode = S_IFREG | 0444,
			.size = FILE_BYTES,
			.u = EROFS_CHUNK_INDEXES | 1, /* chunks of two blocks */
			.ino = file + 2,
			.nlink = 1 },
		.chunk = { .device = p->one_device ? 0 : 1,
			.block = file * FILE_BLOCKS + (p->one_device ? HEAD_BLOCKS : 0) },
	};

	static_assert(sizeof(f) <= INODE_STEP, "one after the other");
	memcpy(inodes + (file + 1) * (size_t)INODE_STEP, &f, sizeof(f));
}

static void make_image(struct probe *p)
{
	const uint32_t data = p->one_device ? HEAD_BLOCKS : 0;
	struct erofs_super super = {
		.magic = EROFS_MAGIC,
		.block_bits = BLOCK_BITS,
		.root_nid = (uint16_t)nid_of(0),
		.inodes = FILES + 1,
		.blocks = HEAD_BLOCKS + (p->one_device ? DATA_BLOCKS : 0),
		.feature_incompat =
			EROFS_INCOMPAT_CHUNKED | (p->one_device ? 0 : EROFS_INCOMPAT_DEVICES),
	};
	struct erofs_device slot = { .tag = "probe", .blocks = DATA_BLOCKS };
	struct erofs_inode root = {
		.format = EROFS_LAYOUT_PLAIN, .mode = S_IFDIR | 0555, .u = 2, .ino = 1, .nlink = 2
	};
	const uint32_t slot_at = EROFS_SUPER_OFFSET + sizeof(super);

	if (!p->one_device) {
		super.extra_devices = 1;
		super.device_slot = (uint16_t)(slot_at / EROFS_SLOT_BYTES);
		memcpy(p->head + slot_at, &slot, sizeof(slot));
	}
	memcpy(p->head + EROFS_SUPER_OFFSET, &super, sizeof(super));
	root.size = put_directory(p->head + (size_t)2 * BLOCK_BYTES);
	memcpy(p->head + BLOCK_BYTES, &root, sizeof(root));
	for (uint32_t i = 0; i < FILES; i++) {
		put_file(p, i, p->head + BLOCK_BYTES);
		file_bytes(i, p->device + (data + i * FILE_BLOCKS) * (size_t)BLOCK_BYTES);
	}
	if (p->one_device)
		memcpy(p->device, p->head, sizeof(p->head));
	p->device_bytes = (data + DATA_BLOCKS) * (size_t)BLOCK_BYTES;
	p->device_name = p->one_device ? MOUNT_LOOP_NAME : "0";
}

/* ---- who serves it: a process that is killed ------------------------------------------------- */

static struct fuse_attr attr_of(const struct probe *p, uint64_t node)
{
	struct fuse_attr attr = { .ino = node, .nlink = 2, .mode = S_IFDIR | 0500 };

	if (node == DEVICE_NODE) {
		attr.mode = S_IFREG | 0400;
		attr.nlink = 1;
		attr.size = p->device_bytes;
	}
	attr.blksize = BLOCK_BYTES;
	return attr;
}

static void answer(int dev_fd, uint64_t unique, int status, const void *data, size_t len)
{
	struct fuse_out_header head = { .unique = unique, .error = status };
	struct iovec iov[2] = { { &head, sizeof(head) }, { (void *)(uintptr_t)data, len } };

	head.len = (uint32_t)(sizeof(head) + (status == 0 ? len : 0));
	(void)!writev(dev_fd, iov, status == 0 && len ? 2 : 1); /* or nobody waits any more */
}

static void answer_init(int dev_fd, uint64_t unique, const void *body)
{
	struct fuse_init_in in;
	struct fuse_init_out out = { .major = FUSE_KERNEL_VERSION,
		.max_background = 16,
		.congestion_threshold = 16,
		.max_write = BLOCK_BYTES,
		.time_gran = 1 };

	memcpy(&in, body, sizeof(in));
	out.minor = min(in.minor, (uint32_t)FUSE_KERNEL_MINOR_VERSION);
	out.max_readahead = in.max_readahead;
	out.flags = in.flags & (FUSE_ASYNC_READ | FUSE_ASYNC_DIO | FUSE_MAX_PAGES);
	out.max_pages = (uint16_t)max(LIMIT_PAYLOAD_BYTES / sysconf(_SC_PAGESIZE), 1L);
	answer(dev_fd, unique, 0, &out, sizeof(out));
}

static void answer_read(const struct probe *p, int dev_fd, uint64_t unique, const void *body)
{
	struct fuse_read_in in;
	int r;

	memcpy(&in, body, sizeof(in));
	r = in.offset <= p->device_bytes && in.size <= p->device_bytes - in.offset ? 0 : -EINVAL;
	answer(dev_fd, unique, r, p->device + (r == 0 ? in.offset : 0), in.size);
}

static void answer_one(const struct probe *p, int dev_fd, const struct fuse_in_header *head)
{
	const void *body = head + 1;
	struct fuse_entry_out entry = { .nodeid = DEVICE_NODE,
		.entry_valid = UINT32_MAX,
		.attr_valid = UINT32_MAX,
		.attr = attr_of(p, DEVICE_NODE) };
	struct fuse_attr_out attr = { .attr_valid = UINT32_MAX, .attr = attr_of(p, head->nodeid) };
	struct fuse_open_out open = { .open_flags = FOPEN_DIRECT_IO | FOPEN_NOFLUSH };
	int r;

	switch (head->opcode) {
	case FUSE_INIT:
		answer_init(dev_fd, head->unique, body);
		return;
	case FUSE_LOOKUP:
		r = strcmp(body, p->device_name) == 0 ? 0 : -ENOENT;
		answer(dev_fd, head->unique, r, &entry, sizeof(entry));
		return;
	case FUSE_GETATTR:
		answer(dev_fd, head->unique, 0, &attr, sizeof(attr));
		return;
	case FUSE_OPEN:
		answer(dev_fd, head->unique, 0, &open, sizeof(open));
		return;
	case FUSE_READ:
		answer_read(p, dev_fd, head->unique, body);
		return;
	case FUSE_FORGET:
	case FUSE_BATCH_FORGET:
	case FUSE_INTERRUPT:
		return; /* nothing answers them */
	default:
		answer(dev_fd, head->unique, -ENOSYS, NULL, 0);
	}
}

/*
 * Only system calls and what needs no memory: other threads' locks were copied as they were. So not
 * by libfuse3, which allocates each request.
 */
_Noreturn static void serve_main(struct probe *p, int dev_fd)
{
	kernel_close_others(&dev_fd, 1);
	for (;;) {
		struct pollfd wait = { .fd = dev_fd, .events = POLLIN };
		ssize_t n = read(dev_fd, p->request, sizeof(p->request));

		if (n < 0 && errno == ENODEV)
			_exit(0);
		if (n >= (ssize_t)sizeof(struct fuse_in_header))
			answer_one(p, dev_fd, (const void *)p->request);
		else if (n <= 0)
			(void)poll(&wait, 1, -1); /* looked at again */
	}
}

/* ---- who reads it: a process that may have to be given up ------------------------------------ */

/* 0, or a negative errno. */
static int read_file(int mount_fd, const char *name, unsigned char bytes[FILE_BYTES])
{
	int fd = openat(mount_fd, name, O_RDONLY | O_CLOEXEC);
	ssize_t n;

	if (fd < 0)
		return -errno;
	n = pread(fd, bytes, FILE_BYTES, 0);
	return n == FILE_BYTES ? 0 : n < 0 ? -errno : -ENODATA;
}

_Noreturn static void read_main(int mount_fd, pid_t server)
{
	static unsigned char bytes[FILE_BYTES];
	static unsigned char wanted[FILE_BYTES];
	struct pollfd death = { .events = POLLIN };

	kernel_close_others(&mount_fd, 1); /* connections and locks of whoever asks */
	if (read_file(mount_fd, "a", bytes) < 0)
		_exit(READER_NO_BYTES);
	file_bytes(0, wanted);
	if (memcmp(bytes, wanted, FILE_BYTES) != 0)
		_exit(READER_WRONG_BYTES);
	death.fd = pidfd_open(server, 0);
	if (kill(server, SIGKILL) != 0 || poll(&death, 1, DEATH_MS) != 1)
		_exit(READER_NO_BYTES);
	_exit(read_file(mount_fd, "b", bytes) == 0 ? READER_BYTES_FROM_NOBODY
						   : READER_FAILED_CLOSED);
}

static int reader_error(int status, const struct probe *p, struct err *e)
{
	const char *how = p->one_device ? "over a loop device" : "over files";

	switch (WIFEXITED(status) ? WEXITSTATUS(status) : READER_NO_BYTES) {
	case READER_FAILED_CLOSED:
		return 0;
	case READER_WRONG_BYTES:
		return err_set(e, -EOPNOTSUPP,
			"this kernel reads wrong bytes from EROFS %s: use --engine fuse", how);
	case READER_BYTES_FROM_NOBODY:
		return err_set(e, -EOPNOTSUPP,
			"this kernel returns bytes that were never served from EROFS %s: use "
			"--engine fuse",
			how);
	default:
		return err_set(e, -EOPNOTSUPP,
			"this kernel does not read a file of EROFS %s: use --engine fuse", how);
	}
}

/* Reads through the mount, and kills `server` meanwhile. */
static int try_reading(
	const struct probe *p, int mount_fd, dev_t fuse_dev, pid_t server, struct err *e)
{
	struct pollfd end = { .fd = -1, .events = POLLIN };
	int status = 0;
	pid_t pid = fork();

	if (pid < 0)
		return err_set(e, err_errno(), "no process for the probe: %m");
	if (pid == 0)
		read_main(mount_fd, server);
	end.fd = pidfd_open(pid, 0);
	if (end.fd < 0 || poll(&end, 1, (int)(READ_DEADLINE / CLOCK_MS)) != 1) {
		(void)kill(pid, SIGKILL);
		if (kernel_abort(fuse_dev) < 0) /* else what it waits for fails */
			(void)kill(server, SIGKILL);
	}
	cleanup_close(&end.fd);
	while (waitpid(pid, &status, 0) < 0)
		if (errno != EINTR)
			return err_set(e, err_errno(), "the probe is lost: %m");
	return reader_error(status, p, e);
}

/* ---- the whole ------------------------------------------------------------------------------- */

static int mount_files(const struct probe *p, const char *dir, int root, int *ret_fd, struct err *e)
{
	char path[4096];
	int r;

	if (snprintf(path, sizeof(path), "%s/probe.%d", dir, (int)getpid()) >= (int)sizeof(path))
		return err_set(e, -ENAMETOOLONG, "%s: the path is too long", dir);
	r = file_write_atomic(path, p->head, sizeof(p->head), 0600);
	if (r < 0)
		return err_set(e, r, "%s cannot be written: %s", path, err_str(r));
	r = kernel_mount_erofs(
		&(struct kernel_image){ .path = path, .fuse_mount_fd = root, .extents = 1 }, ret_fd,
		e);
	(void)unlink(path); /* ours; mounted or not */
	return r;
}

/* `dir` NULL: as one device. */
static int probe(const char *dir, struct err *e)
{
	_cleanup_free_ struct probe *p = calloc(1, sizeof(*p));
	_cleanup_close_ int dev_fd = -1;
	_cleanup_close_ int root = -1;
	_cleanup_close_ int fd = -1;
	struct kernel_superblock super;
	dev_t fuse_dev = 0;
	pid_t server;
	int r;

	if (!p)
		return err_set(e, -ENOMEM, "out of memory");
	p->one_device = !dir;
	make_image(p);
	r = kernel_open_fuse(&dev_fd, e);
	if (r == 0)
		r = kernel_mount_fuse(dev_fd, NULL, &root, &fuse_dev, e);
	if (r < 0)
		return r;
	server = fork();
	if (server == 0)
		serve_main(p, dev_fd);
	cleanup_close(&dev_fd); /* the server's alone: the connection ends with it */
	dev_fd = -1;
	if (server < 0)
		return err_set(e, err_errno(), "no process for the probe: %m");
	r = dir ? mount_files(p, dir, root, &fd, e)
		: kernel_mount_loop(root, MOUNT_LOOP_NAME, NULL, &fd, &super, e);
	if (r == 0)
		r = try_reading(p, fd, fuse_dev, server, e);
	(void)kill(server, SIGKILL); /* first: what is not answered would hold up the unmount */
	while (waitpid(server, NULL, 0) < 0 && errno == EINTR)
		;
	return r;
}

int kernel_check_pages(long bytes, struct err *e)
{
	if (bytes == BLOCK_BYTES)
		return 0;
	return err_set(e, -EOPNOTSUPP,
		"this kernel has pages of %ld KiB, and images have blocks of 4 KiB: use --engine "
		"fuse",
		bytes / 1024);
}

static int check(struct err *e)
{
	int r;

	if (!kernel_may_mount())
		return err_set(e, -EPERM,
			"mounting EROFS needs CAP_SYS_ADMIN: run it as root, or with sudo");
	r = kernel_check_pages(sysconf(_SC_PAGESIZE), e);
	if (r == 0)
		r = kernel_need_filesystem("fuse", e);
	return r == 0 ? kernel_need_filesystem("erofs", e) : r;
}

int kernel_probe(const char *dir, struct err *e)
{
	int r = check(e);

	return r < 0 ? r : probe(dir, e);
}

int kernel_probe_loop(struct err *e)
{
	int r = check(e);

	return r < 0 ? r : probe(NULL, e);
}
