/* The jobs: made, opened, cancelled, reported. See preload.h. */
#include "base/cleanup.h"
#include "base/log.h"
#include "master/dataset.h"
#include "master/events.h"
#include "master/preload_internal.h"
#include "master/source_internal.h"

#include <inttypes.h>
#include <string.h>

/* ---- the store ------------------------------------------------------------------------------- */

static int64_t now_s(void)
{
	return (int64_t)(clock_wall_ns() / CLOCK_SECOND);
}

struct preload *preload_find_locked(struct preloads *p, uint64_t id)
{
	list_for_each (node, &p->all) {
		struct preload *job = list_entry(node, struct preload, link);

		if (job->record.id == id)
			return job;
	}
	return NULL;
}

static int write_record(struct preloads *p, uint64_t id, const struct buf *value)
{
	struct store *store = p->config.store;
	struct store_change change = { 0 };
	char key[RECORD_KEY_BYTES];

	preload_record_key(id, key);
	change.key = key;
	change.value = value ? value->data : NULL;
	change.len = value ? value->len : 0;
	return store->ops->write(store, &change, 1);
}

/* The record as it would be in that state. */
static int encode_as_locked(
	struct preload *job, enum preload_state next, const char *reason, struct buf *out)
{
	struct preload_record as = job->record; /* borrows what it points to */

	as.state = next;
	if (next >= PRELOAD_RUNNING && !as.started)
		as.started = now_s();
	if (preload_ended(next))
		as.ended = now_s();
	if (reason)
		(void)snprintf(as.reason, sizeof(as.reason), "%s", reason); /* cut: for people */
	return preload_record_encode(&as, out);
}

static void take_state_locked(struct preload *job, enum preload_state next, const char *reason)
{
	struct preload_record *record = &job->record;

	record->state = next;
	if (next >= PRELOAD_RUNNING && !record->started)
		record->started = now_s();
	if (preload_ended(next))
		record->ended = now_s();
	if (reason)
		(void)snprintf(record->reason, sizeof(record->reason), "%s", reason); /* as above */
	job->stored_ns = clock_mono_ns();
}

static void note_state(
	struct preloads *p, uint64_t id, enum preload_state state, const char *reason)
{
	const struct preload *job;
	char on[EVENT_ON_BYTES] = "";

	if (!preload_ended(state))
		return;
	pthread_mutex_lock(&p->lock);
	job = preload_find_locked(p, id);
	if (job)
		(void)snprintf(on, sizeof(on), "%s", job->record.target); /* cut: for people */
	pthread_mutex_unlock(&p->lock);
	event_note(state == PRELOAD_COMPLETE    ? EVENT_INFO
		   : state == PRELOAD_CANCELLED ? EVENT_WARN
						: EVENT_ERROR,
		"preload", on, "preload %" PRIu64 ": %s%s%s", id, preload_state_name(state),
		reason && reason[0] ? ": " : "", reason ? reason : "");
}

int preload_set_state(struct preloads *p, uint64_t id, enum preload_state next, const char *reason)
{
	_cleanup_(buf_release) struct buf value = BUF_INIT(STORE_VALUE_BYTES);
	struct preload *job;
	int r;

	pthread_mutex_lock(&p->lock);
	job = preload_find_locked(p, id);
	if (!job)
		r = -ENOENT;
	else if (preload_ended(job->record.state))
		r = -EEXIST;
	else
		r = encode_as_locked(job, next, reason, &value);
	pthread_mutex_unlock(&p->lock);
	if (r == 0)
		r = write_record(p, id, &value);
	if (r < 0)
		return r;
	pthread_mutex_lock(&p->lock);
	take_state_locked(job, next, reason); /* what has not ended stays */
	pthread_mutex_unlock(&p->lock);
	log_info("preload", "id=%" PRIu64 " state=%s reason=\"%s\"", id, preload_state_name(next),
		reason ? reason : "");
	note_state(p, id, next, reason);
	return 0;
}

