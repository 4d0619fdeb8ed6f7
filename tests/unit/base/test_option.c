/* Options: every kind, every way to be wrong, and the help that is made from the table. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "base/option.h"
#include "base/units.h"

struct values {
	const char *name;
	const char *output;
	uint64_t size;
	uint64_t wait;
	uint64_t count;
	uint64_t umask;
	int fd;
	bool force;
	struct option_list more;
	struct option_list many;
};

static const struct option_spec specs[] = {
	OPTION_STRING_ROW(struct values, name, "name", "TEXT", "a name"),
	OPTION_ROW(struct values, output, "output", OPTION_CHOICE, .letter = 'o',
		.choices = "table|json", .help = "form of the answer"),
	OPTION_SIZE_ROW(struct values, size, "size", 64 * KiB, 1 * GiB, "a size"),
	OPTION_ROW(struct values, wait, "wait", OPTION_DURATION, .help = "a time"),
	OPTION_ROW(
		struct values, count, "count", OPTION_UINT, .min = 1, .max = 9, .help = "a number"),
	OPTION_ROW(struct values, umask, "umask", OPTION_OCTAL, .max = 0777, .help = "a umask"),
	OPTION_ROW(struct values, fd, "fd", OPTION_FD, .hidden = true, .help = "a descriptor"),
	OPTION_BOOL_ROW(struct values, force, "force", "a switch"),
	OPTION_ROW(struct values, more, "more", OPTION_LIST, .help = "texts"),
	OPTION_ROW(struct values, many, "many", OPTION_LIST, .most = OPTION_LIST_MAX,
		.hidden = true, .help = "texts"),
};

static const struct option_set set = {
	.program = "prog",
	.arguments = "URL DIR",
	.specs = specs,
	.n = ARRAY_SIZE(specs),
	.min_args = 1,
	.max_args = 2,
};

/* Splits `line` at blanks and parses it; the words live in a static array. */
static int parse(
	const char *line, struct values *values, int *ret_args, char ***ret_argv, struct err *e)
{
	static char copy[1024];
	static char *argv[80];
	int argc = 0;

	(void)snprintf(copy, sizeof(copy), "prog %s", line);
	for (char *word = strtok(copy, " "); word; word = strtok(NULL, " "))
		argv[argc++] = word;
	*ret_argv = argv;
	return option_parse(&set, argc, argv, values, ret_args, e);
}

static void test_all_kinds(void **state)
{
	struct values v = { .fd = -1, .force = true };
	struct err e = ERR_INIT;
	char **argv;
	int args;

	(void)state;
	assert_int_equal(parse("--name=x=y first --size 1MiB -o json --wait 250ms --count 9 "
			       "--umask 027 --fd 7 "
			       "--no-force -- --second",
				 &v, &args, &argv, &e),
		0);
	assert_string_equal(v.name, "x=y");
	assert_string_equal(v.output, "json");
	assert_int_equal(v.size, MiB);
	assert_int_equal(v.wait, 250000000);
	assert_int_equal(v.count, 9);
	assert_int_equal(v.umask, 027);
	assert_int_equal(v.fd, 7);
	assert_false(v.force);
	assert_int_equal(args, 2);
	assert_string_equal(argv[1], "first");
	assert_string_equal(argv[2], "--second");
	assert_int_equal(parse("a --force=true", &v, &args, &argv, &e), 0);
	assert_true(v.force);
	assert_int_equal(parse("a --force=F", &v, &args, &argv, &e), 0);
	assert_false(v.force);
	assert_int_equal(parse("a --force=1", &v, &args, &argv, &e), 0);
	assert_true(v.force);
	assert_int_equal(parse("a --force=false", &v, &args, &argv, &e), 0);
	assert_false(v.force);
}

static void test_letter(void **state)
{
	static const char *const lines[] = { "a -o json", "a -ojson", "a -o=json" };

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(lines); i++) {
		struct values v = { .fd = -1 };
		struct err e = ERR_INIT;
		char **argv;
		int args;

		assert_int_equal(parse(lines[i], &v, &args, &argv, &e), 0);
		assert_string_equal(v.output, "json");
		assert_int_equal(args, 1);
	}
}

static void test_bad_lines(void **state)
{
	static const struct {
		const char *line;
		const char *says;
	} cases[] = {
		{ "a --nmae x", "unknown option '--nmae': did you mean --name? `prog --help` lists "
				"all options" },
		{ "a --frobnicate=1", "unknown option '--frobnicate': `prog --help` lists" },
		{ "a --nam x", "unknown option '--nam'" },
		{ "a -x", "unknown option '-x'" },
		{ "a -xy", "unknown option '-xy'" },
		{ "a -oxml", "--output: 'xml' is unknown; allowed: one of table|json" },
		{ "a -o=", "is unknown" },
		{ "a --name", "--name needs a value: --name TEXT" },
		{ "a --name=", "must not be empty" },
		{ "a -o xml", "--output: 'xml' is unknown; allowed: one of table|json" },
		{ "a --output tab", "allowed: one of table|json" },
		{ "a --size 20gib5", "--size: '20gib5' is not a size" },
		{ "a --size 20QB", "such as 512MiB" },
		{ "a --size 4k", "--size: 4k is out of range; allowed: 64.0KiB to 1.0GiB" },
		{ "a --size 2GiB", "out of range" },
		{ "a --wait 3", "--wait: '3' is not a duration" },
		{ "a --count 10", "--count: 10 is out of range; allowed: 1 to 9" },
		{ "a --count -1", "not a whole number" },
		{ "a --count 1x", "not a whole number" },
		{ "a --umask 9", "octal" },
		{ "a --umask 1777", "allowed: 000 to 777" },
		{ "a --fd 99999999999", "not a whole number" },
		{ "a --force=yes",
			"takes no value but true and false: write --force or --no-force" },
		{ "a --no-name", "unknown option" },
		{ "a --no-force=true", "takes no value" },
		{ "", "an argument is missing: the usage is prog [OPTION...] URL DIR" },
		{ "a b c", "too many arguments" },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct values v = { .fd = -1 };
		struct err e = ERR_INIT;
		char **argv;
		int args;

		assert_int_equal(parse(cases[i].line, &v, &args, &argv, &e), -EINVAL);
		if (!strstr(e.text, cases[i].says))
			fail_msg("'%s' says: %s", cases[i].line, e.text);
	}
}

