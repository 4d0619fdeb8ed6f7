/*
 * Starting the keeper of a private cache (keeper/keeper.h): by `cachectl mount`, and, where one was killed, by any command that
 * needs it; that one recovers what it left. Forks: for a process of one thread.
 */
#pragma once

#include <stdbool.h>
#include "ctl/cache_dir.h"

struct keeper_settings {
	uint64_t capacity;      /* of the tier; 0: the worker's choice */
	uint64_t memory;        /* of all daemons together */
	uint64_t dead_after_ns; /* 0: the keeper's choice */
	const char *log_level;
};

/*
 * Starts the program in `dir` (NULL: that of this program) and waits until it serves. Returns an exit status, with a line when it
 * is not EXIT_OK; EXIT_BUSY: another keeper has the cache. `recovers`: it ends at once when nothing is left to recover.
 */
int keeper_start(const struct cache_dir *cache, const struct keeper_settings *settings,
	const char *dir, bool recovers, struct err *e) __must_check;

/*
 * Where the keeper of a private cache was killed: starts one with the settings of that, as keeper_start(), which recovers its
 * mounts, or ends what served the last one. 0 when a keeper serves; -ENOENT: there is nothing to recover, or a service's
 * keeper is to be started by its service manager.
 */
int keeper_revive(const char *run) __must_check;
/*
 * Ends the keeper of a private cache that has not answered for as long as counts as a hang (base/watchdog.h): that of a service is
 * its service manager's. Then keeper_revive() has its successor. To be called before a request to it.
 */
void keeper_end_hung(const char *run);
/* keeper_revive() with the program in `dir`, of a keeper that has just left its mounts. Returns an exit status. */
int keeper_succeed(const char *run, const char *dir, struct err *e) __must_check;
