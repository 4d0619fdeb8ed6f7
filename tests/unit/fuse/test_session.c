/* A session on a socket pair instead of /dev/fuse: the test is the kernel. */
#include "tests/unit/fuse/fake_kernel.h"

#include <signal.h>
#include <sys/wait.h>

/* A new connection, and its INIT; the reply is in answer_bytes. */
static void greet(struct fake *f, const struct fuse_init_in *init, int error)
{
	connect_pair(f);
	f->greets = true;
	serve(f);
	ask(f, 2, FUSE_INIT, 0, init, sizeof(*init));
	hear(f, 2, error, error ? 0 : sizeof(struct fuse_init_out));
}

static void agree(struct fuse_init_in *init, struct fuse_init_out *ret_out)
{
	struct fake f;

	greet(&f, init, 0);
	memcpy(ret_out, answer_bytes + sizeof(struct fuse_out_header), sizeof(*ret_out));
	end(&f);
}

static void negotiation(void **state)
{
	struct fuse_init_in in = {
		.major = 7, .minor = 45, .max_readahead = 131072, .flags = UINT32_MAX
	};
	struct fuse_init_out out;
	struct fake f;

	(void)state;
	agree(&in, &out);
	assert_int_equal(out.major, 7);
	assert_in_range(out.minor, 31, 45);
	assert_int_equal(out.max_readahead, 131072);
	assert_int_equal(out.max_background, SLOTS - SLOTS / 4);
	assert_int_equal(out.congestion_threshold, SLOTS - SLOTS / 4);
	assert_int_equal(out.max_write, 4096); /* a slot is enough for each request */
	assert_int_equal(out.max_pages, (1 << 20) / sysconf(_SC_PAGESIZE));
	assert_int_equal(out.time_gran, 1);
	assert_int_equal(out.flags & ~(FUSE_BIG_WRITES | FUSE_INIT_EXT),
		FUSE_ASYNC_READ | FUSE_ASYNC_DIO | FUSE_PARALLEL_DIROPS | FUSE_MAX_PAGES |
			FUSE_EXPLICIT_INVAL_DATA);
	in.flags = FUSE_ASYNC_READ; /* nothing that was not offered */
	agree(&in, &out);
	assert_int_equal(out.flags & ~FUSE_BIG_WRITES, FUSE_ASYNC_READ);
	in.minor = 30;
	greet(&f, &in, -EPROTO);
	assert_int_equal(slots_phase(f.slots), SLOTS_NEW);
	end(&f);
}

static void protocol(void **state)
{
	const struct fuse_init_in init = { .major = 7, .minor = 38, .flags = UINT32_MAX };
	const struct fuse_open_in open_in = { 0 };
	const struct fuse_read_in list = { .size = 4096 };
	const struct fuse_forget_in forget = { .nlookup = 1 };
	struct fuse_entry_out entry;
	struct fuse_open_out opened;
	struct fake f;

	(void)state;
	greet(&f, &init, 0);
	test_wait(slots_phase(f.slots) == SLOTS_CONNECTED);
	assert_in_range(slots_mount(f.slots)->fuse_minor, 31, 38); /* the library's */
	ask(&f, 4, FUSE_LOOKUP, 1, "2", 2);
	hear(&f, 4, 0, sizeof(entry));
	memcpy(&entry, answer_bytes + sizeof(struct fuse_out_header), sizeof(entry));
	assert_int_equal(entry.nodeid, REQUEST_EXTENT_NODE(2));
	assert_int_equal(entry.attr.size, EXTENT);
	ask(&f, 6, FUSE_LOOKUP, 1, "3", 2);
	hear(&f, 6, -ENOENT, 0);
	ask(&f, 8, FUSE_GETATTR, 1, NULL, 0);
	hear(&f, 8, 0, sizeof(struct fuse_attr_out));
	ask(&f, 10, FUSE_OPEN, REQUEST_EXTENT_NODE(2), &open_in, sizeof(open_in));
	hear(&f, 10, 0, sizeof(opened));
	memcpy(&opened, answer_bytes + sizeof(struct fuse_out_header), sizeof(opened));
	assert_true(opened.open_flags & FOPEN_DIRECT_IO);
	ask(&f, 12, FUSE_STATFS, 1, NULL, 0);
	hear(&f, 12, 0, sizeof(struct fuse_statfs_out));
	ask(&f, 14, FUSE_READDIR, 1, &list, sizeof(list));
	hear(&f, 14, -ENOSYS, 0);
	ask(&f, 16, FUSE_WRITE, 2, NULL, 0);
	hear(&f, 16, -ENOSYS, 0);
	assert_int_equal(counter_get(&session_counters(f.session)->known), 1);
	ask(&f, 18, FUSE_FORGET, 2, &forget, sizeof(forget)); /* no reply */
	ask(&f, 20, FUSE_RELEASE, 2, NULL, 0);
	hear(&f, 20, 0, 0);
	assert_int_equal(counter_get(&session_counters(f.session)->lookup), 2);
	assert_int_equal(counter_get(&session_counters(f.session)->total), 9);
	assert_int_equal(counter_get(&session_counters(f.session)->forget), 1);
	assert_int_equal(counter_get(&session_counters(f.session)->known), 0);
	end(&f);
}

