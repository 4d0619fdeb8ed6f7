/*
 * Unix sockets: "unix:/path". Descriptors are passed; only processes of the same user, and root,
 * are talked to. Root's own also talk to a daemon of the owner of the directory of its socket: a
 * service's master and worker need not be root.
 */
#include "net/stream_internal.h"
#include "base/cleanup.h"
#include "base/unix_socket.h"

#include <stddef.h>
#include <sys/socket.h>
#include <sys/stat.h>

#define BACKLOG 512
#define SOCKET_BYTES \
	(1 << 20) /* as much as the system allows of it: fewer wake-ups per large reply */

static int unix_check(const char *where, struct err *e)
{
	if (where[0] != '/')
		return err_set(e, -EINVAL,
			"address 'unix:%s' needs an absolute path: write unix:/PATH", where);
	return unix_socket_check(where, e);
}

/* Slower without, not wrong. FORCE is for root; the other is cut to the system's maximum. */
static void unix_set_buffer(int fd)
{
	const int bytes = SOCKET_BYTES;

	if (setsockopt(fd, SOL_SOCKET, SO_SNDBUFFORCE, &bytes, sizeof(bytes)) != 0)
		(void)setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof(bytes));
}

/* `where`: of the socket that was connected to; NULL: it came to ours. */
static bool unix_peer_ok(int fd, const char *where)
{
	struct ucred cred;
	socklen_t len = sizeof(cred);

	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cred, &len) != 0)
		return false;
	return cred.uid == geteuid() || cred.uid == 0 ||
	       (where && geteuid() == 0 && unix_socket_is_owners(where, cred.uid));
}

/* Accepted sockets do not inherit the buffer. */
static bool unix_admit(int fd)
{
	unix_set_buffer(fd);
	return unix_peer_ok(fd, NULL);
}

/*
 * What connect(), unix_peer_ok() and the daemon's own unix_admit() will decide, from the socket's file: its owner is the
 * daemon's user.
 */
static int unix_access(const char *where)
{
	struct stat st;

	if (stat(where, &st) != 0 || access(where, W_OK) != 0)
		return err_errno();
	return st.st_uid == geteuid() || (geteuid() == 0 && unix_socket_is_owners(where, st.st_uid))
		       ? 0
		       : -EACCES;
}

static int unix_listen(struct loop *loop, const char *where, const struct transport_listener *user,
	struct transport_listener **ret_listener, struct err *e)
{
	char address[sizeof(user->address)];
	int fd = -1;
	int r = unix_check(where, e);

	if (r == 0)
		r = unix_socket_listen(where, BACKLOG, &fd, e);
	if (r < 0)
		return r;
	(void)snprintf(address, sizeof(address), "unix:%s", where); /* fits: unix_check() */
	r = listener_new(&transport_unix, loop, fd, user, unix_admit, address, where, ret_listener);
	return r < 0 ? err_set(e, r, "cannot listen on '%s': %s: choose a directory of yours",
			       where, err_str(r))
		     : 0;
}

static int unix_connect(struct loop *loop, const char *where, const struct transport_events *events,
	void *arg, struct transport **ret_transport, struct err *e)
{
	_cleanup_close_ int fd = -1;
	int r = unix_check(where, e);

	if (r < 0)
		return r;
	r = unix_socket_connect(where, &fd);
	if (r == -EACCES)
		return err_set(e, r,
			"cannot connect to 'unix:%s': permission denied: run as the user of its "
			"daemon or as root, or give the daemon a TCP address",
			where);
	if (r < 0)
		return err_set(e, r, "no answer at 'unix:%s': %s: check that its daemon is running",
			where, err_str(r));
	unix_set_buffer(fd);
	if (!unix_peer_ok(fd, where))
		return err_set(e, -EACCES,
			"'unix:%s' belongs to another user: run as that user or as root", where);
	r = stream_new(&transport_unix, loop, TAKE_FD(fd), true, ret_transport);
	if (r < 0)
		return err_set(e, r, "cannot connect to 'unix:%s': %s: see the log of its daemon",
			where, err_str(r));
	stream_start(*ret_transport, events, arg);
	return 0;
}

const struct transport_ops transport_unix = {
	.scheme = "unix",
	.passes_fd = true,
	.check = unix_check,
	.access = unix_access,
	.listen = unix_listen,
	.unlisten = listener_unlisten,
	.connect = unix_connect,
	.start = stream_start,
	.send = stream_send,
	.takes_pipe = stream_takes_pipe,
	.recall = stream_recall,
	.pause = stream_pause,
	.close = stream_close,
};
