/*
 * The daemons' HTTP server, over libmicrohttpd on a unix socket. See admin.h.
 *
 * One thread of the library waits on a socket and its connections. A request that has arrived whole is a job of a pool,
 * since a handler may block for a short while; its connection is suspended meanwhile. Everything is bounded: connections,
 * handlers, size of a body, time a connection may be silent. The library calls on_path() with the path as it was sent, then
 * on_request() first with nothing, then with each part of the body, then with none left.
 */
#include "admin/server_internal.h"
#include "admin/listen.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/log.h"

#include <stdlib.h>
#include <string.h>

#define CONNECTIONS  64u
#define PER_ADDRESS  16u /* of those over TCP, so that one host cannot use up all */
#define IDLE_SECONDS 30u
#define CONN_BYTES   16384 /* per connection: request line and headers */
#define BACKLOG      64
#define ANSWER_GRACE (2 * CLOCK_SECOND) /* at the end: for answers that are on their way */

static void upload_free(struct admin_upload *upload)
{
	if (upload) {
		buf_release(&upload->body);
		free(upload->path);
		free(upload);
	}
}

/* First of all, with the path before the library decodes it; on_completed() follows. */
static void *on_path(void *arg, const char *uri, struct MHD_Connection *connection)
{
	struct admin_server *server = arg;
	struct admin_upload *upload = calloc(1, sizeof(*upload));

	(void)connection;
	CHECK_MAGIC(server, ADMIN_SERVER_MAGIC);
	if (upload)
		upload->path = strdup(uri);
	if (!upload || !upload->path) {
		upload_free(upload);
		return NULL; /* on_request() ends the connection */
	}
	upload->query = strchr(upload->path, '?');
	if (upload->query)
		*upload->query++ = '\0';
	upload->body.max = ADMIN_REQUEST_BYTES;
	atomic_fetch_add(&server->under_way, 1);
	return upload;
}

/*
 * The headers are there. Over TCP nothing is changed, so a request needs no body, and none is buffered: what does not
 * only read is answered (refused) before its body is sent, a body of the others is discarded.
 */
static enum MHD_Result begin_request(struct admin_server *server, struct MHD_Connection *connection,
	const char *method, struct admin_upload *upload)
{
	struct admin_caller caller;

	upload->begun = true;
	admin_find_caller(connection, &caller);
	if (caller.peer.kind != PEER_UNKNOWN)
		return MHD_YES;
	upload->body.max = 0;
	return admin_is_reading(method) ? MHD_YES
					: admin_dispatch(server, connection, method, upload);
}

/* On a thread of the pool. The request may be gone once its connection is resumed. */
static void run_handler(struct pool_job *job)
{
	struct admin_upload *upload = container_of(job, struct admin_upload, job);
	struct MHD_Connection *connection = upload->connection;

	if (admin_dispatch(upload->server, connection, upload->method, upload) != MHD_YES)
		LOG_LIMITED(LOG_DEBUG, "admin", "no memory for an answer");
	MHD_resume_connection(connection); /* without an answer on_request() is called again */
}

/*
 * The request has arrived whole. The library calls again after its connection was resumed: for a request that was not
 * answered, or that no thread of the pool takes; it is then handled on the library's.
 */
static enum MHD_Result start_handler(struct admin_server *server, struct MHD_Connection *connection,
	const char *method, struct admin_upload *upload)
{
	bool closing;

	if (upload->refused)
		return admin_dispatch(server, connection, method, upload);
	if (upload->handled)
		return MHD_NO;
	upload->handled = true;
	upload->server = server;
	upload->connection = connection;
	upload->method = method;
	upload->job.run = run_handler;
	pthread_mutex_lock(&server->lock);
	closing = server->closing;
	if (!closing) {
		MHD_suspend_connection(connection);
		upload->refused = pool_submit(server->pool, &upload->job) < 0;
		if (upload->refused)
			MHD_resume_connection(connection);
	}
	pthread_mutex_unlock(&server->lock);
	return closing ? MHD_NO : MHD_YES;
}

