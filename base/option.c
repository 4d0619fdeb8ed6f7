/* Command-line options from a table. See option.h. */
#include "base/option.h"
#include "base/buf.h"
#include "base/config.h"
#include "base/error_line.h"
#include "base/exit.h"
#include "base/option_doc.h"
#include "base/option_internal.h"
#include "base/units.h"

#include <stdlib.h>
#include <string.h>

#define HELP_COLUMN  28
#define HELP_WIDTH   100
#define SWITCH_WORDS "true|True|TRUE|t|T|1|false|False|FALSE|f|F|0" /* as Arena takes them */

static const char *const kind_metavar[] = {
	[OPTION_STRING] = "TEXT",
	[OPTION_CHOICE] = NULL,
	[OPTION_SIZE] = "SIZE",
	[OPTION_RATE] = "RATE",
	[OPTION_DURATION] = "TIME",
	[OPTION_UINT] = "N",
	[OPTION_OCTAL] = "OCTAL",
	[OPTION_FD] = "FD",
	[OPTION_BOOL] = "",
	[OPTION_LIST] = "TEXT",
};

const char *option_metavar(const struct option_spec *spec)
{
	if (spec->metavar)
		return spec->metavar;
	return spec->kind == OPTION_CHOICE ? spec->choices : kind_metavar[spec->kind];
}

/* The option most like the one given; NULL: none is. */
static const char *nearest_option(const struct option_set *set, const char *text, size_t len)
{
	const char *names[OPTION_SPECS_MAX];
	char word[64];
	size_t n = 0;

	if (len <= 2 || len - 2 >= sizeof(word) || text[1] != '-')
		return NULL;
	memcpy(word, text + 2, len - 2);
	word[len - 2] = '\0';
	for (unsigned int i = 0; i < set->n && n < OPTION_SPECS_MAX; i++)
		if (!set->specs[i].hidden)
			names[n++] = set->specs[i].name;
	return config_nearest(word, names, n);
}

static int unknown_option(const struct option_set *set, const char *text, size_t len, struct err *e)
{
	const char *near = nearest_option(set, text, len);
	int n = (int)min(len, (size_t)200);

	if (near)
		return err_set(e, -EINVAL,
			"unknown option '%.*s': did you mean --%s? `%s --help` lists all options",
			n, text, near, set->program);
	return err_set(e, -EINVAL, "unknown option '%.*s': `%s --help` lists all options", n, text,
		set->program);
}

/* The spec of "--name", "--no-name" (*ret_negated) or "-x"; NULL when there is none. */
static const struct option_spec *spec_find(
	const struct option_set *set, const char *name, size_t len, bool *ret_negated)
{
	*ret_negated = false;
	for (unsigned int i = 0; i < set->n; i++) {
		const struct option_spec *spec = &set->specs[i];

		if (name[0] == '-' && len > 2 && name[1] == '-') {
			const char *word = name + 2;
			size_t n = len - 2;

			if (strlen(spec->name) == n && memcmp(spec->name, word, n) == 0)
				return spec;
			if (spec->kind == OPTION_BOOL && n > 3 && memcmp(word, "no-", 3) == 0 &&
				strlen(spec->name) == n - 3 &&
				memcmp(spec->name, word + 3, n - 3) == 0) {
				*ret_negated = true;
				return spec;
			}
		} else if (len == 2 && spec->letter && name[1] == spec->letter) {
			return spec;
		}
	}
	return NULL;
}

static int parse_number(const char *text, int base, uint64_t *ret)
{
	char *end;

	if (*text < '0' || *text > '9')
		return -EINVAL;
	errno = 0;
	*ret = strtoull(text, &end, base);
	return errno != 0 || *end ? -EINVAL : 0;
}

bool option_is_choice(const char *choices, const char *text)
{
	size_t len = strlen(text);

	for (const char *p = choices; p; p = strchr(p, '|'), p = p ? p + 1 : NULL) {
		size_t n = strcspn(p, "|");

		if (n == len && memcmp(p, text, n) == 0)
			return true;
	}
	return false;
}

