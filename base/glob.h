/*
 * Which paths of a source are meant, such as "train/cat-*.jpg".
 *
 * A question mark stands for one byte, one star for any number of them, [a-z] and [!a-z] for one of
 * a class; none of these for a slash. Two stars stand for any number of bytes, slashes too; two
 * stars and a slash for any number of directories, or none. A backslash takes the meaning from what
 * follows. A pattern that matches a directory means all that is below it. Slashes at the beginning
 * and the end are ignored.
 *
 * Pure; threads: any.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include "base/err.h"

/* Does `pattern` mean the path, which need not end with NUL? */
bool glob_match(const char *pattern, const char *path, size_t path_len) __must_check;

/* -EINVAL with a line: empty, a class without its end, or nothing behind the last backslash. */
int glob_check(const char *pattern, struct err *e) __must_check;
