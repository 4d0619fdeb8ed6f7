/* Who is in the cluster, by a clock of the test's own: states, who is put out and who never, numbers, twins, records. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/units.h"
#include "master/members.h"

#define OUT   (20 * CLOCK_SECOND)
#define GRACE (10 * CLOCK_SECOND)

static struct members all;
static uint64_t now;
static unsigned int changes;
static unsigned int moves;

static void on_change(void *arg, const struct member *member, bool moved)
{
	(void)arg;
	(void)member;
	changes++;
	moves += moved;
}

static int setup(void **state)
{
	const struct members_config config = { .out_after_ns = OUT, .grace_ns = GRACE };

	(void)state;
	now = 1000 * CLOCK_SECOND;
	changes = moves = 0;
	if (members_init(&all, &config, now) < 0)
		return -1;
	all.on_change = on_change;
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	members_release(&all);
	return 0;
}

/* Worker `i` as it says itself; its address is its own, its host, too. */
static struct member_join make_join(uint64_t i, uint64_t run)
{
	static char names[8][16];
	static char addresses[8][32];
	struct member_join join = { .id = 0x100 + i,
		.run = run,
		.name = names[i % 8],
		.domain = "",
		.version = "1.0",
		.addresses = { addresses[i % 8] },
		.n_addresses = 1,
		.capacity = 100 * GiB };

	(void)snprintf(names[i % 8], sizeof(names[0]), "w%u", (unsigned int)i);
	(void)snprintf(
		addresses[i % 8], sizeof(addresses[0]), "tcp:10.0.0.%u:7000", (unsigned int)i);
	join.host[0] = (uint8_t)(i + 1);
	return join;
}

static int try_join(const struct member_join *join, struct member **ret_member, struct err *e)
{
	*e = ERR_INIT;
	return members_join(&all, join, now, (int64_t)(now / CLOCK_SECOND), ret_member, e);
}

static struct member *enter(uint64_t i, uint64_t run)
{
	struct member_join join = make_join(i, run);
	struct member *m = NULL;
	struct err e;

	assert_int_equal(member_join_check(&join, &e), 0);
	if (try_join(&join, &m, &e) < 0)
		fail_msg("%s", e.text);
	return m;
}

static struct member *say(uint64_t i, uint64_t run)
{
	const struct member_beat beat = { .id = 0x100 + i, .run = run };

	return members_beat(&all, &beat, now);
}

/* Seconds pass; of `alive`, whose bits are numbers with run 1, each beats. */
static void pass(unsigned int seconds, uint32_t alive)
{
	for (unsigned int s = 0; s < 2 * seconds; s++) {
		now += CLOCK_SECOND / 2;
		for (uint32_t i = 0; i < 8; i++)
			if (alive >> i & 1)
				assert_non_null(say(i, 1));
		members_look(&all, now);
	}
}

static enum cluster_state state_of(uint32_t number)
{
	assert_non_null(all.all[number]);
	return all.all[number]->state;
}

/* One that is late again and again calls nobody down for it; who is dead is found out all the same. */
static void test_late_again_and_again(void **state)
{
	(void)state;
	for (uint64_t i = 0; i < 2; i++)
		(void)enter(i, 1);
	for (unsigned int turn = 0; turn < 6; turn++) {
		for (unsigned int look = 0; look < 4; look++) {
			now += CLOCK_SECOND / 4;
			members_look(&all, now);
			assert_int_equal(all.all[0]->state, CLUSTER_UP);
		}
		now += 5 * CLOCK_SECOND;
		assert_non_null(say(0, 1));
	}
	assert_int_equal(all.all[1]->state, CLUSTER_DOWN);
}

