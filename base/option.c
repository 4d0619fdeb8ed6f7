/* Command-line options from a table. See option.h. */
#include "base/option.h"
#include "base/buf.h"
#include "base/exit.h"
#include "base/units.h"

#include <stdlib.h>
#include <string.h>

#define HELP_COLUMN 28

static const char *const kind_metavar[] = {
	[OPTION_STRING] = "TEXT",
	[OPTION_CHOICE] = NULL,
	[OPTION_SIZE] = "SIZE",
	[OPTION_DURATION] = "TIME",
	[OPTION_UINT] = "N",
	[OPTION_OCTAL] = "OCTAL",
	[OPTION_FD] = "FD",
	[OPTION_BOOL] = "",
	[OPTION_LIST] = "TEXT",
};

static const char *spec_metavar(const struct option_spec *spec)
{
	if (spec->metavar)
		return spec->metavar;
	return spec->kind == OPTION_CHOICE ? spec->choices : kind_metavar[spec->kind];
}

static int unknown_option(const struct option_set *set, const char *text, size_t len, struct err *e)
{
	struct buf names = BUF_INIT(ERR_TEXT_MAX / 2);
	int r = 0;

	for (unsigned int i = 0; i < set->n && r == 0; i++) {
		const char letter[] = { '-', set->specs[i].letter, '\0' };

		if (!set->specs[i].hidden)
			r = buf_printf(&names, "%s%s--%s, ", letter[1] ? letter : "",
				letter[1] ? " or " : "", set->specs[i].name);
	}
	r = err_set(e, -EINVAL, "unknown option '%.*s': the options of %s are %s--help",
		(int)min(len, (size_t)200), text, set->program, buf_str(&names));
	buf_release(&names);
	return r;
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

static bool choice_allowed(const char *choices, const char *text)
{
	size_t len = strlen(text);

	for (const char *p = choices; p; p = strchr(p, '|'), p = p ? p + 1 : NULL) {
		size_t n = strcspn(p, "|");

		if (n == len && memcmp(p, text, n) == 0)
			return true;
	}
	return false;
}

static int check_bounds(
	const struct option_spec *spec, uint64_t value, const char *text, struct err *e)
{
	char least[32];
	char most[32];

	if (value >= spec->min && (spec->max == 0 || value <= spec->max))
		return 0;
	if (spec->kind == OPTION_SIZE) {
		(void)units_size(spec->min, least, sizeof(least));
		(void)units_size(spec->max, most, sizeof(most));
	} else if (spec->kind == OPTION_DURATION) {
		(void)snprintf(least, sizeof(least), "%gs", (double)spec->min / 1e9);
		(void)snprintf(most, sizeof(most), "%gs", (double)spec->max / 1e9);
	} else {
		const char *fmt = spec->kind == OPTION_OCTAL ? "%03llo" : "%llu";

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
		(void)snprintf(least, sizeof(least), fmt, (unsigned long long)spec->min);
		(void)snprintf(most, sizeof(most), fmt, (unsigned long long)spec->max);
#pragma GCC diagnostic pop
	}
	if (spec->max == 0)
		return err_set(e, -EINVAL, "--%s %s is too small: at least %s is needed",
			spec->name, text, least);
	return err_set(e, -EINVAL, "--%s %s is out of range: %s to %s is allowed", spec->name, text,
		least, most);
}

static int add_to_list(
	const struct option_spec *spec, struct option_list *list, const char *text, struct err *e)
{
	if (list->n == OPTION_LIST_MAX)
		return err_set(e, -EINVAL, "--%s is given too often: at most %u times", spec->name,
			OPTION_LIST_MAX);
	list->values[list->n++] = text;
	return 0;
}

static int parse_value(
	const struct option_spec *spec, const char *text, void *values, struct err *e)
{
	void *at = (char *)values + spec->offset;
	uint64_t value = 0;
	int r = 0;

	switch (spec->kind) {
	case OPTION_STRING:
	case OPTION_LIST:
		if (!*text)
			return err_set(e, -EINVAL, "--%s must not be empty: give %s", spec->name,
				spec_metavar(spec));
		if (spec->kind == OPTION_LIST)
			return add_to_list(spec, at, text, e);
		*(const char **)at = text;
		return 0;
	case OPTION_CHOICE:
		if (!choice_allowed(spec->choices, text))
			return err_set(e, -EINVAL, "--%s '%s' is unknown: it is one of %s",
				spec->name, text, spec->choices);
		*(const char **)at = text;
		return 0;
	case OPTION_SIZE:
		r = units_parse_size(text, &value, e);
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
		break;
	}
	if (r < 0) {
		(void)err_prefix(e, "--%s", spec->name);
		return -EINVAL;
	}
	r = check_bounds(spec, value, text, e);
	if (r < 0)
		return r;
	if (spec->kind == OPTION_FD)
		*(int *)at = (int)value;
	else
		*(uint64_t *)at = value;
	return 0;
}

/* Parses the option at argv[i]; *ret_used is 1 or 2 words. */
static int parse_one(const struct option_set *set, char **argv, int left, void *values,
	uint64_t *seen, int *ret_used, struct err *e)
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
	*seen |= 1ull << (unsigned int)(spec - set->specs);
	if (spec->kind == OPTION_BOOL) {
		if (equals)
			return err_set(e, -EINVAL, "--%s takes no value: write --%s or --no-%s",
				spec->name, spec->name, spec->name);
		*(bool *)((char *)values + spec->offset) = !negated;
		return 0;
	}
	if (equals)
		return parse_value(spec, equals + 1, values, e);
	if (left < 2)
		return err_set(e, -EINVAL, "--%s needs a value: --%s %s", spec->name, spec->name,
			spec_metavar(spec));
	*ret_used = 2;
	return parse_value(spec, argv[1], values, e);
}

