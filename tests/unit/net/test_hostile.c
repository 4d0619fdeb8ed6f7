/* Peers that break the protocol cost their own connection only; bytes that come one at a time cost
 * nothing. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <dirent.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>
#include "base/cleanup.h"
#include "base/clock.h"
#include "net/net.h"
#include "proto/hello.h"
#include "tests/clock/test_clock.h"
#include "tests/unit/net/call_result.h"

struct fixture {
	struct loop *loop;
	struct rpc_server *server;
	struct rpc_client *client; /* a good one, next to the hostile */
	char dir[64];
	char address[80];
	int fds; /* open at the start */
	_Atomic unsigned int with_fd;
	_Atomic unsigned int requests;
};

static uint8_t large[LIMIT_PAYLOAD_BYTES];

/* ---- raw peers ------------------------------------------------------------------------------- */

static int count_fds(void)
{
	DIR *dir = opendir("/proc/self/fd");
	int n = 0;

	assert_non_null(dir);
	while (readdir(dir)) // NOLINT(concurrency-mt-unsafe): a stream of its own
		n++;
	assert_int_equal(closedir(dir), 0);
	return n;
}

static struct sockaddr_un address_of(const struct fixture *f)
{
	struct sockaddr_un sun = { .sun_family = AF_UNIX };

	(void)snprintf(sun.sun_path, sizeof(sun.sun_path), "%s", f->address + strlen("unix:"));
	return sun;
}

static void set_timeout(int fd)
{
	const struct timeval t = { .tv_sec = 60 };

	assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &t, sizeof(t)), 0);
}

static int raw_connect(const struct fixture *f)
{
	struct sockaddr_un sun = address_of(f);
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	assert_true(fd >= 0);
	assert_int_equal(connect(fd, (struct sockaddr *)&sun, sizeof(sun)), 0);
	set_timeout(fd);
	return fd;
}

static void raw_send(int fd, const void *data, size_t len, const int *fds, unsigned int n_fds)
{
	union {
		struct cmsghdr align;
		char bytes[CMSG_SPACE(4 * sizeof(int))];
	} control = { .bytes = { 0 } };
	struct iovec iov = { .iov_base = (void *)(uintptr_t)data, .iov_len = len };
	struct msghdr h = { .msg_iov = &iov, .msg_iovlen = 1 };

	if (n_fds) {
		struct cmsghdr *c;

		h.msg_control = &control;
		h.msg_controllen = CMSG_SPACE(n_fds * sizeof(int));
		c = CMSG_FIRSTHDR(&h);
		c->cmsg_level = SOL_SOCKET;
		c->cmsg_type = SCM_RIGHTS;
		c->cmsg_len = CMSG_LEN(n_fds * sizeof(int));
		memcpy(CMSG_DATA(c), fds, n_fds * sizeof(int));
	}
	(void)sendmsg(fd, &h, MSG_NOSIGNAL); /* the other side may be gone already */
}

static void send_frame(int fd, const struct frame *frame)
{
	uint8_t bytes[FRAME_BYTES];

	frame_encode(frame, bytes);
	raw_send(fd, bytes, sizeof(bytes), NULL, 0);
}

static size_t hello_message(uint8_t *out, uint32_t version)
{
	struct hello hello = { .process = "hostile", .version = version, .pid = 1 };
	struct frame frame = { .op = FRAME_HELLO };

	frame.payload = (uint32_t)hello_pack(&hello, out + FRAME_BYTES);
	frame_encode(&frame, out);
	return FRAME_BYTES + frame.payload;
}

static void send_hello(int fd)
{
	uint8_t bytes[FRAME_BYTES + HELLO_BYTES_MAX];

	raw_send(fd, bytes, hello_message(bytes, FRAME_VERSION), NULL, 0);
}

static void read_exact(int fd, void *data, size_t len)
{
	assert_int_equal(recv(fd, data, len, MSG_WAITALL), len);
}

/* The next message's header; its payload is thrown away. */
static void read_frame(int fd, struct frame *ret_frame)
{
	uint8_t bytes[FRAME_BYTES];
	char rest[FRAME_SMALL_BYTES];

	read_exact(fd, bytes, sizeof(bytes));
	assert_int_equal(frame_decode(bytes, ret_frame), 0);
	assert_true(ret_frame->payload <= sizeof(rest));
	if (ret_frame->payload)
		read_exact(fd, rest, ret_frame->payload);
}

static void expect_closed(int fd)
{
	char piece[4096];
	ssize_t n;

	do
		n = recv(fd, piece, sizeof(piece), 0);
	while (n > 0);
	assert_true(n == 0 || errno == ECONNRESET);
	assert_int_equal(close(fd), 0);
}

