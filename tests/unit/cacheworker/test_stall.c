/*
 * A tier whose disk hangs, under a worker: every reader gets right bytes from the origin while it
 * lasts, whether the hanging call was his, came before or after; when it is over the tier serves
 * again. The disk is one of the test's own.
 */
#include "tests/unit/cacheworker/world.h"
#include "cacheworker/tier_call.h"
#include "tiers/disk.h"
#include "tiers/tier_set_internal.h"
#include <malloc.h>

#define FILES   24u
#define READERS 12u
#define MANY    64u
#define SMALL   500u
#define KEPT    60u /* MiB of units: they may be kept */
#define TAKEN   40u /* as many MiB as the window has */
/* Bytes that the heap may round two allocations up by, together. */
#define HEAP_ROUNDS 64u

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static bool hangs;
static bool slow;              /* whole units are not written for now */
static bool full;              /* nothing is written */
static char hanging_tier[128]; /* writes to files below it hang; "": none do */

static void set_flag(bool *flag, bool now)
{
	pthread_mutex_lock(&lock);
	*flag = now;
	pthread_cond_broadcast(&changed);
	pthread_mutex_unlock(&lock);
}

static void set_hanging_tier(const char *path)
{
	pthread_mutex_lock(&lock);
	(void)snprintf(hanging_tier, sizeof(hanging_tier), "%s", path);
	pthread_cond_broadcast(&changed);
	pthread_mutex_unlock(&lock);
}

static bool is_below_locked(int fd)
{
	char link[32];
	char path[PATH_MAX];
	ssize_t n;

	if (!hanging_tier[0])
		return false;
	(void)snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	n = readlink(link, path, sizeof(path) - 1);
	path[max(n, 0)] = '\0';
	return strncmp(path, hanging_tier, strlen(hanging_tier)) == 0;
}

static void wait_while_tier_hangs(int fd)
{
	pthread_mutex_lock(&lock);
	while (is_below_locked(fd))
		pthread_cond_wait(&changed, &lock);
	pthread_mutex_unlock(&lock);
}

static void wait_while_hanging(size_t len)
{
	pthread_mutex_lock(&lock);
	while (hangs || (slow && len >= UNIT_BYTES))
		pthread_cond_wait(&changed, &lock);
	pthread_mutex_unlock(&lock);
}

static bool is_set(const bool *flag)
{
	bool now;

	pthread_mutex_lock(&lock);
	now = *flag;
	pthread_mutex_unlock(&lock);
	return now;
}

static ssize_t slow_pread(int fd, void *data, size_t len, uint64_t offset)
{
	wait_while_hanging(0);
	return disk_kernel.pread(fd, data, len, offset);
}

static ssize_t slow_pwrite(int fd, const void *data, size_t len, uint64_t offset)
{
	wait_while_hanging(len);
	wait_while_tier_hangs(fd);
	if (is_set(&full))
		return -ENOSPC;
	return disk_kernel.pwrite(fd, data, len, offset);
}

static int slow_open(int dir, const char *path, int flags, mode_t mode)
{
	wait_while_hanging(0);
	return disk_kernel.open(dir, path, flags, mode);
}

struct reader {
	pthread_t thread;
	struct world *w;
	unsigned int number;
};

static void *reader_main(void *arg)
{
	struct reader *r = arg;
	uint64_t step = 256 * KiB;
	uint64_t places = r->w->model_bytes / step;

	for (uint64_t i = 0; i < places; i++)
		(void)world_read_range(
			r->w, (i * 7 + r->number) % places * step, (uint32_t)step, 0);
	return NULL;
}

static void read_by_all(struct world *w)
{
	struct reader readers[READERS];

	for (unsigned int i = 0; i < READERS; i++) {
		readers[i] = (struct reader){ .w = w, .number = i };
		assert_int_equal(
			pthread_create(&readers[i].thread, NULL, reader_main, &readers[i]), 0);
	}
	for (unsigned int i = 0; i < READERS; i++)
		assert_int_equal(pthread_join(readers[i].thread, NULL), 0);
}

static bool is_in_state(struct world *w, const char *state)
{
	struct tier_status status;

	tier_set_status(w->worker.tiers, 0, &status);
	return strcmp(status.state, state) == 0;
}

/* From here on the disk hangs after a second; or it does not, though all of the machine stands still for some. */
static void set_hasty(struct world *w, bool hasty)
{
	gate_set_stall(&w->worker.tiers->tiers[0]->gate, hasty ? CLOCK_SECOND : DEADLINE);
	w->worker.tier_call_ns = hasty ? CLOCK_SECOND + CLOCK_SECOND / 2 : 2 * DEADLINE;
}

static struct world *hasty_world(void)
{
	struct world *w = world_new(1 * GiB, FILES);

