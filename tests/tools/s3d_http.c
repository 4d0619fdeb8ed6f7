/* HTTP/1.1 as far as S3 clients and servers need it: heads, headers, queries, message framing. */
#include "tests/tools/s3d.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include "base/hash.h"

/* States of the chunk parser. */
enum {
	CHUNK_SIZE,
	CHUNK_SIZE_REST, /* extensions, up to the line's end */
	CHUNK_DATA,
	CHUNK_DATA_END, /* CRLF after the data */
	CHUNK_TRAILER,  /* start of a trailer line */
	CHUNK_TRAILER_REST,
};

static void chunk_byte(struct s3d_framing *f, char c)
{
	switch (f->state) {
	case CHUNK_SIZE:
		if (isxdigit((unsigned char)c)) {
			f->left = f->left * 16 + (uint64_t)(isdigit((unsigned char)c)
								    ? c - '0'
								    : (c | 32) - 'a' + 10);
			return;
		}
		f->state = CHUNK_SIZE_REST;
		__attribute__((fallthrough));
	case CHUNK_SIZE_REST:
		if (c == '\n')
			f->state = f->left ? CHUNK_DATA : CHUNK_TRAILER;
		return;
	case CHUNK_DATA_END:
		if (c == '\n')
			f->state = CHUNK_SIZE;
		return;
	case CHUNK_TRAILER:
		if (c == '\n')
			f->done = true;
		else if (c != '\r')
			f->state = CHUNK_TRAILER_REST;
		return;
	default:
		if (c == '\n')
			f->state = CHUNK_TRAILER;
	}
}

static size_t framing_take_chunked(struct s3d_framing *f, const char *data, size_t len)
{
	size_t at = 0;

	while (at < len && !f->done) {
		if (f->state == CHUNK_DATA) {
			uint64_t n = min((uint64_t)(len - at), f->left);

			at += n;
			f->left -= n;
			if (f->left == 0)
				f->state = CHUNK_DATA_END;
		} else {
			chunk_byte(f, data[at++]);
		}
	}
	return at;
}

size_t s3d_framing_take(struct s3d_framing *f, const char *data, size_t len)
{
	if (f->done)
		return 0;
	switch (f->mode) {
	case S3D_FRAMING_LENGTH: {
		uint64_t n = min((uint64_t)len, f->left);

		f->left -= n;
		f->done = f->left == 0;
		return n;
	}
	case S3D_FRAMING_CHUNKED:
		return framing_take_chunked(f, data, len);
	case S3D_FRAMING_CLOSE:
		break;
	}
	return len;
}

size_t s3d_head_length(const char *data, size_t len)
{
	const char *end = len ? memmem(data, len, "\r\n\r\n", 4) : NULL;

	return end ? (size_t)(end - data) + 4 : 0;
}

/* The line of a header, or NULL; *ret_len without CRLF. */
static char *header_line(const struct buf *head, const char *name, size_t *ret_len)
{
	size_t name_len = strlen(name);
	char *line = strstr(head->data, "\r\n");

	while (line && line[2] && line[2] != '\r') {
		char *end;

		line += 2;
		end = strstr(line, "\r\n");
		if (!end)
			return NULL;
		if (strncasecmp(line, name, name_len) == 0 && line[name_len] == ':') {
			*ret_len = (size_t)(end - line);
			return line;
		}
		line = end;
	}
	return NULL;
}

bool s3d_header_get(const struct buf *head, const char *name, char *out, size_t size)
{
	size_t len;
	const char *line = header_line(head, name, &len);
	const char *end;

	if (!line)
		return false;
	end = line + len;
	line += strlen(name) + 1;
	while (line < end && (*line == ' ' || *line == '\t'))
		line++;
	while (end > line && (end[-1] == ' ' || end[-1] == '\t'))
		end--;
	len = min((size_t)(end - line), size - 1);
	memcpy(out, line, len);
	out[len] = 0;
	return true;
}

int s3d_header_set(struct buf *head, const char *name, const char *value)
{
	struct buf next = BUF_INIT(S3D_HEAD_BYTES);
	size_t len;
	char *line = header_line(head, name, &len);
	int r;

	if (!line)
		return 0;
	r = buf_append(&next, head->data, (size_t)(line - head->data));
	if (r == 0 && value)
		r = buf_printf(&next, "%s: %s\r\n", name, value);
	if (r == 0)
		r = buf_puts(&next, line + len + 2);
	if (r) {
		buf_release(&next);
		return r;
	}
	buf_release(head);
	*head = next;
	return 0;
}

int s3d_header_add(struct buf *head, const char *name, const char *value)
{
	if (head->len < 2)
		return -EINVAL;
	head->len -= 2; /* the empty line */
	return buf_printf(head, "%s: %s\r\n\r\n", name, value);
}

bool s3d_url_decode(const char *s, size_t len, bool plus_is_blank, char *out, size_t size)
{
	size_t n = 0;

	for (size_t i = 0; i < len; i++) {
		char c = s[i];

		if (n + 1 >= size)
			return false;
		if (c == '%') {
			char digits[3] = { 0 };

			if (i + 2 >= len)
				return false;
			memcpy(digits, s + i + 1, 2);
			if (hash_unhex(digits, &c, 1))
				return false;
			i += 2;
		} else if (c == '+' && plus_is_blank) {
			c = ' ';
		}
		out[n++] = c;
	}
	out[n] = 0;
	return true;
}

