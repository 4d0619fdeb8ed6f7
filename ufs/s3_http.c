/*
 * libcurl's multi interface under libuv. See s3_http.h.
 *
 * curl tells which sockets to watch (on_socket) and when to be called at the latest
 * (on_timer_request); uv_poll and a uv_timer report back through curl_multi_socket_action(). Lack of
 * progress and deadlines are watched by a tick of our own, because curl's low-speed limit counts in
 * whole seconds.
 */
#include "ufs/s3_http.h"
#include "base/clock.h"

#include <curl/curl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <uv.h>

#define S3_HTTP_BUFFER       (64L * 1024)  /* of each exchange; up to 256 are in flight */
#define S3_HTTP_BUFFER_LARGE (256L * 1024) /* for a body larger than this: fewer system calls */
#define S3_HTTP_CONNECT_MS   10000L
#define S3_HTTP_TICK_MS      1000u

struct s3_http {
	struct s3_http_config config;
	CURLM *multi;
	uv_timer_t *timer;
	uv_timer_t *tick;
	struct list active;
	struct list idle;
	unsigned int exchanges; /* that exist */
	bool closing;
};

struct watch {
	uv_poll_t poll;
	struct s3_http *http;
	curl_socket_t fd;
};

static void init_curl(void)
{
	ensure(curl_global_init(CURL_GLOBAL_DEFAULT) == CURLE_OK);
}

/* What curl measured of it. */
static void take_measures(struct s3_exchange *x)
{
	curl_off_t sent = 0;
	curl_off_t first = 0;
	long proxy = 0;

	/* Known to this libcurl, of a handle that was used: do not fail. */
	(void)curl_easy_getinfo(x->easy, CURLINFO_PRETRANSFER_TIME_T, &sent);
	(void)curl_easy_getinfo(x->easy, CURLINFO_STARTTRANSFER_TIME_T, &first);
	(void)curl_easy_getinfo(x->easy, CURLINFO_HTTP_CONNECTCODE, &proxy);
	x->latency_ns = first > sent && sent > 0 ? (uint64_t)(first - sent) * 1000 : 0;
	x->proxy_status = (int)proxy;
}

static void finish(struct s3_exchange *x, int status)
{
	take_measures(x);
	(void)curl_multi_remove_handle(
		x->http->multi, x->easy); /* fails only on a foreign handle */
	list_remove(&x->link);
	x->on_done(x, status);
}

/* Ends what curl says is complete. on_done may start others, which only adds to the list. */
static void reap(struct s3_http *http)
{
	CURLMsg *msg;
	int left;

	while ((msg = curl_multi_info_read(http->multi, &left)) != NULL) {
		struct s3_exchange *x = NULL;
		CURLcode code = msg->data.result;

		if (msg->msg != CURLMSG_DONE)
			continue;
		(void)curl_easy_getinfo(
			msg->easy_handle, CURLINFO_PRIVATE, (char **)&x); /* was set */
		if (!x)
			continue;
		if (x->abort_code < 0)
			finish(x, x->abort_code);
		else
			finish(x, (int)code);
	}
}

static void on_poll(uv_poll_t *poll, int status, int events)
{
	struct watch *watch = poll->data;
	struct s3_http *http = watch->http;
	int flags = 0;
	int running;

	if (status < 0) /* curl finds the socket's error by using it, and may connect anew */
		flags |= CURL_CSELECT_IN | CURL_CSELECT_OUT;
	if (events & UV_READABLE)
		flags |= CURL_CSELECT_IN;
	if (events & UV_WRITABLE)
		flags |= CURL_CSELECT_OUT;
	/* `watch` may be closed by this call. */
	(void)curl_multi_socket_action(
		http->multi, watch->fd, flags, &running); /* transfers tell */
	reap(http);
}

static void free_handle(uv_handle_t *handle)
{
	free(handle->data);
}