static void reads(void **state)
{
	struct fake f;

	(void)state;
	begin(&f);
	ask_read(&f, 2, 4096, 65536);
	hear(&f, 2, 0, 65536);
	check_bytes(4096, 65536);
	ask_read(&f, 4, 2 * EXTENT + (1 << 20), 1 << 20);
	hear(&f, 4, 0, 1 << 20);
	check_bytes(2 * EXTENT + (1 << 20), 1 << 20);
	synthetic_set(&control->later, 0, EXTENT);
	ask_read(&f, 6, 8192, 131072);
	hear(&f, 6, 0, 131072);
	check_bytes(8192, 131072);
	ask_read(&f, 8, 100, 4096); /* nothing EROFS sends */
	hear(&f, 8, -EINVAL, 0);
	synthetic_set(&control->fail, EXTENT, EXTENT + 4096);
	ask_read(&f, 10, EXTENT, 8192);
	hear(&f, 10, -EIO, 0); /* whole or an errno */
	assert_int_equal(f.failures, 1);
	assert_int_equal(f.last_failure, -ESTALE);
	test_wait(held(&f) == 0);
	end(&f);
}

static unsigned int resident_pages(void *from, size_t bytes)
{
	unsigned char in[256];
	unsigned int n = 0;

	assert_true(bytes <= sizeof(in) * 4096);
	assert_int_equal(mincore(from, bytes, in), 0);
	for (size_t i = 0; i < bytes / 4096; i++)
		n += in[i] & 1;
	return n;
}

/* A thread keeps no memory for reads while there are none. */
static void idle_buffers(void **state)
{
	struct fake f;

	(void)state;
	begin(&f);
	ask_read(&f, 2, 4096, 1 << 20);
	hear(&f, 2, 0, 1 << 20);
	assert_int_equal(resident_pages(f.reader.last, 1 << 20), 256);
	test_wait(resident_pages(f.reader.last, 1 << 20) == 0);
	ask_read(&f, 4, 8192, 1 << 20);
	hear(&f, 4, 0, 1 << 20);
	check_bytes(8192, 1 << 20);
	test_wait(held(&f) == 0);
	end(&f);
}

/* Both threads hang in a disk: their readers get bytes from elsewhere, and others are served. */
static void disk_hangs(void **state)
{
	struct fake f;
	uint64_t heard = 0;

	(void)state;
	stall_ns = 200 * CLOCK_MS;
	begin(&f);
	synthetic_set(&control->hang, 0, 1 << 20);
	ask_read(&f, 2, 4096, 4096);
	ask_read(&f, 4, 8192, 4096);
	for (unsigned int i = 0; i < 2; i++) {
		int error = 1;
		size_t len = 0;

		heard += hear_for(&f, 60000, &error, &len);
		assert_int_equal(error, 0);
		assert_int_equal(len, 4096);
	}
	assert_int_equal(heard, 2 + 4);
	assert_int_equal(control->hanging, 2);
	ask_read(&f, 6, EXTENT, 65536);
	hear(&f, 6, 0, 65536);
	check_bytes(EXTENT, 65536);
	ask_read(&f, 8, 0, 4096); /* not even tried */
	hear(&f, 8, 0, 4096);
	check_bytes(0, 4096);
	assert_int_equal(counter_get(&session_counters(f.session)->stalled), 2);

	/* It answers after all: too late for those two, but it may be used again. */
	synthetic_set(&control->hang, 0, 0);
	test_wait(control->hanging == 0);
	ask_read(&f, 10, 4096, 65536);
	hear(&f, 10, 0, 65536);
	check_bytes(4096, 65536);
	hear_nothing(&f);
	assert_int_equal(counter_get(&session_counters(f.session)->stalled), 2);
	test_wait(held(&f) == 0);
	end(&f);
	stall_ns = 0;
}

