/*
 * The service of this node: master, worker and keeper that somebody else starts (systemd, a
 * container's supervisor), for all datasets of the node. Without one, each cache directory has
 * private daemons and a keeper of its own (keeper_start.h).
 *
 *	BASE/master/	master.sock master.rpc		user granary
 *	BASE/worker/	worker.sock worker.rpc		user granary
 *	BASE/keeper/	keeper.sock keeper.json mount-N.sock	root
 *
 * BASE is GRANARY_RUN_DIR when set, else /run/granary, for whoever asks. The service is there while
 * BASE/keeper is: its unit makes the directory, which stays until the host is started again.
 */
#pragma once

#include <stdbool.h>
#include "base/unix_socket.h"

/* Is there one, whether or not its daemons run just now? */
bool service_there(void);
/* BASE/keeper: the runtime directory of its mounts, as ctl/fleet.h has those. */
const char *service_run(char out[SOCKET_PATH_MAX]);
/* True for that of a service, whose master and worker have theirs beside it. */
bool service_is_run(const char *run);
/*
 * Where `name` ("master.sock") lies that belongs to the runtime directory `run`: in it, or with a
 * service in that of its daemon. -ENAMETOOLONG.
 */
int service_path(const char *run, const char *name, char out[SOCKET_PATH_MAX]) __must_check;
