/* Reads through the worker: bytes, chunk borders, retries, cancel, a worker that goes and comes
 * back, bounds. */
#include <signal.h>
#include <sys/wait.h>
#include "base/log.h"
#include "tests/unit/client/fixture.h"
#include "client/client_internal.h"
#include "tests/clock/test_clock.h"
#include "tests/unit/net/cluster_key.h"

static uint64_t border(const struct fix *f)
{
	uint64_t at = align_up(fix_object(f, "b/large")->offset + 1, CHUNK_BYTES);

	assert_true(at + MiB < f->end);
	return at;
}

static void test_bytes(void **state)
{
	struct fix *f = *state;
	const struct fix_object *o = fix_object(f, "a/small-07");

	f->local = false;
	fix_read(f, o->offset, PIECE_BYTES);
	/* Inside a piece: asked for whole, so that it can be checked. */
	fix_read(f, o->offset + PIECE_BYTES + BLOCK_BYTES, BLOCK_BYTES);
	assert_int_equal(f->seen[1].offset, o->offset + PIECE_BYTES);
	assert_int_equal(f->seen[1].length, align_up(o->size - PIECE_BYTES, BLOCK_BYTES));
	assert_int_equal(fix_counter(f, "remote_bytes"), PIECE_BYTES + BLOCK_BYTES);
	assert_int_equal(fix_counter(f, "local_bytes"), 0);
	/* 1 MiB from the middle of a piece is more than one answer may carry. */
	fix_read(f, fix_object(f, "b/large")->offset + BLOCK_BYTES, MiB);
	assert_int_equal(fix_count(f, FRAME_FETCH), 4);
}

static void test_bytes_random(void **state)
{
	struct fix *f = *state;
	uint64_t seed = 7;

	f->local = false;
	for (int i = 0; i < 150; i++) {
		uint64_t offset = fix_mix(seed++) % (f->end / BLOCK_BYTES + 4) * BLOCK_BYTES;
		uint32_t length = (uint32_t)(fix_mix(seed++) % 256 + 1) * BLOCK_BYTES;

		fix_read(f, offset, length);
	}
	assert_int_equal(fix_counter(f, "retries"), 0);
}

static void check_border(struct fix *f)
{
	uint64_t at = border(f);

	fix_read(f, at - PIECE_BYTES, 2 * PIECE_BYTES);
	fix_read(f, at - MiB / 2 - BLOCK_BYTES, MiB);
	fix_read(f, at - BLOCK_BYTES, 2 * BLOCK_BYTES);
	for (uint32_t i = 0; i < f->seen_n; i++)
		assert_int_equal(f->seen[i].offset / CHUNK_BYTES,
			(f->seen[i].offset + f->seen[i].length - 1) / CHUNK_BYTES);
}

static void test_border_local(void **state)
{
	struct fix *f = *state;

	check_border(f);
	assert_int_equal(fix_read_local(f, border(f) - PIECE_BYTES, 2 * PIECE_BYTES), 0);
}

static void test_border_bytes(void **state)
{
	struct fix *f = *state;

	f->local = false;
	check_border(f);
}

static void test_border_mixed(void **state)
{
	struct fix *f = *state;

	f->bytes_odd = true;
	check_border(f);
	assert_true(fix_counter(f, "local_bytes") > 0);
	assert_true(fix_counter(f, "remote_bytes") > 0);
}

static void test_damaged_answer(void **state)
{
	struct fix *f = *state;
	const struct fix_object *o = fix_object(f, "a/small-10");

	f->local = false;
	f->corrupt_n = 2;
	fix_read(f, o->offset, MiB);
	assert_int_equal(fix_counter(f, "mismatches"), 2);
	assert_int_equal(fix_counter(f, "retries"), 2);
	/* Never right: an error, not the bytes. */
	f->corrupt_n = UINT32_MAX;
	fix_read_end(f, fix_read_start(f, o->offset, MiB), -EIO);
	assert_int_equal(fix_counter(f, "failed_reads"), 1);
}