static void bound_text(const struct option_spec *spec, uint64_t value, char *out, size_t size)
{
	char number[16];

	if (spec->kind == OPTION_SIZE)
		(void)units_size(value, out, size);
	else if (spec->kind == OPTION_RATE)
		(void)snprintf(out, size, "%s/s", units_size(value, number, sizeof(number)));
	else if (spec->kind == OPTION_DURATION)
		(void)snprintf(out, size, "%gs", (double)value / 1e9);
	else if (spec->kind == OPTION_OCTAL)
		(void)snprintf(out, size, "%03llo", (unsigned long long)value);
	else
		(void)snprintf(out, size, "%llu", (unsigned long long)value);
}

void option_number_text(const struct option_spec *spec, uint64_t value, char *out, size_t size)
{
	static const struct {
		enum option_kind kind;
		uint64_t factor;
		const char *name;
	} units[] = {
		{ OPTION_SIZE, TiB, "TiB" },
		{ OPTION_SIZE, GiB, "GiB" },
		{ OPTION_SIZE, MiB, "MiB" },
		{ OPTION_SIZE, KiB, "KiB" },
		{ OPTION_SIZE, 1, "B" },
		{ OPTION_DURATION, 24 * 3600 * 1000000000ull, "d" },
		{ OPTION_DURATION, 3600 * 1000000000ull, "h" },
		{ OPTION_DURATION, 60 * 1000000000ull, "m" },
		{ OPTION_DURATION, 1000000000ull, "s" },
		{ OPTION_DURATION, 1000000ull, "ms" },
		{ OPTION_DURATION, 1, "ns" },
	};

	enum option_kind kind = spec->kind == OPTION_RATE ? OPTION_SIZE : spec->kind;

	if (value == UINT64_MAX) { /* not given, and no value of its own stands for that */
		out[0] = '\0';
		return;
	}
	for (size_t i = 0; i < ARRAY_SIZE(units); i++)
		if (units[i].kind == kind && value >= units[i].factor &&
			value % units[i].factor == 0) {
			(void)snprintf(out, size, "%llu%s%s",
				(unsigned long long)(value / units[i].factor), units[i].name,
				spec->kind == OPTION_RATE ? "/s" : "");
			return;
		}
	(void)snprintf(out, size,
		spec->kind == OPTION_OCTAL      ? "%03llo"
		: spec->kind == OPTION_DURATION ? "%llus"
						: "%llu",
		(unsigned long long)value);
}

void option_allowed(const struct option_spec *spec, char *out, size_t size)
{
	static const char *const kinds[] = {
		[OPTION_SIZE] = "a size such as 512MiB, 20GiB or 2TB",
		[OPTION_RATE] = "a rate such as 500MB/s, 1GiB/s or 4Gbit/s",
		[OPTION_DURATION] = "a time such as 250ms, 30s, 5m or 2h",
		[OPTION_UINT] = "a whole number",
		[OPTION_OCTAL] = "an octal number such as 022",
		[OPTION_FD] = "the number of a descriptor",
		[OPTION_BOOL] = "true or false",
	};
	char least[32];
	char most[32];
	int n;

	if (spec->kind == OPTION_STRING || spec->kind == OPTION_LIST ||
		spec->kind == OPTION_CHOICE) {
		(void)snprintf(out, size, "%s%s", spec->kind == OPTION_CHOICE ? "one of " : "",
			option_metavar(spec));
		return;
	}
	n = snprintf(out, size, "%s", kinds[spec->kind]);
	bound_text(spec, spec->min, least, sizeof(least));
	bound_text(spec, spec->max, most, sizeof(most));
	if (n < 0 || (size_t)n >= size)
		return;
	if (spec->max)
		(void)snprintf(out + n, size - (size_t)n, ", %s to %s", least, most);
	else if (spec->min)
		(void)snprintf(out + n, size - (size_t)n, ", at least %s", least);
}