/*
 * More reads in a range that stalls than threads: what is here is served, and nobody is forgotten.
 */
static void stalled(void **state)
{
	struct fake f;
	uint64_t seen = 0;

	(void)state;
	begin(&f);
	synthetic_set(&control->stall, 0, EXTENT);
	for (uint64_t i = 0; i < SLOTS - 4; i++)
		ask_read(&f, 100 + 2 * i, i * 4096, 4096);
	test_wait(held(&f) == SLOTS - 4);
	for (uint64_t i = 0; i < 50; i++) {
		ask_read(&f, 1000 + 2 * i, EXTENT + i * 4096, 4096);
		hear(&f, 1000 + 2 * i, 0, 4096);
	}
	synthetic_set(&control->stall, 0, 0);
	for (uint64_t i = 0; i < SLOTS - 4; i++) {
		int error = 1;
		size_t len = 0;
		uint64_t unique = hear_for(&f, 60000, &error, &len);

		assert_true(unique >= 100 && unique < 100 + 2 * (SLOTS - 4));
		assert_int_equal(error, 0);
		check_bytes((unique - 100) / 2 * 4096, 4096);
		assert_false(seen >> (unique - 100) / 2 & 1);
		seen |= 1ull << (unique - 100) / 2;
	}
	end(&f);
}

/* More requests than slots: the rest waits in the kernel, and comes. */
static void more_than_slots(void **state)
{
	struct fake f;

	(void)state;
	begin(&f);
	synthetic_set(&control->stall, 0, EXTENT);
	for (uint64_t i = 0; i < 2 * SLOTS; i++)
		ask_read(&f, 100 + i, i * 4096, 4096);
	test_wait(held(&f) == SLOTS);
	hear_nothing(&f);
	synthetic_set(&control->stall, 0, 0);
	for (uint64_t i = 0; i < 2 * SLOTS; i++) {
		int error = 1;
		size_t len = 0;

		assert_int_not_equal(hear_for(&f, 60000, &error, &len), 0);
		assert_int_equal(error, 0);
	}
	end(&f);
}

static void interrupts(void **state)
{
	const struct fuse_interrupt_in in = { .unique = 50 };
	const struct fuse_interrupt_in unknown = { .unique = 4711 };
	uint32_t cancels = atomic_load(&control->cancels);
	struct fake f;

	(void)state;
	begin(&f);
	synthetic_set(&control->stall, 0, EXTENT);
	ask_read(&f, 48, 4096, 4096);
	ask_read(&f, 50, 0, 4096);
	test_wait(held(&f) == 2);
	ask(&f, 51, FUSE_INTERRUPT, 2, &in, sizeof(in));
	hear(&f, 50, -EINTR, 0);
	test_wait(atomic_load(&control->cancels) == cancels + 1 && held(&f) == 1);
	ask(&f, 4712, FUSE_INTERRUPT, 2, &unknown, sizeof(unknown));
	hear(&f, 4712, -EAGAIN, 0);
	synthetic_set(&control->stall, 0, 0);
	hear(&f, 48, 0, 4096);
	hear_nothing(&f); /* 50 is not answered twice */
	end(&f);
}

/* The kernel asks again at once, round and round, while what it asks for is not there: each round
 * takes a while, or it would take a whole core. */
static void interrupts_are_paced(void **state)
{
	const struct fuse_interrupt_in unknown = { .unique = 4711 };
	uint64_t least = UINT64_MAX;
	struct fake f;

	(void)state;
	begin(&f);
	for (uint64_t i = 0; i < 50; i++) {
		uint64_t began = clock_mono_ns();

		ask(&f, 2000 + 2 * i, FUSE_INTERRUPT, 2, &unknown, sizeof(unknown));
		hear(&f, 2000 + 2 * i, -EAGAIN, 0);
		least = min(least, clock_mono_ns() - began);
	}
	assert_true(least >= CLOCK_MS / 10);
	end(&f);
}

