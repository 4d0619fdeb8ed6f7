/*
 * Paths of fields in JSON, as Kubernetes writes them: `spec.tasks[0].name`, `metadata.labels[kueue.x-k8s.io/queue-name]`.
 *
 * A step in brackets is an index when it has digits only, else a key; `[]` appends. A key that has a '.', '[' or ']' stands in brackets.
 *
 * Threads: any; values are the caller's.
 */
#pragma once

#include <jansson.h>
#include <stddef.h>
#include "base/check.h"

#define FIELD_PATH_BYTES 512u
#define FIELD_KEY_MAX    317u /* of the keys that specs have: a label with its prefix */

struct field_step {
	const char *key; /* NULL: of an array */
	size_t len;
	size_t index; /* SIZE_MAX: append */
};

/* Takes the first step off *path: 1; 0 at the end; -EINVAL: not a path. */
int field_path_next(const char **path, struct field_step *ret_step) __must_check;

/* The value at `path` below `root`, borrowed; NULL: none. */
json_t *field_path_get(const json_t *root, const char *path);

/*
 * Sets it, and takes over `value`, also on failure. Objects and arrays on the way are made. *ret_parent, which may be NULL, is the
 * object or array that has it now. -EINVAL: not a path, or it runs through a value that is no object or array; -ERANGE: an index
 * past the end; -ENOMEM, also without a value.
 */
int field_path_set(json_t *root, const char *path, json_t *value, json_t **ret_parent) __must_check;

/* `path` and one more step, in `out` of FIELD_PATH_BYTES; longer ones are cut. Returns out. */
const char *field_path_key(const char *path, const char *key, char *out);
const char *field_path_index(const char *path, size_t index, char *out);

/* The one spelling of a path: `a[b]` is `a.b`. In `out` of FIELD_PATH_BYTES. Returns out. */
const char *field_path_normal(const char *path, char *out);