static void test_states(void **state)
{
	struct member *m;

	(void)state;
	for (uint64_t i = 0; i < 3; i++)
		assert_int_equal(enter(i, 1)->number, i);
	assert_int_equal(all.n, 3);
	assert_int_equal(moves, 3);
	pass(10, 7);
	assert_int_equal(changes, 3); /* nothing happened */
	all.all[0]->served_rate = all.all[0]->in_flight = 7;
	pass(3, 6);
	assert_int_equal(state_of(0), CLUSTER_UP);
	pass(1, 6);
	assert_int_equal(state_of(0), CLUSTER_DOWN);
	assert_int_equal(all.all[0]->served_rate, 0); /* not what it said last */
	assert_int_equal(all.all[0]->in_flight, 0);
	assert_int_equal(moves, 3); /* its slots stay */
	assert_ptr_equal(say(0, 1), all.all[0]);
	assert_int_equal(state_of(0), CLUSTER_UP);
	pass(23, 6);
	assert_int_equal(state_of(0), CLUSTER_DOWN);
	assert_int_equal(moves, 3);
	pass(2, 6);
	assert_int_equal(state_of(0), CLUSTER_OUT);
	assert_int_equal(moves, 4);
	assert_false(all.all[0]->stored);
	/* It comes back by its beats alone, with its number. */
	m = say(0, 1);
	assert_non_null(m);
	assert_int_equal(m->state, CLUSTER_UP);
	assert_int_equal(moves, 5);
	/* Another start of it must join first; then it is who it was. */
	assert_null(say(0, 2));
	assert_null(say(9, 1));
	assert_int_equal(enter(0, 2)->number, 0);
	assert_non_null(say(0, 2));
	assert_null(say(0, 1));
	assert_int_equal(moves, 5); /* as it was: nothing moves */
}

/* The last one sleeps for days, and so do all while this master hears nobody. */
static void test_never_out(void **state)
{
	(void)state;
	(void)enter(0, 1);
	pass(100, 0);
	assert_int_equal(state_of(0), CLUSTER_DOWN);
	(void)enter(1, 1);
	(void)enter(2, 1);
	assert_non_null(say(0, 1));
	pass(5, 7);
	pass(100, 0);
	for (uint32_t i = 0; i < 3; i++)
		assert_int_equal(state_of(i), CLUSTER_DOWN);
	/* One comes back: for the others the time begins now. */
	pass(19, 1);
	assert_int_equal(state_of(1), CLUSTER_DOWN);
	assert_int_equal(state_of(2), CLUSTER_DOWN);
	pass(3, 1);
	assert_int_equal(state_of(1), CLUSTER_OUT);
	assert_int_equal(state_of(2), CLUSTER_OUT);
	pass(100, 0);
	assert_int_equal(state_of(0), CLUSTER_DOWN); /* it alone owns anything */
}

/* What went together is out together: one new table. */
static void test_rack(void **state)
{
	(void)state;
	for (uint64_t i = 0; i < 4; i++)
		(void)enter(i, 1);
	pass(5, 15);
	now += CLOCK_SECOND / 2;
	assert_non_null(say(2, 1)); /* it spoke last, and 1 before it */
	moves = 0;
	for (unsigned int s = 0; s < 60 && moves == 0; s++) {
		now += CLOCK_SECOND / 2;
		assert_non_null(say(0, 1));
		members_look(&all, now);
	}
	assert_int_equal(moves, 3);
	for (uint32_t i = 1; i < 4; i++)
		assert_int_equal(state_of(i), CLUSTER_OUT);
}

/* A master that did not run for a while blames nobody. */
static void test_stopped_master(void **state)
{
	(void)state;
	(void)enter(0, 1);
	(void)enter(1, 1);
	pass(2, 3);
	now += 500 * CLOCK_SECOND;
	members_look(&all, now);
	assert_int_equal(state_of(0), CLUSTER_UP);
	assert_int_equal(state_of(1), CLUSTER_UP);
	pass(2, 1);
	assert_int_equal(state_of(1), CLUSTER_UP);
	pass(3, 1);
	assert_int_equal(state_of(1), CLUSTER_DOWN);
}

