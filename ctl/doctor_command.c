/* cachectl doctor: would a mount work here, and as well as it could? */
#include "base/log.h"
#include "base/option.h"
#include "base/units.h"
#include "ctl/command.h"
#include "ctl/doctor.h"
#include "ctl/fleet.h"
#include "ctl/mount_point.h"
#include "ctl/target.h"
#include "ctl/yaml_out.h"

#include <string.h>
#include <unistd.h>

static const struct option_spec specs[] = {
	ORIGIN_OPTION_ROWS(struct doctor_options, origin),
	OPTION_STRING_ROW(struct doctor_options, master, "master", "ADDR",
		"Master to ask about NAME (default: GRANARY_MASTER, or that of this "
		"host)"),
	OPTION_ROW(struct doctor_options, engine, "engine", OPTION_CHOICE,
		.choices = "auto|native|loop|fuse", .help = "Engine to check (default: auto)"),
	OPTION_BOOL_ROW(struct doctor_options, allow_other, "allow-other",
		"Check that other users can read the mount (default: no)"),
	OPTION_STRING_ROW(struct doctor_options, cache, "cache", "DIR",
		"Cache directory to check (default: ~/.cache/granary)"),
	OPTION_SIZE_ROW(struct doctor_options, cache_size, "cache-size", 64 * MiB, 0,
		"Size of the cache to check for " OPTION_CAPACITY_DEFAULT),
	OPTION_SIZE_ROW(struct doctor_options, memory, "memory", 128 * MiB, 0,
		"Memory of all daemons together (default: 1GiB)"),
	OUTPUT_OPTION_ROW(struct doctor_options, output, OUTPUT_CHOICES),
};

static const struct option_set set = {
	.program = "cachectl doctor",
	.exits = { EXIT_MOUNTPOINT, EXIT_ORIGIN, EXIT_CACHE, EXIT_KERNEL },
	.arguments = "[NAME|URL|DIR]",
	.about = "Checks kernel, FUSE, limits, cache directory and cluster; with URL also the "
		 "connection to the "
		 "bucket\nand the rights on it, as a mount with the same options would; with NAME "
		 "or "
		 "DIR those of the\nsources of that dataset or mount, with its credentials. One "
		 "line per "
		 "finding: OK, WARN (what it\ncosts, what to do) or FAIL. Starts, mounts and "
		 "changes nothing. "
		 "Exit status 0, or that of the first\nFAIL.",
	.specs = specs,
	.n = ARRAY_SIZE(specs),
	.max_args = 1,
};

/* A mount point of this host needs no slash. */
static bool is_mounted(const char *what)
{
	char point[PATH_MAX];
	struct fleet_mount mount;
	struct err ignored = ERR_INIT;

	return mount_point_path(what, point, &ignored) == 0 && fleet_find(point, true, &mount) == 0;
}

static void check_target(struct doctor *d, const char *what)
{
	enum target_kind kind = target_kind(what);

	switch (kind == TARGET_NAME && is_mounted(what) ? TARGET_DIR : kind) {
	case TARGET_URL:
		d->url = what;
		doctor_origin(d);
		return;
	case TARGET_DIR:
		doctor_mount(d, what);
		return;
	case TARGET_NAME:
		doctor_dataset(d, what);
		return;
	}
}

int command_doctor(int argc, char **argv)
{
	struct doctor_options options = { .engine = "auto", .memory = 1 * GiB, .output = "table" };
	int args = option_parse_or_exit(&set, argc, argv, &options);
	const char *what = args == 1 ? argv[1] : NULL;
	struct doctor d = { .options = &options };
	bool written = true;

	log_init("cachectl", STDERR_FILENO, LOG_ERROR, LOG_TEXT); /* the findings say it all */
	doctor_kernel(&d);
	doctor_limits(&d);
	doctor_cache(&d);
	doctor_cluster(&d);
	if (what)
		check_target(&d, what);
	if (output_is_table(options.output)) {
		doctor_print(&d, stdout);
	} else {
		json_t *json = doctor_json(&d);

		written = json && yaml_out_as(options.output, json, stdout) == 0;
		json_decref(json);
	}
	written = fflush(stdout) == 0 && written;
	doctor_release(&d);
	return written ? d.status : EXIT_RUNTIME;
}
