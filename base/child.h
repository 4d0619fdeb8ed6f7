/*
 * One daemon that the keeper keeps alive: started, waited for its READY line,
 * watched, started again when it dies.
 *
 *	STOPPED ──start──► STARTING ──READY──► SERVING ──died──► WAITING ──time──► STARTING
 *	                      │ ERROR, died                         ▲
 *	                      ├── never served before ──► FAILED    │
 *	                      └── served before ────────────────────┘
 *	STARTING, SERVING ──end──► ENDING ──died──► STOPPED        WAITING, FAILED ──end──► STOPPED
 *
 * One that has a socket for its beats (base/watchdog.h) is killed after WATCHDOG_NS of silence while it SERVES, and WAITS like one that
 * died; not while a debugger has it.
 *
 * A daemon that ends with status 0 without being told to has done its work (its mount was
 * unmounted): STOPPED; unless it is `endless`. One that was adopted is SERVING, with `served` false where it may not have come so
 * far (child_set_served() follows): then its death makes it WAIT, and only that of the next one FAILED.
 * Threads: the owner's loop only; its lock covers readers of the fields.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include "base/backoff.h"
#include "base/buf.h"
#include "base/err.h"

#define CHILD_ARGS_MAX  64
#define CHILD_FDS_MAX   8u
#define CHILD_STEADY_NS 10000000000ull /* serving for so long forgets earlier deaths */
#define CHILD_KILL_NS   10000000000ull /* from SIGTERM to SIGKILL */

enum child_state {
	CHILD_STOPPED,
	CHILD_STARTING,
	CHILD_SERVING,
	CHILD_WAITING,
	CHILD_ENDING,
	CHILD_FAILED,
	CHILD_STATES,
};

struct child {
	uint32_t magic;
	enum child_state state;
	char name[32];              /* "master", "mount-1" */
	char *args[CHILD_ARGS_MAX]; /* owned; args[0] is the program's path */
	unsigned int n_args;
	struct {
		const char *option; /* "--fuse-fd", static; NULL: only inherited */
		int fd;             /* borrowed; the daemon has it under the same number */
	} keep[CHILD_FDS_MAX];
	unsigned int n_keep;
	int alive_fd;   /* its environment names this one as GRANARY_ALIVE_FD; -1: none; borrowed */
	char *log_path; /* owned; --log-file is not part of args */
	pid_t pid;
	uint64_t started; /* child_process_started() of it */
	int pidfd;        /* -1 without a process */
	int ready_fd;     /* reading end while STARTING, else -1 */
	bool adopted;     /* started by an earlier keeper: it has no exit status */
	bool served;      /* was READY once */
	bool told;        /* gave its reason in an ERROR line this time */
	bool killed;      /* did not end when it was asked to */
	/* A later keeper takes its descriptors with pidfd_getfd(2): under Yama's ptrace_scope 1
	 * an ordinary user's process must allow that, as it is not its child. */
	bool adoptable;
	uint64_t capabilities; /* base/capabilities.h: of root's, what it keeps; 0: all */
	bool endless;          /* never ends by itself: status 0 is a death too */
	const char *again;     /* one more option once it has served, static; NULL: none */
	struct buf line;
	uint64_t since_ns;      /* of the state */
	struct backoff backoff; /* between restarts; the owner may lower max_ns */
	uint64_t kill_ns;       /* from SIGTERM to SIGKILL */
	uint64_t wake_ns;       /* WAITING: start then; ENDING: kill then; 0: never */
	uint64_t restarts;
	int exit_status;    /* FAILED: of enum exit_status */
	struct err failure; /* why it died or did not start, last time */
	const char *notify; /* socket for its beats; NULL: it is not watched; borrowed */
	uint64_t beat_ns;   /* the last one, or since when they are due */
	bool hung;          /* was killed because it was silent */
};

void child_init(struct child *child, const char *name);
/* The process, if any, goes on. */
void child_release(struct child *child);

/* -ENOMEM or -E2BIG. */
int child_arg(struct child *child, const char *fmt, ...) __printf(2, 3) __must_check;
/* "OPTION VALUE" */
int child_arg_text(struct child *child, const char *option, const char *value) __must_check;
int child_arg_number(struct child *child, const char *option, uint64_t value) __must_check;
/* "OPTION 4096B" */
int child_arg_size(struct child *child, const char *option, uint64_t bytes) __must_check;
void child_keep_fd(struct child *child, const char *option, int fd);

/* STOPPED or WAITING -> STARTING, or FAILED/WAITING when that cannot be. */
void child_start(struct child *child);
/* STOPPED -> WAITING: after the backoff of restarts. */
void child_start_later(struct child *child);
/* Takes over a process; `served`: it was READY. -ESRCH: there is none. */
int child_adopt(struct child *child, pid_t pid, bool served) __must_check;
/* One that was adopted before it was READY serves, as its owner found out. */
void child_set_served(struct child *child);
/* When process `pid` was started, in clock ticks since boot; 0: it has ended. */
uint64_t child_process_started(pid_t pid);
/*
 * Process `pid` has not ended, runs a program of the name that the path `program` ends in, and was started then (0: whenever): numbers
 * are used again. By its name (/proc/PID/stat), which everybody may read: the path of what it executes is hidden where secrets are
 * (base/secret.h).
 */
bool child_process_is(pid_t pid, const char *program, uint64_t started);
/* Asks it to end; harmless when it has none to end. */
void child_end(struct child *child);

/* Its log, when no process of it writes there any more. */
void child_remove_log(const struct child *child);

/* What the loop calls: the pidfd is readable, the ready_fd is readable, wake_ns has come. */
void child_on_exit(struct child *child);
void child_on_ready(struct child *child);
void child_on_time(struct child *child);

/* It has sent a beat (base/watchdog.h). */
void child_beat(struct child *child, uint64_t now_ns);
/* Kills it if it has been silent for too long; `late`: what watchdog_was_late() returned. */
void child_check_beat(struct child *child, uint64_t now_ns, bool late);
/* When that is due; 0: it is not watched. */
uint64_t child_beat_due(const struct child *child);

const char *child_state_name(enum child_state state);
static inline bool child_running(const struct child *child)
{
	return child->pidfd >= 0;
}
