/*
 * What every daemon does the same way: its log, and the signals that end it.
 *
 * Threads: main() only, before it starts others; daemon_give_back(): any.
 */
#pragma once

#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include "base/config.h"

/*
 * The log of process `name` ("worker") from `level` on ("info"), appended to `file` (0600), or on
 * standard error when that is NULL; freed memory is kept for what comes next; no core dump; and no SIGPIPE: a
 * peer that is gone is an error of its connection. -EINVAL, or -errno of the file, with a line.
 */
int daemon_begin(const char *name, const char *level, const char *file, struct err *e) __must_check;

/*
 * Less is kept of freed memory when the process may have only `memory` bytes (--memory): what is
 * kept is in addition to its arena. Before other threads.
 */
void daemon_keep_memory(uint64_t memory);

/* Large buffers go back to the kernel as they are freed: for a daemon that recycles its own (base/buffers.h), and one with
 * little memory. Before other threads. */
void daemon_map_large(void);

/*
 * Gives memory back to the kernel: what was freed and kept, and the pages of programs and libraries that this process has
 * mapped. Those stay in the page cache, and come back by minor faults as they are used: to be called at the end of work that
 * uses much code, such as a start. Threads that allocate or load libraries wait meanwhile.
 */
void daemon_give_back(void);

/*
 * Blocks SIGTERM and SIGINT, which from here on wait for whoever asks for *ret_signals. Threads
 * started before must block all signals themselves, as those of base/loop.h and base/pool.h do.
 */
void daemon_signals_block(sigset_t *ret_signals);

/* SIGHUP too waits, when the configuration came from a file; without one it ends the process as
 * ever. */
void daemon_hangup_block(const struct config *config, sigset_t *signals);

/*
 * For a daemon with a loop of its own: blocks SIGTERM, SIGINT and SIGHUP, which are read from the
 * descriptor (signalfd(2)), the caller's. -errno.
 */
int daemon_signals_open(int *ret_fd) __must_check;

/*
 * Waits for one of `signals` that ends the daemon, and logs it. Sends beats meanwhile (base/watchdog.h). At each SIGHUP reads `config` again
 * (daemon_reload()). config NULL: none.
 */
void daemon_signals_wait(
	const sigset_t *signals, struct config *config, void (*changed)(void *arg), void *arg);

/* Reads `config` again and logs what became of it; changed(arg), which may be NULL, is called when
 * anything did. False: it could not be read, all stays as it was. */
bool daemon_reload(struct config *config, void (*changed)(void *arg), void *arg);

/* From now on daemon_reload() calls `fn` as well, whatever it finds: for who reads files of his own again at SIGHUP. One;
 * NULL: none. */
void daemon_on_hangup(void (*fn)(void));

/* From now on logs from `level` on, which was checked ("info"). */
void daemon_log_level(const char *level);
