/*
 * What a connection may ask a worker, by the table of net/rights.h: with a mount token what concerns the volumes of its
 * dataset. Anything else is answered before tables or disk are touched, whether it exists or not.
 *
 * To a token that is for a part of a volume (peer_reads_part()) the volume consists of the objects of that part:
 * fetch_plan.c sends their bytes, and zeros in place of all others. It gets no descriptor: files hold more than a part.
 *
 * Threads: any.
 */
#pragma once

#include "net/net.h"

struct peer_identity;

/* May the request be looked at? False: it is answered already. */
bool admit_request(struct rpc_request *request) __must_check;
/* Without an answer, and without what a token may have of it: 0, or an error with its line. */
int admit_check(
	const struct peer_identity *peer, const struct frame *frame, struct err *e) __must_check;
