/* Lanes over the fake implementation: answers in all orders, faults of the device, and the fence. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <errno.h>
#include <string.h>
#include "base/clock.h"
#include "tests/unit/net/lane_world.h"
#include "net/lane_fake.h"
#include "tests/clock/test_clock.h"

static int setup(void **state)
{
	static struct lane_world world;

	lane_fake_set_faults(&(struct lane_fake_faults){ 0 });
	lane_fake_set_device(true);
	lane_world_start(&world, &lane_fake, NULL);
	*state = &world;
	return 0;
}

static int teardown(void **state)
{
	struct lane_world *w = *state;

	lane_world_check(w);
	assert_int_equal(w->late, 0);
	assert_int_equal(w->wrong, 0);
	lane_world_stop(w);
	assert_int_equal(lane_fake_held(), 0);
	return 0;
}

struct looking {
	const struct lane_world *world;
	struct lane_asker_state *ret;
};

static void on_look(void *arg)
{
	const struct looking *l = arg;

	lane_asker_look(l->world->asker, l->ret);
}

/* The asker is the loop's. */
static void look(struct lane_world *w, struct lane_asker_state *ret_state)
{
	loop_call(w->loop, on_look, &(struct looking){ w, ret_state });
}

static void test_replies(void **state)
{
	struct lane_world *w = *state;

	assert_true(lane_world_open(w));
	lane_world_replies(w, 500);
	assert_int_equal(w->by_lane, 500);
	assert_int_equal(w->by_tcp, 0);
}

/* Writes of one lane overtake each other. */
static void test_late(void **state)
{
	struct lane_world *w = *state;

	lane_fake_set_faults(&(struct lane_fake_faults){ .seed = 7, .delay_ns = 20 * CLOCK_MS });
	assert_true(lane_world_open(w));
	lane_world_replies(w, 300);
	assert_int_equal(w->by_lane, 300);
}

/* The write of a cancelled request arrives in its own time, and frees the destination. */
static void test_cancelled(void **state)
{
	struct lane_world *w = *state;
	struct lane_asker_state s;

	lane_fake_set_faults(&(struct lane_fake_faults){ .seed = 3, .delay_ns = CLOCK_MS });
	assert_true(lane_world_open(w));
	w->cancel = 100;
	lane_world_replies(w, 300);
	assert_true(w->cancelled > 0);
	look(w, &s);
	assert_int_equal(w->by_lane + w->by_tcp + w->cancelled, 300);
}

static void fault_rounds(
	struct lane_world *w, const struct lane_fake_faults *faults, unsigned int rounds)
{
	struct lane_fake_faults f = *faults;
	struct lane_asker_state s;
	uint64_t breaks = 0;

	for (unsigned int i = 0; i < rounds; i++) {
		f.seed = i + 1;
		lane_fake_set_faults(&f);
		if (lane_world_open(w))
			lane_world_replies(w, 60);
		look(w, &s);
		breaks += s.breaks;
		lane_world_cut(w);
		assert_int_equal(w->late, 0);
		assert_int_equal(w->wrong, 0);
	}
	assert_true(breaks > 0);
	assert_true(w->by_lane > 0 && w->by_tcp > 0);
}

/* Whatever fails: each answer is delivered with its own bytes, and nothing is written where nothing may be. */
static void test_failed(void **state)
{
	fault_rounds(*state, &(struct lane_fake_faults){ .delay_ns = CLOCK_MS, .fail = 20 }, 20);
}

static void test_failed_though_written(void **state)
{
	fault_rounds(
		*state, &(struct lane_fake_faults){ .delay_ns = CLOCK_MS, .fail_written = 20 }, 20);
}

static void test_twice(void **state)
{
	struct lane_world *w = *state;
	struct lane_asker_state s;

	assert_true(lane_world_open(w));
	lane_fake_set_faults(&(struct lane_fake_faults){ .seed = 1, .twice = 1000 });
	lane_world_replies(w, 60);
	look(w, &s);
	assert_int_equal(s.breaks, 1);
	assert_int_equal(s.cause, LANE_PROTOCOL_CAUSE);
}