/* Memory for a request is waited for, and not for ever. */
static void without_memory(void **state)
{
	uint64_t began;
	struct fake f;

	(void)state;
	begin_unaligned(&f);
	atomic_store(&unaligned_no_memory, 5);
	ask(&f, 2, FUSE_GETATTR, 1, NULL, 0);
	hear(&f, 2, 0, sizeof(struct fuse_attr_out));
	atomic_store(&unaligned_no_memory, UINT32_MAX);
	began = clock_mono_ns();
	ask(&f, 4, FUSE_GETATTR, 1, NULL, 0);
	hear(&f, 4, -ENOMEM, 0);
	assert_in_range(clock_mono_ns() - began, CLOCK_SECOND, 10 * CLOCK_SECOND);
	atomic_store(&unaligned_no_memory, 0);
	ask(&f, 6, FUSE_GETATTR, 1, NULL, 0);
	hear(&f, 6, 0, sizeof(struct fuse_attr_out));
	end(&f);
}

/* A signal that somebody handles is no reason to give him an error; that he is gone is one. */
static void signals_that_do_not_kill(void **state)
{
	const struct fuse_interrupt_in in = { .unique = 60 };
	pid_t reader = fork();
	struct fake f;

	(void)state;
	if (reader == 0)
		for (;;)
			pause();
	begin(&f);
	synthetic_set(&control->stall, 0, EXTENT);
	asker = (uint32_t)reader;
	ask_read(&f, 60, 0, 4096);
	asker = 0;
	test_wait(held(&f) == 1);
	ask(&f, 61, FUSE_INTERRUPT, 2, &in, sizeof(in));
	hear_nothing(&f);
	assert_int_equal(held(&f), 1);
	assert_int_equal(kill(reader, SIGKILL), 0);
	assert_int_equal(waitpid(reader, NULL, 0), reader);
	ask(&f, 62, FUSE_INTERRUPT, 2, &in, sizeof(in));
	hear(&f, 60, -EINTR, 0);
	end(&f);
}

static void refused(void **state)
{
	struct fake f;

	(void)state;
	begin(&f);
	synthetic_set(&control->stall, 0, EXTENT);
	ask_read(&f, 2, 0, 4096);
	test_wait(held(&f) == 1);
	session_refuse(f.session, true);
	hear(&f, 2, -EIO, 0);
	ask_read(&f, 4, EXTENT, 4096); /* here, yet refused */
	hear(&f, 4, -EIO, 0);
	session_refuse(f.session, false);
	ask_read(&f, 6, EXTENT, 4096);
	hear(&f, 6, 0, 4096);
	end(&f);
}

static void ends(void **state)
{
	struct fake f;

	(void)state;
	begin(&f);
	synthetic_set(&control->stall, 0, EXTENT);
	ask_read(&f, 2, 0, 4096);
	test_wait(held(&f) == 1);
	session_free(f.session); /* answers what is parked */
	f.session = NULL;
	hear(&f, 2, -EIO, 0);
	end(&f);
	begin(&f);
	close(f.kernel);
	f.kernel = -1;
	test_wait(session_gone(f.session));
	assert_int_equal(f.gone, 1);
	end(&f);
}

/*
 * The daemon is killed with parked requests; a successor with the same descriptors answers them,
 * unless so many died with them that it may be no accident.
 */
static void takeover(void **state)
{
	enum { CRASHES = 16, LAST = CRASHES - 1 };
	struct fake f;
	struct session_counters *counters;

	(void)state;
	connect_pair(&f);
	synthetic_set(&control->stall, 0, EXTENT);
	for (int crash = 0; crash < CRASHES; crash++) {
		pid_t pid = fork();
		int status;

		if (pid == 0) {
			serve(&f);
			test_wait(held(&f) >= (crash == LAST ? 15 : 10));
			slots_set_phase(f.slots, SLOTS_MOUNTED);
			(void)kill(getpid(), SIGKILL);
		}
		if (crash == 0)
			for (uint64_t i = 0; i < 10; i++)
				ask_read(&f, 100 + i, i * 4096, 4096);
		if (crash == LAST) /* finds the first ten, and five more */
			for (uint64_t i = 10; i < 15; i++)
				ask_read(&f, 100 + i, i * 4096, 4096);
		assert_int_equal(waitpid(pid, &status, 0), pid);
		assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
	}
	synthetic_set(&control->stall, 0, 0);
	serve(&f);
	for (uint64_t i = 0; i < 15; i++) {
		int error = 1;
		size_t len = 0;
		uint64_t unique = hear_for(&f, 60000, &error, &len);

		assert_true(unique >= 100 && unique < 115);
		assert_int_equal(error, unique < 110 ? -EIO : 0);
		if (error == 0)
			check_bytes((unique - 100) * 4096, 4096);
	}
	counters = slots_counters(f.slots);
	assert_int_equal(counter_get(&counters->taken_over), LAST * 10 + 15);
	assert_int_equal(counter_get(&counters->crashes), CRASHES);
	end(&f);
}