/* A worker elsewhere sends what lies on its disk: that it does not match is for the reader to say. */
static void test_damage_elsewhere(void **state)
{
	struct fix *f = *state;
	const struct fix_object *o = fix_object(f, "a/small-10");

	f->local = false;
	f->recheck = -EBADMSG;
	f->repairs = true;
	f->corrupt_n = UINT32_MAX;
	fix_read(f, o->offset, MiB);
	assert_int_equal(fix_counter(f, "mismatches"), 1);
	assert_int_equal(fix_counter(f, "failed_reads"), 0);
}

static void test_errors(void **state)
{
	struct fix *f = *state;
	const struct fix_object *o = fix_object(f, "a/small-07");

	f->fail = -ESTALE;
	f->fail_n = 1;
	fix_read_end(f, fix_read_start(f, o->offset, BLOCK_BYTES), -ESTALE);
	f->fail = -EIO;
	f->fail_n = 1;
	fix_read_end(f, fix_read_start(f, o->offset, BLOCK_BYTES), -EIO);
	f->fail = -EACCES;
	f->fail_n = 1;
	fix_read_end(f, fix_read_start(f, o->offset, BLOCK_BYTES), -EIO);
	assert_int_equal(fix_counter(f, "retries"), 0);
	f->fail = -EAGAIN;
	f->fail_n = 4;
	fix_read(f, o->offset, BLOCK_BYTES);
	assert_int_equal(fix_counter(f, "retries"), 4);
	assert_int_equal(fix_counter(f, "failed_reads"), 3);
	assert_int_equal(fix_counter(f, "waiting"), 0);
}

static void test_cancel(void **state)
{
	struct fix *f = *state;
	const struct fix_object *o = fix_object(f, "a/small-07");
	struct fix_read *reads[8];

	f->park = true;
	for (size_t i = 0; i < ARRAY_SIZE(reads); i++)
		reads[i] = fix_read_start(f, o->offset, BLOCK_BYTES);
	fix_wait_parked(f, 8); /* until the end of the reads that are not cancelled */
	for (size_t i = 0; i < 4; i++) {
		client_read_cancel(f->volume, &reads[i]->read);
		client_read_cancel(f->volume, &reads[i]->read);
	}
	for (size_t i = 0; i < 4; i++)
		fix_read_end(f, reads[i], -ECANCELED);
	fix_wait_parked(f, 4); /* the worker was told */
	fix_unpark(f);
	for (size_t i = 4; i < 8; i++) {
		test_wait(fix_read_done(reads[i]));
		client_read_cancel(f->volume, &reads[i]->read); /* late: nothing happens */
		fix_read_end(f, reads[i], 0);
	}
	assert_int_equal(fix_counter(f, "failed_reads"), 0);
}

/* Cancel at any moment of a read's life: each ends exactly once, with bytes or as cancelled. */
static void test_cancel_races(void **state)
{
	struct fix *f = *state;
	uint64_t seed = 3;

	f->bytes_odd = true;
	for (int i = 0; i < 600; i++) {
		uint64_t offset = border(f) - PIECE_BYTES * (fix_mix(seed++) % 3);
		struct fix_read *r = fix_read_start(f, offset, 2 * PIECE_BYTES);
		uint64_t until = clock_mono_ns() + fix_mix(seed++) % 400000;

		while (clock_mono_ns() < until)
			;
		client_read_cancel(f->volume, &r->read);
		test_wait(fix_read_done(r));
		assert_true(r->status == 0 || r->status == -ECANCELED);
		fix_read_end(f, r, r->status);
	}
}

static void test_close_ends_reads(void **state)
{
	struct fix *f = *state;
	struct client_volume *other;
	struct fix_read *reads[16];
	struct client_volume *mine = f->volume;

	assert_int_equal(client_open_source(f->client, &f->source, false, &other, NULL, NULL), 0);
	f->park = true;
	f->volume = other;
	for (size_t i = 0; i < ARRAY_SIZE(reads); i++)
		reads[i] = fix_read_start(f, border(f) - PIECE_BYTES, 2 * PIECE_BYTES);
	fix_wait_parked(f, ARRAY_SIZE(reads));
	f->volume = mine;
	client_volume_close(other);
	for (size_t i = 0; i < ARRAY_SIZE(reads); i++) {
		assert_true(fix_read_done(reads[i]));
		fix_read_end(f, reads[i], -ECANCELED);
	}
	fix_unpark(f);
	fix_read(f, border(f), BLOCK_BYTES);
}

