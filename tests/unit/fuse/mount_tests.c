#include "tests/unit/fuse/mount_tests.h"
#include "base/buf.h"
#include "base/cleanup.h"

void mnt_serves(void **state)
{
	struct statfs fs;
	struct stat st;
	uint64_t before;

	NEED_KERNEL();
	/* Warm: the kernel alone, unless another process emptied the machine's caches just then. */
	for (int passes = 0; passes < 50; passes++) {
		before = mnt_requests();
		mnt_check_all();
		if (mnt_requests() == before)
			break;
	}
	assert_int_equal(mnt_requests(), before);
	assert_int_equal(stat(mnt_path(BIG), &st), 0);
	assert_int_equal(st.st_size, BIG_BYTES);
	assert_int_equal(st.st_mode, S_IFREG | 0644);
	assert_int_equal(statfs(mnt.point, &fs), 0);
	assert_int_equal(fs.f_type, mnt.magic);
	assert_true(fs.f_flags & MS_RDONLY);
	assert_true(fs.f_flags & MS_NOSUID);
	assert_true(fs.f_flags & MS_NODEV);
	assert_int_equal(open(mnt_path("new"), O_CREAT | O_WRONLY, 0600), -1);
	assert_int_equal(errno, EROFS);
	assert_int_equal(mnt_do(COMMAND_UNMOUNT), 0);
	mnt_daemon_ended();
	assert_int_equal(stat(mnt_path(BIG), &st), -1);
}

void mnt_errors_are_errors(void **state)
{
	uint64_t offset;

	NEED_KERNEL();
	offset = mnt_offset_of(BIG);
	synthetic_set(&mnt.control->fail, offset + (8 << 20), offset + (9 << 20));
	assert_int_equal(mnt_read_file(BIG, offset, BIG_BYTES), mnt.error);
	synthetic_set(&mnt.control->fail, 0, 0);
	assert_int_equal(mnt_read_file(BIG, offset, BIG_BYTES), 0); /* EIO does not stick */
	assert_int_equal(mnt_do(COMMAND_UNMOUNT), 0);
	mnt_daemon_ended();
}

/*
 * Readers of a range that stalls hold up nobody, die at once, and what they asked for does not hold
 * up the unmount.
 */
void mnt_stalled_readers(void **state)
{
	enum { READERS = 100 };
	pid_t readers[READERS];
	uint64_t offset;

	NEED_KERNEL();
	offset = mnt_offset_of(STALL);
	synthetic_set(&mnt.control->stall, offset, offset + (2 << 20));
	for (uint32_t i = 0; i < READERS; i++)
		readers[i] = mnt_reader_of_stall(i * 4);
	test_wait(mnt_held() >= READERS);
	mnt_check_all();
	for (uint32_t i = 0; i < READERS; i++) {
		int status;

		assert_int_equal(kill(readers[i], SIGKILL), 0);
		test_wait(waitpid(readers[i], &status, WNOHANG) == readers[i]);
		assert_true(WIFSIGNALED(status));
	}
	assert_true(mnt_held() >= READERS); /* still asked for */
	assert_int_equal(mnt_do(COMMAND_UNMOUNT), 0);
	mnt_daemon_ended();
}

void mnt_busy(void **state)
{
	char pid[32];
	void *map;
	int fd;

	NEED_KERNEL();
	fd = open(mnt_path(BIG), O_RDONLY | O_CLOEXEC);
	assert_int_equal(mnt_do(COMMAND_UNMOUNT), -EBUSY);
	snprintf(pid, sizeof(pid), "pid %d ", (int)getpid());
	assert_non_null(strstr(mnt.shared->line, pid));
	assert_int_equal(mnt_do(COMMAND_UNMOUNT), -EBUSY); /* asking twice is not unmounting */
	mnt_check_all();
	map = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE, fd, 0);
	assert_true(map != MAP_FAILED);
	close(fd);
	assert_int_equal(mnt_do(COMMAND_UNMOUNT), -EBUSY); /* a mapping is use too */
	assert_non_null(strstr(mnt.shared->line, pid));
	assert_int_equal(munmap(map, 4096), 0);
	assert_int_equal(mnt_do(COMMAND_UNMOUNT), 0);
	mnt_daemon_ended();
}