void preload_store_progress(struct preloads *p, uint64_t id)
{
	_cleanup_(buf_release) struct buf value = BUF_INIT(STORE_VALUE_BYTES);
	struct preload *job;
	int r = -ENOENT;

	pthread_mutex_lock(&p->lock);
	job = preload_find_locked(p, id);
	if (job) {
		r = encode_as_locked(job, job->record.state, NULL, &value);
		job->stored_ns = clock_mono_ns();
	}
	pthread_mutex_unlock(&p->lock);
	if (r == 0)
		r = write_record(p, id, &value);
	if (r < 0 && r != -ENOENT)
		LOG_LIMITED(LOG_WARN, "progress of a preload not stored",
			"id=%" PRIu64 " error=%s next=\"stored again later\"", id, err_name(r));
}

int preload_find_generation(struct preloads *p, const struct preload_record *record,
	struct record_generation *ret_generation)
{
	struct source_pin which = { 0 }; /* the newest */

	if (record->exact)
		which = (struct source_pin){ record->lineage, record->generation };
	return source_set_find(p->config.sources, &record->volume, &which, ret_generation);
}

static bool is_generation(const struct preload_record *record, const struct generation_id *id)
{
	return record->generation == id->generation &&
	       (record->lineage == 0 || record->lineage == id->lineage);
}

/* What it loads, unless that is given. */
static void take_generation(struct preload_record *record, const struct record_generation *g)
{
	if (!record->exact || record->lineage == 0)
		record->lineage = g->id.lineage;
	if (record->exact && !is_generation(record, &g->id))
		return; /* the worker counts */
	record->generation = g->id.generation;
	record->files = record->n_paths || record->subtree ? 0 : g->files;
	record->bytes = record->n_paths || record->subtree ? 0 : g->bytes;
}

/* ---- opening a source ------------------------------------------------------------------------ */

struct opening {
	struct pool_job pool;
	struct source_wait wait;
	struct preloads *preloads;
	uint64_t id;
	struct ufs_config config; /* owned */
};

static void take_source(struct opening *o, const struct source_answer *answer)
{
	struct preloads *p = o->preloads;
	const struct record_generation *g = &answer->generation;
	struct preload *job;
	int r;

	pthread_mutex_lock(&p->writing);
	pthread_mutex_lock(&p->lock);
	job = preload_find_locked(p, o->id);
	if (job && job->record.state == PRELOAD_LISTING) {
		job->record.volume = g->id.volume;
		take_generation(&job->record, g);
	}
	pthread_mutex_unlock(&p->lock);
	r = preload_set_state(p, o->id, PRELOAD_WAITING, "");
	pthread_mutex_unlock(&p->writing);
	if (r == 0)
		preload_wake(p);
	else if (r != -EEXIST) /* it was cancelled */
		log_error("preload not stored",
			"id=%" PRIu64 " error=%s next=\"it continues when the master restarts\"",
			o->id, err_name(r));
}

static void opened(
	struct source_wait *wait, int status, struct source_answer *answer, const struct err *e)
{
	struct opening *o = container_of(wait, struct opening, wait);
	struct preloads *p = o->preloads;
	bool next = status == -ECANCELED && source_set_is_stopping(p->config.sources);

	if (status == 0) {
		take_source(o, answer);
	} else if (!next) { /* the next master asks again */
		pthread_mutex_lock(&p->writing);
		(void)preload_set_state(p, o->id, PRELOAD_FAILED, /* else it was cancelled */
			e && e->text[0] ? e->text : err_str(status));
		pthread_mutex_unlock(&p->writing);
	}
	ufs_config_release(&o->config);
	free(o);
}

static void run_open(struct pool_job *job)
{
	struct opening *o = container_of(job, struct opening, pool);

	source_open(o->preloads->config.sources, &o->wait);
}

/* Not by URL: no name of a dataset has a colon. */
static bool is_of_dataset(const struct preload_record *record)
{
	return !strchr(record->target, ':');
}

/* Asks for the source of a job that is LISTING. */
static int open_source(struct preloads *p, const struct preload_record *record, bool of_dataset)
{
	struct opening *o = calloc(1, sizeof(*o));
	int r;

	if (!o)
		return -ENOMEM;
	o->preloads = p;
	o->id = record->id;
	o->pool.run = run_open;
	r = ufs_config_copy(&record->config, &o->config);
	o->wait = (struct source_wait){ .config = &o->config,
		.refresh = record->refresh,
		.of_dataset = of_dataset,
		.on_done = opened };
	list_init(&o->wait.link);
	if (r == 0)
		r = pool_submit(p->config.pool, &o->pool);
	if (r < 0) {
		ufs_config_release(&o->config);
		free(o);
	}
	return r;
}

