/*
 * Sealed extents in a whole worker: their states as bytes come, the descriptor of a sealed one,
 * damage, a restart, another generation, what is held, and what a hostile mount may ask.
 */
#include "tests/unit/cacheworker/world.h"
#include "cacheworker/seal_internal.h"
#include "locate/extent_format.h"

#define FILES  24u
#define EXTENT EXTENT_MIN

/* A worker that seals at once. */
static void start_sealing(struct world *w)
{
	w->seal_rate = 8 * GiB;
	world_start_worker(w, 1 * GiB);
	w->worker.seals->quiet_ns = 0;
}

static struct world *world_sealing(void)
{
	struct world *w = world_new(1 * GiB, FILES);

	world_stop_worker(w);
	start_sealing(w);
	return w;
}

static struct rpc_call call_for(
	const struct world *w, const struct table *table, const struct seal_ask *ask, uint32_t n)
{
	static uint8_t packed[SEAL_ASK_BYTES];
	const struct generation_id *id = &table_info(table)->id;
	struct rpc_call call = world_make_call(w, FRAME_SEAL, 0, n, 0);

	call.frame.lineage = id->lineage;
	call.frame.generation = id->generation;
	call.frame.extent = EXTENT;
	call.payload.parts[0].data = packed;
	call.payload.parts[0].len = seal_ask_pack(ask, n, packed);
	call.payload.n = 1;
	return call;
}

#define POLL_NS (10 * CLOCK_MS) /* a worker that is asked all the time is never idle */

/* The state of the first extent for the generation of `table`. */
static struct seal_status poll_of(
	struct world *w, const struct table *table, bool held, uint64_t *ret_epoch)
{
	struct seal_ask ask = { .end = table_info(table)->end, .held = { held } };
	struct rpc_call call = call_for(w, table, &ask, 1);
	struct seal_status status;
	struct err e = ERR_INIT;

	if (rpc_call_wait(w->client, &call, &e) < 0)
		fail_msg("%s", e.text);
	assert_true(call.reply_fd < 0);
	assert_int_equal(
		seal_states_unpack(call.reply_payload, call.reply.payload, 1, ret_epoch, &status),
		0);
	rpc_call_release(&call);
	return status;
}

static struct seal_status poll_until(
	struct world *w, const struct table *table, bool held, enum seal_state state)
{
	struct seal_status status;
	uint64_t epoch;

	for (;;) {
		status = poll_of(w, table, held, &epoch);
		if (status.state == state)
			return status;
		test_advance(POLL_NS);
	}
}

/* Until it was looked at: what was found to be there a moment ago is incomplete, and nobody knows by how much. */
static uint64_t missing_of(struct world *w, const struct table *table)
{
	uint64_t missing;

	while ((missing = poll_until(w, table, false, SEAL_INCOMPLETE).missing) == 0)
		test_advance(POLL_NS);
	return missing;
}

/* The descriptor, or -1. */
static int take(struct world *w)
{
	struct seal_ask ask = { .end = table_info(w->table)->end, .take = true };
	struct rpc_call call = call_for(w, w->table, &ask, 1);
	struct seal_status status;
	struct err e = ERR_INIT;
	uint64_t epoch;
	int fd;

	if (rpc_call_wait(w->client, &call, &e) < 0)
		fail_msg("%s", e.text);
	assert_int_equal(
		seal_states_unpack(call.reply_payload, call.reply.payload, 1, &epoch, &status), 0);
	fd = TAKE_FD(call.reply_fd);
	assert_int_equal(fd >= 0, status.state == SEAL_SEALED);
	rpc_call_release(&call);
	return fd;
}

static void read_everything(struct world *w)
{
	uint32_t local;
	uint32_t ranges;

	world_read_all(w, 0, &local, &ranges);
	world_wait_written(w);
}

/* All of the volume through the descriptor. */
static void check_file(const struct world *w, int fd)
{
	uint8_t *data = malloc(w->model_bytes);

	assert_non_null(data);
	assert_int_equal(file_pread_exact(fd, data, w->model_bytes, 0), 0);
	assert_memory_equal(data, w->model, w->model_bytes);
	free(data);
}

static uint64_t held_bytes(const struct world *w)
{
	struct tier_status status;

	tier_set_status(w->worker.tiers, 0, &status);
	return status.held;
}

/* ---- tests ----------------------------------------------------------------------------------- */

