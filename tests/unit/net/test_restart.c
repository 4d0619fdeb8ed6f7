/* A server process that is killed and comes back: what may be sent again is answered, the rest is
 * told. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>
#include "base/clock.h"
#include "net/net.h"
#include "tests/clock/test_clock.h"

#define CALLS 200u

static void on_request_park(struct rpc_request *request, void *arg)
{
	int *pipe_fd = arg;
	char byte = 'p';

	(void)request; /* never answered: the process is killed */
	if (write(*pipe_fd, &byte, 1) != 1)
		abort();
}

static void on_request_echo(struct rpc_request *request, void *arg)
{
	struct frame reply = { .generation = request->frame.offset };

	(void)arg;
	rpc_reply(request, 0, &reply, NET_PAYLOAD_NONE);
}

/* A server in a process of its own, which starts when a byte comes through `start_fd`. */
static pid_t fork_server(
	const char *address, const struct rpc_server_ops *ops, int start_fd, int note_fd)
{
	struct rpc_server *server;
	struct loop *loop;
	struct err e = ERR_INIT;
	char byte;
	pid_t pid = fork();

	assert_true(pid >= 0);
	if (pid > 0)
		return pid;
	if (read(start_fd, &byte, 1) != 1)
		_exit(1);
	loop = loop_new("server");
	if (!loop || rpc_server_new(loop, address, ops, &note_fd, &server, &e) != 0)
		_exit(2);
	for (;;)
		pause();
}

static _Atomic unsigned int ended;
static _Atomic int statuses[CALLS];
static _Atomic uint64_t answers[CALLS];

static void on_done(struct rpc_call *call, int status)
{
	unsigned int i = (unsigned int)(uintptr_t)call->arg;

	statuses[i] = status;
	answers[i] = call->reply.generation;
	rpc_call_release(call);
	ended++;
}

static void start_calls(struct rpc_client *client, struct rpc_call *calls)
{
	for (unsigned int i = 0; i < CALLS; i++) {
		calls[i] = (struct rpc_call){ .frame = { .op = FRAME_FETCH, .offset = 1000 + i },
			.resend = i % 2 == 0,
			.deadline_ns = clock_mono_ns() + 60 * CLOCK_SECOND,
			.on_done = on_done,
			.arg = (void *)(uintptr_t)i };
		rpc_call(client, &calls[i]);
	}
}

static void test_killed(void **state)
{
	const struct rpc_server_ops park = { .on_request = on_request_park };
	const struct rpc_server_ops echo = { .on_request = on_request_echo };
	static struct rpc_call calls[CALLS];
	char dir[] = "/tmp/granary-test-XXXXXX";
	char address[64];
	struct rpc_client *client;
	struct err e = ERR_INIT;
	struct loop *loop;
	int start[2][2];
	int note[2];
	pid_t first;
	pid_t second;
	char byte;

	(void)state;
	assert_non_null(mkdtemp(dir));
	(void)snprintf(address, sizeof(address), "unix:%s/rpc", dir);
	assert_int_equal(pipe(start[0]), 0);
	assert_int_equal(pipe(start[1]), 0);
	assert_int_equal(pipe(note), 0);
	first = fork_server(address, &park, start[0][0], note[1]);
	second = fork_server(address, &echo, start[1][0], note[1]);
	loop = loop_new("client");
	assert_int_equal(rpc_client_new(loop, address, &client, &e), 0);
	start_calls(client, calls); /* before there is a server: they wait */
	assert_int_equal(write(start[0][1], "s", 1), 1);
	for (unsigned int i = 0; i < CALLS; i++)
		assert_int_equal(read(note[0], &byte, 1), 1); /* each one arrived */
	assert_int_equal(ended, 0);
	assert_int_equal(kill(first, SIGKILL), 0);
	assert_int_equal(waitpid(first, NULL, 0), first);
	assert_int_equal(write(start[1][1], "s", 1), 1); /* takes the dead one's socket over */
	test_wait(ended == CALLS);
	for (unsigned int i = 0; i < CALLS; i++) {
		assert_int_equal(statuses[i], i % 2 == 0 ? 0 : -ECONNRESET);
		if (i % 2 == 0)
			assert_int_equal(answers[i], 1000 + i);
	}
	rpc_client_free(client);
	loop_free(loop);
	assert_int_equal(kill(second, SIGKILL), 0);
	assert_int_equal(waitpid(second, NULL, 0), second);
	assert_int_equal(unlink(address + strlen("unix:")), 0);
	assert_int_equal(rmdir(dir), 0);
}

/* Listens at the path, and takes no connection until it is told to. */
static int listen_mutely(const char *path)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	(void)snprintf(address.sun_path, sizeof(address.sun_path), "%s", path);
	(void)unlink(path);
	assert_int_equal(bind(fd, (const struct sockaddr *)&address, sizeof(address)), 0);
	assert_int_equal(listen(fd, 8), 0);
	return fd;
}