void mnt_force(void **state)
{
	uint64_t offset;
	pid_t reader;
	int status;
	int fd;
	char byte;

	NEED_KERNEL();
	offset = mnt_offset_of(STALL);
	synthetic_set(&mnt.control->stall, offset, offset + (2 << 20));
	fd = open(mnt_path(BIG), O_RDONLY | O_CLOEXEC);
	reader = mnt_reader_of_stall(3);
	test_wait(mnt_held() >= 1);
	assert_int_equal(mnt_do(COMMAND_FORCE), 0);
	test_wait(waitpid(reader, &status, WNOHANG) == reader);
	assert_int_equal(WEXITSTATUS(status), EIO);
	mnt_daemon_ended();
	mnt_let_go();                                        /* as a keeper does then */
	assert_int_equal(pread(fd, &byte, 1, 30 << 20), -1); /* never read: an error, not zeros */
	assert_true(errno == EIO || errno == ENOTCONN || errno == ECONNABORTED);
	close(fd);
	assert_int_equal(mnt_unmount_by_hand(true), EINVAL); /* nothing is mounted */
}

/* Page faults of the children that a process has waited for: they grow with each. */
static unsigned long waited_for(pid_t pid)
{
	_cleanup_(buf_release) struct buf stat = BUF_INIT(4096);
	unsigned long faults = 0;
	char path[64];

	snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
	assert_int_equal(file_read_all(path, &stat), 0);
	assert_int_equal(sscanf(strrchr(buf_str(&stat), ')'),
				 ") %*c %*d %*d %*d %*d %*d %*u %*u %lu", &faults),
		1);
	return faults;
}

/* A process that makes the mount busy, with no descriptor to find, until `who` has tried to unmount it. */
static pid_t busy_once(pid_t who)
{
	int ready[2];
	int hold[2];
	char byte;
	pid_t pid;

	assert_int_equal(pipe2(ready, O_CLOEXEC), 0);
	pid = fork();
	if (pid == 0) {
		int fd = open(mnt.point, O_PATH | O_CLOEXEC);
		unsigned long before = waited_for(who);

		if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, hold) != 0 ||
			fd_pass_send(hold[0], fd) < 0 || close(fd) != 0 ||
			write(ready[1], "", 1) != 1)
			_exit(1);
		test_wait(waited_for(who) != before);
		_exit(0);
	}
	close(ready[1]);
	assert_int_equal(read(ready[0], &byte, 1), 1);
	close(ready[0]);
	return pid;
}

/* Something may have the mount for a moment: that is no user. On a busy machine the moment may be too long. */
void mnt_busy_for_a_moment(void **state)
{
	int r = -EBUSY;
	int status;

	NEED_KERNEL();
	for (unsigned int i = 0; i < 20 && r == -EBUSY; i++) {
		pid_t pid = busy_once(mnt.kept ? mnt.keeper.pid : getpid());

		r = mnt_do(COMMAND_UNMOUNT);
		assert_int_equal(waitpid(pid, &status, 0), pid);
		assert_int_equal(status, 0);
	}
	assert_int_equal(r, 0);
	mnt_daemon_ended();
}

/* A bind mount and an open file keep the daemon, whatever becomes of the mount point. */
void mnt_in_use_elsewhere(void **state)
{
	char bind[128];
	char path[200];
	char byte;
	int fd;

	NEED_KERNEL();
	if (mnt.user)
		skip(); /* a user who cannot mount has no bind mounts */
	snprintf(bind, sizeof(bind), "%s/bind", mnt.dir);
	assert_int_equal(mkdir(bind, 0755), 0);
	assert_int_equal(mount(mnt.point, bind, NULL, MS_BIND, NULL), 0);
	assert_int_equal(mnt_do(COMMAND_UNMOUNT), 0);
	assert_false(mnt_is_mounted());
	snprintf(path, sizeof(path), "%s/%s", bind, BIG);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	assert_int_equal(pread(fd, &byte, 1, 0), 1);
	assert_int_equal(waitpid(mnt.daemon_pid, NULL, WNOHANG), 0);
	assert_int_equal(umount2(bind, MNT_DETACH), 0);
	assert_int_equal(pread(fd, &byte, 1, 30 << 20), 1);
	assert_int_equal(waitpid(mnt.daemon_pid, NULL, WNOHANG), 0);
	close(fd);
	mnt_daemon_ended();
	assert_int_equal(rmdir(bind), 0);
}

void mnt_lazy(void **state)
{
	char byte;
	int fd;

	NEED_KERNEL();
	fd = open(mnt_path(BIG), O_RDONLY | O_CLOEXEC);
	assert_int_equal(mnt_do(COMMAND_LAZY), 0);
	assert_false(mnt_is_mounted());
	assert_int_equal(pread(fd, &byte, 1, 30 << 20), 1);
	assert_int_equal(waitpid(mnt.daemon_pid, NULL, WNOHANG), 0);
	close(fd);
	mnt_daemon_ended();
}

