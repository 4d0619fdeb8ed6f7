/*
 * The mount keeper: one per cache directory, parent of the mounts' daemons, and the only process with the right to mount. It has
 * what a mount must not lose with its daemon: the FUSE connection and the request slots. That of a private cache also starts,
 * watches and ends master and worker (keeper_daemons.c); a service has these from its service manager.
 *
 *	GET  /v1/status			all of it
 *	POST /v1/mounts			{"source", "mountpoint", ...} -> {"id", "socket", "notice"}
 *	GET  /v1/mount?id=N		{"state", "text", "exit", "socket"}: how far that came
 *	POST /v1/mount?id=N		its failure was read; with &give_up=1: it is not waited for any more, and ended
 *	POST /v1/unmount		{"mountpoint", "mode": "normal", "lazy" or "force"} -> {"others", "in_use",
 *					"users", "server", "ending"}: see keeper_unmount.c
 *	POST /v1/refresh		{"mountpoint", "token"} -> {"id"}: a newer generation in its place, as a mount of
 *					its own, whose exit status is 8 when there is none
 *	POST /v1/upgrade		{"what": "mounts"|"keeper", "program": DIR}: see keeper_upgrade.c
 *	POST /v1/end			ends every mount, then itself
 *
 * It ends by itself when its last mount is gone (unless it is to stay), after master and worker. A service's does not end its
 * mounts when it has to end: they serve on, as after its death. Daemons survive its death: they are not tied to it, the mounts'
 * have duplicates of everything, RUN/keeper.json says who they are and which descriptors those are, and the next keeper recovers
 * them (keeper_state.c). A service's is started again by its service manager, a private one by the next command (ctl/keeper_start.h).
 *
 * An ordinary user (of the group of a service's directory) mounts datasets that allow it at directories of its own, and unmounts
 * those (keeper_user.c); everything else is root's.
 *
 * Threads: one loop (poll) changes things, under the lock; the admin server's threads read, and add
 * requests, under the lock.
 */
#pragma once

#include <limits.h>
#include <pthread.h>
#include "admin/admin.h"
#include "admin/listen.h"
#include "base/child.h"
#include "base/clock.h"
#include "base/config.h"
#include "base/key_options.h"
#include "base/list.h"
#include "base/unix_socket.h"
#include "base/watchdog.h"
#include "keeper/points/mounter_peer.h"

#define KEEPER_TOKEN_PATH_MAX (SOCKET_PATH_MAX + 8u)
#define KEEPER_MOUNTS         1024u
#define KEEPER_RESERVED       16u                 /* of those: not for ordinary users */
#define KEEPER_OWNED          16u                 /* of one ordinary user, by default */
#define KEEPER_IDLE_NS        (15 * CLOCK_SECOND) /* without a mount, or a failure nobody fetched */
#define KEEPER_BACKOFF_NS     (1 * CLOCK_SECOND) /* longest wait before a daemon is started again */
#define KEEPER_NO_WORKER      "none"             /* instead of an address: this node has none */
#define KEEPER_DEAD_AFTER     (30 * CLOCK_SECOND)

struct keeper_config {
	struct config *file;     /* where these come from: read again at SIGHUP; NULL: argv alone */
	const char *cache;       /* canonical */
	const char *run;         /* where sockets and keeper.json are */
	const char *cachefuse;   /* program; NULL: that of programs_dir() */
	uint64_t memory;         /* of all mounts together */
	bool is_private;         /* starts master and worker, too; ends with its last mount */
	uint64_t private_memory; /* is_private: of all daemons together */
	uint64_t capacity;       /* is_private: of the worker's tier; 0: the worker's choice */
	const char *log_level;
	uint64_t dead_after_ns;     /* with no daemon for so long its requests are answered EIO */
	uint64_t user_mounts;       /* of each ordinary user at most */
	struct option_list clients; /* keeper_client.c */
	bool stay;                  /* does not end with its last mount */
	bool leave_mounts;          /* told to end, it leaves them as they are to the next keeper */
	struct admin_listen admin_listen;
	const char *audit_log;   /* file, or NULL */
	const char *master;      /* address; NULL: RUN/master.rpc */
	const char *worker;      /* likewise; KEEPER_NO_WORKER */
	struct key_options keys; /* handed down to the mounts */
	bool again;              /* an earlier one died: with nothing to recover it ends at once */
	uint64_t idle_ns;        /* until it ends without a mount; 0: KEEPER_IDLE_NS */
};

/*
 *	ACTIVE ──unmounted, or ended──► GONE
 *	  └──never came to serve──► FAILED
 */
