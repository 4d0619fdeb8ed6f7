/* A client connection: requests in, one at a time; replies out, as the request's plan has it. */
#include "tests/tools/s3d.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "base/clock.h"
#include "base/units.h"

#define CONN_MAGIC 0x73336463u

/* Timers are late: so much of a total pace may be caught up with. */
#define TOTAL_BURST_NS (4 * CLOCK_MS)

static void conn_advance(struct s3d_conn *c);

static void conn_count_begin(struct s3d_conn *c)
{
	struct s3d_stats *st = &c->server->stats;
	enum s3d_kind kind = c->req.kind;

	if (c->control)
		return;
	c->counted = true;
	st->requests++;
	st->kind[kind]++;
	st->put += strcmp(c->req.method, "PUT") == 0;
	st->delete_ += strcmp(c->req.method, "DELETE") == 0;
	st->post += strcmp(c->req.method, "POST") == 0;
	st->in_flight[kind]++;
	st->max_in_flight[kind] = max(st->max_in_flight[kind], st->in_flight[kind]);
}

static void conn_count_end(struct s3d_conn *c)
{
	struct s3d_stats *st = &c->server->stats;

	if (!c->counted)
		return;
	c->counted = false;
	st->in_flight[c->req.kind]--;
	st->status[c->status]++;
	if (c->server->log)
		(void)fprintf(c->server->log, "%s /%s/%s%s%s range=%s status=%d bytes=%llu\n",
			c->req.method, c->req.bucket, c->req.key, *c->req.query ? "?" : "",
			c->req.query, c->req.range, c->status, (unsigned long long)c->body_sent);
}

/* Closing --------------------------------------------------------------------------------- */

static void conn_on_closed(uv_handle_t *handle)
{
	struct s3d_conn *c = handle->data;

	if (--c->open_handles > 0)
		return;
	buf_release(&c->in);
	buf_release(&c->req.head);
	free(c);
}

/* Everything but the socket; false when the connection was closing already. */
static bool conn_begin_close(struct s3d_conn *c)
{
	if (c->state == S3D_CONN_CLOSING)
		return false;
	c->state = S3D_CONN_CLOSING;
	c->more = NULL;
	conn_count_end(c);
	s3d_proxy_abandon(c);
	s3d_store_body_release(&c->body);
	list_remove(&c->link);
	uv_close((uv_handle_t *)&c->timer, conn_on_closed);
	return true;
}

void s3d_conn_close(struct s3d_conn *c)
{
	if (conn_begin_close(c))
		uv_close((uv_handle_t *)&c->tcp, conn_on_closed);
}

void s3d_conn_reset(struct s3d_conn *c)
{
	if (!conn_begin_close(c))
		return;
	if (uv_tcp_close_reset(&c->tcp, conn_on_closed))
		uv_close((uv_handle_t *)&c->tcp, conn_on_closed);
}

static void conn_on_shutdown(uv_shutdown_t *shutdown, int status)
{
	struct s3d_conn *c = shutdown->data;

	(void)status; /* closed in any case */
	if (!uv_is_closing((uv_handle_t *)&c->tcp))
		uv_close((uv_handle_t *)&c->tcp, conn_on_closed);
}

/* Closes once everything queued is sent. */
static void conn_finish(struct s3d_conn *c)
{
	if (!conn_begin_close(c))
		return;
	c->shutdown.data = c;
	if (uv_shutdown(&c->shutdown, (uv_stream_t *)&c->tcp, conn_on_shutdown))
		uv_close((uv_handle_t *)&c->tcp, conn_on_closed);
}

/* Writing --------------------------------------------------------------------------------- */

struct conn_write {
	uv_write_t uv;
	struct s3d_conn *conn;
	size_t len;
	char data[];
};

static void conn_more(struct s3d_conn *c)
{
	if (c->more && !c->queued && !c->paused && c->state == S3D_CONN_BUSY)
		c->more(c);
}

