/* Requests to the master: bytes in, bytes out. See service.h. */
#include "master/service.h"
#include "master/source_internal.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/hash.h"
#include "base/log.h"
#include "master/cuts.h"
#include "master/dashboard.h"
#include "master/rights.h"
#include "net/allowance.h"
#include "net/rights.h"
#include "proto/granary.pb-c.h"

#include <string.h>

#define BUSY_TEXT "the master accepts no request now: try again"

static const struct counter_info counter_table[] = {
#define ROW(symbol, name, kind, unit, help) \
	COUNTER_ROW(master_counters, symbol, name, kind, unit, help)
	MASTER_COUNTERS(ROW)
#undef ROW
};

const struct counter_info *master_counter_table(uint32_t *ret_n)
{
	*ret_n = ARRAY_SIZE(counter_table);
	return counter_table;
}

/* One request under way. */
struct job {
	struct pool_job pool;
	struct service *service;
	struct rpc_request *request;
	struct source_wait wait;
	struct ufs_config config;        /* owned; OPEN_SOURCE and REFRESH */
	struct volume_id volume;         /* GET_TABLE */
	char dataset[DATASET_UUID_TEXT]; /* that policy_now() asks for */
	bool named;
	const struct source_rules *rules; /* of a source that the caller names; else NULL */
	uint64_t began_ns;
};

static void job_free(struct job *job)
{
	ufs_config_release(&job->config);
	free(job);
}

static void refuse(struct service *service, struct rpc_request *request, const struct err *e)
{
	counter_add(&service->counters.failures, 1);
	rpc_reply_err(request, e->code, e);
}

/* ---- replies --------------------------------------------------------------------------------- */

/* Protobuf reads strings through char pointers that it does not change. */
static char *borrow(const char *s)
{
	return (char *)(uintptr_t)s;
}

static void policy_message(const struct tier_policy *policy, Granary__Policy *out)
{
	granary__policy__init(out);
	out->has_quota = out->has_priority = out->has_pin = out->has_evict = 1;
	out->quota = policy->quota;
	out->priority = policy->priority;
	out->pin = policy->pin;
	out->evict = policy->evict;
	out->has_origin_bandwidth = out->has_origin_requests = 1;
	out->origin_bandwidth = policy->origin_bandwidth;
	out->origin_requests = policy->origin_requests;
	out->has_copies = out->has_direct = 1;
	out->copies = policy->copies;
	out->direct = policy->direct;
}

/* `sealed`: with the newest generation's seal. */
static uint8_t *generation_message(
	const struct source_answer *answer, const struct cut *cut, bool sealed, size_t *ret_len)
{
	Granary__Generation m = GRANARY__GENERATION__INIT;
	Granary__Source source;
	Granary__Policy policy;
	struct generation_id id = answer->generation.id;
	struct generation_id newest = answer->newest;
	struct cut of_part = *cut; /* protobuf's pointers are not const */
	uint8_t *packed;

	source_message(answer->config, &source);
	m.source = &source;
	policy_message(&answer->policy, &policy);
	m.policy = &policy;
	m.has_volume = m.has_lineage = m.has_generation = m.has_hash = m.has_listed = 1;
	m.has_kept = m.has_added = m.has_changed = m.has_removed = 1;
	m.volume = (ProtobufCBinaryData){ VOLUME_ID_LEN, id.volume.bytes };
	m.hash = (ProtobufCBinaryData){ SHA256_BYTES, id.hash };
	m.lineage = id.lineage;
	m.generation = id.generation;
	m.kept = answer->stats.kept;
	m.added = answer->stats.added;
	m.changed = answer->stats.changed;
	m.removed = answer->stats.removed;
	m.listed = answer->listed;
	if (answer->newest.lineage == id.lineage && answer->newest.generation > id.generation) {
		m.has_newest_generation = m.has_newest_hash = 1;
		m.newest_generation = answer->newest.generation;
		m.newest_hash = (ProtobufCBinaryData){ SHA256_BYTES, newest.hash };
	}
	m.has_newest_seal = sealed;
	m.newest_seal = (ProtobufCBinaryData){ SHA256_BYTES, newest.seal };
	m.notice = borrow(answer->notice);
	if (cut->part) {
		m.has_prev_hash = m.has_cut_hash = m.has_part = 1;
		m.prev_hash = (ProtobufCBinaryData){ SHA256_BYTES, id.prev_hash };
		m.cut_hash = (ProtobufCBinaryData){ SHA256_BYTES, of_part.hash };
		m.part = cut->part;
	}
	packed = malloc(granary__generation__get_packed_size(&m));
	if (packed)
		*ret_len = granary__generation__pack(&m, packed);
	return packed;
}

