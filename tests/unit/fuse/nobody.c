#include "tests/unit/fuse/nobody.h"

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

const char *become_nobody(void)
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