static void conn_on_written(uv_write_t *uv, int status)
{
	struct conn_write *w = container_of(uv, struct conn_write, uv);
	struct s3d_conn *c = w->conn;

	c->queued -= w->len;
	free(w);
	if (status < 0)
		s3d_conn_close(c);
	else
		conn_more(c);
}

static void conn_write(struct s3d_conn *c, const char *data, size_t len)
{
	uv_buf_t piece = uv_buf_init((char *)(uintptr_t)data, (unsigned int)len);
	struct conn_write *w;
	int sent = 0;

	if (c->state == S3D_CONN_CLOSING || len == 0)
		return;
	if (c->queued == 0) {
		sent = uv_try_write((uv_stream_t *)&c->tcp, &piece, 1);
		if (sent < 0 && sent != UV_EAGAIN) {
			s3d_conn_close(c);
			return;
		}
		sent = max(sent, 0);
	}
	len -= (size_t)sent;
	if (len == 0)
		return;
	w = malloc(sizeof(*w) + len);
	if (!w) {
		s3d_conn_close(c);
		return;
	}
	w->conn = c;
	w->len = len;
	memcpy(w->data, data + sent, len);
	piece = uv_buf_init(w->data, (unsigned int)len);
	c->queued += len;
	if (uv_write(&w->uv, (uv_stream_t *)&c->tcp, &piece, 1, conn_on_written)) {
		c->queued -= len;
		free(w);
		s3d_conn_close(c);
	}
}

/* Replying -------------------------------------------------------------------------------- */

static int head_make_wrong(struct s3d_conn *c, struct buf *head)
{
	char range[64];
	unsigned long long first, last, total;
	int r = 0;

	if (c->plan.wrong_etag)
		r = s3d_header_set(head, "ETag", "\"00000000000000000000000000000bad\"");
	if (r == 0 && c->plan.wrong_range &&
		s3d_header_get(head, "Content-Range", range, sizeof(range)) &&
		sscanf(range, "bytes %llu-%llu/%llu", &first, &last, &total) == 3) {
		(void)snprintf(
			range, sizeof(range), "bytes %llu-%llu/%llu", first + 1, last + 1, total);
		r = s3d_header_set(head, "Content-Range", range);
	}
	return r;
}

void s3d_reply_head(struct s3d_conn *c, struct buf *head, int status, uint64_t body_len)
{
	c->status = status;
	c->cut_at = S3D_UNKNOWN;
	if (status < 300 && c->plan.cut != S3D_CUT_NONE) {
		c->cut_at = c->plan.cut_after;
		if (c->cut_at == S3D_UNKNOWN)
			c->cut_at = body_len == S3D_UNKNOWN ? 0 : body_len / 2;
		else if (body_len != S3D_UNKNOWN)
			c->cut_at = min(c->cut_at, body_len ? body_len - 1 : 0);
	}
	if (head_make_wrong(c, head))
		s3d_conn_close(c);
	else
		conn_write(c, head->data, head->len);
}

static void conn_park(struct s3d_conn *c)
{
	c->state = S3D_CONN_PARKED;
}

static void reply_cut(struct s3d_conn *c)
{
	c->more = NULL;
	switch (c->plan.cut) {
	case S3D_CUT_RESET:
		s3d_conn_reset(c);
		break;
	case S3D_CUT_SHORT:
		conn_finish(c);
		break;
	case S3D_CUT_STALL:
		conn_park(c);
		break;
	case S3D_CUT_NONE:
		break;
	}
}

static void conn_on_pace(uv_timer_t *timer)
{
	struct s3d_conn *c = timer->data;

	c->paused = false;
	conn_more(c);
}

static void reply_pause(struct s3d_conn *c, uint64_t ms)
{
	c->paused = true;
	(void)uv_timer_start(&c->timer, conn_on_pace, max(ms, (uint64_t)1), 0); /* never fails */
}

