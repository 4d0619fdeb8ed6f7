/*
 * A worker that is stopped: its connections stand, and it answers nothing. The master never calls it down here.
 */
#include "tests/unit/cacheworker/cluster_world.h"

#define CAPACITY (1 * GiB)
#define CHUNKS   4u
#define FILES    (CHUNKS * (uint32_t)(CHUNK_BYTES / MiB))

/* Holds a loop up until the lock is let go. */
struct freeze {
	struct loop_task task;
	struct loop *loop;
	pthread_mutex_t lock;
};

static void run_freeze(struct loop_task *task)
{
	struct freeze *freeze = container_of(task, struct freeze, task);

	pthread_mutex_lock(&freeze->lock);
	pthread_mutex_unlock(&freeze->lock);
}

static void freeze_begin(struct freeze *freeze, struct worker *w)
{
	*freeze = (struct freeze){ .task.run = run_freeze, .loop = w->loop };
	pthread_mutex_init(&freeze->lock, NULL);
	pthread_mutex_lock(&freeze->lock);
	loop_post(w->loop, &freeze->task);
}

static void run_nothing(void *arg)
{
	(void)arg;
}

static void freeze_end(struct freeze *freeze)
{
	pthread_mutex_unlock(&freeze->lock);
	loop_call(freeze->loop, run_nothing, NULL);
	pthread_mutex_destroy(&freeze->lock);
}

/* Chunks belong to 0 and 2 in turn, who have them; 1 keeps a copy of all, and has the first file only. */
static struct cluster *copying_cluster(void)
{
	struct cluster *c = cluster_new_copies(FILES, MiB, CAPACITY, COPIES_EVERYWHERE);
	uint64_t hash = placement_volume_hash(&table_info(c->world->table)->id.volume);

	set_slots(c, 2, NOBODY, 0, 1);
	for (uint64_t chunk = 0; chunk < CHUNKS; chunk += 2)
		c->table->slots[placement_slot_of(hash, chunk)] =
			(struct placement_slot){ 0, NOBODY, { 2, 1 } };
	cluster_publish(c);
	assert_int_equal(c->world->model_bytes, CHUNKS * CHUNK_BYTES);
	for (uint64_t at = 0; at < c->world->model_bytes; at += MiB)
		(void)read_via(c, at / CHUNK_BYTES % 2 ? 2 : 0, at, MiB, FRAME_EXACT);
	(void)read_via(c, 1, 0, BLOCK_BYTES, FRAME_EXACT);
	cluster_quiet(c);
	assert_int_equal(cluster_gets(c), FILES);
	return c;
}

/* A reader is sent to the deputy, though the master calls the owner up, and an owner may take a minute. */
static void test_readers_are_not_held_up(void **state)
{
	struct cluster *c = copying_cluster();
	struct freeze freeze;

	(void)state;
	freeze_begin(&freeze, &c->nodes[0].worker);
	(void)read_via(c, 1, 2 * CHUNK_BYTES, BLOCK_BYTES, FRAME_EXACT);
	assert_true(view_hangs(view_peer(c->nodes[1].worker.view, 0)));
	assert_int_equal(cluster_gets(c), FILES + 1); /* the deputy's */
	freeze_end(&freeze);
	cluster_quiet(c);
	assert_int_equal(cluster_gets(c), FILES + 1);
	cluster_free(c);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_readers_are_not_held_up),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
