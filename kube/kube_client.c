/* One request: who sends it, what is sent again, and when. See kube.h. */
#include "admin/admin.h"
#include "base/clock.h"
#include "base/secret.h"
#include "kube/kube_internal.h"

#include <stdlib.h>
#include <string.h>

#define CONNECT_NS    (10 * CLOCK_SECOND)
#define REPEAT_MIN_NS (250 * CLOCK_MS)
#define REPEAT_MAX_NS (8 * CLOCK_SECOND)
#define REPEATS_LOST  4u /* attempts of a request that failed otherwise than by throttling */
#define SLICE_NS      (100 * CLOCK_MS)
#define HEADERS_MAX   5u

/* ---- the client ------------------------------------------------------------------------------ */

int kube_new(const struct kube_choice *choice, const _Atomic bool *given_up, struct kube **ret_kube,
	struct err *e)
{
	struct kube *kube = calloc(1, sizeof(*kube));
	int r;

	if (!kube)
		return err_set(e, -ENOMEM, "out of memory");
	ensure(pthread_mutex_init(&kube->lock, NULL) == 0);
	kube->given_up = given_up;
	r = kube_access_find(choice, &kube->access, e);
	if (r == 0) {
		kube->session = http_session_new();
		kube->resources = json_object();
		if (asprintf(&kube->name, "Kubernetes at %s", kube->access.server) < 0)
			kube->name = NULL;
		if (!kube->session || !kube->resources || !kube->name)
			r = err_set(e, -ENOMEM, "out of memory");
	}
	if (r < 0) {
		kube_free(kube);
		return r;
	}
	kube->trust = (struct http_trust){ .ca_pem = kube->access.ca_pem,
		.cert_pem = kube->access.cert_pem,
		.key_pem = kube->access.key_pem,
		.advice = "name the cluster's authority by certificate-authority-data in the "
			  "kubeconfig" };
	*ret_kube = kube;
	return 0;
}

void kube_free(struct kube *kube)
{
	if (!kube)
		return;
	http_session_free(kube->session);
	json_decref(kube->resources);
	kube_access_release(&kube->access);
	free(kube->name);
	pthread_mutex_destroy(&kube->lock);
	free(kube);
}

const char *kube_namespace(const struct kube *kube)
{
	return kube->access.name_space;
}

const char *kube_server(const struct kube *kube)
{
	return kube->access.server;
}

int kube_sleep(const struct kube *kube, uint64_t ns, struct err *e)
{
	while (ns) {
		uint64_t slice = min(ns, SLICE_NS);

		if (kube->given_up && atomic_load(kube->given_up))
			return err_set(e, -ECANCELED, "%s: the request was canceled", kube->name);
		clock_sleep_ns(slice);
		ns -= slice;
	}
	return 0;
}

/* ---- one attempt ----------------------------------------------------------------------------- */

/* NULL: another request uses it. */
static struct http_session *take_session(struct kube *kube)
{
	struct http_session *session;

	pthread_mutex_lock(&kube->lock);
	session = TAKE(kube->session);
	pthread_mutex_unlock(&kube->lock);
	return session;
}

static void give_session(struct kube *kube, struct http_session *session)
{
	struct http_session *more = NULL;

	if (!session)
		return;
	pthread_mutex_lock(&kube->lock);
	if (kube->session)
		more = session;
	else
		kube->session = session;
	pthread_mutex_unlock(&kube->lock);
	http_session_free(more);
}

static int put_headers(const struct kube *kube, const struct kube_request *request,
	struct buf lines[HEADERS_MAX], const char *headers[HEADERS_MAX], size_t *ret_n,
	struct err *e)
{
	_cleanup_(secret_release_buf) struct buf token = BUF_INIT(KUBE_TOKEN_BYTES);
	int r = kube_access_token(&kube->access, &token, e);
	size_t n = 0;

	if (r < 0)
		return r;
	r = buf_puts(&lines[n++], "Accept: application/json");
	if (r == 0 && request->body)
		r = buf_printf(&lines[n++], "Content-Type: %s",
			request->type ? request->type : "application/json");
	if (r == 0 && request->body)
		r = buf_puts(&lines[n++], "Expect:"); /* the body follows at once */
	if (r == 0 && token.len)
		r = buf_printf(&lines[n++], "Authorization: Bearer %s", token.data);
	if (r == 0 && kube->access.as)
		r = buf_printf(&lines[n++], "Impersonate-User: %s", kube->access.as);
	for (size_t i = 0; i < n; i++)
		headers[i] = buf_str(&lines[i]);
	*ret_n = n;
	return r < 0 ? err_set(e, r, "%s: cannot send the request: %s", kube->name, err_str(r)) : 0;
}

static int send_body(struct kube *kube, const struct kube_request *request,
	const struct kube_sink *sink, const char *body, struct http_once *once, int *ret_status,
	struct buf *answer, struct err *e)
{
	_cleanup_free_ char *url = NULL;
	struct http_session *session = take_session(kube);
	int r;

