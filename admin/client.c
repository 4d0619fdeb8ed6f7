/* Asks a daemon over its unix socket, or over TCP: one blocking request with a deadline. See admin.h. */
#include "admin/admin_internal.h"
#include "admin/http_reply.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/unix_socket.h"

#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

int admin_wait_ready(int fd, short events, uint64_t deadline_ns)
{
	for (;;) {
		struct pollfd p = { .fd = fd, .events = events };
		uint64_t now = clock_mono_ns();
		uint64_t ms = now < deadline_ns ? (deadline_ns - now) / CLOCK_MS + 1 : 0;
		int n = poll(&p, 1, (int)min(ms, 1000000ull));

		if (n > 0)
			return 0;
		if (n < 0 && errno != EINTR)
			return err_errno();
		if (clock_mono_ns() >= deadline_ns)
			return -ETIMEDOUT;
	}
}

static int send_all(int fd, const char *data, size_t len, uint64_t deadline_ns)
{
	while (len > 0) {
		ssize_t n = send(fd, data, len, MSG_NOSIGNAL);

		if (n < 0 && errno == EAGAIN) {
			int r = admin_wait_ready(fd, POLLOUT, deadline_ns);

			if (r < 0)
				return r;
		} else if (n < 0 && errno != EINTR) {
			return err_errno();
		} else if (n > 0) {
			data += n;
			len -= (size_t)n;
		}
	}
	return 0;
}

static int receive_all(int fd, struct http_reply *reply, uint64_t deadline_ns)
{
	char piece[16384];

	while (reply->state != HTTP_DONE) {
		ssize_t n;
		int r = admin_wait_ready(fd, POLLIN, deadline_ns);

		if (r < 0)
			return r;
		n = recv(fd, piece, sizeof(piece), 0);
		if (n == 0)
			return http_reply_end(reply);
		if (n < 0 && (errno == EINTR || errno == EAGAIN))
			continue;
		r = n < 0 ? err_errno() : http_reply_feed(reply, piece, (size_t)n);
		if (r < 0)
			return r;
	}
	return 0;
}

static int connect_until(const char *path, uint64_t deadline_ns, int *ret_fd)
{
	int r;

	if (admin_is_tcp(path))
		return admin_tcp_connect(path, deadline_ns, ret_fd);
	while ((r = unix_socket_connect(path, ret_fd)) == -EAGAIN) { /* its queue is full */
		if (clock_mono_ns() >= deadline_ns)
			return -ETIMEDOUT;
		clock_sleep_ns(5 * CLOCK_MS);
	}
	return r == -ENOENT ? -ECONNREFUSED
			    : r; /* a socket that does not exist; -ENOENT is only ever a reply */
}

static int exchange(
	const char *path, const struct buf *request, uint64_t deadline_ns, struct http_reply *reply)
{
	_cleanup_close_ int fd = -1;
	int r = connect_until(path, deadline_ns, &fd);

	if (r == 0)
		r = send_all(fd, request->data, request->len, deadline_ns);
	return r < 0 ? r : receive_all(fd, reply, deadline_ns);
}

static int describe(int code, const char *socket_path, struct err *e)
{
	switch (code) {
	case -ECONNREFUSED:
		return err_set(e, code, "no daemon listens on '%s': start it, or name its socket",
			socket_path);
	case -EACCES:
		return err_set(e, code, "'%s' belongs to another user: run as that user or as root",
			socket_path);
	case -ETIMEDOUT:
		return err_set(e, code, "the daemon at '%s' did not answer in time: see its log",
			socket_path);
	case -EBADMSG:
		return err_set(
			e, code, "no HTTP server at '%s': give a daemon's socket", socket_path);
	case -ENOBUFS:
		return err_set(e, code,
			"the answer of '%s' is larger than %u bytes; use the same version of all "
			"programs",
			socket_path, ADMIN_ANSWER_BYTES);
	default:
		return err_set(e, code, "cannot reach the daemon at '%s': %s: see its log",
			socket_path, err_str(code));
	}
}

