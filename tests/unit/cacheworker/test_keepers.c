/*
 * Workers that keep a whole volume and are named by no slot are asked before the origin, and are asked once for a
 * chunk and not once for each of its units. What is checked, by counting GETs and questions: what a dead owner's
 * deputy lacks comes from them.
 */
#include "tests/unit/cacheworker/cluster_world.h"

#include "cacheworker/copies.h"
#include "cacheworker/duty.h"
#include "cacheworker/retention.h"

#define FILES         14u
#define CAPACITY      (1 * GiB)
#define FILE_AT(c, i) world_offset_of((c)->world, i)

/* The master says so from now on; `i` has heard it when this returns. */
static void tell_keepers(struct cluster *c, uint32_t i, uint32_t *numbers, size_t n)
{
	const struct volume_id *volume = &table_info(c->world->table)->id.volume;
	Granary__SourceRetention source = GRANARY__SOURCE_RETENTION__INIT;
	Granary__SourceRetention *sources[] = { &source };
	Granary__Keepers keepers = GRANARY__KEEPERS__INIT;
	Granary__Retention retention = GRANARY__RETENTION__INIT;
	struct worker *w = &c->nodes[i].worker;
	uint16_t known[COPIES_KEEPERS];

	source.has_volume = true;
	source.volume = (ProtobufCBinaryData){ VOLUME_ID_LEN, (uint8_t *)(uintptr_t)volume->bytes };
	source.keepers = &keepers;
	keepers.workers = numbers;
	keepers.n_workers = n;
	retention.sources = sources;
	retention.n_sources = 1;
	pthread_mutex_lock(&c->world->lock);
	c->world->terms_len = granary__retention__pack(&retention, c->world->retention);
	pthread_mutex_unlock(&c->world->lock);
	retention_wake(w);
	test_wait(copies_keepers(w, volume, known) == n);
}

static uint64_t asked_by(struct cluster *c, uint32_t i)
{
	return counter_get(&c->nodes[i].worker.counters.peer_asked);
}

/* Worker 0 owns all; 1 keeps all of it, and is in no slot's list. */
static struct cluster *kept_cluster(uint32_t files)
{
	struct cluster *c = cluster_new_copies(FILES, MiB, CAPACITY, COPIES_EVERYWHERE);

	cluster_set_slots(c, 0, NONE, 2, NONE);
	cluster_publish(c);
	for (uint32_t i = 0; i < files; i++) {
		(void)cluster_read_via(
			c, 0, FILE_AT(c, i), BLOCK_BYTES, FRAME_EXACT); /* no neighbours */
		(void)cluster_read_via(c, 1, FILE_AT(c, i), BLOCK_BYTES, FRAME_EXACT);
	}
	cluster_quiet(c);
	assert_int_equal(cluster_gets(c), files);
	return c;
}

static void test_owner_died(void **state)
{
	struct cluster *c = kept_cluster(FILES);
	uint32_t keepers[] = { 2, 1 };

	(void)state;
	tell_keepers(c, 2, keepers, ARRAY_SIZE(keepers));
	node_stop(c, 0);
	cluster_set_state(c, 0, CLUSTER_DOWN);
	cluster_publish(c);
	cluster_read_all_via(c, 2, MiB, FRAME_LAST);
	cluster_quiet(c);
	assert_int_equal(cluster_gets(c), 0); /* of those that run */
	assert_int_equal(counter_get(&c->nodes[2].worker.counters.peer_units), FILES);
	cluster_free(c);
}

/* Its tier is lost, its slots are still its own: nobody's table says that another had them. */
static void test_owner_lost_its_tier(void **state)
{
	struct cluster *c = kept_cluster(FILES);
	uint32_t keepers[] = { 1 };
	char lost[160];

	(void)state;
	node_stop(c, 0);
	(void)snprintf(lost, sizeof(lost), "%s.lost", c->nodes[0].tier);
	assert_int_equal(rename(c->nodes[0].tier, lost), 0);
	node_start(c, 0);
	node_wait_joined(c, 0);
	cluster_publish(c);
	tell_keepers(c, 0, keepers, ARRAY_SIZE(keepers));
	cluster_read_all_via(c, 0, MiB, 0);
	cluster_quiet(c);
	assert_int_equal(cluster_gets(c), 0);
	cluster_free(c);
}