	if (asprintf(&url, "%s%s", kube->access.server, request->path) < 0) {
		url = NULL;
		give_session(kube, session);
		return err_set(e, -ENOMEM, "out of memory");
	}
	once->method = request->method ? request->method : "GET";
	once->url = url;
	once->name = kube->name;
	once->body = body;
	once->trust = &kube->trust;
	once->session = session;
	once->connect_ns = CONNECT_NS;
	once->timeout_ns = sink ? sink->timeout_ns : KUBE_ATTEMPT_NS;
	once->given_up = kube->given_up;
	if (sink) {
		once->on_data = sink->see;
		once->arg = sink->arg;
		once->idle_ns = sink->idle_ns;
	}
	r = http_once(once, ret_status, answer, e);
	give_session(kube, session);
	return r;
}

int kube_send(struct kube *kube, const struct kube_request *request, const struct kube_sink *sink,
	int *ret_status, uint64_t *ret_retry_after_ns, struct buf *answer, struct err *e)
{
	_cleanup_free_ char *body = NULL;
	struct buf lines[HEADERS_MAX];
	const char *headers[HEADERS_MAX];
	struct http_once once = { .headers = headers, .ret_retry_after_ns = ret_retry_after_ns };
	int r;

	if (request->body) {
		body = admin_json_text(request->body, JSON_COMPACT);
		if (!body)
			return err_set(e, -ENOMEM, "out of memory");
	}
	for (size_t i = 0; i < HEADERS_MAX; i++)
		lines[i] = BUF_INIT(KUBE_TOKEN_BYTES + 64);
	r = put_headers(kube, request, lines, headers, &once.n_headers, e);
	if (r == 0)
		r = send_body(kube, request, sink, body, &once, ret_status, answer, e);
	for (size_t i = 0; i < HEADERS_MAX; i++)
		secret_release_buf(&lines[i]);
	return r;
}

/* ---- all attempts ---------------------------------------------------------------------------- */

/* Whether a failed attempt is worth another, and *ret_lost: it may have arrived. */
static bool is_passing(int r, int status, bool *ret_lost)
{
	*ret_lost = false;
	if (r == -ECONNREFUSED || status == 429)
		return true;
	*ret_lost = true;
	return r == -EIO || r == -ETIMEDOUT || r == -EHOSTUNREACH ||
	       (r == 0 && status >= 500 && status != 501);
}

/*
 * Sends until there is an answer that stays. 0: *ret_status is 2xx.
 *
 * A token that is not accepted is read again, once: it may have been replaced between reading and sending.
 */
static int repeat(struct kube *kube, const struct kube_request *request,
	const struct kube_sink *sink, struct buf *answer, struct err *e)
{
	struct backoff backoff = {
		.min_ns = REPEAT_MIN_NS, .max_ns = REPEAT_MAX_NS, .spread = BACKOFF_HALF
	};
	uint64_t end_ns = clock_mono_ns() + KUBE_PATIENCE_NS;
	unsigned int lost = 0;
	bool renewed = false;

	for (;;) {
		bool may_have_arrived;
		int status = 0;
		uint64_t wait_ns;
		int r;

		backoff.asked_ns = 0;
		buf_clear(answer);
		r = kube_send(kube, request, sink, &status, &backoff.asked_ns, answer, e);
		if (r == 0 && status / 100 == 2)
			return 0;
		if (r == 0)
			r = kube_refused(kube, request, status, buf_str(answer), answer->len, e);
		if (status == 401 && !renewed && kube_access_renew(&kube->access)) {
			renewed = true;
			continue;
		}
		if (!is_passing(status ? 0 : r, status, &may_have_arrived) ||
			(may_have_arrived && request->once))
			return r;
		if (status != 429 && ++lost == REPEATS_LOST)
			return r;
		wait_ns = backoff_next(&backoff);
		if (clock_mono_ns() + wait_ns >= end_ns)
			return r;
		r = kube_sleep(kube, wait_ns, e);
		if (r < 0)
			return r;
	}
}

int kube_call(
	struct kube *kube, const struct kube_request *request, json_t **ret_json, struct err *e)
{
	_cleanup_(buf_release) struct buf answer = BUF_INIT(KUBE_ANSWER_BYTES);
	json_t *json = NULL;
	int r = repeat(kube, request, NULL, &answer, e);

	if (r < 0)
		return r;
	r = admin_json_parse(buf_str(&answer), answer.len, JSON_DECODE_ANY, &json, NULL);
	if (r < 0)
		return err_set(e, r == -ENOMEM ? r : -EPROTO,
			r == -ENOMEM ? "%s: out of memory"
				     : "%s: its answer is not JSON; check the server's URL",
			kube->name);
	if (ret_json)
		*ret_json = json;
	else
		json_decref(json);
	return 0;
}

int kube_call_text(struct kube *kube, const char *path,
	int (*see)(void *arg, const char *data, size_t len), void *arg, struct err *e)
{
	_cleanup_(buf_release) struct buf answer = BUF_INIT(KUBE_ANSWER_BYTES);
	struct kube_request request = { .path = path, .once = true };

	return repeat(kube, &request, &(struct kube_sink){ .see = see, .arg = arg }, &answer, e);
}
