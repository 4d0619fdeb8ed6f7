/*
 * Lanes by libibverbs on a real device, soft RoCE in a guest: lane ADDRESS ADDRESS. Both ends are in this process; the first address is
 * the asker's. With a third argument, only tests whose names begin with it.
 *
 * Time is real here, but only the device's is waited for.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/clock.h"
#include "net/lane_verbs_internal.h"
#include "tests/unit/net/lane_world.h"

#define POISON 0xa5

int __real_ibv_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask);
int __wrap_ibv_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask);
int __real_ibv_query_device(struct ibv_context *context, struct ibv_device_attr *attr);
int __wrap_ibv_query_device(struct ibv_context *context, struct ibv_device_attr *attr);

static _Atomic bool taken_away;

/* The end that answers could do more than it does: reads and atomics are sent, and must be refused. */
int __wrap_ibv_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask)
{
	if (mask & IBV_QP_MAX_QP_RD_ATOMIC)
		attr->max_rd_atomic = 1;
	return __real_ibv_modify_qp(qp, attr, mask);
}

/* As of a card that was removed. */
int __wrap_ibv_query_device(struct ibv_context *context, struct ibv_device_attr *attr)
{
	return taken_away ? EIO : __real_ibv_query_device(context, attr);
}

static const char *addresses[2];
static struct lane_world world;
static uint64_t began_ns;

static int setup(void **state)
{
	assert_int_equal(lane_verbs_start(&(struct lane_verbs_options){ .gid_index = -1 }), 0);
	lane_world_start(&world, &lane_verbs, addresses);
	*state = &world;
	began_ns = clock_mono_ns();
	alarm(600); /* a hang ends the program */
	return 0;
}

static int teardown(void **state)
{
	struct lane_world *w = *state;

	lane_world_check(w);
	assert_int_equal(w->late, 0);
	assert_int_equal(w->wrong, 0);
	lane_world_stop(w);
	lane_verbs_stop();
	print_message("%.1f s\n", (double)(clock_mono_ns() - began_ns) / 1e9);
	return 0;
}

static enum lane_cause cause_of_break(struct lane_world *w)
{
	struct lane_asker_state state;

	lane_asker_look(w->asker, &state);
	return state.cause;
}

static void open_lane(struct lane_world *w)
{
	if (!lane_world_open(w))
		fail_msg("no lane: %s", lane_cause_text(cause_of_break(w)));
}

/* ---- answers --------------------------------------------------------------------------------- */

static void replies(struct lane_world *w, enum lane_world_order order)
{
	open_lane(w);
	w->orders = 1u << order;
	lane_world_replies(w, 500);
	assert_int_equal(w->by_lane, 500);
	assert_int_equal(w->by_tcp, 0);
}

static void test_header_first(void **state)
{
	replies(*state, LANE_HEADER_FIRST);
}

static void test_header_with(void **state)
{
	replies(*state, LANE_HEADER_WITH);
}

static void test_header_after(void **state)
{
	replies(*state, LANE_HEADER_AFTER);
}

static void test_cancelled(void **state)
{
	struct lane_world *w = *state;

	open_lane(w);
	w->cancel = 50;
	lane_world_replies(w, 300);
	assert_true(w->cancelled > 0);
	assert_int_equal(w->by_lane + w->by_tcp + w->cancelled, 300);
}

/* The asker's queue pair is destroyed while all slots are being written, and their memory is watched. */
static void test_cuts(void **state)
{
	struct lane_world *w = *state;

	for (int i = 0; i < 100; i++) {
		open_lane(w);
		lane_world_cut(w);
		assert_int_equal(w->late, 0);
	}
	open_lane(w);
	lane_world_replies(w, 20);
	assert_true(w->by_lane >= 20);
}

/* ---- refusals -------------------------------------------------------------------------------- */

/* What the end that answers tries. */
static struct {
	uint64_t address;
	uint32_t key;
	uint32_t bytes;
	int opcode; /* -1: a write by the lane's own function */
	int r;
} attempt;

