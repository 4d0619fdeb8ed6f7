/*
 * The master and the worker of the stress test: debug programs (tests/debug), started, killed and
 * told their faults. They die with the thread that started them.
 *
 * Threads: the driver's only.
 */
#pragma once

#include <stdbool.h>
#include <sys/types.h>
#include "base/err.h"

struct daemon {
	const char *name; /* "cacheworker" */
	const char *argv[24];
	pid_t pid; /* 0: not running */
	char log[300];
	char admin[200];
};

struct daemons {
	char bin[256];
	char dir[200];
	char master_address[240];
	char worker_address[240];
	char tier[240];
	char state[240];
	struct daemon master;
	struct daemon worker;
};

/* Programs in `bin`; everything else below `dir`. */
void daemons_init(struct daemons *d, const char *bin, const char *dir, const char *capacity);

/* Starts it and waits until it serves; its line otherwise. */
int daemon_start(struct daemons *d, struct daemon *daemon, struct err *e) __must_check;
/* Ends it by that signal. After SIGTERM an exit status other than 0 is -EPROTO, with a line. */
int daemon_end(struct daemon *daemon, int signal, struct err *e) __must_check;
/* Replaces the line of its fault plane. A daemon that is not there is no error. */
int daemon_faults(const struct daemon *daemon, const char *line, struct err *e) __must_check;
