/*
 * Preloads on a worker: a master of the test's own that has one job, and takes down how far it is.
 */
#include "tests/unit/cacheworker/damage.h"
#include "cacheworker/preload_internal.h"
#include "cacheworker/source.h"

#define FILES 40u

/* What the master of the test has; one test at a time. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct {
	uint64_t id; /* 0: no job */
	char *paths[1];
	size_t n_paths;
	const char *subtree;
	const char *at;
	bool part;
	uint64_t bandwidth;
	Granary__PreloadReport *report; /* the last */
	unsigned int reports;
	uint64_t cached; /* bytes by the last report of the worker when that of the end came */
} job;
static uint64_t last; /* id that was given */

static void forget_report(void)
{
	if (job.report)
		granary__preload_report__free_unpacked(job.report, NULL);
	job.report = NULL;
}

static void take_reports(const struct rpc_request *request)
{
	Granary__PreloadReports *m =
		granary__preload_reports__unpack(NULL, request->frame.payload, request->payload);

	assert_non_null(m);
	for (size_t i = 0; i < m->n_jobs; i++) {
		if (m->jobs[i]->id != job.id)
			continue;
		forget_report();
		job.report = m->jobs[i];
		m->jobs[i] = NULL;
		job.reports++;
	}
	/* What was taken leaves a hole, which the library would follow. */
	for (size_t i = 0; i < m->n_jobs; i++)
		if (m->jobs[i])
			granary__preload_report__free_unpacked(m->jobs[i], NULL);
	m->n_jobs = 0;
	granary__preload_reports__free_unpacked(m, NULL);
}

/* What the worker has reported of its only volume; 0: nothing yet. */
static uint64_t reported_bytes(struct world *w)
{
	Granary__WorkerReport *m;
	uint64_t bytes;

	pthread_mutex_lock(&w->lock);
	m = granary__worker_report__unpack(NULL, w->report_len, w->report);
	pthread_mutex_unlock(&w->lock);
	assert_non_null(m);
	bytes = m->n_volumes > 0 ? m->volumes[0]->cached_bytes : 0;
	granary__worker_report__free_unpacked(m, NULL);
	return bytes;
}

static void answer(struct world *w, struct rpc_request *request)
{
	const struct generation_id *id = &table_info(w->table)->id;
	Granary__PreloadJob one = GRANARY__PRELOAD_JOB__INIT;
	Granary__PreloadJob *all[] = { &one };
	Granary__PreloadJobs m = GRANARY__PRELOAD_JOBS__INIT;
	struct net_payload payload = NET_PAYLOAD_NONE;
	uint8_t *packed;

	pthread_mutex_lock(&lock);
	take_reports(request);
	if (job.report && preload_ended(job.report->state) && !job.cached)
		job.cached = reported_bytes(w);
	one.has_id = one.has_volume = one.has_lineage = one.has_generation = true;
	one.has_bandwidth = true;
	one.id = job.id;
	one.volume = (ProtobufCBinaryData){ VOLUME_ID_LEN, (uint8_t *)(uintptr_t)id->volume.bytes };
	one.lineage = id->lineage;
	one.generation = id->generation;
	one.paths = job.paths;
	one.n_paths = job.n_paths;
	one.bandwidth = job.bandwidth;
	one.subtree = (char *)(uintptr_t)job.subtree;
	one.has_part = true;
	one.part = job.part;
	one.at = (char *)(uintptr_t)job.at;
	m.jobs = all;
	m.n_jobs = job.id && (!job.report || job.report->state == PRELOAD_RUNNING);
	packed = malloc(granary__preload_jobs__get_packed_size(&m) + 1);
	assert_non_null(packed);
	payload.parts[0].len = granary__preload_jobs__pack(&m, packed);
	pthread_mutex_unlock(&lock);
	payload.parts[0].data = packed;
	payload.n = 1;
	payload.release = free;
	payload.arg = packed;
	rpc_reply(request, 0, NULL, payload);
}

