/*
 * What a dataset may be called.
 *
 * Threads: any.
 */
#pragma once

#include "base/err.h"

#define DATASET_NAME_BYTES 63u

/* -EINVAL with a line: not [a-z0-9-]{1,63}, a '-' first or last, or reserved. A valid name needs no escape in a URL. */
int dataset_check_name(const char *name, struct err *e) __must_check;
