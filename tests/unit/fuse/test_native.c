/*
 * The native engine: real mounts. Needs root and a kernel with file-backed EROFS; skipped without,
 * and says so.
 */
#include "tests/unit/fuse/mount_tests.h"

#include <dirent.h>
#include "mount/request.h"

struct half_mounted {
	int dev_fd;
	_Atomic uint64_t dev;
	_Atomic bool asked;
};

/* Answers INIT, and nothing else. */
static void *answer_init(void *arg)
{
	struct half_mounted *h = arg;
	static _Alignas(8) char request[SLOT_BYTES];

	for (;;) {
		ssize_t n = read(h->dev_fd, request, sizeof(request));
		struct fuse_out_header head = { .len = sizeof(head) +
						       sizeof(struct fuse_init_out) };
		const struct fuse_init_out out = { .major = FUSE_KERNEL_VERSION,
			.minor = 31,
			.max_background = 64,
			.max_write = 4096 };

		if (n <= 0)
			continue;
		if (request_opcode(request, (size_t)n) != FUSE_INIT) {
			atomic_store(&h->asked, true);
			continue;
		}
		head.unique = request_unique(request, (size_t)n);
		(void)!writev(h->dev_fd,
			(struct iovec[]){
				{ &head, sizeof(head) }, { (void *)(uintptr_t)&out, sizeof(out) } },
			2);
	}
	return NULL;
}

/*
 * The daemon dies while the kernel opens an extent and waits for it to answer: it must be gone at
 * once, though its descriptors live on elsewhere, or nobody would clear up behind it.
 */
