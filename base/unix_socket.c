/* Unix sockets at a path. See unix_socket.h. */
#include "base/unix_socket.h"
#include "base/cleanup.h"
#include "base/file.h"

#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>

int unix_socket_check(const char *path, struct err *e)
{
	if (strlen(path) < SOCKET_PATH_MAX)
		return 0;
	return err_set(e, -ENAMETOOLONG,
		"socket path '%s' is longer than the %d bytes a socket may have: use a shorter "
		"directory",
		path, SOCKET_PATH_MAX - 1);
}

/* The address of a path that was checked. */
static struct sockaddr_un address_of(const char *path)
{
	struct sockaddr_un address = { .sun_family = AF_UNIX };

	memcpy(address.sun_path, path, strlen(path));
	return address;
}

static int open_socket(int *ret_fd)
{
	*ret_fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	return *ret_fd < 0 ? err_errno() : 0;
}

int unix_socket_connect(const char *path, int *ret_fd)
{
	_cleanup_close_ int fd = -1;
	struct sockaddr_un address;
	int r = unix_socket_check(path, NULL);

	if (r == 0)
		r = open_socket(&fd);
	if (r < 0)
		return r;
	address = address_of(path);
	if (connect(fd, (const struct sockaddr *)&address, sizeof(address)) != 0)
		return err_errno();
	*ret_fd = TAKE_FD(fd);
	return 0;
}

/* Makes way for a new socket: removes a dead one, refuses what is alive or no socket. */
static int clear_stale(const char *path, struct err *e)
{
	_cleanup_close_ int fd = -1;
	struct stat st;

	if (lstat(path, &st) != 0)
		return errno == ENOENT
			       ? 0
			       : err_set(e, err_errno(),
					 "cannot inspect '%s': %m: choose a directory of yours",
					 path);
	if (!S_ISSOCK(st.st_mode))
		return err_set(e, -EEXIST,
			"'%s' exists and is not a socket: remove it or choose another path", path);
	if (unix_socket_connect(path, &fd) != -ECONNREFUSED)
		return err_set(e, -EADDRINUSE,
			"another process listens on '%s': stop it or choose another path", path);
	if (unlink(path) != 0 && errno != ENOENT)
		return err_set(
			e, err_errno(), "cannot remove the dead socket '%s': %m: remove it", path);
	return 0;
}

/* Of the directory in which `path` lies. */
static int stat_directory(const char *path, struct stat *ret_st)
{
	char dir[SOCKET_PATH_MAX];
	char *slash;

	(void)snprintf(dir, sizeof(dir), "%s", path); /* checked */
	slash = strrchr(dir, '/');
	if (slash)
		slash[slash == dir] = '\0';
	return stat(slash ? dir : ".", ret_st) == 0 ? 0 : err_errno();
}

/* Nothing to do in a directory that is one user's alone, or everybody's. */
static int open_to_group(const char *path)
{
	struct stat st;
	int r = stat_directory(path, &st);

	if (r < 0 || (st.st_mode & 076) != 050)
		return r;
	if (chown(path, (uid_t)-1, st.st_gid) != 0 || chmod(path, 0660) != 0)
		return err_errno();
	return 0;
}

bool unix_socket_is_owners(const char *path, uid_t user)
{
	struct stat st;

	return stat_directory(path, &st) == 0 && st.st_uid == user && (st.st_mode & 022) == 0;
}

int unix_socket_listen(const char *path, int backlog, int *ret_fd, struct err *e)
{
	_cleanup_close_ int fd = -1;
	struct sockaddr_un address;
	int r = unix_socket_check(path, e);

	if (r == 0)
		r = clear_stale(path, e);
	if (r < 0)
		return r;
	/* A service manager makes it, where there is one. The group may connect. */
	r = file_make_directory_of(path, 0750);
	if (r < 0)
		return err_set(e, r,
			"the directory of '%s' cannot be created: %s: create it, or choose another",
			path, err_str(r));
	r = open_socket(&fd);
	if (r < 0)
		return err_set(e, r,
			"cannot create a socket: %s: raise the limit of open files (ulimit -n)",
			err_str(r));
	address = address_of(path);
	/* The mode before bind(2), which takes the new file's from it: at no time can others
	 * connect. */
	if (fchmod(fd, 0600) != 0 ||
		bind(fd, (const struct sockaddr *)&address, sizeof(address)) != 0 ||
		listen(fd, backlog) != 0)
		return err_set(e, err_errno(),
			"cannot listen on '%s': %m: choose a directory of yours", path);
	r = open_to_group(path);
	if (r < 0) {
		(void)unlink(path); /* ours, just made */
		return err_set(e, r,
			"'%s' cannot be given to the group of its directory: %s: run as a member "
			"of that group",
			path, err_str(r));
	}
	*ret_fd = TAKE_FD(fd);
	return 0;
}