/* Bodies under a total pace take turns: each goes on when its last bytes were due. */
static void reply_pace_total(struct s3d_conn *c, size_t len)
{
	uint64_t *due = &c->server->total_due_ns;
	uint64_t now = uv_hrtime();

	*due = max(*due, now - TOTAL_BURST_NS) +
	       (uint64_t)len * CLOCK_SECOND / c->plan.total_per_second;
	if (*due >= now + CLOCK_MS)
		reply_pause(c, (*due - now) / CLOCK_MS);
}

bool s3d_reply_body(struct s3d_conn *c, const char *data, size_t len)
{
	bool cut = c->cut_at - c->body_sent <= len;

	if (c->state != S3D_CONN_BUSY)
		return false;
	if (cut)
		len = c->cut_at - c->body_sent;
	conn_write(c, data, len);
	c->body_sent += len;
	if (!c->control && c->status < 300)
		c->server->stats.body_bytes[c->req.kind] += len;
	if (cut) {
		reply_cut(c);
		return false;
	}
	if (c->plan.bytes_per_second && len)
		reply_pause(c, (uint64_t)len * 1000 / c->plan.bytes_per_second);
	else if (c->plan.total_per_second && len)
		reply_pace_total(c, len);
	return c->state == S3D_CONN_BUSY && !c->queued && !c->paused;
}

void s3d_reply_end(struct s3d_conn *c)
{
	if (c->state != S3D_CONN_BUSY)
		return;
	c->more = NULL;
	c->replied = true;
	conn_count_end(c);
	s3d_store_body_release(&c->body);
	if (!c->req.keep_alive || c->close_after)
		conn_finish(c);
	else
		conn_advance(c);
}

const char *s3d_reason(int status)
{
	static const struct {
		int status;
		const char *reason;
	} reasons[] = { { 200, "OK" }, { 206, "Partial Content" }, { 400, "Bad Request" },
		{ 403, "Forbidden" }, { 404, "Not Found" }, { 412, "Precondition Failed" },
		{ 416, "Requested Range Not Satisfiable" }, { 429, "Too Many Requests" },
		{ 500, "Internal Server Error" }, { 501, "Not Implemented" },
		{ 502, "Bad Gateway" }, { 503, "Service Unavailable" } };

	for (size_t i = 0; i < ARRAY_SIZE(reasons); i++)
		if (reasons[i].status == status)
			return reasons[i].reason;
	return "Status";
}

void s3d_reply_whole(
	struct s3d_conn *c, int status, const char *type, const char *extra, const struct buf *body)
{
	struct buf head = BUF_INIT(S3D_HEAD_BYTES);
	char date[64];
	time_t now = time(NULL);
	struct tm tm;

	(void)gmtime_r(&now, &tm);
	(void)strftime(date, sizeof(date), "%a, %d %b %Y %H:%M:%S GMT", &tm);
	if (buf_printf(&head,
		    "HTTP/1.1 %d %s\r\nServer: s3d\r\nDate: %s\r\nContent-Type: %s\r\n"
		    "Content-Length: %zu\r\n%s%s\r\n",
		    status, s3d_reason(status), date, type, body->len, extra,
		    c->close_after ? "Connection: close\r\n" : "")) {
		s3d_conn_close(c);
	} else {
		s3d_reply_head(c, &head, status, body->len);
		if (c->req.kind != S3D_HEAD && body->len)
			(void)s3d_reply_body(c, body->data, body->len); /* all queued, or cut */
		s3d_reply_end(c);
	}
	buf_release(&head);
}

