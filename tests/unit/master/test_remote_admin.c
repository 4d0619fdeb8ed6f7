/* The admin interface over the wire: to whom, in parts, and what nobody keeps. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/cleanup.h"
#include "base/units.h"
#include "master/remote_admin.h"
#include "proto/granary.pb-c.h"
#include "tests/clock/test_clock.h"
#include "tests/unit/net/cluster_key.h"

#define LONG_BYTES (3 * MiB + 77)

struct fixture {
	char dir[64];
	char path[100];
	struct loop *loop;
	struct admin_server *admin;
	struct remote_admin *remote;
	struct rpc_server *server;
	struct rpc_client *client;
	_Atomic uint32_t changes;
	_Atomic uint32_t entered; /* get_slow() */
	_Atomic uint32_t closed;  /* connections */
	_Atomic bool go;
};

static int get_long(
	void *arg, const struct admin_request *request, json_t **ret_json, struct err *e)
{
	char *text = malloc(LONG_BYTES + 1);

	(void)arg;
	(void)request;
	(void)e;
	assert_non_null(text);
	for (size_t i = 0; i < LONG_BYTES; i++)
		text[i] = (char)('a' + i % 23);
	text[LONG_BYTES] = '\0';
	*ret_json = json_pack("{s:s}", "text", text);
	free(text);
	return 0;
}

static int get_slow(
	void *arg, const struct admin_request *request, json_t **ret_json, struct err *e)
{
	struct fixture *f = arg;

	f->entered++;
	test_wait(f->go);
	return get_long(arg, request, ret_json, e);
}

static int change(void *arg, const struct admin_request *request, json_t **ret_json, struct err *e)
{
	struct fixture *f = arg;

	(void)e;
	f->changes++;
	*ret_json =
		json_pack("{s:O?, s:s?}", "body", request->body, "q", request->query(request, "q"));
	return 0;
}

static const struct admin_route routes[] = {
	{ "GET", "/v1/long", get_long, NULL },
	{ "GET", "/v1/slow", get_slow, NULL },
	{ "POST", "/v1/look", change, NULL },
	{ "POST", "/v1/change", change, "change" },
	{ 0 },
};

static void on_request(struct rpc_request *request, void *arg)
{
	remote_admin_answer(((struct fixture *)arg)->remote, request);
}

static void on_close(const struct rpc_conn *conn, void *arg)
{
	struct fixture *f = arg;

	remote_admin_closed(f->remote, conn);
	f->closed++;
}

static const struct rpc_server_ops ops = { .on_request = on_request, .on_close = on_close };

/* Without an address: a unix socket. */
static struct fixture *open_on(const char *address)
{
	struct fixture *f = calloc(1, sizeof(*f));
	char where[128];
	struct err e = ERR_INIT;

	assert_non_null(f);
	(void)snprintf(f->dir, sizeof(f->dir), "/tmp/granary-ra.XXXXXX");
	assert_non_null(mkdtemp(f->dir));
	(void)snprintf(f->path, sizeof(f->path), "%s/a.sock", f->dir);
	(void)snprintf(where, sizeof(where), "unix:%s/rpc", f->dir);
	if (address)
		(void)snprintf(where, sizeof(where), "%s", address);
	f->loop = loop_new("test");
	assert_int_equal(admin_server_new(f->path, routes, f, &f->admin, &e), 0);
	f->remote = remote_admin_new(f->admin, NULL);
	assert_non_null(f->remote);
	assert_int_equal(rpc_server_new(f->loop, where, &ops, f, &f->server, &e), 0);
	assert_int_equal(rpc_client_new(f->loop, rpc_server_address(f->server), &f->client, &e), 0);
	return f;
}

static void close_all(struct fixture *f)
{
	char command[100];

	rpc_client_free(f->client);
	rpc_server_free(f->server);
	remote_admin_free(f->remote);
	admin_server_free(f->admin);
	loop_free(f->loop);
	(void)snprintf(command, sizeof(command), "rm -rf %s", f->dir);
	assert_int_equal(system(command), 0);
	free(f);
}

