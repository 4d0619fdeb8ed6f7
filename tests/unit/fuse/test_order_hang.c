/*
 * Jobs that show the order feed a file of a FUSE whose daemon opens it and never lets anybody close
 * it. Needs CAP_SYS_ADMIN and /dev/fuse; skipped without, and says so.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <linux/fuse.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/little.h"
#include "base/unix_socket.h"
#include "fuse/order/order_internal.h"

#define FILE_NODE 2u

struct reply {
	struct fuse_out_header head;
	union {
		struct fuse_init_out init;
		struct fuse_entry_out entry;
		struct fuse_open_out open;
	} body;
};

/* 0: no answer. */
static size_t answer_request(const struct fuse_in_header *in, struct reply *out)
{
	out->head.unique = in->unique;
	switch (in->opcode) {
	case FUSE_INIT:
		out->body.init.major = FUSE_KERNEL_VERSION;
		out->body.init.minor = 31;
		out->body.init.max_write = 65536;
		return sizeof(out->head) + sizeof(out->body.init);
	case FUSE_LOOKUP:
		out->body.entry.nodeid = FILE_NODE;
		out->body.entry.attr_valid = out->body.entry.entry_valid = 1000;
		out->body.entry.attr.ino = FILE_NODE;
		out->body.entry.attr.mode = S_IFREG | 0644;
		out->body.entry.attr.nlink = 1;
		return sizeof(out->head) + sizeof(out->body.entry);
	case FUSE_OPEN:
		return sizeof(out->head) + sizeof(out->body.open);
	case FUSE_FLUSH:
		return 0;
	default:
		out->head.error = -ENOSYS;
		return sizeof(out->head);
	}
}

_Noreturn static void serve(int dev)
{
	static _Alignas(8) uint8_t request[1 << 18];

	for (;;) {
		struct reply out = { 0 };
		ssize_t n = read(dev, request, sizeof(request));

		if (n < 0 && errno == ENODEV)
			_exit(0);
		if (n < (ssize_t)sizeof(struct fuse_in_header))
			continue;
		out.head.len = (uint32_t)answer_request((const void *)request, &out);
		if (out.head.len)
			(void)!write(dev, &out, out.head.len);
	}
}

/* What the feed says to somebody who shows it that descriptor. */
static int greet(const char *socket_path, int shown)
{
	_Alignas(struct cmsghdr) char control[CMSG_SPACE(sizeof(int))] = { 0 };
	uint8_t data[ORDER_HELLO_BYTES];
	uint8_t reply[ORDER_REPLY_MAX];
	struct iovec iov = { .iov_base = data, .iov_len = sizeof(data) };
	struct msghdr msg = { .msg_iov = &iov,
		.msg_iovlen = 1,
		.msg_control = control,
		.msg_controllen = sizeof(control) };
	struct cmsghdr *c = CMSG_FIRSTHDR(&msg);
	ssize_t n;
	int fd;

	if (unix_socket_connect(socket_path, &fd) < 0 || fcntl(fd, F_SETFL, 0) != 0)
		return 1;
	little_put32(data, ORDER_HELLO);
	little_put32(data + 4, 4);
	little_put32(data + ORDER_HEAD_BYTES, ORDER_VERSION);
	c->cmsg_level = SOL_SOCKET;
	c->cmsg_type = SCM_RIGHTS;
	c->cmsg_len = CMSG_LEN(sizeof(int));
	memcpy(CMSG_DATA(c), &shown, sizeof(shown));
	if (sendmsg(fd, &msg, MSG_NOSIGNAL) != sizeof(data))
		return 1;
	n = recv(fd, reply, ORDER_HEAD_BYTES + ORDER_REPLY_MIN, MSG_WAITALL);
	(void)close(fd);
	return n < ORDER_HEAD_BYTES + 4 ? 1 : (int32_t)little_get32(reply + ORDER_HEAD_BYTES);
}

/* Opens and shows the file in a process of its own, which does not get rid of it either. */
static int greet_with(const char *socket_path, const char *file, pid_t *ret_pid)
{
	int status = 1;
	int said[2];

	assert_int_equal(pipe(said), 0);
	*ret_pid = fork();
	if (*ret_pid == 0) {
		int fd = open(file, O_RDONLY);

		status = fd < 0 ? 1 : greet(socket_path, fd);
		(void)!write(said[1], &status, sizeof(status));
		_exit(0);
	}
	assert_int_equal(read(said[0], &status, sizeof(status)), sizeof(status));
	(void)close(said[0]);
	(void)close(said[1]);
	return status;
}

/* The feed goes on, and ends. */
static void test_never_closed(void **state)
{
	static const struct order_ops ops = { 0 };
	const struct order_config config = { .ops = &ops, .window_bytes = 1, .memory = 1 };
	char dir[] = "/tmp/granary-order.XXXXXX";
	char path[64];
	char file[64];
	char option[64];
	struct order *order = order_new(&config);
	struct err e = ERR_INIT;
	struct stat st;
	pid_t jobs[2];
	pid_t server;
	int own;
	int dev;

	(void)state;
	assert_non_null(mkdtemp(dir));
	dev = open("/dev/fuse", O_RDWR | O_CLOEXEC);
	if (dev < 0 || unshare(CLONE_NEWNS) != 0 ||
		mount(NULL, "/", NULL, MS_PRIVATE | MS_REC, NULL) != 0) {
		print_message("skipped: needs CAP_SYS_ADMIN and /dev/fuse\n");
		order_free(order);
		(void)rmdir(dir);
		skip();
	}
	(void)snprintf(path, sizeof(path), "%s/m", dir);
	(void)snprintf(file, sizeof(file), "%s/m/f", dir);
	(void)snprintf(option, sizeof(option), "fd=%d,rootmode=40000,user_id=0,group_id=0", dev);
	assert_int_equal(mkdir(path, 0755), 0);
	assert_int_equal(mount("test", path, "fuse", 0, option), 0);
	server = fork();
	if (server == 0)
		serve(dev);
	(void)close(dev);
	(void)snprintf(path, sizeof(path), "%s/order", dir);
	assert_int_equal(order_listen(order, path, "x", &e), 0);
	(void)snprintf(path, sizeof(path), "%s/order/x", dir);
	own = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	assert_int_equal(fstat(own, &st), 0);
	order_show(order, st.st_dev);
	for (size_t i = 0; i < ARRAY_SIZE(jobs); i++) {
		assert_int_equal(greet_with(path, file, &jobs[i]), -EACCES);
		assert_int_equal(greet(path, own), 0);
	}
	order_free(order);
	/* Its end is the end of whoever hangs over it. */
	assert_int_equal(kill(server, SIGKILL), 0);
	assert_int_equal(waitpid(server, NULL, 0), server);
	for (size_t i = 0; i < ARRAY_SIZE(jobs); i++)
		assert_int_equal(waitpid(jobs[i], NULL, 0), jobs[i]);
	(void)close(own);
	(void)snprintf(path, sizeof(path), "%s/m", dir);
	assert_int_equal(umount2(path, MNT_DETACH), 0);
	assert_int_equal(rmdir(path), 0);
	(void)snprintf(path, sizeof(path), "%s/order", dir);
	assert_int_equal(rmdir(path), 0);
	assert_int_equal(rmdir(dir), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(test_never_closed) };

	return cmocka_run_group_tests(tests, NULL, NULL);
}
