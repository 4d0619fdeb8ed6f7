/*
 * What is unmounted is what lies there: neither what a link leads to, nor what covers it. Needs root; skipped without, and
 * says so.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <unistd.h>
#include "base/detach.h"
#include "base/mount_table.h"

/* detach_here() in a process whose openat2(2) fails with `error`, as it does when others change the path meanwhile. */
static int detach_refused(const char *point, int error)
{
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_openat2, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | (unsigned int)error),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	const struct sock_fprog program = { .len = ARRAY_SIZE(code), .filter = code };
	pid_t pid = fork();
	int status = 0;

	if (pid == 0) {
		if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
			prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0)
			_exit(255);
		_exit(-detach_here(point, 0, 0));
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	return WEXITSTATUS(status);
}

static void no_link_is_followed(void **state)
{
	char made[] = "/tmp/granary-detach-XXXXXX";
	char root[PATH_MAX];
	char real[PATH_MAX + 16];
	char link[PATH_MAX + 16];
	char point[PATH_MAX + 32];
	char through[PATH_MAX + 32];
	struct mount_entry entry;
	struct err e = ERR_INIT;

	(void)state;
	assert_non_null(mkdtemp(made));
	assert_non_null(realpath(made, root));
	assert_true(snprintf(real, sizeof(real), "%s/real", root) > 0);
	assert_true(snprintf(link, sizeof(link), "%s/link", root) > 0);
	assert_true(snprintf(point, sizeof(point), "%s/point", real) > 0);
	assert_true(snprintf(through, sizeof(through), "%s/point", link) > 0);
	assert_int_equal(mkdir(real, 0700), 0);
	assert_int_equal(mkdir(point, 0700), 0);
	assert_int_equal(symlink(real, link), 0);
	if (mount("none", point, "tmpfs", 0, NULL) != 0) {
		print_message("no right to mount here: not tested\n");
	} else {
		assert_int_equal(detach_mount(through, true, &e), -ELOOP);
		assert_int_equal(detach_refused(through, ENOENT), ENOENT);
		assert_int_equal(detach_refused(through, ENOTDIR), ENOTDIR);
		assert_int_equal(detach_refused(through, EPERM), EACCES);
		assert_int_equal(mount_table_find(point, &entry), 0);
		assert_int_equal(detach_mount(point, false, &e), 0);
		assert_int_equal(mount_table_find(point, &entry), -ENOENT);
		assert_int_equal(detach_mount(point, false, &e), 0); /* nothing there any more */
	}
	assert_int_equal(unlink(link), 0);
	assert_int_equal(rmdir(point), 0);
	assert_int_equal(rmdir(real), 0);
	assert_int_equal(rmdir(root), 0);
}

/* detach_here() of that mount only, in a process of its own. */
static int detach_exact(const char *point, int mount_id)
{
	pid_t pid = fork();
	int status = 0;

	if (pid == 0)
		_exit(-detach_here(point, 0, mount_id));
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	return WEXITSTATUS(status);
}

static dev_t dev_of(const struct mount_entry *entry)
{
	return makedev(entry->dev_major, entry->dev_minor);
}

/* Another mount at `over` covers that at `point`: it has a line, and stays. */
static void check_covered(const char *point, const struct mount_entry *entry, const char *over)
{
	char wanted[2 * PATH_MAX + 128];
	struct mount_entry top;
	struct err e = ERR_INIT;

	assert_int_equal(mount_table_find_cover(point, dev_of(entry), &top), -ENOENT);
	assert_int_equal(mount("cover", over, "tmpfs", 0, NULL), 0);
	assert_int_equal(mount_table_find_cover(point, dev_of(entry), &top), 0);
	assert_int_equal(mount_table_find_cover(point, 0, &top), -ENOENT); /* neither is ours */
	assert_int_equal(detach_covered(point, &top, &e), -EBUSY);
	(void)snprintf(wanted, sizeof(wanted),
		"%s is covered by another mount (type tmpfs, source cover): unmount that first "
		"with `umount %s`",
		point, over);
	assert_string_equal(e.text, wanted);
	assert_int_equal(
		detach_exact(point, entry->id), strcmp(point, over) == 0 ? ESTALE : ENOENT);
	assert_int_equal(mount_table_find_cover(point, dev_of(entry), &top), 0); /* both stay */
	assert_int_equal(detach_mount(over, false, &e), 0);
	assert_int_equal(mount_table_find_cover(point, dev_of(entry), &top), -ENOENT);
}

static void only_the_mount_itself(void **state)
{
	char made[] = "/tmp/granary-detach-XXXXXX";
	char root[PATH_MAX];
	char above[PATH_MAX + 16];
	char point[PATH_MAX + 32];
	struct mount_entry entry;

	(void)state;
	assert_non_null(mkdtemp(made));
	assert_non_null(realpath(made, root));
	assert_true(snprintf(above, sizeof(above), "%s/above", root) > 0);
	assert_true(snprintf(point, sizeof(point), "%s/point", above) > 0);
	assert_int_equal(mkdir(above, 0700), 0);
	assert_int_equal(mkdir(point, 0700), 0);
	if (mount("none", point, "tmpfs", 0, NULL) != 0) {
		print_message("no right to mount here: not tested\n");
	} else {
		assert_int_equal(mount_table_find(point, &entry), 0);
		assert_int_equal(detach_exact(point, entry.id + 1), ESTALE);
		check_covered(point, &entry, point);
		check_covered(point, &entry, above);
		assert_int_equal(detach_exact(point, entry.id), 0);
		assert_int_equal(mount_table_find(point, &entry), -ENOENT);
	}
	assert_int_equal(rmdir(point), 0);
	assert_int_equal(rmdir(above), 0);
	assert_int_equal(rmdir(root), 0);
}

static void what_fusermount_prints(void **state)
{
	char said[] = "fusermount3: failed to unmount /x: Device or resource busy\nmore";

	(void)state;
	assert_int_equal(detach_errno(said), -EBUSY);
	assert_string_equal(detach_words(said), "failed to unmount /x: Device or resource busy");
	assert_int_equal(detach_errno("entry for /x not found in /etc/mtab"), -EINVAL);
	assert_int_equal(detach_errno("failed to unmount /x: Operation not permitted"), -EPERM);
	assert_int_equal(detach_errno("else"), -EIO);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(no_link_is_followed),
		cmocka_unit_test(only_the_mount_itself),
		cmocka_unit_test(what_fusermount_prints),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