void s3d_reply_error(struct s3d_conn *c, int status, const char *code)
{
	struct buf body = BUF_INIT(4096);
	char extra[64] = "";

	if (c->plan.retry_after)
		(void)snprintf(extra, sizeof(extra), "Retry-After: %llu\r\n",
			(unsigned long long)c->plan.retry_after); /* fits */
	if (c->req.has_body)
		c->close_after = true; /* the rest of the request is not wanted */
	if (buf_printf(&body,
		    "<?xml version=\"1.0\" encoding=\"UTF-8\"?><Error><Code>%s</Code>"
		    "<Message>%s</Message><RequestId>s3d</RequestId></Error>",
		    code, s3d_reason(status)))
		s3d_conn_close(c);
	else
		s3d_reply_whole(c, status, "application/xml", extra, &body);
	buf_release(&body);
}

/* Requests -------------------------------------------------------------------------------- */

static void conn_serve(struct s3d_conn *c)
{
	struct s3d *s = c->server;

	if (c->control)
		s3d_control_serve(c);
	else if (c->plan.silent)
		conn_park(c);
	else if (c->plan.status)
		s3d_reply_error(c, c->plan.status, c->plan.code);
	else if (s->store)
		s3d_store_serve(s->store, c);
	else
		s3d_proxy_start(c);
}

static void conn_on_latency(uv_timer_t *timer)
{
	struct s3d_conn *c = timer->data;

	conn_serve(c);
	conn_advance(c);
	s3d_conn_resume_reading(c);
}

static void conn_begin(struct s3d_conn *c)
{
	c->state = S3D_CONN_BUSY;
	c->status = 0;
	c->body_sent = 0;
	c->cut_at = S3D_UNKNOWN;
	c->replied = false;
	c->paused = false;
	(void)uv_timer_stop(&c->timer);
	c->body = (struct s3d_body){ .fd = -1 };
	conn_count_begin(c);
	if (c->control)
		c->plan = (struct s3d_plan){ 0 };
	else
		s3d_faults_plan(&c->server->faults, &c->req, &c->plan);
	if (c->plan.latency_ms)
		(void)uv_timer_start(&c->timer, conn_on_latency, c->plan.latency_ms, 0);
	else
		conn_serve(c);
}

/* Takes the next head out of what was received; false when there is none. */
static bool conn_next_request(struct s3d_conn *c)
{
	size_t head_len = s3d_head_length(c->in.data, c->in.len);

	if (head_len == 0) {
		if (c->in.len >= S3D_HEAD_BYTES)
			s3d_conn_close(c);
		return false;
	}
	if (s3d_request_parse(&c->req, c->in.data, head_len, c->server->domain)) {
		c->state = S3D_CONN_BUSY;
		c->close_after = true;
		s3d_reply_error(c, 400, "InvalidRequest");
		return false;
	}
	buf_consume(&c->in, head_len);
	s3d_conn_resume_reading(c);
	conn_begin(c);
	return true;
}

/* Hands the request's body on; true when all of it was there. */
static bool conn_take_body(struct s3d_conn *c)
{
	size_t n = s3d_framing_take(&c->req.body, c->in.data, c->in.len);

	if (n && c->upstream && !s3d_proxy_feed(c, c->in.data, n))
		(void)uv_read_stop((uv_stream_t *)&c->tcp); /* always succeeds */
	buf_consume(&c->in, n);
	return c->req.body.done;
}

/* Does all that can be done with what was received. Not re-entered: a reply ends inside. */
static void conn_advance(struct s3d_conn *c)
{
	if (c->advancing)
		return;
	c->advancing = true;
	for (;;) {
		if (c->state == S3D_CONN_IDLE && !conn_next_request(c))
			break;
		if (c->state != S3D_CONN_BUSY)
			break;
		if (uv_is_active((uv_handle_t *)&c->timer) && !c->paused)
			break; /* latency: the body waits too */
		if (!conn_take_body(c) || !c->replied)
			break;
		c->state = S3D_CONN_IDLE;
	}
	c->advancing = false;
	if (c->state != S3D_CONN_CLOSING && c->in.len >= S3D_QUEUE_BYTES)
		(void)uv_read_stop((uv_stream_t *)&c->tcp);
}

