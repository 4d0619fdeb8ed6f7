/*
 * Manifests of Kubernetes, YAML or JSON, as JSON: several documents, Lists taken apart, and scalars as kubectl reads them (YAML 1.1:
 * a plain `yes` is true, `0123` is 83).
 *
 * Threads: any.
 */
#pragma once

#include <jansson.h>
#include "base/err.h"

/* Appends the objects of a text called `name` to an array. -EINVAL with its line; -E2BIG; -ENOMEM. */
int manifest_read(const char *name, const char *text, size_t len, json_t *objects,
	struct err *e) __must_check;