static struct watch *new_watch(struct s3_http *http, curl_socket_t fd)
{
	struct watch *watch = calloc(1, sizeof(*watch));

	if (!watch)
		return NULL;
	watch->http = http;
	watch->fd = fd;
	watch->poll.data = watch;
	if (uv_poll_init_socket(loop_uv(http->config.loop), &watch->poll, fd) != 0) {
		free(watch);
		return NULL;
	}
	(void)curl_multi_assign(http->multi, fd, watch); /* fd is known to it */
	return watch;
}

/* No event will come of this socket: its exchange ends by the next tick. */
static void unwatched(CURL *easy)
{
	struct s3_exchange *x = NULL;

	(void)curl_easy_getinfo(easy, CURLINFO_PRIVATE, (char **)&x); /* NULL: curl's own handle */
	if (x)
		x->progress_ns = 0;
}

/* Always 0: after any other answer curl gives up every transfer of the multi handle, and takes no
 * more until they are gone. */
static int on_socket(CURL *easy, curl_socket_t fd, int what, void *arg, void *socket_arg)
{
	struct s3_http *http = arg;
	struct watch *watch = socket_arg;
	int events = 0;

	if (what == CURL_POLL_REMOVE) {
		if (watch) {
			(void)uv_poll_stop(&watch->poll); /* cannot fail */
			uv_close((uv_handle_t *)&watch->poll, free_handle);
			(void)curl_multi_assign(http->multi, fd, NULL); /* fd is known to it */
		}
		return 0;
	}
	if (!watch)
		watch = new_watch(http, fd);
	if (what & CURL_POLL_IN)
		events |= UV_READABLE;
	if (what & CURL_POLL_OUT)
		events |= UV_WRITABLE;
	if (!watch || uv_poll_start(&watch->poll, events, on_poll) != 0)
		unwatched(easy);
	return 0;
}

static void on_timer(uv_timer_t *timer)
{
	struct s3_http *http = timer->data;
	int running;

	(void)curl_multi_socket_action(
		http->multi, CURL_SOCKET_TIMEOUT, 0, &running); /* as above */
	reap(http);
}

static int on_timer_request(CURLM *multi, long ms, void *arg)
{
	struct s3_http *http = arg;

	(void)multi;
	if (ms < 0) {
		(void)uv_timer_stop(http->timer); /* cannot fail */
	} else if (!http->closing) {
		uv_update_time(loop_uv(http->config.loop));
		(void)uv_timer_start(
			http->timer, on_timer, (uint64_t)ms, 0); /* fails only when closing */
	}
	return 0;
}

static void on_tick(uv_timer_t *tick)
{
	struct s3_http *http = tick->data;
	uint64_t now = clock_mono_ns();
	struct list late = LIST_INIT(late);
	struct list *node;

	list_for_each_safe (at, &http->active) {
		struct s3_exchange *x = list_entry(at, struct s3_exchange, link);

		if (now - x->progress_ns < http->config.progress_timeout_ns &&
			(x->deadline_ns == 0 || now < x->deadline_ns))
			continue;
		list_remove(at);
		list_push_back(&late, at);
	}
	/* Each is on a list until finish(): on_done may start others meanwhile. */
	while ((node = list_pop_front(&late)) != NULL)
		finish(list_entry(node, struct s3_exchange, link), -ETIMEDOUT);
	if (list_empty(&http->active))
		(void)uv_timer_stop(tick); /* cannot fail */
}

static size_t on_header(char *line, size_t size, size_t n, void *arg)
{
	struct s3_exchange *x = arg;

	x->progress_ns = clock_mono_ns();
	s3_answer_line(&x->answer, line, size * n);
	return size * n;
}

static size_t on_write(char *data, size_t size, size_t n, void *arg)
{
	struct s3_exchange *x = arg;

	x->since += size * n;
	if (x->since >= S3_HTTP_PROGRESS_BYTES) {
		x->progress_ns = clock_mono_ns();
		x->since = 0;
	}
	x->abort_code = x->on_data(x, data, size * n);
	return x->abort_code < 0 ? 0 : size * n;
}

