/* See top_sample.h. */
#include "ctl/top_sample.h"
#include "base/clock.h"
#include "base/units.h"
#include "ctl/fleet.h"
#include "ctl/master_call.h"
#include "ctl/master_wire.h"
#include "ctl/service.h"

#include <stdlib.h>
#include <string.h>

const char *const top_stall_names[TOP_STALLS] = { "master", "memory", "disk", "origin" };

static uint64_t number(const json_t *json, const char *name)
{
	return (uint64_t)json_integer_value(json_object_get(json, name));
}

static const char *text(const json_t *json, const char *name)
{
	return json_string_value(json_object_get(json, name));
}

static void keep(char out[TOP_TEXT], const char *from)
{
	if (from)
		(void)snprintf(out, TOP_TEXT, "%s", from); /* cut */
}

static struct top_source *own_row(struct top_sample *sample, const char *volume)
{
	for (unsigned int i = 0; i < sample->n_sources; i++)
		if (strcmp(sample->sources[i].volume, volume) == 0)
			return &sample->sources[i];
	return NULL;
}

/* Or that of the mount whose part it is. */
static struct top_source *find_source(struct top_sample *sample, const char *volume)
{
	struct top_source *source = own_row(sample, volume);

	for (unsigned int i = 0; i < sample->n_parts && !source; i++)
		if (strcmp(sample->parts[i].volume, volume) == 0)
			source = &sample->sources[sample->parts[i].row];
	return source;
}

/* A row of its own; NULL: there is none and no room for it. */
static struct top_source *source_of(struct top_sample *sample, const char *volume)
{
	struct top_source *source = own_row(sample, volume);

	if (source)
		return source;
	if (sample->n_sources == TOP_SOURCES) {
		sample->more = true;
		return NULL;
	}
	source = &sample->sources[sample->n_sources++];
	memset(source, 0, sizeof(*source));
	(void)snprintf(source->volume, sizeof(source->volume), "%s", volume); /* 32 digits */
	return source;
}

static void add_parts(struct top_sample *sample, const json_t *status, unsigned int row)
{
	const json_t *one;
	size_t i;

	json_array_foreach (json_object_get(status, "sources"), i, one) {
		const char *volume = text(one, "volume");

		if (!volume || find_source(sample, volume))
			continue;
		if (sample->n_parts == TOP_SOURCES) {
			sample->more = true;
			return;
		}
		(void)snprintf(sample->parts[sample->n_parts].volume,
			sizeof(sample->parts[0].volume), "%s", volume); /* 32 digits */
		sample->parts[sample->n_parts++].row = row;
	}
}

void top_sample_mount(struct top_sample *sample, const json_t *status)
{
	const char *volume = text(status, "volume");
	const json_t *counters = json_object_get(status, "counters");
	struct top_source *source = volume ? source_of(sample, volume) : NULL;

	if (!source)
		return;
	keep(source->url, text(status, "source"));
	source->bytes = number(status, "bytes");
	source->mounts++;
	source->waiting += number(counters, "waiting");
	source->node += number(counters, "local_bytes");
	source->hit += number(counters, "local_bytes");
	source->worker += number(counters, "remote_bytes");
	source->slow += number(counters, "slow_reads");
	add_parts(sample, status, (unsigned int)(source - sample->sources));
}

static void add_source(struct top_sample *sample, const json_t *json)
{
	const json_t *space = json_object_get(json, "space");
	const char *volume = text(json, "volume");
	struct top_source *source = volume ? find_source(sample, volume) : NULL;

	if (!source && volume)
		source = source_of(sample, volume);
	if (!source)
		return;
	if (!source->url[0])
		keep(source->url, text(json_object_get(json, "use"), "url"));
	if (!source->bytes)
		source->bytes = number(json, "bytes");
	source->told = true;
	source->cached += number(json, "cached_bytes");
	source->origin += number(json_object_get(json, "origin"), "bytes");
	source->hit += number(json_object_get(json, "use"), "tier_bytes");
	source->miss += number(json_object_get(json, "use"), "origin_bytes");
	source->quota += number(space, "quota");
	source->unbounded |= number(space, "quota") == 0;
	source->evicted += number(space, "evicted");
	source->evicting += number(space, "evicted");
}

