/* Events: counting what repeats. See kube_event.h. */
#include "kube/kube_event.h"
#include "admin/admin.h"
#include "base/clock.h"
#include "base/hash.h"
#include "base/pool.h"
#include "base/rate.h"
#include "kube/kube_internal.h"

#include <string.h>

#define QUEUE_MAX     128u
#define KNOWN_MAX     256u /* events that are remembered, to be counted */
#define SIMILAR_MAX   10u  /* that differ in their message alone, within SIMILAR_NS */
#define SIMILAR_NS    (600 * CLOCK_SECOND)
#define FORGOTTEN_NS  (3000 * CLOCK_SECOND) /* the server removes an event after an hour */
#define MESSAGE_BYTES 1024u
#define COMBINED      "(combined from similar events): "
#define BURST         25.0
#define BURST_PER_S   (1.0 / 300)

static const struct kube_kind event_kind = { .api_version = "v1", .plural = "events" };

/* One that was sent. */
struct known {
	uint64_t key;     /* of object, reason and message */
	uint64_t similar; /* of object and reason */
	uint64_t at_ns;   /* when it last happened; 0: the place is free */
	uint64_t first_s; /* wall clock */
	unsigned int count;
	struct rate rate;
	char name_space[KUBE_NAME_BYTES];
	char name[KUBE_NAME_BYTES];
};

struct kube_events {
	struct kube *kube;
	const char *component;
	const char *host;
	struct pool *pool; /* one job at a time: what follows needs no lock */
	_Atomic uint64_t dropped;
	uint64_t made; /* names of events differ by it */
	struct known known[KNOWN_MAX];
};

struct job {
	struct pool_job job;
	struct kube_events *events;
	bool warning;
	uint64_t wall_s;
	char *texts[7]; /* in the order of the enum */
};

enum { API_VERSION, KIND, NAME_SPACE, NAME, UID, REASON, MESSAGE };

static void job_free(struct job *job)
{
	for (size_t i = 0; i < ARRAY_SIZE(job->texts); i++)
		free(job->texts[i]);
	free(job);
}

/* ---- what was sent before -------------------------------------------------------------------- */

/* Of the texts before `n`, each with its NUL, so that they cannot run into each other. */
static uint64_t hash_texts(const struct job *job, size_t n)
{
	uint64_t hash = job->warning;

	for (size_t i = 0; i < n; i++)
		hash = hash_xxh3(job->texts[i], strlen(job->texts[i]) + 1, hash);
	return hash;
}

static struct known *find_known(struct kube_events *events, uint64_t key, uint64_t now)
{
	for (size_t i = 0; i < KNOWN_MAX; i++) {
		struct known *k = &events->known[i];

		if (k->at_ns && k->key == key && now - k->at_ns < FORGOTTEN_NS)
			return k;
	}
	return NULL;
}

static unsigned int count_similar(const struct kube_events *events, uint64_t similar, uint64_t now)
{
	unsigned int n = 0;

	for (size_t i = 0; i < KNOWN_MAX; i++)
		n += events->known[i].at_ns && events->known[i].similar == similar &&
		     now - events->known[i].at_ns < SIMILAR_NS;
	return n;
}

/* A free place, or that of the event that happened longest ago. */
static struct known *take_place(struct kube_events *events, uint64_t now)
{
	struct known *oldest = &events->known[0];

	for (size_t i = 1; i < KNOWN_MAX; i++)
		if (events->known[i].at_ns < oldest->at_ns)
			oldest = &events->known[i];
	*oldest = (struct known){ .rate = RATE_INIT(BURST_PER_S, BURST / BURST_PER_S) };
	oldest->rate.at_ns = now;
	return oldest;
}

/* ---- sending --------------------------------------------------------------------------------- */

static int create(
	struct kube_events *events, const struct job *job, struct known *known, const char *message)
{
	char time[CLOCK_TEXT_MAX];
	json_t *object;
	int r;

