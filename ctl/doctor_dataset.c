/* doctor: a dataset, as its master and its origins have it. */
#include "ctl/command.h"
#include "ctl/dataset_command.h"
#include "ctl/doctor.h"
#include "ctl/fleet.h"
#include "ctl/mount_point.h"
#include "ctl/service.h"
#include "ctl/target.h"

#include <string.h>

static void check_phase(struct doctor *d, const char *name, const json_t *dataset)
{
	const char *phase = json_string_value(json_object_get(dataset, "phase"));
	const char *failure = json_string_value(json_object_get(dataset, "last_error"));

	if (failure)
		doctor_warn(d, "dataset", "%s: %s: the last listing failed: %s", name,
			phase ? phase : "?", failure);
	else
		doctor_ok(d, "dataset", "%s: %s: known to the master", name, phase ? phase : "?");
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
			"dataset %s already has access settings: leave %s out", name, given);
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

void doctor_mount(struct doctor *d, const char *dir)
{
	char path[PATH_MAX];
	char socket[SOCKET_PATH_MAX];
	struct origin_options reach = d->options->origin;
	struct fleet_mount mount;
	struct err e = ERR_INIT;
	char *word = path;
	json_t *state;

	if (mount_point_path(dir, path, &e) < 0 || fleet_find(path, true, &mount) < 0) {
		if (!e.code)
			(void)command_not_found(path, &e); /* its line */
		doctor_fail(d, EXIT_MOUNTPOINT, "dataset", "%s", e.text);
		return;
	}
	if (!origin_options_given(&reach) && service_path(mount.run, "master.sock", socket) == 0 &&
		target_dataset(&(struct master_where){ .master = d->options->master ?: socket },
			&word, &e) == EXIT_OK) {
		doctor_dataset(d, word);
		return;
	}
	state = fleet_state(mount.run);
	if (!origin_options_given(&reach))
		origin_options_of_args(fleet_arguments(state, mount.mountpoint), &reach);
	d->url = mount.source;
	d->reach = &reach;
	doctor_origin(d);
	d->url = NULL; /* they are of this function */
	d->reach = NULL;
	json_decref(state);
}
