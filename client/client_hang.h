/*
 * Answers of a worker that are a chunk file's descriptor: installed and read by threads of their
 * own, for CLIENT_HANG_NS. A disk that hangs keeps one of them and the memory it reads into; the
 * read goes on with bytes from the worker (docs/decisions/stalled-disks.md).
 */
#pragma once

#include "base/clock.h"
#include "client/client_op.h"

#define CLIENT_HANG_NS (5 * CLOCK_SECOND)

/*
 * Takes op's descriptor and reads [from, from + length) of its volume into `out`. As
 * client_local_read(), and -EAGAIN when the disk does not answer. On an I/O thread.
 */
int client_hang_read(struct client_op *op, uint64_t from, uint32_t length, void *out) __must_check;
