/* One request of libcurl. See http_once.h. */
#include "ufs/http_once.h"
#include "base/clock.h"
#include "ufs/s3_error.h"
#include "ufs/s3_way.h"

#include <curl/curl.h>
#include <string.h>

#define LOOK_MS 100 /* how often it is seen whether somebody still waits */

static size_t on_data(char *data, size_t size, size_t n, void *arg)
{
	return buf_append(arg, data, size * n) < 0 ? 0 : size * n;
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

static int run(CURLM *multi, const struct http_once *request, CURLcode *ret_code)
{
	int running = 1;

	for (;;) {
		const CURLMsg *msg;
		int left;

		if (request->given_up && atomic_load(request->given_up))
			return -ECANCELED;
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

static int perform(CURL *easy, const struct http_once *request, const char *text, int *ret_status,
	struct err *e)
{
	CURLM *multi = curl_multi_init();
	CURLcode code = CURLE_OK;
	const char *name = request->name ? request->name : request->url;
	enum ufs_cause cause;
	long status = 0;
	int r = multi && curl_multi_add_handle(multi, easy) == CURLM_OK ? run(multi, request, &code)
									: -ENOMEM;

	if (multi) {
		(void)curl_multi_remove_handle(multi, easy); /* fails only on a foreign handle */
		(void)curl_multi_cleanup(multi);
	}
	if (r < 0)
		return err_set(e, r, "%s: %s", name,
			r == -ECANCELED ? "the request was canceled" : "out of memory");
	if (code == CURLE_WRITE_ERROR)
		return err_set(e, -EPROTO, "%s: its answer is too long", name);
	if (code != CURLE_OK)
		return s3_error_transfer(&(struct s3_target){ .url = name },
			&(struct s3_transfer){ .curl_code = (int)code, .text = text }, &cause, e);
	(void)curl_easy_getinfo(easy, CURLINFO_RESPONSE_CODE, &status); /* was answered */
	*ret_status = (int)status;
	return 0;
}

int http_once(const struct http_once *request, int *ret_status, struct buf *answer, struct err *e)
{
	const struct ufs_config config = { .ca_file = (char *)(uintptr_t)request->ca_file };
	struct s3_endpoint nowhere = { 0 };
	struct curl_slist *headers = NULL;
	char text[CURL_ERROR_SIZE] = "";
	struct s3_guard guard;
	struct s3_way way;
	CURL *easy;
	int r = s3_way_find(&config, &nowhere, &way, e);

	if (r < 0)
		return r;
	way.no_proxy = request->no_proxy;
	easy = curl_easy_init();
	r = easy ? set_request(easy, request, &headers) : -ENOMEM;
	if (r == 0) {
		s3_way_set(&way, easy, &guard);
		(void)curl_easy_setopt(easy, CURLOPT_ERRORBUFFER, text);
		(void)curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, on_data);
		(void)curl_easy_setopt(easy, CURLOPT_WRITEDATA, answer);
		r = perform(easy, request, text, ret_status, e);
	} else {
		r = err_set(
			e, r, "%s: out of memory", request->name ? request->name : request->url);
	}
	curl_easy_cleanup(easy);
	curl_slist_free_all(headers);
	return r;
}