/* ---- making and ending ----------------------------------------------------------------------- */

static void preload_free(struct preload *job)
{
	preload_record_release(&job->record);
	free(job);
}

/* The oldest that has ended makes room; NULL: none has to, or none can. */
static struct preload *take_oldest_locked(struct preloads *p)
{
	if (p->n < PRELOAD_JOBS_MAX)
		return NULL;
	list_for_each (node, &p->all) {
		struct preload *job = list_entry(node, struct preload, link);

		if (!preload_ended(job->record.state))
			continue;
		list_remove(node);
		p->n--;
		return job;
	}
	return NULL;
}

static bool same_text(const char *a, const char *b)
{
	return a == b || (a && b && strcmp(a, b) == 0);
}

static bool is_volume_of(const struct volume_id *volume, const struct ufs_config *config)
{
	_cleanup_(buf_release) struct buf text = BUF_INIT(4 * LIMIT_URL_BYTES);
	struct volume_id own;

	if (ufs_config_source(config, &text, NULL) < 0)
		return false;
	volume_id_of_source(buf_str(&text), &own);
	return volume_id_equal(volume, &own);
}

/* Are both of one source, and with the same access settings where both have some? A URL can come with another endpoint, and a
 * name can be that of another dataset. A job that names its volume, or was listed before the master started, has none. */
static bool is_one_source(const struct preload_record *a, const struct preload_record *b)
{
	const struct ufs_config *ca = &a->config;
	const struct ufs_config *cb = &b->config;

	if (!cb->prefix)
		return a->state != PRELOAD_LISTING && volume_id_equal(&a->volume, &b->volume);
	if (!ca->prefix)
		return is_volume_of(&a->volume, cb);
	return ca->scheme == cb->scheme && same_text(ca->bucket, cb->bucket) &&
	       same_text(ca->prefix, cb->prefix) && same_text(ca->scope, cb->scope) &&
	       source_same_way(ca, cb);
}

/* Do both load the same objects? */
static bool is_same(const struct preload_record *a, const struct preload_record *b)
{
	if (strcmp(a->target, b->target) != 0 || !is_one_source(a, b) || a->n_paths != b->n_paths ||
		a->exact != b->exact || !same_text(a->subtree, b->subtree) ||
		!same_text(a->at, b->at) ||
		(b->exact && (a->lineage != b->lineage || a->generation != b->generation)))
		return false;
	for (uint32_t i = 0; i < a->n_paths; i++)
		if (strcmp(a->paths[i], b->paths[i]) != 0)
			return false;
	return true;
}

/* Jobs that a request makes, or joins. */
struct creating {
	const struct preload_request *request;
	uint64_t ids[DATASET_MOUNTS_MAX];
	bool joined[DATASET_MOUNTS_MAX];
	uint32_t n;
};

/* Jobs under way. */
struct under_way {
	uint32_t all;
	uint32_t users; /* of ordinary users */
	uint32_t user;  /* of the one who asks, but for what the same request has begun */
};

static bool has_begun(const struct creating *c, uint64_t id)
{
	for (uint32_t i = 0; i < c->n; i++)
		if (c->ids[i] == id && !c->joined[i])
			return true;
	return false;
}

static void count(struct under_way *n, const struct creating *c, const struct preload_record *job)
{
	n->all++;
	n->users += job->user != 0;
	n->user += job->user && job->user == c->request->user && !has_begun(c, job->id);
}

/* A job under way for the same objects; *ret_n: how many are under way. */
static struct preload *find_same_locked(struct preloads *p, const struct creating *c,
	const struct preload_record *record, struct under_way *ret_n)
{
	struct preload *same = NULL;

	*ret_n = (struct under_way){ 0 };
	list_for_each (node, &p->all) {
		struct preload *job = list_entry(node, struct preload, link);

		if (preload_ended(job->record.state))
			continue;
		count(ret_n, c, &job->record);
		if (is_same(&job->record, record))
			same = job;
	}
	return same;
}

