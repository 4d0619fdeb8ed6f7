/* What workers say of their parts of a preload, and what that comes to. See preload.h. */
#include "base/clock.h"
#include "master/preload_internal.h"
#include "proto/granary.pb-c.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define OWNERS_NS (200 * CLOCK_MS) /* between two looks at who owns slots */

static int by_id(const void *a, const void *b)
{
	const uint64_t *x = a;
	const uint64_t *y = b;

	return *x < *y ? -1 : *x > *y;
}

void preload_look_at_owners(struct preloads *p)
{
	uint64_t now = clock_mono_ns();
	uint64_t *owners;
	uint64_t epoch;
	uint64_t sequence;
	uint32_t n;
	bool fresh;

	if (!p->config.owners)
		return;
	pthread_mutex_lock(&p->lock);
	fresh = p->owners_ns && now - p->owners_ns < OWNERS_NS;
	if (!fresh)
		p->owners_ns = now;
	pthread_mutex_unlock(&p->lock);
	owners = fresh ? NULL : p->config.owners(p->config.owners_arg, &n, &epoch, &sequence);
	if (!owners)
		return;
	qsort(owners, n, sizeof(*owners), by_id);
	pthread_mutex_lock(&p->lock);
	free(p->owners);
	p->owners = owners;
	p->n_owners = n;
	p->epoch = epoch;
	p->sequence = sequence;
	pthread_mutex_unlock(&p->lock);
}

/* Each of a thousand workers' reports asks it of a thousand parts. */
static bool is_owner(const struct preloads *p, uint64_t worker)
{
	return p->n_owners == 0 || bsearch(&worker, p->owners, p->n_owners, sizeof(worker), by_id);
}

/* By the table in force, or, when no worker is known to own anything, by any. */
static bool has_ended(const struct preloads *p, const struct preload_part *part)
{
	return part->heard && preload_ended(part->state) &&
	       (p->n_owners == 0 || (part->epoch == p->epoch && part->sequence == p->sequence));
}

uint64_t preload_share_locked(const struct preloads *p, const struct preload *job)
{
	const struct preload_record *record = &job->record;
	uint32_t n = p->n_owners;

	if (!record->bandwidth)
		return 0;
	for (uint32_t i = 0; i < record->n_parts; i++)
		if (n > 0 && is_owner(p, record->parts[i].worker) &&
			has_ended(p, &record->parts[i]))
			n--;
	return n > 1 ? max(record->bandwidth / n, (uint64_t)1) : record->bandwidth;
}

/* ---- reports --------------------------------------------------------------------------------- */

static json_t *failure_json(const Granary__PreloadFailure *m)
{
	json_t *key = json_stringn((const char *)m->key.data, m->key.len);
	json_t *reason = json_string(m->reason ? m->reason : "");

	if (!key) /* not UTF-8 */
		key = json_string("?");
	if (!reason)
		reason = json_string("?");
	return json_pack("{s:o, s:o}", "key", key, "reason", reason);
}

/* Those that are new; without memory they are taken from the next report. */
static void take_failures(struct preload_part *part, const Granary__PreloadReport *m)
{
	if (m->n_failures == json_array_size(part->failures))
		return;
	json_decref(part->failures);
	part->failures = json_array();
	for (size_t i = 0; i < m->n_failures && i < PRELOAD_FAILURES_MAX; i++)
		(void)json_array_append_new(
			part->failures, failure_json(m->failures[i])); /* as above */
}

/* NULL without memory, or room for another one. */
static struct preload_part *part_of(struct preload_record *record, uint64_t worker)
{
	struct preload_part *grown;

	for (uint32_t i = 0; i < record->n_parts; i++)
		if (record->parts[i].worker == worker)
			return &record->parts[i];
	if (record->n_parts == PRELOAD_PARTS_MAX)
		return NULL;
	grown = reallocarray(record->parts, record->n_parts + 1, sizeof(*grown));
	if (!grown)
		return NULL;
	record->parts = grown;
	grown += record->n_parts++;
	*grown = (struct preload_part){ .worker = worker };
	return grown;
}

/* The parts together: of those that own slots, as the others' slots are theirs by now. */
static void add_up(const struct preloads *p, struct preload *job)
{
	struct preload_record *record = &job->record;
	json_t *failures = json_array();
	uint64_t left;

	record->files_done = record->files_failed = record->bytes_done = 0;
	record->bytes_fetched = 0;
	for (uint32_t i = 0; i < record->n_parts; i++) {
		const struct preload_part *part = &record->parts[i];

		record->bytes_fetched += part->fetched_before + part->run_fetched;
		if (!is_owner(p, part->worker))
			continue;
		record->files_done += part->files_done;
		record->files_failed += part->files_failed;
		record->bytes_done += part->bytes_done;
		for (size_t k = 0; k < json_array_size(part->failures); k++)
			if (json_array_size(failures) < PRELOAD_FAILURES_MAX)
				(void)json_array_append(/* else fewer are shown */
					failures, json_array_get(part->failures, k));
	}
	/* An object that lies in several chunks is counted where it begins, and fails wherever it does. */
	left = record->files > record->files_failed ? record->files - record->files_failed : 0;
	record->files_done = min(record->files_done, left);
	json_decref(record->failures);
	record->failures = failures;
}

