/* What a configuration file says to a daemon. See config.h. */
#include "base/buf.h"
#include "base/config_internal.h"
#include "base/option_doc.h"

#include <stdlib.h>
#include <string.h>

static const struct option_spec *find_key(const struct option_set *set, const char *name)
{
	for (unsigned int i = 0; i < set->n; i++)
		if (strcmp(set->specs[i].name, name) == 0 && option_is_key(&set->specs[i]))
			return &set->specs[i];
	return NULL;
}

static int add_names(const char *const *names, struct buf *out, const char **list, size_t *n)
{
	int r = 0;

	for (; *names && r == 0; names++) {
		list[(*n)++] = *names;
		r = buf_printf(out, "%s%s", out->len ? ", " : "", *names);
	}
	return r;
}

/* `top`: where sections and what is shared may stand. `own`: and keys of this daemon. */
static int unknown_key(const struct option_set *set, const char *file,
	const struct yaml_tree_node *node, bool top, bool own, struct err *e)
{
	const char *names[OPTION_SPECS_MAX + CONFIG_SECTIONS + CONFIG_SHARED] = { NULL };
	_cleanup_(buf_release) struct buf all = BUF_INIT(ERR_TEXT_MAX);
	const char *near;
	size_t n = 0;
	int r = 0;

	for (unsigned int i = 0; own && i < set->n && r == 0; i++)
		if (option_is_key(&set->specs[i])) {
			names[n++] = set->specs[i].name;
			r = buf_printf(&all, "%s%s", all.len ? ", " : "", set->specs[i].name);
		}
	if (top && !own)
		r = add_names(config_shared_names, &all, names, &n);
	if (top && r == 0)
		r = add_names(config_section_names, &all, names, &n);
	near = config_nearest(node->key, names, n);
	if (r < 0)
		return err_set(e, r, "out of memory");
	if (top && !own && find_key(set, node->key))
		return err_set(e, -EINVAL,
			"%s:%u: %s: is outside its section: put it below %s:; allowed: %s", file,
			node->line, node->key, set->section, buf_str(&all));
	return err_set(e, -EINVAL, "%s:%u: %.*s: unknown key%s%s%s; allowed: %s", file, node->line,
		(int)CONFIG_WORD_MAX, node->key, near ? ": did you mean " : "", near ? near : "",
		near ? "?" : "", buf_str(&all));
}

static int refuse(const char *file, const struct yaml_tree_node *node,
	const struct option_spec *spec, const char *what, struct err *e)
{
	char allowed[256];

	option_allowed(spec, allowed, sizeof(allowed));
	return err_set(e, -EINVAL, "%s:%u: %s: %s; allowed: %s%s", file, node->line, spec->name,
		what, allowed, spec->kind == OPTION_LIST ? ", or a list of them" : "");
}

/* Bytes of all texts of a scalar, or of a list of scalars. */
static int check_shape(const char *file, const struct yaml_tree_node *node,
	const struct option_spec *spec, size_t *ret_bytes, struct err *e)
{
	if (node->kind == YAML_TREE_MAP)
		return refuse(file, node, spec, "is a map", e);
	if (node->kind == YAML_TREE_LIST && spec->kind != OPTION_LIST)
		return refuse(file, node, spec, "is a list", e);
	if (yaml_tree_is_null(node))
		return refuse(file, node, spec, "has no value: remove the key, or give one", e);
	if (node->kind == YAML_TREE_SCALAR) {
		*ret_bytes = strlen(node->text) + 1;
		return 0;
	}
	*ret_bytes = 1;
	for (const struct yaml_tree_node *item = node->first; item; item = item->next) {
		if (item->kind != YAML_TREE_SCALAR || yaml_tree_is_null(item))
			return refuse(file, item, spec, "has an item that is not a string", e);
		*ret_bytes += strlen(item->text) + 1;
	}
	return 0;
}

static int set_from_node(struct config_loaded *l, const struct option_spec *spec,
	const struct yaml_tree_node *node, char *at, struct err *e)
{
	bool list = node->kind == YAML_TREE_LIST;
	const struct yaml_tree_node *item = list ? node->first : node;
	int r = 0;

	for (; item && r == 0; item = list ? item->next : NULL) {
		size_t len = strlen(item->text) + 1;

		memcpy(at, item->text, len);
		r = option_set_value(spec, at, l->values, e);
		at += len;
	}
	return r;
}

static int apply_key(const struct option_set *set, const char *file,
	const struct yaml_tree_node *node, const struct option_spec *spec, struct config_loaded *l,
	struct err *e)
{
	unsigned int index = (unsigned int)(spec - set->specs);
	struct err why = ERR_INIT;
	size_t bytes = 0;
	char *at;
	int r = check_shape(file, node, spec, &bytes, e);

	if (r < 0)
		return r;
	ensure(bytes > 0); /* for the analyzer */
	at = malloc(bytes);
	if (!at)
		return err_set(e, -ENOMEM, "out of memory");
	config_own_text(l, spec, index, at);
	r = set_from_node(l, spec, node, at, &why);
	if (r < 0)
		return err_set(e, r, "%s:%u: %s: %s", file, node->line, spec->name, why.text);
	l->origins[index] = ORIGIN_FILE;
	l->lines[index] = node->line;
	option_seen_add(&l->seen, index);
	return 0;
}

/* A daemon's name may also be a key: `master` of the worker is an address. */
static bool is_section(const struct yaml_tree_node *node)
{
	return (node->kind == YAML_TREE_MAP || yaml_tree_is_null(node)) &&
	       config_is_in(config_section_names, node->key);
}

static int apply_section(const struct option_set *set, const char *file,
	const struct yaml_tree_node *section, struct config_loaded *l, struct err *e)
{
	int r = 0;

	if (!section || section->kind != YAML_TREE_MAP)
		return 0;
	for (const struct yaml_tree_node *node = section->first; node && r == 0;
		node = node->next) {
		const struct option_spec *spec = find_key(set, node->key);

		r = spec ? apply_key(set, file, node, spec, l, e)
			 : unknown_key(set, file, node, false, true, e);
	}
	return r;
}

int config_apply_tree(const struct option_set *set, const char *file,
	const struct yaml_tree_node *root, struct config_loaded *l, struct err *e)
{
	const struct yaml_tree_node *own = NULL;
	bool sectioned = false;
	int r = 0;

	if (!root || yaml_tree_is_null(root))
		return 0;
	if (root->kind != YAML_TREE_MAP)
		return err_set(e, -EINVAL, "%s:%u: is not a map; allowed: KEY: VALUE in each line",
			file, root->line);
	for (const struct yaml_tree_node *node = root->first; node; node = node->next)
		if (is_section(node)) {
			sectioned = true;
			if (strcmp(node->key, set->section) == 0)
				own = node;
		}
	l->sectioned = sectioned;
	for (const struct yaml_tree_node *node = root->first; node && r == 0; node = node->next) {
		const struct option_spec *spec = find_key(set, node->key);

		if (is_section(node))
			continue;
		if (sectioned && !config_is_in(config_shared_names, node->key))
			r = unknown_key(set, file, node, true, false, e);
		else if (spec)
			r = apply_key(set, file, node, spec, l, e);
		else
			r = unknown_key(set, file, node, true, true, e);
	}
	return r == 0 ? apply_section(set, file, own, l, e) : r;
}