void mnt_unmounted_by_hand(void **state)
{
	NEED_KERNEL();
	mnt_check_all();
	assert_int_equal(mnt_unmount_by_hand(false), 0);
	mnt_daemon_ended();
}

pid_t mnt_reader_of_all(uint32_t seed, const _Atomic bool *stop)
{
	pid_t pid = fork();

	if (pid == 0) {
		for (uint32_t i = seed; !atomic_load(stop); i += 13) {
			const char *name = mnt_small_name(i % FILES);
			uint64_t offset = mnt_offset_of(name);
			int r = mnt_read_file(name, offset, FILE_BYTES);

			if (r != 0) {
				fprintf(stderr, "%s: %d\n", name, r);
				_exit(1);
			}
			mnt_drop_pages(name);
		}
		_exit(0);
	}
	return pid;
}

/*
 * The daemon is killed under its readers, again and again; half of the volume is answered later, so
 * that requests are parked when it dies. No error, no wrong byte.
 */
void mnt_takeover(void **state)
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
	synthetic_set(
		&mnt.control->later, mnt_offset_of(mnt_small_name(FILES / 2)), UINT64_MAX / 2);
	for (uint32_t i = 0; i < READERS; i++)
		readers[i] = mnt_reader_of_all(i * 31, stop);
	for (uint32_t i = 0; i < KILLS; i++) {
		uint64_t before = mnt_requests();

		test_wait(mnt_requests() > before + 50);
		if (i % 2) { /* let them pile up */
			synthetic_set(&mnt.control->stall, 0, UINT64_MAX / 2);
			test_wait(mnt_held() >= READERS / 2);
		}
		mnt_daemon_kill();
		synthetic_set(&mnt.control->stall, 0, 0);
		mnt_daemon_start();
	}
	atomic_store(stop, true);
	for (uint32_t i = 0; i < READERS; i++) {
		test_wait(waitpid(readers[i], &status, WNOHANG) == readers[i]);
		assert_int_equal(status, 0);
	}
	assert_int_equal(slots_open(mnt.slots_fd, &slots, &e), 0);
	counters = slots_counters(slots);
	assert_int_equal(counter_get(&counters->crashes), KILLS);
	assert_true(counter_get(&counters->taken_over) > 0);
	assert_int_equal(counter_get(&counters->failed), 0);
	slots_free(slots);
	mnt_check_all();
	assert_int_equal(mnt_do(COMMAND_UNMOUNT), 0);
	mnt_daemon_ended();
}

/* Somebody unmounts while no daemon lives; the successor finds out and ends. */
void mnt_unmounted_while_dead(void **state)
{
	NEED_KERNEL();
	mnt_daemon_kill();
	assert_int_equal(mnt_unmount_by_hand(true), 0);
	mnt_daemon_start();
	mnt_daemon_ended();
}

bool mnt_is_mounted(void)
{
	dev_t above = 0;
	dev_t below = 0;

	assert_int_equal(kernel_dev(AT_FDCWD, mnt.dir, &below), 0);
	assert_int_equal(kernel_dev(AT_FDCWD, mnt.point, &above), 0);
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
	return strtol(text, &rest, 10) == (mnt.kept ? mnt.keeper.pid : 0) &&
	       strtol(rest, NULL, 10) == 0;
}

/* The daemon is killed when all is mounted and nobody knows yet: nothing may stay. */
void mnt_killed_before_ready(void **state)
{
	struct err e = ERR_INIT;

	NEED_KERNEL();
	assert_int_equal(mnt_do(COMMAND_UNMOUNT), 0);
	mnt_daemon_ended();
	close(mnt.dev_fd);
	close(mnt.slots_fd);
	mnt.dev_fd = open("/dev/null", O_RDWR | O_CLOEXEC);
	if (!mnt.user) {
		close(mnt.dev_fd);
		assert_int_equal(kernel_open_fuse(&mnt.dev_fd, &e), 0);
	}
	mnt.slots_fd = memfd_create("test-slots", MFD_CLOEXEC);
	atomic_store(&mnt.shared->hesitates, true);
	mnt_daemon_start();
	assert_true(mnt_is_mounted());
	assert_int_equal(prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0), 0);
	mnt_daemon_kill();
	atomic_store(&mnt.shared->hesitates, false);
	test_wait(!mnt_is_mounted());
	/* Its guard looks once more, and would take the next test's mount for its own. */
	test_wait(orphans_ended());
	assert_int_equal(prctl(PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0), 0);
}
