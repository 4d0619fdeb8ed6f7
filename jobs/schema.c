/* Objects against the schemas of their kinds. See schema.h. */
#include "jobs/schema.h"
#include "jobs/field_path.h"
#include "jobs/quantity.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DEPTH_MAX 40u

extern const unsigned char job_schemas_json[];
extern const unsigned long job_schemas_bytes;

struct check {
	const struct job_schemas *schemas;
	schema_found found;
	void *arg;
	unsigned int depth;
};

int job_schemas_open(struct job_schemas *ret_schemas, struct err *e)
{
	json_t *root = json_loadb((const char *)job_schemas_json, job_schemas_bytes, 0, NULL);

	if (!root)
		return err_set(e, -ENOMEM, "out of memory");
	ret_schemas->root = root;
	return 0;
}

void job_schemas_close(struct job_schemas *schemas)
{
	json_decref(schemas->root);
	schemas->root = NULL;
}

const json_t *job_schema_of(const struct job_schemas *schemas, const char *api, const char *kind)
{
	char name[256];

	(void)snprintf(name, sizeof(name), "%s %s", api, kind); /* cut: not found then */
	return json_object_get(json_object_get(schemas->root, "kinds"), name);
}

static void report(const struct check *c, const char *path, const char *format, ...) __printf(3, 4);
static void report(const struct check *c, const char *path, const char *format, ...)
{
	char text[FIELD_PATH_BYTES];
	va_list ap;

	va_start(ap, format);
	(void)vsnprintf(text, sizeof(text), format, ap); /* cut: for people */
	va_end(ap);
	c->found(c->arg, path, text);
}

static bool is_type(const json_t *value, const char *type)
{
	if (strcmp(type, "object") == 0)
		return json_is_object(value);
	if (strcmp(type, "array") == 0)
		return json_is_array(value);
	if (strcmp(type, "string") == 0)
		return json_is_string(value);
	if (strcmp(type, "integer") == 0)
		return json_is_integer(value);
	if (strcmp(type, "number") == 0)
		return json_is_number(value);
	return strcmp(type, "boolean") != 0 || json_is_boolean(value);
}

static bool is_in(const json_t *list, const json_t *value)
{
	const json_t *one;
	size_t i;

	json_array_foreach (list, i, one)
		if (json_equal(one, value))
			return true;
	return false;
}

static bool out_of_bounds(const json_t *schema, const char *least, const char *most, double n)
{
	const json_t *low = json_object_get(schema, least);
	const json_t *high = json_object_get(schema, most);

	return (low && n < json_number_value(low)) || (high && n > json_number_value(high));
}

static void check_scalar(
	const struct check *c, const json_t *schema, const json_t *value, const char *path)
{
	const json_t *list = json_object_get(schema, "enum");
	struct quantity q;

	if (list && !is_in(list, value)) {
		char *all = json_dumps(list, JSON_COMPACT);

		report(c, path, "is not one of %s", all ? all : "its values");
		free(all);
	}
	if (json_is_number(value) &&
		out_of_bounds(schema, "minimum", "maximum", json_number_value(value)))
		report(c, path, "is out of range");
	if (json_is_string(value) &&
		out_of_bounds(schema, "minLength", "maxLength", (double)json_string_length(value)))
		report(c, path, "is too short or too long");
	if (json_object_get(schema, "x-kubernetes-int-or-string") &&
		json_object_get(schema, "pattern") && json_is_string(value) &&
		quantity_parse(json_string_value(value), &q) < 0)
		report(c, path, "is not a quantity");
}

/* To a cluster null is not given. */
static bool is_given(const json_t *value)
{
	return value && !json_is_null(value);
}

static void check_value(
	struct check *c, const json_t *schema, const json_t *value, const char *path);

static void check_object(
	struct check *c, const json_t *schema, const json_t *value, const char *path)
{
	const json_t *fields = json_object_get(schema, "properties");
	const json_t *others = json_object_get(schema, "additionalProperties");
	bool any = !fields || json_object_get(schema, "x-kubernetes-preserve-unknown-fields") ||
		   json_is_true(others);
	char below[FIELD_PATH_BYTES];
	const json_t *name;
	const char *key;
	json_t *item;
	size_t i;

	json_array_foreach (json_object_get(schema, "required"), i, name)
		if (!is_given(json_object_get(value, json_string_value(name))))
			report(c, path, "has no %s", json_string_value(name));
	json_object_foreach ((json_t *)(uintptr_t)value, key, item) { /* only read */
		const json_t *field = json_object_get(fields, key);

		(void)field_path_key(path, key, below); /* returns it */
		if (!is_given(item) || (!*path && strcmp(key, "status") == 0))
			continue; /* a status is the operator's */
		if (field || json_is_object(others))
			check_value(c, field ? field : others, item, below);
		else if (!any)
			report(c, below, "is an unknown field");
	}
}

static void check_array(
	struct check *c, const json_t *schema, const json_t *value, const char *path)
{
	const json_t *items = json_object_get(schema, "items");
	char below[FIELD_PATH_BYTES];
	const json_t *item;
	size_t i;

	if (out_of_bounds(schema, "minItems", "maxItems", (double)json_array_size(value)))
		report(c, path, "has too few or too many items");
	json_array_foreach (value, i, item)
		check_value(c, items, item, field_path_index(path, i, below));
}

static void check_value(
	struct check *c, const json_t *schema, const json_t *value, const char *path)
{
	const char *reference = json_string_value(json_object_get(schema, "$ref"));
	const char *type;

	if (reference)
		schema = json_object_get(json_object_get(c->schemas->root, "shared"), reference);
	if (!schema || c->depth == DEPTH_MAX)
		return;
	type = json_string_value(json_object_get(schema, "type"));
	if (json_object_get(schema, "x-kubernetes-int-or-string")) {
		if (!json_is_integer(value) && !json_is_string(value))
			report(c, path, "is neither a text nor a whole number");
		type = NULL;
	}
	if (type && !is_type(value, type)) {
		report(c, path, "is not of type %s", type);
		return;
	}
	c->depth++;
	if (json_is_object(value))
		check_object(c, schema, value, path);
	else if (json_is_array(value))
		check_array(c, schema, value, path);
	else
		check_scalar(c, schema, value, path);
	c->depth--;
}

void job_schema_check(const struct job_schemas *schemas, const json_t *schema, const json_t *object,
	schema_found found, void *arg)
{
	struct check c = { schemas, found, arg, 0 };

	check_value(&c, schema, object, "");
}