	set_hasty(w, true);
	return w;
}

static void test_reads_go_on(void **state)
{
	struct world *w = world_new(1 * GiB, FILES);
	uint32_t local;
	uint32_t ranges;
	uint64_t gets;

	(void)state;
	set_hasty(w, false);
	world_read_all(w, 0, &local, &ranges);
	world_wait_written(w);
	gets = world_origin_gets(w);
	set_hasty(w, true);
	set_flag(&hangs, true);
	read_by_all(w);
	assert_true(counter_get(&w->worker.counters.stalled) >= 1);
	assert_true(world_origin_gets(w) > gets);
	test_wait(is_in_state(w, "stalled"));
	gets = counter_get(&w->worker.counters.stalled);
	read_by_all(w); /* nobody tries that disk any more */
	assert_int_equal(counter_get(&w->worker.counters.stalled), gets);
	set_flag(&hangs, false);
	set_hasty(w, false);
	test_wait(is_in_state(w, "ok"));
	gets = world_origin_gets(w);
	world_read_all(w, 0, &local, &ranges);
	assert_int_equal(world_origin_gets(w), gets); /* all of it is still cached */
	world_free(w);
}

/* It hangs before anything is cached: creating files, opening and writing them. */
static void test_cold_reads_go_on(void **state)
{
	struct world *w = hasty_world();

	(void)state;
	set_flag(&hangs, true);
	read_by_all(w);
	test_wait(is_in_state(w, "stalled"));
	read_by_all(w);
	set_flag(&hangs, false);
	test_wait(is_in_state(w, "ok"));
	read_by_all(w);
	world_free(w);
}

/* ---- other works ----------------------------------------------------------------------------- */

static _Atomic unsigned int joins;

static void on_cluster_request(struct world *w, struct rpc_request *request)
{
	(void)w;
	joins += request->frame.op == FRAME_JOIN;
	rpc_reply(request, -EOPNOTSUPP, NULL, NET_PAYLOAD_NONE);
}

/* The work that reads the hanging disk keeps its thread; the others go on: to the master the worker is not late. */
static void test_master_is_asked(void **state)
{
	struct world *w = world_new(1 * GiB, FILES);
	uint32_t local;
	uint32_t ranges;
	unsigned int seen;

	(void)state;
	world_read_all(w, 0, &local, &ranges);
	world_wait_written(w);
	world_stop_worker(w);
	w->scrub_rate = GiB;
	w->scrub_max_age = CLOCK_SECOND;
	w->cluster = on_cluster_request;
	world_start_worker(w, 1 * GiB);
	set_hasty(w, true);
	set_flag(&hangs, true);
	test_wait(is_in_state(w, "stalled")); /* a pass reads it */
	seen = joins;
	test_wait(joins >= seen + 2);
	set_flag(&hangs, false);
	test_wait(is_in_state(w, "ok"));
	world_free(w);
}

/* ---- the call itself ------------------------------------------------------------------------ */

static _Atomic unsigned int released;

static int hang(void *arg)
{
	wait_while_hanging(0);
	return *(int *)arg;
}

static void release(void *arg)
{
	(void)arg;
	released++;
}

static void test_tier_call(void **state)
{
	struct world *w = hasty_world();
	int result = -ENODATA;

	(void)state;
	set_hasty(w, false);
	assert_int_equal(tier_call(&w->worker, hang, release, &result), -ENODATA);
	assert_int_equal(released, 0); /* the caller has it again */
	set_hasty(w, true);
	set_flag(&hangs, true);
	assert_int_equal(tier_call(&w->worker, hang, release, &result), -ETIMEDOUT);
	assert_int_equal(released, 0);
	set_flag(&hangs, false);
	test_wait(released != 0);
	world_free(w);
	assert_int_equal(released, 1);
}

static void announce_all(struct world *w)
{
	for (uint64_t at = 0; at < w->model_bytes; at += CHUNK_BYTES) {
		struct rpc_call call = world_make_call(
			w, FRAME_PREFETCH, at, (uint32_t)min(CHUNK_BYTES, w->model_bytes - at), 0);
		struct err e = ERR_INIT;

		assert_int_equal(rpc_call_wait(w->client, &call, &e), 0);
		rpc_call_release(&call);
	}
}

/* All that has begun waits for the disk, and no more of what was announced begins. */
static bool waits_for_disk(struct world *w)
{
	struct worker *worker = &w->worker;
	bool waits;

	pthread_mutex_lock(&worker->fills.lock);
	waits = !worker->fills.pumping &&
		(worker->fills.hungry || list_empty(&worker->fills.ahead));
	pthread_mutex_unlock(&worker->fills.lock);
	pthread_mutex_lock(&worker->flights.lock);
	waits &= counter_get(&worker->counters.flights) * UNIT_BYTES == worker->flights.writing;
	pthread_mutex_unlock(&worker->flights.lock);
	return waits;
}

