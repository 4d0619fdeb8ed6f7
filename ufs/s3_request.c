/*
 * One request of an S3 origin: path, signature, headers, and what becomes of its answer. See
 * s3_internal.h. All on the loop's thread.
 */
#include "ufs/s3_internal.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/layout.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define S3_ERROR_BODY_MAX (64u * 1024)

int s3_put_path(struct s3 *s3, const char *key, size_t len)
{
	struct buf *path = &s3->path;
	int r;

	buf_clear(path);
	r = buf_puts(path, "/");
	if (r == 0 && s3->path_style)
		r = buf_puts(path, s3->config.bucket);
	if (r == 0 && s3->path_style && (key || len))
		r = buf_puts(path, "/");
	if (r == 0 && key)
		r = s3_encode(path, s3->config.prefix, strlen(s3->config.prefix), true);
	if (r == 0 && key)
		r = s3_encode(path, key, len, true);
	return r;
}

static int add_header(struct s3 *s3, struct s3_exchange *x, const char *name, const char *value)
{
	int r;

	buf_clear(&s3->line);
	r = buf_printf(&s3->line, "%s: %s", name, value);
	return r < 0 ? r : s3_http_header(x, buf_str(&s3->line));
}

/* Only host and x-amz-* are signed: proxies may touch the rest. */
int s3_send(struct s3 *s3, struct s3_exchange *x, const char *query)
{
	char time[S3_TIME_SIZE];
	struct s3_header headers[4] = {
		{ "host", s3->host },
		{ "x-amz-content-sha256", S3_EMPTY_SHA256 },
		{ "x-amz-date", time },
		{ "x-amz-security-token", s3->credentials.session_token },
	};
	struct s3_signed request = {
		.method = "GET",
		.path = buf_str(&s3->path),
		.query = query,
		.headers = headers,
		.n_headers = s3->credentials.session_token ? 4 : 3,
		.payload_hash = S3_EMPTY_SHA256,
		.time = time,
	};
	_cleanup_(buf_release) struct buf authorization = BUF_INIT(4096);
	int r;

	s3_time(clock_wall_ns(), time);
	r = s3_sign(&s3->signer, &request, &authorization);
	if (r == 0)
		r = add_header(s3, x, "Authorization", buf_str(&authorization));
	for (size_t i = 1; i < request.n_headers && r == 0; i++)
		r = add_header(s3, x, headers[i].name, headers[i].value);
	if (r == 0)
		r = s3_http_header(x, "Accept:"); /* curl's own is not sent */
	buf_clear(&s3->url);
	if (r == 0)
		r = buf_printf(
			&s3->url, "%s%s%s%s", s3->base_url, request.path, *query ? "?" : "", query);
	return r < 0 ? r : s3_http_start(x, buf_str(&s3->url));
}

struct s3_target s3_target_of(const struct s3 *s3)
{
	return (struct s3_target){
		.url = s3->base_url,
		.bucket = s3->config.bucket,
		.region = s3->region,
		.access_key = s3->credentials.access_key,
	};
}

/* Of an error's body the start will do, and without memory nothing. */
static void keep_text(struct s3_exchange *x, const char *data, size_t len)
{
	if (buf_append(&x->body, data, min(len, x->body.max - x->body.len)) < 0)
		buf_clear(&x->body);
}

static int get_data(struct s3_exchange *x, const char *data, size_t len)
{
	struct ufs_get *get = x->arg;
	uint64_t before = get->offset + get->got;

	if (x->answer.status >= 300) {
		keep_text(x, data, len);
		return 0;
	}
	if (get->got == 0) {
		struct err e = ERR_INIT;
		int r = s3_answer_check(&x->answer, get, &e);

		if (r < 0) {
			keep_text(x, e.text, strlen(e.text)); /* for get_status() */
			return r;
		}
	}
	if (len > get->length - get->got)
		return -EPROTO;
	memcpy((char *)get->buf + get->got, data, len);
	get->got += len;
	/* Once per piece that became complete: a waiter has no use for less. */
	if (get->on_progress && before / PIECE_BYTES != (before + len) / PIECE_BYTES &&
		get->got < get->length)
		get->on_progress(get, get->got);
	return 0;
}

