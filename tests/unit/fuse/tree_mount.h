/*
 * An image of odd names, many names and large files, mounted by a real kernel, and processes that
 * read it.
 *
 * The mount is attached nowhere; it is reached through its descriptor and ends with it. Its daemon
 * is another process: who waits for an answer must not be who gives it.
 */
#pragma once

#include "tests/unit/fuse/synthetic.h"
#include "catalog/catalog.h"
#include "mount/kernel/kernel.h"
#include "fuse/session/session.h"
#include "fuse/tree/tree_image.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/wait.h>

#define SMALL     500u
#define MANY      100000u
#define DEPTH     100u
#define BIG_BYTES ((30ull << 20) + 3)

struct tree_mount {
	char dir[64];
	char root[64];       /* path of the mount */
	const char *why_not; /* the tests cannot run; or NULL */
	struct image_info image;
	char image_path[128];
	struct synthetic_control *control;
	int dev_fd;
	int mount_fd;
	struct slots *slots; /* the test's view of the daemon's */
	pid_t daemon_pid;
};

extern struct tree_mount tm;

#define may_mount()                                        \
	do {                                               \
		if (tm.why_not) {                          \
			print_message("%s\n", tm.why_not); \
			skip();                            \
		}                                          \
	} while (0)

/* ---- the daemon ------------------------------------------------------------------------------ */

extern _Atomic bool tm_gone;

void tm_on_gone(void *arg);
void tm_daemon_start(void);
void tm_daemon_kill(void);
struct session_counters *tm_counters(void);
uint64_t tm_requests(void);

/* ---- set-up ---------------------------------------------------------------------------------- */

int tm_setup_group(void **state);
int tm_teardown_group(void **state);
int tm_setup(void **state);
int tm_setup_little_priming(void **state);
int tm_teardown(void **state);

/* ---- readers --------------------------------------------------------------------------------- */

const char *tm_path(const char *path);
void tm_die(const char *what);

/* Runs `fn` in a process of its own. */
pid_t tm_start(int (*fn)(void *arg), void *arg);

void tm_run(int (*fn)(void *arg), void *arg);
void tm_check(const struct stat *st, uint64_t offset, size_t len, const unsigned char *got);
