/*
 * cachectl upgrade: other programs in place of those that serve mounts, while they serve. The keeper leaves its mounts, and the
 * new one recovers them: that of a private cache is started here, a service's by its service manager.
 */
#include "admin/admin.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/option.h"
#include "base/programs.h"
#include "base/units.h"
#include "ctl/command.h"
#include "ctl/fleet.h"
#include "ctl/keeper_start.h"
#include "ctl/yaml_out.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define DONE_NS (30 * CLOCK_SECOND)
#define RUN_NS  (10 * CLOCK_SECOND) /* of a program that only prints its options */
#define POLL_NS (10 * CLOCK_MS)

struct upgrade_options {
	struct fleet_choice choice;
	const char *program;
	const char *output;
};

static const struct option_spec specs[] = {
	FLEET_CHOICE_ROWS(struct upgrade_options, choice),
	OPTION_STRING_ROW(struct upgrade_options, program, "program", "DIR",
		"Directory of the new programs (default: that of cachectl)"),
	OUTPUT_OPTION_ROW(struct upgrade_options, output, OUTPUT_CHOICES),
};

static const struct option_set set = {
	.program = "cachectl upgrade",
	.exits = { EXIT_CACHE, EXIT_BUSY },
	.arguments = "[keeper|mounts]",
	.about = "Replaces the mount keeper and the daemons of all mounts by the programs in DIR "
		 "while they serve:\n"
		 "readers wait less than a second.",
	.specs = specs,
	.n = ARRAY_SIZE(specs),
	.max_args = 1,
};

struct upgrade {
	char dir[PATH_MAX];
	const char *only; /* "keeper" or "mounts"; NULL: both */
	unsigned int found;
	json_t *replaced; /* for programs; NULL: each is said when it is */
	struct err *err;
};

static long long number(const json_t *json, const char *name)
{
	return (long long)json_integer_value(json_object_get(json, name));
}

/* What a keeper says of itself. */
struct keeper_now {
	pid_t pid; /* 0: it does not answer now */
	bool is_private;
	size_t mounts;
	unsigned int waiting; /* of these: do not serve yet */
	long long restarts;   /* of the daemons of those */
	long long upgrades;   /* daemons of mounts that were replaced */
};

/* A mount that failed is waited for by nothing. */
static bool is_waiting(const json_t *mount)
{
	const char *state = json_string_value(json_object_get(mount, "state"));

	return !state || (strcmp(state, "serving") != 0 && strcmp(state, "failed") != 0);
}

static struct keeper_now look(const char *run)
{
	struct keeper_now now = { 0 };
	struct err ignored = ERR_INIT;
	json_t *status = NULL;
	const json_t *mount;
	size_t i;

	if (fleet_call(run, "keeper.sock", "/v1/status", &status, &ignored) < 0)
		return now;
	now.pid = (pid_t)number(status, "pid");
	now.is_private = json_is_true(json_object_get(status, "private"));
	json_array_foreach (json_object_get(status, "mounts"), i, mount) {
		now.mounts++;
		if (is_waiting(mount)) {
			now.waiting++;
			now.restarts += number(mount, "restarts");
		}
		now.upgrades += number(mount, "upgrades");
	}
	json_decref(status);
	return now;
}

/* One that was just replaced, or started, answers soon. */
static struct keeper_now await_answer(const char *run)
{
	uint64_t deadline = clock_mono_ns() + DONE_NS;
	struct keeper_now now;

	while ((now = look(run)).pid == 0 && clock_mono_ns() < deadline)
		clock_sleep_ns(POLL_NS);
	return now;
}

static int say_replaced(const struct upgrade *u, const char *run, const char *what)
{
	if (!u->replaced) {
		char name[PATH_MAX];

		(void)printf("%s of %s replaced by those in %s\n",
			strcmp(what, "keeper") == 0 ? "keeper" : "daemons",
			fleet_cache_name(run, name, sizeof(name)), u->dir);
		return 0;
	}
	return json_array_append_new(u->replaced,
		       json_pack("{s:s, s:o, s:o}", "what", what, "run", admin_json_string(run),
			       "programs", admin_json_string(u->dir))) == 0
		       ? 0
		       : err_set(u->err, -ENOMEM, "out of memory");
}

static int ask(const struct upgrade *u, const char *run, const char *what)
{
	char socket[SOCKET_PATH_MAX];
	json_t *body = json_pack("{s:s, s:s}", "what", what, "program", u->dir);
	int r = -ENAMETOOLONG;

	if (snprintf(socket, sizeof(socket), "%s/keeper.sock", run) < (int)sizeof(socket))
		r = admin_call(socket, "POST", "/v1/upgrade", body, fleet_timeout(), NULL, u->err);
	json_decref(body);
	return r;
}

static int late(const struct upgrade *u, const char *run, const char *what)
{
	return err_set(u->err, -ETIMEDOUT,
		"the %s of %s did not restart in time: see cachectl status", what, run);
}

/*
 * What did not serve before may serve with these programs, and need not: its daemon was started twice since, the second time as the
 * new one ended.
 */
static bool were_tried(const struct keeper_now *now, const struct keeper_now *before)
{
	return now->waiting == 0 || now->restarts >= before->restarts + 2ll * now->waiting;
}

/* It answers, and no more mounts wait for a daemon than before. */
static bool is_done(const struct keeper_now *now, const struct keeper_now *before)
{
	return now->pid > 0 && now->waiting <= before->waiting;
}