static void conn_alloc(uv_handle_t *handle, size_t suggested, uv_buf_t *buf)
{
	static char shared[256 * KiB];

	(void)handle;
	(void)suggested;
	*buf = uv_buf_init(shared, sizeof(shared));
}

static void conn_on_read(uv_stream_t *stream, ssize_t n, const uv_buf_t *data)
{
	struct s3d_conn *c = stream->data;

	if (n == 0)
		return;
	if (n < 0 || buf_append(&c->in, data->base, (size_t)n)) {
		s3d_conn_close(c);
		return;
	}
	conn_advance(c);
}

void s3d_conn_resume_reading(struct s3d_conn *c)
{
	if (c->state != S3D_CONN_CLOSING)
		(void)uv_read_start((uv_stream_t *)&c->tcp, conn_alloc, conn_on_read);
}

uint32_t s3d_conn_release_parked(struct s3d *s)
{
	uint32_t n = 0;

	list_for_each_safe (node, &s->conns) {
		struct s3d_conn *c = list_entry(node, struct s3d_conn, link);

		if (c->state != S3D_CONN_PARKED)
			continue;
		n++;
		if (c->status) {
			s3d_conn_close(c);
			continue;
		}
		c->state = S3D_CONN_BUSY;
		c->plan.silent = false;
		conn_serve(c);
		conn_advance(c);
	}
	return n;
}

/* Listening ------------------------------------------------------------------------------- */

static void conn_accept(uv_stream_t *listener, bool control)
{
	struct s3d *s = listener->data;
	struct s3d_conn *c = calloc(1, sizeof(*c));

	if (!c)
		return;
	c->magic = CONN_MAGIC;
	c->server = s;
	c->control = control;
	c->in = BUF_INIT(4 * S3D_QUEUE_BYTES);
	c->body.fd = -1;
	(void)uv_tcp_init(&s->loop, &c->tcp); /* fails only on a bad family */
	(void)uv_timer_init(&s->loop, &c->timer);
	c->tcp.data = c;
	c->timer.data = c;
	c->open_handles = 2;
	list_push_back(&s->conns, &c->link);
	if (uv_accept(listener, (uv_stream_t *)&c->tcp)) {
		s3d_conn_close(c);
		return;
	}
	(void)uv_tcp_nodelay(&c->tcp, 1); /* only slower without */
	if (!control)
		s->stats.connections++;
	s3d_conn_resume_reading(c);
}

static void conn_on_data_client(uv_stream_t *listener, int status)
{
	if (status == 0)
		conn_accept(listener, false);
}

static void conn_on_control_client(uv_stream_t *listener, int status)
{
	if (status == 0)
		conn_accept(listener, true);
}

int s3d_conn_listen(struct s3d *s, const char *address, bool control, uv_tcp_t *listener,
	char ret_address[S3D_ADDRESS], struct err *e)
{
	struct sockaddr_in sin;
	int len = sizeof(sin);
	char host[64];
	unsigned int port;
	int r;

	if (sscanf(address, "%63[0-9.]:%u", host, &port) != 2 || port > 65535 ||
		uv_ip4_addr(host, (int)port, &sin))
		return err_set(e, -EINVAL, "%s: an address is IPV4:PORT", address);
	(void)uv_tcp_init(&s->loop, listener);
	listener->data = s;
	r = uv_tcp_bind(listener, (const struct sockaddr *)&sin, 0);
	if (r == 0)
		r = uv_listen((uv_stream_t *)listener, 1024,
			control ? conn_on_control_client : conn_on_data_client);
	if (r == 0)
		r = uv_tcp_getsockname(listener, (struct sockaddr *)&sin, &len);
	if (r)
		return err_set(e, r, "cannot listen on %s: %s", address, uv_strerror(r));
	(void)snprintf(ret_address, S3D_ADDRESS, "%s:%u", host, ntohs(sin.sin_port));
	return 0;
}
