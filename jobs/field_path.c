/* Paths of fields in JSON. See field_path.h. */
#include "jobs/field_path.h"

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

/* "[12]", "[key]", "[]". */
static int next_in_brackets(const char **path, struct field_step *step)
{
	const char *from = *path + 1;
	const char *end = strchr(from, ']');
	size_t index = 0;
	bool digits = true;

	if (!end)
		return -EINVAL;
	for (const char *p = from; p < end; p++) {
		digits = digits && *p >= '0' && *p <= '9' && index < 1000000;
		index = digits ? index * 10 + (size_t)(*p - '0') : 0;
	}
	*step = (struct field_step){ .key = digits ? NULL : from,
		.len = (size_t)(end - from),
		.index = end == from ? SIZE_MAX : index };
	*path = end + 1;
	return 1;
}

int field_path_next(const char **path, struct field_step *ret_step)
{
	size_t len;

	if (!**path)
		return 0;
	if (**path == '[')
		return next_in_brackets(path, ret_step);
	if (**path == '.')
		(*path)++;
	len = strcspn(*path, ".[");
	if (len == 0)
		return -EINVAL;
	*ret_step = (struct field_step){ .key = *path, .len = len };
	*path += len;
	return 1;
}

static json_t *step_into(const json_t *at, const struct field_step *step)
{
	if (step->key)
		return json_object_getn(at, step->key, step->len);
	return json_array_get(at, step->index); /* none at SIZE_MAX */
}

json_t *field_path_get(const json_t *root, const char *path)
{
	const json_t *at = root;
	struct field_step step;
	int r = 1;

	while (at && (r = field_path_next(&path, &step)) == 1)
		at = step_into(at, &step);
	return r == 0 ? (json_t *)(uintptr_t)at : NULL; /* the caller's to change */
}

/* Takes over `value`. */
static int put(json_t *parent, const struct field_step *step, json_t *value)
{
	size_t n = json_array_size(parent);
	size_t index = step->index == SIZE_MAX ? n : step->index;

	if (!value)
		return -ENOMEM;
	if (step->key ? !json_is_object(parent) : !json_is_array(parent)) {
		json_decref(value);
		return -EINVAL;
	}
	if (step->key)
		return json_object_setn_new(parent, step->key, step->len, value) < 0 ? -ENOMEM : 0;
	if (index > n) {
		json_decref(value);
		return -ERANGE;
	}
	return (index == n ? json_array_append_new(parent, value)
			   : json_array_set_new(parent, index, value)) < 0
		       ? -ENOMEM
		       : 0;
}

/* The container at `step`, made when there is none yet: an object when `next` has a key. */
static int enter(json_t **at, const struct field_step *step, const struct field_step *next)
{
	json_t *child = step_into(*at, step);
	int r;

	if (child) {
		*at = child;
		return 0;
	}
	child = next->key ? json_object() : json_array();
	r = put(*at, step, child);
	if (r == 0)
		*at = child;
	return r;
}

int field_path_set(json_t *root, const char *path, json_t *value, json_t **ret_parent)
{
	struct field_step step;
	struct field_step next;
	json_t *at = root;
	int r = field_path_next(&path, &step);

	if (r == 0)
		r = -EINVAL;
	while (r == 1) {
		r = field_path_next(&path, &next);
		if (r != 1)
			break;
		r = enter(&at, &step, &next);
		step = next;
		if (r == 0)
			r = 1;
	}
	if (r < 0) {
		json_decref(value);
		return r;
	}
	r = put(at, &step, value);
	if (r == 0 && ret_parent)
		*ret_parent = at;
	return r;
}

const char *field_path_key(const char *path, const char *key, char *out)
{
	bool bare = *key && !strpbrk(key, ".[]");

	(void)snprintf(out, FIELD_PATH_BYTES, bare ? "%s%s%s" : "%s%s[%s]", path,
		bare && *path ? "." : "", key); /* cut: for people */
	return out;
}

const char *field_path_index(const char *path, size_t index, char *out)
{
	int n = snprintf(out, FIELD_PATH_BYTES, "%s[%zu]", path, index);

	ensure(n > 0); /* cut: for people */
	return out;
}

const char *field_path_normal(const char *path, char *out)
{
	struct field_step step;
	char key[FIELD_PATH_BYTES];
	char before[FIELD_PATH_BYTES];

	out[0] = '\0';
	while (field_path_next(&path, &step) == 1) {
		(void)snprintf(before, sizeof(before), "%s", out); /* fits */
		(void)snprintf(key, sizeof(key), "%.*s", (int)step.len,
			step.key ? step.key : ""); /* cut: as out */
		(void)(step.key ? field_path_key(before, key, out)
				: field_path_index(before, step.index, out)); /* return out */
	}
	return out;
}