static uv_timer_t *new_timer(struct s3_http *http)
{
	uv_timer_t *timer = calloc(1, sizeof(*timer));

	if (timer) {
		ensure(uv_timer_init(loop_uv(http->config.loop), timer) == 0);
		timer->data = http;
	}
	return timer;
}

static void close_timer(uv_timer_t *timer)
{
	if (!timer)
		return;
	timer->data = timer;
	uv_close((uv_handle_t *)timer, free_handle);
}

struct s3_http *s3_http_new(const struct s3_http_config *config)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	struct s3_http *http = calloc(1, sizeof(*http));

	pthread_once(&once, init_curl);
	if (!http)
		return NULL;
	http->config = *config;
	list_init(&http->active);
	list_init(&http->idle);
	http->multi = curl_multi_init();
	http->timer = new_timer(http);
	http->tick = new_timer(http);
	if (!http->multi || !http->timer || !http->tick) {
		s3_http_free(http);
		return NULL;
	}
	/* Options known to this libcurl do not fail. */
	(void)curl_multi_setopt(http->multi, CURLMOPT_SOCKETFUNCTION, on_socket);
	(void)curl_multi_setopt(http->multi, CURLMOPT_SOCKETDATA, http);
	(void)curl_multi_setopt(http->multi, CURLMOPT_TIMERFUNCTION, on_timer_request);
	(void)curl_multi_setopt(http->multi, CURLMOPT_TIMERDATA, http);
	(void)curl_multi_setopt(http->multi, CURLMOPT_MAXCONNECTS, (long)config->max_exchanges);
	(void)curl_multi_setopt(http->multi, CURLMOPT_PIPELINING, CURLPIPE_NOTHING);
	return http;
}

static void free_exchange(struct s3_exchange *x)
{
	curl_slist_free_all(x->headers);
	curl_easy_cleanup(x->easy);
	buf_release(&x->body);
	free(x);
}

void s3_http_free(struct s3_http *http)
{
	struct list *node;

	if (!http)
		return;
	http->closing = true;
	while (!list_empty(&http->active))
		finish(list_entry(http->active.next, struct s3_exchange, link), -ECANCELED);
	while ((node = list_pop_front(&http->idle)) != NULL)
		free_exchange(list_entry(node, struct s3_exchange, link));
	if (http->multi)
		(void)curl_multi_cleanup(http->multi); /* all handles were removed */
	close_timer(http->timer);
	close_timer(http->tick);
	free(http);
}

/* Options that stay for the life of a handle. */
static void set_options(struct s3_exchange *x)
{
	const struct s3_http_config *config = &x->http->config;
	CURL *easy = x->easy;

	s3_way_set(&config->way, easy, &x->guard);
	/* As there. */
	(void)curl_easy_setopt(easy, CURLOPT_PRIVATE, x);
	(void)curl_easy_setopt(easy, CURLOPT_ERRORBUFFER, x->text);
	(void)curl_easy_setopt(easy, CURLOPT_PATH_AS_IS, 1L);
	(void)curl_easy_setopt(easy, CURLOPT_HTTP_CONTENT_DECODING, 0L);
	(void)curl_easy_setopt(easy, CURLOPT_TCP_NODELAY, 1L);
	(void)curl_easy_setopt(easy, CURLOPT_TCP_KEEPALIVE, 1L);
	(void)curl_easy_setopt(easy, CURLOPT_CONNECTTIMEOUT_MS,
		(long)min((uint64_t)S3_HTTP_CONNECT_MS, config->progress_timeout_ns / CLOCK_MS));
	(void)curl_easy_setopt(easy, CURLOPT_HEADERFUNCTION, on_header);
	(void)curl_easy_setopt(easy, CURLOPT_HEADERDATA, x);
	(void)curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, on_write);
	(void)curl_easy_setopt(easy, CURLOPT_WRITEDATA, x);
}

