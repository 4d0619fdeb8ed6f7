/* Parser of an HTTP/1.1 answer. See http_reply.h. */
#include "admin/http_reply.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define LINE_BYTES 16384u /* all headers together, or one line of a chunk */

void http_reply_init(struct http_reply *reply, struct buf *body)
{
	*reply = (struct http_reply){ .line = BUF_INIT(LINE_BYTES), .body = body };
}

void http_reply_release(struct http_reply *reply)
{
	buf_release(&reply->line);
}

static int parse_number(const char *s, size_t len, unsigned int base, uint64_t *ret_number)
{
	uint64_t n = 0;

	if (len == 0 || len > 15)
		return -EBADMSG;
	for (size_t i = 0; i < len; i++) {
		const char *digits = "0123456789abcdef";
		const char *at = s[i] ? strchr(digits, s[i] | (s[i] >= 'A' ? 0x20 : 0)) : NULL;

		if (!at || (unsigned int)(at - digits) >= base)
			return -EBADMSG;
		n = n * base + (unsigned int)(at - digits);
	}
	*ret_number = n;
	return 0;
}

/* Trims blanks at both ends. */
static void trim(const char **s, size_t *len)
{
	while (*len && (**s == ' ' || **s == '\t')) {
		(*s)++;
		(*len)--;
	}
	while (*len && ((*s)[*len - 1] == ' ' || (*s)[*len - 1] == '\t'))
		(*len)--;
}

static int parse_status(struct http_reply *reply, const char *line, size_t len)
{
	uint64_t status;

	if (len < 12 || memcmp(line, "HTTP/1.", 7) != 0 || line[8] != ' ' ||
		(len > 12 && line[12] != ' ') || parse_number(line + 9, 3, 10, &status) < 0)
		return -EBADMSG;
	reply->status = (unsigned int)status;
	reply->state = HTTP_BODY_TO_END;
	return 0;
}

static int parse_header(struct http_reply *reply, const char *line, size_t len)
{
	const char *colon = memchr(line, ':', len);
	const char *value;
	size_t n;

	if (!colon || colon == line)
		return -EBADMSG;
	value = colon + 1;
	n = len - (size_t)(value - line);
	trim(&value, &n);
	len = (size_t)(colon - line);
	if (len == 14 && strncasecmp(line, "Content-Length", 14) == 0 &&
		reply->state != HTTP_CHUNK_SIZE) {
		if (reply->state == HTTP_BODY_LENGTH)
			return -EBADMSG; /* said twice */
		reply->state = HTTP_BODY_LENGTH;
		return parse_number(value, n, 10, &reply->left);
	}
	if (len == 17 && strncasecmp(line, "Transfer-Encoding", 17) == 0) {
		if (n != 7 || strncasecmp(value, "chunked", 7) != 0)
			return -EBADMSG;
		reply->state = HTTP_CHUNK_SIZE;
	}
	return 0;
}

/* The headers, whole in `line`. */
static int parse_headers(struct http_reply *reply, size_t len)
{
	const char *at = reply->line.data;
	const char *end = at + len;
	int r = 0;

	for (bool first = true; at < end && r == 0; first = false) {
		const char *eol = memmem(at, (size_t)(end - at), "\r\n", 2);

		if (!eol)
			return -EBADMSG;
		if (first)
			r = parse_status(reply, at, (size_t)(eol - at));
		else if (eol > at)
			r = parse_header(reply, at, (size_t)(eol - at));
		at = eol + 2;
	}
	if (r < 0)
		return r;
	if (reply->status / 100 == 1) /* "100 Continue": the answer follows */
		reply->state = HTTP_HEADERS;
	else if (reply->status == 204 || reply->status == 304 ||
		 (reply->state == HTTP_BODY_LENGTH && reply->left == 0))
		reply->state = HTTP_DONE;
	return 0;
}

static int parse_chunk_size(struct http_reply *reply, const char *line, size_t len)
{
	const char *semicolon = memchr(line, ';', len);
	size_t n = semicolon ? (size_t)(semicolon - line) : len;
	int r;

	trim(&line, &n);
	r = parse_number(line, n, 16, &reply->left);
	if (r == 0)
		reply->state = reply->left ? HTTP_CHUNK_DATA : HTTP_TRAILERS;
	return r;
}

/* One step that needs a whole line (or all headers) out of `line`: 1 done, 0 more bytes needed. */
static int step_line(struct http_reply *reply)
{
	const char *mark = reply->state == HTTP_HEADERS ? "\r\n\r\n" : "\r\n";
	char *at = reply->line.len ? memmem(reply->line.data, reply->line.len, mark, strlen(mark))
				   : NULL;
	size_t len;
	int r = 0;

	if (!at)
		return reply->line.len == reply->line.max ? -ENOBUFS : 0;
	len = (size_t)(at - reply->line.data);
	if (reply->state == HTTP_HEADERS)
		r = parse_headers(reply, len + 2);
	else if (reply->state == HTTP_CHUNK_SIZE)
		r = parse_chunk_size(reply, reply->line.data, len);
	else if (reply->state == HTTP_CHUNK_END)
		r = len ? -EBADMSG : 0, reply->state = HTTP_CHUNK_SIZE;
	else if (len == 0) /* trailers end with an empty line */
		reply->state = HTTP_DONE;
	buf_consume(&reply->line, len + strlen(mark));
	return r < 0 ? r : 1;
}

static int step_body(struct http_reply *reply, const char *data, size_t len, size_t *ret_used)
{
	bool bounded = reply->state != HTTP_BODY_TO_END;
	size_t n = bounded ? (size_t)min((uint64_t)len, reply->left) : len;
	int r = buf_append(reply->body, data, n);

	if (r < 0)
		return r;
	if (bounded) {
		reply->left -= n;
		if (reply->left == 0)
			reply->state =
				reply->state == HTTP_BODY_LENGTH ? HTTP_DONE : HTTP_CHUNK_END;
	}
	*ret_used = n;
	return 0;
}

static bool in_body(const struct http_reply *reply)
{
	return reply->state == HTTP_BODY_LENGTH || reply->state == HTTP_BODY_TO_END ||
	       reply->state == HTTP_CHUNK_DATA;
}

int http_reply_feed(struct http_reply *reply, const char *data, size_t len)
{
	while (reply->state != HTTP_DONE) {
		size_t used = 0;
		int r;

		if (in_body(reply) && reply->line.len) {
			r = step_body(reply, reply->line.data, reply->line.len, &used);
			buf_consume(&reply->line, used);
		} else if (in_body(reply)) {
			if (len == 0)
				return 0;
			r = step_body(reply, data, len, &used);
			data += used;
			len -= used;
		} else {
			r = step_line(reply);
			if (r > 0)
				continue;
			if (r == 0 && len == 0)
				return 0;
			used = r == 0 ? min(len, reply->line.max - reply->line.len) : 0;
			if (r == 0)
				r = buf_append(&reply->line, data, used);
			data += used;
			len -= used;
		}
		if (r < 0)
			return r;
	}
	return 0; /* what follows the answer was not asked for */
}

int http_reply_end(struct http_reply *reply)
{
	if (reply->state == HTTP_BODY_TO_END)
		reply->state = HTTP_DONE;
	return reply->state == HTTP_DONE ? 0 : -EBADMSG;
}
