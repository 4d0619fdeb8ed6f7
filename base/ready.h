/*
 * How a daemon tells who started it that it serves, or why it does not: one line on the descriptor
 * given by --ready-fd, which is closed afterwards.
 *
 *	READY {json}
 *	ERROR 4 line for the operator
 */
#pragma once

#include "base/err.h"
#include "base/exit.h"

/* `json` is one line, "{}" when there is nothing to say. fd -1: no starter waits. Closes fd. A service manager gets "READY=1"
 * (base/notify.h). Gives back what
 * only the start used (daemon_give_back()). */
void ready_ok(int fd, const char *json);

/* Tells the line; returns `status` for main() to return. Without a descriptor the line goes to
 * standard error. */
int ready_error(int fd, const char *program, enum exit_status status, const struct err *why);

/*
 * Takes such a line apart (without its newline). *ret_json points into `line` and is NULL for
 * ERROR, where *ret_status and `e` are set. -EPROTO when it is neither.
 */
int ready_parse(
	const char *line, const char **ret_json, int *ret_status, struct err *e) __must_check;
