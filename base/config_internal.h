/* What the files of config.h share: config.c (all places together), config_file.c (the YAML). */
#pragma once

#include "base/config.h"
#include "base/option_internal.h"
#include "base/yaml_tree.h"

#define CONFIG_WORD_MAX 64u /* of names that are compared */
#define CONFIG_SECTIONS 4u
#define CONFIG_SHARED   4u

/* Both end with NULL. */
extern const char *const config_section_names[CONFIG_SECTIONS + 1];
extern const char *const config_shared_names[CONFIG_SHARED + 1];

enum config_origin {
	ORIGIN_DEFAULT,
	ORIGIN_FILE,
	ORIGIN_ENVIRONMENT,
	ORIGIN_COMMAND_LINE,
};

/* What one look at all places gave. */
struct config_loaded {
	void *values;
	enum config_origin origins[OPTION_SPECS_MAX];
	unsigned int lines[OPTION_SPECS_MAX]; /* in the file */
	char *owned[OPTION_SPECS_MAX];        /* texts that values point to */
	bool sectioned;                       /* the file has sections */
	struct option_seen seen;              /* which options were given somewhere */
};

struct config {
	const struct option_set *set;
	void *values; /* the caller's */
	void *defaults;
	size_t size;
	char **words; /* of the command line: option_parse_words() moves them about */
	int n_words;
	char *file; /* NULL: none */
	struct config_loaded now;
};

bool config_is_in(const char *const *names, const char *name);
/* The option's text is `at`, a heap block that `l` owns from now on; it may be one of several. */
void config_own_text(
	struct config_loaded *l, const struct option_spec *spec, unsigned int index, char *at);

/* What the tree of `file` says to the daemons of `set`, into `l`. 0, or as config_open(). */
int config_apply_tree(const struct option_set *set, const char *file,
	const struct yaml_tree_node *root, struct config_loaded *l, struct err *e) __must_check;
