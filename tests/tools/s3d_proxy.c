/*
 * Proxy mode: a request goes to the real server as it came, Host included, so that its signature
 * stays valid; the answer comes back as it is, but for what the request's plan changes.
 *
 * A connection to the server belongs to one client connection while a request is in progress and is
 * kept for the next afterwards. When a kept one turns out to be closed by the server before a byte
 * of the answer, a request without body is sent again on a new one.
 */
#include "tests/tools/s3d.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include "base/units.h"

struct s3d_upstream {
	uv_tcp_t tcp;
	uv_connect_t connect;
	struct list link; /* among the idle */
	struct s3d *server;
	struct s3d_conn *conn; /* NULL while idle or closing */
	struct buf head;       /* of the answer, as it comes */
	struct s3d_framing body;
	bool kept; /* served a request before */
	bool head_done;
	bool bodyless; /* answer to a HEAD */
	size_t queued;
};

struct upstream_write {
	uv_write_t uv;
	struct s3d_upstream *up;
	size_t len;
	char data[];
};

static void upstream_on_closed(uv_handle_t *handle)
{
	struct s3d_upstream *up = handle->data;

	buf_release(&up->head);
	free(up);
}

static void upstream_close(struct s3d_upstream *up)
{
	if (uv_is_closing((uv_handle_t *)&up->tcp))
		return;
	if (up->conn)
		up->conn->upstream = NULL;
	up->conn = NULL;
	list_remove(&up->link);
	uv_close((uv_handle_t *)&up->tcp, upstream_on_closed);
}

/* The server failed: what the client gets depends on how far the answer was. */
static void upstream_fail(struct s3d_upstream *up)
{
	struct s3d_conn *c = up->conn;
	bool again = up->kept && up->head.len == 0 && !up->head_done;

	upstream_close(up);
	if (!c)
		return;
	if (again && !c->req.has_body) {
		s3d_proxy_start(c);
		return;
	}
	c->server->stats.upstream_errors++;
	if (c->status)
		s3d_conn_close(c);
	else
		s3d_reply_error(c, 502, "BadGateway");
}

static void upstream_on_written(uv_write_t *uv, int status)
{
	struct upstream_write *w = container_of(uv, struct upstream_write, uv);
	struct s3d_upstream *up = w->up;

	up->queued -= w->len;
	free(w);
	if (status == UV_ECANCELED)
		return;
	if (status < 0)
		upstream_fail(up);
	else if (up->conn && up->queued < S3D_QUEUE_BYTES)
		s3d_conn_resume_reading(up->conn);
}

static bool upstream_write(struct s3d_upstream *up, const char *data, size_t len)
{
	struct upstream_write *w = malloc(sizeof(*w) + len);
	uv_buf_t piece;

	if (!w)
		return false;
	w->up = up;
	w->len = len;
	memcpy(w->data, data, len);
	piece = uv_buf_init(w->data, (unsigned int)len);
	up->queued += len;
	if (uv_write(&w->uv, (uv_stream_t *)&up->tcp, &piece, 1, upstream_on_written)) {
		up->queued -= len;
		free(w);
		return false;
	}
	return true;
}

bool s3d_proxy_feed(struct s3d_conn *c, const char *data, size_t len)
{
	struct s3d_upstream *up = c->upstream;

	if (!upstream_write(up, data, len)) {
		s3d_conn_close(c);
		return true;
	}
	return up->queued < S3D_QUEUE_BYTES;
}

/* The answer ------------------------------------------------------------------------------ */

static void upstream_alloc(uv_handle_t *handle, size_t suggested, uv_buf_t *buf)
{
	static char shared[256 * KiB];

	(void)handle;
	(void)suggested;
	*buf = uv_buf_init(shared, sizeof(shared));
}

static void upstream_on_read(uv_stream_t *stream, ssize_t n, const uv_buf_t *data);

/* Sends `len` bytes on; false when the client cannot take more now. */
static bool upstream_relay(struct s3d_upstream *up, const char *data, size_t len)
{
	if (s3d_reply_body(up->conn, data, len))
		return true;
	if (up->conn)
		(void)uv_read_stop((uv_stream_t *)&up->tcp);
	return false;
}

static void upstream_more(struct s3d_conn *c)
{
	if (c->upstream)
		(void)uv_read_start(
			(uv_stream_t *)&c->upstream->tcp, upstream_alloc, upstream_on_read);
}

/* The whole answer came: the connection is kept for another request. */
static void upstream_done(struct s3d_upstream *up)
{
	struct s3d_conn *c = up->conn;

	if (!c)
		return;
	if (up->body.mode == S3D_FRAMING_CLOSE || !c->req.body.done) {
		c->close_after = true;
		upstream_close(up);
	} else {
		c->upstream = NULL;
		up->conn = NULL;
		up->kept = true;
		list_push_front(&up->server->idle_upstreams, &up->link);
		(void)uv_read_start((uv_stream_t *)&up->tcp, upstream_alloc, upstream_on_read);
	}
	s3d_reply_end(c);
}

static void head_framing(struct s3d_upstream *up, int status)
{
	char value[64];

	up->body = (struct s3d_framing){ .mode = S3D_FRAMING_CLOSE };
	if (up->bodyless || status == 204 || status == 304)
		up->body = (struct s3d_framing){ .mode = S3D_FRAMING_LENGTH, .done = true };
	else if (s3d_header_get(&up->head, "Transfer-Encoding", value, sizeof(value)) &&
		 strcasecmp(value, "chunked") == 0)
		up->body.mode = S3D_FRAMING_CHUNKED;
	else if (s3d_header_get(&up->head, "Content-Length", value, sizeof(value)))
		up->body = (struct s3d_framing){ .mode = S3D_FRAMING_LENGTH,
			.left = strtoull(value, NULL, 10) };
	if (up->body.mode == S3D_FRAMING_LENGTH && up->body.left == 0)
		up->body.done = true;
}

