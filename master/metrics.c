/* What the master says in /metrics besides its counters: datasets, and how long requests took. */
#include "admin/metrics.h"
#include "master/service.h"

#include <stdlib.h>
#include <string.h>

#define DATASETS_SHOWN 100u /* of those with the most bytes; the rest have none of their own */

struct shown {
	const struct dataset *dataset;
	struct source_view view;
};

static int compare(const void *a, const void *b)
{
	const struct shown *x = a;
	const struct shown *y = b;

	if (x->view.newest.bytes != y->view.newest.bytes)
		return x->view.newest.bytes < y->view.newest.bytes ? 1 : -1;
	return strcmp(x->dataset->name, y->dataset->name);
}

static void write_datasets(struct metrics *m, const struct shown *all, uint32_t n, uint32_t total)
{
	static const struct metric_family count = { "granary_datasets", GAUGE, "datasets",
		"Datasets of the master" };
	static const struct metric_family info = { "granary_dataset_info", GAUGE, "constant",
		"Which volume and source a dataset has, as labels" };
	static const struct metric_family files = { "granary_dataset_files", GAUGE, "files",
		"Files of the dataset's newest generation" };
	static const struct metric_family bytes = { "granary_dataset_bytes", GAUGE, "bytes",
		"Bytes of the dataset's newest generation" };
	static const struct metric_family cached = { "granary_dataset_cached_bytes", GAUGE, "bytes",
		"Bytes of the dataset that workers have" };
	static const struct metric_family mounts = { "granary_dataset_mounts", GAUGE, "mounts",
		"Mounts that show the dataset" };
	static const struct metric_family hits = { "granary_dataset_hit_bytes_total", COUNTER,
		"bytes", "Bytes of the dataset that were read from tiers" };
	static const struct metric_family misses = { "granary_dataset_miss_bytes_total", COUNTER,
		"bytes", "Bytes of the dataset that were read from the origin" };
	static const struct metric_family bandwidth = { "granary_dataset_origin_bound_bytes", GAUGE,
		"bytes/s", "Limit of a worker's reads from each source of the dataset; 0: none" };
	static const struct metric_family requests = { "granary_dataset_origin_bound_requests",
		GAUGE, "requests/s",
		"Limit of a worker's requests to each source of the dataset; 0: none" };
	static const struct metric_family failed = { "granary_dataset_listing_failed", GAUGE,
		"boolean", "Did the last listing of the dataset fail?" };
	char volume[2 * VOLUME_ID_LEN + 1];

	metrics_one(m, &count, total);
	metrics_family(m, &info);
	for (uint32_t i = 0; i < n; i++) {
		const struct dataset *d = all[i].dataset;

		for (uint32_t k = 0; k < d->n_mounts; k++) {
			if (!dataset_is_first(d, k))
				continue; /* a volume is named once */
			hash_hex(d->mounts[k].volume.bytes, VOLUME_ID_LEN, volume);
			metrics_value(m, &info,
				METRIC_LABELS({ "dataset", d->name }, { "volume", volume },
					{ "source", d->mounts[k].url }),
				1);
		}
	}
#define EACH(family, value)                                                                 \
	do {                                                                                \
		metrics_family(m, family);                                                  \
		for (uint32_t i = 0; i < n; i++)                                            \
			metrics_value(m, family,                                            \
				METRIC_LABELS({ "dataset", all[i].dataset->name }), value); \
	} while (0)
	EACH(&files, all[i].view.newest.files);
	EACH(&bytes, all[i].view.newest.bytes);
	EACH(&cached, all[i].view.reported.cached_bytes);
	EACH(&hits, all[i].view.reported.hit_bytes + all[i].view.local_bytes);
	EACH(&misses, all[i].view.reported.miss_bytes);
	EACH(&bandwidth, all[i].view.policy.origin_bandwidth);
	EACH(&requests, all[i].view.policy.origin_requests);
	EACH(&mounts, all[i].view.mounts);
	EACH(&failed, all[i].view.failure.code != 0);
#undef EACH
}

