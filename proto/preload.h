/*
 * What master and worker have to agree on about preloads: states and bounds. The messages are in
 * granary.proto.
 *
 *	LISTING ─source opened─► WAITING ─a worker has it─► RUNNING ─► COMPLETE, FAILED, INCOMPLETE
 *	   └──────────────────────────┴───────────────────────┴─► CANCELLED, FAILED
 *
 * The numbers are on the wire and in the master's store: never renumber.
 */
#pragma once

#include <stdbool.h>

enum preload_state {
	PRELOAD_LISTING,    /* the master asks the origin what there is */
	PRELOAD_WAITING,    /* for a worker */
	PRELOAD_RUNNING,    /* a worker loads */
	PRELOAD_COMPLETE,   /* all is cached and was checked */
	PRELOAD_FAILED,     /* some objects could not be fetched, or none */
	PRELOAD_INCOMPLETE, /* not all has room */
	PRELOAD_CANCELLED,
	PRELOAD_STATES,
};

#define PRELOAD_JOBS_MAX     128u /* kept by a master, ended ones included */
#define PRELOAD_ACTIVE_MAX   16u  /* not ended */
#define PRELOAD_USERS_MAX    12u  /* of those: of ordinary users */
#define PRELOAD_USER_MAX     2u   /* with so many an ordinary user begins no further one */
#define PRELOAD_PATHS_MAX    16u
#define PRELOAD_PATH_BYTES   1024u
#define PRELOAD_FAILURES_MAX 32u /* listed; more are counted */
#define PRELOAD_REASON_BYTES 512u
#define PRELOAD_RATE_MAX     (1ull << 40) /* bytes a second */

static inline bool preload_ended(enum preload_state state)
{
	return state >= PRELOAD_COMPLETE;
}

/* "running". */
static inline const char *preload_state_name(enum preload_state state)
{
	static const char *const names[PRELOAD_STATES] = {
		"listing",
		"waiting",
		"running",
		"complete",
		"failed",
		"incomplete",
		"cancelled",
	};

	return state < PRELOAD_STATES ? names[state] : "?";
}
