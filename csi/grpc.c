/* gRPC over nghttp2. See grpc.h. */
#include "csi/grpc.h"
#include "base/check.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/list.h"

#include <errno.h>
#include <nghttp2/nghttp2.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TIMEOUT_MAX  (24 * 3600 * CLOCK_SECOND) /* of a call; longer ones are cut */
#define REQUEST_NS   (10 * CLOCK_SECOND)        /* from the first byte of a request to its last */
#define PREFIX_BYTES 5u /* of a message: compressed (1), length (4, big-endian) */

enum call_state {
	CALL_HEADERS, /* its headers arrive */
	CALL_MESSAGE, /* its message arrives */
	CALL_FAILING, /* known to fail: answered at the end of the request */
	CALL_HANDLED, /* the method has it */
	CALL_ANSWERED,
};

struct grpc_call {
	struct list link; /* in the connection's calls */
	struct grpc_conn *conn;
	int32_t stream;
	enum call_state state;
	const struct grpc_method *method;
	bool has_method; /* :method was POST */
	bool has_path;
	bool has_scheme;
	bool is_regular; /* a header without ':' has come */
	bool is_grpc;    /* content-type */
	size_t header_bytes;
	uint64_t deadline_ns; /* UINT64_MAX: none */
	uint64_t request_ns;  /* its request is complete by then; UINT64_MAX: it is */
	struct buf request;   /* prefix and message */
	size_t taken;         /* of the budget */
	enum grpc_status status;
	char text[GRPC_TEXT_MAX];
	struct buf reply;
	size_t sent; /* of reply */
	void (*end)(void *arg);
	void *end_arg;
};

struct grpc_conn {
	const struct grpc_service *service;
	nghttp2_session *session;
	void (*wake)(void *arg);
	void *wake_arg;
	struct list calls;
	unsigned int open; /* handled, not answered */
	uint64_t now;
	bool feeding; /* in grpc_conn_feed(): the caller asks for output afterwards */
};

/* ---- answers --------------------------------------------------------------------------------- */

#define HEADER(name_text, value_text)                                                       \
	{                                                                                   \
		.name = (uint8_t *)(uintptr_t)(name_text), .namelen = strlen(name_text),    \
		.value = (uint8_t *)(uintptr_t)(value_text), .valuelen = strlen(value_text) \
	} /* nghttp2 copies them */

static void wake(struct grpc_conn *conn)
{
	if (!conn->feeding)
		conn->wake(conn->wake_arg);
}

/* What is not a plain character of ASCII, '%', and a blank at the end, which a header does not have, become %XX. */
static void encode_text(const char *text, char out[3 * GRPC_TEXT_MAX])
{
	for (const unsigned char *p = (const unsigned char *)text; *p; p++)
		if (*p < ' ' || *p > '~' || *p == '%' || (*p == ' ' && !p[1]))
			out += sprintf(out, "%%%02X", *p); /* fits */
		else
			*out++ = (char)*p;
	*out = '\0';
}

static void give_back(struct grpc_call *call)
{
	budget_give(call->conn->service->messages, call->taken);
	call->taken = 0;
	buf_release(&call->request);
}

/* From now on it has its answer. */
static void leave(struct grpc_call *call)
{
	if (call->state == CALL_HANDLED)
		call->conn->open--;
	call->state = CALL_ANSWERED;
	call->end = NULL;
	give_back(call);
}

/* A failed submission is a lack of memory, or a stream that is closing: that one is reset. */
static void check_submitted(struct grpc_call *call, int r)
{
	if (r != 0)
		(void)nghttp2_submit_rst_stream(call->conn->session, NGHTTP2_FLAG_NONE,
			call->stream, NGHTTP2_INTERNAL_ERROR); /* or the connection ends */
	wake(call->conn);
}

