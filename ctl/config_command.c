/*
 * cachectl config: whether a configuration file is right, and what the daemons make of it. Each
 * daemon is asked itself (base/config.h: --config-check, --config-show), so that what is said here
 * is what happens there.
 */
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/config.h"
#include "base/programs.h"
#include "base/yaml_tree.h"
#include "admin/admin.h"
#include "ctl/columns.h"
#include "ctl/command.h"
#include "ctl/subcommand.h"
#include "ctl/yaml_out.h"

#include <fcntl.h>
#include <string.h>
#include <sys/wait.h>

#define FILE_DEFAULT "/etc/granary/granary.yaml"
#define SHOW_BYTES   (256u << 10)
#define SAID_BYTES   4096u /* of what one daemon says is wrong */
#define SHOW_NS      (10 * CLOCK_SECOND)
#define DAEMONS      "master|worker|mount|keeper"

static const struct daemon_program {
	const char *section;
	const char *program;
} daemons[] = {
	{ "master", "cachemaster" },
	{ "worker", "cacheworker" },
	{ "mount", "cachefuse" },
	{ "keeper", "cachekeeper" },
};

struct config_options {
	const char *config;
	const char *daemon;
	const char *output;
};

static const struct option_spec check_specs[] = {
	OPTION_ROW(struct config_options, daemon, "daemon", OPTION_CHOICE, .choices = DAEMONS,
		.help = "Daemon to check for (default: those whose sections the file has)"),
	OUTPUT_OPTION_ROW(struct config_options, output, OUTPUT_CHOICES),
};

static const struct option_set check_set = {
	.program = "cachectl config check",
	.arguments = "FILE",
	.about = "Checks a configuration file as the daemons do when they start. An error is "
		 "printed with its line,\n"
		 "and the exit status is 2.",
	.specs = check_specs,
	.n = ARRAY_SIZE(check_specs),
	.min_args = 1,
	.max_args = 1,
};

static const struct option_spec show_specs[] = {
	OPTION_STRING_ROW(struct config_options, config, "config", "FILE",
		"Configuration file (default: " FILE_DEFAULT ", if it exists)"),
	OPTION_ROW(struct config_options, daemon, "daemon", OPTION_CHOICE, .choices = DAEMONS,
		.help = "Daemon to show (default: all)"),
	OUTPUT_OPTION_ROW(struct config_options, output, OUTPUT_CHOICES),
};

static const struct option_set show_set = {
	.program = "cachectl config show",
	.arguments = "",
	.about = "Shows each option that a daemon started here and now would have, and its source: "
		 "the program, a\n"
		 "line of the file, or a variable of this environment.",
	.specs = show_specs,
	.n = ARRAY_SIZE(show_specs),
};

static int program_path(const struct daemon_program *daemon, char out[PATH_MAX], struct err *e)
{
	char dir[PATH_MAX];
	int r = programs_dir(dir, e);

	if (r == 0 && snprintf(out, PATH_MAX, "%s/%s", dir, daemon->program) >= PATH_MAX)
		return err_set(e, -ENAMETOOLONG, "the path of %s is too long", daemon->program);
	return r;
}

/* ---- check ----------------------------------------------------------------------------------- */

/* What follows the program's name: the same from each daemon about what stands outside of their sections. */
static const char *reason_of(const char *line)
{
	const char *colon = strchr(line, ':');

	return colon ? colon : line;
}

/* Adds the lines of one daemon that no other has. */
static void add_new(struct buf *said, char *lines)
{
	char *save = NULL;

	for (char *line = strtok_r(lines, "\n", &save); line; line = strtok_r(NULL, "\n", &save))
		if (!strstr(buf_str(said), reason_of(line)) && buf_printf(said, "%s\n", line) < 0)
			return; /* enough for a person */
}

/* For programs as one error, without the names of the daemons. */
static int print_wrong(const char *format, int status, const struct buf *said)
{
	_cleanup_free_ char *lines = strdup(buf_str(said));
	struct err e = ERR_INIT;
	char text[ERR_TEXT_MAX] = "";
	char *save = NULL;

	if (output_is_table(format)) {
		(void)fputs(buf_str(said), stderr);
		return status;
	}
	for (char *line = lines ? strtok_r(lines, "\n", &save) : NULL; line;
		line = strtok_r(NULL, "\n", &save)) {
		size_t len = strlen(text);

		(void)snprintf(text + len, sizeof(text) - len, "%s%s", len ? "; " : "",
			reason_of(line) + strspn(reason_of(line), ": ")); /* cut */
	}
	(void)err_set(&e, -EINVAL, "%s", text);
	return command_fail(status, &e);
}

