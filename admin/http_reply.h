/*
 * Parses an HTTP/1.1 answer as it arrives: Content-Length, chunked, or up to the connection's end
 * (RFC 9112). Pure: no I/O.
 *
 * Bounded by what it was made with; the peer may be anyone.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include "base/buf.h"

enum http_reply_state {
	HTTP_HEADERS,
	HTTP_BODY_LENGTH, /* `left` bytes more */
	HTTP_BODY_TO_END, /* until the connection ends */
	HTTP_CHUNK_SIZE,
	HTTP_CHUNK_DATA, /* `left` bytes more, then CR LF */
	HTTP_CHUNK_END,
	HTTP_TRAILERS,
	HTTP_DONE,
};

struct http_reply {
	enum http_reply_state state;
	unsigned int status; /* 200 */
	uint64_t left;
	struct buf line;  /* what was not yet enough for a step */
	struct buf *body; /* borrowed; its max bounds the answer */
};

void http_reply_init(struct http_reply *reply, struct buf *body);
void http_reply_release(struct http_reply *reply);

/* Takes the next bytes. 0; -EBADMSG: no HTTP; -ENOBUFS: longer than allowed; -ENOMEM. */
int http_reply_feed(struct http_reply *reply, const char *data, size_t len) __must_check;
/* The connection ended: 0 when the answer is whole, else -EBADMSG. */
int http_reply_end(struct http_reply *reply) __must_check;
