/* gRPC calls of a client made with nghttp2: answers, statuses, and what a peer may do. */
#include "csi/grpc.h"
#include "base/clock.h"

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <nghttp2/nghttp2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ANSWERS 1100u
#define BUDGET  (8u << 20)

struct answer {
	int32_t stream;
	char status[8];
	char text[2048]; /* grpc-message as it came */
	uint8_t body[64];
	size_t len;
	bool ended;
	bool reset;
};

struct world {
	struct budget budget;
	struct grpc_service service;
	unsigned int n_calls; /* of the service */
	struct grpc_conn *conn;
	nghttp2_session *client;
	struct answer answers[ANSWERS];
	unsigned int n;
	unsigned int pongs;
	unsigned int wakes;
	struct grpc_call *kept[ANSWERS]; /* by "/later" */
	unsigned int n_kept;
	unsigned int ended; /* of those, without an answer */
	int fed;            /* what grpc_conn_feed() returned last */
};

static struct world *w;

/* ---- the methods ----------------------------------------------------------------------------- */

static void echo(void *arg, struct grpc_call *call, const void *message, size_t len)
{
	assert_ptr_equal(arg, w);
	grpc_call_reply(call, message, len);
}

static void refuse(void *arg, struct grpc_call *call, const void *message, size_t len)
{
	(void)arg;
	grpc_call_fail(
		call, GRPC_NOT_FOUND, "100%% of '%.*s'\n\xc3\xa9", (int)len, (const char *)message);
}

static void on_end(void *arg)
{
	assert_ptr_equal(arg, w);
	w->ended++;
}

static void later(void *arg, struct grpc_call *call, const void *message, size_t len)
{
	(void)message;
	(void)len;
	grpc_call_on_end(call, on_end, arg);
	w->kept[w->n_kept++] = call;
}

static const struct grpc_method methods[] = {
	{ "/a.B/echo", echo },
	{ "/a.B/refuse", refuse },
	{ "/a.B/later", later },
	{ 0 },
};

/* ---- the client ------------------------------------------------------------------------------ */

static struct answer *answer_of(int32_t stream)
{
	for (unsigned int i = 0; i < w->n; i++)
		if (w->answers[i].stream == stream)
			return &w->answers[i];
	assert_true(w->n < ANSWERS);
	w->answers[w->n] = (struct answer){ .stream = stream };
	return &w->answers[w->n++];
}

static int on_header(nghttp2_session *session, const nghttp2_frame *frame, const uint8_t *name,
	size_t name_len, const uint8_t *value, size_t value_len, uint8_t flags, void *arg)
{
	struct answer *a = answer_of(frame->hd.stream_id);

	(void)session;
	(void)name_len;
	(void)value_len;
	(void)flags;
	(void)arg;
	if (strcmp((const char *)name, "grpc-status") == 0)
		(void)snprintf(a->status, sizeof(a->status), "%s", (const char *)value);
	if (strcmp((const char *)name, "grpc-message") == 0)
		(void)snprintf(a->text, sizeof(a->text), "%s", (const char *)value);
	return 0;
}

static int on_data(nghttp2_session *session, uint8_t flags, int32_t stream, const uint8_t *data,
	size_t len, void *arg)
{
	struct answer *a = answer_of(stream);

	(void)session;
	(void)flags;
	(void)arg;
	assert_true(a->len + len <= sizeof(a->body));
	memcpy(a->body + a->len, data, len);
	a->len += len;
	return 0;
}

static int on_close(nghttp2_session *session, int32_t stream, uint32_t error, void *arg)
{
	struct answer *a = answer_of(stream);

	(void)session;
	(void)arg;
	a->ended = true;
	a->reset = error != NGHTTP2_NO_ERROR;
	return 0;
}

static int on_frame(nghttp2_session *session, const nghttp2_frame *frame, void *arg)
{
	(void)session;
	(void)arg;
	w->pongs += frame->hd.type == NGHTTP2_PING && (frame->hd.flags & NGHTTP2_FLAG_ACK);
	return 0;
}