enum mount_state {
	MOUNT_ACTIVE, /* its daemon is started, and started again */
	MOUNT_FAILED, /* never came to serve; kept until fetched */
	MOUNT_GONE,   /* unmounted: to be freed by the loop */
};

/* Numbers of descriptors: in this process, or in the daemon that was adopted; -1: none. */
struct mount_fds {
	int fuse;  /* its connection, or /dev/null until there is one */
	int slots; /* memfd */
	int near;  /* our end of the pair over which it asks for what it may not do itself */
	int far;   /* its end: --hand-fd */
	int alive; /* base/alive.h */
};

struct mount {
	struct list link;
	unsigned int id;
	enum mount_state state;
	struct child child;
	struct mounter_peer *peer; /* what its daemon asks, and where it is attached */
	char *source;
	char *mountpoint;
	char socket[SOCKET_PATH_MAX];
	char run[SOCKET_PATH_MAX];
	struct mount_fds fds;   /* alive is the keeper's */
	struct mount_fds its;   /* as its daemon numbers them: what a later keeper takes from it */
	bool stored;            /* the service manager has them too (keeper_store.c) */
	bool stored_connection; /* its connection among them */
	int exit_status;        /* MOUNT_FAILED, or about to be */
	struct err failure;     /* likewise */
	uint64_t forget_ns;     /* MOUNT_FAILED: freed then */
	bool point_taken;       /* something was mounted there before: not ours to take off */
	bool owned;             /* by an ordinary user */
	uid_t owner;            /* uid of that user; 0 otherwise */
	int point_fd;           /* of an owned one: its mount point until it serves; -1 */
	uint64_t token; /* of the request for it, which may come twice when its answer was lost */
	bool given_up; /* its caller went away before it served, it was unmounted by force, or master or worker cannot start */
	bool unmounting;     /* on request */
	bool ready;          /* it served while master and worker did: its caller has the answer */
	bool started;        /* its first daemon was */
	uint64_t handing;    /* its daemon was asked to hand over to a successor, by then; 0: no */
	uint64_t dead_since; /* it has no daemon that serves since; 0: it has one, or never had */
	bool dead;           /* for so long that its requests are answered here */
	bool left_refused;   /* those too that its last daemon left */
	bool lost;           /* the connection is gone */
	uint64_t refused;    /* so many were */
	uint64_t upgrades;   /* daemons replaced by others on purpose */
	uint64_t looked_ns;  /* at its mount point */
};

struct keeper_passed; /* a descriptor */

enum { KEEPER_MASTER, KEEPER_WORKER, KEEPER_DAEMONS };

struct keeper {
	const struct keeper_config *config;
	int lock_fd;
	char cachefuse[PATH_MAX]; /* program of mounts to come */
	pthread_mutex_t lock;
	struct mounter_host *host;
	struct keeper_passed *passed; /* by the service manager; NULL once mounts are recovered */
	unsigned int n_passed;
	struct list mounts;
	unsigned int n_mounts;
	unsigned int looks; /* at mount points in this pass of the loop */
	struct buf table;   /* the kernel's mounts, as the first look of this pass read them */
	unsigned int next_id;
	struct child daemons[KEEPER_DAEMONS]; /* of a private cache; else they are never started */
	int alive_fd;                         /* base/alive.h, the writing end; -1: a service's */
	int alive_read_fd; /* the reading end, which master and worker inherit; -1: a service's */
	int wake_fd;       /* eventfd: something was added */
	bool ending;       /* takes no more mounts */
	bool forced;       /* told to end: mounts are ended too */
	bool done;
	/* Leaves its daemons then at the latest, sooner when all serve; 0: stays. */
	uint64_t leave_ns;
	uint64_t saved; /* hash of what keeper.json holds */
	uint64_t idle_since_ns;
	uint64_t started_ns;
	struct admin_server *admin;
	struct keeper_clients *clients; /* NULL: none */
	struct watchdog watchdog;       /* beats of daemons */
};

/* Runs until nothing is left to keep. `ready_fd` as in base/ready.h. Returns the exit status. */
int keeper_run(const struct keeper_config *config, int ready_fd);

/* ---- keeper_api.c: its answers --------------------------------------------------------------- */

/* Serves the routes above from now on: k->admin. */
int keeper_answer(struct keeper *k, struct err *e) __must_check;

/* From any thread: there is something for the loop to do. */
void keeper_wake(struct keeper *k);

/* ---- keeper_client.c: sockets of clients that mount below their roots ------------------------ */