/* One HEADERS frame that ends the stream. */
static void submit_failure(struct grpc_call *call)
{
	char status[16];
	char text[3 * GRPC_TEXT_MAX];
	nghttp2_nv headers[5] = {
		HEADER(":status", "200"),
		HEADER("content-type", "application/grpc"),
	};
	size_t n = 2;

	(void)snprintf(status, sizeof(status), "%d", (int)call->status);
	encode_text(call->text, text);
	headers[n++] = (nghttp2_nv)HEADER("grpc-status", status);
	headers[n++] = (nghttp2_nv)HEADER("grpc-message", text);
	if (call->status == GRPC_UNIMPLEMENTED)
		headers[n++] = (nghttp2_nv)HEADER("grpc-accept-encoding", "identity");
	leave(call);
	check_submitted(
		call, nghttp2_submit_response(call->conn->session, call->stream, headers, n, NULL));
}

static ssize_t read_reply(nghttp2_session *session, int32_t stream, uint8_t *out, size_t size,
	uint32_t *flags, nghttp2_data_source *source, void *arg)
{
	static const nghttp2_nv trailer = HEADER("grpc-status", "0");
	struct grpc_call *call = source->ptr;
	size_t n = min(size, call->reply.len - call->sent);

	(void)arg;
	memcpy(out, call->reply.data + call->sent, n);
	call->sent += n;
	if (call->sent < call->reply.len)
		return (ssize_t)n;
	*flags |= NGHTTP2_DATA_FLAG_EOF | NGHTTP2_DATA_FLAG_NO_END_STREAM;
	return nghttp2_submit_trailer(session, stream, &trailer, 1) == 0
		       ? (ssize_t)n
		       : NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
}

void grpc_call_reply(struct grpc_call *call, const void *message, size_t len)
{
	const nghttp2_nv headers[] = {
		HEADER(":status", "200"),
		HEADER("content-type", "application/grpc"),
	};
	const nghttp2_data_provider provider = { .source.ptr = call, .read_callback = read_reply };
	uint8_t prefix[PREFIX_BYTES] = { 0, (uint8_t)(len >> 24), (uint8_t)(len >> 16),
		(uint8_t)(len >> 8), (uint8_t)len };

	ensure(call->state == CALL_HANDLED && len <= GRPC_MESSAGE_MAX);
	if (buf_append(&call->reply, prefix, sizeof(prefix)) < 0 ||
		buf_append(&call->reply, message, len) < 0) {
		grpc_call_fail(call, GRPC_RESOURCE_EXHAUSTED, "out of memory");
		return;
	}
	leave(call);
	check_submitted(call, nghttp2_submit_response(call->conn->session, call->stream, headers,
				      ARRAY_SIZE(headers), &provider));
}

/* Known to fail before the method has it: answered when the request has ended. */
static void __printf(3, 4)
	refuse(struct grpc_call *call, enum grpc_status status, const char *fmt, ...)
{
	va_list ap;

	if (call->state >= CALL_FAILING)
		return;
	call->state = CALL_FAILING;
	call->status = status;
	va_start(ap, fmt);
	(void)vsnprintf(call->text, sizeof(call->text), fmt, ap); /* cut */
	va_end(ap);
	give_back(call);
}

void grpc_call_fail(struct grpc_call *call, enum grpc_status status, const char *fmt, ...)
{
	va_list ap;

	ensure(call->state == CALL_HANDLED);
	call->status = status;
	va_start(ap, fmt);
	(void)vsnprintf(call->text, sizeof(call->text), fmt, ap); /* cut */
	va_end(ap);
	submit_failure(call);
}

void grpc_call_on_end(struct grpc_call *call, void (*fn)(void *arg), void *arg)
{
	ensure(call->state == CALL_HANDLED);
	call->end = fn;
	call->end_arg = arg;
}

/* ---- headers --------------------------------------------------------------------------------- */

/* "15S": up to eight digits and a unit. -EINVAL. */
static int parse_timeout(const char *text, uint64_t *ret_ns)
{
	static const char units[] = "HMSmun";
	static const uint64_t ns[] = { 3600 * CLOCK_SECOND, 60 * CLOCK_SECOND, CLOCK_SECOND,
		CLOCK_MS, 1000, 1 };
	size_t digits = strspn(text, "0123456789");
	const char *unit = text[digits] ? strchr(units, text[digits]) : NULL;

	if (digits == 0 || digits > 8 || !unit || text[digits + 1])
		return -EINVAL;
	*ret_ns = min(strtoull(text, NULL, 10), TIMEOUT_MAX / ns[unit - units]) * ns[unit - units];
	return 0;
}

