/*
 * What runs on this node: every runtime directory with its keeper, daemons and mounts, found
 * from the outside.
 *
 * Reading never starts, waits for or changes anything.
 */
#pragma once

#include "admin/admin.h"
#include <stdbool.h>
#include <sys/types.h>
#include "ctl/cache_dir.h"

/* For one answer of a daemon that is there: what is left until the command's deadline, 1 ms at least; 5 s if it has none. */
uint64_t fleet_timeout(void);
/* For all that the command asks from now on. Before other threads. */
void fleet_set_deadline(uint64_t mono_ns);

struct fleet_mount {
	char run[PATH_MAX]; /* its runtime directory */
	char mountpoint[PATH_MAX];
	char source[PATH_MAX];        /* what is mounted: its URL */
	char socket[SOCKET_PATH_MAX]; /* its admin socket */
	pid_t pid;                    /* of its daemon, last known; 0: none */
	uint64_t started;             /* child_process_started() of that */
	bool owned;                   /* an ordinary user's, of the service */
	uid_t owner;
	bool shared; /* another mount point has the same daemon */
};

/* Calls fn for each runtime directory; a negative return ends the walk with it. */
int fleet_each_run(int (*fn)(void *arg, const char *run), void *arg) __must_check;

/* Which caches of this host a command acts on. */
struct fleet_choice {
	const char *cache; /* directory; NULL: not said */
	bool all;
};

#define FLEET_CHOICE_ROWS(type, member)                                                          \
	OPTION_STRING_ROW(type, member.cache, "cache", "DIR",                                    \
		"Cache directory of a private cache (default: the service, or the only cache)"), \
		OPTION_BOOL_ROW(                                                                 \
			type, member.all, "all", "Act on all caches of this host (default: no)")

/*
 * Calls fn for each cache that is chosen among those for which has() is true: the one named, all, or without either that of the
 * service, or the only private one. *ret_n of them. -EEXIST with its line: there are several; -ENOENT: no such cache; else what
 * fn returned.
 */
int fleet_each_chosen(const struct fleet_choice *choice, bool (*has)(void *arg, const char *run),
	int (*fn)(void *arg, const char *run), void *arg, unsigned int *ret_n,
	struct err *e) __must_check;
/* "the service", or the directory of a private cache. size >= PATH_MAX. Returns out. */
const char *fleet_cache_name(const char *run, char *out, size_t size);

/* keeper.json of a runtime directory: a new reference, or NULL. */
json_t *fleet_state(const char *run);
/* The same from the file alone: no daemon is asked. */
json_t *fleet_saved(const char *run);

/* The arguments of the daemon of the mount at `point`, of such a state; NULL: not known. */
const json_t *fleet_arguments(const json_t *state, const char *point);

/* A row of the status whose mount point was taken off, though its daemon lives on for others. */
bool fleet_detached(const json_t *mount);
/* The mount whose mount point is `point`, or, with `below`, holds the path `point`. -ENOENT: none
 * of ours. */
int fleet_find(const char *point, bool below, struct fleet_mount *ret_mount) __must_check;

/* One request to RUN/name; see admin_call(). */
int fleet_call(const char *run, const char *name, const char *path, json_t **ret_json,
	struct err *e) __must_check;

/* True for an outcome of admin_call() that says: nobody listens, or who did ended before the answer
 * was out. */
static inline bool fleet_unreachable(int r)
{
	return r == -ECONNREFUSED || r == -ECONNRESET || r == -EPIPE || r == -EBADMSG;
}

/* True when a process listens on RUN/name. */
bool fleet_alive(const char *run, const char *name);
/* The process that listens on `socket`; 0: one of another pid namespace; negative: none. */
pid_t fleet_listener(const char *socket);

/* Waits until the keeper has noticed that nothing is mounted at `point` any more, and its daemon has ended; the keeper, too, if that was
 * its last mount. Not for what is still in use elsewhere. Bounded. */
void fleet_settle(const char *run, const char *point);