int admin_write_request(
	struct buf *out, const char *method, const char *path, const json_t *json, struct err *e)
{
	_cleanup_free_ char *text = admin_json_text(json, JSON_COMPACT);
	int r;

	if (path[0] != '/' || strpbrk(path, " \r\n"))
		return err_set(e, -EINVAL, "'%s' is not a path of an HTTP request", path);
	if (json && !text)
		return err_set(e, -ENOMEM, "out of memory");
	r = buf_printf(
		out, "%s %s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n", method, path);
	if (r == 0 && text)
		r = buf_printf(out,
			"Content-Type: application/json\r\nContent-Length: %zu\r\n\r\n%s",
			strlen(text), text);
	else if (r == 0)
		r = buf_printf(out, "Content-Length: 0\r\n\r\n");
	return r < 0 ? err_set(e, r, "cannot send the request %s: %s", path, err_str(r)) : 0;
}

/* Sends one request; *ret_status and `body` are the answer's. */
static int request_http(const char *socket_path, const char *method, const char *path,
	const json_t *json, uint64_t timeout_ns, unsigned int *ret_status, struct buf *body,
	struct err *e)
{
	_cleanup_(buf_release) struct buf request = BUF_INIT(ADMIN_CALL_BYTES);
	_cleanup_(http_reply_release) struct http_reply reply;
	int r;

	http_reply_init(&reply, body);
	r = admin_write_request(&request, method, path, json, e);
	if (r < 0)
		return r;
	r = exchange(socket_path, &request, clock_mono_ns() + timeout_ns, &reply);
	if (r < 0)
		return describe(r, socket_path, e);
	*ret_status = reply.status;
	return 0;
}

/* A failed answer: the daemon's own code and line when it gave them. */
static int failed(unsigned int status, const char *path, const json_t *json, struct err *e)
{
	const json_t *error = json ? json_object_get(json, "error") : NULL;
	const char *text = json_string_value(json_object_get(error, "text"));

	if (!text)
		return err_set(e, -EIO,
			"the daemon answered %s with HTTP status %u; use the same version of all "
			"programs",
			path, status);
	return err_set(
		e, err_of_name(json_string_value(json_object_get(error, "code"))), "%s", text);
}

int admin_take_answer(unsigned int status, const char *path, const char *text, size_t len,
	json_t **ret_json, struct err *e)
{
	json_t *json = NULL;
	int r = admin_json_parse(text, len, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY, &json, NULL);

	if (status / 100 != 2) {
		r = failed(status, path, json, e);
		json_decref(json);
		return r;
	}
	if (r == -ENOMEM)
		return err_set(e, r, "out of memory");
	if (r < 0)
		return err_set(e, r,
			"the daemon's answer to %s is not JSON; use the same version of all "
			"programs",
			path);
	if (ret_json)
		*ret_json = json;
	else
		json_decref(json);
	return 0;
}

int admin_call(const char *socket_path, const char *method, const char *path, const json_t *body,
	uint64_t timeout_ns, json_t **ret_json, struct err *e)
{
	_cleanup_(buf_release) struct buf answer = BUF_INIT(ADMIN_ANSWER_BYTES);
	unsigned int status = 0;
	int r = request_http(socket_path,
		method ? method
		: body ? "POST"
		       : "GET",
		path, body, timeout_ns, &status, &answer, e);

	return r < 0 ? r
		     : admin_take_answer(status, path, buf_str(&answer), answer.len, ret_json, e);
}

int admin_call_text(const char *socket_path, const char *path, uint64_t timeout_ns, struct buf *out,
	struct err *e)
{
	unsigned int status = 0;
	size_t before = out->len;
	int r = request_http(socket_path, "GET", path, NULL, timeout_ns, &status, out, e);

	if (r < 0)
		return r;
	if (status / 100 != 2) {
		json_t *json = NULL;

		(void)!admin_json_parse(out->data ? out->data + before : "", out->len - before, 0,
			&json, NULL); /* without JSON there is the status to tell */
		r = failed(status, path, json, e);
		json_decref(json);
		return r;
	}
	return 0;
}