static const struct grpc_method *find_method(const struct grpc_conn *conn, const char *path)
{
	for (const struct grpc_method *m = conn->service->methods; m->path; m++)
		if (strcmp(m->path, path) == 0)
			return m;
	return NULL;
}

/* False: no HTTP. */
static bool take_pseudo(struct grpc_call *call, const char *name, const char *value)
{
	bool *seen = strcmp(name, ":method") == 0   ? &call->has_method
		     : strcmp(name, ":path") == 0   ? &call->has_path
		     : strcmp(name, ":scheme") == 0 ? &call->has_scheme
						    : NULL;

	if (strcmp(name, ":authority") == 0) /* grpc-go sends the path of the socket */
		return !call->is_regular;
	if (!seen || *seen || call->is_regular)
		return false;
	*seen = true;
	if (strcmp(name, ":method") == 0 && strcmp(value, "POST") != 0)
		refuse(call, GRPC_UNIMPLEMENTED, "HTTP method %.32s: gRPC uses POST", value);
	if (strcmp(name, ":path") == 0) {
		call->method = find_method(call->conn, value);
		if (!call->method)
			refuse(call, GRPC_UNIMPLEMENTED, "unknown method %.256s", value);
	}
	return true;
}

static void take_regular(struct grpc_call *call, const char *name, const char *value)
{
	uint64_t timeout;

	call->is_regular = true;
	if (strcmp(name, "content-type") == 0) {
		call->is_grpc = strncmp(value, "application/grpc", 16) == 0 &&
				(!value[16] || value[16] == '+' || value[16] == ';');
	} else if (strcmp(name, "grpc-timeout") == 0) {
		if (parse_timeout(value, &timeout) < 0)
			refuse(call, GRPC_INTERNAL, "invalid grpc-timeout: %.32s", value);
		else
			call->deadline_ns = call->conn->now + timeout;
	} else if (strcmp(name, "grpc-encoding") == 0 && strcmp(value, "identity") != 0) {
		refuse(call, GRPC_UNIMPLEMENTED,
			"compression %.32s is not supported: send messages uncompressed", value);
	}
}

/* A text without NUL. */
static bool is_text(const uint8_t *bytes, size_t len)
{
	return memchr(bytes, '\0', len) == NULL;
}

static int on_header(nghttp2_session *session, const nghttp2_frame *frame, const uint8_t *name,
	size_t name_len, const uint8_t *value, size_t value_len, uint8_t flags, void *arg)
{
	struct grpc_call *call = nghttp2_session_get_stream_user_data(session, frame->hd.stream_id);

	(void)flags;
	(void)arg;
	if (!call || frame->hd.type != NGHTTP2_HEADERS ||
		frame->headers.cat != NGHTTP2_HCAT_REQUEST || call->state == CALL_ANSWERED)
		return 0; /* trailers have nothing for a server */
	call->header_bytes += name_len + value_len + 32;
	if (call->header_bytes > GRPC_HEADERS_MAX || !is_text(name, name_len) ||
		!is_text(value, value_len) || name_len == 0)
		return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE; /* resets the stream */
	/* Both end with a NUL, says nghttp2. */
	if (name[0] != ':')
		take_regular(call, (const char *)name, (const char *)value);
	else if (!take_pseudo(call, (const char *)name, (const char *)value))
		return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
	return 0;
}

