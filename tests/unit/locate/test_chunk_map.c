/* The chunk map: what is put is found, what goes is seen to go, a writer that ends anywhere leaves
 * nothing wrong, and a worker that lies is refused. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include "base/hash.h"
#include "locate/chunk_map.h"

#define SLOTS CHUNK_MAP_SLOTS_MIN

struct pair {
	struct chunk_map_writer *writer;
	struct chunk_map *map;
};

static void pair_open(struct pair *p)
{
	int fd;

	assert_int_equal(chunk_map_writer_new(SLOTS, &p->writer), 0);
	assert_int_equal(chunk_map_writer_fd(p->writer, &fd), 0);
	assert_int_equal(chunk_map_open(fd, &p->map), 0);
	close(fd);
	assert_true(chunk_map_start(p->map) == chunk_map_writer_start(p->writer));
}

static void pair_close(struct pair *p)
{
	chunk_map_close(p->map);
	chunk_map_writer_free(p->writer);
}

static struct chunk_id id_of(uint64_t chunk)
{
	struct chunk_id id = { .volume = { .bytes = { 1, 2, 3 } }, .lineage = 9, .chunk = chunk };

	return id;
}

/* Everything of a row follows from (chunk, version), so that a mixture is seen. */
static struct chunk_map_row row_of(uint64_t chunk, uint64_t version)
{
	return (struct chunk_map_row){
		.id = id_of(chunk),
		.file = chunk << 32 | version,
		.extent = version * 0x9e3779b97f4a7c15ull,
		.tier = (uint32_t)(version % 16),
	};
}

static void bits_of(uint64_t chunk, uint64_t version, uint64_t bits[CHUNK_MAP_WORDS])
{
	for (uint32_t w = 0; w < CHUNK_MAP_WORDS; w++)
		bits[w] = hash_xxh3(&version, sizeof(version), chunk * 64 + w);
	if (version % 5 == 0) /* complete */
		memset(bits, 0xff, CHUNK_MAP_WORDS * sizeof(*bits));
}

static void put(struct chunk_map_writer *writer, uint64_t chunk, uint64_t version)
{
	struct chunk_map_row row = row_of(chunk, version);
	uint64_t bits[CHUNK_MAP_WORDS];

	bits_of(chunk, version, bits);
	assert_true(chunk_map_put(writer, &row, bits));
}

/* The version under which a chunk is found whole; 0: it is not known. */
static uint64_t look(const struct chunk_map *map, uint64_t chunk)
{
	struct chunk_id id = id_of(chunk);
	uint64_t bits[CHUNK_MAP_WORDS];
	uint64_t want[CHUNK_MAP_WORDS];
	struct chunk_map_row row;
	struct chunk_map_row sane;
	uint64_t version;
	uint64_t seq;
	uint32_t slot = chunk_map_find(map, &id, &row, &seq);

	if (slot == CHUNK_MAP_NONE)
		return 0;
	version = row.file & UINT32_MAX;
	sane = row_of(chunk, version);
	assert_true(chunk_id_equal(&row.id, &id));
	assert_true(row.file == sane.file && row.extent == sane.extent && row.tier == sane.tier);
	if (!chunk_map_load(map, slot, seq, bits))
		return 0;
	bits_of(chunk, version, want);
	assert_memory_equal(bits, want, sizeof(want));
	return version;
}

static void test_found_and_gone(void **state)
{
	struct chunk_map_use use;
	struct chunk_map_row row;
	struct chunk_id id;
	struct pair p;
	uint64_t seq;
	uint32_t slot;

	(void)state;
	pair_open(&p);
	for (uint64_t chunk = 0; chunk < 300; chunk++)
		put(p.writer, chunk, chunk % 7 + 1);
	for (uint64_t chunk = 0; chunk < 300; chunk++)
		assert_int_equal(look(p.map, chunk), chunk % 7 + 1);
	assert_int_equal(look(p.map, 300), 0);
	chunk_map_writer_use(p.writer, &use);
	assert_int_equal(use.used, 300);

	id = id_of(17);
	slot = chunk_map_find(p.map, &id, &row, &seq);
	assert_true(chunk_map_chunk_at(p.writer, slot, &id) && id.chunk == 17);
	assert_true(chunk_map_holds(p.map, slot, seq));
	chunk_map_remove(p.writer, &id);
	assert_false(chunk_map_holds(p.map, slot, seq));
	assert_false(chunk_map_chunk_at(p.writer, slot, &id));
	assert_int_equal(look(p.map, 17), 0);
	assert_int_equal(look(p.map, 18), 18 % 7 + 1);
	put(p.writer, 17, 4);
	assert_int_equal(look(p.map, 17), 4);
	assert_false(chunk_map_holds(p.map, slot, seq)); /* though it is the same again */
	assert_false(chunk_map_chunk_at(p.writer, SLOTS, &id));
	pair_close(&p);
}

