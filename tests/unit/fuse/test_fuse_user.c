/*
 * The fuse engine as an ordinary user, through fusermount3. The process becomes user 65534 in a
 * mount namespace of its own, where /dev/fuse is as udev makes it. Skipped, saying so, where that
 * cannot be had.
 */
#include "tests/unit/fuse/mount_fuse_tests.h"

#include <grp.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/sysmacros.h>

#define NOBODY 65534

/* Root's part: nothing of it is left when the process ends. */
static const char *open_device_to_all(void)
{
	char node[] = "/tmp/granary-fuse-XXXXXX";
	int fd;

	if (unshare(CLONE_NEWNS) != 0 || mount(NULL, "/", NULL, MS_PRIVATE | MS_REC, NULL) != 0)
		return "skipped: no mount namespace";
	fd = mkstemp(node);
	close(fd);
	unlink(node);
	if (mknod(node, S_IFCHR | 0666, makedev(10, 229)) != 0 || chmod(node, 0666) != 0 ||
		mount(node, "/dev/fuse", NULL, MS_BIND, NULL) != 0) {
		unlink(node);
		return "skipped: no device node can be made";
	}
	unlink(node);
	return NULL;
}

static const char *become_nobody(void)
{
	const char *why = open_device_to_all();

	if (why)
		return why;
	if (setgroups(0, NULL) != 0 || setresgid(NOBODY, NOBODY, NOBODY) != 0 ||
		setresuid(NOBODY, NOBODY, NOBODY) != 0)
		return "skipped: cannot become another user";
	prctl(PR_SET_DUMPABLE, 1); /* its /proc belongs to it again */
	return NULL;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		MOUNT_FUSE_TESTS,
	};

	if (geteuid() == 0)
		why_not = become_nobody();
	fixture_engine = &engine_fuse;
	fixture_magic = 0x65735546;
	fixture_error = ESTALE;
	fixture_user = true;
	return cmocka_run_group_tests(tests, setup_group, teardown_group);
}
