/* A keeper for mounts whose keeper and supervisor are both gone. Forks: for a process of one
 * thread. */
#pragma once

#include "base/check.h"

/*
 * Starts one that adopts what RUN/keeper.json names, and waits until it serves; it ends with the
 * last of those mounts. -ENOENT: there is nothing to adopt; -EIO: it did not come to serve.
 */
int revive_keeper(const char *run) __must_check;
