/*
 * cachectl bench: what a mount gives on this machine, beside what the machine, the tier's disk and the
 * origin can do at all. Nothing is written or changed; what was not cached is, once it has been read.
 */
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/memory.h"
#include "ctl/bench_report.h"
#include "ctl/command.h"
#include "ctl/dataset_command.h"
#include "ctl/fleet.h"
#include "ctl/mount_point.h"
#include "ctl/origin_options.h"
#include "ctl/target.h"
#include "ctl/top_sample.h"
#include "ctl/yaml_out.h"

#include <stdlib.h>
#include <string.h>

#define PARTS       30u /* what is measured one after the other, about */
#define SECONDS_MAX 3600u

struct bench_options {
	uint64_t seconds;
	uint64_t threads;
	bool origin;
	struct origin_options reach;
	struct master_where where;
	const char *output;
};

static const struct option_spec specs[] = {
	OPTION_ROW(struct bench_options, seconds, "seconds", OPTION_UINT, .min = 1,
		.max = SECONDS_MAX, .help = "Approximate duration in seconds (default: 20)"),
	OPTION_ROW(struct bench_options, threads, "threads", OPTION_UINT, .min = 1,
		.max = BENCH_THREADS_MAX,
		.help = "Readers in parallel, in addition to a single one (default: 8)"),
	OPTION_BOOL_ROW(struct bench_options, origin, "origin",
		"Measure the origin, too, which limits a first read (default: no)"),
	ORIGIN_OPTION_ROWS(struct bench_options, reach),
	MASTER_OPTION_ROWS(struct bench_options, where),
	OUTPUT_OPTION_ROW(struct bench_options, output, OUTPUT_CHOICES),
};

static const struct option_set set = {
	.program = "cachectl bench",
	.exits = { EXIT_MOUNTPOINT, EXIT_CACHE },
	.arguments = "[NAME|URL|DIR]",
	.about = "Measures a mount: names, small files and large files, by one reader and by "
		 "several, as cached,\n"
		 "after the kernel dropped their pages, and warm; and for comparison memory, the "
		 "disk of the tier\n"
		 "and, with --origin, the origin. DIR is at or below a mount. Without an argument: "
		 "the only mount.\n"
		 "Only reads; data that was not cached is cached afterwards. --endpoint and the "
		 "like change how\n"
		 "--origin reaches the origin (default: as the mount).",
	.specs = specs,
	.n = ARRAY_SIZE(specs),
	.max_args = 1,
};

struct bench {
	const struct bench_options *options;
	struct fleet_mount mount;
	char dir[PATH_MAX];
	json_t *status; /* of the mount */
	struct bench_set small, large;
	struct bench_set local, memory, tier;
	bool direct; /* the tier is read past the page cache */
	uint64_t ns; /* of each part */
	unsigned int readers[2];
	unsigned int n_readers;
	struct bench_report report;
	struct err tier_why;
	struct err origin_why;
	int failed; /* of a pass that could not be begun */
};

/* ---- which mount ----------------------------------------------------------------------------- */

struct only {
	struct fleet_mount *mount;
	unsigned int n;
};

static bool is_of(const json_t *status, const char *volume)
{
	const char *its = json_string_value(json_object_get(status, "volume"));
	const json_t *source;
	size_t i;

	if (its && strcmp(its, volume) == 0)
		return true;
	json_array_foreach (json_object_get(status, "sources"), i, source) {
		its = json_string_value(json_object_get(source, "volume"));
		if (its && strcmp(its, volume) == 0)
			return true;
	}
	return false;
}

static int look(void *arg, const char *run)
{
	struct only *only = arg;
	json_t *state = fleet_state(run);
	const json_t *mount;
	size_t i;

	json_array_foreach (json_object_get(state, "mounts"), i, mount) {
		const char *point = json_string_value(json_object_get(mount, "mountpoint"));
		const char *socket = json_string_value(json_object_get(mount, "socket"));

		if (!point || !socket || fleet_detached(mount))
			continue;
		if (only->n++ == 0 && fleet_find(point, false, only->mount) < 0)
			only->n--; /* went meanwhile */
	}
	json_decref(state);
	return 0;
}

static int find_only(struct bench *b, struct err *e)
{
	struct only only = { .mount = &b->mount };

	if (fleet_each_run(look, &only) < 0 || only.n == 0) {
		(void)err_set(
			e, -ENOENT, "no mount of yours on this host: run `cachectl mount` first");
		return EXIT_MOUNTPOINT;
	}
	if (only.n > 1) {
		(void)err_set(e, -EEXIST,
			"%u mounts on this host: give NAME, URL or DIR (see `cachectl status`)",
			only.n);
		return EXIT_USAGE;
	}
	(void)snprintf(b->dir, sizeof(b->dir), "%s", b->mount.mountpoint); /* as long */
	return EXIT_OK;
}

