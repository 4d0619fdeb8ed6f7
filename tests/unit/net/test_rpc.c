/* Calls over each transport: pipelining, payloads, descriptors, cancel, deadline, limits, closing
 * with calls in progress. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/hash.h"
#include "net/fake.h"
#include "net/net.h"
#include "net/transport.h"
#include "tests/debug/faults.h"
#include "tests/debug/net_fault.h"
#include "tests/clock/test_clock.h"
#include "tests/unit/net/cluster_key.h"

/* What the server of the tests does with a request, in frame.lineage. */
enum command {
	ECHO,    /* the payload back, from the loop */
	THREAD,  /* `length` bytes made from the offset, from another thread */
	PIPE,    /* the same out of a pipe, where that can be, with two checksums behind them */
	FD,      /* a descriptor of a file with the offset in it */
	PARK,    /* no answer until cancelled */
	FAIL,    /* a line of text */
	TOO_BIG, /* an answer beyond the limits */
};

struct fixture {
	struct loop *server_loop;
	struct loop *client_loop;
	struct rpc_server *server;
	struct rpc_client *client;
	char dir[64];
	char address[128];

	pthread_t thread;
	pthread_mutex_t lock;
	pthread_cond_t wake;
	struct list queue; /* of the answering thread */
	bool stop;

	_Atomic unsigned int released; /* payloads given back */
	_Atomic unsigned int piped;    /* of them, those that were in a pipe */
	_Atomic unsigned int unsent; /* of these, those that were not taken out of it, or not all */
	_Atomic unsigned int parked;
	_Atomic unsigned int cancelled;
	_Atomic unsigned int requests;
};

struct pattern {
	struct fixture *f;
	uint32_t n;
	uint8_t bytes[];
};

static void pattern_release(void *arg)
{
	struct pattern *p = arg;

	p->f->released++;
	free(p);
}

static void fill(uint8_t *out, size_t n, uint64_t seed)
{
	for (size_t i = 0; i < n; i += sizeof(seed)) {
		uint64_t word = (seed * LIMIT_PAYLOAD_BYTES + i + 1) * 0x9E3779B97F4A7C15ull;

		memcpy(out + i, &word, n - i < sizeof(word) ? n - i : sizeof(word));
	}
}

/* n bytes in all four parts. */
static struct net_payload pattern_payload(struct fixture *f, uint32_t n, uint64_t seed)
{
	struct pattern *p = malloc(sizeof(*p) + n);
	struct net_payload payload = NET_PAYLOAD_NONE;
	uint32_t quarter = n / 4;

	assert_non_null(p);
	p->f = f;
	p->n = n;
	fill(p->bytes, n, seed);
	for (unsigned int i = 0; i < NET_PARTS; i++) {
		payload.parts[i].data = p->bytes + i * quarter;
		payload.parts[i].len = i < 3 ? quarter : n - 3 * quarter;
	}
	payload.n = NET_PARTS;
	payload.release = pattern_release;
	payload.arg = p;
	return payload;
}

struct piped {
	struct fixture *f;
	int ends[2];
	uint8_t sums[16];
};

static void piped_release(void *arg)
{
	struct piped *p = arg;
	int left = 0;

	assert_int_equal(ioctl(p->ends[0], FIONREAD, &left), 0);
	p->f->unsent += left > 0;
	p->f->released++;
	(void)close(p->ends[0]);
	(void)close(p->ends[1]);
	free(p);
}

/* n bytes in a pipe, the checksums in memory. */
static struct net_payload piped_payload(struct fixture *f, uint32_t n, uint64_t seed)
{
	struct net_payload payload = NET_PAYLOAD_NONE;
	struct piped *p = malloc(sizeof(*p));
	_cleanup_free_ uint8_t *bytes = malloc(n + sizeof(p->sums));

	assert_non_null(p);
	p->f = f;
	f->piped++;
	fill(bytes, n + sizeof(p->sums), seed);
	memcpy(p->sums, bytes + n, sizeof(p->sums));
	assert_int_equal(pipe2(p->ends, O_CLOEXEC), 0);
	assert_true(fcntl(p->ends[1], F_SETPIPE_SZ, LIMIT_PAYLOAD_BYTES) >= 0);
	assert_int_equal(write(p->ends[1], bytes, n), n);
	payload.pipe = p->ends[0];
	payload.parts[0].len = n;
	payload.parts[1].data = p->sums;
	payload.parts[1].len = sizeof(p->sums);
	payload.n = 2;
	payload.release = piped_release;
	payload.arg = p;
	return payload;
}

