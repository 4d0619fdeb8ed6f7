/* A job spec: reading and checking. See spec.h. */
#include "jobs/spec.h"
#include "base/cleanup.h"
#include "base/config.h"
#include "base/option.h"
#include "base/yaml_tree.h"
#include "jobs/field_path.h"
#include "jobs/quantity.h"

#include <stdlib.h>
#include <string.h>

#define FIELDS_MAX 64u

int job_spec_init(struct job_spec *spec)
{
	*spec = (struct job_spec){ .root = json_object(), .origins = json_object() };
	if (spec->root && spec->origins)
		return 0;
	job_spec_release(spec);
	return -ENOMEM;
}

void job_spec_release(struct job_spec *spec)
{
	json_decref(spec->root);
	json_decref(spec->origins);
	*spec = (struct job_spec){ 0 };
}

/* ---- where values came from ------------------------------------------------------------------ */

const char *job_spec_origin(const struct job_spec *spec, const char *path)
{
	char around[FIELD_PATH_BYTES];
	const char *origin;
	size_t len;

	(void)snprintf(around, sizeof(around), "%s", path); /* cut: not found then */
	for (;;) {
		origin = json_string_value(json_object_get(spec->origins, around));
		if (origin || !*around)
			return origin;
		len = strlen(around);
		while (len > 0 && around[len - 1] != '.' && around[len - 1] != '[')
			len--;
		around[len > 0 ? len - 1 : 0] = '\0';
	}
}

int job_spec_locate(const struct job_spec *spec, const char *path, struct err *e)
{
	const char *origin = job_spec_origin(spec, path);

	if (origin && strncmp(origin, "--", 2) == 0)
		return err_prefix(e, "%s", origin);
	return origin ? err_prefix(e, "%s: %s", origin, path) : err_prefix(e, "%s", path);
}

/* ---- reading --------------------------------------------------------------------------------- */

/* Paths of objects, which are longer than those of the spec, have room for such keys. */
static bool is_key(const char *key, size_t len)
{
	return len > 0 && len <= FIELD_KEY_MAX && !memchr(key, ']', len);
}

static bool has_keys(const char *path)
{
	struct field_step step;
	int r;

	while ((r = field_path_next(&path, &step)) == 1)
		if (step.key && !is_key(step.key, step.len))
			return false;
	return r == 0;
}

/* `framework: pytorch` becomes {name: pytorch} where a field of it is set. */
static int expand_brief(struct job_spec *spec, const char *path)
{
	const struct spec_field *field = &spec_root;
	json_t *at = spec->root;
	struct field_step step;

	while (field && field->kind == SPEC_OBJECT && field_path_next(&path, &step) == 1 &&
		step.key && *path && step.len <= FIELD_KEY_MAX) {
		char key[FIELD_KEY_MAX + 1];
		json_t *value;

		(void)snprintf(key, sizeof(key), "%.*s", (int)step.len, step.key); /* fits */
		field = spec_field_find(field->of, key);
		value = json_object_get(at, key);
		if (field && field->brief && json_is_string(value) &&
			json_object_set_new(at, key, json_pack("{s:O}", field->brief, value)) < 0)
			return -ENOMEM;
		at = json_object_get(at, key);
	}
	return 0;
}

int job_spec_put(
	struct job_spec *spec, const char *path, json_t *value, const char *origin, struct err *e)
{
	char normal[FIELD_PATH_BYTES];
	int r = has_keys(path) ? expand_brief(spec, path) : -EINVAL;

	if (r == 0)
		r = field_path_set(spec->root, path, value, NULL);
	else
		json_decref(value);
	if (r == 0)
		r = json_object_set_new(
			    spec->origins, field_path_normal(path, normal), json_string(origin)) < 0
			    ? -ENOMEM
			    : 0;
	if (r == -ENOMEM)
		return err_set(e, r, "out of memory");
	if (r < 0)
		return err_set(e, -EINVAL,
			"%s: '%s' is not the path of a field: write it as worker.replicas, "
			"storages[0].mount or labels[a.b/c]",
			origin, path);
	return 0;
}