static void wake(void *arg)
{
	assert_ptr_equal(arg, w);
	w->wakes++;
}

/* Both ways until neither has anything to say. */
static void exchange_at(uint64_t now)
{
	const uint8_t *data;
	size_t len = 1;
	ssize_t n;

	w->fed = 0;
	while (w->fed == 0 && (n = nghttp2_session_mem_send(w->client, &data)) > 0)
		w->fed = grpc_conn_feed(w->conn, data, (size_t)n, now);
	while (len > 0) {
		assert_int_equal(grpc_conn_output(w->conn, &data, &len), 0);
		assert_true(nghttp2_session_mem_recv(w->client, data, len) >= 0 || w->fed < 0);
	}
	if (w->fed == 0 && nghttp2_session_want_write(w->client))
		exchange_at(now);
}

static void exchange(void)
{
	exchange_at(1);
}

static int set_up(void **state)
{
	nghttp2_session_callbacks *callbacks;
	nghttp2_option *option;

	(void)state;
	w = calloc(1, sizeof(*w));
	assert_non_null(w);
	budget_init(&w->budget, BUDGET);
	w->service = (struct grpc_service){ methods, w, &w->budget, &w->n_calls };
	assert_int_equal(grpc_conn_new(&w->service, wake, w, &w->conn), 0);
	assert_int_equal(nghttp2_session_callbacks_new(&callbacks), 0);
	nghttp2_session_callbacks_set_on_header_callback(callbacks, on_header);
	nghttp2_session_callbacks_set_on_data_chunk_recv_callback(callbacks, on_data);
	nghttp2_session_callbacks_set_on_stream_close_callback(callbacks, on_close);
	nghttp2_session_callbacks_set_on_frame_recv_callback(callbacks, on_frame);
	assert_int_equal(nghttp2_option_new(&option), 0);
	nghttp2_option_set_peer_max_concurrent_streams(option, 1u << 20);
	assert_int_equal(nghttp2_session_client_new2(&w->client, callbacks, NULL, option), 0);
	nghttp2_option_del(option);
	nghttp2_session_callbacks_del(callbacks);
	assert_int_equal(nghttp2_submit_settings(w->client, NGHTTP2_FLAG_NONE, NULL, 0), 0);
	return 0;
}

static int tear_down(void **state)
{
	(void)state;
	grpc_conn_free(w->conn);
	assert_int_equal(w->budget.used, 0);
	assert_int_equal(w->n_calls, 0);
	nghttp2_session_del(w->client);
	free(w);
	return 0;
}

/* ---- requests -------------------------------------------------------------------------------- */

struct text {
	const uint8_t *data;
	size_t len;
	size_t piece; /* bytes of a frame; 0: any */
};

static ssize_t read_text(nghttp2_session *session, int32_t stream, uint8_t *out, size_t size,
	uint32_t *flags, nghttp2_data_source *source, void *arg)
{
	struct text *t = source->ptr;
	size_t n = min(size, t->len);

	(void)session;
	(void)stream;
	(void)arg;
	if (t->piece)
		n = min(n, t->piece);
	memcpy(out, t->data, n);
	t->data += n;
	t->len -= n;
	if (t->len == 0)
		*flags |= NGHTTP2_DATA_FLAG_EOF;
	return (ssize_t)n;
}

static nghttp2_nv pair(const char *name, const char *value)
{
	return (nghttp2_nv){ .name = (uint8_t *)(uintptr_t)name,
		.namelen = strlen(name),
		.value = (uint8_t *)(uintptr_t)value,
		.valuelen = strlen(value) };
}

