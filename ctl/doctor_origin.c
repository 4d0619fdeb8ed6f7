/* doctor: the way to the bucket, the clock, the keys, and what they may do. */
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/units.h"
#include "ctl/doctor.h"
#include "ufs/reach.h"
#include "ufs/ufs.h"

#include <inttypes.h>
#include <limits.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define WAIT_NS      (8 * CLOCK_SECOND) /* a person waits; what is refused is asked again so long */
#define ATTEMPT_NS   (5 * CLOCK_SECOND)
#define SKEW_WARN_S  60 /* S3 refuses from 15 minutes on */
#define SKEW_FAIL_S  (15 * 60 - 30)
#define SLOW_NS      (200 * CLOCK_MS) /* to a first byte: far away */
#define SAMPLE_BYTES 4096u

/* ---- the way there --------------------------------------------------------------------------- */

static void check_clock(struct doctor *d, const struct ufs_reach *reach)
{
	int64_t now = (int64_t)(clock_wall_ns() / CLOCK_SECOND);
	long long off = (long long)(now - reach->date);
	const char *side = off > 0 ? "ahead of" : "behind";

	if (reach->date < 0)
		doctor_ok(d, "clock", "unknown: %s sends no time", reach->url);
	else if (llabs(off) >= SKEW_FAIL_S)
		doctor_fail(d, EXIT_ORIGIN, "clock",
			"%llds %s that of %s, which refuses requests from 900s on: set this "
			"machine's clock",
			llabs(off), side, reach->url);
	else if (llabs(off) >= SKEW_WARN_S)
		doctor_warn(d, "clock",
			"%llds %s that of %s: requests are refused from 900s on: set it by NTP",
			llabs(off), side, reach->url);
	else
		doctor_ok(d, "clock", "within %llds of that of %s", llabs(off), reach->url);
}

static void say_way(struct doctor *d, const struct ufs_reach *reach)
{
	char name[24];
	char connect[24];
	char tls[24];
	char first[24];
	char proxy[300];

	if (reach->proxy[0]) {
		doctor_redact_proxy(reach->proxy, proxy, sizeof(proxy));
		doctor_ok(d, "origin", "proxy: %s, by the environment", proxy);
	}
	doctor_ok(d, "origin", "%s: answers from %s: name %s, connection %s%s%s, first byte %s",
		reach->url, reach->address, units_duration(reach->name_ns, name, sizeof(name)),
		units_duration(reach->connect_ns, connect, sizeof(connect)),
		reach->tls_ns ? ", TLS " : "",
		reach->tls_ns ? units_duration(reach->tls_ns, tls, sizeof(tls)) : "",
		units_duration(reach->first_byte_ns, first, sizeof(first)));
	if (reach->first_byte_ns > SLOW_NS)
		doctor_warn(d, "origin",
			"latency: %s to a first byte: a cold epoch of small files takes long: put "
			"the cache near the bucket's region",
			units_duration(reach->first_byte_ns, first, sizeof(first)));
}

static int check_way(struct doctor *d, const struct ufs_config *config)
{
	struct ufs_reach reach;
	struct err e = ERR_INIT;
	int r = ufs_reach(config, ATTEMPT_NS, &reach, &e);

	if (r < 0) {
		doctor_fail(d, EXIT_ORIGIN, "origin", "%s", e.text);
		return r;
	}
	say_way(d, &reach);
	if (reach.key[0])
		doctor_ok(d, "origin", "keys: %s, found in %s", reach.key, reach.key_place);
	else if (config->anonymous)
		doctor_ok(d, "origin", "keys: none, as requested");
	check_clock(d, &reach);
	return 0;
}

/* ---- what the keys may ----------------------------------------------------------------------- */

/* One object that has bytes, of the first that are listed. */
struct sample {
	char key[LIMIT_KEY_BYTES + 1];
	uint32_t key_len;
	char tag[LIMIT_TAG_BYTES + 1];
	uint32_t tag_len;
	uint64_t size;
	bool found;
};

static int take_sample(void *arg, const struct ufs_object *objects, uint32_t n)
{
	struct sample *sample = arg;

	for (uint32_t i = 0; i < n; i++) {
		const struct ufs_object *o = &objects[i];

		if (o->size == 0 || o->key_len >= sizeof(sample->key) ||
			o->tag_len >= sizeof(sample->tag))
			continue;
		memcpy(sample->key, o->key, o->key_len);
		memcpy(sample->tag, o->tag, o->tag_len);
		sample->key_len = o->key_len;
		sample->tag_len = o->tag_len;
		sample->size = o->size;
		sample->found = true;
		return -ECANCELED; /* enough */
	}
	return 0;
}

