/*
 * What this worker is to do about a chunk, by its view of the cluster and the volume's `copies`
 * (placement/duty.h). A worker without a table, or that knows no other worker, owns everything.
 *
 * Threads: any; never blocks.
 */
#pragma once

#include "cacheworker/worker.h"
#include "cluster/view.h"
#include "placement/duty.h"

/* `flags`: of the request (FRAME_PEER, FRAME_LAST), or 0. */
void worker_duty(struct worker *w, const struct volume_id *volume, uint64_t chunk, uint16_t flags,
	struct duty *ret_duty);

/* Is a copy of it to be kept of what another serves, by the master's word? For a moment he may not answer, and this
 * worker may stand in for him. */
bool worker_keeps_copy(struct worker *w, const struct volume_id *volume, uint64_t chunk);

/* As which class its bytes are stored. */
enum tier_class worker_class(struct worker *w, const struct volume_id *volume, uint64_t chunk);

/* The slot that it lies in. */
uint32_t worker_slot(const struct volume_id *volume, uint64_t chunk);

enum holder_kind {
	HOLDER_FORMER, /* owned it: what it alone has may be much */
	HOLDER_OWNER,
	HOLDER_REPLICA,
	HOLDER_KEEPER, /* keeps the whole volume */
};

struct holder {
	uint16_t number;
	enum holder_kind kind;
};

/* Who may have it besides this worker, most likely first: the slot's previous owner, those before, the owner
 * himself, its replicas; those that are down, too, but not those that are out. And some of those that keep the volume
 * whole (copies.h), which others for each chunk, and none that is down. Returns how many. */
#define DUTY_KEEPERS     4u
#define DUTY_HOLDERS_MAX 12u
uint32_t worker_holders(struct worker *w, const struct volume_id *volume, uint64_t chunk,
	struct holder out[DUTY_HOLDERS_MAX]);

/* The way of a request for it to who serves it (placement/duty.h), and the owner by the table. */
void worker_route(struct worker *w, const struct volume_id *volume, uint64_t chunk,
	struct route *ret_route, uint16_t *ret_owner);
