/* Becoming user 65534 for good, where /dev/fuse may be opened by all, as udev makes it. */
#pragma once

#include <grp.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#define NOBODY 65534

/* Root's part: nothing of it is left when the process ends. */
static inline const char *open_device_to_all(void)
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

/* NULL, or why it cannot be. */
static inline const char *become_nobody(void)
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