/* ---- a good server, hostile peers ------------------------------------------------------------ */

static void on_request(struct rpc_request *request, void *arg)
{
	struct frame reply = { .generation = request->frame.generation };
	struct net_payload payload = NET_PAYLOAD_NONE;
	struct fixture *f = arg;
	uint64_t value = 0;

	f->requests++;
	if (request->fd >= 0 && pread(request->fd, &value, sizeof(value), 0) == sizeof(value)) {
		f->with_fd++;
		reply.generation = value;
	}
	payload.parts[0].data = large;
	payload.parts[0].len = request->frame.length;
	payload.n = 1;
	reply.length = request->frame.length;
	rpc_reply(request, 0, &reply, payload);
}

static const struct rpc_server_ops server_ops = { .on_request = on_request };

static int setup(void **state)
{
	struct fixture *f = calloc(1, sizeof(*f));
	struct err e = ERR_INIT;

	assert_non_null(f);
	(void)snprintf(f->dir, sizeof(f->dir), "/tmp/granary-test-XXXXXX");
	assert_non_null(mkdtemp(f->dir));
	(void)snprintf(f->address, sizeof(f->address), "unix:%s/rpc", f->dir);
	f->loop = loop_new("net");
	assert_int_equal(rpc_client_new(f->loop, f->address, &f->client, &e), 0);
	*state = f;
	return 0;
}

static void check_alive(struct fixture *f)
{
	struct rpc_call call = { .frame = { .op = FRAME_FETCH, .generation = 42 },
		.deadline_ns = clock_mono_ns() + 60 * CLOCK_SECOND };

	assert_int_equal(rpc_call_wait(f->client, &call, NULL), 0);
	assert_int_equal(call.reply.generation, 42);
	rpc_call_release(&call);
}

static int setup_server(void **state)
{
	struct err e = ERR_INIT;
	struct fixture *f;

	(void)setup(state);
	f = *state;
	assert_int_equal(rpc_server_new(f->loop, f->address, &server_ops, f, &f->server, &e), 0);
	check_alive(f);
	f->fds = count_fds();
	return 0;
}

static int teardown(void **state)
{
	struct fixture *f = *state;

	rpc_client_free(f->client);
	rpc_server_free(f->server);
	loop_free(f->loop);
	assert_int_equal(rmdir(f->dir), 0);
	free(f);
	return 0;
}

/* Everything that came in was closed again; the loop closes a little later than it answers. */
static void expect_no_leak(const struct fixture *f)
{
	test_wait(count_fds() == f->fds);
}

static void test_garbage(void **state)
{
	static const char request[] = "GET / HTTP/1.1\r\nHost: this is no frame but has more than "
				      "eighty bytes in it\r\n\r\n";
	struct fixture *f = *state;
	int fd = raw_connect(f);

	raw_send(fd, request, sizeof(request), NULL, 0);
	expect_closed(fd);
	fd = raw_connect(f);
	send_hello(fd);
	raw_send(fd, request, sizeof(request), NULL, 0);
	expect_closed(fd);
	check_alive(f);
	expect_no_leak(f);
}

static void test_wrong_frames(void **state)
{
	const struct frame wrong[] = {
		{ .op = FRAME_HELLO },                                       /* twice */
		{ .op = FRAME_FETCH, .flags = FRAME_REPLY },                 /* nobody asked */
		{ .op = FRAME_FETCH, .length = LIMIT_PAYLOAD_BYTES + 1 },    /* too much */
		{ .op = FRAME_GET_SLOTS, .payload = LIMIT_FRAME_BYTES + 1 }, /* too much */
		{ .op = FRAME_FETCH, .payload = UINT32_MAX },                /* far too much */
		{ .op = FRAME_FETCH, .flags = FRAME_FD },                    /* but none comes */
		{ .op = FRAME_CANCEL, .payload = 1 },                        /* carries nothing */
		{ .op = FRAME_FETCH, .offset = UINT64_MAX, .length = 4096 }, /* wraps around */
		{ .op = FRAME_FETCH, .lane = 1 },                            /* none is open */
		{ .op = FRAME_PREFETCH, .lane = 1 },                         /* moves no bytes */
	};
	struct fixture *f = *state;

	for (unsigned int i = 0; i < ARRAY_SIZE(wrong); i++) {
		int fd = raw_connect(f);

		send_hello(fd);
		send_frame(fd, &wrong[i]);
		expect_closed(fd);
	}
	check_alive(f);
	expect_no_leak(f);
}

