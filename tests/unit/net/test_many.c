/* More connections than the share of descriptors, more requests than there is memory for. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>
#include "base/arena.h"
#include "base/bounds.h"
#include "base/clock.h"
#include "net/net.h"
#include "tests/clock/test_clock.h"

#define DESCRIPTORS 256u /* a quarter is for connections */
#define CONNS       (DESCRIPTORS / 4)
#define CALLS       200u
#define DEADLINE    (60 * CLOCK_SECOND)

struct fixture {
	struct loop *loop;
	struct rpc_server *server;
	char dir[64];
	char address[80];
	pthread_mutex_t lock;
	struct list parked;
	unsigned int n_parked;
	bool park;
	_Atomic unsigned int done;
};

static void reply(struct rpc_request *request)
{
	rpc_reply(request, 0, NULL, NET_PAYLOAD_NONE);
}

static void on_request(struct rpc_request *request, void *arg)
{
	struct fixture *f = arg;
	bool park;

	pthread_mutex_lock(&f->lock);
	park = f->park;
	if (park) {
		list_push_back(&f->parked, &request->link);
		f->n_parked++;
	}
	pthread_mutex_unlock(&f->lock);
	if (!park)
		reply(request);
}

static const struct rpc_server_ops ops = { .on_request = on_request };

static unsigned int parked(struct fixture *f)
{
	unsigned int n;

	pthread_mutex_lock(&f->lock);
	n = f->n_parked;
	pthread_mutex_unlock(&f->lock);
	return n;
}

/* Answers what is parked, and whatever comes from now on. */
static void unpark(struct fixture *f)
{
	struct list all = LIST_INIT(all);
	struct list *node;

	pthread_mutex_lock(&f->lock);
	f->park = false;
	list_splice_back(&all, &f->parked);
	pthread_mutex_unlock(&f->lock);
	while ((node = list_pop_front(&all)) != NULL)
		reply(list_entry(node, struct rpc_request, link));
}

static int setup(void **state)
{
	struct fixture *f = calloc(1, sizeof(*f));

	assert_non_null(f);
	(void)snprintf(f->dir, sizeof(f->dir), "/tmp/granary-test-XXXXXX");
	assert_non_null(mkdtemp(f->dir));
	(void)snprintf(f->address, sizeof(f->address), "unix:%s/rpc", f->dir);
	pthread_mutex_init(&f->lock, NULL);
	list_init(&f->parked);
	f->loop = loop_new("net");
	assert_non_null(f->loop);
	*state = f;
	return 0;
}

static int teardown(void **state)
{
	struct fixture *f = *state;

	rpc_server_free(f->server);
	loop_free(f->loop);
	assert_int_equal(rmdir(f->dir), 0);
	pthread_mutex_destroy(&f->lock);
	free(f);
	return 0;
}

static void serve(struct fixture *f)
{
	struct err e = ERR_INIT;

	assert_int_equal(rpc_server_new(f->loop, f->address, &ops, f, &f->server, &e), 0);
}

static int ask(struct rpc_client *client, uint64_t patience)
{
	struct rpc_call call = { .frame = { .op = FRAME_FETCH },
		.deadline_ns = clock_mono_ns() + patience };
	int r = rpc_call_wait(client, &call, NULL);

	rpc_call_release(&call);
	return r;
}

static struct rpc_client *connect_to(struct fixture *f)
{
	struct rpc_client *client;
	struct err e = ERR_INIT;

	assert_int_equal(rpc_client_new(f->loop, f->address, &client, &e), 0);
	return client;
}

/* Whoever comes when all places are taken is turned away and gets in later: nobody spins or dies. */
static void test_connections(void **state)
{
	struct fixture *f = *state;
	struct rpc_client *clients[CONNS + 1];
	struct rlimit limit;
	struct bound_use use;
	uint64_t until = clock_mono_ns() + DEADLINE;
	int r;

	assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
	limit.rlim_cur = DESCRIPTORS;
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
	serve(f);
	for (unsigned int i = 0; i < CONNS; i++) {
		clients[i] = connect_to(f);
		assert_int_equal(ask(clients[i], DEADLINE), 0);
	}
	bound_use(BOUND_CONNECTIONS, &use);
	assert_int_equal(use.used, CONNS);
	assert_int_equal(use.max, CONNS);
	clients[CONNS] = connect_to(f);
	assert_int_not_equal(ask(clients[CONNS], 300 * CLOCK_MS), 0);
	assert_int_equal(ask(clients[0], DEADLINE), 0); /* others do not notice */
	rpc_client_free(clients[0]);
	while ((r = ask(clients[CONNS], CLOCK_SECOND)) != 0 && clock_mono_ns() < until)
		;
	assert_int_equal(r, 0);
	for (unsigned int i = 1; i <= CONNS; i++)
		rpc_client_free(clients[i]);
}

static void on_done(struct rpc_call *call, int status)
{
	struct fixture *f = call->arg;

	assert_int_equal(status, 0);
	f->done++;
}

/* Past the memory for requests each connection has one in progress; all are answered in the end. */
static void test_requests(void **state)
{
	static struct rpc_call calls[2][CALLS];
	struct fixture *f = *state;
	struct rpc_client *clients[2];
	struct arena_use use;

	serve(f);
	f->park = true;
	arena_open(1ull << 30, NULL);
	arena_share(ARENA_CONNECTIONS, 0, 100000); /* two connections, and a few requests */
	assert_int_equal(arena_start_done("--memory", NULL), 0);
	for (unsigned int c = 0; c < 2; c++)
		clients[c] = connect_to(f);
	for (unsigned int i = 0; i < CALLS; i++)
		for (unsigned int c = 0; c < 2; c++) {
			calls[c][i] = (struct rpc_call){
				.frame = { .op = FRAME_FETCH }, .on_done = on_done, .arg = f
			};
			rpc_call(clients[c], &calls[c][i]);
		}
	test_wait(parked(f) >= 2);
	test_advance(20 * CLOCK_MS); /* for more than should come */
	assert_in_range(parked(f), 2, CALLS / 2);
	unpark(f);
	test_wait(f->done == 2 * CALLS);
	for (unsigned int c = 0; c < 2; c++)
		rpc_client_free(clients[c]);
	rpc_server_free(f->server);
	f->server = NULL;
	arena_use(ARENA_CONNECTIONS, &use);
	assert_int_equal(use.used, 0);
	assert_int_equal(bound_used(BOUND_REQUESTS), 0);
	assert_int_equal(bound_used(BOUND_CONNECTIONS), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_connections, setup, teardown),
		cmocka_unit_test_setup_teardown(test_requests, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
