/* The view: tables whole and in changes, versions, DIR/slots, peers, who serves a chunk. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>
#include "base/buf.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/hash.h"
#include "net/fake.h"
#include "tests/clock/test_clock.h"
#include "tests/unit/cluster/view_fixture.h"

/* A version in which the slots are those of the one before it. */
static void tell_states(struct master *m)
{
	Granary__SlotTable message = GRANARY__SLOT_TABLE__INIT;
	struct workers_message workers = { 0 };
	struct rpc_request *request;

	pthread_mutex_lock(&m->lock);
	request = take_parked_locked(m);
	message.has_slots_sequence = 1;
	message.slots_sequence = m->table->sequence++;
	message.workers = workers.pointers;
	m->workers[1].state = CLUSTER_UP;
	add_worker(&workers, &message, &m->workers[1], 1);
	reply_changes_locked(m, request, &message, message.slots_sequence);
	pthread_mutex_unlock(&m->lock);
}

static void test_whole_table_and_changes(void **state)
{
	struct master *m = *state;
	struct view *view = open_view(m, (struct view_config){ 0 }, PATIENCE);
	Granary__SlotTable message = GRANARY__SLOT_TABLE__INIT;
	struct workers_message workers = { 0 };
	uint8_t changes[4 + 2 * 10] = { 20 }; /* slots 0 and 1 */
	const struct placement_slot slot = {
		.owner = 5, .previous = 0, .replicas = { 1, PLACEMENT_NONE }
	};
	struct rpc_request *request;
	uint32_t up;
	uint32_t known;
	uint32_t hot = 0;

	assert_int_equal(sequence_of(view), 1);
	assert_found(view, "0 1 2 3 up=4");
	view_count(view, &up, &known);
	assert_int_equal(up, WORKERS);
	assert_false(is_hot(view, 0));

	pthread_mutex_lock(&m->lock);
	request = take_parked_locked(m);
	m->table->sequence++;
	changes[5] = changes[15] = 0x55; /* all four numbers are said */
	put_slot(changes + 6, &slot);
	put_slot(changes + 16, &slot);
	message.has_changes = 1;
	message.changes = (ProtobufCBinaryData){ sizeof(changes), changes };
	message.workers = workers.pointers;
	message.n_hot = 1;
	message.hot = &hot;
	m->workers[1].state = CLUSTER_DOWN;
	add_worker(&workers, &message, &m->workers[1], 1);
	reply_changes_locked(m, request, &message, 1);
	pthread_mutex_unlock(&m->lock);
	wait_sequence(view, 2);
	assert_found(view, "5 0 1 up=2");
	assert_true(is_hot(view, 0));
	assert_false(is_hot(view, 1));
	view_count(view, &up, &known);
	assert_int_equal(up, WORKERS - 1);
	assert_int_equal(known, WORKERS);
	assert_int_equal(slots_sequence_of(view), 2); /* unless it says otherwise */
	tell_states(m);
	wait_sequence(view, 3);
	assert_int_equal(slots_sequence_of(view), 2);
	view_close(view);
	assert_int_equal(m->told_tables, 3);
	assert_int_equal(m->told_news, 1);
}

/* What the parked request is answered with may have come with another one before: the next change would else be known
 * when the pause of one who is answered without news ends. */
static void test_a_table_that_comes_twice_makes_no_pause(void **state)
{
	struct master *m = *state;
	struct view *view = open_view(m, (struct view_config){ 0 }, PATIENCE);
	struct rpc_request *request;
	uint64_t began;

	pthread_mutex_lock(&m->lock);
	request = take_parked_locked(m);
	m->table->sequence = 2;
	pthread_mutex_unlock(&m->lock);
	view_stale(view);
	wait_sequence(view, 2);
	pthread_mutex_lock(&m->lock);
	began = test_now();
	reply_whole_locked(m, request);
	request = take_parked_locked(m); /* asks again */
	assert_true(test_now() - began < CLOCK_SECOND / 2);
	m->table->sequence = 3;
	reply_whole_locked(m, request);
	pthread_mutex_unlock(&m->lock);
	wait_sequence(view, 3);
	view_close(view);
}

