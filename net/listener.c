/*
 * Accepts connections of a listening stream socket. See stream_internal.h.
 *
 * Without a free descriptor accepting rests for a moment: the socket stays readable, and the loop
 * must not spin on it.
 */
#include "net/stream_internal.h"
#include "base/clock.h"
#include "base/log.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>
#include <uv.h>

#define LISTENER_MAGIC   0x4c53544eu
#define ACCEPTS_PER_TURN 64
#define REST_MS          100

struct listener {
	struct transport_listener listener;
	uint32_t magic;
	struct loop *loop;
	int fd;
	bool (*admit)(int fd);
	char *unlink_path;
	uv_poll_t poll;
	uv_timer_t rest;
	unsigned int handles;
	int started; /* result of start_on_loop() */
};

static void on_readable(uv_poll_t *poll, int status, int events);

static void on_rested(uv_timer_t *timer)
{
	struct listener *l = timer->data;

	(void)uv_poll_start(&l->poll, UV_READABLE, on_readable); /* worked before */
}

static void rest(struct listener *l, int error)
{
	LOG_LIMITED(
		LOG_DEBUG, "accept", "address=%s error=%s", l->listener.address, err_name(error));
	(void)uv_poll_stop(&l->poll);                          /* never fails */
	(void)uv_timer_start(&l->rest, on_rested, REST_MS, 0); /* fails only without a callback */
}

static void accepted(struct listener *l, int fd)
{
	struct transport *transport;

	if (l->admit && !l->admit(fd)) {
		LOG_LIMITED(LOG_DEBUG, "peer refused", "address=%s", l->listener.address);
		(void)close(fd); /* never used */
		return;
	}
	if (stream_new(l->listener.ops, l->loop, fd, false, &transport) == 0)
		l->listener.on_accept(l->listener.arg, transport);
}

static void on_readable(uv_poll_t *poll, int status, int events)
{
	struct listener *l = poll->data;

	(void)events; /* only one is watched */
	CHECK_MAGIC(l, LISTENER_MAGIC);
	for (int i = 0; i < ACCEPTS_PER_TURN; i++) {
		int fd = accept4(l->fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);

		if (fd >= 0) {
			accepted(l, fd);
		} else if (status < 0 || errno == EMFILE || errno == ENFILE || errno == ENOBUFS ||
			   errno == ENOMEM) {
			rest(l, err_errno());
			return;
		} else if (errno != EINTR && errno != ECONNABORTED) {
			return; /* EAGAIN: all taken; others concern the one connection */
		}
	}
}

static void listener_free(struct listener *l)
{
	if (l->fd >= 0)
		(void)close(l->fd); /* not written to */
	free(l->unlink_path);
	l->magic = 0;
	free(l);
}

static void on_handle_closed(uv_handle_t *handle)
{
	struct listener *l = handle->data;
	void (*on_closed)(void *arg) = l->listener.on_closed;
	void *arg = l->listener.arg;

	if (--l->handles > 0)
		return;
	listener_free(l);
	on_closed(arg);
}

static void start_on_loop(void *arg)
{
	struct listener *l = arg;

	l->started = uv_poll_init(loop_uv(l->loop), &l->poll, l->fd);
	if (l->started != 0)
		return;
	ensure(uv_timer_init(loop_uv(l->loop), &l->rest) == 0);
	l->poll.data = l;
	l->rest.data = l;
	l->handles = 2;
	(void)uv_poll_start(&l->poll, UV_READABLE, on_readable); /* fails only for bad events */
}

int listener_new(const struct transport_ops *ops, struct loop *loop, int fd,
	const struct transport_listener *user, bool (*admit)(int fd), const char *address,
	const char *unlink_path, struct transport_listener **ret_listener)
{
	struct listener *l = calloc(1, sizeof(*l));

	if (!l) {
		(void)close(fd); /* never used */
		return -ENOMEM;
	}
	l->listener = *user;
	l->listener.ops = ops;
	l->magic = LISTENER_MAGIC;
	l->loop = loop;
	l->fd = fd;
	l->admit = admit;
	(void)snprintf(l->listener.address, sizeof(l->listener.address), "%s",
		address); /* bounded by check() */
	l->unlink_path = unlink_path ? strdup(unlink_path) : NULL;
	if (unlink_path && !l->unlink_path) {
		listener_free(l);
		return -ENOMEM;
	}
	*ret_listener = &l->listener;
	loop_call(loop, start_on_loop, l);
	if (l->started != 0) {
		if (unlink_path)
			(void)unlink(unlink_path); /* as in listener_unlisten() */
		listener_free(l);
		return -ENOMEM;
	}
	return 0;
}

void listener_unlisten(struct transport_listener *listener)
{
	struct listener *l = container_of(listener, struct listener, listener);

	CHECK_MAGIC(l, LISTENER_MAGIC);
	/* While it is still listened on, so that it cannot be a successor's. A leftover is replaced
	 * at the next start. */
	if (l->unlink_path)
		(void)unlink(l->unlink_path);
	uv_close((uv_handle_t *)&l->poll, on_handle_closed);
	uv_close((uv_handle_t *)&l->rest, on_handle_closed);
}