/* What its sources are together; of one that was not requested yet nothing is known. */
static void view_all(struct source_set *sources, const struct dataset *d, struct source_view *ret)
{
	struct source_view view;

	*ret = (struct source_view){ 0 };
	for (uint32_t i = 0; i < d->n_mounts; i++) {
		if (!dataset_is_first(d, i) ||
			source_set_view(sources, &d->mounts[i].volume, &view) < 0)
			continue;
		ret->newest.files += view.newest.files;
		ret->newest.bytes += view.newest.bytes;
		ret->reported.cached_bytes += view.reported.cached_bytes;
		ret->reported.hit_bytes += view.reported.hit_bytes;
		ret->reported.miss_bytes += view.reported.miss_bytes;
		ret->local_bytes += view.local_bytes;
		ret->mounts = max(ret->mounts, view.mounts);
		ret->policy = view.policy;
		if (view.failure.code)
			ret->failure = view.failure;
	}
}

static void write_cluster(struct metrics *m, struct membership *membership)
{
	static const struct metric_family workers = { "granary_master_workers", GAUGE, "workers",
		"Members of the cluster" };
	static const struct metric_family watchers = { "granary_master_watchers", GAUGE, "requests",
		"Requests for the slot table that wait for a newer one" };
	static const struct metric_family hot = { "granary_master_hot_slots", GAUGE, "slots",
		"Slots that are read so much that their deputies serve them, too" };
	static const struct metric_family sequence = { "granary_master_table_sequence", GAUGE,
		"version", "Of the slot table, in this run of the master" };
	static const char *const states[MEMBER_STATES] = { [CLUSTER_UP] = "up",
		[CLUSTER_DOWN] = "down",
		[CLUSTER_OUT] = "out",
		[CLUSTER_DRAINING] = "draining" };
	struct membership_sum sum;

	membership_sum(membership, &sum);
	metrics_family(m, &workers);
	for (uint32_t i = 0; i < MEMBER_STATES; i++)
		metrics_value(m, &workers, METRIC_LABELS({ "state", states[i] }), sum.states[i]);
	metrics_one(m, &watchers, sum.watchers);
	metrics_one(m, &hot, sum.hot);
	metrics_one(m, &sequence, sum.sequence);
}

/* Without memory: none of them. */
static void write_metrics(void *arg, struct metrics *m)
{
	struct service *service = arg;
	struct dataset *datasets = NULL;
	struct shown *all;
	uint32_t n = 0;

	write_cluster(m, service->membership);
	if (dataset_set_all(service->datasets, &datasets, &n) < 0)
		n = 0;
	all = calloc((size_t)n + 1, sizeof(*all));
	for (uint32_t i = 0; all && i < n; i++) {
		all[i].dataset = &datasets[i];
		view_all(service->sources, &datasets[i], &all[i].view);
	}
	if (all)
		qsort(all, n, sizeof(*all), compare);
	write_datasets(m, all, all ? min(n, DATASETS_SHOWN) : 0, n);
	for (uint32_t i = 0; i < n; i++)
		dataset_release(&datasets[i]);
	free(datasets);
	free(all);
}

static void say_ready(void *arg, json_t *reasons)
{
	const struct service *service = arg;
	struct membership_sum sum;

	/* Told only. */
	if (!atomic_load(&service->serving))
		(void)json_array_append_new(reasons, json_string("it is starting"));
	membership_sum(service->membership, &sum);
	if (!sum.owned)
		(void)json_array_append_new(
			reasons, json_string("no worker has joined: nothing can be read"));
}

int service_add_metrics(struct service *service, struct admin_server *admin)
{
	static const struct histogram_info table[] = {
#define ROW(symbol, name, label, value, help) \
	HISTOGRAM_ROW(master_histograms, symbol, name, label, value, help)
		MASTER_HISTOGRAMS(ROW)
#undef ROW
	};
	uint32_t n;
	const struct counter_info *members = membership_counter_table(&n);
	int r = admin_server_add_counters(
		admin, members, n, membership_counters(service->membership));

	if (r == 0)
		r = admin_server_add_histograms(
			admin, table, ARRAY_SIZE(table), &service->histograms);

	admin_server_on_ready(admin, say_ready, service);
	return r == 0 ? admin_server_add_metrics(admin, write_metrics, service) : r;
}
