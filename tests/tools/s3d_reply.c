/* Replies: heads, bodies, errors, and what the request's plan makes of them. */
#include "tests/tools/s3d.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/clock.h"
#include "base/units.h"

/* Timers are late: so much of a total pace may be caught up with. */
#define TOTAL_BURST_NS (4 * CLOCK_MS)

/* Heads ----------------------------------------------------------------------------------- */

static int head_make_wrong_range(const struct s3d_plan *plan, struct buf *head)
{
	char range[96];
	unsigned long long first, last, total;
	const char *unit = "bytes";

	if (!s3d_header_get(head, "Content-Range", range, sizeof(range)) ||
		sscanf(range, "bytes %llu-%llu/%llu", &first, &last, &total) != 3)
		return 0;
	switch ((enum s3d_range)plan->wrong_range) {
	case S3D_RANGE_START:
		first++;
		last++;
		break;
	case S3D_RANGE_TOTAL:
		total++;
		break;
	case S3D_RANGE_END:
		last++;
		break;
	case S3D_RANGE_NONE:
		return s3d_header_set(head, "Content-Range", NULL);
	case S3D_RANGE_UNIT:
		unit = "blocks";
		break;
	}
	(void)snprintf(range, sizeof(range), "%s %llu-%llu/%llu", unit, first, last, total);
	return s3d_header_set(head, "Content-Range", range);
}

static int head_make_weak_etag(struct buf *head)
{
	char etag[256];
	char weak[260];

	if (!s3d_header_get(head, "ETag", etag, sizeof(etag)))
		return 0;
	(void)snprintf(weak, sizeof(weak), "W/%s", etag);
	return s3d_header_set(head, "ETag", weak);
}

static int head_make_wrong_etag(const struct s3d_plan *plan, struct buf *head)
{
	if (plan->wrong_etag == S3D_ETAG_NONE)
		return s3d_header_set(head, "ETag", NULL);
	if (plan->wrong_etag == S3D_ETAG_OTHER)
		return s3d_header_set(head, "ETag", "\"00000000000000000000000000000bad\"");
	return head_make_weak_etag(head);
}

/* A body that is longer than it ought to be. */
static int head_make_long(struct s3d_conn *c, struct buf *head, uint64_t body_len)
{
	char length[32];
	int r;

	switch ((enum s3d_long)c->plan.extra_how) {
	case S3D_LONG_LENGTH:
		(void)snprintf(length, sizeof(length), "%" PRIu64, body_len + c->plan.extra);
		return s3d_header_set(head, "Content-Length", length);
	case S3D_LONG_BEYOND:
		c->close_after = true;
		return 0;
	case S3D_LONG_CHUNKED:
		c->chunked = true;
		r = s3d_header_set(head, "Content-Length", NULL);
		return r ? r : s3d_header_add(head, "Transfer-Encoding", "chunked");
	}
	return 0;
}

static int head_make_wrong(struct s3d_conn *c, struct buf *head, uint64_t body_len)
{
	const struct s3d_plan *plan = &c->plan;
	int r = 0;

	if (plan->wrong_etag)
		r = head_make_wrong_etag(plan, head);
	if (r == 0 && plan->wrong_range)
		r = head_make_wrong_range(plan, head);
	/* An object may be stored so; what compresses on the way says by the ETag that it changed
	 * it. */
	if (r == 0 && plan->gzip)
		r = s3d_header_add(head, "Content-Encoding", "gzip");
	if (r == 0 && plan->gzip)
		r = head_make_weak_etag(head);
	if (r == 0 && plan->extra_how)
		r = head_make_long(c, head, body_len);
	return r;
}

void s3d_reply_head(struct s3d_conn *c, struct buf *head, int status, uint64_t body_len)
{
	static const char interim[] = "HTTP/1.1 100 Continue\r\n\r\n";
	bool wrong = !c->control && status >= 200 && status < 300;

	c->status = status;
	c->cut_at = S3D_UNKNOWN;
	if (body_len == S3D_UNKNOWN || c->req.kind == S3D_HEAD)
		c->plan.extra_how = 0;
	if (wrong && c->plan.cut != S3D_CUT_NONE) {
		c->cut_at = c->plan.cut_after;
		if (c->cut_at == S3D_UNKNOWN)
			c->cut_at = body_len == S3D_UNKNOWN ? 0 : body_len / 2;
		else if (body_len != S3D_UNKNOWN)
			c->cut_at = min(c->cut_at, body_len ? body_len - 1 : 0);
	}
	if (c->plan.flip_at == S3D_UNKNOWN)
		c->plan.flip_at = body_len == S3D_UNKNOWN ? 0 : body_len / 2;
	if (wrong && head_make_wrong(c, head, body_len)) {
		s3d_conn_close(c);
		return;
	}
	if (wrong && c->plan.interim)
		s3d_conn_write(c, interim, sizeof(interim) - 1);
	s3d_conn_write(c, head->data, head->len);
}

/* Bodies ---------------------------------------------------------------------------------- */

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
		s3d_conn_finish(c);
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
	s3d_conn_more(c);
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

/* The first bytes of what claims to be gzip are a gzip file's. */
static void body_write_gzip(struct s3d_conn *c, const char *data, size_t len)
{
	static const char magic[] = { 0x1f, (char)0x8b, 8, 0, 0, 0, 0, 0, 0, 3 };
	size_t n = 0;

	if (c->body_sent < sizeof(magic)) {
		n = min(len, sizeof(magic) - (size_t)c->body_sent);
		s3d_conn_write(c, magic + c->body_sent, n);
	}
	s3d_conn_write(c, data + n, len - n);
}

