/* cachectl pin, unpin: a dataset's bytes are not evicted for others; or one of its generations is
 * kept. */
#include "base/option.h"
#include "ctl/command.h"
#include "ctl/dataset_command.h"
#include "ctl/target.h"
#include "ctl/yaml_out.h"

#include <stdio.h>

struct pin_options {
	struct master_where where;
	const char *generation; /* NULL: the dataset's bytes */
	const char *output;
};

static const struct option_spec specs[] = {
	OPTION_STRING_ROW(struct pin_options, generation, "generation", "[PATH=]N",
		"Generation to keep, or that of the source at PATH (default: the "
		"cached data)"),
	MASTER_OPTION_ROWS(struct pin_options, where),
	OUTPUT_OPTION_ROW(struct pin_options, output, OUTPUT_CHOICES),
};

static int run(const struct option_set *set, bool pin, int argc, char **argv)
{
	struct pin_options o = { .output = "table" };
	struct dataset_which which = { 0 };
	struct err e = ERR_INIT;
	json_t *body = json_pack("{s:b}", "pin", (int)pin);
	json_t *changed = NULL;
	char done[1536]; /* a path of 1023 bytes fits */
	int status;

	(void)option_parse_or_exit(set, argc, argv, &o);
	if (o.generation && (dataset_parse_which(o.generation, &which, &e) < 0 ||
				    dataset_which_json(body, &which, 1, &e) < 0)) {
		status = EXIT_USAGE;
	} else {
		status = target_dataset(&o.where, &argv[1], &e);
	}
	if (status == EXIT_OK)
		status = dataset_call(&o.where, o.generation ? "POST" : "PATCH", argv[1],
			o.generation ? "/pin" : "", body, &changed, &e);
	json_decref(body);
	if (status != EXIT_OK)
		return command_fail(status, &e);
	if (o.generation)
		(void)snprintf(done, sizeof(done), "generation %s of %s is %s", o.generation,
			argv[1], pin ? "kept" : "kept no longer than others");
	else
		(void)snprintf(done, sizeof(done), "%s is %s", argv[1],
			pin ? "not evicted for others" : "evicted for others when it must be");
	return dataset_answer(o.output, changed, done);
}

int command_pin(int argc, char **argv)
{
	static const struct option_set set = {
		.program = "cachectl pin",
		.exits = { EXIT_MOUNTPOINT, EXIT_CACHE },
		.arguments = "NAME|URL|DIR",
		.about = "Protects the cached data of a dataset from eviction for others; or, with "
			 "--generation, keeps one\n"
			 "of its generations beyond the last two.",
		.specs = specs,
		.n = ARRAY_SIZE(specs),
		.min_args = 1,
		.max_args = 1,
	};

	return run(&set, true, argc, argv);
}

int command_unpin(int argc, char **argv)
{
	static const struct option_set set = {
		.program = "cachectl unpin",
		.exits = { EXIT_MOUNTPOINT, EXIT_CACHE },
		.arguments = "NAME|URL|DIR",
		.about = "Undoes `cachectl pin`.",
		.specs = specs,
		.n = ARRAY_SIZE(specs),
		.min_args = 1,
		.max_args = 1,
	};

	return run(&set, false, argc, argv);
}