static void test_help(void **state)
{
	struct values v = { 0 };
	struct err e = ERR_INIT;
	_Alignas(8) char text[4096] = "";
	FILE *out = fmemopen(text, sizeof(text), "w");
	char **argv;
	int args;

	(void)state;
	assert_int_equal(parse("--help", &v, &args, &argv, &e), OPTION_HELP);
	option_help(&set, out);
	assert_int_equal(fclose(out), 0);
	assert_non_null(strstr(text, "Usage: prog [OPTION...] URL DIR"));
	assert_non_null(strstr(text, "-o, --output table|json"));
	assert_non_null(strstr(text, "--size SIZE"));
	assert_null(strstr(text, "--fd"));
}

/* What does not fit 100 columns goes on below the words it belongs to, and none is lost. */
static void test_help_wraps(void **state)
{
	static const struct option_spec wide[] = {
		OPTION_ROW(struct values, output, "output", OPTION_CHOICE,
			.choices = "a-choice|another-choice|third",
			.help = "one two three four five six seven eight nine ten eleven twelve "
				"thirteen fourteen fifteen sixteen"),
		OPTION_ROW(struct values, more, "more", OPTION_LIST,
			.help = "exactly so many words that this line ends beside the last column "
				"of it"),
	};
	const struct option_set odd = {
		.program = "prog", .arguments = "", .specs = wide, .n = ARRAY_SIZE(wide)
	};
	char text[2048] = "";
	FILE *out = fmemopen(text, sizeof(text), "w");

	(void)state;
	option_help(&odd, out);
	assert_int_equal(fclose(out), 0);
	assert_non_null(strstr(text,
		"  --output a-choice|another-choice|third  one two three four five six seven eight "
		"nine ten eleven\n"
		"                              twelve thirteen fourteen fifteen sixteen\n"));
	assert_non_null(strstr(text, "  --more TEXT                 exactly so many words that "
				     "this line ends beside the "
				     "last column of it\n"
				     "                              (several times)\n"));
	for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n"))
		assert_in_range(strlen(line), 0, 100);
}

static void test_list(void **state)
{
	struct values values = { 0 };
	struct err e = ERR_INIT;
	char many[1024];
	size_t len;
	char **argv;
	int args;

	(void)state;
	assert_int_equal(parse("--more a u --more=b", &values, &args, &argv, &e), 0);
	assert_int_equal(values.more.n, 2);
	assert_string_equal(values.more.values[0], "a");
	assert_string_equal(values.more.values[1], "b");
	assert_int_equal(parse("u --more=", &values, &args, &argv, &e), -EINVAL);
	values.more.n = 0;
	len = (size_t)snprintf(many, sizeof(many), "u");
	for (unsigned int i = 0; i < OPTION_LIST_USUAL; i++)
		len += (size_t)snprintf(many + len, sizeof(many) - len, " --more=x");
	assert_int_equal(parse(many, &values, &args, &argv, &e), 0);
	values.more.n = 0;
	(void)snprintf(many + len, sizeof(many) - len, " --more=x");
	assert_int_equal(parse(many, &values, &args, &argv, &e), -EINVAL);
	assert_string_equal(e.text, "--more: is given too often; allowed: 16 times");
	len = (size_t)snprintf(many, sizeof(many), "u");
	for (unsigned int i = 0; i < OPTION_LIST_MAX; i++)
		len += (size_t)snprintf(many + len, sizeof(many) - len, " --many=x");
	assert_int_equal(parse(many, &values, &args, &argv, &e), 0);
	(void)snprintf(many + len, sizeof(many) - len, " --many=x");
	assert_int_equal(parse(many, &values, &args, &argv, &e), -EINVAL);
	assert_string_equal(e.text, "--many: is given too often; allowed: 64 times");
}

/* Options end with the first word of a command, not with a line that is one. */
static void test_command(void **state)
{
	static const struct {
		const char *words[8];
		int args;
		bool force;
	} cases[] = {
		{ { "prog", "type", "mpirun", "--force", "-np", "8" }, 5, false },
		{ { "prog", "type", "a line", "--force" }, 2, true },
		{ { "prog", "type", "--force", "--", "--force" }, 2, true },
		{ { "prog", "--force", "type" }, 1, true },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct option_set commands = set;
		struct values v = { 0 };
		struct err e = ERR_INIT;
		char *argv[8] = { NULL };
		int argc = 0;
		int args;

		for (; cases[i].words[argc]; argc++)
			argv[argc] = (char *)(uintptr_t)cases[i].words[argc];
		commands.command = 2;
		commands.max_args = 9;
		assert_int_equal(option_parse(&commands, argc, argv, &v, &args, &e), 0);
		assert_int_equal(args, cases[i].args);
		assert_int_equal(v.force, cases[i].force);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_all_kinds),
		cmocka_unit_test(test_letter),
		cmocka_unit_test(test_bad_lines),
		cmocka_unit_test(test_help),
		cmocka_unit_test(test_help_wraps),
		cmocka_unit_test(test_list),
		cmocka_unit_test(test_command),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