/* For people: failures are counted. */
static void name_workers(
	const struct preloads *p, const struct preload_record *record, json_t *json)
{
	json_t *parts = json_object_get(json, "workers");
	char name[PRELOAD_NAME_BYTES];

	for (uint32_t i = 0; p->config.name_of && i < json_array_size(parts); i++)
		if (p->config.name_of(p->config.owners_arg, record->parts[i].worker, name))
			(void)json_object_set_new(
				json_array_get(parts, i), "name", admin_json_string(name));
}

static json_t *json_of_locked(const struct preloads *p, const struct preload *job, bool failures)
{
	uint64_t now = clock_mono_ns();
	const struct preload_record *record = &job->record;
	uint64_t left = record->bytes - min(record->bytes, record->bytes_done);
	bool runs = record->state == PRELOAD_RUNNING;
	json_t *json = preload_record_json(record);

	if (!json)
		return NULL;
	if (!failures) {
		(void)json_object_del(json, "failures"); /* there may be none */
		(void)json_object_del(json, "workers");
	}
	name_workers(p, record, json);
	if (json_object_set_new(json, "rate",
		    json_integer(runs ? (json_int_t)preload_rate_get(&job->rate, now) : 0)) == 0 &&
		json_object_set_new(json, "eta_s",
			json_integer(runs ? preload_rate_eta(&job->rate, now, left) : -1)) == 0)
		return json;
	json_decref(json);
	return NULL;
}

/* Its place in the list and in the store: under `writing`. Takes `job`. */
static int add(struct preloads *p, struct preload *job, struct err *e)
{
	_cleanup_(buf_release) struct buf value = BUF_INIT(STORE_VALUE_BYTES);
	struct preload *oldest;
	int r;

	pthread_mutex_lock(&p->lock);
	job->record.id = p->next_id++;
	oldest = take_oldest_locked(p);
	pthread_mutex_unlock(&p->lock);
	job->record.created = now_s();
	r = preload_record_encode(&job->record, &value);
	if (r == 0)
		r = write_record(p, job->record.id, &value);
	if (r == 0 && oldest)
		(void)write_record(p, oldest->record.id, NULL); /* else it is there once more */
	if (oldest)
		preload_free(oldest);
	if (r < 0) {
		preload_free(job);
		return err_set(e, r, "the preload cannot be stored: %s", err_str(r));
	}
	pthread_mutex_lock(&p->lock);
	list_push_back(&p->all, &job->link);
	p->n++;
	pthread_mutex_unlock(&p->lock);
	return 0;
}

/* May there be one more? -EBUSY with a line. */
static int check_places(const struct under_way *n, uint32_t user, struct err *e)
{
	if (n->all >= PRELOAD_ACTIVE_MAX)
		return err_set(e, -EBUSY,
			"%u preloads are in progress, which is the maximum: wait for one, or "
			"cancel one",
			n->all);
	if (user && n->user >= PRELOAD_USER_MAX)
		return err_set(e, -EBUSY,
			"user %u has %u preloads in progress, which is the maximum: wait for one",
			user, n->user);
	if (user && n->users >= PRELOAD_USERS_MAX)
		return err_set(e, -EBUSY,
			"users have %u preloads in progress, which is the maximum for all users "
			"together: wait for one",
			n->users);
	return 0;
}

/* The job that does the same, or a new one in the place of `fresh`, which is taken. */
static int join_or_add(struct preloads *p, const struct creating *c, struct preload *fresh,
	uint64_t *ret_id, bool *ret_joined, struct err *e)
{
	bool rated = json_object_get(c->request->body, "bandwidth") != NULL;
	struct preload *same;
	bool changed = false;
	struct under_way n;
	int r = 0;

	pthread_mutex_lock(&p->writing);
	pthread_mutex_lock(&p->lock);
	same = find_same_locked(p, c, &fresh->record, &n);
	*ret_joined = same != NULL;
	*ret_id = same ? same->record.id : p->next_id;
	if (same && rated) {
		changed = same->record.bandwidth != fresh->record.bandwidth;
		same->record.bandwidth = fresh->record.bandwidth;
	}
	pthread_mutex_unlock(&p->lock);
	if (changed)
		preload_store_progress(p, *ret_id); /* the worker hears it with its next report */
	if (!same)
		r = check_places(&n, c->request->user, e);
	if (same || r < 0)
		preload_free(fresh);
	else
		r = add(p, fresh, e);
	pthread_mutex_unlock(&p->writing);
	return r;
}

