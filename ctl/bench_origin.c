/* GETs of an origin, measured. See bench_origin.h. */
#include "ctl/bench_origin.h"
#include "base/cleanup.h"
#include "base/clock.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define OBJECTS     64u
#define SAMPLES     4096u
#define FIRST_BYTES 4096u
#define UNIT_BYTES  MiB /* as workers ask */
#define ATTEMPT_NS  (5 * CLOCK_SECOND)
#define DEADLINE_NS (10 * CLOCK_SECOND)

struct object {
	char *key; /* owned */
	char *tag;
	uint32_t key_len;
	uint32_t tag_len;
	uint64_t size;
};

struct objects {
	struct object all[OBJECTS];
	unsigned int n;
};

/* One connection's GETs, one after the other. */
struct lane {
	struct ufs_get get;
	struct flow *flow;
	char *buf;
	uint64_t began;
	bool busy;
};

struct flow {
	struct ufs *ufs;
	const struct objects *objects;
	uint64_t most; /* bytes of a GET */
	uint64_t next; /* range */
	struct lane lanes[BENCH_ORIGIN_CONNECTIONS];
	unsigned int n;
	pthread_mutex_t lock; /* of what follows */
	pthread_cond_t done;
	struct bench_result result;
	struct err failure; /* the first */
	uint64_t *samples;  /* SAMPLES */
};

/* ---- what is read ---------------------------------------------------------------------------- */

static void objects_release(struct objects *objects)
{
	for (unsigned int i = 0; i < objects->n; i++) {
		free(objects->all[i].key);
		free(objects->all[i].tag);
	}
	objects->n = 0;
}

static int take(void *arg, const struct ufs_object *found, uint32_t n)
{
	struct objects *objects = arg;

	for (uint32_t i = 0; i < n && objects->n < OBJECTS; i++) {
		const struct ufs_object *o = &found[i];
		struct object object = {
			.key_len = o->key_len, .tag_len = o->tag_len, .size = o->size
		};

		if (o->size == 0 || o->archived)
			continue;
		object.key = strndup(o->key, o->key_len);
		object.tag = strndup(o->tag, o->tag_len);
		if (!object.key || !object.tag) {
			free(object.key);
			free(object.tag);
			return -ENOMEM;
		}
		objects->all[objects->n++] = object;
	}
	return objects->n == OBJECTS ? -ECANCELED : 0; /* enough */
}

/* ---- GETs ------------------------------------------------------------------------------------ */

static int by_size(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a;
	uint64_t y = *(const uint64_t *)b;

	return x < y ? -1 : x > y;
}

static void on_done(struct ufs_get *get, int status, const struct err *e)
{
	struct lane *lane = get->arg;
	struct flow *flow = lane->flow;

	pthread_mutex_lock(&flow->lock);
	if (status == 0) {
		flow->samples[flow->result.operations++ % SAMPLES] = clock_mono_ns() - lane->began;
		flow->result.bytes += get->length;
	} else if (flow->result.errors++ == 0) {
		flow->result.error = status;
		(void)err_set(&flow->failure, status, "%s", e ? e->text : err_str(status));
	}
	lane->busy = false;
	pthread_cond_signal(&flow->done);
	pthread_mutex_unlock(&flow->lock);
}

/* The next range: object after object, piece after piece of the larger ones. */
static int send(struct flow *flow, struct lane *lane)
{
	const struct objects *objects = flow->objects;
	const struct object *o = &objects->all[flow->next % objects->n];
	uint64_t ranges = (o->size + flow->most - 1) / flow->most;
	uint64_t offset = flow->next / objects->n % ranges * flow->most;

	flow->next++;
	lane->get = (struct ufs_get){ .key = o->key,
		.key_len = o->key_len,
		.tag = o->tag,
		.tag_len = o->tag_len,
		.size = o->size,
		.offset = offset,
		.length = min(o->size - offset, flow->most),
		.buf = lane->buf,
		.class = UFS_DEMAND,
		.on_done = on_done,
		.arg = lane };
	list_init(&lane->get.link);
	lane->busy = true;
	lane->began = clock_mono_ns();
	return ufs_get(flow->ufs, &lane->get);
}

