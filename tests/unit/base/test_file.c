/* Files: atomic writes by one and by many, whole reads, exact transfers. */
#include "base/file.h"
#include "base/cleanup.h"
#include "base/err.h"

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define WRITERS 6
#define ROUNDS  20
#define BYTES   20000

static char dir[] = "/tmp/granary-file-XXXXXX";

/* The order of the calls that make a file durable: 'f' fsync of a file, 'd' of a directory, 'r' rename. */
static char calls[8];
static size_t n_calls;
static bool recording;

static void record(char call)
{
	if (recording && n_calls < sizeof(calls) - 1)
		calls[n_calls++] = call;
}

/* In the place of the C library's. */
int fsync(int fd)
{
	struct stat st;

	assert_int_equal(fstat(fd, &st), 0);
	record(S_ISDIR(st.st_mode) ? 'd' : 'f');
	return (int)syscall(SYS_fsync, fd);
}

int rename(const char *from, const char *to)
{
	record('r');
	return renameat(AT_FDCWD, from, AT_FDCWD, to);
}

static const char *in_dir(const char *name)
{
	static char path[128];

	(void)snprintf(path, sizeof(path), "%s/%s", dir, name);
	return path;
}

static int make_dir(void **state)
{
	(void)state;
	return mkdtemp(dir) ? 0 : -1;
}

static int remove_dir(void **state)
{
	(void)state;
	return rmdir(dir);
}

static void a_write_replaces_all(void **state)
{
	_cleanup_(buf_release) struct buf b = BUF_INIT(64);
	struct stat st;

	(void)state;
	assert_int_equal(file_write_atomic(in_dir("f"), "a longer text", 13, 0640), 0);
	assert_int_equal(file_write_atomic(in_dir("f"), "short", 5, 0600), 0);
	assert_int_equal(file_read_all(in_dir("f"), &b), 0);
	assert_string_equal(buf_str(&b), "short");
	assert_int_equal(stat(in_dir("f"), &st), 0);
	assert_int_equal(st.st_mode & 0777, 0600);
	assert_int_equal(access(in_dir("f.new"), F_OK), -1);
	assert_int_equal(unlink(in_dir("f")), 0);
	assert_int_equal(file_write_atomic(in_dir("none/f"), "x", 1, 0600), -ENOENT);
}

/* After a power cut the name leads to the old bytes or to the new ones. */
static void bytes_are_synced_before_the_name(void **state)
{
	(void)state;
	recording = true;
	assert_int_equal(file_write_atomic(in_dir("durable"), "bytes", 5, 0600), 0);
	recording = false;
	assert_string_equal(calls, "frd");
}

/* What a killed writer left is no part of what the next one writes. */
static void a_leftover_is_written_over(void **state)
{
	_cleanup_(buf_release) struct buf b = BUF_INIT(64);
	_cleanup_close_ int fd = open(in_dir("f.new"), O_WRONLY | O_CREAT, 0600);

	(void)state;
	assert_int_equal(write(fd, "of somebody who died", 20), 20);
	assert_int_equal(file_write_atomic(in_dir("f"), "new", 3, 0600), 0);
	assert_int_equal(file_read_all(in_dir("f"), &b), 0);
	assert_string_equal(buf_str(&b), "new");
	assert_int_equal(unlink(in_dir("f")), 0);
}

static void write_often(char letter)
{
	char text[BYTES];

	memset(text, letter, sizeof(text));
	for (int i = 0; i < ROUNDS; i++)
		if (file_write_atomic(in_dir("shared"), text, sizeof(text), 0600) < 0)
			_exit(1);
	_exit(0);
}

/* Whoever looks sees one writer's text, whole. */
static void check_shared(void)
{
	_cleanup_(buf_release) struct buf b = BUF_INIT(BYTES);
	int r = file_read_all(in_dir("shared"), &b);

	if (r == -ENOENT)
		return; /* nobody was done yet */
	assert_int_equal(r, 0);
	assert_int_equal(b.len, BYTES);
	for (size_t i = 1; i < b.len; i++)
		assert_int_equal(b.data[i], b.data[0]);
}

static void many_writers_do_not_mix(void **state)
{
	unsigned int ended = 0;

	(void)state;
	for (int i = 0; i < WRITERS; i++)
		if (fork() == 0)
			write_often((char)('a' + i));
	while (ended < WRITERS) {
		int status;
		pid_t pid = waitpid(-1, &status, WNOHANG);

		check_shared();
		if (pid == 0)
			continue;
		assert_true(pid > 0);
		assert_true(WIFEXITED(status));
		assert_int_equal(WEXITSTATUS(status), 0);
		ended++;
	}
	assert_int_equal(access(in_dir("shared.new"), F_OK), -1);
	assert_int_equal(unlink(in_dir("shared")), 0);
}

static void reads_are_bounded_and_exact(void **state)
{
	_cleanup_(buf_release) struct buf b = BUF_INIT(4);
	_cleanup_close_ int fd = -1;
	char out[8];

	(void)state;
	assert_int_equal(file_write_atomic(in_dir("f"), "12345", 5, 0600), 0);
	assert_int_equal(file_read_all(in_dir("f"), &b), -ENOBUFS);
	fd = open(in_dir("f"), O_RDWR);
	assert_int_equal(file_pread_exact(fd, out, 3, 2), 0);
	assert_memory_equal(out, "345", 3);
	assert_int_equal(file_pread_exact(fd, out, 4, 2), -ENODATA);
	assert_int_equal(file_pwrite_exact(fd, "xy", 2, 4), 0);
	assert_int_equal(file_pread_exact(fd, out, 6, 0), 0);
	assert_memory_equal(out, "1234xy", 6);
	assert_int_equal(unlink(in_dir("f")), 0);
}

static void parents_are_made(void **state)
{
	struct stat st;

	(void)state;
	assert_int_equal(file_mkdirs(in_dir("a/b/c"), 0700), 0);
	assert_int_equal(file_mkdirs(in_dir("a/b/c"), 0700), 0);
	assert_int_equal(stat(in_dir("a/b/c"), &st), 0);
	assert_true(S_ISDIR(st.st_mode));
	assert_int_equal(file_sync_dir(in_dir("a/b")), 0);
	assert_int_equal(file_sync_parent(in_dir("a/b/none")), 0);
	assert_int_equal(file_sync_parent(in_dir("a/none/f")), -ENOENT);
	assert_int_equal(rmdir(in_dir("a/b/c")), 0);
	assert_int_equal(rmdir(in_dir("a/b")), 0);
	assert_int_equal(rmdir(in_dir("a")), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_write_replaces_all),
		cmocka_unit_test(bytes_are_synced_before_the_name),
		cmocka_unit_test(a_leftover_is_written_over),
		cmocka_unit_test(many_writers_do_not_mix),
		cmocka_unit_test(reads_are_bounded_and_exact),
		cmocka_unit_test(parents_are_made),
	};

	return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