/* Bits come without a change of seq, and go with one. */
static void test_bits_come_and_go(void **state)
{
	struct chunk_map_row row = row_of(5, 1);
	uint64_t bits[CHUNK_MAP_WORDS] = { 1 };
	uint64_t got[CHUNK_MAP_WORDS];
	struct chunk_map_row found;
	struct pair p;
	uint64_t now;
	uint64_t seq;
	uint32_t slot;

	(void)state;
	pair_open(&p);
	assert_true(chunk_map_put(p.writer, &row, bits));
	slot = chunk_map_find(p.map, &row.id, &found, &seq);
	for (uint32_t w = 0; w < CHUNK_MAP_WORDS; w++) {
		bits[w] = UINT64_MAX;
		assert_true(chunk_map_put(p.writer, &row, bits));
		assert_true(chunk_map_load(p.map, slot, seq, got));
		assert_memory_equal(got, bits, sizeof(bits));
	}
	/* Complete by now; a piece is found damaged. */
	bits[63] &= ~0xf0ull;
	assert_true(chunk_map_put(p.writer, &row, bits));
	assert_false(chunk_map_holds(p.map, slot, seq));
	assert_false(chunk_map_load(p.map, slot, seq, got));
	assert_int_equal(chunk_map_find(p.map, &row.id, &found, &now), slot);
	assert_true(chunk_map_load(p.map, slot, now, got));
	assert_memory_equal(got, bits, sizeof(bits));
	/* Another file. */
	row.file++;
	assert_true(chunk_map_put(p.writer, &row, bits));
	assert_false(chunk_map_holds(p.map, slot, now));
	assert_int_equal(chunk_map_find(p.map, &row.id, &found, &now), slot);
	assert_true(found.file == row.file);

	assert_false(chunk_map_away(p.map, 3));
	chunk_map_set_away(p.writer, 1u << 3);
	assert_true(chunk_map_away(p.map, 3));
	assert_false(chunk_map_away(p.map, 2));
	assert_int_equal(chunk_map_capacity(p.map), 0);
	chunk_map_set_capacity(p.writer, 1ull << 40);
	assert_int_equal(chunk_map_capacity(p.map), 1ull << 40);
	pair_close(&p);
}

static void test_full(void **state)
{
	uint64_t bits[CHUNK_MAP_WORDS] = { 1 };
	struct chunk_map_use use;
	uint32_t in = 0;
	struct pair p;

	(void)state;
	pair_open(&p);
	for (uint64_t chunk = 0; chunk < 4 * SLOTS; chunk++) {
		struct chunk_map_row row = row_of(chunk, 1);

		in += chunk_map_put(p.writer, &row, bits);
	}
	chunk_map_writer_use(p.writer, &use);
	assert_int_equal(use.max, SLOTS / 4 * 3);
	assert_int_equal(use.used, in);
	assert_true(in <= use.max && in > use.max * 9 / 10);
	assert_int_equal(use.refused, 4 * SLOTS - in);
	/* Places of chunks that went are used again, for ever. */
	for (uint64_t chunk = 0; chunk < 4 * SLOTS; chunk++) {
		struct chunk_id id = id_of(chunk);

		chunk_map_remove(p.writer, &id);
	}
	for (uint64_t round = 0; round < 50; round++) {
		for (uint64_t chunk = 0; chunk < SLOTS / 4; chunk++)
			put(p.writer, round * SLOTS + chunk, round + 1);
		for (uint64_t chunk = 0; chunk < SLOTS / 4; chunk++) {
			struct chunk_id id = id_of(round * SLOTS + chunk);

			assert_int_equal(look(p.map, id.chunk), round + 1);
			chunk_map_remove(p.writer, &id);
		}
	}
	chunk_map_writer_use(p.writer, &use);
	assert_int_equal(use.used, 0);
	pair_close(&p);
}