/* What a new job waits for begins. */
static int start(struct preloads *p, uint64_t id, struct err *e)
{
	struct preload_record record = { 0 };
	struct preload *job;
	bool of_dataset = false;
	int r = 0;

	pthread_mutex_lock(&p->lock);
	job = preload_find_locked(p, id);
	if (job && job->record.state == PRELOAD_LISTING) {
		of_dataset = is_of_dataset(&job->record);
		record.id = id;
		record.refresh = job->record.refresh;
		record.state = PRELOAD_LISTING;
		r = ufs_config_copy(&job->record.config, &record.config);
	}
	pthread_mutex_unlock(&p->lock);
	if (r == 0 && record.state == PRELOAD_LISTING && record.id)
		r = open_source(p, &record, of_dataset);
	else if (r == 0)
		preload_wake(p);
	ufs_config_release(&record.config);
	if (r == 0)
		return 0;
	pthread_mutex_lock(&p->writing);
	(void)preload_set_state(p, id, PRELOAD_FAILED, err_str(r)); /* the caller gets it, too */
	pthread_mutex_unlock(&p->writing);
	return err_set(e, r, "the master cannot open the source now: %s", err_str(r));
}

/* A volume that is named must be one that the master has. */
static int check_volume(struct preloads *p, struct preload_record *record, struct err *e)
{
	struct record_generation g;

	if (record->state != PRELOAD_WAITING)
		return 0;
	if (source_set_generation(p->config.sources, &record->volume, 0, &g) < 0)
		return err_set(
			e, -ENOENT, "this master has no objects of the volume %s", record->target);
	record->exact = record->generation != 0 && !is_generation(record, &g.id);
	if (preload_find_generation(p, record, &g) < 0)
		return err_set(e, -ENOENT,
			"generation %" PRIu64
			" of %s was removed: use the newest with cachectl refresh",
			record->generation, record->target);
	take_generation(record, &g);
	return 0;
}

static int create_one(struct preloads *p, struct creating *c, struct err *e)
{
	const struct preload_request *request = c->request;
	struct preload *fresh = calloc(1, sizeof(*fresh));
	uint64_t *id = &c->ids[c->n];
	bool *joined = &c->joined[c->n];
	int r;

	if (!fresh)
		return err_set(e, -ENOMEM, "out of memory");
	list_init(&fresh->link);
	fresh->rate = PRELOAD_RATE_INIT;
	fresh->record.user = request->user;
	r = preload_apply(
		&fresh->record, request->body, c->n, p->config.datasets, request->rules, e);
	if (r == 0)
		r = check_volume(p, &fresh->record, e);
	if (r < 0) {
		preload_free(fresh);
		return r;
	}
	r = join_or_add(p, c, fresh, id, joined, e);
	return r == 0 && !*joined ? start(p, *id, e) : r;
}

/* What was begun for a request that is refused. */
static void take_back(struct preloads *p, const struct creating *c)
{
	pthread_mutex_lock(&p->writing);
	for (uint32_t i = 0; i < c->n; i++)
		if (!c->joined[i])
			(void)preload_set_state(p, c->ids[i],
				PRELOAD_CANCELLED, /* else it goes on */
				"another one of its dataset could not be begun");
	pthread_mutex_unlock(&p->writing);
}

static int jobs_json(
	struct preloads *p, const uint64_t *ids, uint32_t n, json_t **ret_json, struct err *e)
{
	json_t *jobs;
	int r = preloads_json(p, ids[0], ret_json, e);

	if (r < 0 || n == 1)
		return r;
	jobs = json_array();
	for (uint32_t i = 0; i < n && r == 0; i++)
		r = json_array_append_new(jobs, json_integer((json_int_t)ids[i]));
	if (r == 0)
		r = json_object_set(*ret_json, "jobs", jobs);
	json_decref(jobs);
	if (r == 0)
		return 0;
	json_decref(TAKE(*ret_json));
	return err_set(e, -ENOMEM, "out of memory");
}

int preloads_create(struct preloads *p, const struct preload_request *request, json_t **ret_json,
	bool *ret_joined, struct err *e)
{
	uint32_t n = preload_count(request->body, p->config.datasets);
	struct creating c = { .request = request };
	int r = 0;

	*ret_joined = true;
	while (c.n < n && r == 0) {
		r = create_one(p, &c, e);
		if (r < 0) {
			take_back(p, &c);
		} else {
			*ret_joined = *ret_joined && c.joined[c.n];
			c.n++;
		}
	}
	return r == 0 ? jobs_json(p, c.ids, n, ret_json, e) : r;
}

