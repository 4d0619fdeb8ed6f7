/* What a preload is and how far, for people. See preload_command.h. */
#include "base/clock.h"
#include "base/units.h"
#include "ctl/bar.h"
#include "ctl/columns.h"
#include "ctl/command.h"
#include "ctl/fleet.h"
#include "ctl/preload_command.h"

#include <inttypes.h>
#include <signal.h>
#include <string.h>

#define POLL_NS   (100 * CLOCK_MS)
#define OPEN_NS   (20 * CLOCK_MS)
#define SILENT_NS (60 * CLOCK_SECOND) /* of a master that is started again meanwhile */
#define SLICE_NS  (20 * CLOCK_MS)

static volatile sig_atomic_t interrupted;

static uint64_t number(const json_t *json, const char *name)
{
	return (uint64_t)json_integer_value(json_object_get(json, name));
}

static const char *text(const json_t *json, const char *name)
{
	const char *value = json_string_value(json_object_get(json, name));

	return value ? value : "";
}

static bool is_state(const json_t *job, const char *state)
{
	return strcmp(text(job, "state"), state) == 0;
}

static bool has_ended(const json_t *job)
{
	return is_state(job, "complete") || is_state(job, "failed") ||
	       is_state(job, "incomplete") || is_state(job, "cancelled");
}

static void on_interrupt(int signal)
{
	(void)signal;
	interrupted = 1;
}

/* The second one ends as ever. */
static void catch_interrupts(void)
{
	struct sigaction action = { .sa_handler = on_interrupt, .sa_flags = (int)SA_RESETHAND };

	(void)sigaction(SIGINT, &action, NULL);  /* cannot fail */
	(void)sigaction(SIGTERM, &action, NULL); /* likewise */
}

static int get(const struct master_where *where, uint64_t id, json_t **ret_job, struct err *e)
{
	char path[64];

	(void)snprintf(path, sizeof(path), "/v1/preloads/%" PRIu64, id); /* fits */
	return master_call(where, NULL, path, NULL, MASTER_CALL_NS, ret_job, e);
}

/* ---- one ------------------------------------------------------------------------------------- */

static void print_failures(const json_t *job)
{
	const json_t *failures = json_object_get(job, "failures");
	const json_t *failure;
	size_t i;

	json_array_foreach (failures, i, failure) {
		(void)printf("  ");
		columns_put(text(failure, "key"), stdout);
		(void)printf(": ");
		columns_put(text(failure, "reason"), stdout);
		(void)printf("\n");
	}
	if (number(job, "files_failed") > json_array_size(failures))
		(void)printf("  and %" PRIu64 " more\n",
			number(job, "files_failed") - json_array_size(failures));
}

static struct bar_progress progress_of(const json_t *job)
{
	const char *note = text(job, "reason");

	if (!*note)
		note = is_state(job, "listing")   ? "listing the source"
		       : is_state(job, "waiting") ? "waiting for a worker"
						  : "counting";
	return (struct bar_progress){
		.bytes = number(job, "bytes"),
		.bytes_done = number(job, "bytes_done"),
		.files = number(job, "files"),
		.files_done = number(job, "files_done"),
		.files_failed = number(job, "files_failed"),
		.rate = number(job, "rate"),
		.eta_s = json_integer_value(json_object_get(job, "eta_s")),
		.note = note,
	};
}

static void print_paths(const json_t *job)
{
	const json_t *paths = json_object_get(job, "paths");
	const json_t *path;
	size_t i;

	json_array_foreach (paths, i, path)
		(void)printf("%-12s %s\n", i ? "" : "paths", json_string_value(path));
}

static void print_row(const char *name, const char *value)
{
	(void)printf("%-12s %s\n", name, value);
}

void preload_print(const json_t *job)
{
	struct bar_progress progress = progress_of(job);
	char line[256];

	(void)printf("%-12s %" PRIu64 "\n", "preload", number(job, "id"));
	print_row("state", text(job, "state"));
	print_row("of", text(job, "target"));
	print_paths(job);
	if (number(job, "generation"))
		(void)printf("%-12s %" PRIu64 "\n", "generation", number(job, "generation"));
	if (number(job, "bandwidth"))
		(void)printf("%-12s %s/s at most\n", "bandwidth",
			units_size(number(job, "bandwidth"), line, sizeof(line)));
	if (progress.files || !has_ended(job))
		print_row("progress", bar_text(&progress, 0, line, sizeof(line)));
	(void)printf("%-12s %s\n", "fetched",
		units_size(number(job, "bytes_fetched"), line, sizeof(line)));
	if (*text(job, "reason"))
		print_row("reason", text(job, "reason"));
	if (number(job, "files_failed"))
		print_row("failures", "");
	print_failures(job);
}

/* ---- all ------------------------------------------------------------------------------------- */

static int add_row(struct columns *columns, const json_t *job, int64_t now)
{
	int64_t created = json_integer_value(json_object_get(job, "created"));
	uint64_t bytes = number(job, "bytes");
	uint64_t done = number(job, "bytes_done");
	int64_t left = json_integer_value(json_object_get(job, "eta_s"));
	bool runs = is_state(job, "running");
	char speed[16];
	char id[24];
	char files[24];
	char size[16];
	char share[16];
	char rate[24];
	char eta[16];
	char age[16];
	const char *const cells[] = { id, text(job, "state"), text(job, "target"), files, size,
		bytes ? share : NULL, runs ? rate : NULL, runs && left >= 0 ? eta : NULL, age };

	(void)snprintf(id, sizeof(id), "%" PRIu64, number(job, "id"));
	(void)snprintf(files, sizeof(files), "%" PRIu64, number(job, "files"));
	(void)units_size(bytes, size, sizeof(size));
	(void)snprintf(share, sizeof(share), "%u%%",
		bytes ? (unsigned int)((double)done * 100 / (double)bytes) : 0);
	(void)snprintf(rate, sizeof(rate), "%s/s",
		units_size(number(job, "rate"), speed, sizeof(speed))); /* all fit */
	(void)bar_time(max(left, 0), eta, sizeof(eta));
	(void)bar_time(max(now - created, 0), age, sizeof(age));
	return columns_add(columns, cells);
}

