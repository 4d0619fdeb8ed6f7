/*
 * One file descriptor over a unix socket, in a message of one byte that says nothing.
 *
 * Threads: any.
 */
#pragma once

#include "base/err.h"

/* The receiver gets a descriptor of its own; `fd` stays the caller's. Waits if the socket does. */
int fd_pass_send(int socket, int fd) __must_check;

/*
 * The descriptor of the next message, the caller's and closed on exec. `flags` as for recvmsg(2).
 * -ENODATA: the other side is gone; -EBADMSG: the message, which is taken, has none; else recvmsg's
 * (-EAGAIN).
 */
int fd_pass_receive(int socket, int flags, int *ret_fd) __must_check;
