/* A disk that records. See disk.h. */
#include "tests/tools/recorddisk/disk.h"
#include "base/cleanup.h"
#include "base/file.h"
#include "base/log.h"
#include "tests/tools/recorddisk/record.h"

#include <fcntl.h>
#include <linux/fuse.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#define DEVICE        "/dev/fuse"
#define REQUEST_BYTES (RECORD_DATA_MAX + 8192u) /* headers before the data of a write */
#define PAGES_MAX     (RECORD_DATA_MAX / 4096u)
#define STALLED_MAX   64u /* requests kept while the disk stalls; more wait in the kernel */
#define VALID_SECONDS 3600u

enum node {
	NODE_ROOT = FUSE_ROOT_ID,
	NODE_DISK,
	NODE_CONTROL,
};

struct request {
	struct fuse_in_header head;
	char body[REQUEST_BYTES - sizeof(struct fuse_in_header)];
};

struct disk {
	int fuse;
	int image;
	uint64_t size;
	struct record record;
	bool stalled;
	bool failing;
	struct request *request;
	struct request *waiting[STALLED_MAX];
	unsigned int n_waiting;
	char *data; /* of a read */
};

static int append(
	struct disk *d, enum record_kind kind, uint64_t offset, const void *data, uint64_t length)
{
	return d->record.file ? record_append(&d->record, kind, offset, data, length) : 0;
}

static int reply(
	struct disk *d, const struct fuse_in_header *in, int error, const void *data, size_t len)
{
	struct fuse_out_header out = {
		.len = (uint32_t)(sizeof(out) + len), .error = error, .unique = in->unique
	};
	struct iovec parts[] = { { &out, sizeof(out) },
		{ (void *)(uintptr_t)data, len } }; /* writev only reads it */

	if (writev(d->fuse, parts, len ? 2 : 1) >= 0 || errno == ENOENT)
		return 0; /* ENOENT: whoever asked is gone */
	return err_errno();
}

static struct fuse_attr attributes(const struct disk *d, uint64_t node)
{
	struct fuse_attr a = { .ino = node, .nlink = 1, .blksize = 4096 };

	a.mode = node == NODE_ROOT ? S_IFDIR | 0700u : S_IFREG | 0600u;
	if (node == NODE_DISK)
		a.size = d->size;
	a.blocks = a.size / 512;
	return a;
}

static int on_init(struct disk *d, const struct fuse_in_header *in, const struct fuse_init_in *init)
{
	struct fuse_init_out out = {
		.major = FUSE_KERNEL_VERSION,
		.minor = FUSE_KERNEL_MINOR_VERSION,
		.max_readahead = init->max_readahead,
		.flags = init->flags & (FUSE_ASYNC_READ | FUSE_BIG_WRITES | FUSE_MAX_PAGES),
		.max_background = 256,
		.congestion_threshold = 256,
		.max_write = RECORD_DATA_MAX,
		.time_gran = 1,
		.max_pages = PAGES_MAX,
	};

	return reply(d, in, 0, &out, sizeof(out));
}

static int on_lookup(struct disk *d, const struct fuse_in_header *in, const char *name)
{
	uint64_t node = strcmp(name, "disk") == 0      ? NODE_DISK
			: strcmp(name, "control") == 0 ? NODE_CONTROL
						       : 0;
	struct fuse_entry_out out = { .nodeid = node,
		.entry_valid = VALID_SECONDS,
		.attr_valid = VALID_SECONDS,
		.attr = attributes(d, node) };

	return node ? reply(d, in, 0, &out, sizeof(out)) : reply(d, in, -ENOENT, NULL, 0);
}

static int on_attributes(struct disk *d, const struct fuse_in_header *in)
{
	struct fuse_attr_out out = { .attr_valid = VALID_SECONDS,
		.attr = attributes(d, in->nodeid) };

	return reply(d, in, 0, &out, sizeof(out));
}

/* ---- requests to the disk -------------------------------------------------------------------- */

