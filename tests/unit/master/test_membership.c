/*
 * The membership behind a real server: workers of the test's own join, beat and ask for the slots; what those who ask
 * put together of differences is the table; a restart knows it all; what cannot be stored is not told.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/pool.h"
#include "base/units.h"
#include "master/membership_internal.h"
#include "placement/placement_delta.h"
#include "proto/granary.pb-c.h"
#include "tests/clock/test_clock.h"

#define DEADLINE (60 * CLOCK_SECOND)
#define WORKERS  14u /* differences of a few steps are less than the table */

/* A store of which writes fail when they are told to. */
struct odd_store {
	struct store store;
	struct store *real;
	_Atomic bool fails;
	_Atomic bool slow; /* the first write of members alone waits for GROUP requests */
	_Atomic unsigned int writes;
	_Atomic unsigned int member_writes; /* of members alone */
	_Atomic int watched; /* a number; it was `early` stored while it was being written */
	_Atomic bool early;
};

static void await_group(void);
static bool is_stored(int number);

static int odd_get(struct store *store, const char *key, struct buf *value)
{
	struct odd_store *s = container_of(store, struct odd_store, store);

	return s->real->ops->get(s->real, key, value);
}

static int odd_write(struct store *store, const struct store_change *changes, unsigned int n)
{
	struct odd_store *s = container_of(store, struct odd_store, store);

	if (s->fails)
		return -ENOSPC;
	s->writes++;
	if (strncmp(changes[0].key, "member/", 7) == 0 && s->member_writes++ == 0 && s->slow)
		await_group();
	if (s->watched >= 0 && n == 1)
		s->early |= is_stored(s->watched);
	return s->real->ops->write(s->real, changes, n);
}

static int odd_scan(struct store *store, const char *prefix, store_visit visit, void *arg)
{
	struct odd_store *s = container_of(store, struct odd_store, store);

	return s->real->ops->scan(s->real, prefix, visit, arg);
}

static const struct store_ops odd_ops = { .get = odd_get, .write = odd_write, .scan = odd_scan };

static char dir[64];
static struct odd_store odd = { .store = { &odd_ops } };
static uint64_t epoch;
static struct loop *loop;
static struct pool *pool;
static struct membership *m;
static struct rpc_server *server;
static struct rpc_client *client;

struct job {
	struct pool_job pool;
	struct rpc_request *request;
};

static void run_join(struct pool_job *pooled)
{
	struct job *job = container_of(pooled, struct job, pool);

	membership_join(m, job->request);
	free(job);
}

static void on_request(struct rpc_request *request, void *arg)
{
	struct job *job;

	(void)arg;
	if (request->frame.op == FRAME_BEAT) {
		membership_beat(m, request);
	} else if (request->frame.op == FRAME_GET_SLOTS) {
		membership_slots(m, request);
	} else {
		job = calloc(1, sizeof(*job));
		assert_non_null(job);
		job->pool.run = run_join;
		job->request = request;
		assert_int_equal(pool_submit(pool, &job->pool), 0);
	}
}

static void on_cancel(struct rpc_request *request, void *arg)
{
	(void)arg;
	if (request->frame.op == FRAME_GET_SLOTS)
		membership_cancelled(m, request);
}

static const struct rpc_server_ops ops = { .on_request = on_request, .on_cancel = on_cancel };

static _Atomic uint64_t gone_id;

static void on_gone(void *arg, uint64_t id)
{
	(void)arg;
	gone_id = id;
}

static void start(void)
{
	const struct membership_config config = { .store = &odd.store,
		.epoch = ++epoch,
		.out_after_ns = MEMBER_OUT_NS,
		.on_gone = on_gone,
		.down_after_ns = UINT64_MAX }; /* nobody beats here: that is test_members' */
	struct err e = ERR_INIT;
	char address[128];

	if (membership_new(&config, &m, &e) < 0)
		fail_msg("%s", e.text);
	assert_int_equal(membership_start(m), 0);
	(void)snprintf(address, sizeof(address), "unix:%s/rpc", dir);
	assert_int_equal(rpc_server_new(loop, address, &ops, NULL, &server, &e), 0);
	assert_int_equal(rpc_client_new(loop, address, &client, &e), 0);
}

static void stop(void)
{
	rpc_client_free(client);
	rpc_server_free(server);
	membership_free(m);
}