/* Gives the worker a job, one after another. */
static void order(struct world *w, const char *path, uint64_t bandwidth)
{
	pthread_mutex_lock(&lock);
	forget_report();
	job.reports = 0;
	job.cached = 0;
	job.id = ++last;
	job.paths[0] = (char *)(uintptr_t)path;
	job.n_paths = path != NULL;
	job.bandwidth = bandwidth;
	pthread_mutex_unlock(&lock);
	atomic_store(&w->preload, answer);
}

/* What was reported last. */
static enum preload_state reported(void)
{
	enum preload_state state;

	pthread_mutex_lock(&lock);
	state = job.report ? (enum preload_state)job.report->state : PRELOAD_RUNNING;
	pthread_mutex_unlock(&lock);
	return state;
}

static uint32_t in_flight(struct preloads *p)
{
	uint32_t n;

	pthread_mutex_lock(&p->lock);
	n = p->in_flight;
	pthread_mutex_unlock(&p->lock);
	return n;
}

static unsigned int reports_of_job(void)
{
	unsigned int reports;

	pthread_mutex_lock(&lock);
	reports = job.reports;
	pthread_mutex_unlock(&lock);
	return reports;
}

/* Until the job ended; its last report is in `job`. */
static enum preload_state wait_end(void)
{
	test_wait(preload_ended(reported()));
	return reported();
}

/* Was something of it fetched? */
static bool has_begun(void)
{
	bool begun;

	pthread_mutex_lock(&lock);
	begun = job.report && job.report->bytes_fetched > 0;
	pthread_mutex_unlock(&lock);
	return begun;
}

static void world_stop(struct world *w)
{
	world_free(w);
	forget_report();
	memset(&job, 0, sizeof(job));
}

static void loads_all_once(void **state)
{
	struct world *w = world_new(256 * MiB, FILES);
	const struct table_info *info = table_info(w->table);
	uint32_t local;
	uint32_t ranges;
	uint64_t gets;

	(void)state;
	order(w, NULL, 0);
	assert_int_equal(wait_end(), PRELOAD_COMPLETE);
	assert_int_equal(job.report->files, info->live_files);
	assert_int_equal(job.report->files_done, info->live_files);
	assert_int_equal(job.report->bytes_done, info->live_bytes);
	assert_int_equal(job.report->bytes_fetched, info->live_bytes);
	gets = world_origin_gets(w);
	assert_int_equal(gets, world_units(w));
	world_read_all(w, 0, &local, &ranges);
	assert_int_equal(world_origin_gets(w), gets); /* no reader needs the origin */
	order(w, NULL, 0);
	assert_int_equal(wait_end(), PRELOAD_COMPLETE);
	assert_int_equal(job.report->bytes_fetched, 0);
	assert_int_equal(job.report->bytes_done, info->live_bytes);
	assert_int_equal(world_origin_gets(w), gets);
	world_stop(w);
}

/* A preload that is complete is shown so: the figures that the master has when it hears of the end are not older than that. */
static void reports_figures_first(void **state)
{
	struct world *w = world_new(256 * MiB, FILES);

	(void)state;
	order(w, "file-00[0-4]", 0);
	assert_int_equal(wait_end(), PRELOAD_COMPLETE);
	assert_true(job.cached >= job.report->bytes_done);
	order(w, NULL, 0);
	assert_int_equal(wait_end(), PRELOAD_COMPLETE);
	assert_true(job.cached >= table_info(w->table)->live_bytes);
	world_stop(w);
}

/* The end of a preload waits for no period of the threads that report to the master. */
static void reports_the_end_at_once(void **state)
{
	struct world *w = world_new(256 * MiB, FILES);
	const struct volume_id *volume = &table_info(w->table)->id.volume;
	unsigned int reports;
	uint64_t began;

	(void)state;
	(void)world_read_range(w, 0, BLOCK_BYTES, 0);
	source_set_rates(&w->worker, volume, 1, 0);
	order(w, NULL, 0);
	test_wait(in_flight(w->worker.preloads) > 0);
	reports = reports_of_job();
	test_wait(reports_of_job() > reports + 1); /* the next one is due in a whole period */
	began = clock_mono_ns();
	source_set_rates(&w->worker, volume, 0, 0);
	assert_int_equal(wait_end(), PRELOAD_COMPLETE);
	assert_true(clock_mono_ns() - began < 190 * CLOCK_MS);
	world_stop(w);
}

