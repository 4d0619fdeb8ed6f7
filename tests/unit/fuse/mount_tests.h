/* What both engines must do alike; see mount_fixture.h. MOUNT_TESTS lists them. */
#pragma once

#include "tests/unit/fuse/mount_fixture.h"

#include <sys/prctl.h>

static void serves(void **state)
{
	struct statfs fs;
	struct stat st;
	uint64_t before;

	NEED_KERNEL();
	/* Warm: the kernel alone, unless somebody emptied the machine's caches just then. */
	for (int passes = 0; passes < 5; passes++) {
		before = requests();
		check_all();
		if (requests() == before)
			break;
	}
	assert_int_equal(requests(), before);
	assert_int_equal(stat(file_path(BIG), &st), 0);
	assert_int_equal(st.st_size, BIG_BYTES);
	assert_int_equal(st.st_mode, S_IFREG | 0644);
	assert_int_equal(statfs(point, &fs), 0);
	assert_int_equal(fs.f_type, fixture_magic);
	assert_true(fs.f_flags & MS_RDONLY);
	assert_true(fs.f_flags & MS_NOSUID);
	assert_true(fs.f_flags & MS_NODEV);
	assert_int_equal(open(file_path("new"), O_CREAT | O_WRONLY, 0600), -1);
	assert_int_equal(errno, EROFS);
	assert_int_equal(unmount(COMMAND_UNMOUNT), 0);
	daemon_ended();
	assert_int_equal(stat(file_path(BIG), &st), -1);
}

static void errors_are_errors(void **state)
{
	uint64_t offset;

	NEED_KERNEL();
	offset = offset_of(BIG);
	synthetic_set(&control->fail, offset + (8 << 20), offset + (9 << 20));
	assert_int_equal(read_file(BIG, offset, BIG_BYTES), fixture_error);
	synthetic_set(&control->fail, 0, 0);
	assert_int_equal(read_file(BIG, offset, BIG_BYTES), 0); /* EIO does not stick */
	assert_int_equal(unmount(COMMAND_UNMOUNT), 0);
	daemon_ended();
}

/*
 * Readers of a range that stalls hold up nobody, die at once, and what they asked for does not hold
 * up the unmount.
 */
static void stalled_readers(void **state)
{
	enum { READERS = 100 };
	pid_t readers[READERS];
	uint64_t offset;

	NEED_KERNEL();
	offset = offset_of(STALL);
	synthetic_set(&control->stall, offset, offset + (2 << 20));
	for (uint32_t i = 0; i < READERS; i++)
		readers[i] = reader_of_stall(i * 4);
	eventually(held() >= READERS);
	check_all();
	for (uint32_t i = 0; i < READERS; i++) {
		int status;

		assert_int_equal(kill(readers[i], SIGKILL), 0);
		assert_true(ends_within(readers[i], PATIENCE, &status));
		assert_true(WIFSIGNALED(status));
	}
	assert_true(held() >= READERS); /* still asked for */
	assert_int_equal(unmount(COMMAND_UNMOUNT), 0);
	daemon_ended();
}

static void busy(void **state)
{
	char pid[32];
	void *map;
	int fd;

	NEED_KERNEL();
	fd = open(file_path(BIG), O_RDONLY | O_CLOEXEC);
	assert_int_equal(unmount(COMMAND_UNMOUNT), -EBUSY);
	snprintf(pid, sizeof(pid), "pid %d ", (int)getpid());
	assert_non_null(strstr(shared->line, pid));
	assert_int_equal(unmount(COMMAND_UNMOUNT), -EBUSY); /* asking twice is not unmounting */
	check_all();
	map = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE, fd, 0);
	assert_true(map != MAP_FAILED);
	close(fd);
	assert_int_equal(unmount(COMMAND_UNMOUNT), -EBUSY); /* a mapping is use too */
	assert_non_null(strstr(shared->line, pid));
	assert_int_equal(munmap(map, 4096), 0);
	assert_int_equal(unmount(COMMAND_UNMOUNT), 0);
	daemon_ended();
}

static void force(void **state)
{
	uint64_t offset;
	pid_t reader;
	int status;
	int fd;
	char byte;

	NEED_KERNEL();
	offset = offset_of(STALL);
	synthetic_set(&control->stall, offset, offset + (2 << 20));
	fd = open(file_path(BIG), O_RDONLY | O_CLOEXEC);
	reader = reader_of_stall(3);
	eventually(held() >= 1);
	assert_int_equal(unmount(COMMAND_FORCE), 0);
	assert_true(ends_within(reader, PATIENCE, &status));
	assert_int_equal(WEXITSTATUS(status), EIO);
	daemon_ended();
	let_go();                                            /* as a keeper does then */
	assert_int_equal(pread(fd, &byte, 1, 30 << 20), -1); /* never read: an error, not zeros */
	assert_true(errno == EIO || errno == ENOTCONN || errno == ECONNABORTED);
	close(fd);
	assert_int_equal(unmount_by_hand(true), EINVAL); /* nothing is mounted */
}

static void unmounted_by_hand(void **state)
{
	NEED_KERNEL();
	check_all();
	assert_int_equal(unmount_by_hand(false), 0);
	daemon_ended();
}

