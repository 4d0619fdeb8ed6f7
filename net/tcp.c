/*
 * TCP: "tcp:host:port", "tcp:[::1]:port"; "0.0.0.0" and "[::]" to listen on. Every connection is TLS (tls_internal.h):
 * without keys there is none, over loopback neither, where any user of the host could come. A host is a number, "localhost" or a name
 * (names.h).
 */
#include "net/keys_internal.h"
#include "net/names.h"
#include "net/stream_internal.h"
#include "base/address.h"
#include "base/cleanup.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/socket.h>

#define BACKLOG 512

static int tcp_split(const char *where, struct address_parts *ret_parts, struct err *e)
{
	int r = address_split(where, ret_parts);

	if (r == -ENXIO)
		return err_set(e, -EINVAL,
			"invalid host in 'tcp:%s': use a name or an address, such as "
			"tcp:127.0.0.1:7000",
			where);
	if (r < 0)
		return err_set(e, r, "invalid address 'tcp:%s': use tcp:HOST:PORT", where);
	if (strcmp(ret_parts->host, "localhost") == 0)
		(void)snprintf(ret_parts->host, sizeof(ret_parts->host), "127.0.0.1"); /* fits */
	return 0;
}

static int check_keys(const char *where, bool listens, struct err *e)
{
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
	return 0;
}

/* Without DNS: the address of a number, or of a name the one that was found last. */
static int tcp_address_now(const char *where, const struct address_parts *address,
	union host_address *ret_address, struct err *e)
{
	const struct addrinfo hints = { .ai_flags = AI_NUMERICHOST | AI_NUMERICSERV,
		.ai_socktype = SOCK_STREAM };
	bool named = address->kind == ADDRESS_NAME;
	struct addrinfo *found = NULL;
	int r = named ? names_get(address->host, ret_address, e) : 0;

	if (r < 0)
		return r;
	if (named) {
		/* At the same place in both. */
		ret_address->v4.sin_port = htons(address->number);
		return 0;
	}
	if (getaddrinfo(address->host, address->port, &hints, &found) != 0 || !found)
		return err_set(e, -EINVAL, "invalid address 'tcp:%s': use tcp:HOST:PORT", where);
	memcpy(ret_address, found->ai_addr, min(found->ai_addrlen, sizeof(*ret_address)));
	freeaddrinfo(found);
	return 0;
}

/* A name is looked up already, so that the first connection seldom waits for it. */
static int tcp_check(const char *where, struct err *e)
{
	struct address_parts address = { .port = "" };
	int r = tcp_split(where, &address, e);

	if (r == 0)
		r = check_keys(where, false, e);
	if (r == 0 && address.kind == ADDRESS_NAME)
		names_want(address.host);
	return r;
}

/* Without keys each connection is refused. */
static int tcp_access(const char *where)
{
	return tcp_check(where, NULL);
}

static socklen_t tcp_len(const union host_address *address)
{
	return address->any.sa_family == AF_INET6 ? sizeof(address->v6) : sizeof(address->v4);
}

static int tcp_socket(const union host_address *address)
{
	const int one = 1;
	int fd = socket(address->any.sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

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

/* Resolves the name of a listener. It may wait for DNS: nothing depends on the listener yet. */
static int tcp_own_address(const char *where, const struct address_parts *address,
	union host_address *ret_address, struct err *e)
{
	const struct addrinfo hints = { .ai_flags = AI_NUMERICSERV | AI_PASSIVE,
		.ai_socktype = SOCK_STREAM };
	const struct addrinfo *usable;
	struct addrinfo *found = NULL;
	int failure;

	if (address->kind != ADDRESS_NAME)
		return tcp_address_now(where, address, ret_address, e);
	failure = getaddrinfo(address->host, address->port, &hints, &found);
	if (failure || !found)
		return err_set(e, -EHOSTUNREACH,
			"cannot listen on 'tcp:%s': %s; use an address of this host", where,
			gai_strerror(failure));
	/* Debian's /etc/hosts maps a host's own name to 127.0.1.1, which would be advertised to other hosts. */
	for (usable = found; usable && address_is_loopback(usable->ai_addr);)
		usable = usable->ai_next;
	if (usable)
		memcpy(ret_address, usable->ai_addr, min(usable->ai_addrlen, sizeof(*ret_address)));
	freeaddrinfo(found);
	return usable ? 0
		      : err_set(e, -EADDRNOTAVAIL,
				"cannot listen on 'tcp:%s': %s resolves to the loopback address, "
				"which other hosts cannot reach; use an address, or correct "
				"/etc/hosts",
				where, address->host);
}

static int tcp_listen(struct loop *loop, const char *where, const struct transport_listener *user,
	struct transport_listener **ret_listener, struct err *e)
{
	char text[sizeof(user->address)];
	struct address_parts parts = { .port = "" };
	union host_address address = { 0 };
	_cleanup_close_ int fd = -1;
	const int one = 1;
	int r = tcp_split(where, &parts, e);

	if (r == 0)
		r = check_keys(where, true, e);
	if (r == 0)
		r = tcp_own_address(where, &parts, &address, e);
	if (r < 0)
		return r;
	fd = tcp_socket(&address);
	if (fd < 0)
		return err_set(e, fd, "cannot create a socket: %s", err_str(fd));
	(void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one,
		sizeof(one)); /* bind() tells when it is needed */
	if (bind(fd, &address.any, tcp_len(&address)) != 0 || listen(fd, BACKLOG) != 0) {
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
	struct address_parts parts = { .port = "" };
	union host_address address = { 0 };
	_cleanup_close_ int fd = -1;
	int r = tcp_split(where, &parts, e);

	if (r == 0)
		r = check_keys(where, false, e);
	if (r == 0)
		r = tcp_address_now(where, &parts, &address, e);
	if (r < 0)
		return r;
	fd = tcp_socket(&address);
	if (fd < 0)
		return err_set(e, fd, "cannot create a socket: %s", err_str(fd));
	if (connect(fd, &address.any, tcp_len(&address)) != 0 && errno != EINPROGRESS)
		return err_set(e, err_errno(),
			"no answer at 'tcp:%s': %s: check that its daemon is running", where,
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
	.addresses = stream_addresses,
	.recall = stream_recall,
	.pause = stream_pause,
	.look = stream_look,
	.patience = stream_patience,
	.close = stream_close,
};