static void wait_killed(pid_t pid)
{
	int status;

	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
}

static pid_t serve_apart(struct fake *f)
{
	pid_t pid = fork();

	if (pid == 0) {
		serve(f);
		slots_set_phase(f->slots, SLOTS_MOUNTED);
		while (true)
			(void)pause(); /* until killed */
	}
	return pid;
}

/*
 * A request that kills is answered EIO after four deaths; those that were being worked on beside it
 * each time, because they take longer, are not.
 */
static void poison(void **state)
{
	enum { OTHERS = 10, DEATHS = 4 };
	const uint64_t at = EXTENT + (1 << 20);
	struct fake f;

	(void)state;
	connect_pair(&f);
	synthetic_set(&control->slow, 0, EXTENT);
	synthetic_set(&control->kill, at, at + 4096);
	ask_read(&f, 100, 0, 4096);
	ask_read(&f, 200, at, 4096);
	for (uint64_t i = 1; i < OTHERS; i++)
		ask_read(&f, 100 + i, i * 4096, 4096);
	for (int death = 0; death < DEATHS; death++) {
		pid_t pid = serve_apart(&f);

		wait_killed(pid);
	}
	serve(&f);
	for (uint64_t i = 0; i < OTHERS + 1; i++) {
		int error = 1;
		size_t len = 0;
		uint64_t unique = hear_for(&f, 60000, &error, &len);

		assert_true(unique == 200 || (unique >= 100 && unique < 100 + OTHERS));
		assert_int_equal(error, unique == 200 ? -EIO : 0);
		if (error == 0)
			check_bytes((unique - 100) * 4096, 4096);
	}
	hear_nothing(&f);
	synthetic_set(&control->slow, 0, 0);
	synthetic_set(&control->kill, 0, 0);
	end(&f);
}

/* What was left at a disk that does not answer is in nobody's way. */
static void left_at_a_disk_that_hangs(void **state)
{
	struct fake f;
	pid_t pid;

	(void)state;
	connect_pair(&f);
	synthetic_set(&control->hang, 0, 1 << 20);
	synthetic_set(&control->kill, EXTENT, EXTENT + 4096);
	ask_read(&f, 100, 4096, 4096);
	ask_read(&f, 101, EXTENT, 4096);
	pid = serve_apart(&f);
	wait_killed(pid);
	synthetic_set(&control->kill, 0, 0);
	stall_ns = 200 * CLOCK_MS;
	serve(&f);
	ask_read(&f, 102, 2 * EXTENT, 4096);
	for (unsigned int i = 0; i < 3; i++) {
		int error = 1;
		size_t len = 0;
		uint64_t unique = hear_for(&f, 60000, &error, &len);

		assert_in_range(unique, 100, 102);
		assert_int_equal(error, 0);
	}
	assert_int_equal(control->hanging, 1);
	synthetic_set(&control->hang, 0, 0);
	test_wait(control->hanging == 0);
	end(&f);
	stall_ns = 0;
}