static void test_what_does_not_fit_is_asked_for_whole(void **state)
{
	struct master *m = *state;
	struct view *view = open_view(m, (struct view_config){ 0 }, PATIENCE);

	pthread_mutex_lock(&m->lock);
	m->odd_since = 1;
	reply_whole_locked(m, take_parked_locked(m)); /* nothing new: it asks again */
	pthread_mutex_unlock(&m->lock);
	wait_sequence(view, 2);
	pthread_mutex_lock(&m->lock);
	assert_int_equal(m->whole_asks, 2);
	pthread_mutex_unlock(&m->lock);
	view_close(view);
}

static void test_older_tables_are_refused(void **state)
{
	struct master *m = *state;
	struct view *view = open_view(m, (struct view_config){ 0 }, PATIENCE);
	struct rpc_request *request;

	pthread_mutex_lock(&m->lock);
	request = take_parked_locked(m);
	m->table->epoch = 6;
	m->table->sequence = 99;
	m->table->slots[0].owner = 4;
	reply_whole_locked(m, request);
	m->table->epoch = 8;
	m->table->sequence = 3;
	m->table->slots[0].owner = 5;
	pthread_mutex_unlock(&m->lock);
	wait_sequence(view, 3); /* of epoch 8; 99 never was */
	assert_found(view, "5 1 2 3 up=4");
	view_close(view);
	assert_int_equal(m->told_tables, 2);
}

static void test_who_serves(void **state)
{
	struct master *m = *state;
	struct view *view;

	m->workers[0].state = CLUSTER_DOWN;
	m->workers[1].state = CLUSTER_OUT;
	m->workers[3].state = CLUSTER_DRAINING;
	view = open_view(m, (struct view_config){ .self = 102 }, PATIENCE);
	assert_found(view, "2 3 0 up=2");
	assert_int_equal(view_self(view), 2);
	assert_true(view_peer(view, 2)->self);
	assert_null(view_peer(view, 2)->rpc);
	assert_null(view_peer(view, 1));
	assert_true(view_up(view, 3));
	assert_false(view_up(view, 0));
	assert_null(view_local(view));
	view_close(view);
}

static void test_addresses(void **state)
{
	struct master *m = *state;
	struct view_status statuses[WORKERS];
	struct view *view;

	m->workers[1].far = true;
	snprintf(m->workers[2].address, sizeof(m->workers[2].address), OWN_SOCKET);
	view = open_view(m, (struct view_config){ .local_worker = OWN_SOCKET }, PATIENCE);
	assert_int_equal(view_list(view, statuses, WORKERS), WORKERS);
	assert_string_equal(statuses[1].address, "fake:worker1"); /* not what is another node's */
	assert_string_equal(statuses[1].name, "w1");
	assert_false(statuses[1].local);
	assert_true(statuses[2].local);
	assert_int_equal(view_local(view)->number, 2);
	view_close(view);
}

/* A socket that this process may not open: as root one of another user, in a directory that is not that user's. */
static void make_closed_socket(const char *path)
{
	assert_int_equal(mknod(path, S_IFSOCK, 0), 0);
	assert_true(geteuid() != 0 || chown(path, 65534, 65534) == 0);
}

static void test_a_socket_that_may_not_be_opened(void **state)
{
	struct master *m = *state;
	struct view_status statuses[WORKERS];
	struct view *view;

	snprintf(m->workers[2].socket, sizeof(m->workers[2].socket), "unix:%s/closed", m->dir);
	snprintf(m->workers[3].socket, sizeof(m->workers[3].socket), "unix:%s/none", m->dir);
	make_closed_socket(m->workers[2].socket + strlen("unix:"));
	assert_int_equal(rpc_address_access(m->workers[2].socket), -EACCES);
	assert_int_equal(rpc_address_access(m->workers[3].socket), -ENOENT);
	assert_int_equal(rpc_address_access(m->workers[2].address), 0);
	assert_int_equal(rpc_address_access("tcp:127.0.0.1:1"), -ENOKEY);
	assert_int_equal(rpc_address_access("tcp:localhost"), -EINVAL);
	view = open_view(m, (struct view_config){ 0 }, PATIENCE);
	assert_int_equal(view_list(view, statuses, WORKERS), WORKERS);
	assert_string_equal(statuses[2].address, "fake:worker2");
	assert_string_equal(statuses[3].address, "fake:worker3");
	assert_null(view_local(view));
	view_close(view);
}