int job_spec_set(struct job_spec *spec, const char *assignment, struct err *e)
{
	const char *equals = strchr(assignment, '=');
	char path[FIELD_PATH_BYTES];
	char origin[FIELD_PATH_BYTES + 8];

	if (!equals || equals == assignment || (size_t)(equals - assignment) >= sizeof(path))
		return err_set(e, -EINVAL,
			"--set: '%s' is not PATH=VALUE: write it as worker.replicas=4", assignment);
	(void)snprintf(path, sizeof(path), "%.*s", (int)(equals - assignment), assignment);
	(void)snprintf(origin, sizeof(origin), "--set %s", path); /* both fit */
	return job_spec_put(spec, path, json_string(equals + 1), origin, e);
}

struct reading {
	struct job_spec *spec;
	const char *name;
	struct err *e;
};

static int read_node(const struct reading *r, const struct yaml_tree_node *node, const char *path);

/* The i-th child of the node at `path`. */
static int read_child(
	const struct reading *r, const struct yaml_tree_node *child, const char *path, size_t i)
{
	char below[FIELD_PATH_BYTES];
	size_t len = child->key ? strlen(child->key) : 0;

	if (!child->key)
		(void)field_path_index(path, i, below); /* returns it */
	else if (is_key(child->key, len) && strlen(path) + len + 2 < sizeof(below))
		(void)field_path_key(path, child->key, below); /* likewise */
	else
		return err_set(r->e, -EINVAL,
			"%s:%u: invalid key '%.40s': use 1 to %u characters without ']'", r->name,
			child->line, child->key, FIELD_KEY_MAX);
	return read_node(r, child, below);
}

/* Maps and lists by their items, scalars as text; nothing written is nothing given. Depth: that of the tree. */
static int read_node(const struct reading *r, const struct yaml_tree_node *node, const char *path)
{
	char origin[FIELD_PATH_BYTES];
	size_t i = 0;
	int result = 0;

	if (yaml_tree_is_null(node))
		return 0;
	(void)snprintf(origin, sizeof(origin), "%s:%u", r->name, node->line); /* cut: for people */
	if (node->kind == YAML_TREE_SCALAR)
		return job_spec_put(r->spec, path, json_string(node->text), origin, r->e);
	if (!node->first && *path)
		return job_spec_put(r->spec, path,
			node->kind == YAML_TREE_MAP ? json_object() : json_array(), origin, r->e);
	if (json_object_set_new(r->spec->origins, path, json_string(origin)) < 0)
		return err_set(r->e, -ENOMEM, "out of memory");
	for (const struct yaml_tree_node *child = node->first; child && result == 0;
		child = child->next)
		result = read_child(r, child, path, i++);
	return result;
}

int job_spec_read(
	struct job_spec *spec, const char *name, const char *text, size_t len, struct err *e)
{
	_cleanup_(yaml_tree_free_p) struct yaml_tree *tree = NULL;
	const struct reading reading = { spec, name, e };
	int r = yaml_tree_parse(name, text, len, &tree, e);

	if (r < 0)
		return r;
	if (!tree->root || tree->root->kind != YAML_TREE_MAP)
		return err_set(e, -EINVAL, "%s: is not a job: write KEY: VALUE in each line", name);
	return read_node(&reading, tree->root, "");
}

/* ---- checking -------------------------------------------------------------------------------- */

struct checking {
	const struct job_spec *spec;
	struct err *e;
};

static int check(const struct checking *c, const struct spec_field *field, const char *path,
	const json_t *value, json_t **ret_value);

/* "90", "30s", "1h30m", "7d": seconds. */
static int parse_seconds(const char *text, long long *ret)
{
	static const struct {
		char unit;
		long long seconds;
	} units[] = { { 'd', 86400 }, { 'h', 3600 }, { 'm', 60 }, { 's', 1 } };
	long long sum = 0;
	const char *p = text;

	do {
		char *end;
		long long n = *p >= '0' && *p <= '9' ? strtoll(p, &end, 10) : -1;
		size_t i = 0;

		if (n < 0 || n > 1000000000)
			return -EINVAL;
		while (*end && i < ARRAY_SIZE(units) && units[i].unit != *end)
			i++;
		if (i == ARRAY_SIZE(units) || (!*end && p != text))
			return -EINVAL;
		sum += n * (*end ? units[i].seconds : 1);
		p = *end ? end + 1 : end;
	} while (*p);
	*ret = sum;
	return 0;
}

