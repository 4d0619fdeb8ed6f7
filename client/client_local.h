/*
 * Reads from chunk files of this node. Threads: any that may block on the disk. See client.h,
 * client_read_local().
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include "base/check.h"

struct client_volume;

/*
 * As client_read_local(), without its counters, and with the reason: -EAGAIN when something is not
 * there, -EBADMSG when a piece did not match (it is marked damaged then, which is to be reported to the worker).
 * For what was requested from a worker: its read is not reported once more.
 */
int client_local_read(
	struct client_volume *volume, uint64_t offset, uint32_t length, void *buf) __must_check;

/* True when every block of the range is known to be here. Never blocks. */
bool client_local_present(struct client_volume *volume, uint64_t offset, uint64_t length);