/* Whatever comes first: an address that needs a key is not preferred to a socket, also while that is not there. */
static void test_a_socket_after_an_address_that_needs_a_key(void **state)
{
	struct master *m = *state;
	struct view_status statuses[WORKERS];
	struct view *view;
	struct sockaddr_un sa = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	(void)snprintf(sa.sun_path, sizeof(sa.sun_path), "%s/worker", m->dir);
	assert_int_equal(bind(fd, (const struct sockaddr *)&sa, sizeof(sa)), 0);
	for (uint32_t i = 2; i < 4; i++) {
		snprintf(m->workers[i].first, sizeof(m->workers[i].first), "tcp:127.0.0.1:1");
		snprintf(m->workers[i].socket, sizeof(m->workers[i].socket), "unix:%s/%s", m->dir,
			i == 2 ? "worker" : "none");
		m->workers[i].address[0] = '\0';
	}
	assert_int_equal(rpc_address_access(m->workers[2].first), -ENOKEY);
	assert_int_equal(rpc_address_access(m->workers[2].socket), 0);
	assert_int_equal(rpc_address_access(m->workers[3].socket), -ENOENT);
	view = open_view(m, (struct view_config){ 0 }, PATIENCE);
	assert_int_equal(view_list(view, statuses, WORKERS), WORKERS);
	for (uint32_t i = 2; i < 4; i++) {
		assert_string_equal(statuses[i].address, m->workers[i].socket);
		assert_true(statuses[i].local);
	}
	assert_non_null(view_local(view));
	view_close(view);
	assert_int_equal(close(fd), 0);
}

static void test_without_a_table(void **state)
{
	struct master *m = *state;
	struct view_candidates c;
	struct err trouble;
	struct view *view;

	fake_set_refuse(m->name, true);
	view = open_view(m, (struct view_config){ .local_worker = "unix:/nowhere/worker" },
		CLOCK_SECOND / 10);
	view_find(view, 1, 2, &c);
	assert_int_equal(c.n, 1);
	assert_ptr_equal(c.peers[0], view_local(view));
	assert_int_equal(c.peers[0]->number, PLACEMENT_NONE);
	assert_int_equal(c.owner, PLACEMENT_NONE);
	/* That tenth may end before the loop begins. */
	test_wait((view_trouble(view, &trouble), trouble.code != 0));
	assert_true(trouble.code < 0);
	assert_string_not_equal(trouble.text, "");
	fake_set_refuse(m->name, false);
	view_stale(view);
	wait_sequence(view, 1);
	assert_found(view, "0 1 2 3 up=4");
	view_close(view);
}

static void damage(const char *path, size_t at)
{
	FILE *f = fopen(path, "r+");
	int c;

	assert_non_null(f);
	assert_int_equal(fseek(f, (long)at, SEEK_SET), 0);
	c = fgetc(f);
	assert_int_equal(fseek(f, (long)at, SEEK_SET), 0);
	fputc(c ^ 1, f);
	assert_int_equal(fclose(f), 0);
}

