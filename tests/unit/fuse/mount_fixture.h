/*
 * A real mount of a made-up volume by a daemon that is a process of its own; the test holds its
 * descriptors, as the keeper does. main() says in mnt which engine mounts it.
 */
#pragma once

#include "tests/unit/fuse/synthetic.h"
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/mount.h>
#include <sys/pidfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include "base/crash_point.h"
#include "base/fd_pass.h"
#include "base/file.h"
#include "fuse/daemon/images.h"
#include "mount/kernel/kernel.h"
#include "fuse/daemon/mountpoint.h"
#include "fuse/engine/mounted.h"
#include "mount/mounter.h"
#include "keeper/points/mounter_peer.h"
#include "keeper/points/unmount_helper.h"

#define FILES      150u
#define FILE_BYTES 70001u
#define BIG_BYTES  (40u << 20)
#define BIG        "big"
#define STALL      "stall"
#define EXTENT     (16ull << 20)
#define LOCAL_MAX  8u /* devices at most */

enum command {
	COMMAND_NONE,
	COMMAND_UNMOUNT, /* these: by the test itself, or its keeper */
	COMMAND_LAZY,
	COMMAND_FORCE,
	COMMAND_SWITCH, /* to the devices of shared->local */
	COMMAND_LOOK,   /* shared->supers */
};

/* What the keeper says of its mount. */
struct kept {
	_Atomic int point; /* enum mounter_point; written last */
	unsigned int points;
	char text[16];       /* likewise, for people */
	_Atomic int unmount; /* enum command, on request; COMMAND_NONE: done */
	pid_t daemon;        /* that serves it then */
	int result;
	_Atomic bool end;
	_Atomic bool drop; /* the connection */
	_Atomic bool dropped;
};

/* Shared by the test, its keeper and its daemons. */
struct shared {
	struct kept kept;
	_Atomic int command;
	_Atomic int result; /* 1: none yet */
	_Atomic bool serving;
	_Atomic bool hesitates; /* a daemon stops before it is settled */
	_Atomic bool mounted;   /* and got so far */
	_Atomic uint32_t local; /* bits: devices that are files, made by local_files() */
	_Atomic bool directio;
	struct mounted_superblocks supers; /* after the last command */
	char crash_at[32]; /* the crash point at which the daemon dies; "": at none */
	char line[ERR_TEXT_MAX];
};

struct mount_fixture {
	/* Said by main(). */
	const char *why_not; /* the tests cannot run; or NULL */
	const struct engine *engine;
	long magic; /* f_type of what the mount point shows */
	int error;  /* of a read of what the origin changed */
	bool user;  /* mounts through fusermount3 */
	bool kept;  /* the mount has a keeper */

	char dir[64];
	char point[96];
	char image_path[192];
	struct images_result image;
	struct synthetic_control *control;
	struct shared *shared;
	int dev_fd;
	int slots_fd;
	pid_t daemon_pid;
	struct {
		pid_t pid;
		int wake_fd;
		int back[2]; /* for the connection: the test's, the keeper's */
	} keeper;
};

extern struct mount_fixture mnt;

/* ---- the daemon ------------------------------------------------------------------------------ */

/* The file that stands for the device of an extent. */
void mnt_local_path(uint32_t extent, char path[128]);

/* The life of a daemon, in a process of its own. */
_Noreturn void mnt_daemon_main(void);

/* ---- who keeps the mount --------------------------------------------------------------------- */

/* Nobody keeps the connection any more. */
void mnt_let_go(void);

/* Until it serves, or until it is mounted if shared->hesitates. */
void mnt_daemon_start(void);

/* Waits for the daemon, which must end with status 0. */
void mnt_daemon_ended(void);

/* By SIGKILL; its readers stay. */
void mnt_daemon_kill(void);

/* As a person does it, without the daemon's knowledge. */
int mnt_unmount_by_hand(bool lazy);

/* A command for the daemon, or the keeper; returns its result. */
int mnt_do(enum command command);

/* Requests of the kernel since the mount began. */
uint64_t mnt_requests(void);

/* Requests that are not answered yet. */
uint32_t mnt_held(void);

/* ---- readers --------------------------------------------------------------------------------- */

/* A file below the mount point; storage of one call. */
const char *mnt_path(const char *name);

/* Of a file in the volume. */
uint64_t mnt_offset_of(const char *name);

/* Of FILES files; storage of one call. */
const char *mnt_small_name(uint32_t n);

/* Reads a whole file and compares; 0, a positive errno, or -1 for wrong bytes. */
int mnt_read_file(const char *name, uint64_t offset, size_t size);

/* Reads every file, and compares. */
void mnt_check_all(void);

/* The kernel forgets what it has of a file. */
void mnt_drop_pages(const char *name);

/* A child that reads one page of the stalled file; its exit status: 0 or the errno. */
pid_t mnt_reader_of_stall(uint32_t page);

/* ---- set-up ---------------------------------------------------------------------------------- */

int mnt_setup_group(void **state);
int mnt_teardown_group(void **state);

/* Mounted by a daemon that serves. */
int mnt_setup(void **state);

int mnt_teardown(void **state);

#define NEED_KERNEL()                                       \
	do {                                                \
		(void)state;                                \
		if (mnt.why_not) {                          \
			print_message("%s\n", mnt.why_not); \
			skip();                             \
		}                                           \
	} while (0)