/* In the child: its standard error goes to `fd`. */
_Noreturn static void become(char *program, const char *file, int fd)
{
	if (dup2(fd, STDERR_FILENO) >= 0)
		(void)execl(program, program, "--config-check", "--config", file, (char *)NULL);
	(void)dprintf(fd, "cachectl: %s cannot be run: %m: install the programs next to cachectl\n",
		program);
	_exit(EXIT_RUNTIME);
}

/* Until its end; what does not fit is left out. */
static void take_lines(int fd, char lines[SAID_BYTES])
{
	char more[512];
	size_t len = 0;
	ssize_t n;

	while ((n = read(fd, more, sizeof(more))) > 0 || (n < 0 && errno == EINTR)) {
		size_t fits = n > 0 ? min((size_t)n, SAID_BYTES - 1 - len) : 0;

		memcpy(lines + len, more, fits);
		len += fits;
	}
	lines[len] = '\0';
}

static int run_check(
	const struct daemon_program *daemon, const char *file, struct buf *said, struct err *e)
{
	char lines[SAID_BYTES] = "";
	char program[PATH_MAX];
	int ends[2] = { -1, -1 };
	int status;
	pid_t pid;
	int r = program_path(daemon, program, e);

	if (r == 0 && pipe2(ends, O_CLOEXEC) != 0)
		r = err_set(e, err_errno(), "%s cannot be run: %m", program);
	if (r < 0)
		return command_fail(EXIT_RUNTIME, e);
	pid = fork();
	if (pid == 0)
		become(program, file, ends[1]);
	(void)close(ends[1]); /* the child's */
	if (pid > 0)
		take_lines(ends[0], lines);
	(void)close(ends[0]); /* read only */
	if (pid < 0 || waitpid(pid, &status, 0) < 0) {
		(void)err_set(e, err_errno(), "%s cannot be run: %m", program);
		return command_fail(EXIT_RUNTIME, e);
	}
	add_new(said, lines);
	return WIFEXITED(status) ? WEXITSTATUS(status) : EXIT_RUNTIME;
}

static bool has_section(const struct yaml_tree_node *root, const char *section)
{
	const struct yaml_tree_node *node = yaml_tree_find(root, section);

	return node && (node->kind == YAML_TREE_MAP || yaml_tree_is_null(node));
}

/* Those whose it is, and which take it; releases them. */
static int print_right(const char *format, const char *file, json_t *asked)
{
	if (!output_is_table(format))
		return yaml_out_made(format,
			json_pack("{s:o, s:o}", "file", admin_json_string(file), "daemons", asked));
	json_decref(asked);
	(void)printf("%s: no errors\n", file);
	return EXIT_OK;
}

static int check(int argc, char **argv)
{
	struct config_options options = { .output = "table" };
	_cleanup_(buf_release) struct buf said = BUF_INIT(SAID_BYTES * ARRAY_SIZE(daemons));
	struct yaml_tree *tree = NULL;
	struct err e = ERR_INIT;
	json_t *asked;
	int status = EXIT_OK;

	(void)option_parse_or_exit(&check_set, argc, argv, &options); /* exactly one argument */
	if (yaml_tree_read(argv[1], &tree, &e) < 0)
		return command_fail(EXIT_USAGE, &e);
	asked = json_array();
	for (size_t i = 0; i < ARRAY_SIZE(daemons); i++) {
		int r;

		if (options.daemon ? strcmp(options.daemon, daemons[i].section) != 0
				   : !has_section(tree->root, daemons[i].section))
			continue;
		if (json_array_append_new(asked, json_string(daemons[i].section)) < 0) {
			(void)err_set(&e, -ENOMEM, "out of memory");
			status = command_fail(EXIT_RUNTIME, &e);
			break;
		}
		r = run_check(&daemons[i], argv[1], &said, &e);
		status = status == EXIT_OK ? r : status;
	}
	yaml_tree_free(tree);
	if (status == EXIT_OK && json_array_size(asked) == 0) {
		(void)err_set(&e, -EINVAL, "%s: does not name its daemon; give --daemon: %s",
			argv[1], DAEMONS);
		status = command_fail(EXIT_USAGE, &e);
	}
	if (status == EXIT_OK)
		return print_right(options.output, argv[1], asked);
	json_decref(asked);
	return said.len > 0 ? print_wrong(options.output, status, &said) : status;
}

