/* What a mount reports: /v1/status, /v1/explain. */
#include "admin/metrics.h"
#include "base/clock.h"
#include "base/version.h"
#include "client/client_peers.h"
#include "fuse/daemon/cachefuse.h"
#include "fuse/daemon/follow.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#define EXPLAIN_CHUNKS 4096u /* chunks listed of one file */
#define PEERS_SHOWN    256u
#define PEERS_LABELLED 32u

/* ---- workers, as the mount knows them -------------------------------------------------------- */

/* A list; NULL without memory. */
static json_t *peers_json(const struct client *client)
{
	struct client_peer *peers = calloc(PEERS_SHOWN, sizeof(*peers));
	uint32_t n = peers ? client_peers(client, peers, PEERS_SHOWN) : 0;
	json_t *list = json_array();

	for (uint32_t i = 0; i < n; i++) {
		const struct client_peer *p = &peers[i];

		(void)json_array_append_new(
			list, json_pack("{s:s, s:s, s:s, s:b, s:b, s:b, s:I, s:I, s:I, s:I, s:f}",
				      "name", p->name, "address", p->address, "state", p->state,
				      "local", p->local, "connected", p->connected, "broken",
				      p->broken, "bytes", (json_int_t)p->bytes, "answers",
				      (json_int_t)p->answers, "failures", (json_int_t)p->failures,
				      "in_flight", (json_int_t)p->in_flight, "p99_s",
				      (double)p->p99_ns / (double)CLOCK_SECOND)); /* a row less */
	}
	free(peers);
	return list;
}

static uint64_t bytes_of(const struct client_peer *p)
{
	return p->bytes;
}

static uint64_t failures_of(const struct client_peer *p)
{
	return p->failures;
}

static uint64_t usable_of(const struct client_peer *p)
{
	return !p->broken && strcmp(p->state, "down") != 0;
}

static void write_family(struct metrics *m, const struct metric_family *family,
	const struct client_peer *peers, uint32_t n, uint64_t (*value)(const struct client_peer *p))
{
	uint64_t others = 0;

	metrics_family(m, family);
	for (uint32_t i = 0; i < n; i++) {
		if (i < PEERS_LABELLED)
			metrics_value(m, family,
				METRIC_LABELS(
					{ "worker", peers[i].name[0] ? peers[i].name : "local" }),
				value(&peers[i]));
		else
			others += value(&peers[i]);
	}
	if (n > PEERS_LABELLED)
		metrics_value(m, family, METRIC_LABELS({ "worker", "others" }), others);
}

/* The first 32 by name, the others together as "others". */
static void peers_metrics(const struct client *client, struct metrics *m)
{
	static const struct metric_family bytes = { "granary_mount_peer_bytes_total", COUNTER,
		"bytes", "Bytes that workers answered, by worker" };
	static const struct metric_family failures = { "granary_mount_peer_failures_total", COUNTER,
		"requests", "Requests that a worker did not answer" };
	static const struct metric_family usable = { "granary_mount_peer_usable", GAUGE, "workers",
		"1: the worker is used; 0: it is down, or passed over as it did not answer" };
	static const struct metric_family up = { "granary_mount_workers_up", GAUGE, "workers",
		"Workers that the slot table in use calls up or draining" };
	static const struct metric_family known = { "granary_mount_workers", GAUGE, "workers",
		"Workers that the slot table in use names, but for those that are out" };
	struct client_peer *peers = calloc(PEERS_SHOWN, sizeof(*peers));
	uint32_t n = peers ? client_peers(client, peers, PEERS_SHOWN) : 0;
	struct client_cluster cluster;

	client_cluster(client, &cluster);
	write_family(m, &bytes, peers, n, bytes_of);
	write_family(m, &failures, peers, n, failures_of);
	write_family(m, &usable, peers, n, usable_of);
	metrics_one(m, &up, cluster.up);
	metrics_one(m, &known, cluster.known);
	free(peers);
}

