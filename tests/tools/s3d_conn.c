/* A client connection: requests in, one at a time, and what is sent back. */
#include "tests/tools/s3d.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/units.h"

#define CONN_MAGIC 0x73336463u

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

void s3d_conn_count_end(struct s3d_conn *c)
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
	s3d_conn_count_end(c);
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
void s3d_conn_finish(struct s3d_conn *c)
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

void s3d_conn_more(struct s3d_conn *c)
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
		s3d_conn_more(c);
}

void s3d_conn_write(struct s3d_conn *c, const char *data, size_t len)
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

/* Requests -------------------------------------------------------------------------------- */

static void conn_serve(struct s3d_conn *c)
{
	struct s3d *s = c->server;

	if (c->control)
		s3d_control_serve(c);
	else if (c->plan.silent)
		c->state = S3D_CONN_PARKED;
	else if (c->plan.status || c->plan.empty)
		s3d_reply_plan(c);
	else if (!s3d_auth_check(c))
		return; /* it is answered */
	else if (s->store)
		s3d_store_serve(s->store, c);
	else
		s3d_proxy_start(c);
}

static void conn_on_latency(uv_timer_t *timer)
{
	struct s3d_conn *c = timer->data;

	conn_serve(c);
	s3d_conn_advance(c);
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
	c->chunked = false;
	(void)uv_timer_stop(&c->timer);
	c->body = (struct s3d_body){ .fd = -1 };
	conn_count_begin(c);
	if (c->control)
		c->plan = (struct s3d_plan){ 0 };
	else
		s3d_faults_plan(&c->server->faults, &c->req,
			c->server->stats.in_flight[c->req.kind], &c->plan);
	if (c->plan.latency_ms && !c->plan.at_once)
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
void s3d_conn_advance(struct s3d_conn *c)
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
	s3d_conn_advance(c);
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
		s3d_conn_advance(c);
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
