/* cacheworker tier init. See tier_command.h. */
#include "cacheworker/tier_command.h"
#include "base/exit.h"
#include "base/option.h"
#include "base/remembered.h"
#include "base/units.h"
#include "tiers/tiers.h"

#include <stdio.h>
#include <string.h>

struct tier_options {
	uint64_t capacity;
	bool adopt;
};

static const struct option_spec specs[] = {
	OPTION_SIZE_ROW(struct tier_options, capacity, "capacity", 0, 0,
		"Capacity if the worker has no --capacity " OPTION_CAPACITY_DEFAULT),
	OPTION_BOOL_ROW(struct tier_options, adopt, "adopt",
		"Accept a tier that was created on another device; every byte is checked (default: "
		"no)"),
};

static const struct option_set set = {
	.program = "cacheworker tier init",
	.arguments = "DIR",
	.about = "Creates a tier for cached data in the empty directory DIR. A worker without "
		 "--create needs an existing tier,\nwhich shows that its disk is mounted.",
	.specs = specs,
	.n = ARRAY_SIZE(specs),
	.min_args = 1,
	.max_args = 1,
};

static int tier_fail(int status, const struct err *e)
{
	(void)fprintf(stderr, "cacheworker: %s\n", e->text);
	return status;
}

static int exit_of(int code)
{
	if (code == -EFBIG) /* --capacity */
		return EXIT_USAGE;
	return code == -EBUSY ? EXIT_BUSY : EXIT_CACHE;
}

int tier_command(int argc, char **argv)
{
	struct tier_options options = { 0 };
	struct tier_config config = { 0 };
	char remembered[PATH_MAX];
	struct err e = ERR_INIT;

	if (argc < 2 || strcmp(argv[1], "init") != 0) {
		if (argc >= 2 && strcmp(argv[1], "--help") == 0) {
			option_help(&set, stdout);
			return EXIT_OK;
		}
		(void)err_set(&e, -EINVAL, "the only command is: cacheworker tier init DIR");
		return tier_fail(EXIT_USAGE, &e);
	}
	(void)option_parse_or_exit(&set, argc - 1, argv + 1, &options); /* one argument */
	config.path = argv[2];
	config.capacity = options.capacity;
	config.remembered = remembered_dir(remembered);
	if (tier_init(&config, options.adopt, &e) < 0)
		return tier_fail(exit_of(e.code), &e);
	(void)printf("%s: %s\n", config.path,
		options.adopt ? "taken over; a worker checks every byte before it serves it"
			      : "ready: start a worker with --tier");
	return EXIT_OK;
}