static void loads_what_is_meant(void **state)
{
	struct world *w = world_new(256 * MiB, FILES);

	(void)state;
	order(w, "file-00[0-4]", 0);
	assert_int_equal(wait_end(), PRELOAD_COMPLETE);
	assert_int_equal(job.report->files, 5);
	assert_int_equal(job.report->bytes_fetched, 1 + 4095 + 4096 + 4097 + 65536);
	order(w, "none", 0);
	assert_int_equal(wait_end(), PRELOAD_FAILED);
	assert_non_null(strstr(job.report->reason, "no object"));
	world_stop(w);
}

/* A part of the source that stands elsewhere in a dataset: patterns are over where it stands. */
static void loads_a_subtree(void **state)
{
	struct world *w = world_new(256 * MiB, FILES);

	(void)state;
	job.subtree = "file-00";
	order(w, NULL, 0);
	assert_int_equal(wait_end(), PRELOAD_COMPLETE);
	assert_int_equal(job.report->files, 10);
	job.subtree = "file-0";
	job.at = "imgs/";
	order(w, "imgs/0[12]", 0);
	assert_int_equal(wait_end(), PRELOAD_COMPLETE);
	assert_int_equal(job.report->files, 2);
	order(w, "file-00*", 0);
	assert_int_equal(wait_end(), PRELOAD_FAILED);
	job.part = true; /* they mean something of another source */
	order(w, "file-00*", 0);
	assert_int_equal(wait_end(), PRELOAD_COMPLETE);
	assert_int_equal(job.report->files, 0);
	world_stop(w);
}

/* With readers of the same units: each is fetched once. */
static void joins_readers(void **state)
{
	struct world *w = world_new(256 * MiB, FILES);
	uint32_t local;
	uint32_t ranges;

	(void)state;
	order(w, NULL, 0);
	world_read_all(w, 0, &local, &ranges);
	assert_int_equal(wait_end(), PRELOAD_COMPLETE);
	world_wait_written(w);
	assert_int_equal(world_origin_gets(w), world_units(w));
	world_stop(w);
}

static void lists_failures(void **state)
{
	struct world *w = world_new(256 * MiB, FILES);
	char path[160];

	(void)state;
	(void)snprintf(path, sizeof(path), "%s/data/file-003", w->dir);
	assert_int_equal(unlink(path), 0);
	(void)snprintf(path, sizeof(path), "%s/data/file-009", w->dir); /* of several units */
	assert_int_equal(file_write_atomic(path, "x", 1, 0600), 0);
	order(w, NULL, 0);
	assert_int_equal(wait_end(), PRELOAD_FAILED);
	assert_int_equal(job.report->files_failed, 2);
	assert_int_equal(job.report->files_done, FILES - 2);
	assert_int_equal(job.report->n_failures, 2);
	for (size_t i = 0; i < 2; i++) {
		const Granary__PreloadFailure *f = job.report->failures[i];

		assert_true(f->key.len == 8 && (memcmp(f->key.data, "file-003", 8) == 0 ||
						       memcmp(f->key.data, "file-009", 8) == 0));
		assert_true(f->reason[0] != '\0');
	}
	world_stop(w);
}

static void stops_when_full(void **state)
{
	struct world *w = world_new_sized(64 * MiB, 100, MiB, 0);

	(void)state;
	order(w, NULL, 0);
	assert_int_equal(wait_end(), PRELOAD_INCOMPLETE);
	assert_non_null(strstr(job.report->reason, "cache full"));
	assert_true(job.report->bytes_done >= 40 * MiB);
	assert_true(job.report->bytes_done < 64 * MiB);
	assert_int_equal(job.report->files_done, job.report->bytes_done / MiB);
	assert_int_equal(counter_get(&tier_set_counters(w->worker.tiers)->evicted), 0);
	world_stop(w);
}

