/* Options from file, environment and command line. See config.h. */
#include "base/config.h"
#include "base/buf.h"
#include "base/cleanup.h"
#include "base/exit.h"
#include "base/log.h"
#include "base/option_doc.h"
#include "base/option_internal.h"
#include "base/units.h"
#include "base/yaml_tree.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#define WORD_MAX 64u /* of names that are compared */

static const char *const sections[] = { "master", "worker", "mount", "keeper", NULL };
static const char *const shared[] = { "log-level", NULL };

enum origin {
	ORIGIN_DEFAULT,
	ORIGIN_FILE,
	ORIGIN_ENVIRONMENT,
	ORIGIN_COMMAND_LINE,
};

/* What one look at all places gave. */
struct loaded {
	void *values;
	enum origin origins[OPTION_SPECS_MAX];
	unsigned int lines[OPTION_SPECS_MAX]; /* in the file */
	char *owned[OPTION_SPECS_MAX];        /* texts that values point to */
	bool sectioned;                       /* the file has sections */
	uint64_t seen;                        /* a bit for each option that was given somewhere */
};

struct config {
	const struct option_set *set;
	void *values; /* the caller's */
	void *defaults;
	size_t size;
	char **words; /* of the command line: option_parse_words() moves them about */
	int n_words;
	char *file; /* NULL: none */
	struct loaded now;
};

const char *const *config_sections(void)
{
	return sections;
}

const char *const *config_shared(void)
{
	return shared;
}

const char *config_file(const struct config *config)
{
	return config->file;
}

bool config_has_sections(const struct config *config)
{
	return config->now.sectioned;
}

static bool is_in(const char *const *names, const char *name)
{
	for (; *names; names++)
		if (strcmp(*names, name) == 0)
			return true;
	return false;
}

/* ---- what is near ---------------------------------------------------------------------------- */

/* Changes of a letter that make `b` of `a`. */
static unsigned int distance(const char *a, const char *b)
{
	unsigned int row[WORD_MAX + 1];
	size_t len = strlen(b);

	if (strlen(a) > WORD_MAX || len > WORD_MAX)
		return WORD_MAX;
	for (unsigned int j = 0; j <= len; j++)
		row[j] = j;
	for (unsigned int i = 1; a[i - 1]; i++) {
		unsigned int corner = row[0];

		row[0] = i;
		for (unsigned int j = 1; j <= len; j++) {
			unsigned int replaced = corner + (a[i - 1] != b[j - 1]);
			unsigned int added = min(row[j], row[j - 1]) + 1;

			corner = row[j];
			row[j] = min(replaced, added);
		}
	}
	return row[len];
}

const char *config_nearest(const char *word, const char *const *names, size_t n)
{
	const char *nearest = NULL;
	unsigned int least = (unsigned int)strlen(word) / 3 + 2;

	for (size_t i = 0; i < n; i++) {
		unsigned int d = distance(word, names[i]);

		if (d < least) {
			least = d;
			nearest = names[i];
		}
	}
	return nearest;
}

/* ---- file ------------------------------------------------------------------------------------ */

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
	const char *names[OPTION_SPECS_MAX + ARRAY_SIZE(sections) + ARRAY_SIZE(shared)] = { NULL };
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
		r = add_names(shared, &all, names, &n);
	if (top && r == 0)
		r = add_names(sections, &all, names, &n);
	near = config_nearest(node->key, names, n);
	if (r < 0)
		return err_set(e, r, "out of memory");
	if (top && !own && find_key(set, node->key))
		return err_set(e, -EINVAL,
			"%s:%u: %s: stands outside of its section: put it below %s:; allowed: %s",
			file, node->line, node->key, set->section, buf_str(&all));
	return err_set(e, -EINVAL, "%s:%u: %.*s: unknown key%s%s%s; allowed: %s", file, node->line,
		(int)WORD_MAX, node->key, near ? ": is it " : "", near ? near : "", near ? "?" : "",
		buf_str(&all));
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
			return refuse(file, item, spec, "has an item that is no text", e);
		*ret_bytes += strlen(item->text) + 1;
	}
	return 0;
}

/* The option's text is `at`, a heap block that `l` owns from now on; it may be one of several. */
static void own_text(struct loaded *l, const struct option_spec *spec, unsigned int index, char *at)
{
	if (spec->kind == OPTION_LIST)
		((struct option_list *)(void *)((char *)l->values + spec->offset))->n = 0;
	free(l->owned[index]);
	l->owned[index] = at;
}