static void test_no_greeting(void **state)
{
	struct fixture *f = *state;
	int fd = raw_connect(f);
	struct frame frame = { .op = FRAME_FETCH, .id = 1 };

	send_frame(fd, &frame);
	expect_closed(fd);
	check_alive(f);
}

static void test_other_version(void **state)
{
	uint8_t bytes[FRAME_BYTES + HELLO_BYTES_MAX];
	struct fixture *f = *state;
	struct frame greeting;
	int fd = raw_connect(f);
	size_t n = hello_message(bytes, FRAME_VERSION + 1);

	raw_send(fd, bytes, n, NULL, 0);
	read_frame(fd, &greeting); /* it hears our version before it is left */
	assert_int_equal(greeting.op, FRAME_HELLO);
	expect_closed(fd);
	fd = raw_connect(f);
	bytes[4] = FRAME_VERSION + 1; /* the header's own */
	raw_send(fd, bytes, n, NULL, 0);
	expect_closed(fd);
	check_alive(f);
}

static void test_silent(void **state)
{
	uint8_t bytes[FRAME_BYTES];
	struct frame frame = { .op = FRAME_GET_SLOTS, .payload = 1000 };
	struct fixture *f = *state;
	int silent = raw_connect(f);
	int half_header = raw_connect(f);
	int half_payload = raw_connect(f);

	frame_encode(&frame, bytes);
	send_hello(half_header);
	raw_send(half_header, bytes, 40, NULL, 0);
	send_hello(half_payload);
	send_frame(half_payload, &frame);
	raw_send(half_payload, bytes, 80, NULL, 0);
	check_alive(f); /* they hold nobody up */
	assert_int_equal(close(silent), 0);
	assert_int_equal(close(half_header), 0);
	assert_int_equal(close(half_payload), 0);
	check_alive(f);
	expect_no_leak(f);
}

static void test_duplicate_and_unknown_ids(void **state)
{
	struct frame cancel = { .op = FRAME_CANCEL, .id = 999 };
	struct frame frame = { .op = FRAME_FETCH, .id = 7, .generation = 5 };
	struct fixture *f = *state;
	struct frame reply;
	int fd = raw_connect(f);

	send_hello(fd);
	read_frame(fd, &reply);
	send_frame(fd, &cancel);      /* crossed its reply: no harm */
	for (int i = 0; i < 2; i++) { /* an id is free again once it was answered */
		send_frame(fd, &frame);
		read_frame(fd, &reply);
		assert_int_equal(reply.id, 7);
		assert_int_equal(reply.generation, 5);
		assert_int_equal(reply.flags, FRAME_REPLY);
	}
	assert_int_equal(close(fd), 0);
	expect_no_leak(f);
}

static int memfd_with(uint64_t value)
{
	int fd = memfd_create("test", MFD_CLOEXEC);

	assert_true(fd >= 0);
	assert_int_equal(write(fd, &value, sizeof(value)), sizeof(value));
	return fd;
}

static void test_unexpected_descriptors(void **state)
{
	uint8_t bytes[2 * FRAME_BYTES];
	struct frame frame = { .op = FRAME_FETCH };
	struct fixture *f = *state;
	int fds[4];
	int fd;

	for (unsigned int i = 0; i < ARRAY_SIZE(fds); i++)
		fds[i] = memfd_with(i);
	frame_encode(&frame, bytes);
	fd = raw_connect(f);
	send_hello(fd);
	raw_send(fd, bytes, FRAME_BYTES, fds, 1); /* nothing says that it comes */
	expect_closed(fd);
	frame.flags = FRAME_FD;
	frame_encode(&frame, bytes);
	fd = raw_connect(f);
	send_hello(fd);
	raw_send(fd, bytes, FRAME_BYTES, fds, 4); /* more than one */
	expect_closed(fd);
	fd = raw_connect(f);
	send_hello(fd);
	raw_send(fd, bytes, 10, fds, 1); /* one after another on one frame */
	raw_send(fd, bytes + 10, 10, fds, 1);
	raw_send(fd, bytes + 20, 10, fds, 1);
	expect_closed(fd);
	fd = raw_connect(f);
	send_hello(fd);
	raw_send(fd, bytes, 10, fds, 1); /* and gone before the frame is whole */
	assert_int_equal(close(fd), 0);
	for (unsigned int i = 0; i < ARRAY_SIZE(fds); i++)
		assert_int_equal(close(fds[i]), 0);
	check_alive(f);
	expect_no_leak(f);
}

