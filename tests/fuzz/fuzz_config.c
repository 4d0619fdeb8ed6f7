/*
 * Fuzzer of configuration files: whatever a text is, it is refused with one line or read; what was
 * read and written again reads the same; and a second look at the same changes nothing.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include "base/config.h"
#include "base/log.h"
#include "base/units.h"
#include "base/yaml_tree.h"
#include "base/yaml_writer.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct values {
	const char *config;
	struct option_list tiers;
	const char *state;
	const char *log_level;
	uint64_t memory;
	uint64_t wait;
	uint64_t count;
	uint64_t umask;
	bool create;
};

static const struct option_spec specs[] = {
	OPTION_STRING_ROW(struct values, config, "config", "FILE", "a file"),
	OPTION_ROW(struct values, tiers, "tier", OPTION_LIST, .reload = true, .help = "places"),
	OPTION_ROW(struct values, state, "state", OPTION_STRING, .reload = true,
		.help = "a directory"),
	OPTION_ROW(struct values, log_level, "log-level", OPTION_CHOICE, .choices = "error|debug",
		.reload = true, .help = "what to log"),
	OPTION_SIZE_ROW(struct values, memory, "memory", 1, 0, "a size"),
	OPTION_ROW(struct values, wait, "wait", OPTION_DURATION, .help = "a time"),
	OPTION_ROW(struct values, count, "count", OPTION_UINT, .max = 9, .help = "a number"),
	OPTION_ROW(struct values, umask, "umask", OPTION_OCTAL, .max = 0777, .help = "a umask"),
	OPTION_BOOL_ROW(struct values, create, "create", "a switch"),
};

static const struct option_set set = {
	.program = "fuzz",
	.arguments = "",
	.section = "worker",
	.specs = specs,
	.n = ARRAY_SIZE(specs),
};

static void check_line(const struct err *e)
{
	ensure(e->text[0] && !strchr(e->text, '\n'));
}

static void write_node(struct yaml_writer *w, const struct yaml_tree_node *node)
{
	if (node->kind == YAML_TREE_SCALAR) {
		yaml_writer_text(w, node->text, strlen(node->text));
		return;
	}
	if (node->kind == YAML_TREE_MAP)
		yaml_writer_map(w);
	else
		yaml_writer_list(w);
	for (const struct yaml_tree_node *child = node->first; child; child = child->next) {
		if (child->key)
			yaml_writer_key(w, child->key);
		write_node(w, child);
	}
	yaml_writer_end(w);
}

static void check_same(const struct yaml_tree_node *a, const struct yaml_tree_node *b)
{
	ensure(a->kind == b->kind && a->n == b->n && !a->key == !b->key);
	ensure(!a->key || strcmp(a->key, b->key) == 0);
	ensure(!a->text || strcmp(a->text, b->text) == 0);
	for (a = a->first, b = b->first; a; a = a->next, b = b->next)
		check_same(a, b);
}

/* Keys past this length are written, but cannot be read again without '?'. */
static bool has_long_key(const struct yaml_tree_node *node)
{
	bool found = node->key && strlen(node->key) > 100;

	for (node = node->first; node && !found; node = node->next)
		found = has_long_key(node);
	return found;
}

static void check_tree(const uint8_t *data, size_t size)
{
	struct yaml_tree *tree = NULL;
	struct yaml_tree *again = NULL;
	struct buf out = BUF_INIT(16u << 20);
	struct err e = ERR_INIT;
	struct yaml_writer w;

	if (yaml_tree_parse("f", (const char *)data, size, &tree, &e) < 0) {
		check_line(&e);
		return;
	}
	if (tree->root && !has_long_key(tree->root)) {
		yaml_writer_init(&w, &out);
		write_node(&w, tree->root);
		ensure(yaml_writer_finish(&w) == 0);
		if (out.len <= YAML_TREE_BYTES) {
			ensure(yaml_tree_parse("f", buf_str(&out), out.len, &again, &e) == 0);
			check_same(tree->root, again->root);
		}
	}
	yaml_tree_free(tree);
	yaml_tree_free(again);
	buf_release(&out);
}

static void check_config(const uint8_t *data, size_t size)
{
	static int fd = -1;
	char program[] = "fuzz";
	char config[] = "--config";
	char path[64];
	char *argv[] = { program, config, path, NULL };
	struct values values = { .memory = 1 };
	struct config *c = NULL;
	struct err e = ERR_INIT;

	if (fd < 0) {
		fd = memfd_create("config", MFD_CLOEXEC);
		log_init("fuzz", fd, LOG_ERROR, LOG_TEXT);
	}
	ensure(fd >= 0 && ftruncate(fd, 0) == 0);
	ensure(pwrite(fd, data, size, 0) == (ssize_t)size);
	(void)snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	if (config_open(&set, 3, argv, &values, sizeof(values), &c, &e) < 0) {
		check_line(&e);
		return;
	}
	ensure(config_reload(c, &e) == 0);
	config_free(c);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	if (size > 64u << 10)
		return 0;
	check_tree(data, size);
	check_config(data, size);
	return 0;
}
