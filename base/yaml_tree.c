/* YAML as a tree, from libyaml's events. See yaml_tree.h. */
#include "base/yaml_tree.h"
#include "base/cleanup.h"
#include "base/file.h"

#include <stdlib.h>
#include <string.h>
#include <yaml.h>

struct reader {
	const char *name;
	struct yaml_tree *tree;
	struct yaml_tree_node *open[YAML_TREE_DEPTH]; /* maps and lists not yet ended */
	unsigned int depth;
	char *key; /* of the map that is open: read, its value is not */
	unsigned int key_line;
	struct err *e;
};

void yaml_tree_free(struct yaml_tree *tree)
{
	struct yaml_tree_node *node = tree ? tree->made : NULL;

	while (node) {
		struct yaml_tree_node *before = node->made;

		free(node->key);
		free(node->text);
		free(node);
		node = before;
	}
	free(tree);
}

DEFINE_CLEANUP(struct yaml_tree *, yaml_tree_free);

static int refuse(const struct reader *r, const yaml_event_t *event, int code, const char *what)
{
	return err_set(r->e, code, "%s:%zu: %s", r->name, event->start_mark.line + 1, what);
}

/* The copy of a scalar's text; NULL: refused, with *ret_r. */
static char *copy_text(const struct reader *r, const yaml_event_t *event, int *ret_r)
{
	const char *value = (const char *)event->data.scalar.value;
	size_t len = event->data.scalar.length;
	char *text = NULL;

	if (memchr(value, '\0', len)) {
		*ret_r = refuse(r, event, -EINVAL, "a text has a zero byte: remove it");
		return NULL;
	}
	text = strndup(value, len);
	if (!text)
		*ret_r = err_set(r->e, -ENOMEM, "out of memory");
	return text;
}

static int check_key(const struct reader *r, const yaml_event_t *event, const char *key)
{
	const struct yaml_tree_node *same = yaml_tree_find(r->open[r->depth - 1], key);

	if (!same)
		return 0;
	return err_set(r->e, -EINVAL,
		"%s:%zu: %s: given twice, first in line %u: remove one of them; allowed: once",
		r->name, event->start_mark.line + 1, key, same->line);
}

static int add_node(struct reader *r, const yaml_event_t *event, enum yaml_tree_kind kind)
{
	struct yaml_tree_node *parent = r->depth ? r->open[r->depth - 1] : NULL;
	struct yaml_tree_node *node;

	if (r->tree->n == YAML_TREE_NODES)
		return refuse(r, event, -E2BIG, "too many values; allowed: 4096");
	node = calloc(1, sizeof(*node));
	if (!node)
		return err_set(r->e, -ENOMEM, "out of memory");
	node->kind = kind;
	node->line = r->key ? r->key_line : (unsigned int)event->start_mark.line + 1;
	node->key = TAKE(r->key);
	node->made = r->tree->made;
	r->tree->made = node;
	r->tree->n++;
	if (!parent) {
		r->tree->root = node;
	} else {
		if (parent->last)
			parent->last->next = node;
		else
			parent->first = node;
		parent->last = node;
		parent->n++;
	}
	return 0;
}

static bool wants_key(const struct reader *r)
{
	return r->depth && r->open[r->depth - 1]->kind == YAML_TREE_MAP && !r->key;
}

static int on_scalar(struct reader *r, const yaml_event_t *event)
{
	int result = 0;
	char *text;

	if (event->data.scalar.anchor || event->data.scalar.tag)
		return refuse(r, event, -EINVAL,
			"anchors (&) and tags (!) are not supported: write the value itself");
	text = copy_text(r, event, &result);
	if (!text)
		return result;
	if (wants_key(r)) {
		result = check_key(r, event, text);
		if (result < 0) {
			free(text);
			return result;
		}
		r->key = text;
		r->key_line = (unsigned int)event->start_mark.line + 1;
		return 0;
	}
	result = add_node(r, event, YAML_TREE_SCALAR);
	if (result < 0) {
		free(text);
		return result;
	}
	r->tree->made->text = text;
	r->tree->made->plain = event->data.scalar.style == YAML_PLAIN_SCALAR_STYLE;
	return 0;
}

static int on_container(struct reader *r, const yaml_event_t *event, enum yaml_tree_kind kind)
{
	bool map = kind == YAML_TREE_MAP;
	int result;

	if (map ? event->data.mapping_start.anchor || event->data.mapping_start.tag
		: event->data.sequence_start.anchor || event->data.sequence_start.tag)
		return refuse(r, event, -EINVAL,
			"anchors (&) and tags (!) are not supported: write the value itself");
	if (wants_key(r))
		return refuse(r, event, -EINVAL, "a key must be a text: write KEY: VALUE");
	if (r->depth == YAML_TREE_DEPTH)
		return refuse(r, event, -E2BIG, "nested too deeply; allowed: 16 levels");
	result = add_node(r, event, kind);
	if (result == 0)
		r->open[r->depth++] = r->tree->made;
	return result;
}