static int on_begin_headers(nghttp2_session *session, const nghttp2_frame *frame, void *arg)
{
	struct grpc_conn *conn = arg;
	struct grpc_call *call;

	if (frame->hd.type != NGHTTP2_HEADERS || frame->headers.cat != NGHTTP2_HCAT_REQUEST)
		return 0;
	if (*conn->service->n_calls >= GRPC_CALLS_MAX)
		return nghttp2_submit_rst_stream(
			session, NGHTTP2_FLAG_NONE, frame->hd.stream_id, NGHTTP2_REFUSED_STREAM);
	call = calloc(1, sizeof(*call));
	if (!call)
		return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
	++*conn->service->n_calls;
	call->conn = conn;
	call->stream = frame->hd.stream_id;
	call->deadline_ns = UINT64_MAX;
	call->request_ns = conn->now + REQUEST_NS;
	call->request = BUF_INIT(PREFIX_BYTES + GRPC_MESSAGE_MAX);
	call->reply = BUF_INIT(PREFIX_BYTES + GRPC_MESSAGE_MAX);
	list_push_back(&conn->calls, &call->link);
	ensure(nghttp2_session_set_stream_user_data(session, call->stream, call) == 0);
	return 0;
}

/* ---- messages -------------------------------------------------------------------------------- */

static uint32_t message_len(const struct grpc_call *call)
{
	const uint8_t *p = (const uint8_t *)call->request.data;

	return (uint32_t)p[1] << 24 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 8 | p[4];
}

/* Looks at the prefix once it is there. */
static void check_message(struct grpc_call *call)
{
	if (call->request.len < PREFIX_BYTES)
		return;
	if (call->request.data[0] == 1)
		refuse(call, GRPC_UNIMPLEMENTED,
			"compressed messages are not supported: send them uncompressed");
	else if (call->request.data[0] != 0)
		refuse(call, GRPC_INTERNAL, "invalid flags of a message: %u",
			(uint8_t)call->request.data[0]);
	else if (message_len(call) > GRPC_MESSAGE_MAX)
		refuse(call, GRPC_RESOURCE_EXHAUSTED,
			"the message has %u bytes, more than the maximum of %u", message_len(call),
			GRPC_MESSAGE_MAX);
	else if (call->request.len > PREFIX_BYTES + message_len(call))
		refuse(call, GRPC_UNIMPLEMENTED, "the method takes exactly one message");
}

static int on_data(nghttp2_session *session, uint8_t flags, int32_t stream, const uint8_t *data,
	size_t len, void *arg)
{
	struct grpc_conn *conn = arg;
	struct grpc_call *call = nghttp2_session_get_stream_user_data(session, stream);

	(void)flags;
	while (call && call->state == CALL_MESSAGE && len > 0) {
		/* The prefix alone first: a buffer is not made for what is refused. */
		size_t n = call->request.len < PREFIX_BYTES
				   ? min(len, PREFIX_BYTES - call->request.len)
				   : min(len, call->request.max - call->request.len);

		if (n == 0 || !budget_take(conn->service->messages, BUDGET_DEMAND, n)) {
			refuse(call, GRPC_RESOURCE_EXHAUSTED,
				"too many bytes of requests: try again");
			break;
		}
		call->taken += n;
		if (buf_append(&call->request, data, n) < 0)
			refuse(call, GRPC_RESOURCE_EXHAUSTED, "out of memory");
		else
			check_message(call);
		data += n;
		len -= n;
	}
	return 0;
}

static void end_request(struct grpc_call *call)
{
	struct grpc_conn *conn = call->conn;
	struct buf message;

	call->request_ns = UINT64_MAX;
	if (call->state == CALL_MESSAGE && call->request.len == 0)
		refuse(call, GRPC_UNIMPLEMENTED, "the method takes exactly one message");
	if (call->state == CALL_MESSAGE &&
		(call->request.len < PREFIX_BYTES ||
			call->request.len < PREFIX_BYTES + message_len(call)))
		refuse(call, GRPC_INTERNAL, "the message ends before its length");
	if (call->state == CALL_FAILING) {
		submit_failure(call);
		return;
	}
	if (call->state != CALL_MESSAGE)
		return;
	call->state = CALL_HANDLED;
	conn->open++;
	message = call->request;
	call->request = BUF_INIT(0);
	call->method->handle(conn->service->arg, call, message.data + PREFIX_BYTES,
		message.len -
			PREFIX_BYTES); /* may have answered: the call lives until its stream is closed */
	buf_release(&message);
	budget_give(conn->service->messages, call->taken);
	call->taken = 0;
}