/* The final status of an attempt and its line. */
static int get_status(struct s3 *s3, struct s3_exchange *x, int status, struct err *e)
{
	struct ufs_get *get = x->arg;
	struct s3_target target = s3_target_of(s3);

	if (status > 0)
		return s3_error_transfer(&target, status, x->text, e);
	if (status == -ETIMEDOUT)
		return err_set(e, status, "%s: no byte came for %llu s (%llu of %llu received)",
			s3->base_url,
			(unsigned long long)((clock_mono_ns() - x->progress_ns) / CLOCK_SECOND),
			(unsigned long long)get->got, (unsigned long long)get->length);
	if (status == -ECANCELED)
		return err_set(e, status, "the origin is being closed");
	if (status < 0)
		return err_set(e, status, "s3://%s/%s%.*s: %s", s3->config.bucket,
			s3->config.prefix, (int)min(get->key_len, 200u), get->key,
			x->body.len ? buf_str(&x->body) : "more bytes than asked for");
	if (x->answer.status >= 300 || x->answer.status < 200)
		return s3_error_status(&target, get->key, get->key_len, &x->answer,
			buf_str(&x->body), x->body.len, e);
	if (get->got < get->length)
		return err_set(e, -EIO, "%s: the answer ended after %llu of %llu bytes",
			s3->base_url, (unsigned long long)get->got,
			(unsigned long long)get->length);
	return 0;
}

static void get_done(struct s3_exchange *x, int status)
{
	struct ufs_get *get = x->arg;
	struct s3 *s3 = get->priv;
	struct err e = ERR_INIT;
	int r = get_status(s3, x, status, &e);

	get->retry_after_ns = x->answer.retry_after_ns;
	s3_place_free(s3, x->low);
	s3_http_give(x);
	s3_get_end(s3, get, r, &e);
}

static int add_range(struct s3 *s3, struct s3_exchange *x, const struct ufs_get *get)
{
	int r;

	buf_clear(&s3->line);
	r = buf_printf(&s3->line, "Range: bytes=%llu-%llu", (unsigned long long)get->offset,
		(unsigned long long)(get->offset + get->length - 1));

	return r < 0 ? r : s3_http_header(x, buf_str(&s3->line));
}

/* A condition for strong etags; an answer is checked in any case. */
static int add_if_match(struct s3 *s3, struct s3_exchange *x, const struct ufs_get *get)
{
	int r;

	if (get->tag_len == 0 || (get->tag_len > 3 && memcmp(get->tag, "lm:", 3) == 0))
		return 0;
	for (uint32_t i = 0; i < get->tag_len; i++)
		if (get->tag[i] <= ' ' || get->tag[i] == '"' || get->tag[i] == 0x7f)
			return 0; /* cannot stand in a header */
	buf_clear(&s3->line);
	r = buf_printf(&s3->line, "If-Match: \"%.*s\"", (int)get->tag_len, get->tag);
	return r < 0 ? r : s3_http_header(x, buf_str(&s3->line));
}

int s3_get_start(struct s3 *s3, struct ufs_get *get, bool low)
{
	struct s3_exchange *x = s3_http_take(s3->http, S3_ERROR_BODY_MAX);
	int r;

	if (!x)
		return -ENOMEM;
	x->on_data = get_data;
	x->on_done = get_done;
	x->arg = get;
	x->low = low;
	x->deadline_ns = get->deadline_ns;
	get->priv = s3;
	r = s3_put_path(s3, get->key, get->key_len);
	if (r == 0)
		r = add_range(s3, x, get);
	if (r == 0)
		r = add_if_match(s3, x, get);
	if (r == 0)
		r = s3_send(s3, x, "");
	if (r < 0)
		s3_http_give(x);
	return r;
}
