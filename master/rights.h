/*
 * What a connection with a mount token may ask the master: what concerns its dataset, and the slot table. What it may
 * not have is answered before anything is looked up, like what is not there.
 *
 * Threads: any.
 */
#pragma once

#include "net/net.h"

struct peer_identity;

/* May the request be looked at? False: it is answered already. */
bool rights_admit(struct rpc_request *request) __must_check;

/* May it join? A socket that a group may use is for mounts: workers are asked for bytes that root reads, so they
 * are root's or of the master's user, as changes are. -EPERM with a line. */
int rights_join(const struct peer_identity *peer, struct err *e) __must_check;

/* Is it believed when what it has seen contradicts what the master knows? A new lineage follows from that for all who
 * read the source, so only the cluster itself is: the cluster key, or root and the master's own user on its socket. */
bool rights_contradict(const struct peer_identity *peer);

/* Is it root, or the master's own user, on a unix socket? Others name only what source_rules.h allows. */
bool rights_local(const struct peer_identity *peer);