static void test_disk(void **state)
{
	struct master *m = *state;
	char path[96];
	struct view *view;
	struct stat st;

	snprintf(path, sizeof(path), "%s/slots", m->dir);
	m->workers[4].state = CLUSTER_DOWN;
	view_close(open_view(m, (struct view_config){ .dir = m->dir }, PATIENCE));
	assert_int_equal(stat(path, &st), 0);
	fake_set_refuse(m->name, true);
	view = open_view(m, (struct view_config){ .dir = m->dir }, PATIENCE); /* does not wait */
	assert_int_equal(sequence_of(view), 1);
	assert_found(view, "0 1 2 3 up=4");
	assert_false(view_up(view, 4));
	view_close(view);
	/* What the disk says is taken for no more than what it is: older than the master's. */
	fake_set_refuse(m->name, false);
	m->table->sequence = 2;
	view = open_view(m, (struct view_config){ .dir = m->dir }, 0);
	wait_sequence(view, 2);
	view_close(view);
	fake_set_refuse(m->name, true);
	for (size_t at = 0; at < (size_t)st.st_size; at += (size_t)st.st_size / 7) {
		damage(path, at);
		view = open_view(m, (struct view_config){ .dir = m->dir }, 1);
		assert_int_equal(sequence_of(view), 0);
		view_close(view);
		damage(path, at);
	}
	assert_int_equal(truncate(path, st.st_size / 2), 0);
	view = open_view(m, (struct view_config){ .dir = m->dir }, 1);
	assert_int_equal(sequence_of(view), 0);
	view_close(view);
}

static void test_a_master_that_never_parks_is_not_flooded(void **state)
{
	struct master *m = *state;
	uint64_t began = clock_mono_ns();
	struct view *view;
	uint32_t asks;

	m->never_parks = true;
	view = open_view(m, (struct view_config){ 0 }, PATIENCE);
	for (uint32_t i = 0; i < 1000; i++) {
		view_stale(view);
		test_advance(CLOCK_MS / 2);
	}
	view_close(view);
	pthread_mutex_lock(&m->lock);
	asks = m->asks;
	pthread_mutex_unlock(&m->lock);
	/* 500 ms and more of it: twice a second, and some at once. */
	assert_true(asks < 50 + (clock_mono_ns() - began) / (CLOCK_SECOND / 4));
}

/* Its pauses end by themselves, and this thread may be late: what it saw must have been while one lasted. */
static void break_open(struct view *view, struct view_peer *owner)
{
	bool lasted;

	do {
		view_begin(view, owner);
		view_end(view, owner, CLOCK_MS, false); /* closes it */
		for (uint32_t i = 0; i < 3; i++) {
			assert_true(view_usable(view, owner));
			view_begin(view, owner);
			view_end(view, owner, CLOCK_MS, true);
		}
		lasted = !view_usable(view, owner) && finds(view, "1 2 3 0 up=3");
		assert_int_not_equal(peer_of(owner)->broken_until_ns, 0);
	} while (!lasted);
}

static void test_breaker(void **state)
{
	struct master *m = *state;
	struct view *view = open_view(m, (struct view_config){ 0 }, PATIENCE);
	struct view_peer *owner = view_peer(view, 0);

	break_open(view, owner);
	test_wait(view_usable(view, owner));
	/* One that is let through and refused at once costs a pause twice as long. */
	assert_int_equal(peer_of(owner)->backoff.doublings, 1);
	view_begin(view, owner);
	view_end(view, owner, CLOCK_MS, true);
	assert_int_equal(peer_of(owner)->backoff.doublings, 2);
	test_wait(view_usable(view, owner));
	view_begin(view, owner); /* the one that is let through: half a pause for it alone */
	assert_true(peer_of(owner)->let_through);
	assert_true(
		!view_usable(view, owner) || clock_mono_ns() >= peer_of(owner)->broken_until_ns);
	view_end(view, owner, CLOCK_MS, false);
	assert_true(view_usable(view, owner));
	assert_found(view, "0 1 2 3 up=4");
	view_close(view);
}

