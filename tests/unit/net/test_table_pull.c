/* Table files in pieces: net/table_pull.h against a peer that may say anything. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/cleanup.h"
#include "base/file.h"
#include "base/units.h"
#include "net/table_pull.h"
#include "tests/unit/net/cluster_key.h"

#define FILE_BYTES (5 * MiB + 12345)

/* How the peer behaves from piece number `from` on. */
enum lie {
	LIE_NONE,
	LIE_SIZE_ZERO,
	LIE_SIZE_HUGE,
	LIE_SIZE_OTHER, /* it is another file meanwhile */
	LIE_SHORT,
	LIE_LONG,
	LIE_OFFSET,
	LIE_GONE,
};

struct peer {
	struct loop *loop;
	struct rpc_server *server;
	struct rpc_client *client;
	uint8_t *file;
	enum lie lie;
	uint64_t from;
	_Atomic uint32_t asked;
	char address[64];
};

static void on_request(struct rpc_request *request, void *arg)
{
	struct peer *peer = arg;
	uint64_t offset = request->frame.offset;
	uint64_t length = offset < FILE_BYTES ? min(FILE_BYTES - offset, (uint64_t)MiB) : 0;
	struct frame reply = { .offset = offset, .extent = FILE_BYTES };
	struct net_payload payload = NET_PAYLOAD_NONE;
	bool lies = offset >= peer->from;
	struct err e = ERR_INIT;

	atomic_fetch_add(&peer->asked, 1);
	assert_int_equal(request->frame.op, FRAME_TABLE);
	assert_int_equal(request->frame.lineage, 7);
	assert_int_equal(request->frame.generation, 3);
	if (lies && peer->lie == LIE_GONE) {
		(void)err_set(&e, -ESTALE, "that table is kept no more");
		rpc_reply_err(request, -ESTALE, &e);
		return;
	}
	if (lies && peer->lie == LIE_SIZE_ZERO)
		reply.extent = 0;
	if (lies && peer->lie == LIE_SIZE_HUGE)
		reply.extent = UINT64_MAX;
	if (lies && peer->lie == LIE_SIZE_OTHER)
		reply.extent = FILE_BYTES + 1;
	if (lies && peer->lie == LIE_SHORT)
		length -= 1;
	if (lies && peer->lie == LIE_LONG && length < MiB)
		length += 1;
	if (lies && peer->lie == LIE_OFFSET)
		reply.offset = 0;
	payload.parts[0].data = peer->file + offset;
	payload.parts[0].len = length;
	payload.n = length > 0;
	rpc_reply(request, 0, &reply, payload);
}

static const struct rpc_server_ops ops = { .on_request = on_request };

static void peer_open(struct peer *peer)
{
	struct err e = ERR_INIT;

	*peer = (struct peer){ .loop = loop_new("test"), .file = malloc(FILE_BYTES + MiB) };
	assert_non_null(peer->file);
	for (uint32_t i = 0; i < FILE_BYTES + MiB; i++)
		peer->file[i] = (uint8_t)(i * 2654435761u >> 24);
	assert_int_equal(
		rpc_server_new(peer->loop, "tcp:127.0.0.1:0", &ops, peer, &peer->server, &e), 0);
	(void)snprintf(
		peer->address, sizeof(peer->address), "%s", rpc_server_address(peer->server));
	assert_int_equal(rpc_client_new(peer->loop, peer->address, &peer->client, &e), 0);
}

/* All connections break; the address stays. */
static void restart(struct peer *peer)
{
	struct err e = ERR_INIT;

	rpc_server_free(peer->server);
	assert_int_equal(
		rpc_server_new(peer->loop, peer->address, &ops, peer, &peer->server, &e), 0);
}

static void peer_close(struct peer *peer)
{
	rpc_client_free(peer->client);
	rpc_server_free(peer->server);
	loop_free(peer->loop);
	free(peer->file);
}

static int pull(struct peer *peer, int fd, struct err *e)
{
	const struct table_pull ask = { .peer = peer->client,
		.lineage = 7,
		.generation = 3,
		.patience_ns = 60 * CLOCK_SECOND };

	return table_pull(&ask, fd, e);
}