/*
 * Reads everything again and again, from the daemon each time, until told; status 0 unless a read
 * failed.
 */
static pid_t reader_of_all(uint32_t seed, const _Atomic bool *stop)
{
	pid_t pid = fork();

	if (pid == 0) {
		for (uint32_t i = seed; !atomic_load(stop); i += 13) {
			const char *name = small_name(i % FILES);
			uint64_t offset = offset_of(name);
			int r = read_file(name, offset, FILE_BYTES);

			if (r != 0) {
				fprintf(stderr, "%s: %d\n", name, r);
				_exit(1);
			}
			drop_pages(name);
		}
		_exit(0);
	}
	return pid;
}

/*
 * The daemon is killed under its readers, again and again; half of the volume is answered later, so
 * that requests are parked when it dies. No error, no wrong byte.
 */
static void takeover(void **state)
{
	enum { READERS = 4, KILLS = 8 };
	_Atomic bool *stop;
	pid_t readers[READERS];
	struct slots *slots = NULL;
	struct session_counters *counters;
	struct err e = ERR_INIT;
	int status;

	NEED_KERNEL();
	stop = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	synthetic_set(&control->later, offset_of(small_name(FILES / 2)), UINT64_MAX / 2);
	for (uint32_t i = 0; i < READERS; i++)
		readers[i] = reader_of_all(i * 31, stop);
	for (uint32_t i = 0; i < KILLS; i++) {
		uint64_t before = requests();

		eventually(requests() > before + 50);
		if (i % 2) /* let them pile up */
			synthetic_set(&control->stall, 0, UINT64_MAX / 2);
		clock_sleep_ns(20 * CLOCK_MS);
		daemon_kill();
		synthetic_set(&control->stall, 0, 0);
		daemon_start();
	}
	atomic_store(stop, true);
	for (uint32_t i = 0; i < READERS; i++) {
		assert_true(ends_within(readers[i], PATIENCE, &status));
		assert_int_equal(status, 0);
	}
	assert_int_equal(slots_open(slots_fd, &slots, &e), 0);
	counters = slots_counters(slots);
	assert_int_equal(counter_get(&counters->crashes), KILLS);
	assert_true(counter_get(&counters->taken_over) > 0);
	assert_int_equal(counter_get(&counters->failed), 0);
	slots_free(slots);
	check_all();
	assert_int_equal(unmount(COMMAND_UNMOUNT), 0);
	daemon_ended();
}

/* Somebody unmounts while no daemon lives; the successor finds out and ends. */
static void unmounted_while_dead(void **state)
{
	NEED_KERNEL();
	daemon_kill();
	assert_int_equal(unmount_by_hand(true), 0);
	daemon_start();
	daemon_ended();
}

static bool is_mounted(void)
{
	dev_t above = 0;
	dev_t below = 0;

	assert_int_equal(kernel_dev(AT_FDCWD, dir, &below), 0);
	assert_int_equal(kernel_dev(AT_FDCWD, point, &above), 0);
	return above != below;
}

/* Of those that a daemon left to us; the keeper stays. */
static bool orphans_ended(void)
{
	char text[256] = "";
	char *rest;
	int fd;

	while (waitpid(-1, NULL, WNOHANG) > 0)
		;
	fd = open("/proc/thread-self/children", O_RDONLY | O_CLOEXEC);
	assert_true(fd >= 0 && read(fd, text, sizeof(text) - 1) >= 0);
	close(fd);
	return strtol(text, &rest, 10) == (fixture_kept ? keeper.pid : 0) &&
	       strtol(rest, NULL, 10) == 0;
}

/* The daemon is killed when all is mounted and nobody knows yet: nothing may stay. */
static void killed_before_ready(void **state)
{
	struct err e = ERR_INIT;

	NEED_KERNEL();
	assert_int_equal(unmount(COMMAND_UNMOUNT), 0);
	daemon_ended();
	close(dev_fd);
	close(slots_fd);
	dev_fd = open("/dev/null", O_RDWR | O_CLOEXEC);
	if (!fixture_user) {
		close(dev_fd);
		assert_int_equal(kernel_open_fuse(&dev_fd, &e), 0);
	}
	slots_fd = memfd_create("test-slots", MFD_CLOEXEC);
	atomic_store(&shared->hesitates, true);
	daemon_start();
	assert_true(is_mounted());
	assert_int_equal(prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0), 0);
	daemon_kill();
	atomic_store(&shared->hesitates, false);
	eventually(!is_mounted());
	/* Its guard looks once more, and would take the next test's mount for its own. */
	eventually(orphans_ended());
	assert_int_equal(prctl(PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0), 0);
}

#define MOUNT_TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
#define MOUNT_TESTS                                                                     \
	MOUNT_TEST(serves), MOUNT_TEST(errors_are_errors), MOUNT_TEST(stalled_readers), \
		MOUNT_TEST(busy), MOUNT_TEST(force), MOUNT_TEST(unmounted_by_hand),     \
		MOUNT_TEST(takeover), MOUNT_TEST(unmounted_while_dead),                 \
		MOUNT_TEST(killed_before_ready)
