/*
 * Sealed extents: files of this node's worker in which every byte that a generation names is
 * present and was just verified, so that the kernel may read them as devices of the image without
 * asking anybody (docs/decisions/sealing.md).
 *
 *	client_seal_poll()	what becomes of a mount's extents: once a second or so
 *	client_seal_take()	the descriptor of a sealed one
 *	client_seal_holds()	whether what was taken then is still good by what was polled now
 *
 * An extent's number is that of the image's device, counted from the volume's start: it is of the
 * bytes [number, number + 1) x extent bytes of the volume. Which generation is shown makes a
 * difference: an extent may be whole for one and lack what a later one appended.
 *
 * What a caller has as a device (also of a superblock that only open files keep) it names in `held`
 * with each poll: the worker neither evicts nor moves it as long as it is said at least every
 * SEAL_HELD_NS by a connection that lives. What goes all the same is unlinked whole, so that who
 * has the descriptor goes on reading right bytes.
 *
 * No worker on this node, one that does not answer or an old one: an error of the poll, and no
 * reason to give up what was taken; readers of a sealed extent need no daemon.
 *
 * Threads: any that may block; both calls wait for the worker at most CLIENT_SEAL_PATIENCE, for
 * each SEAL_PAGE extents.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include "base/clock.h"
#include "base/err.h"
#include "proto/seal.h"

struct client_volume;

#define CLIENT_SEAL_PATIENCE (5 * CLOCK_SECOND)

/* What one extent is to the mount: struct seal_status of proto/seal.h: state, why, percent, missing,
 * findings; and: */
struct client_seal {
	struct seal_status status;
	uint64_t epoch; /* of the worker that said so: another one after its restart */
};

/*
 * States of the extents [first, first + n) of `generation`, an earlier one of the volume's lineage or
 * its own. `extent_bytes` as the image has it. `held`: n bits, the lowest of the first byte first;
 * NULL: none. n <= LIMIT_DEVICES. -ENODEV: no worker on this node; -EOPNOTSUPP: one that knows
 * nothing of sealing; -EBADMSG: an answer that makes no sense; else as rpc_call().
 */
int client_seal_poll(struct client_volume *volume, uint64_t generation, uint64_t extent_bytes,
	uint64_t first, uint32_t n, const uint8_t *held, struct client_seal *ret_seals,
	struct err *e) __must_check;

/*
 * The descriptor of a sealed extent, read-only, the caller's: a file whose first `extent_bytes` are
 * the device's. What came is checked: a regular file, opened for reading only, as long as such a
 * file is to the byte, its foot says that it is this extent, and it belongs to whom the worker's
 * socket belongs to. From then on it counts as held until the next poll, which is to name it.
 * `ret_seal` is its state at that moment, for client_seal_holds(). -EAGAIN: it is not sealed (any
 * more); -EBADMSG: not what it should be; else as client_seal_poll().
 */
int client_seal_take(struct client_volume *volume, uint64_t generation, uint64_t extent_bytes,
	uint64_t number, struct client_seal *ret_seal, int *ret_fd, struct err *e) __must_check;

/*
 * Whether an extent that was `then` when it was taken may be a device still when it is `now`. False
 * after a finding of the scrub or of a reader, when bytes of it are gone, or when the disk failed:
 * then it is to be read on demand, and what the kernel has cached of it to be forgotten. A worker
 * that was restarted and verifies again does not count. Pure.
 */
bool client_seal_holds(const struct client_seal *then, const struct client_seal *now);