static int setup(void **state)
{
	struct err e = ERR_INIT;
	char state_dir[96];

	(void)state;
	(void)snprintf(dir, sizeof(dir), "/var/tmp/granary-mem.XXXXXX");
	if (!mkdtemp(dir))
		return -1;
	(void)snprintf(state_dir, sizeof(state_dir), "%s/store", dir);
	loop = loop_new("test");
	pool = pool_new("test", 2, 64);
	odd.fails = false;
	odd.slow = odd.early = false;
	odd.watched = -1;
	odd.writes = odd.member_writes = 0;
	epoch = 100;
	if (store_rocksdb_open(state_dir, &odd.real, &e) < 0)
		return -1;
	start();
	return 0;
}

static int teardown(void **state)
{
	char command[128];

	(void)state;
	stop();
	pool_free(pool);
	loop_free(loop);
	store_close(odd.real);
	(void)snprintf(command, sizeof(command), "rm -rf %s", dir);
	return system(command);
}

/* ---- asking ---------------------------------------------------------------------------------- */

static int ask(struct rpc_call *call, enum frame_op op, void *message, size_t len, struct err *e)
{
	*call = (struct rpc_call){
		.frame = { .op = (uint8_t)op },
		.payload = NET_PAYLOAD_NONE,
		.deadline_ns = clock_mono_ns() + DEADLINE,
		.reply_fd = -1,
	};
	call->payload.parts[0].data = message;
	call->payload.parts[0].len = len;
	call->payload.n = len ? 1 : 0;
	return rpc_call_wait(client, call, e);
}

static int join_as(uint64_t id, uint64_t run, const char *name, const char *address,
	uint32_t *ret_number, struct err *e)
{
	Granary__Join join = GRANARY__JOIN__INIT;
	Granary__Joined *joined;
	char *addresses[] = { (char *)(uintptr_t)address };
	uint8_t packed[512];
	struct rpc_call call;
	int r;

	join.has_id = join.has_run = join.has_capacity = 1;
	join.id = id;
	join.run = run;
	join.capacity = 10 * GiB;
	join.name = (char *)(uintptr_t)name;
	join.n_addresses = 1;
	join.addresses = addresses;
	r = ask(&call, FRAME_JOIN, packed, granary__join__pack(&join, packed), e);
	if (r == 0) {
		joined = granary__joined__unpack(NULL, call.reply.payload, call.reply_payload);
		assert_non_null(joined);
		assert_int_equal(joined->epoch, epoch);
		assert_int_equal(joined->beat_ms, 1000);
		*ret_number = joined->number;
		granary__joined__free_unpacked(joined, NULL);
	}
	rpc_call_release(&call);
	return r;
}

static uint32_t join(unsigned int i)
{
	struct err e = ERR_INIT;
	uint32_t number = UINT32_MAX;
	char name[16];
	char address[32];

	(void)snprintf(name, sizeof(name), "w%u", i);
	(void)snprintf(address, sizeof(address), "tcp:10.0.0.%u:7000", i);
	if (join_as(0x100 + i, 1, name, address, &number, &e) < 0)
		fail_msg("%s", e.text);
	return number;
}

/* What somebody who asks knows, put together of answers. */
struct known {
	uint64_t epoch;
	uint64_t sequence;
	uint64_t slots_sequence;
	uint64_t news;
	struct placement_slot slots[PLACEMENT_SLOTS];
	uint64_t ids[16]; /* by number; 0: nobody */
	unsigned int wholes;
};

static void take_workers(struct known *k, const Granary__SlotTable *t)
{
	if (!t->has_since)
		memset(k->ids, 0, sizeof(k->ids));
	for (size_t i = 0; i < t->n_workers; i++) {
		assert_true(t->workers[i]->number < ARRAY_SIZE(k->ids));
		k->ids[t->workers[i]->number] = t->workers[i]->gone ? 0 : t->workers[i]->id;
	}
}

static void take(struct known *k, const struct rpc_call *call)
{
	Granary__SlotTable *t =
		granary__slot_table__unpack(NULL, call->reply.payload, call->reply_payload);

	assert_non_null(t);
	if (t->has_since) {
		assert_int_equal(t->epoch, k->epoch);
		assert_int_equal(t->since, k->sequence);
		assert_false(t->has_slots);
		assert_int_equal(
			placement_delta_apply(k->slots, t->changes.data, t->changes.len), 0);
	} else {
		assert_int_equal(t->slots.len, SLOTS_BYTES);
		memcpy(k->slots, t->slots.data, SLOTS_BYTES);
		k->wholes++;
	}
	take_workers(k, t);
	k->epoch = t->epoch;
	k->sequence = t->sequence;
	k->slots_sequence = t->slots_sequence;
	k->news = t->news;
	granary__slot_table__free_unpacked(t, NULL);
}

