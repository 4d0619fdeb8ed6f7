/*
 * TCP: "tcp:host:port", "tcp:[::1]:port"; "0.0.0.0" and "[::]" to listen on. Every connection is TLS (tls_internal.h):
 * without keys there is none, over loopback neither, where any user of the host could come. Hosts are numbers or "localhost", so that nothing waits for DNS.
 */
#include "net/keys_internal.h"
#include "net/stream_internal.h"
#include "base/cleanup.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/socket.h>

#define BACKLOG 512

struct tcp_address {
	struct sockaddr_storage sa;
	socklen_t len;
};

static int tcp_parse(
	const char *where, bool listens, struct tcp_address *ret_address, struct err *e)
{
	const struct addrinfo hints = { .ai_flags = AI_NUMERICHOST | AI_NUMERICSERV | AI_PASSIVE,
		.ai_socktype = SOCK_STREAM };
	const char *colon = strrchr(where, ':');
	struct addrinfo *found = NULL;
	struct tcp_address address = { 0 };
	char host[64];
	size_t n = colon ? (size_t)(colon - where) : 0;

	if (!colon || n == 0 || n >= sizeof(host) || colon[1] == '\0')
		return err_set(e, -EINVAL, "address 'tcp:%s' is none: write tcp:HOST:PORT", where);
	memcpy(host, where, n);
	host[n] = '\0';
	if (host[0] == '[' && host[n - 1] == ']') {
		memmove(host, host + 1, n - 2);
		host[n - 2] = '\0';
	}
	if (getaddrinfo(strcmp(host, "localhost") == 0 ? "127.0.0.1" : host, colon + 1, &hints,
		    &found) != 0 ||
		!found)
		return err_set(e, -EINVAL,
			"address 'tcp:%s' needs a numeric host and port, such as 127.0.0.1:7000",
			where);
	memcpy(&address.sa, found->ai_addr, found->ai_addrlen);
	address.len = found->ai_addrlen;
	freeaddrinfo(found);
	if (listens && net_keys_any() && !net_keys_cluster())
		return err_set(e, -ENOKEY,
			"address 'tcp:%s' cannot be listened on with a token: name the cluster "
			"key's file with "
			"--cluster-key",
			where);
	if (!net_keys_any() && !listens)
		return err_set(e, -ENOKEY,
			"address 'tcp:%s' needs a key: name the file of the cluster key or of a "
			"token (cluster-key, token; GRANARY_CLUSTER_KEY, GRANARY_TOKEN), or use "
			"the "
			"daemon's unix socket on its host",
			where);
	if (!net_keys_any())
		return err_set(e, -ENOKEY,
			"address 'tcp:%s' cannot be listened on without a cluster key: create one "
			"with `cachectl key create` and name its file with --cluster-key, or "
			"listen on unix:/PATH",
			where);
	*ret_address = address;
	return 0;
}

static int tcp_check(const char *where, struct err *e)
{
	struct tcp_address address = { 0 };

	return tcp_parse(where, false, &address, e);
}

/* Without keys each connection is refused. */
static int tcp_access(const char *where)
{
	return tcp_check(where, NULL);
}

static int tcp_socket(const struct tcp_address *address)
{
	const int one = 1;
	int fd = socket(address->sa.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

	if (fd < 0)
		return err_errno();
	/* Writes are already gathered per turn of the loop. Accepted sockets inherit it. Slower
	 * without, not wrong. */
	(void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	return fd;
}

static void tcp_name(int fd, const char *where, char *out, size_t size)
{
	struct sockaddr_storage sa = { 0 };
	socklen_t len = sizeof(sa);
	char host[64];
	char port[16];

	(void)snprintf(out, size, "tcp:%s", where); /* cut: for people */
	if (getsockname(fd, (struct sockaddr *)&sa, &len) == 0 &&
		getnameinfo((struct sockaddr *)&sa, len, host, sizeof(host), port, sizeof(port),
			NI_NUMERICHOST | NI_NUMERICSERV) == 0)
		(void)snprintf(out, size, sa.ss_family == AF_INET6 ? "tcp:[%s]:%s" : "tcp:%s:%s",
			host, port);
}

static int tcp_listen(struct loop *loop, const char *where, const struct transport_listener *user,
	struct transport_listener **ret_listener, struct err *e)
{
	char text[sizeof(user->address)];
	struct tcp_address address = { 0 };
	_cleanup_close_ int fd = -1;
	const int one = 1;
	int r = tcp_parse(where, true, &address, e);

	if (r < 0)
		return r;
	fd = tcp_socket(&address);
	if (fd < 0)
		return err_set(e, fd, "cannot make a socket: %s", err_str(fd));
	(void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one,
		sizeof(one)); /* bind() tells when it is needed */
	if (bind(fd, (struct sockaddr *)&address.sa, address.len) != 0 ||
		listen(fd, BACKLOG) != 0) {
		r = err_errno();
		return err_set(e, r, "cannot listen on 'tcp:%s': %s: %s", where, err_str(r),
			r == -EADDRNOTAVAIL ? "give an address that this host has"
					    : "choose another port");
	}
	tcp_name(fd, where, text, sizeof(text));
	r = listener_new(&transport_tcp, loop, TAKE_FD(fd), user, NULL, text, NULL, ret_listener);
	return r < 0 ? err_set(e, r, "cannot listen on 'tcp:%s': %s: choose another port", where,
			       err_str(r))
		     : 0;
}

static int tcp_connect(struct loop *loop, const char *where, const struct transport_events *events,
	void *arg, struct transport **ret_transport, struct err *e)
{
	struct tcp_address address = { 0 };
	_cleanup_close_ int fd = -1;
	int r = tcp_parse(where, false, &address, e);

	if (r < 0)
		return r;
	fd = tcp_socket(&address);
	if (fd < 0)
		return err_set(e, fd, "cannot make a socket: %s", err_str(fd));
	if (connect(fd, (struct sockaddr *)&address.sa, address.len) != 0 && errno != EINPROGRESS)
		return err_set(e, err_errno(),
			"nobody answers at 'tcp:%s': %s: is its daemon running?", where,
			err_str(-errno));
	r = stream_new(&transport_tcp, loop, TAKE_FD(fd), true, ret_transport);
	if (r < 0)
		return err_set(e, r, "cannot connect to 'tcp:%s': %s: see the log of its daemon",
			where, err_str(r));
	stream_start(*ret_transport, events, arg);
	return 0;
}

const struct transport_ops transport_tcp = {
	.scheme = "tcp",
	.passes_fd = false,
	.check = tcp_check,
	.access = tcp_access,
	.listen = tcp_listen,
	.unlisten = listener_unlisten,
	.connect = tcp_connect,
	.start = stream_start,
	.send = stream_send,
	.takes_pipe = stream_takes_pipe,
	.recall = stream_recall,
	.pause = stream_pause,
	.look = stream_look,
	.patience = stream_patience,
	.close = stream_close,
};