static void test_states(void **state)
{
	struct world *w = world_sealing();
	struct seal_status status;
	struct stat st;
	int fd;

	(void)state;
	(void)poll_until(w, w->table, false, SEAL_ABSENT);
	(void)world_read_range(w, world_offset_of(w, 6), 64 * KiB, 0);
	world_wait_written(w);
	assert_true(missing_of(w, w->table) < align_up(table_info(w->table)->end, MiB));
	assert_int_equal(take(w), -1);
	read_everything(w);
	status = poll_until(w, w->table, false, SEAL_SEALED);
	assert_int_equal(status.findings, 0);
	assert_int_equal(status.missing, 0);
	/* Everything was read from the disk for that, once. */
	assert_true(
		counter_get(&w->worker.counters.seal_bytes) >= table_info(w->table)->live_bytes);
	assert_int_equal(counter_get(&w->worker.counters.sealed), 1);
	fd = take(w);
	assert_true(fd >= 0);
	assert_int_equal(fcntl(fd, F_GETFL) & O_ACCMODE, O_RDONLY);
	assert_int_equal(fstat(fd, &st), 0);
	assert_int_equal(st.st_size, extent_file_bytes(EXTENT));
	check_file(w, fd);
	(void)close(fd);
	world_free(w);
}

/* What was written a moment ago may be written again: it is left alone for a while. */
static void test_quiet(void **state)
{
	struct world *w = world_sealing();
	struct seal_status status;
	uint64_t epoch;

	(void)state;
	w->worker.seals->quiet_ns = UINT64_MAX;
	read_everything(w);
	for (;;) {
		status = poll_of(w, w->table, false, &epoch);
		assert_int_not_equal(status.state, SEAL_SEALED);
		if (status.why == SEAL_WHY_QUIET)
			break;
		test_advance(POLL_NS);
	}
	assert_int_equal(status.missing, 0);
	assert_int_equal(counter_get(&w->worker.counters.seal_bytes), 0);
	w->worker.seals->quiet_ns = 0;
	(void)poll_until(w, w->table, false, SEAL_SEALED);
	world_free(w);
}

static void flip(int fd, uint64_t offset)
{
	char path[64];
	uint8_t byte;
	int file;

	(void)snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	assert_int_equal(chmod(path, 0600), 0);
	file = open(path, O_RDWR | O_CLOEXEC);
	assert_true(file >= 0);
	assert_int_equal(pread(file, &byte, 1, (off_t)offset), 1);
	byte ^= 0x40;
	assert_int_equal(pwrite(file, &byte, 1, (off_t)offset), 1);
	assert_int_equal(fsync(file), 0);
	(void)close(file);
}

static void scrub_now(struct world *w)
{
	json_t *body = json_object();
	json_t *json = NULL;
	struct err e = ERR_INIT;

	assert_int_equal(admin_call(w->admin, "POST", "/v1/scrub", body, DEADLINE, &json, &e), 0);
	json_decref(json);
	json_decref(body);
}

static void test_finding(void **state)
{
	struct world *w = world_sealing();
	uint64_t bytes;
	uint64_t epoch;
	int fd;

	(void)state;
	read_everything(w);
	(void)poll_until(w, w->table, false, SEAL_SEALED);
	fd = take(w);
	assert_true(fd >= 0);
	bytes = counter_get(&w->worker.counters.seal_bytes);
	flip(fd, world_offset_of(w, 6) + 100);
	/* Nobody knows yet. */
	assert_int_equal(poll_of(w, w->table, true, &epoch).findings, 0);
	scrub_now(w);
	while (poll_of(w, w->table, true, &epoch).findings == 0)
		test_advance(POLL_NS);
	/* Repaired in place, verified again: only the chunk that was damaged. */
	assert_int_equal(poll_until(w, w->table, true, SEAL_SEALED).findings, 1);
	check_file(w, fd);
	assert_int_equal(counter_get(&w->worker.counters.unsealed), 1);
	assert_int_equal(counter_get(&w->worker.counters.sealed), 2);
	assert_true(counter_get(&w->worker.counters.seal_bytes) - bytes <= CHUNK_BYTES);
	(void)close(fd);
	world_free(w);
}

static void test_restart(void **state)
{
	struct world *w = world_sealing();
	uint64_t before;
	uint64_t after;
	int fd;

	(void)state;
	read_everything(w);
	(void)poll_until(w, w->table, false, SEAL_SEALED);
	(void)poll_of(w, w->table, false, &before);
	fd = take(w);
	assert_true(fd >= 0);
	world_stop_worker(w);
	start_sealing(w);
	/* Verified again; what the mount says it has is held again. */
	assert_int_equal(poll_until(w, w->table, true, SEAL_SEALED).findings, 0);
	(void)poll_of(w, w->table, true, &after);
	assert_true(before != after);
	assert_true(
		counter_get(&w->worker.counters.seal_bytes) >= table_info(w->table)->live_bytes);
	/* What rots while nobody looks is found before it is sealed again. */
	world_stop_worker(w);
	flip(fd, world_offset_of(w, 9) + 5);
	start_sealing(w);
	assert_int_equal(poll_until(w, w->table, true, SEAL_SEALED).findings, 1);
	check_file(w, fd);
	(void)close(fd);
	world_free(w);
}

