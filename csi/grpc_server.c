/* Connections of a unix socket. See grpc_server.h. */
#include "csi/grpc_server.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/list.h"
#include "base/log.h"
#include "base/unix_socket.h"

#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define BACKLOG      128
#define READ_BYTES   16384u
#define READS        4u             /* of one connection before others have their turn */
#define ACCEPT_PAUSE (CLOCK_SECOND) /* without descriptors */

struct conn {
	struct list link;
	struct grpc_server *server;
	int fd;
	struct loop_watch *watch;
	struct loop_timer *timer; /* at `due_ns` */
	uint64_t due_ns;          /* UINT64_MAX: no timer */
	struct grpc_conn *grpc;
	const uint8_t *out; /* the conn's own bytes, until it is asked for the next */
	size_t out_len;
};

struct grpc_server {
	struct loop *loop;
	const struct grpc_service *service;
	char path[SOCKET_PATH_MAX];
	int fd;
	struct loop_watch *watch;
	struct loop_timer *pause; /* of accepting */
	struct list conns;        /* that was active last is last */
	unsigned int n_conns;
	bool ending; /* connections are freed one by one: none frees itself */
};

static void conn_free(struct conn *conn)
{
	list_remove(&conn->link);
	conn->server->n_conns--;
	loop_timer_stop(conn->timer);
	loop_watch_stop(conn->watch);
	grpc_conn_free(conn->grpc);
	cleanup_close(&conn->fd);
	free(conn);
}

/* False: to be closed. */
static bool send_output(struct conn *conn)
{
	for (;;) {
		ssize_t n;

		if (conn->out_len == 0 &&
			grpc_conn_output(conn->grpc, &conn->out, &conn->out_len) < 0)
			return false;
		if (conn->out_len == 0)
			return !grpc_conn_done(conn->grpc);
		n = send(conn->fd, conn->out, conn->out_len, MSG_NOSIGNAL);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return errno == EAGAIN;
		conn->out += n;
		conn->out_len -= (size_t)n;
	}
}

static void set_timer(struct conn *conn);
static void follow(struct conn *conn);

static void on_due(void *arg)
{
	struct conn *conn = arg;

	conn->timer = NULL;
	conn->due_ns = UINT64_MAX;
	grpc_conn_expire(conn->grpc, clock_mono_ns());
	follow(conn);
}

/* Without memory for a timer the deadline is not kept. */
static void set_timer(struct conn *conn)
{
	uint64_t due = grpc_conn_due(conn->grpc);
	uint64_t now = clock_mono_ns();

	if (due == conn->due_ns)
		return;
	loop_timer_stop(conn->timer);
	conn->timer = NULL;
	conn->due_ns = UINT64_MAX;
	if (due == UINT64_MAX)
		return;
	conn->timer = loop_timer_start(conn->server->loop, due > now ? due - now : 0, on_due, conn);
	if (conn->timer)
		conn->due_ns = due;
}

/* Sends what there is, and waits for what comes; or frees it. */
static void follow(struct conn *conn)
{
	if (!send_output(conn)) {
		conn_free(conn);
		return;
	}
	/* While a peer does not read it is not read from: what it makes us keep is bounded. */
	loop_watch_change(conn->watch, conn->out_len ? POLLOUT : POLLIN);
	set_timer(conn);
}

static void on_wake(void *arg)
{
	struct conn *conn = arg;

	if (!conn->server->ending)
		follow(conn);
}

/* False: to be closed. */
static bool receive(struct conn *conn)
{
	char data[READ_BYTES];

	for (unsigned int i = 0; i < READS; i++) {
		ssize_t n = recv(conn->fd, data, sizeof(data), 0);

		if (n < 0)
			return errno == EAGAIN || errno == EINTR;
		if (n == 0 || grpc_conn_feed(conn->grpc, data, (size_t)n, clock_mono_ns()) < 0)
			return false;
		if ((size_t)n < sizeof(data))
			break;
	}
	return true;
}