/* Is that a client ("csi,root=/var/lib/kubelet/pods")? -EINVAL with a line. */
int keeper_client_check(const char *text, struct err *e) __must_check;
int keeper_clients_open(struct keeper *k, struct err *e) __must_check;
void keeper_clients_close(struct keeper *k);

/* ---- keeper_state.c: what survives it -------------------------------------------------------- */

int keeper_save(struct keeper *k) __must_check;
/* Takes over what an earlier keeper left running; nothing to take over is no error. An error: its state is as it was. */
int keeper_recover(struct keeper *k, struct err *e) __must_check;
/* Its mount point shows what a daemon serves, be it another mount's. */
bool mount_serves(const struct mount *mount);
json_t *keeper_json_locked(struct keeper *k);
json_t *mount_json(struct keeper *k, const struct mount *mount);

/* ---- keeper_daemons.c: master and worker of a private cache ---------------------------------- */

/* What is left of the memory of a private cache for its mounts. */
uint64_t keeper_daemons_rest(const struct keeper_config *config);
/* Before anything else; then they can be released. */
void keeper_daemons_init(struct keeper *k);
/* Their command lines; with the lock of the cache. Nothing for a service, as the following. */
int keeper_daemons_plan(struct keeper *k, struct err *e) __must_check;
/* Takes over those that an earlier keeper started. After the mounts, before threads. */
int keeper_daemons_recover(struct keeper *k, const json_t *state) __must_check;
/* The pipe that all daemons of a private cache share; after the mounts were recovered, before a daemon is started. */
int keeper_daemons_open(struct keeper *k, struct err *e) __must_check;
/* Starts them where a mount needs them; ends the mounts that wait for one that cannot start. */
void keeper_daemons_advance(struct keeper *k);
/* They serve, or start; true for a service. */
bool keeper_daemons_available(const struct keeper *k);
bool keeper_daemons_serve(const struct keeper *k);
/* One has not reported yet whether it serves. */
bool keeper_daemons_starting(const struct keeper *k);
/* Ends the worker, then the master. True while one of them runs. */
bool keeper_daemons_end(struct keeper *k);
json_t *keeper_daemons_json(const struct keeper *k);
void keeper_daemons_release(struct keeper *k);

/* ---- keeper_store.c: the service manager's descriptor store ---------------------------------- */

/* Takes the descriptors that the service manager passed to this process: k->passed. Before anything is opened. */
void keeper_store_open(struct keeper *k);
/* Those of a mount's descriptors that its daemon does not have any more. */
void mount_take_stored(struct keeper *k, struct mount *mount);
/* All mounts are recovered: drops the rest. */
void keeper_store_release(struct keeper *k);
/* Stores what the service manager does not have yet. */
void keeper_store_look(struct keeper *k);
/* False: the service manager is behind; once more later. */
bool mount_unstore(struct mount *mount);

/* ---- keeper_add.c: one more ------------------------------------------------------------------ */

/* The ordinary user that requests a mount. */
struct mount_owner {
	uid_t uid;
	int point_fd; /* its mount point (user_point.h); taken over by the mount */
};
/* `body`: that of POST /v1/mounts. `owner`: an ordinary user; NULL: root, or who started this keeper. */
int keeper_add_locked(struct keeper *k, const json_t *body, struct mount_owner *owner,
	struct mount **ret_mount, struct err *e) __must_check;

/* ---- keeper_memory.c ------------------------------------------------------------------------- */

/* The maximum of one more mount's daemon. -ENOSPC with a line: those that run use too much. */
int keeper_memory_mount(const struct keeper *k, uint64_t *ret_bytes, struct err *e) __must_check;
/* Of a newer generation in the place of one that is shown: no less than that has. -ENOSPC with a line. */
int keeper_memory_successor(const struct keeper *k, const struct mount *shown, uint64_t *ret_bytes,
	struct err *e) __must_check;

/* ---- keeper_mount.c: a mount ----------------------------------------------------------------- */

/* RUN/name. */
const char *keeper_path(const struct keeper *k, const char *name, char out[SOCKET_PATH_MAX]);
/* The mount with that id; NULL: none. */
struct mount *keeper_mount(const struct keeper *k, unsigned int id);
/* The mount whose daemon serves what `mount` shows: another one, when that is shared. */
const struct mount *keeper_server(const struct keeper *k, const struct mount *mount);
/* ACTIVE, without descriptors and command line. NULL without memory. */
struct mount *mount_new(
	struct keeper *k, unsigned int id, const char *source, const char *mountpoint);
