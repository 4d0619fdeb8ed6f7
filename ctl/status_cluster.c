/* The cluster in the status of a node. See status_cluster.h. */
#include "ctl/status_cluster.h"
#include "ctl/fleet.h"
#include "ctl/master_call.h"
#include "ctl/master_wire.h"
#include "ctl/service.h"
#include "ctl/status_notes.h"
#include "ctl/target.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct master_where nowhere;

/* Takes what has these names, or one NULL, of what the master answers for `path`. */
static int ask(
	json_t *cluster, const char *path, const char *name, const char *other, struct err *e)
{
	const char *const names[] = { name, other };
	json_t *answer = NULL;
	int r = master_call(&nowhere, NULL, path, NULL, fleet_timeout(), &answer, e);

	for (size_t i = 0; r == 0 && i < ARRAY_SIZE(names); i++) {
		json_t *part = names[i] ? json_object_get(answer, names[i]) : NULL;

		if (part)
			(void)json_object_set(cluster, names[i], part); /* status */
	}
	json_decref(answer);
	return r;
}

static const char *state_of(int r)
{
	if (r == 0)
		return "answers";
	return r == -EPERM || r == -EACCES ? "limited" : "unreachable";
}

uint64_t status_cluster_members(const json_t *slots)
{
	return status_number(slots, "up") + status_number(slots, "down") +
	       status_number(slots, "out") + status_number(slots, "draining");
}

static bool is_service(const char *socket)
{
	char its[SOCKET_PATH_MAX];
	char run[SOCKET_PATH_MAX];

	return service_path(service_run(run), "master.sock", its) == 0 && strcmp(socket, its) == 0;
}

json_t *status_cluster(void)
{
	char socket[SOCKET_PATH_MAX];
	struct err e = ERR_INIT;
	json_t *cluster;
	bool wire;
	int r;

	if (master_find(&nowhere, socket, &e) < 0)
		return NULL;
	wire = master_is_wire(socket);
	if (!wire && !is_service(socket))
		return NULL;
	cluster = wire ? json_pack("{s:s}", "master", socket + strlen(MASTER_WIRE))
		       : json_pack("{s:s+}", "master", "unix:", socket);
	e = ERR_INIT;
	r = ask(cluster, "/v1/status", "slots", "sources", &e);
	if (!wire && (r < 0 || status_cluster_members(json_object_get(cluster, "slots")) < 2)) {
		json_decref(cluster); /* one host, or its daemons' own lines say it */
		return NULL;
	}
	if (r == 0)
		r = ask(cluster, "/v1/datasets", "datasets", NULL, &e);
	(void)json_object_set_new(cluster, "state", /* status */
		json_string(state_of(r)));
	if (r < 0)
		(void)json_object_set_new(cluster, "text", json_string(e.text)); /* status */
	return cluster;
}

const json_t *status_cluster_of(const json_t *cluster, const char *run)
{
	return run && service_is_run(run) ? cluster : NULL;
}

const json_t *status_cluster_dataset(const json_t *cluster, const json_t *mount)
{
	const json_t *dataset;
	size_t i;

	json_array_foreach (json_object_get(cluster, "datasets"), i, dataset)
		if (target_shows(mount, dataset) &&
			json_is_integer(json_object_get(dataset, "cached_bytes")))
			return dataset;
	return NULL;
}

void status_cluster_print(const json_t *cluster)
{
	const json_t *slots = json_object_get(cluster, "slots");
	const char *state = status_text(cluster, "state");
	uint64_t up = status_number(slots, "up");
	uint64_t all = status_cluster_members(slots);
	const char *master = status_text(cluster, "master");
	bool here = master && strncmp(master, "unix:", 5) == 0;

	if (!state)
		return;
	if (strcmp(state, "answers") == 0)
		(void)printf("cluster: master %s%s, %llu of %llu workers up%s\n",
			here ? "on this host" : "at ", here ? "" : master, (unsigned long long)up,
			(unsigned long long)all, up < all ? ": cachectl worker list" : "");
	else if (strcmp(state, "limited") == 0)
		(void)printf("cluster: master at %s; you may not see more of it: %s\n",
			status_text(cluster, "master"), status_text(cluster, "text"));
	else
		(void)printf("note: cluster: %s\n", status_text(cluster, "text"));
}