static void killed_while_mounting(void **state)
{
	struct half_mounted *h;
	struct err e = ERR_INIT;
	bool ended;
	int status;
	pid_t pid;

	NEED_KERNEL();
	h = mmap(NULL, sizeof(*h), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	assert_int_equal(kernel_open_fuse(&h->dev_fd, &e), 0);
	pid = fork();
	if (pid == 0) {
		pthread_t thread;
		struct kernel_image extents = { .path = mnt.image_path,
			.extents = mnt.image.info.extents };
		struct kernel_superblock super;
		dev_t dev;
		int fd;

		if (kernel_mount_fuse(h->dev_fd, NULL, &extents.fuse_mount_fd, &dev, &e) < 0)
			_exit(1);
		atomic_store(&h->dev, dev);
		pthread_create(&thread, NULL, answer_init, h);
		_exit(kernel_mount_image(&extents, &fd, &super, &e) < 0);
	}
	test_wait(atomic_load(&h->asked));
	assert_int_equal(kill(pid, SIGKILL), 0);
	ended = test_wait_for(60 * CLOCK_SECOND, waitpid(pid, &status, WNOHANG) == pid);
	if (!ended) /* or it stays for ever: it holds the connection that it waits for */
		assert_int_equal(kernel_abort((dev_t)atomic_load(&h->dev)), 0);
	assert_true(ended);
	close(h->dev_fd);
	munmap(h, sizeof(*h));
}

/* ---- devices that are files ------------------------------------------------------------------ */

/* One file for each extent of the volume, right bytes in it. */
static void local_files(void)
{
	unsigned char *bytes = malloc(1 << 20);
	char path[128];

	assert_true(mnt.image.info.extents <= LOCAL_MAX);
	for (uint32_t i = 0; i + 1 < mnt.image.info.extents; i++) {
		int fd;

		mnt_local_path(i, path);
		fd = open(path, O_CREAT | O_TRUNC | O_WRONLY | O_CLOEXEC, 0400);
		for (uint64_t at = 0; at < EXTENT; at += 1 << 20) {
			synthetic_fill(i * EXTENT + at, 1 << 20, bytes);
			assert_int_equal(pwrite(fd, bytes, 1 << 20, (off_t)at), 1 << 20);
		}
		close(fd);
	}
	free(bytes);
}

static uint32_t all_local(void)
{
	return (1u << (mnt.image.info.extents - 1)) - 1;
}

static void show(uint32_t local)
{
	atomic_store(&mnt.shared->local, local);
	assert_int_equal(mnt_do(COMMAND_SWITCH), 0);
	assert_int_equal(mnt.shared->supers.local, __builtin_popcount(local));
	assert_int_equal(mnt.shared->supers.bits[0], local);
	assert_int_equal(mnt.shared->supers.mark, local);
}

/* Helpers that detach may still run. */
static uint32_t old_superblocks(void)
{
	assert_int_equal(mnt_do(COMMAND_LOOK), 0);
	return mnt.shared->supers.old;
}

static uint32_t descriptors(void)
{
	char path[32];
	uint32_t n = 0;
	DIR *fds;

	snprintf(path, sizeof(path), "/proc/%d/fd", (int)mnt.daemon_pid);
	fds = opendir(path);
	while (readdir(fds))
		n++;
	closedir(fds);
	return n;
}

/* Served, mixed, files alone, and back; whoever has a file open reads on as before. */
static void switches(void **state)
{
	uint32_t before;
	char byte[1];
	int fd;

	NEED_KERNEL();
	local_files();
	mnt_check_all();
	show(1 << 1); /* part of the large file */
	mnt_check_all();
	assert_int_equal(mnt.shared->supers.switches, 1);
	fd = open(mnt_path(BIG), O_RDONLY | O_CLOEXEC);
	atomic_store(&mnt.shared->directio, true);
	synthetic_set(&mnt.control->fail, 0, UINT64_MAX / 2);
	show(all_local());
	mnt_check_all(); /* nobody is asked */
	synthetic_set(&mnt.control->fail, 0, 0);
	test_wait(old_superblocks() == 1); /* of the open file; the others are gone */
	assert_int_equal(pread(fd, byte, 1, 0), 1);
	mnt_check_all();
	show(0);
	assert_true(
		mnt.shared->supers.held[0] == all_local() || mnt.shared->supers.held[0] == 1 << 1);
	assert_int_equal(pread(fd, byte, 1, BIG_BYTES - 1), 1);
	close(fd);
	test_wait(old_superblocks() == 0);
	before = descriptors();
	for (uint32_t i = 0; i < 20; i++)
		show(i % 2 ? all_local() : 2);
	test_wait(descriptors() == before);
	/* Helpers that still detach are no users. */
	atomic_store(&mnt.shared->directio, false);
	assert_int_equal(mnt_do(COMMAND_UNMOUNT), 0);
	mnt_daemon_ended();
}

/* No daemon, all of it files: readers need none. The successor knows what is shown. */
static void local_without_daemon(void **state)
{
	NEED_KERNEL();
	local_files();
	show(all_local());
	mnt_daemon_kill();
	mnt_drop_pages(BIG);
	mnt_check_all();
	mnt_daemon_start();
	show(1);
	mnt_check_all();
	assert_int_equal(mnt.shared->supers.switches, 2);
	assert_int_equal(mnt_unmount_by_hand(false), 0);
	mnt_daemon_ended(); /* it heard of it, by the one device that is always served */
}

static uint32_t mounts_at_point(void)
{
	FILE *list = fopen("/proc/self/mountinfo", "re");
	char line[4096];
	uint32_t n = 0;

	while (fgets(line, sizeof(line), list))
		n += strstr(line, mnt.point) != NULL;
	fclose(list);
	return n;
}

/* Killed between any two steps of a switch: one mount is at the point, before and after, with right
 * bytes, and the next switch is like any other. */
static void killed_while_switching(void **state)
{
	static const char *const points[] = { "switch.known", "switch.beneath", "switch.detached",
		"switch.now", "switch.done" };
	uint64_t done = 0;
	int status;

	NEED_KERNEL();
	local_files();
	for (uint32_t i = 0; i < ARRAY_SIZE(points); i++) {
		snprintf(mnt.shared->crash_at, sizeof(mnt.shared->crash_at), "%s", points[i]);
		atomic_store(&mnt.shared->local, i % 2 ? 0 : all_local());
		atomic_store(&mnt.shared->command, COMMAND_SWITCH);
		test_wait(waitpid(mnt.daemon_pid, &status, WNOHANG) == mnt.daemon_pid);
		assert_true(WIFSIGNALED(status));
		mnt.shared->crash_at[0] = '\0';
		assert_true(mnt_is_mounted());
		mnt_daemon_start();
		test_wait(mounts_at_point() == 1); /* a helper detaches when the daemon is gone */
		mnt_check_all();
		done += i > 0; /* each counts once, however often it was ended */
		assert_int_equal(mnt_do(COMMAND_LOOK), 0);
		assert_int_equal(mnt.shared->supers.switches, done);
		show(i % 2 ? all_local() : 1);
		assert_int_equal(mnt.shared->supers.switches, ++done);
		mnt_check_all();
		assert_int_equal(mounts_at_point(), 1);
	}
	test_wait(old_superblocks() == 0);
	assert_int_equal(mnt_do(COMMAND_UNMOUNT), 0);
	mnt_daemon_ended();
	assert_int_equal(mounts_at_point(), 0);
}

/* Switch after switch under readers, the daemon killed at any time: no error, one mount at the end. */
static void switches_under_readers(void **state)
{
	enum { READERS = 4, ROUNDS = 40 };
	_Atomic bool *stop;
	pid_t readers[READERS];
	int status;

	NEED_KERNEL();
	local_files();
	stop = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	for (uint32_t i = 0; i < READERS; i++)
		readers[i] = mnt_reader_of_all(i * 31, stop);
	for (uint32_t i = 0; i < ROUNDS; i++) {
		atomic_store(&mnt.shared->directio, i % 2);
		if (i % 4 == 3) { /* killed in the middle of it, or not */
			atomic_store(&mnt.shared->local, i & all_local());
			atomic_store(&mnt.shared->result, 1);
			atomic_store(&mnt.shared->command, COMMAND_SWITCH);
			test_advance(i * CLOCK_MS / 4);
			mnt_daemon_kill();
			mnt_daemon_start();
			assert_int_equal(mounts_at_point(), 1);
		} else {
			show(i & all_local());
		}
	}
	atomic_store(stop, true);
	for (uint32_t i = 0; i < READERS; i++) {
		test_wait(waitpid(readers[i], &status, WNOHANG) == readers[i]);
		assert_int_equal(status, 0);
	}
	assert_int_equal(mounts_at_point(), 1);
	mnt_check_all();
	atomic_store(&mnt.shared->directio, false);
	assert_int_equal(mnt_do(COMMAND_UNMOUNT), 0);
	mnt_daemon_ended();
	assert_int_equal(mounts_at_point(), 0);
}

/* ---- the mount point ------------------------------------------------------------------------- */

static void mount_points(void **state)
{
	char path[128];
	struct err e = ERR_INIT;
	int fd = -1;

	(void)state;
	assert_int_equal(mountpoint_open(mnt.point, &fd, &e), 0);
	close(fd);
	snprintf(path, sizeof(path), "%s/missing", mnt.dir);
	assert_int_equal(mountpoint_open(path, &fd, &e), -ENOENT);
	assert_non_null(strstr(e.text, "does not exist"));
	snprintf(path, sizeof(path), "%s/table", mnt.dir);
	assert_int_equal(mountpoint_open(path, &fd, &e), -ENOTDIR);
	assert_int_equal(mountpoint_open(mnt.dir, &fd, &e), -ENOTEMPTY);
	assert_int_equal(mountpoint_open("/proc", &fd, &e), -EEXIST);
	assert_non_null(strstr(e.text, "already a mount point"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		MOUNT_TESTS,
		MOUNT_TEST(switches),
		MOUNT_TEST(local_without_daemon),
		MOUNT_TEST(killed_while_switching),
		MOUNT_TEST(switches_under_readers),
		cmocka_unit_test(killed_while_mounting),
		cmocka_unit_test(mount_points),
	};

	mnt.engine = &engine_native;
	mnt.magic = 0xE0F5E1E2;
	mnt.error = EIO;
	return cmocka_run_group_tests(tests, mnt_setup_group, mnt_teardown_group);
}