static void test_no_device(void **state)
{
	struct lane_world *w = *state;
	struct lane_asker_state s;

	lane_fake_set_device(false);
	assert_false(lane_world_open(w));
	look(w, &s);
	assert_int_equal(s.cause, LANE_DEVICE_CAUSE);
	lane_world_replies(w, 10);
	assert_int_equal(w->by_tcp, 10);
}

/* ---- its life -------------------------------------------------------------------------------- */

static void watch(struct lane_world *w)
{
	lane_asker_watch(w->asker);
}

static void want(struct lane_world *w)
{
	lane_asker_want(w->asker);
}

static bool is_off(struct lane_world *w)
{
	struct lane_asker_state s;

	look(w, &s);
	return !s.open && !w->answerer;
}

static bool always(struct lane_world *w)
{
	(void)w;
	return true;
}

static void broken_by_peer(struct lane_world *w)
{
	lane_asker_broken(w->asker, w->number, LANE_PORT_CAUSE);
}

/* Off for 30 s, then for twice as long, to 10 min; what worked for long is off for 30 s again. */
static void test_rest(void **state)
{
	static const uint64_t rests[] = { 30, 60, 120, 240, 480, 600, 600 };
	struct lane_world *w = *state;
	struct lane_asker_state s;

	for (size_t i = 0; i < ARRAY_SIZE(rests); i++) {
		assert_true(lane_world_open(w));
		lane_world_until(w, broken_by_peer, is_off);
		look(w, &s);
		assert_int_equal(s.breaks, i + 1);
		assert_int_equal(s.cause, LANE_PORT_CAUSE);
		test_advance((rests[i] - 1) * CLOCK_SECOND);
		lane_world_until(w, want, always);
		look(w, &s);
		assert_int_equal(s.lane, i + 1); /* not yet */
		test_advance(2 * CLOCK_SECOND);
	}
	assert_true(lane_world_open(w));
	test_advance(601 * CLOCK_SECOND);
	lane_world_until(w, broken_by_peer, is_off);
	test_advance(31 * CLOCK_SECOND);
	assert_true(lane_world_open(w));
}

static void test_idle(void **state)
{
	struct lane_world *w = *state;
	struct lane_asker_state s;

	assert_true(lane_world_open(w));
	lane_world_replies(w, 1);
	lane_world_until(w, watch, always);
	test_advance(59 * CLOCK_SECOND);
	lane_world_until(w, watch, always);
	look(w, &s);
	assert_true(s.open);
	test_advance(2 * CLOCK_SECOND);
	lane_world_until(w, watch, is_off);
	look(w, &s);
	assert_int_equal(s.breaks, 0);
	/* Not at rest. */
	assert_true(lane_world_open(w));
}

/* The first write's immediate is lost: the lane is not used. */
static void test_unproven(void **state)
{
	struct lane_world *w = *state;
	struct lane_asker_state s;

	lane_fake_set_faults(&(struct lane_fake_faults){ .seed = 1, .lose = 1000 });
	lane_world_until(w, want, always);
	test_advance(6 * CLOCK_SECOND);
	lane_world_replies(w, 10);
	assert_int_equal(w->by_tcp, 10);
	lane_world_until(w, watch, is_off);
	look(w, &s);
	assert_int_equal(s.cause, LANE_PROBE_CAUSE);
}

/* What a peer sends may be anything; of an earlier lane it means nothing. */
static void test_ends(void **state)
{
	struct lane_end well = { .qpn = 17, .psn = 0xffffff, .mtu = 5 };
	struct lane_end bad[] = { well, well, well, well, well };

	(void)state;
	assert_true(lane_end_valid(&well));
	bad[0].mtu = 0;
	bad[1].mtu = 6;
	bad[2].qpn = 1;
	bad[3].qpn = 0x1000000;
	bad[4].psn = 0x1000000;
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
		assert_false(lane_end_valid(&bad[i]));
}