static int replace_mounts(const struct upgrade *u, const char *run)
{
	struct keeper_now before = await_answer(run);
	uint64_t deadline = clock_mono_ns() + DONE_NS;
	struct keeper_now now;
	int r;

	if (before.pid > 0 && before.mounts == 0)
		return 0;
	r = ask(u, run, "mounts");
	if (r < 0)
		return r;
	for (;;) {
		now = look(run);
		if (is_done(&now, &before) && now.upgrades > before.upgrades &&
			(were_tried(&now, &before) || clock_mono_ns() > deadline))
			return say_replaced(u, run, "mounts");
		if (clock_mono_ns() > deadline)
			return late(u, run, "mounts");
		clock_sleep_ns(POLL_NS);
	}
}

/* A program that cannot be run leaves the old keeper running. */
static int check_program(const struct upgrade *u)
{
	_cleanup_(buf_release) struct buf out = BUF_INIT(64 * KiB);
	char program[PATH_MAX + 16];
	char help[] = "--help";
	char *argv[] = { program, help, NULL };
	int status = -1;
	int r;

	(void)snprintf(program, sizeof(program), "%s/cachekeeper", u->dir); /* fits */
	if (access(program, X_OK) != 0)
		return err_set(u->err, err_errno(),
			"%s cannot be run: %m; give the directory of the new programs", program);
	r = programs_run(argv, RUN_NS, &out, &status);
	if (r == 0 && status == 0)
		return 0;
	return err_set(u->err, -EINVAL,
		"%s cannot be run: `cachekeeper --help` failed; give the directory of the new "
		"programs",
		program);
}

static int replace_keeper(const struct upgrade *u, const char *run)
{
	int r = check_program(u);
	struct keeper_now before = r == 0 ? await_answer(run) : (struct keeper_now){ 0 };
	bool is_private = before.is_private;
	uint64_t deadline = clock_mono_ns() + DONE_NS;
	struct keeper_now now;

	if (r == 0 && before.pid == 0)
		return late(u, run, "keeper");
	if (r == 0)
		r = ask(u, run, "keeper");
	if (r < 0)
		return r;
	for (;;) {
		if (is_private && !fleet_alive(run, "keeper.sock")) {
			int status = keeper_succeed(run, u->dir, u->err);

			if (status != EXIT_OK && status != EXIT_BUSY) {
				(void)!keeper_revive(run); /* by the program of this command */
				return -EIO;
			}
			is_private = status != EXIT_OK; /* BUSY: the old one has not ended yet */
		}
		now = look(run);
		if (now.pid != before.pid && is_done(&now, &before))
			break;
		if (clock_mono_ns() > deadline)
			return late(u, run, "keeper");
		clock_sleep_ns(POLL_NS);
	}
	*u->err = ERR_INIT;
	return say_replaced(u, run, "keeper");
}

static bool has_keeper(void *arg, const char *run)
{
	(void)arg;
	keeper_end_hung(run);
	return keeper_revive(run) == 0;
}

static int visit(void *arg, const char *run)
{
	struct upgrade *u = arg;
	int r = 0;

	/* The keeper first: the new one starts the new daemons. */
	if (!u->only || strcmp(u->only, "keeper") == 0)
		r = replace_keeper(u, run);
	/* Daemons that cannot start, or a keeper that is not started again, do not keep others from being replaced. */
	if (!u->only && (r == -EBUSY || r == -EOPNOTSUPP)) {
		bool later = r == -EBUSY;

		if (!later)
			(void)fprintf(stderr, "cachectl: keeper of %s not replaced: %s\n", run,
				u->err->text);
		*u->err = ERR_INIT;
		r = replace_mounts(u, run);
		return r == 0 && later ? replace_keeper(u, run) : r;
	}
	if (r == 0 && (!u->only || strcmp(u->only, "mounts") == 0))
		r = replace_mounts(u, run);
	return r;
}

static int answer(const char *format, json_t *replaced)
{
	return yaml_out_made(format, json_pack("{s:O}", "replaced", replaced));
}

int command_upgrade(int argc, char **argv)
{
	struct upgrade_options options = { .output = "table" };
	struct err e = ERR_INIT;
	struct upgrade u = { .err = &e };
	int args = option_parse_or_exit(&set, argc, argv, &options);
	int status = EXIT_OK;
	int r;

	u.only = args > 0 ? argv[1] : NULL;
	if (u.only && strcmp(u.only, "keeper") != 0 && strcmp(u.only, "mounts") != 0) {
		(void)err_set(&e, -EINVAL, "invalid argument '%s': use keeper or mounts", u.only);
		return command_fail(EXIT_USAGE, &e);
	}
	if (options.program && !realpath(options.program, u.dir)) {
		(void)err_set(
			&e, err_errno(), "cannot use %s: %m; give a directory", options.program);
		return command_fail(EXIT_USAGE, &e);
	}
	if (!options.program && programs_dir(u.dir, &e) < 0)
		return command_fail(EXIT_RUNTIME, &e);
	u.replaced = output_is_table(options.output) ? NULL : json_array();
	r = output_is_table(options.output) || u.replaced
		    ? fleet_each_chosen(&options.choice, has_keeper, visit, &u, &u.found, &e)
		    : -ENOMEM;
	if (r == 0 && u.found == 0)
		r = err_set(&e, -ESRCH, "no keeper is running on this host: mount something first");
	/* Those before the one that failed were replaced. */
	if (u.replaced && u.found > 0)
		status = answer(options.output, u.replaced);
	json_decref(u.replaced);
	if (r == 0)
		return status;
	(void)err_default(&e, r, "not upgraded");
	return command_fail(command_exit(r), &e);
}