static enum MHD_Result on_request(void *arg, struct MHD_Connection *connection, const char *path,
	const char *method, const char *version, const char *data, size_t *len, void **state)
{
	struct admin_server *server = arg;
	struct admin_upload *upload = *state;

	(void)version; /* 1.0 or 1.1 */
	(void)path;    /* decoded: no longer known what was a '/' */
	CHECK_MAGIC(server, ADMIN_SERVER_MAGIC);
	if (!upload)
		return MHD_NO;
	if (!upload->begun)
		return begin_request(server, connection, method, upload);
	if (*len == 0)
		return start_handler(server, connection, method, upload);
	/* What is too large is read to its end and thrown away, so that the peer hears the
	 * answer. */
	if (!upload->too_large && buf_append(&upload->body, data, *len) < 0) {
		upload->too_large = true;
		buf_release(&upload->body);
	}
	*len = 0;
	return MHD_YES;
}

static void on_completed(void *arg, struct MHD_Connection *connection, void **state,
	enum MHD_RequestTerminationCode why)
{
	struct admin_server *server = arg;
	struct admin_upload *upload = *state;

	(void)connection;
	(void)why; /* finished, or the peer went */
	if (!upload)
		return;
	upload_free(upload);
	*state = NULL;
	atomic_fetch_sub(&server->under_way, 1);
}

static void on_log(void *arg, const char *fmt, va_list ap) __printf(2, 0);

static void on_log(void *arg, const char *fmt, va_list ap)
{
	char text[256];

	(void)arg;
	(void)vsnprintf(text, sizeof(text), fmt, ap); /* cut */
	LOG_LIMITED(LOG_DEBUG, "admin", "%s", text);
}

/* ---- life ------------------------------------------------------------------------------------ */

static bool has_act(const struct admin_route *routes, const char *act)
{
	while (routes->method && !(routes->act && strcmp(routes->act, act) == 0))
		routes++;
	return routes->method;
}

void admin_server_allow_use(struct admin_server *server, const char *const *acts)
{
	for (const char *const *act = acts; *act; act++)
		ensure(has_act(server->routes, *act));
	CHECK_MAGIC(server, ADMIN_SERVER_MAGIC);
	atomic_store(&server->use_acts, acts);
}

void admin_server_set_pages(struct admin_server *server, const struct admin_page *pages)
{
	CHECK_MAGIC(server, ADMIN_SERVER_MAGIC);
	atomic_store(&server->pages, pages);
}

/* `more` ends with MHD_OPTION_END. NULL: it cannot start, and the socket is still the caller's. */
static struct MHD_Daemon *start_daemon(
	struct admin_server *server, int fd, unsigned int flags, struct MHD_OptionItem *more)
{
	return MHD_start_daemon(MHD_USE_EPOLL_INTERNAL_THREAD | MHD_ALLOW_SUSPEND_RESUME |
					MHD_USE_ERROR_LOG | flags,
		0, NULL, NULL, on_request, server, MHD_OPTION_EXTERNAL_LOGGER, on_log, NULL,
		MHD_OPTION_ARRAY, more, MHD_OPTION_LISTEN_SOCKET, fd, MHD_OPTION_CONNECTION_LIMIT,
		CONNECTIONS, MHD_OPTION_CONNECTION_TIMEOUT, IDLE_SECONDS,
		MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)CONN_BYTES, MHD_OPTION_NOTIFY_COMPLETED,
		on_completed, server, MHD_OPTION_URI_LOG_CALLBACK, on_path, server, MHD_OPTION_END);
}

static struct MHD_OptionItem no_more[] = { { MHD_OPTION_END, 0, NULL } };

int admin_server_new(const char *socket_path, const struct admin_route *routes, void *arg,
	struct admin_server **ret_server, struct err *e)
{
	struct admin_server *server = calloc(1, sizeof(*server));
	int fd = -1;
	int r;

	if (!server)
		return err_set(e, -ENOMEM, "no memory to listen on '%s': free some", socket_path);
	server->magic = ADMIN_SERVER_MAGIC;
	server->routes = routes;
	server->arg = arg;
	r = unix_socket_listen(socket_path, BACKLOG, &fd, e);
	if (r < 0) {
		free(server);
		return r;
	}
	memcpy(server->path, socket_path, strlen(socket_path) + 1); /* fits: it is listened on */
	pthread_mutex_init(&server->lock, NULL);
	server->pool = pool_new("admin", ADMIN_HANDLERS, 2 * CONNECTIONS);
	if (server->pool)
		server->daemon = start_daemon(server, fd, 0, no_more);
	if (!server->daemon) {
		(void)close(fd);           /* nothing was served on it */
		(void)unlink(socket_path); /* a leftover is replaced at the next start */
		pool_free(server->pool);
		pthread_mutex_destroy(&server->lock);
		free(server);
		return err_set(e, -EAGAIN,
			"cannot serve %s: out of threads or descriptors; raise ulimit -u and "
			"ulimit -n",
			socket_path);
	}
	*ret_server = server;
	return 0;
}

