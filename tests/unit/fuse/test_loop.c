/*
 * The native engine over a loop device: real mounts. Needs root and loop devices; skipped without,
 * and says so.
 */
#include "tests/unit/fuse/mount_tests.h"

#include <sys/sysmacros.h>
#include "fuse/request.h"

/* The loop device that the mount point shows; its directory in sysfs while it has a file. */
static const char *loop_path(void)
{
	static char path[64];
	struct stat st;

	assert_int_equal(stat(point, &st), 0);
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
	check_all();
	assert_int_equal(unmount(COMMAND_UNMOUNT), 0);
	daemon_ended();
	eventually(is_free(path));
}

/* Who owned it is killed, and whoever kept the connection goes too: nobody is there to clear up. */
static void killed_owner_leaves_no_device(void **state)
{
	char path[64];

	NEED_KERNEL();
	snprintf(path, sizeof(path), "%s", loop_path());
	daemon_kill();
	assert_false(is_free(path)); /* a successor would go on */
	close(dev_fd);
	dev_fd = -1;
	assert_int_equal(read_file(small_name(1), offset_of(small_name(1)), FILE_BYTES), EIO);
	assert_int_equal(unmount_by_hand(false), 0);
	eventually(is_free(path));
}

static void direct_io_of_applications(void **state)
{
	const size_t size = 1 << 20;
	unsigned char *bytes = aligned_alloc(4096, size);
	unsigned char *wanted = malloc(size);
	uint64_t before;
	int fd;

	NEED_KERNEL();
	synthetic_fill(offset_of(BIG) + size, (uint32_t)size, wanted);
	fd = open(file_path(BIG), O_RDONLY | O_CLOEXEC | O_DIRECT);
	assert_true(fd >= 0);
	before = requests();
	for (uint32_t i = 0; i < 2; i++) { /* nothing of it is kept */
		assert_int_equal(pread(fd, bytes, size, (off_t)size), size);
		assert_memory_equal(bytes, wanted, size);
	}
	assert_true(requests() >= before + 2);
	close(fd);
	free(bytes);
	free(wanted);
	assert_int_equal(unmount(COMMAND_UNMOUNT), 0);
	daemon_ended();
}

/* A large read costs READs of 1 MiB and no rests of some, which would be 70. On a loaded machine the kernel cuts some by
 * itself: the best of five. */
static void reads_are_large(void **state)
{
	uint64_t least = UINT64_MAX;

	NEED_KERNEL();
	assert_int_equal(read_file(small_name(0), offset_of(small_name(0)), FILE_BYTES), 0);
	for (int i = 0; i < 5 && least > 50; i++) {
		uint64_t before;

		drop_pages(BIG);
		before = requests();
		assert_int_equal(read_file(BIG, offset_of(BIG), BIG_BYTES), 0);
		least = min(least, requests() - before);
	}
	assert_in_range(least, BIG_BYTES >> 20, 50);
	assert_int_equal(unmount(COMMAND_UNMOUNT), 0);
	daemon_ended();
}

/* What nothing of EROFS asks for: between image and volume, over the edge, past the end. */
static void reads_of_the_device(void **state)
{
	char path[64];
	static _Alignas(4096) unsigned char bytes[8192];
	static const unsigned char zero[4096];
	uint64_t edge = image.info.volume_offset;
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
		(off_t)(edge + image.info.extents * image.info.extent_bytes));
	close(fd);
	check_all();
	assert_int_equal(unmount(COMMAND_UNMOUNT), 0);
	daemon_ended();
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
	assert_int_equal(request_read_pages(4096), 256);
	assert_int_equal(request_read_pages(65536), 16); /* 1 MiB as well */
	assert_int_equal(request_read_pages(4 << 20), 1);
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
	assert_true(ends_within(pid, PATIENCE, &status));
	assert_int_equal(status, 0);
}

static void probe_leaves_nothing(void **state)
{
	struct err e = ERR_INIT;
	char command[128];

	NEED_KERNEL();
	assert_int_equal(kernel_probe_loop(&e), 0);
	assert_int_equal(kernel_probe(dir, &e), 0);
	snprintf(command, sizeof(command), "test -z \"$(ls %s | grep probe)\"", dir);
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

	fixture_engine = &engine_loop;
	fixture_magic = 0xE0F5E1E2;
	fixture_error = EIO;
	return cmocka_run_group_tests(tests, setup_group, teardown_group);
}
