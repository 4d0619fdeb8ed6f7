/* cachectl version: which one this is. */
#include "base/option.h"
#include "base/version.h"
#include "ctl/command.h"
#include "ctl/yaml_out.h"

#include <stdio.h>

struct version_options {
	const char *output;
};

static const struct option_spec specs[] = {
	OUTPUT_OPTION_ROW(struct version_options, output, OUTPUT_CHOICES),
};

static const struct option_set set = {
	.program = "cachectl version",
	.arguments = "",
	.about = "Prints the version of cachectl. For the versions of the daemons, see cachectl "
		 "status -o json.",
	.specs = specs,
	.n = ARRAY_SIZE(specs),
};

int command_version(int argc, char **argv)
{
	struct version_options options = { .output = "table" };
	json_t *json;
	int status;

	(void)option_parse_or_exit(&set, argc, argv, &options); /* takes no arguments */
	if (output_is_table(options.output)) {
		(void)printf("cachectl %s\n", GRANARY_VERSION);
		return fflush(stdout) == 0 ? EXIT_OK : EXIT_RUNTIME;
	}
	json = json_pack("{s:s}", "version", GRANARY_VERSION);
	status = yaml_out_answer(options.output, json);
	json_decref(json);
	return status;
}
