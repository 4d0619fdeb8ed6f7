/* LISTs of an S3 origin: one page of ListObjectsV2, and the probe. See ufs_internal.h. */
#include "ufs/s3_internal.h"
#include "ufs/s3_xml.h"
#include "base/cleanup.h"
#include "base/clock.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define S3_QUERY_MAX (16u * 1024)

/* ---- the loop's thread ----------------------------------------------------------------------- */

static int list_data(struct s3_exchange *x, const char *data, size_t len)
{
	return buf_append(&x->body, data, len) < 0 ? -EPROTO : 0;
}

static int list_status(struct s3 *s3, const struct s3_exchange *x, int status,
	struct s3_failure *failure, struct err *e)
{
	int r = s3_exchange_status(s3, x, status, NULL, 0, failure, e);

	if (r == 0 && status < 0) {
		failure->cause = UFS_CAUSE_BAD_XML;
		r = err_set(e, status, "%s: a LIST answer is longer than %u bytes",
			s3->place.base_url, LIMIT_XML_BYTES);
	}
	return r;
}

static void list_done(struct s3_exchange *x, int status)
{
	struct s3_list_call *call = x->arg;
	struct s3 *s3 = call->s3;
	struct s3_failure failure;
	int r = list_status(s3, x, status, &failure, &call->e);

	s3_learn_window(s3, &s3->list_window, x, failure.cause, s3->lists_in_flight);
	if (r < 0 && s3_send_again(s3, x, status, r, &failure))
		return;
	call->retry_after_ns = x->answer.retry_after_ns;
	if (r == 0) {
		call->body = x->body;
		x->body = BUF_INIT(0);
	}
	s3->lists_in_flight--;
	s3_http_give(x);
	s3_list_end(s3, call, r, failure.cause);
}

static int list_send(struct s3_exchange *x)
{
	struct s3_list_call *call = x->arg;
	int r = s3_put_path(call->s3, NULL, 0);

	return r < 0 ? r : s3_send(call->s3, x, call->query);
}

int s3_list_start(struct s3 *s3, struct s3_list_call *call)
{
	struct s3_exchange *x = s3_http_take(s3->http, LIMIT_XML_BYTES);
	int r;

	if (!x)
		return -ENOMEM;
	x->on_data = list_data;
	x->on_done = list_done;
	x->send = list_send;
	x->owner = s3;
	x->arg = call;
	x->deadline_ns = clock_mono_ns() + s3->base.limits.deadline_ns;
	r = list_send(x);
	if (r < 0)
		s3_http_give(x);
	return r;
}

static bool is_cancelled(const struct s3_exchange *x, void *arg)
{
	const struct s3_list_call *call = x->arg;

	(void)arg;
	return x->on_done == list_done && atomic_load(&call->cancelled);
}

void s3_list_cancel_marked(struct s3 *s3)
{
	s3_http_cancel(s3->http, is_cancelled, NULL);
	s3_renew_cancel(s3, is_cancelled, NULL);
}

/* ---- any thread ------------------------------------------------------------------------------ */

/* Prefix and a relative key behind it. */
static int full_key(const struct s3 *s3, const char *key, size_t len, struct buf *out)
{
	int r = buf_puts(out, s3->config.prefix);

	return r < 0 ? r : buf_append(out, key, len);
}

static int list_query(const struct s3 *s3, const struct ufs_page_request *request,
	unsigned int max_keys, struct buf *query)
{
	_cleanup_(buf_release) struct buf prefix = BUF_INIT(4096);
	_cleanup_(buf_release) struct buf after = BUF_INIT(4096);
	char max_text[16];
	struct s3_param params[7] = {
		{ "encoding-type", "url", 3 },
		{ "list-type", "2", 1 },
		{ "max-keys", max_text,
			(size_t)snprintf(max_text, sizeof(max_text), "%u", max_keys) },
	};
	size_t n = 3;
	int r = full_key(s3, request->dir ? request->dir : "", request->dir_len, &prefix);

	if (r == 0 && request->after)
		r = full_key(s3, request->after, request->after_len, &after);
	if (r < 0)
		return r;
	params[n++] = (struct s3_param){ "prefix", buf_str(&prefix), prefix.len };
	if (request->delimiter)
		params[n++] = (struct s3_param){ "delimiter", "/", 1 };
	if (request->after)
		params[n++] = (struct s3_param){ "start-after", buf_str(&after), after.len };
	if (request->token)
		params[n++] = (struct s3_param){ "continuation-token", request->token,
			strlen(request->token) };
	return s3_encode_query(query, params, n);
}

static int list_once(struct s3 *s3, const struct ufs_page_request *request, unsigned int max_keys,
	struct ufs_page *page, struct err *e)
{
	_cleanup_(buf_release) struct buf query = BUF_INIT(S3_QUERY_MAX);
	struct s3_list_call call = { .request = request, .body = BUF_INIT(0) };
	int r = list_query(s3, request, max_keys, &query);

	if (r < 0)
		return err_set(e, r, "%s: LIST: %s", s3->name, err_str(r));
	call.query = buf_str(&query);
	r = s3_list_run(s3, &call);
	if (r < 0) {
		if (e)
			*e = call.e;
		page->retry_after_ns = call.retry_after_ns;
		return r;
	}
	r = s3_xml_list_upto(buf_str(&call.body), call.body.len, s3->config.prefix, request->upto,
		request->upto_len, page, e);
	buf_release(&call.body);
	if (r < 0) {
		ufs_count_end(&s3->base, r, UFS_CAUSE_BAD_XML, 0);
		if (r == -EPROTO && e) /* the code stays */
			(void)err_set(e, r, "%s: %s; is it an S3 service, and no proxy in between?",
				s3->name, (const char *)strdupa(e->text));
		else
			(void)err_prefix(e, "%s", s3->name);
	}
	return r;
}

int s3_list_page(struct ufs *ufs, const struct ufs_page_request *request, struct ufs_page *page,
	struct err *e)
{
	return list_once(container_of(ufs, struct s3, base), request, 1000, page, e);
}

int s3_probe(struct ufs *ufs, struct err *e)
{
	struct s3 *s3 = container_of(ufs, struct s3, base);
	struct ufs_page_request request = { 0 };
	struct ufs_page page;
	int r;

	ufs_page_init(&page);
	r = list_once(s3, &request, 1, &page, e);
	if (r == 0 && page.n_objects == 0)
		r = err_set(e, -ENOENT, "s3://%s/%s: nothing is there; check bucket and prefix",
			s3->config.bucket, s3->config.prefix);
	ufs_page_release(&page);
	return r;
}