static void words_of_earlier(struct lane_world *w)
{
	struct lane_end end = { .qpn = 17, .mtu = 3 };

	lane_asker_broken(w->asker, (uint8_t)(w->number - 1), LANE_PORT_CAUSE);
	lane_asker_opened(w->asker, (uint8_t)(w->number - 1), &end);
}

static void opened_again(struct lane_world *w)
{
	lane_asker_opened(w->asker, w->number, &w->ends[1]);
}

static void broken_by_nonsense(struct lane_world *w)
{
	lane_asker_broken(w->asker, w->number, (enum lane_cause)200);
}

static void test_words(void **state)
{
	struct lane_world *w = *state;
	struct lane_asker_state s;

	assert_true(lane_world_open(w));
	lane_world_until(w, words_of_earlier, always);
	look(w, &s);
	assert_true(s.open);
	lane_world_until(w, opened_again, is_off);
	look(w, &s);
	assert_int_equal(s.cause, LANE_PROTOCOL_CAUSE);
	test_advance(31 * CLOCK_SECOND);
	assert_true(lane_world_open(w));
	lane_world_until(w, broken_by_nonsense, always);
	look(w, &s);
	assert_int_equal(s.cause, LANE_PEER_CAUSE);
}

/* A write with another cookie proves nothing. */
static void test_other_probe(void **state)
{
	struct lane_world *w = *state;
	struct lane_asker_state s;

	w->probe = 5;
	assert_false(lane_world_open(w));
	look(w, &s);
	assert_int_equal(s.cause, LANE_PROTOCOL_CAUSE);
}

static void test_opened_twice(void **state)
{
	struct lane_world *w = *state;
	struct lane_asker_state s;

	w->opened_again = 1;
	assert_false(lane_world_open(w));
	look(w, &s);
	assert_int_equal(s.cause, LANE_PROTOCOL_CAUSE);
}

static void ask(struct lane_world *w, unsigned int i)
{
	struct lane_world_slot *slot = &w->slots[i];

	slot->bytes = LANE_WORLD_BYTES;
	assert_int_equal(
		lane_asker_ask(w->asker, slot, (char *)w->land.base + (size_t)i * LANE_WORLD_BYTES,
			LANE_WORLD_BYTES, &slot->destination),
		0);
	slot->used = true;
	slot->cancelled = true; /* no caller waits for it */
}

static void cancel_three(struct lane_world *w)
{
	struct lane_asker_state s;

	for (unsigned int i = 0; i < 3; i++) {
		ask(w, i);
		look(w, &s);
		assert_int_equal(s.breaks, 0);
		lane_asker_cancel(w->asker, &w->slots[i].destination);
	}
}

/* An eighth of the share is in quarantine, and a little more. */
static void test_quarantine(void **state)
{
	struct lane_world *w = *state;
	struct lane_asker_state s;

	assert_true(lane_world_open(w));
	lane_world_until(w, cancel_three, is_off);
	look(w, &s);
	assert_int_equal(s.cause, LANE_QUARANTINE_CAUSE);
	assert_int_equal(s.quarantined, 0);
}

static void headers_while_fenced(struct lane_world *w)
{
	ask(w, 0);
	ask(w, 1);
	broken_by_peer(w);
	lane_asker_header(w->asker, &w->slots[0].destination, false);
	assert_false(w->slots[0].used); /* its bytes come by TCP */
	lane_asker_header(w->asker, &w->slots[1].destination, true);
	assert_true(w->slots[1].used);
}

static void test_headers_while_fenced(void **state)
{
	struct lane_world *w = *state;

	assert_true(lane_world_open(w));
	lane_world_until(w, headers_while_fenced, is_off);
	assert_false(w->slots[1].used);
}

static void ask_and_cancel(struct lane_world *w)
{
	struct lane_world_slot *slot = &w->slots[0];

	assert_int_equal(lane_asker_ask(w->asker, slot, w->land.base, 1, &slot->destination), 0);
	slot->used = true;
	slot->cancelled = true;
	lane_asker_cancel(w->asker, &slot->destination);
}