/* However often it is handed over, nobody is to blame; what waits is answered once, with its bytes. */
static void hands_over(void **state)
{
	enum { TIMES = 20 };
	struct fake f;
	struct session_counters *counters;

	(void)state;
	connect_pair(&f);
	synthetic_set(&control->stall, 0, EXTENT);
	for (int time = 0; time < TIMES; time++) {
		pid_t pid = fork();
		int status;

		if (pid == 0) {
			serve(&f);
			test_wait(held(&f) >= 10);
			slots_set_phase(f.slots, SLOTS_MOUNTED);
			session_hand_over(f.session);
			if (write(f.kernel, "late", 4) != 4 || held(&f) != 10)
				_exit(1);
			_exit(0);
		}
		if (time == 0)
			for (uint64_t i = 0; i < 10; i++)
				ask_read(&f, 100 + i, i * 4096, 4096);
		assert_int_equal(waitpid(pid, &status, 0), pid);
		assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
		assert_int_equal(read(f.dev, answer_bytes, 4), 4); /* it took nothing more */
	}
	synthetic_set(&control->stall, 0, 0);
	serve(&f);
	for (uint64_t i = 0; i < 10; i++) {
		int error = 1;
		size_t len = 0;
		uint64_t unique = hear_for(&f, 60000, &error, &len);

		assert_true(unique >= 100 && unique < 110);
		assert_int_equal(error, 0);
		check_bytes((unique - 100) * 4096, 4096);
	}
	hear_nothing(&f);
	counters = slots_counters(f.slots);
	assert_int_equal(counter_get(&counters->taken_over), TIMES * 10);
	assert_int_equal(counter_get(&counters->crashes), 0);
	end(&f);
}

/* Ranges that do not begin or end with a block, up to one block longer than a reader takes. */
static void between_blocks(void **state)
{
	static const uint64_t offsets[] = { 0, 1, 4095, 4096, 5000, 70001 };
	static const uint32_t sizes[] = { 1, 4095, 4096, 4097, 1000000, (1 << 20) - 1, 1 << 20 };
	uint64_t unique = 2;
	struct fake f;

	(void)state;
	begin_unaligned(&f);
	for (int later = 0; later < 2; later++) {
		synthetic_set(&control->later, 0, later ? EXTENT : 0);
		for (size_t o = 0; o < ARRAY_SIZE(offsets); o++)
			for (size_t i = 0; i < ARRAY_SIZE(sizes); i++) {
				ask_read(&f, unique, offsets[o], sizes[i]);
				hear(&f, unique, 0, sizes[i]);
				check_bytes(offsets[o], sizes[i]);
				unique += 2;
			}
	}
	test_wait(held(&f) == 0);
	end(&f);
}

/* The two parts of a long range: either may stall, fail, be interrupted, or be taken over. */
static void two_parts(void **state)
{
	const struct fuse_interrupt_in in = { .unique = 100 };
	const uint64_t last = 1 << 20; /* block */
	struct fake f;

	(void)state;
	begin_unaligned(&f);
	for (int part = 0; part < 2; part++) {
		uint64_t stalled = part ? 8192 : last;
		uint32_t cancels = atomic_load(&control->cancels);
		uint32_t reads = atomic_load(&control->reads);

		synthetic_set(&control->later, 0, EXTENT);
		synthetic_set(&control->stall, stalled, stalled + 4096);
		ask_read(&f, 100, 1, 1 << 20);
		test_wait(atomic_load(&control->reads) ==
			  reads + (part ? 2u : 1u)); /* the last block first */
		hear_nothing(&f);
		assert_int_equal(held(&f), 1);
		ask(&f, 101, FUSE_INTERRUPT, 2, &in, sizeof(in));
		hear(&f, 100, -EINTR, 0);
		test_wait(atomic_load(&control->cancels) == cancels + 1 && held(&f) == 0);
		ask_read(&f, 102, 1, 1 << 20);
		hear_nothing(&f);
		synthetic_set(&control->stall, 0, 0);
		hear(&f, 102, 0, 1 << 20);
		check_bytes(1, 1 << 20);
		synthetic_set(&control->fail, stalled, stalled + 4096);
		ask_read(&f, 104, 1, 1 << 20);
		hear(&f, 104, -ESTALE, 0); /* this tree's readers know what that means */
		synthetic_set(&control->fail, 0, 0);
		synthetic_set(&control->stall, stalled, stalled + 4096);
		ask_read(&f, 106, 1, 1 << 20);
		test_wait(held(&f) == 1);
		session_refuse(f.session, true);
		hear(&f, 106, -EIO, 0);
		test_wait(held(&f) == 0); /* it is cancelled after it was answered */
		session_refuse(f.session, false);
	}
	end(&f);
}

