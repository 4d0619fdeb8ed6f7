/*
 * Fuzzer of what a job says to the order feed of a mount, after its greeting: no input may crash,
 * leave memory behind, or ask for what is in no file.
 */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include "base/arena.h"
#include "fuse/order/order_internal.h"

#define FILE_BYTES 300000u
#define STEPS_MAX  4096u

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Some paths are no files; the others lie behind one another. */
static int find(void *arg, const char *path, uint64_t *ret_offset, uint64_t *ret_size)
{
	(void)arg;
	if (path[0] % 4 == 0)
		return -ENOENT;
	*ret_offset = (uint64_t)(uint8_t)path[0] * (1u << 20);
	*ret_size = FILE_BYTES;
	return 0;
}

static int prefetch(void *arg, uint64_t offset, uint32_t length)
{
	(void)arg;
	ensure(offset % BLOCK_BYTES == 0 && length % BLOCK_BYTES == 0 && length > 0);
	ensure(offset % (1u << 20) + length <= align_up(FILE_BYTES, BLOCK_BYTES));
	return offset % 5 ? 0 : -EALREADY;
}

static struct order *make_order(void)
{
	static const struct order_ops ops = { .find = find, .prefetch = prefetch };
	const struct order_config config = {
		.ops = &ops, .window_bytes = 4 << 20, .memory = 1 << 20
	};
	struct order *order = order_new(&config);

	ensure(order);
	return order;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct order *order;
	struct arena_use use;
	struct order_job *job;
	int ends[2];

	if (!order)
		order = make_order();
	job = &order->jobs[0];
	ensure(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) == 0);
	order_job_begin(order, job, ends[0]);
	job->state = ORDER_JOB_READY;
	/* What does not fit the socket is left out. */
	(void)!send(ends[1], data, size, MSG_NOSIGNAL);
	(void)shutdown(ends[1], SHUT_WR);
	for (uint32_t i = 0; i < STEPS_MAX && order_job_receive(job); i++) {
		(void)order_note_read(order, (uint64_t)i << 16, 1u << 16);
		(void)order_pump(order);
	}
	order_job_end(job);
	(void)close(ends[1]);
	arena_use(ARENA_ORDERS, &use);
	ensure(use.used == 0);
	return 0;
}
