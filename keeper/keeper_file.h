/*
 * The configuration file, as the keeper has it read by the daemons of its mounts: from a copy, RUN/mounts.yaml, that
 * was whole and right when the keeper took it. A daemon that is started again in place of one that
 * died must not fail for what somebody writes into the file meanwhile.
 *
 * A file without sections is the keeper's alone: then there is no copy.
 *
 * Threads: that of main().
 */
#pragma once

#include "base/unix_socket.h"
#include "keeper/keeper.h"

/* Takes a copy, once the keeper's own section was read. -EINVAL, with FILE:LINE, when the mounts'
 * section is wrong; -errno, with a line. What was taken before stays then. */
int keeper_file_take(const struct keeper_config *config, struct err *e) __must_check;

/* The copy's path for --config; NULL: there is none. */
const char *keeper_file_copy(const struct keeper_config *config, char out[SOCKET_PATH_MAX]);
