/* A server process that is killed and comes back: what may be sent again is answered, the rest is
 * told. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include "base/clock.h"
#include "net/net.h"

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
	while (ended < CALLS)
		clock_sleep_ns(CLOCK_MS);
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

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_killed),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
