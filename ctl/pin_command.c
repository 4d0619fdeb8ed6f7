/* cachectl pin, unpin: a dataset's bytes are not evicted for others; or one of its generations is
 * kept. */
#include "base/option.h"
#include "ctl/command.h"
#include "ctl/dataset_command.h"

#include <stdio.h>

struct pin_options {
	struct master_where where;
	uint64_t generation; /* 0: the dataset's bytes */
};

static const struct option_spec specs[] = {
	OPTION_ROW(struct pin_options, generation, "generation", OPTION_UINT, .min = 1,
		.max = INT64_MAX,
		.help = "that generation of it, which is kept and may be mounted again; its bytes"),
	MASTER_OPTION_ROWS(struct pin_options, where),
};

static int run(const struct option_set *set, bool pin, int argc, char **argv)
{
	struct pin_options o = { 0 };
	struct err e = ERR_INIT;
	json_t *body;
	int status;

	(void)option_parse_or_exit(set, argc, argv, &o);
	if (o.generation) {
		body = json_pack(
			"{s:I, s:b}", "generation", (json_int_t)o.generation, "pin", (int)pin);
		status = dataset_call(&o.where, "POST", argv[1], "/pin", body, NULL, &e);
	} else {
		body = json_pack("{s:b}", "pin", (int)pin);
		status = dataset_call(&o.where, "PATCH", argv[1], "", body, NULL, &e);
	}
	json_decref(body);
	if (status != EXIT_OK)
		return command_fail(status, &e);
	if (o.generation)
		(void)printf("generation %llu of %s is %s\n", (unsigned long long)o.generation,
			argv[1], pin ? "kept" : "kept no longer than others");
	else
		(void)printf("%s is %s\n", argv[1],
			pin ? "not evicted for others" : "evicted for others when it must be");
	return EXIT_OK;
}

int command_pin(int argc, char **argv)
{
	static const struct option_set set = {
		.program = "cachectl pin",
		.arguments = "NAME",
		.about = "Keeps what is cached of a dataset when others need room; or, with "
			 "--generation, one of its\ngenerations beyond the last ones.",
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
		.arguments = "NAME",
		.about = "The reverse of cachectl pin.",
		.specs = specs,
		.n = ARRAY_SIZE(specs),
		.min_args = 1,
		.max_args = 1,
	};

	return run(&set, false, argc, argv);
}