/* As the other connections between hosts. The library wants no `const`. */
static char tls_priorities[] = "NORMAL:-VERS-ALL:+VERS-TLS1.3";

/* Sets server->tcp; NULL: the library cannot start. */
static int start_tls(struct admin_server *server, int fd, struct err *e)
{
	char *certificate = NULL;
	char *key = NULL;
	int r;

	if (MHD_is_feature_supported(MHD_FEATURE_TLS) != MHD_YES)
		return err_set(e, -EOPNOTSUPP,
			"cannot serve admin-listen: libmicrohttpd has no TLS; listen on "
			"127.0.0.1:PORT");
	r = net_keys_pem(&certificate, &key);
	if (r < 0)
		return err_set(e, r,
			"cannot create the certificate for admin-listen: %s; check --cluster-key",
			err_str(r));
	server->tcp = start_daemon(server, fd, MHD_USE_TLS,
		(struct MHD_OptionItem[]){ { MHD_OPTION_HTTPS_MEM_CERT, 0, certificate },
			{ MHD_OPTION_HTTPS_MEM_KEY, 0, key },
			{ MHD_OPTION_HTTPS_PRIORITIES, 0, tls_priorities },
			{ MHD_OPTION_PER_IP_CONNECTION_LIMIT, PER_ADDRESS, NULL },
			{ MHD_OPTION_END, 0, NULL } });
	explicit_bzero(key, strlen(key)); /* the library has a copy in memory of its own */
	free(key);
	free(certificate);
	return 0;
}

int admin_server_listen(struct admin_server *server, const struct admin_listen *where,
	uint16_t *ret_port, struct err *e)
{
	struct admin_listener listener;
	int r;

	CHECK_MAGIC(server, ADMIN_SERVER_MAGIC);
	ensure(!server->tcp);
	if (!where->address)
		return 0;
	r = admin_listen_open(where, &listener, e);
	if (r < 0)
		return r;
	server->tcp_for = listener.loopback    ? ADMIN_LOOPBACK
			  : net_keys_cluster() ? ADMIN_TOKENS
					       : ADMIN_NO_KEYS;
	server->anonymous_metrics = where->anonymous_metrics;
	if (server->tcp_for == ADMIN_TOKENS)
		r = start_tls(server, listener.fd, e);
	else
		server->tcp = start_daemon(server, listener.fd, 0,
			(struct MHD_OptionItem[]){
				{ MHD_OPTION_PER_IP_CONNECTION_LIMIT,
					listener.loopback ? CONNECTIONS : PER_ADDRESS, NULL },
				{ MHD_OPTION_END, 0, NULL } });
	if (r == 0 && !server->tcp)
		r = err_set(e, -EAGAIN,
			"cannot serve %s: out of threads or descriptors; raise ulimit -u and "
			"ulimit -n",
			where->address);
	if (r < 0) {
		(void)close(listener.fd); /* nothing was served on it */
		return r;
	}
	if (ret_port)
		*ret_port = listener.port;
	return 0;
}

/* Stopping cuts connections whose answer has not left: the answer to "end" would be lost. */
static void await_answers(struct admin_server *server)
{
	uint64_t deadline = clock_mono_ns() + ANSWER_GRACE;

	while (atomic_load(&server->under_way) > 0 && clock_mono_ns() < deadline)
		clock_sleep_ns(CLOCK_MS);
}

void admin_server_free(struct admin_server *server)
{
	if (!server)
		return;
	CHECK_MAGIC(server, ADMIN_SERVER_MAGIC);
	(void)unlink(server->path); /* a leftover is replaced at the next start */
	await_answers(server);
	pthread_mutex_lock(&server->lock);
	server->closing = true;
	pthread_mutex_unlock(&server->lock);
	pool_free(
		server->pool); /* waits for handlers: no connection is suspended when the library stops */
	if (server->tcp)
		MHD_stop_daemon(server->tcp);
	MHD_stop_daemon(server->daemon); /* closes the socket */
	pthread_mutex_destroy(&server->lock);
	server->magic = 0;
	free(server);
}