static void answered(
	struct source_wait *wait, int status, struct source_answer *answer, const struct err *e)
{
	struct job *job = container_of(wait, struct job, wait);
	struct net_payload payload = NET_PAYLOAD_NONE;
	struct err own = ERR_INIT;
	struct frame reply = { 0 };
	uint8_t *packed;
	struct cut cut = { .fd = -1 };
	size_t len = 0;

	histogram_note(job->named ? &job->service->histograms.table_time
				  : &job->service->histograms.open_time,
		clock_mono_ns() - job->began_ns);
	/* The line may name what others have in the source. */
	if (status < 0 && wait->held_back_ns == 0 &&
		peer_has_part(rpc_conn_peer(job->request->conn))) {
		(void)err_set(&own, status,
			"the source cannot be opened: ask its administrator for the cause");
		e = &own;
	}
	/* Its source may be another by now than the one that the token was made for. */
	if (status == 0 &&
		!peer_may_read(rpc_conn_peer(job->request->conn), &answer->generation.id.volume)) {
		status = peer_sees_nothing(&own);
		e = &own;
	}
	if (status == 0) {
		status = source_answer_cut(
			job->service->sources, job->request->conn, answer, &cut, &own);
		e = &own;
	}
	if (status < 0) {
		refuse(job->service, job->request, e);
		job_free(job);
		return;
	}
	if (answer->listed)
		counter_add(&job->service->counters.listings, 1);
	packed = generation_message(
		answer, &cut, rights_contradict(rpc_conn_peer(job->request->conn)), &len);
	if (packed) {
		payload.parts[0].data = packed;
		payload.parts[0].len = len;
		payload.n = 1;
		payload.release = free;
		payload.arg = packed;
		payload.fd = TAKE_FD(answer->fd);
	}
	reply.volume = answer->generation.id.volume;
	reply.lineage = answer->generation.id.lineage;
	reply.generation = answer->generation.id.generation;
	rpc_reply(job->request, packed ? 0 : -ENOMEM, &reply, payload);
	job_free(job);
}

/* ---- requests -------------------------------------------------------------------------------- */

static void take_seen(struct job *job, uint64_t lineage, uint64_t generation,
	ProtobufCBinaryData hash, ProtobufCBinaryData seal)
{
	struct source_seen *seen = &job->wait.seen;

	if (hash.len != SHA256_BYTES)
		return; /* has seen nothing */
	if (!rights_contradict(rpc_conn_peer(job->request->conn)))
		return; /* it compares the answer with what it has seen by itself */
	seen->lineage = lineage;
	seen->generation = generation;
	memcpy(seen->hash, hash.data, SHA256_BYTES);
	if (seal.len == SHA256_BYTES)
		memcpy(seen->seal, seal.data, SHA256_BYTES);
}

static int take_source(const Granary__Source *m, struct ufs_config *ret_config, struct err *e)
{
	const struct ufs_config config = {
		.scheme = (enum ufs_scheme)m->scheme,
		.endpoint = m->endpoint,
		.region = m->region,
		.bucket = m->bucket,
		.prefix = m->prefix,
		.profile = m->profile,
		.credentials = m->credentials,
		.scope = m->scope,
		.ca_file = m->ca_file,
		.path_style = m->path_style,
		.anonymous = m->anonymous,
		.requester_pays = m->requester_pays,
		.versions = (enum ufs_versions)m->versions,
	};

	if (!m->has_scheme || m->scheme > UFS_OBS || m->versions > UFS_VERSIONS_OFF || !m->prefix ||
		(m->scheme != UFS_FILE && !m->bucket))
		return err_set(e, -EINVAL,
			"the request names no source: scheme, bucket and prefix are needed; use "
			"the same version on both sides");
	return ufs_config_copy(&config, ret_config);
}

