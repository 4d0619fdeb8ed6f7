/*
 * What a connection may ask the master, by the table of net/rights.h: with a mount token what concerns its dataset, and the slot
 * table. What it may not have is answered before anything is looked up, like what is not there.
 *
 * Threads: any.
 */
#pragma once

#include "net/net.h"

struct peer_identity;

/* May the request be looked at? False: it is answered already. */
bool rights_admit(struct rpc_request *request) __must_check;
/* The same without an answer: 0, or an error with its line. */
int rights_check(const struct peer_identity *peer, const struct rpc_request *request,
	struct err *e) __must_check;

/* Is it believed when what it has seen contradicts what the master knows? A new lineage follows from that for all who
 * read the source, so only the cluster itself is: the cluster key, or root and the master's own user on its socket. */
bool rights_contradict(const struct peer_identity *peer);