static int check_bounds(
	const struct option_spec *spec, uint64_t value, const char *text, struct err *e)
{
	char least[32];
	char most[32];

	if (value >= spec->min && (spec->max == 0 || value <= spec->max))
		return 0;
	bound_text(spec, spec->min, least, sizeof(least));
	bound_text(spec, spec->max, most, sizeof(most));
	if (spec->max == 0)
		return err_set(e, -EINVAL, "%s is too small; allowed: at least %s", text, least);
	return err_set(e, -EINVAL, "%s is out of range; allowed: %s to %s", text, least, most);
}

static int add_to_list(
	const struct option_spec *spec, struct option_list *list, const char *text, struct err *e)
{
	unsigned int most = spec->most ? spec->most : OPTION_LIST_USUAL;

	ensure(most <= OPTION_LIST_MAX);
	if (list->n >= most)
		return err_set(e, -EINVAL, "is given too often; allowed: %u times", most);
	list->values[list->n++] = text;
	return 0;
}

static int set_text(const struct option_spec *spec, const char *text, void *at, struct err *e)
{
	int r;

	if (spec->kind == OPTION_CHOICE && !option_is_choice(spec->choices, text))
		return err_set(
			e, -EINVAL, "'%s' is unknown; allowed: one of %s", text, spec->choices);
	if (!*text)
		return err_set(e, -EINVAL, "must not be empty; allowed: %s", option_metavar(spec));
	r = spec->check ? spec->check(text, e) : 0;
	if (r < 0)
		return r;
	if (spec->kind == OPTION_LIST)
		return add_to_list(spec, at, text, e);
	*(const char **)at = text;
	return 0;
}

int option_set_value(const struct option_spec *spec, const char *text, void *values, struct err *e)
{
	void *at = (char *)values + spec->offset;
	uint64_t value = 0;
	int r = 0;

	switch (spec->kind) {
	case OPTION_STRING:
	case OPTION_LIST:
	case OPTION_CHOICE:
		return set_text(spec, text, at, e);
	case OPTION_SIZE:
		r = units_parse_size(text, &value, e);
		break;
	case OPTION_RATE:
		r = units_parse_rate(text, &value, e);
		break;
	case OPTION_DURATION:
		r = units_parse_duration(text, &value, e);
		break;
	case OPTION_UINT:
	case OPTION_FD:
		r = parse_number(text, 10, &value);
		if (r == 0 && spec->kind == OPTION_FD && value > INT32_MAX)
			r = -EINVAL;
		if (r < 0)
			(void)err_set(e, r, "'%s' is not a whole number: write digits only", text);
		break;
	case OPTION_OCTAL:
		r = parse_number(text, 8, &value);
		if (r < 0)
			(void)err_set(e, r,
				"'%s' is not an octal number: write digits 0 to 7, such as 022",
				text);
		break;
	case OPTION_BOOL:
		if (strcmp(text, "true") != 0 && strcmp(text, "false") != 0)
			return err_set(e, -EINVAL,
				"'%s' is neither true nor false; allowed: true, false", text);
		*(bool *)at = *text == 't';
		return 0;
	}
	if (r < 0)
		return -EINVAL;
	r = check_bounds(spec, value, text, e);
	if (r == 0 && spec->check)
		r = spec->check(text, e);
	if (r < 0)
		return r;
	if (spec->kind == OPTION_FD)
		*(int *)at = (int)value;
	else
		*(uint64_t *)at = value;
	return 0;
}

static int parse_value(
	const struct option_spec *spec, const char *text, void *values, struct err *e)
{
	int r = option_set_value(spec, text, values, e);

	if (r < 0)
		(void)err_prefix(e, "--%s", spec->name); /* returns the code */
	return r;
}