/* Under flow->lock. NULL: all are busy. */
static struct lane *idle_lane(struct flow *flow)
{
	for (unsigned int i = 0; i < flow->n; i++)
		if (!flow->lanes[i].busy)
			return &flow->lanes[i];
	return NULL;
}

static bool any_busy(const struct flow *flow)
{
	for (unsigned int i = 0; i < flow->n; i++)
		if (flow->lanes[i].busy)
			return true;
	return false;
}

static int flow_run(struct flow *flow, uint64_t ns)
{
	uint64_t began = clock_mono_ns();
	uint64_t n;
	int r = 0;

	pthread_mutex_lock(&flow->lock);
	while (r == 0 && flow->result.errors == 0 && clock_mono_ns() - began < ns) {
		struct lane *lane = idle_lane(flow);

		if (!lane) {
			pthread_cond_wait(&flow->done, &flow->lock); /* a GET has a deadline */
			continue;
		}
		pthread_mutex_unlock(&flow->lock);
		r = send(flow, lane);
		pthread_mutex_lock(&flow->lock);
		if (r < 0)
			lane->busy = false;
	}
	while (any_busy(flow))
		pthread_cond_wait(&flow->done, &flow->lock); /* likewise */
	pthread_mutex_unlock(&flow->lock);
	flow->result.ns = clock_mono_ns() - began;
	n = min(flow->result.operations, (uint64_t)SAMPLES);
	if (n > 0) {
		qsort(flow->samples, n, sizeof(*flow->samples), by_size);
		flow->result.p50_ns = flow->samples[n / 2];
		flow->result.p99_ns = flow->samples[min(n - 1, n * 99 / 100)];
	}
	return r < 0 ? r : flow->result.error;
}

static int measure(struct ufs *ufs, const struct objects *objects, uint64_t most,
	unsigned int connections, uint64_t ns, struct bench_result *ret, struct err *e)
{
	struct flow flow = { .ufs = ufs,
		.objects = objects,
		.most = most,
		.n = connections,
		.lock = PTHREAD_MUTEX_INITIALIZER,
		.done = PTHREAD_COND_INITIALIZER,
		.samples = calloc(SAMPLES, sizeof(uint64_t)) };
	int r = flow.samples ? 0 : -ENOMEM;

	for (unsigned int i = 0; i < connections; i++) {
		flow.lanes[i].flow = &flow;
		flow.lanes[i].buf = malloc(most);
		r = flow.lanes[i].buf ? r : -ENOMEM;
	}
	if (r == 0)
		r = flow_run(&flow, ns);
	for (unsigned int i = 0; i < connections; i++)
		free(flow.lanes[i].buf);
	free(flow.samples);
	if (r < 0)
		return err_set(e, r, "%s", flow.failure.text[0] ? flow.failure.text : err_str(r));
	*ret = flow.result;
	return 0;
}

int bench_origin(
	const struct ufs_config *config, uint64_t ns, struct bench_origin *ret, struct err *e)
{
	_cleanup_(objects_release) struct objects objects = { 0 };
	struct ufs_limits limits = UFS_LIMITS_DEFAULT;
	struct ufs *ufs = NULL;
	int r;

	limits.request_timeout_ns = ATTEMPT_NS;
	limits.deadline_ns = DEADLINE_NS;
	r = ufs_open(config, &limits, &ufs, e);
	if (r < 0)
		return r;
	r = ufs_list(ufs, take, &objects, e);
	if (objects.n > 0)
		r = 0; /* ended by us, or it has begun well */
	else if (r == 0)
		r = err_set(e, -ENOENT, "no object under the prefix has data");
	if (r == 0)
		r = measure(ufs, &objects, FIRST_BYTES, 1, ns, &ret->first, e);
	if (r == 0)
		r = measure(ufs, &objects, UNIT_BYTES, 1, ns, &ret->one, e);
	if (r == 0)
		r = measure(
			ufs, &objects, UNIT_BYTES, BENCH_ORIGIN_CONNECTIONS, ns, &ret->several, e);
	ufs_free(ufs);
	return r;
}
