/* cachectl supervise: what `cachectl mount` starts in the background. */
#include "base/daemon.h"
#include "base/option.h"
#include "base/ready.h"
#include "base/units.h"
#include "ctl/command.h"
#include "ctl/supervisor.h"

#include <sys/prctl.h>

struct supervise_options {
	struct supervisor_config config;
	int ready_fd;
};

static const struct option_spec specs[] = {
	OPTION_ROW(struct supervise_options, config.cache, "cache", OPTION_STRING, .metavar = "DIR",
		.required = true, .help = "Cache directory"),
	OPTION_SIZE_ROW(struct supervise_options, config.capacity, "cache-size", 0, 0,
		"Size of the cache; 0: the default of the worker (default: 0)"),
	OPTION_SIZE_ROW(struct supervise_options, config.memory, "memory", 128 * MiB, 0,
		"Memory of all daemons together (default: 1GiB)"),
	OPTION_ROW(struct supervise_options, config.dead_after_ns, "dead-after", OPTION_DURATION,
		.help = "Time without the daemon of a mount after which its readers get EIO "
			"(default: 30s)"),
	OPTION_FD_ROW(struct supervise_options, ready_fd, "ready-fd",
		"Descriptor for a line READY or ERROR at start (default: none)"),
	OPTION_ROW(struct supervise_options, config.log_level, "log-level", OPTION_CHOICE,
		.choices = "error|warn|info|debug", .help = "Log level (default: info)"),
};

static const struct option_set set = {
	.program = "cachectl supervise",
	.arguments = "",
	.about = "Keeps the daemons of one cache directory running while it has mounts.",
	.specs = specs,
	.n = ARRAY_SIZE(specs),
};

int command_supervise(int argc, char **argv)
{
	struct supervise_options options = { .config = { .memory = 1 * GiB, .log_level = "info" },
		.ready_fd = -1 };
	struct err e = ERR_INIT;

	(void)option_parse_or_exit(&set, argc, argv, &options); /* takes no arguments */
	(void)prctl(PR_SET_NAME, "cachectl"); /* started as /proc/self/exe, so "exe" */
	if (daemon_begin("supervisor", options.config.log_level, NULL, &e) < 0)
		return ready_error(options.ready_fd, "cachectl", EXIT_USAGE, &e);
	return supervisor_run(&options.config, options.ready_fd);
}
