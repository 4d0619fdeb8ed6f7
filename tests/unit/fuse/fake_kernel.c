/* See fake_kernel.h. */
#include "tests/unit/fuse/fake_kernel.h"

#include <poll.h>
#include <sys/socket.h>

uint64_t stall_ns;
uint32_t asker;
struct synthetic_control *control;
unsigned char answer_bytes[ANSWER_BYTES];

static void on_gone(void *arg)
{
	struct fake *f = arg;

	atomic_fetch_add(&f->gone, 1);
}

static void on_failure(void *arg, uint64_t offset, uint32_t length, int status)
{
	struct fake *f = arg;

	(void)offset;
	(void)length;
	atomic_store(&f->last_failure, status);
	atomic_fetch_add(&f->failures, 1);
}

void serve(struct fake *f)
{
	struct session_config config = {
		.dev_fd = f->dev,
		.reader = &f->reader.reader,
		.threads = 2,
		.stall_ns = stall_ns,
		.on_failure = on_failure,
		.on_gone = on_gone,
		.arg = f,
	};
	struct err e = ERR_INIT;

	synthetic_start(&f->reader, control);
	assert_int_equal(slots_open(f->memory, &f->slots, &e), 0);
	if (!f->greets && slots_phase(f->slots) == SLOTS_NEW)
		slots_set_phase(f->slots, SLOTS_CONNECTED);
	if (f->own_tree)
		f->tree = &unaligned_tree;
	else
		assert_int_equal(tree_extents_new(EXTENT, EXTENTS, &(struct layout_sources){ 0 },
					 &f->tree, &e),
			0);
	config.slots = f->slots;
	config.tree = f->tree;
	assert_int_equal(session_new(&config, &f->session, &e), 0);
}

void connect_pair(struct fake *f)
{
	int pair[2];
	int room = 4 << 20;

	memset(f, 0, sizeof(*f));
	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
	for (int i = 0; i < 2; i++)
		(void)setsockopt(pair[i], SOL_SOCKET, SO_SNDBUFFORCE, &room, sizeof(room));
	f->kernel = pair[0];
	f->dev = pair[1];
	f->memory = memfd_create("test-slots", MFD_CLOEXEC);
	assert_int_equal(ftruncate(f->memory, SLOTS_HEAD_BYTES + (off_t)SLOTS * SLOT_BYTES), 0);
}

void begin(struct fake *f)
{
	synthetic_set(&control->stall, 0, 0);
	synthetic_set(&control->fail, 0, 0);
	synthetic_set(&control->later, 0, 0);
	connect_pair(f);
	serve(f);
}

void begin_unaligned(struct fake *f)
{
	synthetic_set(&control->stall, 0, 0);
	synthetic_set(&control->fail, 0, 0);
	synthetic_set(&control->later, 0, 0);
	connect_pair(f);
	f->own_tree = true;
	serve(f);
}

void end(struct fake *f)
{
	session_free(f->session);
	if (!f->own_tree)
		tree_extents_free(f->tree);
	synthetic_stop(&f->reader);
	slots_free(f->slots);
	close(f->kernel);
	close(f->dev);
	close(f->memory);
}

/* ---- the kernel's side ----------------------------------------------------------------------- */

void ask(struct fake *f, uint64_t unique, uint32_t opcode, uint64_t node, const void *body,
	size_t len)
{
	unsigned char bytes[512];
	const struct fuse_in_header head = { .len = (uint32_t)(sizeof(head) + len),
		.opcode = opcode,
		.unique = unique,
		.nodeid = node,
		.pid = asker };

	memcpy(bytes, &head, sizeof(head));
	if (len)
		memcpy(bytes + sizeof(head), body, len);
	assert_int_equal(write(f->kernel, bytes, head.len), head.len);
}

void ask_read(struct fake *f, uint64_t unique, uint64_t offset, uint32_t size)
{
	const struct fuse_read_in in = { .offset = offset % EXTENT, .size = size };

	ask(f, unique, FUSE_READ, REQUEST_EXTENT_NODE(offset / EXTENT), &in, sizeof(in));
}

uint64_t hear_for(struct fake *f, int ms, int *ret_error, size_t *ret_len)
{
	struct fuse_out_header head;
	struct pollfd wait = { .fd = f->kernel, .events = POLLIN };
	ssize_t n;

	if (poll(&wait, 1, ms) != 1)
		return 0;
	n = read(f->kernel, answer_bytes, sizeof(answer_bytes));
	assert_true(n >= (ssize_t)sizeof(head));
	memcpy(&head, answer_bytes, sizeof(head));
	assert_int_equal(head.len, n);
	*ret_error = head.error;
	*ret_len = (size_t)n - sizeof(head);
	return head.unique;
}

void hear(struct fake *f, uint64_t unique, int error, size_t len)
{
	int got_error = 1;
	size_t got_len = 0;

	assert_int_equal(hear_for(f, 60000, &got_error, &got_len), unique);
	assert_int_equal(got_error, error);
	assert_int_equal(got_len, len);
}

void check_bytes(uint64_t offset, uint32_t size)
{
	uint64_t from = offset / 4096 * 4096;
	uint32_t length = (uint32_t)((offset + size + 4095) / 4096 * 4096 - from);
	unsigned char *want = malloc(length);

	synthetic_fill(from, length, want);
	assert_memory_equal(
		answer_bytes + sizeof(struct fuse_out_header), want + offset - from, size);
	free(want);
}

void hear_nothing(struct fake *f)
{
	int error;
	size_t len;

	assert_int_equal(hear_for(f, 50, &error, &len), 0);
}

uint32_t held(struct fake *f)
{
	struct slots_use use;

	slots_use(f->slots, &use);
	return use.held;
}