/* A header more, in the place of one with its name; name NULL: none. */
static int32_t request(const char *path, struct text *text, const char *name, const char *value)
{
	nghttp2_nv headers[7] = { pair(":method", "POST"), pair(":scheme", "http"),
		pair(":path", path), pair(":authority", "/run/csi%2Fcsi.sock"),
		pair("te", "trailers"), pair("content-type", "application/grpc") };
	const nghttp2_data_provider provider = { .source.ptr = text, .read_callback = read_text };
	size_t n = 6;

	for (size_t i = 0; name && i < 6; i++)
		if (strcmp((const char *)headers[i].name, name) == 0) {
			headers[i] = pair(name, value);
			name = NULL;
		}
	if (name)
		headers[n++] = pair(name, value);
	return nghttp2_submit_request(w->client, NULL, headers, n, text ? &provider : NULL, NULL);
}

#define TEXT(bytes)                                            \
	{                                                      \
		(const uint8_t *)(bytes), sizeof(bytes) - 1, 0 \
	}

static const struct answer *ask(
	const char *path, struct text text, const char *name, const char *value)
{
	int32_t stream = request(path, &text, name, value);

	assert_true(stream > 0);
	exchange();
	assert_int_equal(w->fed, 0);
	return answer_of(stream);
}

static void expect_status(const struct answer *a, enum grpc_status status)
{
	char text[8];

	(void)snprintf(text, sizeof(text), "%d", (int)status);
	assert_string_equal(a->status, text);
	assert_true(a->ended);
	assert_false(a->reset);
}

/* ---- tests ----------------------------------------------------------------------------------- */

static void a_message_is_answered(void **state)
{
	const struct answer *a = ask("/a.B/echo", (struct text)TEXT("\0\0\0\0\2hi"), NULL, NULL);

	(void)state;
	expect_status(a, GRPC_OK);
	assert_int_equal(a->len, 7);
	assert_memory_equal(a->body, "\0\0\0\0\2hi", 7);
	a = ask("/a.B/echo", (struct text)TEXT("\0\0\0\0\0"), "grpc-encoding", "identity");
	expect_status(a, GRPC_OK);
	assert_int_equal(a->len, 5);
}

static void a_message_may_come_in_pieces(void **state)
{
	struct text text = TEXT("\0\0\0\0\5hello");
	const struct answer *a;

	(void)state;
	text.piece = 1;
	a = ask("/a.B/echo", text, NULL, NULL);
	expect_status(a, GRPC_OK);
	assert_memory_equal(a->body, "\0\0\0\0\5hello", 10);
}

static void a_failure_has_its_text(void **state)
{
	const struct answer *a = ask("/a.B/refuse", (struct text)TEXT("\0\0\0\0\2hi"), NULL, NULL);

	(void)state;
	expect_status(a, GRPC_NOT_FOUND);
	assert_string_equal(a->text, "100%25 of 'hi'%0A%C3%A9");
	assert_int_equal(a->len, 0);
}