static int take_policy(const Granary__Policy *m, struct policy_change *ret, struct err *e)
{
	if (!m)
		return 0;
	if (m->quota > INT64_MAX)
		return err_set(e, -EINVAL, "the request's quota is out of range: give less");
	if (m->has_evict && m->evict > TIER_EVICT_LRU)
		return err_set(e, -EINVAL,
			"unknown eviction policy in the request (%u); use the same version on both "
			"sides",
			m->evict);
	*ret = (struct policy_change){
		.to = { .quota = m->quota,
			.priority = m->priority,
			.pin = m->pin,
			.evict = (enum tier_evict)m->evict },
		.parts = (m->has_quota ? POLICY_QUOTA : 0u) |
			 (m->has_priority ? POLICY_PRIORITY : 0u) | (m->has_pin ? POLICY_PIN : 0u) |
			 (m->has_evict ? POLICY_EVICT : 0u),
	};
	return 0;
}

/* A listing takes minutes: what is wanted of the dataset's sources when it has ended. */
static void policy_now(struct source_wait *wait)
{
	const struct job *job = container_of(wait, struct job, wait);
	_cleanup_(dataset_release) struct dataset d = { 0 };

	if (dataset_set_find_uuid(job->service->datasets, job->dataset, &d, NULL) == 0)
		wait->policy = d.policy;
}

/* Which of the dataset's sources is meant: without a word the first. */
static const struct dataset_mount *find_source(
	const struct dataset *d, ProtobufCBinaryData volume, struct err *e)
{
	if (volume.len == 0)
		return &d->mounts[0];
	for (uint32_t i = 0; i < d->n_mounts && volume.len == VOLUME_ID_LEN; i++)
		if (memcmp(d->mounts[i].volume.bytes, volume.data, VOLUME_ID_LEN) == 0)
			return &d->mounts[i];
	(void)err_set(e, -ENXIO, "dataset %s does not have that source any more: mount it again",
		d->name);
	return NULL;
}

/* A mount goes on though its dataset was deleted: with another daemon, too. */
static int go_on_without(struct job *job, ProtobufCBinaryData volume)
{
	if (job->wait.refresh || volume.len != VOLUME_ID_LEN)
		return -ENXIO;
	job->named = true;
	memcpy(job->volume.bytes, volume.data, VOLUME_ID_LEN);
	return 0;
}

/* The requested generation of a source; without a request what the dataset was rolled back to, or the newest. */
static int take_generation(struct job *job, const Granary__OpenSource *m, const struct dataset *d,
	const struct volume_id *volume, struct err *e)
{
	const struct dataset_generation *shown = dataset_shown(d, volume);
	struct dataset_generation found;
	int r;

	if (m->generation) {
		if (dataset_sources_of(d) != 1)
			return err_set(e, -EINVAL,
				"dataset %s has %u sources, each with its own generations: a "
				"generation is of the only source",
				d->name, dataset_sources_of(d));
		r = dataset_find_generation(
			job->service->datasets, d, volume, m->generation, &found, e);
		if (r < 0)
			return r;
		shown = &found;
	} else if (!job->wait.refresh && !m->shown) {
		return 0;
	}
	if (shown) {
		job->wait.refresh = false;
		job->wait.lineage = shown->lineage;
		job->wait.generation = shown->generation;
	}
	return 0;
}

/* A source of the dataset; to be shown is what it was rolled back to. Who goes on with a mount (no
 * refresh, nor `shown`) has what it has. */