int preload_print_list(const json_t *json, struct err *e)
{
	static const char *const titles[] = { "ID", "STATE", "OF", "FILES", "SIZE", "CACHED",
		"RATE", "LEFT", "AGE" };
	int64_t now = (int64_t)(clock_wall_ns() / CLOCK_SECOND);
	struct columns columns;
	const json_t *job;
	size_t i;
	int r = columns_init(&columns, titles, ARRAY_SIZE(titles), 0x1f9);

	json_array_foreach (json_object_get(json, "preloads"), i, job)
		if (r == 0)
			r = add_row(&columns, job, now);
	if (r == 0)
		columns_print(&columns, stdout);
	columns_release(&columns);
	return r == 0 ? EXIT_OK : command_fail(EXIT_RUNTIME, (err_set(e, r, "out of memory"), e));
}

/* ---- waiting --------------------------------------------------------------------------------- */

static void sleep_unless_interrupted(uint64_t ns)
{
	for (uint64_t slept = 0; slept < ns && !interrupted; slept += SLICE_NS)
		clock_sleep_ns(SLICE_NS);
}

/* What came out, and the exit status that says it. */
static int print_end(const json_t *job)
{
	char bytes[16];
	char all[16];
	char fetched[16];

	(void)units_size(number(job, "bytes_done"), bytes, sizeof(bytes));
	(void)units_size(number(job, "bytes"), all, sizeof(all));
	(void)units_size(number(job, "bytes_fetched"), fetched, sizeof(fetched));
	if (is_state(job, "complete")) {
		(void)printf("complete: %" PRIu64
			     " files, %s, cached and checked; %s fetched now\n",
			number(job, "files_done"), bytes, fetched);
		return EXIT_OK;
	}
	if (number(job, "files"))
		(void)printf("%s: %" PRIu64 " of %" PRIu64 " files, %s of %s cached; %s fetched\n",
			text(job, "state"), number(job, "files_done"), number(job, "files"), bytes,
			all, fetched);
	print_failures(job);
	return EXIT_RUNTIME;
}

static int end(const json_t *job, uint64_t id, struct err *e)
{
	int status = print_end(job);

	(void)fflush(stdout); /* before the line about it */
	if (status != EXIT_OK) {
		(void)err_set(e, -EIO, "preload %" PRIu64 " is %s: %s", id, text(job, "state"),
			text(job, "reason"));
		return command_fail(status, e);
	}
	return status;
}

static int interrupt(uint64_t id)
{
	(void)fprintf(stderr,
		"cachectl: interrupted: preload %" PRIu64
		" goes on: `cachectl preload watch %" PRIu64
		"` shows how far it is, `cachectl preload cancel %" PRIu64 "` ends it\n",
		id, id, id);
	return EXIT_INTERRUPTED;
}

/* Asks until `done`; a master that is being started again is waited for. */
static int poll(const struct master_where *where, uint64_t id, bool (*done)(const json_t *job),
	uint64_t every_ns, struct bar *bar, json_t **ret_job, struct err *e)
{
	uint64_t heard = clock_mono_ns();

	while (!interrupted) {
		json_t *job = NULL;
		int r = get(where, id, &job, e);
		struct bar_progress progress;

		if (r == 0) {
			heard = clock_mono_ns();
			if (done(job)) {
				*ret_job = job;
				return 0;
			}
			progress = progress_of(job);
			if (bar)
				bar_show(bar, &progress);
			json_decref(job);
		} else if (!(fleet_unreachable(r) && r != -ENOENT) ||
			   clock_mono_ns() - heard > SILENT_NS) {
			return r;
		}
		sleep_unless_interrupted(every_ns);
	}
	return -EINTR;
}

int preload_watch(const struct master_where *where, uint64_t id, struct err *e)
{
	struct bar bar;
	json_t *job = NULL;
	int status;
	int r;

	bar_init(&bar, stderr);
	catch_interrupts();
	r = poll(where, id, has_ended, POLL_NS, &bar, &job, e);
	bar_end(&bar);
	if (r == -EINTR)
		return interrupt(id);
	if (r < 0)
		return command_fail(EXIT_RUNTIME, e);
	status = end(job, id, e);
	json_decref(job);
	return status;
}

static bool is_open(const json_t *job)
{
	return !is_state(job, "listing");
}

int preload_wait_open(const struct master_where *where, uint64_t id, struct err *e)
{
	json_t *job = NULL;
	int status = EXIT_OK;
	int r;

	catch_interrupts();
	r = poll(where, id, is_open, OPEN_NS, NULL, &job, e);
	if (r == -EINTR)
		return interrupt(id);
	if (r < 0)
		return command_fail(EXIT_RUNTIME, e);
	if (is_state(job, "failed"))
		status = end(job, id, e);
	json_decref(job);
	return status;
}
