/*
 * Unix sockets at a path, private to their user: mode 0600, whatever the umask. In a directory of
 * mode 0750 (or 0751), which a service's admin made for its group, they are the group's: 0660.
 *
 * All sockets are non-blocking streams, closed on exec, the caller's. Threads: any.
 */
#pragma once

#include <stdbool.h>
#include <sys/types.h>
#include <sys/un.h>
#include "base/err.h"

/* Bytes of a socket's path with its NUL, as the kernel has it. */
#define SOCKET_PATH_MAX 108
_Static_assert(sizeof(((struct sockaddr_un *)0)->sun_path) == SOCKET_PATH_MAX, "the kernel's");

/* -ENAMETOOLONG, with a line, for a path of SOCKET_PATH_MAX bytes or more. */
int unix_socket_check(const char *path, struct err *e) __must_check;

/*
 * Listens at `path`: a dead socket that is in the way is removed. -EADDRINUSE when somebody listens
 * there, -EEXIST when what is there is no socket, -ENAMETOOLONG, or another -errno, with a line.
 */
int unix_socket_listen(const char *path, int backlog, int *ret_fd, struct err *e) __must_check;

/*
 * Never in progress: connected, or -ENOENT, -ECONNREFUSED (no process listens), -EAGAIN (the listener
 * is there and behind), -EACCES, -ENAMETOOLONG, or another -errno.
 */
int unix_socket_connect(const char *path, int *ret_fd) __must_check;

/* Does the directory of `path` belong to `user`, and may no other write there? Then who listens there
 * is that user, or was let in by him. */
bool unix_socket_is_owners(const char *path, uid_t user) __must_check;
