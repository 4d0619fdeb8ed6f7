#include "tests/unit/fuse/mount_fuse_tests.h"

static struct session_counters counters(void)
{
	struct slots *slots = NULL;
	struct err e = ERR_INIT;
	struct session_counters c;

	assert_int_equal(slots_open(mnt.slots_fd, &slots, &e), 0);
	memcpy(&c, slots_counters(slots), sizeof(c));
	slots_free(slots);
	return c;
}

/* The kernel was told before anybody came that it need not ask who opens. */
void mnt_opens_without_a_request(void **state)
{
	struct session_counters before;
	struct session_counters after;
	char path[128];
	int fd;

	NEED_KERNEL();
	before = counters();
	assert_int_equal(counter_get(&before.open), 1);
	fd = open(mnt_path(BIG), O_RDONLY | O_CLOEXEC);
	assert_true(fd >= 0);
	close(fd);
	snprintf(path, sizeof(path), "%s/d1", mnt.point);
	fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	assert_true(fd >= 0);
	close(fd);
	after = counters();
	assert_int_equal(counter_get(&after.open), 1);
	assert_true(counter_get(&after.total) - counter_get(&before.total) <=
		    2 + (counter_get(&after.lookup) - counter_get(&before.lookup)));
	assert_int_equal(mnt_do(COMMAND_UNMOUNT), 0);
	mnt_daemon_ended();
}

static bool image_in_use(dev_t dev)
{
	char path[128];

	snprintf(path, sizeof(path), "%s/images/mounted.%u-%u", mnt.dir, major(dev), minor(dev));
	return access(path, F_OK) == 0;
}

/* A newer mount of the source removes the image; the successor of a daemon that died needs it. */
void mnt_image_removed(void **state)
{
	char kept[224];
	dev_t dev = 0;

	NEED_KERNEL();
	mnt_check_all();
	assert_int_equal(kernel_dev(AT_FDCWD, mnt.point, &dev), 0);
	assert_true(image_in_use(dev));
	snprintf(kept, sizeof(kept), "%s.kept", mnt.image_path);
	assert_int_equal(rename(mnt.image_path, kept), 0);
	mnt_daemon_kill();
	mnt_daemon_start();
	mnt_check_all();
	assert_int_equal(mnt_read_file("d3/f003", mnt_offset_of("d3/f003"), FILE_BYTES), 0);
	assert_int_equal(rename(kept, mnt.image_path), 0);
	assert_int_equal(mnt_do(COMMAND_UNMOUNT), 0);
	mnt_daemon_ended();
	assert_false(image_in_use(dev));
}

/* The connection is cut: the daemon ends. Its keeper detaches what is left. Root only. */
void mnt_connection_cut(void **state)
{
	dev_t dev = 0;

	NEED_KERNEL();
	if (mnt.user) {
		print_message("skipped: needs the control file system\n");
		assert_int_equal(mnt_do(COMMAND_UNMOUNT), 0);
		mnt_daemon_ended();
		skip();
	}
	assert_int_equal(kernel_dev(AT_FDCWD, mnt.point, &dev), 0);
	assert_int_equal(kernel_abort(dev), 0);
	mnt_daemon_ended();
	assert_int_equal(mnt_unmount_by_hand(true), 0);
}

/* A successor without the connection cannot go on. */
void mnt_connection_lost(void **state)
{
	int status = 0;

	NEED_KERNEL();
	mnt_daemon_kill();
	close(mnt.dev_fd);
	mnt.dev_fd = open("/dev/null", O_RDWR | O_CLOEXEC);
	assert_true(mnt_is_mounted());
	mnt.daemon_pid = fork();
	if (mnt.daemon_pid == 0) {
		close(STDERR_FILENO);
		mnt_daemon_main();
	}
	test_wait(waitpid(mnt.daemon_pid, &status, WNOHANG) == mnt.daemon_pid);
	mnt.daemon_pid = 0;
	assert_int_equal(WEXITSTATUS(status), 1);
	assert_int_equal(mnt_unmount_by_hand(true), 0);
}

static void on_signal(int number)
{
	(void)number;
}

/*
 * A child that waits for the stalled file where the kernel interrupts a wait by any signal (a
 * mapping without read-ahead, from which write(2) copies), or by none (O_DIRECT).
 */
static pid_t odd_reader_of_stall(bool direct)
{
	pid_t pid = fork();
	int ends[2];
	int fd;

	if (pid != 0)
		return pid;
	fd = open(mnt_path(STALL), O_RDONLY | O_CLOEXEC | (direct ? O_DIRECT : 0));
	if (direct) {
		_Alignas(4096) static char buf[4096];

		_exit(pread(fd, buf, sizeof(buf), 0) > 0 ? 0 : errno);
	} else {
		void *map = mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 0);

		(void)madvise(map, 4096, MADV_RANDOM);
		_exit(pipe(ends) == 0 && write(ends[1], map, 100) == 100 ? 0 : errno);
	}
}

/* Whoever waits can be killed, and gets no error for a signal that does not kill him. */
void mnt_odd_readers(void **state)
{
	/* The readers', from their first instant on. */
	const struct sigaction action = { .sa_handler = on_signal };
	pid_t readers[4];
	uint64_t offset;
	int status;

	NEED_KERNEL();
	assert_int_equal(sigaction(SIGUSR1, &action, NULL), 0);
	offset = mnt_offset_of(STALL);
	for (int kill_them = 0; kill_them < 2; kill_them++) {
		synthetic_set(&mnt.control->stall, offset, offset + (2 << 20));
		for (uint32_t i = 0; i < ARRAY_SIZE(readers); i++)
			readers[i] = odd_reader_of_stall(i % 2);
		test_wait(mnt_held() >= 3); /* those of a mapping may wait for one page */
		for (uint32_t i = 0; i < ARRAY_SIZE(readers); i++)
			assert_int_equal(kill(readers[i], SIGUSR1), 0);
		assert_false(test_wait_for(
			300 * CLOCK_MS, waitpid(readers[0], &status, WNOHANG) == readers[0]));
		if (kill_them)
			for (uint32_t i = 0; i < ARRAY_SIZE(readers); i++)
				assert_int_equal(kill(readers[i], SIGKILL), 0);
		else
			synthetic_set(&mnt.control->stall, 0, 0);
		for (uint32_t i = 0; i < ARRAY_SIZE(readers); i++) {
			test_wait(waitpid(readers[i], &status, WNOHANG) == readers[i]);
			assert_int_equal(status, kill_them ? SIGKILL : 0);
		}
		synthetic_set(&mnt.control->stall, 0, 0);
		mnt_drop_pages(STALL);
	}
	assert_int_equal(mnt_do(COMMAND_UNMOUNT), 0);
	mnt_daemon_ended();
}