static struct s3_exchange *new_exchange(struct s3_http *http)
{
	struct s3_exchange *x;

	if (http->exchanges >= http->config.max_exchanges)
		return NULL;
	x = calloc(1, sizeof(*x));
	if (!x)
		return NULL;
	list_init(&x->link);
	x->http = http;
	x->easy = curl_easy_init();
	if (!x->easy) {
		free(x);
		return NULL;
	}
	set_options(x);
	http->exchanges++;
	return x;
}

struct s3_exchange *s3_http_take(struct s3_http *http, size_t body_max)
{
	struct list *node = list_pop_front(&http->idle);
	struct s3_exchange *x =
		node ? list_entry(node, struct s3_exchange, link) : new_exchange(http);

	if (!x)
		return NULL;
	x->body.max = body_max;
	x->deadline_ns = 0;
	x->resends = 0;
	x->by_version = false;
	x->plain = false;
	x->checksums = false;
	x->asked = 0;
	s3_http_again(x);
	return x;
}

void s3_http_again(struct s3_exchange *x)
{
	s3_answer_init(&x->answer);
	curl_slist_free_all(x->headers);
	x->headers = NULL;
	buf_clear(&x->body);
	x->text[0] = '\0';
	x->abort_code = 0;
	x->latency_ns = 0;
	x->proxy_status = 0;
	x->guard.refused[0] = '\0';
}

void s3_http_cancel(
	struct s3_http *http, bool (*want)(const struct s3_exchange *x, void *arg), void *arg)
{
	struct list ended = LIST_INIT(ended);
	struct list *node;

	list_for_each_safe (at, &http->active) {
		if (!want(list_entry(at, struct s3_exchange, link), arg))
			continue;
		list_remove(at);
		list_push_back(&ended, at);
	}
	while ((node = list_pop_front(&ended)) != NULL)
		finish(list_entry(node, struct s3_exchange, link), -ECANCELED);
}

void s3_http_give(struct s3_exchange *x)
{
	curl_slist_free_all(x->headers);
	x->headers = NULL;
	buf_release(&x->body);
	if (x->http->closing)
		free_exchange(x);
	else
		list_push_front(&x->http->idle, &x->link); /* the warmest first */
}

int s3_http_header(struct s3_exchange *x, const char *line)
{
	struct curl_slist *headers = curl_slist_append(x->headers, line);

	if (!headers)
		return -ENOMEM;
	x->headers = headers;
	return 0;
}

int s3_http_start(struct s3_exchange *x, const char *url)
{
	struct s3_http *http = x->http;
	long buffer = x->asked > S3_HTTP_BUFFER_LARGE ? S3_HTTP_BUFFER_LARGE : S3_HTTP_BUFFER;

	if (curl_easy_setopt(x->easy, CURLOPT_BUFFERSIZE, buffer) != CURLE_OK ||
		curl_easy_setopt(x->easy, CURLOPT_URL, url) != CURLE_OK ||
		curl_easy_setopt(x->easy, CURLOPT_HTTPHEADER, x->headers) != CURLE_OK ||
		curl_multi_add_handle(http->multi, x->easy) != CURLM_OK)
		return -ENOMEM;
	x->sent_ns = x->progress_ns = clock_mono_ns();
	x->since = 0;
	if (list_empty(&http->active)) {
		uint64_t ms = min((uint64_t)S3_HTTP_TICK_MS,
			http->config.progress_timeout_ns / CLOCK_MS / 4 + 1);

		uv_update_time(loop_uv(http->config.loop));
		(void)uv_timer_start(http->tick, on_tick, ms, ms); /* fails only when closing */
	}
	list_push_back(&http->active, &x->link);
	return 0;
}