static size_t pack_ask(const struct known *k, uint32_t wait_ms, bool news, uint8_t out[64])
{
	Granary__SlotsAsk a = GRANARY__SLOTS_ASK__INIT;

	a.has_epoch = a.has_sequence = a.has_wait_ms = 1;
	a.epoch = k->epoch;
	a.sequence = k->sequence;
	a.wait_ms = wait_ms;
	a.has_news = news;
	a.news = k->news;
	return granary__slots_ask__pack(&a, out);
}

static void ask_slots(struct known *k, uint32_t wait_ms, bool news)
{
	struct rpc_call call;
	struct err e = ERR_INIT;
	uint8_t packed[64];

	if (ask(&call, FRAME_GET_SLOTS, packed, pack_ask(k, wait_ms, news, packed), &e) < 0)
		fail_msg("%s", e.text);
	take(k, &call);
	rpc_call_release(&call);
}

static void check_current(const struct known *k)
{
	pthread_mutex_lock(&m->lock);
	assert_int_equal(k->sequence, m->slots.sequence);
	assert_memory_equal(k->slots, m->slots.table->table.slots, SLOTS_BYTES);
	pthread_mutex_unlock(&m->lock);
}

static uint32_t owned(const struct known *k, uint16_t number)
{
	uint32_t n = 0;

	for (uint32_t s = 0; s < PLACEMENT_SLOTS; s++)
		n += k->slots[s].owner == number;
	return n;
}

/* Until somebody owns as many as that at least. */
static void await(struct known *k, uint16_t number, uint32_t least)
{
	uint64_t end = clock_mono_ns() + DEADLINE;

	while (owned(k, number) < least) {
		assert_true(clock_mono_ns() < end);
		ask_slots(k, 1000, false);
	}
}

static struct known *known_new(void)
{
	struct known *k = calloc(1, sizeof(*k));

	assert_non_null(k);
	memset(k->slots, 0xff, sizeof(k->slots));
	return k;
}

/* ---- tests ----------------------------------------------------------------------------------- */

static void test_one_and_three(void **state)
{
	_cleanup_free_ struct known *k = known_new();
	struct membership_worker *all;
	uint32_t n;

	(void)state;
	ask_slots(k, 0, false); /* nobody's yet */
	assert_int_equal(k->wholes, 1);
	assert_int_equal(owned(k, PLACEMENT_NONE), PLACEMENT_SLOTS);
	assert_int_equal(join(0), 0);
	await(k, 0, PLACEMENT_SLOTS);
	/* One after the other: both steps together change more than goes into one difference. */
	assert_int_equal(join(1), 1);
	await(k, 1, PLACEMENT_SLOTS / 2 - PLACEMENT_SLOTS / 50);
	assert_int_equal(join(2), 2);
	await(k, 2, PLACEMENT_SLOTS / 3 - PLACEMENT_SLOTS / 50);
	assert_int_equal(k->wholes, 1); /* all else were differences */
	check_current(k);
	for (uint32_t s = 0; s < PLACEMENT_SLOTS; s++) { /* deputies are others */
		assert_int_not_equal(k->slots[s].replicas[0], k->slots[s].owner);
		assert_int_not_equal(k->slots[s].replicas[1], k->slots[s].owner);
		assert_int_not_equal(k->slots[s].replicas[1], k->slots[s].replicas[0]);
		assert_true(k->slots[s].replicas[1] < 3);
	}
	all = membership_workers(m, &n);
	assert_int_equal(n, 3);
	assert_int_equal(all[0].owned + all[1].owned + all[2].owned, PLACEMENT_SLOTS);
	assert_int_equal(all[1].replica + all[0].replica + all[2].replica, 2 * PLACEMENT_SLOTS);
	free(all);
}