static void test_worker_gone_and_back(void **state)
{
	struct fix *f = *state;
	struct fix_read *reads[32];

	f->park = true;
	for (size_t i = 0; i < ARRAY_SIZE(reads); i++)
		reads[i] = fix_read_start(f, border(f) + i * PIECE_BYTES, PIECE_BYTES);
	fix_wait_parked(f, ARRAY_SIZE(reads));
	fix_stop_worker(f);
	test_advance(300 * CLOCK_MS);
	for (size_t i = 0; i < ARRAY_SIZE(reads); i++)
		assert_false(fix_read_done(reads[i]));
	f->park = false;
	fix_start_worker(f);
	for (size_t i = 0; i < ARRAY_SIZE(reads); i++)
		fix_read_end(f, reads[i], 0);
	assert_true(fix_counter(f, "retries") >= ARRAY_SIZE(reads));
	assert_int_equal(fix_counter(f, "failed_reads"), 0);
}

/* A process that listens at the address it is sent and never answers; made before this one has
 * threads. */
static struct {
	pid_t pid;
	int to;
	int from;
} victim;

static void hold(struct rpc_request *request, void *arg)
{
	(void)request;
	(void)arg;
}

static _Noreturn void run_victim(int in, int out)
{
	static const struct rpc_server_ops ops = { .on_request = hold };
	char address[96] = { 0 };
	struct rpc_server *server;
	struct loop *loop;

	if (read(in, address, sizeof(address) - 1) <= 0)
		_exit(0); /* the test was not run */
	loop = loop_new("victim");
	if (!loop || rpc_server_new(loop, address, &ops, NULL, &server, NULL) < 0 ||
		write(out, "x", 1) != 1)
		_exit(1);
	/* Until SIGKILL, or the end of the test program. */
	_exit(read(in, address, sizeof(address)) != 0);
}

static int start_victim(void **state)
{
	int to[2];
	int from[2];

	(void)state;
	if (pipe(to) != 0 || pipe(from) != 0)
		return -1;
	victim.pid = fork();
	if (victim.pid == 0) {
		close(to[1]);
		run_victim(to[0], from[1]);
	}
	close(to[0]);
	close(from[1]);
	victim.to = to[1];
	victim.from = from[0];
	return victim.pid > 0 ? 0 : -1;
}

/* The process dies by SIGKILL with a read in its hands; the real worker takes its place. */
static void test_worker_killed(void **state)
{
	struct fix *f = *state;
	struct fix_read *r;
	size_t len = strlen(f->worker_address);
	char c;

	fix_stop_worker(f);
	assert_int_equal(write(victim.to, f->worker_address, len), len);
	assert_int_equal(read(victim.from, &c, 1), 1);
	r = fix_read_start(f, border(f), PIECE_BYTES);
	test_advance(200 * CLOCK_MS);
	assert_false(fix_read_done(r));
	assert_int_equal(kill(victim.pid, SIGKILL), 0);
	assert_int_equal(waitpid(victim.pid, NULL, 0), victim.pid);
	test_advance(100 * CLOCK_MS);
	assert_false(fix_read_done(r));
	fix_start_worker(f);
	fix_read_end(f, r, 0);
	assert_int_equal(fix_counter(f, "failed_reads"), 0);
}

