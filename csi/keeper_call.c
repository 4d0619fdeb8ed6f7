/* Requests to the keeper. See keeper_call.h. */
#include "csi/keeper_call.h"
#include "admin/admin.h"
#include "admin/http_reply.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/unix_socket.h"

#include <poll.h>
#include <stdlib.h>
#include <sys/socket.h>

#define ANSWER_BYTES (1u << 20)
#define AGAIN_NS     (5 * CLOCK_MS) /* to the next try to connect when the keeper's queue is full */

struct keeper_call {
	struct list link;
	struct keeper_calls *calls;
	bool running;
	int fd;
	struct loop_watch *watch;
	uint64_t timeout_ns;
	struct loop_timer *timer; /* of its deadline, once it is sent */
	struct loop_timer *again; /* to its start, or the next try */
	char *path;
	struct buf request;
	size_t sent;
	struct buf body;
	struct http_reply reply;
	void (*done)(void *arg, int r, const json_t *answer, const struct err *e);
	void *arg;
};

void keeper_calls_init(struct keeper_calls *calls, struct loop *loop, const char *socket)
{
	*calls = (struct keeper_calls){ .loop = loop, .socket = socket };
	list_init(&calls->running);
	list_init(&calls->waiting);
}

static void on_again(void *arg);

/* Its start is a timer of its own: nothing is called back before keeper_call_start() returns. */
static void schedule(struct keeper_call *call, uint64_t ns);

static void start_next(struct keeper_calls *calls)
{
	while (calls->n_running < KEEPER_CALLS_MAX && !list_empty(&calls->waiting)) {
		struct keeper_call *call =
			list_entry(list_pop_front(&calls->waiting), struct keeper_call, link);

		list_push_back(&calls->running, &call->link);
		calls->n_running++;
		call->running = true;
		schedule(call, 0);
	}
}

static void call_free(struct keeper_call *call)
{
	struct keeper_calls *calls = call->calls;

	list_remove(&call->link);
	calls->n_running -= call->running;
	loop_timer_stop(call->timer);
	loop_timer_stop(call->again);
	loop_watch_stop(call->watch);
	cleanup_close(&call->fd);
	http_reply_release(&call->reply);
	buf_release(&call->request);
	buf_release(&call->body);
	free(call->path);
	free(call);
	start_next(calls);
}

void keeper_call_cancel(struct keeper_call *call)
{
	if (call)
		call_free(call);
}

static void finish(struct keeper_call *call, int r, const json_t *answer, const struct err *e)
{
	void (*done)(void *arg, int r, const json_t *answer, const struct err *e) = call->done;
	void *arg = call->arg;

	call_free(call);
	done(arg, r, answer, e);
}

static void fail(struct keeper_call *call, int r)
{
	struct err e = ERR_INIT;

	if (r == -ENOENT || r == -ECONNREFUSED)
		r = err_set(&e, -ECONNREFUSED, "no mount keeper listens on '%s': start it",
			call->calls->socket);
	else if (r == -EBADMSG || r == -ECONNRESET)
		r = err_set(&e, -ECONNRESET, "the mount keeper closed the connection: try again");
	else
		(void)err_set(&e, r, "cannot reach the mount keeper at '%s': %s",
			call->calls->socket, err_str(r));
	finish(call, r, NULL, &e);
}

static void on_deadline(void *arg)
{
	struct keeper_call *call = arg;

	call->timer = NULL;
	fail(call, -ETIMEDOUT);
}

static void take_answer(struct keeper_call *call)
{
	struct err e = ERR_INIT;
	json_t *answer = NULL;
	int r;

	call->calls->answered_ns = clock_mono_ns();
	r = admin_take_answer(
		call->reply.status, call->path, buf_str(&call->body), call->body.len, &answer, &e);

	finish(call, r, answer, &e);
	json_decref(answer);
}

/* 0: more is to come; 1: the answer is complete. */
static int receive(struct keeper_call *call)
{
	char data[16384];
	ssize_t n = recv(call->fd, data, sizeof(data), 0);
	int r;

	if (n < 0)
		return errno == EAGAIN || errno == EINTR ? 0 : err_errno();
	r = n == 0 ? http_reply_end(&call->reply) : http_reply_feed(&call->reply, data, (size_t)n);
	return r < 0 ? r : call->reply.state == HTTP_DONE;
}

static int send_request(struct keeper_call *call)
{
	while (call->sent < call->request.len) {
		ssize_t n = send(call->fd, call->request.data + call->sent,
			call->request.len - call->sent, MSG_NOSIGNAL);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return errno == EAGAIN ? 0 : err_errno();
		call->sent += (size_t)n;
	}
	loop_watch_change(call->watch, POLLIN);
	return 0;
}

static void on_ready(void *arg, short events)
{
	struct keeper_call *call = arg;
	int r = events & POLLOUT ? send_request(call) : receive(call);

	if (r < 0)
		fail(call, r);
	else if (r > 0)
		take_answer(call);
}

static void connect_keeper(struct keeper_call *call)
{
	int r;

	if (!call->timer) /* the time in the queue is the caller's */
		call->timer =
			loop_timer_start(call->calls->loop, call->timeout_ns, on_deadline, call);
	if (!call->timer) {
		fail(call, -ENOMEM);
		return;
	}
	r = unix_socket_connect(call->calls->socket, &call->fd);

	if (r == -EAGAIN) {
		schedule(call, AGAIN_NS);
		return;
	}
	if (r == 0) {
		call->watch =
			loop_watch_start(call->calls->loop, call->fd, POLLOUT, on_ready, call);
		r = call->watch ? 0 : -ENOMEM;
	}
	if (r < 0)
		fail(call, r);
}

static void on_again(void *arg)
{
	struct keeper_call *call = arg;

	call->again = NULL;
	connect_keeper(call);
}

/* Without memory its deadline ends it. */
static void schedule(struct keeper_call *call, uint64_t ns)
{
	call->again = loop_timer_start(call->calls->loop, ns, on_again, call);
}

struct keeper_call *keeper_call_start(struct keeper_calls *calls, const char *path,
	const json_t *body, uint64_t timeout_ns,
	void (*done)(void *arg, int r, const json_t *answer, const struct err *e), void *arg)
{
	struct keeper_call *call = calloc(1, sizeof(*call));

	if (!call)
		return NULL;
	list_init(&call->link);
	call->calls = calls;
	call->fd = -1;
	call->done = done;
	call->arg = arg;
	call->request = BUF_INIT(ADMIN_CALL_BYTES);
	call->body = BUF_INIT(ANSWER_BYTES);
	http_reply_init(&call->reply, &call->body);
	call->path = strdup(path);
	call->timeout_ns = timeout_ns;
	if (!call->path ||
		admin_write_request(&call->request, body ? "POST" : "GET", path, body, NULL) < 0) {
		call_free(call);
		return NULL;
	}
	list_push_back(&calls->waiting, &call->link);
	start_next(calls);
	return call;
}