/* ---- a writer that ends in the middle -------------------------------------------------------- */

struct stop {
	uint32_t left;
	jmp_buf out;
};

static void on_store(void *arg)
{
	struct stop *stop = arg;

	if (stop->left-- == 0)
		longjmp(stop->out, 1);
}

/* Changes chunk 2 from `from` to `to` (0: not there), ending before store `k`. True when it came to
 * its end. */
static bool change_and_stop(uint64_t from, uint64_t to, uint32_t k)
{
	struct stop stop = { .left = UINT32_MAX };
	struct chunk_id id = id_of(2);
	volatile bool whole = false;
	struct pair p;
	uint64_t got;

	pair_open(&p);
	for (uint64_t chunk = 0; chunk < 8; chunk++)
		if (chunk != 2)
			put(p.writer, chunk, 3);
	if (from)
		put(p.writer, 2, from);
	chunk_map_writer_on_store(p.writer, on_store, &stop);
	stop.left = k;
	if (setjmp(stop.out) == 0) {
		if (to)
			put(p.writer, 2, to);
		else
			chunk_map_remove(p.writer, &id);
		whole = true;
	}
	got = look(p.map, 2);
	assert_true(got == 0 || got == from || got == to);
	if (k == 0)
		assert_int_equal(got, from);
	if (whole)
		assert_int_equal(got, to);
	for (uint64_t chunk = 0; chunk < 8; chunk++)
		if (chunk != 2)
			assert_int_equal(look(p.map, chunk), 3);
	pair_close(&p);
	return whole;
}

static void test_every_step(void **state)
{
	static const struct {
		uint64_t from;
		uint64_t to;
		uint32_t steps;
	} changes[] = {
		{ 0, 1, 8 + CHUNK_MAP_WORDS }, /* new */
		{ 0, 5, 8 },                   /* new and complete */
		{ 1, 2, 8 + CHUNK_MAP_WORDS }, /* another file */
		{ 5, 1, 8 + CHUNK_MAP_WORDS }, /* complete, now not */
		{ 1, 10, 8 },
		{ 1, 0, 3 }, /* gone */
		{ 5, 0, 3 },
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(changes); i++) {
		uint32_t k = 0;

		while (!change_and_stop(changes[i].from, changes[i].to, k))
			k++;
		assert_true(k >= changes[i].steps);
	}
}

/* Before each store: whatever is found is whole. */
static void look_on(void *arg)
{
	(void)look(arg, 2);
}

/* What a writer began and did not end is no state at all while the next one changes it. */
static void test_change_after_a_dead_one(void **state)
{
	(void)state;
	for (volatile uint32_t k = 0; k < 8 + CHUNK_MAP_WORDS; k++) {
		struct stop stop = { .left = UINT32_MAX };
		struct pair p;

		pair_open(&p);
		put(p.writer, 2, 1);
		chunk_map_writer_on_store(p.writer, on_store, &stop);
		stop.left = k;
		if (setjmp(stop.out) == 0)
			put(p.writer, 2, 2);
		chunk_map_writer_on_store(p.writer, look_on, p.map);
		put(p.writer, 2, 3);
		assert_int_equal(look(p.map, 2), 3);
		pair_close(&p);
	}
}