/* {epoch, sequence, up, known} of the slot table in use; likewise. */
static json_t *peers_cluster_json(const struct client *client)
{
	struct client_cluster cluster;

	client_cluster(client, &cluster);
	return json_pack("{s:I, s:I, s:i, s:i}", "epoch", (json_int_t)cluster.epoch, "sequence",
		(json_int_t)cluster.sequence, "up", (int)cluster.up, "known", (int)cluster.known);
}

/* Adds to the entry of a chunk who has it, and whether that is this node, unless one host is all there is. */
static void peers_chunk_json(const struct client *client, const struct client_volume *volume,
	uint64_t chunk, json_t *json)
{
	struct client_cluster cluster;
	struct client_serving serving;
	char text[2 * CLIENT_PEER_NAME + 2];

	client_cluster(client, &cluster);
	client_serving(volume, chunk, &serving);
	if ((cluster.known < 2 && serving.here) || !serving.owner[0])
		return;                                                       /* one host */
	(void)json_object_set_new(json, "owner", json_string(serving.owner)); /* absent without */
	if (strcmp(serving.owner, serving.serves) != 0)                       /* memory, each */
		(void)json_object_set_new(json, "serves", json_string(serving.serves));
	(void)snprintf(text, sizeof(text), "%s%s%s", serving.deputies[0],
		serving.deputies[0][0] && serving.deputies[1][0] ? " " : "",
		serving.deputies[1]); /* fits */
	if (text[0])
		(void)json_object_set_new(json, "deputies", json_string(text));
	if (serving.previous[0] && strcmp(serving.previous, serving.owner) != 0)
		(void)json_object_set_new(json, "previous_owner", json_string(serving.previous));
	if (serving.hot)
		(void)json_object_set_new(json, "hot", json_true());
	(void)json_object_set_new(json, "here", json_boolean(serving.here));
}

/* ---- the mount ------------------------------------------------------------------------------- */

static json_t *number(uint64_t n)
{
	return json_integer((json_int_t)n);
}

static json_t *requests_json(const struct cachefuse *c)
{
	uint32_t n;
	const struct counter_info *table = session_counter_table(&n);

	return admin_counters_json(table, n, session_counters(mounted_session(c->mounted)));
}

static json_t *client_json(const struct cachefuse *c)
{
	uint32_t n;
	const struct counter_info *table = client_counter_table(&n);

	return admin_counters_json(table, n, client_counters(c->client));
}

/* What is shown of one source. */
static json_t *source_json(const struct slots_source *s)
{
	char volume[2 * VOLUME_ID_LEN + 1];
	char lineage[17];

	hash_hex(s->volume.bytes, VOLUME_ID_LEN, volume);
	(void)snprintf(lineage, sizeof(lineage), "%016" PRIx64, s->lineage); /* fits */
	return json_pack("{s:s, s:s, s:I}", "volume", volume, "lineage", lineage, "generation",
		(json_int_t)s->generation);
}

/* All of them; what volume_json() says is the first one's. */
static json_t *sources_json(const struct cachefuse *c)
{
	const struct slots_sources *shown = slots_sources(c->slots);
	json_t *list = json_array();

	for (uint32_t i = 0; i < shown->layout.n && i < c->sources.n; i++) {
		const struct mount_source *s = &c->sources.all[i];
		json_t *row = source_json(&shown->all[i]);
		json_t *more = json_pack("{s:s, s:s, s:s}", "path", s->path, "source", s->url,
			"subtree", s->subtree);

		if (row && more)
			(void)json_object_update(row, more); /* without memory: less of it */
		json_decref(more);
		(void)json_array_append_new(list, row); /* likewise */
	}
	return list;
}

