/* The JSON schema of a job spec, made from the table of its fields. See spec.h. */
#include "jobs/spec.h"

#include <string.h>

static json_t *schema_of(const struct spec_field *field);

/* A value written as text is accepted for each type, as YAML and --set have it. */
static json_t *typed(const char *type, const char *pattern)
{
	return json_pack("{s:[s, s], s:s}", "type", type, "string", "pattern", pattern);
}

static json_t *choices_schema(const char *choices)
{
	json_t *list = json_array();

	for (const char *p = choices; p; p = strchr(p, '|'), p = p ? p + 1 : NULL)
		if (json_array_append_new(list, json_stringn(p, strcspn(p, "|"))) < 0) {
			json_decref(list);
			return NULL;
		}
	return json_pack("{s:s, s:o}", "type", "string", "enum", list);
}

static json_t *object_schema(const struct spec_field *of)
{
	json_t *properties = json_object();

	for (const struct spec_field *f = of; f->name; f++)
		if (json_object_set_new(properties, f->name, schema_of(f)) < 0 ||
			(f->also && json_object_set_new(properties, f->also, schema_of(f)) < 0)) {
			json_decref(properties);
			return NULL;
		}
	return json_pack("{s:s, s:o, s:b}", "type", "object", "properties", properties,
		"additionalProperties", 0);
}

static json_t *bare_schema(const struct spec_field *field)
{
	int most = (int)(field->most ? field->most : SPEC_ITEMS_MAX);
	static const char seconds[] = "^([0-9]+|([0-9]+[dhms])+)$";

	switch (field->kind) {
	case SPEC_TEXT:
		return json_pack("{s:[s, s, s]}", "type", "string", "number", "boolean");
	case SPEC_CHOICE:
		return choices_schema(field->choices);
	case SPEC_COUNT:
		return json_pack(
			"{s:s, s:I}", "type", "integer", "minimum", (json_int_t)field->min);
	case SPEC_BOOL:
		return json_pack("{s:s}", "type", "boolean");
	case SPEC_QUANTITY:
		return typed("number", "^[0-9.]+([numkMGTPE]|[KMGTPE]i|[eE][-+]?[0-9]+)?$");
	case SPEC_SECONDS:
		return typed("integer", seconds);
	case SPEC_FRACTION:
		return json_pack("{s:s, s:i, s:i}", "type", "number", "minimum", 0, "maximum", 1);
	case SPEC_OBJECT:
		return object_schema(field->of);
	case SPEC_LIST:
		return json_pack("{s:s, s:o, s:i}", "type", "array", "items", schema_of(field->of),
			"maxItems", most);
	case SPEC_MAP:
		return json_pack("{s:s, s:o, s:i}", "type", "object", "additionalProperties",
			schema_of(field->of), "maxProperties", most);
	}
	return NULL;
}

static json_t *schema_of(const struct spec_field *field)
{
	json_t *schema = bare_schema(field);
	json_t *other = NULL;

	if (field->brief)
		other = bare_schema(spec_field_find(field->of, field->brief));
	else if (field->kind == SPEC_TEXT && field->of)
		other = object_schema(field->of);
	if (other)
		schema = json_pack("{s:[o, o]}", "anyOf", schema, other);
	if (schema && json_object_set_new(schema, "description", json_string(field->help)) < 0) {
		json_decref(schema);
		return NULL;
	}
	return schema;
}

json_t *job_spec_schema(void)
{
	json_t *schema = schema_of(&spec_root);

	if (schema &&
		(json_object_set_new(schema, "$schema",
			 json_string("https://json-schema.org/draft/2020-12/schema")) < 0 ||
			json_object_set_new(schema, "title", json_string("Job of cachectl")) < 0)) {
		json_decref(schema);
		return NULL;
	}
	return schema;
}