/* Who found the chunk before one of its bits went is not told of bits any more. */
static void test_bits_that_go(void **state)
{
	struct chunk_map_row row = row_of(1, 1);
	uint64_t bits[CHUNK_MAP_WORDS];
	struct chunk_map_row found;
	struct pair p;
	uint64_t seq;
	uint32_t slot;

	(void)state;
	pair_open(&p);
	bits_of(1, 1, bits);
	assert_true(chunk_map_put(p.writer, &row, bits));
	slot = chunk_map_find(p.map, &row.id, &found, &seq);
	assert_true(slot != CHUNK_MAP_NONE);
	bits[7] |= bits[7] + 1; /* one more */
	assert_true(chunk_map_put(p.writer, &row, bits));
	assert_true(chunk_map_holds(p.map, slot, seq));
	bits[7] &= bits[7] - 1; /* one less */
	assert_true(chunk_map_put(p.writer, &row, bits));
	assert_false(chunk_map_holds(p.map, slot, seq));
	assert_false(chunk_map_load(p.map, slot, seq, bits));
	pair_close(&p);
}

/* Bits that are added one by one: after any store what is shown is between before and after. */
static void test_every_step_of_bits(void **state)
{
	struct chunk_map_row row = row_of(1, 1);
	uint64_t before[CHUNK_MAP_WORDS];
	uint64_t after[CHUNK_MAP_WORDS];

	(void)state;
	bits_of(1, 1, before);
	for (uint32_t w = 0; w < CHUNK_MAP_WORDS; w++)
		after[w] = UINT64_MAX;
	for (volatile uint32_t k = 0; k <= CHUNK_MAP_WORDS + 1; k++) {
		struct stop stop = { .left = UINT32_MAX };
		uint64_t got[CHUNK_MAP_WORDS];
		struct chunk_map_row found;
		struct pair p;
		uint64_t seq;
		uint32_t slot;

		pair_open(&p);
		assert_true(chunk_map_put(p.writer, &row, before));
		chunk_map_writer_on_store(p.writer, on_store, &stop);
		stop.left = k;
		if (setjmp(stop.out) == 0)
			assert_true(chunk_map_put(p.writer, &row, after));
		slot = chunk_map_find(p.map, &row.id, &found, &seq);
		assert_true(slot != CHUNK_MAP_NONE && chunk_map_load(p.map, slot, seq, got));
		for (uint32_t w = 0; w < CHUNK_MAP_WORDS; w++)
			assert_true(got[w] == (w < k ? after[w] : before[w]));
		pair_close(&p);
	}
}

#define KILLS  2000
#define KILLED 24 /* chunks that come and go */

static _Noreturn void write_until_killed(struct chunk_map_writer *writer)
{
	for (uint64_t i = 1;; i++) {
		uint64_t chunk = hash_xxh3(&i, sizeof(i), 1) % KILLED;
		uint64_t version = i % 1000 + 1;
		struct chunk_map_row row = row_of(chunk, version);
		uint64_t bits[CHUNK_MAP_WORDS];

		bits_of(chunk, version, bits);
		if (i % 4 == 0)
			chunk_map_remove(writer, &row.id);
		else
			(void)chunk_map_put(writer, &row, bits);
	}
}

/* Looks while the child writes, and once more when it is dead. */
static void look_and_kill(struct pair *p, uint64_t seed)
{
	uint64_t looks = hash_xxh3(&seed, sizeof(seed), 2) % 60;
	pid_t child = fork();

	assert_true(child >= 0);
	if (child == 0) {
		(void)prctl(PR_SET_PDEATHSIG, SIGKILL); /* should the test fail before it kills */
		write_until_killed(p->writer);
	}
	for (uint64_t i = 0; i < looks; i++)
		(void)look(p->map, i % KILLED);
	assert_int_equal(kill(child, SIGKILL), 0);
	assert_int_equal(waitpid(child, NULL, 0), child);
	for (uint64_t chunk = 0; chunk < KILLED; chunk++) {
		uint64_t version = look(p->map, chunk);

		assert_int_equal(look(p->map, chunk), version); /* nothing moves any more */
	}
}

static void test_killed_writers(void **state)
{
	struct pair p;

	(void)state;
	for (uint64_t i = 0; i < KILLS; i++) {
		/* Each start of a worker makes a map of its own; a few die over one, so that half
		 * done entries of former lives are there, too. */
		if (i % 10 == 0) {
			if (i)
				pair_close(&p);
			pair_open(&p);
		}
		look_and_kill(&p, i);
	}
	pair_close(&p);
}