static void bad_requests_have_their_status(void **state)
{
	static const struct {
		struct text text;
		const char *path;
		const char *name;
		const char *value;
		enum grpc_status status;
	} rows[] = {
		{ TEXT(""), "/a.B/echo", NULL, NULL, GRPC_UNIMPLEMENTED },
		{ TEXT("\0\0\0\0\1a\0\0\0\0\1b"), "/a.B/echo", NULL, NULL, GRPC_UNIMPLEMENTED },
		{ TEXT("\0\0\0\0\1abc"), "/a.B/echo", NULL, NULL, GRPC_UNIMPLEMENTED },
		{ TEXT("\1\0\0\0\1a"), "/a.B/echo", NULL, NULL, GRPC_UNIMPLEMENTED },
		{ TEXT("\2\0\0\0\1a"), "/a.B/echo", NULL, NULL, GRPC_INTERNAL },
		{ TEXT("\0\0\0"), "/a.B/echo", NULL, NULL, GRPC_INTERNAL },
		{ TEXT("\0\0\0\0\3a"), "/a.B/echo", NULL, NULL, GRPC_INTERNAL },
		{ TEXT("\0\0\x40\0\1"), "/a.B/echo", NULL, NULL, GRPC_RESOURCE_EXHAUSTED },
		{ TEXT("\0\0\0\0\0"), "/a.B/other", NULL, NULL, GRPC_UNIMPLEMENTED },
		{ TEXT("\0\0\0\0\0"), "/a.B/echo", "grpc-encoding", "gzip", GRPC_UNIMPLEMENTED },
		{ TEXT("\0\0\0\0\0"), "/a.B/echo", ":method", "GET", GRPC_UNIMPLEMENTED },
		{ TEXT("\0\0\0\0\0"), "/a.B/echo", "content-type", "text/plain", GRPC_INTERNAL },
		{ TEXT("\0\0\0\0\0"), "/a.B/echo", "content-type", "application/grpc2",
			GRPC_INTERNAL },
		{ TEXT("\0\0\0\0\0"), "/a.B/echo", "grpc-timeout", "", GRPC_INTERNAL },
		{ TEXT("\0\0\0\0\0"), "/a.B/echo", "grpc-timeout", "5", GRPC_INTERNAL },
		{ TEXT("\0\0\0\0\0"), "/a.B/echo", "grpc-timeout", "123456789S", GRPC_INTERNAL },
		{ TEXT("\0\0\0\0\0"), "/a.B/echo", "grpc-timeout", "1x", GRPC_INTERNAL },
		{ TEXT("\0\0\0\0\0"), "/a.B/echo", "grpc-timeout", "1SS", GRPC_INTERNAL },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
		expect_status(ask(rows[i].path, rows[i].text, rows[i].name, rows[i].value),
			rows[i].status);
}

static void headers_that_are_no_http_reset_the_call(void **state)
{
	char *large = malloc(GRPC_HEADERS_MAX);

	(void)state;
	assert_non_null(large);
	memset(large, 'x', GRPC_HEADERS_MAX - 1);
	large[GRPC_HEADERS_MAX - 1] = '\0';
	assert_true(ask("/a.B/echo", (struct text)TEXT("\0\0\0\0\0"), "x", large)->reset);
	assert_true(ask("/a.B/echo", (struct text)TEXT("\0\0\0\0\0"), ":other", "x")->reset);
	free(large);
	expect_status(ask("/a.B/echo", (struct text)TEXT("\0\0\0\0\0"), NULL, NULL), GRPC_OK);
}

static void a_call_may_be_answered_later(void **state)
{
	const struct answer *a = ask("/a.B/later", (struct text)TEXT("\0\0\0\0\0"), NULL, NULL);

	(void)state;
	assert_false(a->ended);
	assert_int_equal(grpc_conn_calls(w->conn), 1);
	assert_int_equal(nghttp2_submit_ping(w->client, NGHTTP2_FLAG_NONE, NULL), 0);
	exchange();
	assert_int_equal(w->pongs, 1);
	assert_int_equal(w->wakes, 0);
	grpc_call_reply(w->kept[0], "ok", 2);
	assert_int_equal(w->wakes, 1);
	exchange();
	expect_status(a, GRPC_OK);
	assert_memory_equal(a->body, "\0\0\0\0\2ok", 7);
	assert_int_equal(w->ended, 0);
	assert_int_equal(grpc_conn_calls(w->conn), 0);
}

static void a_call_ends_at_its_deadline(void **state)
{
	const struct answer *a =
		ask("/a.B/later", (struct text)TEXT("\0\0\0\0\0"), "grpc-timeout", "20m");

	(void)state;
	assert_int_equal(grpc_conn_due(w->conn), 1 + 20 * CLOCK_MS);
	grpc_conn_expire(w->conn, 20 * CLOCK_MS);
	assert_int_equal(w->ended, 0);
	grpc_conn_expire(w->conn, 1 + 20 * CLOCK_MS);
	assert_int_equal(w->ended, 1);
	exchange();
	expect_status(a, GRPC_DEADLINE_EXCEEDED);
	assert_int_equal(grpc_conn_due(w->conn), UINT64_MAX);
}

static void long_timeouts_are_cut(void **state)
{
	const struct answer *a =
		ask("/a.B/later", (struct text)TEXT("\0\0\0\0\0"), "grpc-timeout", "99999999H");

	(void)state;
	assert_false(a->ended);
	assert_int_equal(grpc_conn_due(w->conn), 1 + 24 * 3600 * CLOCK_SECOND);
}

static ssize_t read_never(nghttp2_session *session, int32_t stream, uint8_t *out, size_t size,
	uint32_t *flags, nghttp2_data_source *source, void *arg)
{
	(void)session;
	(void)stream;
	(void)out;
	(void)size;
	(void)flags;
	(void)source;
	(void)arg;
	return NGHTTP2_ERR_DEFERRED;
}

/* Of a call that is refused as well as of one that is not. */
static void a_request_that_never_ends_is_ended(void **state)
{
	static const char *const paths[] = { "/a.B/echo", "/a.B/other" };
	const nghttp2_data_provider provider = { .read_callback = read_never };
	int32_t streams[2];

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(paths); i++) {
		const nghttp2_nv headers[] = { pair(":method", "POST"), pair(":scheme", "http"),
			pair(":path", paths[i]), pair("content-type", "application/grpc") };

		streams[i] = nghttp2_submit_request(
			w->client, NULL, headers, ARRAY_SIZE(headers), &provider, NULL);
	}
	exchange();
	assert_int_equal(w->n_calls, 2);
	assert_int_equal(grpc_conn_due(w->conn), 1 + 10 * CLOCK_SECOND);
	grpc_conn_expire(w->conn, 1 + 10 * CLOCK_SECOND);
	exchange();
	for (size_t i = 0; i < ARRAY_SIZE(paths); i++) {
		assert_string_equal(answer_of(streams[i])->status, "4");
		assert_true(answer_of(streams[i])->ended);
	}
	assert_int_equal(w->n_calls, 0);
}