static void try_it(struct lane_world *w)
{
	struct verbs_lane *v = container_of(w->answerer, struct verbs_lane, lane);
	struct lane_write write = { .n = attempt.bytes > 0,
		.address = attempt.address,
		.key = attempt.key,
		.cookie = 0x00770077 };
	struct ibv_sge part = { .addr = (uintptr_t)w->serve.base, .length = attempt.bytes };
	struct ibv_send_wr wr = { .wr_id = (uint64_t)v->number << 32 | v->unused[v->n_unused - 1],
		.sg_list = &part,
		.num_sge = 1,
		.send_flags = IBV_SEND_SIGNALED,
		.opcode = (enum ibv_wr_opcode)attempt.opcode };
	struct ibv_send_wr *bad;

	memset(w->serve.base, 0x11, LANE_WORLD_BYTES);
	write.parts[0].data = w->serve.base;
	write.parts[0].bytes = attempt.bytes;
	if (attempt.opcode < 0) {
		attempt.r = w->ops->write(w->answerer, &write);
		return;
	}
	assert_int_equal(
		verbs_memory_key(v->device->index, LANE_SERVE, w->serve.base, 1, &part.lkey), 0);
	wr.wr.rdma.remote_addr = attempt.address;
	wr.wr.rdma.rkey = attempt.key;
	if (attempt.opcode == IBV_WR_ATOMIC_FETCH_AND_ADD ||
		attempt.opcode == IBV_WR_ATOMIC_CMP_AND_SWP) {
		wr.wr.atomic.remote_addr = attempt.address;
		wr.wr.atomic.rkey = attempt.key;
		wr.wr.atomic.compare_add = wr.wr.atomic.swap = 1;
	}
	attempt.r = -ibv_post_send(v->qp, &wr, &bad);
	if (attempt.r == 0)
		v->contexts[v->unused[--v->n_unused]] = NULL;
}

/* The lane ended by it, at either end. */
static bool ended(struct lane_world *w)
{
	struct lane_asker_state state;

	lane_asker_look(w->asker, &state);
	return attempt.r < 0 || (!state.open && !w->answerer);
}

static void refused(struct lane_world *w, const char *what, uint64_t address, uint32_t key,
	uint32_t bytes, int opcode)
{
	attempt.address = address;
	attempt.key = key;
	attempt.bytes = bytes;
	attempt.opcode = opcode;
	open_lane(w);
	lane_world_until(w, try_it, ended);
	/* A queue pair need not take what it may not do; a write of ours it does. */
	if (opcode < 0)
		assert_int_equal(attempt.r, 0);
	print_message(
		"%s: %s\n", what, attempt.r < 0 ? "not sent" : lane_cause_text(cause_of_break(w)));
	for (size_t i = 0; i < w->land.bytes; i++)
		if (((unsigned char *)w->land.base)[i] != POISON)
			fail_msg("%s: a byte was written", what);
	if (opcode == IBV_WR_RDMA_READ)
		for (uint32_t i = 0; i < bytes; i++)
			if (((unsigned char *)w->serve.base)[i] != 0x11)
				fail_msg("%s: a byte was read", what);
	lane_world_cut(w);
	w->by_tcp = w->by_lane = 0;
}

/* Memory in a domain, registered as the product does not: of an asker's device, which is the answerer's, too. */
static struct {
	bool serve;
	int access;
	void *base;
	struct ibv_mr *mr;
} foreign;

static void register_foreign(struct lane_world *w)
{
	struct verbs_device *d = container_of(w->answerer, struct verbs_lane, lane)->device;

	foreign.mr = ibv_reg_mr(
		foreign.serve ? d->serve : d->land, foreign.base, 1 << 20, foreign.access);
	assert_non_null(foreign.mr);
}

static bool at_once(struct lane_world *w)
{
	(void)w;
	return true;
}