static void answer_piped(struct fixture *f, struct rpc_request *request)
{
	uint32_t n = request->frame.length;
	struct frame reply = { .length = n, .checksums = 2 };

	rpc_reply(request, 0, &reply,
		request->pipe_ok ? piped_payload(f, n, request->frame.offset)
				 : pattern_payload(f, n + 16, request->frame.offset));
}

static int memfd_with(uint64_t value)
{
	int fd = memfd_create("test", MFD_CLOEXEC);

	assert_true(fd >= 0);
	assert_int_equal(write(fd, &value, sizeof(value)), sizeof(value));
	return fd;
}

static void answer(struct fixture *f, struct rpc_request *request)
{
	struct frame reply = { .length = request->frame.length };

	rpc_reply(request, 0, &reply,
		pattern_payload(f, request->frame.length, request->frame.offset));
}

static void *answer_thread(void *arg)
{
	struct fixture *f = arg;

	pthread_mutex_lock(&f->lock);
	for (;;) {
		struct list *node = list_pop_front(&f->queue);

		if (!node && f->stop)
			break;
		if (!node) {
			pthread_cond_wait(&f->wake, &f->lock);
			continue;
		}
		pthread_mutex_unlock(&f->lock);
		answer(f, list_entry(node, struct rpc_request, link));
		pthread_mutex_lock(&f->lock);
	}
	pthread_mutex_unlock(&f->lock);
	return NULL;
}

static void reply_echo(struct rpc_request *request)
{
	struct frame reply = { .length = request->frame.payload,
		.generation = request->frame.offset,
		.extent = request->frame.flags };
	struct net_payload payload = NET_PAYLOAD_NONE;

	payload.parts[0].data = request->payload;
	payload.parts[0].len = request->frame.payload;
	payload.n = 1;
	payload.release = free;
	payload.arg = TAKE(request->payload);
	rpc_reply(request, 0, &reply, payload);
}

static void on_request(struct rpc_request *request, void *arg)
{
	struct net_payload payload = NET_PAYLOAD_NONE;
	struct fixture *f = arg;
	struct err e = ERR_INIT;

	f->requests++;
	switch ((enum command)request->frame.lineage) {
	case ECHO:
		reply_echo(request);
		break;
	case THREAD:
		pthread_mutex_lock(&f->lock);
		list_push_back(&f->queue, &request->link);
		pthread_cond_signal(&f->wake);
		pthread_mutex_unlock(&f->lock);
		break;
	case PIPE:
		answer_piped(f, request);
		break;
	case FD:
		payload.fd = memfd_with(request->frame.offset);
		rpc_reply(request, 0, NULL, payload);
		break;
	case PARK:
		f->parked++;
		break;
	case FAIL:
		(void)err_set(&e, -ENOKEY, "the credential is missing: set it");
		rpc_reply_err(request, -ENOKEY, &e);
		break;
	case TOO_BIG:
		rpc_reply(request, 0, NULL, pattern_payload(f, 2 * LIMIT_PAYLOAD_BYTES, 0));
		break;
	}
}

static void on_cancel(struct rpc_request *request, void *arg)
{
	struct fixture *f = arg;

	assert_true(request->cancelled);
	if (request->frame.lineage == PARK) {
		f->cancelled++;
		rpc_reply(request, -ECANCELED, NULL, NET_PAYLOAD_NONE);
	}
}

static const struct rpc_server_ops server_ops = { .on_request = on_request,
	.on_cancel = on_cancel };

static void start_server(struct fixture *f)
{
	struct err e = ERR_INIT;

	assert_int_equal(
		rpc_server_new(f->server_loop, f->address, &server_ops, f, &f->server, &e), 0);
	(void)snprintf(f->address, sizeof(f->address), "%s", rpc_server_address(f->server));
}

