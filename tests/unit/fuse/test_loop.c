/*
 * The native engine over a loop device: real mounts. Needs root and loop devices; skipped without,
 * and says so.
 */
#include "tests/unit/fuse/mount_tests.h"

#include <sys/sysmacros.h>
#include "mount/request.h"

/* The loop device that the mount point shows; its directory in sysfs while it has a file. */
static const char *loop_path(void)
{
	static char path[64];
	struct stat st;

	assert_int_equal(stat(mnt.point, &st), 0);
	assert_int_equal(major(st.st_dev), 7);
	snprintf(path, sizeof(path), "/sys/block/loop%u/loop", minor(st.st_dev));
	return path;
}

/* True once it has none, or another one's: a device that is free is taken by whoever comes. */
static bool is_free(const char *path)
{
	char name[96];
	char file[64] = "";
	int fd;

	snprintf(name, sizeof(name), "%s/backing_file", path);
	fd = open(name, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return true;
	(void)!read(fd, file, sizeof(file) - 1);
	close(fd);
	return strncmp(file, "/" TREE_DEVICE_NAME, strlen("/" TREE_DEVICE_NAME)) != 0;
}

static void leaves_no_device(void **state)
{
	char path[64];

	NEED_KERNEL();
	snprintf(path, sizeof(path), "%s", loop_path());
	assert_false(is_free(path));
	mnt_check_all();
	assert_int_equal(mnt_do(COMMAND_UNMOUNT), 0);
	mnt_daemon_ended();
	test_wait(is_free(path));
}

/* Who owned it is killed, and whoever kept the connection goes too: nobody is there to clear up. */
static void killed_owner_leaves_no_device(void **state)
{
	char path[64];

	NEED_KERNEL();
	snprintf(path, sizeof(path), "%s", loop_path());
	mnt_daemon_kill();
	assert_false(is_free(path)); /* a successor would go on */
	close(mnt.dev_fd);
	mnt.dev_fd = -1;
	assert_int_equal(
		mnt_read_file(mnt_small_name(1), mnt_offset_of(mnt_small_name(1)), FILE_BYTES),
		EIO);
	assert_int_equal(mnt_unmount_by_hand(false), 0);
	test_wait(is_free(path));
}

static void direct_io_of_applications(void **state)
{
	const size_t size = 1 << 20;
	unsigned char *bytes = aligned_alloc(4096, size);
	unsigned char *wanted = malloc(size);
	uint64_t before;
	int fd;

	NEED_KERNEL();
	synthetic_fill(mnt_offset_of(BIG) + size, (uint32_t)size, wanted);
	fd = open(mnt_path(BIG), O_RDONLY | O_CLOEXEC | O_DIRECT);
	assert_true(fd >= 0);
	before = mnt_requests();
	for (uint32_t i = 0; i < 2; i++) { /* nothing of it is kept */
		assert_int_equal(pread(fd, bytes, size, (off_t)size), size);
		assert_memory_equal(bytes, wanted, size);
	}
	assert_true(mnt_requests() >= before + 2);
	close(fd);
	free(bytes);
	free(wanted);
	assert_int_equal(mnt_do(COMMAND_UNMOUNT), 0);
	mnt_daemon_ended();
}

/* A large read costs READs of 1 MiB and no rests of some, which would be 70. On a loaded machine the kernel cuts some by
 * itself: the best of five. */
static void reads_are_large(void **state)
{
	uint64_t least = UINT64_MAX;

	NEED_KERNEL();
	assert_int_equal(
		mnt_read_file(mnt_small_name(0), mnt_offset_of(mnt_small_name(0)), FILE_BYTES), 0);
	for (int i = 0; i < 5 && least > 50; i++) {
		uint64_t before;

		mnt_drop_pages(BIG);
		before = mnt_requests();
		assert_int_equal(mnt_read_file(BIG, mnt_offset_of(BIG), BIG_BYTES), 0);
		least = min(least, mnt_requests() - before);
	}
	assert_in_range(least, BIG_BYTES >> 20, 50);
	assert_int_equal(mnt_do(COMMAND_UNMOUNT), 0);
	mnt_daemon_ended();
}

/* What nothing of EROFS asks for: between image and volume, over the edge, past the end. */
static void reads_of_the_device(void **state)
{
	char path[64];
	static _Alignas(4096) unsigned char bytes[8192];
	static const unsigned char zero[4096];
	uint64_t edge = mnt.image.info.volume_offset;
	int fd;

	NEED_KERNEL();
	snprintf(path, sizeof(path), "/dev/%.*s", (int)strcspn(loop_path() + 11, "/"),
		loop_path() + 11);
	fd = open(path, O_RDONLY | O_CLOEXEC | O_DIRECT);
	assert_true(fd >= 0);
	assert_int_equal(pread(fd, bytes, 4096, (off_t)(edge - 8192)), 4096);
	assert_memory_equal(bytes, zero, 4096);
	assert_int_equal(pread(fd, bytes, 8192, (off_t)(edge - 4096)), -1);
	assert_int_equal(errno, EIO);
	assert_int_equal(pread(fd, bytes, 4096, 0), 4096);
	assert_int_equal(lseek(fd, 0, SEEK_END),
		(off_t)(edge + mnt.image.info.extents * mnt.image.info.extent_bytes));
	close(fd);
	mnt_check_all();
	assert_int_equal(mnt_do(COMMAND_UNMOUNT), 0);
	mnt_daemon_ended();
}

/* ---- probe ----------------------------------------------------------------------------------- */

static void pages_of_the_kernel(void **state)
{
	struct err e = ERR_INIT;

	(void)state;
	assert_int_equal(kernel_check_pages(4096, &e), 0);
	assert_int_equal(kernel_check_pages(65536, &e), -EOPNOTSUPP);
	assert_non_null(strstr(e.text, "64 KiB"));
	assert_non_null(strstr(e.text, "--engine fuse"));
}

/* As an ordinary user's, or in a container without the devices. */
static void probe_without_rights(void **state)
{
	struct err e = ERR_INIT;
	int status = 0;
	pid_t pid;

	(void)state;
	if (geteuid() != 0)
		skip();
	pid = fork();
	if (pid == 0)
		_exit(setuid(65534) != 0 || kernel_probe_loop(&e) != -EPERM ||
			!strstr(e.text, "CAP_SYS_ADMIN"));
	test_wait(waitpid(pid, &status, WNOHANG) == pid);
	assert_int_equal(status, 0);
}

static void probe_leaves_nothing(void **state)
{
	struct err e = ERR_INIT;
	char command[128];

	NEED_KERNEL();
	assert_int_equal(kernel_probe_loop(&e), 0);
	assert_int_equal(kernel_probe(mnt.dir, &e), 0);
	snprintf(command, sizeof(command), "test -z \"$(ls %s | grep probe)\"", mnt.dir);
	assert_int_equal(system(command), 0);
	assert_int_equal(waitpid(-1, NULL, WNOHANG), -1); /* no process either */
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(pages_of_the_kernel),
		cmocka_unit_test(probe_without_rights),
		cmocka_unit_test(probe_leaves_nothing),
		MOUNT_TESTS,
		MOUNT_TEST(leaves_no_device),
		MOUNT_TEST(killed_owner_leaves_no_device),
		MOUNT_TEST(direct_io_of_applications),
		MOUNT_TEST(reads_of_the_device),
		MOUNT_TEST(reads_are_large),
	};

	mnt.engine = &engine_loop;
	mnt.magic = 0xE0F5E1E2;
	mnt.error = EIO;
	return cmocka_run_group_tests(tests, mnt_setup_group, mnt_teardown_group);
}
