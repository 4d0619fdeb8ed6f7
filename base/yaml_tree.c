/* YAML as a tree, from libyaml's events. See yaml_tree.h. */
#include "base/yaml_tree.h"
#include "base/cleanup.h"
#include "base/file.h"

#include <stdlib.h>
#include <string.h>
#include <yaml.h>

struct reader {
	const char *name;
	bool manifest; /* else a configuration */
	struct yaml_tree *tree;
	struct yaml_tree_node *open[YAML_TREE_MANIFEST_DEPTH]; /* maps and lists not yet ended */
	unsigned int depth;
	char *key; /* of the map that is open: read, its value is not */
	unsigned int key_line;
	bool plain_key;
	struct yaml_tree_node *anchored[YAML_TREE_ANCHORS]; /* of this document */
	unsigned int n_anchored;
	unsigned int n_nodes; /* of all documents */
	size_t copied;        /* bytes of texts that aliases copied, of all documents */
	int (*see)(void *arg, const struct yaml_tree *tree); /* of a manifest */
	void *arg;
	struct err *e;
};

void yaml_tree_free(struct yaml_tree *tree)
{
	struct yaml_tree_node *node = tree ? tree->made : NULL;

	while (node) {
		struct yaml_tree_node *before = node->made;

		free(node->key);
		free(node->text);
		free(node->anchor);
		free(node);
		node = before;
	}
	free(tree);
}

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

	if (r->n_nodes == (r->manifest ? YAML_TREE_MANIFEST_NODES : YAML_TREE_NODES))
		return refuse(r, event, -E2BIG,
			r->manifest ? "too many values; allowed: 100000"
				    : "too many values; allowed: 4096");
	if (r->manifest && parent && parent->n == YAML_TREE_MANIFEST_ITEMS)
		return refuse(r, event, -E2BIG, "too many items of one map or list; allowed: 2000");
	node = calloc(1, sizeof(*node));
	if (!node)
		return err_set(r->e, -ENOMEM, "out of memory");
	node->kind = kind;
	node->line = r->key ? r->key_line : (unsigned int)event->start_mark.line + 1;
	node->plain_key = r->key && r->plain_key;
	node->key = TAKE(r->key);
	node->made = r->tree->made;
	r->tree->made = node;
	r->n_nodes++;
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

/* The newest node gets the name of an anchor, if there is one. */
static int name_node(struct reader *r, const yaml_event_t *event, const yaml_char_t *anchor)
{
	struct yaml_tree_node *node = r->tree->made;

	if (!anchor)
		return 0;
	if (r->n_anchored == YAML_TREE_ANCHORS)
		return refuse(r, event, -E2BIG, "too many anchors (&); allowed: 256");
	node->anchor = strdup((const char *)anchor);
	if (!node->anchor)
		return err_set(r->e, -ENOMEM, "out of memory");
	r->anchored[r->n_anchored++] = node;
	return 0;
}

static int on_scalar(struct reader *r, const yaml_event_t *event)
{
	int result = 0;
	char *text;

	if ((event->data.scalar.anchor && !r->manifest) || event->data.scalar.tag)
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
		r->plain_key = event->data.scalar.style == YAML_PLAIN_SCALAR_STYLE;
		return 0;
	}
	result = add_node(r, event, YAML_TREE_SCALAR);
	if (result < 0) {
		free(text);
		return result;
	}
	r->tree->made->text = text;
	r->tree->made->plain = event->data.scalar.style == YAML_PLAIN_SCALAR_STYLE;
	return name_node(r, event, event->data.scalar.anchor);
}

static int on_container(struct reader *r, const yaml_event_t *event, enum yaml_tree_kind kind)
{
	bool map = kind == YAML_TREE_MAP;
	const yaml_char_t *anchor =
		map ? event->data.mapping_start.anchor : event->data.sequence_start.anchor;
	int result;

	if ((anchor && !r->manifest) ||
		(map ? event->data.mapping_start.tag : event->data.sequence_start.tag))
		return refuse(r, event, -EINVAL,
			"anchors (&) and tags (!) are not supported: write the value itself");
	if (wants_key(r))
		return refuse(r, event, -EINVAL, "a key must be a text: write KEY: VALUE");
	if (r->depth == (r->manifest ? YAML_TREE_MANIFEST_DEPTH : YAML_TREE_DEPTH))
		return refuse(r, event, -E2BIG,
			r->manifest ? "nested too deeply; allowed: 40 levels"
				    : "nested too deeply; allowed: 16 levels");
	result = add_node(r, event, kind);
	if (result == 0)
		result = name_node(r, event, anchor);
	if (result == 0)
		r->open[r->depth++] = r->tree->made;
	return result;
}