static void wait_not_held(struct world *w)
{
	uint64_t epoch;

	(void)poll_of(w, w->table, false, &epoch);
	test_wait(held_bytes(w) == 0);
}

/* What goes all the same is unlinked whole: its descriptor reads right bytes, which stay charged as
 * held until the mount says that it let go. */
static void test_dropped_while_held(void **state)
{
	struct world *w = world_sealing();
	const struct generation_id id = table_info(w->table)->id;
	uint64_t epoch;
	int fd;

	(void)state;
	read_everything(w);
	(void)poll_until(w, w->table, false, SEAL_SEALED);
	fd = take(w);
	assert_true(fd >= 0);
	(void)poll_of(w, w->table, true, &epoch);
	assert_true(tier_set_drop(w->worker.tiers, &id.volume, id.lineage, NULL, NULL) > 0);
	(void)poll_until(w, w->table, true, SEAL_ABSENT);
	assert_true(held_bytes(w) >= table_info(w->table)->live_bytes);
	check_file(w, fd);
	(void)close(fd);
	wait_not_held(w);
	world_free(w);
}

/* A quota that an operator made smaller is met: the mount is told that bytes are gone. */
static void test_quota_while_held(void **state)
{
	struct world *w = world_sealing();
	const struct generation_id id = table_info(w->table)->id;
	const struct tier_policy less = { .quota = MiB };
	int fd;

	(void)state;
	read_everything(w);
	(void)poll_until(w, w->table, false, SEAL_SEALED);
	fd = take(w);
	assert_true(fd >= 0);
	assert_int_equal(tier_set_policy(w->worker.tiers, &id.volume, &less), 0);
	(void)poll_until(w, w->table, true, SEAL_ABSENT);
	check_file(w, fd);
	(void)close(fd);
	wait_not_held(w);
	world_free(w);
}

/* What a later generation appends is no matter of the earlier one's. */
static void test_generations(void **state)
{
	struct world *w = world_sealing();
	struct table *first = w->table;
	char *path;
	int fd;

	(void)state;
	read_everything(w);
	(void)poll_until(w, first, false, SEAL_SEALED);
	path = w->table_path;
	w->table_path = NULL;
	world_write_files(w, FILES, FILES + 4);
	w->table = world_make_table(w, "next");
	world_make_model(w);
	assert_true(table_info(w->table)->end > table_info(first)->end);
	assert_true(missing_of(w, w->table) > 0);
	assert_int_equal(poll_until(w, first, false, SEAL_SEALED).findings, 0);
	read_everything(w);
	(void)poll_until(w, w->table, false, SEAL_SEALED);
	(void)poll_until(w, first, false, SEAL_SEALED);
	assert_int_equal(counter_get(&w->worker.counters.unsealed), 0);
	fd = take(w);
	assert_true(fd >= 0);
	check_file(w, fd);
	(void)close(fd);
	table_unref(first);
	free(path);
	world_free(w);
}

/* The state of the first of three extents, by one that takes them for four times as large. */
static struct seal_status poll_as_large(struct world *w)
{
	struct seal_ask ask = { .end = UINT64_MAX };
	struct rpc_call call = call_for(w, w->table, &ask, 3);
	struct seal_status states[3];
	struct err e = ERR_INIT;
	uint64_t epoch;

	call.frame.extent = 4 * EXTENT;
	assert_int_equal(rpc_call_wait(w->client, &call, &e), 0);
	assert_int_equal(
		seal_states_unpack(call.reply_payload, call.reply.payload, 3, &epoch, states), 0);
	rpc_call_release(&call);
	return states[0];
}

static void test_other_sizes(void **state)
{
	struct world *w = world_sealing();
	struct seal_status first;

	(void)state;
	read_everything(w);
	while ((first = poll_as_large(w)).state != SEAL_REFUSED)
		test_advance(POLL_NS);
	assert_int_equal(first.why, SEAL_WHY_SIZE);
	world_free(w);
}

static int status_of(struct world *w, struct rpc_call *call)
{
	struct err e = ERR_INIT;
	int r = rpc_call_wait(w->client, call, &e);

	assert_true(call->reply_fd < 0);
	rpc_call_release(call);
	return r;
}