/* Whatever way the kernel cuts the stream, each frame gets its own descriptor. */
static void test_dribble(void **state)
{
	struct fixture *f = *state;
	int fd = raw_connect(f);
	uint8_t hello[FRAME_BYTES + HELLO_BYTES_MAX];
	size_t n = hello_message(hello, FRAME_VERSION);
	struct frame reply;

	for (size_t i = 0; i < n; i++)
		raw_send(fd, hello + i, 1, NULL, 0);
	read_frame(fd, &reply);
	for (unsigned int step = 1; step <= 200; step += 13) {
		uint8_t bytes[FRAME_BYTES + 100];
		struct frame frame = {
			.op = FRAME_FETCH, .id = step, .payload = 100, .generation = step
		};
		bool with_fd = step % 2 == 0;
		int passed = with_fd ? memfd_with(1000 + step) : -1;

		if (with_fd)
			frame.flags = FRAME_FD;
		memset(bytes, 0, sizeof(bytes));
		frame_encode(&frame, bytes);
		for (size_t at = 0; at < sizeof(bytes); at += step)
			raw_send(fd, bytes + at, min((size_t)step, sizeof(bytes) - at), &passed,
				with_fd && at == 0);
		read_frame(fd, &reply);
		assert_int_equal(reply.id, step);
		assert_int_equal(reply.generation, with_fd ? 1000 + step : step);
		if (with_fd)
			assert_int_equal(close(passed), 0);
	}
	assert_true(f->with_fd > 3);
	assert_int_equal(close(fd), 0);
	expect_no_leak(f);
}

/* A peer that asks and does not take: no more is read from it than the bound lets answers pile up;
 * nothing is lost. */
static void test_takes_nothing(void **state)
{
	enum { N = 300, BOUND = LIMIT_CONN_OUT_BYTES / LIMIT_PAYLOAD_BYTES };
	struct frame frame = { .op = FRAME_FETCH, .length = LIMIT_PAYLOAD_BYTES };
	struct fixture *f = *state;
	int fd = raw_connect(f);
	unsigned int before = f->requests;
	struct frame reply;
	_cleanup_free_ uint8_t *answer = malloc(LIMIT_PAYLOAD_BYTES);
	static uint8_t requests[N * FRAME_BYTES];

	send_hello(fd);
	for (unsigned int i = 0; i < N; i++) {
		frame.id = i;
		frame_encode(&frame, requests + i * FRAME_BYTES);
	}
	raw_send(fd, requests, sizeof(requests), NULL, 0); /* at once: fits the socket */
	test_wait(f->requests - before >= BOUND);
	for (int i = 0; i < 50; i++)
		check_alive(f); /* the same loop: had it gone on reading, it would have by now */
	assert_in_range(f->requests - before - 50, BOUND, BOUND + 2);
	read_frame(fd, &reply);
	for (unsigned int i = 0; i < N; i++) {
		uint8_t bytes[FRAME_BYTES];

		read_exact(fd, bytes, sizeof(bytes));
		assert_int_equal(frame_decode(bytes, &reply), 0);
		assert_int_equal(reply.id, i);
		assert_int_equal(reply.payload, LIMIT_PAYLOAD_BYTES);
		read_exact(fd, answer, reply.payload);
	}
	assert_int_equal(close(fd), 0);
	expect_no_leak(f);
}

/* ---- a good client, hostile servers ---------------------------------------------------------- */

static int raw_listen(const struct fixture *f)
{
	struct sockaddr_un sun = address_of(f);
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	assert_true(fd >= 0);
	assert_int_equal(bind(fd, (struct sockaddr *)&sun, sizeof(sun)), 0);
	assert_int_equal(listen(fd, 5), 0);
	set_timeout(fd);
	return fd;
}

/* Accepts, greets, and takes the client's first request. */
static int take_request(int listener, struct frame *ret_request)
{
	int fd = accept(listener, NULL, NULL);

	assert_true(fd >= 0);
	set_timeout(fd);
	send_hello(fd);
	read_frame(fd, ret_request);
	assert_int_equal(ret_request->op, FRAME_HELLO);
	read_frame(fd, ret_request);
	return fd;
}