static void test_budget(void **state)
{
	struct fix *f = *state;
	struct fix_read *reads[64];

	/* Somebody else uses nearly all of it. */
	f->local = false;
	assert_true(budget_take(&f->budget, BUDGET_DEMAND, 64 * MiB - 3 * MiB));
	for (size_t i = 0; i < ARRAY_SIZE(reads); i++)
		reads[i] = fix_read_start(f, border(f) - MiB / 2, MiB);
	for (size_t i = 0; i < ARRAY_SIZE(reads); i++)
		fix_read_end(f, reads[i], 0);
	assert_true(f->budget.peak <= f->budget.max);
	assert_true(f->budget.peak > 64 * MiB - 3 * MiB); /* it was used */
	/* None at all: reads over a border wait, others go on. */
	test_wait(budget_take(&f->budget, BUDGET_DEMAND,
		3 * MiB - BLOCK_BYTES)); /* given back just after on_done */
	reads[0] = fix_read_start(f, border(f) - MiB / 2, MiB);
	fix_read(f, border(f), MiB);
	assert_false(fix_read_done(reads[0]));
	reads[1] = fix_read_start(f, border(f) - MiB / 2, MiB);
	client_read_cancel(f->volume, &reads[1]->read);
	fix_read_end(f, reads[1], -ECANCELED);
	budget_give(&f->budget, 64 * MiB - BLOCK_BYTES);
	fix_read_end(f, reads[0], 0);
}

static void on_peeked(struct client_read *read, int status, const void *data)
{
	int *ended = read->arg;

	(void)data;
	*ended = status;
}

/* More than may be in progress at once: the rest waits its turn, can be cancelled, and is served; but not what others
 * may wait for. */
static void test_overflow(void **state)
{
	struct fix *f = *state;
	const uint32_t n = LIMIT_FUSE_SLOTS + 300;
	struct fix_read **reads = calloc(n, sizeof(*reads));
	int peeked = 0;
	struct client_read peek = {
		.length = BLOCK_BYTES, .on_done = on_peeked, .arg = &peeked, .peek = true
	};

	assert_non_null(reads);
	f->park = true;
	for (uint32_t i = 0; i < n; i++)
		reads[i] = fix_read_start(f, fix_object(f, "a/small-10")->offset, BLOCK_BYTES);
	fix_wait_parked(f, LIMIT_FUSE_SLOTS);
	client_read(f->volume, &peek);
	assert_int_equal(peeked, -ECANCELED);
	for (uint32_t i = n - 100; i < n; i++)
		client_read_cancel(f->volume, &reads[i]->read);
	for (uint32_t i = n - 100; i < n; i++)
		fix_read_end(f, reads[i], -ECANCELED);
	assert_int_equal(fix_counter(f, "waiting"), n - 100);
	fix_unpark(f);
	for (uint32_t i = 0; i < n - 100; i++)
		fix_read_end(f, reads[i], 0);
	assert_int_equal(fix_counter(f, "waiting"), 0);
	free(reads);
}

struct answered {
	struct client_read read;
	_Atomic int where; /* 0: not yet; 1: on the loop; 2: on another thread */
};

static void on_answered(struct client_read *read, int status, const void *data)
{
	struct answered *a = read->arg;

	(void)data;
	ensure(status == 0);
	atomic_store(&a->where, loop_on_thread(read->volume->client->loop) ? 1 : 2);
}

static int where_of(struct answered *a)
{
	test_wait(atomic_load(&a->where) != 0);
	return atomic_load(&a->where);
}

/* A few small answers are handed over where they came in; of many, threads of their own take some. */
static void test_small_answers_take_one_hop(void **state)
{
	struct fix *f = *state;
	struct answered reads[16] = { 0 };
	uint32_t elsewhere = 0;

	f->local = false;
	for (uint32_t i = 0; i < ARRAY_SIZE(reads); i++)
		reads[i].read = (struct client_read){ .offset = fix_object(f, "b/large")->offset,
			.length = 64 * KiB,
			.on_done = on_answered,
			.arg = &reads[i] };
	for (uint32_t i = 0; i < 4; i++) {
		client_read(f->volume, &reads[i].read);
		assert_int_equal(where_of(&reads[i]), 1);
	}
	f->park = true;
	for (uint32_t i = 4; i < ARRAY_SIZE(reads); i++)
		client_read(f->volume, &reads[i].read);
	fix_wait_parked(f, ARRAY_SIZE(reads) - 4);
	fix_unpark(f);
	for (uint32_t i = 4; i < ARRAY_SIZE(reads); i++)
		elsewhere += where_of(&reads[i]) == 2;
	assert_true(elsewhere >= 1);
}