static int take_dataset(struct job *job, const Granary__OpenSource *m, struct err *e)
{
	const ProtobufCBinaryData id = m->dataset;
	const ProtobufCBinaryData volume = m->volume;
	_cleanup_(dataset_release) struct dataset d = { 0 };
	const struct dataset_mount *mount;
	char uuid[DATASET_UUID_TEXT];
	int r;

	if (id.len != DATASET_UUID_BYTES)
		return err_set(e, -EBADMSG,
			"the request names no dataset; use the same version on both sides");
	hash_hex(id.data, id.len, uuid);
	r = job->service->datasets ? dataset_set_find_uuid(job->service->datasets, uuid, &d, e)
				   : -ENXIO;
	if (r < 0)
		(void)err_set(e, -ENXIO,
			"the dataset does not exist any more: see `cachectl dataset list`");
	mount = r == 0 ? find_source(&d, volume, e) : NULL;
	if (!mount)
		return go_on_without(job, volume);
	if (!peer_may_read(rpc_conn_peer(job->request->conn), &mount->volume))
		return peer_sees_nothing(e);
	r = ufs_config_copy(&mount->config, &job->config);
	if (r < 0)
		return err_set(e, r, "out of memory");
	memcpy(job->dataset, uuid, sizeof(uuid));
	job->wait.of_dataset = true;
	if (job->wait.refresh) /* else it goes on with what is set already */
		job->wait.policy_now = policy_now;
	return take_generation(job, m, &d, &mount->volume, e);
}

static int take_open(struct job *job, struct err *e)
{
	Granary__OpenSource *m = granary__open_source__unpack(
		NULL, job->request->frame.payload, job->request->payload);
	int r;

	if (!m || (!m->source && !m->has_dataset)) {
		if (m)
			granary__open_source__free_unpacked(m, NULL);
		return err_set(e, -EBADMSG,
			"the request cannot be decoded; use the same version on both sides");
	}
	job->wait.refresh = m->refresh || job->request->frame.op == FRAME_REFRESH;
	if (m->has_dataset) {
		r = take_dataset(job, m, e);
	} else {
		r = take_source(m->source, &job->config, e);
		job->rules =
			source_rules_of(&job->service->rules, rpc_conn_peer(job->request->conn));
		if (r == 0)
			r = take_policy(m->policy, &job->wait.policy, e);
	}
	take_seen(job, m->seen_lineage, m->seen_generation, m->seen_hash, m->seen_seal);
	granary__open_source__free_unpacked(m, NULL);
	return r;
}

static int take_table(struct job *job, struct err *e)
{
	Granary__GetTable *m = granary__get_table__unpack(
		NULL, job->request->frame.payload, job->request->payload);
	int r = 0;

	if (!m)
		return err_set(e, -EBADMSG,
			"the request cannot be decoded; use the same version on both sides");
	job->named = true;
	job->wait.lineage = m->lineage;
	job->wait.generation = m->generation;
	take_seen(job, m->seen_lineage, m->seen_generation, m->seen_hash, m->seen_seal);
	if (m->volume.len == VOLUME_ID_LEN)
		memcpy(job->volume.bytes, m->volume.data, VOLUME_ID_LEN);
	else
		r = err_set(e, -EINVAL,
			"the request names no volume; use the same version on both sides");
	granary__get_table__free_unpacked(m, NULL);
	return r;
}

static void run(struct pool_job *pool)
{
	struct job *job = container_of(pool, struct job, pool);

	if (job->named)
		source_table(job->service->sources, &job->volume, &job->wait);
	else
		source_open(job->service->sources, &job->wait);
}

/* What is known is answered though all threads of the pool wait for origins: a reader may hang on
 * it. */
static void run_at_once(struct pool_job *pool)
{
	struct job *job = container_of(pool, struct job, pool);
	struct service *service = job->service;
	struct err e = ERR_INIT;
	int r = job->named ? 0 : source_rules_check(job->rules, &job->config, NULL, &e);

	if (r < 0) {
		refuse(service, job->request, &e);
		job_free(job);
		return;
	}
	if (job->named ? source_table_at_once(service->sources, &job->volume, &job->wait)
		       : source_open_at_once(service->sources, &job->wait))
		return;
	job->pool.run = run;
	r = pool_submit(service->pool, &job->pool);
	if (r == 0)
		return;
	(void)err_default(&e, r, BUSY_TEXT);
	refuse(service, job->request, &e);
	job_free(job);
}

/* Which source a directory is only its file system can say, and that may hang, as may what a check looks up: not in
 * the way of what waits for nothing. */
static int submit(struct service *service, struct job *job)
{
	bool asks = job->rules || (!job->named && job->config.scheme == UFS_FILE);

	return pool_submit(asks ? service->dirs : service->small, &job->pool);
}

