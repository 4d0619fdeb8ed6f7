/* The fault plane: its line, its decisions, and a disk under it. */
#include "tests/debug/faults.h"
#include "base/cleanup.h"
#include "tests/debug/tier_fault.h"
#include "tiers/disk.h"

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <sys/resource.h>
#include <sys/statfs.h>
#include <sys/wait.h>
#include <unistd.h>

static void refuses_lines(void **state)
{
	static const char *const bad[] = { "eio", "tier.eio", "tier.eio=", "tier.eio=x",
		"tier.eio=2", "tier.eio=-1", "tier.eio=nan", "tier.what=1", "what.eio=1",
		"tier.eio=0.1@what", "tier.eio=0.1@get", "net.eio=1", "ufs.flip=1", "tier.eio=0.1/",
		"tier.eio=0.1#", "tier.eio=0.1,tier.flip=1", "seed=", "seed=x", "=1", ".=1" };
	struct faults *faults = faults_new();

	(void)state;
	assert_non_null(faults);
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
		struct err e = ERR_INIT;

		if (faults_set(faults, bad[i], &e) != -EINVAL)
			fail_msg("accepted: %s", bad[i]);
		assert_non_null(strstr(e.text, "tier.eio=0.01@read,data"));
	}
	faults_free(faults);
}

static void keeps_its_line(void **state)
{
	const char *line = "seed=3 tier.eio=1#2@read,data,/a ufs.stall=1";
	struct faults *faults = faults_new();
	_cleanup_(buf_release) struct buf text = BUF_INIT(4096);
	_cleanup_(buf_release) struct buf times = BUF_INIT(4096);
	bool stall;

	(void)state;
	assert_int_equal(faults_set(faults, line, NULL), 0);
	/* Only reads of data under /a, and two of them. */
	for (unsigned int i = 0; i < 4; i++) {
		unsigned int about = FAULT_READ | FAULT_DATA;

		assert_int_equal(faults_draw(faults, FAULT_TIER, about, "/b/c").kind, FAULT_NONE);
		assert_int_equal(faults_draw(faults, FAULT_UFS, FAULT_GET, NULL).kind, FAULT_NONE);
		assert_int_equal(
			faults_draw(faults, FAULT_TIER, FAULT_WRITE | FAULT_DATA, "/x/a").kind,
			FAULT_NONE);
		assert_int_equal(
			faults_draw(faults, FAULT_TIER, FAULT_READ | FAULT_TABLE, "/x/a").kind,
			FAULT_NONE);
		assert_int_equal(faults_draw(faults, FAULT_TIER, about, "/x/a").kind,
			i < 2 ? FAULT_EIO : FAULT_NONE);
	}
	assert_int_equal(faults_draw_wait(faults, FAULT_UFS, FAULT_LIST, NULL, &stall), 0);
	assert_true(stall);
	assert_int_equal(faults_text(faults, &text, &times), 0);
	assert_string_equal(buf_str(&text), line);
	assert_string_equal(buf_str(&times), "tier.eio=2 ufs.stall=1");
	assert_int_equal(faults_set(faults, "", NULL), 0);
	assert_int_equal(
		faults_draw(faults, FAULT_TIER, FAULT_READ | FAULT_DATA, "/a").kind, FAULT_NONE);
	faults_free(faults);
}

/* The bits of 4,000 decisions at a rate of a quarter. */
static void decide(struct faults *faults, const char *line, uint8_t out[4000])
{
	assert_int_equal(faults_set(faults, line, NULL), 0);
	for (unsigned int i = 0; i < 4000; i++)
		out[i] = (uint8_t)faults_draw(faults, FAULT_TIER, FAULT_READ | FAULT_DATA, NULL)
				 .kind;
}

static void decides_by_seed(void **state)
{
	struct faults *faults = faults_new();
	uint8_t first[4000];
	uint8_t again[4000];
	uint8_t other[4000];
	unsigned int n = 0;

	(void)state;
	decide(faults, "seed=1 tier.eio=0.25", first);
	decide(faults, "seed=1 tier.eio=0.25", again);
	decide(faults, "seed=2 tier.eio=0.25", other);
	for (unsigned int i = 0; i < 4000; i++)
		n += first[i] == FAULT_EIO;
	assert_in_range(n, 850, 1150);
	assert_memory_equal(first, again, sizeof(first));
	assert_memory_not_equal(first, other, sizeof(first));
	faults_free(faults);
}

/* A file named as a chunk's is, of a chunk file's length. */
static int open_chunk(const char *dir, char path[256])
{
	int fd;

	(void)snprintf(path, 256, "%s/chk", dir);
	assert_int_equal(disk_mkdir(AT_FDCWD, path, 0700), 0);
	(void)snprintf(path, 256, "%s/chk/file", dir);
	fd = disk_open(AT_FDCWD, path, O_RDWR | O_CREAT, 0600);
	assert_true(fd >= 0);
	assert_int_equal(disk_truncate(fd, (16u << 20) + 4096 + 49152), 0);
	return fd;
}

static void set(const char *line)
{
	assert_int_equal(faults_set(faults_global(), line, NULL), 0);
}

static unsigned int bits_of_difference(const uint8_t *a, const uint8_t *b, size_t len)
{
	unsigned int n = 0;

	for (size_t i = 0; i < len; i++)
		n += (unsigned int)__builtin_popcount(a[i] ^ b[i]);
	return n;
}