static int check_count(const struct spec_field *f, const char *text, json_t **ret, struct err *e)
{
	char *end;
	long long n;

	errno = 0;
	n = strtoll(text, &end, 10);
	if (errno != 0 || *end || end == text || *text == ' ' || *text == '+')
		return err_set(e, -EINVAL, "'%s' is not a whole number: write digits only", text);
	if (n < f->min || n > INT32_MAX)
		return err_set(e, -EINVAL, "%s is out of range; allowed: %lld to %d", text, f->min,
			INT32_MAX);
	*ret = json_integer(n);
	return 0;
}

static int check_fraction(const char *text, json_t **ret, struct err *e)
{
	char *end;
	double n = strtod(text, &end);

	if (*text < '0' || *text > '9' || *end || n > 1)
		return err_set(
			e, -EINVAL, "'%s' is not a fraction; allowed: 0 to 1, such as 0.9", text);
	*ret = json_real(n);
	return 0;
}

static int check_text(const struct spec_field *f, const char *text, json_t **ret, struct err *e)
{
	long long seconds = 0;

	switch (f->kind) {
	case SPEC_COUNT:
		return check_count(f, text, ret, e);
	case SPEC_FRACTION:
		return check_fraction(text, ret, e);
	case SPEC_BOOL:
		if (!option_is_choice("true|false", text))
			return err_set(e, -EINVAL,
				"'%s' is neither true nor false; allowed: true, false", text);
		*ret = json_boolean(*text == 't');
		return 0;
	case SPEC_SECONDS:
		if (parse_seconds(text, &seconds) < 0)
			return err_set(e, -EINVAL,
				"'%s' is not a duration: write it as 90s, 30m, 1h30m or 7d", text);
		*ret = json_integer(seconds);
		return 0;
	case SPEC_CHOICE:
		if (!option_is_choice(f->choices, text))
			return err_set(e, -EINVAL, "'%s' is unknown; allowed: one of %s", text,
				f->choices);
		break;
	case SPEC_QUANTITY:
		if (quantity_check(text, e) < 0)
			return -EINVAL;
		break;
	case SPEC_TEXT:
		break;
	case SPEC_OBJECT:
		return err_set(e, -EINVAL,
			"'%s' is a single value: write KEY: VALUE lines below it", text);
	case SPEC_LIST:
		return err_set(e, -EINVAL, "'%s' is a single value: write a list, with '- '", text);
	case SPEC_MAP:
		return err_set(e, -EINVAL,
			"'%s' is a single value: write KEY: VALUE lines below it", text);
	}
	*ret = json_string(text);
	return 0;
}

/* A member of an object, by either of its names. */
static const json_t *member(const json_t *object, const struct spec_field *f, const char **ret_name)
{
	const json_t *value = json_object_get(object, f->name);

	*ret_name = f->name;
	if (value || !f->also)
		return value;
	*ret_name = f->also;
	return json_object_get(object, f->also);
}

static int unknown_key(
	const struct checking *c, const struct spec_field *of, const char *path, const char *key)
{
	const char *names[FIELDS_MAX];
	char below[FIELD_PATH_BYTES];
	const char *near;
	size_t n = 0;

	for (const struct spec_field *f = of; f->name; f++)
		names[n++] = f->name;
	ensure(n <= FIELDS_MAX);
	near = config_nearest(key, names, n);
	(void)err_set(c->e, -EINVAL, "unknown field%s%s%s: `cachectl job schema` lists all fields",
		near ? ": did you mean '" : "", near ? near : "", near ? "'" : "");
	return job_spec_locate(c->spec, field_path_key(path, key, below), c->e);
}