static void start_job(struct service *service, struct rpc_request *request)
{
	bool named = request->frame.op == FRAME_GET_TABLE;
	struct job *job = calloc(1, sizeof(*job));
	struct err e = ERR_INIT;
	int r = -ENOMEM;

	counter_add(named ? &service->counters.tables : &service->counters.opens, 1);
	if (job) {
		job->service = service;
		job->request = request;
		job->began_ns = clock_mono_ns();
		job->pool.run = run_at_once;
		job->wait.on_done = answered;
		job->wait.allowance = rpc_conn_allowance(request->conn);
		r = named ? take_table(job, &e) : take_open(job, &e);
		job->wait.config = job->named ? NULL : &job->config;
	}
	if (r == 0)
		r = submit(service, job);
	if (r < 0) {
		if (job)
			job_free(job);
		(void)err_default(&e, r, BUSY_TEXT);
		refuse(service, request, &e);
	}
}

/* ---- holds and retention settings ------------------------------------------------------------ */

/* A request that is answered at once, but may write to the store. */
struct small_job {
	struct pool_job pool;
	struct service *service;
	struct rpc_request *request;
};

static int take_hold(const struct rpc_request *request, struct source_hold *ret, struct err *e)
{
	Granary__Hold *m = granary__hold__unpack(NULL, request->frame.payload, request->payload);
	bool trusted = peer_is_trusted(rpc_conn_peer(request->conn));
	uint64_t now_ms = clock_wall_ns() / CLOCK_MS;
	int r = 0;

	if (!m || m->volume.len != VOLUME_ID_LEN || m->mount.len != HOLD_MOUNT_BYTES) {
		r = err_set(e, -EBADMSG,
			"the request cannot be decoded; use the same version on both sides");
	} else {
		*ret = (struct source_hold){
			.lineage = m->lineage,
			.generation = m->generation,
			.local_bytes = m->local_bytes,
			/* How often a source is listed is not for a token to say: its dataset says that. */
			.follow_s = trusted ? min(m->follow_s, FOLLOW_MOST_S) : 0,
			/* A time in the future would cause listings until then. */
			.since_ms = trusted && m->since_ms <= now_ms ? (int64_t)m->since_ms : 0,
			.end = m->end,
			.allowance = rpc_conn_allowance(request->conn),
		};
		memcpy(ret->volume.bytes, m->volume.data, VOLUME_ID_LEN);
		memcpy(ret->mount, m->mount.data, HOLD_MOUNT_BYTES);
	}
	if (m)
		granary__hold__free_unpacked(m, NULL);
	return r;
}

static void answer_hold(struct service *service, struct rpc_request *request)
{
	struct source_hold hold;
	struct err e = ERR_INIT;
	int r = take_hold(request, &hold, &e);

	counter_add(&service->counters.holds, 1);
	if (r == 0)
		r = source_set_hold(service->sources, &hold, &e);
	if ((r == 0 || r == -ESTALE) && hold_news_answer(service, request, &hold))
		return;
	if (r < 0)
		refuse(service, request, &e);
	else
		rpc_reply(request, 0, NULL, NET_PAYLOAD_NONE);
}

/* What comes with the first page: what the worker has. */
static void take_report(struct service *service, const struct rpc_request *request)
{
	Granary__WorkerReport *m;
	uint16_t number;

	if (request->frame.payload == 0)
		return; /* a later page, or an older worker */
	m = granary__worker_report__unpack(NULL, request->frame.payload, request->payload);
	if (!m)
		return;                                       /* for display only */
	if (membership_is_gone(service->membership, m->id)) { /* and goes on all the same */
		granary__worker_report__free_unpacked(m, NULL);
		return;
	}
	number = membership_number_of(service->membership, m->id);
	for (size_t i = 0; i < m->n_volumes; i++) {
		const Granary__VolumeReport *v = m->volumes[i];
		const struct source_report report = {
			.cached_bytes = v->cached_bytes - min(v->copy_bytes, v->cached_bytes),
			.copy_bytes = v->copy_bytes,
			.whole = v->whole,
			.number = number,
			.origin_bytes = v->origin_bytes,
			.hit_bytes = v->hit_bytes,
			.miss_bytes = v->miss_bytes,
			.evicted = v->evicted,
			.evicted_bytes = v->evicted_bytes,
			.evicted_paths = v->evicted_paths,
			.evicted_paths_bytes = v->evicted_paths_bytes
		};
		struct volume_id volume;

		if (v->volume.len != VOLUME_ID_LEN)
			continue;
		memcpy(volume.bytes, v->volume.data, VOLUME_ID_LEN);
		source_set_report(service->sources, m->id, &volume, &report);
	}
	if (m->has_capacity)
		source_set_capacity(service->sources, m->id, m->capacity);
	dashboard_report(service->dashboard, m);
	granary__worker_report__free_unpacked(m, NULL);
}

