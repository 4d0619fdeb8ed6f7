/*
 * Extents that mounts of this node may have as devices: FRAME_SEAL (proto/seal.h,
 * docs/decisions/sealing.md).
 *
 * A *view* is what a mount shows: a generation of a volume, as far as its image goes. Of each view
 * that somebody asks about, a work looks which extents are complete, reads those against their
 * checksums at a bounded rate, yielding to readers, and keeps what became of each; an answer only
 * copies that, but for damage, which it sees at once.
 *
 * What a mount says it has as devices is held for as long as it says so (tiers/seal.h).
 *
 * Threads: seals_answer() any that may block, seals_end() the loop, the rest by the worker. One periodic
 * work. `seals.lock` is taken before those of tiers/.
 */
#pragma once

#include "admin/admin.h"
#include "cacheworker/worker.h"
#include "proto/seal.h"

#define SEAL_RATE (256ull << 20) /* bytes a second */

int seals_open(struct worker *w) __must_check; /* after the tiers, before anybody asks */
/* Once the master can be asked, and whenever the rate is not 0 any more. */
void seals_start(struct worker *w);
void seals_stop(struct worker *w);  /* it begins nothing more */
void seals_close(struct worker *w); /* none is asked for any more; waits for its end */

/* Answers FRAME_SEAL. */
void seals_answer(struct worker *w, struct rpc_request *request);
/* The connection is gone: what it held stays for a while. */
void seals_end(struct worker *w, const struct rpc_conn *conn);

/* {"sealed", "complete", "all", "held", "missing_bytes"} of the newest view that is asked about;
 * null: none is. */
json_t *seals_json(struct worker *w, const struct volume_id *volume, uint64_t lineage);
/* What became of the extent in which the chunk lies; false: no mount asks. */
bool seals_find(struct worker *w, const struct chunk_id *chunk, struct seal_status *ret_status);
