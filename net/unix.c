/*
 * Unix sockets: "unix:/path". Descriptors are passed; only processes of the same user, and root,
 * are talked to.
 */
#include "net/stream_internal.h"
#include "base/cleanup.h"

#include <stddef.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#define BACKLOG 512
#define SOCKET_BYTES \
	(1 << 20) /* as much as the system allows of it: fewer wake-ups per large reply */

static int unix_check(const char *where, struct err *e)
{
	struct sockaddr_un *sun = NULL;

	if (where[0] != '/')
		return err_set(e, -EINVAL, "address 'unix:%s' needs an absolute path", where);
	if (strlen(where) >= sizeof(sun->sun_path))
		return err_set(e, -ENAMETOOLONG,
			"socket path '%s' is longer than the %zu bytes a socket may have: use a "
			"shorter directory",
			where, sizeof(sun->sun_path) - 1);
	return 0;
}

static void unix_address(const char *where, struct sockaddr_un *sun)
{
	*sun = (struct sockaddr_un){ .sun_family = AF_UNIX };
	(void)strncpy(sun->sun_path, where, sizeof(sun->sun_path) - 1); /* unix_check() bounds it */
}

/* Slower without, not wrong. FORCE is for root; the other is cut to the system's maximum. */
static void unix_set_buffer(int fd)
{
	const int bytes = SOCKET_BYTES;

	if (setsockopt(fd, SOL_SOCKET, SO_SNDBUFFORCE, &bytes, sizeof(bytes)) != 0)
		(void)setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof(bytes));
}

static int unix_socket(void)
{
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

	if (fd < 0)
		return err_errno();
	unix_set_buffer(fd);
	return fd;
}

static bool unix_peer_ok(int fd)
{
	struct ucred cred;
	socklen_t len = sizeof(cred);

	return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cred, &len) == 0 &&
	       (cred.uid == geteuid() || cred.uid == 0);
}

/* Accepted sockets do not inherit the buffer. */
static bool unix_admit(int fd)
{
	unix_set_buffer(fd);
	return unix_peer_ok(fd);
}

/* Makes way for a new socket: removes a dead one, refuses what is alive or no socket. */
static int clear_stale(const char *where, const struct sockaddr_un *sun, struct err *e)
{
	_cleanup_close_ int fd = -1;
	struct stat st;

	if (lstat(where, &st) != 0)
		return errno == ENOENT ? 0
				       : err_set(e, err_errno(), "cannot look at '%s': %s", where,
						 err_str(-errno));
	if (!S_ISSOCK(st.st_mode))
		return err_set(e, -EEXIST,
			"'%s' exists and is not a socket: remove it or choose another path", where);
	fd = unix_socket();
	if (fd < 0)
		return err_set(e, fd, "cannot make a socket: %s", err_str(fd));
	if (connect(fd, (const struct sockaddr *)sun, sizeof(*sun)) == 0 || errno != ECONNREFUSED)
		return err_set(e, -EADDRINUSE,
			"another process listens on '%s': stop it or choose another path", where);
	if (unlink(where) != 0 && errno != ENOENT)
		return err_set(e, err_errno(), "cannot remove the dead socket '%s': %s", where,
			err_str(-errno));
	return 0;
}

static int unix_listen(struct loop *loop, const char *where, const struct transport_listener *user,
	struct transport_listener **ret_listener, struct err *e)
{
	char address[sizeof(user->address)];
	_cleanup_close_ int fd = -1;
	struct sockaddr_un sun;
	int r = unix_check(where, e);

	if (r < 0)
		return r;
	unix_address(where, &sun);
	r = clear_stale(where, &sun, e);
	if (r < 0)
		return r;
	fd = unix_socket();
	if (fd < 0)
		return err_set(e, fd, "cannot make a socket: %s", err_str(fd));
	/* Before bind(2), which takes the new file's mode from it: at no time can others
	 * connect. */
	if (fchmod(fd, 0600) != 0 || bind(fd, (struct sockaddr *)&sun, sizeof(sun)) != 0 ||
		listen(fd, BACKLOG) != 0)
		return err_set(e, err_errno(), "cannot listen on '%s': %s", where, err_str(-errno));
	(void)snprintf(address, sizeof(address), "unix:%s", where); /* fits: unix_check() */
	r = listener_new(
		&transport_unix, loop, TAKE_FD(fd), user, unix_admit, address, where, ret_listener);
	return r < 0 ? err_set(e, r, "cannot listen on '%s': %s", where, err_str(r)) : 0;
}

static int unix_connect(struct loop *loop, const char *where, const struct transport_events *events,
	void *arg, struct transport **ret_transport, struct err *e)
{
	_cleanup_close_ int fd = -1;
	struct sockaddr_un sun;
	int r = unix_check(where, e);

	if (r < 0)
		return r;
	unix_address(where, &sun);
	fd = unix_socket();
	if (fd < 0)
		return err_set(e, fd, "cannot make a socket: %s", err_str(fd));
	/* Never in progress on a unix socket: connected, or refused, or EAGAIN when the listener is
	 * behind. */
	if (connect(fd, (struct sockaddr *)&sun, sizeof(sun)) != 0)
		return err_set(
			e, err_errno(), "nobody answers at 'unix:%s': %s", where, err_str(-errno));
	if (!unix_peer_ok(fd))
		return err_set(e, -EACCES, "'unix:%s' belongs to another user", where);
	r = stream_new(&transport_unix, loop, TAKE_FD(fd), true, ret_transport);
	if (r < 0)
		return err_set(e, r, "cannot connect to 'unix:%s': %s", where, err_str(r));
	stream_start(*ret_transport, events, arg);
	return 0;
}

const struct transport_ops transport_unix = {
	.scheme = "unix",
	.passes_fd = true,
	.check = unix_check,
	.listen = unix_listen,
	.unlisten = listener_unlisten,
	.connect = unix_connect,
	.start = stream_start,
	.send = stream_send,
	.recall = stream_recall,
	.pause = stream_pause,
	.close = stream_close,
};
