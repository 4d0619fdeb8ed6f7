/* Sources: which generation a reader gets, masters that are slow, silent or do not know. */
#include "tests/unit/cacheworker/world.h"
#include "cacheworker/kept.h"

#include <inttypes.h>

#define FILES  12u
#define FILE_B (64 * KiB)

static void hold_master(struct world *w, bool hold)
{
	pthread_mutex_lock(&w->lock);
	w->hold = hold;
	pthread_mutex_unlock(&w->lock);
}

/* Answers what the master kept, out of the table it has now. */
static void answer_held(struct world *w)
{
	struct list held = LIST_INIT(held);
	struct list *node;

	pthread_mutex_lock(&w->lock);
	list_splice_back(&held, &w->held);
	pthread_mutex_unlock(&w->lock);
	while ((node = list_pop_front(&held)) != NULL)
		world_answer_table(w, list_entry(node, struct rpc_request, link));
}

static unsigned int asked(struct world *w)
{
	unsigned int n;

	pthread_mutex_lock(&w->lock);
	n = w->asked;
	pthread_mutex_unlock(&w->lock);
	return n;
}

struct one {
	struct rpc_call call;
	pthread_mutex_t lock;
	bool done;
	int status;
};

static void on_one(struct rpc_call *call, int status)
{
	struct one *one = call->arg;

	pthread_mutex_lock(&one->lock);
	one->done = true;
	one->status = status;
	pthread_mutex_unlock(&one->lock);
}

static void one_call(struct one *one, struct world *w, uint64_t offset, uint64_t generation)
{
	*one = (struct one){ .call = world_make_call(w, FRAME_FETCH, offset, BLOCK_BYTES, 0) };
	pthread_mutex_init(&one->lock, NULL);
	one->call.frame.generation = generation;
	one->call.on_done = on_one;
	one->call.arg = one;
	rpc_call(w->client, &one->call);
}

static bool one_done(struct one *one)
{
	bool done;

	pthread_mutex_lock(&one->lock);
	done = one->done;
	pthread_mutex_unlock(&one->lock);
	return done;
}

static int one_wait(struct one *one)
{
	test_wait(one_done(one));
	return one->status;
}

static void one_release(struct one *one)
{
	rpc_call_release(&one->call);
	pthread_mutex_destroy(&one->lock);
}

static unsigned int sources(struct world *w)
{
	unsigned int n = 0;

	pthread_mutex_lock(&w->worker.sources.lock);
	list_for_each (node, &w->worker.sources.all)
		n++;
	pthread_mutex_unlock(&w->worker.sources.lock);
	return n;
}

static const struct ufs_counters *origin_of(struct world *w)
{
	const struct ufs_counters *counters = NULL;

	pthread_mutex_lock(&w->worker.sources.lock);
	list_for_each (node, &w->worker.sources.all)
		counters = ufs_counters(list_entry(node, struct source, link)->ufs);
	pthread_mutex_unlock(&w->worker.sources.lock);
	assert_non_null(counters);
	return counters;
}

/* The first byte that is kept is kept under the policy, and fetched as it says. */
static void test_policy_comes_with_the_table(void **state)
{
	struct world *w = world_new_sized(1 * GiB, FILES, FILE_B, 0);
	struct tier_volume_status status;

	(void)state;
	w->quota = 300 * MiB;
	w->bandwidth = 5 * GiB;
	(void)world_read_range(w, 0, BLOCK_BYTES, 0);
	assert_int_equal(counter_get(&origin_of(w)->bound_bytes), w->bandwidth);
	assert_int_equal(counter_get(&origin_of(w)->bound_requests), 0);
	source_set_rates(&w->worker, &table_info(w->table)->id.volume, 0, 1000);
	assert_int_equal(counter_get(&origin_of(w)->bound_bytes), 0);
	assert_int_equal(counter_get(&origin_of(w)->bound_requests), 1000);
	assert_true(tier_volume_status(w->worker.tiers, &table_info(w->table)->id.volume, &status));
	assert_int_equal(status.policy.quota, w->quota);
	world_free(w);
}

/*
 * The master is asked while generation 1 is the newest; before it has answered, a reader comes who
 * names generation 2 and an object of it. He must not get the zeros that lie there in generation 1.
 */
