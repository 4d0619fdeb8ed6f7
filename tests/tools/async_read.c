/*
 * async-read uring|fixed|aio FILE OFFSET SIZE BLOCK [direct]
 *
 * Reads [OFFSET, OFFSET + SIZE) of FILE as an application with asynchronous I/O does, in blocks
 * with up to 32 of them in flight, and writes the bytes up to the file's end to standard output:
 *
 *	uring	io_uring, IORING_OP_READ
 *	fixed	io_uring with registered file and buffers, IORING_OP_READ_FIXED
 *	aio	io_submit(2), as databases do
 *	direct	O_DIRECT
 *
 * Exit status 0, 2 for bad usage, 3 and the errno's name on standard error when a call failed.
 */
#include <errno.h>
#include <fcntl.h>
#include <liburing.h>
#include <linux/aio_abi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#define DEPTH     32u
#define BYTES_MAX (256u << 20) /* all of it is held in memory */
#define ALIGNMENT 4096u

struct job {
	int fd;
	char *data; /* size bytes, aligned for O_DIRECT */
	size_t offset, size, block;
	size_t next;  /* of the next block to ask for */
	size_t bytes; /* read: short blocks are at the file's end only */
};

static int failed(const char *what, int error)
{
	(void)fprintf(stderr, "%s %s\n", strerrorname_np(error), what);
	return 3;
}

/* Sets *ret_at and *ret_len to the next block; false when all were asked for. */
static bool job_next(struct job *j, size_t *ret_at, size_t *ret_len)
{
	if (j->next >= j->size)
		return false;
	*ret_at = j->next;
	*ret_len = j->size - j->next < j->block ? j->size - j->next : j->block;
	j->next += *ret_len;
	return true;
}

/* Queues blocks up to the depth; returns how many. */
static unsigned int uring_fill(struct io_uring *ring, struct job *j, bool fixed, unsigned int room)
{
	unsigned int queued = 0;
	size_t at, len;

	while (queued < room && job_next(j, &at, &len)) {
		struct io_uring_sqe *sqe = io_uring_get_sqe(ring);

		if (fixed) {
			io_uring_prep_read_fixed(
				sqe, 0, j->data + at, (unsigned int)len, j->offset + at, 0);
			sqe->flags |= IOSQE_FIXED_FILE;
		} else {
			io_uring_prep_read(
				sqe, j->fd, j->data + at, (unsigned int)len, j->offset + at);
		}
		queued++;
	}
	return queued;
}

static int uring_run(struct io_uring *ring, struct job *j, bool fixed)
{
	unsigned int flying = 0;
	int r;

	for (;;) {
		struct io_uring_cqe *cqe;

		flying += uring_fill(ring, j, fixed, DEPTH - flying);
		if (flying == 0)
			return 0;
		r = io_uring_submit_and_wait(ring, 1);
		if (r < 0)
			return failed("io_uring_enter", -r);
		while (io_uring_peek_cqe(ring, &cqe) == 0) {
			if (cqe->res < 0)
				return failed("read", -cqe->res);
			j->bytes += (size_t)cqe->res;
			flying--;
			io_uring_cqe_seen(ring, cqe);
		}
	}
}

static int read_uring(struct job *j, bool fixed)
{
	struct iovec all = { j->data, j->size };
	struct io_uring ring;
	int r = io_uring_queue_init(DEPTH, &ring, 0);

	if (r)
		return failed("io_uring_setup", -r);
	if (fixed) {
		r = io_uring_register_buffers(&ring, &all, 1);
		if (r == 0)
			r = io_uring_register_files(&ring, &j->fd, 1);
	}
	r = r ? failed("io_uring_register", -r) : uring_run(&ring, j, fixed);
	io_uring_queue_exit(&ring);
	return r;
}

/* Submits one block; 0 or an errno. */
static int aio_submit(
	aio_context_t context, struct job *j, struct iocb *block, size_t at, size_t len)
{
	struct iocb *blocks[] = { block };

	*block = (struct iocb){ .aio_lio_opcode = IOCB_CMD_PREAD,
		.aio_fildes = (uint32_t)j->fd,
		.aio_buf = (uint64_t)(uintptr_t)(j->data + at),
		.aio_nbytes = len,
		.aio_offset = (int64_t)(j->offset + at),
		.aio_data = (uint64_t)(uintptr_t)block };
	return syscall(SYS_io_submit, context, 1L, blocks) == 1 ? 0 : errno;
}

static int read_aio(struct job *j)
{
	aio_context_t context = 0;
	struct iocb blocks[DEPTH];
	struct io_event event;
	unsigned int flying = 0;
	size_t at, len;
	int r;

	if (syscall(SYS_io_setup, (long)DEPTH, &context))
		return failed("io_setup", errno);
	for (; flying < DEPTH && job_next(j, &at, &len); flying++)
		if ((r = aio_submit(context, j, &blocks[flying], at, len)))
			return failed("io_submit", r);
	while (flying) {
		if (syscall(SYS_io_getevents, context, 1L, 1L, &event, NULL) != 1)
			return failed("io_getevents", errno);
		if (event.res < 0)
			return failed("read", (int)-event.res);
		j->bytes += (size_t)event.res;
		flying--;
		if (!job_next(j, &at, &len))
			continue;
		r = aio_submit(context, j, (struct iocb *)(uintptr_t)event.data, at, len);
		if (r)
			return failed("io_submit", r);
		flying++;
	}
	return syscall(SYS_io_destroy, context) ? failed("io_destroy", errno) : 0;
}

static int run(struct job *j, const char *method)
{
	int r = strcmp(method, "aio") == 0 ? read_aio(j)
					   : read_uring(j, strcmp(method, "fixed") == 0);

	if (r == 0 && fwrite(j->data, 1, j->bytes, stdout) != j->bytes)
		r = failed("standard output", errno);
	return r;
}

int main(int argc, char **argv)
{
	struct job j = { 0 };
	bool direct = argc == 7 && strcmp(argv[6], "direct") == 0;
	int r;

	if (argc != (direct ? 7 : 6) ||
		(strcmp(argv[1], "uring") && strcmp(argv[1], "fixed") && strcmp(argv[1], "aio"))) {
		(void)fputs("usage: async-read uring|fixed|aio FILE OFFSET SIZE BLOCK [direct]\n",
			stderr);
		return 2;
	}
	j.offset = strtoull(argv[3], NULL, 10);
	j.size = strtoull(argv[4], NULL, 10);
	j.block = strtoull(argv[5], NULL, 10);
	if (j.size == 0 || j.size > BYTES_MAX || j.block == 0)
		return failed("SIZE or BLOCK", ERANGE);
	j.fd = open(argv[2], O_RDONLY | O_CLOEXEC | (direct ? O_DIRECT : 0));
	if (j.fd < 0)
		return failed("open", errno);
	j.data = aligned_alloc(ALIGNMENT, (j.size + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT);
	r = j.data ? run(&j, argv[1]) : failed("memory", ENOMEM);
	free(j.data);
	(void)close(j.fd);
	return r;
}