/* A file of another user has access times. */
static void opens_others(void **state)
{
	char path[] = "/tmp/granary-disk-XXXXXX";
	int fd = mkstemp(path);
	int status = 0;
	pid_t pid;

	(void)state;
	assert_true(fd >= 0 && fchmod(fd, 0644) == 0);
	(void)close(fd);
	fd = disk_open(AT_FDCWD, path, O_RDONLY, 0);
	assert_true(fd >= 0 && fcntl(fd, F_GETFL) & O_NOATIME);
	disk_close(fd);
	pid = geteuid() == 0 ? fork() : 0;
	if (pid == 0 && geteuid() == 0) {
		fd = setresuid(65534, 65534, 65534) == 0 ? disk_open(AT_FDCWD, path, O_RDONLY, 0)
							 : -1;
		_exit(fd >= 0 && !(fcntl(fd, F_GETFL) & O_NOATIME) ? 0 : 1);
	}
	if (pid > 0)
		assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	(void)unlink(path);
}

static void disk_fails(void **state)
{
	char dir[] = "/var/tmp/granary-test-XXXXXX";
	uint8_t data[8192];
	uint8_t back[8192];
	char path[256];
	struct stat st;
	int fd;

	(void)state;
	assert_non_null(mkdtemp(dir));
	memset(data, 0x5a, sizeof(data));
	fd = open_chunk(dir, path);
	assert_int_equal(disk_pwrite(fd, data, sizeof(data), 0), 0);

	set("tier.eio=1@read,table tier.enospc=1@write tier.erofs=1@remove");
	assert_int_equal(disk_pread(fd, back, sizeof(back), 0), 0);
	assert_memory_equal(data, back, sizeof(data));
	assert_int_equal(disk_pread(fd, back, 16, 16u << 20), -EIO);
	assert_int_equal(disk_pwrite(fd, data, 1, 0), -ENOSPC);
	assert_int_equal(disk_unlink(AT_FDCWD, path, 0), -EROFS);
	assert_int_equal(disk_fstat(fd, &st), 0);

	set("seed=5 tier.flip=1@read,data");
	assert_int_equal(disk_pread(fd, back, sizeof(back), 0), 0);
	assert_int_equal(bits_of_difference(data, back, sizeof(data)), 1);

	/* Short transfers are gone on with. */
	set("seed=6 tier.short=1@data");
	memset(data, 0x77, sizeof(data));
	assert_int_equal(disk_pwrite(fd, data, sizeof(data), 0), 0);
	assert_int_equal(disk_pread(fd, back, sizeof(back), 0), 0);
	assert_memory_equal(data, back, sizeof(data));

	set("seed=7 tier.flip=1#1@write,data");
	assert_int_equal(disk_pwrite(fd, data, sizeof(data), 0), 0);
	assert_int_equal(disk_pread(fd, back, sizeof(back), 0), 0);
	assert_int_equal(bits_of_difference(data, back, sizeof(data)), 1);

	set("tier.torn=1@write");
	assert_int_equal(disk_pwrite(fd, data, sizeof(data), 0), -EIO);
	set("tier.eio=1@/elsewhere");
	assert_int_equal(disk_pread(fd, back, sizeof(back), 0), 0);

	set("");
	disk_close(fd);
	assert_int_equal(disk_unlink(AT_FDCWD, path, 0), 0);
	(void)snprintf(path, sizeof(path), "%s/chk", dir);
	assert_int_equal(disk_unlink(AT_FDCWD, path, AT_REMOVEDIR), 0);
	assert_int_equal(disk_unlink(AT_FDCWD, dir, AT_REMOVEDIR), 0);
}

/* Blocks that this thread had the kernel read from disks. */
static long blocks_read(void)
{
	struct rusage usage;

	assert_int_equal(getrusage(RUSAGE_THREAD, &usage), 0);
	return usage.ru_inblock;
}

/* With RWF_NOWAIT alone the kernel would begin to read. */
static void now_begins_no_read(void **state)
{
	static uint8_t data[256 << 10];
	char path[] = "/var/tmp/granary-disk-XXXXXX";
	const struct disk_ops *before = disk_use(&disk_kernel);
	int fd = mkstemp(path);
	struct statfs fs;
	long began;
	int r = -EAGAIN;

	(void)state;
	assert_true(fd >= 0);
	memset(data, 7, sizeof(data));
	assert_int_equal(disk_pwrite(fd, data, sizeof(data), 0), 0);
	assert_int_equal(disk_sync(fd), 0);
	assert_int_equal(fstatfs(fd, &fs), 0);
	if (fs.f_type == TMPFS_MAGIC) /* nothing leaves memory there */
		skip();
	assert_int_equal(disk_pread_now(fd, data, 1, 0), 0);
	assert_int_equal(posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED), 0);
	began = blocks_read();
	assert_int_equal(disk_pread_now(fd, data, 65536, 12345), -EAGAIN);
	assert_int_equal(blocks_read(), began);
	for (int i = 0; i < 10 && r == -EAGAIN; i++) { /* the kernel may have dropped it again */
		assert_int_equal(disk_pread(fd, data, sizeof(data), 0), 0);
		memset(data, 0, sizeof(data));
		r = disk_pread_now(fd, data, 65536, 12345);
	}
	assert_int_equal(r, 0);
	assert_true(data[0] == 7 && data[65535] == 7 && data[65536] == 0);
	disk_close(fd);
	assert_int_equal(unlink(path), 0);
	(void)disk_use(before); /* its own */
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(refuses_lines),
		cmocka_unit_test(keeps_its_line),
		cmocka_unit_test(decides_by_seed),
		cmocka_unit_test(opens_others),
		cmocka_unit_test(disk_fails),
		cmocka_unit_test(now_begins_no_read),
	};

	tier_fault_install();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