static void start(struct fixture *f, const char *scheme)
{
	struct err e = ERR_INIT;

	*f = (struct fixture){ 0 };
	list_init(&f->queue);
	pthread_mutex_init(&f->lock, NULL);
	pthread_cond_init(&f->wake, NULL);
	(void)snprintf(f->dir, sizeof(f->dir), "/tmp/granary-test-XXXXXX");
	assert_non_null(mkdtemp(f->dir));
	if (strcmp(scheme, "unix") == 0)
		(void)snprintf(f->address, sizeof(f->address), "unix:%s/rpc", f->dir);
	else
		(void)snprintf(f->address, sizeof(f->address), "%s",
			strcmp(scheme, "tcp") == 0 ? "tcp:127.0.0.1:0" : "fake:rpc");
	f->server_loop = loop_new("server");
	f->client_loop = loop_new("client");
	assert_int_equal(pthread_create(&f->thread, NULL, answer_thread, f), 0);
	start_server(f);
	assert_int_equal(rpc_client_new(f->client_loop, f->address, &f->client, &e), 0);
}

static void stop(struct fixture *f)
{
	rpc_client_free(f->client);
	rpc_server_free(f->server);
	pthread_mutex_lock(&f->lock);
	f->stop = true;
	pthread_cond_signal(&f->wake);
	pthread_mutex_unlock(&f->lock);
	pthread_join(f->thread, NULL);
	loop_free(f->client_loop);
	loop_free(f->server_loop);
	assert_int_equal(rmdir(f->dir), 0); /* the socket went with its server */
}

/* A call whose end a test waits for. */
struct probe {
	struct rpc_call call;
	pthread_mutex_t *lock;
	pthread_cond_t *ended;
	unsigned int *left;
	int status;
	bool done;
};

static void on_probe_done(struct rpc_call *call, int status)
{
	struct probe *p = container_of(call, struct probe, call);

	pthread_mutex_lock(p->lock);
	assert_false(p->done);
	p->done = true;
	p->status = status;
	--*p->left;
	pthread_cond_signal(p->ended);
	pthread_mutex_unlock(p->lock);
}

struct batch {
	pthread_mutex_t lock;
	pthread_cond_t ended;
	unsigned int left;
	unsigned int n;
	struct probe *probes;
};

static void batch_init(struct batch *b, unsigned int n)
{
	*b = (struct batch){ .left = n, .n = n, .probes = calloc(n, sizeof(*b->probes)) };
	pthread_mutex_init(&b->lock, NULL);
	pthread_cond_init(&b->ended, NULL);
	for (unsigned int i = 0; i < n; i++) {
		struct probe *p = &b->probes[i];

		p->lock = &b->lock;
		p->ended = &b->ended;
		p->left = &b->left;
		p->call.on_done = on_probe_done;
		p->call.payload = NET_PAYLOAD_NONE;
		p->call.frame.op = FRAME_FETCH;
		p->call.deadline_ns = clock_mono_ns() + 240 * CLOCK_SECOND;
	}
}

/* Until no more than `left` have not ended. */
static void batch_wait_left(struct batch *b, unsigned int left)
{
	pthread_mutex_lock(&b->lock);
	while (b->left > left)
		pthread_cond_wait(&b->ended, &b->lock);
	pthread_mutex_unlock(&b->lock);
}

static void batch_wait(struct batch *b)
{
	batch_wait_left(b, 0);
}

static void batch_release(struct batch *b)
{
	for (unsigned int i = 0; i < b->n; i++)
		rpc_call_release(&b->probes[i].call);
	free(b->probes);
}

/* ---- tests, for each transport --------------------------------------------------------------- */

static void test_pipelined(void **state)
{
	enum { N = 5000 };
	struct fixture f;
	struct batch b;

	start(&f, *state);
	batch_init(&b, N);
	for (unsigned int i = 0; i < N; i++) {
		struct rpc_call *call = &b.probes[i].call;

		call->frame.lineage = ECHO;
		call->frame.offset = i;
		call->payload = pattern_payload(&f, i % 1500, i);
		rpc_call(f.client, call);
	}
	batch_wait(&b);
	for (unsigned int i = 0; i < N; i++) {
		struct rpc_call *call = &b.probes[i].call;
		uint8_t want[1500];

		fill(want, i % 1500, i);
		assert_int_equal(b.probes[i].status, 0);
		assert_int_equal(call->reply.generation, i);
		assert_int_equal(call->reply.payload, i % 1500);
		if (i % 1500)
			assert_memory_equal(call->reply_payload, want, i % 1500);
	}
	assert_true(rpc_client_connected(f.client));
	batch_release(&b);
	stop(&f);
	assert_int_equal(f.released, N); /* each request's payload, once */
}