void mount_free(struct mount *mount); /* NULL is allowed */
/* The file of a mount token that is replaced while the mount is there (keeper_client.c). Returns out. */
const char *mount_token_path(const struct mount *mount, char out[KEEPER_TOKEN_PATH_MAX]);
/* What a daemon left that ended before anything was mounted: the next one starts from the beginning, with descriptors of the same numbers. */
void mount_renew(struct mount *mount);
/* Its daemon gets the descriptors of `fds`. */
void mount_give_fds(struct keeper *k, struct mount *mount);
/* Its directory, its descriptors, and who answers its daemon. */
int mount_open(struct keeper *k, struct mount *mount, struct err *e) __must_check;
/* Its daemon may ask from now on; its descriptors are there. */
int mount_add_peer(struct keeper *k, struct mount *mount) __must_check;
/* Another mount's daemon serves what it shows. */
bool mount_is_shared(const struct mount *mount);
/* It died without unmounting: nothing of it may stay on its mount point. */
void mount_clear_point(struct mount *mount);
/* It is where mounter_peer_look() found it last. */
void mount_follow_move(struct mount *mount);
/* The one place where a state changes. */
void mount_set_state_locked(struct mount *mount, enum mount_state next);

/* ---- keeper_user.c: what ordinary users may -------------------------------------------------- */

/* POST /v1/mounts from an ordinary user. */
int keeper_user_mount(struct keeper *k, const struct admin_request *request, json_t **ret_json,
	struct err *e) __must_check;
/* May the caller change that mount? -EPERM with a line, also where `mount` is NULL. */
int keeper_user_check_mine(
	const struct admin_request *request, const struct mount *mount, struct err *e) __must_check;
/*
 * May the caller end the daemon of that mount? Not of an attached one, which may serve mounts of other users. -EPERM, also where
 * `mount` is NULL, or -EBUSY, with a line.
 */
int keeper_user_check_end(
	const struct admin_request *request, const struct mount *mount, struct err *e) __must_check;
/* May ordinary users have one mount more, generations of theirs that open files keep among them? -ENOSPC with a line. */
int keeper_user_check_all(const struct keeper *k, struct err *e) __must_check;
/* It is attached: its mount point's descriptor is not needed any more. */
void mount_close_point(struct keeper *k, struct mount *mount);

/* ---- keeper_unmount.c ------------------------------------------------------------------------ */

/* POST /v1/unmount, from root or the owner. Waits for what the kernel does: not the loop's. */
int keeper_unmount(struct keeper *k, const struct admin_request *request, json_t **ret_json,
	struct err *e) __must_check;

/* ---- keeper_dead.c: a mount without a daemon ------------------------------------------------- */

/* Notes whether it has one, and answers what waits when it had none for too long. */
void mount_look_dead(struct keeper *k, struct mount *mount);
/* Answers EIO to what the kernel has asked meanwhile. */
void mount_refuse(struct mount *mount);
/* The same to the one request that an earlier keeper died over, if there is one. */
void mount_refuse_spare(struct mount *mount);
/* When something is due, monotonic; 0: nothing. */
uint64_t mount_dead_due(const struct keeper *k, const struct mount *mount);

/* ---- keeper_refresh.c ------------------------------------------------------------------------ */

/* A generation that is on its way to that mount point; NULL: none. */
struct mount *keeper_coming(struct keeper *k, const char *mountpoint);
/* `token`: of the request, which may come twice. `list`: its source is listed again for it; else it
 * shows the newest that is known. */
int keeper_refresh_locked(struct keeper *k, const char *mountpoint, uint64_t token, bool list,
	struct mount **ret_mount, struct err *e) __must_check;

/* ---- keeper_follow.c ------------------------------------------------------------------------- */

#define KEEPER_OLD_MAX 4u /* generations that open files keep at a mount point that follows */

/* Refreshes what daemons said there is a newer generation of. */
void keeper_follow_look(struct keeper *k);

/* ---- keeper_upgrade.c ------------------------------------------------------------------------ */

int keeper_upgrade_mounts_locked(struct keeper *k, const char *dir, struct err *e) __must_check;
/* Makes room for the next keeper: this one leaves its daemons, and ends. `dir`: of the program that is to be started. */
int keeper_upgrade_self_locked(struct keeper *k, const char *dir, struct err *e) __must_check;
/* From now on it takes no requests, and ends once nothing is in progress that the next one would not know of. */
void keeper_leave_locked(struct keeper *k);
/* The time for that has come. `saved`: keeper.json says what there is. */
bool keeper_may_leave(struct keeper *k, bool saved) __must_check;
/* A daemon that was asked to hand over and ended has a successor at once. */
void mount_follow_hand_over(struct mount *mount);
