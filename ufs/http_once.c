/* One request of libcurl. See http_once.h. */
#include "ufs/http_once.h"
#include "base/clock.h"
#include "ufs/s3_error.h"
#include "ufs/s3_way.h"

#include <curl/curl.h>
#include <stdlib.h>
#include <string.h>

#define LOOK_MS 100 /* how often it is seen whether somebody still waits */

struct http_session {
	CURLM *multi; /* has the connections */
};

/* A request that is being sent. */
struct attempt {
	const struct http_once *request;
	struct s3_answer head;
	struct buf *answer;
	uint64_t heard_ns; /* when the last bytes came */
	int code;          /* what on_data returned */
};

struct http_session *http_session_new(void)
{
	struct http_session *session = calloc(1, sizeof(*session));

	if (!session)
		return NULL;
	session->multi = curl_multi_init();
	if (!session->multi) {
		http_session_free(session);
		return NULL;
	}
	return session;
}

void http_session_free(struct http_session *session)
{
	if (!session)
		return;
	if (session->multi)
		(void)curl_multi_cleanup(session->multi); /* it has no handles */
	free(session);
}

static size_t on_header(char *line, size_t size, size_t n, void *arg)
{
	struct attempt *a = arg;

	a->heard_ns = clock_mono_ns();
	s3_answer_line(&a->head, line, size * n);
	return size * n;
}

static size_t on_data(char *data, size_t size, size_t n, void *arg)
{
	struct attempt *a = arg;

	a->heard_ns = clock_mono_ns();
	if (a->request->on_data && a->head.status / 100 == 2)
		a->code = a->request->on_data(a->request->arg, data, size * n);
	else
		a->code = buf_append(a->answer, data, size * n) < 0 ? -EPROTO : 0;
	return a->code < 0 ? 0 : size * n;
}

static void set_blob(CURL *easy, CURLoption option, const char *pem)
{
	struct curl_blob blob = { .data = (void *)(uintptr_t)pem, .flags = CURL_BLOB_NOCOPY };

	if (!pem)
		return;
	blob.len = strlen(pem);
	(void)curl_easy_setopt(easy, option, &blob); /* known to this libcurl */
}

static void set_trust(CURL *easy, const struct http_trust *trust)
{
	if (trust->ca_pem) {                                        /* it, and no other */
		(void)curl_easy_setopt(easy, CURLOPT_CAPATH, NULL); /* known, as the next */
		set_blob(easy, CURLOPT_CAINFO_BLOB, trust->ca_pem);
	}
	set_blob(easy, CURLOPT_SSLCERT_BLOB, trust->cert_pem);
	set_blob(easy, CURLOPT_SSLKEY_BLOB, trust->key_pem);
}

static int set_request(CURL *easy, const struct http_once *request, struct curl_slist **headers)
{
	struct curl_slist *all = NULL;

	for (size_t i = 0; i < request->n_headers; i++) {
		struct curl_slist *more = curl_slist_append(all, request->headers[i]);

		if (!more) {
			curl_slist_free_all(all);
			return -ENOMEM;
		}
		all = more;
	}
	*headers = all;
	/* Known to this libcurl; strings want memory, and what is missing then is refused. */
	(void)curl_easy_setopt(easy, CURLOPT_HTTPHEADER, all);
	(void)curl_easy_setopt(easy, CURLOPT_URL, request->url);
	if (request->body)
		(void)curl_easy_setopt(easy, CURLOPT_COPYPOSTFIELDS, request->body);
	(void)curl_easy_setopt(easy, CURLOPT_CUSTOMREQUEST, request->method);
	(void)curl_easy_setopt(
		easy, CURLOPT_CONNECTTIMEOUT_MS, (long)(request->connect_ns / CLOCK_MS));
	(void)curl_easy_setopt(easy, CURLOPT_TIMEOUT_MS, (long)(request->timeout_ns / CLOCK_MS));
	return 0;
}

