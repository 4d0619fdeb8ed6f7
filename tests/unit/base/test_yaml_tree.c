/* YAML as a tree: what it reads, with its lines, and what it refuses, at each bound. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "base/yaml_tree.h"

static struct yaml_tree *parse(const char *text)
{
	struct yaml_tree *tree = NULL;
	struct err e = ERR_INIT;

	if (yaml_tree_parse("f", text, strlen(text), &tree, &e) < 0)
		fail_msg("%s", e.text);
	return tree;
}

static void nodes_know_their_lines(void **state)
{
	struct yaml_tree *tree = parse("# a comment\n"
				       "log-level: debug\n"
				       "worker:\n"
				       "  tier:\n"
				       "    - /a\n"
				       "    - '/b,kind=ram'\n"
				       "  memory:\n"
				       "    2GiB\n");
	const struct yaml_tree_node *worker = yaml_tree_find(tree->root, "worker");
	const struct yaml_tree_node *tier = yaml_tree_find(worker, "tier");

	(void)state;
	assert_int_equal(tree->root->kind, YAML_TREE_MAP);
	assert_int_equal(tree->root->n, 2);
	assert_string_equal(yaml_tree_find(tree->root, "log-level")->text, "debug");
	assert_int_equal(yaml_tree_find(tree->root, "log-level")->line, 2);
	assert_int_equal(worker->line, 3);
	assert_int_equal(tier->kind, YAML_TREE_LIST);
	assert_int_equal(tier->n, 2);
	assert_string_equal(tier->first->text, "/a");
	assert_true(tier->first->plain);
	assert_int_equal(tier->first->line, 5);
	assert_string_equal(tier->last->text, "/b,kind=ram");
	assert_false(tier->last->plain);
	assert_string_equal(yaml_tree_find(worker, "memory")->text, "2GiB");
	assert_int_equal(yaml_tree_find(worker, "memory")->line, 7); /* its key's */
	assert_null(yaml_tree_find(worker, "capacity"));
	assert_null(yaml_tree_find(tier, "memory"));
	yaml_tree_free(tree);
}

static void nothing_is_no_tree(void **state)
{
	static const char *const texts[] = { "", "\n\n", "# only this\n" };
	struct yaml_tree *tree;

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(texts); i++) {
		tree = parse(texts[i]);
		assert_null(tree->root);
		yaml_tree_free(tree);
	}
	tree = parse("a:\nb: ~\nc: null\nd: ''\ne: 0\n");
	assert_true(yaml_tree_is_null(yaml_tree_find(tree->root, "a")));
	assert_true(yaml_tree_is_null(yaml_tree_find(tree->root, "b")));
	assert_true(yaml_tree_is_null(yaml_tree_find(tree->root, "c")));
	assert_false(yaml_tree_is_null(yaml_tree_find(tree->root, "d")));
	assert_false(yaml_tree_is_null(yaml_tree_find(tree->root, "e")));
	assert_false(yaml_tree_is_null(tree->root));
	yaml_tree_free(tree);
	yaml_tree_free(NULL);
}

static void refusals_name_line_and_reason(void **state)
{
	static const struct {
		const char *text;
		const char *says;
	} cases[] = {
		{ "a: 1\nb: [1, 2\n", "f:3: not YAML: did not find expected ',' or ']'" },
		{ "a: 1\n b: 2\n", "f:2: not YAML: mapping values are not allowed" },
		{ "a: 1\n\tb: 2\n", "f:2: not YAML: " },
		{ "a: 1\nb: \"\xff\"\n", "not YAML: invalid leading UTF-8 octet" },
		{ "a: 1\nb: 2\na: 3\n", "f:3: a: given twice, first in line 1: remove one of them; "
					"allowed: once" },
		{ "a: &x 1\n", "f:1: anchors (&) and tags (!) are not supported" },
		{ "a: &x [1]\n", "f:1: anchors (&) and tags (!)" },
		{ "a: &x {b: 1}\n", "f:1: anchors (&) and tags (!)" },
		{ "a: 1\nb: *a\n", "f:2: aliases (*) are not supported" },
		{ "a: !!str 1\n", "f:1: anchors (&) and tags (!)" },
		{ "a: !x [1]\n", "f:1: anchors (&) and tags (!)" },
		{ "a: 1\n---\nb: 2\n", "f:2: a second document begins" },
		{ "a: 1\n? [b]\n: 2\n", "f:2: a key must be a text" },
		{ "a: \"x\\0y\"\n", "f:1: a text has a zero byte" },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct yaml_tree *tree = NULL;
		struct err e = ERR_INIT;

		assert_int_equal(
			yaml_tree_parse("f", cases[i].text, strlen(cases[i].text), &tree, &e),
			-EINVAL);
		assert_null(tree);
		if (!strstr(e.text, cases[i].says))
			fail_msg("'%s' says: %s", cases[i].text, e.text);
	}
}

