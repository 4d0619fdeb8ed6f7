#include "tests/unit/ufs/server.h"
#include "base/cleanup.h"

#include <netinet/tcp.h>

void server_put(int fd, const char *data, size_t len)
{
	while (len) {
		ssize_t n = send(fd, data, len, MSG_NOSIGNAL);

		if (n <= 0)
			return; /* the client has gone: its right */
		data += n;
		len -= (size_t)n;
	}
}

void server_puts(int fd, const char *text)
{
	server_put(fd, text, strlen(text));
}

/* Bytes of a request whose head ends in `text`; 0: the head is incomplete. */
static size_t server_request_size(const char *text)
{
	const char *end = strstr(text, "\r\n\r\n");
	const char *length = strcasestr(text, "\r\nContent-Length:");
	size_t head;

	if (!end)
		return 0;
	head = (size_t)(end - text) + 4;
	return length && length < end ? head + strtoul(length + 17, NULL, 10) : head;
}

static void server_serve(struct server *server, int fd)
{
	_cleanup_free_ char *head = malloc(SERVER_HEAD);
	size_t len = 0;

	ensure(head);
	for (;;) {
		ssize_t n = recv(fd, head + len, SERVER_HEAD - 1 - len, 0);
		size_t size;

		if (n <= 0)
			return;
		len += (size_t)n;
		head[len] = '\0';
		size = server_request_size(head);
		if (size == 0 || len < size)
			continue;
		len = 0;
		if (!server->answer(server, fd, head))
			return;
	}
}

static void *server_conn(void *arg)
{
	struct server_conn *conn = arg;
	struct server *server = conn->server;

	if (!server->accepted || server->accepted(server, conn->fd))
		server_serve(server, conn->fd);
	(void)shutdown(conn->fd, SHUT_RDWR);
	pthread_mutex_lock(&server->lock);
	(void)close(conn->fd);
	conn->fd = -1;
	pthread_mutex_unlock(&server->lock);
	return NULL;
}

static void *server_accept(void *arg)
{
	struct server *server = arg;

	for (;;) {
		int fd = accept(server->fd, NULL, NULL);
		struct server_conn *conn;

		if (fd < 0)
			return NULL;
		pthread_mutex_lock(&server->lock);
		ensure(server->n_conns < SERVER_CONNS);
		conn = &server->conns[server->n_conns++];
		*conn = (struct server_conn){ .server = server, .fd = fd };
		ensure(pthread_create(&conn->thread, NULL, server_conn, conn) == 0);
		pthread_mutex_unlock(&server->lock);
	}
}

void server_start(struct server *server,
	bool (*answer)(struct server *server, int fd, const char *head), void *arg)
{
	struct sockaddr_in address = { .sin_family = AF_INET,
		.sin_addr = { htonl(INADDR_LOOPBACK) } };
	socklen_t len = sizeof(address);

	memset(server, 0, sizeof(*server));
	server->answer = answer;
	server->arg = arg;
	pthread_mutex_init(&server->lock, NULL);
	server->fd = socket(AF_INET, SOCK_STREAM, 0);
	/* The connections have it from here. Without it a body waits up to 40 ms for the head's
	 * acknowledgement, in which no thread runs: the tests' clock would go on. */
	ensure(setsockopt(server->fd, IPPROTO_TCP, TCP_NODELAY, &(int){ 1 }, sizeof(int)) == 0);
	ensure(bind(server->fd, (struct sockaddr *)&address, sizeof(address)) == 0);
	ensure(listen(server->fd, 256) == 0);
	ensure(getsockname(server->fd, (struct sockaddr *)&address, &len) == 0);
	server->port = ntohs(address.sin_port);
	ensure(pthread_create(&server->thread, NULL, server_accept, server) == 0);
}

void server_stop(struct server *server)
{
	(void)shutdown(server->fd, SHUT_RDWR);
	pthread_join(server->thread, NULL);
	(void)close(server->fd);
	pthread_mutex_lock(&server->lock);
	for (uint32_t i = 0; i < server->n_conns; i++)
		if (server->conns[i].fd >= 0)
			(void)shutdown(server->conns[i].fd, SHUT_RDWR);
	pthread_mutex_unlock(&server->lock);
	for (uint32_t i = 0; i < server->n_conns; i++)
		pthread_join(server->conns[i].thread, NULL);
	pthread_mutex_destroy(&server->lock);
}

void server_error(int fd, int status, const char *code, const char *more)
{
	char body[512], head[600];
	int n = snprintf(body, sizeof(body), "<Error><Code>%s</Code>%s</Error>", code, more);
	int h = snprintf(head, sizeof(head), "HTTP/1.1 %d x\r\nContent-Length: %d\r\n\r\n%s",
		status, n, body);

	server_put(fd, head, (size_t)h);
}