static void answer_retention(struct service *service, struct rpc_request *request)
{
	struct net_payload payload = NET_PAYLOAD_NONE;
	struct frame reply = { 0 };
	size_t len = 0;
	uint8_t *packed;

	take_report(service, request);
	dataset_age(service->datasets);
	packed = source_set_retention(service->sources, request->frame.offset, &reply.offset, &len);
	counter_add(&service->counters.terms, 1);
	if (packed) {
		payload.parts[0].data = packed;
		payload.parts[0].len = len;
		payload.n = 1;
		payload.release = free;
		payload.arg = packed;
	}
	rpc_reply(request, packed ? 0 : -ENOMEM, &reply, payload);
}

static void run_small(struct pool_job *pool)
{
	struct small_job *job = container_of(pool, struct small_job, pool);

	if (job->request->frame.op == FRAME_PRELOAD)
		preloads_answer(job->service->preloads, job->request);
	else if (job->request->frame.op == FRAME_JOIN)
		membership_join(job->service->membership, job->request);
	else if (job->request->frame.op == FRAME_HOLD)
		answer_hold(job->service, job->request);
	else
		answer_retention(job->service, job->request);
	free(job);
}

static void start_small(struct service *service, struct rpc_request *request)
{
	struct small_job *job = calloc(1, sizeof(*job));
	struct err e = ERR_INIT;
	int r = -ENOMEM;

	if (job) {
		*job = (struct small_job){
			.pool = { .run = run_small }, .service = service, .request = request
		};
		r = pool_submit(request->frame.op == FRAME_JOIN ? service->joins : service->small,
			&job->pool);
	}
	if (r < 0) {
		free(job);
		(void)err_default(&e, r, BUSY_TEXT);
		refuse(service, request, &e);
	}
}

static void on_request(struct rpc_request *request, void *arg)
{
	struct service *service = arg;
	struct err e = ERR_INIT;

	if (!rights_admit(request))
		return;
	switch (request->frame.op) {
	case FRAME_OPEN_SOURCE:
	case FRAME_REFRESH:
	case FRAME_GET_TABLE:
		start_job(service, request);
		return;
	case FRAME_HOLD:
	case FRAME_GET_RETENTION:
	case FRAME_PRELOAD:
	case FRAME_JOIN:
		start_small(service, request);
		return;
	case FRAME_BEAT:
		membership_beat(service->membership, request);
		return;
	case FRAME_GET_SLOTS:
		membership_slots(service->membership, request);
		return;
	case FRAME_TABLE:
		table_pieces_answer(service->pieces, request);
		return;
	case FRAME_ADMIN:
		remote_admin_answer(service->remote, request);
		return;
	default:
		(void)err_set(&e, -EOPNOTSUPP,
			"the master does not serve operation %u; use the same version on both "
			"sides",
			request->frame.op);
		refuse(service, request, &e);
	}
}

/* The others end soon by themselves. */
static void on_cancel(struct rpc_request *request, void *arg)
{
	const struct service *service = arg;

	if (request->frame.op == FRAME_PRELOAD)
		preloads_cancelled(service->preloads, request);
	else if (request->frame.op == FRAME_GET_SLOTS)
		membership_cancelled(service->membership, request);
	else if (request->frame.op == FRAME_TABLE)
		table_pieces_cancelled(service->pieces, request);
}

static void on_close(const struct rpc_conn *conn, void *arg)
{
	const struct service *service = arg;

	if (service->remote)
		remote_admin_closed(service->remote, conn);
}

static struct hello_master identify(void *arg)
{
	return ((const struct service *)arg)->self;
}

const struct rpc_server_ops service_ops = {
	.identify = identify,
	.on_request = on_request,
	.on_cancel = on_cancel,
	.on_close = on_close,
};