/* Of the source `source`; the files are of all. */
static json_t *volume_json(const struct cachefuse *c, uint32_t source)
{
	const struct slots_mount *m = slots_mount(c->slots);
	json_t *json = source_json(&slots_sources(c->slots)->all[source]);
	json_t *more = json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "files",
		(json_int_t)m->files, "directories", (json_int_t)m->directories, "skipped",
		(json_int_t)m->skipped, "bytes", (json_int_t)m->bytes, "extent_bytes",
		(json_int_t)m->extent_bytes, "extents", (json_int_t)m->extents, "image_bytes",
		(json_int_t)m->image_bytes);

	if (!json || !more || json_object_update(json, more) != 0) {
		json_decref(json);
		json_decref(more);
		return NULL;
	}
	json_decref(more);
	return json;
}

/* For people: what a read comes from. */
static const char *mode_of(const struct seal_report *r)
{
	if (r->shown.local == 0)
		return "on demand";
	return r->shown.local == r->extents ? "sealed" : "partly sealed";
}

static json_t *sealed_json(const struct cachefuse *c)
{
	struct seal_report *r = c->seal ? malloc(sizeof(*r)) : NULL;
	json_t *json;

	if (!r)
		return json_null();
	seal_report(c->seal, r);
	json = json_pack("{s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:b, s:b, s:s}", "mode", mode_of(r),
		"extents", (json_int_t)r->extents, "local", (json_int_t)r->shown.local, "sealed",
		(json_int_t)r->sealed, "verifying", (json_int_t)r->verifying, "old_superblocks",
		(json_int_t)r->shown.old, "switches", (json_int_t)r->shown.switches, "may_switch",
		r->may_switch, "worker_answers", r->polled, "why", r->why);
	free(r);
	return json;
}

static int get_status_locked(
	void *arg, const struct admin_request *request, json_t **ret_json, struct err *e)
{
	struct cachefuse *c = arg;
	const struct slots_mount *m = slots_mount(c->slots);
	const struct session_counters *counters = session_counters(mounted_session(c->mounted));
	struct slots_use use;
	json_t *json = volume_json(c, 0);
	struct image_source sources[LAYOUT_SOURCES_MAX];
	json_t *more;

	(void)request;
	sources_images(&c->sources, sources);
	slots_use(c->slots, &use);
	more = json_pack(
		"{s:s, s:i, s:s, s:s, s:s, s:s, s:s, s:I, s:o, s:{s:i, s:i, s:i}, s:o, s:o, "
		"s:I, s:I, s:{s:I, s:I, s:I}, s:i, s:i, s:I, s:b}",
		"process", "cachefuse", "pid", (int)getpid(), "version", GRANARY_VERSION,
		"mountpoint", c->mountpoint, "source", c->options.source, "engine",
		mounted_engine(c->mounted)->name, "engine_why", m->engine_why, "daemon_requests",
		(json_int_t)counter_get(&counters->total), "requests", requests_json(c), "slots",
		"max", (int)use.max, "held", (int)use.held, "peak", (int)use.peak, "counters",
		client_json(c), "failures", failures_json(c->failures, sources, c->sources.n),
		"uptime_s", (json_int_t)((clock_mono_ns() - c->started) / CLOCK_SECOND),
		"mounted_at", (json_int_t)m->mounted_at, "memory", "max",
		(json_int_t)c->share.answers.max, "used", (json_int_t)c->share.answers.used, "peak",
		(json_int_t)c->share.answers.peak, "fuse_connection",
		(int)minor((dev_t)m->fuse_dev), "max_background", (int)m->max_background,
		"prime_max", (json_int_t)m->prime_max, "taken_over", c->taken_over);
	if (!json || !more || json_object_update(json, more) != 0) {
		json_decref(json);
		json_decref(more);
		return err_set(e, -ENOMEM, "out of memory");
	}
	json_decref(more);
	/* Absent without memory, as the next. */
	(void)json_object_set_new(json, "sources", sources_json(c));
	(void)json_object_set_new(json, "order", order_json(c->order));
	(void)json_object_set_new(json, "peers", peers_json(c->client));
	(void)json_object_set_new(json, "cluster", peers_cluster_json(c->client));
	(void)json_object_set_new(json, "integrity", json_string(c->options.integrity));
	(void)json_object_set_new(json, "sealed", sealed_json(c)); /* null: nothing is to be */
	(void)json_object_set_new(json, "follow", follow_json(c)); /* null: it does not */
	if (c->notice[0])
		(void)json_object_set_new(
			json, "notice", json_string(c->notice)); /* only a remark */
	*ret_json = json;
	return 0;
}