/* Differences of any length lead to the table that is; beyond what is kept the whole comes. */
static void test_differences(void **state)
{
	struct known *all[4] = { known_new(), known_new(), known_new(), known_new() };
	struct err e = ERR_INIT;
	unsigned int turn = 0;

	(void)state;
	for (unsigned int i = 0; i < WORKERS; i++)
		(void)join(i);
	for (unsigned int i = 0; i < 4; i++)
		await(all[i], WORKERS - 1, 1000);
	/* Who asked before the last ones had joined was told of many steps at once, which is the whole table, too. */
	for (unsigned int i = 0; i < 4; i++) {
		ask_slots(all[i], 0, false);
		assert_true(all[i]->wholes > 0);
		all[i]->wholes = 0;
	}
	for (turn = 1; turn <= SLOTS_STEPS + 4; turn++) {
		char name[8];

		(void)snprintf(name, sizeof(name), "w%u", turn % 3);
		assert_int_equal(membership_drain(m, name, turn / 3 % 2 == 0, &e), 0);
		membership_step(m); /* not to wait for others */
		for (unsigned int i = 0; i < 3; i++)
			if (turn % (1 + i) == 0)
				ask_slots(all[i], 0, false);
	}
	for (unsigned int i = 0; i < 4; i++) {
		ask_slots(all[i], 0, false);
		check_current(all[i]);
	}
	assert_int_equal(all[0]->wholes, 0);
	assert_int_equal(all[2]->wholes, 0);
	assert_int_equal(all[3]->wholes, 1); /* it slept too long */
	all[3]->epoch--;                     /* and of another master */
	ask_slots(all[3], 0, false);
	assert_int_equal(all[3]->wholes, 2);
	for (unsigned int i = 0; i < 4; i++)
		free(all[i]);
}

/* What says only how somebody is reached is no change of slots: who walked by them need not again. */
static void test_slots_version(void **state)
{
	_cleanup_free_ struct known *k = known_new();
	struct err e = ERR_INIT;
	uint64_t version_epoch;
	uint64_t version;
	uint32_t number;

	(void)state;
	assert_int_equal(join(0), 0);
	assert_int_equal(join(1), 1);
	await(k, 1, 30000);
	assert_int_equal(k->slots_sequence, k->sequence);
	version = k->sequence;
	assert_int_equal(join_as(0x100, 1, "w0", "tcp:10.0.1.0:7000", &number, &e), 0);
	membership_step(m);
	ask_slots(k, 0, false);
	assert_int_equal(k->sequence, version + 1);
	assert_int_equal(k->slots_sequence, version);
	assert_int_equal(membership_owners(m, NULL, 0, &version_epoch, &version), 2);
	assert_int_equal(version_epoch, k->epoch);
	assert_int_equal(version, k->slots_sequence);
	assert_int_equal(membership_drain(m, "w1", true, &e), 0);
	membership_step(m);
	ask_slots(k, 0, false);
	assert_int_equal(k->slots_sequence, k->sequence);
}

static bool is_stored(int number)
{
	bool stored;

	pthread_mutex_lock(&m->lock);
	stored = m->members.all[number]->stored;
	pthread_mutex_unlock(&m->lock);
	return stored;
}

/* Who joins is told at once when it is stored: it must not seem to be while it is still being written. */
static void test_stored_when_written(void **state)
{
	struct err e = ERR_INIT;

	(void)state;
	assert_int_equal(join(0), 0);
	assert_int_equal(join(1), 1);
	membership_step(m);
	assert_true(is_stored(1));
	odd.watched = 1;
	assert_int_equal(membership_drain(m, "w1", true, &e), 0);
	odd.watched = -1;
	assert_false(odd.early);
	assert_true(is_stored(1));
}

#define GROUP 40u

/* Until all have come, of which the pool's other thread may still have one in its hands. */
static void await_group(void)
{
	test_wait(counter_get(&m->counters.joins) >= GROUP);
}

struct joiner {
	struct rpc_call call;
	uint8_t packed[128];
	uint32_t number;
	_Atomic bool done;
};

static void on_joined(struct rpc_call *call, int status)
{
	struct joiner *j = call->arg;
	Granary__Joined *joined;

	assert_int_equal(status, 0);
	joined = granary__joined__unpack(NULL, call->reply.payload, call->reply_payload);
	assert_non_null(joined);
	j->number = joined->number;
	granary__joined__free_unpacked(joined, NULL);
	rpc_call_release(call);
	j->done = true;
}