static int find_mount(struct bench *b, const char *what, struct err *e)
{
	struct err no_path = ERR_INIT;
	int status;

	if (!what)
		return find_only(b, e);
	if (target_kind(what) != TARGET_URL && mount_point_path(what, b->dir, &no_path) == 0 &&
		fleet_find(b->dir, true, &b->mount) == 0)
		return EXIT_OK; /* a directory below a mount point */
	status = target_mount(&b->options->where, what, &b->mount, e);
	if (status == EXIT_OK)
		(void)snprintf(b->dir, sizeof(b->dir), "%s", b->mount.mountpoint); /* as long */
	return status;
}

/* ---- passes ---------------------------------------------------------------------------------- */

/* What mount and worker counted meanwhile. */
static void count(struct bench *b, const struct top_sample *before, struct bench_row *row)
{
	_cleanup_free_ struct top_sample *delta = malloc(sizeof(*delta));
	struct top_sample *after = NULL;

	if (!before || !delta || top_sample_new(&after) < 0)
		return;
	top_sample_since(after, before, delta);
	for (unsigned int i = 0; i < delta->n_sources; i++) {
		const struct top_source *source = &delta->sources[i];

		if (!is_of(b->status, source->volume))
			continue;
		row->counted = true;
		row->from_mount += source->node + source->worker;
		row->from_origin += source->origin;
	}
	free(after);
}

static struct bench_row *measure(struct bench *b, struct bench_row *row,
	const struct bench_set *files, enum bench_op op, bool once, uint64_t block)
{
	const struct bench_pass pass = { .op = op,
		.set = files,
		.threads = row->threads,
		.ns = b->ns,
		.once = once,
		.block = block };
	bool of_mount = strcmp(row->of, "mount") == 0 && op == BENCH_READ;
	struct top_sample *before = NULL;
	int r;

	if (of_mount && top_sample_new(&before) < 0)
		before = NULL; /* then nobody says where it came from */
	r = bench_run(&pass, &row->result);
	if (r < 0) {
		b->failed = b->failed ? b->failed : r;
		row->skipped = "no memory or threads for it";
	} else if (of_mount) {
		count(b, before, row);
	}
	free(before);
	return row;
}

static void skip(struct bench *b, const char *test, const char *of, const char *state,
	unsigned int threads, const char *why)
{
	bench_report_add(&b->report, test, of, state, threads)->skipped = why;
}

static void names(struct bench *b, const char *test, enum bench_op op)
{
	const struct bench_set *files = b->small.n > 0 ? &b->small : &b->large;
	struct bench_row unmeasured = { .test = test, .of = "", .state = "", .threads = 1 };

	(void)measure(b, &unmeasured, files, op, true, 0); /* names come to the kernel */
	for (unsigned int i = 0; i < b->n_readers; i++) {
		unsigned int n = b->readers[i];

		if (b->local.n > 0)
			(void)measure(b, bench_report_add(&b->report, test, "local", "", n),
				&b->local, op, false, 0);
		(void)measure(b, bench_report_add(&b->report, test, "mount", "warm", n), files, op,
			false, 0);
	}
}

/* A first read may have brought what lies there. */
static void open_tier(struct bench *b)
{
	struct err e = ERR_INIT;
	json_t *worker = NULL;
	const char *path;

	if (fleet_call(b->mount.run, "worker.sock", "/v1/status", &worker, &b->tier_why) < 0)
		return;
	path = json_string_value(
		json_object_get(json_array_get(json_object_get(worker, "tiers"), 0), "path"));
	if (!path)
		(void)err_set(&b->tier_why, -ENODATA, "the worker has no tier");
	else if (bench_tier_open(path, &b->tier, &b->direct, &e) < 0)
		b->tier_why = e;
	json_decref(worker);
}

/* How fast the tier's disk gives as much at a time. */
static void disk(struct bench *b, const char *test, unsigned int n, uint64_t block)
{
	bool scatter = block < BENCH_BLOCK;

	if (b->tier.n == 0)
		open_tier(b);
	if (b->tier.n == 0 || !b->direct) {
		if (n == 1)
			skip(b, test, "disk", "", n,
				b->tier.n == 0
					? b->tier_why.text
					: "its filesystem cannot be read past the page cache");
		return;
	}
	(void)measure(b, bench_report_add(&b->report, test, "disk", "", n), &b->tier,
		scatter ? BENCH_SCATTER : BENCH_BLOCKS, false, block);
}

