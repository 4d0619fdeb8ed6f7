/*
 * Whom a read asks, in order: this node's worker while it serves the volume, the slot's owner (or the less
 * loaded of owner and replica, of a hot slot and where `copies` says that the replica has it), then the deputy
 * and the previous owner, with FRAME_LAST; when none of these is up, one that keeps the whole volume, as the master
 * said last. "Ask X" is followed, a few times (placement/duty.h).
 *
 * That this node's worker sends a read away is remembered for the volume, CLIENT_ELSEWHERE long: then it is
 * asked for what its slots have, like any other.
 *
 * Threads: the client's loop.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include "base/clock.h"
#include "cluster/view.h"
#include "placement/duty.h"

#define CLIENT_ELSEWHERE (10 * CLOCK_SECOND)

struct client_volume;

struct client_route {
	struct view_peer *peer; /* to ask now; NULL: none is known */
	struct view_peer *from; /* with the next: has not the bytes, sent the read away */
	bool local;             /* `peer` is asked as this node's worker, before the slot's own */
	bool last;              /* with FRAME_LAST */
	bool cached;            /* with FETCH_CACHED */
	bool hurry;             /* there is somebody else */
	bool spread;            /* a replica is asked in the owner's place */
	uint64_t chunk;
	struct route route;
};

/* The first worker to ask for a chunk; false: none is known. */
bool client_route_begin(
	struct client_route *route, struct client_volume *volume, uint64_t chunk) __must_check;
/* The same by the slot alone. */
bool client_route_slot(
	struct client_route *route, struct client_volume *volume, uint64_t chunk) __must_check;
/* The one asked did not answer. False: none is left. */
bool client_route_dead(struct client_route *route, struct client_volume *volume) __must_check;
/* It has not what it was asked for with FETCH_CACHED. */
bool client_route_miss(struct client_route *route, struct client_volume *volume) __must_check;
/* It has not what it was asked for out of turn (struct client_read.peek): a worker with copies may not have them yet.
 * False: it was the owner. */
bool client_route_back(struct client_route *route, struct client_volume *volume) __must_check;
/* It answered "ask `x`"; `flags` are the answer's. */
bool client_route_moved(struct client_route *route, struct client_volume *volume, uint16_t x,
	uint16_t flags) __must_check;

/* One that keeps the whole volume and can be asked, another for each chunk; NULL: none is known. Any thread. */
struct view_peer *client_route_keeper(const struct client_volume *volume, uint64_t chunk);
/* The worker for a prefetch, and whether with FRAME_LAST; NULL: none is known. Any thread. */
struct view_peer *client_route_serves(struct client_volume *volume, uint64_t chunk, bool *ret_last);
/* This node's worker said "ask X" for a chunk that is not its own. Any thread. */
void client_route_elsewhere(struct client_volume *volume);
bool client_route_is_elsewhere(const struct client_volume *volume);
