/* cachectl evict: gives up what is cached of a dataset, and waits until it is gone. */
#include "admin/admin.h"
#include "base/clock.h"
#include "base/option.h"
#include "base/units.h"
#include "ctl/command.h"
#include "ctl/dataset_command.h"
#include "ctl/target.h"
#include "ctl/yaml_out.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define GONE_NS (30 * CLOCK_SECOND) /* workers ask every ten seconds when no word reaches them */
#define POLL_NS (50 * CLOCK_MS)

struct evict_options {
	struct master_where where;
	struct option_list paths;
	bool force;
	const char *output;
};

static const struct option_spec specs[] = {
	OPTION_ROW(struct evict_options, paths, "path", OPTION_LIST, .metavar = "GLOB",
		.help = "Files to evict, such as 'train/**' (default: all)"),
	OPTION_BOOL_ROW(struct evict_options, force, "force",
		"Evict although it is mounted: readers fetch again (default: no)"),
	MASTER_OPTION_ROWS(struct evict_options, where),
	OUTPUT_OPTION_ROW(struct evict_options, output, OUTPUT_CHOICES),
};

static const struct option_set set = {
	.program = "cachectl evict",
	.exits = { EXIT_MOUNTPOINT, EXIT_CACHE, EXIT_BUSY },
	.arguments = "NAME|URL|DIR",
	.about = "Drops the cached data of a dataset, or of some of its files. The bucket is not "
		 "changed.",
	.specs = specs,
	.n = ARRAY_SIZE(specs),
	.min_args = 1,
	.max_args = 1,
};

/* What the source whose volume that is has dropped: of a dataset's answer. */
static const json_t *mount_of(const json_t *dataset, const char *volume)
{
	const json_t *mount;
	size_t i;

	json_array_foreach (json_object_get(dataset, "mounts"), i, mount) {
		const char *its = json_string_value(json_object_get(mount, "volume"));

		if (its && volume && strcmp(its, volume) == 0)
			return mount;
	}
	return NULL;
}

/* Have workers followed all that was asked? *bytes: what they dropped for it. */
static bool is_gone(const json_t *dataset, const json_t *asked, uint64_t *bytes)
{
	static const char *const names[][3] = { { "serial", "evicted", "evicted_bytes" },
		{ "paths_serial", "evicted_paths", "evicted_paths_bytes" } };
	const json_t *one;
	size_t i;

	json_array_foreach (json_object_get(asked, "sources"), i, one) {
		const json_t *mount =
			mount_of(dataset, json_string_value(json_object_get(one, "volume")));

		for (size_t k = 0; k < ARRAY_SIZE(names); k++) {
			const json_t *serial = json_object_get(one, names[k][0]);

			if (!serial)
				continue;
			if (json_integer_value(json_object_get(mount, names[k][1])) <
				json_integer_value(serial))
				return false;
			*bytes += (uint64_t)json_integer_value(json_object_get(mount, names[k][2]));
		}
	}
	return true;
}

/* Until the workers have said that it is gone. */
static int wait_gone(const struct evict_options *o, const char *name, const json_t *asked,
	uint64_t *bytes, struct err *e)
{
	uint64_t deadline = clock_mono_ns() + GONE_NS;

	for (;;) {
		json_t *json = NULL;
		int status = dataset_call(&o->where, NULL, name, "", NULL, &json, e);
		uint64_t dropped = 0;
		bool gone = is_gone(json, asked, &dropped);

		json_decref(json);
		if (status != EXIT_OK)
			return status;
		if (gone) {
			*bytes += dropped;
			return EXIT_OK;
		}
		if (clock_mono_ns() > deadline) {
			(void)err_set(e, -ETIMEDOUT,
				"not confirmed by any worker: %s is evicted when its workers are "
				"up again",
				name);
			return EXIT_RUNTIME;
		}
		clock_sleep_ns(POLL_NS);
	}
}

/* What is asked for, of one mount. */
static json_t *make_body(const struct evict_options *o, const char *path)
{
	json_t *body = json_pack("{s:s*}", "mount", path);
	json_t *all = json_array();

	for (unsigned int i = 0; i < o->paths.n; i++)
		(void)json_array_append_new(all, json_string(o->paths.values[i])); /* counted */
	if (o->paths.n > 0)
		(void)json_object_set(body, "paths", all); /* likewise */
	json_decref(all);
	return body;
}

/* One mount after the other: several may be of one source, which takes one order at a time. */
static int evict_mounts(const struct evict_options *o, const char *name, const json_t *dataset,
	uint64_t *bytes, struct err *e)
{
	uint64_t failures = admin_json_failures();
	const json_t *mount;
	size_t i;

	json_array_foreach (json_object_get(dataset, "mounts"), i, mount) {
		json_t *body = make_body(o, json_string_value(json_object_get(mount, "path")));
		json_t *asked = NULL;
		int status;

		if (admin_json_failures() != failures) {
			json_decref(body);
			(void)err_set(e, -ENOMEM, "out of memory");
			return EXIT_RUNTIME;
		}
		status = dataset_call(&o->where, "POST", name,
			o->force ? "/evict?force=1" : "/evict", body, &asked, e);
		if (status == EXIT_OK)
			status = wait_gone(o, name, asked, bytes, e);
		json_decref(body);
		json_decref(asked);
		if (status != EXIT_OK)
			return status;
	}
	return EXIT_OK;
}

int command_evict(int argc, char **argv)
{
	struct evict_options o = { .output = "table" };
	struct err e = ERR_INIT;
	json_t *dataset = NULL;
	uint64_t bytes = 0;
	char size[16];
	int status;

	(void)option_parse_or_exit(&set, argc, argv, &o);
	status = target_dataset(&o.where, &argv[1], &e);
	if (status == EXIT_OK)
		status = dataset_call(&o.where, NULL, argv[1], "", NULL, &dataset, &e);
	if (status == EXIT_OK)
		status = evict_mounts(&o, argv[1], dataset, &bytes, &e);
	json_decref(dataset);
	if (status != EXIT_OK)
		return command_fail(status, &e);
	if (!output_is_table(o.output))
		return yaml_out_made(o.output, json_pack("{s:s, s:I}", "name", argv[1],
						       "evicted_bytes", (json_int_t)bytes));
	(void)printf("%s: %s evicted%s\n", argv[1], units_size(bytes, size, sizeof(size)),
		bytes == 0 && o.paths.n > 0 ? ": no cached file matches --path" : "");
	return EXIT_OK;
}
