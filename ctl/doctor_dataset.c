/* doctor: a dataset, as its master and its origins have it. */
#include "ctl/dataset_command.h"
#include "ctl/doctor.h"

#include <string.h>

static void check_phase(struct doctor *d, const char *name, const json_t *dataset)
{
	const char *phase = json_string_value(json_object_get(dataset, "phase"));
	const char *failure = json_string_value(json_object_get(dataset, "last_error"));

	if (failure)
		doctor_warn(d, "dataset", "%s: %s: the last listing failed: %s", name,
			phase ? phase : "?", failure);
	else
		doctor_ok(d, "dataset", "%s: %s: the master knows it", name, phase ? phase : "?");
}

/* Keys are looked for here: those of the daemons may be elsewhere, which their last listing tells. */
static void check_sources(struct doctor *d, const json_t *dataset)
{
	const json_t *mount;
	size_t i;

	json_array_foreach (json_object_get(dataset, "mounts"), i, mount) {
		struct origin_options reach;

		origin_options_of_dataset(mount, &reach);
		d->url = json_string_value(json_object_get(mount, "url"));
		d->reach = &reach;
		if (d->url)
			doctor_origin(d);
		d->reach = NULL;
	}
	d->url = NULL; /* it was the answer's */
}

void doctor_dataset(struct doctor *d, const char *name)
{
	const struct master_where where = { .master = d->options->master,
		.cache = d->options->master ? NULL : d->options->cache };
	const char *given = origin_options_given(&d->options->origin);
	struct err e = ERR_INIT;
	json_t *dataset = NULL;
	int status;

	if (given) {
		doctor_fail(d, EXIT_USAGE, "dataset",
			"the dataset %s knows how its source is reached: leave %s out", name,
			given);
		return;
	}
	status = dataset_call(&where, NULL, name, "", NULL, &dataset, &e);
	if (status != EXIT_OK) {
		doctor_fail(d, status, "dataset", "%s", e.text);
		return;
	}
	check_phase(d, name, dataset);
	check_sources(d, dataset);
	json_decref(dataset);
}
