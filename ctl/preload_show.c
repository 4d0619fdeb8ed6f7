/* What a preload is and how far, for people. See preload_command.h. */
#include "base/clock.h"
#include "base/units.h"
#include "ctl/bar.h"
#include "ctl/columns.h"
#include "ctl/command.h"
#include "ctl/fleet.h"
#include "ctl/preload_command.h"

#include <inttypes.h>
#include <limits.h>
#include <string.h>

uint64_t preload_number(const json_t *json, const char *name)
{
	return (uint64_t)json_integer_value(json_object_get(json, name));
}

const char *preload_text(const json_t *json, const char *name)
{
	const char *value = json_string_value(json_object_get(json, name));

	return value ? value : "";
}

/* "train", of one of several sources "train/labels/". */
static const char *preload_target(const json_t *job, char *out, size_t size)
{
	const char *at = preload_text(job, "at");

	(void)snprintf(
		out, size, "%s%s%s", preload_text(job, "target"), *at ? "/" : "", at); /* cut */
	return out;
}

bool preload_is(const json_t *job, const char *state)
{
	return strcmp(preload_text(job, "state"), state) == 0;
}

bool preload_has_ended(const json_t *job)
{
	return preload_is(job, "complete") || preload_is(job, "failed") ||
	       preload_is(job, "incomplete") || preload_is(job, "cancelled");
}

/* ---- one ------------------------------------------------------------------------------------- */

void preload_print_failures(const json_t *job)
{
	const json_t *failures = json_object_get(job, "failures");
	const json_t *failure;
	size_t i;

	json_array_foreach (failures, i, failure) {
		(void)printf("  ");
		columns_put(preload_text(failure, "key"), stdout);
		(void)printf(": ");
		columns_put(preload_text(failure, "reason"), stdout);
		(void)printf("\n");
	}
	if (preload_number(job, "files_failed") > json_array_size(failures))
		(void)printf("  and %" PRIu64 " more\n",
			preload_number(job, "files_failed") - json_array_size(failures));
}

struct bar_progress preload_progress(const json_t *job)
{
	const char *note = preload_text(job, "reason");

	if (!*note)
		note = preload_is(job, "listing")   ? "listing the source"
		       : preload_is(job, "waiting") ? "waiting for a worker"
						    : "counting";
	return (struct bar_progress){
		.bytes = preload_number(job, "bytes"),
		.bytes_done = preload_number(job, "bytes_done"),
		.files = preload_number(job, "files"),
		.files_done = preload_number(job, "files_done"),
		.files_failed = preload_number(job, "files_failed"),
		.rate = preload_number(job, "rate"),
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

/* Of several workers what each has done. */
static void print_workers(const json_t *job)
{
	const json_t *parts = json_object_get(job, "workers");
	const json_t *part;
	size_t i;

	if (json_array_size(parts) < 2)
		return;
	json_array_foreach (parts, i, part) {
		const char *name = *preload_text(part, "name") ? preload_text(part, "name")
							       : preload_text(part, "id");
		char done[16];
		char copied[16];

		(void)printf("%-12s %s: %s, %" PRIu64 " files, %s", i ? "" : "workers", name,
			preload_text(part, "state"), preload_number(part, "files_done"),
			units_size(preload_number(part, "bytes_done"), done, sizeof(done)));
		if (preload_number(part, "bytes_copied"))
			(void)printf(", copies %s", units_size(preload_number(part, "bytes_copied"),
							    copied, sizeof(copied)));
		(void)printf("%s%s\n", *preload_text(part, "reason") ? ": " : "",
			preload_text(part, "reason"));
	}
}

void preload_print(const json_t *job)
{
	struct bar_progress progress = preload_progress(job);
	char line[PATH_MAX];

	(void)printf("%-12s %" PRIu64 "\n", "preload", preload_number(job, "id"));
	print_row("state", preload_text(job, "state"));
	print_row("of", preload_target(job, line, sizeof(line)));
	print_paths(job);
	if (preload_number(job, "generation"))
		(void)printf(
			"%-12s %" PRIu64 "\n", "generation", preload_number(job, "generation"));
	if (preload_number(job, "bandwidth"))
		(void)printf("%-12s %s/s at most\n", "bandwidth",
			units_size(preload_number(job, "bandwidth"), line, sizeof(line)));
	if (progress.files || !preload_has_ended(job))
		print_row("progress", bar_text(&progress, 0, line, sizeof(line)));
	(void)printf("%-12s %s\n", "fetched",
		units_size(preload_number(job, "bytes_fetched"), line, sizeof(line)));
	print_workers(job);
	if (*preload_text(job, "reason"))
		print_row("reason", preload_text(job, "reason"));
	if (preload_number(job, "files_failed"))
		print_row("failures", "");
	preload_print_failures(job);
}

/* ---- all ------------------------------------------------------------------------------------- */

static int add_row(struct columns *columns, const json_t *job, int64_t now)
{
	int64_t created = json_integer_value(json_object_get(job, "created"));
	uint64_t bytes = preload_number(job, "bytes");
	uint64_t done = preload_number(job, "bytes_done");
	int64_t left = json_integer_value(json_object_get(job, "eta_s"));
	bool runs = preload_is(job, "running");
	char speed[16];
	char id[24];
	char files[24];
	char size[16];
	char share[16];
	char rate[24];
	char eta[24];
	char age[24];
	char of[PATH_MAX];
	const char *const cells[] = { id, preload_text(job, "state"), of, files, size,
		bytes ? share : NULL, runs ? rate : NULL, runs && left >= 0 ? eta : NULL, age };

	(void)snprintf(id, sizeof(id), "%" PRIu64, preload_number(job, "id"));
	(void)preload_target(job, of, sizeof(of));
	(void)snprintf(files, sizeof(files), "%" PRIu64, preload_number(job, "files"));
	(void)units_size(bytes, size, sizeof(size));
	if (bytes)
		(void)units_percent((double)done, (double)bytes, share, sizeof(share));
	(void)snprintf(rate, sizeof(rate), "%s/s",
		units_size(preload_number(job, "rate"), speed, sizeof(speed))); /* all fit */
	(void)units_age(left, eta, sizeof(eta));
	(void)units_age(now - created, age, sizeof(age));
	return columns_add(columns, cells);
}

int preload_print_list(const json_t *json, struct err *e)
{
	static const char *const titles[] = { "ID", "STATUS", "TARGET", "FILES", "SIZE",
		"CACHED RATIO", "THROUGHPUT", "ETA", "AGE" };
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