/* 1: the text is over. */
static int on_event(struct reader *r, const yaml_event_t *event)
{
	switch (event->type) {
	case YAML_DOCUMENT_START_EVENT:
		if (r->tree->root)
			return refuse(r, event, -EINVAL,
				"a second document begins: one text has one document, without "
				"'---' in between");
		return 0;
	case YAML_SCALAR_EVENT:
		return on_scalar(r, event);
	case YAML_SEQUENCE_START_EVENT:
		return on_container(r, event, YAML_TREE_LIST);
	case YAML_MAPPING_START_EVENT:
		return on_container(r, event, YAML_TREE_MAP);
	case YAML_SEQUENCE_END_EVENT:
	case YAML_MAPPING_END_EVENT:
		r->depth--;
		return 0;
	case YAML_ALIAS_EVENT:
		return refuse(
			r, event, -EINVAL, "aliases (*) are not supported: write the value itself");
	case YAML_STREAM_END_EVENT:
		return 1;
	case YAML_NO_EVENT:
	case YAML_STREAM_START_EVENT:
	case YAML_DOCUMENT_END_EVENT:
		break;
	}
	return 0;
}

static int not_yaml(const struct reader *r, const yaml_parser_t *parser)
{
	if (parser->error == YAML_MEMORY_ERROR)
		return err_set(r->e, -ENOMEM, "out of memory");
	return err_set(r->e, -EINVAL, "%s:%zu: not YAML: %s: write KEY: VALUE, indented by blanks",
		r->name,
		(parser->problem_mark.line ? parser->problem_mark.line : parser->mark.line) + 1,
		parser->problem ? parser->problem : "invalid");
}

static int read_events(struct reader *r, yaml_parser_t *parser)
{
	int result = 0;

	while (result == 0) {
		yaml_event_t event;

		if (!yaml_parser_parse(parser, &event))
			return not_yaml(r, parser);
		result = on_event(r, &event);
		yaml_event_delete(&event);
	}
	return result < 0 ? result : 0;
}

int yaml_tree_parse(
	const char *name, const char *text, size_t len, struct yaml_tree **ret_tree, struct err *e)
{
	_cleanup_(yaml_tree_free_p) struct yaml_tree *tree = calloc(1, sizeof(*tree));
	struct reader r = { .name = name, .tree = tree, .e = e };
	yaml_parser_t parser;
	int result;

	if (len > YAML_TREE_BYTES)
		return err_set(e, -E2BIG,
			"%s: is larger than a configuration may be; allowed: "
			"256KiB",
			name);
	if (!tree || !yaml_parser_initialize(&parser))
		return err_set(e, -ENOMEM, "out of memory");
	yaml_parser_set_encoding(&parser, YAML_UTF8_ENCODING);
	yaml_parser_set_input_string(&parser, (const unsigned char *)text, len);
	result = read_events(&r, &parser);
	yaml_parser_delete(&parser);
	free(r.key);
	if (result == 0)
		*ret_tree = TAKE(tree);
	return result;
}

int yaml_tree_read(const char *path, struct yaml_tree **ret_tree, struct err *e)
{
	_cleanup_(buf_release) struct buf text = BUF_INIT(YAML_TREE_BYTES);
	int r = file_read_all(path, &text);

	if (r == -ENOBUFS)
		return err_set(e, -E2BIG,
			"%s: is larger than a configuration may be; allowed: "
			"256KiB",
			path);
	if (r < 0)
		return err_set(
			e, r, "%s: cannot be read: %s; give a file that exists", path, err_str(r));
	return yaml_tree_parse(path, buf_str(&text), text.len, ret_tree, e);
}

const struct yaml_tree_node *yaml_tree_find(const struct yaml_tree_node *node, const char *key)
{
	if (!node || node->kind != YAML_TREE_MAP)
		return NULL;
	for (const struct yaml_tree_node *child = node->first; child; child = child->next)
		if (strcmp(child->key, key) == 0)
			return child;
	return NULL;
}

bool yaml_tree_is_null(const struct yaml_tree_node *node)
{
	return node->kind == YAML_TREE_SCALAR && node->plain &&
	       (!*node->text || strcmp(node->text, "~") == 0 || strcmp(node->text, "null") == 0);
}