static void test_hedges_and_load(void **state)
{
	struct master *m = *state;
	struct view *view = open_view(m, (struct view_config){ 0 }, PATIENCE);
	struct view_peer *a = view_peer(view, 0);
	struct view_peer *b = view_peer(view, 1);
	uint64_t after;

	assert_int_equal(view_hedge_after(view, a), 0); /* nothing was measured */
	for (uint32_t i = 0; i < 400; i++) {
		view_begin(view, a);
		view_end(view, a, (i % 200 == 0 ? 900 : 20) * CLOCK_MS, false);
	}
	after = view_hedge_after(view, a);
	assert_in_range(after, 20 * CLOCK_MS, 30 * CLOCK_MS);
	for (uint32_t i = 0; i < 8; i++) {
		assert_int_not_equal(view_hedge_after(view, a), 0);
		view_hedged(view);
	}
	assert_int_equal(view_hedge_after(view, a), 0); /* 8 of 400: one in fifty */
	for (uint32_t i = 0; i < 200; i++) {
		view_begin(view, b);
		view_end(view, b, CLOCK_MS / 2, false);
	}
	assert_in_range(view_hedge_after(view, b), 5 * CLOCK_MS, 5 * CLOCK_MS);
	assert_ptr_equal(view_less_loaded(view, a, b), b);
	for (uint32_t i = 0; i < 500; i++)
		view_begin(view, b);
	assert_ptr_equal(view_less_loaded(view, a, b), a);
	for (uint32_t i = 0; i < 500; i++)
		view_dropped(view, b);
	view_close(view);
}

static void lock_all(struct view *view)
{
	pthread_mutex_lock(&view->lock);
	list_for_each (node, &view->peers)
		pthread_mutex_lock(&list_entry(node, struct peer, link)->lock);
}

static void unlock_all(struct view *view)
{
	list_for_each (node, &view->peers)
		pthread_mutex_unlock(&list_entry(node, struct peer, link)->lock);
	pthread_mutex_unlock(&view->lock);
}

/* With every lock of the view taken by this thread, which would wait for itself. */
static void test_finding_takes_no_lock(void **state)
{
	struct master *m = *state;
	struct view *view = open_view(m, (struct view_config){ 0 }, PATIENCE);
	struct placement_slot slot;

	alarm(60);
	lock_all(view);
	assert_found(view, "0 1 2 3 up=4");
	assert_int_equal(view_peer(view, 2)->number, 2);
	assert_null(view_peer(view, WORKERS));
	assert_null(view_local(view));
	assert_int_equal(view_self(view), PLACEMENT_NONE);
	view_slot(view, 7, &slot);
	assert_int_equal(slot.previous, 3);
	assert_true(view_up(view, 2));
	assert_true(view_usable(view, view_peer(view, 2)));
	unlock_all(view);
	alarm(0);
	view_close(view);
}

struct finder {
	struct view *view;
	_Atomic bool stop;
	_Atomic uint32_t odd; /* slots that no table had */
	_Atomic uint64_t found;
};

static void *run_finder(void *arg)
{
	struct finder *f = arg;

	while (!atomic_load(&f->stop)) {
		struct view_candidates c;

		view_find(f->view, (atomic_fetch_add(&f->found, 1) * 40503u), 0, &c);
		/* Tables have owner n, replicas n + 1 and n + 2. */
		if (c.owner > 3 || c.replicas[0] != c.owner + 1 || c.replicas[1] != c.owner + 2 ||
			c.n < 3)
			atomic_fetch_add(&f->odd, 1);
	}
	return NULL;
}

static void test_finding_while_tables_come(void **state)
{
	struct master *m = *state;
	struct finder f = { 0 };
	pthread_t thread;

	for (uint32_t i = 0; i < PLACEMENT_SLOTS; i++)
		m->table->slots[i] =
			(struct placement_slot){ .owner = 0, .previous = 5, .replicas = { 1, 2 } };
	f.view = open_view(m, (struct view_config){ 0 }, PATIENCE);
	assert_int_equal(pthread_create(&thread, NULL, run_finder, &f), 0);
	test_wait(atomic_load(&f.found)); /* it may begin late */
	for (uint16_t k = 1; k <= 40; k++) {
		const uint16_t n = k % 4;
		struct rpc_request *request;

		pthread_mutex_lock(&m->lock);
		request = take_parked_locked(m);
		for (uint32_t i = 0; i < PLACEMENT_SLOTS; i++)
			m->table->slots[i] = (struct placement_slot){ .owner = n,
				.previous = 5,
				.replicas = { (uint16_t)(n + 1), (uint16_t)(n + 2) } };
		m->table->sequence++;
		reply_whole_locked(m, request);
		pthread_mutex_unlock(&m->lock);
		wait_sequence(f.view, 1u + k);
	}
	atomic_store(&f.stop, true);
	pthread_join(thread, NULL);
	assert_int_equal(atomic_load(&f.odd), 0);
	view_close(f.view);
}

