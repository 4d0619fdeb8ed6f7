/* Manifests of Kubernetes as JSON. See manifest.h. */
#include "jobs/manifest.h"
#include "base/yaml_tree.h"

#include <stdlib.h>
#include <string.h>

#define MANIFEST_OBJECTS 1000u

struct reading {
	const char *name;
	json_t *objects;
	struct err *e;
};

/* ---- scalars --------------------------------------------------------------------------------- */

static bool is_word(const char *text, const char *const *words, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (strcmp(text, words[i]) == 0)
			return true;
	return false;
}

/* Decimal, 0x, 0o, 0 and 0b, with '_' anywhere; NULL: no integer. */
static json_t *integer_of(const char *text)
{
	char digits[64];
	size_t n = 0;
	bool negative = *text == '-';
	const char *p = text + (*text == '-' || *text == '+');
	int base = 10;
	long long value;
	char *end;

	if (*p < '0' || *p > '9')
		return NULL;
	if (*p == '0' && p[1]) {
		bool prefixed = strchr("xXoObB", p[1]) != NULL;

		base = strchr("xX", p[1]) ? 16 : strchr("bB", p[1]) ? 2 : 8;
		p += prefixed ? 2 : 1;
	}
	for (; *p && n + 1 < sizeof(digits); p++)
		if (*p != '_')
			digits[n++] = *p;
	digits[n] = '\0';
	if (n == 0 || digits[0] == '-' || digits[0] == '+' || digits[0] == ' ')
		return NULL;
	errno = 0;
	value = strtoll(digits, &end, base);
	return *end || errno != 0 ? NULL : json_integer(negative ? -value : value);
}

/* With a point or an exponent, as JSON or YAML write it; NULL: no number. */
static json_t *real_of(const char *text)
{
	const char *p = text + (*text == '-' || *text == '+');
	size_t digits = strspn(p, "0123456789");
	char *end;
	double value;

	if (digits == 0 && *p != '.')
		return NULL;
	if (strspn(text, "0123456789+-.eE") != strlen(text) || !strpbrk(text, "0123456789"))
		return NULL;
	value = strtod(text, &end);
	return *end ? NULL : json_real(value);
}

static json_t *scalar_of(const struct yaml_tree_node *node)
{
	static const char *const yes[] = { "y", "Y", "yes", "Yes", "YES", "on", "On", "ON", "true",
		"True", "TRUE" };
	static const char *const no[] = { "n", "N", "no", "No", "NO", "off", "Off", "OFF", "false",
		"False", "FALSE" };
	static const char *const nothing[] = { "", "~", "null", "Null", "NULL" };
	json_t *number;

	if (!node->plain)
		return json_string(node->text);
	if (is_word(node->text, nothing, ARRAY_SIZE(nothing)))
		return json_null();
	if (is_word(node->text, yes, ARRAY_SIZE(yes)))
		return json_true();
	if (is_word(node->text, no, ARRAY_SIZE(no)))
		return json_false();
	number = integer_of(node->text);
	if (!number)
		number = real_of(node->text);
	return number ? number : json_string(node->text);
}

/* ---- nodes ----------------------------------------------------------------------------------- */

/* Members of a map that `into` does not have, or of a list of maps, of which the first one counts. */
static int merge(json_t *into, const json_t *value)
{
	const char *key;
	json_t *item;
	size_t i;
	int r = 0;

	json_object_foreach ((json_t *)(uintptr_t)value, key, item) /* only read */
		if (!json_object_get(into, key) && json_object_set(into, key, item) < 0)
			r = -ENOMEM;
	json_array_foreach (value, i, item)
		if (json_is_object(item) && merge(into, item) < 0)
			r = -ENOMEM;
	return r;
}

static json_t *value_of(const struct yaml_tree_node *node);

/* `<<: *name` adds what the map does not have itself. */
static json_t *map_of(const struct yaml_tree_node *node)
{
	json_t *map = json_object();
	json_t *merged = NULL;
	int r = 0;

	for (const struct yaml_tree_node *child = node->first; child && r == 0;
		child = child->next) {
		json_t *value = value_of(child);

		if (child->plain_key && strcmp(child->key, "<<") == 0 &&
			(json_is_object(value) || json_is_array(value)))
			merged = value; /* a key is given once */
		else
			r = json_object_set_new(map, child->key, value);
	}
	if (r == 0)
		r = merge(map, merged);
	json_decref(merged);
	if (r == 0)
		return map;
	json_decref(map);
	return NULL;
}

/* Depth: that of the tree. NULL: no memory. */
static json_t *value_of(const struct yaml_tree_node *node)
{
	json_t *list;

	if (node->kind == YAML_TREE_SCALAR)
		return scalar_of(node);
	if (node->kind == YAML_TREE_MAP)
		return map_of(node);
	list = json_array();
	for (const struct yaml_tree_node *child = node->first; child; child = child->next)
		if (json_array_append_new(list, value_of(child)) < 0) {
			json_decref(list);
			return NULL;
		}
	return list;
}

/* Takes over `value`: an object, or a List of them. */
static int add(const struct reading *r, unsigned int line, json_t *value)
{
	const char *kind = json_string_value(json_object_get(value, "kind"));
	json_t *items = json_object_get(value, "items");
	json_t *item;
	size_t i;
	int result = 0;

	if (!json_is_object(value))
		result = err_set(r->e, -EINVAL, "%s:%u: is not an object: write KEY: VALUE lines",
			r->name, line);
	else if (kind && strcmp(kind, "List") == 0 && json_is_array(items))
		json_array_foreach (items, i, item)
			result = result < 0 ? result : add(r, line, json_incref(item));
	else
		result = json_array_append(r->objects, value) < 0
				 ? err_set(r->e, -ENOMEM, "out of memory")
				 : 0;
	json_decref(value);
	if (result == 0 && json_array_size(r->objects) > MANIFEST_OBJECTS)
		return err_set(
			r->e, -E2BIG, "%s:%u: too many objects; allowed: 1000", r->name, line);
	return result;
}

static int see_document(void *arg, const struct yaml_tree *tree)
{
	const struct reading *r = arg;
	json_t *value;

	if (!tree->root || yaml_tree_is_null(tree->root))
		return 0;
	value = value_of(tree->root);
	return value ? add(r, tree->root->line, value) : err_set(r->e, -ENOMEM, "out of memory");
}

int manifest_read(const char *name, const char *text, size_t len, json_t *objects, struct err *e)
{
	struct reading r = { name, objects, e };

	return yaml_tree_parse_manifest(name, text, len, see_document, &r, e);
}