static void test_hostile_server(void **state)
{
	struct fixture *f = *state;
	struct call_result result = { .n = 0 };
	struct rpc_call call = { .frame = { .op = FRAME_FETCH },
		.resend = true,
		.on_done = call_result_note,
		.arg = &result,
		.deadline_ns = clock_mono_ns() + 60 * CLOCK_SECOND };
	int listener = raw_listen(f);
	struct frame reply;
	int fd;

	rpc_call(f->client, &call);
	fd = take_request(listener, &reply); /* an id that nobody asked for */
	reply.flags = FRAME_REPLY;
	reply.id += 17;
	send_frame(fd, &reply);
	expect_closed(fd);
	fd = take_request(listener, &reply); /* it came back; another operation's reply */
	reply.flags = FRAME_REPLY;
	reply.op = FRAME_GET_SLOTS;
	send_frame(fd, &reply);
	expect_closed(fd);
	fd = take_request(listener, &reply); /* by a lane that nobody opened */
	reply.flags = FRAME_REPLY;
	reply.lane = 1;
	send_frame(fd, &reply);
	expect_closed(fd);
	fd = take_request(listener, &reply); /* a request to a client */
	send_frame(fd, &reply);
	expect_closed(fd);
	fd = take_request(listener, &reply); /* half a reply, then gone */
	reply.flags = FRAME_REPLY;
	reply.length = 1000;
	reply.payload = 1000;
	send_frame(fd, &reply);
	assert_int_equal(close(fd), 0);
	assert_int_equal(result.n, 0);
	fd = take_request(listener, &reply);
	reply.flags = FRAME_REPLY;
	reply.status = -ESTALE;
	send_frame(fd, &reply);
	test_wait(result.n > 0);
	assert_int_equal(result.status, -ESTALE);
	send_frame(fd, &reply); /* a second time */
	expect_closed(fd);
	assert_int_equal(close(listener), 0);
	assert_int_equal(unlink(f->address + strlen("unix:")), 0);
}

static void test_server_of_other_version(void **state)
{
	uint8_t bytes[FRAME_BYTES + HELLO_BYTES_MAX];
	size_t n = hello_message(bytes, FRAME_VERSION + 1);
	struct fixture *f = *state;
	struct call_result result = { .n = 0 };
	struct rpc_call call = {
		.frame = { .op = FRAME_FETCH }, .on_done = call_result_note, .arg = &result
	};
	int listener = raw_listen(f);
	int fd;

	rpc_call(f->client, &call); /* without a deadline: it must not wait for ever */
	fd = accept(listener, NULL, NULL);
	assert_true(fd >= 0);
	set_timeout(fd);
	raw_send(fd, bytes, n, NULL, 0);
	test_wait(result.n > 0);
	assert_int_equal(result.status, -EPROTONOSUPPORT);
	assert_non_null(strstr(result.text, "another version"));
	expect_closed(fd);
	assert_int_equal(close(listener), 0);
	assert_int_equal(unlink(f->address + strlen("unix:")), 0);
}

static void test_no_room_for_descriptor(void **state)
{
	struct fixture *f = *state;
	struct call_result result = { .n = 0 };
	struct rpc_call call = {
		.frame = { .op = FRAME_FETCH }, .on_done = call_result_note, .arg = &result
	};
	int listener = raw_listen(f);
	uint8_t bytes[FRAME_BYTES];
	struct rlimit old;
	struct rlimit low;
	struct frame reply;
	int held[300];
	int n = 0;
	int fd;

	rpc_call(f->client, &call);
	fd = take_request(listener, &reply);
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &old), 0);
	low = (struct rlimit){ .rlim_cur = 256, .rlim_max = old.rlim_max };
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &low), 0);
	while (n < 300 && (held[n] = dup(0)) >= 0)
		n++;
	assert_true(n < 300);
	reply.flags = FRAME_REPLY | FRAME_FD;
	frame_encode(&reply, bytes);
	raw_send(fd, bytes, sizeof(bytes), &fd, 1);
	test_wait(result.n > 0);
	while (n > 0)
		assert_int_equal(close(held[--n]), 0);
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &old), 0);
	assert_int_equal(result.status, -EMFILE);
	assert_true(rpc_client_connected(f->client)); /* the connection is as good as before */
	assert_int_equal(close(fd), 0);
	assert_int_equal(close(listener), 0);
	assert_int_equal(unlink(f->address + strlen("unix:")), 0);
}

#define BEFORE_SERVER(test) cmocka_unit_test_setup_teardown(test, setup_server, teardown)
#define BEFORE_CLIENT(test) cmocka_unit_test_setup_teardown(test, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		BEFORE_SERVER(test_garbage),
		BEFORE_SERVER(test_wrong_frames),
		BEFORE_SERVER(test_no_greeting),
		BEFORE_SERVER(test_other_version),
		BEFORE_SERVER(test_silent),
		BEFORE_SERVER(test_duplicate_and_unknown_ids),
		BEFORE_SERVER(test_unexpected_descriptors),
		BEFORE_SERVER(test_dribble),
		BEFORE_SERVER(test_takes_nothing),
		BEFORE_CLIENT(test_hostile_server),
		BEFORE_CLIENT(test_server_of_other_version),
		BEFORE_CLIENT(test_no_room_for_descriptor),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