static void test_large_from_thread(void **state)
{
	enum { N = 20 };
	struct fixture f;
	struct batch b;

	start(&f, *state);
	batch_init(&b, N);
	for (unsigned int i = 0; i < N; i++) {
		struct rpc_call *call = &b.probes[i].call;

		call->frame.lineage = THREAD;
		call->frame.offset = i;
		call->frame.length = LIMIT_PAYLOAD_BYTES - i * 4093;
		rpc_call(f.client, call);
	}
	batch_wait(&b);
	for (unsigned int i = 0; i < N; i++) {
		struct rpc_call *call = &b.probes[i].call;
		_cleanup_free_ uint8_t *want = malloc(call->frame.length);

		fill(want, call->frame.length, i);
		assert_int_equal(b.probes[i].status, 0);
		assert_int_equal(call->reply.payload, call->frame.length);
		assert_memory_equal(call->reply_payload, want, call->frame.length);
	}
	batch_release(&b);
	stop(&f);
	assert_int_equal(f.released, N);
}

static bool records; /* bytes of volumes are encrypted */

static bool takes_pipes(const char *scheme)
{
	return !net_debug_wrap && strcmp(scheme, "fake") != 0 &&
	       !(records && strcmp(scheme, "tcp") == 0);
}

/* Out of pipes, among answers out of memory; the bytes, and behind them the checksums. */
static void test_pipes(void **state)
{
	enum { N = 20 };
	struct fixture f;
	struct batch b;

	start(&f, *state);
	batch_init(&b, N);
	for (unsigned int i = 0; i < N; i++) {
		struct rpc_call *call = &b.probes[i].call;

		call->frame.lineage = i % 5 == 4 ? ECHO : PIPE;
		call->frame.op = i % 2 ? FRAME_FETCH : FRAME_FETCH_CACHED;
		call->frame.offset = i;
		call->frame.length = LIMIT_PAYLOAD_BYTES - 16 - i * 4093;
		rpc_call(f.client, call);
	}
	batch_wait(&b);
	for (unsigned int i = 0; i < N; i++) {
		struct rpc_call *call = &b.probes[i].call;
		uint32_t n = call->frame.length + 16;
		_cleanup_free_ uint8_t *want = malloc(n);

		assert_int_equal(b.probes[i].status, 0);
		if (i % 5 == 4)
			continue;
		fill(want, n, i);
		assert_int_equal(call->reply.payload, n);
		assert_memory_equal(call->reply_payload, want, n);
	}
	batch_release(&b);
	stop(&f);
	assert_int_equal(f.released, N - N / 5);
	assert_int_equal(f.piped, takes_pipes(*state) ? N - N / 5 : 0);
	assert_int_equal(f.unsent, 0);
}

static void test_cancel(void **state)
{
	enum { N = 500 };
	struct fixture f;
	struct batch b;
	struct rpc_call last = { .frame = { .op = FRAME_FETCH, .lineage = ECHO } };

	start(&f, *state);
	batch_init(&b, N);
	for (unsigned int i = 0; i < N; i++) {
		b.probes[i].call.frame.lineage = PARK;
		rpc_call(f.client, &b.probes[i].call);
	}
	test_wait(f.parked == N);
	for (unsigned int i = 0; i < N; i++)
		rpc_cancel(f.client, &b.probes[i].call);
	batch_wait(&b);
	for (unsigned int i = 0; i < N; i++)
		assert_int_equal(b.probes[i].status, -ECANCELED);
	test_wait(f.cancelled == N);             /* the server was told of each */
	rpc_cancel(f.client, &b.probes[0].call); /* ended: nothing happens */
	assert_int_equal(
		rpc_call_wait(f.client, &last, NULL), 0); /* the late replies did no harm */
	rpc_call_release(&last);
	batch_release(&b);
	stop(&f);
}

