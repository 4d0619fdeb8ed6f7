/*
 * A YAML text as a tree, with the line of every node: what configuration files are read by.
 *
 * Bounded: YAML_TREE_BYTES of text, YAML_TREE_NODES nodes, YAML_TREE_DEPTH levels. One document of
 * maps, lists and scalars; keys are scalars, each once in its map. Anchors, aliases and tags are
 * refused: no text may become more than it is. Scalars stay text; what they mean is the reader's to
 * say.
 *
 * Lifetime: nodes and their texts are the tree's, until yaml_tree_free(). Threads: any, one tree by
 * one at a time.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include "base/cleanup.h"
#include "base/err.h"

#define YAML_TREE_BYTES (256u << 10)
#define YAML_TREE_NODES 4096u
#define YAML_TREE_DEPTH 16u

enum yaml_tree_kind {
	YAML_TREE_SCALAR,
	YAML_TREE_LIST,
	YAML_TREE_MAP,
};

struct yaml_tree_node {
	enum yaml_tree_kind kind;
	unsigned int line; /* of its key in a map, else where it begins; from 1 */
	bool plain;        /* a scalar without quotes */
	bool plain_key;    /* its key is without quotes */
	char *key;         /* in a map; NULL elsewhere */
	char *text;        /* of a scalar; never NULL there */
	char *anchor;      /* its name in a manifest; NULL: none */
	unsigned int n;    /* children of a map or a list */
	struct yaml_tree_node *first;
	struct yaml_tree_node *last;
	struct yaml_tree_node *next; /* in the same map or list */
	struct yaml_tree_node *made; /* of all nodes, the one before */
};

struct yaml_tree {
	const struct yaml_tree_node *root; /* NULL: nothing is written there */
	struct yaml_tree_node *made;
};

/*
 * Parses `text`, which is called `name` in lines for people: "NAME:LINE: what". -EINVAL: not as
 * above; -E2BIG: past a bound; -ENOMEM.
 */
int yaml_tree_parse(const char *name, const char *text, size_t len, struct yaml_tree **ret_tree,
	struct err *e) __must_check;

/* A manifest of Kubernetes may be larger, have several documents, and name a value (&) to use it again (*). */
#define YAML_TREE_MANIFEST_BYTES (4u << 20)
#define YAML_TREE_MANIFEST_NODES 100000u
#define YAML_TREE_MANIFEST_DEPTH 40u
#define YAML_TREE_MANIFEST_ITEMS 2000u /* of one map or list */
#define YAML_TREE_ANCHORS        256u  /* of one document */

/*
 * Parses the documents of a manifest and calls see(arg, tree) with each, which is the tree's only life; that is 0, or what ends the
 * parsing and is returned. Values used again are copied, and count as nodes; the bounds on nodes and on the bytes of copied texts are
 * those of all documents together. Errors as above.
 */
int yaml_tree_parse_manifest(const char *name, const char *text, size_t len,
	int (*see)(void *arg, const struct yaml_tree *tree), void *arg, struct err *e) __must_check;

/* The same of a file; -errno when it cannot be read. */
int yaml_tree_read(const char *path, struct yaml_tree **ret_tree, struct err *e) __must_check;

void yaml_tree_free(struct yaml_tree *tree);
DEFINE_CLEANUP(struct yaml_tree *, yaml_tree_free);

/* The child of a map with that key; NULL: there is none, or `node` is no map, or NULL. */
const struct yaml_tree_node *yaml_tree_find(const struct yaml_tree_node *node, const char *key);

/* Nothing is written there: `key:` alone, `~`, `null`. */
bool yaml_tree_is_null(const struct yaml_tree_node *node);