static void begin_join(struct joiner *j, unsigned int i)
{
	Granary__Join message = GRANARY__JOIN__INIT;
	char name[16];
	char address[32];
	char *addresses[] = { address };

	(void)snprintf(name, sizeof(name), "w%u", i);
	(void)snprintf(address, sizeof(address), "tcp:10.0.0.%u:7000", i);
	message.has_id = message.has_run = message.has_capacity = 1;
	message.id = 0x100 + i;
	message.run = 1;
	message.capacity = 10 * GiB;
	message.name = name;
	message.n_addresses = 1;
	message.addresses = addresses;
	*j = (struct joiner){ .call = { .frame = { .op = FRAME_JOIN },
				      .payload = NET_PAYLOAD_NONE,
				      .deadline_ns = clock_mono_ns() + DEADLINE,
				      .on_done = on_joined,
				      .arg = j,
				      .reply_fd = -1 } };
	j->call.payload.parts[0].data = j->packed;
	j->call.payload.parts[0].len = granary__join__pack(&message, j->packed);
	j->call.payload.n = 1;
	rpc_call(client, &j->call);
}

/* Who joins while another is being stored is stored with all that do: one write for the first, one for the others, and
 * one for who was late. */
static void test_joins_in_groups(void **state)
{
	static struct joiner joiners[GROUP];
	uint64_t numbers = 0;

	(void)state;
	odd.slow = true;
	for (unsigned int i = 0; i < GROUP; i++)
		begin_join(&joiners[i], i);
	for (unsigned int i = 0; i < GROUP; i++)
		test_wait(joiners[i].done);
	for (unsigned int i = 0; i < GROUP; i++)
		numbers |= 1ull << joiners[i].number;
	assert_int_equal(numbers, (1ull << GROUP) - 1);
	assert_true(odd.member_writes <= 3); /* none when a step took them along */
}

static _Atomic bool held;
static _Atomic bool let_go;

static void hold_loop(struct loop_task *task)
{
	(void)task;
	held = true;
	test_wait(let_go);
}

static bool is_late(uint64_t at)
{
	bool late;

	pthread_mutex_lock(&m->lock);
	late = membership_is_late_locked(m, at);
	pthread_mutex_unlock(&m->lock);
	return late;
}

/* While the loop that reads beats does something else, what was not read says nothing of who sent it. */
static void test_late(void **state)
{
	struct loop_task task = { .run = hold_loop };
	uint64_t now = clock_mono_ns();

	(void)state;
	held = let_go = false;
	membership_listen(m, loop);
	loop_post(loop, &task);
	test_wait(held);
	(void)is_late(now); /* a mark is in progress now, this one or the thread's */
	assert_true(is_late(clock_mono_ns() + MEMBER_BEAT_NS + CLOCK_SECOND));
	let_go = true;
	test_wait(!is_late(clock_mono_ns() + MEMBER_BEAT_NS + CLOCK_SECOND));
	membership_listen(m, NULL);
	assert_int_equal(m->late.rounds, 0);
	assert_false(is_late(clock_mono_ns() + MEMBER_BEAT_NS + CLOCK_SECOND));
}

struct parked {
	struct rpc_call call;
	uint8_t packed[64];
	_Atomic int status; /* 1: not yet */
};

static void on_done(struct rpc_call *call, int status)
{
	struct parked *p = call->arg;

	p->status = status;
}

static void park(struct parked *p, const struct known *k, bool news)
{
	p->call = (struct rpc_call){
		.frame = { .op = FRAME_GET_SLOTS },
		.payload = NET_PAYLOAD_NONE,
		.deadline_ns = clock_mono_ns() + DEADLINE,
		.on_done = on_done,
		.arg = p,
		.reply_fd = -1,
	};
	p->status = 1;
	p->call.payload.parts[0].data = p->packed;
	p->call.payload.parts[0].len = pack_ask(k, 60000, news, p->packed);
	p->call.payload.n = 1;
	rpc_call(client, &p->call);
}

static uint32_t watchers(void)
{
	struct membership_sum sum;

	membership_sum(m, &sum);
	return sum.watchers;
}

static void await_done(struct parked *p)
{
	test_wait(p->status != 1);
	assert_int_equal(p->status, 0);
}