/* ---- readers beside the writer --------------------------------------------------------------- */

struct readers {
	struct chunk_map *map;
	_Atomic bool stop;
	_Atomic uint64_t found;
};

static void *read_on(void *arg)
{
	struct readers *r = arg;

	for (uint64_t i = 0; !atomic_load(&r->stop); i++)
		if (look(r->map, i % KILLED))
			atomic_fetch_add(&r->found, 1);
	return NULL;
}

static void test_threads(void **state)
{
	pthread_t threads[3];
	struct readers r = { 0 };
	struct pair p;

	(void)state;
	pair_open(&p);
	r.map = p.map;
	for (size_t i = 0; i < ARRAY_SIZE(threads); i++)
		assert_int_equal(pthread_create(&threads[i], NULL, read_on, &r), 0);
	for (uint64_t i = 1; i < 300000 || atomic_load(&r.found) < 1000; i++) {
		struct chunk_id id = id_of(i % KILLED);

		if (i % 7 == 0)
			chunk_map_remove(p.writer, &id);
		else
			put(p.writer, id.chunk, i % 100 + 1);
	}
	atomic_store(&r.stop, true);
	for (size_t i = 0; i < ARRAY_SIZE(threads); i++)
		pthread_join(threads[i], NULL);
	pair_close(&p);
}

/* ---- a worker that lies ---------------------------------------------------------------------- */

