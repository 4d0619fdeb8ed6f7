/*
 * LISTs of an S3 origin: one page of ListObjectsV2, of its first version, which OBS has, or of
 * ListObjectVersions; and the probe. See ufs_internal.h.
 */
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
	if (status == 0) {
		call->answer = x->answer.status;
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

	return r < 0 ? r
		     : s3_send(call->s3, x, call->query, strstr(call->query, "max-keys=") != NULL);
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

/* Where a LIST of the first version, or of versions, goes on: by the token of the page before, which
 * is a whole key, or behind a relative one. */
static int put_markers(const struct s3 *s3, const struct ufs_page_request *request, bool versions,
	struct buf *after, struct s3_param *params, size_t *n)
{
	const char *key = versions ? "key-marker" : "marker";
	const char *at = request->token;
	size_t id = 0;
	int r;

	if (!at && request->after) {
		r = full_key(s3, request->after, request->after_len, after);
		params[(*n)++] = (struct s3_param){ key, buf_str(after), after->len };
		return r;
	}
	if (!at)
		return 0;
	if (versions) {
		id = strcspn(at, "\n");
		if (id)
			params[(*n)++] = (struct s3_param){ "version-id-marker", at, id };
		at += id + (at[id] == '\n');
	}
	params[(*n)++] = (struct s3_param){ key, at, strlen(at) };
	return 0;
}

/* The same for the second version. */
static int put_token(const struct s3 *s3, const struct ufs_page_request *request, struct buf *after,
	struct s3_param *params, size_t *n)
{
	int r = 0;

	params[(*n)++] = (struct s3_param){ "list-type", "2", 1 };
	if (request->after) {
		r = full_key(s3, request->after, request->after_len, after);
		params[(*n)++] = (struct s3_param){ "start-after", buf_str(after), after->len };
	}
	if (request->token)
		params[(*n)++] = (struct s3_param){ "continuation-token", request->token,
			strlen(request->token) };
	return r;
}

static int list_query(const struct s3 *s3, const struct ufs_page_request *request,
	unsigned int max_keys, bool versions, struct buf *query)
{
	_cleanup_(buf_release) struct buf prefix = BUF_INIT(4096);
	_cleanup_(buf_release) struct buf after = BUF_INIT(4096);
	char max_text[16];
	struct s3_param params[8] = {
		{ "encoding-type", "url", 3 },
		{ "max-keys", max_text,
			(size_t)snprintf(max_text, sizeof(max_text), "%u", max_keys) },
	};
	size_t n = 2;
	int r = full_key(s3, request->dir ? request->dir : "", request->dir_len, &prefix);

	if (r < 0)
		return r;
	params[n++] = (struct s3_param){ "prefix", buf_str(&prefix), prefix.len };
	if (request->delimiter)
		params[n++] = (struct s3_param){ "delimiter", "/", 1 };
	if (versions)
		params[n++] = (struct s3_param){ "versions", "", 0 };
	if (versions || s3->markers)
		r = put_markers(s3, request, versions, &after, params, &n);
	else
		r = put_token(s3, request, &after, params, &n);
	return r < 0 ? r : s3_encode_query(query, params, n);
}

/* Of two names that may be NULL the later one. */
static const struct ufs_object *later(const struct ufs_object *a, const struct ufs_object *b)
{
	int order;

	if (!a || !b)
		return a ? a : b;
	order = memcmp(a->key, b->key, min(a->key_len, b->key_len));
	if (order == 0)
		return a->key_len >= b->key_len ? a : b;
	return order > 0 ? a : b;
}

/* A service that goes on by markers need not say the next one: it is the last name of the page. */
static int put_last_name(struct s3 *s3, struct ufs_page *page)
{
	const struct ufs_object *last = NULL;
	int r;

	if (!page->truncated || page->token.len)
		return 0;
	if (page->n_objects)
		last = &page->objects[page->n_objects - 1];
	if (page->n_prefixes)
		last = later(last, &page->prefixes[page->n_prefixes - 1]);
	if (!last)
		return 0;
	r = buf_puts(&page->token, s3->config.prefix);
	return r < 0 ? r : buf_append(&page->token, last->key, last->key_len);
}

int s3_list_ask(struct s3 *s3, const struct ufs_page_request *request, const char *query,
	struct buf *ret_body, int *ret_answer, struct ufs_page *page, struct err *e)
{
	struct s3_list_call call = { .request = request, .body = BUF_INIT(0), .query = query };
	int r = s3_list_run(s3, &call);

	*ret_body = call.body;
	*ret_answer = call.answer;
	if (r == 0)
		return 0;
	if (e)
		*e = call.e;
	page->retry_after_ns = call.retry_after_ns;
	return r;
}

int s3_list_once(struct s3 *s3, const struct ufs_page_request *request, unsigned int max_keys,
	bool versions, struct ufs_page *page, struct err *e)
{
	_cleanup_(buf_release) struct buf query = BUF_INIT(S3_QUERY_MAX);
	_cleanup_(buf_release) struct buf body = BUF_INIT(0);
	int answer;
	int r = list_query(s3, request, max_keys, versions, &query);

	if (r < 0)
		return err_set(e, r, "%s: LIST: %s", s3->name, err_str(r));
	r = s3_list_ask(s3, request, buf_str(&query), &body, &answer, page, e);
	if (r < 0)
		return r;
	r = s3_xml_list_upto(buf_str(&body), body.len, s3->config.prefix, request->upto,
		request->upto_len, page, e);
	if (r == 0 && s3->markers && !versions)
		r = put_last_name(s3, page);
	if (r < 0) {
		ufs_count_end(&s3->base, r, UFS_CAUSE_BAD_XML, 0);
		if (r == -EPROTO && e) /* the code stays */
			(void)err_set(e, r,
				"%s: %s; check that the endpoint is an S3 service, without a proxy",
				s3->name, (const char *)strdupa(e->text));
		else
			(void)err_prefix(e, "%s", s3->name);
	}
	return r;
}

int s3_list_page(struct ufs *ufs, const struct ufs_page_request *request, struct ufs_page *page,
	struct err *e)
{
	struct s3 *s3 = container_of(ufs, struct s3, base);

	if (request->begin)
		return s3_versions_begin(s3, request, page, e);
	return s3_list_once(s3, request, 1000, atomic_load(&s3->by_version), page, e);
}

/* Is there an object whose key is the prefix without its slash? A failed answer counts as no. */
static bool prefix_is_object(struct s3 *s3)
{
	_cleanup_(buf_release) struct buf query = BUF_INIT(S3_QUERY_MAX);
	_cleanup_(buf_release) struct buf body = BUF_INIT(0);
	size_t len = strlen(s3->config.prefix);
	struct s3_param params[] = { { "encoding-type", "url", 3 }, { "max-keys", "1", 1 },
		{ "prefix", s3->config.prefix, len - 1 }, { "list-type", "2", 1 } };
	const size_t n = s3->markers ? 3 : 4; /* no list-type=2 */
	const struct ufs_page_request request = { 0 };
	struct ufs_page page;
	bool found = false;
	int answer;

	if (len < 2 || s3_encode_query(&query, params, n) < 0)
		return false;
	ufs_page_init(&page);
	/* Of keys that begin alike the shortest is the first. */
	if (s3_list_ask(s3, &request, buf_str(&query), &body, &answer, &page, NULL) == 0 &&
		s3_xml_list(buf_str(&body), body.len, "", &page, NULL) == 0 && page.n_objects > 0)
		found = page.objects[0].key_len == len - 1 &&
			memcmp(page.objects[0].key, s3->config.prefix, len - 1) == 0;
	ufs_page_release(&page);
	return found;
}

int s3_probe(struct ufs *ufs, struct err *e)
{
	struct s3 *s3 = container_of(ufs, struct s3, base);
	struct ufs_page_request request = { 0 };
	struct ufs_page page;
	int r;

	ufs_page_init(&page);
	r = s3_list_once(s3, &request, 1, false, &page, e);
	if (r == 0 && page.n_objects == 0 && prefix_is_object(s3))
		r = err_set(e, -ENOENT,
			"%s://%s/%.*s is an object, not a prefix: mount a prefix that contains it",
			s3_scheme(s3), s3->config.bucket, (int)strlen(s3->config.prefix) - 1,
			s3->config.prefix);
	else if (r == 0 && page.n_objects == 0)
		r = err_set(e, -ENOENT, "%s://%s/%s: no objects found; check bucket and prefix",
			s3_scheme(s3), s3->config.bucket, s3->config.prefix);
	ufs_page_release(&page);
	return r;
}