/* A parked request is woken by what it asks about and by nothing else; what is cancelled is gone. */
static void test_parked(void **state)
{
	_cleanup_free_ struct known *k = known_new();
	static struct parked mount;
	static struct parked worker;
	static struct parked gone; /* outlives the test: the client ends it */
	uint64_t news;

	(void)state;
	(void)join(0);
	await(k, 0, PLACEMENT_SLOTS);
	park(&mount, k, false);
	park(&worker, k, true);
	park(&gone, k, true);
	test_wait(watchers() == 3);
	rpc_cancel(client, &gone.call);
	test_wait(watchers() == 2);
	test_wait(gone.status != 1);
	assert_int_equal(gone.status, -ECANCELED);
	news = k->news;
	membership_news(m);
	await_done(&worker);
	take(k, &worker.call);
	rpc_call_release(&worker.call);
	assert_int_equal(k->news, news + 1);
	assert_int_equal(mount.status, 1); /* it did not say that it cares */
	test_wait(watchers() == 1);
	(void)join(1);
	await_done(&mount);
	take(k, &mount.call);
	rpc_call_release(&mount.call);
	assert_int_equal(k->ids[1], 0x101);
	park(&gone, k, false);
	test_wait(watchers() == 1);
}

static void beat(uint64_t id, uint64_t run, uint32_t number, bool *ret_unknown, bool *ret_drain)
{
	Granary__Beat b = GRANARY__BEAT__INIT;
	Granary__BeatAnswer *answer;
	struct rpc_call call;
	struct err e = ERR_INIT;
	uint8_t packed[64];

	b.has_id = b.has_run = b.has_number = 1;
	b.id = id;
	b.run = run;
	b.number = number;
	assert_int_equal(ask(&call, FRAME_BEAT, packed, granary__beat__pack(&b, packed), &e), 0);
	answer = granary__beat_answer__unpack(NULL, call.reply.payload, call.reply_payload);
	assert_non_null(answer);
	*ret_unknown = answer->unknown;
	*ret_drain = answer->drain;
	granary__beat_answer__free_unpacked(answer, NULL);
	rpc_call_release(&call);
}

static bool is_noticed(const struct member_beat *beat)
{
	bool noticed;

	pthread_mutex_lock(&m->lock);
	assert_non_null(members_beat(&m->members, beat, clock_mono_ns()));
	noticed = m->slots.hot.n == 1;
	if (noticed) {
		assert_true(m->is_dirty && m->only_hot);
		assert_in_range(m->due_ns - m->stepped_ns, HOT_PACE_NS, UINT64_MAX / 2);
	}
	pthread_mutex_unlock(&m->lock);
	return noticed;
}

/* What is hot alone waits longer than what else changes, which takes it along. */
static void test_hot_is_told_seldom(void **state)
{
	const uint32_t hot[] = { 17, 1 << 20 }; /* a GiB a second */
	const struct member_beat beat = { .id = 0x100, .run = 1, .hot = hot, .n_hot = 2 };
	struct err e = ERR_INIT;

	(void)state;
	(void)join(0);
	(void)join(1);
	membership_step(m);
	test_wait(is_noticed(&beat));
	assert_int_equal(membership_drain(m, "w1", true, &e), 0);
	pthread_mutex_lock(&m->lock);
	assert_true(
		!m->is_dirty || (!m->only_hot && m->due_ns < clock_mono_ns() + HOT_PACE_NS / 2));
	pthread_mutex_unlock(&m->lock);
}

static bool is_stuck(uint32_t number)
{
	uint32_t n;
	_cleanup_free_ struct membership_worker *all = membership_workers(m, &n);

	assert_non_null(all);
	assert_true(number < n);
	return all[number].stuck;
}

/* A drain that cannot end since nobody has room says so, and only that. */
static void test_stuck(void **state)
{
	struct member_beat say = { .run = 1, .has_only_copies = true, .only_copies = MiB };
	struct err e = ERR_INIT;

	(void)state;
	for (unsigned int i = 0; i < 3; i++)
		(void)join(i);
	assert_int_equal(membership_drain(m, "w0", true, &e), 0);
	for (unsigned int turn = 0; turn < 3; turn++) {
		pthread_mutex_lock(&m->lock);
		say.id = 0x100;
		say.drain = m->members.all[0]->drain_number;
		assert_non_null(members_beat(&m->members, &say, clock_mono_ns()));
		for (unsigned int i = 1; i < 3; i++) {
			say.id = 0x100 + i;
			say.full = turn > i - 1; /* one, then both */
			assert_non_null(members_beat(&m->members, &say, clock_mono_ns()));
		}
		pthread_mutex_unlock(&m->lock);
		assert_int_equal(is_stuck(0), turn == 2);
		assert_false(is_stuck(1));
	}
}