static void two_parts_taken_over(void **state)
{
	struct fake f;

	(void)state;
	for (int part = 0; part < 2; part++) {
		uint64_t stalled = part ? 8192 : 1 << 20;
		pid_t pid;
		int status;

		connect_pair(&f);
		f.own_tree = true;
		synthetic_set(&control->later, 0, EXTENT);
		synthetic_set(&control->stall, stalled, stalled + 4096);
		atomic_store(&control->reads, 0);
		pid = fork();
		if (pid == 0) {
			serve(&f);
			test_wait(held(&f) > 0 && atomic_load(&control->reads) >= (part ? 2u : 1u));
			(void)kill(getpid(), SIGKILL);
		}
		ask_read(&f, 100, 1, 1 << 20);
		assert_int_equal(waitpid(pid, &status, 0), pid);
		synthetic_set(&control->stall, 0, 0);
		serve(&f);
		hear(&f, 100, 0, 1 << 20);
		check_bytes(1, 1 << 20);
		end(&f);
	}
}

/* Node ids are given with a listing until the kernel knows as many as it may, and again later. */
static void known_nodes(void **state)
{
	const struct fuse_read_in list = { .size = 4096 };
	const struct fuse_forget_in one = { .nlookup = 1 };
	struct {
		struct fuse_batch_forget_in head;
		struct fuse_forget_one nodes[2];
	} many = { .head = { .count = 2 },
		.nodes = { { .nodeid = 2, .nlookup = 4 }, { .nodeid = 3, .nlookup = 1 } } };
	static const uint64_t known[] = { 3, 6, 7, 7 };
	struct fake f;

	(void)state;
	begin_unaligned(&f);
	for (size_t i = 0; i < ARRAY_SIZE(known); i++) {
		ask(&f, 2 + 2 * i, FUSE_READDIRPLUS, 1, &list, sizeof(list));
		hear(&f, 2 + 2 * i, 0, 100);
		assert_int_equal(counter_get(&session_counters(f.session)->known), known[i]);
	}
	ask(&f, 20, FUSE_BATCH_FORGET, 0, &many, sizeof(many));
	ask(&f, 22, FUSE_FORGET, 2, &one, sizeof(one));
	test_wait(counter_get(&session_counters(f.session)->known) == 1);
	ask(&f, 26, FUSE_READDIRPLUS, 1, &list, sizeof(list));
	hear(&f, 26, 0, 100);
	assert_int_equal(counter_get(&session_counters(f.session)->known), 4);
	many.nodes[0].nodeid = UNKNOWN_NODE; /* nobody gave it: nothing */
	many.head.count = 1;
	ask(&f, 28, FUSE_BATCH_FORGET, 0, &many, sizeof(many.head) + sizeof(many.nodes[0]));
	many.nodes[0].nodeid = 2; /* more than were given: a crash may count one twice */
	ask(&f, 28, FUSE_BATCH_FORGET, 0, &many, sizeof(many.head) + sizeof(many.nodes[0]));
	many.nodes[0].nodeid = 3;
	ask(&f, 28, FUSE_BATCH_FORGET, 0, &many, sizeof(many.head) + sizeof(many.nodes[0]));
	test_wait(counter_get(&session_counters(f.session)->known) == 0);
	ask(&f, 30, FUSE_READDIRPLUS, 1, &list, sizeof(list));
	hear(&f, 30, 0, 100);
	assert_int_equal(counter_get(&session_counters(f.session)->known), 3);
	session_free(f.session);
	synthetic_stop(&f.reader);
	slots_free(f.slots);
	serve(&f);                                                 /* the next daemon */
	ask(&f, 32, FUSE_FORGET, UNKNOWN_NODE, &one, sizeof(one)); /* given by the last daemon */
	test_wait(counter_get(&session_counters(f.session)->known) == 2);
	for (int i = 0; i < 4; i++)
		ask(&f, 34, FUSE_FORGET, UNKNOWN_NODE, &one, sizeof(one));
	test_wait(counter_get(&session_counters(f.session)->known) == 0);
	end(&f);
}