static void warm(struct bench *b, const char *test, const struct bench_set *files, uint64_t block)
{
	struct bench_row first = {
		.test = test, .of = "", .state = "", .threads = b->readers[b->n_readers - 1]
	};
	struct bench_set read = *files;

	if (b->memory.n == 0 && bench_memory_open(&b->tier, &b->memory) < 0)
		bench_set_release(&b->memory); /* a limit less */
	(void)measure(b, &first, files, BENCH_READ, true, 0);
	read.n = first.result.complete;
	for (unsigned int i = 0; i < b->n_readers; i++) {
		unsigned int n = b->readers[i];

		if (read.n == 0) {
			skip(b, test, "mount", "warm", n,
				"no file was all read in the time: give more --seconds");
			continue;
		}
		if (b->memory.n > 0)
			(void)measure(b, bench_report_add(&b->report, test, "memory", "", n),
				&b->memory, block < BENCH_BLOCK ? BENCH_PARTS : BENCH_BLOCKS, false,
				block);
		(void)measure(b, bench_report_add(&b->report, test, "mount", "warm", n), &read,
			BENCH_READ, false, 0);
	}
}

static void reads(struct bench *b, const char *test, const struct bench_set *files, uint64_t block)
{
	unsigned int most = b->readers[b->n_readers - 1];

	if (files->n == 0) {
		skip(b, test, "mount", "found", most, "no such files");
		return;
	}
	(void)measure(b, bench_report_add(&b->report, test, "mount", "found", most), files,
		BENCH_READ, true, 0);
	for (unsigned int i = 0; i < b->n_readers; i++) {
		disk(b, test, b->readers[i], block);
		bench_drop(files);
		(void)measure(b,
			bench_report_add(&b->report, test, "mount", "dropped", b->readers[i]),
			files, BENCH_READ, true, 0);
	}
	warm(b, test, files, block);
}

/* ---- the origin ------------------------------------------------------------------------------ */

/* The mount of a dataset that has this volume. */
static const json_t *dataset_of(const json_t *datasets, const char *volume)
{
	const json_t *dataset;
	const json_t *mount;
	size_t i;
	size_t j;

	json_array_foreach (json_object_get(datasets, "datasets"), i, dataset)
		json_array_foreach (json_object_get(dataset, "mounts"), j, mount) {
			const char *its = json_string_value(json_object_get(mount, "volume"));

			if (its && volume && strcmp(its, volume) == 0)
				return mount;
		}
	return NULL;
}

/* As this command was told, else as the mount, or its dataset, has it. */
static int origin_config(struct bench *b, struct ufs_config *ret, struct err *e)
{
	struct origin_options reach = b->options->reach;
	json_t *state = fleet_state(b->mount.run);
	json_t *datasets = NULL;
	struct err ignored = ERR_INIT;
	const json_t *of_dataset;
	const char *url = b->mount.source;
	int r;

	if (fleet_call(b->mount.run, "master.sock", "/v1/datasets", &datasets, &ignored) < 0)
		datasets = NULL; /* nobody tells whether it is one */
	of_dataset = dataset_of(datasets, json_string_value(json_object_get(b->status, "volume")));
	if (!origin_options_given(&reach) && of_dataset) {
		origin_options_of_dataset(of_dataset, &reach);
		url = json_string_value(json_object_get(of_dataset, "url"));
	} else if (!origin_options_given(&reach)) {
		origin_options_of_args(fleet_arguments(state, b->mount.mountpoint), &reach);
	}
	r = origin_options_config(&reach, url ? url : "", ret, e);
	json_decref(state);
	json_decref(datasets);
	return r;
}

static void origin(struct bench *b)
{
	_cleanup_(ufs_config_release) struct ufs_config config = { 0 };
	struct bench_origin o;

	if (!b->options->origin) {
		skip(b, "read", "origin", "", BENCH_ORIGIN_CONNECTIONS,
			"give --origin to measure it");
		return;
	}
	if (origin_config(b, &config, &b->origin_why) < 0 ||
		bench_origin(&config, b->ns, &o, &b->origin_why) < 0) {
		skip(b, "read", "origin", "", BENCH_ORIGIN_CONNECTIONS, b->origin_why.text);
		return;
	}
	bench_report_add(&b->report, "first byte", "origin", "", 1)->result = o.first;
	bench_report_add(&b->report, "read", "origin", "", 1)->result = o.one;
	bench_report_add(&b->report, "read", "origin", "", BENCH_ORIGIN_CONNECTIONS)->result =
		o.several;
}

/* ---- all of it ------------------------------------------------------------------------------- */

