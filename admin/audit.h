/*
 * The audit log: who changed what, and how that ended. One JSON object a line, in a file of its own,
 * which is bounded as a log is (base/log_file.h):
 *
 *	{"time": 1769860800.123, "process": "cachemaster", "pid": 812, "act":
 *	 "dataset.delete", "caller": {"uid": 0, "gid": 0, "pid": 4711, "name": "cachectl", "login":
 *	 1000}, "on": {"name": "imagenet"}, "result": "EBUSY", "text": "..."}
 *
 * A caller from another node is {"via": "token 0123456789abcdef"}: what it proved to have.
 * "result" is "ok" or the name of an error, whose line "text" is. "login" is who logged in, when
 * that is known. Of a request only names of things are written, never what a secret could be in.
 *
 * Where a handler records what it changed (datasets), the line has it: "changes": {"quota": {"old": null, "new": 4096}}.
 * References to credentials are in it, never credentials.
 *
 * Refusals of changes are written once a second at most, with the names of the path: a caller that may only read
 * cannot rotate the lines of others out of the file.
 *
 * One file per process. Threads: any, after audit_open().
 */
#pragma once

#include "admin/admin.h"

/* Appends to `path`, 0600, from now on; NULL: writes nothing. An error has its line. */
int audit_open(const char *path, const char *process, struct err *e) __must_check;
void audit_close(void);

struct audit_act {
	const char *act; /* "dataset.delete" */
	const struct admin_caller *caller;
	const json_t *on;      /* names; may be NULL */
	const json_t *changes; /* {"quota": {"old": null, "new": 4096}}; may be NULL, or empty */
	int code;              /* 0, or a negative errno */
	const char *text;      /* its line; may be NULL */
};

/* Writes a line when a file is open. What cannot be written is counted and logged. */
void audit_write(const struct audit_act *act);
/* fn(arg) is called for each act that audit_write() is called for, whether a file is open or not; NULL: it is not. */
void audit_watch(void (*fn)(void *arg, const struct audit_act *act), void *arg);
/* Lines that could not be written. */
uint64_t audit_lost(void);

/*
 * The names in a request: those of its path, and of its body what names something ("name",
 * "mountpoint", ...). A new reference; NULL without memory.
 */
json_t *audit_names(const json_t *params, const json_t *body);

/* Adds to `changes` each member in which two objects differ, with its old and its new value; either may be NULL: none. What there is
 * no memory for is left out. NULL `changes` is allowed. */
void audit_change(json_t *changes, const json_t *before, const json_t *after);