/* The view sweeps by itself, too, every ten seconds: not between those that tests count. */
static void on_no_sweep(void *arg)
{
	struct view *view = arg;

	loop_timer_stop(view->sweep_timer);
	view->sweep_timer = NULL;
}

static void on_sweep(void *arg)
{
	view_sweep(arg);
	on_no_sweep(arg);
}

static void sweep(struct view *view, uint32_t n)
{
	while (n--)
		loop_call(view->loop, on_sweep, view);
}

static uint32_t count_peers(struct view *view)
{
	uint32_t n;

	pthread_mutex_lock(&view->lock);
	n = view->n_peers;
	pthread_mutex_unlock(&view->lock);
	return n;
}

static void move_worker(struct master *m, struct view *view, uint32_t number, const char *address)
{
	struct rpc_request *request;
	uint64_t sequence;

	pthread_mutex_lock(&m->lock);
	request = take_parked_locked(m);
	snprintf(m->workers[number].address, sizeof(m->workers[number].address), "%s", address);
	sequence = ++m->table->sequence;
	reply_whole_locked(m, request);
	pthread_mutex_unlock(&m->lock);
	wait_sequence(view, sequence);
	loop_call(view->loop, on_no_sweep, view);
}

static void on_called(struct rpc_call *call, int status)
{
	(void)status;
	atomic_store((_Atomic bool *)call->arg, true);
}

/* A worker that moves again and again: its old addresses go, but for those that are asked. */
static void test_peers_that_nobody_names(void **state)
{
	struct master *m = *state;
	struct view *view = open_view(m, (struct view_config){ 0 }, PATIENCE);
	_Atomic bool ended = false;
	struct rpc_call call = { .frame = { .op = FRAME_PING },
		.payload = NET_PAYLOAD_NONE,
		.reply_fd = -1,
		.on_done = on_called,
		.arg = &ended };
	struct view_peer *begun = view_peer(view, 5);
	struct view_peer *called;

	view_begin(view, begun);
	move_worker(m, view, 5, "fake:moved0");
	called = view_peer(view, 5);
	assert_ptr_not_equal(called, begun);
	assert_true(view_down(begun)); /* who waits for it there need not */
	assert_false(view_down(called));
	rpc_call(called->rpc, &call); /* nobody is there: it waits */
	for (uint32_t i = 1; i < 20; i++) {
		char address[32];

		snprintf(address, sizeof(address), "fake:moved%u", i);
		move_worker(m, view, 5, address);
	}
	assert_int_equal(count_peers(view), WORKERS + 20);
	sweep(view, PEER_QUIET - 1);
	assert_int_equal(count_peers(view), WORKERS + 20);
	sweep(view, 1);
	assert_int_equal(count_peers(view), WORKERS + 2);

	view_end(view, begun, CLOCK_MS, false);
	rpc_cancel(called->rpc, &call);
	test_wait(atomic_load(&ended));
	sweep(view, PEER_QUIET - 1);
	assert_int_equal(count_peers(view), WORKERS + 2);
	sweep(view, 1);
	assert_int_equal(count_peers(view), WORKERS);
	assert_found(view, "0 1 2 3 up=4");
	view_close(view);
}

static pthread_mutex_t gate = PTHREAD_MUTEX_INITIALIZER; /* of pool threads */

/* What the test puts in the place of the view's own, on its loop. */
struct swap {
	struct view *view;
	struct pool *pool;
	uint32_t n_peers;
};