/* `n` times `part`, parsed. */
static int parse_many(const char *part, unsigned int n, struct err *e)
{
	struct buf text = BUF_INIT(1u << 20);
	struct yaml_tree *tree = NULL;
	int r;

	for (unsigned int i = 0; i < n; i++)
		assert_int_equal(buf_puts(&text, part), 0);
	r = yaml_tree_parse("f", buf_str(&text), text.len, &tree, e);
	yaml_tree_free(tree);
	buf_release(&text);
	return r;
}

static void every_bound_holds(void **state)
{
	struct err e = ERR_INIT;
	char nested[256] = "";
	struct yaml_tree *tree = NULL;

	(void)state;
	assert_int_equal(parse_many("- x\n", YAML_TREE_NODES - 1, &e), 0); /* and the list */
	assert_int_equal(parse_many("- x\n", YAML_TREE_NODES, &e), -E2BIG);
	assert_string_equal(e.text, "f:4096: too many values; allowed: 4096");
	assert_int_equal(parse_many("# 345678901234\n", YAML_TREE_BYTES / 16, &e), 0);
	assert_int_equal(parse_many("# 345678901234\n", YAML_TREE_BYTES / 15 + 1, &e), -E2BIG);
	assert_string_equal(e.text, "f: is larger than a configuration may be; allowed: 256KiB");
	memset(nested, '[', YAML_TREE_DEPTH);
	memset(nested + YAML_TREE_DEPTH, ']', YAML_TREE_DEPTH);
	tree = parse(nested);
	yaml_tree_free(tree);
	memset(nested, '[', YAML_TREE_DEPTH + 1);
	memset(nested + YAML_TREE_DEPTH + 1, ']', YAML_TREE_DEPTH + 1);
	tree = NULL;
	assert_int_equal(yaml_tree_parse("f", nested, strlen(nested), &tree, &e), -E2BIG);
	assert_string_equal(e.text, "f:1: nested too deeply; allowed: 16 levels");
}

static void a_file_that_is_not_there_is_said(void **state)
{
	struct yaml_tree *tree = NULL;
	struct err e = ERR_INIT;

	(void)state;
	assert_int_equal(yaml_tree_read("/nonexistent/granary.yaml", &tree, &e), -ENOENT);
	assert_string_equal(e.text, "/nonexistent/granary.yaml: cannot be read: No such file or "
				    "directory; give a file that exists");
	assert_int_equal(yaml_tree_read("/", &tree, &e), -EISDIR);
}

struct seen {
	unsigned int documents;
	char text[256]; /* keys and scalars of the last one */
};

static void add_text(struct seen *seen, const struct yaml_tree_node *node)
{
	size_t len = strlen(seen->text);

	(void)snprintf(seen->text + len, sizeof(seen->text) - len, "%s=%s ",
		node->key ? node->key : "", node->text ? node->text : "");
	for (node = node->first; node; node = node->next)
		add_text(seen, node);
}

static int see(void *arg, const struct yaml_tree *tree)
{
	struct seen *seen = arg;

	seen->documents++;
	seen->text[0] = '\0';
	if (tree->root)
		add_text(seen, tree->root);
	return seen->documents == 3 ? -EBUSY : 0;
}

static int manifest(const char *text, struct seen *seen, struct err *e)
{
	*seen = (struct seen){ 0 };
	return yaml_tree_parse_manifest("f", text, strlen(text), see, seen, e);
}

