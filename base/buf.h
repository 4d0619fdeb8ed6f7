/*
 * A growable byte buffer with a maximum, also a string builder: `data` is always followed by a NUL.
 *
 * Owned by the caller; not thread-safe. Appending past `max` or without memory fails with -ENOBUFS
 * or -ENOMEM and leaves the buffer as it was.
 */
#pragma once

#include <stdarg.h>
#include <stddef.h>
#include "base/check.h"

struct buf {
	char *data; /* NULL while empty */
	size_t len; /* bytes in use */
	size_t cap; /* bytes allocated, without the NUL */
	size_t max; /* bound on len */
};

#define BUF_INIT(maximum) ((struct buf){ .max = (maximum) })

void buf_release(struct buf *b);
void buf_clear(struct buf *b);
int buf_reserve(struct buf *b, size_t more) __must_check; /* room for `more` bytes after len */
int buf_append(struct buf *b, const void *data, size_t len) __must_check;
int buf_puts(struct buf *b, const char *s) __must_check;
int buf_printf(struct buf *b, const char *fmt, ...) __printf(2, 3) __must_check;
void buf_consume(struct buf *b, size_t n); /* drops the first n bytes */

/* The contents as a string (never NULL); borrowed until the next change. */
const char *buf_str(const struct buf *b);