/* The byte at flip_at has another lowest bit. */
static void body_write_flipped(struct s3d_conn *c, const char *data, size_t len)
{
	size_t at = c->plan.flip_at - c->body_sent;
	char flipped;

	if (c->plan.flip_at < c->body_sent || at >= len) {
		s3d_conn_write(c, data, len);
		return;
	}
	flipped = (char)(data[at] ^ 1);
	s3d_conn_write(c, data, at);
	s3d_conn_write(c, &flipped, 1);
	s3d_conn_write(c, data + at + 1, len - at - 1);
}

static void body_write(struct s3d_conn *c, const char *data, size_t len)
{
	char size[24];

	if (len == 0)
		return;
	if (c->chunked) {
		int n = snprintf(size, sizeof(size), "%zx\r\n", len);

		s3d_conn_write(c, size, (size_t)n);
	}
	if (c->plan.gzip && c->status < 300)
		body_write_gzip(c, data, len);
	else if (c->plan.flip && c->status < 300)
		body_write_flipped(c, data, len);
	else
		s3d_conn_write(c, data, len);
	if (c->chunked)
		s3d_conn_write(c, "\r\n", 2);
}

bool s3d_reply_body(struct s3d_conn *c, const char *data, size_t len)
{
	bool cut = c->cut_at - c->body_sent <= len;

	if (c->state != S3D_CONN_BUSY)
		return false;
	if (cut)
		len = c->cut_at - c->body_sent;
	body_write(c, data, len);
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

/* Bytes that nobody asked for. */
static void reply_extra(struct s3d_conn *c)
{
	static const char junk[4096] = "more than was asked for";

	for (uint64_t left = c->plan.extra; left && c->state == S3D_CONN_BUSY;) {
		size_t n = min(left, (uint64_t)sizeof(junk));

		body_write(c, junk, n);
		left -= n;
	}
}

void s3d_reply_end(struct s3d_conn *c)
{
	if (c->state != S3D_CONN_BUSY)
		return;
	if (c->plan.extra_how && c->status < 300)
		reply_extra(c);
	if (c->chunked)
		s3d_conn_write(c, "0\r\n\r\n", 5);
	if (c->state != S3D_CONN_BUSY)
		return; /* the client went away meanwhile */
	c->more = NULL;
	c->replied = true;
	s3d_conn_count_end(c);
	s3d_store_body_release(&c->body);
	if (!c->req.keep_alive || c->close_after)
		s3d_conn_finish(c);
	else
		s3d_conn_advance(c);
}

/* Whole replies --------------------------------------------------------------------------- */

const char *s3d_reason(int status)
{
	static const struct {
		int status;
		const char *reason;
	} reasons[] = { { 200, "OK" }, { 206, "Partial Content" }, { 301, "Moved Permanently" },
		{ 304, "Not Modified" }, { 307, "Temporary Redirect" }, { 400, "Bad Request" },
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
	time_t now = s3d_auth_time(&c->server->auth);
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

void s3d_reply_error_with(
	struct s3d_conn *c, int status, const char *code, const char *extra, const char *xml)
{
	struct buf body = BUF_INIT(8192);
	int r = 0;

	if (c->req.has_body)
		c->close_after = true; /* the rest of the request is not wanted */
	if (status != 304)             /* has no body */
		r = buf_printf(&body,
			"<?xml version=\"1.0\" encoding=\"UTF-8\"?><Error><Code>%s</Code>"
			"<Message>%s</Message>%s<RequestId>s3d</RequestId></Error>",
			code, s3d_reason(status), xml);
	if (r)
		s3d_conn_close(c);
	else
		s3d_reply_whole(c, status, "application/xml", extra, &body);
	buf_release(&body);
}

void s3d_reply_error(struct s3d_conn *c, int status, const char *code)
{
	s3d_reply_error_with(c, status, code, "", "");
}

static void reply_html(struct s3d_conn *c)
{
	struct buf body = BUF_INIT(4096);

	if (buf_puts(&body, "<!DOCTYPE html>\n<html><head><title>Sign in</title></head>"
			    "<body><p>This network asks you to sign in first.</body></html>\n"))
		s3d_conn_close(c);
	else
		s3d_reply_whole(c, c->plan.status, "text/html; charset=utf-8", "", &body);
	buf_release(&body);
}

void s3d_reply_plan(struct s3d_conn *c)
{
	const struct s3d_plan *plan = &c->plan;
	char extra[512] = "";
	char xml[512] = "";
	int n = 0;

	if (plan->status == 0) {
		s3d_reply_whole(c, 200, "application/octet-stream", "", &BUF_INIT(0));
		return;
	}
	if (plan->html) {
		reply_html(c);
		return;
	}
	if (plan->retry_after)
		n = snprintf(extra, sizeof(extra), "Retry-After: %llu\r\n",
			(unsigned long long)plan->retry_after);
	if (*plan->region) {
		n += snprintf(extra + n, sizeof(extra) - (size_t)n, "x-amz-bucket-region: %s\r\n",
			plan->region);
		(void)snprintf(xml, sizeof(xml), "<Region>%s</Region><Endpoint>%s</Endpoint>",
			plan->region, *plan->location ? plan->location : c->req.host);
	}
	if (*plan->location)
		(void)snprintf(extra + n, sizeof(extra) - (size_t)n, "Location: %s\r\n",
			plan->location); /* all three fit */
	s3d_reply_error_with(c, plan->status, plan->code, extra, xml);
}