/* The answer of a cancelled request never comes: a lane that is not needed otherwise is closed, and its memory is free. */
static void test_idle_quarantine(void **state)
{
	struct lane_world *w = *state;
	struct lane_asker_state s;

	assert_true(lane_world_open(w));
	lane_world_until(w, ask_and_cancel, always);
	look(w, &s);
	assert_int_equal(s.quarantined, 1);
	lane_world_until(w, watch, always);
	test_advance(61 * CLOCK_SECOND);
	lane_world_until(w, watch, is_off);
	look(w, &s);
	assert_int_equal(s.quarantined, 0);
	assert_int_equal(s.breaks, 0);
}

/* ---- the fence ------------------------------------------------------------------------------- */

struct pair;

struct pair_id {
	struct pair *pair;
	unsigned int i;
};

struct pair {
	struct loop *loop;
	const struct lane_ops *ops;
	struct lane *lanes[2];
	struct lane_end ends[2];
	unsigned int opened;
	unsigned int immediates;
	unsigned int well;
	unsigned int failed;
	bool connected;
	bool broken[2];
	bool closed[2];
	struct pair_id ids[2];
	struct lane_memory land;
	struct lane_memory serve;
};

static unsigned char land[4096];
static unsigned char serve[4096];

static struct pair *pair_of(void *arg, unsigned int *ret_i)
{
	struct pair_id *id = arg;

	*ret_i = id->i;
	return id->pair;
}

static void on_open(void *arg, enum lane_cause cause, const struct lane_end *own)
{
	unsigned int i;
	struct pair *p = pair_of(arg, &i);

	assert_int_equal(cause, LANE_WELL);
	p->ends[i] = *own;
	p->opened++;
}

static void on_connected(void *arg)
{
	unsigned int i;

	pair_of(arg, &i)->connected = true;
}

static void on_immediate(void *arg, uint32_t cookie)
{
	unsigned int i;

	(void)cookie;
	pair_of(arg, &i)->immediates++;
}

static void on_written(void *arg, void *context, bool well)
{
	unsigned int i;
	struct pair *p = pair_of(arg, &i);

	(void)context;
	p->well += well;
	p->failed += !well;
}

static void on_broken(void *arg, enum lane_cause cause)
{
	unsigned int i;
	struct pair *p = pair_of(arg, &i);

	assert_int_not_equal(cause, LANE_WELL);
	p->broken[i] = true;
}

static void on_closed(void *arg)
{
	unsigned int i;
	struct pair *p = pair_of(arg, &i);

	p->closed[i] = true;
}

static const struct lane_events pair_events = { on_open, on_connected, on_immediate, on_written,
	on_broken, on_closed };

static void pair_open(struct pair *p, unsigned int side)
{
	struct lane_options options = {
		.side = side, .peer = p->ends[0], .writes = 8, .events = &pair_events
	};

	options.arg = &p->ids[side];
	p->lanes[side] = p->ops->open(p->loop, &options);
	assert_non_null(p->lanes[side]);
}

static void open_asker(void *arg)
{
	pair_open(arg, LANE_ASKER);
}

static void open_answerer(void *arg)
{
	pair_open(arg, LANE_ANSWERER);
}

static void connect_asker(void *arg)
{
	struct pair *p = arg;

	p->ops->connect(p->lanes[0], &p->ends[1]);
}

static void nothing(void *arg)
{
	(void)arg;
}

/* What was posted by upcalls, and by their upcalls, has run. */
static void settle(struct pair *p)
{
	for (unsigned int i = 0; i < 8; i++)
		loop_call(p->loop, nothing, NULL);
	test_advance(CLOCK_MS);
	for (unsigned int i = 0; i < 8; i++)
		loop_call(p->loop, nothing, NULL);
}