static int run(CURLM *multi, const struct attempt *a, CURLcode *ret_code)
{
	const struct http_once *request = a->request;
	int running = 1;

	for (;;) {
		const CURLMsg *msg;
		int left;

		if (request->given_up && atomic_load(request->given_up))
			return -ECANCELED;
		if (request->idle_ns && clock_mono_ns() - a->heard_ns >= request->idle_ns)
			return -ETIMEDOUT;
		if (curl_multi_perform(multi, &running) != CURLM_OK)
			return -ENOMEM;
		msg = curl_multi_info_read(multi, &left);
		if (msg && msg->msg == CURLMSG_DONE) {
			*ret_code = msg->data.result;
			return 0;
		}
		if (curl_multi_poll(multi, NULL, 0, LOOK_MS, NULL) != CURLM_OK)
			return -ENOMEM;
	}
}

static int describe(const struct attempt *a, int r, CURLcode code, const char *text, struct err *e)
{
	const struct http_once *request = a->request;
	const char *name = request->name ? request->name : request->url;
	enum ufs_cause cause;

	if (r == -ETIMEDOUT)
		return err_set(e, r, "%s: no data arrived for %llu s; check the network", name,
			(unsigned long long)(request->idle_ns / CLOCK_SECOND));
	if (r < 0)
		return err_set(e, r, "%s: %s", name,
			r == -ECANCELED ? "the request was canceled" : "out of memory");
	if (code == CURLE_WRITE_ERROR && a->code < 0 && request->on_data && a->code != -EPROTO)
		return a->code; /* the caller's own */
	if (code == CURLE_WRITE_ERROR)
		return err_set(e, -EPROTO, "%s: its answer is too long", name);
	return s3_error_transfer(&(struct s3_target){ .url = name,
					 .advice = request->trust ? request->trust->advice : NULL },
		&(struct s3_transfer){ .curl_code = (int)code, .text = text }, &cause, e);
}

static int perform(CURL *easy, struct attempt *a, const char *text, int *ret_status, struct err *e)
{
	struct http_session *kept = a->request->session;
	CURLM *multi = kept ? kept->multi : curl_multi_init();
	CURLcode code = CURLE_OK;
	int r;

	a->heard_ns = clock_mono_ns();
	r = multi && curl_multi_add_handle(multi, easy) == CURLM_OK ? run(multi, a, &code)
								    : -ENOMEM;
	if (multi)
		(void)curl_multi_remove_handle(multi, easy); /* fails only on a foreign handle */
	if (multi && !kept)
		(void)curl_multi_cleanup(multi);
	if (r < 0 || code != CURLE_OK)
		return describe(a, r, code, text, e);
	*ret_status = a->head.status;
	if (a->request->ret_retry_after_ns)
		*a->request->ret_retry_after_ns = a->head.retry_after_ns;
	return 0;
}

/* With a trust of its own the variables for origins are not read. */
static int find_way(const struct http_once *request, struct s3_way *ret_way, struct err *e)
{
	const struct ufs_config config = { .ca_file = (char *)(uintptr_t)request->ca_file };
	struct s3_endpoint nowhere = { 0 };

	if (!request->trust)
		return s3_way_find(&config, &nowhere, ret_way, e);
	*ret_way = (struct s3_way){ 0 };
	return 0;
}

int http_once(const struct http_once *request, int *ret_status, struct buf *answer, struct err *e)
{
	struct attempt a = { .request = request, .answer = answer };
	struct curl_slist *headers = NULL;
	char text[CURL_ERROR_SIZE] = "";
	struct s3_guard guard;
	struct s3_way way;
	CURL *easy;
	int r = find_way(request, &way, e);

	if (r < 0)
		return r;
	way.no_proxy = request->no_proxy;
	s3_answer_init(&a.head);
	easy = curl_easy_init();
	r = easy ? set_request(easy, request, &headers) : -ENOMEM;
	if (r == 0) {
		s3_way_set(&way, easy, &guard);
		if (request->trust)
			set_trust(easy, request->trust);
		/* As in set_request(). */
		(void)curl_easy_setopt(easy, CURLOPT_ERRORBUFFER, text);
		(void)curl_easy_setopt(easy, CURLOPT_HEADERFUNCTION, on_header);
		(void)curl_easy_setopt(easy, CURLOPT_HEADERDATA, &a);
		(void)curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, on_data);
		(void)curl_easy_setopt(easy, CURLOPT_WRITEDATA, &a);
		r = perform(easy, &a, text, ret_status, e);
	} else {
		r = err_set(
			e, r, "%s: out of memory", request->name ? request->name : request->url);
	}
	curl_easy_cleanup(easy);
	curl_slist_free_all(headers);
	return r;
}