/* A peer that was there, and whose machine takes connections and says nothing: as if the wire was cut. */
static void test_hurried_calls_wait_for_no_second_connection(void **state)
{
	const struct rpc_server_ops echo = { .on_request = on_request_echo };
	struct rpc_call call = { .frame = { .op = FRAME_FETCH, .offset = 1000 }, .hurry = true };
	char dir[] = "/tmp/granary-test-XXXXXX";
	char address[64];
	struct rpc_server *server;
	struct rpc_client *client;
	struct err e = ERR_INIT;
	struct loop *loop;
	struct pollfd mute = { .events = POLLIN };
	struct pollfd taken = { .events = POLLRDHUP };
	int r;

	(void)state;
	assert_non_null(mkdtemp(dir));
	(void)snprintf(address, sizeof(address), "unix:%s/rpc", dir);
	loop = loop_new("test");
	assert_int_equal(rpc_server_new(loop, address, &echo, NULL, &server, &e), 0);
	assert_int_equal(rpc_client_new(loop, address, &client, &e), 0);
	assert_int_equal(rpc_call_wait(client, &call, NULL), 0); /* the first one is waited for */
	rpc_call_release(&call);
	rpc_server_free(server);
	mute.fd = listen_mutely(address + strlen("unix:"));
	assert_int_equal(poll(&mute, 1, 60000), 1);
	taken.fd = accept4(mute.fd, NULL, NULL, SOCK_CLOEXEC);
	assert_true(taken.fd >= 0);
	r = rpc_call_wait(client, &call, NULL);
	assert_true(r == -ECONNREFUSED || r == -ECONNRESET || r == -ENOENT);
	assert_int_equal(poll(&taken, 1, 0), 0); /* that attempt goes on */
	rpc_call_release(&call);
	rpc_client_free(client);
	loop_free(loop);
	(void)close(taken.fd);
	(void)close(mute.fd);
	assert_int_equal(unlink(address + strlen("unix:")), 0);
	assert_int_equal(rmdir(dir), 0);
}

/* Takes connections, says nothing and closes them, until it is shut down; counts. */
struct closer {
	char address[64];
	int fd;
	pthread_t thread;
	_Atomic unsigned int met;
};

static void *run_closer(void *arg)
{
	struct closer *c = arg;
	int fd;

	while ((fd = accept4(c->fd, NULL, NULL, SOCK_CLOEXEC)) >= 0) {
		c->met++;
		(void)close(fd);
	}
	return NULL;
}

static void closer_begin(struct closer *c, const char *dir, const char *name)
{
	(void)snprintf(c->address, sizeof(c->address), "unix:%s/%s", dir, name);
	c->fd = listen_mutely(c->address + strlen("unix:"));
	c->met = 0;
	assert_int_equal(pthread_create(&c->thread, NULL, run_closer, c), 0);
}

static void closer_end(struct closer *c)
{
	(void)shutdown(c->fd, SHUT_RDWR);
	assert_int_equal(pthread_join(c->thread, NULL), 0);
	(void)close(c->fd);
	assert_int_equal(unlink(c->address + strlen("unix:")), 0);
}

static void hurry(struct rpc_client *client)
{
	struct rpc_call call = { .frame = { .op = FRAME_FETCH, .offset = 1000 }, .hurry = true };

	assert_true(rpc_call_wait(client, &call, NULL) < 0);
	rpc_call_release(&call);
}

/* The pauses of an eager one do not double beyond its own while it is missed; another one's do, up to 2 s. */
static void test_an_eager_one_is_soon_tried_again(void **state)
{
	char dir[] = "/tmp/granary-test-XXXXXX";
	struct closer closers[2];
	struct rpc_client *eager;
	struct rpc_client *other;
	struct err e = ERR_INIT;
	struct loop *loop;

	(void)state;
	assert_non_null(mkdtemp(dir));
	closer_begin(&closers[0], dir, "eager");
	closer_begin(&closers[1], dir, "other");
	loop = loop_new("test");
	assert_int_equal(rpc_client_new(loop, closers[0].address, &eager, &e), 0);
	assert_int_equal(rpc_client_new(loop, closers[1].address, &other, &e), 0);
	rpc_client_eager(eager, 2 * CLOCK_MS, NULL, NULL);
	while (closers[0].met < 200) {
		hurry(eager); /* both are asked as often */
		hurry(other);
		test_advance(CLOCK_MS);
	}
	assert_in_range(closers[1].met, 1, 100);
	rpc_client_free(eager);
	rpc_client_free(other);
	loop_free(loop);
	closer_end(&closers[0]);
	closer_end(&closers[1]);
	assert_int_equal(rmdir(dir), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_killed),
		cmocka_unit_test(test_hurried_calls_wait_for_no_second_connection),
		cmocka_unit_test(test_an_eager_one_is_soon_tried_again),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