static void pair_start(struct pair *p)
{
	memset(p, 0, sizeof(*p));
	memset(land, 0xa5, sizeof(land));
	memset(serve, 0x11, sizeof(serve));
	p->ops = &lane_fake;
	p->loop = loop_new("pair");
	for (unsigned int i = 0; i < 2; i++) {
		p->ids[i].pair = p;
		p->ids[i].i = i;
	}
	p->land = (struct lane_memory){ .base = land, .bytes = sizeof(land), .domains = LANE_LAND };
	p->serve = (struct lane_memory){
		.base = serve, .bytes = sizeof(serve), .domains = LANE_SERVE
	};
	assert_int_equal(p->ops->add(&p->land), 0);
	assert_int_equal(p->ops->add(&p->serve), 0);
	loop_call(p->loop, open_asker, p);
	settle(p);
	loop_call(p->loop, open_answerer, p);
	settle(p);
	loop_call(p->loop, connect_asker, p);
	settle(p);
	assert_true(p->connected);
	assert_int_equal(p->opened, 2);
}

static void close_one(struct pair *p, unsigned int i)
{
	p->ops->close(p->lanes[i]);
	p->lanes[i] = NULL;
}

static void close_asker(void *arg)
{
	close_one(arg, 0);
}

static void close_answerer(void *arg)
{
	close_one(arg, 1);
}

static void pair_stop(struct pair *p)
{
	if (p->lanes[0])
		loop_call(p->loop, close_asker, p);
	if (p->lanes[1])
		loop_call(p->loop, close_answerer, p);
	settle(p);
	assert_true(p->closed[0] && p->closed[1]);
	p->ops->remove(&p->land);
	p->ops->remove(&p->serve);
	loop_free(p->loop);
}

struct
try {
	struct pair *pair;
	struct lane_write write;
	int r;
};

static void try_write(void *arg)
{
	struct try *t = arg;

	t->r = t->pair->ops->write(t->pair->lanes[1], &t->write);
}

static int write_one(struct pair *p, uint64_t address, uint32_t key, size_t bytes)
{
	struct try t = { .pair = p };

	t.write =
		(struct lane_write){ .n = bytes > 0, .address = address, .key = key, .cookie = 5 };
	t.write.parts[0].data = serve;
	t.write.parts[0].bytes = bytes;
	loop_call(p->loop, try_write, &t);
	return t.r;
}

/*
 * The device is lost while three writes wait. The first one still arrives after the asker's queue pair failed: memory that was reused
 * then has other bytes. After on_closed() none arrives.
 */
static void test_fence(void **state)
{
	struct pair p;

	(void)state;
	lane_fake_set_faults(&(struct lane_fake_faults){ 0 });
	lane_fake_set_device(true);
	pair_start(&p);
	lane_fake_hold(true);
	for (unsigned int i = 0; i < 3; i++)
		assert_int_equal(
			write_one(&p, (uintptr_t)land + i * 1000, p.land.land[0].key, 1000), 0);
	lane_fake_set_device(false);
	settle(&p);
	assert_true(p.broken[0]);
	assert_int_equal(land[0], 0xa5);
	assert_true(lane_fake_let());
	assert_int_equal(land[0], 0x11); /* after on_broken() */
	memset(land, 0xa5, sizeof(land));
	loop_call(p.loop, close_asker, &p);
	settle(&p);
	assert_true(p.closed[0]);
	while (lane_fake_let())
		;
	lane_fake_hold(false);
	for (unsigned int i = 0; i < sizeof(land); i++)
		assert_int_equal(land[i], 0xa5);
	settle(&p);
	assert_int_equal(p.failed, 3);
	assert_int_equal(p.immediates, 0);
	pair_stop(&p);
	lane_fake_set_device(true);
}

/* The answerer's lane is closed, its writes are flushed; they arrive all the same. Its end proves nothing. */
static void test_flush_proves_nothing(void **state)
{
	struct pair p;

	(void)state;
	pair_start(&p);
	lane_fake_hold(true);
	assert_int_equal(write_one(&p, (uintptr_t)land, p.land.land[0].key, 1000), 0);
	loop_call(p.loop, close_answerer, &p);
	settle(&p);
	assert_true(p.closed[1]);
	assert_int_equal(p.failed, 1);
	assert_true(lane_fake_let());
	lane_fake_hold(false);
	assert_int_equal(land[0], 0x11);
	settle(&p);
	assert_int_equal(p.immediates, 1);
	pair_stop(&p);
}