/* What a mount that nobody can write to, and that has no more than files, says to the rest. */
static void refusals(void **state)
{
	static const uint32_t writes[] = { FUSE_SETATTR, FUSE_WRITE, FUSE_CREATE, FUSE_MKNOD,
		FUSE_MKDIR, FUSE_UNLINK, FUSE_RMDIR, FUSE_RENAME, FUSE_RENAME2, FUSE_LINK,
		FUSE_SYMLINK, FUSE_SETXATTR, FUSE_REMOVEXATTR, FUSE_FALLOCATE,
		FUSE_COPY_FILE_RANGE };
	static const uint32_t unknown[] = { FUSE_ACCESS, FUSE_GETXATTR, FUSE_LISTXATTR, FUSE_FLUSH,
		FUSE_FSYNC, FUSE_LSEEK, FUSE_POLL, FUSE_BMAP, 52 /* STATX */, 4711 };
	struct fake f;

	(void)state;
	begin_unaligned(&f);
	for (size_t i = 0; i < ARRAY_SIZE(writes); i++) {
		ask(&f, 2, writes[i], 2, "name", 5);
		hear(&f, 2, -EROFS, 0);
	}
	for (size_t i = 0; i < ARRAY_SIZE(unknown); i++) {
		ask(&f, 2, unknown[i], 2, "name", 5);
		hear(&f, 2, -ENOSYS, 0);
	}
	ask(&f, 2, FUSE_IOCTL, 2, "name", 5);
	hear(&f, 2, -ENOTTY, 0);
	ask(&f, 2, FUSE_RELEASEDIR, 2, "name", 5);
	hear(&f, 2, 0, 0);
	end(&f);
}

static _Atomic bool storm_on;

static void *storm(void *arg)
{
	struct fake *f = arg;

	while (atomic_load(&storm_on)) { /* the same reads are stalled and not, all the time */
		synthetic_set(&control->stall, 0, EXTENT);
		test_advance(CLOCK_MS);
		synthetic_set(&control->stall, 0, 0);
		session_refuse(f->session, true);
		session_refuse(f->session, false);
	}
	return NULL;
}

/* Reads, interrupts and refusals at once: every request gets one answer, bytes are right. */
static void race(struct fake *f, uint64_t skip, uint32_t size, uint64_t reads)
{
	pthread_t thread;
	uint64_t answers = 0;
	uint64_t asked = 0;

	synthetic_set(&control->later, 0, 2 * EXTENT);
	atomic_store(&storm_on, true);
	assert_int_equal(pthread_create(&thread, NULL, storm, f), 0);
	while (answers < reads) {
		int error = 1;
		size_t len = 0;
		uint64_t unique;

		for (; asked < answers + 20; asked++) {
			const struct fuse_interrupt_in in = { .unique = 2 * asked };

			ask_read(f, 2 * asked + 2, asked * 4096 % EXTENT + skip, size);
			if (asked % 3 == 0)
				ask(f, 2 * asked + 1, FUSE_INTERRUPT, 2, &in, sizeof(in));
		}
		unique = hear_for(f, 60000, &error, &len);
		assert_int_not_equal(unique, 0);
		if (unique % 2 == 1)
			continue; /* an INTERRUPT that came too late or too early */
		answers++;
		if (error == 0) {
			assert_int_equal(len, size);
			check_bytes((unique - 2) / 2 * 4096 % EXTENT + skip, size);
		}
	}
	atomic_store(&storm_on, false);
	pthread_join(thread, NULL);
}

static void races(void **state)
{
	struct fake f;

	(void)state;
	begin(&f);
	race(&f, 0, 4096, 3000);
	end(&f);
}

static void races_of_two_parts(void **state)
{
	struct fake f;

	(void)state;
	begin_unaligned(&f);
	race(&f, 17, 1 << 20, 500);
	end(&f);
}

static int setup(void **state)
{
	(void)state;
	control = synthetic_control_new();
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(negotiation),
		cmocka_unit_test(protocol),
		cmocka_unit_test(reads),
		cmocka_unit_test(idle_buffers),
		cmocka_unit_test(disk_hangs),
		cmocka_unit_test(stalled),
		cmocka_unit_test(more_than_slots),
		cmocka_unit_test(interrupts),
		cmocka_unit_test(interrupts_are_paced),
		cmocka_unit_test(without_memory),
		cmocka_unit_test(signals_that_do_not_kill),
		cmocka_unit_test(refused),
		cmocka_unit_test(ends),
		cmocka_unit_test(takeover),
		cmocka_unit_test(poison),
		cmocka_unit_test(left_at_a_disk_that_hangs),
		cmocka_unit_test(hands_over),
		cmocka_unit_test(races),
		cmocka_unit_test(between_blocks),
		cmocka_unit_test(two_parts),
		cmocka_unit_test(two_parts_taken_over),
		cmocka_unit_test(races_of_two_parts),
		cmocka_unit_test(known_nodes),
		cmocka_unit_test(refusals),
	};

	return cmocka_run_group_tests(tests, setup, NULL);
}