/* What is there of an earlier boot is read and compared before it is called cached. */
static void compares_what_was_there(void **state)
{
	struct world *w = world_new(256 * MiB, FILES);
	uint64_t bytes = table_info(w->table)->live_bytes;

	(void)state;
	order(w, NULL, 0);
	assert_int_equal(wait_end(), PRELOAD_COMPLETE);
	job.id = 0; /* nothing is to be loaded when the worker starts */
	world_stop_worker(w);
	damage(w, 1, (off_t)world_offset_of(w, 6) + 100);
	damage_another_boot(w);
	w->scrub_rate = 0; /* by itself it does not look */
	world_start_worker(w, 256 * MiB);
	order(w, NULL, 0);
	assert_int_equal(wait_end(), PRELOAD_COMPLETE);
	assert_int_equal(job.report->bytes_done, bytes);
	assert_int_equal(tier_set_unverified(w->worker.tiers), 0);
	assert_true(counter_get(&w->worker.counters.preload_checked) >= bytes - UNIT_BYTES);
	assert_int_equal(counter_get(&tier_set_counters(w->worker.tiers)->mismatches), 1);
	assert_int_equal(world_origin_gets(w), 1); /* since this start */
	world_stop(w);
}

/* While as many units are on their way as may be, the walker sleeps. */
static void waits_for_its_units(void **state)
{
	struct world *w = world_new_sized(256 * MiB, 100, MiB, 256 * MiB);
	struct preloads *p = w->worker.preloads;
	uint64_t began;
	uint64_t ms;
	uint32_t rounds;

	(void)state;
	(void)world_read_range(w, 0, BLOCK_BYTES, 0);
	source_set_rates(&w->worker, &table_info(w->table)->id.volume, 1, 0); /* hardly any comes */
	order(w, NULL, 0);
	test_wait(in_flight(p) >= p->max_in_flight);
	began = clock_mono_ns();
	pthread_mutex_lock(&p->lock);
	rounds = p->rounds;
	pthread_mutex_unlock(&p->lock);
	test_advance(300 * CLOCK_MS);
	pthread_mutex_lock(&p->lock);
	rounds = p->rounds - rounds;
	pthread_mutex_unlock(&p->lock);
	ms = (clock_mono_ns() - began) / CLOCK_MS;
	assert_true(rounds <= ms / 4 + 16); /* it looks every 20 ms, and when a unit ends */
	source_set_rates(&w->worker, &table_info(w->table)->id.volume, 0, 0);
	assert_int_equal(wait_end(), PRELOAD_COMPLETE);
	world_stop(w);
}

/* A job of file 0, whose first unit is not there. Its walk has begun that unit, and stands where it takes flights.lock the
 * next time: that is held, and preloads.lock too. */
static struct preload_job *stop_behind_first(struct world *w)
{
	struct flights *flights = &w->worker.flights;
	struct preloads *p = w->worker.preloads;

	pthread_mutex_lock(&flights->lock);
	order(w, "file-000", 0);
	test_wait(in_flight(p) == 1);
	pthread_mutex_lock(&p->lock);
	pthread_mutex_unlock(&flights->lock);
	test_wait(counter_get(&w->worker.counters.neighbours) == 1);
	test_wait(pthread_mutex_trylock(&flights->lock) == 0);
	return list_entry(p->jobs.next, struct preload_job, link);
}

/* What is begun is asked for before what is there already is passed by, which may be read and compared. */
static void begins_before_what_is_there(void **state)
{
	struct world *w = world_new_sized(256 * MiB, 1, 12 * MiB, 256 * MiB);
	struct preload_job *at;
	struct preloads *p;
	uint64_t done;

	(void)state;
	(void)world_read_range(w, MiB, MiB, FRAME_EXACT);
	world_wait_written(w);
	world_stop_worker(w); /* what that read leaves behind takes flights.lock, too */
	world_start_worker(w, 256 * MiB);
	p = w->worker.preloads;
	at = stop_behind_first(w);
	pthread_mutex_unlock(&p->lock);
	test_advance(CLOCK_SECOND);
	pthread_mutex_lock(&p->lock);
	done = at->tally.bytes_done;
	pthread_mutex_unlock(&p->lock);
	pthread_mutex_unlock(&w->worker.flights.lock);
	assert_int_equal(done, 0);
	assert_int_equal(wait_end(), PRELOAD_COMPLETE);
	assert_int_equal(job.report->bytes_done, 12 * MiB);
	world_stop(w);
}