/* Cancel at every moment of a call's life. */
static void test_cancel_races(void **state)
{
	enum { N = 3000 };
	struct fixture f;
	struct batch b;

	start(&f, *state);
	batch_init(&b, N);
	for (unsigned int i = 0; i < N; i++) {
		b.probes[i].call.frame.lineage = i % 3 ? THREAD : FD;
		b.probes[i].call.frame.length = i % 3 ? 3000 : 0;
		rpc_call(f.client, &b.probes[i].call);
		if (i >= 7)
			rpc_cancel(f.client, &b.probes[i - i % 8].call);
	}
	batch_wait(&b);
	for (unsigned int i = 0; i < N; i++)
		assert_true(b.probes[i].status == 0 || b.probes[i].status == -ECANCELED);
	batch_release(&b);
	stop(&f);
}

static void test_deadline(void **state)
{
	struct rpc_call call = { .frame = { .op = FRAME_FETCH, .lineage = PARK } };
	struct fixture f;
	uint64_t began;
	struct err e = ERR_INIT;

	start(&f, *state);
	began = clock_mono_ns();
	call.deadline_ns = began + 100 * CLOCK_MS;
	assert_int_equal(rpc_call_wait(f.client, &call, &e), -ETIMEDOUT);
	assert_true(clock_mono_ns() - began >= 100 * CLOCK_MS);
	test_wait(f.cancelled == 1);
	call = (struct rpc_call){ .frame = { .op = FRAME_FETCH, .lineage = ECHO },
		.deadline_ns = clock_mono_ns() - 1 };
	assert_int_equal(rpc_call_wait(f.client, &call, NULL), -ETIMEDOUT);
	stop(&f);
}

/* Nobody asks for a descriptor over what passes none, whatever he says. */
static void test_local_flag(void **state)
{
	struct rpc_call call = { .frame = { .op = FRAME_FETCH,
					 .lineage = ECHO,
					 .flags = FRAME_LOCAL_OK | FRAME_EXACT } };
	struct fixture f;
	struct err e = ERR_INIT;

	start(&f, *state);
	assert_int_equal(rpc_call_wait(f.client, &call, &e), 0);
	assert_int_equal(
		call.reply.extent, FRAME_EXACT | (strcmp(*state, "tcp") == 0 ? 0 : FRAME_LOCAL_OK));
	rpc_call_release(&call);
	stop(&f);
}

static void test_failed_reply(void **state)
{
	struct rpc_call call = { .frame = { .op = FRAME_GET_TABLE, .lineage = FAIL } };
	struct fixture f;
	struct err e = ERR_INIT;

	start(&f, *state);
	assert_int_equal(rpc_call_wait(f.client, &call, &e), -ENOKEY);
	assert_string_equal(e.text, "the credential is missing: set it");
	assert_int_equal(e.code, -ENOKEY);
	rpc_call_release(&call);
	rpc_call_release(&call);
	stop(&f);
}

static void test_limits(void **state)
{
	struct rpc_call call = { .frame = { .op = FRAME_GET_TABLE, .lineage = TOO_BIG } };
	struct fixture f;

	start(&f, *state);
	assert_int_equal(rpc_call_wait(f.client, &call, NULL), -EMSGSIZE);
	rpc_call_release(&call);
	call = (struct rpc_call){ .frame = {
					  .op = FRAME_FETCH, .length = LIMIT_PAYLOAD_BYTES + 1 } };
	assert_int_equal(
		rpc_call_wait(f.client, &call, NULL), -EMSGSIZE); /* refused before it is sent */
	rpc_call_release(&call);
	assert_int_equal(f.requests, 1);
	stop(&f);
}

static void test_close_under_way(void **state)
{
	enum { N = 200 };
	struct fixture f;
	struct batch b;

	start(&f, *state);
	batch_init(&b, N);
	for (unsigned int i = 0; i < N; i++) {
		b.probes[i].call.frame.lineage = i % 2 ? PARK : i % 4 ? PIPE : THREAD;
		b.probes[i].call.frame.length = 100000;
		rpc_call(f.client, &b.probes[i].call);
	}
	test_wait(f.parked == N / 2);
	rpc_client_free(TAKE(f.client));
	assert_int_equal(b.left, 0); /* every call ended before rpc_client_free() did */
	for (unsigned int i = 1; i < N; i += 2)
		assert_int_equal(b.probes[i].status, -ECANCELED);
	test_wait(f.cancelled == N / 2); /* the server saw the connection go */
	batch_release(&b);
	stop(&f);
	assert_int_equal(f.released, N / 2); /* what was not sent, too */
}