static int on_read(struct disk *d, const struct fuse_in_header *in, const struct fuse_read_in *read)
{
	uint64_t length = min((uint64_t)read->size, (uint64_t)RECORD_DATA_MAX);
	int r;

	if (in->nodeid != NODE_DISK || read->offset >= d->size)
		return reply(d, in, 0, NULL, 0);
	length = min(length, d->size - read->offset);
	r = file_pread_exact(d->image, d->data, length, read->offset);
	return reply(d, in, r, d->data, r < 0 ? 0 : length);
}

static int on_write(struct disk *d, const struct fuse_in_header *in,
	const struct fuse_write_in *write, const char *data)
{
	struct fuse_write_out out = { .size = write->size };
	int r = -ENOSPC; /* beyond the disk's end */

	if (write->offset + write->size <= d->size) {
		r = append(d, RECORD_WRITE, write->offset, data, write->size);
		if (r == 0)
			r = file_pwrite_exact(d->image, data, write->size, write->offset);
	}
	return reply(d, in, r, &out, r < 0 ? 0 : sizeof(out));
}

static int serve_disk(struct disk *d, const struct request *q)
{
	const struct fuse_write_in *write = (const void *)q->body;

	if (d->failing)
		return reply(d, &q->head, -EIO, NULL, 0);
	switch (q->head.opcode) {
	case FUSE_READ:
		return on_read(d, &q->head, (const void *)q->body);
	case FUSE_WRITE:
		return on_write(d, &q->head, write, (const char *)(write + 1));
	default:
		return reply(d, &q->head, append(d, RECORD_FLUSH, 0, NULL, 0), NULL, 0);
	}
}

/* ---- control --------------------------------------------------------------------------------- */

static int answer_waiting(struct disk *d)
{
	int r = 0;

	for (unsigned int i = 0; i < d->n_waiting; i++) {
		int answered = serve_disk(d, d->waiting[i]);

		r = r < 0 ? r : answered;
		free(d->waiting[i]);
	}
	d->n_waiting = 0;
	return r;
}

static int obey(struct disk *d, const char *line)
{
	if (strncmp(line, "mark ", 5) == 0)
		return append(d, RECORD_MARK, 0, line + 5, strlen(line + 5));
	if (strcmp(line, "stall") == 0)
		d->stalled = true;
	else if (strcmp(line, "error") == 0)
		d->failing = true;
	else if (strcmp(line, "heal") == 0)
		d->failing = false;
	else if (strcmp(line, "go") == 0)
		d->stalled = false;
	else
		return -EINVAL;
	return d->stalled ? 0 : answer_waiting(d);
}

static int on_control(struct disk *d, const struct fuse_in_header *in,
	const struct fuse_write_in *write, const char *data)
{
	struct fuse_write_out out = { .size = write->size };
	char line[RECORD_MARK_MAX];
	int r = -EINVAL;

	if (write->size < sizeof(line)) {
		memcpy(line, data, write->size);
		line[write->size] = '\0';
		line[strcspn(line, "\n")] = '\0';
		r = obey(d, line);
	}
	return reply(d, in, r, &out, r < 0 ? 0 : sizeof(out));
}

/* ---------------------------------------------------------------------------------------------- */

static bool is_io(const struct request *q)
{
	return q->head.nodeid == NODE_DISK &&
	       (q->head.opcode == FUSE_READ || q->head.opcode == FUSE_WRITE ||
		       q->head.opcode == FUSE_FSYNC);
}