/* Parses the option at argv[i]; *ret_used is 1 or 2 words. */
static int parse_one(const struct option_set *set, char **argv, int left, void *values,
	struct option_seen *seen, int *ret_used, struct err *e)
{
	const char *word = argv[0];
	const char *equals = word[1] == '-' ? strchr(word, '=') : NULL;
	size_t len = equals ? (size_t)(equals - word) : strlen(word);
	bool negated;
	const struct option_spec *spec = spec_find(set, word, len, &negated);

	*ret_used = 1;
	if (!spec && word[1] != '-' && len > 2) {
		spec = spec_find(set, word, 2, &negated);
		if (spec && spec->kind != OPTION_BOOL)
			equals = word + (word[2] == '=' ? 2 : 1); /* -o=json, -ojson */
		else
			spec = NULL;
	}
	if (!spec)
		return unknown_option(set, word, len, e);
	if (spec->kind == OPTION_LIST && !option_seen_has(seen, (size_t)(spec - set->specs)))
		((struct option_list *)(void *)((char *)values + spec->offset))->n = 0;
	option_seen_add(seen, (size_t)(spec - set->specs));
	if (spec->kind == OPTION_BOOL) {
		const char *text = equals ? equals + 1 : "true";

		if (negated ? equals != NULL : !option_is_choice(SWITCH_WORDS, text))
			return err_set(e, -EINVAL,
				"--%s takes no value but true and false: write --%s or --no-%s",
				spec->name, spec->name, spec->name);
		*(bool *)((char *)values + spec->offset) = !negated && strchr("tT1", *text);
		return 0;
	}
	if (equals)
		return parse_value(spec, equals + 1, values, e);
	if (left < 2)
		return err_set(e, -EINVAL, "--%s needs a value: --%s %s", spec->name, spec->name,
			option_metavar(spec));
	*ret_used = 2;
	return parse_value(spec, argv[1], values, e);
}

int option_check_complete(const struct option_set *set, const struct option_seen *seen,
	unsigned int args, struct err *e)
{
	for (unsigned int i = 0; i < set->n; i++)
		if (set->specs[i].required && seen && !option_seen_has(seen, i))
			return err_set(e, -EINVAL, "--%s is missing: give --%s %s",
				set->specs[i].name, set->specs[i].name,
				option_metavar(&set->specs[i]));
	if (args < set->min_args)
		return err_set(e, -EINVAL, "an argument is missing: the usage is %s [OPTION...] %s",
			set->program, set->arguments);
	if (args > set->max_args)
		return err_set(e, -EINVAL, "too many arguments: the usage is %s [OPTION...] %s",
			set->program, set->arguments);
	return 0;
}

/* The word of a command with which options end. */
static bool begins_command(const struct option_set *set, int args, const char *word)
{
	return set->command == (unsigned int)args + 1 && word[0] != '-' && !strpbrk(word, " \t\n");
}

int option_parse_words(const struct option_set *set, int argc, char **argv, void *values,
	int *ret_args, struct option_seen *ret_seen, struct err *e)
{
	struct option_seen seen = { 0 };
	int args = 0;
	int i = 1;

	ensure(set->n <= OPTION_SPECS_MAX);
	while (i < argc) {
		int used;
		int r;

		if (strcmp(argv[i], "--") == 0 || begins_command(set, args, argv[i])) {
			for (i += argv[i][0] == '-'; i < argc; i++)
				argv[++args] = argv[i];
			break;
		}
		if (argv[i][0] != '-' || argv[i][1] == '\0') {
			argv[++args] = argv[i++];
			continue;
		}
		if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0)
			return OPTION_HELP;
		r = parse_one(set, argv + i, argc - i, values, &seen, &used, e);
		if (r < 0)
			return r;
		i += used;
	}
	*ret_args = args;
	*ret_seen = seen;
	return 0;
}

int option_parse(const struct option_set *set, int argc, char **argv, void *values, int *ret_args,
	struct err *e)
{
	struct option_seen seen;
	int args;
	int r = option_parse_words(set, argc, argv, values, &args, &seen, e);

	if (r == 0)
		r = option_check_complete(set, &seen, (unsigned int)args, e);
	if (r == 0)
		*ret_args = args;
	return r;
}