static void test_twins(void **state)
{
	struct member_join join = make_join(0, 2);
	struct member *m = NULL;
	struct err e;

	(void)state;
	(void)enter(0, 1);
	(void)enter(1, 1);
	/* The same id elsewhere, while the first is alive. */
	join.host[0] = 99;
	join.addresses[0] = "tcp:10.0.0.99:7000";
	assert_int_equal(try_join(&join, &m, &e), -EEXIST);
	assert_non_null(strstr(e.text, "10.0.0.99"));
	assert_non_null(strstr(e.text, "10.0.0.0"));
	/* Its machine moved: once the first is silent it is let in, as who it was. */
	pass(4, 2);
	assert_int_equal(try_join(&join, &m, &e), 0);
	assert_int_equal(m->number, 0);
	assert_string_equal(m->addresses[0], "tcp:10.0.0.99:7000");
	/* Another's address, of one that is alive on another host. */
	join = make_join(5, 1);
	join.addresses[0] = "tcp:10.0.0.1:7000";
	assert_int_equal(try_join(&join, &m, &e), -EEXIST);
	assert_non_null(strstr(e.text, "--advertise"));
	/* The same name is nothing bad, but has to be told apart. */
	join = make_join(6, 1);
	join.name = "w1";
	assert_int_equal(try_join(&join, &m, &e), 0);
	assert_int_equal(members_find(&all, "w1", &m, &e), -EEXIST);
	assert_int_equal(members_find(&all, "2", &m, &e), 0);
	assert_int_equal(m->id, 0x106);
	assert_int_equal(members_find(&all, "0000000000000101", &m, &e), 0);
	assert_int_equal(m->number, 1);
	assert_int_equal(members_find(&all, "w9", &m, &e), -ENOENT);
}

/* A tier that was made again: another id at the same place is the same worker; of loopback and unix sockets only on the
 * same host. */
static void test_stands_in(void **state)
{
	struct member_join join = make_join(0, 1);
	struct member *m = NULL;
	struct err e;

	(void)state;
	join.addresses[0] = "unix:/run/w";
	assert_int_equal(try_join(&join, &m, &e), 0);
	moves = 0;
	join.id = 0x777;
	join.run = 2;
	assert_int_equal(try_join(&join, &m, &e), 0);
	assert_int_equal(m->number, 0);
	assert_int_equal(all.n, 1);
	assert_int_equal(moves, 0);
	assert_true(m->replaces);
	assert_int_equal(m->replaced, 0x100);
	assert_null(members_by_id(&all, 0x100));
	join.id = 0x888;
	join.host[0] = 50;
	assert_int_equal(try_join(&join, &m, &e), 0);
	assert_int_equal(m->number, 1);
}

/* What the only one of a cluster of an older version becomes. */
static void test_seed(void **state)
{
	struct member *m;

	(void)state;
	assert_true(members_has_nameless(&all)); /* somebody says it */
	assert_int_equal(members_seed(&all, now), 0);
	assert_true(members_has_nameless(&all));
	assert_int_equal(all.all[0]->state, CLUSTER_UP);
	m = enter(3, 1);
	assert_int_equal(m->number, 0);
	assert_int_equal(m->id, 0x103);
	assert_false(members_has_nameless(&all));
	assert_true(m->replaces);
	assert_int_equal(m->replaced, 0);
	assert_false(m->stored);
	assert_int_equal(enter(4, 1)->number, 1);
}

static void counted(struct member *m, uint32_t drain, uint64_t left)
{
	const struct member_beat beat = { .id = m->id,
		.run = m->run,
		.has_only_copies = true,
		.only_copies = left,
		.drain = drain };

	assert_non_null(members_beat(&all, &beat, now));
}

static void drained(struct member *m, uint64_t left)
{
	counted(m, m->drain_number, left);
}