static int set_from_node(struct loaded *l, const struct option_spec *spec,
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
	const struct yaml_tree_node *node, const struct option_spec *spec, struct loaded *l,
	struct err *e)
{
	unsigned int index = (unsigned int)(spec - set->specs);
	struct err why = ERR_INIT;
	size_t bytes = 0;
	char *at;
	int r = check_shape(file, node, spec, &bytes, e);

	if (r < 0)
		return r;
	at = malloc(bytes);
	if (!at)
		return err_set(e, -ENOMEM, "out of memory");
	own_text(l, spec, index, at);
	r = set_from_node(l, spec, node, at, &why);
	if (r < 0)
		return err_set(e, r, "%s:%u: %s: %s", file, node->line, spec->name, why.text);
	l->origins[index] = ORIGIN_FILE;
	l->lines[index] = node->line;
	l->seen |= 1ull << index;
	return 0;
}

/* A daemon's name may also be a key: `master` of the worker is an address. */
static bool is_section(const struct yaml_tree_node *node)
{
	return (node->kind == YAML_TREE_MAP || yaml_tree_is_null(node)) &&
	       is_in(sections, node->key);
}

static int apply_section(const struct option_set *set, const char *file,
	const struct yaml_tree_node *section, struct loaded *l, struct err *e)
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

static int apply_tree(const struct option_set *set, const char *file,
	const struct yaml_tree_node *root, struct loaded *l, struct err *e)
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
		if (sectioned && !is_in(shared, node->key))
			r = unknown_key(set, file, node, true, false, e);
		else if (spec)
			r = apply_key(set, file, node, spec, l, e);
		else
			r = unknown_key(set, file, node, true, true, e);
	}
	return r == 0 ? apply_section(set, file, own, l, e) : r;
}

static int load_file(const struct config *c, struct loaded *l, struct err *e)
{
	struct yaml_tree *tree = NULL;
	int r;

	if (!c->file)
		return 0;
	r = yaml_tree_read(c->file, &tree, e);
	if (r == 0)
		r = apply_tree(c->set, c->file, tree->root, l, e);
	yaml_tree_free(tree);
	return r;
}

/* ---- environment and command line ------------------------------------------------------------ */

static const char *environment_of(
	const struct option_set *set, const struct option_spec *spec, char *name, size_t size)
{
	const char *value;

	option_environment_name(set, spec, name, size);
	value = secure_getenv(name); // NOLINT(concurrency-mt-unsafe): nobody changes it
	if (value || !is_in(shared, spec->name))
		return value;
	(void)snprintf(name, size, "GRANARY_%s", spec->name); /* short */
	for (char *c = name; *c; c++)
		*c = *c == '-' ? '_' : (char)toupper((unsigned char)*c);
	return secure_getenv(name); // NOLINT(concurrency-mt-unsafe): nobody changes it
}

/* Items of a list are separated by blanks. */
static int set_from_text(struct loaded *l, const struct option_spec *spec, char *at, struct err *e)
{
	char *rest = NULL;
	int r = 0;

	if (spec->kind != OPTION_LIST)
		return option_set_value(spec, at, l->values, e);
	for (char *word = strtok_r(at, " ", &rest); word && r == 0;
		word = strtok_r(NULL, " ", &rest))
		r = option_set_value(spec, word, l->values, e);
	return r;
}

static int load_environment(const struct option_set *set, struct loaded *l, struct err *e)
{
	for (unsigned int i = 0; i < set->n; i++) {
		const struct option_spec *spec = &set->specs[i];
		struct err why = ERR_INIT;
		char name[96];
		const char *value =
			option_is_key(spec) ? environment_of(set, spec, name, sizeof(name)) : NULL;
		char *at = value ? strdup(value) : NULL;
		int r;

		if (!value)
			continue;
		if (!at)
			return err_set(e, -ENOMEM, "out of memory");
		own_text(l, spec, i, at);
		r = set_from_text(l, spec, at, &why);
		if (r < 0)
			return err_set(e, r, "%s: %s", name, why.text);
		l->origins[i] = ORIGIN_ENVIRONMENT;
		l->seen |= 1ull << i;
	}
	return 0;
}

/* 0, OPTION_HELP or -EINVAL. The words are moved about in a copy. */
static int load_words(const struct config *c, void *values, uint64_t *ret_seen, struct err *e)
{
	_cleanup_free_ char **words = calloc((size_t)c->n_words + 1, sizeof(*words));
	uint64_t seen;
	int args;
	int r;

	if (!words)
		return err_set(e, -ENOMEM, "out of memory");
	memcpy(words, c->words, (size_t)c->n_words * sizeof(*words));
	r = option_parse_words(c->set, c->n_words, words, values, &args, &seen, e);
	if (r == 0)
		r = option_check_complete(c->set, UINT64_MAX, (unsigned int)args, e);
	if (r == 0)
		*ret_seen = seen;
	return r;
}