static void refused_foreign(struct lane_world *w, const char *what, bool serve, int access)
{
	foreign.serve = serve;
	foreign.access = access;
	foreign.base = aligned_alloc(4096, 1 << 20);
	assert_non_null(foreign.base);
	memset(foreign.base, POISON, 1 << 20);
	open_lane(w);
	lane_world_until(w, register_foreign, at_once);
	refused(w, what, (uintptr_t)foreign.base, foreign.mr->rkey, 4096, -1);
	for (size_t i = 0; i < 1 << 20; i++)
		assert_int_equal(((unsigned char *)foreign.base)[i], POISON);
	assert_int_equal(ibv_dereg_mr(foreign.mr), 0);
	free(foreign.base);
}

static void test_refusals(void **state)
{
	struct lane_world *w = *state;
	uint64_t base = (uintptr_t)w->land.base;
	uint32_t key;

	open_lane(w); /* the device is open, and has keys */
	lane_world_cut(w);
	key = w->land.land[0].key;
	refused(w, "a wrong key", base, key ^ 0x5a5a5a00, 4096, -1);
	refused(w, "the next key", base, key ^ 1, 4096, -1);
	refused(w, "the next index", base, key + 0x100, 4096, -1);
	refused(w, "memory for sending", (uintptr_t)w->serve.base, w->serve.serve[0].key, 4096, -1);
	refused(w, "an address before", base - 4096, key, 4096, -1);
	refused(w, "an address across the end", base + w->land.bytes - 100, key, 4096, -1);
	refused(w, "an address behind", base + w->land.bytes, key, 1, -1);
	refused(w, "address 0", 0, key, 4096, -1);
	refused(w, "a read", base, key, 4096, IBV_WR_RDMA_READ);
	refused(w, "an atomic addition", base, key, 8, IBV_WR_ATOMIC_FETCH_AND_ADD);
	refused(w, "an atomic exchange", base, key, 8, IBV_WR_ATOMIC_CMP_AND_SWP);
	refused(w, "a message", base, key, 4096, IBV_WR_SEND);
	refused(w, "an immediate of no request", 0, 12345, 0, -1);
	refused_foreign(w, "memory without the right", false, IBV_ACCESS_LOCAL_WRITE);
	refused_foreign(w, "memory of the other domain", true,
		IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
}

static void test_withdrawn(void **state)
{
	struct lane_world *w = *state;
	struct lane_memory other = { .bytes = 1 << 20, .domains = LANE_LAND };
	uint32_t key;

	other.base = aligned_alloc(4096, other.bytes);
	assert_non_null(other.base);
	memset(other.base, POISON, other.bytes);
	open_lane(w);
	lane_world_cut(w);
	assert_int_equal(w->ops->add(&other), 0);
	key = other.land[0].key;
	assert_int_not_equal(w->land.land[0].key, key);
	refused(w, "the key of other memory", (uintptr_t)w->land.base, key, 4096, -1);
	w->ops->remove(&other);
	refused(w, "a key that was withdrawn", (uintptr_t)other.base, key, 4096, -1);
	for (size_t i = 0; i < other.bytes; i++)
		assert_int_equal(((unsigned char *)other.base)[i], POISON);
	free(other.base);
}

/* ---- devices --------------------------------------------------------------------------------- */

static void command(const char *line)
{
	if (system(line) != 0)
		fail_msg("failed: %s", line);
}

/* The kernel fills the table of GIDs when it has the time. */
static void wait_for_gid(void)
{
	unsigned int a[4];
	char line[256];

	assert_int_equal(sscanf(addresses[0], "%u.%u.%u.%u", &a[0], &a[1], &a[2], &a[3]), 4);
	(void)snprintf(line, sizeof(line),
		"for i in $(seq 400); do grep -qs ffff:%02x%02x:%02x%02x "
		"/sys/class/infiniband/rxe0/ports/1/gids/* && exit 0; "
		"sleep 0.05; done; exit 1",
		a[0], a[1], a[2], a[3]);
	command(line);
}

static bool off(struct lane_world *w)
{
	struct lane_asker_state state;

	lane_asker_look(w->asker, &state);
	return !state.open && !w->answerer;
}

static void nothing(struct lane_world *w)
{
	(void)w;
}

/* The kernel takes the device away: its lanes are fenced by the end of the context, and a new one serves the next lane. */
static void test_taken_away(void **state)
{
	struct lane_world *w = *state;

	open_lane(w);
	taken_away = true;
	lane_world_cut(w);
	taken_away = false;
	assert_int_equal(w->late, 0);
	open_lane(w);
	w->by_lane = 0;
	lane_world_replies(w, 20);
	assert_int_equal(w->by_lane, 20);
}

/* Its removal returns, since all is released, and it is found again. */
static void test_removed(void **state)
{
	struct lane_world *w = *state;

	open_lane(w);
	lane_world_replies(w, 20);
	command("timeout 5 rdma link delete rxe0");
	lane_world_until(w, nothing, off);
	assert_int_equal(cause_of_break(w), LANE_REMOVED_CAUSE);
	lane_world_cut(w);
	assert_false(lane_world_open(w));
	assert_int_equal(cause_of_break(w), LANE_DEVICE_CAUSE);
	command("rdma link add rxe0 type rxe netdev d0");
	wait_for_gid();
	lane_world_cut(w);
	open_lane(w);
	w->by_lane = 0;
	lane_world_replies(w, 20);
	assert_int_equal(w->by_lane, 20);
}

static void test_port_down(void **state)
{
	struct lane_world *w = *state;

	open_lane(w);
	command("ip link set d0 down");
	lane_world_until(w, nothing, off);
	assert_int_equal(cause_of_break(w), LANE_PORT_CAUSE);
	command("ip link set d0 up");
	wait_for_gid();
	lane_world_cut(w);
	open_lane(w);
	lane_world_replies(w, 20);
}

static void test_address_removed(void **state)
{
	struct lane_world *w = *state;
	char line[128];

	open_lane(w);
	(void)snprintf(line, sizeof(line), "ip addr del %s/24 dev d0", addresses[0]);
	command(line);
	lane_world_until(w, nothing, off);
	assert_int_equal(cause_of_break(w), LANE_PORT_CAUSE);
	lane_world_cut(w);
	assert_false(lane_world_open(w));
	assert_int_equal(cause_of_break(w), LANE_ADDRESS_CAUSE);
	(void)snprintf(line, sizeof(line), "ip addr add %s/24 dev d0", addresses[0]);
	command(line);
	wait_for_gid();
	lane_world_cut(w);
	open_lane(w);
	lane_world_replies(w, 20);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_header_first, setup, teardown),
		cmocka_unit_test_setup_teardown(test_header_with, setup, teardown),
		cmocka_unit_test_setup_teardown(test_header_after, setup, teardown),
		cmocka_unit_test_setup_teardown(test_cancelled, setup, teardown),
		cmocka_unit_test_setup_teardown(test_cuts, setup, teardown),
		cmocka_unit_test_setup_teardown(test_refusals, setup, teardown),
		cmocka_unit_test_setup_teardown(test_withdrawn, setup, teardown),
		cmocka_unit_test_setup_teardown(test_taken_away, setup, teardown),
		cmocka_unit_test_setup_teardown(test_removed, setup, teardown),
		cmocka_unit_test_setup_teardown(test_port_down, setup, teardown),
		cmocka_unit_test_setup_teardown(test_address_removed, setup, teardown),
	};

	if (argc < 3) {
		fprintf(stderr, "usage: lane ADDRESS ADDRESS [TEST]\n");
		return 2;
	}
	addresses[0] = argv[1];
	addresses[1] = argv[2];
	if (argc > 3)
		cmocka_set_test_filter(argv[3]);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