void top_sample_worker(struct top_sample *sample, const char *run, const json_t *status)
{
	const json_t *counters = json_object_get(json_object_get(status, "counters"), "worker");
	const json_t *one;
	struct top_worker *worker;
	uint64_t origin = 0;
	size_t i;

	json_array_foreach (json_object_get(status, "sources"), i, one) {
		origin += number(json_object_get(one, "origin"), "bytes");
		add_source(sample, one);
	}
	if (sample->n_workers == TOP_WORKERS) {
		sample->more = true;
		return;
	}
	worker = &sample->workers[sample->n_workers++];
	memset(worker, 0, sizeof(*worker));
	keep(worker->run, run);
	worker->origin = origin;
	worker->tier = number(counters, "hit_bytes");
	worker->in_flight = number(counters, "flights");
	json_array_foreach (json_object_get(status, "tiers"), i, one) {
		worker->used += number(one, "used");
		worker->capacity += number(one, "capacity");
	}
	for (unsigned int s = 0; s < TOP_STALLS; s++)
		worker->stalls[s] = number(json_object_get(status, "stalls"), top_stall_names[s]);
}

void top_sample_datasets(struct top_sample *sample, const json_t *datasets)
{
	const json_t *dataset;
	const json_t *mount;
	size_t i;
	size_t j;

	json_array_foreach (json_object_get(datasets, "datasets"), i, dataset) {
		json_array_foreach (json_object_get(dataset, "mounts"), j, mount) {
			const char *volume = text(mount, "volume");

			/* Only what is in use here has a row. */
			for (unsigned int s = 0; volume && s < sample->n_sources; s++)
				if (strcmp(sample->sources[s].volume, volume) == 0)
					keep(sample->sources[s].name, text(dataset, "name"));
		}
	}
}

static bool listens_at(const json_t *worker, const char *address)
{
	const json_t *one;
	size_t i;

	json_array_foreach (json_object_get(worker, "addresses"), i, one)
		if (json_string_value(one) && strcmp(json_string_value(one), address) == 0)
			return true;
	return false;
}

static void add_far_worker(struct top_sample *sample, const json_t *json)
{
	struct top_worker *worker;
	const json_t *one;
	size_t i;

	if (sample->n_workers == TOP_WORKERS) {
		sample->more = true;
		return;
	}
	worker = &sample->workers[sample->n_workers++];
	*worker = (struct top_worker){ .far = true,
		.tier = number(json, "served_bytes"),
		.in_flight = number(json, "in_flight"),
		.capacity = number(json, "capacity") };
	keep(worker->run, text(json, "name"));
	json_array_foreach (json_object_get(json, "tiers"), i, one)
		worker->used += number(one, "used");
	for (unsigned int s = 0; s < TOP_STALLS; s++)
		worker->stalls[s] = number(json_object_get(json, "stalls"), top_stall_names[s]);
}

static void add_far_bytes(struct top_sample *sample, const json_t *dataset)
{
	const json_t *mounts = json_object_get(dataset, "mounts");
	const char *volume = text(json_array_get(mounts, 0), "volume");
	struct top_source *source =
		volume && json_array_size(mounts) == 1 ? find_source(sample, volume) : NULL;

	if (!source)
		return;
	source->far = true;
	source->hit = number(dataset, "hit_bytes");
	source->miss = number(dataset, "miss_bytes");
	source->cached = max(source->cached, number(dataset, "cached_bytes"));
}

void top_sample_cluster(
	struct top_sample *sample, const char *own, const json_t *workers, const json_t *datasets)
{
	const json_t *one;
	size_t i;

	json_array_foreach (json_object_get(workers, "workers"), i, one) {
		const char *state = text(one, "state");

		if (!listens_at(one, own) && state &&
			(strcmp(state, "up") == 0 || strcmp(state, "draining") == 0))
			add_far_worker(sample, one);
	}
	json_array_foreach (json_object_get(datasets, "datasets"), i, one)
		add_far_bytes(sample, one);
}

/* ---- asking ---------------------------------------------------------------------------------- */

/* NULL: it does not answer. */
static json_t *ask(const char *run, const char *name, const char *path)
{
	struct err e = ERR_INIT;
	json_t *json = NULL;

	return fleet_call(run, name, path, &json, &e) < 0 ? NULL : json;
}

static void visit_mounts(struct top_sample *sample, const char *run)
{
	json_t *state = fleet_state(run);
	json_t *asked = json_object(); /* several mounts may share a daemon */
	const json_t *mount;
	size_t i;

	json_array_foreach (json_object_get(state, "mounts"), i, mount) {
		const char *socket = text(mount, "socket");
		struct err e = ERR_INIT;
		json_t *json = NULL;

		if (!socket || fleet_detached(mount) || json_object_get(asked, socket))
			continue;
		(void)json_object_set_new(asked, socket, json_true()); /* else counted twice */
		if (admin_call(socket, NULL, "/v1/status", NULL, fleet_timeout(), &json, &e) == 0)
			top_sample_mount(sample, json);
		json_decref(json);
	}
	json_decref(asked);
	json_decref(state);
}