static void test_server_free_under_way(void **state)
{
	struct fixture f;
	struct batch b;

	start(&f, *state);
	batch_init(&b, 2);
	for (unsigned int i = 0; i < 2; i++) {
		b.probes[i].call.frame.lineage = PARK;
		if (i == 1) {
			/* Time enough to come to the server that is connected, not for ever. */
			b.probes[i].call.resend = true;
			b.probes[i].call.deadline_ns = clock_mono_ns() + 4 * CLOCK_SECOND;
		}
		rpc_call(f.client, &b.probes[i].call);
		test_wait(f.parked == i + 1);
	}
	rpc_server_free(TAKE(f.server));
	assert_int_equal(f.cancelled, 2);
	batch_wait(&b);
	assert_int_equal(b.probes[0].status, -ECONNRESET);
	assert_int_equal(b.probes[1].status, -ETIMEDOUT); /* waited for a server to come back */
	assert_non_null(strstr(b.probes[1].call.reply_payload, "no connection to "));
	batch_release(&b);
	stop(&f);
}

static void test_resend(void **state)
{
	enum { N = 100 };
	struct fixture f;
	struct batch b;

	start(&f, *state);
	batch_init(&b, N);
	for (unsigned int i = 0; i < N; i++) {
		struct rpc_call *call = &b.probes[i].call;

		call->frame.lineage = PARK;
		call->resend = true;
		call->payload = pattern_payload(&f, 333, i);
		rpc_call(f.client, call);
	}
	test_wait(f.parked == N);
	rpc_server_free(TAKE(f.server));
	assert_int_equal(f.released, 0); /* kept for the next connection */
	start_server(&f);
	test_wait(f.parked == 2 * N);
	for (unsigned int i = 0; i < N; i++)
		rpc_cancel(f.client, &b.probes[i].call);
	batch_wait(&b);
	for (unsigned int i = 0; i < N; i++)
		assert_int_equal(b.probes[i].status, -ECANCELED);
	batch_release(&b);
	stop(&f);
	assert_int_equal(f.released, N);
}

/* A client that asks for more than it takes: the server stops reading and serves the others. */
static void test_back_pressure(void **state)
{
	enum { N = 80 };
	struct fixture f;
	struct batch b;

	start(&f, *state);
	batch_init(&b, N);
	for (unsigned int i = 0; i < N; i++) {
		struct rpc_call *call = &b.probes[i].call;

		call->frame.lineage = THREAD;
		call->frame.length = LIMIT_PAYLOAD_BYTES;
		rpc_call(f.client, call);
	}
	batch_wait(&b); /* 80 MiB through a bound of 64 */
	for (unsigned int i = 0; i < N; i++)
		assert_int_equal(b.probes[i].status, 0);
	batch_release(&b);
	stop(&f);
}

/* ---- fake only ------------------------------------------------------------------------------- */

/* Connections that lag, overtake each other and are cut again and again: every call that may be
 * sent again is answered. */
static void test_cut(void **state)
{
	enum { N = 400, CLIENTS = 4 };
	struct rpc_client *clients[CLIENTS];
	struct fixture f;
	struct batch b;
	struct err e = ERR_INIT;

	(void)state;
	start(&f, "fake");
	fake_set_delay("rpc", 3 * CLOCK_MS);
	for (unsigned int i = 0; i < CLIENTS; i++)
		assert_int_equal(rpc_client_new(f.client_loop, f.address, &clients[i], &e), 0);
	batch_init(&b, N);
	for (unsigned int i = 0; i < N; i++) {
		struct rpc_call *call = &b.probes[i].call;

		call->frame.lineage = i % 4 == 3 ? FD : THREAD;
		call->frame.offset = i;
		call->frame.length = i % 4 == 3 ? 0 : i * 100;
		call->resend = true;
		rpc_call(clients[i % CLIENTS], call);
		if (i % 40 == 39) {
			fake_set_refuse("rpc", i % 80 == 39);
			fake_cut("rpc");
			test_advance(5 * CLOCK_MS);
		}
	}
	fake_set_refuse("rpc", false);
	batch_wait(&b);
	for (unsigned int i = 0; i < N; i++) {
		struct rpc_call *call = &b.probes[i].call;
		_cleanup_free_ uint8_t *want = malloc(i * 100 + 1);
		uint64_t value = 0;

		assert_int_equal(b.probes[i].status, 0);
		fill(want, call->frame.length, i);
		if (call->frame.length)
			assert_memory_equal(call->reply_payload, want, call->frame.length);
		if (i % 4 == 3) {
			assert_int_equal(
				pread(call->reply_fd, &value, sizeof(value), 0), sizeof(value));
			assert_int_equal(value, i);
		}
	}
	batch_release(&b);
	for (unsigned int i = 0; i < CLIENTS; i++)
		rpc_client_free(clients[i]);
	stop(&f);
}

