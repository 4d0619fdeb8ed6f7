/*
 * What a connection with a mount token may ask a worker: what concerns the volumes of its dataset. Anything else is
 * answered before tables or disk are touched, whether it exists or not.
 *
 * Threads: any.
 */
#pragma once

#include "net/net.h"

/* May the request be looked at? False: it is answered already. */
bool admit_request(struct rpc_request *request) __must_check;