static void test_newer_reader_during_load(void **state)
{
	struct world *w = world_new_sized(1 * GiB, FILES, FILE_B, 0);
	struct table *first = w->table;
	struct one old;
	struct one new;

	(void)state;
	hold_master(w, true);
	one_call(&old, w, 0, 1);
	test_wait(asked(w) >= 1);
	world_write_files(w, FILES, FILES + 1);
	w->table = world_make_table(w, "table2"); /* for the offset; the master sends the first */
	one_call(&new, w, world_offset_of(w, FILES), 2);
	test_wait(counter_get(&w->worker.counters.fetches) >= 2);
	free(w->table_path);
	assert_true(asprintf(&w->table_path, "%s/table", w->dir) > 0);
	answer_held(w);
	assert_int_equal(one_wait(&old), 0);
	test_wait(asked(w) >= 2); /* for the other one */
	assert_false(one_done(&new));
	free(w->table_path);
	assert_true(asprintf(&w->table_path, "%s/table2", w->dir) > 0);
	hold_master(w, false);
	answer_held(w);
	assert_int_equal(one_wait(&new), 0);
	world_make_model(w);
	assert_memory_equal(
		new.call.reply_payload, w->model + world_offset_of(w, FILES), BLOCK_BYTES);
	one_release(&old);
	one_release(&new);
	table_unref(first);
	world_free(w);
}

/* One that names what does not exist is refused, and harms nobody else, before or after. */
static void test_unknown_generation_harms_nobody(void **state)
{
	struct world *w = world_new_sized(1 * GiB, FILES, FILE_B, 0);
	struct one wrong;

	(void)state;
	for (unsigned int i = 0; i < 3; i++) {
		one_call(&wrong, w, 0, 1000 + i);
		assert_int_equal(one_wait(&wrong), -ESTALE);
		one_release(&wrong);
		(void)world_read_range(w, i * FILE_B, BLOCK_BYTES, 0);
	}
	world_free(w);
}

/* The table at hand serves while the master is asked for a newer one and does not answer. */
static void test_served_while_master_is_silent(void **state)
{
	struct world *w = world_new_sized(1 * GiB, FILES, FILE_B, 0);
	struct one newer;

	(void)state;
	(void)world_read_range(w, 0, BLOCK_BYTES, 0);
	hold_master(w, true);
	one_call(&newer, w, 0, 2);
	test_wait(asked(w) >= 2);
	(void)world_read_range(w, FILE_B, BLOCK_BYTES, 0);
	assert_false(one_done(&newer));
	hold_master(w, false);
	answer_held(w);
	assert_int_equal(one_wait(&newer), -ESTALE);
	one_release(&newer);
	world_free(w);
}

/* Names that the master's table does not bear are not remembered. */
static void test_unknown_sources_are_forgotten(void **state)
{
	struct world *w = world_new_sized(1 * GiB, FILES, FILE_B, 0);

	(void)state;
	for (unsigned int i = 0; i < 20; i++) {
		struct rpc_call call = world_make_call(w, FRAME_FETCH, 0, BLOCK_BYTES, 0);
		struct err e = ERR_INIT;

		call.frame.lineage ^= i + 1;
		assert_true(rpc_call_wait(w->client, &call, &e) < 0);
		rpc_call_release(&call);
	}
	(void)world_read_range(w, 0, BLOCK_BYTES, 0);
	assert_int_equal(sources(w), 1);
	world_free(w);
}

/* More questions than control threads, none answered: readers may leave and the worker may stop. */
static void test_stops_while_master_is_silent(void **state)
{
	struct world *w = world_new_sized(1 * GiB, FILES, FILE_B, 0);
	struct one ones[6];

	(void)state;
	hold_master(w, true);
	for (unsigned int i = 0; i < ARRAY_SIZE(ones); i++) {
		one_call(&ones[i], w, 0, 1);
		if (i % 2 == 1) { /* every second one leaves */
			test_wait(counter_get(&w->worker.counters.fetches) >= i + 1);
			rpc_cancel(w->client, &ones[i].call);
			assert_int_equal(one_wait(&ones[i]), -ECANCELED);
		}
	}
	for (unsigned int i = 1; i < 6; i++) { /* sources of their own */
		struct rpc_call call = world_make_call(w, FRAME_FETCH, 0, BLOCK_BYTES, 0);
		struct err e = ERR_INIT;

		call.frame.lineage ^= i;
		call.deadline_ns = clock_mono_ns() + 20 * CLOCK_MS;
		assert_int_equal(rpc_call_wait(w->client, &call, &e), -ETIMEDOUT);
		rpc_call_release(&call);
	}
	world_stop_worker(w);
	for (unsigned int i = 0; i < ARRAY_SIZE(ones); i++) {
		assert_true(one_wait(&ones[i]) < 0);
		one_release(&ones[i]);
	}
	hold_master(w, false);
	answer_held(w);
	world_start_worker(w, 1 * GiB);
	(void)world_read_range(w, 0, BLOCK_BYTES, 0);
	world_free(w);
}

static void end_master(struct world *w)
{
	rpc_server_free(w->master);
	w->master = NULL;
}

static void begin_master(struct world *w)
{
	struct err e = ERR_INIT;

	assert_int_equal(
		rpc_server_new(w->loop, w->master_address, &world_master_ops, w, &w->master, &e),
		0);
}

