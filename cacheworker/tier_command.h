/*
 * cacheworker tier init DIR: makes a tier, or takes over one that came from another disk, and ends.
 */
#pragma once

#include <limits.h>
#include "base/err.h"

/* argv[0] is "tier". Returns the exit status; a failing command has printed its line. */
int tier_command(int argc, char **argv);

/*
 * Where this host remembers its tiers: $GRANARY_STATE_DIR/tiers; else /var/lib/granary/tiers for
 * root, for others below $XDG_STATE_HOME or ~/.local/state. NULL when there is no such place.
 */
const char *tier_remembered_dir(char out[PATH_MAX]);