/* With what is shown as it is. */
static int get_status(
	void *arg, const struct admin_request *request, json_t **ret_json, struct err *e)
{
	struct cachefuse *c = arg;
	int r;

	pthread_rwlock_rdlock(&c->showing);
	r = get_status_locked(arg, request, ret_json, e);
	pthread_rwlock_unlock(&c->showing);
	return r;
}

/* ---- explain --------------------------------------------------------------------------------- */

static json_t *chunks_json(
	const struct cachefuse *c, uint32_t source, const struct table_row *row, bool *ret_cut)
{
	json_t *list = json_array();
	uint64_t first = row->offset / CHUNK_BYTES;
	uint64_t last = row->size ? (row->offset + row->size - 1) / CHUNK_BYTES : first;

	*ret_cut = last - first >= EXPLAIN_CHUNKS;
	for (uint64_t chunk = first; row->size && chunk <= last && chunk - first < EXPLAIN_CHUNKS;
		chunk++) {
		uint64_t from = max(row->offset, chunk * CHUNK_BYTES);
		uint64_t to = min(row->offset + row->size, (chunk + 1) * CHUNK_BYTES);

		json_t *entry = json_pack("{s:I, s:I, s:I}", "chunk", (json_int_t)chunk, "offset",
			(json_int_t)(from % CHUNK_BYTES), "bytes", (json_int_t)(to - from));

		if (entry)
			peers_chunk_json(c->client, c->sources.all[source].volume, chunk, entry);
		(void)json_array_append_new(list, entry); /* without memory: a row less */
	}
	return list;
}

/* For a person: EIO is all that the reader saw. */
static json_t *failure_json(int status)
{
	switch (-status) {
	case 0:
		return json_null();
	case ESTALE:
		return json_string(
			"ESTALE: the object was changed or removed at the origin after it was "
			"listed: mount again to see what is there now");
	case EIO:
		return json_string(
			"EIO: the origin or the worker stayed away for too long: see the "
			"worker's log");
	default:
		return json_sprintf("%s: %s", err_name(status), err_str(status));
	}
}

/* Where a read of an extent goes, for a person. */
static json_t *reads_json(const struct cachefuse *c, uint64_t extent)
{
	struct seal_status status;
	bool local = false;

	if (!c->seal)
		return strcmp(c->options.integrity, "strict") == 0
			       ? json_string(
					 "on demand: checked by the daemon (--integrity strict)")
			       : json_string("on demand");
	seal_extent(c->seal, (uint32_t)extent, &status, &local);
	if (local)
		return json_string("sealed: the kernel reads this node's file");
	return json_sprintf("on demand: the extent is %s%s%s", seal_state_name(status.state),
		status.why ? ": " : "", seal_why_text(status.why));
}

static json_t *row_json(struct cachefuse *c, uint32_t source, const struct table_row *row)
{
	const struct slots_mount *m = slots_mount(c->slots);
	json_t *json = volume_json(c, source);
	uint64_t extent =
		slots_sources(c->slots)->layout.first[source] + row->offset / m->extent_bytes;
	bool cut = false;
	int last = failures_last(c->failures, place_of(source, row->offset), row->size);

	if (!json)
		return NULL;
	(void)json_object_set_new(
		json, "key", json_string(row->key)); /* absent without memory or when not UTF-8 */
	(void)json_object_set_new(json, "tag", json_string(row->tag));
	(void)json_object_set_new(json, "size", number(row->size));
	(void)json_object_set_new(json, "mtime", admin_json_time(row->mtime_ns));
	(void)json_object_set_new(json, "offset", number(row->offset));
	(void)json_object_set_new(json, "extent", number(extent));
	(void)json_object_set_new(json, "directory", json_boolean(row->flags & ROW_DIRECTORY));
	(void)json_object_set_new(json, "dead", json_boolean(row->flags & ROW_DEAD));
	(void)json_object_set_new(json, "chunks", chunks_json(c, source, row, &cut));
	(void)json_object_set_new(json, "chunks_cut", json_boolean(cut));
	(void)json_object_set_new(json, "last_failure", failure_json(last));
	(void)json_object_set_new(json, "mountpoint", json_string(c->mountpoint));
	(void)json_object_set_new(json, "source", json_string(c->sources.all[source].url));
	(void)json_object_set_new(json, "path", json_string(c->sources.all[source].path));
	(void)json_object_set_new(json, "engine", json_string(mounted_engine(c->mounted)->name));
	(void)json_object_set_new(json, "engine_why", json_string(m->engine_why));
	(void)json_object_set_new(json, "reads", reads_json(c, extent));
	return json;
}