/* A disk that does not keep up does not fill the memory with what no reader waits for; all of that comes in the end. */
static void test_announced_waits_for_slow_disk(void **state)
{
	struct world *w = world_new_sized(1 * GiB, MANY, UNIT_BYTES, 512 * MiB);

	(void)state;
	(void)world_read_range(w, 0, BLOCK_BYTES, FRAME_EXACT); /* the table is there */
	world_wait_written(w);
	gate_set_stall(
		&w->worker.tiers->tiers[0]->gate, 1000 * DEADLINE); /* slow, but it does not hang */
	w->worker.tier_call_ns = 1000 * DEADLINE;
	w->worker.fills.max_in_flight = 2 * MANY; /* more than the memory in question */
	set_flag(&slow, true);
	announce_all(w);
	test_wait(waits_for_disk(w));
	assert_in_range(w->worker.flights.writing, 16 * MiB, 40 * MiB);
	set_flag(&slow, false);
	world_wait_written(w);
	assert_int_equal(world_origin_gets(w), world_units(w));
	world_free(w);
}

struct collected {
	struct flight *flights[TAKEN];
	unsigned int n;
};

/* As an answer does that goes out of a unit's memory. */
static void collect(struct map_node *node, void *arg)
{
	struct flight *f = container_of(node, struct flight, node);
	struct collected *collected = arg;

	atomic_fetch_add(&f->refs, 1);
	collected->flights[collected->n++] = f;
}

static uint64_t units_begun(struct world *w)
{
	uint64_t bytes;

	pthread_mutex_lock(&w->worker.flights.lock);
	bytes = w->worker.flights.begun;
	pthread_mutex_unlock(&w->worker.flights.lock);
	return bytes;
}

/* Units that only answers still need, of a client that takes none, hold up nothing that was announced. */
static void test_announced_passes_answers(void **state)
{
	struct world *w = world_new_sized(1 * GiB, MANY, UNIT_BYTES, 512 * MiB);
	struct flights *flights = &w->worker.flights;
	struct collected collected = { 0 };

	(void)state;
	set_hasty(w, false);
	for (unsigned int i = 0; i < TAKEN; i++) {
		set_flag(&slow, true); /* until a reply refers to it */
		(void)world_read_range(w, world_offset_of(w, i), UNIT_BYTES, FRAME_EXACT);
		pthread_mutex_lock(&flights->lock);
		map_each(&flights->units, collect, &collected);
		pthread_mutex_unlock(&flights->lock);
		assert_int_equal(collected.n, i + 1);
		set_flag(&slow, false);
		world_wait_written(w);
	}
	test_wait(units_begun(w) == 0);
	assert_true(w->worker.memory.used >= TAKEN * UNIT_BYTES);
	announce_all(w);
	world_wait_written(w);
	assert_int_equal(world_origin_gets(w), world_units(w));
	for (unsigned int i = 0; i < TAKEN; i++)
		flight_unref(collected.flights[i]);
	world_free(w);
}

static unsigned int flights_kept(struct world *w)
{
	struct flights *flights = &w->worker.flights;
	unsigned int n = 0;

	pthread_mutex_lock(&flights->lock);
	list_for_each (node, &flights->kept)
		n++;
	pthread_mutex_unlock(&flights->lock);
	return n;
}

struct kept {
	unsigned int n;
	uint64_t cost;
	uint64_t taken; /* of the heap */
};

static void note_kept(struct map_node *node, void *arg)
{
	struct flight *f = container_of(node, struct flight, node);
	struct kept *kept = arg;

	assert_false(f->recycled);
	kept->n++;
	kept->cost += f->cost;
	kept->taken += malloc_usable_size(f->data) + malloc_usable_size(f);
}

/* Units of small objects that no tier takes: their memory is what is counted, not pages of which they need little. */
static void test_small_kept_units(void **state)
{
	struct world *w = world_new_sized(1 * GiB, FILES, SMALL, 0);
	struct flights *flights = &w->worker.flights;
	struct kept kept = { 0 };

	(void)state;
	set_flag(&full, true);
	for (unsigned int i = 0; i < FILES; i++)
		(void)world_read_range(w, world_offset_of(w, i), BLOCK_BYTES, FRAME_EXACT);
	test_wait(world_fills(w) == 0 && flights_kept(w) == FILES);
	pthread_mutex_lock(&flights->lock);
	map_each(&flights->units, note_kept, &kept);
	assert_int_equal(flights->kept_bytes, kept.cost);
	assert_int_equal(flights->begun, 0);
	pthread_mutex_unlock(&flights->lock);
	assert_int_equal(kept.n, FILES);
	assert_in_range(kept.taken, kept.n * SMALL, kept.cost + kept.n * HEAP_ROUNDS);
	set_flag(&full, false);
	world_free(w);
}