/* ---- show ------------------------------------------------------------------------------------ */

/* Takes "name\tvalue\torigin\n" off *text. */
static json_t *take_row(char **text)
{
	char *name = strsep(text, "\t");
	char *value = *text ? strsep(text, "\t") : NULL;
	char *origin = *text ? strsep(text, "\n") : NULL;

	return origin ? json_pack("{s:s, s:s, s:s}", "key", name, "value", value, "origin", origin)
		      : NULL;
}

static int ask_values(
	const struct daemon_program *daemon, const char *file, json_t **ret_rows, struct err *e)
{
	_cleanup_(buf_release) struct buf out = BUF_INIT(SHOW_BYTES);
	char program[PATH_MAX];
	char show[] = "--config-show";
	char config[] = "--config";
	char *argv[] = { program, show, file ? config : NULL, (char *)(uintptr_t)file, NULL };
	json_t *rows;
	char *text;
	int status = EXIT_RUNTIME;
	int r = program_path(daemon, program, e);

	if (r == 0)
		r = programs_run(argv, SHOW_NS, &out, &status);
	if (r < 0)
		return err_default(e, r, daemon->program);
	if (status != EXIT_OK)
		return err_set(e, -EINVAL,
			"%s refuses its configuration: run `cachectl config check %s`",
			daemon->program, file ? file : "FILE");
	rows = json_array();
	text = out.data;
	while (text && *text) {
		if (json_array_append_new(rows, take_row(&text)) < 0) {
			json_decref(rows);
			return err_set(e, -ENOMEM, "out of memory");
		}
	}
	*ret_rows = rows;
	return 0;
}

static int print_table(const json_t *all)
{
	static const char *const titles[] = { "DAEMON", "KEY", "VALUE", "FROM" };
	_cleanup_(columns_release) struct columns columns = { 0 };
	const char *section;
	const json_t *rows;
	int r = columns_init(&columns, titles, ARRAY_SIZE(titles), 0);

	json_object_foreach ((json_t *)(uintptr_t)all, section, rows) {
		const json_t *row;
		size_t i;

		json_array_foreach (rows, i, row) {
			const char *value = json_string_value(json_object_get(row, "value"));

			if (r == 0)
				r = columns_add(&columns,
					(const char *[]){ section,
						json_string_value(json_object_get(row, "key")),
						value && *value ? value : NULL,
						json_string_value(
							json_object_get(row, "origin")) });
		}
	}
	if (r == 0)
		columns_print(&columns, stdout);
	return r;
}

static int show(int argc, char **argv)
{
	struct config_options options = { .output = "table" };
	json_t *all = json_object();
	struct err e = ERR_INIT;
	int r = all ? 0 : err_set(&e, -ENOMEM, "out of memory");

	(void)option_parse_or_exit(&show_set, argc, argv, &options); /* takes no arguments */
	if (!options.config && access(FILE_DEFAULT, F_OK) == 0)
		options.config = FILE_DEFAULT;
	for (size_t i = 0; i < ARRAY_SIZE(daemons) && r == 0; i++) {
		json_t *rows = NULL;

		if (options.daemon && strcmp(options.daemon, daemons[i].section) != 0)
			continue;
		r = ask_values(&daemons[i], options.config, &rows, &e);
		if (r == 0 && json_object_set_new(all, daemons[i].section, rows) < 0)
			r = err_set(&e, -ENOMEM, "out of memory");
	}
	if (r == 0)
		r = output_is_table(options.output) ? print_table(all)
						    : yaml_out_as(options.output, all, stdout);
	json_decref(all);
	if (r < 0) {
		(void)err_default(&e, r, "the values cannot be shown");
		return command_fail(r == -EINVAL ? EXIT_USAGE : EXIT_RUNTIME, &e);
	}
	return fflush(stdout) == 0 ? EXIT_OK : EXIT_RUNTIME;
}

int command_config(int argc, char **argv)
{
	static const struct subcommand all[] = {
		{ "check", check, "Check a configuration file" },
		{ "show", show, "Show the settings of the daemons, and their sources" },
	};

	return subcommand_run("cachectl config",
		"The configuration of the daemons: a file, the environment, and what they have "
		"without.",
		all, ARRAY_SIZE(all), argc, argv);
}