/* What may be at a path: the row, or none, of a key in a source. */
struct looked {
	uint32_t source;
	char key[LIMIT_KEY_BYTES + 1];
	struct table *table;
};

static bool look_at(const struct cachefuse *c, const char *path, struct looked *ret)
{
	struct image_source sources[LAYOUT_SOURCES_MAX];
	const char *rest;

	sources_images(&c->sources, sources);
	if (image_source_at(sources, c->sources.n, path, &ret->source, &rest) < 0)
		return false;
	ret->table = sources[ret->source].table;
	return snprintf(ret->key, sizeof(ret->key), "%s%s", c->sources.all[ret->source].subtree,
		       rest) < (int)sizeof(ret->key);
}

/* The line for a path that shows no object. */
static void explain_missing(
	struct cachefuse *c, const char *path, struct table_row *row, int code, struct err *e)
{
	const char *reason = image_key_refuse(path, (uint32_t)strlen(path));
	struct looked at;

	if (!look_at(c, path, &at))
		(void)err_set(e, code, "%s: %s: no source of the dataset is shown there", path,
			err_str(code));
	else if (reason && table_find_key(at.table, at.key, (uint32_t)strlen(at.key), row) == 0)
		(void)err_set(e, code,
			"the object %s is left out: it has %s, as no file can: rename it at the "
			"origin",
			at.key, reason);
	else if (code == -ENOENT)
		(void)err_set(e, code,
			"%s: no such object in generation %" PRIu64
			" of %s: to see newer objects, run `cachectl refresh`",
			path, slots_sources(c->slots)->all[at.source].generation,
			c->sources.all[at.source].url);
	else
		(void)err_set(e, code, "%s: %s in generation %" PRIu64 " of %s", path,
			err_str(code), slots_sources(c->slots)->all[at.source].generation,
			c->sources.all[at.source].url);
}

/* A directory whose name is also an object's; `row` is scratch. */
static bool hidden_object(struct cachefuse *c, const char *path, struct table_row *row)
{
	struct looked at;

	return (row->flags & ROW_DIRECTORY) && look_at(c, path, &at) && at.key[0] &&
	       table_find_key(at.table, at.key, (uint32_t)strlen(at.key), row) == 0 &&
	       !(row->flags & (ROW_DEAD | ROW_DIRECTORY));
}

static int get_explain_locked(
	void *arg, const struct admin_request *request, json_t **ret_json, struct err *e)
{
	struct cachefuse *c = arg;
	const char *path = request->query(request, "path");
	struct table_row *row;
	uint32_t source = 0;
	int r;

	if (!path)
		return err_set(e, -EINVAL, "explain needs ?path=, relative to the mount point");
	while (*path == '/')
		path++;
	row = malloc(sizeof(*row));
	if (!row)
		return err_set(e, -ENOMEM, "out of memory");
	r = sources_resolve(&c->sources, path, &source, row);
	if (r < 0)
		explain_missing(c, path, row, r, e);
	else
		*ret_json = row_json(c, source, row);
	if (r == 0 && hidden_object(c, path, row))
		(void)json_object_set_new(*ret_json, "left_out",
			json_string("an object has the same name: the directory is shown, and the "
				    "object is not: rename it")); /* told only */
	free(row);
	return r;
}