static int serve_other(struct disk *d, const struct request *q)
{
	const struct fuse_write_in *write = (const void *)q->body;
	const struct fuse_open_out opened = { .open_flags = FOPEN_DIRECT_IO };
	const struct fuse_in_header *in = &q->head;

	switch (in->opcode) {
	case FUSE_INIT:
		return on_init(d, in, (const void *)q->body);
	case FUSE_LOOKUP:
		return on_lookup(d, in, q->body);
	case FUSE_GETATTR:
	case FUSE_SETATTR: /* a shell's `>` truncates the control file */
		return on_attributes(d, in);
	case FUSE_OPEN:
		return reply(d, in, 0, &opened, sizeof(opened));
	case FUSE_WRITE:
		return on_control(d, in, write, (const char *)(write + 1));
	case FUSE_READ:
	case FUSE_RELEASE:
	case FUSE_DESTROY:
		return reply(d, in, 0, NULL, 0);
	case FUSE_FORGET:
	case FUSE_BATCH_FORGET:
	case FUSE_INTERRUPT:
		return 0; /* have no answer */
	default:
		return reply(d, in, -ENOSYS, NULL, 0);
	}
}

static int serve(struct disk *d)
{
	struct request *next;

	if (!is_io(d->request))
		return serve_other(d, d->request);
	if (!d->stalled)
		return serve_disk(d, d->request);
	next = malloc(sizeof(*next));
	if (!next || d->n_waiting == STALLED_MAX) {
		free(next);
		return reply(d, &d->request->head, -EIO, NULL, 0);
	}
	d->waiting[d->n_waiting++] = d->request;
	d->request = next;
	return 0;
}

int disk_serve(struct disk *d)
{
	for (;;) {
		ssize_t n = read(d->fuse, d->request, sizeof(*d->request));
		int r;

		if (n < 0 && errno == ENODEV)
			return 0; /* unmounted */
		if (n < 0 && (errno == EINTR || errno == ENOENT || errno == EAGAIN))
			continue;
		if (n < 0)
			return err_errno();
		r = serve(d);
		if (r < 0)
			return r;
	}
}

static int mount_at(struct disk *d, const char *dir, struct err *e)
{
	char options[96];

	d->fuse = open(DEVICE, O_RDWR | O_CLOEXEC);
	if (d->fuse < 0)
		return err_set(e, err_errno(), DEVICE ": %m: needs root and the module fuse");
	(void)snprintf(options, sizeof(options), "fd=%d,rootmode=40000,user_id=0,group_id=0",
		d->fuse); /* fits */
	if (mount("recorddisk", dir, "fuse", MS_NOSUID | MS_NODEV, options) != 0)
		return err_set(e, err_errno(), "%s: not mounted: %m: needs root", dir);
	return 0;
}

static int open_files(struct disk *d, const char *image, const char *record, struct err *e)
{
	struct stat st;
	int r;

	d->image = open(image, O_RDWR | O_CLOEXEC);
	if (d->image < 0 || fstat(d->image, &st) != 0)
		return err_set(e, err_errno(), "%s: %m: give an existing image", image);
	d->size = (uint64_t)st.st_size;
	r = record ? record_create(&d->record, record) : 0;
	if (r < 0)
		return err_set(
			e, r, "%s: %s: give a file that is not there yet", record, err_str(r));
	return 0;
}

int disk_open(const char *image, const char *record, const char *dir, struct disk **ret_disk,
	struct err *e)
{
	struct disk *d = calloc(1, sizeof(*d));
	int r;

	if (!d)
		return err_default(e, -ENOMEM, "recorddisk");
	d->fuse = -1;
	d->image = -1;
	d->request = malloc(sizeof(*d->request));
	d->data = malloc(RECORD_DATA_MAX);
	r = d->request && d->data ? open_files(d, image, record, e)
				  : err_default(e, -ENOMEM, "recorddisk");
	if (r == 0)
		r = mount_at(d, dir, e);
	if (r < 0) {
		disk_free(d);
		return r;
	}
	*ret_disk = d;
	return 0;
}

void disk_free(struct disk *d)
{
	if (!d)
		return;
	for (unsigned int i = 0; i < d->n_waiting; i++)
		free(d->waiting[i]);
	record_release(&d->record);
	if (d->image >= 0)
		(void)close(d->image); /* nothing waits for its fsync */
	if (d->fuse >= 0)
		(void)close(d->fuse); /* ends the connection */
	free(d->request);
	free(d->data);
	free(d);
}