static void test_deadline(void **state)
{
	struct fix *f = fix_new(NULL);
	uint64_t began;

	*state = f;
	fix_start_client(f, (struct client_config){ .read_deadline_ns = 300 * CLOCK_MS });
	f->park = true;
	began = clock_mono_ns();
	fix_read_end(f, fix_read_start(f, border(f), BLOCK_BYTES), -EIO);
	assert_true(clock_mono_ns() - began >= 300 * CLOCK_MS);
	fix_stop_worker(f);
	fix_read_end(f, fix_read_start(f, border(f), BLOCK_BYTES), -EIO);
	assert_true(clock_mono_ns() - began < 20 * CLOCK_SECOND);
}

/* Reads that have ended are done with, too: where they waited is logged behind their end. */
static void wait_until_told(struct fix *f)
{
	struct client *client = f->client;

	pthread_mutex_lock(&client->lock);
	while (f->volume->pending > 0)
		pthread_cond_wait(&client->idle, &client->lock);
	pthread_mutex_unlock(&client->lock);
}

static bool reads_text(const char *path, struct buf *text, const char *part)
{
	buf_clear(text);
	assert_int_equal(file_read_all(path, text), 0);
	return strstr(buf_str(text), part);
}

/* What the log says of a read that waits: one line with its cause, once, after ten seconds. */
static void test_slow_is_logged(void **state)
{
	struct fix *f = *state;
	struct buf text = BUF_INIT(64 * KiB);
	const char *path = fix_path(f, "log");
	int fd = open(path, O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
	uint64_t began = clock_mono_ns();
	struct fix_read *r;
	const char *line;

	log_init("test", fd, LOG_INFO, LOG_TEXT);
	f->park = true;
	r = fix_read_start(f, border(f), PIECE_BYTES);
	test_wait(reads_text(path, &text, "read waits"));
	assert_true(clock_mono_ns() - began >= 10 * CLOCK_SECOND);
	test_advance(2 * CLOCK_SECOND); /* it is looked at each second */
	fix_unpark(f);
	fix_read_end(f, r, 0);
	wait_until_told(f);
	log_init("test", STDERR_FILENO, LOG_INFO, LOG_TEXT);
	close(fd);
	buf_clear(&text);
	assert_int_equal(file_read_all(path, &text), 0);
	line = strstr(buf_str(&text), "read waits");
	assert_non_null(line);
	assert_non_null(strstr(line, "cause=\"no answer from the worker: "));
	assert_null(strstr(line + 1, "read waits"));
	buf_release(&text);
}

/* A worker on another node: no descriptors, the same bytes. */
static void test_tcp(void **state)
{
	char address[64];
	struct fix *f;

	assert_int_equal(cluster_key_load(false), 0);
	snprintf(address, sizeof(address), "tcp:127.0.0.1:%d", 20000 + (int)(getpid() % 10000));
	f = fix_new(address);
	*state = f;
	fix_start_client(f, (struct client_config){ 0 });
	check_border(f);
	for (uint32_t i = 0; i < f->seen_n; i++)
		assert_false(f->seen[i].flags & FRAME_LOCAL_OK);
	assert_int_equal(fix_counter(f, "local_bytes"), 0);
	assert_int_equal(cluster_key_forget(), 0);
}

#define CASE(fn) cmocka_unit_test_setup_teardown(fn, fix_setup, fix_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		CASE(test_worker_killed), /* while there is a process to kill, time is real */
		CASE(test_bytes),
		CASE(test_bytes_random),
		CASE(test_border_local),
		CASE(test_border_bytes),
		CASE(test_border_mixed),
		CASE(test_damaged_answer),
		CASE(test_damage_elsewhere),
		CASE(test_errors),
		CASE(test_cancel),
		CASE(test_cancel_races),
		CASE(test_close_ends_reads),
		CASE(test_worker_gone_and_back),
		CASE(test_budget),
		CASE(test_overflow),
		CASE(test_small_answers_take_one_hop),
		CASE(test_slow_is_logged),
		cmocka_unit_test_teardown(test_deadline, fix_teardown),
		cmocka_unit_test_teardown(test_tcp, fix_teardown),
	};

	return cmocka_run_group_tests(tests, start_victim, NULL);
}