/* A GET that is waited for. */
struct waited {
	struct ufs_get get;
	pthread_mutex_t lock;
	pthread_cond_t done;
	bool finished;
	int status;
	struct err e;
};

static void on_done(struct ufs_get *get, int status, const struct err *e)
{
	struct waited *w = get->arg;

	pthread_mutex_lock(&w->lock);
	w->status = status;
	if (e)
		w->e = *e;
	w->finished = true;
	pthread_cond_signal(&w->done);
	pthread_mutex_unlock(&w->lock);
}

static int get_sample(struct ufs *ufs, const struct sample *sample, struct err *e)
{
	char bytes[SAMPLE_BYTES];
	struct waited w = { .get = { .key = sample->key,
				    .key_len = sample->key_len,
				    .tag = sample->tag,
				    .tag_len = sample->tag_len,
				    .size = sample->size,
				    .length = min(sample->size, (uint64_t)SAMPLE_BYTES),
				    .buf = bytes,
				    .class = UFS_DEMAND,
				    .on_done = on_done } };
	int r;

	w.get.arg = &w;
	list_init(&w.get.link);
	pthread_mutex_init(&w.lock, NULL);
	pthread_cond_init(&w.done, NULL);
	r = ufs_get(ufs, &w.get);
	pthread_mutex_lock(&w.lock);
	while (r == 0 && !w.finished)
		pthread_cond_wait(&w.done, &w.lock); /* bounded by the origin's deadline */
	pthread_mutex_unlock(&w.lock);
	pthread_cond_destroy(&w.done);
	pthread_mutex_destroy(&w.lock);
	if (r == 0 && w.status < 0)
		r = err_set(e, w.status, "%s", w.e.text);
	return r == 0 ? 0 : err_default(e, r, "the object cannot be read");
}

static void check_read(struct doctor *d, struct ufs *ufs)
{
	struct sample sample = { 0 };
	struct err e = ERR_INIT;
	uint64_t begin;
	char took[24];
	int r = ufs_list(ufs, take_sample, &sample, &e);

	if (!sample.found && r < 0) {
		doctor_fail(d, EXIT_ORIGIN, "origin", "list: %s", e.text);
		return;
	}
	if (!sample.found) {
		doctor_warn(d, "origin",
			"read: not tried: no object under %s has data: check the prefix", d->url);
		return;
	}
	begin = clock_mono_ns();
	e = ERR_INIT;
	if (get_sample(ufs, &sample, &e) < 0)
		doctor_fail(d, EXIT_ORIGIN, "origin", "read: %s", e.text);
	else
		doctor_ok(d, "origin", "read: objects may be read: the first bytes of %.*s in %s",
			(int)sample.key_len, sample.key,
			units_duration(clock_mono_ns() - begin, took, sizeof(took)));
}

static void check_rights(struct doctor *d, const struct ufs_config *config)
{
	struct ufs_limits limits = UFS_LIMITS_DEFAULT;
	struct err e = ERR_INIT;
	struct ufs *ufs = NULL;
	char took[24];
	uint64_t begin;

	limits.request_timeout_ns = ATTEMPT_NS;
	limits.deadline_ns = WAIT_NS;
	if (ufs_open(config, &limits, &ufs, &e) < 0) {
		doctor_fail(d, EXIT_ORIGIN, "origin", "%s", e.text);
		return;
	}
	begin = clock_mono_ns();
	if (ufs_probe(ufs, &e) < 0) {
		doctor_fail(d, EXIT_ORIGIN, "origin", "list: %s", e.text);
	} else {
		doctor_ok(d, "origin", "list: %s may be listed: first answer in %s", d->url,
			units_duration(clock_mono_ns() - begin, took, sizeof(took)));
		check_read(d, ufs);
	}
	ufs_free(ufs);
}

void doctor_origin(struct doctor *d)
{
	_cleanup_(ufs_config_release) struct ufs_config config = { 0 };
	struct err e = ERR_INIT;
	const struct origin_options *reach = d->reach ? d->reach : &d->options->origin;

	if (origin_options_config(reach, d->url, &config, &e) < 0) {
		doctor_fail(d, EXIT_USAGE, "origin", "%s", e.text);
		return;
	}
	if (config.scheme == UFS_FILE || check_way(d, &config) == 0)
		check_rights(d, &config);
}