/* A worker that was down when slots moved receives none at a restart of the master, and its share with its first beat. */
static void test_restart_while_down(void **state)
{
	_cleanup_free_ struct known *k = known_new();
	_cleanup_free_ struct known *again = known_new();
	struct err e = ERR_INIT;
	bool unknown;
	bool drain;

	(void)state;
	for (unsigned int i = 0; i < 3; i++)
		(void)join(i);
	await(k, 2, 20000);
	pthread_mutex_lock(&m->lock);
	m->members.all[0]->state = CLUSTER_DOWN;
	m->members.all[0]->down_ns = clock_mono_ns();
	pthread_mutex_unlock(&m->lock);
	assert_int_equal(membership_drain(m, "w1", true, &e), 0);
	membership_step(m);
	ask_slots(k, 0, false);
	assert_int_equal(owned(k, 1), 0);
	assert_in_range(owned(k, 0), PLACEMENT_SLOTS * 3 / 10, PLACEMENT_SLOTS * 4 / 10);
	for (unsigned int i = 0; i < 2;
		i++) { /* the second start reads what the first one stored */
		stop();
		start();
		ask_slots(again, 0, false);
		assert_memory_equal(again->slots, k->slots, SLOTS_BYTES);
	}
	beat(0x100, 1, 0, &unknown, &drain);
	assert_false(unknown);
	await(again, 0, PLACEMENT_SLOTS / 2 - PLACEMENT_SLOTS / 50);
	assert_true(is_stored(0)); /* with the table */
	stop();
	start();
	pthread_mutex_lock(&m->lock);
	assert_int_equal(m->members.all[0]->state, CLUSTER_UP);
	pthread_mutex_unlock(&m->lock);
}

/* A master that starts again, or from a copy of its store, knows its members and moves nothing. */
static void test_restart(void **state)
{
	_cleanup_free_ struct known *k = known_new();
	_cleanup_free_ struct known *again = known_new();
	struct err e = ERR_INIT;
	bool unknown;
	bool drain;

	(void)state;
	for (unsigned int i = 0; i < 3; i++)
		(void)join(i);
	await(k, 2, 20000);
	assert_int_equal(membership_drain(m, "w1", true, &e), 0);
	membership_step(m);
	ask_slots(k, 0, false);
	assert_int_equal(owned(k, 1), 0);
	beat(0x101, 1, 1, &unknown, &drain);
	assert_false(unknown);
	assert_true(drain);
	beat(0x101, 2, 1, &unknown, &drain);
	assert_true(unknown);
	stop();
	start();
	odd.writes = 0;
	ask_slots(again, 0, false); /* before anybody joined again */
	assert_int_equal(again->epoch, k->epoch + 1);
	assert_memory_equal(again->slots, k->slots, SLOTS_BYTES);
	assert_memory_equal(again->ids, k->ids, sizeof(k->ids));
	beat(0x101, 1, 1, &unknown, &drain); /* its start is remembered, too */
	assert_false(unknown);
	assert_true(drain);
	assert_int_equal(join(2), 2);
	assert_int_equal(join(0), 0);
	membership_step(m);
	ask_slots(again, 0, false);
	assert_memory_equal(again->slots, k->slots, SLOTS_BYTES);
	assert_int_equal(odd.writes, 0); /* nothing that was not known */
	/* Removed: its slots name it no more, nor does what is told. */
	assert_int_equal(membership_remove(m, "w1", true, NULL, NULL, &e), 0);
	membership_step(m);
	ask_slots(again, 0, false);
	assert_int_equal(again->ids[1], 0);
	for (uint32_t s = 0; s < PLACEMENT_SLOTS; s++)
		assert_int_not_equal(again->slots[s].previous, 1);
	stop();
	start();
	beat(0x101, 1, 1, &unknown, &drain);
	assert_true(unknown);
	memset(&e, 0, sizeof(e));
	assert_int_equal(
		join_as(0x101, 1, "w1", "tcp:10.0.0.1:7000", &(uint32_t){ 0 }, &e), -EPERM);
	assert_non_null(strstr(e.text, "was removed"));
}