static int make_map(const uint32_t head[6], uint64_t bytes, int seals)
{
	int fd = memfd_create("test-map", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	assert_true(fd >= 0);
	assert_int_equal(ftruncate(fd, (off_t)bytes), 0);
	assert_int_equal(pwrite(fd, head, 24, 0), 24);
	assert_int_equal(fcntl(fd, F_ADD_SEALS, seals), 0);
	return fd;
}

static void refuse(const uint32_t head[6], uint64_t bytes, int seals, int code)
{
	int fd = make_map(head, bytes, seals);
	struct chunk_map *map = NULL;

	assert_int_equal(chunk_map_open(fd, &map), code);
	close(fd);
	chunk_map_close(map);
}

static void test_lies(void **state)
{
	const int all = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_FUTURE_WRITE;
	const uint32_t good[6] = { CHUNK_MAP_MAGIC, CHUNK_MAP_VERSION, 1, 0, SLOTS, 0 };
	uint64_t bytes = chunk_map_bytes(SLOTS);
	uint32_t head[6];
	struct chunk_map *map;
	int file;

	(void)state;
	refuse(good, bytes, all, 0);
	refuse(good, bytes, F_SEAL_GROW | F_SEAL_FUTURE_WRITE, -EBADMSG);
	refuse(good, bytes, F_SEAL_SHRINK | F_SEAL_GROW, -EBADMSG);
	refuse(good, bytes - 1, all, -EBADMSG);
	refuse(good, bytes + 4096, all, -EBADMSG);
	refuse(good, 4096, all, -EBADMSG);
	refuse(good, chunk_map_bytes(CHUNK_MAP_SLOTS_MAX) * 2, all, -EBADMSG);
	memcpy(head, good, sizeof(head));
	head[0]++;
	refuse(head, bytes, all, -EBADMSG);
	memcpy(head, good, sizeof(head));
	head[1]++;
	refuse(head, bytes, all, -EPROTONOSUPPORT);
	memcpy(head, good, sizeof(head));
	head[2] = 0; /* no start */
	refuse(head, bytes, all, -EBADMSG);
	memcpy(head, good, sizeof(head));
	head[4] = SLOTS * 2;
	refuse(head, bytes, all, -EBADMSG);
	head[4] = SLOTS + 1;
	refuse(head, chunk_map_bytes(SLOTS + 1), all, -EBADMSG);
	head[4] = SLOTS / 2;
	refuse(head, chunk_map_bytes(SLOTS / 2), all, -EBADMSG);
	/* A file that cannot be sealed at all, right as it is otherwise. */
	file = open("/var/tmp", O_RDWR | O_TMPFILE | O_CLOEXEC, 0600);
	assert_true(file >= 0);
	assert_int_equal(ftruncate(file, (off_t)bytes), 0);
	assert_int_equal(pwrite(file, good, sizeof(good), 0), sizeof(good));
	assert_int_equal(chunk_map_open(file, &map), -EBADMSG);
	close(file);
	file = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
	assert_int_equal(chunk_map_open(file, &map), -EBADMSG);
	close(file);
}

/* Any bytes behind a head that is right: nothing is read outside, every search ends. */
static void test_random_bytes(void **state)
{
	const uint32_t head[6] = { CHUNK_MAP_MAGIC, CHUNK_MAP_VERSION, 1, 0, SLOTS, 0 };
	const int all = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_FUTURE_WRITE;
	uint64_t bytes = chunk_map_bytes(SLOTS);
	uint64_t bits[CHUNK_MAP_WORDS];
	uint32_t found = 0;

	(void)state;
	for (uint64_t round = 0; round < 8; round++) {
		struct chunk_map_row row;
		struct chunk_map *map;
		int fd = make_map(head, bytes, 0);
		uint64_t *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
		uint64_t seq;

		assert_true(at != MAP_FAILED);
		for (uint64_t i = 4096 / 8; i < bytes / 8; i++) {
			at[i] = hash_xxh3(&i, sizeof(i), round);
			if (i % 8 == 0 && round % 2) /* many that do not seem to change */
				at[i] &= ~1ull;
		}
		assert_int_equal(fcntl(fd, F_ADD_SEALS, all), 0);
		assert_int_equal(chunk_map_open(fd, &map), 0);
		for (uint64_t i = 0; i < SLOTS; i++) {
			struct chunk_id id;
			uint32_t slot;

			/* What an entry happens to say. */
			memcpy(&id, at + 512 + i * 8 + 1, sizeof(id));
			slot = chunk_map_find(map, &id, &row, &seq);
			if (slot == CHUNK_MAP_NONE)
				continue;
			found++;
			assert_true(slot < SLOTS && row.tier < CHUNK_MAP_TIERS);
			(void)chunk_map_load(map, slot, seq, bits);
			(void)chunk_map_away(map, row.tier);
		}
		chunk_map_close(map);
		munmap(at, bytes);
		close(fd);
	}
	assert_true(found > 0);
}

/* What a reader got cannot be written, cut, or mapped for writing. */
static void test_sealed(void **state)
{
	struct chunk_map_writer *writer;
	char path[64];
	int fd;
	int rw;

	(void)state;
	assert_int_equal(chunk_map_writer_new(SLOTS, &writer), 0);
	assert_int_equal(chunk_map_writer_fd(writer, &fd), 0);
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	rw = open(path, O_RDWR | O_CLOEXEC);
	assert_true(rw >= 0);
	assert_int_equal(pwrite(rw, "x", 1, 0), -1);
	assert_int_equal(ftruncate(rw, 0), -1);
	assert_ptr_equal(mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, rw, 0), MAP_FAILED);
	close(rw);
	close(fd);
	chunk_map_writer_free(writer);
}

/* The smallest and the largest that fit. */
static void test_sizes(void **state)
{
	(void)state;
	assert_int_equal(chunk_map_slots(0), CHUNK_MAP_SLOTS_MIN);
	assert_int_equal(chunk_map_slots(chunk_map_bytes(4096)), 4096);
	assert_int_equal(chunk_map_slots(chunk_map_bytes(4096) - 1), 2048);
	assert_int_equal(chunk_map_slots(UINT64_MAX), CHUNK_MAP_SLOTS_MAX);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_found_and_gone),
		cmocka_unit_test(test_bits_come_and_go),
		cmocka_unit_test(test_full),
		cmocka_unit_test(test_every_step),
		cmocka_unit_test(test_change_after_a_dead_one),
		cmocka_unit_test(test_bits_that_go),
		cmocka_unit_test(test_every_step_of_bits),
		cmocka_unit_test(test_killed_writers),
		cmocka_unit_test(test_threads),
		cmocka_unit_test(test_lies),
		cmocka_unit_test(test_random_bytes),
		cmocka_unit_test(test_sealed),
		cmocka_unit_test(test_sizes),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