static void manifests(void **state)
{
	static const char *const refused[] = { "a: &x [*x]\n", "a: *x\n", "&x a: b\n*x : c\n",
		"a: !t b\n", "a: 1\na: 2\n" };
	struct seen seen;
	struct err e = ERR_INIT;

	(void)state;
	assert_int_equal(manifest("a: 1\n---\nb: &x {c: [d, e]}\nf: *x\n", &seen, &e), 0);
	assert_int_equal(seen.documents, 2);
	assert_string_equal(seen.text, "= b= c= =d =e f= c= =d =e ");
	assert_int_equal(manifest("a: 1\n---\na: 2\n---\na: 3\n---\na: 4\n", &seen, &e), -EBUSY);
	assert_int_equal(seen.documents, 3);
	for (size_t i = 0; i < sizeof(refused) / sizeof(refused[0]); i++) {
		e.text[0] = '\0';
		assert_int_equal(manifest(refused[i], &seen, &e), -EINVAL);
		assert_non_null(strstr(e.text, "f:"));
	}
}

/* `n` times a text, after a head; the caller's. */
static char *many(const char *head, const char *each, unsigned int n)
{
	size_t len = strlen(each);
	char *text = malloc(strlen(head) + n * len + 4);
	char *p;

	assert_non_null(text);
	p = stpcpy(text, head);
	for (unsigned int i = 0; i < n; i++, p += len)
		memcpy(p, each, len);
	memcpy(p, "]\n", 3);
	return text; /* room for one more character */
}

static int count(void *arg, const struct yaml_tree *tree)
{
	for (const struct yaml_tree_node *list = tree->root->last->first; list; list = list->next)
		*(unsigned int *)arg += list->n;
	return 0;
}

/* Aliases multiply what a manifest has, within bounds of values and of bytes; a search for each would take minutes. */
static void aliases_have_bounds(void **state)
{
	char head[70000] = "a: &x ";
	struct err e = ERR_INIT;
	unsigned int n = 0;
	char *row = many("[", "*x ,", 1000); /* ends "]\n" */
	char *text = many("a: &x 1\nb: [", strcat(row, ","), 99);

	(void)state;
	assert_int_equal(yaml_tree_parse_manifest("f", text, strlen(text), count, &n, &e), 0);
	assert_int_equal(n, 99000);
	free(text);
	text = many("a: &x 1\nb: [", row, 100);
	assert_int_equal(yaml_tree_parse_manifest("f", text, strlen(text), count, &n, &e), -E2BIG);
	assert_string_equal(e.text, "f:101: too many values; allowed: 100000");
	free(text);
	memset(head + strlen(head), '1', 65000);
	(void)stpcpy(head + strlen(head), "\nb: [");
	text = many(head, "*x ,", 65);
	assert_int_equal(yaml_tree_parse_manifest("f", text, strlen(text), count, &n, &e), -E2BIG);
	assert_string_equal(e.text, "f:2: aliases (*) copy too much; allowed: 4MiB");
	free(text);
	text = many("a: [", "&x 1,", YAML_TREE_ANCHORS + 1);
	assert_int_equal(yaml_tree_parse_manifest("f", text, strlen(text), count, &n, &e), -E2BIG);
	assert_string_equal(e.text, "f:1: too many anchors (&); allowed: 256");
	free(text);
	free(row);
}

static void a_map_has_a_bound(void **state)
{
	char *text = calloc(YAML_TREE_MANIFEST_ITEMS + 1, 8);
	struct err e = ERR_INIT;
	struct seen seen = { 0 };
	char *p = text;

	(void)state;
	for (unsigned int i = 0; i <= YAML_TREE_MANIFEST_ITEMS; i++)
		p += sprintf(p, "%u:\n", i);
	assert_int_equal(yaml_tree_parse_manifest("f", text, strlen(text), see, &seen, &e), -E2BIG);
	assert_string_equal(e.text, "f:2001: too many items of one map or list; allowed: 2000");
	free(text);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(nodes_know_their_lines),
		cmocka_unit_test(nothing_is_no_tree),
		cmocka_unit_test(refusals_name_line_and_reason),
		cmocka_unit_test(every_bound_holds),
		cmocka_unit_test(a_file_that_is_not_there_is_said),
		cmocka_unit_test(manifests),
		cmocka_unit_test(aliases_have_bounds),
		cmocka_unit_test(a_map_has_a_bound),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