static void test_drain(void **state)
{
	struct placement_worker placed[PLACEMENT_MAX];
	struct member_join join;
	struct member *a;
	struct member *b;
	struct err e;
	char size[16];
	uint32_t before;
	bool any;

	(void)state;
	a = enter(0, 1);
	assert_int_equal(members_drain(&all, a, true, &e), -EBUSY); /* nobody else */
	b = enter(1, 1);
	assert_int_equal(members_drain(&all, a, true, &e), 0);
	assert_int_equal(a->state, CLUSTER_DRAINING);
	assert_int_equal(members_placement(&all, placed, &any), 2);
	assert_int_equal(placed[0].weight, 0);
	assert_int_equal(placed[1].weight, 100);
	assert_true(any);
	assert_int_equal(members_drain(&all, b, true, &e), -EBUSY);
	assert_int_equal(members_remove(&all, b, 0, true, 1, &e), -EBUSY); /* the last that owns */
	/* What it says before it was told that it is drained does not count. */
	counted(a, 0, 0);
	assert_false(member_is_drained(a));
	assert_int_equal(members_remove(&all, a, 0, false, 1, &e), -EBUSY);
	assert_non_null(strstr(e.text, "still counting"));
	drained(a, 4096);
	assert_int_equal(members_remove(&all, a, 0, false, 1, &e), -EBUSY);
	assert_non_null(strstr(e.text, units_size(4096, size, sizeof(size))));
	drained(a, 0);
	assert_true(member_is_drained(a));
	assert_string_equal(member_state_name(a), "drained");
	before = a->drain_number;
	assert_int_equal(members_drain(&all, a, false, &e), 0);
	assert_int_equal(a->state, CLUSTER_UP);
	assert_int_equal(members_drain(&all, a, true, &e), 0);
	/* Within a beat: it does not know of it, and tells what it counted before it owned slots again. */
	counted(a, before, 0);
	assert_false(member_is_drained(a));
	assert_false(a->counted);
	drained(a, 0);
	assert_true(member_is_drained(a));
	assert_int_equal(members_remove(&all, a, 4096, false, 500, &e), 0);
	assert_int_equal(all.n, 1);
	/* What stands in for one that was drained is not. */
	a = enter(2, 1);
	assert_int_equal(members_drain(&all, a, true, &e), 0);
	join = make_join(2, 2);
	join.id = 0x999;
	moves = 0;
	assert_int_equal(try_join(&join, &b, &e), 0);
	assert_ptr_equal(a, b);
	assert_int_equal(b->state, CLUSTER_UP);
	assert_int_equal(moves, 1);
}

/* A number rests for a day; the same start of a removed worker stays out, another one is let in. */
static void test_removed(void **state)
{
	struct member_join join = make_join(0, 1);
	uint16_t numbers[4];
	struct member *m;
	struct err e;
	char size[16];
	int64_t then;

	(void)state;
	m = enter(0, 1);
	(void)enter(1, 1);
	assert_int_equal(members_remove(&all, m, 0, false, 1, &e), -EBUSY);
	assert_non_null(strstr(e.text, "drain w0 --wait"));
	pass(5, 2);
	assert_int_equal(members_remove(&all, m, 1 << 20, false, 1, &e), -EBUSY);
	assert_non_null(strstr(e.text, units_size(MiB, size, sizeof(size))));
	then = (int64_t)(now / CLOCK_SECOND);
	assert_int_equal(members_remove(&all, m, 1 << 20, true, then, &e), 0);
	assert_null(say(0, 1));
	assert_int_equal(try_join(&join, &m, &e), -EPERM);
	assert_int_equal(enter(2, 1)->number, 2); /* not 0 */
	join.run = 2;
	moves = 0;
	assert_int_equal(try_join(&join, &m, &e), 0);
	assert_int_equal(m->number, 0);
	assert_int_equal(all.n, 3);
	assert_int_equal(moves, 1); /* it is to own its share */
	assert_int_equal(members_remove(&all, m, 0, true, then, &e), 0);
	m->stored = true;
	assert_int_equal(members_rested(&all, then + 3600, numbers, 4), 0);
	assert_int_equal(members_rested(&all, then + MEMBER_REST_S, numbers, 4), 1);
	assert_int_equal(numbers[0], 0);
	assert_int_equal(enter(7, 1)->number, 0);
}