int preloads_cancel(struct preloads *p, uint64_t id, json_t **ret_json, struct err *e)
{
	int r;

	pthread_mutex_lock(&p->writing);
	r = preload_set_state(p, id, PRELOAD_CANCELLED, "cancelled: what is cached stays");
	pthread_mutex_unlock(&p->writing);
	if (r == -EEXIST)
		return err_set(e, r, "preload %" PRIu64 " has ended already", id);
	if (r == -ENOENT)
		return err_set(e, r, "no preload %" PRIu64 ": see `cachectl preload list`", id);
	if (r < 0)
		return err_set(e, r, "the preload's end cannot be stored: %s", err_str(r));
	return preloads_json(p, id, ret_json, e);
}

/* ---- telling --------------------------------------------------------------------------------- */

static json_t *all_json_locked(struct preloads *p)
{
	json_t *list = json_array();

	for (struct list *node = p->all.prev; node != &p->all; node = node->prev)
		if (json_array_append_new(list,
			    json_of_locked(p, list_entry(node, struct preload, link), false)) !=
			0) {
			json_decref(list);
			return NULL;
		}
	return json_pack("{s:o}", "preloads", list);
}

int preloads_json(struct preloads *p, uint64_t id, json_t **ret_json, struct err *e)
{
	struct preload *job = NULL;
	json_t *json = NULL;

	pthread_mutex_lock(&p->lock);
	if (id)
		job = preload_find_locked(p, id);
	if (job)
		json = json_of_locked(p, job, true);
	else if (!id)
		json = all_json_locked(p);
	pthread_mutex_unlock(&p->lock);
	if (id && !job)
		return err_set(
			e, -ENOENT, "no preload %" PRIu64 ": see `cachectl preload list`", id);
	*ret_json = json;
	return json ? 0 : err_set(e, -ENOMEM, "out of memory");
}

/* ---- the set --------------------------------------------------------------------------------- */

static int load_one(void *arg, const char *key, const void *value, size_t len)
{
	struct preloads *p = arg;
	struct preload *job = calloc(1, sizeof(*job));
	int r;

	if (!job)
		return -ENOMEM;
	list_init(&job->link);
	job->rate = PRELOAD_RATE_INIT;
	r = preload_record_decode(value, len, &job->record);
	if (r < 0) {
		log_error("invalid record", "key=%s cause=%s", key, err_name(r));
		free(job);
		return r;
	}
	list_push_back(&p->all, &job->link);
	p->n++;
	p->next_id = max(p->next_id, job->record.id + 1);
	return 0;
}

static int load(struct preloads *p, struct err *e)
{
	struct store *store = p->config.store;
	int r = store->ops->scan(store, "preload/", load_one, p);

	if (r < 0)
		return record_refuse(e, r, "a preload");
	list_for_each (node, &p->all) {
		const struct preload *job = list_entry(node, struct preload, link);

		if (job->record.state == PRELOAD_LISTING && r == 0)
			r = open_source(p, &job->record, is_of_dataset(&job->record));
	}
	return r < 0 ? err_set(e, r, "no memory for a preload") : 0;
}

int preloads_new(
	const struct preloads_config *config, struct preloads **ret_preloads, struct err *e)
{
	struct preloads *p = calloc(1, sizeof(*p));
	int r;

	if (!p)
		return err_set(e, -ENOMEM, "out of memory");
	p->config = *config;
	p->next_id = 1;
	list_init(&p->all);
	list_init(&p->parked);
	pthread_mutex_init(&p->writing, NULL);
	pthread_mutex_init(&p->lock, NULL);
	r = load(p, e);
	*ret_preloads = p; /* the caller's also when something was begun */
	return r;
}

void preloads_free(struct preloads *p)
{
	struct list *node;

	if (!p)
		return;
	while ((node = list_pop_front(&p->all)) != NULL)
		preload_free(list_entry(node, struct preload, link));
	pthread_mutex_destroy(&p->lock);
	pthread_mutex_destroy(&p->writing);
	free(p->owners);
	free(p);
}