/* ---- all of it ------------------------------------------------------------------------------- */

static void loaded_release(struct loaded *l)
{
	free(l->values);
	for (unsigned int i = 0; i < OPTION_SPECS_MAX; i++)
		free(l->owned[i]);
	*l = (struct loaded){ 0 };
}

static int load(const struct config *c, struct loaded *l, struct err *e)
{
	uint64_t given = 0;
	int r;

	*l = (struct loaded){ .values = malloc(c->size) };
	if (!l->values)
		return err_set(e, -ENOMEM, "out of memory");
	memcpy(l->values, c->defaults, c->size);
	r = load_file(c, l, e);
	if (r == 0)
		r = load_environment(c->set, l, e);
	if (r == 0)
		r = load_words(c, l->values, &given, e);
	if (r != 0)
		return r;
	for (unsigned int i = 0; i < c->set->n; i++)
		if (given >> i & 1)
			l->origins[i] = ORIGIN_COMMAND_LINE;
	l->seen |= given;
	return 0;
}

/* The file, from the command line or the environment; it is needed before the rest is read. */
static int find_file(struct config *c, struct err *e)
{
	const struct option_spec *spec = NULL;
	_cleanup_free_ void *scratch = malloc(c->size);
	const char *path;
	char name[96];
	uint64_t seen;
	int r;

	for (unsigned int i = 0; i < c->set->n; i++)
		if (strcmp(c->set->specs[i].name, "config") == 0)
			spec = &c->set->specs[i];
	ensure(spec && spec->kind == OPTION_STRING);
	if (!scratch)
		return err_set(e, -ENOMEM, "out of memory");
	memcpy(scratch, c->defaults, c->size);
	r = load_words(c, scratch, &seen, e);
	if (r != 0)
		return r;
	path = *(const char **)(void *)((char *)scratch + spec->offset);
	if (!path)
		path = environment_of(c->set, spec, name, sizeof(name));
	if (!path || !*path)
		return 0;
	c->file = strdup(path);
	return c->file ? 0 : err_set(e, -ENOMEM, "out of memory");
}

void config_free(struct config *config)
{
	if (!config)
		return;
	loaded_release(&config->now);
	free(config->defaults);
	free(config->words);
	free(config->file);
	free(config);
}

static int check_complete(const struct config *c, const struct loaded *l, struct err *e)
{
	struct err why = ERR_INIT;
	int r = option_check_complete(c->set, l->seen, 0, &why);

	if (r < 0 && c->file)
		return err_set(e, r, "%s: %s, or its key in section %s", c->file, why.text,
			c->set->section);
	return r < 0 ? err_set(e, r, "%s", why.text) : 0;
}

/* Everything but what is missing. */
static int open_config(const struct option_set *set, int argc, char **argv, void *values,
	size_t size, struct config **ret_config, struct err *e)
{
	_cleanup_(config_free_p) struct config *c = calloc(1, sizeof(*c));
	int r;

	if (!c)
		return err_set(e, -ENOMEM, "out of memory");
	c->set = set;
	c->values = values;
	c->size = size;
	c->n_words = argc;
	c->words = calloc((size_t)argc + 1, sizeof(*c->words));
	c->defaults = malloc(size);
	if (!c->words || !c->defaults)
		return err_set(e, -ENOMEM, "out of memory");
	for (int i = 0; i < argc; i++)
		c->words[i] = argv[i];
	memcpy(c->defaults, values, size);
	r = find_file(c, e);
	if (r == 0)
		r = load(c, &c->now, e);
	if (r != 0)
		return r;
	ensure(c->now.values); /* for the analyzer */
	memcpy(values, c->now.values, size);
	*ret_config = TAKE(c);
	return 0;
}

int config_open(const struct option_set *set, int argc, char **argv, void *values, size_t size,
	struct config **ret_config, struct err *e)
{
	_cleanup_(config_free_p) struct config *c = NULL;
	int r = open_config(set, argc, argv, values, size, &c, e);

	if (r != 0 || !c)
		return r;
	r = check_complete(c, &c->now, e);
	if (r == 0)
		*ret_config = TAKE(c);
	return r;
}

_Noreturn static void exit_after_output(void)
{
	// NOLINTNEXTLINE(concurrency-mt-unsafe): no other thread has begun
	exit(fflush(stdout) == 0 ? EXIT_OK : EXIT_RUNTIME);
}

