/*
 * cachectl keeper: becomes the keeper of a private cache, for a supervisor of one's own: its mounts
 * outlive whatever else is stopped or upgraded. A host's service (service.h) starts cachekeeper.
 */
#include "base/clock.h"
#include "base/option.h"
#include "base/programs.h"
#include "base/units.h"
#include "ctl/cache_dir.h"
#include "ctl/command.h"

#include <inttypes.h>
#include <stdlib.h>
#include <unistd.h>

struct keeper_options {
	const char *cache;
	uint64_t memory;
	uint64_t dead_after_ns;
	const char *log_level;
};

static const struct option_spec specs[] = {
	OPTION_STRING_ROW(struct keeper_options, cache, "cache", "DIR",
		"Cache directory (default: ~/.cache/granary)"),
	OPTION_SIZE_ROW(struct keeper_options, memory, "memory", 32 * MiB, 0,
		"Memory of all mounts together when one is added (default: 384MiB)"),
	OPTION_ROW(struct keeper_options, dead_after_ns, "dead-after", OPTION_DURATION,
		.min = CLOCK_SECOND / 10,
		.help = "Time without the daemon of a mount after which its readers get EIO "
			"(default: 30s)"),
	OPTION_ROW(struct keeper_options, log_level, "log-level", OPTION_CHOICE,
		.choices = "error|warn|info|debug", .help = "Log level (default: info)"),
};

static const struct option_set set = {
	.program = "cachectl keeper",
	.exits = { EXIT_CACHE },
	.arguments = "",
	.about = "Runs the mount keeper of a cache directory in the foreground, with or without "
		 "mounts. `cachectl\n"
		 "mount` uses it; without it, it starts one that ends with its last mount.",
	.specs = specs,
	.n = ARRAY_SIZE(specs),
};

int command_keeper(int argc, char **argv)
{
	struct keeper_options options = {
		.memory = 384 * MiB, .dead_after_ns = 30 * CLOCK_SECOND, .log_level = "info"
	};
	char program[PATH_MAX + 16];
	char dir[PATH_MAX];
	char memory[32];
	char dead_after[32];
	struct cache_dir cache;
	struct err e = ERR_INIT;
	int r = 0;

	(void)option_parse_or_exit(&set, argc, argv, &options); /* takes no arguments */
	if (options.cache)
		r = cache_dir_open(options.cache, 0, &cache, &e);
	else if ((r = cache_dir_default(dir, &e)) == 0)
		r = cache_dir_open(dir, 0, &cache, &e);
	if (r == 0)
		r = cache_dir_make_run(&cache, &e);
	if (r < 0)
		return command_fail(EXIT_CACHE, &e);
	if (programs_dir(dir, &e) < 0)
		return command_fail(EXIT_RUNTIME, &e);
	(void)snprintf(program, sizeof(program), "%s/cachekeeper", dir); /* fits */
	(void)snprintf(memory, sizeof(memory), "%" PRIu64, options.memory);
	(void)snprintf(dead_after, sizeof(dead_after), "%" PRIu64 "ms",
		(uint64_t)(options.dead_after_ns / CLOCK_MS));
	(void)execl(program, program, "--cache", cache.path, "--run", cache.run, "--memory", memory,
		"--dead-after", dead_after, "--log-level", options.log_level, "--stay",
		(char *)NULL);
	(void)err_set(&e, err_errno(),
		"%s cannot be run: %m: install the programs next to cachectl", program);
	return command_fail(EXIT_RUNTIME, &e);
}