static void check_file(const struct peer *peer, int fd)
{
	uint8_t *bytes = malloc(FILE_BYTES);
	struct stat st;

	assert_non_null(bytes);
	assert_int_equal(fstat(fd, &st), 0);
	assert_int_equal(st.st_size, FILE_BYTES);
	assert_int_equal(file_pread_exact(fd, bytes, FILE_BYTES, 0), 0);
	assert_memory_equal(bytes, peer->file, FILE_BYTES);
	free(bytes);
}

static void test_whole(void **state)
{
	struct err e = ERR_INIT;
	struct peer peer;
	int fd = -1;

	(void)state;
	peer_open(&peer);
	assert_int_equal(table_pull_file("/var/tmp", &fd, &e), 0);
	assert_int_equal(pull(&peer, fd, &e), 0);
	check_file(&peer, fd);
	assert_int_equal(atomic_load(&peer.asked), 6);
	(void)close(fd);
	assert_int_equal(table_pull_file(NULL, &fd, &e), 0); /* in memory */
	assert_int_equal(pull(&peer, fd, &e), 0);
	check_file(&peer, fd);
	(void)close(fd);
	assert_int_equal(table_pull_file("/nowhere/at/all", &fd, &e), 0);
	(void)close(fd);
	peer_close(&peer);
}

static void test_hostile(void **state)
{
	static const struct {
		enum lie lie;
		uint64_t from;
		int expected;
	} cases[] = {
		{ LIE_SIZE_ZERO, 0, -EBADMSG },
		{ LIE_SIZE_HUGE, 0, -EBADMSG },
		{ LIE_SIZE_OTHER, MiB, -EBADMSG },
		{ LIE_SIZE_OTHER, 5 * MiB, -EBADMSG },
		{ LIE_SHORT, 0, -EBADMSG },
		{ LIE_SHORT, 3 * MiB, -EBADMSG },
		{ LIE_LONG, 5 * MiB, -EBADMSG },
		{ LIE_OFFSET, 2 * MiB, -EBADMSG },
		{ LIE_GONE, 0, -ESTALE },
		{ LIE_GONE, 4 * MiB, -ESTALE },
	};
	struct peer peer;

	(void)state;
	peer_open(&peer);
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct err e = ERR_INIT;
		int fd = -1;

		peer.lie = cases[i].lie;
		peer.from = cases[i].from;
		assert_int_equal(table_pull_file(NULL, &fd, &e), 0);
		assert_int_equal(pull(&peer, fd, &e), cases[i].expected);
		assert_true(e.text[0] != '\0');
		(void)close(fd);
	}
	peer_close(&peer);
}

/* A peer that goes away in the middle and comes back costs the pieces in progress. */
struct breaker {
	struct peer *peer;
	uint32_t calls;
};

static void call_and_break(void *arg, struct rpc_call *call)
{
	struct breaker *breaker = arg;

	if (breaker->calls++ == 3)
		restart(breaker->peer);
	rpc_call(breaker->peer->client, call);
}

static void test_lost_connection(void **state)
{
	struct err e = ERR_INIT;
	struct peer peer;
	struct breaker breaker = { .peer = &peer };
	const struct table_pull ask = { .lineage = 7,
		.generation = 3,
		.patience_ns = 60 * CLOCK_SECOND,
		.call = call_and_break,
		.arg = &breaker };
	int fd = -1;

	(void)state;
	peer_open(&peer);
	assert_int_equal(table_pull_file(NULL, &fd, &e), 0);
	assert_int_equal(table_pull(&ask, fd, &e), 0);
	check_file(&peer, fd);
	(void)close(fd);
	peer_close(&peer);
}

static void call_none(void *arg, struct rpc_call *call)
{
	(void)arg;
	call->on_done(call, -ECANCELED);
}

static void test_closing(void **state)
{
	const struct table_pull ask = { .patience_ns = CLOCK_SECOND, .call = call_none };
	struct err e = ERR_INIT;
	int fd = -1;

	(void)state;
	assert_int_equal(table_pull_file(NULL, &fd, &e), 0);
	assert_int_equal(table_pull(&ask, fd, &e), -ECANCELED);
	(void)close(fd);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_whole),
		cmocka_unit_test(test_hostile),
		cmocka_unit_test(test_lost_connection),
		cmocka_unit_test(test_closing),
	};

	return cmocka_run_group_tests_name(
		"table_pull", tests, with_cluster_key, without_cluster_key);
}