bool s3d_query_get(const char *query, const char *name, char *out, size_t size)
{
	size_t name_len = strlen(name);

	while (*query) {
		size_t len = strcspn(query, "&");

		if (strncmp(query, name, name_len) == 0 &&
			(query[name_len] == '=' || name_len == len)) {
			size_t skip = min(name_len + 1, len);

			return s3d_url_decode(query + skip, len - skip, true, out, size);
		}
		query += len + (query[len] == '&');
	}
	return false;
}

bool s3d_query_has(const char *query, const char *name)
{
	char value[8];

	return s3d_query_get(query, name, value, sizeof(value));
}

uint64_t s3d_query_number(const char *query, const char *name, uint64_t fallback)
{
	char text[32];
	char *end;
	uint64_t n;

	if (!s3d_query_get(query, name, text, sizeof(text)))
		return fallback;
	n = strtoull(text, &end, 10);
	return *text && !*end ? n : fallback;
}

/* "GET /path?query HTTP/1.1" */
static int parse_request_line(struct s3d_request *r)
{
	const char *line = r->head.data;
	size_t method_len = strcspn(line, " \r");
	const char *target = line + method_len + 1;
	size_t target_len;
	size_t path_len;

	if (line[method_len] != ' ' || method_len >= sizeof(r->method) || *target != '/')
		return -EINVAL;
	target_len = strcspn(target, " \r");
	path_len = min(strcspn(target, "? \r"), target_len);
	if (target[target_len] != ' ' || strncmp(target + target_len, " HTTP/1.", 8) != 0)
		return -EINVAL;
	if (path_len >= sizeof(r->path) || target_len - path_len >= sizeof(r->query))
		return -EINVAL;
	memcpy(r->method, line, method_len);
	memcpy(r->path, target, path_len);
	if (path_len < target_len)
		memcpy(r->query, target + path_len + 1, target_len - path_len - 1);
	r->keep_alive = target[target_len + 8] == '1';
	return 0;
}

static int parse_body_framing(struct s3d_request *r)
{
	char value[64];
	char *end;

	r->body = (struct s3d_framing){ .mode = S3D_FRAMING_LENGTH, .done = true };
	if (s3d_header_get(&r->head, "Transfer-Encoding", value, sizeof(value))) {
		r->body = (struct s3d_framing){ .mode = S3D_FRAMING_CHUNKED };
	} else if (s3d_header_get(&r->head, "Content-Length", value, sizeof(value))) {
		r->body.left = strtoull(value, &end, 10);
		if (!*value || *end)
			return -EINVAL;
		r->body.done = r->body.left == 0;
	}
	r->has_body = !r->body.done;
	return 0;
}

/* Bucket and key out of Host (virtual-host style) or path. */
static int parse_resource(struct s3d_request *r, const char *domain)
{
	size_t host_len = strcspn(r->host, ":");
	size_t domain_len = strlen(domain);
	const char *key = r->path + 1;
	size_t bucket_len;

	if (host_len > domain_len + 1 && r->host[host_len - domain_len - 1] == '.' &&
		strncasecmp(r->host + host_len - domain_len, domain, domain_len) == 0) {
		bucket_len = host_len - domain_len - 1;
		memcpy(r->bucket, r->host, bucket_len);
	} else {
		bucket_len = strcspn(key, "/");
		if (!s3d_url_decode(key, bucket_len, false, r->bucket, sizeof(r->bucket)))
			return -EINVAL;
		key += bucket_len + (key[bucket_len] == '/');
	}
	if (!s3d_url_decode(key, strlen(key), false, r->key, sizeof(r->key)))
		return -EINVAL;
	if (strcmp(r->method, "GET") == 0)
		r->kind = *r->key                                 ? S3D_GET
			  : s3d_query_has(r->query, "versioning") ? S3D_OTHER
								  : S3D_LIST;
	else
		r->kind = strcmp(r->method, "HEAD") == 0 ? S3D_HEAD : S3D_OTHER;
	return 0;
}

/* The region of "Credential=ID/DATE/REGION/s3/aws4_request", and whether Range is signed. */
static void parse_authorization(struct s3d_request *r)
{
	char authorization[2048];
	const char *at;
	size_t len;

	if (!s3d_header_get(&r->head, "Authorization", authorization, sizeof(authorization)))
		return;
	at = strstr(authorization, "Credential=");
	if (at)
		(void)sscanf(at, "Credential=%*[^/]/%*[^/]/%63[^/]", r->region); /* stays "" */
	at = strstr(authorization, "SignedHeaders=");
	if (!at)
		return;
	at += strlen("SignedHeaders=");
	len = strcspn(at, ", ");
	for (size_t i = 0; i < len; i += strcspn(at + i, ";,") + 1)
		if (strncasecmp(at + i, "range", 5) == 0 && strchr(";, ", at[i + 5]))
			r->range_signed = true;
}

int s3d_request_parse(struct s3d_request *r, const char *data, size_t head_len, const char *domain)
{
	char connection[64];
	int error;

	buf_release(&r->head);
	*r = (struct s3d_request){ .head = BUF_INIT(S3D_HEAD_BYTES) };
	error = buf_append(&r->head, data, head_len);
	if (error)
		return error;
	if (memchr(data, 0, head_len) || parse_request_line(r) || parse_body_framing(r))
		return -EINVAL;
	(void)s3d_header_get(&r->head, "Host", r->host, sizeof(r->host)); /* "" without one */
	(void)s3d_header_get(&r->head, "Range", r->range, sizeof(r->range));
	(void)s3d_header_get(&r->head, "If-Match", r->if_match, sizeof(r->if_match));
	if (s3d_header_get(&r->head, "Connection", connection, sizeof(connection)) &&
		strcasecmp(connection, "close") == 0)
		r->keep_alive = false;
	parse_authorization(r);
	return parse_resource(r, domain);
}