struct announced {
	struct rpc_call call;
	_Atomic int status;
};

static void on_announced(struct rpc_call *call, int status)
{
	struct announced *announced = call->arg;

	rpc_call_release(call);
	announced->status = status;
}

/* Units that no tier takes: they leave the window, so others begin, for which nothing that is kept has to go. */
static void test_kept_units_leave_window(void **state)
{
	struct world *w = world_new_sized(1 * GiB, MANY, UNIT_BYTES, 512 * MiB);
	static struct announced announced[KEPT];

	(void)state;
	pthread_mutex_lock(&w->worker.flights.lock);
	w->worker.flights.window = 3 * MiB; /* for two of them */
	pthread_mutex_unlock(&w->worker.flights.lock);
	set_flag(&full, true);
	for (unsigned int i = 0; i < KEPT; i++) {
		announced[i].call = world_make_call(
			w, FRAME_FETCH, world_offset_of(w, i), UNIT_BYTES, FRAME_EXACT);
		announced[i].call.frame.class = FRAME_AHEAD;
		announced[i].call.on_done = on_announced;
		announced[i].call.arg = &announced[i];
		announced[i].status = 1;
		rpc_call(w->client, &announced[i].call);
	}
	for (unsigned int i = 0; i < KEPT; i++)
		test_wait(announced[i].status == 0);
	test_wait(world_fills(w) == 0 && flights_kept(w) == KEPT);
	assert_true(counter_get(&w->worker.counters.starved) > 0);
	set_flag(&full, false);
	world_free(w);
}

static const struct tier *tier_of(struct world *w, unsigned int file)
{
	const struct generation_id *id = &table_info(w->table)->id;
	struct chunk *chunk = tier_chunk_find(
		w->worker.tiers, &(struct chunk_id){ .volume = id->volume,
					 .lineage = id->lineage,
					 .chunk = world_offset_of(w, file) >> CHUNK_BITS });
	const struct tier *tier = chunk ? chunk->tier : NULL;

	chunk_unref(chunk);
	return tier;
}

/* A write to one of two tiers never returns: what landed behind it is kept, and what was announced comes, in the other tier. */
static void test_fills_pass_hanging_tier(void **state)
{
	struct world *w = world_prepare(MANY, UNIT_BYTES, 512 * MiB);
	const struct worker_counters *counters = &w->worker.counters;
	const struct tier *tier;

	(void)state;
	(void)snprintf(w->other_tier, sizeof(w->other_tier), "%s/other", w->dir);
	world_start_worker(w, 1 * GiB);
	(void)world_read_range(w, 0, BLOCK_BYTES, FRAME_EXACT);
	world_wait_written(w);
	tier = tier_of(w, 0);
	assert_non_null(tier);
	for (unsigned int i = 0; i < 2; i++)
		gate_set_stall(&w->worker.tiers->tiers[i]->gate,
			w->worker.tiers->tiers[i] == tier ? CLOCK_SECOND : 1000 * DEADLINE);
	set_hanging_tier(tier->path);
	announce_all(w);
	test_wait(counter_get(&counters->written_units) + counter_get(&counters->write_errors) +
			  TIER_CALLS >=
		  MANY);
	assert_non_null(tier_of(w, MANY - 1));
	assert_ptr_not_equal(tier_of(w, MANY - 1), tier);
	assert_int_equal(world_origin_gets(w), world_units(w));
	assert_true(counter_get(&counters->write_errors) > 0);
	set_hanging_tier("");
	test_wait(world_fills(w) == 0);
	world_free(w);
}

int main(void)
{
	static struct disk_ops ops;
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_reads_go_on),
		cmocka_unit_test(test_cold_reads_go_on),
		cmocka_unit_test(test_tier_call),
		cmocka_unit_test(test_master_is_asked),
		cmocka_unit_test(test_announced_waits_for_slow_disk),
		cmocka_unit_test(test_announced_passes_answers),
		cmocka_unit_test(test_fills_pass_hanging_tier),
		cmocka_unit_test(test_small_kept_units),
		cmocka_unit_test(test_kept_units_leave_window),
	};

	ops = disk_kernel;
	ops.open = slow_open;
	ops.pread = slow_pread;
	ops.pread_now = NULL;
	ops.pwrite = slow_pwrite;
	ops.pwritev = NULL;
	(void)disk_use(&ops); /* the kernel's, for ever */
	return cmocka_run_group_tests(tests, NULL, NULL);
}