/* A worker may still load a generation of an older lineage, whose number and size mean nothing in the current one. */
static bool is_current(
	struct preloads *p, const struct preload_record *record, const Granary__PreloadReport *m)
{
	struct record_generation g;

	if (record->exact || !m->generation)
		return true;
	return preload_find_generation(p, record, &g) == 0 && g.id.lineage == m->lineage;
}

void preload_take_part_locked(
	struct preloads *p, struct preload *job, uint64_t worker, const Granary__PreloadReport *m)
{
	struct preload_record *record = &job->record;
	struct preload_part *part = part_of(record, worker);
	bool current = is_current(p, record, m);

	if (!part)
		return;          /* with the next report */
	if (m->run != part->run) /* another start of the worker */
		part->fetched_before += part->run_fetched;
	part->run = m->run;
	part->run_fetched = m->bytes_fetched;
	part->heard = true;
	part->state = preload_ended((enum preload_state)m->state) && m->state < PRELOAD_CANCELLED
			      ? (enum preload_state)m->state
			      : PRELOAD_RUNNING;
	part->epoch = m->epoch;
	part->sequence = m->sequence;
	part->files_done = m->files_done;
	part->files_failed = m->files_failed;
	part->bytes_done = m->bytes_done;
	part->bytes_copied = m->bytes_copied;
	(void)snprintf(
		part->reason, sizeof(part->reason), "%s", m->reason ? m->reason : ""); /* cut */
	take_failures(part, m);
	if (current && m->generation && !record->exact &&
		(m->lineage != record->lineage || m->generation >= record->generation)) {
		record->lineage = m->lineage; /* its source is open */
		record->generation = m->generation;
	}
	if (current && m->files) {
		record->files = m->files;
		record->bytes = m->bytes;
	}
	add_up(p, job);
	preload_rate_add(&job->rate, clock_mono_ns(), record->bytes_fetched);
	if (part->state == PRELOAD_RUNNING)
		(void)snprintf(record->reason, sizeof(record->reason), "%s",
			m->reason ? m->reason : ""); /* cut: for people */
}

/* ---- outcomes -------------------------------------------------------------------------------- */

static const struct preload_part *find_part(const struct preload_record *record, uint64_t worker)
{
	for (uint32_t i = 0; i < record->n_parts; i++)
		if (record->parts[i].worker == worker)
			return &record->parts[i];
	return NULL;
}

static bool all_ended(const struct preloads *p, const struct preload_record *record)
{
	const struct preload_part *part;

	for (uint32_t i = 0; i < p->n_owners; i++) {
		part = find_part(record, p->owners[i]);
		if (!part || !has_ended(p, part))
			return false;
	}
	if (p->n_owners > 0)
		return true;
	for (uint32_t i = 0; i < record->n_parts; i++)
		if (has_ended(p, &record->parts[i]))
			return true;
	return false;
}

/* Who has begun has ended, and somebody is missing: why nothing happens. */
static void note_waiting(const struct preloads *p, struct preload_record *record)
{
	uint32_t missing = 0;

	for (uint32_t i = 0; i < p->n_owners; i++) {
		const struct preload_part *part = find_part(record, p->owners[i]);

		if (part && part->heard && !has_ended(p, part))
			return;
		missing += !part || !part->heard;
	}
	if (missing > 0)
		(void)snprintf(record->reason, sizeof(record->reason),
			"waiting for %u worker%s that own%s a part of it: cachectl worker list",
			missing, missing > 1 ? "s" : "", missing > 1 ? "" : "s"); /* fits */
}

/* The line of the first part that ended so; of several that failed, how many objects did. */
static void tell(const struct preloads *p, const struct preload_record *record,
	enum preload_state state, char reason[PRELOAD_REASON_BYTES])
{
	uint32_t n = 0;

	reason[0] = '\0';
	for (uint32_t i = 0; i < record->n_parts; i++) {
		const struct preload_part *part = &record->parts[i];

		if (!is_owner(p, part->worker) || part->state != state)
			continue;
		if (n++ == 0)
			(void)snprintf(reason, PRELOAD_REASON_BYTES, "%s", part->reason); /* cut */
	}
	if (n > 1 && state == PRELOAD_FAILED && record->files_failed > 0)
		(void)snprintf(reason, PRELOAD_REASON_BYTES,
			"%" PRIu64 " of %" PRIu64 " objects could not be fetched",
			record->files_failed, record->files); /* fits */
}

enum preload_state preload_outcome_locked(
	struct preloads *p, struct preload *job, char reason[PRELOAD_REASON_BYTES])
{
	static const enum preload_state worst[] = { PRELOAD_FAILED, PRELOAD_INCOMPLETE };
	const struct preload_record *record = &job->record;

	reason[0] = '\0';
	if (!all_ended(p, record)) {
		note_waiting(p, &job->record);
		return PRELOAD_RUNNING;
	}
	for (size_t k = 0; k < ARRAY_SIZE(worst); k++)
		for (uint32_t i = 0; i < record->n_parts; i++)
			if (is_owner(p, record->parts[i].worker) &&
				has_ended(p, &record->parts[i]) &&
				record->parts[i].state == worst[k]) {
				tell(p, record, worst[k], reason);
				return worst[k];
			}
	return PRELOAD_COMPLETE;
}