static void test_weights(void **state)
{
	struct member_join join = make_join(0, 1);
	struct member *m;
	struct err e;

	(void)state;
	assert_int_equal(enter(0, 1)->weight, 100);
	moves = 0;
	join.capacity = 95 * GiB; /* free bytes come and go */
	assert_int_equal(try_join(&join, &m, &e), 0);
	assert_int_equal(m->weight, 100);
	assert_int_equal(moves, 0);
	join.capacity = 50 * GiB;
	assert_int_equal(try_join(&join, &m, &e), 0);
	assert_int_equal(m->weight, 50);
	join.weight = 51; /* is what was asked for */
	assert_int_equal(try_join(&join, &m, &e), 0);
	assert_int_equal(m->weight, 51);
	join.weight = 0;
	join.capacity = UINT64_MAX;
	assert_int_equal(try_join(&join, &m, &e), 0);
	assert_int_equal(m->capacity, INT64_MAX);
	join.capacity = 5;
	assert_int_equal(try_join(&join, &m, &e), 0);
	assert_int_equal(m->weight, 1);
	/* Domains: those of one name are one; without a name it is the host. */
	assert_int_not_equal(enter(1, 1)->domain, m->domain);
	join.domain = "rack-1";
	moves = 0;
	assert_int_equal(try_join(&join, &m, &e), 0);
	assert_int_equal(moves, 1);
	join = make_join(1, 1);
	join.domain = "rack-1";
	assert_int_equal(try_join(&join, &m, &e), 0);
	assert_int_equal(m->domain, all.all[0]->domain);
}

static void test_refused(void **state)
{
	static const char *const names[] = { "", "a b", "a/b", "\xff",
		"0123456789012345678901234567890123456789012345678901234567890123" };
	struct member_join join;
	struct err e = ERR_INIT;

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		join = make_join(0, 1);
		join.name = names[i];
		assert_int_equal(member_join_check(&join, &e), -EINVAL);
	}
	join = make_join(0, 1);
	join.domain = "no domain";
	assert_int_equal(member_join_check(&join, &e), -EINVAL);
	join = make_join(0, 1);
	join.id = 0;
	assert_int_equal(member_join_check(&join, &e), -EINVAL);
	join = make_join(0, 1);
	join.n_addresses = 0;
	assert_int_equal(member_join_check(&join, &e), -EINVAL);
	join = make_join(0, 1);
	join.addresses[0] = "10.0.0.1";
	assert_int_equal(member_join_check(&join, &e), -EINVAL);
	join.addresses[0] = "unix:/\xff\xfe";
	assert_int_equal(member_join_check(&join, &e), -EINVAL);
}

/* Whatever is said in beats: numbers beyond all bounds are passed over. */
static void test_wild_beats(void **state)
{
	const uint32_t hot[] = { 5, 1000, 70000, 1, 7 };
	struct member_beat beat = { .id = 0x100, .run = 1, .hot = hot, .n_hot = 5 };
	struct member *m;

	(void)state;
	m = enter(0, 1);
	beat.served_bytes = 1000;
	now += CLOCK_SECOND;
	assert_ptr_equal(members_beat(&all, &beat, now), m);
	assert_int_equal(m->n_hot, 1);
	assert_int_equal(m->hot[0], 5);
	assert_int_equal(m->served_rate, 1000);
	beat.served_bytes = 10; /* fell */
	now += CLOCK_SECOND;
	assert_non_null(members_beat(&all, &beat, now));
	assert_int_equal(m->served_bytes, 10);
	beat.served_bytes = UINT64_MAX;
	now += 1;
	assert_non_null(members_beat(&all, &beat, now));
	assert_true(m->served_rate > INT64_MAX / 4 && m->served_rate <= INT64_MAX);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
	const struct CMUnitTest tests[] = {
		CASE(test_late_again_and_again),
		CASE(test_states),
		CASE(test_never_out),
		CASE(test_rack),
		CASE(test_stopped_master),
		CASE(test_twins),
		CASE(test_stands_in),
		CASE(test_seed),
		CASE(test_drain),
		CASE(test_removed),
		CASE(test_weights),
		CASE(test_refused),
		CASE(test_wild_beats),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
