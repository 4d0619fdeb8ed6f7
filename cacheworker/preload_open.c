/* A preload's beginning: finds its source, and what of it is meant. See preload.h. */
#include "base/log.h"
#include "cacheworker/preload_internal.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#define SOURCE_NS    (2 * CLOCK_SECOND)
#define SOURCE_TRIES 5u

bool preload_is_meant(const struct preload_job *job, const struct table_row *row)
{
	const struct generation_retained shown = { job->generation, job->end };

	if (row->flags & ROW_DIRECTORY ||
		(job->exact ? !generation_names(&shown, 1, row) : row->flags & ROW_DEAD))
		return false;
	return meant_matches(&job->meant, row->key, row->key_len);
}

static void set_phase(struct preload_job *job, enum preload_phase phase)
{
	pthread_mutex_lock(&job->preloads->lock);
	job->phase = phase;
	pthread_mutex_unlock(&job->preloads->lock);
}

/* ---- the source ------------------------------------------------------------------------------ */

static void on_source(
	struct source_wait *wait, struct source *source, int status, const struct err *e)
{
	struct preload_job *job = container_of(wait, struct preload_job, wait);
	struct preloads *p = job->preloads;

	pthread_mutex_lock(&p->lock);
	job->waiting = false;
	job->answered = true;
	job->answer = ERR_INIT;
	if (status < 0 && e)
		job->answer = *e;
	job->answer.code = status < 0 ? status : 0;
	job->source = status < 0 ? NULL : source;
	periodic_poke(&p->walker);
	preload_job_unref_locked(job);
	pthread_mutex_unlock(&p->lock);
}

static void seek(struct preload_job *job)
{
	struct preloads *p = job->preloads;
	struct volume_id volume;
	uint64_t lineage;
	uint64_t generation;

	pthread_mutex_lock(&p->lock);
	job->refs++;
	job->waiting = true;
	job->wait = (struct source_wait){ .ready = on_source };
	list_init(&job->wait.link);
	volume = job->volume;
	lineage = job->lineage;
	generation = job->generation;
	pthread_mutex_unlock(&p->lock);
	source_find(p->worker, &volume, lineage, generation, &job->wait);
}

/* A master or an origin's key may come back; what is refused again and again is refused. */
static bool is_passing(int code)
{
	return code == -ETIMEDOUT || code == -ECANCELED || code == -EAGAIN || code == -ENOMEM ||
	       code == -ECONNREFUSED || code == -ECONNRESET || code == -EMFILE;
}

static void not_found(struct preload_job *job, const struct err *answer)
{
	const char *text = answer->text[0] ? answer->text : err_str(answer->code);

	if (!is_passing(answer->code) && ++job->tries >= SOURCE_TRIES) {
		preload_end(job, PRELOAD_FAILED, "the source cannot be opened: %.400s", text);
		return;
	}
	pthread_mutex_lock(&job->preloads->lock);
	job->answered = false;
	job->retry_ns = clock_mono_ns() + SOURCE_NS;
	(void)snprintf(job->reason, sizeof(job->reason),
		"the source cannot be opened, tried again: %.400s", text); /* cut: for people */
	pthread_mutex_unlock(&job->preloads->lock);
}

static void begin(struct preload_job *job)
{
	struct preloads *p = job->preloads;
	bool all = meant_is_all(&job->meant) && !job->exact;
	const struct table_info *info;

	job->table = source_table(job->source);
	ufs_forget(source_ufs(job->source)); /* its user may have restored objects */
	info = table_info(job->table);
	job->recheck = tier_set_unverified(p->worker->tiers) > 0;
	if (job->recheck && !p->unit)
		p->unit = aligned_alloc(BLOCK_BYTES, UNIT_BYTES);
	if (job->recheck && !p->unit) {
		preload_end(job, PRELOAD_FAILED, "out of memory");
		return;
	}
	pthread_mutex_lock(&p->lock);
	job->lineage = info->id.lineage;
	if (!job->exact)
		job->generation = info->id.generation;
	job->reason[0] = '\0';
	if (all) {
		job->tally.files = info->live_files;
		job->tally.bytes = info->live_bytes;
	}
	job->phase = all ? LOAD_LOADING : LOAD_COUNTING;
	pthread_mutex_unlock(&p->lock);
	log_info("preload begun", "id=%" PRIu64 " generation=%" PRIu64 " files=%" PRIu64, job->id,
		info->id.generation, info->live_files);
}

enum preload_step preload_open_turn(struct preload_job *job, uint64_t *ret_ns)
{
	struct preloads *p = job->preloads;
	uint64_t now = clock_mono_ns();
	struct err answer;
	bool answered;
	bool waiting;

	pthread_mutex_lock(&p->lock);
	answered = job->answered;
	waiting = job->waiting;
	answer = job->answer;
	pthread_mutex_unlock(&p->lock);
	if (waiting)
		return PRELOAD_STUCK;
	if (answered) {
		if (answer.code < 0)
			not_found(job, &answer);
		else
			begin(job);
		return PRELOAD_WENT;
	}
	if (now < job->retry_ns) {
		*ret_ns = job->retry_ns - now;
		return PRELOAD_PAUSED;
	}
	seek(job);
	return PRELOAD_WENT;
}

/* ---- counting -------------------------------------------------------------------------------- */

enum preload_step preload_count_turn(struct preload_job *job)
{
	struct preloads *p = job->preloads;
	uint64_t files = 0;
	uint64_t bytes = 0;
	int r = 0;

	for (uint32_t i = 0; i < PRELOAD_TURN_ROWS && r == 0; i++) {
		r = table_next(job->table, &job->cursor, &job->walk.row);
		if (r == 0 && preload_is_meant(job, &job->walk.row)) {
			files++;
			bytes += job->walk.row.size;
		}
	}
	pthread_mutex_lock(&p->lock);
	job->tally.files += files;
	job->tally.bytes += bytes;
	files = job->tally.files;
	pthread_mutex_unlock(&p->lock);
	if (r == 0)
		return PRELOAD_WENT;
	table_cursor_release(&job->cursor);
	job->cursor = (struct table_cursor){ 0 };
	if (r != -ENOENT)
		preload_end(job, PRELOAD_FAILED, "the object table cannot be read: %s", err_str(r));
	else if (files == 0 && job->meant.n_paths && !job->part)
		preload_end(job, PRELOAD_FAILED,
			"no object matches these patterns: see `cachectl preload --help`");
	else
		set_phase(job, LOAD_LOADING);
	return PRELOAD_WENT;
}