static void calls_of_all_connections_are_bounded(void **state)
{
	(void)state;
	w->n_calls = GRPC_CALLS_MAX - 1;
	expect_status(ask("/a.B/echo", (struct text)TEXT("\0\0\0\0\0"), NULL, NULL), GRPC_OK);
	w->n_calls = GRPC_CALLS_MAX;
	assert_true(ask("/a.B/echo", (struct text)TEXT("\0\0\0\0\0"), NULL, NULL)->reset);
	w->n_calls = 0;
}

static void a_reset_ends_the_call(void **state)
{
	const struct answer *a = ask("/a.B/later", (struct text)TEXT("\0\0\0\0\0"), NULL, NULL);

	(void)state;
	assert_int_equal(
		nghttp2_submit_rst_stream(w->client, NGHTTP2_FLAG_NONE, a->stream, NGHTTP2_CANCEL),
		0);
	exchange();
	assert_int_equal(w->ended, 1);
	assert_int_equal(grpc_conn_calls(w->conn), 0);
}

static void the_end_of_the_connection_ends_its_calls(void **state)
{
	(void)state;
	for (unsigned int i = 0; i < 3; i++)
		(void)ask("/a.B/later", (struct text)TEXT("\0\0\0\0\0"), NULL, NULL);
	grpc_conn_free(w->conn);
	w->conn = NULL;
	assert_int_equal(w->ended, 3);
	assert_int_equal(w->wakes, 0);
}

static void a_connection_has_a_thousand_calls(void **state)
{
	(void)state;
	for (unsigned int i = 0; i < GRPC_CALLS_MAX; i++)
		assert_false(ask("/a.B/later", (struct text)TEXT("\0\0\0\0\0"), NULL, NULL)->ended);
	/* The client waits with one more, as our settings say. */
	assert_int_equal(request("/a.B/echo", NULL, NULL, NULL), 2 * GRPC_CALLS_MAX + 1);
	exchange();
	assert_int_equal(w->n_kept, GRPC_CALLS_MAX);
	for (unsigned int i = 0; i < GRPC_CALLS_MAX; i++)
		grpc_call_reply(w->kept[i], "", 0);
	exchange();
	for (unsigned int i = 0; i < GRPC_CALLS_MAX; i++)
		expect_status(&w->answers[i], GRPC_OK);
	expect_status(answer_of(2 * GRPC_CALLS_MAX + 1), GRPC_UNIMPLEMENTED);
}