static int prepare(struct bench *b, struct err *e)
{
	const struct bench_options *o = b->options;
	uint64_t available = memory_available();
	int r = admin_call(
		b->mount.socket, NULL, "/v1/status", NULL, fleet_timeout(), &b->status, e);

	if (r < 0)
		return r;
	b->ns = o->seconds * CLOCK_SECOND / PARTS;
	b->readers[b->n_readers++] = 1;
	if (o->threads > 1)
		b->readers[b->n_readers++] = (unsigned int)o->threads;
	r = bench_collect(b->dir, available ? available / 4 : UINT64_MAX, 2 * b->ns, &b->small,
		&b->large, &b->report.cut);
	if (r < 0)
		return err_set(e, r, "%s cannot be read: %s", b->dir, err_str(r));
	if (b->small.n + b->large.n == 0)
		return err_set(
			e, -ENOENT, "%s has no file with data: give another directory", b->dir);
	if (bench_local_open(&b->local) < 0)
		bench_set_release(&b->local); /* a limit less */
	return 0;
}

static void fill_report(struct bench *b)
{
	const json_t *sealed = json_object_get(b->status, "sealed");
	const char *mode = json_string_value(json_object_get(sealed, "mode"));
	const char *engine = json_string_value(json_object_get(b->status, "engine"));

	b->report.mountpoint = b->mount.mountpoint;
	b->report.source = b->mount.source;
	b->report.dir = b->dir;
	b->report.engine = engine ? engine : "";
	b->report.sealed = mode && strcmp(mode, "on demand") != 0;
	b->report.small = &b->small;
	b->report.large = &b->large;
}

static void run(struct bench *b)
{
	uint64_t small = b->small.n > 0 ? b->small.bytes / b->small.n : 0;

	fill_report(b);
	names(b, "stat", BENCH_STAT);
	names(b, "open", BENCH_OPEN);
	origin(b);
	reads(b, "small", &b->small, min((small + 4095) & ~4095ull, BENCH_BLOCK));
	reads(b, "sequential", &b->large, BENCH_BLOCK);
}

/* The first read that failed: the numbers are printed all the same. */
static int failure(const struct bench *b, struct err *e)
{
	uint64_t errors = 0;
	const struct bench_row *first = NULL;

	for (unsigned int i = 0; i < b->report.n; i++) {
		errors += b->report.rows[i].result.errors;
		if (!first && b->report.rows[i].result.errors > 0)
			first = &b->report.rows[i];
	}
	if (first)
		return err_set(e, first->result.error,
			"%llu reads failed, the first of %s: %s: see cachectl explain",
			(unsigned long long)errors, first->result.failed,
			err_str(first->result.error));
	if (b->failed)
		return err_set(e, b->failed, "not all could be measured: %s: give fewer --threads",
			err_str(b->failed));
	return 0;
}

static int answer(const struct bench *b, struct err *e)
{
	json_t *json;
	int status;
	int r;

	if (output_is_table(b->options->output)) {
		r = bench_report_print(&b->report, stdout);
		if (r < 0 || fflush(stdout) != 0) {
			(void)err_default(e, r < 0 ? r : -EIO, "the answer cannot be written");
			return EXIT_RUNTIME;
		}
		return EXIT_OK;
	}
	json = bench_report_json(&b->report);
	status = yaml_out_answer(b->options->output, json);
	json_decref(json);
	return status;
}

static void release(struct bench *b)
{
	json_decref(b->status);
	bench_set_release(&b->small);
	bench_set_release(&b->large);
	bench_set_release(&b->local);
	bench_set_release(&b->memory);
	bench_set_release(&b->tier);
	free(b);
}

static int bench(struct bench *b, const char *what, struct err *e)
{
	int status = find_mount(b, what, e);

	if (status != EXIT_OK)
		return status;
	if (prepare(b, e) < 0)
		return EXIT_RUNTIME;
	run(b);
	status = answer(b, e);
	if (status == EXIT_OK && failure(b, e) < 0)
		status = EXIT_RUNTIME;
	return status;
}

int command_bench(int argc, char **argv)
{
	struct bench_options options = { .seconds = 20, .threads = 8, .output = "table" };
	int args = option_parse_or_exit(&set, argc, argv, &options);
	struct bench *b = calloc(1, sizeof(*b));
	struct err e = ERR_INIT;
	int status;

	if (!b) {
		(void)err_set(&e, -ENOMEM, "out of memory");
		return command_fail(EXIT_RUNTIME, &e);
	}
	b->options = &options;
	status = bench(b, args == 1 ? argv[1] : NULL, &e);
	release(b);
	return status == EXIT_OK || !e.text[0] ? status : command_fail(status, &e);
}