/* Turns a 206 into a 200 for a request whose Range header is signed and so had to be sent. */
static int head_make_whole(struct buf *head, int *status)
{
	if (*status != 206 || head->len < 12)
		return 0;
	*status = 200;
	memcpy(head->data + 9, "200", 3);
	return s3d_header_set(head, "Content-Range", NULL);
}

/* Takes the answer's head out of `data`; returns how many bytes of it were used, 0 on failure. */
static size_t upstream_take_head(struct s3d_upstream *up, const char *data, size_t len)
{
	struct s3d_conn *c = up->conn;
	size_t before = up->head.len;
	size_t head_len;
	int status;

	if (buf_append(&up->head, data, min(len, (size_t)S3D_HEAD_BYTES - before)))
		return 0;
	head_len = s3d_head_length(up->head.data, up->head.len);
	if (head_len == 0)
		return up->head.len < S3D_HEAD_BYTES ? len : 0;
	up->head.len = head_len;
	up->head.data[head_len] = 0;
	if (sscanf(up->head.data, "HTTP/1.%*c %3d", &status) != 1 || status < 100 || status > 599)
		return 0;
	if (status < 200) { /* 100 Continue: the real answer follows */
		s3d_reply_head(c, &up->head, 0, 0);
		buf_clear(&up->head);
		return head_len - before;
	}
	up->head_done = true;
	head_framing(up, status);
	if (c->plan.whole && head_make_whole(&up->head, &status))
		return 0;
	c->more = upstream_more;
	s3d_reply_head(c, &up->head, status,
		up->body.mode == S3D_FRAMING_LENGTH ? up->body.left : S3D_UNKNOWN);
	return head_len - before;
}

static void upstream_take(struct s3d_upstream *up, const char *data, size_t len)
{
	while (up->conn && !up->head_done && len) {
		size_t n = upstream_take_head(up, data, len);

		if (n == 0) {
			upstream_fail(up);
			return;
		}
		data += n;
		len -= n;
	}
	if (!up->conn || !up->head_done)
		return;
	if (!up->body.done && len) {
		size_t n = s3d_framing_take(&up->body, data, len);

		if (!upstream_relay(up, data, n) && (!up->conn || up->conn->state != S3D_CONN_BUSY))
			return;
	}
	if (up->body.done)
		upstream_done(up);
}

static void upstream_on_read(uv_stream_t *stream, ssize_t n, const uv_buf_t *data)
{
	struct s3d_upstream *up = stream->data;

	if (n == 0)
		return;
	if (n > 0 && up->conn) {
		upstream_take(up, data->base, (size_t)n);
	} else if (n == UV_EOF && up->conn && up->head_done && up->body.mode == S3D_FRAMING_CLOSE) {
		up->body.done = true;
		upstream_done(up);
	} else {
		upstream_fail(up);
	}
}

/* The request ----------------------------------------------------------------------------- */

static void upstream_send_request(struct s3d_upstream *up)
{
	struct s3d_conn *c = up->conn;
	struct buf *head = &c->req.head;

	if (c->plan.whole && !c->req.range_signed && s3d_header_set(head, "Range", NULL)) {
		s3d_conn_close(c);
		return;
	}
	up->head.max = S3D_HEAD_BYTES;
	buf_clear(&up->head);
	up->head_done = false;
	up->bodyless = c->req.kind == S3D_HEAD;
	(void)uv_read_start((uv_stream_t *)&up->tcp, upstream_alloc,
		upstream_on_read); /* a kept one reads already */
	if (!upstream_write(up, head->data, head->len))
		upstream_fail(up);
}

static void upstream_on_connected(uv_connect_t *connect, int status)
{
	struct s3d_upstream *up = connect->data;

	if (status == UV_ECANCELED)
		return;
	if (status < 0)
		upstream_fail(up);
	else
		(void)uv_tcp_nodelay(&up->tcp, 1); /* only slower without */
}

static struct s3d_upstream *upstream_new(struct s3d_conn *c)
{
	struct s3d *s = c->server;
	struct s3d_upstream *up = calloc(1, sizeof(*up));

	if (!up)
		return NULL;
	list_init(&up->link);
	up->server = s;
	up->connect.data = up;
	(void)uv_tcp_init(&s->loop, &up->tcp); /* fails only on a bad family */
	up->tcp.data = up;
	s->stats.upstream_connections++;
	if (uv_tcp_connect(&up->connect, &up->tcp, (const struct sockaddr *)&s->upstream,
		    upstream_on_connected)) {
		upstream_close(up);
		return NULL;
	}
	return up;
}

void s3d_proxy_start(struct s3d_conn *c)
{
	struct list *idle = list_pop_front(&c->server->idle_upstreams);
	struct s3d_upstream *up =
		idle ? list_entry(idle, struct s3d_upstream, link) : upstream_new(c);

	if (!up) {
		c->server->stats.upstream_errors++;
		s3d_reply_error(c, 502, "BadGateway");
		return;
	}
	up->conn = c;
	c->upstream = up;
	upstream_send_request(up);
}

void s3d_proxy_abandon(struct s3d_conn *c)
{
	if (c->upstream)
		upstream_close(c->upstream);
	c->upstream = NULL;
}

void s3d_proxy_close_idle(struct s3d *s)
{
	list_for_each_safe (node, &s->idle_upstreams)
		upstream_close(list_entry(node, struct s3d_upstream, link));
}
