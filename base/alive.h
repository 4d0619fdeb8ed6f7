/*
 * Orphans: master and worker of a private cache must outlive their keeper's death (mounts go on), and must end when no mount
 * is left.
 *
 * The keeper makes a pipe whose writing end it and every mount's daemon have; master and worker inherit the reading end, named by
 * GRANARY_ALIVE_FD. When keeper and last mount are gone, however they went, the kernel closes the last writing end.
 */
#pragma once

#include "base/check.h"

#define ALIVE_ENV "GRANARY_ALIVE_FD"

/*
 * Watches the descriptor named by GRANARY_ALIVE_FD, if there is one, from a thread of its own: at
 * its end of file the process gets SIGTERM. Called once by main(), after it has blocked its
 * signals. -errno of starting the thread.
 */
int alive_watch(void) __must_check;