static void bytes_of_incomplete_messages_are_bounded(void **state)
{
	static uint8_t large[GRPC_MESSAGE_MAX + 5] = { 0, 0, 0x40, 0, 0 };
	struct text texts[3];
	int32_t streams[3];

	(void)state;
	for (unsigned int i = 0; i < 3; i++) {
		texts[i] = (struct text){ large, sizeof(large) - 1, 0 }; /* one byte is missing */
		streams[i] = request("/a.B/echo", &texts[i], NULL, NULL);
	}
	exchange();
	assert_true(w->budget.peak <= BUDGET);
	for (unsigned int i = 0; i < 3; i++)
		assert_true(strcmp(answer_of(streams[i])->status, "8") == 0 ||
			    strcmp(answer_of(streams[i])->status, "13") == 0);
	assert_int_equal(w->budget.used, 0);
}

static void a_storm_of_resets_keeps_nothing(void **state)
{
	unsigned int i;

	(void)state;
	for (i = 0; i < 20000 && !grpc_conn_done(w->conn); i++) {
		struct text text = TEXT("\0\0\0\0\0");
		int32_t stream = request("/a.B/later", &text, NULL, NULL);

		exchange();
		if (stream < 0 || nghttp2_submit_rst_stream(w->client, NGHTTP2_FLAG_NONE, stream,
					  NGHTTP2_CANCEL) != 0)
			break;
		exchange();
		w->n = 0;
		w->n_kept = 0;
		assert_int_equal(grpc_conn_calls(w->conn), 0);
	}
	/* nghttp2 ends a connection that has nothing but resets. */
	assert_in_range(i, 100, 19999);
	assert_true(w->ended >= i - 2);
}

static void other_bytes_end_the_connection(void **state)
{
	static const char *const texts[] = { "GET / HTTP/1.1\r\n\r\n",
		"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\nxxxxxxxxxxxxxxxxxxxx" };

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(texts); i++) {
		struct grpc_conn *conn = NULL;
		const uint8_t *data;
		size_t len = 1;
		int r;

		assert_int_equal(grpc_conn_new(&w->service, wake, w, &conn), 0);
		r = grpc_conn_feed(conn, texts[i], strlen(texts[i]), 1);
		while (len > 0)
			assert_int_equal(grpc_conn_output(conn, &data, &len), 0);
		assert_true(r == -EPROTO || grpc_conn_done(conn));
		grpc_conn_free(conn);
	}
}

static void a_server_that_ends_says_so(void **state)
{
	(void)state;
	exchange();
	grpc_conn_shut(w->conn);
	assert_int_equal(w->wakes, 1);
	exchange();
	assert_int_equal(nghttp2_session_check_request_allowed(w->client), 0);
}

#define TEST(function) cmocka_unit_test_setup_teardown(function, set_up, tear_down)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(a_message_is_answered),
		TEST(a_message_may_come_in_pieces),
		TEST(a_failure_has_its_text),
		TEST(bad_requests_have_their_status),
		TEST(headers_that_are_no_http_reset_the_call),
		TEST(a_call_may_be_answered_later),
		TEST(a_call_ends_at_its_deadline),
		TEST(long_timeouts_are_cut),
		TEST(a_request_that_never_ends_is_ended),
		TEST(calls_of_all_connections_are_bounded),
		TEST(a_reset_ends_the_call),
		TEST(the_end_of_the_connection_ends_its_calls),
		TEST(a_connection_has_a_thousand_calls),
		TEST(bytes_of_incomplete_messages_are_bounded),
		TEST(a_storm_of_resets_keeps_nothing),
		TEST(other_bytes_end_the_connection),
		TEST(a_server_that_ends_says_so),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
