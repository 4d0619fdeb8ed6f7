/* What is told of the slots: differences, which are made once for all who ask, and the whole table where one is too large. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/err.h"
#include "master/members.h"
#include "master/slots.h"

static char dir[64];
static struct store *store;
static struct members members;

static int setup(void **state)
{
	const struct members_config config = { .out_after_ns = 20 * CLOCK_SECOND };
	struct err e = ERR_INIT;
	char state_dir[96];

	(void)state;
	(void)snprintf(dir, sizeof(dir), "/var/tmp/granary-slots.XXXXXX");
	if (!mkdtemp(dir))
		return -1;
	(void)snprintf(state_dir, sizeof(state_dir), "%s/store", dir);
	if (store_rocksdb_open(state_dir, &store, &e) < 0)
		return -1;
	return members_init(&members, &config, CLOCK_SECOND);
}

static int teardown(void **state)
{
	char command[128];

	(void)state;
	members_release(&members);
	store_close(store);
	(void)snprintf(command, sizeof(command), "rm -rf %s", dir);
	return system(command);
}

/* Of one in `one_in` slots other numbers, none of which was there. */
static struct slots_table *next_table(const struct slots *slots, uint32_t one_in, uint16_t base)
{
	struct slots_table *table = slots_table_copy(slots->table);

	assert_non_null(table);
	for (uint32_t s = 0; s < PLACEMENT_SLOTS; s += one_in)
		table->table.slots[s] = (struct placement_slot){ base, (uint16_t)(base + 1),
			{ (uint16_t)(base + 2), (uint16_t)(base + 3) } };
	return table;
}

static void publish(struct slots *slots, uint32_t one_in)
{
	static const uint64_t nobody[PLACEMENT_MAX / 64];

	slots_publish(slots, next_table(slots, one_in, (uint16_t)(slots->sequence * 4)), nobody);
}

/* Is who knows that version told the difference? */
static bool told_difference(struct slots *slots, uint64_t sequence)
{
	struct slots_message *message = slots_message(slots, &members, slots->epoch, sequence);
	struct net_payload payload;
	bool difference;

	assert_non_null(message);
	difference = !message->table;
	payload = slots_payload(message);
	payload.release(payload.arg);
	return difference;
}

/* What is too much to be told as a difference is made once for all who ask from there; a step of which there is none leaves
 * room for those after it. */
static void test_large_differences(void **state)
{
	struct slots slots;
	struct err e = ERR_INIT;

	(void)state;
	assert_int_equal(slots_open(store, 7, &slots, &e), 0);
	publish(&slots, 2);
	publish(&slots, 2);
	assert_true(told_difference(&slots, slots.sequence - 1));
	assert_false(told_difference(&slots, slots.sequence - 2));
	assert_ptr_equal(slots.made[2], slots.made[SLOTS_STEPS]);
	while (slots.delta_bytes + SLOTS_DELTA / 2 < SLOTS_DELTAS)
		publish(&slots, 2);
	publish(&slots, 1);
	assert_false(told_difference(&slots, slots.sequence - 1));
	publish(&slots, 2);
	assert_true(told_difference(&slots, slots.sequence - 1));
	slots_release(&slots);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_large_differences, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
