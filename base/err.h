/*
 * Errors: negative errno everywhere, and one line of text where a person will read it.
 *
 * A function that fails returns a negative errno as `int` and writes its `ret_x` outputs only on
 * success. A few meanings of our own reuse errnos:
 *
 *	-EBADMSG	bytes do not match their checksum, or do not decode
 *	-ESTALE		the origin no longer has the version asked for; a table of another lineage
 *	-ENODATA	not cached (answer to a cached-only request)
 *	-ENOKEY		a credential is missing
 *	-EKEYREJECTED	a credential was refused (403 with a signature or key error)
 *	-EKEYREVOKED	the other end did not prove that it is a server of the cluster
 *	-EPFNOSUPPORT	the same, and it claims to speak another version of the protocol
 *	-EACCES		the credential is known and may not do this
 *	-EPERM		the object is in an archive, from which it is to be restored first; or a file that
 *			this process may not read
 *	-ENOENT		no such object
 *	-ENXIO		no such bucket, or source
 *	-EREMCHG	the bucket lives in another region
 *	-ETIMEDOUT	a deadline passed
 *	-ECANCELED	the caller, or the closing of the object, ended the request
 *	-ENOSPC		no room: the caller bypasses the tier
 *
 * struct err carries the line for an operator: what happened, why, what to do. It is set once,
 * where the failure is understood, and printed once, where it is decided. Callers that need no text
 * pass NULL.
 */
#pragma once

#include <stdarg.h>
#include <errno.h>
#include "base/check.h"

#define ERR_TEXT_MAX 1024

struct err {
	int code;                /* negative errno, 0 when nothing failed */
	char text[ERR_TEXT_MAX]; /* one line, no newline, no secrets */
};

#define ERR_INIT ((struct err){ 0 })

/*
 * Sets `e` (unless NULL) and returns `code`, so that a failing function can end with
 * `return err_set(e, -EINVAL, "...")`. The result is one line of UTF-8 (utf8_make_line()).
 */
int err_set(struct err *e, int code, const char *fmt, ...) __printf(3, 4);
int err_vset(struct err *e, int code, const char *fmt, va_list ap) __printf(3, 0);

/* Puts `what: ` before the text already in `e`; the code stays. Returns e's code. */
int err_prefix(struct err *e, const char *fmt, ...) __printf(2, 3);

/*
 * Adds what to do to a line that ran out of memory or descriptors, which few places can know
 * better; for where lines leave a process. Harmless when it was said. Returns e's code.
 */
int err_advise(struct err *e);

/* Sets `e` from `code` alone when it holds no text yet. Returns code. */
int err_default(struct err *e, int code, const char *what);

/* "ENOSPC"-like name of a negative errno, or "E<number>"; static storage per thread. */
const char *err_name(int code);
/* The reverse: -ENOSPC of "ENOSPC"; -EIO of what is no such name, or NULL. */
int err_of_name(const char *name);

/* Text of a negative errno as strerror gives it; thread-safe, static storage per thread. */
const char *err_str(int code);

/* -errno, never 0: for use directly after a failing system call. */
static inline int err_errno(void)
{
	int e = errno;

	return e > 0 ? -e : -EIO;
}