/* The answer's part is the caller's; *reply its frame. */
static int ask(struct fixture *f, const char *method, const char *path, const char *body,
	const struct frame *more, Granary__AdminAnswer **ret_answer, struct frame *reply)
{
	Granary__AdminAsk m = GRANARY__ADMIN_ASK__INIT;
	uint8_t packed[1024];
	struct err e = ERR_INIT;
	struct rpc_call call = { .frame = { .op = FRAME_ADMIN },
		.payload = NET_PAYLOAD_NONE,
		.deadline_ns = clock_mono_ns() + 60 * CLOCK_SECOND,
		.reply_fd = -1 };
	int r;

	if (more) {
		call.frame.generation = more->generation;
		call.frame.offset = more->offset;
	} else {
		m.method = (char *)(uintptr_t)method;
		m.path = (char *)(uintptr_t)path;
		m.has_body = body != NULL;
		m.body = (ProtobufCBinaryData){ body ? strlen(body) : 0,
			(uint8_t *)(uintptr_t)body };
		call.payload.parts[0].data = packed;
		call.payload.parts[0].len = granary__admin_ask__pack(&m, packed);
		call.payload.n = 1;
	}
	*ret_answer = NULL;
	r = rpc_call_wait(f->client, &call, &e);
	if (r == 0) {
		*ret_answer =
			granary__admin_answer__unpack(NULL, call.reply.payload, call.reply_payload);
		assert_non_null(*ret_answer);
		*reply = call.reply;
	}
	rpc_call_release(&call);
	return r;
}

/* HTTP's status of a short answer. */
static unsigned int status_of(
	struct fixture *f, const char *method, const char *path, const char *body)
{
	Granary__AdminAnswer *answer;
	struct frame reply;
	unsigned int status;

	assert_int_equal(ask(f, method, path, body, NULL, &answer, &reply), 0);
	ensure(answer); /* for the analyzer */
	assert_int_equal(reply.extent, answer->body.len);
	assert_int_equal(reply.generation, 0);
	status = answer->status;
	granary__admin_answer__free_unpacked(answer, NULL);
	return status;
}

static void test_who_may(void **state)
{
	struct fixture *f = open_on(NULL);

	(void)state;
	assert_int_equal(status_of(f, "POST", "/v1/change?q=1", "{\"a\": 1}"), 200); /* this user */
	assert_int_equal(f->changes, 1);
	assert_int_equal(status_of(f, "GET", "/v1/nowhere", NULL), 404);
	assert_int_equal(status_of(f, "GET", "/v1/change", NULL), 405);
	assert_int_equal(status_of(f, "POST", "/v1/change", "{"), 400);
	close_all(f);
	f = open_on("tcp:127.0.0.1:0"); /* whoever has the cluster key */
	assert_int_equal(status_of(f, "POST", "/v1/change", NULL), 200);
	close_all(f);
}

static void test_not_understood(void **state)
{
	struct fixture *f = open_on("tcp:127.0.0.1:0");
	struct rpc_call call = { .frame = { .op = FRAME_ADMIN },
		.payload = NET_PAYLOAD_NONE,
		.deadline_ns = clock_mono_ns() + 60 * CLOCK_SECOND,
		.reply_fd = -1 };
	struct frame more = { .generation = 77 };
	Granary__AdminAnswer *answer;
	struct frame reply;
	struct err e = ERR_INIT;

	(void)state;
	assert_int_equal(rpc_call_wait(f->client, &call, &e), -EBADMSG);
	rpc_call_release(&call);
	assert_int_equal(ask(f, "GET", "v1/look", NULL, NULL, &answer, &reply), -EBADMSG);
	assert_int_equal(ask(f, NULL, NULL, NULL, &more, &answer, &reply), -ESTALE);
	close_all(f);
}