/* With what is shown as it is. */
static int get_explain(
	void *arg, const struct admin_request *request, json_t **ret_json, struct err *e)
{
	struct cachefuse *c = arg;
	int r;

	pthread_rwlock_rdlock(&c->showing);
	r = get_explain_locked(arg, request, ret_json, e);
	pthread_rwlock_unlock(&c->showing);
	return r;
}

static const struct admin_route routes[] = {
	{ "GET", "/v1/status", get_status, NULL },
	{ "GET", "/v1/explain", get_explain, NULL },
	{ 0 },
};

/* ---- metrics --------------------------------------------------------------------------------- */

static void write_info(const struct cachefuse *c, uint32_t source, struct metrics *m,
	const struct metric_family *info)
{
	char volume[2 * VOLUME_ID_LEN + 1];

	hash_hex(slots_sources(c->slots)->all[source].volume.bytes, VOLUME_ID_LEN, volume);
	metrics_value(m, info,
		METRIC_LABELS({ "mountpoint", c->mountpoint },
			{ "source", c->sources.all[source].url },
			{ "path", c->sources.all[source].path }, { "volume", volume },
			{ "engine", mounted_engine(c->mounted)->name }),
		1);
}

static void write_metrics(void *arg, struct metrics *m)
{
	static const struct metric_family info = { "granary_mount_info", GAUGE, "constant",
		"What is mounted where, and how, as labels" };
	static const struct metric_family files = { "granary_mount_files", GAUGE, "files",
		"Files that the mount shows" };
	static const struct metric_family bytes = { "granary_mount_bytes", GAUGE, "bytes",
		"Bytes that the mount shows" };
	static const struct metric_family generation = { "granary_mount_generation", GAUGE,
		"number",
		"Generation of the source that the mount shows; of several the first one's" };
	static const struct metric_family sealed = { "granary_mount_sealed_extents", GAUGE,
		"extents", "Extents that the kernel reads from this node's files" };
	static const struct metric_family extents = { "granary_mount_extents", GAUGE, "extents",
		"Extents of the mount; those not sealed are served on demand" };
	struct cachefuse *c = arg;
	const struct slots_mount *mount = slots_mount(c->slots);
	struct seal_report *report = c->seal ? malloc(sizeof(*report)) : NULL;

	pthread_rwlock_rdlock(&c->showing);
	metrics_family(m, &info);
	for (uint32_t i = 0; i < c->sources.n; i++)
		write_info(c, i, m, &info);
	metrics_one(m, &files, mount->files);
	metrics_one(m, &bytes, mount->bytes);
	metrics_one(m, &generation, mount->generation);
	pthread_rwlock_unlock(&c->showing);
	if (report)
		seal_report(c->seal, report);
	metrics_one(m, &sealed, report ? report->shown.local : 0);
	metrics_one(m, &extents, mount->extents);
	peers_metrics(c->client, m);
	free(report);
	follow_metrics(c, m);
}

static void say_ready(void *arg, json_t *reasons)
{
	struct cachefuse *c = arg;

	if (atomic_load(&c->gone) || session_gone(mounted_session(c->mounted)))
		(void)json_array_append_new(
			reasons, json_string("the mount is gone")); /* told only */
}

int status_add_metrics(struct cachefuse *c)
{
	uint32_t n;
	const struct histogram_info *table = session_histogram_table(&n);
	int r = admin_server_add_histograms(
		c->server, table, n, session_histograms(mounted_session(c->mounted)));

	table = client_histogram_table(&n);
	if (r == 0)
		r = admin_server_add_histograms(c->server, table, n, client_histograms(c->client));
	if (r == 0)
		r = admin_server_add_metrics(c->server, write_metrics, c);
	admin_server_on_ready(c->server, say_ready, c);
	return r;
}

const struct admin_route *status_routes(void)
{
	return routes;
}
