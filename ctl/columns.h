/*
 * A table of text whose columns are as wide as their longest cell, which is never cut, so that it
 * can be copied.
 *
 * Lifetime: _init, _add row by row, _print, _release. Threads: one.
 */
#pragma once

#include <stdio.h>
#include "base/check.h"

#define COLUMNS_MAX      16u
#define COLUMNS_ROWS_MAX 4096u

struct columns {
	unsigned int n;      /* columns */
	unsigned int n_rows; /* with the titles */
	unsigned int right;  /* bit i: column i is aligned to the right */
	char **cells;        /* owned, n_rows x n */
};

/* The titles are the first row. `right` as in the struct. */
int columns_init(struct columns *columns, const char *const *titles, unsigned int n,
	unsigned int right) __must_check;
void columns_release(struct columns *columns);

/* One cell per column, copied; NULL shows as "-". -ENOMEM, -ENOBUFS (too many rows). */
int columns_add(struct columns *columns, const char *const *cells) __must_check;

/* Text from elsewhere, such as names of files and keys of a bucket: control characters, which a
 * terminal would obey, are '?'. */
void columns_put(const char *text, FILE *out);

/* Cells as by columns_put(). Two blanks between columns, none at a line's end. */
void columns_print(const struct columns *columns, FILE *out);