static void test_hostile(void **state)
{
	struct world *w = world_sealing();
	struct seal_ask ask = { .end = UINT64_MAX };
	struct rpc_call call;

	(void)state;
	memset(ask.held, 0xff, sizeof(ask.held));
	call = call_for(w, w->table, &ask, 8);
	call.frame.length = 0;
	assert_int_equal(status_of(w, &call), -EINVAL);
	call = call_for(w, w->table, &ask, 8);
	call.frame.length = 7; /* of 8 bits */
	assert_int_equal(status_of(w, &call), -EBADMSG);
	call = call_for(w, w->table, &ask, 8);
	call.frame.offset = LIMIT_DEVICES;
	assert_int_equal(status_of(w, &call), -EINVAL);
	call = call_for(w, w->table, &ask, 8);
	call.frame.offset = UINT64_MAX - 8;
	assert_int_equal(status_of(w, &call), -EINVAL);
	call = call_for(w, w->table, &ask, 8);
	call.frame.extent = 3 * EXTENT;
	assert_int_equal(status_of(w, &call), -EINVAL);
	call = call_for(w, w->table, &ask, 8);
	call.payload.parts[0].data = "\xff\xff\xff";
	call.payload.parts[0].len = 3;
	assert_int_equal(status_of(w, &call), -EBADMSG);
	ask.take = true;
	call = call_for(w, w->table, &ask, 8);
	assert_int_equal(status_of(w, &call), -EINVAL);
	/* A volume that nobody knows, a generation that is not there: states, and nothing held. */
	ask.take = false;
	call = call_for(w, w->table, &ask, 8);
	call.frame.volume.bytes[0] ^= 1;
	assert_int_equal(status_of(w, &call), 0);
	call = call_for(w, w->table, &ask, 8);
	call.frame.generation += 5;
	assert_int_equal(status_of(w, &call), 0);
	/* More views than there is room for. */
	for (uint32_t i = 0; i < SEAL_VIEWS_MAX; i++) {
		call = call_for(w, w->table, &ask, 8);
		call.frame.generation += 100 + i;
		(void)status_of(w, &call);
	}
	assert_int_equal(status_of(w, &call), -ENOSPC);
	world_free(w);
}

/* A worker that is told to seal nothing says so. */
static void test_off(void **state)
{
	struct world *w = world_new(1 * GiB, 4);
	struct seal_status status;
	uint64_t epoch;

	(void)state;
	status = poll_of(w, w->table, true, &epoch);
	assert_int_equal(status.state, SEAL_REFUSED);
	assert_int_equal(status.why, SEAL_WHY_OFF);
	assert_int_equal(take(w), -1);
	world_free(w);
}

/* As much as a mount has to come back in. */
static void time_passes(struct world *w)
{
	struct seals *seals = w->worker.seals;

	pthread_mutex_lock(&seals->lock);
	list_for_each (node, &seals->holders)
		list_entry(node, struct seal_holder, link)->until_ns = 0;
	pthread_mutex_unlock(&seals->lock);
}

/* A connection that ends keeps what it held for a while: its mount may come back. */
static void test_gone(void **state)
{
	struct world *w = world_sealing();
	struct err e = ERR_INIT;
	struct extent *extent;
	struct chunk_id id = { .volume = table_info(w->table)->id.volume,
		.lineage = table_info(w->table)->id.lineage };
	struct chunk *chunk;
	int fd;

	(void)state;
	read_everything(w);
	(void)poll_until(w, w->table, false, SEAL_SEALED);
	fd = take(w);
	assert_true(fd >= 0);
	chunk = tier_chunk_find(w->worker.tiers, &id);
	assert_non_null(chunk);
	assert_true(tier_seal_is_held(chunk));
	rpc_client_free(w->client);
	assert_int_equal(rpc_client_new(w->loop, w->address, &w->client, &e), 0);
	assert_true(tier_seal_is_held(chunk));
	(void)poll_until(w, w->table, true, SEAL_SEALED);
	seal_holders_expire(&w->worker, false);
	assert_true(tier_seal_is_held(chunk));
	time_passes(w);
	seal_holders_expire(&w->worker, false);
	assert_false(tier_seal_is_held(chunk));
	extent = tier_seal_find(w->worker.tiers, &id.volume, id.lineage, 0);
	assert_non_null(extent);
	tier_seal_unref(extent);
	chunk_unref(chunk);
	(void)close(fd);
	world_free(w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_states),
		cmocka_unit_test(test_quiet),
		cmocka_unit_test(test_finding),
		cmocka_unit_test(test_restart),
		cmocka_unit_test(test_dropped_while_held),
		cmocka_unit_test(test_quota_while_held),
		cmocka_unit_test(test_generations),
		cmocka_unit_test(test_other_sizes),
		cmocka_unit_test(test_hostile),
		cmocka_unit_test(test_off),
		cmocka_unit_test(test_gone),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