/* The headers of a request are complete. */
static int end_headers(struct grpc_call *call)
{
	if (!call->has_method || !call->has_path || !call->has_scheme)
		return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
	if (!call->is_grpc)
		refuse(call, GRPC_INTERNAL, "the content-type is not application/grpc");
	if (call->state == CALL_HEADERS)
		call->state = CALL_MESSAGE;
	return 0;
}

static int on_frame(nghttp2_session *session, const nghttp2_frame *frame, void *arg)
{
	struct grpc_call *call;
	int r = 0;

	(void)arg;
	if (frame->hd.type != NGHTTP2_HEADERS && frame->hd.type != NGHTTP2_DATA)
		return 0;
	call = nghttp2_session_get_stream_user_data(session, frame->hd.stream_id);
	if (!call || call->state >= CALL_HANDLED)
		return 0;
	if (frame->hd.type == NGHTTP2_HEADERS && frame->headers.cat == NGHTTP2_HCAT_REQUEST)
		r = end_headers(call);
	if (r != 0)
		return nghttp2_submit_rst_stream(
			session, NGHTTP2_FLAG_NONE, frame->hd.stream_id, NGHTTP2_PROTOCOL_ERROR);
	if (frame->hd.flags & NGHTTP2_FLAG_END_STREAM)
		end_request(call);
	return 0;
}

/* The rest of a request that was answered is not waited for: a stream ends with both directions. */
static int on_sent(nghttp2_session *session, const nghttp2_frame *frame, void *arg)
{
	const struct grpc_call *call =
		nghttp2_session_get_stream_user_data(session, frame->hd.stream_id);

	(void)arg;
	if (!call || frame->hd.type != NGHTTP2_HEADERS || call->request_ns == UINT64_MAX ||
		!(frame->hd.flags & NGHTTP2_FLAG_END_STREAM))
		return 0;
	return nghttp2_submit_rst_stream(
		session, NGHTTP2_FLAG_NONE, call->stream, NGHTTP2_NO_ERROR);
}

/* ---- a call's end ---------------------------------------------------------------------------- */

static void call_free(struct grpc_call *call)
{
	void (*end)(void *arg) = call->end;
	void *arg = call->end_arg;

	leave(call);
	--*call->conn->service->n_calls;
	list_remove(&call->link);
	buf_release(&call->reply);
	free(call);
	if (end)
		end(arg);
}

static int on_close(nghttp2_session *session, int32_t stream, uint32_t error, void *arg)
{
	struct grpc_call *call = nghttp2_session_get_stream_user_data(session, stream);

	(void)error;
	(void)arg;
	if (call)
		call_free(call);
	return 0;
}

static uint64_t due_of(const struct grpc_call *call)
{
	return min(call->deadline_ns, call->request_ns);
}

uint64_t grpc_conn_due(const struct grpc_conn *conn)
{
	uint64_t due = UINT64_MAX;

	list_for_each (node, &conn->calls) {
		const struct grpc_call *call = list_entry(node, struct grpc_call, link);

		if (call->state != CALL_ANSWERED)
			due = min(due, due_of(call));
	}
	return due;
}

/* Also one whose request never ends. */
static void expire(struct grpc_call *call)
{
	void (*end)(void *arg) = call->end;
	void *arg = call->end_arg;

	call->status = GRPC_DEADLINE_EXCEEDED;
	(void)snprintf(
		call->text, sizeof(call->text), "the deadline of the call is over"); /* fits */
	submit_failure(call);
	if (end)
		end(arg);
}

void grpc_conn_expire(struct grpc_conn *conn, uint64_t now)
{
	conn->feeding = true; /* output may free calls: afterwards */
	list_for_each_safe (node, &conn->calls) {
		struct grpc_call *call = list_entry(node, struct grpc_call, link);

		if (call->state != CALL_ANSWERED && due_of(call) <= now)
			expire(call);
	}
	conn->feeding = false;
}

/* ---- a connection ---------------------------------------------------------------------------- */

