/* cachectl evict: gives up what is cached of a dataset, and waits until it is gone. */
#include "base/clock.h"
#include "base/option.h"
#include "base/units.h"
#include "ctl/command.h"
#include "ctl/dataset_command.h"

#include <stdio.h>
#include <unistd.h>

#define GONE_NS (30 * CLOCK_SECOND) /* workers ask every ten seconds when no word reaches them */
#define POLL_NS (50 * CLOCK_MS)

struct evict_options {
	struct master_where where;
	bool force;
};

static const struct option_spec specs[] = {
	OPTION_BOOL_ROW(struct evict_options, force, "force",
		"although it is mounted: its readers fetch what they need anew"),
	MASTER_OPTION_ROWS(struct evict_options, where),
};

static const struct option_set set = {
	.program = "cachectl evict",
	.arguments = "NAME",
	.about = "Drops what is cached of a dataset. What is in the bucket stays.",
	.specs = specs,
	.n = ARRAY_SIZE(specs),
	.min_args = 1,
	.max_args = 1,
};

/* Until the workers have said that it is gone. */
static int wait_gone(
	const struct evict_options *o, const char *name, json_int_t serial, struct err *e)
{
	uint64_t deadline = clock_mono_ns() + GONE_NS;

	for (;;) {
		json_t *json = NULL;
		char size[16];
		int status = dataset_call(&o->where, NULL, name, "", NULL, &json, e);
		bool gone = json_integer_value(json_object_get(json, "evicted")) >= serial;
		uint64_t bytes =
			(uint64_t)json_integer_value(json_object_get(json, "evicted_bytes"));

		json_decref(json);
		if (status != EXIT_OK)
			return status;
		if (gone) {
			(void)printf(
				"%s: %s evicted\n", name, units_size(bytes, size, sizeof(size)));
			return EXIT_OK;
		}
		if (clock_mono_ns() > deadline) {
			(void)err_set(e, -ETIMEDOUT,
				"no worker has said that it evicted %s: it will when it is there "
				"again",
				name);
			return EXIT_RUNTIME;
		}
		clock_sleep_ns(POLL_NS);
	}
}

int command_evict(int argc, char **argv)
{
	struct evict_options o = { 0 };
	struct err e = ERR_INIT;
	json_t *json = NULL;
	int status;

	(void)option_parse_or_exit(&set, argc, argv, &o);
	status = dataset_call(
		&o.where, "POST", argv[1], o.force ? "/evict?force=1" : "/evict", NULL, &json, &e);
	if (status == EXIT_OK)
		status = wait_gone(
			&o, argv[1], json_integer_value(json_object_get(json, "serial")), &e);
	json_decref(json);
	return status == EXIT_OK ? EXIT_OK : command_fail(status, &e);
}
