/*
 * One request of an S3 origin: path, signature, headers, and what becomes of its answer. See
 * s3_internal.h. All on the loop's thread.
 */
#include "ufs/s3_internal.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/layout.h"
#include "ufs/obs_sign.h"
#include "ufs/s3_tag.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define S3_ERROR_BODY_MAX (64u * 1024)
#define S3_PATH_MAX       (16u * 1024)

int s3_put_path(struct s3 *s3, const char *key, size_t len)
{
	struct buf *path = &s3->path;
	int r;

	buf_clear(path);
	r = buf_puts(path, "/");
	if (r == 0 && s3->place.path_style)
		r = buf_puts(path, s3->config.bucket);
	if (r == 0 && s3->place.path_style && (key || len))
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

const char *s3_scheme(const struct s3 *s3)
{
	return s3->obs ? "obs" : "s3";
}

/* Authorization and what it covers. Only host and x-amz-* are signed: proxies may touch the
 * rest. */
static int add_signature(struct s3 *s3, struct s3_exchange *x, const char *query, bool list)
{
	char time[S3_TIME_SIZE];
	struct s3_header headers[7] = { { "host", s3->place.host } };
	struct s3_signed request = {
		.method = "GET",
		.path = buf_str(&s3->path),
		.query = query,
		.headers = headers,
		.n_headers = 1,
		.payload_hash = S3_EMPTY_SHA256,
		.time = time,
	};
	_cleanup_(buf_release) struct buf authorization = BUF_INIT(16384);
	int r;

	/* In order of their names. */
	if (x->checksums)
		headers[request.n_headers++] =
			(struct s3_header){ "x-amz-checksum-mode", "ENABLED" };
	headers[request.n_headers++] =
		(struct s3_header){ "x-amz-content-sha256", S3_EMPTY_SHA256 };
	headers[request.n_headers++] = (struct s3_header){ "x-amz-date", time };
	if (list && s3_endpoint_is_aws(&s3->place.endpoint)) /* others may not know it */
		headers[request.n_headers++] =
			(struct s3_header){ "x-amz-optional-object-attributes", "RestoreStatus" };
	if (s3->config.requester_pays)
		headers[request.n_headers++] =
			(struct s3_header){ "x-amz-request-payer", "requester" };
	if (s3->credentials.session_token)
		headers[request.n_headers++] =
			(struct s3_header){ "x-amz-security-token", s3->credentials.session_token };
	s3_time(clock_wall_ns(), time);
	r = s3_sign(&s3->signer, &request, &authorization);
	if (r == 0)
		r = add_header(s3, x, "Authorization", buf_str(&authorization));
	for (size_t i = 1; i < request.n_headers && r == 0; i++)
		r = add_header(s3, x, headers[i].name, headers[i].value);
	return r;
}

/* The same by OBS's own rules. */
static int add_obs_signature(struct s3 *s3, struct s3_exchange *x, const char *query)
{
	_cleanup_(buf_release) struct buf authorization = BUF_INIT(4096);
	_cleanup_(buf_release) struct buf resource = BUF_INIT(S3_PATH_MAX);
	const char *token = s3->credentials.session_token;
	const struct obs_header headers[] = { { "x-obs-security-token", token } };
	char date[OBS_DATE_SIZE];
	struct obs_signed request = {
		.method = "GET",
		.type = "",
		.date = date,
		.headers = headers,
		.n_headers = token ? 1 : 0,
		.query = query,
	};
	int r = 0;

	obs_date(clock_wall_ns(), date);
	if (!s3->place.path_style)
		r = buf_printf(&resource, "/%s", s3->config.bucket);
	if (r == 0)
		r = buf_puts(&resource, buf_str(&s3->path));
	request.resource = buf_str(&resource);
	if (r == 0)
		r = obs_sign(s3->credentials.access_key, s3->credentials.secret_key, &request,
			&authorization);
	if (r == 0)
		r = add_header(s3, x, "Authorization", buf_str(&authorization));
	if (r == 0)
		r = add_header(s3, x, "Date", date);
	if (r == 0 && token)
		r = add_header(s3, x, headers[0].name, token);
	return r;
}

int s3_send(struct s3 *s3, struct s3_exchange *x, const char *query, bool list)
{
	int r = 0;

	if (!s3->config.anonymous)
		r = s3->obs ? add_obs_signature(s3, x, query) : add_signature(s3, x, query, list);
	else if (x->checksums)
		r = s3_http_header(x, "x-amz-checksum-mode: ENABLED");
	if (r == 0)
		r = s3_http_header(x, "Accept:"); /* curl's own is not sent */
	buf_clear(&s3->url);
	if (r == 0)
		r = buf_printf(&s3->url, "%s%s%s%s", s3->place.base_url, buf_str(&s3->path),
			*query ? "?" : "", query);
	x->epoch = s3->epoch;
	return r < 0 ? r : s3_http_start(x, buf_str(&s3->url));
}

static struct s3_target target_of(const struct s3 *s3)
{
	return (struct s3_target){
		.scheme = s3_scheme(s3),
		.url = s3->place.base_url,
		.bucket = s3->config.bucket,
		.region = s3->place.region,
		.access_key = s3->credentials.access_key,
		.key_place = s3->credentials.place ? s3->credentials.place : "",
	};
}

int s3_exchange_status(struct s3 *s3, const struct s3_exchange *x, int status, const char *key,
	uint32_t key_len, struct s3_failure *ret_failure, struct err *e)
{
	struct s3_target target = target_of(s3);
	const struct s3_transfer transfer = {
		.curl_code = status,
		.text = x->text,
		.proxy_status = x->proxy_status,
		.refused = x->guard.refused,
	};

	*ret_failure = (struct s3_failure){ 0 };
	if (status > 0)
		return s3_error_transfer(&target, &transfer, &ret_failure->cause, e);
	if (status == -ECANCELED)
		return err_set(e, status, "the request was canceled");
	if (status == -ETIMEDOUT && x->deadline_ns && clock_mono_ns() >= x->deadline_ns &&
		clock_mono_ns() - x->progress_ns < s3->base.limits.request_timeout_ns)
		return err_set(
			e, status, "%s: no answer before the read's deadline", s3->place.base_url);
	if (status == -ETIMEDOUT) {
		ret_failure->cause = UFS_CAUSE_STALL;
		return err_set(e, status,
			"%s: no answer, or less than %u KiB of it, for %llu s; tried again later",
			s3->place.base_url, S3_HTTP_PROGRESS_BYTES / 1024,
			(unsigned long long)((clock_mono_ns() - x->progress_ns) / CLOCK_SECOND));
	}
	if (status == 0 && (x->answer.status >= 300 || x->answer.status < 200))
		return s3_error_status(&target, key, key_len, &x->answer, buf_str(&x->body),
			x->body.len, ret_failure, e);
	return 0;
}

/* Of an error's body the start will do, and without memory nothing. */
static void keep_text(struct s3_exchange *x, const char *data, size_t len)
{
	if (buf_append(&x->body, data, min(len, x->body.max - x->body.len)) < 0)
		buf_clear(&x->body);
}

/* Whether a part of the answer is worth something: its length was checked, and its bytes are the
 * object's own. Else only all of it tells. */
static bool parts_count(const struct s3_answer *answer)
{
	return answer->length >= 0 && !answer->encoded;
}

/* Ends the transfer: the rest is not needed. */
static int has_enough(struct s3_exchange *x)
{
	keep_text(x, "the rest is not wanted", strlen("the rest is not wanted"));
	return -EIO;
}

/* Where the next bytes belong, of which there is at least one. -EIO: no more are wanted. */
static int find_room(struct s3_exchange *x, struct ufs_get *get)
{
	int r;

	if (get->room.length > 0)
		return 0;
	if (!get->on_room) {
		uint64_t left = get->length - get->got;

		get->room = (struct ufs_room){ (char *)get->buf + get->got, left, left };
		return 0;
	}
	r = get->on_room(get, get->got, &get->room);
	if (r < 0)
		return r;
	get->length = min(get->length, get->got + get->room.left);
	return get->room.left > 0 ? 0 : has_enough(x);
}

static int put_data(struct s3_exchange *x, struct ufs_get *get, const char *data, size_t len)
{
	while (len > 0) {
		int r = find_room(x, get);
		size_t n;

		if (r < 0)
			return r;
		n = min((uint64_t)len, get->room.length);
		memcpy(get->room.buf, data, n);
		get->room.buf += n;
		get->room.length -= n;
		get->got += n;
		data += n;
		len -= n;
	}
	return 0;
}

static int get_data(struct s3_exchange *x, const char *data, size_t len)
{
	struct ufs_get *get = x->arg;
	uint64_t before = get->offset + get->got;
	int r;

	if (x->answer.status >= 300) {
		keep_text(x, data, len);
		return 0;
	}
	if (get->got == 0) {
		struct s3 *s3 = x->owner;
		struct err e = ERR_INIT;

		get->first_ns = clock_mono_ns();
		r = s3_answer_check(&x->answer, get, &get->cause, &e);
		if (r < 0) {
			keep_text(x, e.text, strlen(e.text)); /* for get_status() */
			return r;
		}
		if (!get->on_room) /* the bytes of a range lie in several buffers */
			s3_sum_begin(s3, &x->answer, get);
	}
	if (len > x->asked - get->got) {
		get->cause = x->answer.encoded ? UFS_CAUSE_ENCODING : UFS_CAUSE_LONG_BODY;
		return -EPROTO;
	}
	r = put_data(x, get, data, len);
	if (r < 0)
		return r;
	/* Once per piece that became complete: a waiter has no use for less. */
	if (get->on_progress && before / PIECE_BYTES != (before + len) / PIECE_BYTES &&
		get->got < get->length && parts_count(&x->answer) && !get->sum.kind)
		get->on_progress(get, get->got);
	/* The rest may arrive late, or never. */
	return get->got == get->length && get->got < x->asked ? has_enough(x) : 0;
}

/* The answer is there and none of those that say no: is it all? */
static int check_complete(struct s3 *s3, struct s3_exchange *x, struct ufs_get *get, struct err *e)
{
	int r = get->got ? 0 : s3_answer_check(&x->answer, get, &get->cause, e);

	if (r < 0)
		return err_prefix(e, "%s://%s/%s%.*s", s3_scheme(s3), s3->config.bucket,
			s3->config.prefix, (int)min(get->key_len, 200u), get->key);
	if (get->got == get->length)
		return 0;
	get->cause = x->answer.encoded ? UFS_CAUSE_ENCODING : UFS_CAUSE_SHORT_BODY;
	return err_set(e, -EIO, "%s: the answer ended after %llu of %llu bytes", s3->place.base_url,
		(unsigned long long)get->got, (unsigned long long)get->length);
}

/* The final status of an attempt and its line; an MD5 is compared later. */
static int get_status(
	struct s3 *s3, struct s3_exchange *x, int status, struct s3_failure *failure, struct err *e)
{
	struct ufs_get *get = x->arg;
	int r = 0;

	/* Also when the answer was cut off behind what is wanted. */
	if (get->on_room && get->got == get->length && parts_count(&x->answer))
		status = 0;
	else
		r = s3_exchange_status(s3, x, status, get->key, get->key_len, failure, e);
	if (r < 0) {
		get->cause = failure->cause;
	} else if (status < 0) {
		r = err_set(e, status, "%s://%s/%s%.*s: %s", s3_scheme(s3), s3->config.bucket,
			s3->config.prefix, (int)min(get->key_len, 200u), get->key,
			x->body.len ? buf_str(&x->body) : "more bytes than requested");
	} else {
		r = check_complete(s3, x, get, e);
	}
	/* Also after a failure: bytes that are all there would be used. */
	if (get->sum.kind && get->got == get->length && (r < 0 || !s3_sum_is_md5(s3, get))) {
		int sum = s3_sum_check(s3, get, e);

		r = sum < 0 ? sum : r;
	}
	if (r < 0 && !parts_count(&x->answer))
		get->got = 0;
	failure->cause = get->cause;
	return r;
}

/* What a complete answer says about the way it came. */
static void learn_background(struct s3 *s3, const struct s3_exchange *x, uint64_t bytes)
{
	uint64_t now = clock_mono_ns();

	background_answered(&s3->background, now, x->latency_ns, now - x->sent_ns - x->latency_ns,
		bytes, s3->in_flight);
	counter_set(&s3->base.counters->background, background_places(&s3->background));
}

static void get_done(struct s3_exchange *x, int status)
{
	struct ufs_get *get = x->arg;
	struct s3 *s3 = x->owner;
	struct s3_failure failure;
	struct err e = ERR_INIT;
	int r = get_status(s3, x, status, &failure, &e);

	if (r == 0)
		learn_background(s3, x, get->got);
	s3->plain_reads |= r == 0 && x->plain;
	s3_learn_window(s3, &s3->window, x, failure.cause, s3->in_flight);
	if (r < 0 && s3_send_again(s3, x, status, r, &failure))
		return;
	get->retry_after_ns = x->answer.retry_after_ns;
	s3_place_free(s3, x->low);
	s3_http_give(x);
	if (r == 0 && s3_sum_is_md5(s3, get))
		s3_sum_later(s3, get);
	else
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

/* A condition for strong etags: a weak one never fulfils it (RFC 9110, 13.1.1). An answer is checked in any case. */
static int add_if_match(struct s3 *s3, struct s3_exchange *x, const struct ufs_get *get)
{
	struct s3_tag tag = s3_tag_of(get->tag, get->tag_len);
	int r;

	if (tag.weak || tag.etag_len == 0 || (tag.etag_len > 3 && memcmp(tag.etag, "lm:", 3) == 0))
		return 0;
	for (uint32_t i = 0; i < tag.etag_len; i++)
		if (tag.etag[i] <= ' ' || tag.etag[i] == '"' || tag.etag[i] == 0x7f)
			return 0; /* cannot stand in a header */
	buf_clear(&s3->line);
	r = buf_printf(&s3->line, "If-Match: \"%.*s\"", (int)tag.etag_len, tag.etag);
	return r < 0 ? r : s3_http_header(x, buf_str(&s3->line));
}

/* To what is wanted by now. */
static int shorten(struct ufs_get *get)
{
	int r = get->on_room ? get->on_room(get, 0, &get->room) : 0;

	if (r == 0 && get->on_room)
		get->length = min(get->length, get->room.left);
	return r;
}

static int get_send(struct s3_exchange *x)
{
	struct ufs_get *get = x->arg;
	struct s3_tag tag = s3_tag_of(get->tag, get->tag_len);
	struct s3 *s3 = x->owner;
	char query[sizeof("versionId=") + LIMIT_TAG_BYTES] = "";
	int r = s3_put_path(s3, get->key, get->key_len);

	x->by_version = tag.version_len && !x->plain && !s3->plain_reads;
	if (x->by_version) /* of characters that need no encoding */
		(void)snprintf(query, sizeof(query), "versionId=%.*s", (int)tag.version_len,
			tag.version); /* fits */
	get->cause = UFS_CAUSE_NONE;
	if (r == 0)
		r = shorten(get);
	x->asked = get->length;
	/* Ceph RGW reads no object ahead, and asks its disks twice, when there is a range. */
	if (r == 0 && (get->on_room || get->offset != 0 || get->length != get->size))
		r = add_range(s3, x, get);
	else
		x->checksums = !s3->obs;
	if (r == 0)
		r = add_if_match(s3, x, get);
	return r < 0 ? r : s3_send(s3, x, query, false);
}

int s3_get_start(struct s3 *s3, struct ufs_get *get, bool low)
{
	struct s3_exchange *x = s3_http_take(s3->http, S3_ERROR_BODY_MAX);
	int r;

	if (!x)
		return -ENOMEM;
	x->on_data = get_data;
	x->on_done = get_done;
	x->send = get_send;
	x->owner = s3;
	x->arg = get;
	x->low = low;
	x->deadline_ns = get->deadline_ns;
	r = get_send(x);
	if (r < 0)
		s3_http_give(x);
	else
		get->sent_ns = x->sent_ns;
	return r;
}

static bool is_cancelled(const struct s3_exchange *x, void *arg)
{
	const struct ufs_get *get = x->arg;

	(void)arg;
	return x->on_done == get_done && atomic_load(&get->cancelled);
}

void s3_get_cancel_marked(struct s3 *s3)
{
	s3_http_cancel(s3->http, is_cancelled, NULL);
	s3_renew_cancel(s3, is_cancelled, NULL);
}