/* ---- under the fault plane ------------------------------------------------------------------- */

/* The same over any transport, by the line of the plane. A few at once: all that were not answered are sent again
 * after a cut, and of 300 the next cut may come before the first answer. */
static void test_plane(void **state)
{
	enum { N = 300, AT_ONCE = 20 };
	const char *line = "seed=4 net.cut=0.03@message net.refuse=0.2 net.delay=0.05/2";
	_cleanup_(buf_release) struct buf said = BUF_INIT(4096);
	_cleanup_(buf_release) struct buf times = BUF_INIT(4096);
	struct fixture f;
	struct batch b;

	start(&f, *state);
	assert_int_equal(faults_set(faults_global(), line, NULL), 0);
	batch_init(&b, N);
	for (unsigned int i = 0; i < N; i++) {
		struct rpc_call *call = &b.probes[i].call;

		call->frame.lineage = THREAD;
		call->frame.offset = i;
		call->frame.length = i * 100;
		call->resend = true;
		rpc_call(f.client, call);
		if (i % AT_ONCE == AT_ONCE - 1)
			batch_wait_left(&b, N - 1 - i);
	}
	assert_int_equal(faults_text(faults_global(), &said, &times), 0);
	assert_int_equal(faults_set(faults_global(), "", NULL), 0);
	assert_null(strstr(buf_str(&times), "net.cut=0"));
	assert_null(strstr(buf_str(&times), "net.delay=0"));
	for (unsigned int i = 0; i < N; i++) {
		struct rpc_call *call = &b.probes[i].call;
		_cleanup_free_ uint8_t *want = malloc(i * 100 + 1);

		assert_int_equal(b.probes[i].status, 0);
		fill(want, call->frame.length, i);
		if (call->frame.length)
			assert_memory_equal(call->reply_payload, want, call->frame.length);
	}
	batch_release(&b);
	stop(&f);
}

/* ---- unix only ------------------------------------------------------------------------------- */

static void test_descriptors(void **state)
{
	enum { N = 600 };
	struct fixture f;
	struct batch b;

	(void)state;
	start(&f, "unix");
	batch_init(&b, N);
	for (unsigned int i = 0; i < N; i++) {
		struct rpc_call *call = &b.probes[i].call;

		/* Descriptors among payloads of all sizes. */
		call->frame.lineage = i % 3 == 0 ? FD : i % 3 == 1 ? ECHO : THREAD;
		call->frame.offset = i;
		call->frame.length = i % 3 == 2 ? 1 + i * 97 : 0;
		rpc_call(f.client, call);
	}
	batch_wait(&b);
	for (unsigned int i = 0; i < N; i++) {
		struct rpc_call *call = &b.probes[i].call;
		uint64_t value = 0;

		assert_int_equal(b.probes[i].status, 0);
		assert_int_equal(call->reply.flags, FRAME_REPLY);
		if (i % 3) {
			assert_int_equal(call->reply_fd, -1);
			continue;
		}
		assert_int_equal(pread(call->reply_fd, &value, sizeof(value), 0), sizeof(value));
		assert_int_equal(value, i);
	}
	batch_release(&b);
	stop(&f);
}

