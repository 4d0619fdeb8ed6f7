/* Which volumes a worker of several keeps whole. */
#include "tests/unit/cacheworker/world.h"

#include "cacheworker/copies.h"

static bool keeps(uint32_t copies, bool asked, bool kept, uint64_t need, uint64_t room)
{
	const struct copies_ask ask = {
		.copies = copies, .asked = asked, .kept = kept, .need = need, .room = room
	};

	return copies_keep_whole(&ask);
}

static void auto_has_hysteresis(void **state)
{
	(void)state;
	assert_false(keeps(COPIES_AUTO, false, false, 1, 1000)); /* nobody here reads it */
	assert_true(keeps(COPIES_AUTO, true, false, 800, 1000));
	assert_false(keeps(COPIES_AUTO, true, false, 801, 1000));
	assert_true(keeps(COPIES_AUTO, true, true, 950, 1000));
	assert_true(keeps(COPIES_AUTO, false, true, 950, 1000)); /* not given up for that */
	assert_false(keeps(COPIES_AUTO, true, true, 951, 1000));
	assert_false(keeps(COPIES_AUTO, true, false, 1, 0));
}

static void policies_say_so(void **state)
{
	const struct copies_ask alone = { .copies = COPIES_SHARED, .alone = true, .need = 9 };

	(void)state;
	for (uint32_t copies = COPIES_SHARED; copies <= COPIES_MAX; copies++)
		assert_false(keeps(copies, true, true, 1, 1000));
	assert_true(keeps(COPIES_EVERYWHERE, false, false, 1000, 1000));
	assert_false(keeps(COPIES_EVERYWHERE, true, true, 1001, 1000));
	assert_true(copies_keep_whole(&alone)); /* it owns everything; the tiers look for room */
}

static bool has_extents(struct world *w, const struct generation_id *id)
{
	bool extents;

	(void)tier_volume_room(w->worker.tiers, &id->volume, id->lineage, &extents);
	return extents;
}

/* The only worker: everything, in extents from the first byte on. */
static void alone_all_is_kept(void **state)
{
	struct world *w = world_new(256 * MiB, 4);
	const struct generation_id *id = &table_info(w->table)->id;

	(void)state;
	assert_true(worker_keeps_whole(&w->worker, &id->volume));
	(void)world_read_range(w, 0, BLOCK_BYTES, 0);
	assert_true(has_extents(w, id));
	world_free(w);
}

static void follows_policies_and_readers(void **state)
{
	struct world *w = world_new(256 * MiB, 4);
	const struct generation_id *id = &table_info(w->table)->id;
	const struct volume_id nobodys = { .bytes = { 1 } };

	(void)state;
	atomic_store(&w->worker.others, 1);
	(void)world_read_range(w, 0, BLOCK_BYTES, 0); /* by a peer, as it seems */
	assert_false(worker_keeps_whole(&w->worker, &id->volume));
	assert_false(worker_keeps_whole(&w->worker, &nobodys));
	assert_int_equal(worker_copies(&w->worker, &id->volume), 1);
	(void)world_read_range(w, 0, BLOCK_BYTES, FRAME_LOCAL_OK);
	test_wait(worker_keeps_whole(&w->worker, &id->volume));
	copies_note_policy(&w->worker, &id->volume, 2);
	assert_int_equal(worker_copies(&w->worker, &id->volume), 2);
	test_wait(!worker_keeps_whole(&w->worker, &id->volume));
	copies_note_policy(&w->worker, &id->volume, COPIES_EVERYWHERE);
	test_wait(worker_keeps_whole(&w->worker, &id->volume));
	assert_int_equal(worker_copies(&w->worker, &id->volume), 1);
	copies_note_policy(&w->worker, &id->volume, COPIES_SHARED);
	test_wait(!worker_keeps_whole(&w->worker, &id->volume));
	atomic_store(&w->worker.others, 0);
	assert_true(worker_keeps_whole(&w->worker, &id->volume));
	world_free(w);
}

/* What lay in extents is kept whole again after a restart, though nobody has asked yet. */
static void is_kept_over_a_restart(void **state)
{
	struct world *w = world_new(256 * MiB, 4);
	const struct generation_id *id = &table_info(w->table)->id;

	(void)state;
	(void)world_read_range(w, 0, BLOCK_BYTES, 0);
	world_stop_worker(w);
	world_start_worker(w, 256 * MiB);
	atomic_store(&w->worker.others, 2);
	(void)world_read_range(w, 0, BLOCK_BYTES, 0);
	test_wait(worker_keeps_whole(&w->worker, &id->volume));
	world_free(w);
}

/* More volumes than there are: those that were named long ago are forgotten, nothing grows. */
static void is_bounded(void **state)
{
	struct world *w = world_new(256 * MiB, 1);
	struct volume_id volume = { .bytes = { 0 } };

	(void)state;
	atomic_store(&w->worker.others, 1);
	for (uint32_t i = 0; i < 5000; i++) {
		memcpy(volume.bytes, &i, sizeof(i));
		copies_note_policy(&w->worker, &volume, 3);
	}
	assert_int_equal(worker_copies(&w->worker, &volume), 3);
	memset(volume.bytes, 0, sizeof(volume.bytes));
	assert_int_equal(worker_copies(&w->worker, &volume), 1);
	world_free(w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(auto_has_hysteresis),
		cmocka_unit_test(policies_say_so),
		cmocka_unit_test(alone_all_is_kept),
		cmocka_unit_test(follows_policies_and_readers),
		cmocka_unit_test(is_kept_over_a_restart),
		cmocka_unit_test(is_bounded),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