static void (*looker)(void *arg, const struct option_set *set);
static void *looker_arg;

void option_look(void (*look)(void *arg, const struct option_set *set), void *arg)
{
	looker = look;
	looker_arg = arg;
}

_Noreturn void option_fail(const struct option_set *set, const struct err *e)
{
	char program[32];

	(void)snprintf(program, sizeof(program), "%.*s", (int)strcspn(set->program, " "),
		set->program); /* fits */
	exit(error_line_print(program, EXIT_USAGE,
		e)); // NOLINT(concurrency-mt-unsafe): no other thread has begun
}

_Noreturn void option_help_exit(const struct option_set *set)
{
	option_help(set, stdout);
	exit(fflush(stdout) == 0 ? EXIT_OK
				 : EXIT_RUNTIME); // NOLINT(concurrency-mt-unsafe): as above
}

void option_answer(const struct option_set *set, int argc, char **argv)
{
	enum option_doc_form form;

	if (looker) {
		looker(looker_arg, set);
		exit(EXIT_OK); // NOLINT(concurrency-mt-unsafe): no other thread has begun
	}
	if (argc != 2 || option_doc_asked(argv[1], &form) < 0)
		return;
	option_doc(set, form, stdout);
	exit(fflush(stdout) == 0 ? EXIT_OK
				 : EXIT_RUNTIME); // NOLINT(concurrency-mt-unsafe): as above
}

int option_parse_or_exit(const struct option_set *set, int argc, char **argv, void *values)
{
	struct err e = ERR_INIT;
	int args = 0;
	int r;

	option_answer(set, argc, argv);
	r = option_parse(set, argc, argv, values, &args, &e);
	if (r == OPTION_HELP)
		option_help_exit(set);
	if (r < 0)
		option_fail(set, &e);
	return args;
}

/* The words of `text` behind column `at`, each line below the first one's words. The column behind
 * the last. */
static int help_words(const char *text, int at, FILE *out)
{
	while (*text) {
		int len = (int)strcspn(text, " ");

		if (at + 1 + len > HELP_WIDTH) {
			(void)fprintf(out, "\n  %*s", HELP_COLUMN - 1, "");
			at = 2 + HELP_COLUMN - 1;
		}
		(void)fprintf(out, " %.*s", len, text);
		at += 1 + len;
		text += len + (text[len] == ' ');
	}
	return at;
}

static void help_row(const struct option_spec *spec, FILE *out)
{
	char left[128];
	const char *meta = option_metavar(spec);
	int n = 0;
	int at;

	if (spec->letter)
		n = snprintf(left, sizeof(left), "-%c, ", spec->letter);
	n += snprintf(
		left + n, sizeof(left) - (size_t)n, "--%s%s%s", spec->name, *meta ? " " : "", meta);
	(void)fprintf(out, "  %-*s%s", HELP_COLUMN - 1, left,
		n >= HELP_COLUMN ? " " : ""); /* two blanks */
	at = help_words(spec->help, 2 + max(n, HELP_COLUMN - 1) + (n >= HELP_COLUMN), out);
	(void)help_words(spec->required && spec->kind == OPTION_LIST ? "(required, several times)"
			 : spec->required                            ? "(required)"
			 : spec->kind == OPTION_LIST                 ? "(several times)"
								     : "",
		at, out);
	(void)fputc('\n', out);
}

void option_help(const struct option_set *set, FILE *out)
{
	(void)fprintf(out, "Usage: %s [OPTION...]%s%s\n", set->program, *set->arguments ? " " : "",
		set->arguments);
	if (set->about)
		(void)fprintf(out, "\n%s\n", set->about);
	(void)fprintf(out, "\nOptions:\n");
	for (unsigned int i = 0; i < set->n; i++)
		if (!set->specs[i].hidden)
			help_row(&set->specs[i], out);
	(void)fprintf(out, "  %-*s%s\n", HELP_COLUMN, "--help", "Print this help and exit");
}