static void test_listen_errors(void **state)
{
	char path[128];
	struct rpc_server *other = NULL;
	struct rpc_client *client = NULL;
	struct fixture f;
	static const char *const tcp[] = { "tcp:0.0.0.0:0", "tcp:127.0.0.1:0", "tcp:[::1]:0" };
	struct err e = ERR_INIT;
	FILE *file;

	(void)state;
	start(&f, "unix");
	assert_int_equal(
		rpc_server_new(f.server_loop, f.address, &server_ops, &f, &other, &e), -EADDRINUSE);
	(void)snprintf(path, sizeof(path), "unix:%s/file", f.dir);
	file = fopen(path + 5, "w");
	assert_non_null(file);
	assert_int_equal(fclose(file), 0);
	assert_int_equal(rpc_server_new(f.server_loop, path, &server_ops, &f, &other, &e), -EEXIST);
	assert_int_equal(unlink(path + 5), 0); /* it was left alone */
	for (size_t i = 0; i < ARRAY_SIZE(tcp); i++) {
		assert_int_equal(rpc_server_new(f.server_loop, tcp[i], &server_ops, &f, &other, &e),
			-ENOKEY);
		assert_non_null(strstr(e.text, "cluster key"));
		assert_int_equal(rpc_client_new(f.client_loop, tcp[i], &client, &e), -ENOKEY);
	}
	assert_int_equal(rpc_client_new(f.client_loop, "tcp:localhost", &client, &e), -EINVAL);
	assert_int_equal(rpc_client_new(f.client_loop, "http://x", &client, &e), -EINVAL);
	assert_int_equal(rpc_client_new(f.client_loop, "unix:relative", &client, &e), -EINVAL);
	stop(&f);
}

/* ---- with keys ------------------------------------------------------------------------------- */

static int with_records(void **state)
{
	(void)state;
	records = true;
	return cluster_key_load(true);
}

static int without_records(void **state)
{
	(void)state;
	records = false;
	return cluster_key_forget();
}

static char scheme_unix[] = "unix";
static char scheme_tcp[] = "tcp";
static char scheme_fake[] = "fake";

#define LOCAL(test)                                          \
	{ #test "/unix", test, NULL, NULL, scheme_unix },    \
	{                                                    \
#test "/fake", test, NULL, NULL, scheme_fake \
	}
#define EACH(test)                                         \
	LOCAL(test),                                       \
	{                                                  \
#test "/tcp", test, NULL, NULL, scheme_tcp \
	}

#define TCP(test)                                   \
	{                                           \
#test, test, NULL, NULL, scheme_tcp \
	}

int main(void)
{
	const struct CMUnitTest tests[] = {
		LOCAL(test_pipelined),
		LOCAL(test_large_from_thread),
		LOCAL(test_pipes),
		LOCAL(test_cancel),
		LOCAL(test_cancel_races),
		LOCAL(test_deadline),
		LOCAL(test_failed_reply),
		LOCAL(test_local_flag),
		LOCAL(test_limits),
		LOCAL(test_close_under_way),
		LOCAL(test_server_free_under_way),
		LOCAL(test_resend),
		LOCAL(test_back_pressure),
		cmocka_unit_test(test_cut),
		cmocka_unit_test(test_descriptors),
		cmocka_unit_test(test_listen_errors),
	};

	const struct CMUnitTest with_plane[] = {
		EACH(test_pipelined),
		EACH(test_pipes),
		EACH(test_cancel_races),
		EACH(test_limits),
		EACH(test_close_under_way),
		EACH(test_server_free_under_way),
		EACH(test_back_pressure),
		EACH(test_plane),
		cmocka_unit_test(test_cut),
		cmocka_unit_test(test_descriptors),
	};
	const struct CMUnitTest with_keys[] = {
		TCP(test_pipelined),
		TCP(test_large_from_thread),
		TCP(test_pipes),
		TCP(test_cancel),
		TCP(test_cancel_races),
		TCP(test_deadline),
		TCP(test_failed_reply),
		TCP(test_local_flag),
		TCP(test_limits),
		TCP(test_close_under_way),
		TCP(test_server_free_under_way),
		TCP(test_resend),
		TCP(test_back_pressure),
	};
	int failed = cmocka_run_group_tests(tests, NULL, NULL);

	failed += cmocka_run_group_tests_name(
		"raw", with_keys, with_cluster_key, without_cluster_key);
	failed += cmocka_run_group_tests_name("records", with_keys, with_records, without_records);

	net_fault_install(); /* for good: last */
	return failed + cmocka_run_group_tests_name(
				"with_plane", with_plane, with_cluster_key, without_cluster_key);
}
