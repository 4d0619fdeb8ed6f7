/*
 * The supervisor: one per cache directory, parent of master, worker and keeper. Mounts are the
 * keeper's (fuse/keeper.h); the supervisor sees to it that there is all that a mount needs, and
 * ends it when there is none.
 *
 *	GET  /v1/status			all of it, the keeper's mounts included
 *	POST /v1/mounts			{"source", "mountpoint", ...} -> {"id", "socket",
 *					"notice"}: starts what it needs
 *	GET  /v1/mount?id=N		{"state", "text", "exit", "socket"}: how far that came
 *	POST /v1/mount?id=N		its failure was read; with &give_up=1: nobody waits for it
 *					any more, it is ended
 *	POST /v1/end			ends every mount, then everything
 *
 * It ends by itself when the keeper has no mount any more. Mounts survive its death: daemons are
 * not tied to it, RUN/ID/state.json says who they are, and the next supervisor of the cache adopts
 * them.
 *
 * Threads: one loop (poll) changes things, under the lock; the admin server's threads read, and add
 * requests, under the lock, and pass on to the keeper what is the keeper's, without it.
 */
#pragma once

#include <pthread.h>
#include "admin/admin.h"
#include "base/child.h"
#include "base/clock.h"
#include "base/list.h"
#include "base/watchdog.h"
#include "ctl/cache_dir.h"

#define SUPERVISOR_MOUNTS  1024u
#define SUPERVISOR_IDLE_NS (15 * CLOCK_SECOND) /* without a mount, or a failure nobody fetched */

struct supervisor_config {
	const char *cache;
	uint64_t capacity;      /* of the tier; 0: the worker's choice */
	uint64_t memory;        /* of all daemons together */
	uint64_t dead_after_ns; /* the keeper's; 0: its choice */
	const char *log_level;
	uint64_t idle_ns; /* until it ends without a mount; 0: SUPERVISOR_IDLE_NS */
	bool early;       /* starts master and worker before the first mount is requested */
};

/*
 * All daemons start at once. The keeper gets a request as soon as it serves itself: the mount's daemon starts next to master
 * and worker, and waits for the master.
 *
 *	WAITING ──keeper serves, master and worker start or serve──► PASSED ──both serve──► gone
 *	   ├──given up──► gone                                         ├──given up, or the keeper ended──► gone
 *	   └──a daemon cannot start, or the keeper refuses──► FAILED ◄─┘ (the keeper ends the mount)
 */
enum mount_request_state {
	MOUNT_REQUEST_WAITING,
	MOUNT_REQUEST_PASSED, /* the keeper's, which says how far it came, but not ready yet */
	MOUNT_REQUEST_FAILED, /* kept until fetched */
};

/* A mount that the keeper does not know yet, or that is not ready before master and worker serve. */
struct mount_request {
	struct list link;
	unsigned int id;
	enum mount_request_state state;
	json_t *body;           /* owned */
	const char *source;     /* in body */
	const char *mountpoint; /* likewise */
	uint64_t token;  /* of the request for it, which may come twice when its answer was lost */
	bool given_up;   /* whoever asked for it went away */
	int exit_status; /* FAILED */
	struct err failure;
	uint64_t forget_ns; /* FAILED: freed then */
};

struct supervisor {
	const struct supervisor_config *config;
	struct cache_dir cache;
	int lock_fd;
	char bin[PATH_MAX];
	pthread_mutex_t lock;
	struct child master;
	struct child worker;
	struct child keeper;
	struct list requests;
	unsigned int n_requests;
	unsigned int next_id;
	int alive[2]; /* base/alive.h */
	int wake_fd;  /* eventfd: something was added */
	bool ending;  /* takes no more mounts */
	bool forced;  /* told to end: mounts are ended too */
	bool done;    /* everything has ended: the runtime directory may go */
	bool left;    /* a keeper died, and nobody has started the next one */
	bool stays;   /* the keeper is not ours to end: it goes on without mounts */
	/* Requests passed to a keeper of this supervisor that may have become mounts; at least 1 with a recovered keeper. */
	unsigned int given;
	unsigned int kept; /* mounts of a keeper that stays, as last heard */
	uint64_t asked_ns; /* then */
	uint64_t retry_ns; /* the keeper is asked again then; 0: it was not asked in vain */
	uint64_t saved;    /* hash of what state.json holds */
	uint64_t idle_since_ns;
	uint64_t started_ns;
	struct admin_server *admin;
	struct watchdog watchdog; /* beats of daemons */
};

/* Runs until nothing is left to supervise. `ready_fd` as in base/ready.h. Returns the exit
 * status. */
int supervisor_run(const struct supervisor_config *config, int ready_fd);

/* ---- supervisor_api.c: its answers ----------------------------------------------------------- */

const struct admin_route *supervisor_routes(void); /* their argument is the supervisor */

/* ---- supervisor_request.c: not with the keeper yet ------------------------------------------- */

int keeper_call(struct supervisor *s, const char *method, const char *path, const json_t *body,
	json_t **ret_json, struct err *e) __must_check;
/* `body`: of POST /v1/mounts; `kept`: the keeper's status, or NULL. */
int mount_request_add_locked(struct supervisor *s, const json_t *body, const json_t *kept,
	unsigned int *ret_id, struct err *e) __must_check;
struct mount_request *mount_request_find_locked(struct supervisor *s, unsigned int id);
json_t *mount_request_json(const struct supervisor *s, const struct mount_request *request);
/* A daemon cannot start: all that are not FAILED are. The keeper ends those that it has, without the lock meanwhile. */
void mount_requests_fail_locked(struct supervisor *s, const struct child *child);
/* Gives those that wait to the keeper, without the lock meanwhile. */
void mount_requests_pass_locked(struct supervisor *s);
/* Frees those that are the keeper's. */
void mount_requests_leave_locked(struct supervisor *s);
/* How many are in `state`. */
unsigned int mount_requests_count_locked(
	const struct supervisor *s, enum mount_request_state state);
void mount_requests_drop_locked(struct supervisor *s);
void mount_requests_free(struct supervisor *s);

/* ---- supervisor_state.c: what survives it ---------------------------------------------------- */

int supervisor_save(struct supervisor *s) __must_check;
/* Takes over what an earlier supervisor left running; nothing to take over is no error. */
void supervisor_adopt(struct supervisor *s);
/* A keeper that runs although we started none. */
void supervisor_adopt_keeper(struct supervisor *s);
/* Its own part of the status: requests, but no mounts. */
json_t *supervisor_json_locked(struct supervisor *s);

/* ---- supervisor_memory.c: who has how much of it --------------------------------------------- */

uint64_t supervisor_memory_worker(const struct supervisor_config *config);
uint64_t supervisor_memory_master(const struct supervisor_config *config);
uint64_t supervisor_memory_keeper(const struct supervisor_config *config); /* of all mounts */

/* ---- supervisor_plan.c: what is started, and how --------------------------------------------- */

int supervisor_plan(struct supervisor *s) __must_check;
