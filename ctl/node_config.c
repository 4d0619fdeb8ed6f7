/* The node's configuration file. See node_config.h. */
#include "ctl/node_config.h"
#include "base/config.h"
#include "base/yaml_tree.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define FILE_DEFAULT "/etc/granary/granary.yaml"

/* The keeper's value; else, of those that other daemons of a node have as well, theirs. */
static void take(
	const struct yaml_tree_node *root, const char *key, bool keyed, char *out, size_t size)
{
	const struct yaml_tree_node *node = yaml_tree_find(yaml_tree_find(root, "keeper"), key);

	if (!node && keyed)
		node = yaml_tree_find(root, key);
	if (!node && (keyed || strcmp(key, "master") == 0))
		node = yaml_tree_find(yaml_tree_find(root, "worker"), key);
	if (node && node->kind == YAML_TREE_SCALAR && !yaml_tree_is_null(node))
		(void)snprintf(out, size, "%s", node->text); /* its daemon says what is too long */
}

static void take_environment(const char *name, char *out, size_t size)
{
	const char *value = secure_getenv(name); // NOLINT(concurrency-mt-unsafe): one thread

	if (value && *value)
		(void)snprintf(out, size, "%s", value); /* opening it says the rest */
}

/* ---- slips ----------------------------------------------------------------------------------- */

static bool is_one_of(const char *key, const char *const *names)
{
	while (*names && strcmp(*names, key) != 0)
		names++;
	return *names != NULL;
}

/* As daemons take it (base/config_file.c). */
static bool is_section(const struct yaml_tree_node *node)
{
	return (node->kind == YAML_TREE_MAP || yaml_tree_is_null(node)) &&
	       is_one_of(node->key, config_sections());
}

static void warn(struct node_config *config, const struct yaml_tree_node *node, const char *near)
{
	const char *what =
		is_one_of(node->key, config_sections()) ? "is outside of a section" : "unknown key";

	if (config->warning[0]) /* one line: config check says all */
		return;
	(void)snprintf(config->warning, sizeof(config->warning),
		"%.200s:%u: %.64s: %s%s%s%s: ignored here, but daemons will not start: "
		"cachectl config check %.200s",
		config->file, node->line, node->key, what, near ? ": did you mean " : "",
		near ? near : "", near ? "?" : "", config->file);
}

static const char *nearest_section(const struct yaml_tree_node *node)
{
	return is_one_of(node->key, config_sections())
		       ? NULL
		       : config_nearest(node->key, config_sections(), 4);
}

/*
 * Daemons refuse a key that they do not know; a command, which does not know theirs, must not be stopped by it: what it
 * is asked may be how to mend it. But `mastr: ADDR` left out in silence is a command that asks another master, or none.
 */
static void find_slip(struct node_config *config, const struct yaml_tree_node *root)
{
	static const char *const taken[] = { "master", "worker", "cluster-key", "token", "net-data",
		NULL };
	const struct yaml_tree_node *keeper = yaml_tree_find(root, "keeper");
	bool sectioned = false;
	const struct yaml_tree_node *node;

	if (!root || root->kind != YAML_TREE_MAP)
		return;
	for (node = root->first; node; node = node->next) /* no option is a map */
		sectioned |= node->kind == YAML_TREE_MAP || is_section(node);
	if (!sectioned) /* one daemon's own file */
		return;
	for (node = root->first; node; node = node->next)
		if (!is_section(node) && !is_one_of(node->key, config_shared()))
			warn(config, node, nearest_section(node));
	for (node = keeper && keeper->kind == YAML_TREE_MAP ? keeper->first : NULL; node;
		node = node->next)
		if (!is_one_of(node->key, taken) && config_nearest(node->key, taken, 5))
			warn(config, node, config_nearest(node->key, taken, 5));
}

static void say(const struct node_config *config)
{
	static bool said;

	if (config->warning[0] && !said)
		(void)fprintf(stderr, "cachectl: warning: %s\n", config->warning);
	said |= config->warning[0] != '\0';
}

/* ---- reading --------------------------------------------------------------------------------- */

int node_config_read(struct node_config *ret_config, struct err *e)
{
	struct node_config config = { .net_data = "plain" };
	struct yaml_tree *tree = NULL;
	int r = 0;

	(void)snprintf(config.file, sizeof(config.file), "%s", FILE_DEFAULT);
	take_environment("GRANARY_CONFIG", config.file, sizeof(config.file));
	if (access(config.file, F_OK) == 0)
		r = yaml_tree_read(config.file, &tree, e);
	else
		config.file[0] = '\0';
	if (r < 0)
		return r;
	if (tree) {
		find_slip(&config, tree->root);
		say(&config);
		take(tree->root, "master", false, config.master, sizeof(config.master));
		take(tree->root, "worker", false, config.worker, sizeof(config.worker));
		take(tree->root, "cluster-key", true, config.cluster_key,
			sizeof(config.cluster_key));
		take(tree->root, "token", true, config.token, sizeof(config.token));
		take(tree->root, "net-data", true, config.net_data, sizeof(config.net_data));
	}
	yaml_tree_free(tree);
	take_environment("GRANARY_CLUSTER_KEY", config.cluster_key, sizeof(config.cluster_key));
	take_environment("GRANARY_TOKEN", config.token, sizeof(config.token));
	*ret_config = config;
	return 0;
}

struct key_options node_config_keys(const struct node_config *config)
{
	return (struct key_options){ .cluster_key =
					     config->cluster_key[0] ? config->cluster_key : NULL,
		.token = config->token[0] ? config->token : NULL,
		.net_data = config->net_data };
}