/* A copy of a text of a node that an alias names; NULL: refused, with *ret_r. */
static char *copy_again(struct reader *r, const yaml_event_t *event, const char *text, int *ret_r)
{
	char *copy;

	r->copied += strlen(text) + 1;
	if (r->copied > YAML_TREE_MANIFEST_BYTES) {
		*ret_r = refuse(r, event, -E2BIG, "aliases (*) copy too much; allowed: 4MiB");
		return NULL;
	}
	copy = strdup(text);
	if (!copy)
		*ret_r = err_set(r->e, -ENOMEM, "out of memory");
	return copy;
}

/* Adds a copy of a node and what is below it, with the key that was read. */
static int copy_node(struct reader *r, const yaml_event_t *event, const struct yaml_tree_node *from)
{
	struct yaml_tree_node *made;
	int result;

	if (r->depth == YAML_TREE_MANIFEST_DEPTH)
		return refuse(r, event, -E2BIG, "nested too deeply; allowed: 40 levels");
	result = add_node(r, event, from->kind);
	if (result < 0)
		return result;
	made = r->tree->made;
	made->plain = from->plain;
	made->text = from->text ? copy_again(r, event, from->text, &result) : NULL;
	if (from->text && !made->text)
		return result;
	r->open[r->depth++] = made;
	for (const struct yaml_tree_node *child = from->first; child && result == 0;
		child = child->next) {
		r->key = child->key ? copy_again(r, event, child->key, &result) : NULL;
		r->key_line = made->line;
		r->plain_key = child->plain_key;
		if (result == 0)
			result = copy_node(r, event, child);
	}
	r->depth--;
	return result;
}

static int on_alias(struct reader *r, const yaml_event_t *event)
{
	const char *name = (const char *)event->data.alias.anchor;
	const struct yaml_tree_node *node = NULL;

	if (!r->manifest)
		return refuse(
			r, event, -EINVAL, "aliases (*) are not supported: write the value itself");
	if (wants_key(r))
		return refuse(r, event, -EINVAL, "a key must be a text: write KEY: VALUE");
	for (unsigned int i = r->n_anchored; i > 0 && !node; i--) /* the newest of its name */
		if (strcmp(r->anchored[i - 1]->anchor, name) == 0)
			node = r->anchored[i - 1];
	for (unsigned int i = 0; node && i < r->depth; i++)
		if (r->open[i] == node)
			node = NULL; /* it would contain itself */
	if (!node)
		return refuse(r, event, -EINVAL,
			"an alias (*) names no earlier value: write the value itself");
	return copy_node(r, event, node);
}

/* Shows a document of a manifest, and begins the next one. */
static int end_document(struct reader *r)
{
	int result = r->see(r->arg, r->tree);

	yaml_tree_free(r->tree);
	r->n_anchored = 0;
	r->tree = calloc(1, sizeof(*r->tree));
	if (result == 0 && !r->tree)
		return err_set(r->e, -ENOMEM, "out of memory");
	return result;
}

/* 1: the text is over. */
static int on_event(struct reader *r, const yaml_event_t *event)
{
	switch (event->type) {
	case YAML_DOCUMENT_START_EVENT:
		if (r->tree->root && !r->manifest)
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
		return on_alias(r, event);
	case YAML_STREAM_END_EVENT:
		return 1;
	case YAML_DOCUMENT_END_EVENT:
		return r->manifest ? end_document(r) : 0;
	case YAML_NO_EVENT:
	case YAML_STREAM_START_EVENT:
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

/* r->tree is the caller's, also on failure. */
static int parse(struct reader *r, const char *text, size_t len)
{
	yaml_parser_t parser;
	int result;

	r->tree = calloc(1, sizeof(*r->tree));
	if (!r->tree || !yaml_parser_initialize(&parser))
		return err_set(r->e, -ENOMEM, "out of memory");
	yaml_parser_set_encoding(&parser, YAML_UTF8_ENCODING);
	yaml_parser_set_input_string(&parser, (const unsigned char *)text, len);
	result = read_events(r, &parser);
	yaml_parser_delete(&parser);
	free(r->key);
	return result;
}

int yaml_tree_parse(
	const char *name, const char *text, size_t len, struct yaml_tree **ret_tree, struct err *e)
{
	struct reader r = { .name = name, .e = e };
	int result;

	if (len > YAML_TREE_BYTES)
		return err_set(e, -E2BIG,
			"%s: is larger than a configuration may be; allowed: "
			"256KiB",
			name);
	result = parse(&r, text, len);
	if (result == 0)
		*ret_tree = TAKE(r.tree);
	yaml_tree_free(r.tree);
	return result;
}

int yaml_tree_parse_manifest(const char *name, const char *text, size_t len,
	int (*see)(void *arg, const struct yaml_tree *tree), void *arg, struct err *e)
{
	struct reader r = { .name = name, .manifest = true, .see = see, .arg = arg, .e = e };
	int result;

	if (len > YAML_TREE_MANIFEST_BYTES)
		return err_set(
			e, -E2BIG, "%s: is larger than a manifest may be; allowed: 4MiB", name);
	result = parse(&r, text, len);
	yaml_tree_free(r.tree);
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
