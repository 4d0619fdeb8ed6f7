/* cachectl backup and restore: the master's state as one file, and a master's state of that. */
#include "admin/admin.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/programs.h"
#include "base/units.h"
#include "ctl/command.h"
#include "ctl/master_call.h"
#include "ctl/master_wire.h"
#include "ctl/yaml_out.h"

#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define BACKUP_NS  (600 * CLOCK_SECOND) /* tables of hundreds of millions of objects */
#define COPY_BYTES ((size_t)1 << 20)

struct backup_options {
	struct master_where where;
	bool replace;
	const char *output;
};

static const struct option_spec specs[] = {
	MASTER_OPTION_ROWS(struct backup_options, where),
	OPTION_BOOL_ROW(struct backup_options, replace, "replace",
		"Replace FILE if it exists (default: no)"),
	OUTPUT_OPTION_ROW(struct backup_options, output, OUTPUT_CHOICES),
};

static const struct option_set set = {
	.program = "cachectl backup",
	.exits = { EXIT_CACHE },
	.arguments = "FILE",
	.about = "Writes the state of the master to FILE: datasets, sources, generations with "
		 "their tables,\n"
		 "preloads, the slot table. No cached data, no credentials. `cachectl restore` "
		 "creates the state of\n"
		 "a master from it. The master keeps a daily copy next to its state (cachemaster "
		 "--daily-backups).",
	.specs = specs,
	.n = ARRAY_SIZE(specs),
	.min_args = 1,
	.max_args = 1,
};

static int copy(int from, int to)
{
	_cleanup_free_ char *bytes = malloc(COPY_BYTES);
	uint64_t at = 0;

	if (!bytes)
		return -ENOMEM;
	for (;;) {
		ssize_t n = read(from, bytes, COPY_BYTES);
		int r;

		if (n < 0)
			return err_errno();
		if (n == 0)
			return fsync(to) != 0 ? err_errno() : 0;
		r = file_pwrite_exact(to, bytes, (size_t)n, at);
		if (r < 0)
			return r;
		at += (uint64_t)n;
	}
}

/* `file` is there whole, or as it was. */
static int fetch(const char *from, const char *file, struct err *e)
{
	_cleanup_close_ int in = open(from, O_RDONLY | O_CLOEXEC);
	_cleanup_close_ int out = -1;
	char path[PATH_MAX];
	int r;

	if (in < 0)
		return err_set(e, err_errno(),
			"the master's backup %s cannot be read: %m: copy it as its user", from);
	if (snprintf(path, sizeof(path), "%s.new", file) >= (int)sizeof(path))
		return err_set(e, -ENAMETOOLONG, "%s: the path is too long", file);
	out = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	if (out < 0)
		return err_set(e, err_errno(), "cannot create %s: %m; give another file", path);
	r = copy(in, out);
	if (r == 0 && rename(path, file) != 0)
		r = err_errno();
	if (r == 0)
		return file_sync_parent(file);
	(void)unlink(path); /* given up */
	return err_set(e, r, "%s cannot be written: %s: free some space, or give another file",
		file, err_str(r));
}

static int say(const struct backup_options *options, const char *file, json_int_t bytes,
	json_int_t records, json_int_t tables)
{
	char size[32];
	json_t *json;
	int status;

	if (output_is_table(options->output)) {
		(void)printf("%s: %lld records, %lld tables, %s\n", file, (long long)records,
			(long long)tables, units_size((uint64_t)bytes, size, sizeof(size)));
		return EXIT_OK;
	}
	json = json_pack("{s:s, s:I, s:I, s:I}", "file", file, "bytes", bytes, "records", records,
		"tables", tables);
	status = yaml_out_answer(options->output, json);
	json_decref(json);
	return status;
}

int command_backup(int argc, char **argv)
{
	struct backup_options options = { .output = "table" };
	struct err ignored = ERR_INIT; /* the call says it again */
	struct err e = ERR_INIT;
	char at[SOCKET_PATH_MAX];
	json_t *answer = NULL;
	const char *from;
	json_int_t bytes = 0;
	json_int_t records = 0;
	json_int_t tables = 0;
	int r;

	(void)option_parse_or_exit(&set, argc, argv, &options); /* one argument */
	if (!options.replace && access(argv[1], F_OK) == 0) {
		(void)err_set(
			&e, -EEXIST, "%s already exists: give another file, or --replace", argv[1]);
		return command_fail(EXIT_USAGE, &e);
	}
	if (master_find(&options.where, at, &ignored) == 0 && master_is_wire(at)) {
		(void)err_set(&e, -EXDEV,
			"the master is on another node (%s), and a backup is a file there: run "
			"cachectl "
			"backup on that node",
			at + strlen(MASTER_WIRE));
		return command_fail(EXIT_USAGE, &e);
	}
	r = master_call(&options.where, "POST", "/v1/backups", NULL, BACKUP_NS, &answer, &e);
	if (r < 0)
		return command_fail(EXIT_RUNTIME, &e);
	if (json_unpack(answer, "{s:s, s:I, s:I, s:I}", "file", &from, "bytes", &bytes, "records",
		    &records, "tables", &tables) != 0)
		r = err_set(&e, -EPROTO, "invalid answer of the master: upgrade cachectl");
	if (r == 0)
		r = fetch(from, argv[1], &e);
	json_decref(answer);
	if (r < 0) {
		(void)err_default(&e, r, "no backup");
		return command_fail(EXIT_RUNTIME, &e);
	}
	return say(&options, argv[1], bytes, records, tables);
}

/* The master's own program does it: what a state is made of is known there. */
int command_restore(int argc, char **argv)
{
	struct err e = ERR_INIT;
	char program[PATH_MAX + 16];
	char dir[PATH_MAX];
	char **words = calloc((size_t)argc + 2, sizeof(*words));
	char as[] = "cachectl";
	char restore[] = "restore";

	if (!words)
		(void)err_set(&e, -ENOMEM, "out of memory");
	else if (programs_dir(dir, &e) == 0) {
		(void)snprintf(program, sizeof(program), "%s/cachemaster", dir); /* fits */
		words[0] = as; /* so that its help and errors name this command */
		words[1] = restore;
		for (int i = 1; i < argc; i++)
			words[i + 1] = argv[i];
		(void)execv(program, words);
		(void)err_set(&e, err_errno(), "%s cannot be run: %m: install it", program);
	}
	free(words);
	return command_fail(EXIT_RUNTIME, &e);
}