static void on_swap(void *arg)
{
	struct swap *swap = arg;
	struct swap was = { swap->view, swap->view->pool, swap->view->n_peers };

	swap->view->pool = swap->pool;
	swap->view->n_peers = swap->n_peers;
	*swap = was;
}

/* No room for another one: it is tried again until there is, though no table names it again. */
static void test_peer_that_could_not_be_made(void **state)
{
	struct master *m = *state;
	struct view *view = open_view(m, (struct view_config){ 0 }, PATIENCE);
	struct swap swap = { view, view->pool, VIEW_PEERS_MAX };

	loop_call(view->loop, on_swap, &swap);
	move_worker(m, view, 5, "fake:elsewhere");
	assert_null(view_peer(view, 5));
	loop_call(view->loop, on_swap, &swap);
	test_wait(view_peer(view, 5));
	assert_string_equal(view_peer(view, 5)->address, "fake:elsewhere");
	assert_true(view_up(view, 5));
	view_close(view);
}

static void run_gate(struct pool_job *job)
{
	(void)job;
	pthread_mutex_lock(&gate);
	pthread_mutex_unlock(&gate);
}

/* Those that are to be freed wait behind others: the rest goes with a later sweep. */
static void test_sweep_waits_for_the_pool(void **state)
{
	struct master *m = *state;
	struct view *view = open_view(m, (struct view_config){ 0 }, PATIENCE);
	struct pool_job jobs[2] = { { .run = run_gate }, { .run = run_gate } };
	struct pool *small = pool_new("small", 1, 1);
	struct swap swap = { view, small, WORKERS + 3 };
	int r;

	pthread_mutex_lock(&gate);
	assert_int_equal(pool_submit(small, &jobs[0]), 0);
	/* The first one runs by then. */
	test_wait((r = pool_submit(small, &jobs[1])) != -EAGAIN);
	assert_int_equal(r, 0);
	for (uint32_t i = 0; i < 3; i++) {
		char address[32];

		snprintf(address, sizeof(address), "fake:moved%u", i);
		move_worker(m, view, 5, address);
	}
	loop_call(view->loop, on_swap, &swap);
	sweep(view, PEER_QUIET + 2);
	loop_call(view->loop, on_swap, &swap);
	assert_int_equal(count_peers(view), WORKERS + 3);
	pthread_mutex_unlock(&gate);
	pool_free(small);
	sweep(view, 1);
	assert_int_equal(count_peers(view), WORKERS);
	view_close(view);
}

static void test_hosts(void **state)
{
	uint8_t a[CLUSTER_HOST_BYTES];
	uint8_t b[CLUSTER_HOST_BYTES];

	(void)state;
	unsetenv("GRANARY_HOST");
	cluster_host(a);
	cluster_host(b);
	assert_memory_equal(a, b, sizeof(a));
	setenv("GRANARY_HOST", "h1", 1);
	cluster_host(b);
	assert_memory_not_equal(a, b, sizeof(a));
	unsetenv("GRANARY_HOST");
	assert_string_equal(cluster_state_name(CLUSTER_DRAINING), "draining");
}

#define CASE(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
int main(void)
{
	const struct CMUnitTest tests[] = {
		CASE(test_whole_table_and_changes),
		CASE(test_a_table_that_comes_twice_makes_no_pause),
		CASE(test_what_does_not_fit_is_asked_for_whole),
		CASE(test_older_tables_are_refused),
		CASE(test_who_serves),
		CASE(test_addresses),
		CASE(test_a_socket_that_may_not_be_opened),
		CASE(test_a_socket_after_an_address_that_needs_a_key),
		CASE(test_without_a_table),
		CASE(test_disk),
		CASE(test_a_master_that_never_parks_is_not_flooded),
		CASE(test_breaker),
		CASE(test_hedges_and_load),
		CASE(test_finding_takes_no_lock),
		CASE(test_finding_while_tables_come),
		CASE(test_peers_that_nobody_names),
		CASE(test_peer_that_could_not_be_made),
		CASE(test_sweep_waits_for_the_pool),
		cmocka_unit_test(test_hosts),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
