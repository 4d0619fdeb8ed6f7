/*
 * Random operations against a model, and many threads at once. GRANARY_SEED repeats a run.
 *
 * The model knows of every piece whether it is absent, present or damaged, and from that what each
 * call must answer.
 */
#include "tests/unit/tiers/tier_fixture.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include "base/clock.h"
#include "tiers/tier_set_internal.h"

#define CHUNKS 5u
#define SLOTS  16u /* objects of up to 1 MiB, one per MiB */
#define PIECES (UNIT_BYTES / PIECE_BYTES)
#define STEPS  1500

enum piece {
	PIECE_ABSENT,
	PIECE_PRESENT,
	PIECE_DAMAGED,
};

struct model {
	struct fixture *f;
	unsigned int seed;
	bool extents; /* the volume goes in and out of them */
	enum piece pieces[CHUNKS][SLOTS][PIECES];
	uint64_t changes; /* of the volume, and its bytes then; UINT64_MAX: of an earlier set */
	uint64_t bytes;
};

static uint32_t pick(struct model *m, uint32_t n)
{
	return (uint32_t)rand_r(&m->seed) % n;
}

static struct piece_run object(uint32_t c, uint32_t s)
{
	uint32_t length = 1 + (c * 7919u + s * 104729u) * 31u % UNIT_BYTES;

	return run_of(s * UNIT_BYTES, length, c * 100 + s + 1);
}

static uint32_t pieces_of(const struct piece_run *run)
{
	return (run->length + PIECE_BYTES - 1) / PIECE_BYTES;
}

static void do_write(struct model *m, uint32_t c, uint32_t s)
{
	struct piece_run run = object(c, s);

	assert_int_equal(write_run(m->f, c, &run), 0);
	for (uint32_t p = 0; p < pieces_of(&run); p++) {
		if (m->pieces[c][s][p] == PIECE_ABSENT)
			m->pieces[c][s][p] = PIECE_PRESENT;
	}
}

/* What reading or rechecking answers; damaged pieces that were looked at are absent afterwards. */
static int expect(struct model *m, uint32_t c, uint32_t s, bool recheck)
{
	struct piece_run run = object(c, s);
	int answer = 0;
	bool absent = false;

	for (uint32_t p = 0; p < pieces_of(&run); p++)
		absent |= m->pieces[c][s][p] == PIECE_ABSENT;
	if (absent && !recheck)
		return -ENODATA;
	for (uint32_t p = 0; p < pieces_of(&run); p++) {
		if (m->pieces[c][s][p] == PIECE_DAMAGED) {
			m->pieces[c][s][p] = PIECE_ABSENT;
			answer = -EBADMSG;
		}
	}
	if (answer == 0 && absent)
		return -ENODATA;
	return answer;
}

static void do_read(struct model *m, uint32_t c, uint32_t s)
{
	struct piece_run run = object(c, s);
	int want = expect(m, c, s, false);

	assert_int_equal(read_run(m->f, c, &run), want);
}

static void do_recheck(struct model *m, uint32_t c, uint32_t s)
{
	struct piece_run run = object(c, s);
	struct chunk_id id = chunk_number(c);
	struct chunk *chunk = tier_chunk_find(m->f->set, &id);

	if (!chunk)
		return;
	assert_int_equal(chunk_recheck(chunk, &run), expect(m, c, s, true));
	chunk_unref(chunk);
}

/* In an extent the checksum, not the data: data that was damaged outlives its chunk there, and is
 * not written over when the chunk comes back. */
static uint64_t damage_at(const struct model *m, const struct chunk *chunk, uint32_t offset)
{
	if (!m->extents)
		return chunk->place.data + offset;
	return chunk_place_table(&chunk->place) +
	       (uint64_t)offset / BLOCK_BYTES * CHUNK_ENTRY_BYTES + 3;
}

static void do_damage(struct model *m, uint32_t c, uint32_t s)
{
	struct piece_run run = object(c, s);
	struct chunk_id id = chunk_number(c);
	struct chunk *chunk = tier_chunk_find(m->f->set, &id);
	uint32_t p = pick(m, pieces_of(&run));
	char path[800];
	char link[64];
	int fd;

	if (chunk && m->pieces[c][s][p] == PIECE_PRESENT) {
		assert_int_equal(chunk_open_fd(chunk, &fd), 0);
		(void)snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
		memset(path, 0, sizeof(path));
		assert_true(readlink(link, path, sizeof(path) - 1) > 0);
		close(fd);
		flip_byte(path, (off_t)damage_at(m, chunk, run.offset + p * PIECE_BYTES));
		m->pieces[c][s][p] = PIECE_DAMAGED;
	}
	chunk_unref(chunk);
}

static bool keep_some(void *arg, uint64_t chunk)
{
	return chunk != *(uint32_t *)arg;
}

static void do_drop(struct model *m, uint32_t c)
{
	struct chunk_id id = chunk_number(c);

	(void)tier_set_drop(m->f->set, &id.volume, id.lineage, keep_some, &c);
	memset(m->pieces[c], 0, sizeof(m->pieces[c]));
}

