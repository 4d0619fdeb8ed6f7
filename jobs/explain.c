/* Which part of the spec made each field of the objects. See compile.h. */
#include "jobs/compile.h"
#include "jobs/field_path.h"

#include <string.h>

struct explaining {
	const struct job_spec *spec;
	const struct job_objects *objects;
	json_t *out;
	char name[FIELD_PATH_BYTES]; /* of the object */
	int error;
};

/* Field of the spec that a member of `parent` comes from; NULL: not noted. */
static const char *source_of(
	const struct explaining *x, const json_t *parent, const char *key, size_t index)
{
	for (size_t i = x->objects->n_sources; i > 0; i--) {
		const struct job_source *s = &x->objects->sources[i - 1];

		if (s->parent == parent &&
			(key ? s->key && strcmp(s->key, key) == 0 : !s->key && s->index == index))
			return s->path;
	}
	return NULL;
}

static void add(struct explaining *x, const char *path, json_t *value, const char *from)
{
	const char *origin = from ? job_spec_origin(x->spec, from) : NULL;
	json_t *row = json_pack("{s:s, s:s, s:O, s:s?, s:s?}", "object", x->name, "field", path,
		"value", value, "spec", from, "from", origin);

	if (json_array_append_new(x->out, row) < 0)
		x->error = -ENOMEM;
}

static void walk(struct explaining *x, const char *path, json_t *value, const char *from)
{
	char below[FIELD_PATH_BYTES];
	const char *key;
	const char *noted;
	json_t *item;
	size_t i;

	if (!json_is_object(value) && !json_is_array(value)) {
		add(x, path, value, from);
		return;
	}
	json_object_foreach (value, key, item) {
		noted = source_of(x, value, key, 0);
		walk(x, field_path_key(path, key, below), item, noted ? noted : from);
	}
	json_array_foreach (value, i, item) {
		noted = source_of(x, value, NULL, i);
		walk(x, field_path_index(path, i, below), item, noted ? noted : from);
	}
}

json_t *job_explain(const struct job_spec *spec, const struct job_objects *objects)
{
	struct explaining x = { .spec = spec, .objects = objects, .out = json_array() };
	json_t *object;
	size_t i;

	json_array_foreach (objects->list, i, object) {
		(void)snprintf(x.name, sizeof(x.name), "%s/%s",
			json_string_value(json_object_get(object, "kind")),
			json_string_value(
				field_path_get(object, "metadata.name"))); /* cut: for people */
		walk(&x, "", object, NULL);
	}
	if (x.error < 0) {
		json_decref(x.out);
		return NULL;
	}
	return x.out;
}