/* What it was told before it was started again is as good as if it had not been: bytes come of the tier and of the origin. Who
 * names a newer generation waits for the master. */
static void test_started_while_master_is_away(void **state)
{
	struct world *w = world_new_sized(1 * GiB, 40, MiB, 0);
	struct one newer;

	(void)state;
	(void)world_read_range(w, 0, MiB, FRAME_EXACT);
	world_wait_written(w);
	world_stop_worker(w);
	end_master(w);
	w->asked = 0;
	world_start_worker(w, 1 * GiB);
	(void)world_read_range(w, 0, MiB, FRAME_EXACT);
	assert_int_equal(world_origin_gets(w), 0);
	(void)world_read_range(w, 2 * CHUNK_BYTES, MiB, FRAME_EXACT);
	assert_int_equal(world_origin_gets(w), 1);
	one_call(&newer, w, 0, 2);
	(void)world_read_range(w, MiB, MiB, FRAME_EXACT); /* the others do not wait with it */
	assert_false(one_done(&newer));
	assert_int_equal(w->asked, 0);
	begin_master(w);
	assert_int_equal(one_wait(&newer), -ESTALE); /* which he does not know */
	test_wait(asked(w) >= 1);
	one_release(&newer);
	world_free(w);
}

/* The guard does not hang on the words: nothing of them is needed while there is a master. */
static void test_seen_without_words(void **state)
{
	struct world *w = world_new_sized(1 * GiB, FILES, FILE_B, 0);
	const struct generation_id *id = &table_info(w->table)->id;
	struct generation_id seen;
	char hex[2 * VOLUME_ID_LEN + 1];
	char path[PATH_MAX];
	char dir[PATH_MAX];

	(void)state;
	hash_hex(id->volume.bytes, VOLUME_ID_LEN, hex);
	assert_int_equal(kept_dir(&w->worker, dir), 0);
	assert_true(snprintf(path, sizeof(path), "%.1024s/%s.%016" PRIx64 ".source", dir, hex,
			    id->lineage) > 0);
	assert_int_equal(mkdir(path, 0700), 0); /* they cannot be written */
	(void)world_read_range(w, 0, BLOCK_BYTES, 0);
	assert_int_equal(kept_seen_load(&w->worker, &id->volume, &seen), 0);
	assert_int_equal(seen.generation, id->generation);
	assert_int_equal(rmdir(path), 0);
	world_free(w);
}

/* Words that are damaged are not followed. */
static void test_damaged_words_are_not_followed(void **state)
{
	struct world *w = world_new_sized(1 * GiB, FILES, FILE_B, 0);
	const struct generation_id *id = &table_info(w->table)->id;
	struct buf said = BUF_INIT(64 * KiB);
	char hex[2 * VOLUME_ID_LEN + 1];
	char path[PATH_MAX];
	struct one one;
	char byte;
	int fd;

	(void)state;
	(void)world_read_range(w, 0, BLOCK_BYTES, 0);
	world_wait_written(w);
	assert_int_equal(kept_source_load(&w->worker, &id->volume, id->lineage, &said), 0);
	buf_release(&said);
	hash_hex(id->volume.bytes, VOLUME_ID_LEN, hex);
	(void)snprintf(
		path, sizeof(path), "%s/seen/%s.%016" PRIx64 ".source", w->tier, hex, id->lineage);
	fd = open(path, O_RDWR | O_CLOEXEC);
	assert_true(fd >= 0);
	assert_int_equal(pread(fd, &byte, 1, 20), 1);
	byte = (char)~byte; /* of the volume's id, which is another one in each run */
	assert_int_equal(pwrite(fd, &byte, 1, 20), 1);
	close(fd);
	assert_int_equal(kept_source_load(&w->worker, &id->volume, id->lineage, &said), -EBADMSG);
	world_stop_worker(w);
	end_master(w);
	world_start_worker(w, 1 * GiB);
	one_call(&one, w, 0, 1);
	test_advance(100 * CLOCK_MS);
	assert_false(one_done(&one));
	begin_master(w);
	assert_int_equal(one_wait(&one), 0);
	one_release(&one);
	buf_release(&said);
	world_free(w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_policy_comes_with_the_table),
		cmocka_unit_test(test_newer_reader_during_load),
		cmocka_unit_test(test_unknown_generation_harms_nobody),
		cmocka_unit_test(test_served_while_master_is_silent),
		cmocka_unit_test(test_unknown_sources_are_forgotten),
		cmocka_unit_test(test_stops_while_master_is_silent),
		cmocka_unit_test(test_started_while_master_is_away),
		cmocka_unit_test(test_seen_without_words),
		cmocka_unit_test(test_damaged_words_are_not_followed),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