static void check_all(struct model *m)
{
	struct chunk_id id = chunk_number(0);
	uint64_t blocks = 0;

	for (uint32_t c = 0; c < CHUNKS; c++) {
		for (uint32_t s = 0; s < SLOTS; s++) {
			struct piece_run run = object(c, s);

			for (uint32_t p = 0; p < pieces_of(&run); p++) {
				uint32_t length = min(run.length - p * PIECE_BYTES, PIECE_BYTES);

				if (m->pieces[c][s][p] != PIECE_ABSENT)
					blocks += (length + BLOCK_BYTES - 1) / BLOCK_BYTES;
			}
		}
	}
	assert_int_equal(status_of(m->f).data_bytes, blocks * BLOCK_BYTES);
	assert_int_equal(
		tier_set_volume_bytes(m->f->set, &id.volume, id.lineage), blocks * BLOCK_BYTES);
	assert_true(status_of(m->f).used <= status_of(m->f).capacity);
}

static void set_layout(struct model *m)
{
	const struct chunk_id id = chunk_number(0);
	const struct tier_layout layout = {
		.end = CHUNKS * CHUNK_BYTES,
		.used = CHUNKS * CHUNK_BYTES,
		.extent_bytes = (uint64_t)CHUNK_BYTES << pick(m, 3),
		.whole = pick(m, 3) > 0,
	};

	assert_int_equal(tier_set_layout(m->f->set, &id.volume, id.lineage, &layout), 0);
}

/* What the thread in the background would do, at a time that the seed says. */
static void do_layout(struct model *m)
{
	set_layout(m);
	for (uint32_t i = pick(m, 12); i > 0; i--)
		(void)extents_round(m->f->set);
}

/* While the volume's count of changes is the same, so are its bytes. */
static void check_changes(struct model *m)
{
	struct chunk_id id = chunk_number(0);
	struct tier_volume_status st = { .changes = UINT64_MAX };
	bool known = tier_volume_status(m->f->set, &id.volume, &st);
	uint64_t bytes = tier_set_volume_bytes(m->f->set, &id.volume, id.lineage);

	if (known && st.changes == m->changes)
		assert_int_equal(bytes, m->bytes);
	m->changes = st.changes;
	m->bytes = bytes;
}

static void open_model(struct model *m)
{
	m->changes = UINT64_MAX;
	fixture_open(m->f);
	if (m->extents)
		space_stop(m->f->set);
}

static void do_reopen(struct model *m, uint32_t how)
{
	char index[400];

	fixture_close(m->f);
	(void)snprintf(index, sizeof(index), "%s/index", m->f->path);
	if (how == 0)
		another_boot(m->f);
	if (how == 1)
		fixture_remove_tree(index);
	open_model(m);
	check_all(m);
	if (m->extents)
		do_layout(m);
}

static void run_model(void **state, bool extents)
{
	const char *given = getenv("GRANARY_SEED");
	struct model *m = calloc(1, sizeof(*m));

	assert_non_null(m);
	m->f = *state;
	m->extents = extents;
	m->seed = given ? (unsigned int)strtoul(given, NULL, 10) : (unsigned int)clock_mono_ns();
	print_message("GRANARY_SEED=%u\n", m->seed);
	open_model(m);
	for (uint32_t i = 0; i < STEPS; i++) {
		uint32_t c = pick(m, CHUNKS);
		uint32_t s = pick(m, SLOTS);
		uint32_t dice = pick(m, 1000);

		if (m->extents && pick(m, 20) == 0)
			do_layout(m);
		else if (dice < 400)
			do_write(m, c, s);
		else if (dice < 800)
			do_read(m, c, s);
		else if (dice < 880)
			do_recheck(m, c, s);
		else if (dice < 970)
			do_damage(m, c, s);
		else if (dice < 985)
			do_drop(m, c);
		else
			do_reopen(m, pick(m, 4));
		check_changes(m);
	}
	check_all(m);
	do_reopen(m, 3);
	free(m);
}

static void test_model(void **state)
{
	run_model(state, false);
}

/* The same answers whatever files the chunks lie in, and on their way. */
static void test_model_extents(void **state)
{
	run_model(state, true);
}

/* ---- threads --------------------------------------------------------------------------------- */

#define WORKERS     6
#define WORKER_OPS  250
#define BUSY_CHUNKS 3u

struct worker {
	pthread_t thread;
	struct fixture *f;
	unsigned int seed;
	uint32_t reads;
	int wrong; /* the first answer that must not be; -EOVERFLOW: more bytes than there are */
};

static _Atomic uint32_t drops;
static _Atomic uint32_t ended; /* workers that did all they had to */