static int make_session(struct grpc_conn *conn)
{
	const nghttp2_settings_entry settings[] = {
		{ NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS, GRPC_CALLS_MAX },
		{ NGHTTP2_SETTINGS_MAX_HEADER_LIST_SIZE, GRPC_HEADERS_MAX },
	};
	nghttp2_session_callbacks *callbacks = NULL;
	nghttp2_option *option = NULL;
	int r = nghttp2_session_callbacks_new(&callbacks);

	if (r == 0)
		r = nghttp2_option_new(&option);
	if (r == 0) {
		nghttp2_session_callbacks_set_on_begin_headers_callback(
			callbacks, on_begin_headers);
		nghttp2_session_callbacks_set_on_header_callback(callbacks, on_header);
		nghttp2_session_callbacks_set_on_frame_recv_callback(callbacks, on_frame);
		nghttp2_session_callbacks_set_on_data_chunk_recv_callback(callbacks, on_data);
		nghttp2_session_callbacks_set_on_stream_close_callback(callbacks, on_close);
		nghttp2_session_callbacks_set_on_frame_send_callback(callbacks, on_sent);
		/* grpc-go's :authority, the path of a socket, is not HTTP: take_pseudo() checks instead. */
		nghttp2_option_set_no_http_messaging(option, 1);
		r = nghttp2_session_server_new2(&conn->session, callbacks, conn, option);
	}
	if (r == 0)
		r = nghttp2_submit_settings(
			conn->session, NGHTTP2_FLAG_NONE, settings, ARRAY_SIZE(settings));
	nghttp2_option_del(option);
	nghttp2_session_callbacks_del(callbacks);
	return r == 0 ? 0 : -ENOMEM;
}

int grpc_conn_new(const struct grpc_service *service, void (*wake_fn)(void *arg), void *arg,
	struct grpc_conn **ret_conn)
{
	struct grpc_conn *conn = calloc(1, sizeof(*conn));

	if (!conn)
		return -ENOMEM;
	conn->service = service;
	conn->wake = wake_fn;
	conn->wake_arg = arg;
	list_init(&conn->calls);
	if (make_session(conn) < 0) {
		grpc_conn_free(conn);
		return -ENOMEM;
	}
	*ret_conn = conn;
	return 0;
}

void grpc_conn_free(struct grpc_conn *conn)
{
	if (!conn)
		return;
	conn->feeding = true; /* nothing is sent any more */
	while (!list_empty(&conn->calls))
		call_free(list_entry(conn->calls.next, struct grpc_call, link));
	nghttp2_session_del(conn->session); /* calls nothing back */
	free(conn);
}

static int error_of(ssize_t r)
{
	return r == NGHTTP2_ERR_NOMEM ? -ENOMEM : -EPROTO;
}

int grpc_conn_feed(struct grpc_conn *conn, const void *data, size_t len, uint64_t now)
{
	ssize_t r;

	conn->now = now;
	conn->feeding = true;
	r = nghttp2_session_mem_recv(conn->session, data, len);
	conn->feeding = false;
	return r < 0 ? error_of(r) : 0;
}

int grpc_conn_output(struct grpc_conn *conn, const uint8_t **ret_data, size_t *ret_len)
{
	ssize_t n;

	conn->feeding = true; /* a callback may end a call */
	n = nghttp2_session_mem_send(conn->session, ret_data);
	conn->feeding = false;
	if (n < 0)
		return error_of(n);
	*ret_len = (size_t)n;
	return 0;
}

bool grpc_conn_done(const struct grpc_conn *conn)
{
	return !nghttp2_session_want_read(conn->session) &&
	       !nghttp2_session_want_write(conn->session);
}

unsigned int grpc_conn_calls(const struct grpc_conn *conn)
{
	return conn->open;
}

void grpc_conn_shut(struct grpc_conn *conn)
{
	(void)nghttp2_submit_goaway(conn->session, NGHTTP2_FLAG_NONE,
		nghttp2_session_get_last_proc_stream_id(conn->session), NGHTTP2_NO_ERROR, NULL,
		0); /* without memory it learns it from the end */
	wake(conn);
}