/* Where a write may not go it does not, and ends the lane. */
static void test_refused(void **state)
{
	static const struct {
		int64_t offset;
		int key;
		size_t bytes;
	} refused[] = {
		{ 0, 1, 100 },     /* the key of other memory */
		{ 0, 1000, 100 },  /* of none */
		{ -1, 0, 100 },    /* before */
		{ 4000, 0, 100 },  /* across the end */
		{ 4096, 0, 1 },    /* behind */
		{ 1 << 20, 0, 1 }, /* far behind */
	};

	(void)state;
	lane_fake_set_faults(&(struct lane_fake_faults){ 0 });
	for (size_t i = 0; i < ARRAY_SIZE(refused); i++) {
		struct pair p;

		pair_start(&p);
		assert_int_equal(
			write_one(&p, (uintptr_t)land + (uint64_t)refused[i].offset,
				p.land.land[0].key + (uint32_t)refused[i].key, refused[i].bytes),
			0);
		settle(&p);
		assert_true(p.broken[0] && p.broken[1]);
		assert_int_equal(p.failed, 1);
		assert_int_equal(p.immediates, 0);
		for (unsigned int at = 0; at < sizeof(land); at++)
			assert_int_equal(land[at], 0xa5);
		assert_int_equal(
			write_one(&p, (uintptr_t)land, p.land.land[0].key, 100), -ENOTCONN);
		pair_stop(&p);
	}
}

/* As many writes as were agreed on, from memory that was added. */
static void test_bounds(void **state)
{
	struct pair p;
	struct try t = { .pair = &p };

	(void)state;
	pair_start(&p);
	lane_fake_hold(true);
	for (unsigned int i = 0; i < 8; i++)
		assert_int_equal(write_one(&p, (uintptr_t)land, p.land.land[0].key, 10), 0);
	assert_int_equal(write_one(&p, (uintptr_t)land, p.land.land[0].key, 10), -EAGAIN);
	while (lane_fake_let())
		;
	lane_fake_hold(false);
	settle(&p);
	assert_int_equal(p.well, 8);
	assert_int_equal(p.immediates, 8);
	t.write = (struct lane_write){
		.n = 1, .address = (uintptr_t)land, .key = p.land.land[0].key
	};
	t.write.parts[0].data = land;
	t.write.parts[0].bytes = 10;
	loop_call(p.loop, try_write, &t);
	assert_int_equal(t.r, -EFAULT);
	t.write.parts[0].data = serve;
	t.write.parts[0].bytes = sizeof(serve) + 1;
	loop_call(p.loop, try_write, &t);
	assert_int_equal(t.r, -EFAULT);
	pair_stop(&p);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_replies, setup, teardown),
		cmocka_unit_test_setup_teardown(test_late, setup, teardown),
		cmocka_unit_test_setup_teardown(test_cancelled, setup, teardown),
		cmocka_unit_test_setup_teardown(test_failed, setup, teardown),
		cmocka_unit_test_setup_teardown(test_failed_though_written, setup, teardown),
		cmocka_unit_test_setup_teardown(test_twice, setup, teardown),
		cmocka_unit_test_setup_teardown(test_no_device, setup, teardown),
		cmocka_unit_test_setup_teardown(test_rest, setup, teardown),
		cmocka_unit_test_setup_teardown(test_idle, setup, teardown),
		cmocka_unit_test_setup_teardown(test_unproven, setup, teardown),
		cmocka_unit_test(test_ends),
		cmocka_unit_test_setup_teardown(test_words, setup, teardown),
		cmocka_unit_test_setup_teardown(test_idle_quarantine, setup, teardown),
		cmocka_unit_test_setup_teardown(test_other_probe, setup, teardown),
		cmocka_unit_test_setup_teardown(test_opened_twice, setup, teardown),
		cmocka_unit_test_setup_teardown(test_quarantine, setup, teardown),
		cmocka_unit_test_setup_teardown(test_headers_while_fenced, setup, teardown),
		cmocka_unit_test(test_fence),
		cmocka_unit_test(test_flush_proves_nothing),
		cmocka_unit_test(test_refused),
		cmocka_unit_test(test_bounds),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