	clock_text(known->first_s, time);
	(void)snprintf(known->name_space, sizeof(known->name_space), "%s",
		*job->texts[NAME_SPACE] ? job->texts[NAME_SPACE]
					: "default"); /* fits, or is refused */
	(void)snprintf(known->name, sizeof(known->name), "%.200s.%llx%llx", job->texts[NAME],
		(unsigned long long)clock_wall_ns(), (unsigned long long)events->made++); /* fits */
	object = json_pack("{s:s, s:s, s:{s:s, s:s}, s:{s:s, s:s, s:s, s:s, s:s}, s:s, s:s, s:o, "
			   "s:{s:s, s:s}, s:s, s:s, s:s, s:s, s:i}",
		"apiVersion", "v1", "kind", "Event", "metadata", "name", known->name, "namespace",
		known->name_space, "involvedObject", "apiVersion", job->texts[API_VERSION], "kind",
		job->texts[KIND], "namespace", job->texts[NAME_SPACE], "name", job->texts[NAME],
		"uid", job->texts[UID], "type", job->warning ? "Warning" : "Normal", "reason",
		job->texts[REASON], "message", admin_json_string(message), "source", "component",
		events->component, "host", events->host, "firstTimestamp", time, "lastTimestamp",
		time, "reportingComponent", events->component, "reportingInstance", events->host,
		"count", (int)known->count);
	if (!object)
		return -ENOMEM;
	r = kube_create(events->kube, &event_kind, known->name_space, object,
		&(struct kube_write){ .manager = events->component }, NULL, NULL);
	json_decref(object);
	return r == -EEXIST ? 0 : r; /* names are unique: an earlier attempt arrived */
}

static int count(
	struct kube_events *events, const struct job *job, struct known *known, const char *message)
{
	char time[CLOCK_TEXT_MAX];
	json_t *patch = json_pack("{s:i, s:s, s:o}", "count", (int)known->count, "lastTimestamp",
		clock_text(job->wall_s, time), "message", admin_json_string(message));
	int r;

	if (!patch)
		return -ENOMEM;
	r = kube_patch(events->kube, &event_kind, known->name_space, known->name, NULL, patch,
		&(struct kube_write){ .manager = events->component }, NULL, NULL);
	json_decref(patch);
	return r;
}

static int send_job(struct kube_events *events, const struct job *job)
{
	uint64_t now = clock_mono_ns();
	uint64_t similar = hash_texts(job, MESSAGE);
	uint64_t key = hash_texts(job, MESSAGE + 1);
	struct known *known = find_known(events, key, now);
	char message[MESSAGE_BYTES + sizeof(COMBINED)];
	bool combine = !known && count_similar(events, similar, now) >= SIMILAR_MAX;
	int r = -ENOENT;

	(void)snprintf(message, sizeof(message), "%s%s", combine ? COMBINED : "",
		job->texts[MESSAGE]); /* fits */
	if (combine)
		known = find_known(events, key = similar, now);
	if (known && rate_wait_ns(&known->rate, now) > 0)
		return -EAGAIN;
	if (known) {
		known->count++;
		r = count(events, job, known, message);
	} else {
		known = take_place(events, now);
	}
	if (r == -ENOENT) { /* the server has removed it, or it is new */
		known->count = 1;
		known->first_s = job->wall_s;
		r = create(events, job, known, message);
	}
	rate_take(&known->rate, 1);
	known->key = key;
	known->similar = similar;
	known->at_ns =
		r < 0 && known->count == 1 ? 0 : now; /* what was refused is not counted on */
	return r;
}

static void run(struct pool_job *pool_job)
{
	struct job *job = list_entry(pool_job, struct job, job);

	if (send_job(job->events, job) < 0)
		atomic_fetch_add(&job->events->dropped, 1);
	job_free(job);
}

/* ---- face ------------------------------------------------------------------------------------ */

struct kube_events *kube_events_new(struct kube *kube, const char *component, const char *host)
{
	struct kube_events *events = calloc(1, sizeof(*events));

	if (!events)
		return NULL;
	events->kube = kube;
	events->component = component;
	events->host = host;
	events->pool = pool_new("kube-events", 1, QUEUE_MAX);
	if (!events->pool) {
		free(events);
		return NULL;
	}
	return events;
}

void kube_events_free(struct kube_events *events)
{
	if (!events)
		return;
	pool_free(events->pool);
	free(events);
}

uint64_t kube_events_dropped(const struct kube_events *events)
{
	return atomic_load(&events->dropped);
}

int kube_event_send(struct kube_events *events, const struct kube_event *event)
{
	const char *texts[] = { event->api_version, event->kind, event->name_space, event->name,
		event->uid, event->reason, event->message };
	struct job *job = calloc(1, sizeof(*job));
	int r;

	if (!job)
		return -ENOMEM;
	job->job.run = run;
	job->events = events;
	job->warning = event->warning;
	job->wall_s = clock_wall_ns() / CLOCK_SECOND;
	for (size_t i = 0; i < ARRAY_SIZE(texts); i++) {
		job->texts[i] = strndup(texts[i] ? texts[i] : "", MESSAGE_BYTES - 1);
		if (!job->texts[i]) {
			job_free(job);
			return -ENOMEM;
		}
	}
	r = pool_submit(events->pool, &job->job);
	if (r < 0)
		job_free(job);
	return r;
}