/* A cold epoch: what it does not have is known after one question for the chunk. */
static void test_asked_once(void **state)
{
	uint64_t began = clock_mono_ns();
	struct cluster *c = kept_cluster(2);
	uint32_t keepers[] = { 1 };
	uint64_t asked;

	(void)state;
	assert_true(c->world->model_bytes <= CHUNK_BYTES);
	tell_keepers(c, 0, keepers, ARRAY_SIZE(keepers));
	asked = asked_by(c, 0);
	for (uint32_t i = 2; i < FILES; i++) {
		(void)cluster_read_via(c, 0, FILE_AT(c, i), BLOCK_BYTES, FRAME_EXACT);
		node_quiet(c, 0);
	}
	/* Worker 2, which is the slot's deputy, has nothing at all, and may have said so before. */
	asked = asked_by(c, 0) - asked;
	assert_in_range(asked, 1, 2 * (1 + (clock_mono_ns() - began) / BARREN_NS));
	assert_int_equal(cluster_gets(c), FILES);
	cluster_free(c);
}

/* Numbers that are none, and more than are taken. */
static void test_hostile(void **state)
{
	struct cluster *c = cluster_new(2, MiB, CAPACITY);
	const struct volume_id *volume = &table_info(c->world->table)->id.volume;
	struct worker *w = &c->nodes[0].worker;
	uint32_t numbers[2 * COPIES_KEEPERS + 3] = { UINT32_MAX, PLACEMENT_NONE, PLACEMENT_MAX };
	struct holder holders[DUTY_HOLDERS_MAX];
	uint16_t known[COPIES_KEEPERS];

	(void)state;
	cluster_set_slots(c, 0, NONE, NONE, NONE);
	cluster_publish(c);
	for (uint32_t i = 0; i < 2 * COPIES_KEEPERS; i++)
		numbers[3 + i] = i; /* the first three are there */
	copies_note_keepers(w, volume, numbers, ARRAY_SIZE(numbers));
	assert_int_equal(copies_keepers(w, volume, known), COPIES_KEEPERS);
	for (uint64_t chunk = 0; chunk < 100; chunk++)
		assert_int_equal(worker_holders(w, volume, chunk, holders), 2);
	copies_note_keepers(w, volume, NULL, 0);
	assert_int_equal(worker_holders(w, volume, 0, holders), 0);
	cluster_free(c);
}

static void test_what_is_remembered(void **state)
{
	const struct chunk_id id = { .chunk = 7 };
	uint8_t bitmap[CHUNK_BITMAP_BYTES] = { 0 };
	struct barren barren;

	(void)state;
	assert_int_equal(barren_init(&barren), 0);
	assert_int_equal(barren_word_of(&barren, &id, 1, 0, CHUNK_BYTES), BARREN_UNKNOWN);
	bitmap[CHUNK_BITMAP_BYTES - 1] = 0x80; /* its last block */
	barren_note_some(&barren, &id, 1, bitmap);
	assert_int_equal(barren_word_of(&barren, &id, 1, 0, CHUNK_BYTES), BARREN_UNKNOWN);
	assert_int_equal(
		barren_word_of(&barren, &id, 1, 0, CHUNK_BYTES - PIECE_BYTES), BARREN_EMPTY);
	assert_int_equal(barren_word_of(&barren, &id, 1, 0, 1), BARREN_EMPTY);
	assert_int_equal(barren_word_of(&barren, &id, 1, CHUNK_BYTES - 1, 1), BARREN_UNKNOWN);
	assert_int_equal(barren_word_of(&barren, &id, 2, 0, 1), BARREN_UNKNOWN);
	barren_note(&barren, &id, 2, BARREN_SILENT);
	assert_int_equal(barren_word_of(&barren, &id, 2, 0, CHUNK_BYTES), BARREN_SILENT);
	barren_note(&barren, &id, 1, BARREN_EMPTY);
	assert_int_equal(barren_word_of(&barren, &id, 1, CHUNK_BYTES - 1, 1), BARREN_EMPTY);
	barren_forget(&barren, &id);
	assert_int_equal(barren_word_of(&barren, &id, 1, 0, 1), BARREN_UNKNOWN);
	barren_release(&barren);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_owner_died),
		cmocka_unit_test(test_owner_lost_its_tier),
		cmocka_unit_test(test_asked_once),
		cmocka_unit_test(test_hostile),
		cmocka_unit_test(test_what_is_remembered),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
