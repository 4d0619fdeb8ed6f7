/*
 * Daemons that hang: stopped, deadlocked, or with a loop that does not turn any more. Each sends "WATCHDOG=1" (base/notify.h) once a
 * second to the process that started it, from the thread that its end would matter most to; after WATCHDOG_NS of silence it is killed,
 * and started again like one that died (base/child.h). systemd does the same for a service.
 *
 *	daemon: main loop ──watchdog_beat()──► RUN/notify.sock ──watchdog_receive()──► child_beat() :its parent
 *								 every second	      child_check_beat()
 *
 * The path of the socket outlives the parent: daemons that the next one recovers need not know about it. Who sent a message is known
 * from the kernel (SCM_CREDENTIALS).
 *
 * Threads: the owner's loop; watchdog_beat(): one.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include "base/clock.h"
#include "base/err.h"
#include "base/unix_socket.h"

#define WATCHDOG_NS      (5 * CLOCK_SECOND) /* of silence */
#define WATCHDOG_WAIT_NS (900 * CLOCK_MS)   /* for a keeper that is behind: until the next beat */

struct watchdog {
	int fd;              /* bound to `path`; -1: closed */
	uint64_t checked_ns; /* watchdog_was_late() was called then; 0: never */
	char path[SOCKET_PATH_MAX];
};

/* Binds `path`, which no other process uses: what is left there of an earlier one is removed. -errno with a line. */
int watchdog_open(struct watchdog *watchdog, const char *path, struct err *e) __must_check;
/* `unlink_it`: no daemon sends to it any more. Harmless if closed. */
void watchdog_close(struct watchdog *watchdog, bool unlink_it);

/* The process that sent the next beat. False: there is none. Never waits. */
bool watchdog_receive(struct watchdog *watchdog, pid_t *ret_pid);

/*
 * To be called about every second, with what watchdog_receive() has returned taken into account. True: this process itself did not run
 * for so long (the whole machine was stopped, say) that silence says nothing about others: they have the full time again.
 */
bool watchdog_was_late(struct watchdog *watchdog, uint64_t now_ns);

/*
 * Sends a beat if a process watches this one, all event loops turn, and the last beat was sent about a second ago. To be called every
 * second or more often. Waits up to `wait_ns` while the receiver is behind.
 */
void watchdog_beat(uint64_t wait_ns);
