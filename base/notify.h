/*
 * Messages to the process that manages this daemon: systemd's notification protocol, sd_notify(3), without its library
 * (docs/decisions/libraries.md).
 *
 * The manager names a socket for datagrams in NOTIFY_SOCKET and, if it watches the daemon, how often it expects one in
 * WATCHDOG_USEC, microseconds. Each datagram has lines VARIABLE=VALUE: "READY=1", "WATCHDOG=1", "STOPPING=1",
 * "FDSTORE=1\nFDNAME=mount-1".
 *
 * Threads: any, but for notify_forget().
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include "base/check.h"

#define NOTIFY_SOCKET_ENV       "NOTIFY_SOCKET"
#define NOTIFY_WATCHDOG_ENV     "WATCHDOG_USEC"
#define NOTIFY_WATCHDOG_PID_ENV "WATCHDOG_PID"
#define NOTIFY_FDS_MAX          64u /* of one message */

/*
 * Sends `text` with duplicates of `n` descriptors, and never waits. 1: sent; 0: no process asked for messages. -EAGAIN: the
 * receiver is behind, send it again later; -ECONNREFUSED or -ENOENT: it is gone; -EINVAL: the variable names no socket; or
 * another -errno.
 */
int notify_send(const char *text, const int *fds, unsigned int n) __must_check;

/*
 * As notify_send(), but waits up to `wait_ns`, less than a second, for a receiver that is behind. The kernel queues ten
 * datagrams (net.unix.max_dgram_qlen) and wakes waiting senders in their order. Of many senders, one that does not wait may
 * never find a free place.
 */
int notify_send_wait(const char *text, uint64_t wait_ns) __must_check;

/* No process asked this one for messages: what the environment names is another process's. Before threads start. */
void notify_forget(void);

/* How often to send "WATCHDOG=1": half of the time after which silence counts as a hang. 0: no process watches this one. */
uint64_t notify_watchdog_ns(void);