/* Where the worker of a runtime directory listens. */
static const char *address_of(const char *run, char out[SOCKET_PATH_MAX + 8])
{
	char path[SOCKET_PATH_MAX];

	out[0] = '\0';
	if (service_path(run, "worker.rpc", path) == 0)
		(void)snprintf(out, SOCKET_PATH_MAX + 8, "unix:%s", path); /* fits */
	return out;
}

static int visit(void *arg, const char *run)
{
	struct top_sample *sample = arg;
	json_t *worker = ask(run, "worker.sock", "/v1/status");
	json_t *datasets = ask(run, "master.sock", "/v1/datasets");
	json_t *workers = datasets ? ask(run, "master.sock", "/v1/workers") : NULL;
	char own[SOCKET_PATH_MAX + 8];

	visit_mounts(sample, run);
	if (worker)
		top_sample_worker(sample, run, worker);
	top_sample_datasets(sample, datasets);
	top_sample_cluster(sample, address_of(run, own), workers, NULL);
	json_decref(worker);
	json_decref(datasets);
	json_decref(workers);
	return 0;
}

/* On a node whose master is elsewhere. */
static void visit_cluster(struct top_sample *sample)
{
	const struct master_where nowhere = { 0 };
	char run[SOCKET_PATH_MAX];
	char own[SOCKET_PATH_MAX + 8];
	struct err e = ERR_INIT;
	json_t *datasets = NULL;
	json_t *workers = NULL;

	if (master_find(&nowhere, run, &e) < 0 || !master_is_wire(run))
		return;
	if (master_call(&nowhere, NULL, "/v1/workers", NULL, fleet_timeout(), &workers, &e) == 0 &&
		master_call(&nowhere, NULL, "/v1/datasets", NULL, fleet_timeout(), &datasets, &e) ==
			0)
		top_sample_datasets(sample, datasets);
	top_sample_cluster(sample, address_of(service_run(run), own), workers, datasets);
	json_decref(workers);
	json_decref(datasets);
}

int top_sample_new(struct top_sample **ret_sample)
{
	struct top_sample *sample = calloc(1, sizeof(*sample));
	int r;

	if (!sample)
		return -ENOMEM;
	r = fleet_each_run(visit, sample);
	if (r < 0) {
		free(sample);
		return r;
	}
	visit_cluster(sample);
	sample->at_ns = clock_mono_ns();
	*ret_sample = sample;
	return 0;
}

/* ---- between two ----------------------------------------------------------------------------- */

static uint64_t grown(uint64_t now, uint64_t before)
{
	return now >= before ? now - before : now;
}

static void source_since(struct top_source *to, const struct top_sample *before)
{
	static const struct top_source none;
	const struct top_source *was = before ? &none : to; /* first seen now: all is new */

	for (unsigned int i = 0; before && i < before->n_sources; i++)
		if (strcmp(before->sources[i].volume, to->volume) == 0)
			was = &before->sources[i];
	to->node = grown(to->node, was->node);
	to->worker = grown(to->worker, was->worker);
	to->origin = grown(to->origin, was->origin);
	to->hit = grown(to->hit, was->hit);
	to->miss = grown(to->miss, was->miss);
	to->slow = grown(to->slow, was->slow);
	to->evicting = grown(to->evicting, was->evicting);
}

static void worker_since(struct top_worker *to, const struct top_sample *before)
{
	static const struct top_worker none;
	const struct top_worker *was = before ? &none : to;

	for (unsigned int i = 0; before && i < before->n_workers; i++)
		if (strcmp(before->workers[i].run, to->run) == 0)
			was = &before->workers[i];
	to->tier = grown(to->tier, was->tier);
	to->origin = grown(to->origin, was->origin);
	for (unsigned int s = 0; s < TOP_STALLS; s++)
		to->stalls[s] = grown(to->stalls[s], was->stalls[s]);
}

void top_sample_since(
	const struct top_sample *now, const struct top_sample *before, struct top_sample *ret_delta)
{
	*ret_delta = *now;
	for (unsigned int i = 0; i < now->n_sources; i++)
		source_since(&ret_delta->sources[i], before);
	for (unsigned int i = 0; i < now->n_workers; i++)
		worker_since(&ret_delta->workers[i], before);
}

double top_hit_ratio(const struct top_source *delta)
{
	uint64_t all = delta->hit + delta->miss;

	return all ? units_ratio((double)delta->hit, (double)all) : -1;
}