static void *worker_main(void *arg)
{
	struct worker *w = arg;

	for (uint32_t i = 0; i < WORKER_OPS; i++) {
		uint32_t c = (uint32_t)rand_r(&w->seed) % BUSY_CHUNKS;
		uint32_t dice = (uint32_t)rand_r(&w->seed) % 100;
		struct piece_run run = object(c, (uint32_t)rand_r(&w->seed) % SLOTS);
		struct chunk_id id = chunk_number(c);
		int r = 0;

		if (dice < 45) {
			r = write_run(w->f, c, &run);
		} else if (dice < 98) {
			r = read_run(w->f, c, &run);
			w->reads += r == 0;
			r = r == -ENODATA ? 0 : r;
		} else {
			(void)tier_set_drop(w->f->set, &id.volume, id.lineage, keep_some, &c);
			atomic_fetch_add(&drops, 1);
		}
		if (r == -ENOSPC) /* dropped under the write */
			r = 0;
		if (tier_set_volume_bytes(w->f->set, &id.volume, id.lineage) >
			(uint64_t)BUSY_CHUNKS * CHUNK_BYTES)
			r = -EOVERFLOW;
		if (!w->wrong)
			w->wrong = r;
	}
	atomic_fetch_add(&ended, 1);
	return NULL;
}

static void test_threads(void **state)
{
	struct fixture *f = *state;
	struct worker workers[WORKERS];
	uint32_t reads = 0;

	fixture_open(f);
	for (unsigned int i = 0; i < WORKERS; i++) {
		workers[i] = (struct worker){ .f = f, .seed = i + 1 };
		assert_int_equal(
			pthread_create(&workers[i].thread, NULL, worker_main, &workers[i]), 0);
	}
	for (unsigned int i = 0; i < WORKERS; i++) {
		pthread_join(workers[i].thread, NULL);
		assert_int_equal(workers[i].wrong, 0);
		reads += workers[i].reads;
	}
	assert_true(reads > 0 && drops > 0);
	assert_int_equal(counter_get(&tier_set_counters(f->set)->mismatches), 0);
	assert_int_equal(each_chunk_file(f, NULL, NULL), status_of(f).chunks);
	fixture_reopen(f);
	assert_int_equal(counter_get(&tier_set_counters(f->set)->rebuilt), 0);
	assert_int_equal(each_chunk_file(f, NULL, NULL), status_of(f).chunks);
}

/* In place of the thread of the set. */
struct mover {
	pthread_t thread;
	struct fixture *f;
	_Atomic uint32_t rounds;
	_Atomic bool stop;
};

static void *mover_main(void *arg)
{
	struct mover *mover = arg;

	while (!atomic_load(&mover->stop)) {
		if (!extents_round(mover->f->set))
			(void)sched_yield();
		atomic_fetch_add(&mover->rounds, 1);
	}
	return NULL;
}

/* At any time of a round. */
static void change_layouts(struct model *m, struct mover *mover)
{
	for (unsigned int i = 0; i < 200 || atomic_load(&ended) < WORKERS; i++) {
		uint32_t begun = atomic_load(&mover->rounds);
		uint32_t rounds = pick(m, 8);

		set_layout(m);
		while (atomic_load(&mover->rounds) - begun < rounds)
			(void)sched_yield();
	}
	atomic_store(&mover->stop, true);
	pthread_join(mover->thread, NULL);
}

/* The same while the volume goes in and out of extents under them: until the last of them ends, and
 * once more over what they left, however late they began. */
static void test_threads_extents(void **state)
{
	struct fixture *f = *state;
	struct model m = { .f = f, .seed = 1, .extents = true };
	struct mover mover = { .f = f };
	struct worker workers[WORKERS];
	uint32_t reads = 0;

	open_model(&m);
	atomic_store(&ended, 0);
	assert_int_equal(pthread_create(&mover.thread, NULL, mover_main, &mover), 0);
	for (unsigned int i = 0; i < WORKERS; i++) {
		workers[i] = (struct worker){ .f = f, .seed = i + 1 };
		assert_int_equal(
			pthread_create(&workers[i].thread, NULL, worker_main, &workers[i]), 0);
	}
	change_layouts(&m, &mover);
	for (unsigned int i = 0; i < WORKERS; i++) {
		pthread_join(workers[i].thread, NULL);
		assert_int_equal(workers[i].wrong, 0);
		reads += workers[i].reads;
	}
	for (unsigned int i = 0; i < 20; i++)
		do_layout(&m);
	assert_true(reads > 0);
	assert_true(counter_get(&tier_set_counters(f->set)->into_extents) > 0);
	assert_int_equal(counter_get(&tier_set_counters(f->set)->mismatches), 0);
	assert_true(status_of(f).used <= status_of(f).capacity);
	fixture_reopen(f);
	assert_int_equal(counter_get(&tier_set_counters(f->set)->rebuilt), 0);
	assert_int_equal(counter_get(&tier_set_counters(f->set)->mismatches), 0);
}

#define T(fn) cmocka_unit_test_setup_teardown(fn, fixture_setup, fixture_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(test_model),
		T(test_model_extents),
		T(test_threads),
		T(test_threads_extents),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