static int check_object(const struct checking *c, const struct spec_field *field, const char *path,
	const json_t *value, json_t *out)
{
	char below[FIELD_PATH_BYTES];
	const char *name;
	json_t *item;
	int r = 0;

	json_object_foreach ((json_t *)(uintptr_t)value, name, item) /* only read */
		if (!spec_field_find(field->of, name))
			return unknown_key(c, field->of, path, name);
	for (const struct spec_field *f = field->of; f->name && r == 0; f++) {
		const json_t *given = member(value, f, &name);
		json_t *checked = NULL;

		if (!given)
			continue;
		r = check(c, f, field_path_key(path, name, below), given, &checked);
		if (r == 0 && json_object_set_new(out, f->name, checked) < 0)
			r = err_set(c->e, -ENOMEM, "out of memory");
	}
	return r;
}

static int check_items(const struct checking *c, const struct spec_field *field, const char *path,
	const json_t *value, json_t *out)
{
	char below[FIELD_PATH_BYTES];
	size_t most = field->most ? field->most : SPEC_ITEMS_MAX;
	const char *key;
	json_t *item;
	size_t i;
	int r = 0;

	if (json_object_size(value) + json_array_size(value) > most) {
		(void)err_set(c->e, -EINVAL, "has %zu items; allowed: %zu",
			json_object_size(value) + json_array_size(value), most);
		return job_spec_locate(c->spec, path, c->e);
	}
	json_object_foreach ((json_t *)(uintptr_t)value, key, item) { /* only read */
		json_t *checked = NULL;

		r = check(c, field->of, field_path_key(path, key, below), item, &checked);
		if (r == 0 && json_object_set_new(out, key, checked) < 0)
			r = err_set(c->e, -ENOMEM, "out of memory");
		if (r < 0)
			return r;
	}
	json_array_foreach (value, i, item) {
		json_t *checked = NULL;

		r = check(c, field->of, field_path_index(path, i, below), item, &checked);
		if (r == 0 && json_array_append_new(out, checked) < 0)
			r = err_set(c->e, -ENOMEM, "out of memory");
		if (r < 0)
			return r;
	}
	return 0;
}

/* `gang: true` is `gang: {enabled: true}`. */
static int check_brief(const struct checking *c, const struct spec_field *field, const char *path,
	const json_t *value, json_t **ret_value)
{
	const struct spec_field *f = spec_field_find(field->of, field->brief);
	json_t *inner = NULL;
	int r = check(c, f, path, value, &inner);

	if (r < 0)
		return r;
	*ret_value = json_pack("{s:o}", field->brief, inner);
	return *ret_value ? 0 : err_set(c->e, -ENOMEM, "out of memory");
}

static int wrong_shape(const struct checking *c, const struct spec_field *field, const char *path,
	const char *text)
{
	(void)err_set(c->e, -EINVAL, "%s is not what belongs here: write %s", text,
		field->kind == SPEC_LIST ? "a list, with '- '"
		: field->kind == SPEC_OBJECT || field->kind == SPEC_MAP
			? "KEY: VALUE lines below it"
			: "a single value");
	return job_spec_locate(c->spec, path, c->e);
}

static int check(const struct checking *c, const struct spec_field *field, const char *path,
	const json_t *value, json_t **ret_value)
{
	bool object = field->kind == SPEC_OBJECT || (field->kind == SPEC_TEXT && field->of);
	json_t *out = NULL;
	int r;

	if (json_is_string(value)) {
		if (field->brief)
			return check_brief(c, field, path, value, ret_value);
		r = check_text(field, json_string_value(value), ret_value, c->e);
		return r < 0 ? job_spec_locate(c->spec, path, c->e) : 0;
	}
	if (json_is_object(value) ? !object && field->kind != SPEC_MAP : field->kind != SPEC_LIST)
		return wrong_shape(c, field, path, json_is_object(value) ? "a map" : "a list");
	out = json_is_object(value) ? json_object() : json_array();
	if (!out)
		return err_set(c->e, -ENOMEM, "out of memory");
	r = object ? check_object(c, field, path, value, out)
		   : check_items(c, field, path, value, out);
	if (r < 0)
		json_decref(out);
	else
		*ret_value = out;
	return r;
}

int job_spec_finish(struct job_spec *spec, struct err *e)
{
	const struct checking checking = { spec, e };
	json_t *root = NULL;
	int r = check(&checking, &spec_root, "", spec->root, &root);

	if (r < 0)
		return r;
	json_decref(spec->root);
	spec->root = root;
	return 0;
}