static int check_complete(
	const struct option_set *set, uint64_t seen, unsigned int args, struct err *e)
{
	for (unsigned int i = 0; i < set->n; i++)
		if (set->specs[i].required && !(seen >> i & 1))
			return err_set(e, -EINVAL, "--%s is missing: give --%s %s",
				set->specs[i].name, set->specs[i].name,
				spec_metavar(&set->specs[i]));
	if (args < set->min_args)
		return err_set(e, -EINVAL, "an argument is missing: the usage is %s [OPTION...] %s",
			set->program, set->arguments);
	if (args > set->max_args)
		return err_set(e, -EINVAL, "too many arguments: the usage is %s [OPTION...] %s",
			set->program, set->arguments);
	return 0;
}

int option_parse(const struct option_set *set, int argc, char **argv, void *values, int *ret_args,
	struct err *e)
{
	uint64_t seen = 0;
	int args = 0;
	int i = 1;

	ensure(set->n <= 64);
	while (i < argc) {
		int used;
		int r;

		if (strcmp(argv[i], "--") == 0) {
			for (i++; i < argc; i++)
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
	return check_complete(set, seen, (unsigned int)args, e);
}

int option_parse_or_exit(const struct option_set *set, int argc, char **argv, void *values)
{
	struct err e = ERR_INIT;
	int args = 0;
	int r = option_parse(set, argc, argv, values, &args, &e);

	if (r == OPTION_HELP) {
		option_help(set, stdout);
		exit(fflush(stdout) == 0 ? EXIT_OK : EXIT_RUNTIME);
	}
	if (r < 0) {
		(void)fprintf(stderr, "%.*s: %s\n", (int)strcspn(set->program, " "), set->program,
			e.text);
		exit(EXIT_USAGE);
	}
	return args;
}

static void help_row(const struct option_spec *spec, FILE *out)
{
	char left[128];
	const char *meta = spec_metavar(spec);
	int n = 0;

	if (spec->letter)
		n = snprintf(left, sizeof(left), "-%c, ", spec->letter);
	n += snprintf(
		left + n, sizeof(left) - (size_t)n, "--%s%s%s", spec->name, *meta ? " " : "", meta);
	(void)fprintf(out, "  %-*s%s%s%s\n", HELP_COLUMN, left, n >= HELP_COLUMN ? "  " : "",
		spec->help,
		spec->required && spec->kind == OPTION_LIST ? " (required, several times)"
		: spec->required                            ? " (required)"
		: spec->kind == OPTION_LIST                 ? " (several times)"
							    : "");
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
	(void)fprintf(out, "  %-*s%s\n", HELP_COLUMN, "--help", "print this and exit");
}
