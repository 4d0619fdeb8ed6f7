/* Options from file, environment and command line. See config.h. */
#include "base/config_internal.h"
#include "base/buf.h"
#include "base/cleanup.h"
#include "base/exit.h"
#include "base/log.h"
#include "base/option_doc.h"
#include "base/option_internal.h"
#include "base/units.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

const char *const config_section_names[CONFIG_SECTIONS + 1] = { "master", "worker", "mount",
	"keeper", NULL };
const char *const config_shared_names[CONFIG_SHARED + 1] = { "log-level", "cluster-key", "token",
	"net-data", NULL };

const char *const *config_sections(void)
{
	return config_section_names;
}

const char *const *config_shared(void)
{
	return config_shared_names;
}

const char *config_file(const struct config *config)
{
	return config->file;
}

bool config_has_sections(const struct config *config)
{
	return config->now.sectioned;
}

bool config_is_in(const char *const *names, const char *name)
{
	for (; *names; names++)
		if (strcmp(*names, name) == 0)
			return true;
	return false;
}

void config_own_text(
	struct config_loaded *l, const struct option_spec *spec, unsigned int index, char *at)
{
	if (spec->kind == OPTION_LIST)
		((struct option_list *)(void *)((char *)l->values + spec->offset))->n = 0;
	free(l->owned[index]);
	l->owned[index] = at;
}

static int load_file(const struct config *c, struct config_loaded *l, struct err *e)
{
	struct yaml_tree *tree = NULL;
	int r;

	if (!c->file)
		return 0;
	r = yaml_tree_read(c->file, &tree, e);
	if (r == 0)
		r = config_apply_tree(c->set, c->file, tree->root, l, e);
	yaml_tree_free(tree);
	return r;
}

/* ---- environment and command line ------------------------------------------------------------ */

static const char *environment_of(
	const struct option_set *set, const struct option_spec *spec, char *name, size_t size)
{
	const char *value;

	option_environment_name(set, spec, name, size);
	value = secure_getenv(name); // NOLINT(concurrency-mt-unsafe): no thread changes it
	if (value || !config_is_in(config_shared_names, spec->name))
		return value;
	(void)snprintf(name, size, "GRANARY_%s", spec->name); /* short */
	for (char *c = name; *c; c++)
		*c = *c == '-' ? '_' : (char)toupper((unsigned char)*c);
	return secure_getenv(name); // NOLINT(concurrency-mt-unsafe): no thread changes it
}

/* Items of a list are separated by blanks. */
static int set_from_text(
	struct config_loaded *l, const struct option_spec *spec, char *at, struct err *e)
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

static int load_environment(const struct option_set *set, struct config_loaded *l, struct err *e)
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
		config_own_text(l, spec, i, at);
		r = set_from_text(l, spec, at, &why);
		if (r < 0)
			return err_set(e, r, "%s: %s", name, why.text);
		l->origins[i] = ORIGIN_ENVIRONMENT;
		option_seen_add(&l->seen, i);
	}
	return 0;
}

/* 0, OPTION_HELP or -EINVAL. The words are moved about in a copy. */
static int load_words(
	const struct config *c, void *values, struct option_seen *ret_seen, struct err *e)
{
	_cleanup_free_ char **words = calloc((size_t)c->n_words + 1, sizeof(*words));
	struct option_seen seen;
	int args;
	int r;

	if (!words)
		return err_set(e, -ENOMEM, "out of memory");
	memcpy(words, c->words, (size_t)c->n_words * sizeof(*words));
	r = option_parse_words(c->set, c->n_words, words, values, &args, &seen, e);
	if (r == 0)
		r = option_check_complete(c->set, NULL, (unsigned int)args, e);
	if (r == 0)
		*ret_seen = seen;
	return r;
}

/* ---- all of it ------------------------------------------------------------------------------- */

static void loaded_release(struct config_loaded *l)
{
	free(l->values);
	for (unsigned int i = 0; i < OPTION_SPECS_MAX; i++)
		free(l->owned[i]);
	*l = (struct config_loaded){ 0 };
}

static int load(const struct config *c, struct config_loaded *l, struct err *e)
{
	struct option_seen given = { 0 };
	int r;

	*l = (struct config_loaded){ .values = malloc(c->size) };
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
		if (option_seen_has(&given, i)) {
			l->origins[i] = ORIGIN_COMMAND_LINE;
			option_seen_add(&l->seen, i);
		}
	return 0;
}

/* The file, from the command line or the environment; it is needed before the rest is read. */
static int find_file(struct config *c, struct err *e)
{
	const struct option_spec *spec = NULL;
	_cleanup_free_ void *scratch = malloc(c->size);
	const char *path;
	char name[96];
	struct option_seen seen;
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

static int check_complete(const struct config *c, const struct config_loaded *l, struct err *e)
{
	struct err why = ERR_INIT;
	int r = option_check_complete(c->set, &l->seen, 0, &why);

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

/* What the values name is looked at, too, and what is wrong with it said where it is named. */
static int look(const struct config *c, struct err *e)
{
	struct err why = ERR_INIT;
	const char *name = "";
	char origin[4096] = "";
	int r = c->set->look ? c->set->look(c->now.values, &name, &why) : 0;

	for (unsigned int i = 0; r < 0 && i < c->set->n; i++)
		if (strcmp(c->set->specs[i].name, name) == 0)
			origin_text(c, i, origin, sizeof(origin));
	return r < 0 ? err_set(e, r, "%s: %s: %s", origin, name, why.text) : 0;
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
	if (r == 0 && c && check)
		r = look(c, &e);
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
	struct config_loaded l;
	int r = load(config, &l, e);

	if (r == 0)
		r = check_complete(config, &l, e);
	loaded_release(&l);
	return r;
}

int config_check_text(const struct option_set *set, const char *name, const char *text, size_t len,
	const void *defaults, size_t size, struct err *e)
{
	struct config_loaded l = { .values = malloc(size) };
	struct yaml_tree *tree = NULL;
	int r;

	if (!l.values)
		return err_set(e, -ENOMEM, "out of memory");
	memcpy(l.values, defaults, size);
	r = yaml_tree_parse(name, text, len, &tree, e);
	if (r == 0)
		r = config_apply_tree(set, name, tree->root, &l, e);
	yaml_tree_free(tree);
	loaded_release(&l);
	return r;
}

/* ---- values ---------------------------------------------------------------------------------- */

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
static void take_value(struct config *c, struct config_loaded *l, unsigned int i)
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
	struct config_loaded l;
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