struct config *config_open_or_exit(
	const struct option_set *set, int argc, char **argv, void *values, size_t size)
{
	bool check = argc > 1 && strcmp(argv[1], "--config-check") == 0;
	bool show = argc > 1 && strcmp(argv[1], "--config-show") == 0;
	struct err e = ERR_INIT;
	struct config *c = NULL;
	int r;

	option_answer(set, argc, argv);
	if (check || show) {
		argv[1] = argv[0];
		argv++;
		argc--;
	}
	r = open_config(set, argc, argv, values, size, &c, &e);
	if (r == 0 && c && !show && !(check && set->started))
		r = check_complete(c, &c->now, &e);
	if (r == OPTION_HELP)
		option_help_exit(set);
	if (r < 0 || !c)
		option_fail(set, &e);
	if (show)
		config_show(c, stdout);
	if (check || show)
		exit_after_output();
	return c;
}

int config_check(const struct config *config, struct err *e)
{
	struct loaded l;
	int r = load(config, &l, e);

	if (r == 0)
		r = check_complete(config, &l, e);
	loaded_release(&l);
	return r;
}

int config_check_text(const struct option_set *set, const char *name, const char *text, size_t len,
	const void *defaults, size_t size, struct err *e)
{
	struct loaded l = { .values = malloc(size) };
	struct yaml_tree *tree = NULL;
	int r;

	if (!l.values)
		return err_set(e, -ENOMEM, "out of memory");
	memcpy(l.values, defaults, size);
	r = yaml_tree_parse(name, text, len, &tree, e);
	if (r == 0)
		r = apply_tree(set, name, tree->root, &l, e);
	yaml_tree_free(tree);
	loaded_release(&l);
	return r;
}

/* ---- values ---------------------------------------------------------------------------------- */

static void origin_text(const struct config *c, unsigned int i, char *out, size_t size)
{
	switch (c->now.origins[i]) {
	case ORIGIN_DEFAULT:
		(void)snprintf(out, size, "default");
		return;
	case ORIGIN_FILE:
		(void)snprintf(out, size, "%s:%u", c->file, c->now.lines[i]); /* cut */
		return;
	case ORIGIN_ENVIRONMENT:
		(void)environment_of(c->set, &c->set->specs[i], out, size); /* the name */
		return;
	case ORIGIN_COMMAND_LINE:
		(void)snprintf(out, size, "command line");
		return;
	}
}

void config_show(const struct config *config, FILE *out)
{
	for (unsigned int i = 0; i < config->set->n; i++) {
		const struct option_spec *spec = &config->set->specs[i];
		char value[4096];
		char origin[4096];

		if (!option_is_key(spec))
			continue;
		option_value_text(spec, config->values, value, sizeof(value));
		origin_text(config, i, origin, sizeof(origin));
		for (char *c = value; *c; c++)
			if ((unsigned char)*c < 0x20)
				*c = '?'; /* one row, whatever was given */
		(void)fprintf(out, "%s\t%s\t%s\n", spec->name, value, origin);
	}
}

/* ---- again ----------------------------------------------------------------------------------- */

/* The value and who owns its text go from `l` to what is in force. */
static void take_value(struct config *c, struct loaded *l, unsigned int i)
{
	const struct option_spec *spec = &c->set->specs[i];
	size_t bytes = option_value_bytes(spec);

	memcpy((char *)c->now.values + spec->offset, (char *)l->values + spec->offset, bytes);
	memcpy((char *)c->values + spec->offset, (char *)l->values + spec->offset, bytes);
	free(c->now.owned[i]);
	c->now.owned[i] = TAKE(l->owned[i]);
}

int config_reload(struct config *config, struct err *e)
{
	struct loaded l;
	int changed = 0;
	int r = load(config, &l, e);

	if (r == 0)
		r = check_complete(config, &l, e);
	if (r < 0) {
		loaded_release(&l);
		return r;
	}
	ensure(r == 0); /* --help would have ended it at the start */
	for (unsigned int i = 0; i < config->set->n; i++) {
		const struct option_spec *spec = &config->set->specs[i];
		char from[256];
		char to[256];

		if (option_same_value(spec, config->now.values, l.values))
			continue;
		option_value_text(spec, config->now.values, from, sizeof(from));
		option_value_text(spec, l.values, to, sizeof(to));
		if (!spec->reload) {
			log_warn("option not changed",
				"name=%s value=\"%s\" asked=\"%s\" next=\"restart to change it\"",
				spec->name, from, to);
			continue;
		}
		log_info("option changed", "name=%s from=\"%s\" to=\"%s\"", spec->name, from, to);
		take_value(config, &l, i);
		config->now.origins[i] = l.origins[i];
		config->now.lines[i] = l.lines[i];
		changed++;
	}
	config->now.sectioned = l.sectioned;
	loaded_release(&l);
	return changed;
}
