/*
 * The supervisor: one per cache directory, parent of master, worker and one daemon per mount.
 *
 *	GET  /v1/status			all of it
 *	POST /v1/mounts			{"source", "mountpoint", ...} -> {"id", "socket", "notice"}: starts what it needs
 *	GET  /v1/mount?id=N		{"state", "text", "exit", "socket"}: how far that came
 *	POST /v1/mount?id=N		its failure was read; with &give_up=1: nobody waits for it any more, it is ended
 *	POST /v1/end			ends every mount, then everything
 *
 * It ends by itself when its last mount is gone. Mounts survive its death: daemons are not tied to
 * it, RUN/ID/state.json says who they are, and the next supervisor of the cache adopts them, with
 * the descriptors of the FUSE connection and the request slots, which it takes from the mount's
 * daemon.
 *
 * Threads: one loop (poll) changes things, under the lock; the admin server's threads read, and add
 * wishes, under the lock.
 */
#pragma once

#include <pthread.h>
#include "admin/admin.h"
#include "base/clock.h"
#include "base/list.h"
#include "ctl/cache_dir.h"
#include "base/child.h"

#define SUPERVISOR_MOUNTS  64u
#define SUPERVISOR_IDLE_NS (15 * CLOCK_SECOND) /* without a mount, or a failure nobody fetched */

struct supervisor_config {
	const char *cache;
	uint64_t capacity; /* of the tier; 0: the worker's choice */
	uint64_t memory;   /* of all daemons together */
	const char *log_level;
};

/*
 *	WAITING ──master and worker serve──► ACTIVE ──unmounted, or ended──► GONE
 *	   ├──given up──► GONE                  └──never came to serve──► FAILED
 *	   └──master or worker cannot start──► FAILED
 */
enum mount_state {
	MOUNT_WAITING, /* for master and worker */
	MOUNT_ACTIVE,  /* its daemon is started, and started again */
	MOUNT_FAILED,  /* never came to serve; kept until fetched */
	MOUNT_GONE,    /* unmounted: to be freed by the loop */
};

struct mount {
	struct list link;
	unsigned int id;
	enum mount_state state;
	struct child child;
	char *source;
	char *mountpoint;
	char socket[SOCKET_PATH_MAX];
	char run[SOCKET_PATH_MAX];
	int fuse_fd; /* its connection, or /dev/null until the daemon hands one over */
	int slots_fd;
	int adopted_fuse; /* the numbers of the two in a daemon that was adopted */
	int adopted_slots;
	int hand[2]; /* ours, the daemon's: SOCK_SEQPACKET, over which a connection that fusermount3
		      * made comes before READY; -1 once adopted */
	int exit_status; /* MOUNT_FAILED */
	struct err failure;
	uint64_t forget_ns; /* MOUNT_FAILED: freed then */
	bool point_taken;   /* something was mounted there before: not ours to take off */
	uint64_t token; /* of the request for it, which may come twice when its answer was lost */
	bool given_up;  /* whoever asked for it went away before it served */
};

struct supervisor {
	const struct supervisor_config *config;
	struct cache_dir cache;
	int lock_fd;
	char bin[PATH_MAX];
	pthread_mutex_t lock;
	struct child master;
	struct child worker;
	struct list mounts;
	unsigned int n_mounts;
	unsigned int next_id;
	int alive[2];   /* base/alive.h */
	int wake_fd;    /* eventfd: something was added */
	bool ending;    /* takes no more mounts */
	bool forced;    /* told to end: mounts are ended too */
	bool done;      /* everything has ended: the runtime directory may go */
	uint64_t saved; /* hash of what state.json holds */
	uint64_t idle_since_ns;
	uint64_t started_ns;
	struct admin_server *admin;
};

/* Runs until nothing is left to supervise. `ready_fd` as in base/ready.h. Returns the exit
 * status. */
int supervisor_run(const struct supervisor_config *config, int ready_fd);

/* ---- supervisor_state.c: what survives it ---------------------------------------------------- */

int supervisor_save(struct supervisor *s) __must_check;
/* Takes over what an earlier supervisor left running; nothing to take over is no error. */
void supervisor_adopt(struct supervisor *s);
json_t *supervisor_json_locked(struct supervisor *s);

/* ---- supervisor_memory.c: who has how much of it --------------------------------------------- */

uint64_t supervisor_memory_worker(const struct supervisor_config *config);
uint64_t supervisor_memory_master(const struct supervisor_config *config);
/* Of one more mount. -ENOSPC with a line. */
int supervisor_memory_mount(
	const struct supervisor *s, uint64_t *ret_bytes, struct err *e) __must_check;

/* ---- supervisor_mount.c: what is started, and how -------------------------------------------- */

int supervisor_plan_daemons(struct supervisor *s) __must_check;
/* `wish`: the body of POST /v1/mounts. */
int supervisor_add_locked(struct supervisor *s, const json_t *wish, struct mount **ret_mount,
	struct err *e) __must_check;
/* WAITING, without descriptors and command line. NULL without memory. */
struct mount *mount_new(
	struct supervisor *s, unsigned int id, const char *source, const char *mountpoint);
void mount_free(struct mount *mount); /* NULL is allowed */
/* Takes what the daemon handed over, if anything, to the place of fuse_fd: its number stays, as the
 * daemon's does. */
void mount_take_hand(struct mount *mount);
/* It died without unmounting: nothing of it may stay on its mount point. */
void mount_clear_point(struct mount *mount);
/* The one place where a state changes. */
void mount_set_state_locked(struct mount *mount, enum mount_state next);