/* And before what finds no room any more, which may be all the rest. */
static void begins_before_what_has_no_room(void **state)
{
	struct world *w = world_new_sized(256 * MiB, 1, 12 * MiB, 256 * MiB);
	struct preloads *p = w->worker.preloads;
	struct preload_job *at = stop_behind_first(w);
	uint64_t walked;

	(void)state;
	at->full = at->had_room = true; /* for good */
	pthread_mutex_unlock(&p->lock);
	test_advance(CLOCK_SECOND);
	pthread_mutex_lock(&p->lock);
	walked = at->walk.at;
	pthread_mutex_unlock(&p->lock);
	pthread_mutex_unlock(&w->worker.flights.lock);
	assert_int_equal(walked, world_offset_of(w, 0) + MiB);
	assert_int_equal(wait_end(), PRELOAD_INCOMPLETE);
	assert_int_equal(job.report->bytes_done, MiB);
	world_stop(w);
}

/* However long it has loaded before it found no room: a larger quota may have come meanwhile. */
static void asks_for_retention_when_full(void **state)
{
	struct world *w = world_new_sized(256 * MiB, 1, 12 * MiB, 256 * MiB);
	struct preloads *p = w->worker.preloads;
	struct preload_job *at = stop_behind_first(w);

	(void)state;
	at->full = at->had_room = true; /* for good */
	pthread_mutex_unlock(&p->lock);
	test_advance(10 * CLOCK_SECOND);
	atomic_store(&w->worker.retention.heard_ns, 0); /* not since it began */
	pthread_mutex_unlock(&w->worker.flights.lock);
	assert_int_equal(wait_end(), PRELOAD_INCOMPLETE);
	assert_int_not_equal(atomic_load(&w->worker.retention.heard_ns), 0);
	world_stop(w);
}

/* Another rate counts at once: at a byte a second it would last for days. */
static void keeps_to_a_new_rate(void **state)
{
	struct world *w = world_new(256 * MiB, FILES);

	(void)state;
	order(w, NULL, 1);
	test_wait(has_begun());
	pthread_mutex_lock(&lock);
	job.bandwidth = 10 * GiB;
	pthread_mutex_unlock(&lock);
	assert_int_equal(wait_end(), PRELOAD_COMPLETE);
	assert_int_equal(world_origin_gets(w), world_units(w));
	world_stop(w);
}

/* One that the master does not name any more ends, and its worker can be closed meanwhile. */
static void is_dropped(void **state)
{
	struct world *w = world_new(256 * MiB, FILES);
	uint64_t gets;

	(void)state;
	order(w, NULL, 1); /* a byte a second: hardly more than the first units, which are small */
	test_wait(has_begun());
	gets = world_origin_gets(w);
	assert_true(gets < FILES / 2);
	pthread_mutex_lock(&lock);
	job.id = 0;
	pthread_mutex_unlock(&lock);
	order(w, "file-003", 0);
	assert_int_equal(wait_end(), PRELOAD_COMPLETE);
	assert_true(world_origin_gets(w) < FILES / 2);
	order(w, NULL, 1);
	world_stop(w); /* in the middle */
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(loads_all_once),
		cmocka_unit_test(reports_figures_first),
		cmocka_unit_test(reports_the_end_at_once),
		cmocka_unit_test(loads_what_is_meant),
		cmocka_unit_test(loads_a_subtree),
		cmocka_unit_test(joins_readers),
		cmocka_unit_test(lists_failures),
		cmocka_unit_test(stops_when_full),
		cmocka_unit_test(compares_what_was_there),
		cmocka_unit_test(waits_for_its_units),
		cmocka_unit_test(begins_before_what_is_there),
		cmocka_unit_test(begins_before_what_has_no_room),
		cmocka_unit_test(asks_for_retention_when_full),
		cmocka_unit_test(keeps_to_a_new_rate),
		cmocka_unit_test(is_dropped),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
