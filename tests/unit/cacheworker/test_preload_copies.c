/*
 * Preloads of workers that keep copies of what others own. What is checked: the copies that are to be kept are
 * those that the job names, whatever the worker has heard before, and also those that it comes to name while the
 * job runs; they come from their owners.
 */
#include "tests/unit/cacheworker/freeze.h"

#include "cacheworker/preload_internal.h"
#include "proto/preload.h"

#define FILES    24u
#define CAPACITY (1 * GiB)
#define COPIER   1u /* the worker that has a job */

static struct {
	pthread_mutex_t lock;
	bool given;
	uint32_t copies;
	uint64_t bandwidth;
	enum preload_state state;
	uint64_t bytes_done;
	uint64_t bytes_copied;
	char reason[PRELOAD_REASON_BYTES];
} job = { .lock = PTHREAD_MUTEX_INITIALIZER };

static void take_report(const Granary__PreloadReport *m)
{
	job.state = (enum preload_state)m->state;
	job.bytes_done = m->bytes_done;
	job.bytes_copied = m->bytes_copied;
	(void)snprintf(job.reason, sizeof(job.reason), "%s", m->reason ? m->reason : "");
}

static void answer(struct world *w, struct rpc_request *request)
{
	Granary__PreloadReports *said =
		granary__preload_reports__unpack(NULL, request->frame.payload, request->payload);
	const struct generation_id *id = &table_info(w->table)->id;
	Granary__PreloadJob one = GRANARY__PRELOAD_JOB__INIT;
	Granary__PreloadJob *all[] = { &one };
	Granary__PreloadJobs m = GRANARY__PRELOAD_JOBS__INIT;
	uint8_t *packed;

	assert_non_null(said);
	pthread_mutex_lock(&job.lock);
	if (said->worker == the_cluster->nodes[COPIER].worker.member.id && job.given) {
		m.n_jobs = 1;
		if (said->n_jobs == 1)
			take_report(said->jobs[0]);
	}
	one.has_id = one.has_volume = one.has_lineage = one.has_generation = true;
	one.id = 1;
	one.volume = (ProtobufCBinaryData){ VOLUME_ID_LEN, (uint8_t *)(uintptr_t)id->volume.bytes };
	one.lineage = id->lineage;
	one.generation = id->generation;
	one.has_bandwidth = one.has_copies = true;
	one.bandwidth = job.bandwidth;
	one.copies = job.copies;
	m.jobs = all;
	pthread_mutex_unlock(&job.lock);
	granary__preload_reports__free_unpacked(said, NULL);
	packed = malloc(granary__preload_jobs__get_packed_size(&m) + 1);
	assert_non_null(packed);
	cluster_reply_packed(request, packed, granary__preload_jobs__pack(&m, packed));
}

static void give(struct cluster *c, uint32_t copies, uint64_t bandwidth)
{
	pthread_mutex_lock(&job.lock);
	job.given = true;
	job.copies = copies;
	job.bandwidth = bandwidth;
	job.state = PRELOAD_RUNNING;
	job.bytes_done = job.bytes_copied = 0;
	pthread_mutex_unlock(&job.lock);
	atomic_store(&c->world->preload, answer);
}

static void change(uint32_t copies, uint64_t bandwidth)
{
	pthread_mutex_lock(&job.lock);
	job.copies = copies;
	job.bandwidth = bandwidth;
	pthread_mutex_unlock(&job.lock);
}

static bool has_begun(void)
{
	bool begun;

	pthread_mutex_lock(&job.lock);
	begun = job.bytes_done > 0;
	pthread_mutex_unlock(&job.lock);
	return begun;
}

static bool has_ended(void)
{
	bool ended;

	pthread_mutex_lock(&job.lock);
	ended = job.state != PRELOAD_RUNNING;
	pthread_mutex_unlock(&job.lock);
	return ended;
}

static void end(struct cluster *c)
{
	pthread_mutex_lock(&job.lock);
	job.given = false;
	pthread_mutex_unlock(&job.lock);
	cluster_free(c);
}

/* The policy has just changed, and nobody else has told the worker. */
static void test_copies_of_the_job(void **state)
{
	struct cluster *c = cluster_new(FILES, MiB, CAPACITY);

	(void)state;
	cluster_set_slots(c, 0, NONE, COPIER, NONE);
	cluster_publish(c);
	cluster_read_all_via(c, 0, MiB, 0);
	cluster_quiet(c);
	give(c, COPIES_EVERYWHERE, 0);
	test_wait(has_ended());
	assert_string_equal(job.reason, "");
	assert_int_equal(job.state, PRELOAD_COMPLETE);
	assert_int_equal(job.bytes_copied, FILES * MiB);
	assert_int_equal(cluster_gets(c), FILES);
	end(c);
}