static void on_ready(void *arg, short events)
{
	struct conn *conn = arg;

	list_remove(&conn->link);
	list_push_back(&conn->server->conns, &conn->link);
	if ((events & POLLIN) && !receive(conn)) {
		(void)send_output(conn); /* why it ends */
		conn_free(conn);
		return;
	}
	follow(conn);
}

/* Room for one more: the one that has been without a call for longest goes. False: all have calls. */
static bool make_room(struct grpc_server *server)
{
	if (server->n_conns < GRPC_CONNS_MAX)
		return true;
	list_for_each (node, &server->conns) {
		struct conn *conn = list_entry(node, struct conn, link);

		if (grpc_conn_calls(conn->grpc) > 0)
			continue;
		conn_free(conn);
		return true;
	}
	return false;
}

static void add_conn(struct grpc_server *server, int fd)
{
	struct conn *conn = make_room(server) ? calloc(1, sizeof(*conn)) : NULL;

	if (!conn) {
		LOG_LIMITED(LOG_WARN, "connection refused", "socket=%s connections=%u",
			server->path, server->n_conns);
		cleanup_close(&fd);
		return;
	}
	conn->server = server;
	conn->fd = fd;
	conn->due_ns = UINT64_MAX;
	list_push_back(&server->conns, &conn->link);
	server->n_conns++;
	if (grpc_conn_new(server->service, on_wake, conn, &conn->grpc) == 0)
		conn->watch = loop_watch_start(server->loop, fd, POLLIN, on_ready, conn);
	if (!conn->watch) {
		conn_free(conn);
		return;
	}
	follow(conn); /* our settings go first */
}

static void on_pause(void *arg)
{
	struct grpc_server *server = arg;

	server->pause = NULL;
	loop_watch_change(server->watch, POLLIN);
}

static void on_connect(void *arg, short events)
{
	struct grpc_server *server = arg;
	int fd = accept4(server->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

	(void)events;
	if (fd >= 0) {
		add_conn(server, fd);
		return;
	}
	if (errno != EMFILE && errno != ENFILE && errno != ENOMEM && errno != ENOBUFS)
		return; /* it is gone already */
	LOG_LIMITED(LOG_WARN, "connection not accepted", "socket=%s cause=%s", server->path,
		err_name(err_errno()));
	server->pause = loop_timer_start(server->loop, ACCEPT_PAUSE, on_pause, server);
	if (server->pause)
		loop_watch_change(server->watch, 0);
}

int grpc_server_new(struct loop *loop, const char *path, const struct grpc_service *service,
	struct grpc_server **ret_server, struct err *e)
{
	struct grpc_server *server = calloc(1, sizeof(*server));
	int r;

	if (!server)
		return err_set(e, -ENOMEM, "out of memory");
	server->loop = loop;
	server->service = service;
	server->fd = -1;
	list_init(&server->conns);
	(void)snprintf(server->path, sizeof(server->path), "%s", path); /* or refused below */
	r = unix_socket_listen(path, BACKLOG, &server->fd, e);
	if (r == 0) {
		server->watch = loop_watch_start(loop, server->fd, POLLIN, on_connect, server);
		if (!server->watch)
			r = err_set(e, -ENOMEM, "out of memory");
	}
	if (r < 0) {
		grpc_server_free(server);
		return r;
	}
	*ret_server = server;
	return 0;
}

void grpc_server_free(struct grpc_server *server)
{
	if (!server)
		return;
	server->ending = true;
	while (!list_empty(&server->conns)) {
		struct conn *conn = list_entry(server->conns.next, struct conn, link);

		grpc_conn_shut(conn->grpc);
		(void)send_output(conn); /* what fits */
		conn_free(conn);
	}
	loop_timer_stop(server->pause);
	loop_watch_stop(server->watch);
	if (server->fd >= 0)
		(void)unlink(server->path); /* or another one's is there */
	cleanup_close(&server->fd);
	free(server);
}