static void test_long_answer(void **state)
{
	struct fixture *f = open_on("tcp:127.0.0.1:0");
	_cleanup_(buf_release) struct buf text = BUF_INIT(ADMIN_ANSWER_BYTES);
	Granary__AdminAnswer *answer;
	struct rpc_client *other;
	struct rpc_client *mine = f->client;
	struct frame reply = { 0 };
	struct frame more;
	struct err e = ERR_INIT;
	json_t *json = NULL;
	unsigned int parts = 0;

	(void)state;
	assert_int_equal(ask(f, "GET", "/v1/long", NULL, NULL, &answer, &reply), 0);
	assert_true(reply.generation != 0);
	for (;; parts++) {
		ensure(answer);
		assert_int_equal(answer->status, 200);
		assert_int_equal(reply.offset, text.len);
		assert_int_equal(buf_append(&text, answer->body.data, answer->body.len), 0);
		granary__admin_answer__free_unpacked(answer, NULL);
		if (text.len == reply.extent)
			break;
		more = (struct frame){ .generation = reply.generation, .offset = text.len };
		if (parts == 0) { /* it is nobody else's */
			assert_int_equal(
				rpc_client_new(f->loop, rpc_server_address(f->server), &other, &e),
				0);
			f->client = other;
			assert_int_equal(ask(f, NULL, NULL, NULL, &more, &answer, &reply), -ESTALE);
			f->client = mine;
			rpc_client_free(other);
		}
		assert_int_equal(ask(f, NULL, NULL, NULL, &more, &answer, &reply), 0);
	}
	assert_true(parts >= 2);
	assert_int_equal(admin_json_parse(buf_str(&text), text.len, 0, &json, NULL), 0);
	assert_int_equal(json_string_length(json_object_get(json, "text")), LONG_BYTES);
	json_decref(json);
	more = (struct frame){ .generation = reply.generation };
	assert_int_equal(ask(f, NULL, NULL, NULL, &more, &answer, &reply), -ESTALE); /* fetched */

	/* Rests that nobody fetches are bounded: the oldest goes. */
	for (unsigned int i = 0; i < 10; i++) {
		assert_int_equal(ask(f, "GET", "/v1/long", NULL, NULL, &answer, &reply), 0);
		granary__admin_answer__free_unpacked(answer, NULL);
		if (i == 0)
			more = (struct frame){ .generation = reply.generation };
	}
	assert_int_equal(ask(f, NULL, NULL, NULL, &more, &answer, &reply), -ESTALE);
	close_all(f);
}

static void on_left(struct rpc_call *call, int status)
{
	(void)call;
	assert_int_equal(status, -ECANCELED);
}

/* Nothing is kept for a connection that was closed while its answer was made. */
static void test_closed(void **state)
{
	struct fixture *f = open_on(NULL);
	Granary__AdminAsk m = GRANARY__ADMIN_ASK__INIT;
	Granary__AdminAnswer *answer;
	struct rpc_client *other;
	struct frame reply = { 0 };
	struct frame first = { 0 };
	struct rpc_call call = { .frame = { .op = FRAME_ADMIN },
		.payload = NET_PAYLOAD_NONE,
		.deadline_ns = clock_mono_ns() + 60 * CLOCK_SECOND,
		.reply_fd = -1,
		.on_done = on_left };
	struct err e = ERR_INIT;
	uint8_t packed[64];

	(void)state;
	m.method = (char *)(uintptr_t) "GET";
	m.path = (char *)(uintptr_t) "/v1/slow";
	call.payload.parts[0].data = packed;
	call.payload.parts[0].len = granary__admin_ask__pack(&m, packed);
	call.payload.n = 1;
	assert_int_equal(rpc_client_new(f->loop, rpc_server_address(f->server), &other, &e), 0);
	for (unsigned int i = 0; i < 8; i++) { /* as many as are kept */
		assert_int_equal(ask(f, "GET", "/v1/long", NULL, NULL, &answer, &reply), 0);
		granary__admin_answer__free_unpacked(answer, NULL);
		if (i > 0)
			continue;
		first = (struct frame){ .generation = reply.generation };
		rpc_call(other, &call);
		test_wait(f->entered);
		rpc_client_free(other);
		test_wait(f->closed);
		f->go = true;
	}
	assert_int_equal(ask(f, NULL, NULL, NULL, &first, &answer, &reply), 0);
	granary__admin_answer__free_unpacked(answer, NULL);
	close_all(f);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_who_may),
		cmocka_unit_test(test_not_understood),
		cmocka_unit_test(test_long_answer),
		cmocka_unit_test(test_closed),
	};

	return cmocka_run_group_tests_name(
		"remote_admin", tests, with_cluster_key, without_cluster_key);
}