/* It changes while chunks were passed by that are to be copied now. */
static void test_copies_change_midway(void **state)
{
	struct cluster *c = cluster_new(FILES, MiB, CAPACITY);
	uint64_t hash = placement_volume_hash(&table_info(c->world->table)->id.volume);

	(void)state;
	assert_true(c->world->model_bytes > CHUNK_BYTES);
	cluster_set_slots(c, 0, NONE, NONE, NONE);
	pthread_mutex_lock(&c->lock);
	c->table->slots[placement_slot_of(hash, 1)].owner = COPIER;
	pthread_mutex_unlock(&c->lock);
	cluster_publish(c);
	give(c, COPIES_SHARED, 2 * MiB);
	test_wait(has_begun());
	change(COPIES_EVERYWHERE, 0);
	test_wait(has_ended());
	assert_string_equal(job.reason, "");
	assert_int_equal(job.state, PRELOAD_COMPLETE);
	assert_int_equal(job.bytes_copied, 16 * MiB); /* the first chunk */
	assert_int_equal(job.bytes_done, (FILES - 16) * MiB);
	assert_int_equal(cluster_gets(c), FILES);
	end(c);
}

/* Copies of a stopped owner, more than may be in progress, do not hold up those of other owners. Its own follow when it is
 * back. */
static void test_owner_is_stopped(void **state)
{
	enum { CHUNKS = 4, ALL = CHUNKS * CHUNK_BYTES / MiB, HIS = ALL / 2 };
	struct cluster *c = cluster_new(ALL, MiB, CAPACITY);
	uint64_t hash = placement_volume_hash(&table_info(c->world->table)->id.volume);
	struct worker *w = &c->nodes[COPIER].worker;
	struct freeze freeze;

	(void)state;
	assert_true(w->preloads->max_in_flight < HIS);
	cluster_set_slots(c, 2, NONE, NONE, COPIER);
	pthread_mutex_lock(&c->lock);
	for (uint64_t chunk = 0; chunk < CHUNKS; chunk += 2) /* his come first */
		c->table->slots[placement_slot_of(hash, chunk)].owner = 0;
	pthread_mutex_unlock(&c->lock);
	cluster_publish(c);
	for (uint64_t at = 0; at < c->world->model_bytes; at += MiB)
		(void)cluster_read_via(c, at / CHUNK_BYTES % 2 ? 2 : 0, at, MiB, FRAME_EXACT);
	cluster_quiet(c);
	freeze_begin(&freeze, c, 0);
	give(c, COPIES_EVERYWHERE, 0);
	test_wait(counter_get(&w->counters.peer_units) >= HIS && cluster_parked_of(w) >= HIS);
	assert_int_equal(counter_get(&w->counters.peer_units), HIS);
	assert_false(has_ended());
	freeze_end(&freeze, c, 0);
	test_wait(has_ended());
	assert_int_equal(job.state, PRELOAD_COMPLETE);
	assert_int_equal(job.bytes_copied, ALL * MiB);
	assert_int_equal(cluster_gets(c), ALL);
	end(c);
}

/* Who answers that he is busy is not asked for all there is meanwhile: what waits for too long comes from the origin. */
static void test_owner_is_busy(void **state)
{
	enum { ALL = 4 * CHUNK_BYTES / MiB };
	struct cluster *c = cluster_new(ALL, MiB, CAPACITY);
	struct budget *room = &c->nodes[0].worker.gathered;
	struct worker *w = &c->nodes[COPIER].worker;
	uint64_t most = w->preloads->max_in_flight;
	uint64_t taken = 0;

	(void)state;
	assert_true(most < ALL);
	cluster_set_slots(c, 0, NONE, COPIER, NONE);
	cluster_publish(c);
	cluster_read_all_via(c, 0, MiB, 0);
	cluster_quiet(c);
	test_wait(!room->used); /* an answer gives its room back after its bytes have left */
	for (uint64_t step = 4 * KiB; step; step /= 4)
		while (budget_take(room, BUDGET_DEMAND, step))
			taken += step;
	give(c, COPIES_EVERYWHERE, 0);
	test_wait(counter_get(&w->counters.peer_waits) >= 4 * most);
	assert_int_equal(counter_get(&w->counters.neighbours), most);
	budget_give(room, taken);
	test_wait(has_ended());
	assert_int_equal(job.state, PRELOAD_COMPLETE);
	assert_int_equal(job.bytes_copied, ALL * MiB);
	assert_int_equal(cluster_gets(c), ALL);
	end(c);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_copies_of_the_job),
		cmocka_unit_test(test_copies_change_midway),
		cmocka_unit_test(test_owner_is_stopped),
		cmocka_unit_test(test_owner_is_busy),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
