/*
 * Orphans: a daemon must outlive its supervisor's death (mounts go on), and must end when nobody is
 * left to serve.
 *
 * A supervisor makes a pipe whose writing end it keeps and every mount inherits; a daemon that
 * serves mounts inherits the reading end, named by GRANARY_ALIVE_FD. When supervisor and last mount
 * are gone, however they went, the kernel closes the last writing end.
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