/* What cannot be stored is not told to anybody; it is tried again. */
static void test_store_fails(void **state)
{
	_cleanup_free_ struct known *k = known_new();
	struct err e = ERR_INIT;
	uint32_t number;
	uint64_t sequence;

	(void)state;
	(void)join(0);
	await(k, 0, PLACEMENT_SLOTS);
	sequence = k->sequence;
	odd.fails = true;
	assert_int_equal(join_as(0x101, 1, "w1", "tcp:10.0.0.1:7000", &number, &e), -ENOSPC);
	assert_int_equal(membership_drain(m, "w0", true, &e), -ENOSPC);
	membership_step(m);
	ask_slots(k, 0, false);
	assert_int_equal(k->sequence, sequence);
	assert_int_equal(owned(k, 0), PLACEMENT_SLOTS);
	odd.fails = false;
	e = ERR_INIT;
	assert_int_equal(join_as(0x101, 1, "w1", "tcp:10.0.0.1:7000", &number, &e), 0);
	await(k, 1, 30000);
	assert_true(owned(k, 0) > 30000); /* the drain was taken back */
}

/* What a worker said that another stands in for counts no more, nor what a removed one goes on saying. */
static void test_gone(void **state)
{
	struct err e = ERR_INIT;
	uint32_t number = 0;

	(void)state;
	gone_id = 0;
	assert_int_equal(join(0), 0);
	assert_int_equal(gone_id, 0);
	assert_int_equal(join_as(0x777, 2, "w0", "tcp:10.0.0.0:7000", &number, &e), 0);
	assert_int_equal(number, 0);
	assert_int_equal(gone_id, 0x100);
	assert_false(membership_is_gone(m, 0x777));
	assert_false(membership_is_gone(m, 0x999)); /* nobody yet */
	assert_false(membership_counts(m, 0x100));
	assert_false(membership_counts(m, 0)); /* all have an id */
	gone_id = 0;
	assert_int_equal(membership_remove(m, "w0", true, NULL, NULL, &e), 0);
	assert_true(membership_is_gone(m, 0x777));
	assert_true(membership_counts(m, 0));
}

static bool all_are_stored(void)
{
	bool all = true;

	pthread_mutex_lock(&m->lock);
	for (uint32_t i = 0; i < m->members.top; i++)
		all &= m->members.all[i]->stored;
	pthread_mutex_unlock(&m->lock);
	return all;
}

/* More change at once than go into one write. */
static void test_many(void **state)
{
	struct member_join join = { .run = 1, .domain = "", .version = "1", .n_addresses = 1 };
	struct member *member;
	struct err e = ERR_INIT;
	char text[32];

	(void)state;
	join.addresses[0] = join.name = text;
	pthread_mutex_lock(&m->lock);
	for (unsigned int i = 0; i < 300; i++) {
		join.id = i + 1;
		(void)snprintf(text, sizeof(text), "tcp:10.0.%u.%u:7000", i / 200, i % 200);
		assert_int_equal(
			members_join(&m->members, &join, clock_mono_ns(), 1, &member, &e), 0);
	}
	pthread_mutex_unlock(&m->lock);
	test_wait(all_are_stored());
}

static void test_bad_requests(void **state)
{
	struct rpc_call call;
	struct err e = ERR_INIT;
	uint8_t odd_bytes[] = { 0xff, 0xff, 0xff };
	static const enum frame_op all[] = { FRAME_JOIN, FRAME_BEAT, FRAME_GET_SLOTS };
	uint32_t number;

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(all); i++) {
		e = ERR_INIT;
		assert_int_equal(ask(&call, all[i], odd_bytes, 3, &e), -EBADMSG);
		rpc_call_release(&call);
	}
	assert_int_equal(join_as(1, 1, "no name", "tcp:10.0.0.1:7000", &number, &e), -EINVAL);
	assert_int_equal(join_as(1, 1, "name", "nowhere", &number, &e), -EINVAL);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
	const struct CMUnitTest tests[] = {
		CASE(test_one_and_three),
		CASE(test_differences),
		CASE(test_slots_version),
		CASE(test_stored_when_written),
		CASE(test_joins_in_groups),
		CASE(test_late),
		CASE(test_parked),
		CASE(test_hot_is_told_seldom),
		CASE(test_stuck),
		CASE(test_restart),
		CASE(test_restart_while_down),
		CASE(test_store_fails),
		CASE(test_gone),
		CASE(test_many),
		CASE(test_bad_requests),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
